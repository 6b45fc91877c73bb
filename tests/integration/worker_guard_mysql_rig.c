#include "worker_guard_mysql_rig.h"

#include "base/mem.h"

#include <stdio.h>

static char text_default[] = "default", text_settle[] = "settle", text_debit[] = "debit";

void attempt_init(struct attempt *attempt, const char *saga, Saga__V1__OperationKind operation,
                  int64_t fence)
{
    MYSQL *conn = attempt->conn;
    struct saga_guard_mysql *guard = attempt->guard;
    memset(attempt, 0, sizeof *attempt);
    attempt->conn = conn;
    attempt->guard = guard;
    (void)snprintf(attempt->saga, sizeof attempt->saga, "%s", saga);
    saga__v1__task__init(&attempt->wire);
    google__protobuf__timestamp__init(&attempt->start);
    attempt->start.seconds = 1700000000;
    attempt->wire.namespace_ = text_default;
    attempt->wire.definition = text_settle;
    attempt->wire.saga_id = attempt->saga;
    attempt->wire.step = text_debit;
    attempt->wire.run = 1;
    attempt->wire.operation = operation;
    attempt->wire.saga_start_time = &attempt->start;
    attempt->task.message = &attempt->wire;
    attempt->task.fence = fence;
    attempt->task.output_bytes_max = SAGA_OUTPUT_MAX;
}

void attempt_turn(struct attempt *attempt, Saga__V1__OperationKind operation, int64_t fence)
{
    attempt->wire.operation = operation;
    attempt->task.fence = fence;
}

int setup(void **state)
{
    static struct fixture fixture;
    struct err err;
    SETUP_OK(test_mariadb_start(NULL, &fixture.mariadb, &err), &err);
    SETUP_OK(test_mariadb_createdb(fixture.mariadb, "shop", &err), &err);
    SETUP_OK(test_mariadb_createdb(fixture.mariadb, "bare", &err), &err);
    SETUP_OK(
        test_mariadb_script(fixture.mariadb, "shop", SOURCE_DIR "/sql/guard/mysql.sql", NULL, &err),
        &err);
    SETUP_OK(
        test_mariadb_exec(fixture.mariadb, "shop",
                          "CREATE TABLE effect (saga varchar(64) NOT NULL, amount int NOT NULL,"
                          " KEY (saga));"
                          "CREATE TABLE heavy (id int PRIMARY KEY, amount int NOT NULL);"
                          "INSERT INTO heavy SELECT seq, 0 FROM seq_1_to_100",
                          &err),
        &err);
    *state = &fixture;
    return 0;
}

int teardown(void **state)
{
    struct fixture *fixture = *state;
    (void)test_mariadb_free(fixture->mariadb); /* always NULL */
    return 0;
}

bool in_transaction(MYSQL *conn)
{
    unsigned status = 0;
    return mysql_ping(conn) == 0 &&
           mariadb_get_infov(conn, MARIADB_CONNECTION_SERVER_STATUS, &status) == 0 &&
           (status & SERVER_STATUS_IN_TRANS) != 0;
}

int new_saga(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    char saga[32];
    (void)snprintf(saga, sizeof saga, "order-%d", ++fixture->next_saga);
    attempt_init(&fixture->attempt, saga, ACTION, 5);
    SETUP_OK(test_mariadb_connect(fixture->mariadb, NULL, "shop", &fixture->attempt.conn, &err),
             &err);
    return saga_guard_mysql_new(fixture->attempt.conn, &fixture->attempt.guard);
}

int end_saga(void **state)
{
    struct fixture *fixture = *state;
    bool open = in_transaction(fixture->attempt.conn);
    mysql_close(fixture->attempt.conn);
    fixture->attempt.guard = saga_guard_mysql_free(fixture->attempt.guard);
    task_outcome_clear(&fixture->attempt.task.outcome);
    return open ? -1 : 0;
}

int effect(struct attempt *attempt)
{
    char sql[128];
    attempt->bodies++;
    (void)snprintf(sql, sizeof sql, "INSERT INTO effect VALUES ('%s', %d)", attempt->saga,
                   attempt->wire.operation == ACTION ? 1 : -1);
    return mysql_query(attempt->conn, sql) == 0 ? 0 : -1;
}

int body_plain(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)conn;
    return effect(ctx);
}

void run(struct fixture *fixture, saga_guard_mysql_body *body)
{
    fixture->attempt.bodies = 0;
    saga_guard_mysql_run(&fixture->attempt.task, fixture->attempt.guard, NULL, body,
                         &fixture->attempt);
}

void expect(const struct attempt *attempt, Saga__V1__Outcome kind, const char *code)
{
    const struct task_outcome *outcome = &attempt->task.outcome;
    if (outcome->kind != kind || (code && (!outcome->code || strcmp(outcome->code, code) != 0)))
        fail_msg("outcome %d %s %s, not %d %s", (int)outcome->kind,
                 outcome->code ? outcome->code : "-", outcome->message ? outcome->message : "-",
                 (int)kind, code ? code : "-");
}

void expect_effects(struct fixture *fixture, const char *saga, int64_t effects)
{
    char sql[128];
    struct err err;
    int64_t sum;
    (void)snprintf(sql, sizeof sql, "SELECT coalesce(sum(amount), 0) FROM effect WHERE saga = '%s'",
                   saga);
    ASSERT_OK(test_mariadb_count(fixture->mariadb, "shop", sql, &sum, &err), &err);
    assert_int_equal(sum, effects);
}
