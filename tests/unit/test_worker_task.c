/* What a handler sees of its task and may say about it. Goal: every field of the wire reaches the
 * handler, and nothing that the server would refuse leaves. Method: one task in memory. */
#include "support/check.h"

#include "task.h"

#include <errno.h>
#include <netdb.h>

struct fixture {
    struct saga_task task;
    Saga__V1__Task wire;
    Saga__V1__StepOutput output, *outputs[1];
    Saga__V1__Task__LabelsEntry label, *labels[1];
    Saga__V1__ActionOutcome action;
    Google__Protobuf__Timestamp start;
};

static char text_debit[] = "debit", text_key[] = "key", text_value[] = "value";
static char text_saga[] = "order-17", text_idempotency[] = "0123456789abcdef";
static char text_namespace[] = "default", text_definition[] = "settlement";
static char text_handler[] = "account.debit", text_trace[] = "00-ab-cd-01";

static ProtobufCBinaryData bytes_of(char *text)
{
    return (ProtobufCBinaryData){ .len = strlen(text), .data = (uint8_t *)text };
}

static int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    saga__v1__task__init(&fixture.wire);
    saga__v1__step_output__init(&fixture.output);
    saga__v1__task__labels_entry__init(&fixture.label);
    saga__v1__action_outcome__init(&fixture.action);
    google__protobuf__timestamp__init(&fixture.start);
    fixture.output.step = text_debit;
    fixture.output.output = bytes_of(text_value);
    fixture.outputs[0] = &fixture.output;
    fixture.label.key = text_key;
    fixture.label.value = text_value;
    fixture.labels[0] = &fixture.label;
    fixture.start.seconds = 1700000000;
    fixture.start.nanos = 123456789;
    fixture.task.output_bytes_max = SAGA_OUTPUT_MAX;
    Saga__V1__Task *wire = &fixture.wire;
    wire->namespace_ = text_namespace;
    wire->definition = text_definition;
    wire->revision = 4;
    wire->saga_id = text_saga;
    wire->run = 2;
    wire->saga_start_time = &fixture.start;
    wire->step = text_debit;
    wire->operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    wire->handler = text_handler;
    wire->try_ = 3;
    wire->idempotency_key = text_idempotency;
    wire->input = bytes_of(text_value);
    wire->n_outputs = 1;
    wire->outputs = fixture.outputs;
    wire->n_labels = 1;
    wire->labels = fixture.labels;
    wire->traceparent = text_trace;
    wire->guarded = 1;
    fixture.task.message = wire;
    fixture.task.fence = 77;
    fixture.task.thread = 1;
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    task_outcome_clear(&fixture->task.outcome);
    return 0;
}

static void test_every_field_reaches_the_handler(void **state)
{
    struct fixture *fixture = *state;
    const struct saga_task *task = &fixture->task;
    assert_string_equal(saga_task_namespace(task), "default");
    assert_string_equal(saga_task_definition(task), "settlement");
    assert_string_equal(saga_task_saga_id(task), "order-17");
    assert_int_equal(saga_task_run(task), 2);
    assert_int_equal(saga_task_revision(task), 4);
    assert_int_equal(saga_task_started_at_us(task), INT64_C(1700000000123456));
    assert_string_equal(saga_task_step(task), "debit");
    assert_int_equal(saga_task_operation(task), SAGA_COMPENSATION);
    assert_string_equal(saga_task_handler(task), "account.debit");
    assert_int_equal(saga_task_try(task), 3);
    assert_int_equal(saga_task_fence(task), 77);
    assert_string_equal(saga_task_idempotency_key(task), "0123456789abcdef");
    assert_true(saga_task_guarded(task));
    assert_int_equal(saga_task_input(task).size, 5);
    struct saga_bytes output;
    assert_true(saga_task_output_of(task, "debit", &output));
    assert_memory_equal(output.data, "value", 5);
    assert_false(saga_task_output_of(task, "ledger", &output));
    assert_string_equal(saga_task_label(task, "key"), "value");
    assert_null(saga_task_label(task, "other"));
    assert_string_equal(saga_task_traceparent(task), "00-ab-cd-01");
    assert_int_equal(saga_task_thread(task), 1);
}

static void test_a_probe_is_told_what_it_asks_about(void **state)
{
    struct fixture *fixture = *state;
    Saga__V1__ProbedAttempt attempt = SAGA__V1__PROBED_ATTEMPT__INIT;
    Google__Protobuf__Timestamp end = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    struct saga_probed probed;
    assert_false(saga_task_probed(&fixture->task, &probed));
    fixture->wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE;
    fixture->wire.probed = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    assert_true(saga_task_probed(&fixture->task, &probed)); /* without the attempt, too */
    assert_int_equal(probed.operation, SAGA_ACTION);
    assert_int_equal(probed.leased_at_us, 0);
    assert_int_equal(saga_task_action_outcome(&fixture->task), SAGA_ACTION_NONE);
    fixture->wire.probed = SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    fixture->wire.probed_attempt = &attempt;
    attempt.try_ = 2;
    attempt.fence = 71;
    attempt.lease_time = &fixture->start;
    attempt.end_time = &end;
    end.seconds = 1700000030;
    assert_true(saga_task_probed(&fixture->task, &probed));
    assert_int_equal(probed.operation, SAGA_COMPENSATION);
    assert_int_equal(probed.try_, 2);
    assert_int_equal(probed.fence, 71);
    assert_int_equal(probed.leased_at_us, INT64_C(1700000000123456));
    assert_int_equal(probed.ended_at_us, INT64_C(1700000030000000));
    fixture->wire.action = &fixture->action; /* what the compensation was to take back */
    fixture->action.kind = SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE;
    assert_int_equal(saga_task_action_outcome(&fixture->task), SAGA_ACTION_DONE);
}

static void test_the_end_of_the_time_in_which_the_key_is_remembered(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(saga_task_send_before_us(&fixture->task), 0);
    fixture->wire.send_before = &fixture->start;
    assert_int_equal(saga_task_send_before_us(&fixture->task), INT64_C(1700000000123456));
}

static void test_what_a_probe_says(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(saga_task_still_unknown(&fixture->task, "BUSY", "later"), 0);
    assert_int_equal(fixture->task.outcome.kind, SAGA__V1__OUTCOME__OUTCOME_STILL_UNKNOWN);
    assert_string_equal(fixture->task.outcome.code, "BUSY");
    assert_int_equal(saga_task_still_unknown(&fixture->task, "", NULL), -1);
    assert_int_equal(saga_task_not_done(&fixture->task), 0);
    assert_int_equal(fixture->task.outcome.kind, SAGA__V1__OUTCOME__OUTCOME_NOT_DONE);
    assert_null(fixture->task.outcome.code);
}

static void test_what_is_known_of_the_action(void **state)
{
    struct fixture *fixture = *state;
    /* Not said, or a word that we do not know: it may have happened. */
    assert_int_equal(saga_task_action_outcome(&fixture->task), SAGA_ACTION_MAYBE);
    assert_int_equal(saga_task_action_output(&fixture->task).size, 0);
    fixture->wire.action = &fixture->action;
    fixture->action.kind = (Saga__V1__ActionOutcome__Kind)9;
    fixture->action.output = bytes_of(text_value);
    assert_int_equal(saga_task_action_outcome(&fixture->task), SAGA_ACTION_MAYBE);
    assert_int_equal(saga_task_action_output(&fixture->task).size, 0);
    fixture->action.kind = SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE;
    assert_int_equal(saga_task_action_outcome(&fixture->task), SAGA_ACTION_DONE);
    assert_int_equal(saga_task_action_output(&fixture->task).size, 5);
    fixture->wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    assert_int_equal(saga_task_action_outcome(&fixture->task), SAGA_ACTION_NONE);
}

static void test_the_last_outcome_counts(void **state)
{
    struct fixture *fixture = *state;
    struct saga_task *task = &fixture->task;
    assert_int_equal(saga_task_already_done(task, "out", 3, true), 0);
    assert_int_equal(task->outcome.kind, SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE);
    assert_true(task->outcome.ours);
    assert_int_equal(saga_task_retry(task, "BUSY", NULL, 1500), 0);
    assert_int_equal(task->outcome.kind, SAGA__V1__OUTCOME__OUTCOME_RETRY);
    assert_int_equal(task->outcome.retry_after_ms, 1500);
    assert_string_equal(task->outcome.message, "");
    assert_int_equal(task->outcome.output.size, 0);
    assert_int_equal(saga_task_unknown(task, "TIMEOUT", "no answer"), 0);
    assert_int_equal(task->outcome.kind, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
}

static void test_a_refused_call_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct saga_task *task = &fixture->task;
    char code[130];
    memset(code, 'x', sizeof code);
    code[129] = '\0';
    assert_int_equal(saga_task_rejected(task, "NO_FUNDS", "no"), 0);
    assert_int_equal(saga_task_done(task, code, SAGA_OUTPUT_MAX + 1U), -1);
    assert_int_equal(saga_task_retry(task, "BUSY", "", -1), -1);
    assert_int_equal(saga_task_retry(task, "BUSY", "", SAGA_RETRY_AFTER_MS_MAX + INT64_C(1)), -1);
    assert_int_equal(saga_task_unknown(task, NULL, "m"), -1);
    assert_int_equal(saga_task_unknown(task, "", "m"), -1);
    assert_int_equal(saga_task_unknown(task, code, "m"), -1);
    assert_int_equal(saga_task_unknown(task, "A\nB", "m"), -1);
    assert_int_equal(saga_task_unknown(task, "\xff", "m"), -1);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_at(nth, false);
        int rc = saga_task_unknown(task, "TIMEOUT", "m");
        mem_fail_at(0, false);
        assert_int_equal(rc, -1);
    }
    assert_int_equal(task->outcome.kind, SAGA__V1__OUTCOME__OUTCOME_REJECTED);
    assert_string_equal(task->outcome.code, "NO_FUNDS");
    code[128] = '\0';
    assert_int_equal(saga_task_unknown(task, code, "m"), 0);
}

static void test_messages_are_made_fit_to_be_sent(void **state)
{
    struct fixture *fixture = *state;
    struct saga_task *task = &fixture->task;
    assert_int_equal(saga_task_unknown(task, "X", "a\tb\nc\x7f\xff"), 0);
    assert_string_equal(task->outcome.message, "a b c ?");
    assert_int_equal(saga_task_unknown(task, "X", "caf\xc3\xa9 \xc2\x85!"), 0);
    assert_string_equal(task->outcome.message, "caf\xc3\xa9   !");
    char message[SAGA_ERROR_MESSAGE_MAX + 2];
    memset(message, 'm', sizeof message);
    memcpy(message + SAGA_ERROR_MESSAGE_MAX - 1, "\xc3\xa9", 3); /* across the limit */
    assert_int_equal(saga_task_unknown(task, "X", message), 0);
    assert_int_equal(strlen(task->outcome.message), SAGA_ERROR_MESSAGE_MAX - 1);
}

/* Only what proves that nothing was sent is RETRY. */
static void test_an_error_of_a_client_is_retry_only_if_nothing_was_sent(void **state)
{
    struct fixture *fixture = *state;
    struct saga_task *task = &fixture->task;
    static const struct {
        enum saga_client client;
        int code;
        bool retry;
        const char *text;
    } all[] = {
        { SAGA_CLIENT_CONNECT, ECONNREFUSED, true, "CONNECT_111" },
        { SAGA_CLIENT_CONNECT, EHOSTUNREACH, true, "CONNECT_113" },
        { SAGA_CLIENT_CONNECT, ECONNRESET, false, "CONNECT_104" },
        { SAGA_CLIENT_CONNECT, EPIPE, false, "CONNECT_32" },
        { SAGA_CLIENT_CONNECT, 0, false, "CONNECT_0" },
        { SAGA_CLIENT_RESOLVE, EAI_NONAME, true, "RESOLVE_-2" },
        { SAGA_CLIENT_RESOLVE, 0, false, "RESOLVE_0" },
        { SAGA_CLIENT_CURL, 6, true, "CURL_6" },
        { SAGA_CLIENT_CURL, 7, true, "CURL_7" },
        { SAGA_CLIENT_CURL, 28, false, "CURL_28" }, /* a time-out: of what, it does not say */
        { SAGA_CLIENT_CURL, 56, false, "CURL_56" },
        { SAGA_CLIENT_POSTGRESQL, 1, true, "POSTGRESQL_1" },
        { SAGA_CLIENT_POSTGRESQL, 0, false, "POSTGRESQL_0" },
        { SAGA_CLIENT_MYSQL, 2003, true, "MYSQL_2003" },
        { SAGA_CLIENT_MYSQL, 2013, false, "MYSQL_2013" }, /* lost during the query */
        { (enum saga_client)99, 7, false, "CLIENT_7" },
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(saga_task_failed(task, all[i].client, all[i].code, "why"), 0);
        assert_int_equal(task->outcome.kind, all[i].retry ? SAGA__V1__OUTCOME__OUTCOME_RETRY
                                                          : SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
        assert_string_equal(task->outcome.code, all[i].text);
        assert_string_equal(task->outcome.message, "why");
    }
}

#define TASK_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TASK_TEST(test_every_field_reaches_the_handler),
        TASK_TEST(test_what_is_known_of_the_action),
        TASK_TEST(test_a_probe_is_told_what_it_asks_about),
        TASK_TEST(test_the_end_of_the_time_in_which_the_key_is_remembered),
        TASK_TEST(test_what_a_probe_says),
        TASK_TEST(test_the_last_outcome_counts),
        TASK_TEST(test_a_refused_call_changes_nothing),
        TASK_TEST(test_messages_are_made_fit_to_be_sent),
        TASK_TEST(test_an_error_of_a_client_is_retry_only_if_nothing_was_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
