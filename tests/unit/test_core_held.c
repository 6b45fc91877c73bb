/* Goal: the time in which the handler that a saga waits for is braked burns no try, no retry
 * budget, no start time-out and no deadline; what was counted once stays so, whoever loads the saga
 * later. Method: each clock with a hold before, in and over its end; the same again after the
 * grant, when the journal alone knows of it; parallel waits. Every commit is compared with a
 * replay. */
#include "core/handler.h"
#include "core_world.h"

static struct held_time list[8];
static struct held_times times;

static void open_world(struct world *world, size_t steps)
{
    times = (struct held_times){ list, 0 };
    world_open(world, steps);
    for (size_t i = 0; i < steps; i++) {
        world->definition->steps[i].action.held = &times;
        world->definition->steps[i].compensation.held = &times;
    }
}

static void hold(const struct world *world)
{
    list[times.count++] = (struct held_time){ world->now_ms, INT64_MAX };
}

static void release(const struct world *world)
{
    list[times.count - 1].until_ms = world->now_ms;
}

/* Nobody knows of the holds any more: what was granted has kept its part. */
static void forget(void)
{
    times.count = 0;
}

static void test_it_is_not_of_the_budget(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world.definition->steps[0].action.retry.initial_ms = 1;
    world.definition->steps[0].action.retry.cap_ms = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    world_pass(&world, 10000);
    hold(&world);
    assert_int_equal(saga_due_at(world.saga), INT64_MAX);
    world_pass(&world, 500000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    assert_true(world_is_grantable(&world)); /* holding is not the core's */
    world_reload(&world);
    release(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 600000);
    int64_t seq = world_run(&world, OUTCOME_RETRY);
    assert_int_equal(saga_entry(world.saga, seq)->held_ms, 500000);
    assert_int_equal(saga_entry(world.saga, seq)->try_, 2);
    forget();
    world_reload(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 600000);
    world_pass(&world, 89999);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_pass(&world, 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_a_fresh_budget_begins_after_it(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world_start(&world);
    hold(&world);
    world_pass(&world, 500000);
    release(&world);
    (void)world_run(&world, OUTCOME_RETRY); /* the wait for the first lease is of no budget */
    forget();
    world_reload(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 600000);
    world_close(&world);
}

static void test_it_is_not_of_the_start_timeout(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->steps[0].action.start_timeout_ms = 30000;
    world_start(&world);
    world_pass(&world, 29999);
    hold(&world);
    world_pass(&world, 500000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    release(&world);
    assert_int_equal(saga_due_at(world.saga), world.now_ms + 1);
    world_pass(&world, 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_a_start_timeout_that_was_over_before_acts(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->steps[0].action.start_timeout_ms = 30000;
    world_start(&world);
    world_pass(&world, 30000);
    hold(&world);
    world_pass(&world, 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_it_is_not_before_the_deadline(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 3);
    world.definition->deadline_ms = 60000;
    world_start(&world);
    world_pass(&world, 1000);
    hold(&world);
    world_pass(&world, 100000);
    assert_int_equal(saga_due_at(world.saga), INT64_MAX);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    release(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 160000);
    (void)world_run(&world, OUTCOME_DONE);
    forget();
    world_reload(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 160000); /* the journal says so */
    hold(&world);                                                       /* the next step's */
    world_pass(&world, 7000);
    release(&world);
    world_pass(&world, 50000);
    (void)world_run(&world, OUTCOME_DONE);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 167000);
    world_pass(&world, 8999);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_pass(&world, 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING");
    world_close(&world);
}

static void test_a_deadline_that_passed_before_acts_while_held(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->deadline_ms = 60000;
    world_start(&world);
    world_pass(&world, 60000);
    hold(&world);
    world_pass(&world, 1);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_a_back_off_goes_on(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    struct report report = { .fence = saga_entry(world.saga, seq)->fence,
                             .outcome = OUTCOME_RETRY,
                             .retry_after_ms = 50000 };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    hold(&world);
    world_pass(&world, 40000);
    release(&world); /* nothing waited for it yet */
    world_pass(&world, 10000);
    seq = world_run(&world, OUTCOME_RETRY);
    assert_int_equal(saga_entry(world.saga, seq)->held_ms, 0);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 100000);
    world_close(&world);
}

static void test_a_compensation_waits_as_well(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 2);
    world.definition->steps[0].compensation.retry.for_ms = 100000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_REJECTED);
    world_assert_state(&world, "COMPENSATING");
    int64_t seq = world_grant_of(&world, 0, OPERATION_COMPENSATION);
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
    world_pass(&world, 60000); /* its back-off is over */
    hold(&world);
    world_pass(&world, 1000000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    release(&world);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

/* Two that waited side by side do not move the deadline twice. */
static void test_parallel_waits_count_once(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 3);
    for (size_t i = 0; i < 3; i++)
        world.definition->steps[i].after = (struct step_set){ { 0 } };
    definition_order(world.definition);
    world.definition->deadline_ms = 60000;
    world_start(&world);
    hold(&world);
    world_pass(&world, 100000);
    release(&world);
    int64_t first = world_grant(&world);
    world_pass(&world, 10);
    int64_t second = world_grant(&world);
    assert_int_equal(saga_entry(world.saga, first)->held_ms, 100000);
    assert_int_equal(saga_entry(world.saga, second)->held_ms, 100000);
    assert_int_equal(world_report(&world, first, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, second, OUTCOME_DONE), VERDICT_ACCEPTED);
    /* The third waits still; 10 ms for the one behind the first is as near as it is known. */
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 60000 + 100010);
    world_close(&world);
}

/* Suspended meanwhile: no moment is given twice. */
static void test_suspended_while_held(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 100000;
    world.definition->steps[0].action.retry.initial_ms = 1;
    world.definition->steps[0].action.retry.cap_ms = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    world_pass(&world, 10);
    assert_int_equal(world_suspend(&world), 0);
    hold(&world);
    world_pass(&world, 50000);
    assert_int_equal(world_resume(&world), 0);
    world_pass(&world, 30000);
    release(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 180000);
    world_close(&world);
}

/* Held before it is suspended, meanwhile, and after: neither deadline nor budget lose any of it,
 * and no moment is given twice; as little when the hold is over before it goes on. */
static void test_held_before_it_is_suspended(void **state)
{
    (void)state;
    enum { ENDS_BEFORE, ENDS_WITHIN, ENDS_AFTER, CASES };
    for (int ends = 0; ends < CASES; ends++) {
        for (int budget = 0; budget < 2; budget++) {
            struct world world;
            open_world(&world, 1);
            world.definition->deadline_ms = budget ? 0 : 60000;
            world.definition->steps[0].action.retry.for_ms = budget ? 60000 : 10000000;
            world.definition->steps[0].action.retry.initial_ms = 1;
            world.definition->steps[0].action.retry.cap_ms = 1;
            world_start(&world);
            (void)world_run(&world, OUTCOME_RETRY);
            world_pass(&world, 10000);
            hold(&world);
            world_pass(&world, 40000);
            int64_t due_ms = WORLD_START_MS + 60000 + 40000 + 50000;
            if (ends == ENDS_BEFORE)
                release(&world);
            assert_int_equal(world_suspend(&world), 0);
            world_pass(&world, 30000);
            if (ends == ENDS_WITHIN)
                release(&world);
            world_pass(&world, 20000);
            assert_int_equal(world_resume(&world), 0);
            world_assert_state(&world, "RUNNING");
            if (ends == ENDS_AFTER) {
                assert_int_equal(saga_due_at(world.saga), INT64_MAX);
                world_pass(&world, 7000);
                due_ms += 7000;
                release(&world);
            }
            assert_int_equal(saga_due_at(world.saga), due_ms);
            (void)world_run(&world, OUTCOME_RETRY);
            assert_int_equal(saga_due_at(world.saga), due_ms);
            forget();
            world_reload(&world);
            assert_int_equal(saga_due_at(world.saga), due_ms);
            world_close(&world);
        }
    }
}

/* Parked for what became of another step: the time in which it was held before is no more lost. */
static void test_held_before_it_is_parked(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 2);
    world.definition->steps[1].after = (struct step_set){ { 0 } };
    definition_order(world.definition);
    world.definition->steps[0].action.held = NULL;
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->deadline_ms = 60000;
    world_start(&world);
    hold(&world);
    int64_t seq = world_grant_of(&world, 0, OPERATION_ACTION);
    world_pass(&world, 1000);
    assert_int_equal(world_report(&world, seq, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    world_pass(&world, 500000);
    assert_int_equal(world_resolve(&world, "a", OPERATION_ACTION, true, NULL), 0);
    assert_int_equal(world_resume(&world), 0);
    world_assert_state(&world, "RUNNING");
    assert_int_equal(saga_due_at(world.saga), INT64_MAX);
    world_pass(&world, 9000);
    release(&world);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 60000 + 510000);
    seq = world_grant(&world);
    assert_int_equal(saga_entry(world.saga, seq)->held_ms, 510000);
    world_close(&world);
}

static void test_p4_the_idempotency_window_goes_on(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world.definition->steps[0].action.window_ms = 60000;
    world.definition->steps[0].settle_ms = 1000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    hold(&world);
    world_pass(&world, 60000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: IDEMPOTENCY_WINDOW_OVER");
    world_close(&world);
}

static void test_a_held_wait_is_granted_by_itself(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1);
    world_start(&world);
    hold(&world);
    world_pass(&world, 5);
    struct transition beside = { .finishes = true };
    struct grantable what;
    assert_int_equal(saga_grantable(world.saga, world.now_ms, &what, 1), 1);
    assert_int_equal(what.held_ms, 5);
    assert_int_equal(saga_grant(world.saga, &what, "w/1", 0, world.now_ms, &beside, &world.err),
                     ERR_INTERNAL);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_not_of_the_budget),
        cmocka_unit_test(test_a_fresh_budget_begins_after_it),
        cmocka_unit_test(test_it_is_not_of_the_start_timeout),
        cmocka_unit_test(test_a_start_timeout_that_was_over_before_acts),
        cmocka_unit_test(test_it_is_not_before_the_deadline),
        cmocka_unit_test(test_a_deadline_that_passed_before_acts_while_held),
        cmocka_unit_test(test_a_back_off_goes_on),
        cmocka_unit_test(test_a_compensation_waits_as_well),
        cmocka_unit_test(test_parallel_waits_count_once),
        cmocka_unit_test(test_suspended_while_held),
        cmocka_unit_test(test_held_before_it_is_suspended),
        cmocka_unit_test(test_held_before_it_is_parked),
        cmocka_unit_test(test_p4_the_idempotency_window_goes_on),
        cmocka_unit_test(test_a_held_wait_is_granted_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
