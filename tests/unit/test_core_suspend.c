/* Goal: a person stops a saga and lets it go on, and nothing is lost, granted or counted meanwhile.
 * Method: each report of a live lease while it is stopped, then what the journal says on resume;
 * the clocks that stand still and the one that does not; each verb. */
#include "core_world.h"

static const char suspended[] = "PARKED in RUNNING: SUSPENDED";

static void suspend(struct world *world)
{
    assert_int_equal(world_suspend(world), 0);
    assert_int_equal(world->verdict, VERDICT_ACCEPTED);
    assert_false(world_is_grantable(world));
}

static void resume(struct world *world)
{
    assert_int_equal(world_resume(world), 0);
    assert_int_equal(world->verdict, VERDICT_ACCEPTED);
}

static void test_nothing_is_granted_until_it_is_resumed(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    suspend(&world);
    world_assert_state(&world, suspended);
    world_assert_waits(&world, WAIT_OPERATOR, 0);
    world_assert_step(&world, 1, "PENDING");
    assert_int_equal(saga_row(world.saga)->park_step, -1);
    assert_string_equal(saga_row(world.saga)->park_message, "the bank asked");
    assert_string_equal(saga_entry(world.saga, 2)->actor, "anna");
    assert_int_equal(world_suspend(&world), 0);
    assert_int_equal(world.verdict, VERDICT_NOTHING);
    world_pass(&world, INT64_C(30) * 24 * 3600 * 1000);
    assert_int_equal(saga_due_at(world.saga), INT64_MAX);
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), INT64_MAX);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_reload(&world);
    resume(&world);
    assert_int_equal(world_resume(&world), 0);
    assert_int_equal(world.verdict, VERDICT_NOTHING);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 PARK - SUSPENDED\n"
                               "3 +2592000000 RESUME - about 2\n"
                               "4 +2592000000 b ACTION 1 -> +2592000000 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

static void test_suspended_time_is_not_of_the_budget(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    world_pass(&world, 10000);
    suspend(&world);
    world_pass(&world, 500000);
    resume(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 600000);
    world_pass(&world, 80000); /* +590000: a try of ten seconds fits */
    int64_t seq = world_grant(&world);
    struct report report = { .fence = seq, .outcome = OUTCOME_RETRY, .retry_after_ms = 9999 };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    world_assert_state(&world, "RUNNING");
    world_pass(&world, 9999);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_pass(&world, 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

/* A fresh budget begins after it: what was suspended before is not given twice. */
static void test_suspended_time_is_given_to_the_budget_that_it_stopped(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world.definition->steps[1].action.retry.for_ms = 100000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    suspend(&world); /* beside a live lease */
    world_pass(&world, 20000);
    resume(&world);
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 120000);
    world_pass(&world, 60000);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_RETRY);
    assert_int_equal(saga_due_at(world.saga), world.now_ms + 100000);
    world_close(&world);
}

static void test_suspended_time_is_not_before_the_deadline(void **state)
{
    (void)state;
    for (int policy = ON_DEADLINE_COMPENSATE; policy < ON_DEADLINE_COUNT; policy++) {
        struct world world;
        world_open(&world, 1);
        world.definition->deadline_ms = 10000;
        world.definition->on_deadline = (enum on_deadline)policy;
        world_start(&world);
        for (int i = 0; i < 2; i++) { /* they add up */
            world_pass(&world, 1000);
            suspend(&world);
            world_pass(&world, 50000);
            resume(&world);
            world_assert_state(&world, "RUNNING");
        }
        assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 110000);
        world_pass(&world, 7999);
        assert_int_equal(world_time(&world), VERDICT_NOTHING);
        assert_true(world_is_grantable(&world));
        world_pass(&world, 1);
        assert_false(world_is_grantable(&world));
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        world_assert_state(&world, policy == ON_DEADLINE_PARK
                                       ? "PARKED in RUNNING: DEADLINE_EXCEEDED"
                                       : "COMPENSATED");
        world_close(&world);
    }
}

/* It was over before anybody acted on it: then it acts when the saga goes on. */
static void test_a_deadline_that_passed_before_acts_on_resume(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 10000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    world_pass(&world, 10000);
    suspend(&world);
    world_pass(&world, 50000);
    resume(&world);
    world_assert_state(&world, "COMPENSATING");
    assert_int_equal(world.transition.append_count, 2); /* in one transition */
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_suspended_time_is_not_of_the_start_timeout(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.start_timeout_ms = 5000;
    world_start(&world);
    world_pass(&world, 4000);
    suspend(&world);
    world_pass(&world, 100000);
    resume(&world);
    assert_int_equal(saga_due_at(world.saga), world.now_ms + 5000); /* grantable since then */
    world_pass(&world, 4999);
    assert_true(world_is_grantable(&world));
    world_pass(&world, 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

/* The other side forgets its keys whatever we do. */
static void test_p4_the_idempotency_window_goes_on(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].settle_ms = 5000;
    world.definition->steps[0].action.window_ms = 60000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    suspend(&world);
    world_pass(&world, 54900);
    resume(&world);
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: IDEMPOTENCY_WINDOW_OVER");
    world_close(&world);
}

static const struct {
    enum effect effect;
    enum outcome outcome;
    const char *meanwhile;
    const char *resumed; /* once time had its say; NULL: it cannot be resumed */
} live_actions[] = {
    { EFFECT_IDEMPOTENT, OUTCOME_DONE, suspended, "RUNNING" },
    { EFFECT_IDEMPOTENT, OUTCOME_REJECTED, "PARKED in COMPENSATING: SUSPENDED", "COMPENSATING" },
    { EFFECT_IDEMPOTENT, OUTCOME_RETRY, suspended, "RUNNING" },
    { EFFECT_IDEMPOTENT, OUTCOME_UNKNOWN, suspended, "RUNNING" },
    { EFFECT_IDEMPOTENT, OUTCOME_EXPIRED, suspended, "RUNNING" },
    { EFFECT_IDEMPOTENT, OUTCOME_RELEASED, suspended, "RUNNING" },
    { EFFECT_IDEMPOTENT, OUTCOME_ALREADY_DONE, "PARKED in RUNNING: FOREIGN_EFFECT", NULL },
    { EFFECT_AT_MOST_ONCE, OUTCOME_UNKNOWN, suspended, "PARKED in RUNNING: OUTCOME_UNKNOWN" },
    { EFFECT_AT_MOST_ONCE, OUTCOME_EXPIRED, suspended, "PARKED in RUNNING: OUTCOME_UNKNOWN" },
    { EFFECT_AT_MOST_ONCE, OUTCOME_DONE, suspended, "RUNNING" },
    { EFFECT_PROBED, OUTCOME_UNKNOWN, suspended, "RUNNING" },
};

static void end_lease(struct world *world, int64_t seq, enum outcome outcome)
{
    if (outcome == OUTCOME_EXPIRED)
        world_expire(world, seq);
    else if (outcome == OUTCOME_RELEASED)
        assert_int_equal(world_lease_end(world, seq, outcome), VERDICT_ACCEPTED);
    else
        assert_int_equal(world_report(world, seq, outcome), VERDICT_ACCEPTED);
}

static void test_a_live_action_is_recorded_and_resume_does_what_follows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(live_actions); i++) {
        struct world world;
        print_message("case %zu\n", i);
        world_open(&world, 3);
        struct step_rule *b = &world.definition->steps[1];
        b->settle_ms = 0;
        b->action.effect = live_actions[i].effect;
        if (b->action.effect == EFFECT_PROBED)
            (void)world_add_probe(&world, 1, OPERATION_ACTION);
        world_start(&world);
        (void)world_run(&world, OUTCOME_DONE);
        int64_t seq = world_grant(&world);
        suspend(&world);
        end_lease(&world, seq, live_actions[i].outcome);
        world_assert_state(&world, live_actions[i].meanwhile);
        assert_false(world_is_grantable(&world));
        if (!live_actions[i].resumed) { /* a graver reason took its place */
            world_assert_refused(&world, world_resume(&world), "RESUME_NOT_ALLOWED");
            world_close(&world);
            continue;
        }
        resume(&world);
        (void)world_time(&world);
        world_assert_state(&world, live_actions[i].resumed);
        world_pass(&world, 60000);
        if (b->action.effect == EFFECT_PROBED)
            (void)world_grant_of(&world, 1, OPERATION_PROBE);
        world_close(&world);
    }
}

static void test_a_spent_budget_shows_on_resume(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.max_attempts = 1;
    world_start(&world);
    int64_t seq = world_grant(&world);
    suspend(&world);
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
    resume(&world);
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_the_last_step_done_meanwhile_ends_it_on_resume(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    int64_t seq = world_grant(&world);
    suspend(&world);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, suspended);
    resume(&world);
    assert_true(world.transition.ends);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

static void test_a_live_compensation_is_recorded(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *resumed;
    } cases[] = {
        { OUTCOME_DONE, "COMPENSATED" },
        { OUTCOME_REJECTED, "PARKED in COMPENSATING: COMPENSATION_FAILED" },
        { OUTCOME_UNKNOWN, "PARKED in COMPENSATING: OUTCOME_UNKNOWN" },
        { OUTCOME_RETRY, "COMPENSATING" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].compensation.effect = EFFECT_AT_MOST_ONCE;
        world_start(&world);
        (void)world_run(&world, OUTCOME_DONE);
        (void)world_run(&world, OUTCOME_REJECTED);
        int64_t seq = world_grant(&world);
        suspend(&world);
        assert_int_equal(world_report(&world, seq, cases[i].outcome), VERDICT_ACCEPTED);
        world_assert_state(&world, "PARKED in COMPENSATING: SUSPENDED");
        resume(&world);
        (void)world_time(&world);
        world_assert_state(&world, cases[i].resumed);
        world_close(&world);
    }
}

static void test_a_live_probe_is_recorded(void **state)
{
    (void)state;
    static const enum outcome answers[] = { OUTCOME_DONE, OUTCOME_NOT_DONE, OUTCOME_STILL_UNKNOWN };
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].settle_ms = 0;
        world.definition->steps[0].action.effect = EFFECT_PROBED;
        world_add_probe(&world, 0, OPERATION_ACTION)->retry.max_attempts = 1;
        world_start(&world);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        int64_t seq = world_grant_of(&world, 0, OPERATION_PROBE);
        suspend(&world);
        assert_int_equal(world_report(&world, seq, answers[i]), VERDICT_ACCEPTED);
        world_assert_state(&world, suspended);
        resume(&world);
        (void)world_time(&world);
        if (answers[i] == OUTCOME_STILL_UNKNOWN)
            world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
        else
            (void)world_grant_of(&world, answers[i] == OUTCOME_DONE, OPERATION_ACTION);
        world_close(&world);
    }
}

/* A late report and a person's word settle what is unknown, and it stays suspended. */
static void test_what_is_settled_meanwhile(void **state)
{
    (void)state;
    for (int person = 0; person <= 1; person++) {
        struct world world;
        world_open(&world, 2);
        world_start(&world);
        int64_t seq = world_grant(&world);
        world_expire(&world, seq);
        suspend(&world);
        if (person)
            assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, true, NULL), 0);
        else
            assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
        world_assert_state(&world, suspended);
        resume(&world);
        (void)world_grant_of(&world, 1, OPERATION_ACTION);
        world_close(&world);
    }
}

static void open_suspended(struct world *world, bool back, bool live)
{
    world_open(world, 2);
    world_start(world);
    (void)world_run(world, OUTCOME_DONE);
    if (back)
        (void)world_run(world, OUTCOME_REJECTED);
    if (live)
        (void)world_grant(world);
    suspend(world);
}

static void test_verbs_while_suspended(void **state)
{
    (void)state;
    for (int back = 0; back <= 1; back++) {
        for (int live = 0; live <= 1; live++) {
            struct world world;
            open_suspended(&world, back, live);
            world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
            world_assert_refused(&world, world_skip(&world, NULL),
                                 live && back ? "LEASE_LIVE" : "SKIP_NOT_ALLOWED");
            int rc = world_resolve(&world, "a", OPERATION_COUNT, true, NULL);
            world_assert_refused(&world, rc, live && back ? "LEASE_LIVE" : "NOTHING_TO_RESOLVE");
            if (live)
                world_assert_refused(&world, world_abandon(&world), "LEASE_LIVE");
            else
                assert_int_equal(world_abandon(&world), 0);
            if (!live)
                world_assert_state(&world, "ABANDONED");
            world_close(&world);

            open_suspended(&world, back, live);
            rc = world_cancel(&world);
            if (back)
                world_assert_refused(&world, rc, "CANCEL_NOT_ALLOWED");
            else
                world_assert_state(&world, "COMPENSATING");
            world_close(&world);

            open_suspended(&world, back, live);
            resume(&world);
            world_assert_state(&world, back ? "COMPENSATING" : "RUNNING");
            assert_int_equal(world_is_grantable(&world), !live);
            world_close(&world);
        }
    }
}

/* It is parked already: what it is parked for has its own way out. */
static void test_what_is_parked_for_another_reason_is_not_suspended(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_assert_refused(&world, world_suspend(&world), "SUSPEND_NOT_ALLOWED");
    assert_non_null(strstr(world.err.msg, "OUTCOME_UNKNOWN"));
    world_assert_refused(&world, world_resume(&world), "RESUME_NOT_ALLOWED");
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_granted_until_it_is_resumed),
        cmocka_unit_test(test_suspended_time_is_not_of_the_budget),
        cmocka_unit_test(test_suspended_time_is_given_to_the_budget_that_it_stopped),
        cmocka_unit_test(test_suspended_time_is_not_before_the_deadline),
        cmocka_unit_test(test_a_deadline_that_passed_before_acts_on_resume),
        cmocka_unit_test(test_suspended_time_is_not_of_the_start_timeout),
        cmocka_unit_test(test_p4_the_idempotency_window_goes_on),
        cmocka_unit_test(test_a_live_action_is_recorded_and_resume_does_what_follows),
        cmocka_unit_test(test_a_spent_budget_shows_on_resume),
        cmocka_unit_test(test_the_last_step_done_meanwhile_ends_it_on_resume),
        cmocka_unit_test(test_a_live_compensation_is_recorded),
        cmocka_unit_test(test_a_live_probe_is_recorded),
        cmocka_unit_test(test_what_is_settled_meanwhile),
        cmocka_unit_test(test_verbs_while_suspended),
        cmocka_unit_test(test_what_is_parked_for_another_reason_is_not_suspended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
