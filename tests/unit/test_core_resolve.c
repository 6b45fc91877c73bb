/* What a person settles. Goal: their word counts exactly where nothing rests on the unknown yet, a
 * saga that stood for it goes on, and what the same attempt reports afterwards contradicts nothing
 * that is so. Method: a table of places, words and what follows; then the refusals. */
#include "core_world.h"

#include <string.h>

/* Step a of two. Each place is where the saga stands when the person speaks. */
enum place {
    UNKNOWN_PARKED,      /* AT_MOST_ONCE, unknown */
    UNKNOWN_BACKOFF,     /* IDEMPOTENT, unknown, waits for its next try */
    UNKNOWN_TURNED_BACK, /* unknown, cancelled, its compensation waits for settle time */
    FOREIGN,             /* it exists already, not by us */
    LATE,                /* done, and a lost attempt turned up as well */
    UNDO_UNKNOWN,        /* the compensation is AT_MOST_ONCE, unknown */
    UNDO_FAILED,         /* unknown before, then refused */
    KILLER,              /* IDEMPOTENT, its workers die */
};

static void lose(struct world *world)
{
    int64_t seq = world_grant(world);
    world_expire(world, seq);
}

static void open_place(struct world *world, enum place place)
{
    world_open(world, 2);
    struct step_rule *a = &world->definition->steps[0];
    a->guarded = false;
    a->settle_ms = 60000;
    a->action.effect = place == UNKNOWN_PARKED || place == UNKNOWN_TURNED_BACK || place == FOREIGN
                           ? EFFECT_AT_MOST_ONCE
                           : EFFECT_IDEMPOTENT;
    if (place == UNDO_UNKNOWN)
        a->compensation.effect = EFFECT_AT_MOST_ONCE;
    world_start(world);
    switch (place) {
    case UNKNOWN_PARKED:
    case UNKNOWN_TURNED_BACK:
        lose(world);
        if (place == UNKNOWN_TURNED_BACK)
            assert_int_equal(world_cancel(world), 0);
        break;
    case UNKNOWN_BACKOFF:
        lose(world);
        break;
    case FOREIGN:
        (void)world_run(world, OUTCOME_ALREADY_DONE);
        break;
    case LATE: {
        int64_t first = world_grant(world);
        assert_int_equal(world_lease_end(world, first, OUTCOME_RELEASED), VERDICT_ACCEPTED);
        assert_int_equal(world_report(world, world_grant(world), OUTCOME_DONE), VERDICT_ACCEPTED);
        a->action.effect = EFFECT_AT_MOST_ONCE;
        assert_int_equal(world_report(world, first, OUTCOME_DONE), VERDICT_STALE);
        break;
    }
    case UNDO_UNKNOWN:
    case UNDO_FAILED:
        (void)world_run(world, OUTCOME_DONE);
        assert_int_equal(world_cancel(world), 0);
        lose(world);
        if (place == UNDO_FAILED) {
            world_pass(world, 120000);
            (void)world_run(world, OUTCOME_REJECTED);
        }
        break;
    case KILLER:
        for (int i = 0; i < 3; i++) {
            lose(world);
            world_pass(world, 120000);
        }
        break;
    }
}

static void test_p4_what_a_person_found_out_settles_it(void **state)
{
    (void)state;
    static const struct {
        enum place place;
        const char *stands;
        bool happened;
        const char *state, *step; /* a, afterwards */
        bool grantable, settles;
    } cases[] = {
        { UNKNOWN_PARKED, "PARKED in RUNNING: OUTCOME_UNKNOWN", true, "RUNNING", "DONE", true,
          false },
        { UNKNOWN_PARKED, "PARKED in RUNNING: OUTCOME_UNKNOWN", false, "RUNNING", "BACKOFF", true,
          true },
        { UNKNOWN_BACKOFF, "RUNNING", true, "RUNNING", "DONE", true, false },
        { UNKNOWN_BACKOFF, "RUNNING", false, "RUNNING", "BACKOFF", true, true },
        { UNKNOWN_TURNED_BACK, "COMPENSATING", true, "COMPENSATING", "COMPENSATION_READY", true,
          false },
        { UNKNOWN_TURNED_BACK, "COMPENSATING", false, "COMPENSATED", "NOT_RUN", false, false },
        { FOREIGN, "PARKED in RUNNING: FOREIGN_EFFECT", true, "RUNNING", "DONE", true, false },
        { FOREIGN, "PARKED in RUNNING: FOREIGN_EFFECT", false, "RUNNING", "READY", true, false },
        { LATE, "PARKED in RUNNING: LATE_EFFECT, doubt", true, "RUNNING", "DONE", true, false },
        { LATE, "PARKED in RUNNING: LATE_EFFECT, doubt", false, "RUNNING", "DONE", true, false },
        { UNDO_UNKNOWN, "PARKED in COMPENSATING: OUTCOME_UNKNOWN", true, "COMPENSATED",
          "COMPENSATED", false, false },
        { UNDO_UNKNOWN, "PARKED in COMPENSATING: OUTCOME_UNKNOWN", false, "COMPENSATING",
          "COMPENSATION_BACKOFF", true, true },
        { UNDO_FAILED, "PARKED in COMPENSATING: COMPENSATION_FAILED", true, "COMPENSATED",
          "COMPENSATED", false, false },
        { UNDO_FAILED, "PARKED in COMPENSATING: COMPENSATION_FAILED", false,
          "PARKED in COMPENSATING: COMPENSATION_FAILED", "COMPENSATION_REJECTED", false, false },
        { KILLER, "PARKED in RUNNING: WORKER_KILLER", true, "RUNNING", "DONE", true, false },
        { KILLER, "PARKED in RUNNING: WORKER_KILLER", false, "PARKED in RUNNING: WORKER_KILLER",
          "PENDING", false, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        print_message("case %zu\n", i);
        open_place(&world, cases[i].place);
        world_assert_state(&world, cases[i].stands);
        assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, cases[i].happened, NULL), 0);
        world_assert_state(&world, cases[i].state);
        world_assert_step(&world, 0, cases[i].step);
        if (cases[i].settles) { /* a request may still be on its way */
            assert_false(world_is_grantable(&world));
            world_assert_waits(&world, WAIT_SETTLE, world.now_ms + 60000);
            world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
            assert_non_null(strstr(world.err.msg, "on their way"));
            world_pass(&world, 60000);
        }
        assert_int_equal(world_is_grantable(&world), cases[i].grantable);
        /* There is nothing left to say. */
        int rc = world_resolve(&world, "a", OPERATION_COUNT, cases[i].happened, NULL);
        world_assert_refused(&world, rc, "NOTHING_TO_RESOLVE");
        world_close(&world);
    }
}

static void test_the_output_of_a_resolution_is_the_steps(void **state)
{
    (void)state;
    struct world world;
    open_place(&world, UNKNOWN_PARKED);
    assert_int_equal(world_resolve(&world, "a", OPERATION_ACTION, true, "waybill 17"), 0);
    struct bytes output;
    assert_true(saga_step_output(world.saga, 0, &output));
    assert_int_equal(output.size, strlen("waybill 17"));
    assert_memory_equal(output.data, "waybill 17", output.size);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

/* AT_MOST_ONCE: "it did not happen" is what makes a repeat safe. */
static void test_p4_not_done_is_granted_again_with_a_fresh_budget(void **state)
{
    (void)state;
    struct world world;
    open_place(&world, UNKNOWN_PARKED);
    world.definition->steps[0].action.retry.max_attempts = 1;
    assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, false, NULL), 0);
    world_pass(&world, 60000);
    assert_int_equal(world_run(&world, OUTCOME_DONE), 5); /* LEASE, PARK, RESOLVE, RESUME, LEASE */
    assert_int_equal(saga_entry(world.saga, 5)->try_, 2);
    world_close(&world);
}

static void test_a_late_report_after_the_resolution(void **state)
{
    (void)state;
    static const struct {
        bool happened;
        enum outcome outcome;
        const char *state;
    } cases[] = {
        { true, OUTCOME_DONE, "RUNNING" },                                   /* so it is */
        { true, OUTCOME_UNKNOWN, "RUNNING" },                                /* they knew better */
        { true, OUTCOME_REJECTED, "RUNNING" },                               /* evidence */
        { false, OUTCOME_DONE, "PARKED in RUNNING: LATE_EFFECT, doubt" },    /* it did happen */
        { false, OUTCOME_UNKNOWN, "PARKED in RUNNING: LATE_EFFECT, doubt" }, /* or may have */
        { false, OUTCOME_REJECTED, "RUNNING" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        print_message("case %zu\n", i);
        open_place(&world, UNKNOWN_PARKED);
        assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, cases[i].happened, NULL), 0);
        assert_int_equal(world_report(&world, 1, cases[i].outcome), VERDICT_STALE);
        world_assert_state(&world, cases[i].state);
        world_close(&world);
    }
}

/* Beyond the deadline it is settled, and then the deadline has its say. */
static void test_a_resolution_after_the_deadline_turns_back(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world.definition->deadline_ms = 600000;
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world_start(&world);
    lose(&world);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    world_pass(&world, 700000);
    assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, true, NULL), 0);
    world_assert_state(&world, "COMPENSATING");
    assert_true(world_is_grantable(&world));
    world_close(&world);
}

static void test_what_a_resolution_is_refused_for(void **state)
{
    (void)state;
    struct world world;
    open_place(&world, UNKNOWN_PARKED);
    assert_int_equal(world_resolve(&world, "nobody", OPERATION_COUNT, true, NULL), ERR_NOT_FOUND);
    world_assert_refused(&world, world_resolve(&world, "b", OPERATION_COUNT, true, NULL),
                         "NOTHING_TO_RESOLVE");
    assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, false, "output"), ERR_INVALID);
    assert_int_equal(world.count, 2);
    world_close(&world);

    open_place(&world, UNKNOWN_BACKOFF); /* and its next try is on its way */
    world_pass(&world, 120000);
    (void)world_grant(&world);
    world_assert_refused(&world, world_resolve(&world, "a", OPERATION_COUNT, true, NULL),
                         "LEASE_LIVE");
    world_close(&world);

    open_place(&world, UNKNOWN_TURNED_BACK); /* and its compensation is under way */
    world_pass(&world, 120000);
    int64_t undo = world_grant(&world);
    world_assert_refused(&world, world_resolve(&world, "a", OPERATION_ACTION, false, NULL),
                         "RESOLVE_NOT_ALLOWED");
    world_assert_refused(&world, world_resolve(&world, "a", OPERATION_COUNT, false, NULL),
                         "LEASE_LIVE");
    assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_close(&world);
}

static void test_skip_goes_on_with_the_step_before(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    int64_t b = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, b, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_REJECTED);
    world_assert_refused(&world, world_skip(&world, "a"), "SKIP_NOT_ALLOWED");
    assert_int_equal(world_skip(&world, "nobody"), ERR_NOT_FOUND);
    assert_int_equal(world_skip(&world, "b"), 0);
    const struct journal_entry *entry = saga_entry(world.saga, saga_last_seq(world.saga));
    assert_int_equal(entry->kind, ENTRY_SKIP);
    assert_string_equal(entry->actor, "anna");
    assert_string_equal(entry->error_message, "paid back by hand");
    world_assert_state(&world, "COMPENSATING, doubt"); /* until somebody has looked */
    world_assert_step(&world, 1, "COMPENSATION_SKIPPED");
    (void)world_run(&world, OUTCOME_DONE); /* a */
    world_assert_state(&world, "COMPENSATED, doubt");
    assert_int_equal(world_resolve(&world, "b", OPERATION_COMPENSATION, true, NULL), 0);
    world_assert_state(&world, "COMPENSATED");
    world_assert_step(&world, 1, "COMPENSATION_SKIPPED");
    world_close(&world);
    /* The last one that was left: that is the end. */
    open_place(&world, UNDO_UNKNOWN);
    assert_int_equal(world_skip(&world, NULL), 0);
    world_assert_state(&world, "COMPENSATED, doubt");
    world_close(&world);
}

static void test_p8_abandoned_is_an_end_like_any_other(void **state)
{
    (void)state;
    struct world world;
    open_place(&world, UNKNOWN_PARKED);
    assert_int_equal(world_abandon(&world), 0);
    assert_true(world.transition.ends);
    world_assert_state(&world, "ABANDONED");
    assert_true(saga_row(world.saga)->ended_at_ms != 0);
    assert_int_equal(world_abandon(&world), 0); /* nothing: it is so already */
    assert_int_equal(world.verdict, VERDICT_NOTHING);
    world_reload(&world);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE);
    assert_int_equal(world.late_rows, 1);
    world_assert_state(&world, "ABANDONED, doubt");
    world_close(&world);
    /* Not beside a worker that may still report. */
    world_open(&world, 2);
    world.definition->deadline_ms = 1000;
    world.definition->on_deadline = ON_DEADLINE_PARK;
    world_start(&world);
    int64_t seq = world_grant(&world);
    world_pass(&world, 2000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: DEADLINE_EXCEEDED");
    world_assert_refused(&world, world_abandon(&world), "LEASE_LIVE");
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_abandon(&world), 0);
    world_close(&world);
}

/* The end is final: what is found out after it is recorded, clears the doubt, and moves nothing. */
static void test_after_the_end_what_is_in_doubt_is_settled(void **state)
{
    (void)state;
    static const struct {
        bool done, abandon, happened;
        const char *ended, *step; /* a, afterwards */
    } cases[] = {
        { true, false, true, "SUCCEEDED", "DONE" },
        { true, false, false, "SUCCEEDED", "DONE" },
        { false, false, true, "COMPENSATED", "NOT_RUN" },
        { false, false, false, "COMPENSATED", "NOT_RUN" },
        { false, true, true, "ABANDONED", "DONE" },
        { false, true, false, "ABANDONED", "NOT_RUN" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        print_message("case %zu\n", i);
        world_open(&world, 1);
        world.definition->steps[0].action.retry.max_attempts = 1;
        world_start(&world);
        int64_t first = world_grant(&world);
        assert_int_equal(world_lease_end(&world, first, OUTCOME_RELEASED), VERDICT_ACCEPTED);
        if (cases[i].done)
            (void)world_run(&world, OUTCOME_DONE);
        else if (cases[i].abandon)
            (void)world_run(&world, OUTCOME_RETRY);
        if (cases[i].abandon)
            assert_int_equal(world_abandon(&world), 0);
        else if (!cases[i].done)
            assert_int_equal(world_cancel(&world), 0);
        world_assert_refused(&world, world_resolve(&world, "a", OPERATION_COUNT, true, NULL),
                             "NOTHING_TO_RESOLVE");
        assert_int_equal(world_report(&world, first, OUTCOME_DONE), VERDICT_STALE);
        assert_true(saga_row(world.saga)->doubt);
        /* Nobody heard anything of the compensation: there is nothing to say of it. */
        world_assert_refused(&world, world_resolve(&world, "a", OPERATION_COMPENSATION, true, NULL),
                             "NOTHING_TO_RESOLVE");
        int64_t ended_at_ms = saga_row(world.saga)->ended_at_ms;
        world_pass(&world, 1000);
        assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, cases[i].happened, NULL), 0);
        world_assert_state(&world, cases[i].ended);
        world_assert_step(&world, 0, cases[i].step);
        world_reload(&world);
        assert_int_equal(saga_row(world.saga)->ended_at_ms, ended_at_ms);
        assert_false(world_is_grantable(&world));
        assert_int_equal(world_time(&world), VERDICT_NOTHING);
        world_close(&world);
    }
}

/* Evidence about an attempt says nothing of one that came after it. */
static void test_p4_what_was_found_out_before_another_attempt_settles_nothing(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2);
    world_start(&world);
    int64_t first = world_run(&world, OUTCOME_UNKNOWN);
    int64_t fence = saga_entry(world.saga, first)->fence;
    world_pass(&world, 60000);
    int64_t second = world_run(&world, OUTCOME_UNKNOWN);
    struct resolution resolution = { .step = "a",
                                     .operation = OPERATION_COUNT,
                                     .fence = fence,
                                     .evidence = "not on the statement" };
    struct transition transition;
    enum verdict verdict;
    int rc =
        saga_on_resolve(world.saga, &resolution, world.now_ms, &transition, &verdict, &world.err);
    world_assert_refused(&world, rc, "NEWER_ATTEMPT");
    resolution.fence = saga_entry(world.saga, second)->fence + 1; /* nobody's */
    assert_int_equal(
        saga_on_resolve(world.saga, &resolution, world.now_ms, &transition, &verdict, &world.err),
        ERR_INVALID);
    resolution.fence--;
    assert_int_equal(saga_on_resolve(world.saga, &resolution, world.now_ms, &world.transition,
                                     &verdict, &world.err),
                     0);
    world_commit(&world);
    world_assert_step(&world, 0, "READY");
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p4_what_a_person_found_out_settles_it),
        cmocka_unit_test(test_the_output_of_a_resolution_is_the_steps),
        cmocka_unit_test(test_p4_not_done_is_granted_again_with_a_fresh_budget),
        cmocka_unit_test(test_a_late_report_after_the_resolution),
        cmocka_unit_test(test_a_resolution_after_the_deadline_turns_back),
        cmocka_unit_test(test_what_a_resolution_is_refused_for),
        cmocka_unit_test(test_skip_goes_on_with_the_step_before),
        cmocka_unit_test(test_p8_abandoned_is_an_end_like_any_other),
        cmocka_unit_test(test_after_the_end_what_is_in_doubt_is_settled),
        cmocka_unit_test(test_p4_what_was_found_out_before_another_attempt_settles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
