/* The morning after, as people do it. Goal: an export holds one line for each saga of which an
 * attempt was sent out in the span, each as its journal has it, and its manifest is right; a file
 * of verdicts settles each row once, also when it is interrupted and run again, and says what it
 * did not settle and why. Method: sagactl against a real server; every line is compared with SQL
 * over the journal. */
#include "support/proof.h"
#include "support/sagactl.h"
#include "support/scratch.h"
#include "support/wait.h"

#include "base/mem.h"
#include "ctl/csv.h"
#include "dispatch/key.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SOON = 20000 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker(&rig, "w1", "act:16 undo:16"); /* the rig owns it */
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

static void path_of(const char *name, char ret[SCRATCH_PATH_SIZE])
{
    struct err err;
    ASSERT_OK(scratch_path(name, ret, &err), &err);
}

/* --- export ----------------------------------------------------------------------------------- */

static size_t column(const struct csv_reader *reader, const char *name)
{
    for (size_t i = 0; i < reader->count; i++)
        if (strcmp(csv_text(reader, i), name) == 0)
            return i;
    fail_msg("no column %s", name);
    return 0;
}

/* What the journal says of step a of that saga, as the line must. */
static void assert_line(const struct csv_reader *reader, const size_t at[6])
{
    char expected[512], line[512], key[IDEMPOTENCY_KEY_SIZE];
    const char *saga_id = csv_text(reader, at[0]);
    rig_text(&rig, RIG_STORE, expected, sizeof expected,
             "SELECT string_agg(j.fence::text, ' ' ORDER BY j.seq) || '|' || count(*) || '|'"
             " || count(*) FILTER (WHERE j.outcome IN ('UNKNOWN', 'EXPIRED', 'STREAM_LOST')) || '|'"
             " || CASE WHEN bool_or(j.outcome IN ('DONE', 'ALREADY_DONE')) THEN 'DONE'"
             " WHEN bool_or(j.outcome = 'UNKNOWN') THEN 'MAYBE' ELSE 'NOT_DONE' END"
             " FROM journal j JOIN saga s USING (shard, saga_uid) WHERE s.saga_id = '%s'"
             " AND s.definition = 'books' AND j.kind = 'LEASE' AND j.step = 'a'"
             " AND j.operation = 'ACTION'",
             saga_id);
    (void)snprintf(line, sizeof line, "%s|%s|%s|%s", csv_text(reader, at[1]),
                   csv_text(reader, at[2]), csv_text(reader, at[3]), csv_text(reader, at[4]));
    assert_string_equal(line, expected);
    assert_int_equal(idempotency_key("default", "books", saga_id, 1, "a", OPERATION_ACTION, 0, key),
                     0);
    assert_string_equal(csv_text(reader, at[5]), key);
}

static void test_each_line_of_an_export_is_what_the_journal_says(void **state)
{
    (void)state;
    enum { EACH = 40 };
    char path[SCRATCH_PATH_SIZE], manifest_path[SCRATCH_PATH_SIZE + 16], again[SCRATCH_PATH_SIZE];
    rig_define(&rig, "books", NULL, "a: ONCE | IDEMPOTENT\nb: IDEMPOTENT | none");
    rig_start_many(&rig, "books", "plain-", EACH, "");
    rig_start_many(&rig, "books", "tried-", EACH, "a A 1 retry\na A 2 retry");
    rig_start_many(&rig, "books", "lost-", EACH, "a A 1 unknown code=GONE");
    rig_start_many(&rig, "books", "no-", EACH, "a A 1 rejected");
    rig_start_many(&rig, "books", "\"quoted\", ", 2, "");
    rig_await_states(&rig, "books", "plain-", "SUCCEEDED", EACH, SOON);
    rig_await_states(&rig, "books", "tried-", "SUCCEEDED", EACH, SOON);
    rig_await_states(&rig, "books", "lost-", "PARKED OUTCOME_UNKNOWN", EACH, SOON);
    rig_await_states(&rig, "books", "no-", "COMPENSATED", EACH, SOON);
    rig_await_states(&rig, "books", "\"quoted\", ", "SUCCEEDED", 2, SOON);
    /* Outside of the span. */
    rig_exec(&rig, RIG_STORE,
             "UPDATE journal SET leased_at = leased_at - interval '2 days' WHERE step = 'a'"
             " AND saga_uid IN (SELECT saga_uid FROM saga WHERE saga_id IN ('plain-0', 'lost-0'))");
    path_of("books.csv", path);
    EXPECT(2, "export needs --step", "export", "--definition", "books");
    EXPECT(1, "NOT_FOUND", "export", "--definition", "books", "--step", "z", "--from", "-1d",
           "--to", "+1h", "--file", path);
    EXPECT(2, "knows no time zone", "export", "--tz", "Mars/North");
    expect(0, WORDS("exported 160 rows to ", "sha256 "),
           WORDS("export", "--definition", "books", "--step", "a", "--from", "-1d", "--to", "+1h",
                 "--file", path, "--field", "input", "--field", "output"));
    struct csv_reader reader = { .file = fopen(path, "re") };
    struct err err;
    bool more;
    assert_non_null(reader.file);
    ASSERT_OK(csv_read(&reader, &more, &err), &err);
    const size_t at[] = { column(&reader, "saga_id"),  column(&reader, "fences"),
                          column(&reader, "attempts"), column(&reader, "unknown_attempts"),
                          column(&reader, "outcome"),  column(&reader, "idempotency_key") };
    size_t input = column(&reader, "input"), output = column(&reader, "output");
    int64_t rows = 0;
    for (;;) {
        ASSERT_OK(csv_read(&reader, &more, &err), &err);
        if (!more)
            break;
        rows++;
        assert_line(&reader, at);
        const char *saga_id = csv_text(&reader, at[0]);
        if (strncmp(saga_id, "tried-", 6) == 0) {
            assert_string_equal(csv_text(&reader, input), "a A 1 retry\na A 2 retry");
            assert_string_equal(csv_text(&reader, output), "a");
        }
    }
    assert_int_equal(rows, 4 * EACH + 2 - 2);
    csv_reader_done(&reader);
    assert_int_equal(fclose(reader.file), 0);
    /* The manifest is of these bytes. */
    (void)snprintf(manifest_path, sizeof manifest_path, "%s.manifest.json", path);
    json_error_t where;
    json_t *manifest = json_load_file(manifest_path, 0, &where);
    assert_non_null(manifest);
    assert_int_equal(json_integer_value(json_object_get(manifest, "rows")), rows);
    char command[512];
    (void)snprintf(command, sizeof command, "echo '%s  %s' | sha256sum -c --quiet",
                   json_string_value(json_object_get(manifest, "sha256")), path);
    const char *const argv[] = { "/bin/sh", "-c", command, NULL };
    command_expect(argv, NULL, 0, NULL);
    json_decref(manifest);
    /* By the end of attempts, of a compensation, as JSON; and nothing in a span of nothing. */
    path_of("books.jsonl", again);
    EXPECT(0, "exported 162 rows", "export", "--definition", "books", "--step", "a", "--by",
           "ended", "--from", "-1d", "--to", "+1h", "--format", "jsonl", "--file", again);
    EXPECT(0, "exported 0 rows", "export", "--definition", "books", "--step", "a", "--operation",
           "compensation", "--from", "-1d", "--to", "+1h", "--file", again);
    EXPECT(0, "exported 0 rows", "export", "--definition", "books", "--step", "a", "--from",
           "2026-01-01 00:00", "--to", "2026-01-02", "--tz", "UTC", "--file", again);
}

/* --- resolve --file --------------------------------------------------------------------------- */

static FILE *open_verdicts(const char *name, char path[SCRATCH_PATH_SIZE])
{
    path_of(name, path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    return file;
}

static void close_verdicts(FILE *file)
{
    assert_int_equal(fclose(file), 0);
}

static void test_bad_rows_are_named_and_nothing_is_done(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    rig_define(&rig, "bad", NULL, "a: ONCE | none");
    rig_start(&rig, "bad", "b-1", "a A 1 unknown");
    rig_await_state(&rig, "bad", "b-1", "PARKED OUTCOME_UNKNOWN", SOON);
    FILE *file = open_verdicts("bad.csv", path);
    assert_true(fputs("saga_id,verdict,fence\nb-1,DID_HAPPEN,\nb-1,maybe,\n,DID_HAPPEN,\n"
                      "b-1,DID_HAPPEN,soon\nb-1,\"DID\"x,\n",
                      file) >= 0);
    close_verdicts(file);
    expect(1,
           WORDS("bad.csv:3: verdict: must be DID_HAPPEN", "bad.csv:4: saga_id: is required",
                 "bad.csv:5: fence: must be a number", "bad.csv:6: text behind a closing quote",
                 "4 of 5 rows are bad: nothing was done"),
           WORDS("resolve", "--file", path, "--definition", "bad", "--step", "a"));
    rig_await_state(&rig, "bad", "b-1", "PARKED OUTCOME_UNKNOWN", 100);
    EXPECT(1, "must name the columns", "resolve", "--file", "/dev/null");
    EXPECT(1, "cannot be read", "resolve", "--file", "/nowhere.csv");
    EXPECT(2, "only --definition", "resolve", "b-1", "--file", path);
    EXPECT(2, "goes with --file alone", "resolve", "b-1", "--dry-run");
    expect(1, WORDS("5 of 5 rows", "1 settled", "4 bad, passed over"),
           WORDS("resolve", "--file", path, "--definition", "bad", "--step", "a", "--skip-bad"));
    rig_await_state(&rig, "bad", "b-1", "SUCCEEDED", SOON);
}

static void test_each_row_is_told_what_became_of_it(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE];
    rig_define(&rig, "told", NULL, "a: ONCE | none");
    rig_start(&rig, "told", "yes", "a A 1 unknown");
    rig_start(&rig, "told", "no", "a A 1 unknown");
    rig_start(&rig, "told", "open", "a A 1 unknown");
    rig_start(&rig, "told", "done", "");
    rig_await_states(&rig, "told", "", "PARKED OUTCOME_UNKNOWN", 3, SOON);
    rig_await_state(&rig, "told", "done", "SUCCEEDED", SOON);
    FILE *file = open_verdicts("told.csv", path);
    assert_true(fputs("VERDICT,saga_id,definition,step,evidence\r\n"
                      "DID_HAPPEN,yes,told,a,\"bank says \"\"paid\"\"\"\r\n"
                      "did_not_happen,no,told,a,\r\n"
                      "UNKNOWN,open,told,a,\r\n"
                      "DID_HAPPEN,done,told,a,\r\n"
                      "DID_NOT_HAPPEN,done,told,a,\r\n"
                      "DID_HAPPEN,nowhere,told,a,\r\n",
                      file) >= 0);
    close_verdicts(file);
    expect(1,
           WORDS("dry run, nothing was changed: 6 of 6 rows", "2 would be settled",
                 "1 recorded so already", "1 contradict what is recorded", "1 left open",
                 "1 refused", "nowhere: "),
           WORDS("resolve", "--file", path, "--dry-run"));
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
                               " WHERE definition = 'told' AND kind = 'RESOLVE'"),
                     0);
    expect(1,
           WORDS("2 settled", "1 recorded so already", "1 contradict what is recorded",
                 "told.csv:6: done: NOTHING_TO_RESOLVE", "1 left open", "told.csv:7: nowhere: "),
           WORDS("resolve", "--file", path));
    rig_await_state(&rig, "told", "yes", "SUCCEEDED", SOON);
    rig_await_state(&rig, "told", "no", "SUCCEEDED", SOON);
    rig_assert_calls(&rig, "yes", "a.1");
    rig_assert_calls(&rig, "no", "a.1, a.2");
    expect(0, WORDS("told.csv:2 sha256:", "bank says \"paid\"", "by ada"),
           WORDS("history", "told", "yes"));
    EXPECT(1, "2 settled by this line before", "resolve", "--file", path);
}

static int64_t settled(const char *definition)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
                     " WHERE definition = '%s' AND kind = 'RESOLVE'",
                     definition);
}

/* One verdict in each journal. */
static void assert_settled_once(const char *definition, int64_t sagas)
{
    assert_int_equal(settled(definition), sagas);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(DISTINCT saga_uid) FROM journal JOIN saga"
                               " USING (shard, saga_uid) WHERE definition = '%s'"
                               " AND kind = 'RESOLVE'",
                               definition),
                     sagas);
}

/* Killed in the middle, and run again: each saga is settled once, also those that are unknown anew.
 */
static void test_a_file_that_was_interrupted_is_run_again(void **state)
{
    (void)state;
    PROVES("P4");
    enum { MANY = 200 };
    char path[SCRATCH_PATH_SIZE];
    rig_define(&rig, "broken", NULL, "a: ONCE | none");
    rig_start_many(&rig, "broken", "k-", MANY, "a A 1 unknown\na A 2 unknown");
    rig_await_states(&rig, "broken", "k-", "PARKED OUTCOME_UNKNOWN", MANY, 2L * SOON);
    FILE *file = open_verdicts("broken.csv", path);
    assert_true(fputs("saga_id,verdict\n", file) >= 0);
    for (int i = 0; i < MANY; i++)
        assert_true(fprintf(file, "k-%d,%s\n", i, i % 4 ? "DID_HAPPEN" : "DID_NOT_HAPPEN") > 0);
    close_verdicts(file);
    const char *const argv[] = {
        SAGACTL_BINARY, "--address", rig.address, "resolve", "--file", path,
        "--definition", "broken",    "--step",    "a",       NULL
    };
    struct test_process *first = NULL;
    struct err err;
    ASSERT_OK(test_process_run(argv, &first, &err), &err);
    while (settled("broken") < MANY / 10 && test_process_running(first))
        wait_ms(5);
    test_process_kill(first);
    first = test_process_free(first);
    int64_t before = settled("broken");
    assert_true(before > 0 && before < MANY);
    /* What did not happen was granted again, and is unknown anew: not this file's to settle. */
    EXPECT(0, "200 of 200 rows", "resolve", "--file", path, "--definition", "broken", "--step",
           "a");
    assert_settled_once("broken", MANY);
    rig_await_states(&rig, "broken", "k-", "SUCCEEDED", MANY - MANY / 4, SOON);
    rig_await_states(&rig, "broken", "k-", "PARKED OUTCOME_UNKNOWN", MANY / 4, SOON);
    EXPECT(0, "200 settled by this line before", "resolve", "--file", path, "--definition",
           "broken", "--step", "a");
}

/* Of an export; `verdict` is awk's, for each line. */
static void add_verdicts(const char *path, const char *verdict, const char *ret_path)
{
    char command[1024];
    int size = snprintf(command, sizeof command,
                        "awk 'NR == 1 { print \"verdict,\" $0 } NR > 1 { print (%s) \",\" $0 }'"
                        " '%s' > '%s'",
                        verdict, path, ret_path);
    assert_in_range(size, 1, sizeof command - 1);
    const char *const argv[] = { "/bin/sh", "-c", command, NULL };
    command_expect(argv, NULL, 0, NULL);
}

struct progress {
    const char *definition;
    int64_t at_least;
};

static bool has_settled(void *ctx)
{
    const struct progress *progress = ctx;
    return settled(progress->definition) >= progress->at_least;
}

static void await_settled(const char *definition, int64_t at_least)
{
    struct progress progress = { definition, at_least };
    assert_true(wait_until(has_settled, &progress, SOON));
}

/* sagad is killed twice under a file whose lines know their fences: the first time sagactl waits
 * for it and goes on, the second time it dies, too. What was settled while its answer was lost is
 * not settled again, neither by the run that asks anew nor by the next one. */
static void test_a_server_that_is_killed_under_a_file(void **state)
{
    (void)state;
    enum { MANY = 200, SOME = MANY / 10 };
    char path[SCRATCH_PATH_SIZE], verdicts[SCRATCH_PATH_SIZE];
    rig_define(&rig, "crash", NULL, "a: ONCE | none");
    rig_start_many(&rig, "crash", "c-", MANY, "a A 1 unknown\na A 2 unknown");
    rig_await_states(&rig, "crash", "c-", "PARKED OUTCOME_UNKNOWN", MANY, 2L * SOON);
    path_of("crash.csv", path);
    EXPECT(0, "exported 200 rows", "export", "--definition", "crash", "--step", "a", "--from",
           "-1h", "--to", "+1h", "--file", path);
    path_of("crash-verdicts.csv", verdicts);
    add_verdicts(path, "NR % 4 ? \"DID_HAPPEN\" : \"DID_NOT_HAPPEN\"", verdicts);
    const char *const argv[] = { SAGACTL_BINARY, "--address", rig.address, "resolve", "--file",
                                 verdicts,       "--step",    "a",         NULL };
    struct test_process *first = NULL;
    struct err err;
    ASSERT_OK(test_process_run(argv, &first, &err), &err);
    await_settled("crash", SOME);
    rig_server_kill(&rig);
    int64_t before = settled("crash");
    assert_in_range(before, SOME, MANY - 2 * SOME);
    rig_server_start(&rig);
    await_settled("crash", before + SOME);
    rig_server_kill(&rig);
    assert_true(test_process_running(first));
    test_process_kill(first);
    first = test_process_free(first);
    before = settled("crash");
    assert_in_range(before, 2 * SOME, MANY - 1);
    rig_server_start(&rig);
    char told[64];
    (void)snprintf(told, sizeof told, "%d settled by this line before", (int)before);
    expect(0, WORDS("200 of 200 rows", told), WORDS("resolve", "--file", verdicts, "--step", "a"));
    assert_settled_once("crash", MANY);
    rig_await_states(&rig, "crash", "c-", "SUCCEEDED", MANY - MANY / 4, SOON);
    rig_await_states(&rig, "crash", "c-", "PARKED OUTCOME_UNKNOWN", MANY / 4, SOON);
    EXPECT(0, "200 settled by this line before", "resolve", "--file", verdicts, "--step", "a");
    assert_settled_once("crash", MANY);
}

/* An export with a verdict in each line is such a file; its fence keeps it from what came later. */
static void test_an_export_with_verdicts(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_SIZE], verdicts[SCRATCH_PATH_SIZE];
    rig_define(&rig, "round", NULL, "a: ONCE | none");
    rig_start(&rig, "round", "t-1", "a A 1 unknown\na A 2 unknown");
    rig_start(&rig, "round", "t-2", "a A 1 unknown");
    rig_await_states(&rig, "round", "t-", "PARKED OUTCOME_UNKNOWN", 2, SOON);
    path_of("round.csv", path);
    EXPECT(0, "exported 2 rows", "export", "--definition", "round", "--step", "a", "--from", "-1h",
           "--to", "+1h", "--file", path);
    path_of("verdicts.csv", verdicts);
    add_verdicts(path, "\"DID_HAPPEN\"", verdicts);
    EXPECT(0, "resolved", "resolve", "t-1", "--step", "a", "--did-not-happen", "--evidence",
           "looked");
    rig_await_call(&rig, "t-1", "a", "A", 2, SOON);
    rig_await_state(&rig, "round", "t-1", "PARKED OUTCOME_UNKNOWN", SOON);
    expect(1, WORDS("1 settled", "1 refused", ": t-1: NEWER_ATTEMPT"),
           WORDS("resolve", "--file", verdicts, "--step", "a"));
    rig_await_state(&rig, "round", "t-2", "SUCCEEDED", SOON);
    rig_await_state(&rig, "round", "t-1", "PARKED OUTCOME_UNKNOWN", 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_line_of_an_export_is_what_the_journal_says),
        cmocka_unit_test(test_bad_rows_are_named_and_nothing_is_done),
        cmocka_unit_test(test_each_row_is_told_what_became_of_it),
        cmocka_unit_test(test_a_file_that_was_interrupted_is_run_again),
        cmocka_unit_test(test_a_server_that_is_killed_under_a_file),
        cmocka_unit_test(test_an_export_with_verdicts),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
