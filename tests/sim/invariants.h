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
    X(TERMINAL, "P6", "nothing follows the end but what a person found out about it")              \
    X(GRAPH, "P6", "states move along the printed graph")                                          \
    X(REPLAY, "P8", "the core can load what is stored, and finds it sound")                        \
    X(ONE_LEASE, "P3", "at most one lease of a step is open")                                      \
    X(FENCE, "P3", "fences rise")                                                                  \
    X(TRIES, "P6", "tries are contiguous")                                                         \
    X(FORWARD, "P5", "an action is granted in its turn, and never after the saga turned back")     \
    X(REFUSAL, "P5", "a refusal and the turn back that follows are one commit")                    \
    X(BACKWARD, "P5",                                                                              \
      "a compensation is granted in reverse order, for what may have taken effect, "               \
      "and not beside a live forward lease")                                                       \
    X(PIVOT, "P5",                                                                                 \
      "nothing turns back while the pivot is under way, nor once it is done, and a cancel that "   \
      "waited for it turns back before anything is repeated")                                      \
    X(PARKED, "P6", "a parked saga, a suspended one too, is granted nothing")                      \
    X(POLICY, "P5", "a saga goes on without a step, and parks, as its definition says")            \
    X(DEADLINE, "P5",                                                                              \
      "a deadline passes no earlier than it says, and later by the time for which the saga "       \
      "was suspended")                                                                             \
    X(SETTLE, "P5",                                                                                \
      "a compensation, a repeat after NOT_DONE, and a NOT_DONE that counts come after "            \
      "whatever may still be on its way")                                                          \
    X(REPEAT, "P4",                                                                                \
      "what may not be repeated is not granted again while an attempt of it may have "             \
      "taken effect")                                                                              \
    X(WINDOW, "P4", "an attempt ends so early that nothing of it lands when its key is forgotten") \
    X(PROBE, "P4", "a probe is asked about an unknown outcome that the saga stands at")            \
    X(TRUTH, "P4", "what a probe or a person settled is so in the participant's books, for good")  \
    X(KEY, "P4", "attempts have one key, until NOT_DONE makes a fresh one where that is declared") \
    X(DOUBT, "P5",                                                                                 \
      "what was accepted, skipped or contradicted is in doubt until somebody found out")           \
    X(EXPIRY, "P3",                                                                                \
      "a lease expires after its time by the database's clock, and never within the "              \
      "grace; with its stream only one that may be repeated")                                      \
    X(COPY, "P5", "a copy decides on the connection that it was loaded on, and on no other")       \
    X(GOES_ON, "P8",                                                                               \
      "a saga that has not ended has a live lease, a due time, something to grant or "             \
      "a reason to be parked")                                                                     \
    X(SUSPECT, "P4",                                                                               \
      "a saga takes over with its first entry, or not at all, and every start of its key says so") \
    X(TURN, "P8", "what has its turn can be granted, also beside others")                          \
    X(HELD, "P8", "a node grants nothing of a handler that it knows to be held, but trials")       \
    X(TASK, "P2", "a task leaves after the commit of its lease, to the worker that it names")      \
    X(CREDIT, "P3", "a worker gets no more tasks than it gave credit for, none behind its answer") \
    X(LEASE_TIME, "P3", "no worker is told of a longer lease than the database holds")             \
    X(ACK, "P2", "a report is acknowledged after it and what follows from it are durable")         \
    X(STALE, "P3", "the holder of a live lease is never told that it is stale")                    \
    X(START, "P1", "a start is acknowledged after its commit; a key starts one saga")              \
    X(CALL, "P2", "what a call was answered is so in the database")                                \
    X(ONCE, "P4", "an operation takes effect at most once")                                        \
    X(NET, "P5",                                                                                   \
      "SUCCEEDED: each step took effect; COMPENSATED: none that can be taken back is "             \
      "left; but for what was left out, accepted or skipped")                                      \
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
enum { STEPS_MAX = 12, KEYS_SEEN_MAX = 4 };
struct judged_operation { /* an action or a compensation */
    int unsettled;        /* attempts that may have taken effect */
    bool done;
    bool tried;                      /* a lease was granted */
    bool not_done;                   /* the last that was found out: it had not happened */
    bool probing;                    /* IDEMPOTENT, and not to be repeated any more */
    bool asked;                      /* a probe's lease has ended since it became unknown */
    bool too_early;                  /* and said NOT_DONE before that counts */
    bool doubt;                      /* somebody has yet to look */
    int64_t not_done_seq;            /* the entry that said NOT_DONE last */
    int64_t settle_from_ms;          /* when the last attempt that may have taken effect ended */
    int64_t window_from_ms;          /* first lease since nothing was unsettled */
    const char *keys[KEYS_SEEN_MAX]; /* by generation */
};
struct judged {
    size_t count;           /* entries seen */
    enum outcome *outcomes; /* as they were then */
    size_t capacity;
    enum saga_state state, phase;
    bool seen;
    bool suspect; /* it took over */
    bool turned_back;
    bool cancel_pending; /* until the pivot is settled */
    struct judged_operation of[STEPS_MAX][2];
    bool passed[STEPS_MAX];  /* it went on without it */
    bool skipped[STEPS_MAX]; /* its compensation */
    bool late_doubt;         /* a report after the end told of an effect */
    int64_t lost_until_ms;   /* a lost stream's worker may run until then */
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
