/* Goal: no record and no rule breaks us; what becomes of a record is said in words that can be kept
 * and shown; fields of JSON without a type are what another reader of JSON finds in them. Method: a
 * script makes the lines of a rule, chooses a definition (without types, or with one of
 * tests/definitions/kinds.proto), and makes the record; another byte says where memory ends. */
#include "base/utf8.h"
#include "fuzz.h"
#include "kafka/json_field.h"
#include "kafka/record.h"
#include "schema/definition_types.h"
#include "schema/payload.h"

#include <jansson.h>
#include <string.h>

enum { SET_BYTES_MAX = 64 * 1024, LINES_MAX = 12, HEADERS_MAX = 4, TEXT_MAX = 512 };

/* Append only: kept inputs count in it. NULL: bytes. */
static const struct {
    const char *type, *key, *label;
} kinds[] = {
    { NULL, NULL, NULL },
    { "test.kinds.Small", NULL, NULL },
    { "test.kinds.Small", "{text}/{inner.number}", NULL },
    { "test.kinds.Kinds", NULL, "{a_string}" },
    { "test.kinds.Old", "{id}", "{text}" },
    { "google.protobuf.Value", NULL, NULL },
};
static struct definition *definitions[ARRAY_LEN(kinds)]; /* never freed */

static void load_definitions(void)
{
    static uint8_t data[SET_BYTES_MAX];
    FILE *file = fopen(KINDS_SET, "rb");
    FUZZ_CHECK(file);
    const struct bytes set = { data, fread(data, 1, sizeof data, file) };
    (void)fclose(file); /* it was only read */
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct definition *definition = definition_new(1);
        struct err err;
        FUZZ_CHECK(definition);
        definitions[i] = definition;
        definition->name = mem_strdup("d");
        if (!kinds[i].type)
            continue;
        definition->input_type = mem_strdup(kinds[i].type);
        definition->key_template = kinds[i].key ? mem_strdup(kinds[i].key) : NULL;
        if (kinds[i].label)
            definition->labels[definition->label_count++] =
                (struct label_template){ mem_strdup("l"), mem_strdup(kinds[i].label) };
        FUZZ_OK(definition_types_add(definition, &set, &err), &err);
    }
}

/* A piece as text, which ends at its first NUL. */
static void take_text(struct script *script, char ret[TEXT_MAX])
{
    size_t size;
    const uint8_t *piece = script_piece(script, &size);
    if (size > TEXT_MAX - 1)
        size = TEXT_MAX - 1;
    if (size)
        memcpy(ret, piece, size);
    ret[size] = '\0';
}

static bool is_refusal(int rc, bool little_memory)
{
    return rc == ERR_INVALID || (little_memory && rc == ERR_NOMEM);
}

/* What a rule must have is there before the script says anything. */
static struct kafka_rule *take_rule(struct script *script, uint8_t memory)
{
    static const char *const values[] = { "protobuf", "json", "bytes" };
    struct kafka_rule *rule = NULL;
    struct err err;
    char key[TEXT_MAX + 16], value[TEXT_MAX];
    FUZZ_OK(kafka_rule_new("r", 1, &rule, &err), &err);
    FUZZ_OK(kafka_rule_set(rule, "topic", "t", 1, &err), &err);
    FUZZ_OK(kafka_rule_set(rule, "definition", "d", 1, &err), &err);
    FUZZ_OK(kafka_rule_set(rule, "value", values[script_choice(script, 3)], 1, &err), &err);
    unsigned count = script_choice(script, LINES_MAX);
    fail_memory(memory);
    for (unsigned i = 0; i < count; i++) {
        unsigned which = script_choice(script, RULE_KEY_COUNT + 2);
        char name[TEXT_MAX] = "";
        if (which >= RULE_KEY_COUNT)
            take_text(script, name);
        (void)snprintf(key, sizeof key, "%s%s",
                       which < RULE_KEY_COUNT    ? kafka_rule_keys[which].name
                       : which == RULE_KEY_COUNT ? "librdkafka."
                                                 : "",
                       name);
        take_text(script, value);
        int rc = kafka_rule_set(rule, key, value, i + 2, &err);
        FUZZ_CHECK(!rc || (is_refusal(rc, memory) && *err.msg));
    }
    fail_memory(0);
    if (!rule->texts[RULE_START])
        FUZZ_OK(kafka_rule_set(rule, "start", "group", 1, &err), &err);
    return rule;
}

static void check_rule(const struct kafka_rule *rule)
{
    FUZZ_CHECK(rule->filter_count <= KAFKA_FILTERS_MAX);
    FUZZ_CHECK(rule->canary >= 1 && rule->canary <= 100);
    FUZZ_CHECK(rule->batch >= 1 && rule->batch <= KAFKA_BATCH_MAX);
    FUZZ_CHECK(rule->start_ms >= 0 && (!rule->start_ms || rule->start == KAFKA_START_TIME));
    FUZZ_CHECK((rule->key == KAFKA_KEY_HEADER || rule->key == KAFKA_KEY_TEMPLATE) ==
               (rule->key_text != NULL));
    for (size_t i = 0; i < rule->filter_count; i++)
        FUZZ_CHECK(*rule->filters[i].name && rule->filters[i].text);
    for (size_t i = 0; i < rule->properties.count; i++)
        FUZZ_CHECK(strcmp(rule->properties.items[i].name, "enable.auto.commit") != 0);
}

static struct kafka_bytes take_bytes(struct script *script)
{
    struct kafka_bytes bytes = { .is_there = script_byte(script) != 0 };
    if (bytes.is_there)
        bytes.data = script_piece(script, &bytes.size);
    return bytes;
}

/* The value comes last: what is left. */
static void take_record(struct script *script, struct kafka_header *headers,
                        char names[HEADERS_MAX][TEXT_MAX], struct kafka_record *ret)
{
    *ret = (struct kafka_record){ .topic = "t", .headers = headers };
    ret->key = take_bytes(script);
    ret->header_count = script_choice(script, HEADERS_MAX + 1);
    for (size_t i = 0; i < ret->header_count; i++) {
        take_text(script, names[i]);
        headers[i] = (struct kafka_header){ names[i], take_bytes(script) };
    }
    if (script_byte(script) != 0)
        ret->value = (struct kafka_bytes){ script->data, script->left, true };
}

static void check_start(const struct kafka_rule *rule, const struct definition *definition,
                        const struct kafka_record *record, const struct kafka_verdict *verdict)
{
    const struct schema *schema = NULL;
    const struct schema_message *type = definition_input_type(definition, &schema);
    size_t size = strlen(verdict->saga_id);
    struct err err;
    FUZZ_CHECK(size && size <= LIMIT_SAGA_ID_BYTES && utf8_is_text(verdict->saga_id, size));
    FUZZ_CHECK(kafka_canary_takes(rule->canary, verdict->saga_id, size));
    FUZZ_CHECK(verdict->input.size <= LIMIT_PAYLOAD_BYTES && record->value.is_there);
    FUZZ_CHECK((verdict->labels != NULL) == (definition->label_count > 0));
    if (type)
        FUZZ_OK(payload_check(type, verdict->input.data, verdict->input.size, &err), &err);
    if (!type || rule->value == KAFKA_VALUE_PROTOBUF)
        FUZZ_CHECK(verdict->input.size == record->value.size &&
                   (!verdict->input.size ||
                    memcmp(verdict->input.data, record->value.data, verdict->input.size) == 0));
}

static void check_verdict(const struct kafka_rule *rule, const struct definition *definition,
                          const struct kafka_record *record, const struct kafka_verdict *verdict)
{
    bool is_dead = verdict->outcome == KAFKA_RECORD_DEAD;
    FUZZ_CHECK(verdict->outcome < KAFKA_OUTCOME_COUNT);
    FUZZ_CHECK(is_dead == (*kafka_reason_name(verdict->reason) != '\0'));
    FUZZ_CHECK(is_dead == (*verdict->message != '\0'));
    FUZZ_CHECK(utf8_is_text(verdict->message, strlen(verdict->message)));
    FUZZ_CHECK(verdict->reason != KAFKA_REASON_VALUE_EMPTY ||
               (record->value.is_there && !record->value.size));
    FUZZ_CHECK(verdict->reason != KAFKA_REASON_VALUE_NULL || !record->value.is_there);
    if (verdict->outcome == KAFKA_RECORD_START)
        check_start(rule, definition, record, verdict);
    else
        FUZZ_CHECK(!verdict->labels && !verdict->input.data && (is_dead || !verdict->saga_id));
}

static void try_record(const struct kafka_rule *rule, const struct definition *definition,
                       const struct kafka_record *record, uint8_t memory)
{
    struct kafka_verdict verdict = { 0 }, again = { 0 };
    struct err err;
    fail_memory(memory);
    int rc = kafka_record_read(rule, definition, LIMIT_PAYLOAD_BYTES, record, &verdict, &err);
    fail_memory(0);
    FUZZ_CHECK(!rc || (memory && rc == ERR_NOMEM && !verdict.saga_id));
    FUZZ_OK(kafka_record_read(rule, definition, LIMIT_PAYLOAD_BYTES, record, &again, &err), &err);
    check_verdict(rule, definition, record, &again);
    if (!rc)
        FUZZ_CHECK(verdict.outcome == again.outcome && verdict.reason == again.reason &&
                   strcmp(verdict.message, again.message) == 0);
    kafka_verdict_done(&verdict);
    kafka_verdict_done(&again);
}

/* Its own limits are no fault of the text; a NUL behind a token it does not see. */
static json_t *read_otherwise(const struct kafka_bytes *value, bool *ret_is_limit)
{
    json_error_t where;
    json_t *json = json_loadb((const char *)value->data, value->size,
                              JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &where);
    enum json_error_code code = json_error_code(&where);
    *ret_is_limit =
        memchr(value->data, 0, value->size) ||
        (!json && (code == json_error_numeric_overflow || code == json_error_null_byte_in_key));
    return json;
}

/* A member "a" that both have found: the same string, the same word. (That of several jansson
 * takes the last, and we none.) */
static void compare_field(const struct kafka_bytes *value, const json_t *json)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    struct err err;
    bool is_there = false;
    const json_t *member = json_object_get(json, "a");
    int rc =
        json_field_write((const char *)value->data, value->size, "a", 1, &text, &is_there, &err);
    if (rc) {
        FUZZ_CHECK(rc == ERR_INVALID && strcmp(err.field, "a") == 0);
        return;
    }
    FUZZ_CHECK(is_there == (member && !json_is_null(member)));
    if (json_is_string(member))
        FUZZ_CHECK(text.size == json_string_length(member) &&
                   (!text.size || memcmp(text.data, json_string_value(member), text.size) == 0));
    if (json_is_boolean(member))
        FUZZ_CHECK(strcmp(buf_cstr(&text), json_is_true(member) ? "true" : "false") == 0);
    if (json_is_number(member))
        FUZZ_CHECK(strtod(buf_cstr(&text), NULL) == json_number_value(member));
}

static void try_json(const struct kafka_bytes *value)
{
    struct err err;
    bool is_limit = false;
    if (!value->size)
        return;
    int rc = json_field_check((const char *)value->data, value->size, &err);
    FUZZ_CHECK(!rc || ((rc == ERR_INVALID || rc == ERR_LIMIT) && !*err.field && *err.msg));
    json_t *json = read_otherwise(value, &is_limit);
    FUZZ_CHECK(is_limit || rc == ERR_LIMIT || (rc == 0) == (json != NULL));
    if (!rc && json)
        compare_field(value, json);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = { data, size };
    struct kafka_header headers[HEADERS_MAX];
    char names[HEADERS_MAX][TEXT_MAX];
    struct kafka_record record;
    struct err err;
    if (!definitions[0])
        load_definitions();
    const struct definition *definition = definitions[script_choice(&script, ARRAY_LEN(kinds))];
    uint8_t memory = script_byte(&script);
    struct kafka_rule *rule = take_rule(&script, memory);
    check_rule(rule);
    take_record(&script, headers, names, &record);
    try_json(&record.value);
    int rc = kafka_rule_finish(rule, &err);
    if (!rc)
        rc = kafka_rule_check(rule, definition, &err);
    FUZZ_CHECK(!rc || (rc == ERR_INVALID && *err.msg));
    if (!rc)
        try_record(rule, definition, &record, memory);
    FUZZ_CHECK(!kafka_rule_free(rule));
    return 0;
}
