#include "base/clock.h"
#include "base/mem.h"
#include "kafka/broker_error.h"
#include "support/kafka_client.h"

static rd_kafka_headers_t *headers_of(const struct test_kafka_record *record)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(record->header_count);
    for (size_t i = 0; i < record->header_count; i++) {
        const struct test_kafka_header *header = &record->headers[i];
        (void)rd_kafka_header_add(headers, header->name, -1, header->value,
                                  (ssize_t)header->size); /* it has no way to fail */
    }
    return headers;
}

/* The delivery report writes to *error if the record is not taken. */
static int record_send(rd_kafka_t *client, const char *topic,
                       const struct test_kafka_record *record, rd_kafka_resp_err_t *error,
                       struct err *err)
{
    for (;;) {
        rd_kafka_headers_t *headers = headers_of(record);
        rd_kafka_resp_err_t refused = rd_kafka_producev(
            client, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(record->partition),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
            RD_KAFKA_V_KEY((void *)(uintptr_t)record->key, record->key_size),
            RD_KAFKA_V_VALUE((void *)(uintptr_t)record->value, record->value_size),
            RD_KAFKA_V_TIMESTAMP(record->timestamp_ms), RD_KAFKA_V_HEADERS(headers),
            RD_KAFKA_V_OPAQUE(error), RD_KAFKA_V_END);
        if (!refused)
            return 0;
        rd_kafka_headers_destroy(headers); /* librdkafka takes them only with the record */
        if (refused != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            return broker_error_set(err, refused, topic);
        (void)rd_kafka_poll(client, 100); /* how many it served does not matter */
    }
}

int test_kafka_produce(struct test_kafka *kafka, const char *topic,
                       const struct test_kafka_record *records, size_t count, struct err *err)
{
    rd_kafka_t *client;
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    int rc = kafka_client(kafka, &client, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = record_send(client, topic, &records[i], &error, err);
    rd_kafka_resp_err_t late = rd_kafka_flush(client, TEST_KAFKA_LIMIT_MS);
    if (late)
        kafka_client_drop(kafka); /* no report may point here once we have returned */
    if (rc == 0 && (error || late))
        rc = broker_error_set(err, error ? error : late, topic);
    return rc;
}

int test_kafka_put(struct test_kafka *kafka, const char *topic, int partition, const char *key,
                   const char *value, struct err *err)
{
    const struct test_kafka_record record = { .partition = partition,
                                              .key = key,
                                              .key_size = key ? strlen(key) : 0,
                                              .value = value,
                                              .value_size = value ? strlen(value) : 0 };
    return test_kafka_produce(kafka, topic, &record, 1, err);
}

/* --- reading --- */

struct reading {
    rd_kafka_t *consumer;
    rd_kafka_topic_partition_list_t *ends; /* offset: where each partition ends */
    int left;                              /* partitions that are not read to their end */
    void (*each)(void *ctx, const struct test_kafka_record *record);
    void *ctx;
};

static int ends_ask(struct test_kafka *kafka, const char *topic, struct reading *reading,
                    rd_kafka_topic_partition_list_t *begins, struct err *err)
{
    int count;
    if (kafka_partition_count(kafka, topic, &count, err))
        return (int)err->code;
    for (int i = 0; i < count; i++) {
        int64_t low, end;
        if (test_kafka_watermarks(kafka, topic, i, &low, &end, err))
            return (int)err->code;
        rd_kafka_topic_partition_list_add(reading->ends, topic, i)->offset = end;
        if (low == end)
            continue;
        rd_kafka_topic_partition_list_add(begins, topic, i)->offset = low;
        reading->left++;
    }
    return 0;
}

enum { HEADERS_MAX = 64 };

static void record_tell(struct reading *reading, const rd_kafka_message_t *message)
{
    struct test_kafka_header headers[HEADERS_MAX];
    struct test_kafka_record record = { .partition = message->partition,
                                        .offset = message->offset,
                                        .key = message->key,
                                        .key_size = message->key_len,
                                        .value = message->payload,
                                        .value_size = message->len,
                                        .headers = headers };
    rd_kafka_timestamp_type_t type;
    record.timestamp_ms = rd_kafka_message_timestamp(message, &type);
    rd_kafka_headers_t *found;
    if (rd_kafka_message_headers(message, &found) == RD_KAFKA_RESP_ERR_NO_ERROR)
        while (record.header_count < HEADERS_MAX &&
               rd_kafka_header_get_all(
                   found, record.header_count, &headers[record.header_count].name,
                   &headers[record.header_count].value, &headers[record.header_count].size) == 0)
            record.header_count++;
    reading->each(reading->ctx, &record);
}

/* A partition's end was reached: by its last record, or by a gap before it. */
static void partition_ends(struct reading *reading, const rd_kafka_message_t *message)
{
    rd_kafka_topic_partition_t *end = &reading->ends->elems[message->partition];
    int64_t next = message->err ? message->offset : message->offset + 1;
    if (end->offset >= 0 && next >= end->offset) {
        end->offset = -1; /* once */
        reading->left--;
    }
}

static int messages_read(struct reading *reading, const char *topic, struct err *err)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + TEST_KAFKA_LIMIT_MS;
    while (reading->left > 0) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reading->consumer, 100);
        if (message) {
            rd_kafka_resp_err_t error = message->err;
            bool ours = message->partition >= 0 && message->partition < reading->ends->cnt;
            bool wanted =
                ours && !error && message->offset < reading->ends->elems[message->partition].offset;
            if (wanted)
                record_tell(reading, message);
            if (ours && (!error || error == RD_KAFKA_RESP_ERR__PARTITION_EOF))
                partition_ends(reading, message);
            rd_kafka_message_destroy(message);
        }
        if (clock_mono_ms(&clock_system) >= end_ms)
            return err_set(err, ERR_UNAVAILABLE, "%s: %d partitions are not read to their end",
                           topic, reading->left);
    }
    return 0;
}

int test_kafka_read(struct test_kafka *kafka, const char *topic,
                    void (*each)(void *ctx, const struct test_kafka_record *record), void *ctx,
                    struct err *err)
{
    static const char *const settings[] = { "group.id=test-read",      "enable.auto.commit=false",
                                            "auto.offset.reset=error", "enable.partition.eof=true",
                                            "fetch.wait.max.ms=20",    NULL };
    rd_kafka_conf_t *conf;
    char message[200] = "";
    if (kafka_client_conf(kafka, settings, &conf, err))
        return (int)err->code;
    struct reading reading = { .consumer =
                                   rd_kafka_new(RD_KAFKA_CONSUMER, conf, message, sizeof message),
                               .ends = rd_kafka_topic_partition_list_new(16),
                               .each = each,
                               .ctx = ctx };
    rd_kafka_topic_partition_list_t *begins = rd_kafka_topic_partition_list_new(16);
    int rc = reading.consumer ? ends_ask(kafka, topic, &reading, begins, err)
                              : err_set(err, ERR_INTERNAL, "%s", message);
    if (rc == 0) {
        rd_kafka_resp_err_t error = rd_kafka_assign(reading.consumer, begins);
        rc = error ? broker_error_set(err, error, topic) : messages_read(&reading, topic, err);
    }
    rd_kafka_topic_partition_list_destroy(begins);
    rd_kafka_topic_partition_list_destroy(reading.ends);
    if (reading.consumer)
        rd_kafka_destroy(reading.consumer);
    else
        rd_kafka_conf_destroy(conf);
    return rc;
}

int test_kafka_count(struct test_kafka *kafka, const char *topic, int64_t *ret_count,
                     struct err *err)
{
    int partitions;
    int64_t sum = 0;
    if (kafka_partition_count(kafka, topic, &partitions, err))
        return (int)err->code;
    for (int i = 0; i < partitions; i++) {
        int64_t low, end;
        if (test_kafka_watermarks(kafka, topic, i, &low, &end, err))
            return (int)err->code;
        sum += end - low;
    }
    *ret_count = sum;
    return 0;
}
