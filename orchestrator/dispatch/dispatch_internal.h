/* Shared by the files of this folder. */
#ifndef DISPATCH_INTERNAL_H
#define DISPATCH_INTERNAL_H

#include "base/hash.h"
#include "dispatch/dispatch.h"

struct dispatch_group { /* what one definition has waiting at one handler */
    const void *fair;   /* hash key */
    UT_hash_handle hh;
    struct dispatch_handler *handler;
    struct dispatch_group *prev, *next; /* ring of groups that are not empty */
    struct heap waiting;                /* empty: it is not in the handler's ring */
};

struct dispatch_handler {
    char *name; /* hash key */
    UT_hash_handle hh;
    struct dispatch *dispatch;
    struct dispatch_group *groups;               /* hash */
    struct dispatch_group *turn;                 /* ring of non-empty groups; whose turn it is */
    struct dispatch_subscription *subscriptions; /* ring; whose turn it is */
    int64_t ready, leased;
    struct dispatch_gate gate;
    struct dispatch_handler *prev_gated, *next_gated; /* those whose gate is not open */
    bool gated;
    int64_t under_way;          /* reserved, and not a lease yet */
    int64_t tokens;             /* millionths of a task */
    int64_t filled_at;          /* monotonic */
    int32_t trials, trials_out; /* allowed; and reserved of those */
    /* On the active list: something waits and there may be credit. */
    struct dispatch_handler *prev_active, *next_active;
    bool active;
};

struct worker_entry {
    struct dispatch_worker worker;
    UT_hash_handle hh;
};

struct dispatch {
    struct dispatch_handler *handlers; /* hash */
    struct dispatch_handler *active;   /* ring */
    struct dispatch_handler *gated;    /* ring */
    int64_t puts;                      /* so far */
    bool unserved;                     /* some handler may have lost its last session */
    struct worker_entry *workers;      /* hash by name */
    struct heap lost;
};

static inline bool session_takes_tasks(const struct dispatch_session *session)
{
    return !session->draining && !session->blocked && !session->silent && session->left > 0;
}

/* gate.c: does the gate let one more through? What is taken is given back if the task never left.
 */
bool gate_is_open(const struct dispatch_handler *handler);
void gate_take(struct dispatch_handler *handler);
void gate_give_back(struct dispatch_handler *handler);
void gate_forget(struct dispatch_handler *handler);

/* Something waits there and credit may have come: look at it again. */
void handler_activate(struct dispatch_handler *handler);
void handler_deactivate(struct dispatch_handler *handler);
void handler_free(struct dispatch_handler *handler);

#endif
