#include "base/clock.h"
#include "kafka/broker_error.h"
#include "support/kafka_client.h"
#include "support/wait.h"

#include <stdio.h>

int kafka_admin_begin(struct test_kafka *kafka, rd_kafka_admin_op_t operation,
                      struct kafka_admin *ret_admin, struct err *err)
{
    rd_kafka_t *client;
    if (kafka_client(kafka, &client, err))
        return (int)err->code;
    *ret_admin = (struct kafka_admin){ .client = client,
                                       .queue = rd_kafka_queue_new(client),
                                       .options = rd_kafka_AdminOptions_new(client, operation) };
    char message[200];
    rd_kafka_resp_err_t error = rd_kafka_AdminOptions_set_request_timeout(
        ret_admin->options, TEST_KAFKA_LIMIT_MS, message, sizeof message);
    if (!error)
        return 0;
    kafka_admin_end(ret_admin);
    return broker_error_set(err, error, message);
}

int kafka_admin_wait(struct kafka_admin *admin, const char *context, struct err *err)
{
    admin->event = rd_kafka_queue_poll(admin->queue, TEST_KAFKA_LIMIT_MS);
    if (!admin->event)
        return err_set(err, ERR_UNAVAILABLE, "%s: no answer within %d ms", context,
                       TEST_KAFKA_LIMIT_MS);
    rd_kafka_resp_err_t error = rd_kafka_event_error(admin->event);
    return error ? broker_error_set(err, error, context) : 0;
}

void kafka_admin_end(struct kafka_admin *admin)
{
    if (admin->event)
        rd_kafka_event_destroy(admin->event);
    if (admin->options)
        rd_kafka_AdminOptions_destroy(admin->options);
    if (admin->queue)
        rd_kafka_queue_destroy(admin->queue);
    *admin = (struct kafka_admin){ 0 };
}

int kafka_admin_topic_results(const rd_kafka_topic_result_t **results, size_t count,
                              const char *context, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        rd_kafka_resp_err_t error = rd_kafka_topic_result_error(results[i]);
        if (error) {
            (void)broker_error_set(err, error, context);
            const char *text = rd_kafka_topic_result_error_string(results[i]);
            return text ? err_wrap(err, "%s: ", text) : (int)err->code;
        }
    }
    return 0;
}

/* The partitions that have a leader; -1: the topic is not there. */
static int partitions_led(rd_kafka_t *client, const char *topic, int *ret_count, struct err *err)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    if (!handle)
        return broker_error_set(err, rd_kafka_last_error(), topic);
    rd_kafka_resp_err_t error =
        rd_kafka_metadata(client, 0, handle, &metadata, TEST_KAFKA_LIMIT_MS);
    rd_kafka_topic_destroy(handle);
    if (error)
        return broker_error_set(err, error, topic);
    const struct rd_kafka_metadata_topic *found =
        metadata->topic_cnt == 1 ? &metadata->topics[0] : NULL;
    int count = 0;
    for (int i = 0; found && i < found->partition_cnt; i++)
        count += found->partitions[i].leader >= 0;
    *ret_count = !found || found->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ? -1 : count;
    rd_kafka_metadata_destroy(metadata);
    return 0;
}

int kafka_partition_count(struct test_kafka *kafka, const char *topic, int *ret_count,
                          struct err *err)
{
    rd_kafka_t *client;
    int count;
    if (kafka_client(kafka, &client, err) || partitions_led(client, topic, &count, err))
        return (int)err->code;
    if (count <= 0)
        return err_set(err, ERR_NOT_FOUND, "topic %s is not there", topic);
    *ret_count = count;
    return 0;
}

/* -1: until it is gone. */
static int partitions_await(struct test_kafka *kafka, const char *topic, int expected,
                            struct err *err)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + TEST_KAFKA_LIMIT_MS;
    for (;;) {
        rd_kafka_t *client;
        int count;
        if (kafka_client(kafka, &client, err) || partitions_led(client, topic, &count, err))
            return (int)err->code;
        if (count == expected)
            return 0;
        if (clock_mono_ms(&clock_system) >= end_ms)
            return err_set(err, ERR_UNAVAILABLE, "topic %s has %d partitions, not %d", topic, count,
                           expected);
        wait_ms(20);
    }
}

static int topic_set(rd_kafka_NewTopic_t *topic, const char *const *settings, struct err *err)
{
    for (size_t i = 0; settings && settings[i]; i++) {
        char name[64];
        const char *equals = strchr(settings[i], '=');
        (void)snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - settings[i]) : 0,
                       settings[i]); /* one that is cut is refused */
        rd_kafka_resp_err_t error =
            rd_kafka_NewTopic_set_config(topic, name, equals ? equals + 1 : "");
        if (error)
            return broker_error_set(err, error, settings[i]);
    }
    return 0;
}

static int topic_make(struct test_kafka *kafka, rd_kafka_NewTopic_t *topic, struct err *err)
{
    struct kafka_admin admin;
    if (kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_CREATETOPICS, &admin, err))
        return (int)err->code;
    rd_kafka_CreateTopics(admin.client, &topic, 1, admin.options, admin.queue);
    int rc = kafka_admin_wait(&admin, "create a topic", err);
    if (rc == 0) {
        size_t count;
        const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(
            rd_kafka_event_CreateTopics_result(admin.event), &count);
        rc = kafka_admin_topic_results(results, count, "create a topic", err);
    }
    kafka_admin_end(&admin);
    return rc;
}

int test_kafka_topic_create(struct test_kafka *kafka, const char *topic, int partitions,
                            const char *const *settings, struct err *err)
{
    char message[200] = "";
    if (test_kafka_mock(kafka)) {
        rd_kafka_resp_err_t error =
            rd_kafka_mock_topic_create(test_kafka_mock(kafka), topic, partitions, 1);
        return error ? broker_error_set(err, error, topic)
                     : partitions_await(kafka, topic, partitions, err);
    }
    rd_kafka_NewTopic_t *made =
        rd_kafka_NewTopic_new(topic, partitions, 1, message, sizeof message);
    if (!made)
        return err_set(err, ERR_INVALID, "topic %s: %s", topic, message);
    int rc = topic_set(made, settings, err);
    if (rc == 0)
        rc = topic_make(kafka, made, err);
    rd_kafka_NewTopic_destroy(made);
    return rc ? rc : partitions_await(kafka, topic, partitions, err);
}

int test_kafka_topic_delete(struct test_kafka *kafka, const char *topic, struct err *err)
{
    struct kafka_admin admin;
    if (kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_DELETETOPICS, &admin, err))
        return (int)err->code;
    rd_kafka_DeleteTopic_t *deleted = rd_kafka_DeleteTopic_new(topic);
    rd_kafka_DeleteTopics(admin.client, &deleted, 1, admin.options, admin.queue);
    rd_kafka_DeleteTopic_destroy(deleted);
    int rc = kafka_admin_wait(&admin, "delete a topic", err);
    if (rc == 0) {
        size_t count;
        const rd_kafka_topic_result_t **results = rd_kafka_DeleteTopics_result_topics(
            rd_kafka_event_DeleteTopics_result(admin.event), &count);
        rc = kafka_admin_topic_results(results, count, "delete a topic", err);
    }
    kafka_admin_end(&admin);
    if (rc == 0)
        rc = partitions_await(kafka, topic, -1, err);
    kafka_client_drop(kafka); /* it would go on with what it knew of the topic */
    return rc;
}

int test_kafka_topic_grow(struct test_kafka *kafka, const char *topic, int partitions,
                          struct err *err)
{
    char message[200] = "";
    struct kafka_admin admin;
    rd_kafka_NewPartitions_t *more =
        rd_kafka_NewPartitions_new(topic, (size_t)partitions, message, sizeof message);
    if (!more)
        return err_set(err, ERR_INVALID, "topic %s: %s", topic, message);
    int rc = kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_CREATEPARTITIONS, &admin, err);
    if (rc == 0) {
        rd_kafka_CreatePartitions(admin.client, &more, 1, admin.options, admin.queue);
        rc = kafka_admin_wait(&admin, "add partitions", err);
        if (rc == 0) {
            size_t count;
            const rd_kafka_topic_result_t **results = rd_kafka_CreatePartitions_result_topics(
                rd_kafka_event_CreatePartitions_result(admin.event), &count);
            rc = kafka_admin_topic_results(results, count, "add partitions", err);
        }
        kafka_admin_end(&admin);
    }
    rd_kafka_NewPartitions_destroy(more);
    return rc ? rc : partitions_await(kafka, topic, partitions, err);
}

int test_kafka_topic_configure(struct test_kafka *kafka, const char *topic, const char *name,
                               const char *value, struct err *err)
{
    struct kafka_admin admin;
    if (kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_ALTERCONFIGS, &admin, err))
        return (int)err->code;
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    rd_kafka_resp_err_t error = rd_kafka_ConfigResource_set_config(resource, name, value);
    int rc = error ? broker_error_set(err, error, name) : 0;
    if (rc == 0) {
        rd_kafka_AlterConfigs(admin.client, &resource, 1, admin.options, admin.queue);
        rc = kafka_admin_wait(&admin, "configure a topic", err);
    }
    if (rc == 0) {
        size_t count;
        const rd_kafka_ConfigResource_t **results = rd_kafka_AlterConfigs_result_resources(
            rd_kafka_event_AlterConfigs_result(admin.event), &count);
        for (size_t i = 0; i < count && rc == 0; i++)
            if ((error = rd_kafka_ConfigResource_error(results[i])) != 0)
                rc = broker_error_set(err, error, "configure a topic");
    }
    rd_kafka_ConfigResource_destroy(resource);
    kafka_admin_end(&admin);
    return rc;
}

int test_kafka_records_delete(struct test_kafka *kafka, const char *topic, int partition,
                              int64_t offset, struct err *err)
{
    struct kafka_admin admin;
    if (kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_DELETERECORDS, &admin, err))
        return (int)err->code;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset =
        offset < 0 ? RD_KAFKA_OFFSET_END : offset;
    rd_kafka_DeleteRecords_t *deleted = rd_kafka_DeleteRecords_new(list);
    rd_kafka_DeleteRecords(admin.client, &deleted, 1, admin.options, admin.queue);
    rd_kafka_DeleteRecords_destroy(deleted);
    rd_kafka_topic_partition_list_destroy(list);
    int rc = kafka_admin_wait(&admin, "delete records", err);
    if (rc == 0) {
        const rd_kafka_topic_partition_list_t *results =
            rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(admin.event));
        for (int i = 0; i < results->cnt && rc == 0; i++)
            if (results->elems[i].err)
                rc = broker_error_set(err, results->elems[i].err, "delete records");
    }
    kafka_admin_end(&admin);
    return rc;
}

int test_kafka_watermarks(struct test_kafka *kafka, const char *topic, int partition,
                          int64_t *ret_low, int64_t *ret_end, struct err *err)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + TEST_KAFKA_LIMIT_MS;
    for (;;) {
        rd_kafka_t *client;
        if (kafka_client(kafka, &client, err))
            return (int)err->code;
        rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(
            client, topic, partition, ret_low, ret_end, TEST_KAFKA_LIMIT_MS);
        if (!error)
            return 0;
        /* A broker that has just begun does not know yet which partitions it leads. */
        (void)broker_error_set(err, error, topic); /* returned below */
        if (err->code != ERR_UNAVAILABLE || clock_mono_ms(&clock_system) >= end_ms)
            return (int)err->code;
        wait_ms(20);
    }
}
