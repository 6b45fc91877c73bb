/* The guard's statements for MySQL and MariaDB, the long way: one after the other, misused, two at
 * once, on old snapshots. Goal: an effect happens at most once for each saga, step and operation,
 * and never after its compensation, whoever races whom. Method: guard_mysql_rig.h. */
#include "guard_mysql_rig.h"

#include "base/mem.h"
#include "support/proof.h"
#include "support/wait.h"

#include <mysqld_error.h>
#include <stdio.h>

/* --- one after the other --- */

static void test_a_repeat_is_duplicate_with_the_stored_output(void **state)
{
    struct fixture *fixture = *state;
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
    const struct operation same = {
        .saga = fixture->saga, .name = action, .fence = 1, .output = "other"
    };
    struct answer answer = run(fixture, fixture->second, &same);
    assert_string_equal(answer.word, "DUPLICATE");
    assert_string_equal(answer.output, "receipt");
    /* Fence and try are no part of the key: a newer and an older holder are told the same. */
    expect_run(fixture, fixture->second, action, 9, "DUPLICATE");
    expect_run(fixture, fixture->second, action, 3, "DUPLICATE");
    expect_balance(fixture, 1);
}

static void test_u1_an_action_that_comes_after_its_compensation_is_refused(void **state)
{
    struct fixture *fixture = *state;
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
    expect_run(fixture, fixture->second, compensation, 2, "PROCEED");
    expect_run(fixture, fixture->second, compensation, 3, "DUPLICATE");
    /* REFUSED before DUPLICATE: it was done once, and is undone now. */
    expect_run(fixture, fixture->first, action, 1, "REFUSED");
    expect_run(fixture, fixture->first, action, 7, "REFUSED");
    expect_balance(fixture, 0);
}

static void test_u2_empty_then_duplicate_then_the_late_action_is_refused(void **state)
{
    struct fixture *fixture = *state;
    expect_run(fixture, fixture->first, compensation, 2, "EMPTY");
    expect_run(fixture, fixture->first, compensation, 3, "DUPLICATE");
    expect_run(fixture, fixture->second, action, 1, "REFUSED");
    expect_balance(fixture, 0);
}

static void test_u5_even_without_an_action_the_compensation_runs(void **state)
{
    struct fixture *fixture = *state;
    struct operation operation = { .saga = fixture->saga,
                                   .name = compensation,
                                   .fence = 2,
                                   .even_without_action = 1,
                                   .output = "cancelled" };
    struct answer answer = run(fixture, fixture->first, &operation);
    assert_string_equal(answer.word, "PROCEED");
    expect_run(fixture, fixture->first, compensation, 3, "DUPLICATE");
    expect_run(fixture, fixture->second, action, 1, "REFUSED");
    expect_balance(fixture, -1);
}

static void test_u6_ids_that_look_alike_are_not_the_same(void **state)
{
    struct fixture *fixture = *state;
    char saga[64], sql[160];
    static const char *const forms[] = { "%s", "%s ", "%s  ", "Order%s", "oRder%s", "\xc3\xb6%s" };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(saga, sizeof saga, forms[i], fixture->saga);
#pragma GCC diagnostic pop
        (void)snprintf(sql, sizeof sql, "INSERT IGNORE INTO account VALUES ('%s', 0)", saga);
        must(fixture->watcher, sql);
        const struct operation operation = {
            .saga = saga, .name = action, .fence = 1, .output = "r"
        };
        struct answer answer = run(fixture, fixture->first, &operation);
        assert_string_equal(answer.word, "PROCEED");
    }
}

static void test_a_lower_fence_after_a_higher_one_is_stale(void **state)
{
    struct fixture *fixture = *state;
    no_effect(fixture, action, 5);
    expect_run(fixture, fixture->second, action, 4, "STALE");
    expect_run(fixture, fixture->second, action, 6, "PROCEED");
    /* The same for its compensation. */
    expect_run(fixture, fixture->first, compensation, 5, "STALE");
    no_effect(fixture, compensation, 8);
    expect_run(fixture, fixture->first, compensation, 7, "STALE");
    /* The action is as it was: done, and a late double of it is told so. */
    expect_run(fixture, fixture->first, action, 4, "DUPLICATE");
    expect_balance(fixture, 1);
    expect_run(fixture, fixture->first, compensation, 9, "PROCEED");
    expect_balance(fixture, 0);
}

static void test_an_action_that_had_no_effect_has_nothing_to_undo(void **state)
{
    struct fixture *fixture = *state;
    no_effect(fixture, action, 5);
    expect_run(fixture, fixture->first, compensation, 6, "EMPTY");
    expect_run(fixture, fixture->first, action, 7, "REFUSED");
}

/* --- misuse --- */

static void test_autocommit_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char no_transaction[16];
    (void)snprintf(no_transaction, sizeof no_transaction, "%d", ER_SP_DOES_NOT_EXIST);
    expect_enter(fixture, fixture->first, action, 1, no_transaction);
    expect_enter(fixture, fixture->first, compensation, 1, no_transaction);
    expect_run(fixture, fixture->first, action, 1, "PROCEED"); /* nothing was left behind */
    must(fixture->first, "SET autocommit = 0"); /* as JDBC does it: no START TRANSACTION */
    expect_enter(fixture, fixture->first, action, 1, "DUPLICATE");
    must(fixture->first, "COMMIT");
    must(fixture->first, "SET autocommit = 1");
}

static void test_a_commit_without_done_is_found_and_never_guessed(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    must(fixture->first, "COMMIT");
    expect_run(fixture, fixture->second, action, 1, "LEFT_OPEN");
    expect_run(fixture, fixture->second, action, 2, "LEFT_OPEN");
    expect_run(fixture, fixture->second, compensation, 3, "LEFT_OPEN");
    expect_balance(fixture, 0);
}

static void test_entering_twice_is_no_answer(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    expect_enter(fixture, fixture->first, action, 1, "LEFT_OPEN");
    must(fixture->first, "ROLLBACK");
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    expect_enter(fixture, fixture->first, compensation, 2, "LEFT_OPEN");
    must(fixture->first, "ROLLBACK");
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
}

static void test_done_without_enter_changes_no_row(void **state)
{
    struct fixture *fixture = *state;
    const struct operation operation = { .saga = fixture->saga, .name = action, .output = "r" };
    must(fixture->first, "START TRANSACTION");
    assert_int_equal(execute(fixture->statements, fixture->first, DONE, &operation), 0);
    assert_int_equal(mysql_affected_rows(fixture->first), 0);
    must(fixture->first, "ROLLBACK");
}

static void test_a_worker_may_neither_delete_rows_nor_write_another_operation(void **state)
{
    struct fixture *fixture = *state;
    const struct operation probe = { .saga = fixture->saga, .name = "PROBE", .fence = 1 };
    assert_int_equal(query(fixture->first, "DELETE FROM saga_guard"), ER_TABLEACCESS_DENIED_ERROR);
    assert_int_not_equal(execute(fixture->statements, fixture->first, CLAIM, &probe), 0);
}

/* --- two at once --- */

static void test_u1_compensation_waits_for_an_action_that_is_still_open_then_undoes_it(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    enter_and_wait(fixture, &entering, compensation, 2);
    finish(fixture, fixture->first, action, "COMMIT");
    expect_entered(&entering, "PROCEED");
    finish(fixture, fixture->second, compensation, "COMMIT");
    expect_balance(fixture, 0);
    expect_run(fixture, fixture->second, compensation, 3, "DUPLICATE");
}

static void test_u1_compensation_of_an_open_action_that_rolls_back_is_empty(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    const struct operation undo = { .saga = fixture->saga, .name = compensation, .output = "" };
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    enter_and_wait(fixture, &entering, compensation, 2);
    finish(fixture, fixture->first, action, "ROLLBACK");
    expect_entered(&entering, "EMPTY");
    assert_int_equal(execute(fixture->statements, fixture->second, DONE, &undo), 0);
    must(fixture->second, "COMMIT");
    expect_run(fixture, fixture->first, action, 1, "REFUSED");
    expect_balance(fixture, 0);
}

static void test_u1_an_action_that_waits_for_its_open_compensation_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    const struct operation undo = { .saga = fixture->saga, .name = compensation, .output = "" };
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, compensation, 2, "EMPTY");
    enter_and_wait(fixture, &entering, action, 1);
    assert_int_equal(execute(fixture->statements, fixture->first, DONE, &undo), 0);
    must(fixture->first, "COMMIT");
    expect_entered(&entering, "REFUSED");
    must(fixture->second, "ROLLBACK");
}

static void test_u7_a_concurrent_double_is_duplicate_and_never_an_error(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    enter_and_wait(fixture, &entering, action, 2);
    finish(fixture, fixture->first, action, "COMMIT");
    expect_entered(&entering, "DUPLICATE");
    assert_string_equal(entering.answer.output, "receipt");
    must(fixture->second, "COMMIT");
    expect_balance(fixture, 1);
}

static void test_a_double_whose_first_rolls_back_proceeds(void **state)
{
    struct fixture *fixture = *state;
    struct entering entering;
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    enter_and_wait(fixture, &entering, action, 2);
    finish(fixture, fixture->first, action, "ROLLBACK");
    expect_entered(&entering, "PROCEED");
    finish(fixture, fixture->second, action, "COMMIT");
    expect_balance(fixture, 1);
}

static void test_a_lock_that_is_not_given_in_time_is_an_error_and_nothing_is_left_open(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->second, "SET SESSION innodb_lock_wait_timeout = 1");
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    char timeout[16];
    (void)snprintf(timeout, sizeof timeout, "%d", ER_LOCK_WAIT_TIMEOUT);
    expect_run(fixture, fixture->second, compensation, 2, timeout);
    finish(fixture, fixture->first, action, "COMMIT");
    must(fixture->second, "SET SESSION innodb_lock_wait_timeout = DEFAULT");
    expect_run(fixture, fixture->second, compensation, 2, "PROCEED");
    expect_balance(fixture, 0);
}

/* Two steps that want the same two accounts in opposite order: one is the deadlock's victim. */
static void test_a_deadlock_is_repeated_and_the_books_are_even(void **state)
{
    struct fixture *fixture = *state;
    char other[32], sql[160];
    (void)snprintf(other, sizeof other, "%s-b", fixture->saga);
    (void)snprintf(sql, sizeof sql, "INSERT INTO account VALUES ('%s', 0)", other);
    must(fixture->watcher, sql);
    const struct operation mine = {
        .saga = fixture->saga, .name = action, .fence = 1, .output = "r"
    };
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    must(fixture->second, "START TRANSACTION"); /* holds the other account, wants our step */
    (void)snprintf(sql, sizeof sql, "UPDATE account SET balance = balance + 1 WHERE saga = '%s'",
                   other);
    must(fixture->second, sql);
    struct entering entering = {
        .fixture = fixture,
        .conn = fixture->second,
        .watcher = fixture->watcher,
        .operation = { .saga = fixture->saga, .name = compensation, .fence = 2 },
    };
    enter_begin(&entering);
    assert_true(wait_until(is_waiting, &entering, BLOCKED_MS_MAX));
    unsigned error = query(fixture->first, sql);
    char victim[16];
    (void)snprintf(victim, sizeof victim, "%d", ER_LOCK_DEADLOCK);
    if (error == 0) { /* the other one was the victim */
        assert_int_equal(work(fixture, fixture->first, &mine), 0);
        must(fixture->first, "COMMIT");
        expect_entered(&entering, victim);
        must(fixture->second, "ROLLBACK");
    } else {
        assert_int_equal(error, ER_LOCK_DEADLOCK);
        must(fixture->first, "ROLLBACK");
        expect_entered(&entering, "EMPTY");
        must(fixture->second, "ROLLBACK");
        expect_run(fixture, fixture->first, action, 1, "PROCEED");
    }
    proof_fault("deadlock", 1);
    expect_run(fixture, fixture->second, compensation, 2, "PROCEED");
    expect_balance(fixture, 0);
}

/* --- snapshots that are older than what they decide about --- */

static void test_an_old_snapshot_does_not_hide_the_action(void **state)
{
    struct fixture *fixture = *state;
    bool strict = is_strict(fixture);
    char newer[16];
    (void)snprintf(newer, sizeof newer, "%d", CHECKREAD);
    must(fixture->second, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
    expect_enter(fixture, fixture->second, compensation, 2, strict ? newer : "PROCEED");
    must(fixture->second, "ROLLBACK");
    expect_run(fixture, fixture->second, compensation, 2, "PROCEED");
    expect_balance(fixture, 0);
}

static void test_an_old_snapshot_does_not_hide_the_floor(void **state)
{
    struct fixture *fixture = *state;
    bool strict = is_strict(fixture);
    const struct operation above = { .fence = 1 };
    char newer[16];
    (void)snprintf(newer, sizeof newer, "%d", CHECKREAD);
    must(fixture->second, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_FLOOR, &above), 0);
    expect_enter(fixture, fixture->second, action, 2, strict ? newer : "STALE");
    must(fixture->second, "ROLLBACK");
    reset_floor(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_a_repeat_is_duplicate_with_the_stored_output),
        GUARD_TEST(test_u1_an_action_that_comes_after_its_compensation_is_refused),
        GUARD_TEST(test_u2_empty_then_duplicate_then_the_late_action_is_refused),
        GUARD_TEST(test_u5_even_without_an_action_the_compensation_runs),
        GUARD_TEST(test_u6_ids_that_look_alike_are_not_the_same),
        GUARD_TEST(test_a_lower_fence_after_a_higher_one_is_stale),
        GUARD_TEST(test_an_action_that_had_no_effect_has_nothing_to_undo),
        GUARD_TEST(test_autocommit_is_refused),
        GUARD_TEST(test_a_commit_without_done_is_found_and_never_guessed),
        GUARD_TEST(test_entering_twice_is_no_answer),
        GUARD_TEST(test_done_without_enter_changes_no_row),
        GUARD_TEST(test_a_worker_may_neither_delete_rows_nor_write_another_operation),
        GUARD_TEST(test_u1_compensation_waits_for_an_action_that_is_still_open_then_undoes_it),
        GUARD_TEST(test_u1_compensation_of_an_open_action_that_rolls_back_is_empty),
        GUARD_TEST(test_u1_an_action_that_waits_for_its_open_compensation_is_refused),
        GUARD_TEST(test_u7_a_concurrent_double_is_duplicate_and_never_an_error),
        GUARD_TEST(test_a_double_whose_first_rolls_back_proceeds),
        GUARD_TEST(test_a_lock_that_is_not_given_in_time_is_an_error_and_nothing_is_left_open),
        GUARD_TEST(test_a_deadlock_is_repeated_and_the_books_are_even),
        GUARD_TEST(test_an_old_snapshot_does_not_hide_the_action),
        GUARD_TEST(test_an_old_snapshot_does_not_hide_the_floor),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
