/* Goal: a batch of records takes effect as a whole or not at all, once, whoever else has the same
 * partition, the same keys or the same letters. Method: batches put together by hand on a migrated
 * database; every row and counter is looked at by plain SQL. */
#include "ingest_fixture.h"

#include "store/connect.h"

#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static PGconn *conn;
static struct store_ingest *ingest;
static struct made *made;

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

static int setup(void **state)
{
    (void)state;
    static int number;
    char name[32];
    (void)snprintf(name, sizeof name, "ingest_%d", number++);
    fixture_database(postgres, name, conninfo);
    conn = fixture_connect(conninfo);
    fixture_exec(conn, "INSERT INTO node VALUES ('node-1', gen_random_uuid(), now(), now())");
    ingest = ingest_open_rule(conninfo, -1);
    made = made_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    made = made_free(made);
    ingest = store_ingest_free(ingest);
    PQfinish(conn);
    return 0;
}

static void run_batch(void)
{
    struct err err;
    ASSERT_OK(store_ingest_batch(ingest, &made->batch, &err), &err);
}

static void expect_error(int rc, const struct err *err, int code, const char *reason)
{
    if (rc != code || strcmp(err->reason, reason) != 0)
        fail_msg("%s %s: %s", err_code_name(err->code), err->reason, err->msg);
}

static void assert_count(const char *sql, int64_t expected)
{
    int64_t count = fixture_count(conn, sql);
    if (count != expected)
        fail_msg("%lld instead of %lld: %s", (long long)count, (long long)expected, sql);
}

/* --- one transaction ------------------------------------------------------------------------- */

static void test_p7_a_batch_starts_sagas_and_moves_its_cursors(void **state)
{
    (void)state;
    made_start(made, 0, 0, "b", "one");
    made_start(made, 1, 0, "a", "")->labels = "{\"color\": \"blue\"}";
    made_dead(made, 0, 1, "KEY_INVALID")->headers = (struct bytes){ (uint8_t *)"h", 1 };
    made_start(made, 0, 4, "c", "three"); /* after a hole */
    made->parts[0].filtered = 2;
    made->parts[1].tombstones = 3;
    run_batch();
    assert_string_equal(made_results(made), "STARTED STARTED DEAD STARTED");
    assert_true(made->parts[0].moved && made->parts[1].moved);
    assert_cursor(conn, 0, "5 2 0 0 1 2 0 @5");
    assert_cursor(conn, 1, "4 1 0 0 0 0 3 @1");
    assert_cursor(conn, 2, "0 0 0 0 0 0 0 @0");
    assert_count("SELECT count(*) FROM saga s JOIN saga_key k USING (shard, namespace, definition,"
                 " saga_id, saga_uid) WHERE s.state = 'RUNNING' AND s.phase = 'RUNNING'"
                 " AND s.owner = 'node-1' AND s.run = 1 AND k.run = 1 AND s.revision = 1"
                 " AND NOT s.doubt AND s.started_at = s.updated_at AND k.final_state IS NULL"
                 " AND k.input_digest = sha256(coalesce(s.input, ''))"
                 " AND s.deadline_at = s.started_at + interval '10 minutes'",
                 3);
    assert_count("SELECT count(*) FROM saga WHERE saga_id = 'a' AND labels->>'color' = 'blue'"
                 " AND input IS NULL",
                 1);
    assert_count("SELECT count(*) FROM journal", 0);
    assert_count("SELECT count(*) FROM dead_letter WHERE rule = 'pays' AND topic = 'payments'"
                 " AND partition = 0 AND record_offset = 1 AND record_time_ms = 1001"
                 " AND record_crc = 7 AND key = '\\x006b' AND value IS NULL AND headers = 'h'"
                 " AND saga_id IS NULL AND reason = 'KEY_INVALID' AND message = 'what was wrong'"
                 " AND state = 'OPEN' AND decided_by IS NULL",
                 1);
    struct uuid first = made->records[0].uid;
    char text[UUID_TEXT_SIZE], sql[160];
    uuid_format(&first, text);
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM saga WHERE saga_id = 'b' AND saga_uid = '%s'"
                   " AND shard = %d",
                   text, uuid_shard(&first));
    assert_count(sql, 1);

    struct err err;
    struct store_ingest_cursor *cursors;
    size_t count;
    ASSERT_OK(store_ingest_cursors(ingest, &cursors, &count, &err), &err);
    assert_int_equal(count, 3);
    assert_int_equal(cursors[0].next_offset, 5);
    assert_true(cursors[0].has_before && !cursors[2].has_before && !cursors[0].stopped);
    assert_int_equal(cursors[0].before.offset, 4);
    assert_int_equal(cursors[0].before.time_ms, 1004);
    assert_int_equal(cursors[0].before.crc, 7);
    store_ingest_cursors_done(cursors, count);
}

/* The engine can load what was started, and go on with it. */
static void test_what_was_started_loads_as_any_other(void **state)
{
    (void)state;
    made_start(made, 0, 0, "one", "input");
    run_batch();
    struct store *store = fixture_store(conninfo);
    struct copy copy;
    copy_load(&copy, store, &made->records[0].uid);
    copy_grant(&copy, "worker/1");
    copy_write(&copy, store, STORE_OK);
    copy_assert_stored(&copy, store);
    copy_done(&copy);
    (void)store_pg_free(store);
}

static void test_a_batch_that_only_passes_over_moves(void **state)
{
    (void)state;
    made->batch.part_count = 1;
    made->parts[0] = (struct store_ingest_part){
        .partition = 2, .next_offset = 10, .before = { 9, -1, 0xffffffff }, .filtered = 10
    };
    run_batch();
    assert_true(made->parts[0].moved);
    assert_cursor(conn, 2, "10 0 0 0 0 10 0 @10");
    assert_count("SELECT count(*) FROM kafka_cursor WHERE before_crc = 4294967295"
                 " AND before_time_ms = -1",
                 1);
    made->parts[0].expected = 10; /* nothing but markers of transactions */
    made->parts[0].next_offset = 12;
    made->parts[0].filtered = 0;
    made->parts[0].before.offset = -1;
    run_batch();
    assert_true(made->parts[0].moved);
    assert_cursor(conn, 2, "10 0 0 0 0 10 0 @12");
    assert_count("SELECT count(*) FROM kafka_cursor WHERE partition = 2 AND before_offset IS NULL"
                 " AND before_time_ms IS NULL AND before_crc IS NULL",
                 1);
}

/* --- once ------------------------------------------------------------------------------------ */

static void test_p7_a_partition_that_is_elsewhere_does_not_move(void **state)
{
    (void)state;
    made_start(made, 0, 0, "one", "x");
    run_batch();
    made_clear(made);
    made_start(made, 0, 0, "two", "x"); /* a zombie: it was there before */
    made_start(made, 1, 0, "three", "x");
    made_dead(made, 0, 1, "KEY_INVALID");
    run_batch();
    assert_string_equal(made_results(made), "NOTHING STARTED NOTHING");
    assert_false(made->parts[0].moved);
    assert_true(made->parts[1].moved);
    assert_cursor(conn, 0, "1 1 0 0 0 0 0 @1");
    assert_count("SELECT count(*) FROM saga WHERE saga_id = 'two'", 0);
    assert_count("SELECT count(*) FROM dead_letter", 0);

    fixture_exec(conn, "UPDATE kafka_cursor SET state = 'STOPPED' WHERE partition = 0");
    made_clear(made);
    made_start(made, 0, 1, "four", "x");
    run_batch();
    assert_string_equal(made_results(made), "NOTHING");
    assert_int_equal(PQtransactionStatus(conn), PQTRANS_IDLE);
    assert_count("SELECT count(*) FROM saga", 2);
}

static void test_p1_p7_a_key_that_is_known_starts_nothing(void **state)
{
    (void)state;
    made_start(made, 0, 0, "same", "x");
    made_start(made, 0, 1, "other", "x");
    run_batch();
    struct uuid first = made->records[0].uid;
    made_clear(made);
    made_start(made, 1, 0, "other", "y");
    made_start(made, 1, 1, "same", "x");
    made_start(made, 1, 2, "new", "x");
    run_batch();
    assert_string_equal(made_results(made), "MISMATCH DUPLICATE STARTED");
    assert_memory_equal(&made->records[1].uid, &first, sizeof first);
    assert_false(made->records[1].ended);
    assert_cursor(conn, 1, "3 1 1 1 0 0 0 @3");
    assert_count("SELECT count(*) FROM dead_letter", 0);

    made_clear(made);
    made->batch.mismatch_is_dead_letter = true;
    made_start(made, 2, 0, "other", "z");
    made_start(made, 2, 1, "same", "x");
    run_batch();
    assert_string_equal(made_results(made), "MISMATCH DUPLICATE");
    assert_cursor(conn, 2, "2 0 1 1 1 0 0 @2");
    assert_count("SELECT count(*) FROM dead_letter WHERE reason = 'MISMATCH' AND saga_id = 'other'"
                 " AND value = 'z' AND key = 'other'",
                 1);
    assert_count("SELECT count(*) FROM saga", 3);
}

static void test_p1_of_one_key_twice_in_a_batch_the_first_wins(void **state)
{
    (void)state;
    made_start(made, 1, 0, "twice", "first");
    made_start(made, 0, 0, "twice", "second");
    made_start(made, 0, 1, "twice", "first");
    run_batch();
    assert_string_equal(made_results(made), "STARTED MISMATCH DUPLICATE");
    assert_count("SELECT count(*) FROM saga WHERE input = 'first'", 1);
    assert_cursor(conn, 0, "2 0 1 1 0 0 0 @2");
}

/* Its rows are gone, its key is not. */
static void test_r1_p7_a_purged_saga_answers_with_its_end(void **state)
{
    (void)state;
    made_start(made, 0, 0, "gone", "x");
    run_batch();
    struct uuid first = made->records[0].uid;
    fixture_exec(conn, "UPDATE saga_key SET final_state = 'COMPENSATED'; DELETE FROM saga");
    made_clear(made);
    made_start(made, 0, 1, "gone", "x");
    made_start(made, 0, 2, "gone", "y");
    run_batch();
    assert_string_equal(made_results(made), "DUPLICATE MISMATCH");
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(&made->records[i].uid, &first, sizeof first);
        assert_true(made->records[i].ended);
        assert_int_equal(made->records[i].final_state, SAGA_COMPENSATED);
    }
    assert_count("SELECT count(*) FROM saga", 0);
}

/* A record that is read again is no second letter; one of a topic made anew is another. */
static void test_a_dead_record_is_one_letter(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        made_clear(made);
        made_dead(made, 0, 0, "KEY_INVALID");
        run_batch();
        assert_string_equal(made_results(made), round ? "DUPLICATE" : "DEAD");
        fixture_exec(conn, "UPDATE kafka_cursor SET next_offset = 0");
    }
    assert_count("SELECT count(*) FROM dead_letter", 1);
    assert_cursor(conn, 0, "2 0 1 0 1 0 0 @0");
    made_clear(made);
    made_dead(made, 0, 0, "KEY_INVALID")->crc = 8;
    run_batch();
    assert_string_equal(made_results(made), "DEAD");
    assert_count("SELECT count(*) FROM dead_letter", 2);
}

/* --- suspect --------------------------------------------------------------------------------- */

static void test_records_before_the_mark_start_suspect(void **state)
{
    (void)state;
    fixture_exec(conn, "UPDATE kafka_cursor SET suspect_until = 2 WHERE partition = 0");
    made_start(made, 0, 0, "old", "x")->time_ms = INT64_C(1700000000123);
    made_start(made, 0, 1, "no-time", "x")->time_ms = -1;
    made_start(made, 0, 2, "new", "x");
    made_start(made, 1, 0, "elsewhere", "x");
    made_start(made, 1, 1, "old", "x"); /* no second entry */
    run_batch();
    assert_string_equal(made_results(made), "STARTED STARTED STARTED STARTED DUPLICATE");
    assert_count("SELECT count(*) FROM journal", 2);
    assert_count("SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                 " WHERE j.kind = 'SUSPECT' AND j.seq = 1 AND j.fence = 0 AND j.try = 0"
                 " AND j.actor = 'kafka/pays' AND j.finished_at = s.started_at"
                 " AND j.outcome IS NULL AND j.step IS NULL AND j.leased_at ="
                 " CASE s.saga_id WHEN 'old' THEN '2023-11-14 22:13:20.123+00'::timestamptz"
                 " ELSE '1970-01-01 00:00:00.001+00' END",
                 2);
    made_clear(made); /* a clock that is ahead */
    fixture_exec(conn, "UPDATE kafka_cursor SET suspect_until = 9 WHERE partition = 0");
    made_start(made, 0, 3, "ahead", "x")->time_ms = INT64_C(4000000000000);
    run_batch();
    assert_count("SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                 " WHERE s.saga_id = 'ahead' AND j.leased_at = s.started_at",
                 1);
}

/* Started and suspect alike; not what was known. */
static void test_p2_starts_are_published_where_the_definition_wants_it(void **state)
{
    (void)state;
    made_start(made, 0, 0, "quiet", "x");
    run_batch();
    assert_count("SELECT count(*) FROM outbox", 0);
    made_clear(made);
    made->batch.publish_start = true;
    made_start(made, 0, 1, "quiet", "x");
    made_start(made, 0, 2, "loud", "x");
    run_batch();
    assert_string_equal(made_results(made), "DUPLICATE STARTED");
    assert_count("SELECT count(*) FROM outbox", 1);
    assert_count("SELECT count(*) FROM outbox o JOIN saga s USING (shard, saga_uid)"
                 " WHERE s.saga_id = 'loud' AND o.seq = 0 AND o.part = 0"
                 " AND o.created_at = s.started_at",
                 1);
}

/* --- what holds it back ---------------------------------------------------------------------- */

static void test_nothing_moves_while_the_definition_or_the_rule_says_no(void **state)
{
    (void)state;
    struct err err;
    made_start(made, 0, 0, "one", "x");
    fixture_exec(conn,
                 "UPDATE definition SET paused_at = now(), pause_reason = 'the bank is shut'");
    expect_error(store_ingest_batch(ingest, &made->batch, &err), &err, ERR_PRECONDITION,
                 "DEFINITION_PAUSED");
    assert_non_null(strstr(err.msg, "the bank is shut"));
    assert_true(err.retryable);
    fixture_exec(conn, "UPDATE definition SET paused_at = NULL");
    made->batch.revision = 2;
    expect_error(store_ingest_batch(ingest, &made->batch, &err), &err, ERR_PRECONDITION,
                 "REVISION_GONE");
    made->batch.revision = 1;
    fixture_exec(conn, "UPDATE kafka_rule SET wanted = 'STOP'");
    expect_error(store_ingest_batch(ingest, &made->batch, &err), &err, ERR_PRECONDITION,
                 "RULE_STOPPED");
    assert_false(made->parts[0].moved);
    assert_string_equal(made_results(made), "NOTHING");
    assert_cursor(conn, 0, "0 0 0 0 0 0 0 @0");
    fixture_exec(conn, "UPDATE kafka_rule SET wanted = 'RUN'");
    run_batch();
    assert_string_equal(made_results(made), "STARTED");
}

static void test_who_deletes_a_revision_waits_for_the_batch(void **state)
{
    (void)state;
    PGconn *other = fixture_connect(conninfo);
    fixture_exec(other, "BEGIN; SELECT FROM definition_revision FOR UPDATE");
    struct err err;
    made_start(made, 0, 0, "one", "x");
    expect_error(store_ingest_batch(ingest, &made->batch, &err), &err, ERR_UNAVAILABLE, "");
    assert_string_equal(err.sqlstate, "55P03");
    assert_true(err.retryable);
    fixture_exec(other, "ROLLBACK");
    run_batch();
    PQfinish(other);
}

/* One row that the database refuses is a dead letter, and the others start. */
static void test_k4_a_refused_row_holds_up_nothing(void **state)
{
    (void)state;
    fixture_exec(conn, "ALTER TABLE saga ADD CHECK (saga_id NOT LIKE 'bad%')");
    for (int i = 0; i < 100; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, i % 40 == 7 ? "bad-%d" : "good-%d", i);
        made_start(made, 0, i, id, "x");
    }
    made_start(made, 0, 100, "good-1", "x");
    run_batch();
    assert_cursor(conn, 0, "101 97 1 0 3 0 0 @101");
    assert_count("SELECT count(*) FROM saga", 97);
    assert_count("SELECT count(*) FROM saga_key", 97);
    assert_count("SELECT count(*) FROM dead_letter WHERE reason = 'REFUSED_BY_DATABASE'"
                 " AND saga_id LIKE 'bad%' AND message LIKE '%saga_saga_id_check%'",
                 3);
    assert_int_equal(made->records[7].result, INGEST_DEAD);
    assert_int_equal(made->records[8].result, INGEST_STARTED);
    assert_int_equal(made->records[100].result, INGEST_DUPLICATE);
}

/* What stands in a letter's texts came from bytes that nobody could read. */
static void test_k4_a_letter_takes_any_bytes(void **state)
{
    (void)state;
    static char long_key[20000];
    memset(long_key, 'k', sizeof long_key - 1);
    struct store_ingest_record *record = made_dead(made, 0, 0, "KEY_INVALID");
    record->message = "broken \xff\xfe";
    record->saga_id = "\xc3";
    record->key = (struct store_ingest_bytes){ (uint8_t *)long_key, sizeof long_key, true };
    record->value = (struct store_ingest_bytes){ NULL, 0, true }; /* empty, not null */
    record = made_dead(made, 0, 1, "\xff");
    record->saga_id = long_key;
    record->key = (struct store_ingest_bytes){ NULL, 0, false };
    run_batch();
    assert_string_equal(made_results(made), "DEAD DEAD");
    assert_count("SELECT count(*) FROM dead_letter WHERE saga_id IS NULL AND record_offset = 0"
                 " AND octet_length(key) = 20000 AND value = '' AND reason = 'KEY_INVALID'",
                 1);
    assert_count("SELECT count(*) FROM dead_letter WHERE key IS NULL AND value IS NULL"
                 " AND reason = 'UNKNOWN'",
                 1);
}

/* --- the rest -------------------------------------------------------------------------------- */

static void test_stop_create_seen(void **state)
{
    (void)state;
    struct err err;
    bool stopped = true;
    struct store_ingest_stop stop = { 0, 5, "GAP", "records 5 to 9 are gone", 5, 9 };
    ASSERT_OK(store_ingest_stop(ingest, &stop, &stopped, &err), &err);
    assert_false(stopped); /* the cursor is at 0 */
    stop.next_offset = 0;
    ASSERT_OK(store_ingest_stop(ingest, &stop, &stopped, &err), &err);
    assert_true(stopped);
    ASSERT_OK(store_ingest_stop(ingest, &stop, &stopped, &err), &err);
    assert_false(stopped);
    const struct store_ingest_begin begins[] = { { 0, 77 }, { 3, 88 } };
    ASSERT_OK(store_ingest_create(ingest, begins, 2, &err), &err);
    const struct store_ingest_seen seen[] = { { 0, 1, 20, "stopped", 1.5 },
                                              { 3, -1, -1, NULL, 0 } };
    ASSERT_OK(store_ingest_seen(ingest, seen, 2, &err), &err);
    struct store_ingest_cursor *cursors;
    size_t count;
    ASSERT_OK(store_ingest_cursors(ingest, &cursors, &count, &err), &err);
    assert_int_equal(count, 4);
    assert_true(cursors[0].stopped);
    assert_int_equal(cursors[0].next_offset, 0);
    assert_string_equal(cursors[0].stop_reason, "GAP");
    assert_string_equal(cursors[0].stop_message, "records 5 to 9 are gone");
    assert_int_equal(cursors[0].stop_from, 5);
    assert_int_equal(cursors[0].stop_to, 9);
    assert_int_equal(cursors[3].next_offset, 88);
    store_ingest_cursors_done(cursors, count);
    assert_count("SELECT count(*) FROM kafka_cursor WHERE partition = 0 AND low_offset = 1"
                 " AND end_offset = 20 AND node = 'node-1' AND paused_why = 'stopped'"
                 " AND rate_per_s = 1.5 AND seen_at > now() - interval '1 minute'",
                 1);
    assert_count("SELECT count(*) FROM kafka_cursor WHERE partition = 3 AND low_offset IS NULL"
                 " AND paused_why IS NULL",
                 1);
}

static void test_definition_running_known(void **state)
{
    (void)state;
    struct err err;
    struct store_ingest_definition definition;
    ASSERT_OK(store_ingest_definition(ingest, "test", "pay", &definition, &err), &err);
    assert_int_equal(definition.revision, 1);
    assert_int_equal(definition.content.size, 15);
    assert_false(definition.paused);
    store_ingest_definition_done(&definition);
    fixture_exec(conn, "UPDATE definition SET paused_at = now(), pause_reason = 'why'");
    ASSERT_OK(store_ingest_definition(ingest, "test", "pay", &definition, &err), &err);
    assert_true(definition.paused);
    assert_string_equal(definition.pause_reason, "why");
    store_ingest_definition_done(&definition);
    fixture_exec(conn, "UPDATE definition SET paused_at = NULL");
    expect_error(store_ingest_definition(ingest, "test", "none", &definition, &err), &err,
                 ERR_NOT_FOUND, "");

    for (int i = 0; i < 7; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "k%d", i);
        made_start(made, 0, i, id, "x");
    }
    run_batch();
    fixture_exec(conn, "UPDATE saga SET state = 'COMPENSATING' WHERE saga_id = 'k1';"
                       "UPDATE saga SET state = 'PARKED' WHERE saga_id = 'k2';"
                       "UPDATE saga SET state = 'SUCCEEDED' WHERE saga_id = 'k3'");
    int64_t running = -1;
    ASSERT_OK(store_ingest_running(ingest, "test", "pay", 100, &running, &err), &err);
    assert_int_equal(running, 5);
    ASSERT_OK(store_ingest_running(ingest, "test", "pay", 3, &running, &err), &err);
    assert_int_equal(running, 3);
    const char *const ids[] = { "k0", "x", "k3" };
    bool known[3];
    ASSERT_OK(store_ingest_known(ingest, "test", "pay", ids, 3, known, &err), &err);
    assert_true(known[0] && !known[1] && known[2]);
}

static void test_the_rule_row_and_what_is_wanted(void **state)
{
    (void)state;
    struct err err;
    struct store_ingest_wanted wanted;
    fixture_exec(conn,
                 "UPDATE kafka_rule SET wanted = 'STOP';"
                 "INSERT INTO kafka_request (request_id, rule, kind, arguments, actor, reason,"
                 " requested_at, state) VALUES (gen_random_uuid(), 'pays', 'CHECK', '{}', 'a',"
                 " 'r', now(), 'OPEN');"
                 "INSERT INTO dead_letter (dead_letter_id, rule, topic, partition,"
                 " record_offset, record_time_ms, record_crc, headers, reason, message,"
                 " received_at, state) VALUES (gen_random_uuid(), 'pays', 'payments', 0, 0, 0,"
                 " 0, '', 'X', '', now(), 'REPLAY')");
    ASSERT_OK(store_ingest_wanted(ingest, &wanted, &err), &err);
    assert_true(!wanted.run && wanted.has_request && wanted.has_replay);
    struct store_ingest_rule rule = { .group_id = "g2",
                                      .namespace_ = "test",
                                      .definition = "pay",
                                      .topic_retention_ms = -2,
                                      .topic_compacted = true,
                                      .key_memory_ms = 5,
                                      .problem = "no memory" };
    ASSERT_OK(store_ingest_rule(ingest, &rule, &wanted, &err), &err);
    assert_true(!wanted.run && wanted.has_request && wanted.has_replay);
    assert_count("SELECT count(*) FROM kafka_rule WHERE group_id = 'g2' AND topic_compacted"
                 " AND topic_retention_ms IS NULL AND problem = 'no memory' AND key_memory_ms = 5"
                 " AND node = 'node-1'",
                 1);
    fixture_exec(conn, "DELETE FROM kafka_rule");
    expect_error(store_ingest_wanted(ingest, &wanted, &err), &err, ERR_NOT_FOUND, "");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_p7_a_batch_starts_sagas_and_moves_its_cursors),
        CASE(test_what_was_started_loads_as_any_other),
        CASE(test_a_batch_that_only_passes_over_moves),
        CASE(test_p7_a_partition_that_is_elsewhere_does_not_move),
        CASE(test_p1_p7_a_key_that_is_known_starts_nothing),
        CASE(test_p1_of_one_key_twice_in_a_batch_the_first_wins),
        CASE(test_r1_p7_a_purged_saga_answers_with_its_end),
        CASE(test_a_dead_record_is_one_letter),
        CASE(test_records_before_the_mark_start_suspect),
        CASE(test_p2_starts_are_published_where_the_definition_wants_it),
        CASE(test_nothing_moves_while_the_definition_or_the_rule_says_no),
        CASE(test_who_deletes_a_revision_waits_for_the_batch),
        CASE(test_k4_a_refused_row_holds_up_nothing),
        CASE(test_k4_a_letter_takes_any_bytes),
        CASE(test_stop_create_seen),
        CASE(test_definition_running_known),
        CASE(test_the_rule_row_and_what_is_wanted),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
