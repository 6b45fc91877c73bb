/* Goal: a saga goes the way that the design draws, seen in its journal. Method: scripted events,
 * exact traces with times; after each commit a replay of the tables equals the copy. */
#include "core_world.h"

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
    assert_int_equal(saga_grantable_at(world.saga), world.now_ms + 2000);
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
    assert_int_equal(saga_grantable_at(world.saga), until);
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

static void test_budget_spent(void **state)
{
    (void)state;
    static const struct {
        enum outcome last;
        enum on_exhausted policy;
        const char *state;
    } cases[] = {
        { OUTCOME_RETRY, ON_EXHAUSTED_PARK, "PARKED in RUNNING: RETRIES_EXHAUSTED" },
        { OUTCOME_RETRY, ON_EXHAUSTED_COMPENSATE, "COMPENSATED" },
        { OUTCOME_UNKNOWN, ON_EXHAUSTED_PARK, "PARKED in RUNNING: OUTCOME_UNKNOWN" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 1);
        world.definition->steps[0].action.retry.max_attempts = 3;
        world.definition->steps[0].action.on_exhausted = cases[i].policy;
        world_start(&world);
        for (int attempt = 0; attempt < 3; attempt++) {
            (void)world_run(&world, cases[i].last);
            world_pass(&world, 60000);
        }
        world_assert_state(&world, cases[i].state);
        if (cases[i].policy == ON_EXHAUSTED_PARK) {
            world_assert_step(&world, 0, cases[i].last == OUTCOME_RETRY ? "EXHAUSTED" : "UNKNOWN");
            assert_int_equal(world_retry(&world, "a"), 0); /* IDEMPOTENT: a repeat is safe */
            world_assert_state(&world, "RUNNING");
            (void)world_run(&world, OUTCOME_RETRY); /* a fresh budget of three */
            world_pass(&world, 60000);
            (void)world_run(&world, OUTCOME_DONE);
            assert_int_equal(saga_entry(world.saga, saga_last_seq(world.saga))->try_, 5);
            world_assert_state(&world, "SUCCEEDED");
        }
        world_close(&world);
    }
}

static void test_budget_in_time(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world_start(&world);
    world_pass(&world, 500000); /* nobody came: the budget counts from the first lease */
    (void)world_run(&world, OUTCOME_RETRY);
    assert_int_equal(saga_due_at(world.saga), world.now_ms + 100000);
    world_pass(&world, 99999);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    assert_true(world_is_grantable(&world));
    world_pass(&world, 1);
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    assert_string_equal(saga_row(world.saga)->park_code, "CODE");
    world_close(&world);
    /* A retry_after beyond the end spends it at once. */
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    struct report report = { .fence = seq, .outcome = OUTCOME_RETRY, .retry_after_ms = 100000 };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_retry_after_and_operator_retry_in_backoff(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    int64_t seq = world_grant(&world);
    world_assert_refused(&world, world_retry(&world, "a"), "LEASE_LIVE");
    assert_non_null(strstr(world.err.msg, "worker/1"));
    struct report report = { .fence = seq, .outcome = OUTCOME_RETRY, .retry_after_ms = 600000 };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    assert_int_equal(saga_grantable_at(world.saga), world.now_ms + 600000);
    world_assert_waits(&world, WAIT_RETRY, world.now_ms + 600000);
    world_assert_step(&world, 0, "BACKOFF");
    world_assert_refused(&world, world_retry(&world, "b"), "RETRY_NOT_ALLOWED");
    assert_int_equal(world_retry(&world, "zz"), ERR_NOT_FOUND);
    assert_int_equal(world_retry(&world, "a"), 0);
    assert_true(world_is_grantable(&world));
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 RETRY\n"
                               "2 +0 RETRY a\n"
                               "RUNNING\n");
    world_close(&world);
}

static void test_released_burns_no_try(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->steps[0].action.retry.max_attempts = 1;
    world_start(&world);
    for (int i = 0; i < 3; i++) {
        int64_t seq = world_grant(&world);
        assert_int_equal(saga_entry(world.saga, seq)->try_, 1);
        world_pass(&world, 7);
        assert_int_equal(world_lease_end(&world, seq, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    }
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +7 RELEASED\n"
                               "2 +7 a ACTION 1 -> +14 RELEASED\n"
                               "3 +14 a ACTION 1 -> +21 RELEASED\n"
                               "4 +21 a ACTION 1 -> +21 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

/* Case S4. */
static void test_start_timeout(void **state)
{
    (void)state;
    for (int policy = ON_EXHAUSTED_PARK; policy <= ON_EXHAUSTED_COMPENSATE; policy++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[1].action.start_timeout_ms = 5000;
        world.definition->steps[1].action.on_exhausted = (enum on_exhausted)policy;
        world_start(&world);
        world_pass(&world, 60000);
        (void)world_run(&world, OUTCOME_DONE);
        assert_int_equal(saga_due_at(world.saga), world.now_ms + 5000);
        world_assert_waits(&world, WAIT_WORKER, world.now_ms + 5000);
        world_pass(&world, 5000);
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        const struct journal_entry *decision = saga_entry(world.saga, 2);
        assert_string_equal(decision->error_code, "NO_WORKER");
        assert_non_null(strstr(decision->error_message, "order.b"));
        const struct journal_entry *lease = decision;
        (void)saga_first_cause(world.saga, &lease);
        assert_null(lease);
        if (policy == ON_EXHAUSTED_PARK) {
            world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
        } else {
            assert_int_equal(decision->reason, CAUSE_START_TIMEOUT);
            (void)world_run(&world, OUTCOME_DONE);
            world_assert_state(&world, "COMPENSATED");
        }
        world_close(&world);
    }
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].compensation.start_timeout_ms = 5000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_pass(&world, 5000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: COMPENSATION_FAILED");
    world_assert_refused(&world, world_cancel(&world), "CANCEL_NOT_ALLOWED");
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

static void test_worker_killer_counts_losses_in_a_row(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    world_expire(&world, world_grant(&world));
    world_pass(&world, 60000);
    assert_int_equal(world_lease_end(&world, world_grant(&world), OUTCOME_STREAM_LOST),
                     VERDICT_ACCEPTED);
    world_pass(&world, 60000);
    (void)world_run(&world, OUTCOME_UNKNOWN); /* that one lived to tell */
    for (int i = 0; i < 2; i++) {
        world_pass(&world, 60000);
        world_expire(&world, world_grant(&world));
    }
    world_pass(&world, 60000); /* given back: counts neither way */
    assert_int_equal(world_lease_end(&world, world_grant(&world), OUTCOME_RELEASED),
                     VERDICT_ACCEPTED);
    world_assert_state(&world, "RUNNING");
    world_expire(&world, world_grant(&world));
    world_assert_state(&world, "PARKED in RUNNING: WORKER_KILLER");
    assert_int_equal(world_retry(&world, NULL), 0);
    world_expire(&world, world_grant(&world)); /* counted afresh */
    world_assert_state(&world, "RUNNING");
    world_close(&world);
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

static void test_deadline_compensates(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 10000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    int64_t seq = world_grant(&world);
    world_pass(&world, 9999);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_pass(&world, 1);
    assert_int_equal(saga_due_at(world.saga), world.now_ms);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +10000 DONE\n"
                               "3 +10000 COMPENSATE b DEADLINE\n"
                               "4 +10000 b COMPENSATION 1 -> +10000 DONE\n"
                               "5 +10000 a COMPENSATION 1 -> +10000 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_deadline_parks_once(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 10000;
    world.definition->on_deadline = ON_DEADLINE_PARK;
    world_start(&world);
    int64_t seq = world_grant(&world);
    world_pass(&world, 10000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: DEADLINE_EXCEEDED");
    world_assert_refused(&world, world_retry(&world, NULL), "LEASE_LIVE");
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: DEADLINE_EXCEEDED");
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_retry(&world, NULL), 0);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +10000 DONE\n"
                               "2 +10000 PARK a DEADLINE_EXCEEDED\n"
                               "3 +10000 RETRY b\n"
                               "4 +10000 b ACTION 1 -> +10000 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

static void test_last_step_done_while_parked_ends_with_the_retry(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 10000;
    world.definition->on_deadline = ON_DEADLINE_PARK;
    world_start(&world);
    int64_t seq = world_grant(&world);
    world_pass(&world, 10000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_retry(&world, NULL), 0);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +10000 DONE\n"
                               "2 +10000 PARK a DEADLINE_EXCEEDED\n"
                               "3 +10000 RETRY -\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

static void test_deadline_acts_when_a_parked_saga_goes_on(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 10000;
    world.definition->steps[1].action.retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_RETRY);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_pass(&world, 10000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING); /* parked: it waits */
    assert_int_equal(world_retry(&world, "b"), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 RETRY\n"
                               "3 +0 PARK b RETRIES_EXHAUSTED\n"
                               "4 +10000 RETRY b\n"
                               "5 +10000 COMPENSATE b DEADLINE\n"
                               "6 +10000 a COMPENSATION 1 -> +10000 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_refusal_while_parked_turns_the_phase(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 10000;
    world.definition->on_deadline = ON_DEADLINE_PARK;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    int64_t seq = world_grant(&world);
    world_pass(&world, 10000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, seq, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: DEADLINE_EXCEEDED");
    assert_false(world_is_grantable(&world));
    world_assert_refused(&world, world_cancel(&world), "CANCEL_NOT_ALLOWED");
    assert_int_equal(world_retry(&world, NULL), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
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

static void test_extension(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.attempt_timeout_ms = 40000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    world_pass(&world, 5000);
    saga_extended(world.saga, seq, world.now_ms);
    assert_int_equal(saga_entry(world.saga, seq)->lease_until_ms, world.now_ms + 30000);
    world_pass(&world, 20000); /* the lease never outlives the attempt */
    saga_extended(world.saga, seq, world.now_ms);
    assert_int_equal(saga_entry(world.saga, seq)->lease_until_ms, WORLD_START_MS + 40000);
    world.entries[seq - 1].lease_until_ms = WORLD_START_MS + 40000; /* as the store's statement */
    world_expire(&world, seq);
    saga_extended(world.saga, seq, world.now_ms); /* over: nothing */
    assert_int_equal(saga_entry(world.saga, seq)->lease_until_ms, WORLD_START_MS + 40000);
    world_close(&world);
}

static void test_expiry_waits_for_the_grace(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    (void)world_grant(&world);
    world_pass(&world, 40000);
    ASSERT_OK(saga_on_time(world.saga, world.now_ms, false, &world.rng, &world.transition,
                           &world.verdict, &world.err),
              &world.err);
    assert_int_equal(world.verdict, VERDICT_NOTHING);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    assert_true(world.transition.only_if_expired);
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
        memcpy(text + i, "\xe2\x82\xac", 3);
    struct report report = { .fence = world_grant(&world),
                             .outcome = OUTCOME_REJECTED,
                             .error_code = text,
                             .error_message = text };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    assert_int_equal(strlen(saga_entry(world.saga, 1)->error_code), 126);
    assert_int_equal(strlen(saga_entry(world.saga, 1)->error_message), 1023);
    world_close(&world);
}

static void test_journal_limit_parks(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = INT64_C(366) * 24 * 3600 * 1000;
    world_start(&world);
    world.compare = false; /* a replay for each of so many would take minutes */
    for (int i = 0; i < 9936; i++) {
        (void)world_run(&world, OUTCOME_RETRY);
        world_pass(&world, 60000);
    }
    assert_false(world_is_grantable(&world));
    assert_true(saga_due_at(world.saga) <= world.now_ms);
    world.compare = true;
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: LIMIT_REACHED");
    assert_non_null(strstr(saga_row(world.saga)->park_message, "10000"));
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    assert_int_equal(world_cancel(&world), 0); /* the reserve is for that */
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

/* The estimate of the clock is off; the tables' times are the database's. */
static void test_estimated_times_are_replaced_at_commit(void **state)
{
    (void)state;
    for (int64_t skew = -3000; skew <= 3000; skew += 1500) {
        struct world world;
        world_open(&world, 2);
        world.definition->deadline_ms = 500000;
        world.skew_ms = skew;
        world_start(&world);
        (void)world_run(&world, OUTCOME_RETRY);
        world_pass(&world, 10000);
        (void)world_run(&world, OUTCOME_DONE);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        assert_int_equal(world_cancel(&world), 0);
        assert_int_equal(saga_row(world.saga)->deadline_at_ms, WORLD_START_MS + 500000);
        assert_int_equal(saga_row(world.saga)->updated_at_ms, world.now_ms);
        world_close(&world);
    }
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
        cmocka_unit_test(test_budget_spent),
        cmocka_unit_test(test_budget_in_time),
        cmocka_unit_test(test_retry_after_and_operator_retry_in_backoff),
        cmocka_unit_test(test_released_burns_no_try),
        cmocka_unit_test(test_start_timeout),
        cmocka_unit_test(test_failed_compensations_park),
        cmocka_unit_test(test_worker_killer_counts_losses_in_a_row),
        cmocka_unit_test(test_already_done),
        cmocka_unit_test(test_deadline_compensates),
        cmocka_unit_test(test_deadline_parks_once),
        cmocka_unit_test(test_last_step_done_while_parked_ends_with_the_retry),
        cmocka_unit_test(test_deadline_acts_when_a_parked_saga_goes_on),
        cmocka_unit_test(test_refusal_while_parked_turns_the_phase),
        cmocka_unit_test(test_reports_with_wrong_fences),
        cmocka_unit_test(test_extension),
        cmocka_unit_test(test_expiry_waits_for_the_grace),
        cmocka_unit_test(test_long_texts_are_cut_at_a_character),
        cmocka_unit_test(test_journal_limit_parks),
        cmocka_unit_test(test_estimated_times_are_replaced_at_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
