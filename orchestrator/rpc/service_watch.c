/* WatchSaga. What is told is a look at the database, as GetSaga's; when to look again is found out
 * by asking, four times a second and for all watchers at once, whether their sagas have changed. So
 * it does not matter which node drives them, nothing can be missed for good, and the engine knows
 * nothing of it. One message at a time is on its way to a watcher: while it does not read, changes
 * come together.
 *
 * A watch is as old as its call; in the server's list until that is closed. One look at a time:
 * what it finds out is the look's while `is_looking` is set, and under the server's lock otherwise.
 */
#include "rpc/request.h"
#include "rpc/saga_look.h"
#include "rpc/sender.h"

#include "base/mem.h"
#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    VERSIONS_MS = 250,       /* between two questions for changes, */
    VERSIONS_SHARE = 20,     /* and so many times as long as one took */
    LOOKS_MAX = 64,          /* put before the reader at once: others wait there, too */
    AWAY_MS_MAX = 30 * 1000, /* how long the database may be away */
    MARK_BYTES = 8,
};

/* What a resume token says: which saga, and a digest of what was told last. */
struct watch_place {
    struct uuid uid;
    uint8_t mark[MARK_BYTES];
};

struct saga_watch {
    struct sender sender;
    struct call *call;
    struct saga_watch *prev, *next;
    bool is_listed; /* its pump's thread sets it */
    int64_t begun_ms;
    bool has_asked, is_looking, is_due;
    /* since the request */
    struct store_ref ref;
    struct saga_look look;
    struct arena arena; /* of one look */
    bool is_resumed;    /* and the saga of `place` was not looked at yet */
    bool is_pinned;     /* `place` says which saga */
    bool has_told;      /* `place` says what; here or, resumed, elsewhere */
    struct watch_place place;
    struct store_version version;
    int64_t seen_ms, told_ms; /* monotonic; 0: never */
    int64_t changes_at_ms; /* wall clock: by then time alone changes it; INT64_MAX: it does not */
};

/* --- one look --------------------------------------------------------------------------------- */

static struct store_version version_of(const struct saga *saga)
{
    struct store_version version = { .present = true, .state = saga_row(saga)->state };
    for (int64_t seq = 1; seq <= saga_last_seq(saga); seq++) {
        version.entries++;
        version.ended += saga_entry(saga, seq)->outcome != OUTCOME_NONE;
    }
    return version;
}

static bool is_same_version(const struct store_version *left, const struct store_version *right)
{
    return left->present == right->present && left->state == right->state &&
           left->entries == right->entries && left->ended == right->ended;
}

static void earlier(int64_t now_ms, const Google__Protobuf__Timestamp *time, int64_t *at_ms)
{
    int64_t ms = time ? time->seconds * 1000 + time->nanos / 1000000 + 1 : 0;
    if (ms > now_ms && ms < *at_ms)
        *at_ms = ms;
}

/* When the end of a back-off, a delay or a settle time changes what is shown. */
static int64_t changes_at(const Saga__V1__Saga *message)
{
    int64_t now_ms = clock_wall_ms(&clock_system), at_ms = INT64_MAX;
    for (size_t i = 0; i < message->n_steps; i++)
        earlier(now_ms, message->steps[i]->next_time, &at_ms);
    if (message->waiting)
        earlier(now_ms, message->waiting->until_time, &at_ms);
    return at_ms;
}

static int mark_packed(const ProtobufCMessage *message, uint8_t ret[MARK_BYTES])
{
    size_t size = protobuf_c_message_get_packed_size(message);
    CLEANUP(mem_free_p) uint8_t *packed = mem_calloc(1, size + 1);
    uint8_t digest[32];
    if (!packed)
        return -1;
    struct sha256_part part = { packed, protobuf_c_message_pack(message, packed) };
    if (sha256(&part, 1, digest))
        return -1;
    memcpy(ret, digest, MARK_BYTES);
    return 0;
}

/* A digest of all that is a change when it changes: not of when leases end, nor of who is
 * connected. */
static int mark_of(struct arena *arena, Saga__V1__Saga *message, uint8_t ret[MARK_BYTES])
{
    Google__Protobuf__Timestamp **ends =
        arena_array(arena, message->n_steps + 1, sizeof(ProtobufCMessage *));
    if (!ends)
        return -1;
    for (size_t i = 0; i < message->n_steps; i++)
        ends[i] = TAKE(message->steps[i]->lease_until_time);
    Saga__V1__Waiting *waiting = message->waiting, shown;
    if (waiting) {
        shown = *waiting;
        shown.workers_connected = 0;
        shown.n_served_by = 0;
        if (shown.kind == SAGA__V1__WAIT_KIND__WAIT_KIND_REPORT)
            shown.until_time = NULL;
        message->waiting = &shown;
    }
    int rc = mark_packed(&message->base, ret);
    message->waiting = waiting;
    for (size_t i = 0; i < message->n_steps; i++)
        message->steps[i]->lease_until_time = ends[i];
    return rc;
}

/* Whoever does not read holds his message in memory: such messages are bounded together. */
static bool has_room(struct rpc_server *server, size_t size)
{
    return size <= RPC_SMALL_ANSWER_BYTES ||
           atomic_load(&server->watch_bytes) + (long long)size <= RPC_WATCH_BYTES_MAX;
}

static int send_state(struct saga_watch *watch, Saga__V1__Saga *message, bool unchanged,
                      struct err *err)
{
    static const struct page_filter none;
    Saga__V1__WatchSagaResponse reply = SAGA__V1__WATCH_SAGA_RESPONSE__INIT;
    reply.saga = message;
    reply.unchanged = unchanged;
    reply.resume_token =
        page_token_make(&watch->arena, PAGE_WATCH, &none, &watch->place, sizeof watch->place);
    size_t size = reply.resume_token ? protobuf_c_message_get_packed_size(&reply.base) : 0;
    if (!size)
        return err_set(err, ERR_NOMEM, "watch");
    if (size > LIMIT_MESSAGE_BYTES)
        return err_reason(err, ERR_LIMIT, "REPLY_TOO_LARGE",
                          "the saga has %zu bytes, the limit is %d: watch it without its payloads",
                          size, LIMIT_MESSAGE_BYTES);
    if (!has_room(watch->call->server, size)) {
        watch->has_told = false;
        watch->is_due = true;
        return 0;
    }
    struct send_list list;
    send_list_init(&list);
    send_list_add(&list, &reply.base);
    if (list.failed)
        (void)err_set(err, ERR_NOMEM, "watch");
    bool failed = list.failed;
    (void)sender_put(&watch->sender, &list); /* false, too, if the watcher has gone */
    if (failed)
        return (int)err->code;
    watch->has_told = true;
    watch->told_ms = rpc_now_ms();
    return 0;
}

/* A token of another saga than the one that was asked for. */
static bool is_asked_for(const struct store_ref *ref, const struct saga_row *row)
{
    if (ref->by_uid)
        return memcmp(&ref->uid, &row->uid, sizeof ref->uid) == 0;
    return strcmp(ref->namespace_, row->namespace_) == 0 &&
           strcmp(ref->definition, row->definition) == 0 &&
           strcmp(ref->saga_id, row->saga_id) == 0 && (!ref->run || ref->run == row->run);
}

static int err_token(struct err *err)
{
    return err_field(err, "resume_token", "resume_token: is not one of this saga");
}

/* The saga as it is: tells it if that is news. */
static int see(struct saga_watch *watch, Saga__V1__Saga *message, const struct saga *saga,
               struct err *err)
{
    const struct saga_row *row = saga_row(saga);
    struct watch_place place = { .uid = row->uid };
    if (watch->is_resumed && !is_asked_for(&watch->ref, row))
        return err_token(err);
    if (mark_of(&watch->arena, message, place.mark))
        return err_set(err, ERR_NOMEM, "watch");
    int64_t now_ms = rpc_now_ms();
    bool unchanged =
        watch->has_told && memcmp(place.mark, watch->place.mark, sizeof place.mark) == 0;
    bool ends = saga_state_is_terminal(row->state);
    watch->is_resumed = false;
    watch->is_pinned = true;
    watch->place = place;
    watch->version = version_of(saga);
    watch->seen_ms = now_ms;
    watch->changes_at_ms = changes_at(message);
    if (!watch->told_ms)
        watch->told_ms = now_ms; /* resumed: it has heard it elsewhere */
    if (!unchanged || (now_ms - watch->told_ms >= watch->call->server->watch_silence_ms && !ends)) {
        int rc = send_state(watch, message, unchanged, err);
        if (rc)
            return rc;
    }
    if (ends && watch->has_told)
        sender_end(&watch->sender, NULL);
    return 0;
}

/* The database may be away for a while, and the reader's queue full. */
static void not_seen(struct saga_watch *watch, const struct err *why)
{
    struct err err = *why;
    if (why->code == ERR_NOT_FOUND && watch->is_pinned)
        (void)err_reason(&err, ERR_NOT_FOUND, "PURGED", "the saga has ended and was purged");
    bool passes = why->code == ERR_UNAVAILABLE || why->retryable;
    if (!passes || !watch->seen_ms || rpc_now_ms() - watch->seen_ms > AWAY_MS_MAX)
        sender_end(&watch->sender, &err);
    else
        watch->is_due = true;
}

static void on_looked(struct saga_look *look, Saga__V1__Saga *message, const struct saga *saga,
                      const struct err *err)
{
    struct saga_watch *watch = CONTAINER(look, struct saga_watch, look);
    struct call *call = watch->call;
    struct rpc_server *server = call->server;
    struct err problem;
    if (!message)
        not_seen(watch, err);
    else if (see(watch, message, saga, &problem))
        sender_end(&watch->sender, &problem);
    arena_done(&watch->arena);
    pthread_mutex_lock(&server->lock);
    watch->is_looking = false;
    pthread_mutex_unlock(&server->lock);
    call_unref(call);
}

/* --- when to look ------------------------------------------------------------------------------
 */

static bool may_look(struct saga_watch *watch)
{
    return watch->has_asked && !watch->is_looking && sender_is_open(&watch->sender) &&
           sender_bytes(&watch->sender) == 0;
}

static bool is_due(const struct saga_watch *watch, int64_t now_ms)
{
    return watch->is_due || now_ms - watch->told_ms >= watch->call->server->watch_silence_ms ||
           clock_wall_ms(&clock_system) >= watch->changes_at_ms;
}

/* Under the server's lock; then it is posted without. */
static void take_look(struct saga_watch *watch)
{
    watch->is_due = false;
    watch->is_looking = true;
    call_ref(watch->call);
}

static void post_look(struct saga_watch *watch)
{
    watch->look.arena = &watch->arena;
    watch->look.done = on_looked;
    if (watch->is_pinned)
        watch->look.ref = (struct store_ref){ .by_uid = true, .uid = watch->place.uid };
    else
        watch->look.ref = watch->ref;
    saga_look_post(&watch->look, watch->call, false);
}

/* Whoever had his turn is behind the others the next time. */
static void look_at_due(struct rpc_server *server)
{
    struct saga_watch *taken[LOOKS_MAX], *watch, *next;
    size_t count = 0;
    int64_t now_ms = rpc_now_ms();
    pthread_mutex_lock(&server->lock);
    DL_FOREACH_SAFE(server->saga_watches, watch, next)
    {
        if (count == LOOKS_MAX)
            break;
        if (may_look(watch) && is_due(watch, now_ms)) {
            take_look(watch);
            taken[count++] = watch;
        }
    }
    for (size_t i = 0; i < count; i++) {
        DL_DELETE(server->saga_watches, taken[i]);
        DL_APPEND(server->saga_watches, taken[i]);
    }
    pthread_mutex_unlock(&server->lock);
    for (size_t i = 0; i < count; i++)
        post_look(taken[i]);
}

/* --- have they changed? ------------------------------------------------------------------------
 */

struct versions_query {
    struct query query;
    struct store_version *versions;
    size_t count;
    struct uuid uids[]; /* in order */
};

static int compare_uids(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(struct uuid));
}

static void end_versions(struct versions_query *query, int64_t took_ms)
{
    struct rpc_server *server = query->query.server;
    int64_t wait_ms =
        took_ms * VERSIONS_SHARE > VERSIONS_MS ? took_ms * VERSIONS_SHARE : VERSIONS_MS;
    pthread_mutex_lock(&server->lock);
    server->versions_asked = false;
    server->versions_next_ms = rpc_now_ms() + wait_ms;
    pthread_mutex_unlock(&server->lock);
    mem_free(query->versions);
    mem_free(query);
}

static void refuse_versions(struct query *base, const struct err *err)
{
    (void)err; /* asked again; a watch that could not be looked at for too long ends by itself */
    end_versions(CONTAINER(base, struct versions_query, query), 0);
}

/* Under the server's lock. */
static void compare_versions(struct rpc_server *server, const struct versions_query *query)
{
    struct saga_watch *watch;
    DL_FOREACH(server->saga_watches, watch)
    {
        const struct uuid *uid =
            may_look(watch) && watch->is_pinned
                ? bsearch(&watch->place.uid, query->uids, query->count, sizeof *uid, compare_uids)
                : NULL;
        if (uid && !is_same_version(&query->versions[uid - query->uids], &watch->version))
            watch->is_due = true;
    }
}

/* On the reader's thread. */
static void run_versions(struct query *base, struct store_reader *reader)
{
    struct versions_query *query = CONTAINER(base, struct versions_query, query);
    struct rpc_server *server = base->server;
    int64_t begun_ms = rpc_now_ms();
    struct err err;
    int rc = store_reader_versions(reader, query->uids, query->count, query->versions, &err);
    if (rc) {
        refuse_versions(base, &err);
        return;
    }
    pthread_mutex_lock(&server->lock);
    compare_versions(server, query);
    pthread_mutex_unlock(&server->lock);
    end_versions(query, rpc_now_ms() - begun_ms);
    look_at_due(server);
}

/* Under the server's lock: a question about each saga that somebody watches and is not looked at
 * anyway. NULL: there is none, or no memory. */
static struct versions_query *versions_new(struct rpc_server *server)
{
    size_t most = (size_t)atomic_load(&server->saga_watchers), count = 0;
    struct versions_query *query = mem_calloc(1, sizeof *query + most * sizeof *query->uids);
    struct saga_watch *watch;
    if (!query)
        return NULL;
    DL_FOREACH(server->saga_watches, watch)
    {
        if (count < most && may_look(watch) && !watch->is_due && watch->is_pinned)
            query->uids[count++] = watch->place.uid;
    }
    qsort(query->uids, count, sizeof *query->uids, compare_uids);
    for (size_t i = 0; i < count; i++)
        if (!i || compare_uids(&query->uids[i], &query->uids[query->count - 1]) != 0)
            query->uids[query->count++] = query->uids[i];
    query->versions = count ? mem_calloc(count, sizeof *query->versions) : NULL;
    if (query->versions)
        return query;
    mem_free(query);
    return NULL;
}

static void ask_versions(struct rpc_server *server, int64_t now_ms)
{
    struct versions_query *query = NULL;
    pthread_mutex_lock(&server->lock);
    if (server->saga_watches && !server->versions_asked && now_ms >= server->versions_next_ms)
        query = versions_new(server);
    if (query)
        server->versions_asked = true;
    pthread_mutex_unlock(&server->lock);
    if (!query)
        return;
    query->query.server = server;
    query->query.run = run_versions;
    query->query.refuse = refuse_versions;
    queries_post(&query->query);
}

/* --- the stream --------------------------------------------------------------------------------
 */

static void nothing_to_do(struct sender *sender)
{
    (void)sender; /* there is room again: the next tick sees it */
}

static int read_request(struct saga_watch *watch, struct err *err)
{
    const Saga__V1__WatchSagaRequest *request = (void *)watch->call->request;
    static const struct page_filter none;
    uint8_t raw[PAGE_PLACE_MAX];
    size_t size = 0;
    int rc = read_ref(request->saga, &watch->ref, err);
    if (rc)
        return rc;
    watch->look.full = request->view == SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    if (page_token_read(request->resume_token, PAGE_WATCH, &none, raw, &size, err) ||
        (size && size != sizeof watch->place))
        return err_token(err);
    if (size) {
        memcpy(&watch->place, raw, sizeof watch->place);
        watch->is_resumed = watch->is_pinned = watch->has_told = true;
    }
    return 0;
}

static void on_watch_request(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, read_tag);
    struct saga_watch *watch = call->watch;
    struct rpc_server *server = call->server;
    struct err err;
    if (!watch->is_listed) { /* closed before: nobody works on this call any more */
        call_batch_done(call);
        return;
    }
    int rc = err_set(&err, ERR_INVALID, "the request message is missing");
    if (call_read_result(call, ok) == CALL_READ_MESSAGE)
        rc = call_unpack(call, &saga__v1__watch_saga_request__descriptor, &call->arena,
                         &call->request, &err);
    if (!rc)
        rc = read_request(watch, &err);
    if (rc) {
        sender_end(&watch->sender, &err);
    } else {
        pthread_mutex_lock(&server->lock);
        watch->has_asked = true;
        take_look(watch);
        pthread_mutex_unlock(&server->lock);
        post_look(watch);
    }
    call_batch_done(call);
}

static void on_watch_close(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, close_tag);
    struct saga_watch *watch = call->watch;
    struct rpc_server *server = call->server;
    (void)ok; /* always true */
    sender_close(&watch->sender);
    pthread_mutex_lock(&server->lock);
    DL_DELETE(server->saga_watches, watch);
    watch->is_listed = false;
    pthread_mutex_unlock(&server->lock);
    atomic_fetch_sub(&server->saga_watchers, 1);
    call_release_grpc(call);
    call_batch_done(call);
    call_unref(call);
}

void saga_watch_free(struct saga_watch *watch)
{
    sender_done(&watch->sender);
    mem_free(watch);
}

void saga_watch_begin(struct call *call)
{
    struct rpc_server *server = call->server;
    struct err err;
    if (!rpc_server_admit(&server->saga_watchers, NULL, server->saga_watchers_max)) {
        (void)err_reason(&err, ERR_LIMIT, "TOO_MANY_WATCHERS", "more than %zu watchers of sagas",
                         server->saga_watchers_max);
        err.retryable = true;
        call_fail(call, &err);
        return;
    }
    struct saga_watch *watch = mem_calloc(1, sizeof *watch);
    if (!watch) {
        atomic_fetch_sub(&server->saga_watchers, 1);
        call_fail_memory(call);
        return;
    }
    watch->call = call;
    watch->begun_ms = rpc_now_ms();
    watch->changes_at_ms = INT64_MAX;
    sender_init(&watch->sender, call, nothing_to_do);
    watch->sender.total = &server->watch_bytes;
    call->watch = watch;
    call->close_tag.fn = on_watch_close;
    call->read_tag.fn = on_watch_request;
    pthread_mutex_lock(&server->lock);
    DL_APPEND(server->saga_watches, watch);
    watch->is_listed = true;
    pthread_mutex_unlock(&server->lock);
    if (!call_read(call)) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        sender_end(&watch->sender, &err);
    }
}

/* Under the server's lock. */
static void check_peer(struct saga_watch *watch, int64_t now_ms)
{
    int64_t idle_ms, busy_ms;
    sender_times(&watch->sender, now_ms, &idle_ms, &busy_ms);
    if (busy_ms > RPC_PEER_MS_MAX ||
        (!watch->has_asked && now_ms - watch->begun_ms > RPC_PEER_MS_MAX))
        call_cancel(watch->call, GRPC_STATUS_DEADLINE_EXCEEDED,
                    "the watcher did not say what it watches, or does not read");
}

void saga_watches_tick(struct rpc_server *server, int64_t now_ms)
{
    struct saga_watch *watch;
    pthread_mutex_lock(&server->lock);
    DL_FOREACH(server->saga_watches, watch)
    {
        check_peer(watch, now_ms);
    }
    pthread_mutex_unlock(&server->lock);
    look_at_due(server);
    ask_versions(server, now_ms);
}

void saga_watches_end(struct rpc_server *server)
{
    struct err err;
    struct saga_watch *watch;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    pthread_mutex_lock(&server->lock);
    DL_FOREACH(server->saga_watches, watch)
    {
        sender_end(&watch->sender, &err);
    }
    pthread_mutex_unlock(&server->lock);
}
