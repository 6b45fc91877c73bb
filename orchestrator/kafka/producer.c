#include "kafka/producer.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/broker_error.h"
#include "kafka/client_close.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>

enum { PURGE_MS = 1000, CLOSE_MS = 2000 };

struct producer {
    rd_kafka_t *handle;
    char *topic;
    producer_told_fn *told;
    void *ctx;
    bool broken;
    struct err fatal;
    char problem[256]; /* "": none */
};

/* What the brokers say of one record, or of the batch that it is in. Anything else is nobody's
 * fault, or that of the topic as a whole. */
static bool is_refusal(rd_kafka_resp_err_t error)
{
    switch (error) {
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
        return true;
    default:
        return false;
    }
}

static void on_report(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque)
{
    struct producer *producer = opaque;
    struct err err = { 0 };
    enum producer_fate fate = PRODUCER_STORED;
    (void)handle;
    if (message->err) {
        (void)broker_error_set(&err, message->err, "publish");
        fate = is_refusal(message->err) ? PRODUCER_REFUSED : PRODUCER_AGAIN;
    } else {
        producer->problem[0] = '\0';
    }
    producer->told(producer->ctx, message->_private, fate, &err);
}

static void on_error(rd_kafka_t *handle, int error, const char *reason, void *opaque)
{
    struct producer *producer = opaque;
    char text[256];
    if (error == RD_KAFKA_RESP_ERR__FATAL) {
        rd_kafka_resp_err_t cause = rd_kafka_fatal_error(handle, text, sizeof text);
        producer->broken = true;
        (void)broker_error_set(&producer->fatal, cause, text);
        return;
    }
    (void)snprintf(producer->problem, sizeof producer->problem, "%s (%s)", reason,
                   rd_kafka_err2name((rd_kafka_resp_err_t)error));
}

static void on_log(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
    enum { SYSLOG_ERROR = 3, SYSLOG_WARNING = 4 };
    (void)handle;
    log_line(level <= SYSLOG_ERROR     ? LOG_WARN /* it goes on by itself */
             : level <= SYSLOG_WARNING ? LOG_INFO
                                       : LOG_DEBUG,
             "librdkafka", "part", "outbox", "facility", facility, "message", text, NULL);
}

static int set(rd_kafka_conf_t *conf, const char *name, const char *value, struct err *err)
{
    char text[256];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return 0;
    return err_set(err, ERR_INVALID, "librdkafka: %s", text);
}

/* The last ones win: what others may set, theirs, and what nobody but us may. */
static int configure(rd_kafka_conf_t *conf, const struct producer_options *options, struct err *err)
{
    static const char *const defaults[][2] = {
        { "client.id", "sagad-outbox" },
        { "linger.ms", "5" },
        { "batch.size", "262144" },
        { "compression.type", "lz4" },
        { "queue.buffering.max.messages", "20000" },
        { "queue.buffering.max.kbytes", "65536" },
        { "socket.nagle.disable", "true" },
        { "socket.keepalive.enable", "true" },
        { "reconnect.backoff.max.ms", "2000" },
    };
    static const char *const ours[][2] = {
        { "enable.idempotence", "true" }, /* and acks=all, ordered retries */
        { "message.timeout.ms", "0" },    /* it waits for brokers for ever */
        { "partitioner", "murmur2_random" },
        { "allow.auto.create.topics", "false" },
    };
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
        if (set(conf, defaults[i][0], defaults[i][1], err) != 0)
            return (int)err->code;
    for (size_t i = 0; options->properties && i < options->properties->count; i++)
        if (set(conf, options->properties->items[i].name, options->properties->items[i].value,
                err) != 0)
            return (int)err->code;
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (set(conf, ours[i][0], ours[i][1], err) != 0)
            return (int)err->code;
    return set(conf, "bootstrap.servers", options->brokers, err);
}

static int handle_new(struct producer *producer, const struct producer_options *options,
                      struct err *err)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (configure(conf, options, err) != 0) {
        rd_kafka_conf_destroy(conf);
        return (int)err->code;
    }
    rd_kafka_conf_set_opaque(conf, producer);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    producer->handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (producer->handle)
        return 0;
    rd_kafka_conf_destroy(conf);
    return err_set(err, ERR_INVALID, "librdkafka: %s", text);
}

int producer_new(const struct producer_options *options, struct producer **ret, struct err *err)
{
    struct producer *producer = mem_calloc(1, sizeof *producer);
    if (!producer || !(producer->topic = mem_strdup(options->topic))) {
        mem_free(producer);
        return err_set(err, ERR_NOMEM, "producer: out of memory");
    }
    producer->told = options->told;
    producer->ctx = options->ctx;
    if (handle_new(producer, options, err) != 0) {
        mem_free(producer->topic);
        mem_free(producer);
        return (int)err->code;
    }
    *ret = producer;
    return 0;
}

static void producer_ended(void *ctx)
{
    struct producer *producer = ctx;
    mem_free(producer->topic);
    mem_free(producer);
}

struct producer *producer_free(struct producer *producer)
{
    if (!producer)
        return NULL;
    /* Nothing of it may be sent any more when this returns: somebody else may be sending it. */
    int64_t until_ms = clock_mono_ms(&clock_system) + PURGE_MS;
    (void)rd_kafka_purge(producer->handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    while (rd_kafka_outq_len(producer->handle) > 0 && clock_mono_ms(&clock_system) < until_ms)
        (void)rd_kafka_poll(producer->handle, 10); /* how many there were is nothing to us */
    client_close(producer->handle, false, CLOSE_MS, producer_ended, producer);
    return NULL;
}

static rd_kafka_headers_t *headers_new(const struct producer_record *record)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(PRODUCER_HEADERS);
    for (size_t i = 0; headers && i < PRODUCER_HEADERS && record->headers[i].name; i++) {
        const struct producer_header *header = &record->headers[i];
        (void)rd_kafka_header_add(headers, header->name, -1, header->value, -1); /* fails never */
    }
    return headers;
}

int producer_send(struct producer *producer, const struct producer_record *record, void *item,
                  struct err *err)
{
    rd_kafka_headers_t *headers = headers_new(record);
    if (!headers)
        return err_set(err, ERR_NOMEM, "publish: out of memory");
    rd_kafka_resp_err_t error = rd_kafka_producev(
        producer->handle, RD_KAFKA_V_TOPIC(producer->topic),
        RD_KAFKA_V_KEY(record->key.data, record->key.size),
        RD_KAFKA_V_VALUE(record->value.data, record->value.size),
        RD_KAFKA_V_TIMESTAMP(record->timestamp_ms), RD_KAFKA_V_HEADERS(headers),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(item), RD_KAFKA_V_END);
    if (!error)
        return 0; /* the headers are its own */
    rd_kafka_headers_destroy(headers);
    (void)broker_error_set(err, error, "publish");
    err->retryable = !is_refusal(error);
    return (int)err->code;
}

void producer_poll(struct producer *producer, int timeout_ms)
{
    (void)rd_kafka_poll(producer->handle, timeout_ms); /* how many events is nothing to us */
}

bool producer_is_broken(const struct producer *producer, struct err *err)
{
    if (producer->broken)
        *err = producer->fatal;
    return producer->broken;
}

const char *producer_problem(const struct producer *producer)
{
    return producer->problem[0] ? producer->problem : NULL;
}
