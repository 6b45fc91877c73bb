/* Definitions and their revisions as they are stored. */
#include "store/reader_internal.h"

#include "store/connect.h"

#include <limits.h>

void store_definition_done(struct store_definition *definition)
{
    mem_free(definition->namespace_);
    mem_free(definition->name);
    mem_free(definition->content.data);
    mem_free(definition->descriptors.data);
    mem_free(definition->paused_by);
    mem_free(definition->pause_reason);
    *definition = (struct store_definition){ 0 };
}

int reader_decode_definition(const PGresult *result, int row, struct store_definition *ret,
                             struct err *err)
{
    struct columns columns = {
        .result = result, .row = row, .table = "definition_revision", .err = err
    };
    struct store_definition definition = { 0 };
    definition.namespace_ = columns_text(&columns);
    definition.name = columns_text(&columns);
    definition.revision = columns_int4(&columns);
    definition.created_at_ms = columns_time_ms(&columns);
    definition.current = columns_bool(&columns);
    definition.content = columns_bytes(&columns);
    definition.paused_at_ms = columns_time_ms(&columns);
    definition.paused_by = columns_text(&columns);
    definition.pause_reason = columns_text(&columns);
    definition.descriptors = columns_bytes(&columns);
    definition.open_sagas = columns_int8(&columns);
    if (columns.failed) {
        store_definition_done(&definition);
        return (int)err->code;
    }
    *ret = definition;
    return 0;
}

struct definition_query {
    enum read_stmt_id statement;
    const char *namespace_, *name;
    int32_t revision; /* of REVISIONS: below this one */
    bool with_descriptors;
    const char *after_namespace, *after_name;
    size_t limit;
    struct store_definition *definitions;
    size_t count;
};

static void drop(struct definition_query *query)
{
    while (query->count > 0)
        store_definition_done(&query->definitions[--query->count]);
}

static void put(struct params *params, const struct definition_query *query)
{
    params_text(params, query->namespace_);
    if (query->statement == READ_DEFINITIONS) {
        params_text(params, query->after_namespace ? query->after_namespace : "");
        params_text(params, query->after_name ? query->after_name : "");
    } else {
        params_text(params, query->name);
        params_int4(params, query->revision);
    }
    if (query->statement == READ_DEFINITION)
        params_bool(params, query->with_descriptors);
    else
        params_int8(params, query->limit > INT_MAX ? INT_MAX : (int64_t)query->limit);
}

static int definitions_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct definition_query *query = ctx;
    drop(query); /* of a first try that broke */
    put(reader_start(reader, query->statement), query);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result) && query->count < query->limit; row++) {
        if (reader_decode_definition(result, row, &query->definitions[query->count], err) != 0)
            return (int)err->code;
        query->count++;
    }
    return 0;
}

static int query_definitions(struct store_reader *reader, struct definition_query *query,
                             struct err *err)
{
    if (reader_with_connection(reader, definitions_run, query, err) == 0)
        return 0;
    drop(query);
    return (int)err->code;
}

int reader_no_definition(const char *namespace_, const char *name, int32_t revision,
                         struct err *err)
{
    if (revision)
        return err_set(err, ERR_NOT_FOUND, "no revision %d of definition %s/%s", revision,
                       namespace_, name);
    return err_set(err, ERR_NOT_FOUND, "no definition %s/%s", namespace_, name);
}

int store_reader_definition(struct store_reader *reader, const char *namespace_, const char *name,
                            int32_t revision, bool with_descriptors, struct store_definition *ret,
                            struct err *err)
{
    struct store_definition definition = { 0 };
    struct definition_query query = { .statement = READ_DEFINITION,
                                      .namespace_ = namespace_,
                                      .name = name,
                                      .revision = revision,
                                      .with_descriptors = with_descriptors,
                                      .limit = 1,
                                      .definitions = &definition };
    if (query_definitions(reader, &query, err) != 0)
        return (int)err->code;
    if (query.count == 0)
        return reader_no_definition(namespace_, name, revision, err);
    *ret = definition;
    return 0;
}

int store_reader_definitions(struct store_reader *reader, const char *namespace_,
                             const char *after_namespace, const char *after_name, size_t limit,
                             struct store_definition *ret, size_t *ret_count, struct err *err)
{
    struct definition_query query = { .statement = READ_DEFINITIONS,
                                      .namespace_ = namespace_,
                                      .after_namespace = after_namespace,
                                      .after_name = after_name,
                                      .limit = limit,
                                      .definitions = ret };
    if (query_definitions(reader, &query, err) != 0)
        return (int)err->code;
    *ret_count = query.count;
    return 0;
}

int store_reader_revisions(struct store_reader *reader, const char *namespace_, const char *name,
                           int32_t before, size_t limit, struct store_definition *ret,
                           size_t *ret_count, struct err *err)
{
    struct definition_query query = { .statement = READ_REVISIONS,
                                      .namespace_ = namespace_,
                                      .name = name,
                                      .revision = before,
                                      .limit = limit,
                                      .definitions = ret };
    if (query_definitions(reader, &query, err) != 0)
        return (int)err->code;
    *ret_count = query.count;
    return 0;
}
