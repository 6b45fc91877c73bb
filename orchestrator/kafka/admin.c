#include "kafka/admin.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kafka/broker_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- asking ----------------------------------------------------------------------------------- */

enum { REQUEST_MAX_MS = 3600 * 1000 }; /* the longest that librdkafka takes */

struct question {
    rd_kafka_queue_t *queue;
    rd_kafka_AdminOptions_t *options;
    rd_kafka_event_t *answer; /* NULL: none came */
    int timeout_ms;
};

static int question_begin(rd_kafka_t *handle, rd_kafka_admin_op_t kind, int timeout_ms,
                          struct question *ret, struct err *err)
{
    char text[256];
    *ret = (struct question){ .queue = rd_kafka_queue_new(handle),
                              .options = rd_kafka_AdminOptions_new(handle, kind),
                              .timeout_ms = timeout_ms };
    if (!ret->options)
        return err_set(err, ERR_UNIMPLEMENTED, "librdkafka does not know this call");
    /* A question to a group's coordinator that librdkafka (as of 2.0.2, and long after) gives up
     * by itself aborts the process once that coordinator is there again. So it never does while
     * anybody could wait: it is left behind instead, and its answer is dropped. */
    if (rd_kafka_AdminOptions_set_request_timeout(ret->options, REQUEST_MAX_MS, text, sizeof text))
        return err_set(err, ERR_INTERNAL, "time-out of %d ms: %s", REQUEST_MAX_MS, text);
    return 0;
}

static void question_done(struct question *question)
{
    if (question->answer)
        rd_kafka_event_destroy(question->answer);
    if (question->options)
        rd_kafka_AdminOptions_destroy(question->options);
    if (question->queue)
        rd_kafka_queue_destroy(question->queue);
}

static int question_wait(struct question *question, const char *what, struct err *err)
{
    question->answer = rd_kafka_queue_poll(question->queue, question->timeout_ms);
    if (!question->answer)
        return broker_error_set(err, RD_KAFKA_RESP_ERR__TIMED_OUT, what);
    rd_kafka_resp_err_t failed = rd_kafka_event_error(question->answer);
    if (!failed)
        return 0;
    const char *text = rd_kafka_event_error_string(question->answer);
    broker_error_set(err, failed, what);
    return text && *text ? err_wrap(err, "%s", text) : (int)err->code;
}

/* --- topics ----------------------------------------------------------------------------------- */

static int metadata_count(const struct rd_kafka_metadata *metadata, const char *topic, int32_t *ret,
                          struct err *err)
{
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const struct rd_kafka_metadata_topic *found = &metadata->topics[i];
        if (strcmp(found->topic, topic) != 0)
            continue;
        if (found->err)
            return broker_error_set(err, found->err, topic);
        if (found->partition_cnt <= 0 || found->partition_cnt > ADMIN_PARTITIONS_MAX)
            return err_set(err, ERR_LIMIT, "topic %s has %d partitions; 1 to %d are served", topic,
                           found->partition_cnt, ADMIN_PARTITIONS_MAX);
        *ret = found->partition_cnt;
        return 0;
    }
    return broker_error_set(err, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, topic);
}

int admin_partition_count(rd_kafka_t *handle, const char *topic, int timeout_ms, int32_t *ret,
                          struct err *err)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *object = rd_kafka_topic_new(handle, topic, NULL);
    if (!object)
        return broker_error_set(err, rd_kafka_last_error(), topic);
    rd_kafka_resp_err_t failed = rd_kafka_metadata(handle, 0, object, &metadata, timeout_ms);
    rd_kafka_topic_destroy(object);
    if (failed)
        return broker_error_set(err, failed, topic);
    int rc = metadata_count(metadata, topic, ret, err);
    rd_kafka_metadata_destroy(metadata);
    return rc;
}

static int settings_read(const rd_kafka_ConfigResource_t *resource, struct admin_topic *ret,
                         struct err *err)
{
    rd_kafka_resp_err_t failed = rd_kafka_ConfigResource_error(resource);
    if (failed)
        return broker_error_set(err, failed, "the topic's settings");
    size_t count, known = 0;
    const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resource, &count);
    for (size_t i = 0; i < count; i++) {
        const char *name = rd_kafka_ConfigEntry_name(entries[i]);
        const char *value = rd_kafka_ConfigEntry_value(entries[i]);
        if (!value)
            continue;
        if (strcmp(name, "retention.ms") == 0 && ++known)
            ret->retention_ms = strtoll(value, NULL, 10);
        else if (strcmp(name, "retention.bytes") == 0)
            ret->is_bounded_by_size = strtoll(value, NULL, 10) >= 0;
        else if (strcmp(name, "cleanup.policy") == 0 && ++known)
            ret->is_compacted = strstr(value, "compact") != NULL;
    }
    return known == 2 ? 0 : err_set(err, ERR_UNIMPLEMENTED, "the broker does not tell them");
}

int admin_topic_settings(rd_kafka_t *handle, const char *topic, int timeout_ms,
                         struct admin_topic *ret, struct err *err)
{
    struct question question;
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    int rc = question_begin(handle, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout_ms, &question, err);
    if (rc == 0) {
        rd_kafka_DescribeConfigs(handle, &resource, 1, question.options, question.queue);
        rc = question_wait(&question, "the topic's settings", err);
    }
    if (rc == 0) {
        size_t count;
        const rd_kafka_ConfigResource_t **found = rd_kafka_DescribeConfigs_result_resources(
            rd_kafka_event_DescribeConfigs_result(question.answer), &count);
        struct admin_topic topic_settings = { 0 };
        rc = count == 1 ? settings_read(found[0], &topic_settings, err)
                        : err_set(err, ERR_INTERNAL, "the topic's settings: %zu answers", count);
        if (rc == 0)
            *ret = topic_settings;
    }
    question_done(&question);
    rd_kafka_ConfigResource_destroy(resource);
    return rc;
}

/* --- offsets ---------------------------------------------------------------------------------- */

static rd_kafka_topic_partition_list_t *list_new(const char *topic,
                                                 const struct consumer_position *positions,
                                                 size_t count, int64_t offset)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, topic, positions[i].partition)->offset = offset;
    return list;
}

/* Those that the answer does not have are marked as failed. The first failure's code. */
static rd_kafka_resp_err_t list_read(const rd_kafka_topic_partition_list_t *list, const char *topic,
                                     struct consumer_position *positions, size_t count)
{
    rd_kafka_resp_err_t failed = RD_KAFKA_RESP_ERR_NO_ERROR;
    for (size_t i = 0; i < count; i++) {
        const rd_kafka_topic_partition_t *found =
            rd_kafka_topic_partition_list_find(list, topic, positions[i].partition);
        positions[i].failed = !found || found->err;
        positions[i].offset = found && found->offset >= 0 ? found->offset : -1;
        if (positions[i].failed && !failed)
            failed = found ? found->err : RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    }
    return failed;
}

int admin_offsets(rd_kafka_t *handle, const char *topic, int64_t time_ms, int timeout_ms,
                  struct consumer_position *positions, size_t count, struct err *err)
{
    if (!count)
        return 0;
    rd_kafka_topic_partition_list_t *list = list_new(topic, positions, count, time_ms);
    rd_kafka_resp_err_t failed = rd_kafka_offsets_for_times(handle, list, timeout_ms);
    if (!failed)
        failed = list_read(list, topic, positions, count);
    rd_kafka_topic_partition_list_destroy(list);
    if (failed)
        return broker_error_set(err, failed, "the log's offsets");
    bool has_none = false; /* no record as late as that: then the end */
    for (size_t i = 0; i < count; i++)
        has_none = has_none || positions[i].offset < 0;
    if (!has_none || time_ms < 0)
        return has_none ? err_set(err, ERR_INTERNAL, "the log's offsets: none") : 0;
    struct consumer_position *ends = mem_calloc(count, sizeof *ends);
    if (!ends)
        return err_set(err, ERR_NOMEM, "the log's offsets: out of memory");
    memcpy(ends, positions, count * sizeof *ends);
    int rc = admin_offsets(handle, topic, ADMIN_END, timeout_ms, ends, count, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (positions[i].offset < 0)
            positions[i].offset = ends[i].offset;
    mem_free(ends);
    return rc;
}

/* --- groups ----------------------------------------------------------------------------------- */

static int members_read(const rd_kafka_ConsumerGroupDescription_t *group, size_t *ret_count,
                        char *ret_member, size_t size, struct err *err)
{
    const rd_kafka_error_t *failed = rd_kafka_ConsumerGroupDescription_error(group);
    if (failed)
        return broker_error_set(err, rd_kafka_error_code(failed), "the group's members");
    *ret_count = rd_kafka_ConsumerGroupDescription_member_count(group);
    *ret_member = '\0';
    if (*ret_count) {
        const rd_kafka_MemberDescription_t *member =
            rd_kafka_ConsumerGroupDescription_member(group, 0);
        (void)snprintf(ret_member, size, "%s@%s", rd_kafka_MemberDescription_client_id(member),
                       rd_kafka_MemberDescription_host(member));
    }
    return 0;
}

int admin_group_members(rd_kafka_t *handle, const char *group, int timeout_ms, size_t *ret_count,
                        char *ret_member, size_t size, struct err *err)
{
    struct question question;
    int rc = question_begin(handle, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, timeout_ms, &question,
                            err);
    if (rc == 0) {
        rd_kafka_DescribeConsumerGroups(handle, &group, 1, question.options, question.queue);
        rc = question_wait(&question, "the group's members", err);
    }
    if (rc == 0) {
        size_t count;
        const rd_kafka_ConsumerGroupDescription_t **found =
            rd_kafka_DescribeConsumerGroups_result_groups(
                rd_kafka_event_DescribeConsumerGroups_result(question.answer), &count);
        rc = count == 1 ? members_read(found[0], ret_count, ret_member, size, err)
                        : err_set(err, ERR_INTERNAL, "the group's members: %zu answers", count);
    }
    question_done(&question);
    return rc;
}

int admin_group_offsets(rd_kafka_t *handle, const char *group, const char *topic, int timeout_ms,
                        struct consumer_position *positions, size_t count, struct err *err)
{
    struct question question;
    rd_kafka_topic_partition_list_t *list =
        list_new(topic, positions, count, RD_KAFKA_OFFSET_INVALID);
    rd_kafka_ListConsumerGroupOffsets_t *asked = rd_kafka_ListConsumerGroupOffsets_new(group, list);
    int rc = question_begin(handle, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, timeout_ms,
                            &question, err);
    if (rc == 0) {
        rd_kafka_ListConsumerGroupOffsets(handle, &asked, 1, question.options, question.queue);
        rc = question_wait(&question, "the group's offsets", err);
    }
    if (rc == 0) {
        size_t found_count;
        const rd_kafka_group_result_t **found = rd_kafka_ListConsumerGroupOffsets_result_groups(
            rd_kafka_event_ListConsumerGroupOffsets_result(question.answer), &found_count);
        const rd_kafka_error_t *failed = found_count ? rd_kafka_group_result_error(found[0]) : NULL;
        rd_kafka_resp_err_t code =
            failed ? rd_kafka_error_code(failed)
            : found_count
                ? list_read(rd_kafka_group_result_partitions(found[0]), topic, positions, count)
                : RD_KAFKA_RESP_ERR__UNKNOWN_GROUP;
        rc = code ? broker_error_set(err, code, "the group's offsets") : 0;
    }
    question_done(&question);
    rd_kafka_ListConsumerGroupOffsets_destroy(asked);
    rd_kafka_topic_partition_list_destroy(list);
    return rc;
}

/* 1: it has some, 0: none; negative: err. */
static int has_offsets(rd_kafka_t *handle, const char *group, const char *topic,
                       struct consumer_position *positions, size_t count, int timeout_ms,
                       struct err *err)
{
    if (admin_group_offsets(handle, group, topic, timeout_ms, positions, count, err))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (positions[i].offset >= 0)
            return 1;
    return 0;
}

static int any_group(rd_kafka_t *handle, const rd_kafka_event_t *answer, const char *topic,
                     struct consumer_position *positions, size_t count, int64_t until_ms, char *ret,
                     size_t size, struct err *err)
{
    size_t groups;
    const rd_kafka_ConsumerGroupListing_t **found = rd_kafka_ListConsumerGroups_result_valid(
        rd_kafka_event_ListConsumerGroups_result((rd_kafka_event_t *)answer), &groups);
    for (size_t i = 0; i < groups && i < ADMIN_GROUPS_MAX; i++) {
        const char *group = rd_kafka_ConsumerGroupListing_group_id(found[i]);
        int64_t left = until_ms - clock_mono_ms(&clock_system);
        if (left <= 0)
            return broker_error_set(err, RD_KAFKA_RESP_ERR__TIMED_OUT, "the groups' offsets");
        int has = has_offsets(handle, group, topic, positions, count, (int)left, err);
        if (has < 0)
            return (int)err->code;
        if (has) {
            (void)snprintf(ret, size, "%s", group);
            return 0;
        }
    }
    return 0;
}

static int groups_look(rd_kafka_t *handle, const char *topic, const char *first,
                       struct consumer_position *positions, size_t count, int timeout_ms, char *ret,
                       size_t size, struct err *err)
{
    int64_t until = clock_mono_ms(&clock_system) + timeout_ms;
    int has = has_offsets(handle, first, topic, positions, count, timeout_ms, err);
    if (has) {
        (void)snprintf(ret, size, "%s", first);
        return has < 0 ? (int)err->code : 0;
    }
    struct question question;
    int rc =
        question_begin(handle, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS, timeout_ms, &question, err);
    if (rc == 0) {
        rd_kafka_ListConsumerGroups(handle, question.options, question.queue);
        rc = question_wait(&question, "the groups", err);
    }
    if (rc == 0)
        rc = any_group(handle, question.answer, topic, positions, count, until, ret, size, err);
    question_done(&question);
    return rc;
}

int admin_group_of_topic(rd_kafka_t *handle, const char *topic, const char *first,
                         int32_t partition_count, int timeout_ms, char *ret, size_t size,
                         struct err *err)
{
    *ret = '\0';
    size_t count = (size_t)partition_count;
    struct consumer_position *positions = mem_calloc(count, sizeof *positions);
    if (!positions)
        return err_set(err, ERR_NOMEM, "the groups: out of memory");
    for (size_t i = 0; i < count; i++)
        positions[i].partition = (int32_t)i;
    int rc = groups_look(handle, topic, first, positions, count, timeout_ms, ret, size, err);
    mem_free(positions);
    return rc;
}
