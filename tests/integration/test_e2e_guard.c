/* The guard through real workers and real expiries (U1, U2, U3). Goal: an action that is slower
 * than its lease and the compensation that overtakes it leave a net effect of zero, whoever commits
 * first. Method: handlers that sleep before or inside their transaction; the participant's table
 * and the journal are compared at the end. */
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 10000 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker(&rig, "w1", "act:16 undo:16"); /* the rig owns it */
    rig_define(&rig, "slow", NULL,
               "a: ONCE attempt_timeout=1s on_unknown=COMPENSATE | IDEMPOTENT lease=10s | guarded");
    rig_define(&rig, "again", NULL, "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: ONCE | none");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

static void await_call_end(const char *saga_id, const char *operation)
{
    rig_await(&rig, RIG_BANK, "1", SOON,
              "SELECT count(ended_at) FROM calls WHERE saga_id = '%s' AND operation = '%s'"
              " AND try = 1",
              saga_id, operation);
}

static void test_u1a_u3_an_action_after_its_compensation_is_refused(void **state)
{
    (void)state;
    rig_start(&rig, "slow", "u1a", "a A 1 sleep=3000 guarded\na C 1 guarded");
    rig_await_state(&rig, "slow", "u1a", "COMPENSATED", SOON);
    /* A time-out is unknown, never failed; nothing was there to undo: EMPTY, a success. */
    rig_assert_journal(&rig, "slow", "u1a", "a.1 EXPIRED, COMPENSATE UNKNOWN, ~a.1 DONE");
    rig_await(&rig, RIG_BANK, "MAYBE", SOON,
              "SELECT seen FROM calls WHERE saga_id = 'u1a' AND operation = 'C'");
    /* The late action is refused, says so, and changes nothing. */
    await_call_end("u1a", "A");
    rig_await(&rig, RIG_STORE, "REJECTED GUARD_REFUSED f", SOON,
              "SELECT outcome || ' ' || error_code || ' ' || left(effect::text, 1)"
              " FROM late_report JOIN saga s USING (shard, saga_uid) WHERE s.saga_id = 'u1a'");
    assert_int_equal(
        rig_count(&rig, RIG_BANK, "SELECT count(*) FROM effects WHERE saga_id = 'u1a'"), 0);
    rig_await_state(&rig, "slow", "u1a", "COMPENSATED", SOON);
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga WHERE saga_id = 'u1a' AND doubt"), 0);
}

static void test_u1b_a_compensation_waits_for_an_open_action_and_undoes_it(void **state)
{
    (void)state;
    rig_start(&rig, "slow", "u1b", "a A 1 inner=3500 guarded\na C 1 guarded");
    rig_await_call(&rig, "u1b", "a", "C", 1, SOON);
    /* It waits: the action's transaction is still open. */
    rig_await(&rig, RIG_BANK, "1", 2000,
              "SELECT count(*) FROM pg_stat_activity WHERE datname = 'bank'"
              " AND wait_event_type = 'Lock'");
    assert_int_equal(
        rig_count(&rig, RIG_BANK, "SELECT count(*) FROM effects WHERE saga_id = 'u1b'"), 0);
    rig_await_state(&rig, "slow", "u1b", "COMPENSATED", SOON);
    await_call_end("u1b", "A");
    assert_int_equal(rig_effects(&rig, "u1b", "a", "A"), 1);
    assert_int_equal(rig_effects(&rig, "u1b", "a", "C"), 1);
    assert_int_equal(rig_count(&rig, RIG_BANK,
                               "SELECT count(*) FROM effects a JOIN effects c USING (saga_id, step)"
                               " WHERE saga_id = 'u1b' AND a.operation = 'A' AND c.operation = 'C'"
                               " AND c.at >= a.at"),
                     1);
    rig_await(&rig, RIG_STORE, "a.1 EXPIRED ~a.1 DONE", SOON,
              "SELECT string_agg(CASE operation WHEN 'COMPENSATION' THEN '~' ELSE '' END || step"
              " || '.' || try || ' ' || outcome, ' ' ORDER BY seq)"
              " FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = 'u1b' AND kind = 'LEASE'");
}

static void test_u2_an_undo_without_action_is_empty_once_and_then_a_duplicate(void **state)
{
    (void)state;
    rig_start(&rig, "slow", "u2", "a A 1 sleep=3000 guarded\na C 1 guarded unknown\na C 2 guarded");
    rig_await_state(&rig, "slow", "u2", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "slow", "u2",
                       "a.1 EXPIRED, COMPENSATE UNKNOWN, ~a.1 UNKNOWN, ~a.2 ALREADY_DONE");
    await_call_end("u2", "A");
    rig_await(&rig, RIG_STORE, "REJECTED", SOON,
              "SELECT outcome FROM late_report JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = 'u2'");
    /* The undo's own work never ran, nor did the action's. */
    assert_int_equal(rig_count(&rig, RIG_BANK, "SELECT count(*) FROM effects WHERE saga_id = 'u2'"),
                     0);
    assert_int_equal(
        rig_count(&rig, RIG_BANK, "SELECT count(*) FROM saga_guard.guard WHERE saga_id = 'u2'"), 2);
}

static void test_u2_one_attempt_is_enough_for_an_empty_undo(void **state)
{
    (void)state;
    rig_start(&rig, "slow", "u2one", "a A 1 sleep=1800 guarded\na C 1 guarded");
    rig_await_state(&rig, "slow", "u2one", "COMPENSATED", SOON);
    rig_assert_calls(&rig, "u2one", "a.1, ~a.1");
    await_call_end("u2one", "A");
}

static void test_u3_an_action_that_ran_already_answers_with_what_it_answered_then(void **state)
{
    (void)state;
    rig_start(&rig, "again", "u3",
              "a A 1 out=first guarded unknown\na A 2 out=second guarded\nb A 1 join=a done");
    rig_await_state(&rig, "again", "u3", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "again", "u3", "a.1 UNKNOWN, a.2 ALREADY_DONE, b.1 DONE");
    assert_int_equal(rig_effects(&rig, "u3", "a", "A"), 1);
    rig_await(&rig, RIG_STORE, "[a=first]", SOON,
              "SELECT convert_from(output, 'UTF8') FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = 'u3' AND step = 'b'");
}

static void test_guarded_steps_of_one_saga_are_told_apart_and_repeats_are_not(void **state)
{
    (void)state;
    rig_define(&rig, "two", NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: IDEMPOTENT | IDEMPOTENT | guarded\n"
               "c: ONCE | none");
    rig_start(&rig, "two", "u6",
              "a A 1 guarded unknown\na A 2 guarded unknown\nb A 1 guarded unknown\n"
              "a C 1 guarded unknown\nc A 1 rejected\n* * * guarded");
    rig_await_state(&rig, "two", "u6", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "two", "u6",
                       "a.1 UNKNOWN, a.2 UNKNOWN, a.3 ALREADY_DONE, b.1 UNKNOWN, b.2 ALREADY_DONE,"
                       " c.1 REJECTED, COMPENSATE REFUSED, ~b.1 DONE, ~a.1 UNKNOWN,"
                       " ~a.2 ALREADY_DONE");
    static const char *const steps[] = { "a", "b" };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        assert_int_equal(rig_effects(&rig, "u6", steps[i], "A"), 1);
        assert_int_equal(rig_effects(&rig, "u6", steps[i], "C"), 1);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_u1a_u3_an_action_after_its_compensation_is_refused),
        TEST(test_u1b_a_compensation_waits_for_an_open_action_and_undoes_it),
        TEST(test_u2_an_undo_without_action_is_empty_once_and_then_a_duplicate),
        TEST(test_u2_one_attempt_is_enough_for_an_empty_undo),
        TEST(test_u3_an_action_that_ran_already_answers_with_what_it_answered_then),
        TEST(test_guarded_steps_of_one_saga_are_told_apart_and_repeats_are_not),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
