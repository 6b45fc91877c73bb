/* feed: fills a topic, fast, for the demo and the benchmark.
 *
 *   feed --bootstrap HOST:PORT --topic NAME [--partitions N] [--set NAME=VALUE]...
 *        [--header NAME=VALUE]... (--count N [--first N] [--key TEXT] --value TEXT | --lines FILE)
 *        [--hex]
 *   feed --bootstrap HOST:PORT --topic NAME --forget GROUP
 *
 * --partitions creates the topic, with --set for its settings (retention.ms=-1). With --count, {}
 * in the texts of key and value is the record's number, from --first (0) on. With --lines each line
 * of the file (-: standard input) is KEY, a tab, VALUE; a line without a tab is a tombstone. --hex:
 * the value is written in hex. --forget deletes a group and its offsets instead. The partitioner is
 * that of Java's clients (murmur2 of the key). Prints "fed N records to NAME in S s" when the
 * broker has all of them; exit code 1 when not. */
#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LIST_MAX = 16, TEXT_MAX = 1 << 20, LIMIT_MS = 120000 };

struct feed {
    const char *bootstrap, *topic, *key, *value, *lines, *forget;
    const char *settings[LIST_MAX], *headers[LIST_MAX];
    size_t setting_count, header_count;
    int64_t count, first, partitions;
    bool hex;
    rd_kafka_t *client;
    int64_t sent, refused;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "feed: %s: %s\n", what, why); /* best effort */
    exit(1);
}

static _Noreturn void usage(void)
{
    give_up("usage", "feed --bootstrap HOST:PORT --topic NAME [--partitions N]"
                     " [--set NAME=VALUE]... [--header NAME=VALUE]..."
                     " (--count N [--first N] [--key TEXT] --value TEXT | --lines FILE) [--hex],"
                     " or feed --bootstrap HOST:PORT --topic NAME --forget GROUP");
}

static int64_t number(const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || end == text || value < 0)
        give_up(text, "is not a number of 0 or more");
    return value;
}

static void list_add(const char *list[LIST_MAX], size_t *count, const char *text)
{
    if (*count == LIST_MAX || !strchr(text, '='))
        give_up(text, "is not NAME=VALUE, or is one too many");
    list[(*count)++] = text;
}

static void options_read(struct feed *feed, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--hex") == 0) {
            feed->hex = true;
            continue;
        }
        if (++i == argc)
            usage();
        const struct {
            const char *name, **text;
            int64_t *number;
        } options[] = {
            { "--bootstrap", &feed->bootstrap, NULL },
            { "--topic", &feed->topic, NULL },
            { "--key", &feed->key, NULL },
            { "--value", &feed->value, NULL },
            { "--lines", &feed->lines, NULL },
            { "--forget", &feed->forget, NULL },
            { "--count", NULL, &feed->count },
            { "--first", NULL, &feed->first },
            { "--partitions", NULL, &feed->partitions },
        };
        size_t at = 0;
        while (at < ARRAY_LEN(options) && strcmp(options[at].name, name) != 0)
            at++;
        if (strcmp(name, "--set") == 0)
            list_add(feed->settings, &feed->setting_count, argv[i]);
        else if (strcmp(name, "--header") == 0)
            list_add(feed->headers, &feed->header_count, argv[i]);
        else if (at == ARRAY_LEN(options))
            usage();
        else if (options[at].text)
            *options[at].text = argv[i];
        else
            *options[at].number = number(argv[i]);
    }
    bool from_lines = feed->lines && !feed->value && !feed->key && feed->count < 0;
    bool from_count = !feed->lines && feed->value && feed->count >= 0;
    bool forgets = feed->forget && !feed->lines && !feed->value;
    if (!feed->bootstrap || !feed->topic || from_lines + from_count + forgets != 1)
        usage();
}

static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    (void)client; /* librdkafka's signature */
    struct feed *feed = opaque;
    if (!message->err)
        return;
    if (feed->refused++ == 0)
        (void)fprintf(stderr, "feed: %s\n", rd_kafka_err2str(message->err)); /* best effort */
}

static void conf_set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char message[200];
    if (rd_kafka_conf_set(conf, name, value, message, sizeof message) != RD_KAFKA_CONF_OK)
        give_up(name, message);
}

static void client_make(struct feed *feed)
{
    char message[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    conf_set(conf, "bootstrap.servers", feed->bootstrap);
    conf_set(conf, "enable.idempotence", "true");
    conf_set(conf, "linger.ms", "20");
    conf_set(conf, "message.max.bytes", "16777216");
    conf_set(conf, "message.timeout.ms", "120000"); /* LIMIT_MS */
    conf_set(conf, "partitioner", "murmur2_random");
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_conf_set_opaque(conf, feed);
    feed->client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, message, sizeof message);
    if (!feed->client)
        give_up("client", message);
}

static void topic_make(const struct feed *feed)
{
    char message[200], name[64];
    rd_kafka_NewTopic_t *topic =
        rd_kafka_NewTopic_new(feed->topic, (int)feed->partitions, 1, message, sizeof message);
    if (!topic)
        give_up(feed->topic, message);
    for (size_t i = 0; i < feed->setting_count; i++) {
        const char *equals = strchr(feed->settings[i], '=');
        (void)snprintf(name, sizeof name, "%.*s", (int)(equals - feed->settings[i]),
                       feed->settings[i]); /* one that is cut is refused */
        if (rd_kafka_NewTopic_set_config(topic, name, equals + 1))
            give_up("set", feed->settings[i]);
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_new(feed->client);
    rd_kafka_CreateTopics(feed->client, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, LIMIT_MS);
    if (!event || rd_kafka_event_error(event))
        give_up(feed->topic, event ? rd_kafka_event_error_string(event) : "no answer");
    size_t count;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    if (count != 1 || rd_kafka_topic_result_error(results[0]))
        give_up(feed->topic, rd_kafka_err2str(rd_kafka_topic_result_error(results[0])));
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(topic);
}

static void group_forget(const struct feed *feed)
{
    rd_kafka_DeleteGroup_t *group = rd_kafka_DeleteGroup_new(feed->forget);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(feed->client);
    rd_kafka_DeleteGroups(feed->client, &group, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, LIMIT_MS);
    if (!event || rd_kafka_event_error(event))
        give_up(feed->forget, event ? rd_kafka_event_error_string(event) : "no answer");
    size_t count;
    const rd_kafka_group_result_t **results =
        rd_kafka_DeleteGroups_result_groups(rd_kafka_event_DeleteGroups_result(event), &count);
    const rd_kafka_error_t *error = count == 1 ? rd_kafka_group_result_error(results[0]) : NULL;
    if (count != 1 || error)
        give_up(feed->forget, error ? rd_kafka_error_string(error) : "no answer");
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_DeleteGroup_destroy(group);
}

static size_t hex_read(const char *text, size_t size, uint8_t *ret)
{
    for (size_t i = 0; i < size; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = strchr(digits, text[i] | 0x20);
        if (size % 2 != 0 || !text[i] || !digit)
            give_up("value", "is not hex");
        uint8_t half = (uint8_t)(digit - digits);
        ret[i / 2] = (uint8_t)(i % 2 == 0 ? half << 4 : ret[i / 2] | half);
    }
    return size / 2;
}

static rd_kafka_headers_t *headers_make(const struct feed *feed)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(feed->header_count);
    for (size_t i = 0; i < feed->header_count; i++) {
        const char *equals = strchr(feed->headers[i], '=');
        (void)rd_kafka_header_add(headers, feed->headers[i], equals - feed->headers[i], equals + 1,
                                  -1); /* it has no way to fail */
    }
    return headers;
}

/* NULL: a null key, a null value. */
static void record_send(struct feed *feed, const char *key, const char *value, size_t size)
{
    static uint8_t bytes[TEXT_MAX / 2];
    const void *payload = value;
    if (value && feed->hex) {
        size = hex_read(value, size, bytes);
        payload = bytes;
    }
    for (;;) {
        rd_kafka_headers_t *headers = headers_make(feed);
        rd_kafka_resp_err_t error = rd_kafka_producev(
            feed->client, RD_KAFKA_V_TOPIC(feed->topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
            RD_KAFKA_V_KEY((void *)(uintptr_t)key, key ? strlen(key) : 0),
            RD_KAFKA_V_VALUE((void *)(uintptr_t)payload, size), RD_KAFKA_V_HEADERS(headers),
            RD_KAFKA_V_END);
        if (!error)
            break;
        rd_kafka_headers_destroy(headers); /* librdkafka takes them only with the record */
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            give_up(feed->topic, rd_kafka_err2str(error));
        (void)rd_kafka_poll(feed->client, 100); /* how many it served does not matter */
    }
    feed->sent++;
    (void)rd_kafka_poll(feed->client, 0); /* the same */
}

/* {} becomes the number, wherever it stands. */
static void text_fill(const char *format, int64_t at, char *ret, size_t size)
{
    size_t used = 0;
    for (const char *from = format; *from && used + 24 < size;) {
        if (from[0] == '{' && from[1] == '}') {
            used += (size_t)snprintf(ret + used, size - used, "%" PRId64, at);
            from += 2;
        } else {
            ret[used++] = *from++;
        }
    }
    ret[used] = '\0';
}

static void count_feed(struct feed *feed)
{
    static char value[TEXT_MAX];
    char key[1024];
    for (int64_t i = feed->first; i < feed->first + feed->count; i++) {
        text_fill(feed->value, i, value, sizeof value);
        if (feed->key)
            text_fill(feed->key, i, key, sizeof key);
        record_send(feed, feed->key ? key : NULL, value, strlen(value));
    }
}

static void lines_feed(struct feed *feed)
{
    FILE *file = strcmp(feed->lines, "-") == 0 ? stdin : fopen(feed->lines, "re");
    if (!file)
        give_up(feed->lines, strerror(errno));
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t size; (size = getline(&line, &capacity, file)) > 0;) {
        if (size > TEXT_MAX)
            give_up(feed->lines, "a line is longer than 1 MiB");
        line[strcspn(line, "\n")] = '\0';
        char *tab = strchr(line, '\t');
        if (tab)
            *tab = '\0';
        record_send(feed, line, tab ? tab + 1 : NULL, tab ? strlen(tab + 1) : 0);
    }
    if (ferror(file))
        give_up(feed->lines, strerror(errno));
    free(line);
    if (file != stdin)
        (void)fclose(file); /* only read */
}

int main(int argc, char **argv)
{
    struct feed feed = { .count = -1 };
    options_read(&feed, argc, argv);
    client_make(&feed);
    if (feed.forget) {
        group_forget(&feed);
        rd_kafka_destroy(feed.client);
        return 0;
    }
    if (feed.partitions > 0)
        topic_make(&feed);
    int64_t begin_ms = clock_mono_ms(&clock_system);
    if (feed.lines)
        lines_feed(&feed);
    else
        count_feed(&feed);
    if (rd_kafka_flush(feed.client, LIMIT_MS))
        give_up(feed.topic, "not everything was taken in time");
    rd_kafka_destroy(feed.client);
    if (feed.refused > 0)
        give_up(feed.topic, "some records were not taken");
    int64_t ms = clock_mono_ms(&clock_system) - begin_ms;
    (void)printf("fed %" PRId64 " records to %s in %" PRId64 ".%03d s\n", feed.sent, feed.topic,
                 ms / 1000, (int)(ms % 1000)); /* the exit code counts */
    return 0;
}
