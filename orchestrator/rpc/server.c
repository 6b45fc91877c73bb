#include "rpc/server.h"

#include "base/log.h"
#include "base/mem.h"
#include "rpc/grpc_log.h"
#include "rpc/internal.h"
#include "rpc/queries.h"

#include <time.h>

int64_t rpc_now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

void rpc_server_ref(struct rpc_server *server)
{
    atomic_fetch_add(&server->refs, 1);
}

void rpc_server_unref(struct rpc_server *server)
{
    if (atomic_fetch_sub(&server->refs, 1) != 1)
        return;
    for (size_t i = 0; server->pumps && i < server->pump_count; i++)
        pthread_mutex_destroy(&server->pumps[i].lock);
    pthread_mutex_destroy(&server->lock);
    pthread_mutex_destroy(&server->polls_lock);
    pthread_cond_destroy(&server->changed);
    mem_free(server->pumps);
    mem_free(server->listeners);
    mem_free(server->node);
    mem_free(server->conninfo);
    mem_free(server);
}

static void on_shutdown(struct rpc_tag *tag, bool ok)
{
    struct rpc_server *server = CONTAINER(tag, struct rpc_server, shutdown_tag);
    (void)ok; /* always true */
    pthread_mutex_lock(&server->lock);
    server->grpc_is_down = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

/* --- start ------------------------------------------------------------------------------------ */

static struct rpc_server *server_new(const struct rpc_options *options)
{
    struct rpc_server *server = mem_calloc(1, sizeof *server);
    if (!server)
        return NULL;
    atomic_init(&server->refs, 1);
    pthread_mutex_init(&server->lock, NULL);
    pthread_mutex_init(&server->polls_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    server->shutdown_tag.fn = on_shutdown;
    server->engine = options->engine;
    server->ready = options->ready;
    server->ready_ctx = options->ready_ctx;
    server->streams_max = options->streams_max ? options->streams_max : RPC_STREAMS_MAX;
    server->stream_send_bytes_max =
        options->stream_send_bytes_max ? options->stream_send_bytes_max : RPC_STREAM_SEND_BYTES_MAX;
    server->send_bytes_max = options->send_bytes_max ? options->send_bytes_max : RPC_SEND_BYTES_MAX;
    server->payload_bytes_max =
        options->payload_bytes_max ? options->payload_bytes_max : LIMIT_PAYLOAD_BYTES;
    server->saga_watchers_max =
        options->saga_watchers_max ? options->saga_watchers_max : RPC_SAGA_WATCHERS_MAX;
    server->watch_silence_ms =
        options->watch_silence_ms ? options->watch_silence_ms : RPC_WATCH_SILENCE_MS;
    server->node = mem_strdup(options->node ? options->node : "");
    server->conninfo = mem_strdup(options->conninfo ? options->conninfo : "");
    server->listeners = mem_calloc(options->address_count + 1, sizeof *server->listeners);
    server->pump_count = options->threads > 0 ? (size_t)options->threads : RPC_THREADS;
    server->pumps = mem_calloc(server->pump_count, sizeof *server->pumps);
    for (size_t i = 0; server->pumps && i < server->pump_count; i++) {
        server->pumps[i].server = server;
        server->pumps[i].index = i;
        pthread_mutex_init(&server->pumps[i].lock, NULL);
    }
    if (server->node && server->conninfo && server->listeners && server->pumps)
        return server;
    rpc_server_unref(server);
    return NULL;
}

static int grpc_start(struct rpc_server *server, const struct rpc_options *options,
                      const grpc_channel_args *args, struct err *err)
{
    server->grpc = grpc_server_create(args, NULL);
    for (size_t i = 0; i < server->pump_count; i++) {
        server->pumps[i].queue = grpc_completion_queue_create_for_next(NULL);
        grpc_server_register_completion_queue(server->grpc, server->pumps[i].queue, NULL);
    }
    for (size_t i = 0; i < options->address_count; i++) {
        int rc = listener_add(server->grpc, options->addresses[i], &server->listeners[i], err);
        if (rc)
            return rc;
        server->listener_count++;
    }
    grpc_server_start(server->grpc);
    for (size_t i = 0; i < server->pump_count; i++) {
        int rc = pump_start(&server->pumps[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

int rpc_server_start(const struct rpc_options *options, struct rpc_server **ret, struct err *err)
{
    struct rpc_server *server = server_new(options);
    if (!server)
        return err_set(err, ERR_NOMEM, "rpc");
    grpc_log_take();
    grpc_init();
    grpc_channel_args *args = server_args_new();
    int rc = args ? queries_start(options->conninfo, &server->queries, err)
                  : err_set(err, ERR_NOMEM, "rpc");
    if (rc) {
        server_args_free(args);
        grpc_shutdown_blocking();
        rpc_server_unref(server);
        return rc;
    }
    rc = grpc_start(server, options, args, err);
    server_args_free(args);
    if (rc) {
        rpc_server_stop(server, 0);
        return rc;
    }
    *ret = server;
    return 0;
}

int rpc_server_port(const struct rpc_server *server, size_t i)
{
    return i < server->listener_count ? server->listeners[i].port : 0;
}

/* --- stop ------------------------------------------------------------------------------------- */

void rpc_server_drain(struct rpc_server *server, int64_t grace_ms)
{
    if (atomic_exchange(&server->draining, true))
        return;
    watchers_tick(server);
    worker_streams_drain(server, grace_ms);
    worker_polls_tick(server, rpc_now_ms()); /* they answer, and say so */
}

/* A start that failed: nobody else drains these queues. */
static void drain_unstarted(struct rpc_server *server)
{
    for (size_t i = 0; i < server->pump_count; i++) {
        if (!server->pumps[i].started)
            pump_drain(&server->pumps[i]);
    }
}

/* False: the time is over. until_ms INT64_MAX: for as long as it takes. */
static bool wait_for_grpc(struct rpc_server *server, int64_t until_ms)
{
    pthread_mutex_lock(&server->lock);
    while (!server->grpc_is_down && rpc_now_ms() < until_ms) {
        if (!server->pumps[0].started) {
            pthread_mutex_unlock(&server->lock);
            drain_unstarted(server);
            pthread_mutex_lock(&server->lock);
            continue;
        }
        if (until_ms == INT64_MAX) {
            pthread_cond_wait(&server->changed, &server->lock);
            continue;
        }
        struct timespec until = { .tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000 };
        (void)pthread_cond_timedwait(&server->changed, &server->lock, &until); /* looked at above */
    }
    bool is_down = server->grpc_is_down;
    pthread_mutex_unlock(&server->lock);
    return is_down;
}

bool rpc_server_admit(atomic_llong *count, const atomic_llong *beside, size_t bound)
{
    long long before = atomic_fetch_add(count, 1) + (beside ? atomic_load(beside) : 0);
    if ((size_t)before < bound)
        return true;
    atomic_fetch_sub(count, 1);
    return false;
}

static bool is_idle(const struct rpc_server *server)
{
    return atomic_load(&server->calls) == 0 && atomic_load(&server->streams) == 0 &&
           atomic_load(&server->watchers) == 0 && atomic_load(&server->saga_watchers) == 0 &&
           atomic_load(&server->reflector_count) == 0 && atomic_load(&server->batch_streams) == 0 &&
           atomic_load(&server->batch_threads) == 0;
}

/* The same, but only as long as a call or a worker's stream is open: a peer that stays connected
 * without one (and perhaps does not look at its connection) must not hold us for the whole grace.
 */
static bool wait_for_calls(struct rpc_server *server, int64_t until_ms)
{
    for (;;) {
        int64_t look_ms = rpc_now_ms() + RPC_TICK_MS;
        if (wait_for_grpc(server, look_ms < until_ms ? look_ms : until_ms))
            return true;
        if (is_idle(server) || rpc_now_ms() >= until_ms)
            return false;
    }
}

/* gRPC is down, but not everybody has heard that his call is over: until then he may start a batch,
 * which a queue that was shut would not bear. */
static void wait_until_idle(struct rpc_server *server)
{
    static const struct timespec pause = { .tv_nsec = 1000000 };
    while (!is_idle(server)) {
        drain_unstarted(server);
        (void)nanosleep(&pause, NULL); /* looked at again */
    }
}

/* Calls that only wait need no grace: whoever waits asks the next server. */
static void end_waiting_calls(struct rpc_server *server)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    watchers_end(server);
    saga_watches_end(server);
    reflectors_end(server);
    run_batch_end(server);
    for (size_t i = 0; i < server->pump_count; i++)
        pump_preempt(&server->pumps[i], saga_wait, &err);
}

static void pumps_stop(struct rpc_server *server)
{
    for (size_t i = 0; i < server->pump_count; i++)
        grpc_completion_queue_shutdown(server->pumps[i].queue);
    for (size_t i = 0; i < server->pump_count; i++) {
        struct pump *pump = &server->pumps[i];
        if (pump->started)
            (void)pthread_join(pump->thread, NULL); /* started once, joined once */
        else
            pump_drain(pump);
        grpc_completion_queue_destroy(pump->queue);
    }
}

void rpc_server_stop(struct rpc_server *server, int64_t grace_ms)
{
    int64_t until_ms = rpc_now_ms() + grace_ms;
    rpc_server_drain(server, grace_ms);
    atomic_store(&server->stopping, true);
    end_waiting_calls(server);
    grpc_server_shutdown_and_notify(server->grpc, server->pumps[0].queue, &server->shutdown_tag);
    if (!wait_for_calls(server, until_ms)) {
        grpc_server_cancel_all_calls(server->grpc);
        (void)wait_for_grpc(server, INT64_MAX); /* comes back when it is down */
    }
    wait_until_idle(server);
    grpc_server_destroy(server->grpc);
    pumps_stop(server);
    worker_polls_end(server);
    for (size_t i = 0; i < server->listener_count; i++)
        listener_done(&server->listeners[i]);
    pthread_mutex_lock(&server->lock);
    struct queries *queries = TAKE(server->queries);
    pthread_mutex_unlock(&server->lock);
    (void)queries_stop(queries); /* always NULL */
    grpc_shutdown_blocking();
    rpc_server_unref(server);
}
