/* OperatorService.GetStatus: what the engine knows; then, if it is asked for, what the database
 * knows. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "wire/saga_codec.h"
#include "wire/times.h"

#include <saga/v1/operator.pb-c.h>
#include <string.h>

typedef Saga__V1__GetStatusResponse response_message;
enum { LET_GO_MAX = 1000 };

struct status_query {
    struct query query;
    struct engine_status status;
    bool with_database;
    struct store_let_go let_go[LET_GO_MAX];
    size_t let_go_count;
    struct store_overview overview;
};

/* --- of the engine ---------------------------------------------------------------------------- */

static int fill_counters(struct call *call, response_message *reply)
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

static Saga__V1__HandlerStatus *add_handler(struct arena *arena, response_message *reply,
                                            char *name)
{
    Saga__V1__HandlerStatus *handler = reply_new(arena, &saga__v1__handler_status__descriptor);
    if (handler) {
        handler->handler = name;
        reply->handlers[reply->n_handlers++] = handler;
    }
    return handler;
}

static int fill_handlers(struct arena *arena, const struct engine_status *status,
                         response_message *reply)
{
    reply->handlers =
        arena_array(arena, status->handler_count + LET_GO_MAX, sizeof(ProtobufCMessage *));
    if (!reply->handlers)
        return -1;
    for (size_t i = 0; i < status->handler_count; i++) {
        const struct engine_handler_status *from = &status->handlers[i];
        Saga__V1__HandlerStatus *handler = add_handler(arena, reply, from->handler);
        if (!handler)
            return -1;
        handler->workers = (int32_t)from->workers;
        handler->credit = from->credit;
        handler->ready = from->ready;
        handler->leased = from->leased;
    }
    return 0;
}

static Google__Protobuf__Duration *reply_duration(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Duration *duration =
        reply_new(arena, &google__protobuf__duration__descriptor);
    if (duration)
        duration_from_ms(ms, duration);
    return duration;
}

static int fill_batches(struct arena *arena, const struct engine_batch_times *times,
                        response_message *reply)
{
    reply->batches = reply_new(arena, &saga__v1__get_status_response__batches__descriptor);
    if (!reply->batches)
        return -1;
    reply->batches->count = (int32_t)times->count;
    reply->batches->items = times->items;
    reply->batches->median_time = reply_duration(arena, times->median_ms);
    reply->batches->p99_time = reply_duration(arena, times->p99_ms);
    reply->batches->longest_time = reply_duration(arena, times->longest_ms);
    return arena->oom ? -1 : 0;
}

/* --- of the database -------------------------------------------------------------------------- */

static int fill_let_go(struct arena *arena, const struct status_query *query,
                       response_message *reply)
{
    for (size_t i = 0; i < query->let_go_count; i++) {
        const struct store_let_go *from = &query->let_go[i];
        Saga__V1__HandlerStatus *handler = NULL;
        for (size_t j = 0; j < reply->n_handlers && !handler; j++)
            if (strcmp(reply->handlers[j]->handler, from->handler) == 0)
                handler = reply->handlers[j];
        if (!handler)
            handler = add_handler(arena, reply, from->handler);
        if (!handler)
            return -1;
        handler->let_go = from->sagas;
        handler->oldest_let_go_time = reply_new(arena, &google__protobuf__timestamp__descriptor);
        if (!handler->oldest_let_go_time)
            return -1;
        timestamp_from_ms(from->oldest_ms, handler->oldest_let_go_time);
    }
    return 0;
}

/* What was counted to the end needs no estimate; a smaller one is worth nothing. */
static int64_t estimate_of(const struct store_count *count)
{
    return count->count >= STORE_COUNT_MAX && count->estimate > count->count ? count->estimate : 0;
}

static int fill_counts(struct arena *arena, const struct store_overview *overview,
                       response_message *reply)
{
    reply->states = arena_array(arena, SAGA_STATE_COUNT, sizeof(ProtobufCMessage *));
    reply->parked = arena_array(arena, PARK_REASON_COUNT, sizeof(ProtobufCMessage *));
    if (!reply->states || !reply->parked)
        return -1;
    for (int i = 0; i < SAGA_STATE_COUNT; i++) {
        Saga__V1__GetStatusResponse__StateCount *state =
            reply_new(arena, &saga__v1__get_status_response__state_count__descriptor);
        if (!state)
            return -1;
        state->state = saga_state_to_message((enum saga_state)i);
        state->count = overview->states[i].count;
        state->estimate = estimate_of(&overview->states[i]);
        reply->states[reply->n_states++] = state;
    }
    for (int i = PARK_NONE + 1; i < PARK_REASON_COUNT; i++) {
        if (!overview->reasons[i].count)
            continue;
        Saga__V1__GetStatusResponse__ParkedCount *parked =
            reply_new(arena, &saga__v1__get_status_response__parked_count__descriptor);
        if (!parked)
            return -1;
        parked->reason = (Saga__V1__ParkReason)i;
        parked->count = overview->reasons[i].count;
        parked->estimate = estimate_of(&overview->reasons[i]);
        reply->parked[reply->n_parked++] = parked;
    }
    reply->counted_up_to = STORE_COUNT_MAX;
    return 0;
}

static int fill_database(struct arena *arena, const struct store_overview *overview,
                         response_message *reply)
{
    Saga__V1__GetStatusResponse__Database *database =
        reply_new(arena, &saga__v1__get_status_response__database__descriptor);
    reply->tables = arena_array(arena, overview->table_count + 1, sizeof(ProtobufCMessage *));
    if (!database || !reply->tables)
        return -1;
    for (size_t i = 0; i < overview->table_count; i++) {
        Saga__V1__GetStatusResponse__Table *table =
            reply_new(arena, &saga__v1__get_status_response__table__descriptor);
        if (!table)
            return -1;
        table->name = overview->tables[i].name;
        table->rows = overview->tables[i].rows;
        table->bytes = overview->tables[i].bytes;
        reply->tables[reply->n_tables++] = table;
    }
    database->name = overview->database;
    database->server_version = overview->server_version;
    database->bytes = overview->database_bytes;
    database->epoch = overview->epoch;
    database->synchronous_standbys = overview->synchronous_standbys;
    database->role = overview->is_standby
                         ? SAGA__V1__GET_STATUS_RESPONSE__DATABASE_ROLE__DATABASE_ROLE_STANDBY
                         : SAGA__V1__GET_STATUS_RESPONSE__DATABASE_ROLE__DATABASE_ROLE_PRIMARY;
    reply->database = database;
    return 0;
}

/* --- the call --------------------------------------------------------------------------------- */

static void drop(struct status_query *query)
{
    engine_status_done(&query->status);
    store_overview_done(&query->overview);
    while (query->let_go_count > 0)
        mem_free(query->let_go[--query->let_go_count].handler);
}

/* `problem`: why nothing is said of the database; NULL: it is, or was not asked for. */
static void answer(struct status_query *query, const struct err *problem)
{
    static char version[] = SAGAD_VERSION;
    struct call *call = query->query.call;
    struct arena *arena = &call->arena;
    response_message reply = SAGA__V1__GET_STATUS_RESPONSE__INIT;
    reply.version = version;
    reply.node = call->server->node;
    int rc = fill_counters(call, &reply);
    if (!rc)
        rc = fill_handlers(arena, &query->status, &reply);
    if (!rc)
        rc = fill_batches(arena, &query->status.batches, &reply);
    if (!rc && problem) {
        reply.database_problem = arena_strdup(arena, problem->msg);
        rc = reply.database_problem ? 0 : -1;
    } else if (!rc && query->with_database) {
        rc = fill_let_go(arena, query, &reply) || fill_counts(arena, &query->overview, &reply) ||
             fill_database(arena, &query->overview, &reply);
    }
    call_ref(call); /* the query lives in the call */
    if (rc)
        call_fail_memory(call);
    else
        call_reply(call, &reply.base);
    drop(query);
    call_unref(call);
}

static void refuse(struct query *base, const struct err *err)
{
    answer(CONTAINER(base, struct status_query, query), err);
}

/* On the reader's thread. */
static void run_status(struct query *base, struct store_reader *reader)
{
    struct status_query *query = CONTAINER(base, struct status_query, query);
    struct err err;
    int rc = store_reader_let_go(reader, LET_GO_MAX, query->let_go, &query->let_go_count, &err);
    if (!rc)
        rc = store_reader_overview(reader, &query->overview, &err);
    answer(query, rc ? &err : NULL);
}

/* On the engine's thread. */
static void on_status(struct engine_event *event)
{
    struct engine_status *status = CONTAINER(event, struct engine_status, event);
    struct status_query *query = CONTAINER(status, struct status_query, status);
    if (query->with_database)
        queries_post_admitted(&query->query);
    else
        answer(query, NULL);
}

void operator_get_status(struct call *call)
{
    const Saga__V1__GetStatusRequest *request = (void *)call->request;
    struct status_query *query = query_new(call, sizeof *query, run_status);
    if (!query)
        return;
    query->query.refuse = refuse;
    query->with_database = request->with_database;
    query->status.event.kind = ENGINE_STATUS;
    query->status.event.done = on_status;
    if (engine_post_always(call->server->engine, &query->status.event))
        return;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    call_fail(call, &err);
}
