/* Goal: every statement is what its table says, and runs by index whatever the size of the
 * database. Method: prepare each row of the statement tables on a migrated database, compare the
 * parameters with the server's description, and read the generic plan on an empty and on a filled
 * database; count the updates of the journal that were HOT. */
#include "store_fixture.h"

#include "base/buf.h"
#include "store/connect.h"
#include "store/statements.h"

#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "statements", conninfo);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    postgres = test_postgres_free(postgres);
    return 0;
}

static PGconn *prepared(const struct stmt *table, size_t count, enum connect_role role)
{
    struct err err;
    PGconn *conn;
    ASSERT_OK(connect_blocking(conninfo, role, &conn, &err), &err);
    for (size_t i = 0; i < count; i++) {
        PGresult *result =
            PQprepare(conn, table[i].name, table[i].sql, table[i].nparams, table[i].types);
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            fail_msg("%s: %s", table[i].name, PQresultErrorMessage(result));
        PQclear(result);
    }
    return conn;
}

static void describe_all(const struct stmt *table, size_t count, enum connect_role role)
{
    PGconn *conn = prepared(table, count, role);
    for (size_t i = 0; i < count; i++) {
        PGresult *result = PQdescribePrepared(conn, table[i].name);
        assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
        if (PQnparams(result) != table[i].nparams)
            fail_msg("%s: %d parameters, the table says %d", table[i].name, PQnparams(result),
                     table[i].nparams);
        for (int p = 0; p < PQnparams(result); p++) {
            assert_int_not_equal(table[i].types[p], 0);
            if (PQparamtype(result, p) != table[i].types[p])
                fail_msg("%s: parameter %d is of type %u", table[i].name, p + 1,
                         PQparamtype(result, p));
        }
        PQclear(result);
    }
    PQfinish(conn);
}

static void test_parameters_are_what_the_tables_say(void **state)
{
    (void)state;
    describe_all(stmts, STMT_COUNT, CONNECT_ENGINE);
    describe_all(control_stmts, CONTROL_COUNT, CONNECT_ENGINE);
    describe_all(read_stmts, READ_COUNT, CONNECT_READER);
    describe_all(outbox_stmts, OUTBOX_COUNT, CONNECT_OUTBOX);
    describe_all(ingest_stmts, INGEST_STMT_COUNT, CONNECT_INGEST);
    describe_all(purge_stmts, PURGE_COUNT, CONNECT_RETENTION);
    describe_all(kafka_stmts, KAFKA_STMT_COUNT, CONNECT_READER);
    describe_all(find_stmts, FIND_COUNT, CONNECT_READER);
    describe_all(handler_stmts, HANDLER_STMT_COUNT, CONNECT_READER);
    describe_all(people_stmts, PEOPLE_STMT_COUNT, CONNECT_READER);
}

/* Does this line of a plan read a table about sagas? */
static bool reads_sagas(const char *line)
{
    static const char *const tables[] = {
        " on saga ",       " on saga_key ",    " on journal ",      " on late_report ",
        " on saga\n",      " on journal\n",    " on saga_key\n",    " on outbox ",
        " on saga_label ", " on dead_letter ", " on kafka_cursor ", " on kafka_request "
    };
    if (!strstr(line, "Scan"))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if (strstr(line, tables[i]))
            return true;
    return false;
}

static void check_plan(const char *name, const PGresult *plan)
{
    for (int row = 0; row < PQntuples(plan); row++) {
        char line[512], next[512] = "";
        (void)snprintf(line, sizeof line, "%s\n", PQgetvalue(plan, row, 0));
        if (row + 1 < PQntuples(plan))
            (void)snprintf(next, sizeof next, "%s", PQgetvalue(plan, row + 1, 0));
        if (strstr(line, "Hash Join") || strstr(line, "Merge Join"))
            fail_msg("%s: %s", name, line);
        if (!reads_sagas(line))
            continue;
        /* what a bitmap holds comes by index, too: many rows of one place */
        bool by_index = strstr(next, "Index Cond") ||
                        (strstr(line, "Bitmap Heap Scan") && strstr(next, "Recheck Cond"));
        if (strstr(line, "Seq Scan") || !by_index)
            fail_msg("%s reads more than it needs: %s%s", name, line, next);
    }
}

static void explain_all(const struct stmt *table, size_t count, enum connect_role role)
{
    PGconn *conn = prepared(table, count, role);
    for (size_t i = 0; i < count; i++) {
        struct buf sql = { 0 };
        buf_printf(&sql, "EXPLAIN EXECUTE \"%s\"", table[i].name);
        for (int p = 0; p < table[i].nparams; p++)
            buf_printf(&sql, "%sNULL%s", p ? ", " : " (", p + 1 == table[i].nparams ? ")" : "");
        PGresult *plan = PQexec(conn, buf_cstr(&sql));
        if (PQresultStatus(plan) != PGRES_TUPLES_OK)
            fail_msg("%s: %s", buf_cstr(&sql), PQresultErrorMessage(plan));
        assert_true(PQntuples(plan) > 0);
        check_plan(table[i].name, plan);
        PQclear(plan);
        buf_done(&sql);
    }
    PQfinish(conn);
}

static void test_plans_on_an_empty_database(void **state)
{
    (void)state;
    explain_all(stmts, STMT_COUNT, CONNECT_ENGINE);
    explain_all(read_stmts, READ_COUNT, CONNECT_READER);
    explain_all(outbox_stmts, OUTBOX_COUNT, CONNECT_OUTBOX);
    explain_all(ingest_stmts, INGEST_STMT_COUNT, CONNECT_INGEST);
    explain_all(purge_stmts, PURGE_COUNT, CONNECT_RETENTION);
    explain_all(kafka_stmts, KAFKA_STMT_COUNT, CONNECT_READER);
    explain_all(find_stmts, FIND_COUNT, CONNECT_READER);
    explain_all(handler_stmts, HANDLER_STMT_COUNT, CONNECT_READER);
    explain_all(people_stmts, PEOPLE_STMT_COUNT, CONNECT_READER);
}

static void test_plans_on_a_filled_database(void **state)
{
    (void)state;
    PGconn *conn = fixture_connect(conninfo);
    fixture_exec(
        conn,
        "CREATE TEMP TABLE n AS SELECT i, (i % 256)::smallint AS shard, ('018f0000-0000-7000-8000-'"
        " || lpad(to_hex(i), 10, '0') || lpad(to_hex(i % 256), 2, '0'))::uuid AS uid"
        " FROM generate_series(1, 20000) i;"
        "INSERT INTO saga_key SELECT shard, 'test', 'pay', 'k' || i, uid, 1, sha256('x') FROM n;"
        "INSERT INTO node SELECT 'node-' || i, gen_random_uuid(), now(),"
        " now() - i * interval '1 hour' FROM generate_series(0, 30) i;"
        "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, owner,"
        " wake_at, waiting_handler, state, phase, doubt, started_at, updated_at)"
        " SELECT shard, uid, 'test', 'pay', 1, 'k' || i, 1,"
        " CASE WHEN i % 500 <> 0 THEN 'node-' || i % 3 END,"
        " CASE WHEN i % 1000 = 0 THEN now() END, CASE WHEN i % 1000 = 500 THEN 'pay.do' END,"
        " CASE WHEN i % 100 = 0 THEN 'RUNNING' WHEN i % 100 = 50 THEN 'PARKED' ELSE 'SUCCEEDED' "
        "END,"
        " CASE WHEN i % 50 = 0 THEN 'RUNNING' ELSE 'SUCCEEDED' END, i % 1000 = 1,"
        " now() - i * interval '1 s', now() FROM n;"
        "INSERT INTO journal (shard, saga_uid, seq, fence, kind, step, step_index, operation, try,"
        " leased_at, outcome, asked_at) SELECT shard, uid, s, s, 'LEASE', 'debit', s - 1, "
        "'ACTION', 1,"
        " now(), 'DONE', CASE WHEN s = 3 AND shard % 8 = 0 THEN now() END"
        " FROM n, generate_series(1, 3) s;"
        "INSERT INTO outbox SELECT shard, uid, s, 1, now() FROM n, generate_series(1, 2) s;"
        "INSERT INTO kafka_rule (rule, topic, group_id, namespace, definition, wanted, node,"
        " seen_at) SELECT 'rule-' || i, 't', 'g', 'test', 'pay', 'RUN', 'node-1', now()"
        " FROM generate_series(1, 20) i;"
        "INSERT INTO kafka_cursor (rule, topic, partition, next_offset)"
        " SELECT 'rule-' || i, 't', p, 0 FROM generate_series(1, 20) i, generate_series(0, 99) p;"
        "INSERT INTO dead_letter (dead_letter_id, rule, topic, partition, record_offset,"
        " record_time_ms, record_crc, key, headers, saga_id, reason, message, received_at, state)"
        " SELECT uid, 'rule-' || i % 20, 't', i % 100, i, 0, 0,"
        " convert_to('k' || i, 'UTF8'), '', 'k' || i, 'REASON', '',"
        " now(), CASE i % 3 WHEN 0 THEN 'OPEN' WHEN 1 THEN 'REPLAY' ELSE 'REPLAYED' END FROM n;"
        "INSERT INTO kafka_request (request_id, rule, kind, arguments, actor, reason, requested_at,"
        " state) SELECT uid, 'rule-' || i % 20, 'CHECK', '{}', '', '', now(),"
        " CASE WHEN i % 1000 = 0 THEN 'OPEN' ELSE 'DONE' END FROM n;"
        "UPDATE saga SET related_saga = saga_uid WHERE shard = 7;"
        "INSERT INTO audit (at, verb, saga_uid) SELECT now() - i * interval '1 s', 'retry', uid "
        "FROM n;"
        "INSERT INTO late_report (shard, saga_uid, fence, outcome, effect, received_at)"
        " SELECT shard, uid, 1, 'DONE', true, now() FROM n WHERE i % 20 = 1;"
        "INSERT INTO saga_label SELECT shard, uid, 'account', 'A-' || i % 2000, 'test', now()"
        " FROM n;"
        "ANALYZE");
    explain_all(stmts, STMT_COUNT, CONNECT_ENGINE);
    explain_all(read_stmts, READ_COUNT, CONNECT_READER);
    explain_all(outbox_stmts, OUTBOX_COUNT, CONNECT_OUTBOX);
    explain_all(ingest_stmts, INGEST_STMT_COUNT, CONNECT_INGEST);
    explain_all(purge_stmts, PURGE_COUNT, CONNECT_RETENTION);
    explain_all(kafka_stmts, KAFKA_STMT_COUNT, CONNECT_READER);
    explain_all(find_stmts, FIND_COUNT, CONNECT_READER);
    explain_all(handler_stmts, HANDLER_STMT_COUNT, CONNECT_READER);
    fixture_exec(conn, "TRUNCATE saga, saga_key, journal, node, outbox, kafka_rule, kafka_cursor,"
                       " dead_letter, kafka_request, late_report, saga_label");
    explain_all(people_stmts, PEOPLE_STMT_COUNT, CONNECT_READER);
    fixture_exec(conn, "TRUNCATE saga, saga_key, journal, node, outbox, kafka_rule, kafka_cursor,"
                       " dead_letter, kafka_request, late_report, audit");
    PQfinish(conn);
}

/* The one update of an entry touches no index. */
static void test_updates_of_the_journal_are_hot(void **state)
{
    (void)state;
    enum { MANY = 100, ROUNDS = 3 };
    static struct copy copies[MANY];
    struct store *store = fixture_store(conninfo);
    for (int round = 0; round < ROUNDS; round++) {
        for (int phase = 0; phase < 4; phase++) {
            for (int i = 0; i < MANY; i++) {
                char id[32];
                (void)snprintf(id, sizeof id, "hot-%d-%d", round, i);
                if (phase == 0) {
                    copy_new(&copies[i], id, "worker/1");
                } else {
                    copy_report(&copies[i], OUTCOME_DONE, "0123456789");
                    if (phase < 3)
                        copy_grant(&copies[i], "worker/1");
                }
                if (i > 0)
                    copies[i - 1].op.next = &copies[i].op;
            }
            fixture_run(store, &copies[0].op);
            for (int i = 0; i < MANY; i++)
                copy_expect(&copies[i], STORE_OK);
        }
        for (int i = 0; i < MANY; i++)
            copy_done(&copies[i]);
    }
    (void)store_pg_free(store);
    PGconn *conn = fixture_connect(conninfo);
    static const char updates[] = "SELECT n_tup_upd FROM pg_stat_user_tables"
                                  " WHERE relname = 'journal'";
    for (int i = 0; i < 100 && fixture_count(conn, updates) < 3L * MANY * ROUNDS; i++)
        fixture_exec(conn, "SELECT pg_sleep(0.05), pg_stat_clear_snapshot()");
    assert_int_equal(fixture_count(conn, updates), 3 * MANY * ROUNDS);
    assert_int_equal(fixture_count(conn, "SELECT n_tup_upd - n_tup_hot_upd"
                                         " FROM pg_stat_user_tables WHERE relname = 'journal'"),
                     0);
    PQfinish(conn);
}

/* What people read in psql. */
static void test_the_status_view_shows_the_last_entry_of_each_step(void **state)
{
    (void)state;
    struct store *store = fixture_store(conninfo);
    struct copy copy;
    copy_new(&copy, "seen", "worker/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_RETRY, NULL);
    copy_write(&copy, store, STORE_OK);
    copy_grant(&copy, "worker/2");
    copy_write(&copy, store, STORE_OK);
    PGconn *conn = fixture_connect(conninfo);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_status"
                                         " WHERE saga_id = 'seen' AND state = 'RUNNING'"
                                         " AND step = 'debit' AND try = 2"
                                         " AND worker = 'worker/2' AND outcome IS NULL"),
                     1);
    assert_int_equal(fixture_count(conn, "SELECT count(*) FROM saga_status WHERE saga_id = 'seen'"),
                     1);
    PQfinish(conn);
    copy_done(&copy);
    (void)store_pg_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_what_the_tables_say),
        cmocka_unit_test(test_plans_on_an_empty_database),
        cmocka_unit_test(test_plans_on_a_filled_database),
        cmocka_unit_test(test_updates_of_the_journal_are_hot),
        cmocka_unit_test(test_the_status_view_shows_the_last_entry_of_each_step),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
