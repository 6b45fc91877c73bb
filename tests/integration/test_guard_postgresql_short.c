/* The short way of the guard on PostgreSQL, saga_guard.once. Goal: it answers what the long way
 * would, or leaves the answer to it; an effect happens at most once, and never after its
 * compensation. Method: guard_postgresql_rig.h; every short history of a step, on both ways mixed,
 * against a plain model; every race of two, at every level; many at once on one account. */
#include "guard_postgresql_rig.h"

#include "guard_model.h"

#include <pthread.h>
#include <stdio.h>

enum { RACERS = 8, RACE_ROUNDS = 25, REPEATS_MAX = 50, LENGTH = 3, SQL_SIZE = 512 };

/* --- the short way --- */

/* The effect and the guard in one statement. */
static void short_sql(char sql[SQL_SIZE], const char *account, const char *saga, long fence)
{
    (void)snprintf(sql, SQL_SIZE,
                   "UPDATE account SET balance = balance + 1 WHERE saga = '%s' AND"
                   " (SELECT saga_guard.once('default', 'settle', '%s', 1, 'debit', %ld, '%s',"
                   " 'receipt'))",
                   account, saga, fence, guard_started);
}

/* PROCEED: one row was changed. "": none, or its guard's row is there. Or the SQLSTATE. */
static struct answer short_answer(PGresult *res)
{
    struct answer answer = { .word = "", .output = "" };
    if (PQresultStatus(res) != PGRES_COMMAND_OK) {
        struct answer error = answer_of(res);
        return strcmp(error.word, "23505") == 0 ? answer : error;
    }
    if (strcmp(PQcmdTuples(res), "1") == 0)
        (void)snprintf(answer.word, sizeof answer.word, "PROCEED");
    PQclear(res);
    return answer;
}

static struct answer once(PGconn *conn, const char *account, const char *saga, long fence)
{
    char sql[SQL_SIZE];
    short_sql(sql, account, saga, fence);
    return short_answer(PQexec(conn, sql));
}

static void send_once(PGconn *conn, const char *saga, long fence)
{
    char sql[SQL_SIZE];
    short_sql(sql, saga, saga, fence);
    assert_int_equal(PQsendQuery(conn, sql), 1);
}

static struct answer receive_once(PGconn *conn)
{
    struct answer answer = short_answer(PQgetResult(conn));
    PGresult *res;
    while ((res = PQgetResult(conn)) != NULL)
        PQclear(res);
    return answer;
}

/* A whole one, as README.md says: where it changes no row the long way tells. */
static struct answer run_shortly(PGconn *conn, const char *saga, long fence)
{
    must(conn, "BEGIN");
    struct answer answer = once(conn, saga, saga, fence);
    if (strcmp(answer.word, "PROCEED") == 0) {
        must(conn, "COMMIT");
        return answer;
    }
    must(conn, "ROLLBACK");
    return answer.word[0] ? answer : run(conn, saga, "ACTION", fence, "receipt");
}

/* --- every short history --- */

/* enter or no_effect with every argument. */
static struct answer call(PGconn *conn, const char *function, const char *saga,
                          const struct guard_move *move, bool even)
{
    char sql[SQL_SIZE];
    (void)snprintf(sql, sizeof sql,
                   "SELECT answer, '' FROM saga_guard.%s('default', 'settle', '%s', 1, 'debit',"
                   " '%s', %ld, '%s', %s)",
                   function, saga, move->compensates ? "COMPENSATION" : "ACTION", (long)move->fence,
                   guard_started, even ? "true" : "false");
    return answer_of(PQexec(conn, sql));
}

static struct answer make(PGconn *conn, const char *saga, const struct guard_move *move, bool even)
{
    if (move->short_way)
        return run_shortly(conn, saga, (long)move->fence);
    must(conn, "BEGIN");
    struct answer answer = call(conn, "enter", saga, move, even);
    bool proceeds = strcmp(answer.word, "PROCEED") == 0;
    if (proceeds && !move->says_no)
        work(conn, saga, move->compensates ? "COMPENSATION" : "ACTION", "receipt");
    bool stands = (proceeds && !move->says_no) || strcmp(answer.word, "EMPTY") == 0 ||
                  strcmp(answer.word, "DUPLICATE") == 0;
    must(conn, stands ? "COMMIT" : "ROLLBACK");
    if (proceeds && move->says_no)
        assert_string_equal(call(conn, "no_effect", saga, move, even).word, "RECORDED");
    return answer;
}

static void play(struct fixture *fixture, const struct guard_move *moves, int length, bool even)
{
    struct guard_model model = { .balance = 0 };
    void *state = fixture;
    assert_int_equal(new_saga(&state), 0);
    for (int i = 0; i < length; i++) {
        const char *wanted = guard_model_move(&model, &moves[i], even);
        struct answer answer = make(fixture->first, fixture->saga, &moves[i], even);
        if (strcmp(answer.word, wanted) != 0)
            fail_msg("%s, move %d: %s, not %s", fixture->saga, i, answer.word, wanted);
    }
    assert_int_equal(balance(fixture, fixture->saga), model.balance);
}

static void sweep(struct fixture *fixture, const char *level)
{
    struct guard_move moves[GUARD_HISTORY_MAX];
    char sql[96];
    (void)snprintf(sql, sizeof sql, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL %s",
                   level);
    must(fixture->first, sql);
    for (int even = 0; even < 2; even++)
        for (int number = 0; guard_history(number, LENGTH, true, moves); number++)
            play(fixture, moves, LENGTH, even);
    must(fixture->first,
         "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED");
}

static void test_u1_u2_u3_every_history_at_read_committed_is_as_the_model_says(void **state)
{
    sweep(*state, "READ COMMITTED");
}

static void test_u1_u2_u3_every_history_at_repeatable_read_is_as_the_model_says(void **state)
{
    sweep(*state, "REPEATABLE READ");
}

/* --- one after the other --- */

static void test_its_output_is_what_a_repeat_is_told(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(run_shortly(fixture->first, fixture->saga, 1).word, "PROCEED");
    struct answer answer = run_shortly(fixture->second, fixture->saga, 2);
    assert_string_equal(answer.word, "DUPLICATE");
    assert_string_equal(answer.output, "receipt");
    assert_int_equal(balance(fixture, fixture->saga), 1);
}

static void test_an_effect_that_changes_no_row_takes_the_guards_row_along(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(once(fixture->first, "nobody", fixture->saga, 1).word, "");
    must(fixture->first, "ROLLBACK");
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 1, "r").word, "PROCEED");
    assert_int_equal(balance(fixture, fixture->saga), 1);
}

static void test_an_effect_of_many_rows_asks_once(void **state)
{
    struct fixture *fixture = *state;
    char sql[SQL_SIZE];
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO account SELECT '%s/' || i, 0 FROM generate_series(1, 5) i",
                   fixture->saga);
    must(fixture->first, sql);
    (void)snprintf(sql, sizeof sql,
                   "UPDATE account SET balance = balance + 1 WHERE saga LIKE '%s/%%' AND (SELECT"
                   " saga_guard.once('default', 'settle', '%s', 1, 'debit', 1, '%s', 'r'))",
                   fixture->saga, fixture->saga, guard_started);
    PGresult *res = PQexec(fixture->first, sql);
    assert_string_equal(PQcmdTuples(res), "5");
    PQclear(res);
    res = PQexec(fixture->first, sql);
    assert_string_equal(answer_of(res).word, "23505");
}

static void test_below_the_floor_it_is_an_error_and_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->watcher, "SELECT saga_guard.raise_floor('2024-05-01 12:00:01+00')");
    assert_string_equal(once(fixture->first, fixture->saga, fixture->saga, 1).word, "55000");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "STALE");
    must(fixture->watcher, "UPDATE saga_guard.guard_floor SET floor = '-infinity'");
    assert_string_equal(run_shortly(fixture->first, fixture->saga, 1).word, "PROCEED");
}

/* A transaction that keeps its snapshot must not take an old floor for the current one. */
static void test_a_floor_that_moves_under_a_kept_snapshot_is_a_serialization_error(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    must(fixture->first, "SELECT 1 FROM account");
    must(fixture->watcher, "SELECT saga_guard.raise_floor('2024-05-01 12:00:01+00')");
    assert_string_equal(once(fixture->first, fixture->saga, fixture->saga, 1).word, "40001");
    must(fixture->first, "ROLLBACK");
    must(fixture->watcher, "UPDATE saga_guard.guard_floor SET floor = '-infinity'");
}

/* Whoever is in goes on with the floor that it saw, which does not move before it is out; whoever
 * comes then sees the new one, although it was called before that was committed. */
static void test_the_floor_waits_for_who_is_in_and_who_waits_for_it_sees_it(void **state)
{
    struct fixture *fixture = *state;
    char conninfo[POSTGRES_CONNINFO_SIZE], other[sizeof fixture->saga + 8];
    (void)snprintf(other, sizeof other, "%s-other", fixture->saga);
    test_postgres_conninfo(fixture->postgres, "shop", conninfo);
    PGconn *owner = PQconnectdb(conninfo);
    must(fixture->first, "BEGIN");
    assert_string_equal(once(fixture->first, fixture->saga, fixture->saga, 1).word, "PROCEED");
    assert_int_equal(PQsendQuery(owner, "SELECT saga_guard.raise_floor('2024-05-01 12:00:01+00')"),
                     1);
    assert_waits(fixture, owner);
    must(fixture->second, "BEGIN");
    send_once(fixture->second, other, 1);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_answer(owner).word, "2024-05-01 12:00:01+00");
    assert_string_equal(receive_once(fixture->second).word, "55000");
    must(fixture->second, "ROLLBACK");

    /* It does not wait for ever, and keeps nobody longer than that. */
    assert_string_equal(run(fixture->first, other, "ACTION", 1, "r").word, "STALE");
    must(owner, "UPDATE saga_guard.guard_floor SET floor = '-infinity'");
    must(fixture->first, "BEGIN");
    assert_string_equal(once(fixture->first, fixture->saga, other, 1).word, "PROCEED");
    assert_string_equal(
        answer_of(PQexec(owner, "SELECT saga_guard.raise_floor('2024-05-01 12:00:01+00'), ''"))
            .word,
        "55P03");
    must(fixture->first, "COMMIT");
    PQfinish(owner);
}

/* An index in another collation may lose its rows when the system's locales change. */
static void test_names_are_bytes_whatever_the_collation_of_the_database(void **state)
{
    struct fixture *fixture = *state;
    PGresult *res =
        PQexec(fixture->watcher,
               "SELECT count(*), count(*) FILTER (WHERE collname = 'C') FROM pg_attribute a"
               " JOIN pg_collation c ON c.oid = attcollation"
               " WHERE attrelid = 'saga_guard.guard'::regclass AND attnum > 0");
    assert_string_equal(PQgetvalue(res, 0, 0), "6");
    assert_string_equal(PQgetvalue(res, 0, 1), "6");
    PQclear(res);
}

/* It runs as its owner and sets no search_path: what its caller puts in front is not looked at. */
static void test_nothing_of_the_callers_search_path_is_used(void **state)
{
    struct fixture *fixture = *state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    test_postgres_conninfo(fixture->postgres, "shop", conninfo);
    PGconn *conn = PQconnectdb(conninfo); /* has not made the function ready yet */
    must(fixture->watcher, "SET client_min_messages = warning");
    must(fixture->watcher, "CREATE SCHEMA evil AUTHORIZATION worker");
    must(conn, "SET ROLE worker");
    must(conn,
         "CREATE FUNCTION evil.never(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql"
         " AS $$ BEGIN RAISE EXCEPTION 'looked at'; END $$");
    must(conn, "CREATE FUNCTION evil.never(text, text) RETURNS boolean LANGUAGE plpgsql"
               " AS $$ BEGIN RAISE EXCEPTION 'looked at'; END $$");
    must(conn, "CREATE OPERATOR evil.< (LEFTARG = timestamptz, RIGHTARG = timestamptz,"
               " FUNCTION = evil.never)");
    must(conn, "CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never)");
    must(conn, "CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE plpgsql"
               " AS $$ BEGIN RAISE EXCEPTION 'looked at'; END $$");
    must(conn, "CREATE DOMAIN evil.timestamptz AS text CHECK (VALUE IS NULL)");
    must(conn, "CREATE DOMAIN evil.bytea AS text CHECK (VALUE IS NULL)");
    must(conn, "CREATE DOMAIN evil.text AS pg_catalog.text CHECK (VALUE IS NULL)");
    must(conn, "SET search_path = evil, pg_catalog, public");
    char sql[SQL_SIZE];
    (void)snprintf(
        sql, sizeof sql,
        "SELECT saga_guard.once('default', 'settle', '%s', 1, 'debit', 1, '%s', 'r'), ''",
        fixture->saga, guard_started);
    assert_string_equal(answer_of(PQexec(conn, sql)).word, "t");
    PQfinish(conn);
    must(fixture->watcher, "DROP SCHEMA evil CASCADE");
}

static void test_misuse_is_an_error(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(
        answer_of(PQexec(fixture->first, "SELECT saga_guard.once('default', 'settle', NULL, 1,"
                                         " 'debit', 1, '2024-05-01', 'r')"))
            .word,
        "23502");
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    assert_string_equal(once(fixture->first, fixture->saga, fixture->saga, 1).word, "");
    must(fixture->first, "ROLLBACK");
}

/* --- two at once --- */

static void test_u7_a_concurrent_double_is_left_to_the_long_way(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(once(fixture->first, fixture->saga, fixture->saga, 1).word, "PROCEED");
    must(fixture->second, "BEGIN");
    send_once(fixture->second, fixture->saga, 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_once(fixture->second).word, "");
    must(fixture->second, "ROLLBACK");
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 2, "x").word, "DUPLICATE");
    assert_int_equal(balance(fixture, fixture->saga), 1);
}

static void test_a_double_whose_first_rolls_back_proceeds(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    must(fixture->second, "BEGIN");
    send_once(fixture->second, fixture->saga, 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "ROLLBACK");
    assert_string_equal(receive_once(fixture->second).word, "PROCEED");
    must(fixture->second, "COMMIT");
    assert_int_equal(balance(fixture, fixture->saga), 1);
}

static void test_u1_its_compensation_waits_for_it_then_undoes_it(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(once(fixture->first, fixture->saga, fixture->saga, 1).word, "PROCEED");
    must(fixture->second, "BEGIN");
    send_call(fixture->second, "enter", fixture->saga, "COMPENSATION", 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_answer(fixture->second).word, "PROCEED");
    work(fixture->second, fixture->saga, "COMPENSATION", "refunded");
    must(fixture->second, "COMMIT");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_u1_after_its_open_compensation_it_is_refused(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "COMPENSATION", 2).word, "EMPTY");
    must(fixture->second, "BEGIN");
    send_once(fixture->second, fixture->saga, 1);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_once(fixture->second).word, "");
    must(fixture->second, "ROLLBACK");
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 1, "x").word, "REFUSED");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

/* The statement waits for its account, whose row then is another than in its snapshot: it is the
 * new one that is changed, and the guard is not asked again. */
static void test_an_account_that_changes_meanwhile_is_debited_once(void **state)
{
    struct fixture *fixture = *state;
    char sql[SQL_SIZE];
    (void)snprintf(sql, sizeof sql, "UPDATE account SET balance = 40 WHERE saga = '%s'",
                   fixture->saga);
    must(fixture->first, "BEGIN");
    must(fixture->first, sql);
    must(fixture->second, "BEGIN");
    send_once(fixture->second, fixture->saga, 1);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_once(fixture->second).word, "PROCEED");
    must(fixture->second, "COMMIT");
    assert_int_equal(balance(fixture, fixture->saga), 41);
    assert_string_equal(run_shortly(fixture->first, fixture->saga, 2).word, "DUPLICATE");
}

/* --- many at once --- */

struct racer {
    const char *conninfo, *saga;
    pthread_barrier_t *barrier;
    bool compensates;
    const char *begin;
    long fence;
    int repeats;
    char word[32];
    pthread_t thread;
};

static bool is_ok(PGresult *res, const char *command)
{
    bool ok = PQresultStatus(res) == PGRES_TUPLES_OK ||
              (PQresultStatus(res) == PGRES_COMMAND_OK &&
               (!command || strcmp(PQcmdStatus(res), command) == 0));
    PQclear(res);
    return ok;
}

/* One try of either kind; returns whether its transaction has ended as it should. */
static bool race_once(struct racer *racer, PGconn *conn)
{
    char sql[SQL_SIZE];
    struct answer answer = { .word = "" };
    PQclear(PQexec(conn, racer->begin));
    if (!racer->compensates) {
        answer = once(conn, racer->saga, racer->saga, racer->fence);
        if (strcmp(answer.word, "") == 0) { /* the long way tells */
            PQclear(PQexec(conn, "ROLLBACK"));
            PQclear(PQexec(conn, racer->begin));
        }
    }
    if (strcmp(answer.word, "") == 0) {
        const char *operation = racer->compensates ? "COMPENSATION" : "ACTION";
        answer = enter(conn, racer->saga, operation, racer->fence);
        (void)snprintf(sql, sizeof sql,
                       "UPDATE account SET balance = balance %s 1 WHERE saga = '%s';"
                       "SELECT saga_guard.done('default', 'settle', '%s', 1, 'debit', '%s', 'o')",
                       racer->compensates ? "-" : "+", racer->saga, racer->saga, operation);
        if (strcmp(answer.word, "PROCEED") == 0)
            (void)is_ok(PQexec(conn, sql), NULL); /* a failure shows at COMMIT */
    }
    (void)snprintf(racer->word, sizeof racer->word, "%s", answer.word);
    return is_ok(PQexec(conn, "COMMIT"), "COMMIT");
}

static void *race(void *ctx)
{
    struct racer *racer = ctx;
    PGconn *conn = PQconnectdb(racer->conninfo);
    (void)pthread_barrier_wait(racer->barrier);
    while (!race_once(racer, conn) && racer->repeats < REPEATS_MAX)
        racer->repeats++;
    PQfinish(conn);
    return NULL;
}

static void race_all(struct fixture *fixture, const char *begin)
{
    char conninfo[POSTGRES_CONNINFO_SIZE];
    struct racer racers[RACERS];
    test_postgres_conninfo(fixture->postgres, "shop", conninfo);
    for (int round = 0; round < RACE_ROUNDS; round++) {
        void *state = fixture;
        pthread_barrier_t barrier;
        assert_int_equal(new_saga(&state), 0);
        pthread_barrier_init(&barrier, NULL, RACERS);
        for (int i = 0; i < RACERS; i++) {
            racers[i] = (struct racer){ .conninfo = conninfo,
                                        .saga = fixture->saga,
                                        .barrier = &barrier,
                                        .compensates = i % 4 == 3,
                                        .begin = begin,
                                        .fence = i % 4 == 3 ? 100 + i : 1 + i };
            assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
        }
        int proceeded[2] = { 0, 0 }, empty = 0;
        for (int i = 0; i < RACERS; i++) {
            pthread_join(racers[i].thread, NULL);
            assert_true(racers[i].repeats < REPEATS_MAX);
            proceeded[racers[i].compensates] += strcmp(racers[i].word, "PROCEED") == 0;
            empty += strcmp(racers[i].word, "EMPTY") == 0;
        }
        pthread_barrier_destroy(&barrier);
        assert_int_equal(proceeded[0], proceeded[1]);
        assert_int_equal(proceeded[1] + empty, 1);
        assert_int_equal(balance(fixture, fixture->saga), 0);
    }
}

static void test_actions_and_compensations_at_once_leave_the_books_even(void **state)
{
    race_all(*state, "BEGIN");
}

static void test_the_same_race_at_serializable(void **state)
{
    race_all(*state, "BEGIN ISOLATION LEVEL SERIALIZABLE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_u1_u2_u3_every_history_at_read_committed_is_as_the_model_says),
        GUARD_TEST(test_u1_u2_u3_every_history_at_repeatable_read_is_as_the_model_says),
        GUARD_TEST(test_its_output_is_what_a_repeat_is_told),
        GUARD_TEST(test_an_effect_that_changes_no_row_takes_the_guards_row_along),
        GUARD_TEST(test_an_effect_of_many_rows_asks_once),
        GUARD_TEST(test_below_the_floor_it_is_an_error_and_leaves_nothing),
        GUARD_TEST(test_a_floor_that_moves_under_a_kept_snapshot_is_a_serialization_error),
        GUARD_TEST(test_the_floor_waits_for_who_is_in_and_who_waits_for_it_sees_it),
        GUARD_TEST(test_names_are_bytes_whatever_the_collation_of_the_database),
        GUARD_TEST(test_nothing_of_the_callers_search_path_is_used),
        GUARD_TEST(test_misuse_is_an_error),
        GUARD_TEST(test_u7_a_concurrent_double_is_left_to_the_long_way),
        GUARD_TEST(test_a_double_whose_first_rolls_back_proceeds),
        GUARD_TEST(test_u1_its_compensation_waits_for_it_then_undoes_it),
        GUARD_TEST(test_u1_after_its_open_compensation_it_is_refused),
        GUARD_TEST(test_an_account_that_changes_meanwhile_is_debited_once),
        GUARD_TEST(test_actions_and_compensations_at_once_leave_the_books_even),
        GUARD_TEST(test_the_same_race_at_serializable),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
