/* Goal: nothing is sent with an idempotency key that the other side may have forgotten, nor so that
 * it could arrive then. Method: attempts around the end of the window, each way in which it begins
 * anew or does not; after each commit a replay of the tables equals the copy. */
#include "core/limits.h"
#include "core_world.h"

enum { WINDOW_MS = 60000, SETTLE_MS = 5000, SEND_MS = WINDOW_MS - SETTLE_MS };

/* Steps a and b; a's action remembers its key for a minute. */
static struct operation_rule *open_window(struct world *world)
{
    world_open(world, 2);
    struct step_rule *a = &world->definition->steps[0];
    a->guarded = false;
    a->settle_ms = SETTLE_MS;
    a->action.window_ms = WINDOW_MS;
    a->action.retry.initial_ms = a->action.retry.cap_ms = 1; /* as good as at once */
    return &a->action;
}

static int64_t since_start(const struct world *world)
{
    return world->now_ms - WORLD_START_MS;
}

/* Grants at that time, and no sooner than it may. */
static int64_t grant_at(struct world *world, int64_t ms)
{
    assert_true(ms >= since_start(world));
    world->now_ms = WORLD_START_MS + ms;
    return world_grant(world);
}

/* The window ends there for the lease at seq; and what is sent has time to arrive. */
static void assert_sent_before(const struct world *world, int64_t seq, int64_t ms)
{
    struct task_view task;
    saga_task_view(world->saga, seq, &task);
    assert_int_equal(task.send_before_ms, WORLD_START_MS + ms);
    assert_true(task.lease->attempt_until_ms <= task.send_before_ms);
    assert_true(task.lease->lease_until_ms <= task.lease->attempt_until_ms);
}

static void unknown_at(struct world *world, int64_t ms)
{
    assert_int_equal(world_report(world, grant_at(world, ms), OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
}

static void test_p4_every_attempt_ends_before_the_window_does(void **state)
{
    (void)state;
    for (int64_t skew = -50; skew <= 50; skew += 50) {
        struct world world;
        (void)open_window(&world);
        world.skew_ms = skew;
        world_start(&world);
        for (int64_t ms = 0; ms < SEND_MS - 200; ms += 9000) {
            int64_t seq = grant_at(&world, ms);
            assert_sent_before(&world, seq, SEND_MS);
            assert_int_equal(saga_entry(world.saga, seq)->attempt_until_ms,
                             WORLD_START_MS + SEND_MS);
            world_pass(&world, 5000); /* and no extension goes beyond it */
            saga_extended(world.saga, seq, world.now_ms);
            world.entries[seq - 1].lease_until_ms = saga_entry(world.saga, seq)->lease_until_ms;
            assert_sent_before(&world, seq, SEND_MS);
            if (since_start(&world) > SEND_MS - 200)
                break;
            assert_int_equal(world_report(&world, seq, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
            world_reload(&world); /* it is in the journal, not in memory */
        }
        world_close(&world);
    }
    /* An attempt_timeout that ends sooner stays. */
    struct world world;
    open_window(&world)->attempt_timeout_ms = 7000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(saga_entry(world.saga, seq)->attempt_until_ms, WORLD_START_MS + 7000);
    world_close(&world);
}

static void test_p4_the_window_counts_from_the_first_attempt_since_nothing_was_unsettled(
    void **state)
{
    (void)state;
    struct world world;
    (void)open_window(&world);
    world_start(&world);
    /* RETRY had no effect, RELEASED never started: neither begins a window that lasts. */
    assert_int_equal(world_report(&world, grant_at(&world, 0), OUTCOME_RETRY), VERDICT_ACCEPTED);
    int64_t seq = grant_at(&world, 10000);
    assert_int_equal(world_lease_end(&world, seq, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    unknown_at(&world, 20000);
    /* From here nothing begins it anew. */
    assert_sent_before(&world, seq = grant_at(&world, 30000), 20000 + SEND_MS);
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
    assert_sent_before(&world, seq = grant_at(&world, 40000), 20000 + SEND_MS);
    assert_int_equal(world_lease_end(&world, seq, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    world_reload(&world);
    assert_sent_before(&world, grant_at(&world, 50000), 20000 + SEND_MS);
    struct unknown_view view;
    assert_true(saga_unknown_view(world.saga, 0, &view));
    assert_int_equal(view.send_before_ms, WORLD_START_MS + 20000 + SEND_MS);
    assert_int_equal(view.attempts, 1);
    world_close(&world);
}

static void test_p4_a_lease_given_back_that_ran_after_all_counts_from_its_grant(void **state)
{
    (void)state;
    struct world world;
    (void)open_window(&world);
    world_start(&world);
    int64_t seq = grant_at(&world, 0);
    assert_int_equal(world_lease_end(&world, seq, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    int64_t second = grant_at(&world, 10000);
    assert_int_equal(world_report(&world, seq, OUTCOME_UNKNOWN), VERDICT_STALE);
    assert_int_equal(world_report(&world, second, OUTCOME_RETRY), VERDICT_ACCEPTED);
    assert_sent_before(&world, grant_at(&world, 20000), SEND_MS);
    world_close(&world);
}

/* How the window of an unsettled attempt comes to its end. */
enum ends { BY_TIME, BY_REPORT, BY_RETRY_AFTER };

static void run_out(struct world *world, enum ends how)
{
    int64_t over = SEND_MS - ATTEMPT_LEAST_MS;
    unknown_at(world, 0);
    if (how == BY_TIME) {
        assert_int_equal(saga_due_at(world->saga), WORLD_START_MS + over);
        world->now_ms = WORLD_START_MS + over - 1;
        assert_int_equal(world_time(world), VERDICT_NOTHING);
        assert_true(world_is_grantable(world));
        world_pass(world, 1);
        assert_false(world_is_grantable(world));
        assert_int_equal(world_time(world), VERDICT_ACCEPTED);
    } else if (how == BY_REPORT) {
        int64_t seq = grant_at(world, 30000);
        world->now_ms = WORLD_START_MS + over;
        assert_int_equal(world_report(world, seq, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    } else {
        struct report report = { .fence = saga_entry(world->saga, grant_at(world, 30000))->fence,
                                 .outcome = OUTCOME_RETRY,
                                 .retry_after_ms = over - 30000 + 1 };
        assert_int_equal(world_report_full(world, &report), VERDICT_ACCEPTED);
    }
}

static void test_p4_after_the_window_on_unknown_decides(void **state)
{
    (void)state;
    static const struct {
        enum on_unknown policy;
        const char *state;
    } cases[] = {
        { ON_UNKNOWN_PARK, "PARKED in RUNNING: IDEMPOTENCY_WINDOW_OVER" },
        { ON_UNKNOWN_COMPENSATE, "COMPENSATING" },
        { ON_UNKNOWN_ACCEPT, "RUNNING, doubt" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int how = BY_TIME; how <= BY_RETRY_AFTER; how++) {
            struct world world;
            open_window(&world)->on_unknown = cases[i].policy;
            world_start(&world);
            run_out(&world, (enum ends)how);
            world_assert_state(&world, cases[i].state);
            if (cases[i].policy != ON_UNKNOWN_PARK) {
                world_close(&world);
                continue;
            }
            world.now_ms = WORLD_START_MS + WINDOW_MS;
            world_assert_refused(&world, world_retry(&world, NULL), "OUTCOME_UNKNOWN");
            assert_non_null(strstr(world.err.msg, "idempotency key may be forgotten"));
            assert_int_equal(world_cancel(&world), 0); /* taken back as maybe */
            struct task_view task;
            saga_task_view(world.saga, world_grant_of(&world, 0, OPERATION_COMPENSATION), &task);
            assert_false(task.action_done);
            world_close(&world);
        }
    }
}

static void test_p4_after_the_window_the_probe_decides(void **state)
{
    (void)state;
    static const enum outcome answers[] = { OUTCOME_DONE, OUTCOME_NOT_DONE, OUTCOME_STILL_UNKNOWN };
    for (int how = BY_TIME; how <= BY_RETRY_AFTER; how++) {
        for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
            struct world world;
            open_window(&world)->fresh_key = true;
            world_add_probe(&world, 0, OPERATION_ACTION)->retry.max_attempts = 1;
            world_start(&world);
            run_out(&world, (enum ends)how);
            world_assert_state(&world, "RUNNING");
            assert_int_equal(saga_entry(world.saga, saga_last_seq(world.saga))->kind, ENTRY_PROBE);
            world_pass(&world, SETTLE_MS);
            int64_t seq = world_grant_of(&world, 0, OPERATION_PROBE);
            assert_int_equal(world_report(&world, seq, answers[i]), VERDICT_ACCEPTED);
            if (answers[i] == OUTCOME_DONE) {
                world_assert_step(&world, 0, "DONE");
            } else if (answers[i] == OUTCOME_NOT_DONE) { /* a new key and a new window */
                seq = world_grant_of(&world, 0, OPERATION_ACTION);
                assert_sent_before(&world, seq, since_start(&world) + SEND_MS);
                assert_int_equal(saga_key_generation(world.saga, 0, OPERATION_ACTION), 1);
            } else {
                world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
                world.now_ms = WORLD_START_MS + WINDOW_MS;
                assert_int_equal(world_retry(&world, NULL), 0); /* asks again */
                (void)world_grant_of(&world, 0, OPERATION_PROBE);
            }
            world_close(&world);
        }
    }
}

static void test_a_not_done_begins_a_new_window(void **state)
{
    (void)state;
    struct world world;
    (void)open_window(&world);
    world_start(&world);
    run_out(&world, BY_REPORT);
    assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, false, NULL), 0);
    world_assert_state(&world, "RUNNING");
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), world.now_ms + SETTLE_MS);
    world_pass(&world, SETTLE_MS);
    int64_t from = since_start(&world);
    unknown_at(&world, from);
    assert_sent_before(&world, grant_at(&world, from + 1000), from + SEND_MS);
    world_close(&world);
}

static void test_without_an_unsettled_attempt_there_is_no_window(void **state)
{
    (void)state;
    struct world world;
    (void)open_window(&world);
    world_start(&world);
    struct report report = { .fence = grant_at(&world, 0),
                             .outcome = OUTCOME_RETRY,
                             .retry_after_ms = 2 * WINDOW_MS };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    world_assert_state(&world, "RUNNING");
    assert_sent_before(&world, grant_at(&world, 2 * WINDOW_MS), 2 * WINDOW_MS + SEND_MS);
    world_close(&world);
}

/* A person may have it repeated while its key is remembered, whatever the budget said. */
static void test_retry_of_a_spent_budget_within_and_after_the_window(void **state)
{
    (void)state;
    for (int after = 0; after <= 1; after++) {
        struct world world;
        open_window(&world)->retry.max_attempts = 1;
        world_start(&world);
        unknown_at(&world, 0);
        world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
        world_pass(&world, SEND_MS - ATTEMPT_LEAST_MS - 1 + after);
        int rc = world_retry(&world, NULL);
        if (after)
            world_assert_refused(&world, rc, "OUTCOME_UNKNOWN");
        else
            assert_int_equal(rc, 0);
        world_close(&world);
    }
}

static void test_the_budget_may_end_before_the_window(void **state)
{
    (void)state;
    struct world world;
    open_window(&world)->retry.for_ms = 30000;
    world_start(&world);
    unknown_at(&world, 0);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 30000);
    world_pass(&world, 30000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    world_close(&world);
}

static void test_late_reports_after_the_window(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *state;
    } cases[] = {
        { OUTCOME_DONE, "RUNNING" },
        { OUTCOME_RETRY, "RUNNING" },
        { OUTCOME_REJECTED, "COMPENSATED" },
        { OUTCOME_UNKNOWN, "PARKED in RUNNING: IDEMPOTENCY_WINDOW_OVER" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        open_window(&world)->lease_ms = 2 * WINDOW_MS;
        world_start(&world);
        int64_t seq = grant_at(&world, 0);
        world_expire(&world, seq); /* at the end of the window */
        world_assert_state(&world, "PARKED in RUNNING: IDEMPOTENCY_WINDOW_OVER");
        (void)world_report(&world, seq, cases[i].outcome);
        world_assert_state(&world, cases[i].state);
        world_close(&world);
    }
}

static void test_p4_a_compensation_has_its_window_too(void **state)
{
    (void)state;
    for (int probed = 0; probed <= 1; probed++) {
        struct world world;
        world_open(&world, 2);
        struct step_rule *a = &world.definition->steps[0];
        a->settle_ms = SETTLE_MS;
        a->compensation.window_ms = WINDOW_MS;
        if (probed)
            (void)world_add_probe(&world, 0, OPERATION_COMPENSATION);
        world_start(&world);
        (void)world_run(&world, OUTCOME_DONE);
        (void)world_run(&world, OUTCOME_REJECTED);
        int64_t seq = world_run(&world, OUTCOME_UNKNOWN);
        assert_sent_before(&world, seq, SEND_MS);
        world_pass(&world, SEND_MS - ATTEMPT_LEAST_MS);
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        if (probed) {
            (void)world_grant_of(&world, 0, OPERATION_PROBE);
        } else {
            world_assert_state(&world, "PARKED in COMPENSATING: IDEMPOTENCY_WINDOW_OVER");
            world_assert_refused(&world, world_retry(&world, NULL), "OUTCOME_UNKNOWN");
            assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, true, NULL), 0);
            world_assert_state(&world, "COMPENSATED");
        }
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p4_every_attempt_ends_before_the_window_does),
        cmocka_unit_test(
            test_p4_the_window_counts_from_the_first_attempt_since_nothing_was_unsettled),
        cmocka_unit_test(test_p4_a_lease_given_back_that_ran_after_all_counts_from_its_grant),
        cmocka_unit_test(test_p4_after_the_window_on_unknown_decides),
        cmocka_unit_test(test_p4_after_the_window_the_probe_decides),
        cmocka_unit_test(test_a_not_done_begins_a_new_window),
        cmocka_unit_test(test_without_an_unsettled_attempt_there_is_no_window),
        cmocka_unit_test(test_retry_of_a_spent_budget_within_and_after_the_window),
        cmocka_unit_test(test_the_budget_may_end_before_the_window),
        cmocka_unit_test(test_late_reports_after_the_window),
        cmocka_unit_test(test_p4_a_compensation_has_its_window_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
