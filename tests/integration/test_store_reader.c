/* Goal: the reader answers what is stored, page by page without gap or repetition, and registers a
 * definition once however many register it. Method: sagas of two definitions and namespaces with
 * known times and states; every filter in both orders against what plain SQL says. */
#include "store_fixture.h"

#include "base/buf.h"
#include "base/mem.h"
#include "wire/filter.h"

#include <pthread.h>
#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store_reader *reader;
static PGconn *conn;

enum { ROWS = 240, PAGE = 7 };

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "reader", conninfo);
    SETUP_OK(store_reader_new(conninfo, &reader, &err), &err);
    conn = fixture_connect(conninfo);
    /* Several start in the same microsecond: the uid decides their order. */
    fixture_exec(
        conn,
        "INSERT INTO definition VALUES ('test', 'ship', 1), ('other', 'pay', 1);"
        "INSERT INTO definition_revision VALUES ('test', 'ship', 1, sha256('1'), 'a', now()),"
        " ('other', 'pay', 1, sha256('1'), 'b', now());"
        "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, state,"
        " phase, doubt, input, started_at, updated_at)"
        " SELECT 0, ('018f0000-0000-7000-8000-' || lpad(to_hex(i * 7919 % 65536), 10, '0')"
        " || '00')::uuid, CASE WHEN i % 5 = 0 THEN 'other' ELSE 'test' END,"
        " CASE WHEN i % 3 = 0 AND i % 5 > 0 THEN 'ship' ELSE 'pay' END, 1, 'order-' || i, 1, st, "
        "ph,"
        " false, 'in', timestamptz '2026-01-01' + (i / 4) * interval '1 us', now()"
        " FROM generate_series(1, 240) i, LATERAL (SELECT (ARRAY['RUNNING', 'COMPENSATING',"
        " 'PARKED', 'SUCCEEDED'])[1 + i % 4] AS st, (ARRAY['RUNNING', 'COMPENSATING', 'RUNNING',"
        " 'SUCCEEDED'])[1 + i % 4] AS ph) x");
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

/* All pages of the filter, one after the other, must be the rows of `where` in order. */
static void check_list(struct store_list list, const char *where)
{
    struct err err;
    char sql[1024];
    (void)snprintf(sql, sizeof sql, "SELECT saga_uid FROM saga WHERE %s ORDER BY %s", where,
                   list.oldest_first ? "started_at, saga_uid" : "started_at DESC, saga_uid DESC");
    PGresult *expected = PQexec(conn, sql);
    assert_int_equal(PQresultStatus(expected), PGRES_TUPLES_OK);
    int row = 0;
    size_t count;
    struct store_list_end end;
    list.limit = PAGE;
    do {
        struct store_saga sagas[PAGE];
        int64_t started_us[PAGE];
        ASSERT_OK(store_reader_list(reader, &list, sagas, started_us, &count, &end, &err), &err);
        for (size_t i = 0; i < count; i++, row++) {
            char uid[UUID_TEXT_SIZE];
            uuid_format(&sagas[i].row.uid, uid);
            assert_true(row < PQntuples(expected));
            assert_string_equal(uid, PQgetvalue(expected, row, 0));
            assert_int_equal(sagas[i].row.input.size, 0);
            assert_int_equal(started_us[i] / 1000, sagas[i].row.started_at_ms);
            list.has_after = true;
            list.after_started_us = started_us[i];
            list.after_uid = sagas[i].row.uid;
            store_saga_done(&sagas[i]);
        }
        if (count < PAGE && end.is_cut) {
            list.has_after = true;
            list.after_started_us = end.started_us;
            list.after_uid = end.uid;
        }
    } while (count == PAGE || end.is_cut);
    assert_int_equal(row, PQntuples(expected));
    PQclear(expected);
}

static void check_both_orders(struct store_list list, const char *where)
{
    list.oldest_first = false;
    check_list(list, where);
    list.oldest_first = true;
    check_list(list, where);
}

static void only_states(struct saga_filter *filter, unsigned bits)
{
    for (int state = 0; state < SAGA_STATE_COUNT; state++)
        filter->not_states[state] = !(bits >> state & 1);
}

static void test_lists_page_by_page(void **state)
{
    (void)state;
    check_both_orders((struct store_list){ 0 }, "true");
    check_both_orders((struct store_list){ .filter = { .namespace_ = "test" } },
                      "namespace = 'test'");
    check_both_orders((struct store_list){ .filter = { .namespace_ = "nobody" } }, "false");
    check_both_orders(
        (struct store_list){ .filter = { .namespace_ = "test", .definition = "ship" } },
        "namespace = 'test' AND definition = 'ship'");
    check_both_orders((struct store_list){ .filter = { .definition = "pay" } },
                      "definition = 'pay'");
    struct store_list parked = { .filter = { .namespace_ = "test" } };
    only_states(&parked.filter, 1 << SAGA_PARKED);
    check_both_orders(parked, "namespace = 'test' AND state = 'PARKED'");
    only_states(&parked.filter, 1 << SAGA_PARKED | 1 << SAGA_SUCCEEDED);
    parked.filter.definition = "pay";
    check_both_orders(parked, "namespace = 'test' AND definition = 'pay'"
                              " AND state IN ('PARKED', 'SUCCEEDED')");
}

static void test_lists_by_id_and_prefix(void **state)
{
    (void)state;
    check_both_orders((struct store_list){ .filter = { .saga_id = "order-12" } },
                      "saga_id = 'order-12'");
    check_both_orders(
        (struct store_list){ .filter = { .namespace_ = "test", .saga_id = "order-13" } },
        "namespace = 'test' AND saga_id = 'order-13'");
    check_both_orders((struct store_list){ .filter = { .saga_id_prefix = "order-1" } },
                      "saga_id LIKE 'order-1%'");
    struct store_list list = {
        .filter = { .namespace_ = "test", .definition = "pay", .saga_id_prefix = "order-2" }
    };
    only_states(&list.filter, 1 << SAGA_RUNNING);
    check_both_orders(list, "namespace = 'test' AND definition = 'pay' AND state = 'RUNNING'"
                            " AND saga_id LIKE 'order-2%'");
    check_both_orders(
        (struct store_list){ .filter = { .saga_id = "order-12", .saga_id_prefix = "order" } },
        "saga_id = 'order-12'");
    check_both_orders(
        (struct store_list){ .filter = { .saga_id = "order-12", .saga_id_prefix = "x" } }, "false");
}

static void test_lists_what_is_in_doubt_and_what_is_not(void **state)
{
    (void)state;
    fixture_exec(conn, "UPDATE saga SET doubt = true WHERE saga_id ~ '7$'");
    for (int doubt = 0; doubt < 2; doubt++) {
        const char *is = doubt ? "doubt" : "NOT doubt";
        char where[256];
        struct store_list list = { .filter = { .has_doubt = true, .doubt = doubt } };
        check_both_orders(list, is);
        list.filter.namespace_ = "test";
        only_states(&list.filter, 1 << SAGA_SUCCEEDED | 1 << SAGA_PARKED);
        (void)snprintf(where, sizeof where,
                       "%s AND namespace = 'test' AND state IN ('SUCCEEDED', 'PARKED')", is);
        check_both_orders(list, where);
        list.filter.saga_id_prefix = "order-1";
        (void)snprintf(where, sizeof where,
                       "%s AND namespace = 'test' AND state IN ('SUCCEEDED', 'PARKED')"
                       " AND saga_id LIKE 'order-1%%'",
                       is);
        check_both_orders(list, where);
    }
    fixture_exec(conn, "UPDATE saga SET doubt = false WHERE doubt");
}

/* Every question, on every way, alone and with others; a page that has looked at enough is cut. */
static void test_lists_by_filter(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *where;
    } cases[] = {
        { "revision > 1", "false" },
        { "revision >= 1 AND state != PARKED", "state <> 'PARKED'" },
        { "revision < 2 AND definition = ship", "definition = 'ship'" },
        { "park.reason = SUSPENDED", "park_reason = 'SUSPENDED'" },
        { "park.reason != SUSPENDED", "state = 'PARKED' AND park_reason <> 'SUSPENDED'" },
        { "park.reason = SUSPENDED AND state = RUNNING", "false" },
        { "park.step = pick", "park_step = 'pick'" },
        { "park.error.code = E2 AND park.step = pick", "park_code = 'E2' AND park_step = 'pick'" },
        { "park.reason = LATE_EFFECT AND park.error.code = E1 AND definition = pay",
          "park_reason = 'LATE_EFFECT' AND park_code = 'E1' AND definition = 'pay'" },
        { "start_time >= 2026-01-01T00:00:00.000010Z AND start_time < 2026-01-01T00:00:00.000030Z",
          "started_at >= '2026-01-01 00:00:00.000010' AND started_at < '2026-01-01 "
          "00:00:00.000030'" },
        { "start_time > 2026-01-01T00:00:00.000010Z AND state = RUNNING",
          "started_at > '2026-01-01 00:00:00.000010' AND state = 'RUNNING'" },
        { "start_time = 2026-01-01T00:00:00.000010Z", "started_at = '2026-01-01 00:00:00.000010'" },
        { "update_time > 2026-02-01T00:00:00Z", "updated_at > '2026-02-01'" },
        { "end_time < 2026-03-01T00:00:00Z", "ended_at < '2026-03-01'" },
        { "end_time >= 2026-03-01T00:00:00Z AND update_time > 2020-01-01T00:00:00Z",
          "ended_at >= '2026-03-01'" },
        { "labels.account = A-3", "labels ->> 'account' = 'A-3'" },
        { "labels.account = A-3 AND namespace = other",
          "labels ->> 'account' = 'A-3' AND namespace = 'other'" },
        { "labels.account = A-3 AND labels.kind = even",
          "labels ->> 'account' = 'A-3' AND labels ->> 'kind' = 'even'" },
        { "labels.kind = even AND state = PARKED AND park.reason = SUSPENDED",
          "labels ->> 'kind' = 'even' AND park_reason = 'SUSPENDED'" },
        { "labels.kind = even AND start_time < 2026-01-01T00:00:00.000020Z",
          "labels ->> 'kind' = 'even' AND started_at < '2026-01-01 00:00:00.000020'" },
        { "labels.kind = \"'; DROP TABLE saga; --\"", "false" },
        { "labels.account = A-3 AND saga_id = order-1*",
          "labels ->> 'account' = 'A-3' AND saga_id LIKE 'order-1%'" },
        { "doubt = true AND labels.kind = even", "doubt AND labels ->> 'kind' = 'even'" },
        { "doubt = true AND park.reason = SUSPENDED", "doubt AND park_reason = 'SUSPENDED'" },
        { "doubt = false AND park.reason = SUSPENDED", "NOT doubt AND park_reason = 'SUSPENDED'" },
        { "doubt = true AND revision = 1", "doubt" },
    };
    fixture_exec(
        conn,
        "UPDATE saga SET doubt = saga_id ~ '[36]$', labels = jsonb_build_object('account',"
        " 'A-' || run_no % 7, 'kind', CASE WHEN run_no % 2 = 0 THEN 'even' ELSE 'odd' END),"
        " updated_at = CASE WHEN run_no % 3 = 0 THEN '2026-01-02' ELSE '2026-02-02' "
        "END::timestamptz,"
        " ended_at = CASE WHEN state = 'SUCCEEDED' THEN timestamptz '2026-02-20' + run_no % 20 *"
        " interval '1 day' END,"
        " park_reason = CASE WHEN state = 'PARKED' THEN CASE WHEN run_no % 8 = 2 THEN 'SUSPENDED'"
        " ELSE 'LATE_EFFECT' END END,"
        " park_step = CASE WHEN state = 'PARKED' AND run_no % 3 > 0 THEN 'pick' END,"
        " park_code = CASE WHEN state = 'PARKED' THEN 'E' || run_no % 5 END"
        " FROM (SELECT saga_uid AS uid, substr(saga_id, 7)::int AS run_no FROM saga) n"
        " WHERE n.uid = saga_uid;"
        "INSERT INTO saga_label SELECT s.shard, s.saga_uid, l.key, l.value, s.namespace,"
        " s.started_at FROM saga s, jsonb_each_text(s.labels) l");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena arena = { 0 };
        struct store_list list = { 0 };
        struct err err;
        ASSERT_OK(filter_parse(cases[i].filter, FILTER_SAGAS, &arena, &list.filter, &err), &err);
        for (size_t scan = 0; scan < 40; scan += 13) { /* 0: as much as always */
            list.scan_rows = scan;
            check_both_orders(list, cases[i].where);
        }
        arena_done(&arena);
    }
    fixture_exec(conn, "UPDATE saga SET doubt = false, labels = NULL, ended_at = NULL,"
                       " park_reason = NULL, park_step = NULL, park_code = NULL;"
                       "TRUNCATE saga_label");
}

enum { GROUPS = 16 };

/* "COUNT DEFINITION STEP PHASE REASON CODE OLDEST", one line each. */
static void assert_parked(const char *namespace_, const char *definition, size_t limit,
                          const char *expected, int64_t expected_sagas)
{
    struct err err;
    struct store_parked groups[GROUPS];
    size_t count = 0;
    int64_t sagas = 0;
    struct buf text = { 0 };
    ASSERT_OK(
        store_reader_parked(reader, namespace_, definition, limit, groups, &count, &sagas, &err),
        &err);
    for (size_t i = 0; i < count; i++) {
        buf_printf(&text, "%d %s/%s %s %s %s %s %s\n", (int)groups[i].count, groups[i].namespace_,
                   groups[i].definition, groups[i].step ? groups[i].step : "-",
                   saga_state_name(groups[i].phase), park_reason_name(groups[i].reason),
                   groups[i].code ? groups[i].code : "-", groups[i].oldest_saga_id);
        assert_true(i == 0 || groups[i - 1].oldest_ms <= groups[i].oldest_ms);
        assert_int_equal(groups[i].oldest_ms,
                         fixture_count(conn, "SELECT 1000 * extract(epoch FROM timestamptz"
                                             " '2020-01-01')") +
                             strtol(strchr(groups[i].oldest_saga_id, '-') + 1, NULL, 10) * 1000);
        store_parked_done(&groups[i]);
    }
    assert_string_equal(buf_cstr(&text), expected);
    assert_int_equal(sagas, expected_sagas);
    buf_done(&text);
}

static void test_parked_sagas_in_groups_the_one_that_waits_longest_first(void **state)
{
    (void)state;
    fixture_exec(
        conn,
        "INSERT INTO definition VALUES ('desk', 'pay', 1), ('desk', 'ship', 1), ('desk2', 'pay', "
        "1);"
        "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, state,"
        " phase, doubt, park_reason, park_step, park_code, started_at, updated_at)"
        " SELECT 2, gen_random_uuid(), ns, def, 1, 'p-' || at, 1, st, ph, false, reason, step, "
        "code,"
        " now(), timestamptz '2020-01-01' + at * interval '1 s' FROM (VALUES"
        " ('desk', 'pay', 40, 'PARKED', 'RUNNING', 'OUTCOME_UNKNOWN', 'debit', 'TIMEOUT'),"
        " ('desk', 'pay', 20, 'PARKED', 'RUNNING', 'OUTCOME_UNKNOWN', 'debit', 'TIMEOUT'),"
        " ('desk', 'pay', 30, 'PARKED', 'RUNNING', 'OUTCOME_UNKNOWN', 'debit', 'TIMEOUT'),"
        " ('desk', 'pay', 10, 'RUNNING', 'RUNNING', NULL, NULL, NULL),"
        " ('desk', 'pay', 25, 'PARKED', 'COMPENSATING', 'OUTCOME_UNKNOWN', 'debit', 'TIMEOUT'),"
        " ('desk', 'pay', 15, 'PARKED', 'RUNNING', 'SUSPENDED', NULL, 'SUSPENDED'),"
        " ('desk', 'ship', 35, 'PARKED', 'COMPENSATING', 'COMPENSATION_FAILED', 'send', NULL),"
        " ('desk2', 'pay', 5, 'PARKED', 'RUNNING', 'WORKER_KILLER', 'debit', 'WORKER_KILLER'))"
        " v (ns, def, at, st, ph, reason, step, code)");
    assert_parked("desk", NULL, GROUPS,
                  "1 desk/pay - RUNNING SUSPENDED SUSPENDED p-15\n"
                  "3 desk/pay debit RUNNING OUTCOME_UNKNOWN TIMEOUT p-20\n"
                  "1 desk/pay debit COMPENSATING OUTCOME_UNKNOWN TIMEOUT p-25\n"
                  "1 desk/ship send COMPENSATING COMPENSATION_FAILED - p-35\n",
                  6);
    assert_parked("desk", "ship", GROUPS,
                  "1 desk/ship send COMPENSATING COMPENSATION_FAILED - p-35\n", 1);
    assert_parked("desk", NULL, 2,
                  "1 desk/pay - RUNNING SUSPENDED SUSPENDED p-15\n"
                  "3 desk/pay debit RUNNING OUTCOME_UNKNOWN TIMEOUT p-20\n",
                  6);
    assert_parked("desk", "nothing", GROUPS, "", 0);
    fixture_exec(conn, "UPDATE saga SET park_reason = 'OUTCOME_UNKNOWN' WHERE state = 'PARKED'"
                       " AND park_reason IS NULL");
    struct err err;
    struct store_parked first;
    size_t count = 0;
    int64_t sagas = 0;
    ASSERT_OK(store_reader_parked(reader, NULL, NULL, 1, &first, &count, &sagas, &err), &err);
    assert_string_equal(first.namespace_, "desk2");
    assert_int_equal(sagas,
                     fixture_count(conn, "SELECT count(*) FROM saga WHERE state = 'PARKED'"));
    store_parked_done(&first);
    /* A word that nobody knows is told, not shown. */
    fixture_exec(conn, "UPDATE saga SET park_reason = 'BORED' WHERE saga_id = 'p-35'");
    assert_int_equal(store_reader_parked(reader, "desk", NULL, 1, &first, &count, &sagas, &err), 0);
    store_parked_done(&first);
    assert_int_equal(store_reader_parked(reader, "desk", "ship", 1, &first, &count, &sagas, &err),
                     ERR_INTERNAL);
    fixture_exec(conn, "DELETE FROM saga WHERE shard = 2;"
                       "DELETE FROM definition WHERE namespace IN ('desk', 'desk2')");
}

static void test_the_guard_floor_is_below_every_open_saga(void **state)
{
    (void)state;
    static const char *const open[] = { "RUNNING", "COMPENSATING", "PARKED" };
    static const char *const ended[] = { "SUCCEEDED", "COMPENSATED", "ABANDONED" };
    static const char insert[] =
        "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, state,"
        " phase, doubt, started_at, updated_at) SELECT 3, gen_random_uuid(), 'test', 'pay', 1,"
        " '%s', 2, '%s', 'RUNNING', false, timestamptz '%s', now()";
    int64_t day_ms = 24 * 3600 * 1000;
    int64_t base_ms =
        fixture_count(conn, "SELECT 1000 * extract(epoch FROM timestamptz '2021-01-01')");
    struct err err;
    struct store_guard_floor floor;
    char sql[512];
    for (size_t i = 0; i < ARRAY_LEN(ended); i++) {
        (void)snprintf(sql, sizeof sql, insert, "ended", ended[i], "2019-01-01");
        fixture_exec(conn, sql);
    }
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        (void)snprintf(sql, sizeof sql, insert, open[i], open[i], "2021-01-01 00:00:00.0005");
        fixture_exec(conn, sql);
        ASSERT_OK(store_reader_guard_floor(reader, day_ms, &floor, &err), &err);
        assert_int_equal(floor.floor_ms, base_ms - day_ms); /* rounded down */
        assert_int_equal(floor.started_at_ms, base_ms);
        assert_true(floor.has_oldest);
        assert_string_equal(floor.saga_id, open[i]);
        assert_string_equal(floor.namespace_, "test");
        assert_string_equal(floor.definition, "pay");
        assert_int_equal(floor.run, 2);
        store_guard_floor_done(&floor);
        (void)snprintf(sql, sizeof sql, "DELETE FROM saga WHERE saga_id = '%s'", open[i]);
        fixture_exec(conn, sql);
    }
    /* Nothing is open: now, less the margin. */
    fixture_exec(conn,
                 "CREATE TABLE kept AS SELECT * FROM saga WHERE ended_at IS NULL AND shard <> 3;"
                 "DELETE FROM saga WHERE shard <> 3");
    int64_t before = fixture_count(conn, "SELECT floor(1000 * extract(epoch FROM now()))");
    ASSERT_OK(store_reader_guard_floor(reader, day_ms, &floor, &err), &err);
    assert_false(floor.has_oldest);
    assert_true(floor.floor_ms >= before - day_ms && floor.floor_ms < before - day_ms + 60000);
    store_guard_floor_done(&floor);
    fixture_exec(conn, "DELETE FROM saga; INSERT INTO saga SELECT * FROM kept; DROP TABLE kept");
}

/* The end of a prefix at the borders of UTF-8's lengths. */
static void test_prefixes_of_every_length_of_character(void **state)
{
    (void)state;
    static const char *const last[] = { "~",
                                        "\x7f", /* U+007F, then two bytes */
                                        "\xc2\x80",
                                        "\xdf\xbf",
                                        "\xe0\xa0\x80",
                                        "\xed\x9f\xbf", /* U+D7FF, then U+E000 */
                                        "\xef\xbf\xbf",
                                        "\xf0\x90\x80\x80",
                                        "\xf4\x8f\xbf\xbf" /* the last one */ };
    for (size_t i = 0; i < ARRAY_LEN(last); i++) {
        char prefix[32], sql[512], where[128];
        (void)snprintf(prefix, sizeof prefix, "p%s", last[i]);
        (void)snprintf(where, sizeof where, "starts_with(saga_id, '%s')", prefix);
        (void)snprintf(
            sql, sizeof sql,
            "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id,"
            " run, state, phase, doubt, started_at, updated_at) SELECT 1,"
            " gen_random_uuid(), 'test', 'pay', 1, '%s' || x, 1, 'RUNNING', 'RUNNING',"
            " false, now(), now() FROM unnest(ARRAY['', 'a', E'\\U0010FFFF']) x",
            prefix);
        fixture_exec(conn, sql);
        check_both_orders((struct store_list){ .filter = { .saga_id_prefix = prefix } }, where);
    }
    check_both_orders((struct store_list){ .filter = { .saga_id_prefix = "\xf4\x8f\xbf\xbf" } },
                      "false");
    fixture_exec(conn, "DELETE FROM saga WHERE shard = 1");
}

static void test_get_by_uid_and_by_key(void **state)
{
    (void)state;
    struct err err;
    struct store *store = fixture_store(conninfo);
    struct copy copy;
    copy_new(&copy, "get", "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_grant(&copy, "w/1");
    copy_write(&copy, store, STORE_OK);
    struct store_ref refs[] = {
        { .by_uid = true, .uid = saga_row(copy.saga)->uid },
        { .namespace_ = "test", .definition = "pay", .saga_id = "get" },
        { .namespace_ = "test", .definition = "pay", .saga_id = "get", .run = 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(refs); i++) {
        struct store_saga saga;
        struct bytes content;
        ASSERT_OK(store_reader_get(reader, &refs[i], &saga, &content, &err), &err);
        assert_string_equal(saga.row.saga_id, "get");
        assert_int_equal(saga.row.input.size, 5);
        assert_int_equal(saga.entry_count, 2);
        assert_int_equal(saga.entries[1].step, 1);
        assert_memory_equal(content.data, "pay, revision 1", 15);
        store_saga_done(&saga);
        mem_free(content.data);
        ASSERT_OK(store_reader_get_row(reader, &refs[i], &saga, &err), &err);
        assert_int_equal(saga.entry_count, 0);
        store_saga_done(&saga);
        ASSERT_OK(store_reader_journal(reader, &refs[i], 1, 1, &saga, &content, &err), &err);
        assert_int_equal(saga.entry_count, 1);
        assert_int_equal(saga.entries[0].seq, 2);
        store_saga_done(&saga);
        mem_free(content.data);
    }
    refs[2].run = 2;
    refs[0].uid.bytes[0] ^= 1;
    refs[1].saga_id = "nobody";
    for (size_t i = 0; i < ARRAY_LEN(refs); i++) {
        struct store_saga saga;
        assert_int_equal(store_reader_get_row(reader, &refs[i], &saga, &err), ERR_NOT_FOUND);
    }
    copy_done(&copy);
    (void)store_pg_free(store);
}

/* A session that keeps sagas from being written (an index is built) keeps nobody from reading. */
static void test_a_lock_on_writes_holds_up_no_new_reader(void **state)
{
    (void)state;
    struct err err;
    struct store_reader *fresh;
    struct store_definition definition;
    fixture_exec(conn, "BEGIN; LOCK TABLE saga, saga_key, journal IN SHARE MODE");
    ASSERT_OK(store_reader_new(conninfo, &fresh, &err), &err);
    ASSERT_OK(store_reader_definition(fresh, "test", "pay", 0, false, &definition, &err), &err);
    store_definition_done(&definition);
    fresh = store_reader_free(fresh);
    fixture_exec(conn, "ROLLBACK");
}

static void test_a_lost_session_is_replaced(void **state)
{
    (void)state;
    struct err err;
    struct store_definition definition;
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(store_reader_definition(reader, "test", "pay", 0, false, &definition, &err),
                  &err);
        assert_int_equal(definition.revision, 1);
        assert_true(definition.current);
        store_definition_done(&definition);
        fixture_exec(conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                           " WHERE application_name = 'sagad reader'");
    }
    test_postgres_kill(postgres);
    assert_int_equal(store_reader_definition(reader, "test", "pay", 0, false, &definition, &err),
                     ERR_UNAVAILABLE);
    ASSERT_OK(test_postgres_restart(postgres, &err), &err);
    ASSERT_OK(store_reader_definition(reader, "test", "pay", 0, false, &definition, &err), &err);
    store_definition_done(&definition);
    PQfinish(conn);
    conn = fixture_connect(conninfo);
}

static void register_text(const char *name, const char *text, bool validate_only,
                          int32_t expected_revision, bool expected_created, bool expected_current)
{
    struct err err;
    struct store_registered registered;
    struct store_register what = { .namespace_ = "test",
                                   .name = name,
                                   .content = { (uint8_t *)text, strlen(text) },
                                   .validate_only = validate_only };
    ASSERT_OK(store_reader_register(reader, &what, &registered, &err), &err);
    const struct store_definition *revision = &registered.revision;
    assert_int_equal(revision->revision, expected_revision);
    assert_int_equal(registered.created, expected_created);
    assert_int_equal(revision->current, expected_current);
    assert_int_equal(revision->content.size, strlen(text));
    assert_memory_equal(revision->content.data, text, strlen(text));
    assert_string_equal(revision->name, name);
    store_registered_done(&registered);
}

static void test_registration(void **state)
{
    (void)state;
    struct err err;
    register_text("new", "a", true, 1, true, false); /* what it would become */
    struct store_definition definition;
    assert_int_equal(store_reader_definition(reader, "test", "new", 0, false, &definition, &err),
                     ERR_NOT_FOUND);
    register_text("new", "a", false, 1, true, true);
    register_text("new", "a", false, 1, false, true);
    register_text("new", "b", false, 2, true, true);
    register_text("new", "b", true, 2, false, true);
    register_text("new", "a", true, 1, false, false);
    register_text("new", "a", false, 1, false, true); /* known, and made current again */
    register_text("new", "b", false, 2, false, true);
    ASSERT_OK(store_reader_definition(reader, "test", "new", 1, false, &definition, &err), &err);
    assert_false(definition.current);
    store_definition_done(&definition);
    ASSERT_OK(store_reader_definition(reader, "test", "new", 0, false, &definition, &err), &err);
    assert_int_equal(definition.revision, 2);
    store_definition_done(&definition);
    assert_int_equal(store_reader_definition(reader, "test", "new", 3, false, &definition, &err),
                     ERR_NOT_FOUND);
}

static void test_definitions_page_by_page(void **state)
{
    (void)state;
    struct err err;
    struct store_definition page[2];
    size_t count, seen = 0;
    char namespace_[65] = "", name[129] = "";
    do {
        ASSERT_OK(store_reader_definitions(reader, NULL, namespace_, name, 2, page, &count, &err),
                  &err);
        for (size_t i = 0; i < count; i++, seen++) {
            (void)snprintf(namespace_, sizeof namespace_, "%s", page[i].namespace_);
            (void)snprintf(name, sizeof name, "%s", page[i].name);
            assert_true(page[i].current);
            store_definition_done(&page[i]);
        }
    } while (count == 2);
    assert_int_equal(seen, fixture_count(conn, "SELECT count(*) FROM definition"));
    ASSERT_OK(store_reader_definitions(reader, "other", NULL, NULL, 2, page, &count, &err), &err);
    assert_int_equal(count, 1);
    store_definition_done(&page[0]);
}

/* Several register at once: the same content once, other contents one after the other. */
struct registering {
    pthread_t thread;
    char content[16];
    int32_t revision;
    bool created;
    int rc;
    struct err err;
};

static void *register_thread(void *arg)
{
    struct registering *self = arg;
    struct store_reader *own;
    self->rc = store_reader_new(conninfo, &own, &self->err);
    if (self->rc)
        return NULL;
    struct store_registered registered = { 0 };
    struct store_register what = { .namespace_ = "test",
                                   .name = "contended",
                                   .content = { (uint8_t *)self->content, strlen(self->content) } };
    self->rc = store_reader_register(own, &what, &registered, &self->err);
    self->created = registered.created;
    self->revision = registered.revision.revision;
    store_registered_done(&registered);
    (void)store_reader_free(own);
    return NULL;
}

static void test_registration_by_many_at_once(void **state)
{
    (void)state;
    enum { THREADS = 8, CONTENTS = 3 };
    struct registering all[THREADS];
    int created = 0;
    for (int i = 0; i < THREADS; i++) {
        (void)snprintf(all[i].content, sizeof all[i].content, "content %d", i % CONTENTS);
        assert_int_equal(pthread_create(&all[i].thread, NULL, register_thread, &all[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(all[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        ASSERT_OK(all[i].rc, &all[i].err);
        assert_in_range(all[i].revision, 1, CONTENTS);
        assert_int_equal(all[i].revision, all[i % CONTENTS].revision);
        created += all[i].created;
    }
    assert_int_equal(created, CONTENTS);
}

/* Of those that live, but for oneself. */
static void test_who_serves_a_handler(void **state)
{
    (void)state;
    static const char *const handlers[] = { "c", "a", "nobody" };
    static const char *const expected[][2] = { { "a", "n1" }, { "a", "n2" }, { "c", "n2" } };
    struct store_serving serving[8];
    size_t count = 0;
    struct err err;
    fixture_exec(conn, "INSERT INTO node (name, instance, joined_at, heartbeat_at, handlers) VALUES"
                       " ('me', gen_random_uuid(), now(), now(), '{a,c,nobody}'),"
                       " ('n1', gen_random_uuid(), now(), now(), '{a}'),"
                       " ('n2', gen_random_uuid(), now(), now() - interval '5 s', '{b,c,a}'),"
                       " ('n3', gen_random_uuid(), now(), now() - interval '11 s', '{a}'),"
                       " ('n4', gen_random_uuid(), now(), '-infinity', '{a}')");
    ASSERT_OK(store_reader_serving(reader, "me", handlers, 3, 8, serving, &count, &err), &err);
    assert_int_equal(count, ARRAY_LEN(expected));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(serving[i].handler, expected[i][0]);
        assert_string_equal(serving[i].node, expected[i][1]);
    }
    store_serving_done(serving, count);
    ASSERT_OK(store_reader_serving(reader, "me", handlers, 3, 1, serving, &count, &err), &err);
    assert_int_equal(count, 1);
    store_serving_done(serving, count);
    ASSERT_OK(store_reader_serving(reader, "me", handlers, 0, 8, serving, &count, &err), &err);
    assert_int_equal(count, 0);
    fixture_exec(conn, "DELETE FROM node");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_page_by_page),
        cmocka_unit_test(test_lists_by_filter),
        cmocka_unit_test(test_lists_what_is_in_doubt_and_what_is_not),
        cmocka_unit_test(test_parked_sagas_in_groups_the_one_that_waits_longest_first),
        cmocka_unit_test(test_the_guard_floor_is_below_every_open_saga),
        cmocka_unit_test(test_lists_by_id_and_prefix),
        cmocka_unit_test(test_prefixes_of_every_length_of_character),
        cmocka_unit_test(test_get_by_uid_and_by_key),
        cmocka_unit_test(test_a_lock_on_writes_holds_up_no_new_reader),
        cmocka_unit_test(test_a_lost_session_is_replaced),
        cmocka_unit_test(test_who_serves_a_handler),
        cmocka_unit_test(test_registration),
        cmocka_unit_test(test_definitions_page_by_page),
        cmocka_unit_test(test_registration_by_many_at_once),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
