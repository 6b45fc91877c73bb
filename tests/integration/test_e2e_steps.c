/* How steps end, over the whole stack. Goal: each way in which an operation can fail leads where
 * its definition says, and what was done is taken back in reverse. Method: sagas whose input tells
 * a real worker what to do; the journal that results is compared as a whole. */
#include "base/clock.h"
#include "base/utf8.h"
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 10000, FAILED_PRECONDITION = 9, NOT_FOUND = 5 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "0.5s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker_threads(&rig, "w1", "act:32 undo:32", 32); /* the rig owns it */
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

static const Saga__V1__StepStatus *step_of(const Saga__V1__Saga *saga, const char *name)
{
    for (size_t i = 0; i < saga->n_steps; i++)
        if (strcmp(saga->steps[i]->name, name) == 0)
            return saga->steps[i];
    fail_msg("no step %s", name);
    return NULL;
}

static void free_saga_p(Saga__V1__Saga **saga)
{
    saga__v1__saga__free_unpacked(*saga, NULL);
}
#define SAGA CLEANUP(free_saga_p) Saga__V1__Saga *

/* --- retries ---------------------------------------------------------------------------------- */

static void test_a_retry_waits_its_back_off_and_counts_a_try(void **state)
{
    (void)state;
    rig_define(&rig, "retry", NULL, "a: IDEMPOTENT initial=0.1s cap=0.4s | none");
    static const char script[] = "a A 1 retry\na A 2 retry\na A 3 after=700 retry";
    rig_start(&rig, "retry", "r1", script);
    rig_start_many(&rig, "retry", "many", 100, script);
    rig_await_states(&rig, "retry", "many", "SUCCEEDED", 100, SOON);
    rig_await_state(&rig, "retry", "r1", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "retry", "r1", "a.1 RETRY, a.2 RETRY, a.3 RETRY, a.4 DONE");
    rig_assert_calls(&rig, "r1", "a.1, a.2, a.3, a.4");
    /* None of them came before its time, by the database's clock. */
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal j JOIN journal n"
                               " USING (shard, saga_uid) JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'retry' AND n.seq = j.seq + 1"
                               " AND n.leased_at < j.retry_at"),
                     0);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.saga_id = 'r1' AND try = 3"
                               " AND retry_at >= finished_at + interval '700 ms'"),
                     1);
    /* The key for the third party is the same on every try. */
    assert_int_equal(
        rig_count(&rig, RIG_BANK, "SELECT count(DISTINCT key) FROM calls WHERE saga_id = 'r1'"), 1);
}

static void test_a_retry_had_no_effect_so_at_most_once_is_tried_again(void **state)
{
    (void)state;
    rig_define(&rig, "once_retry", NULL, "a: ONCE | none");
    rig_start(&rig, "once_retry", "or1", "a A 1 retry\na A 2 retry");
    rig_await_state(&rig, "once_retry", "or1", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "once_retry", "or1", "a.1 RETRY, a.2 RETRY, a.3 DONE");
}

static void test_a_spent_budget_parks_or_compensates_as_declared(void **state)
{
    (void)state;
    rig_define(&rig, "budget_park", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT for=1s | none");
    rig_define(&rig, "budget_back", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT for=1s on_exhausted=COMPENSATE | none");
    rig_define(&rig, "count_park", NULL, "a: IDEMPOTENT max_attempts=3 | none");
    rig_define(&rig, "count_back", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\n"
               "b: IDEMPOTENT max_attempts=2 on_exhausted=COMPENSATE | IDEMPOTENT");
    rig_start(&rig, "budget_park", "bp", "b A * retry code=BUSY");
    rig_start(&rig, "budget_back", "bb", "b A * retry code=BUSY");
    rig_start(&rig, "count_park", "cp", "a A * retry code=BUSY");
    rig_start(&rig, "count_back", "cb", "b A * retry code=BUSY");
    rig_await_state(&rig, "count_park", "cp", "PARKED RETRIES_EXHAUSTED", SOON);
    rig_assert_journal(&rig, "count_park", "cp",
                       "a.1 RETRY, a.2 RETRY, a.3 RETRY, PARK RETRIES_EXHAUSTED");
    rig_await_state(&rig, "count_back", "cb", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "count_back", "cb",
                       "a.1 DONE, b.1 RETRY, b.2 RETRY, COMPENSATE EXHAUSTED, ~a.1 DONE");
    rig_await_state(&rig, "budget_park", "bp", "PARKED RETRIES_EXHAUSTED", SOON);
    rig_await_state(&rig, "budget_back", "bb", "COMPENSATED", SOON);
    /* The budget is time from the first lease. A try that is decided in time gets the time of its
     * transaction, which may have waited for its turn: a quarter of a second is allowed for that.
     */
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga s JOIN journal j USING (shard, saga_uid)"
                               " WHERE s.saga_id IN ('bp', 'bb') AND j.step = 'b' AND j.leased_at >"
                               " (SELECT min(leased_at) + interval '1250 ms' FROM journal f"
                               "  WHERE f.saga_uid = j.saga_uid AND f.step = 'b')"),
                     0);
    assert_true(rig_count(&rig, RIG_BANK,
                          "SELECT count(*) FROM calls WHERE saga_id = 'bp' AND step = 'b'") > 2);
}

static void test_an_effect_that_is_there_counts_only_if_it_is_ours(void **state)
{
    (void)state;
    rig_define(&rig, "already", NULL, "a: ONCE | none\nb: IDEMPOTENT | none");
    rig_start(&rig, "already", "ours", "a A 1 already out=x");
    rig_start(&rig, "already", "foreign", "a A 1 foreign");
    rig_start(&rig, "already", "repeated", "b A 1 unknown\nb A 2 foreign");
    rig_await_state(&rig, "already", "ours", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "already", "ours", "a.1 ALREADY_DONE, b.1 DONE");
    rig_await_state(&rig, "already", "foreign", "PARKED FOREIGN_EFFECT", SOON);
    rig_assert_journal(&rig, "already", "foreign", "a.1 ALREADY_DONE, PARK FOREIGN_EFFECT");
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_retry(&rig, "already", "foreign", "a", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "RETRY_NOT_ALLOWED");
    /* An earlier attempt may have run: then it is its effect. */
    rig_await_state(&rig, "already", "repeated", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "already", "repeated", "a.1 DONE, b.1 UNKNOWN, b.2 ALREADY_DONE");
}

/* --- C1: order of compensation ---------------------------------------------------------------- */

static const char five_steps[] = "s1: IDEMPOTENT | IDEMPOTENT\n"
                                 "s2: IDEMPOTENT | IDEMPOTENT | guarded\n"
                                 "s3: IDEMPOTENT | IDEMPOTENT\n"
                                 "s4: IDEMPOTENT | IDEMPOTENT | guarded\n"
                                 "s5: ONCE on_unknown=COMPENSATE | IDEMPOTENT";

static void test_p5_compensated_means_all_taken_back_in_strict_reverse_order(void **state)
{
    (void)state;
    const char *pause = test_is_full_size() ? "3000" : "400";
    char script[256];
    rig_define(&rig, "five", NULL, five_steps);
    (void)snprintf(script, sizeof script,
                   "s5 A * rejected code=NO\ns3 C 1 sleep=%s retry\ns3 C 2 retry\n"
                   "s2 * * guarded\ns4 * * guarded",
                   pause);
    rig_start(&rig, "five", "c1-refused", script);
    rig_start(&rig, "five", "c1-unknown",
              "s5 A * unknown code=LOST\ns2 * * guarded\ns4 * * guarded");
    rig_await_state(&rig, "five", "c1-refused", "COMPENSATED", SOON + 5000);
    rig_assert_journal(&rig, "five", "c1-refused",
                       "s1.1 DONE, s2.1 DONE, s3.1 DONE, s4.1 DONE, s5.1 REJECTED,"
                       " COMPENSATE REFUSED, ~s4.1 DONE, ~s3.1 RETRY, ~s3.2 RETRY, ~s3.3 DONE,"
                       " ~s2.1 DONE, ~s1.1 DONE");
    /* Unknown is no definite failure: that step is taken back, too, and its undo is told so. */
    rig_await_state(&rig, "five", "c1-unknown", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "five", "c1-unknown",
                       "s1.1 DONE, s2.1 DONE, s3.1 DONE, s4.1 DONE, s5.1 UNKNOWN,"
                       " COMPENSATE UNKNOWN, ~s5.1 DONE, ~s4.1 DONE, ~s3.1 DONE, ~s2.1 DONE,"
                       " ~s1.1 DONE");
    rig_await(&rig, RIG_BANK, "MAYBE", SOON,
              "SELECT seen FROM calls WHERE saga_id = 'c1-unknown' AND step = 's5'"
              " AND operation = 'C'");
    rig_await(&rig, RIG_BANK, "DONE:s3", SOON,
              "SELECT DISTINCT seen FROM calls WHERE saga_id = 'c1-refused' AND step = 's3'"
              " AND operation = 'C'");
    /* No undo begins before the one after it has ended, in the workers' own records. */
    assert_int_equal(rig_count(&rig, RIG_BANK,
                               "SELECT count(*) FROM calls x JOIN calls y USING (saga_id)"
                               " WHERE saga_id LIKE 'c1-%%' AND x.id < y.id"
                               " AND y.started_at < x.ended_at - interval '50 ms'"
                               " AND x.operation = 'C'"),
                     0);
    for (int i = 0; i < 2; i++) {
        const char *id = i ? "c1-unknown" : "c1-refused";
        assert_int_equal(rig_effects(&rig, id, "s2", "A"), 1);
        assert_int_equal(rig_effects(&rig, id, "s2", "C"), 1);
        assert_int_equal(rig_effects(&rig, id, "s4", "C"), 1);
    }
}

/* --- C2: compensations that fail -------------------------------------------------------------- */

static void test_c2_a_refused_compensation_parks_at_once_and_is_shown(void **state)
{
    (void)state;
    rig_define(&rig, "undo", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT for=1s\n"
               "c: IDEMPOTENT | none");
    rig_start(&rig, "undo", "u-refused", "c A * rejected\nb C * rejected code=ACCOUNT_CLOSED");
    rig_start(&rig, "undo", "u-unset", "c A * rejected\nb C * none");
    rig_await_state(&rig, "undo", "u-refused", "PARKED COMPENSATION_FAILED", SOON);
    rig_assert_journal(&rig, "undo", "u-refused",
                       "a.1 DONE, b.1 DONE, c.1 REJECTED, COMPENSATE REFUSED, ~b.1 REJECTED,"
                       " PARK COMPENSATION_FAILED");
    SAGA saga = rig_get(&rig, "undo", "u-refused");
    assert_int_equal(saga->phase, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING);
    assert_string_equal(saga->park->step, "b");
    assert_string_equal(saga->park->error->code, "ACCOUNT_CLOSED");
    assert_string_equal(saga->park->error->message, "as the script says");
    assert_int_equal(step_of(saga, "b")->state,
                     SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_REJECTED);
    assert_int_equal(step_of(saga, "a")->state,
                     SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_WAITING);
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_OPERATOR);
    /* A person may try it again; cancelling what has turned back already says nothing. */
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_cancel(&rig, "undo", "u-refused", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "CANCEL_NOT_ALLOWED");
    assert_int_equal(rig_retry(&rig, "undo", "u-refused", "b", reason), 0);
    rig_await(&rig, RIG_STORE, "2", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id ="
              " 'u-refused' AND kind = 'PARK'");
    /* A handler that threw is UNKNOWN: repeated, since that is safe, until the budget is spent. */
    rig_await_state(&rig, "undo", "u-unset", "PARKED COMPENSATION_FAILED", SOON);
    assert_true(rig_count(&rig, RIG_BANK,
                          "SELECT count(*) FROM calls WHERE saga_id = 'u-unset' AND step = 'b'"
                          " AND operation = 'C'") > 1);
    assert_int_equal(
        rig_count(&rig, RIG_BANK,
                  "SELECT count(*) FROM calls WHERE saga_id IN ('u-unset', 'u-refused')"
                  " AND step = 'a' AND operation = 'C'"),
        0);
}

static void test_c2_a_compensation_whose_outcome_is_lost_parks_as_unknown(void **state)
{
    (void)state;
    rig_define(&rig, "undo_once", NULL,
               "a: IDEMPOTENT | ONCE attempt_timeout=0.3s\nb: IDEMPOTENT | none");
    rig_start(&rig, "undo_once", "uo-timeout", "b A * rejected\na C * sleep=1500");
    rig_start(&rig, "undo_once", "uo-unset", "b A * rejected\na C * none");
    rig_await_state(&rig, "undo_once", "uo-unset", "PARKED OUTCOME_UNKNOWN", SOON);
    rig_assert_journal(&rig, "undo_once", "uo-unset",
                       "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 UNKNOWN,"
                       " PARK OUTCOME_UNKNOWN");
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_retry(&rig, "undo_once", "uo-unset", "a", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "OUTCOME_UNKNOWN");
    rig_await_state(&rig, "undo_once", "uo-timeout", "PARKED OUTCOME_UNKNOWN", SOON);
    /* Its late report is the resolution: the undo did happen. */
    rig_await_state(&rig, "undo_once", "uo-timeout", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "undo_once", "uo-timeout",
                       "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 EXPIRED,"
                       " PARK OUTCOME_UNKNOWN, late ~a.1 DONE, RESUME");
    rig_assert_calls(&rig, "uo-timeout", "a.1, b.1, ~a.1");
}

static void test_c2_a_compensation_that_kills_its_workers_parks_as_worker_killer(void **state)
{
    (void)state;
    rig_define(&rig, "killer", NULL,
               "a: IDEMPOTENT | IDEMPOTENT handler=kill\nb: IDEMPOTENT | none");
    struct test_process *workers[3];
    for (int i = 0; i < 3; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "killed%d", i);
        workers[i] = rig_worker(&rig, id, "kill:1");
    }
    rig_start(&rig, "killer", "k1", "b A * rejected\na C 1 crash\na C 2 crash\na C 3 crash");
    rig_await_state(&rig, "killer", "k1", "PARKED WORKER_KILLER", SOON + 5000);
    rig_assert_journal(&rig, "killer", "k1",
                       "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 STREAM_LOST,"
                       " ~a.2 STREAM_LOST, ~a.3 STREAM_LOST, PARK WORKER_KILLER");
    for (int i = 0; i < 3; i++) {
        assert_false(test_process_running(workers[i]));
        rig_worker_kill(&rig, workers[i]);
    }
    /* A person who has mended the worker says again. */
    (void)rig_worker(&rig, "mended", "kill:1"); /* the rig owns it */
    assert_int_equal(rig_retry(&rig, "killer", "k1", "a", NULL), 0);
    rig_await_state(&rig, "killer", "k1", "COMPENSATED", SOON);
}

/* --- C4: cancel ------------------------------------------------------------------------------- */

static void test_c4_cancel_before_and_during_a_step_and_in_back_off(void **state)
{
    (void)state;
    rig_define(&rig, "idle", NULL, "a: IDEMPOTENT handler=nobody | IDEMPOTENT");
    rig_define(&rig, "three", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT\n"
               "c: ONCE attempt_timeout=1.5s | IDEMPOTENT | guarded");
    rig_start(&rig, "idle", "c4a", "");
    rig_start(&rig, "three", "c4b", "c A 1 sleep=600 guarded\nc C 1 guarded");
    rig_start(&rig, "three", "c4b-lost", "c A 1 sleep=4000 guarded\nc C 1 guarded");
    rig_start(&rig, "three", "c4c", "b A 1 after=600000 retry");
    /* (a) nothing ran, nothing is undone */
    assert_int_equal(rig_cancel(&rig, "idle", "c4a", NULL), 0);
    rig_await_state(&rig, "idle", "c4a", "COMPENSATED", 1000);
    rig_assert_journal(&rig, "idle", "c4a", "COMPENSATE CANCELLED");
    /* (b) the step in flight is settled first, then undone like the others */
    rig_await_call(&rig, "c4b", "c", "A", 1, SOON);
    assert_int_equal(rig_cancel(&rig, "three", "c4b", NULL), 0);
    rig_await_call(&rig, "c4b-lost", "c", "A", 1, SOON);
    assert_int_equal(rig_cancel(&rig, "three", "c4b-lost", NULL), 0);
    /* (d) twice is once */
    assert_int_equal(rig_cancel(&rig, "three", "c4b", NULL), 0);
    /* (c) within a second */
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id ="
              " 'c4c' AND outcome = 'RETRY'");
    assert_int_equal(rig_cancel(&rig, "three", "c4c", NULL), 0);
    rig_await_state(&rig, "three", "c4c", "COMPENSATED", 1000);
    rig_assert_journal(&rig, "three", "c4c",
                       "a.1 DONE, b.1 RETRY, COMPENSATE CANCELLED, ~a.1 DONE");
    rig_await_state(&rig, "three", "c4b", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "three", "c4b",
                       "a.1 DONE, b.1 DONE, c.1 DONE, COMPENSATE CANCELLED, ~c.1 DONE, ~b.1 DONE,"
                       " ~a.1 DONE");
    assert_int_equal(rig_effects(&rig, "c4b", "c", "A"), 1);
    assert_int_equal(rig_effects(&rig, "c4b", "c", "C"), 1);
    /* In flight and lost: undone through the guard, which blocks the late one. */
    rig_await_state(&rig, "three", "c4b-lost", "COMPENSATED", SOON);
    rig_await(&rig, RIG_BANK, "MAYBE", SOON,
              "SELECT seen FROM calls WHERE saga_id = 'c4b-lost' AND step = 'c'"
              " AND operation = 'C'");
    rig_await(&rig, RIG_BANK, "1", SOON,
              "SELECT count(ended_at) FROM calls WHERE saga_id = 'c4b-lost' AND step = 'c'"
              " AND operation = 'A'");
    assert_int_equal(rig_effects(&rig, "c4b-lost", "c", "A"), 0);
    assert_int_equal(rig_effects(&rig, "c4b-lost", "c", "C"), 0);
    rig_assert_calls(&rig, "c4b-lost", "a.1, b.1, c.1, ~c.1, ~b.1, ~a.1");
    /* The handler that was stopped for nothing could have seen it. */
    rig_await(&rig, RIG_BANK, "CANCELLED", SOON,
              "SELECT stop FROM calls WHERE saga_id = 'c4b' AND step = 'c' AND operation = 'A'");
}

static void test_p6_cancel_or_the_final_report_wins_and_terminal_is_final(void **state)
{
    (void)state;
    enum { RACES_MAX = 400 };
    int races = test_is_full_size() ? RACES_MAX : 40;
    char id[16], reason[RIG_REASON_SIZE];
    rig_define(&rig, "race", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT");
    rig_start_many(&rig, "race", "race", races, "b A 1 sleep=30");
    int lost = 0, won = 0;
    for (int i = 0; i < races; i++) {
        (void)snprintf(id, sizeof id, "race%d", i);
        rig_await_call(&rig, id, "b", "A", 1, SOON);
        int code = rig_cancel(&rig, "race", id, reason);
        rig_await_state(&rig, "race", id, code == 0 ? "COMPENSATED" : "SUCCEEDED", SOON);
        if (code == 0) {
            won++;
            rig_assert_journal(&rig, "race", id,
                               "a.1 DONE, b.1 DONE, COMPENSATE CANCELLED, ~b.1 DONE, ~a.1 DONE");
            /* Again: it is so already. */
            assert_int_equal(rig_cancel(&rig, "race", id, reason), 0);
        } else {
            lost++;
            assert_int_equal(code, FAILED_PRECONDITION);
            assert_string_equal(reason, "CANCEL_NOT_ALLOWED");
            rig_assert_journal(&rig, "race", id, "a.1 DONE, b.1 DONE");
        }
        assert_int_equal(rig_retry(&rig, "race", id, NULL, reason), FAILED_PRECONDITION);
        assert_string_equal(reason, "RETRY_NOT_ALLOWED");
    }
    assert_int_equal(won + lost, races);
    assert_int_equal(rig_cancel(&rig, "race", "nobody", reason), NOT_FOUND);
}

/* --- deadline, start time-out ----------------------------------------------------------------- */

static void test_a_deadline_turns_back_or_parks_as_declared(void **state)
{
    (void)state;
    static const char steps[] = "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT";
    rig_define(&rig, "dead_back", "deadline=1s", steps);
    rig_define(&rig, "dead_park", "deadline=1s on_deadline=PARK", steps);
    rig_start(&rig, "dead_back", "db", "b A * after=600000 retry");
    rig_start(&rig, "dead_park", "dp", "b A 1 after=600000 retry");
    rig_start(&rig, "dead_back", "db-leased", "b A 1 sleep=1500");
    rig_await_state(&rig, "dead_back", "db", "COMPENSATED", 3000);
    rig_assert_journal(&rig, "dead_back", "db",
                       "a.1 DONE, b.1 RETRY, COMPENSATE DEADLINE, ~a.1 DONE");
    rig_await_state(&rig, "dead_park", "dp", "PARKED DEADLINE_EXCEEDED", 3000);
    rig_assert_journal(&rig, "dead_park", "dp", "a.1 DONE, b.1 RETRY, PARK DEADLINE_EXCEEDED");
    /* A person has seen it and goes on. */
    assert_int_equal(rig_retry(&rig, "dead_park", "dp", "b", NULL), 0);
    rig_await_state(&rig, "dead_park", "dp", "SUCCEEDED", SOON);
    rig_await_state(&rig, "dead_back", "db-leased", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "dead_back", "db-leased",
                       "a.1 DONE, b.1 DONE, COMPENSATE DEADLINE, ~b.1 DONE, ~a.1 DONE");
}

static void test_s4_a_step_that_nobody_serves_ends_by_its_start_timeout(void **state)
{
    (void)state;
    int limit_s = test_is_full_size() ? 5 : 1;
    char steps[256];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(
            steps, sizeof steps,
            "a: IDEMPOTENT | IDEMPOTENT\n"
            "b: IDEMPOTENT handler=nobody start_timeout=%ds on_exhausted=%s | IDEMPOTENT",
            limit_s, i ? "PARK" : "COMPENSATE");
        rig_define(&rig, i ? "s4_park" : "s4_back", NULL, steps);
    }
    rig_start(&rig, "s4_back", "s4b", "");
    rig_start(&rig, "s4_park", "s4p", "");
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = 's4b' AND outcome = 'DONE'");
    SAGA waits = rig_get(&rig, "s4_back", "s4b");
    assert_int_equal(waits->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER);
    assert_string_equal(waits->waiting->handler, "nobody");
    assert_int_equal(waits->waiting->workers_connected, 0);
    assert_non_null(waits->waiting->until_time);
    rig_await_state(&rig, "s4_back", "s4b", "COMPENSATED", limit_s * 1000 + 1000);
    rig_assert_journal(&rig, "s4_back", "s4b", "a.1 DONE, COMPENSATE START_TIMEOUT, ~a.1 DONE");
    rig_await_state(&rig, "s4_park", "s4p", "PARKED RETRIES_EXHAUSTED", limit_s * 1000 + 1000);
    rig_assert_journal(&rig, "s4_park", "s4p", "a.1 DONE, PARK RETRIES_EXHAUSTED");
    SAGA parked = rig_get(&rig, "s4_park", "s4p");
    assert_string_equal(parked->park->step, "b");
    assert_string_equal(parked->park->error->code, "NO_WORKER");
    assert_non_null(strstr(parked->park->error->message, "nobody"));
    SAGA back = rig_get(&rig, "s4_back", "s4b");
    assert_string_equal(back->cause->reason, "START_TIMEOUT");
    assert_string_equal(back->cause->step, "b");
    assert_string_equal(back->cause->error->code, "NO_WORKER");
}

/* --- unknown ---------------------------------------------------------------------------------- */

static void test_p4_an_unknown_outcome_is_not_repeated_unless_that_is_declared_safe(void **state)
{
    (void)state;
    rig_define(&rig, "unknown", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: ONCE attempt_timeout=0.4s | IDEMPOTENT");
    rig_define(&rig, "safe", NULL, "a: IDEMPOTENT attempt_timeout=0.4s | IDEMPOTENT");
    rig_start(&rig, "unknown", "p4-said", "b A * effect unknown code=TIMEOUT");
    rig_start(&rig, "unknown", "p4-unset", "b A * effect none");
    rig_start(&rig, "unknown", "p4-hung", "b A * effect sleep=600000");
    rig_start(&rig, "safe", "p4-safe", "a A 1 unknown\na A 2 none\na A 3 unknown");
    static const char *const ids[] = { "p4-said", "p4-unset", "p4-hung" };
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        rig_await_state(&rig, "unknown", ids[i], "PARKED OUTCOME_UNKNOWN", SOON);
    rig_await_state(&rig, "safe", "p4-safe", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "safe", "p4-safe", "a.1 UNKNOWN, a.2 UNKNOWN, a.3 UNKNOWN, a.4 DONE");
    rig_assert_journal(&rig, "unknown", "p4-hung", "a.1 DONE, b.1 EXPIRED, PARK OUTCOME_UNKNOWN");
    wait_ms(1000); /* nothing more comes */
    char reason[RIG_REASON_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        rig_assert_calls(&rig, ids[i], "a.1, b.1");
        assert_int_equal(rig_retry(&rig, "unknown", ids[i], "b", reason), FAILED_PRECONDITION);
        assert_string_equal(reason, "OUTCOME_UNKNOWN");
        assert_int_equal(rig_effects(&rig, ids[i], "b", "A"), 1);
        SAGA saga = rig_get(&rig, "unknown", ids[i]);
        assert_true(step_of(saga, "b")->maybe);
    }
    /* Turning back is the way out: its compensation is told that it may have happened. */
    assert_int_equal(rig_cancel(&rig, "unknown", "p4-said", NULL), 0);
    rig_await_state(&rig, "unknown", "p4-said", "COMPENSATED", SOON);
    rig_await(&rig, RIG_BANK, "MAYBE", SOON,
              "SELECT seen FROM calls WHERE saga_id = 'p4-said' AND operation = 'C'"
              " AND step = 'b'");
}

static void test_maybe_is_sticky_whatever_a_later_attempt_says(void **state)
{
    (void)state;
    rig_define(&rig, "sticky", NULL, "a: IDEMPOTENT | IDEMPOTENT | settle=0.6s\nb: ONCE | none");
    rig_start(&rig, "sticky", "st1", "a A 1 unknown\na A 2 retry\na A 3 rejected");
    rig_await_state(&rig, "sticky", "st1", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "sticky", "st1",
                       "a.1 UNKNOWN, a.2 RETRY, a.3 REJECTED, COMPENSATE REFUSED, ~a.1 DONE");
    rig_await(&rig, RIG_BANK, "MAYBE", SOON,
              "SELECT seen FROM calls WHERE saga_id = 'st1' AND operation = 'C'");
    /* A request that may still be on its way is waited for before it is taken back. */
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal u JOIN journal c"
                               " USING (shard, saga_uid) JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.saga_id = 'st1' AND u.outcome = 'UNKNOWN'"
                               " AND c.operation = 'COMPENSATION' AND c.kind = 'LEASE'"
                               " AND c.leased_at >= u.finished_at + interval '600 ms'"),
                     1);
}

/* --- RetryStep, Q4 ---------------------------------------------------------------------------- */

static void test_retry_step_ends_a_back_off_and_resumes_what_is_parked(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE];
    rig_define(&rig, "again", NULL, "a: IDEMPOTENT max_attempts=2 | none\nb: IDEMPOTENT | none");
    rig_define(&rig, "alone", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "again", "backoff", "a A 1 after=600000 retry");
    rig_start(&rig, "again", "parked", "a A 1 retry\na A 2 retry");
    rig_start(&rig, "again", "leased", "a A 1 sleep=1500");
    rig_start(&rig, "alone", "ready", "");
    rig_await_call(&rig, "leased", "a", "A", 1, SOON);
    assert_int_equal(rig_retry(&rig, "again", "leased", "a", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "LEASE_LIVE");
    assert_int_equal(rig_retry(&rig, "alone", "ready", "a", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "RETRY_NOT_ALLOWED");
    assert_int_equal(rig_retry(&rig, "alone", "ready", "nostep", reason), NOT_FOUND);
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id ="
              " 'backoff' AND outcome = 'RETRY'");
    assert_int_equal(rig_retry(&rig, "again", "backoff", NULL, reason), 0);
    rig_await_state(&rig, "again", "backoff", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "again", "backoff", "a.1 RETRY, RETRY, a.2 DONE, b.1 DONE");
    /* With a fresh budget, and tries that go on counting. */
    rig_await_state(&rig, "again", "parked", "PARKED RETRIES_EXHAUSTED", SOON);
    assert_int_equal(rig_retry(&rig, "again", "parked", "a", reason), 0);
    rig_await_state(&rig, "again", "parked", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "again", "parked",
                       "a.1 RETRY, a.2 RETRY, PARK RETRIES_EXHAUSTED, RETRY, a.3 DONE, b.1 DONE");
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                  " WHERE s.saga_id = 'parked' AND kind = 'RETRY' AND actor = 'tester'"),
        1);
    rig_await_state(&rig, "again", "leased", "SUCCEEDED", SOON);
}

static void test_q4_a_failed_saga_says_why_how_often_and_what_is_next(void **state)
{
    (void)state;
    rig_define(&rig, "q4", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT max_attempts=2 | IDEMPOTENT");
    rig_start(&rig, "q4", "q4-refused",
              "b A * message=600 rejected code=LIMIT\na C 1 after=600000 retry");
    rig_start(&rig, "q4", "q4-backoff", "b A 1 code=BUSY after=600000 retry");
    rig_start(&rig, "q4", "q4-spent", "b A * code=BUSY retry");
    rig_start(&rig, "q4", "q4-cancelled", "b A 1 after=600000 retry");
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id ="
              " 'q4-refused' AND operation = 'COMPENSATION' AND outcome = 'RETRY'");
    SAGA refused = rig_get(&rig, "q4", "q4-refused");
    assert_int_equal(refused->state, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING);
    assert_string_equal(refused->cause->reason, "REFUSED");
    assert_string_equal(refused->cause->step, "b");
    assert_int_equal(refused->cause->try_, 1);
    assert_string_equal(refused->cause->error->code, "LIMIT");
    size_t size = strlen(refused->cause->error->message);
    assert_true(size == 1024 || size == 1023);
    assert_true(utf8_is_valid(refused->cause->error->message, size));
    assert_int_equal(step_of(refused, "a")->state,
                     SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_BACKOFF);
    assert_non_null(step_of(refused, "a")->next_time);
    assert_int_equal(step_of(refused, "a")->tries, 1);
    rig_await_state(&rig, "q4", "q4-spent", "PARKED RETRIES_EXHAUSTED", SOON);
    SAGA spent = rig_get(&rig, "q4", "q4-spent");
    assert_string_equal(spent->park->step, "b");
    assert_string_equal(spent->park->error->code, "BUSY");
    assert_int_equal(step_of(spent, "b")->tries, 2);
    assert_int_equal(step_of(spent, "b")->last_outcome, SAGA__V1__OUTCOME__OUTCOME_RETRY);
    rig_await_call(&rig, "q4-backoff", "b", "A", 1, SOON);
    rig_await(&rig, RIG_STORE, "2", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id IN"
              " ('q4-backoff', 'q4-cancelled') AND outcome = 'RETRY'");
    SAGA backoff = rig_get(&rig, "q4", "q4-backoff");
    assert_int_equal(backoff->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_RETRY);
    assert_true(backoff->waiting->until_time->seconds > clock_wall_ms(&clock_system) / 1000 + 500);
    assert_int_equal(step_of(backoff, "b")->state, SAGA__V1__STEP_STATE__STEP_STATE_BACKOFF);
    assert_string_equal(step_of(backoff, "b")->last_error->code, "BUSY");
    assert_int_equal(rig_cancel(&rig, "q4", "q4-cancelled", NULL), 0);
    rig_await_state(&rig, "q4", "q4-cancelled", "COMPENSATED", SOON);
    SAGA cancelled = rig_get(&rig, "q4", "q4-cancelled");
    assert_string_equal(cancelled->cause->reason, "CANCELLED");
    assert_string_equal(cancelled->cause->actor, "tester");
    assert_int_equal(step_of(cancelled, "b")->state, SAGA__V1__STEP_STATE__STEP_STATE_NOT_RUN);
    assert_int_equal(step_of(cancelled, "a")->state, SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_a_retry_waits_its_back_off_and_counts_a_try),
        TEST(test_a_retry_had_no_effect_so_at_most_once_is_tried_again),
        TEST(test_a_spent_budget_parks_or_compensates_as_declared),
        TEST(test_an_effect_that_is_there_counts_only_if_it_is_ours),
        TEST(test_p5_compensated_means_all_taken_back_in_strict_reverse_order),
        TEST(test_c2_a_refused_compensation_parks_at_once_and_is_shown),
        TEST(test_c2_a_compensation_whose_outcome_is_lost_parks_as_unknown),
        TEST(test_c2_a_compensation_that_kills_its_workers_parks_as_worker_killer),
        TEST(test_c4_cancel_before_and_during_a_step_and_in_back_off),
        TEST(test_p6_cancel_or_the_final_report_wins_and_terminal_is_final),
        TEST(test_a_deadline_turns_back_or_parks_as_declared),
        TEST(test_s4_a_step_that_nobody_serves_ends_by_its_start_timeout),
        TEST(test_p4_an_unknown_outcome_is_not_repeated_unless_that_is_declared_safe),
        TEST(test_maybe_is_sticky_whatever_a_later_attempt_says),
        TEST(test_retry_step_ends_a_back_off_and_resumes_what_is_parked),
        TEST(test_q4_a_failed_saga_says_why_how_often_and_what_is_next),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
