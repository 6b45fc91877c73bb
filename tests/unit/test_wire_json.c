/* Goal: JSON of the protos means the same as the message, both ways, and bad JSON is refused with
 * the path of the fault. Method: messages written by hand and compared as text; round trips through
 * text; sweeps of dates and of base64 lengths; each allocation failed in turn. */
#include "support/check.h"

#include "wire/json.h"
#include "wire/json_scalars.h"

#include <saga/v1/definition.pb-c.h>
#include <saga/v1/operator.pb-c.h>
#include <saga/v1/saga.pb-c.h>
#include <stdio.h>
#include <time.h>

static void *decode(const char *text, const ProtobufCMessageDescriptor *type)
{
    struct err err;
    ProtobufCMessage *message = NULL;
    ASSERT_OK(wire_json_decode(text, strlen(text), type, &message, &err), &err);
    return message;
}

static void assert_refused(const char *text, const ProtobufCMessageDescriptor *type,
                           const char *field, const char *part)
{
    struct err err;
    ProtobufCMessage *message = NULL;
    assert_int_equal(wire_json_decode(text, strlen(text), type, &message, &err), ERR_INVALID);
    assert_null(message);
    assert_string_equal(err.field, field);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" is not in \"%s\"", part, err.msg);
}

static const char settlement[] =
    "{\"name\": \"settlement\", \"deadline\": \"3600s\", \"on_deadline\": \"ON_DEADLINE_PARK\","
    " \"steps\": ["
    "  {\"name\": \"debit\", \"action\": {\"effect\": \"EFFECT_IDEMPOTENT\","
    "    \"retry\": {\"for\": \"0.25s\", \"maxAttempts\": 3}},"
    "   \"compensation\": {\"effect\": 1}, \"settleTime\": \"1.5s\"},"
    "  {\"name\": \"risk\", \"action\": {\"effect\": \"EFFECT_AT_MOST_ONCE\"},"
    "   \"noCompensation\": true, \"guarded\": null}]}";

static void test_a_definition_is_read_with_either_spelling(void **state)
{
    (void)state;
    Saga__V1__SagaDefinition *definition =
        decode(settlement, &saga__v1__saga_definition__descriptor);
    assert_string_equal(definition->name, "settlement");
    assert_string_equal(definition->namespace_, "");
    assert_int_equal(definition->deadline->seconds, 3600);
    assert_int_equal(definition->on_deadline, SAGA__V1__ON_DEADLINE__ON_DEADLINE_PARK);
    assert_int_equal(definition->n_steps, 2);
    const Saga__V1__Step *debit = definition->steps[0];
    assert_int_equal(debit->action->effect, SAGA__V1__EFFECT__EFFECT_IDEMPOTENT);
    assert_int_equal(debit->action->retry->for_->nanos, 250000000);
    assert_int_equal(debit->action->retry->_max_attempts_case,
                     SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS);
    assert_int_equal(debit->action->retry->max_attempts, 3);
    assert_int_equal(debit->undo_case, SAGA__V1__STEP__UNDO_COMPENSATION);
    assert_int_equal(debit->compensation->effect, SAGA__V1__EFFECT__EFFECT_IDEMPOTENT);
    assert_int_equal(debit->settle_time->nanos, 500000000);
    const Saga__V1__Step *risk = definition->steps[1];
    assert_int_equal(risk->undo_case, SAGA__V1__STEP__UNDO_NO_COMPENSATION);
    assert_true(risk->no_compensation);
    assert_false(risk->guarded);
    saga__v1__saga_definition__free_unpacked(definition, NULL);
}

static void test_text_and_message_mean_the_same(void **state)
{
    (void)state;
    struct err err;
    Saga__V1__SagaDefinition *first = decode(settlement, &saga__v1__saga_definition__descriptor);
    char *text;
    ASSERT_OK(wire_json_encode(&first->base, &text, &err), &err);
    Saga__V1__SagaDefinition *again = decode(text, &saga__v1__saga_definition__descriptor);
    uint8_t bytes[2][1024];
    size_t size = saga__v1__saga_definition__get_packed_size(first);
    assert_in_range(size, 1, sizeof bytes[0]);
    assert_int_equal(saga__v1__saga_definition__get_packed_size(again), size);
    (void)saga__v1__saga_definition__pack(first, bytes[0]);
    (void)saga__v1__saga_definition__pack(again, bytes[1]);
    assert_memory_equal(bytes[0], bytes[1], size);
    mem_free(text);
    saga__v1__saga_definition__free_unpacked(first, NULL);
    saga__v1__saga_definition__free_unpacked(again, NULL);
}

static void test_a_saga_prints_as_proto3_json(void **state)
{
    (void)state;
    Saga__V1__Saga__LabelsEntry label = SAGA__V1__SAGA__LABELS_ENTRY__INIT;
    label.key = (char *)"shop";
    label.value = (char *)"M\xc3\xbcnchen";
    Saga__V1__Saga__LabelsEntry *labels[] = { &label };
    Google__Protobuf__Timestamp start = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    start.seconds = 1772460311;
    start.nanos = 250000000;
    Saga__V1__StepStatus step = SAGA__V1__STEP_STATUS__INIT;
    step.name = (char *)"risk";
    step.state = SAGA__V1__STEP_STATE__STEP_STATE_LEASED;
    step.fence = INT64_C(1099511627777);
    uint8_t output[] = { 0xff, 0x00 };
    step.output = (ProtobufCBinaryData){ .len = 2, .data = output };
    Saga__V1__StepStatus *steps[] = { &step };
    Saga__V1__Saga saga = SAGA__V1__SAGA__INIT;
    saga.state = SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING;
    saga.phase = (Saga__V1__SagaState)77; /* newer than this program */
    saga.labels = labels;
    saga.n_labels = 1;
    saga.start_time = &start;
    saga.steps = steps;
    saga.n_steps = 1;
    struct err err;
    json_t *json;
    ASSERT_OK(wire_json_from_message(&saga.base, &json, &err), &err);
    assert_string_equal(json_string_value(json_object_get(json, "state")), "SAGA_STATE_RUNNING");
    assert_int_equal(json_integer_value(json_object_get(json, "phase")), 77);
    assert_string_equal(json_string_value(json_object_get(json, "sagaId")), "");
    assert_int_equal(json_integer_value(json_object_get(json, "run")), 0);
    assert_true(json_is_false(json_object_get(json, "doubt")));
    assert_string_equal(json_string_value(json_object_get(json, "startTime")),
                        "2026-03-02T14:05:11.250Z");
    assert_null(json_object_get(json, "endTime"));
    json_t *printed = json_object_get(json, "labels");
    assert_true(json_is_object(printed));
    assert_string_equal(json_string_value(json_object_get(printed, "shop")), label.value);
    json_t *first = json_array_get(json_object_get(json, "steps"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "fence")), "1099511627777");
    assert_string_equal(json_string_value(json_object_get(first, "output")), "/wA=");
    json_decref(json);
}

static void test_maps_and_bytes_are_read(void **state)
{
    (void)state;
    Saga__V1__StartSagaRequest *start =
        decode("{\"sagaId\":\"o-1\",\"input\":\"_wA\",\"labels\":{\"a\":\"1\",\"b\":\"\"}}",
               &saga__v1__start_saga_request__descriptor);
    assert_int_equal(start->input.len, 2);
    assert_int_equal(start->input.data[0], 0xff);
    assert_int_equal(start->n_labels, 2);
    assert_string_equal(start->labels[0]->key, "a");
    assert_string_equal(start->labels[1]->value, "");
    saga__v1__start_saga_request__free_unpacked(start, NULL);
    Saga__V1__JournalEntry *entry = decode("{\"seq\":\"-9223372036854775808\",\"fence\":12}",
                                           &saga__v1__journal_entry__descriptor);
    assert_true(entry->seq == INT64_MIN);
    assert_int_equal(entry->fence, 12);
    saga__v1__journal_entry__free_unpacked(entry, NULL);
}

static void test_bad_json_is_refused_with_its_place(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *definition = &saga__v1__saga_definition__descriptor;
    const ProtobufCMessageDescriptor *start = &saga__v1__start_saga_request__descriptor;
    const ProtobufCMessageDescriptor *entry = &saga__v1__journal_entry__descriptor;
    static const struct {
        const char *text, *field, *part;
    } rows[] = {
        { "{\"name\": \n \"x\",", "", "line 2" },
        { "{\"name\":\"a\",\"name\":\"b\"}", "", "duplicate" },
        { "{\"name\":\"a\\u0000b\"}", "", "line 1" },
        { "[]", "", "must be an object, not a list" },
        { "{\"nmae\":\"x\"}", "nmae", "has no field" },
        { "{\"name\":3}", "name", "must be a string, not a number" },
        { "{\"onDeadline\":\"ON_DEADLINE_PARK\",\"on_deadline\":1}", "onDeadline", "twice" },
        { "{\"deadline\":\"5m\"}", "deadline", "\"5m\"" },
        { "{\"deadline\":5}", "deadline", "duration" },
        { "{\"steps\":{}}", "steps", "must be a list" },
        { "{\"steps\":[{},null]}", "steps[1]", "null" },
        { "{\"steps\":[{},{\"action\":{\"effect\":\"SAFE\"}}]}", "steps[1].action.effect",
          "\"SAFE\" is none of EFFECT_UNSPECIFIED, EFFECT_IDEMPOTENT" },
        { "{\"steps\":[{\"action\":{\"effect\":9}}]}", "steps[0].action.effect", "9 is none of" },
        { "{\"steps\":[{\"guarded\":\"yes\"}]}", "steps[0].guarded", "true or false" },
        { "{\"steps\":[{\"noCompensation\":true,\"compensation\":{}}]}", "steps[0].compensation",
          "only one" },
        { "{\"steps\":[{\"action\":{\"retry\":{\"maxAttempts\":-1}}}]}",
          "steps[0].action.retry.maxAttempts", "not -1" },
        { "{\"steps\":[{\"action\":{\"retry\":{\"maxAttempts\":4294967296}}}]}",
          "steps[0].action.retry.maxAttempts", "0 to 4294967295" },
        { "{\"steps\":[{\"action\":{\"retry\":{\"maxAttempts\":1.5}}}]}",
          "steps[0].action.retry.maxAttempts", "whole number" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_refused(rows[i].text, definition, rows[i].field, rows[i].part);
    assert_refused("{\"input\":\"a\"}", start, "input", "base64");
    assert_refused("{\"input\":\"ab=\"}", start, "input", "base64");
    assert_refused("{\"input\":\"a*bc\"}", start, "input", "base64");
    assert_refused("{\"labels\":{\"k\":1}}", start, "labels[\"k\"]", "a string");
    assert_refused("{\"labels\":[]}", start, "labels", "an object");
    assert_refused("{\"seq\":\"9223372036854775808\"}", entry, "seq", "whole number");
    assert_refused("{\"seq\":\" 1\"}", entry, "seq", "whole number");
    assert_refused("{\"finishTime\":\"2026-02-29T00:00:00Z\"}", entry, "finishTime", "a time");
}

static void test_every_day_keeps_its_date(void **state)
{
    (void)state;
    for (int64_t day = -719162; day <= 2932896; day += day % 5 == 0 ? 97 : 31) {
        char text[JSON_TIME_SIZE];
        int64_t back;
        int32_t nanos;
        int64_t seconds = day * 86400 + 3723;
        assert_true(json_timestamp_write(seconds, 1, text));
        assert_true(json_timestamp_read(text, &back, &nanos));
        assert_true(back == seconds && nanos == 1);
        time_t time = (time_t)seconds;
        struct tm utc;
        assert_non_null(gmtime_r(&time, &utc));
        char expected[JSON_TIME_SIZE];
        (void)snprintf(expected, sizeof expected, "%04d-%02d-%02dT01:02:03.000000001Z",
                       utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
        assert_string_equal(text, expected);
    }
}

static void test_times_with_offsets_and_bounds(void **state)
{
    (void)state;
    int64_t seconds;
    int32_t nanos;
    char text[JSON_TIME_SIZE];
    assert_true(json_timestamp_read("2026-03-02T15:05:11.5+01:00", &seconds, &nanos));
    assert_int_equal(seconds, 1772460311);
    assert_int_equal(nanos, 500000000);
    static const char *const bad[] = { "",
                                       "2026-03-02",
                                       "2026-03-02T15:05:11",
                                       "0000-01-01T00:00:00Z",
                                       "2026-13-01T00:00:00Z",
                                       "2026-04-31T00:00:00Z",
                                       "2026-03-02T24:00:00Z",
                                       "2026-03-02T00:00:00.Z",
                                       "2026-03-02T00:00:00.1234567890Z",
                                       "2026-03-02T00:00:00Zx",
                                       "0001-01-01T00:00:00+00:01" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(json_timestamp_read(bad[i], &seconds, &nanos));
    assert_false(json_timestamp_write(INT64_C(253402300800), 0, text));
    assert_false(json_timestamp_write(0, 1000000000, text));
    assert_true(json_duration_write(-1, -500000000, text));
    assert_string_equal(text, "-1.500s");
    assert_true(json_duration_write(0, -1000, text));
    assert_string_equal(text, "-0.000001s");
    assert_false(json_duration_write(1, -1, text));
    assert_true(json_duration_read("-0.000001s", &seconds, &nanos));
    assert_int_equal(nanos, -1000);
    static const char *const bad_durations[] = { "",    "s",   "1",
                                                 "1.s", ".5s", "1.0000000001s",
                                                 "1 s", "+1s", "315576000001s" };
    for (size_t i = 0; i < ARRAY_LEN(bad_durations); i++)
        assert_false(json_duration_read(bad_durations[i], &seconds, &nanos));
}

static void test_base64_keeps_every_length(void **state)
{
    (void)state;
    uint8_t data[64];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 + 200);
    for (size_t size = 0; size <= sizeof data; size++) {
        struct buf text = { 0 };
        json_base64_write(&text, data, size);
        assert_int_equal(text.size, (size + 2) / 3 * 4);
        struct bytes back;
        assert_int_equal(json_base64_read(buf_cstr(&text), text.size, &back), 0);
        assert_int_equal(back.size, size);
        if (size)
            assert_memory_equal(back.data, data, size);
        mem_free(back.data);
        buf_done(&text);
    }
}

static void test_memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    struct err err;
    bool failed_once = false;
    for (uint64_t nth = 1;; nth++) {
        ProtobufCMessage *message = NULL;
        mem_fail_at(nth, false);
        int rc = wire_json_decode(settlement, strlen(settlement),
                                  &saga__v1__saga_definition__descriptor, &message, &err);
        mem_fail_at(0, false);
        if (rc == 0) {
            protobuf_c_message_free_unpacked(message, NULL);
            break;
        }
        assert_int_equal(rc, ERR_NOMEM);
        failed_once = true;
    }
    assert_true(failed_once);
}

static void test_text_that_is_not_utf8_is_not_printed(void **state)
{
    (void)state;
    struct err err;
    char *text = NULL;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.saga_id = (char *)"\xff";
    assert_int_equal(wire_json_encode(&ref.base, &text, &err), ERR_INVALID);
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_definition_is_read_with_either_spelling),
        cmocka_unit_test(test_text_and_message_mean_the_same),
        cmocka_unit_test(test_a_saga_prints_as_proto3_json),
        cmocka_unit_test(test_maps_and_bytes_are_read),
        cmocka_unit_test(test_bad_json_is_refused_with_its_place),
        cmocka_unit_test(test_every_day_keeps_its_date),
        cmocka_unit_test(test_times_with_offsets_and_bounds),
        cmocka_unit_test(test_base64_keeps_every_length),
        cmocka_unit_test(test_memory_that_runs_out_is_an_error),
        cmocka_unit_test(test_text_that_is_not_utf8_is_not_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
