/* The guarded transaction of the C SDK on MariaDB: locks, deadlocks, doubles at once, and a server
 * that is killed. Goal and method: test_worker_guard_mysql.c. */
#include "worker_guard_mysql_rig.h"

#include "support/proof.h"
#include "support/wait.h"

#include <mysqld_error.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { WORKERS = 4, SAGAS = 40, KILLS = 3, DOUBLES = 50, REPEATS_MAX = 2000 };

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

/* --- doubles at once --- */

struct doubled {
    struct attempt attempt;
    pthread_barrier_t *barrier;
    int repeats;
    pthread_t thread;
};

static void *run_doubled(void *ctx)
{
    struct doubled *doubled = ctx;
    struct attempt *attempt = &doubled->attempt;
    (void)pthread_barrier_wait(doubled->barrier);
    do {
        saga_guard_mysql_run(&attempt->task, attempt->guard, NULL, body_plain, attempt);
    } while (attempt->task.outcome.kind == RETRY && ++doubled->repeats < REPEATS_MAX);
    mysql_thread_end();
    return NULL;
}

static void play_doubles(struct fixture *fixture, struct doubled doubles[WORKERS], int round)
{
    pthread_barrier_t barrier;
    char saga[32];
    int done = 0;
    (void)snprintf(saga, sizeof saga, "doubled-%d", round);
    pthread_barrier_init(&barrier, NULL, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        attempt_init(&doubles[i].attempt, saga, ACTION, 1 + i);
        doubles[i].barrier = &barrier;
        assert_int_equal(pthread_create(&doubles[i].thread, NULL, run_doubled, &doubles[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(doubles[i].thread, NULL), 0);
        done += doubles[i].attempt.task.outcome.kind == DONE;
        if (doubles[i].attempt.task.outcome.kind != DONE)
            expect(&doubles[i].attempt, ALREADY_DONE, NULL);
        task_outcome_clear(&doubles[i].attempt.task.outcome);
    }
    pthread_barrier_destroy(&barrier);
    assert_int_equal(done, 1);
    expect_effects(fixture, saga, 1);
}

static void test_u7_of_doubles_at_once_one_is_done(void **state)
{
    struct fixture *fixture = *state;
    struct doubled doubles[WORKERS];
    struct err err;
    memset(doubles, 0, sizeof doubles);
    for (int i = 0; i < WORKERS; i++) {
        struct attempt *attempt = &doubles[i].attempt;
        ASSERT_OK(test_mariadb_connect(fixture->mariadb, NULL, "shop", &attempt->conn, &err), &err);
        assert_int_equal(saga_guard_mysql_new(attempt->conn, &attempt->guard), 0);
    }
    for (int round = 0; round < (test_is_full_size() ? 10 * DOUBLES : DOUBLES); round++)
        play_doubles(fixture, doubles, round);
    for (int i = 0; i < WORKERS; i++) {
        (void)saga_guard_mysql_free(doubles[i].attempt.guard); /* always NULL */
        mysql_close(doubles[i].attempt.conn);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_a_lock_that_is_not_given_in_time_is_retry),
        GUARD_TEST(test_a_deadlock_is_retry_and_never_an_outcome),
        GUARD_TEST(test_a_body_that_ignores_its_deadlock_had_no_effect),
        GUARD_TEST(test_u7_of_doubles_at_once_one_is_done),
        GUARD_TEST(test_u7_a_server_that_is_killed_loses_and_doubles_nothing),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
