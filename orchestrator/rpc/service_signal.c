/* SagaService: what somebody outside tells a saga. */
#include "rpc/request.h"

#include "core/limits.h"

struct signal_call {
    struct engine_verb verb;
    struct call *call;
};

/* On the engine's thread. */
static void on_signal(struct engine_event *event)
{
    struct engine_verb *verb = CONTAINER(event, struct engine_verb, event);
    struct call *call = CONTAINER(verb, struct signal_call, verb)->call;
    if (verb->err.code != ERR_OK) {
        call_fail(call, &verb->err);
        return;
    }
    Saga__V1__SignalSagaResponse reply = SAGA__V1__SIGNAL_SAGA_RESPONSE__INIT;
    reply.duplicate = verb->duplicate;
    call_reply(call, &reply.base);
}

static int read_signal(const Saga__V1__SignalSagaRequest *request, size_t payload_bytes_max,
                       struct engine_verb *ret, struct err *err)
{
    struct store_ref ref;
    int rc = read_ref(request->saga, &ref, err);
    if (!rc)
        rc = check_text("signal", request->signal, 1, LIMIT_STEP_NAME_BYTES, err);
    if (!rc)
        rc = check_text("signal_id", request->signal_id, 1, LIMIT_SIGNAL_ID_BYTES, err);
    if (!rc && request->payload.len > payload_bytes_max)
        rc = err_field(err, "payload", "payload: has %zu bytes, the limit is %zu",
                       request->payload.len, payload_bytes_max);
    if (!rc)
        rc = check_text("actor", request->actor, 0, LIMIT_ACTOR_BYTES, err);
    if (rc)
        return rc;
    ret->by_uid = ref.by_uid;
    ret->uid = ref.uid;
    ret->namespace_ = ref.namespace_;
    ret->definition = ref.definition;
    ret->saga_id = ref.saga_id;
    ret->run = ref.run;
    ret->signal = request->signal;
    ret->signal_id = request->signal_id;
    ret->output = (struct bytes){ request->payload.data, request->payload.len };
    ret->actor = or_null(request->actor);
    return 0;
}

void saga_signal(struct call *call)
{
    struct signal_call *signal_call = arena_alloc(&call->arena, sizeof *signal_call);
    if (!signal_call) {
        call_fail_memory(call);
        return;
    }
    struct engine_verb *verb = &signal_call->verb;
    struct err err;
    signal_call->call = call;
    verb->event.kind = ENGINE_VERB;
    verb->event.done = on_signal;
    verb->verb = ENGINE_VERB_SIGNAL;
    if (!read_signal((void *)call->request, call->server->payload_bytes_max, verb, &err)) {
        if (engine_post_always(call->server->engine, &verb->event))
            return;
        (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    }
    call_fail(call, &err);
}
