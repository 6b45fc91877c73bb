/* The turn: completions, events, timers, the next batch. */
#include "engine/engine.h"

#include "base/log.h"
#include "base/mem.h"
#include "core/limits.h"
#include "engine/engine_internal.h"

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    STOP_LIMIT_MS = 5000, /* at the stop: how long the batch in flight is waited for */
    POLL_MAX_MS = 1000,
    GATHER_MAX_MS = 20, /* events wait for the batch in flight, but no longer than this */
};

#define COUNTER(field, text)                                                                       \
    {                                                                                              \
#field, text, offsetof(struct engine_counters, field)                                      \
    }
const struct engine_counter_name engine_counter_names[] = {
    COUNTER(sagas_started, "sagas started"),
    COUNTER(starts_existed, "starts whose key was known with the same input"),
    COUNTER(sagas_succeeded, "sagas that reached SUCCEEDED"),
    COUNTER(sagas_compensated, "sagas that reached COMPENSATED"),
    COUNTER(sagas_parked, "times that a saga was parked"),
    COUNTER(tasks_sent, "tasks handed to workers"),
    COUNTER(reports_accepted, "reports accepted"),
    COUNTER(reports_duplicate, "reports that were accepted before"),
    COUNTER(reports_stale, "reports refused as stale"),
    COUNTER(late_reports, "late reports recorded"),
    COUNTER(leases_expired, "leases that ran out"),
    COUNTER(streams_lost, "attempts ended because their worker's stream was lost"),
    COUNTER(leases_released, "leases given back unstarted"),
    COUNTER(leases_extended, "lease extensions"),
    COUNTER(batches, "transactions of the engine"),
    COUNTER(batch_items, "operations in them"),
    COUNTER(decisions_lost, "decisions taken anew because another was first"),
    COUNTER(operations_failed, "operations that the database or the core refused"),
    COUNTER(reconnects, "connections to the database, the first included"),
    COUNTER(sagas_adopted, "sagas that this node took over"),
    COUNTER(sagas_let_go, "sagas that left memory for other nodes, or for want of room"),
    COUNTER(sagas_resident, "sagas in memory now"),
    COUNTER(sagas_ready, "operations that wait for a worker now"),
    COUNTER(leases_live, "leases live now"),
    COUNTER(workers_connected, "worker streams now"),
    COUNTER(nodes_alive, "orchestrators on this database now, this one included"),
};
const size_t engine_counter_count = ARRAY_LEN(engine_counter_names);

int engine_new(const struct engine_options *options, struct engine **ret, struct err *err)
{
    struct engine *engine = mem_calloc(1, sizeof *engine);
    if (!engine)
        return err_set(err, ERR_NOMEM, "engine: out of memory");
    engine->options = *options;
    if (!engine->options.batch_limit)
        engine->options.batch_limit = LIMIT_BATCH_EVENTS;
    if (!engine->options.mailbox_limit)
        engine->options.mailbox_limit = ENGINE_MAILBOX_LIMIT;
    if (!engine->options.heartbeat_ms)
        engine->options.heartbeat_ms = ENGINE_HEARTBEAT_MS;
    if (!engine->options.node_dead_ms)
        engine->options.node_dead_ms = ENGINE_NODE_DEAD_MS;
    if (!engine->options.resident_max)
        engine->options.resident_max = ENGINE_RESIDENT_MAX;
    store_granter(options->node, &options->instance, engine->granter);
    engine->store = options->store;
    engine->dispatch = dispatch_new();
    if (!engine->dispatch || mailbox_init(&engine->mailbox, engine->options.mailbox_limit, err)) {
        if (!engine->dispatch)
            err_set(err, ERR_NOMEM, "engine: out of memory");
        (void)dispatch_free(engine->dispatch);
        mem_free(engine);
        return (int)err->code;
    }
    rng_seed(&engine->rng, options->rng_seed);
    engine->starts_last = &engine->starts;
    engine->key_loads_last = &engine->key_loads;
    engine->started_last = &engine->started;
    engine->definitions_last = &engine->definitions_to_load;
    engine->batch_last = &engine->batch;
    engine->now_mono = clock_mono_ms(options->clock);
    /* until it is asked */
    engine->db_offset_ms = clock_wall_ms(options->clock) - engine->now_mono;
    engine->db_offset_most_ms = engine->db_offset_ms;
    *ret = engine;
    return 0;
}

bool engine_post(struct engine *engine, struct engine_event *event)
{
    return mailbox_put(&engine->mailbox, &event->node);
}

bool engine_post_always(struct engine *engine, struct engine_event *event)
{
    return mailbox_put_always(&engine->mailbox, &event->node);
}

const struct engine_counters *engine_counters(const struct engine *engine)
{
    return &engine->counters;
}

int32_t engine_breaker_failures(const struct engine *engine)
{
    return engine->options.breaker_failures;
}

bool engine_is_ready(const struct engine *engine)
{
    return atomic_load(&engine->ready);
}

static void drop_all_copies(struct engine *engine)
{
    engine->grace_until = engine->now_mono + engine->options.grace_ms;
    struct slot *slot, *next;
    HASH_ITER(hh, engine->slots, slot, next)
    {
        slot_drop_copy(engine, slot);
        if (slot->first || slot->waiters)
            slot_make_runnable(engine, slot);
        else
            slot_free(engine, slot);
    }
}

/* Every copy dies with the connection that it was loaded on. */
static void connection_is_new(struct engine *engine, uint64_t generation)
{
    engine->generation = generation;
    COUNT(engine, reconnects, 1);
    nodes_connection_is_new(engine);
    handlers_connection_is_new(engine);
    drop_all_copies(engine);
}

static void note_time(struct engine *engine)
{
    int64_t ms = clock_mono_ms(engine->options.clock) - engine->submitted_at;
    engine->took[engine->took_count++ % ENGINE_TOOK_MAX] =
        (struct engine_took){ (uint32_t)(ms < UINT32_MAX ? ms : UINT32_MAX),
                              (uint32_t)engine->submitted_items };
}

static int compare_times(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

struct engine_batch_times engine_batch_times(const struct engine *engine)
{
    size_t count =
        engine->took_count < ENGINE_TOOK_MAX ? engine->took_count : (size_t)ENGINE_TOOK_MAX;
    struct engine_batch_times times = { .count = count };
    uint32_t ms[ENGINE_TOOK_MAX];
    if (count == 0)
        return times;
    for (size_t i = 0; i < count; i++) {
        ms[i] = engine->took[i].ms;
        times.items += engine->took[i].items;
    }
    qsort(ms, count, sizeof *ms, compare_times);
    times.median_ms = ms[count / 2];
    times.p99_ms = ms[count - 1 - count / 100];
    times.longest_ms = ms[count - 1];
    return times;
}

static void take_completions(struct engine *engine)
{
    struct store_op *op = engine->store->ops->completed(engine->store);
    if (op)
        note_time(engine);
    while (op) {
        struct store_op *next = op->next; /* complete_op gives the operation back */
        complete_op(engine, op);
        op = next;
    }
}

static void take_timers(struct engine *engine)
{
    for (struct heap_node *top;
         (top = heap_top(&engine->timers)) && top->key <= engine->now_mono;) {
        struct slot *slot = CONTAINER(top, struct slot, timer);
        heap_remove(&engine->timers, top);
        if (slot->state == SLOT_BLOCKED)
            slot->state = SLOT_UNLOADED;
        else
            slot->time_due = true;
        slot_make_runnable(engine, slot);
    }
    workers_lost(engine);
    waiters_time(engine);
}

static bool may_submit(const struct engine *engine)
{
    return !engine->stopping && !engine->expelled && engine->generation &&
           engine->store->ops->generation(engine->store) == engine->generation &&
           !engine->store->ops->busy(engine->store);
}

static void batch_submit(struct engine *engine)
{
    if (!engine->batch)
        return;
    struct store_op *batch = engine->batch;
    COUNT(engine, batches, 1);
    COUNT(engine, batch_items, (long long)engine->batch_count);
    engine->submitted_items = engine->batch_count;
    engine->batch = NULL;
    engine->batch_last = &engine->batch;
    engine->batch_count = 0;
    engine->submitted_at = clock_mono_ms(engine->options.clock);
    engine->batch_number++;
    engine->store->ops->submit(engine->store, batch);
}

static int64_t wake_at(const struct engine *engine)
{
    int64_t at = engine->store->ops->wake_at(engine->store);
    const struct heap_node *top = heap_top(&engine->timers);
    bool may = may_submit(engine);
    int64_t others[] = { top ? top->key : INT64_MAX, waiters_due_at(engine),
                         dispatch_lost_at(engine->dispatch), may ? nodes_due_at(engine) : INT64_MAX,
                         may ? handlers_due_at(engine) : INT64_MAX };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (others[i] < at)
            at = others[i];
    if (may && engine->member && engine->handlers_known &&
        (engine->runnable || engine->starts || engine->key_loads || engine->definitions_to_load ||
         nodes_started_due(engine)))
        return engine->now_mono;
    return at;
}

int64_t engine_turn(struct engine *engine)
{
    engine->now_mono = clock_mono_ms(engine->options.clock);
    engine->store->ops->process(engine->store, engine->now_mono);
    take_completions(engine);
    uint64_t generation = engine->store->ops->generation(engine->store);
    if (generation && generation != engine->generation) {
        workers_flush(engine); /* of the copies that die now */
        connection_is_new(engine, generation);
    }
    if (engine->reload && may_submit(engine)) { /* nothing is in flight */
        workers_flush(engine);
        drop_all_copies(engine);
        nodes_reloaded(engine);
    }
    events_take(engine);
    take_timers(engine);
    if (may_submit(engine)) {
        dispatch_forget_unused(engine->dispatch); /* no operation in flight borrows a name */
        step_fill_batch(engine);
        batch_submit(engine);
    }
    workers_flush(engine); /* while the next batch is on its way: all of this is durable */
    workers_paused(engine);
    return wake_at(engine);
}

static void works_end(struct engine *engine, struct engine_work **list, const struct err *err)
{
    while (*list) {
        struct engine_work *work = *list;
        *list = work->next;
        work_fail(engine, work, err);
    }
}

/* Answers whatever is still open; nothing of it was acknowledged. */
static void end_all(struct engine *engine)
{
    struct err err;
    err_reason(&err, ERR_UNAVAILABLE, "STOPPING", "the server stops");
    struct slot *slot, *next;
    HASH_ITER(hh, engine->slots, slot, next)
    {
        for (struct engine_work *work; (work = slot_take_work(slot));)
            work_fail(engine, work, &err);
        while (slot->waiters) {
            slot->waiters->err = err;
            verb_finish(engine, slot->waiters);
        }
        slot_free(engine, slot);
    }
    struct flight *flight;
    DL_FOREACH(engine->flights, flight)
    {
        if (flight->work)
            work_fail(engine, flight->work, &err);
        flight->work = NULL;
        flight->slot = NULL;
    }
    works_end(engine, &engine->starts, &err);
    engine->starts_last = &engine->starts;
    works_end(engine, &engine->key_loads, &err);
    engine->key_loads_last = &engine->key_loads;
    nodes_started_end(engine);
    handlers_changed_end(engine);
}

/* While a batch is in flight its end is what is waited for: events could do no more than wait for
 * it, and waking up for each of them costs more than it brings. */
static void wait_for_work(struct engine *engine, int64_t wait_ms)
{
    short events = 0;
    int store_fd = engine->store->ops->poll_fd(engine->store, &events);
    struct pollfd fds[2] = { { .fd = store_fd, .events = events },
                             { .fd = engine->mailbox.fd, .events = POLLIN } };
    bool gathers = store_fd >= 0 && engine->store->ops->busy(engine->store);
    int64_t limit = gathers ? GATHER_MAX_MS : POLL_MAX_MS;
    int timeout = (int)(wait_ms < 0 ? 0 : wait_ms > limit ? limit : wait_ms);
    (void)poll(fds, gathers ? 1 : 2, timeout); /* EINTR: the next turn looks anyway */
}

/* The last batch: the others need not wait until this node counts as dead. False: it cannot be. */
static bool leave(struct engine *engine)
{
    if (!engine->member || engine->expelled ||
        engine->store->ops->generation(engine->store) != engine->generation)
        return false;
    engine->member = false; /* once */
    nodes_beat(engine, STORE_BEAT_LEAVE);
    batch_submit(engine);
    return engine->store->ops->busy(engine->store);
}

void engine_run(struct engine *engine)
{
    int64_t stop_at = INT64_MAX;
    for (;;) {
        int64_t wake = engine_turn(engine);
        if (engine->stopping) {
            if (stop_at == INT64_MAX)
                stop_at = engine->now_mono + STOP_LIMIT_MS;
            if (engine->now_mono >= stop_at)
                break;
            if (!engine->store->ops->busy(engine->store) && !leave(engine))
                break;
        }
        wait_for_work(engine, wake - engine->now_mono);
    }
    take_completions(engine);
    events_take(engine); /* what was posted while the stop was being read */
    definitions_fail_waiters(engine);
    end_all(engine);
    struct engine_event *stop = engine->stop_event;
    stop->done(stop);
}

struct engine *engine_free(struct engine *engine)
{
    if (!engine)
        return NULL;
    engine->stopping = true;
    definitions_fail_waiters(engine);
    end_all(engine);
    definitions_free(engine);
    handlers_free(engine);
    workers_links_free(engine);
    while (engine->free_flights) {
        struct flight *flight = engine->free_flights;
        engine->free_flights = flight->next;
        mem_free(flight);
    }
    struct flight *flight, *next;
    DL_FOREACH_SAFE(engine->flights, flight, next)
    {
        mem_free(flight);
    }
    mem_free(engine->adopt_for.names);
    mem_free(engine->beat_for.names);
    heap_done(&engine->timers);
    heap_done(&engine->wait_timers);
    (void)dispatch_free(engine->dispatch);
    mailbox_done(&engine->mailbox);
    mem_free(engine);
    return NULL;
}
