/* Typed payloads over the whole stack. Goal: a saga that is written as a service is started from
 * its input alone; each task carries the request that its rpc takes; bytes that are no message of
 * their type are refused by the field's path, and as an output are no answer; who asks again for
 * what was started is answered whatever the definition says by now. Method: the settlement of
 * tests/definitions, compiled by protoc; workers by hand, who see the bytes. */
#include "definitions/sets.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/scratch.h"

#include <stdio.h>

enum { SOON = 10000, INVALID_ARGUMENT = 3, UNAVAILABLE = 14 };
enum { DEBIT, REFUND, LEDGER, REVERSE, NOTIFY, WITHDRAW, HANDLERS };

#define GOLDEN      SOURCE_DIR "/tests/definitions/golden"
#define PAYMENT(id) "\x0a\x03" id "\x10\x07" /* payment_id, account 7 */
#define RECEIPT     "\x0a\x01t"
#define ENTRY       "\x08\x05"
#define FIELD_1     "\x0a" /* a message in it: tag, length */
#define FIELD_2     "\x12"
#define FIELD_3     "\x1a"

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };
static struct raw_worker *workers[HANDLERS];
static uint64_t credits[HANDLERS];
static const char *const handlers[HANDLERS] = {
    "bank.v1.Settlement.DebitAccount", "bank.v1.Settlement.RefundAccount",
    "bank.v1.Settlement.WriteLedger",  "bank.v1.Settlement.ReverseLedger",
    "bank.v1.Settlement.NotifyRisk",   "bank.v1.Settlement.WithdrawNotice",
};

static void register_settlement(const char *folder)
{
    char out[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("set", out, &err), &err);
    run("%s -I %s -I %s -I %s/proto --include_imports --include_source_info "
        "--descriptor_set_out=%s settlement.proto",
        PROTOC, folder, PROTO_WELL_KNOWN, SOURCE_DIR, out);
    CLEANUP(bytes_done) struct bytes set = file_read(out);
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    request.descriptors = (ProtobufCBinaryData){ set.size, set.data };
    ProtobufCMessage *reply = rig_call(&rig, "DefinitionService/RegisterDefinition", &request.base,
                                       &saga__v1__register_definition_response__descriptor, NULL);
    assert_true(((Saga__V1__RegisterDefinitionResponse *)reply)->created);
    protobuf_c_message_free_unpacked(reply, NULL);
}

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig))
        return -1;
    register_settlement(GOLDEN);
    for (size_t i = 0; i < HANDLERS; i++)
        workers[i] = raw_worker_hello(rig.address, handlers[i], NULL, handlers[i], NULL, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < HANDLERS; i++)
        workers[i] = raw_worker_cut(workers[i]);
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

/* NULL: refused, and ret_failure says how. */
static Saga__V1__StartSagaResponse *start(const char *saga_id, const char *input,
                                          struct client_failure *ret_failure)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow("settlement");
    request.saga_id = rig_borrow(saga_id);
    request.input = (ProtobufCBinaryData){ strlen(input), (uint8_t *)rig_borrow(input) };
    return (void *)rig_call(&rig, "SagaService/StartSaga", &request.base,
                            &saga__v1__start_saga_response__descriptor, ret_failure);
}

static void start_settled(const char *input, const char *expected_id)
{
    Saga__V1__StartSagaResponse *reply = start("", input, NULL);
    assert_string_equal(reply->saga_id, expected_id);
    saga__v1__start_saga_response__free_unpacked(reply, NULL);
}

static void assert_start_refused(const char *saga_id, const char *input, int code,
                                 const char *reason, const char *field)
{
    struct client_failure failure = { 0 };
    assert_null(start(saga_id, input, &failure));
    assert_int_equal(failure.code, code);
    assert_string_equal(failure.reason, reason);
    if (field) {
        assert_int_equal(failure.violation_count, 1);
        assert_string_equal(failure.violations[0].field, field);
    }
    client_failure_done(&failure);
}

/* The next task of that handler, with exactly that request. */
static const Saga__V1__Task *next(int handler, const char *request_type, const char *request)
{
    raw_worker_credit(workers[handler], handlers[handler], ++credits[handler]);
    const Saga__V1__Task *task = raw_worker_task(workers[handler], SOON);
    assert_non_null(task);
    assert_string_equal(task->request_type, request_type);
    assert_int_equal(task->request.len, strlen(request));
    assert_memory_equal(task->request.data, request, strlen(request));
    assert_int_equal(task->input.len, 0); /* it is in the request, where that has it */
    assert_int_equal(task->n_outputs, 0);
    return task;
}

static void settle(int handler, const Saga__V1__Task *task, Saga__V1__Outcome outcome,
                   const char *output)
{
    struct raw_lease lease = raw_lease_of(task);
    assert_int_equal(raw_worker_settle(workers[handler], &lease, outcome, output),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
}

static void debit_and_write(const char *payment)
{
    char request[64];
    const Saga__V1__Task *task = next(DEBIT, "bank.v1.Payment", payment);
    assert_string_equal(task->output_type, "bank.v1.Receipt");
    assert_int_equal(task->n_labels, 1);
    assert_string_equal(task->labels[0]->value, "7");
    settle(DEBIT, task, SAGA__V1__OUTCOME__OUTCOME_DONE, RECEIPT);
    (void)snprintf(request, sizeof request, FIELD_1 "\x07%s" FIELD_2 "\x03" RECEIPT, payment);
    task = next(LEDGER, "bank.v1.LedgerRequest", request);
    settle(LEDGER, task, SAGA__V1__OUTCOME__OUTCOME_DONE, ENTRY);
}

static void test_each_task_carries_the_request_of_its_rpc(void **state)
{
    (void)state;
    static const char payment[] = PAYMENT("p-1");
    char request[64];
    start_settled(payment, "p-1");
    debit_and_write(payment);
    (void)snprintf(request, sizeof request,
                   FIELD_1 "\x07%s" FIELD_2 "\x03" RECEIPT FIELD_3 "\x02" ENTRY, payment);
    const Saga__V1__Task *task = next(NOTIFY, "bank.v1.NotifyRequest", request);
    settle(NOTIFY, task, SAGA__V1__OUTCOME__OUTCOME_REJECTED, "");
    task = next(REVERSE, "bank.v1.ReverseRequest", FIELD_1 "\x02" ENTRY);
    assert_int_equal(task->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
    settle(REVERSE, task, SAGA__V1__OUTCOME__OUTCOME_DONE, "");
    (void)snprintf(request, sizeof request, FIELD_1 "\x07%s" FIELD_2 "\x03" RECEIPT, payment);
    settle(REFUND, next(REFUND, "bank.v1.RefundRequest", request), SAGA__V1__OUTCOME__OUTCOME_DONE,
           "");
    rig_await_state(&rig, "settlement", "p-1", "COMPENSATED", SOON);
}

static void test_an_input_of_another_type_is_refused(void **state)
{
    (void)state;
    assert_start_refused("", "\x0d\x01\x02\x03\x04", INVALID_ARGUMENT, "INVALID",
                         "input.payment_id");
    assert_start_refused("", "\x10\x07", INVALID_ARGUMENT, "INVALID", "input.payment_id");
    assert_start_refused("other", PAYMENT("p-2"), INVALID_ARGUMENT, "INVALID", "saga_id");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM sagad.saga WHERE saga_id "
                               "IN ('p-2', 'other')"),
                     0);
}

static void test_an_output_of_another_type_is_no_answer(void **state)
{
    (void)state;
    static const char payment[] = PAYMENT("p-3");
    char request[64], problem[512];
    start_settled(payment, "p-3");
    const Saga__V1__Task *task = next(DEBIT, "bank.v1.Payment", payment);
    settle(DEBIT, task, SAGA__V1__OUTCOME__OUTCOME_DONE, "\x0d\x01\x02\x03\x04");
    assert_int_equal(strncmp(raw_worker_problem(workers[DEBIT]), "output.transaction_id: ", 23), 0);
    /* the same again is the same report */
    struct raw_lease lease = raw_lease_of(task);
    assert_int_equal(raw_worker_settle(workers[DEBIT], &lease, SAGA__V1__OUTCOME__OUTCOME_DONE,
                                       "\x0d\x01\x02\x03\x04"),
                     SAGA__V1__ACK__RESULT__RESULT_DUPLICATE);
    (void)rig_text(&rig, RIG_STORE, problem, sizeof problem,
                   "SELECT j.outcome || ' ' || j.error_code || ' ' || j.error_message FROM "
                   "sagad.journal j JOIN sagad.saga s USING (shard, saga_uid) WHERE s.saga_id = "
                   "'p-3' AND j.seq = 1");
    assert_int_equal(strncmp(problem, "UNKNOWN INVALID_OUTPUT output.transaction_id: ", 46), 0);
    /* it is guarded and idempotent: asked again, with the same request */
    settle(DEBIT, next(DEBIT, "bank.v1.Payment", payment), SAGA__V1__OUTCOME__OUTCOME_DONE,
           RECEIPT);
    (void)snprintf(request, sizeof request, FIELD_1 "\x07%s" FIELD_2 "\x03" RECEIPT, payment);
    settle(LEDGER, next(LEDGER, "bank.v1.LedgerRequest", request), SAGA__V1__OUTCOME__OUTCOME_DONE,
           ENTRY);
    (void)snprintf(request, sizeof request,
                   FIELD_1 "\x07%s" FIELD_2 "\x03" RECEIPT FIELD_3 "\x02" ENTRY, payment);
    task = next(NOTIFY, "bank.v1.NotifyRequest", request);
    /* at most once: a person says what became of it, with an output of its type */
    settle(NOTIFY, task, SAGA__V1__OUTCOME__OUTCOME_DONE, "\x0d\x01\x02\x03\x04");
    rig_await_state(&rig, "settlement", "p-3", "PARKED OUTCOME_UNKNOWN", SOON);
}

/* What an output is like does not matter where it is no answer: somebody else's effect stays one.
 */
static void test_a_foreign_effect_stays_one_whatever_its_output(void **state)
{
    (void)state;
    static const char payment[] = PAYMENT("p-7");
    start_settled(payment, "p-7");
    const Saga__V1__Task *task = next(DEBIT, "bank.v1.Payment", payment);
    settle(DEBIT, task, SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE, "\x0d\x01\x02\x03\x04");
    assert_string_equal(raw_worker_problem(workers[DEBIT]), "");
    rig_await_state(&rig, "settlement", "p-7", "PARKED FOREIGN_EFFECT", SOON);
}

static void resolve(const char *output, struct client_failure *ret_failure)
{
    Saga__V1__ResolveStepRequest request = SAGA__V1__RESOLVE_STEP_REQUEST__INIT;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.definition = rig_borrow("settlement");
    ref.saga_id = rig_borrow("p-3");
    request.saga = &ref;
    request.step = rig_borrow("notify_risk");
    request.result = SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN;
    request.output = (ProtobufCBinaryData){ strlen(output), (uint8_t *)rig_borrow(output) };
    request.evidence = rig_borrow("asked them");
    ProtobufCMessage *reply = rig_call(&rig, "OperatorService/ResolveStep", &request.base,
                                       &saga__v1__saga__descriptor, ret_failure);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
}

static void test_a_person_says_it_in_the_same_type(void **state)
{
    (void)state;
    struct client_failure failure = { 0 };
    resolve("\x0d\x01\x02\x03\x04", &failure);
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_string_equal(failure.violations[0].field, "output.case_id");
    client_failure_done(&failure);
    resolve("\x0a\x01z", NULL);
    rig_await_state(&rig, "settlement", "p-3", "SUCCEEDED", SOON);
}

static void pause_definition(bool on)
{
    Saga__V1__PauseDefinitionRequest pause = SAGA__V1__PAUSE_DEFINITION_REQUEST__INIT;
    Saga__V1__ResumeDefinitionRequest resume = SAGA__V1__RESUME_DEFINITION_REQUEST__INIT;
    pause.name = resume.name = rig_borrow("settlement");
    pause.reason = rig_borrow("risk is down");
    protobuf_c_message_free_unpacked(
        rig_call(
            &rig, on ? "DefinitionService/PauseDefinition" : "DefinitionService/ResumeDefinition",
            on ? &pause.base : &resume.base, &saga__v1__registered_definition__descriptor, NULL),
        NULL);
}

static void assert_known(const char *saga_id, const char *input)
{
    Saga__V1__StartSagaResponse *reply = start(saga_id, input, NULL);
    assert_true(reply->existed);
    assert_string_equal(reply->saga_id, "p-1");
    assert_int_equal(reply->state, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED);
    saga__v1__start_saga_response__free_unpacked(reply, NULL);
}

static void test_a_pause_refuses_what_is_new_alone(void **state)
{
    (void)state;
    struct client_failure failure = { 0 };
    pause_definition(true);
    assert_null(start("p-4", PAYMENT("p-4"), &failure));
    assert_int_equal(failure.code, UNAVAILABLE);
    assert_string_equal(failure.reason, "DEFINITION_PAUSED");
    assert_non_null(strstr(failure.message, "risk is down"));
    assert_true(failure.retry_delay_ms > 0);
    client_failure_done(&failure);
    assert_known("p-1", PAYMENT("p-1"));
    assert_known("", PAYMENT("p-1")); /* the key is made of it, paused or not */
    assert_start_refused("p-1", PAYMENT("p-9"), 6, "INPUT_MISMATCH", NULL);
    pause_definition(false);
    start_settled(PAYMENT("p-4"), "p-4");
}

/* The next revision's payment has a number where the id was. */
static void test_a_known_key_is_answered_whatever_the_type_is_now(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("next", folder, &err), &err);
    run("mkdir %s && sed 's/string payment_id = 1/int64 payment_id = 1/' %s/settlement.proto "
        "> %s/settlement.proto",
        folder, GOLDEN, folder);
    register_settlement(folder);
    assert_start_refused("", PAYMENT("p-5"), INVALID_ARGUMENT, "INVALID", "input.payment_id");
    assert_known("p-1", PAYMENT("p-1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_each_task_carries_the_request_of_its_rpc, check),
        cmocka_unit_test_setup(test_an_input_of_another_type_is_refused, check),
        cmocka_unit_test_setup(test_an_output_of_another_type_is_no_answer, check),
        cmocka_unit_test_setup(test_a_person_says_it_in_the_same_type, check),
        cmocka_unit_test_setup(test_a_foreign_effect_stays_one_whatever_its_output, check),
        cmocka_unit_test_setup(test_a_pause_refuses_what_is_new_alone, check),
        cmocka_unit_test_setup(test_a_known_key_is_answered_whatever_the_type_is_now, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
