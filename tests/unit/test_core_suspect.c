/* Goal: what somebody else may have begun is never guessed about: each step of a saga that took
 * over is maybe, until it is settled in its turn. Method: every class, policy, probe and first
 * answer played through and compared with what the design says of an unknown outcome; then each
 * thing that a saga may meet on its way (window, delay, pivot, signal, cancel, a person), with
 * exact traces. */
#include "core/limits.h"
#include "core_world.h"

#include <stdio.h>

enum { SINCE_MS = WORLD_START_MS - 10000, SETTLE_MS = 5000, A = 0, B, C, D };

static void open_suspect(struct world *world, size_t steps)
{
    world_open(world, steps);
    world->suspect_since_ms = SINCE_MS;
}

/* --- the sweep --- */

enum first {
    FIRST_DONE,
    FIRST_FOREIGN,
    FIRST_REJECTED,
    FIRST_RETRY,
    FIRST_UNKNOWN,
    FIRST_NOT_DONE,
    FIRST_STILL_UNKNOWN,
    FIRST_COUNT
};

struct situation {
    enum effect effect;
    enum on_unknown on_unknown;
    bool probe, guarded;
    enum first first;
};

static void open_situation(struct world *world, const struct situation *s)
{
    open_suspect(world, 2);
    struct step_rule *a = &world->definition->steps[A];
    a->guarded = s->guarded;
    a->settle_ms = SETTLE_MS;
    a->action.effect = s->effect;
    a->action.on_unknown = s->on_unknown;
    if (s->probe)
        world_add_probe(world, A, OPERATION_ACTION)->retry.max_attempts = 1;
    world_start(world);
}

/* Both are taken back, the last one first, and a as one that may have happened. */
static void assert_taken_back(struct world *world, const struct situation *s)
{
    world_assert_state(world, "COMPENSATING");
    int64_t seq = world_grant_of(world, B, OPERATION_COMPENSATION);
    assert_false(world_is_grantable(world)); /* a comes after b has gone */
    assert_int_equal(world_report(world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    bool waits = !s->guarded && world->now_ms < WORLD_START_MS + SETTLE_MS;
    assert_int_equal(world_is_grantable(world), !waits);
    if (waits)
        world->now_ms = saga_grantable_at(world->saga, world->now_ms);
    assert_true(s->guarded || world->now_ms >= WORLD_START_MS + SETTLE_MS);
    seq = world_grant_of(world, A, OPERATION_COMPENSATION);
    struct task_view task;
    saga_task_view(world->saga, seq, &task);
    assert_false(task.action_done);
    assert_int_equal(world_report(world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(world, "COMPENSATED");
}

/* Neither a repeat nor a probe settles it. */
static void assert_follows_policy(struct world *world, const struct situation *s)
{
    switch (s->on_unknown) {
    case ON_UNKNOWN_COMPENSATE:
        assert_taken_back(world, s);
        return;
    case ON_UNKNOWN_ACCEPT:
        world_assert_state(world, "RUNNING, doubt");
        world_assert_step(world, A, "UNCONFIRMED");
        (void)world_grant_of(world, B, OPERATION_ACTION);
        return;
    case ON_UNKNOWN_PARK:
    case ON_UNKNOWN_COUNT:
        break;
    }
    world_assert_state(world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    world_assert_step(world, A, "UNKNOWN");
    assert_int_equal(world_resolve(world, "a", OPERATION_COUNT, true, NULL), 0);
    (void)world_grant_of(world, B, OPERATION_ACTION);
}

/* IDEMPOTENT: granted as ever, with the key of that first attempt. */
static void play_action(struct world *world, const struct situation *s)
{
    static const enum outcome outcomes[] = { [FIRST_DONE] = OUTCOME_DONE,
                                             [FIRST_FOREIGN] = OUTCOME_ALREADY_DONE,
                                             [FIRST_REJECTED] = OUTCOME_REJECTED,
                                             [FIRST_RETRY] = OUTCOME_RETRY,
                                             [FIRST_UNKNOWN] = OUTCOME_UNKNOWN };
    int64_t seq = world_grant_of(world, A, OPERATION_ACTION);
    assert_int_equal(saga_entry(world->saga, seq)->try_, 1);
    assert_int_equal(world_report(world, seq, outcomes[s->first]), VERDICT_ACCEPTED);
    switch (s->first) {
    case FIRST_DONE:
    case FIRST_FOREIGN: /* the attempt before it can have made it: it is ours */
        (void)world_grant_of(world, B, OPERATION_ACTION);
        return;
    case FIRST_REJECTED: /* this attempt had no effect; the one before may have had one */
        assert_taken_back(world, s);
        return;
    default:
        world_assert_state(world, "RUNNING");
        world->now_ms = saga_grantable_at(world->saga, world->now_ms);
        (void)world_grant_of(world, A, OPERATION_ACTION);
        return;
    }
}

static void play_probe(struct world *world, const struct situation *s)
{
    static const enum outcome outcomes[] = { [FIRST_DONE] = OUTCOME_DONE,
                                             [FIRST_NOT_DONE] = OUTCOME_NOT_DONE,
                                             [FIRST_STILL_UNKNOWN] = OUTCOME_STILL_UNKNOWN };
    if (s->first == FIRST_NOT_DONE)
        world_pass(world, SETTLE_MS);
    int64_t seq = world_grant_of(world, A, OPERATION_PROBE);
    struct task_view task;
    saga_task_view(world->saga, seq, &task);
    assert_int_equal(task.probed->kind, ENTRY_SUSPECT);
    assert_int_equal(world_report(world, seq, outcomes[s->first]), VERDICT_ACCEPTED);
    if (s->first == FIRST_DONE)
        (void)world_grant_of(world, B, OPERATION_ACTION);
    else if (s->first == FIRST_NOT_DONE)
        assert_int_equal(saga_entry(world->saga, world_grant_of(world, A, OPERATION_ACTION))->try_,
                         1);
    else
        assert_follows_policy(world, s);
}

static void play(const struct situation *s)
{
    struct world world;
    open_situation(&world, s);
    struct step_view view;
    saga_step_view(world.saga, A, world.now_ms, &view);
    assert_true(view.maybe && view.suspect);
    assert_int_equal(view.tries, 0);
    assert_null(view.last);
    bool asks = s->first == FIRST_NOT_DONE || s->first == FIRST_STILL_UNKNOWN;
    if (s->effect == EFFECT_IDEMPOTENT) {
        play_action(&world, s);
    } else {
        if (s->effect == EFFECT_AT_MOST_ONCE) {
            assert_false(world_is_grantable(&world));
            assert_int_equal(saga_due_at(world.saga), 0);
            assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        }
        if (s->probe)
            play_probe(&world, s);
        else
            assert_follows_policy(&world, s);
    }
    assert_true(!asks || s->effect != EFFECT_IDEMPOTENT);
    world_close(&world);
}

/* May this be what is answered first? */
static bool is_possible(const struct situation *s)
{
    bool asks = s->first == FIRST_NOT_DONE || s->first == FIRST_STILL_UNKNOWN;
    if (s->effect == EFFECT_IDEMPOTENT)
        return !asks;
    if (s->effect == EFFECT_PROBED && !s->probe)
        return false; /* refused at registration */
    return s->first == FIRST_DONE || (s->probe && asks);
}

static void test_p4_each_class_settles_what_may_have_run_before(void **state)
{
    (void)state;
    int played = 0;
    for (int effect = 0; effect < EFFECT_COUNT; effect++)
        for (int policy = 0; policy < ON_UNKNOWN_COUNT; policy++)
            for (int bits = 0; bits < 4; bits++)
                for (int first = 0; first < FIRST_COUNT; first++) {
                    struct situation s = { (enum effect)effect, (enum on_unknown)policy, bits & 1,
                                           bits & 2, (enum first)first };
                    if (!is_possible(&s))
                        continue;
                    print_message("effect %d on_unknown %d probe %d guarded %d first %d\n", effect,
                                  policy, s.probe, s.guarded, first);
                    play(&s);
                    played++;
                }
    assert_int_equal(played, 3 * (4 * 5 + 2 * 3 + 2 * 3 + 2 * 1));
}

/* --- the way of a saga --- */

static void test_a_saga_that_took_over_goes_to_its_end(void **state)
{
    (void)state;
    struct world world;
    open_suspect(&world, 2);
    world_start(&world);
    const struct journal_entry *entry = saga_entry(world.saga, 1);
    assert_int_equal(entry->leased_at_ms, SINCE_MS);
    assert_string_equal(entry->actor, "kafka/orders");
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_ALREADY_DONE);
    world_assert_trace(&world, "1 +0 SUSPECT -\n"
                               "2 +0 a ACTION 1 -> +0 DONE\n"
                               "3 +0 b ACTION 1 -> +0 ALREADY_DONE\n"
                               "SUCCEEDED\n");
    struct transition transition;
    struct err err;
    assert_int_equal(saga_suspect(world.saga, "x", SINCE_MS, world.now_ms, &transition, &err),
                     ERR_INTERNAL);
    world_close(&world);
}

/* Whatever the orchestrator's clock says, and the record's. */
static void test_it_began_no_later_than_the_start(void **state)
{
    (void)state;
    for (int64_t skew = -500; skew <= 500; skew += 500) {
        struct world world;
        open_suspect(&world, 1);
        world.skew_ms = skew;
        world.suspect_since_ms = WORLD_START_MS + 60000;
        world_start(&world);
        int64_t estimate = WORLD_START_MS + skew;
        assert_int_equal(saga_entry(world.saga, 1)->leased_at_ms,
                         estimate < WORLD_START_MS ? estimate : WORLD_START_MS);
        world_close(&world);
    }
}

static void test_p4_what_is_not_due_yet_does_not_park(void **state)
{
    (void)state;
    struct world world;
    open_suspect(&world, 3);
    world.definition->steps[B].action.effect = EFFECT_AT_MOST_ONCE;
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_assert_step(&world, B, "PENDING");
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "RUNNING");
    assert_false(world_is_grantable(&world));
    world_pass(&world, 1000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    assert_string_equal(saga_row(world.saga)->park_code, "MAY_HAVE_RUN");
    struct step_view view;
    saga_step_view(world.saga, B, world.now_ms, &view);
    assert_int_equal(view.state, STEP_UNKNOWN);
    assert_int_equal(view.since_ms, WORLD_START_MS);
    struct unknown_view unknown;
    assert_true(saga_unknown_view(world.saga, B, &unknown));
    assert_int_equal(unknown.attempts, 1);
    assert_int_equal(unknown.last->kind, ENTRY_SUSPECT);
    world_assert_refused(&world, world_retry(&world, NULL), "OUTCOME_UNKNOWN");
    assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, false, NULL), 0);
    assert_int_equal(saga_entry(world.saga, world_run(&world, OUTCOME_DONE))->try_, 1);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 SUSPECT -\n"
                               "2 +0 a ACTION 1 -> +0 DONE\n"
                               "3 +1000 PARK b OUTCOME_UNKNOWN\n"
                               "4 +1000 RESOLVE b NOT_DONE\n"
                               "5 +1000 RESUME b\n"
                               "6 +1000 b ACTION 1 -> +1000 DONE\n"
                               "7 +1000 c ACTION 1 -> +1000 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

/* A person knows of the last step before the first was looked into. */
static void test_what_is_known_out_of_turn_brings_nothing_forward(void **state)
{
    (void)state;
    struct world world;
    open_suspect(&world, 4);
    world_start(&world);
    assert_int_equal(world_resolve(&world, "c", OPERATION_COUNT, true, "waybill 17"), 0);
    world_assert_output(&world, C, "waybill 17");
    (void)world_grant_of(&world, A, OPERATION_ACTION);
    assert_false(world_is_grantable(&world)); /* d comes after c, and after a and b, too */
    assert_int_equal(world_report(&world, 3, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world_run(&world, OUTCOME_DONE), 4);
    (void)world_grant_of(&world, D, OPERATION_ACTION);
    world_close(&world);
}

static void test_p5_turned_back_all_of_it_is_taken_back(void **state)
{
    (void)state;
    for (int step = A; step <= C; step++) {
        struct world world;
        open_suspect(&world, 3);
        world_start(&world);
        for (int i = A; i < step; i++)
            (void)world_run(&world, OUTCOME_DONE);
        (void)world_run(&world, OUTCOME_REJECTED);
        for (int i = C; i >= A; i--) {
            int64_t seq = world_grant_of(&world, (size_t)i, OPERATION_COMPENSATION);
            struct task_view task;
            saga_task_view(world.saga, seq, &task);
            assert_int_equal(task.action_done, i < step);
            assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
        }
        world_assert_state(&world, "COMPENSATED");
        world_close(&world);
    }
}

static void test_p5_a_person_or_a_probe_says_what_need_not_be_taken_back(void **state)
{
    (void)state;
    struct world world;
    open_suspect(&world, 3);
    world.definition->steps[B].action.effect = EFFECT_PROBED;
    world_add_probe(&world, B, OPERATION_ACTION);
    world_start(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_resolve(&world, "c", OPERATION_COUNT, false, NULL), 0);
    assert_int_equal(
        world_report(&world, world_grant_of(&world, B, OPERATION_PROBE), OUTCOME_NOT_DONE),
        VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 SUSPECT -\n"
                               "2 +0 COMPENSATE - CANCELLED\n"
                               "3 +0 RESOLVE c NOT_DONE\n"
                               "4 +0 b PROBE 1 -> +0 NOT_DONE\n"
                               "5 +0 RESOLVE b NOT_DONE about 4\n"
                               "6 +0 a COMPENSATION 1 -> +0 DONE\n"
                               "COMPENSATED\n");
    world_close(&world);
}

/* --- times --- */

static void test_p4_the_window_counts_from_the_first_day(void **state)
{
    (void)state;
    enum { WINDOW_MS = 60000 };
    for (int64_t ago = WINDOW_MS - 2000; ago <= WINDOW_MS + 1000; ago += 1000) {
        struct world world;
        open_suspect(&world, 1);
        world.suspect_since_ms = WORLD_START_MS - ago;
        world.definition->steps[A].action.window_ms = WINDOW_MS;
        world_start(&world);
        int64_t left = WINDOW_MS - ago;
        assert_int_equal(world_is_grantable(&world), left > ATTEMPT_LEAST_MS);
        if (left > ATTEMPT_LEAST_MS) {
            int64_t seq = world_grant(&world);
            assert_int_equal(saga_entry(world.saga, seq)->attempt_until_ms, WORLD_START_MS + left);
            assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
            world_assert_state(&world, "SUCCEEDED");
        } else {
            assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
            world_assert_state(&world, "PARKED in RUNNING: IDEMPOTENCY_WINDOW_OVER");
        }
        world_close(&world);
    }
}

static void test_nobody_took_it_and_it_may_have_run(void **state)
{
    (void)state;
    for (int window = 0; window <= 1; window++) {
        struct world world;
        open_suspect(&world, 1);
        struct operation_rule *rule = &world.definition->steps[A].action;
        rule->start_timeout_ms = 5000;
        rule->on_exhausted = ON_EXHAUSTED_CONTINUE;
        rule->window_ms = window ? 24 * 3600 * 1000 : 0;
        world_start(&world);
        world_assert_waits(&world, WAIT_WORKER, WORLD_START_MS + 5000);
        world_pass(&world, 5000);
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        /* Nothing of ours ran, but it is not known that nothing did. */
        world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
        assert_string_equal(saga_row(world.saga)->park_code, "NO_WORKER");
        assert_int_equal(world_retry(&world, NULL), 0);
        (void)world_grant_of(&world, A, OPERATION_ACTION);
        world_close(&world);
    }
}

/* Neither is it asked about nor decided before it could begin. */
static void test_what_is_delayed_is_looked_into_no_sooner(void **state)
{
    (void)state;
    enum { LATER_MS = 10000 };
    for (int effect = 0; effect < EFFECT_COUNT; effect++)
        for (int start_at = 0; start_at <= 1; start_at++) {
            struct world world;
            open_suspect(&world, 2);
            struct step_rule *a = &world.definition->steps[A];
            a->action.effect = (enum effect)effect;
            a->action.on_unknown = ON_UNKNOWN_ACCEPT;
            if (effect == EFFECT_PROBED)
                world_add_probe(&world, A, OPERATION_ACTION);
            if (effect == EFFECT_IDEMPOTENT) /* over before its turn */
                a->action.window_ms = 15000;
            if (start_at)
                world.start_at_ms = WORLD_START_MS + LATER_MS;
            else
                a->delay_ms = LATER_MS;
            world_start(&world);
            world_assert_waits(&world, WAIT_DELAY, WORLD_START_MS + LATER_MS);
            world_assert_refused(&world, world_retry(&world, NULL),
                                 effect == EFFECT_AT_MOST_ONCE ? "OUTCOME_UNKNOWN"
                                                               : "RETRY_NOT_ALLOWED");
            world_pass(&world, LATER_MS - 1);
            assert_false(world_is_grantable(&world));
            assert_int_equal(world_time(&world), VERDICT_NOTHING);
            world_pass(&world, 1);
            if (effect == EFFECT_PROBED) {
                (void)world_grant_of(&world, A, OPERATION_PROBE);
            } else {
                assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
                world_assert_state(&world, "RUNNING, doubt");
            }
            world_close(&world);
        }
}

/* Turned back, nothing is delayed any more. */
static void test_a_delay_holds_up_no_probe_of_what_is_taken_back(void **state)
{
    (void)state;
    struct world world;
    open_suspect(&world, 1);
    world.definition->steps[A].action.effect = EFFECT_PROBED;
    world.definition->steps[A].delay_ms = 10000;
    world_add_probe(&world, A, OPERATION_ACTION);
    world_start(&world);
    assert_int_equal(world_cancel(&world), 0);
    (void)world_grant_of(&world, A, OPERATION_PROBE);
    world_close(&world);
}

/* --- the pivot --- */

enum { RESERVE, PAY, TELL };

static void open_pivot(struct world *world)
{
    open_suspect(world, 3);
    struct step_rule *steps = world->definition->steps;
    steps[PAY].pivot = true;
    steps[PAY].action.effect = EFFECT_AT_MOST_ONCE;
    steps[PAY].has_compensation = steps[TELL].has_compensation = false;
    definition_order(world->definition);
}

/* It may be done, although its turn has not come. */
static void test_p5_a_cancel_waits_for_a_pivot_that_may_have_run(void **state)
{
    (void)state;
    for (int happened = 0; happened <= 1; happened++) {
        struct world world;
        open_pivot(&world);
        world_start(&world);
        assert_int_equal(world_cancel(&world), 0);
        world_assert_state(&world, "RUNNING");
        assert_non_null(saga_pending(world.saga));
        assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, happened, NULL), 0);
        world_assert_state(&world, happened ? "RUNNING" : "COMPENSATING");
        world_close(&world);
    }
}

/* What is refused before the pivot turns back once it is known that the pivot did not happen. */
static void test_p5_nothing_turns_back_while_the_pivot_may_have_run(void **state)
{
    (void)state;
    for (int happened = 0; happened <= 1; happened++) {
        struct world world;
        open_pivot(&world);
        world_start(&world);
        (void)world_run(&world, OUTCOME_REJECTED);
        world_assert_state(&world, "PARKED in RUNNING: REJECTED_AFTER_PIVOT");
        assert_int_equal(world_resolve(&world, "b", OPERATION_COUNT, happened, NULL), 0);
        assert_int_equal(world_retry(&world, NULL), 0);
        (void)world_run(&world, OUTCOME_REJECTED);
        world_assert_state(&world,
                           happened ? "PARKED in RUNNING: REJECTED_AFTER_PIVOT" : "COMPENSATING");
        if (!happened)
            (void)world_grant_of(&world, RESERVE, OPERATION_COMPENSATION);
        world_close(&world);
    }
}

/* Nor for an outcome that stays unknown, or a budget that is spent; recorded while parked. */
static void test_p5_nor_does_a_policy_while_the_pivot_may_have_run(void **state)
{
    (void)state;
    struct world world;
    open_pivot(&world);
    world.definition->steps[RESERVE].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->steps[RESERVE].action.on_unknown = ON_UNKNOWN_COMPENSATE;
    world.definition->steps[RESERVE].action.on_exhausted = ON_EXHAUSTED_COMPENSATE;
    world.definition->steps[RESERVE].action.retry.max_attempts = 1;
    world_start(&world);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: OUTCOME_UNKNOWN");
    assert_int_equal(world_resolve(&world, "a", OPERATION_COUNT, false, NULL), 0);
    (void)world_run(&world, OUTCOME_RETRY);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    assert_int_equal(world_retry(&world, NULL), 0);
    int64_t seq = world_grant_of(&world, RESERVE, OPERATION_ACTION);
    assert_int_equal(world_suspend(&world), 0);
    assert_int_equal(world_report(&world, seq, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: SUSPENDED");
    assert_int_equal(world_resume(&world), 0);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: REJECTED_AFTER_PIVOT");
    world_close(&world);
}

/* --- what waits for a signal did not run --- */

static void test_a_wait_is_not_suspect(void **state)
{
    (void)state;
    struct world world;
    open_suspect(&world, 2);
    world_make_wait(&world, A, 0, ON_EXHAUSTED_PARK);
    world_start(&world);
    struct step_view view;
    saga_step_view(world.saga, A, world.now_ms, &view);
    assert_false(view.maybe || view.suspect);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    assert_int_equal(world_signal(&world, "s_a", "1", "paid"), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 SUSPECT -\n"
                               "2 +0 SIGNAL a 1\n"
                               "3 +0 RECEIVE a about 2\n"
                               "4 +0 b ACTION 1 -> +0 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

/* --- late reports --- */

/* What a lost attempt says settles that one, not the one before it. */
static void test_p4_a_late_word_settles_its_own_attempt(void **state)
{
    (void)state;
    struct world world;
    open_suspect(&world, 1);
    world_start(&world);
    int64_t seq = world_grant(&world);
    world_expire(&world, seq);
    assert_int_equal(world_report(&world, seq, OUTCOME_RETRY), VERDICT_ACCEPTED);
    struct unknown_view unknown;
    assert_true(saga_unknown_view(world.saga, A, &unknown));
    assert_int_equal(unknown.attempts, 1);
    assert_int_equal(world_cancel(&world), 0);
    (void)world_grant_of(&world, A, OPERATION_COMPENSATION);
    world_close(&world);

    open_suspect(&world, 1);
    world_start(&world);
    seq = world_grant(&world);
    world_expire(&world, seq);
    assert_int_equal(world_report(&world, seq, OUTCOME_ALREADY_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "SUCCEEDED"); /* the attempt before it made it */
    world_close(&world);
}

/* --- a journal that the rules cannot have written --- */

enum fault {
    FAULT_LATER,
    FAULT_OF_STEP,
    FAULT_NO_SINCE,
    FAULT_SINCE_AFTER_IT,
    FAULT_GRANTED,
    FAULT_COUNT
};

static void spoil(struct journal_entry *entries, enum fault fault)
{
    switch (fault) {
    case FAULT_LATER:
        entries[1].kind = ENTRY_SUSPECT;
        entries[1].step = -1;
        break;
    case FAULT_OF_STEP:
        entries[0].step = A;
        break;
    case FAULT_NO_SINCE:
        entries[0].leased_at_ms = 0;
        break;
    case FAULT_SINCE_AFTER_IT:
        entries[0].leased_at_ms = entries[0].finished_at_ms + 1;
        break;
    case FAULT_GRANTED: /* as if it were safe */
    case FAULT_COUNT:
        break;
    }
}

static void test_p6_what_the_rules_cannot_have_written(void **state)
{
    (void)state;
    for (int fault = 0; fault < FAULT_COUNT; fault++) {
        struct definition *definition;
        struct world world;
        open_suspect(&world, 1);
        world.compare = false;
        world_start(&world);
        (void)world_grant(&world);
        spoil(world.entries, (enum fault)fault);
        definition = world.definition;
        if (fault == FAULT_GRANTED)
            definition->steps[A].action.effect = EFFECT_AT_MOST_ONCE;
        struct saga *saga = NULL;
        struct saga_row row = world.row;
        assert_int_equal(
            saga_replay(definition, &row, world.entries, world.count, &saga, &world.err),
            ERR_INTERNAL);
        print_message("%s\n", world.err.msg);
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p4_each_class_settles_what_may_have_run_before),
        cmocka_unit_test(test_a_saga_that_took_over_goes_to_its_end),
        cmocka_unit_test(test_it_began_no_later_than_the_start),
        cmocka_unit_test(test_p4_what_is_not_due_yet_does_not_park),
        cmocka_unit_test(test_what_is_known_out_of_turn_brings_nothing_forward),
        cmocka_unit_test(test_p5_turned_back_all_of_it_is_taken_back),
        cmocka_unit_test(test_p5_a_person_or_a_probe_says_what_need_not_be_taken_back),
        cmocka_unit_test(test_p4_the_window_counts_from_the_first_day),
        cmocka_unit_test(test_nobody_took_it_and_it_may_have_run),
        cmocka_unit_test(test_what_is_delayed_is_looked_into_no_sooner),
        cmocka_unit_test(test_a_delay_holds_up_no_probe_of_what_is_taken_back),
        cmocka_unit_test(test_p5_a_cancel_waits_for_a_pivot_that_may_have_run),
        cmocka_unit_test(test_p5_nothing_turns_back_while_the_pivot_may_have_run),
        cmocka_unit_test(test_p5_nor_does_a_policy_while_the_pivot_may_have_run),
        cmocka_unit_test(test_a_wait_is_not_suspect),
        cmocka_unit_test(test_p4_a_late_word_settles_its_own_attempt),
        cmocka_unit_test(test_p6_what_the_rules_cannot_have_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
