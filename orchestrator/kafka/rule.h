/* A rule: which records of which topic start sagas of which definition, and what of a record is the
 * business key. It stands in the configuration file as a section of its own:
 *
 *     [kafka settlements]
 *     topic = payments.settlements
 *     definition = settlement
 *     start = group
 *     value = protobuf
 *
 * Decides what a rule may say. Never: I/O. Any thread; a rule does not change once it is made. */
#ifndef KAFKA_RULE_H
#define KAFKA_RULE_H

#include "base/err.h"
#include "core/definition.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KAFKA_RULES_MAX = 64, /* each has a thread and a connection of its own */
    KAFKA_RULE_NAME_BYTES = 40,
    KAFKA_TOPIC_BYTES = 249,
    KAFKA_GROUP_BYTES = 255,
    KAFKA_INSTANCE_BYTES = 128,
    KAFKA_HEADER_NAME_BYTES = 255,
    KAFKA_FILTERS_MAX = 16,
    KAFKA_FILTER_BYTES = 1024,
    KAFKA_PROPERTIES_MAX = 100,
    KAFKA_PROPERTY_BYTES = 4096, /* of a value */
    KAFKA_BATCH_MAX = 1000,      /* records */
};

/* Where a partition begins that has no cursor yet. */
enum kafka_start {
    KAFKA_START_GROUP, /* at the offset that the group has committed */
    KAFKA_START_EARLIEST,
    KAFKA_START_LATEST,
    KAFKA_START_TIME, /* at the first record of start_ms or later */
};

/* Where the business key comes from. */
enum kafka_key {
    KAFKA_KEY_DEFINITION, /* made of the input by the definition's own template */
    KAFKA_KEY_RECORD,     /* the record's key, as text */
    KAFKA_KEY_HEADER,     /* the header `key_text` */
    KAFKA_KEY_TEMPLATE,   /* made of the value's fields by `key_text` */
};

/* How a record's value becomes the saga's input. */
enum kafka_value {
    KAFKA_VALUE_PROTOBUF, /* a message of the definition's input type, as it is */
    KAFKA_VALUE_JSON,     /* read as the definition's input type; without one: JSON, as it is */
    KAFKA_VALUE_BYTES,    /* as it is, of a definition without an input type */
};

enum kafka_mismatch { KAFKA_MISMATCH_FIRST_WINS, KAFKA_MISMATCH_DEAD_LETTER };
enum kafka_tombstone { KAFKA_TOMBSTONE_DEAD_LETTER, KAFKA_TOMBSTONE_IGNORE };

struct kafka_filter {
    bool is_header; /* false: a field of the value */
    bool is_not;    /* holds where it differs, and where there is none */
    char *name;     /* of the header; path of the field ("order.status") */
    char *text;     /* what it must be; may be "" */
};

/* A property of librdkafka, passed through. */
struct kafka_property {
    char *name, *value;
    unsigned line; /* of the file */
};
struct kafka_properties {
    struct kafka_property *items;
    size_t count, capacity;
};

/* What the keys of a section are, in the order in which they are printed. "filter" may come more
 * than once; "librdkafka.PROPERTY" is none of these. */
enum kafka_rule_key {
    RULE_TOPIC,
    RULE_DEFINITION,
    RULE_NAMESPACE,
    RULE_GROUP,
    RULE_START,
    RULE_CONFIRM_EARLIEST,
    RULE_KEY,
    RULE_VALUE,
    RULE_FILTER,
    RULE_CANARY,
    RULE_ON_MISMATCH,
    RULE_TOMBSTONE,
    RULE_WHILE_HELD,
    RULE_INSTANCE,
    RULE_BATCH,
    RULE_KEY_COUNT
};
struct kafka_rule_key_info {
    const char *name, *default_text; /* NULL: it must be given; "": see help */
    const char *example, *help;
};
extern const struct kafka_rule_key_info kafka_rule_keys[RULE_KEY_COUNT];

struct kafka_rule {
    char *name; /* owned by the rule, as all strings here */
    char *topic, *group, *namespace_, *definition;
    enum kafka_start start;
    int64_t start_ms; /* KAFKA_START_TIME: Unix epoch */
    bool confirm_earliest;
    enum kafka_key key;
    char *key_text; /* KAFKA_KEY_HEADER, KAFKA_KEY_TEMPLATE; else NULL */
    enum kafka_value value;
    struct kafka_filter filters[KAFKA_FILTERS_MAX]; /* all must hold */
    size_t filter_count;
    unsigned canary; /* keys with crc32(key) % 100 below it; 100: all */
    enum kafka_mismatch on_mismatch;
    enum kafka_tombstone tombstone;
    bool pauses_while_held; /* a handler of the definition's actions */
    char *instance;         /* group.instance.id; NULL: the node's name */
    unsigned batch;         /* most records of one transaction */
    struct kafka_properties properties;

    char *texts[RULE_KEY_COUNT]; /* as they were given; NULL: the default. Filters: see `filters` */
    unsigned line;               /* of the section in the file */
};

/* An owned rule with every default in place; NULL in *ret on failure. ERR_INVALID: the name is not
 * [a-z0-9-]. */
MUST_USE int kafka_rule_new(const char *name, unsigned line, struct kafka_rule **ret,
                            struct err *err);
struct kafka_rule *kafka_rule_free(struct kafka_rule *rule); /* NULL is fine; returns NULL */
static inline void kafka_rule_free_p(struct kafka_rule **rule)
{
    *rule = kafka_rule_free(*rule);
}
/* One "key = value" of the section. ERR_INVALID says what is allowed; the rule is as it was. */
MUST_USE int kafka_rule_set(struct kafka_rule *rule, const char *key, const char *value,
                            unsigned line, struct err *err);
/* All keys were set: what is missing, and what does not go together. */
MUST_USE int kafka_rule_finish(struct kafka_rule *rule, struct err *err);

/* Can the rule start sagas of this revision at all? Said when the rule starts and when another
 * revision becomes the one for new sagas; what is wrong with one record is said of that record.
 * ERR_INVALID: a template or a filter names a field that the type does not have; the value is of a
 * kind that the definition has no use for; no business key is made. */
MUST_USE int kafka_rule_check(const struct kafka_rule *rule, const struct definition *definition,
                              struct err *err);

/* Adds one. ERR_INVALID: given twice; one that librdkafka does not know, or not with that value;
 * one that would break a promise (commits, offsets and membership are sagad's own), with the
 * reason. */
MUST_USE int kafka_properties_add(struct kafka_properties *properties, const char *name,
                                  const char *value, unsigned line, struct err *err);
void kafka_properties_done(struct kafka_properties *properties);
/* A password or a key, which is never printed? */
bool kafka_property_is_secret(const char *name);

#endif
