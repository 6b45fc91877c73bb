#include "reporter.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/raw_stream.h"
#include "support/wait.h"

#include <assert.h>
#include <inttypes.h>
#include <saga/v1/worker.pb-c.h>
#include <string.h>

enum {
    OPEN_MS = 2000, /* for the Welcome */
    STREAM_MS = 600 * 1000,
    SEND_MS = 2000,
    LOOK_MS = 5,    /* for the next message */
    ACK_MS = 4000,  /* without one the stream is cut */
    SOON_MS = 60,   /* most reports */
    LATE_MS = 5500, /* those that come after the lease */
    FENCE_SEQ_BITS = 40,
    HANDLERS = 2,
};

static const char *const handlers[HANDLERS] = { "act", "undo" };

struct held {
    bool used, sent; /* sent on this stream */
    size_t handler;
    uint8_t uid[16];
    int64_t fence, due_ms, sent_ms;
    int64_t call; /* 0: not reported yet */
    bool again;   /* was acknowledged, and is reported once more */
    Saga__V1__Outcome outcome;
    struct history_call report;
};

struct desk { /* of one thread */
    struct reporter *reporter;
    struct world *world;
    struct raw_stream *stream;
    size_t node;
    char instance[40];
    struct held held[REPORTER_SLOTS];
    uint64_t received[HANDLERS], credit[HANDLERS]; /* on this stream */
};

static int64_t now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

static bool chance(struct desk *desk, int per_mille)
{
    return rng_below(&desk->reporter->caller.rng, 1000) < (uint64_t)per_mille;
}

static void cut(struct desk *desk)
{
    desk->stream = raw_stream_free(desk->stream);
    memset(desk->received, 0, sizeof desk->received);
    memset(desk->credit, 0, sizeof desk->credit);
    for (size_t i = 0; i < REPORTER_SLOTS; i++)
        desk->held[i].sent = false;
}

/* --- sending ---------------------------------------------------------------------------------- */

static bool send_message(struct desk *desk, Saga__V1__WorkerMessage__CommandCase kind,
                         Saga__V1__WorkerMessage *message)
{
    struct err err;
    message->command_case = kind;
    size_t size = saga__v1__worker_message__get_packed_size(message);
    uint8_t *data = mem_calloc(1, size + 1);
    assert(data);
    (void)saga__v1__worker_message__pack(message, data); /* the size from above */
    int rc = raw_stream_send(desk->stream, data, size, SEND_MS, &err);
    mem_free(data);
    return rc == 0;
}

static bool send_hello(struct desk *desk)
{
    Saga__V1__Subscription subscriptions[HANDLERS], *list[HANDLERS];
    Saga__V1__HeldLease leases[REPORTER_SLOTS], *held[REPORTER_SLOTS];
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    for (size_t i = 0; i < HANDLERS; i++) {
        saga__v1__subscription__init(&subscriptions[i]);
        subscriptions[i].handler = (char *)(uintptr_t)handlers[i]; /* only read */
        subscriptions[i].max_in_flight = REPORTER_SLOTS;
        list[i] = &subscriptions[i];
    }
    for (size_t i = 0; i < REPORTER_SLOTS; i++) {
        if (!desk->held[i].used)
            continue;
        Saga__V1__HeldLease *lease = &leases[hello.n_held];
        saga__v1__held_lease__init(lease);
        lease->saga_uid.data = desk->held[i].uid;
        lease->saga_uid.len = sizeof desk->held[i].uid;
        lease->fence = desk->held[i].fence;
        held[hello.n_held++] = lease;
    }
    hello.worker_id = desk->instance;
    hello.instance = desk->instance;
    hello.handlers = list;
    hello.n_handlers = HANDLERS;
    hello.held = held;
    hello.sdk = (char *)(uintptr_t) "reporter"; /* only read */
    message.hello = &hello;
    return send_message(desk, SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO, &message);
}

/* As much as each handler has free slots. */
static bool send_credit(struct desk *desk)
{
    Saga__V1__Credit__PerHandler ones[HANDLERS], *list[HANDLERS];
    Saga__V1__Credit credit = SAGA__V1__CREDIT__INIT;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    bool grows = false;
    for (size_t i = 0; i < HANDLERS; i++) {
        uint64_t total = desk->received[i] + REPORTER_SLOTS / HANDLERS;
        for (size_t j = 0; j < REPORTER_SLOTS; j++)
            total -= desk->held[j].used && desk->held[j].handler == i;
        grows |= total > desk->credit[i];
        desk->credit[i] = total;
        saga__v1__credit__per_handler__init(&ones[i]);
        ones[i].handler = (char *)(uintptr_t)handlers[i]; /* only read */
        ones[i].total = total;
        list[i] = &ones[i];
    }
    credit.handlers = list;
    credit.n_handlers = HANDLERS;
    message.credit = &credit;
    return !grows || send_message(desk, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT, &message);
}

static bool send_report(struct desk *desk, struct held *held)
{
    Saga__V1__TaskReport one = SAGA__V1__TASK_REPORT__INIT, *list[] = { &one };
    Saga__V1__Report report = SAGA__V1__REPORT__INIT;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    if (held->call == 0) {
        held->report.node = (int64_t)desk->node; /* where it was said first */
        held->call = history_invoke(desk->world->log, &held->report);
    }
    one.saga_uid.data = held->uid;
    one.saga_uid.len = sizeof held->uid;
    one.fence = held->fence;
    one.outcome = held->outcome;
    one.error_code = (char *)(uintptr_t) "CHANCE"; /* only read */
    if (held->outcome == SAGA__V1__OUTCOME__OUTCOME_DONE)
        one.error_code = (char *)(uintptr_t) "";
    report.reports = list;
    report.n_reports = 1;
    message.report = &report;
    held->sent = true;
    held->sent_ms = now_ms();
    return send_message(desk, SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT, &message);
}

/* --- tasks ------------------------------------------------------------------------------------ */

/* What this worker will say, and what follows from it at least. */
static void decide(struct desk *desk, const Saga__V1__Task *task, struct held *held)
{
    bool undo = task->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    bool once = strcmp(task->step, "b") == 0; /* an unknown one would park */
    struct history_call *report = &held->report;
    held->outcome = SAGA__V1__OUTCOME__OUTCOME_DONE;
    if (chance(desk, 60))
        held->outcome = SAGA__V1__OUTCOME__OUTCOME_RETRY;
    else if (!undo && chance(desk, 80))
        held->outcome = SAGA__V1__OUTCOME__OUTCOME_REJECTED;
    else if (!undo && !once && chance(desk, 30))
        held->outcome = SAGA__V1__OUTCOME__OUTCOME_UNKNOWN;
    report->rank = 0;
    if (held->outcome == SAGA__V1__OUTCOME__OUTCOME_REJECTED)
        report->rank = 1;
    if (held->outcome == SAGA__V1__OUTCOME__OUTCOME_DONE && !undo && strcmp(task->step, "c") == 0)
        report->rank = 1;
    if (held->outcome == SAGA__V1__OUTCOME__OUTCOME_DONE && undo && strcmp(task->step, "a") == 0)
        report->rank = 2;
    const ProtobufCEnumValue *word =
        protobuf_c_enum_descriptor_get_value(&saga__v1__outcome__descriptor, (int)held->outcome);
    (void)snprintf(report->outcome, HISTORY_TEXT_SIZE, "%s", word->name + strlen("OUTCOME_"));
}

static void uid_text(const uint8_t uid[16], char ret[HISTORY_TEXT_SIZE])
{
    size_t at = 0;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            ret[at++] = '-';
        (void)snprintf(ret + at, 3, "%02x", uid[i]);
        at += 2;
    }
}

static void take_task(struct desk *desk, const Saga__V1__Task *task)
{
    struct held *held = desk->held;
    while (held < desk->held + REPORTER_SLOTS && held->used)
        held++;
    assert(held < desk->held + REPORTER_SLOTS); /* credit was kept */
    assert(task->saga_uid.len == sizeof held->uid);
    *held = (struct held){ .used = true,
                           .handler = strcmp(task->handler, handlers[1]) == 0,
                           .fence = task->fence };
    memcpy(held->uid, task->saga_uid.data, sizeof held->uid);
    held->due_ms = now_ms() + (chance(desk, 8) ? LATE_MS : 0) +
                   (int64_t)rng_below(&desk->reporter->caller.rng, SOON_MS);
    struct history_call *report = &held->report;
    history_call_init(report, HISTORY_REPORT);
    report->client = desk->reporter->caller.id;
    report->seq = task->fence & (((int64_t)1 << FENCE_SEQ_BITS) - 1);
    (void)snprintf(report->key, HISTORY_TEXT_SIZE, "%s", task->saga_id);
    uid_text(held->uid, report->uid);
    struct history_call note = *report;
    note.what = HISTORY_TASK;
    note.node = (int64_t)desk->node;
    (void)snprintf(note.step, HISTORY_TEXT_SIZE, "%s", task->step);
    history_note(desk->world->log, &note);
    decide(desk, task, held);
    desk->received[held->handler]++;
}

static struct held *find(struct desk *desk, const Saga__V1__Ack *ack)
{
    for (size_t i = 0; i < REPORTER_SLOTS; i++) {
        struct held *held = &desk->held[i];
        if (held->used && held->call != 0 && held->fence == ack->fence &&
            ack->saga_uid.len == sizeof held->uid &&
            memcmp(held->uid, ack->saga_uid.data, sizeof held->uid) == 0)
            return held;
    }
    return NULL;
}

/* Whoever was told sees it, at any node. */
static void read_back(struct desk *desk, const char *key)
{
    struct caller *caller = &desk->reporter->caller;
    if (chance(desk, 150))
        caller_journal(caller, caller_some_node(caller), key);
    if (chance(desk, 150))
        caller_get(caller, caller_some_node(caller), key);
}

static void take_ack(struct desk *desk, const Saga__V1__Ack *ack)
{
    static const char *const words[] = { "UNSPECIFIED", "ACCEPTED", "DUPLICATE", "STALE" };
    struct held *held = find(desk, ack);
    if (!held)
        return; /* a second ack of what was sent twice */
    struct history_call answer;
    history_call_init(&answer, HISTORY_REPORT);
    answer.end = HISTORY_OK;
    (void)snprintf(answer.answer, sizeof answer.answer, "%s", words[ack->result & 3]);
    history_end(desk->world->log, held->call, &answer);
    atomic_fetch_add(&desk->world->acks, 1);
    char key[HISTORY_TEXT_SIZE];
    memcpy(key, held->report.key, sizeof key);
    if (!held->again && chance(desk, 40)) { /* the same once more */
        held->again = true;
        held->call = 0;
        held->sent = false;
        held->due_ms = now_ms() + (int64_t)rng_below(&desk->reporter->caller.rng, SOON_MS);
    } else {
        held->used = false;
    }
    read_back(desk, key);
}

static void take_message(struct desk *desk, const Saga__V1__ServerMessage *message)
{
    if (message->command_case == SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS)
        for (size_t i = 0; i < message->tasks->n_tasks; i++)
            take_task(desk, message->tasks->tasks[i]);
    if (message->command_case == SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS)
        for (size_t i = 0; i < message->acks->n_acks; i++)
            take_ack(desk, message->acks->acks[i]);
}

/* False: the stream has ended. *ret_kind: what came, NOT_SET for nothing. */
static bool receive(struct desk *desk, int64_t limit_ms,
                    Saga__V1__ServerMessage__CommandCase *ret_kind)
{
    struct bytes bytes = { NULL, 0 };
    *ret_kind = SAGA__V1__SERVER_MESSAGE__COMMAND__NOT_SET;
    int rc = raw_stream_receive(desk->stream, limit_ms, &bytes);
    if (rc != 1)
        return rc == 0;
    Saga__V1__ServerMessage *message =
        saga__v1__server_message__unpack(NULL, bytes.size, bytes.data);
    mem_free(bytes.data);
    assert(message);
    *ret_kind = message->command_case;
    take_message(desk, message);
    saga__v1__server_message__free_unpacked(message, NULL);
    return true;
}

/* --- the thread ------------------------------------------------------------------------------- */

static bool open_stream(struct desk *desk)
{
    struct err err;
    Saga__V1__ServerMessage__CommandCase kind;
    desk->node = caller_some_node(&desk->reporter->caller);
    if (raw_stream_open(desk->world->addresses[desk->node], "/saga.v1.WorkerService/Work",
                        STREAM_MS, &desk->stream, &err) != 0)
        return false;
    if (send_hello(desk) && receive(desk, OPEN_MS, &kind) &&
        kind == SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME)
        return true;
    cut(desk);
    return false;
}

static bool reports_due(struct desk *desk)
{
    int64_t now = now_ms();
    for (size_t i = 0; i < REPORTER_SLOTS; i++) {
        struct held *held = &desk->held[i];
        if (held->used && !held->sent && held->due_ms <= now && !send_report(desk, held))
            return false;
        if (held->used && held->sent && held->sent_ms + ACK_MS < now)
            return false; /* nobody answers: elsewhere */
    }
    return true;
}

static bool holds_something(const struct desk *desk)
{
    for (size_t i = 0; i < REPORTER_SLOTS; i++)
        if (desk->held[i].used)
            return true;
    return false;
}

static void *reporter_run(void *ctx)
{
    struct reporter *reporter = ctx;
    struct desk *desk = mem_calloc(1, sizeof *desk);
    assert(desk);
    desk->reporter = reporter;
    desk->world = reporter->caller.world;
    (void)snprintf(desk->instance, sizeof desk->instance, "reporter-%" PRId64, reporter->caller.id);
    while (!atomic_load(&desk->world->leave)) {
        if (!desk->stream && !open_stream(desk)) {
            wait_ms(20);
            continue;
        }
        Saga__V1__ServerMessage__CommandCase kind;
        if (!send_credit(desk) || !receive(desk, LOOK_MS, &kind) || !reports_due(desk))
            cut(desk);
        else if (chance(desk, 1)) {
            cut(desk);
            atomic_fetch_add(&desk->world->cuts, 1);
        }
    }
    cut(desk);
    reporter->left_behind = holds_something(desk);
    mem_free(desk);
    return NULL;
}

int reporter_start(struct reporter *reporter, struct world *world, int64_t id, uint64_t seed)
{
    *reporter = (struct reporter){ .started = false };
    caller_init(&reporter->caller, world, id, seed);
    reporter->started = pthread_create(&reporter->thread, NULL, reporter_run, reporter) == 0;
    return reporter->started ? 0 : -1;
}

void reporter_join(struct reporter *reporter)
{
    if (reporter->started)
        (void)pthread_join(reporter->thread, NULL); /* started once, joined once */
    reporter->started = false;
    caller_done(&reporter->caller);
}
