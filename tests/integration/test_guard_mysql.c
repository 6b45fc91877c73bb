/* The guard's statements for MySQL and MariaDB. Goal: an effect happens at most once for each saga,
 * step and operation, and never after its compensation, whoever races whom. Method: the statements
 * are taken out of sql/guard/mysql.sql, so that what is tested is what people read; a business
 * table (account) that every PROCEED changes by one; two connections, one of which is held open
 * inside its transaction until the other is seen waiting for a lock. Each test runs at READ
 * COMMITTED, at REPEATABLE READ, and there with MariaDB's snapshot isolation. */
#include "support/check.h"

#include "base/mem.h"
#include "guard_statements.h"
#include "support/mariadb.h"
#include "support/proof.h"
#include "support/wait.h"

#include <mysqld_error.h>
#include <pthread.h>
#include <stdio.h>

enum {
    BLOCKED_MS_MAX = 20000,
    RACERS = 8,
    RACE_ROUNDS = 10,
    REPEATS_MAX = 200,
    CHECKREAD = 1020, /* snapshot isolation: the row is newer than the snapshot */
};

struct fixture {
    struct test_mariadb *mariadb;
    MYSQL *first, *second, *watcher;
    struct guard_statements *statements;
    const char *level;
    int next_saga;
    char saga[32]; /* a new one for each test */
    int64_t deadlocks;
};

struct answer {
    char word[16]; /* the answer, or the number of the error */
    char output[64];
};

static unsigned query(MYSQL *conn, const char *sql)
{
    return mysql_query(conn, sql) == 0 ? 0 : mysql_errno(conn);
}

static void must(MYSQL *conn, const char *sql)
{
    if (query(conn, sql) != 0)
        fail_msg("%s: %s", sql, mysql_error(conn));
}

/* --- a guarded transaction, as README.md says --- */

static struct answer error_answer(unsigned error)
{
    struct answer answer = { .word = "", .output = "" };
    (void)snprintf(answer.word, sizeof answer.word, "%u", error);
    return answer;
}

static struct answer enter(const struct fixture *fixture, MYSQL *conn,
                           const struct operation *operation)
{
    bool compensates = operation->name == compensation;
    enum statement order[] = { SAVEPOINT, RELEASE, compensates ? BLOCK_ACTION : CLAIM, CLAIM,
                               compensates ? ASK_COMPENSATION : ASK_ACTION };
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        if (order[i] == CLAIM && i == 2)
            continue;
        unsigned error = execute(fixture->statements, conn, order[i], operation);
        if (error != 0)
            return error_answer(error);
    }
    struct answer answer = { .word = "", .output = "" };
    MYSQL_RES *result = mysql_store_result(conn);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    if (row) {
        (void)snprintf(answer.word, sizeof answer.word, "%s", row[0]);
        (void)snprintf(answer.output, sizeof answer.output, "%s", row[1] ? row[1] : "");
    }
    mysql_free_result(result);
    return answer;
}

static bool is(const struct answer *answer, const char *word)
{
    return strcmp(answer->word, word) == 0;
}

/* The effect itself: an action adds one, its compensation takes one away. Then the statement 5. */
static unsigned work(const struct fixture *fixture, MYSQL *conn, const struct operation *operation)
{
    char sql[160];
    (void)snprintf(sql, sizeof sql, "UPDATE account SET balance = balance %s 1 WHERE saga = '%s'",
                   operation->name == action ? "+" : "-", operation->saga);
    unsigned error = query(conn, sql);
    return error != 0 ? error : execute(fixture->statements, conn, DONE, operation);
}

/* A whole one; returns what enter answered, or the error. */
static struct answer run(const struct fixture *fixture, MYSQL *conn,
                         const struct operation *operation)
{
    unsigned error = query(conn, "START TRANSACTION");
    struct answer answer = error != 0 ? error_answer(error) : enter(fixture, conn, operation);
    if (is(&answer, "PROCEED"))
        error = work(fixture, conn, operation);
    else if (is(&answer, "EMPTY"))
        error = execute(fixture->statements, conn, DONE, operation);
    bool stands = is(&answer, "PROCEED") || is(&answer, "EMPTY") || is(&answer, "DUPLICATE");
    if (error == 0)
        error = query(conn, stands ? "COMMIT" : "ROLLBACK");
    if (error != 0) {
        (void)mysql_query(conn, "ROLLBACK"); /* also where the server has done it by itself */
        return error_answer(error);
    }
    return answer;
}

static void expect_run(struct fixture *fixture, MYSQL *conn, const char *name, long fence,
                       const char *word)
{
    const struct operation operation = {
        .saga = fixture->saga, .name = name, .fence = fence, .output = "receipt"
    };
    struct answer answer = run(fixture, conn, &operation);
    assert_string_equal(answer.word, word);
}

static void expect_enter(struct fixture *fixture, MYSQL *conn, const char *name, long fence,
                         const char *word)
{
    const struct operation operation = { .saga = fixture->saga, .name = name, .fence = fence };
    struct answer answer = enter(fixture, conn, &operation);
    assert_string_equal(answer.word, word);
}

static void finish(struct fixture *fixture, MYSQL *conn, const char *name, const char *end)
{
    const struct operation operation = { .saga = fixture->saga, .name = name, .output = "receipt" };
    assert_int_equal(work(fixture, conn, &operation), 0);
    must(conn, end);
}

static int64_t count(struct fixture *fixture, const char *sql)
{
    struct err err;
    int64_t number = -1;
    ASSERT_OK(test_mariadb_count(fixture->mariadb, "shop", sql, &number, &err), &err);
    return number;
}

static void expect_balance(struct fixture *fixture, int64_t balance)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql, "SELECT balance FROM account WHERE saga = '%s'", fixture->saga);
    assert_int_equal(count(fixture, sql), balance);
}

/* --- a second transaction that waits for the first --- */

struct entering {
    struct fixture *fixture;
    MYSQL *conn, *watcher;
    struct operation operation;
    struct answer answer;
    pthread_t thread;
};

static void *enter_thread(void *ctx)
{
    struct entering *entering = ctx;
    entering->answer = enter(entering->fixture, entering->conn, &entering->operation);
    return NULL;
}

/* Of all transactions of the server. (information_schema.innodb_trx shows nothing new to whoever
 * looks more often than ten times a second.) */
static bool is_waiting(void *ctx)
{
    struct entering *entering = ctx;
    if (mysql_query(entering->watcher,
                    "SELECT variable_value FROM information_schema.global_status"
                    " WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'") != 0)
        return false;
    MYSQL_RES *result = mysql_store_result(entering->watcher);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    bool found = row && row[0] && strcmp(row[0], "1") == 0;
    mysql_free_result(result);
    return found;
}

/* Begins on the second connection and enters there; returns when that waits for a lock. */
static void enter_and_wait(struct fixture *fixture, struct entering *entering, const char *name,
                           long fence)
{
    *entering = (struct entering){
        .fixture = fixture,
        .conn = fixture->second,
        .watcher = fixture->watcher,
        .operation = { .saga = fixture->saga, .name = name, .fence = fence },
    };
    must(fixture->second, "START TRANSACTION");
    assert_int_equal(pthread_create(&entering->thread, NULL, enter_thread, entering), 0);
    assert_true(wait_until(is_waiting, entering, BLOCKED_MS_MAX));
}

static void expect_entered(struct entering *entering, const char *word)
{
    assert_int_equal(pthread_join(entering->thread, NULL), 0);
    assert_string_equal(entering->answer.word, word);
}

/* --- setup --- */

static int setup(void **state)
{
    static struct fixture fixture;
    struct err err;
    if (guard_statements_read(&fixture.statements) != 0) {
        print_error("sql/guard/mysql.sql does not hold the statements that are expected\n");
        return -1;
    }
    SETUP_OK(test_mariadb_start(NULL, &fixture.mariadb, &err), &err);
    SETUP_OK(test_mariadb_createdb(fixture.mariadb, "shop", &err), &err);
    /* Twice: the file may be run again at any time. */
    for (int i = 0; i < 2; i++)
        SETUP_OK(test_mariadb_script(fixture.mariadb, "shop", SOURCE_DIR "/sql/guard/mysql.sql",
                                     NULL, &err),
                 &err);
    SETUP_OK(test_mariadb_exec(fixture.mariadb, "shop",
                               "CREATE TABLE account (saga varbinary(64) PRIMARY KEY, balance int);"
                               "CREATE USER worker;"
                               "GRANT SELECT, INSERT, UPDATE ON saga_guard TO worker;"
                               "GRANT SELECT, UPDATE ON saga_guard_floor TO worker;"
                               "GRANT SELECT, INSERT, UPDATE ON account TO worker",
                               &err),
             &err);
    SETUP_OK(test_mariadb_connect(fixture.mariadb, "worker", "shop", &fixture.first, &err), &err);
    SETUP_OK(test_mariadb_connect(fixture.mariadb, "worker", "shop", &fixture.second, &err), &err);
    SETUP_OK(test_mariadb_connect(fixture.mariadb, NULL, "shop", &fixture.watcher, &err), &err);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    proof_fault("deadlock", fixture->deadlocks);
    mysql_close(fixture->first);
    mysql_close(fixture->second);
    mysql_close(fixture->watcher);
    fixture->statements = guard_statements_free(fixture->statements);
    (void)test_mariadb_free(fixture->mariadb); /* always NULL */
    return 0;
}

static const char read_committed[] = "SET SESSION innodb_snapshot_isolation = OFF,"
                                     " tx_isolation = 'READ-COMMITTED'",
                  repeatable_read[] = "SET SESSION innodb_snapshot_isolation = OFF,"
                                      " tx_isolation = 'REPEATABLE-READ'",
                  snapshot_isolation[] = "SET SESSION innodb_snapshot_isolation = ON,"
                                         " tx_isolation = 'REPEATABLE-READ'";

static int new_saga(struct fixture *fixture)
{
    char sql[128];
    (void)snprintf(fixture->saga, sizeof fixture->saga, "order-%d", ++fixture->next_saga);
    (void)snprintf(sql, sizeof sql, "INSERT INTO account VALUES ('%s', 0)", fixture->saga);
    return query(fixture->watcher, sql) == 0 ? 0 : -1;
}

static int begin_test(void **state, const char *level)
{
    struct fixture *fixture = *state;
    fixture->level = level;
    if (query(fixture->first, level) != 0 || query(fixture->second, level) != 0) {
        print_error("%s: %s\n", level, mysql_error(fixture->first));
        return -1;
    }
    return new_saga(fixture);
}

static int at_read_committed(void **state)
{
    return begin_test(state, read_committed);
}

static int at_repeatable_read(void **state)
{
    return begin_test(state, repeatable_read);
}

static int at_snapshot_isolation(void **state)
{
    return begin_test(state, snapshot_isolation);
}

static bool in_transaction(MYSQL *conn)
{
    unsigned status = 0;
    return mysql_ping(conn) != 0 ||
           mariadb_get_infov(conn, MARIADB_CONNECTION_SERVER_STATUS, &status) != 0 ||
           (status & SERVER_STATUS_IN_TRANS) != 0;
}

static int connections_are_idle(void **state)
{
    struct fixture *fixture = *state;
    bool idle = !in_transaction(fixture->first) && !in_transaction(fixture->second);
    (void)mysql_query(fixture->first, "ROLLBACK"); /* so that one failed test spoils no other */
    (void)mysql_query(fixture->second, "ROLLBACK");
    (void)mysql_query(fixture->watcher, "ROLLBACK");
    return idle ? 0 : -1;
}

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

/* After a business no, in a transaction of its own. */
static void no_effect(struct fixture *fixture, const char *name, long fence)
{
    const struct operation operation = { .saga = fixture->saga, .name = name, .fence = fence };
    must(fixture->first, "START TRANSACTION");
    struct answer answer = enter(fixture, fixture->first, &operation);
    assert_string_equal(answer.word, "PROCEED");
    assert_int_equal(execute(fixture->statements, fixture->first, NO_EFFECT, &operation), 0);
    if (name == compensation)
        assert_int_equal(execute(fixture->statements, fixture->first, UNBLOCK, &operation), 0);
    must(fixture->first, "COMMIT");
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
    assert_int_equal(pthread_create(&entering.thread, NULL, enter_thread, &entering), 0);
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
    fixture->deadlocks++;
    expect_run(fixture, fixture->second, compensation, 2, "PROCEED");
    expect_balance(fixture, 0);
}

/* --- snapshots that are older than what they decide about --- */

static void test_an_old_snapshot_does_not_hide_the_action(void **state)
{
    struct fixture *fixture = *state;
    bool strict = fixture->level == snapshot_isolation;
    char newer[16];
    (void)snprintf(newer, sizeof newer, "%d", CHECKREAD);
    must(fixture->second, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
    expect_enter(fixture, fixture->second, compensation, 2, strict ? newer : "PROCEED");
    must(fixture->second, "ROLLBACK");
    expect_run(fixture, fixture->second, compensation, 2, "PROCEED");
    expect_balance(fixture, 0);
}

static void reset_floor(struct fixture *fixture)
{
    must(fixture->watcher, "UPDATE saga_guard_floor SET floor_us = -9223372036854775808");
}

static void test_an_old_snapshot_does_not_hide_the_floor(void **state)
{
    struct fixture *fixture = *state;
    bool strict = fixture->level == snapshot_isolation;
    const struct operation above = { .fence = 1 };
    char newer[16];
    (void)snprintf(newer, sizeof newer, "%d", CHECKREAD);
    must(fixture->second, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_FLOOR, &above), 0);
    expect_enter(fixture, fixture->second, action, 2, strict ? newer : "STALE");
    must(fixture->second, "ROLLBACK");
    reset_floor(fixture);
}

/* --- the floor --- */

static void test_below_the_floor_everything_unknown_is_stale_and_rows_can_be_purged(void **state)
{
    struct fixture *fixture = *state;
    char known[32];
    const struct operation above = { .fence = 1 }, below = { .fence = -1000 };
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_FLOOR, &above), 0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_FLOOR, &below),
                     0); /* never down */
    expect_run(fixture, fixture->first, action, 1, "DUPLICATE");
    expect_run(fixture, fixture->first, compensation, 2, "STALE");
    (void)snprintf(known, sizeof known, "%s", fixture->saga);
    assert_int_equal(new_saga(fixture), 0);
    expect_run(fixture, fixture->first, action, 1, "STALE");
    expect_run(fixture, fixture->first, compensation, 2, "STALE");
    must(fixture->watcher,
         "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence,"
         " state, saga_started_us) SELECT 'purge', 'settle', seq, 1, 's', 'ACTION', 1, 'DONE', 1"
         " FROM seq_1_to_1500");
    must(fixture->watcher,
         "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence,"
         " state, saga_started_us) VALUES ('purge', 'settle', 'young', 1, 's', 'ACTION', 1, 'DONE',"
         " 9000000000000000)");
    assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE_LEVEL, &above), 0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE_WAIT, &above), 0);
    uint64_t gone = 0, rows;
    int batches = 0;
    do {
        assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE, &above), 0);
        rows = mysql_affected_rows(fixture->watcher);
        assert_true(rows <= 1000);
        gone += rows;
        batches++;
    } while (rows > 0);
    assert_true(gone >= 1501 && batches >= 3);
    assert_int_equal(count(fixture, "SELECT count(*) FROM saga_guard"), 1);
    must(fixture->watcher, "DELETE FROM saga_guard");
    (void)snprintf(fixture->saga, sizeof fixture->saga, "%s", known);
    expect_run(fixture, fixture->first, action, 1, "STALE");
    expect_balance(fixture, 1);
    reset_floor(fixture);
}

/* A purge whose transaction is still open: nobody above the floor waits for it, nor it for them.
 * (It looks at the first row above the floor, too, which here is one of a saga that has ended; and
 * at all rows, where there are few.) */
static void test_a_purge_does_not_stop_sagas_above_the_floor(void **state)
{
    struct fixture *fixture = *state;
    const struct operation below = { .fence = -1000 };
    must(fixture->watcher,
         "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence,"
         " state, saga_started_us) SELECT 'purge', 'settle', seq, 1, 's', 'ACTION', 1, 'DONE', 1"
         " FROM seq_1_to_10");
    must(fixture->watcher,
         "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence,"
         " state, saga_started_us) SELECT 'purge', 'settle', seq, 1, 't', 'ACTION', 1, 'DONE',"
         " 1714564799999000 + seq FROM seq_1_to_5000");
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_FLOOR, &below), 0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE_LEVEL, &below), 0);
    assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE_WAIT, &below), 0);
    must(fixture->first, "START TRANSACTION");
    expect_enter(fixture, fixture->first, action, 1, "PROCEED");
    must(fixture->watcher, "START TRANSACTION");
    assert_int_equal(execute(fixture->statements, fixture->watcher, PURGE, &below), 0);
    assert_int_equal(mysql_affected_rows(fixture->watcher), 10);
    finish(fixture, fixture->first, action, "COMMIT");
    must(fixture->second, "SET SESSION innodb_lock_wait_timeout = 1");
    expect_run(fixture, fixture->second, compensation, 2, "PROCEED");
    must(fixture->second, "SET SESSION innodb_lock_wait_timeout = DEFAULT");
    must(fixture->watcher, "COMMIT");
    expect_balance(fixture, 0);
    must(fixture->watcher, "DELETE FROM saga_guard");
    reset_floor(fixture);
}

/* --- many at once --- */

struct racer {
    struct fixture *fixture;
    MYSQL *conn;
    pthread_barrier_t *barrier;
    struct operation operation;
    int repeats;
    struct answer answer;
    pthread_t thread;
};

static bool is_error(const struct answer *answer)
{
    return answer->word[0] >= '0' && answer->word[0] <= '9';
}

static void *race(void *ctx)
{
    struct racer *racer = ctx;
    (void)pthread_barrier_wait(racer->barrier);
    for (; racer->repeats < REPEATS_MAX; racer->repeats++) {
        racer->answer = run(racer->fixture, racer->conn, &racer->operation);
        unsigned error = (unsigned)strtoul(racer->answer.word, NULL, 10);
        if (error != ER_LOCK_DEADLOCK && error != ER_LOCK_WAIT_TIMEOUT && error != CHECKREAD)
            break;
    }
    mysql_thread_end();
    return NULL;
}

static void race_round(struct fixture *fixture, MYSQL *conns[RACERS], int sagas)
{
    char names[RACERS][32];
    struct racer racers[RACERS];
    pthread_barrier_t barrier;
    for (int i = 0; i < sagas; i++) {
        assert_int_equal(new_saga(fixture), 0);
        memcpy(names[i], fixture->saga, sizeof names[i]);
    }
    pthread_barrier_init(&barrier, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        bool compensates = i / sagas % 4 == 3 || (sagas > 2 && i / sagas == 1);
        racers[i] = (struct racer){
            .fixture = fixture,
            .conn = conns[i],
            .barrier = &barrier,
            .operation = { .saga = names[i % sagas],
                           .name = compensates ? compensation : action,
                           .fence = compensates ? 100 + i : 1 + i,
                           .output = "r" },
        };
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    int proceeded[RACERS] = { 0 }, compensated[RACERS] = { 0 };
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(racers[i].thread, NULL), 0);
        const struct answer *answer = &racers[i].answer;
        if (is_error(answer) || is(answer, "LEFT_OPEN") || answer->word[0] == '\0')
            fail_msg("racer %d ended with \"%s\" after %d repeats", i, answer->word,
                     racers[i].repeats);
        bool compensates = racers[i].operation.name == compensation;
        if (is(answer, "PROCEED"))
            proceeded[i % sagas] += compensates ? -1 : 1;
        compensated[i % sagas] += compensates && (is(answer, "PROCEED") || is(answer, "EMPTY"));
        fixture->deadlocks += racers[i].repeats;
    }
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < sagas; i++) {
        assert_int_equal(proceeded[i], 0);
        assert_int_equal(compensated[i], 1);
        memcpy(fixture->saga, names[i], sizeof names[i]);
        expect_balance(fixture, 0);
    }
}

/* Actions and compensations of one step, then of neighbouring ones, all at once. Whatever the
 * order: the books are even, no racer ends in an error, one compensation of each step takes effect.
 */
static void test_actions_and_compensations_at_once_leave_the_books_even(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    MYSQL *conns[RACERS];
    for (int i = 0; i < RACERS; i++) {
        ASSERT_OK(test_mariadb_connect(fixture->mariadb, "worker", "shop", &conns[i], &err), &err);
        must(conns[i], fixture->level);
    }
    int rounds = test_is_full_size() ? 10 * RACE_ROUNDS : RACE_ROUNDS;
    for (int round = 0; round < rounds; round++) {
        race_round(fixture, conns, 1);
        race_round(fixture, conns, 2);
        race_round(fixture, conns, 4);
    }
    for (int i = 0; i < RACERS; i++)
        mysql_close(conns[i]);
}

/* --- the whole --- */

static void test_found_rows_in_place_of_changed_ones_change_nothing(void **state)
{
    struct fixture *fixture = *state;
    MYSQL *conn = mysql_init(NULL);
    assert_non_null(mysql_real_connect(conn, NULL, "worker", "", "shop", 0,
                                       test_mariadb_socket(fixture->mariadb), CLIENT_FOUND_ROWS));
    must(conn, fixture->level); /* as JDBC connects */
    expect_run(fixture, conn, action, 1, "PROCEED");
    expect_run(fixture, conn, action, 1, "DUPLICATE");
    expect_run(fixture, conn, compensation, 2, "PROCEED");
    expect_run(fixture, conn, compensation, 2, "DUPLICATE");
    mysql_close(conn);
    expect_balance(fixture, 0);
}

static void test_the_selftest_finds_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    CLEANUP(mem_free_p) char *output = NULL;
    ASSERT_OK(test_mariadb_script(fixture->mariadb, "shop",
                                  SOURCE_DIR "/sql/guard/mysql_selftest.sql", &output, &err),
              &err);
    if (strstr(output, "FAILED") || !strstr(output, "0 of 17 checks failed"))
        fail_msg("%s", output);
    assert_int_equal(
        count(fixture, "SELECT count(*) FROM saga_guard WHERE namespace = 'guard-selftest'"), 0);
}

#define GUARD_TEST(test)                                                                           \
    { #test "_at_read_committed", test, at_read_committed, connections_are_idle, NULL },           \
        { #test "_at_repeatable_read", test, at_repeatable_read, connections_are_idle, NULL },     \
    {                                                                                              \
#test "_at_snapshot_isolation", test, at_snapshot_isolation, connections_are_idle, NULL    \
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
        GUARD_TEST(test_below_the_floor_everything_unknown_is_stale_and_rows_can_be_purged),
        GUARD_TEST(test_a_purge_does_not_stop_sagas_above_the_floor),
        GUARD_TEST(test_actions_and_compensations_at_once_leave_the_books_even),
        GUARD_TEST(test_found_rows_in_place_of_changed_ones_change_nothing),
        GUARD_TEST(test_the_selftest_finds_nothing),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
