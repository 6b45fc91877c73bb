/* Goal: budgets, time-outs, deadlines, leases and limits act when the design says, no sooner and no
 * later. Method: scripted events around each moment, exact traces with times; after each commit a
 * replay of the tables equals the copy. */
#include "core/limits.h"
#include "core_world.h"

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
        assert_int_equal(saga_entry(world.saga, 3)->retry_at_ms, 0); /* not by itself */
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
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), world.now_ms + 600000);
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

static void test_journal_limit_parks(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = INT64_C(366) * 24 * 3600 * 1000;
    world_start(&world);
    world.compare = false; /* a replay for each of so many would take minutes */
    for (int i = 0; i < 9936; i++) {
        world_pass(&world, 60000);
        (void)world_run(&world, OUTCOME_RETRY);
    }
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    assert_non_null(strstr(world.err.msg, "journal is full"));
    world_pass(&world, 60000);
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

/* Waiting for a worker spends the budget, too; a maybe step then goes the way of an unknown. */
static void test_budget_over_with_an_unsettled_attempt(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world.definition->steps[0].action.on_exhausted = ON_EXHAUSTED_COMPENSATE;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_pass(&world, 100000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    world_close(&world);
}

static void test_start_timeout_ends_with_the_first_grant(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.start_timeout_ms = 5000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    assert_int_equal(world_retry(&world, NULL), 0);
    assert_int_equal(saga_due_at(world.saga), INT64_MAX);
    world_pass(&world, 100000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    assert_true(world_is_grantable(&world));
    world_close(&world);
}

/* The estimate runs ahead of the database: what was parked "too early" is not parked again. */
static void test_deadline_parks_once_by_whatever_clock(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 10000;
    world.definition->on_deadline = ON_DEADLINE_PARK;
    world.skew_ms = 3000;
    world_start(&world);
    world_pass(&world, 8000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    assert_int_equal(world_retry(&world, NULL), 0);
    world_pass(&world, 5000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    assert_true(world_is_grantable(&world));
    world_close(&world);
}

static void test_backoff_holds_between_the_event_and_its_commit(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    struct report report = { .fence = world_grant(&world),
                             .outcome = OUTCOME_RETRY,
                             .retry_after_ms = 5000 };
    struct grantable what;
    ASSERT_OK(saga_on_report(world.saga, &report, world.now_ms, &world.rng, &world.transition,
                             &world.verdict, &world.err),
              &world.err);
    assert_int_equal(saga_grantable(world.saga, world.now_ms, &what, 1), 0);
    assert_int_equal(saga_grantable(world.saga, world.now_ms + 5000, &what, 1), 1);
    assert_int_equal(
        saga_grant(world.saga, &what, "worker/1", 0, world.now_ms, &world.transition, &world.err),
        ERR_INTERNAL);
    world_commit(&world);
    world_close(&world);
}

static void test_settle_time_is_for_unguarded_steps(void **state)
{
    (void)state;
    for (int guarded = 0; guarded <= 1; guarded++) {
        struct world world;
        world_open(&world, 1);
        world.definition->steps[0].guarded = guarded;
        world.definition->steps[0].settle_ms = 5000;
        world_start(&world);
        int64_t lost = world_grant(&world);
        int64_t until = saga_entry(world.saga, lost)->lease_until_ms;
        assert_int_equal(world_lease_end(&world, lost, OUTCOME_STREAM_LOST), VERDICT_ACCEPTED);
        world_pass(&world, 1000);
        (void)world_run(&world, OUTCOME_UNKNOWN); /* ended sooner than the lost one's lease */
        assert_int_equal(world_cancel(&world), 0);
        assert_int_equal(saga_grantable_at(world.saga, world.now_ms),
                         guarded ? until : until + 5000);
        world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
        assert_non_null(strstr(world.err.msg, "on their way"));
        world_close(&world);
    }
}

/* The reserve is for decisions: evidence that changes nothing takes half of it at most. */
static void test_evidence_does_not_eat_up_the_journal(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = INT64_C(366) * 24 * 3600 * 1000;
    world_start(&world);
    world.compare = false;
    for (int i = 0; i < 9936; i++) {
        int64_t seq = world_grant(&world);
        if (i < 80 && i % 2)
            world_expire(&world, seq);
        else
            assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
        world_pass(&world, 60000);
    }
    for (int64_t seq = 2; seq <= 80; seq += 2) {
        assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_STALE);
        assert_int_equal(transition_is_empty(&world.transition), seq > 64);
    }
    assert_int_equal(saga_last_seq(world.saga), 9936 + 32);
    world.compare = true;
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: LIMIT_REACHED");
    world_close(&world);
}

static void test_nothing_is_granted_beyond_the_deadline(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 10000;
    world_start(&world);
    world_pass(&world, 9999);
    assert_true(world_is_grantable(&world));
    world_pass(&world, 1);
    assert_false(world_is_grantable(&world));
    world_close(&world);
}

/* Goal: no task is cut down to fit; a saga whose next task would be over the limit parks and says
 * so, and what was done can still be taken back. Method: 15 steps of 256 KiB outputs. */
static void test_outputs_over_the_task_limit_park(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 15);
    world_start(&world);
    static uint8_t output[LIMIT_PAYLOAD_BYTES];
    int done = 0;
    while (world_is_grantable(&world)) {
        struct report report = { .outcome = OUTCOME_DONE, .output = { output, sizeof output } };
        report.fence = saga_entry(world.saga, world_grant(&world))->fence;
        assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
        done++;
    }
    assert_int_equal(done, LIMIT_TASK_BYTES / LIMIT_PAYLOAD_BYTES + 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: LIMIT_REACHED");
    assert_string_equal(saga_row(world.saga)->park_code, "TASK_LIMIT");
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    assert_int_equal(world_cancel(&world), 0);
    while (world_is_grantable(&world))
        (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_spent),
        cmocka_unit_test(test_budget_in_time),
        cmocka_unit_test(test_retry_after_and_operator_retry_in_backoff),
        cmocka_unit_test(test_released_burns_no_try),
        cmocka_unit_test(test_start_timeout),
        cmocka_unit_test(test_worker_killer_counts_losses_in_a_row),
        cmocka_unit_test(test_deadline_compensates),
        cmocka_unit_test(test_deadline_parks_once),
        cmocka_unit_test(test_last_step_done_while_parked_ends_with_the_retry),
        cmocka_unit_test(test_deadline_acts_when_a_parked_saga_goes_on),
        cmocka_unit_test(test_refusal_while_parked_turns_the_phase),
        cmocka_unit_test(test_extension),
        cmocka_unit_test(test_expiry_waits_for_the_grace),
        cmocka_unit_test(test_journal_limit_parks),
        cmocka_unit_test(test_estimated_times_are_replaced_at_commit),
        cmocka_unit_test(test_budget_over_with_an_unsettled_attempt),
        cmocka_unit_test(test_start_timeout_ends_with_the_first_grant),
        cmocka_unit_test(test_deadline_parks_once_by_whatever_clock),
        cmocka_unit_test(test_backoff_holds_between_the_event_and_its_commit),
        cmocka_unit_test(test_settle_time_is_for_unguarded_steps),
        cmocka_unit_test(test_evidence_does_not_eat_up_the_journal),
        cmocka_unit_test(test_nothing_is_granted_beyond_the_deadline),
        cmocka_unit_test(test_outputs_over_the_task_limit_park),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
