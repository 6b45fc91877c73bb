/* Goal: every gRPC tool can ask what the server serves: services, files, symbols, extensions, under
 * both names of the protocol; what is asked wrongly, or without end, hurts nobody. Method: the
 * server in this very process; its answers are unpacked and compared with the tables of the build
 * and with the server's own methods. Other people's clients: test_reflection_tools.sh. */
#include "base/clock.h"
#include "rpc/reflection.h"
#include "rpc_fixture.h"
#include "support/raw_stream.h"
#include "support/wait.h"

#include <google/protobuf/descriptor.pb-c.h>
#include <stdio.h>

typedef Grpc__Reflection__V1__ServerReflectionRequest request_message;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_message;

enum { SOON = 10000, OK = 0, INVALID_ARGUMENT = 3, NOT_FOUND = 5, EXHAUSTED = 8, UNAVAILABLE = 14 };
#define ASK(kind)    GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind
#define ANSWER(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##kind

static const char *const methods_of[] = {
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
};

static struct rpc_fixture it;

static int setup(void **state)
{
    (void)state;
    return rpc_fixture_up(&it, &(struct rpc_options){ .threads = 2 });
}

static int teardown(void **state)
{
    (void)state;
    return rpc_fixture_down(&it);
}

static struct raw_stream *open_stream(const char *method)
{
    struct raw_stream *stream = NULL;
    struct err err;
    ASSERT_OK(raw_stream_open(it.address, method, 60000, &stream, &err), &err);
    return stream;
}

static response_message *ask(struct raw_stream *stream, const request_message *request)
{
    struct err err;
    struct bytes bytes = { 0 };
    uint8_t packed[4096];
    assert_true(grpc__reflection__v1__server_reflection_request__get_packed_size(request) <=
                sizeof packed);
    size_t size = grpc__reflection__v1__server_reflection_request__pack(request, packed);
    ASSERT_OK(raw_stream_send(stream, packed, size, SOON, &err), &err);
    assert_int_equal(raw_stream_receive(stream, SOON, &bytes), 1);
    response_message *response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, bytes.size, bytes.data);
    mem_free(bytes.data);
    assert_non_null(response);
    assert_non_null(response->original_request);
    assert_int_equal(response->original_request->message_request_case,
                     request->message_request_case);
    return response;
}

static void done(response_message *response)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
}

static request_message ask_text(
    Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase kind, const char *text)
{
    request_message request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.message_request_case = kind;
    request.file_by_filename = rig_borrow(text); /* they share their place */
    request.host = rig_borrow("the host");
    return request;
}

/* The name of the first file of the answer; all that it imports must be there, each file once. */
static void assert_files(const response_message *response, const char *expected)
{
    assert_int_equal(response->message_response_case, ANSWER(FILE_DESCRIPTOR_RESPONSE));
    assert_string_equal(response->valid_host, "the host");
    const Grpc__Reflection__V1__FileDescriptorResponse *files = response->file_descriptor_response;
    enum { FILES_MAX = 64 };
    Google__Protobuf__FileDescriptorProto *protos[FILES_MAX];
    assert_true(files->n_file_descriptor_proto > 0 && files->n_file_descriptor_proto < FILES_MAX);
    for (size_t i = 0; i < files->n_file_descriptor_proto; i++) {
        protos[i] = google__protobuf__file_descriptor_proto__unpack(
            NULL, files->file_descriptor_proto[i].len, files->file_descriptor_proto[i].data);
        assert_non_null(protos[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(protos[i]->name, protos[j]->name);
    }
    assert_string_equal(protos[0]->name, expected);
    for (size_t i = 0; i < files->n_file_descriptor_proto; i++)
        for (size_t j = 0; j < protos[i]->n_dependency; j++) {
            bool found = false;
            for (size_t k = 0; k < files->n_file_descriptor_proto && !found; k++)
                found = strcmp(protos[k]->name, protos[i]->dependency[j]) == 0;
            if (!found)
                fail_msg("%s: %s is not there", protos[i]->name, protos[i]->dependency[j]);
        }
    for (size_t i = 0; i < files->n_file_descriptor_proto; i++)
        google__protobuf__file_descriptor_proto__free_unpacked(protos[i], NULL);
}

static void assert_error(struct raw_stream *stream, const request_message *request, int code)
{
    response_message *response = ask(stream, request);
    assert_int_equal(response->message_response_case, ANSWER(ERROR_RESPONSE));
    assert_int_equal(response->error_response->error_code, code);
    assert_true(*response->error_response->error_message);
    done(response);
}

/* --- answers ---------------------------------------------------------------------------------- */

static void test_every_service_is_listed_and_every_method_is_described(void **state)
{
    (void)state;
    size_t served = 0;
    request_message request = ask_text(ASK(LIST_SERVICES), "");
    for (size_t i = 0; i < ARRAY_LEN(methods_of); i++) {
        struct raw_stream *stream = open_stream(methods_of[i]);
        response_message *response = ask(stream, &request);
        assert_int_equal(response->message_response_case, ANSWER(LIST_SERVICES_RESPONSE));
        const Grpc__Reflection__V1__ListServiceResponse *list = response->list_services_response;
        assert_int_equal(list->n_service, reflection_service_count);
        bool has_ours = false, has_health = false;
        for (size_t j = 0; j < list->n_service; j++) {
            has_ours |= strcmp(list->service[j]->name, "saga.v1.SagaService") == 0;
            has_health |= strcmp(list->service[j]->name, "grpc.health.v1.Health") == 0;
        }
        assert_true(has_ours && has_health);
        done(response);
        (void)raw_stream_free(stream); /* always NULL */
    }
    for (size_t i = 0; i < reflection_file_count; i++) {
        const struct reflection_file *file = &reflection_files[i];
        Google__Protobuf__FileDescriptorProto *proto =
            google__protobuf__file_descriptor_proto__unpack(NULL, file->size, file->bytes);
        assert_non_null(proto);
        for (size_t j = 0; j < proto->n_service; j++)
            for (size_t k = 0; k < proto->service[j]->n_method; k++) {
                char path[256];
                (void)snprintf(path, sizeof path, "/%s.%s/%s", proto->package,
                               proto->service[j]->name, proto->service[j]->method[k]->name);
                grpc_slice slice = grpc_slice_from_copied_string(path);
                if (!method_find(slice))
                    print_message("not served: %s\n", path);
                served += method_find(slice) != NULL;
                grpc_slice_unref(slice);
            }
        google__protobuf__file_descriptor_proto__free_unpacked(proto, NULL);
    }
    assert_int_equal(served, method_count());
}

static void test_files_are_found_by_name_and_by_every_symbol(void **state)
{
    (void)state;
    static const struct {
        const char *symbol, *file;
    } cases[] = {
        { "saga.v1.SagaService", "saga/v1/saga.proto" },
        { "saga.v1.SagaService.WatchSaga", "saga/v1/saga.proto" },
        { "saga.v1.JournalEntry.Kind", "saga/v1/saga.proto" },
        { "saga.v1.JournalEntry.KIND_LEASE", "saga/v1/saga.proto" },
        { "saga.v1.Saga.steps", "saga/v1/saga.proto" },
        { "saga.v1.step", "saga/v1/options.proto" },
        { "google.rpc.BadRequest.FieldViolation", "google/rpc/error_details.proto" },
        { "google.rpc.Status", "google/rpc/status.proto" },
        { "grpc.health.v1.Health", "grpc/health/v1/health.proto" },
        { "grpc.reflection.v1.ServerReflection", "grpc/reflection/v1/reflection.proto" },
        { "grpc.reflection.v1alpha.ServerReflection", "grpc/reflection/v1alpha/reflection.proto" },
        { "google.protobuf.Timestamp", "google/protobuf/timestamp.proto" },
    };
    struct raw_stream *stream = open_stream(methods_of[0]); /* one stream, many questions */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        request_message request = ask_text(ASK(FILE_CONTAINING_SYMBOL), cases[i].symbol);
        response_message *response = ask(stream, &request);
        if (response->message_response_case != ANSWER(FILE_DESCRIPTOR_RESPONSE))
            fail_msg("%s was not found", cases[i].symbol);
        assert_files(response, cases[i].file);
        done(response);
        request = ask_text(ASK(FILE_BY_FILENAME), cases[i].file);
        response = ask(stream, &request);
        assert_files(response, cases[i].file);
        done(response);
    }
    for (size_t i = 0; i < reflection_symbol_count; i++) { /* in order, so that each is found */
        if (i)
            assert_true(strcmp(reflection_symbols[i - 1].name, reflection_symbols[i].name) < 0);
        struct arena arena = { 0 };
        request_message request = ask_text(ASK(FILE_CONTAINING_SYMBOL), reflection_symbols[i].name);
        response_message *response = reflection_answer(&arena, &request);
        assert_non_null(response);
        assert_int_equal(response->message_response_case, ANSWER(FILE_DESCRIPTOR_RESPONSE));
        arena_done(&arena);
    }
    struct err err;
    ASSERT_OK(raw_stream_half_close(stream, SOON, &err), &err);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), OK);
    (void)raw_stream_free(stream); /* always NULL */
}

static void test_extensions_are_found(void **state)
{
    (void)state;
    struct raw_stream *stream = open_stream(methods_of[1]);
    request_message request =
        ask_text(ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "google.protobuf.MethodOptions");
    response_message *response = ask(stream, &request);
    assert_int_equal(response->message_response_case, ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE));
    assert_true(response->all_extension_numbers_response->n_extension_number > 0);
    assert_string_equal(response->all_extension_numbers_response->base_type_name,
                        "google.protobuf.MethodOptions");
    Grpc__Reflection__V1__ExtensionRequest extension =
        GRPC__REFLECTION__V1__EXTENSION_REQUEST__INIT;
    extension.containing_type = rig_borrow("google.protobuf.MethodOptions");
    extension.extension_number = response->all_extension_numbers_response->extension_number[0];
    done(response);
    request.message_request_case = ASK(FILE_CONTAINING_EXTENSION);
    request.file_containing_extension = &extension;
    response = ask(stream, &request);
    assert_files(response, "saga/v1/options.proto");
    done(response);
    request = ask_text(ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "saga.v1.Saga"); /* it has none */
    response = ask(stream, &request);
    assert_int_equal(response->message_response_case, ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE));
    assert_int_equal(response->all_extension_numbers_response->n_extension_number, 0);
    done(response);
    (void)raw_stream_free(stream); /* always NULL */
}

/* --- what goes wrong -------------------------------------------------------------------------- */

static void test_what_is_not_there_is_an_error_and_the_stream_goes_on(void **state)
{
    (void)state;
    struct raw_stream *stream = open_stream(methods_of[0]);
    char longest[3000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    static const char *const names[] = { "", ".", "saga.v1.Sag", "saga.v1.Saga.", "SAGA.V1.SAGA" };
    for (size_t i = 0; i < ARRAY_LEN(names) + 1; i++) {
        const char *name = i < ARRAY_LEN(names) ? names[i] : longest;
        request_message request = ask_text(ASK(FILE_CONTAINING_SYMBOL), name);
        assert_error(stream, &request, NOT_FOUND);
        request = ask_text(ASK(FILE_BY_FILENAME), name);
        assert_error(stream, &request, NOT_FOUND);
        request = ask_text(ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), name);
        assert_error(stream, &request, NOT_FOUND);
    }
    request_message request = ask_text(ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "saga.v1.SagaService");
    assert_error(stream, &request, NOT_FOUND); /* a symbol, but no message */
    Grpc__Reflection__V1__ExtensionRequest extension =
        GRPC__REFLECTION__V1__EXTENSION_REQUEST__INIT;
    extension.containing_type = rig_borrow("google.protobuf.MethodOptions");
    extension.extension_number = 1;
    request.message_request_case = ASK(FILE_CONTAINING_EXTENSION);
    request.file_containing_extension = &extension;
    assert_error(stream, &request, NOT_FOUND);
    request_message nothing = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    assert_error(stream, &nothing, INVALID_ARGUMENT);
    request = ask_text(ASK(LIST_SERVICES), "");
    done(ask(stream, &request));
    (void)raw_stream_free(stream); /* always NULL */
}

static bool nothing_is_left(void *ctx)
{
    (void)ctx;
    return atomic_load(&it.server->reflector_count) == 0 && !it.server->reflectors &&
           atomic_load(&it.server->send_bytes) == 0;
}

static void test_hostile_streams_end_and_are_bounded(void **state)
{
    (void)state;
    struct err err;
    struct raw_stream *streams[RPC_REFLECTORS_MAX];
    static uint8_t large[RPC_REFLECTION_REQUEST_BYTES_MAX + 1];
    struct raw_stream *stream = open_stream(methods_of[0]);
    ASSERT_OK(raw_stream_send(stream, "\377\377\377", 3, SOON, &err), &err);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), INVALID_ARGUMENT);
    (void)raw_stream_free(stream); /* always NULL */
    stream = open_stream(methods_of[0]);
    ASSERT_OK(raw_stream_send(stream, large, sizeof large, SOON, &err), &err);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), EXHAUSTED);
    (void)raw_stream_free(stream); /* always NULL */
    request_message request = ask_text(ASK(LIST_SERVICES), "");
    assert_true(wait_until(nothing_is_left, NULL, SOON));
    for (int i = 0; i < RPC_REFLECTORS_MAX; i++) {
        streams[i] = open_stream(methods_of[i % 2]);
        done(ask(streams[i], &request));
    }
    stream = open_stream(methods_of[0]);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), EXHAUSTED);
    (void)raw_stream_free(stream); /* always NULL */
    for (int i = 0; i < RPC_REFLECTORS_MAX; i++)
        (void)raw_stream_free(streams[i]); /* always NULL */
    assert_true(wait_until(nothing_is_left, NULL, SOON));
}

/* Whoever asks without reading gets one answer made, and then is not read from. */
static void test_who_does_not_read_is_not_answered_on_and_on(void **state)
{
    (void)state;
    enum { QUESTIONS = 200 };
    struct raw_stream *stream = open_stream(methods_of[0]);
    request_message request = ask_text(ASK(FILE_CONTAINING_SYMBOL), "saga.v1.KafkaService");
    uint8_t packed[256];
    size_t size = grpc__reflection__v1__server_reflection_request__pack(&request, packed);
    struct err err;
    long long most = 0;
    for (int i = 0; i < QUESTIONS; i++) {
        ASSERT_OK(raw_stream_send(stream, packed, size, SOON, &err), &err);
        long long bytes = atomic_load(&it.server->send_bytes);
        most = bytes > most ? bytes : most;
    }
    assert_true(most < 256 * 1024);
    for (int i = 0; i < QUESTIONS; i++) {
        struct bytes bytes = { 0 };
        assert_int_equal(raw_stream_receive(stream, SOON, &bytes), 1);
        mem_free(bytes.data);
    }
    (void)raw_stream_free(stream); /* always NULL */
}

static void test_a_stop_ends_the_streams_at_once(void **state)
{
    (void)state;
    struct raw_stream *stream = open_stream(methods_of[0]);
    request_message request = ask_text(ASK(LIST_SERVICES), "");
    done(ask(stream, &request));
    int64_t begun = clock_mono_ms(&clock_system);
    rpc_fixture_stop(&it, 5000);
    assert_true(clock_mono_ms(&clock_system) - begun < 4000);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), UNAVAILABLE);
    (void)raw_stream_free(stream); /* always NULL */
    assert_int_equal(rpc_fixture_start(&it), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_service_is_listed_and_every_method_is_described),
        cmocka_unit_test(test_files_are_found_by_name_and_by_every_symbol),
        cmocka_unit_test(test_extensions_are_found),
        cmocka_unit_test(test_what_is_not_there_is_an_error_and_the_stream_goes_on),
        cmocka_unit_test(test_hostile_streams_end_and_are_bounded),
        cmocka_unit_test(test_who_does_not_read_is_not_answered_on_and_on),
        cmocka_unit_test(test_a_stop_ends_the_streams_at_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
