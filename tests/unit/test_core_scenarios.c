/* Goal: a saga goes the way that the design draws, seen in its journal. Method: scripted events,
 * exact traces with times; after each commit a replay of the tables equals the copy. */
#include "core_world.h"

#include <stdio.h>

static void test_happy_path(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 3);
    world_start(&world);
    world_assert_waits(&world, WAIT_WORKER, 0);
    world_assert_step(&world, 0, "READY");
    world_assert_step(&world, 1, "PENDING");
    int64_t seq = world_grant(&world);
    world_assert_step(&world, 0, "LEASED");
    world_assert_waits(&world, WAIT_REPORT, WORLD_START_MS + DEFAULT_LEASE_MS);
    world_pass(&world, 10);
    /* The finish of one step and the grant of the next are one transition. */
    struct report report = { .fence = saga_entry(world.saga, seq)->fence,
                             .outcome = OUTCOME_DONE,
                             .output = { (uint8_t *)"paid", 4 } };
    struct grantable next;
    ASSERT_OK(saga_on_report(world.saga, &report, world.now_ms, &world.rng, &world.transition,
                             &world.verdict, &world.err),
              &world.err);
    assert_int_equal(saga_grantable(world.saga, world.now_ms, &next, 1), 1);
    ASSERT_OK(
        saga_grant(world.saga, &next, "worker/2", 0, world.now_ms, &world.transition, &world.err),
        &world.err);
    assert_true(world.transition.finishes);
    assert_int_equal(world.transition.append_count, 1);
    assert_false(world.transition.changes_row);
    world_commit(&world);
    world_pass(&world, 10);
    assert_int_equal(world_report(&world, 2, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_grant(&world);
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_true(world.transition.ends && !world.transition.phase_change);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +10 DONE\n"
                               "2 +10 b ACTION 1 -> +20 DONE\n"
                               "3 +20 c ACTION 1 -> +20 DONE\n"
                               "SUCCEEDED\n");
    struct bytes output;
    assert_true(saga_step_output(world.saga, 0, &output));
    assert_int_equal(output.size, 4);
    assert_memory_equal(output.data, "paid", 4);
    world_assert_waits(&world, WAIT_NONE, 0);
    assert_int_equal(saga_due_at(world.saga), INT64_MAX);
    world_close(&world);
}

/* Case C1. */
static void test_refusal_takes_back_in_reverse_order(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 3);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_REJECTED);
    assert_true(world.transition.finishes && world.transition.phase_change);
    world_assert_step(&world, 0, "COMPENSATION_WAITING");
    world_assert_step(&world, 1, "COMPENSATION_READY");
    world_assert_step(&world, 2, "REJECTED");
    const struct journal_entry *lease = NULL;
    const struct journal_entry *cause = saga_first_cause(world.saga, &lease);
    assert_int_equal(cause->seq, 4);
    assert_string_equal(cause->error_code, "CODE");
    assert_int_equal(lease->seq, 3);
    int64_t seq = world_grant(&world);
    struct task_view task;
    saga_task_view(world.saga, seq, &task);
    assert_true(task.action_done);
    assert_string_equal(task.rule->handler, "order.b.compensate");
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
    world_assert_step(&world, 1, "COMPENSATION_BACKOFF");
    world_pass(&world, 1000);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_step(&world, 0, "COMPENSATED");
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 DONE\n"
                               "3 +0 c ACTION 1 -> +0 REJECTED\n"
                               "4 +0 COMPENSATE c REFUSED\n"
                               "5 +0 b COMPENSATION 1 -> +0 RETRY\n"
                               "6 +1000 b COMPENSATION 2 -> +1000 DONE\n"
                               "7 +1000 a COMPENSATION 1 -> +1000 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_refusal_with_nothing_to_take_back_ends_it(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->steps[0].has_compensation = false;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_REJECTED);
    assert_true(world.transition.ends && world.transition.phase_change);
    assert_int_equal(world.transition.state_from, SAGA_RUNNING);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 REJECTED\n"
                               "3 +0 COMPENSATE b REFUSED\n"
                               "COMPENSATED\n");
    world_close(&world);
}

/* Case C4 (a), (d). */
static void test_cancel_before_anything_ran(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    assert_int_equal(world_cancel(&world), 0);
    world_assert_trace(&world, "1 +0 COMPENSATE - CANCELLED\nCOMPENSATED\n");
    assert_string_equal(saga_entry(world.saga, 1)->actor, "anna");
    assert_string_equal(saga_entry(world.saga, 1)->error_message, "customer called");
    world_assert_step(&world, 0, "NOT_RUN");
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world.verdict, VERDICT_NOTHING);
    world_close(&world);
}

/* Case C4 (b), C6: the action in flight is settled first. */
static void test_cancel_in_flight(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *trace;
    } cases[] = {
        { OUTCOME_DONE, "1 +0 a ACTION 1 -> +5 DONE\n"
                        "2 +0 COMPENSATE - CANCELLED\n"
                        "3 +5 a COMPENSATION 1 -> +5 DONE\n"
                        "COMPENSATED\n" },
        { OUTCOME_UNKNOWN, "1 +0 a ACTION 1 -> +5 UNKNOWN\n"
                           "2 +0 COMPENSATE - CANCELLED\n"
                           "3 +5 a COMPENSATION 1 -> +5 DONE\n"
                           "COMPENSATED\n" },
        { OUTCOME_REJECTED, "1 +0 a ACTION 1 -> +5 REJECTED\n"
                            "2 +0 COMPENSATE - CANCELLED\n"
                            "COMPENSATED\n" },
        { OUTCOME_RETRY, "1 +0 a ACTION 1 -> +5 RETRY\n"
                         "2 +0 COMPENSATE - CANCELLED\n"
                         "COMPENSATED\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 2);
        world_start(&world);
        int64_t seq = world_grant(&world);
        assert_int_equal(world_cancel(&world), 0);
        world_assert_state(&world, "COMPENSATING");
        assert_false(world_is_grantable(&world));
        assert_int_equal(world_cancel(&world), 0); /* (d): twice is once */
        assert_int_equal(world.verdict, VERDICT_NOTHING);
        world_pass(&world, 5);
        assert_int_equal(world_report(&world, seq, cases[i].outcome), VERDICT_ACCEPTED);
        if (world_is_grantable(&world)) {
            int64_t undo = world_grant(&world);
            struct task_view task;
            saga_task_view(world.saga, undo, &task);
            assert_int_equal(task.action_done, cases[i].outcome == OUTCOME_DONE);
            assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
        }
        world_assert_trace(&world, cases[i].trace);
        world_close(&world);
    }
}

static void test_cancelled_lease_that_expires_is_maybe(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].guarded = false;
    world.definition->steps[0].settle_ms = 2000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    world_expire(&world, seq);
    assert_false(world_is_grantable(&world)); /* settle time, from the end of the lease */
    world_assert_step(&world, 0, "COMPENSATION_WAITING");
    world_assert_waits(&world, WAIT_SETTLE, world.now_ms + 2000);
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), world.now_ms + 2000);
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    world_pass(&world, 2000);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_stream_lost_holds_compensation_until_its_lease_ends(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    int64_t lost = world_grant(&world);
    int64_t until = saga_entry(world.saga, lost)->lease_until_ms;
    assert_int_equal(world_lease_end(&world, lost, OUTCOME_STREAM_LOST), VERDICT_ACCEPTED);
    assert_int_equal(world_lease_end(&world, lost, OUTCOME_STREAM_LOST), VERDICT_NOTHING);
    world_pass(&world, 1000);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_REJECTED);
    assert_false(world_is_grantable(&world)); /* the first worker may still be at work */
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), until);
    world.now_ms = until;
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 STREAM_LOST\n"
                               "2 +1000 a ACTION 2 -> +1000 DONE\n"
                               "3 +1000 b ACTION 1 -> +1000 REJECTED\n"
                               "4 +1000 COMPENSATE b REFUSED\n"
                               "5 +30000 a COMPENSATION 1 -> +30000 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_at_most_once_keeps_its_lease_when_the_stream_dies(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_lease_end(&world, seq, OUTCOME_STREAM_LOST), VERDICT_NOTHING);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

static void test_at_most_once_unknown(void **state)
{
    (void)state;
    for (int policy = ON_UNKNOWN_PARK; policy <= ON_UNKNOWN_COMPENSATE; policy++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
        world.definition->steps[0].action.on_unknown = (enum on_unknown)policy;
        world_start(&world);
        (void)world_run(&world, OUTCOME_RETRY); /* had no effect: may be repeated */
        world_pass(&world, 1000);
        world_expire(&world, world_grant(&world));
        if (policy == ON_UNKNOWN_COMPENSATE) {
            world_assert_state(&world, "COMPENSATING");
            (void)world_run(&world, OUTCOME_DONE);
            world_assert_state(&world, "COMPENSATED");
        } else {
            world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
            world_assert_step(&world, 0, "UNKNOWN");
            world_assert_waits(&world, WAIT_OPERATOR, 0);
            assert_string_equal(saga_row(world.saga)->park_code, "LEASE_EXPIRED");
            world_assert_refused(&world, world_retry(&world, NULL), "OUTCOME_UNKNOWN");
            assert_int_equal(world_cancel(&world), 0); /* the way out: it is maybe */
            world_assert_state(&world, "COMPENSATING");
            assert_null(saga_row(world.saga)->park_code);
            (void)world_run(&world, OUTCOME_DONE);
            world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 RETRY\n"
                                       "2 +1000 a ACTION 2 -> +31001 EXPIRED\n"
                                       "3 +31001 PARK a OUTCOME_UNKNOWN\n"
                                       "4 +31001 COMPENSATE - CANCELLED\n"
                                       "5 +31001 a COMPENSATION 1 -> +31001 DONE\n"
                                       "COMPENSATED\n");
        }
        world_close(&world);
    }
}

static void test_maybe_is_sticky(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_pass(&world, 60000);
    (void)world_run(&world, OUTCOME_RETRY);
    world_pass(&world, 60000);
    (void)world_run(&world, OUTCOME_REJECTED); /* this attempt had no effect; the first may have */
    world_assert_state(&world, "COMPENSATING");
    assert_true(world_is_grantable(&world));
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

/* Case C2. */
static void test_failed_compensations_park(void **state)
{
    (void)state;
    static const struct {
        enum effect effect;
        enum outcome outcome;
        int attempts;
        const char *state, *step, *retry;
    } cases[] = {
        { EFFECT_IDEMPOTENT, OUTCOME_REJECTED, 1, "PARKED in COMPENSATING: COMPENSATION_FAILED",
          "COMPENSATION_REJECTED", NULL },
        { EFFECT_IDEMPOTENT, OUTCOME_RETRY, 4, "PARKED in COMPENSATING: COMPENSATION_FAILED",
          "COMPENSATION_EXHAUSTED", NULL },
        { EFFECT_IDEMPOTENT, OUTCOME_UNKNOWN, 4, "PARKED in COMPENSATING: COMPENSATION_FAILED",
          "COMPENSATION_EXHAUSTED", NULL },
        { EFFECT_IDEMPOTENT, OUTCOME_EXPIRED, 3, "PARKED in COMPENSATING: WORKER_KILLER",
          "COMPENSATION_UNKNOWN", NULL },
        { EFFECT_AT_MOST_ONCE, OUTCOME_UNKNOWN, 1, "PARKED in COMPENSATING: OUTCOME_UNKNOWN",
          "COMPENSATION_UNKNOWN", "OUTCOME_UNKNOWN" },
        { EFFECT_AT_MOST_ONCE, OUTCOME_EXPIRED, 1, "PARKED in COMPENSATING: OUTCOME_UNKNOWN",
          "COMPENSATION_UNKNOWN", "OUTCOME_UNKNOWN" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 3);
        world.definition->steps[1].compensation.effect = cases[i].effect;
        world.definition->steps[1].compensation.retry.max_attempts = 4;
        world_start(&world);
        (void)world_run(&world, OUTCOME_DONE);
        (void)world_run(&world, OUTCOME_DONE);
        (void)world_run(&world, OUTCOME_REJECTED);
        for (int attempt = 0; attempt < cases[i].attempts; attempt++) {
            world_assert_state(&world, "COMPENSATING");
            int64_t seq = world_grant(&world);
            if (cases[i].outcome == OUTCOME_EXPIRED)
                world_expire(&world, seq);
            else
                assert_int_equal(world_report(&world, seq, cases[i].outcome), VERDICT_ACCEPTED);
            world_pass(&world, 60000);
        }
        world_assert_state(&world, cases[i].state);
        world_assert_step(&world, 1, cases[i].step);
        world_assert_step(&world, 0, "COMPENSATION_WAITING");
        assert_int_equal(saga_row(world.saga)->park_step, 1);
        assert_false(world_is_grantable(&world));
        int rc = world_retry(&world, NULL);
        if (cases[i].retry) {
            world_assert_refused(&world, rc, cases[i].retry);
        } else {
            assert_int_equal(rc, 0);
            (void)world_run(&world, OUTCOME_DONE);
            (void)world_run(&world, OUTCOME_DONE);
            world_assert_state(&world, "COMPENSATED");
        }
        world_close(&world);
    }
}

static void test_already_done(void **state)
{
    (void)state;
    struct world world;
    struct report report = { .outcome = OUTCOME_ALREADY_DONE };
    /* An earlier attempt may have run: it is ours. */
    world_open(&world, 1);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_pass(&world, 60000);
    report.fence = world_grant(&world);
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
    /* No attempt can have made it, but the other side confirms our key. */
    world_open(&world, 1);
    world_start(&world);
    report.fence = world_grant(&world);
    report.ours = true;
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
    /* Somebody else's: nothing of ours to take back. */
    report.ours = false;
    world_open(&world, 2);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_RETRY); /* had no effect, so it does not make it ours */
    world_pass(&world, 60000);
    report.fence = world_grant(&world);
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: FOREIGN_EFFECT");
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    assert_int_equal(world_cancel(&world), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 RETRY\n"
                               "3 +60000 b ACTION 2 -> +60000 ALREADY_DONE\n"
                               "4 +60000 PARK b FOREIGN_EFFECT\n"
                               "5 +60000 COMPENSATE - CANCELLED\n"
                               "6 +60000 a COMPENSATION 1 -> +60000 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

/* Case L2: the fence decides, whatever the report says. */
static void test_reports_with_wrong_fences(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.epoch = 3;
    world_start(&world);
    int64_t seq = world_grant(&world);
    int64_t fence = saga_entry(world.saga, seq)->fence;
    assert_int_equal(fence, (INT64_C(3) << 40) + 1);
    int64_t wrong[] = { 0, 1, 2, -1, INT64_MIN, INT64_MAX, fence + 1, fence_make(2, 1) };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct report report = { .fence = wrong[i], .outcome = OUTCOME_DONE };
        assert_int_equal(world_report_full(&world, &report), VERDICT_STALE);
        assert_true(transition_is_empty(&world.transition));
        assert_false(saga_lease_is_open(world.saga, wrong[i]));
    }
    assert_true(saga_lease_is_open(world.saga, fence));
    struct report report = { .fence = fence, .outcome = OUTCOME_EXPIRED };
    assert_int_equal(saga_on_report(world.saga, &report, world.now_ms, &world.rng,
                                    &world.transition, &world.verdict, &world.err),
                     ERR_INVALID);
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_DUPLICATE);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_STALE);
    assert_true(transition_is_empty(&world.transition));
    /* The fence never falls, even if the database says that the timeline did. */
    world.epoch = 1;
    world_pass(&world, 1000);
    assert_int_equal(saga_entry(world.saga, world_grant(&world))->fence, (INT64_C(3) << 40) + 2);
    world_close(&world);
}

static void test_long_texts_are_cut_at_a_character(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    char text[3001] = { 0 };
    for (size_t i = 0; i + 2 < sizeof text; i += 3)
        (void)snprintf(text + i, sizeof text - i, "\xe2\x82\xac"); /* it fits */
    struct report report = { .fence = world_grant(&world),
                             .outcome = OUTCOME_REJECTED,
                             .error_code = text,
                             .error_message = text };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    assert_int_equal(strlen(saga_entry(world.saga, 1)->error_code), 126);
    assert_int_equal(strlen(saga_entry(world.saga, 1)->error_message), 1023);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_happy_path),
        cmocka_unit_test(test_refusal_takes_back_in_reverse_order),
        cmocka_unit_test(test_refusal_with_nothing_to_take_back_ends_it),
        cmocka_unit_test(test_cancel_before_anything_ran),
        cmocka_unit_test(test_cancel_in_flight),
        cmocka_unit_test(test_cancelled_lease_that_expires_is_maybe),
        cmocka_unit_test(test_stream_lost_holds_compensation_until_its_lease_ends),
        cmocka_unit_test(test_at_most_once_keeps_its_lease_when_the_stream_dies),
        cmocka_unit_test(test_at_most_once_unknown),
        cmocka_unit_test(test_maybe_is_sticky),
        cmocka_unit_test(test_failed_compensations_park),
        cmocka_unit_test(test_already_done),
        cmocka_unit_test(test_reports_with_wrong_fences),
        cmocka_unit_test(test_long_texts_are_cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
