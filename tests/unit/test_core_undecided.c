/* Goal: what another node recorded with a copy that was out of date, and so without what follows
 * from it, is decided by whoever loads the saga next; no record leaves a saga that cannot go on.
 * Method: the outcome is written into the tables alone, as a plain finish does, and the saga
 * loaded. */
#include "core_world.h"

static void finish_elsewhere(struct world *world, int64_t seq, enum outcome outcome)
{
    struct journal_entry *entry = &world->entries[seq - 1];
    assert_int_equal(entry->outcome, OUTCOME_NONE);
    entry->outcome = outcome;
    entry->finished_at_ms = world->now_ms;
    world_reload(world);
    assert_true(saga_due_at(world->saga) <= world->now_ms);
    assert_false(world_is_grantable(world));
    assert_int_equal(world_time(world), VERDICT_ACCEPTED);
    assert_true(world->transition.append_seq > seq); /* the position guards it */
    assert_true(world->transition.phase_change);
}

static void test_p8_the_end_of_what_is_taken_back_is_said_by_the_next_to_load(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    int64_t lease = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    world_assert_state(&world, "COMPENSATING");
    finish_elsewhere(&world, lease, OUTCOME_RELEASED);
    world_assert_state(&world, "COMPENSATED");
    assert_true(world.transition.ends);
    assert_int_equal(saga_entry(world.saga, 3)->kind, ENTRY_END);
    world_reload(&world); /* terminal, by that entry */
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void test_p8_the_end_of_the_last_step_is_said_by_the_next_to_load(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    finish_elsewhere(&world, world_grant(&world), OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    assert_int_equal(saga_entry(world.saga, 3)->kind, ENTRY_END);
    world_close(&world);
}

/* Whatever comes first says it, not only time. */
static void test_a_repeated_report_says_the_end(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    int64_t lease = world_grant(&world);
    world.entries[0].outcome = OUTCOME_DONE;
    world.entries[0].finished_at_ms = world.now_ms;
    world_reload(&world);
    assert_int_equal(world_report(&world, lease, OUTCOME_DONE), VERDICT_DUPLICATE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
    /* But a person may still turn it back: nobody was told that it succeeded. */
    world_open(&world, 1);
    world_start(&world);
    (void)world_grant(&world);
    world.entries[0].outcome = OUTCOME_DONE;
    world.entries[0].finished_at_ms = world.now_ms;
    world_reload(&world);
    assert_int_equal(world_cancel(&world), 0);
    world_assert_state(&world, "COMPENSATING");
    world_close(&world);
}

static void test_p4_an_unknown_that_nobody_acted_on_is_acted_on(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        enum on_unknown on_unknown;
        const char *state;
    } cases[] = {
        { OUTCOME_UNKNOWN, ON_UNKNOWN_PARK, "PARKED in RUNNING: OUTCOME_UNKNOWN" },
        { OUTCOME_EXPIRED, ON_UNKNOWN_PARK, "PARKED in RUNNING: OUTCOME_UNKNOWN" },
        { OUTCOME_UNKNOWN, ON_UNKNOWN_COMPENSATE, "COMPENSATING" },
        { OUTCOME_REJECTED, ON_UNKNOWN_PARK, "COMPENSATED" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
        world.definition->steps[0].action.on_unknown = cases[i].on_unknown;
        world_start(&world);
        finish_elsewhere(&world, world_grant(&world), cases[i].outcome);
        world_assert_state(&world, cases[i].state);
        world_close(&world);
    }
}

static void test_p5_a_failed_compensation_that_nobody_acted_on_parks(void **state)
{
    (void)state;
    static const struct {
        enum outcome outcome;
        const char *state;
    } cases[] = {
        { OUTCOME_REJECTED, "PARKED in COMPENSATING: COMPENSATION_FAILED" },
        { OUTCOME_UNKNOWN, "PARKED in COMPENSATING: OUTCOME_UNKNOWN" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_open(&world, 2);
        world.definition->steps[0].compensation.effect = EFFECT_AT_MOST_ONCE;
        world_start(&world);
        (void)world_run(&world, OUTCOME_DONE);
        assert_int_equal(world_cancel(&world), 0);
        finish_elsewhere(&world, world_grant(&world), cases[i].outcome);
        world_assert_state(&world, cases[i].state);
        world_close(&world);
    }
}

/* Two causes: the graver one takes the place of the first as the reason. When it is cleared up, the
 * first is still there. */
static void test_p8_a_foreign_effect_behind_another_cause_parks_again(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->steps[1].has_compensation = false;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    int64_t lost = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    world_expire(&world, lost);
    (void)world_run(&world, OUTCOME_ALREADY_DONE); /* the compensation: not by us */
    world_assert_state(&world, "PARKED in COMPENSATING: FOREIGN_EFFECT");
    assert_int_equal(saga_row(world.saga)->park_step, 0);
    assert_int_equal(world_report(&world, lost, OUTCOME_ALREADY_DONE), VERDICT_ACCEPTED);
    assert_int_equal(saga_row(world.saga)->park_step, 1);
    assert_int_equal(world_resolve(&world, "b", OPERATION_ACTION, false, NULL), 0);
    world_reload(&world);
    assert_true(saga_due_at(world.saga) <= world.now_ms);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: FOREIGN_EFFECT");
    assert_int_equal(saga_row(world.saga)->park_step, 0);
    assert_int_equal(world_resolve(&world, "a", OPERATION_COMPENSATION, true, NULL), 0);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

/* What a probe found is told by the RESOLVE that follows from it, and that is missing. */
static void test_p4_an_answer_of_a_probe_that_nobody_acted_on_is_asked_for_again(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->steps[0].settle_ms = 0;
    world.definition->steps[0].action.effect = EFFECT_PROBED;
    (void)world_add_probe(&world, 0, OPERATION_ACTION);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    int64_t probe = world_grant_of(&world, 0, OPERATION_PROBE);
    world.entries[probe - 1].outcome = OUTCOME_DONE;
    world.entries[probe - 1].finished_at_ms = world.now_ms;
    world_reload(&world);
    world_assert_step(&world, 0, "UNKNOWN");
    probe = world_grant_of(&world, 0, OPERATION_PROBE);
    assert_int_equal(world_report(&world, probe, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_step(&world, 0, "DONE");
    world_close(&world);
}

/* An END entry is no way to end what is not over. */
static void test_an_end_while_something_is_left_is_refused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    finish_elsewhere(&world, (world_run(&world, OUTCOME_DONE), world_grant(&world)), OUTCOME_DONE);
    world.entries[1].outcome = OUTCOME_RETRY;
    struct saga_row row = world.row;
    struct saga *saga = NULL;
    assert_int_equal(
        saga_replay(world.definition, &row, world.entries, world.count, &saga, &world.err),
        ERR_INTERNAL);
    assert_non_null(strstr(world.err.msg, "an end while something is left to do"));
    world.entries[1].outcome = OUTCOME_DONE;
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p8_the_end_of_what_is_taken_back_is_said_by_the_next_to_load),
        cmocka_unit_test(test_p8_the_end_of_the_last_step_is_said_by_the_next_to_load),
        cmocka_unit_test(test_a_repeated_report_says_the_end),
        cmocka_unit_test(test_p4_an_unknown_that_nobody_acted_on_is_acted_on),
        cmocka_unit_test(test_p5_a_failed_compensation_that_nobody_acted_on_parks),
        cmocka_unit_test(test_p8_a_foreign_effect_behind_another_cause_parks_again),
        cmocka_unit_test(test_p4_an_answer_of_a_probe_that_nobody_acted_on_is_asked_for_again),
        cmocka_unit_test(test_an_end_while_something_is_left_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
