#include "rpc/saga_look.h"

#include "rpc/request.h"

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/handler_reply.h"
#include "schema/definition_types.h"
#include "wire/definition_codec.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

enum { RELATED_MAX = 20 };

#include <string.h>

enum { SERVED_BY_MAX = 100 };

static struct saga_look *look_of(struct query *query)
{
    return CONTAINER(query, struct saga_look, query);
}

/* The last thing: the look is its owner's again, or gone, when `done` returns. */
static void finish(struct saga_look *look, const struct err *err)
{
    struct saga *saga = TAKE(look->saga);
    struct definition *definition = TAKE(look->definition);
    mem_free(TAKE(look->held.list));
    struct store_related *related = TAKE(look->related);
    size_t related_count = look->related_count;
    look->done(look, err ? NULL : look->message, saga, err);
    (void)saga_free(saga);             /* always NULL */
    (void)definition_free(definition); /* as well */
    for (size_t i = 0; i < related_count; i++)
        store_related_done(&related[i]);
    mem_free(related);
}

static void refuse(struct query *base, const struct err *err)
{
    finish(look_of(base), err);
}

/* A saga can be looked at however much its steps have answered: ListJournal has it all. */
static void fit_into_message(Saga__V1__Saga *message)
{
    size_t size = saga__v1__saga__get_packed_size(message);
    while (size > RPC_REPLY_BYTES_MAX) {
        Saga__V1__StepStatus *largest = NULL;
        for (size_t i = 0; i < message->n_steps; i++)
            if (!largest || message->steps[i]->output.len > largest->output.len)
                largest = message->steps[i];
        if (!largest || !largest->output.len)
            return; /* its reply says so */
        largest->output_bytes_left_out = (int64_t)largest->output.len;
        largest->output = (ProtobufCBinaryData){ 0, NULL };
        size = saga__v1__saga__get_packed_size(message);
    }
}

static void attach(struct operation_rule *rule, const char *handler, const struct held_times *held)
{
    for (; rule && rule->handler; rule = rule->probe)
        if (strcmp(rule->handler, handler) == 0)
            rule->held = held;
}

/* The handler that it waits for, if somebody holds or limits it; then until when it waits is told
 * by when that was so. */
static int add_brake(struct saga_look *look, struct store_reader *reader, struct err *err)
{
    const char *name = look->message->waiting->handler;
    int32_t workers = look->message->waiting->workers_connected;
    struct handlers_look found = { .breaker_failures =
                                       engine_breaker_failures(look->query.server->engine) };
    int rc = handlers_look_read(&found, reader, name, err);
    const struct store_handler_view *view = rc ? NULL : handlers_look_find(&found, name);
    Saga__V1__Handler *brake = view ? handlers_look_message(&found, look->arena, name) : NULL;
    if (view && !brake)
        rc = err_set(err, ERR_NOMEM, "handler");
    bool said = view && (handler_is_braked(&view->row) || view->row.rate_milli || view->row.cap);
    handlers_look_done(&found);
    if (rc || !brake)
        return rc;
    rc = store_reader_held_times(reader, brake->handler, &look->held, err);
    for (size_t i = 0; !rc && i < look->definition->step_count; i++) {
        attach(&look->definition->steps[i].action, brake->handler, &look->held);
        attach(&look->definition->steps[i].compensation, brake->handler, &look->held);
    }
    if (!rc && look->held.count)
        rc = saga_to_message(look->arena, look->saga, look->full, clock_wall_ms(&clock_system),
                             &look->message, err);
    if (!rc)
        fit_into_message(look->message);
    Saga__V1__Waiting *waiting = rc ? NULL : look->message->waiting;
    if (waiting && waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER) {
        waiting->workers_connected = workers;
        waiting->brake = said && strcmp(waiting->handler, brake->handler) == 0 ? brake : NULL;
    }
    return rc;
}

static int add_served_by(struct saga_look *look, struct store_reader *reader, struct err *err)
{
    struct store_serving serving[SERVED_BY_MAX];
    size_t count = 0;
    Saga__V1__Waiting *waiting = look->message->waiting;
    const char *handler = waiting->handler;
    int rc = store_reader_serving(reader, look->query.server->node, &handler, 1, SERVED_BY_MAX,
                                  serving, &count, err);
    if (rc)
        return rc;
    waiting->served_by = arena_array(look->arena, count + 1, sizeof(char *));
    for (size_t i = 0; waiting->served_by && i < count; i++)
        waiting->served_by[waiting->n_served_by++] = arena_strdup(look->arena, serving[i].node);
    store_serving_done(serving, count);
    return look->arena->oom ? err_set(err, ERR_NOMEM, "saga") : 0;
}

static bool waits_for_worker(const struct saga_look *look)
{
    const Saga__V1__Waiting *waiting = look->message->waiting;
    return waiting && waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER;
}

/* On the reader's thread. */
static void run_answer(struct query *base, struct store_reader *reader)
{
    struct saga_look *look = look_of(base);
    struct err err;
    int rc = waits_for_worker(look) ? add_brake(look, reader, &err) : 0;
    if (!rc && waits_for_worker(look) && !look->message->waiting->workers_connected)
        rc = add_served_by(look, reader, &err); /* nobody serves it here */
    finish(look, rc ? &err : NULL);
}

/* On the engine's thread. */
static void on_status(struct engine_event *event)
{
    struct engine_status *status = CONTAINER(event, struct engine_status, event);
    struct saga_look *look = CONTAINER(status, struct saga_look, status);
    int64_t workers = 0;
    for (size_t i = 0; i < status->handler_count; i++)
        workers += status->handlers[i].workers;
    look->message->waiting->workers_connected = (int32_t)workers;
    engine_status_done(status);
    look->query.run = run_answer;
    query_post_back(&look->query);
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

static Saga__V1__RelatedSaga *make_related(struct arena *arena, const struct store_related *from)
{
    Saga__V1__RelatedSaga *message = reply_new(arena, &saga__v1__related_saga__descriptor);
    char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    Google__Protobuf__Timestamp *time = reply_new(arena, &google__protobuf__timestamp__descriptor);
    if (!message || !uid || !time)
        return NULL;
    uuid_format(&from->uid, uid);
    timestamp_from_ms(from->started_at_ms, time);
    message->uid = uid;
    message->namespace_ = from->namespace_;
    message->definition = from->definition;
    message->saga_id = from->saga_id;
    message->run = from->run;
    message->state = saga_state_to_message(from->state);
    message->start_time = time;
    return message;
}

/* Whom it names, and who names it. */
static int add_related(struct saga_look *look, struct store_reader *reader, struct err *err)
{
    Saga__V1__Saga *saga = look->message;
    look->related = mem_calloc(RELATED_MAX + 1, sizeof *look->related);
    saga->related_by = arena_array(look->arena, RELATED_MAX + 1, sizeof(ProtobufCMessage *));
    if (!look->related || !saga->related_by)
        return err_set(err, ERR_NOMEM, "saga");
    int rc = store_reader_related(reader, saga_row(look->saga), RELATED_MAX, look->related,
                                  &look->related_count, err);
    for (size_t i = 0; !rc && i < look->related_count; i++) {
        Saga__V1__RelatedSaga *related = make_related(look->arena, &look->related[i]);
        if (!related)
            return err_set(err, ERR_NOMEM, "saga");
        if (look->related[i].is_named)
            saga->related = related;
        else
            saga->related_by[saga->n_related_by++] = related;
    }
    return rc;
}

static int load(struct saga_look *look, struct store_reader *reader, struct err *err)
{
    struct store_saga loaded = { 0 };
    struct bytes content = { 0 };
    int rc = store_reader_get(reader, &look->ref, &loaded, &content, err);
    if (rc)
        return rc;
    rc = definition_decode(&content, &look->definition, err);
    mem_free(content.data);
    if (!rc)
        rc = add_types(reader, look->definition, &loaded.row, err);
    if (!rc)
        rc = saga_replay(look->definition, &loaded.row, loaded.entries, loaded.entry_count,
                         &look->saga, err);
    if (!rc) { /* their contents have moved into the saga */
        loaded.row = (struct saga_row){ 0 };
        loaded.entry_count = 0;
    }
    store_saga_done(&loaded);
    if (!rc)
        rc = saga_to_message(look->arena, look->saga, look->full, clock_wall_ms(&clock_system),
                             &look->message, err);
    if (!rc && look->full)
        rc = add_related(look, reader, err);
    if (!rc)
        fit_into_message(look->message);
    return rc;
}

/* On the reader's thread. */
static void run_load(struct query *base, struct store_reader *reader)
{
    struct saga_look *look = look_of(base);
    struct err err;
    if (load(look, reader, &err)) {
        finish(look, &err);
        return;
    }
    const Saga__V1__Waiting *waiting = look->message->waiting;
    if (waiting && waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER) {
        look->status = (struct engine_status){ 0 };
        look->status.event.kind = ENGINE_STATUS;
        look->status.event.done = on_status;
        look->status.only_handler = waiting->handler;
        if (query_asks_engine(base, &look->status.event))
            return;
    }
    run_answer(base, reader);
}

int saga_look_settled(struct arena *arena, const struct saga *saga, Saga__V1__Saga **ret,
                      struct err *err)
{
    if (saga_to_message(arena, saga, false, clock_wall_ms(&clock_system), ret, err))
        return (int)err->code;
    fit_into_message(*ret);
    return 0;
}

void saga_look_post(struct saga_look *look, struct call *call, bool admitted)
{
    look->query.server = call->server;
    look->query.call = call;
    look->query.run = run_load;
    look->query.refuse = refuse;
    if (admitted)
        queries_post_admitted(&look->query);
    else
        queries_post(&look->query);
}
