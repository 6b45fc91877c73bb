/* One orchestrator: the real engine, turned by timers, with a clock and a store of its own. It can
 * die, be stopped for a while, stop in an orderly way, and come back. */
#ifndef SIM_NODE_H
#define SIM_NODE_H

#include "base/clock.h"
#include "engine/engine.h"
#include "sim/handlers.h"
#include "sim/mem_store.h"
#include "sim/timer.h"

struct world;
struct stream;

/* Heads an event that the engine has; `end` is called once: done, or lost with its node. */
struct posted {
    struct posted *prev, *next;
    struct node *node;
    void (*end)(struct posted *posted, bool lost);
};

struct node {
    struct world *world;
    const char *name;
    struct engine *engine; /* NULL: it does not run */
    struct mem_store store;
    struct clock clock;
    int64_t mono_offset_ms, wall_offset_ms;
    int drift_ppm;
    struct uuid instance;
    int64_t resident_max; /* 0: the default */
    int32_t breaker_failures;
    struct known_handler knows[HANDLERS_MAX];
    bool dropping, stopping, stays_down;
    bool paused;
    int64_t resume_at_ms;
    struct timer turn, resume, restart;
    int64_t spin_at_ms;
    unsigned spins;
    struct posted *posted;
    struct stream *streams; /* that are open at this end */
    struct engine_event stop_event;
    int64_t started_at_ms;
};

struct node *node_add(struct world *world, const char *name);
void node_start(struct node *node);
/* kill -9: comes back after a while if `restarts`. */
void node_crash(struct node *node);
/* Events are answered, then the process ends. */
void node_stop(struct node *node);
void node_pause(struct node *node, int64_t ms);
void node_resume(struct node *node);
/* Without a trace: at the end of the world. */
void node_drop(struct node *node);

/* There is something to do. */
void node_kick(struct node *node);
/* If it is paused, the timer is set again for when it is not. */
bool node_sleeps(struct node *node, struct timer *timer, timer_fn *fire);
bool node_is_up(const struct node *node);
/* Posts an event; false: it does not run, or takes no more. */
bool node_post(struct node *node, struct engine_event *event, struct posted *posted);
/* To be called from the event's `done`. */
void node_done(struct posted *posted);
int64_t node_mono_ms(const struct node *node);
/* Of the fences of every connection. */
int64_t node_epoch(void);

#endif
