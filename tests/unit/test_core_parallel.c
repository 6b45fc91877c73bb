/* Goal: steps that do not come after each other run at the same time, and are taken back in the
 * reverse of their order, never beside a live action. Method: a diamond (a, then b and c, then d),
 * exact traces. */
#include "core/limits.h"
#include "core_world.h"

enum { A, B, C, D };

static void after(struct world *world, size_t step, size_t count, const size_t *before)
{
    struct step_set *set = &world->definition->steps[step].after;
    *set = (struct step_set){ 0 };
    for (size_t i = 0; i < count; i++)
        step_set_add(set, before[i]);
}

static void open_diamond(struct world *world)
{
    world_open(world, 4);
    after(world, C, 1, (const size_t[]){ A });
    after(world, D, 2, (const size_t[]){ B, C });
    definition_order(world->definition);
}

/* Both branches leased: 2 is b, 3 is c. */
static void start_both(struct world *world)
{
    world_start(world);
    (void)world_run(world, OUTCOME_DONE);
    assert_int_equal(world_grant_of(world, B, OPERATION_ACTION), 2);
    assert_int_equal(world_grant_of(world, C, OPERATION_ACTION), 3);
    assert_false(world_is_grantable(world));
}

static void test_branches_run_at_the_same_time_and_join(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    start_both(&world);
    world_pass(&world, 5);
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_false(world_is_grantable(&world)); /* the join waits for both */
    world_assert_step(&world, D, "PENDING");
    world_pass(&world, 5);
    assert_int_equal(world_report(&world, 2, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_step(&world, D, "READY");
    (void)world_grant_of(&world, D, OPERATION_ACTION);
    assert_int_equal(world_report(&world, 4, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +10 DONE\n"
                               "3 +0 c ACTION 1 -> +5 DONE\n"
                               "4 +10 d ACTION 1 -> +10 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

/* C6: what was in flight when a sibling was refused is taken back, too. */
static void test_p5_a_refused_branch_waits_for_its_sibling_and_takes_it_back(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    start_both(&world);
    assert_int_equal(world_report(&world, 2, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING");
    assert_false(world_is_grantable(&world)); /* c is live */
    world_assert_step(&world, A, "COMPENSATION_WAITING");
    world_pass(&world, 7);
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_grant_of(&world, C, OPERATION_COMPENSATION), 5);
    assert_false(world_is_grantable(&world)); /* a comes after c */
    assert_int_equal(world_report(&world, 5, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_grant_of(&world, A, OPERATION_COMPENSATION);
    assert_int_equal(world_report(&world, 6, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 REJECTED\n"
                               "3 +0 c ACTION 1 -> +7 DONE\n"
                               "4 +0 COMPENSATE b REFUSED\n"
                               "5 +7 c COMPENSATION 1 -> +7 DONE\n"
                               "6 +7 a COMPENSATION 1 -> +7 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_branches_are_taken_back_at_the_same_time(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    start_both(&world);
    assert_int_equal(world_report(&world, 2, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_REJECTED); /* d */
    assert_int_equal(world_grant_of(&world, C, OPERATION_COMPENSATION), 6);
    assert_int_equal(world_grant_of(&world, B, OPERATION_COMPENSATION), 7);
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_report(&world, 6, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_false(world_is_grantable(&world)); /* a comes after both */
    assert_int_equal(world_report(&world, 7, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_grant_of(&world, A, OPERATION_COMPENSATION);
    assert_int_equal(world_report(&world, 8, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_parked_at_one_branch_records_the_other(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    world.definition->steps[B].action.effect = EFFECT_AT_MOST_ONCE;
    start_both(&world);
    assert_int_equal(world_report(&world, 2, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    world_assert_step(&world, C, "DONE");
    assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, true, NULL), 0);
    world_assert_state(&world, "RUNNING");
    (void)world_grant_of(&world, D, OPERATION_ACTION);
    world_close(&world);
}

/* Nobody need look into b then: it is compensated as it stands. */
static void test_a_refusal_beside_a_parked_branch_turns_back(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    world.definition->steps[B].action.effect = EFFECT_AT_MOST_ONCE;
    start_both(&world);
    assert_int_equal(world_report(&world, 2, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, 3, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING");
    (void)world_grant_of(&world, B, OPERATION_COMPENSATION);
    struct task_view task;
    saga_task_view(world.saga, saga_last_seq(world.saga), &task);
    assert_false(task.action_done); /* maybe */
    world_close(&world);
}

static void test_what_a_person_stopped_stays_so_when_a_branch_is_refused(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    start_both(&world);
    assert_int_equal(world_suspend(&world), 0);
    assert_int_equal(world_report(&world, 3, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: SUSPENDED");
    world_close(&world);
}

static void test_two_unknown_branches_park_one_after_the_other(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    world.definition->steps[B].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->steps[C].action.effect = EFFECT_AT_MOST_ONCE;
    start_both(&world);
    assert_int_equal(world_report(&world, 2, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, 3, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    assert_int_equal(saga_row(world.saga)->park_step, B);
    assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, true, NULL), 0);
    assert_false(world_is_grantable(&world));
    assert_true(saga_due_at(world.saga) <= world.now_ms);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    assert_int_equal(saga_row(world.saga)->park_step, C);
    assert_int_equal(world_resolve(&world, "c", OPERATION_COUNT, true, NULL), 0);
    (void)world_grant_of(&world, D, OPERATION_ACTION);
    world_close(&world);
}

static void test_a_branch_is_tried_again_while_the_other_is_held(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    start_both(&world);
    assert_int_equal(world_report(&world, 3, OUTCOME_RETRY), VERDICT_ACCEPTED);
    assert_true(saga_grantable_at(world.saga, world.now_ms) < INT64_MAX);
    world_assert_refused(&world, world_retry(&world, "b"), "LEASE_LIVE");
    world_assert_refused(&world, world_retry(&world, "d"), "RETRY_NOT_ALLOWED");
    assert_int_equal(world_retry(&world, NULL), 0); /* the one that backs off */
    assert_int_equal(world_grant_of(&world, C, OPERATION_ACTION), 5);
    world_close(&world);
}

/* The first lease that ends is found, whichever was granted first. */
static void test_each_lease_expires_by_itself(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    world.definition->steps[B].action.lease_ms = 20000;
    world.definition->steps[C].action.lease_ms = 5000;
    start_both(&world);
    world_expire(&world, 3);
    world_assert_step(&world, B, "LEASED");
    world_expire(&world, 2);
    world_close(&world);
}

static void test_all_steps_at_the_start(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, LIMIT_STEPS);
    world.compare = false;
    for (size_t i = 1; i < LIMIT_STEPS; i++)
        after(&world, i, 0, NULL);
    definition_order(world.definition);
    world_start(&world);
    for (size_t i = 0; i < LIMIT_STEPS; i++)
        (void)world_grant_of(&world, i, OPERATION_ACTION);
    for (size_t i = LIMIT_STEPS; i > 0; i--) {
        world_assert_state(&world, "RUNNING");
        assert_int_equal(world_report(&world, (int64_t)i, OUTCOME_DONE), VERDICT_ACCEPTED);
    }
    world_assert_state(&world, "SUCCEEDED");
    world_reload(&world);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

/* A step without compensation between two hides no order: the first waits for the last. */
static void test_the_order_reaches_over_a_step_without_compensation(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    world.definition->steps[B].has_compensation = false;
    world.definition->steps[C].has_compensation = false;
    start_both(&world);
    assert_int_equal(world_report(&world, 2, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_DONE); /* d */
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);

    open_diamond(&world);
    world.definition->steps[B].has_compensation = false;
    world.definition->steps[C].has_compensation = false;
    start_both(&world);
    assert_int_equal(world_report(&world, 2, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    int64_t last = world_grant_of(&world, D, OPERATION_ACTION);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, last, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_grant_of(&world, D, OPERATION_COMPENSATION);
    assert_false(world_is_grantable(&world));
    world_close(&world);
}

/* From the end of what it comes after; the first step's from the start of the saga. Once it was
 * tried there is none. */
static void test_a_delayed_step(void **state)
{
    (void)state;
    struct world world;
    open_diamond(&world);
    world.definition->steps[A].delay_ms = 1000;
    world.definition->steps[C].delay_ms = 5000;
    world_start(&world);
    assert_false(world_is_grantable(&world));
    world_assert_step(&world, A, "DELAYED");
    world_assert_waits(&world, WAIT_DELAY, WORLD_START_MS + 1000);
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), WORLD_START_MS + 1000);
    world_assert_refused(&world, world_retry(&world, "a"), "RETRY_NOT_ALLOWED");
    world_pass(&world, 1000);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_grant_of(&world, B, OPERATION_ACTION); /* c waits on its own */
    world_assert_step(&world, C, "DELAYED");
    assert_false(world_is_grantable(&world));
    world_pass(&world, 4999);
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_suspend(&world), 0);
    assert_int_equal(world_resume(&world), 0); /* it begins no new delay */
    world_pass(&world, 1);
    int64_t seq = world_grant_of(&world, C, OPERATION_ACTION);
    assert_int_equal(world_lease_end(&world, seq, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    (void)world_grant_of(&world, C, OPERATION_ACTION); /* at once */
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branches_run_at_the_same_time_and_join),
        cmocka_unit_test(test_p5_a_refused_branch_waits_for_its_sibling_and_takes_it_back),
        cmocka_unit_test(test_branches_are_taken_back_at_the_same_time),
        cmocka_unit_test(test_parked_at_one_branch_records_the_other),
        cmocka_unit_test(test_a_refusal_beside_a_parked_branch_turns_back),
        cmocka_unit_test(test_what_a_person_stopped_stays_so_when_a_branch_is_refused),
        cmocka_unit_test(test_two_unknown_branches_park_one_after_the_other),
        cmocka_unit_test(test_a_branch_is_tried_again_while_the_other_is_held),
        cmocka_unit_test(test_each_lease_expires_by_itself),
        cmocka_unit_test(test_all_steps_at_the_start),
        cmocka_unit_test(test_a_delayed_step),
        cmocka_unit_test(test_the_order_reaches_over_a_step_without_compensation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
