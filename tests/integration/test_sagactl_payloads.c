/* sagactl and payloads, against a real server. Goal: people write and see payloads as JSON of the
 * types that the definition says; what is wrong in them is told with its place, and nothing
 * started; scripts find the bytes beside the JSON; definitions without types are as ever. Method:
 * one saga written as a service, with a worker that does what the input's first field says. */
#include "support/sagactl.h"
#include "support/scratch.h"

#include "base/mem.h"

#include <stdio.h>

enum { SOON = 10000 };

static const char protos[] = SOURCE_DIR "/proto";
static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "0.5s" } };

static void expect(int exit_code, const char *const *parts, const char *const *words)
{
    sagactl_expect(&rig, exit_code, parts, words);
}
#define EXPECT(exit_code, part, ...) expect(exit_code, WORDS(part), WORDS(__VA_ARGS__))

/* `script` comes first, so that the worker finds its lines in the bytes. */
static const char order_proto[] =
    "syntax = \"proto3\";\n"
    "package shop.v1;\n"
    "import \"google/protobuf/duration.proto\";\n"
    "import \"google/protobuf/empty.proto\";\n"
    "import \"google/protobuf/timestamp.proto\";\n"
    "import \"saga/v1/options.proto\";\n"
    "service Order {\n"
    "  option (saga.v1.saga) = { input: \"Purchase\" key: \"order-{order_id}\"\n"
    "    defaults: { lease: \"5s\" retry: { initial: \"50ms\" cap: \"200ms\" } } };\n"
    "  rpc Reserve(Purchase) returns (Reservation) { option (saga.v1.step) = {\n"
    "    effect: EFFECT_IDEMPOTENT settle_time: \"0s\" compensated_by: \"Release\"\n"
    "    handler: \"act\" }; }\n"
    "  rpc Release(Purchase) returns (Released) { option (saga.v1.compensation) = {\n"
    "    effect: EFFECT_IDEMPOTENT handler: \"undo\" }; }\n"
    "  rpc Charge(Purchase) returns (Receipt) { option (saga.v1.step) = {\n"
    "    effect: EFFECT_AT_MOST_ONCE no_compensation: true handler: \"act\" }; }\n"
    "}\n"
    "service Delivery {\n"
    "  option (saga.v1.saga) = { input: \"Purchase\" key: \"{order_id}\" };\n"
    "  rpc Confirmed(google.protobuf.Empty) returns (Confirmation) { option (saga.v1.step) = {\n"
    "    wait_for_signal: { } }; }\n"
    "}\n"
    "message Purchase {\n"
    "  string script = 1; string order_id = 2; int64 amount_cents = 3; Kind kind = 4;\n"
    "  google.protobuf.Timestamp at = 5; google.protobuf.Duration within = 6;\n"
    "  map<string, int32> items = 7; oneof pay { string card = 8; bytes token = 9; }\n"
    "  double rate = 10; repeated Line lines = 11;\n"
    "  enum Kind { KIND_NONE = 0; GIFT = 1; }\n"
    "}\n"
    "message Line { int32 units = 1; }\n"
    "message Reservation { string shelf = 1; int64 number = 2; }\n"
    "message Released { bool was_there = 1; }\n"
    "message Receipt { string text = 1; }\n"
    "message Confirmation { string reference = 1; }\n";

static int setup(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    struct err err;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker(&rig, "w1", "act:8 undo:8"); /* the rig owns it */
    SETUP_OK(scratch_path("order.proto", path, &err), &err);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(order_proto, file) >= 0);
    assert_int_equal(fclose(file), 0);
    EXPECT(0, "order: revision 1", "definition", "apply", path, "--proto-path", protos);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

/* The text at the path, e.g. "steps[1].output"; NULL where there is nothing. */
static const char *text_at(const json_t *value, const char *list, size_t index, const char *name)
{
    if (list)
        value = json_array_get(json_object_get(value, list), index);
    return json_string_value(json_object_get(value, name));
}

/* Compact JSON of a member must be so. */
static void assert_member(const json_t *object, const char *name, const char *expected)
{
    char *text = json_dumps(json_object_get(object, name),
                            JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    assert_non_null(text);
    assert_string_equal(text, expected);
    mem_free(text);
}

#define SCRIPT(lines) "\\n" lines "\\n"
/* Reservation { shelf: "A" number: 7 }, Receipt { text: "x" }, with two unknown fields */
#define RESERVED "reserve A * done hex=0a01411007"
#define CHARGED  "charge A * done hex=0a01783a01004801"

#define EVERY                                                                                      \
    "\"orderId\":\"e1\",\"amountCents\":\"9007199254740993\",\"kind\":\"GIFT\","                   \
    "\"at\":\"2026-03-02T14:05:11Z\",\"within\":\"1.500s\",\"items\":{\"pen\":2},"                 \
    "\"token\":\"AP8=\",\"rate\":0.1,\"lines\":[{\"units\":3}]}"

static void test_a_saga_is_started_by_json_and_shown_as_json(void **state)
{
    (void)state;
    static const char outputs[] = "  output   reserve: {\"shelf\":\"A\",\"number\":\"7\"}\n"
                                  "           charge: {\"text\":\"x\"} (+2 unknown fields)\n";
    static const char input[] = "{\"script\":\"" SCRIPT(RESERVED "\\n" CHARGED) "\"," EVERY;
    EXPECT(0, "started: order order-e1 (run 1, revision 1, ", "start", "order", input);
    EXPECT(0, "is there already: order order-e1 (", "start", "order", "order-e1", input);
    EXPECT(0, "is there already: order order-e1 (", "start", "order", "--input", input);
    EXPECT(1, "INPUT_MISMATCH", "start", "order", "{\"orderId\": \"e1\"}");
    EXPECT(0, "SUCCEEDED", "wait", "order-e1", "--timeout", "10");
    expect(0,
           WORDS("  input    {\"script\":\"\\nreserve A ", "... (", " bytes)\n", outputs,
                 "  cut      sagactl --address ", " get order order-e1 --full   ("),
           WORDS("where", "order-e1"));
    expect(0, WORDS("\\n\"," EVERY "\n", "output   reserve: {\"shelf\":\"A\",\"number\":\"7\"}\n"),
           WORDS("get", "order-e1", "--full"));
    expect(0, WORDS("DONE {\"shelf\":\"A\",\"number\":\"7\"}", "DONE {\"text\":\"x\"} (+2 unknown"),
           WORDS("history", "order-e1"));
}

static void test_scripts_find_the_bytes_beside_the_json(void **state)
{
    (void)state;
    static const char input[] =
        "{\"orderId\":\"s1\",\"rate\":0.1,\"script\":\"" SCRIPT(RESERVED "\\n" CHARGED) "\"}";
    EXPECT(0, "started: order order-s1", "start", "order", input);
    EXPECT(0, "SUCCEEDED", "wait", "order-s1", "--timeout", "10");
    json_t *saga = sagactl_json(&rig, WORDS("get", "order-s1", "-o", "json"));
    const json_t *made = json_object_get(saga, "inputJson");
    assert_string_equal(text_at(made, NULL, 0, "orderId"), "s1");
    assert_member(made, "rate", "0.1");
    assert_string_equal(text_at(saga, "steps", 0, "output"), "CgFBEAc=");
    const json_t *steps = json_object_get(saga, "steps");
    assert_member(json_array_get(steps, 0), "outputJson", "{\"shelf\":\"A\",\"number\":\"7\"}");
    assert_member(json_array_get(steps, 1), "outputJson", "{\"text\":\"x\"}");
    assert_member(json_array_get(steps, 1), "outputUnknownFields", "2");
    assert_null(json_object_get(json_array_get(steps, 0), "outputUnknownFields"));
    json_t *where = sagactl_json(&rig, WORDS("where", "order-s1", "-o", "json"));
    assert_true(json_equal(json_array_get(json_object_get(where, "sagas"), 0), saga));
    json_decref(where);
    json_decref(saga);
    json_t *journal = sagactl_json(&rig, WORDS("history", "order-s1", "-o", "json"));
    assert_string_equal(text_at(journal, "entries", 0, "output"), "CgFBEAc=");
    assert_member(json_array_get(json_object_get(journal, "entries"), 0), "outputJson",
                  "{\"shelf\":\"A\",\"number\":\"7\"}");
    json_decref(journal);
    /* Digits as people write them. */
    EXPECT(0, "\"rate\": 0.1\n", "get", "order-s1", "-o", "json");
}

/* What is wrong is told here, and nothing is started; bytes are the server's to look at. */
static void test_json_that_is_no_input_is_refused_with_its_place(void **state)
{
    (void)state;
    EXPECT(1, "the input is no shop.v1.Purchase: orderid: ", "start", "order",
           "{\"orderid\": \"w1\"}");
    EXPECT(1, "the input is no shop.v1.Purchase: lines[1].units: must be a whole number", "start",
           "order", "{\"orderId\": \"w1\", \"lines\": [{}, {\"units\": \"many\"}]}");
    EXPECT(1, "kind: ", "start", "order", "{\"orderId\": \"w1\", \"kind\": \"PRESENT\"}");
    EXPECT(1, "the input is no shop.v1.Purchase: line 2, column ", "start", "order",
           "{\n\"orderId\": \"w1\"");
    EXPECT(1, "the input is no JSON: write the shop.v1.Purchase as '{...}'", "start", "order",
           "order-w1", "orderId=w1");
    EXPECT(1, "token: only one of pay, and card is given", "start", "order",
           "{\"orderId\": \"w1\", \"card\": \"4\", \"token\": \"AA==\"}");
    expect(1, WORDS("INVALID_ARGUMENT", "\n  input.lines[0].units: "),
           WORDS("start", "order", "--input-base64", "EgJ3MVoDCgFh"));
    expect(1, WORDS("INVALID_ARGUMENT", "order-w1"),
           WORDS("start", "order", "other", "{\"orderId\": \"w1\"}"));
    EXPECT(1, "NOT_FOUND", "start", "nothing", "{}");
    EXPECT(2, "in only one way", "start", "order", "--file", "a", "--input", "{}");
    EXPECT(2, "not both", "start", "order", "order-w1", "{}", "--input", "{}");
    EXPECT(2, "--at must be a time such as", "start", "order", "{}", "--at", "tomorrow");
    EXPECT(0, "no saga matches", "list", "--prefix", "order-w");
}

static void test_input_comes_from_stdin_and_from_a_file_as_well(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE], line[512];
    struct err err;
    ASSERT_OK(scratch_path("input.json", path, &err), &err);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs("\n {\"orderId\": \"f1\"}\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    EXPECT(0, "started: order order-f1", "start", "order", "--file", path);
    (void)snprintf(line, sizeof line, "%s --address %s start order - <%s", SAGACTL_BINARY,
                   rig.address, path);
    const char *const argv[] = { "/bin/sh", "-c", line, NULL };
    command_expect(argv, NULL, 0, "is there already: order order-f1");
    EXPECT(0, "is there already: order order-f1", "start", "order", "order-f1", "--input-base64",
           "EgJmMQ==");
}

static void test_without_types_payloads_are_as_ever(void **state)
{
    (void)state;
    rig_define(&rig, "plain", NULL, "a: IDEMPOTENT | none");
    EXPECT(0, "started: plain p-1", "start", "plain", "p-1", "{\"amount\": 12}");
    EXPECT(0, "started: plain p-2", "start", "plain", "p-2", "--input-base64", "AAEC");
    EXPECT(1, "saga_id: ", "start", "plain", "{\"amount\": 12}");
    EXPECT(0, "SUCCEEDED", "wait", "p-1", "--timeout", "10");
    expect(0, WORDS("  input    {\"amount\": 12}\n", "  output   a: a\n"), WORDS("get", "p-1"));
    EXPECT(0, "  input    base64 AAEC\n", "where", "p-2");
    EXPECT(0, "  DONE a, granted by rig/", "history", "p-1");
    json_t *saga = sagactl_json(&rig, WORDS("get", "p-1", "-o", "json"));
    assert_string_equal(text_at(saga, NULL, 0, "input"), "eyJhbW91bnQiOiAxMn0=");
    assert_null(json_object_get(saga, "inputJson"));
    assert_string_equal(text_at(saga, "steps", 0, "output"), "YQ==");
    assert_null(text_at(saga, "steps", 0, "outputJson"));
    json_decref(saga);
}

static void test_a_person_settles_a_step_with_json(void **state)
{
    (void)state;
    static const char input[] =
        "{\"orderId\":\"r1\",\"script\":\"" SCRIPT(RESERVED "\\ncharge A * unknown") "\"}";
    EXPECT(0, "started: order order-r1", "start", "order", input);
    EXPECT(4, "PARKED", "wait", "order-r1", "--or-parked", "--timeout", "10");
    EXPECT(1, "the result is no shop.v1.Receipt: txt: ", "resolve", "order-r1", "--step", "charge",
           "--happened", "--evidence", "seen", "--result", "{\"txt\": \"x\"}");
    EXPECT(2, "in only one way", "resolve", "order-r1", "--step", "charge", "--happened",
           "--evidence", "seen", "--result", "{}", "--result-file", "x");
    EXPECT(0, "resolved: order order-r1 (run 1)", "resolve", "order-r1", "--step", "charge",
           "--happened", "--evidence", "seen", "--result", "{\"text\": \"by hand\"}");
    EXPECT(0, "SUCCEEDED", "wait", "order-r1", "--timeout", "10");
    EXPECT(0, "charge: {\"text\":\"by hand\"}\n", "where", "order-r1");
    EXPECT(0, "seen {\"text\":\"by hand\"}\n", "history", "order-r1");
}

static void test_a_compensation_is_shown_by_its_own_type(void **state)
{
    (void)state;
    static const char input[] = "{\"orderId\":\"c1\",\"script\":\"" SCRIPT(
        RESERVED "\\ncharge A * rejected\\nreserve C * done hex=0801") "\"}";
    EXPECT(0, "started: order order-c1", "start", "order", input);
    EXPECT(3, "COMPENSATED", "wait", "order-c1", "--timeout", "10");
    EXPECT(0, "DONE {\"wasThere\":true}, granted by", "history", "order-c1");
}

static void test_a_signal_is_json_of_the_type_that_its_step_says(void **state)
{
    (void)state;
    static const char payload[] = "{\"reference\": \"R-1\"}";
    EXPECT(0, "started: delivery g1", "start", "delivery", "{\"orderId\": \"g1\"}");
    expect(0,
           WORDS("WAITING_FOR_SIGNAL", "waits    for the signal confirmed for confirmed",
                 " signal delivery g1 confirmed --id ..."),
           WORDS("where", "g1"));
    EXPECT(1, "the payload is no shop.v1.Confirmation: ref: ", "signal", "delivery", "g1",
           "confirmed", "{\"ref\": \"R-1\"}");
    EXPECT(1, "INVALID_ARGUMENT", "signal", "delivery", "g1", "confirmed", "--id", "a",
           "--payload-base64", "CAE=");
    EXPECT(1, "INVALID_ARGUMENT", "signal", "delivery", "g1", "refused", payload, "--id", "a");
    EXPECT(1, "NOT_FOUND", "signal", "delivery", "g2", "confirmed", payload);
    EXPECT(2, "--id must not be empty", "signal", "delivery", "g1", "confirmed", "--id", "");
    EXPECT(0, "signalled: delivery g1 confirmed, id a\n", "signal", "delivery", "g1", "confirmed",
           payload, "--id", "a");
    EXPECT(0, "is there already: delivery g1 confirmed, id a\n", "signal", "delivery", "g1",
           "confirmed", payload, "--id", "a");
    json_t *answer = sagactl_json(
        &rig, WORDS("signal", "delivery", "g1", "confirmed", "--id", "a", "-o", "json"));
    assert_true(json_is_true(json_object_get(answer, "duplicate")));
    assert_string_equal(text_at(answer, NULL, 0, "signalId"), "a");
    json_decref(answer);
    expect(1, WORDS("SIGNAL_TAKEN", "the signal's id is ", "; to repeat it, give --id "),
           WORDS("signal", "delivery", "g1", "confirmed", payload));
    EXPECT(0, "SUCCEEDED", "wait", "g1", "--timeout", "10");
    EXPECT(0, "output   confirmed: {\"reference\":\"R-1\"}\n", "where", "g1");
    expect(0,
           WORDS("confirmed id a by ada (unproven) {\"reference\":\"R-1\"}\n",
                 "took the signal at #1"),
           WORDS("history", "g1"));
}

static void test_a_saga_may_begin_later(void **state)
{
    (void)state;
    EXPECT(0, "started: order order-l1", "start", "order", "{\"orderId\": \"l1\"}", "--at", "1h");
    expect(0, WORDS(", to begin at 2", "(in 59 min)", "DELAYED"), WORDS("where", "order-l1"));
    EXPECT(0, "is COMPENSATED", "cancel", "order-l1");
    EXPECT(0, "started: delivery l2", "start", "delivery", "{\"orderId\": \"l2\"}", "--at",
           "2026-03-02T14:05:11Z"); /* past: at once */
    EXPECT(0, "WAITING_FOR_SIGNAL", "where", "l2");
}

/* Bytes from before the server looked at them; and a server that lost the types. */
static void test_what_cannot_be_read_is_shown_all_the_same(void **state)
{
    (void)state;
    static const char input[] =
        "{\"orderId\":\"o1\",\"script\":\"" SCRIPT(RESERVED "\\n" CHARGED) "\"}";
    EXPECT(0, "started: order order-o1", "start", "order", input);
    EXPECT(0, "SUCCEEDED", "wait", "order-o1", "--timeout", "10");
    rig_exec(&rig, RIG_STORE,
             "UPDATE journal SET output = '\\x0801' WHERE seq = 1 AND saga_uid ="
             " (SELECT saga_uid FROM saga WHERE saga_id = 'order-o1')");
    EXPECT(0, "DONE base64 CAE= (no shop.v1.Reservation: shelf: wrong wire type), granted by",
           "history", "order-o1");
    json_t *journal = sagactl_json(&rig, WORDS("history", "order-o1", "-o", "json"));
    assert_string_equal(text_at(journal, "entries", 0, "output"), "CAE=");
    assert_string_equal(text_at(journal, "entries", 0, "outputProblem"), "shelf: wrong wire type");
    json_decref(journal);
    rig_exec(&rig, RIG_STORE, "CREATE TABLE kept AS SELECT * FROM definition_revision");
    rig_exec(&rig, RIG_STORE, "UPDATE definition_revision SET descriptors = '\\x0a'");
    expect(0, WORDS("sagactl: payloads are shown as bytes: ", "DONE base64 CAE=, granted by"),
           WORDS("history", "order-o1"));
    rig_exec(&rig, RIG_STORE, "UPDATE definition_revision SET descriptors = ''");
    EXPECT(0, "DONE base64 CAE=, granted by", "history", "order-o1");
    EXPECT(1, "does not tell what a shop.v1.Purchase looks like", "start", "order", "{}");
    rig_exec(&rig, RIG_STORE,
             "UPDATE definition_revision r SET descriptors = k.descriptors FROM kept k"
             " WHERE (r.namespace, r.name, r.revision) = (k.namespace, k.name, k.revision)");
    rig_exec(&rig, RIG_STORE, "DROP TABLE kept");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_saga_is_started_by_json_and_shown_as_json),
        cmocka_unit_test(test_scripts_find_the_bytes_beside_the_json),
        cmocka_unit_test(test_json_that_is_no_input_is_refused_with_its_place),
        cmocka_unit_test(test_input_comes_from_stdin_and_from_a_file_as_well),
        cmocka_unit_test(test_without_types_payloads_are_as_ever),
        cmocka_unit_test(test_a_person_settles_a_step_with_json),
        cmocka_unit_test(test_a_compensation_is_shown_by_its_own_type),
        cmocka_unit_test(test_a_signal_is_json_of_the_type_that_its_step_says),
        cmocka_unit_test(test_a_saga_may_begin_later),
        cmocka_unit_test(test_what_cannot_be_read_is_shown_all_the_same),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
