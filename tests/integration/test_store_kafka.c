/* Goal: what people see of Kafka is what is stored, and each decision is taken once, by whoever
 * may, with its line in the audit trail; the ingest then finds what it is to do. Method: the reader
 * and an ingest of the store beside each other on one database. */
#include "ingest_fixture.h"

#include "store/reader_kafka.h"

#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static PGconn *conn;
static struct store_ingest *ingest;
static struct store_reader *reader;
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
    struct err err;
    (void)snprintf(name, sizeof name, "kafka_%d", number++);
    fixture_database(postgres, name, conninfo);
    conn = fixture_connect(conninfo);
    fixture_exec(conn, "INSERT INTO node VALUES ('node-1', gen_random_uuid(), now(), now())");
    ingest = ingest_open_rule(conninfo, -1);
    SETUP_OK(store_reader_new(conninfo, &reader, &err), &err);
    made = made_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    made = made_free(made);
    reader = store_reader_free(reader);
    ingest = store_ingest_free(ingest);
    PQfinish(conn);
    return 0;
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

static void run_batch(void)
{
    struct err err;
    ASSERT_OK(store_ingest_batch(ingest, &made->batch, &err), &err);
}

/* Letters of partition 0, with `reason` at each offset of [0, count). */
static void have_letters(int count, const char *reason)
{
    int first =
        (int)fixture_count(conn, "SELECT next_offset FROM kafka_cursor WHERE partition = 0");
    made_clear(made);
    for (int i = 0; i < count; i++)
        made_dead(made, 0, first + i, reason);
    run_batch();
}

static struct uuid an_id(uint8_t last)
{
    return (struct uuid){ { 1, [15] = last } };
}

/* --- rules and cursors ----------------------------------------------------------------------- */

static void test_rules_and_cursors_are_what_is_stored(void **state)
{
    (void)state;
    struct err err;
    struct store_kafka_rules rules;
    made_start(made, 1, 0, "a", "x");
    made_start(made, 1, 1, "a", "y");
    made_dead(made, 1, 2, "KEY_INVALID");
    made->parts[0].filtered = 3;
    made->parts[0].tombstones = 4;
    run_batch();
    struct store_ingest_seen seen = { 1, 0, 100, "DATABASE_SLOW", 12.5 };
    ASSERT_OK(store_ingest_seen(ingest, &seen, 1, &err), &err);
    bool stopped = false;
    struct store_ingest_stop stop = { 2, 0, "GAP", "gone", 0, 41 };
    ASSERT_OK(store_ingest_stop(ingest, &stop, &stopped, &err), &err);
    assert_true(stopped);
    ASSERT_OK(store_reader_kafka_rules(reader, "pays", &rules, &err), &err);
    assert_int_equal(rules.rule_count, 1);
    const struct store_kafka_rule *rule = &rules.rules[0];
    assert_string_equal(rule->rule, "pays");
    assert_string_equal(rule->topic, "payments");
    assert_string_equal(rule->group_id, "sagad-pays");
    assert_string_equal(rule->namespace_, "test");
    assert_string_equal(rule->definition, "pay");
    assert_string_equal(rule->node, "node-1");
    assert_true(rule->wanted && !rule->stopped_by && !rule->problem && !rule->topic_compacted);
    assert_int_equal(rule->key_memory_ms, -1);
    assert_int_equal(rule->topic_retention_ms, 7 * 24 * 3600 * INT64_C(1000));
    assert_in_range(rules.now_ms - rule->seen_at_ms, 0, 60000);
    assert_int_equal(rules.cursor_count, 3);
    const struct store_kafka_cursor *cursor = &rules.cursors[1];
    assert_int_equal(cursor->partition, 1);
    assert_int_equal(cursor->next_offset, 3);
    assert_int_equal(cursor->records, 10);
    assert_int_equal(cursor->started, 1);
    assert_int_equal(cursor->mismatches, 1);
    assert_int_equal(cursor->duplicates, 0);
    assert_int_equal(cursor->dead_letters, 1);
    assert_int_equal(cursor->filtered, 3);
    assert_int_equal(cursor->tombstones, 4);
    assert_int_equal(cursor->low_offset, 0);
    assert_int_equal(cursor->end_offset, 100);
    assert_string_equal(cursor->paused_why, "DATABASE_SLOW");
    assert_true(cursor->rate_per_s > 12.4 && cursor->rate_per_s < 12.6);
    assert_int_equal(rules.cursors[0].end_offset, -1);
    assert_true(rules.cursors[2].stopped && !cursor->stopped);
    assert_string_equal(rules.cursors[2].stop_reason, "GAP");
    assert_string_equal(rules.cursors[2].stop_message, "gone");
    assert_int_equal(rules.cursors[2].stop_to, 41);
    assert_true(rules.cursors[2].stopped_at_ms > 0);
    store_kafka_rules_done(&rules);
    expect_error(store_reader_kafka_rules(reader, "none", &rules, &err), &err, ERR_NOT_FOUND,
                 "RULE_NOT_FOUND");
    ASSERT_OK(store_reader_kafka_rules(reader, NULL, &rules, &err), &err);
    assert_int_equal(rules.rule_count, 1);
    store_kafka_rules_done(&rules);
}

static void test_k5_a_stopped_partition_goes_on_where_a_person_says(void **state)
{
    (void)state;
    struct err err;
    int64_t offset = -1;
    struct store_kafka_resume resume = { .rule = "pays",
                                         .topic = "payments",
                                         .partition = 0,
                                         .from = KAFKA_FROM_OFFSET,
                                         .offset = 40,
                                         .actor = "ann",
                                         .reason = "they are lost" };
    made_start(made, 0, 0, "a", "x");
    run_batch();
    expect_error(store_reader_kafka_resume(reader, &resume, &offset, &err), &err, ERR_PRECONDITION,
                 "PARTITION_NOT_STOPPED");
    assert_non_null(strstr(err.msg, "at 1"));
    bool stopped = false;
    struct store_ingest_stop stop = { 0, 1, "GAP", "gone", 1, 39 };
    ASSERT_OK(store_ingest_stop(ingest, &stop, &stopped, &err), &err);
    resume.from = KAFKA_FROM_LOW;
    expect_error(store_reader_kafka_resume(reader, &resume, &offset, &err), &err, ERR_PRECONDITION,
                 "NOT_SEEN");
    resume.from = KAFKA_FROM_OFFSET;
    assert_count("SELECT count(*) FROM kafka_request", 0);
    ASSERT_OK(store_reader_kafka_resume(reader, &resume, &offset, &err), &err);
    assert_int_equal(offset, 40);
    assert_count("SELECT count(*) FROM kafka_cursor WHERE partition = 0 AND state = 'RUN'"
                 " AND next_offset = 40 AND stop_reason IS NULL AND stopped_at IS NULL"
                 " AND before_offset IS NULL AND records = 1",
                 1);
    assert_count("SELECT count(*) FROM kafka_request WHERE rule = 'pays' AND kind = 'RESUME'"
                 " AND state = 'DONE' AND actor = 'ann' AND reason = 'they are lost'"
                 " AND arguments::json->>'topic' = 'payments' AND arguments::json->>'cursor' = '1'"
                 " AND arguments::json->>'partition' = '0' AND result::json->>'next_offset' = '40'",
                 1);
    expect_error(store_reader_kafka_resume(reader, &resume, &offset, &err), &err, ERR_PRECONDITION,
                 "PARTITION_NOT_STOPPED"); /* done twice */

    made_clear(made); /* a batch that was read before is another place's */
    made_start(made, 0, 1, "b", "x");
    run_batch();
    assert_false(made->parts[0].moved);
    resume.partition = 9;
    expect_error(store_reader_kafka_resume(reader, &resume, &offset, &err), &err, ERR_NOT_FOUND,
                 "PARTITION_NOT_FOUND");
    resume.rule = "none";
    expect_error(store_reader_kafka_resume(reader, &resume, &offset, &err), &err, ERR_NOT_FOUND,
                 "RULE_NOT_FOUND");
}

/* Each place that can be named; a rule that is stopped has no partition that runs. */
static void test_resume_from_low_end_cursor(void **state)
{
    (void)state;
    struct err err;
    bool changed = false;
    ASSERT_OK(store_reader_kafka_want(reader, "pays", false, "ann", "night", &changed, &err), &err);
    assert_true(changed);
    struct store_ingest_seen seen = { 0, 5, 99, NULL, 0 };
    ASSERT_OK(store_ingest_seen(ingest, &seen, 1, &err), &err);
    static const int64_t expected[] = { [KAFKA_FROM_OFFSET] = 0,
                                        [KAFKA_FROM_LOW] = 5,
                                        [KAFKA_FROM_END] = 99,
                                        [KAFKA_FROM_CURSOR] = 99 };
    for (int from = KAFKA_FROM_OFFSET; from <= KAFKA_FROM_CURSOR; from++) {
        int64_t offset = -1;
        struct store_kafka_resume resume = { "pays", "payments", 0,     (enum store_kafka_from)from,
                                             0,      "ann",      "test" };
        ASSERT_OK(store_reader_kafka_resume(reader, &resume, &offset, &err), &err);
        assert_int_equal(offset, expected[from]);
    }
    assert_count("SELECT next_offset FROM kafka_cursor WHERE partition = 0", 99);
    assert_count("SELECT count(*) FROM kafka_request WHERE kind = 'RESUME'", 4);
}

static void test_a_rule_is_wanted_or_not(void **state)
{
    (void)state;
    struct err err;
    bool changed = false;
    struct store_ingest_wanted wanted;
    ASSERT_OK(store_reader_kafka_want(reader, "pays", true, "ann", "x", &changed, &err), &err);
    assert_false(changed);
    ASSERT_OK(store_reader_kafka_want(reader, "pays", false, "ann", "audit", &changed, &err), &err);
    assert_true(changed);
    ASSERT_OK(store_reader_kafka_want(reader, "pays", false, "bob", "again", &changed, &err), &err);
    assert_false(changed);
    ASSERT_OK(store_ingest_wanted(ingest, &wanted, &err), &err);
    assert_false(wanted.run);
    assert_count("SELECT count(*) FROM kafka_rule WHERE stopped_by = 'ann'"
                 " AND stop_reason = 'audit' AND stopped_at IS NOT NULL",
                 1);
    ASSERT_OK(store_reader_kafka_want(reader, "pays", true, "bob", "done", &changed, &err), &err);
    assert_true(changed);
    assert_count("SELECT count(*) FROM kafka_rule WHERE wanted = 'RUN' AND stopped_by IS NULL"
                 " AND stop_reason IS NULL AND stopped_at IS NULL",
                 1);
    struct store_kafka_request requests[8];
    size_t count = 0;
    ASSERT_OK(store_reader_kafka_requests(reader, "pays", NULL, 8, requests, &count, &err), &err);
    assert_int_equal(count, 2);
    assert_int_equal(requests[0].kind, KAFKA_KIND_START);
    assert_int_equal(requests[1].kind, KAFKA_KIND_STOP);
    assert_string_equal(requests[1].actor, "ann");
    assert_string_equal(requests[1].arguments, "{}");
    assert_int_equal(requests[1].state, KAFKA_REQUEST_DONE);
    for (size_t i = 0; i < count; i++)
        store_kafka_request_done(&requests[i]);
    expect_error(store_reader_kafka_want(reader, "no", true, "a", "r", &changed, &err), &err,
                 ERR_NOT_FOUND, "RULE_NOT_FOUND");
}

/* --- requests -------------------------------------------------------------------------------- */

static void test_a_check_is_taken_by_one_and_finished(void **state)
{
    (void)state;
    struct err err;
    struct uuid id = an_id(1), other = an_id(2);
    struct store_ingest_request request;
    struct store_ingest *second = ingest_open_as(conninfo, "node-2", -1);
    expect_error(store_ingest_take(ingest, 1000, &request, &err), &err, ERR_NOT_FOUND, "");
    ASSERT_OK(store_reader_kafka_check(reader, &id, "pays", 100000, "ann", "before", &err), &err);
    ASSERT_OK(store_reader_kafka_check(reader, &id, "pays", 100000, "ann", "before", &err), &err);
    assert_count("SELECT count(*) FROM kafka_request", 1);
    ASSERT_OK(store_ingest_take(ingest, 60000, &request, &err), &err);
    assert_memory_equal(&request.id, &id, sizeof id);
    assert_int_equal(request.kind, INGEST_CHECK);
    assert_int_equal(request.last, 100000);
    assert_null(request.group);
    assert_string_equal(request.actor, "ann");
    store_ingest_request_done(&request);
    expect_error(store_ingest_take(second, 1000, &request, &err), &err, ERR_NOT_FOUND, "");
    ASSERT_OK(store_ingest_progress(ingest, &id, 5, 10, 60000, &err), &err);
    expect_error(store_ingest_progress(second, &id, 5, 10, 60000, &err), &err, ERR_CONFLICT, "");

    struct store_kafka_request seen;
    ASSERT_OK(store_reader_kafka_request(reader, &id, &seen, &err), &err);
    assert_int_equal(seen.kind, KAFKA_KIND_CHECK);
    assert_int_equal(seen.state, KAFKA_REQUEST_TAKEN);
    assert_string_equal(seen.node, "node-1");
    assert_int_equal(seen.progress, 5);
    assert_int_equal(seen.total, 10);
    assert_string_equal(seen.arguments, "{\"last\":100000}");
    assert_null(seen.result);
    store_kafka_request_done(&seen);

    /* Its node falls silent: another one begins anew, and the first one's word is void. */
    fixture_exec(conn, "UPDATE kafka_request SET taken_until = now() - interval '1 s'");
    ASSERT_OK(store_ingest_take(second, 60000, &request, &err), &err);
    store_ingest_request_done(&request);
    expect_error(store_ingest_finish(ingest, &id, "{}", NULL, &err), &err, ERR_CONFLICT, "");
    ASSERT_OK(store_ingest_finish(second, &id, "{\"good\": 1}", NULL, &err), &err);
    ASSERT_OK(store_reader_kafka_request(reader, &id, &seen, &err), &err);
    assert_int_equal(seen.state, KAFKA_REQUEST_DONE);
    assert_string_equal(seen.node, "node-2");
    assert_string_equal(seen.result, "{\"good\": 1}");
    assert_true(seen.finished_at_ms > 0 && !seen.error);
    store_kafka_request_done(&seen);

    struct err failure;
    (void)err_reason(&failure, ERR_UNAVAILABLE, "NO_BROKER", "nobody answers");
    ASSERT_OK(store_reader_kafka_check(reader, &other, "pays", 1, "ann", "x", &err), &err);
    ASSERT_OK(store_ingest_take(ingest, 60000, &request, &err), &err);
    store_ingest_request_done(&request);
    ASSERT_OK(store_ingest_finish(ingest, &other, NULL, &failure, &err), &err);
    ASSERT_OK(store_reader_kafka_request(reader, &other, &seen, &err), &err);
    assert_int_equal(seen.state, KAFKA_REQUEST_FAILED);
    assert_string_equal(seen.error, "NO_BROKER: nobody answers");
    store_kafka_request_done(&seen);
    struct uuid none = an_id(9);
    expect_error(store_reader_kafka_request(reader, &none, &seen, &err), &err, ERR_NOT_FOUND,
                 "REQUEST_NOT_FOUND");
    expect_error(store_reader_kafka_check(reader, &none, "no", 1, "a", "r", &err), &err,
                 ERR_NOT_FOUND, "RULE_NOT_FOUND");
    (void)store_ingest_free(second);
}

static void test_a_takeover_is_all_or_nothing(void **state)
{
    (void)state;
    struct err err;
    struct uuid id = an_id(1);
    bool changed;
    struct store_ingest_request request;
    const struct store_ingest_takeover parts[] = { { 1, 100, 120 }, { 7, 5, 5 } };
    expect_error(store_reader_kafka_takeover(reader, &id, "pays", "old", "ann", "move", &err), &err,
                 ERR_PRECONDITION, "RULE_RUNS");
    bool stopped;
    struct store_ingest_stop stop = { 1, 0, "GAP", "gone", 0, 1 };
    ASSERT_OK(store_ingest_stop(ingest, &stop, &stopped, &err), &err);
    ASSERT_OK(store_reader_kafka_want(reader, "pays", false, "ann", "move", &changed, &err), &err);
    ASSERT_OK(store_reader_kafka_takeover(reader, &id, "pays", "old", "ann", "move", &err), &err);
    ASSERT_OK(store_ingest_take(ingest, 60000, &request, &err), &err);
    assert_int_equal(request.kind, INGEST_TAKEOVER);
    assert_string_equal(request.group, "old");
    store_ingest_request_done(&request);

    /* Somebody starts the rule meanwhile. */
    ASSERT_OK(store_reader_kafka_want(reader, "pays", true, "bob", "why", &changed, &err), &err);
    expect_error(store_ingest_takeover(ingest, &id, parts, 2, "{}", &err), &err, ERR_PRECONDITION,
                 "RULE_RUNS");
    assert_count("SELECT count(*) FROM kafka_cursor", 3);
    assert_count("SELECT count(*) FROM kafka_request WHERE state = 'TAKEN'", 1);
    ASSERT_OK(store_reader_kafka_want(reader, "pays", false, "ann", "move", &changed, &err), &err);
    ASSERT_OK(store_ingest_takeover(ingest, &id, parts, 2, "{\"partitions\":[]}", &err), &err);
    assert_count("SELECT count(*) FROM kafka_cursor", 4);
    assert_count("SELECT count(*) FROM kafka_cursor WHERE state = 'RUN' AND stop_reason IS NULL"
                 " AND before_offset IS NULL AND ((partition = 1 AND next_offset = 100"
                 " AND suspect_until = 120) OR (partition = 7 AND next_offset = 5"
                 " AND suspect_until = 5))",
                 2);
    assert_count("SELECT count(*) FROM kafka_rule WHERE wanted = 'RUN' AND stopped_by IS NULL", 1);
    assert_count("SELECT count(*) FROM kafka_request WHERE kind = 'TAKEOVER' AND state = 'DONE'"
                 " AND result LIKE '%partitions%' AND arguments::json->>'group' = 'old'",
                 1);
    expect_error(store_ingest_takeover(ingest, &id, parts, 2, "{}", &err), &err, ERR_CONFLICT, "");

    made_start(made, 1, 100, "half", "x"); /* and its records begin suspect */
    made_start(made, 1, 120, "new", "x");
    run_batch();
    assert_count("SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                 " WHERE j.kind = 'SUSPECT' AND s.saga_id = 'half'",
                 1);
    assert_count("SELECT count(*) FROM journal", 1);
}

static void test_requests_come_in_pages(void **state)
{
    (void)state;
    struct err err;
    for (uint8_t i = 1; i <= 7; i++) {
        struct uuid id = an_id(i);
        ASSERT_OK(store_reader_kafka_check(reader, &id, "pays", i, "ann", "x", &err), &err);
    }
    int next = 7;
    struct uuid before;
    for (int page = 0; next > 0; page++) {
        struct store_kafka_request requests[3];
        size_t count = 0;
        ASSERT_OK(store_reader_kafka_requests(reader, page % 2 ? "pays" : NULL,
                                              page ? &before : NULL, 3, requests, &count, &err),
                  &err);
        assert_int_equal(count, next > 3 ? 3 : next);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(requests[i].id.bytes[15], next--);
            before = requests[i].id;
            store_kafka_request_done(&requests[i]);
        }
    }
}

/* --- dead letters ---------------------------------------------------------------------------- */

static size_t list(const struct store_letter_filter *filter, const struct uuid *before,
                   struct store_letter *ret, size_t limit)
{
    struct err err;
    size_t count = 0;
    ASSERT_OK(store_reader_letters(reader, filter, before, limit, ret, &count, &err), &err);
    return count;
}

static size_t count_letters(const struct store_letter_filter *filter)
{
    static struct store_letter letters[64];
    size_t count = list(filter, NULL, letters, 64);
    for (size_t i = 0; i < count; i++)
        store_letter_done(&letters[i]);
    return count;
}

static void test_letters_are_listed_by_filter_and_shown_with_their_bytes(void **state)
{
    (void)state;
    struct err err;
    have_letters(5, "KEY_INVALID");
    have_letters(3, "VALUE_NULL");
    made_clear(made);
    struct store_ingest_record *record = made_dead(made, 1, 0, "KEY_INVALID");
    record->value = (struct store_ingest_bytes){ (const uint8_t *)"va\0ue", 5, true };
    record->headers = (struct bytes){ (uint8_t *)"hh", 2 };
    record->saga_id = "order-1";
    run_batch();
    const struct store_letter_filter all = { 0 };
    const struct store_letter_filter filters[] = {
        { .rule = "pays" },
        { .rule = "none" },
        { .topic = "payments" },
        { .topic = "other" },
        { .has_partition = true, .partition = 1 },
        { .reason = "VALUE_NULL" },
        { .states = { [LETTER_OPEN] = true, [LETTER_REPLAYED] = true } },
        { .states = { [LETTER_DISCARDED] = true } },
    };
    static const size_t expected[] = { 9, 0, 9, 0, 1, 3, 9, 0 };
    for (size_t i = 0; i < ARRAY_LEN(filters); i++)
        assert_int_equal(count_letters(&filters[i]), expected[i]);

    struct store_letter page[4];
    struct uuid before;
    int64_t offset = 8;
    size_t got = 0;
    for (int pages = 0; pages < 3; pages++) {
        size_t count = list(&all, pages ? &before : NULL, page, 4);
        assert_int_equal(count, pages < 2 ? 4 : 1);
        for (size_t i = 0; i < count; i++, got++) {
            before = page[i].id;
            assert_int_equal(page[i].offset, got == 0 ? 0 : --offset);
            assert_null(page[i].key.data);
            assert_int_equal(page[i].key_size, 2);
            assert_int_equal(page[i].has_value, got == 0);
            store_letter_done(&page[i]);
        }
    }
    assert_int_equal(list(&all, NULL, page, 1), 1);
    struct uuid id = page[0].id;
    store_letter_done(&page[0]);
    struct store_letter letter;
    ASSERT_OK(store_reader_letter(reader, &id, &letter, &err), &err);
    assert_string_equal(letter.rule, "pays");
    assert_string_equal(letter.topic, "payments");
    assert_int_equal(letter.partition, 1);
    assert_int_equal(letter.time_ms, 1000);
    assert_int_equal(letter.key.size, 2);
    assert_memory_equal(letter.key.data, "\0k", 2);
    assert_int_equal(letter.value_size, 5);
    assert_memory_equal(letter.value.data, "va\0ue", 5);
    assert_memory_equal(letter.headers.data, "hh", 2);
    assert_string_equal(letter.saga_id, "order-1");
    assert_string_equal(letter.reason, "KEY_INVALID");
    assert_string_equal(letter.message, "what was wrong");
    assert_int_equal(letter.state, LETTER_OPEN);
    assert_true(!letter.has_saga && !letter.decided_by && letter.received_at_ms > 0);
    store_letter_done(&letter);
    id.bytes[3] ^= 1;
    expect_error(store_reader_letter(reader, &id, &letter, &err), &err, ERR_NOT_FOUND,
                 "LETTER_NOT_FOUND");
}

static size_t decide(const struct store_letter_decision *what)
{
    struct err err;
    size_t count = 0;
    ASSERT_OK(store_reader_letters_decide(reader, what, &count, &err), &err);
    return count;
}

static void test_letters_are_decided_once(void **state)
{
    (void)state;
    struct err err;
    size_t count;
    have_letters(6, "KEY_INVALID");
    struct store_letter letters[6];
    const struct store_letter_filter all = { 0 };
    assert_int_equal(list(&all, NULL, letters, 6), 6);
    struct uuid ids[6];
    for (int i = 0; i < 6; i++) {
        ids[i] = letters[5 - i].id; /* oldest first */
        store_letter_done(&letters[5 - i]);
    }
    struct store_letter_decision what = {
        .ids = ids, .id_count = 2, .dry_run = true, .actor = "ann", .reason = "junk"
    };
    assert_int_equal(decide(&what), 2);
    assert_count("SELECT count(*) FROM dead_letter WHERE state <> 'OPEN'", 0);
    what.dry_run = false;
    assert_int_equal(decide(&what), 2);
    assert_count("SELECT count(*) FROM dead_letter WHERE state = 'DISCARDED' AND record_offset < 2"
                 " AND decided_by = 'ann' AND decision_reason = 'junk' AND decided_at IS NOT NULL",
                 2);
    assert_count("SELECT count(*) FROM kafka_request WHERE kind = 'DISCARD' AND rule = 'pays'"
                 " AND state = 'DONE' AND result::json->>'letters' = '2'",
                 1);
    what.ids = ids + 1; /* one of them is decided: nothing happens to the other */
    expect_error(store_reader_letters_decide(reader, &what, &count, &err), &err, ERR_PRECONDITION,
                 "LETTER_NOT_OPEN");
    struct uuid unknown[] = { ids[2], an_id(3) };
    what.ids = unknown;
    expect_error(store_reader_letters_decide(reader, &what, &count, &err), &err, ERR_NOT_FOUND,
                 "LETTER_NOT_FOUND");
    assert_count("SELECT count(*) FROM dead_letter WHERE state = 'OPEN'", 4);

    what = (struct store_letter_decision){
        .replay = true, .filter = { .rule = "pays" }, .limit = 3, .actor = "bob", .reason = "fixed"
    };
    what.dry_run = true;
    assert_int_equal(decide(&what), 4); /* more than the limit */
    what.dry_run = false;
    assert_int_equal(decide(&what), 3); /* the oldest */
    assert_count("SELECT count(*) FROM dead_letter WHERE state = 'REPLAY'"
                 " AND record_offset BETWEEN 2 AND 4",
                 3);
    assert_int_equal(decide(&what), 1);
    assert_int_equal(decide(&what), 0);
    assert_count("SELECT count(*) FROM kafka_request WHERE kind = 'REPLAY'", 2);
    what.limit = LETTERS_PER_DECISION + 1;
    assert_int_equal(store_reader_letters_decide(reader, &what, &count, &err), ERR_LIMIT);
}

/* A rule that was taken out of every node's file, and its row: its letters are still to be decided
 * on, but nobody could replay them. */
static void test_letters_of_a_rule_that_is_gone_are_listed_and_discarded(void **state)
{
    (void)state;
    struct err err;
    size_t count;
    have_letters(4, "KEY_INVALID");
    fixture_exec(conn, "UPDATE dead_letter SET state = 'REPLAY', decided_by = 'ann', decided_at ="
                       " now(), decision_reason = 'fixed' WHERE record_offset = 0;"
                       "DELETE FROM kafka_rule");
    const struct store_letter_filter filters[] = { { 0 }, { .rule = "pays" }, { .rule = "paysy" } };
    static const size_t expected[] = { 3, 3, 0 };
    for (size_t i = 0; i < ARRAY_LEN(filters); i++)
        assert_int_equal(count_letters(&filters[i]), expected[i]);

    const struct store_letter_filter asked = { .states = { [LETTER_REPLAY] = true } };
    struct store_letter letter;
    assert_int_equal(list(&asked, NULL, &letter, 1), 1);
    struct uuid id = letter.id;
    store_letter_done(&letter);
    struct store_letter_decision what = {
        .replay = true, .ids = &id, .id_count = 1, .actor = "bob", .reason = "again"
    };
    expect_error(store_reader_letters_decide(reader, &what, &count, &err), &err, ERR_PRECONDITION,
                 "RULE_NOT_FOUND");
    what.replay = false;
    assert_int_equal(decide(&what), 1); /* nobody would ever have replayed it */
    what = (struct store_letter_decision){
        .replay = true, .limit = 10, .actor = "bob", .reason = "again"
    };
    expect_error(store_reader_letters_decide(reader, &what, &count, &err), &err, ERR_PRECONDITION,
                 "RULE_NOT_FOUND");
    what.replay = false;
    assert_int_equal(decide(&what), 3);
    assert_count(
        "SELECT count(*) FROM dead_letter WHERE state = 'DISCARDED' AND decided_by = 'bob'", 4);
    assert_count("SELECT sum((result::json->>'letters')::int) FROM kafka_request WHERE kind ="
                 " 'DISCARD' AND rule = 'pays' AND state = 'DONE' AND actor = 'bob'",
                 4);
}

/* --- replay ---------------------------------------------------------------------------------- */

static void test_k4_letters_are_replayed_by_one(void **state)
{
    (void)state;
    struct err err;
    enum { LETTERS = 5 };
    made_start(made, 1, 0, "known", "x");
    run_batch();
    have_letters(LETTERS, "KEY_INVALID");
    fixture_exec(conn, "UPDATE kafka_cursor SET suspect_until = 1 WHERE partition = 0");
    const struct store_letter_decision what = {
        .replay = true, .limit = 10, .actor = "ann", .reason = "fixed"
    };
    assert_int_equal(decide(&what), LETTERS);
    struct store_ingest_wanted wanted;
    ASSERT_OK(store_ingest_wanted(ingest, &wanted, &err), &err);
    assert_true(wanted.has_replay);
    struct store_ingest_letter *letters;
    size_t count;
    ASSERT_OK(store_ingest_letters(ingest, 100, &letters, &count, &err), &err);
    assert_int_equal(count, LETTERS);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(letters[i].offset, i);
        assert_int_equal(letters[i].time_ms, 1000 + i);
        assert_int_equal(letters[i].crc, 7);
        assert_true(letters[i].has_key && !letters[i].has_value);
        assert_memory_equal(letters[i].key.data, "\0k", 2);
    }
    made_clear(made);
    made->batch.mismatch_is_dead_letter = true;
    made_start(made, 0, 0, "fresh", "x"); /* suspect, as its record was */
    made_start(made, 0, 1, "known", "x");
    made_start(made, 0, 2, "known", "y");
    made_dead(made, 0, 3, "KEY_INVALID")->message = "still";
    made_start(made, 0, 4, "late", "x");
    made->batch.part_count = 0;
    /* Another node is at the last one. */
    PGconn *other = fixture_connect(conninfo);
    fixture_exec(other, "BEGIN; SELECT FROM dead_letter WHERE record_offset = 4 FOR UPDATE");
    ASSERT_OK(store_ingest_replay(ingest, letters, &made->batch, &err), &err);
    assert_string_equal(made_results(made), "STARTED DUPLICATE MISMATCH DEAD NOTHING");
    fixture_exec(other, "ROLLBACK");
    PQfinish(other);
    assert_count("SELECT count(*) FROM dead_letter d JOIN saga s ON s.saga_uid = d.saga_uid"
                 " WHERE d.state = 'REPLAYED' AND d.replay_error IS NULL AND d.decided_by = 'ann'"
                 " AND ((d.record_offset = 0 AND s.saga_id = 'fresh')"
                 " OR (d.record_offset = 1 AND s.saga_id = 'known'))",
                 2);
    assert_count("SELECT count(*) FROM dead_letter WHERE state = 'OPEN' AND decided_by IS NULL"
                 " AND decided_at IS NULL AND saga_uid IS NULL AND ((record_offset = 2"
                 " AND saga_id = 'known' AND replay_error LIKE 'MISMATCH: %')"
                 " OR (record_offset = 3 AND replay_error = 'KEY_INVALID: still'))",
                 2);
    assert_count("SELECT count(*) FROM dead_letter WHERE state = 'REPLAY'", 1);
    assert_count("SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                 " WHERE j.kind = 'SUSPECT' AND s.saga_id = 'fresh'",
                 1);
    assert_count("SELECT count(*) FROM saga", 2);
    assert_cursor(conn, 0, "5 0 0 0 5 0 0 @5");

    /* Again with the same list: what is decided stays so. */
    ASSERT_OK(store_ingest_replay(ingest, letters, &made->batch, &err), &err);
    assert_string_equal(made_results(made), "NOTHING NOTHING NOTHING NOTHING STARTED");
    ASSERT_OK(store_ingest_replay(ingest, letters, &made->batch, &err), &err);
    assert_string_equal(made_results(made), "NOTHING NOTHING NOTHING NOTHING NOTHING");
    assert_count("SELECT count(*) FROM saga", 3);
    store_ingest_letters_done(letters, count);
}

/* --- one business key ------------------------------------------------------------------------ */

static void test_r1_all_that_is_known_of_a_key(void **state)
{
    (void)state;
    struct err err;
    struct store_kafka_where where;
    made_start(made, 0, 0, "gone", "x");
    made_start(made, 0, 1, "there", "x");
    made_start(made, 0, 2, "gone", "y");
    made_dead(made, 0, 3, "VALUE_NULL")->key =
        (struct store_ingest_bytes){ (const uint8_t *)"gone", 4, true };
    made->batch.mismatch_is_dead_letter = true;
    run_batch();
    fixture_exec(conn, "UPDATE saga_key SET final_state = 'SUCCEEDED',"
                       " remembered_until = '2030-01-01 00:00:00+00' WHERE saga_id = 'gone';"
                       "DELETE FROM saga WHERE saga_id = 'gone';"
                       "INSERT INTO definition (namespace, name, current_revision)"
                       " VALUES ('a', 'pay', 0), ('test', 'other', 0)");
    ASSERT_OK(store_reader_kafka_where(reader, NULL, NULL, "gone", &where, &err), &err);
    assert_int_equal(where.key_count, 1);
    assert_string_equal(where.keys[0].namespace_, "test");
    assert_string_equal(where.keys[0].definition, "pay");
    assert_memory_equal(&where.keys[0].uid, &made->records[0].uid, sizeof(struct uuid));
    assert_true(where.keys[0].ended && !where.keys[0].has_row);
    assert_int_equal(where.keys[0].final_state, SAGA_SUCCEEDED);
    assert_int_equal(where.keys[0].remembered_until_ms, INT64_C(1893456000000));
    assert_int_equal(where.letter_count, 2);
    int64_t offsets = where.letters[0].offset + where.letters[1].offset;
    assert_int_equal(offsets, 2 + 3); /* by its business key, and by the record's */
    assert_int_equal(where.rules.rule_count, 1);
    assert_int_equal(where.rules.cursor_count, 3);
    store_kafka_where_done(&where);

    ASSERT_OK(store_reader_kafka_where(reader, "test", "pay", "there", &where, &err), &err);
    assert_int_equal(where.key_count, 1);
    assert_true(!where.keys[0].ended && where.keys[0].has_row);
    assert_int_equal(where.keys[0].remembered_until_ms, 0);
    assert_int_equal(where.letter_count, 0);
    store_kafka_where_done(&where);
    ASSERT_OK(store_reader_kafka_where(reader, "test", "other", "gone", &where, &err), &err);
    assert_int_equal(where.key_count + where.letter_count + where.rules.rule_count, 0);
    store_kafka_where_done(&where);
    ASSERT_OK(store_reader_kafka_where(reader, NULL, NULL, "never", &where, &err), &err);
    assert_int_equal(where.key_count + where.letter_count, 0);
    assert_int_equal(where.rules.rule_count, 1); /* it may still be on its way */
    store_kafka_where_done(&where);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_rules_and_cursors_are_what_is_stored),
        CASE(test_k5_a_stopped_partition_goes_on_where_a_person_says),
        CASE(test_resume_from_low_end_cursor),
        CASE(test_a_rule_is_wanted_or_not),
        CASE(test_a_check_is_taken_by_one_and_finished),
        CASE(test_a_takeover_is_all_or_nothing),
        CASE(test_requests_come_in_pages),
        CASE(test_letters_are_listed_by_filter_and_shown_with_their_bytes),
        CASE(test_letters_are_decided_once),
        CASE(test_letters_of_a_rule_that_is_gone_are_listed_and_discarded),
        CASE(test_k4_letters_are_replayed_by_one),
        CASE(test_r1_all_that_is_known_of_a_key),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
