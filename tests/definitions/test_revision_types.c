/* Goal: people see and write payloads as JSON of the type that the definition says; what has no
 * type, is no message of it, or is too long for a screen is shown all the same, and never steers a
 * terminal. Method: one revision that names a type at every place, with descriptors and messages
 * made by protoc; journals entry by entry; JSON with one fault each; each allocation failed. */
#include "definitions/sets.h"

#include "ctl/revision_types.h"
#include "wire/json.h"

#define KINDS "test.kinds.Kinds"
#define SMALL "test.kinds.Small"
#define OLD   "test.kinds.Old"

static const char definition_json[] =
    "{\"name\":\"d\",\"inputType\":\"" KINDS "\",\"steps\":["
    "{\"name\":\"a\",\"action\":{\"outputType\":\"" SMALL "\"},"
    " \"compensation\":{\"outputType\":\"" OLD "\"}},"
    "{\"name\":\"w\",\"noCompensation\":true,\"waitForSignal\":{\"signal\":\"s\","
    " \"payloadType\":\"google.protobuf.StringValue\"}},"
    "{\"name\":\"plain\",\"action\":{},\"noCompensation\":true},"
    "{\"name\":\"lost\",\"action\":{\"outputType\":\"test.kinds.Gone\"},\"noCompensation\":true}]}";

static struct bytes kinds_set;
static struct revision_types *types;

/* What GetDefinition would answer. */
static Saga__V1__RegisteredDefinition *registered_of(const char *json, struct bytes set)
{
    struct err err;
    ProtobufCMessage *definition = NULL;
    ASSERT_OK(wire_json_decode(json, strlen(json), &saga__v1__saga_definition__descriptor,
                               &definition, &err),
              &err);
    Saga__V1__RegisteredDefinition message = SAGA__V1__REGISTERED_DEFINITION__INIT;
    message.definition = (Saga__V1__SagaDefinition *)definition;
    message.descriptors = (ProtobufCBinaryData){ .len = set.size, .data = set.data };
    size_t size = saga__v1__registered_definition__get_packed_size(&message);
    uint8_t *packed = mem_calloc(1, size + 1);
    assert_non_null(packed);
    (void)saga__v1__registered_definition__pack(&message, packed); /* as long as it said */
    Saga__V1__RegisteredDefinition *registered =
        saga__v1__registered_definition__unpack(NULL, size, packed);
    assert_non_null(registered);
    mem_free(packed);
    protobuf_c_message_free_unpacked(definition, NULL);
    return registered;
}

static struct revision_types *types_of(const char *json, struct bytes set)
{
    struct revision_types *made = NULL;
    struct err err;
    ASSERT_OK(revision_types_new(registered_of(json, set), &made, &err), &err);
    return made;
}

static int setup(void **state)
{
    (void)state;
    kinds_set = set_of_file("kinds.proto");
    types = types_of(definition_json, kinds_set);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    types = revision_types_free(types);
    mem_free(kinds_set.data);
    return 0;
}

static struct revision_type input_type(void)
{
    return revision_types_input(types);
}

static struct revision_type output_type(const char *step)
{
    return revision_types_step(types, step, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
}

/* --- which type ---------------------------------------------------------------------------------
 */

static void test_every_payload_of_a_revision_has_its_type(void **state)
{
    (void)state;
    assert_string_equal(input_type().name, KINDS);
    assert_string_equal(input_type().message->full_name, KINDS);
    assert_string_equal(output_type("a").name, SMALL);
    assert_string_equal(
        revision_types_step(types, "a", SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION).name,
        OLD);
    assert_string_equal(output_type("w").name, "google.protobuf.StringValue");
    assert_string_equal(
        revision_types_step(types, "w", SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION).name,
        "");
    assert_string_equal(revision_types_signal(types, "s").name, "google.protobuf.StringValue");
    assert_string_equal(revision_types_signal(types, "w").name, ""); /* a step, no signal */
    assert_string_equal(output_type("plain").name, "");
    assert_null(output_type("plain").message);
    assert_string_equal(output_type("lost").name, "test.kinds.Gone");
    assert_null(output_type("lost").message);
    assert_string_equal(output_type("nothing").name, "");
    assert_string_equal(revision_types_input(NULL).name, "");
}

static const char *entry_type(struct revision_journal *journal, const char *json)
{
    struct err err;
    ProtobufCMessage *entry = NULL;
    ASSERT_OK(
        wire_json_decode(json, strlen(json), &saga__v1__journal_entry__descriptor, &entry, &err),
        &err);
    const char *name = revision_types_entry(types, journal, (Saga__V1__JournalEntry *)entry).name;
    protobuf_c_message_free_unpacked(entry, NULL);
    return name;
}

/* A probe answers for what it asks about. */
static void test_entries_of_a_journal_have_the_type_of_what_they_speak_of(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *type;
    } rows[] = {
        { "\"seq\":1,\"kind\":\"KIND_LEASE\",\"operation\":\"OPERATION_KIND_ACTION\"", SMALL },
        { "\"seq\":2,\"kind\":\"KIND_LEASE\",\"operation\":\"OPERATION_KIND_PROBE\"", SMALL },
        { "\"seq\":3,\"kind\":\"KIND_RESOLVE\",\"operation\":\"OPERATION_KIND_ACTION\"", SMALL },
        { "\"seq\":4,\"kind\":\"KIND_COMPENSATE\"", SMALL },
        { "\"seq\":5,\"kind\":\"KIND_LEASE\",\"operation\":\"OPERATION_KIND_PROBE\"", SMALL },
        { "\"seq\":6,\"kind\":\"KIND_LEASE\",\"operation\":\"OPERATION_KIND_COMPENSATION\"", OLD },
        { "\"seq\":7,\"kind\":\"KIND_LEASE\",\"operation\":\"OPERATION_KIND_COMPENSATION\"", OLD },
        { "\"seq\":8,\"kind\":\"KIND_LEASE\",\"operation\":\"OPERATION_KIND_PROBE\"", OLD },
        { "\"seq\":9,\"kind\":\"KIND_LATE_REPORT\",\"about\":5,"
          "\"operation\":\"OPERATION_KIND_PROBE\"",
          SMALL },
        { "\"seq\":10,\"kind\":\"KIND_LATE_REPORT\",\"about\":8,"
          "\"operation\":\"OPERATION_KIND_PROBE\"",
          OLD },
        { "\"seq\":11,\"kind\":\"KIND_LATE_REPORT\",\"about\":1,"
          "\"operation\":\"OPERATION_KIND_ACTION\"",
          SMALL },
    };
    struct revision_journal journal = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char json[256];
        (void)snprintf(json, sizeof json, "{\"step\":\"a\",%s}", rows[i].entry);
        const char *type = entry_type(&journal, json);
        if (strcmp(type, rows[i].type) != 0)
            fail_msg("%s: %s", rows[i].entry, type);
    }
    assert_string_equal(entry_type(&journal, "{\"kind\":\"KIND_SIGNAL\",\"reason\":\"s\"}"),
                        "google.protobuf.StringValue");
    assert_string_equal(entry_type(&journal, "{\"kind\":\"KIND_RECEIVE\",\"step\":\"w\"}"),
                        "google.protobuf.StringValue");
    assert_string_equal(entry_type(&journal, "{\"kind\":\"KIND_LEASE\",\"step\":\"gone\"}"), "");
}

/* --- shown --------------------------------------------------------------------------------------
 */

static void assert_text(struct revision_type type, const void *data, size_t size, size_t max,
                        const char *expected, bool cut)
{
    const ProtobufCBinaryData payload = { .len = size, .data = (uint8_t *)(uintptr_t)data };
    struct buf out = { 0 };
    bool was_cut = revision_types_write(types, type, &payload, max, &out);
    assert_false(out.failed);
    assert_string_equal(buf_cstr(&out), expected);
    assert_int_equal(was_cut, cut);
    buf_done(&out);
}

/* Compact JSON of what is added to an empty object. */
static void assert_json(struct revision_type type, const void *data, size_t size,
                        const char *expected)
{
    const ProtobufCBinaryData payload = { .len = size, .data = (uint8_t *)(uintptr_t)data };
    struct err err;
    json_t *object = json_object();
    ASSERT_OK(revision_types_add_json(types, type, &payload, "output", object, &err), &err);
    char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(text, expected);
    mem_free(text);
    json_decref(object);
}

#define EVERY                                                                                      \
    "{\"aInt64\":\"-9007199254740993\",\"aBytes\":\"AP8=\",\"aEnum\":\"BLUE\","                    \
    "\"rInt32\":[1,2],\"cMessage\":{\"number\":7,\"text\":\"x\"},"                                 \
    "\"mString\":{\"k\":{\"number\":1}},\"wDuration\":\"1.500s\","                                 \
    "\"wTime\":\"2026-03-02T14:05:11Z\"}"

static void test_kinds_of_fields_are_shown_as_proto3_json(void **state)
{
    (void)state;
    struct bytes message = message_of_text(
        KINDS, "a_int64: -9007199254740993 a_bytes: \"\\000\\377\" a_enum: BLUE r_int32: [1, 2]"
               " c_message { number: 7 text: \"x\" } m_string { key: \"k\" value { number: 1 } }"
               " w_duration { seconds: 1 nanos: 500000000 } w_time { seconds: 1772460311 }");
    assert_text(input_type(), message.data, message.size, 0, EVERY, false);
    assert_json(input_type(), message.data, message.size, "{\"outputJson\":" EVERY "}");
    mem_free(message.data);
    /* What JSON says comes back as the same bytes. */
    struct bytes made = { 0 };
    struct err err;
    assert_int_equal(mem_bytes_copy(EVERY, strlen(EVERY), &made), 0);
    ASSERT_OK(revision_types_read(types, input_type(), "the input", true, &made, &err), &err);
    assert_text(input_type(), made.data, made.size, 0, EVERY, false);
    mem_free(made.data);
}

static void test_unknown_fields_are_counted(void **state)
{
    (void)state;
    static const uint8_t one[] = { 0x08, 7, 0x50, 1 };             /* number: 7, 10: 1 */
    static const uint8_t two[] = { 0x08, 7, 0x50, 1, 0x5a, 1, 0 }; /* and 11: "\0" */
    assert_text(output_type("a"), one, sizeof one, 0, "{\"number\":7} (+1 unknown field)", false);
    assert_text(output_type("a"), two, sizeof two, 0, "{\"number\":7} (+2 unknown fields)", false);
    assert_json(output_type("a"), two, sizeof two,
                "{\"outputJson\":{\"number\":7},\"outputUnknownFields\":2}");
}

static void test_bytes_that_are_no_message_of_the_type_are_shown_with_the_reason(void **state)
{
    (void)state;
    assert_text(output_type("a"), "done", 4, 0,
                "done (no " SMALL ": groups and unknown wire types are refused)", false);
    static const uint8_t wrong[] = { 0x0a, 1, 'x' }; /* number as text */
    assert_text(output_type("a"), wrong, sizeof wrong, 0,
                "base64 CgF4 (no " SMALL ": number: wrong wire type)", false);
    assert_json(output_type("a"), wrong, sizeof wrong,
                "{\"outputProblem\":\"number: wrong wire type\"}");
}

static void test_without_a_type_text_is_text_and_the_rest_base64(void **state)
{
    (void)state;
    assert_text(output_type("plain"), "a\nb\tc", 5, 0, "a b c", false);
    assert_text(output_type("plain"), "gr\xc3\xbc\xc3\x9f", 6, 0, "gr\xc3\xbc\xc3\x9f", false);
    assert_text(output_type("plain"), "a\0b", 3, 0, "base64 YQBi", false);
    assert_text(output_type("plain"), "\x1b[2J", 4, 0, "base64 G1sySg==", false);
    assert_text(output_type("plain"), "\xc2\x9b", 2, 0, "base64 wps=", false);
    assert_text(output_type("plain"), "\xff", 1, 0, "base64 /w==", false);
    assert_text(output_type("lost"), "x", 1, 0, "x", false);
    assert_json(output_type("plain"), "x", 1, "{}");
    assert_json(output_type("lost"), "x", 1, "{}");
    assert_json(output_type("a"), "", 0, "{}");
    assert_text(revision_types_input(NULL), "x", 1, 0, "x", false);
}

static void test_long_ones_are_cut_at_a_character_with_their_length(void **state)
{
    (void)state;
    assert_text(output_type("plain"), "0123456789", 10, 10, "0123456789", false);
    assert_text(output_type("plain"), "0123456789", 10, 9, "012345678... (10 bytes)", true);
    assert_text(output_type("plain"), "gr\xc3\xbc\xc3\x9f", 6, 5, "gr\xc3\xbc... (6 bytes)", true);
    assert_text(output_type("plain"), "\0\0\0\0", 4, 4, "base64 AAAA... (8 bytes)", true);
    static const uint8_t message[] = { 0x08, 7, 0x12, 3, 'a', 'b', 'c', 0x50, 1 };
    assert_text(output_type("a"), message, sizeof message, 12,
                "{\"number\":7,... (25 bytes) (+1 unknown field)", true);
}

static void test_text_of_a_message_steers_no_terminal(void **state)
{
    (void)state;
    static const uint8_t message[] = { 0x12, 6, 0x1b, '[', 0x7f, 0xc2, 0x9b, '.' };
    assert_text(output_type("a"), message, sizeof message, 0, "{\"text\":\"\\u001b[??.\"}", false);
}

/* --- written ------------------------------------------------------------------------------------
 */

/* What is written becomes these bytes. */
static void assert_made(struct revision_type type, bool text_only, const char *text,
                        const void *expected, size_t size)
{
    struct bytes payload = { 0 };
    struct err err;
    assert_int_equal(mem_bytes_copy(text, strlen(text), &payload), 0);
    ASSERT_OK(revision_types_read(types, type, "the input", text_only, &payload, &err), &err);
    assert_int_equal(payload.size, size);
    if (size)
        assert_memory_equal(payload.data, expected, size);
    mem_free(payload.data);
}

static void test_json_becomes_bytes_and_what_is_none_stays_as_it_is(void **state)
{
    (void)state;
    assert_made(output_type("a"), true, "{\"number\": 7}", "\x08\x07", 2);
    assert_made(output_type("a"), true, " \n{\"text\": \"x\"}", "\x12\x01x", 3);
    assert_made(output_type("a"), true, "{}", "", 0);
    assert_made(output_type("a"), true, "", "", 0);
    assert_made(output_type("a"), false, "\x08\x07", "\x08\x07", 2); /* from a file */
    assert_made(output_type("plain"), true, "{\"number\": 7}", "{\"number\": 7}", 13);
    assert_made(output_type("plain"), true, "amount", "amount", 6);
    assert_made(output_type("w"), true, "\"yes\"", "\x0a\x03yes", 5); /* a StringValue */
    assert_made(output_type("w"), false, "\"yes\"", "\x0a\x03yes", 5);
}

static void test_json_of_another_shape_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field, *part;
        enum err_code code;
    } rows[] = {
        { "{\"aMessage\": {\"numbr\": 1}}", "a_message.numbr", "the input is no " KINDS ": ",
          ERR_INVALID },
        { "{\"rMessage\": [{}, {\"number\": \"x\"}]}", "r_message[1].number",
          "must be a whole number", ERR_INVALID },
        { "{\"aInt32\": 1.5}", "a_int32", "a_int32: ", ERR_INVALID },
        { "{\"aInt32\": 1,}", "", "line 1, column 14", ERR_INVALID },
        { "{\"wTime\": \"yesterday\"}", "w_time", "yesterday", ERR_INVALID },
        { "amount=12", "", "the input is no JSON: write the " KINDS " as '{...}'", ERR_INVALID },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct bytes payload = { 0 };
        struct err err;
        assert_int_equal(mem_bytes_copy(rows[i].text, strlen(rows[i].text), &payload), 0);
        int rc = revision_types_read(types, input_type(), "the input", true, &payload, &err);
        assert_error(&err, rc, rows[i].code, rows[i].field, rows[i].part);
        assert_memory_equal(payload.data, rows[i].text, payload.size); /* as it was */
        mem_free(payload.data);
    }
    struct bytes payload = { 0 };
    struct err err;
    assert_int_equal(mem_bytes_copy("{}", 2, &payload), 0);
    int rc = revision_types_read(types, output_type("lost"), "the result", true, &payload, &err);
    assert_error(&err, rc, ERR_UNIMPLEMENTED, "", "does not tell what a test.kinds.Gone looks");
    mem_free(payload.data);
}

/* --- what goes wrong ----------------------------------------------------------------------------
 */

static void test_descriptors_that_cannot_be_used_are_refused(void **state)
{
    (void)state;
    struct revision_types *made = NULL;
    struct err err;
    Saga__V1__RegisteredDefinition *registered =
        registered_of(definition_json, (struct bytes){ (uint8_t *)(uintptr_t) "\x0a", 1 });
    assert_int_equal(revision_types_new(registered, &made, &err), ERR_INVALID);
    assert_null(made);
    saga__v1__registered_definition__free_unpacked(registered, NULL); /* not consumed */
    /* None at all: types are named, and shown as bytes. */
    made = types_of(definition_json, (struct bytes){ NULL, 0 });
    struct revision_type type = revision_types_input(made);
    assert_string_equal(type.name, KINDS);
    assert_null(type.message);
    made = revision_types_free(made);
}

static void test_memory_that_is_out_is_told(void **state)
{
    (void)state;
    Saga__V1__RegisteredDefinition *registered = registered_of(definition_json, kinds_set);
    struct revision_types *made = NULL;
    struct err err;
    uint64_t n = 1;
    for (;; n++) {
        mem_fail_at(n, true);
        int rc = revision_types_new(registered, &made, &err);
        mem_fail_at(0, false);
        if (rc == 0)
            break;
        if (rc != ERR_NOMEM && rc != ERR_LIMIT) /* the unpacked: a limit */
            fail_msg("allocation %llu: %s", (unsigned long long)n, err.msg);
        assert_null(made);
    }
    assert_true(n > 2);
    made = revision_types_free(made);
    static const char text[] = "{\"text\": \"x\", \"inner\": {\"number\": 1}}";
    for (n = 1;; n++) {
        struct bytes payload = { 0 };
        assert_int_equal(mem_bytes_copy(text, strlen(text), &payload), 0);
        mem_fail_at(n, true);
        int rc = revision_types_read(types, output_type("a"), "the input", true, &payload, &err);
        mem_fail_at(0, false);
        mem_free(payload.data);
        if (rc == 0)
            break;
        assert_int_equal(rc, ERR_NOMEM);
    }
    assert_true(n > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_payload_of_a_revision_has_its_type),
        cmocka_unit_test(test_entries_of_a_journal_have_the_type_of_what_they_speak_of),
        cmocka_unit_test(test_kinds_of_fields_are_shown_as_proto3_json),
        cmocka_unit_test(test_unknown_fields_are_counted),
        cmocka_unit_test(test_bytes_that_are_no_message_of_the_type_are_shown_with_the_reason),
        cmocka_unit_test(test_without_a_type_text_is_text_and_the_rest_base64),
        cmocka_unit_test(test_long_ones_are_cut_at_a_character_with_their_length),
        cmocka_unit_test(test_text_of_a_message_steers_no_terminal),
        cmocka_unit_test(test_json_becomes_bytes_and_what_is_none_stays_as_it_is),
        cmocka_unit_test(test_json_of_another_shape_is_refused_with_its_place),
        cmocka_unit_test(test_descriptors_that_cannot_be_used_are_refused),
        cmocka_unit_test(test_memory_that_is_out_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
