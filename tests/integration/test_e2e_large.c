/* The largest payloads. Goal: where the limit is raised to 1 MiB, inputs, outputs, signals and what
 * an operator says of an output come through whole, also in a compensation whose task is larger
 * than any other message, by a stream and by LeaseTasks; one byte more is refused as ever, with the
 * limit named; without the setting nothing has changed. Method: one sagad with the setting, one
 * without, workers of the SDK and by hand. */
#include "base/mem.h"
#include "core/limits.h"
#include "support/poller.h"
#include "support/raw_worker.h"
#include "support/rig.h"

#include <stdio.h>
#include <string.h>

enum { SOON = 20000, INVALID_ARGUMENT = 3, EXHAUSTED = 8, MOST = LIMIT_PAYLOAD_BYTES_MOST };

static struct rig rig = { .server_args = { "--payload-bytes-max", "1048576" } };
static struct rig usual = { .node = "usual" };

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig) || rig_node_up(&usual, &rig) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    int rc = rig_node_down(&usual);
    return rig_down(&rig) || rc ? -1 : 0;
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

/* The script, filled up with lines that no call fits; the caller frees it. */
static char *filled(const char *script, size_t size)
{
    char *text = mem_calloc(1, size + 1);
    assert_non_null(text);
    memset(text, '-', size);
    memcpy(text, script, strlen(script));
    text[strlen(script)] = '\n';
    text[size] = '\0';
    return text;
}

/* The gRPC code; with one that is not 0 the message names the limit. */
static int start(struct rig *at, const char *definition, const char *saga_id, const char *script,
                 size_t size, const char *limit)
{
    CLEANUP(mem_free_p) char *input = filled(script, size);
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow(definition);
    request.saga_id = rig_borrow(saga_id);
    request.input = (ProtobufCBinaryData){ size, (uint8_t *)input };
    struct client_failure failure = { 0 };
    ProtobufCMessage *reply = rig_call(at, "SagaService/StartSaga", &request.base,
                                       &saga__v1__start_saga_response__descriptor, &failure);
    int code = reply ? 0 : failure.code;
    if (reply) {
        protobuf_c_message_free_unpacked(reply, NULL);
    } else {
        assert_int_equal(failure.violation_count, 1);
        assert_string_equal(failure.violations[0].field, "input");
        assert_non_null(strstr(failure.message, limit));
    }
    client_failure_done(&failure);
    return code;
}

static void await_sizes(const char *definition, const char *saga_id, size_t input, size_t output)
{
    Saga__V1__Saga *saga = rig_get(&rig, definition, saga_id);
    assert_int_equal(saga->input.len, input);
    assert_int_equal(saga->n_steps, 1);
    assert_int_equal(saga->steps[0]->output.len, output);
    for (size_t i = 0; i < output; i++)
        if (saga->steps[0]->output.data[i] != 'L')
            fail_msg("byte %zu of the output is %d", i, saga->steps[0]->output.data[i]);
    saga__v1__saga__free_unpacked(saga, NULL);
}

static void test_an_input_and_an_output_of_a_mebibyte(void **state)
{
    (void)state;
    rig_define(&rig, "whole", NULL, "a: IDEMPOTENT | none");
    assert_non_null(rig_worker(&rig, "w", "act:2"));
    assert_int_equal(start(&rig, "whole", "w1", "a A * size=1048576 done", MOST, ""), 0);
    rig_await_state(&rig, "whole", "w1", "SUCCEEDED", SOON);
    await_sizes("whole", "w1", MOST, MOST);
    assert_int_equal(start(&rig, "whole", "w2", "", MOST + 1, "the limit is 1048576"),
                     INVALID_ARGUMENT);
}

/* Input and outputs are 4 MiB when the saga turns back: more than any other message may have. */
static void test_a_compensation_has_more_than_any_task(void **state)
{
    (void)state;
    rig_define(&rig, "turned", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT\n"
               "c: IDEMPOTENT | IDEMPOTENT\nd: IDEMPOTENT | none");
    assert_non_null(rig_worker(&rig, "w", "act:2 undo:2"));
    assert_int_equal(start(&rig, "turned", "t1", "* A * size=1048576 done", MOST, ""), 0);
    rig_await_state(&rig, "turned", "t1", "PARKED LIMIT_REACHED", SOON);
    /* Of which it can be looked at what fits into a message. */
    Saga__V1__Saga *saga = rig_get(&rig, "turned", "t1");
    assert_int_equal(saga->steps[0]->output.len, 0);
    assert_int_equal(saga->steps[0]->output_bytes_left_out, MOST);
    assert_int_equal(saga->steps[1]->output.len, MOST);
    assert_int_equal(saga->steps[2]->output.len, MOST);
    saga__v1__saga__free_unpacked(saga, NULL);
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_cancel(&rig, "turned", "t1", reason), 0);
    rig_await_state(&rig, "turned", "t1", "COMPENSATED", SOON);
    rig_assert_calls(&rig, "t1", "a.1, b.1, c.1, ~c.1, ~b.1, ~a.1");
}

static void test_the_same_without_a_stream(void **state)
{
    (void)state;
    rig_define(&rig, "asked", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT\n"
               "c: IDEMPOTENT | IDEMPOTENT handler=asked\nd: IDEMPOTENT | none");
    assert_non_null(rig_worker(&rig, "w", "act:2 undo:2"));
    assert_int_equal(start(&rig, "asked", "p1", "* A * size=1048576 done", MOST, ""), 0);
    rig_await_state(&rig, "asked", "p1", "PARKED LIMIT_REACHED", SOON);
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_cancel(&rig, "asked", "p1", reason), 0);
    struct poller *poller = poller_new(rig.address, "p", NULL, "asked");
    const Saga__V1__Task *task = poller_task(poller, SOON);
    assert_int_equal(task->input.len, MOST);
    assert_int_equal(task->n_outputs, 2);
    assert_int_equal(task->action->output.len, MOST);
    struct raw_lease lease = raw_lease_of(task);
    assert_int_equal(poller_report(poller, &lease, SAGA__V1__OUTCOME__OUTCOME_DONE, ""),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    poller = poller_free(poller);
    rig_await_state(&rig, "asked", "p1", "COMPENSATED", SOON);
}

static void assert_report_refused(const char *address, size_t size, const char *limit)
{
    struct raw_worker *worker = raw_worker_hello(address, "raw", NULL, "raw", NULL, 0);
    uint8_t uid[16] = { 1 };
    CLEANUP(mem_free_p) uint8_t *output = mem_calloc(1, size);
    assert_non_null(output);
    Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT;
    report.saga_uid = (ProtobufCBinaryData){ sizeof uid, uid };
    report.outcome = SAGA__V1__OUTCOME__OUTCOME_DONE;
    report.output = (ProtobufCBinaryData){ size, output };
    raw_worker_report_task(worker, &report);
    const char *message = NULL;
    assert_int_equal(raw_worker_status(worker, SOON, &message), EXHAUSTED);
    assert_non_null(strstr(message, limit));
    worker = raw_worker_cut(worker);
}

static void test_an_output_of_one_byte_more(void **state)
{
    (void)state;
    assert_report_refused(rig.address, MOST + 1, "the limit is 1048576");
    assert_report_refused(usual.address, LIMIT_PAYLOAD_BYTES + 1, "the limit is 262144");
}

static void test_signals_and_the_words_of_operators(void **state)
{
    (void)state;
    rig_define(&rig, "told", NULL, "s: WAIT timeout=600s | none");
    rig_define(&rig, "asking", NULL, "a: ONCE | none");
    assert_non_null(rig_worker(&rig, "w", "act:2"));
    char reason[RIG_REASON_SIZE];
    CLEANUP(mem_free_p) char *most = filled("", MOST), *more = filled("", MOST + 1);
    rig_start(&rig, "told", "s1", "");
    assert_int_equal(rig_signal(&rig, "told", "s1", "s", "1", more, reason), INVALID_ARGUMENT);
    assert_int_equal(rig_signal(&rig, "told", "s1", "s", "1", most, reason), 0);
    rig_await_state(&rig, "told", "s1", "SUCCEEDED", SOON);

    rig_start(&rig, "asking", "o1", "* A * unknown");
    rig_await_state(&rig, "asking", "o1", "PARKED OUTCOME_UNKNOWN", SOON);
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.definition = rig_borrow("asking");
    ref.saga_id = rig_borrow("o1");
    Saga__V1__ResolveStepRequest resolve = SAGA__V1__RESOLVE_STEP_REQUEST__INIT;
    resolve.saga = &ref;
    resolve.step = rig_borrow("a");
    resolve.result = SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN;
    resolve.evidence = rig_borrow("the bank's list");
    resolve.output = (ProtobufCBinaryData){ MOST + 1, (uint8_t *)more };
    struct client_failure failure = { 0 };
    assert_null(rig_call(&rig, "OperatorService/ResolveStep", &resolve.base,
                         &saga__v1__saga__descriptor, &failure));
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_string_equal(failure.violations[0].field, "output");
    client_failure_done(&failure);
    resolve.output.len = MOST;
    ProtobufCMessage *saga = rig_call(&rig, "OperatorService/ResolveStep", &resolve.base,
                                      &saga__v1__saga__descriptor, NULL);
    protobuf_c_message_free_unpacked(saga, NULL);
}

static void test_without_the_setting_nothing_has_changed(void **state)
{
    (void)state;
    rig_define(&usual, "usual", NULL, "a: IDEMPOTENT handler=nobody | none");
    assert_int_equal(start(&usual, "usual", "u1", "", LIMIT_PAYLOAD_BYTES, ""), 0);
    assert_int_equal(
        start(&usual, "usual", "u2", "", LIMIT_PAYLOAD_BYTES + 1, "the limit is 262144"),
        INVALID_ARGUMENT);
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_cancel(&usual, "usual", "u1", reason), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_an_input_and_an_output_of_a_mebibyte, check),
        cmocka_unit_test_teardown(test_a_compensation_has_more_than_any_task, check),
        cmocka_unit_test_teardown(test_the_same_without_a_stream, check),
        cmocka_unit_test_teardown(test_an_output_of_one_byte_more, check),
        cmocka_unit_test_teardown(test_signals_and_the_words_of_operators, check),
        cmocka_unit_test_teardown(test_without_the_setting_nothing_has_changed, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
