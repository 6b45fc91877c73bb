#include "kafka/rule.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "schema/template.h"
#include "wire/json_scalars.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
const struct kafka_rule_key_info kafka_rule_keys[RULE_KEY_COUNT] = {
    [RULE_TOPIC] = { "topic", NULL, "payments.settlements",
        "The topic to read." },
    [RULE_DEFINITION] = { "definition", NULL, "settlement",
        "The definition whose sagas its records start; always of the revision for new sagas." },
    [RULE_NAMESPACE] = { "namespace", "default", "default",
        "The namespace of the sagas." },
    [RULE_GROUP] = { "group", "", "sagad-settlements",
        "The consumer group, no other rule's. Empty: sagad-RULE. Its offsets only follow what the"
        " database says." },
    [RULE_START] = { "start", NULL, "group",
        "Where a partition begins that sagad has not read yet: group (at the offset that the group"
        " has committed), earliest, latest, or a time such as 2026-11-01T00:00:00Z." },
    [RULE_CONFIRM_EARLIEST] = { "confirm-earliest", "no", "no",
        "yes: start = earliest is meant although a group has read the topic, and half of it may be"
        " processed already." },
    [RULE_KEY] = { "key", "", "record-key",
        "Where the business key comes from: record-key, header:NAME, or template:{order_id} with"
        " fields of the value. Empty: the definition makes it." },
    [RULE_VALUE] = { "value", NULL, "protobuf",
        "What the value is: protobuf (of the definition's input type), json (read as that type; of"
        " a definition without one: kept as it is), or bytes (of a definition without one)." },
    [RULE_FILTER] = { "filter", "", "header:type=settlement",
        "Which records count: header:NAME=TEXT or field:PATH=TEXT, or with != (which also holds"
        " where there is none). May come more than once; all must hold. Others are counted and"
        " passed over. Of headers with one name the last counts." },
    [RULE_CANARY] = { "canary", "100", "5",
        "Only keys with crc32(key) % 100 below this number; the others are counted and passed"
        " over. 100: all keys." },
    [RULE_ON_MISMATCH] = { "on-mismatch", "first-wins", "first-wins",
        "What becomes of a record whose key has started a saga with another value: first-wins"
        " (counted) or dead-letter." },
    [RULE_TOMBSTONE] = { "tombstone", "dead-letter", "dead-letter",
        "What becomes of a record without a value (null): dead-letter or ignore. An empty value is"
        " a value." },
    [RULE_WHILE_HELD] = { "while-held", "start", "pause",
        "What becomes of records while a handler of the definition's actions is held: start (their"
        " sagas start and wait) or pause (they stay in the topic, and nothing waits in the database)." },
    [RULE_INSTANCE] = { "instance", "", "",
        "This member's name in the group (group.instance.id), its own among all that serve the"
        " rule, and the same again after a restart. Empty: the orchestrator's name." },
    [RULE_BATCH] = { "batch", "1000", "1000",
        "Most records that share one transaction." },
};
/* clang-format on */

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "a rule: out of memory");
}

/* ---- values ---- */

static int keep(char **where, const char *text, struct err *err)
{
    char *copy = mem_strdup(text);
    if (!copy)
        return out_of_memory(err);
    mem_free(*where);
    *where = copy;
    return 0;
}

static int keep_text(char **where, const char *value, size_t max, struct err *err)
{
    size_t size = strlen(value);
    if (!size || size > max || !utf8_is_text(value, size))
        return err_set(err, ERR_INVALID,
                       "must be text of 1 to %zu bytes without control characters", max);
    return keep(where, value, err);
}

/* Only characters of [A-Za-z0-9] and `others`. */
static bool is_made_of(const char *text, const char *others)
{
    for (; *text; text++)
        if (!((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
              (*text >= '0' && *text <= '9') || strchr(others, *text)))
            return false;
    return true;
}

struct word {
    const char *name;
    int value;
};

static int take_word(const char *value, const struct word *words, size_t count, const char *allowed,
                     int *ret, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(value, words[i].name) == 0) {
            *ret = words[i].value;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "must be %s, not \"%.100s\"", allowed, value);
}

static int take_number(const char *value, unsigned max, unsigned *ret, struct err *err)
{
    size_t size = strlen(value);
    unsigned number = 0;
    if (size && size <= 9 && strspn(value, "0123456789") == size)
        number = (unsigned)strtoul(value, NULL, 10);
    if (!number || number > max)
        return err_set(err, ERR_INVALID, "must be a number from 1 to %u, not \"%.100s\"", max,
                       value);
    *ret = number;
    return 0;
}

static int set_topic(struct kafka_rule *rule, const char *value, struct err *err)
{
    if (!*value || strlen(value) > KAFKA_TOPIC_BYTES || !is_made_of(value, "._-") ||
        strcmp(value, ".") == 0 || strcmp(value, "..") == 0)
        return err_set(err, ERR_INVALID, "must be a topic: 1 to %d of [A-Za-z0-9._-]",
                       KAFKA_TOPIC_BYTES);
    return keep(&rule->topic, value, err);
}

static int set_definition(struct kafka_rule *rule, const char *value, struct err *err)
{
    if (!*value || strlen(value) > LIMIT_DEFINITION_NAME_BYTES || !is_made_of(value, "._-"))
        return err_set(err, ERR_INVALID, "must be a definition: 1 to %d of [A-Za-z0-9._-]",
                       LIMIT_DEFINITION_NAME_BYTES);
    return keep(&rule->definition, value, err);
}

static int set_namespace(struct kafka_rule *rule, const char *value, struct err *err)
{
    if (!*value || strlen(value) > LIMIT_NAMESPACE_BYTES || !is_made_of(value, "-") ||
        strpbrk(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        return err_set(err, ERR_INVALID, "must be a namespace: 1 to %d of [a-z0-9-]",
                       LIMIT_NAMESPACE_BYTES);
    return keep(&rule->namespace_, value, err);
}

static int set_group(struct kafka_rule *rule, const char *value, struct err *err)
{
    return keep_text(&rule->group, value, KAFKA_GROUP_BYTES, err);
}

static int set_instance(struct kafka_rule *rule, const char *value, struct err *err)
{
    return keep_text(&rule->instance, value, KAFKA_INSTANCE_BYTES, err);
}

static int set_start(struct kafka_rule *rule, const char *value, struct err *err)
{
    static const struct word words[] = { { "group", KAFKA_START_GROUP },
                                         { "earliest", KAFKA_START_EARLIEST },
                                         { "latest", KAFKA_START_LATEST } };
    int64_t seconds;
    int32_t nanos;
    if (json_timestamp_read(value, &seconds, &nanos) && seconds >= 0) {
        rule->start = KAFKA_START_TIME;
        rule->start_ms = seconds * 1000 + (nanos + 999999) / 1000000;
        return 0;
    }
    int start = 0;
    int rc =
        take_word(value, words, ARRAY_LEN(words),
                  "group, earliest, latest or a time such as 2026-11-01T00:00:00Z", &start, err);
    if (!rc)
        rule->start = (enum kafka_start)start;
    return rc;
}

static int set_confirm_earliest(struct kafka_rule *rule, const char *value, struct err *err)
{
    static const struct word words[] = { { "yes", true }, { "no", false } };
    int confirm = 0;
    int rc = take_word(value, words, ARRAY_LEN(words), "yes or no", &confirm, err);
    if (!rc)
        rule->confirm_earliest = confirm;
    return rc;
}

static const char *behind(const char *value, const char *prefix)
{
    size_t size = strlen(prefix);
    return strncmp(value, prefix, size) == 0 ? value + size : NULL;
}

static int check_header_name(const char *name, size_t size, struct err *err)
{
    if (size && size <= KAFKA_HEADER_NAME_BYTES && utf8_is_text(name, size))
        return 0;
    return err_set(err, ERR_INVALID, "the name of a header has 1 to %d bytes, not %zu",
                   KAFKA_HEADER_NAME_BYTES, size);
}

/* Whole, and with a field in it: without one all records would have one key. */
static int check_template(const char *text, struct err *err)
{
    size_t size = strlen(text);
    bool has_field = false;
    if (size > LIMIT_TEMPLATE_BYTES || !utf8_is_text(text, size))
        return err_set(err, ERR_INVALID, "a template has at most %d bytes of text, not %zu",
                       LIMIT_TEMPLATE_BYTES, size);
    while (*text) {
        struct template_part part;
        int rc = template_next(&text, &part, err);
        if (rc)
            return rc;
        if (part.is_path && !part.size)
            return err_set(err, ERR_INVALID, "a field without a name: {}");
        has_field = has_field || part.is_path;
    }
    return has_field ? 0
                     : err_set(err, ERR_INVALID,
                               "a template names a field of the value, as {order_id}: all records "
                               "would have the same key");
}

static int set_key(struct kafka_rule *rule, const char *value, struct err *err)
{
    const char *header = behind(value, "header:"), *text = behind(value, "template:");
    int rc = 0;
    if (strcmp(value, "record-key") == 0) {
        rule->key = KAFKA_KEY_RECORD;
        return 0;
    }
    if (header)
        rc = check_header_name(header, strlen(header), err);
    else if (text)
        rc = check_template(text, err);
    else
        rc = err_set(err, ERR_INVALID,
                     "must be record-key, header:NAME or template:{field}, not \"%.100s\"", value);
    if (!rc)
        rc = keep(&rule->key_text, header ? header : text, err);
    if (!rc)
        rule->key = header ? KAFKA_KEY_HEADER : KAFKA_KEY_TEMPLATE;
    return rc;
}

static int set_value(struct kafka_rule *rule, const char *value, struct err *err)
{
    static const struct word words[] = { { "protobuf", KAFKA_VALUE_PROTOBUF },
                                         { "json", KAFKA_VALUE_JSON },
                                         { "bytes", KAFKA_VALUE_BYTES } };
    int kind = 0;
    int rc = take_word(value, words, ARRAY_LEN(words), "protobuf, json or bytes", &kind, err);
    if (!rc)
        rule->value = (enum kafka_value)kind;
    return rc;
}

/* "NAME=TEXT", "NAME!=TEXT": a name does not hold a "=". */
static int split_filter(struct kafka_filter *filter, const char *text, struct err *err)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return err_set(err, ERR_INVALID, "must have = or != and what the text is to be");
    size_t size = (size_t)(equals - text);
    filter->is_not = size && text[size - 1] == '!';
    size -= filter->is_not;
    int rc = 0;
    if (filter->is_header)
        rc = check_header_name(text, size, err);
    else if (!size || text[0] == '.' || text[size - 1] == '.' || memmem(text, size, "..", 2))
        rc = err_set(err, ERR_INVALID, "a field is names with dots between them, as order.status");
    if (rc)
        return rc;
    filter->name = mem_strndup(text, size);
    filter->text = mem_strdup(equals + 1);
    return filter->name && filter->text ? 0 : out_of_memory(err);
}

static void filter_done(struct kafka_filter *filter)
{
    mem_free(filter->name);
    mem_free(filter->text);
    *filter = (struct kafka_filter){ 0 };
}

static int set_filter(struct kafka_rule *rule, const char *value, struct err *err)
{
    const char *header = behind(value, "header:"), *field = behind(value, "field:");
    struct kafka_filter *filter = &rule->filters[rule->filter_count];
    size_t size = strlen(value);
    if (!header && !field)
        return err_set(err, ERR_INVALID, "must be header:NAME=TEXT or field:PATH=TEXT");
    if (size > KAFKA_FILTER_BYTES || !utf8_is_text(value, size))
        return err_set(err, ERR_INVALID, "must be text of at most %d bytes", KAFKA_FILTER_BYTES);
    if (rule->filter_count == KAFKA_FILTERS_MAX)
        return err_set(err, ERR_INVALID, "more than %d", KAFKA_FILTERS_MAX);
    filter->is_header = header != NULL;
    int rc = split_filter(filter, header ? header : field, err);
    if (rc)
        filter_done(filter);
    else
        rule->filter_count++;
    return rc;
}

static int set_canary(struct kafka_rule *rule, const char *value, struct err *err)
{
    return take_number(value, 100, &rule->canary, err);
}

static int set_on_mismatch(struct kafka_rule *rule, const char *value, struct err *err)
{
    static const struct word words[] = { { "first-wins", KAFKA_MISMATCH_FIRST_WINS },
                                         { "dead-letter", KAFKA_MISMATCH_DEAD_LETTER } };
    int word = 0;
    int rc = take_word(value, words, ARRAY_LEN(words), "first-wins or dead-letter", &word, err);
    if (!rc)
        rule->on_mismatch = (enum kafka_mismatch)word;
    return rc;
}

static int set_tombstone(struct kafka_rule *rule, const char *value, struct err *err)
{
    static const struct word words[] = { { "dead-letter", KAFKA_TOMBSTONE_DEAD_LETTER },
                                         { "ignore", KAFKA_TOMBSTONE_IGNORE } };
    int word = 0;
    int rc = take_word(value, words, ARRAY_LEN(words), "dead-letter or ignore", &word, err);
    if (!rc)
        rule->tombstone = (enum kafka_tombstone)word;
    return rc;
}

static int set_while_held(struct kafka_rule *rule, const char *value, struct err *err)
{
    static const struct word words[] = { { "start", false }, { "pause", true } };
    int word = 0;
    int rc = take_word(value, words, ARRAY_LEN(words), "start or pause", &word, err);
    if (!rc)
        rule->pauses_while_held = word != 0;
    return rc;
}

static int set_batch(struct kafka_rule *rule, const char *value, struct err *err)
{
    return take_number(value, KAFKA_BATCH_MAX, &rule->batch, err);
}

/* ---- the rule ---- */

int kafka_rule_new(const char *name, unsigned line, struct kafka_rule **ret, struct err *err)
{
    if (!*name || strlen(name) > KAFKA_RULE_NAME_BYTES || !is_made_of(name, "-") ||
        strpbrk(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        return err_set(err, ERR_INVALID,
                       "the name of a rule is 1 to %d of [a-z0-9-], not \"%.100s\"",
                       KAFKA_RULE_NAME_BYTES, name);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = mem_calloc(1, sizeof *rule);
    if (!rule)
        return out_of_memory(err);
    char group[sizeof "sagad-" + KAFKA_RULE_NAME_BYTES];
    (void)snprintf(group, sizeof group, "sagad-%s", name);
    rule->line = line;
    rule->canary = 100;
    rule->batch = KAFKA_BATCH_MAX;
    int rc = keep(&rule->name, name, err);
    if (!rc)
        rc = keep(&rule->group, group, err);
    if (!rc)
        rc = keep(&rule->namespace_, kafka_rule_keys[RULE_NAMESPACE].default_text, err);
    if (!rc)
        *ret = TAKE(rule);
    return rc;
}

struct kafka_rule *kafka_rule_free(struct kafka_rule *rule)
{
    if (!rule)
        return NULL;
    char *const texts[] = { rule->name,       rule->topic,    rule->group,   rule->namespace_,
                            rule->definition, rule->key_text, rule->instance };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        mem_free(texts[i]);
    for (size_t i = 0; i < rule->filter_count; i++)
        filter_done(&rule->filters[i]);
    for (int i = 0; i < RULE_KEY_COUNT; i++)
        mem_free(rule->texts[i]);
    kafka_properties_done(&rule->properties);
    mem_free(rule);
    return NULL;
}

static int (*const setters[RULE_KEY_COUNT])(struct kafka_rule *, const char *, struct err *) = {
    [RULE_TOPIC] = set_topic,
    [RULE_DEFINITION] = set_definition,
    [RULE_NAMESPACE] = set_namespace,
    [RULE_GROUP] = set_group,
    [RULE_START] = set_start,
    [RULE_CONFIRM_EARLIEST] = set_confirm_earliest,
    [RULE_KEY] = set_key,
    [RULE_VALUE] = set_value,
    [RULE_FILTER] = set_filter,
    [RULE_CANARY] = set_canary,
    [RULE_ON_MISMATCH] = set_on_mismatch,
    [RULE_TOMBSTONE] = set_tombstone,
    [RULE_WHILE_HELD] = set_while_held,
    [RULE_INSTANCE] = set_instance,
    [RULE_BATCH] = set_batch,
};

static int find_key(const char *name)
{
    for (int i = 0; i < RULE_KEY_COUNT; i++)
        if (strcmp(kafka_rule_keys[i].name, name) == 0)
            return i;
    return -1;
}

int kafka_rule_set(struct kafka_rule *rule, const char *key, const char *value, unsigned line,
                   struct err *err)
{
    const char *property = behind(key, "librdkafka.");
    if (property)
        return kafka_properties_add(&rule->properties, property, value, line, err);
    int id = find_key(key);
    if (id < 0)
        return err_set(err, ERR_INVALID,
                       "unknown key \"%.100s\" (sagad --print-example lists them)", key);
    if (rule->texts[id] && id != RULE_FILTER)
        return err_set(err, ERR_INVALID, "%s: given twice", key);
    CLEANUP(mem_free_p) char *text = mem_strdup(value);
    if (!text)
        return out_of_memory(err);
    const char *default_text = kafka_rule_keys[id].default_text;
    bool is_default = !*value && default_text && !*default_text;
    if (!is_default && setters[id](rule, value, err) != 0)
        return err_wrap(err, "%s", key);
    mem_free(rule->texts[id]);
    rule->texts[id] = TAKE(text);
    return 0;
}

int kafka_rule_finish(struct kafka_rule *rule, struct err *err)
{
    for (int i = 0; i < RULE_KEY_COUNT; i++)
        if (!kafka_rule_keys[i].default_text && !rule->texts[i])
            return err_set(err, ERR_INVALID, "%s is missing, as in \"%s = %s\"",
                           kafka_rule_keys[i].name, kafka_rule_keys[i].name,
                           kafka_rule_keys[i].example);
    if (rule->value != KAFKA_VALUE_BYTES)
        return 0;
    if (rule->key == KAFKA_KEY_TEMPLATE)
        return err_set(err, ERR_INVALID,
                       "key: a template needs fields, which value = bytes does not have");
    for (size_t i = 0; i < rule->filter_count; i++)
        if (!rule->filters[i].is_header)
            return err_set(err, ERR_INVALID,
                           "filter: field:%.100s needs fields, which value = bytes does not have",
                           rule->filters[i].name);
    return 0;
}
