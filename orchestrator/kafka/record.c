#include "kafka/record.h"

#include "base/utf8.h"
#include "kafka/json_field.h"
#include "schema/definition_types.h"
#include "schema/payload.h"
#include "schema/record.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One record on its way. */
struct reading {
    const struct kafka_rule *rule;
    const struct definition *definition;
    size_t payload_bytes_max;
    const struct kafka_record *record;
    const struct schema *schema;
    const struct schema_message *type; /* of the input; NULL: none */
    struct bytes input;                /* borrowed from the record, or from `made` */
    struct bytes made;
    bool is_settled;
    struct kafka_verdict *verdict;
    struct err *err;
};

/* 0: it is settled, or goes on. Else an error that is none of the record's. */
typedef int step_fn(struct reading *reading);

const char *kafka_reason_name(enum kafka_reason reason)
{
    static const char *const names[] = {
        [KAFKA_REASON_NONE] = "",
        [KAFKA_REASON_KEY_MISSING] = "KEY_MISSING",
        [KAFKA_REASON_KEY_INVALID] = "KEY_INVALID",
        [KAFKA_REASON_KEY_MISMATCH] = "KEY_MISMATCH",
        [KAFKA_REASON_HEADER_MISSING] = "HEADER_MISSING",
        [KAFKA_REASON_VALUE_NULL] = "VALUE_NULL",
        [KAFKA_REASON_VALUE_EMPTY] = "VALUE_EMPTY",
        [KAFKA_REASON_VALUE_TOO_LARGE] = "VALUE_TOO_LARGE",
        [KAFKA_REASON_VALUE_UNDECODABLE] = "VALUE_UNDECODABLE",
        [KAFKA_REASON_TYPE_MISMATCH] = "TYPE_MISMATCH",
        [KAFKA_REASON_TEMPLATE] = "TEMPLATE",
        [KAFKA_REASON_MISMATCH] = "MISMATCH",
    };
    _Static_assert(ARRAY_LEN(names) == KAFKA_REASON_COUNT, "one name for each reason");
    return names[reason];
}

void kafka_verdict_done(struct kafka_verdict *verdict)
{
    mem_free(verdict->saga_id);
    mem_free(verdict->input.data);
    mem_free(verdict->labels);
    *verdict = (struct kafka_verdict){ 0 };
}

/* ---- how a step ends ---- */

static int settle(struct reading *reading, enum kafka_outcome outcome)
{
    reading->verdict->outcome = outcome;
    reading->is_settled = true;
    return 0;
}

/* What the message quotes of the record may be anything, and may be cut within a character. */
static void make_text(char *message)
{
    size_t size = strlen(message);
    for (size_t at = 0, taken; at < size; at += taken) {
        taken = 1;
        while (taken < 4 && at + taken < size && !utf8_is_text(message + at, taken))
            taken++;
        if (utf8_is_text(message + at, taken))
            continue;
        message[at] = '?';
        taken = 1;
    }
}

FMT(3, 4)
static int die(struct reading *reading, enum kafka_reason reason, const char *fmt, ...)
{
    struct kafka_verdict *verdict = reading->verdict;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(verdict->message, sizeof verdict->message, fmt, args);
    va_end(args);
    make_text(verdict->message);
    verdict->reason = reason;
    return settle(reading, KAFKA_RECORD_DEAD);
}

/* Of what was found in the value: the record's fault, or ours. */
static int die_of_value(struct reading *reading, enum kafka_reason reason, const char *what)
{
    const struct err *err = reading->err;
    if (err->code != ERR_INVALID && err->code != ERR_LIMIT)
        return (int)err->code;
    if (!reading->record->value.size)
        return die(reading, KAFKA_REASON_VALUE_EMPTY, "the value is empty: %s%s", what, err->msg);
    return die(reading, reason, "%s%s", what, err->msg);
}

/* ---- filters ---- */

static const struct kafka_bytes *find_header(const struct kafka_record *record, const char *name)
{
    for (size_t i = record->header_count; i-- > 0;)
        if (strcmp(record->headers[i].name, name) == 0)
            return record->headers[i].value.is_there ? &record->headers[i].value : NULL;
    return NULL;
}

static bool holds(const struct kafka_filter *filter, bool is_there, const void *data, size_t size)
{
    bool is_same = is_there && size == strlen(filter->text) &&
                   (!size || memcmp(data, filter->text, size) == 0);
    return is_same != filter->is_not;
}

static int filter_by_headers(struct reading *reading)
{
    for (size_t i = 0; i < reading->rule->filter_count; i++) {
        const struct kafka_filter *filter = &reading->rule->filters[i];
        if (!filter->is_header)
            continue;
        const struct kafka_bytes *value = find_header(reading->record, filter->name);
        if (!holds(filter, value != NULL, value ? value->data : NULL, value ? value->size : 0))
            return settle(reading, KAFKA_RECORD_FILTERED);
    }
    return 0;
}

static int filter_by_field(struct reading *reading, const struct kafka_filter *filter)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    const struct bytes *input = &reading->input;
    bool is_there = true;
    int rc = reading->type ? payload_field_write(reading->type, filter->name, input->data,
                                                 input->size, &text, reading->err)
                           : json_field_write((const char *)input->data, input->size, filter->name,
                                              strlen(filter->name), &text, &is_there, reading->err);
    if (rc)
        return die_of_value(reading, KAFKA_REASON_TYPE_MISMATCH, "filter: ");
    if (text.failed)
        return err_set(reading->err, ERR_NOMEM, "filter: out of memory");
    return holds(filter, is_there, text.data, text.size) ? 0
                                                         : settle(reading, KAFKA_RECORD_FILTERED);
}

static int filter_by_fields(struct reading *reading)
{
    int rc = 0;
    for (size_t i = 0; i < reading->rule->filter_count && !rc && !reading->is_settled; i++)
        if (!reading->rule->filters[i].is_header)
            rc = filter_by_field(reading, &reading->rule->filters[i]);
    return rc;
}

/* ---- the key that stands beside the value ---- */

static bool is_beside_the_value(const struct kafka_rule *rule)
{
    return rule->key == KAFKA_KEY_RECORD || rule->key == KAFKA_KEY_HEADER;
}

static const struct kafka_bytes *key_beside_the_value(const struct reading *reading)
{
    const struct kafka_record *record = reading->record;
    if (reading->rule->key == KAFKA_KEY_HEADER)
        return find_header(record, reading->rule->key_text);
    return record->key.is_there ? &record->key : NULL;
}

/* NULL: it is a business key. */
static const char *key_fault(const void *data, size_t size)
{
    if (!size)
        return "is empty";
    if (size > LIMIT_SAGA_ID_BYTES)
        return "is longer than 256 bytes";
    if (!utf8_is_valid(data, size))
        return "is not valid UTF-8";
    return utf8_is_text(data, size) ? NULL : "has control characters";
}
_Static_assert(LIMIT_SAGA_ID_BYTES == 256, "the text says so");

static int take_key(struct reading *reading, const void *data, size_t size)
{
    reading->verdict->saga_id = mem_strndup(data, size);
    return reading->verdict->saga_id ? 0 : err_set(reading->err, ERR_NOMEM, "a key: out of memory");
}

static int take_canary(struct reading *reading)
{
    const char *key = reading->verdict->saga_id;
    return kafka_canary_takes(reading->rule->canary, key, strlen(key))
               ? 0
               : settle(reading, KAFKA_RECORD_NOT_CANARY);
}

/* Whatever else a record is: with a key that is not the canary's it is somebody else's. What is
 * wrong with the key is said later, if nothing passes the record over. */
static int look_at_key(struct reading *reading)
{
    if (!is_beside_the_value(reading->rule))
        return 0;
    const struct kafka_bytes *key = key_beside_the_value(reading);
    if (!key || key_fault(key->data, key->size))
        return 0;
    int rc = take_key(reading, key->data, key->size);
    return rc ? rc : take_canary(reading);
}

/* ---- the value ---- */

static int look_at_null(struct reading *reading)
{
    if (reading->record->value.is_there)
        return 0;
    if (reading->rule->tombstone == KAFKA_TOMBSTONE_IGNORE)
        return settle(reading, KAFKA_RECORD_TOMBSTONE_IGNORED);
    return die(reading, KAFKA_REASON_VALUE_NULL, "the value is null (a tombstone)");
}

static bool is_protobuf(const struct bytes *bytes)
{
    struct records records = { bytes->data, bytes->size, 0 };
    struct record record;
    while (records_left(&records))
        if (record_next(&records, &record))
            return false;
    return true;
}

static int decode_protobuf(struct reading *reading)
{
    const struct bytes *input = &reading->input;
    int rc = payload_check(reading->type, input->data, input->size, reading->err);
    if (!rc)
        return 0;
    return die_of_value(
        reading, is_protobuf(input) ? KAFKA_REASON_TYPE_MISMATCH : KAFKA_REASON_VALUE_UNDECODABLE,
        "value: ");
}

static int decode_json(struct reading *reading)
{
    struct bytes *input = &reading->input;
    const char *text = (const char *)input->data;
    struct err ignored;
    int rc = reading->type ? payload_json_read(reading->schema, reading->type, text, input->size,
                                               &reading->made, reading->err)
                           : json_field_check(text, input->size, reading->err);
    if (rc)
        return die_of_value(reading,
                            json_field_check(text, input->size, &ignored)
                                ? KAFKA_REASON_VALUE_UNDECODABLE
                                : KAFKA_REASON_TYPE_MISMATCH,
                            "value: ");
    if (reading->type)
        *input = reading->made;
    return 0;
}

static int decode(struct reading *reading)
{
    const struct kafka_bytes *value = &reading->record->value;
    bool is_text = reading->rule->value == KAFKA_VALUE_JSON && reading->type;
    size_t max = is_text ? LIMIT_MESSAGE_BYTES : reading->payload_bytes_max;
    if (value->size > max)
        return die(reading, KAFKA_REASON_VALUE_TOO_LARGE, "the value has %zu bytes, at most %zu",
                   value->size, max);
    reading->input = (struct bytes){ (uint8_t *)value->data, value->size };
    int rc = 0;
    if (reading->rule->value == KAFKA_VALUE_JSON)
        rc = decode_json(reading);
    else if (reading->type)
        rc = decode_protobuf(reading);
    if (!rc && !reading->is_settled && reading->input.size > reading->payload_bytes_max)
        return die(reading, KAFKA_REASON_VALUE_TOO_LARGE,
                   "the value has %zu bytes as protobuf, at most %zu", reading->input.size,
                   reading->payload_bytes_max);
    return rc;
}

/* ---- the business key ---- */

/* It was no key when it was looked at. */
static int die_of_key(struct reading *reading)
{
    const struct kafka_bytes *key = key_beside_the_value(reading);
    bool is_header = reading->rule->key == KAFKA_KEY_HEADER;
    if (!key && is_header)
        return die(reading, KAFKA_REASON_HEADER_MISSING,
                   "the header \"%.100s\", which holds the business key, is missing or null",
                   reading->rule->key_text);
    if (!key)
        return die(reading, KAFKA_REASON_KEY_MISSING, "the record's key is null");
    return die(reading, KAFKA_REASON_KEY_INVALID, "%s %s",
               is_header ? "the header that holds the business key" : "the record's key",
               key_fault(key->data, key->size));
}

static int make_key(struct reading *reading)
{
    if (is_beside_the_value(reading->rule))
        return reading->verdict->saga_id ? 0 : die_of_key(reading);
    CLEANUP(buf_done) struct buf key = { 0 };
    const struct bytes *input = &reading->input;
    const char *text = reading->rule->key == KAFKA_KEY_TEMPLATE ? reading->rule->key_text
                                                                : reading->definition->key_template;
    int rc = reading->type ? payload_template_fill(reading->type, text, input->data, input->size,
                                                   LIMIT_SAGA_ID_BYTES, &key, reading->err)
                           : json_template_fill((const char *)input->data, input->size, text,
                                                LIMIT_SAGA_ID_BYTES, &key, reading->err);
    if (rc)
        return die_of_value(reading, KAFKA_REASON_TEMPLATE, "key: ");
    if (key_fault(key.data, key.size))
        return die(reading, KAFKA_REASON_KEY_INVALID, "the key that is made of the value %s",
                   key_fault(key.data, key.size));
    rc = take_key(reading, key.data, key.size);
    return rc ? rc : take_canary(reading);
}

/* ---- the start ---- */

/* What the definition itself says of a start: its key, its labels, its idempotency keys. */
static int ask_definition(struct reading *reading)
{
    const struct definition *definition = reading->definition;
    struct kafka_verdict *verdict = reading->verdict;
    struct payload_start start = { .saga_id = verdict->saga_id };
    int rc = definition->types
                 ? definition->types->ops->start(definition, &reading->input, &start, reading->err)
                 : 0;
    if (rc)
        rc = die_of_value(reading,
                          strcmp(reading->err->field, "saga_id") == 0 ? KAFKA_REASON_KEY_MISMATCH
                                                                      : KAFKA_REASON_TEMPLATE,
                          "");
    else if (start.labels && !(verdict->labels = mem_strdup(start.labels)))
        rc = err_set(reading->err, ERR_NOMEM, "labels: out of memory");
    buf_done(&start.made);
    return rc;
}

static int start(struct reading *reading)
{
    int rc = ask_definition(reading);
    if (rc || reading->is_settled)
        return rc;
    if (mem_bytes_copy(reading->input.data, reading->input.size, &reading->verdict->input) != 0)
        return err_set(reading->err, ERR_NOMEM, "a start: out of memory");
    return settle(reading, KAFKA_RECORD_START);
}

int kafka_record_read(const struct kafka_rule *rule, const struct definition *definition,
                      size_t payload_bytes_max, const struct kafka_record *record,
                      struct kafka_verdict *ret, struct err *err)
{
    /* In this order: what is not the rule's is passed over before anything is wrong with it. */
    static step_fn *const steps[] = { filter_by_headers, look_at_key, look_at_null, decode,
                                      filter_by_fields,  make_key,    start };
    struct kafka_verdict verdict = { 0 };
    struct reading reading = { .rule = rule,
                               .definition = definition,
                               .payload_bytes_max = payload_bytes_max,
                               .record = record,
                               .verdict = &verdict,
                               .err = err };
    int rc = kafka_rule_check(rule, definition, err);
    if (rc)
        return rc;
    reading.type = definition_input_type(definition, &reading.schema);
    for (size_t i = 0; i < ARRAY_LEN(steps) && !rc && !reading.is_settled; i++)
        rc = steps[i](&reading);
    mem_free(reading.made.data);
    if (!rc && verdict.outcome != KAFKA_RECORD_START && verdict.outcome != KAFKA_RECORD_DEAD)
        mem_free(TAKE(verdict.saga_id));
    if (rc)
        kafka_verdict_done(&verdict);
    else
        *ret = verdict;
    return rc;
}
