#include "support/raw_worker.h"

#include "base/clock.h"
#include "support/check.h"
#include "support/raw_stream.h"

#include <stdio.h>

enum { SEND_MS = 10000, WELCOME_MS = 20000, STREAM_MS = 900 * 1000, MESSAGES_MAX = 4096 };

struct raw_worker {
    struct raw_stream *stream;
    Saga__V1__ServerMessage *messages[MESSAGES_MAX]; /* everything that came */
    size_t count;
    /* Where each kind is read next: message, item in it. */
    struct cursor {
        size_t message, item;
    } cursors[16];
    const char *problem; /* of the last ack; in its message */
};

static char *borrow(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's fields are not const; packing only reads */
}

struct raw_worker *raw_worker_open(const char *address)
{
    struct raw_worker *worker = mem_calloc(1, sizeof *worker);
    struct err err;
    assert_non_null(worker);
    ASSERT_OK(
        raw_stream_open(address, "/saga.v1.WorkerService/Work", STREAM_MS, &worker->stream, &err),
        &err);
    return worker;
}

struct raw_worker *raw_worker_cut(struct raw_worker *worker)
{
    if (!worker)
        return NULL;
    worker->stream = raw_stream_free(worker->stream);
    for (size_t i = 0; i < worker->count; i++)
        saga__v1__server_message__free_unpacked(worker->messages[i], NULL);
    mem_free(worker);
    return NULL;
}

void raw_worker_send_bytes(struct raw_worker *worker, const void *data, size_t size)
{
    struct err err;
    ASSERT_OK(raw_stream_send(worker->stream, data, size, SEND_MS, &err), &err);
}

void raw_worker_send(struct raw_worker *worker, const Saga__V1__WorkerMessage *message)
{
    size_t size = saga__v1__worker_message__get_packed_size(message);
    uint8_t *data = mem_calloc(1, size + 1);
    assert_non_null(data);
    (void)saga__v1__worker_message__pack(message, data); /* the size from above */
    raw_worker_send_bytes(worker, data, size);
    mem_free(data);
}

/* Takes what has come; false when nothing did within the limit. */
static bool receive(struct raw_worker *worker, int64_t limit_ms)
{
    struct bytes bytes = { NULL, 0 };
    if (raw_stream_receive(worker->stream, limit_ms, &bytes) != 1)
        return false;
    Saga__V1__ServerMessage *message =
        saga__v1__server_message__unpack(NULL, bytes.size, bytes.data);
    mem_free(bytes.data);
    assert_non_null(message);
    assert_true(worker->count < MESSAGES_MAX);
    worker->messages[worker->count++] = message;
    return true;
}

static size_t items_of(const Saga__V1__ServerMessage *message)
{
    switch (message->command_case) {
    case SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS:
        return message->tasks->n_tasks;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS:
        return message->acks->n_acks;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_EXTENDED:
        return message->extended->n_leases;
    default:
        return 1;
    }
}

/* The next item of a kind of message; NULL: none within the limit. */
static const Saga__V1__ServerMessage *next_item(struct raw_worker *worker,
                                                Saga__V1__ServerMessage__CommandCase kind,
                                                int64_t limit_ms, size_t *ret_item)
{
    int64_t until = clock_mono_ms(&clock_system) + limit_ms;
    struct cursor *cursor = &worker->cursors[kind];
    for (;;) {
        for (; cursor->message < worker->count; cursor->message++, cursor->item = 0) {
            const Saga__V1__ServerMessage *message = worker->messages[cursor->message];
            if (message->command_case == kind && cursor->item < items_of(message)) {
                *ret_item = cursor->item++;
                return message;
            }
        }
        int64_t left = until - clock_mono_ms(&clock_system);
        if (!receive(worker, left > 0 ? left : 0))
            return NULL;
    }
}

struct raw_worker *raw_worker_hello(const char *address, const char *worker_id,
                                    const char *instance, const char *handler,
                                    const struct raw_lease *held, size_t held_count)
{
    enum { HELD_MAX = 256 };
    static int next_instance;
    char random[32];
    (void)snprintf(random, sizeof random, "instance-%d", ++next_instance);
    struct raw_worker *worker = raw_worker_open(address);
    Saga__V1__Subscription subscription = SAGA__V1__SUBSCRIPTION__INIT;
    Saga__V1__Subscription *subscriptions[] = { &subscription };
    subscription.handler = borrow(handler);
    subscription.max_in_flight = 100;
    Saga__V1__HeldLease leases[HELD_MAX], *lease_list[HELD_MAX];
    assert_true(held_count <= HELD_MAX);
    for (size_t i = 0; i < held_count; i++) {
        saga__v1__held_lease__init(&leases[i]);
        leases[i].saga_uid.data = (uint8_t *)(uintptr_t)held[i].uid;
        leases[i].saga_uid.len = sizeof held[i].uid;
        leases[i].fence = held[i].fence;
        lease_list[i] = &leases[i];
    }
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    hello.worker_id = borrow(worker_id);
    hello.instance = borrow(instance ? instance : random);
    hello.handlers = subscriptions;
    hello.n_handlers = 1;
    hello.held = lease_list;
    hello.n_held = held_count;
    hello.sdk = borrow("raw");
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO;
    message.hello = &hello;
    raw_worker_send(worker, &message);
    size_t item;
    assert_non_null(
        next_item(worker, SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME, WELCOME_MS, &item));
    return worker;
}

void raw_worker_credit(struct raw_worker *worker, const char *handler, uint64_t total)
{
    Saga__V1__Credit__PerHandler one = SAGA__V1__CREDIT__PER_HANDLER__INIT;
    Saga__V1__Credit__PerHandler *list[] = { &one };
    one.handler = borrow(handler);
    one.total = total;
    Saga__V1__Credit credit = SAGA__V1__CREDIT__INIT;
    credit.handlers = list;
    credit.n_handlers = 1;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT;
    message.credit = &credit;
    raw_worker_send(worker, &message);
}

void raw_worker_report_task(struct raw_worker *worker, const Saga__V1__TaskReport *report)
{
    Saga__V1__TaskReport *list[] = { (Saga__V1__TaskReport *)(uintptr_t)report };
    Saga__V1__Report reports = SAGA__V1__REPORT__INIT;
    reports.reports = list;
    reports.n_reports = 1;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT;
    message.report = &reports;
    raw_worker_send(worker, &message);
}

void raw_worker_report(struct raw_worker *worker, const struct raw_lease *lease,
                       Saga__V1__Outcome outcome, const char *output)
{
    bool success = outcome == SAGA__V1__OUTCOME__OUTCOME_DONE ||
                   outcome == SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE;
    Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT;
    report.saga_uid.data = (uint8_t *)(uintptr_t)lease->uid;
    report.saga_uid.len = sizeof lease->uid;
    report.fence = lease->fence;
    report.outcome = outcome;
    if (success) {
        report.output.data = (uint8_t *)borrow(output);
        report.output.len = strlen(output);
    } else {
        report.error_code = borrow(output);
    }
    raw_worker_report_task(worker, &report);
}

/* One lease for Extend and Release. */
struct held_one {
    Saga__V1__HeldLease lease, *list[1];
};

static void hold(struct held_one *held, const struct raw_lease *lease)
{
    saga__v1__held_lease__init(&held->lease);
    held->lease.saga_uid.data = (uint8_t *)(uintptr_t)lease->uid;
    held->lease.saga_uid.len = sizeof lease->uid;
    held->lease.fence = lease->fence;
    held->list[0] = &held->lease;
}

void raw_worker_extend(struct raw_worker *worker, const struct raw_lease *lease)
{
    struct held_one held;
    hold(&held, lease);
    Saga__V1__Extend extend = SAGA__V1__EXTEND__INIT;
    extend.leases = held.list;
    extend.n_leases = 1;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND;
    message.extend = &extend;
    raw_worker_send(worker, &message);
}

void raw_worker_release(struct raw_worker *worker, const struct raw_lease *lease)
{
    struct held_one held;
    hold(&held, lease);
    Saga__V1__Release release = SAGA__V1__RELEASE__INIT;
    release.leases = held.list;
    release.n_leases = 1;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE;
    message.release = &release;
    raw_worker_send(worker, &message);
}

void raw_worker_drain(struct raw_worker *worker)
{
    Saga__V1__Drain drain = SAGA__V1__DRAIN__INIT;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN;
    message.drain = &drain;
    raw_worker_send(worker, &message);
}

const Saga__V1__Task *raw_worker_task(struct raw_worker *worker, int64_t limit_ms)
{
    size_t item;
    const Saga__V1__ServerMessage *message =
        next_item(worker, SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS, limit_ms, &item);
    return message ? message->tasks->tasks[item] : NULL;
}

struct raw_lease raw_lease_of(const Saga__V1__Task *task)
{
    struct raw_lease lease = { .fence = task->fence };
    assert_int_equal(task->saga_uid.len, sizeof lease.uid);
    memcpy(lease.uid, task->saga_uid.data, sizeof lease.uid);
    return lease;
}

Saga__V1__Ack__Result raw_worker_ack(struct raw_worker *worker, const struct raw_lease *lease)
{
    size_t item;
    const Saga__V1__ServerMessage *message =
        next_item(worker, SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS, SEND_MS, &item);
    assert_non_null(message);
    const Saga__V1__Ack *ack = message->acks->acks[item];
    assert_int_equal(ack->saga_uid.len, sizeof lease->uid);
    assert_memory_equal(ack->saga_uid.data, lease->uid, sizeof lease->uid);
    assert_int_equal(ack->fence, lease->fence);
    worker->problem = ack->problem;
    return ack->result;
}

const char *raw_worker_problem(const struct raw_worker *worker)
{
    return worker->problem;
}

Saga__V1__Ack__Result raw_worker_settle(struct raw_worker *worker, const struct raw_lease *lease,
                                        Saga__V1__Outcome outcome, const char *output)
{
    raw_worker_report(worker, lease, outcome, output);
    return raw_worker_ack(worker, lease);
}

int64_t raw_worker_extended(struct raw_worker *worker, int64_t limit_ms)
{
    size_t item;
    const Saga__V1__ServerMessage *message =
        next_item(worker, SAGA__V1__SERVER_MESSAGE__COMMAND_EXTENDED, limit_ms, &item);
    if (!message)
        return -1;
    const Google__Protobuf__Duration *left = message->extended->leases[item]->lease;
    return left ? left->seconds * 1000 + left->nanos / 1000000 : 0;
}

bool raw_worker_was_told_to_drain(struct raw_worker *worker, int64_t limit_ms)
{
    size_t item;
    return next_item(worker, SAGA__V1__SERVER_MESSAGE__COMMAND_DRAIN_REQUESTED, limit_ms, &item) !=
           NULL;
}

bool raw_worker_got_cancel_hint(struct raw_worker *worker, int64_t limit_ms)
{
    size_t item;
    return next_item(worker, SAGA__V1__SERVER_MESSAGE__COMMAND_CANCEL_HINT, limit_ms, &item) !=
           NULL;
}

int raw_worker_status(struct raw_worker *worker, int64_t limit_ms, const char **ret_message)
{
    return raw_stream_status(worker->stream, limit_ms, ret_message);
}
