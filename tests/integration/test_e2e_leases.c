/* Leases, fences, credits. Goal: at most one holder is believed and paid attention to, nobody's
 * silence stops a saga, and nothing that certainly did not start burns a try. Method: real workers
 * that are stopped, killed and drained, and a worker by hand whose reports say what it likes. Slow
 * scenes are started together. */
#include "base/clock.h"
#include "support/black_hole.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>

enum { SOON = 10000, LEASE_MS = 5000 };
#define ACCEPTED  SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DUPLICATE SAGA__V1__ACK__RESULT__RESULT_DUPLICATE
#define STALE     SAGA__V1__ACK__RESULT__RESULT_STALE
#define DONE      SAGA__V1__OUTCOME__OUTCOME_DONE
#define REJECTED  SAGA__V1__OUTCOME__OUTCOME_REJECTED

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "1s" } };

/* A scene that takes long: it begins before one test and is looked at in the last one. */
static struct black_hole *hole;
static struct raw_worker *swallowed;

static int swallow_a_stream(void **state)
{
    (void)state;
    struct err err;
    rig_define(&rig, "hole", NULL, "a: IDEMPOTENT handler=hole lease=3600s | none");
    rig_define(&rig, "hole_once", NULL,
               "a: ONCE handler=hole lease=3600s attempt_timeout=3600s | IDEMPOTENT");
    ASSERT_OK(black_hole_start(rig.port, &hole, &err), &err);
    swallowed = raw_worker_hello(black_hole_address(hole), "gone", NULL, "hole", NULL, 0);
    rig_start(&rig, "hole", "hole", "");
    rig_start(&rig, "hole_once", "hole-once", "");
    raw_worker_credit(swallowed, "hole", 2);
    assert_non_null(raw_worker_task(swallowed, SOON));
    assert_non_null(raw_worker_task(swallowed, SOON));
    black_hole_freeze(hole);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    swallowed = raw_worker_cut(swallowed);
    hole = black_hole_free(hole);
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static const Saga__V1__Task *must_get_task(struct raw_worker *worker)
{
    const Saga__V1__Task *task = raw_worker_task(worker, SOON);
    assert_non_null(task);
    return task;
}

static void await_outcome(const char *saga_id, const char *outcome, int64_t limit_ms)
{
    rig_await(&rig, RIG_STORE, "1", limit_ms,
              "SELECT least(count(*), 1) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = '%s' AND outcome = '%s'",
              saga_id, outcome);
}

/* --- L2, P3 ----------------------------------------------------------------------------------- */

static void test_p3_l2_a_stopped_worker_is_overtaken_and_then_changes_nothing(void **state)
{
    (void)state;
    rig_define(&rig, "l2", NULL, "a: IDEMPOTENT handler=l2 lease=5s | IDEMPOTENT | guarded");
    rig_define(&rig, "l2_alone", NULL, "a: ONCE handler=alone lease=5s | none");
    struct test_process *first = rig_worker(&rig, "first", "l2:4");
    struct test_process *alone = rig_worker(&rig, "alone", "alone:4");
    rig_start(&rig, "l2", "l2", "a A 1 sleep=1500 guarded\na A 2 guarded");
    rig_start(&rig, "l2_alone", "l2-alone", "a A 1 sleep=1500 effect out=late");
    rig_await_call(&rig, "l2", "a", "A", 1, SOON);
    rig_await_call(&rig, "l2-alone", "a", "A", 1, SOON);
    rig_worker_signal(first, SIGSTOP);
    rig_worker_signal(alone, SIGSTOP);
    struct test_process *second = rig_worker(&rig, "second", "l2:4");
    (void)second; /* the rig owns it */
    /* The lease runs out by the database's clock, not before, and not much later. */
    rig_await_state(&rig, "l2", "l2", "SUCCEEDED", LEASE_MS + 4000);
    rig_assert_journal(&rig, "l2", "l2", "a.1 EXPIRED, a.2 DONE");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal WHERE outcome = 'EXPIRED'"
                               " AND finished_at < lease_until"),
                     0);
    rig_await_state(&rig, "l2_alone", "l2-alone", "PARKED OUTCOME_UNKNOWN", LEASE_MS + 4000);
    rig_worker_signal(first, SIGCONT);
    rig_worker_signal(alone, SIGCONT);
    /* Its guarded write finds the effect there, its report is stale: B's result stays. */
    struct err err;
    ASSERT_OK(test_process_wait_output(first, "scripted_worker: stale=1.", SOON, NULL, 0, &err),
              &err);
    assert_int_equal(rig_effects(&rig, "l2", "a", "A"), 1);
    rig_await(&rig, RIG_BANK, "second", 1000, "SELECT worker FROM effects WHERE saga_id = 'l2'");
    rig_assert_journal(&rig, "l2", "l2", "a.1 EXPIRED, a.2 DONE");
    /* It answered ALREADY_DONE, ours: an effect, but the one that is recorded. */
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM late_report JOIN saga s"
                               " USING (shard, saga_uid) WHERE s.saga_id = 'l2'"),
                     1);
    /* With nobody re-leasing, the late report is the resolution. */
    rig_await_state(&rig, "l2_alone", "l2-alone", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "l2_alone", "l2-alone",
                       "a.1 EXPIRED, PARK OUTCOME_UNKNOWN, late a.1 DONE, RESUME");
    assert_int_equal(rig_effects(&rig, "l2-alone", "a", "A"), 1);
    rig_assert_calls(&rig, "l2-alone", "a.1");
}

static void test_p3_a_handler_is_told_to_stop_before_its_lease_ends(void **state)
{
    (void)state;
    rig_define(&rig, "told", NULL, "a: ONCE handler=told attempt_timeout=1s | none\n");
    (void)rig_worker(&rig, "told", "told:4"); /* the rig owns it */
    rig_start(&rig, "told", "told", "a A 1 until_lost retry code=TOO_LATE\na A 2 done");
    rig_await_state(&rig, "told", "told", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "told", "told", "a.1 RETRY, a.2 DONE");
    rig_await(&rig, RIG_BANK, "LOST", SOON,
              "SELECT stop FROM calls WHERE saga_id = 'told' AND try = 1");
}

/* --- fences, by hand -------------------------------------------------------------------------- */

static void test_p3_reports_with_wrong_fences_are_stale_or_duplicate_never_an_error(void **state)
{
    (void)state;
    rig_define(&rig, "fence", NULL,
               "a: IDEMPOTENT handler=fence attempt_timeout=0.5s | none\n"
               "b: IDEMPOTENT handler=fence | none");
    rig_start(&rig, "fence", "f1", "");
    struct raw_worker *worker = raw_worker_hello(rig.address, "hand", NULL, "fence", NULL, 0);
    raw_worker_credit(worker, "fence", 100);
    struct raw_lease lost = raw_lease_of(must_get_task(worker));
    await_outcome("f1", "EXPIRED", SOON);
    struct raw_lease second = raw_lease_of(must_get_task(worker));
    assert_true(second.fence > lost.fence);
    /* A newer attempt holds the step. */
    assert_int_equal(raw_worker_settle(worker, &lost, DONE, "late"), STALE);
    /* A fence that was never given, also one of the future, also of a saga that is not there. */
    struct raw_lease future = second, nobody = second, zero = second, negative = second;
    future.fence += 1000;
    nobody.uid[3] ^= 0xff;
    zero.fence = 0;
    negative.fence = -5;
    assert_int_equal(raw_worker_settle(worker, &future, DONE, "x"), STALE);
    assert_int_equal(raw_worker_settle(worker, &nobody, DONE, "x"), STALE);
    assert_int_equal(raw_worker_settle(worker, &zero, DONE, "x"), STALE);
    assert_int_equal(raw_worker_settle(worker, &negative, DONE, "x"), STALE);
    /* The right one, again, and again with another word. */
    assert_int_equal(raw_worker_settle(worker, &second, DONE, "first"), ACCEPTED);
    assert_int_equal(raw_worker_settle(worker, &second, DONE, "first"), DUPLICATE);
    struct raw_lease third = raw_lease_of(must_get_task(worker));
    assert_int_equal(raw_worker_settle(worker, &second, REJECTED, "NO"), STALE);
    assert_int_equal(raw_worker_settle(worker, &third, DONE, "end"), ACCEPTED);
    rig_await_state(&rig, "fence", "f1", "SUCCEEDED", SOON);
    /* After the end: duplicate of the same, else stale, kept as a late report. */
    assert_int_equal(raw_worker_settle(worker, &third, DONE, "end"), DUPLICATE);
    assert_int_equal(raw_worker_settle(worker, &third, REJECTED, "NO"), STALE);
    /* Extending a lease that is not ours says so at once. */
    raw_worker_extend(worker, &third);
    assert_int_equal(raw_worker_extended(worker, SOON), 0);
    raw_worker_extend(worker, &nobody);
    assert_int_equal(raw_worker_extended(worker, SOON), 0);
    raw_worker_release(worker, &third); /* refused silently: it is finished */
    assert_int_equal(raw_worker_status(worker, 300, NULL), -1);
    worker = raw_worker_cut(worker);
    rig_await(&rig, RIG_STORE, "a.1 EXPIRED a.2 DONE b.1 DONE", SOON,
              "SELECT string_agg(step || '.' || try || ' ' || outcome, ' ' ORDER BY seq)"
              " FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id = 'f1'"
              " AND kind = 'LEASE'");
}

static void test_p2_an_acknowledged_report_is_durable_and_so_is_what_follows(void **state)
{
    (void)state;
    enum { SAGAS = 30 };
    struct raw_lease acked[SAGAS];
    char expected[32];
    rig_define(&rig, "durable", NULL,
               "a: IDEMPOTENT handler=durable | IDEMPOTENT\nb: IDEMPOTENT handler=durable | none");
    rig_start_many(&rig, "durable", "p2-", SAGAS, "");
    struct raw_worker *worker = raw_worker_hello(rig.address, "hand", NULL, "durable", NULL, 0);
    raw_worker_credit(worker, "durable", SAGAS);
    for (int i = 0; i < SAGAS; i++) {
        acked[i] = raw_lease_of(must_get_task(worker));
        /* Half are refused: then the turn back is durable, too. */
        assert_int_equal(raw_worker_settle(worker, &acked[i], i % 2 ? REJECTED : DONE, "word"),
                         ACCEPTED);
    }
    rig_server_kill(&rig); /* at once after the last ack */
    (void)snprintf(expected, sizeof expected, "%d", SAGAS / 2);
    rig_await(&rig, RIG_STORE, expected, 1000,
              "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'durable' AND outcome = 'DONE' AND step = 'a'");
    rig_await(&rig, RIG_STORE, expected, 1000,
              "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'durable' AND outcome = 'REJECTED' AND EXISTS"
              " (SELECT 1 FROM journal c WHERE c.saga_uid = s.saga_uid AND c.seq = j.seq + 1"
              "  AND c.kind = 'COMPENSATE') AND s.state IN ('COMPENSATING', 'COMPENSATED')");
    worker = raw_worker_cut(worker);
    rig_server_start(&rig);
    /* The same reports again, to the new server: it knows them. */
    worker = raw_worker_hello(rig.address, "hand", NULL, "durable", NULL, 0);
    for (int i = 0; i < SAGAS; i++)
        assert_int_equal(raw_worker_settle(worker, &acked[i], i % 2 ? REJECTED : DONE, "word"),
                         DUPLICATE);
    raw_worker_credit(worker, "durable", SAGAS);
    for (int i = 0; i < SAGAS / 2; i++) {
        const Saga__V1__Task *task = must_get_task(worker);
        struct raw_lease lease = raw_lease_of(task);
        assert_string_equal(task->step, "b");
        assert_int_equal(task->n_outputs, 1);
        assert_int_equal(raw_worker_settle(worker, &lease, DONE, ""), ACCEPTED);
    }
    worker = raw_worker_cut(worker);
    rig_await_states(&rig, "durable", "p2-", "SUCCEEDED", SAGAS / 2, SOON);
    rig_await_states(&rig, "durable", "p2-", "COMPENSATED", SAGAS / 2, SOON);
}

/* --- L3: streams that die --------------------------------------------------------------------- */

static void test_l3_what_a_dead_stream_held_is_offered_again_only_where_that_is_safe(void **state)
{
    (void)state;
    rig_define(&rig, "l3_safe", NULL, "a: IDEMPOTENT handler=l3 lease=3600s | none");
    rig_define(&rig, "l3_once", NULL,
               "a: ONCE handler=l3 lease=3600s attempt_timeout=3600s | none");
    struct raw_worker *worker = raw_worker_hello(rig.address, "dead", NULL, "l3", NULL, 0);
    rig_start(&rig, "l3_safe", "l3-safe", "");
    rig_start(&rig, "l3_once", "l3-once", "");
    raw_worker_credit(worker, "l3", 2);
    (void)must_get_task(worker);
    (void)must_get_task(worker);
    worker = raw_worker_cut(worker);
    (void)rig_worker(&rig, "other", "l3:4"); /* the rig owns it */
    rig_await_state(&rig, "l3_safe", "l3-safe", "SUCCEEDED", 5000);
    rig_assert_journal(&rig, "l3_safe", "l3-safe", "a.1 STREAM_LOST, a.2 DONE");
    /* The other class keeps its lease, for its holder to come back. */
    rig_assert_journal(&rig, "l3_once", "l3-once", "a.1 OPEN");
    Saga__V1__Saga *saga = rig_get(&rig, "l3_once", "l3-once");
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_REPORT);
    assert_non_null(strstr(saga->waiting->worker, "dead/"));
    saga__v1__saga__free_unpacked(saga, NULL);
    assert_int_equal(rig_cancel(&rig, "l3_once", "l3-once", NULL), 0);
}

static void test_l3_the_same_instance_that_does_not_list_a_fence_never_started_it(void **state)
{
    (void)state;
    static const char instance[] = "the-same-instance";
    rig_define(&rig, "hello", NULL, "a: IDEMPOTENT handler=hello lease=60s | none");
    rig_define(&rig, "hello_once", NULL, "a: ONCE handler=hello lease=60s | none");
    struct raw_worker *worker = raw_worker_hello(rig.address, "back", instance, "hello", NULL, 0);
    rig_start(&rig, "hello", "h-held", "");
    raw_worker_credit(worker, "hello", 1);
    struct raw_lease held = raw_lease_of(must_get_task(worker));
    rig_start(&rig, "hello", "h-dropped", "");
    rig_start(&rig, "hello_once", "h-dropped-once", "");
    raw_worker_credit(worker, "hello", 3);
    (void)must_get_task(worker);
    (void)must_get_task(worker);
    worker = raw_worker_cut(worker);
    worker = raw_worker_hello(rig.address, "back", instance, "hello", &held, 1);
    await_outcome("h-dropped", "RELEASED", SOON);
    await_outcome("h-dropped-once", "RELEASED", SOON);
    /* No leak of credit: this stream has had none yet. */
    assert_null(raw_worker_task(worker, 300));
    raw_worker_credit(worker, "hello", 2);
    for (int i = 0; i < 2; i++) {
        const Saga__V1__Task *task = must_get_task(worker);
        struct raw_lease lease = raw_lease_of(task);
        assert_int_equal(task->try_, 1); /* no try was burned */
        assert_int_equal(raw_worker_settle(worker, &lease, DONE, ""), ACCEPTED);
    }
    /* What it listed is still its own. */
    assert_int_equal(raw_worker_settle(worker, &held, DONE, ""), ACCEPTED);
    worker = raw_worker_cut(worker);
    rig_await_state(&rig, "hello", "h-held", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "hello", "h-held", "a.1 DONE");
    rig_await_state(&rig, "hello_once", "h-dropped-once", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "hello_once", "h-dropped-once", "a.1 RELEASED, a.1 DONE");
    rig_assert_journal(&rig, "hello", "h-dropped", "a.1 RELEASED, a.1 DONE");
}

static void test_a_task_that_is_given_back_burns_no_try(void **state)
{
    (void)state;
    rig_define(&rig, "given", NULL, "a: ONCE handler=given max_attempts=1 | none");
    struct raw_worker *worker = raw_worker_hello(rig.address, "giver", NULL, "given", NULL, 0);
    rig_start(&rig, "given", "g1", "");
    raw_worker_credit(worker, "given", 3);
    struct raw_lease lease = raw_lease_of(must_get_task(worker));
    raw_worker_release(worker, &lease);
    const Saga__V1__Task *again = must_get_task(worker);
    assert_int_equal(again->try_, 1);
    lease = raw_lease_of(again);
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, ""), ACCEPTED);
    worker = raw_worker_cut(worker);
    rig_await_state(&rig, "given", "g1", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "given", "g1", "a.1 RELEASED, a.1 DONE");
}

/* --- credits ---------------------------------------------------------------------------------- */

static void test_credit_is_never_exceeded_doubled_or_leaked(void **state)
{
    (void)state;
    enum { SAGAS = 12, STREAMS = 5 };
    static const char instance[] = "credit-instance";
    struct raw_lease held[SAGAS];
    size_t count = 0;
    rig_define(&rig, "credit", NULL, "a: IDEMPOTENT handler=credit lease=60s | none");
    rig_start_many(&rig, "credit", "credit", SAGAS, "");
    struct raw_worker *worker =
        raw_worker_hello(rig.address, "credit", instance, "credit", NULL, 0);
    assert_null(raw_worker_task(worker, 200)); /* none given, none sent */
    raw_worker_credit(worker, "credit", 3);
    raw_worker_credit(worker, "credit", 3); /* an absolute count: doubled, it says the same */
    raw_worker_credit(worker, "credit", 1); /* and it only grows */
    for (int i = 0; i < 3; i++)
        held[count++] = raw_lease_of(must_get_task(worker));
    assert_null(raw_worker_task(worker, 300));
    for (int stream = 0; stream < STREAMS; stream++) {
        worker = raw_worker_cut(worker);
        worker = raw_worker_hello(rig.address, "credit", instance, "credit", held, count);
        raw_worker_credit(worker, "credit", 1);
        held[count++] = raw_lease_of(must_get_task(worker));
        assert_null(raw_worker_task(worker, 150));
    }
    /* An unknown handler's credit ends nothing but is no credit. */
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'credit' AND outcome IS NULL"),
                     (int64_t)count);
    raw_worker_credit(worker, "credit", SAGAS);
    while (count < SAGAS)
        held[count++] = raw_lease_of(must_get_task(worker));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(raw_worker_settle(worker, &held[i], DONE, ""), ACCEPTED);
    worker = raw_worker_cut(worker);
    rig_await_states(&rig, "credit", "credit", "SUCCEEDED", SAGAS, SOON);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'credit'"),
                     SAGAS);
}

static void test_a_worker_never_holds_more_than_it_asked_for(void **state)
{
    (void)state;
    enum { SAGAS = 60, MOST = 3 };
    rig_define(&rig, "most", NULL, "a: IDEMPOTENT handler=most | none");
    (void)rig_worker_threads(&rig, "most", "most:3", 16); /* the rig owns it */
    rig_start_many(&rig, "most", "most", SAGAS, "a A 1 sleep=20");
    rig_await_states(&rig, "most", "most", "SUCCEEDED", SAGAS, 2 * SOON);
    /* How many other leases were live when one was granted. */
    assert_true(rig_count(&rig, RIG_STORE,
                          "SELECT max(others) FROM (SELECT (SELECT count(*) FROM journal o"
                          " JOIN saga s USING (shard, saga_uid) WHERE s.definition = 'most'"
                          " AND o.leased_at < j.leased_at AND o.finished_at > j.leased_at)"
                          " AS others FROM journal j JOIN saga t USING (shard, saga_uid)"
                          " WHERE t.definition = 'most') x") < MOST);
}

/* --- extension, time-out, drain --------------------------------------------------------------- */

static void test_a_long_handler_lives_beyond_its_lease_and_is_bounded_by_its_time(void **state)
{
    (void)state;
    rig_define(&rig, "long", NULL, "a: ONCE handler=long lease=5s attempt_timeout=60s | none");
    rig_define(&rig, "bounded", NULL, "a: ONCE handler=long lease=5s attempt_timeout=6s | none");
    (void)rig_worker(&rig, "long", "long:4"); /* the rig owns it */
    rig_start(&rig, "long", "long", "a A 1 sleep=8000");
    rig_start(&rig, "bounded", "bounded", "a A 1 sleep=60000");
    rig_await_state(&rig, "bounded", "bounded", "PARKED OUTCOME_UNKNOWN", 9000);
    rig_assert_journal(&rig, "bounded", "bounded", "a.1 EXPIRED, PARK OUTCOME_UNKNOWN");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.saga_id = 'bounded' AND outcome = 'EXPIRED'"
                               " AND lease_until <= attempt_until"
                               " AND finished_at >= leased_at + interval '6 s'"
                               " AND finished_at < leased_at + interval '8 s'"),
                     1);
    rig_await_state(&rig, "long", "long", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "long", "long", "a.1 DONE");
}

static void test_a_drained_worker_finishes_what_runs_and_gives_back_the_rest(void **state)
{
    (void)state;
    rig_define(&rig, "drain", NULL, "a: ONCE handler=drain max_attempts=1 | none");
    /* One thread: of four tasks one runs, three wait in the worker. */
    struct test_process *worker = rig_worker_threads(&rig, "drain", "drain:4", 1);
    rig_start_many(&rig, "drain", "drain", 4, "a A 1 sleep=1000");
    rig_await(&rig, RIG_STORE, "4", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'drain' AND outcome IS NULL");
    rig_await(&rig, RIG_BANK, "1", SOON, "SELECT count(*) FROM calls WHERE definition = 'drain'");
    rig_worker_signal(worker, SIGTERM);
    rig_await(&rig, RIG_STORE, "3", 800,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'drain' AND outcome = 'RELEASED'");
    int status;
    struct err err;
    ASSERT_OK(test_process_wait(worker, SOON, &status, &err), &err);
    assert_int_equal(status, 0);
    rig_await_states(&rig, "drain", "drain", "SUCCEEDED", 1, 1000);
    (void)rig_worker(&rig, "next", "drain:4"); /* the rig owns it */
    rig_await_states(&rig, "drain", "drain", "SUCCEEDED", 4, SOON);
    assert_int_equal(rig_count(&rig, RIG_BANK,
                               "SELECT count(*) FROM calls WHERE definition ="
                               " 'drain'"),
                     4);
    /* By hand: after Drain no task comes any more, whatever credit is left. */
    struct raw_worker *hand = raw_worker_hello(rig.address, "hand", NULL, "hand", NULL, 0);
    rig_define(&rig, "hand", NULL, "a: ONCE handler=hand | IDEMPOTENT");
    raw_worker_credit(hand, "hand", 10);
    raw_worker_drain(hand);
    rig_start(&rig, "hand", "hand", "");
    assert_null(raw_worker_task(hand, 400));
    hand = raw_worker_cut(hand);
    assert_int_equal(rig_cancel(&rig, "hand", "hand", NULL), 0);
}

static void test_l3_a_stream_that_is_swallowed_is_noticed_and_its_steps_are_offered_again(
    void **state)
{
    (void)state;
    /* Two pings' time to notice, then as with any dead stream; the lease is an hour. */
    enum { NOTICE_MS = 20000 };
    (void)rig_worker(&rig, "other", "hole:4"); /* the rig owns it */
    rig_await_state(&rig, "hole", "hole", "SUCCEEDED", NOTICE_MS + 5000);
    rig_assert_journal(&rig, "hole", "hole", "a.1 STREAM_LOST, a.2 DONE");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal WHERE outcome = 'STREAM_LOST'"
                               " AND finished_at > leased_at + interval '25 s'"),
                     0);
    rig_assert_journal(&rig, "hole_once", "hole-once", "a.1 OPEN");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p2_an_acknowledged_report_is_durable_and_so_is_what_follows),
        cmocka_unit_test_setup_teardown(
            test_p3_l2_a_stopped_worker_is_overtaken_and_then_changes_nothing, swallow_a_stream,
            check),
        TEST(test_p3_a_handler_is_told_to_stop_before_its_lease_ends),
        TEST(test_p3_reports_with_wrong_fences_are_stale_or_duplicate_never_an_error),
        TEST(test_l3_what_a_dead_stream_held_is_offered_again_only_where_that_is_safe),
        TEST(test_l3_the_same_instance_that_does_not_list_a_fence_never_started_it),
        TEST(test_a_task_that_is_given_back_burns_no_try),
        TEST(test_credit_is_never_exceeded_doubled_or_leaked),
        TEST(test_a_worker_never_holds_more_than_it_asked_for),
        TEST(test_a_long_handler_lives_beyond_its_lease_and_is_bounded_by_its_time),
        TEST(test_a_drained_worker_finishes_what_runs_and_gives_back_the_rest),
        TEST(test_l3_a_stream_that_is_swallowed_is_noticed_and_its_steps_are_offered_again),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
