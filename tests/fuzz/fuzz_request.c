/* Goal: no request of a peer breaks the server, and whatever a service lets through to the engine
 * or the reader is within the limits. Method: the head chooses the request's type and the mood of
 * what stands behind the service; the rest is scanned, unpacked, validated and handled as on the
 * server. Mutations know the type. */
#include "fake_checks.h"
#include "fake_server.h"
#include "fuzz.h"
#include "mutate_message.h"
#include "rpc/reflection.h"
#include "rpc/worker_decode.h"
#include "wire/definition_codec.h"
#include "wire/json.h"
#include "wire/validate.h"

#include <every.pb-c.h>
#include <saga/v1/worker.pb-c.h>
#include <string.h>

/* The table itself, so that a new row cannot be forgotten here. */
#include "rpc/methods.c" /* NOLINT(bugprone-suspicious-include) */

/* Append only: the head of the kept inputs counts in it. */
static const char *const paths[] = {
    "/saga.v1.SagaService/StartSaga",
    "/saga.v1.SagaService/BatchStartSagas",
    "/saga.v1.SagaService/GetSaga",
    "/saga.v1.SagaService/ListJournal",
    "/saga.v1.SagaService/ListSagas",
    "/saga.v1.SagaService/WaitSaga",
    "/saga.v1.SagaService/CancelSaga",
    "/saga.v1.DefinitionService/RegisterDefinition",
    "/saga.v1.DefinitionService/GetDefinition",
    "/saga.v1.DefinitionService/ListDefinitions",
    "/saga.v1.OperatorService/RetryStep",
    "/saga.v1.OperatorService/GetStatus",
    "/saga.v1.WorkerService/Work",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    /* no methods: every.proto, and the bytes of a definition as the database keeps them */
    "every",
    "stored definition",
    "/saga.v1.OperatorService/ResolveStep",
    "/saga.v1.OperatorService/SkipCompensation",
    "/saga.v1.OperatorService/AbandonSaga",
    "/saga.v1.OperatorService/SuspendSaga",
    "/saga.v1.OperatorService/ResumeSaga",
    "/saga.v1.OperatorService/ListParked",
    "/saga.v1.OperatorService/GetGuardFloor",
    "/saga.v1.DefinitionService/ListRevisions",
    "/saga.v1.DefinitionService/PromoteDefinition",
    "/saga.v1.DefinitionService/PauseDefinition",
    "/saga.v1.DefinitionService/ResumeDefinition",
    "/saga.v1.DefinitionService/DeleteRevision",
    "/saga.v1.SagaService/SignalSaga",
    "/saga.v1.KafkaService/ListRules",
    "/saga.v1.KafkaService/StopRule",
    "/saga.v1.KafkaService/StartRule",
    "/saga.v1.KafkaService/ResumePartition",
    "/saga.v1.KafkaService/CheckRule",
    "/saga.v1.KafkaService/TakeOver",
    "/saga.v1.KafkaService/GetKafkaRequest",
    "/saga.v1.KafkaService/ListKafkaRequests",
    "/saga.v1.KafkaService/ListDeadLetters",
    "/saga.v1.KafkaService/GetDeadLetter",
    "/saga.v1.KafkaService/ReplayDeadLetters",
    "/saga.v1.KafkaService/DiscardDeadLetters",
    "/saga.v1.KafkaService/LookUpKey",
    "/saga.v1.OperatorService/GetRetention",
    "/saga.v1.WorkerService/LeaseTasks",
    "/saga.v1.WorkerService/ReportOutcomes",
    "/saga.v1.WorkerService/ExtendLeases",
    "/saga.v1.WorkerService/ReleaseTasks",
    "/saga.v1.KafkaService/PublishOutboxEvent",
    "/saga.v1.KafkaService/DiscardOutboxEvent",
    "/saga.v1.SagaService/WatchSaga",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/saga.v1.OperatorService/ListWorkers",
    "/saga.v1.SagaService/ListEffects",
    "/saga.v1.OperatorService/RunBatch",
    "/saga.v1.OperatorService/HoldHandler",
    "/saga.v1.OperatorService/ReleaseHandler",
    "/saga.v1.OperatorService/SetHandlerLimits",
    "/saga.v1.OperatorService/ListHandlers",
    "/saga.v1.OperatorService/SetOptions",
    "/saga.v1.OperatorService/ExportAttempts",
    "/saga.v1.OperatorService/RerunSaga",
    "/saga.v1.OperatorService/ListAudit",
};
static const struct method every = { "every", METHOD_STREAM, &fuzz__every__descriptor, NULL,
                                     false };
static const struct method stored = { "stored definition", METHOD_STREAM,
                                      &saga__v1__saga_definition__descriptor, NULL, false };
/* The first byte tells path and mood; those from LATE_PATHS on stand in a third byte. */
enum { MOODS = 8, LATE_PATHS = 256 / MOODS - 1, HEAD_BYTES_MAX = 3 };
_Static_assert(ARRAY_LEN(paths) <= LATE_PATHS + 256, "a byte tells each late one");

static const struct method *rows[ARRAY_LEN(paths)];

static void add_row(const struct method *row)
{
    size_t path = 0;
    while (path < ARRAY_LEN(paths) && strcmp(paths[path], row->path) != 0)
        path++;
    if (path == ARRAY_LEN(paths))
        (void)fprintf(stderr, "%s is not fuzzed: append it to paths[]\n", row->path);
    FUZZ_CHECK(path < ARRAY_LEN(paths));
    rows[path] = row;
}

static void find_rows(void)
{
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        add_row(&methods[i]);
    add_row(&every);
    add_row(&stored);
}

static const ProtobufCMessageDescriptor *type_of(const struct method *row)
{
    if (row->request)
        return row->request;
    if (row->handle == worker_stream_begin)
        return &saga__v1__worker_message__descriptor;
    if (row->handle == saga_watch_begin)
        return &saga__v1__watch_saga_request__descriptor;
    if (row->handle == run_batch_begin)
        return &saga__v1__run_batch_request__descriptor;
    if (row->handle == reflector_begin)
        return &grpc__reflection__v1__server_reflection_request__descriptor;
    return &grpc__health__v1__health_check_request__descriptor;
}

/* What has passed the scan and the validation can be printed, but for floating point and Any. */
static void print(const ProtobufCMessage *message)
{
    char *text = NULL;
    struct err err;
    int rc = wire_json_encode(message, &text, &err);
    FUZZ_CHECK(!rc || rc == ERR_UNIMPLEMENTED || rc == ERR_NOMEM);
    mem_free(text);
}

/* Whatever is asked has one answer, small enough to be sent. */
static void check_reflection(struct arena *arena,
                             Grpc__Reflection__V1__ServerReflectionRequest *request)
{
    Grpc__Reflection__V1__ServerReflectionResponse *response = reflection_answer(arena, request);
    FUZZ_CHECK(response || arena->oom);
    if (!response)
        return;
    FUZZ_CHECK(response->message_response_case !=
               GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE__NOT_SET);
    size_t echo = protobuf_c_message_get_packed_size(&request->base);
    FUZZ_CHECK(protobuf_c_message_get_packed_size(&response->base) <= 2 * echo + 512 * 1024);
}

/* A message of a stream (what comes of it is looked at by the target worker_stream), or of no
 * method. */
static void read_message(const struct method *row, const uint8_t *data, size_t size)
{
    struct arena arena = { 0 };
    struct err err;
    ProtobufCMessage *message = NULL;
    struct engine_worker_event event = { 0 };
    int rc = wire_unpack(type_of(row), data, size, &arena, &message, &err);
    if (!rc && row->handle == worker_stream_begin)
        rc = worker_event_read((void *)message, LIMIT_PAYLOAD_BYTES, &arena, &event, &err);
    if (!rc && row->handle == reflector_begin)
        check_reflection(&arena, (void *)message);
    FUZZ_CHECK(!rc || rc == ERR_INVALID || rc == ERR_LIMIT || rc == ERR_NOMEM);
    if (!rc) {
        check_reports(&event);
        print(message);
    }
    arena_done(&arena);
}

static void read_stored(const uint8_t *data, size_t size)
{
    uint8_t *copy = size ? malloc(size) : NULL;
    FUZZ_CHECK(copy || !size);
    if (size)
        memcpy(copy, data, size);
    struct bytes content = { copy, size };
    struct definition *definition = NULL;
    struct err err;
    int rc = definition_decode(&content, &definition, &err);
    FUZZ_CHECK((rc == 0) == (definition != NULL));
    FUZZ_CHECK(!rc || rc == ERR_INTERNAL || rc == ERR_NOMEM || rc == ERR_LIMIT);
    (void)definition_free(definition); /* always NULL */
    free(copy);
}

/* Bytes of the head; 0: there is none. */
static size_t read_head(const uint8_t *data, size_t size, const struct method **ret)
{
    if (!rows[0])
        find_rows();
    bool is_late = size && data[0] / MOODS == LATE_PATHS;
    size_t bytes = is_late ? HEAD_BYTES_MAX : HEAD_BYTES_MAX - 1;
    if (size < bytes)
        return 0;
    *ret = rows[is_late ? LATE_PATHS + data[2] % (ARRAY_LEN(rows) - LATE_PATHS) : data[0] / MOODS];
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct method *row;
    size_t head = read_head(data, size, &row);
    if (!head)
        return 0;
    fail_memory(data[1]);
    if (row == &stored)
        read_stored(data + head, size - head);
    else if (row->kind == METHOD_UNARY)
        fake_server_call(row, data + head, size - head, data[0] % MOODS);
    else
        read_message(row, data + head, size - head);
    fail_memory(0);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    if (size < HEAD_BYTES_MAX || size_max < HEAD_BYTES_MAX)
        return LLVMFuzzerMutate(data, size, size_max);
    if (!rng_below(&rng, 20))
        data[0] = (uint8_t)rng_next(&rng);
    if (!rng_below(&rng, 10))
        data[1] = (uint8_t)(rng_below(&rng, 4) ? 0 : rng_next(&rng));
    if (data[0] / MOODS == LATE_PATHS && !rng_below(&rng, 20))
        data[2] = (uint8_t)rng_next(&rng);
    const struct method *row;
    size_t head = read_head(data, size, &row);
    return head + mutate_message(type_of(row), data + head, size - head, size_max - head, &rng);
}
