/* What must hold, whatever happens: judged from the rows of the database, from what leaves the
 * engines and from what the participant saw, by rules of their own (core/ is asked only to load
 * what is stored). invariants.c looks at each commit, invariants_out.c at what leaves, and the end.
 */
#ifndef SIM_INVARIANTS_H
#define SIM_INVARIANTS_H

#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct world;
struct node;
struct db_saga;
struct request;
struct call;

#define INVARIANTS(X)                                                                              \
    X(JOURNAL, "P6",                                                                               \
      "positions are contiguous, each once; an entry stays as it is, its outcome is "              \
      "set once")                                                                                  \
    X(TERMINAL, "P6", "nothing follows the end")                                                   \
    X(GRAPH, "P6", "states move along the printed graph")                                          \
    X(REPLAY, "P8", "the core can load what is stored, and finds it sound")                        \
    X(ONE_LEASE, "P3", "at most one lease of a saga is open")                                      \
    X(FENCE, "P3", "fences rise")                                                                  \
    X(TRIES, "P6", "tries are contiguous")                                                         \
    X(FORWARD, "P5", "an action is granted in its turn, and never after the saga turned back")     \
    X(REFUSAL, "P5", "a refusal and the turn back that follows are one commit")                    \
    X(BACKWARD, "P5",                                                                              \
      "a compensation is granted in reverse order, for what may have taken effect, "               \
      "and not beside a live forward lease")                                                       \
    X(SETTLE, "P5", "a compensation waits for requests that may be on their way")                  \
    X(REPEAT, "P4",                                                                                \
      "an AT_MOST_ONCE operation is not granted again while an attempt of it may have "            \
      "taken effect")                                                                              \
    X(EXPIRY, "P3",                                                                                \
      "a lease expires after its time by the database's clock, and never within the "              \
      "grace")                                                                                     \
    X(COPY, "P5", "a copy decides on the connection that it was loaded on, and on no other")       \
    X(GOES_ON, "P8",                                                                               \
      "a saga that has not ended has a live lease, a due time, something to grant or "             \
      "a reason to be parked")                                                                     \
    X(TASK, "P2", "a task leaves after the commit of its lease, to the worker that it names")      \
    X(CREDIT, "P3", "a worker gets no more tasks than it gave credit for")                         \
    X(LEASE_TIME, "P3", "no worker is told of a longer lease than the database holds")             \
    X(ACK, "P2", "a report is acknowledged after it and what follows from it are durable")         \
    X(STALE, "P3", "the holder of a live lease is never told that it is stale")                    \
    X(START, "P1", "a start is acknowledged after its commit; a key starts one saga")              \
    X(CALL, "P2", "what a call was answered is so in the database")                                \
    X(ONCE, "P4", "an operation takes effect at most once")                                        \
    X(NET, "P5",                                                                                   \
      "SUCCEEDED: each step took effect; COMPENSATED: none that can be taken back is left")        \
    X(PROGRESS, "P8",                                                                              \
      "once the faults are over every saga ends or is parked, and every call is "                  \
      "answered")                                                                                  \
    X(ENGINE, "P8",                                                                                \
      "the engine finds no fault of its own, does not spin and keeps nothing that it "             \
      "no longer needs")

#define INVARIANT_ENUM(name, promise, text) INV_##name,
enum invariant { INVARIANTS(INVARIANT_ENUM) INVARIANT_COUNT };
#undef INVARIANT_ENUM

const char *invariant_name(enum invariant invariant);
const char *invariant_promise(enum invariant invariant);
const char *invariant_text(enum invariant invariant);

/* What was judged of a saga so far; the database keeps it beside the saga. */
enum { STEPS_MAX = 4 };
struct judged {
    size_t count;           /* entries seen */
    enum outcome *outcomes; /* as they were then */
    size_t capacity;
    enum saga_state state, phase;
    bool seen;
    bool turned_back;
    int unsettled[STEPS_MAX][2]; /* attempts that may have taken effect, by operation */
    bool done[STEPS_MAX][2];
    int64_t settle_from_ms[STEPS_MAX];
    int64_t lost_until_ms; /* a lost stream's worker may run until then */
    int64_t last_fence;
};

/* A transaction of `node` that began at now_ms (database time) and wrote this saga has committed.
 */
void invariants_commit(struct world *world, struct db_saga *saga, const struct request *request,
                       int64_t now_ms);
/* Somebody drives it, or will find it. */
void invariants_found(struct world *world, const struct db_saga *saga);
/* The engine's clock when it submitted: does it keep the grace? */
void invariants_submit(struct world *world, struct node *node, const struct request *request);
void invariants_task(struct world *world, struct node *node, const char *worker,
                     const struct engine_task *task);
/* outcome: what the acknowledged report said. */
void invariants_ack(struct world *world, struct node *node, const struct engine_lease_ack *ack,
                    enum outcome outcome);
void invariants_extended(struct world *world, struct node *node,
                         const struct engine_lease_extended *extended);
void invariants_start(struct world *world, const struct start_item *item);
/* reason: that this call gave, and no other. */
void invariants_verb(struct world *world, const struct engine_verb *verb, const char *reason,
                     int64_t invoked_ms);
/* After each turn of an engine. */
void invariants_turn(struct world *world, struct node *node);
/* Everything has come to rest. */
void invariants_end(struct world *world);

#endif
