/* OperatorService: handlers. A change is written on the reader's connection; then the engine of
 * this server reads it, and the answer waits for that. */
#include "rpc/handler_reply.h"
#include "rpc/queries.h"
#include "rpc/request.h"

#include "wire/times.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>
#include <string.h>

struct handler_query {
    struct query query;
    const char *handler; /* NULL: every one */
    bool braked;
    struct handler_change change;
    struct engine_event changed;
    struct engine_status status;
    bool answers; /* the change is in force: what is to be said of it is read */
};

static void refuse(struct query *base, const struct err *err)
{
    engine_status_done(&CONTAINER(base, struct handler_query, query)->status);
    call_fail(base->call, err);
}

/* On the engine's thread. */
static void on_status(struct engine_event *event)
{
    struct engine_status *status = CONTAINER(event, struct engine_status, event);
    struct handler_query *query = CONTAINER(status, struct handler_query, status);
    if (query->change.kind == HANDLER_CHANGE_COUNT)
        queries_post_admitted(&query->query);
    else
        query_post_back(&query->query);
}

static void ask_status(struct handler_query *query)
{
    query->status.event.kind = ENGINE_STATUS;
    query->status.event.done = on_status;
    query->status.only_handler = query->handler;
}

static int look(struct handler_query *query, struct store_reader *reader,
                struct handlers_look *look, struct err *err)
{
    look->status = &query->status;
    look->breaker_failures = engine_breaker_failures(query->query.call->server->engine);
    return handlers_look_read(look, reader, query->handler, err);
}

/* --- changes ---------------------------------------------------------------------------------- */

static void answer_change(struct handler_query *query, struct store_reader *reader)
{
    struct call *call = query->query.call;
    struct handlers_look found = { 0 };
    struct err err;
    Saga__V1__Handler *message = NULL;
    int rc = look(query, reader, &found, &err);
    if (!rc && !(message = handlers_look_message(&found, &call->arena, query->handler)))
        rc = err_set(&err, ERR_NOMEM, "handler");
    handlers_look_done(&found);
    call_ref(call); /* the query lives in the call */
    if (rc)
        call_fail(call, &err);
    else
        call_reply(call, &message->base);
    engine_status_done(&query->status);
    call_unref(call);
}

/* On the engine's thread: it is in force; what waits is looked up next. */
static void on_changed(struct engine_event *event)
{
    struct handler_query *query = CONTAINER(event, struct handler_query, changed);
    query_post_back(&query->query);
}

static void run_change(struct query *base, struct store_reader *reader)
{
    struct handler_query *query = CONTAINER(base, struct handler_query, query);
    struct handler row;
    bool changed = false;
    struct err err;
    if (query->answers) {
        answer_change(query, reader);
        return;
    }
    if (query->changed.done) { /* back from there */
        query->answers = true;
        ask_status(query);
        if (!query_asks_engine(base, &query->status.event))
            answer_change(query, reader); /* it stops: without its words */
        return;
    }
    if (store_reader_handler_change(reader, query->handler, &query->change, &row, &changed, &err)) {
        call_fail(base->call, &err);
        return;
    }
    query->changed = (struct engine_event){ .kind = ENGINE_HANDLERS_CHANGED, .done = on_changed };
    if (query_asks_engine(base, &query->changed))
        return;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping; the change is stored");
    call_fail(base->call, &err);
}

static int read_rate(const Saga__V1__Rate *rate, int64_t *ret_milli, struct err *err)
{
    int64_t seconds = rate->seconds ? rate->seconds : 1;
    if (seconds < 0)
        return err_field(err, "rate.seconds", "rate.seconds: at least 1, not %" PRId64, seconds);
    if (rate->tasks < 0 || rate->tasks > LIMIT_HANDLER_RATE_MILLI / 1000)
        return err_field(err, "rate.tasks", "rate.tasks: 0 to %" PRId64 ", not %" PRId64,
                         LIMIT_HANDLER_RATE_MILLI / 1000, rate->tasks);
    *ret_milli = rate->tasks * 1000 / seconds;
    if (rate->tasks && !*ret_milli)
        return err_field(err, "rate", "rate: at least one task in 1,000 seconds");
    return 0;
}

static int read_breaker(const Saga__V1__Breaker *from, struct handler_change *ret, struct err *err)
{
    ret->sets_breaker = true;
    ret->breaker_failures = from->failures;
    ret->breaker_successes = from->successes ? from->successes : BREAKER_SUCCESSES;
    ret->breaker_trial_ms = from->trial_interval && duration_is_valid(from->trial_interval)
                                ? duration_to_ms(from->trial_interval)
                                : BREAKER_TRIAL_MS;
    if (from->failures < 0 || from->failures > LIMIT_BREAKER_FAILURES)
        return err_field(err, "breaker.failures", "breaker.failures: 0 to %d, not %d",
                         LIMIT_BREAKER_FAILURES, from->failures);
    if (from->successes < 0 || from->successes > LIMIT_BREAKER_SUCCESSES)
        return err_field(err, "breaker.successes", "breaker.successes: 0 to %d, not %d",
                         LIMIT_BREAKER_SUCCESSES, from->successes);
    if (ret->breaker_trial_ms < HANDLER_TRIAL_LEAST_MS ||
        ret->breaker_trial_ms > LIMIT_HANDLER_TRIAL_MS)
        return err_field(err, "breaker.trial_interval",
                         "breaker.trial_interval: 1 second to 24 hours");
    return 0;
}

/* What the three requests have in common; rc and err of what came before. */
static void change(struct call *call, int rc, struct err *err, const char *handler,
                   const char *reason, const char *actor, const struct handler_change *what)
{
    if (!rc)
        rc = check_text("handler", handler, 1, LIMIT_HANDLER_BYTES, err);
    if (!rc)
        rc = check_prose("reason", reason, LIMIT_REASON_BYTES, err);
    if (!rc)
        rc = check_text("actor", actor, 0, LIMIT_ACTOR_BYTES, err);
    if (rc) {
        call_fail(call, err);
        return;
    }
    struct handler_query *query = query_new(call, sizeof *query, run_change);
    if (!query)
        return;
    query->query.refuse = refuse;
    query->handler = handler;
    query->change = *what;
    query->change.reason = reason;
    query->change.actor = actor;
    queries_post(&query->query);
}

void operator_hold_handler(struct call *call)
{
    const Saga__V1__HoldHandlerRequest *request = (void *)call->request;
    const struct handler_change what = { .kind = HANDLER_HOLD };
    struct err err;
    int rc = *request->reason ? 0
                              : err_field(&err, "reason",
                                          "reason: required: whoever finds it held wants to know");
    change(call, rc, &err, request->handler, request->reason, request->actor, &what);
}

void operator_release_handler(struct call *call)
{
    const Saga__V1__ReleaseHandlerRequest *request = (void *)call->request;
    struct handler_change what = { .kind = HANDLER_RELEASE };
    struct err err;
    int rc = request->rate ? read_rate(request->rate, &what.rate_milli, &err) : 0;
    if (!rc && request->rate && !what.rate_milli)
        rc = err_field(&err, "rate.tasks", "rate.tasks: nothing would ever go on");
    change(call, rc, &err, request->handler, request->reason, request->actor, &what);
}

void operator_set_handler_limits(struct call *call)
{
    const Saga__V1__SetHandlerLimitsRequest *request = (void *)call->request;
    struct handler_change what = { .kind = HANDLER_LIMIT, .rate_milli = -1, .cap = -1 };
    struct err err;
    int rc = 0;
    if (request->rate)
        rc = read_rate(request->rate, &what.rate_milli, &err);
    if (!rc && request->_cap_case && (request->cap < 0 || request->cap > LIMIT_HANDLER_CAP))
        rc = err_field(&err, "cap", "cap: 0 to %d, not %d", LIMIT_HANDLER_CAP, request->cap);
    if (!rc && request->_cap_case)
        what.cap = request->cap;
    if (!rc && request->breaker)
        rc = read_breaker(request->breaker, &what, &err);
    if (!rc && !request->rate && !request->_cap_case && !request->breaker)
        rc = err_field(&err, "rate", "one of rate, cap and breaker is required");
    change(call, rc, &err, request->handler, request->reason, request->actor, &what);
}

/* --- ListHandlers ----------------------------------------------------------------------------- */

static int fill_list(const struct handler_query *query, const struct handlers_look *found,
                     struct arena *arena, Saga__V1__ListHandlersResponse *reply)
{
    const char **names = NULL;
    size_t count = 0;
    if (handlers_look_names(found, arena, &names, &count))
        return -1;
    reply->handlers = arena_array(arena, count + 1, sizeof(ProtobufCMessage *));
    for (size_t i = 0; reply->handlers && i < count; i++) {
        const struct store_handler_view *view = handlers_look_find(found, names[i]);
        if ((query->handler && strcmp(query->handler, names[i]) != 0) ||
            (query->braked && !(view && handler_is_braked(&view->row))))
            continue;
        if (reply->n_handlers == HANDLERS_MAX) {
            reply->more = true;
            break;
        }
        Saga__V1__Handler *message = handlers_look_message(found, arena, names[i]);
        if (!message)
            return -1;
        reply->handlers[reply->n_handlers++] = message;
    }
    return reply->handlers ? 0 : -1;
}

static void run_list(struct query *base, struct store_reader *reader)
{
    struct handler_query *query = CONTAINER(base, struct handler_query, query);
    struct call *call = base->call;
    struct handlers_look found = { 0 };
    Saga__V1__ListHandlersResponse reply = SAGA__V1__LIST_HANDLERS_RESPONSE__INIT;
    struct err err;
    int rc = look(query, reader, &found, &err);
    if (!rc && fill_list(query, &found, &call->arena, &reply))
        rc = err_set(&err, ERR_NOMEM, "handlers");
    reply.node = call->server->node;
    call_ref(call); /* the query lives in the call */
    if (rc)
        call_fail(call, &err);
    else
        call_reply(call, &reply.base);
    handlers_look_done(&found);
    engine_status_done(&query->status);
    call_unref(call);
}

void operator_list_handlers(struct call *call)
{
    const Saga__V1__ListHandlersRequest *request = (void *)call->request;
    struct err err;
    if (check_text("handler", request->handler, 0, LIMIT_HANDLER_BYTES, &err)) {
        call_fail(call, &err);
        return;
    }
    struct handler_query *query = query_new(call, sizeof *query, run_list);
    if (!query)
        return;
    query->query.refuse = refuse;
    query->handler = or_null(request->handler);
    query->braked = request->braked;
    query->change.kind = HANDLER_CHANGE_COUNT;
    ask_status(query);
    if (engine_post_always(call->server->engine, &query->status.event))
        return;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    call_fail(call, &err);
}
