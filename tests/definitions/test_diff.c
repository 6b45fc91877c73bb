/* Goal: every difference between two revisions is told, as grave as it is, and nothing else is.
 * Method: a table of changes to golden/diff/payment.json, each told forwards and backwards; the
 * descriptors of its messages are walked, so that a field which no case changes fails the test;
 * definitions changed byte by byte, with the sanitizers as judge. The texts stand in golden/diff/.
 *
 * SAGAD_GOLDEN_WRITE=1 writes what is expected anew: then read the diff. */
#include "definitions/sets.h"
#include "definitions/told.h"

#include "base/rng.h"
#include "wire/arena.h"
#include "wire/definition_codec.h"
#include "wire/json.h"
#include "wire/validate.h"

#include <stdio.h>

static void arena_done_p(struct arena *arena)
{
    arena_done(arena);
}

static void json_decref_p(json_t **json)
{
    json_decref(*json);
}

static void definition_free_message_p(Saga__V1__SagaDefinition **definition)
{
    saga__v1__saga_definition__free_unpacked(*definition, NULL);
}

/* ---- Definitions as JSON, and changes of it -------------------------------------------------- */

static json_t *read_json(void)
{
    json_error_t error;
    json_t *json = json_load_file(TOLD_GOLDEN "payment.json", 0, &error);
    if (!json)
        fail_msg("payment.json: line %d: %s", error.line, error.text);
    return json;
}

static Saga__V1__SagaDefinition *read_definition(const json_t *json)
{
    char *text = json_dumps(json, 0);
    ProtobufCMessage *message = NULL;
    struct err err;
    ASSERT_OK(wire_json_decode(text, strlen(text), &saga__v1__saga_definition__descriptor, &message,
                               &err),
              &err);
    free(text);
    return (Saga__V1__SagaDefinition *)message;
}

/* An element of an array by its index, a member of an object by its name. */
static json_t *get(json_t *json, const char *name)
{
    return json_is_array(json) ? json_array_get(json, strtoul(name, NULL, 10))
                               : json_object_get(json, name);
}

/* json NULL: it is removed. An index that is not there yet: it is added. */
static void set(json_t *at, const char *path, const char *json)
{
    char names[128], *rest = NULL;
    (void)snprintf(names, sizeof names, "%s", path);
    char *name = strtok_r(names, ".", &rest);
    for (char *next; (next = strtok_r(NULL, ".", &rest)); name = next)
        at = get(at, name);
    assert_non_null(at);
    json_t *value = json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(!json || value);
    size_t index = strtoul(name, NULL, 10);
    int rc;
    if (json_is_object(at))
        rc = value ? json_object_set_new(at, name, value) : json_object_del(at, name);
    else if (!value)
        rc = json_array_remove(at, index);
    else
        rc = index < json_array_size(at) ? json_array_set_new(at, index, value)
                                         : json_array_append_new(at, value);
    if (rc)
        fail_msg("%s cannot be changed", path);
}

/* ---- Every field ----------------------------------------------------------------------------- */

enum { EDITS_MAX = 3 };
#define B DIFF_BREAKING
#define W DIFF_WARNING
#define N DIFF_NOTE

static const struct {
    enum diff_severity there, back; /* the gravest of what is told */
    struct edit {
        const char *path, *json;
    } edits[EDITS_MAX];
} cases[] = {
    { B, B, { { "namespace", "\"shop\"" } } },
    { B, B, { { "name", "\"payments\"" } } },
    { N, N, { { "description", "\"Tell.\"" } } },
    { W, N, { { "deadline", "\"60s\"" } } },
    { N, W, { { "deadline", NULL } } },
    { W, W, { { "on_deadline", "\"ON_DEADLINE_PARK\"" } } },
    { N, N, { { "max_running", "\"200\"" } } },
    { N, N, { { "max_running", "100" } } },
    { N, W, { { "publish", "\"PUBLISH_ENDS\"" } } },
    { B, B, { { "input_type", "\"bank.v2.Payment\"" } } },
    { B, B, { { "input_type", NULL } } },
    { B, B, { { "key", "\"{order}\"" } } },
    { N, N, { { "labels.0.value", "\"{id}\"" } } },
    { N, N, { { "labels.0.name", "\"buyer\"" } } },
    { N, N, { { "labels.1", "{\"name\": \"bank\", \"value\": \"x\"}" } } },
    /* steps */
    { B, W, { { "steps.3", NULL } } },
    { B, B, { { "steps.1.name", "\"write\"" }, { "steps.3.after", "[\"write\", \"approve\"]" } } },
    { B,
      B,
      { { "steps.1.name", "\"write_it\"" },
        { "steps.1.action.handler", "\"bank.v1.Payments.WriteIt\"" },
        { "steps.3.after", "[\"write_it\", \"approve\"]" } } },
    { B,
      B,
      { { "steps.1.name", "\"write_it\"" },
        { "steps.1.action.handler", "\"bank.v1.Payments.WriteThat\"" },
        { "steps.3.after", "[\"write_it\", \"approve\"]" } } },
    { B, N, { { "steps.3.after", "[\"book\"]" } } },
    { B, N, { { "steps.2.after", NULL }, { "steps.2.at_start", "true" } } },
    { N, B, { { "steps.2.after", "[\"book\"]" } } },
    { N, N, { { "steps.3.after", "[\"debit\", \"book\", \"approve\"]" } } },
    { B, B, { { "steps.1.pivot", "true" } } },
    { B, B, { { "steps.0.guarded", "true" } } },
    { W, N, { { "steps.0.settle_time", "\"1.5s\"" } } },
    { W, N, { { "steps.0.settle_time", NULL } } },
    { N, N, { { "steps.0.delay", "\"0.250s\"" } } },
    { N, N, { { "steps.0.delay", NULL } } },
    { B, W, { { "steps.0.compensation", NULL }, { "steps.0.no_compensation", "true" } } },
    { B,
      B,
      { { "steps.2.wait_for_signal", NULL },
        { "steps.2.action", "{\"handler\": \"payment.approve\"}" } } },
    { B, B, { { "steps.2.wait_for_signal.signal", "\"agreed\"" } } },
    { W, N, { { "steps.2.wait_for_signal.timeout", "\"3600s\"" } } },
    { N, W, { { "steps.2.wait_for_signal.timeout", NULL } } },
    { B, B, { { "steps.2.wait_for_signal.payload_type", "\"bank.v1.Yes\"" } } },
    { W, W, { { "steps.2.wait_for_signal.on_exhausted", "\"ON_EXHAUSTED_COMPENSATE\"" } } },
    /* operations */
    { B, B, { { "steps.0.action.handler", "\"debit\"" } } },
    { B, W, { { "steps.0.action.effect", "\"EFFECT_IDEMPOTENT\"" } } },
    { W, B, { { "steps.0.action.effect", "\"EFFECT_AT_MOST_ONCE\"" } } },
    { W, B, { { "steps.0.compensation.effect", "\"EFFECT_AT_MOST_ONCE\"" } } },
    { W, N, { { "steps.0.action.retry.for", "\"3600s\"" } } },
    { N, N, { { "steps.0.action.retry.initial", "\"0.200s\"" } } },
    { N, N, { { "steps.0.action.retry.cap", "\"90s\"" } } },
    { W, N, { { "steps.0.action.retry.max_attempts", "1" } } },
    { N, W, { { "steps.0.action.retry.max_attempts", NULL } } },
    { W, N, { { "steps.0.action.lease", "\"10s\"" } } },
    { W, N, { { "steps.0.action.attempt_timeout", "\"60s\"" } } },
    { W, W, { { "steps.0.compensation.idempotency_window", "\"86400s\"" } } },
    { W, W, { { "steps.0.compensation.idempotency_window", NULL } } },
    { W, W, { { "steps.0.action.on_unknown", "\"ON_UNKNOWN_ACCEPT\"" } } },
    { W, W, { { "steps.0.action.on_exhausted", "\"ON_EXHAUSTED_CONTINUE\"" } } },
    { W, N, { { "steps.0.action.start_timeout", "\"60s\"" } } },
    { N, W, { { "steps.0.action.start_timeout", NULL } } },
    { W, W, { { "steps.0.action.probe", NULL } } },
    { W, W, { { "steps.0.action.fresh_key_after_not_done", "true" } } },
    { W, N, { { "steps.0.action.lost_leases_max", "1" } } },
    { B, B, { { "steps.0.action.request", NULL } } },
    { B, B, { { "steps.0.action.request.type", "\"bank.v1.Other\"" } } },
    { W, W, { { "steps.0.action.request.fields.1.from", "\"book\"" } } },
    { B, B, { { "steps.0.action.request.fields.1.number", "2" } } },
    { B, N, { { "steps.0.action.request.fields.0", NULL } } },
    { B, B, { { "steps.0.action.output_type", "\"bank.v2.Receipt\"" } } },
    { B, B, { { "steps.0.action.idempotency_key", NULL } } },
    /* probes */
    { B, B, { { "steps.0.action.probe.handler", "\"ask\"" } } },
    { W, N, { { "steps.0.action.probe.retry.for", "\"3600s\"" } } },
    { W, N, { { "steps.0.action.probe.lease", "\"10s\"" } } },
    { W, N, { { "steps.0.action.probe.attempt_timeout", "\"60s\"" } } },
    { B, B, { { "steps.0.action.probe.request", NULL } } },
    { B, B, { { "steps.0.action.probe.request.type", "\"bank.v1.Other\"" } } },
};

/* Messages, every field of which some case must change. */
enum { FIELDS_MAX = 32 };
static const ProtobufCMessageDescriptor *const walked[] = {
    &saga__v1__saga_definition__descriptor, &saga__v1__step__descriptor,
    &saga__v1__operation__descriptor,       &saga__v1__probe__descriptor,
    &saga__v1__retry__descriptor,           &saga__v1__request_shape__descriptor,
    &saga__v1__request_field__descriptor,   &saga__v1__signal_wait__descriptor,
    &saga__v1__label_template__descriptor,
};

struct changed {
    bool fields[ARRAY_LEN(walked)][FIELDS_MAX];
};

static bool is_chosen(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
           *(const uint32_t *)((const char *)message + field->quantifier_offset) == field->id;
}

static bool mark_changed(struct changed *changed, const ProtobufCMessage *was,
                         const ProtobufCMessage *is);

static bool is_value_changed(struct changed *changed, const ProtobufCFieldDescriptor *field,
                             const void *was, const void *is)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *before = *(const ProtobufCMessage *const *)was;
        const ProtobufCMessage *now = *(const ProtobufCMessage *const *)is;
        return before && now ? mark_changed(changed, before, now) : before || now;
    }
    case PROTOBUF_C_TYPE_STRING:
        return strcmp(*(const char *const *)was, *(const char *const *)is) != 0;
    case PROTOBUF_C_TYPE_INT64:
        return *(const int64_t *)was != *(const int64_t *)is;
    default: /* what else there is has as many bytes as an int */
        return *(const int32_t *)was != *(const int32_t *)is;
    }
}

static bool is_list_changed(struct changed *changed, const ProtobufCFieldDescriptor *field,
                            const ProtobufCMessage *was, const ProtobufCMessage *is)
{
    size_t was_count = *(const size_t *)((const char *)was + field->quantifier_offset);
    size_t is_count = *(const size_t *)((const char *)is + field->quantifier_offset);
    bool differs = was_count != is_count;
    const void *const *before = *(const void *const *const *)((const char *)was + field->offset);
    const void *const *now = *(const void *const *const *)((const char *)is + field->offset);
    for (size_t i = 0; i < was_count && i < is_count; i++)
        differs |= is_value_changed(changed, field, &before[i], &now[i]);
    return differs;
}

/* Marks the fields of `was` that are not as in `is`, and those of the messages in it; false: there
 * are none. */
static bool mark_changed(struct changed *changed, const ProtobufCMessage *was,
                         const ProtobufCMessage *is)
{
    const ProtobufCMessageDescriptor *type = was->descriptor;
    bool differs = false;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        bool field_differs;
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            field_differs = is_list_changed(changed, field, was, is);
        else if (!is_chosen(was, field) || !is_chosen(is, field))
            field_differs = is_chosen(was, field) != is_chosen(is, field);
        else
            field_differs = is_value_changed(changed, field, (const char *)was + field->offset,
                                             (const char *)is + field->offset);
        for (size_t j = 0; j < ARRAY_LEN(walked); j++)
            if (walked[j] == type)
                changed->fields[j][i] |= field_differs;
        differs |= field_differs;
    }
    return differs;
}

static void assert_told(const struct diff_counts *counts, enum diff_severity expected,
                        const struct edit *edit, const char *way)
{
    if (!told_total(counts) || told_gravest(counts) != expected)
        fail_msg("%s = %s, %s: %zu changes, the gravest is %s, must be %s", edit->path, edit->json,
                 way, told_total(counts), diff_severity_name(told_gravest(counts)),
                 diff_severity_name(expected));
}

static void test_every_change_is_told(void **state)
{
    (void)state;
    CLEANUP(buf_done_p) struct buf told = { 0 };
    struct changed changed = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(json_decref_p) json_t *json = read_json();
        CLEANUP(definition_free_message_p) Saga__V1__SagaDefinition *was = read_definition(json);
        for (size_t j = 0; j < EDITS_MAX && cases[i].edits[j].path; j++) {
            const struct edit *edit = &cases[i].edits[j];
            set(json, edit->path, edit->json);
            buf_printf(&told, "# %s%s%s\n", edit->path, edit->json ? " = " : " is removed",
                       edit->json ? edit->json : "");
        }
        CLEANUP(definition_free_message_p) Saga__V1__SagaDefinition *is = read_definition(json);
        assert_true(mark_changed(&changed, &was->base, &is->base));
        struct diff_counts counts = told_diff(was, NULL, is, NULL, &told);
        assert_told(&counts, cases[i].there, cases[i].edits, "there");
        buf_text(&told, "# and back\n");
        counts = told_diff(is, NULL, was, NULL, &told);
        assert_told(&counts, cases[i].back, cases[i].edits, "back");
        buf_text(&told, "\n");
    }
    told_as_in(TOLD_GOLDEN "fields.txt", buf_cstr(&told));
    for (size_t i = 0; i < ARRAY_LEN(walked); i++) {
        assert_in_range(walked[i]->n_fields, 1, FIELDS_MAX);
        for (unsigned j = 0; j < walked[i]->n_fields; j++)
            if (!changed.fields[i][j])
                fail_msg("no case changes %s.%s: give it a rule and a case", walked[i]->name,
                         walked[i]->fields[j].name);
    }
}

/* Each message of a definition that is ours is walked. */
static void test_every_message_is_walked(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(walked); i++)
        for (unsigned j = 0; j < walked[i]->n_fields; j++) {
            const ProtobufCMessageDescriptor *type = walked[i]->fields[j].descriptor;
            bool is_known = walked[i]->fields[j].type != PROTOBUF_C_TYPE_MESSAGE ||
                            type == &google__protobuf__duration__descriptor;
            for (size_t k = 0; k < ARRAY_LEN(walked); k++)
                is_known |= walked[k] == type;
            if (!is_known)
                fail_msg("%s is not walked", type->name);
        }
}

static void test_the_same_is_no_change(void **state)
{
    (void)state;
    CLEANUP(json_decref_p) json_t *json = read_json();
    CLEANUP(definition_free_message_p) Saga__V1__SagaDefinition *was = read_definition(json);
    CLEANUP(definition_free_message_p) Saga__V1__SagaDefinition *is = read_definition(json);
    CLEANUP(buf_done_p) struct buf told = { 0 };
    struct diff_counts counts = told_diff(was, NULL, is, NULL, &told);
    assert_string_equal(buf_cstr(&told), "");
    assert_int_equal(told_total(&counts), 0);
}

static void no_fault(void *ctx, const char *field, const char *description)
{
    (void)ctx;
    fail_msg("%s %s", field, description);
}

/* As a server stores it. */
static Saga__V1__SagaDefinition *canonical(const char *text)
{
    CLEANUP(json_decref_p) json_t *json = json_loads(text, 0, NULL);
    CLEANUP(definition_free_message_p) Saga__V1__SagaDefinition *message = read_definition(json);
    struct definition *definition = NULL;
    struct bytes bytes = { 0 };
    struct err err;
    size_t faults = 0;
    ASSERT_OK(definition_from_message(message, no_fault, NULL, &definition, &faults, &err), &err);
    ASSERT_OK(definition_encode(definition, &bytes, &err), &err);
    Saga__V1__SagaDefinition *ret = saga__v1__saga_definition__unpack(NULL, bytes.size, bytes.data);
    assert_non_null(ret);
    mem_free(bytes.data);
    (void)definition_free(definition); /* always NULL */
    return ret;
}

static void test_defaults_that_are_left_out_are_no_change(void **state)
{
    (void)state;
#define STEP(more)                                                                                 \
    "{\"name\": \"a\", \"steps\": [{\"name\": \"b\", \"no_compensation\": true, \"action\": "      \
    "{\"effect\": \"EFFECT_IDEMPOTENT\"" more "}}]}"
    CLEANUP(definition_free_message_p) Saga__V1__SagaDefinition *was = canonical(STEP(""));
    CLEANUP(definition_free_message_p)
    Saga__V1__SagaDefinition *same = canonical(
        STEP(", \"handler\": \"a.b\", \"lease\": \"30s\", \"retry\": {\"for\": \"86400s\"}"));
    CLEANUP(definition_free_message_p)
    Saga__V1__SagaDefinition *other = canonical(STEP(", \"lease\": \"10s\""));
    CLEANUP(buf_done_p) struct buf told = { 0 };
    (void)told_diff(was, NULL, same, NULL, &told); /* the text says it */
    assert_string_equal(buf_cstr(&told), "");
    (void)told_diff(was, NULL, other, NULL, &told);
    assert_string_equal(buf_cstr(&told), "WARNING steps.b.action.lease\n    was 30s, is 10s: a "
                                         "worker that is slow to extend it loses it sooner\n");
}

static void test_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(schema_diff_worst(&(struct diff_counts){ { 0 } }), 0);
    assert_int_equal(schema_diff_worst(&(struct diff_counts){ { [DIFF_NOTE] = 9 } }), 0);
    assert_int_equal(schema_diff_worst(&(struct diff_counts){ { 9, 1, 0 } }), 2);
    assert_int_equal(schema_diff_worst(&(struct diff_counts){ { 0, 1, 1 } }), 1);
}

/* ---- Order, pivot, long texts: of a definition of small steps -------------------------------- */

/* "a b:a c!" : step b comes after a, c after b and is the pivot; "d:" is at the start. */
static Saga__V1__SagaDefinition *definition_of(const char *steps)
{
    CLEANUP(json_decref_p) json_t *json = json_pack("{s:[]}", "steps");
    char text[4096], *rest = NULL;
    assert_in_range(strlen(steps), 1, sizeof text - 1);
    (void)snprintf(text, sizeof text, "%s", steps);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        json_t *step = json_object(), *after = json_array();
        char *pivot = strchr(word, '!'), *colon = strchr(word, ':'), *names = NULL;
        if (pivot)
            *pivot = '\0';
        if (colon)
            *colon = '\0';
        for (char *name = colon ? strtok_r(colon + 1, ",", &names) : NULL; name;
             name = strtok_r(NULL, ",", &names))
            (void)json_array_append_new(after, json_string(name));
        assert_int_equal(json_object_set_new(step, "name", json_string(word)), 0);
        (void)json_object_set_new(step, "pivot", json_boolean(pivot));
        (void)json_object_set_new(step, "at_start", json_boolean(colon && !colon[1]));
        (void)json_object_set_new(step, "after", after);
        /* so that none is another's under another name */
        (void)json_object_set_new(step, "delay", json_sprintf("%ds", *word));
        assert_int_equal(json_array_append_new(json_object_get(json, "steps"), step), 0);
    }
    return read_definition(json);
}

static void test_order(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        { "a b c", "a b c" },
        { "a b c", "a x b c" },
        { "a b c", "a c" },
        { "a b c", "c b a" },
        { "a b c d e f g", "g: a: b c d e f" },
        { "a b c d e f g", "a b c d e f g:" },
        { "a b: c:a", "b a: c:a" },
        { "a b c:b", "a b c:a,b" },
        { "a b c", "a b c:a" },
        { "a b! c", "a b c!" },
        { "a b! c", "a c" },
        { "a c", "a b! c" },
    };
    CLEANUP(buf_done_p) struct buf told = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        CLEANUP(definition_free_message_p)
        Saga__V1__SagaDefinition *was = definition_of(changes[i][0]);
        CLEANUP(definition_free_message_p)
        Saga__V1__SagaDefinition *is = definition_of(changes[i][1]);
        buf_printf(&told, "# %s -> %s\n", changes[i][0], changes[i][1]);
        (void)told_diff(was, NULL, is, NULL, &told); /* the file has the severities */
        buf_text(&told, "\n");
    }
    told_as_in(TOLD_GOLDEN "order.txt", buf_cstr(&told));
}

static void test_long_texts_are_cut_between_characters(void **state)
{
    (void)state;
    Saga__V1__SagaDefinition was = SAGA__V1__SAGA_DEFINITION__INIT;
    Saga__V1__SagaDefinition is = SAGA__V1__SAGA_DEFINITION__INIT;
    for (size_t lead = 0; lead < 2; lead++) {
        char text[1024];
        memset(text, 'x', lead);
        for (size_t i = lead; i + 3 <= sizeof text; i += 2)
            memcpy(text + i, "\xc3\xa9", 3);
        was.description = text;
        CLEANUP(buf_done_p) struct buf told = { 0 };
        (void)told_diff(&was, NULL, &is, NULL, &told); /* one NOTE */
        assert_non_null(strstr(buf_cstr(&told), "\xc3\xa9...\", is none: "));
    }
}

static void count_bytes(void *ctx, enum diff_severity severity, const char *path, const char *text)
{
    (void)severity;
    *(size_t *)ctx += strlen(path) + strlen(text);
}

static void test_too_many_steps(void **state)
{
    (void)state;
    static Saga__V1__Step *none[LIMIT_STEPS + 1]; /* is not looked into */
    Saga__V1__SagaDefinition few = SAGA__V1__SAGA_DEFINITION__INIT;
    Saga__V1__SagaDefinition many = SAGA__V1__SAGA_DEFINITION__INIT;
    many.steps = none;
    many.n_steps = ARRAY_LEN(none);
    struct diff_revision small = { .definition = &few }, big = { .definition = &many };
    struct diff_counts counts = { { 7, 7, 7 } };
    struct err err;
    int rc = schema_diff(&small, &big, count_bytes, NULL, &counts, &err);
    assert_error(&err, rc, ERR_LIMIT, NULL, "more than 256 steps");
    rc = schema_diff(&big, &small, count_bytes, NULL, &counts, &err);
    assert_error(&err, rc, ERR_LIMIT, NULL, "more than 256 steps");
    assert_int_equal(counts.of[DIFF_NOTE], 7);
}

/* ---- Hostile and exhausted ------------------------------------------------------------------- */

static void test_changed_definitions_are_survived(void **state)
{
    (void)state;
    CLEANUP(json_decref_p) json_t *json = read_json();
    CLEANUP(definition_free_message_p) Saga__V1__SagaDefinition *was = read_definition(json);
    size_t size = saga__v1__saga_definition__get_packed_size(was);
    CLEANUP(mem_free_p) uint8_t *good = mem_calloc(1, size);
    CLEANUP(mem_free_p) uint8_t *bytes = mem_calloc(1, size);
    assert_true(good && bytes);
    assert_int_equal(saga__v1__saga_definition__pack(was, good), size);
    struct rng rng;
    rng_seed(&rng, 51722);
    unsigned rounds = test_is_full_size() ? 50000 : 2000, compared = 0;
    for (unsigned i = 0; i < rounds; i++) {
        CLEANUP(arena_done_p) struct arena arena = { 0 };
        ProtobufCMessage *message = NULL;
        struct err err;
        memcpy(bytes, good, size);
        for (uint64_t j = 1 + rng_below(&rng, 3); j > 0; j--)
            bytes[rng_below(&rng, size)] = (uint8_t)rng_below(&rng, 128);
        if (wire_unpack(&saga__v1__saga_definition__descriptor, bytes, size, &arena, &message,
                        &err))
            continue;
        struct diff_revision a = { .definition = was };
        struct diff_revision b = { .definition = (Saga__V1__SagaDefinition *)message };
        struct diff_counts counts;
        size_t told = 0;
        ASSERT_OK(schema_diff(&a, &b, count_bytes, &told, &counts, &err), &err);
        ASSERT_OK(schema_diff(&b, &a, count_bytes, &told, &counts, &err), &err);
        compared++;
    }
    assert_true(compared > rounds / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_change_is_told),
        cmocka_unit_test(test_every_message_is_walked),
        cmocka_unit_test(test_the_same_is_no_change),
        cmocka_unit_test(test_defaults_that_are_left_out_are_no_change),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_long_texts_are_cut_between_characters),
        cmocka_unit_test(test_too_many_steps),
        cmocka_unit_test(test_changed_definitions_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
