/* A task from its arrival until its report is acknowledged. Plain data of pool.c; what a handler
 * may see of it is in sagaworker.h.
 * thread: `message` and the outcome belong to the handler's thread while RUNNING; the lease fields
 * are guarded by pool->lock. */
#ifndef WORKER_TASK_H
#define WORKER_TASK_H

#include "base/clock.h"
#include "base/mem.h"
#include "sagaworker.h"

#include <pthread.h>
#include <saga/v1/worker.pb-c.h>
#include <sys/queue.h>

enum { TASK_UID_SIZE = 16 };

enum task_state {
    TASK_QUEUED,   /* received, no handler has seen it */
    TASK_RUNNING,  /* a handler runs */
    TASK_FINISHED, /* has an outcome that was not sent on this stream */
    TASK_REPORTED, /* sent, not acknowledged */
    TASK_RELEASED, /* to be given back: no handler saw it */
    TASK_STATE_COUNT
};

struct task_lease {
    int64_t confirmed_ms; /* when it was certainly granted or extended, by our monotonic clock */
    int64_t lease_ms;
    int64_t attempt_until_ms;
    int64_t extend_at_ms;   /* when to ask next */
    int64_t extend_sent_ms; /* the oldest question without an answer; 0: none */
    bool lost, cancelled;
};

struct task_outcome {
    Saga__V1__Outcome kind; /* UNSPECIFIED: not set */
    struct bytes output;    /* owned */
    bool ours;
    char *code, *message; /* owned; NULL: none */
    int64_t retry_after_ms;
};

struct saga_task {
    TAILQ_ENTRY(saga_task) place; /* in the list of its state */
    struct saga_task *bucket_next;
    enum task_state state;
    struct pool_handler *handler; /* borrowed from the pool */
    struct session *session;      /* the one that speaks for it */
    int64_t came_ms;              /* when it was received */
    Saga__V1__Task *message;      /* owned; NULL once the handler has returned */
    uint8_t uid[TASK_UID_SIZE];
    int64_t fence;
    int thread;
    bool kept, returned, ended; /* saga_task_keep; its handler; saga_task_end. `ended` and
                                 * `returned` are guarded by pool->lock */
    size_t output_bytes_max;
    struct task_lease lease;
    struct task_outcome outcome;
    const struct clock *clock; /* borrowed */
    pthread_mutex_t *lock;     /* borrowed: the pool's */
    const bool *draining;      /* borrowed: the pool's */
};

/* Takes *message over on success. 0, or -1 when memory is out. */
MUST_USE int task_new(Saga__V1__Task *message, struct saga_task **ret_task);
struct saga_task *task_free(struct saga_task *task); /* NULL is fine; always returns NULL */
/* When the handler has to have ended: 80 % of the confirmed lease, or the attempt's end. */
int64_t task_lease_end_ms(const struct task_lease *lease);
/* Forgets what was set. */
void task_outcome_clear(struct task_outcome *outcome);

#endif
