/* Goal: a step that waits for a signal is done by that signal, once, at its turn and never before,
 * and by nothing else. Method: the signal, the time-out and
 * whatever closes the wait at each moment; exact traces; after each commit a replay of the tables
 * equals the copy (core_world.c). */
#include "core_world.h"

#include "core/limits.h"

#include <stdio.h>

enum { ORDER, CALLBACK, SHIP };

/* a, then b waits for "s_b", then c. */
static void open_wait(struct world *world, int64_t timeout_ms, enum on_exhausted on_exhausted)
{
    world_open(world, 3);
    world_make_wait(world, CALLBACK, timeout_ms, on_exhausted);
}

static void at_the_wait(struct world *world, int64_t timeout_ms, enum on_exhausted on_exhausted)
{
    open_wait(world, timeout_ms, on_exhausted);
    world_start(world);
    (void)world_run(world, OUTCOME_DONE);
}

static void assert_duplicate(struct world *world, const char *id)
{
    int64_t last = saga_last_seq(world->saga);
    assert_int_equal(world_signal(world, "s_b", id, "other"), 0);
    assert_int_equal(world->verdict, VERDICT_DUPLICATE);
    assert_true(transition_is_empty(&world->transition));
    assert_int_equal(saga_last_seq(world->saga), last);
}

static void test_nobody_works_at_a_wait(void **state)
{
    (void)state;
    struct world world;
    at_the_wait(&world, 0, ON_EXHAUSTED_PARK);
    assert_false(world_is_grantable(&world));
    assert_int_equal(saga_grantable_at(world.saga, world.now_ms), INT64_MAX);
    assert_int_equal(saga_due_at(world.saga), INT64_MAX); /* nothing but the signal brings it on */
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_assert_step(&world, CALLBACK, "WAITING_FOR_SIGNAL");
    world_assert_waits(&world, WAIT_SIGNAL, 0);
    struct wait_view wait;
    saga_wait_view(world.saga, world.now_ms, &wait);
    assert_string_equal(wait.signal, "s_b");
    assert_null(wait.handler);
    world_assert_refused(&world, world_retry(&world, NULL), "RETRY_NOT_ALLOWED");
    assert_non_null(strstr(world.err.msg, "waits for signal \"s_b\""));
    world_assert_refused(&world, world_resolve(&world, "b", OPERATION_COUNT, true, NULL),
                         "NOTHING_TO_RESOLVE");
    world_close(&world);
}

static void test_at_its_turn_it_is_received_at_once(void **state)
{
    (void)state;
    struct world world;
    at_the_wait(&world, 60000, ON_EXHAUSTED_PARK);
    world_assert_waits(&world, WAIT_SIGNAL, world.now_ms + 60000);
    world_pass(&world, 500);
    assert_int_equal(world_signal(&world, "s_b", "m-7", "paid"), 0);
    assert_int_equal(world.transition.append_count, 2); /* one commit */
    world_assert_output(&world, CALLBACK, "paid");
    world_assert_step(&world, CALLBACK, "DONE");
    assert_int_equal(saga_task_bytes(world.saga), strlen("paid"));
    assert_duplicate(&world, "m-7");
    world_assert_refused(&world, world_signal(&world, "s_b", "m-8", "paid"), "SIGNAL_TAKEN");
    assert_non_null(strstr(world.err.msg, "m-7"));
    (void)world_run(&world, OUTCOME_DONE);
    assert_duplicate(&world, "m-7"); /* after the end, too */
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +500 SIGNAL b m-7\n"
                               "3 +500 RECEIVE b about 2\n"
                               "4 +500 c ACTION 1 -> +500 DONE\n"
                               "SUCCEEDED\n");
    assert_string_equal(saga_entry(world.saga, 2)->actor, "bank");
    world_close(&world);
}

/* The transition that makes it the turn receives it, and grants what comes after. */
static void test_before_its_turn_it_is_kept(void **state)
{
    (void)state;
    struct world world;
    open_wait(&world, 1000, ON_EXHAUSTED_COMPENSATE);
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_signal(&world, "s_b", "m-7", "paid"), 0);
    assert_int_equal(world.transition.append_count, 1);
    world_assert_step(&world, CALLBACK, "PENDING");
    struct bytes output;
    assert_false(saga_step_output(world.saga, CALLBACK, &output));
    assert_duplicate(&world, "m-7");
    world_pass(&world, 5000); /* its time-out counts from its turn: there is none */
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    assert_int_equal(world.transition.append_count, 1);
    assert_false(world.transition.changes_row);
    world_assert_output(&world, CALLBACK, "paid");
    (void)world_grant_of(&world, SHIP, OPERATION_ACTION);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +5000 DONE\n"
                               "2 +0 SIGNAL b m-7\n"
                               "3 +5000 RECEIVE b about 2\n"
                               "4 +5000 c ACTION 1 -> live\n"
                               "RUNNING\n");
    world_close(&world);
}

static void test_a_name_that_nothing_waits_for(void **state)
{
    (void)state;
    struct world world;
    at_the_wait(&world, 0, ON_EXHAUSTED_PARK);
    assert_int_equal(world_signal(&world, "s_x", "1", ""), ERR_INVALID);
    assert_string_equal(world.err.field, "signal");
    assert_int_equal(world_signal(&world, "b", "1", ""), ERR_INVALID); /* the step's name */
    assert_int_equal(saga_last_seq(world.saga), 1);
    world_close(&world);
}

static void test_what_its_time_out_leads_to(void **state)
{
    (void)state;
    static const struct {
        enum on_exhausted policy;
        const char *trace;
    } cases[] = {
        { ON_EXHAUSTED_PARK, "2 +1000 PARK b RETRIES_EXHAUSTED\n"
                             "PARKED in RUNNING: RETRIES_EXHAUSTED\n" },
        { ON_EXHAUSTED_COMPENSATE, "2 +1000 COMPENSATE b START_TIMEOUT\n"
                                   "COMPENSATING\n" },
        { ON_EXHAUSTED_CONTINUE, "2 +1000 CONTINUE b\n"
                                 "RUNNING\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        at_the_wait(&world, 1000, cases[i].policy);
        assert_int_equal(saga_due_at(world.saga), world.now_ms + 1000);
        world_pass(&world, 999);
        assert_int_equal(world_time(&world), VERDICT_NOTHING);
        world_pass(&world, 1);
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        assert_string_equal(saga_entry(world.saga, 2)->error_code, "NO_SIGNAL");
        assert_non_null(strstr(saga_entry(world.saga, 2)->error_message, "\"s_b\""));
        char trace[200];
        (void)snprintf(trace, sizeof trace, "1 +0 a ACTION 1 -> +0 DONE\n%s", cases[i].trace);
        world_assert_trace(&world, trace);
        if (cases[i].policy == ON_EXHAUSTED_PARK) {
            world_assert_step(&world, CALLBACK, "EXHAUSTED");
        } else {
            world_assert_refused(&world, world_signal(&world, "s_b", "1", ""),
                                 "SIGNAL_NOT_ALLOWED");
            if (cases[i].policy == ON_EXHAUSTED_CONTINUE) {
                world_assert_step(&world, CALLBACK, "LEFT_OUT");
                (void)world_run(&world, OUTCOME_DONE);
                world_assert_state(&world, "SUCCEEDED");
            } else {
                world_assert_step(&world, CALLBACK, "NOT_RUN");
                (void)world_grant_of(&world, ORDER, OPERATION_COMPENSATION);
            }
        }
        world_close(&world);
    }
}

/* Its time is over, but nobody has said so yet: waiting was worth it. */
static void test_a_signal_before_the_time_out_was_noticed(void **state)
{
    (void)state;
    struct world world;
    at_the_wait(&world, 1000, ON_EXHAUSTED_COMPENSATE);
    world_pass(&world, 2000);
    assert_int_equal(world_signal(&world, "s_b", "1", ""), 0);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);
}

static void test_parked_for_it_the_signal_takes_the_saga_on(void **state)
{
    (void)state;
    struct world world;
    at_the_wait(&world, 1000, ON_EXHAUSTED_PARK);
    world_pass(&world, 1000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    assert_int_equal(world_signal(&world, "s_b", "m-7", "paid"), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +1000 PARK b RETRIES_EXHAUSTED\n"
                               "3 +1000 SIGNAL b m-7\n"
                               "4 +1000 RESUME b\n"
                               "5 +1000 RECEIVE b about 3\n"
                               "6 +1000 c ACTION 1 -> +1000 DONE\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

/* But a deadline that is over meanwhile comes first, as with a retry. */
static void test_parked_for_it_beyond_the_deadline(void **state)
{
    (void)state;
    struct world world;
    open_wait(&world, 1000, ON_EXHAUSTED_PARK);
    world.definition->deadline_ms = 5000;
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    world_pass(&world, 1000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_pass(&world, 5000);
    assert_int_equal(world_signal(&world, "s_b", "m-7", "paid"), 0);
    world_assert_trace(&world, "1 +0 a ACTION 1 -> +0 DONE\n"
                               "2 +1000 PARK b RETRIES_EXHAUSTED\n"
                               "3 +6000 SIGNAL b m-7\n"
                               "4 +6000 RESUME b\n"
                               "5 +6000 COMPENSATE b DEADLINE\n"
                               "COMPENSATING\n");
    assert_duplicate(&world, "m-7");
    world_close(&world);
}

static void test_a_retry_waits_anew(void **state)
{
    (void)state;
    struct world world;
    at_the_wait(&world, 1000, ON_EXHAUSTED_PARK);
    world_pass(&world, 1000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_pass(&world, 70000);
    assert_int_equal(world_retry(&world, "b"), 0);
    world_assert_step(&world, CALLBACK, "WAITING_FOR_SIGNAL");
    assert_int_equal(saga_due_at(world.saga), world.now_ms + 1000);
    world_pass(&world, 1000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    world_close(&world);
}

/* Parked for something else it is kept, and received when a person lets the saga go on. */
static void test_parked_for_something_else_it_is_kept(void **state)
{
    (void)state;
    for (int suspended = 0; suspended <= 1; suspended++) {
        struct world world;
        open_wait(&world, 0, ON_EXHAUSTED_PARK);
        world.definition->deadline_ms = 5000;
        world.definition->on_deadline = ON_DEADLINE_PARK;
        world_start(&world);
        (void)world_run(&world, OUTCOME_DONE);
        if (suspended) {
            assert_int_equal(world_suspend(&world), 0);
        } else {
            world_pass(&world, 5000);
            assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        }
        assert_int_equal(world_signal(&world, "s_b", "1", "paid"), 0);
        assert_int_equal(saga_row(world.saga)->state, SAGA_PARKED);
        world_assert_step(&world, CALLBACK, "PENDING");
        assert_int_equal(world_time(&world), VERDICT_NOTHING);
        assert_int_equal(suspended ? world_resume(&world) : world_retry(&world, NULL), 0);
        world_assert_output(&world, CALLBACK, "paid");
        (void)world_run(&world, OUTCOME_DONE);
        world_assert_state(&world, "SUCCEEDED");
        world_close(&world);
    }
}

static void test_turning_back_closes_it(void **state)
{
    (void)state;
    for (int kept = 0; kept <= 1; kept++) {
        struct world world;
        open_wait(&world, 0, ON_EXHAUSTED_PARK);
        world_start(&world);
        int64_t seq = world_grant(&world);
        if (kept)
            assert_int_equal(world_signal(&world, "s_b", "1", "paid"), 0);
        assert_int_equal(world_cancel(&world), 0);
        assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
        world_assert_step(&world, CALLBACK, "NOT_RUN");
        if (kept)
            assert_duplicate(&world, "1");
        world_assert_refused(&world, world_signal(&world, "s_b", "2", "paid"),
                             kept ? "SIGNAL_TAKEN" : "SIGNAL_NOT_ALLOWED");
        (void)world_run(&world, OUTCOME_DONE);
        world_assert_state(&world, "COMPENSATED");
        if (kept)
            assert_duplicate(&world, "1");
        world_close(&world);
    }
}

/* a; then b waits beside c; d comes after both. */
static void open_beside(struct world *world, int64_t timeout_ms, enum on_exhausted on_exhausted)
{
    world_open(world, 4);
    struct step_rule *steps = world->definition->steps;
    world_make_wait(world, 1, timeout_ms, on_exhausted);
    steps[2].after = (struct step_set){ 0 };
    step_set_add(&steps[2].after, 0);
    step_set_add(&steps[3].after, 1);
    definition_order(world->definition);
    world_start(world);
    (void)world_run(world, OUTCOME_DONE);
}

static void test_beside_another_branch(void **state)
{
    (void)state;
    struct world world;
    open_beside(&world, 0, ON_EXHAUSTED_PARK);
    int64_t seq = world_grant_of(&world, 2, OPERATION_ACTION);
    assert_int_equal(world_signal(&world, "s_b", "1", "paid"), 0);
    world_assert_step(&world, 1, "DONE"); /* beside the live lease */
    assert_false(world_is_grantable(&world));
    assert_int_equal(world_report(&world, seq, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    (void)world_grant_of(&world, 0, OPERATION_COMPENSATION); /* the wait took nothing */
    world_close(&world);

    open_beside(&world, 0, ON_EXHAUSTED_PARK);
    (void)world_run(&world, OUTCOME_DONE);
    assert_false(world_is_grantable(&world));
    world_assert_step(&world, 3, "PENDING");
    assert_int_equal(world_signal(&world, "s_b", "1", "paid"), 0);
    (void)world_grant_of(&world, 3, OPERATION_ACTION);
    world_close(&world);
}

/* Parked because it did not come, and the other branch is refused: it turns back at once. */
static void test_a_time_out_beside_a_live_lease(void **state)
{
    (void)state;
    struct world world;
    open_beside(&world, 1000, ON_EXHAUSTED_PARK);
    int64_t seq = world_grant_of(&world, 2, OPERATION_ACTION);
    world_pass(&world, 1000);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: RETRIES_EXHAUSTED");
    assert_int_equal(world_report(&world, seq, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    world_assert_state(&world, "COMPENSATING");
    world_assert_refused(&world, world_signal(&world, "s_b", "1", ""), "SIGNAL_NOT_ALLOWED");
    world_close(&world);
}

/* More waits at once than one transition takes; all signals are there before the first one's turn.
 */
static void test_many_kept_signals_in_a_row(void **state)
{
    (void)state;
    enum { WAITS = 9 };
    struct world world;
    world_open(&world, 1 + WAITS);
    for (size_t i = 1; i <= WAITS; i++)
        world_make_wait(&world, i, 1000, ON_EXHAUSTED_COMPENSATE);
    world_start(&world);
    int64_t seq = world_grant(&world);
    for (size_t i = WAITS; i >= 1; i--) {
        const char name[] = { 's', '_', (char)('a' + i), '\0' };
        assert_int_equal(world_signal(&world, name, "1", ""), 0);
    }
    world_pass(&world, 5000);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    for (int turns = 0; saga_row(world.saga)->state == SAGA_RUNNING; turns++) {
        assert_in_range(turns, 0, WAITS);
        assert_false(world_is_grantable(&world));
        assert_true(saga_due_at(world.saga) <= world.now_ms);
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    }
    world_assert_state(&world, "SUCCEEDED");
    assert_int_equal(saga_last_seq(world.saga), 1 + 2 * WAITS);
    world_close(&world);
}

/* The last step: its signal ends the saga. */
static void test_a_saga_that_only_waits(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world_make_wait(&world, 0, 0, ON_EXHAUSTED_PARK);
    world_start(&world);
    world_assert_step(&world, 0, "WAITING_FOR_SIGNAL");
    assert_int_equal(world_signal(&world, "s_a", "1", "paid"), 0);
    assert_true(world.transition.ends);
    world_assert_trace(&world, "1 +0 SIGNAL a 1\n"
                               "2 +0 RECEIVE a about 1\n"
                               "SUCCEEDED\n");
    world_close(&world);
}

/* What another node recorded with an outdated copy: the finish alone, and time does the rest. */
static void test_a_turn_that_another_node_made(void **state)
{
    (void)state;
    struct world world;
    open_wait(&world, 0, ON_EXHAUSTED_PARK);
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_signal(&world, "s_b", "1", "paid"), 0);
    world.entries[seq - 1].outcome = OUTCOME_DONE;
    world.entries[seq - 1].finished_at_ms = world.now_ms;
    world_reload(&world);
    assert_false(world_is_grantable(&world));
    assert_true(saga_due_at(world.saga) <= world.now_ms);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_output(&world, CALLBACK, "paid");
    (void)world_grant_of(&world, SHIP, OPERATION_ACTION);
    world_close(&world);
}

/* The cancel waits for the pivot; a signal for what comes after it is taken meanwhile. */
static void test_while_the_pivot_is_under_way(void **state)
{
    (void)state;
    for (int done = 0; done <= 1; done++) {
        struct world world;
        open_wait(&world, 0, ON_EXHAUSTED_PARK);
        world.definition->steps[ORDER].pivot = true;
        world.definition->steps[ORDER].has_compensation = false;
        world.definition->steps[SHIP].has_compensation = false;
        definition_order(world.definition);
        world_start(&world);
        int64_t seq = world_grant(&world);
        assert_int_equal(world_cancel(&world), 0);
        assert_int_equal(world_signal(&world, "s_b", "1", "paid"), 0);
        assert_int_equal(world_report(&world, seq, done ? OUTCOME_DONE : OUTCOME_RETRY),
                         VERDICT_ACCEPTED);
        world_assert_state(&world, done ? "RUNNING" : "COMPENSATED");
        if (done)
            world_assert_output(&world, CALLBACK, "paid");
        world_close(&world);
    }
}

/* A wait needs no room in the journal: it is the grant after it that parks. */
static void test_a_full_journal(void **state)
{
    (void)state;
    struct world world;
    open_wait(&world, 0, ON_EXHAUSTED_PARK);
    world.compare = false;
    world_start(&world);
    while (saga_last_seq(world.saga) < LIMIT_JOURNAL_ENTRIES - LIMIT_JOURNAL_RESERVE - 1)
        assert_int_equal(world_lease_end(&world, world_grant(&world), OUTCOME_RELEASED),
                         VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_DONE);
    assert_int_equal(world_time(&world), VERDICT_NOTHING);
    world_assert_step(&world, CALLBACK, "WAITING_FOR_SIGNAL");
    assert_int_equal(world_signal(&world, "s_b", "1", "paid"), 0);
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: LIMIT_REACHED");
    world.compare = true;
    world_reload(&world);
    world_close(&world);
}

/* a done, the signal, b received, c live: with one fault each. */
static void break_journal(struct journal_entry *entries, int fault)
{
    struct journal_entry *signal = &entries[1], *receive = &entries[2], *lease = &entries[3];
    switch (fault) {
    case 0: /* without its signal */
        receive->about = 1;
        break;
    case 1:
        receive->about = 0;
        break;
    case 2: /* twice */
        receive->kind = ENTRY_SIGNAL;
        receive->signal_id = mem_strdup("m-8");
        break;
    case 3:
        mem_free(TAKE(signal->signal_id));
        break;
    case 4: /* of a step with work */
        signal->step = SHIP;
        break;
    case 5:
        signal->step = -1;
        break;
    case 6:
        signal->operation = OPERATION_COMPENSATION;
        break;
    case 7:
        receive->step = SHIP;
        break;
    case 8: /* before its turn */
        entries[0].outcome = OUTCOME_RETRY;
        break;
    case 9: /* work on a wait */
        lease->step = CALLBACK;
        break;
    case 10: /* what only work can be */
        receive->kind = ENTRY_RESOLVE;
        receive->about = 0;
        receive->outcome = OUTCOME_DONE;
        break;
    case 11:
        receive->kind = ENTRY_ACCEPT;
        break;
    case 12: /* and received after that */
        lease->kind = ENTRY_RECEIVE;
        lease->step = CALLBACK;
        lease->about = 2;
        break;
    default:
        fail();
    }
}

static void test_what_the_rules_cannot_have_written(void **state)
{
    (void)state;
    static const char *const why[] = {
        "no signal at position 1",
        "no signal at position 0",
        "it came at position 2",
        "does not wait for it",
        "step 2 does not wait for it",
        "step -1 does not wait for it",
        "does not wait for it",
        "step 2 does not wait for a signal",
        "out of turn",
        "no operation 0 of step 1",
        "no operation 0 of step 1",
        "no operation 0 of step 1",
        "out of turn",
    };
    for (size_t fault = 0; fault < ARRAY_LEN(why); fault++) {
        struct world world;
        at_the_wait(&world, 0, ON_EXHAUSTED_PARK);
        assert_int_equal(world_signal(&world, "s_b", "m-7", "paid"), 0);
        (void)world_grant_of(&world, SHIP, OPERATION_ACTION);
        break_journal(world.entries, (int)fault);
        struct saga *saga = NULL;
        assert_int_equal(saga_replay(world.definition, &world.row, world.entries, world.count,
                                     &saga, &world.err),
                         ERR_INTERNAL);
        if (!strstr(world.err.msg, why[fault]))
            fail_msg("fault %zu: %s", fault, world.err.msg);
        world_close(&world);
    }
}

/* Nothing waits for it any more: it went on without it, or turned back. */
static void test_a_journal_with_a_signal_too_late(void **state)
{
    (void)state;
    for (int turned_back = 0; turned_back <= 1; turned_back++) {
        struct world world;
        at_the_wait(&world, 1000, turned_back ? ON_EXHAUSTED_COMPENSATE : ON_EXHAUSTED_CONTINUE);
        world_pass(&world, 1000);
        assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
        (void)world_grant(&world);
        struct journal_entry *entry = &world.entries[2];
        entry->kind = ENTRY_SIGNAL;
        entry->step = CALLBACK;
        entry->operation = OPERATION_ACTION;
        entry->signal_id = mem_strdup("m-7");
        struct saga *saga = NULL;
        assert_int_equal(saga_replay(world.definition, &world.row, world.entries, world.count,
                                     &saga, &world.err),
                         ERR_INTERNAL);
        assert_non_null(strstr(world.err.msg, "nothing waits for it any more"));
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_works_at_a_wait),
        cmocka_unit_test(test_at_its_turn_it_is_received_at_once),
        cmocka_unit_test(test_before_its_turn_it_is_kept),
        cmocka_unit_test(test_a_name_that_nothing_waits_for),
        cmocka_unit_test(test_what_its_time_out_leads_to),
        cmocka_unit_test(test_a_signal_before_the_time_out_was_noticed),
        cmocka_unit_test(test_parked_for_it_the_signal_takes_the_saga_on),
        cmocka_unit_test(test_parked_for_it_beyond_the_deadline),
        cmocka_unit_test(test_a_retry_waits_anew),
        cmocka_unit_test(test_parked_for_something_else_it_is_kept),
        cmocka_unit_test(test_turning_back_closes_it),
        cmocka_unit_test(test_beside_another_branch),
        cmocka_unit_test(test_a_time_out_beside_a_live_lease),
        cmocka_unit_test(test_many_kept_signals_in_a_row),
        cmocka_unit_test(test_a_saga_that_only_waits),
        cmocka_unit_test(test_a_turn_that_another_node_made),
        cmocka_unit_test(test_while_the_pivot_is_under_way),
        cmocka_unit_test(test_a_full_journal),
        cmocka_unit_test(test_what_the_rules_cannot_have_written),
        cmocka_unit_test(test_a_journal_with_a_signal_too_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
