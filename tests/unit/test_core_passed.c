/* Goal: a saga that goes on without a step (on_unknown ACCEPT, on_exhausted CONTINUE) repeats
 * nothing of it, says so until somebody has looked, and takes back what may have happened. Method:
 * each way in which the step is settled afterwards, before and after the end; after each commit a
 * replay of the tables equals the copy. */
#include "core_world.h"

enum { SETTLE_MS = 5000 };

/* Steps a and b; a is AT_MOST_ONCE and unguarded, its first lease lost, and accepted. */
static void open_accepted(struct world *world)
{
    world_open(world, 2);
    struct step_rule *a = &world->definition->steps[0];
    a->guarded = false;
    a->settle_ms = SETTLE_MS;
    a->action.effect = EFFECT_AT_MOST_ONCE;
    a->action.on_unknown = ON_UNKNOWN_ACCEPT;
    world_start(world);
    world_expire(world, world_grant(world));
    world_assert_state(world, "RUNNING, doubt");
}

static bool has_output(const struct world *world)
{
    struct bytes output;
    return saga_step_output(world->saga, 0, &output) && output.size > 0;
}

static void test_accept_goes_on_and_says_so(void **state)
{
    (void)state;
    struct world world;
    open_accepted(&world);
    world_assert_step(&world, 0, "UNCONFIRMED");
    assert_false(has_output(&world));
    struct unknown_view view;
    assert_true(saga_unknown_view(world.saga, 0, &view));
    assert_int_equal(view.last->seq, 1);
    world_assert_refused(&world, world_retry(&world, "a"), "RETRY_NOT_ALLOWED");
    (void)world_grant_of(&world, 1, OPERATION_ACTION);
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +30001 EXPIRED\n"
                               "2 +30001 ACCEPT a\n"
                               "3 +30001 b ACTION 1 -> +30001 DONE\n"
                               "SUCCEEDED, doubt\n");
    world_reload(&world);
    world_assert_state(&world, "SUCCEEDED, doubt");
    world_assert_step(&world, 0, "UNCONFIRMED");
    world_close(&world);
    /* The last step: that is the end. */
    world_open(&world, 1);
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->steps[0].action.on_unknown = ON_UNKNOWN_ACCEPT;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    assert_true(world.transition.ends && world.transition.phase_change);
    world_assert_state(&world, "SUCCEEDED, doubt");
    world_close(&world);
}

static const struct {
    bool late; /* a report, else a person */
    bool happened;
    enum outcome outcome;
    const char *state, *step; /* before the end */
    const char *ended, *step_ended;
} settled[] = {
    { false, true, 0, "RUNNING", "DONE", "SUCCEEDED", "DONE" },
    { false, false, 0, "RUNNING", "LEFT_OUT", "SUCCEEDED", "LEFT_OUT" },
    { true, false, OUTCOME_DONE, "RUNNING", "DONE", "SUCCEEDED, doubt", "UNCONFIRMED" },
    { true, false, OUTCOME_RETRY, "RUNNING", "LEFT_OUT", "SUCCEEDED, doubt", "UNCONFIRMED" },
    { true, false, OUTCOME_REJECTED, "RUNNING", "LEFT_OUT", "SUCCEEDED, doubt", "UNCONFIRMED" },
    { true, false, OUTCOME_UNKNOWN, "RUNNING, doubt", "UNCONFIRMED", "SUCCEEDED, doubt",
      "UNCONFIRMED" },
    { true, false, OUTCOME_ALREADY_DONE, "PARKED in RUNNING: FOREIGN_EFFECT", "UNKNOWN",
      "SUCCEEDED, doubt", "UNCONFIRMED" },
};

static void settle(struct world *world, size_t i)
{
    struct report report = { .fence = 1,
                             .outcome = settled[i].outcome,
                             .output = { (uint8_t *)"x", 1 } };
    if (settled[i].late)
        (void)world_report_full(world, &report);
    else
        assert_int_equal(world_resolve(world, "a", OPERATION_COUNT, settled[i].happened,
                                       settled[i].happened ? "x" : NULL),
                         0);
}

static void test_an_accepted_step_is_settled_later_and_nothing_is_repeated(void **state)
{
    (void)state;
    for (int where = 0; where < 3; where++) { /* waiting, beside a live lease, after the end */
        for (size_t i = 0; i < ARRAY_LEN(settled); i++) {
            struct world world;
            print_message("%d, case %zu\n", where, i);
            open_accepted(&world);
            int64_t b = where ? world_grant_of(&world, 1, OPERATION_ACTION) : 0;
            if (where == 2)
                assert_int_equal(world_report(&world, b, OUTCOME_DONE), VERDICT_ACCEPTED);
            settle(&world, i);
            world_assert_state(&world, where == 2 ? settled[i].ended : settled[i].state);
            const char *step = where == 2 ? settled[i].step_ended : settled[i].step;
            world_assert_step(&world, 0, step);
            assert_int_equal(has_output(&world), strcmp(step, "DONE") == 0);
            assert_int_equal(world.late_rows, where == 2 && settled[i].late);
            if (saga_row(world.saga)->doubt || saga_row(world.saga)->state == SAGA_PARKED) {
                assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, true, "x"), 0);
                world_assert_step(&world, 0, "DONE");
            }
            if (where == 0)
                b = world_grant_of(&world, 1, OPERATION_ACTION); /* never a again */
            if (where < 2)
                assert_int_equal(world_report(&world, b, OUTCOME_DONE), VERDICT_ACCEPTED);
            world_assert_state(&world, "SUCCEEDED");
            world_assert_refused(&world, world_resolve(&world, "a", OPERATION_COUNT, true, NULL),
                                 "NOTHING_TO_RESOLVE");
            world_close(&world);
        }
    }
}

static void test_p5_an_accepted_step_is_compensated_as_maybe(void **state)
{
    (void)state;
    struct world world;
    open_accepted(&world);
    (void)world_run(&world, OUTCOME_REJECTED); /* b */
    world_assert_state(&world, "COMPENSATING, doubt");
    assert_false(world_is_grantable(&world)); /* its request may be on its way */
    world_pass(&world, SETTLE_MS);
    int64_t undo = world_grant_of(&world, 0, OPERATION_COMPENSATION);
    struct task_view task;
    saga_task_view(world.saga, undo, &task);
    assert_false(task.action_done);
    assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(saga_row(world.saga)->state, SAGA_COMPENSATED);
    world_close(&world);
    /* Settled before: as any other. */
    for (int happened = 0; happened <= 1; happened++) {
        open_accepted(&world);
        assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, happened, NULL), 0);
        (void)world_run(&world, OUTCOME_REJECTED);
        if (happened) {
            undo = world_grant_of(&world, 0, OPERATION_COMPENSATION);
            saga_task_view(world.saga, undo, &task);
            assert_true(task.action_done);
            assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
        }
        world_assert_state(&world, "COMPENSATED");
        world_close(&world);
    }
}

/* What the probe did not find out in its time it is not asked again while turning back. */
static void test_an_accepted_step_is_not_probed_again(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    struct step_rule *a = &world.definition->steps[0];
    a->settle_ms = SETTLE_MS;
    a->action.effect = EFFECT_PROBED;
    a->action.on_unknown = ON_UNKNOWN_ACCEPT;
    world_add_probe(&world, 0, OPERATION_ACTION)->retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    int64_t probe = world_grant_of(&world, 0, OPERATION_PROBE);
    world_expire(&world, probe);
    world_assert_state(&world, "RUNNING, doubt");
    (void)world_grant_of(&world, 1, OPERATION_ACTION);
    assert_int_equal(world_report(&world, 4, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    (void)world_grant_of(&world, 0, OPERATION_COMPENSATION);
    world_close(&world);
}

/* But its late answer counts. */
static void test_a_late_probe_settles_an_accepted_step(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    struct step_rule *a = &world.definition->steps[0];
    a->settle_ms = SETTLE_MS;
    a->action.effect = EFFECT_PROBED;
    a->action.on_unknown = ON_UNKNOWN_ACCEPT;
    world_add_probe(&world, 0, OPERATION_ACTION)->retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    int64_t probe = world_grant_of(&world, 0, OPERATION_PROBE);
    world_expire(&world, probe);
    assert_int_equal(world_report(&world, probe, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "RUNNING");
    world_assert_step(&world, 0, "DONE");
    (void)world_grant_of(&world, 1, OPERATION_ACTION);
    world_close(&world);
}

/* Step a of two cannot be done, and it is optional. */
static void open_continued(struct world *world, bool by_time)
{
    world_open(world, 2);
    struct operation_rule *a = &world->definition->steps[0].action;
    world->definition->steps[0].settle_ms = 0;
    a->effect = EFFECT_AT_MOST_ONCE;
    a->on_exhausted = ON_EXHAUSTED_CONTINUE;
    a->retry.max_attempts = 1;
    a->start_timeout_ms = by_time ? 5000 : 0;
    world_start(world);
    int64_t given_back = world_grant(world);
    assert_int_equal(world_lease_end(world, given_back, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    if (by_time) {
        world_pass(world, 5000);
        assert_int_equal(world_time(world), VERDICT_ACCEPTED);
    } else {
        (void)world_run(world, OUTCOME_RETRY);
    }
    world_assert_state(world, "RUNNING"); /* nothing is in doubt */
    world_assert_step(world, 0, "LEFT_OUT");
}

static void test_continue_goes_on_without_the_step(void **state)
{
    (void)state;
    for (int by_time = 0; by_time <= 1; by_time++) {
        for (int done = 0; done <= 1; done++) {
            struct world world;
            open_continued(&world, by_time);
            const struct journal_entry *last = saga_entry(world.saga, saga_last_seq(world.saga));
            assert_int_equal(last->kind, ENTRY_CONTINUE);
            assert_string_equal(last->error_code, by_time ? "NO_WORKER" : "CODE");
            assert_false(has_output(&world));
            world_assert_refused(&world, world_resolve(&world, "a", OPERATION_COUNT, true, NULL),
                                 "NOTHING_TO_RESOLVE");
            int64_t seq = world_grant_of(&world, 1, OPERATION_ACTION);
            assert_int_equal(world_report(&world, seq, done ? OUTCOME_DONE : OUTCOME_REJECTED),
                             VERDICT_ACCEPTED);
            world_assert_state(&world, done ? "SUCCEEDED" : "COMPENSATED"); /* nothing of it */
            world_close(&world);
        }
    }
    /* The last step: that is the end. */
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.on_exhausted = ON_EXHAUSTED_CONTINUE;
    world.definition->steps[0].action.retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

/* A budget that is spent with something unknown goes the way of the unknown. */
static void test_p4_continue_is_not_for_what_may_have_happened(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    struct operation_rule *a = &world.definition->steps[0].action;
    a->on_exhausted = ON_EXHAUSTED_CONTINUE;
    a->retry.max_attempts = 2;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_pass(&world, 1000);
    (void)world_run(&world, OUTCOME_RETRY);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    world_close(&world);
}

static void test_p5_a_late_effect_of_a_step_that_was_left_out(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct world world;
        open_continued(&world, false);
        assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE);
        world_assert_state(&world, "PARKED in RUNNING: LATE_EFFECT, doubt");
        world_assert_step(&world, 0, "UNCONFIRMED");
        if (what == 2) { /* taken back, as maybe */
            assert_int_equal(world_cancel(&world), 0);
            (void)world_grant_of(&world, 0, OPERATION_COMPENSATION);
        } else {
            assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, what, NULL), 0);
            world_assert_state(&world, "RUNNING");
            world_assert_step(&world, 0, what ? "DONE" : "LEFT_OUT");
            (void)world_grant_of(&world, 1, OPERATION_ACTION);
        }
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept_goes_on_and_says_so),
        cmocka_unit_test(test_an_accepted_step_is_settled_later_and_nothing_is_repeated),
        cmocka_unit_test(test_p5_an_accepted_step_is_compensated_as_maybe),
        cmocka_unit_test(test_an_accepted_step_is_not_probed_again),
        cmocka_unit_test(test_a_late_probe_settles_an_accepted_step),
        cmocka_unit_test(test_continue_goes_on_without_the_step),
        cmocka_unit_test(test_p4_continue_is_not_for_what_may_have_happened),
        cmocka_unit_test(test_p5_a_late_effect_of_a_step_that_was_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
