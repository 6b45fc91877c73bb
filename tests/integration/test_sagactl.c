/* sagactl against a real server. Goal: each verb does what its help says, prints JSON that a script
 * can read, and ends with the exit code that it promises; `where` names the step, the tries, the
 * last error, since when, and what it waits for. Method: the program as people run it; sagas whose
 * input tells a real worker what to do. */
#include "support/sagactl.h"
#include "support/scratch.h"
#include "support/wait.h"

#include "base/mem.h"
#include "dispatch/key.h"

#include <stdio.h>

enum { SOON = 10000 };

static const char protos[] = SOURCE_DIR "/proto";
static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "0.5s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker(&rig, "w1", "act:8 undo:8"); /* the rig owns it */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static void expect(int exit_code, const char *const *parts, const char *const *words)
{
    sagactl_expect(&rig, exit_code, parts, words);
}
#define EXPECT(exit_code, part, ...) expect(exit_code, WORDS(part), WORDS(__VA_ARGS__))

/* Runs with -o json; the caller owns the value. */
static json_t *run_json(const char *const *words)
{
    return sagactl_json(&rig, words);
}

static void write_file(const char *name, const char *content, char ret_path[SCRATCH_PATH_SIZE])
{
    struct err err;
    ASSERT_OK(scratch_path(name, ret_path, &err), &err);
    FILE *file = fopen(ret_path, "we");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_a_definition_from_json_and_from_text_format_is_the_same(void **state)
{
    (void)state;
    char json[SCRATCH_PATH_SIZE], text[SCRATCH_PATH_SIZE];
    write_file("d.json",
               "{\"name\": \"forms\", \"steps\": [{\"name\": \"a\", \"noCompensation\": true,"
               " \"action\": {\"handler\": \"act\", \"effect\": \"EFFECT_IDEMPOTENT\","
               " \"lease\": \"7.5s\"}}]}",
               json);
    write_file(
        "d.textproto",
        "name: \"forms\" steps { name: \"a\" no_compensation: true action {"
        " handler: \"act\" effect: EFFECT_IDEMPOTENT lease { seconds: 7 nanos: 500000000 } } }",
        text);
    EXPECT(0, "valid; it would be revision 1", "definition", "apply", json, "--validate-only");
    EXPECT(1, "NOT_FOUND", "definition", "get", "forms");
    EXPECT(0, "forms: revision 1, new sagas take it", "definition", "apply", json);
    EXPECT(0, "forms: nothing new, it is revision 1", "definition", "apply", text, "--proto-path",
           protos);
    EXPECT(0, "IDEMPOTENT via act", "definition", "get", "forms");
    EXPECT(0, "forms", "definition", "list");
    json_t *got = run_json(WORDS("definition", "get", "forms", "-o", "json"));
    const char *lease = NULL;
    assert_int_equal(
        json_unpack(got, "{s:{s:[{s:{s:s}}]}}", "definition", "steps", "action", "lease", &lease),
        0);
    assert_string_equal(lease, "7.500s");
    json_decref(got);
}

static void test_a_faulty_definition_is_told_fault_by_fault(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    write_file("bad.json", "{\"name\": \"bad\", \"steps\": [{\"name\": \"A\", \"action\": {}}]}",
               path);
    expect(1,
           WORDS("INVALID_ARGUMENT",
                 "\n  steps[0].name: ", "\n  steps[0].action.effect: ", "\n  steps[0].undo: "),
           WORDS("definition", "apply", path));
    write_file("typo.json", "{\"name\": \"bad\", \"stepps\": []}", path);
    EXPECT(1, "stepps: saga.v1.SagaDefinition has no field of this name", "definition", "apply",
           path);
    write_file("broken.json", "{\"name\":\n", path);
    EXPECT(1, "line 2", "definition", "apply", path);
    write_file("broken.textproto", "nonsense", path);
    EXPECT(1, "protoc refuses it", "definition", "apply", path, "--proto-path", protos);
    EXPECT(1, "does not hold saga/v1/definition.proto", "definition", "apply", path, "--proto-path",
           "/nonexistent");
    EXPECT(1, "No such file", "definition", "apply", "/nonexistent.json");
}

static void test_text_format_without_protoc_says_what_is_missing(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    write_file("d.txtpb", "name: \"x\"", path);
    const char *const argv[] = { SAGACTL_BINARY, "definition", "apply", path,
                                 "--proto-path", protos,       NULL };
    const char *const env[] = { "PATH=/nonexistent", NULL };
    command_expect(argv, env, 1, "protobuf-compiler");
}

static void test_start_is_safe_to_repeat_and_refuses_other_input(void **state)
{
    (void)state;
    rig_define(&rig, "plain", NULL, "a: IDEMPOTENT | IDEMPOTENT");
    EXPECT(0, "started: plain p 1 (run 1, revision 1, ", "start", "plain", "p 1", "--label",
           "shop=x", "--label", "lane=2");
    EXPECT(0, "is there already: plain p 1", "start", "plain", "p 1");
    EXPECT(1, "ALREADY_EXISTS", "start", "plain", "p 1", "--input", "other");
    EXPECT(1, "INPUT_MISMATCH", "start", "plain", "p 1", "--input-base64", "AAE=");
    EXPECT(1, "NOT_FOUND", "start", "nothing", "p");
    EXPECT(2, "in only one way", "start", "plain", "p", "--input", "a", "--file", "b");
    EXPECT(2, "KEY=VALUE", "start", "plain", "p", "--label", "shop");
    EXPECT(2, "is no base64", "start", "plain", "p", "--input-base64", "*");
    EXPECT(0, "plain p 1 (run 1): SUCCEEDED", "wait", "plain", "p 1", "--timeout", "10");
    expect(0, WORDS("SUCCEEDED since", "labels   lane=2, shop=x", "ended "), WORDS("get", "p 1"));
    json_t *saga = run_json(WORDS("get", "p 1", "-o", "json"));
    const char *shop = NULL, *input = NULL;
    assert_int_equal(json_unpack(saga, "{s:{s:s}, s:s}", "labels", "shop", &shop, "input", &input),
                     0);
    assert_string_equal(shop, "x");
    json_decref(saga);
}

static void test_where_of_an_unknown_outcome_names_all_that_is_known(void **state)
{
    (void)state;
    rig_define(&rig, "lost", NULL, "debit: IDEMPOTENT | IDEMPOTENT\nrisk: ONCE | IDEMPOTENT");
    rig_start(&rig, "lost", "s-17", "risk A 1 unknown code=TIMEOUT message=20");
    EXPECT(4, "lost s-17 (run 1): PARKED", "wait", "s-17", "--or-parked", "--timeout", "10");
    expect(0,
           WORDS("lost s-17  (run 1, revision 1, ", "state    PARKED while RUNNING since 2",
                 "s ago)\n",
                 "parked   OUTCOME_UNKNOWN at step risk: the step may have taken effect",
                 "debit  DONE     1      w1/", "risk   UNKNOWN  1      w1/",
                 "UNKNOWN TIMEOUT: ", "waits    for a person, since ",
                 "next     sagactl --address ", " resolve lost s-17 --step risk --happened"),
           WORDS("where", "s-17"));
    EXPECT(1, "OUTCOME_UNKNOWN", "retry", "s-17");
    EXPECT(6, "PARKED", "wait", "s-17", "--timeout", "300ms");
    EXPECT(0, "cancelled: lost s-17 (run 1) is COMPENSATING", "cancel", "s-17", "--reason",
           "asked for");
    EXPECT(3, "COMPENSATED", "wait", "lost", "s-17", "--timeout", "10");
    expect(0, WORDS("cause    CANCELLED: it was cancelled", "by ada", "asked for"),
           WORDS("where", "s-17"));
    expect(0,
           WORDS("LEASE", "COMPENSATE", "CANCELLED by ada (unproven) asked for", "COMPENSATION",
                 " ms "),
           WORDS("history", "lost", "s-17"));
    EXPECT(0, "is COMPENSATED", "cancel", "s-17"); /* again: nothing to do */
}

static void test_p4_what_a_person_settles_with_evidence(void **state)
{
    (void)state;
    rig_define(&rig, "byhand", NULL, "a: ONCE | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT");
    for (int i = 1; i <= 3; i++) {
        char id[8];
        (void)snprintf(id, sizeof id, "r-%d", i);
        rig_start(&rig, "byhand", id, "a A 1 unknown code=TIMEOUT");
        EXPECT(4, "PARKED", "wait", id, "--or-parked", "--timeout", "10");
    }
    EXPECT(2, "needs --step", "resolve", "r-1", "--happened", "--evidence", "x");
    EXPECT(2, "needs --evidence", "resolve", "r-1", "--step", "a", "--happened");
    EXPECT(2, "--happened or --did-not-happen", "resolve", "r-1", "--step", "a", "--evidence", "x");
    EXPECT(1, "NOTHING_TO_RESOLVE", "resolve", "r-1", "--step", "b", "--happened", "--evidence",
           "x");
    EXPECT(1, "NOT_FOUND", "resolve", "r-1", "--step", "c", "--happened", "--evidence", "x");
    EXPECT(1, "evidence: required", "resolve", "r-1", "--step", "a", "--happened", "--evidence",
           "");
    /* It did not: the bank is asked again. */
    EXPECT(0, "resolved: byhand r-1 (run 1) is RUNNING", "resolve", "r-1", "--step", "a",
           "--did-not-happen", "--evidence", "not on the statement");
    EXPECT(0, "SUCCEEDED", "wait", "byhand", "r-1", "--timeout", "10");
    expect(0, WORDS("RESOLVE", "NOT_DONE", "by ada", "not on the statement", "RESUME"),
           WORDS("history", "byhand", "r-1"));
    /* It did: with what it would have said. */
    char path[SCRATCH_PATH_SIZE];
    write_file("said", "waybill 17", path);
    EXPECT(0, "resolved: byhand r-2 (run 1) is RUNNING", "resolve", "r-2", "--step", "a",
           "--happened", "--evidence", "waybill 17 is there", "--result-file", path);
    EXPECT(0, "SUCCEEDED", "wait", "byhand", "r-2", "--timeout", "10");
    assert_int_equal(rig_count(&rig, RIG_BANK,
                               "SELECT count(DISTINCT fence) FROM calls WHERE saga_id = 'r-2'"
                               " AND step = 'a'"),
                     1);
    EXPECT(1, "NOTHING_TO_RESOLVE", "resolve", "byhand", "r-2", "--step", "a", "--happened",
           "--evidence", "x");
    /* Nobody will ever know. */
    EXPECT(2, "needs --reason", "abandon", "r-3");
    EXPECT(0, "abandoned: byhand r-3 (run 1) is ABANDONED", "abandon", "r-3", "--reason",
           "settled outside");
    EXPECT(0, "is ABANDONED", "abandon", "byhand", "r-3", "--reason", "again");
    expect(0, WORDS("ABANDON", "by ada", "settled outside"), WORDS("history", "byhand", "r-3"));
    /* A compensation that is refused. */
    rig_start(&rig, "byhand", "r-4", "b A 1 rejected\na C * rejected code=CLOSED");
    EXPECT(4, "PARKED", "wait", "byhand", "r-4", "--or-parked", "--timeout", "10");
    EXPECT(1, "SKIP_NOT_ALLOWED", "skip", "byhand", "r-4", "--step", "b", "--evidence", "x");
    EXPECT(2, "needs --evidence", "skip", "byhand", "r-4");
    EXPECT(0, "skipped: byhand r-4 (run 1) is COMPENSATED", "skip", "byhand", "r-4", "--evidence",
           "paid back in cash");
    expect(0, WORDS("SKIP", "COMPENSATION", "by ada", "paid back in cash"),
           WORDS("history", "byhand", "r-4"));
    /* Somebody has yet to look. */
    expect(0, WORDS("byhand", "r-4", "COMPENSATED", "in doubt"), WORDS("list", "--doubt"));
    expect(0,
           WORDS("state    COMPENSATED since 2", ", in doubt\n", "a     COMPENSATION_SKIPPED",
                 "doubt    the compensation of a was skipped",
                 " resolve byhand r-4 --step a --compensation --happened --evidence"),
           WORDS("where", "r-4"));
    EXPECT(0, "resolved: byhand r-4 (run 1) is COMPENSATED", "resolve", "byhand", "r-4", "--step",
           "a", "--compensation", "--happened", "--evidence", "the receipt is signed");
    EXPECT(0, "no saga matches", "list", "--doubt", "--key", "r-4");
}

/* An end by hand is no natural one: audited, and what its worker says afterwards moves nothing. */
static void test_q2_p6_an_end_by_hand_is_audited_and_final(void **state)
{
    (void)state;
    rig_define(&rig, "q2", NULL,
               "z: IDEMPOTENT | IDEMPOTENT\na: ONCE handler=q2 lease=5s attempt_timeout=6s | none");
    (void)rig_worker(&rig, "q2w", "q2:1"); /* the rig owns it */
    rig_start(&rig, "q2", "forced", "a A 1 sleep=9000 done");
    rig_await_call(&rig, "forced", "a", "A", 1, SOON);
    expect(1, WORDS("LEASE_LIVE", "q2w", "until"),
           WORDS("resolve", "forced", "--step", "a", "--did-not-happen", "--evidence", "x"));
    EXPECT(1, "ABANDON_NOT_ALLOWED", "abandon", "forced", "--reason", "x");
    EXPECT(4, "PARKED", "wait", "forced", "--or-parked", "--timeout", "15");
    EXPECT(2, "needs --reason", "abandon", "forced");
    EXPECT(0, "is ABANDONED", "abandon", "forced", "--reason", "settled outside");
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM late_report JOIN saga USING (shard, saga_uid)"
              " WHERE saga_id = 'forced' AND outcome = 'DONE'");
    expect(0, WORDS("ABANDONED", "in doubt"), WORDS("where", "forced"));
    expect(0, WORDS("ABANDON", "by ada", "settled outside"), WORDS("history", "forced"));
    rig_assert_calls(&rig, "forced", "z.1, a.1"); /* nothing was taken back, and nothing repeated */
    EXPECT(1, "CANCEL_NOT_ALLOWED", "cancel", "forced");
}

static void test_where_and_history_tell_what_the_probes_said(void **state)
{
    (void)state;
    rig_define(&rig, "waybill", NULL, "a: PROBED probe_handler=ask | none | settle=0s");
    rig_start(&rig, "waybill", "b-1",
              "a A 1 unknown code=TIMEOUT\na P 1 still_unknown code=BUSY\na P 2 not_done\n"
              "a A 2 unknown code=TIMEOUT\na P * done out=17");
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
              " WHERE saga_id = 'b-1' AND outcome = 'UNKNOWN'");
    expect(0,
           WORDS("a     UNKNOWN  1      w1/", "unknown  the action of a may have taken effect\n",
                 "attempt  lease with fence 1 given to w1/", "ago): UNKNOWN TIMEOUT: ",
                 "class    PROBED: not repeated before a probe has found out",
                 "settled  no request can be on its way any more since 2",
                 "probes   0 asked; the next one is due", "key      ",
                 " resolve waybill b-1 --step a --did-not-happen --fence ",
                 "a worker that serves ask for the probe of a: nobody serves it"),
           WORDS("where", "b-1"));
    json_t *sagas = run_json(WORDS("where", "b-1", "-o", "json"));
    const char *effect = NULL;
    assert_int_equal(
        json_unpack(sagas, "{s:[{s:[{s:{s:s}}]}]}", "sagas", "steps", "unknown", "effect", &effect),
        0);
    assert_string_equal(effect, "EFFECT_PROBED");
    json_decref(sagas);
    struct test_process *asked = rig_worker(&rig, "p1", "ask:2");
    EXPECT(0, "SUCCEEDED", "wait", "waybill", "b-1", "--timeout", "10");
    rig_worker_kill(&rig, asked);
    expect(0,
           WORDS("answered STILL_UNKNOWN BUSY", "answered NOT_DONE",
                 "answered DONE 17, granted by rig/", "the probe at #3 said NOT_DONE",
                 "said DONE\n"),
           WORDS("history", "waybill", "b-1"));
    EXPECT(0, "PROBED via act, probe ask", "definition", "get", "waybill");
}

static void test_a_start_that_takes_over_waits_for_a_person_where_it_must(void **state)
{
    (void)state;
    rig_define(&rig, "taken", NULL, "a: ONCE | none\nb: IDEMPOTENT | none");
    EXPECT(0, "started: taken over-1", "start", "taken", "over-1", "--suspect-since", "2h");
    EXPECT(2, "--suspect-since must be a time", "start", "taken", "over-2", "--suspect-since",
           "soon");
    rig_await_state(&rig, "taken", "over-1", "PARKED OUTCOME_UNKNOWN", SOON);
    expect(0,
           WORDS("MAY_HAVE_RUN: step \"a\" may have run before this saga took it over",
                 "none of this saga's: it may have run before sagad took over, since ", "(2 h ago)",
                 "suspect  may have run before sagad took over: b\n"),
           WORDS("where", "over-1"));
    expect(0, WORDS("SUSPECT", "each step may have run before by ada (unproven)"),
           WORDS("history", "taken", "over-1"));
    EXPECT(0, "resolved: taken over-1", "resolve", "over-1", "--step", "a", "--did-not-happen",
           "--evidence", "it is not in the books");
    EXPECT(0, "SUCCEEDED", "wait", "taken", "over-1", "--timeout", "10");
    rig_assert_calls(&rig, "over-1", "a.1, b.1");
    EXPECT(0, "started: taken over-3", "start", "taken", "over-3", "--suspect");
    rig_await_state(&rig, "taken", "over-3", "PARKED OUTCOME_UNKNOWN", SOON);
}

static void test_suspend_and_resume_say_who_and_why(void **state)
{
    (void)state;
    rig_define(&rig, "stopped", NULL, "a: IDEMPOTENT handler=bank.later | none");
    rig_start(&rig, "stopped", "t-1", "");
    EXPECT(2, "needs --reason", "suspend", "t-1");
    EXPECT(0, "suspended: stopped t-1 (run 1) is PARKED", "suspend", "t-1", "--reason",
           "bank is down");
    expect(0,
           WORDS("state    PARKED while RUNNING since 2",
                 "parked   SUSPENDED: a person stopped it for now", "because: bank is down",
                 " resume stopped t-1   (go on"),
           WORDS("where", "t-1"));
    EXPECT(1, "RETRY_NOT_ALLOWED", "retry", "t-1");
    expect(0, WORDS("COUNT", "1      t-1 ", "SUSPENDED", " resume stopped t-1\n"),
           WORDS("parked", "--definition", "stopped"));
    json_t *parked = run_json(WORDS("parked", "--definition", "stopped", "-o", "json"));
    const char *count = NULL, *reason = NULL;
    assert_int_equal(
        json_unpack(parked, "{s:[{s:s, s:s}]}", "groups", "count", &count, "reason", &reason), 0);
    assert_string_equal(count, "1");
    assert_string_equal(reason, "PARK_REASON_SUSPENDED");
    json_decref(parked);
    EXPECT(0, "resumed: stopped t-1 (run 1) is RUNNING", "resume", "stopped", "t-1", "--reason",
           "it is back");
    EXPECT(0, "resumed: stopped t-1 (run 1) is RUNNING", "resume", "t-1");
    expect(0,
           WORDS("SUSPENDED by ada (unproven) bank is down",
                 "ended the PARK at #1 by ada (unproven) it is back"),
           WORDS("history", "t-1"));
    EXPECT(0, "nothing is parked", "parked", "--definition", "stopped");
    EXPECT(1, "definition: control characters", "parked", "--definition", "a\nb");
}

static void test_the_guard_floor_comes_with_its_sql(void **state)
{
    (void)state;
    rig_define(&rig, "open", NULL, "a: IDEMPOTENT handler=bank.later | none");
    rig_start(&rig, "open", "g-1", "");
    char day[32];
    rig_text(&rig, RIG_STORE, day, sizeof day,
             "SELECT to_char(min(started_at) - interval '48 h', 'YYYY-MM-DD HH24:MI:SS') FROM saga"
             " WHERE ended_at IS NULL");
    expect(0,
           WORDS("  held down by ", ", which is open since 2", "saga_guard.raise_floor('", day,
                 "saga_guard.purge(10000)", "GREATEST(floor_us, 1"),
           WORDS("guard", "floor", "--margin", "48h"));
    EXPECT(2, "--margin must be a time such as", "guard", "floor", "--margin", "1w");
    EXPECT(1, "margin: must be 0 s to 366 days", "guard", "floor", "--margin", "9000h");
    json_t *floor = run_json(WORDS("guard", "floor", "-o", "json"));
    const char *time = NULL;
    assert_int_equal(json_unpack(floor, "{s:s}", "floor", &time), 0);
    json_decref(floor);
}

static void test_where_tells_what_nobody_serves_and_when_it_is_tried_again(void **state)
{
    (void)state;
    rig_define(&rig, "unserved", NULL, "a: IDEMPOTENT handler=bank.none | none");
    rig_define(&rig, "backoff", NULL, "a: IDEMPOTENT initial=40s cap=60s | none");
    rig_define(&rig, "leased", NULL, "a: IDEMPOTENT | none");
    rig_start(&rig, "unserved", "n-1", "");
    rig_start(&rig, "backoff", "n-2", "a A 1 after=30000 retry code=BUSY\n");
    rig_start(&rig, "leased", "n-3", "a A 1 sleep=4000\n");
    rig_await_call(&rig, "n-3", "a", "A", 1, SOON);
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
              " WHERE saga_id = 'n-2' AND outcome = 'RETRY'");
    expect(0,
           WORDS("a worker that serves bank.none for a: nobody serves it",
                 "next     start a worker that serves bank.none"),
           WORDS("where", "n-1"));
    expect(0,
           WORDS("BACKOFF", "RETRY BUSY", "for the next try for a at 2", "(in ",
                 " retry backoff n-2   (now"),
           WORDS("where", "n-2"));
    expect(0, WORDS("LEASED", "for the report of worker w1/", "whose lease ends at 2"),
           WORDS("where", "n-3"));
    EXPECT(0, "tried again: backoff n-2 (run 1) is RUNNING", "retry", "n-2", "--step", "a");
    EXPECT(0, "SUCCEEDED", "wait", "n-2", "--timeout", "10");
}

static void test_where_shows_every_definition_and_run_of_a_key(void **state)
{
    (void)state;
    rig_define(&rig, "one", NULL, "a: IDEMPOTENT | none");
    rig_define(&rig, "two", NULL, "a: IDEMPOTENT | none");
    rig_start(&rig, "one", "shared", "");
    rig_start(&rig, "two", "shared", "");
    expect(0, WORDS("one shared  (run 1", "two shared  (run 1"), WORDS("where", "shared"));
    EXPECT(1, "say which:", "get", "shared");
    EXPECT(0, "two shared  (run 1", "get", "two", "shared");
    json_t *sagas = run_json(WORDS("where", "shared", "--definition", "two", "-o", "json"));
    assert_int_equal(json_array_size(json_object_get(sagas, "sagas")), 1);
    const char *uid = NULL;
    assert_int_equal(json_unpack(sagas, "{s:[{s:s}]}", "sagas", "uid", &uid), 0);
    EXPECT(0, "two shared  (run 1", "where", uid);
    EXPECT(0, "two shared  (run 1", "get", uid);
    json_decref(sagas);
    expect(1, WORDS("no saga has the key nothing", "sagactl list --prefix nothing"),
           WORDS("where", "nothing"));
    EXPECT(1, "NOT_FOUND", "get", "one", "nothing");
}

static void test_list_filters_and_pages(void **state)
{
    (void)state;
    rig_define(&rig, "many", NULL, "a: IDEMPOTENT | none");
    rig_start_many(&rig, "many", "m-", 620, "");
    rig_await_states(&rig, "many", "m-", "SUCCEEDED", 620, 30000);
    json_t *all = run_json(WORDS("list", "--prefix", "m-", "--all", "-o", "json"));
    assert_int_equal(json_array_size(json_object_get(all, "sagas")), 620);
    json_decref(all);
    json_t *some = run_json(WORDS("list", "--definition", "many", "--state", "succeeded", "--limit",
                                  "7", "--oldest-first", "-o", "json"));
    assert_int_equal(json_array_size(json_object_get(some, "sagas")), 7);
    json_decref(some);
    expect(0, WORDS("DEFINITION", "KEY", "SUCCEEDED", "there are more: --all"),
           WORDS("list", "--limit", "3", "--definition", "many"));
    EXPECT(0, "no saga matches", "list", "--definition", "many", "--state", "PARKED");
    EXPECT(2, "--state must be RUNNING", "list", "--state", "stuck");
    EXPECT(0, "m-11 ", "list", "--key", "m-11");
}

static void test_status_counts(void **state)
{
    (void)state;
    json_t *status = run_json(WORDS("status", "-o", "json"));
    json_t *counters = json_object_get(status, "counters");
    assert_true(json_array_size(counters) > 10);
    const char *name = NULL, *value = NULL, *help = NULL;
    assert_int_equal(json_unpack(json_array_get(counters, 0), "{s:s, s:s, s:s}", "name", &name,
                                 "value", &value, "help", &help),
                     0);
    assert_true(json_array_size(json_object_get(status, "handlers")) > 0);
    json_decref(status);
    expect(0, WORDS("COUNTER", "HANDLER", "act"), WORDS("status"));
}

static void test_key_is_what_the_worker_was_given_and_needs_no_server(void **state)
{
    (void)state;
    char key[IDEMPOTENCY_KEY_SIZE], line[64];
    assert_int_equal(
        idempotency_key("default", "settlement", "o-1", 1, "debit", OPERATION_ACTION, 0, key), 0);
    (void)snprintf(line, sizeof line, "%s\n", key);
    const char *const argv[] = { SAGACTL_BINARY, "--address", "127.0.0.1:1", "key",
                                 "settlement",   "o-1",       "debit",       NULL };
    command_expect(argv, NULL, 0, line);
    assert_int_equal(
        idempotency_key("default", "settlement", "o-1", 1, "debit", OPERATION_ACTION, 2, key), 0);
    EXPECT(0, key, "key", "settlement", "o-1", "debit", "--generation", "2");
    EXPECT(2, "--generation must be a number", "key", "a", "b", "c", "--generation", "-1");
    rig_define(&rig, "keyed", NULL, "a: IDEMPOTENT | none");
    rig_start(&rig, "keyed", "k", "");
    rig_await_state(&rig, "keyed", "k", "SUCCEEDED", SOON);
    char given[64];
    EXPECT(
        0,
        rig_text(&rig, RIG_BANK, given, sizeof given, "SELECT key FROM calls WHERE saga_id = 'k'"),
        "key", "keyed", "k", "a");
    EXPECT(0, "digraph", "fsm", "--dot");
    EXPECT(0, "| from |", "fsm", "--markdown");
    EXPECT(2, "which one", "fsm");
}

static void test_wait_outlives_a_restart_of_the_server(void **state)
{
    (void)state;
    rig_define(&rig, "patient", NULL, "a: IDEMPOTENT | none");
    rig_start(&rig, "patient", "w", "a A 1 sleep=3000\n");
    const char *const argv[] = { SAGACTL_BINARY, "--address", rig.address, "wait", "patient", "w",
                                 "--timeout",    "30",        NULL };
    struct test_process *wait;
    struct err err;
    int status;
    ASSERT_OK(test_process_run(argv, &wait, &err), &err);
    rig_await_call(&rig, "w", "a", "A", 1, SOON);
    wait_ms(300); /* its call is open now */
    int64_t slow = rig_server_stop(&rig, 15000);
    assert_true(slow < 15000);
    rig_server_start(&rig);
    ASSERT_OK(test_process_wait(wait, 40000, &status, &err), &err);
    char *output = test_process_output(wait);
    if (status != 0)
        fail_msg("sagactl wait: status %d: %s", status, output);
    mem_free(output);
    wait = test_process_free(wait);
}

static void test_a_server_that_is_away_is_told_with_its_address(void **state)
{
    (void)state;
    const char *const argv[] = { SAGACTL_BINARY, "--address", "127.0.0.1:1", "status", NULL };
    command_expect(argv, NULL, 1, "Does a sagad serve on 127.0.0.1:1?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_definition_from_json_and_from_text_format_is_the_same),
        cmocka_unit_test(test_a_faulty_definition_is_told_fault_by_fault),
        cmocka_unit_test(test_text_format_without_protoc_says_what_is_missing),
        cmocka_unit_test(test_start_is_safe_to_repeat_and_refuses_other_input),
        cmocka_unit_test(test_where_of_an_unknown_outcome_names_all_that_is_known),
        cmocka_unit_test(test_p4_what_a_person_settles_with_evidence),
        cmocka_unit_test(test_q2_p6_an_end_by_hand_is_audited_and_final),
        cmocka_unit_test(test_where_and_history_tell_what_the_probes_said),
        cmocka_unit_test(test_a_start_that_takes_over_waits_for_a_person_where_it_must),
        cmocka_unit_test(test_suspend_and_resume_say_who_and_why),
        cmocka_unit_test(test_the_guard_floor_comes_with_its_sql),
        cmocka_unit_test(test_where_tells_what_nobody_serves_and_when_it_is_tried_again),
        cmocka_unit_test(test_where_shows_every_definition_and_run_of_a_key),
        cmocka_unit_test(test_list_filters_and_pages),
        cmocka_unit_test(test_status_counts),
        cmocka_unit_test(test_key_is_what_the_worker_was_given_and_needs_no_server),
        cmocka_unit_test(test_wait_outlives_a_restart_of_the_server),
        cmocka_unit_test(test_a_server_that_is_away_is_told_with_its_address),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
