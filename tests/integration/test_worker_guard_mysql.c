/* The guarded transaction of the C SDK on MariaDB. Goal: whatever the guard, the body, the
 * connection or the server does, the outcome says no more than what is certain, an effect happens
 * once, and no transaction is left open. Method: tasks made here, a real database; every short
 * history of a step is compared with a plain model of it; bodies that misbehave; a server that is
 * killed. */
#include "support/check.h"

#include "base/mem.h"
#include "support/mariadb.h"
#include "support/proof.h"
#include "support/wait.h"
#include "task.h"

#include <mysqld_error.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define DONE         SAGA__V1__OUTCOME__OUTCOME_DONE
#define ALREADY_DONE SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE
#define REJECTED     SAGA__V1__OUTCOME__OUTCOME_REJECTED
#define RETRY        SAGA__V1__OUTCOME__OUTCOME_RETRY
#define UNKNOWN      SAGA__V1__OUTCOME__OUTCOME_UNKNOWN
#define ACTION       SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION
#define COMPENSATION SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION
#define PROBE        SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE

enum { WORKERS = 4, SAGAS = 40, KILLS = 3, REPEATS_MAX = 2000 };

/* A task of the step "debit", and the connection that it runs on. */
struct attempt {
    struct saga_task task;
    Saga__V1__Task wire;
    Google__Protobuf__Timestamp start;
    char saga[32];
    MYSQL *conn;
    struct saga_guard_mysql *guard; /* on it */
    int bodies;                     /* how often a body ran */
};

struct fixture {
    struct test_mariadb *mariadb;
    struct attempt attempt; /* a new saga for each test, its action with fence 5 */
    int next_saga;
};

static char text_default[] = "default", text_settle[] = "settle", text_debit[] = "debit";

static void attempt_init(struct attempt *attempt, const char *saga,
                         Saga__V1__OperationKind operation, int64_t fence)
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
}

static void attempt_turn(struct attempt *attempt, Saga__V1__OperationKind operation, int64_t fence)
{
    attempt->wire.operation = operation;
    attempt->task.fence = fence;
}

static int setup(void **state)
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

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    (void)test_mariadb_free(fixture->mariadb); /* always NULL */
    return 0;
}

static bool in_transaction(MYSQL *conn)
{
    unsigned status = 0;
    return mysql_ping(conn) == 0 &&
           mariadb_get_infov(conn, MARIADB_CONNECTION_SERVER_STATUS, &status) == 0 &&
           (status & SERVER_STATUS_IN_TRANS) != 0;
}

static int new_saga(void **state)
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

static int end_saga(void **state)
{
    struct fixture *fixture = *state;
    bool open = in_transaction(fixture->attempt.conn);
    mysql_close(fixture->attempt.conn);
    fixture->attempt.guard = saga_guard_mysql_free(fixture->attempt.guard);
    task_outcome_clear(&fixture->attempt.task.outcome);
    return open ? -1 : 0;
}

/* --- bodies; ctx is the attempt --- */

static int effect(struct attempt *attempt)
{
    char sql[128];
    attempt->bodies++;
    (void)snprintf(sql, sizeof sql, "INSERT INTO effect VALUES ('%s', %d)", attempt->saga,
                   attempt->wire.operation == ACTION ? 1 : -1);
    return mysql_query(attempt->conn, sql) == 0 ? 0 : -1;
}

static int body_plain(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    (void)task;
    (void)conn;
    return effect(ctx);
}

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

/* --- what is expected --- */

static void run(struct fixture *fixture, saga_guard_mysql_body *body)
{
    fixture->attempt.bodies = 0;
    saga_guard_mysql_run(&fixture->attempt.task, fixture->attempt.guard, NULL, body,
                         &fixture->attempt);
}

static void expect(const struct attempt *attempt, Saga__V1__Outcome kind, const char *code)
{
    const struct task_outcome *outcome = &attempt->task.outcome;
    if (outcome->kind != kind || (code && (!outcome->code || strcmp(outcome->code, code) != 0)))
        fail_msg("outcome %d %s %s, not %d %s", (int)outcome->kind,
                 outcome->code ? outcome->code : "-", outcome->message ? outcome->message : "-",
                 (int)kind, code ? code : "-");
}

static void expect_effects(struct fixture *fixture, const char *saga, int64_t effects)
{
    char sql[128];
    struct err err;
    int64_t sum;
    (void)snprintf(sql, sizeof sql, "SELECT coalesce(sum(amount), 0) FROM effect WHERE saga = '%s'",
                   saga);
    ASSERT_OK(test_mariadb_count(fixture->mariadb, "shop", sql, &sum, &err), &err);
    assert_int_equal(sum, effects);
}

/* --- every short history against a model --- */

enum { OPERATIONS = 6 };
static const struct {
    Saga__V1__OperationKind kind;
    int64_t fence;
    bool says_no;
} operations[OPERATIONS] = {
    { ACTION, 1, false },       { ACTION, 5, false },       { ACTION, 5, true },
    { COMPENSATION, 1, false }, { COMPENSATION, 5, false }, { COMPENSATION, 5, true },
};

enum past { NEVER, DONE_BEFORE, UNDONE, BLOCKED, SEEN };
struct model {
    enum past action, compensation;
    int64_t action_fence, compensation_fence; /* the highest; 0: none */
    int balance;
};

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static Saga__V1__Outcome model_action(struct model *model, int64_t fence, bool says_no)
{
    if (model->action == UNDONE || model->action == BLOCKED)
        return REJECTED;
    if (model->action == DONE_BEFORE) {
        model->action_fence = max_of(model->action_fence, fence);
        return ALREADY_DONE;
    }
    if (model->action_fence > fence)
        return RETRY;
    model->action_fence = fence;
    model->action = says_no ? SEEN : DONE_BEFORE;
    model->balance += !says_no;
    return says_no ? REJECTED : DONE;
}

static Saga__V1__Outcome model_compensation(struct model *model, int64_t fence, bool says_no,
                                            bool even)
{
    if (model->compensation == DONE_BEFORE) {
        model->compensation_fence = max_of(model->compensation_fence, fence);
        return ALREADY_DONE;
    }
    if (max_of(model->action_fence, model->compensation_fence) > fence)
        return RETRY;
    bool proceeds = even || model->action == DONE_BEFORE;
    if (model->action != DONE_BEFORE) {
        model->action_fence = model->action == NEVER ? fence : model->action_fence;
        model->action = BLOCKED;
    } else if (!says_no) {
        model->action = UNDONE;
    }
    model->compensation_fence = fence;
    model->compensation = proceeds && says_no ? SEEN : DONE_BEFORE;
    model->balance -= proceeds && !says_no;
    return proceeds && says_no ? REJECTED : DONE;
}

static void play(struct fixture *fixture, const int *history, int length, bool even)
{
    const struct saga_guard_options options = { .even_without_action = even };
    struct attempt *attempt = &fixture->attempt;
    struct model model = { .balance = 0 };
    char saga[32];
    (void)snprintf(saga, sizeof saga, "history-%d", ++fixture->next_saga);
    attempt_init(attempt, saga, ACTION, 0);
    for (int i = 0; i < length; i++) {
        Saga__V1__OperationKind kind = operations[history[i]].kind;
        int64_t fence = operations[history[i]].fence;
        bool says_no = operations[history[i]].says_no;
        attempt_turn(attempt, kind, fence);
        Saga__V1__Outcome wanted = kind == ACTION
                                       ? model_action(&model, fence, says_no)
                                       : model_compensation(&model, fence, says_no, even);
        saga_guard_mysql_run(&attempt->task, attempt->guard, &options,
                             says_no ? body_rejected : body_plain, attempt);
        expect(attempt, wanted, wanted == RETRY ? "GUARD_STALE" : NULL);
        assert_false(in_transaction(attempt->conn));
    }
    expect_effects(fixture, saga, model.balance);
    task_outcome_clear(&attempt->task.outcome);
}

static void sweep(struct fixture *fixture, const char *session)
{
    int length = test_is_full_size() ? 4 : 3, histories = 1, history[4];
    assert_int_equal(mysql_query(fixture->attempt.conn, session), 0);
    for (int i = 0; i < length; i++)
        histories *= OPERATIONS;
    for (int even = 0; even < 2; even++)
        for (int number = 0; number < histories; number++) {
            for (int i = 0, rest = number; i < length; i++, rest /= OPERATIONS)
                history[i] = rest % OPERATIONS;
            play(fixture, history, length, even);
        }
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

/* --- locks --- */

static void test_a_lock_that_is_not_given_in_time_is_retry(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    MYSQL *other;
    char sql[256];
    ASSERT_OK(test_mariadb_connect(fixture->mariadb, NULL, "shop", &other, &err), &err);
    assert_int_equal(mysql_query(fixture->attempt.conn, "SET SESSION innodb_lock_wait_timeout = 1"),
                     0);
    assert_int_equal(mysql_query(other, "START TRANSACTION"), 0);
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation,"
                   " fence, state, saga_started_us)"
                   " VALUES ('default', 'settle', '%s', 1, 'debit', 'ACTION', 4, 'ENTERED', 1)",
                   fixture->attempt.saga);
    assert_int_equal(mysql_query(other, sql), 0);
    run(fixture, body_plain);
    expect(&fixture->attempt, RETRY, "GUARD_MYSQL_1205");
    assert_int_equal(fixture->attempt.bodies, 0);
    attempt_turn(&fixture->attempt, COMPENSATION, 6);
    run(fixture, body_plain);
    expect(&fixture->attempt, RETRY, "GUARD_MYSQL_1205");
    mysql_close(other);
}

/* Takes what the other transaction holds, which waits for what we hold; goes on in any case. */
struct deadlock {
    struct attempt *attempt;
    MYSQL *other;
    bool ignores;
    int rc;
};

static void *want_our_row(void *ctx)
{
    struct deadlock *deadlock = ctx;
    char sql[128];
    (void)snprintf(sql, sizeof sql, "UPDATE saga_guard SET fence = fence WHERE saga_id = '%s'",
                   deadlock->attempt->saga);
    deadlock->rc = mysql_query(deadlock->other, sql);
    mysql_thread_end();
    return NULL;
}

static int body_deadlock(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    struct deadlock *deadlock = ctx;
    pthread_t thread;
    (void)task;
    assert_int_equal(pthread_create(&thread, NULL, want_our_row, deadlock), 0);
    int rc = mysql_query(conn, "UPDATE heavy SET amount = 1 WHERE id = 1");
    assert_int_equal(mysql_errno(conn), rc == 0 ? 0 : ER_LOCK_DEADLOCK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return deadlock->ignores ? effect(deadlock->attempt) : rc;
}

static void play_deadlock(struct fixture *fixture, bool ignores)
{
    struct deadlock deadlock = { .attempt = &fixture->attempt, .ignores = ignores };
    struct err err;
    ASSERT_OK(test_mariadb_connect(fixture->mariadb, NULL, "shop", &deadlock.other, &err), &err);
    assert_int_equal(mysql_query(deadlock.other, "START TRANSACTION"), 0);
    /* The one that has changed less is the victim: ours. */
    assert_int_equal(mysql_query(deadlock.other, "UPDATE heavy SET amount = amount + 1"), 0);
    saga_guard_mysql_run(&fixture->attempt.task, fixture->attempt.guard, NULL, body_deadlock,
                         &deadlock);
    assert_int_equal(deadlock.rc, 0);
    mysql_close(deadlock.other);
    proof_fault("deadlock", 1);
}

static void test_a_deadlock_is_retry_and_never_an_outcome(void **state)
{
    struct fixture *fixture = *state;
    play_deadlock(fixture, false);
    expect(&fixture->attempt, RETRY, "GUARD_BODY_FAILED");
    assert_false(in_transaction(fixture->attempt.conn));
    expect_effects(fixture, fixture->attempt.saga, 0);
    run(fixture, body_plain);
    expect(&fixture->attempt, DONE, NULL);
    expect_effects(fixture, fixture->attempt.saga, 1);
}

/* A body that goes on after its deadlock works outside of any transaction: what it does then
 * stands, each statement by itself, and that is not told as a success. */
static void test_a_body_that_ignores_its_deadlock_had_no_effect(void **state)
{
    struct fixture *fixture = *state;
    play_deadlock(fixture, true);
    expect(&fixture->attempt, UNKNOWN, "GUARD_BODY_COMMITTED");
}

/* --- a server that is killed --- */

struct worker {
    MYSQL *conn;
    struct saga_guard_mysql *guard;
    int number;
    atomic_int *finished;
    int retries, unknowns, failures;
    pthread_t thread;
};

/* Every worker runs the action of every saga, and then every third one's compensation, each until
 * it is settled. */
static void settle(struct worker *worker, int saga, Saga__V1__OperationKind kind)
{
    struct attempt attempt = { .conn = worker->conn, .guard = worker->guard };
    char name[32];
    (void)snprintf(name, sizeof name, "killed-%d", saga);
    attempt_init(&attempt, name, kind, 1 + worker->number + (kind == ACTION ? 0 : 100));
    for (int i = 0; i < REPEATS_MAX; i++) {
        saga_guard_mysql_run(&attempt.task, attempt.guard, NULL, body_plain, &attempt);
        Saga__V1__Outcome kind_of = attempt.task.outcome.kind;
        if (kind_of != RETRY && kind_of != UNKNOWN)
            break;
        worker->retries += kind_of == RETRY;
        worker->unknowns += kind_of == UNKNOWN;
        wait_ms(10);
    }
    Saga__V1__Outcome end = attempt.task.outcome.kind;
    worker->failures += end != DONE && end != ALREADY_DONE && end != REJECTED;
    task_outcome_clear(&attempt.task.outcome);
}

static void *work(void *ctx)
{
    struct worker *worker = ctx;
    for (int i = 0; i < SAGAS; i++) {
        int saga = (i + worker->number * (SAGAS / WORKERS)) % SAGAS;
        settle(worker, saga, ACTION);
        if (saga % 3 == 0)
            settle(worker, saga, COMPENSATION);
        (void)atomic_fetch_add(worker->finished, 1);
    }
    mysql_thread_end();
    return NULL;
}

struct progress {
    atomic_int *finished;
    int wanted;
};

static bool is_so_far(void *ctx)
{
    struct progress *progress = ctx;
    return atomic_load(progress->finished) >= progress->wanted;
}

static void test_u7_a_server_that_is_killed_loses_and_doubles_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    struct worker workers[WORKERS];
    atomic_int finished = 0;
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){ .number = i, .finished = &finished };
        ASSERT_OK(test_mariadb_connect(fixture->mariadb, NULL, "shop", &workers[i].conn, &err),
                  &err);
        assert_int_equal(saga_guard_mysql_new(workers[i].conn, &workers[i].guard), 0);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < KILLS; i++) {
        struct progress progress = { &finished, (i + 1) * WORKERS * SAGAS / (KILLS + 1) };
        assert_true(wait_until(is_so_far, &progress, 60000));
        test_mariadb_kill(fixture->mariadb);
        ASSERT_OK(test_mariadb_restart(fixture->mariadb, &err), &err);
        proof_fault("kill -9 of mariadbd", 1);
    }
    int failures = 0, retries = 0;
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        failures += workers[i].failures;
        retries += workers[i].retries + workers[i].unknowns;
        (void)saga_guard_mysql_free(workers[i].guard); /* always NULL */
        mysql_close(workers[i].conn);
    }
    assert_int_equal(failures, 0);
    assert_true(retries > 0);
    for (int saga = 0; saga < SAGAS; saga++) {
        char name[32];
        (void)snprintf(name, sizeof name, "killed-%d", saga);
        expect_effects(fixture, name, saga % 3 == 0 ? 0 : 1);
    }
}

#define GUARD_TEST(test) cmocka_unit_test_setup_teardown(test, new_saga, end_saga)

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
        GUARD_TEST(test_a_lock_that_is_not_given_in_time_is_retry),
        GUARD_TEST(test_a_deadlock_is_retry_and_never_an_outcome),
        GUARD_TEST(test_a_body_that_ignores_its_deadlock_had_no_effect),
        GUARD_TEST(test_u7_a_server_that_is_killed_loses_and_doubles_nothing),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
