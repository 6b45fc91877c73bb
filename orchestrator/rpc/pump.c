#include "rpc/internal.h"

#include "base/log.h"

#include <grpc/support/time.h>

enum { DRAIN_MS = 10 };

static void tick(struct rpc_server *server)
{
    int64_t now_ms = rpc_now_ms();
    if (now_ms - server->ticked_ms < RPC_TICK_MS)
        return;
    server->ticked_ms = now_ms;
    for (size_t i = 0; i < server->pump_count; i++)
        pump_sweep(&server->pumps[i], now_ms);
    worker_streams_tick(server, now_ms);
    worker_polls_tick(server, now_ms);
    watchers_tick(server);
    saga_watches_tick(server, now_ms);
    run_batch_tick(server, now_ms);
    reflectors_tick(server, now_ms);
}

/* gRPC has no timers for servers: the first pump's wait has an end instead. */
static void *pump_run(void *ctx)
{
    struct pump *pump = ctx;
    bool ticks = pump->index == 0;
    for (;;) {
        gpr_timespec until = gpr_inf_future(GPR_CLOCK_MONOTONIC);
        if (ticks)
            until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_millis(RPC_TICK_MS, GPR_TIMESPAN));
        grpc_event event = grpc_completion_queue_next(pump->queue, until, NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (event.type == GRPC_OP_COMPLETE) {
            struct rpc_tag *tag = event.tag;
            tag->fn(tag, event.success != 0);
        }
        if (ticks)
            tick(pump->server);
    }
}

void pump_drain(struct pump *pump)
{
    for (;;) {
        gpr_timespec until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                          gpr_time_from_millis(DRAIN_MS, GPR_TIMESPAN));
        grpc_event event = grpc_completion_queue_next(pump->queue, until, NULL);
        if (event.type != GRPC_OP_COMPLETE)
            return;
        struct rpc_tag *tag = event.tag;
        tag->fn(tag, event.success != 0);
    }
}

int pump_start(struct pump *pump, struct err *err)
{
    for (int i = 0; i < RPC_ARMED; i++) {
        if (!call_arm(pump))
            return err_set(err, ERR_NOMEM, "rpc: no request could be armed");
    }
    if (pthread_create(&pump->thread, NULL, pump_run, pump))
        return err_set(err, ERR_UNAVAILABLE, "rpc: no thread could be started");
    pump->started = true;
    return 0;
}

void pump_sweep(struct pump *pump, int64_t now_ms)
{
    pthread_mutex_lock(&pump->lock);
    for (struct call *call = pump->first; call; call = call->next) { /* each holds its grpc_call */
        if (now_ms - call->since_ms > RPC_UNARY_MS_MAX)
            call_cancel(call, GRPC_STATUS_DEADLINE_EXCEEDED,
                        "the call took longer than any call may");
        else if (now_ms - RPC_PEER_MS_MAX > atomic_load(&call->peer_awaited_ms))
            call_cancel(call, GRPC_STATUS_DEADLINE_EXCEEDED,
                        "the client did not send its request, or take its reply, in time");
    }
    pthread_mutex_unlock(&pump->lock);
}

/* The first open call of that handler, referenced; NULL: none. */
static struct call *find_open(struct pump *pump, void (*handle)(struct call *call))
{
    pthread_mutex_lock(&pump->lock);
    struct call *call = pump->first;
    while (call && (!call->method || call->method->handle != handle || !call_ref_if_open(call)))
        call = call->next;
    pthread_mutex_unlock(&pump->lock);
    return call;
}

void pump_preempt(struct pump *pump, void (*handle)(struct call *call), const struct err *err)
{
    for (struct call *call = find_open(pump, handle); call; call = find_open(pump, handle)) {
        call_preempt(call, err); /* it is not open any more, so this comes to an end */
        call_unref(call);
    }
}
