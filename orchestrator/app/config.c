#include "app/config.h"

#include "app/address.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "core/handler.h"
#include "core/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
#define DECADE (INT64_C(3653) * DAY)
enum { BOTH = CONFIG_FOR_SERVE | CONFIG_FOR_DEV };

/* clang-format off */
const struct config_option config_options[CONFIG_COUNT] = {
    [CONFIG_DATABASE] = { "database", "SAGAD_DATABASE", CONFIG_TYPE_TEXT, "", 0, 4096, true,
        CONFIG_FOR_SERVE,
        "PostgreSQL to keep the sagas in, as libpq wants it: \"host=db dbname=sagad user=sagad\" or"
        " \"postgresql://sagad@db/sagad\". Empty: libpq's own defaults and PG* variables." },
    [CONFIG_LISTEN] = { "listen", "SAGAD_LISTEN", CONFIG_TYPE_ADDRESSES, "127.0.0.1:7233", 1, 4096,
        false, BOTH,
        "Address to serve on; may be given more than once (in file and environment: separated by"
        " commas). 127.0.0.1:7233, [::1]:7233, name:7233 or unix:/path; port 0 takes a free one." },
    [CONFIG_INSECURE_LISTEN] = { "insecure-listen", "SAGAD_INSECURE_LISTEN", CONFIG_TYPE_BOOL,
        "false", 0, 0, false, BOTH,
        "Allow addresses that others can reach although the connection is neither encrypted nor"
        " authenticated." },
    [CONFIG_UNSAFE] = { "unsafe", "SAGAD_UNSAFE", CONFIG_TYPE_BOOL, "false", 0, 0, false,
        CONFIG_FOR_SERVE,
        "Start on a PostgreSQL that may lose commits (fsync, synchronous_commit or"
        " full_page_writes off). For experiments only." },
    [CONFIG_NODE] = { "node", "SAGAD_NODE", CONFIG_TYPE_TEXT, "", 0, LIMIT_WORKER_BYTES, false, BOTH,
        "Name of this orchestrator, in the database and on screens; each that runs needs its own,"
        " and the same one again after a restart. Empty: the host's name and the port." },
    [CONFIG_LOG_LEVEL] = { "log-level", "SAGAD_LOG_LEVEL", CONFIG_TYPE_LOG_LEVEL, "info", 0, 0,
        false, BOTH, "debug, info, warn or error; the log goes to stderr." },
    [CONFIG_GRACE] = { "grace", "SAGAD_GRACE", CONFIG_TYPE_DURATION, "10s", 0, HOUR, false, BOTH,
        "How long calls and workers may finish after SIGTERM or SIGINT. Leases stay in the"
        " database: nothing is lost when it is over." },
    [CONFIG_START_TIMEOUT] = { "start-timeout", "SAGAD_START_TIMEOUT", CONFIG_TYPE_DURATION, "60s",
        0, 24 * HOUR, false, BOTH,
        "How long to keep trying at the start while PostgreSQL cannot be reached or refuses the"
        " login; then sagad exits with an error." },
    [CONFIG_RPC_THREADS] = { "rpc-threads", "SAGAD_RPC_THREADS", CONFIG_TYPE_INTEGER, "2", 1, 64,
        false, BOTH, "Threads that receive and send." },
    [CONFIG_STREAMS_MAX] = { "streams-max", "SAGAD_STREAMS_MAX", CONFIG_TYPE_INTEGER, "1000", 1,
        100000, false, BOTH, "Most worker streams at a time; more are refused." },
    [CONFIG_BATCH_MAX] = { "batch-max", "SAGAD_BATCH_MAX", CONFIG_TYPE_INTEGER, "512", 1,
        LIMIT_BATCH_EVENTS, false, BOTH, "Most events that share one transaction." },
    [CONFIG_RESEND_GRACE] = { "resend-grace", "SAGAD_RESEND_GRACE", CONFIG_TYPE_DURATION, "15s", 0,
        10 * MINUTE, false, BOTH,
        "After a start or a lost database no lease is called expired for so long: workers come"
        " back and resend their results." },
    [CONFIG_STREAM_LOST] = { "stream-lost", "SAGAD_STREAM_LOST", CONFIG_TYPE_DURATION, "5s", 0,
        10 * MINUTE, false, BOTH,
        "How long a worker whose stream broke may take to come back before its idempotent steps"
        " are given to another one." },
    [CONFIG_HEARTBEAT] = { "heartbeat", "SAGAD_HEARTBEAT", CONFIG_TYPE_DURATION, "2s", 100,
        10 * MINUTE, false, BOTH, "How often this orchestrator says in the database that it lives." },
    [CONFIG_NODE_DEAD] = { "node-dead", "SAGAD_NODE_DEAD", CONFIG_TYPE_DURATION, "10s", 500,
        HOUR, false, BOTH,
        "An orchestrator that was silent for so long counts as dead: the others adopt its sagas."
        " The same for all on one database, and several times the heartbeat." },
    [CONFIG_RESIDENT_SAGAS_MAX] = { "resident-sagas-max", "SAGAD_RESIDENT_SAGAS_MAX",
        CONFIG_TYPE_INTEGER, "200000", 100, 100000000, false, BOTH,
        "Sagas kept in memory; beyond that those at rest wait in the database alone." },
    [CONFIG_PAYLOAD_BYTES_MAX] = { "payload-bytes-max", "SAGAD_PAYLOAD_BYTES_MAX",
        CONFIG_TYPE_INTEGER, "262144", LIMIT_PAYLOAD_BYTES, LIMIT_PAYLOAD_BYTES_MOST, false, BOTH,
        "Most bytes of an input, an output or a signal's payload. The same for all on one database;"
        " workers have a limit of their own for outputs. What was taken before stays, whatever is"
        " set later." },
    [CONFIG_BREAKER_FAILURES] = { "breaker-failures", "SAGAD_BREAKER_FAILURES",
        CONFIG_TYPE_INTEGER, "0", 0, LIMIT_BREAKER_FAILURES, false, BOTH,
        "Tasks in a row that end UNKNOWN or RETRY and hold their handler by itself, until trials"
        " succeed; of handlers of which sagactl handler breaker says nothing. 0: none is held. The"
        " same for all on one database." },
    [CONFIG_OPEN_FILES] = { "open-files", "SAGAD_OPEN_FILES", CONFIG_TYPE_INTEGER, "65536", 256,
        1048576, false, BOTH,
        "Open files to ask the system for; each connection needs one. A lower hard limit is"
        " taken, with a warning." },
    [CONFIG_PROBE_INTERVAL] = { "probe-interval", "SAGAD_PROBE_INTERVAL", CONFIG_TYPE_DURATION,
        "5s", 0, 10 * MINUTE, false, BOTH,
        "How often sagad asks itself over a new connection whether others still can connect. When"
        " they cannot three times in a row (open files ran out, and gRPC never accepts again), it"
        " ends with exit code 1, for its supervisor to start it again. 0: never." },
    [CONFIG_KAFKA_BROKERS] = { "kafka-brokers", "SAGAD_KAFKA_BROKERS", CONFIG_TYPE_BROKERS, "", 0,
        4096, false, BOTH,
        "Where the Kafka cluster can be asked first: host:port, separated by commas. Needed by rules"
        " and by outbox-topic." },
    [CONFIG_OUTBOX_TOPIC] = { "outbox-topic", "SAGAD_OUTBOX_TOPIC", CONFIG_TYPE_TEXT, "", 0,
        KAFKA_TOPIC_BYTES, false, BOTH,
        "Topic for the events of definitions that publish, and of handlers; it must be there. Empty:"
        " this orchestrator publishes none, and they wait in the database." },
    [CONFIG_KEY_MEMORY] = { "key-memory", "SAGAD_KEY_MEMORY", CONFIG_TYPE_MEMORY, "90d", DAY,
        10 * DECADE, false, BOTH,
        "How long a business key is remembered after its saga ended, so that a late repeat starts"
        " nothing although the saga was purged: a time such as 90d, or forever. A rule does not run if its topic keeps"
        " records for longer; of a topic that keeps them for ever (or is compacted) only forever"
        " is long enough." },
    [CONFIG_AUDIT_RETENTION] = { "audit-retention", "SAGAD_AUDIT_RETENTION", CONFIG_TYPE_MEMORY,
        "400d", DAY, 10 * DECADE, false, BOTH,
        "How long it is kept who did what (sagactl audit): a time such as 400d, or forever. What was"
        " asked of a saga is kept at least as long as the saga's rows are." },
    [CONFIG_RETENTION] = { "retention", "SAGAD_RETENTION", CONFIG_TYPE_DURATION, "0", 0,
        10 * DECADE, false, BOTH,
        "Age after their end at which sagas are purged: row, journal and late reports go, the key"
        " stays for key-memory. Never those that are parked, in doubt, or have events that are not"
        " published. 0: nothing is purged." },
    [CONFIG_RETENTION_ARCHIVE] = { "retention-archive", "SAGAD_RETENTION_ARCHIVE",
        CONFIG_TYPE_TEXT, "", 0, 4096, false, BOTH,
        "Folder that sagas are written to before they are purged, one JSON object a line, one file a"
        " day; it must be there. While it cannot be written nothing is purged. Empty: no archive." },
    [CONFIG_DATA] = { "data", "SAGAD_DEV_DATA", CONFIG_TYPE_TEXT, "", 0, 4096, false, CONFIG_FOR_DEV,
        "Folder of the private PostgreSQL; made at the first use. Empty: sagad-dev in"
        " $XDG_DATA_HOME or ~/.local/share; for root /var/lib/sagad-dev." },
    [CONFIG_PG_BIN] = { "pg-bin", "SAGAD_PG_BIN", CONFIG_TYPE_TEXT, "", 0, 4096, false,
        CONFIG_FOR_DEV,
        "Folder of initdb and postgres. Empty: searched in PATH and where the packages of"
        " PostgreSQL put them." },
};
/* clang-format on */

void config_done(struct config *config)
{
    for (int i = 0; i < CONFIG_COUNT; i++)
        mem_free(config->texts[i]);
    for (size_t i = 0; i < config->rule_count; i++)
        config->rules[i] = kafka_rule_free(config->rules[i]);
    kafka_properties_done(&config->kafka);
    *config = (struct config){ 0 };
}

int config_find(const char *name, unsigned command)
{
    for (int i = 0; i < CONFIG_COUNT; i++)
        if (strcmp(config_options[i].name, name) == 0 && (config_options[i].commands & command))
            return i;
    return -1;
}

static bool parse_bool(const char *text, bool *ret)
{
    static const char *const yes[] = { "true", "yes", "on", "1" };
    static const char *const no[] = { "false", "no", "off", "0" };
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *ret = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* Digits alone; so few of them that a multiplication by a unit cannot overflow. */
static bool parse_digits(const char **text, int64_t *ret)
{
    size_t digits = strspn(*text, "0123456789");
    if (!digits || digits > 10)
        return false;
    *ret = strtoll(*text, NULL, 10);
    *text += digits;
    return true;
}

static bool parse_duration(const char *text, int64_t *ret_ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = { { "", SECOND },  { "ms", 1 },   { "s", SECOND },
                  { "m", MINUTE }, { "h", HOUR }, { "d", DAY } };
    int64_t whole, thousandths = 0;
    if (!parse_digits(&text, &whole))
        return false;
    if (*text == '.') {
        text++;
        int64_t unit = 100;
        size_t digits = strspn(text, "0123456789");
        if (!digits || digits > 3)
            return false;
        for (; digits; digits--, text++, unit /= 10)
            thousandths += (*text - '0') * unit;
    }
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(text, units[i].name) == 0) {
            *ret_ms = whole * units[i].ms + thousandths * units[i].ms / 1000;
            return true;
        }
    }
    return false;
}

static bool parse_number(const struct config_option *option, const char *text, int64_t *ret)
{
    if (option->type == CONFIG_TYPE_MEMORY && strcmp(text, "forever") == 0) {
        *ret = -1;
        return true;
    }
    if (option->type == CONFIG_TYPE_DURATION || option->type == CONFIG_TYPE_MEMORY)
        return parse_duration(text, ret);
    if (option->type == CONFIG_TYPE_LOG_LEVEL) {
        *ret = log_level_parse(text);
        return *ret >= 0;
    }
    return parse_digits(&text, ret) && !*text;
}

static int check_addresses(const char *text, struct err *err)
{
    while (*text) {
        text += strspn(text, ", ");
        size_t size = strcspn(text, ",");
        while (size && text[size - 1] == ' ')
            size--;
        char address[ADDRESS_SIZE];
        if (size >= sizeof address)
            return err_set(err, ERR_INVALID, "an address has %zu bytes, at most %d", size,
                           ADDRESS_SIZE - 1);
        (void)snprintf(address, sizeof address, "%.*s", (int)size, text);
        if (address_check(address, err) != 0)
            return err->code;
        text += size;
        text += strspn(text, " ");
    }
    return 0;
}

/* "host" or "host:port"; an IPv6 address in brackets. */
static bool is_broker(const char *text, size_t size)
{
    const char *end = text + size;
    const char *colon = memrchr(text, ':', size);
    const char *bracket = memrchr(text, ']', size);
    if (colon && colon > bracket) {
        size_t digits = strspn(colon + 1, "0123456789");
        long port = digits && digits < 6 ? strtol(colon + 1, NULL, 10) : 0;
        if (colon + 1 + digits != end || port < 1 || port > 65535)
            return false;
        end = colon;
    }
    bool is_bracketed = bracket && text[0] == '[' && bracket == end - 1;
    if (bracket && !is_bracketed)
        return false;
    return end > text && (is_bracketed || !memchr(text, ':', (size_t)(end - text))) &&
           !memchr(text, ' ', (size_t)(end - text)) && !memchr(text, '/', (size_t)(end - text));
}

static int check_brokers(const char *text, struct err *err)
{
    while (*text) {
        size_t size = strcspn(text, ",");
        const char *next = text + size + (text[size] == ',');
        size_t begin = strspn(text, " ");
        while (size > begin && text[size - 1] == ' ')
            size--;
        if (!is_broker(text + begin, size > begin ? size - begin : 0))
            return err_set(err, ERR_INVALID,
                           "\"%.*s\" is no broker: host:port, separated by commas", (int)size,
                           text);
        text = next;
    }
    return 0;
}

static int check_time(const struct config_option *option, const char *text, struct err *err)
{
    bool is_memory = option->type == CONFIG_TYPE_MEMORY;
    int64_t ms;
    if (!parse_number(option, text, &ms))
        return err_set(err, ERR_INVALID,
                       "must be a time such as 10, 0.5, 500ms, 2m, 1h or 90d%s, not \"%s\"",
                       is_memory ? ", or forever" : "", text);
    if ((ms >= option->min && ms <= option->max) || (is_memory && ms == -1))
        return 0;
    return err_set(err, ERR_INVALID,
                   "must be %" PRId64 " to %" PRId64 " seconds, not %" PRId64 " ms",
                   option->min / SECOND, option->max / SECOND, ms);
}

static int check_value(const struct config_option *option, const char *text, struct err *err)
{
    int64_t number;
    bool flag;
    switch (option->type) {
    case CONFIG_TYPE_BOOL:
        return parse_bool(text, &flag)
                   ? 0
                   : err_set(err, ERR_INVALID, "must be true or false, not \"%s\"", text);
    case CONFIG_TYPE_LOG_LEVEL:
        return parse_number(option, text, &number)
                   ? 0
                   : err_set(err, ERR_INVALID, "must be debug, info, warn or error, not \"%s\"",
                             text);
    case CONFIG_TYPE_DURATION:
    case CONFIG_TYPE_MEMORY:
        return check_time(option, text, err);
    case CONFIG_TYPE_INTEGER:
        if (!parse_number(option, text, &number) || number < option->min || number > option->max)
            return err_set(err, ERR_INVALID,
                           "must be a number from %" PRId64 " to %" PRId64 ", not \"%s\"",
                           option->min, option->max, text);
        return 0;
    default:
        break;
    }
    size_t size = strlen(text);
    if ((int64_t)size < option->min || (int64_t)size > option->max)
        return err_set(err, ERR_INVALID, "must have %" PRId64 " to %" PRId64 " bytes, not %zu",
                       option->min, option->max, size);
    if (!utf8_is_text(text, size))
        return err_set(err, ERR_INVALID, "must be UTF-8 without control characters");
    if (option->type == CONFIG_TYPE_BROKERS)
        return check_brokers(text, err);
    return option->type == CONFIG_TYPE_ADDRESSES ? check_addresses(text, err) : 0;
}

int config_set(struct config *config, enum config_id id, enum config_source source,
               const char *text, struct err *err)
{
    const struct config_option *option = &config_options[id];
    if (check_value(option, text, err) != 0)
        return err_wrap(err, "%s", option->name);
    bool again = config->texts[id] && config->sources[id] == source;
    if (again && option->type != CONFIG_TYPE_ADDRESSES)
        return err_set(err, ERR_INVALID, "%s: given twice", option->name);
    CLEANUP(buf_done) struct buf value = { 0 };
    if (again)
        buf_printf(&value, "%s,", config->texts[id]);
    buf_text(&value, text);
    char *copy = value.failed ? NULL : mem_strdup(buf_cstr(&value));
    if (!copy)
        return err_set(err, ERR_NOMEM, "%s: out of memory", option->name);
    mem_free(config->texts[id]);
    config->texts[id] = copy;
    config->sources[id] = source;
    return 0;
}

int config_read_env(struct config *config, struct err *err)
{
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const char *text = getenv(config_options[i].env);
        if (!text || !*text || !(config_options[i].commands & config->command))
            continue;
        if (config_set(config, (enum config_id)i, CONFIG_FROM_ENV, text, err) != 0)
            return err_wrap(err, "environment variable %s", config_options[i].env);
    }
    return 0;
}

int config_check(const struct config *config, struct err *err)
{
    if (*config_text(config, CONFIG_KAFKA_BROKERS))
        return 0;
    if (config->rule_count)
        return err_set(err, ERR_INVALID,
                       "kafka-brokers: is missing, and [kafka %s] needs it, as in"
                       " \"kafka-brokers = 127.0.0.1:9092\"",
                       config->rules[0]->name);
    if (*config_text(config, CONFIG_OUTBOX_TOPIC))
        return err_set(err, ERR_INVALID,
                       "kafka-brokers: is missing, and outbox-topic needs it, as in"
                       " \"kafka-brokers = 127.0.0.1:9092\"");
    return 0;
}

const char *config_text(const struct config *config, enum config_id id)
{
    return config->texts[id] ? config->texts[id] : config_options[id].default_text;
}

bool config_bool(const struct config *config, enum config_id id)
{
    bool value = false;
    bool ok = parse_bool(config_text(config, id), &value);
    return ok && value; /* checked when it was set */
}

int64_t config_number(const struct config *config, enum config_id id)
{
    int64_t value = 0;
    bool ok = parse_number(&config_options[id], config_text(config, id), &value);
    return ok ? value : 0; /* checked when it was set */
}

int config_list(const struct config *config, enum config_id id, const char ***ret_items,
                size_t *ret_count, struct err *err)
{
    const char *text = config_text(config, id);
    size_t most = 1;
    for (const char *p = text; *p; p++)
        most += *p == ',';
    const char **items = mem_calloc(1, most * sizeof *items + strlen(text) + 1);
    if (!items)
        return err_set(err, ERR_NOMEM, "%s: out of memory", config_options[id].name);
    char *copy = (char *)(items + most);
    memcpy(copy, text, strlen(text) + 1);
    size_t count = 0;
    char *rest = copy;
    for (char *item; (item = strsep(&rest, ","));) {
        item += strspn(item, " ");
        size_t size = strlen(item);
        while (size && item[size - 1] == ' ')
            item[--size] = '\0';
        if (size)
            items[count++] = item;
    }
    *ret_items = items;
    *ret_count = count;
    return 0;
}
