/* The guarded transaction of the C SDK. Goal: whatever the guard, the body or the connection does,
 * the outcome says no more than what is certain, and no transaction is left open. Method: tasks
 * made here, a real database, bodies and deferred triggers that misbehave at the chosen moment. */
#include "support/check.h"

#include "base/buf.h"
#include "support/postgres.h"
#include "task.h"

#include <libpq-fe.h>
#include <stdio.h>

struct fixture {
    struct test_postgres *postgres;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn;
    struct saga_task task;
    Saga__V1__Task wire;
    Google__Protobuf__Timestamp start;
    char saga[32];
    int next_saga;
};

static char text_default[] = "default", text_settle[] = "settle", text_debit[] = "debit";

static void must(PGconn *conn, const char *sql)
{
    PGresult *res = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(res);
    PQclear(res);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
}

static int install_guard(struct fixture *fixture)
{
    struct err err;
    FILE *file = fopen(SOURCE_DIR "/sql/guard/postgresql.sql", "re");
    if (!file)
        return -1;
    struct buf sql = { .limit = 1 << 20 };
    for (size_t got = 1; got > 0;) {
        uint8_t *room = buf_room(&sql, 4096);
        if (!room)
            break;
        got = fread(room, 1, 4096, file);
        buf_added(&sql, got);
    }
    buf_text(&sql, "");
    (void)fclose(file); /* was only read */
    int rc = test_postgres_exec(fixture->postgres, "shop", buf_cstr(&sql), &err);
    buf_done(&sql);
    SETUP_OK(rc, &err);
    return 0;
}

static int setup(void **state)
{
    static struct fixture fixture;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &fixture.postgres, &err), &err);
    SETUP_OK(test_postgres_createdb(fixture.postgres, "shop", fixture.conninfo, &err), &err);
    SETUP_OK(test_postgres_createdb(fixture.postgres, "bare", NULL, &err), &err);
    if (install_guard(&fixture) != 0)
        return -1;
    SETUP_OK(test_postgres_exec(
                 fixture.postgres, "shop",
                 "CREATE TABLE effect (saga text, what text);"
                 /* What happens at COMMIT, after everything else went well. */
                 "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                 " IF NEW.what = 'die' THEN PERFORM pg_terminate_backend(pg_backend_pid());"
                 " ELSIF NEW.what = 'conflict' THEN RAISE EXCEPTION 'x' USING ERRCODE = '40001';"
                 " ELSIF NEW.what = 'warn' THEN RAISE WARNING 'not replicated'; END IF;"
                 " RETURN NULL; END $$;"
                 "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON effect"
                 " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit();"
                 "CREATE FUNCTION at_done() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                 " PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;"
                 "CREATE TRIGGER at_done BEFORE UPDATE ON saga_guard.guard FOR EACH ROW"
                 " WHEN (NEW.output = 'die') EXECUTE FUNCTION at_done()",
                 &err),
             &err);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    (void)test_postgres_free(fixture->postgres); /* always NULL */
    return 0;
}

/* A new saga, its action with fence 5, and a connection of its own. */
static int new_saga(void **state)
{
    struct fixture *fixture = *state;
    (void)snprintf(fixture->saga, sizeof fixture->saga, "order-%d", ++fixture->next_saga);
    saga__v1__task__init(&fixture->wire);
    google__protobuf__timestamp__init(&fixture->start);
    fixture->start.seconds = 1700000000;
    fixture->wire.namespace_ = text_default;
    fixture->wire.definition = text_settle;
    fixture->wire.saga_id = fixture->saga;
    fixture->wire.step = text_debit;
    fixture->wire.run = 1;
    fixture->wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    fixture->wire.saga_start_time = &fixture->start;
    memset(&fixture->task, 0, sizeof fixture->task);
    fixture->task.message = &fixture->wire;
    fixture->task.fence = 5;
    fixture->task.output_bytes_max = SAGA_OUTPUT_MAX;
    fixture->conn = PQconnectdb(fixture->conninfo);
    return PQstatus(fixture->conn) == CONNECTION_OK ? 0 : -1;
}

static int end_saga(void **state)
{
    struct fixture *fixture = *state;
    bool idle = PQtransactionStatus(fixture->conn) == PQTRANS_IDLE;
    PQfinish(fixture->conn);
    task_outcome_clear(&fixture->task.outcome);
    return idle ? 0 : -1;
}

static int insert_effect(struct saga_task *task, PGconn *conn, const char *what)
{
    const char *values[] = { saga_task_saga_id(task), what };
    PGresult *res =
        PQexecParams(conn, "INSERT INTO effect VALUES ($1, $2)", 2, NULL, values, NULL, NULL, 0);
    bool ok = PQresultStatus(res) == PGRES_COMMAND_OK;
    PQclear(res);
    return ok ? 0 : -1;
}

/* Bodies: ctx is what they write. */

static int body_done(struct saga_task *task, PGconn *conn, void *ctx)
{
    assert_int_equal(saga_task_done(task, "a\0b", 3), 0);
    return insert_effect(task, conn, ctx);
}

static int body_plain(struct saga_task *task, PGconn *conn, void *ctx)
{
    return insert_effect(task, conn, ctx);
}

static int body_rejected(struct saga_task *task, PGconn *conn, void *ctx)
{
    assert_int_equal(insert_effect(task, conn, ctx), 0);
    return saga_task_rejected(task, "NO_FUNDS", "too little money");
}

static int body_unknown(struct saga_task *task, PGconn *conn, void *ctx)
{
    assert_int_equal(insert_effect(task, conn, ctx), 0);
    return saga_task_unknown(task, "TIMEOUT", "an outside call");
}

static int body_sql_error(struct saga_task *task, PGconn *conn, void *ctx)
{
    assert_int_equal(insert_effect(task, conn, ctx), 0);
    PQclear(PQexec(conn, "SELECT 1 / 0"));
    return 0; /* did not even notice */
}

static int body_gives_up(struct saga_task *task, PGconn *conn, void *ctx)
{
    assert_int_equal(insert_effect(task, conn, ctx), 0);
    assert_int_equal(saga_task_done(task, "x", 1), 0);
    return -1;
}

static int body_commits(struct saga_task *task, PGconn *conn, void *ctx)
{
    (void)insert_effect(task, conn, ctx); /* the COMMIT below fails in the guard's own check */
    PQclear(PQexec(conn, "COMMIT"));
    return 0;
}

static int body_loses_connection(struct saga_task *task, PGconn *conn, void *ctx)
{
    assert_int_equal(insert_effect(task, conn, ctx), 0);
    PQclear(PQexec(conn, "SELECT pg_terminate_backend(pg_backend_pid())"));
    return 0;
}

/* done finds nothing to be done, and its COMMIT must not be. */
static int body_takes_the_row_away(struct saga_task *task, PGconn *conn, void *ctx)
{
    int rc = insert_effect(task, conn, ctx);
    must(conn, "DELETE FROM saga_guard.guard");
    return rc;
}

/* A trigger of this test ends the connection when that is written. */
static int body_done_die(struct saga_task *task, PGconn *conn, void *ctx)
{
    assert_int_equal(saga_task_done(task, "die", 3), 0);
    return insert_effect(task, conn, ctx);
}

static int body_must_not_run(struct saga_task *task, PGconn *conn, void *ctx)
{
    (void)task;
    (void)conn;
    (void)ctx;
    fail_msg("the guard let the body run");
    return -1;
}

static char word_plain[] = "plain", word_die[] = "die", word_conflict[] = "conflict",
            word_warn[] = "warn";

static void run(struct fixture *fixture, saga_guard_body *body, char *what)
{
    saga_guard_run(&fixture->task, fixture->conn, body, what);
}

static void expect(struct fixture *fixture, Saga__V1__Outcome kind, const char *code)
{
    const struct task_outcome *outcome = &fixture->task.outcome;
    if (outcome->kind != kind)
        fail_msg("outcome %d %s %s", (int)outcome->kind, outcome->code ? outcome->code : "-",
                 outcome->message ? outcome->message : "-");
    if (code)
        assert_string_equal(outcome->code, code);
}

static void expect_effects(struct fixture *fixture, int64_t effects)
{
    char sql[128];
    struct err err;
    int64_t count;
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM effect WHERE saga = '%s'", fixture->saga);
    ASSERT_OK(test_postgres_count(fixture->postgres, "shop", sql, &count, &err), &err);
    assert_int_equal(count, effects);
}

static void turn_back(struct fixture *fixture, int64_t fence)
{
    fixture->wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    fixture->task.fence = fence;
}

#define DONE         SAGA__V1__OUTCOME__OUTCOME_DONE
#define ALREADY_DONE SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE
#define REJECTED     SAGA__V1__OUTCOME__OUTCOME_REJECTED
#define RETRY        SAGA__V1__OUTCOME__OUTCOME_RETRY
#define UNKNOWN      SAGA__V1__OUTCOME__OUTCOME_UNKNOWN

static void test_proceed_is_done_and_a_repeat_gets_the_same_output(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_done, word_plain);
    expect(fixture, DONE, NULL);
    assert_int_equal(fixture->task.outcome.output.size, 3);
    run(fixture, body_must_not_run, NULL);
    expect(fixture, ALREADY_DONE, NULL);
    assert_true(fixture->task.outcome.ours);
    assert_int_equal(fixture->task.outcome.output.size, 3);
    assert_memory_equal(fixture->task.outcome.output.data, "a\0b", 3);
    expect_effects(fixture, 1);
    turn_back(fixture, 6);
    run(fixture, body_plain, word_plain);
    expect(fixture, DONE, NULL);
    run(fixture, body_must_not_run, NULL);
    expect(fixture, ALREADY_DONE, NULL);
    assert_int_equal(fixture->task.outcome.output.size, 0);
    expect_effects(fixture, 2);
}

static void test_empty_is_done_and_the_late_action_is_rejected(void **state)
{
    struct fixture *fixture = *state;
    turn_back(fixture, 6);
    run(fixture, body_must_not_run, NULL);
    expect(fixture, DONE, NULL);
    run(fixture, body_must_not_run, NULL);
    expect(fixture, ALREADY_DONE, NULL);
    fixture->wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    fixture->task.fence = 5;
    run(fixture, body_must_not_run, NULL);
    expect(fixture, REJECTED, "GUARD_REFUSED");
    expect_effects(fixture, 0);
}

static void test_u5_even_without_an_action_the_body_of_a_compensation_runs(void **state)
{
    struct fixture *fixture = *state;
    const struct saga_guard_options options = { .even_without_action = true };
    turn_back(fixture, 6);
    saga_guard_run_with(&fixture->task, fixture->conn, &options, body_rejected, word_plain);
    expect(fixture, REJECTED, "NO_FUNDS");
    saga_guard_run_with(&fixture->task, fixture->conn, &options, body_plain, word_plain);
    expect(fixture, DONE, NULL);
    expect_effects(fixture, 1);
    saga_guard_run_with(&fixture->task, fixture->conn, &options, body_must_not_run, NULL);
    expect(fixture, ALREADY_DONE, NULL);
}

static void test_a_business_no_rolls_back_and_makes_older_holders_stale(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_rejected, word_plain);
    expect(fixture, REJECTED, "NO_FUNDS");
    expect_effects(fixture, 0);
    fixture->task.fence = 4;
    run(fixture, body_must_not_run, NULL);
    expect(fixture, RETRY, "GUARD_STALE");
    fixture->task.fence = 6;
    run(fixture, body_plain, word_plain);
    expect(fixture, DONE, NULL);
    expect_effects(fixture, 1);
}

static void test_a_body_that_fails_had_no_effect(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_sql_error, word_plain);
    expect(fixture, RETRY, "GUARD_BODY_FAILED");
    run(fixture, body_gives_up, word_plain);
    expect(fixture, RETRY, "GUARD_BODY_FAILED");
    run(fixture, body_unknown, word_plain);
    expect(fixture, UNKNOWN, "TIMEOUT");
    expect_effects(fixture, 0);
}

static void test_a_body_that_ends_the_transaction_leaves_it_unknown(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_commits, word_plain);
    expect(fixture, UNKNOWN, "GUARD_BODY_COMMITTED");
    expect_effects(fixture, 0); /* the guard refuses a commit without done */
}

static void test_a_connection_lost_before_commit_is_retry(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_loses_connection, word_plain);
    expect(fixture, RETRY, NULL);
    expect_effects(fixture, 0);
    run(fixture, body_plain, word_plain); /* the same connection, reset */
    expect(fixture, DONE, NULL);
    expect_effects(fixture, 1);
}

static void test_a_broken_connection_is_reset_first(void **state)
{
    struct fixture *fixture = *state;
    PQclear(PQexec(fixture->conn, "SELECT pg_terminate_backend(pg_backend_pid())"));
    assert_int_equal(PQstatus(fixture->conn), CONNECTION_BAD);
    run(fixture, body_plain, word_plain);
    expect(fixture, DONE, NULL);
}

static void test_a_connection_lost_during_commit_is_unknown_and_a_repeat_is_safe(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_plain, word_die);
    expect(fixture, UNKNOWN, "GUARD_COMMIT_UNKNOWN");
    run(fixture, body_plain, word_plain);
    expect(fixture, DONE, NULL);
    expect_effects(fixture, 1);
}

/* COMMIT goes with done: nobody knows how far the server came. */
static void test_a_connection_lost_during_done_is_unknown_and_a_repeat_is_safe(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_done_die, word_plain);
    expect(fixture, UNKNOWN, "GUARD_COMMIT_UNKNOWN");
    expect_effects(fixture, 0);
    run(fixture, body_plain, word_plain);
    expect(fixture, DONE, NULL);
    expect_effects(fixture, 1);
}

static void test_a_done_that_fails_is_not_committed(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_takes_the_row_away, word_plain);
    expect(fixture, RETRY, "GUARD_SQLSTATE_55000");
    expect_effects(fixture, 0);
    run(fixture, body_plain, word_plain);
    expect(fixture, DONE, NULL);
}

static void test_an_error_at_commit_is_retry(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_plain, word_conflict);
    expect(fixture, RETRY, "GUARD_SQLSTATE_40001");
    expect_effects(fixture, 0);
}

static void test_a_commit_with_a_warning_is_unknown_and_a_repeat_is_told_the_truth(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_plain, word_warn);
    expect(fixture, UNKNOWN, "GUARD_COMMIT_LOCAL");
    run(fixture, body_must_not_run, NULL);
    expect(fixture, ALREADY_DONE, NULL);
    expect_effects(fixture, 1);
}

static void test_a_lock_that_is_not_given_in_time_is_retry(void **state)
{
    struct fixture *fixture = *state;
    PGconn *other = PQconnectdb(fixture->conninfo);
    char sql[256];
    must(fixture->conn, "SET lock_timeout = '200ms'");
    must(other, "BEGIN");
    (void)snprintf(sql, sizeof sql,
                   "SELECT saga_guard.enter('default', 'settle', '%s', 1, 'debit', 'ACTION', 4, "
                   "'2024-01-01')",
                   fixture->saga);
    must(other, sql);
    run(fixture, body_must_not_run, NULL);
    expect(fixture, RETRY, "GUARD_SQLSTATE_55P03"); /* did not wait for longer than told */
    PQfinish(other);
}

static void test_a_connection_that_is_in_use_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->conn, "BEGIN");
    run(fixture, body_must_not_run, NULL);
    expect(fixture, RETRY, "GUARD_CONNECTION_IN_USE");
    assert_int_equal(PQtransactionStatus(fixture->conn), PQTRANS_INTRANS);
    must(fixture->conn, "ROLLBACK");
}

static void test_a_database_without_guard_or_server_is_retry(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    test_postgres_conninfo(fixture->postgres, "bare", conninfo);
    PGconn *bare = PQconnectdb(conninfo);
    saga_guard_run(&fixture->task, bare, body_must_not_run, NULL);
    expect(fixture, RETRY, "GUARD_SQLSTATE_3F000");
    assert_int_equal(PQtransactionStatus(bare), PQTRANS_IDLE);
    ASSERT_OK(test_postgres_stop_immediate(fixture->postgres, &err), &err);
    saga_guard_run(&fixture->task, bare, body_must_not_run, NULL);
    expect(fixture, RETRY, "GUARD_CONNECTION");
    ASSERT_OK(test_postgres_restart(fixture->postgres, &err), &err);
    PQfinish(bare);
    PQreset(fixture->conn);
}

static void test_a_probe_is_no_business_of_the_guard(void **state)
{
    struct fixture *fixture = *state;
    fixture->wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE;
    run(fixture, body_must_not_run, NULL);
    expect(fixture, UNKNOWN, "GUARD_PROBE");
}

#define GUARD_TEST(test) cmocka_unit_test_setup_teardown(test, new_saga, end_saga)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_proceed_is_done_and_a_repeat_gets_the_same_output),
        GUARD_TEST(test_empty_is_done_and_the_late_action_is_rejected),
        GUARD_TEST(test_u5_even_without_an_action_the_body_of_a_compensation_runs),
        GUARD_TEST(test_a_business_no_rolls_back_and_makes_older_holders_stale),
        GUARD_TEST(test_a_body_that_fails_had_no_effect),
        GUARD_TEST(test_a_body_that_ends_the_transaction_leaves_it_unknown),
        GUARD_TEST(test_a_connection_lost_before_commit_is_retry),
        GUARD_TEST(test_a_broken_connection_is_reset_first),
        GUARD_TEST(test_a_connection_lost_during_commit_is_unknown_and_a_repeat_is_safe),
        GUARD_TEST(test_a_connection_lost_during_done_is_unknown_and_a_repeat_is_safe),
        GUARD_TEST(test_a_done_that_fails_is_not_committed),
        GUARD_TEST(test_an_error_at_commit_is_retry),
        GUARD_TEST(test_a_commit_with_a_warning_is_unknown_and_a_repeat_is_told_the_truth),
        GUARD_TEST(test_a_lock_that_is_not_given_in_time_is_retry),
        GUARD_TEST(test_a_connection_that_is_in_use_is_left_alone),
        GUARD_TEST(test_a_database_without_guard_or_server_is_retry),
        GUARD_TEST(test_a_probe_is_no_business_of_the_guard),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
