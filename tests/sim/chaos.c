#include "sim/chaos.h"

#include "core/view.h"
#include "sim/world.h"

#include <utlist.h>

enum {
    CALM_MOST_MS = 30 * 60 * 1000, /* in which everything must come to its end */
    LOOK_EVERY_MS = 500,
    REST_MS = 70 * 1000, /* longer than any lease, back-off or let-go */
};

/* --- the world of a seed ---------------------------------------------------------------------- */

/* Each seed knows some of the faults, some of them often: all at once would hide one behind the
 * other. */
static void choose_faults(struct world *world)
{
    unsigned share = (unsigned)world_between(world, 100, 900);
    for (int i = 0; i < FAULT_COUNT; i++)
        if (i != FAULT_CALL_OPTIONS && world_chance(world, share))
            world->odds[i] =
                fault_odds((enum hit)i) * (unsigned)world_between(world, 50, 200) / 100;
    if (rng_below(&world->options_rng, 2000) < share) /* half as many seeds as know any other */
        world->odds[FAULT_CALL_OPTIONS] = fault_odds(FAULT_CALL_OPTIONS);
    world->odds[FAULT_START_AGAIN] = fault_odds(FAULT_START_AGAIN);
}

static void add_nodes(struct world *world)
{
    static const char *const names[WORLD_NODES_MAX] = { "n1", "n2", "n3" };
    size_t count = 1 + world_choice(world, WORLD_NODES_MAX);
    bool twins = count > 1 && world_fault(world, FAULT_NODE_TWINS);
    for (size_t i = 0; i < count; i++) {
        struct node *node = node_add(world, twins && i == 1 ? names[0] : names[i]);
        if (world_fault(world, FAULT_LITTLE_ROOM))
            node->resident_max = world_between(world, 1, 2);
        if (world_fault(world, FAULT_BREAKER))
            node->breaker_failures = (int32_t)world_between(world, 1, 3);
        node_start(node);
    }
}

/* Where there are large graphs there may be room for all that they have beside each other. */
static int64_t most_at_once(const struct world *world)
{
    for (size_t i = 0; i < world->definitions.count; i++)
        if (world->definitions.shapes[i] != SHAPE_SMALL)
            return STEPS_MAX;
    return 3;
}

static void serve_some(struct world *world, struct worker *worker, unsigned share)
{
    int64_t most = most_at_once(world);
    for (size_t i = 0; i < HANDLERS_MAX; i++)
        if (world_chance(world, share))
            worker_serve(worker, handler_names[i], (uint32_t)world_between(world, 1, most));
    if (!worker->serves_count)
        worker_serve(worker, handler_names[world_choice(world, HANDLERS_MAX)], 1);
}

static void give_addresses(struct world *world, struct worker *worker)
{
    bool any = false;
    for (size_t i = 0; i < world->node_count; i++)
        any |= worker->addresses[i] = world_chance(world, 700);
    if (!any)
        worker->addresses[world_choice(world, world->node_count)] = true;
    worker->spread = world_chance(world, 500);
    worker->next_address = world_choice(world, world->node_count);
}

/* The first one serves everything, somewhere: else nothing need come to its end. */
static void add_workers(struct world *world)
{
    static const char *const names[WORLD_WORKERS_MAX] = { "w1", "w2", "w3", "w4" };
    size_t count = 1 + world_choice(world, WORLD_WORKERS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct worker *worker = worker_add(world, names[i]);
        serve_some(world, worker, i ? 600 : 1000);
        give_addresses(world, worker);
        worker_start(worker);
    }
}

static void on_chaos(struct world *world, struct timer *timer);

void chaos_open(struct world *world)
{
    choose_faults(world);
    definitions_make_up(world);
    add_nodes(world);
    add_workers(world);
    clients_open(world);
    world->calm_at_ms = world_between(world, 5000, 150000);
    world->chaos_every_ms = world_between(world, 1000, 15000);
    world_after(world, &world->chaos, world_between(world, 10, 2000), on_chaos);
}

/* --- what befalls it -------------------------------------------------------------------------- */

static struct node *some_node(struct world *world)
{
    return &world->nodes[world_choice(world, world->node_count)];
}

static struct worker *some_worker(struct world *world)
{
    return &world->workers[world_choice(world, world->worker_count)];
}

static int64_t stop_ms(struct world *world)
{
    return world_chance(world, 300) ? world_between(world, 10000, 60000)
                                    : world_between(world, 10, 10000);
}

static void befall_database(struct world *world)
{
    if (world_fault(world, FAULT_CUT_WHILE_IDLE)) {
        struct node *node = some_node(world);
        if (node->engine && !node->store.batch)
            mem_store_break(&node->store, false);
    }
    if (world_fault(world, FAULT_CONNECTION_REFUSED))
        world->database.refuses_until_ms = world->now_ms + world_between(world, 10, 8000);
    if (world_fault(world, FAULT_DATABASE_RESTART)) {
        world_trace(world, "database", "restarts");
        world->database.refuses_until_ms = world->now_ms + world_between(world, 100, 5000);
        for (size_t i = 0; i < world->node_count; i++)
            if (world->nodes[i].engine)
                mem_store_break(&world->nodes[i].store, false);
    }
}

static void befall_nodes(struct world *world)
{
    if (world_fault(world, FAULT_NODE_CRASH))
        node_crash(some_node(world));
    if (world_fault(world, FAULT_NODE_PAUSE))
        node_pause(some_node(world), stop_ms(world));
    if (world_fault(world, FAULT_NODE_STOP))
        node_stop(some_node(world));
    if (world_fault(world, FAULT_STREAM_CUT)) {
        struct stream *stream;
        DL_FOREACH(some_node(world)->streams, stream)
        {
            if (world_chance(world, 500))
                stream_cut(stream);
        }
    }
}

static void befall_workers(struct world *world)
{
    if (world_fault(world, FAULT_WORKER_DIES))
        worker_die(some_worker(world));
    if (world_fault(world, FAULT_WORKER_PAUSE))
        worker_pause(some_worker(world), stop_ms(world));
    if (world_fault(world, FAULT_WORKER_SILENT))
        worker_silence(some_worker(world), world_between(world, 1000, 30000));
    if (world_fault(world, FAULT_WORKER_DRAINS))
        worker_drain(some_worker(world));
    if (world_fault(world, FAULT_WORKER_LIES))
        worker_lie(some_worker(world));
}

/* --- calm ------------------------------------------------------------------------------------- */

static void on_look(struct world *world, struct timer *timer);

/* Everybody is up and well again. Of two under one name one goes for good. */
static void calm_down(struct world *world)
{
    world_trace(world, "world", "calm: no more faults");
    world->calm = true;
    handlers_calm(world);
    world->database.refuses_until_ms = 0;
    for (size_t i = 0; i < world->node_count; i++) {
        struct node *node = &world->nodes[i];
        node->stays_down = i == 1 && node->name == world->nodes[0].name;
        node_resume(node);
        if (node->stays_down)
            node_crash(node);
        else
            node_start(node);
    }
    for (size_t i = 0; i < world->worker_count; i++) {
        struct worker *worker = &world->workers[i];
        worker_resume(worker);
        worker->silent = false;
        if (world->nodes[1].stays_down)
            worker->addresses[0] = true;
        worker_start(worker);
        worker_pulse(worker);
    }
    world->rests_since_ms = world->now_ms;
    world_after(world, &world->chaos, LOOK_EVERY_MS, on_look);
}

static void on_chaos(struct world *world, struct timer *timer)
{
    if (world->now_ms >= world->calm_at_ms) {
        calm_down(world);
        return;
    }
    befall_database(world);
    befall_nodes(world);
    befall_workers(world);
    handlers_befall(world);
    world_after(world, timer, world_between(world, 10, world->chaos_every_ms), on_chaos);
}

static bool is_at_rest(const struct world *world)
{
    for (size_t i = 0; i < world->database.saga_count; i++) {
        const struct saga_row *row = &world->database.sagas[i].row;
        if (!saga_state_is_terminal(row->state) && row->state != SAGA_PARKED)
            return false;
    }
    for (size_t i = 0; i < world->worker_count; i++)
        if (!worker_is_idle(&world->workers[i]))
            return false;
    return world->clients.open == 0 && world->participant.in_flight == 0;
}

/* Where a saga stands, by the rules and by who drives it. */
static void where(struct world *world, const struct db_saga *saga, struct buf *out)
{
    static const char *const kinds[] = { "nothing",  "a worker",    "a retry",
                                         "a report", "settle time", "an operator" };
    struct err err;
    struct saga *copy = database_replay(world, saga, &err);
    buf_printf(out, " %s is %s after #%zu, driven by %s", saga->row.saga_id,
               saga_state_name(saga->row.state), saga->count, saga->owner ? saga->owner : "nobody");
    if (!copy) {
        buf_printf(out, " (%s);", err.msg);
        return;
    }
    struct wait_view view;
    saga_wait_view(copy, db_clock_ms(world->now_ms), &view);
    buf_printf(out, ", waits for %s%s%s;", kinds[view.kind], view.handler ? " of " : "",
               view.handler ? view.handler : "");
    (void)saga_free(copy); /* always NULL */
}

static void tell_what_is_stuck(struct world *world)
{
    CLEANUP(buf_done) struct buf text = { .limit = 4096 };
    for (size_t i = 0; i < world->database.saga_count; i++) {
        const struct db_saga *saga = &world->database.sagas[i];
        if (!saga_state_is_terminal(saga->row.state) && saga->row.state != SAGA_PARKED)
            where(world, saga, &text);
    }
    for (size_t i = 0; i < world->worker_count; i++)
        if (!worker_is_idle(&world->workers[i]))
            buf_printf(&text, " %s holds work;", world->workers[i].name);
    world_violate(world, INV_PROGRESS, "stuck after %d minutes of calm:%s %zu calls unanswered",
                  CALM_MOST_MS / 60000, buf_cstr(&text), world->clients.open);
}

/* It stays so for a while: what is left over is gone by then, or never goes. */
static void on_look(struct world *world, struct timer *timer)
{
    bool rests = is_at_rest(world);
    if (!rests)
        world->rests_since_ms = world->now_ms;
    if (rests && world->now_ms - world->rests_since_ms > REST_MS) {
        world_trace(world, "world", "everything is at rest");
        invariants_end(world);
        world->over = true;
    } else if (rests) {
        world_after(world, timer, LOOK_EVERY_MS, on_look);
    } else if (world->now_ms > world->calm_at_ms + CALM_MOST_MS) {
        tell_what_is_stuck(world);
    } else {
        world_after(world, timer, LOOK_EVERY_MS, on_look);
    }
}

bool chaos_run(struct world *world)
{
    while (!world->over && world_step(world))
        continue;
    return world->violation.invariant == INVARIANT_COUNT;
}
