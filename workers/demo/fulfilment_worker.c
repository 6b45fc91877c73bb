/* The worker of the fulfilment demo: the order row under the guard, logistics over gRPC, the cache.
 * Every mapping from what happened to what is reported is in this file and in shop.c. */
#include "cache.h"
#include "fulfilment.h"
#include "logistics_client.h"
#include "shop.h"
#include "worker_program.h"

#include <stdio.h>
#include <string.h>

enum {
    THREADS = 16,
    SHOP_IN_FLIGHT = 6, /* of each shop handler */
    LOGISTICS_IN_FLIGHT = 10,
    PROBES_IN_FLIGHT = 6,
    CACHE_IN_FLIGHT = 6,
    CACHE_CONNECTIONS = 2, /* more tasks than these: the pool can be exhausted */
    LOGISTICS_CONNECT_MS = 1000,
    LOGISTICS_TIMEOUT_MS = 2000, /* nearly three times its slowest answer */
    PROBE_TIMEOUT_MS = 1000,
};

/* The setters fail only when memory is out; the task is then reported as UNKNOWN. */
static void report(struct saga_task *task, const struct logistics_outcome *outcome)
{
    const char *waybill = outcome->waybill;
    switch (outcome->result) {
    case LOGISTICS_DONE:
        (void)saga_task_done(task, waybill, strlen(waybill));
        return;
    case LOGISTICS_EXISTS:
        (void)saga_task_already_done(task, waybill, strlen(waybill), outcome->ours);
        return;
    case LOGISTICS_REFUSED:
    case LOGISTICS_INVALID:
        (void)saga_task_rejected(task, outcome->code, outcome->message);
        return;
    case LOGISTICS_NOT_SENT:
        (void)saga_task_retry(task, outcome->code, outcome->message, 0);
        return;
    case LOGISTICS_NOT_FOUND: /* of a search alone */
    case LOGISTICS_UNKNOWN:
        (void)saga_task_unknown(task, outcome->code, outcome->message);
        return;
    }
}

static void create_waybill(struct saga_task *task, void *ctx)
{
    struct caller *logistics = ctx;
    struct saga_bytes input = saga_task_input(task);
    struct fulfilment fulfilment;
    struct err err;
    if (fulfilment_decode(input.data, input.size, &fulfilment, &err)) {
        (void)saga_task_rejected(task, "BAD_INPUT", err.msg);
        return;
    }
    int64_t until_ms;
    if (!worker_may_call(task, logistics, LOGISTICS_CONNECT_MS, LOGISTICS_TIMEOUT_MS, &until_ms))
        return;
    struct logistics_order order = {
        .idempotency_key = saga_task_idempotency_key(task),
        .order_id = saga_task_saga_id(task),
        .parcels = fulfilment.parcels,
        .behaviour = fulfilment_logistics_name(fulfilment.logistics),
    };
    struct logistics_outcome outcome = logistics_create(logistics, &order, until_ms);
    report(task, &outcome);
}

/* The books of logistics, by the key of the attempts that are asked about. Whatever keeps us from
 * reading them says nothing about what is in them. */
static void probe_waybill(struct saga_task *task, void *ctx)
{
    struct caller *logistics = ctx;
    bool connected = caller_connect(logistics, LOGISTICS_CONNECT_MS); /* the call says it, too */
    struct logistics_outcome outcome =
        logistics_find(logistics, saga_task_idempotency_key(task),
                       worker_call_until_ms(task, connected ? PROBE_TIMEOUT_MS : 0));
    if (outcome.result == LOGISTICS_DONE)
        (void)saga_task_done(task, outcome.waybill, strlen(outcome.waybill));
    else if (outcome.result == LOGISTICS_NOT_FOUND)
        (void)saga_task_not_done(task);
    else
        (void)saga_task_still_unknown(task, outcome.code, outcome.message);
}

static void cancel_waybill(struct saga_task *task, void *ctx)
{
    struct caller *logistics = ctx;
    int64_t until_ms;
    if (!worker_may_call(task, logistics, LOGISTICS_CONNECT_MS, LOGISTICS_TIMEOUT_MS, &until_ms))
        return;
    struct logistics_outcome outcome = logistics_cancel(logistics, saga_task_idempotency_key(task),
                                                        saga_task_saga_id(task), until_ms);
    report(task, &outcome);
}

static void warm_cache(struct saga_task *task, void *ctx)
{
    struct saga_bytes waybill = { 0 };
    char value[128];
    (void)saga_task_output_of(task, "create_waybill", &waybill); /* none: without a number */
    int size = waybill.size < 64 ? (int)waybill.size : 64;
    (void)snprintf(value, sizeof value, "CONFIRMED %.*s", size, /* fits */
                   waybill.data ? (const char *)waybill.data : "");
    struct cache_outcome outcome = cache_write(ctx, saga_task_saga_id(task), value);
    switch (outcome.result) {
    case CACHE_WRITTEN:
        (void)saga_task_done(task, NULL, 0);
        return;
    case CACHE_EXHAUSTED:
        (void)saga_task_retry(task, "POOL_EXHAUSTED", outcome.message, 0);
        return;
    case CACHE_AWAY:
        (void)saga_task_retry(task, "CACHE_AWAY", outcome.message, 0);
        return;
    case CACHE_REFUSED:
        (void)saga_task_retry(task, "CACHE_REFUSED", outcome.message, 0);
        return;
    case CACHE_UNKNOWN:
        (void)saga_task_unknown(task, "CACHE_SILENT", outcome.message);
        return;
    }
}

static int serve(const char *sagad, const char *id, struct shop *shop, struct caller *logistics,
                 struct cache *cache)
{
    const struct worker_handler handlers[] = {
        { "shop.confirm_order", SHOP_IN_FLIGHT, shop_confirm_order, shop },
        { "shop.cancel_order", SHOP_IN_FLIGHT, shop_cancel_order, shop },
        { "logistics.create_waybill", LOGISTICS_IN_FLIGHT, create_waybill, logistics },
        { "logistics.create_waybill.probe", PROBES_IN_FLIGHT, probe_waybill, logistics },
        { "logistics.cancel_waybill", LOGISTICS_IN_FLIGHT, cancel_waybill, logistics },
        { "shop.warm_cache", CACHE_IN_FLIGHT, warm_cache, cache },
    };
    const struct worker_program program = { .name = "fulfilment_worker",
                                            .sagad = sagad,
                                            .id = id,
                                            .threads = THREADS,
                                            .handlers = handlers,
                                            .handler_count = ARRAY_LEN(handlers) };
    return worker_serve(&program);
}

int main(int argc, char **argv)
{
    const char *sagad, *shop_socket, *address, *cache_socket, *id;
    const struct worker_option options[] = { { "--sagad", &sagad },
                                             { "--shop", &shop_socket },
                                             { "--logistics", &address },
                                             { "--cache", &cache_socket },
                                             { "--id", &id } };
    if (!worker_options_parse(argc, argv, options, ARRAY_LEN(options))) {
        (void)fprintf(stderr, "usage: fulfilment_worker --sagad ADDRESS --shop SOCKET"
                              " --logistics ADDRESS --cache SOCKET --id NAME\n");
        return 2;
    }
    struct shop *shop = NULL;
    struct caller *logistics = NULL;
    struct cache *cache = NULL;
    struct err err;
    int result = 1;
    if (shop_create(shop_socket, THREADS, &shop, &err) ||
        caller_create(address, &logistics, &err) ||
        cache_create(cache_socket, CACHE_CONNECTIONS, &cache, &err))
        (void)fprintf(stderr, "fulfilment_worker: %s\n", err.msg);
    else
        result = serve(sagad, id, shop, logistics, cache);
    cache_free(cache);
    caller_free(logistics);
    shop_free(shop);
    return result;
}
