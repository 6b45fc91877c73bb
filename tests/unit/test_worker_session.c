/* What a worker knows and says. Goal: no slot, report or lease is lost or counted twice over drops
 * and reconnects, and hostile bytes end the stream and nothing else. Method: the session alone,
 * with the time in our hand; messages of the server are packed here, those to it are unpacked. */
#include "support/check.h"

#include "base/mem.h"
#include "session_world.h"

#include <stdio.h>

static void test_credit_is_absolute_and_grows_when_a_report_was_sent(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    expect_nothing(session);
    for (int64_t fence = 1; fence <= 3; fence++)
        deliver(session, debit_name, fence);
    struct saga_task *task = take(session, 1);
    assert_int_equal(saga_task_done(task, "x", 1), 0);
    expect_nothing(session);
    pool_finish(session->pool, task, now);
    expect_report(session, 1, SAGA__V1__OUTCOME__OUTCOME_DONE);
    expect_credit(session, 4, 0); /* only what grew is said */
    expect_nothing(session);
    ack(session, 1, SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    expect_nothing(session); /* the ack frees no second slot */
    assert_int_equal(session->pool->stats.reports_accepted, 1);
    /* Idle: the same totals again, so that something flows. */
    now += SESSION_IDLE_MS;
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND));
    now += SESSION_IDLE_MS;
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND));
    session_lost(session, now);
    session_opened(session, now);
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO));
    expect_credit(session, 3, 2);
    now += SESSION_IDLE_MS;
    expect_credit(session, 3, 2);
    expect_nothing(session);
}

/* Many slots: a quarter of them is said together, and anything while the server has less than a
 * quarter left, so no slot lies idle and few messages are spent. */
static void test_credit_of_many_slots_travels_together(void **state)
{
    struct session *session = *state;
    struct err err;
    char bulk[] = "bulk";
    ASSERT_OK(pool_handle(session->pool, bulk, 8, no_handler, NULL, &err), &err);
    connect_holding(session, 0);
    Saga__V1__WorkerMessage *message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT);
    assert_int_equal(credit_of(message, bulk), 8);
    drop(message);
    for (int64_t fence = 1; fence <= 2; fence++) {
        deliver(session, bulk, fence);
        struct saga_task *task = take(session, fence);
        assert_int_equal(saga_task_done(task, "x", 1), 0);
        pool_finish(session->pool, task, now);
        expect_report(session, fence, SAGA__V1__OUTCOME__OUTCOME_DONE);
        if (fence == 1)
            expect_nothing(session); /* one slot of eight: the server has seven left */
    }
    message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT);
    assert_int_equal(credit_of(message, bulk), 10);
    drop(message);
    for (int64_t fence = 3; fence <= 10; fence++)
        deliver(session, bulk, fence); /* all ten are on their way: none is left to send */
    struct saga_task *task = take(session, 3);
    assert_int_equal(saga_task_done(task, "x", 1), 0);
    pool_finish(session->pool, task, now);
    expect_report(session, 3, SAGA__V1__OUTCOME__OUTCOME_DONE);
    message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT);
    assert_int_equal(credit_of(message, bulk), 11);
    drop(message);
}

static void test_more_tasks_than_credit_end_the_stream(void **state)
{
    struct session *session = *state;
    struct err err;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, ledger_name, 1);
    deliver(session, ledger_name, 2);
    struct wire_task wire;
    wire_task(&wire, ledger_name, 3);
    assert_int_equal(receive_at(session, &wire.message, now, &err), ERR_INVALID);
}

static void test_a_task_that_comes_twice_runs_once(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    deliver(session, debit_name, 1);
    struct saga_task *task = take(session, 1);
    assert_null(pool_take(session->pool, now));
    pool_finish(session->pool, task, now);
}

static void test_a_lost_stream_drops_what_was_not_started_and_keeps_the_rest(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    for (int64_t fence = 1; fence <= 3; fence++)
        deliver(session, debit_name, fence);
    struct saga_task *running = take(session, 1), *reported = take(session, 2);
    assert_int_equal(saga_task_rejected(reported, "NO_FUNDS", "no"), 0);
    pool_finish(session->pool, reported, now);
    expect_report(session, 2, SAGA__V1__OUTCOME__OUTCOME_REJECTED);

    session_lost(session, now);
    assert_null(pool_take(session->pool, now)); /* 3 was never started, and never will be */
    expect_nothing(session);
    connect_holding(session, 2); /* 1 runs, 2 has no ack */
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND));
    expect_report(session, 2, SAGA__V1__OUTCOME__OUTCOME_REJECTED); /* again */
    expect_credit(session, 2, 2); /* one of three slots is taken by 1 */
    ack(session, 2, SAGA__V1__ACK__RESULT__RESULT_DUPLICATE);
    assert_int_equal(session->pool->stats.reports_duplicate, 1);

    /* One that finishes while there is no stream is kept too. */
    session_lost(session, now);
    pool_finish(session->pool, running, now);
    connect_holding(session, 1);
    expect_report(session, 1, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
    ack(session, 1, SAGA__V1__ACK__RESULT__RESULT_STALE);
    ack(session, 1, SAGA__V1__ACK__RESULT__RESULT_STALE); /* of nothing: ignored */
    assert_int_equal(session->pool->stats.reports_stale, 1);
    session_lost(session, now);
    connect_holding(session, 0);
}

static void test_no_outcome_is_unknown(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    pool_finish(session->pool, take(session, 1), now);
    Saga__V1__WorkerMessage *message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT);
    assert_int_equal(message->report->reports[0]->outcome, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
    assert_string_equal(message->report->reports[0]->error_code, "NO_OUTCOME");
    drop(message);
}

static void test_reports_go_in_batches_of_at_most_512(void **state)
{
    struct session *session = *state;
    struct err err;
    ASSERT_OK(pool_handle(session->pool, "many", 1000, no_handler, NULL, &err), &err);
    session_opened(session, now);
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO));
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT));
    char many[] = "many";
    for (int64_t fence = 1; fence <= 600; fence++)
        deliver(session, many, fence);
    struct saga_task *task;
    while ((task = pool_take(session->pool, now)) != NULL)
        pool_finish(session->pool, task, now);
    Saga__V1__WorkerMessage *message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT);
    assert_int_equal(message->report->n_reports, SESSION_REPORTS);
    drop(message);
    message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT);
    assert_int_equal(message->report->n_reports, 600 - SESSION_REPORTS);
    drop(message);
}

static void test_a_report_message_stays_below_the_size_limit(void **state)
{
    struct session *session = *state;
    struct err err;
    enum { COUNT = 20 };
    ASSERT_OK(pool_handle(session->pool, "big", COUNT, no_handler, NULL, &err), &err);
    session_opened(session, now);
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO));
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT));
    char big[] = "big";
    void *output = mem_calloc(1, SAGA_OUTPUT_MAX);
    assert_non_null(output);
    for (int64_t fence = 1; fence <= COUNT; fence++) {
        deliver(session, big, fence);
        struct saga_task *task = take(session, fence);
        assert_int_equal(saga_task_done(task, output, SAGA_OUTPUT_MAX + 1U), -1);
        assert_int_equal(saga_task_done(task, output, SAGA_OUTPUT_MAX), 0);
        pool_finish(session->pool, task, now);
    }
    mem_free(output);
    size_t reported = 0;
    while (reported < COUNT) {
        struct bytes packed;
        ASSERT_OK(session_next(session, now, &packed, &err), &err);
        assert_in_range(packed.size, 1, 4 * 1024 * 1024);
        mem_free(packed.data);
        reported = session->counts[TASK_REPORTED];
    }
}

static void test_a_lease_is_extended_every_third_of_it(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    deliver(session, debit_name, 2); /* waits for a thread: held all the same */
    struct saga_task *task = take(session, 1);
    now += LEASE_MS / 3 - 1;
    expect_nothing(session);
    assert_int_equal(session_wake_ms(session), now + 1);
    now += 1;
    Saga__V1__WorkerMessage *message = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND);
    assert_int_equal(message->extend->n_leases, 2);
    drop(message);
    expect_nothing(session);
    now += LEASE_MS / 3;
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND));
    pool_finish(session->pool, task, now);
}

static void test_the_clock_of_a_lease_runs_from_the_last_confirmation(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    int64_t start = now;
    deliver(session, debit_name, 1);
    struct saga_task *task = take(session, 1);
    now = start + LEASE_MS / 3; /* asked, no answer yet */
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND));
    now = start + LEASE_MS * 80 / 100 - 1;
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND)); /* asked again */
    assert_true(saga_task_still_mine(task));
    assert_int_equal(saga_task_lease_left_ms(task), 1);
    assert_int_equal(saga_task_stop_requested(task), SAGA_STOP_NONE);
    now++;
    assert_false(saga_task_still_mine(task));
    assert_int_equal(saga_task_stop_requested(task), SAGA_STOP_LOST);
    /* An answer counts from when the oldest question without an answer was sent. */
    extended(session, 1, LEASE_MS);
    assert_true(saga_task_still_mine(task));
    assert_int_equal(saga_task_lease_left_ms(task),
                     start + LEASE_MS / 3 + LEASE_MS * 80 / 100 - now);
    /* The second answer was asked for later, but nobody can tell which one this is. */
    int64_t left = saga_task_lease_left_ms(task);
    extended(session, 1, LEASE_MS);
    assert_int_equal(saga_task_lease_left_ms(task), left);
    extended(session, 1, 0);
    assert_false(saga_task_still_mine(task));
    assert_int_equal(saga_task_stop_requested(task), SAGA_STOP_LOST);
    assert_int_equal(session->pool->stats.leases_lost, 1);
    /* Its report counts all the same. */
    assert_int_equal(saga_task_done(task, "x", 1), 0);
    pool_finish(session->pool, task, now);
    expect_report(session, 1, SAGA__V1__OUTCOME__OUTCOME_DONE);
}

static void test_a_message_that_lay_in_the_socket_counts_from_before_the_wait(void **state)
{
    struct session *session = *state;
    struct err err;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    int64_t since = now;
    now += LEASE_MS; /* the process was stopped meanwhile */
    struct wire_task wire;
    wire_task(&wire, debit_name, 1);
    ASSERT_OK(receive_at(session, &wire.message, since, &err), &err);
    assert_null(pool_take(session->pool, now)); /* not started: given back */
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE));
    expect_credit(session, 4, 0);
}

static void test_the_attempt_time_ends_it_too(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    struct wire_task wire;
    wire_task(&wire, debit_name, 1);
    wire.attempt.seconds = 5;
    receive(session, &wire.message);
    struct saga_task *task = take(session, 1);
    now += 4999;
    assert_true(saga_task_still_mine(task));
    assert_int_equal(saga_task_time_left_ms(task), 1);
    now += 1;
    assert_false(saga_task_still_mine(task));
    assert_int_equal(saga_task_time_left_ms(task), 0);
    now += LEASE_MS / 3;
    expect_credit(session, 3, 2); /* idle; such a lease is not extended */
    pool_finish(session->pool, task, now);
}

/* Told when the task's message is gone already; the report is done with. */
static void test_an_output_of_another_type_is_told_and_the_report_forgotten(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    struct saga_task *task = take(session, 1);
    assert_int_equal(saga_task_done(task, "x", 1), 0);
    pool_finish(session->pool, task, now);
    expect_report(session, 1, SAGA__V1__OUTCOME__OUTCOME_DONE);
    ack_with_problem(session, 1, SAGA__V1__ACK__RESULT__RESULT_ACCEPTED, "total: wrong wire type");
    assert_int_equal(session->pool->stats.reports_accepted, 1);
    assert_null(pool_find(session->pool, uid, 1));
}

static void test_a_cancel_hint_stops_the_running_and_gives_back_the_waiting(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    deliver(session, debit_name, 2);
    struct saga_task *task = take(session, 1);
    Saga__V1__CancelHint hint = SAGA__V1__CANCEL_HINT__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    hint.saga_uid = (ProtobufCBinaryData){ .len = sizeof uid, .data = uid };
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_CANCEL_HINT;
    message.cancel_hint = &hint;
    hint.fence = 1;
    receive(session, &message);
    hint.fence = 2;
    receive(session, &message);
    assert_int_equal(saga_task_stop_requested(task), SAGA_STOP_CANCELLED);
    assert_true(saga_task_still_mine(task));
    assert_null(pool_take(session->pool, now));
    Saga__V1__WorkerMessage *release = expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE);
    assert_int_equal(release->release->n_leases, 1);
    assert_int_equal(release->release->leases[0]->fence, 2);
    drop(release);
    pool_finish(session->pool, task, now);
}

static void test_drain_gives_back_waits_and_ends(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    deliver(session, debit_name, 2);
    struct saga_task *task = take(session, 1);
    pool_drain(session->pool, now);
    assert_int_equal(saga_task_stop_requested(task), SAGA_STOP_DRAINING);
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN));
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE)); /* 2 */
    expect_nothing(session);                                          /* and no credit */
    deliver(session, debit_name, 3);                                  /* was on its way */
    assert_null(pool_take(session->pool, now));
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE));
    now += SESSION_LINGER_MS;
    assert_false(pool_is_drained(session->pool, now)); /* 1 runs */
    assert_int_equal(saga_task_done(task, NULL, 0), 0);
    pool_finish(session->pool, task, now);
    expect_report(session, 1, SAGA__V1__OUTCOME__OUTCOME_DONE);
    assert_false(pool_is_drained(session->pool, now)); /* no ack */
    ack(session, 1, SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    assert_true(pool_is_drained(session->pool, now));
}

static void test_drain_waits_for_acks_no_longer_than_its_limit(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    struct saga_task *task = take(session, 1);
    pool_drain(session->pool, now);
    now += 60000; /* a handler may take its time: the limit counts from its end */
    assert_false(pool_is_drained(session->pool, now));
    pool_finish(session->pool, task, now);
    session_lost(session, now);
    assert_false(pool_is_drained(session->pool, now + 4999));
    assert_true(pool_is_drained(session->pool, now + 5000));
}

static void test_a_server_that_goes_away_is_left_once_nothing_is_unsettled(void **state)
{
    struct session *session = *state;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    deliver(session, debit_name, 2);
    struct saga_task *task = take(session, 1);
    Saga__V1__DrainRequested word = SAGA__V1__DRAIN_REQUESTED__INIT;
    Google__Protobuf__Duration grace = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    grace.seconds = 10;
    word.grace = &grace;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_DRAIN_REQUESTED;
    message.drain_requested = &word;
    receive(session, &message);
    assert_false(session_is_over(session, now));
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE));
    expect_nothing(session); /* no credit for a server that goes away */
    assert_false(session_is_over(session, now + 4999));
    assert_true(session_is_over(session, now + 5000)); /* 1 is reported elsewhere */
    pool_finish(session->pool, task, now);
    assert_false(session_is_over(session, now + 5000)); /* it can still be reported here */
    expect_report(session, 1, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
    ack(session, 1, SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    assert_true(session_is_over(session, now));
    session_lost(session, now);
    connect_holding(session, 0);
    expect_credit(session, 3, 2); /* the next server is welcome to send */
}

static void test_a_silent_server_is_given_up(void **state)
{
    struct session *session = *state;
    session_opened(session, now);
    drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO));
    assert_false(session_is_over(session, now + SESSION_WELCOME_MS - 1));
    assert_true(session_is_over(session, now + SESSION_WELCOME_MS));
    welcome(session);
    assert_false(session_is_over(session, now + SESSION_SILENCE_MS - 1));
    assert_true(session_is_over(session, now + SESSION_SILENCE_MS));
}

static void test_back_off_grows_with_jitter_up_to_two_seconds(void **state)
{
    struct session *session = *state;
    int64_t longest = 0;
    for (int i = 0; i < 200; i++) {
        session_opened(session, now);
        session_lost(session, now);
        int64_t delay = session->reconnect_ms - now;
        assert_in_range(delay, 100, 2000);
        assert_true(i > 0 || delay <= 200);
        longest = delay > longest ? delay : longest;
    }
    assert_true(longest > 1600);
    connect_holding(session, 0);
    now += SESSION_STEADY_MS;
    session_lost(session, now);
    assert_in_range(session->reconnect_ms - now, 100, 200); /* it had worked */
}

static void expect_refused(struct session *session, struct wire_task *wire)
{
    struct err err;
    assert_int_equal(receive_at(session, &wire->message, now, &err), ERR_INVALID);
}

static void test_malformed_messages_are_refused(void **state)
{
    struct session *session = *state;
    struct err err;
    char other[] = "other";
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    assert_int_equal(session_receive(session, "\xff\xff\xff", 3, now, now, &err), ERR_INVALID);
    struct wire_task wire;
    wire_task(&wire, debit_name, 1);
    wire.task.saga_uid.len = 15;
    expect_refused(session, &wire);
    wire_task(&wire, debit_name, 0);
    expect_refused(session, &wire);
    wire_task(&wire, other, 1);
    expect_refused(session, &wire);
    wire_task(&wire, debit_name, 1);
    wire.task.lease = NULL;
    expect_refused(session, &wire);
    wire_task(&wire, debit_name, 1);
    wire.lease.nanos = -1;
    expect_refused(session, &wire);
    wire_task(&wire, debit_name, 1);
    wire.task.attempt_remaining = NULL;
    expect_refused(session, &wire);
    wire_task(&wire, debit_name, 1);
    wire.task.saga_start_time = NULL;
    expect_refused(session, &wire);
    wire_task(&wire, debit_name, 1);
    wire.start.seconds = INT64_MAX;
    expect_refused(session, &wire);
    wire_task(&wire, debit_name, 1);
    wire.task.operation = (Saga__V1__OperationKind)77;
    expect_refused(session, &wire);
    /* A year is as long as a lease gets: no overflow of the clock. */
    wire_task(&wire, debit_name, 1);
    wire.lease.seconds = wire.attempt.seconds = INT64_MAX;
    receive(session, &wire.message);
    pool_finish(session->pool, take(session, 1), now);
}

/* Every prefix of a good message, and every single byte of it turned round. */
static void test_damaged_bytes_never_crash(void **state)
{
    struct session *session = *state;
    struct wire_task wire;
    struct err err;
    wire_task(&wire, debit_name, 7);
    uint8_t data[512], damaged[512];
    size_t size = saga__v1__server_message__pack(&wire.message, data);
    assert_true(size <= sizeof data);
    size_t refused = 0;
    for (size_t i = 0; i < size * 256; i++) {
        session_opened(session, now);
        drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO));
        drop(expect(session, SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT));
        memcpy(damaged, data, size);
        damaged[i / 256] = (uint8_t)(damaged[i / 256] ^ (i % 256));
        size_t length = i % 256 == 0 ? i / 256 : size;
        refused += session_receive(session, damaged, length, now, now, &err) != 0;
        session_lost(session, now);
    }
    assert_in_range(refused, 1, size * 256 - 1);
}

static void test_out_of_memory_is_an_error_and_loses_no_report(void **state)
{
    struct session *session = *state;
    struct err err;
    connect_holding(session, 0);
    expect_credit(session, 3, 2);
    deliver(session, debit_name, 1);
    pool_finish(session->pool, take(session, 1), now);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        struct bytes packed;
        mem_fail_at(nth, false);
        int rc = session_next(session, now, &packed, &err);
        mem_fail_at(0, false);
        assert_int_equal(rc, ERR_NOMEM);
    }
    expect_report(session, 1, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
    struct wire_task wire;
    wire_task(&wire, debit_name, 2);
    mem_fail_at(1, false);
    int rc = receive_at(session, &wire.message, now, &err);
    mem_fail_at(0, false);
    assert_int_equal(rc, ERR_NOMEM);
}

static void test_names_and_limits_of_handlers_are_checked(void **state)
{
    struct session *session = *state;
    struct err err;
    assert_int_equal(pool_handle(session->pool, "", 1, no_handler, NULL, &err), ERR_INVALID);
    assert_int_equal(pool_handle(session->pool, "a b", 1, no_handler, NULL, &err), ERR_INVALID);
    assert_int_equal(pool_handle(session->pool, "x", 0, no_handler, NULL, &err), ERR_INVALID);
    assert_int_equal(pool_handle(session->pool, "x", 10001, no_handler, NULL, &err), ERR_INVALID);
    assert_int_equal(pool_handle(session->pool, "x", 1, NULL, NULL, &err), ERR_INVALID);
    assert_int_equal(pool_handle(session->pool, "debit", 1, no_handler, NULL, &err), ERR_EXISTS);
    char name[16];
    for (int i = 2; i < SAGA_HANDLERS_MAX; i++) {
        (void)snprintf(name, sizeof name, "h%d", i);
        ASSERT_OK(pool_handle(session->pool, name, 1, no_handler, NULL, &err), &err);
    }
    assert_int_equal(pool_handle(session->pool, "x", 1, no_handler, NULL, &err), ERR_LIMIT);
}

#define SESSION_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SESSION_TEST(test_credit_is_absolute_and_grows_when_a_report_was_sent),
        SESSION_TEST(test_credit_of_many_slots_travels_together),
        SESSION_TEST(test_more_tasks_than_credit_end_the_stream),
        SESSION_TEST(test_a_task_that_comes_twice_runs_once),
        SESSION_TEST(test_a_lost_stream_drops_what_was_not_started_and_keeps_the_rest),
        SESSION_TEST(test_no_outcome_is_unknown),
        SESSION_TEST(test_reports_go_in_batches_of_at_most_512),
        SESSION_TEST(test_a_report_message_stays_below_the_size_limit),
        SESSION_TEST(test_a_lease_is_extended_every_third_of_it),
        SESSION_TEST(test_the_clock_of_a_lease_runs_from_the_last_confirmation),
        SESSION_TEST(test_a_message_that_lay_in_the_socket_counts_from_before_the_wait),
        SESSION_TEST(test_the_attempt_time_ends_it_too),
        SESSION_TEST(test_an_output_of_another_type_is_told_and_the_report_forgotten),
        SESSION_TEST(test_a_cancel_hint_stops_the_running_and_gives_back_the_waiting),
        SESSION_TEST(test_drain_gives_back_waits_and_ends),
        SESSION_TEST(test_drain_waits_for_acks_no_longer_than_its_limit),
        SESSION_TEST(test_a_server_that_goes_away_is_left_once_nothing_is_unsettled),
        SESSION_TEST(test_a_silent_server_is_given_up),
        SESSION_TEST(test_back_off_grows_with_jitter_up_to_two_seconds),
        SESSION_TEST(test_malformed_messages_are_refused),
        SESSION_TEST(test_damaged_bytes_never_crash),
        SESSION_TEST(test_out_of_memory_is_an_error_and_loses_no_report),
        SESSION_TEST(test_names_and_limits_of_handlers_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
