/* Workers without a stream. Goal: the promises that hold over a stream hold over unary calls:
 * nothing leaves before its commit, one holder is believed, nobody's silence and no lost answer
 * stops a saga, and what certainly did not start burns no try. Method: pollers by hand, at a real
 * server; slow scenes are started together. */
#include "base/clock.h"
#include "support/black_hole.h"
#include "support/poller.h"
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

enum { SOON = 10000, INVALID_ARGUMENT = 3, ABORTED = 10, CONFIRM_MS = 10000, SILENCE_MS = 45000 };
#define ACCEPTED  SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DUPLICATE SAGA__V1__ACK__RESULT__RESULT_DUPLICATE
#define STALE     SAGA__V1__ACK__RESULT__RESULT_STALE
#define DONE      SAGA__V1__OUTCOME__OUTCOME_DONE
#define REJECTED  SAGA__V1__OUTCOME__OUTCOME_REJECTED

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "1s" } };

/* Slow scenes: they begin before the first test and are looked at in the last ones. */
enum { LOST = 2 };
static struct black_hole *holes[LOST];
static struct poller *lost[LOST], *silent;
static struct raw_stream *lost_calls[LOST];
static struct raw_lease silent_lease;
static int64_t lost_at, silent_at;

static void lose_an_answer(size_t i, const char *handler, const char *step)
{
    struct err err;
    char steps[128];
    (void)snprintf(steps, sizeof steps,
                   "a: %s handler=%s lease=3600s attempt_timeout=7200s | IDEMPOTENT", step,
                   handler);
    rig_define(&rig, handler, NULL, steps);
    ASSERT_OK(black_hole_start(rig.port, &holes[i], &err), &err);
    lost[i] = poller_new(rig.address, handler, NULL, handler);
    int64_t connected = rig_counter(&rig, "workers_connected");
    lost_calls[i] = poller_ask(lost[i], black_hole_address(holes[i]), 2, 60000);
    while (rig_counter(&rig, "workers_connected") == connected)
        wait_ms(20);
    black_hole_freeze(holes[i]);
    rig_start(&rig, handler, handler, "");
}

/* L3: the server writes answers that never arrive. */
static void lose_answers(void)
{
    lose_an_answer(0, "lost", "IDEMPOTENT");
    lost_at = clock_mono_ms(&clock_system);
    lose_an_answer(1, "lost_once", "ONCE");
}

/* It has its task, said so, and is not heard of again. */
static void fall_silent(void)
{
    rig_define(&rig, "silent", NULL,
               "a: IDEMPOTENT handler=silent lease=3600s attempt_timeout=7200s | none");
    rig_start(&rig, "silent", "silent", "");
    silent = poller_new(rig.address, "silent", NULL, "silent");
    silent_lease = raw_lease_of(poller_task(silent, SOON));
    assert_true(poller_extend(silent, &silent_lease, NULL) > 3500 * 1000);
    silent_at = clock_mono_ms(&clock_system);
}

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int begin_slow_scenes(void **state)
{
    (void)state;
    lose_answers();
    fall_silent();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < LOST; i++) {
        lost_calls[i] = raw_stream_free(lost_calls[i]);
        lost[i] = poller_free(lost[i]);
        holes[i] = black_hole_free(holes[i]);
    }
    silent = poller_free(silent);
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static int64_t released(const char *prefix)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                     " WHERE s.saga_id LIKE '%s%%' AND outcome = 'RELEASED'",
                     prefix);
}

/* --- the ordinary way ------------------------------------------------------------------------- */

static void test_p2_a_poller_carries_a_saga_and_its_reports_count_once(void **state)
{
    (void)state;
    rig_define(&rig, "plain", NULL,
               "a: IDEMPOTENT handler=plain | none\nb: IDEMPOTENT handler=plain | none");
    struct poller *poller = poller_new(rig.address, "plain", NULL, "plain");
    rig_start(&rig, "plain", "plain", "");
    const Saga__V1__Task *task = poller_task(poller, SOON);
    assert_string_equal(task->saga_id, "plain");
    assert_string_equal(task->step, "a");
    assert_int_equal(task->try_, 1);
    struct raw_lease first = raw_lease_of(task), wrong = first;
    wrong.fence += 1;
    assert_int_equal(poller_report(poller, &wrong, DONE, "x"), STALE);
    assert_int_equal(poller_report(poller, &first, DONE, "x"), ACCEPTED);
    rig_assert_journal(&rig, "plain", "plain", "a.1 DONE"); /* durable, once it is acked */
    assert_int_equal(poller_report(poller, &first, DONE, "x"), DUPLICATE);
    assert_int_equal(poller_report(poller, &first, REJECTED, NULL), STALE);
    struct raw_lease second = raw_lease_of(poller_task(poller, SOON));
    assert_int_equal(poller_report(poller, &second, DONE, NULL), ACCEPTED);
    rig_await_state(&rig, "plain", "plain", "SUCCEEDED", SOON);
    poller = poller_free(poller);
}

static void test_a_wait_without_work_ends_in_time_and_empty(void **state)
{
    (void)state;
    struct poller *poller = poller_new(rig.address, "idle", NULL, "idle");
    int64_t began = clock_mono_ms(&clock_system);
    const Saga__V1__LeaseTasksResponse *answer = poller_lease(poller, 1, 1000);
    int64_t took = clock_mono_ms(&clock_system) - began;
    assert_int_equal(answer->n_tasks, 0);
    assert_false(answer->draining);
    assert_string_equal(answer->node, "rig");
    assert_true(took >= 1000);
    assert_true(took < 3000);
    poller = poller_free(poller);
}

static void test_one_answer_brings_what_was_asked_for_and_no_more(void **state)
{
    (void)state;
    rig_define(&rig, "some", NULL, "a: IDEMPOTENT handler=some | none");
    rig_define(&rig, "other", NULL, "a: IDEMPOTENT handler=other | none");
    rig_start_many(&rig, "some", "bound-s", 10, "");
    rig_start_many(&rig, "other", "bound-o", 10, "");
    struct poller *poller = poller_new(rig.address, "some", NULL, "some other");
    size_t got = 0;
    while (got < 20) {
        const Saga__V1__LeaseTasksResponse *answer = poller_lease(poller, 3, SOON);
        assert_true(answer->n_tasks >= 1);
        assert_true(answer->n_tasks <= 3); /* of both handlers together */
        got += answer->n_tasks;
    }
    poller_report_all(poller);
    rig_await_states(&rig, "some", "bound-s", "SUCCEEDED", 10, SOON);
    rig_await_states(&rig, "other", "bound-o", "SUCCEEDED", 10, SOON);
    assert_int_equal(released("bound-"), 0); /* nothing was granted that did not fit */
    poller = poller_free(poller);
}

static void test_answers_stay_below_what_a_client_can_receive(void **state)
{
    (void)state;
    enum { COUNT = 30, INPUT_BYTES = 250 * 1000 };
    rig_define(&rig, "large", NULL, "a: IDEMPOTENT handler=large | none");
    char *script = mem_calloc(1, INPUT_BYTES + 1);
    assert_non_null(script);
    memset(script, '#', INPUT_BYTES);
    for (int i = 0; i < COUNT; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "large-%d", i);
        rig_start(&rig, "large", id, script);
    }
    mem_free(script);
    struct poller *poller = poller_new(rig.address, "large", NULL, "large");
    size_t got = 0;
    while (got < COUNT) {
        const Saga__V1__LeaseTasksResponse *answer = poller_lease(poller, 100, SOON);
        assert_true(answer->n_tasks >= 1);
        assert_true(answer->n_tasks <= 16);
        got += answer->n_tasks;
        poller_report_all(poller);
    }
    rig_await_states(&rig, "large", "large-", "SUCCEEDED", COUNT, SOON);
    poller = poller_free(poller);
}

static void test_a_thousand_tasks_go_through_pollers(void **state)
{
    (void)state;
    enum { COUNT = 1000, POLLERS = 4 };
    rig_define(&rig, "many", NULL, "a: IDEMPOTENT handler=many | none");
    struct poller *pollers[POLLERS];
    struct raw_stream *calls[POLLERS];
    size_t got = 0;
    for (int i = 0; i < POLLERS; i++) {
        pollers[i] = poller_new(rig.address, "many", NULL, "many");
        calls[i] = poller_ask(pollers[i], rig.address, 64, 20000);
    }
    rig_start_many(&rig, "many", "many-", COUNT, "");
    int64_t until = clock_mono_ms(&clock_system) + 60000;
    for (int i = 0; got < COUNT; i = (i + 1) % POLLERS) {
        assert_true(clock_mono_ms(&clock_system) < until);
        const Saga__V1__LeaseTasksResponse *answer = poller_answer(pollers[i], calls[i], 20);
        if (!answer)
            continue;
        got += answer->n_tasks;
        calls[i] = raw_stream_free(calls[i]);
        poller_report_all(pollers[i]);
        calls[i] = poller_ask(pollers[i], rig.address, 64, 20000);
    }
    rig_await_states(&rig, "many", "many-", "SUCCEEDED", COUNT, SOON);
    assert_int_equal(got, COUNT);
    assert_int_equal(released("many-"), 0);
    for (int i = 0; i < POLLERS; i++) {
        calls[i] = raw_stream_free(calls[i]);
        pollers[i] = poller_free(pollers[i]);
    }
}

/* --- what did not start ----------------------------------------------------------------------- */

static void test_what_the_next_call_does_not_list_was_never_started(void **state)
{
    (void)state;
    rig_define(&rig, "unlisted", NULL, "a: ONCE handler=unlisted lease=3600s | none");
    struct poller *poller = poller_new(rig.address, "unlisted", NULL, "unlisted");
    rig_start(&rig, "unlisted", "unlisted", "");
    struct raw_lease first = raw_lease_of(poller_task(poller, SOON));
    assert_int_equal(poller_lease(poller, 1, 500)->n_tasks, 0); /* listed: it stays */
    rig_assert_journal(&rig, "unlisted", "unlisted", "a.1 OPEN");
    poller_forget(poller);
    const Saga__V1__Task *again = poller_task(poller, SOON);
    assert_int_equal(again->try_, 1);
    assert_true(again->fence > first.fence);
    rig_assert_journal(&rig, "unlisted", "unlisted", "a.1 RELEASED, a.1 OPEN");
    /* What the old answer brought is not this worker's any more. */
    struct raw_lease second = raw_lease_of(again);
    assert_int_equal(poller_extend(poller, &first, NULL), 0);
    assert_int_equal(poller_report(poller, &second, DONE, NULL), ACCEPTED);
    rig_await_state(&rig, "unlisted", "unlisted", "SUCCEEDED", SOON);
    poller = poller_free(poller);
}

static void test_what_is_released_goes_to_others_and_burns_no_try(void **state)
{
    (void)state;
    rig_define(&rig, "back", NULL, "a: ONCE handler=back lease=3600s | none");
    struct poller *poller = poller_new(rig.address, "back", NULL, "back");
    struct poller *other = poller_new(rig.address, "back-2", NULL, "back");
    rig_start(&rig, "back", "back", "");
    struct raw_lease lease = raw_lease_of(poller_task(poller, SOON));
    poller_release(poller, &lease, true);
    rig_assert_journal(&rig, "back", "back", "a.1 RELEASED"); /* durable, once it is answered */
    const Saga__V1__Task *task = poller_task(other, SOON);
    assert_int_equal(task->try_, 1);
    poller_report_all(other);
    rig_await_state(&rig, "back", "back", "SUCCEEDED", SOON);
    poller = poller_free(poller);
    other = poller_free(other);
}

static void test_l3_a_poller_that_is_killed_before_work_appears_takes_none(void **state)
{
    (void)state;
    rig_define(&rig, "killed", NULL,
               "a: ONCE handler=killed lease=3600s attempt_timeout=7200s | IDEMPOTENT");
    struct poller *dead = poller_new(rig.address, "dead", NULL, "killed");
    int64_t connected = rig_counter(&rig, "workers_connected");
    struct raw_stream *call = poller_ask(dead, rig.address, 10, 30000);
    while (rig_counter(&rig, "workers_connected") == connected)
        wait_ms(10);
    struct poller *alive = poller_new(rig.address, "alive", NULL, "killed");
    struct raw_stream *waits = poller_ask(alive, rig.address, 10, 30000);
    while (rig_counter(&rig, "workers_connected") == connected + 1)
        wait_ms(10);
    call = raw_stream_free(call); /* at the same moment */
    rig_start_many(&rig, "killed", "killed-", 6, "");
    size_t got = 0;
    while (got < 6) {
        const Saga__V1__LeaseTasksResponse *answer = poller_answer(alive, waits, 5000);
        assert_non_null(answer);
        got += answer->n_tasks;
        for (size_t i = 0; i < answer->n_tasks; i++)
            assert_int_equal(answer->tasks[i]->try_, 1);
        waits = raw_stream_free(waits);
        poller_report_all(alive);
        waits = poller_ask(alive, rig.address, 10, 5000);
    }
    rig_await_states(&rig, "killed", "killed-", "SUCCEEDED", 6, SOON);
    waits = raw_stream_free(waits);
    dead = poller_free(dead);
    alive = poller_free(alive);
}

/* --- one holder ------------------------------------------------------------------------------- */

static void test_p3_a_newer_call_ends_the_older_one(void **state)
{
    (void)state;
    rig_define(&rig, "newer", NULL, "a: ONCE handler=newer lease=3600s | none");
    struct poller *poller = poller_new(rig.address, "newer", NULL, "newer");
    int64_t connected = rig_counter(&rig, "workers_connected");
    struct raw_stream *older = poller_ask(poller, rig.address, 1, 30000);
    while (rig_counter(&rig, "workers_connected") == connected)
        wait_ms(10);
    struct raw_stream *newer = poller_ask(poller, rig.address, 1, 30000);
    const char *message = NULL;
    assert_int_equal(raw_stream_status(older, SOON, &message), ABORTED);
    assert_non_null(strstr(message, "has asked anew"));
    rig_start(&rig, "newer", "newer", "");
    assert_non_null(poller_answer(poller, newer, SOON));
    poller_report_all(poller);
    rig_assert_journal(&rig, "newer", "newer", "a.1 DONE");
    older = raw_stream_free(older);
    newer = raw_stream_free(newer);
    poller = poller_free(poller);
}

static void test_p3_a_lease_that_ran_out_is_another_ones(void **state)
{
    (void)state;
    rig_define(&rig, "late", NULL, "a: IDEMPOTENT handler=late lease=5s | none");
    struct poller *first = poller_new(rig.address, "late-1", NULL, "late");
    rig_start(&rig, "late", "late", "");
    struct raw_lease old = raw_lease_of(poller_task(first, SOON));
    wait_ms(2000);
    assert_true(poller_extend(first, &old, NULL) > 4000); /* and then no more */
    struct poller *second = poller_new(rig.address, "late-2", NULL, "late");
    const Saga__V1__Task *task = poller_task(second, 15000);
    assert_int_equal(task->try_, 2);
    assert_int_equal(poller_extend(first, &old, NULL), 0);
    poller_report_all(second);
    assert_int_equal(poller_report(first, &old, REJECTED, NULL), STALE);
    rig_assert_journal(&rig, "late", "late", "a.1 EXPIRED, a.2 DONE");
    rig_await_state(&rig, "late", "late", "SUCCEEDED", SOON);
    first = poller_free(first);
    second = poller_free(second);
}

static void test_cancel_hints_come_with_the_next_answer(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE];
    rig_define(&rig, "hinted", NULL, "a: IDEMPOTENT handler=hinted lease=60s | IDEMPOTENT");
    struct poller *poller = poller_new(rig.address, "hinted", NULL, "hinted");
    rig_start(&rig, "hinted", "hint-1", "");
    struct raw_lease lease = raw_lease_of(poller_task(poller, SOON));
    assert_int_equal(rig_cancel(&rig, "hinted", "hint-1", reason), 0);
    bool hinted = false;
    assert_true(poller_extend(poller, &lease, &hinted) > 50000);
    assert_true(hinted);
    assert_true(poller_extend(poller, &lease, &hinted) > 50000);
    assert_false(hinted); /* told once */
    assert_int_equal(poller_report(poller, &lease, DONE, NULL), ACCEPTED);
    rig_start(&rig, "hinted", "hint-2", "");
    lease = raw_lease_of(poller_task(poller, SOON));
    struct raw_stream *call = poller_ask(poller, rig.address, 1, 30000);
    assert_null(poller_answer(poller, call, 500));
    assert_int_equal(rig_cancel(&rig, "hinted", "hint-2", reason), 0);
    const Saga__V1__LeaseTasksResponse *answer = poller_answer(poller, call, SOON);
    assert_non_null(answer); /* long before its wait is over */
    assert_int_equal(answer->n_cancel_hints, 1);
    assert_int_equal(answer->cancel_hints[0]->fence, lease.fence);
    assert_int_equal(poller_report(poller, &lease, DONE, NULL), ACCEPTED);
    call = raw_stream_free(call);
    poller = poller_free(poller);
    struct test_process *undo = rig_worker(&rig, "undo", "undo:4");
    rig_await_states(&rig, "hinted", "hint-", "COMPENSATED", 2, SOON);
    rig_worker_kill(&rig, undo);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void assert_refused(const char *method, const ProtobufCMessage *request, const char *field)
{
    struct client_failure failure;
    struct err err;
    ProtobufCMessage *reply = NULL;
    char path[64];
    (void)snprintf(path, sizeof path, "/saga.v1.WorkerService/%s", method);
    assert_int_not_equal(client_call_explained(rig.client, path, request,
                                               &saga__v1__release_tasks_response__descriptor, SOON,
                                               &reply, &failure, &err),
                         0);
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_int_equal(failure.violation_count, 1);
    assert_string_equal(failure.violations[0].field, field);
    client_failure_done(&failure);
}

static void test_a_wrong_request_is_refused_by_its_field(void **state)
{
    (void)state;
    Saga__V1__Subscription subscription = SAGA__V1__SUBSCRIPTION__INIT, *list[] = { &subscription };
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    Saga__V1__LeaseTasksRequest lease = SAGA__V1__LEASE_TASKS_REQUEST__INIT;
    assert_refused("LeaseTasks", &lease.base, "hello");
    lease.hello = &hello;
    assert_refused("LeaseTasks", &lease.base, "hello.worker_id");
    hello.worker_id = rig_borrow("w");
    hello.instance = rig_borrow("short");
    assert_refused("LeaseTasks", &lease.base, "hello.instance");
    hello.instance = rig_borrow("long-enough");
    assert_refused("LeaseTasks", &lease.base, "hello.handlers");
    subscription.handler = rig_borrow("x");
    subscription.max_in_flight = 1;
    hello.handlers = list;
    hello.n_handlers = 1;
    lease.max_tasks = 1001;
    assert_refused("LeaseTasks", &lease.base, "max_tasks");
    lease.max_tasks = 1;
    Google__Protobuf__Duration wait = GOOGLE__PROTOBUF__DURATION__INIT;
    lease.wait = &wait;
    wait.seconds = 61;
    assert_refused("LeaseTasks", &lease.base, "wait");
    Saga__V1__ReportOutcomesRequest report = SAGA__V1__REPORT_OUTCOMES_REQUEST__INIT;
    assert_refused("ReportOutcomes", &report.base, "worker_id");
    report.worker_id = rig_borrow("w");
    report.instance = rig_borrow("no spaces please");
    assert_refused("ReportOutcomes", &report.base, "instance");
    report.instance = rig_borrow("long-enough");
    assert_refused("ReportOutcomes", &report.base, "reports");
    Saga__V1__TaskReport item = SAGA__V1__TASK_REPORT__INIT, *reports[] = { &item };
    report.reports = reports;
    report.n_reports = 1;
    assert_refused("ReportOutcomes", &report.base, "reports[0].saga_uid");
    Saga__V1__HeldLease held = SAGA__V1__HELD_LEASE__INIT, *leases[] = { &held };
    Saga__V1__ExtendLeasesRequest extend = SAGA__V1__EXTEND_LEASES_REQUEST__INIT;
    extend.worker_id = rig_borrow("w");
    extend.instance = rig_borrow("long-enough");
    extend.leases = leases;
    extend.n_leases = 1;
    assert_refused("ExtendLeases", &extend.base, "leases[0].saga_uid");
    Saga__V1__ReleaseTasksRequest release = SAGA__V1__RELEASE_TASKS_REQUEST__INIT;
    release.worker_id = rig_borrow("w");
    release.instance = rig_borrow("long-enough");
    assert_refused("ReleaseTasks", &release.base, "leases");
}

static void test_credit_for_a_handler_that_is_not_served_is_refused(void **state)
{
    (void)state;
    Saga__V1__Subscription subscription = SAGA__V1__SUBSCRIPTION__INIT, *list[] = { &subscription };
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    Saga__V1__Credit credit = SAGA__V1__CREDIT__INIT;
    Saga__V1__Credit__PerHandler item = SAGA__V1__CREDIT__PER_HANDLER__INIT, *items[] = { &item };
    Saga__V1__LeaseTasksRequest lease = SAGA__V1__LEASE_TASKS_REQUEST__INIT;
    subscription.handler = rig_borrow("x");
    subscription.max_in_flight = 1;
    hello.worker_id = rig_borrow("w");
    hello.instance = rig_borrow("not-subscribed");
    hello.handlers = list;
    hello.n_handlers = 1;
    item.handler = rig_borrow("y");
    item.total = 1;
    credit.handlers = items;
    credit.n_handlers = 1;
    lease.hello = &hello;
    lease.credit = &credit;
    struct client_failure failure;
    struct err err;
    ProtobufCMessage *reply = NULL;
    assert_int_not_equal(client_call_explained(rig.client, "/saga.v1.WorkerService/LeaseTasks",
                                               &lease.base,
                                               &saga__v1__lease_tasks_response__descriptor, SOON,
                                               &reply, &failure, &err),
                         0);
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_string_equal(failure.reason, "NOT_SUBSCRIBED");
    client_failure_done(&failure);
}

/* --- ends of servers -------------------------------------------------------------------------- */

static void test_p2_p8_a_poller_goes_on_after_the_server_was_killed(void **state)
{
    (void)state;
    rig_define(&rig, "kill", NULL, "a: ONCE handler=kill lease=3600s | none");
    struct poller *poller = poller_new(rig.address, "kill", NULL, "kill");
    rig_start(&rig, "kill", "kill-held", "");
    struct raw_lease held = raw_lease_of(poller_task(poller, SOON));
    rig_server_kill(&rig);
    rig_server_start(&rig);
    struct raw_stream *call = poller_ask(poller, rig.address, 1, 30000); /* which lists it */
    rig_start(&rig, "kill", "kill-next", "");
    const Saga__V1__LeaseTasksResponse *answer = poller_answer(poller, call, SOON);
    assert_non_null(answer);
    assert_int_equal(answer->n_tasks, 1);
    assert_string_equal(answer->tasks[0]->saga_id, "kill-next");
    assert_int_equal(poller_report(poller, &held, DONE, NULL), ACCEPTED);
    poller_report_all(poller);
    rig_assert_journal(&rig, "kill", "kill-held", "a.1 DONE");
    rig_await_states(&rig, "kill", "kill-", "SUCCEEDED", 2, SOON);
    call = raw_stream_free(call);
    poller = poller_free(poller);
}

static void test_a_server_that_stops_answers_its_pollers_and_ends_at_once(void **state)
{
    (void)state;
    struct poller *poller = poller_new(rig.address, "stop", NULL, "stop");
    int64_t connected = rig_counter(&rig, "workers_connected");
    struct raw_stream *call = poller_ask(poller, rig.address, 1, 60000);
    while (rig_counter(&rig, "workers_connected") == connected)
        wait_ms(10);
    assert_true(rig_server_stop(&rig, SOON) < 5000);
    const Saga__V1__LeaseTasksResponse *answer = poller_answer(poller, call, SOON);
    assert_non_null(answer);
    assert_int_equal(answer->n_tasks, 0);
    assert_true(answer->draining);
    rig_server_start(&rig);
    call = raw_stream_free(call);
    poller = poller_free(poller);
}

/* --- L3: the slow scenes ---------------------------------------------------------------------- */

static void test_l3_an_answer_that_is_lost_is_noticed_and_costs_seconds(void **state)
{
    (void)state;
    struct poller *other = poller_new(rig.address, "other", NULL, "lost lost_once");
    const Saga__V1__Task *task = poller_task(other, CONFIRM_MS + 5000);
    int64_t took = clock_mono_ms(&clock_system) - lost_at;
    print_message("offered elsewhere %lld ms after it was granted\n", (long long)took);
    assert_string_equal(task->saga_id, "lost");
    assert_int_equal(task->try_, 2); /* it may have arrived */
    poller_report_all(other);
    rig_assert_journal(&rig, "lost", "lost", "a.1 STREAM_LOST, a.2 DONE");
    /* The other class waits for its lease, or for the same instance. */
    assert_int_equal(poller_lease(other, 1, 2000)->n_tasks, 0);
    rig_assert_journal(&rig, "lost_once", "lost_once", "a.1 OPEN");
    const Saga__V1__Task *again = poller_task(lost[1], SOON); /* it lists nothing */
    assert_string_equal(again->saga_id, "lost_once");
    assert_int_equal(again->try_, 1);
    poller_report_all(lost[1]);
    rig_assert_journal(&rig, "lost_once", "lost_once", "a.1 RELEASED, a.1 DONE");
    other = poller_free(other);
}

static void test_l3_an_instance_that_falls_silent_is_a_dead_stream(void **state)
{
    (void)state;
    struct poller *other = poller_new(rig.address, "other", NULL, "silent");
    /* Confirmed: long after CONFIRM_MS it is still its holder's. */
    rig_assert_journal(&rig, "silent", "silent", "a.1 OPEN");
    const Saga__V1__Task *task = poller_task(other, SILENCE_MS + 5000);
    int64_t took = clock_mono_ms(&clock_system) - silent_at;
    print_message("offered elsewhere after %lld ms of silence\n", (long long)took);
    assert_true(took > SILENCE_MS - 1000);
    assert_int_equal(task->try_, 2);
    poller_report_all(other);
    rig_assert_journal(&rig, "silent", "silent", "a.1 STREAM_LOST, a.2 DONE");
    assert_int_equal(poller_report(silent, &silent_lease, REJECTED, NULL), STALE);
    other = poller_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_p2_a_poller_carries_a_saga_and_its_reports_count_once,
                                        NULL, check),
        cmocka_unit_test_setup_teardown(test_p2_p8_a_poller_goes_on_after_the_server_was_killed,
                                        NULL, check),
        cmocka_unit_test_setup_teardown(
            test_a_server_that_stops_answers_its_pollers_and_ends_at_once, NULL, check),
        cmocka_unit_test_setup(test_a_wait_without_work_ends_in_time_and_empty, begin_slow_scenes),
        cmocka_unit_test(test_one_answer_brings_what_was_asked_for_and_no_more),
        cmocka_unit_test(test_answers_stay_below_what_a_client_can_receive),
        cmocka_unit_test(test_a_thousand_tasks_go_through_pollers),
        cmocka_unit_test(test_what_the_next_call_does_not_list_was_never_started),
        cmocka_unit_test(test_what_is_released_goes_to_others_and_burns_no_try),
        cmocka_unit_test(test_l3_a_poller_that_is_killed_before_work_appears_takes_none),
        cmocka_unit_test(test_p3_a_newer_call_ends_the_older_one),
        cmocka_unit_test(test_p3_a_lease_that_ran_out_is_another_ones),
        cmocka_unit_test(test_cancel_hints_come_with_the_next_answer),
        cmocka_unit_test(test_a_wrong_request_is_refused_by_its_field),
        cmocka_unit_test(test_credit_for_a_handler_that_is_not_served_is_refused),
        cmocka_unit_test(test_l3_an_answer_that_is_lost_is_noticed_and_costs_seconds),
        cmocka_unit_test_teardown(test_l3_an_instance_that_falls_silent_is_a_dead_stream, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
