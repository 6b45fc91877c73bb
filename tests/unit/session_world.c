#include "session_world.h"

#include "support/check.h"

int64_t now;

static int64_t fake_now(void *ctx)
{
    (void)ctx;
    return now;
}
static const struct clock fake_clock = { fake_now, fake_now, NULL };

void no_handler(struct saga_task *task, void *ctx)
{
    (void)task;
    (void)ctx;
}

int setup(void **state)
{
    static struct pool pool;
    static struct session session;
    struct err err;
    now = 1000000;
    SETUP_OK(pool_init(&pool, "worker-1", 5000, &fake_clock, 42, &err), &err);
    SETUP_OK(pool_handle(&pool, "debit", 3, no_handler, NULL, &err), &err);
    SETUP_OK(pool_handle(&pool, "ledger", 2, no_handler, NULL, &err), &err);
    session_init(&session, &pool);
    *state = &session;
    return 0;
}

int teardown(void **state)
{
    struct session *first = *state;
    struct pool *pool = first->pool;
    for (unsigned i = 0; i < pool->session_count; i++)
        session_done(pool->sessions[i]);
    pool_done(pool);
    return 0;
}

void open_world(struct session *first, struct session *ret[STREAMS], unsigned count)
{
    static struct session more[STREAMS - 1];
    ret[0] = first;
    for (unsigned i = 1; i < count; i++) {
        session_init(&more[i - 1], first->pool);
        ret[i] = &more[i - 1];
    }
}

/* What is sent next; NULL: nothing. Freed by the caller. */
Saga__V1__WorkerMessage *next(struct session *session)
{
    struct err err;
    struct bytes packed;
    ASSERT_OK(session_next(session, now, &packed, &err), &err);
    if (packed.size == 0)
        return NULL;
    Saga__V1__WorkerMessage *message =
        saga__v1__worker_message__unpack(NULL, packed.size, packed.data);
    mem_free(packed.data);
    assert_non_null(message);
    return message;
}

void drop(Saga__V1__WorkerMessage *message)
{
    saga__v1__worker_message__free_unpacked(message, NULL);
}

Saga__V1__WorkerMessage *expect(struct session *session,
                                Saga__V1__WorkerMessage__CommandCase command)
{
    Saga__V1__WorkerMessage *message = next(session);
    assert_non_null(message);
    assert_int_equal(message->command_case, command);
    return message;
}

void expect_nothing(struct session *session)
{
    assert_null(next(session));
}

int receive_at(struct session *session, Saga__V1__ServerMessage *message, int64_t since,
               struct err *err)
{
    uint8_t data[4096];
    assert_true(saga__v1__server_message__get_packed_size(message) <= sizeof data);
    size_t size = saga__v1__server_message__pack(message, data);
    return session_receive(session, data, size, since, now, err);
}

void receive(struct session *session, Saga__V1__ServerMessage *message)
{
    struct err err;
    ASSERT_OK(receive_at(session, message, now, &err), &err);
}

void welcome(struct session *session)
{
    Saga__V1__Welcome word = SAGA__V1__WELCOME__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME;
    message.welcome = &word;
    receive(session, &message);
}

/* Opens a stream, and checks Hello's list of held fences. */
void connect_holding(struct session *session, size_t held)
{
    session_opened(session, now);
    Saga__V1__WorkerMessage *hello = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO);
    assert_string_equal(hello->hello->worker_id, "worker-1");
    assert_int_equal(strlen(hello->hello->instance), 32);
    assert_int_equal(hello->hello->n_handlers, session->pool->handler_count);
    assert_int_equal(hello->hello->n_held, held);
    drop(hello);
    welcome(session);
}

uint64_t credit_of(const Saga__V1__WorkerMessage *message, const char *handler)
{
    for (size_t i = 0; i < message->credit->n_handlers; i++)
        if (strcmp(message->credit->handlers[i]->handler, handler) == 0)
            return message->credit->handlers[i]->total;
    return 0;
}

void expect_credit(struct session *session, uint64_t debit, uint64_t ledger)
{
    Saga__V1__WorkerMessage *message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT);
    assert_int_equal(credit_of(message, "debit"), debit);
    assert_int_equal(credit_of(message, "ledger"), ledger);
    drop(message);
}

uint8_t uid[TASK_UID_SIZE] = { 1, 2, 3 };
char debit_name[] = "debit", ledger_name[] = "ledger";

void wire_task(struct wire_task *wire, char *handler, int64_t fence)
{
    saga__v1__task__init(&wire->task);
    google__protobuf__duration__init(&wire->lease);
    google__protobuf__duration__init(&wire->attempt);
    google__protobuf__timestamp__init(&wire->start);
    saga__v1__tasks__init(&wire->tasks);
    saga__v1__server_message__init(&wire->message);
    wire->lease.seconds = LEASE_MS / 1000;
    wire->attempt.seconds = ATTEMPT_MS / 1000;
    wire->start.seconds = 1700000000;
    wire->task.saga_uid = (ProtobufCBinaryData){ .len = sizeof uid, .data = uid };
    wire->task.fence = fence;
    wire->task.handler = handler;
    wire->task.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    wire->task.lease = &wire->lease;
    wire->task.attempt_remaining = &wire->attempt;
    wire->task.saga_start_time = &wire->start;
    wire->pointer = &wire->task;
    wire->tasks.n_tasks = 1;
    wire->tasks.tasks = &wire->pointer;
    wire->message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS;
    wire->message.tasks = &wire->tasks;
}

void deliver(struct session *session, char *handler, int64_t fence)
{
    struct wire_task wire;
    wire_task(&wire, handler, fence);
    receive(session, &wire.message);
}

struct saga_task *take(struct session *session, int64_t fence)
{
    struct saga_task *task = pool_take(session->pool, now);
    assert_non_null(task);
    assert_int_equal(saga_task_fence(task), fence);
    return task;
}

void finish(struct session *session, struct saga_task *task)
{
    assert_int_equal(saga_task_done(task, NULL, 0), 0);
    pool_finish(session->pool, task, now);
}

void ack(struct session *session, int64_t fence, Saga__V1__Ack__Result result)
{
    ack_with_problem(session, fence, result, "");
}

void ack_with_problem(struct session *session, int64_t fence, Saga__V1__Ack__Result result,
                      const char *problem)
{
    Saga__V1__Ack one = SAGA__V1__ACK__INIT, *pointer = &one;
    Saga__V1__Acks acks = SAGA__V1__ACKS__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    one.saga_uid = (ProtobufCBinaryData){ .len = sizeof uid, .data = uid };
    one.fence = fence;
    one.result = result;
    one.problem = (char *)(uintptr_t)problem; /* packing only reads */
    acks.n_acks = 1;
    acks.acks = &pointer;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS;
    message.acks = &acks;
    receive(session, &message);
}

void extended(struct session *session, int64_t fence, int64_t lease_ms)
{
    Saga__V1__Extended__Lease one = SAGA__V1__EXTENDED__LEASE__INIT, *pointer = &one;
    Google__Protobuf__Duration lease = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__Extended leases = SAGA__V1__EXTENDED__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    lease.seconds = lease_ms / 1000;
    one.saga_uid = (ProtobufCBinaryData){ .len = sizeof uid, .data = uid };
    one.fence = fence;
    one.lease = &lease;
    leases.n_leases = 1;
    leases.leases = &pointer;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_EXTENDED;
    message.extended = &leases;
    receive(session, &message);
}

void expect_report(struct session *session, int64_t fence, Saga__V1__Outcome outcome)
{
    Saga__V1__WorkerMessage *message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT);
    assert_int_equal(message->report->n_reports, 1);
    assert_int_equal(message->report->reports[0]->fence, fence);
    assert_int_equal(message->report->reports[0]->outcome, outcome);
    drop(message);
}
