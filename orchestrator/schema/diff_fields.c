#include "schema/diff_internal.h"

#include "wire/times.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Values ---------------------------------------------------------------------------------- */

struct value {
    bool is_there;
    int64_t number;   /* milliseconds of a time */
    const char *text; /* NULL: it is none */
};

static bool is_time(const ProtobufCFieldDescriptor *field)
{
    return field->descriptor == &google__protobuf__duration__descriptor;
}

static bool is_chosen(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        return true;
    uint32_t chosen;
    memcpy(&chosen, (const char *)message + field->quantifier_offset, sizeof chosen);
    return chosen == field->id;
}

static struct value read_message(const ProtobufCFieldDescriptor *field, const void *message)
{
    struct value value = { .is_there = message };
    if (message && is_time(field)) {
        value.is_there = duration_is_valid(message);
        value.number = value.is_there ? duration_to_ms(message) : 0;
    }
    return value;
}

static struct value read_value(const ProtobufCMessage *message,
                               const ProtobufCFieldDescriptor *field)
{
    const void *at = (const char *)message + field->offset;
    if (!is_chosen(message, field))
        return (struct value){ 0 };
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(const char *const *)at;
        return (struct value){ .is_there = text && *text, .text = text ? text : "" };
    }
    case PROTOBUF_C_TYPE_BOOL:
        return (struct value){ .is_there = true, .number = *(const protobuf_c_boolean *)at };
    case PROTOBUF_C_TYPE_ENUM: /* the first value of each says that nothing is said */
        return (struct value){ .is_there = *(const int *)at != 0, .number = *(const int *)at };
    case PROTOBUF_C_TYPE_INT64:
        return (struct value){ .is_there = *(const int64_t *)at != 0,
                               .number = *(const int64_t *)at };
    case PROTOBUF_C_TYPE_UINT32:
        return (struct value){ .is_there = true, .number = *(const uint32_t *)at };
    case PROTOBUF_C_TYPE_MESSAGE:
        return read_message(field, *(const void *const *)at);
    default:
        assert(false); /* a rule names a field of another kind */
        return (struct value){ 0 };
    }
}

/* In the largest unit that it is whole in. */
static void say_time(int64_t ms, char ret[DIFF_VALUE_BYTES])
{
    static const struct unit {
        int64_t ms;
        const char *name;
    } units[] = { { 24 * 3600 * 1000, "d" },
                  { 3600 * 1000, "h" },
                  { 60 * 1000, "m" },
                  { 1000, "s" },
                  { 1, "ms" } };
    const struct unit *unit = units;
    while (ms ? ms % unit->ms : unit->ms != 1000)
        unit++;
    (void)snprintf(ret, DIFF_VALUE_BYTES, "%" PRId64 "%s", ms / unit->ms, unit->name);
}

/* "PARK" of ON_UNKNOWN_PARK: without what the names of all values begin with. */
static void say_enum(const ProtobufCEnumDescriptor *type, int number, char ret[DIFF_VALUE_BYTES])
{
    static const char zero[] = "UNSPECIFIED";
    const ProtobufCEnumValue *first = protobuf_c_enum_descriptor_get_value(type, 0);
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(type, number);
    if (first && value)
        (void)snprintf(ret, DIFF_VALUE_BYTES, "%s",
                       value->name + (strlen(first->name) - (sizeof zero - 1)));
    else
        (void)snprintf(ret, DIFF_VALUE_BYTES, "%d", number);
}

static const char *say_value(const struct diff_rule *rule, const ProtobufCFieldDescriptor *field,
                             const struct value *value, char ret[DIFF_VALUE_BYTES])
{
    if (!value->is_there)
        return rule->absent ? rule->absent : "none";
    if (value->text)
        return diff_quote(value->text, ret);
    if (field->type == PROTOBUF_C_TYPE_BOOL)
        return value->number ? "true" : "false";
    if (field->type == PROTOBUF_C_TYPE_ENUM)
        say_enum(field->descriptor, (int)value->number, ret);
    else if (is_time(field))
        say_time(value->number, ret);
    else
        (void)snprintf(ret, DIFF_VALUE_BYTES, "%" PRId64, value->number);
    return ret;
}

/* ---- Handlers of a step that may have been renamed ------------------------------------------- */

/* Do the letters of this part of a handler say the step's name ("DebitAccount", "debit_account")?
 */
static bool says_step(const char *part, size_t size, const char *step)
{
    const char *end = part + size;
    for (;; part++, step++) {
        while (part < end && *part == '_')
            part++;
        while (*step == '_')
            step++;
        if (part == end || !*step)
            return part == end && !*step;
        if (tolower((unsigned char)*part) != tolower((unsigned char)*step))
            return false;
    }
}

/* Are they the same but for the step's name, part by part? */
static bool is_renamed_handler(const struct diff *diff, const char *was, const char *is)
{
    for (;;) {
        size_t was_size = strcspn(was, "."), is_size = strcspn(is, ".");
        bool is_same = was_size == is_size && memcmp(was, is, was_size) == 0;
        if (!is_same && !(says_step(was, was_size, diff->renamed_from) &&
                          says_step(is, is_size, diff->renamed_to)))
            return false;
        was += was_size;
        is += is_size;
        if (!*was || !*is)
            return *was == *is;
        was++;
        is++;
    }
}

/* ---- Messages -------------------------------------------------------------------------------- */

static int compare(const struct diff_rule *rule, const struct value *was, const struct value *is)
{
    if (was->text && is->text)
        return strcmp(was->text, is->text) ? -1 : 0;
    int64_t absent = rule->absent_is_most ? INT64_MAX : -1;
    int64_t before = was->is_there ? was->number : absent;
    int64_t now = is->is_there ? is->number : absent;
    return (now > before) - (now < before);
}

static void diff_field(struct diff *diff, const char *base, const struct diff_rule *rule,
                       const ProtobufCMessage *was_message, const ProtobufCMessage *is_message)
{
    if (diff->renamed_changes)
        return; /* it is another step, that is enough */
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(was_message->descriptor, rule->field);
    assert(field);
    struct value was = read_value(was_message, field), is = read_value(is_message, field);
    char path[DIFF_PATH_BYTES], before[DIFF_VALUE_BYTES], now[DIFF_VALUE_BYTES];
    int order = compare(rule, &was, &is);
    if (order == 0) {
        if (rule->is_type && was.is_there)
            diff_type(diff, diff_path(base, rule->field, path), was.text);
        return;
    }
    bool is_handler = was.text && is.text && strcmp(rule->field, "handler") == 0;
    if (diff->renamed_from && is_handler && is_renamed_handler(diff, was.text, is.text))
        return;
    (void)diff_path(base, rule->field, path);
    const struct diff_verdict *verdict = order > 0 && rule->more.why ? &rule->more : &rule->less;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE && !is_time(field))
        diff_tell(diff, verdict->severity, path, "was %s: %s", is.is_there ? "added" : "removed",
                  verdict->why);
    else
        diff_tell(diff, verdict->severity, path, "was %s, is %s: %s",
                  say_value(rule, field, &was, before), say_value(rule, field, &is, now),
                  verdict->why);
}

static void diff_message(struct diff *diff, const char *path, enum diff_of of,
                         const ProtobufCMessage *was, const ProtobufCMessage *is)
{
    for (size_t i = 0; i < diff_rules[of].count; i++)
        diff_field(diff, path, &diff_rules[of].items[i], was, is);
}

void diff_definition_fields(struct diff *diff)
{
    diff_message(diff, "", DIFF_OF_DEFINITION, &diff->was.definition->base,
                 &diff->is.definition->base);
}

void diff_label_fields(struct diff *diff, const char *path, const Saga__V1__LabelTemplate *was,
                       const Saga__V1__LabelTemplate *is)
{
    diff_message(diff, path, DIFF_OF_LABEL, &was->base, &is->base);
}

static void diff_retry(struct diff *diff, const char *base, const Saga__V1__Retry *was,
                       const Saga__V1__Retry *is)
{
    static const Saga__V1__Retry none = SAGA__V1__RETRY__INIT;
    char path[DIFF_PATH_BYTES];
    diff_message(diff, diff_path(base, "retry", path), DIFF_OF_RETRY, &(was ? was : &none)->base,
                 &(is ? is : &none)->base);
}

/* Fields of both are in ascending order. */
static void diff_request_fields(struct diff *diff, const char *base,
                                const Saga__V1__RequestShape *was, const Saga__V1__RequestShape *is)
{
    size_t i = 0, j = 0;
    while (i < was->n_fields || j < is->n_fields) {
        bool is_gone = j == is->n_fields ||
                       (i < was->n_fields && was->fields[i]->number < is->fields[j]->number);
        bool is_new =
            !is_gone && (i == was->n_fields || is->fields[j]->number < was->fields[i]->number);
        const Saga__V1__RequestField *field = is_new ? is->fields[j] : was->fields[i];
        char path[DIFF_PATH_BYTES], name[DIFF_VALUE_BYTES], from[DIFF_VALUE_BYTES];
        (void)snprintf(name, sizeof name, "fields.%" PRIu32, field->number);
        (void)diff_path(base, name, path);
        if (is_gone)
            diff_tell(diff, DIFF_BREAKING, path,
                      "was filled from %s, is not any more: workers find it unset",
                      diff_quote(field->from, from));
        else if (is_new)
            diff_tell(diff, DIFF_NOTE, path, "was not filled, is now, from %s: workers get more",
                      diff_quote(field->from, from));
        else
            diff_message(diff, path, DIFF_OF_REQUEST_FIELD, &field->base, &is->fields[j]->base);
        i += !is_new;
        j += !is_gone;
    }
}

static void diff_request(struct diff *diff, const char *base, const Saga__V1__RequestShape *was,
                         const Saga__V1__RequestShape *is)
{
    char path[DIFF_PATH_BYTES];
    if (!was || !is) /* told as a field of what is around it, as are all below */
        return;
    (void)diff_path(base, "request", path);
    diff_message(diff, path, DIFF_OF_REQUEST, &was->base, &is->base);
    diff_request_fields(diff, path, was, is);
}

static void diff_probe(struct diff *diff, const char *base, const Saga__V1__Probe *was,
                       const Saga__V1__Probe *is)
{
    char path[DIFF_PATH_BYTES];
    if (!was || !is)
        return;
    (void)diff_path(base, "probe", path);
    diff_message(diff, path, DIFF_OF_PROBE, &was->base, &is->base);
    diff_retry(diff, path, was->retry, is->retry);
    diff_request(diff, path, was->request, is->request);
}

static void diff_operation(struct diff *diff, const char *base, const char *field,
                           const Saga__V1__Operation *was, const Saga__V1__Operation *is)
{
    char path[DIFF_PATH_BYTES];
    if (!was || !is)
        return;
    (void)diff_path(base, field, path);
    diff_message(diff, path, DIFF_OF_OPERATION, &was->base, &is->base);
    diff_retry(diff, path, was->retry, is->retry);
    diff_probe(diff, path, was->probe, is->probe);
    diff_request(diff, path, was->request, is->request);
}

static const Saga__V1__Operation *compensation_of(const Saga__V1__Step *step)
{
    return step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION ? step->compensation : NULL;
}

void diff_step_fields(struct diff *diff, const char *path, const Saga__V1__Step *was,
                      const Saga__V1__Step *is)
{
    diff_message(diff, path, DIFF_OF_STEP, &was->base, &is->base);
    diff_operation(diff, path, "action", was->action, is->action);
    diff_operation(diff, path, "compensation", compensation_of(was), compensation_of(is));
    if (was->wait_for_signal && is->wait_for_signal) {
        char wait[DIFF_PATH_BYTES];
        diff_message(diff, diff_path(path, "wait_for_signal", wait), DIFF_OF_WAIT,
                     &was->wait_for_signal->base, &is->wait_for_signal->base);
    }
}
