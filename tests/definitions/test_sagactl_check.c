/* Goal: `sagactl definition check` says without a server whether a definition is right and what it
 * changes, and ends with the exit code that scripts rely on: 1 a fault or a BREAKING change, 2 a
 * WARNING, else 0. Method: the program as people run it, on the services in golden/, on copies of
 * them with a few words changed, and on files that cannot be read. */
#include "definitions/sets.h"
#include "support/command.h"
#include "support/scratch.h"

#include "base/buf.h"

#include <glob.h>
#include <jansson.h>
#include <stdio.h>

#define GOLDEN     SOURCE_DIR "/tests/definitions/golden/"
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const char settlement[] = GOLDEN "settlement.proto";
static const char fulfilment[] = GOLDEN "fulfilment.proto";
static const char no_saga[] = SOURCE_DIR "/tests/definitions/kinds.proto";
static const char protos[] = SOURCE_DIR "/proto";

static void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

/* sagactl definition ...; env: a variable, or NULL. */
static struct command sagactl(const char *env, const char *const *words)
{
    const char *argv[COMMAND_ARGS_MAX] = { SAGACTL_BINARY, "definition" };
    const char *const all_env[] = { env && strncmp(env, "LC_ALL", 6) == 0 ? env : "LC_ALL=C.UTF-8",
                                    env, NULL };
    for (size_t i = 0; words[i]; i++) {
        assert_true(i + 3 < COMMAND_ARGS_MAX);
        argv[i + 2] = words[i];
    }
    return command_run(argv, all_env);
}

/* Its output holds all of `parts`. */
static void expect(const char *env, int exit_code, const char *const *parts,
                   const char *const *words)
{
    CLEANUP(command_done) struct command command = sagactl(env, words);
    if (command.exit_code != exit_code)
        fail_msg("sagactl definition %s %s: exit code %d, not %d: %s", words[0], words[1],
                 command.exit_code, exit_code, command.output);
    for (size_t i = 0; parts[i]; i++)
        if (!strstr(command.output, parts[i]))
            fail_msg("sagactl definition %s %s: \"%s\" is not in: %s", words[0], words[1], parts[i],
                     command.output);
}
#define EXPECT(exit_code, part, ...) expect(NULL, exit_code, WORDS(part), WORDS(__VA_ARGS__))

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

/* A file of that name, in a folder of its own. */
static void write_source(const char *name, const char *text, char ret[SCRATCH_PATH_SIZE])
{
    char folder[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("source", folder, &err), &err);
    run("mkdir %s", folder);
    (void)snprintf(ret, SCRATCH_PATH_SIZE, "%.*s/%s", SCRATCH_PATH_SIZE - 64, folder, name);
    file_write(ret, text, strlen(text));
}

/* settlement.proto with words changed: pairs of old and new, NULL at the end. */
static void write_changed(const char *const *pairs, char ret[SCRATCH_PATH_SIZE])
{
    CLEANUP(buf_done_p) struct buf text = { 0 };
    CLEANUP(bytes_done) struct bytes file = file_read(settlement);
    buf_text(&text, (char *)file.data);
    for (; *pairs; pairs += 2) {
        CLEANUP(buf_done_p) struct buf changed = { 0 };
        const char *at = strstr(buf_cstr(&text), pairs[0]);
        assert_non_null(at); /* else the file does not have these words any more */
        buf_printf(&changed, "%.*s%s%s", (int)(at - buf_cstr(&text)), buf_cstr(&text), pairs[1],
                   at + strlen(pairs[0]));
        buf_clear(&text);
        buf_text(&text, buf_cstr(&changed));
    }
    write_source("settlement.proto", buf_cstr(&text), ret);
}

/* --- is it right? ----------------------------------------------------------------------------- */

static void test_a_good_service_is_drawn(void **state)
{
    (void)state;
    EXPECT(0,
           "  ● debit_account  IDEMPOTENT via bank.v1.Settlement.DebitAccount, guarded\n"
           "  │                taken back: IDEMPOTENT via bank.v1.Settlement.RefundAccount\n",
           "check", settlement);
    EXPECT(0, "\nok: settlement, 3 steps\n", "check", settlement);
    expect(NULL, 0, WORDS("  ├─╮\n", "  ├─╯\n", "ok: fulfilment, 4 steps\n"),
           WORDS("check", fulfilment));
    expect("LC_ALL=C", 0, WORDS("  +-.\n", "  +-'\n"), WORDS("check", fulfilment));
    CLEANUP(command_done)
    struct command dot = sagactl(NULL, WORDS("check", fulfilment, "--dot"));
    assert_int_equal(dot.exit_code, 0);
    assert_ptr_equal(strstr(dot.output, "digraph \"fulfilment\" {\n"), dot.output);
    assert_string_equal(dot.output + strlen(dot.output) - 2, "}\n");
    assert_non_null(strstr(dot.output, "  \"confirm_order\" -> \"pick_goods\";\n"));
}

/* golden/x.faults has two lines a fault: where, and what. Every one is told, on one line, once. */
static void assert_told(const char *path)
{
    char proto[SCRATCH_PATH_SIZE];
    size_t lines = 0;
    (void)snprintf(proto, sizeof proto, "%.*s.proto", (int)(strrchr(path, '.') - path), path);
    CLEANUP(bytes_done) struct bytes faults = file_read(path);
    CLEANUP(command_done) struct command command = sagactl(NULL, WORDS("check", proto));
    assert_int_equal(command.exit_code, 1);
    for (char *where = (char *)faults.data; *where;) {
        char line[4096];
        char *text = strchr(where, '\n');
        char *end = strchr(text + 1, '\n');
        (void)snprintf(line, sizeof line, "%.*s: %.*s\n", (int)(text - where), where,
                       (int)(end - text - 5), text + 5);
        if (count_of(command.output, line) != 1)
            fail_msg("%s: \"%s\" is not once in: %s", proto, line, command.output);
        where = end + 1;
        lines++;
    }
    assert_true(lines > 0);
}

static void test_every_fault_is_told_where_it_was_written(void **state)
{
    (void)state;
    glob_t files;
    assert_int_equal(glob(GOLDEN "*.faults", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 8);
    for (size_t i = 0; i < files.gl_pathc; i++)
        assert_told(files.gl_pathv[i]);
    globfree(&files);
}

/* The rules of definitions, which know nothing of services, are told at the option; and once where
 * every operation takes the default. */
static void test_rules_of_definitions_are_told_at_the_option(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    write_changed(WORDS("lease: \"5s\"", "lease: \"1s\"", "settle_time: \"5s\"\n", "\n"), path);
    expect(NULL, 1,
           WORDS("settlement.proto: bank.v1.Settlement: defaults.lease: ",
                 "settlement.proto: bank.v1.Settlement.NotifyRisk: settle_time: "),
           WORDS("check", path));
    CLEANUP(command_done) struct command command = sagactl(NULL, WORDS("check", path));
    assert_int_equal(count_of(command.output, "\n"), 2);
}

/* --- what does it change? --------------------------------------------------------------------- */

static void test_a_removed_compensation_exits_1(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    write_changed(WORDS("compensated_by: \"WithdrawNotice\"", "no_compensation: true",
                        "rpc WithdrawNotice(WithdrawRequest) returns (google.protobuf.Empty) {\n"
                        "    option (saga.v1.compensation) = {\n"
                        "      effect: EFFECT_IDEMPOTENT\n"
                        "      attempt_timeout: \"5s\"\n"
                        "      retry: { initial: \"1s\" cap: \"5s\" }\n"
                        "    };\n  }\n",
                        "\n"),
                  path);
    EXPECT(0, "ok: settlement, 3 steps\n", "check", path); /* by itself it is right */
    expect(NULL, 1,
           WORDS("BREAKING  steps.notify_risk.compensation: was removed",
                 "ok: settlement, 3 steps; against " GOLDEN "settlement.proto: 1 breaking change"),
           WORDS("check", path, "--against", settlement));
    EXPECT(1, "BREAKING  steps.notify_risk.compensation: was removed", "diff", settlement, path);
}

static void test_exit_codes_by_the_gravest_change(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[5];
        int exit_code;
        const char *told;
    } cases[] = {
        { { NULL }, 0, "settlement.proto: no difference\n" },
        { { "description: \"Debit", "description: \"First debit" }, 0, "1 note\n" },
        { { "deadline: \"1h\"", "deadline: \"30m\"" }, 2, "WARNING   deadline: was 1h, is 30m: " },
        { { "deadline: \"1h\"", "deadline: \"30m\"", "description: \"Debit", "description: \"A" },
          2,
          "1 warning, 1 note\n" },
        { { "key: \"{payment_id}\"", "key: \"{account}\"" }, 1, "BREAKING  key: was " },
        { { "key: \"{payment_id}\"", "key: \"{account}\"", "deadline: \"1h\"",
            "deadline: \"30m\"" },
          1,
          "1 breaking change, 1 warning\n" },
        { { "int64 amount_cents = 3", "string amount_cents = 3" }, 1, "BREAKING  input_type: " },
        { { "effect: EFFECT_AT_MOST_ONCE", "effect: EFFECT_IDEMPOTENT" },
          1,
          "BREAKING  steps.notify_risk.action.effect: " },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[SCRATCH_PATH_SIZE];
        write_changed(cases[i].pairs, path);
        EXPECT(cases[i].exit_code, cases[i].told, "check", path, "--against", settlement);
    }
}

static void test_json_of_a_check_is_a_definition_again(void **state)
{
    (void)state;
    char set[SCRATCH_PATH_SIZE], path[SCRATCH_PATH_SIZE];
    json_error_t where;
    CLEANUP(bytes_done) struct bytes bytes = set_of_file(settlement);
    CLEANUP(command_done)
    struct command command = sagactl(NULL, WORDS("check", settlement, "-o", "json"));
    json_t *value = json_loads(command.output, JSON_REJECT_DUPLICATES, &where);
    json_t *definition = NULL;
    assert_int_equal(command.exit_code, 0);
    assert_int_equal(json_unpack(value, "{s:[{s:o}]}", "sagas", "definition", &definition), 0);
    char *text = json_dumps(definition, 0);
    write_source("d.json", text, path);
    free(text); /* NOLINT: jansson's */
    json_decref(value);
    write_source("set.binpb", "", set);
    file_write(set, bytes.data, bytes.size);
    EXPECT(0, "settlement: no difference\n", "diff", settlement, path, "--descriptors", set);
    EXPECT(0, "ok: settlement, 3 steps", "check", path, "--descriptors", set);
    EXPECT(1, "d.json: types: names bank.v1.Payment, and there are no descriptors", "check", path);
    write_changed(WORDS("deadline: \"1h\"", "deadline: \"30m\""), path);
    CLEANUP(command_done)
    struct command changed =
        sagactl(NULL, WORDS("check", path, "--against", settlement, "-o", "json"));
    const char *severity = NULL;
    assert_int_equal(changed.exit_code, 2);
    value = json_loads(changed.output, JSON_REJECT_DUPLICATES, &where);
    assert_int_equal(
        json_unpack(value, "{s:[{s:[{s:s}]}]}", "sagas", "changes", "severity", &severity), 0);
    assert_string_equal(severity, "WARNING");
    json_decref(value);
}

/* --- where it comes from ---------------------------------------------------------------------- */

static void test_a_set_of_several_sagas(void **state)
{
    (void)state;
    char set[SCRATCH_PATH_SIZE];
    write_source("all.binpb", "", set);
    run("%s -I %s -I %s -I %s/proto --include_imports --include_source_info "
        "--descriptor_set_out=%s settlement.proto fulfilment.proto",
        PROTOC, GOLDEN, PROTO_WELL_KNOWN, SOURCE_DIR, set);
    expect(NULL, 0, WORDS("ok: settlement, 3 steps", "ok: fulfilment, 4 steps"),
           WORDS("check", set));
    CLEANUP(command_done)
    struct command one = sagactl(NULL, WORDS("check", set, "--service", "bank.v1.Settlement"));
    assert_int_equal(one.exit_code, 0);
    assert_null(strstr(one.output, "fulfilment"));
    EXPECT(0, "ok: fulfilment", "check", set, "--service", "Fulfilment");
    EXPECT(1, "its sagas are bank.v1.Settlement, shop.v1.Fulfilment", "check", set, "--service",
           "Settle");
    /* each against the one of its name; what is new, and what is gone */
    expect(NULL, 0,
           WORDS("ok: settlement, 3 steps; against ", ": no difference\n",
                 "ok: fulfilment, 4 steps; new, there is nothing to compare with"),
           WORDS("check", set, "--against", settlement));
    EXPECT(0, "NOTE      fulfilment is not there any more", "check", settlement, "--against", set);
    EXPECT(0, "NOTE      fulfilment is not there any more", "diff", set, settlement);
}

/* Two sagas, each with options of its own. */
static void write_two(const char *first, const char *second, char ret[SCRATCH_PATH_SIZE])
{
    CLEANUP(buf_done_p) struct buf text = { 0 };
    buf_printf(&text,
               "syntax = \"proto3\";\nimport \"saga/v1/options.proto\";\n"
               "message In { string id = 1; string to = 2; }\n"
               "service First { option (saga.v1.saga) = { input: \"In\" %s }; rpc Do(In) returns "
               "(In) { option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT no_compensation: true "
               "}; } }\n"
               "service Second { option (saga.v1.saga) = { input: \"In\" %s }; rpc Do(In) returns "
               "(In) { option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT no_compensation: true "
               "}; } }\n",
               first, second);
    write_source("two.proto", buf_cstr(&text), ret);
}

/* Of several sagas the gravest counts, whichever comes first; the others are told as well. */
static void test_the_exit_code_of_several_sagas(void **state)
{
    (void)state;
    static const char hour[] = "key: \"{id}\" deadline: \"1h\"";
    static const char shorter[] = "key: \"{id}\" deadline: \"30m\""; /* 2 */
    static const char other[] = "key: \"{to}\" deadline: \"1h\"";    /* 1 */
    static const char wrong[] = "key: \"{nothing}\"";                /* 1: a fault */
    static const struct {
        const char *first, *second;
        int exit_code;
        const char *told[2];
    } cases[] = {
        { hour, hour, 0, { "ok: first", "ok: second" } },
        { shorter, hour, 2, { "WARNING   deadline", "ok: second" } },
        { hour, shorter, 2, { "ok: first", "WARNING   deadline" } },
        { shorter, other, 1, { "WARNING   deadline", "BREAKING  key" } },
        { other, shorter, 1, { "BREAKING  key", "WARNING   deadline" } },
        { wrong, shorter, 1, { "two.proto: First: key: ", "WARNING   deadline" } },
    };
    char was[SCRATCH_PATH_SIZE], is[SCRATCH_PATH_SIZE];
    write_two(hour, hour, was);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        write_two(cases[i].first, cases[i].second, is);
        expect(NULL, cases[i].exit_code, WORDS(cases[i].told[0], cases[i].told[1]),
               WORDS("check", is, "--against", was));
    }
}

static void test_imports(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE], other[SCRATCH_PATH_SIZE], folder[SCRATCH_PATH_SIZE];
    static const char source[] =
        "syntax = \"proto3\";\npackage x.v1;\nimport \"saga/v1/options.proto\";\n"
        "import \"google/protobuf/empty.proto\";\nimport \"google/protobuf/timestamp.proto\";\n"
        "import \"common/money.proto\";\n"
        "service X {\n  option (saga.v1.saga) = { input: \"common.Money\" };\n"
        "  rpc Do(common.Money) returns (google.protobuf.Timestamp) {\n"
        "    option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT no_compensation: true };\n  }\n}";
    write_source("x.proto", source, path);
    EXPECT(1, "common/money.proto: File not found", "check", path);
    write_source("money.proto",
                 "syntax = \"proto3\"; package common; import \"saga/v1/options.proto\";"
                 "message Money { int64 units = 1; }\n"
                 "service Y { option (saga.v1.saga) = { input: \"Money\" }; rpc Do(Money) "
                 "returns (Money) { option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT "
                 "no_compensation: true }; } }",
                 other);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(other, '/') - other), other);
    run("mkdir %s/common && mv %s %s/common", folder, other, folder);
    CLEANUP(command_done)
    struct command command = sagactl(NULL, WORDS("check", "-I", folder, path));
    assert_int_equal(command.exit_code, 0);
    assert_non_null(strstr(command.output, "ok: x, 1 step\n"));
    assert_null(strstr(command.output, "ok: y")); /* that of an import is not asked for */
    (void)snprintf(other, sizeof other, "-I%.*s", SCRATCH_PATH_SIZE - 8, folder);
    EXPECT(0, "ok: x, 1 step\n", "check", path, other);
    EXPECT(0, "ok: x, 1 step\n", "check", path, "--proto-path", "/nonexistent", "--proto-path",
           folder);
    expect("SAGACTL_PROTO_PATH=/nonexistent", 1,
           WORDS("/nonexistent does not hold saga/v1/options.proto"),
           WORDS("check", path, "-I", folder));
    EXPECT(0, "ok: x, 1 step\n", "check", path, "-I", folder, "-I", protos);
}

static void test_what_cannot_be_read(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    write_source("bad.proto", "syntax = \"proto3\";\nnonsense", path);
    /* as protoc says it, and what it means */
    expect(NULL, 1, WORDS("bad.proto:2:1: Expected top-level statement", "protoc refuses it"),
           WORDS("check", path));
    EXPECT(1, "/nonexistent.proto: No such file", "check", "/nonexistent.proto");
    EXPECT(1, "no service in it is a saga", "check", no_saga);
    expect("PATH=/nonexistent", 1,
           WORDS("needs protoc", "protobuf-compiler", "a descriptor set (buf build"),
           WORDS("check", settlement));
    write_source("bad.binpb", "nonsense", path);
    EXPECT(1, "bad.binpb: is not a usable descriptor set", "check", path);
    write_source("bad.json", "{\"name\":", path);
    EXPECT(1, "bad.json: line 1", "check", path);
    write_source("bad.json", "{\"name\": \"bad\", \"steps\": [{\"name\": \"A\", \"action\": {}}]}",
                 path);
    expect(NULL, 1,
           WORDS("bad.json: steps[0].name: ", "bad.json: steps[0].action.effect: ",
                 "bad.json: steps[0].undo: "),
           WORDS("check", path));
    EXPECT(1, "it needs no --service", "check", path, "--service", "x");
    EXPECT(1, "bad.json: steps[0].name: ", "check", settlement, "--against", path);
    EXPECT(2, "two ways to say the same", "check", path, "--against", path, "--server");
    EXPECT(2, "--revision needs --server", "check", path, "--revision", "3");
    EXPECT(1, "Does a sagad serve on 127.0.0.1:1?", "check", settlement, "--server", "--address",
           "127.0.0.1:1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_service_is_drawn),
        cmocka_unit_test(test_every_fault_is_told_where_it_was_written),
        cmocka_unit_test(test_rules_of_definitions_are_told_at_the_option),
        cmocka_unit_test(test_a_removed_compensation_exits_1),
        cmocka_unit_test(test_exit_codes_by_the_gravest_change),
        cmocka_unit_test(test_json_of_a_check_is_a_definition_again),
        cmocka_unit_test(test_a_set_of_several_sagas),
        cmocka_unit_test(test_the_exit_code_of_several_sagas),
        cmocka_unit_test(test_imports),
        cmocka_unit_test(test_what_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
