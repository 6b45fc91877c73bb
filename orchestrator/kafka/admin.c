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
        else if (strcmp(name, "segment.ms") == 0 && ++known)
            ret->segment_ms = strtoll(value, NULL, 10);
        else if (strcmp(name, "retention.bytes") == 0)
            ret->is_bounded_by_size = strtoll(value, NULL, 10) >= 0;
        else if (strcmp(name, "cleanup.policy") == 0 && ++known)
            ret->is_compacted = strstr(value, "compact") != NULL;
    }
    return known == 3 ? 0 : err_set(err, ERR_UNIMPLEMENTED, "the broker does not tell them");
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

/* All groups of a cluster are asked for their offsets, many at a time: a call of librdkafka takes
 * one group. */
enum {
    GROUPS_ASKED_MAX = 64,
    GROUPS_ASKED_ELEMENTS = 20000, /* partitions in all that are asked */
    GROUPS_LOOK_MS = 100,          /* so soon it is seen that the end was asked for */
};

struct groups {
    rd_kafka_t *handle;
    const char *topic;
    struct consumer_position *positions; /* all partitions; filled by each answer */
    size_t position_count;
    const rd_kafka_ConsumerGroupListing_t **found; /* NULL: only `first` */
    size_t count, asked, answered;
    int64_t until_ms;
    const atomic_bool *ends;
    char *ret;
    size_t ret_size;
};

static void groups_ask(struct groups *groups, const struct question *question, const char *group)
{
    rd_kafka_topic_partition_list_t *list =
        list_new(groups->topic, groups->positions, groups->position_count, RD_KAFKA_OFFSET_INVALID);
    rd_kafka_ListConsumerGroupOffsets_t *asked = rd_kafka_ListConsumerGroupOffsets_new(group, list);
    rd_kafka_ListConsumerGroupOffsets(groups->handle, &asked, 1, question->options,
                                      question->queue);
    rd_kafka_ListConsumerGroupOffsets_destroy(asked);
    rd_kafka_topic_partition_list_destroy(list);
    groups->asked++;
}

/* The name of a group that has offsets goes to `ret`. */
static int groups_answer(struct groups *groups, const rd_kafka_event_t *event, struct err *err)
{
    size_t count = 0;
    rd_kafka_resp_err_t code = rd_kafka_event_error((rd_kafka_event_t *)event);
    const rd_kafka_group_result_t **found = NULL;
    if (!code) {
        found = rd_kafka_ListConsumerGroupOffsets_result_groups(
            rd_kafka_event_ListConsumerGroupOffsets_result((rd_kafka_event_t *)event), &count);
        const rd_kafka_error_t *failed = count ? rd_kafka_group_result_error(found[0]) : NULL;
        code = failed  ? rd_kafka_error_code(failed)
               : count ? list_read(rd_kafka_group_result_partitions(found[0]), groups->topic,
                                   groups->positions, groups->position_count)
                       : RD_KAFKA_RESP_ERR__UNKNOWN_GROUP;
    }
    if (code)
        return broker_error_set(err, code, "the groups' offsets");
    groups->answered++;
    for (size_t i = 0; i < groups->position_count; i++) {
        if (groups->positions[i].offset < 0)
            continue;
        (void)snprintf(groups->ret, groups->ret_size, "%s", rd_kafka_group_result_name(found[0]));
        break;
    }
    return 0;
}

static int groups_late(const struct groups *groups, struct err *err)
{
    int rc = err_reason(err, ERR_UNAVAILABLE, "GROUPS_UNKNOWN",
                        "only %zu of %zu groups have told in time whether they have offsets on %s",
                        groups->answered, groups->count, groups->topic);
    err->retryable = true;
    return rc;
}

/* The answers are waited for until one has offsets. */
static int groups_wait(struct groups *groups, const struct question *question, size_t room,
                       struct err *err)
{
    int rc = 0;
    while (rc == 0 && !*groups->ret && groups->answered < groups->count) {
        for (; groups->asked < groups->count && groups->asked - groups->answered < room;)
            groups_ask(groups, question,
                       rd_kafka_ConsumerGroupListing_group_id(groups->found[groups->asked]));
        int64_t left = groups->until_ms - clock_mono_ms(&clock_system);
        if (left <= 0 || (groups->ends && atomic_load(groups->ends)))
            return groups_late(groups, err);
        rd_kafka_event_t *event = rd_kafka_queue_poll(
            question->queue, left < GROUPS_LOOK_MS ? (int)left : GROUPS_LOOK_MS);
        if (!event)
            continue;
        rc = groups_answer(groups, event, err);
        rd_kafka_event_destroy(event);
    }
    return rc;
}

static int groups_all(struct groups *groups, struct err *err)
{
    struct question question;
    size_t room = GROUPS_ASKED_ELEMENTS / groups->position_count;
    if (room > GROUPS_ASKED_MAX)
        room = GROUPS_ASKED_MAX;
    int rc = question_begin(groups->handle, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, 0,
                            &question, err);
    if (rc == 0)
        rc = groups_wait(groups, &question, room ? room : 1, err);
    question_done(&question);
    return rc;
}

/* 1: it has some, 0: none; negative: err. */
static int has_offsets(struct groups *groups, const char *group, int timeout_ms, struct err *err)
{
    if (admin_group_offsets(groups->handle, group, groups->topic, timeout_ms, groups->positions,
                            groups->position_count, err))
        return -1;
    for (size_t i = 0; i < groups->position_count; i++)
        if (groups->positions[i].offset >= 0)
            return 1;
    return 0;
}

/* All groups of all brokers, or an error: of a group that is not in the list nobody would be asked.
 */
static int groups_list(struct groups *groups, const struct question *question, struct err *err)
{
    size_t failed;
    const rd_kafka_ListConsumerGroups_result_t *result =
        rd_kafka_event_ListConsumerGroups_result(question->answer);
    const rd_kafka_error_t **errors = rd_kafka_ListConsumerGroups_result_errors(result, &failed);
    if (failed)
        return broker_error_set(err, rd_kafka_error_code(errors[0]), "the groups");
    groups->found = rd_kafka_ListConsumerGroups_result_valid(result, &groups->count);
    return 0;
}

static int groups_look(struct groups *groups, const char *first, int timeout_ms, struct err *err)
{
    int has = has_offsets(groups, first, timeout_ms, err);
    if (has) {
        (void)snprintf(groups->ret, has < 0 ? 1 : groups->ret_size, "%s", first);
        return has < 0 ? (int)err->code : 0;
    }
    struct question question;
    int rc = question_begin(groups->handle, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS, timeout_ms,
                            &question, err);
    if (rc == 0) {
        rd_kafka_ListConsumerGroups(groups->handle, question.options, question.queue);
        rc = question_wait(&question, "the groups", err);
    }
    if (rc == 0)
        rc = groups_list(groups, &question, err);
    if (rc == 0)
        rc = groups_all(groups, err);
    question_done(&question);
    return rc;
}

int admin_group_of_topic(rd_kafka_t *handle, const char *topic, const char *first,
                         int32_t partition_count, const struct admin_limits *limits, char *ret,
                         size_t size, struct err *err)
{
    *ret = '\0';
    size_t count = (size_t)partition_count;
    struct consumer_position *positions = mem_calloc(count, sizeof *positions);
    if (!positions)
        return err_set(err, ERR_NOMEM, "the groups: out of memory");
    for (size_t i = 0; i < count; i++)
        positions[i].partition = (int32_t)i;
    struct groups groups = { .handle = handle,
                             .topic = topic,
                             .positions = positions,
                             .position_count = count,
                             .until_ms = clock_mono_ms(&clock_system) + limits->total_ms,
                             .ends = limits->ends,
                             .ret = ret,
                             .ret_size = size };
    int rc = groups_look(&groups, first, limits->call_ms, err);
    mem_free(positions);
    return rc;
}
