#include "store/reader_handlers.h"

#include "store/connect.h"
#include "store/handlers.h"
#include "store/reader_internal.h"

enum { CHANGE_TRIES_MAX = 20 };

static struct params *start(struct store_reader *reader, enum handler_stmt_id id)
{
    params_start(&reader->params, &handler_stmts[id]);
    return &reader->params;
}

/* --- looking ---------------------------------------------------------------------------------- */

struct list_query {
    const char *only, *after;
    size_t limit, count;
    struct store_handler_view *list;
};

static int list_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct list_query *query = ctx;
    query->count = 0; /* of a first try that broke */
    struct params *params = start(reader, HANDLER_LIST);
    params_text(params, query->only);
    params_text(params, query->after);
    params_int8(params, (int64_t)query->limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "handler", .err = err };
    for (; columns.row < PQntuples(result) && query->count < query->limit; columns.row++) {
        struct store_handler_view *view = &query->list[query->count++];
        *view = (struct store_handler_view){ 0 };
        columns.at = 0;
        handlers_decode(&columns, &view->row);
        view->waiting = columns_int8(&columns);
        view->leased = columns_int8(&columns);
        view->oldest_ms = columns_time_ms(&columns);
        view->nodes = columns_int4(&columns);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

int store_reader_handlers(struct store_reader *reader, const char *only, const char *after,
                          size_t limit, struct store_handler_view *ret, size_t *ret_count,
                          struct err *err)
{
    struct list_query query = { .only = only, .after = after, .limit = limit, .list = ret };
    int rc = reader_with_connection(reader, list_run, &query, err);
    if (!rc)
        *ret_count = query.count;
    return rc;
}

static int about_run(struct store_reader *reader, void *ctx, struct err *err)
{
    (void)start(reader, HANDLER_LET_GO_ABOUT);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "pg_class", .err = err };
    int64_t about = columns_int8(&columns);
    if (columns.failed)
        return (int)err->code;
    *(int64_t *)ctx = about;
    return 0;
}

int store_reader_let_go_about(struct store_reader *reader, int64_t *ret, struct err *err)
{
    return reader_with_connection(reader, about_run, ret, err);
}

struct times_query {
    const char *name;
    struct held_times times;
};

static int times_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct times_query *query = ctx;
    mem_free(query->times.list); /* of a first try that broke */
    query->times = (struct held_times){ 0 };
    struct params *params = start(reader, HANDLER_TIMES);
    params_text(params, query->name);
    params_int8(params, HELD_TIMES_MAX);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "handler_hold", .err = err };
    int rows = PQntuples(result);
    query->times.list = rows ? mem_calloc((size_t)rows, sizeof *query->times.list) : NULL;
    if (rows && !query->times.list)
        return err_set(err, ERR_NOMEM, "handler");
    for (; columns.row < rows; columns.row++) {
        columns.at = 0;
        struct held_time *time = &query->times.list[query->times.count++];
        time->from_ms = columns_time_ms(&columns);
        time->until_ms = columns_time_ms(&columns);
        if (!time->until_ms)
            time->until_ms = INT64_MAX;
    }
    return columns.failed ? (int)err->code : 0;
}

int store_reader_held_times(struct store_reader *reader, const char *name, struct held_times *ret,
                            struct err *err)
{
    struct times_query query = { .name = name };
    int rc = reader_with_connection(reader, times_run, &query, err);
    if (rc)
        mem_free(query.times.list);
    else
        *ret = query.times;
    return rc;
}

/* --- changes ---------------------------------------------------------------------------------- */

struct change_query {
    const char *name;
    const struct handler_change *change;
    struct handler row;
    bool changed;
};

static int read_row(struct store_reader *reader, struct change_query *query, struct err *err)
{
    params_text(start(reader, HANDLER_ROW), query->name);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    handler_init(&query->row, query->name);
    struct columns columns = { .result = result, .table = "handler", .err = err };
    if (PQntuples(result) > 0)
        handlers_decode(&columns, &query->row);
    return columns.failed ? (int)err->code : 0;
}

/* Done twice it is the same, but for who is told: a repeat after a lost answer says it once more.
 */
static int change_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct change_query *query = ctx;
    query->changed = false;
    for (int i = 0; i < CHANGE_TRIES_MAX; i++) {
        struct handler_effect effect;
        if (read_row(reader, query, err) != 0)
            return (int)err->code;
        if (query->changed || !handler_apply(&query->row, query->change, &effect))
            return 0; /* with the times that the database gave it */
        handlers_put_change(start(reader, HANDLER_CHANGE), &query->row, &effect);
        CLEANUP(connect_clear_p) PGresult *result = NULL;
        if (reader_execute(reader, &result, err) != 0)
            return (int)err->code;
        query->changed = PQntuples(result) > 0;
    }
    return query->changed ? read_row(reader, query, err)
                          : err_set(err, ERR_CONFLICT, "others change handler \"%s\" all the time",
                                    query->name);
}

int store_reader_handler_change(struct store_reader *reader, const char *name,
                                const struct handler_change *change, struct handler *ret,
                                bool *ret_changed, struct err *err)
{
    struct change_query query = { .name = name, .change = change };
    int rc = reader_with_connection(reader, change_run, &query, err);
    if (!rc) {
        *ret = query.row;
        *ret_changed = query.changed;
    }
    return rc;
}
