/* Goal: what goes wrong around a batch hits the operation that it concerns and no other, within
 * bounds, and nothing is told as durable that may not be. Method: foreign locks, failing commits,
 * killed sessions and unfit servers on a real PostgreSQL. */
#include "store_fixture.h"

#include "base/buf.h"
#include "store/connect.h"
#include "store/migrations.h"
#include "store/sqlstate.h"

#include <pthread.h>
#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store *store;
static PGconn *other;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "faults", conninfo);
    store = fixture_store(conninfo);
    other = fixture_connect(conninfo);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    PQfinish(other);
    store = store_pg_free(store);
    postgres = test_postgres_free(postgres);
    return 0;
}

static int64_t mono_ms(void)
{
    return clock_mono_ms(&clock_system);
}

enum { MANY = 100 };
static struct copy copies[MANY];

/* A batch of MANY: half of them starts, half of them reports with the next grant. */
static void mixed_batch(const char *name)
{
    for (int i = 0; i < MANY; i++) {
        char id[64];
        (void)snprintf(id, sizeof id, "%s-%d", name, i);
        copy_new(&copies[i], id, "w/1");
        if (i % 2 == 0)
            continue;
        copy_write(&copies[i], store, STORE_OK);
        copy_report(&copies[i], OUTCOME_DONE, "out");
        copy_grant(&copies[i], "w/1");
    }
    for (int i = 0; i < MANY; i++)
        copies[i].op.next = i + 1 < MANY ? &copies[i + 1].op : NULL;
}

static void mixed_done(void)
{
    for (int i = 0; i < MANY; i++)
        copy_done(&copies[i]);
}

static void for_saga(const char *format, const struct copy *copy)
{
    char uid[UUID_TEXT_SIZE], sql[512];
    uuid_format(&saga_row(copy->saga)->uid, uid);
    (void)snprintf(sql, sizeof sql, format, uid);
    fixture_exec(other, sql);
}

static void test_one_locked_saga_holds_up_no_other(void **state)
{
    (void)state;
    const int locked = 51;
    mixed_batch("locked");
    fixture_exec(other, "BEGIN");
    for_saga("SELECT FROM journal WHERE saga_uid = '%s' FOR UPDATE", &copies[locked]);
    int64_t before = mono_ms();
    fixture_run(store, &copies[0].op);
    int64_t took = mono_ms() - before;
    for (int i = 0; i < MANY; i++)
        if (i != locked)
            copy_expect(&copies[i], STORE_OK);
    copy_expect(&copies[locked], STORE_FAILED);
    assert_string_equal(copies[locked].op.err.sqlstate, "55P03");
    assert_true(copies[locked].op.err.retryable);
    print_message("a batch of %d with one locked row: %d ms\n", MANY, (int)took);
    assert_in_range(took, LOCK_TIMEOUT_MS, 1000);
    /* The suspect goes apart: the others do not wait for it at all. */
    copies[locked].op.suspect = true;
    copies[locked].op.next = NULL;
    struct copy fresh;
    copy_new(&fresh, "beside-a-suspect", "w/1");
    fresh.op.next = &copies[locked].op;
    before = mono_ms();
    fixture_run(store, &fresh.op);
    assert_true(mono_ms() - before < LOCK_TIMEOUT_MS);
    copy_expect(&fresh, STORE_OK);
    copy_expect(&copies[locked], STORE_FAILED);
    fixture_exec(other, "ROLLBACK");
    copies[locked].op.next = NULL;
    copy_write(&copies[locked], store, STORE_OK);
    for (int i = 0; i < MANY; i += 17)
        copy_assert_stored(&copies[i], store);
    copy_assert_stored(&copies[locked], store);
    copy_done(&fresh);
    mixed_done();
}

static void test_several_locked_sagas(void **state)
{
    (void)state;
    mixed_batch("several");
    fixture_exec(other, "BEGIN");
    for (int i = 1; i < MANY; i += 30)
        for_saga("SELECT FROM journal WHERE saga_uid = '%s' FOR UPDATE", &copies[i]);
    fixture_run(store, &copies[0].op);
    for (int i = 0; i < MANY; i++)
        copy_expect(&copies[i], i % 30 == 1 ? STORE_FAILED : STORE_OK);
    fixture_exec(other, "ROLLBACK");
    mixed_done();
}

/* A row that the database refuses: the others go through, the culprit is not to be repeated. */
static void test_a_bad_row_fails_alone(void **state)
{
    (void)state;
    const int bad = 40;
    mixed_batch("bad");
    char *labels = saga_row(copies[bad].saga)->labels;
    labels[0] = '['; /* no JSON any more */
    fixture_run(store, &copies[0].op);
    for (int i = 0; i < MANY; i++)
        copy_expect(&copies[i], i == bad ? STORE_FAILED : STORE_OK);
    assert_false(copies[bad].op.err.retryable);
    assert_string_equal(copies[bad].op.err.sqlstate, "22P02");
    mixed_done();
}

/* COMMIT itself fails because of one row. */
static void test_a_commit_that_fails_is_no_success(void **state)
{
    (void)state;
    fixture_exec(other,
                 "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
                 " 'BEGIN IF NEW.saga_id = ''commit-40'' THEN RAISE ''not this one''; END IF;"
                 " RETURN NULL; END';"
                 "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON saga DEFERRABLE"
                 " INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()");
    mixed_batch("commit");
    fixture_run(store, &copies[0].op);
    for (int i = 0; i < MANY; i++)
        copy_expect(&copies[i], i == 40 ? STORE_FAILED : STORE_OK);
    assert_string_equal(copies[40].op.err.sqlstate, "P0001");
    assert_int_equal(
        fixture_count(other, "SELECT count(*) FROM saga_key WHERE saga_id = 'commit-40'"), 0);
    assert_int_equal(
        fixture_count(other, "SELECT count(*) FROM saga WHERE saga_id LIKE 'commit-%'"), MANY - 1);
    fixture_exec(other, "DROP TRIGGER refuse ON saga; DROP FUNCTION refuse()");
    mixed_done();
}

/* The session dies while a batch is in flight: unknown, and a new generation. */
static void test_a_killed_session_leaves_it_unknown(void **state)
{
    (void)state;
    struct copy copy;
    copy_new(&copy, "killed", "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_DONE, "out");
    uint64_t before = store->ops->generation(store);
    fixture_exec(other, "BEGIN");
    for_saga("SELECT FROM journal WHERE saga_uid = '%s' FOR UPDATE", &copy);
    store->ops->submit(store, &copy.op); /* waits for the lock */
    PGconn *killer = fixture_connect(conninfo);
    fixture_exec(killer, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                         " WHERE application_name = 'sagad engine'"
                         " AND datname = current_database()");
    PQfinish(killer);
    fixture_pump(store);
    assert_int_equal(copy.op.result, STORE_UNKNOWN);
    assert_int_equal(store->ops->generation(store), 0);
    fixture_exec(other, "ROLLBACK");
    fixture_wait_ready(store, before);
    assert_int_equal(store->ops->generation(store), before + 1);
    /* Loaded, and the event applied again. */
    struct copy again;
    copy_load(&again, store, &saga_row(copy.saga)->uid);
    assert_int_equal(saga_entry(again.saga, 1)->outcome, OUTCOME_NONE);
    copy_report(&again, OUTCOME_DONE, "out");
    copy_write(&again, store, STORE_OK);
    copy_assert_stored(&again, store);
    copy_done(&copy);
    copy_done(&again);
}

static void test_loads_of_a_killed_session_can_be_repeated(void **state)
{
    (void)state;
    uint64_t before = store->ops->generation(store);
    fixture_exec(other, "BEGIN; LOCK TABLE definition IN ACCESS EXCLUSIVE MODE");
    struct store_op load = { .kind = STORE_LOAD_DEFINITION,
                             .namespace_ = "test",
                             .definition = "pay" };
    store->ops->submit(store, &load);
    PGconn *killer = fixture_connect(conninfo);
    fixture_exec(killer, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                         " WHERE application_name = 'sagad engine'"
                         " AND datname = current_database()");
    PQfinish(killer);
    fixture_pump(store);
    assert_int_equal(load.result, STORE_FAILED);
    assert_true(load.err.retryable);
    fixture_exec(other, "ROLLBACK");
    fixture_wait_ready(store, before);
    fixture_run(store, &load);
    assert_int_equal(load.result, STORE_OK);
    store_op_done(&load);
}

/* A commit waits for a standby only once the checkpointer, too, has read the new setting, which no
 * view tells: so tries until one does. */
static void wait_until_commits_wait(void)
{
    PGconn *probe = fixture_connect(conninfo);
    for (int tries = 0, waited = 0; waited < 20; tries++) {
        assert_true(tries < 1000);
        assert_int_equal(
            PQsendQuery(probe, "SELECT pg_logical_emit_message(true, 'probe', 'a commit')"), 1);
        for (waited = 0; waited < 20 && PQconsumeInput(probe) && PQisBusy(probe); waited++)
            fixture_exec(other, "SELECT pg_sleep(0.01)");
        if (waited == 20)
            fixture_exec(other, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                                " WHERE wait_event = 'SyncRep'");
        for (PGresult *result; (result = PQgetResult(probe));)
            PQclear(result);
    }
    PQfinish(probe);
}

/* The wait for a standby is cancelled: durable here, nobody knows about there. */
static void test_committed_locally_is_unknown(void **state)
{
    (void)state;
    struct err err;
    uint64_t before = store->ops->generation(store);
    ASSERT_OK(test_postgres_exec(postgres, "postgres",
                                 "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", &err),
              &err);
    ASSERT_OK(test_postgres_exec(postgres, "postgres", "SELECT pg_reload_conf()", &err), &err);
    fixture_exec(other, "SET synchronous_commit = local");
    for (int i = 0;
         fixture_count(other, "SELECT count(*) FROM pg_settings WHERE name ="
                              " 'synchronous_standby_names' AND setting = 'nobody'") == 0;
         i++) {
        assert_true(i < 500);
        fixture_exec(other, "SELECT pg_sleep(0.01)");
    }
    wait_until_commits_wait();
    struct copy copy;
    copy_new(&copy, "locally", "w/1");
    store->ops->submit(store, &copy.op);
    for (int i = 0; fixture_count(other, "SELECT count(*) FROM pg_stat_activity"
                                         " WHERE wait_event = 'SyncRep'") == 0;
         i++) {
        assert_true(i < 500);
        fixture_exec(other, "SELECT pg_sleep(0.01)");
    }
    fixture_exec(other, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                        " WHERE wait_event = 'SyncRep'");
    fixture_pump(store);
    assert_int_equal(copy.op.result, STORE_UNKNOWN);
    fixture_exec(other, "ALTER SYSTEM RESET synchronous_standby_names");
    fixture_exec(other, "SELECT pg_reload_conf()");
    fixture_wait_ready(store, before);
    struct copy again; /* as it happens it is there */
    copy_load(&again, store, &saga_row(copy.saga)->uid);
    copy_done(&again);
    copy_done(&copy);
}

/* A batch that gets no answer at all: given up after its time. */
static void test_a_batch_without_answer_is_given_up(void **state)
{
    (void)state;
    uint64_t before = store->ops->generation(store);
    struct copy copy;
    copy_new(&copy, "silent", "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_DONE, "out");
    fixture_exec(other, "BEGIN");
    for_saga("SELECT FROM journal WHERE saga_uid = '%s' FOR UPDATE", &copy);
    store->ops->submit(store, &copy.op); /* waits for the lock */
    int64_t deadline = store->ops->wake_at(store);
    assert_in_range(deadline - mono_ms(), 10 * 1000, 15 * 1000);
    store->ops->process(store, deadline - 1);
    assert_true(store->ops->busy(store));
    store->ops->process(store, deadline);
    assert_ptr_equal(store->ops->completed(store), &copy.op);
    assert_int_equal(copy.op.result, STORE_UNKNOWN);
    fixture_exec(other, "ROLLBACK");
    fixture_wait_ready(store, before);
    copy_done(&copy);
}

/* A standby is not used; after its promotion fences carry the new timeline. */
static void test_a_standby_is_used_once_it_is_promoted(void **state)
{
    (void)state;
    struct err err;
    uint64_t before = store->ops->generation(store);
    assert_int_equal(store->ops->epoch(store), 0);
    char signal[300] = "";
    ASSERT_OK(test_postgres_query(postgres, "postgres",
                                  "SELECT current_setting('data_directory') || '/standby.signal'",
                                  signal, sizeof signal, &err),
              &err);
    PQfinish(other);
    ASSERT_OK(test_postgres_stop_fast(postgres, &err), &err);
    FILE *file = fopen(signal, "w");
    assert_non_null(file);
    (void)fclose(file);
    ASSERT_OK(test_postgres_restart(postgres, &err), &err);
    other = fixture_connect(conninfo);
    while (store->ops->generation(store)) /* until it has seen that the old session is gone */
        store->ops->process(store, mono_ms());
    int64_t until = mono_ms() + 1000;
    while (mono_ms() < until) {
        store->ops->process(store, mono_ms());
        assert_int_equal(store->ops->generation(store), 0);
        fixture_exec(other, "SELECT pg_sleep(0.01)");
    }
    fixture_exec(other, "SELECT pg_promote()");
    fixture_wait_ready(store, before);
    assert_int_equal(store->ops->epoch(store), 1);
    struct copy copy;
    copy_new(&copy, "promoted", NULL);
    copy_write(&copy, store, STORE_OK);
    copy_done(&copy);
}

/* --- servers and schemas that are not fit ---------------------------------------------------- */

struct migrating { /* a server that starts */
    pthread_t thread;
    const char *conninfo;
    int rc;
    struct err err;
};

static void *migrate_thread(void *arg)
{
    struct migrating *server = arg;
    server->rc = store_migrate(server->conninfo, &server->err);
    return NULL;
}

static void test_two_servers_migrate_at_once(void **state)
{
    (void)state;
    enum { SERVERS = 4, ROUNDS = 3 };
    struct err err;
    for (int round = 0; round < ROUNDS; round++) {
        struct migrating servers[SERVERS];
        char name[32], info[POSTGRES_CONNINFO_SIZE];
        (void)snprintf(name, sizeof name, "migrate_%d", round);
        ASSERT_OK(test_postgres_createdb(postgres, name, info, &err), &err);
        for (int i = 0; i < SERVERS; i++) {
            servers[i].conninfo = info;
            assert_int_equal(pthread_create(&servers[i].thread, NULL, migrate_thread, &servers[i]),
                             0);
        }
        for (int i = 0; i < SERVERS; i++)
            assert_int_equal(pthread_join(servers[i].thread, NULL), 0);
        for (int i = 0; i < SERVERS; i++)
            ASSERT_OK(servers[i].rc, &servers[i].err);
        int64_t count;
        ASSERT_OK(test_postgres_count(postgres, name,
                                      "SELECT count(*) FROM sagad.schema_migrations", &count, &err),
                  &err);
        assert_true(count >= 1);
    }
}

static void test_a_newer_database_is_refused(void **state)
{
    (void)state;
    struct err err;
    char info[POSTGRES_CONNINFO_SIZE];
    ASSERT_OK(test_postgres_createdb(postgres, "newer", info, &err), &err);
    ASSERT_OK(store_migrate(info, &err), &err);
    ASSERT_OK(store_migrate(info, &err), &err); /* again: nothing to do */
    ASSERT_OK(test_postgres_exec(postgres, "newer",
                                 "INSERT INTO sagad.schema_migrations VALUES (9999,"
                                 " '9999_future', 'x', '99')",
                                 &err),
              &err);
    assert_int_not_equal(store_migrate(info, &err), 0);
    assert_string_equal(err.reason, "DATABASE_NEWER");
    assert_non_null(strstr(err.msg, "9999_future"));
}

static void test_a_changed_migration_is_refused(void **state)
{
    (void)state;
    struct err err;
    char info[POSTGRES_CONNINFO_SIZE];
    ASSERT_OK(test_postgres_createdb(postgres, "changed", info, &err), &err);
    ASSERT_OK(store_migrate(info, &err), &err);
    ASSERT_OK(test_postgres_exec(postgres, "changed",
                                 "UPDATE sagad.schema_migrations SET checksum = 'other'", &err),
              &err);
    assert_int_not_equal(store_migrate(info, &err), 0);
    assert_string_equal(err.reason, "MIGRATION_CHANGED");
}

/* A database as the first version left it, with sagas that ran. */
static void test_a_database_with_open_sagas_is_migrated(void **state)
{
    (void)state;
    static const char saga[] = "INSERT INTO saga (shard, saga_uid, namespace, definition, revision,"
                               " saga_id, run, state, phase, owner, doubt, started_at, updated_at)"
                               " SELECT 0, gen_random_uuid(), 'default', 'd', 1, 's' || i, 1,"
                               " 'RUNNING', 'FORWARD', 'node-' || i % 2, false, now(), now()"
                               " FROM generate_series(1, 6) i;";
    const struct migration *first = &migrations[0];
    CLEANUP(buf_done) struct buf sql = { .limit = 1 << 20 };
    char info[POSTGRES_CONNINFO_SIZE];
    struct err err;
    int64_t count;
    buf_printf(&sql, "CREATE SCHEMA sagad; SET search_path = sagad;");
    buf_append(&sql, first->sql, first->size);
    buf_printf(&sql,
               ";CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL,"
               " checksum text NOT NULL, program text NOT NULL,"
               " applied_at timestamptz NOT NULL DEFAULT now());"
               "INSERT INTO schema_migrations VALUES (%d, '%s', encode(sha256(convert_to($sql$",
               first->version, first->name);
    buf_append(&sql, first->sql, first->size);
    buf_printf(&sql, "$sql$, 'UTF8')), 'hex'), 'test'); %s", saga);
    assert_false(sql.failed);
    ASSERT_OK(test_postgres_createdb(postgres, "older", info, &err), &err);
    ASSERT_OK(test_postgres_exec(postgres, "older", buf_cstr(&sql), &err), &err);
    ASSERT_OK(store_migrate(info, &err), &err);
    ASSERT_OK(test_postgres_count(postgres, "older",
                                  "SELECT count(*) FROM sagad.node JOIN sagad.saga ON owner = name",
                                  &count, &err),
              &err);
    assert_int_equal(count, 6); /* each has its owner there */
}

static void test_settings_that_lose_commits_are_refused(void **state)
{
    (void)state;
    struct err err;
    ASSERT_OK(store_check_server(conninfo, false, &err), &err);
    struct test_postgres *loose;
    const char *const settings[] = { "fsync=off", NULL };
    char info[POSTGRES_CONNINFO_SIZE];
    ASSERT_OK(test_postgres_start(settings, &loose, &err), &err);
    test_postgres_conninfo(loose, "postgres", info);
    assert_int_not_equal(store_check_server(info, false, &err), 0);
    assert_string_equal(err.reason, "UNSAFE_SERVER");
    assert_non_null(strstr(err.msg, "fsync"));
    ASSERT_OK(store_check_server(info, true, &err), &err);
    (void)test_postgres_free(loose);
    /* A role's own setting counts, too. */
    ASSERT_OK(test_postgres_exec(postgres, "postgres",
                                 "CREATE ROLE hasty LOGIN SUPERUSER;"
                                 "ALTER ROLE hasty SET synchronous_commit = off",
                                 &err),
              &err);
    memcpy(info, conninfo, sizeof info);
    char *user = strstr(info, "user=postgres");
    assert_non_null(user);
    memcpy(user, "user=hasty   ", 13);
    assert_int_not_equal(store_check_server(info, false, &err), 0);
    assert_non_null(strstr(err.msg, "synchronous_commit"));
}

/* No server at all: never usable, no busy loop, and a free in that state. */
static void test_a_server_that_is_away(void **state)
{
    (void)state;
    struct err err;
    struct store *lonely;
    struct store_pg_options options = { .conninfo = "host=/nowhere dbname=x user=x",
                                        .clock = &clock_system,
                                        .node = "n",
                                        .rng_seed = 1 };
    ASSERT_OK(store_pg_new(&options, &lonely, &err), &err);
    for (int i = 0; i < 3; i++) {
        lonely->ops->process(lonely, mono_ms());
        assert_int_equal(lonely->ops->generation(lonely), 0);
        int64_t wait = lonely->ops->wake_at(lonely) - mono_ms();
        assert_in_range(wait + 1, 1, 5001);
        fixture_exec(other, "SELECT pg_sleep(0.05)");
    }
    (void)store_pg_free(lonely);
    options.conninfo = "host=x no such setting";
    assert_int_equal(store_pg_new(&options, &lonely, &err), ERR_INVALID);
}

static void test_what_errors_mean(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        enum fault fault;
        bool retryable;
    } expected[] = {
        { "40001", FAULT_LOCK, true },       { "40P01", FAULT_LOCK, true },
        { "55P03", FAULT_LOCK, true },       { "57014", FAULT_SYSTEM, true },
        { "57P01", FAULT_CONNECTION, true }, { "08006", FAULT_CONNECTION, true },
        { "25006", FAULT_CONNECTION, true }, { "53100", FAULT_SYSTEM, true },
        { "53300", FAULT_SYSTEM, true },     { "22P02", FAULT_ROW, false },
        { "23514", FAULT_ROW, false },       { "42P01", FAULT_SYSTEM, false },
        { "XX001", FAULT_ROW, false },       { "P0001", FAULT_ROW, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        enum err_code code;
        bool retryable;
        assert_int_equal(sqlstate_fault(expected[i].sqlstate, &code, &retryable),
                         expected[i].fault);
        assert_int_equal(retryable, expected[i].retryable);
        assert_int_not_equal(code, ERR_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_locked_saga_holds_up_no_other),
        cmocka_unit_test(test_several_locked_sagas),
        cmocka_unit_test(test_a_bad_row_fails_alone),
        cmocka_unit_test(test_a_commit_that_fails_is_no_success),
        cmocka_unit_test(test_a_killed_session_leaves_it_unknown),
        cmocka_unit_test(test_loads_of_a_killed_session_can_be_repeated),
        cmocka_unit_test(test_committed_locally_is_unknown),
        cmocka_unit_test(test_a_batch_without_answer_is_given_up),
        cmocka_unit_test(test_two_servers_migrate_at_once),
        cmocka_unit_test(test_a_newer_database_is_refused),
        cmocka_unit_test(test_a_changed_migration_is_refused),
        cmocka_unit_test(test_a_database_with_open_sagas_is_migrated),
        cmocka_unit_test(test_settings_that_lose_commits_are_refused),
        cmocka_unit_test(test_a_server_that_is_away),
        cmocka_unit_test(test_what_errors_mean),
        cmocka_unit_test(test_a_standby_is_used_once_it_is_promoted),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
