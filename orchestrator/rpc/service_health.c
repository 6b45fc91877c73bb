/* grpc.health.v1. A server serves everything or nothing: as long as the engine is ready, and what
 * else was named, and no stop was asked for. Watchers hear of each change within a tick. */
#include "rpc/request.h"
#include "rpc/sender.h"

#include "base/mem.h"

#include <grpc/health/v1/health.pb-c.h>
#include <string.h>

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;
#define SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define UNKNOWN     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

static const char *const services[] = {
    "", /* the server as a whole */
    "saga.v1.SagaService",
    "saga.v1.DefinitionService",
    "saga.v1.OperatorService",
    "saga.v1.KafkaService",
    "saga.v1.WorkerService",
};

static bool is_known(const char *service)
{
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        if (strcmp(services[i], service) == 0)
            return true;
    }
    return false;
}

static serving_status status_now(struct rpc_server *server)
{
    bool serves = engine_is_ready(server->engine) && !atomic_load(&server->draining) &&
                  (!server->ready || server->ready(server->ready_ctx));
    return serves ? SERVING : NOT_SERVING;
}

void health_check(struct call *call)
{
    Grpc__Health__V1__HealthCheckRequest *request = (void *)call->request;
    if (!is_known(request->service)) {
        struct err err;
        (void)err_set(&err, ERR_NOT_FOUND, "unknown service");
        call_fail(call, &err);
        return;
    }
    Grpc__Health__V1__HealthCheckResponse reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    reply.status = status_now(call->server);
    call_reply(call, &reply.base);
}

/* --- Watch ------------------------------------------------------------------------------------ */

enum { WATCHER_SEND_BYTES_MAX = 4096 }; /* a peer that reads none of that has gone */

/* Lives as long as its call; in the server's list until that is closed. */
struct watcher {
    struct sender sender;
    struct call *call;
    struct watcher *next, *prev;
    bool listed; /* set by its pump's thread */
    /* under the server's lock: */
    bool has_asked, is_known;
    serving_status told;
    int64_t begun_ms;
};

static void nothing_to_do(struct sender *sender)
{
    (void)sender; /* a watcher makes no more than one small message a change */
}

static void tell(struct watcher *watcher, serving_status status)
{
    Grpc__Health__V1__HealthCheckResponse reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    reply.status = status;
    watcher->told = status;
    struct send_list list;
    send_list_init(&list);
    send_list_add(&list, &reply.base);
    if (!sender_put(&watcher->sender, &list) ||
        sender_bytes(&watcher->sender) > WATCHER_SEND_BYTES_MAX)
        call_cancel(watcher->call, GRPC_STATUS_RESOURCE_EXHAUSTED, "the watcher does not read");
}

static void on_watch_request(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, read_tag);
    struct watcher *watcher = call->watcher;
    struct rpc_server *server = call->server;
    struct err err;
    int rc = err_set(&err, ERR_INVALID, "the request message is missing");
    if (!watcher->listed) { /* closed before: nobody works on this call any more */
        call_batch_done(call);
        return;
    }
    if (call_read_result(call, ok) == CALL_READ_MESSAGE)
        rc = call_unpack(call, &grpc__health__v1__health_check_request__descriptor, &call->arena,
                         &call->request, &err);
    if (rc) {
        sender_end(&watcher->sender, &err);
    } else {
        Grpc__Health__V1__HealthCheckRequest *request = (void *)call->request;
        pthread_mutex_lock(&server->lock);
        watcher->has_asked = true;
        watcher->is_known = is_known(request->service);
        tell(watcher, watcher->is_known ? status_now(server) : UNKNOWN);
        pthread_mutex_unlock(&server->lock);
    }
    call_batch_done(call);
}

static void on_watch_close(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, close_tag);
    struct watcher *watcher = call->watcher;
    struct rpc_server *server = call->server;
    (void)ok; /* always true */
    sender_close(&watcher->sender);
    pthread_mutex_lock(&server->lock);
    if (watcher->listed) {
        *(watcher->prev ? &watcher->prev->next : &server->watcher_list) = watcher->next;
        if (watcher->next)
            watcher->next->prev = watcher->prev;
        watcher->listed = false;
    }
    pthread_mutex_unlock(&server->lock);
    atomic_fetch_sub(&server->watchers, 1);
    call_release_grpc(call);
    call_batch_done(call);
    call_unref(call);
}

void watcher_free(struct watcher *watcher)
{
    sender_done(&watcher->sender);
    mem_free(watcher);
}

void watcher_begin(struct call *call)
{
    struct rpc_server *server = call->server;
    struct err err;
    if (!rpc_server_admit(&server->watchers, NULL, RPC_WATCHERS_MAX)) {
        (void)err_reason(&err, ERR_LIMIT, "TOO_MANY_WATCHERS", "more than %d health watchers",
                         RPC_WATCHERS_MAX);
        call_fail(call, &err);
        return;
    }
    struct watcher *watcher = mem_calloc(1, sizeof *watcher);
    if (!watcher) {
        atomic_fetch_sub(&server->watchers, 1);
        call_fail_memory(call);
        return;
    }
    watcher->call = call;
    watcher->begun_ms = rpc_now_ms();
    sender_init(&watcher->sender, call, nothing_to_do);
    call->watcher = watcher;
    call->close_tag.fn = on_watch_close;
    call->read_tag.fn = on_watch_request;
    pthread_mutex_lock(&server->lock);
    watcher->listed = true;
    watcher->next = server->watcher_list;
    if (watcher->next)
        watcher->next->prev = watcher;
    server->watcher_list = watcher;
    pthread_mutex_unlock(&server->lock);
    if (!call_read(call)) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        sender_end(&watcher->sender, &err);
    }
}

/* Under the server's lock. */
static void check_one(struct watcher *watcher, serving_status now, int64_t now_ms)
{
    int64_t idle_ms, busy_ms;
    sender_times(&watcher->sender, now_ms, &idle_ms, &busy_ms);
    if (busy_ms > RPC_PEER_MS_MAX ||
        (!watcher->has_asked && now_ms - watcher->begun_ms > RPC_PEER_MS_MAX))
        call_cancel(watcher->call, GRPC_STATUS_DEADLINE_EXCEEDED,
                    "the watcher did not say what it watches, or does not read");
    else if (watcher->is_known && watcher->told != now)
        tell(watcher, now);
}

void watchers_tick(struct rpc_server *server)
{
    serving_status now = status_now(server);
    int64_t now_ms = rpc_now_ms();
    pthread_mutex_lock(&server->lock);
    for (struct watcher *watcher = server->watcher_list; watcher; watcher = watcher->next)
        check_one(watcher, now, now_ms);
    pthread_mutex_unlock(&server->lock);
}

void watchers_end(struct rpc_server *server)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    watchers_tick(server);
    pthread_mutex_lock(&server->lock);
    for (struct watcher *watcher = server->watcher_list; watcher; watcher = watcher->next)
        sender_end(&watcher->sender, &err);
    pthread_mutex_unlock(&server->lock);
}
