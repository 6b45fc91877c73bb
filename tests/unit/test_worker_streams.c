/* A worker with a stream to each of several nodes. Goal: slots are shared so that no node starves
 * and no handler runs more often than it may; what a dead stream leaves is spoken for by another
 * one; each Hello tells all that the process holds. Method: sessions of one pool with the time in
 * our hand. A random walk over the same: test_worker_walk.c. */
#include "support/check.h"

#include "base/mem.h"
#include "session_world.h"

static void expect_leases(struct session *session, Saga__V1__WorkerMessage__CommandCase command,
                          size_t count, int64_t fence)
{
    Saga__V1__WorkerMessage *message = expect(session, command);
    bool extends = command == SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND;
    size_t leases = extends ? message->extend->n_leases : message->release->n_leases;
    Saga__V1__HeldLease **held = extends ? message->extend->leases : message->release->leases;
    assert_int_equal(leases, count);
    assert_int_equal(held[0]->fence, fence);
    drop(message);
}

#define EXTEND   SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND
#define RELEASE  SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED

static void test_one_address_is_the_only_stream(void **state)
{
    struct session *s[STREAMS];
    for (unsigned count = 1; count <= 2; count++) {
        open_world(*state, s, count);
        session_opened(s[0], now);
        Saga__V1__WorkerMessage *hello = expect(s[0], SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO);
        assert_int_equal(hello->hello->only_stream, count == 1);
        drop(hello);
        session_lost(s[0], now);
    }
}

static void test_idle_slots_are_offered_to_every_node(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 3);
    for (int i = 0; i < 3; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
}

/* All use their offers at once: no more run than may, the rest waits a second and goes back. */
static void test_what_comes_beyond_the_slots_waits_and_is_given_back(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    struct saga_task *running[3];
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    for (int64_t fence = 1; fence <= 6; fence++)
        deliver(s[fence > 3], debit_name, fence);
    running[0] = take(s[0], 1); /* from each node in turn */
    running[1] = take(s[0], 4);
    running[2] = take(s[0], 2);
    assert_null(pool_take(s[0]->pool, now));
    expect_nothing(s[0]);
    now += POOL_SURPLUS_MS - 1;
    expect_nothing(s[0]);
    expect_nothing(s[1]);
    now += POOL_SPARE_MS;
    expect_leases(s[0], RELEASE, 1, 3);
    expect_leases(s[1], RELEASE, 2, 5);
    expect_nothing(s[0]); /* no credit for them: the slots are taken */
    expect_nothing(s[1]);
    for (int i = 0; i < 3; i++)
        finish(s[0], running[i]);
}

/* One that waits within the slots stays, however long no thread is free. */
static void test_what_has_a_slot_may_wait(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    for (int64_t fence = 1; fence <= 3; fence++)
        deliver(s[0], debit_name, fence);
    for (int i = 0; i < 5; i++) {
        now += POOL_SURPLUS_MS;
        expect_nothing(s[0]);
    }
    for (int64_t fence = 1; fence <= 3; fence++)
        finish(s[0], take(s[0], fence));
}

/* When all are taken each slot that becomes free goes to one node, in turn; one with unused offers
 * needs none, and keeps none from the others. */
static void test_slots_of_a_busy_worker_are_offered_in_turn(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    struct saga_task *tasks[3];
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    for (int64_t fence = 1; fence <= 3; fence++)
        deliver(s[0], debit_name, fence);
    for (int i = 0; i < 3; i++)
        tasks[i] = take(s[0], i + 1);
    /* The second node has nothing to do: the first one gets every slot. */
    uint64_t total = 3;
    for (int i = 0; i < 3; i++) {
        finish(s[0], tasks[i]);
        expect_report(s[0], i + 1, DONE);
        expect_credit(s[0], ++total, 0);
        expect_nothing(s[1]);
        deliver(s[0], debit_name, 10 + i);
        tasks[i] = take(s[0], 10 + i);
    }
    /* It sends as much as it was offered, and two of that are given back. */
    for (int64_t fence = 21; fence <= 23; fence++)
        deliver(s[1], debit_name, fence);
    finish(s[0], tasks[0]);
    expect_report(s[0], 10, DONE);
    tasks[0] = take(s[0], 21);
    now += POOL_SURPLUS_MS + POOL_SPARE_MS;
    expect_nothing(s[0]);
    expect_leases(s[1], RELEASE, 2, 22);
    /* Both are busy: now they take turns. */
    uint64_t other = 3;
    for (int i = 0; i < 6; i++) {
        struct session *at = tasks[i % 3]->session;
        int64_t fence = saga_task_fence(tasks[i % 3]);
        finish(s[0], tasks[i % 3]);
        expect_report(at, fence, DONE);
        bool second = i % 2 == 0;
        if (second)
            expect_credit(s[1], ++other, 0);
        else
            expect_credit(s[0], ++total, 0);
        expect_nothing(s[!second]);
        deliver(s[second], debit_name, 30 + i);
        tasks[i % 3] = take(s[0], 30 + i);
    }
    for (int i = 0; i < 3; i++)
        finish(s[0], tasks[i]);
}

/* A slot that its node does not use is offered to all after a moment. */
static void test_a_slot_that_lies_idle_is_offered_to_all(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    for (int64_t fence = 1; fence <= 2; fence++) {
        deliver(s[0], ledger_name, fence);
        deliver(s[1], ledger_name, 10 + fence);
    }
    struct saga_task *first = take(s[0], 1), *second = take(s[0], 11);
    now += POOL_SURPLUS_MS + POOL_SPARE_MS;
    expect_leases(s[0], RELEASE, 1, 2);
    expect_leases(s[1], RELEASE, 1, 12);
    finish(s[0], first);
    expect_report(s[0], 1, DONE);
    expect_nothing(s[0]);
    expect_credit(s[1], 0, 3); /* its turn, but it has nothing */
    now += POOL_SPARE_MS - 1;
    expect_nothing(s[0]);
    now += 1;
    expect_credit(s[0], 0, 3);
    expect_nothing(s[1]);
    finish(s[0], second);
}

/* What a dead stream leaves: running tasks go on, another stream extends and reports them, what was
 * not started is given back there and missing in the next Hello. */
static void test_another_stream_speaks_for_a_dead_one(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    for (int64_t fence = 1; fence <= 3; fence++)
        deliver(s[0], debit_name, fence);
    deliver(s[0], ledger_name, 4);
    struct saga_task *running = take(s[0], 1);
    finish(s[0], take(s[0], 2));
    expect_report(s[0], 2, DONE); /* it gets no ack */
    finish(s[0], take(s[0], 3));

    session_lost(s[0], now);
    assert_null(pool_take(s[0]->pool, now)); /* 4 was not started, and never will be */
    expect_leases(s[1], EXTEND, 1, 1);
    Saga__V1__WorkerMessage *message = expect(s[1], SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT);
    assert_int_equal(message->report->n_reports, 2);
    drop(message);
    expect_leases(s[1], RELEASE, 1, 4);
    ack(s[1], 2, ACCEPTED);
    extended(s[1], 1, LEASE_MS);
    assert_int_equal(saga_task_lease_left_ms(running), LEASE_MS * 80 / 100);

    connect_holding(s[0], 2); /* 1 runs, 3 is reported on the other stream and has no ack */
    finish(s[0], running);
    assert_int_equal(running->session->number, 1); /* who spoke for it goes on */
    expect_report(s[1], 1, DONE);
    ack(s[1], 1, ACCEPTED);
    ack(s[1], 3, ACCEPTED);
    session_lost(s[0], now);
    connect_holding(s[0], 0);
    assert_int_equal(s[0]->pool->stats.reports_accepted, 3);
}

/* With no stream at all everything waits for the first one that is welcome. */
static void test_the_first_stream_that_lives_speaks_for_all(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 3);
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    deliver(s[0], debit_name, 1);
    deliver(s[1], debit_name, 2);
    deliver(s[1], debit_name, 3);
    struct saga_task *first = take(s[0], 1);
    finish(s[0], take(s[0], 2));
    session_lost(s[1], now);
    session_lost(s[0], now);
    session_opened(s[2], now);
    Saga__V1__WorkerMessage *hello = expect(s[2], SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO);
    assert_int_equal(hello->hello->n_held, 2); /* 3 was not started */
    drop(hello);
    expect_credit(s[2], 1, 2); /* nothing else: nobody has welcomed it */
    welcome(s[2]);
    expect_leases(s[2], EXTEND, 1, 1);
    expect_report(s[2], 2, DONE);
    expect_leases(s[2], RELEASE, 1, 3);
    finish(s[0], first);
    expect_report(s[2], 1, DONE);
}

/* The answer to an extension counts from its own question, whatever happens to other streams. */
static void test_a_dead_stream_does_not_touch_the_leases_of_others(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    deliver(s[0], debit_name, 1);
    deliver(s[1], debit_name, 2);
    struct saga_task *moved = take(s[0], 1), *own = take(s[0], 2);
    int64_t start = now;
    now = start + LEASE_MS / 3;
    expect_leases(s[0], EXTEND, 1, 1);
    expect_leases(s[1], EXTEND, 1, 2);
    now += 1000;
    s[1]->nudged = false;
    session_lost(s[0], now);
    assert_true(s[1]->nudged);
    expect_leases(s[1], EXTEND, 1, 1); /* asked anew; 2 was asked for here */
    now += 1000;
    extended(s[1], 1, LEASE_MS);
    extended(s[1], 2, LEASE_MS);
    assert_int_equal(saga_task_lease_left_ms(own), LEASE_MS * 80 / 100 - 2000);
    assert_int_equal(saga_task_lease_left_ms(moved), LEASE_MS * 80 / 100 - 1000);
    finish(s[0], moved);
    finish(s[0], own);
}

/* Also what waits on another stream is held: it may start at any moment. */
static void test_hello_lists_what_waits_on_other_streams(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    connect_holding(s[0], 0);
    expect_credit(s[0], 3, 2);
    deliver(s[0], debit_name, 1);
    deliver(s[0], debit_name, 2);
    struct saga_task *task = take(s[0], 1);
    connect_holding(s[1], 2);
    session_lost(s[1], now);
    expect_nothing(s[0]); /* nothing of that stream: nothing to say */
    finish(s[0], task);
}

/* A node that goes away speaks for nobody and is offered nothing. */
static void test_a_node_that_drains_is_no_deputy(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 3);
    for (int i = 0; i < 3; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    Saga__V1__DrainRequested word = SAGA__V1__DRAIN_REQUESTED__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_DRAIN_REQUESTED;
    message.drain_requested = &word;
    receive(s[1], &message);
    deliver(s[0], debit_name, 1);
    struct saga_task *task = take(s[0], 1);
    session_lost(s[0], now);
    assert_int_equal(task->session->number, 2);
    session_lost(s[2], now);
    assert_int_equal(task->session->number, 2); /* nobody is left: it waits */
    finish(s[0], task);
}

static void test_a_drain_is_said_on_every_stream(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    deliver(s[1], debit_name, 1);
    deliver(s[1], debit_name, 2);
    finish(s[0], take(s[0], 1));
    pool_drain(s[0]->pool, now);
    drop(expect(s[0], SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN));
    expect_nothing(s[0]);
    now += SESSION_LINGER_MS;
    assert_false(pool_is_drained(s[0]->pool, now)); /* 2 waits to be given back */
    drop(expect(s[1], SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN));
    expect_report(s[1], 1, DONE);
    expect_leases(s[1], RELEASE, 1, 2);
    now += SESSION_LINGER_MS;
    assert_false(pool_is_drained(s[0]->pool, now)); /* no ack */
    ack(s[1], 1, ACCEPTED);
    assert_true(pool_is_drained(s[0]->pool, now));
    session_lost(s[0], now);
    assert_false(session_is_wanted(s[0])); /* the second one can do it all */
    session_lost(s[1], now);
    assert_true(session_is_wanted(s[0]));
}

/* A task may be on its way on each of them until the node has read it. */
static void test_a_drain_waits_for_each_stream(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, 2);
    for (int i = 0; i < 2; i++) {
        connect_holding(s[i], 0);
        expect_credit(s[i], 3, 2);
    }
    pool_drain(s[0]->pool, now);
    drop(expect(s[0], SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN));
    now += SESSION_LINGER_MS;
    assert_false(pool_is_drained(s[0]->pool, now));
    drop(expect(s[1], SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN));
    assert_false(pool_is_drained(s[0]->pool, now));
    assert_true(pool_is_drained(s[0]->pool, now + SESSION_LINGER_MS));
}

/* Never more without an ack than a Hello can list: what it does not list counts as never started.
 * What waits and finds no room in it is given back. */
static void test_all_that_was_started_fits_into_a_hello(void **state)
{
    struct session *s[STREAMS];
    struct err err;
    open_world(*state, s, 2);
    char huge[] = "huge";
    ASSERT_OK(pool_handle(s[0]->pool, huge, SAGA_IN_FLIGHT_MAX, no_handler, NULL, &err), &err);
    connect_holding(s[0], 0);
    drop(expect(s[0], SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT));
    for (int64_t fence = 1; fence <= POOL_STARTED_MAX - 1; fence++)
        deliver(s[0], huge, fence);
    for (int64_t fence = 1; fence <= POOL_STARTED_MAX - 1; fence++)
        finish(s[0], take(s[0], fence));
    for (Saga__V1__WorkerMessage *message; (message = next(s[0]));)
        drop(message);
    deliver(s[0], debit_name, 20001);
    deliver(s[0], debit_name, 20002);
    finish(s[0], take(s[0], 20001));
    assert_null(pool_take(s[0]->pool, now)); /* 10,000 have no ack */
    expect_report(s[0], 20001, DONE);
    connect_holding(s[1], POOL_STARTED_MAX);
    expect_leases(s[0], RELEASE, 1, 20002);
    deliver(s[0], debit_name, 20003);
    assert_null(pool_take(s[0]->pool, now));
    ack(s[0], 7, ACCEPTED);
    finish(s[0], take(s[0], 20003));
}

#define STREAMS_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STREAMS_TEST(test_one_address_is_the_only_stream),
        STREAMS_TEST(test_idle_slots_are_offered_to_every_node),
        STREAMS_TEST(test_what_comes_beyond_the_slots_waits_and_is_given_back),
        STREAMS_TEST(test_what_has_a_slot_may_wait),
        STREAMS_TEST(test_slots_of_a_busy_worker_are_offered_in_turn),
        STREAMS_TEST(test_a_slot_that_lies_idle_is_offered_to_all),
        STREAMS_TEST(test_another_stream_speaks_for_a_dead_one),
        STREAMS_TEST(test_the_first_stream_that_lives_speaks_for_all),
        STREAMS_TEST(test_a_dead_stream_does_not_touch_the_leases_of_others),
        STREAMS_TEST(test_hello_lists_what_waits_on_other_streams),
        STREAMS_TEST(test_a_node_that_drains_is_no_deputy),
        STREAMS_TEST(test_a_drain_is_said_on_every_stream),
        STREAMS_TEST(test_a_drain_waits_for_each_stream),
        STREAMS_TEST(test_all_that_was_started_fits_into_a_hello),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
