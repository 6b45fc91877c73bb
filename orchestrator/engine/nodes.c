/* This node among the others: joining, heartbeats, the sagas that are its own, those that it adopts
 * and those that it lets go.
 *
 * Who owns a saga keeps its timers and grants its leases; safety never depends on it. Nothing is
 * decided on a new connection before the heartbeat there says that this process still is the node:
 * what ran under the node's name before may have been replaced meanwhile. */
#include "engine/engine_internal.h"

#include "base/log.h"
#include "base/mem.h"

enum {
    ADOPT_EVERY_MS = 1000,
    /* A transaction of a lost connection may come minutes later: what it made this node's, nobody
     * here knows of. So the own sagas are listed again now and then. */
    OWN_EVERY_MS = 5 * 60 * 1000,
    /* A handler with so many operations waiting here is not given more of what waits outside. */
    ADOPT_READY_MAX = 1000,
    /* No worker of the handler here: so long a saga waits before another node may have it. */
    LET_GO_MS = 2000,
    LET_GO_ALONE_MS = 60000, /* there is no other node: only for its place in memory */
    LOOK_AGAIN_MS = 3600 * 1000,
    FAR_MS = 5000, /* what is due sooner is not worth two writes */
    /* Started beside the engine: no more are taken up while so many sagas wait for their turn. */
    STARTED_LOADS_MAX = 2 * LOAD_CHUNK,
    /* Nor while so many operations wait for workers that more would only fill the memory. */
    STARTED_READY_MAX = 10000,
};

/* --- joining and heartbeats --- */

void nodes_connection_is_new(struct engine *engine)
{
    engine->member = false;
    engine->beat_at = engine->now_mono;
    engine->beat_in_flight = engine->own_in_flight = engine->adopt_in_flight = false;
}

static struct flight *flight_of_kind(struct engine *engine, enum store_op_kind kind)
{
    struct flight *flight = flight_new(engine);
    if (!flight)
        return NULL; /* memory: the next turn tries again */
    flight->op.kind = kind;
    flight->op.instance = engine->options.instance;
    flight->op.dead_ms = engine->options.node_dead_ms;
    flight->op.limit = LOAD_CHUNK;
    return flight;
}

void nodes_beat(struct engine *engine, enum store_beat beat)
{
    struct flight *flight = flight_of_kind(engine, STORE_HEARTBEAT);
    if (!flight)
        return;
    struct dispatch_served *served = &engine->beat_for;
    flight->op.beat = beat;
    /* Out of memory: this time people hear of none. */
    if (beat != STORE_BEAT_LEAVE && !dispatch_served(engine->dispatch, INT64_MAX, served)) {
        flight->op.handlers = served->names;
        flight->op.handler_count = served->count;
    }
    engine->beat_in_flight = true;
    flight_add(engine, flight);
}

static void own_all(struct engine *engine)
{
    engine->owning = true;
    engine->own_from_start = true;
    engine->adopt_at = engine->now_mono;
}

static void expel(struct engine *engine)
{
    engine->expelled = true;
    log_line(LOG_ERROR,
             "another process runs under the name of this node: it decides, this one"
             " ends; give each its own name",
             "node", engine->options.node, NULL);
    if (engine->options.expelled)
        engine->options.expelled(engine->options.expelled_ctx);
}

static bool nobody_serves(const struct slot *slot)
{
    for (const struct wait *wait = slot->waits; wait; wait = wait->next)
        if (dispatch_handler_is_served(dispatch_ready_handler(&wait->ready)))
            return false;
    return slot->waits != NULL;
}

/* What waits for a handler that nobody serves here need not wait as long any more. */
static void settle_waiting(struct engine *engine)
{
    struct slot *slot, *next;
    HASH_ITER(hh, engine->slots, slot, next)
    {
        if (slot->state == SLOT_IDLE && nobody_serves(slot))
            slot_settle(engine, slot);
    }
}

void nodes_beat_done(struct engine *engine, const struct store_op *op)
{
    engine->beat_in_flight = false;
    if (op->beat == STORE_BEAT_LEAVE)
        return;
    engine->beat_at = engine->now_mono + engine->options.heartbeat_ms;
    if (op->result == STORE_LOST) {
        expel(engine);
        return;
    }
    if (op->result != STORE_OK) {
        if (!engine->member) /* nothing else may happen before it is known: soon */
            engine->beat_at = engine->now_mono + BLOCKED_MIN_MS;
        return;
    }
    engine->joined = true;
    bool company = engine->nodes_alive <= 1 && op->nodes_alive > 1;
    engine->nodes_alive = op->nodes_alive;
    atomic_store(&engine->counters.nodes_alive, op->nodes_alive);
    if (company)
        settle_waiting(engine);
    if (!engine->member) {
        engine->member = true;
        own_all(engine);
        if (!atomic_exchange(&engine->ready, true))
            log_line(LOG_INFO, "serving", "node", engine->options.node, "nodes",
                     log_fmt("%d", op->nodes_alive), NULL);
    } else if (op->was_dead) { /* others have adopted what was ours */
        log_line(LOG_WARN, "this node was taken for dead: all sagas are loaded anew", NULL);
        engine->reload = true;
    }
    if (op->nodes_alive > 1) /* registrations that arrived elsewhere are not told here */
        definitions_forget_all_current(engine);
}

void nodes_reloaded(struct engine *engine)
{
    engine->reload = false;
    own_all(engine);
}

/* --- own sagas, adopted sagas --- */

static bool has_room(const struct engine *engine)
{
    return atomic_load(&engine->counters.sagas_resident) < engine->options.resident_max;
}

/* What waits for held handlers alone may fill half of it, so that the rest is left to what runs. */
static bool has_room_for(const struct engine *engine, const struct slot *slot)
{
    int64_t most = engine->options.resident_max;
    return atomic_load(&engine->counters.sagas_resident) <
           (handlers_waits_held(slot) ? most / 2 : most);
}

static void uids_load(struct engine *engine, const struct store_op *op, bool adopted)
{
    for (size_t i = 0; i < op->uid_count; i++) {
        struct slot *slot = slot_get(engine, &op->uids[i]);
        if (!slot)
            continue; /* memory: it stays ours; a call or the next start finds it */
        if (adopted)  /* whatever copy is at work: the workers have the grace to come here */
            slot->grace_until = engine->now_mono + engine->options.grace_ms;
        /* A copy from before it was another's, or one that says that it is. */
        if (slot->state == SLOT_IDLE && (adopted || !slot->mine)) {
            workers_flush(engine); /* its tasks */
            slot_drop_copy(engine, slot);
        }
        if (slot->state == SLOT_UNLOADED)
            slot_make_runnable(engine, slot);
    }
}

void nodes_own_done(struct engine *engine, const struct store_op *op)
{
    engine->own_in_flight = false;
    if (op->result != STORE_OK && op->result != STORE_NOT_FOUND) {
        log_line(LOG_WARN, "listing the sagas of this node failed, again", "err", op->err.msg,
                 NULL);
        return;
    }
    uids_load(engine, op, false);
    if (op->uid_count) {
        engine->own_after = op->uids[op->uid_count - 1];
        engine->own_from_start = false;
    }
    engine->owning = op->uid_count == op->limit;
    engine->own_at = engine->now_mono + OWN_EVERY_MS;
}

void nodes_adopt_done(struct engine *engine, const struct store_op *op)
{
    engine->adopt_in_flight = false;
    engine->adopt_at = engine->now_mono + ADOPT_EVERY_MS;
    if (op->result != STORE_OK && op->result != STORE_NOT_FOUND)
        return; /* the next round */
    uids_load(engine, op, true);
    COUNT(engine, sagas_adopted, (long long)op->uid_count);
    if (op->uid_count == op->limit && has_room(engine)) /* there are more */
        engine->adopt_at = engine->now_mono;
}

/* --- sagas that were started beside the engine --- */

void nodes_started(struct engine *engine, struct engine_started *started)
{
    COUNT(engine, sagas_started, (long long)started->count);
    started->event.node.next = NULL;
    *engine->started_last = &started->event.node;
    engine->started_last = &started->event.node.next;
}

static struct engine_started *started_first(const struct engine *engine)
{
    return CONTAINER(CONTAINER(engine->started, struct engine_event, node), struct engine_started,
                     event);
}

static void started_done(struct engine *engine)
{
    struct engine_started *started = started_first(engine);
    engine->started = started->event.node.next;
    if (!engine->started)
        engine->started_last = &engine->started;
    started->event.done(&started->event);
}

bool nodes_started_due(const struct engine *engine)
{
    return engine->started && engine->runnable_count < STARTED_LOADS_MAX &&
           atomic_load(&engine->counters.sagas_ready) < STARTED_READY_MAX;
}

/* What is there of it is as good as a load, and no copy that answers a question. False: it is to be
 * loaded. */
static bool started_install(struct engine *engine, const struct engine_started *started, size_t i,
                            struct slot *slot)
{
    enum { KNOWN_NEVER = 0 };
    const struct engine_started_saga *given = started->sagas ? &started->sagas[i] : NULL;
    if (!given || !given->saga_id || slot->first || slot->runnable ||
        started->reconnects != atomic_load(&engine->counters.reconnects))
        return false;
    struct store_saga saga = { .mine = true,
                               .row = { .uid = slot->uid,
                                        .revision = started->revision,
                                        .run = 1,
                                        .park_step = -1,
                                        .started_at_ms = started->started_at_ms,
                                        .updated_at_ms = started->started_at_ms,
                                        .deadline_at_ms = started->deadline_at_ms } };
    saga.row.namespace_ = mem_strdup(started->namespace_);
    saga.row.definition = mem_strdup(started->definition);
    saga.row.saga_id = mem_strdup(given->saga_id);
    saga.row.labels = given->labels ? mem_strdup(given->labels) : NULL;
    if (!saga.row.namespace_ || !saga.row.definition || !saga.row.saga_id ||
        (given->labels && !saga.row.labels) ||
        mem_bytes_copy(given->input.data, given->input.size, &saga.row.input)) {
        store_saga_done(&saga);
        return false;
    }
    slot->mine = true; /* from the beginning: nobody else's workers are on their way */
    loaded_install(engine, &saga, KNOWN_NEVER);
    return true;
}

static void started_take(struct engine *engine)
{
    while (nodes_started_due(engine)) {
        struct engine_started *started = started_first(engine);
        if (!started->count)
            own_all(engine);
        for (; started->taken < started->count && nodes_started_due(engine); started->taken++) {
            struct slot *slot = slot_get(engine, &started->uids[started->taken]);
            if (!slot)
                own_all(engine); /* memory: it is listed again */
            else if (slot->state == SLOT_UNLOADED &&
                     !started_install(engine, started, started->taken, slot))
                slot_make_runnable(engine, slot);
        }
        if (started->taken < started->count)
            return;
        started_done(engine);
    }
}

void nodes_started_end(struct engine *engine)
{
    while (engine->started)
        started_done(engine);
}

static void adopt(struct engine *engine)
{
    /* Without room only what workers that have nothing to do can start at once: else what fills the
     * memory could keep that out. */
    bool room = has_room(engine);
    struct dispatch_served *served = &engine->adopt_for;
    if (dispatch_served(engine->dispatch, room ? ADOPT_READY_MAX : 1, served))
        return; /* memory: the next turn */
    struct flight *flight = flight_of_kind(engine, STORE_ADOPT);
    if (!flight)
        return;
    flight->op.handlers = served->names;
    flight->op.handler_count = served->count;
    if (!room && served->credit < LOAD_CHUNK)
        flight->op.limit = served->credit > 0 ? (size_t)served->credit : 1;
    engine->adopt_in_flight = true;
    flight_add(engine, flight);
}

void nodes_fill_batch(struct engine *engine)
{
    if (!engine->beat_in_flight && engine->beat_at <= engine->now_mono)
        nodes_beat(engine, engine->joined ? STORE_BEAT : STORE_BEAT_JOIN);
    handlers_fill_batch(engine);
    if (!engine->member || !engine->handlers_known)
        return;
    started_take(engine);
    bool loads_wait = engine->runnable_count >= LOAD_CHUNK;
    if (!engine->owning && engine->own_at <= engine->now_mono) {
        engine->owning = true;
        engine->own_from_start = true;
    }
    if (engine->owning && !engine->own_in_flight && !loads_wait) {
        struct flight *flight = flight_of_kind(engine, STORE_OWN);
        if (flight) {
            flight->op.from_start = engine->own_from_start;
            flight->op.after = engine->own_after;
            engine->own_in_flight = true;
            flight_add(engine, flight);
        }
    }
    if (!engine->adopt_in_flight && engine->adopt_at <= engine->now_mono && !loads_wait)
        adopt(engine);
}

int64_t nodes_due_at(const struct engine *engine)
{
    int64_t at = INT64_MAX;
    if (!engine->beat_in_flight)
        at = engine->beat_at;
    if (!engine->member || !engine->handlers_known)
        return at;
    if (engine->owning && !engine->own_in_flight)
        return engine->now_mono;
    if (!engine->adopt_in_flight && engine->adopt_at < at)
        at = engine->adopt_at;
    if (!engine->own_in_flight && engine->own_at < at)
        at = engine->own_at;
    return at;
}

void nodes_handlers_changed(struct engine *engine)
{
    if (engine->adopt_at > engine->now_mono)
        engine->adopt_at = engine->now_mono;
}

static void ready_again(void *ctx, struct dispatch_ready *ready)
{
    struct engine *engine = ctx;
    struct slot *slot = CONTAINER(ready, struct wait, ready)->slot;
    slot->ready_since = engine->now_mono;
    slot_make_runnable(engine, slot); /* not settled here: that changes the queues */
}

void nodes_session_ends(struct engine *engine, const struct dispatch_session *session)
{
    for (const struct dispatch_subscription *at = session->subscriptions; at;
         at = at->next_of_session)
        if (!dispatch_handler_is_served(at->handler))
            dispatch_ready_each(at->handler, ready_again, engine);
}

/* --- letting go --- */

/* Nothing but time, a call or a worker brings it on. */
static bool rests(const struct slot *slot)
{
    return slot->state == SLOT_IDLE && slot->mine && !slot->first && !slot->leases;
}

/* A handler of what could be granted now, one with credit if there is one, else any: who serves one
 * of them alone is to find the saga, too. NULL: nothing could. */
static const struct dispatch_handler *waits_for(struct engine *engine, const struct slot *slot)
{
    struct grantable what[LIMIT_STEPS];
    size_t count = saga_grantable(slot->saga, engine_db_now(engine), what, LIMIT_STEPS);
    const struct dispatch_handler *first = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct dispatch_handler *handler =
            dispatch_handler(engine->dispatch, what[i].rule->handler);
        if (handler && dispatch_handler_has_credit(handler))
            return handler;
        if (!first || rng_below(&engine->rng, i + 1) == 0)
            first = handler;
    }
    return first;
}

int64_t nodes_let_go_at(struct engine *engine, const struct slot *slot)
{
    if (!rests(slot))
        return INT64_MAX;
    if (slot->waiters) /* they go on waiting here; only for a node that may bring it on */
        return engine->nodes_alive > 1 && nobody_serves(slot) ? slot->ready_since + LET_GO_MS
                                                              : INT64_MAX;
    int64_t now = engine_db_now(engine);
    bool far = saga_due_at(slot->saga) > now + FAR_MS;
    if (saga_row(slot->saga)->state == SAGA_PARKED)
        return far ? engine->now_mono : INT64_MAX;
    if (!has_room_for(engine, slot)) { /* who comes to rest last leaves first */
        const struct dispatch_handler *handler = waits_for(engine, slot);
        int64_t grantable_at = saga_grantable_at(slot->saga, now);
        bool leaves =
            handler ? !dispatch_handler_has_credit(handler) : far && grantable_at > now + FAR_MS;
        return leaves ? engine->now_mono : INT64_MAX;
    }
    if (!nobody_serves(slot))
        return INT64_MAX;
    return slot->ready_since + (engine->nodes_alive > 1 ? LET_GO_MS : LET_GO_ALONE_MS);
}

void nodes_let_go(struct engine *engine, struct slot *slot, struct flight *flight)
{
    int64_t wake_at = saga_due_at(slot->saga);
    int64_t grantable = saga_grantable_at(slot->saga, engine_db_now(engine));
    const struct dispatch_handler *handler = waits_for(engine, slot);
    if (handler)
        flight->op.waiting_handler = dispatch_handler_name(handler);
    if (grantable < wake_at)
        wake_at = grantable;
    const struct saga_row *row = saga_row(slot->saga);
    flight->op.state = row->state;
    flight->op.phase = row->phase;
    /* A decision of a former owner may still come and leave the hints behind: somebody looks. */
    int64_t look_at =
        engine_db_now(engine) + LOOK_AGAIN_MS + (int64_t)rng_below(&engine->rng, LOOK_AGAIN_MS);
    if (row->state != SAGA_PARKED && look_at < wake_at)
        wake_at = look_at;
    flight->op.wake_at_ms = wake_at;
    COUNT(engine, sagas_let_go, 1);
}
