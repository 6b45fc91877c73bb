/* Goal: a service becomes the definition that its author meant, or is refused with every fault,
 * each at the option where it was written and with what to do. Method: services in golden/,
 * compiled by protoc, each beside its definition as JSON or its faults as text; golden/check/ has
 * definitions with the faults of their types; places by table; options and definitions changed byte
 * by byte, and each allocation failed in turn, with the sanitizers as judge.
 *
 * SAGAD_GOLDEN_WRITE=1 writes what is expected anew: then read the diff. */
#include "definitions/sets.h"
#include "support/scratch.h"

#include "base/buf.h"
#include "base/rng.h"
#include "schema/derive_internal.h"
#include "wire/definition_codec.h"
#include "wire/json.h"
#include "wire/validate.h"

#include <glob.h>
#include <stdio.h>
#include <unistd.h>

#define GOLDEN SOURCE_DIR "/tests/definitions/golden"

/* ---- Files ----------------------------------------------------------------------------------- */

static void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

static void arena_done_p(struct arena *arena)
{
    arena_done(arena);
}

/* The same path with another ending. */
static void path_with(const char *path, const char *ending, char ret[SCRATCH_PATH_SIZE])
{
    (void)snprintf(ret, SCRATCH_PATH_SIZE, "%.*s%s", (int)(strrchr(path, '.') - path), path,
                   ending);
}

/* Where the text is not what the file holds the test fails, and says both. */
static void assert_as_in(const char *path, const char *text)
{
    if (getenv("SAGAD_GOLDEN_WRITE"))
        file_write(path, text, strlen(text));
    CLEANUP(bytes_done) struct bytes expected = file_read(path);
    if (strcmp((char *)expected.data, text) != 0) {
        (void)fprintf(stderr, "--- %s\n%s--- but it is\n%s---\n", path, (char *)expected.data,
                      text);
        fail();
    }
}

/* The file is named as it is in its folder, as users do it. */
static struct schema *compile(const char *proto)
{
    char out[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("set", out, &err), &err);
    run("%s -I %s -I %s -I %s/proto --include_imports --include_source_info "
        "--descriptor_set_out=%s %s",
        PROTOC, GOLDEN, PROTO_WELL_KNOWN, SOURCE_DIR, out, proto);
    return schema_of(file_read(out));
}

static const struct schema_service *find_saga(const struct schema *schema)
{
    for (size_t i = 0; i < schema_service_count(schema); i++)
        if (schema_service_is_saga(schema_service_at(schema, i)))
            return schema_service_at(schema, i);
    fail_msg("no service of the set is a saga");
    return NULL;
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void tell(void *ctx, const char *where, const char *text)
{
    buf_printf(ctx, "%s\n    %s\n", where, text);
}

static size_t derive(const struct schema *schema, const struct schema_service *service,
                     struct arena *arena, struct derived *ret, struct buf *faults)
{
    struct err err;
    size_t count = SIZE_MAX, lines = 0;
    ASSERT_OK(schema_derive(schema, service, arena, tell, faults, ret, &count, &err), &err);
    for (const char *at = buf_cstr(faults); (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(2 * count, lines);
    return count;
}

/* ---- Golden files ---------------------------------------------------------------------------- */

/* What JSON of proto3 leaves out: so the files can be read. */
static bool says_nothing(const json_t *value)
{
    const char *text = json_string_value(value);
    const char *end = text ? strrchr(text, '_') : NULL;
    return json_is_false(value) || (json_is_integer(value) && !json_integer_value(value)) ||
           (json_is_array(value) && !json_array_size(value)) || (text && !*text) ||
           (end && strcmp(end, "_UNSPECIFIED") == 0);
}

static void leave_out_defaults(json_t *value)
{
    const char *key;
    json_t *member;
    void *next;
    size_t index;
    json_array_foreach(value, index, member)
    {
        leave_out_defaults(member);
    }
    json_object_foreach_safe(value, next, key, member)
    {
        leave_out_defaults(member);
        if (says_nothing(member))
            (void)json_object_del(value, key); /* it is there */
    }
}

static void write_definition(const char *path, const Saga__V1__SagaDefinition *definition)
{
    json_t *json = NULL;
    struct err err;
    ASSERT_OK(wire_json_from_message(&definition->base, &json, &err), &err);
    leave_out_defaults(json);
    assert_int_equal(json_dump_file(json, path, JSON_INDENT(2)), 0);
    json_decref(json);
}

static ProtobufCMessage *read_definition(const char *path)
{
    CLEANUP(bytes_done) struct bytes text = file_read(path);
    ProtobufCMessage *message = NULL;
    struct err err;
    ASSERT_OK(wire_json_decode((char *)text.data, text.size, &saga__v1__saga_definition__descriptor,
                               &message, &err),
              &err);
    return message;
}

static void pack(const ProtobufCMessage *message, struct buf *ret)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *room = buf_room(ret, size);
    assert_non_null(room);
    buf_added(ret, protobuf_c_message_pack(message, room));
}

static void assert_same_definition(const char *path, const Saga__V1__SagaDefinition *definition)
{
    if (getenv("SAGAD_GOLDEN_WRITE"))
        write_definition(path, definition);
    ProtobufCMessage *expected = read_definition(path);
    CLEANUP(buf_done_p) struct buf a = { 0 }, b = { 0 };
    pack(expected, &a);
    pack(&definition->base, &b);
    protobuf_c_message_free_unpacked(expected, NULL);
    if (a.size == b.size && memcmp(a.data, b.data, a.size) == 0)
        return;
    char *text = NULL;
    struct err err;
    ASSERT_OK(wire_json_encode(&definition->base, &text, &err), &err);
    (void)fprintf(stderr, "--- not as in %s\n%s\n---\n", path, text);
    mem_free(text);
    fail();
}

/* What was derived passes the check of those that come as a message, and its types are there. */
static void assert_checked(const struct schema *schema, const Saga__V1__SagaDefinition *definition,
                           struct arena *arena)
{
    CLEANUP(buf_done_p) struct buf faults = { 0 };
    struct err err;
    size_t count = SIZE_MAX;
    ASSERT_OK(schema_check_definition(schema, definition, tell, &faults, &count, &err), &err);
    assert_string_equal(buf_cstr(&faults), "");
    assert_int_equal(count, 0);
    const char *const *names = NULL;
    ASSERT_OK(schema_definition_types(definition, arena, &names, &count, &err), &err);
    assert_true(count > 2 * definition->n_steps);
    for (size_t i = 0; i < count; i++)
        assert_non_null(schema_message_find(schema, names[i]));
}

static void check_golden(const char *proto)
{
    char json[SCRATCH_PATH_SIZE], text[SCRATCH_PATH_SIZE];
    path_with(proto, ".json", json);
    path_with(proto, ".faults", text);
    CLEANUP(schema_free_p) struct schema *schema = compile(proto);
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    CLEANUP(buf_done_p) struct buf faults = { 0 };
    struct derived derived = { 0 };
    if (derive(schema, find_saga(schema), &arena, &derived, &faults)) {
        assert_null(derived.definition);
        assert_int_not_equal(access(json, F_OK), 0);
        assert_as_in(text, buf_cstr(&faults));
        return;
    }
    assert_int_not_equal(access(text, F_OK), 0);
    assert_same_definition(json, derived.definition);
    assert_checked(schema, derived.definition, &arena);
}

static void test_services_become_definitions_or_faults(void **state)
{
    (void)state;
    glob_t files;
    assert_int_equal(glob(GOLDEN "/*.proto", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 15);
    for (size_t i = 0; i < files.gl_pathc; i++)
        check_golden(files.gl_pathv[i]);
    globfree(&files);
}

static void test_definitions_are_checked_by_their_types(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = compile(GOLDEN "/fulfilment.proto");
    glob_t files;
    assert_int_equal(glob(GOLDEN "/check/*.json", 0, NULL, &files), 0);
    assert_int_equal(files.gl_pathc, 3);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        CLEANUP(buf_done_p) struct buf faults = { 0 };
        ProtobufCMessage *message = read_definition(files.gl_pathv[i]);
        struct err err;
        size_t count = 0;
        ASSERT_OK(schema_check_definition(schema, (const Saga__V1__SagaDefinition *)message, tell,
                                          &faults, &count, &err),
                  &err);
        protobuf_c_message_free_unpacked(message, NULL);
        char text[SCRATCH_PATH_SIZE];
        path_with(files.gl_pathv[i], ".faults", text);
        assert_true(count > 0);
        assert_as_in(text, buf_cstr(&faults));
    }
    globfree(&files);
}

/* ---- Where a fault of the definition was written ----------------------------------------------
 */

struct placed {
    const char *path, *place;
};

static void assert_placed(const char *proto, const char *service, const struct placed *cases,
                          size_t count)
{
    CLEANUP(schema_free_p) struct schema *schema = compile(proto);
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    CLEANUP(buf_done_p) struct buf faults = { 0 };
    struct derived derived = { 0 };
    assert_int_equal(derive(schema, find_saga(schema), &arena, &derived, &faults), 0);
    for (size_t i = 0; i < count; i++) {
        char place[256], expected[256];
        schema_fault_place(&derived, cases[i].path, place, sizeof place);
        (void)snprintf(expected, sizeof expected, "%s: %s%s", strrchr(proto, '/') + 1, service,
                       cases[i].place);
        assert_string_equal(place, expected);
    }
    char few[12];
    schema_fault_place(&derived, "deadline", few, sizeof few);
    assert_int_equal(strlen(few), sizeof few - 1);
}

static void test_faults_are_placed(void **state)
{
    (void)state;
    static const struct placed fulfilment[] = {
        { "namespace", ": namespace" },
        { "name", ": name" },
        { "steps", "" },
        { "input_type", ": input" },
        { "labels[0].value", ": labels[0].value" },
        { "steps[0]", ".ConfirmOrder" },
        { "steps[0].name", ".ConfirmOrder: name" },
        { "steps[0].undo", ".ConfirmOrder: compensated_by" },
        { "steps[0].compensation", ".ConfirmOrder: compensated_by" },
        { "steps[0].action", ".ConfirmOrder" },
        { "steps[0].action.effect", ".ConfirmOrder: effect" },
        { "steps[0].action.probe", ".ConfirmOrder: probed_by" },
        { "steps[0].action.output_type", ".ConfirmOrder: response" },
        { "steps[0].compensation.effect", ".CancelOrder: effect" },
        { "steps[0].compensation.probe", ".CancelOrder: probed_by" },
        { "steps[1].action.request.fields[1]", ".CreateWaybill: request" },
        { "steps[1].action.probe.retry.for", ".FindWaybill: retry.for" },
        { "steps[1].action.probe.handler", ".FindWaybill: handler" },
        { "steps[3].after[1]", ".TellCustomer: after[1]" },
        { "steps[3].compensation.effect", ".TellCustomer: compensation.effect" },
        /* written once, in the saga's defaults; or by the rpc itself; or nowhere */
        { "steps[0].action.lease", ": defaults.lease" },
        { "steps[0].action.retry.cap", ": defaults.retry.cap" },
        { "steps[1].action.probe.retry.cap", ".FindWaybill: retry.cap" },
        { "steps[1].action.probe.retry.initial", ": defaults.retry.initial" },
        { "steps[1].compensation.retry.for", ".CancelWaybill: retry.for" },
        { "steps[3].action.retry.for", ".TellCustomer: retry.for" },
        { "steps[3].action.retry.max_attempts", ".TellCustomer: retry.max_attempts" },
        /* none of ours: as it is */
        { "steps[4].name", ": steps[4].name" },
        { "steps[x", ": steps[x" },
        { "steps[0", ": steps[0" },
        { "", "" },
    };
    static const struct placed every[] = {
        { "steps[1].wait_for_signal.timeout", ".Signalled: wait_for_signal.timeout" },
        { "steps[1].wait_for_signal.on_exhausted", ".Signalled: on_exhausted" },
        { "steps[1].wait_for_signal.payload_type", ".Signalled: response" },
        { "steps[2].action.lost_leases_max", ": defaults.lost_leases_max" },
        { "steps[0].action.lost_leases_max", ".First: lost_leases_max" },
        { "steps[2].action.retry.max_attempts", ": defaults.retry.max_attempts" },
        { "steps[4].action.retry.max_attempts", ".Fifth: retry.max_attempts" },
        { "steps[0].compensation.probe.handler", ".AskUndoFirst: handler" },
    };
    assert_placed(GOLDEN "/fulfilment.proto", "shop.v1.Fulfilment", fulfilment,
                  ARRAY_LEN(fulfilment));
    assert_placed(GOLDEN "/every_option.proto", "every.v1.EveryOption", every, ARRAY_LEN(every));
}

/* ---- Zeros ----------------------------------------------------------------------------------- */

struct zeros {
    const struct derived *derived;
    struct buf told;
};

static void tell_place(void *ctx, const char *path, const char *text)
{
    struct zeros *zeros = ctx;
    char place[256];
    schema_fault_place(zeros->derived, path, place, sizeof place);
    tell(&zeros->told, place, text);
}

/* What is not given is the saga's default, or that of all sagas; what is given as zero is that, and
 * refused where it cannot be. */
static void test_b3_an_explicit_zero_is_told_apart_from_an_option_not_given(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = compile(GOLDEN "/check/zero.proto");
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    CLEANUP(buf_done_p) struct buf faults = { 0 };
    struct derived derived = { 0 };
    assert_int_equal(derive(schema, find_saga(schema), &arena, &derived, &faults), 0);
    const Saga__V1__Step *absent = derived.definition->steps[0];
    const Saga__V1__Step *zero = derived.definition->steps[1];
    assert_int_equal(absent->action->retry->max_attempts, 5);
    assert_int_equal(absent->action->lost_leases_max, 4);
    assert_true(!absent->action->retry->for_ && !absent->settle_time);
    assert_int_not_equal(zero->action->retry->_max_attempts_case, 0);
    assert_int_equal(zero->action->retry->max_attempts, 0);
    assert_int_not_equal(zero->action->_lost_leases_max_case, 0);
    assert_int_equal(zero->action->lost_leases_max, 0);
    assert_true(zero->action->retry->for_ && zero->settle_time);

    struct zeros zeros = { .derived = &derived };
    struct definition *definition = NULL;
    struct err err;
    size_t count = 0;
    ASSERT_OK(
        definition_from_message(derived.definition, tell_place, &zeros, &definition, &count, &err),
        &err);
    assert_int_not_equal(count, 0);
    assert_as_in(GOLDEN "/check/zero.faults", buf_cstr(&zeros.told));
    buf_done(&zeros.told);
}

/* ---- Hostile and exhausted ------------------------------------------------------------------- */

/* The service with other options of one of its rpcs. */
static void derive_changed(const struct schema *schema, const struct bytes *options,
                           struct buf *faults)
{
    struct schema_service service = *find_saga(schema);
    struct schema_method methods[16];
    assert_in_range(service.method_count, 1, ARRAY_LEN(methods));
    memcpy(methods, service.methods, service.method_count * sizeof *methods);
    methods[0].options = *options;
    service.methods = methods;
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    struct derived derived;
    (void)derive(schema, &service, &arena, &derived, faults); /* whether there are any */
}

static void test_what_the_server_does_not_know_is_refused(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = compile(GOLDEN "/settlement.proto");
    static const char place[] = "settlement.proto: bank.v1.Settlement.DebitAccount: step\n    ";
    /* saga.v1.step, field 51721, tag ca a0 19: each once */
    static const struct {
        uint8_t bytes[12];
        size_t size;
        const char *text;
    } cases[] = {
        { { 0xca, 0xa0, 0x19, 0x03, 0xc0, 0x0c, 0x01 },
          7,
          "saga.v1.StepOptions has a field 200, which this server does not know: it is older than "
          "your saga/v1/options.proto\n" },
        { { 0xca, 0xa0, 0x19, 0x05, 0x7a, 0x03, 0xc0, 0x0c, 0x01 },
          9,
          "saga.v1.RetryOptions has a field 200, which this server does not know: it is older than "
          "your saga/v1/options.proto\n" },
        { { 0xc8, 0xa0, 0x19, 0x01 },
          4,
          "is not the message saga.v1.StepOptions: take the saga/v1/options.proto of this "
          "server\n" },
        { { 0xca, 0xa0, 0x19, 0x02, 0x30, 0x63 },
          6,
          "effect: 99 is not a known value: take the saga/v1/options.proto of this server\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(buf_done_p) struct buf faults = { 0 };
        struct bytes options = { 0 };
        assert_int_equal(mem_bytes_copy(cases[i].bytes, cases[i].size, &options), 0);
        derive_changed(schema, &options, &faults);
        mem_free(options.data);
        char expected[512];
        (void)snprintf(expected, sizeof expected, "%s%s", place, cases[i].text);
        assert_string_equal(buf_cstr(&faults), expected); /* and nothing that follows from it */
    }
}

static void test_changed_options_are_survived(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = compile(GOLDEN "/every_option.proto");
    const struct bytes *good = &find_saga(schema)->methods[0].options;
    struct rng rng;
    rng_seed(&rng, 51720);
    unsigned rounds = test_is_full_size() ? 20000 : 1000;
    for (unsigned i = 0; i < rounds; i++) {
        struct bytes options = { 0 };
        size_t size = 1 + rng_below(&rng, good->size);
        assert_int_equal(mem_bytes_copy(good->data, size, &options), 0);
        for (uint64_t j = rng_below(&rng, 4); j > 0; j--)
            options.data[rng_below(&rng, size)] = (uint8_t)rng_below(&rng, 256);
        CLEANUP(buf_done_p) struct buf faults = { 0 };
        derive_changed(schema, &options, &faults);
        mem_free(options.data);
    }
}

static void test_changed_definitions_are_survived(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = compile(GOLDEN "/every_option.proto");
    CLEANUP(buf_done_p) struct buf good = { 0 };
    ProtobufCMessage *message = read_definition(GOLDEN "/every_option.json");
    pack(message, &good);
    protobuf_c_message_free_unpacked(message, NULL);
    struct rng rng;
    rng_seed(&rng, 51721);
    unsigned rounds = test_is_full_size() ? 50000 : 2000, checked = 0;
    for (unsigned i = 0; i < rounds; i++) {
        struct bytes changed = { 0 };
        assert_int_equal(mem_bytes_copy(good.data, good.size, &changed), 0);
        for (uint64_t j = 1 + rng_below(&rng, 3); j > 0; j--)
            changed.data[rng_below(&rng, good.size)] = (uint8_t)rng_below(&rng, 128);
        CLEANUP(arena_done_p) struct arena arena = { 0 };
        CLEANUP(buf_done_p) struct buf faults = { 0 };
        struct err err;
        size_t count;
        if (!wire_unpack(&saga__v1__saga_definition__descriptor, changed.data, changed.size, &arena,
                         &message, &err)) {
            ASSERT_OK(schema_check_definition(schema, (Saga__V1__SagaDefinition *)message, tell,
                                              &faults, &count, &err),
                      &err);
            checked++;
        }
        mem_free(changed.data);
    }
    assert_true(checked > rounds / 10);
}

/* A service with so many steps, each with so many operations beside it. */
static struct schema *compile_big(unsigned steps, unsigned others)
{
    CLEANUP(buf_done_p) struct buf text = { 0 };
    buf_text(&text, "syntax = \"proto3\";\nimport \"saga/v1/options.proto\";\n"
                    "message In { string id = 1; }\n"
                    "service Big {\n  option (saga.v1.saga) = { input: \"In\" };\n");
    for (unsigned i = 0; i < steps; i++)
        buf_printf(&text,
                   "  rpc Do%u(In) returns (In) { option (saga.v1.step) = { effect: "
                   "EFFECT_IDEMPOTENT no_compensation: true }; }\n",
                   i);
    for (unsigned i = 0; i < others; i++)
        buf_printf(&text, "  rpc Ask%u(In) returns (In) { option (saga.v1.probe) = {}; }\n", i);
    buf_text(&text, "}\n");
    return schema_of(set_of_source(buf_cstr(&text)));
}

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        unsigned steps, others;
        const char *fault; /* NULL: none */
    } cases[] = {
        { LIMIT_STEPS, 0, NULL },
        { LIMIT_STEPS + 1, 0, "Big\n    has 257 steps: at most 256\n" },
        { 1, RPCS_MAX,
          "Big\n    has 1025 rpcs: at most 1024, for 256 steps with a compensation and probes\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(schema_free_p) struct schema *schema = compile_big(cases[i].steps, cases[i].others);
        CLEANUP(arena_done_p) struct arena arena = { 0 };
        CLEANUP(buf_done_p) struct buf faults = { 0 };
        struct derived derived = { 0 };
        size_t count = derive(schema, find_saga(schema), &arena, &derived, &faults);
        assert_int_equal(count, cases[i].fault ? 1 : 0);
        if (cases[i].fault)
            assert_non_null(strstr(buf_cstr(&faults), cases[i].fault));
        else
            assert_checked(schema, derived.definition, &arena);
    }
}

static void ignore(void *ctx, const char *where, const char *text)
{
    (void)ctx;
    (void)where;
    (void)text;
}

static void test_memory_that_is_out_is_an_error(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = compile(GOLDEN "/every_option.proto");
    ProtobufCMessage *message = read_definition(GOLDEN "/every_option.json");
    const Saga__V1__SagaDefinition *definition = (Saga__V1__SagaDefinition *)message;
    const struct schema_service *service = find_saga(schema);
    struct err err;
    size_t count = 0, limit = 0;
    int rc = ERR_LIMIT;
    for (; rc; limit += 16) { /* the arena's cap, wherever it falls */
        struct derived derived = { 0 };
        struct arena arena = { .limit = 1 + limit };
        rc = schema_derive(schema, service, &arena, ignore, NULL, &derived, &count, &err);
        assert_true(rc == 0 || rc == ERR_LIMIT);
        assert_true((rc == 0) == (derived.definition != NULL));
        arena_done(&arena);
        assert_true(limit < ARENA_BYTES_MAX);
    }
    rc = ERR_LIMIT;
    for (unsigned i = 1; rc; i++) {
        struct derived derived = { 0 };
        struct arena arena = { 0 };
        mem_fail_at(i, false);
        rc = schema_derive(schema, service, &arena, ignore, NULL, &derived, &count, &err);
        mem_fail_at(0, false);
        assert_true(rc == 0 || rc == ERR_LIMIT);
        assert_true((rc == 0) == (derived.definition != NULL));
        arena_done(&arena);
    }
    mem_fail_at(1, false);
    rc = schema_check_definition(schema, definition, ignore, NULL, &count, &err);
    mem_fail_at(0, false);
    assert_int_equal(rc, ERR_NOMEM);
    struct arena small = { .limit = 1 };
    const char *const *names = NULL;
    assert_int_equal(schema_definition_types(definition, &small, &names, &count, &err), ERR_LIMIT);
    assert_null(names);
    arena_done(&small);
    protobuf_c_message_free_unpacked(message, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_services_become_definitions_or_faults),
        cmocka_unit_test(test_definitions_are_checked_by_their_types),
        cmocka_unit_test(test_faults_are_placed),
        cmocka_unit_test(test_b3_an_explicit_zero_is_told_apart_from_an_option_not_given),
        cmocka_unit_test(test_what_the_server_does_not_know_is_refused),
        cmocka_unit_test(test_changed_options_are_survived),
        cmocka_unit_test(test_changed_definitions_are_survived),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory_that_is_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
