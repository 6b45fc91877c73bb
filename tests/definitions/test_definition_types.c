/* Goal: who runs a revision knows what its payloads are: a start is refused with the field's path
 * or gets its key and labels, an output is of its operation's type, idempotency keys are as
 * declared. Method: the settlement of golden/, and tables of inputs as JSON; each allocation failed
 * in turn. */
#include "definitions/sets.h"
#include "support/scratch.h"

#include "dispatch/key.h"
#include "schema/definition_types.h"
#include "schema/derive.h"
#include "schema/payload.h"
#include "wire/arena.h"
#include "wire/definition_codec.h"

#include <stdio.h>

#define GOLDEN SOURCE_DIR "/tests/definitions/golden"

static struct bytes set; /* packed descriptors of the settlement */
static struct schema *schema;
static struct bytes content;

static void no_fault(void *ctx, const char *where, const char *text)
{
    (void)ctx;
    fail_msg("%s %s", where, text);
}

/* The settlement, with an idempotency key of its own for the debit, as it is stored. */
static int setup(void **state)
{
    (void)state;
    static char key[] = "debit-{payment_id}";
    char out[SCRATCH_PATH_SIZE];
    struct arena arena = { 0 };
    struct derived derived;
    struct definition *definition = NULL;
    size_t faults = 0;
    struct err err;
    SETUP_OK(scratch_path("set", out, &err), &err);
    run("%s -I %s -I %s -I %s/proto --include_imports --descriptor_set_out=%s settlement.proto",
        PROTOC, GOLDEN, PROTO_WELL_KNOWN, SOURCE_DIR, out);
    set = file_read(out);
    SETUP_OK(schema_new(set.data, set.size, &schema, &err), &err);
    size_t saga = 0; /* beside services of what it imports */
    while (!schema_service_is_saga(schema_service_at(schema, saga)))
        saga++;
    SETUP_OK(schema_derive(schema, schema_service_at(schema, saga), &arena, no_fault, NULL,
                           &derived, &faults, &err),
             &err);
    derived.definition->steps[0]->action->idempotency_key = key;
    SETUP_OK(
        definition_from_message(derived.definition, no_fault, NULL, &definition, &faults, &err),
        &err);
    SETUP_OK(definition_encode(definition, &content, &err), &err);
    (void)definition_free(definition);
    arena_done(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)schema_free(schema);
    mem_free(set.data);
    mem_free(content.data);
    return 0;
}

static struct definition *settlement(void)
{
    struct definition *definition = NULL;
    struct err err;
    ASSERT_OK(definition_decode_typed(&content, &set, &definition, &err), &err);
    assert_non_null(definition->types);
    return definition;
}

static struct bytes payment(const char *json)
{
    struct bytes bytes = { 0 };
    struct err err;
    ASSERT_OK(payload_json_read(schema, schema_message_find(schema, "bank.v1.Payment"), json,
                                strlen(json), &bytes, &err),
              &err);
    return bytes;
}

static const struct start_case {
    const char *input, *saga_id, *labels; /* as given */
    const char *expected_id, *expected_labels;
    const char *field, *part; /* of the refusal; NULL: none */
} start_cases[] = {
    { "{\"paymentId\":\"p-1\",\"account\":7}", "", NULL, "p-1", "{\"account\":\"7\"}", NULL, NULL },
    { "{\"paymentId\":\"p-1\",\"account\":7}", "p-1", "{\"shop\":\"x\"}", "p-1",
      "{\"account\":\"7\",\"shop\":\"x\"}", NULL, NULL },
    { "{\"paymentId\":\"p-1\",\"account\":7}", "", "{\"account\":\"7\"}", "p-1",
      "{\"account\":\"7\"}", NULL, NULL },
    { "{\"paymentId\":\"p-1\"}", "", NULL, "p-1", "{\"account\":\"0\"}", NULL, NULL },
    { "{\"paymentId\":\"p-1\"}", "p-2", NULL, NULL, NULL, "saga_id",
      "is \"p-2\", but the definition makes \"p-1\" of the input" },
    { "{\"paymentId\":\"p-1\",\"account\":7}", "", "{\"account\":\"8\"}", NULL, NULL, "labels",
      "\"account\" is made of the input" },
    { "{\"paymentId\":\"p-1\"}", "", "{\"a\":\"1\",\"b\":\"1\",\"c\":\"1\",\"d\":\"1\"}", NULL,
      NULL, "labels", "more than 4" },
    { "{\"account\":7}", "", NULL, NULL, NULL, "input.payment_id", "is empty" },
    { "{\"paymentId\":\"a\\nb\"}", "", NULL, NULL, NULL, "input", "control characters" },
};

static void test_what_a_start_gets_of_its_input(void **state)
{
    (void)state;
    struct definition *definition = settlement();
    for (size_t i = 0; i < ARRAY_LEN(start_cases); i++) {
        const struct start_case *this = &start_cases[i];
        struct payload_start start = { .saga_id = this->saga_id, .labels = this->labels };
        struct bytes input = payment(this->input);
        struct err err = { 0 };
        int rc = definition->types->ops->start(definition, &input, &start, &err);
        if (this->field) {
            assert_int_equal(rc, ERR_INVALID);
            assert_string_equal(err.field, this->field);
            if (!strstr(err.msg, this->part))
                fail_msg("case %zu: %s", i, err.msg);
        } else {
            ASSERT_OK(rc, &err);
            assert_string_equal(start.saga_id, this->expected_id);
            assert_string_equal(start.labels, this->expected_labels);
        }
        buf_done(&start.made);
        mem_free(input.data);
    }
    (void)definition_free(definition);
}

static void test_a_key_that_is_too_long(void **state)
{
    (void)state;
    struct definition *definition = settlement();
    char json[LIMIT_SAGA_ID_BYTES + 64], id[LIMIT_SAGA_ID_BYTES + 2];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    (void)snprintf(json, sizeof json, "{\"paymentId\":\"%s\"}", id);
    struct payload_start start = { .saga_id = "" };
    struct bytes input = payment(json);
    struct err err;
    assert_int_equal(definition->types->ops->start(definition, &input, &start, &err), ERR_INVALID);
    assert_non_null(strstr(err.msg, "longer than 256 bytes"));
    buf_done(&start.made);
    mem_free(input.data);
    (void)definition_free(definition);
}

static void test_bytes_that_are_not_of_their_type(void **state)
{
    (void)state;
    static uint8_t cut[] = { 0x0a, 5, 'a' }, number[] = { 0x0d, 1, 2, 3, 4 };
    struct definition *definition = settlement();
    const struct payload_types_ops *types = definition->types->ops;
    struct bytes bytes = { cut, sizeof cut };
    struct payload_start start = { .saga_id = "" };
    struct err err;
    assert_int_equal(types->start(definition, &bytes, &start, &err), ERR_INVALID);
    assert_int_equal(strncmp(err.field, "input", 5), 0);
    bytes = (struct bytes){ number, sizeof number }; /* field 1 is no fixed32 */
    assert_int_equal(types->start(definition, &bytes, &start, &err), ERR_INVALID);
    assert_string_equal(err.field, "input.payment_id");
    assert_int_equal(types->output(definition, 0, OPERATION_ACTION, &bytes, &err), ERR_INVALID);
    assert_string_equal(err.field, "output.transaction_id");
    assert_int_equal(strncmp(err.msg, "output.transaction_id: ", 23), 0);
    /* the compensation answers google.protobuf.Empty, to which every field is an unknown one */
    ASSERT_OK(types->output(definition, 0, OPERATION_COMPENSATION, &bytes, &err), &err);
    bytes = (struct bytes){ cut, sizeof cut };
    assert_int_equal(types->output(definition, 0, OPERATION_COMPENSATION, &bytes, &err),
                     ERR_INVALID);
    bytes = (struct bytes){ NULL, 0 };
    ASSERT_OK(types->output(definition, 0, OPERATION_ACTION, &bytes, &err), &err);
    buf_done(&start.made);
    (void)definition_free(definition);
}

static void test_idempotency_keys(void **state)
{
    (void)state;
    static char namespace_[] = "default", name[] = "settlement", saga_id[] = "p-1";
    struct definition *definition = settlement();
    struct saga_row row = { .namespace_ = mem_strdup(namespace_),
                            .definition = mem_strdup(name),
                            .saga_id = mem_strdup(saga_id),
                            .run = 1,
                            .park_step = -1,
                            .input = payment("{\"paymentId\":\"p-1\"}") };
    struct saga *saga = NULL;
    struct err err;
    char key[OPERATION_KEY_SIZE], derived[IDEMPOTENCY_KEY_SIZE];
    ASSERT_OK(saga_new(definition, &row, &saga, &err), &err);
    assert_int_equal(operation_key(saga, 0, OPERATION_ACTION, 0, key), 0);
    assert_string_equal(key, "debit-p-1");
    assert_int_equal(operation_key(saga, 0, OPERATION_ACTION, 2, key), 0);
    assert_string_equal(key, "debit-p-1#2");
    assert_int_equal(operation_key(saga, 0, OPERATION_COMPENSATION, 0, key), 0);
    assert_int_equal(idempotency_key("default", "settlement", "p-1", 1, "debit_account",
                                     OPERATION_COMPENSATION, 0, derived),
                     0);
    assert_string_equal(key, derived);
    definition->types->ops->free(definition->types);
    definition->types = NULL; /* then nobody can tell */
    assert_int_equal(operation_key(saga, 0, OPERATION_ACTION, 0, key), -1);
    (void)saga_free(saga);
    (void)definition_free(definition);
}

static void test_stored_descriptors_are_ours(void **state)
{
    (void)state;
    struct definition *definition = NULL;
    struct bytes none = { NULL, 0 }, cut = { set.data, set.size - 1 };
    struct err err;
    ASSERT_OK(definition_decode_typed(&content, &none, &definition, &err), &err);
    assert_null(definition->types);
    definition = definition_free(definition);
    assert_int_equal(definition_decode_typed(&content, &cut, &definition, &err), ERR_INTERNAL);
    const char *const names[] = { "bank.v1.Verdict" };
    struct bytes others = { 0 };
    ASSERT_OK(schema_prune(set.data, set.size, names, 1, &others, &err), &err);
    assert_int_equal(definition_decode_typed(&content, &others, &definition, &err), ERR_INTERNAL);
    assert_non_null(strstr(err.msg, "lack bank.v1.Payment"));
    assert_null(definition);
    mem_free(others.data);
}

static void test_memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    struct bytes input = payment("{\"paymentId\":\"p-1\",\"account\":7}");
    int rc = ERR_NOMEM;
    uint64_t n = 1;
    for (; rc && n < 2000; n++) {
        struct payload_start start = { .saga_id = "", .labels = "{\"shop\":\"x\"}" };
        struct definition *definition = NULL;
        struct err err;
        mem_fail_at(n, false);
        rc = definition_decode_typed(&content, &set, &definition, &err);
        if (!rc)
            rc = definition->types->ops->start(definition, &input, &start, &err);
        mem_fail_at(0, false);
        if (rc && rc != ERR_NOMEM)
            fail_msg("allocation %d: %s", (int)n, err.msg);
        buf_done(&start.made);
        (void)definition_free(definition);
    }
    assert_true(n > 60 && n < 2000);
    mem_free(input.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_start_gets_of_its_input),
        cmocka_unit_test(test_a_key_that_is_too_long),
        cmocka_unit_test(test_bytes_that_are_not_of_their_type),
        cmocka_unit_test(test_idempotency_keys),
        cmocka_unit_test(test_stored_descriptors_are_ours),
        cmocka_unit_test(test_memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
