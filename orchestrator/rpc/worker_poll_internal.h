/* What the two files about polling share: worker_poll.c has the links, worker_poll_session.c the
 * instances. Everything here is under the server's polls_lock, unless said otherwise. */
#ifndef RPC_WORKER_POLL_INTERNAL_H
#define RPC_WORKER_POLL_INTERNAL_H

#include "base/hash.h"
#include "rpc/worker_decode.h"
#include "rpc/worker_poll.h"

/* One task of an answer. Compared as bytes: no padding. */
struct given {
    struct uuid uid;
    int64_t fence;
};
_Static_assert(sizeof(struct given) == 24, "no padding");

struct given_list {
    struct given *items; /* owned */
    size_t count, capacity;
};

/* One LeaseTasks, as the engine sees it: a link. Its events are there before they are needed. Freed
 * with the last reference: whoever makes it has one, its session until the link is told GONE, each
 * event at the engine. */
struct poll {
    struct worker_link link;
    struct rpc_server *server;
    int refs;                     /* under the lock, as what follows */
    struct poll_session *session; /* NULL: a newer one is in its place, or the instance has gone */
    struct call *call;            /* NULL: answered */
    int64_t until_ms;
    bool paused, drained, wants_room, room_posted, gone;
    struct call *asked; /* its memory has what HELLO and CREDIT say; each holds it */
    struct worker_lease_ask ask;
    struct engine_worker_event pause, room, drain, over;
    /* what it is given, until it is answered; the engine's thread alone */
    struct send_list parts;
    size_t bytes;
    struct given_list given;
    struct poll *next_dead; /* while several are ended */
};

struct poll_session {
    char *name; /* "worker_id/instance", hash key */
    UT_hash_handle hh;
    struct poll *poll; /* the last one */
    int64_t heard_ms;
    struct given_list given; /* of the last answer and not confirmed, sorted */
    int64_t confirm_until_ms;
    struct given_list hints;
};

static inline void polls_lock(struct rpc_server *server)
{
    pthread_mutex_lock(&server->polls_lock);
}

static inline void polls_unlock(struct rpc_server *server)
{
    pthread_mutex_unlock(&server->polls_lock);
}

/* --- worker_poll.c */
/* Not under the lock. */
void poll_free(struct poll *poll);
/* An event that the poll itself has. False: the engine has stopped. */
bool poll_post(struct poll *poll, struct engine_worker_event *event);
/* No more tasks into its answer; that one leaves when the engine has handed over what is granted to
 * it. If the engine has stopped, the server's end answers. */
void poll_pause(struct poll *poll);
/* Its client waits for an answer, as far as is known. */
bool poll_is_waiting(const struct poll *poll);
/* The last event of the link, which leaves its session. True: poll_free it, afterwards. */
bool poll_end_link(struct poll *poll);
/* RELEASE: they never left. UNCONFIRMED: they may not have arrived. False: memory, or the engine
 * has stopped. */
bool poll_tell_leases(struct poll *poll, enum worker_event_kind kind, const struct given *items,
                      size_t count);

/* --- worker_poll_session.c */
/* Finds the session of the instance that says this, or makes it. */
int poll_session_get(struct rpc_server *server, const struct engine_worker_event *said,
                     struct poll_session **ret, struct err *err);
/* Leaves its poll to the caller. */
void poll_session_free(struct rpc_server *server, struct poll_session *session);
/* 0, or -1: memory. Of any list. */
int given_add(struct given_list *list, const struct uuid *uid, int64_t fence);
/* An answer with these leaves now: they are to be heard of. Consumed. */
void poll_session_answered(struct poll_session *session, struct given_list *given);
/* What it is to be told, once: mem_free(items). NULL is fine. */
struct given_list poll_session_take_hints(struct poll_session *session);
/* The end of a reply to LeaseTasks, or to ExtendLeases. Not under the lock. */
void poll_reply_end(struct send_list *list, const struct rpc_server *server,
                    const struct given_list *hints);

#endif
