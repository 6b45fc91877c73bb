/* Answers that are a saga: loaded by the reader's thread, replayed, and shown. How many workers
 * serve the handler that it waits for is the engine's to say, so such an answer makes one more
 * round: reader, engine, reader. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "base/clock.h"
#include "core/limits.h"
#include "schema/definition_types.h"
#include "wire/definition_codec.h"
#include "wire/saga_codec.h"

struct saga_query {
    struct query query;
    struct store_ref ref;
    bool full;
    struct definition *definition; /* owned, as the saga; the message borrows from both */
    struct saga *saga;
    Saga__V1__Saga *message;
    struct engine_status status;
};

static struct saga_query *saga_query_of(struct query *query)
{
    return CONTAINER(query, struct saga_query, query);
}

static void drop(struct query *base)
{
    struct saga_query *query = saga_query_of(base);
    query->saga = saga_free(query->saga);
    query->definition = definition_free(query->definition);
}

/* On the reader's thread. */
static void run_answer(struct query *base, struct store_reader *reader)
{
    (void)reader;
    struct saga_query *query = saga_query_of(base);
    struct call *call = base->call;
    call_ref(call); /* the query lives in the call */
    call_reply(call, &query->message->base);
    drop(base);
    call_unref(call);
}

/* On the engine's thread. */
static void on_status(struct engine_event *event)
{
    struct engine_status *status = CONTAINER(event, struct engine_status, event);
    struct saga_query *query = CONTAINER(status, struct saga_query, status);
    int64_t workers = 0;
    for (size_t i = 0; i < status->handler_count; i++)
        workers += status->handlers[i].workers;
    query->message->waiting->workers_connected = (int32_t)workers;
    engine_status_done(status);
    query->query.run = run_answer;
    query_post_back(&query->query);
}

static bool makes_keys(const struct definition *definition)
{
    for (size_t i = 0; i < definition->step_count; i++)
        if (definition->steps[i].action.key_template ||
            definition->steps[i].compensation.key_template)
            return true;
    return false;
}

/* Idempotency keys that are made of the input are told, too; nothing else here needs its type. */
static int add_types(struct store_reader *reader, struct definition *definition,
                     const struct saga_row *row, struct err *err)
{
    if (!makes_keys(definition))
        return 0;
    struct store_definition stored = { 0 };
    int rc = store_reader_definition(reader, row->namespace_, row->definition, row->revision, true,
                                     &stored, err);
    if (!rc)
        rc = definition_types_add(definition, &stored.descriptors, err);
    store_definition_done(&stored);
    return rc;
}

static int load(struct saga_query *query, struct store_reader *reader, struct err *err)
{
    struct store_saga loaded = { 0 };
    struct bytes content = { 0 };
    int rc = store_reader_get(reader, &query->ref, &loaded, &content, err);
    if (rc)
        return rc;
    rc = definition_decode(&content, &query->definition, err);
    mem_free(content.data);
    if (!rc)
        rc = add_types(reader, query->definition, &loaded.row, err);
    if (!rc)
        rc = saga_replay(query->definition, &loaded.row, loaded.entries, loaded.entry_count,
                         &query->saga, err);
    if (!rc) { /* their contents have moved into the saga */
        loaded.row = (struct saga_row){ 0 };
        loaded.entry_count = 0;
    }
    store_saga_done(&loaded);
    if (rc)
        return rc;
    return saga_to_message(&query->query.call->arena, query->saga, query->full,
                           clock_wall_ms(&clock_system), &query->message, err);
}

/* On the reader's thread. */
static void run_load(struct query *base, struct store_reader *reader)
{
    struct saga_query *query = saga_query_of(base);
    struct call *call = base->call;
    struct err err;
    if (load(query, reader, &err)) {
        drop(base);
        call_fail(call, &err);
        return;
    }
    const Saga__V1__Waiting *waiting = query->message->waiting;
    if (waiting && waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER) {
        query->status.event.kind = ENGINE_STATUS;
        query->status.event.done = on_status;
        query->status.only_handler = waiting->handler;
        if (query_asks_engine(base, &query->status.event))
            return;
    }
    run_answer(base, reader);
}

void reply_with_saga(struct call *call, const struct store_ref *ref, bool full, bool admitted)
{
    struct saga_query *query = query_new(call, sizeof *query, run_load);
    if (!query)
        return;
    query->query.drop = drop;
    query->ref = *ref;
    query->full = full;
    if (admitted)
        queries_post_admitted(&query->query);
    else
        queries_post(&query->query);
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
