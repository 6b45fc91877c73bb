/* The guard of a participant's database. Goal: an effect happens at most once for each saga, step
 * and operation, and never after its compensation, whoever races whom. Method:
 * guard_postgresql_rig.h. */
#include "guard_postgresql_rig.h"

#include <pthread.h>
#include <stdio.h>

enum { RACERS = 8, RACE_ROUNDS = 25 };

static void test_a_repeat_is_duplicate_with_the_stored_output(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "receipt").word, "PROCEED");
    struct answer same = run(fixture->second, fixture->saga, "ACTION", 1, "other");
    assert_string_equal(same.word, "DUPLICATE");
    assert_string_equal(same.output, "receipt");
    /* Fence and try are no part of the key: a newer and an older holder are told the same. */
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 9, "x").word, "DUPLICATE");
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 3, "x").word, "DUPLICATE");
    assert_int_equal(balance(fixture, fixture->saga), 1);
}

static void test_two_steps_and_two_runs_are_not_duplicates_of_each_other(void **state)
{
    struct fixture *fixture = *state;
    char sql[512];
    for (int i = 0; i < 4; i++) {
        (void)snprintf(sql, sizeof sql,
                       "SELECT answer, '' FROM saga_guard.enter('default', 'settle', '%s', %d, "
                       "'%s', 'ACTION', 5, now())",
                       fixture->saga, 1 + i / 2, i % 2 ? "debit" : "ledger");
        must(fixture->first, "BEGIN");
        assert_string_equal(answer_of(PQexec(fixture->first, sql)).word, "PROCEED");
        (void)snprintf(sql, sizeof sql,
                       "SELECT saga_guard.done('default', 'settle', '%s', %d, '%s', 'ACTION', '')",
                       fixture->saga, 1 + i / 2, i % 2 ? "debit" : "ledger");
        must(fixture->first, sql);
        must(fixture->first, "COMMIT");
    }
}

static void test_u1_compensation_waits_for_an_action_that_is_still_open_then_undoes_it(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    work(fixture->first, fixture->saga, "ACTION", "receipt");
    must(fixture->second, "BEGIN");
    send_call(fixture->second, "enter", fixture->saga, "COMPENSATION", 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_answer(fixture->second).word, "PROCEED");
    work(fixture->second, fixture->saga, "COMPENSATION", "refunded");
    must(fixture->second, "COMMIT");
    assert_int_equal(balance(fixture, fixture->saga), 0);
    struct answer again = run(fixture->second, fixture->saga, "COMPENSATION", 3, "x");
    assert_string_equal(again.word, "DUPLICATE");
    assert_string_equal(again.output, "refunded");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_u1_compensation_of_an_open_action_that_rolls_back_is_empty(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    work(fixture->first, fixture->saga, "ACTION", "receipt");
    must(fixture->second, "BEGIN");
    send_call(fixture->second, "enter", fixture->saga, "COMPENSATION", 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "ROLLBACK");
    assert_string_equal(receive_answer(fixture->second).word, "EMPTY");
    must(fixture->second, "COMMIT");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "x").word, "REFUSED");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_u1_an_action_that_comes_after_its_compensation_is_refused(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "PROCEED");
    assert_string_equal(run(fixture->second, fixture->saga, "COMPENSATION", 2, "u").word,
                        "PROCEED");
    /* REFUSED before DUPLICATE: it was done once, and is undone now. */
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "REFUSED");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 7, "r").word, "REFUSED");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_u1_an_action_that_waits_for_its_open_compensation_is_refused(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "COMPENSATION", 2).word, "EMPTY");
    must(fixture->second, "BEGIN");
    send_call(fixture->second, "enter", fixture->saga, "ACTION", 1);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_answer(fixture->second).word, "REFUSED");
    must(fixture->second, "ROLLBACK");
}

static void test_u2_empty_then_duplicate_then_the_late_action_is_refused(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 2, "u").word, "EMPTY");
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 3, "u").word,
                        "DUPLICATE");
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 1, "r").word, "REFUSED");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_u3_refused_and_duplicate_are_two_answers(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "PROCEED");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 2, "r").word, "DUPLICATE");
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 3, "u").word, "PROCEED");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 4, "r").word, "REFUSED");
}

static void test_u7_a_concurrent_double_is_duplicate_and_never_an_error(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    work(fixture->first, fixture->saga, "ACTION", "receipt");
    must(fixture->second, "BEGIN");
    send_call(fixture->second, "enter", fixture->saga, "ACTION", 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    struct answer answer = receive_answer(fixture->second);
    must(fixture->second, "COMMIT");
    assert_string_equal(answer.word, "DUPLICATE");
    assert_string_equal(answer.output, "receipt");
    assert_int_equal(balance(fixture, fixture->saga), 1);
}

static void test_a_double_whose_first_rolls_back_proceeds(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    must(fixture->second, "BEGIN");
    send_call(fixture->second, "enter", fixture->saga, "ACTION", 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "ROLLBACK");
    assert_string_equal(receive_answer(fixture->second).word, "PROCEED");
    work(fixture->second, fixture->saga, "ACTION", "receipt");
    must(fixture->second, "COMMIT");
    assert_int_equal(balance(fixture, fixture->saga), 1);
}

static void test_a_lower_fence_after_a_higher_one_is_stale(void **state)
{
    struct fixture *fixture = *state;
    /* The newer holder decided for a business reason that there is no effect. */
    send_call(fixture->first, "no_effect", fixture->saga, "ACTION", 5);
    assert_string_equal(receive_answer(fixture->first).word, "RECORDED");
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 4, "r").word, "STALE");
    assert_int_equal(balance(fixture, fixture->saga), 0);
    assert_string_equal(run(fixture->second, fixture->saga, "ACTION", 6, "r").word, "PROCEED");
    /* The same for its compensation. */
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 5, "u").word, "STALE");
    send_call(fixture->first, "no_effect", fixture->saga, "COMPENSATION", 8);
    assert_string_equal(receive_answer(fixture->first).word, "RECORDED");
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 7, "u").word, "STALE");
    /* The action is as it was: done, and a late double of it is told so. */
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 4, "r").word, "DUPLICATE");
    assert_int_equal(balance(fixture, fixture->saga), 1);
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 9, "u").word, "PROCEED");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_no_effect_tells_who_was_faster(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "receipt").word, "PROCEED");
    send_call(fixture->second, "no_effect", fixture->saga, "ACTION", 2);
    struct answer answer = receive_answer(fixture->second);
    assert_string_equal(answer.word, "DUPLICATE");
    assert_string_equal(answer.output, "receipt");
}

static void test_an_action_that_had_no_effect_has_nothing_to_undo(void **state)
{
    struct fixture *fixture = *state;
    send_call(fixture->first, "no_effect", fixture->saga, "ACTION", 5);
    assert_string_equal(receive_answer(fixture->first).word, "RECORDED");
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 6, "u").word, "EMPTY");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 7, "r").word, "REFUSED");
}

/* enter or no_effect of a compensation, for an action that may have had an effect elsewhere. */
static const char *even(struct fixture *fixture, const char *function, long fence)
{
    static struct answer answer; /* one at a time */
    char sql[256];
    (void)snprintf(sql, sizeof sql,
                   "SELECT answer, '' FROM saga_guard.%s('default', 'settle', '%s', 1, 'debit', "
                   "'COMPENSATION', %ld, '%s', true)",
                   function, fixture->saga, fence, guard_started);
    answer = answer_of(PQexec(fixture->first, sql));
    return answer.word;
}

static void test_u5_even_without_an_action_the_compensation_runs(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(even(fixture, "no_effect", 2), "RECORDED");
    assert_string_equal(even(fixture, "enter", 1), "STALE");
    must(fixture->first, "BEGIN");
    assert_string_equal(even(fixture, "enter", 3), "PROCEED");
    work(fixture->first, fixture->saga, "COMPENSATION", "cancelled");
    must(fixture->first, "COMMIT");
    assert_string_equal(even(fixture, "enter", 4), "DUPLICATE");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 5, "r").word, "REFUSED");
    assert_int_equal(balance(fixture, fixture->saga), -1);
}

static void test_u5_even_without_an_action_changes_nothing_where_there_is_one(void **state)
{
    struct fixture *fixture = *state;
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "PROCEED");
    assert_string_equal(even(fixture, "no_effect", 2), "RECORDED");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "DUPLICATE");
    must(fixture->first, "BEGIN");
    assert_string_equal(even(fixture, "enter", 3), "PROCEED");
    work(fixture->first, fixture->saga, "COMPENSATION", "u");
    must(fixture->first, "COMMIT");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "REFUSED");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_commit_without_done_is_refused(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    assert_string_equal(answer_of(PQexec(fixture->first, "COMMIT")).word, "55000");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "PROCEED");
}

static void test_misuse_is_an_error_and_no_answer(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "55000");
    must(fixture->first, "ROLLBACK");
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    assert_string_equal(enter(fixture->first, fixture->saga, "COMPENSATION", 2).word, "55000");
    must(fixture->first, "ROLLBACK");
    assert_string_equal(enter(fixture->first, fixture->saga, "PROBE", 1).word, "22023");
    assert_string_equal(enter(fixture->first, NULL, "ACTION", 1).word, "22004");
    assert_string_equal(
        answer_of(PQexec(fixture->first, "SELECT saga_guard.done('default', "
                                         "'settle', 'x', 1, 'debit', 'ACTION', '')"))
            .word,
        "55000");
    /* A worker has no way around the functions. */
    static const char *const forbidden[] = {
        "DELETE FROM saga_guard.guard",
        "UPDATE saga_guard.guard SET state = 'SEEN'",
        "SELECT * FROM saga_guard.guard",
        "UPDATE saga_guard.guard_floor SET floor = '-infinity'",
        "SELECT saga_guard.raise_floor(now())",
    };
    for (size_t i = 0; i < ARRAY_LEN(forbidden); i++)
        assert_string_equal(answer_of(PQexec(fixture->first, forbidden[i])).word, "42501");
    assert_string_equal(answer_of(PQexec(fixture->first, "SELECT saga_guard.purge()")).word,
                        "42501");
}

/* At the stricter levels the wait ends in a serialization error; the next try is told the truth. */
static void strict_level_retries(struct fixture *fixture, const char *level)
{
    char begin[64];
    (void)snprintf(begin, sizeof begin, "BEGIN ISOLATION LEVEL %s", level);
    must(fixture->first, "BEGIN");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "PROCEED");
    work(fixture->first, fixture->saga, "ACTION", "receipt");
    must(fixture->second, begin);
    must(fixture->second, "SELECT 1"); /* the snapshot is older than the action's commit */
    send_call(fixture->second, "enter", fixture->saga, "COMPENSATION", 2);
    assert_waits(fixture, fixture->second);
    must(fixture->first, "COMMIT");
    assert_string_equal(receive_answer(fixture->second).word, "40001");
    must(fixture->second, "ROLLBACK");
    must(fixture->second, begin);
    assert_string_equal(enter(fixture->second, fixture->saga, "COMPENSATION", 2).word, "PROCEED");
    work(fixture->second, fixture->saga, "COMPENSATION", "u");
    must(fixture->second, "COMMIT");
    assert_int_equal(balance(fixture, fixture->saga), 0);
}

static void test_repeatable_read_answers_a_race_with_a_serialization_error(void **state)
{
    strict_level_retries(*state, "REPEATABLE READ");
}

static void test_serializable_answers_a_race_with_a_serialization_error(void **state)
{
    strict_level_retries(*state, "SERIALIZABLE");
}

struct racer {
    const char *conninfo, *saga;
    pthread_barrier_t *barrier;
    bool compensates, strict;
    long fence;
    int repeats;
    char word[32];
};

static void *race(void *ctx)
{
    struct racer *racer = ctx;
    PGconn *conn = PQconnectdb(racer->conninfo);
    const char *operation = racer->compensates ? "COMPENSATION" : "ACTION";
    (void)pthread_barrier_wait(racer->barrier);
    for (; racer->repeats < 50; racer->repeats++) {
        PQclear(PQexec(conn, racer->strict ? "BEGIN ISOLATION LEVEL SERIALIZABLE" : "BEGIN"));
        send_call(conn, "enter", racer->saga, operation, racer->fence);
        struct answer answer = receive_answer(conn);
        (void)snprintf(racer->word, sizeof racer->word, "%s", answer.word);
        char sql[512];
        (void)snprintf(sql, sizeof sql,
                       "UPDATE account SET balance = balance %s 1 WHERE saga = '%s';"
                       "SELECT saga_guard.done('default', 'settle', '%s', 1, 'debit', '%s', 'o')",
                       racer->compensates ? "-" : "+", racer->saga, racer->saga, operation);
        bool worked = true;
        if (strcmp(answer.word, "PROCEED") == 0) {
            PGresult *res = PQexec(conn, sql);
            worked = PQresultStatus(res) == PGRES_TUPLES_OK;
            PQclear(res);
        }
        PGresult *res = PQexec(conn, "COMMIT");
        worked = worked && strcmp(PQcmdStatus(res), "COMMIT") == 0;
        PQclear(res);
        if (worked)
            break;
        (void)snprintf(racer->word, sizeof racer->word, "RETRY");
    }
    PQfinish(conn);
    return NULL;
}

/* Actions and compensations of one step, all at once. Whatever the order: the books are even, no
 * racer ends in an error, at most one of each kind proceeds. */
static void race_all(struct fixture *fixture, bool strict)
{
    char conninfo[POSTGRES_CONNINFO_SIZE];
    test_postgres_conninfo(fixture->postgres, "shop", conninfo);
    for (int round = 0; round < RACE_ROUNDS; round++) {
        void *state = fixture;
        assert_int_equal(new_saga(&state), 0);
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, RACERS);
        struct racer racers[RACERS];
        pthread_t threads[RACERS];
        for (int i = 0; i < RACERS; i++) {
            racers[i] = (struct racer){ .conninfo = conninfo,
                                        .saga = fixture->saga,
                                        .barrier = &barrier,
                                        .compensates = i % 4 == 3,
                                        .strict = strict,
                                        .fence = i % 4 == 3 ? 100 + i : 1 + i };
            assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
        }
        int proceeded[2] = { 0, 0 }, empty = 0;
        for (int i = 0; i < RACERS; i++) {
            pthread_join(threads[i], NULL);
            const char *word = racers[i].word;
            proceeded[racers[i].compensates] += strcmp(word, "PROCEED") == 0;
            empty += strcmp(word, "EMPTY") == 0;
            bool known = strcmp(word, "PROCEED") == 0 || strcmp(word, "EMPTY") == 0 ||
                         strcmp(word, "DUPLICATE") == 0 || strcmp(word, "REFUSED") == 0 ||
                         (racers[i].compensates && strcmp(word, "STALE") == 0);
            /* One order of locks: READ COMMITTED knows no deadlock and nothing to repeat. */
            if (!known || (!strict && racers[i].repeats > 0))
                fail_msg("racer %d of round %d ended with %s after %d repeats", i, round, word,
                         racers[i].repeats);
        }
        pthread_barrier_destroy(&barrier);
        assert_int_equal(proceeded[0], proceeded[1]);
        assert_int_equal(proceeded[1] + empty, 1);
        assert_int_equal(balance(fixture, fixture->saga), 0);
    }
}

static void test_actions_and_compensations_at_once_leave_the_books_even(void **state)
{
    race_all(*state, false);
}

static void test_the_same_race_at_serializable(void **state)
{
    race_all(*state, true);
}

static void test_below_the_floor_everything_unknown_is_stale_and_rows_can_be_purged(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    int64_t count;
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "PROCEED");
    char fresh[64];
    (void)snprintf(fresh, sizeof fresh, "%s-other", fixture->saga);
    must(fixture->watcher, "SELECT saga_guard.raise_floor('2024-05-01 12:00:01+00')");
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "DUPLICATE");
    assert_string_equal(run(fixture->first, fixture->saga, "COMPENSATION", 2, "u").word, "STALE");
    assert_string_equal(run(fixture->first, fresh, "ACTION", 1, "r").word, "STALE");
    assert_string_equal(run(fixture->first, fresh, "COMPENSATION", 2, "u").word, "STALE");
    /* It never goes down. */
    must(fixture->watcher, "SELECT saga_guard.raise_floor('2020-01-01')");
    ASSERT_OK(
        test_postgres_count(fixture->postgres, "shop", "SELECT saga_guard.purge(2)", &count, &err),
        &err);
    assert_int_equal(count, 2);
    do {
        ASSERT_OK(test_postgres_count(fixture->postgres, "shop", "SELECT saga_guard.purge(50)",
                                      &count, &err),
                  &err);
    } while (count > 0);
    ASSERT_OK(test_postgres_count(
                  fixture->postgres, "shop",
                  "SELECT count(*) FROM saga_guard.guard WHERE saga_started_at < '2024-05-02'",
                  &count, &err),
              &err);
    assert_int_equal(count, 0);
    assert_string_equal(run(fixture->first, fixture->saga, "ACTION", 1, "r").word, "STALE");
    assert_int_equal(balance(fixture, fixture->saga), 1);
    must(fixture->watcher, "UPDATE saga_guard.guard_floor SET floor = '-infinity'");
}

/* A transaction that keeps its snapshot must not take an old floor for the current one. */
static void test_a_floor_that_moves_under_a_kept_snapshot_is_a_serialization_error(void **state)
{
    struct fixture *fixture = *state;
    must(fixture->first, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    must(fixture->first, "SELECT 1 FROM account");
    must(fixture->watcher, "SELECT saga_guard.raise_floor('2024-05-01 12:00:01+00')");
    assert_string_equal(enter(fixture->first, fixture->saga, "ACTION", 1).word, "40001");
    must(fixture->first, "ROLLBACK");
    must(fixture->watcher, "UPDATE saga_guard.guard_floor SET floor = '-infinity'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GUARD_TEST(test_a_repeat_is_duplicate_with_the_stored_output),
        GUARD_TEST(test_two_steps_and_two_runs_are_not_duplicates_of_each_other),
        GUARD_TEST(test_u1_compensation_waits_for_an_action_that_is_still_open_then_undoes_it),
        GUARD_TEST(test_u1_compensation_of_an_open_action_that_rolls_back_is_empty),
        GUARD_TEST(test_u1_an_action_that_comes_after_its_compensation_is_refused),
        GUARD_TEST(test_u1_an_action_that_waits_for_its_open_compensation_is_refused),
        GUARD_TEST(test_u2_empty_then_duplicate_then_the_late_action_is_refused),
        GUARD_TEST(test_u3_refused_and_duplicate_are_two_answers),
        GUARD_TEST(test_u7_a_concurrent_double_is_duplicate_and_never_an_error),
        GUARD_TEST(test_a_double_whose_first_rolls_back_proceeds),
        GUARD_TEST(test_a_lower_fence_after_a_higher_one_is_stale),
        GUARD_TEST(test_no_effect_tells_who_was_faster),
        GUARD_TEST(test_an_action_that_had_no_effect_has_nothing_to_undo),
        GUARD_TEST(test_u5_even_without_an_action_the_compensation_runs),
        GUARD_TEST(test_u5_even_without_an_action_changes_nothing_where_there_is_one),
        GUARD_TEST(test_commit_without_done_is_refused),
        GUARD_TEST(test_misuse_is_an_error_and_no_answer),
        GUARD_TEST(test_repeatable_read_answers_a_race_with_a_serialization_error),
        GUARD_TEST(test_serializable_answers_a_race_with_a_serialization_error),
        GUARD_TEST(test_actions_and_compensations_at_once_leave_the_books_even),
        GUARD_TEST(test_the_same_race_at_serializable),
        GUARD_TEST(test_below_the_floor_everything_unknown_is_stale_and_rows_can_be_purged),
        GUARD_TEST(test_a_floor_that_moves_under_a_kept_snapshot_is_a_serialization_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
