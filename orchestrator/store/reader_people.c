/* What people look at every day: what waits for them, and how far the guards may be purged. */
#include "store/reader_internal.h"

#include "store/connect.h"

#include <limits.h>

/* --- parked sagas, grouped -------------------------------------------------------------------- */

void store_parked_done(struct store_parked *parked)
{
    mem_free(parked->namespace_);
    mem_free(parked->definition);
    mem_free(parked->step);
    mem_free(parked->code);
    mem_free(parked->oldest_saga_id);
    *parked = (struct store_parked){ 0 };
}

struct parked_query {
    const char *namespace_, *definition;
    size_t limit, count;
    struct store_parked *groups;
    int64_t sagas;
};

static void parked_drop(struct parked_query *query)
{
    while (query->count > 0)
        store_parked_done(&query->groups[--query->count]);
}

static int decode_parked(const PGresult *result, int row, struct store_parked *ret,
                         int64_t *ret_sagas, struct err *err)
{
    struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
    struct store_parked group = { 0 };
    group.namespace_ = columns_text(&columns);
    group.definition = columns_text(&columns);
    group.step = columns_text(&columns);
    group.phase = columns_saga_state(&columns);
    group.reason = columns_park_reason(&columns);
    group.code = columns_text(&columns);
    group.count = columns_int8(&columns);
    group.oldest_ms = columns_time_ms(&columns);
    group.oldest_saga_id = columns_text(&columns);
    int64_t sagas = columns_int8(&columns);
    if (columns.failed) {
        store_parked_done(&group);
        return (int)err->code;
    }
    *ret = group;
    *ret_sagas = sagas;
    return 0;
}

static int parked_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct parked_query *query = ctx;
    parked_drop(query); /* of a first try that broke */
    query->sagas = 0;
    struct params *params = reader_start(reader, READ_PARKED);
    params_text(params, query->namespace_);
    params_text(params, query->definition);
    params_int8(params, query->limit > INT_MAX ? INT_MAX : (int64_t)query->limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    for (int row = 0; !rc && row < PQntuples(result) && query->count < query->limit; row++) {
        rc = decode_parked(result, row, &query->groups[query->count], &query->sagas, err);
        if (!rc)
            query->count++;
    }
    return rc;
}

int store_reader_parked(struct store_reader *reader, const char *namespace_, const char *definition,
                        size_t limit, struct store_parked *ret, size_t *ret_count,
                        int64_t *ret_sagas, struct err *err)
{
    struct parked_query query = {
        .namespace_ = namespace_, .definition = definition, .limit = limit, .groups = ret
    };
    int rc = reader_with_connection(reader, parked_run, &query, err);
    if (rc) {
        parked_drop(&query);
        return rc;
    }
    *ret_count = query.count;
    *ret_sagas = query.sagas;
    return 0;
}

/* --- the floor of the guards ------------------------------------------------------------------ */

void store_guard_floor_done(struct store_guard_floor *floor)
{
    mem_free(floor->namespace_);
    mem_free(floor->definition);
    mem_free(floor->saga_id);
    *floor = (struct store_guard_floor){ 0 };
}

struct floor_query {
    int64_t margin_ms;
    struct store_guard_floor floor;
};

static int decode_floor(const PGresult *result, struct store_guard_floor *ret, struct err *err)
{
    struct columns columns = { .result = result, .table = "saga", .err = err };
    struct store_guard_floor floor = { 0 };
    floor.floor_ms = columns_time_ms(&columns);
    floor.started_at_ms = columns_time_ms(&columns);
    floor.uid = columns.uid = columns_uuid(&columns, &floor.has_oldest);
    floor.namespace_ = columns_text(&columns);
    floor.definition = columns_text(&columns);
    floor.saga_id = columns_text(&columns);
    if (floor.has_oldest)
        floor.run = columns_int4(&columns);
    if (columns.failed) {
        store_guard_floor_done(&floor);
        return (int)err->code;
    }
    *ret = floor;
    return 0;
}

static int floor_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct floor_query *query = ctx;
    store_guard_floor_done(&query->floor); /* of a first try that broke */
    struct params *params = reader_start(reader, READ_GUARD_FLOOR);
    params_int8(params, query->margin_ms);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    if (!rc && PQntuples(result) != 1)
        rc = err_set(err, ERR_INTERNAL, "guard floor: %d rows came back", PQntuples(result));
    return rc ? rc : decode_floor(result, &query->floor, err);
}

int store_reader_guard_floor(struct store_reader *reader, int64_t margin_ms,
                             struct store_guard_floor *ret, struct err *err)
{
    struct floor_query query = { .margin_ms = margin_ms };
    int rc = reader_with_connection(reader, floor_run, &query, err);
    if (rc)
        store_guard_floor_done(&query.floor);
    else
        *ret = query.floor;
    return rc;
}

/* --- who is let go, and who lives ------------------------------------------------------------- */

struct let_go_query {
    size_t limit, count;
    struct store_let_go *list;
};

static void let_go_drop(struct let_go_query *query)
{
    while (query->count > 0)
        mem_free(query->list[--query->count].handler);
}

static int let_go_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct let_go_query *query = ctx;
    let_go_drop(query); /* of a first try that broke */
    struct params *params = reader_start(reader, READ_LET_GO);
    params_int8(params, STORE_LET_GO_COUNT_MAX);
    params_int8(params, (int64_t)query->limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    for (int row = 0; !rc && row < PQntuples(result) && query->count < query->limit; row++) {
        struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
        struct store_let_go *ret = &query->list[query->count];
        ret->handler = columns_text(&columns);
        ret->sagas = columns_int8(&columns);
        ret->oldest_ms = columns_time_ms(&columns);
        ret->share = columns_int8(&columns);
        query->count++;
        rc = columns.failed ? (int)err->code : 0;
    }
    return rc;
}

int store_reader_let_go(struct store_reader *reader, size_t limit, struct store_let_go *ret,
                        size_t *ret_count, struct err *err)
{
    struct let_go_query query = { .limit = limit, .list = ret };
    int rc = reader_with_connection(reader, let_go_run, &query, err);
    if (rc) {
        let_go_drop(&query);
        return rc;
    }
    *ret_count = query.count;
    return 0;
}

struct nodes_query {
    const char *but;
    size_t limit, count;
    char **names;
};

static void nodes_drop(struct nodes_query *query)
{
    while (query->count > 0)
        mem_free(query->names[--query->count]);
}

static int nodes_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct nodes_query *query = ctx;
    nodes_drop(query); /* of a first try that broke */
    struct params *params = reader_start(reader, READ_NODES);
    params_text(params, query->but);
    params_int8(params, (int64_t)query->limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    for (int row = 0; !rc && row < PQntuples(result) && query->count < query->limit; row++) {
        struct columns columns = { .result = result, .row = row, .table = "node", .err = err };
        query->names[query->count++] = columns_text(&columns);
        rc = columns.failed ? (int)err->code : 0;
    }
    return rc;
}

int store_reader_nodes(struct store_reader *reader, const char *but, size_t limit, char **ret,
                       size_t *ret_count, struct err *err)
{
    struct nodes_query query = { .but = but, .limit = limit, .names = ret };
    int rc = reader_with_connection(reader, nodes_run, &query, err);
    if (rc) {
        nodes_drop(&query);
        return rc;
    }
    *ret_count = query.count;
    return 0;
}

struct serving_query {
    const char *but;
    const char *const *handlers;
    size_t handler_count, limit, count;
    struct store_serving *list;
};

void store_serving_done(struct store_serving *serving, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(serving[i].handler);
        mem_free(serving[i].node);
    }
}

static void serving_drop(struct serving_query *query)
{
    store_serving_done(query->list, query->count);
    query->count = 0;
}

static int serving_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct serving_query *query = ctx;
    serving_drop(query); /* of a first try that broke */
    struct params *params = reader_start(reader, READ_SERVING);
    params_text(params, query->but);
    for (size_t i = 0; i < query->handler_count; i++) {
        params_seek(params, 1);
        params_text(params, query->handlers[i]);
    }
    params_seek(params, 2);
    params_int8(params, (int64_t)query->limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    for (int row = 0; !rc && row < PQntuples(result) && query->count < query->limit; row++) {
        struct columns columns = { .result = result, .row = row, .table = "node", .err = err };
        struct store_serving *ret = &query->list[query->count++];
        ret->handler = columns_text(&columns);
        ret->node = columns_text(&columns);
        rc = columns.failed ? (int)err->code : 0;
    }
    return rc;
}

int store_reader_serving(struct store_reader *reader, const char *but, const char *const *handlers,
                         size_t handler_count, size_t limit, struct store_serving *ret,
                         size_t *ret_count, struct err *err)
{
    struct serving_query query = { .but = but,
                                   .handlers = handlers,
                                   .handler_count = handler_count,
                                   .limit = limit,
                                   .list = ret };
    int rc = reader_with_connection(reader, serving_run, &query, err);
    if (rc) {
        serving_drop(&query);
        return rc;
    }
    *ret_count = query.count;
    return 0;
}
