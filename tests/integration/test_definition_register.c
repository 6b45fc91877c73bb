/* Registration of what protoc makes, over the whole stack. Goal: a service becomes the definition
 * that it says, kept with the types that it names and no more; what is wrong is told where it was
 * written; a hostile set is refused by name, soon, and hurts nobody. Method: protoc's own output
 * with imports and source info, sets that protoc would never make, bytes that are none. */
#include "base/buf.h"
#include "base/clock.h"
#include "definitions/sets.h"
#include "schema/record.h"
#include "support/raw_stream.h"
#include "support/rig.h"
#include "wire/json.h"

#include <stdio.h>

enum { INVALID_ARGUMENT = 3, RESOURCE_EXHAUSTED = 8, MIB = 1024 * 1024, SOON_MS = 5000 };

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

typedef Saga__V1__RegisterDefinitionResponse response;

static void free_response(response **it)
{
    if (*it)
        saga__v1__register_definition_response__free_unpacked(*it, NULL);
}
#define RESPONSE CLEANUP(free_response) response *

struct asked {
    struct bytes set;       /* borrowed */
    const char *definition; /* JSON; NULL: none */
    const char *service;
    bool dry, keep;
};

static response *ask(const struct asked *asked, struct client_failure *ret_failure)
{
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    ProtobufCMessage *definition = NULL;
    struct err err;
    if (asked->definition)
        ASSERT_OK(wire_json_decode(asked->definition, strlen(asked->definition),
                                   &saga__v1__saga_definition__descriptor, &definition, &err),
                  &err);
    request.definition = (Saga__V1__SagaDefinition *)definition;
    request.descriptors = (ProtobufCBinaryData){ asked->set.size, asked->set.data };
    if (asked->service)
        request.service = rig_borrow(asked->service);
    request.validate_only = asked->dry;
    request.keep_current = asked->keep;
    ProtobufCMessage *reply =
        rig_call(&rig, "DefinitionService/RegisterDefinition", &request.base,
                 &saga__v1__register_definition_response__descriptor, ret_failure);
    if (definition)
        protobuf_c_message_free_unpacked(definition, NULL);
    return (response *)reply;
}

static response *ask_set(struct bytes set)
{
    struct asked asked = { .set = set };
    return ask(&asked, NULL);
}

static Saga__V1__RegisteredDefinition *stored(const char *name, bool with_descriptors)
{
    Saga__V1__GetDefinitionRequest request = SAGA__V1__GET_DEFINITION_REQUEST__INIT;
    request.name = rig_borrow(name);
    request.with_descriptors = with_descriptors;
    return (Saga__V1__RegisteredDefinition *)rig_call(
        &rig, "DefinitionService/GetDefinition", &request.base,
        &saga__v1__registered_definition__descriptor, NULL);
}

/* Refused with this code; `field` and `says` are of one of its violations, or `says` of the message
 * where `field` is NULL. Returns how many violations there were. */
static size_t refused(const struct asked *asked, int code, const char *reason, const char *field,
                      const char *says)
{
    struct client_failure failure = { .code = 0 };
    RESPONSE reply = ask(asked, &failure);
    if (reply)
        fail_msg("accepted, which should say: %s", says);
    if (failure.code != code || (reason && strcmp(failure.reason, reason) != 0))
        fail_msg("%s %s: %s", client_code_name(failure.code), failure.reason, failure.message);
    bool found = !field && strstr(failure.message, says);
    for (size_t i = 0; field && i < failure.violation_count && !found; i++)
        found = strcmp(failure.violations[i].field, field) == 0 &&
                strstr(failure.violations[i].description, says);
    if (!found) {
        for (size_t i = 0; i < failure.violation_count; i++)
            print_error("%s: %s\n", failure.violations[i].field, failure.violations[i].description);
        fail_msg("not told: %s: %s; but: %s", field ? field : "", says, failure.message);
    }
    size_t count = failure.violation_count;
    client_failure_done(&failure);
    return count;
}

static int64_t revisions(const char *name)
{
    return rig_count(&rig, RIG_STORE, "SELECT count(*) FROM definition_revision WHERE name = '%s'",
                     name);
}

static const Saga__V1__DefinitionChange *change_at(const response *reply, const char *path)
{
    for (size_t i = 0; i < reply->n_changes; i++)
        if (strcmp(reply->changes[i]->path, path) == 0)
            return reply->changes[i];
    for (size_t i = 0; i < reply->n_changes; i++)
        print_error("%s: %s\n", reply->changes[i]->path, reply->changes[i]->text);
    fail_msg("no change of %s", path);
    return NULL;
}

static void test_a_service_becomes_the_definition_that_it_says(void **state)
{
    (void)state;
    CLEANUP(bytes_done) struct bytes set = set_of_file("golden/settlement.proto");
    RESPONSE first = ask_set(set);
    assert_true(first->created);
    assert_int_equal(first->changed_from, 0);
    assert_int_equal(first->n_changes, 0);
    const Saga__V1__RegisteredDefinition *registered = first->registered;
    assert_int_equal(registered->revision, 1);
    assert_true(registered->current);
    assert_int_equal(registered->descriptors.len, 0); /* not asked for */
    const Saga__V1__SagaDefinition *definition = registered->definition;
    assert_string_equal(definition->input_type, "bank.v1.Payment");
    assert_string_equal(definition->key, "{payment_id}");
    assert_int_equal(definition->n_steps, 3);
    assert_string_equal(definition->steps[1]->name, "write_ledger");
    assert_string_equal(definition->steps[1]->action->handler, "bank.v1.Settlement.WriteLedger");
    RESPONSE again = ask_set(set);
    assert_false(again->created);
    assert_int_equal(again->registered->revision, 1);
    assert_int_equal(again->changed_from, 1);
    assert_int_equal(again->n_changes, 0);
    assert_int_equal(revisions(definition->name), 1);
}

/* Comments, order and what else is in the set say nothing of the types. */
static void test_only_the_types_that_it_names_are_kept(void **state)
{
    (void)state;
    static const char source[] =
        "syntax = \"proto3\"; package kept.v1; import \"saga/v1/options.proto\";\n"
        "// what people say of it\n"
        "message %s\n"
        "service Kept { option (saga.v1.saga) = { input: \"In\" key: \"{id}\" };\n"
        "  rpc Do(In) returns (Out) { option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT\n"
        "    no_compensation: true }; } }\n";
    char text[2][1024];
    (void)snprintf(text[0], sizeof text[0], source,
                   "In { string id = 1; } message Out { In in = 1; } message Unused { In i = 1; }");
    (void)snprintf(text[1], sizeof text[1], source,
                   "Out { In in = 1; } message In { string id = 1; }");
    CLEANUP(bytes_done) struct bytes one = set_of_source(text[0]);
    CLEANUP(bytes_done) struct bytes other = set_of_source(text[1]);
    RESPONSE first = ask_set(one);
    assert_true(first->created);
    RESPONSE second = ask_set(other);
    assert_false(second->created);
    assert_int_equal(second->registered->revision, 1);
    const char *name = first->registered->definition->name;
    Saga__V1__RegisteredDefinition *kept = stored(name, true);
    assert_true(kept->descriptors.len > 0 && kept->descriptors.len < one.size / 10);
    struct bytes bytes;
    assert_int_equal(mem_bytes_copy(kept->descriptors.data, kept->descriptors.len, &bytes), 0);
    struct schema *schema = schema_of(bytes);
    assert_non_null(schema_message_find(schema, "kept.v1.In"));
    assert_non_null(schema_message_find(schema, "kept.v1.Out"));
    assert_null(schema_message_find(schema, "kept.v1.Unused"));
    assert_int_equal(schema_service_count(schema), 0);
    (void)schema_free(schema);
    saga__v1__registered_definition__free_unpacked(kept, NULL);
    kept = stored(name, false);
    assert_int_equal(kept->descriptors.len, 0);
    saga__v1__registered_definition__free_unpacked(kept, NULL);
}

#define SAGA(name, options, rpcs)                                                                  \
    "service " name " { option (saga.v1.saga) = { input: \"In\" key: \"{id}\" " options            \
    " }; " rpcs " }\n"
#define STEP(name, output, options)                                                                \
    "rpc " name "(In) returns (" output ") { option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT " \
    "no_compensation: true " options " }; }\n"
#define HEAD                                                                                       \
    "syntax = \"proto3\"; package t.v1; import \"saga/v1/options.proto\";\n"                       \
    "message In { string id = 1; } message Out { string id = 1; } message Other { int32 n = 1; "   \
    "}\n"

static void test_which_service_is_meant(void **state)
{
    (void)state;
    CLEANUP(bytes_done)
    struct bytes none = set_of_source(HEAD "service Plain { rpc Do(In) returns (Out); }\n");
    CLEANUP(bytes_done)
    struct bytes two = set_of_source(HEAD SAGA("First", "", STEP("A", "Out", "")) SAGA(
        "Second", "", STEP("A", "Out", "")) "service Plain { rpc Do(In) returns (Out); }\n");
    struct asked asked = { .set = none };
    (void)refused(&asked, INVALID_ARGUMENT, NULL, "service", "they have t.v1.Plain");
    asked.set = two;
    (void)refused(&asked, INVALID_ARGUMENT, NULL, "service",
                  "2 services are sagas: t.v1.First, t.v1.Second");
    asked.service = "t.v1.Third";
    (void)refused(&asked, INVALID_ARGUMENT, NULL, "service",
                  "no service t.v1.Third; they have t.v1.First, t.v1.Second, t.v1.Plain");
    asked.service = "t.v1.Plain";
    (void)refused(&asked, INVALID_ARGUMENT, NULL, "service",
                  "t.v1.Plain (test.proto) has no option");
    asked.definition = "{\"name\":\"x\"}";
    (void)refused(&asked, INVALID_ARGUMENT, NULL, "service", "without a definition");
    asked = (struct asked){ 0 };
    (void)refused(&asked, INVALID_ARGUMENT, NULL, "definition", "is required");
    asked = (struct asked){ .set = two, .service = "t.v1.Second" };
    RESPONSE second = ask(&asked, NULL);
    assert_string_equal(second->registered->definition->steps[0]->action->handler, "t.v1.Second.A");
}

static void test_faults_are_told_where_they_were_written(void **state)
{
    (void)state;
    /* Of the form of a service; of the definition that it becomes, at the rpc, and in the defaults
     * of all rpcs: once. */
    CLEANUP(bytes_done)
    struct bytes form =
        set_of_source(HEAD SAGA("Form", "deadline: \"soon\"", STEP("A", "Out", "after: \"B\"")));
    CLEANUP(bytes_done)
    struct bytes rules = set_of_source(HEAD SAGA("Rules", "defaults: { lease: \"1s\" }",
                                                 STEP("A", "Out", "") STEP("B", "Out", "")
                                                     STEP("C", "Out", "attempt_timeout: \"25h\"")));
    struct asked asked = { .set = form };
    (void)refused(&asked, INVALID_ARGUMENT, "INVALID_DEFINITION", "test.proto: t.v1.Form: deadline",
                  "\"soon\" is no time");
    (void)refused(&asked, INVALID_ARGUMENT, "INVALID_DEFINITION",
                  "test.proto: t.v1.Form.A: after[0]", "there is no step \"B\"");
    asked.set = rules;
    (void)refused(&asked, INVALID_ARGUMENT, "INVALID_DEFINITION",
                  "test.proto: t.v1.Rules.C: attempt_timeout", "86400000 ms");
    size_t told = refused(&asked, INVALID_ARGUMENT, "INVALID_DEFINITION",
                          "test.proto: t.v1.Rules: defaults.lease", "5");
    assert_int_equal(told, 2);
    assert_int_equal(revisions("t.v1.Rules"), 0);
}

#define TYPED(input, output)                                                                       \
    "{\"name\":\"typed\",\"inputType\":\"" input "\",\"key\":\"{id}\",\"steps\":[{\"name\":\"a\"," \
    "\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\",\"request\":{\"type\":\"" input                  \
    "\"},\"outputType\":\"" output "\"},\"noCompensation\":true}]}"

static void test_the_types_of_a_definition_are_in_its_descriptors(void **state)
{
    (void)state;
    CLEANUP(bytes_done) struct bytes set = set_of_source(HEAD);
    struct asked asked = { .definition = TYPED("t.v1.In", "t.v1.Out") };
    (void)refused(&asked, INVALID_ARGUMENT, "INVALID_DEFINITION", "descriptors",
                  "are required, for the definition names types: t.v1.In");
    asked.set = set;
    RESPONSE first = ask(&asked, NULL);
    assert_true(first->created);
    assert_string_equal(first->registered->definition->steps[0]->action->output_type, "t.v1.Out");
    asked.definition = TYPED("t.v1.In", "t.v1.Missing");
    (void)refused(&asked, INVALID_ARGUMENT, "INVALID_DEFINITION", "steps[0].action.output_type",
                  "t.v1.Missing");
    /* One that names none keeps none. */
    asked.definition = "{\"name\":\"untyped\",\"steps\":[{\"name\":\"a\",\"action\":{\"effect\":"
                       "\"EFFECT_IDEMPOTENT\"},\"noCompensation\":true}]}";
    RESPONSE untyped = ask(&asked, NULL);
    assert_true(untyped->created);
    asked.set = (struct bytes){ 0 };
    RESPONSE same = ask(&asked, NULL);
    assert_false(same->created);
}

static void test_another_type_under_the_same_name_is_another_revision(void **state)
{
    (void)state;
    static const char head[] = "syntax = \"proto3\"; package t.v1;\n"
                               "message In { string id = 1; } message Out { %s }\n";
    char text[2][256];
    (void)snprintf(text[0], sizeof text[0], head, "string id = 1;");
    (void)snprintf(text[1], sizeof text[1], head, "int64 id = 1;");
    CLEANUP(bytes_done) struct bytes old = set_of_source(text[0]), new = set_of_source(text[1]);
    struct asked asked = { .set = old, .definition = TYPED("t.v1.In", "t.v1.Out") };
    RESPONSE first = ask(&asked, NULL);
    int32_t revision = first->registered->revision;
    asked.set = new;
    asked.dry = true;
    RESPONSE dry = ask(&asked, NULL);
    assert_false(dry->created);
    assert_int_equal(dry->registered->revision, revision + 1);
    assert_int_equal(dry->changed_from, revision);
    assert_true(dry->n_changes > 0);
    assert_int_equal(revisions("typed"), revision);
    asked.dry = false;
    RESPONSE next = ask(&asked, NULL);
    assert_true(next->created);
    assert_int_equal(next->registered->revision, revision + 1);
    assert_int_equal(next->changed_from, revision);
    const Saga__V1__DefinitionChange *change = change_at(next, "steps.a.action.output_type");
    assert_int_equal(change->severity, SAGA__V1__CHANGE_SEVERITY__CHANGE_SEVERITY_BREAKING);
    assert_non_null(strstr(change->text, "id"));
    /* Back again: what is different is told, and it is the revision that it was. */
    asked.set = old;
    RESPONSE back = ask(&asked, NULL);
    assert_false(back->created);
    assert_int_equal(back->registered->revision, revision);
    assert_true(back->registered->current);
    assert_int_equal(back->changed_from, revision + 1);
    assert_true(back->n_changes > 0);
}

static void test_what_is_different_is_told_up_to_a_thousand(void **state)
{
    (void)state;
    struct buf json[2] = { { 0 }, { 0 } };
    for (int i = 0; i < 2; i++) {
        buf_printf(&json[i], "{\"name\":\"many\",\"steps\":[");
        for (int step = 0; step < 256; step++)
            buf_printf(&json[i],
                       "%s{\"name\":\"s%d\",\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\","
                       "\"lease\":\"%ds\",\"attemptTimeout\":\"%ds\",\"handler\":\"h%d\","
                       "\"retry\":{\"for\":\"%ds\",\"cap\":\"%ds\"}},\"noCompensation\":true}",
                       step ? "," : "", step, 10 + i, 20 + i, i, 100 + i, 50 + i);
        buf_text(&json[i], "]}");
    }
    struct asked asked = { .definition = buf_cstr(&json[0]) };
    RESPONSE first = ask(&asked, NULL);
    assert_true(first->created);
    asked.definition = buf_cstr(&json[1]);
    RESPONSE second = ask(&asked, NULL);
    assert_int_equal(second->n_changes, 1000);
    assert_int_equal(second->changed_from, 1);
    buf_done(&json[0]);
    buf_done(&json[1]);
}

/* --- hostile sets ----------------------------------------------------------------------------- */

static void hostile(struct bytes set, int code, const char *says)
{
    struct asked asked = { .set = set };
    int64_t begun = clock_mono_ms(&clock_system);
    (void)refused(&asked, code, "INVALID_DESCRIPTORS", NULL, says);
    int64_t took = clock_mono_ms(&clock_system) - begun;
    if (took > SOON_MS)
        fail_msg("it took %lld ms: %s", (long long)took, says);
}

static void test_b1_sets_that_are_none_name_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } sets[] = {
        { "file { name: \"a.proto\" dependency: \"b.proto\" }",
          "a.proto: imports b.proto, which is not in the set" },
        { "file { name: \"a.proto\" dependency: \"b.proto\" } file { name: \"b.proto\" dependency: "
          "\"a.proto\" }",
          "imports a.proto, which imports it in turn" },
        { "file { name: \"a.proto\" package: \"p\" service { name: \"S\" method { name: \"Do\" "
          "input_type: \".p.None\" output_type: \".p.None\" } } }",
          "a.proto: p.S.Do: " },
        { "file { name: \"a.proto\" } file { name: \"a.proto\" }", "a.proto" },
    };
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        CLEANUP(bytes_done) struct bytes set = set_of_text(sets[i].text);
        hostile(set, INVALID_ARGUMENT, sets[i].says);
    }
    uint8_t garbage[4096];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)(i * 167 + 13);
    hostile((struct bytes){ garbage, sizeof garbage }, INVALID_ARGUMENT, "descriptors");
    CLEANUP(bytes_done) struct bytes good = set_of_file("golden/settlement.proto");
    hostile((struct bytes){ good.data, good.size - 1 }, INVALID_ARGUMENT, "descriptors");
}

static void test_b1_sets_beyond_their_limits_are_refused_soon(void **state)
{
    (void)state;
    /* Messages in messages, so deep that whoever recursed would be gone. */
    CLEANUP(buf_done) struct buf nested = { 0 }, outer = { 0 };
    for (int i = 0; i < 2000; i++) {
        buf_clear(&outer);
        record_put_bytes(&outer, 1, "M", 1);
        record_put_bytes(&outer, i == 1999 ? 4 : 3, nested.data, nested.size);
        struct buf swap = nested;
        nested = outer;
        outer = swap;
    }
    buf_clear(&outer);
    record_put_bytes(&outer, 1, nested.data, nested.size);
    hostile((struct bytes){ outer.data, outer.size }, RESOURCE_EXHAUSTED, "deep");
    /* Thousands of services; a million empty messages; as many files. */
    static const struct {
        uint32_t field;
        int count;
        const char *says;
    } many[] = { { 6, 5000, "services" }, { 4, 500 * 1000, "more than 200000 fields" } };
    for (size_t m = 0; m < ARRAY_LEN(many); m++) {
        buf_clear(&nested);
        record_put_bytes(&nested, 1, "a.proto", 7);
        for (int i = 0; i < many[m].count; i++) {
            char name[32];
            CLEANUP(buf_done) struct buf one = { 0 };
            (void)snprintf(name, sizeof name, "S%d", i);
            record_put_bytes(&one, 1, name, strlen(name));
            record_put_bytes(&nested, many[m].field, m == 0 ? one.data : NULL,
                             m == 0 ? one.size : 0);
        }
        buf_clear(&outer);
        record_put_bytes(&outer, 1, nested.data, nested.size);
        hostile((struct bytes){ outer.data, outer.size }, RESOURCE_EXHAUSTED, many[m].says);
    }
    /* More bytes than a set may have, though a request may. */
    buf_clear(&nested);
    uint8_t *room = buf_room(&nested, 4 * MIB + 1);
    assert_non_null(room);
    memset(room, 0, 4 * MIB + 1);
    hostile((struct bytes){ room, 4 * MIB + 1 }, RESOURCE_EXHAUSTED, "SCHEMA_BYTES_MAX");
}

static void test_b1_options_of_the_wrong_type_are_refused_by_name(void **state)
{
    (void)state;
    CLEANUP(bytes_done) struct bytes good = set_of_source(HEAD SAGA("S", "", STEP("A", "Out", "")));
    struct asked asked = { .set = good };
    RESPONSE accepted = ask(&asked, NULL);
    assert_true(accepted->created);
    /* (saga.v1.saga), field 51720, as a number instead of a message; and a message that is none. */
    static const struct {
        const char *options;
        size_t size;
    } wrong[] = { { "\xc0\xa0\x19\x07", 4 }, { "\xc2\xa0\x19\x02\xff\xff", 6 } };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        CLEANUP(buf_done) struct buf service = { 0 }, file = { 0 }, set = { 0 };
        record_put_bytes(&service, 1, "S", 1);
        record_put_bytes(&service, 2,
                         "\x0a\x02"
                         "Do\x12\x04.p.M\x1a\x04.p.M",
                         16);
        record_put_bytes(&service, 3, wrong[i].options, wrong[i].size);
        record_put_bytes(&file, 1, "a.proto", 7);
        record_put_bytes(&file, 2, "p", 1);
        record_put_bytes(&file, 4, "\x0a\x01M", 3);
        record_put_bytes(&file, 6, service.data, service.size);
        record_put_bytes(&set, 1, file.data, file.size);
        asked.set = (struct bytes){ set.data, set.size };
        (void)refused(&asked, INVALID_ARGUMENT, NULL, NULL, "a.proto: p.S");
    }
}

/* All of it is named, so all of it would be kept. */
static void test_types_beyond_two_mib_are_not_kept(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf field = { 0 }, message = { 0 }, set = { 0 };
    record_put_bytes(&message, 1, "In", 2);
    for (int i = 1; i <= 10000; i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "f%0119d", i);
        buf_clear(&field);
        record_put_bytes(&field, 1, name, strlen(name));
        record_put_tag(&field, 3, RECORD_VARINT); /* its number */
        record_put_varint(&field, (uint64_t)i);
        buf_append(&field, "\x20\x01\x28\x09", 4); /* optional, text */
        record_put_bytes(&message, 2, field.data, field.size);
    }
    size_t file = record_begin(&set, 1);
    record_put_bytes(&set, 1, "a.proto", 7);
    record_put_bytes(&set, 4, message.data, message.size);
    record_put_bytes(&set, 12, "proto3", 6);
    record_end(&set, file);
    struct asked asked = {
        .set = { set.data, set.size },
        .definition = "{\"name\":\"large\",\"inputType\":\"In\",\"steps\":[{\"name\":\"a\","
                      "\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\"},"
                      "\"noCompensation\":true}]}"
    };
    (void)refused(&asked, RESOURCE_EXHAUSTED, "INVALID_DESCRIPTORS", "descriptors",
                  "at most 2097152");
}

/* The largest set that is accepted: other methods take no such message. */
static void test_b1_only_a_registration_may_be_so_large(void **state)
{
    (void)state;
    CLEANUP(bytes_done) struct bytes good = set_of_file("golden/fulfilment.proto");
    CLEANUP(buf_done) struct buf large = { 0 }, file = { 0 };
    static char comment[MIB - 64];
    memset(comment, 'c', sizeof comment);
    record_put_bytes(&file, 1, "z.proto", 7);
    record_put_bytes(&file, 12, "proto3", 6);
    record_put_bytes(&file, 1000, comment, sizeof comment); /* unknown: passed over */
    buf_append(&large, good.data, good.size);
    record_put_bytes(&large, 1, file.data, file.size);
    while (large.size + sizeof comment < 4 * MIB) { /* of one file more and more */
        char name[32];
        (void)snprintf(name, sizeof name, "z%zu.proto", large.size);
        buf_clear(&file);
        record_put_bytes(&file, 1, name, strlen(name));
        record_put_bytes(&file, 1000, comment, sizeof comment);
        record_put_bytes(&large, 1, file.data, file.size);
    }
    size_t left = 4 * MIB - large.size - 32;
    buf_clear(&file);
    record_put_bytes(&file, 1, "last.proto", 10);
    record_put_bytes(&file, 1000, comment, left);
    record_put_bytes(&large, 1, file.data, file.size);
    assert_in_range(large.size, 4 * MIB - 32, 4 * MIB);
    CLEANUP(buf_done) struct buf request = { 0 };
    record_put_bytes(&request, 3, large.data, large.size);
    record_put_bytes(&request, 4, "shop.v1.Fulfilment", 18);
    buf_append(&request, "\x10\x01", 2);           /* validate_only */
    buf_append(&request, "\x28\x01", 2);           /* keep_current */
    record_put_bytes(&request, 100, comment, 512); /* that it is more than 4 MiB in all */
    assert_true(request.size > 4 * MIB);
    assert_int_equal(raw_call(rig.address, "/saga.v1.DefinitionService/RegisterDefinition",
                              request.data, request.size, 15000, NULL),
                     0);
    assert_int_equal(raw_call(rig.address, "/saga.v1.DefinitionService/ListDefinitions",
                              request.data, request.size, 15000, NULL),
                     RESOURCE_EXHAUSTED);
    while (request.size < 5 * MIB)
        record_put_bytes(&request, 100, comment, sizeof comment);
    assert_int_equal(raw_call(rig.address, "/saga.v1.DefinitionService/RegisterDefinition",
                              request.data, request.size, 15000, NULL),
                     RESOURCE_EXHAUSTED);
    assert_int_equal(rig_health(rig.address, 5000), 1);
}

#define RIG_TEST(name) cmocka_unit_test_teardown(name, check)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_a_service_becomes_the_definition_that_it_says),
        RIG_TEST(test_only_the_types_that_it_names_are_kept),
        RIG_TEST(test_which_service_is_meant),
        RIG_TEST(test_faults_are_told_where_they_were_written),
        RIG_TEST(test_the_types_of_a_definition_are_in_its_descriptors),
        RIG_TEST(test_another_type_under_the_same_name_is_another_revision),
        RIG_TEST(test_what_is_different_is_told_up_to_a_thousand),
        RIG_TEST(test_b1_sets_that_are_none_name_what_is_wrong),
        RIG_TEST(test_b1_sets_beyond_their_limits_are_refused_soon),
        RIG_TEST(test_b1_options_of_the_wrong_type_are_refused_by_name),
        RIG_TEST(test_types_beyond_two_mib_are_not_kept),
        RIG_TEST(test_b1_only_a_registration_may_be_so_large),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
