/* Retention as people see it. Goal: a start that comes after the purge gets the first answer and
 * starts nothing; a report that comes after it does no harm; sagactl tells what is purged and what
 * is not remembered for long enough, with both figures. Method: sagad that purges what is older
 * than a second, workers, and sagactl as people run it. */
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/sagactl.h"
#include "support/scratch.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SOON = 20000, LEASE_OVER = 60000, ALREADY_EXISTS = 6, NOT_FOUND = 5 };
#define DONE SAGA__V1__OUTCOME__OUTCOME_DONE

static char folder[SCRATCH_PATH_SIZE];
static struct rig rig = { .server_args = { "--retention", "1s", "--key-memory", "7d",
                                           "--resend-grace", "0.3s", "--stream-lost", "0.5s",
                                           "--retention-archive", folder } };

static int setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(scratch_path("archive", folder, &err), &err);
    return mkdir(folder, 0755) == 0 ? rig_up(&rig) : -1;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static void await_purge(const char *saga_id)
{
    rig_await(&rig, RIG_STORE, "0", SOON, "SELECT count(*) FROM saga WHERE saga_id = '%s'",
              saga_id);
}

struct answer {
    int code; /* of the status */
    char reason[RIG_REASON_SIZE];
    bool existed;
    Saga__V1__SagaState state;
    char uid[48];
};

static struct answer start(const char *definition, const char *saga_id, const char *input)
{
    struct answer answer = { 0 };
    struct client_failure failure = { 0 };
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow(definition);
    request.saga_id = rig_borrow(saga_id);
    request.input.data = (uint8_t *)rig_borrow(input);
    request.input.len = strlen(input);
    Saga__V1__StartSagaResponse *reply = (Saga__V1__StartSagaResponse *)rig_call(
        &rig, "SagaService/StartSaga", &request.base, &saga__v1__start_saga_response__descriptor,
        &failure);
    if (!reply) {
        answer.code = failure.code;
        (void)snprintf(answer.reason, sizeof answer.reason, "%s", failure.reason);
        client_failure_done(&failure);
        return answer;
    }
    answer.existed = reply->existed;
    answer.state = reply->state;
    (void)snprintf(answer.uid, sizeof answer.uid, "%s", reply->uid);
    saga__v1__start_saga_response__free_unpacked(reply, NULL);
    return answer;
}

/* --- late repeats ------------------------------------------------------------------------------
 */

static void expect_first_answer(const char *saga_id, const char *input, Saga__V1__SagaState state,
                                const char *uid)
{
    struct answer answer = start("late", saga_id, input);
    assert_int_equal(answer.code, 0);
    assert_true(answer.existed);
    assert_int_equal(answer.state, state);
    assert_string_equal(answer.uid, uid);
    answer = start("late", saga_id, "done"); /* other bytes */
    assert_int_equal(answer.code, ALREADY_EXISTS);
    assert_string_equal(answer.reason, "INPUT_MISMATCH");
}

static void test_r1_a_start_after_the_purge_gets_the_first_answer_and_starts_nothing(void **state)
{
    (void)state;
    PROVES("P1");
    static const char turned[] = "b A 1 rejected";
    rig_define(&rig, "late", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\n"
               "b: IDEMPOTENT | none");
    (void)rig_worker(&rig, "w", "act:4 undo:4"); /* the rig owns it */
    struct answer well = start("late", "well", ""), back = start("late", "back", turned);
    assert_false(well.existed || back.existed);
    await_purge("well");
    await_purge("back");
    int64_t effects = rig_count(&rig, RIG_BANK, "SELECT count(*) FROM calls");
    for (int i = 0; i < 2; i++) {
        expect_first_answer("well", "", SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED, well.uid);
        expect_first_answer("back", turned, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED, back.uid);
        if (i > 0)
            break;
        rig_server_kill(&rig); /* and at a node that has never seen them */
        rig_server_start(&rig);
    }
    sagactl_expect(&rig, 1, WORDS("saga \"back\" of default/late", "was purged [PURGED]"),
                   WORDS("get", "late", "back"));
    sagactl_expect(&rig, 0, WORDS("COMPENSATED", "archived in sagas-", back.uid),
                   WORDS("where", "back"));
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga"), 0);
    assert_int_equal(rig_count(&rig, RIG_BANK, "SELECT count(*) FROM calls"), effects);
    /* In the archive there is one line of each, in the file that the key names. */
    char file[256], line[SCRATCH_PATH_SIZE + 512];
    rig_text(&rig, RIG_STORE, file, sizeof file,
             "SELECT archive FROM saga_key WHERE saga_id = 'back'");
    (void)snprintf(line, sizeof line, "grep -c '\"saga_id\": \"back\"' %s/%s >/dev/null", folder,
                   file);
    assert_int_equal(system(line), 0);
}

/* --- late reports ------------------------------------------------------------------------------
 */

static void test_a_report_after_the_purge_is_stale_and_leaves_nothing_behind(void **state)
{
    (void)state;
    PROVES("P3");
    rig_define(&rig, "slow", NULL, "a: IDEMPOTENT handler=slow lease=5s | none");
    struct raw_worker *first = raw_worker_hello(rig.address, "first", NULL, "slow", NULL, 0);
    raw_worker_credit(first, "slow", 1);
    rig_start(&rig, "slow", "s1", "");
    const Saga__V1__Task *task = raw_worker_task(first, SOON);
    assert_non_null(task);
    struct raw_lease lease = raw_lease_of(task);
    struct raw_worker *second = raw_worker_hello(rig.address, "second", NULL, "slow", NULL, 0);
    raw_worker_credit(second, "slow", 1);
    const Saga__V1__Task *again = raw_worker_task(second, LEASE_OVER); /* the lease ran out */
    assert_non_null(again);
    struct raw_lease newer = raw_lease_of(again);
    assert_int_equal(raw_worker_settle(second, &newer, DONE, "x"),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    await_purge("s1");
    assert_int_equal(raw_worker_settle(first, &lease, DONE, "y"),
                     SAGA__V1__ACK__RESULT__RESULT_STALE);
    assert_int_equal(raw_worker_settle(second, &newer, DONE, "x"),
                     SAGA__V1__ACK__RESULT__RESULT_STALE);
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM late_report"), 0);
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM journal"), 0);
    first = raw_worker_cut(first);
    second = raw_worker_cut(second);
}

/* --- sagactl retention -------------------------------------------------------------------------
 */

static void test_sagactl_retention_tells_what_is_not_remembered_for_long_enough(void **state)
{
    (void)state;
    rig_await(&rig, RIG_STORE, "1", SOON, "SELECT count(*) FROM retention");
    sagactl_expect(&rig, 0,
                   WORDS("node     rig purges what ended 1s ago, remembers its key 7d, archive ",
                         "have ended", "no floor is safe above", "ok       rig purges\n"),
                   WORDS("retention"));
    /* Topics. */
    rig_exec(&rig, RIG_STORE,
             "INSERT INTO kafka_rule (rule, topic, group_id, namespace, definition, wanted,"
             " topic_retention_ms, topic_compacted, node, seen_at) VALUES"
             " ('fits', 't1', 'g', 'default', 'd', 'RUN', 604800000, false, 'x', now()),"
             " ('unknown', 't2', 'g', 'default', 'd', 'RUN', NULL, NULL, 'x', now())");
    sagactl_expect(&rig, 0,
                   WORDS("ok       topic t1 (rule fits) keeps records 7d, keys are remembered 7d"),
                   WORDS("retention"));
    rig_exec(&rig, RIG_STORE,
             "UPDATE kafka_rule SET topic_retention_ms = 604800001 WHERE rule = 'fits';"
             "UPDATE kafka_rule SET topic_retention_ms = -1, topic_compacted = true"
             " WHERE rule = 'unknown'");
    sagactl_expect(&rig, 1,
                   WORDS("NOT OK   topic t1 (rule fits) keeps records 604800001ms, keys are"
                         " remembered 7d\n         raise key-memory",
                         "NOT OK   topic t2 (rule unknown), compacted keeps records for ever",
                         "key-memory = forever"),
                   WORDS("retention"));
    rig_exec(&rig, RIG_STORE, "DELETE FROM kafka_rule");
    /* Idempotency windows of current revisions. */
    rig_define(&rig, "windows", NULL,
               "fits: IDEMPOTENT idempotency_window=7200s for=7200s | none | settle=1s\n"
               "asks: IDEMPOTENT idempotency_window=3600s for=7200s probe | none | settle=1s\n"
               "back: IDEMPOTENT | IDEMPOTENT idempotency_window=3600s for=7200s | settle=1s");
    sagactl_expect(&rig, 1,
                   WORDS("ok       default/windows fits is retried for 2h, the other side knows the"
                         " key for 2h",
                         "ok       default/windows asks",
                         "NOT OK   default/windows compensation of back is retried for 2h, the"
                         " other side knows the key for 1h\n         lower retry.for"),
                   WORDS("retention"));
    json_t *json;
    rig_define(&rig, "windows", NULL,
               "fits: IDEMPOTENT idempotency_window=7200s for=7200s | none | settle=1s");
    json = sagactl_json(&rig, WORDS("retention", "-o", "json"));
    assert_int_equal(json_array_size(json_object_get(json, "links")), 2);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(json, "nodes"), 0), "keyMemory")),
                        "604800s");
    json_decref(json);
}

static void test_sagactl_retention_looks_at_the_guards_floor_and_at_what_is_kept(void **state)
{
    (void)state;
    rig_define(&rig, "open", NULL, "a: IDEMPOTENT handler=nobody | none");
    sagactl_expect(&rig, 2, WORDS("--guard-floor must be a time"),
                   WORDS("retention", "--guard-floor", "soon"));
    sagactl_expect(&rig, 0, WORDS("ok       the floor that is in force is above the floor"),
                   WORDS("retention", "--guard-floor", "2020-01-01T00:00:00Z"));
    rig_start(&rig, "open", "o1", "");
    sagactl_expect(&rig, 1,
                   WORDS("when open o1 started, which is open",
                         "NOT OK   open o1 (run 1) started below the floor and is open"),
                   WORDS("retention", "--guard-floor", "2999-01-01T00:00:00Z"));
    sagactl_expect(&rig, 0, WORDS("ok       open o1 (run 1) is above the floor"),
                   WORDS("retention", "--guard-floor", "2020-01-01T00:00:00Z"));
    /* What is kept. */
    rig_exec(&rig, RIG_STORE,
             "UPDATE saga SET state = 'ABANDONED', phase = 'RUNNING', doubt = true,"
             " ended_at = now() - interval '1 hour', started_at = now() - interval '2 hours'"
             " WHERE saga_id = 'o1'");
    sagactl_expect(&rig, 0,
                   WORDS("1 are old and kept, for a person to look at: sagactl list --doubt"),
                   WORDS("retention"));
    rig_exec(&rig, RIG_STORE, "UPDATE saga SET doubt = false WHERE saga_id = 'o1'");
    await_purge("o1");
}

static void test_sagactl_retention_tells_that_the_archive_cannot_be_written(void **state)
{
    (void)state;
    char away[SCRATCH_PATH_SIZE + 8];
    rig_define(&rig, "quick", NULL, "a: IDEMPOTENT | none");
    (void)rig_worker(&rig, "w", "act:4"); /* the rig owns it */
    (void)snprintf(away, sizeof away, "%s.away", folder);
    rig_server_stop(&rig, SOON); /* it has the folder open */
    assert_int_equal(rename(folder, away), 0);
    rig_server_start(&rig);
    rig_start(&rig, "quick", "q1", "");
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM retention WHERE problem LIKE '%%make the folder%%'");
    sagactl_expect(&rig, 1,
                   WORDS("NOT OK   rig should purge and does not", "No such file or directory",
                         "make the folder"),
                   WORDS("retention"));
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga WHERE saga_id = 'q1'"),
                     1);
    assert_int_equal(rename(away, folder), 0);
    await_purge("q1");
    rig_await(&rig, RIG_STORE, "0", SOON,
              "SELECT count(*) FROM retention WHERE problem IS NOT NULL");
    sagactl_expect(&rig, 0, WORDS("ok       rig purges\n"), WORDS("retention"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(
            test_sagactl_retention_tells_what_is_not_remembered_for_long_enough, check),
        cmocka_unit_test_teardown(
            test_r1_a_start_after_the_purge_gets_the_first_answer_and_starts_nothing, check),
        cmocka_unit_test_teardown(test_a_report_after_the_purge_is_stale_and_leaves_nothing_behind,
                                  check),
        cmocka_unit_test_teardown(
            test_sagactl_retention_looks_at_the_guards_floor_and_at_what_is_kept, check),
        cmocka_unit_test_teardown(test_sagactl_retention_tells_that_the_archive_cannot_be_written,
                                  check),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
