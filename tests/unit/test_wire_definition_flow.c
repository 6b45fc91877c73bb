/* What a definition says of the bytes that it passes on: types, requests, templates, signals. As
 * JSON in, through all three forms, and back. */
#include "support/check.h"

#include "core/limits.h"
#include "wire/definition_codec.h"
#include "wire/json.h"

#include <stdio.h>
#include <string.h>

enum { FAULTS_MAX = 8, TEXT_MAX = 4096 };

struct collected {
    size_t count;
    char field[FAULTS_MAX][96], text[FAULTS_MAX][320];
};

static void collect(void *ctx, const char *field, const char *description)
{
    struct collected *collected = ctx;
    assert_true(collected->count < FAULTS_MAX);
    (void)snprintf(collected->field[collected->count], sizeof collected->field[0], "%s", field);
    (void)snprintf(collected->text[collected->count], sizeof collected->text[0], "%s", description);
    collected->count++;
}

/* NULL: it has faults. */
static struct definition *read_json(const char *json, struct collected *ret)
{
    ProtobufCMessage *message = NULL;
    struct definition *definition = NULL;
    size_t faults = 0;
    struct err err;
    *ret = (struct collected){ 0 };
    ASSERT_OK(wire_json_decode(json, strlen(json), &saga__v1__saga_definition__descriptor, &message,
                               &err),
              &err);
    ASSERT_OK(definition_from_message((void *)message, collect, ret, &definition, &faults, &err),
              &err);
    protobuf_c_message_free_unpacked(message, NULL);
    assert_int_equal(faults, ret->count);
    assert_int_equal(definition == NULL, faults > 0);
    return definition;
}

#define ACTION(more)          "{\"effect\":\"EFFECT_IDEMPOTENT\"" more "}"
#define WITHOUT_UNDO          ",\"noCompensation\":true"
#define REQUEST(type, fields) ",\"request\":{\"type\":\"" type "\",\"fields\":[" fields "]}"

/* clang-format off */
#define DEBIT_FLOW \
    ",\"outputType\":\"shop.Receipt\",\"idempotencyKey\":\"debit-{order_id}\"" \
    REQUEST("shop.Order", "") ",\"probe\":{\"request\":{\"type\":\"google.protobuf.Empty\"}}"
#define REFUND_FLOW \
    REQUEST("shop.Refund", "{\"number\":1,\"from\":\"input\"},{\"number\":2,\"from\":\"debit\"}") \
    ",\"probe\":{\"request\":{\"type\":\"shop.Refund\"," \
    "\"fields\":[{\"number\":2,\"from\":\"debit\"}]}}"
static const char typed[] =
    "{\"name\":\"order\",\"inputType\":\"shop.Order\",\"key\":\"{order_id}\","
    "\"labels\":[{\"name\":\"account\",\"value\":\"{account.id}\"}],\"steps\":["
    "{\"name\":\"debit\",\"settleTime\":\"1s\",\"action\":" ACTION(DEBIT_FLOW)
    ",\"compensation\":" ACTION(REFUND_FLOW) "},"
    "{\"name\":\"callback\",\"waitForSignal\":{\"signal\":\"bank_said\",\"timeout\":\"3600s\","
    "\"payloadType\":\"shop.Callback\",\"onExhausted\":\"ON_EXHAUSTED_COMPENSATE\"}},"
    "{\"name\":\"ship\",\"action\":"
    ACTION(REQUEST("shop.Shipment",
                   "{\"number\":1,\"from\":\"debit\"},{\"number\":4,\"from\":\"callback\"}"))
    WITHOUT_UNDO "}]}";
/* clang-format on */

static void test_everything_is_kept(void **state)
{
    (void)state;
    struct collected faults;
    struct definition *definition = read_json(typed, &faults);
    assert_string_equal(faults.text[0], "");
    assert_non_null(definition);
    assert_string_equal(definition->input_type, "shop.Order");
    assert_string_equal(definition->key_template, "{order_id}");
    assert_int_equal(definition->label_count, 1);
    assert_string_equal(definition->labels[0].name, "account");
    assert_string_equal(definition->labels[0].value, "{account.id}");
    const struct step_rule *debit = &definition->steps[0], *callback = &definition->steps[1];
    const struct step_rule *ship = &definition->steps[2];
    assert_string_equal(debit->action.output_type, "shop.Receipt");
    assert_string_equal(debit->action.key_template, "debit-{order_id}");
    assert_string_equal(debit->action.request.type, "shop.Order");
    assert_int_equal(debit->action.request.field_count, 0);
    assert_false(debit->action.request.is_empty);
    assert_true(debit->action.probe->request.is_empty);
    assert_int_equal(debit->compensation.request.field_count, 2);
    assert_int_equal(debit->compensation.request.fields[0].from, FROM_INPUT);
    assert_int_equal(debit->compensation.request.fields[1].from, 0);
    assert_int_equal(debit->compensation.probe->request.fields[0].number, 2);
    assert_null(debit->compensation.output_type);
    assert_null(debit->signal);
    assert_string_equal(callback->signal, "bank_said");
    assert_int_equal(callback->action.start_timeout_ms, 3600000);
    assert_int_equal(callback->action.on_exhausted, ON_EXHAUSTED_COMPENSATE);
    assert_string_equal(callback->action.output_type, "shop.Callback");
    assert_string_equal(callback->action.handler, "");
    assert_false(callback->has_compensation);
    assert_int_equal(ship->action.request.fields[1].number, 4);
    assert_int_equal(ship->action.request.fields[1].from, 1);

    struct bytes content = { 0 }, again = { 0 };
    struct definition *decoded = NULL;
    struct err err;
    ASSERT_OK(definition_encode(definition, &content, &err), &err);
    ASSERT_OK(definition_decode(&content, &decoded, &err), &err);
    ASSERT_OK(definition_encode(decoded, &again, &err), &err);
    assert_int_equal(content.size, again.size);
    assert_memory_equal(content.data, again.data, content.size);
    assert_string_equal(decoded->steps[1].signal, "bank_said");
    (void)definition_free(definition);
    (void)definition_free(decoded);
    mem_free(content.data);
    mem_free(again.data);
}

static void test_memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    ProtobufCMessage *message = NULL;
    struct err err;
    ASSERT_OK(wire_json_decode(typed, strlen(typed), &saga__v1__saga_definition__descriptor,
                               &message, &err),
              &err);
    int rc = ERR_NOMEM;
    uint64_t n = 1;
    for (; rc && n < 400; n++) {
        struct definition *definition = NULL;
        struct bytes content = { 0 };
        struct collected faults = { 0 };
        size_t count = 0;
        mem_fail_at(n, false);
        rc = definition_from_message((void *)message, collect, &faults, &definition, &count, &err);
        if (!rc)
            rc = definition_encode(definition, &content, &err);
        mem_fail_at(0, false);
        if (rc)
            assert_int_equal(rc, ERR_NOMEM);
        assert_int_equal(count, 0);
        (void)definition_free(definition);
        mem_free(content.data);
    }
    assert_true(n > 40 && n < 400);
    protobuf_c_message_free_unpacked(message, NULL);
}

/* The definition has `head`, then two steps: "debit" of `first`, and "ship" of `second`. */
static const struct fault_case {
    const char *head, *first, *second;
    const char *field, *part; /* of its one fault */
} fault_cases[] = {
    { "\"key\":\"{a}\"", NULL, NULL, "key", "needs input_type" },
    { "\"labels\":[{\"name\":\"a\",\"value\":\"{a}\"}]", NULL, NULL, "labels[0].value",
      "needs input_type" },
    { "\"inputType\":\"I\",\"labels\":[{\"name\":\"A\",\"value\":\"x\"}]", NULL, NULL,
      "labels[0].name", "must be 1-64" },
    { "\"inputType\":\"I\",\"labels\":[{\"name\":\"a\"}]", NULL, NULL, "labels[0].value",
      "is required" },
    { "\"inputType\":\"I\",\"labels\":[{\"name\":\"a\",\"value\":\"x\"},"
      "{\"name\":\"a\",\"value\":\"y\"}]",
      NULL, NULL, "labels[1].name", "must be unique" },
    { "\"inputType\":\"I\",\"labels\":[{},{},{},{},{}]", NULL, NULL, "labels", "at most 4, is 5" },
    { NULL, ACTION(",\"idempotencyKey\":\"{a}\""), NULL, "steps[0].action.idempotency_key",
      "needs input_type" },
    { NULL, ACTION(",\"request\":{}"), NULL, "steps[0].action.request.type", "is required" },
    { NULL, ACTION(",\"request\":{\"type\":\"I\"}"), NULL, "steps[0].action.request",
      "needs input_type" },
    { NULL, ACTION(REQUEST("R", "{\"number\":1,\"from\":\"input\"}")), NULL,
      "steps[0].action.request.fields[0]", "needs input_type" },
    { NULL, ACTION(REQUEST("R", "{\"number\":1,\"from\":\"shop\"}")), NULL,
      "steps[0].action.request.fields[0].from", "names no step: \"shop\"" },
    { NULL, ACTION(REQUEST("R", "{\"number\":1,\"from\":\"debit\"}")), NULL,
      "steps[0].action.request.fields[0]", "\"debit\" does not" },
    { NULL, ACTION(REQUEST("R", "{\"number\":1,\"from\":\"ship\"}")), NULL,
      "steps[0].action.request.fields[0]", "\"ship\" does not" },
    { NULL, NULL,
      "\"action\":" ACTION(REQUEST("R", "{\"number\":2,\"from\":\"debit\"},"
                                        "{\"number\":2,\"from\":\"debit\"}")) WITHOUT_UNDO,
      "steps[1].action.request.fields[1]", "a larger one" },
    { NULL, NULL, "\"action\":" ACTION(REQUEST("R", "{\"from\":\"debit\"}")) WITHOUT_UNDO,
      "steps[1].action.request.fields[0]", "must have a number" },
    { NULL, NULL, "\"waitForSignal\":{}", "steps[1].wait_for_signal.signal", "is required" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"Bank\"}", "steps[1].wait_for_signal.signal",
      "must be 1-64" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"s\",\"timeout\":\"0.5s\"}",
      "steps[1].wait_for_signal.timeout", "must be 1000 ms" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"s\"},\"action\":" ACTION(""), "steps[1].action",
      "must be absent" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"s\"},\"compensation\":" ACTION(""),
      "steps[1].compensation", "must be absent" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"s\"},\"pivot\":true", "steps[1].pivot",
      "must not be" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"s\"},\"guarded\":true", "steps[1].guarded",
      "must be absent" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"s\"},\"delay\":\"1s\"", "steps[1].delay",
      "must be absent" },
    { NULL, NULL, "\"waitForSignal\":{\"signal\":\"s\"},\"settleTime\":\"1s\"",
      "steps[1].settle_time", "must be absent" },
    { NULL, NULL,
      "\"waitForSignal\":{\"signal\":\"s\"}},{\"name\":\"x\",\"waitForSignal\":{\"signal\":\"s\"}",
      "steps[2].wait_for_signal.signal", "by one step alone, steps[1]" },
    { NULL, NULL,
      "\"action\":" ACTION("") WITHOUT_UNDO "},{\"name\":\"input\",\"action\":" ACTION("")
          WITHOUT_UNDO,
      "steps[2].name", "must not be \"input\"" },
};

static void test_each_fault_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fault_cases); i++) {
        const struct fault_case *this = &fault_cases[i];
        char json[TEXT_MAX];
        (void)snprintf(json, sizeof json,
                       "{\"name\":\"n\"%s%s,\"steps\":[{\"name\":\"debit\",\"action\":%s,"
                       "\"noCompensation\":true},{\"name\":\"ship\",%s}]}",
                       this->head ? "," : "", this->head ? this->head : "",
                       this->first ? this->first : ACTION(""),
                       this->second ? this->second : "\"action\":" ACTION("") WITHOUT_UNDO);
        struct collected faults;
        struct definition *definition = read_json(json, &faults);
        assert_null(definition);
        if (faults.count != 1 || strcmp(faults.field[0], this->field) != 0 ||
            !strstr(faults.text[0], this->part))
            fail_msg("case %zu: %zu faults, the first: %s: %s", i, faults.count, faults.field[0],
                     faults.text[0]);
    }
}

static void test_names_that_are_too_long(void **state)
{
    (void)state;
    char json[TEXT_MAX], text[LIMIT_TYPE_BYTES + 2];
    struct collected faults;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)snprintf(json, sizeof json,
                   "{\"name\":\"n\",\"inputType\":\"%s\",\"key\":\"%s\",\"steps\":[{\"name\":\"a\","
                   "\"action\":" ACTION("") WITHOUT_UNDO "}]}",
                   text, text);
    assert_null(read_json(json, &faults));
    assert_int_equal(faults.count, 2);
    assert_non_null(strstr(faults.text[0], "at most 512 bytes, is 513"));
    assert_non_null(strstr(faults.text[1], "at most 256 bytes, is 513"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_kept),
        cmocka_unit_test(test_memory_that_runs_out_is_an_error),
        cmocka_unit_test(test_each_fault_is_told),
        cmocka_unit_test(test_names_that_are_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
