/* Goal: an event is written with the transition that it tells of, or not at all. Method: each kind
 * of transition on PostgreSQL, under each choice of what is published; decisions that lose; a
 * transition of which a part is durable; a batch of which a part fails; each time the rows of the
 * outbox beside what the journal and the saga say. */
#include "store_fixture.h"

#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store *store;
static PGconn *watch;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "events", conninfo);
    store = fixture_store(conninfo);
    watch = fixture_connect(conninfo);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    PQfinish(watch);
    store = store_pg_free(store);
    postgres = test_postgres_free(postgres);
    return 0;
}

static int each_setup(void **state)
{
    (void)state;
    fixture_publish(PUBLISH_TRANSITIONS);
    return 0;
}

/* "seq/part ..." in the order in which they are published. */
static void expect_events(const struct copy *copy, const char *expected)
{
    char uid[UUID_TEXT_SIZE], sql[400];
    uuid_format(&saga_row(copy->saga)->uid, uid);
    (void)snprintf(sql, sizeof sql,
                   "SELECT coalesce(string_agg(seq || '/' || part, ' ' ORDER BY part, created_at,"
                   " seq), '') FROM outbox WHERE saga_uid = '%s' AND shard ="
                   " (SELECT shard FROM saga WHERE saga_uid = '%s')",
                   uid, uid);
    PGresult *result = PQexec(watch, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    assert_string_equal(PQgetvalue(result, 0, 0), expected);
    PQclear(result);
}

/* What is in the outbox is what is so, no more and no less (of definitions that publish all). */
static void expect_the_truth(void)
{
    static const char facts[] =
        "SELECT count(*) FROM (SELECT shard, saga_uid, 0::bigint AS seq, 0 AS part, started_at AS t"
        " FROM saga UNION ALL SELECT shard, saga_uid, seq, 1, finished_at FROM journal"
        " WHERE finished_at IS NOT NULL) f FULL JOIN (SELECT * FROM outbox WHERE part < 2) o"
        " ON o.shard = f.shard AND o.saga_uid = f.saga_uid AND o.seq = f.seq AND o.part = f.part"
        " AND o.created_at = f.t WHERE f.shard IS NULL OR o.shard IS NULL";
    static const char ends[] =
        "SELECT count(*) FROM (SELECT * FROM saga WHERE ended_at IS NOT NULL) s FULL JOIN"
        " (SELECT * FROM outbox WHERE part = 2) o ON o.shard = s.shard AND o.saga_uid = s.saga_uid"
        " AND o.created_at = s.ended_at WHERE s.shard IS NULL OR o.shard IS NULL";
    assert_int_equal(fixture_count(watch, facts), 0);
    assert_int_equal(fixture_count(watch, ends), 0);
}

static void clean(void)
{
    fixture_exec(watch, "TRUNCATE outbox, journal, saga, saga_key");
}

/* Three steps, of which the second is tried twice; then the end. */
static void run_to_its_end(struct copy *copy, const char *id)
{
    copy_new(copy, id, "w/1");
    copy_write(copy, store, STORE_OK);
    copy_report(copy, OUTCOME_DONE, "out"); /* with the next lease: finish_grant */
    copy_grant(copy, "w/1");
    copy_write(copy, store, STORE_OK);
    copy_report(copy, OUTCOME_RETRY, NULL); /* alone: finish */
    copy_write(copy, store, STORE_OK);
    copy_grant(copy, "w/1"); /* alone: grant */
    copy_write(copy, store, STORE_OK);
    copy_report(copy, OUTCOME_DONE, "out");
    copy_grant(copy, "w/1");
    copy_write(copy, store, STORE_OK);
    copy_report(copy, OUTCOME_DONE, "out"); /* finish_end */
    copy_write(copy, store, STORE_OK);
    assert_int_equal(saga_row(copy->saga)->state, SAGA_SUCCEEDED);
}

/* Refused at the second step; the compensation of the first is refused, too: parked. */
static void run_until_parked(struct copy *copy, const char *id)
{
    copy_new(copy, id, "w/1");
    copy_write(copy, store, STORE_OK);
    copy_report(copy, OUTCOME_DONE, "out");
    copy_grant(copy, "w/1");
    copy_write(copy, store, STORE_OK);
    copy_report(copy, OUTCOME_REJECTED, NULL); /* phase: 3 COMPENSATE, and 4 its lease */
    copy_grant(copy, "w/1");
    copy_write(copy, store, STORE_OK);
    copy_report(copy, OUTCOME_REJECTED, NULL); /* phase: 5 PARK */
    copy_write(copy, store, STORE_OK);
    assert_int_equal(saga_row(copy->saga)->state, SAGA_PARKED);
}

static void test_each_transition_has_its_events(void **state)
{
    (void)state;
    static const struct {
        enum publish publish;
        const char *ended, *parked;
    } cases[] = {
        { PUBLISH_NONE, "", "" },
        { PUBLISH_ENDS, "4/2", "5/1" },
        { PUBLISH_TRANSITIONS, "0/0 1/1 2/1 3/1 4/1 4/2", "0/0 1/1 2/1 3/1 4/1 5/1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct copy ended, parked;
        clean();
        fixture_publish(cases[i].publish);
        run_to_its_end(&ended, "ended");
        expect_events(&ended, cases[i].ended);
        run_until_parked(&parked, "parked");
        expect_events(&parked, cases[i].parked);
        if (cases[i].publish == PUBLISH_TRANSITIONS)
            expect_the_truth();
        copy_done(&ended);
        copy_done(&parked);
    }
}

static void abandon(struct copy *copy)
{
    struct err err;
    enum verdict verdict;
    copy->transition = (struct transition){ 0 };
    ASSERT_OK(saga_on_abandon(copy->saga, "ada", "lost", clock_wall_ms(&clock_system),
                              &copy->transition, &verdict, &err),
              &err);
    copy->op = (struct store_op){ .kind = STORE_TRANSITION,
                                  .saga = copy->saga,
                                  .transition = &copy->transition };
}

/* An end that has an entry of its own, and one without any lease. */
static void test_ends_that_are_decisions(void **state)
{
    (void)state;
    struct copy copy;
    clean();
    run_until_parked(&copy, "abandoned");
    abandon(&copy);
    copy_write(&copy, store, STORE_OK);
    expect_events(&copy, "0/0 1/1 2/1 3/1 4/1 5/1 6/1 6/2");
    copy_done(&copy);
    copy_new(&copy, "cancelled", NULL);
    copy_write(&copy, store, STORE_OK);
    copy_cancel(&copy);
    copy_write(&copy, store, STORE_OK);
    assert_int_equal(saga_row(copy.saga)->state, SAGA_COMPENSATED);
    expect_events(&copy, "0/0 1/1 1/2");
    copy_done(&copy);
    expect_the_truth();
}

/* It has lost, and writes nothing, also where the winner's event has left already. */
static void lose(struct copy *copy, enum store_result expected)
{
    fixture_exec(watch, "CREATE TEMP TABLE kept AS SELECT * FROM outbox; DELETE FROM outbox");
    copy_write(copy, store, expected);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox"), 0);
    fixture_exec(watch, "INSERT INTO outbox SELECT * FROM kept; DROP TABLE kept");
    expect_the_truth();
}

/* The same decision by two copies: one is in the journal, and one event in the outbox. And a start
 * of a key that is known. */
static void test_what_loses_has_no_event(void **state)
{
    (void)state;
    struct copy made, again, late;
    clean();
    copy_new(&made, "twice", "w/1");
    copy_write(&made, store, STORE_OK);
    copy_new(&again, "twice", "w/1");
    lose(&again, STORE_EXISTS);
    copy_load(&late, store, &saga_row(made.saga)->uid);
    copy_report(&made, OUTCOME_DONE, "out");
    copy_grant(&made, "w/1");
    copy_write(&made, store, STORE_OK);
    copy_report(&late, OUTCOME_UNKNOWN, NULL);
    lose(&late, STORE_LOST);
    expect_events(&made, "0/0 1/1");
    copy_done(&late);
    /* both decide the same position, one after the other: the cancel's entry loses */
    copy_load(&late, store, &saga_row(made.saga)->uid);
    copy_report(&made, OUTCOME_REJECTED, NULL);
    copy_write(&made, store, STORE_OK);
    copy_cancel(&late);
    lose(&late, STORE_LOST);
    copy_done(&made);
    copy_done(&again);
    copy_done(&late);
}

/* The report's outcome is durable although the lease that went with it lost: so is its event. */
static void test_what_is_durable_of_a_lost_transition_has_its_event(void **state)
{
    (void)state;
    struct copy made, other;
    clean();
    copy_new(&made, "half", "w/1");
    copy_write(&made, store, STORE_OK);
    copy_report(&made, OUTCOME_DONE, "out");
    copy_grant(&made, "w/1");
    fixture_exec(watch, "INSERT INTO journal (shard, saga_uid, seq, fence, kind, try, finished_at)"
                        " SELECT shard, saga_uid, 2, 0, 'RETRY', 0, now() FROM saga;"
                        "INSERT INTO outbox SELECT shard, saga_uid, 2, 1, finished_at FROM journal"
                        " WHERE seq = 2");
    copy_write(&made, store, STORE_LOST);
    expect_events(&made, "0/0 2/1 1/1");
    expect_the_truth();
    copy_done(&made);
    copy_new(&other, "after", "w/1");
    copy_write(&other, store, STORE_OK);
    copy_done(&other);
}

/* One of a batch cannot be written: the others' events are there, and none of its own. */
static void test_what_fails_of_a_batch_has_no_event(void **state)
{
    (void)state;
    enum { MANY = 20, LOCKED = 7 };
    static struct copy copies[MANY];
    char uid[UUID_TEXT_SIZE], sql[128];
    clean();
    for (int i = 0; i < MANY; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "batch-%d", i);
        copy_new(&copies[i], id, "w/1");
        copy_write(&copies[i], store, STORE_OK);
        copy_report(&copies[i], OUTCOME_DONE, "out");
        copy_grant(&copies[i], "w/1");
        if (i > 0)
            copies[i - 1].op.next = &copies[i].op;
    }
    PGconn *locker = fixture_connect(conninfo);
    uuid_format(&saga_row(copies[LOCKED].saga)->uid, uid);
    (void)snprintf(sql, sizeof sql, "BEGIN; SELECT * FROM journal WHERE saga_uid = '%s' FOR UPDATE",
                   uid);
    fixture_exec(locker, sql);
    fixture_run(store, &copies[0].op);
    fixture_exec(locker, "COMMIT");
    PQfinish(locker);
    for (int i = 0; i < MANY; i++) {
        if (i == LOCKED)
            assert_int_equal(copies[i].op.result, STORE_FAILED);
        else
            copy_expect(&copies[i], STORE_OK);
        expect_events(&copies[i], i == LOCKED ? "0/0" : "0/0 1/1");
        copy_done(&copies[i]);
    }
    expect_the_truth();
}

/* Sagas that publish nothing beside others that do: nothing of theirs is even asked for. */
static void test_a_batch_without_events_asks_for_none(void **state)
{
    (void)state;
    struct copy copy;
    struct params params = { 0 };
    struct err err;
    clean();
    fixture_publish(PUBLISH_NONE);
    copy_new(&copy, "silent", "w/1");
    struct write write;
    ASSERT_OK(write_route(&copy.op, &write, &err), &err);
    assert_false(write_fill_events(&params, &write, 1));
    copy_write(&copy, store, STORE_OK);
    fixture_publish(PUBLISH_ENDS); /* a lease that ends is no end of the saga */
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_grant(&copy, "w/1");
    ASSERT_OK(write_route(&copy.op, &write, &err), &err);
    assert_false(write_fill_events(&params, &write, 1));
    copy_write(&copy, store, STORE_OK);
    fixture_publish(PUBLISH_TRANSITIONS);
    copy_report(&copy, OUTCOME_DONE, "out");
    ASSERT_OK(write_route(&copy.op, &write, &err), &err);
    assert_true(write_fill_events(&params, &write, 1));
    struct store_op extend = { .kind = STORE_EXTEND, .uid = saga_row(copy.saga)->uid, .seq = 1 };
    ASSERT_OK(write_route(&extend, &write, &err), &err);
    assert_false(write_fill_events(&params, &write, 1));
    copy_write(&copy, store, STORE_OK);
    params_done(&params);
    copy_done(&copy);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_each_transition_has_its_events, each_setup),
        cmocka_unit_test_setup(test_ends_that_are_decisions, each_setup),
        cmocka_unit_test_setup(test_what_loses_has_no_event, each_setup),
        cmocka_unit_test_setup(test_what_is_durable_of_a_lost_transition_has_its_event, each_setup),
        cmocka_unit_test_setup(test_what_fails_of_a_batch_has_no_event, each_setup),
        cmocka_unit_test_setup(test_a_batch_without_events_asks_for_none, each_setup),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
