/* OperatorService. */
#include "rpc/request.h"

#include "core/limits.h"

#include <saga/v1/operator.pb-c.h>

/* What the verbs on one saga have in common: which one, where it stands, who says what about it. An
 * absent step is the one that it stands at. */
struct verb_words {
    const Saga__V1__SagaRef *saga;
    const char *step;  /* NULL: the verb knows none */
    const char *field; /* what `words` are called */
    const char *words, *actor;
    bool required; /* words */
};

static int read_verb(const struct verb_words *from, struct verb_request *ret, struct err *err)
{
    int rc = read_ref(from->saga, &ret->ref, err);
    if (!rc && from->step) {
        rc = check_text("step", from->step, 0, LIMIT_STEP_NAME_BYTES, err);
        ret->step = or_null(from->step);
    }
    if (!rc && from->required && !*from->words)
        rc = err_field(err, from->field, "%s: required: it is kept in the journal", from->field);
    return rc ? rc : read_words(from->field, from->words, from->actor, ret, err);
}

static void run_plain(struct call *call, enum engine_verb_kind kind, const struct verb_words *from)
{
    struct verb_request verb = { .kind = kind, .full = true };
    struct err err;
    int rc = read_verb(from, &verb, &err);
    answer_verb(call, rc, &verb, &err);
}

void operator_retry_step(struct call *call)
{
    const Saga__V1__RetryStepRequest *request = (void *)call->request;
    run_plain(call, ENGINE_VERB_RETRY,
              &(struct verb_words){ request->saga, request->step, "reason", request->reason,
                                    request->actor, false });
}

void operator_skip_compensation(struct call *call)
{
    const Saga__V1__SkipCompensationRequest *request = (void *)call->request;
    run_plain(call, ENGINE_VERB_SKIP,
              &(struct verb_words){ request->saga, request->step, "evidence", request->evidence,
                                    request->actor, true });
}

void operator_abandon_saga(struct call *call)
{
    const Saga__V1__AbandonSagaRequest *request = (void *)call->request;
    run_plain(call, ENGINE_VERB_ABANDON,
              &(struct verb_words){ request->saga, NULL, "reason", request->reason, request->actor,
                                    true });
}

void operator_suspend_saga(struct call *call)
{
    const Saga__V1__SuspendSagaRequest *request = (void *)call->request;
    run_plain(call, ENGINE_VERB_SUSPEND,
              &(struct verb_words){ request->saga, NULL, "reason", request->reason, request->actor,
                                    true });
}

void operator_resume_saga(struct call *call)
{
    const Saga__V1__ResumeSagaRequest *request = (void *)call->request;
    run_plain(call, ENGINE_VERB_RESUME,
              &(struct verb_words){ request->saga, NULL, "reason", request->reason, request->actor,
                                    false });
}

static int read_resolve(const Saga__V1__ResolveStepRequest *request, size_t payload_bytes_max,
                        struct verb_request *ret, struct err *err)
{
    const struct verb_words words = { request->saga,     request->step,  "evidence",
                                      request->evidence, request->actor, true };
    int rc = read_verb(&words, ret, err);
    if (!rc && !ret->step)
        rc = err_field(err, "step", "step: is required");
    if (rc)
        return rc;
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
    if (request->output.len > payload_bytes_max)
        return err_field(err, "output", "output: has %zu bytes, the limit is %zu",
                         request->output.len, payload_bytes_max);
    ret->output = (struct bytes){ request->output.data, request->output.len };
    ret->fence = request->fence;
    return 0;
}

void operator_resolve_step(struct call *call)
{
    struct verb_request verb = { .kind = ENGINE_VERB_RESOLVE, .full = true };
    struct err err;
    int rc = read_resolve((void *)call->request, call->server->payload_bytes_max, &verb, &err);
    answer_verb(call, rc, &verb, &err);
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
