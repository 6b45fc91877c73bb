#include "sim/node.h"

#include "sim/world.h"

#include <string.h>
#include <utlist.h>

enum {
    SPINS_MAX = 5000,          /* turns within one millisecond */
    WORKER_SILENCE_MS = 35000, /* after which a worker looks for another node */
    GRACE_MS = ENGINE_GRACE_MS,
    MILLION = 1000000,
};

/* --- clocks ----------------------------------------------------------------------------------- */

int64_t node_mono_ms(const struct node *node)
{
    int64_t now = node->world->now_ms;
    return node->mono_offset_ms + now + now * node->drift_ppm / MILLION;
}

static int64_t clock_mono(void *ctx)
{
    return node_mono_ms(ctx);
}

static int64_t clock_wall(void *ctx)
{
    const struct node *node = ctx;
    return db_clock_ms(node->world->now_ms) + node->wall_offset_ms;
}

static void set_clocks(struct node *node)
{
    struct world *world = node->world;
    node->clock = (struct clock){ clock_wall, clock_mono, node };
    node->mono_offset_ms = world_between(world, 1000, 9000000);
    node->wall_offset_ms =
        world_fault(world, FAULT_CLOCK_WRONG) ? world_between(world, -120000, 120000) : 0;
    node->drift_ppm =
        world_fault(world, FAULT_CLOCK_DRIFTS) ? (int)world_between(world, -200, 200) : 0;
}

int64_t node_epoch(void)
{
    return 3;
}

/* --- turns ------------------------------------------------------------------------------------ */

static void on_turn(struct world *world, struct timer *timer);

bool node_is_up(const struct node *node)
{
    return node->engine && !node->stopping;
}

bool node_sleeps(struct node *node, struct timer *timer, timer_fn *fire)
{
    if (!node->paused)
        return false;
    world_at(node->world, timer, node->resume_at_ms + world_between(node->world, 0, 3), fire);
    return true;
}

static void turn_within(struct node *node, int64_t ms)
{
    struct world *world = node->world;
    int64_t at = world->now_ms + ms;
    if (!timer_is_set(&node->turn) || timer_at_ms(&node->turn) > at)
        world_at(world, &node->turn, at, on_turn);
}

void node_kick(struct node *node)
{
    if (!node->engine || node->dropping || node->stopping)
        return;
    /* While a batch is in flight the mailbox is looked at every 20 ms only. */
    int64_t most = node->store.batch && world_chance(node->world, 300) ? 20 : 2;
    turn_within(node, world_between(node->world, 0, most));
}

static void check_spin(struct node *node)
{
    struct world *world = node->world;
    if (node->spin_at_ms != world->now_ms) {
        node->spin_at_ms = world->now_ms;
        node->spins = 0;
    }
    if (++node->spins > SPINS_MAX)
        world_violate(world, INV_ENGINE, "%s turned %d times in a millisecond", node->name,
                      SPINS_MAX);
}

static void on_turn(struct world *world, struct timer *timer)
{
    struct node *node = CONTAINER(timer, struct node, turn);
    if (!node->engine || node_sleeps(node, timer, on_turn))
        return;
    check_spin(node);
    int64_t wake = engine_turn(node->engine);
    invariants_turn(world, node);
    if (wake == INT64_MAX || node->stopping)
        return;
    int64_t wait = wake - node_mono_ms(node);
    if (wait > 0 && node->drift_ppm < 0)
        wait += wait * -node->drift_ppm / MILLION + 1;
    turn_within(node, wait < 0 ? 0 : wait);
}

/* --- events ----------------------------------------------------------------------------------- */

bool node_post(struct node *node, struct engine_event *event, struct posted *posted)
{
    if (!node_is_up(node))
        return false;
    posted->node = node;
    DL_APPEND(node->posted, posted);
    if (!engine_post_always(node->engine, event)) {
        DL_DELETE(node->posted, posted);
        return false;
    }
    node_kick(node);
    return true;
}

void node_done(struct posted *posted)
{
    struct node *node = posted->node;
    DL_DELETE(node->posted, posted);
    posted->end(posted, node->dropping);
}

/* --- life ------------------------------------------------------------------------------------- */

struct node *node_add(struct world *world, const char *name)
{
    struct node *node = &world->nodes[world->node_count++];
    node->world = world;
    node->name = name;
    return node;
}

static void on_expelled_later(struct world *world, struct timer *timer)
{
    (void)world;
    node_crash(CONTAINER(timer, struct node, turn));
}

/* The program ends itself; not from within the engine. */
static void on_expelled(void *ctx)
{
    struct node *node = ctx;
    node->stopping = true;
    world_after(node->world, &node->turn, 0, on_expelled_later);
}

void node_start(struct node *node)
{
    struct world *world = node->world;
    struct err err;
    if (node->engine)
        return;
    set_clocks(node);
    node->dropping = node->stopping = node->paused = false;
    node->started_at_ms = world->now_ms;
    mem_store_open(&node->store, world, node);
    node->instance = uuid_v7(world->now_ms, &world->rng, 0);
    memset(node->knows, 0, sizeof node->knows);
    struct engine_options options = { .store = &node->store.store,
                                      .clock = &node->clock,
                                      .rng_seed = rng_next(&world->rng),
                                      .node = node->name,
                                      .instance = node->instance,
                                      .expelled = on_expelled,
                                      .expelled_ctx = node,
                                      .resident_max = node->resident_max,
                                      .breaker_failures = node->breaker_failures,
                                      .grace_ms = GRACE_MS,
                                      .stream_lost_ms = ENGINE_STREAM_LOST_MS,
                                      .definition_decode = definitions_decode };
    if (engine_new(&options, &node->engine, &err)) {
        world_violate(world, INV_ENGINE, "engine_new: %s", err.msg);
        return;
    }
    world_trace(world, node->name, "starts");
    node_kick(node);
}

/* The engine is freed; whatever it had is lost. */
void node_drop(struct node *node)
{
    struct world *world = node->world;
    if (!node->engine)
        return;
    node->dropping = true;
    world_cancel(world, &node->turn);
    world_cancel(world, &node->resume);
    mem_store_drop(&node->store);
    node->engine = engine_free(node->engine);
    while (node->posted)
        node_done(node->posted);
    streams_lose_node(node);
    node->paused = node->stopping = false;
}

static void on_restart(struct world *world, struct timer *timer)
{
    (void)world;
    node_start(CONTAINER(timer, struct node, restart));
}

static void restart_later(struct node *node)
{
    struct world *world = node->world;
    if (node->stays_down)
        return;
    world_after(world, &node->restart,
                world_between(world, 100, world_chance(world, 300) ? 60000 : 5000), on_restart);
}

void node_crash(struct node *node)
{
    if (!node->engine)
        return;
    world_trace(node->world, node->name, "dies");
    node_drop(node);
    restart_later(node);
}

static void on_stopped(struct engine_event *event)
{
    (void)event; /* the node's own */
}

void node_stop(struct node *node)
{
    /* As the program does: nothing is in flight, the stop is the last event, the run ends. */
    if (!node_is_up(node) || node->paused || node->store.batch || node->store.completed)
        return;
    world_trace(node->world, node->name, "stops");
    node->stop_event = (struct engine_event){ .kind = ENGINE_STOP, .done = on_stopped };
    if (!engine_post_always(node->engine, &node->stop_event))
        return;
    node->stopping = true;
    engine_run(node->engine);
    node_drop(node);
    restart_later(node);
}

static void on_resume(struct world *world, struct timer *timer)
{
    (void)world;
    node_resume(CONTAINER(timer, struct node, resume));
}

void node_pause(struct node *node, int64_t ms)
{
    struct world *world = node->world;
    if (!node_is_up(node) || node->paused)
        return;
    world_trace(world, node->name, "is stopped for %d ms", (int)ms);
    node->paused = true;
    node->resume_at_ms = world->now_ms + ms;
    world_at(world, &node->resume, node->resume_at_ms, on_resume);
    struct stream *stream;
    DL_FOREACH(node->streams, stream)
    {
        if (ms > WORKER_SILENCE_MS)
            stream_worker_ends_at(stream, world->now_ms + WORKER_SILENCE_MS);
    }
}

void node_resume(struct node *node)
{
    if (!node->paused)
        return;
    world_trace(node->world, node->name, "goes on");
    node->paused = false;
    world_cancel(node->world, &node->resume);
    node_kick(node);
}
