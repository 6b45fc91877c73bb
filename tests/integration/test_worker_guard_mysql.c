/* The guarded transaction of the C SDK on MariaDB: its outcomes. Goal: whatever the guard, the body
 * or the connection does, the outcome says no more than what is certain, an effect happens once,
 * and no transaction is left open. Method: worker_guard_mysql_rig.h; every short history of a step
 * is compared with a plain model of it; bodies that misbehave. */
#include "worker_guard_mysql_rig.h"

#include "base/mem.h"
#include "guard_model.h"
#include "support/proof.h"

#include <stdio.h>

/* --- bodies; ctx is the attempt --- */

static int body_done(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)conn;
    assert_int_equal(saga_task_done(task, "a\0b", 3), 0);
    return effect(ctx);
}

static int body_rejected(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)conn;
    (void)effect(ctx); /* is rolled back */
    return saga_task_rejected(task, "NO_FUNDS", NULL);
}

static int body_unknown(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)conn;
    (void)effect(ctx); /* is rolled back; what it called outside may stand */
    return saga_task_unknown(task, "TIMEOUT", NULL);
}

static int body_gives_up(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)conn;
    (void)effect(ctx); /* is rolled back */
    return -1;
}

static int body_sql_error(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)effect(ctx); /* is rolled back */
    return mysql_query(conn, "SELECT no_such_column");
}

static int body_commits(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)effect(ctx);
    return mysql_query(conn, "COMMIT");
}

static int body_changes_schema(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)effect(ctx);
    return mysql_query(conn, "CREATE TABLE IF NOT EXISTS other (id int)");
}

static int body_rolls_back(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)mysql_query(conn, "ROLLBACK");
    (void)mysql_query(conn, "START TRANSACTION");
    return effect(ctx);
}

static int body_leaves_a_result(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)effect(ctx);
    return mysql_query(conn, "SELECT 1"); /* never read */
}

static void kill_connection(struct st_mysql *conn)
{
    char sql[64];
    (void)snprintf(sql, sizeof sql, "KILL %lu", mysql_thread_id(conn));
    (void)mysql_query(conn, sql); /* ends with an error, as it should */
}

static int body_loses_connection(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)effect(ctx);
    kill_connection(conn);
    return mysql_query(conn, "SELECT 1") == 0 ? 0 : -1;
}

/* Does not look at errors: an automatic reconnection would commit what follows, each by itself. */
static int body_loses_connection_and_goes_on(struct saga_task *task, struct st_mysql *conn,
                                             void *ctx)
{
    (void)task;
    kill_connection(conn);
    for (int i = 0; i < 3; i++)
        (void)effect(ctx);
    return 0;
}

/* --- every short history against a model --- */

static Saga__V1__Outcome outcome_of(const char *answer, bool says_no)
{
    if (strcmp(answer, "REFUSED") == 0)
        return REJECTED;
    if (strcmp(answer, "DUPLICATE") == 0)
        return ALREADY_DONE;
    if (strcmp(answer, "STALE") == 0)
        return RETRY;
    return strcmp(answer, "PROCEED") == 0 && says_no ? REJECTED : DONE;
}

static void play(struct fixture *fixture, const struct guard_move *moves, int length, bool even)
{
    const struct saga_guard_options options = { .even_without_action = even };
    struct attempt *attempt = &fixture->attempt;
    struct guard_model model = { .balance = 0 };
    char saga[32];
    (void)snprintf(saga, sizeof saga, "history-%d", ++fixture->next_saga);
    attempt_init(attempt, saga, ACTION, 0);
    for (int i = 0; i < length; i++) {
        attempt_turn(attempt, moves[i].compensates ? COMPENSATION : ACTION, moves[i].fence);
        Saga__V1__Outcome wanted =
            outcome_of(guard_model_move(&model, &moves[i], even), moves[i].says_no);
        saga_guard_mysql_run(&attempt->task, attempt->guard, &options,
                             moves[i].says_no ? body_rejected : body_plain, attempt);
        expect(attempt, wanted, wanted == RETRY ? "GUARD_STALE" : NULL);
        assert_false(in_transaction(attempt->conn));
    }
    expect_effects(fixture, saga, model.balance);
    task_outcome_clear(&attempt->task.outcome);
}

static void sweep(struct fixture *fixture, const char *session)
{
    int length = test_is_full_size() ? 4 : 3;
    struct guard_move moves[GUARD_HISTORY_MAX];
    assert_int_equal(mysql_query(fixture->attempt.conn, session), 0);
    for (int even = 0; even < 2; even++)
        for (int number = 0; guard_history(number, length, false, moves); number++)
            play(fixture, moves, length, even);
}

static void test_u1_u2_u3_every_history_at_read_committed_is_as_the_model_says(void **state)
{
    sweep(*state, "SET SESSION tx_isolation = 'READ-COMMITTED', autocommit = 1");
}

static void test_u1_u2_u3_every_history_at_repeatable_read_is_as_the_model_says(void **state)
{
    sweep(*state, "SET SESSION tx_isolation = 'REPEATABLE-READ', autocommit = 0");
}

/* --- outcomes --- */

static void test_proceed_is_done_and_a_repeat_gets_the_same_output(void **state)
{
    struct fixture *fixture = *state;
    struct attempt *attempt = &fixture->attempt;
    run(fixture, body_done);
    expect(attempt, DONE, NULL);
    assert_int_equal(attempt->task.outcome.output.size, 3);
    run(fixture, body_plain);
    expect(attempt, ALREADY_DONE, NULL);
    assert_int_equal(attempt->bodies, 0);
    assert_true(attempt->task.outcome.ours);
    assert_int_equal(attempt->task.outcome.output.size, 3);
    assert_memory_equal(attempt->task.outcome.output.data, "a\0b", 3);
    expect_effects(fixture, attempt->saga, 1);
}

static int body_large(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)conn;
    char *output = mem_calloc(1, SAGA_OUTPUT_MAX);
    assert_non_null(output);
    output[SAGA_OUTPUT_MAX - 1] = 'z';
    assert_int_equal(saga_task_done(task, output, SAGA_OUTPUT_MAX), 0);
    mem_free(output);
    return effect(ctx);
}

static void test_the_largest_output_is_kept(void **state)
{
    struct fixture *fixture = *state;
    struct task_outcome *outcome = &fixture->attempt.task.outcome;
    run(fixture, body_large);
    expect(&fixture->attempt, DONE, NULL);
    run(fixture, body_plain);
    expect(&fixture->attempt, ALREADY_DONE, NULL);
    assert_int_equal(outcome->output.size, SAGA_OUTPUT_MAX);
    assert_int_equal(((const char *)outcome->output.data)[SAGA_OUTPUT_MAX - 1], 'z');
}

static void test_refused_says_so_and_is_no_success(void **state)
{
    struct fixture *fixture = *state;
    attempt_turn(&fixture->attempt, COMPENSATION, 6);
    run(fixture, body_plain);
    expect(&fixture->attempt, DONE, NULL);
    assert_int_equal(fixture->attempt.bodies, 0);
    attempt_turn(&fixture->attempt, ACTION, 5);
    run(fixture, body_plain);
    expect(&fixture->attempt, REJECTED, "GUARD_REFUSED");
    expect_effects(fixture, fixture->attempt.saga, 0);
}

static void test_a_body_that_fails_had_no_effect(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_sql_error);
    expect(&fixture->attempt, RETRY, "GUARD_BODY_FAILED");
    run(fixture, body_gives_up);
    expect(&fixture->attempt, RETRY, "GUARD_BODY_FAILED");
    run(fixture, body_unknown);
    expect(&fixture->attempt, UNKNOWN, "TIMEOUT");
    run(fixture, body_rolls_back);
    expect(&fixture->attempt, RETRY, "GUARD_NOT_ENTERED");
    expect_effects(fixture, fixture->attempt.saga, 0);
    run(fixture, body_plain);
    expect(&fixture->attempt, DONE, NULL);
}

static void test_a_body_that_ends_the_transaction_leaves_it_unknown(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_commits);
    expect(&fixture->attempt, UNKNOWN, "GUARD_BODY_COMMITTED");
    run(fixture, body_plain); /* and nobody guesses afterwards */
    expect(&fixture->attempt, UNKNOWN, "GUARD_LEFT_OPEN");
    expect_effects(fixture, fixture->attempt.saga, 1);
}

static void test_a_body_that_changes_the_schema_ends_the_transaction(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_changes_schema);
    expect(&fixture->attempt, UNKNOWN, "GUARD_BODY_COMMITTED");
    expect_effects(fixture, fixture->attempt.saga, 1);
}

static void test_a_body_that_leaves_a_result_is_cut_off(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, body_leaves_a_result);
    expect(&fixture->attempt, RETRY, NULL);
    run(fixture, body_plain); /* the same connection, made again */
    expect(&fixture->attempt, DONE, NULL);
    expect_effects(fixture, fixture->attempt.saga, 1);
}

static void test_a_connection_lost_before_commit_is_retry(void **state)
{
    struct fixture *fixture = *state;
    my_bool on = 1;
    (void)mysql_options(fixture->attempt.conn, MYSQL_OPT_RECONNECT, &on);
    run(fixture, body_loses_connection);
    expect(&fixture->attempt, RETRY, NULL);
    run(fixture, body_loses_connection_and_goes_on);
    assert_int_not_equal(fixture->attempt.task.outcome.kind, DONE);
    expect_effects(fixture, fixture->attempt.saga, 0);
    run(fixture, body_plain); /* the same connection, made again */
    expect(&fixture->attempt, DONE, NULL);
    expect_effects(fixture, fixture->attempt.saga, 1);
}

static void test_a_broken_connection_is_made_again_first(void **state)
{
    struct fixture *fixture = *state;
    kill_connection(fixture->attempt.conn);
    run(fixture, body_plain);
    expect(&fixture->attempt, DONE, NULL);
}

static void test_a_connection_that_is_in_use_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    MYSQL *conn = fixture->attempt.conn;
    assert_int_equal(mysql_query(conn, "START TRANSACTION"), 0);
    run(fixture, body_plain);
    expect(&fixture->attempt, RETRY, "GUARD_CONNECTION_IN_USE");
    assert_true(in_transaction(conn));
    assert_int_equal(mysql_query(conn, "ROLLBACK"), 0);
}

static void test_a_database_without_guard_or_server_is_retry(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    assert_int_equal(mysql_query(fixture->attempt.conn, "USE bare"), 0);
    run(fixture, body_plain);
    expect(&fixture->attempt, RETRY, "GUARD_MYSQL_1146");
    assert_false(in_transaction(fixture->attempt.conn));
    assert_int_equal(mysql_query(fixture->attempt.conn, "USE shop"), 0);
    test_mariadb_kill(fixture->mariadb);
    run(fixture, body_plain);
    expect(&fixture->attempt, RETRY, "GUARD_CONNECTION");
    ASSERT_OK(test_mariadb_restart(fixture->mariadb, &err), &err);
    run(fixture, body_plain);
    expect(&fixture->attempt, DONE, NULL);
}

static void test_a_probe_is_no_business_of_the_guard(void **state)
{
    struct fixture *fixture = *state;
    attempt_turn(&fixture->attempt, PROBE, 5);
    run(fixture, body_plain);
    expect(&fixture->attempt, UNKNOWN, "GUARD_PROBE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_u1_u2_u3_every_history_at_read_committed_is_as_the_model_says),
        GUARD_TEST(test_u1_u2_u3_every_history_at_repeatable_read_is_as_the_model_says),
        GUARD_TEST(test_proceed_is_done_and_a_repeat_gets_the_same_output),
        GUARD_TEST(test_the_largest_output_is_kept),
        GUARD_TEST(test_refused_says_so_and_is_no_success),
        GUARD_TEST(test_a_body_that_fails_had_no_effect),
        GUARD_TEST(test_a_body_that_ends_the_transaction_leaves_it_unknown),
        GUARD_TEST(test_a_body_that_changes_the_schema_ends_the_transaction),
        GUARD_TEST(test_a_body_that_leaves_a_result_is_cut_off),
        GUARD_TEST(test_a_connection_lost_before_commit_is_retry),
        GUARD_TEST(test_a_broken_connection_is_made_again_first),
        GUARD_TEST(test_a_connection_that_is_in_use_is_left_alone),
        GUARD_TEST(test_a_database_without_guard_or_server_is_retry),
        GUARD_TEST(test_a_probe_is_no_business_of_the_guard),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
