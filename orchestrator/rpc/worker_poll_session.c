#include "rpc/worker_poll_internal.h"

#include "base/mem.h"
#include "rpc/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONFIRM_MS_MAX = 10 * 1000, /* for an answer to be heard of */
    SILENCE_MS_MAX = 45 * 1000, /* as of a stream */
    NAME_SIZE = LIMIT_WORKER_BYTES + LIMIT_INSTANCE_BYTES + 2,
};

/* --- sessions (under the lock) ------------------------------------------------------------------
 */

static struct poll_session *session_find(struct rpc_server *server,
                                         const struct engine_worker_event *said)
{
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s/%s", said->worker_id, said->instance);
    struct poll_session *session = NULL;
    HASH_FIND_STR(server->poll_sessions, name, session);
    return session;
}

static struct poll_session *session_new(struct rpc_server *server,
                                        const struct engine_worker_event *said)
{
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s/%s", said->worker_id, said->instance);
    struct poll_session *session = mem_calloc(1, sizeof *session);
    if (session && (session->name = mem_strdup(name)))
        HASH_ADD_KEYPTR(hh, server->poll_sessions, session->name, strlen(session->name), session);
    if (session && hash_holds(&session->hh))
        return session;
    if (session)
        mem_free(session->name);
    mem_free(session);
    return NULL;
}

void poll_session_free(struct rpc_server *server, struct poll_session *session)
{
    HASH_DEL(server->poll_sessions, session);
    atomic_fetch_sub(&server->polls, 1);
    mem_free(session->given.items);
    mem_free(session->hints.items);
    mem_free(session->name);
    mem_free(session);
}

int poll_session_get(struct rpc_server *server, const struct engine_worker_event *said,
                     struct poll_session **ret, struct err *err)
{
    *ret = session_find(server, said);
    if (*ret)
        return 0;
    if (!rpc_server_admit(&server->polls, &server->streams, server->streams_max)) {
        (void)err_reason(err, ERR_LIMIT, "TOO_MANY_WORKERS",
                         "more than %zu workers, by streams and polling", server->streams_max);
        err->retryable = true;
        return (int)err->code;
    }
    *ret = session_new(server, said);
    if (*ret)
        return 0;
    atomic_fetch_sub(&server->polls, 1);
    return err_set(err, ERR_NOMEM, "out of memory");
}

static int given_compare(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(struct given));
}

int given_add(struct given_list *list, const struct uuid *uid, int64_t fence)
{
    if (mem_grow((void **)&list->items, &list->capacity, list->count, sizeof *list->items))
        return -1;
    list->items[list->count++] = (struct given){ *uid, fence };
    return 0;
}

static void given_confirm(struct given_list *list, const struct uuid *uid, int64_t fence)
{
    struct given key = { *uid, fence };
    struct given *found =
        list->count ? bsearch(&key, list->items, list->count, sizeof key, given_compare) : NULL;
    if (!found)
        return;
    size_t behind = list->count - (size_t)(found - list->items) - 1;
    memmove(found, found + 1, behind * sizeof key);
    list->count--;
}

void poll_session_answered(struct poll_session *session, struct given_list *given)
{
    session->heard_ms = rpc_now_ms(); /* its connection was there */
    session->confirm_until_ms = session->heard_ms + CONFIRM_MS_MAX;
    mem_free(session->given.items);
    session->given = *given;
    *given = (struct given_list){ 0 };
    if (session->given.count)
        qsort(session->given.items, session->given.count, sizeof(struct given), given_compare);
}

void worker_poll_heard(struct rpc_server *server, const struct engine_worker_event *said)
{
    polls_lock(server);
    struct poll_session *session = session_find(server, said);
    if (session) {
        session->heard_ms = rpc_now_ms();
        for (size_t i = 0; i < said->lease_count; i++)
            given_confirm(&session->given, &said->leases[i].uid, said->leases[i].fence);
        for (size_t i = 0; i < said->report_count; i++)
            given_confirm(&session->given, &said->reports[i].uid, said->reports[i].report.fence);
    }
    polls_unlock(server);
}

void worker_poll_ends(struct rpc_server *server, const struct engine_worker_event *said)
{
    polls_lock(server);
    struct poll_session *session = session_find(server, said);
    if (session && !session->poll->drained) {
        session->poll->drained = poll_post(session->poll, &session->poll->drain);
        poll_pause(session->poll);
    }
    polls_unlock(server);
}

/* --- cancel hints -------------------------------------------------------------------------------
 */

/* The fields are where LeaseTasksResponse has them; ExtendLeasesResponse has them there, too. */
void poll_reply_end(struct send_list *list, const struct rpc_server *server,
                    const struct given_list *hints)
{
    struct arena arena = { 0 };
    Saga__V1__ExtendLeasesResponse part = SAGA__V1__EXTEND_LEASES_RESPONSE__INIT;
    part.draining = atomic_load(&server->draining);
    size_t count = hints ? hints->count : 0;
    part.cancel_hints = arena_array(&arena, count + 1, sizeof(ProtobufCMessage *));
    for (size_t i = 0; part.cancel_hints && i < count; i++) {
        Saga__V1__CancelHint *hint = reply_new(&arena, &saga__v1__cancel_hint__descriptor);
        if (!hint)
            break;
        hint->saga_uid =
            (ProtobufCBinaryData){ sizeof hints->items[i].uid.bytes, hints->items[i].uid.bytes };
        hint->fence = hints->items[i].fence;
        part.cancel_hints[part.n_cancel_hints++] = hint;
    }
    send_list_add(list, &part.base); /* short of memory: hints are no more than that */
    arena_done(&arena);
}

struct given_list poll_session_take_hints(struct poll_session *session)
{
    struct given_list hints = { 0 };
    if (session) {
        hints = session->hints;
        session->hints = (struct given_list){ 0 };
    }
    return hints;
}

void worker_poll_hints(struct rpc_server *server, const struct engine_worker_event *said,
                       struct send_list *list)
{
    polls_lock(server);
    struct given_list hints = poll_session_take_hints(session_find(server, said));
    polls_unlock(server);
    poll_reply_end(list, server, &hints);
    mem_free(hints.items);
}

/* --- by time ------------------------------------------------------------------------------------
 */

static bool has_ended(struct poll_session *session, int64_t now_ms)
{
    struct poll *poll = session->poll;
    struct rpc_server *server = poll->server;
    if (poll_is_waiting(poll))
        session->heard_ms = now_ms;
    if (poll->call) {
        bool is_over = !poll_is_waiting(poll) || now_ms >= poll->until_ms;
        if (is_over || atomic_load(&server->draining)) {
            poll_pause(poll);
        } else if (poll->wants_room && !poll->room_posted && !poll->paused &&
                   atomic_load(&server->send_bytes) < (long long)server->send_bytes_max / 2) {
            poll->wants_room = false;
            poll->room_posted = poll_post(poll, &poll->room);
        }
    } else if (session->given.count && now_ms >= session->confirm_until_ms &&
               poll_tell_leases(poll, WORKER_UNCONFIRMED, session->given.items,
                                session->given.count)) {
        session->given.count = 0;
    }
    return now_ms - session->heard_ms > SILENCE_MS_MAX;
}

/* `all`: whatever they do. */
static void look_at_sessions(struct rpc_server *server, int64_t now_ms, bool all)
{
    struct poll *dead = NULL;
    struct poll_session *session, *next;
    polls_lock(server);
    HASH_ITER(hh, server->poll_sessions, session, next)
    {
        struct poll *poll = session->poll;
        if (!all && !has_ended(session, now_ms))
            continue;
        poll_session_free(server, session);
        if (poll_end_link(poll)) {
            poll->next_dead = dead;
            dead = poll;
        }
    }
    polls_unlock(server);
    while (dead) {
        struct poll *poll = dead;
        dead = poll->next_dead;
        poll_free(poll);
    }
}

void worker_polls_tick(struct rpc_server *server, int64_t now_ms)
{
    look_at_sessions(server, now_ms, false);
}

void worker_polls_end(struct rpc_server *server)
{
    look_at_sessions(server, 0, true);
}
