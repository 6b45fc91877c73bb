/* One simulated installation: a clock, a seeded random, a database, nodes with the real engine in
 * them, workers, a participant and clients. Everything that happens is a timer of the world;
 * between two timers no time passes. One thread.
 *
 * Memory of the simulation itself comes from the world and goes with it. What is handed to the
 * engine comes from mem_*, so that AddressSanitizer sees whoever uses it too long. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "base/heap.h"
#include "base/rng.h"
#include "sim/client.h"
#include "sim/database.h"
#include "sim/definitions.h"
#include "sim/hits.h"
#include "sim/invariants.h"
#include "sim/mutation.h"
#include "sim/node.h"
#include "sim/participant.h"
#include "sim/scenario.h"
#include "sim/trace.h"
#include "sim/worker.h"

enum { WORLD_NODES_MAX = 3, WORLD_WORKERS_MAX = 4 };

struct world_options {
    uint64_t seed;
    bool scripted; /* a scenario: no faults, fixed delays, what comes first goes first */
    enum mutation mutation;
    struct trace *trace; /* NULL: none */
    uint64_t *hits;      /* HIT_COUNT of them */
};

struct violation {
    enum invariant invariant; /* INVARIANT_COUNT: none */
    int64_t at_ms;
    char text[480];
};

struct world {
    struct world_options options;
    int64_t now_ms; /* true time, from 0; clocks differ from it */
    struct rng rng;
    /* Of CALL_OPTIONS alone: where none is made, a seed is the world that it was before there were
     * such calls. */
    struct rng options_rng;
    struct heap timers;
    uint64_t order; /* of timers at the same millisecond, in a scenario */
    struct world_block *blocks;
    unsigned odds[FAULT_COUNT]; /* per mille; 0: this seed knows no such fault */
    bool calm;                  /* no more faults: everything must come to its end */
    bool over;                  /* and has */
    int64_t calm_at_ms, rests_since_ms, chaos_every_ms;
    struct violation violation;

    struct database database;
    struct definitions definitions;
    struct participant participant;
    struct clients clients;
    struct node nodes[WORLD_NODES_MAX];
    size_t node_count;
    struct worker workers[WORLD_WORKERS_MAX];
    size_t worker_count;
    struct timer chaos;
    struct plan *plans; /* of a scenario */
};

void world_open(struct world *world, const struct world_options *options);
void world_close(struct world *world);
/* Runs the next timer; false when there is none, or something was violated. */
bool world_step(struct world *world);

/* Zeroed; lives as long as the world. */
void *world_alloc(struct world *world, size_t size);
char *world_text(struct world *world, const char *text); /* NULL stays NULL */
FMT(2, 3) char *world_format(struct world *world, const char *fmt, ...);

/* Sets the timer, or moves it. */
void world_at(struct world *world, struct timer *timer, int64_t at_ms, timer_fn *fire);
void world_after(struct world *world, struct timer *timer, int64_t delay_ms, timer_fn *fire);
void world_cancel(struct world *world, struct timer *timer);
bool timer_is_set(const struct timer *timer);
int64_t timer_at_ms(const struct timer *timer);

/* Uniform in [least, most]; in a scenario: least. */
int64_t world_between(struct world *world, int64_t least, int64_t most);
/* One of `count`; in a scenario the first. */
size_t world_choice(struct world *world, size_t count);
bool world_chance(struct world *world, unsigned per_mille);
/* Does this fault happen now? Never in a scenario or in calm; counted. */
bool world_fault(struct world *world, enum hit fault);
void world_hit(struct world *world, enum hit hit);
bool world_mutated(const struct world *world, enum mutation mutation);

/* The first violation counts and ends the run. */
FMT(3, 4)
void world_violate(struct world *world, enum invariant invariant, const char *fmt, ...);
/* A line of the trace: who, what. */
FMT(3, 4) void world_trace(struct world *world, const char *who, const char *fmt, ...);

#endif
