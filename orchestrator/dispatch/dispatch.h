/* Who gets what: handlers with their ready queues, worker sessions with their credits, and the live
 * leases of each worker. Plain data structures: no I/O, no clock, no saga rules.
 *
 * A *worker* is one worker process ("worker_id/instance"); it outlives its streams. A *session* is
 * one stream of it. A *subscription* is a handler that a session serves, with its credit: the
 * absolute number of tasks that may ever be sent on that session.
 *
 * thread: the engine's. */
#ifndef DISPATCH_DISPATCH_H
#define DISPATCH_DISPATCH_H

#include "base/err.h"
#include "base/heap.h"

#include <stddef.h>
#include <stdint.h>

struct dispatch;
struct dispatch_handler;
struct dispatch_group;
struct dispatch_worker;
struct dispatch_session;

/* An operation that waits for a worker; embedded in the waiting saga's own object. */
struct dispatch_ready {
    struct heap_node node;
    struct dispatch_group *group; /* NULL: not waiting */
};

/* A live lease; embedded in the engine's lease object. */
struct dispatch_lease {
    struct dispatch_lease *prev, *next; /* of the same worker */
    struct dispatch_worker *worker;
    struct dispatch_handler *handler;
    bool listed; /* scratch of session_open: the Hello named it */
};

struct dispatch_subscription {
    struct dispatch_subscription *next_of_session;
    struct dispatch_subscription *prev, *next; /* ring of the handler */
    struct dispatch_session *session;
    struct dispatch_handler *handler;
    uint64_t total, sent;
    uint32_t max_in_flight;
};

struct dispatch_session {
    struct dispatch_worker *worker;
    struct dispatch_subscription *subscriptions;
    bool draining; /* wants no more tasks */
    bool blocked;  /* its send queue is full for now */
    bool silent;   /* let a lease run out and has said nothing since */
    uint64_t left; /* tasks that it may still be sent, whatever the credits */
    void *owner;   /* the engine's */
};

struct dispatch_worker {
    char *name;                       /* "worker_id/instance" */
    struct dispatch_session *session; /* NULL: not connected */
    struct dispatch_lease *leases;
    size_t lease_count;
    struct heap_node lost; /* when an ended stream counts as lost */
};

MUST_USE struct dispatch *dispatch_new(void); /* NULL: memory */
struct dispatch *dispatch_free(struct dispatch *dispatch);

/* --- handlers and the ready queue --- */
/* Finds or makes; NULL: memory. It lives until dispatch_forget_unused. */
struct dispatch_handler *dispatch_handler(struct dispatch *dispatch, const char *name);
/* Forgets the handlers that nobody serves, waits for or holds a lease of, so that names which
 * workers make up do not pile up. Cheap unless a session has ended since. Their names die: not
 * while one of them is borrowed. */
void dispatch_forget_unused(struct dispatch *dispatch);
/* Puts an operation into its handler's queue, in the order of since when they wait, and of those of
 * one moment in the order in which they came. Queues are fair between definitions: `fair` is any
 * pointer that is the same for one definition. 0, or -1: memory. */
MUST_USE int dispatch_ready_put(struct dispatch_handler *handler, const void *fair,
                                int64_t since_ms, struct dispatch_ready *ready);
void dispatch_ready_remove(struct dispatch_ready *ready); /* fine if it does not wait */
static inline bool dispatch_ready_waits(const struct dispatch_ready *ready)
{
    return ready->group != NULL;
}
struct dispatch_handler *dispatch_ready_handler(const struct dispatch_ready *ready); /* it waits */
const char *dispatch_handler_name(const struct dispatch_handler *handler);
/* Has it a session at all that would take tasks now or later? */
bool dispatch_handler_is_served(const struct dispatch_handler *handler);
/* Is there credit for it now, and does its gate let a task through? */
bool dispatch_handler_has_credit(const struct dispatch_handler *handler);
struct dispatch_served {
    const char **names; /* owned array that grows; the names live as long as their handlers */
    size_t capacity, count;
    int64_t credit; /* of all of them together */
};
/* The handlers that are served, whose gate is not shut, and for which fewer than ready_max
 * operations wait; one that is on trial if none does. 0, or -1: memory. */
MUST_USE int dispatch_served(const struct dispatch *dispatch, int64_t ready_max,
                             struct dispatch_served *served);
/* Calls fn for each operation that waits for it; fn must leave the queue as it is. */
void dispatch_ready_each(struct dispatch_handler *handler,
                         void (*fn)(void *ctx, struct dispatch_ready *ready), void *ctx);
/* How many operations wait for it. */
int64_t dispatch_handler_ready(const struct dispatch_handler *handler);
/* The next operation for which some session has credit, taken out of its queue; NULL: none. */
struct dispatch_ready *dispatch_ready_take(struct dispatch *dispatch);

/* --- gates: what a handler may be given, whatever credit there is --- */
struct dispatch_gate {
    bool held;          /* nothing, but what dispatch_gate_try allows */
    bool on_trial;      /* held, and trials may come */
    bool in_order;      /* nobody passes those who wait */
    int64_t rate_milli; /* thousandths of a task a second, of this node; 0: no limit */
    int64_t cap;        /* leases at a time, of this node; 0: no limit */
};
/* Until it is set again; all zero: it is open. mono_ms: now. */
void dispatch_gate_set(struct dispatch_handler *handler, const struct dispatch_gate *gate,
                       int64_t mono_ms);
const struct dispatch_gate *dispatch_gate(const struct dispatch_handler *handler);
/* Held: lets one task through. What was allowed before and not used is void. */
void dispatch_gate_try(struct dispatch_handler *handler);
/* Is there credit, were it not for its gate? */
bool dispatch_handler_could(const struct dispatch_handler *handler);
/* Nothing is reserved for tasks that are under way: they are leases by now, or have come to
 * nothing. What a rate allows until mono_ms is there, and gates are looked at again. */
void dispatch_gates_turn(struct dispatch *dispatch, int64_t mono_ms);
/* When a rate lets the next one through that waits; INT64_MAX: none is waited for. */
int64_t dispatch_gates_due_at(const struct dispatch *dispatch);

/* --- credits --- */
/* Takes one credit of a session that serves the handler, sessions in turn; NULL: none has one, or
 * the gate is shut. */
struct dispatch_subscription *dispatch_reserve(struct dispatch_handler *handler);
/* The task was certainly not sent: gives the credit back. */
void dispatch_unreserve(struct dispatch_subscription *subscription);
/* total only grows; false if the session does not serve that handler. */
MUST_USE bool dispatch_credit(struct dispatch *dispatch, struct dispatch_session *session,
                              const char *handler, uint64_t total);

/* --- sessions --- */
struct dispatch_subscribe {
    const char *handler;
    uint32_t max_in_flight;
};
/* Connects a worker. *ret_previous: its session before, now without a worker, which the caller must
 * end; NULL: none. */
MUST_USE int dispatch_session_open(struct dispatch *dispatch, const char *worker_name,
                                   const struct dispatch_subscribe *handlers, size_t count,
                                   void *owner, struct dispatch_session **ret,
                                   struct dispatch_session **ret_previous, struct err *err);
/* Ends a session. If its worker still holds leases and has no newer session, they count as lost at
 * lost_at (see dispatch_lost_take). */
void dispatch_session_close(struct dispatch *dispatch, struct dispatch_session *session,
                            int64_t lost_at);
/* How many tasks it may ever be sent, all handlers together. Before its first credit. */
void dispatch_session_bound(struct dispatch_session *session, uint64_t tasks_max);
/* Does it serve all that the other one does? */
bool dispatch_session_covers(const struct dispatch_session *session,
                             const struct dispatch_session *other);
void dispatch_session_block(struct dispatch_session *session, bool blocked);
/* A silent one is passed over: what it let run out must not be offered to it again while it may be
 * stopped or cut off. */
void dispatch_session_silent(struct dispatch_session *session, bool silent);
void dispatch_session_drain(struct dispatch_session *session);

/* --- leases --- */
MUST_USE int dispatch_lease_add(struct dispatch *dispatch, struct dispatch_lease *lease,
                                const char *worker_name, struct dispatch_handler *handler);
void dispatch_lease_remove(struct dispatch *dispatch, struct dispatch_lease *lease);
/* A worker whose stream ended and whose time is over: the caller deals with its leases. NULL: none
 * at now. */
struct dispatch_worker *dispatch_lost_take(struct dispatch *dispatch, int64_t mono_ms);
int64_t dispatch_lost_at(const struct dispatch *dispatch); /* INT64_MAX: never */

/* --- looking --- */
struct dispatch_handler_view {
    const char *name;
    int64_t workers, credit, ready, leased;
    int64_t oldest_ms; /* since when the first one waits, as it was put; 0: none does */
    bool served;
};
/* Calls fn for each handler (or the one named). */
void dispatch_handler_view(const struct dispatch_handler *handler,
                           struct dispatch_handler_view *ret);
void dispatch_view(const struct dispatch *dispatch, const char *only,
                   void (*fn)(void *ctx, const struct dispatch_handler_view *view), void *ctx);

#endif
