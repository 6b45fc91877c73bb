/* What compensations are told, and what happens to workers that are late. Goal (C5, C6, L2): each
 * undo gets the stored input and output of its own step, byte for byte, or the mark that there is
 * none; a report that comes while the saga turns back is recorded and its undo added in its place;
 * a holder that lost its lease changes nothing, and one whose extensions do not get through stops
 * in time. Method: workers by hand, workers and servers that are killed between effect and report,
 * a connection that swallows everything. */
#include "support/black_hole.h"
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>

enum { SOON = 10000, LEASE_MS = 5000 };
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define STALE    SAGA__V1__ACK__RESULT__RESULT_STALE
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE
#define REJECTED SAGA__V1__OUTCOME__OUTCOME_REJECTED

static struct rig rig = { .server_args = { "--resend-grace", "1s", "--stream-lost", "1s" } };

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static const Saga__V1__Task *must_get_task(struct raw_worker *worker, const char *step)
{
    const Saga__V1__Task *task = raw_worker_task(worker, LEASE_MS + SOON);
    assert_non_null(task);
    assert_string_equal(task->step, step);
    return task;
}

/* --- C5 --------------------------------------------------------------------------------------- */

static struct bytes bytes_of(const char *text, size_t size)
{
    return (struct bytes){ (uint8_t *)(uintptr_t)text, size }; /* only read */
}

static void settle_with(struct raw_worker *worker, const struct raw_lease *lease,
                        struct bytes output)
{
    Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT;
    report.saga_uid.data = (uint8_t *)(uintptr_t)lease->uid; /* only read */
    report.saga_uid.len = sizeof lease->uid;
    report.fence = lease->fence;
    report.outcome = DONE;
    report.output.data = output.data;
    report.output.len = output.size;
    raw_worker_report_task(worker, &report);
    assert_int_equal(raw_worker_ack(worker, lease), ACCEPTED);
}

static void assert_bytes(ProtobufCBinaryData is, struct bytes expected)
{
    assert_int_equal(is.len, expected.size);
    assert_memory_equal(is.data, expected.data, expected.size);
}

static void test_c5_p5_each_undo_gets_its_own_steps_bytes_or_the_mark_that_there_are_none(
    void **state)
{
    (void)state;
    PROVES("P2 P5");
    /* What no text would survive: NUL, bytes that are no UTF-8, an end that looks like the next. */
    static const char input[] = "in\x01\xff\xfe put", a[] = "\0first\xc3", c[] = "\xffthird\0\0";
    const struct bytes outputs[] = { bytes_of(a, sizeof a - 1), bytes_of(c, sizeof c - 1) };
    rig_define(&rig, "c5", NULL,
               "a: IDEMPOTENT handler=c5 | IDEMPOTENT handler=c5 | settle=0s\n"
               "b: IDEMPOTENT handler=c5 lease=5s | IDEMPOTENT handler=c5 | settle=0s\n"
               "c: IDEMPOTENT handler=c5 | IDEMPOTENT handler=c5 | settle=0s\n"
               "d: ONCE handler=c5 | none");
    struct raw_worker *worker = raw_worker_hello(rig.address, "c5", NULL, "c5", NULL, 0);
    raw_worker_credit(worker, "c5", 2);
    rig_start(&rig, "c5", "c5", input);
    struct raw_lease lease = raw_lease_of(must_get_task(worker, "a"));
    settle_with(worker, &lease, outputs[0]);
    /* b takes effect, and nobody hears of it: server and worker die. Its second attempt does not
     * find out what the first one answered. */
    (void)must_get_task(worker, "b");
    rig_server_kill(&rig);
    worker = raw_worker_cut(worker);
    rig_server_start(&rig);
    worker = raw_worker_hello(rig.address, "c5-next", NULL, "c5", NULL, 0);
    raw_worker_credit(worker, "c5", 10);
    lease = raw_lease_of(must_get_task(worker, "b"));
    assert_int_equal(raw_worker_settle(worker, &lease, REJECTED, "SEEN_BEFORE"), ACCEPTED);
    /* The undo of b is in the plan, with the mark; a's with what a answered. */
    const Saga__V1__Task *undo = must_get_task(worker, "b");
    assert_int_equal(undo->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION);
    assert_int_equal(undo->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_MAYBE);
    assert_int_equal(undo->action->output.len, 0);
    assert_bytes(undo->input, bytes_of(input, sizeof input - 1));
    lease = raw_lease_of(undo);
    settle_with(worker, &lease, bytes_of("", 0));
    undo = must_get_task(worker, "a");
    assert_int_equal(undo->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
    assert_bytes(undo->action->output, outputs[0]);
    assert_bytes(undo->input, bytes_of(input, sizeof input - 1));
    lease = raw_lease_of(undo);
    settle_with(worker, &lease, bytes_of("", 0));
    rig_await_state(&rig, "c5", "c5", "COMPENSATED", 100);
    /* And with all of them known: c gets c's, b gets b's, which is empty. */
    rig_start(&rig, "c5", "c5-known", input);
    lease = raw_lease_of(must_get_task(worker, "a"));
    settle_with(worker, &lease, outputs[0]);
    lease = raw_lease_of(must_get_task(worker, "b"));
    settle_with(worker, &lease, bytes_of("", 0));
    lease = raw_lease_of(must_get_task(worker, "c"));
    settle_with(worker, &lease, outputs[1]);
    lease = raw_lease_of(must_get_task(worker, "d"));
    assert_int_equal(raw_worker_settle(worker, &lease, REJECTED, "NO"), ACCEPTED);
    static const char *const steps[] = { "c", "b", "a" };
    const struct bytes expected[] = { outputs[1], bytes_of("", 0), outputs[0] };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        undo = must_get_task(worker, steps[i]);
        assert_int_equal(undo->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
        assert_bytes(undo->action->output, expected[i]);
        assert_bytes(undo->input, bytes_of(input, sizeof input - 1));
        lease = raw_lease_of(undo);
        settle_with(worker, &lease, bytes_of("", 0));
    }
    rig_await_state(&rig, "c5", "c5-known", "COMPENSATED", 100);
    worker = raw_worker_cut(worker);
}

static void test_c5_p5_an_effect_whose_report_died_with_everybody_is_taken_back(void **state)
{
    (void)state;
    PROVES("P4 P5 P8");
    rig_define(&rig, "c5net", NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\n"
               "b: ONCE lease=5s on_unknown=COMPENSATE | IDEMPOTENT | guarded\n"
               "c: IDEMPOTENT | IDEMPOTENT | guarded");
    struct test_process *worker = rig_worker(&rig, "dies", "act:1 undo:1");
    rig_start(&rig, "c5net", "c5net",
              "a A * out=alpha guarded\nb A 1 out=beta guarded crash\n* * * guarded");
    rig_await_call(&rig, "c5net", "b", "A", 1, SOON);
    int status;
    struct err err;
    ASSERT_OK(test_process_wait(worker, SOON, &status, &err), &err);
    rig_worker_kill(&rig, worker);
    rig_server_kill(&rig);
    proof_fault("worker and server killed between effect and report", 1);
    assert_int_equal(rig_effects(&rig, "c5net", "b", "A"), 1);
    rig_server_start(&rig);
    (void)rig_worker(&rig, "next", "act:1 undo:1"); /* the rig owns it */
    rig_await_state(&rig, "c5net", "c5net", "COMPENSATED", LEASE_MS + SOON);
    rig_assert_journal(&rig, "c5net", "c5net",
                       "a.1 DONE, b.1 EXPIRED, COMPENSATE UNKNOWN, ~b.1 DONE, ~a.1 DONE");
    rig_await(&rig, RIG_BANK, "b MAYBE, a DONE:alpha", 100,
              "SELECT string_agg(step || ' ' || seen, ', ' ORDER BY id) FROM calls"
              " WHERE saga_id = 'c5net' AND operation = 'C'");
    static const char *const steps[] = { "a", "b" };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        assert_int_equal(rig_effects(&rig, "c5net", steps[i], "A"), 1);
        assert_int_equal(rig_effects(&rig, "c5net", steps[i], "C"), 1);
    }
}

static int64_t ms_of(const Google__Protobuf__Timestamp *time)
{
    assert_non_null(time);
    return time->seconds * 1000 + time->nanos / 1000000;
}

static void test_c5_p4_a_probe_is_told_what_it_asks_about(void **state)
{
    (void)state;
    PROVES("P4 P5");
    rig_define(&rig, "c5ask", NULL,
               "a: IDEMPOTENT handler=ask idempotency_window=60s"
               " | PROBED handler=ask probe_handler=ask fresh_key | settle=0s\n"
               "b: ONCE handler=ask | none");
    struct raw_worker *worker = raw_worker_hello(rig.address, "ask", NULL, "ask", NULL, 0);
    raw_worker_credit(worker, "ask", 10);
    rig_start(&rig, "c5ask", "c5ask", "in");
    /* Nothing may be sent to the other side once it may have forgotten the key. */
    const Saga__V1__Task *task = must_get_task(worker, "a");
    int64_t started_ms = ms_of(task->saga_start_time);
    assert_true(ms_of(task->send_before) > started_ms + 59000);
    assert_true(ms_of(task->send_before) < started_ms + 60000 + SOON);
    assert_true(task->attempt_remaining->seconds <= 60);
    assert_int_equal(task->probed, SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED);
    assert_null(task->probed_attempt);
    struct raw_lease lease = raw_lease_of(task);
    settle_with(worker, &lease, bytes_of("made", 4));
    task = must_get_task(worker, "b");
    assert_null(task->send_before);
    lease = raw_lease_of(task);
    assert_int_equal(raw_worker_settle(worker, &lease, REJECTED, "NO"), ACCEPTED);
    task = must_get_task(worker, "a");
    assert_int_equal(task->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION);
    assert_null(task->probed_attempt);
    char key[40];
    (void)snprintf(key, sizeof key, "%s", task->idempotency_key);
    const struct raw_lease undo = raw_lease_of(task);
    assert_int_equal(raw_worker_settle(worker, &undo, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN, ""),
                     ACCEPTED);
    /* The probe: of that undo, with its key, and with what the undo was told. */
    task = must_get_task(worker, "a");
    assert_int_equal(task->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE);
    assert_int_equal(task->probed, SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION);
    assert_string_equal(task->idempotency_key, key);
    assert_int_equal(task->try_, 1);
    assert_int_equal(task->probed_attempt->try_, 1);
    assert_int_equal(task->probed_attempt->fence, undo.fence);
    assert_true(ms_of(task->probed_attempt->lease_time) >= started_ms);
    assert_true(ms_of(task->probed_attempt->end_time) >= ms_of(task->probed_attempt->lease_time));
    assert_int_equal(task->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
    assert_bytes(task->action->output, bytes_of("made", 4));
    assert_bytes(task->input, bytes_of("in", 2));
    lease = raw_lease_of(task);
    assert_int_equal(
        raw_worker_settle(worker, &lease, SAGA__V1__OUTCOME__OUTCOME_STILL_UNKNOWN, "BUSY"),
        ACCEPTED);
    task = must_get_task(worker, "a");
    assert_int_equal(task->try_, 2);
    lease = raw_lease_of(task);
    assert_int_equal(raw_worker_settle(worker, &lease, SAGA__V1__OUTCOME__OUTCOME_NOT_DONE, ""),
                     ACCEPTED);
    /* It did not happen: once more, under the next key. */
    task = must_get_task(worker, "a");
    assert_int_equal(task->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION);
    assert_int_equal(task->try_, 2);
    assert_string_not_equal(task->idempotency_key, key);
    lease = raw_lease_of(task);
    settle_with(worker, &lease, bytes_of("", 0));
    rig_await_state(&rig, "c5ask", "c5ask", "COMPENSATED", 100);
    rig_assert_journal(&rig, "c5ask", "c5ask",
                       "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 UNKNOWN,"
                       " ?a.1 STILL_UNKNOWN, ?a.2 NOT_DONE, RESOLVE NOT_DONE, ~a.2 DONE");
    worker = raw_worker_cut(worker);
}

/* --- C6 --------------------------------------------------------------------------------------- */

static void test_c6_p5_a_report_while_the_saga_turns_back_is_recorded_and_undone(void **state)
{
    (void)state;
    PROVES("P3 P5");
    rig_define(&rig, "c6", NULL,
               "a: IDEMPOTENT handler=c6a | IDEMPOTENT handler=c6u | settle=0s\n"
               "b: ONCE handler=c6 lease=60s | IDEMPOTENT handler=c6u | settle=0s\n"
               "c: IDEMPOTENT handler=c6a | IDEMPOTENT handler=c6u | settle=0s");
    (void)rig_worker(&rig, "c6a", "c6a:4"); /* the rig owns it */
    struct raw_worker *worker = raw_worker_hello(rig.address, "c6", NULL, "c6", NULL, 0);
    struct raw_worker *undoer = raw_worker_hello(rig.address, "c6u", NULL, "c6u", NULL, 0);
    raw_worker_credit(worker, "c6", 1);
    raw_worker_credit(undoer, "c6u", 10);
    rig_start(&rig, "c6", "c6", "");
    struct raw_lease lease = raw_lease_of(must_get_task(worker, "b"));
    assert_int_equal(rig_cancel(&rig, "c6", "c6", NULL), 0);
    rig_await_state(&rig, "c6", "c6", "COMPENSATING", 100);
    /* The worker is told; no undo begins beside it; its lease goes on for as long as it works. */
    assert_true(raw_worker_got_cancel_hint(worker, SOON));
    assert_null(raw_worker_task(undoer, 300));
    raw_worker_extend(worker, &lease);
    assert_true(raw_worker_extended(worker, SOON) > 0);
    /* A success: no step forward, one undo more, first. */
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, "late"), ACCEPTED);
    const Saga__V1__Task *undo = must_get_task(undoer, "b");
    assert_int_equal(undo->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
    assert_memory_equal(undo->action->output.data, "late", 4);
    lease = raw_lease_of(undo);
    assert_int_equal(raw_worker_settle(undoer, &lease, DONE, ""), ACCEPTED);
    lease = raw_lease_of(must_get_task(undoer, "a"));
    assert_int_equal(raw_worker_settle(undoer, &lease, DONE, ""), ACCEPTED);
    rig_await_state(&rig, "c6", "c6", "COMPENSATED", 100);
    rig_assert_journal(&rig, "c6", "c6",
                       "a.1 DONE, b.1 DONE, COMPENSATE CANCELLED, ~b.1 DONE, ~a.1 DONE");
    worker = raw_worker_cut(worker);
    undoer = raw_worker_cut(undoer);
}

static void test_c6_p5_a_late_success_before_its_undo_begins_feeds_it(void **state)
{
    (void)state;
    PROVES("P3 P5");
    rig_define(&rig, "c6late", NULL,
               "a: ONCE handler=c6late lease=5s on_unknown=COMPENSATE |"
               " IDEMPOTENT handler=c6lateu | settle=0s");
    struct raw_worker *worker = raw_worker_hello(rig.address, "late", NULL, "c6late", NULL, 0);
    raw_worker_credit(worker, "c6late", 1);
    rig_start(&rig, "c6late", "c6late", "");
    struct raw_lease lease = raw_lease_of(must_get_task(worker, "a"));
    rig_await_state(&rig, "c6late", "c6late", "COMPENSATING", LEASE_MS + SOON);
    /* Nobody serves the undo yet. */
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, "found"), ACCEPTED);
    struct raw_worker *undoer = raw_worker_hello(rig.address, "undo", NULL, "c6lateu", NULL, 0);
    raw_worker_credit(undoer, "c6lateu", 1);
    const Saga__V1__Task *undo = must_get_task(undoer, "a");
    assert_int_equal(undo->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
    assert_memory_equal(undo->action->output.data, "found", 5);
    lease = raw_lease_of(undo);
    assert_int_equal(raw_worker_settle(undoer, &lease, DONE, ""), ACCEPTED);
    rig_await_state(&rig, "c6late", "c6late", "COMPENSATED", 100);
    rig_assert_journal(&rig, "c6late", "c6late",
                       "a.1 EXPIRED, COMPENSATE UNKNOWN, late a.1 DONE, ~a.1 DONE");
    worker = raw_worker_cut(worker);
    undoer = raw_worker_cut(undoer);
}

/* --- L2 --------------------------------------------------------------------------------------- */

static void test_l2_p3_whoever_was_overtaken_is_refused_whatever_it_says(void **state)
{
    (void)state;
    PROVES("P3");
    rig_define(&rig, "l2hand", NULL,
               "a: IDEMPOTENT handler=l2hand lease=5s | none\n"
               "b: ONCE handler=nobody | none");
    rig_start_many(&rig, "l2hand", "l2hand", 2, "");
    struct raw_worker *first = raw_worker_hello(rig.address, "first", NULL, "l2hand", NULL, 0);
    raw_worker_credit(first, "l2hand", 2);
    struct raw_lease old[2], lease;
    for (int i = 0; i < 2; i++)
        old[i] = raw_lease_of(must_get_task(first, "a"));
    struct raw_worker *second = raw_worker_hello(rig.address, "second", NULL, "l2hand", NULL, 0);
    raw_worker_credit(second, "l2hand", 2);
    lease = raw_lease_of(must_get_task(second, "a"));
    assert_true(lease.fence > old[0].fence); /* what a guarded database goes by */
    bool is_first = memcmp(lease.uid, old[0].uid, sizeof lease.uid) == 0;
    assert_int_equal(raw_worker_settle(second, &lease, DONE, "second"), ACCEPTED);
    const struct raw_lease *settled = &old[is_first ? 0 : 1], *held = &old[is_first ? 1 : 0];
    lease = raw_lease_of(must_get_task(second, "a")); /* it has this one, and does not report */
    /* After the other's report, and beside its live lease. */
    raw_worker_extend(first, settled);
    assert_int_equal(raw_worker_extended(first, SOON), 0);
    assert_int_equal(raw_worker_settle(first, settled, DONE, "first"), STALE);
    assert_int_equal(raw_worker_settle(first, settled, REJECTED, "NO"), STALE);
    raw_worker_extend(first, held);
    assert_int_equal(raw_worker_extended(first, SOON), 0);
    assert_int_equal(raw_worker_settle(first, held, REJECTED, "NO"), STALE);
    raw_worker_release(first, held);
    assert_int_equal(raw_worker_settle(second, &lease, DONE, "second"), ACCEPTED);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'l2hand' AND step = 'a' AND try = 2"
                               " AND outcome = 'DONE' AND output = 'second'"),
                     2);
    first = raw_worker_cut(first);
    second = raw_worker_cut(second);
    assert_int_equal(rig_cancel(&rig, "l2hand", "l2hand0", NULL), 0);
    assert_int_equal(rig_cancel(&rig, "l2hand", "l2hand1", NULL), 0);
}

static void test_l2_p3_a_worker_whose_extensions_do_not_get_through_stops_in_time(void **state)
{
    (void)state;
    PROVES("P3");
    struct black_hole *hole = NULL;
    struct err err;
    rig_define(&rig, "l2hole", NULL, "a: ONCE handler=l2hole lease=5s | none");
    ASSERT_OK(black_hole_start(rig.port, &hole, &err), &err);
    rig.worker_addresses[0] = black_hole_address(hole);
    (void)rig_worker(&rig, "swallowed", "l2hole:2"); /* the rig owns it */
    rig.worker_addresses[0] = NULL;
    rig_start(&rig, "l2hole", "l2hole", "a A 1 until_lost");
    rig_await_call(&rig, "l2hole", "a", "A", 1, SOON);
    wait_ms(LEASE_MS / 2); /* it has been extended */
    black_hole_freeze(hole);
    proof_fault("extensions swallowed for longer than the lease", 1);
    rig_await(&rig, RIG_BANK, "LOST", 2 * LEASE_MS,
              "SELECT stop FROM calls WHERE saga_id = 'l2hole' AND ended_at IS NOT NULL");
    rig_await_state(&rig, "l2hole", "l2hole", "PARKED OUTCOME_UNKNOWN", 2 * LEASE_MS);
    char until[48];
    rig_text(&rig, RIG_STORE, until, sizeof until,
             "SELECT lease_until FROM journal JOIN saga s USING (shard, saga_uid)"
             " WHERE s.saga_id = 'l2hole' AND try = 1 AND kind = 'LEASE'");
    assert_int_equal(rig_count(&rig, RIG_BANK,
                               "SELECT count(*) FROM calls WHERE saga_id = 'l2hole'"
                               " AND ended_at < '%s'::timestamptz",
                               until),
                     1);
    rig_workers_kill(&rig);
    hole = black_hole_free(hole);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_c5_p5_each_undo_gets_its_own_steps_bytes_or_the_mark_that_there_are_none),
        TEST(test_c5_p5_an_effect_whose_report_died_with_everybody_is_taken_back),
        TEST(test_c5_p4_a_probe_is_told_what_it_asks_about),
        TEST(test_c6_p5_a_report_while_the_saga_turns_back_is_recorded_and_undone),
        TEST(test_c6_p5_a_late_success_before_its_undo_begins_feeds_it),
        TEST(test_l2_p3_whoever_was_overtaken_is_refused_whatever_it_says),
        TEST(test_l2_p3_a_worker_whose_extensions_do_not_get_through_stops_in_time),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
