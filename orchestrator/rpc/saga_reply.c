/* Answers that are a saga, and the verbs whose answer is one. */
#include "rpc/request.h"
#include "rpc/saga_look.h"

#include "core/limits.h"

struct saga_reply {
    struct saga_look look;
    struct call *call;
};

static void on_looked(struct saga_look *look, Saga__V1__Saga *message, const struct saga *saga,
                      const struct err *err)
{
    struct call *call = CONTAINER(look, struct saga_reply, look)->call;
    (void)saga;
    if (message)
        call_reply(call, &message->base);
    else
        call_fail(call, err);
}

void reply_with_saga(struct call *call, const struct store_ref *ref, bool full, bool admitted)
{
    struct saga_reply *reply = arena_alloc(&call->arena, sizeof *reply);
    if (!reply) {
        call_fail_memory(call);
        return;
    }
    reply->call = call;
    reply->look.arena = &call->arena;
    reply->look.ref = *ref;
    reply->look.full = full;
    reply->look.done = on_looked;
    saga_look_post(&reply->look, call, admitted);
}

static void reply_with_settled(struct call *call, const struct saga *saga)
{
    Saga__V1__Saga *message = NULL;
    struct err err;
    if (saga_look_settled(&call->arena, saga, &message, &err))
        call_fail(call, &err);
    else
        call_reply(call, &message->base);
}

/* --- verbs ------------------------------------------------------------------------------------ */

struct verb_call {
    struct engine_verb verb;
    struct call *call;
    bool full;
};

/* On the engine's thread. */
static void on_verb(struct engine_event *event)
{
    struct engine_verb *verb = CONTAINER(event, struct engine_verb, event);
    struct verb_call *verb_call = CONTAINER(verb, struct verb_call, verb);
    if (verb->err.code != ERR_OK) {
        call_fail(verb_call->call, &verb->err);
        return;
    }
    if (verb->settled && !verb_call->full) { /* of the reader it would take six round trips */
        reply_with_settled(verb_call->call, verb->settled);
        return;
    }
    struct store_ref ref = { .by_uid = true, .uid = verb->uid };
    reply_with_saga(verb_call->call, &ref, verb_call->full, true);
}

void run_verb(struct call *call, const struct verb_request *request)
{
    struct verb_call *verb_call = arena_alloc(&call->arena, sizeof *verb_call);
    if (!verb_call) {
        call_fail_memory(call);
        return;
    }
    verb_call->call = call;
    verb_call->full = request->full;
    struct engine_verb *verb = &verb_call->verb;
    verb->event.kind = ENGINE_VERB;
    verb->event.done = on_verb;
    verb->verb = request->kind;
    verb->by_uid = request->ref.by_uid;
    verb->uid = request->ref.uid;
    verb->namespace_ = request->ref.namespace_;
    verb->definition = request->ref.definition;
    verb->saga_id = request->ref.saga_id;
    verb->run = request->ref.run;
    verb->step = request->step;
    verb->actor = request->actor;
    verb->reason = request->reason;
    verb->operation = request->operation;
    verb->fence = request->fence;
    verb->happened = request->happened;
    verb->output = request->output;
    verb->options = request->options;
    verb->timeout_ms = request->timeout_ms;
    verb->or_parked = request->or_parked;
    if (engine_post_always(call->server->engine, &verb->event))
        return;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    call_fail(call, &err);
}

void answer_verb(struct call *call, int rc, const struct verb_request *request,
                 const struct err *err)
{
    if (rc)
        call_fail(call, err);
    else
        run_verb(call, request);
}

int read_words(const char *field, const char *words, const char *actor, struct verb_request *ret,
               struct err *err)
{
    int rc = check_prose(field, words, LIMIT_REASON_BYTES, err);
    if (!rc)
        rc = check_text("actor", actor, 0, LIMIT_ACTOR_BYTES, err);
    ret->reason = or_null(words);
    ret->actor = or_null(actor);
    return rc;
}
