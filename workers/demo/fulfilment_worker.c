/* The worker of the fulfilment demo: the order row and the goods under the guard, logistics over
 * gRPC, the cache.
 * Every mapping from what happened to what is reported is in this file and in shop.c. */
#include "cache.h"
#include "fulfilment.h"
#include "logistics_client.h"
#include "message.h"
#include "shop.h"
#include "worker_program.h"

#include <stdio.h>

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

/* `answer`: if it took effect. The setters fail only when memory is out; the task is then reported
 * as UNKNOWN. */
static void report(struct saga_task *task, const struct logistics_outcome *outcome,
                   const ProtobufCMessage *answer)
{
    switch (outcome->result) {
    case LOGISTICS_DONE:
        (void)worker_done(task, answer);
        return;
    case LOGISTICS_EXISTS:
        (void)worker_already_done(task, answer, outcome->ours);
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
    CLEANUP(message_p) Shop__V1__Order *asked = worker_request(task, &shop__v1__order__descriptor);
    int64_t until_ms;
    if (!asked || !shop_takes_order(task, asked) ||
        !worker_may_call(task, logistics, LOGISTICS_CONNECT_MS, LOGISTICS_TIMEOUT_MS, &until_ms))
        return;
    struct logistics_order order = {
        .idempotency_key = saga_task_idempotency_key(task),
        .order_id = asked->order_id,
        .parcels = asked->parcels,
        .behaviour = asked->logistics,
    };
    struct logistics_outcome outcome = logistics_create(logistics, &order, until_ms);
    Shop__V1__Waybill waybill = SHOP__V1__WAYBILL__INIT;
    waybill.number = outcome.waybill;
    report(task, &outcome, &waybill.base);
}

/* The books of logistics, by the key of the attempts that are asked about. Whatever keeps us from
 * reading them says nothing about what is in them. */
static void find_waybill(struct saga_task *task, void *ctx)
{
    struct caller *logistics = ctx;
    bool connected = caller_connect(logistics, LOGISTICS_CONNECT_MS); /* the call says it, too */
    struct logistics_outcome outcome =
        logistics_find(logistics, saga_task_idempotency_key(task),
                       worker_call_until_ms(task, connected ? PROBE_TIMEOUT_MS : 0));
    Shop__V1__Waybill waybill = SHOP__V1__WAYBILL__INIT;
    waybill.number = outcome.waybill;
    if (outcome.result == LOGISTICS_DONE)
        (void)worker_done(task, &waybill.base);
    else if (outcome.result == LOGISTICS_NOT_FOUND)
        (void)saga_task_not_done(task);
    else
        (void)saga_task_still_unknown(task, outcome.code, outcome.message);
}

static void cancel_waybill(struct saga_task *task, void *ctx)
{
    struct caller *logistics = ctx;
    CLEANUP(message_p) Shop__V1__Order *order = worker_request(task, &shop__v1__order__descriptor);
    int64_t until_ms;
    if (!order ||
        !worker_may_call(task, logistics, LOGISTICS_CONNECT_MS, LOGISTICS_TIMEOUT_MS, &until_ms))
        return;
    struct logistics_outcome outcome =
        logistics_cancel(logistics, saga_task_idempotency_key(task), order->order_id, until_ms);
    report(task, &outcome, NULL);
}

static void warm_cache(struct saga_task *task, void *ctx)
{
    CLEANUP(message_p)
    Shop__V1__CacheRequest *request = worker_request(task, &shop__v1__cache_request__descriptor);
    if (!request || !shop_takes_order(task, request->input))
        return;
    char value[128];
    (void)snprintf(value, sizeof value, "CONFIRMED %.64s", /* fits */
                   request->create_waybill ? request->create_waybill->number : "");
    struct cache_outcome outcome = cache_write(ctx, request->input->order_id, value);
    switch (outcome.result) {
    case CACHE_WRITTEN:
        (void)worker_done(task, NULL);
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

static int serve(const char *sagad, const char *id, const char *only, struct shop *shop,
                 struct caller *logistics, struct cache *cache)
{
    const struct worker_handler handlers[] = {
        { "shop.v1.Fulfilment.ConfirmOrder", SHOP_IN_FLIGHT, shop_confirm_order, shop },
        { "shop.v1.Fulfilment.CancelOrder", SHOP_IN_FLIGHT, shop_cancel_order, shop },
        { "shop.v1.Fulfilment.CreateWaybill", LOGISTICS_IN_FLIGHT, create_waybill, logistics },
        { "shop.v1.Fulfilment.FindWaybill", PROBES_IN_FLIGHT, find_waybill, logistics },
        { "shop.v1.Fulfilment.CancelWaybill", LOGISTICS_IN_FLIGHT, cancel_waybill, logistics },
        { "shop.v1.Fulfilment.PickGoods", SHOP_IN_FLIGHT, shop_pick_goods, shop },
        { "shop.v1.Fulfilment.PutBack", SHOP_IN_FLIGHT, shop_put_back, shop },
        { "shop.v1.Fulfilment.HandOver", SHOP_IN_FLIGHT, shop_hand_over, shop },
        { "shop.v1.Fulfilment.WarmCache", CACHE_IN_FLIGHT, warm_cache, cache },
    };
    const struct worker_program program = { .name = "fulfilment_worker",
                                            .sagad = sagad,
                                            .id = id,
                                            .only = only,
                                            .threads = THREADS,
                                            .handlers = handlers,
                                            .handler_count = ARRAY_LEN(handlers) };
    return worker_serve(&program);
}

int main(int argc, char **argv)
{
    const char *sagad, *shop_socket, *address, *cache_socket, *id, *only = NULL;
    const struct worker_option options[] = { { "--sagad", &sagad },
                                             { "--shop", &shop_socket },
                                             { "--logistics", &address },
                                             { "--cache", &cache_socket },
                                             { "--id", &id },
                                             { "--only", &only } };
    if (!worker_options_parse(argc, argv, options, ARRAY_LEN(options) - 1) &&
        !worker_options_parse(argc, argv, options, ARRAY_LEN(options))) {
        (void)fprintf(stderr, "usage: fulfilment_worker --sagad ADDRESS --shop SOCKET"
                              " --logistics ADDRESS --cache SOCKET --id NAME [--only RPC,...]\n");
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
        result = serve(sagad, id, only, shop, logistics, cache);
    cache_free(cache);
    caller_free(logistics);
    shop_free(shop);
    return result;
}
