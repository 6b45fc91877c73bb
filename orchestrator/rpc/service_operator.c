/* OperatorService. */
#include "rpc/request.h"

#include "core/limits.h"

#include <saga/v1/operator.pb-c.h>

void operator_retry_step(struct call *call)
{
    Saga__V1__RetryStepRequest *request = (void *)call->request;
    struct verb_request verb = { .kind = ENGINE_VERB_RETRY, .full = true };
    struct err err;
    if (read_ref(request->saga, &verb.ref, &err) ||
        check_text("step", request->step, 0, LIMIT_STEP_NAME_BYTES, &err) ||
        check_text("actor", request->actor, 0, LIMIT_ACTOR_BYTES, &err) ||
        check_prose("reason", request->reason, LIMIT_REASON_BYTES, &err)) {
        call_fail(call, &err);
        return;
    }
    verb.step = *request->step ? request->step : NULL;
    verb.actor = *request->actor ? request->actor : NULL;
    verb.reason = *request->reason ? request->reason : NULL;
    run_verb(call, &verb);
}

/* "" for NULL in the engine's terms. */
static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

static int read_words(const char *field, const char *words, const char *actor,
                      struct verb_request *ret, struct err *err)
{
    if (!*words)
        return err_field(err, field, "%s: required: it is kept in the journal", field);
    int rc = check_prose(field, words, LIMIT_REASON_BYTES, err);
    if (!rc)
        rc = check_text("actor", actor, 0, LIMIT_ACTOR_BYTES, err);
    ret->reason = words;
    ret->actor = or_null(actor);
    return rc;
}

static int read_resolve(const Saga__V1__ResolveStepRequest *request, struct verb_request *ret,
                        struct err *err)
{
    int rc = read_ref(request->saga, &ret->ref, err);
    if (!rc)
        rc = check_text("step", request->step, 1, LIMIT_STEP_NAME_BYTES, err);
    if (!rc)
        rc = read_words("evidence", request->evidence, request->actor, ret, err);
    if (rc)
        return rc;
    ret->step = request->step;
    switch (request->operation) {
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED:
        ret->operation = OPERATION_COUNT;
        break;
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION:
        ret->operation = OPERATION_ACTION;
        break;
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION:
        ret->operation = OPERATION_COMPENSATION;
        break;
    default:
        return err_field(err, "operation", "operation: ACTION or COMPENSATION, not %d",
                         (int)request->operation);
    }
    if (request->result != SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN &&
        request->result != SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_NOT_HAPPEN)
        return err_field(err, "result", "result: required: DID_HAPPEN or DID_NOT_HAPPEN");
    ret->happened = request->result == SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN;
    if (request->output.len > LIMIT_PAYLOAD_BYTES)
        return err_field(err, "output", "output: at most %d bytes, not %zu", LIMIT_PAYLOAD_BYTES,
                         request->output.len);
    ret->output = (struct bytes){ request->output.data, request->output.len };
    return 0;
}

void operator_resolve_step(struct call *call)
{
    struct verb_request verb = { .kind = ENGINE_VERB_RESOLVE, .full = true };
    struct err err;
    if (read_resolve((void *)call->request, &verb, &err))
        call_fail(call, &err);
    else
        run_verb(call, &verb);
}

void operator_skip_compensation(struct call *call)
{
    Saga__V1__SkipCompensationRequest *request = (void *)call->request;
    struct verb_request verb = { .kind = ENGINE_VERB_SKIP, .full = true };
    struct err err;
    if (read_ref(request->saga, &verb.ref, &err) ||
        check_text("step", request->step, 0, LIMIT_STEP_NAME_BYTES, &err) ||
        read_words("evidence", request->evidence, request->actor, &verb, &err)) {
        call_fail(call, &err);
        return;
    }
    verb.step = or_null(request->step);
    run_verb(call, &verb);
}

void operator_abandon_saga(struct call *call)
{
    Saga__V1__AbandonSagaRequest *request = (void *)call->request;
    struct verb_request verb = { .kind = ENGINE_VERB_ABANDON, .full = true };
    struct err err;
    if (read_ref(request->saga, &verb.ref, &err) ||
        read_words("reason", request->reason, request->actor, &verb, &err))
        call_fail(call, &err);
    else
        run_verb(call, &verb);
}

struct status_call {
    struct engine_status status;
    struct call *call;
};

static int fill_counters(struct call *call, Saga__V1__GetStatusResponse *reply)
{
    struct arena *arena = &call->arena;
    const struct engine_counters *counters = engine_counters(call->server->engine);
    reply->counters = arena_array(arena, engine_counter_count + 1, sizeof(ProtobufCMessage *));
    if (!reply->counters)
        return -1;
    for (size_t i = 0; i < engine_counter_count; i++) {
        Saga__V1__Counter *counter = reply_new(arena, &saga__v1__counter__descriptor);
        if (!counter)
            return -1;
        const struct engine_counter_name *name = &engine_counter_names[i];
        const atomic_llong *value =
            (const atomic_llong *)(const void *)((const char *)counters + name->offset);
        counter->name = reply_text(name->name);
        counter->help = reply_text(name->help);
        counter->value = atomic_load(value);
        reply->counters[i] = counter;
    }
    reply->n_counters = engine_counter_count;
    return 0;
}

static int fill_handlers(struct arena *arena, const struct engine_status *status,
                         Saga__V1__GetStatusResponse *reply)
{
    reply->handlers = arena_array(arena, status->handler_count + 1, sizeof(ProtobufCMessage *));
    if (!reply->handlers)
        return -1;
    for (size_t i = 0; i < status->handler_count; i++) {
        Saga__V1__HandlerStatus *handler = reply_new(arena, &saga__v1__handler_status__descriptor);
        if (!handler)
            return -1;
        const struct engine_handler_status *from = &status->handlers[i];
        handler->handler = from->handler;
        handler->workers = (int32_t)from->workers;
        handler->credit = from->credit;
        handler->ready = from->ready;
        handler->leased = from->leased;
        reply->handlers[i] = handler;
    }
    reply->n_handlers = status->handler_count;
    return 0;
}

/* On the engine's thread. */
static void on_status(struct engine_event *event)
{
    struct engine_status *status = CONTAINER(event, struct engine_status, event);
    struct call *call = CONTAINER(status, struct status_call, status)->call;
    static char version[] = SAGAD_VERSION;
    Saga__V1__GetStatusResponse reply = SAGA__V1__GET_STATUS_RESPONSE__INIT;
    reply.version = version;
    reply.node = call->server->node;
    call_ref(call); /* the event lives in the call */
    if (fill_counters(call, &reply) || fill_handlers(&call->arena, status, &reply))
        call_fail_memory(call);
    else
        call_reply(call, &reply.base);
    engine_status_done(status);
    call_unref(call);
}

void operator_get_status(struct call *call)
{
    struct status_call *status_call = arena_alloc(&call->arena, sizeof *status_call);
    if (!status_call) {
        call_fail_memory(call);
        return;
    }
    status_call->call = call;
    status_call->status.event.kind = ENGINE_STATUS;
    status_call->status.event.done = on_status;
    if (engine_post_always(call->server->engine, &status_call->status.event))
        return;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    call_fail(call, &err);
}
