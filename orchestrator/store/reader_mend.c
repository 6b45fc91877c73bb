#include "store/reader_mend.h"

#include "store/connect.h"
#include "store/reader_internal.h"

#include <inttypes.h>
#include <string.h>

/* Why nothing came back: it was done before, by a try whose answer was lost; or it cannot be. */
static int explain(struct store_reader *reader, const struct store_rerun *what, struct err *err)
{
    struct store_ref latest = { .namespace_ = what->namespace_,
                                .definition = what->definition,
                                .saga_id = what->saga_id };
    struct uuid uid;
    char text[UUID_TEXT_SIZE];
    if (reader_resolve(reader, &latest, &uid, err) != 0)
        return (int)err->code;
    if (memcmp(uid.bytes, what->uid.bytes, sizeof uid.bytes) == 0)
        return 0;
    uuid_format(&uid, text);
    if (memcmp(uid.bytes, what->old.bytes, sizeof uid.bytes) != 0)
        return err_reason(err, ERR_PRECONDITION, "RERUN_NOT_ALLOWED",
                          "another run came after it: saga %s", text);
    return err_reason(err, ERR_PRECONDITION, "RERUN_NOT_ALLOWED",
                      "its rows, or revision %" PRId32 " of %s, were deleted meanwhile",
                      what->revision, what->definition);
}

static int rerun_run(struct store_reader *reader, void *ctx, struct err *err)
{
    const struct store_rerun *what = ctx;
    if (reader_prepare_rerun(reader, err) != 0)
        return (int)err->code;
    struct params *params = reader_start_people(reader, PEOPLE_RERUN);
    params_int2(params, uuid_shard(&what->old));
    params_uuid(params, &what->old);
    params_uuid(params, &what->uid);
    params_int4(params, what->revision);
    if (what->deadline_ms > 0)
        params_int8(params, what->deadline_ms);
    else
        params_null(params);
    params_text(params, what->node);
    params_bool(params, what->publish_start);
    params_text(params, what->actor);
    params_text(params, what->reason);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    return PQntuples(result) > 0 ? 0 : explain(reader, what, err);
}

int store_reader_rerun(struct store_reader *reader, const struct store_rerun *what, struct err *err)
{
    struct store_rerun copy = *what;
    return reader_with_connection(reader, rerun_run, &copy, err);
}

/* --- who has to do with whom ------------------------------------------------------------------ */

void store_related_done(struct store_related *related)
{
    mem_free(related->namespace_);
    mem_free(related->definition);
    mem_free(related->saga_id);
    *related = (struct store_related){ 0 };
}

struct related_query {
    const struct saga_row *row;
    struct store_related *list;
    size_t limit, count;
};

static void related_drop(struct related_query *query)
{
    while (query->count > 0)
        store_related_done(&query->list[--query->count]);
}

static int related_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct related_query *query = ctx;
    const struct saga_row *row = query->row;
    static const struct uuid nobody = { { 0 } };
    const struct uuid *named = row->has_related ? &row->related : &nobody;
    related_drop(query); /* of a first try that broke */
    struct params *params = reader_start_people(reader, PEOPLE_RELATED);
    params_uuid(params, &row->uid);
    params_uuid(params, named);
    params_int2(params, uuid_shard(named));
    params_int8(params, (int64_t)query->limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int i = 0; i < PQntuples(result) && query->count < query->limit; i++) {
        struct columns columns = { .result = result, .row = i, .table = "saga", .err = err };
        struct store_related *related = &query->list[query->count++];
        bool present;
        *related = (struct store_related){ 0 };
        related->is_named = columns_bool(&columns);
        related->uid = columns_uuid(&columns, &present);
        related->namespace_ = columns_text(&columns);
        related->definition = columns_text(&columns);
        related->saga_id = columns_text(&columns);
        related->run = columns_int4(&columns);
        related->state = columns_saga_state(&columns);
        related->started_at_ms = columns_time_ms(&columns);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

int store_reader_related(struct store_reader *reader, const struct saga_row *row, size_t limit,
                         struct store_related *ret, size_t *ret_count, struct err *err)
{
    struct related_query query = { .row = row, .list = ret, .limit = limit };
    if (reader_with_connection(reader, related_run, &query, err) != 0) {
        related_drop(&query);
        return (int)err->code;
    }
    *ret_count = query.count;
    return 0;
}
