/* What people mend, as they do it. Goal: a saga that runs goes on with other numbers, one that was
 * taken back or abandoned runs again without doing anything twice by accident, sagas that have to
 * do with each other are shown from both sides, and the audit holds each of these once and nothing
 * that was refused. Method: sagactl against a real server; the journal, the participant's calls and
 * the tables tell what became of it. */
#include "support/proof.h"
#include "support/sagactl.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

enum { SOON = 10000 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };

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

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

static void expect(int exit_code, const char *const *parts, const char *const *words)
{
    sagactl_expect(&rig, exit_code, parts, words);
}
#define EXPECT(exit_code, part, ...) expect(exit_code, WORDS(part), WORDS(__VA_ARGS__))

/* Lines of the audit with this verb about this saga. */
static int64_t audited(const char *verb, const char *saga_id)
{
    json_t *all = sagactl_json(&rig, WORDS("audit", "--verb", verb, "--all", "-o", "json"));
    int64_t count = 0;
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(all, "entries"), i, entry)
    {
        const char *id =
            json_string_value(json_object_get(json_object_get(entry, "saga"), "sagaId"));
        count += id && strcmp(id, saga_id) == 0;
    }
    json_decref(all);
    return count;
}

/* --- set-options ------------------------------------------------------------------------------ */

static void test_a_parked_saga_goes_on_with_another_budget(void **state)
{
    (void)state;
    PROVES("P6");
    rig_define(&rig, "mend", NULL, "a: IDEMPOTENT max_attempts=2 | none");
    rig_start(&rig, "mend", "m-1", "a A 1 retry\na A 2 retry\na A 3 retry\na A 4 retry");
    rig_await_state(&rig, "mend", "m-1", "PARKED RETRIES_EXHAUSTED", SOON);
    EXPECT(2, "--reason is required", "set-options", "m-1", "--max-attempts", "5");
    EXPECT(1, "lease", "set-options", "m-1", "--lease", "1s", "--reason", "too short");
    EXPECT(1, "NOT_FOUND", "set-options", "m-1", "--step", "z", "--lease", "9s", "--reason",
           "typo");
    EXPECT(0, "options set: mend m-1 (run 1) is PARKED", "set-options", "m-1", "--max-attempts",
           "5", "--retry-cap", "1s", "--reason", "the bank is slow");
    EXPECT(0, "options set", "set-options", "m-1", "--max-attempts", "5", "--reason", "again");
    expect(0, WORDS("tried again: mend m-1", "has a fresh retry budget"), WORDS("retry", "m-1"));
    EXPECT(0, "SUCCEEDED", "wait", "mend", "m-1", "--timeout", "10");
    rig_assert_journal(&rig, "mend", "m-1",
                       "a.1 RETRY, a.2 RETRY, PARK RETRIES_EXHAUSTED, OPTIONS, RETRY, a.3 RETRY,"
                       " a.4 RETRY, a.5 DONE");
    expect(0,
           WORDS("OPTIONS", "retry_cap_ms=1000,max_attempts=5", "by ada (unproven)",
                 "the bank is slow"),
           WORDS("history", "mend", "m-1"));
    assert_int_equal(audited("set-options", "m-1"),
                     1); /* neither what was refused nor what was so */
    EXPECT(1, "OPTIONS_NOT_ALLOWED", "set-options", "m-1", "--lease", "9s", "--reason", "too late");
}

static void test_a_deadline_is_moved_and_taken_away(void **state)
{
    (void)state;
    rig_define(&rig, "dated", "deadline=3s", "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "dated", "d-1", "");
    rig_start(&rig, "dated", "d-2", "");
    EXPECT(2, "--deadline must be a time", "set-options", "d-1", "--deadline", "later", "--reason",
           "x");
    EXPECT(1, "deadline_time", "set-options", "d-1", "--deadline", "-1h", "--reason", "x");
    EXPECT(0, "options set", "set-options", "d-1", "--deadline", "+3h", "--reason", "night shift");
    EXPECT(0, "options set", "set-options", "d-2", "--deadline", "none", "--reason", "night shift");
    EXPECT(0, "deadline 2", "where", "d-1");
    /* Also for whoever loads it anew, and after the old one would have been over. */
    rig_server_kill(&rig);
    rig_server_start(&rig);
    wait_ms(4000);
    rig_await_state(&rig, "dated", "d-1", "RUNNING", 100);
    rig_await_state(&rig, "dated", "d-2", "RUNNING", 100);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE saga_id = 'd-1' AND deadline_at"
                               " BETWEEN now() + interval '2 h' AND now() + interval '4 h'"),
                     1);
    EXPECT(0, "options set", "set-options", "d-1", "--deadline", "+1s", "--reason", "enough");
    rig_await_state(&rig, "dated", "d-1", "COMPENSATED", SOON);
    EXPECT(0, "cancelled", "cancel", "d-2");
}

/* --- rerun ------------------------------------------------------------------------------------ */

static void test_a_saga_that_was_taken_back_runs_again(void **state)
{
    (void)state;
    PROVES("P1 P6");
    rig_define(&rig, "again", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | none");
    rig_start(&rig, "again", "r-1", "b A 1 rejected");
    rig_start(&rig, "again", "r-2", "");
    rig_await_state(&rig, "again", "r-1", "COMPENSATED", SOON);
    rig_await_state(&rig, "again", "r-2", "SUCCEEDED", SOON);
    EXPECT(2, "needs --reason", "rerun", "again", "r-1");
    EXPECT(1, "RERUN_NOT_ALLOWED", "rerun", "again", "r-2", "--reason", "why not");
    EXPECT(0, "run again: again r-1 (run 2) is ", "rerun", "again", "r-1", "--reason",
           "the account is unblocked");
    rig_await(&rig, RIG_STORE, "COMPENSATED", SOON,
              "SELECT state FROM saga WHERE saga_id = 'r-1' AND run = 2");
    rig_assert_calls(&rig, "r-1", "a.1, b.1, ~a.1, a.1, b.1, ~a.1");
    /* Another identity: no key is used twice. */
    assert_int_equal(
        rig_count(&rig, RIG_BANK, "SELECT count(DISTINCT key) FROM calls WHERE saga_id = 'r-1'"),
        6);
    expect(0, WORDS("run 2", "related  to run 1, COMPENSATED"), WORDS("get", "again", "r-1"));
    expect(0, WORDS("related  by run 2, COMPENSATED"), WORDS("get", "again", "r-1", "--run", "1"));
    EXPECT(1, "another run came after it", "rerun", "again", "r-1", "--run", "1", "--reason", "x");
    EXPECT(0, "is there already: again r-1 (run 2", "start", "again", "r-1", "--input",
           "b A 1 rejected");
    assert_int_equal(audited("rerun", "r-1"), 1);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga n JOIN saga o"
                               " ON o.saga_uid = n.related_saga WHERE n.saga_id = 'r-1'"
                               " AND n.run = 2 AND o.run = 1 AND n.input = o.input"),
                     1);
}

static void test_what_may_have_had_an_effect_runs_again_only_when_that_is_known(void **state)
{
    (void)state;
    PROVES("P4");
    rig_define(&rig, "left", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: ONCE | IDEMPOTENT");
    rig_start(&rig, "left", "l-1", "b A 1 unknown");
    rig_await_state(&rig, "left", "l-1", "PARKED OUTCOME_UNKNOWN", SOON);
    EXPECT(1, "RERUN_NOT_ALLOWED", "rerun", "left", "l-1", "--reason", "x");
    EXPECT(0, "abandoned", "abandon", "left", "l-1", "--reason", "lost case");
    expect(1, WORDS("EFFECTS_LEFT", "step \"a\" of run 1"),
           WORDS("rerun", "left", "l-1", "--reason", "x"));
    assert_int_equal(audited("rerun", "l-1"), 0);
    EXPECT(0, "(run 2)", "rerun", "left", "l-1", "--reason", "both were paid back by hand",
           "--despite-effects");
    rig_await(&rig, RIG_STORE, "PARKED", SOON,
              "SELECT state FROM saga WHERE saga_id = 'l-1' AND run = 2");
    EXPECT(0, "abandoned", "abandon", "left", "l-1", "--reason", "the same again");
}

/* Two at once: one new run. */
static void test_reruns_beside_each_other_are_one(void **state)
{
    (void)state;
    enum { MANY = 4 };
    rig_define(&rig, "once", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "once", "o-1", "");
    EXPECT(0, "cancelled", "cancel", "once", "o-1");
    rig_await_state(&rig, "once", "o-1", "COMPENSATED", SOON);
    struct test_process *all[MANY] = { NULL };
    struct err err;
    for (int i = 0; i < MANY; i++) {
        const char *const argv[] = { SAGACTL_BINARY, "--address", rig.address, "rerun", "once",
                                     "o-1",          "--reason",  "race",      NULL };
        ASSERT_OK(test_process_run(argv, &all[i], &err), &err);
    }
    int done = 0;
    for (int i = 0; i < MANY; i++) {
        int status;
        ASSERT_OK(test_process_wait(all[i], 30000, &status, &err), &err);
        done += status == 0;
        all[i] = test_process_free(all[i]);
    }
    assert_int_equal(done, 1);
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT max(run) FROM saga WHERE saga_id = 'o-1'"),
                     2);
    EXPECT(0, "cancelled", "cancel", "once", "o-1");
}

/* --- related ---------------------------------------------------------------------------------- */

static void test_related_sagas_are_shown_from_both_sides(void **state)
{
    (void)state;
    char uid[64];
    rig_define(&rig, "freeze", NULL, "a: IDEMPOTENT | none");
    rig_define(&rig, "unfreeze", NULL, "a: IDEMPOTENT | none");
    rig_start(&rig, "freeze", "f-1", "");
    rig_await_state(&rig, "freeze", "f-1", "SUCCEEDED", SOON);
    rig_text(&rig, RIG_STORE, uid, sizeof uid, "SELECT saga_uid FROM saga WHERE saga_id = 'f-1'");
    EXPECT(0, "started", "start", "unfreeze", "u-1", "--related", uid);
    rig_await_state(&rig, "unfreeze", "u-1", "SUCCEEDED", SOON);
    EXPECT(0, "related  to freeze f-1, SUCCEEDED", "where", "u-1");
    EXPECT(0, "related  by unfreeze u-1, SUCCEEDED", "where", "f-1");
    EXPECT(0, "started", "start", "unfreeze", "u-2", "--related",
           "018f0000-0000-7000-8000-000000000001");
    EXPECT(0, "which is not there any more", "where", "u-2");
}

/* --- audit ------------------------------------------------------------------------------------ */

/* Every entry that a person asked for, every decision about Kafka and handlers, every line of the
 * table, once. */
static void test_the_audit_holds_everything_once_and_in_order(void **state)
{
    (void)state;
    rig_define(&rig, "seen", NULL, "a: IDEMPOTENT handler=nobody | none\ns: WAIT | none");
    rig_start(&rig, "seen", "s-1", "");
    EXPECT(0, "suspended", "suspend", "seen", "s-1", "--reason", "wait");
    EXPECT(1, "RETRY_NOT_ALLOWED", "retry", "seen", "s-1");
    EXPECT(0, "resumed", "resume", "seen", "s-1", "--reason", "go on");
    EXPECT(0, "", "signal", "seen", "s-1", "s", "--id", "1");
    EXPECT(0, "cancelled", "cancel", "seen", "s-1", "--reason", "enough");
    EXPECT(0, "", "definition", "pause", "seen", "--reason", "for the night");
    EXPECT(0, "", "definition", "pause", "seen", "--reason", "once more");
    EXPECT(0, "", "definition", "resume", "seen", "--reason", "in the morning");
    json_t *of_one = sagactl_json(
        &rig, WORDS("audit", "--definition", "seen", "--saga", "s-1", "--all", "-o", "json"));
    static const char *const verbs[] = { "cancel", "signal", "resume", "suspend" };
    json_t *entries = json_object_get(of_one, "entries");
    assert_int_equal(json_array_size(entries), ARRAY_LEN(verbs));
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        const json_t *entry = json_array_get(entries, i);
        assert_string_equal(json_string_value(json_object_get(entry, "verb")), verbs[i]);
        assert_string_equal(json_string_value(json_object_get(entry, "actor")), "ada");
    }
    json_decref(of_one);
    expect(0, WORDS("ada", "cancel", "seen s-1", "enough", "pause-definition", "for the night"),
           WORDS("audit", "--definition", "seen", "--since", "-1h", "--who", "ada"));
    EXPECT(0, "nobody did any such thing", "audit", "--who", "nobody");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM audit WHERE definition = 'seen'"
                               " AND verb IN ('pause-definition', 'resume-definition')"),
                     2);
    EXPECT(0, "", "handler", "hold", "nobody", "--reason", "the bank asked");
    EXPECT(0, "", "handler", "cap", "nobody", "7", "--reason", "gently");
    EXPECT(0, "", "handler", "release", "nobody", "--reason", "it is back");
    expect(0,
           WORDS("handler-hold", "nobody", "the bank asked", "handler-limit", "cap=7",
                 "handler-release", "it is back"),
           WORDS("audit", "--who", "ada"));
    rig_start(&rig, "seen", "s-2", "");
    EXPECT(0, "suspended", "batch", "suspend", "definition = 'seen' AND state = RUNNING",
           "--reason", "all of it", "--yes");
    expect(0, WORDS("batch-suspend", "all of it", "definition = 'seen'"),
           WORDS("audit", "--verb", "batch-suspend"));
    json_t *all = sagactl_json(&rig, WORDS("audit", "--all", "-o", "json"));
    json_t *list = json_object_get(all, "entries");
    int64_t rows = rig_count(&rig, RIG_STORE,
                             "SELECT (SELECT count(*) FROM audit) + (SELECT count(*) FROM journal"
                             " WHERE asked_at IS NOT NULL) + (SELECT count(*) FROM kafka_request)"
                             " + (SELECT count(*) FROM handler_event WHERE kind <> 'DRAINED')");
    assert_int_equal(json_array_size(list), rows);
    const char *newer = "9999";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *time = json_string_value(json_object_get(json_array_get(list, i), "time"));
        assert_true(strncmp(time, newer, 19) <= 0);
        newer = time;
    }
    json_decref(all);
    /* Page by page it is the same. */
    json_t *few = sagactl_json(&rig, WORDS("audit", "--limit", "3", "-o", "json"));
    assert_int_equal(json_array_size(json_object_get(few, "entries")), 3);
    assert_true(json_is_true(json_object_get(few, "more")));
    json_decref(few);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal WHERE asked_at IS NOT NULL"
                               " AND asked_at <> finished_at"),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_parked_saga_goes_on_with_another_budget, check),
        cmocka_unit_test_teardown(test_a_deadline_is_moved_and_taken_away, check),
        cmocka_unit_test_teardown(test_a_saga_that_was_taken_back_runs_again, check),
        cmocka_unit_test_teardown(
            test_what_may_have_had_an_effect_runs_again_only_when_that_is_known, check),
        cmocka_unit_test_teardown(test_reruns_beside_each_other_are_one, check),
        cmocka_unit_test_teardown(test_related_sagas_are_shown_from_both_sides, check),
        cmocka_unit_test_teardown(test_the_audit_holds_everything_once_and_in_order, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
