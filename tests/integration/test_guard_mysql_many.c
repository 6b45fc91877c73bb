/* The guard's statements for MySQL and MariaDB: the floor and the purge, many at once, clients that
 * count rows otherwise, and the self-test. Goal: an effect happens at most once for each saga, step
 * and operation, and never after its compensation, whoever races whom. Method: guard_mysql_rig.h;
 * racers of every kind, on the short way and on the long one. */
#include "guard_mysql_rig.h"

#include "base/mem.h"
#include "support/proof.h"

#include <mysqld_error.h>
#include <stdio.h>

enum { RACERS = 8, RACE_ROUNDS = 10, REPEATS_MAX = 200 };

/* --- the floor --- */

static void test_below_the_floor_everything_unknown_is_stale_and_rows_can_be_purged(void **state)
{
    struct fixture *fixture = *state;
    char known[32];
    const struct operation above = { .fence = 1 };
    expect_run(fixture, fixture->first, action, 1, "PROCEED");
    raise_floor(fixture, 1);
    raise_floor(fixture, -1000); /* never down */
    expect_run(fixture, fixture->first, action, 1, "DUPLICATE");
    expect_run(fixture, fixture->first, compensation, 2, "STALE");
    (void)snprintf(known, sizeof known, "%s", fixture->saga);
    assert_int_equal(new_saga(fixture), 0);
    expect_run(fixture, fixture->first, action, 1, "STALE");
    expect_run(fixture, fixture->first, compensation, 2, "STALE");
    must(fixture->watcher,
         "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence,"
         " state, saga_started_us) SELECT 'purge', 'settle', seq, 1, 's', 'ACTION', 1, 'UNDONE', 1"
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
         " state, saga_started_us) SELECT 'purge', 'settle', seq, 1, 's', 'ACTION', 1, 'UNDONE', 1"
         " FROM seq_1_to_10");
    must(fixture->watcher,
         "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence,"
         " state, saga_started_us) SELECT 'purge', 'settle', seq, 1, 't', 'ACTION', 1, 'DONE',"
         " 1714564799999000 + seq FROM seq_1_to_5000");
    raise_floor(fixture, -1000);
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
                           .output = "r",
                           .short_way = !compensates && i % 2 == 0 },
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
    if (strstr(output, "FAILED") || !strstr(output, "0 of 20 checks failed"))
        fail_msg("%s", output);
    assert_int_equal(
        count(fixture, "SELECT count(*) FROM saga_guard WHERE namespace = 'guard-selftest'"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_below_the_floor_everything_unknown_is_stale_and_rows_can_be_purged),
        GUARD_TEST(test_a_purge_does_not_stop_sagas_above_the_floor),
        GUARD_TEST(test_actions_and_compensations_at_once_leave_the_books_even),
        GUARD_TEST(test_found_rows_in_place_of_changed_ones_change_nothing),
        GUARD_TEST(test_the_selftest_finds_nothing),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
