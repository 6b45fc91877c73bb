/* Goal: an error leaves as the right status, clean and small, and its details can be read. Method:
 * every code; text with control characters, broken and cut UTF-8; more violations than fit. */
#include "support/check.h"

#include "rpc/status.h"

#include "base/utf8.h"

#include <google/protobuf/any.pb-c.h>
#include <google/rpc/error_details.pb-c.h>
#include <google/rpc/status.pb-c.h>
#include <stdio.h>

struct parsed {
    Google__Rpc__Status *status;
    Google__Rpc__ErrorInfo *info;
    Google__Rpc__BadRequest *request;
    Google__Rpc__RetryInfo *retry;
};

static void *unpack_any(const Google__Protobuf__Any *any, const char *type,
                        const ProtobufCMessageDescriptor *descriptor)
{
    char url[128];
    (void)snprintf(url, sizeof url, "type.googleapis.com/%s", type);
    if (strcmp(any->type_url, url) != 0)
        return NULL;
    void *message = protobuf_c_message_unpack(descriptor, NULL, any->value.len, any->value.data);
    assert_non_null(message);
    return message;
}

static struct parsed parse(const struct answer *answer)
{
    struct parsed parsed = { 0 };
    assert_true(answer->has_details);
    parsed.status = google__rpc__status__unpack(NULL, GRPC_SLICE_LENGTH(answer->details),
                                                GRPC_SLICE_START_PTR(answer->details));
    assert_non_null(parsed.status);
    assert_int_equal(parsed.status->code, answer->code);
    for (size_t i = 0; i < parsed.status->n_details; i++) {
        const Google__Protobuf__Any *any = parsed.status->details[i];
        void *message;
        if ((message =
                 unpack_any(any, "google.rpc.ErrorInfo", &google__rpc__error_info__descriptor)))
            parsed.info = message;
        else if ((message = unpack_any(any, "google.rpc.BadRequest",
                                       &google__rpc__bad_request__descriptor)))
            parsed.request = message;
        else if ((message = unpack_any(any, "google.rpc.RetryInfo",
                                       &google__rpc__retry_info__descriptor)))
            parsed.retry = message;
        else
            fail_msg("a detail of another type: %s", any->type_url);
    }
    if (!parsed.info)
        fail_msg("no ErrorInfo");
    else
        assert_string_equal(parsed.info->domain, "sagad");
    return parsed;
}

static void parsed_done(struct parsed *parsed)
{
    google__rpc__status__free_unpacked(parsed->status, NULL);
    google__rpc__error_info__free_unpacked(parsed->info, NULL);
    if (parsed->request)
        google__rpc__bad_request__free_unpacked(parsed->request, NULL);
    if (parsed->retry)
        google__rpc__retry_info__free_unpacked(parsed->retry, NULL);
}

static void test_each_code_has_its_status(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        grpc_status_code status;
        bool is_retryable;
    } cases[] = {
        { ERR_INVALID, GRPC_STATUS_INVALID_ARGUMENT, false },
        { ERR_NOT_FOUND, GRPC_STATUS_NOT_FOUND, false },
        { ERR_EXISTS, GRPC_STATUS_ALREADY_EXISTS, false },
        { ERR_PRECONDITION, GRPC_STATUS_FAILED_PRECONDITION, false },
        { ERR_CONFLICT, GRPC_STATUS_ABORTED, true },
        { ERR_LIMIT, GRPC_STATUS_RESOURCE_EXHAUSTED, false },
        { ERR_UNAVAILABLE, GRPC_STATUS_UNAVAILABLE, true },
        { ERR_UNIMPLEMENTED, GRPC_STATUS_UNIMPLEMENTED, false },
        { ERR_NOMEM, GRPC_STATUS_RESOURCE_EXHAUSTED, false },
        { ERR_INTERNAL, GRPC_STATUS_INTERNAL, false },
    };
    assert_int_equal(ARRAY_LEN(cases), ERR_CODE_COUNT - 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err;
        struct answer answer = { 0 };
        (void)err_set(&err, cases[i].code, "what happened");
        answer_set(&answer, &err, NULL);
        assert_int_equal(answer.code, cases[i].status);
        struct parsed parsed = parse(&answer);
        assert_string_equal(parsed.status->message, "what happened");
        assert_string_equal(parsed.info->reason, err_code_name(cases[i].code));
        assert_true((parsed.retry != NULL) == cases[i].is_retryable);
        assert_null(parsed.request);
        parsed_done(&parsed);
        answer_done(&answer);
    }
    struct answer fine = { 0 };
    answer_set(&fine, NULL, NULL);
    assert_int_equal(fine.code, GRPC_STATUS_OK);
    assert_false(fine.has_details);
    answer_done(&fine);
}

static void test_reason_and_field_travel(void **state)
{
    (void)state;
    struct err err;
    struct answer answer = { 0 };
    (void)err_field(&err, "steps[2].action.effect", "is required");
    (void)snprintf(err.reason, sizeof err.reason, "MY_REASON");
    answer_set(&answer, &err, NULL);
    struct parsed parsed = parse(&answer);
    if (!parsed.info || !parsed.request) {
        fail_msg("details are missing");
        return;
    }
    assert_string_equal(parsed.info->reason, "MY_REASON");
    assert_int_equal(parsed.request->n_field_violations, 1);
    assert_string_equal(parsed.request->field_violations[0]->field, "steps[2].action.effect");
    assert_string_equal(parsed.request->field_violations[0]->description, "is required");
    parsed_done(&parsed);
    answer_done(&answer);
}

static void test_more_faults_than_fit_are_counted(void **state)
{
    (void)state;
    struct faults faults = { 0 };
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 1000; i++)
        faults_add(&faults, "steps[1].a_field_with_a_name", text);
    struct err err;
    struct answer answer = { 0 };
    (void)err_set(&err, ERR_INVALID, "%s", text);
    answer_set(&answer, &err, &faults);
    assert_true(GRPC_SLICE_LENGTH(answer.details) < 2500);
    struct parsed parsed = parse(&answer);
    if (!parsed.request) {
        fail_msg("no BadRequest");
        return;
    }
    size_t count = parsed.request->n_field_violations;
    assert_true(count >= 3 && count < 16);
    char more[32];
    (void)snprintf(more, sizeof more, "and %zu more", 1000 - (count - 1));
    assert_string_equal(parsed.request->field_violations[count - 1]->description, more);
    parsed_done(&parsed);
    answer_done(&answer);
}

static void test_text_is_cleaned_and_cut_at_a_character(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "plain", "plain" },     { "caf\xc3\xa9", "caf\xc3\xa9" }, { "a\nb\x7f", "a?b?" },
        { "x\xc2\x85y", "x??y" }, { "bad\xff\xc3\xa9", "bad???" },  { "", "" },
    };
    char out[64];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        status_clean_text(cases[i].in, out, sizeof out);
        assert_string_equal(out, cases[i].out);
        assert_true(utf8_is_text(out, strlen(out)));
    }
    for (size_t size = 1; size < 12; size++) {
        status_clean_text("\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", out, size);
        assert_int_equal(strlen(out) % 3, 0);
        assert_true(strlen(out) < size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_code_has_its_status),
        cmocka_unit_test(test_reason_and_field_travel),
        cmocka_unit_test(test_more_faults_than_fit_are_counted),
        cmocka_unit_test(test_text_is_cleaned_and_cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
