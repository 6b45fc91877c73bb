/* Goal: whatever a server says about a refused call arrives as one error with everything in it, and
 * a server that is not there is told at once. Method: details packed by hand, whole, broken and
 * absent; calls to a closed port and to a socket that never answers. */
#include "support/check.h"

#include "base/clock.h"
#include "ctl/client_failure.h"

#include <google/rpc/error_details.pb-c.h>
#include <google/rpc/status.pb-c.h>
#include <netinet/in.h>
#include <saga/v1/saga.pb-c.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DETAILS_MAX = 2048, PART_MAX = 512 };

static void any_init(Google__Protobuf__Any *any, const char *url, const ProtobufCMessage *message,
                     uint8_t bytes[PART_MAX])
{
    google__protobuf__any__init(any);
    assert_in_range(protobuf_c_message_get_packed_size(message), 0, PART_MAX);
    any->type_url = (char *)url;
    any->value.len = protobuf_c_message_pack(message, bytes);
    any->value.data = bytes;
}

/* ErrorInfo, two field violations, RetryInfo, and one detail of a type that nobody knows. */
static size_t pack_details(uint8_t bytes[DETAILS_MAX])
{
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__BadRequest__FieldViolation violations[2];
    Google__Rpc__BadRequest__FieldViolation *list[2] = { &violations[0], &violations[1] };
    Google__Rpc__BadRequest bad = GOOGLE__RPC__BAD_REQUEST__INIT;
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;
    info.reason = (char *)"INVALID_DEFINITION";
    for (size_t i = 0; i < 2; i++) {
        google__rpc__bad_request__field_violation__init(&violations[i]);
        violations[i].field = (char *)(i ? "steps[1].name" : "steps[0].action.effect");
        violations[i].description = (char *)"is wrong";
    }
    bad.field_violations = list;
    bad.n_field_violations = 2;
    delay.seconds = 1;
    delay.nanos = 500000000;
    retry.retry_delay = &delay;
    Google__Protobuf__Any any[4];
    Google__Protobuf__Any *details[4] = { &any[0], &any[1], &any[2], &any[3] };
    uint8_t parts[4][PART_MAX];
    any_init(&any[0], "type.googleapis.com/x.Unknown", &info.base, parts[0]);
    any_init(&any[1], "type.googleapis.com/google.rpc.ErrorInfo", &info.base, parts[1]);
    any_init(&any[2], "type.googleapis.com/google.rpc.BadRequest", &bad.base, parts[2]);
    any_init(&any[3], "google.rpc.RetryInfo", &retry.base, parts[3]);
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    status.code = 3;
    status.details = details;
    status.n_details = 4;
    assert_in_range(google__rpc__status__get_packed_size(&status), 1, DETAILS_MAX);
    return google__rpc__status__pack(&status, bytes);
}

static void test_details_are_read_in_full(void **state)
{
    (void)state;
    uint8_t bytes[DETAILS_MAX];
    size_t size = pack_details(bytes);
    struct client_failure failure;
    struct err err;
    int rc =
        client_failure_read(3, strdup("2 faults"), (struct bytes){ bytes, size }, &failure, &err);
    assert_int_equal(rc, ERR_INVALID);
    assert_string_equal(err.msg, "2 faults");
    assert_string_equal(err.reason, "INVALID_DEFINITION");
    assert_string_equal(err.field, "steps[0].action.effect");
    assert_int_equal(failure.violation_count, 2);
    assert_string_equal(failure.violations[1].field, "steps[1].name");
    assert_string_equal(failure.violations[1].description, "is wrong");
    assert_int_equal(failure.retry_delay_ms, 1500);
    client_failure_done(&failure);
}

static void test_broken_details_never_hide_the_status(void **state)
{
    (void)state;
    uint8_t bytes[DETAILS_MAX];
    size_t whole = pack_details(bytes);
    for (size_t size = 0; size < whole; size++) {
        struct client_failure failure;
        struct err err;
        int rc = client_failure_read(5, strdup("no such saga"), (struct bytes){ bytes, size },
                                     &failure, &err);
        assert_int_equal(rc, ERR_NOT_FOUND);
        assert_string_equal(err.msg, "no such saga");
        client_failure_done(&failure);
    }
}

static void test_every_status_is_an_error_of_ours(void **state)
{
    (void)state;
    static const struct {
        int status;
        enum err_code code;
        bool retryable;
    } rows[] = { { 3, ERR_INVALID, false },   { 4, ERR_UNAVAILABLE, true },
                 { 5, ERR_NOT_FOUND, false }, { 6, ERR_EXISTS, false },
                 { 8, ERR_LIMIT, false },     { 9, ERR_PRECONDITION, false },
                 { 10, ERR_CONFLICT, true },  { 12, ERR_UNIMPLEMENTED, false },
                 { 13, ERR_INTERNAL, false }, { 14, ERR_UNAVAILABLE, true },
                 { 99, ERR_INTERNAL, false } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct client_failure failure;
        struct err err;
        assert_int_equal(client_failure_read(rows[i].status, strdup("x"), (struct bytes){ NULL, 0 },
                                             &failure, &err),
                         rows[i].code);
        assert_int_equal(err.code, rows[i].code);
        assert_int_equal(err.retryable, rows[i].retryable);
        client_failure_done(&failure);
    }
    assert_string_equal(client_code_name(9), "FAILED_PRECONDITION");
    assert_string_equal(client_code_name(-1), "UNKNOWN");
}

static int call(const char *address, int64_t timeout_ms, struct err *err)
{
    struct client *client;
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    ASSERT_OK(client_new(address, &client, err), err);
    int rc = client_call(client, "/saga.v1.SagaService/GetSaga", &request.base,
                         &saga__v1__saga__descriptor, timeout_ms, &reply, err);
    assert_null(reply);
    client = client_free(client);
    assert_null(client);
    return rc;
}

static void test_a_server_that_is_not_there_is_told_at_once(void **state)
{
    (void)state;
    struct err err;
    int64_t before = clock_mono_ms(&clock_system);
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0); /* must not be asked */
    assert_int_equal(call("unix:/nonexistent/sagad", 20000, &err), ERR_UNAVAILABLE);
    assert_int_equal(unsetenv("http_proxy"), 0);
    assert_true(err.retryable);
    assert_true(clock_mono_ms(&clock_system) - before < 10000);
    struct client *none = NULL;
    assert_int_equal(client_new("", &none, &err), ERR_INVALID);
    assert_null(none);
}

static void test_a_server_that_does_not_answer_meets_the_deadline(void **state)
{
    (void)state;
    struct sockaddr_in bound = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof bound;
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(silent >= 0);
    assert_int_equal(bind(silent, (struct sockaddr *)&bound, sizeof bound), 0);
    assert_int_equal(listen(silent, 8), 0);
    assert_int_equal(getsockname(silent, (struct sockaddr *)&bound, &size), 0);
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(bound.sin_port));
    struct err err;
    assert_int_equal(call(address, 300, &err), ERR_UNAVAILABLE);
    assert_string_equal(err.reason, "DEADLINE_EXCEEDED");
    assert_int_equal(close(silent), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_details_are_read_in_full),
        cmocka_unit_test(test_broken_details_never_hide_the_status),
        cmocka_unit_test(test_every_status_is_an_error_of_ours),
        cmocka_unit_test(test_a_server_that_is_not_there_is_told_at_once),
        cmocka_unit_test(test_a_server_that_does_not_answer_meets_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
