#include "support/outbox_check.h"

#include "base/buf.h"
#include "base/uuid.h"

#include <saga/v1/event.pb-c.h>
#include <stdio.h>
#include <string.h>

const char *outbox_check_header(const struct test_kafka_record *record, const char *name)
{
    static char texts[8][300];
    static size_t at;
    for (size_t i = 0; i < record->header_count; i++) {
        if (strcmp(record->headers[i].name, name) != 0)
            continue;
        char *ret = texts[at++ % ARRAY_LEN(texts)];
        (void)snprintf(ret, sizeof texts[0], "%.*s", (int)record->headers[i].size,
                       (const char *)record->headers[i].value);
        return ret;
    }
    fail_msg("a record without %s", name);
    return NULL;
}

struct reading {
    int64_t count;
    struct buf sql;
};

static void on_record(void *ctx, const struct test_kafka_record *record)
{
    struct reading *reading = ctx;
    long long seq, part;
    Saga__V1__SagaEvent *event =
        saga__v1__saga_event__unpack(NULL, record->value_size, record->value);
    assert_non_null(event);
    assert_string_equal(event->id, outbox_check_header(record, "ce_id"));
    const char *key = event->handler ? event->handler->handler : event->saga_id;
    assert_int_equal(event->handler != NULL,
                     event->kind == SAGA__V1__SAGA_EVENT__KIND__KIND_HANDLER);
    assert_int_equal(record->key_size, strlen(key));
    assert_memory_equal(record->key, key, record->key_size);
    if (!event->handler)
        assert_int_equal(strncmp(event->id, event->uid, UUID_TEXT_SIZE - 1), 0);
    assert_int_equal(sscanf(event->id + UUID_TEXT_SIZE - 1, "/%lld/%lld", &seq, &part), 2);
    buf_printf(&reading->sql, "INSERT INTO t VALUES ('%.36s', %lld, %lld, %lld, %d, %d, decode('",
               event->id, seq, part, (long long)record->offset, record->partition,
               (int)event->kind);
    for (size_t i = 0; i < record->value_size; i++)
        buf_printf(&reading->sql, "%02x", ((const uint8_t *)record->value)[i]);
    buf_text(&reading->sql, "', 'hex'));");
    reading->count++;
    saga__v1__saga_event__free_unpacked(event, NULL);
}

int64_t outbox_check_read(struct test_kafka *kafka, const char *topic, PGconn *conn)
{
    struct err err;
    struct reading reading = { 0 };
    buf_text(&reading.sql,
             "SET search_path = sagad; SET client_min_messages = warning;"
             " DROP TABLE IF EXISTS pg_temp.t; CREATE TEMP TABLE t (uid uuid,"
             " seq bigint, part int, at bigint, partition int, kind int, value bytea);");
    ASSERT_OK(test_kafka_read(kafka, topic, on_record, &reading, &err), &err);
    PGresult *result = PQexec(conn, buf_cstr(&reading.sql));
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    PQclear(result);
    buf_done(&reading.sql);
    return reading.count;
}

int64_t outbox_check_count(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    int64_t count = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return count;
}

static void expect_none(PGconn *conn, const char *what, const char *sql)
{
    int64_t count = outbox_check_count(conn, sql);
    if (count)
        fail_msg("%s: %d", what, (int)count);
}

void outbox_check_all(PGconn *conn)
{
#define FACTS                                                                                      \
    "(SELECT saga_uid AS uid, 0::bigint AS seq, 0 AS part FROM saga UNION ALL"                     \
    " SELECT saga_uid, seq, 1 FROM journal WHERE finished_at IS NOT NULL UNION ALL"                \
    " SELECT saga_uid, (SELECT max(j.seq) FROM journal j WHERE j.shard = s.shard"                  \
    " AND j.saga_uid = s.saga_uid), 2 FROM saga s WHERE ended_at IS NOT NULL UNION ALL"            \
    " SELECT encode(substr(sha256(convert_to(handler, 'UTF8')), 1, 16), 'hex')::uuid, version, 3"  \
    " FROM handler_event) f"
#define FIRSTS "(SELECT uid, seq, part, min(at) AS at FROM t GROUP BY uid, seq, part) p"
    expect_none(conn, "events that were committed and not published",
                "SELECT count(*) FROM " FACTS " LEFT JOIN " FIRSTS
                " USING (uid, seq, part) WHERE p.at IS NULL");
    expect_none(conn, "events that were published and not committed",
                "SELECT count(*) FROM " FIRSTS " LEFT JOIN " FACTS
                " USING (uid, seq, part) WHERE f.uid IS NULL");
    expect_none(conn, "events out of order",
                "SELECT count(*) FROM (SELECT p.part, lag(p.part) OVER w AS before, p.seq,"
                " lag(p.seq) OVER w AS seq_before, j.finished_at, lag(j.finished_at) OVER w AS "
                "earlier FROM " FIRSTS
                " LEFT JOIN journal j ON j.saga_uid = p.uid AND j.seq = p.seq AND p.part = 1"
                " WINDOW w AS (PARTITION BY p.uid ORDER BY p.at)) o"
                " WHERE part < before OR (part = before AND finished_at < earlier)"
                " OR (part = 3 AND seq < seq_before)");
    expect_none(conn, "sagas or handlers in several partitions",
                "SELECT count(*) FROM (SELECT uid FROM t GROUP BY uid"
                " HAVING count(DISTINCT partition) > 1) m");
    expect_none(conn, "events that came again and were others",
                "SELECT count(*) FROM (SELECT uid FROM t GROUP BY uid, seq, part"
                " HAVING count(DISTINCT value) > 1) d");
}

int64_t outbox_check_repeated(PGconn *conn)
{
    return outbox_check_count(conn, "SELECT count(*) - count(DISTINCT (uid, seq, part)) FROM t");
}
