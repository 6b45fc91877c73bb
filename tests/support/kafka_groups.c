#include "kafka/broker_error.h"
#include "support/kafka_client.h"

#include <stdio.h>

/* The error of a group, and of each of its partitions. */
static int group_results(const rd_kafka_group_result_t **results, size_t count,
                         const rd_kafka_topic_partition_list_t **ret_partitions,
                         const char *context, struct err *err)
{
    if (count != 1)
        return err_set(err, ERR_INTERNAL, "%s: %zu groups answered", context, count);
    const rd_kafka_error_t *refused = rd_kafka_group_result_error(results[0]);
    if (refused)
        return broker_error_set(err, rd_kafka_error_code(refused), context);
    *ret_partitions = rd_kafka_group_result_partitions(results[0]);
    for (int i = 0; *ret_partitions && i < (*ret_partitions)->cnt; i++)
        if ((*ret_partitions)->elems[i].err)
            return broker_error_set(err, (*ret_partitions)->elems[i].err, context);
    return 0;
}

int test_kafka_group_offset(struct test_kafka *kafka, const char *group, const char *topic,
                            int partition, int64_t *ret_offset, char *ret_metadata, size_t size,
                            struct err *err)
{
    struct kafka_admin admin;
    if (kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, &admin, err))
        return (int)err->code;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition);
    rd_kafka_ListConsumerGroupOffsets_t *asked = rd_kafka_ListConsumerGroupOffsets_new(group, list);
    rd_kafka_ListConsumerGroupOffsets(admin.client, &asked, 1, admin.options, admin.queue);
    rd_kafka_ListConsumerGroupOffsets_destroy(asked);
    rd_kafka_topic_partition_list_destroy(list);
    int rc = kafka_admin_wait(&admin, group, err);
    const rd_kafka_topic_partition_list_t *found = NULL;
    if (rc == 0) {
        size_t count;
        const rd_kafka_group_result_t **results = rd_kafka_ListConsumerGroupOffsets_result_groups(
            rd_kafka_event_ListConsumerGroupOffsets_result(admin.event), &count);
        rc = group_results(results, count, &found, group, err);
    }
    if (rc == 0) {
        const rd_kafka_topic_partition_t *elem = found && found->cnt == 1 ? found->elems : NULL;
        *ret_offset = elem && elem->offset >= 0 ? elem->offset : -1;
        if (ret_metadata)
            (void)snprintf(ret_metadata, size, "%.*s", elem ? (int)elem->metadata_size : 0,
                           elem && elem->metadata ? (const char *)elem->metadata : "");
    }
    kafka_admin_end(&admin);
    return rc;
}

/* The topic's partitions, or the one that is named. */
static int partitions_list(struct test_kafka *kafka, const char *topic, int partition,
                           int64_t offset, rd_kafka_topic_partition_list_t **ret_list,
                           struct err *err)
{
    int count;
    if (kafka_partition_count(kafka, topic, &count, err))
        return (int)err->code;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
    for (int i = 0; i < count; i++)
        if (partition < 0 || i == partition)
            rd_kafka_topic_partition_list_add(list, topic, i)->offset = offset;
    *ret_list = list;
    return 0;
}

int test_kafka_group_offset_set(struct test_kafka *kafka, const char *group, const char *topic,
                                int partition, int64_t offset, struct err *err)
{
    struct kafka_admin admin;
    rd_kafka_topic_partition_list_t *list;
    if (partitions_list(kafka, topic, partition, offset, &list, err))
        return (int)err->code;
    int rc = kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS, &admin, err);
    if (rc == 0) {
        rd_kafka_AlterConsumerGroupOffsets_t *altered =
            rd_kafka_AlterConsumerGroupOffsets_new(group, list);
        rd_kafka_AlterConsumerGroupOffsets(admin.client, &altered, 1, admin.options, admin.queue);
        rd_kafka_AlterConsumerGroupOffsets_destroy(altered);
        rc = kafka_admin_wait(&admin, group, err);
        if (rc == 0) {
            size_t count;
            const rd_kafka_topic_partition_list_t *found;
            const rd_kafka_group_result_t **results =
                rd_kafka_AlterConsumerGroupOffsets_result_groups(
                    rd_kafka_event_AlterConsumerGroupOffsets_result(admin.event), &count);
            rc = group_results(results, count, &found, group, err);
        }
        kafka_admin_end(&admin);
    }
    rd_kafka_topic_partition_list_destroy(list);
    return rc;
}

int test_kafka_group_offsets_delete(struct test_kafka *kafka, const char *group, const char *topic,
                                    struct err *err)
{
    struct kafka_admin admin;
    rd_kafka_topic_partition_list_t *list;
    if (partitions_list(kafka, topic, -1, RD_KAFKA_OFFSET_INVALID, &list, err))
        return (int)err->code;
    int rc = kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS, &admin, err);
    if (rc == 0) {
        rd_kafka_DeleteConsumerGroupOffsets_t *deleted =
            rd_kafka_DeleteConsumerGroupOffsets_new(group, list);
        rd_kafka_DeleteConsumerGroupOffsets(admin.client, &deleted, 1, admin.options, admin.queue);
        rd_kafka_DeleteConsumerGroupOffsets_destroy(deleted);
        rc = kafka_admin_wait(&admin, group, err);
        if (rc == 0) {
            size_t count;
            const rd_kafka_topic_partition_list_t *found;
            const rd_kafka_group_result_t **results =
                rd_kafka_DeleteConsumerGroupOffsets_result_groups(
                    rd_kafka_event_DeleteConsumerGroupOffsets_result(admin.event), &count);
            rc = group_results(results, count, &found, group, err);
        }
        kafka_admin_end(&admin);
    }
    rd_kafka_topic_partition_list_destroy(list);
    return rc;
}

int test_kafka_group_members(struct test_kafka *kafka, const char *group, size_t *ret_count,
                             struct err *err)
{
    struct kafka_admin admin;
    if (kafka_admin_begin(kafka, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, &admin, err))
        return (int)err->code;
    rd_kafka_DescribeConsumerGroups(admin.client, &group, 1, admin.options, admin.queue);
    int rc = kafka_admin_wait(&admin, group, err);
    if (rc == 0) {
        size_t count;
        const rd_kafka_ConsumerGroupDescription_t **groups =
            rd_kafka_DescribeConsumerGroups_result_groups(
                rd_kafka_event_DescribeConsumerGroups_result(admin.event), &count);
        const rd_kafka_error_t *refused =
            count == 1 ? rd_kafka_ConsumerGroupDescription_error(groups[0]) : NULL;
        if (count != 1)
            rc = err_set(err, ERR_INTERNAL, "%s: %zu groups answered", group, count);
        else if (refused && rd_kafka_error_code(refused) != RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND)
            rc = broker_error_set(err, rd_kafka_error_code(refused), group);
        else
            *ret_count = refused ? 0 : rd_kafka_ConsumerGroupDescription_member_count(groups[0]);
    }
    kafka_admin_end(&admin);
    return rc;
}
