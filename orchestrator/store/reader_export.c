#include "store/reader_export.h"

#include "store/connect.h"
#include "store/reader_internal.h"

#include <assert.h>
#include <string.h>

enum { LOAD_MAX = 16 }; /* sagas in memory at a time */

struct attempts_query {
    const struct store_attempts_filter *filter;
    store_attempts_fn *fn;
    void (*begin)(void *ctx);
    void *ctx;
    bool more;
    struct store_attempts_place next;
};

static int find(struct store_reader *reader, const struct store_attempts_filter *filter,
                PGresult **ret, struct err *err)
{
    static const struct uuid first = { { 0 } };
    struct params *params = reader_start_people(reader, PEOPLE_ATTEMPTS);
    params_text(params, filter->namespace_);
    params_text(params, filter->definition);
    params_time(params, decode_time_pg(filter->has_after ? filter->after_us : 0));
    params_uuid(params, filter->has_after ? &filter->after : &first);
    params_time(params, decode_time_pg(filter->from_ms * 1000));
    params_time(params, decode_time_pg(filter->to_ms * 1000));
    params_text(params, filter->step);
    params_text(params, operation_name(filter->operation));
    params_bool(params, filter->by_end);
    params_int8(params, ATTEMPTS_SCAN_MAX);
    return reader_execute(reader, ret, err);
}

static struct store_attempts_place place_of(const PGresult *result, int row, int64_t *ret_n,
                                            bool *ret_fits, struct columns *columns)
{
    *columns =
        (struct columns){ .result = result, .row = row, .table = "saga", .err = columns->err };
    bool present;
    struct store_attempts_place place;
    place.started_us = columns_int8(columns) - decode_time_pg(0);
    place.uid = columns_uuid(columns, &present);
    *ret_n = columns_int8(columns);
    *ret_fits = columns_bool(columns);
    return place;
}

static void put_uids(struct params *params, const struct store_attempts_place *places, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        params_seek(params, 0);
        params_int2(params, uuid_shard(&places[i].uid));
        params_uuid(params, &places[i].uid);
    }
}

/* Rows and journals of some sagas: all of them are there, since it is one snapshot. */
static int load(struct store_reader *reader, const struct store_attempts_place *places,
                size_t count, struct store_saga sagas[LOAD_MAX], struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *rows = NULL;
    CLEANUP(connect_clear_p) PGresult *entries = NULL;
    params_start(&reader->params, &stmts[STMT_LOAD_ROWS]);
    put_uids(&reader->params, places, count);
    if (reader_execute(reader, &rows, err) != 0)
        return (int)err->code;
    params_start(&reader->params, &stmts[STMT_LOAD_ENTRIES]);
    put_uids(&reader->params, places, count);
    if (reader_execute(reader, &entries, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(rows); row++) {
        int64_t n = decode_ordinal(rows, row);
        assert(n >= 1 && (size_t)n <= count);
        if (decode_saga(rows, row, &sagas[n - 1].row, err) != 0)
            return (int)err->code;
    }
    for (int first = 0, last; first < PQntuples(entries); first = last) {
        int64_t n = decode_ordinal(entries, first);
        assert(n >= 1 && (size_t)n <= count);
        for (last = first + 1; last < PQntuples(entries) && decode_ordinal(entries, last) == n;)
            last++;
        if (decode_entries(entries, first, last - first, &sagas[n - 1], err) != 0)
            return (int)err->code;
    }
    return 0;
}

/* *ret_taken: how many of them; fewer than `count` ends the page. */
static int tell(struct store_reader *reader, const struct attempts_query *query,
                const struct store_attempts_place *places, size_t count, size_t *ret_taken,
                struct err *err)
{
    struct store_saga sagas[LOAD_MAX] = { 0 };
    int rc = load(reader, places, count, sagas, err);
    bool more = true;
    size_t taken = 0;
    while (!rc && more && taken < count) {
        rc = query->fn(query->ctx, &sagas[taken], &more, err);
        taken += more;
    }
    for (size_t i = 0; i < count; i++)
        store_saga_done(&sagas[i]);
    *ret_taken = taken;
    return rc;
}

static int tell_all(struct store_reader *reader, struct attempts_query *query,
                    const PGresult *found, struct err *err)
{
    struct store_attempts_place places[LOAD_MAX];
    struct columns columns = { .err = err };
    size_t waiting = 0, told = 0;
    int rows = PQntuples(found);
    for (int row = 0; row < rows; row++) {
        int64_t n;
        bool fits;
        struct store_attempts_place place = place_of(found, row, &n, &fits, &columns);
        if (columns.failed)
            return (int)err->code;
        if (fits)
            places[waiting++] = place;
        bool full = told + waiting == query->filter->limit;
        if (waiting && (waiting == LOAD_MAX || full || row + 1 == rows)) {
            size_t taken;
            if (tell(reader, query, places, waiting, &taken, err) != 0)
                return (int)err->code;
            if (taken > 0)
                query->next = places[taken - 1];
            told += taken;
            query->more = taken < waiting || (full && row + 1 < rows);
            if (query->more)
                return 0;
            waiting = 0;
        }
        if (row + 1 == rows) { /* the last that was looked at */
            query->next = place;
            query->more = n == ATTEMPTS_SCAN_MAX;
        }
    }
    return 0;
}

static int attempts_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct attempts_query *query = ctx;
    query->begin(query->ctx);
    query->more = false;
    if (reader_command(reader, control_stmts[CONTROL_BEGIN_READ].sql, err) != 0)
        return (int)err->code;
    CLEANUP(connect_clear_p) PGresult *found = NULL;
    if (find(reader, query->filter, &found, err) != 0 || tell_all(reader, query, found, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_attempts_definition(struct store_reader *reader, const char *namespace_, const char *name,
                              int32_t revision, struct store_definition *ret, struct err *err)
{
    struct params *params = reader_start(reader, READ_DEFINITION);
    params_text(params, namespace_);
    params_text(params, name);
    params_int4(params, revision);
    params_bool(params, true);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    return PQntuples(result) > 0 ? reader_decode_definition(result, 0, ret, err)
                                 : reader_no_definition(namespace_, name, revision, err);
}

int store_reader_attempts(struct store_reader *reader, const struct store_attempts_filter *filter,
                          store_attempts_fn *fn, void (*begin)(void *ctx), void *ctx,
                          bool *ret_more, struct store_attempts_place *ret_next, struct err *err)
{
    struct attempts_query query = { .filter = filter, .fn = fn, .begin = begin, .ctx = ctx };
    int rc = reader_with_connection(reader, attempts_run, &query, err);
    if (rc)
        return rc;
    *ret_more = query.more;
    *ret_next = query.next;
    return 0;
}
