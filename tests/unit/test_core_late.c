/* Goal: each row of the design's table of late reports (the tests named test_row_...), and what
 * they leave open. Method: one scene for each row and outcome; the journal keeps the lease's own
 * outcome, the report is a new entry. */
#include "core_world.h"

/* One AT_MOST_ONCE or IDEMPOTENT step "a" whose first lease has expired, before step "b". */
static void open_expired(struct world *world, enum effect effect)
{
    world_open(world, 2);
    world->definition->steps[0].action.effect = effect;
    world->definition->steps[0].guarded = false;
    world->definition->steps[0].settle_ms = 0;
    world_start(world);
    world_expire(world, world_grant(world));
}

static void test_row_unsettled_and_no_newer_attempt_is_its_resolution(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *state;
        const char *kinds; /* of the entries after the park */
    } cases[] = {
        { OUTCOME_DONE, "RUNNING", "LR" },
        { OUTCOME_RETRY, "RUNNING", "LR" },
        { OUTCOME_REJECTED, "COMPENSATED", "LRC" }, /* nothing else to take back */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        open_expired(&world, EFFECT_AT_MOST_ONCE);
        world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
        assert_int_equal(world_report(&world, 1, cases[i].outcome), VERDICT_ACCEPTED);
        assert_true(world.transition.phase_change);
        world_assert_state(&world, cases[i].state);
        for (size_t at = 0; cases[i].kinds[at]; at++) {
            char kind = cases[i].kinds[at];
            enum entry_kind expected = kind == 'L'   ? ENTRY_LATE_REPORT
                                       : kind == 'R' ? ENTRY_RESUME
                                                     : ENTRY_COMPENSATE;
            assert_int_equal(saga_entry(world.saga, 3 + (int64_t)at)->kind, expected);
        }
        assert_int_equal(saga_entry(world.saga, 1)->outcome,
                         OUTCOME_EXPIRED); /* it keeps its own */
        /* The same again is a duplicate; another word comes too late. */
        assert_int_equal(world_report(&world, 1, cases[i].outcome), VERDICT_DUPLICATE);
        if (cases[i].outcome == OUTCOME_DONE) {
            assert_int_equal(world_report(&world, 1, OUTCOME_REJECTED), VERDICT_STALE);
            assert_true(transition_is_empty(&world.transition));
            world_assert_step(&world, 0, "DONE");
            world_assert_step(&world, 1, "READY");
        }
        if (cases[i].outcome == OUTCOME_RETRY) {
            (void)world_run(&world, OUTCOME_DONE); /* had no effect: may be repeated */
            world_assert_step(&world, 0, "DONE");
        }
        world_close(&world);
    }
}

static void test_late_unknown_settles_nothing(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_AT_MOST_ONCE);
    world_pass(&world, 1000);
    assert_int_equal(world_report(&world, 1, OUTCOME_UNKNOWN), VERDICT_STALE);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    assert_int_equal(saga_entry(world.saga, 3)->kind, ENTRY_LATE_REPORT);
    assert_int_equal(world_report(&world, 1, OUTCOME_UNKNOWN), VERDICT_STALE);
    assert_true(transition_is_empty(&world.transition)); /* one late report a lease */
    world_close(&world);
    /* But it says that a request was on its way until then: settle time counts from there. */
    world_open(&world, 1);
    world.definition->steps[0].guarded = false;
    world.definition->steps[0].settle_ms = 5000;
    world_start(&world);
    world_expire(&world, world_grant(&world));
    world_pass(&world, 4000);
    assert_int_equal(world_report(&world, 1, OUTCOME_UNKNOWN), VERDICT_STALE);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), world.now_ms + 5000);
    world_close(&world);
}

static void test_settles_an_idempotent_step_in_its_backoff(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_IDEMPOTENT);
    struct report report = { .fence = 1, .outcome = OUTCOME_DONE, .output = { (uint8_t *)"x", 1 } };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    assert_false(world.transition.changes_row);
    world_assert_step(&world, 0, "DONE");
    struct bytes output;
    assert_true(saga_step_output(world.saga, 0, &output));
    assert_int_equal(output.size, 1);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
    /* The last step: the late report ends the saga. */
    world_open(&world, 1);
    world_start(&world);
    world_expire(&world, world_grant(&world));
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_true(world.transition.ends && world.transition.phase_change);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +30001 EXPIRED\n"
                               "2 +30001 LATE_REPORT a DONE about 1\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

static void test_late_refusal_turns_back(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    world_expire(&world, world_grant(&world));
    assert_int_equal(world_report(&world, 2, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING");
    world_assert_step(&world, 1, "REJECTED"); /* settled: not maybe, not compensated */
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    assert_int_equal(world_report(&world, 2, OUTCOME_REJECTED), VERDICT_DUPLICATE);
    world_close(&world);
}

static void test_row_newer_attempt_makes_it_evidence(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_IDEMPOTENT);
    world_pass(&world, 60000);
    int64_t newer = world_grant(&world);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE);
    world_assert_state(&world, "RUNNING"); /* IDEMPOTENT: no doubt */
    assert_int_equal(saga_entry(world.saga, 3)->kind, ENTRY_LATE_REPORT);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE); /* as before */
    assert_int_equal(world_report(&world, newer, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

/* Not by the attempt's own word: by a person or a probe, as done or as not done, and perhaps tried
 * again since. An effect speaks against "not done", and then the step is maybe. */
static void test_row_settled_otherwise_makes_it_evidence(void **state)
{
    (void)state;
    static const struct {
        enum effect effect;
        bool probe, done, again, fresh_key;
        bool against; /* an effect is not what was settled */
    } cases[] = {
        { EFFECT_AT_MOST_ONCE, false, true, false, false, false },
        { EFFECT_AT_MOST_ONCE, false, false, false, false, true },
        { EFFECT_AT_MOST_ONCE, false, false, true, false, true },
        { EFFECT_PROBED, true, true, false, false, false },
        { EFFECT_PROBED, true, false, false, false, true },
        { EFFECT_PROBED, true, false, true, false, true },
        { EFFECT_IDEMPOTENT, false, false, true, false, false }, /* the repeat had the same key */
        { EFFECT_IDEMPOTENT, false, false, true, true, true },   /* it had not */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int outcome = OUTCOME_DONE; outcome <= OUTCOME_UNKNOWN; outcome++) {
            struct world world;
            print_message("case %zu, outcome %d\n", i, outcome);
            world_open(&world, 2);
            struct step_rule *a = &world.definition->steps[0];
            a->guarded = false;
            a->settle_ms = 0;
            a->action.effect = cases[i].effect;
            a->action.fresh_key = cases[i].fresh_key;
            if (cases[i].probe || cases[i].fresh_key)
                (void)world_add_probe(&world, 0, OPERATION_ACTION);
            world_start(&world);
            world_expire(&world, world_grant(&world));
            if (cases[i].probe)
                (void)world_run(&world, cases[i].done ? OUTCOME_DONE : OUTCOME_NOT_DONE);
            else
                assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, cases[i].done, NULL),
                                 0);
            int64_t again = cases[i].again ? world_grant_of(&world, 0, OPERATION_ACTION) : 0;
            assert_int_equal(world_report(&world, 1, (enum outcome)outcome), VERDICT_STALE);
            bool effect = outcome != OUTCOME_RETRY && outcome != OUTCOME_REJECTED;
            world_assert_state(&world, effect && cases[i].against
                                           ? "PARKED in RUNNING: LATE_EFFECT, doubt"
                                           : "RUNNING");
            if (again)
                assert_int_equal(world_report(&world, again, OUTCOME_RETRY), VERDICT_ACCEPTED);
            struct step_view view;
            saga_step_view(world.saga, 0, world.now_ms, &view);
            assert_int_equal(view.maybe, effect && !cases[i].done);
            /* P5: then it is taken back. */
            assert_int_equal(world_cancel(&world), 0);
            if (!cases[i].done && !effect)
                world_assert_state(&world, "COMPENSATED");
            else if (cases[i].probe && !cases[i].done)
                (void)world_grant_of(&world, 0, OPERATION_PROBE);
            else
                (void)world_grant_of(&world, 0, OPERATION_COMPENSATION);
            world_close(&world);
        }
    }
}

/* An older attempt was heard of: its request was on its way until then. */
static void test_settle_time_counts_from_what_was_heard_last(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_IDEMPOTENT);
    world.definition->steps[0].settle_ms = 5000;
    world_pass(&world, 60000);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_pass(&world, 4000);
    assert_int_equal(world_report(&world, 1, OUTCOME_UNKNOWN), VERDICT_STALE);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), world.now_ms + 5000);
    world_close(&world);
}

/* Each operation that is contradicted is in doubt until somebody has looked at it. */
static void test_a_second_late_effect_is_not_lost_behind_the_first(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 3);
    int64_t lost[2];
    for (size_t i = 0; i < 2; i++)
        world.definition->steps[i].action.effect = EFFECT_AT_MOST_ONCE;
    world_start(&world);
    for (size_t i = 0; i < 2; i++) {
        lost[i] = world_grant(&world);
        assert_int_equal(world_lease_end(&world, lost[i], OUTCOME_RELEASED), VERDICT_ACCEPTED);
        (void)world_run(&world, OUTCOME_DONE);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(world_report(&world, lost[i], OUTCOME_DONE), VERDICT_STALE);
        world_assert_state(&world, "PARKED in RUNNING: LATE_EFFECT, doubt");
        assert_int_equal(saga_row(world.saga)->park_step, i);
    }
    assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, true, NULL), 0);
    world_assert_state(&world, "PARKED in RUNNING: LATE_EFFECT, doubt"); /* for b */
    assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, true, NULL), 0);
    world_assert_state(&world, "RUNNING");
    world_close(&world);
}

/* A lease that was given back unstarted, and reports after all. */
static void test_released_lease_reports(void **state)
{
    (void)state;
    static const struct {
        enum effect effect;
        enum outcome outcome;
        const char *state;
    } cases[] = {
        { EFFECT_AT_MOST_ONCE, OUTCOME_DONE, "PARKED in RUNNING: LATE_EFFECT, doubt" },
        { EFFECT_AT_MOST_ONCE, OUTCOME_ALREADY_DONE, "PARKED in RUNNING: LATE_EFFECT, doubt" },
        { EFFECT_AT_MOST_ONCE, OUTCOME_UNKNOWN, "PARKED in RUNNING: LATE_EFFECT, doubt" },
        { EFFECT_AT_MOST_ONCE, OUTCOME_RETRY, "RUNNING" },
        { EFFECT_AT_MOST_ONCE, OUTCOME_REJECTED, "RUNNING" },
        { EFFECT_IDEMPOTENT, OUTCOME_DONE, "RUNNING" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].action.effect = cases[i].effect;
        world_start(&world);
        assert_int_equal(world_lease_end(&world, world_grant(&world), OUTCOME_RELEASED),
                         VERDICT_ACCEPTED);
        assert_int_equal(world_report(&world, 1, cases[i].outcome), VERDICT_STALE);
        world_assert_state(&world, cases[i].state);
        struct step_view view;
        saga_step_view(world.saga, 0, world.now_ms, &view);
        bool effect = cases[i].outcome != OUTCOME_RETRY && cases[i].outcome != OUTCOME_REJECTED;
        assert_int_equal(view.maybe, effect);
        if (saga_row(world.saga)->state == SAGA_PARKED)
            world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
        /* If it turns back, what may have happened is taken back. */
        assert_int_equal(world_cancel(&world), 0);
        if (effect)
            (void)world_run(&world, OUTCOME_DONE);
        assert_int_equal(saga_row(world.saga)->state, SAGA_COMPENSATED);
        world_close(&world);
    }
}

static void test_row_compensating_and_not_granted_feeds_it(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        bool compensated, action_done;
    } cases[] = {
        { OUTCOME_DONE, true, true },
        { OUTCOME_UNKNOWN, true, false },
        { OUTCOME_RETRY, false, false },
        { OUTCOME_REJECTED, false, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        open_expired(&world, EFFECT_IDEMPOTENT);
        assert_int_equal(world_cancel(&world), 0);
        world_assert_state(&world, "COMPENSATING");
        (void)world_report(&world, 1, cases[i].outcome);
        if (cases[i].compensated) {
            int64_t undo = world_grant(&world);
            struct task_view task;
            saga_task_view(world.saga, undo, &task);
            assert_int_equal(task.action_done, cases[i].action_done);
            assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
        }
        world_assert_state(&world, "COMPENSATED");
        world_close(&world);
    }
}

static void test_row_compensation_granted_makes_it_evidence(void **state)
{
    (void)state;
    for (int guarded = 0; guarded <= 1; guarded++) {
        for (int outcome = OUTCOME_DONE; outcome <= OUTCOME_UNKNOWN; outcome++) {
            struct world world;
            world_open(&world, 1);
            world.definition->steps[0].guarded = guarded;
            world.definition->steps[0].settle_ms = 0;
            world_start(&world);
            world_expire(&world, world_grant(&world));
            assert_int_equal(world_cancel(&world), 0);
            int64_t undo = world_grant(&world);
            assert_int_equal(world_report(&world, 1, (enum outcome)outcome), VERDICT_STALE);
            bool effect = outcome != OUTCOME_RETRY && outcome != OUTCOME_REJECTED;
            world_assert_state(&world, effect && !guarded
                                           ? "PARKED in COMPENSATING: LATE_EFFECT, doubt"
                                           : "COMPENSATING");
            assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
            world_assert_state(&world, effect && !guarded
                                           ? "PARKED in COMPENSATING: LATE_EFFECT, doubt"
                                           : "COMPENSATED");
            world_close(&world);
        }
    }
}

static void test_released_after_turning_back_parks(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_lease_end(&world, seq, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    (void)world_grant(&world); /* a's compensation: b is recorded as not run */
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_STALE);
    world_assert_state(&world, "PARKED in COMPENSATING: LATE_EFFECT, doubt");
    world_close(&world);
}

static void test_row_terminal_keeps_it_beside_the_journal(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_IDEMPOTENT);
    world_pass(&world, 60000);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    int64_t ended = saga_row(world.saga)->ended_at_ms;
    world_pass(&world, 5);
    assert_int_equal(world_report(&world, 2, OUTCOME_DONE), VERDICT_DUPLICATE);
    /* No effect reported: kept, no doubt. */
    assert_int_equal(world_report(&world, 1, OUTCOME_RETRY), VERDICT_STALE);
    assert_true(world.transition.late_row && !world.transition.changes_row);
    world_assert_state(&world, "SUCCEEDED");
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE);
    assert_true(world.transition.late_row && world.transition.late.effect);
    assert_true(world.transition.changes_row && !world.transition.phase_change &&
                !world.transition.ends);
    world_assert_state(&world, "SUCCEEDED, doubt");
    assert_int_equal(saga_row(world.saga)->ended_at_ms, ended);
    world_reload(&world);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE); /* doubted already */
    assert_true(world.transition.late_row && !world.transition.changes_row);
    assert_int_equal(world.late_rows, 3);
    assert_int_equal(saga_last_seq(world.saga), 3); /* no entry after the end */
    world_close(&world);
}

static void test_late_report_of_a_compensation(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *state;
    } cases[] = {
        { OUTCOME_DONE, "COMPENSATED" },
        { OUTCOME_RETRY, "COMPENSATING" },
        { OUTCOME_REJECTED, "PARKED in COMPENSATING: COMPENSATION_FAILED" },
        { OUTCOME_UNKNOWN, "PARKED in COMPENSATING: OUTCOME_UNKNOWN" },
        { OUTCOME_ALREADY_DONE, "PARKED in COMPENSATING: FOREIGN_EFFECT" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].compensation.effect = EFFECT_AT_MOST_ONCE;
        world_start(&world);
        (void)world_run(&world, OUTCOME_DONE);
        (void)world_run(&world, OUTCOME_REJECTED);
        int64_t undo = world_grant(&world);
        world_expire(&world, undo);
        world_assert_state(&world, "PARKED in COMPENSATING: OUTCOME_UNKNOWN");
        (void)world_report(&world, undo, cases[i].outcome);
        world_assert_state(&world, cases[i].state);
        if (cases[i].outcome == OUTCOME_RETRY)
            (void)world_run(&world, OUTCOME_DONE);
        world_close(&world);
    }
}

static void test_late_already_done(void **state)
{
    (void)state;
    struct report report = { .fence = 1, .outcome = OUTCOME_ALREADY_DONE };
    for (int ours = 0; ours <= 1; ours++) {
        struct world world;
        open_expired(&world, EFFECT_AT_MOST_ONCE);
        report.ours = ours;
        assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
        world_assert_state(&world, ours ? "RUNNING" : "PARKED in RUNNING: FOREIGN_EFFECT");
        struct step_view view;
        saga_step_view(world.saga, 0, world.now_ms, &view);
        assert_false(view.maybe);
        world_close(&world);
    }
}

static void test_unknown_of_other_attempts_keeps_it_parked(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_IDEMPOTENT);
    world_pass(&world, 60000);
    world.definition->steps[0].action.retry.max_attempts = 2;
    int64_t second = world_grant(&world);
    world_expire(&world, second);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    assert_int_equal(world_report(&world, second, OUTCOME_RETRY), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN"); /* the first is unsettled */
    assert_int_equal(world_retry(&world, NULL), 0);                   /* IDEMPOTENT */
    (void)world_run(&world, OUTCOME_DONE);
    struct step_view view;
    saga_step_view(world.saga, 0, world.now_ms, &view);
    assert_false(view.maybe);
    world_close(&world);
}

static void test_refusal_of_the_last_attempt_turns_back_what_others_left_unknown(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_IDEMPOTENT);
    world_pass(&world, 60000);
    world.definition->steps[0].action.retry.max_attempts = 2;
    int64_t second = world_grant(&world);
    world_expire(&world, second);
    assert_int_equal(world_report(&world, second, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING"); /* the first attempt is maybe: taken back */
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_late_already_done_is_ours_if_an_earlier_attempt_may_have_run(void **state)
{
    (void)state;
    struct world world;
    open_expired(&world, EFFECT_IDEMPOTENT);
    world_pass(&world, 60000);
    int64_t second = world_grant(&world);
    world_expire(&world, second);
    assert_int_equal(world_report(&world, second, OUTCOME_ALREADY_DONE), VERDICT_ACCEPTED);
    world_assert_step(&world, 0, "DONE");
    world_close(&world);
}

static void test_deadline_acts_when_the_unknown_is_settled_after_it(void **state)
{
    (void)state;
    for (int policy = ON_DEADLINE_COMPENSATE; policy < ON_DEADLINE_COUNT; policy++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
        world.definition->deadline_ms = 40000;
        world.definition->on_deadline = (enum on_deadline)policy;
        world_start(&world);
        world_expire(&world, world_grant(&world));
        world_pass(&world, 60000);
        assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_ACCEPTED);
        assert_int_equal(world.transition.append_count, 3); /* in one transition */
        world_assert_state(&world, policy == ON_DEADLINE_PARK
                                       ? "PARKED in RUNNING: DEADLINE_EXCEEDED"
                                       : "COMPENSATING");
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_unsettled_and_no_newer_attempt_is_its_resolution),
        cmocka_unit_test(test_late_unknown_settles_nothing),
        cmocka_unit_test(test_settles_an_idempotent_step_in_its_backoff),
        cmocka_unit_test(test_late_refusal_turns_back),
        cmocka_unit_test(test_row_newer_attempt_makes_it_evidence),
        cmocka_unit_test(test_row_settled_otherwise_makes_it_evidence),
        cmocka_unit_test(test_settle_time_counts_from_what_was_heard_last),
        cmocka_unit_test(test_a_second_late_effect_is_not_lost_behind_the_first),
        cmocka_unit_test(test_released_lease_reports),
        cmocka_unit_test(test_row_compensating_and_not_granted_feeds_it),
        cmocka_unit_test(test_row_compensation_granted_makes_it_evidence),
        cmocka_unit_test(test_released_after_turning_back_parks),
        cmocka_unit_test(test_row_terminal_keeps_it_beside_the_journal),
        cmocka_unit_test(test_late_report_of_a_compensation),
        cmocka_unit_test(test_late_already_done),
        cmocka_unit_test(test_unknown_of_other_attempts_keeps_it_parked),
        cmocka_unit_test(test_refusal_of_the_last_attempt_turns_back_what_others_left_unknown),
        cmocka_unit_test(test_late_already_done_is_ours_if_an_earlier_attempt_may_have_run),
        cmocka_unit_test(test_deadline_acts_when_the_unknown_is_settled_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
