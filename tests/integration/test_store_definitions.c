/* Goal: a revision is found again by content and descriptors, its number is given once, and it goes
 * only when no saga has it or can get it any more; a database of an older schema keeps what it has.
 * Method: the reader's calls against plain SQL; starts and deletions in transactions that are held
 * open, in either order; a database that is migrated half way, filled, and migrated to the end. */
#include "store_fixture.h"

#include "base/fault.h"
#include "base/mem.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store_reader *reader;
static PGconn *conn;
static struct err err;

static int group_setup(void **state)
{
    (void)state;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "definitions", conninfo);
    SETUP_OK(store_reader_new(conninfo, &reader, &err), &err);
    conn = fixture_connect(conninfo);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    PQfinish(conn);
    reader = store_reader_free(reader);
    postgres = test_postgres_free(postgres);
    return 0;
}

static struct bytes text_bytes(const char *text)
{
    return (struct bytes){ (uint8_t *)(uintptr_t)text, strlen(text) };
}

enum { AS_CURRENT, KEEP, DRY };

/* What must come of it: the revision, whether it is new, and what was current before. */
static void put(const char *name, const char *content, const char *descriptors, int how,
                int32_t revision, bool created, int32_t before)
{
    struct store_registered registered;
    struct store_register what = { .namespace_ = "test",
                                   .name = name,
                                   .content = text_bytes(content),
                                   .descriptors = text_bytes(descriptors),
                                   .validate_only = how == DRY,
                                   .keep_current = how == KEEP };
    ASSERT_OK(store_reader_register(reader, &what, &registered, &err), &err);
    assert_int_equal(registered.revision.revision, revision);
    assert_int_equal(registered.created, created);
    assert_int_equal(registered.before.revision, before);
    assert_int_equal(registered.revision.content.size, strlen(content));
    assert_memory_equal(registered.revision.content.data, content, strlen(content));
    store_registered_done(&registered);
}

static int32_t current(const char *name)
{
    char sql[160];
    (void)snprintf(
        sql, sizeof sql,
        "SELECT coalesce((SELECT current_revision FROM definition WHERE name = '%s'), 0)", name);
    return (int32_t)fixture_count(conn, sql);
}

static void expect_delete(const char *name, int32_t revision, enum err_code code,
                          const char *reason)
{
    int rc = store_reader_delete_revision(reader, "test", name, revision, NULL, &err);
    if (rc != (int)code)
        fail_msg("%s instead of %s: %s", err_code_name((enum err_code)rc), err_code_name(code),
                 rc ? err.msg : "");
    if (reason)
        assert_string_equal(err.reason, reason);
}

/* --- registration ----------------------------------------------------------------------------- */

static void test_a_revision_is_its_content_and_its_descriptors(void **state)
{
    (void)state;
    put("typed", "a", "", AS_CURRENT, 1, true, 0);
    put("typed", "a", "types", AS_CURRENT, 2, true, 1);
    put("typed", "a", "other types", AS_CURRENT, 3, true, 2);
    put("typed", "at", "ypes", AS_CURRENT, 4, true, 3); /* the same bytes in a row */
    put("typed", "a", "types", AS_CURRENT, 2, false, 4);
    assert_int_equal(current("typed"), 2);
    /* As before there were descriptors. */
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM definition_revision"
                                         " WHERE name = 'typed' AND revision = 1"
                                         " AND digest = sha256(content) AND descriptors = ''"),
                     1);
    struct store_definition stored;
    ASSERT_OK(store_reader_definition(reader, "test", "typed", 2, true, &stored, &err), &err);
    assert_int_equal(stored.descriptors.size, 5);
    assert_memory_equal(stored.descriptors.data, "types", 5);
    store_definition_done(&stored);
    ASSERT_OK(store_reader_definition(reader, "test", "typed", 2, false, &stored, &err), &err);
    assert_int_equal(stored.descriptors.size, 0);
    store_definition_done(&stored);
}

static void test_what_is_registered_becomes_current_unless_told_not_to(void **state)
{
    (void)state;
    put("kept", "a", "", KEEP, 1, true, 0);
    assert_int_equal(current("kept"), 1); /* there was none */
    put("kept", "b", "", KEEP, 2, true, 1);
    assert_int_equal(current("kept"), 1);
    put("kept", "b", "", KEEP, 2, false, 1);
    assert_int_equal(current("kept"), 1);
    put("kept", "b", "", DRY, 2, false, 1);
    put("kept", "c", "", DRY, 3, true, 1);
    assert_int_equal(current("kept"), 1);
    put("kept", "b", "", AS_CURRENT, 2, false, 1);
    assert_int_equal(current("kept"), 2);
    struct store_definition stored;
    ASSERT_OK(store_reader_promote(reader, "test", "kept", 1, NULL, &stored, &err), &err);
    assert_true(stored.current);
    assert_int_equal(stored.revision, 1);
    store_definition_done(&stored);
    assert_int_equal(current("kept"), 1);
    assert_int_equal(store_reader_promote(reader, "test", "kept", 3, NULL, &stored, &err),
                     ERR_NOT_FOUND);
    assert_int_equal(store_reader_promote(reader, "test", "none", 1, NULL, &stored, &err),
                     ERR_NOT_FOUND);
    assert_int_equal(current("kept"), 1);
}

/* --- pause ------------------------------------------------------------------------------------ */

static void test_a_pause_keeps_its_time_and_whose_word_it_was(void **state)
{
    (void)state;
    struct store_definition stored;
    assert_int_equal(store_reader_pause(reader, "test", "paused",
                                        &(struct store_words){ "ann", "" }, &stored, &err),
                     ERR_NOT_FOUND);
    put("paused", "a", "", AS_CURRENT, 1, true, 0);
    ASSERT_OK(store_reader_pause(reader, "test", "paused",
                                 &(struct store_words){ "ann", "a bad day" }, &stored, &err),
              &err);
    int64_t since = stored.paused_at_ms;
    assert_true(since > 0);
    store_definition_done(&stored);
    fixture_exec(conn, "SELECT pg_sleep(0.01)");
    ASSERT_OK(store_reader_pause(reader, "test", "paused", &(struct store_words){ "bob", "me too" },
                                 &stored, &err),
              &err);
    assert_int_equal(stored.paused_at_ms, since);
    assert_string_equal(stored.paused_by, "ann");
    assert_string_equal(stored.pause_reason, "a bad day");
    store_definition_done(&stored);
    put("paused", "b", "", AS_CURRENT, 2, true, 1); /* it stays so, whatever is current */
    struct store *store = fixture_store(conninfo);
    struct store_op load = { .kind = STORE_LOAD_DEFINITION,
                             .namespace_ = "test",
                             .definition = "paused" };
    fixture_run(store, &load);
    assert_int_equal(load.result, STORE_OK);
    assert_int_equal(load.revision, 2);
    assert_true(load.paused);
    assert_string_equal(load.pause_reason, "a bad day");
    store_op_done(&load);
    ASSERT_OK(store_reader_resume(reader, "test", "paused", NULL, &stored, &err), &err);
    assert_int_equal(stored.paused_at_ms, 0);
    assert_null(stored.paused_by);
    store_definition_done(&stored);
    load = (struct store_op){ .kind = STORE_LOAD_DEFINITION,
                              .namespace_ = "test",
                              .definition = "paused" };
    fixture_run(store, &load);
    assert_false(load.paused);
    assert_null(load.pause_reason);
    store_op_done(&load);
    (void)store_pg_free(store);
}

/* --- revisions -------------------------------------------------------------------------------- */

static void add_sagas(const char *name, int32_t revision, const char *state, int count)
{
    char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id,"
                   " run, state, phase, doubt, started_at, updated_at) SELECT 0,"
                   " gen_random_uuid(), 'test', '%s', %d, 'k' || i, 1, '%s', 'RUNNING', false,"
                   " now(), now() FROM generate_series(1, %d) i",
                   name, revision, state, count);
    fixture_exec(conn, sql);
}

static void test_revisions_page_by_page_with_their_open_sagas(void **state)
{
    (void)state;
    static const char *const contents[] = { "a", "b", "c", "d", "e" };
    for (int i = 0; i < 5; i++)
        put("paged", contents[i], i % 2 ? "t" : "", AS_CURRENT, i + 1, true, i);
    add_sagas("paged", 2, "RUNNING", 3);
    add_sagas("paged", 2, "SUCCEEDED", 5);
    add_sagas("paged", 4, "PARKED", 1);
    add_sagas("paged", 4, "COMPENSATING", 1);
    static const int64_t open[] = { 0, 3, 0, 2, 0 };
    struct store_definition page[2];
    size_t count = 2, seen = 0;
    for (int32_t before = INT_MAX; count == 2; before = 5 - (int32_t)seen + 1) {
        ASSERT_OK(store_reader_revisions(reader, "test", "paged", before, 2, page, &count, &err),
                  &err);
        for (size_t i = 0; i < count; i++, seen++) {
            int32_t revision = 5 - (int32_t)seen;
            assert_int_equal(page[i].revision, revision);
            assert_int_equal(page[i].current, revision == 5);
            assert_int_equal(page[i].open_sagas, open[revision - 1]);
            assert_int_equal(page[i].descriptors.size, 0);
            store_definition_done(&page[i]);
        }
    }
    assert_int_equal(seen, 5);
}

static void test_only_what_no_saga_has_is_deleted(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        put("gone", i == 0 ? "a" : i == 1 ? "b" : "c", "", AS_CURRENT, i + 1, true, i);
    add_sagas("gone", 1, "SUCCEEDED", 1);
    expect_delete("gone", 4, ERR_NOT_FOUND, NULL);
    expect_delete("none", 1, ERR_NOT_FOUND, NULL);
    expect_delete("gone", 3, ERR_PRECONDITION, "REVISION_CURRENT");
    expect_delete("gone", 1, ERR_PRECONDITION, "REVISION_IN_USE"); /* one that has ended */
    expect_delete("gone", 2, ERR_OK, NULL);
    expect_delete("gone", 2, ERR_NOT_FOUND, NULL);
    fixture_exec(conn, "DELETE FROM saga WHERE definition = 'gone'");
    expect_delete("gone", 1, ERR_OK, NULL);
    assert_int_equal(current("gone"), 3);
}

/* Nodes know revisions by their number: what was 3 is never another content. */
static void test_the_number_of_a_deleted_revision_is_not_given_again(void **state)
{
    (void)state;
    struct store_definition stored;
    put("numbers", "a", "", AS_CURRENT, 1, true, 0);
    put("numbers", "b", "", KEEP, 2, true, 1);
    expect_delete("numbers", 2, ERR_OK, NULL);
    put("numbers", "c", "", DRY, 3, true, 1);
    put("numbers", "c", "", KEEP, 3, true, 1);
    expect_delete("numbers", 3, ERR_OK, NULL);
    ASSERT_OK(store_reader_pause(reader, "test", "numbers", &(struct store_words){ "ann", "" },
                                 &stored, &err),
              &err);
    store_definition_done(&stored);
    expect_delete("numbers", 1, ERR_OK, NULL); /* the last one: the definition */
    assert_int_equal(store_reader_definition(reader, "test", "numbers", 0, false, &stored, &err),
                     ERR_NOT_FOUND);
    assert_int_equal(store_reader_definition(reader, "test", "numbers", 1, false, &stored, &err),
                     ERR_NOT_FOUND);
    assert_int_equal(store_reader_pause(reader, "test", "numbers",
                                        &(struct store_words){ "ann", "" }, &stored, &err),
                     ERR_NOT_FOUND);
    put("numbers", "a", "", DRY, 4, true, 0);
    put("numbers", "a", "", KEEP, 4, true, 0);
    assert_int_equal(current("numbers"), 4);
    ASSERT_OK(store_reader_definition(reader, "test", "numbers", 0, false, &stored, &err), &err);
    assert_int_equal(stored.paused_at_ms, 0);
    store_definition_done(&stored);
}

/* --- a start and a deletion at once ----------------------------------------------------------- */

struct deleting {
    pthread_t thread;
    int32_t revision;
    int rc;
    struct err err;
};

static void *delete_thread(void *arg)
{
    struct deleting *self = arg;
    struct store_reader *own;
    self->rc = store_reader_new(conninfo, &own, &self->err);
    if (self->rc)
        return NULL;
    self->rc = store_reader_delete_revision(own, "test", "pay", self->revision, NULL, &self->err);
    (void)store_reader_free(own);
    return NULL;
}

static void delete_begin(struct deleting *ret, int32_t revision)
{
    *ret = (struct deleting){ .revision = revision };
    assert_int_equal(pthread_create(&ret->thread, NULL, delete_thread, ret), 0);
}

static void await_blocked_reader(void)
{
    for (int i = 0; fixture_count(conn, "SELECT count(*) FROM pg_stat_activity WHERE"
                                        " application_name = 'sagad reader'"
                                        " AND wait_event_type = 'Lock'") == 0;
         i++) {
        assert_true(i < 1000);
        fixture_exec(conn, "SELECT pg_sleep(0.005)");
    }
}

/* "pay" is on another revision; the copies are of revision 1, as of a node that has not heard. */
static void stale_begin(struct copy *copy, struct session *session, const char *saga_id)
{
    fixture_exec(conn,
                 "INSERT INTO definition_revision (namespace, name, revision, digest, content)"
                 " VALUES ('test', 'pay', 1, sha256('pay, revision 1'), 'pay, revision 1'),"
                 " ('test', 'pay', 2, sha256('2'), '2') ON CONFLICT DO NOTHING;"
                 "UPDATE definition SET current_revision = 2, last_revision = 2"
                 " WHERE name = 'pay'");
    session_open(session, conninfo, "node-1");
    copy_new(copy, saga_id, "worker/1");
}

static void stale_end(struct copy *copy, struct session *session)
{
    copy_done(copy);
    session_close(session);
}

static void test_a_deletion_waits_for_a_start_and_finds_its_saga(void **state)
{
    (void)state;
    struct copy copy;
    struct session session;
    struct deleting deleting;
    stale_begin(&copy, &session, "first");
    session_send(&session, &copy.op);
    assert_true(session_take(&session));
    delete_begin(&deleting, 1);
    await_blocked_reader();
    fixture_exec(session.conn, "COMMIT");
    assert_int_equal(pthread_join(deleting.thread, NULL), 0);
    assert_int_equal(deleting.rc, ERR_PRECONDITION);
    assert_string_equal(deleting.err.reason, "REVISION_IN_USE");
    stale_end(&copy, &session);
    fixture_exec(conn, "DELETE FROM saga; DELETE FROM saga_key; DELETE FROM journal");
}

static void test_a_deletion_does_not_wait_for_long(void **state)
{
    (void)state;
    struct copy copy;
    struct session session;
    stale_begin(&copy, &session, "long");
    session_send(&session, &copy.op);
    assert_true(session_take(&session));
    assert_int_equal(store_reader_delete_revision(reader, "test", "pay", 1, NULL, &err),
                     ERR_UNAVAILABLE);
    assert_true(err.retryable);
    assert_string_equal(err.sqlstate, "55P03");
    fixture_exec(session.conn, "ROLLBACK");
    ASSERT_OK(store_reader_delete_revision(reader, "test", "pay", 1, NULL, &err), &err);
    stale_end(&copy, &session);
}

static void test_a_start_behind_a_deletion_starts_nothing(void **state)
{
    (void)state;
    struct copy copy;
    struct session session;
    stale_begin(&copy, &session, "behind");
    fixture_exec(conn, "BEGIN; SELECT FROM definition_revision WHERE name = 'pay' AND revision = 1"
                       " FOR UPDATE");
    session_send(&session, &copy.op);
    PGconn *watch = fixture_connect(conninfo);
    session_wait_blocked(&session, watch);
    fixture_exec(conn, "DELETE FROM definition_revision WHERE name = 'pay' AND revision = 1;"
                       "COMMIT");
    assert_false(session_take(&session));
    fixture_exec(session.conn, "COMMIT");
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM saga_key"), 0);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM journal"), 0);
    /* The whole store: nothing is durable, and that is said. */
    struct store *store = fixture_store(conninfo);
    struct copy again;
    copy_new(&again, "again", "worker/1");
    copy_write(&again, store, STORE_LOST);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM saga_key"), 0);
    copy_done(&again);
    (void)store_pg_free(store);
    PQfinish(watch);
    stale_end(&copy, &session);
}

/* In one batch those on revisions that are there go through, and known keys are told as ever. */
static void test_a_batch_of_starts_on_revisions_old_and_new(void **state)
{
    (void)state;
    struct copy copy, known, other;
    struct session session;
    stale_begin(&copy, &session, "known");
    struct store *store = fixture_store(conninfo);
    copy_write(&copy, store, STORE_OK);
    fixture_exec(conn,
                 "INSERT INTO definition VALUES ('test', 'ship', 1);"
                 "INSERT INTO definition_revision VALUES ('test', 'ship', 1, sha256('s'), 's');"
                 "DELETE FROM definition_revision WHERE name = 'pay' AND revision = 1");
    copy_new(&known, "known", NULL);
    copy_new(&other, "unknown", NULL);
    known.op.next = &other.op;
    fixture_run(store, &known.op);
    assert_int_equal(known.op.result, STORE_EXISTS);
    assert_int_equal(other.op.result, STORE_LOST);
    copy_done(&known);
    copy_done(&other);
    (void)store_pg_free(store);
    stale_end(&copy, &session);
    fixture_exec(conn, "DELETE FROM saga; DELETE FROM saga_key; DELETE FROM journal");
}

/* --- a database of an older schema ------------------------------------------------------------ */

static int migrations_left;
static char half_way[POSTGRES_CONNINFO_SIZE];

/* Ends the migration's session inside the one behind those that are wanted. */
static void at_migration(const char *point)
{
    if (strcmp(point, "inside_migration") == 0 && migrations_left-- == 0) {
        PGconn *killer = PQconnectdb(half_way);
        fixture_exec(killer, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                             " WHERE application_name = 'sagad' AND datname = current_database()");
        PQfinish(killer);
    }
}

static void test_a_database_of_the_schema_before_keeps_its_revisions(void **state)
{
    (void)state;
    ASSERT_OK(test_postgres_createdb(postgres, "older", half_way, &err), &err);
    migrations_left = 3;
    fault_hook = at_migration;
    assert_int_not_equal(store_migrate(half_way, &err), 0);
    fault_hook = NULL;
    PGconn *older = fixture_connect(half_way);
    assert_int_equal(fixture_count(older, "SELECT max(version) FROM schema_migrations"), 3);
    fixture_exec(older, "INSERT INTO definition VALUES ('test', 'old', 2), ('test', 'empty', 0);"
                        "INSERT INTO definition_revision SELECT 'test', 'old', i, sha256(c), c FROM"
                        " (VALUES (1, 'a'::bytea), (2, 'b')) v (i, c)");
    ASSERT_OK(store_migrate(half_way, &err), &err);
    struct store_reader *own = reader;
    PGconn *usual = conn;
    ASSERT_OK(store_reader_new(half_way, &reader, &err), &err);
    conn = older;
    put("old", "b", "", AS_CURRENT, 2, false, 2); /* found by the digest that it had */
    put("old", "a", "", AS_CURRENT, 1, false, 2);
    put("old", "a", "t", AS_CURRENT, 3, true, 1);
    put("empty", "a", "", AS_CURRENT, 1, true, 0);
    assert_int_equal(fixture_count(older, "SELECT last_revision FROM definition"
                                          " WHERE name = 'old' AND paused_at IS NULL"),
                     3);
    (void)store_reader_free(reader);
    PQfinish(older);
    reader = own;
    conn = usual;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_revision_is_its_content_and_its_descriptors),
        cmocka_unit_test(test_what_is_registered_becomes_current_unless_told_not_to),
        cmocka_unit_test(test_a_pause_keeps_its_time_and_whose_word_it_was),
        cmocka_unit_test(test_revisions_page_by_page_with_their_open_sagas),
        cmocka_unit_test(test_only_what_no_saga_has_is_deleted),
        cmocka_unit_test(test_the_number_of_a_deleted_revision_is_not_given_again),
        cmocka_unit_test(test_a_deletion_waits_for_a_start_and_finds_its_saga),
        cmocka_unit_test(test_a_deletion_does_not_wait_for_long),
        cmocka_unit_test(test_a_start_behind_a_deletion_starts_nothing),
        cmocka_unit_test(test_a_batch_of_starts_on_revisions_old_and_new),
        cmocka_unit_test(test_a_database_of_the_schema_before_keeps_its_revisions),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
