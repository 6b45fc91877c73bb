/* Goal: the gRPC server in all that lies before and beside the engine: what it refuses and how it
 * says so, pages, health, worker streams that misbehave, and an end that leaves nothing behind.
 * Method: the server in this very process (so the sanitizers watch it), on the real engine and a
 * real PostgreSQL, asked over real connections; it is stopped with calls and streams open. */
#include "base/clock.h"
#include "core/limits.h"
#include "rpc_fixture.h"
#include "support/poller.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"
#include "support/wait.h"
#include "wire/definition_codec.h"

#include <grpc/grpc.h>
#include <grpc/health/v1/health.pb-c.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { SOON = 10000, INVALID_ARGUMENT = 3, NOT_FOUND = 5, EXHAUSTED = 8, UNIMPLEMENTED = 12 };
enum { UNAVAILABLE = 14, SEND_BYTES_MAX = 256 * 1024, STREAMS_MAX = 6 };
enum { ALL_SEND_BYTES_MAX = 300 * 1024 };

static struct rpc_fixture it;

static int setup(void **state)
{
    (void)state;
    return rpc_fixture_up(&it, &(struct rpc_options){ .streams_max = STREAMS_MAX,
                                                      .stream_send_bytes_max = SEND_BYTES_MAX,
                                                      .send_bytes_max = ALL_SEND_BYTES_MAX });
}

static int teardown(void **state)
{
    (void)state;
    return rpc_fixture_down(&it);
}

/* --- asking ----------------------------------------------------------------------------------- */

static ProtobufCMessage *ask(const char *method, const void *request,
                             const ProtobufCMessageDescriptor *type)
{
    return rig_call(&it.rig, method, request, type, NULL);
}

/* The call is refused with this status, reason and field ("": any). */
static void assert_refused(const char *method, const void *request,
                           const ProtobufCMessageDescriptor *type, int code, const char *reason,
                           const char *field)
{
    struct client_failure failure = { 0 };
    ProtobufCMessage *reply = rig_call(&it.rig, method, request, type, &failure);
    assert_null(reply);
    if (failure.code != code)
        fail_msg("%s: status %d, expected %d: %s", method, failure.code, code, failure.message);
    assert_string_equal(failure.reason, reason);
    if (*field) {
        assert_true(failure.violation_count > 0);
        assert_string_equal(failure.violations[0].field, field);
    }
    client_failure_done(&failure);
}

static Saga__V1__SagaRef ref_of(const char *definition, const char *saga_id)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.definition = rig_borrow(definition);
    ref.saga_id = rig_borrow(saga_id);
    return ref;
}

static void pause_ms(long ms)
{
    struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    (void)nanosleep(&pause, NULL);
}

/* --- bytes and methods ------------------------------------------------------------------------ */

static void test_an_unknown_method_is_answered_at_once(void **state)
{
    (void)state;
    int64_t begun = clock_mono_ms(&clock_system);
    assert_int_equal(raw_call(it.address, "/saga.v1.SagaService/Nothing", "", 0, SOON, NULL),
                     UNIMPLEMENTED);
    assert_int_equal(raw_call(it.address, "/", "", 0, SOON, NULL), UNIMPLEMENTED);
    assert_true(clock_mono_ms(&clock_system) - begun < SOON / 2);
}

static void test_hostile_bytes_are_refused_and_the_server_lives_on(void **state)
{
    (void)state;
    static const char *const methods[] = {
        "/saga.v1.SagaService/StartSaga",
        "/saga.v1.SagaService/ListSagas",
        "/saga.v1.DefinitionService/RegisterDefinition",
        "/saga.v1.OperatorService/RetryStep",
        "/saga.v1.OperatorService/ResolveStep",
    };
    static uint8_t garbage[4096];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)(i * 31 + 7);
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        assert_int_equal(raw_call(it.address, methods[i], garbage, sizeof garbage, SOON, NULL),
                         INVALID_ARGUMENT);
    size_t size = 5 * 1024 * 1024;
    uint8_t *large = mem_calloc(1, size);
    assert_non_null(large);
    assert_int_equal(raw_call(it.address, methods[0], large, size, 60000, NULL), EXHAUSTED);
    /* a flood of empty messages, each of which would cost a hundred times its bytes */
    for (size_t i = 0; i < 1024 * 1024; i += 2)
        large[i] = 0x0a;
    assert_int_equal(raw_call(it.address, "/saga.v1.SagaService/BatchStartSagas", large,
                              1024 * 1024, 60000, NULL),
                     EXHAUSTED);
    mem_free(large);
    static const uint8_t unknown_state[] = { 0x18, 0x63 };
    assert_int_equal(raw_call(it.address, methods[1], unknown_state, 2, SOON, NULL),
                     INVALID_ARGUMENT);
    static const uint8_t with_nul[] = { 0x12, 0x03, 'a', 0x00, 'b' };
    assert_int_equal(raw_call(it.address, methods[0], with_nul, 5, SOON, NULL), INVALID_ARGUMENT);
    assert_int_equal(rig_health(it.address, SOON), 1);
}

static void test_a_call_without_its_message_is_refused(void **state)
{
    (void)state;
    struct raw_stream *stream = NULL;
    struct err err;
    ASSERT_OK(raw_stream_open(it.address, "/saga.v1.SagaService/GetSaga", SOON, &stream, &err),
              &err);
    ASSERT_OK(raw_stream_half_close(stream, SOON, &err), &err);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), INVALID_ARGUMENT);
    (void)raw_stream_free(stream); /* always NULL */
    /* and one that is cut before it says anything */
    ASSERT_OK(raw_stream_open(it.address, "/saga.v1.SagaService/GetSaga", SOON, &stream, &err),
              &err);
    assert_int_equal(raw_stream_status(stream, 200, NULL), -1);
    (void)raw_stream_free(stream); /* always NULL */
}

static void test_the_unix_socket_serves_and_is_not_taken_twice(void **state)
{
    (void)state;
    struct rpc_server *second = NULL;
    struct err err;
    assert_int_equal(rig_health(it.unix_address, SOON), 1);
    assert_int_equal(rpc_server_port(it.server, 1), 0);
    const struct {
        const char *address;
        enum err_code code;
    } cases[] = {
        { it.unix_address, ERR_UNAVAILABLE }, { it.address, ERR_UNAVAILABLE },
        { "nonsense", ERR_INVALID },          { "127.0.0.1:99999", ERR_INVALID },
        { "192.0.2.1:1", ERR_UNAVAILABLE },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct rpc_options options = {
            .addresses = &cases[i].address,
            .address_count = 1,
            .engine = it.engine,
            .conninfo = it.conninfo,
        };
        assert_int_equal(rpc_server_start(&options, &second, &err), cases[i].code);
        assert_non_null(strstr(err.msg, cases[i].address));
    }
    assert_int_equal(rig_health(it.unix_address, SOON), 1);
}

/* --- definitions and starts ------------------------------------------------------------------- */

static void test_every_fault_of_a_definition_is_named_and_the_answer_stays_small(void **state)
{
    (void)state;
    struct client_failure failure = { 0 };
    assert_null(rig_register(&it.rig,
                             "{\"definition\": {\"name\": \"pay\", \"steps\": ["
                             " {\"name\": \"a\", \"action\": {\"lease\": \"1s\"}},"
                             " {\"name\": \"a\", \"action\": {\"effect\": \"EFFECT_PROBED\"},"
                             "  \"noCompensation\": true}]}}",
                             &failure));
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_string_equal(failure.reason, "INVALID_DEFINITION");
    assert_int_equal(failure.violation_count, 5);
    assert_string_equal(failure.violations[0].field, "steps[0].action.effect");
    assert_string_equal(failure.violations[1].field, "steps[0].undo");
    client_failure_done(&failure);
    /* 256 steps without an effect, and control characters in a name */
    char *json = mem_calloc(1, 64 * 1024);
    assert_non_null(json);
    size_t used = (size_t)snprintf(json, 200,
                                   "{\"definition\": {\"name\": \"p\\u0007\\u009fq\","
                                   " \"steps\": [{\"name\": \"s\"}");
    for (int i = 0; i < 255; i++)
        used += (size_t)snprintf(json + used, 32, ", {\"name\": \"s\"}");
    (void)snprintf(json + used, 8, "]}}");
    assert_null(rig_register(&it.rig, json, &failure));
    mem_free(json);
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_true(failure.violation_count > 3);
    size_t bytes = strlen(failure.message);
    for (size_t i = 0; i < failure.violation_count; i++)
        bytes += strlen(failure.violations[i].field) + strlen(failure.violations[i].description);
    assert_true(bytes < 3000);
    assert_string_equal(failure.violations[failure.violation_count - 1].field, "");
    assert_non_null(strstr(failure.violations[failure.violation_count - 1].description, "more"));
    for (const char *c = failure.message; *c; c++)
        assert_true((unsigned char)*c >= 0x20);
    client_failure_done(&failure);
}

static void test_definitions_are_registered_read_and_listed_by_pages(void **state)
{
    (void)state;
    char name[16];
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "page%d", i);
        rig_define(&it.rig, name, NULL, "a: IDEMPOTENT | none");
    }
    rig_define(&it.rig, "page3", NULL, "a: IDEMPOTENT | none"); /* the same again */
    rig_define(&it.rig, "page3", NULL, "a: IDEMPOTENT | none\nb: ONCE | none");
    Saga__V1__GetDefinitionRequest get = SAGA__V1__GET_DEFINITION_REQUEST__INIT;
    get.name = rig_borrow("page3");
    Saga__V1__RegisteredDefinition *found = (void *)ask(
        "DefinitionService/GetDefinition", &get, &saga__v1__registered_definition__descriptor);
    assert_int_equal(found->revision, 2);
    assert_int_equal(found->current, 1);
    assert_int_equal(found->definition->n_steps, 2);
    assert_string_equal(found->definition->steps[1]->action->handler, "act");
    assert_non_null(found->create_time);
    saga__v1__registered_definition__free_unpacked(found, NULL);
    get.revision = 9;
    assert_refused("DefinitionService/GetDefinition", &get,
                   &saga__v1__registered_definition__descriptor, NOT_FOUND, "NOT_FOUND", "");
    Saga__V1__ListDefinitionsRequest list = SAGA__V1__LIST_DEFINITIONS_REQUEST__INIT;
    char token[400] = "";
    size_t seen = 0;
    list.page_size = 2;
    do {
        list.page_token = token;
        Saga__V1__ListDefinitionsResponse *page =
            (void *)ask("DefinitionService/ListDefinitions", &list,
                        &saga__v1__list_definitions_response__descriptor);
        assert_true(page->n_definitions <= 2);
        for (size_t i = 0; i < page->n_definitions; i++)
            seen += strncmp(page->definitions[i]->definition->name, "page", 4) == 0;
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        saga__v1__list_definitions_response__free_unpacked(page, NULL);
    } while (*token);
    assert_int_equal(seen, 5);
}

static void test_a_wrong_start_is_refused_by_its_field(void **state)
{
    (void)state;
    static char long_text[300];
    memset(long_text, 'x', sizeof long_text - 1);
    const ProtobufCMessageDescriptor *type = &saga__v1__start_saga_response__descriptor;
    Saga__V1__StartSagaRequest start = SAGA__V1__START_SAGA_REQUEST__INIT;
    const char *method = "SagaService/StartSaga";
    assert_refused(method, &start, type, INVALID_ARGUMENT, "INVALID", "definition");
    rig_define(&it.rig, "keyless", NULL, "a: IDEMPOTENT handler=nobody | none");
    start.definition = rig_borrow("keyless"); /* it makes no key of the input */
    assert_refused(method, &start, type, INVALID_ARGUMENT, "INVALID", "saga_id");
    start.definition = rig_borrow("nowhere");
    start.saga_id = long_text;
    assert_refused(method, &start, type, INVALID_ARGUMENT, "INVALID", "saga_id");
    start.saga_id = rig_borrow("a\nb");
    assert_refused(method, &start, type, INVALID_ARGUMENT, "INVALID", "saga_id");
    start.saga_id = rig_borrow("s1");
    start.related_saga = rig_borrow("not-a-uuid");
    assert_refused(method, &start, type, INVALID_ARGUMENT, "INVALID", "related_saga");
    start.related_saga = rig_borrow("");
    uint8_t *input = mem_calloc(1, LIMIT_PAYLOAD_BYTES + 1);
    assert_non_null(input);
    start.input = (ProtobufCBinaryData){ LIMIT_PAYLOAD_BYTES + 1, input };
    assert_refused(method, &start, type, INVALID_ARGUMENT, "INVALID", "input");
    mem_free(input);
    start.input = (ProtobufCBinaryData){ 0, NULL };
    Saga__V1__StartSagaRequest__LabelsEntry label =
        SAGA__V1__START_SAGA_REQUEST__LABELS_ENTRY__INIT;
    Saga__V1__StartSagaRequest__LabelsEntry *labels[] = { &label };
    label.key = rig_borrow("k");
    label.value = rig_borrow("");
    start.labels = labels;
    start.n_labels = 1;
    assert_refused(method, &start, type, INVALID_ARGUMENT, "INVALID", "labels.value");
    start.n_labels = 0;
    struct client_failure failure = { 0 };
    assert_null(rig_call(&it.rig, method, &start.base, type, &failure));
    assert_int_equal(failure.code, NOT_FOUND);
    client_failure_done(&failure);
}

static void test_a_batch_is_answered_item_by_item(void **state)
{
    (void)state;
    rig_define(&it.rig, "batch", NULL, "a: IDEMPOTENT handler=nobody | none");
    Saga__V1__StartSagaRequest items[4], *requests[4];
    static const char *const ids[] = { "b1", "", "b1", "b2" };
    for (size_t i = 0; i < 4; i++) {
        items[i] = (Saga__V1__StartSagaRequest)SAGA__V1__START_SAGA_REQUEST__INIT;
        items[i].definition = rig_borrow(i == 3 ? "nowhere" : "batch");
        items[i].saga_id = rig_borrow(ids[i]);
        requests[i] = &items[i];
    }
    Saga__V1__BatchStartSagasRequest batch = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    const ProtobufCMessageDescriptor *type = &saga__v1__batch_start_sagas_response__descriptor;
    assert_refused("SagaService/BatchStartSagas", &batch, type, INVALID_ARGUMENT, "INVALID",
                   "requests");
    batch.requests = requests;
    batch.n_requests = 4;
    Saga__V1__BatchStartSagasResponse *reply =
        (void *)ask("SagaService/BatchStartSagas", &batch, type);
    assert_int_equal(reply->n_items, 4);
    assert_int_equal(reply->items[0]->saga->existed, 0);
    assert_int_equal(reply->items[1]->error->code, INVALID_ARGUMENT);
    assert_string_equal(reply->items[1]->error->field, "saga_id");
    assert_int_equal(reply->items[2]->saga->existed, 1);
    assert_string_equal(reply->items[2]->saga->uid, reply->items[0]->saga->uid);
    assert_int_equal(reply->items[3]->error->code, NOT_FOUND);
    saga__v1__batch_start_sagas_response__free_unpacked(reply, NULL);
    /* none to start at all */
    items[0].saga_id = rig_borrow("");
    batch.n_requests = 1;
    reply = (void *)ask("SagaService/BatchStartSagas", &batch, type);
    assert_int_equal(reply->items[0]->error->code, INVALID_ARGUMENT);
    saga__v1__batch_start_sagas_response__free_unpacked(reply, NULL);
}

/* --- sagas ------------------------------------------------------------------------------------ */

static void test_labels_and_the_missing_worker_are_shown(void **state)
{
    (void)state;
    rig_define(&it.rig, "shown", NULL, "a: IDEMPOTENT handler=nobody | none");
    Saga__V1__StartSagaRequest start = SAGA__V1__START_SAGA_REQUEST__INIT;
    Saga__V1__StartSagaRequest__LabelsEntry entries[2], *labels[2];
    static const char *const texts[] = { "tenant", "a \"quoted\" one", "caf\xc3\xa9", "{}" };
    for (size_t i = 0; i < 2; i++) {
        entries[i] = (Saga__V1__StartSagaRequest__LabelsEntry)
            SAGA__V1__START_SAGA_REQUEST__LABELS_ENTRY__INIT;
        entries[i].key = rig_borrow(texts[2 * i]);
        entries[i].value = rig_borrow(texts[2 * i + 1]);
        labels[i] = &entries[i];
    }
    start.definition = rig_borrow("shown");
    start.saga_id = rig_borrow("s1");
    start.labels = labels;
    start.n_labels = 2;
    Saga__V1__StartSagaResponse *started =
        (void *)ask("SagaService/StartSaga", &start, &saga__v1__start_saga_response__descriptor);
    Saga__V1__Saga *saga = rig_get(&it.rig, "shown", "s1");
    assert_string_equal(saga->uid, started->uid);
    assert_int_equal(saga->n_labels, 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(saga->labels[i]->value,
                            strcmp(saga->labels[i]->key, "tenant") == 0 ? texts[1] : texts[3]);
    assert_int_equal(saga->n_steps, 1);
    assert_int_equal(strlen(saga->steps[0]->idempotency_key), 32);
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER);
    assert_string_equal(saga->waiting->handler, "nobody");
    assert_int_equal(saga->waiting->workers_connected, 0);
    saga__v1__saga__free_unpacked(saga, NULL);
    struct raw_worker *worker =
        raw_worker_hello(it.address, "w", NULL, "nobody", NULL, 0); /* no credit: it still waits */
    saga = rig_get(&it.rig, "shown", "s1");
    assert_int_equal(saga->waiting->workers_connected, 1);
    saga__v1__saga__free_unpacked(saga, NULL);
    (void)raw_worker_cut(worker); /* always NULL */
    saga__v1__start_saga_response__free_unpacked(started, NULL);
}

static void test_references_are_checked(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *type = &saga__v1__saga__descriptor;
    Saga__V1__GetSagaRequest get = SAGA__V1__GET_SAGA_REQUEST__INIT;
    assert_refused("SagaService/GetSaga", &get, type, INVALID_ARGUMENT, "INVALID", "saga");
    Saga__V1__SagaRef ref = ref_of("shown", "");
    get.saga = &ref;
    assert_refused("SagaService/GetSaga", &get, type, INVALID_ARGUMENT, "INVALID", "saga.saga_id");
    ref.uid = rig_borrow("1234");
    assert_refused("SagaService/GetSaga", &get, type, INVALID_ARGUMENT, "INVALID", "saga.uid");
    ref = ref_of("shown", "no-such-saga");
    assert_refused("SagaService/GetSaga", &get, type, NOT_FOUND, "NOT_FOUND", "");
    Saga__V1__CancelSagaRequest cancel = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    cancel.saga = &ref;
    assert_refused("SagaService/CancelSaga", &cancel, type, NOT_FOUND, "NOT_FOUND", "");
    cancel.actor = rig_borrow("a\tb");
    assert_refused("SagaService/CancelSaga", &cancel, type, INVALID_ARGUMENT, "INVALID", "actor");
    Saga__V1__WaitSagaRequest wait = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    timeout.seconds = 301;
    wait.saga = &ref;
    wait.timeout = &timeout;
    assert_refused("SagaService/WaitSaga", &wait, type, INVALID_ARGUMENT, "INVALID", "timeout");
}

static void test_lists_go_page_by_page_and_tokens_are_checked(void **state)
{
    (void)state;
    rig_define(&it.rig, "pages", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start_many(&it.rig, "pages", "p-", 25, "");
    const ProtobufCMessageDescriptor *type = &saga__v1__list_sagas_response__descriptor;
    Saga__V1__ListSagasRequest list = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    bool seen[25] = { false };
    char token[400] = "", first_token[400] = "";
    size_t pages = 0, total = 0;
    list.definition = rig_borrow("pages");
    list.page_size = 10;
    do {
        list.page_token = token;
        Saga__V1__ListSagasResponse *page = (void *)ask("SagaService/ListSagas", &list, type);
        for (size_t i = 0; i < page->n_sagas; i++, total++) {
            int number = -1;
            assert_int_equal(sscanf(page->sagas[i]->saga_id, "p-%d", &number), 1);
            assert_false(seen[number]);
            seen[number] = true;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        if (pages++ == 0)
            (void)snprintf(first_token, sizeof first_token, "%s", token);
        saga__v1__list_sagas_response__free_unpacked(page, NULL);
    } while (*token);
    assert_int_equal(total, 25);
    assert_int_equal(pages, 3);
    list.page_token = first_token;
    list.oldest_first = 1;
    assert_refused("SagaService/ListSagas", &list, type, INVALID_ARGUMENT, "INVALID", "page_token");
    list.oldest_first = 0;
    first_token[3] = first_token[3] == 'A' ? 'B' : 'A';
    assert_refused("SagaService/ListSagas", &list, type, INVALID_ARGUMENT, "INVALID", "page_token");
    list.page_token = rig_borrow("?!");
    assert_refused("SagaService/ListSagas", &list, type, INVALID_ARGUMENT, "INVALID", "page_token");
    list.page_token = rig_borrow("");
    list.page_size = 1001;
    assert_refused("SagaService/ListSagas", &list, type, INVALID_ARGUMENT, "INVALID", "page_size");
    list.page_size = -1;
    assert_refused("SagaService/ListSagas", &list, type, INVALID_ARGUMENT, "INVALID", "page_size");
}

/* --- worker streams --------------------------------------------------------------------------- */

static void assert_stream_ends(struct raw_worker *worker, int code, const char *part)
{
    const char *message = "";
    assert_int_equal(raw_worker_status(worker, SOON, &message), code);
    if (!strstr(message, part))
        fail_msg("\"%s\" is not in \"%s\"", part, message);
    (void)raw_worker_cut(worker); /* always NULL */
}

static void test_a_stream_that_breaks_the_rules_is_ended(void **state)
{
    (void)state;
    struct raw_worker *worker = raw_worker_open(it.address);
    raw_worker_credit(worker, "h", 1);
    assert_stream_ends(worker, INVALID_ARGUMENT, "first message");
    worker = raw_worker_open(it.address);
    raw_worker_send_bytes(worker, "\xff\xff\xff", 3);
    assert_stream_ends(worker, INVALID_ARGUMENT, "malformed");
    worker = raw_worker_open(it.address);
    raw_worker_send_bytes(worker, "\xfa\x06\x00", 3); /* a command of a later version */
    assert_stream_ends(worker, INVALID_ARGUMENT, "command");
    worker = raw_worker_hello(it.address, "w", NULL, "h", NULL, 0);
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO;
    message.hello = &hello;
    raw_worker_send(worker, &message);
    assert_stream_ends(worker, INVALID_ARGUMENT, "worker_id");
    worker = raw_worker_hello(it.address, "w", NULL, "h", NULL, 0);
    Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT;
    report.outcome = SAGA__V1__OUTCOME__OUTCOME_DONE;
    raw_worker_report_task(worker, &report); /* without a uid */
    assert_stream_ends(worker, INVALID_ARGUMENT, "report.reports[0].saga_uid");
    worker = raw_worker_hello(it.address, "w", NULL, "h", NULL, 0);
    uint8_t uid[16] = { 1 };
    report.saga_uid = (ProtobufCBinaryData){ sizeof uid, uid };
    report.outcome = SAGA__V1__OUTCOME__OUTCOME_EXPIRED;
    raw_worker_report_task(worker, &report);
    assert_stream_ends(worker, INVALID_ARGUMENT, "outcome");
    worker = raw_worker_hello(it.address, "w", NULL, "h", NULL, 0);
    uint8_t *output = mem_calloc(1, LIMIT_PAYLOAD_BYTES + 1);
    assert_non_null(output);
    report.outcome = SAGA__V1__OUTCOME__OUTCOME_DONE;
    report.output = (ProtobufCBinaryData){ LIMIT_PAYLOAD_BYTES + 1, output };
    raw_worker_report_task(worker, &report);
    mem_free(output);
    assert_stream_ends(worker, EXHAUSTED, "262144");
}

static void test_a_report_on_an_unknown_lease_is_stale(void **state)
{
    (void)state;
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "h", NULL, 0);
    struct raw_lease lease = { .uid = { 9, 9 }, .fence = 77 };
    assert_int_equal(raw_worker_settle(worker, &lease, SAGA__V1__OUTCOME__OUTCOME_DONE, "x"),
                     SAGA__V1__ACK__RESULT__RESULT_STALE);
    (void)raw_worker_cut(worker); /* always NULL */
}

static void test_streams_are_bounded_in_number(void **state)
{
    (void)state;
    struct raw_worker *workers[STREAMS_MAX];
    for (size_t i = 0; i < STREAMS_MAX; i++)
        workers[i] = raw_worker_hello(it.address, "w", NULL, "h", NULL, 0);
    struct raw_worker *one_more = raw_worker_open(it.address);
    assert_stream_ends(one_more, EXHAUSTED, "6 streams");
    struct poller *poller = poller_new(it.address, "w", NULL, "h"); /* one who polls counts, too */
    struct raw_stream *call = poller_ask(poller, it.address, 1, 1000);
    const char *message = NULL;
    assert_int_equal(raw_stream_status(call, SOON, &message), EXHAUSTED);
    assert_non_null(strstr(message, "6 workers"));
    call = raw_stream_free(call);
    poller = poller_free(poller);
    for (size_t i = 0; i < STREAMS_MAX; i++)
        workers[i] = raw_worker_cut(workers[i]);
    int code = 0;
    for (int i = 0; i < 50 && code != -1; i++) { /* until the server has seen the cuts */
        pause_ms(100);
        one_more = raw_worker_open(it.address);
        code = raw_worker_status(one_more, 200, NULL);
        (void)raw_worker_cut(one_more); /* always NULL */
    }
    assert_int_equal(code, -1);
}

static void test_a_task_carries_what_its_step_needs(void **state)
{
    (void)state;
    rig_define(&it.rig, "carry", NULL,
               "a: IDEMPOTENT handler=c.a | IDEMPOTENT handler=c.undo | guarded\n"
               "b: ONCE handler=c.b | none");
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "c.a", NULL, 0);
    struct raw_worker *second = raw_worker_hello(it.address, "w2", NULL, "c.b", NULL, 0);
    struct raw_worker *undoer = raw_worker_hello(it.address, "w3", NULL, "c.undo", NULL, 0);
    raw_worker_credit(worker, "c.a", 1);
    raw_worker_credit(second, "c.b", 1);
    raw_worker_credit(undoer, "c.undo", 1);
    rig_start(&it.rig, "carry", "c1", "the input");
    const Saga__V1__Task *task = raw_worker_task(worker, SOON);
    assert_non_null(task);
    assert_string_equal(task->namespace_, "default");
    assert_string_equal(task->definition, "carry");
    assert_string_equal(task->saga_id, "c1");
    assert_int_equal(task->run, 1);
    assert_int_equal(task->revision, 1);
    assert_string_equal(task->step, "a");
    assert_string_equal(task->handler, "c.a");
    assert_int_equal(task->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
    assert_int_equal(task->try_, 1);
    assert_int_equal(task->guarded, 1);
    assert_int_equal(task->input.len, 9);
    /* 5 s, counted from before the grant */
    assert_true(task->lease->seconds == 4 || task->lease->seconds == 5);
    assert_non_null(task->attempt_remaining);
    assert_non_null(task->saga_start_time);
    assert_int_equal(strlen(task->idempotency_key), 32);
    assert_null(task->action);
    struct raw_lease lease = raw_lease_of(task);
    raw_worker_extend(worker, &lease);
    int64_t extended_ms = raw_worker_extended(worker, SOON);
    assert_true(extended_ms > 3000 && extended_ms <= 5000);
    assert_int_equal(raw_worker_settle(worker, &lease, SAGA__V1__OUTCOME__OUTCOME_DONE, "receipt"),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    task = raw_worker_task(second, SOON);
    assert_non_null(task);
    assert_int_equal(task->n_outputs, 1);
    assert_string_equal(task->outputs[0]->step, "a");
    assert_memory_equal(task->outputs[0]->output.data, "receipt", 7);
    lease = raw_lease_of(task);
    (void)raw_worker_settle(second, &lease, SAGA__V1__OUTCOME__OUTCOME_REJECTED, "");
    task = raw_worker_task(undoer, SOON);
    assert_non_null(task);
    assert_int_equal(task->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION);
    assert_int_equal(task->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
    assert_memory_equal(task->action->output.data, "receipt", 7);
    lease = raw_lease_of(task);
    (void)raw_worker_settle(undoer, &lease, SAGA__V1__OUTCOME__OUTCOME_DONE, "");
    Saga__V1__Saga *saga = rig_get(&it.rig, "carry", "c1");
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED);
    assert_string_equal(saga->cause->reason, "REFUSED");
    assert_string_equal(saga->cause->step, "b");
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATED);
    saga__v1__saga__free_unpacked(saga, NULL);
    (void)raw_worker_cut(worker); /* always NULL */
    (void)raw_worker_cut(second); /* always NULL */
    (void)raw_worker_cut(undoer); /* always NULL */
}

static void test_a_journal_goes_page_by_page(void **state)
{
    (void)state;
    Saga__V1__SagaRef ref = ref_of("carry", "c1");
    Saga__V1__ListJournalRequest list = SAGA__V1__LIST_JOURNAL_REQUEST__INIT;
    const ProtobufCMessageDescriptor *type = &saga__v1__list_journal_response__descriptor;
    static const char *const steps[] = { "a", "b", "", "a" };
    char token[400] = "";
    size_t total = 0;
    list.saga = &ref;
    list.page_size = 1;
    do {
        list.page_token = token;
        Saga__V1__ListJournalResponse *page = (void *)ask("SagaService/ListJournal", &list, type);
        assert_int_equal(page->n_entries, 1);
        assert_int_equal(page->entries[0]->seq, total + 1);
        assert_true(total < ARRAY_LEN(steps));
        if (page->entries[0]->kind == SAGA__V1__JOURNAL_ENTRY__KIND__KIND_LEASE)
            assert_string_equal(page->entries[0]->step, steps[total]);
        else
            assert_string_equal(page->entries[0]->reason, "REFUSED");
        total++;
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        saga__v1__list_journal_response__free_unpacked(page, NULL);
    } while (*token);
    assert_int_equal(total, 4);
    Saga__V1__SagaRef other = ref_of("carry", "c2");
    list.page_size = 1;
    list.saga = &other;
    assert_refused("SagaService/ListJournal", &list, type, NOT_FOUND, "NOT_FOUND", "");
}

static void test_a_worker_that_does_not_read_holds_up_no_memory(void **state)
{
    (void)state;
    enum { SAGAS = 360, WAVES = 12, INPUT = 110 * 1024 };
    rig_define(&it.rig, "bulk", NULL, "a: IDEMPOTENT handler=bulk.a lease=300s | none");
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "bulk.a", NULL, 0);
    raw_worker_credit(worker, "bulk.a", SAGAS);
    char *input = mem_calloc(1, INPUT + 1);
    assert_non_null(input);
    memset(input, 'x', INPUT);
    for (int wave = 0; wave < WAVES; wave++) { /* nothing is read: gRPC takes some, then no more */
        char prefix[] = { (char)('a' + wave), '-', '\0' };
        rig_start_many(&it.rig, "bulk", prefix, SAGAS / WAVES, input);
        pause_ms(100);
    }
    mem_free(input);
    int64_t leased = 0;
    struct err err;
    ASSERT_OK(test_postgres_count(it.postgres, "store",
                                  "SELECT count(*) FROM sagad.journal JOIN sagad.saga s"
                                  " USING (shard, saga_uid)"
                                  " WHERE s.definition = 'bulk'",
                                  &leased, &err),
              &err);
    assert_true(leased > 0 && leased < SAGAS); /* it is granted no more, and others go on */
    rig_start(&it.rig, "batch", "while-full", "");
    for (int i = 0; i < SAGAS; i++) {
        const Saga__V1__Task *task = raw_worker_task(worker, SOON);
        if (!task)
            fail_msg("only %d tasks came", i);
        assert_int_equal(task->input.len, INPUT);
    }
    (void)raw_worker_cut(worker); /* always NULL */
}

static bool nothing_is_counted(void *ctx)
{
    (void)ctx;
    return atomic_load(&it.server->send_bytes) == 0 &&
           atomic_load(&it.server->request_bytes) == 0 &&
           atomic_load(&it.server->answer_bytes) == 0 && atomic_load(&it.server->streams) == 0 &&
           atomic_load(&it.server->calls) == 0 && atomic_load(&it.server->unfinished) == 0;
}

static void test_workers_that_do_not_read_are_bounded_together_and_go_on_when_they_read(
    void **state)
{
    (void)state;
    enum { WORKERS = 4, SAGAS = 60, INPUT = 110 * 1024 };
    struct raw_worker *workers[WORKERS];
    CLEANUP(mem_free_p) char *input = mem_calloc(1, INPUT + 1);
    assert_non_null(input);
    memset(input, 'x', INPUT);
    long long most = 0;
    for (int i = 0; i < WORKERS; i++) {
        char name[16], handler[16], steps[64];
        (void)snprintf(name, sizeof name, "all%d", i);
        (void)snprintf(handler, sizeof handler, "all%d.a", i);
        (void)snprintf(steps, sizeof steps, "a: IDEMPOTENT handler=%s lease=60s | none", handler);
        rig_define(&it.rig, name, NULL, steps);
        workers[i] = raw_worker_hello(it.address, "w", NULL, handler, NULL, 0);
        raw_worker_credit(workers[i], handler, SAGAS);
    }
    for (int saga = 0; saga < SAGAS; saga++) { /* for all in turn, so that all queues grow */
        for (int i = 0; i < WORKERS; i++) {
            char name[16], saga_id[16];
            (void)snprintf(name, sizeof name, "all%d", i);
            (void)snprintf(saga_id, sizeof saga_id, "all-%d", saga);
            rig_start(&it.rig, name, saga_id, input);
            long long bytes = atomic_load(&it.server->send_bytes);
            most = bytes > most ? bytes : most;
        }
    }
    print_message("at most %lld bytes waited for all\n", most);
    assert_true(most >= ALL_SEND_BYTES_MAX);
    /* beyond the bound one grant for each that had room before */
    assert_true(most < ALL_SEND_BYTES_MAX + (WORKERS + 1) * INPUT);
    /* One after the other, so that each goes on while others still read nothing. */
    for (int i = 0; i < WORKERS; i++)
        for (int j = 0; j < SAGAS; j++)
            if (!raw_worker_task(workers[i], SOON))
                fail_msg("worker %d: only %d tasks came", i, j);
    for (int i = 0; i < WORKERS; i++)
        workers[i] = raw_worker_cut(workers[i]);
    assert_true(wait_until(nothing_is_counted, NULL, SOON));
}

static void test_a_worker_that_is_done_gets_its_acks_and_a_clean_end(void **state)
{
    (void)state;
    struct raw_stream *stream = NULL;
    struct err err;
    ASSERT_OK(raw_stream_open(it.address, "/saga.v1.WorkerService/Work", SOON, &stream, &err),
              &err);
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    Saga__V1__Subscription subscription = SAGA__V1__SUBSCRIPTION__INIT, *list[] = { &subscription };
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    uint8_t packed[256];
    subscription.handler = rig_borrow("h");
    subscription.max_in_flight = 1;
    hello.worker_id = rig_borrow("w");
    hello.instance = rig_borrow("instance-1");
    hello.handlers = list;
    hello.n_handlers = 1;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO;
    message.hello = &hello;
    size_t size = saga__v1__worker_message__pack(&message, packed);
    ASSERT_OK(raw_stream_send(stream, packed, size, SOON, &err), &err);
    Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT, *reports[] = { &report };
    Saga__V1__Report batch = SAGA__V1__REPORT__INIT;
    uint8_t uid[16] = { 3 };
    report.saga_uid = (ProtobufCBinaryData){ sizeof uid, uid };
    report.fence = 5;
    report.outcome = SAGA__V1__OUTCOME__OUTCOME_DONE;
    batch.reports = reports;
    batch.n_reports = 1;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT;
    message.report = &batch;
    size = saga__v1__worker_message__pack(&message, packed);
    ASSERT_OK(raw_stream_send(stream, packed, size, SOON, &err), &err);
    ASSERT_OK(raw_stream_half_close(stream, SOON, &err), &err);
    static const Saga__V1__ServerMessage__CommandCase expected[] = {
        SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME, SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS
    };
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        struct bytes bytes = { 0 };
        assert_int_equal(raw_stream_receive(stream, SOON, &bytes), 1);
        Saga__V1__ServerMessage *received =
            saga__v1__server_message__unpack(NULL, bytes.size, bytes.data);
        assert_non_null(received);
        assert_int_equal(received->command_case, expected[i]);
        saga__v1__server_message__free_unpacked(received, NULL);
        mem_free(bytes.data);
    }
    assert_int_equal(raw_stream_status(stream, SOON, NULL), 0);
    (void)raw_stream_free(stream); /* always NULL */
}

/* --- health and the end ----------------------------------------------------------------------- */

static struct raw_stream *watch(const char *service)
{
    struct raw_stream *stream = NULL;
    struct err err;
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    uint8_t packed[128];
    request.service = rig_borrow(service);
    size_t size = grpc__health__v1__health_check_request__pack(&request, packed);
    ASSERT_OK(raw_stream_open(it.address, "/grpc.health.v1.Health/Watch", 60000, &stream, &err),
              &err);
    ASSERT_OK(raw_stream_send(stream, packed, size, SOON, &err), &err);
    ASSERT_OK(raw_stream_half_close(stream, SOON, &err), &err);
    return stream;
}

static int next_status(struct raw_stream *stream)
{
    struct bytes bytes = { 0 };
    assert_int_equal(raw_stream_receive(stream, SOON, &bytes), 1);
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, bytes.size, bytes.data);
    assert_non_null(response);
    int status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    mem_free(bytes.data);
    return status;
}

static void test_health_knows_the_services(void **state)
{
    (void)state;
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    uint8_t packed[128];
    request.service = rig_borrow("saga.v1.WorkerService");
    size_t size = grpc__health__v1__health_check_request__pack(&request, packed);
    assert_int_equal(raw_call(it.address, "/grpc.health.v1.Health/Check", packed, size, SOON, NULL),
                     0);
    request.service = rig_borrow("saga.v1.Nothing");
    size = grpc__health__v1__health_check_request__pack(&request, packed);
    assert_int_equal(raw_call(it.address, "/grpc.health.v1.Health/Check", packed, size, SOON, NULL),
                     NOT_FOUND);
    struct raw_stream *stream = watch("saga.v1.Nothing");
    assert_int_equal(next_status(stream), 3); /* SERVICE_UNKNOWN, and the stream stays */
    assert_int_equal(raw_stream_status(stream, 300, NULL), -1);
    (void)raw_stream_free(stream); /* always NULL */
}

static void *wait_for_saga(void *ctx)
{
    struct client *client = NULL;
    struct err err;
    ProtobufCMessage *reply = NULL;
    Saga__V1__SagaRef ref = ref_of("batch", "b1");
    Saga__V1__WaitSagaRequest wait = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    timeout.seconds = 120;
    wait.saga = &ref;
    wait.timeout = &timeout;
    *(int *)ctx = client_new(it.address, &client, &err)
                      ? -1
                      : client_call(client, "/saga.v1.SagaService/WaitSaga", &wait.base,
                                    &saga__v1__saga__descriptor, 60000, &reply, &err);
    client = client_free(client);
    return NULL;
}

static void test_a_stop_tells_everybody_and_leaves_nothing_behind(void **state)
{
    (void)state;
    struct raw_stream *watcher = watch("");
    assert_int_equal(next_status(watcher), 1); /* SERVING */
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "h", NULL, 0);
    struct raw_stream *silent = NULL;
    struct err err;
    ASSERT_OK(raw_stream_open(it.address, "/saga.v1.SagaService/GetSaga", 60000, &silent, &err),
              &err);
    pthread_t waiter;
    int waited = 0;
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_saga, &waited), 0);
    pause_ms(500);
    rpc_server_drain(it.server, 1000);
    assert_int_equal(next_status(watcher), 2); /* NOT_SERVING */
    assert_true(raw_worker_was_told_to_drain(worker, SOON));
    assert_int_equal(rig_health(it.address, SOON), 2);
    Saga__V1__GetStatusRequest status = SAGA__V1__GET_STATUS_REQUEST__INIT;
    assert_refused("OperatorService/GetStatus", &status, &saga__v1__get_status_response__descriptor,
                   UNAVAILABLE, "UNAVAILABLE", "");
    int64_t begun = clock_mono_ms(&clock_system);
    rpc_fixture_stop(&it, 1000);
    assert_true(clock_mono_ms(&clock_system) - begun < 8000);
    (void)pthread_join(waiter, NULL);
    assert_int_equal(waited, ERR_UNAVAILABLE);
    assert_int_equal(raw_stream_status(watcher, SOON, NULL), UNAVAILABLE);
    assert_int_equal(raw_worker_status(worker, SOON, NULL), UNAVAILABLE);
    (void)raw_stream_free(watcher);              /* always NULL */
    (void)raw_worker_cut(worker);                /* always NULL */
    (void)raw_stream_free(silent);               /* always NULL */
    assert_int_equal(rpc_fixture_start(&it), 0); /* the unix path is free again, too */
    assert_int_equal(rig_health(it.unix_address, SOON), 1);
}

static void test_the_counters_are_told(void **state)
{
    (void)state;
    Saga__V1__GetStatusRequest request = SAGA__V1__GET_STATUS_REQUEST__INIT;
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "told", NULL, 0);
    raw_worker_credit(worker, "told", 7);
    int64_t credit = 0;
    for (int i = 0; i < 100 && credit != 7; i++) {
        Saga__V1__GetStatusResponse *reply = (void *)ask(
            "OperatorService/GetStatus", &request, &saga__v1__get_status_response__descriptor);
        assert_int_equal(reply->n_counters, engine_counter_count);
        assert_string_equal(reply->node, "test");
        for (size_t j = 0; j < reply->n_handlers; j++)
            if (strcmp(reply->handlers[j]->handler, "told") == 0)
                credit = reply->handlers[j]->credit;
        saga__v1__get_status_response__free_unpacked(reply, NULL);
        pause_ms(20);
    }
    assert_int_equal(credit, 7);
    (void)raw_worker_cut(worker); /* always NULL */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_unknown_method_is_answered_at_once),
        cmocka_unit_test(test_hostile_bytes_are_refused_and_the_server_lives_on),
        cmocka_unit_test(test_a_call_without_its_message_is_refused),
        cmocka_unit_test(test_the_unix_socket_serves_and_is_not_taken_twice),
        cmocka_unit_test(test_every_fault_of_a_definition_is_named_and_the_answer_stays_small),
        cmocka_unit_test(test_definitions_are_registered_read_and_listed_by_pages),
        cmocka_unit_test(test_a_wrong_start_is_refused_by_its_field),
        cmocka_unit_test(test_a_batch_is_answered_item_by_item),
        cmocka_unit_test(test_labels_and_the_missing_worker_are_shown),
        cmocka_unit_test(test_references_are_checked),
        cmocka_unit_test(test_lists_go_page_by_page_and_tokens_are_checked),
        cmocka_unit_test(test_a_stream_that_breaks_the_rules_is_ended),
        cmocka_unit_test(test_a_report_on_an_unknown_lease_is_stale),
        cmocka_unit_test(test_streams_are_bounded_in_number),
        cmocka_unit_test(test_a_task_carries_what_its_step_needs),
        cmocka_unit_test(test_a_journal_goes_page_by_page),
        cmocka_unit_test(test_a_worker_that_does_not_read_holds_up_no_memory),
        cmocka_unit_test(
            test_workers_that_do_not_read_are_bounded_together_and_go_on_when_they_read),
        cmocka_unit_test(test_a_worker_that_is_done_gets_its_acks_and_a_clean_end),
        cmocka_unit_test(test_health_knows_the_services),
        cmocka_unit_test(test_a_stop_tells_everybody_and_leaves_nothing_behind),
        cmocka_unit_test(test_the_counters_are_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
