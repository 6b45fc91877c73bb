/* One stream of a worker to one address: what was said on it, what to say next, and what a message
 * of the server means. A task belongs to the session that speaks for it: the one that it came on,
 * or another one once that has lost its stream. Never does I/O, never starts a thread, reads no
 * clock: time comes from the caller.
 *
 * Tasks of a stream that died and that no handler has seen are never started. They are missing in
 * the next Hello to that address, which tells the server; if the worker has other streams they are
 * also given back on one of those, for the node that takes over.
 *
 * thread: every call needs the pool's `lock` held. */
#ifndef WORKER_SESSION_H
#define WORKER_SESSION_H

#include "pool.h"

enum {
    SESSION_UNACKED_MAX = 4096,        /* no new credit beyond it */
    SESSION_REPORTS = 512,             /* in one Report */
    SESSION_REPORT_BYTES = 3 << 20,    /* of outputs in one Report */
    SESSION_LEASES = POOL_STARTED_MAX, /* in one Hello, Extend or Release */
    SESSION_IDLE_MS = 10000,           /* Credit is repeated when nothing else was sent */
    SESSION_SILENCE_MS = 35000,        /* without anything from the server the stream is dead */
    SESSION_WELCOME_MS = 10000,        /* the same before Welcome */
    SESSION_BACKOFF_MIN_MS = 100,
    SESSION_BACKOFF_MAX_MS = 2000, /* the shortest lease, 5 s, is not to run out by it */
    SESSION_STEADY_MS = 5000,      /* a stream that lived so long ends a row of failures */
    SESSION_EXTEND_MIN_MS = 500,   /* not more often, however short what is left of a lease */
    SESSION_LINGER_MS = 250,       /* drained, but a task may be on its way to us */
};

struct session_credit { /* of a handler, on this stream: totals that only grow */
    uint64_t received;  /* tasks */
    uint64_t offered;   /* that the pool lets it have */
    uint64_t granted;   /* that were announced */
};

enum session_phase {
    SESSION_OFFLINE,
    SESSION_OPENING, /* Hello is to be sent, or Welcome has not come */
    SESSION_ONLINE,
};

struct session {
    struct pool *pool; /* borrowed */
    unsigned number;   /* in the pool */
    struct session_credit credits[SAGA_HANDLERS_MAX];
    struct task_list lists[TASK_STATE_COUNT];
    size_t counts[TASK_STATE_COUNT];

    enum session_phase phase;
    bool hello_sent, credit_due, drain_sent;
    bool server_drains; /* it asked us to go elsewhere */
    bool nudged;        /* it got something to say from outside; whoever wakes it resets this */
    int64_t opened_ms, welcomed_ms, heard_ms, sent_ms, drain_sent_ms, server_drain_until_ms;
    int64_t extend_check_ms; /* no lease needs extending before */
    int64_t share_check_ms;  /* slots and surplus are not looked at before */
    unsigned failures;       /* in a row */
    int64_t reconnect_ms;    /* OFFLINE: when to try again */
};

/* Adds itself to the pool, which has room for SAGA_ADDRESSES_MAX. Before the first stream of any.
 */
void session_init(struct session *session, struct pool *pool);
void session_done(struct session *session);

/* A stream was opened: Hello is next. */
void session_opened(struct session *session, int64_t now_ms);
/* It ended, or could not be opened: says in reconnect_ms when to try again. */
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
 * a drain and surplus tasks are not in it: ask pool_is_drained, session_is_over and session_next
 * now and then. */
int64_t session_wake_ms(const struct session *session);
/* Should this stream be ended: silent for too long, or the server goes away and nothing holds us?
 */
bool session_is_over(const struct session *session, int64_t now_ms);
/* OFFLINE: is a new stream of any use? Not for a drain that another one can carry out. */
bool session_is_wanted(const struct session *session);

/* For the pool: what no handler has seen is to be given back. */
void session_release_queue(struct session *session);

#endif
