#include "base/mem.h"
#include "base/utf8.h"
#include "kafka/rule.h"

#include <librdkafka/rdkafka.h>
#include <string.h>

/* What sagad sets itself, because a promise or a setting of its own hangs on it. */
static const struct {
    const char *name, *why;
} own[] = {
    { "bootstrap.servers", "that is kafka-brokers" },
    { "metadata.broker.list", "that is kafka-brokers" },
    { "group.id", "that is group" },
    { "group.instance.id", "that is instance" },
    { "enable.auto.commit", "offsets are kept in the database and committed behind it" },
    { "auto.commit.enable", "offsets are kept in the database and committed behind it" },
    { "auto.commit.interval.ms", "offsets are kept in the database and committed behind it" },
    { "enable.auto.offset.store", "offsets are kept in the database and committed behind it" },
    { "offset.store.method", "offsets are kept in the database and committed behind it" },
    { "auto.offset.reset", "a partition never jumps; where it begins is start" },
    { "isolation.level", "records of transactions that were aborted start nothing" },
    { "partition.assignment.strategy", "the others lose or block partitions in this librdkafka" },
    { "enable.partition.eof", "the ends of partitions are looked at by sagad" },
    { "allow.auto.create.topics", "a topic that is written wrong must not come to be" },
    { "check.crcs", "damaged records are looked for always" },
    { "enable.idempotence", "events are written once, and in order" },
    { "enable.gapless.guarantee", "events are written once, and in order" },
    { "transactional.id", "events are not written in transactions" },
    { "acks", "an event counts once all replicas have it" },
    { "request.required.acks", "an event counts once all replicas have it" },
    { "retries", "an event is tried until it is there" },
    { "message.send.max.retries", "an event is tried until it is there" },
    { "max.in.flight", "events are written in order" },
    { "max.in.flight.requests.per.connection", "events are written in order" },
    { "message.timeout.ms", "an event is tried until it is there" },
    { "delivery.timeout.ms", "an event is tried until it is there" },
    { "delivery.report.only.error", "an event is done when it is known to be there" },
    { "partitioner", "events of a saga go to one partition, that of its key" },
    { "plugin.library.paths", "sagad loads no library that a setting names" },
    { "ssl.engine.location", "sagad loads no library that a setting names" },
    { "interceptors", "sagad loads no library that a setting names" },
    { "group.protocol.type", "a group of another kind gives no partitions" },
    { "group.protocol", "static members and their offsets rest on the classic one" },
    { "group.remote.assignor", "the others lose or block partitions in this librdkafka" },
    { "topic.blacklist", "a topic that is hidden is never read" },
    { "queuing.strategy", "events are written in order" },
    { "queued.max.messages.kbytes", "what records may take of memory is bounded by sagad" },
    { "fetch.max.bytes", "what records may take of memory is bounded by sagad" },
    { "api.version.request", "headers and times of records need to know what a broker can do" },
    { "log.queue", "what librdkafka says stands in the log of sagad" },
    { "internal.termination.signal", "sagad ends librdkafka itself" },
    { "enabled_events", "it is no setting" },
    { "opaque", "it is no setting" },
};

static int check_name(const char *name, struct err *err)
{
    size_t size = strlen(name);
    if (!size || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._") != size)
        return err_set(err, ERR_INVALID,
                       "a property of librdkafka is [a-z0-9._], as "
                       "librdkafka.security.protocol");
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (strcmp(own[i].name, name) == 0)
            return err_set(err, ERR_INVALID, "cannot be set: %s", own[i].why);
    if (strncmp(name, "test.", 5) == 0)
        return err_set(err, ERR_INVALID,
                       "cannot be set: it is for tests of librdkafka, and fakes brokers");
    if (size > 3 && strcmp(name + size - 3, "_cb") == 0)
        return err_set(err, ERR_INVALID, "cannot be set: it is no setting");
    return 0;
}

/* Nothing comes of the configuration that it is tried on. */
static int try_value(const char *name, const char *value, struct err *err)
{
    char problem[256] = "";
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_res_t res = rd_kafka_conf_set(conf, name, value, problem, sizeof problem);
    rd_kafka_conf_destroy(conf);
    return res == RD_KAFKA_CONF_OK ? 0 : err_set(err, ERR_INVALID, "%s", problem);
}

static int add(struct kafka_properties *properties, const char *name, const char *value,
               unsigned line, struct err *err)
{
    int rc = check_name(name, err);
    if (rc)
        return rc;
    size_t size = strlen(value);
    if (size > KAFKA_PROPERTY_BYTES || !utf8_is_text(value, size))
        return err_set(err, ERR_INVALID, "must be text of at most %d bytes", KAFKA_PROPERTY_BYTES);
    for (size_t i = 0; i < properties->count; i++)
        if (strcmp(properties->items[i].name, name) == 0)
            return err_set(err, ERR_INVALID, "given twice");
    if (properties->count == KAFKA_PROPERTIES_MAX)
        return err_set(err, ERR_INVALID, "more than %d properties", KAFKA_PROPERTIES_MAX);
    rc = try_value(name, value, err);
    if (rc)
        return rc;
    struct kafka_property item = { mem_strdup(name), mem_strdup(value), line };
    if (item.name && item.value &&
        mem_grow((void **)&properties->items, &properties->capacity, properties->count,
                 sizeof item) == 0) {
        properties->items[properties->count++] = item;
        return 0;
    }
    mem_free(item.name);
    mem_free(item.value);
    return err_set(err, ERR_NOMEM, "out of memory");
}

int kafka_properties_add(struct kafka_properties *properties, const char *name, const char *value,
                         unsigned line, struct err *err)
{
    return add(properties, name, value, line, err) ? err_wrap(err, "librdkafka.%.100s", name) : 0;
}

void kafka_properties_done(struct kafka_properties *properties)
{
    for (size_t i = 0; i < properties->count; i++) {
        mem_free(properties->items[i].name);
        mem_free(properties->items[i].value);
    }
    mem_free(properties->items);
    *properties = (struct kafka_properties){ 0 };
}

bool kafka_property_is_secret(const char *name)
{
    static const char *const parts[] = { "password", "secret", "key.pem", "oauthbearer.config" };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}
