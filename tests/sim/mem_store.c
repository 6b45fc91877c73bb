#include "sim/mem_store.h"

#include "sim/world.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

enum { SPLIT = 4 };

enum unit_state {
    UNIT_SENT,      /* on its way to the server, or its transaction is open there */
    UNIT_COMMITTED, /* the answer is on its way back */
};

struct unit {
    struct unit *next;
    struct world *world;
    struct mem_store *store; /* NULL: its client has gone, only the server knows of it */
    struct request *requests;
    bool loads;
    enum unit_state state;
    int64_t begin_ms; /* database time */
    struct timer timer;
};

static struct mem_store *store_of(struct store *store)
{
    return CONTAINER(store, struct mem_store, store);
}

static bool is_write(const struct request *request)
{
    switch (request->kind) {
    case STORE_START:
    case STORE_TRANSITION:
    case STORE_EXTEND:
    case STORE_ADOPT:
    case STORE_LET_GO:
    case STORE_HEARTBEAT:
    case STORE_HANDLERS:
    case STORE_HANDLER:
        return true;
    default:
        return request->load != NULL; /* it takes the saga over */
    }
}

/* --- the client's side ------------------------------------------------------------------------ */

static void unit_send(struct unit *unit);

static void batch_finish(struct mem_store *store)
{
    assert(!store->completed);
    store->completed = store->batch;
    store->batch = NULL;
    store->unit = NULL;
    node_kick(store->node);
}

static void fail(struct request *request, enum store_result result, bool retryable)
{
    request_drop(request);
    request->answer.result = result;
    err_set(&request->answer.err, ERR_UNAVAILABLE, "simulated");
    request->answer.err.retryable = retryable;
    if (result == STORE_FAILED &&
        (request->kind == STORE_START || request->kind == STORE_TRANSITION ||
         request->kind == STORE_EXTEND))
        request->node->store.failed_writes++;
    if (result == STORE_UNKNOWN)
        world_hit(request->node->world, HIT_RESULT_UNKNOWN);
}

static void deliver_all(struct unit *unit)
{
    for (struct request *request = unit->requests; request; request = request->next)
        request_deliver(request);
}

/* The answer of a unit has arrived. */
static void on_reply(struct world *world, struct timer *timer)
{
    struct unit *unit = CONTAINER(timer, struct unit, timer);
    struct mem_store *store = unit->store;
    if (node_sleeps(store->node, timer, on_reply))
        return;
    (void)world;
    deliver_all(unit);
    store->unit = unit->next;
    if (store->unit)
        unit_send(store->unit);
    else
        batch_finish(store);
}

/* --- the server's side ------------------------------------------------------------------------ */

static void commit(struct unit *unit)
{
    struct world *world = unit->world;
    for (struct request *request = unit->requests; request; request = request->next) {
        struct db_saga *saga;
        database_execute(world, request, unit->begin_ms, &saga);
        if (saga)
            invariants_commit(world, saga, request, unit->begin_ms);
    }
    unit->state = UNIT_COMMITTED;
}

/* One operation of it failed, the transaction was rolled back: the culprit is found, the others are
 * written in up to four transactions. */
static void split(struct unit *unit, bool retryable)
{
    size_t count = 0;
    for (struct request *at = unit->requests; at; at = at->next)
        count++;
    size_t culprit = world_choice(unit->world, count), index = 0;
    struct request *parts[SPLIT] = { NULL }, **last[SPLIT];
    for (size_t i = 0; i < SPLIT; i++)
        last[i] = &parts[i];
    for (struct request *at = unit->requests, *next; at; at = next, index++) {
        next = at->next;
        at->next = NULL;
        if (index == culprit) {
            fail(at, STORE_FAILED, retryable);
            unit->requests = at;
            continue;
        }
        size_t part = index * SPLIT / count;
        *last[part] = at;
        last[part] = &at->next;
    }
    for (size_t i = SPLIT; i-- > 0;) {
        if (!parts[i])
            continue;
        struct unit *rest = world_alloc(unit->world, sizeof *rest);
        *rest = (struct unit){
            .world = unit->world, .store = unit->store, .requests = parts[i], .next = unit->next
        };
        unit->next = rest;
    }
}

static void fail_unit(struct unit *unit)
{
    for (struct request *at = unit->requests; at; at = at->next)
        fail(at, STORE_FAILED, true);
}

/* Does the connection break around this commit, and how? */
static enum commit_fate fate_of(struct unit *unit)
{
    struct world *world = unit->world;
    enum commit_fate fate = unit->store->fate;
    if (world->options.scripted && !unit->loads) {
        unit->store->fate = COMMIT_AS_USUAL;
        return fate;
    }
    if (world_fault(world, FAULT_CUT_BEFORE_COMMIT))
        return COMMIT_CUT_BEFORE;
    if (unit->loads)
        return COMMIT_AS_USUAL;
    if (world_fault(world, FAULT_CUT_THEN_COMMIT))
        return COMMIT_CUT_THEN;
    return world_fault(world, FAULT_CUT_AFTER_COMMIT) ? COMMIT_CUT_AFTER : COMMIT_AS_USUAL;
}

/* What becomes of the transaction; false: the connection is gone. */
static bool unit_end(struct unit *unit)
{
    struct world *world = unit->world;
    struct mem_store *store = unit->store;
    enum commit_fate fate = fate_of(unit);
    if (fate == COMMIT_CUT_BEFORE || fate == COMMIT_CUT_THEN) {
        mem_store_break(store, fate == COMMIT_CUT_THEN);
        return false;
    }
    if (unit->loads)
        return true; /* answered from its snapshot */
    if (world_fault(world, FAULT_ROW_FAILS))
        split(unit, true);
    else if (world_fault(world, FAULT_ROW_REFUSED))
        split(unit, false);
    else if (world_fault(world, FAULT_BATCH_FAILS))
        fail_unit(unit);
    else
        commit(unit);
    unit->state = UNIT_COMMITTED;
    if (fate == COMMIT_CUT_AFTER)
        mem_store_break(store, false);
    return fate != COMMIT_CUT_AFTER;
}

static void on_end(struct world *world, struct timer *timer)
{
    struct unit *unit = CONTAINER(timer, struct unit, timer);
    if (!unit->store) { /* nobody waits for it any more */
        commit(unit);
        for (struct request *request = unit->requests; request; request = request->next)
            request_drop(request);
        return;
    }
    if (!unit_end(unit))
        return;
    int64_t back_ms = world_between(world, 0, 2);
    if (world_fault(world, FAULT_REPLY_SLOW))
        back_ms = world_between(world, 20, 3000);
    back_ms += unit->store->late_ms;
    unit->store->late_ms = 0;
    world_after(world, timer, back_ms, on_reply);
}

static void on_begin(struct world *world, struct timer *timer)
{
    struct unit *unit = CONTAINER(timer, struct unit, timer);
    unit->begin_ms = db_clock_ms(world->now_ms);
    if (unit->loads)
        commit(unit); /* its snapshot */
    int64_t work_ms = world_between(world, 1, 4);
    if (world_fault(world, FAULT_COMMIT_SLOW))
        work_ms = world_between(world, 20, 4000);
    world_after(world, timer, work_ms, on_end);
}

static void unit_send(struct unit *unit)
{
    unit->state = UNIT_SENT;
    world_after(unit->world, &unit->timer, world_between(unit->world, 1, 2), on_begin);
}

/* --- connections ------------------------------------------------------------------------------ */

static void on_connecting(struct world *world, struct timer *timer)
{
    struct mem_store *store = CONTAINER(timer, struct mem_store, connecting);
    if (node_sleeps(store->node, timer, on_connecting))
        return;
    if (world->now_ms < world->database.refuses_until_ms) {
        world_after(world, timer, world_between(world, 50, 2000), on_connecting);
        return;
    }
    store->generation = ++world->database.connections;
    store->connected_at_ms = world->now_ms;
    world_trace(world, store->node->name, "has a connection to the database");
    node_kick(store->node);
}

/* What is in flight is in doubt if it was sent, else it certainly had no effect. */
static void fail_batch(struct mem_store *store)
{
    for (struct unit *unit = store->unit; unit; unit = unit->next) {
        bool in_doubt = unit == store->unit && !unit->loads;
        for (struct request *request = unit->requests; request; request = request->next) {
            fail(request, in_doubt ? STORE_UNKNOWN : STORE_FAILED, true);
            request_deliver(request);
            request->op = NULL;
        }
    }
    batch_finish(store);
}

void mem_store_break(struct mem_store *store, bool may_commit)
{
    struct world *world = store->world;
    struct unit *unit = store->unit;
    if (!store->generation)
        return;
    world_trace(world, store->node->name, "loses its connection to the database");
    store->generation = 0;
    if (unit) {
        world_cancel(world, &unit->timer);
        fail_batch(store);
        if (may_commit && unit->state == UNIT_SENT && !unit->loads) {
            unit->store = NULL;
            if (!unit->begin_ms)
                unit->begin_ms = db_clock_ms(world->now_ms);
            world_after(world, &unit->timer,
                        world->options.scripted ? 100 : world_between(world, 1, 8000), on_end);
        }
    }
    world_after(world, &store->connecting, world_between(world, 25, 1500), on_connecting);
    node_kick(store->node);
}

void mem_store_drop(struct mem_store *store)
{
    struct world *world = store->world;
    mem_store_break(store, world_chance(world, 500));
    world_cancel(world, &store->connecting);
    for (struct store_op *op = store->completed; op; op = op->next)
        store_op_done(op);
    store->completed = NULL;
}

/* --- what the engine calls ---------------------------------------------------------------------
 */

static uint64_t mem_generation(struct store *store)
{
    return store_of(store)->generation;
}

static int64_t mem_epoch(struct store *store)
{
    (void)store;
    return node_epoch();
}

static bool mem_busy(struct store *store)
{
    return store_of(store)->batch || store_of(store)->completed;
}

static struct unit *unit_new(struct mem_store *store)
{
    struct unit *unit = world_alloc(store->world, sizeof *unit);
    unit->world = store->world;
    unit->store = store;
    return unit;
}

/* Starts in the order of their uids: of two starts of one key the first wins. */
static void insert_start(struct request **list, struct request *request)
{
    while (*list && ((*list)->kind != STORE_START ||
                     memcmp(&(*list)->row.uid, &request->row.uid, sizeof(struct uuid)) < 0))
        list = &(*list)->next;
    request->next = *list;
    *list = request;
}

static void append(struct request **list, struct request *request)
{
    while (*list)
        list = &(*list)->next;
    *list = request;
}

/* All writes in one transaction, then each suspect apart, then the loads. */
static void add(struct mem_store *store, struct request *request, struct unit *all,
                struct unit *loads, struct unit **apart)
{
    if (!is_write(request)) {
        append(&loads->requests, request);
    } else if (request->suspect) {
        struct unit *one = unit_new(store);
        one->requests = request;
        one->next = *apart;
        *apart = one;
    } else if (request->kind == STORE_START) {
        insert_start(&all->requests, request);
    } else {
        append(&all->requests, request);
    }
}

/* In engine_run at the stop no time passes. */
static void run_at_once(struct mem_store *store)
{
    for (struct unit *unit = store->unit; unit; unit = unit->next) {
        unit->begin_ms = db_clock_ms(store->world->now_ms);
        commit(unit);
        deliver_all(unit);
    }
    batch_finish(store);
}

static void mem_submit(struct store *base, struct store_op *batch)
{
    struct mem_store *store = store_of(base);
    assert(store->generation && !mem_busy(base) && batch);
    store->batch = batch;
    struct unit *all = unit_new(store), *loads = unit_new(store), *apart = NULL;
    loads->loads = true;
    for (struct store_op *op = batch; op; op = op->next) {
        op->result = STORE_PENDING;
        struct request *request = request_new(store->world, store->node, op);
        invariants_submit(store->world, store->node, request);
        if (op->kind == STORE_LOAD_UID && op->take) {
            struct request *takes = request_new(store->world, store->node, op);
            takes->load = request;
            add(store, takes, all, loads, &apart);
        }
        add(store, request, all, loads, &apart);
    }
    struct unit **last = &store->unit;
    if (all->requests) {
        *last = all;
        last = &all->next;
    }
    *last = apart;
    while (*last)
        last = &(*last)->next;
    if (loads->requests)
        *last = loads;
    if (store->node->stopping)
        run_at_once(store);
    else
        unit_send(store->unit);
}

static struct store_op *mem_completed(struct store *store)
{
    return TAKE(store_of(store)->completed);
}

static void mem_process(struct store *store, int64_t mono_ms)
{
    (void)store;
    (void)mono_ms; /* timers of the world do it */
}

/* Asked for in engine_run alone, at the stop: always ready. */
static int mem_poll_fd(struct store *store, short *ret_events)
{
    (void)store;
    static int always = -1;
    if (always < 0)
        always = open("/dev/null", O_RDWR | O_CLOEXEC);
    *ret_events = POLLOUT;
    return always;
}

static int64_t mem_wake_at(struct store *store)
{
    (void)store;
    return INT64_MAX;
}

static const struct store_ops mem_ops = {
    .generation = mem_generation,
    .epoch = mem_epoch,
    .busy = mem_busy,
    .submit = mem_submit,
    .completed = mem_completed,
    .process = mem_process,
    .poll_fd = mem_poll_fd,
    .wake_at = mem_wake_at,
};

void mem_store_open(struct mem_store *store, struct world *world, struct node *node)
{
    *store = (struct mem_store){ .store = { &mem_ops }, .world = world, .node = node };
    world_after(world, &store->connecting, world_between(world, 1, 30), on_connecting);
}
