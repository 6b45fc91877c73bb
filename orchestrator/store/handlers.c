#include "store/handlers.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static void put_number(struct params *params, int64_t value, int64_t none)
{
    if (value == none)
        params_null(params);
    else
        params_int8(params, value);
}

static void put_small(struct params *params, int32_t value, int32_t none)
{
    if (value == none)
        params_null(params);
    else
        params_int4(params, value);
}

void handlers_put_change(struct params *params, const struct handler *handler,
                         const struct handler_effect *effect)
{
    params_text(params, handler->name);
    params_int8(params, handler->version);
    params_text(params, handler_hold_name(handler->hold));
    params_bool(params, handler_is_braked(handler));
    put_number(params, handler->release_rate_milli, 0);
    put_number(params, handler->rate_milli, 0);
    put_small(params, handler->cap, 0);
    put_small(params, handler->breaker_failures, BREAKER_DEFAULT);
    params_int8(params, handler->breaker_trial_ms);
    params_int4(params, handler->breaker_successes);
    params_int8(params, effect->trial_in_ms);
    params_int4(params, handler->trial_successes);
    params_text(params, handler->actor);
    params_text(params, handler->reason);
    params_text(params, handler_event_name(effect->event));
}

static int64_t number(struct columns *columns, int64_t if_null)
{
    if (!columns_is_null(columns))
        return columns_int8(columns);
    columns->at++;
    return if_null;
}

static int32_t small(struct columns *columns, int32_t if_null)
{
    if (!columns_is_null(columns))
        return columns_int4(columns);
    columns->at++;
    return if_null;
}

static void text(struct columns *columns, char *ret, size_t size)
{
    const char *value = columns_borrow(columns);
    (void)snprintf(ret, size, "%s", value ? value : ""); /* no longer than it was written */
}

void handlers_decode(struct columns *columns, struct handler *ret)
{
    struct handler handler = { 0 };
    text(columns, handler.name, sizeof handler.name);
    handler.version = columns_int8(columns);
    const char *hold = columns_borrow(columns);
    if (hold && !handler_hold_parse(hold, &handler.hold)) {
        columns->at--;
        columns_fault(columns, "holds an unknown word");
        columns->at++;
    }
    handler.held_at_ms = columns_time_ms(columns);
    handler.braked_at_ms = columns_time_ms(columns);
    handler.release_rate_milli = number(columns, 0);
    handler.rate_milli = number(columns, 0);
    handler.cap = small(columns, 0);
    handler.breaker_failures = small(columns, BREAKER_DEFAULT);
    handler.breaker_trial_ms = columns_int8(columns);
    handler.breaker_successes = columns_int4(columns);
    handler.trial_at_ms = columns_time_ms(columns);
    handler.trial_successes = columns_int4(columns);
    text(columns, handler.actor, sizeof handler.actor);
    text(columns, handler.reason, sizeof handler.reason);
    handler.changed_at_ms = columns_time_ms(columns);
    if (!columns->failed)
        *ret = handler;
}

void handlers_put_counts(struct params *params, const struct store_op *op, const char *node)
{
    for (size_t i = 0; i < op->count_count; i++) {
        const struct store_handler_count *count = &op->counts[i];
        params_seek(params, 0);
        params_text(params, count->handler);
        params_int8(params, count->version);
        params_bool(params, count->says);
        params_int8(params, count->waiting);
        params_int8(params, count->leased);
        params_bool(params, count->served);
        put_number(params, count->oldest_ms, 0);
    }
    params_seek(params, 7);
    params_text(params, node);
    params_int8(params, HELD_TIMES_MAX);
}

/* The row's handler, which a row before may have begun; NULL: memory. */
static struct store_handler *handler_of(struct store_op *op, const struct handler *row)
{
    struct store_handler *last = op->stored_count ? &op->stored[op->stored_count - 1] : NULL;
    if (last && strcmp(last->row.name, row->name) == 0)
        return last;
    last = &op->stored[op->stored_count++]; /* there is room for one a row */
    last->row = *row;
    return last;
}

static int take_time(struct columns *columns, struct store_handler *handler)
{
    int64_t from_ms = columns_time_ms(columns), until_ms = columns_time_ms(columns);
    if (!from_ms)
        return 0; /* it was never braked, or nothing is new */
    if (mem_grow((void **)&handler->times, &handler->time_capacity, handler->time_count,
                 sizeof *handler->times))
        return err_set(columns->err, ERR_NOMEM, "handlers");
    handler->times[handler->time_count++] =
        (struct held_time){ from_ms, until_ms ? until_ms : INT64_MAX };
    return 0;
}

int handlers_take(const PGresult *result, struct store_op *op, int64_t *ret_now_ms, struct err *err)
{
    int rows = PQntuples(result), rc = 0;
    store_handlers_done(op); /* of a transaction that failed */
    op->stored = rows ? mem_calloc((size_t)rows, sizeof *op->stored) : NULL;
    if (rows && !op->stored)
        return err_set(err, ERR_NOMEM, "handlers");
    struct columns columns = { .result = result, .table = "handler", .err = err };
    for (; columns.row < rows && !rc; columns.row++) {
        struct handler row = { 0 };
        columns.at = 0;
        *ret_now_ms = columns_time_ms(&columns);
        handlers_decode(&columns, &row);
        if (columns.failed)
            return (int)err->code;
        struct store_handler *handler = handler_of(op, &row);
        handler->others = columns_int4(&columns);
        handler->drained = columns_bool(&columns);
        handler->is_new = columns_bool(&columns);
        rc = columns.failed ? (int)err->code : take_time(&columns, handler);
        if (columns.failed)
            rc = (int)err->code;
    }
    return rc;
}
