#include "kafka/consumer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "kafka/broker_error.h"
#include "kafka/client_close.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARK_SIZE = KAFKA_RULE_NAME_BYTES + 8, LEAVE_LOOK_MS = 50 };

struct consumer {
    rd_kafka_t *handle;
    char *topic;
    char mark[MARK_SIZE];
    bool joined;                    /* it has subscribed */
    bool was_assigned, was_revoked; /* to be told by the next poll */
    bool paused;
    int32_t *partitions; /* of the group's last word */
    size_t partition_count;
    rd_kafka_topic_partition_list_t *reading; /* what consumer_assign said; NULL: nothing */
    rd_kafka_message_t *held;                 /* came together with a word of the group */
    struct err error;                         /* of a callback; code ERR_OK: none */
};

/* --- callbacks; on the owner's thread, inside consumer_poll -------------------------------------
 */

static int compare_partitions(const void *a, const void *b)
{
    const int32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static void reading_is(struct consumer *consumer, rd_kafka_topic_partition_list_t *reading)
{
    if (consumer->reading)
        rd_kafka_topic_partition_list_destroy(consumer->reading);
    consumer->reading = reading;
}

static int partitions_keep(struct consumer *consumer, const rd_kafka_topic_partition_list_t *list)
{
    size_t count = 0;
    int32_t *partitions = mem_calloc((size_t)list->cnt + 1, sizeof *partitions);
    if (!partitions)
        return err_set(&consumer->error, ERR_NOMEM, "assignment: out of memory");
    for (int i = 0; i < list->cnt; i++)
        if (strcmp(list->elems[i].topic, consumer->topic) == 0)
            partitions[count++] = list->elems[i].partition;
    qsort(partitions, count, sizeof *partitions, compare_partitions);
    mem_free(consumer->partitions);
    consumer->partitions = partitions;
    consumer->partition_count = count;
    return 0;
}

/* librdkafka stops reading in the background, in turn with what it is told through the same queue,
 * and aborts the process when it is to stop what is stopping already (2.0.2). A question through
 * that queue is answered behind the stops: so nobody can assign anew too early. */
static rd_kafka_resp_err_t assign(rd_kafka_t *handle, const rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_resp_err_t failed = rd_kafka_assign(handle, list);
    for (int i = 0; i < 2 && !failed; i++) { /* the stops; what they answer */
        rd_kafka_topic_partition_list_t *assigned = NULL;
        failed = rd_kafka_assignment(handle, &assigned);
        if (assigned)
            rd_kafka_topic_partition_list_destroy(assigned);
    }
    return failed;
}

/* The group waits for our rd_kafka_assign, which the owner calls when it knows the cursors. */
static void on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                         rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct consumer *consumer = opaque;
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS && partitions_keep(consumer, list) == 0) {
        consumer->was_assigned = true;
    } else {
        consumer_resume(consumer);
        rd_kafka_resp_err_t failed = assign(handle, NULL);
        if (failed)
            broker_error_set(&consumer->error, failed, "giving partitions back");
        else if (code != RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS &&
                 code != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS)
            broker_error_set(&consumer->error, code, "rebalance");
        reading_is(consumer, NULL);
        consumer->partition_count = 0;
        consumer->was_assigned = false;
        consumer->was_revoked = true;
    }
    rd_kafka_yield(handle);
}

static void on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    struct consumer *consumer = opaque;
    (void)handle;
    if (code == RD_KAFKA_RESP_ERR__FATAL) /* consumer_poll returns it, too */
        return;
    broker_error_set(&consumer->error, (rd_kafka_resp_err_t)code, reason);
}

static void on_log(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
    enum { SYSLOG_WARNING = 4 };
    log_line(level <= SYSLOG_WARNING ? LOG_WARN : LOG_DEBUG, "librdkafka", "client",
             handle ? rd_kafka_name(handle) : NULL, "facility", facility, "text", text, NULL);
}

static void on_followed(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                        rd_kafka_topic_partition_list_t *list, void *opaque)
{
    (void)handle;
    (void)list;
    (void)opaque;
    /* The next one carries the same or more; the cursor needs none of them. */
    if (code && code != RD_KAFKA_RESP_ERR__NO_OFFSET)
        log_line(LOG_DEBUG, "the group's offsets do not follow", "err", rd_kafka_err2str(code),
                 NULL);
}

/* --- making one ---------------------------------------------------------------------------------
 */

struct setting {
    const char *name, *value;
};

static int conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct err *err)
{
    char text[256];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return 0;
    return err_set(err, ERR_INVALID, "librdkafka.%s: %s", name, text);
}

static int conf_add(rd_kafka_conf_t *conf, const struct kafka_properties *properties,
                    struct err *err)
{
    for (size_t i = 0; properties && i < properties->count; i++)
        if (conf_set(conf, properties->items[i].name, properties->items[i].value, err))
            return (int)err->code;
    return 0;
}

static int conf_fill(rd_kafka_conf_t *conf, const struct consumer_options *options, struct err *err)
{
    const struct setting first[] = {
        /* what a property of the user may change */
        { "socket.keepalive.enable", "true" }, { "socket.nagle.disable", "true" },
        { "log.connection.close", "false" },   { "topic.metadata.refresh.interval.ms", "30000" },
        { "queued.min.messages", "20000" },    { "check.crcs", "true" },
    };
    const struct setting last[] = {
        /* and what rests on a promise */
        { "client.id", "sagad" },
        { "bootstrap.servers", options->brokers },
        { "group.id", options->group },
        { "group.instance.id", options->instance },
        { "partition.assignment.strategy", "range" },
        { "enable.auto.commit", "false" },
        { "enable.auto.offset.store", "false" },
        { "auto.offset.reset", "error" },
        { "isolation.level", "read_committed" },
        { "enable.partition.eof", "true" },
        { "queued.max.messages.kbytes", log_fmt("%d", CONSUMER_QUEUED_KIB) },
        { "fetch.max.bytes", log_fmt("%d", CONSUMER_FETCH_BYTES) },
    };
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        if (conf_set(conf, first[i].name, first[i].value, err))
            return (int)err->code;
    if (conf_add(conf, options->common, err) || conf_add(conf, options->own, err))
        return (int)err->code;
    for (size_t i = 0; i < ARRAY_LEN(last); i++)
        if (last[i].value && conf_set(conf, last[i].name, last[i].value, err))
            return (int)err->code;
    return 0;
}

static int handle_new(struct consumer *consumer, const struct consumer_options *options,
                      struct err *err)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (conf_fill(conf, options, err)) {
        rd_kafka_conf_destroy(conf);
        return (int)err->code;
    }
    rd_kafka_conf_set_opaque(conf, consumer);
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    rd_kafka_conf_set_offset_commit_cb(conf, on_followed);
    consumer->handle = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!consumer->handle) {
        rd_kafka_conf_destroy(conf);
        return err_set(err, ERR_INVALID, "librdkafka: %s", text);
    }
    (void)rd_kafka_poll_set_consumer(consumer->handle); /* fails for producers alone */
    return 0;
}

int consumer_new(const struct consumer_options *options, struct consumer **ret, struct err *err)
{
    struct consumer *consumer = mem_calloc(1, sizeof *consumer);
    if (!consumer || !(consumer->topic = mem_strdup(options->topic))) {
        mem_free(consumer);
        return err_set(err, ERR_NOMEM, "consumer: out of memory");
    }
    (void)snprintf(consumer->mark, sizeof consumer->mark, "%s", options->mark);
    if (handle_new(consumer, options, err)) {
        mem_free(consumer->topic);
        mem_free(consumer);
        return (int)err->code;
    }
    *ret = consumer;
    return 0;
}

rd_kafka_t *consumer_handle(struct consumer *consumer)
{
    return consumer->handle;
}

/* --- the end of one --------------------------------------------------------------------------- */

static void consumer_ended(void *ctx)
{
    struct consumer *consumer = ctx;
    mem_free(consumer->partitions);
    mem_free(consumer->topic);
    mem_free(consumer);
}

static struct consumer *consumer_end(struct consumer *consumer, bool closes, int64_t timeout_ms)
{
    if (!consumer)
        return NULL;
    if (consumer->held)
        rd_kafka_message_destroy(consumer->held);
    consumer->held = NULL;
    reading_is(consumer, NULL);
    client_close(consumer->handle, closes, timeout_ms, consumer_ended, consumer);
    return NULL;
}

struct consumer *consumer_close(struct consumer *consumer, int64_t timeout_ms)
{
    return consumer_end(consumer, false, timeout_ms);
}

/* Its id is gone with the word that it leaves. Closed before that, a static member stays. */
static bool is_member(const struct consumer *consumer)
{
    char *id = rd_kafka_memberid(consumer->handle);
    bool is = id && *id;
    if (id)
        rd_kafka_mem_free(consumer->handle, id);
    return is;
}

struct consumer *consumer_leave(struct consumer *consumer, int64_t timeout_ms)
{
    if (!consumer || !consumer->joined)
        return consumer_end(consumer, false, timeout_ms);
    /* A static member is told to leave by this call alone, never by its close. */
    int64_t until = clock_mono_ms(&clock_system) + timeout_ms;
    bool told = rd_kafka_unsubscribe(consumer->handle) == RD_KAFKA_RESP_ERR_NO_ERROR;
    while (told && is_member(consumer) && clock_mono_ms(&clock_system) < until) {
        struct consumer_event event;
        consumer_poll(consumer, LEAVE_LOOK_MS, &event);
        if (event.message)
            rd_kafka_message_destroy(event.message);
        if (event.kind == CONSUMER_FATAL)
            break;
    }
    int64_t left = until - clock_mono_ms(&clock_system);
    return consumer_end(consumer, told, left > LEAVE_LOOK_MS ? left : LEAVE_LOOK_MS);
}

/* --- events --------------------------------------------------------------------------------------
 */

int consumer_subscribe(struct consumer *consumer, struct err *err)
{
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, consumer->topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t failed = rd_kafka_subscribe(consumer->handle, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (failed)
        return broker_error_set(err, failed, "subscribe");
    consumer->joined = true;
    return 0;
}

static void event_of_message(struct consumer *consumer, rd_kafka_message_t *message,
                             struct consumer_event *ret)
{
    ret->partition = message->partition;
    ret->offset = message->offset;
    switch (message->err) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
        ret->kind = CONSUMER_RECORD;
        ret->message = message;
        return;
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        ret->kind = CONSUMER_END;
        break;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        ret->kind = CONSUMER_OUT_OF_RANGE;
        break;
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID: {
        char text[256] = "";
        rd_kafka_resp_err_t code = rd_kafka_fatal_error(consumer->handle, text, sizeof text);
        ret->kind = CONSUMER_FATAL;
        broker_error_set(&ret->err, code ? code : message->err,
                         *text ? text : rd_kafka_message_errstr(message));
        if (code == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID ||
            message->err == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID)
            (void)snprintf(ret->err.reason, sizeof ret->err.reason, "FENCED");
        break;
    }
    default:
        ret->kind = CONSUMER_ERROR;
        broker_error_set(&ret->err, message->err, rd_kafka_message_errstr(message));
        break;
    }
    rd_kafka_message_destroy(message);
}

/* What the callbacks left comes before what they came with. */
static bool event_of_callback(struct consumer *consumer, struct consumer_event *ret)
{
    if (consumer->was_revoked) {
        consumer->was_revoked = false;
        ret->kind = CONSUMER_REVOKED;
    } else if (consumer->was_assigned) {
        consumer->was_assigned = false;
        ret->kind = CONSUMER_ASSIGNED;
    } else if (consumer->error.code) {
        ret->kind = CONSUMER_ERROR;
        ret->err = consumer->error;
        consumer->error.code = ERR_OK;
    }
    return ret->kind != CONSUMER_NOTHING;
}

void consumer_poll(struct consumer *consumer, int timeout_ms, struct consumer_event *ret)
{
    ret->kind = CONSUMER_NOTHING;
    ret->message = NULL;
    if (event_of_callback(consumer, ret))
        return;
    rd_kafka_message_t *message = consumer->held;
    consumer->held = NULL;
    if (!message)
        message = rd_kafka_consumer_poll(consumer->handle, timeout_ms);
    if (event_of_callback(consumer, ret))
        consumer->held = message;
    else if (message)
        event_of_message(consumer, message, ret);
}

const int32_t *consumer_partitions(const struct consumer *consumer, size_t *ret_count)
{
    *ret_count = consumer->partition_count;
    return consumer->partitions;
}

/* --- positions -----------------------------------------------------------------------------------
 */

static rd_kafka_topic_partition_list_t *list_of(const struct consumer *consumer,
                                                const struct consumer_position *positions,
                                                size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, consumer->topic, positions[i].partition)->offset =
            positions[i].offset;
    return list;
}

int consumer_assign(struct consumer *consumer, const struct consumer_position *positions,
                    size_t count, struct err *err)
{
    rd_kafka_topic_partition_list_t *list = list_of(consumer, positions, count);
    consumer_resume(consumer);
    rd_kafka_resp_err_t failed = assign(consumer->handle, list);
    if (failed) {
        rd_kafka_topic_partition_list_destroy(list);
        return broker_error_set(err, failed, "assign");
    }
    reading_is(consumer, list);
    return 0;
}

/* Resuming what is not paused may rewind it: each is said once. What is assigned anew is paused
 * still, so it is resumed before that. */
void consumer_pause(struct consumer *consumer)
{
    if (consumer->paused || !consumer->reading)
        return;
    (void)rd_kafka_pause_partitions(consumer->handle,
                                    consumer->reading); /* of unknown ones alone */
    consumer->paused = true;
}

void consumer_resume(struct consumer *consumer)
{
    if (!consumer->paused || !consumer->reading)
        return;
    (void)rd_kafka_resume_partitions(consumer->handle, consumer->reading); /* as above */
    consumer->paused = false;
}

int consumer_committed(struct consumer *consumer, struct consumer_position *positions, size_t count,
                       int timeout_ms, struct err *err)
{
    rd_kafka_topic_partition_list_t *list = list_of(consumer, positions, count);
    rd_kafka_resp_err_t failed = rd_kafka_committed(consumer->handle, list, timeout_ms);
    for (size_t i = 0; !failed && i < count; i++) {
        const rd_kafka_topic_partition_t *found =
            rd_kafka_topic_partition_list_find(list, consumer->topic, positions[i].partition);
        size_t mark = strlen(consumer->mark);
        positions[i].failed = !found || found->err;
        positions[i].offset = found && found->offset >= 0 ? found->offset : -1;
        positions[i].is_ours =
            found && found->metadata && found->metadata_size >= mark &&
            memcmp(found->metadata, consumer->mark, mark) == 0 &&
            (found->metadata_size == mark || ((const char *)found->metadata)[mark] == '\0');
    }
    rd_kafka_topic_partition_list_destroy(list);
    return failed ? broker_error_set(err, failed, "the group's offsets") : 0;
}

struct follow_answer {
    bool came;
    rd_kafka_resp_err_t code;
};

static void on_follow_answer(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                             rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct follow_answer *answer = opaque;
    (void)handle;
    (void)list;
    answer->came = true;
    answer->code = code;
}

static rd_kafka_resp_err_t follow_wait(struct consumer *consumer,
                                       const rd_kafka_topic_partition_list_t *list, int timeout_ms)
{
    struct follow_answer answer = { .code = RD_KAFKA_RESP_ERR__TIMED_OUT };
    rd_kafka_queue_t *queue = rd_kafka_queue_new(consumer->handle);
    rd_kafka_resp_err_t failed =
        rd_kafka_commit_queue(consumer->handle, list, queue, on_follow_answer, &answer);
    if (!failed)
        (void)rd_kafka_queue_poll_callback(queue, timeout_ms); /* `answer` says what came */
    rd_kafka_queue_destroy(queue); /* an answer that comes later finds nobody */
    return failed ? failed : answer.code;
}

int consumer_follow(struct consumer *consumer, const struct consumer_position *positions,
                    size_t count, int timeout_ms, struct err *err)
{
    if (!count)
        return 0;
    rd_kafka_topic_partition_list_t *list = list_of(consumer, positions, count);
    for (int i = 0; i < list->cnt; i++) {
        size_t size = strlen(consumer->mark);
        list->elems[i].metadata = rd_kafka_mem_malloc(consumer->handle, size);
        if (list->elems[i].metadata) {
            memcpy(list->elems[i].metadata, consumer->mark, size);
            list->elems[i].metadata_size = size;
        }
    }
    rd_kafka_resp_err_t failed = timeout_ms ? follow_wait(consumer, list, timeout_ms)
                                            : rd_kafka_commit(consumer->handle, list, 1);
    rd_kafka_topic_partition_list_destroy(list);
    return failed ? broker_error_set(err, failed, "committing the group's offsets") : 0;
}

int64_t consumer_end_offset(struct consumer *consumer, int32_t partition)
{
    int64_t low = -1, end = -1;
    if (rd_kafka_get_watermark_offsets(consumer->handle, consumer->topic, partition, &low, &end))
        return -1;
    return end >= 0 ? end : -1;
}
