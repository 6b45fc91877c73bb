/* Goal: nothing turns back while it is not known what the pivot did, nor once it is done. Method:
 * three steps, the second is the pivot; cancel and deadline at each moment; exact traces. */
#include "core_world.h"

enum { RESERVE, PAY, TELL };

static void open_pivot(struct world *world, enum effect effect)
{
    world_open(world, 3);
    struct step_rule *steps = world->definition->steps;
    steps[PAY].pivot = true;
    steps[PAY].action.effect = effect;
    steps[PAY].has_compensation = steps[TELL].has_compensation = false;
    definition_order(world->definition);
}

static int64_t start_at_pivot(struct world *world)
{
    world_start(world);
    (void)world_run(world, OUTCOME_DONE);
    return world_grant_of(world, PAY, OPERATION_ACTION);
}

static void test_a_cancel_before_the_pivot_turns_back(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world, EFFECT_IDEMPOTENT);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    assert_int_equal(world_cancel(&world), 0);
    world_assert_state(&world, "COMPENSATING");
    world_close(&world);
}

/* What each end of the pivot does to a cancel that came meanwhile. */
static void test_a_cancel_waits_for_the_pivot(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *state;
    } cases[] = {
        { OUTCOME_DONE, "RUNNING" },
        { OUTCOME_REJECTED, "COMPENSATING" },
        { OUTCOME_RETRY, "COMPENSATING" },
        { OUTCOME_UNKNOWN, "PARKED in RUNNING: OUTCOME_UNKNOWN" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        open_pivot(&world, EFFECT_AT_MOST_ONCE);
        int64_t seq = start_at_pivot(&world);
        assert_int_equal(world_cancel(&world), 0);
        assert_int_equal(world.verdict, VERDICT_ACCEPTED);
        world_assert_state(&world, "RUNNING");
        assert_int_equal(world_cancel(&world), 0);
        assert_int_equal(world.verdict, VERDICT_NOTHING); /* it waits already */
        assert_int_equal(world_report(&world, seq, cases[i].outcome), VERDICT_ACCEPTED);
        world_assert_state(&world, cases[i].state);
        world_close(&world);
    }
}

static void test_a_person_settles_the_pivot_and_the_cancel_with_it(void **state)
{
    (void)state;
    for (int happened = 0; happened <= 1; happened++) {
        struct world world;
        open_pivot(&world, EFFECT_AT_MOST_ONCE);
        int64_t seq = start_at_pivot(&world);
        assert_int_equal(world_report(&world, seq, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
        assert_int_equal(world_cancel(&world), 0);
        world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
        assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, happened, NULL), 0);
        if (happened)
            (void)world_grant_of(&world, TELL, OPERATION_ACTION);
        else
            (void)world_grant_of(&world, RESERVE, OPERATION_COMPENSATION);
        world_close(&world);
    }
}

/* To find out what it did is no repeat of what was cancelled: the same key, and the same effect. */
static void test_an_unknown_pivot_is_repeated_although_it_is_cancelled(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world, EFFECT_IDEMPOTENT);
    int64_t seq = start_at_pivot(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, seq, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    world_pass(&world, 2000);
    seq = world_grant_of(&world, PAY, OPERATION_ACTION);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_refused(&world, world_cancel(&world), "CANCEL_NOT_ALLOWED");
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 UNKNOWN\n"
                               "3 +0 PENDING b\n"
                               "4 +2000 b ACTION 2 -> +2000 DONE\n"
                               "5 +2000 c ACTION 1 -> +2000 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

static void test_given_back_it_was_never_under_way(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world, EFFECT_AT_MOST_ONCE);
    int64_t seq = start_at_pivot(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_lease_end(&world, seq, OUTCOME_RELEASED), VERDICT_ACCEPTED);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 RELEASED\n"
                               "3 +0 PENDING b\n"
                               "4 +0 COMPENSATE - CANCELLED about 3\n"
                               "COMPENSATING\n");
    world_close(&world);
}

static void test_the_deadline_waits_for_the_pivot(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *state; /* after what time then brings */
    } cases[] = {
        { OUTCOME_DONE, "PARKED in RUNNING: DEADLINE_EXCEEDED" },
        { OUTCOME_REJECTED, "COMPENSATING" },
        { OUTCOME_RETRY, "COMPENSATING" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        open_pivot(&world, EFFECT_AT_MOST_ONCE);
        world.definition->deadline_ms = 10000;
        int64_t seq = start_at_pivot(&world);
        world_pass(&world, 10000);
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED); /* PENDING, once */
        world_assert_state(&world, "RUNNING");
        assert_int_equal(world_time(&world), VERDICT_NOTHING);
        assert_int_equal(world_report(&world, seq, cases[i].outcome), VERDICT_ACCEPTED);
        (void)world_time(&world);
        world_assert_state(&world, cases[i].state);
        world_close(&world);
    }
}

/* It parks once; a person goes on. */
static void test_after_the_pivot_the_deadline_parks(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world, EFFECT_IDEMPOTENT);
    world.definition->deadline_ms = 10000;
    int64_t seq = start_at_pivot(&world);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_pass(&world, 10000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: DEADLINE_EXCEEDED");
    assert_int_equal(world_retry(&world, NULL), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

static void test_a_refusal_after_the_pivot_parks_and_is_tried_again(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world, EFFECT_IDEMPOTENT);
    int64_t seq = start_at_pivot(&world);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_REJECTED);
    world_assert_state(&world, "PARKED in RUNNING: REJECTED_AFTER_PIVOT");
    world_assert_refused(&world, world_cancel(&world), "CANCEL_NOT_ALLOWED");
    assert_int_equal(world_retry(&world, "c"), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

/* Of two branches after it: the refused one parks when the other has. */
static void test_a_refusal_beside_another_that_is_parked(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world, EFFECT_IDEMPOTENT);
    world.definition->steps[RESERVE].pivot = true;
    world.definition->steps[RESERVE].has_compensation = false;
    world.definition->steps[PAY].pivot = false;
    world.definition->steps[PAY].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->steps[TELL].after = (struct step_set){ 0 };
    step_set_add(&world.definition->steps[TELL].after, RESERVE);
    definition_order(world.definition);
    int64_t pay = start_at_pivot(&world), tell = world_grant_of(&world, TELL, OPERATION_ACTION);
    assert_int_equal(world_report(&world, pay, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, tell, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, true, NULL), 0);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: REJECTED_AFTER_PIVOT");
    world_close(&world);
}

/* A plain finish looks at its lease alone, and knows of no cancel. */
static void test_a_cancel_that_was_overlooked_is_due_at_once(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world, EFFECT_AT_MOST_ONCE);
    int64_t seq = start_at_pivot(&world);
    assert_int_equal(world_cancel(&world), 0);
    world.entries[seq - 1].outcome = OUTCOME_RETRY;
    world.entries[seq - 1].finished_at_ms = world.now_ms;
    world_reload(&world);
    assert_false(world_is_grantable(&world));
    assert_int_equal(saga_due_at(world.saga), 0);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING");
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cancel_before_the_pivot_turns_back),
        cmocka_unit_test(test_a_cancel_waits_for_the_pivot),
        cmocka_unit_test(test_a_person_settles_the_pivot_and_the_cancel_with_it),
        cmocka_unit_test(test_an_unknown_pivot_is_repeated_although_it_is_cancelled),
        cmocka_unit_test(test_given_back_it_was_never_under_way),
        cmocka_unit_test(test_the_deadline_waits_for_the_pivot),
        cmocka_unit_test(test_after_the_pivot_the_deadline_parks),
        cmocka_unit_test(test_a_refusal_after_the_pivot_parks_and_is_tried_again),
        cmocka_unit_test(test_a_refusal_beside_another_that_is_parked),
        cmocka_unit_test(test_a_cancel_that_was_overlooked_is_due_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
