#include "server_words.h"

#include "core/limits.h"
#include "fuzz.h"
#include "rpc/worker_encode.h"
#include "wire/scan.h"

#include <saga/v1/worker.pb-c.h>

static void check_sent(struct send_list *list)
{
    FUZZ_CHECK(!list->failed && list->first);
    while (list->first) {
        struct send_item *item = list->first;
        struct err err;
        list->first = item->next;
        FUZZ_CHECK(item->size <= LIMIT_MESSAGE_BYTES);
        FUZZ_OK(wire_scan(&saga__v1__server_message__descriptor, GRPC_SLICE_START_PTR(item->slice),
                          GRPC_SLICE_LENGTH(item->slice), &err),
                &err);
        grpc_slice_unref(item->slice);
        mem_free(item);
    }
}

void words_tasks(const struct engine_task *tasks, size_t count)
{
    struct send_list list;
    send_list_init(&list);
    worker_tasks_write(&list, tasks, count);
    check_sent(&list);
}

void words_acks(const struct engine_lease_ack *acks, size_t count)
{
    struct send_list list;
    send_list_init(&list);
    worker_acks_write(&list, acks, count);
    check_sent(&list);
}

void words_extended(const struct engine_lease_extended *leases, size_t count)
{
    struct send_list list;
    send_list_init(&list);
    worker_extended_write(&list, leases, count);
    check_sent(&list);
}

void words_cancel_hint(const struct uuid *uid, int64_t fence)
{
    struct send_list list;
    send_list_init(&list);
    worker_cancel_hint_write(&list, uid, fence);
    check_sent(&list);
}

void words_welcome(uint64_t session)
{
    static char node[] = "node";
    struct send_list list;
    send_list_init(&list);
    worker_welcome_write(&list, node, session, 15000);
    check_sent(&list);
}
