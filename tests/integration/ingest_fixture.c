#include "ingest_fixture.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>

struct store_ingest *ingest_open_as(const char *conninfo, const char *node, int wake_fd)
{
    struct err err;
    struct store_ingest *ingest;
    static uint64_t seed;
    struct store_ingest_options options = { .conninfo = conninfo,
                                            .clock = &clock_system,
                                            .node = node,
                                            .rule = "pays",
                                            .topic = "payments",
                                            .wake_fd = wake_fd,
                                            .rng_seed = ++seed };
    ASSERT_OK(store_ingest_new(&options, &ingest, &err), &err);
    return ingest;
}

struct store_ingest *ingest_open_rule(const char *conninfo, int wake_fd)
{
    struct err err;
    struct store_ingest *ingest = ingest_open_as(conninfo, "node-1", wake_fd);
    struct store_ingest_wanted wanted;
    struct store_ingest_rule rule = { .group_id = "sagad-pays",
                                      .namespace_ = "test",
                                      .definition = "pay",
                                      .topic_retention_ms = 7 * 24 * 3600 * INT64_C(1000),
                                      .key_memory_ms = -1 };
    ASSERT_OK(store_ingest_rule(ingest, &rule, &wanted, &err), &err);
    assert_true(wanted.run);
    assert_false(wanted.has_request);
    assert_false(wanted.has_replay);
    const struct store_ingest_begin begins[] = { { 0, 0 }, { 1, 0 }, { 2, 0 } };
    ASSERT_OK(store_ingest_create(ingest, begins, ARRAY_LEN(begins), &err), &err);
    return ingest;
}

struct made *made_new(void)
{
    struct made *made = mem_calloc(1, sizeof *made);
    assert_non_null(made);
    made_clear(made);
    return made;
}

struct made *made_free(struct made *made)
{
    mem_free(made);
    return NULL;
}

void made_clear(struct made *made)
{
    made->batch = (struct store_ingest_batch){ .namespace_ = "test",
                                               .definition = "pay",
                                               .revision = 1,
                                               .deadline_ms = 600 * 1000,
                                               .parts = made->parts,
                                               .records = made->records };
}

static struct store_ingest_record *add(struct made *made, int32_t partition, int64_t offset)
{
    size_t p = 0;
    while (p < made->batch.part_count && made->parts[p].partition != partition)
        p++;
    assert_true(p < MADE_PARTS_MAX && made->batch.record_count < MADE_RECORDS_MAX);
    if (p == made->batch.part_count) {
        made->parts[p] = (struct store_ingest_part){ .partition = partition, .expected = offset };
        made->batch.part_count++;
    }
    made->parts[p].next_offset = offset + 1;
    made->parts[p].before =
        (struct store_ingest_before){ .offset = offset, .time_ms = 1000 + offset, .crc = 7 };
    struct store_ingest_record *record = &made->records[made->batch.record_count++];
    *record = (struct store_ingest_record){
        .partition = partition, .offset = offset, .time_ms = 1000 + offset, .crc = 7
    };
    return record;
}

struct store_ingest_record *made_start(struct made *made, int32_t partition, int64_t offset,
                                       const char *saga_id, const char *input)
{
    struct store_ingest_record *record = add(made, partition, offset);
    char *id = made->ids[made->batch.record_count - 1];
    (void)snprintf(id, MADE_ID_SIZE, "%s", saga_id);
    record->action = INGEST_START;
    record->saga_id = id;
    record->input = (struct bytes){ (uint8_t *)input, strlen(input) };
    record->key = (struct store_ingest_bytes){ (const uint8_t *)id, strlen(id), true };
    record->value = (struct store_ingest_bytes){ (const uint8_t *)input, strlen(input), true };
    return record;
}

struct store_ingest_record *made_dead(struct made *made, int32_t partition, int64_t offset,
                                      const char *reason)
{
    struct store_ingest_record *record = add(made, partition, offset);
    record->action = INGEST_DEAD_LETTER;
    record->key = (struct store_ingest_bytes){ (const uint8_t *)"\0k", 2, true };
    record->reason = reason;
    record->message = "what was wrong";
    return record;
}

const char *made_results(const struct made *made)
{
    static const char *const names[] = { "NOTHING", "STARTED", "DUPLICATE", "MISMATCH", "DEAD" };
    static struct buf line;
    buf_clear(&line);
    for (size_t i = 0; i < made->batch.record_count; i++)
        buf_printf(&line, "%s%s", i ? " " : "", names[made->records[i].result]);
    return buf_cstr(&line);
}

void assert_cursor(PGconn *conn, int32_t partition, const char *expected)
{
    char sql[400];
    (void)snprintf(sql, sizeof sql,
                   "SELECT concat_ws(' ', records, started, duplicates, mismatches, dead_letters,"
                   " filtered, tombstones, '@' || next_offset) FROM kafka_cursor"
                   " WHERE rule = 'pays' AND topic = 'payments' AND partition = %d",
                   partition);
    PGresult *result = PQexec(conn, sql);
    assert_int_equal(PQntuples(result), 1);
    assert_string_equal(PQgetvalue(result, 0, 0), expected);
    PQclear(result);
}
