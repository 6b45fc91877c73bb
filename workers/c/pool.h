/* What the streams of a worker share: handlers and their slots, the tasks that the process holds,
 * reports without an ack, the wish to drain. Never does I/O, never starts a thread, reads no clock:
 * time comes from the caller.
 *
 * Slots. While a handler has had a free slot for POOL_SPARE_MS, every stream is offered all that
 * are free, so that whichever node has work can send it at once. When all are taken, each slot that
 * becomes free is offered to one stream, the one with the fewest unused offers, in turn: none
 * starves, and an idle one keeps none from the others. So several nodes may use their offers for
 * the same slot. Never more than max_in_flight of a handler run; what came beyond that waits for
 * POOL_SURPLUS_MS and is then given back, not started. With one stream none of this happens.
 *
 * thread: every call needs `lock` held. */
#ifndef WORKER_POOL_H
#define WORKER_POOL_H

#include "base/err.h"
#include "base/rng.h"
#include "task.h"

enum {
    POOL_BUCKETS = 4096, /* of the table of tasks */
    /* Tasks that were started and have no ack, at most: all of them must fit into a Hello, since
     * what that does not list is taken as never started. */
    POOL_STARTED_MAX = 10000,
    POOL_SPARE_MS = 100,
    POOL_SURPLUS_MS = 1000,
    POOL_LEASE_MARGIN = 80, /* percent of a lease after which its handler has to stop */
};

struct pool_handler {
    char *name; /* owned */
    int max_in_flight;
    saga_handler *run;
    void *ctx;
    uint64_t in_use;        /* tasks that take a slot: queued, running, not yet reported */
    uint64_t running;       /* of those */
    unsigned turn;          /* the stream that was offered a slot last */
    int64_t spare_since_ms; /* a slot has been free since; INT64_MAX: none is */
};

struct session;
TAILQ_HEAD(task_list, saga_task);

struct pool {
    pthread_mutex_t lock;
    struct clock clock;
    struct rng rng;
    char *worker_id;               /* owned */
    char instance[33];             /* random for each process start */
    struct pool_handler *handlers; /* SAGA_HANDLERS_MAX of them, so that they never move */
    size_t handler_count;
    struct saga_task *buckets[POOL_BUCKETS];
    size_t started;                               /* tasks that run or ran and have no ack */
    struct session *sessions[SAGA_ADDRESSES_MAX]; /* borrowed; each adds itself */
    unsigned session_count, take_next;

    bool draining;
    int64_t drain_ms, drain_until_ms;
    size_t output_bytes_max; /* of a task */
    struct saga_worker_stats stats;
};

MUST_USE int pool_init(struct pool *pool, const char *worker_id, int64_t drain_ms,
                       const struct clock *clock, uint64_t seed, struct err *err);
void pool_done(struct pool *pool); /* after its sessions */
MUST_USE int pool_handle(struct pool *pool, const char *name, int max_in_flight, saga_handler *run,
                         void *ctx, struct err *err);

/* For a handler's thread: the next task to run, NULL if there is none. */
struct saga_task *pool_take(struct pool *pool, int64_t now_ms);
/* Its handler returned. Without an outcome it is UNKNOWN. */
void pool_finish(struct pool *pool, struct saga_task *task, int64_t now_ms);

void pool_drain(struct pool *pool, int64_t now_ms);
/* Nothing runs, and every report is acknowledged or was waited for long enough. */
bool pool_is_drained(const struct pool *pool, int64_t now_ms);

/* For sessions. A task is in the list of its state at its session, and in the pool's table. */
struct pool_handler *pool_handler_find(struct pool *pool, const char *name);
struct saga_task *pool_find(struct pool *pool, const uint8_t *uid, int64_t fence);
void pool_add(struct pool *pool, struct saga_task *task, struct session *session,
              enum task_state state);
void pool_move(struct saga_task *task, struct session *session, enum task_state state);
void pool_forget(struct saga_task *task);
/* How many tasks of this handler the session may be offered beyond what it was. */
uint64_t pool_offer(struct pool *pool, struct session *session, struct pool_handler *handler,
                    int64_t now_ms);
/* The one that does for another that has no stream; NULL: none has. */
struct session *pool_deputy(struct pool *pool, const struct session *session);

#endif
