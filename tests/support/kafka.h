/* A Kafka for a test program: a real broker (tests/kafka/broker.sh; one node, loopback only, dies
 * with the test program) or librdkafka's mock cluster in this process, which serves other processes
 * too. Where there is no real one, test_kafka_start says so and gives NULL; tests begin with
 *
 *     KAFKA_OR_SKIP(kafka);
 *
 * and count as skipped, by name. Every call is bounded in time (TEST_KAFKA_LIMIT_MS). Who has to
 * see protocol errors pushed or brokers go away takes the mock; groups that are fenced, records
 * that are deleted, topics that are made anew need the real one. thread: the test thread only. */
#ifndef SUPPORT_KAFKA_H
#define SUPPORT_KAFKA_H

#include "support/check.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

enum { TEST_KAFKA_LIMIT_MS = 120000 };

struct test_kafka;

/* Every record of a partition at most once, a topic that nobody made does not exist. `settings`:
 * "name=value" for the broker, NULL at the end; NULL: none. *ret_kafka is NULL, and 0 is returned,
 * where no real broker can be had. The caller owns *ret_kafka and calls test_kafka_free. */
MUST_USE int test_kafka_start(const char *const *settings, struct test_kafka **ret_kafka,
                              struct err *err);
/* librdkafka's mock cluster. It knows topics (test_kafka_topic_create, without settings), records,
 * groups and offsets; not test_kafka_records_delete, nor the group's and topic's other calls.
 * Unlike the real one it makes a topic that somebody asks for. */
MUST_USE int test_kafka_mock_start(int brokers, struct test_kafka **ret_kafka, struct err *err);
/* Ends it and removes its files. NULL is fine; always returns NULL. */
struct test_kafka *test_kafka_free(struct test_kafka *kafka);

const char *test_kafka_bootstrap(const struct test_kafka *kafka); /* borrowed: "127.0.0.1:12345" */
/* Of the mock: for rd_kafka_mock_push_request_errors, rd_kafka_mock_broker_set_down ... NULL: a
 * real one. */
rd_kafka_mock_cluster_t *test_kafka_mock(struct test_kafka *kafka);
/* The test, by its name, is one that could not run; then cmocka's skip(). */
#define KAFKA_OR_SKIP(kafka)                                                                       \
    do {                                                                                           \
        if (!(kafka)) {                                                                            \
            print_message("SKIPPED: %s: no Kafka broker here\n", __func__);                        \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* --- the real broker's process --- */

/* kill -9. */
void test_kafka_kill(struct test_kafka *kafka);
/* SIGTERM: as an operator stops it. */
MUST_USE int test_kafka_stop(struct test_kafka *kafka, struct err *err);
/* With the same port and data, after one of those; returns when it serves. */
MUST_USE int test_kafka_restart(struct test_kafka *kafka, struct err *err);
/* SIGSTOP, SIGCONT. */
MUST_USE int test_kafka_signal(struct test_kafka *kafka, int signal_number, struct err *err);

/* --- topics --- */

/* `settings`: "retention.ms=-1", NULL at the end; NULL: none. Returns when it can be written to. */
MUST_USE int test_kafka_topic_create(struct test_kafka *kafka, const char *topic, int partitions,
                                     const char *const *settings, struct err *err);
/* Returns when its name is free again. */
MUST_USE int test_kafka_topic_delete(struct test_kafka *kafka, const char *topic, struct err *err);
/* More partitions, up to `partitions` in total. */
MUST_USE int test_kafka_topic_grow(struct test_kafka *kafka, const char *topic, int partitions,
                                   struct err *err);
/* One setting of a topic anew; the others that it was made with are gone. */
MUST_USE int test_kafka_topic_configure(struct test_kafka *kafka, const char *topic,
                                        const char *name, const char *value, struct err *err);
/* Records before `offset` are gone from the log (-1: all that are there). */
MUST_USE int test_kafka_records_delete(struct test_kafka *kafka, const char *topic, int partition,
                                       int64_t offset, struct err *err);
/* The first offset that is there, and the one that comes next. */
MUST_USE int test_kafka_watermarks(struct test_kafka *kafka, const char *topic, int partition,
                                   int64_t *ret_low, int64_t *ret_end, struct err *err);

/* --- records --- */

struct test_kafka_header {
    const char *name;
    const void *value; /* NULL: a null value */
    size_t size;
};

/* A buffer that is NULL is a null key or a null value (a tombstone); one of size 0 is empty. */
struct test_kafka_record {
    int partition;
    int64_t timestamp_ms; /* 0: now */
    const void *key, *value;
    size_t key_size, value_size;
    const struct test_kafka_header *headers;
    size_t header_count;
    int64_t offset; /* set by test_kafka_read */
};

/* Returns when the broker has all of them; those of one partition in this order. */
MUST_USE int test_kafka_produce(struct test_kafka *kafka, const char *topic,
                                const struct test_kafka_record *records, size_t count,
                                struct err *err);
/* The short form: a text as key and as value (NULL: null). */
MUST_USE int test_kafka_put(struct test_kafka *kafka, const char *topic, int partition,
                            const char *key, const char *value, struct err *err);

/* Calls `each` for every record that the topic has at the moment of the call, per partition in
 * order, and returns after the last one; what the record points to lives until `each` returns. */
MUST_USE int test_kafka_read(struct test_kafka *kafka, const char *topic,
                             void (*each)(void *ctx, const struct test_kafka_record *record),
                             void *ctx, struct err *err);
/* How many records a topic holds, by its watermarks. */
MUST_USE int test_kafka_count(struct test_kafka *kafka, const char *topic, int64_t *ret_count,
                              struct err *err);

/* --- groups --- */

/* The group's committed offset; -1: it has none. `ret_metadata` (NULL: not wanted) is cut to
 * `size` - 1 bytes. */
MUST_USE int test_kafka_group_offset(struct test_kafka *kafka, const char *group, const char *topic,
                                     int partition, int64_t *ret_offset, char *ret_metadata,
                                     size_t size, struct err *err);
/* As somebody else would; the group has no members. Partition -1: all of the topic's. */
MUST_USE int test_kafka_group_offset_set(struct test_kafka *kafka, const char *group,
                                         const char *topic, int partition, int64_t offset,
                                         struct err *err);
/* All offsets that the group has for the topic; it has no members that read it. */
MUST_USE int test_kafka_group_offsets_delete(struct test_kafka *kafka, const char *group,
                                             const char *topic, struct err *err);
/* How many members it has now; 0: also when nobody knows such a group. */
MUST_USE int test_kafka_group_members(struct test_kafka *kafka, const char *group,
                                      size_t *ret_count, struct err *err);

#endif
