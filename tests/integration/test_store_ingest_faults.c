/* Goal: whatever dies, waits or comes late around a batch of records, each record is handled once
 * and nobody believes what may not be so. Method: foreign locks, two consumers at one place, a
 * database that is killed at each point of the batch, commits whose answer does not come; the calls
 * that block run on a thread of their own. */
#include "ingest_fixture.h"

#include "base/fault.h"
#include "store/connect.h"
#include "support/proof.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static PGconn *conn;
static int wake[2]; /* a pipe */
static bool standby_named;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    /* A circle is found before a wait in it is over. */
    static const char *const settings[] = { "deadlock_timeout=50ms", NULL };
    SETUP_OK(test_postgres_start(settings, &postgres, &err), &err);
    return pipe2(wake, O_NONBLOCK | O_CLOEXEC);
}

static int group_teardown(void **state)
{
    (void)state;
    postgres = test_postgres_free(postgres);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    static int number;
    char name[32];
    (void)snprintf(name, sizeof name, "faults_%d", number++);
    fixture_database(postgres, name, conninfo);
    conn = fixture_connect(conninfo);
    fixture_exec(conn, "INSERT INTO node VALUES ('node-1', gen_random_uuid(), now(), now())");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (standby_named) /* of a test that failed */
        fixture_exec(conn, "ALTER SYSTEM RESET synchronous_standby_names");
    if (standby_named)
        fixture_exec(conn, "SELECT pg_reload_conf()");
    standby_named = false;
    PQfinish(conn);
    fault_hook = NULL;
    return 0;
}

static void assert_count(const char *sql, int64_t expected)
{
    int64_t count = fixture_count(conn, sql);
    if (count != expected)
        fail_msg("%lld instead of %lld: %s", (long long)count, (long long)expected, sql);
}

/* --- a batch on a thread of its own ---------------------------------------------------------- */

struct batch_thread {
    pthread_t thread;
    struct store_ingest *ingest;
    struct made *made;
    struct err err;
    int rc;
    int64_t ended_ms;
};

static int64_t mono_ms(void)
{
    return clock_mono_ms(&clock_system);
}

static void *batch_main(void *ctx)
{
    struct batch_thread *thread = ctx;
    thread->rc = store_ingest_batch(thread->ingest, &thread->made->batch, &thread->err);
    thread->ended_ms = mono_ms();
    return NULL;
}

static void thread_start(struct batch_thread *thread, struct store_ingest *ingest)
{
    *thread = (struct batch_thread){ .ingest = ingest, .made = made_new() };
}

static void thread_run(struct batch_thread *thread)
{
    assert_int_equal(pthread_create(&thread->thread, NULL, batch_main, thread), 0);
}

static void thread_join(struct batch_thread *thread)
{
    assert_int_equal(pthread_join(thread->thread, NULL), 0);
}

static void thread_done(struct batch_thread *thread)
{
    thread->made = made_free(thread->made);
    thread->ingest = store_ingest_free(thread->ingest);
}

/* Until so many sessions of ingests wait for this. */
static void wait_waiting(const char *type, const char *event, int64_t sessions)
{
    char sql[240];
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sagad ingest'"
                   " AND datname = current_database() AND wait_event_type = '%s'"
                   " AND wait_event LIKE '%s'",
                   type, event);
    for (int i = 0; fixture_count(conn, sql) < sessions; i++) {
        assert_true(i < 3000);
        fixture_exec(conn, "SELECT pg_sleep(0.01)");
    }
}

static void wake_now(void)
{
    assert_int_equal(write(wake[1], "x", 1), 1);
}

static void wake_over(void)
{
    char byte;
    while (read(wake[0], &byte, 1) == 1)
        ;
}

/* --- two at one place ------------------------------------------------------------------------ */

/* It waits for the one that has the partition now, and then finds another offset. */
static void test_p7_a_zombie_that_waited_loses(void **state)
{
    (void)state;
    struct batch_thread zombie;
    thread_start(&zombie, ingest_open_rule(conninfo, -1));
    made_start(zombie.made, 0, 0, "old", "x");
    made_start(zombie.made, 1, 0, "mine", "x");
    fixture_exec(conn, "BEGIN; UPDATE kafka_cursor SET next_offset = 7 WHERE partition = 0");
    thread_run(&zombie);
    PGconn *watch = conn;
    conn = fixture_connect(conninfo);
    wait_waiting("Lock", "%", 1);
    fixture_exec(watch, "COMMIT");
    PQfinish(watch);
    thread_join(&zombie);
    assert_int_equal(zombie.rc, 0);
    assert_string_equal(made_results(zombie.made), "NOTHING STARTED");
    assert_cursor(conn, 0, "0 0 0 0 0 0 0 @7");
    assert_cursor(conn, 1, "1 1 0 0 0 0 0 @1");
    assert_count("SELECT count(*) FROM saga WHERE saga_id = 'old'", 0);
    thread_done(&zombie);
}

/* The first one is rolled back while the next one waits for it: that one does it all. */
static void test_p7_a_batch_that_is_rolled_back_while_the_next_one_waits(void **state)
{
    (void)state;
    struct batch_thread first, next;
    thread_start(&first, ingest_open_rule(conninfo, wake[0]));
    thread_start(&next, ingest_open_as(conninfo, "node-2", -1));
    fixture_exec(conn, "INSERT INTO node VALUES ('node-2', gen_random_uuid(), now(), now())");
    made_start(first.made, 0, 0, "k", "x");
    made_start(next.made, 0, 0, "k", "x");
    made_start(next.made, 0, 1, "l", "x");
    PGconn *holder = fixture_connect(conninfo); /* the first one gets no further than its key */
    fixture_exec(holder, "BEGIN; LOCK TABLE saga_key IN SHARE MODE");
    thread_run(&first);
    wait_waiting("Lock", "relation", 1);
    thread_run(&next);
    wait_waiting("Lock", "%", 2);
    wake_now();
    thread_join(&first);
    assert_int_equal(first.rc, ERR_UNAVAILABLE);
    assert_string_equal(first.err.reason, "STOPPED");
    wake_over();
    fixture_exec(holder, "ROLLBACK");
    PQfinish(holder);
    thread_join(&next);
    /* The server notices the first one's end when its own wait is over: as long may the next wait.
     */
    for (int i = 0; next.rc != 0; i++) {
        assert_true(i < 100 && next.err.retryable);
        thread_run(&next);
        thread_join(&next);
    }
    assert_true(next.made->parts[0].moved);
    assert_string_equal(made_results(next.made), "STARTED STARTED");
    assert_cursor(conn, 0, "2 2 0 0 0 0 0 @2");
    assert_count("SELECT count(*) FROM saga WHERE owner = 'node-2'", 2);
    thread_done(&first);
    thread_done(&next);
}

enum { RACERS = 4, RACE_KEYS = 700, RACE_ROUNDS = 3 };

struct racer {
    pthread_t thread;
    struct store_ingest *ingest;
    struct made *made;
    struct err err;
    int32_t partition;
    int64_t counts[5];
    int failed;
};

/* All of the same keys, each in an order of its own, until they are through. */
static void *racer_main(void *ctx)
{
    struct racer *racer = ctx;
    struct rng rng;
    rng_seed(&rng, (uint64_t)racer->partition + 1);
    for (int round = 0; round < RACE_ROUNDS && !racer->failed; round++) {
        int order[RACE_KEYS];
        made_clear(racer->made);
        for (int i = 0; i < RACE_KEYS; i++) {
            int j = (int)rng_below(&rng, (uint64_t)i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < RACE_KEYS; i++) {
            char id[32];
            (void)snprintf(id, sizeof id, "race-%d-%d", round, order[i]);
            made_start(racer->made, racer->partition, round * RACE_KEYS + i, id, "x");
        }
        int tries = 0;
        while (store_ingest_batch(racer->ingest, &racer->made->batch, &racer->err) != 0)
            if (!racer->err.retryable || ++tries > 200) {
                racer->failed = 1;
                break;
            }
        for (int i = 0; i < RACE_KEYS && !racer->failed; i++)
            racer->counts[racer->made->records[i].result]++;
    }
    return NULL;
}

static void test_p1_the_same_keys_from_many_partitions_at_once(void **state)
{
    (void)state;
    static struct racer racers[RACERS];
    struct store_ingest *first = ingest_open_rule(conninfo, -1);
    fixture_exec(conn, "INSERT INTO kafka_cursor (rule, topic, partition, next_offset)"
                       " VALUES ('pays', 'payments', 3, 0)");
    PGconn *holder = fixture_connect(conninfo); /* until all of them are at their first key */
    fixture_exec(holder, "BEGIN; LOCK TABLE saga_key IN SHARE MODE");
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){ .partition = i, .made = made_new() };
        racers[i].ingest = ingest_open_as(conninfo, "node-1", -1);
        assert_int_equal(pthread_create(&racers[i].thread, NULL, racer_main, &racers[i]), 0);
    }
    wait_waiting("Lock", "relation", RACERS);
    fixture_exec(holder, "ROLLBACK");
    PQfinish(holder);
    int64_t started = 0, duplicates = 0;
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(racers[i].thread, NULL), 0);
        if (racers[i].failed)
            fail_msg("racer %d: %s", i, racers[i].err.msg);
        started += racers[i].counts[INGEST_STARTED];
        duplicates += racers[i].counts[INGEST_DUPLICATE];
        racers[i].made = made_free(racers[i].made);
        racers[i].ingest = store_ingest_free(racers[i].ingest);
    }
    assert_int_equal(started, RACE_KEYS * RACE_ROUNDS);
    assert_int_equal(duplicates, RACE_KEYS * RACE_ROUNDS * (RACERS - 1));
    assert_count("SELECT count(*) FROM saga", started);
    assert_count("SELECT sum(started) FROM kafka_cursor", started);
    assert_count("SELECT sum(duplicates) FROM kafka_cursor", duplicates);
    assert_count("SELECT sum(records) FROM kafka_cursor", started + duplicates);
    /* Keys in one order: nobody waits in a circle. */
    assert_count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", 0);
    (void)store_ingest_free(first);
}

/* --- stop ------------------------------------------------------------------------------------ */

static void test_a_blocked_insert_ends_at_once_when_it_is_woken(void **state)
{
    (void)state;
    struct err err;
    struct batch_thread thread;
    thread_start(&thread, ingest_open_rule(conninfo, wake[0]));
    made_start(thread.made, 0, 0, "k", "x");
    PGconn *holder = fixture_connect(conninfo);
    fixture_exec(holder, "BEGIN; LOCK TABLE saga_key IN SHARE MODE");
    thread_run(&thread);
    wait_waiting("Lock", "relation", 1);
    int64_t woken_ms = mono_ms();
    wake_now();
    thread_join(&thread);
    assert_int_equal(thread.rc, ERR_UNAVAILABLE);
    assert_string_equal(thread.err.reason, "STOPPED");
    assert_true(thread.err.retryable);
    assert_in_range(thread.ended_ms - woken_ms, 0, 400);
    /* While it is woken not even a connection is waited for. */
    woken_ms = mono_ms();
    assert_int_equal(store_ingest_batch(thread.ingest, &thread.made->batch, &err), ERR_UNAVAILABLE);
    assert_string_equal(err.reason, "STOPPED");
    assert_in_range(mono_ms() - woken_ms, 0, 400);
    wake_over();
    fixture_exec(holder, "ROLLBACK");
    PQfinish(holder);
    assert_count("SELECT count(*) FROM saga", 0);
    while (store_ingest_batch(thread.ingest, &thread.made->batch, &err) != 0)
        assert_true(err.retryable); /* the server has still to notice the end of the first one */
    assert_string_equal(made_results(thread.made), "STARTED");
    thread_done(&thread);
}

/* A database that accepts and says nothing. */
static void test_a_call_ends_at_its_deadline(void **state)
{
    (void)state;
    struct err err;
    struct batch_thread thread;
    thread_start(&thread, ingest_open_rule(conninfo, -1));
    made_start(thread.made, 0, 0, "k", "x");
    PGconn *holder = fixture_connect(conninfo);
    fixture_exec(holder, "BEGIN; SELECT FROM kafka_cursor FOR UPDATE");
    int64_t began_ms = mono_ms();
    int rc = store_ingest_batch(thread.ingest, &thread.made->batch, &err);
    assert_int_equal(rc, ERR_UNAVAILABLE); /* its lock_timeout */
    assert_string_equal(err.sqlstate, "55P03");
    assert_true(err.retryable);
    assert_in_range(mono_ms() - began_ms, 900, 5000);
    fixture_exec(holder, "ROLLBACK");
    PQfinish(holder);
    ASSERT_OK(store_ingest_batch(thread.ingest, &thread.made->batch, &err), &err);
    thread_done(&thread);
}

/* --- the answer to COMMIT -------------------------------------------------------------------- */

static void standby(const char *name)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql, "ALTER SYSTEM SET synchronous_standby_names = '%s'", name);
    standby_named = name[0] != '\0';
    fixture_exec(conn, sql);
    fixture_exec(conn, "SELECT pg_reload_conf()");
    for (int i = 0;; i++) {
        char seen[64];
        struct err err;
        ASSERT_OK(test_postgres_query(postgres, "postgres", "SHOW synchronous_standby_names", seen,
                                      sizeof seen, &err),
                  &err);
        if (strcmp(seen, name) == 0)
            return;
        assert_true(i < 500);
        fixture_exec(conn, "SELECT pg_sleep(0.01)");
    }
}

/* It hangs in COMMIT: woken, or told that only this server has it, it is in doubt; here it is
 * durable in both, and the cursor says so. */
static void test_p2_a_commit_without_a_sure_answer_is_in_doubt(void **state)
{
    (void)state;
    PROVES("P2 P7");
    for (int woken = 0; woken < 2; woken++) {
        struct err err;
        struct batch_thread thread;
        thread_start(&thread, ingest_open_rule(conninfo, wake[0]));
        made_start(thread.made, 0, woken, woken ? "one" : "two", "x");
        made_start(thread.made, 0, woken + 1, "twice", "x");
        thread.made->parts[0].next_offset = woken + 1; /* the next round reads it again */
        fixture_exec(conn, "SET synchronous_commit = off");
        standby("nobody");
        thread_run(&thread);
        wait_waiting("IPC", "SyncRep", 1);
        if (woken)
            wake_now();
        else
            fixture_exec(conn,
                         "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                         " WHERE application_name = 'sagad ingest' AND wait_event = 'SyncRep'");
        thread_join(&thread);
        assert_int_equal(thread.rc, ERR_UNAVAILABLE);
        assert_string_equal(thread.err.reason, "COMMIT_IN_DOUBT");
        assert_true(thread.err.retryable);
        assert_false(thread.made->parts[0].moved);
        standby("");
        wake_over();
        proof_fault(woken ? "woken in the middle of COMMIT" : "COMMIT: durable here alone", 1);
        struct store_ingest_cursor *cursors;
        size_t count;
        ASSERT_OK(store_ingest_cursors(thread.ingest, &cursors, &count, &err), &err);
        assert_int_equal(cursors[0].next_offset, woken + 1);
        store_ingest_cursors_done(cursors, count);
        /* The uids say what may have been started: the first one's was, the other one's key had a
         * saga in the second round. */
        char text[UUID_TEXT_SIZE], sql[160];
        uuid_format(&thread.made->records[0].uid, text);
        (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM saga WHERE saga_uid = '%s'", text);
        assert_count(sql, 1);
        static const struct uuid zero;
        bool is_zero = memcmp(&thread.made->records[1].uid, &zero, sizeof zero) == 0;
        assert_int_equal(is_zero, woken);
        thread_done(&thread);
    }
}

static const char *kill_at;

static void on_point(const char *point)
{
    if (kill_at && strcmp(point, kill_at) == 0)
        test_postgres_kill(postgres);
}

/* kill -9 of the database inside the batch, before its COMMIT, and behind it: what the cursor says
 * then is what is there, all of it or nothing. */
static void test_p7_p8_the_database_is_killed_at_each_point(void **state)
{
    (void)state;
    PROVES("P7 P8");
    static const char *const points[] = { NULL, "ingest_before_commit", "ingest_after_commit" };
    static const char *const names[] = { "database killed inside a batch of records",
                                         "database killed before the COMMIT of a batch of records",
                                         "database killed behind it" };
    fault_hook = on_point;
    int64_t next = 0;
    for (size_t i = 0; i < 2 * ARRAY_LEN(points); i++) {
        struct err err;
        struct batch_thread thread;
        thread_start(&thread, ingest_open_rule(conninfo, -1));
        for (int r = 0; r < 20; r++) {
            char id[32];
            (void)snprintf(id, sizeof id, "kill-%d-%d", (int)i, r);
            made_start(thread.made, 0, next + r, id, "x");
        }
        kill_at = points[i % ARRAY_LEN(points)];
        PGconn *holder = NULL;
        if (!kill_at) {
            holder = fixture_connect(conninfo);
            fixture_exec(holder, "BEGIN; LOCK TABLE saga_key IN SHARE MODE");
        }
        thread_run(&thread);
        if (!kill_at) {
            wait_waiting("Lock", "relation", 1);
            test_postgres_kill(postgres);
        }
        thread_join(&thread);
        PQfinish(holder);
        PQfinish(conn);
        ASSERT_OK(test_postgres_restart(postgres, &err), &err);
        conn = fixture_connect(conninfo);
        proof_fault(names[i % ARRAY_LEN(points)], 1);
        if (kill_at == points[2]) {
            assert_int_equal(thread.rc, 0);
        } else if (!kill_at) {
            assert_int_equal(thread.rc, ERR_UNAVAILABLE);
            assert_string_not_equal(thread.err.reason, "COMMIT_IN_DOUBT");
        } else if (thread.rc != 0) {
            assert_int_equal(thread.rc, ERR_UNAVAILABLE);
            assert_true(thread.err.retryable);
        }
        kill_at = NULL;
        int64_t at =
            fixture_count(conn, "SELECT next_offset FROM kafka_cursor WHERE partition = 0");
        int64_t sagas = fixture_count(conn, "SELECT count(*) FROM saga");
        assert_int_equal(sagas, at);
        assert_true(at == next || at == next + 20);
        if (thread.rc == 0)
            assert_int_equal(at, next + 20); /* what was acknowledged is there */
        if (at == next) {                    /* again */
            ASSERT_OK(store_ingest_batch(thread.ingest, &thread.made->batch, &err), &err);
            assert_true(thread.made->parts[0].moved);
        }
        next += 20;
        assert_count("SELECT count(*) FROM saga", next);
        assert_count("SELECT started FROM kafka_cursor WHERE partition = 0", next);
        thread_done(&thread);
    }
}

/* --- cost ------------------------------------------------------------------------------------ */

/* Inserts and updates of a table since the database was made. */
static void assert_rows(const char *table, int64_t inserts, int64_t updates, int64_t not_hot)
{
    char sql[320];
    (void)snprintf(
        sql, sizeof sql,
        "SELECT count(*) FROM pg_stat_user_tables WHERE relname = '%s'"
        " AND n_tup_ins = %lld AND n_tup_upd = %lld AND n_tup_upd - n_tup_hot_upd <= %lld",
        table, (long long)inserts, (long long)updates, (long long)not_hot);
    for (int i = 0; fixture_count(conn, sql) == 0; i++) {
        if (i == 300) {
            (void)snprintf(sql, sizeof sql,
                           "SELECT n_tup_ins || ' ' || n_tup_upd || ' ' || n_tup_hot_upd"
                           " FROM pg_stat_user_tables WHERE relname = '%s'",
                           table);
            PGresult *result = PQexec(conn, sql);
            fail_msg("%s: inserted, updated, HOT: %s", table, PQgetvalue(result, 0, 0));
        }
        fixture_exec(conn, "SELECT pg_sleep(0.05), pg_stat_clear_snapshot()");
    }
}

/* As the README says: two rows a record, two updates a partition. */
static void test_what_a_batch_costs(void **state)
{
    (void)state;
    enum { BATCHES = 5, RECORDS = 1000, PARTS = 4 };
    struct err err;
    struct store_ingest *ingest = ingest_open_rule(conninfo, -1);
    fixture_exec(conn, "INSERT INTO kafka_cursor (rule, topic, partition, next_offset)"
                       " VALUES ('pays', 'payments', 3, 0)");
    struct made *made = made_new();
    for (int batch = 0; batch < BATCHES; batch++) {
        made_clear(made);
        for (int i = 0; i < RECORDS; i++) {
            char id[32];
            (void)snprintf(id, sizeof id, "cost-%d-%d", batch, i);
            made_start(made, i % PARTS, batch * (RECORDS / PARTS) + i / PARTS, id,
                       "{\"order_id\": 123456, \"amount\": 1999}");
        }
        int64_t began_ms = mono_ms();
        ASSERT_OK(store_ingest_batch(ingest, &made->batch, &err), &err);
        print_message("a batch of %d records: %lld ms\n", RECORDS,
                      (long long)(mono_ms() - began_ms));
    }
    (void)store_ingest_free(ingest); /* a session tells its figures when it ends */
    made = made_free(made);
    assert_rows("saga_key", BATCHES * RECORDS, 0, 0);
    assert_rows("saga", BATCHES * RECORDS, 0, 0);
    assert_rows("journal", 0, 0, 0);
    assert_rows("kafka_cursor", 4, 2 * BATCHES * PARTS, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_p7_a_zombie_that_waited_loses),
        CASE(test_p7_a_batch_that_is_rolled_back_while_the_next_one_waits),
        CASE(test_p1_the_same_keys_from_many_partitions_at_once),
        CASE(test_a_blocked_insert_ends_at_once_when_it_is_woken),
        CASE(test_a_call_ends_at_its_deadline),
        CASE(test_p2_a_commit_without_a_sure_answer_is_in_doubt),
        CASE(test_p7_p8_the_database_is_killed_at_each_point),
        CASE(test_what_a_batch_costs),
    };
    return proof_end(cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0);
}
