/* sagactl definition against a real server. Goal: a service becomes a revision and its author sees
 * what changed; what would break is not stored by accident; an older revision is the rollback; a
 * definition that is paused starts nothing; what sagas need cannot be deleted; each refusal says
 * what to do. Method: the program as people run it, on the service in golden/ and copies with a few
 * words changed. */
#include "support/sagactl.h"
#include "support/scratch.h"

#include "base/buf.h"

#include <stdio.h>
#include <sys/stat.h>

#define GOLDEN SOURCE_DIR "/tests/definitions/golden/"

static const char settlement[] = GOLDEN "settlement.proto";
static const char fulfilment[] = GOLDEN "fulfilment.proto";
static struct rig rig;

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

static void expect(int exit_code, const char *const *parts, const char *const *words)
{
    const char *all[COMMAND_ARGS_MAX] = { "definition" };
    for (size_t i = 0; words[i]; i++) {
        assert_true(i + 2 < COMMAND_ARGS_MAX);
        all[i + 1] = words[i];
    }
    sagactl_expect(&rig, exit_code, parts, all);
}
#define EXPECT(exit_code, part, ...) expect(exit_code, WORDS(part), WORDS(__VA_ARGS__))
#define SAGACTL(exit_code, part, ...)                                                              \
    sagactl_expect(&rig, exit_code, WORDS(part), WORDS(__VA_ARGS__))

/* What is BREAKING, and no revision that sagas run and that needs a handler that went. */
static void expect_not_live(const char *verb, const char *first, const char *second)
{
    char address[64];
    (void)snprintf(address, sizeof address, "SAGACTL_ADDRESS=%s", rig.address);
    CLEANUP(command_done)
    struct command command =
        command_run(WORDS(SAGACTL_BINARY, "definition", verb, first, second), WORDS(address));
    assert_int_equal(command.exit_code, 1);
    assert_non_null(strstr(command.output, "BREAKING"));
    assert_null(strstr(command.output, "LIVE"));
}

static void read_text(const char *path, struct buf *ret)
{
    char block[4096];
    size_t size;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while ((size = fread(block, 1, sizeof block, file)) > 0)
        buf_append(ret, block, size);
    assert_int_equal(fclose(file), 0);
}

/* A file of that name, in a folder of its own. */
static void write_text(const char *text, const char *name, char ret[SCRATCH_PATH_SIZE])
{
    char folder[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("source", folder, &err), &err);
    assert_int_equal(mkdir(folder, 0700), 0);
    (void)snprintf(ret, SCRATCH_PATH_SIZE, "%.*s/%s", SCRATCH_PATH_SIZE - 64, folder, name);
    FILE *file = fopen(ret, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The text with each `from` replaced; at least one. */
static void replace(struct buf *text, const char *from, const char *to)
{
    CLEANUP(buf_done_p) struct buf changed = { 0 };
    const char *left = buf_cstr(text), *at;
    assert_non_null(strstr(left, from));
    for (; (at = strstr(left, from)); left = at + strlen(from)) {
        buf_append(&changed, left, (size_t)(at - left));
        buf_text(&changed, to);
    }
    buf_text(&changed, left);
    buf_clear(text);
    buf_text(text, buf_cstr(&changed));
}

/* settlement.proto under another name, so that each test has a definition of its own, and with
 * words changed: pairs of old and new, NULL at the end. */
static void write_changed(const char *name, const char *const *pairs, char ret[SCRATCH_PATH_SIZE])
{
    char named[128];
    CLEANUP(buf_done_p) struct buf text = { 0 };
    read_text(settlement, &text);
    (void)snprintf(named, sizeof named, "name: \"%s\" input: \"Payment\"", name);
    replace(&text, "input: \"Payment\"", named);
    for (; *pairs; pairs += 2)
        replace(&text, pairs[0], pairs[1]);
    write_text(buf_cstr(&text), "settlement.proto", ret);
}

#define WITHOUT_UNDO                                                                               \
    "compensated_by: \"WithdrawNotice\"", "no_compensation: true",                                 \
        "rpc WithdrawNotice(WithdrawRequest) returns (google.protobuf.Empty) {\n"                  \
        "    option (saga.v1.compensation) = {\n"                                                  \
        "      effect: EFFECT_IDEMPOTENT\n"                                                        \
        "      attempt_timeout: \"5s\"\n"                                                          \
        "      retry: { initial: \"1s\" cap: \"5s\" }\n"                                           \
        "    };\n  }\n",                                                                           \
        ""
#define SHORTER "deadline: \"1h\"", "deadline: \"30m\""

static void test_apply_tells_what_changed(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    EXPECT(0, "ok: settlement, 3 steps; new, there is nothing to compare with", "check", settlement,
           "--server");
    EXPECT(0, "settlement: valid; it would be revision 1\n", "apply", settlement,
           "--validate-only");
    EXPECT(1, "NOT_FOUND", "show", "settlement");
    EXPECT(0, "settlement: revision 1, new sagas take it\n", "apply", settlement);
    EXPECT(0, "settlement: nothing new, it is revision 1\n", "apply", settlement);
    EXPECT(0, "ok: settlement, 3 steps; against revision 1: no difference", "check", settlement,
           "--server");
    write_changed("settlement", WORDS(SHORTER), path);
    expect(2, WORDS("WARNING   deadline: was 1h, is 30m: ", "against revision 1: 1 warning"),
           WORDS("check", path, "--server"));
    expect(0, WORDS("WARNING   deadline: ", "would be revision 2; from revision 1: 1 warning"),
           WORDS("apply", path, "--validate-only"));
    expect(0,
           WORDS("WARNING   deadline: was 1h, is 30m: ",
                 "settlement: revision 2, new sagas take it; from revision 1: 1 warning\n"),
           WORDS("apply", path));
    EXPECT(0, "against revision 1: no difference", "check", settlement, "--server", "--revision",
           "1");
    /* what was there before is taken again */
    EXPECT(0, "settlement: nothing new, it is revision 1, new sagas take it; from revision 2: ",
           "apply", settlement);
    EXPECT(0, "settlement: nothing new, it is revision 2, new sagas take it; from revision 1: ",
           "apply", path);
    EXPECT(1, "NOT_FOUND", "check", settlement, "--server", "--revision", "3");
    json_t *answer = sagactl_json(&rig, WORDS("definition", "apply", path, "-o", "json"));
    int revision = 0, created = 1;
    assert_int_equal(json_unpack(answer, "{s:{s:i}, s:b}", "registered", "revision", &revision,
                                 "created", &created),
                     0);
    assert_int_equal(revision, 2);
    assert_false(created);
    json_decref(answer);
}

static void test_what_breaks_is_stored_on_purpose_only(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE], bad[SCRATCH_PATH_SIZE];
    write_changed("breaking", (const char *const[]){ NULL }, path);
    EXPECT(0, "breaking: revision 1, ", "apply", path);
    write_changed("breaking", WORDS(WITHOUT_UNDO, SHORTER), bad);
    expect(1,
           WORDS("BREAKING  steps.notify_risk.compensation: was removed", "WARNING   deadline: ",
                 "sagactl: breaking: 1 change from revision 1 is BREAKING: nothing was stored"
                 " (--breaking-ok"),
           WORDS("apply", bad));
    EXPECT(1, "nothing was stored", "apply", bad, "--validate-only");
    EXPECT(1, "NOT_FOUND", "show", "breaking@2");
    EXPECT(1, "BREAKING  steps.notify_risk.compensation: was removed", "check", bad, "--server");
    expect_not_live("check", bad, "--server");
    /* a saga of revision 1 still needs what is removed */
    SAGACTL(0, "started: breaking p-1", "start", "breaking", "{\"payment_id\": \"p-1\"}");
    expect(1,
           WORDS("LIVE      revision 1, which 1 saga still runs, needs "
                 "bank.v1.Settlement.WithdrawNotice: keep workers"),
           WORDS("check", bad, "--server"));
    expect(1, WORDS("LIVE      revision 1, ", "breaking: 1 breaking change, 1 warning\n"),
           WORDS("diff", bad));
    SAGACTL(0, "is COMPENSATED", "cancel", "breaking", "p-1");
    expect_not_live("check", bad, "--server");
    EXPECT(0, "breaking: revision 2, new sagas take it; from revision 1: 1 breaking change, ",
           "apply", bad, "--breaking-ok");
    SAGACTL(0, "revision 2", "start", "breaking", "{\"payment_id\": \"p-2\"}");
    expect_not_live("diff", "breaking@1", "breaking@2"); /* that of revision 2 does not need it */
    EXPECT(0, "breaking: no difference", "diff", "breaking@1", path);
    EXPECT(0, "breaking: no difference", "diff", "breaking@2");
    EXPECT(0, "breaking: no difference", "diff", bad);
}

static void test_an_older_revision_is_the_rollback(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    write_changed("rollback", (const char *const[]){ NULL }, path);
    EXPECT(0, "rollback: revision 1, ", "apply", path);
    write_changed("rollback", WORDS(SHORTER), path);
    EXPECT(0, "rollback: revision 2, new sagas take it", "apply", path);
    SAGACTL(0, "revision 2", "start", "rollback", "{\"payment_id\": \"r-1\"}");
    EXPECT(0, "rollback: new sagas take revision 1\n", "promote", "rollback", "1");
    SAGACTL(0, "revision 1", "start", "rollback", "{\"payment_id\": \"r-2\"}");
    SAGACTL(0, "revision 2", "where", "r-1"); /* for life */
    expect(0, WORDS("2 ", "1         current"), WORDS("list", "rollback"));
    /* stored, and not taken */
    write_changed("rollback", WORDS("deadline: \"1h\"", "deadline: \"45m\""), path);
    expect(0,
           WORDS("rollback: revision 3, new sagas do not take it yet; from revision 1: 1 warning\n",
                 "  sagactl definition promote rollback 3\n"),
           WORDS("apply", path, "--keep-current"));
    SAGACTL(0, "revision 1", "start", "rollback", "{\"payment_id\": \"r-3\"}");
    EXPECT(0, "new sagas take revision 3", "promote", "rollback", "3");
    expect(1, WORDS("NOT_FOUND", "sagactl definition list rollback its revisions"),
           WORDS("promote", "rollback", "4"));
    EXPECT(1, "NOT_FOUND", "promote", "nothing", "1");
    EXPECT(2, "a revision is a number from 1 on, not \"x\"", "promote", "rollback", "x");
    EXPECT(2, "a revision is a number from 1 on, not \"0\"", "promote", "rollback", "0");
    /* what sagas need stays */
    expect(1, WORDS("REVISION_CURRENT", "first sagactl definition promote rollback REVISION"),
           WORDS("delete", "rollback", "3"));
    expect(1, WORDS("REVISION_IN_USE", "sagactl definition list rollback counts those that run"),
           WORDS("delete", "rollback", "2"));
    EXPECT(0, "new sagas take revision 1", "promote", "rollback", "1");
    EXPECT(0, "rollback: revision 3 is deleted\n", "delete", "rollback", "3");
    EXPECT(1, "NOT_FOUND", "delete", "rollback", "3");
    json_t *revisions = sagactl_json(&rig, WORDS("definition", "list", "rollback", "-o", "json"));
    const char *open = NULL;
    int newest = 0;
    assert_int_equal(json_array_size(json_object_get(revisions, "revisions")), 2);
    assert_int_equal(json_unpack(revisions, "{s:[{s:i}, {s:s}]}", "revisions", "revision", &newest,
                                 "openSagas", &open),
                     0);
    assert_int_equal(newest, 2);
    assert_string_equal(open, "2");
    json_decref(revisions);
}

static void test_a_paused_definition_starts_nothing(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    write_changed("paused", (const char *const[]){ NULL }, path);
    EXPECT(0, "paused: revision 1, ", "apply", path);
    SAGACTL(0, "started: ", "start", "paused", "{\"payment_id\": \"s-1\"}");
    EXPECT(0, "paused: current revision 1; paused: none starts", "pause", "paused", "--reason",
           "the bank is down");
    sagactl_expect(&rig, 1, WORDS("UNAVAILABLE", "DEFINITION_PAUSED", "try again in"),
                   WORDS("start", "paused", "{\"payment_id\": \"s-2\"}"));
    SAGACTL(0, "is there already", "start", "paused", "{\"payment_id\": \"s-1\"}");
    EXPECT(0, "paused", "list", "paused");
    expect(0, WORDS("PAUSED: no new sagas since 2", ", by ada (unproven): the bank is down"),
           WORDS("show", "paused"));
    EXPECT(0, "paused: new sagas start again, with revision 1\n", "resume", "paused");
    SAGACTL(0, "started: ", "start", "paused", "{\"payment_id\": \"s-2\"}");
    EXPECT(1, "NOT_FOUND", "pause", "nothing");
    EXPECT(1, "NOT_FOUND", "resume", "nothing");
}

static void test_show_draws_and_tells_all(void **state)
{
    (void)state;
    EXPECT(0, "fulfilment: revision 1, ", "apply", fulfilment);
    expect(
        0,
        WORDS("default/fulfilment, revision 1 (new sagas take it), registered 2",
              "Confirm the order, have a waybill made", "  input    shop.v1.Order\n",
              "  key      {order_id}\n", "  label    country={address.country}\n",
              "PROBED via shop.v1.Fulfilment.CreateWaybill, probe shop.v1.Fulfilment.FindWaybill",
              "if unknown: turns back", "500ms to 2s for 1d",
              "shop.v1.WaybillRequest -> shop.v1.Waybill"),
        WORDS("show", "fulfilment@1"));
    EXPECT(0, "digraph \"fulfilment\" {", "show", "fulfilment", "--dot");
    EXPECT(0, "default/fulfilment, revision 1", "get", "fulfilment", "--revision", "1");
    EXPECT(2, "two different revisions", "show", "fulfilment@1", "--revision", "2");
    expect(1, WORDS("NOT_FOUND", "sagactl definition list tells what there is"),
           WORDS("show", "fulfilment@9"));
    EXPECT(2, "NAME or NAME@REVISION", "show", "@1");
    char path[SCRATCH_PATH_SIZE];
    write_changed("busy", WORDS("deadline:", "max_running: 200 publish: PUBLISH_ENDS deadline:"),
                  path);
    EXPECT(0, "busy: revision 1, ", "apply", path);
    expect(0,
           WORDS("  running  at most 200 at a time, then ingest waits\n",
                 "  events   its end, and each time it parks\n"),
           WORDS("show", "busy"));
    write_changed("busy", WORDS("deadline:", "max_running: -1 deadline:"), path);
    EXPECT(1,
           "settlement.proto: bank.v1.Settlement: max_running: must be 0 (no limit) or more, is -1",
           "check", path);
    json_t *shown = sagactl_json(&rig, WORDS("definition", "show", "fulfilment", "-o", "json"));
    const char *input = NULL;
    assert_int_equal(json_unpack(shown, "{s:{s:s}}", "definition", "inputType", &input), 0);
    assert_string_equal(input, "shop.v1.Order");
    json_decref(shown);
}

/* A set of protoc's or buf's, a definition as JSON with such a set: it is the same. */
static void test_every_kind_of_source_is_the_same_revision(void **state)
{
    (void)state;
    char set[SCRATCH_PATH_SIZE], includes[2][SCRATCH_PATH_SIZE], out[SCRATCH_PATH_SIZE + 32];
    char json[SCRATCH_PATH_SIZE];
    struct err err;
    write_text("", "settlement.binpb", set);
    (void)snprintf(includes[0], sizeof includes[0], "-I%s", GOLDEN);
    (void)snprintf(includes[1], sizeof includes[1], "-I%s/proto", SOURCE_DIR);
    (void)snprintf(out, sizeof out, "--descriptor_set_out=%s", set);
    const char *argv[] = { PROTOC,
                           "--include_imports",
                           "--include_source_info",
                           includes[0],
                           includes[1],
                           out,
                           "settlement.proto",
                           NULL };
    ASSERT_OK(
        test_process_must_succeed(&(struct test_process_options){ .argv = argv }, 30000, &err),
        &err);
    EXPECT(0, "settlement: revision ", "apply", settlement, "--namespace", "kinds");
    EXPECT(0, "settlement: nothing new, it is revision 1\n", "apply", set, "--namespace", "kinds");
    json_t *shown = sagactl_json(
        &rig, WORDS("definition", "show", "settlement", "--namespace", "kinds", "-o", "json"));
    char *text = json_dumps(json_object_get(shown, "definition"), 0);
    write_text(text, "settlement.json", json);
    free(text); /* NOLINT: jansson's */
    json_decref(shown);
    EXPECT(0, "settlement: nothing new, it is revision 1\n", "apply", json, "--descriptors", set);
    EXPECT(1, "descriptors", "apply", json); /* it names types */
    EXPECT(0, "settlement: no difference", "diff", "settlement", set, "--namespace", "kinds");
}

/* Every saga of a source is registered, or none. */
static void test_several_sagas_go_together(void **state)
{
    (void)state;
    static const char good[] =
        "syntax = \"proto3\";\nimport \"saga/v1/options.proto\";\nmessage In { string id = 1; }\n"
        "service %s { option (saga.v1.saga) = { input: \"In\" }; rpc Do(In) returns (In) {"
        " option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT %s }; } }\n"
        "service %s { option (saga.v1.saga) = { input: \"In\" }; rpc Do(In) returns (In) {"
        " option (saga.v1.step) = { effect: EFFECT_IDEMPOTENT no_compensation: true }; } }\n";
    char path[SCRATCH_PATH_SIZE];
    CLEANUP(buf_done_p) struct buf text = { 0 };
    buf_printf(&text, good, "Second", "", "First");
    write_text(buf_cstr(&text), "two.proto", path);
    expect(1, WORDS("INVALID_ARGUMENT", "two.proto: Second.Do: compensated_by: "),
           WORDS("apply", path));
    EXPECT(1, "NOT_FOUND", "show", "first");
    EXPECT(0, "first: revision 1, ", "apply", path, "--service", "First");
    buf_clear(&text);
    buf_printf(&text, good, "Second", "no_compensation: true", "First");
    write_text(buf_cstr(&text), "two.proto", path);
    expect(0, WORDS("second: revision 1, new sagas take it\n", "first: nothing new, it is "),
           WORDS("apply", path));
    /* into another namespace */
    expect(0, WORDS("second: revision 1, ", "first: revision 1, "),
           WORDS("apply", path, "--namespace", "elsewhere"));
    EXPECT(0, "elsewhere/first, revision 1", "show", "first", "--namespace", "elsewhere");
    expect(0, WORDS("default", "elsewhere"), WORDS("list"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apply_tells_what_changed),
        cmocka_unit_test(test_what_breaks_is_stored_on_purpose_only),
        cmocka_unit_test(test_an_older_revision_is_the_rollback),
        cmocka_unit_test(test_a_paused_definition_starts_nothing),
        cmocka_unit_test(test_show_draws_and_tells_all),
        cmocka_unit_test(test_every_kind_of_source_is_the_same_revision),
        cmocka_unit_test(test_several_sagas_go_together),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
