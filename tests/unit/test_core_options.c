/* Goal: a person gives a saga that runs other numbers, and from then on it runs by those, also when
 * it is loaded; its structure, and what was decided by the old ones, stays. Method: each number at
 * the place where it acts, before and after; the texts of entries; what is refused; after each
 * commit a replay must equal the copy (core_world.h). */
#include "core_world.h"

#include <string.h>

static const struct saga_options none = OPTIONS_NONE;

static void set(struct world *world, const char *step, const struct saga_options *options)
{
    assert_int_equal(world_options(world, step, options), 0);
    assert_int_equal(world->verdict, VERDICT_ACCEPTED);
    assert_true(world->transition.append_count == 1);
    assert_int_equal(world->transition.sets_deadline, options->deadline_ms != OPTIONS_SAME);
}

static void test_text_there_and_back(void **state)
{
    (void)state;
    static const struct {
        struct saga_options options;
        const char *text;
    } cases[] = {
        { { OPERATION_COUNT, 1, 2, 3, 4, 5, 6 },
          "retry_for_ms=1,retry_initial_ms=2,retry_cap_ms=3,max_attempts=4,lease_ms=5,"
          "deadline_ms=6" },
        { { OPERATION_PROBE, -1, -1, 60000, -1, -1, -1 }, "operation=PROBE,retry_cap_ms=60000" },
        { { OPERATION_COUNT, -1, -1, -1, 0, -1, 0 }, "max_attempts=0,deadline_ms=0" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[OPTIONS_TEXT_MAX];
        assert_int_equal(options_write(&cases[i].options, text), strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
        struct saga_options back;
        assert_true(options_read(&(struct bytes){ (uint8_t *)text, strlen(text) }, &back));
        assert_memory_equal(&back.retry_for_ms, &cases[i].options.retry_for_ms,
                            sizeof back - offsetof(struct saga_options, retry_for_ms));
        assert_int_equal(back.operation, cases[i].options.operation);
    }
}

static void test_other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        ",",
        "lease_ms",
        "lease_ms=",
        "lease_ms=-1",
        "lease_ms=05000",
        "lease_ms=5000,",
        "lease_ms=5000 ",
        "lease_ms=5000,lease_ms=5000",
        "lease_ms=5000,retry_for_ms=1",    /* out of order */
        "lease_ms=1234567890123456789012", /* too large */
        "operation=NOTHING",
        "effect=1",
        "operation=ACTION,operation=ACTION",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct saga_options untouched = none;
        assert_false(
            options_read(&(struct bytes){ (uint8_t *)texts[i], strlen(texts[i]) }, &untouched));
        assert_int_equal(untouched.lease_ms, OPTIONS_SAME);
    }
}

static void test_a_budget_that_is_longer(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.for_ms = 10000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    struct saga_options options = none;
    options.retry_for_ms = 100000;
    set(&world, "a", &options);
    struct step_view view;
    saga_step_view(world.saga, 0, world.now_ms, &view);
    assert_int_equal(view.retry_until_ms, WORLD_START_MS + 100000);
    assert_int_equal(saga_due_at(world.saga), WORLD_START_MS + 100000);
    world_pass(&world, 50000);
    world_reload(&world);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    (void)world_run(&world, OUTCOME_RETRY);
    world_pass(&world, 50000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_a_budget_that_is_over_at_once(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.on_exhausted = ON_EXHAUSTED_COMPENSATE;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    struct saga_options options = none;
    options.max_attempts = 1;
    set(&world, NULL, &options);
    world_pass(&world, 1000); /* the back-off that had begun */
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

/* What is parked stays so; a retry goes on with the new numbers. */
static void test_parked_until_it_is_retried(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    struct saga_options options = none;
    options.max_attempts = 2;
    set(&world, "a", &options);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    assert_int_equal(saga_due_at(world.saga), INT64_MAX);
    assert_int_equal(world_retry(&world, NULL), 0);
    struct step_view view;
    saga_step_view(world.saga, 0, world.now_ms, &view);
    assert_int_equal(view.retry_until_ms, 0); /* fresh: it begins with the next attempt */
    (void)world_run(&world, OUTCOME_RETRY);
    world_assert_state(&world, "RUNNING");
    world_pass(&world, 60000);
    (void)world_run(&world, OUTCOME_RETRY);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

static void test_leases_and_back_off(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    int64_t first = world_grant(&world);
    struct saga_options options = none;
    options.lease_ms = 50000;
    options.retry_initial_ms = options.retry_cap_ms = 1;
    set(&world, NULL, &options);
    /* The live one stays as it is until it is extended. */
    assert_int_equal(saga_entry(world.saga, first)->lease_until_ms, WORLD_START_MS + 30000);
    assert_int_equal(saga_lease_rule(world.saga, first)->lease_ms, 50000);
    assert_int_equal(world_report(&world, first, OUTCOME_RETRY), VERDICT_ACCEPTED);
    assert_true(saga_entry(world.saga, first)->retry_at_ms <= world.now_ms + 1);
    world_pass(&world, 1);
    int64_t second = world_grant(&world);
    assert_int_equal(saga_entry(world.saga, second)->lease_until_ms, world.now_ms + 50000);
    /* Of one step alone, later. */
    options = none;
    options.lease_ms = 5000;
    set(&world, "b", &options);
    assert_int_equal(saga_lease_rule(world.saga, second)->lease_ms, 50000);
    assert_int_equal(world_report(&world, second, OUTCOME_DONE), VERDICT_ACCEPTED);
    int64_t third = world_grant(&world);
    assert_int_equal(saga_entry(world.saga, third)->lease_until_ms, world.now_ms + 5000);
    /* The definition is everybody's, and as it was. */
    assert_ptr_equal(saga_definition(world.saga), world.definition);
    assert_int_equal(world.definition->steps[0].action.lease_ms, DEFAULT_LEASE_MS);
    world_close(&world);
}

static void test_one_operation_alone(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.effect = EFFECT_PROBED;
    world.definition->steps[0].settle_ms = 0;
    (void)world_add_probe(&world, 0, OPERATION_ACTION);
    world_start(&world);
    struct saga_options options = none;
    options.operation = OPERATION_PROBE;
    options.lease_ms = 7000;
    set(&world, NULL, &options);
    options.operation = OPERATION_COMPENSATION;
    options.lease_ms = 8000;
    set(&world, "a", &options);
    int64_t action = world_run(&world, OUTCOME_UNKNOWN);
    assert_int_equal(saga_lease_rule(world.saga, action)->lease_ms, DEFAULT_LEASE_MS);
    int64_t probe = world_grant(&world);
    assert_int_equal(saga_entry(world.saga, probe)->operation, OPERATION_PROBE);
    assert_int_equal(saga_entry(world.saga, probe)->lease_until_ms, world.now_ms + 7000);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, probe, OUTCOME_DONE), VERDICT_ACCEPTED);
    int64_t undo = world_grant(&world);
    assert_int_equal(saga_entry(world.saga, undo)->lease_until_ms, world.now_ms + 8000);
    world_close(&world);
}

static void test_deadline(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 100000;
    world_start(&world);
    struct saga_options options = none;
    options.deadline_ms = WORLD_START_MS + 200000;
    set(&world, NULL, &options);
    assert_int_equal(saga_row(world.saga)->deadline_at_ms, WORLD_START_MS + 200000);
    world_pass(&world, 150000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_reload(&world);
    world_pass(&world, 50000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_trace(&world, "1 +0 OPTIONS -\n"
                               "2 +200000 COMPENSATE a DEADLINE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_no_deadline_any_more(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 100000;
    world_start(&world);
    struct saga_options options = none;
    options.deadline_ms = 0;
    set(&world, NULL, &options);
    assert_int_equal(saga_row(world.saga)->deadline_at_ms, 0);
    world_pass(&world, 1000000);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_reload(&world);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

/* Parked once for its deadline, it parks again for the new one. */
static void test_a_new_deadline_acts_anew(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 100000;
    world.definition->on_deadline = ON_DEADLINE_PARK;
    world_start(&world);
    world_pass(&world, 100000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: DEADLINE_EXCEEDED");
    struct saga_options options = none;
    options.deadline_ms = world.now_ms + 50000;
    set(&world, NULL, &options);
    assert_int_equal(world_retry(&world, NULL), 0);
    world_assert_state(&world, "RUNNING");
    world_pass(&world, 50000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: DEADLINE_EXCEEDED");
    world_close(&world);
}

/* The deadline that waits for the pivot is forgotten with the old one. */
static void test_a_deadline_that_waits_for_the_pivot(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 10000;
    world.definition->steps[0].pivot = true;
    world.definition->pivot = 0;
    definition_order(world.definition);
    world_start(&world);
    int64_t pivot = world_grant(&world);
    world_pass(&world, 10000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    assert_non_null(saga_pending(world.saga));
    struct saga_options options = none;
    options.deadline_ms = world.now_ms + 100000;
    set(&world, NULL, &options);
    assert_null(saga_pending(world.saga));
    assert_int_equal(world_report(&world, pivot, OUTCOME_RETRY), VERDICT_ACCEPTED);
    world_assert_state(&world, "RUNNING");
    world_close(&world);
}

/* Only what is suspended after it was set puts a deadline off. */
static void test_deadline_and_suspended_time(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->deadline_ms = 100000;
    world_start(&world);
    assert_int_equal(world_suspend(&world), 0);
    world_pass(&world, 10000);
    assert_int_equal(world_resume(&world), 0);
    assert_int_equal(saga_deadline_ms(world.saga), WORLD_START_MS + 110000);
    assert_int_equal(world_suspend(&world), 0);
    world_pass(&world, 5000);
    struct saga_options options = none;
    options.deadline_ms = world.now_ms + 60000;
    set(&world, NULL, &options);
    assert_int_equal(saga_deadline_ms(world.saga), options.deadline_ms);
    world_pass(&world, 7000);
    assert_int_equal(world_resume(&world), 0);
    assert_int_equal(saga_deadline_ms(world.saga), options.deadline_ms + 7000);
    world_reload(&world);
    assert_int_equal(saga_deadline_ms(world.saga), options.deadline_ms + 7000);
    world_close(&world);
}

static void test_the_same_again_is_nothing(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    struct saga_options options = none;
    options.retry_for_ms = 100000;
    options.deadline_ms = WORLD_START_MS + 100000;
    set(&world, NULL, &options);
    assert_int_equal(world_options(&world, NULL, &options), 0);
    assert_int_equal(world.verdict, VERDICT_NOTHING);
    assert_true(transition_is_empty(&world.transition));
    options.deadline_ms = OPTIONS_SAME;
    assert_int_equal(world_options(&world, "b", &options), 0);
    assert_int_equal(world.verdict, VERDICT_NOTHING);
    assert_int_equal(saga_last_seq(world.saga), 1);
    world_close(&world);
}

static void assert_field(const struct world *world, int rc, const char *field)
{
    assert_int_equal(rc, ERR_INVALID);
    assert_string_equal(world->err.field, field);
    assert_int_equal(saga_last_seq(world->saga), 0);
}

static void test_what_registration_refuses_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct saga_options options;
        const char *field;
    } cases[] = {
        { OPTIONS_NONE, "options" },
        { { OPERATION_ACTION, -1, -1, -1, -1, -1, -1 }, "options" },
        { { OPERATION_COUNT, 0, -1, -1, -1, -1, -1 }, "retry_for" },
        { { OPERATION_COUNT, INT64_C(367) * 24 * 3600 * 1000, -1, -1, -1, -1, -1 }, "retry_for" },
        { { OPERATION_COUNT, -1, 0, -1, -1, -1, -1 }, "retry_initial" },
        { { OPERATION_COUNT, -1, -1, 999, -1, -1, -1 }, "retry_cap" }, /* below initial */
        { { OPERATION_COUNT, -1, -1, -1, INT64_C(4294967297), -1, -1 }, "max_attempts" },
        { { OPERATION_COUNT, -1, -1, -1, -1, 4999, -1 }, "lease" },
        { { OPERATION_COUNT, -1, -1, -1, -1, 3600001, -1 }, "lease" },
        { { OPERATION_PROBE, -1, -1, -1, -1, 5000, -1 }, "operation" }, /* there is none */
        { { OPERATION_COUNT, -1, -1, -1, -1, -1, WORLD_START_MS }, "deadline_time" },
        { { OPERATION_COUNT, -1, -1, -1, -1, -1, INT64_C(40000000000) }, "deadline_time" },
    };
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_field(&world, world_options(&world, "a", &cases[i].options), cases[i].field);
    struct saga_options options = none;
    options.lease_ms = 5000;
    assert_int_equal(world_options(&world, "z", &options), ERR_NOT_FOUND);
    world_close(&world);
}

static void test_no_deadline_on_the_way_back(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    assert_int_equal(world_cancel(&world), 0);
    struct saga_options options = none;
    options.deadline_ms = world.now_ms + 1000;
    world_assert_refused(&world, world_options(&world, NULL, &options), "OPTIONS_NOT_ALLOWED");
    options.deadline_ms = OPTIONS_SAME;
    options.operation = OPERATION_COMPENSATION;
    options.retry_for_ms = 5000;
    set(&world, NULL, &options);
    (void)world_run(&world, OUTCOME_RETRY);
    world_pass(&world, 5000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: COMPENSATION_FAILED");
    world_close(&world);
}

/* An entry that somebody changed, and a row that does not fit to it. */
static void test_a_journal_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    struct saga_options options = none;
    options.deadline_ms = WORLD_START_MS + 100000;
    set(&world, NULL, &options);
    struct saga *saga = NULL;
    world.row.deadline_at_ms++;
    assert_int_equal(
        saga_replay(world.definition, &world.row, world.entries, world.count, &saga, &world.err),
        ERR_INTERNAL);
    assert_non_null(strstr(world.err.msg, "another deadline"));
    world.row.deadline_at_ms--;
    world.entries[0].output.data[0] = 'x';
    assert_int_equal(
        saga_replay(world.definition, &world.row, world.entries, world.count, &saga, &world.err),
        ERR_INTERNAL);
    assert_non_null(strstr(world.err.msg, "cannot be read"));
    assert_null(saga);
    world_close(&world);
}

/* A line of the audit: each kind, as a person makes it and as the rules do. */
static void test_which_entries_a_person_asked_for(void **state)
{
    (void)state;
    static const enum entry_kind persons[] = { ENTRY_RETRY, ENTRY_SKIP, ENTRY_ABANDON, ENTRY_SIGNAL,
                                               ENTRY_OPTIONS };
    for (int kind = 0; kind < ENTRY_KIND_COUNT; kind++)
        for (int about = 0; about < 2; about++)
            for (int reason = 0; reason < PARK_REASON_COUNT; reason++) {
                struct journal_entry entry = { .kind = (enum entry_kind)kind,
                                               .reason = (uint8_t)reason,
                                               .about = about };
                bool asked = false;
                for (size_t i = 0; i < ARRAY_LEN(persons); i++)
                    asked = asked || kind == (int)persons[i];
                asked |= entry_has_cause(entry.kind) && reason == CAUSE_CANCELLED && !about;
                asked |= kind == ENTRY_PARK && reason == PARK_SUSPENDED;
                asked |= kind == ENTRY_RESUME && about;
                asked |= kind == ENTRY_RESOLVE && !about;
                assert_int_equal(entry_is_asked(&entry), asked);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_there_and_back),
        cmocka_unit_test(test_other_texts_are_refused),
        cmocka_unit_test(test_a_budget_that_is_longer),
        cmocka_unit_test(test_a_budget_that_is_over_at_once),
        cmocka_unit_test(test_parked_until_it_is_retried),
        cmocka_unit_test(test_leases_and_back_off),
        cmocka_unit_test(test_one_operation_alone),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_no_deadline_any_more),
        cmocka_unit_test(test_a_new_deadline_acts_anew),
        cmocka_unit_test(test_a_deadline_that_waits_for_the_pivot),
        cmocka_unit_test(test_deadline_and_suspended_time),
        cmocka_unit_test(test_the_same_again_is_nothing),
        cmocka_unit_test(test_what_registration_refuses_is_refused),
        cmocka_unit_test(test_no_deadline_on_the_way_back),
        cmocka_unit_test(test_a_journal_that_cannot_be_is_refused),
        cmocka_unit_test(test_which_entries_a_person_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
