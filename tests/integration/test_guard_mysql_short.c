/* The short way of the guard on MySQL and MariaDB. Goal: it answers what the long way would, or
 * leaves the answer to it; an effect happens at most once, and never after its compensation.
 * Method: guard_mysql_rig.h; every short history of a step, on both ways mixed, against a plain
 * model; every race of two. */
#include "guard_mysql_rig.h"

#include "guard_model.h"
#include "support/proof.h"
#include "support/wait.h"

#include <mysqld_error.h>
#include <stdio.h>

enum { LENGTH = 3 };

/* --- every short history --- */

static struct operation operation_of(const struct fixture *fixture, const struct guard_move *move,
                                     bool even)
{
    return (struct operation){ .saga = fixture->saga,
                               .name = move->compensates ? compensation : action,
                               .fence = (long)move->fence,
                               .even_without_action = even,
                               .output = "receipt",
                               .short_way = move->short_way };
}

/* A business no: what was begun is rolled back, and then only the fence is remembered. */
static struct answer run_into_no(struct fixture *fixture, const struct operation *operation)
{
    must(fixture->first, "START TRANSACTION");
    struct answer answer = enter(fixture, fixture->first, operation);
    must(fixture->first, "ROLLBACK");
    if (!is(&answer, "PROCEED"))
        return run(fixture, fixture->first, operation);
    must(fixture->first, "START TRANSACTION");
    answer = enter(fixture, fixture->first, operation);
    assert_int_equal(execute(fixture->statements, fixture->first, NO_EFFECT, operation), 0);
    if (operation->name == compensation)
        assert_int_equal(execute(fixture->statements, fixture->first, UNBLOCK, operation), 0);
    must(fixture->first, "COMMIT");
    return answer;
}

static void play(struct fixture *fixture, const struct guard_move *moves, int length, bool even)
{
    struct guard_model model = { .balance = 0 };
    assert_int_equal(new_saga(fixture), 0);
    for (int i = 0; i < length; i++) {
        struct operation operation = operation_of(fixture, &moves[i], even);
        const char *wanted = guard_model_move(&model, &moves[i], even);
        struct answer answer = moves[i].says_no ? run_into_no(fixture, &operation)
                                                : run(fixture, fixture->first, &operation);
        if (!is(&answer, wanted))
            fail_msg("%s, move %d: %s, not %s", fixture->saga, i, answer.word, wanted);
    }
    expect_balance(fixture, model.balance);
}

static void test_u1_u2_u3_every_history_on_both_ways_is_as_the_model_says(void **state)
{
    struct fixture *fixture = *state;
    struct guard_move moves[GUARD_HISTORY_MAX];
    for (int even = 0; even < 2; even++)
        for (int number = 0; guard_history(number, LENGTH, true, moves); number++)
            play(fixture, moves, LENGTH, even);
}

/* --- one after the other --- */

static struct operation shortly(const struct fixture *fixture, long fence)
{
    return (struct operation){ .saga = fixture->saga,
                               .name = action,
                               .fence = fence,
                               .output = "receipt",
                               .short_way = true };
}

static void expect_shortly(struct fixture *fixture, MYSQL *conn, long fence, const char *word)
{
    struct operation operation = shortly(fixture, fence);
    struct answer answer = enter_shortly(fixture, conn, &operation);
    assert_string_equal(answer.word, word);
}

static void test_its_output_is_what_a_repeat_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct operation operation = shortly(fixture, 1);
    struct answer answer = run(fixture, fixture->first, &operation);
    assert_string_equal(answer.word, "PROCEED");
    operation.output = "other";
    answer = run(fixture, fixture->second, &operation);
    assert_string_equal(answer.word, "DUPLICATE");
    assert_string_equal(answer.output, "receipt");
    expect_balance(fixture, 1);
}

static void test_autocommit_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char no_transaction[16];
    (void)snprintf(no_transaction, sizeof no_transaction, "%d", ER_SP_DOES_NOT_EXIST);
    expect_shortly(fixture, fixture->first, 1, no_transaction);
    expect_run(fixture, fixture->first, action, 1, "PROCEED"); /* nothing was left behind */
}

static void test_an_effect_that_fails_takes_its_row_along(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "START TRANSACTION");
    expect_shortly(fixture, fixture->first, 1, "PROCEED");
    must(fixture->first, "ROLLBACK");
    expect_run(fixture, fixture->second, action, 1, "PROCEED");
    expect_balance(fixture, 1);
}

static void test_below_the_floor_it_fails_and_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct operation operation = shortly(fixture, 1);
    raise_floor(fixture, 1);
    must(fixture->first, "START TRANSACTION");
    expect_shortly(fixture, fixture->first, 1, "");
    must(fixture->first, "ROLLBACK");
    struct answer answer = run(fixture, fixture->first, &operation);
    assert_string_equal(answer.word, "STALE");
    expect_balance(fixture, 0);
    reset_floor(fixture);
}

static void test_an_old_snapshot_does_not_hide_the_floor(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->second, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    raise_floor(fixture, 1);
    expect_shortly(fixture, fixture->second, 2, "");
    must(fixture->second, "ROLLBACK");
    reset_floor(fixture);
}

/* Nothing is purged that the short way would still let in; and its floor does not rise under one
 * that is let in. */
static void test_a_floor_that_is_raised_for_the_long_way_alone_purges_nothing(void **state)
{
    struct fixture *fixture = *state;
    const struct operation above = { .fence = 1 };
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_FLOOR, &above), 0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE, &above), 0);
    assert_int_equal(mysql_affected_rows(fixture->watcher), 0);
    assert_int_equal(new_saga(fixture), 0);
    must(fixture->first, "START TRANSACTION");
    expect_shortly(fixture, fixture->first, 1, "PROCEED");
    must(fixture->watcher, "SET SESSION lock_wait_timeout = 1");
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_SHORT_TEXT, &above), 0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_SHORT_PREPARE, &above),
                     0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_SHORT, &above),
                     ER_LOCK_WAIT_TIMEOUT);
    must(fixture->first, "COMMIT");
    must(fixture->watcher, "SET SESSION lock_wait_timeout = DEFAULT");
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_SHORT, &above), 0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE, &above), 0);
    assert_true(mysql_affected_rows(fixture->watcher) > 0);
    reset_floor(fixture);
}

/* --- two at once --- */

/* As enter_and_wait, on the short way. */
static void *short_thread(void *ctx)
{
    struct entering *entering = ctx;
    entering->answer = enter_shortly(entering->fixture, entering->conn, &entering->operation);
    return NULL;
}

static void enter_shortly_and_wait(struct fixture *fixture, struct entering *entering, long fence)
{
    *entering = (struct entering){ .fixture = fixture,
                                   .conn = fixture->second,
                                   .watcher = fixture->watcher,
                                   .operation = shortly(fixture, fence) };
    must(fixture->second, "START TRANSACTION");
    assert_int_equal(pthread_create(&entering->thread, NULL, short_thread, entering), 0);
    assert_true(wait_until(is_waiting, entering, BLOCKED_MS_MAX));
}

static void test_u7_a_concurrent_double_is_left_to_the_long_way(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    struct operation operation = shortly(fixture, 1);
    must(fixture->first, "START TRANSACTION");
    expect_shortly(fixture, fixture->first, 1, "PROCEED");
    enter_shortly_and_wait(fixture, &entering, 2);
    assert_int_equal(effect(fixture->first, &operation), 0);
    must(fixture->first, "COMMIT");
    expect_entered(&entering, "");
    must(fixture->second, "ROLLBACK");
    expect_run(fixture, fixture->second, action, 2, "DUPLICATE");
    expect_balance(fixture, 1);
}

static void test_a_double_whose_first_rolls_back_proceeds(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    enter_shortly_and_wait(fixture, &entering, 2);
    must(fixture->first, "ROLLBACK");
    expect_entered(&entering, "PROCEED");
    assert_int_equal(effect(fixture->second, &entering.operation), 0);
    must(fixture->second, "COMMIT");
    expect_run(fixture, fixture->first, action, 1, "DUPLICATE");
    expect_balance(fixture, 1);
}

static void test_u1_its_compensation_waits_for_it_then_undoes_it(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    struct operation operation = shortly(fixture, 1);
    must(fixture->first, "START TRANSACTION");
    expect_shortly(fixture, fixture->first, 1, "PROCEED");
    enter_and_wait(fixture, &entering, compensation, 2);
    assert_int_equal(effect(fixture->first, &operation), 0);
    must(fixture->first, "COMMIT");
    expect_entered(&entering, "PROCEED");
    finish(fixture, fixture->second, compensation, "COMMIT");
    expect_balance(fixture, 0);
}

static void test_u1_after_its_open_compensation_it_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    const struct operation undo = { .saga = fixture->saga, .name = compensation, .output = "" };
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, compensation, 2, "EMPTY");
    enter_shortly_and_wait(fixture, &entering, 1);
    assert_int_equal(execute(fixture->statements, fixture->first, DONE, &undo), 0);
    must(fixture->first, "COMMIT");
    expect_entered(&entering, "");
    must(fixture->second, "ROLLBACK");
    expect_run(fixture, fixture->second, action, 1, "REFUSED");
    expect_balance(fixture, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_u1_u2_u3_every_history_on_both_ways_is_as_the_model_says),
        GUARD_TEST(test_its_output_is_what_a_repeat_is_told),
        GUARD_TEST(test_autocommit_is_refused),
        GUARD_TEST(test_an_effect_that_fails_takes_its_row_along),
        GUARD_TEST(test_below_the_floor_it_fails_and_leaves_nothing),
        GUARD_TEST(test_an_old_snapshot_does_not_hide_the_floor),
        GUARD_TEST(test_a_floor_that_is_raised_for_the_long_way_alone_purges_nothing),
        GUARD_TEST(test_u7_a_concurrent_double_is_left_to_the_long_way),
        GUARD_TEST(test_a_double_whose_first_rolls_back_proceeds),
        GUARD_TEST(test_u1_its_compensation_waits_for_it_then_undoes_it),
        GUARD_TEST(test_u1_after_its_open_compensation_it_is_refused),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
