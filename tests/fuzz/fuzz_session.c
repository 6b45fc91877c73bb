/* Goal: nothing that a server says breaks a worker, and what the worker says a server takes.
 * Method: the input is a script: messages of the server (well formed ones about tasks that are
 * there, and bytes as they come), handlers that take and finish tasks, time, lost streams, drains.
 * Each message of the session is read as the server reads it. */
#include "fuzz.h"
#include "rpc/worker_decode.h"
#include "session.h"
#include "wire/validate.h"

#include <string.h>

enum { TAKEN_MAX = 16, STEPS_MAX = 400, MESSAGE_MAX = 64 * 1024 };

static char debit[] = "debit", ledger[] = "ledger", other[] = "other";
static uint8_t uids[4][TASK_UID_SIZE] = { { 0 }, { 1 }, { 2 }, { 3 } };

struct world {
    struct script script;
    struct pool pool;
    struct session session;
    int64_t now_ms, since_ms;
    struct saga_task *taken[TAKEN_MAX];
    size_t taken_count;
    bool is_open, greeted;
};

static int64_t fixed_ms(void *ctx)
{
    return ((struct world *)ctx)->now_ms;
}

static void never_run(struct saga_task *task, void *ctx)
{
    (void)task;
    (void)ctx;
    abort(); /* the script is the handler */
}

/* --- what the server says --------------------------------------------------------------------- */

static void lose(struct world *world)
{
    session_lost(&world->session, world->now_ms);
    FUZZ_CHECK(world->session.reconnect_ms >= world->now_ms);
    FUZZ_CHECK(world->session.reconnect_ms <= world->now_ms + SESSION_BACKOFF_MAX_MS);
    world->is_open = false;
}

static void receive_bytes(struct world *world, const void *data, size_t size)
{
    if (!world->is_open)
        return;
    struct err err;
    if (session_receive(&world->session, data, size, world->since_ms, world->now_ms, &err)) {
        FUZZ_CHECK(err.code == ERR_INVALID || err.code == ERR_NOMEM);
        lose(world); /* as its owner does */
    }
}

static void receive(struct world *world, const Saga__V1__ServerMessage *message)
{
    static uint8_t data[4096];
    FUZZ_CHECK(saga__v1__server_message__get_packed_size(message) <= sizeof data);
    receive_bytes(world, data, saga__v1__server_message__pack(message, data));
}

static ProtobufCBinaryData some_uid(struct script *script)
{
    uint8_t choice = script_byte(script);
    size_t size = choice & 128 ? choice % 20 : TASK_UID_SIZE;
    return (ProtobufCBinaryData){ size, size <= TASK_UID_SIZE ? uids[choice % 4] : uids[0] };
}

static Google__Protobuf__Duration some_duration(struct script *script)
{
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
    duration.seconds = script_number(script);
    if (script_choice(script, 8) == 0)
        duration.nanos = (int32_t)script_number(script);
    return duration;
}

static void say_task(struct world *world)
{
    static char *const handlers[] = { debit, debit, debit, ledger, other };
    static char text[] = "text", key[] = "key";
    struct script *script = &world->script;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    Saga__V1__Tasks tasks = SAGA__V1__TASKS__INIT;
    Saga__V1__Task task = SAGA__V1__TASK__INIT, *list[] = { &task, &task };
    Saga__V1__StepOutput output = SAGA__V1__STEP_OUTPUT__INIT, *outputs[] = { &output };
    Saga__V1__ActionOutcome action = SAGA__V1__ACTION_OUTCOME__INIT;
    Saga__V1__Task__LabelsEntry label = SAGA__V1__TASK__LABELS_ENTRY__INIT, *labels[] = { &label };
    Google__Protobuf__Timestamp start = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Google__Protobuf__Duration lease = some_duration(script), attempt = some_duration(script);
    unsigned with = script_byte(script);
    task.saga_uid = some_uid(script);
    task.fence = script_number(script);
    task.handler = handlers[script_choice(script, ARRAY_LEN(handlers))];
    task.operation = (Saga__V1__OperationKind)script_choice(script, 5);
    task.step = text;
    task.lease = with & 1 ? NULL : &lease;
    task.attempt_remaining = with & 2 ? NULL : &attempt;
    task.saga_start_time = with & 4 ? NULL : &start;
    start.seconds = with & 8 ? script_number(script) : 1700000000;
    output.step = text;
    task.n_outputs = task.n_labels = with & 16 ? 1 : 0;
    task.outputs = outputs;
    label.key = key;
    label.value = text;
    task.labels = labels;
    action.kind = (Saga__V1__ActionOutcome__Kind)script_choice(script, 4);
    task.action = with & 32 ? &action : NULL;
    tasks.n_tasks = with & 64 ? 2 : 1;
    tasks.tasks = list;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS;
    message.tasks = &tasks;
    receive(world, &message);
}

static void say_ack(struct world *world)
{
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    Saga__V1__Acks acks = SAGA__V1__ACKS__INIT;
    Saga__V1__Ack ack = SAGA__V1__ACK__INIT, *list[] = { &ack };
    ack.saga_uid = some_uid(&world->script);
    ack.fence = script_number(&world->script);
    ack.result = (Saga__V1__Ack__Result)script_choice(&world->script, 5);
    acks.n_acks = 1;
    acks.acks = list;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS;
    message.acks = &acks;
    receive(world, &message);
}

static void say_extended(struct world *world)
{
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    Saga__V1__Extended extended = SAGA__V1__EXTENDED__INIT;
    Saga__V1__Extended__Lease lease = SAGA__V1__EXTENDED__LEASE__INIT, *list[] = { &lease };
    Google__Protobuf__Duration duration = some_duration(&world->script);
    lease.saga_uid = some_uid(&world->script);
    lease.fence = script_number(&world->script);
    lease.lease = script_choice(&world->script, 4) ? &duration : NULL;
    extended.n_leases = 1;
    extended.leases = list;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_EXTENDED;
    message.extended = &extended;
    receive(world, &message);
}

static void say_hint(struct world *world)
{
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    Saga__V1__CancelHint hint = SAGA__V1__CANCEL_HINT__INIT;
    hint.saga_uid = some_uid(&world->script);
    hint.fence = script_number(&world->script);
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_CANCEL_HINT;
    message.cancel_hint = &hint;
    receive(world, &message);
}

static void say_drain(struct world *world)
{
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    Saga__V1__DrainRequested drain = SAGA__V1__DRAIN_REQUESTED__INIT;
    Google__Protobuf__Duration grace = some_duration(&world->script);
    drain.grace = script_choice(&world->script, 4) ? &grace : NULL;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_DRAIN_REQUESTED;
    message.drain_requested = &drain;
    receive(world, &message);
}

static void say_welcome(struct world *world)
{
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    Saga__V1__Welcome welcome = SAGA__V1__WELCOME__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME;
    message.welcome = &welcome;
    receive(world, &message);
}

static void say_bytes(struct world *world)
{
    size_t size = 0;
    const uint8_t *data = script_piece(&world->script, &size);
    receive_bytes(world, data, size);
}

/* --- what the worker does --------------------------------------------------------------------- */

static void open_stream(struct world *world)
{
    if (world->is_open)
        lose(world);
    session_opened(&world->session, world->now_ms);
    world->is_open = true;
    world->greeted = false;
}

/* The server takes it: the first one is Hello, no other is. */
static void check_said(struct world *world, const struct bytes *said)
{
    fail_memory(0); /* the server has enough */
    struct arena arena = { 0 };
    struct engine_worker_event event = { 0 };
    ProtobufCMessage *message = NULL;
    struct err err;
    FUZZ_CHECK(world->is_open && said->size <= MESSAGE_MAX);
    FUZZ_OK(wire_unpack(&saga__v1__worker_message__descriptor, said->data, said->size, &arena,
                        &message, &err),
            &err);
    FUZZ_OK(worker_event_read((void *)message, LIMIT_PAYLOAD_BYTES, &arena, &event, &err), &err);
    FUZZ_CHECK((event.kind == WORKER_HELLO) == !world->greeted);
    world->greeted = true;
    arena_done(&arena);
}

/* Everything there is to say: it comes to an end. */
static void say_all(struct world *world)
{
    for (int i = 0;; i++) {
        struct bytes said = { 0 };
        struct err err;
        FUZZ_CHECK(i < 100);
        if (session_next(&world->session, world->now_ms, &said, &err)) {
            FUZZ_CHECK(err.code == ERR_NOMEM && world->is_open);
            lose(world);
            return;
        }
        if (!said.size)
            return;
        check_said(world, &said);
        mem_free(said.data);
    }
}

/* What a handler may ask. */
static void look_at(const struct saga_task *task)
{
    struct saga_bytes output = { 0 };
    FUZZ_CHECK(saga_task_namespace(task) && saga_task_definition(task) && saga_task_saga_id(task));
    FUZZ_CHECK(saga_task_step(task) && saga_task_handler(task) && saga_task_traceparent(task));
    FUZZ_CHECK(saga_task_uid(task) && saga_task_idempotency_key(task));
    FUZZ_CHECK(saga_task_fence(task) > 0);
    (void)saga_task_run(task);
    (void)saga_task_revision(task);
    (void)saga_task_started_at_us(task);
    (void)saga_task_try(task);
    (void)saga_task_guarded(task);
    (void)saga_task_thread(task);
    FUZZ_CHECK(saga_task_request_type(task) && saga_task_output_type(task));
    (void)saga_task_request(task);
    (void)saga_task_input(task);
    (void)saga_task_action_output(task);
    (void)saga_task_label(task, "key");
    (void)saga_task_output_of(task, "text", &output);
    enum saga_operation operation = saga_task_operation(task);
    bool knows_action = saga_task_action_outcome(task) != SAGA_ACTION_NONE;
    FUZZ_CHECK(operation == SAGA_PROBE || knows_action == (operation == SAGA_COMPENSATION));
    struct saga_probed probed;
    FUZZ_CHECK(saga_task_probed(task, &probed) == (operation == SAGA_PROBE));
    (void)saga_task_send_before_us(task);
    FUZZ_CHECK(saga_task_still_mine(task) == (saga_task_lease_left_ms(task) > 0));
    FUZZ_CHECK(saga_task_lease_left_ms(task) <= saga_task_time_left_ms(task));
    if (saga_task_stop_requested(task) != SAGA_STOP_LOST)
        FUZZ_CHECK(saga_task_still_mine(task));
}

static void take(struct world *world)
{
    if (world->taken_count == TAKEN_MAX)
        return;
    struct saga_task *task = pool_take(&world->pool, world->now_ms);
    if (!task)
        return;
    world->taken[world->taken_count++] = task;
    FUZZ_CHECK(saga_task_still_mine(task));
    look_at(task);
}

static void set_outcome(struct script *script, struct saga_task *task)
{
    char text[300];
    size_t size = 0;
    unsigned what = script_choice(script, 6);
    const uint8_t *piece = script_piece(script, &size);
    (void)snprintf(text, sizeof text, "%.*s", (int)size, (const char *)piece);
    switch (what) {
    case 0:
        (void)saga_task_done(task, piece, size); /* what is refused here leaves it as it was */
        break;
    case 1:
        (void)saga_task_already_done(task, piece, size, size % 2);
        break;
    case 2:
        (void)saga_task_rejected(task, text, text);
        break;
    case 3:
        (void)saga_task_retry(task, "CODE", text, script_number(script));
        break;
    case 4:
        (void)saga_task_unknown(task, text, NULL);
        break;
    default: /* what only a probe says, or none at all */
        if (size % 3 == 1)
            (void)saga_task_not_done(task);
        else if (size % 3 == 2)
            (void)saga_task_still_unknown(task, "CODE", text);
        break;
    }
}

static void finish(struct world *world)
{
    if (!world->taken_count)
        return;
    size_t place = script_choice(&world->script, (unsigned)world->taken_count);
    struct saga_task *task = world->taken[place];
    look_at(task);
    set_outcome(&world->script, task);
    pool_finish(&world->pool, task, world->now_ms);
    world->taken[place] = world->taken[--world->taken_count];
}

static void pass_time(struct world *world)
{
    static const int64_t spans_ms[] = { 1, 100, 1000, 10000, 36000 };
    world->now_ms += spans_ms[script_choice(&world->script, ARRAY_LEN(spans_ms))];
}

static void drain(struct world *world)
{
    pool_drain(&world->pool, world->now_ms);
}

static void end_memory(struct world *world)
{
    fail_memory(script_byte(&world->script));
}

static void lose_stream(struct world *world)
{
    if (world->is_open)
        lose(world);
}

/* --- a script --------------------------------------------------------------------------------- */

static void check_session(struct world *world)
{
    const struct session *session = &world->session;
    size_t held = 0;
    for (size_t i = 0; i < world->pool.handler_count; i++)
        held += world->pool.handlers[i].in_use;
    FUZZ_CHECK(held == session->counts[TASK_QUEUED] + session->counts[TASK_RUNNING] +
                           session->counts[TASK_FINISHED]);
    FUZZ_CHECK(session->counts[TASK_RUNNING] == world->taken_count);
    if (pool_is_drained(&world->pool, world->now_ms))
        FUZZ_CHECK(!world->taken_count);
    (void)session_wake_ms(session); /* any time */
    if (world->is_open && session_is_over(session, world->now_ms))
        lose(world);
}

static void step(struct world *world)
{
    static void (*const steps[])(struct world *) = {
        say_all,   open_stream, say_welcome, say_task,   take,       finish,       say_ack,
        pass_time, say_all,     say_task,    say_hint,   say_drain,  say_extended, say_bytes,
        take,      lose_stream, drain,       end_memory, end_memory,
    };
    unsigned choice = script_byte(&world->script);
    world->since_ms = choice & 128 ? world->now_ms - 50 : world->now_ms;
    steps[choice % 128 % ARRAY_LEN(steps)](world);
    check_session(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;
    world = (struct world){ .script = { data, size }, .now_ms = 1000000 };
    struct clock clock = { fixed_ms, fixed_ms, &world };
    struct err err;
    FUZZ_OK(pool_init(&world.pool, "worker-1", 5000, &clock, 42, &err), &err);
    FUZZ_OK(pool_handle(&world.pool, debit, 3, never_run, NULL, &err), &err);
    FUZZ_OK(pool_handle(&world.pool, ledger, 1, never_run, NULL, &err), &err);
    session_init(&world.session, &world.pool);
    for (int i = 0; i < STEPS_MAX && world.script.left; i++)
        step(&world);
    fail_memory(0);
    while (world.taken_count)
        finish(&world);
    session_done(&world.session);
    pool_done(&world.pool);
    return 0;
}
