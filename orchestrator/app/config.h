/* Every setting of sagad, in one table: the file, the environment, the flags, --help, the example
 * file and --print-config all come from it. A later source wins: default, file, environment, flag.
 * Unknown keys and bad values stop the start and say where, which, why and what is allowed.
 * Never: acts on a setting. thread: the main thread, before others exist. */
#ifndef APP_CONFIG_H
#define APP_CONFIG_H

#include "base/buf.h"
#include "base/err.h"
#include "kafka/rule.h"

#include <stddef.h>
#include <stdint.h>

enum config_id {
    CONFIG_DATABASE,
    CONFIG_LISTEN,
    CONFIG_INSECURE_LISTEN,
    CONFIG_UNSAFE,
    CONFIG_NODE,
    CONFIG_LOG_LEVEL,
    CONFIG_GRACE,
    CONFIG_START_TIMEOUT,
    CONFIG_RPC_THREADS,
    CONFIG_STREAMS_MAX,
    CONFIG_BATCH_MAX,
    CONFIG_RESEND_GRACE,
    CONFIG_STREAM_LOST,
    CONFIG_HEARTBEAT,
    CONFIG_NODE_DEAD,
    CONFIG_RESIDENT_SAGAS_MAX,
    CONFIG_PAYLOAD_BYTES_MAX,
    CONFIG_BREAKER_FAILURES,
    CONFIG_OPEN_FILES,
    CONFIG_PROBE_INTERVAL,
    CONFIG_KAFKA_BROKERS,
    CONFIG_OUTBOX_TOPIC,
    CONFIG_KEY_MEMORY,
    CONFIG_AUDIT_RETENTION,
    CONFIG_RETENTION,
    CONFIG_RETENTION_ARCHIVE,
    CONFIG_DATA,
    CONFIG_PG_BIN,
    CONFIG_COUNT
};

enum config_type {
    CONFIG_TYPE_TEXT,
    CONFIG_TYPE_ADDRESSES, /* a list: the flag may come more than once; commas elsewhere */
    CONFIG_TYPE_BOOL,
    CONFIG_TYPE_INTEGER,
    CONFIG_TYPE_DURATION, /* "10", "0.5", "500ms", "2m", "1h", "90d"; a bare number is seconds */
    CONFIG_TYPE_MEMORY,   /* a duration, or "forever" */
    CONFIG_TYPE_BROKERS,  /* "host:port" with commas between them */
    CONFIG_TYPE_LOG_LEVEL,
};

enum config_command { CONFIG_FOR_SERVE = 1, CONFIG_FOR_DEV = 2 };

struct config_option {
    const char *name; /* of the flag (--name) and of the key in the file */
    const char *env;
    enum config_type type;
    const char *default_text;
    int64_t min, max;  /* INTEGER; DURATION, MEMORY in milliseconds; others: bytes */
    bool secret;       /* never printed */
    unsigned commands; /* which commands know it */
    const char *help;
};
extern const struct config_option config_options[CONFIG_COUNT];

enum config_source { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_ENV, CONFIG_FROM_FLAG };

struct config {
    char *texts[CONFIG_COUNT]; /* owned, valid for their type; NULL: the default */
    enum config_source sources[CONFIG_COUNT];
    unsigned command; /* enum config_command */
    /* From the sections of the file, each [kafka NAME]; owned. */
    struct kafka_rule *rules[KAFKA_RULES_MAX];
    size_t rule_count;
    /* Keys "librdkafka.PROPERTY" before any section: for all rules, whose own win, and the outbox.
     */
    struct kafka_properties kafka;
};
void config_done(struct config *config);

/* -1: no such option for this command. */
int config_find(const char *name, unsigned command);
/* One value of one source. A list grows within its source; anything else given twice is an error.
 */
MUST_USE int config_set(struct config *config, enum config_id id, enum config_source source,
                        const char *text, struct err *err);
/* "key = value" lines, sections, # and ; comments. Errors name file and line. Keys of the other
 * command are checked and left out, so that one file serves both. */
MUST_USE int config_read_file(struct config *config, const char *path, struct err *err);
/* Values that stand in the environment (empty: as if not there). */
MUST_USE int config_read_env(struct config *config, struct err *err);
/* All sources were read: what is there alone although it needs another one. */
MUST_USE int config_check(const struct config *config, struct err *err);

/* Borrowed until the next config_set. */
const char *config_text(const struct config *config, enum config_id id);
bool config_bool(const struct config *config, enum config_id id);
/* INTEGER as it is, DURATION in milliseconds, MEMORY too (-1: forever), LOG_LEVEL as enum
 * log_level. */
int64_t config_number(const struct config *config, enum config_id id);
/* Splits a list; the caller frees the array alone with mem_free (one block). */
MUST_USE int config_list(const struct config *config, enum config_id id, const char ***ret_items,
                         size_t *ret_count, struct err *err);

/* --help: one paragraph an option. */
void config_write_help(unsigned command, struct buf *out);
/* A configuration file in which everything is commented out. */
void config_write_example(struct buf *out);
/* What is in force, as a configuration file, with where it comes from. */
void config_write_values(const struct config *config, struct buf *out);

#endif
