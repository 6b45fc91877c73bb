#include "support/poller.h"

#include "base/clock.h"
#include "support/check.h"

#include <stdio.h>
#include <string.h>

enum { HELD_MAX = 2048, HANDLERS_MAX = 8, CALL_MS = 15000, MARGIN_MS = 5000 };
#define METHOD(name) "/saga.v1.WorkerService/" name

struct poller {
    struct client *client;
    char worker_id[64], instance[64], handlers[256];
    char *handler_names[HANDLERS_MAX];
    size_t handler_count;
    struct raw_lease held[HELD_MAX];
    size_t held_count;
    Saga__V1__LeaseTasksResponse *answer;
};

/* A list of leases as messages. */
struct lease_list {
    Saga__V1__HeldLease items[HELD_MAX], *list[HELD_MAX];
    size_t count;
};

static void list_add(struct lease_list *list, const struct raw_lease *lease)
{
    assert_true(list->count < HELD_MAX);
    Saga__V1__HeldLease *item = &list->items[list->count];
    saga__v1__held_lease__init(item);
    item->saga_uid.data = (uint8_t *)(uintptr_t)lease->uid;
    item->saga_uid.len = sizeof lease->uid;
    item->fence = lease->fence;
    list->list[list->count++] = item;
}

struct poller *poller_new(const char *address, const char *worker_id, const char *instance,
                          const char *handlers)
{
    static int next_instance;
    struct poller *poller = mem_calloc(1, sizeof *poller);
    struct err err;
    assert_non_null(poller);
    ASSERT_OK(client_new(address, &poller->client, &err), &err);
    (void)snprintf(poller->worker_id, sizeof poller->worker_id, "%s", worker_id);
    (void)snprintf(poller->handlers, sizeof poller->handlers, "%s", handlers);
    if (instance)
        (void)snprintf(poller->instance, sizeof poller->instance, "%s", instance);
    else
        (void)snprintf(poller->instance, sizeof poller->instance, "polling-%d", ++next_instance);
    char *rest = NULL;
    for (char *name = strtok_r(poller->handlers, " ", &rest); name;
         name = strtok_r(NULL, " ", &rest)) {
        assert_true(poller->handler_count < HANDLERS_MAX);
        poller->handler_names[poller->handler_count++] = name;
    }
    return poller;
}

static void drop_answer(struct poller *poller)
{
    if (poller->answer)
        saga__v1__lease_tasks_response__free_unpacked(poller->answer, NULL);
    poller->answer = NULL;
}

struct poller *poller_free(struct poller *poller)
{
    if (!poller)
        return NULL;
    drop_answer(poller);
    poller->client = client_free(poller->client);
    mem_free(poller);
    return NULL;
}

struct poller *poller_move(struct poller *poller, const char *address)
{
    struct err err;
    poller->client = client_free(poller->client);
    ASSERT_OK(client_new(address, &poller->client, &err), &err);
    return poller;
}

void poller_forget(struct poller *poller)
{
    poller->held_count = 0;
}

static void let_go(struct poller *poller, const struct raw_lease *lease)
{
    for (size_t i = 0; i < poller->held_count; i++)
        if (memcmp(poller->held[i].uid, lease->uid, sizeof lease->uid) == 0 &&
            poller->held[i].fence == lease->fence) {
            poller->held[i] = poller->held[--poller->held_count];
            return;
        }
}

/* A request and all that it points to. */
struct asked {
    Saga__V1__LeaseTasksRequest request;
    Saga__V1__Hello hello;
    Saga__V1__Subscription handlers[HANDLERS_MAX], *handler_list[HANDLERS_MAX];
    Google__Protobuf__Duration wait;
    struct lease_list held;
};

static struct asked *asked_new(const struct poller *poller, uint32_t max_tasks, int64_t wait_ms)
{
    struct asked *asked = mem_calloc(1, sizeof *asked);
    assert_non_null(asked);
    saga__v1__lease_tasks_request__init(&asked->request);
    saga__v1__hello__init(&asked->hello);
    google__protobuf__duration__init(&asked->wait);
    asked->request.hello = &asked->hello;
    asked->request.max_tasks = max_tasks;
    asked->request.wait = &asked->wait;
    asked->wait.seconds = wait_ms / 1000;
    asked->wait.nanos = (int32_t)(wait_ms % 1000 * 1000000);
    asked->hello.worker_id = (char *)(uintptr_t)poller->worker_id;
    asked->hello.instance = (char *)(uintptr_t)poller->instance;
    for (size_t i = 0; i < poller->handler_count; i++) {
        saga__v1__subscription__init(&asked->handlers[i]);
        asked->handlers[i].handler = poller->handler_names[i];
        asked->handlers[i].max_in_flight = 1000;
        asked->handler_list[i] = &asked->handlers[i];
    }
    asked->hello.handlers = asked->handler_list;
    asked->hello.n_handlers = poller->handler_count;
    for (size_t i = 0; i < poller->held_count; i++)
        list_add(&asked->held, &poller->held[i]);
    asked->hello.held = asked->held.list;
    asked->hello.n_held = asked->held.count;
    return asked;
}

static const Saga__V1__LeaseTasksResponse *keep(struct poller *poller,
                                                Saga__V1__LeaseTasksResponse *answer)
{
    drop_answer(poller);
    poller->answer = answer;
    for (size_t i = 0; i < answer->n_tasks; i++) {
        assert_true(poller->held_count < HELD_MAX);
        poller->held[poller->held_count++] = raw_lease_of(answer->tasks[i]);
    }
    return answer;
}

static ProtobufCMessage *call(struct poller *poller, const char *method,
                              const ProtobufCMessage *request,
                              const ProtobufCMessageDescriptor *reply_type, int64_t limit_ms)
{
    struct err err;
    ProtobufCMessage *reply = NULL;
    ASSERT_OK(client_call(poller->client, method, request, reply_type, limit_ms, &reply, &err),
              &err);
    return reply;
}

const Saga__V1__LeaseTasksResponse *poller_lease(struct poller *poller, uint32_t max_tasks,
                                                 int64_t wait_ms)
{
    struct asked *asked = asked_new(poller, max_tasks, wait_ms);
    Saga__V1__LeaseTasksResponse *answer =
        (void *)call(poller, METHOD("LeaseTasks"), &asked->request.base,
                     &saga__v1__lease_tasks_response__descriptor, wait_ms + MARGIN_MS + CALL_MS);
    mem_free(asked);
    return keep(poller, answer);
}

const Saga__V1__Task *poller_task(struct poller *poller, int64_t limit_ms)
{
    int64_t until = clock_mono_ms(&clock_system) + limit_ms;
    for (;;) {
        int64_t left = until - clock_mono_ms(&clock_system);
        const Saga__V1__LeaseTasksResponse *answer = poller_lease(poller, 1, left > 1 ? left : 1);
        if (answer->n_tasks)
            return answer->tasks[0];
        if (left <= 0)
            fail_msg("no task came");
    }
}

struct raw_stream *poller_ask(const struct poller *poller, const char *address, uint32_t max_tasks,
                              int64_t wait_ms)
{
    struct asked *asked = asked_new(poller, max_tasks, wait_ms);
    size_t size = saga__v1__lease_tasks_request__get_packed_size(&asked->request);
    uint8_t *data = mem_calloc(1, size + 1);
    assert_non_null(data);
    (void)saga__v1__lease_tasks_request__pack(&asked->request, data); /* the size from above */
    mem_free(asked);
    struct raw_stream *stream = NULL;
    struct err err;
    ASSERT_OK(raw_stream_open(address, METHOD("LeaseTasks"), wait_ms + MARGIN_MS, &stream, &err),
              &err);
    ASSERT_OK(raw_stream_send(stream, data, size, CALL_MS, &err), &err);
    mem_free(data);
    return stream;
}

const Saga__V1__LeaseTasksResponse *poller_answer(struct poller *poller, struct raw_stream *stream,
                                                  int64_t limit_ms)
{
    struct bytes bytes = { NULL, 0 };
    if (raw_stream_receive(stream, limit_ms, &bytes) != 1)
        return NULL;
    Saga__V1__LeaseTasksResponse *answer =
        saga__v1__lease_tasks_response__unpack(NULL, bytes.size, bytes.data);
    mem_free(bytes.data);
    assert_non_null(answer);
    return keep(poller, answer);
}

static Saga__V1__ReportOutcomesResponse *report(struct poller *poller,
                                                Saga__V1__TaskReport **reports, size_t count)
{
    Saga__V1__ReportOutcomesRequest request = SAGA__V1__REPORT_OUTCOMES_REQUEST__INIT;
    request.worker_id = poller->worker_id;
    request.instance = poller->instance;
    request.reports = reports;
    request.n_reports = count;
    Saga__V1__ReportOutcomesResponse *reply =
        (void *)call(poller, METHOD("ReportOutcomes"), &request.base,
                     &saga__v1__report_outcomes_response__descriptor, CALL_MS);
    assert_int_equal(reply->n_acks, count);
    return reply;
}

Saga__V1__Ack__Result poller_report(struct poller *poller, const struct raw_lease *lease,
                                    Saga__V1__Outcome outcome, const char *output)
{
    Saga__V1__TaskReport item = SAGA__V1__TASK_REPORT__INIT, *list[] = { &item };
    struct raw_lease of = *lease;
    item.saga_uid = (ProtobufCBinaryData){ sizeof of.uid, of.uid };
    item.fence = of.fence;
    item.outcome = outcome;
    if (output)
        item.output = (ProtobufCBinaryData){ strlen(output), (uint8_t *)(uintptr_t)output };
    Saga__V1__ReportOutcomesResponse *reply = report(poller, list, 1);
    assert_int_equal(reply->acks[0]->fence, of.fence);
    Saga__V1__Ack__Result result = reply->acks[0]->result;
    saga__v1__report_outcomes_response__free_unpacked(reply, NULL);
    let_go(poller, &of);
    return result;
}

void poller_report_all(struct poller *poller)
{
    enum { AT_ONCE = 512 };
    static Saga__V1__TaskReport items[AT_ONCE], *list[AT_ONCE];
    while (poller->held_count) {
        size_t count = poller->held_count < AT_ONCE ? poller->held_count : AT_ONCE;
        struct raw_lease *from = poller->held + poller->held_count - count;
        for (size_t i = 0; i < count; i++) {
            saga__v1__task_report__init(&items[i]);
            items[i].saga_uid = (ProtobufCBinaryData){ sizeof from[i].uid, from[i].uid };
            items[i].fence = from[i].fence;
            items[i].outcome = SAGA__V1__OUTCOME__OUTCOME_DONE;
            list[i] = &items[i];
        }
        Saga__V1__ReportOutcomesResponse *reply = report(poller, list, count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(reply->acks[i]->result, SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
        saga__v1__report_outcomes_response__free_unpacked(reply, NULL);
        poller->held_count -= count;
    }
}

int64_t poller_extend(struct poller *poller, const struct raw_lease *lease, bool *ret_hint)
{
    Saga__V1__ExtendLeasesRequest request = SAGA__V1__EXTEND_LEASES_REQUEST__INIT;
    struct lease_list *list = mem_calloc(1, sizeof *list);
    assert_non_null(list);
    list_add(list, lease);
    request.worker_id = poller->worker_id;
    request.instance = poller->instance;
    request.leases = list->list;
    request.n_leases = 1;
    Saga__V1__ExtendLeasesResponse *reply =
        (void *)call(poller, METHOD("ExtendLeases"), &request.base,
                     &saga__v1__extend_leases_response__descriptor, CALL_MS);
    mem_free(list);
    assert_int_equal(reply->n_leases, 1);
    assert_int_equal(reply->leases[0]->fence, lease->fence);
    const Google__Protobuf__Duration *left = reply->leases[0]->lease;
    int64_t left_ms = left->seconds * 1000 + left->nanos / 1000000;
    if (ret_hint)
        *ret_hint = reply->n_cancel_hints == 1 && reply->cancel_hints[0]->fence == lease->fence;
    saga__v1__extend_leases_response__free_unpacked(reply, NULL);
    return left_ms;
}

void poller_release(struct poller *poller, const struct raw_lease *lease, bool drain)
{
    Saga__V1__ReleaseTasksRequest request = SAGA__V1__RELEASE_TASKS_REQUEST__INIT;
    struct lease_list *list = mem_calloc(1, sizeof *list);
    assert_non_null(list);
    if (lease) {
        list_add(list, lease);
        let_go(poller, lease);
    }
    request.worker_id = poller->worker_id;
    request.instance = poller->instance;
    request.leases = list->list;
    request.n_leases = list->count;
    request.drain = drain;
    ProtobufCMessage *reply = call(poller, METHOD("ReleaseTasks"), &request.base,
                                   &saga__v1__release_tasks_response__descriptor, CALL_MS);
    protobuf_c_message_free_unpacked(reply, NULL);
    mem_free(list);
}
