/* What a worker knows: its handlers and credits, the tasks that it holds, reports without an ack,
 * and the clock of each lease. Decides what to send next and what a message of the server means.
 * Never does I/O, never starts a thread, reads no clock: time comes from the caller.
 *
 * Tasks of a stream that died and that no handler has seen are dropped, and not listed in the next
 * Hello: that tells the server that they certainly never started.
 *
 * thread: every call needs `lock` held. */
#ifndef WORKER_SESSION_H
#define WORKER_SESSION_H

#include "base/err.h"
#include "base/rng.h"
#include "task.h"

enum {
    SESSION_BUCKETS = 4096,         /* of the table of tasks */
    SESSION_UNACKED_MAX = 4096,     /* no new credit beyond it */
    SESSION_REPORTS = 512,          /* in one Report */
    SESSION_REPORT_BYTES = 3 << 20, /* of outputs in one Report */
    SESSION_LEASES = 10000,         /* in one Hello, Extend or Release */
    SESSION_LEASE_MARGIN = 80,      /* percent of a lease after which its handler has to stop */
    SESSION_IDLE_MS = 10000,        /* Credit is repeated when nothing else was sent */
    SESSION_SILENCE_MS = 35000,     /* without anything from the server the stream is dead */
    SESSION_WELCOME_MS = 10000,     /* the same before Welcome */
    SESSION_BACKOFF_MIN_MS = 100,
    SESSION_BACKOFF_MAX_MS = 5000,
    SESSION_STEADY_MS = 5000,    /* a stream that lived so long ends a row of failures */
    SESSION_EXTEND_MIN_MS = 500, /* not more often, however short what is left of a lease */
    SESSION_LINGER_MS = 250,     /* drained, but a task may be on its way to us */
};

struct session_handler {
    char *name; /* owned */
    int max_in_flight;
    saga_handler *run;
    void *ctx;
    uint64_t
        in_use; /* tasks of it that take a slot: queued, running, not yet reported or given back */
    uint64_t received; /* on this stream */
    uint64_t granted;  /* the highest total announced on this stream */
};

TAILQ_HEAD(task_list, saga_task);

enum session_phase {
    SESSION_OFFLINE,
    SESSION_OPENING, /* Hello is to be sent, or Welcome has not come */
    SESSION_ONLINE,
};

struct session {
    pthread_mutex_t lock;
    struct clock clock;
    struct rng rng;
    char *worker_id;                  /* owned */
    char instance[33];                /* random for each process start */
    struct session_handler *handlers; /* SAGA_HANDLERS_MAX of them, so that they never move */
    size_t handler_count;

    struct saga_task *buckets[SESSION_BUCKETS];
    struct task_list lists[TASK_STATE_COUNT];
    size_t counts[TASK_STATE_COUNT];

    enum session_phase phase;
    bool hello_sent, credit_due, drain_sent;
    bool server_drains; /* it asked us to go elsewhere */
    int64_t opened_ms, welcomed_ms, heard_ms, sent_ms, drain_sent_ms, server_drain_until_ms;
    int64_t extend_check_ms; /* no lease needs extending before */
    unsigned failures;       /* in a row */
    unsigned address_count;  /* at least 1; set before the first stream */
    int64_t reconnect_ms;    /* OFFLINE: when to try again */

    bool draining;
    int64_t drain_ms, drain_until_ms;
    struct saga_worker_stats stats;
};

MUST_USE int session_init(struct session *session, const char *worker_id, int64_t drain_ms,
                          const struct clock *clock, uint64_t seed, struct err *err);
void session_done(struct session *session);
MUST_USE int session_handle(struct session *session, const char *name, int max_in_flight,
                            saga_handler *run, void *ctx, struct err *err);

/* A stream was opened: Hello is next. */
void session_opened(struct session *session, int64_t now_ms);
/* It ended, or could not be opened: says in reconnect_ms when to try the next address. */
void session_lost(struct session *session, int64_t now_ms);
/* The next message to send, packed; size 0: none now. Owned by the caller, and taken as sent. An
 * error means memory is out: end the stream. */
MUST_USE int session_next(struct session *session, int64_t now_ms, struct bytes *ret_message,
                          struct err *err);
/* A message came in at or after `since_ms`. An error (garbage, more tasks than credit) means that
 * the stream is not to be trusted: end it. */
MUST_USE int session_receive(struct session *session, const void *data, size_t size,
                             int64_t since_ms, int64_t now_ms, struct err *err);
/* When session_next has something to say although nothing happened, or the stream is over. Ends of
 * a drain are not in it: ask session_is_drained and session_is_over now and then. */
int64_t session_wake_ms(const struct session *session);
/* Should this stream be ended: silent for too long, or the server goes away and nothing holds us?
 */
bool session_is_over(const struct session *session, int64_t now_ms);

/* For a handler's thread: the next task to run, NULL if there is none. */
struct saga_task *session_take(struct session *session, int64_t now_ms);
/* Its handler returned. Without an outcome it is UNKNOWN. */
void session_finish(struct session *session, struct saga_task *task, int64_t now_ms);

void session_drain(struct session *session, int64_t now_ms);
/* Nothing runs, and every report is acknowledged or was waited for long enough. */
bool session_is_drained(const struct session *session, int64_t now_ms);

/* For session_send.c: the task goes to the list of another state, or away. */
void session_move(struct session *session, struct saga_task *task, enum task_state state);
void session_forget(struct session *session, struct saga_task *task);

#endif
