#include "guard_mysql_rig.h"

#include "base/mem.h"
#include "support/wait.h"

#include <mysqld_error.h>
#include <stdio.h>

unsigned query(MYSQL *conn, const char *sql)
{
    return mysql_query(conn, sql) == 0 ? 0 : mysql_errno(conn);
}

void must(MYSQL *conn, const char *sql)
{
    if (query(conn, sql) != 0)
        fail_msg("%s: %s", sql, mysql_error(conn));
}

struct answer error_answer(unsigned error)
{
    struct answer answer = { .word = "", .output = "" };
    (void)snprintf(answer.word, sizeof answer.word, "%u", error);
    return answer;
}

struct answer enter(const struct fixture *fixture, MYSQL *conn, const struct operation *operation)
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

bool is(const struct answer *answer, const char *word)
{
    return strcmp(answer->word, word) == 0;
}

unsigned effect(MYSQL *conn, const struct operation *operation)
{
    char sql[160];
    (void)snprintf(sql, sizeof sql, "UPDATE account SET balance = balance %s 1 WHERE saga = '%s'",
                   operation->name == action ? "+" : "-", operation->saga);
    return query(conn, sql);
}

unsigned work(const struct fixture *fixture, MYSQL *conn, const struct operation *operation)
{
    unsigned error = effect(conn, operation);
    return error != 0 ? error : execute(fixture->statements, conn, DONE, operation);
}

struct answer enter_shortly(const struct fixture *fixture, MYSQL *conn,
                            const struct operation *operation)
{
    static const enum statement order[] = { SAVEPOINT, RELEASE, ONCE };
    struct answer answer = { .word = "", .output = "" };
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        unsigned error = execute(fixture->statements, conn, order[i], operation);
        if (error != 0)
            return order[i] == ONCE && (error == ER_DUP_ENTRY || error == ER_CONSTRAINT_FAILED)
                       ? answer
                       : error_answer(error);
    }
    (void)snprintf(answer.word, sizeof answer.word, "PROCEED"); /* fits */
    return answer;
}

/* True: it has ended with that answer. False: the long way tells. */
static bool run_shortly(const struct fixture *fixture, MYSQL *conn,
                        const struct operation *operation, struct answer *ret_answer)
{
    unsigned error = query(conn, "START TRANSACTION");
    *ret_answer = error != 0 ? error_answer(error) : enter_shortly(fixture, conn, operation);
    if (is(ret_answer, "PROCEED")) {
        error = effect(conn, operation);
        if (error == 0)
            error = query(conn, "COMMIT");
        if (error == 0)
            return true;
        *ret_answer = error_answer(error);
    }
    (void)mysql_query(conn, "ROLLBACK"); /* also where the server has done it by itself */
    return ret_answer->word[0] != '\0';
}

struct answer run(const struct fixture *fixture, MYSQL *conn, const struct operation *operation)
{
    struct answer answer;
    if (operation->short_way && run_shortly(fixture, conn, operation, &answer))
        return answer;
    unsigned error = query(conn, "START TRANSACTION");
    answer = error != 0 ? error_answer(error) : enter(fixture, conn, operation);
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

void expect_run(struct fixture *fixture, MYSQL *conn, const char *name, long fence,
                const char *word)
{
    const struct operation operation = {
        .saga = fixture->saga, .name = name, .fence = fence, .output = "receipt"
    };
    struct answer answer = run(fixture, conn, &operation);
    assert_string_equal(answer.word, word);
}

void expect_enter(struct fixture *fixture, MYSQL *conn, const char *name, long fence,
                  const char *word)
{
    const struct operation operation = { .saga = fixture->saga, .name = name, .fence = fence };
    struct answer answer = enter(fixture, conn, &operation);
    assert_string_equal(answer.word, word);
}

void finish(struct fixture *fixture, MYSQL *conn, const char *name, const char *end)
{
    const struct operation operation = { .saga = fixture->saga, .name = name, .output = "receipt" };
    assert_int_equal(work(fixture, conn, &operation), 0);
    must(conn, end);
}

int64_t count(struct fixture *fixture, const char *sql)
{
    struct err err;
    int64_t number = -1;
    ASSERT_OK(test_mariadb_count(fixture->mariadb, "shop", sql, &number, &err), &err);
    return number;
}

void expect_balance(struct fixture *fixture, int64_t balance)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql, "SELECT balance FROM account WHERE saga = '%s'", fixture->saga);
    assert_int_equal(count(fixture, sql), balance);
}

static void *enter_thread(void *ctx)
{
    struct entering *entering = ctx;
    entering->answer = enter(entering->fixture, entering->conn, &entering->operation);
    return NULL;
}

void enter_begin(struct entering *entering)
{
    assert_int_equal(pthread_create(&entering->thread, NULL, enter_thread, entering), 0);
}

/* Of all transactions of the server. (information_schema.innodb_trx shows nothing new to whoever
 * looks more often than ten times a second.) */
bool is_waiting(void *ctx)
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

void enter_and_wait(struct fixture *fixture, struct entering *entering, const char *name,
                    long fence)
{
    *entering = (struct entering){
        .fixture = fixture,
        .conn = fixture->second,
        .watcher = fixture->watcher,
        .operation = { .saga = fixture->saga, .name = name, .fence = fence },
    };
    must(fixture->second, "START TRANSACTION");
    enter_begin(entering);
    assert_true(wait_until(is_waiting, entering, BLOCKED_MS_MAX));
}

void expect_entered(struct entering *entering, const char *word)
{
    assert_int_equal(pthread_join(entering->thread, NULL), 0);
    assert_string_equal(entering->answer.word, word);
}

int setup(void **state)
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

int teardown(void **state)
{
    struct fixture *fixture = *state;
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

int new_saga(struct fixture *fixture)
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

int at_read_committed(void **state)
{
    return begin_test(state, read_committed);
}

int at_repeatable_read(void **state)
{
    return begin_test(state, repeatable_read);
}

int at_snapshot_isolation(void **state)
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

int connections_are_idle(void **state)
{
    struct fixture *fixture = *state;
    bool idle = !in_transaction(fixture->first) && !in_transaction(fixture->second);
    (void)mysql_query(fixture->first, "ROLLBACK"); /* so that one failed test spoils no other */
    (void)mysql_query(fixture->second, "ROLLBACK");
    (void)mysql_query(fixture->watcher, "ROLLBACK");
    return idle ? 0 : -1;
}

void no_effect(struct fixture *fixture, const char *name, long fence)
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

static void raise_short(struct fixture *fixture)
{
    static const enum statement order[] = { RAISE_SHORT_TEXT, RAISE_SHORT_PREPARE, RAISE_SHORT };
    const struct operation none = { .saga = "" };
    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        assert_int_equal(execute(fixture->statements, fixture->watcher, order[i], &none), 0);
}

void raise_floor(struct fixture *fixture, long by_us)
{
    const struct operation by = { .fence = by_us };
    assert_int_equal(execute(fixture->statements, fixture->watcher, RAISE_FLOOR, &by), 0);
    raise_short(fixture);
}

void reset_floor(struct fixture *fixture)
{
    must(fixture->watcher, "UPDATE saga_guard_floor SET floor_us = -9223372036854775808");
    raise_short(fixture);
}

bool is_strict(const struct fixture *fixture)
{
    return fixture->level == snapshot_isolation;
}
