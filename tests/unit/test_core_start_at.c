/* Goal: a saga that is to start later begins then, no step sooner, and what counts from its start
 * counts from then. Method: scripted events around that moment; after each commit a replay of the
 * tables equals the copy (core_world.c). */
#include "core_world.h"

static void test_no_step_begins_before_the_start(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 60000;
    world.definition->steps[0].action.start_timeout_ms = 5000;
    int64_t start_at = world.start_at_ms = WORLD_START_MS + 10000;
    world_start(&world);
    assert_int_equal(saga_row(world.saga)->start_at_ms, start_at);
    assert_int_equal(saga_row(world.saga)->deadline_at_ms, start_at + 60000);
    assert_false(world_is_grantable(&world));
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), start_at);
    assert_int_equal(saga_due_at(world.saga), start_at + 5000);
    world_assert_step(&world, 0, "DELAYED");
    world_assert_step(&world, 1, "PENDING");
    world_assert_waits(&world, WAIT_DELAY, start_at);
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    world_pass(&world, 9999);
    assert_false(world_is_grantable(&world));
    world_pass(&world, 1);
    world_assert_waits(&world, WAIT_WORKER, start_at + 5000);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_DONE); /* the second one is not delayed */
    world_assert_trace(&world, "1 +10000 a ACTION 1 -> +10000 DONE\n"
                               "2 +10000 b ACTION 1 -> +10000 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

static void test_a_start_in_the_past_is_at_once(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 60000;
    world.start_at_ms = WORLD_START_MS - 1;
    world_start(&world);
    assert_int_equal(saga_row(world.saga)->deadline_at_ms, WORLD_START_MS + 60000);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

/* A delay of the first step and the first time-out count from the start. */
static void test_what_counts_from_the_start(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].delay_ms = 3000;
    world.definition->steps[0].action.start_timeout_ms = 5000;
    int64_t start_at = world.start_at_ms = WORLD_START_MS + 10000;
    world_start(&world);
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), start_at + 3000);
    assert_int_equal(saga_due_at(world.saga), start_at + 8000);
    world.now_ms = start_at + 8000;
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_the_deadline_before_the_start_is_none(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 2000;
    int64_t start_at = world.start_at_ms = WORLD_START_MS + 10000;
    world_start(&world);
    assert_int_equal(saga_due_at(world.saga), start_at + 2000);
    assert_int_equal(world_suspend(&world), 0);
    world_pass(&world, 9000);
    assert_int_equal(world_resume(&world), 0);
    assert_int_equal(saga_due_at(world.saga), start_at + 2000); /* nothing was lost by that */
    assert_int_equal(world_suspend(&world), 0);
    world_pass(&world, 1500); /* 500 of them after the start */
    assert_int_equal(world_resume(&world), 0);
    assert_int_equal(saga_due_at(world.saga), start_at + 2500);
    world_pass(&world, 2000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_cancelled_before_the_start(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.start_at_ms = WORLD_START_MS + 10000;
    world_start(&world);
    assert_int_equal(world_cancel(&world), 0);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_a_wait_before_the_start(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_make_wait(&world, 0, 5000, ON_EXHAUSTED_COMPENSATE);
    int64_t start_at = world.start_at_ms = WORLD_START_MS + 10000;
    world_start(&world);
    assert_int_equal(saga_due_at(world.saga), start_at + 5000);
    assert_int_equal(world_signal(&world, "s_a", "1", "paid"), 0);
    world_assert_state(&world, "RUNNING");
    assert_int_equal(saga_due_at(world.saga), start_at);
    world.now_ms = start_at;
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_step_begins_before_the_start),
        cmocka_unit_test(test_a_start_in_the_past_is_at_once),
        cmocka_unit_test(test_what_counts_from_the_start),
        cmocka_unit_test(test_the_deadline_before_the_start_is_none),
        cmocka_unit_test(test_cancelled_before_the_start),
        cmocka_unit_test(test_a_wait_before_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
