/* Goal: sagas that ended long ago are purged, nothing else is, their keys stay as long as they are
 * to be remembered; a round ends whatever it meets; several purgers do no harm; with an archive
 * nothing is deleted that is not on the disk, whatever dies or is full. Method: real PostgreSQL,
 * sagas made by SQL, the purging thread as it runs in sagad, and its statements by hand. */
#include "retention_fixture.h"

#include "base/fault.h"
#include "store/reader_retention.h"
#include "store/retention.h"
#include "support/proof.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_postgres *postgres;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    postgres = test_postgres_free(postgres);
    return 0;
}

#define COUNT_SAGAS "SELECT count(*) FROM saga"

/* --- what is purged ----------------------------------------------------------------------------
 */

enum { OLD_SUCCEEDED = 1, OLD_COMPENSATED, OLD_ABANDONED, OLD_LATER_RUN, PURGED_COUNT = 4 };
enum { DOUBTFUL = 5, PARKED, RUNNING, ENDED_LATELY, UNPUBLISHED, YOUNG, CASE_COUNT = 10 };

static void make_cases(PGconn *conn)
{
    make_sagas(conn, 1, YOUNG - 1, 3, "3 hours");
    make_sagas(conn, YOUNG, YOUNG, 3, "10 minutes");
    change_saga(conn, OLD_COMPENSATED, "state = 'COMPENSATED', phase = 'COMPENSATED'");
    change_saga(conn, OLD_ABANDONED, "state = 'ABANDONED', phase = 'COMPENSATING'");
    change_saga(conn, DOUBTFUL, "doubt = true");
    change_saga(conn, PARKED,
                "state = 'PARKED', phase = 'COMPENSATING', park_reason = 'COMPENSATION_FAILED',"
                " park_step = 'debit', park_step_index = 0, ended_at = NULL");
    change_saga(conn, RUNNING, "state = 'RUNNING', phase = 'RUNNING', ended_at = NULL");
    change_saga(conn, ENDED_LATELY, "ended_at = now() - interval '10 minutes'");
    fixture_exec(conn, "INSERT INTO outbox (shard, saga_uid, seq, part, created_at)"
                       " SELECT shard, uid, 3, 2, now() FROM made WHERE i = 9;"
                       "UPDATE saga_key SET run = 2, saga_uid = gen_random_uuid(),"
                       " final_state = NULL WHERE saga_id = 'k4';"
                       "INSERT INTO late_report (shard, saga_uid, fence, outcome, effect,"
                       " received_at) SELECT shard, uid, 1, 'RETRY', false, now() FROM made"
                       " WHERE i IN (1, 5)");
    assert_int_equal(UNPUBLISHED, 9);
}

static void test_r1_q3_what_ended_long_ago_is_purged_and_nothing_else(void **state)
{
    (void)state;
    PROVES("P1");
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "what", conninfo);
    make_cases(conn);
    struct retention *retention = purger(conninfo, "a", 48LL * HOUR_MS, NULL);
    await_count(conn, COUNT_SAGAS, CASE_COUNT - PURGED_COUNT);
    await_round(conn, "a");
    assert_int_equal(fixture_count(conn, COUNT_SAGAS " WHERE substr(saga_id, 2)::int > 4"),
                     CASE_COUNT - PURGED_COUNT);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM journal"),
                     3 * (CASE_COUNT - PURGED_COUNT));
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM late_report"), 1);
    /* Every key is there; those of purged sagas say so, but not where a later run has it. */
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_key"), CASE_COUNT);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_key WHERE purged_at IS NOT NULL"
                                         " AND archive IS NULL AND final_state IS NOT NULL"
                                         " AND remembered_until BETWEEN now() + interval '44 hours'"
                                         " AND now() + interval '46 hours'"),
                     PURGED_COUNT - 1);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_key WHERE saga_id = 'k4'"
                                         " AND run = 2 AND purged_at IS NULL"
                                         " AND remembered_until IS NULL"),
                     1);
    /* What kept them is over: they go in a later round. */
    fixture_exec(conn, "DELETE FROM outbox");
    change_saga(conn, DOUBTFUL, "doubt = false");
    await_count(conn, COUNT_SAGAS, CASE_COUNT - PURGED_COUNT - 2);
    await_count(conn, "SELECT purged FROM retention WHERE node = 'a'", PURGED_COUNT + 2);
    retention = retention_stop(retention);
    PQfinish(conn);
}

static void test_keys_are_forgotten_when_their_time_is_over_and_no_saga_is_there(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "forget", conninfo);
    make_sagas(conn, 1, 3000, 1, "3 hours");
    make_sagas(conn, 3001, 3002, 1, "10 minutes");
    /* A key whose time is over while its saga is there (by whatever fault) stays. */
    fixture_exec(conn, "UPDATE saga_key SET remembered_until = now() - interval '1 s'"
                       " WHERE saga_id = 'k3001'");
    struct retention *retention = purger(conninfo, "a", 2LL * HOUR_MS, NULL);
    await_count(conn, COUNT_SAGAS, 2);
    await_count(conn, "SELECT count(*) FROM saga_key", 2); /* ended 3 h ago, remembered for 2 h */
    await_count(conn, "SELECT forgotten FROM retention WHERE node = 'a'", 3000);
    retention = retention_stop(retention);
    /* For ever. */
    make_sagas(conn, 4001, 4010, 1, "3 hours");
    retention = purger(conninfo, "b", FOR_EVER, NULL);
    await_count(conn, COUNT_SAGAS, 2);
    await_round(conn, "b");
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_key WHERE purged_at IS NOT NULL"
                                         " AND remembered_until IS NULL"),
                     10);
    retention = retention_stop(retention);
    PQfinish(conn);
}

/* --- rounds and batches ------------------------------------------------------------------------
 */

static struct store_retention_batch batch;

/* Goes over all shards with batches of `limit`; returns how many there were. */
static int run_round(struct store_retention *store, size_t limit, size_t *ret_purged)
{
    struct store_retention_round round = { .next = 250 };
    struct err err;
    int batches = 0;
    *ret_purged = 0;
    do {
        assert_true(batches < 1000);
        ASSERT_OK(store_retention_pick(store, &round, HOUR_MS, limit, &batch, &err), &err);
        assert_true(batch.count <= limit);
        if (batch.count)
            ASSERT_OK(store_retention_delete(store, &batch, NULL, FOR_EVER, &err), &err);
        *ret_purged += batch.count;
        round = batch.after;
        batches++;
    } while (!batch.round_over);
    return batches;
}

static void test_r3_a_round_ends_with_no_rows_with_one_batch_and_with_many(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "rounds", conninfo);
    struct store_retention *store;
    struct err err;
    size_t purged;
    ASSERT_OK(store_retention_new(conninfo, -1, &store, &err), &err);
    assert_int_equal(run_round(store, 100, &purged), 1);
    assert_int_equal(purged, 0);
    for (int count = 99; count <= 101; count++) { /* around one batch */
        make_sagas(conn, 1000 * count, 1000 * count + count - 1, 1, "2 hours");
        assert_int_equal(run_round(store, 100, &purged), count < 100 ? 1 : 2);
        assert_int_equal(purged, count);
    }
    make_sagas(conn, 1, 1000, 1, "2 hours");
    make_sagas(conn, 1001, 1100, 1, "1 minute");
    change_saga(conn, 256, "doubt = true"); /* the first shard begins with one that is left out */
    assert_int_equal(run_round(store, 100, &purged), 11);
    assert_int_equal(purged, 999);
    assert_int_equal(fixture_count(conn, COUNT_SAGAS), 101);
    store = store_retention_free(store);
    PQfinish(conn);
}

/* What was written together goes together, so that a batch comes to few pages: not one shard's
 * sagas of all times. */
static void test_r3_all_shards_are_gone_through_side_by_side(void **state)
{
    (void)state;
    enum { LIMIT = 256, BATCHES = 4 };
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "sides", conninfo);
    make_sagas(conn, 0, 3 * LIMIT * BATCHES - 1, 1, "2 hours"); /* in the order of their start */
    struct store_retention *store;
    struct store_retention_round round = { .next = 77 };
    struct err err;
    ASSERT_OK(store_retention_new(conninfo, -1, &store, &err), &err);
    for (int i = 0; i < BATCHES; i++) {
        ASSERT_OK(store_retention_pick(store, &round, HOUR_MS, LIMIT, &batch, &err), &err);
        assert_int_equal(batch.count, LIMIT);
        ASSERT_OK(store_retention_delete(store, &batch, NULL, FOR_EVER, &err), &err);
        round = batch.after;
    }
    assert_int_equal(fixture_count(conn, "SELECT min(substr(saga_id, 2)::int8) FROM saga"),
                     LIMIT * BATCHES);
    assert_int_equal(fixture_count(conn, COUNT_SAGAS), 2 * LIMIT * BATCHES);
    store = store_retention_free(store);
    PQfinish(conn);
}

/* Journals as long as they may be are deleted a few at a time. */
static void test_r3_long_journals_make_small_batches(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "long", conninfo);
    make_sagas(conn, 1, 5, 4500, "2 hours");
    struct store_retention *store;
    struct err err;
    size_t purged;
    ASSERT_OK(store_retention_new(conninfo, -1, &store, &err), &err);
    assert_int_equal(run_round(store, 1000, &purged), 3); /* 2, 2, 1 */
    assert_int_equal(purged, 5);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM journal"), 0);
    store = store_retention_free(store);
    PQfinish(conn);
}

/* What somebody holds is left out, and nobody waits: a purge neither for a person's decision nor
 * for another purger. */
static void test_r3_a_locked_saga_is_left_out_and_held_up_by_nobody(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "locked", conninfo);
    make_sagas(conn, 1, 10, 1, "2 hours");
    struct store_retention *store;
    struct err err;
    size_t purged;
    ASSERT_OK(store_retention_new(conninfo, -1, &store, &err), &err);
    fixture_exec(conn, "BEGIN; SELECT 1 FROM saga WHERE saga_id = 'k3' FOR NO KEY UPDATE");
    assert_int_equal(run_round(store, 100, &purged), 1);
    assert_int_equal(purged, 9);
    fixture_exec(conn, "COMMIT");
    (void)run_round(store, 100, &purged);
    assert_int_equal(purged, 1);
    store = store_retention_free(store);
    PQfinish(conn);
}

static void test_r3_two_purgers_share_the_work(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    char conninfo[POSTGRES_CONNINFO_SIZE], folder[SCRATCH_PATH_SIZE];
    PGconn *conn = retention_database(postgres, "two", conninfo);
    make_sagas(conn, 1, MANY, 2, "2 hours");
    archive_folder(folder);
    struct retention *a = purger(conninfo, "a", FOR_EVER, folder);
    struct retention *b = purger(conninfo, "b", FOR_EVER, folder);
    await_count(conn, COUNT_SAGAS, 0);
    await_count(conn, "SELECT sum(purged)::int8 FROM retention", MANY);
    a = retention_stop(a);
    b = retention_stop(b);
    load_archive(conn, folder);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM archived"), MANY);
    assert_int_equal(fixture_count(conn, "SELECT count(DISTINCT line->>'saga_uid') FROM archived"),
                     MANY);
    assert_int_equal(fixture_count(conn, "SELECT count(DISTINCT file) FROM archived"), 2);
    /* The key names the file that has its saga. */
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM archived a JOIN saga_key k"
                                         " ON k.saga_uid = (a.line->>'saga_uid')::uuid"
                                         " AND k.archive = a.file"),
                     MANY);
    PQfinish(conn);
}

/* --- late reports ------------------------------------------------------------------------------
 */

/* A saga that has succeeded although its first lease was lost, and the report of that lease. */
static void late_scene(struct copy *copy, struct store *store, const char *saga_id)
{
    struct err err;
    enum verdict verdict;
    struct rng rng;
    rng_seed(&rng, 1);
    copy_new(copy, saga_id, "w/1");
    copy_write(copy, store, STORE_OK);
    ASSERT_OK(saga_on_lease_end(copy->saga, 1, OUTCOME_STREAM_LOST, clock_wall_ms(&clock_system),
                                &rng, &copy->transition, &verdict, &err),
              &err);
    copy->op = (struct store_op){ .kind = STORE_TRANSITION,
                                  .saga = copy->saga,
                                  .transition = &copy->transition };
    copy_grant(copy, "w/2");
    copy_write(copy, store, STORE_OK);
    for (int step = 0; step < 3; step++) {
        copy_report(copy, OUTCOME_DONE, "x");
        if (step < 2)
            copy_grant(copy, "w/2");
        copy_write(copy, store, STORE_OK);
    }
    assert_int_equal(saga_row(copy->saga)->state, SAGA_SUCCEEDED);
    struct report report = { .fence = saga_entry(copy->saga, 1)->fence, .outcome = OUTCOME_RETRY };
    copy->transition = (struct transition){ 0 };
    ASSERT_OK(saga_on_report(copy->saga, &report, clock_wall_ms(&clock_system), &rng,
                             &copy->transition, &verdict, &err),
              &err);
    assert_true(copy->transition.late_row);
}

/* Whoever comes first holds the saga: the report goes with it, or finds none. */
static void test_a_late_report_and_a_purge_do_not_miss_each_other(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "late", conninfo);
    struct store *store = fixture_store(conninfo);
    const struct store_retention_round all = { .next = 0 };
    struct store_retention *purge;
    struct session session;
    struct copy copies[2];
    struct err err;
    ASSERT_OK(store_retention_new(conninfo, -1, &purge, &err), &err);
    session_open(&session, conninfo, "node-1");
    late_scene(&copies[0], store, "purge-first");
    wait_ms(2); /* for a uid of an earlier millisecond */
    ASSERT_OK(store_retention_pick(purge, &all, 0, 10, &batch, &err), &err);
    assert_int_equal(batch.count, 1);
    session_send(&session, &copies[0].op);
    session_wait_blocked(&session, conn);
    ASSERT_OK(store_retention_delete(purge, &batch, NULL, FOR_EVER, &err), &err);
    assert_false(session_take(&session)); /* lost: nothing is there any more */
    fixture_exec(session.conn, "COMMIT");
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM late_report"), 0);
    late_scene(&copies[1], store, "report-first");
    wait_ms(2);
    session_send(&session, &copies[1].op);
    assert_true(session_take(&session));
    ASSERT_OK(store_retention_pick(purge, &all, 0, 10, &batch, &err), &err);
    assert_int_equal(batch.count, 0); /* it is held */
    fixture_exec(session.conn, "COMMIT");
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM late_report"), 1);
    ASSERT_OK(store_retention_pick(purge, &all, 0, 10, &batch, &err), &err);
    assert_int_equal(batch.count, 1); /* it reported no effect: no doubt */
    ASSERT_OK(store_retention_delete(purge, &batch, NULL, FOR_EVER, &err), &err);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM late_report"), 0);
    for (int i = 0; i < 2; i++)
        copy_done(&copies[i]);
    session_close(&session);
    purge = store_retention_free(purge);
    (void)store_pg_free(store);
    PQfinish(conn);
}

/* --- the archive -------------------------------------------------------------------------------
 */

/* A saga, an entry and a late report in which no column is NULL, whatever columns there are. */
static void fill_every_column(PGconn *conn)
{
    fixture_exec(
        conn,
        "DO $do$ DECLARE t text; c record; BEGIN"
        " FOREACH t IN ARRAY ARRAY['saga', 'journal', 'late_report'] LOOP"
        "  FOR c IN SELECT column_name AS name, data_type AS type FROM information_schema.columns"
        "   WHERE table_schema = 'sagad' AND table_name = t AND is_nullable = 'YES' LOOP"
        "   EXECUTE format('UPDATE %I SET %I = %s WHERE %I IS NULL', t, c.name, CASE c.type"
        "    WHEN 'text' THEN $q$E'line\\nquote\" \\\\ \\u00e4'$q$ WHEN 'uuid' THEN "
        "'gen_random_uuid()'"
        "    WHEN 'bytea' THEN $q$'\\x000aff22'::bytea || repeat('long ', 50)::bytea$q$"
        "    WHEN 'jsonb' THEN $q$'{\"a\": \"b\"}'$q$ WHEN 'boolean' THEN 'true'"
        "    WHEN 'timestamp with time zone' THEN $q$now() - interval '90 minutes'$q$"
        "    ELSE '7' END, c.name);"
        "  END LOOP;"
        " END LOOP; END $do$");
}

static void test_every_column_comes_back_from_the_archive(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE], folder[SCRATCH_PATH_SIZE];
    PGconn *conn = retention_database(postgres, "columns", conninfo);
    make_sagas(conn, 1, 1, 3, "2 hours");
    fixture_exec(conn, "INSERT INTO late_report (shard, saga_uid, fence, outcome, effect,"
                       " received_at) SELECT shard, uid, 1, 'RETRY', false, now() FROM made");
    fill_every_column(conn);
    fixture_exec(conn, "CREATE TABLE was_saga AS SELECT * FROM saga;"
                       "CREATE TABLE was_journal AS SELECT * FROM journal;"
                       "CREATE TABLE was_late_report AS SELECT * FROM late_report");
    archive_folder(folder);
    struct retention *retention = purger(conninfo, "host:7233/x", FOR_EVER, folder);
    await_count(conn, COUNT_SAGAS, 0);
    retention = retention_stop(retention);
    load_archive(conn, folder);
    /* Back into rows: text to bytea is hex, so base64 is decoded first. */
    static const char *const parts[][3] = {
        { "saga", "input", "jsonb_build_array(line)" },
        { "journal", "output", "line->'journal'" },
        { "late_report", "output", "line->'late_reports'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char sql[1024];
        (void)snprintf(
            sql, sizeof sql,
            "CREATE TABLE back_%s AS SELECT r.* FROM archived, jsonb_array_elements(%s) e,"
            " jsonb_populate_record(NULL::%s, e || jsonb_build_object('%s',"
            " '\\x' || encode(decode(e->>'%s', 'base64'), 'hex'))) r",
            parts[i][0], parts[i][2], parts[i][0], parts[i][1], parts[i][1]);
        fixture_exec(conn, sql);
        (void)snprintf(sql, sizeof sql,
                       "SELECT count(*) FROM ((TABLE was_%s EXCEPT TABLE back_%s) UNION ALL"
                       " (TABLE back_%s EXCEPT TABLE was_%s)) d",
                       parts[i][0], parts[i][0], parts[i][0], parts[i][0]);
        assert_int_equal(fixture_count(conn, sql), 0);
        (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM back_%s", parts[i][0]);
        assert_int_equal(fixture_count(conn, sql), i == 1 ? 3 : 1);
    }
    PQfinish(conn);
}

static void die(const char *point)
{
    if (strcmp(point, "after_archive") == 0)
        (void)kill(getpid(), SIGKILL);
}

/* A process that dies between the disk and the delete: its sagas are there, and are written again.
 */
static void test_a_crash_before_the_delete_archives_twice_and_loses_nothing(void **state)
{
    (void)state;
    enum { MANY = 300, CRASHES = 3 };
    char conninfo[POSTGRES_CONNINFO_SIZE], folder[SCRATCH_PATH_SIZE];
    PGconn *conn = retention_database(postgres, "crash", conninfo);
    make_sagas(conn, 1, MANY, 2, "2 hours");
    archive_folder(folder);
    for (int i = 0; i < CRASHES; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            fault_hook = die;
            struct retention *retention = purger(conninfo, "a", FOR_EVER, folder);
            (void)retention;
            (void)pause();
            _exit(1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        proof_fault("kill -9 after_archive", 1);
    }
    assert_int_equal(fixture_count(conn, COUNT_SAGAS), MANY);
    struct retention *retention = purger(conninfo, "a", FOR_EVER, folder);
    await_count(conn, COUNT_SAGAS, 0);
    retention = retention_stop(retention);
    load_archive(conn, folder);
    assert_true(fixture_count(conn, "SELECT count(*) FROM archived") > MANY);
    assert_int_equal(fixture_count(conn, "SELECT count(DISTINCT line->>'saga_uid') FROM archived"),
                     MANY);
    PQfinish(conn);
}

/* Nothing is purged while the archive cannot be written, the reason can be read, and it goes on by
 * itself. */
static void test_a_full_disk_and_a_missing_folder_stop_the_purge_and_nothing_else(void **state)
{
    (void)state;
    enum { MANY = 2000 };
    char conninfo[POSTGRES_CONNINFO_SIZE], folder[SCRATCH_PATH_SIZE], later[SCRATCH_PATH_SIZE + 8];
    PGconn *conn = retention_database(postgres, "full", conninfo);
    make_sagas(conn, 1, MANY, 2, "2 hours");
    archive_folder(folder);
    (void)snprintf(later, sizeof later, "%s/later", folder);
    struct retention *retention = purger(conninfo, "a", FOR_EVER, later);
    await_count(conn, "SELECT count(*) FROM retention WHERE problem LIKE '%make the folder%'", 1);
    assert_int_equal(fixture_count(conn, COUNT_SAGAS), MANY);
    /* A file may not grow beyond that: so does a full disk answer. */
    struct rlimit before, little = { .rlim_cur = 128 * 1024 };
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN); /* as sagad has it */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(mkdir(later, 0700), 0);
    await_count(conn, "SELECT count(*) FROM retention WHERE problem LIKE '%File too large%'", 1);
    proof_fault("a full disk under the archive", 1);
    int64_t left = fixture_count(conn, COUNT_SAGAS);
    assert_true(left > 0 && left <= MANY);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_key"), MANY);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    await_count(conn, COUNT_SAGAS, 0);
    await_count(conn, "SELECT count(*) FROM retention WHERE problem IS NULL", 1);
    retention = retention_stop(retention);
    load_archive(conn, later);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM archived"), MANY);
    PQfinish(conn);
}

/* --- the database ------------------------------------------------------------------------------
 */

static void test_a_database_that_dies_holds_up_the_purge_and_its_end_is_short(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE], folder[SCRATCH_PATH_SIZE];
    PGconn *conn = retention_database(postgres, "dies", conninfo);
    make_sagas(conn, 1, 5000, 2, "2 hours");
    archive_folder(folder);
    struct retention *retention = purger(conninfo, "a", FOR_EVER, folder);
    struct err err;
    await_count(conn, "SELECT (count(*) > 0)::int::int8 FROM saga_key WHERE purged_at IS NOT NULL",
                1);
    test_postgres_kill(postgres);
    proof_fault("postmaster killed while it purges", 1);
    PQfinish(conn);
    ASSERT_OK(test_postgres_restart(postgres, &err), &err);
    conn = fixture_connect(conninfo);
    await_count(conn, COUNT_SAGAS, 0);
    retention = retention_stop(retention);
    load_archive(conn, folder);
    assert_int_equal(fixture_count(conn, "SELECT count(DISTINCT line->>'saga_uid') FROM archived"),
                     5000);
    /* It waits for a lock that is never given: the stop does not. */
    make_sagas(conn, 6001, 6002, 1, "2 hours");
    fixture_exec(conn, "BEGIN; LOCK TABLE saga IN ACCESS EXCLUSIVE MODE");
    retention = purger(conninfo, "a", FOR_EVER, NULL);
    PGconn *watch = fixture_connect(conninfo);
    await_count(watch,
                "SELECT (count(*) > 0)::int::int8 FROM pg_stat_activity WHERE"
                " application_name = 'sagad retention' AND wait_event_type = 'Lock'",
                1);
    int64_t began_ms = clock_mono_ms(&clock_system);
    retention = retention_stop(retention);
    assert_true(clock_mono_ms(&clock_system) - began_ms < 500);
    PQfinish(watch);
    PQfinish(conn);
}

/* --- what people are told ----------------------------------------------------------------------
 */

static void test_the_counts_say_what_waits_and_what_is_kept(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "counts", conninfo);
    make_cases(conn);
    struct store_reader *reader;
    struct store_retention_status status;
    struct err err;
    ASSERT_OK(store_reader_new(conninfo, &reader, &err), &err);
    ASSERT_OK(store_reader_retention(reader, &status, &err), &err);
    assert_int_equal(status.node_count, 0);
    assert_int_equal(status.finished, CASE_COUNT - 2);
    assert_int_equal(status.purgeable, 0); /* nobody purges */
    store_retention_status_done(&status);
    fixture_exec(conn, "INSERT INTO retention VALUES"
                       " ('x', 3600000, -1, '/a', now(), NULL, NULL, 0, 0, 0, 'no room'),"
                       " ('y', 60000, 5000, NULL, now() - interval '2 minutes', now(), now(), 1, 2,"
                       " 3, NULL);"
                       "INSERT INTO kafka_rule (rule, topic, group_id, namespace, definition,"
                       " wanted, topic_retention_ms, node, seen_at)"
                       " VALUES ('r', 't', 'g', 'test', 'pay', 'RUN', 604800000, 'x', now())");
    ASSERT_OK(store_reader_retention(reader, &status, &err), &err);
    assert_int_equal(status.node_count, 2);
    assert_string_equal(status.nodes[0].problem, "no room");
    assert_int_equal(status.nodes[1].forgotten, 3);
    assert_int_equal(status.topic_count, 1);
    assert_int_equal(status.topics[0].retention_ms, 604800000);
    assert_int_equal(status.purgeable, PURGED_COUNT + 1); /* the unpublished one among them */
    assert_int_equal(status.doubtful, 1);
    assert_int_equal(status.parked, 1);
    store_retention_status_done(&status);
    reader = store_reader_free(reader);
    PQfinish(conn);
}

/* What people asked of a saga outlives it, moved by the purge itself: never twice, never lost. */
static void test_what_people_asked_for_outlives_the_saga(void **state)
{
    (void)state;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    PGconn *conn = retention_database(postgres, "asked", conninfo);
    make_sagas(conn, 1, 20, 3, "3 hours");
    fixture_exec(conn,
                 "INSERT INTO journal (shard, saga_uid, seq, fence, kind, try, finished_at,"
                 " asked_at, actor, error_message, output) SELECT shard, uid, 4, 0, 'OPTIONS', 0,"
                 " now(), now(), 'ada', 'slow bank', convert_to('lease_ms=9000', 'UTF8') FROM made;"
                 "INSERT INTO audit (at, verb) VALUES (now() - interval '401 days', 'old'),"
                 " (now() - interval '399 days', 'new');"
                 "INSERT INTO kafka_request (request_id, rule, kind, arguments, actor, reason,"
                 " requested_at, state) SELECT gen_random_uuid(), 'r', 'STOP', '{}', 'ada', '',"
                 " now() - interval '401 days', unnest(ARRAY['DONE', 'OPEN'])");
    const struct retention_options options = { .conninfo = conninfo,
                                               .node = "a",
                                               .age_ms = HOUR_MS,
                                               .key_memory_ms = FOR_EVER,
                                               .audit_ms = INT64_C(400) * 24 * HOUR_MS,
                                               .round_pause_ms = 100 };
    struct retention *retention = NULL;
    struct err err;
    ASSERT_OK(retention_start(&options, &retention, &err), &err);
    await_count(conn, COUNT_SAGAS, 0);
    await_count(conn,
                "SELECT count(*) FROM audit WHERE verb = 'set-options' AND actor = 'ada'"
                " AND reason = 'slow bank' AND detail = 'lease_ms=9000' AND seq = 4"
                " AND audit_id = saga_uid AND saga_id LIKE 'k%'",
                20);
    await_count(conn, "SELECT count(*) FROM audit WHERE verb IN ('old', 'new')", 1);
    await_count(conn, "SELECT count(*) FROM kafka_request", 1); /* which is still to be done */
    retention = retention_stop(retention);
    PQfinish(conn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r1_q3_what_ended_long_ago_is_purged_and_nothing_else),
        cmocka_unit_test(test_keys_are_forgotten_when_their_time_is_over_and_no_saga_is_there),
        cmocka_unit_test(test_r3_a_round_ends_with_no_rows_with_one_batch_and_with_many),
        cmocka_unit_test(test_r3_all_shards_are_gone_through_side_by_side),
        cmocka_unit_test(test_r3_long_journals_make_small_batches),
        cmocka_unit_test(test_r3_a_locked_saga_is_left_out_and_held_up_by_nobody),
        cmocka_unit_test(test_r3_two_purgers_share_the_work),
        cmocka_unit_test(test_a_late_report_and_a_purge_do_not_miss_each_other),
        cmocka_unit_test(test_every_column_comes_back_from_the_archive),
        cmocka_unit_test(test_a_crash_before_the_delete_archives_twice_and_loses_nothing),
        cmocka_unit_test(test_a_full_disk_and_a_missing_folder_stop_the_purge_and_nothing_else),
        cmocka_unit_test(test_a_database_that_dies_holds_up_the_purge_and_its_end_is_short),
        cmocka_unit_test(test_the_counts_say_what_waits_and_what_is_kept),
        cmocka_unit_test(test_what_people_asked_for_outlives_the_saga),
    };
    return proof_end(cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0);
}
