/* Goal: what is unknown and may not be repeated is asked for, and never guessed: only an answer
 * that counts settles it, and whatever else a probe says leaves it unknown. Method: scripted
 * answers with exact traces, each answer in each place where a probe can be live; after each commit
 * a replay of the tables equals the copy. */
#include "core_world.h"

#include <stdio.h>

enum { SETTLE_MS = 5000 };

/* Steps a, b, ..; a is unguarded, of that class, with a probe of its action. */
static struct operation_rule *open_probed_steps(struct world *world, size_t steps,
                                                enum effect effect)
{
    world_open(world, steps);
    struct step_rule *a = &world->definition->steps[0];
    a->guarded = false;
    a->settle_ms = SETTLE_MS;
    a->action.effect = effect;
    return world_add_probe(world, 0, OPERATION_ACTION);
}

static struct operation_rule *open_probed(struct world *world, enum effect effect)
{
    return open_probed_steps(world, 2, effect);
}

/* Until the next attempt may be granted. */
static void wait_turn(struct world *world)
{
    int64_t at = saga_grantable_at(world->saga, world->now_ms);
    if (at != INT64_MAX && at > world->now_ms)
        world->now_ms = at;
}

static int64_t probe(struct world *world)
{
    wait_turn(world);
    return world_grant_of(world, 0, OPERATION_PROBE);
}

static enum verdict report_output(struct world *world, int64_t seq, const char *output)
{
    struct report report = { .fence = saga_entry(world->saga, seq)->fence,
                             .outcome = OUTCOME_DONE,
                             .output = { (uint8_t *)output, strlen(output) } };
    return world_report_full(world, &report);
}

static void assert_output(const struct world *world, const char *expected)
{
    struct bytes output;
    assert_true(saga_step_output(world->saga, 0, &output));
    assert_int_equal(output.size, strlen(expected));
    assert_memory_equal(output.data, expected, output.size);
}

static void test_p4_a_probe_is_asked_at_once_and_its_done_settles(void **state)
{
    (void)state;
    struct world world;
    (void)open_probed(&world, EFFECT_PROBED);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_assert_state(&world, "RUNNING");
    world_assert_step(&world, 0, "UNKNOWN");
    int64_t seq = world_grant_of(&world, 0, OPERATION_PROBE);
    struct task_view task;
    saga_task_view(world.saga, seq, &task);
    assert_string_equal(task.rule->handler, "order.a.probe");
    assert_int_equal(task.about, OPERATION_ACTION);
    assert_int_equal(task.generation, 0);
    assert_int_equal(task.send_before_ms, 0);
    assert_int_equal(task.probed->seq, 1);
    world_assert_waits(&world, WAIT_REPORT, world.now_ms + DEFAULT_LEASE_MS);
    assert_int_equal(report_output(&world, seq, "waybill 17"), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_DUPLICATE);
    assert_output(&world, "waybill 17");
    world_assert_step(&world, 0, "DONE");
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 UNKNOWN\n"
                               "2 +0 a PROBE 1 -> +0 DONE\n"
                               "3 +0 RESOLVE a DONE about 2\n"
                               "4 +0 b ACTION 1 -> +0 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

/* A request may be on its way still: NOT_DONE counts from a probe that was granted when none is. */
static void test_p4_not_done_counts_only_after_settle_time(void **state)
{
    (void)state;
    for (int fresh_key = 0; fresh_key <= 1; fresh_key++) {
        struct world world;
        (void)open_probed(&world, EFFECT_PROBED);
        world.definition->steps[0].action.fresh_key = fresh_key;
        world_start(&world);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        world_pass(&world, 1000);
        (void)world_run(&world, OUTCOME_NOT_DONE);
        world_assert_state(&world, "RUNNING");
        world_assert_step(&world, 0, "UNKNOWN");
        assert_int_equal(saga_grantable_at(world.saga, world.now_ms), WORLD_START_MS + SETTLE_MS);
        world_pass(&world, SETTLE_MS - 1001);
        assert_false(world_is_grantable(&world));
        world_pass(&world, 1);
        assert_int_equal(saga_key_generation(world.saga, 0, OPERATION_ACTION), 0);
        int64_t seq = world_grant_of(&world, 0, OPERATION_PROBE);
        assert_int_equal(world_report(&world, seq, OUTCOME_NOT_DONE), VERDICT_ACCEPTED);
        world_assert_step(&world, 0, "READY");
        seq = world_grant_of(&world, 0, OPERATION_ACTION);
        struct task_view task;
        saga_task_view(world.saga, seq, &task);
        assert_int_equal(task.generation, fresh_key); /* else the same key again */
        assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
        world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 UNKNOWN\n"
                                   "2 +1000 a PROBE 1 -> +1000 NOT_DONE\n"
                                   "3 +5000 a PROBE 2 -> +5000 NOT_DONE\n"
                                   "4 +5000 RESOLVE a NOT_DONE about 3\n"
                                   "5 +5000 a ACTION 2 -> +5000 DONE\n"
                                   "RUNNING\n");
        world_close(&world);
    }
}

/* Granted too early, answered after: it may have looked before the request arrived. */
static void test_p4_a_probe_granted_before_settle_time_does_not_count_when_it_is_slow(void **state)
{
    (void)state;
    struct world world;
    (void)open_probed(&world, EFFECT_PROBED);
    world_start(&world);
    world_expire(&world, world_grant(&world)); /* settle time runs from here */
    world_pass(&world, SETTLE_MS - 1);
    int64_t seq = world_grant_of(&world, 0, OPERATION_PROBE);
    world_pass(&world, 10000);
    assert_int_equal(world_report(&world, seq, OUTCOME_NOT_DONE), VERDICT_ACCEPTED);
    world_assert_step(&world, 0, "UNKNOWN");
    seq = probe(&world);
    assert_int_equal(world_report(&world, seq, OUTCOME_NOT_DONE), VERDICT_ACCEPTED);
    world_assert_step(&world, 0, "READY");
    world_close(&world);
}

static void end_probe(struct world *world, int64_t seq, enum outcome outcome)
{
    if (outcome == OUTCOME_EXPIRED)
        world_expire(world, seq);
    else if (outcome == OUTCOME_STREAM_LOST || outcome == OUTCOME_RELEASED)
        assert_int_equal(world_lease_end(world, seq, outcome), VERDICT_ACCEPTED);
    else
        assert_int_equal(world_report(world, seq, outcome), VERDICT_ACCEPTED);
}

static void test_p4_whatever_else_a_probe_says_is_still_unknown(void **state)
{
    (void)state;
    static const enum outcome outcomes[] = {
        OUTCOME_STILL_UNKNOWN, OUTCOME_REJECTED,    OUTCOME_UNKNOWN,  OUTCOME_RETRY,
        OUTCOME_ALREADY_DONE,  OUTCOME_STREAM_LOST, OUTCOME_RELEASED, OUTCOME_EXPIRED,
    };
    for (int back = 0; back <= 1; back++) {
        for (size_t i = 0; i < ARRAY_LEN(outcomes); i++) {
            struct world world;
            (void)open_probed(&world, EFFECT_PROBED);
            world_start(&world);
            (void)world_run(&world, OUTCOME_UNKNOWN);
            if (back)
                assert_int_equal(world_cancel(&world), 0);
            world_pass(&world, SETTLE_MS);
            end_probe(&world, world_grant_of(&world, 0, OPERATION_PROBE), outcomes[i]);
            assert_int_equal(world.transition.append_count, 0); /* recorded, nothing follows */
            world_assert_state(&world, back ? "COMPENSATING" : "RUNNING");
            struct step_view view;
            saga_step_view(world.saga, 0, world.now_ms, &view);
            assert_true(view.maybe);
            int64_t again = probe(&world);
            assert_int_equal(saga_entry(world.saga, again)->try_,
                             outcomes[i] == OUTCOME_RELEASED ? 1 : 2);
            assert_int_equal(report_output(&world, again, "x"), VERDICT_ACCEPTED);
            assert_output(&world, "x");
            world_close(&world);
        }
    }
}

/* Only a probe can know that nothing was done. */
static void test_not_done_of_an_attempt_is_unknown(void **state)
{
    (void)state;
    for (int outcome = OUTCOME_NOT_DONE; outcome <= OUTCOME_STILL_UNKNOWN; outcome++) {
        struct world world;
        (void)open_probed(&world, EFFECT_PROBED);
        world_start(&world);
        int64_t seq = world_run(&world, (enum outcome)outcome);
        assert_int_equal(saga_entry(world.saga, seq)->outcome, OUTCOME_UNKNOWN);
        assert_string_equal(saga_entry(world.saga, seq)->error_code, "NOT_A_PROBE");
        (void)world_grant_of(&world, 0, OPERATION_PROBE);
        world_close(&world);
    }
}

static void test_p4_a_spent_probe_follows_on_unknown(void **state)
{
    (void)state;
    static const struct {
        enum on_unknown policy;
        const char *state, *step;
        enum entry_kind kind;
    } cases[] = {
        { ON_UNKNOWN_PARK, "PARKED in RUNNING: OUTCOME_UNKNOWN", "UNKNOWN", ENTRY_PARK },
        { ON_UNKNOWN_COMPENSATE, "COMPENSATING", NULL, ENTRY_COMPENSATE },
        { ON_UNKNOWN_ACCEPT, "RUNNING, doubt", "UNCONFIRMED", ENTRY_ACCEPT },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int by_time = 0; by_time <= 1; by_time++) {
            struct world world;
            struct operation_rule *rule = open_probed(&world, EFFECT_PROBED);
            rule->retry.max_attempts = by_time ? 0 : 2;
            rule->retry.for_ms = 60000;
            world.definition->steps[0].action.on_unknown = cases[i].policy;
            world_start(&world);
            (void)world_run(&world, OUTCOME_UNKNOWN);
            (void)world_run(&world, OUTCOME_STILL_UNKNOWN);
            if (by_time) { /* and no worker came */
                world_assert_waits(&world, WAIT_RETRY, saga_grantable_at(world.saga, world.now_ms));
                assert_int_equal(saga_due_at(world.saga), world.now_ms + 60000);
                world_pass(&world, 59999);
                assert_int_equal(world_time(&world), VERDICT_NOTHING);
                world_pass(&world, 1);
                assert_false(world_is_grantable(&world));
                assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
            } else {
                assert_int_equal(world_report(&world, probe(&world), OUTCOME_STILL_UNKNOWN),
                                 VERDICT_ACCEPTED);
            }
            world_assert_state(&world, cases[i].state);
            if (cases[i].step)
                world_assert_step(&world, 0, cases[i].step);
            const struct journal_entry *last = saga_entry(world.saga, saga_last_seq(world.saga));
            assert_int_equal(last->kind, cases[i].kind);
            assert_int_equal(last->operation, OPERATION_ACTION);
            assert_non_null(last->error_code);
            world_close(&world);
        }
    }
}

/* Case U2, turned back: what is done with the step depends on what the probe finds. */
static void test_p5_a_maybe_action_is_probed_before_it_is_compensated(void **state)
{
    (void)state;
    struct world world;
    (void)open_probed(&world, EFFECT_PROBED);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(report_output(&world, probe(&world), "waybill 17"), VERDICT_ACCEPTED);
    struct task_view task;
    saga_task_view(world.saga, world_grant_of(&world, 0, OPERATION_COMPENSATION), &task);
    assert_true(task.action_done);
    assert_memory_equal(task.action_output.data, "waybill 17", 10);
    assert_int_equal(world_report(&world, 5, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 UNKNOWN\n"
                               "2 +0 COMPENSATE - CANCELLED\n"
                               "3 +0 a PROBE 1 -> +0 DONE\n"
                               "4 +0 RESOLVE a DONE about 3\n"
                               "5 +0 a COMPENSATION 1 -> +0 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);

    (void)open_probed(&world, EFFECT_PROBED);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    assert_int_equal(world_cancel(&world), 0);
    world_pass(&world, SETTLE_MS);
    (void)world_run(&world, OUTCOME_NOT_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 UNKNOWN\n"
                               "2 +0 COMPENSATE - CANCELLED\n"
                               "3 +5000 a PROBE 1 -> +5000 NOT_DONE\n"
                               "4 +5000 RESOLVE a NOT_DONE about 3\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_p5_a_spent_probe_leaves_it_maybe(void **state)
{
    (void)state;
    struct world world;
    open_probed(&world, EFFECT_PROBED)->retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    assert_int_equal(world_cancel(&world), 0);
    (void)world_run(&world, OUTCOME_STILL_UNKNOWN);
    world_assert_state(&world, "COMPENSATING");
    assert_false(world_is_grantable(&world)); /* not before settle time */
    wait_turn(&world);
    int64_t undo = world_grant_of(&world, 0, OPERATION_COMPENSATION);
    struct task_view task;
    saga_task_view(world.saga, undo, &task);
    assert_false(task.action_done);
    assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 UNKNOWN\n"
                               "2 +0 COMPENSATE - CANCELLED\n"
                               "3 +0 a PROBE 1 -> +0 STILL_UNKNOWN\n"
                               "4 +0 MAYBE a\n"
                               "5 +5000 a COMPENSATION 1 -> +5000 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

static void test_cancel_beside_a_live_probe(void **state)
{
    (void)state;
    for (int outcome = OUTCOME_DONE; outcome < OUTCOME_COUNT; outcome++) {
        struct world world;
        (void)open_probed(&world, EFFECT_PROBED);
        world_start(&world);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        world_pass(&world, SETTLE_MS);
        int64_t seq = probe(&world);
        assert_int_equal(world_cancel(&world), 0);
        assert_false(world_is_grantable(&world)); /* nothing beside a live lease */
        end_probe(&world, seq, (enum outcome)outcome);
        world_assert_state(&world, outcome == OUTCOME_NOT_DONE ? "COMPENSATED" : "COMPENSATING");
        wait_turn(&world);
        if (outcome != OUTCOME_NOT_DONE)
            (void)world_grant_of(
                &world, 0, outcome == OUTCOME_DONE ? OPERATION_COMPENSATION : OPERATION_PROBE);
        world_close(&world);
    }
}

/* Steps a and b, turned back; the compensation of a is PROBED and its first attempt unknown. */
static void open_unknown_undo(struct world *world, uint32_t probes_max)
{
    world_open(world, 2);
    struct step_rule *a = &world->definition->steps[0];
    a->settle_ms = SETTLE_MS;
    a->compensation.effect = EFFECT_PROBED;
    a->compensation.fresh_key = true;
    world_add_probe(world, 0, OPERATION_COMPENSATION)->retry.max_attempts = probes_max;
    world_start(world);
    assert_int_equal(report_output(world, world_grant(world), "waybill 17"), VERDICT_ACCEPTED);
    (void)world_run(world, OUTCOME_REJECTED);
    (void)world_run(world, OUTCOME_UNKNOWN);
    world_assert_state(world, "COMPENSATING");
    world_assert_step(world, 0, "COMPENSATION_UNKNOWN");
}

static void test_a_compensation_is_probed_by_the_same_rules(void **state)
{
    (void)state;
    struct world world;
    open_unknown_undo(&world, 0);
    int64_t seq = probe(&world);
    struct task_view task;
    saga_task_view(world.saga, seq, &task);
    assert_string_equal(task.rule->handler, "order.a.compensate.probe");
    assert_int_equal(task.about, OPERATION_COMPENSATION);
    assert_int_equal(task.probed->seq, 4);
    assert_true(task.action_done);
    assert_int_equal(world_report(&world, seq, OUTCOME_NOT_DONE), VERDICT_ACCEPTED); /* too early */
    seq = probe(&world);
    assert_int_equal(world_report(&world, seq, OUTCOME_NOT_DONE), VERDICT_ACCEPTED);
    seq = world_grant_of(&world, 0, OPERATION_COMPENSATION);
    saga_task_view(world.saga, seq, &task);
    assert_int_equal(task.generation, 1);
    assert_int_equal(world_report(&world, seq, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
    assert_int_equal(report_output(&world, probe(&world), "refund 3"), VERDICT_ACCEPTED);
    assert_output(&world, "waybill 17"); /* the action's stays */
    world_assert_step(&world, 0, "COMPENSATED");
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +0 b ACTION 1 -> +0 REJECTED\n"
                               "3 +0 COMPENSATE b REFUSED\n"
                               "4 +0 a COMPENSATION 1 -> +0 UNKNOWN\n"
                               "5 +0 a PROBE 1 -> +0 NOT_DONE\n"
                               "6 +5000 a PROBE 2 -> +5000 NOT_DONE\n"
                               "7 +5000 RESOLVE a NOT_DONE about 6\n"
                               "8 +5000 a COMPENSATION 2 -> +5000 UNKNOWN\n"
                               "9 +5000 a PROBE 3 -> +5000 DONE\n"
                               "10 +5000 RESOLVE a DONE about 9\n"
                               "COMPENSATED\n");
    world_close(&world);
    /* Its probe finds nothing: a person must. */
    open_unknown_undo(&world, 1);
    (void)world_run(&world, OUTCOME_STILL_UNKNOWN);
    world_assert_state(&world, "PARKED in COMPENSATING: OUTCOME_UNKNOWN");
    assert_int_equal(world_retry(&world, "a"), 0);
    assert_int_equal(report_output(&world, probe(&world), "refund 3"), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static const struct {
    enum outcome late;
    enum outcome answer; /* of the probe, afterwards */
    const char *state, *step;
} beside[] = {
    { OUTCOME_DONE, OUTCOME_NOT_DONE, "RUNNING", "DONE" },
    { OUTCOME_DONE, OUTCOME_DONE, "RUNNING", "DONE" },
    { OUTCOME_RETRY, OUTCOME_NOT_DONE, "RUNNING", "READY" },
    { OUTCOME_RETRY, OUTCOME_STILL_UNKNOWN, "RUNNING", "READY" },
    { OUTCOME_REJECTED, OUTCOME_NOT_DONE, "COMPENSATED", "REJECTED" },
    { OUTCOME_UNKNOWN, OUTCOME_DONE, "RUNNING", "DONE" },
    { OUTCOME_UNKNOWN, OUTCOME_NOT_DONE, "RUNNING", "UNKNOWN" }, /* settle time began anew */
};

static void test_a_late_report_of_the_action_beside_a_live_probe(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(beside); i++) {
        struct world world;
        print_message("case %zu\n", i);
        (void)open_probed(&world, EFFECT_PROBED);
        world_start(&world);
        int64_t lost = world_grant(&world);
        world_expire(&world, lost);
        world_pass(&world, SETTLE_MS);
        int64_t seq = probe(&world);
        enum verdict verdict = world_report(&world, lost, beside[i].late);
        assert_int_equal(verdict,
                         beside[i].late == OUTCOME_UNKNOWN ? VERDICT_STALE : VERDICT_ACCEPTED);
        /* The step after it need not wait for an answer that nobody needs any more. */
        assert_int_equal(world_is_grantable(&world), outcome_is_success(beside[i].late));
        assert_int_equal(world_report(&world, seq, beside[i].answer), VERDICT_ACCEPTED);
        world_assert_state(&world, beside[i].state);
        world_assert_step(&world, 0, beside[i].step);
        world_close(&world);
    }
}

/* Nothing is left to take back, but the end waits for the probe. */
static void test_the_end_waits_for_a_live_probe(void **state)
{
    (void)state;
    struct world world;
    (void)open_probed(&world, EFFECT_PROBED);
    world_start(&world);
    int64_t lost = world_grant(&world);
    world_expire(&world, lost);
    int64_t seq = probe(&world);
    assert_int_equal(world_report(&world, lost, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING");
    assert_int_equal(world_report(&world, seq, OUTCOME_STILL_UNKNOWN), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

/* Nothing is left to turn back or to park: the saga ends with the probe's lease. */
static void test_no_deadline_once_all_is_done_but_a_live_probe(void **state)
{
    (void)state;
    for (int on_deadline = 0; on_deadline < ON_DEADLINE_COUNT; on_deadline++) {
        struct world world;
        (void)open_probed_steps(&world, 1, EFFECT_PROBED);
        world.definition->deadline_ms = 10 * 1000;
        world.definition->on_deadline = (enum on_deadline)on_deadline;
        world_start(&world);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        int64_t seq = probe(&world);
        assert_int_equal(world_resolve(&world, "a", OPERATION_ACTION, true, NULL), 0);
        world.now_ms = saga_row(world.saga)->deadline_at_ms + 1;
        assert_int_equal(world_time(&world), VERDICT_NOTHING);
        assert_int_equal(saga_due_at(world.saga), saga_entry(world.saga, seq)->lease_until_ms + 1);
        world_expire(&world, seq);
        world_assert_state(&world, "SUCCEEDED");
        world_close(&world);
    }
}

static void test_a_person_resolves_beside_a_live_probe(void **state)
{
    (void)state;
    static const struct {
        bool happened;
        enum outcome answer;
        const char *step;
    } cases[] = {
        { true, OUTCOME_DONE, "DONE" },       { true, OUTCOME_NOT_DONE, "DONE" },
        { false, OUTCOME_NOT_DONE, "READY" }, { false, OUTCOME_STILL_UNKNOWN, "READY" },
        { false, OUTCOME_DONE, "DONE" }, /* it is there after all: not repeated */
    };
    for (int back = 0; back <= 1; back++) {
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            struct world world;
            (void)open_probed(&world, EFFECT_PROBED);
            world_start(&world);
            (void)world_run(&world, OUTCOME_UNKNOWN);
            int64_t seq = probe(&world);
            if (back)
                assert_int_equal(world_cancel(&world), 0);
            assert_int_equal(world_resolve(&world, "a", OPERATION_ACTION, cases[i].happened, NULL),
                             0);
            assert_int_equal(world_is_grantable(&world), cases[i].happened && !back);
            assert_int_equal(world_report(&world, seq, cases[i].answer), VERDICT_ACCEPTED);
            bool done = strcmp(cases[i].step, "DONE") == 0;
            wait_turn(&world);
            if (!back)
                world_assert_step(&world, 0, cases[i].step);
            if (!back)
                (void)world_grant_of(&world, done, OPERATION_ACTION);
            else if (done)
                (void)world_grant_of(&world, 0, OPERATION_COMPENSATION);
            else
                world_assert_state(&world, "COMPENSATED");
            world_close(&world);
        }
    }
}

static void test_a_late_answer_of_a_probe_counts_while_nobody_asks_anew(void **state)
{
    (void)state;
    struct world world;
    (void)open_probed(&world, EFFECT_PROBED);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    int64_t first = probe(&world); /* before settle time was over */
    world_expire(&world, first);
    assert_int_equal(world_report(&world, first, OUTCOME_NOT_DONE), VERDICT_STALE);
    assert_true(transition_is_empty(&world.transition)); /* as if it had come in time */
    int64_t second = probe(&world);
    world_expire(&world, second);
    int64_t third = probe(&world);
    assert_int_equal(world_report(&world, second, OUTCOME_DONE), VERDICT_STALE); /* asked anew */
    assert_int_equal(world_report(&world, third, OUTCOME_STILL_UNKNOWN), VERDICT_ACCEPTED);
    assert_int_equal(report_output(&world, second, "waybill 17"), VERDICT_ACCEPTED);
    assert_output(&world, "waybill 17");
    assert_int_equal(world_report(&world, second, OUTCOME_DONE), VERDICT_DUPLICATE);
    assert_int_equal(saga_entry(world.saga, 5)->kind, ENTRY_LATE_REPORT);
    assert_int_equal(saga_entry(world.saga, 5)->about, second);
    assert_int_equal(saga_entry(world.saga, 6)->kind, ENTRY_RESOLVE);
    assert_int_equal(saga_entry(world.saga, 6)->about, 5);
    world_assert_step(&world, 0, "DONE");
    world_close(&world);
}

static void test_a_late_answer_of_a_probe_takes_a_parked_saga_on(void **state)
{
    (void)state;
    for (int done = 0; done <= 1; done++) {
        struct world world;
        open_probed(&world, EFFECT_PROBED)->retry.max_attempts = 1;
        world_start(&world);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        world_pass(&world, SETTLE_MS);
        int64_t seq = probe(&world);
        world_expire(&world, seq);
        world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
        assert_int_equal(world_report(&world, seq, done ? OUTCOME_DONE : OUTCOME_NOT_DONE),
                         VERDICT_ACCEPTED);
        world_assert_state(&world, "RUNNING");
        world_assert_step(&world, 0, done ? "DONE" : "READY");
        world_close(&world);
    }
}

static void test_retry_of_a_parked_unknown_asks_the_probe_again(void **state)
{
    (void)state;
    struct world world;
    open_probed(&world, EFFECT_PROBED)->retry.max_attempts = 2;
    world.definition->steps[0].action.retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    for (int round = 0; round < 2; round++) { /* each with a fresh budget of two */
        assert_int_equal(world_report(&world, probe(&world), OUTCOME_STILL_UNKNOWN),
                         VERDICT_ACCEPTED);
        world_assert_state(&world, "RUNNING");
        assert_int_equal(world_report(&world, probe(&world), OUTCOME_STILL_UNKNOWN),
                         VERDICT_ACCEPTED);
        world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
        assert_int_equal(world_retry(&world, "a"), 0);
        world_assert_state(&world, "RUNNING");
    }
    world_pass(&world, SETTLE_MS);
    (void)world_run(&world, OUTCOME_NOT_DONE);
    (void)world_grant_of(&world, 0,
                         OPERATION_ACTION); /* the person's budget is the action's, too */
    assert_int_equal(saga_entry(world.saga, 5)->kind, ENTRY_RETRY);
    assert_int_equal(saga_entry(world.saga, 5)->operation, OPERATION_PROBE);
    world_close(&world);
}

/* In its back-off: at once. While it only waits for a worker there is nothing to do. */
static void test_retry_ends_the_backoff_of_a_probe(void **state)
{
    (void)state;
    struct world world;
    struct operation_rule *rule = open_probed(&world, EFFECT_PROBED);
    rule->retry.initial_ms = rule->retry.cap_ms = 3600 * 1000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    (void)world_run(&world, OUTCOME_STILL_UNKNOWN);
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_retry(&world, NULL), 0);
    (void)world_grant_of(&world, 0, OPERATION_PROBE);
    world_assert_refused(&world, world_retry(&world, NULL), "LEASE_LIVE");
    world_close(&world);
}

static void test_worker_killer_of_a_probe(void **state)
{
    (void)state;
    for (int back = 0; back <= 1; back++) {
        struct world world;
        (void)open_probed(&world, EFFECT_PROBED);
        world_start(&world);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        if (back)
            assert_int_equal(world_cancel(&world), 0);
        for (int i = 0; i < DEFAULT_LOST_LEASES_MAX; i++)
            end_probe(&world, probe(&world), i == 1 ? OUTCOME_STREAM_LOST : OUTCOME_EXPIRED);
        world_assert_state(&world, back ? "PARKED in COMPENSATING: WORKER_KILLER"
                                        : "PARKED in RUNNING: WORKER_KILLER");
        assert_non_null(strstr(saga_row(world.saga)->park_message, "\"order.a.probe\""));
        assert_int_equal(world_retry(&world, NULL), 0);
        world_expire(&world, probe(&world)); /* counted afresh */
        assert_int_equal(report_output(&world, probe(&world), "x"), VERDICT_ACCEPTED);
        world_assert_state(&world, back ? "COMPENSATING" : "RUNNING");
        world_close(&world);
    }
}

/* Each loss is probed, and none of them happened: still its workers die of it. */
static void test_worker_killer_of_what_is_probed_in_between(void **state)
{
    (void)state;
    struct world world;
    (void)open_probed(&world, EFFECT_PROBED);
    world.definition->steps[0].action.lost_leases_max = 2;
    world_start(&world);
    world_expire(&world, world_grant_of(&world, 0, OPERATION_ACTION));
    world_pass(&world, SETTLE_MS);
    assert_int_equal(world_report(&world, probe(&world), OUTCOME_NOT_DONE), VERDICT_ACCEPTED);
    world_expire(&world, world_grant_of(&world, 0, OPERATION_ACTION));
    world_assert_state(&world, "PARKED in RUNNING: WORKER_KILLER");
    world_assert_step(&world, 0, "UNKNOWN");
    assert_int_equal(world_retry(&world, NULL), 0); /* asks first */
    world_pass(&world, SETTLE_MS);
    assert_int_equal(world_report(&world, probe(&world), OUTCOME_NOT_DONE), VERDICT_ACCEPTED);
    world_expire(&world, world_grant_of(&world, 0, OPERATION_ACTION)); /* counted afresh */
    world_assert_state(&world, "RUNNING");
    world_close(&world);
}

/* IDEMPOTENT is repeated while it may be; then the probe decides. What it finds goes on within the
 * budget, which is spent. */
static void test_the_probe_of_an_idempotent_step_is_asked_when_its_budget_is_spent(void **state)
{
    (void)state;
    static const struct {
        enum outcome answer;
        const char *state, *step;
    } cases[] = {
        { OUTCOME_DONE, "RUNNING", "DONE" },
        { OUTCOME_NOT_DONE, "PARKED in RUNNING: RETRIES_EXHAUSTED", "EXHAUSTED" },
        { OUTCOME_STILL_UNKNOWN, "PARKED in RUNNING: OUTCOME_UNKNOWN", "UNKNOWN" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        open_probed(&world, EFFECT_IDEMPOTENT)->retry.max_attempts = 1;
        world.definition->steps[0].action.retry.max_attempts = 2;
        world_start(&world);
        (void)world_run(&world, OUTCOME_UNKNOWN);
        wait_turn(&world);
        assert_int_equal(
            world_report(&world, world_grant_of(&world, 0, OPERATION_ACTION), OUTCOME_UNKNOWN),
            VERDICT_ACCEPTED);
        assert_int_equal(saga_entry(world.saga, 3)->kind, ENTRY_PROBE);
        world_assert_state(&world, "RUNNING");
        world_pass(&world, SETTLE_MS);
        assert_int_equal(world_report(&world, probe(&world), cases[i].answer), VERDICT_ACCEPTED);
        (void)world_time(&world);
        world_assert_state(&world, cases[i].state);
        world_assert_step(&world, 0, cases[i].step);
        if (cases[i].answer != OUTCOME_DONE) { /* by its class a repeat is safe */
            assert_int_equal(world_retry(&world, NULL), 0);
            (void)world_grant_of(&world, 0, OPERATION_ACTION);
        }
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p4_a_probe_is_asked_at_once_and_its_done_settles),
        cmocka_unit_test(test_p4_not_done_counts_only_after_settle_time),
        cmocka_unit_test(test_p4_a_probe_granted_before_settle_time_does_not_count_when_it_is_slow),
        cmocka_unit_test(test_p4_whatever_else_a_probe_says_is_still_unknown),
        cmocka_unit_test(test_not_done_of_an_attempt_is_unknown),
        cmocka_unit_test(test_p4_a_spent_probe_follows_on_unknown),
        cmocka_unit_test(test_p5_a_maybe_action_is_probed_before_it_is_compensated),
        cmocka_unit_test(test_p5_a_spent_probe_leaves_it_maybe),
        cmocka_unit_test(test_cancel_beside_a_live_probe),
        cmocka_unit_test(test_a_compensation_is_probed_by_the_same_rules),
        cmocka_unit_test(test_a_late_report_of_the_action_beside_a_live_probe),
        cmocka_unit_test(test_the_end_waits_for_a_live_probe),
        cmocka_unit_test(test_a_person_resolves_beside_a_live_probe),
        cmocka_unit_test(test_no_deadline_once_all_is_done_but_a_live_probe),
        cmocka_unit_test(test_a_late_answer_of_a_probe_counts_while_nobody_asks_anew),
        cmocka_unit_test(test_a_late_answer_of_a_probe_takes_a_parked_saga_on),
        cmocka_unit_test(test_retry_of_a_parked_unknown_asks_the_probe_again),
        cmocka_unit_test(test_retry_ends_the_backoff_of_a_probe),
        cmocka_unit_test(test_worker_killer_of_a_probe),
        cmocka_unit_test(test_worker_killer_of_what_is_probed_in_between),
        cmocka_unit_test(test_the_probe_of_an_idempotent_step_is_asked_when_its_budget_is_spent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
