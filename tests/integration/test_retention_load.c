/* R3. Goal: a purge of half a million old sagas is bounded in what it does at a time, so that what
 * others write meanwhile is hardly slower. Method: the rows made by SQL, sagas inserted one by one
 * at a steady rate as the engine does it (key, saga, entry; one durable commit), their 99th
 * percentile before and during the purge; what one purged saga costs in WAL. At full size ten times
 * as many. */
#include "retention_fixture.h"
#include "support/proof.h"
#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum {
    PER_S = 500,
    SAMPLES = 2000,
    WARM_UP = 200,
    /* What a commit may take on a busy machine whatever we do: below that no ratio is looked at. */
    FLOOR_US = 15000,
    WAL_SAGAS = 5000,
};

static struct test_postgres *postgres;

static int group_setup(void **state)
{
    (void)state;
    /* A checkpoint in the middle would be measured, too. */
    static const char *const settings[] = { "max_wal_size=8GB", "checkpoint_timeout=1h",
                                            "shared_buffers=512MB", NULL };
    struct err err;
    SETUP_OK(test_postgres_start(settings, &postgres, &err), &err);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    postgres = test_postgres_free(postgres);
    return 0;
}

static int64_t now_us(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time); /* does not fail */
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static int compare(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* Inserts at PER_S; microseconds of the 99th percentile. */
static int64_t insert_p99(PGconn *conn, int first)
{
    static int64_t took[SAMPLES];
    fixture_exec(conn, "DEALLOCATE ALL");
    PGresult *result = PQprepare(
        conn, "insert",
        "WITH m AS (SELECT (left(gen_random_uuid()::text, 34) || lpad(to_hex($1 % 256), 2, "
        "'0'))::uuid"
        " AS uid, ($1 % 256)::smallint AS shard),"
        " k AS (INSERT INTO saga_key (shard, namespace, definition, saga_id, saga_uid, run,"
        " input_digest) SELECT shard, 'test', 'pay', 'new-' || $1, uid, 1, sha256('x') FROM m),"
        " s AS (INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run,"
        " state, phase, doubt, started_at, updated_at) SELECT shard, uid, 'test', 'pay', 1,"
        " 'new-' || $1, 1, 'RUNNING', 'RUNNING', false, now(), now() FROM m)"
        " INSERT INTO journal (shard, saga_uid, seq, fence, kind, try) SELECT shard, uid, 1, 1,"
        " 'LEASE', 1 FROM m",
        1, (const Oid[]){ 23 });
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    int64_t start_us = now_us();
    for (int i = -WARM_UP; i < SAMPLES; i++) {
        int64_t due_us = start_us + (int64_t)(i + WARM_UP) * 1000000 / PER_S;
        if (now_us() < due_us)
            wait_ms((due_us - now_us()) / 1000 + 1);
        char number[16];
        (void)snprintf(number, sizeof number, "%d", first + i + WARM_UP);
        const char *values[] = { number };
        int64_t began_us = now_us();
        result = PQexecPrepared(conn, "insert", 1, values, NULL, NULL, 0);
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            fail_msg("insert: %s", PQresultErrorMessage(result));
        PQclear(result);
        if (i >= 0)
            took[i] = now_us() - began_us;
    }
    qsort(took, SAMPLES, sizeof *took, compare);
    return took[SAMPLES * 99 / 100];
}

/* Of 3-step sagas, without the images of whole pages that follow a checkpoint. */
static void measure_wal(PGconn *conn, const char *conninfo)
{
    make_sagas(conn, 1, WAL_SAGAS, 3, "2 hours");
    fixture_exec(conn, "CHECKPOINT");
    /* All pages once, so that none is new to the WAL. */
    fixture_exec(conn, "UPDATE saga SET updated_at = updated_at; UPDATE journal SET try = try;"
                       "UPDATE saga_key SET run = run");
    fixture_exec(conn, "VACUUM saga, journal, saga_key");
    int64_t before = fixture_count(conn, "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8");
    struct retention *retention = purger(conninfo, "a", FOR_EVER, NULL);
    await_count(conn, "SELECT count(*) FROM saga", 0);
    retention = retention_stop(retention);
    int64_t after = fixture_count(conn, "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8");
    printf("wal: %" PRId64 " B a purged saga of 3 entries\n", (after - before) / WAL_SAGAS);
    assert_true((after - before) / WAL_SAGAS < 3000);
}

static void test_r3_half_a_million_old_sagas_go_while_others_are_started(void **state)
{
    (void)state;
    PROVES("P1");
    int64_t old = test_is_full_size() ? 5000000 : 500000;
    enum { STEP = 50000 };
    char conninfo[POSTGRES_CONNINFO_SIZE], sql[128];
    PGconn *conn = retention_database(postgres, "load", conninfo);
    measure_wal(conn, conninfo);
    fixture_exec(conn, "TRUNCATE made");
    for (int first = 1; first <= old; first += STEP)
        make_sagas(conn, first + WAL_SAGAS, first + WAL_SAGAS + STEP - 1, 1, "2 hours");
    fixture_exec(conn, "ANALYZE; CHECKPOINT");
    int64_t base_us = insert_p99(conn, 0);
    struct retention *retention = purger(conninfo, "a", FOR_EVER, NULL);
    int64_t began_ms = clock_mono_ms(&clock_system);
    int64_t purge_us = insert_p99(conn, SAMPLES + WARM_UP);
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM saga WHERE saga_id LIKE 'k%%'");
    int64_t purged = old - fixture_count(conn, sql); /* its own count is told now and then */
    int64_t took_ms = clock_mono_ms(&clock_system) - began_ms;
    printf("insert p99: %" PRId64 " us, %" PRId64 " us while %" PRId64 " sagas/s are purged\n",
           base_us, purge_us, purged * 1000 / took_ms);
    assert_true(purged > 0); /* it did run meanwhile */
    int64_t bound_us = 2 * base_us > FLOOR_US ? 2 * base_us : FLOOR_US;
    if (purge_us > bound_us)
        fail_msg("an insert's p99 went from %" PRId64 " to %" PRId64 " us", base_us, purge_us);
    while (fixture_count(conn, sql) > 0 && clock_mono_ms(&clock_system) - began_ms < 20 * 60 * 1000)
        wait_ms(test_is_full_size() ? 5000 : 500); /* the count reads the whole table */
    assert_int_equal(fixture_count(conn, sql), 0);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga"), 2 * (SAMPLES + WARM_UP));
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_key WHERE purged_at IS NULL"),
                     2 * (SAMPLES + WARM_UP));
    printf("purged: %" PRId64 " sagas in %" PRId64 " ms\n", old,
           clock_mono_ms(&clock_system) - began_ms);
    retention = retention_stop(retention);
    PQfinish(conn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r3_half_a_million_old_sagas_go_while_others_are_started),
    };
    return proof_end(cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0);
}
