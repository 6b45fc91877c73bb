/* Unknown outcomes and their ways out, over the whole stack (P4). Goal: a probe settles what a lost
 * reply left open, never before settle time; no attempt is made that could arrive when the key is
 * forgotten; what was declared to go on goes on, with its doubt. Method: sagas whose input tells
 * real workers what to say; the journal that results is compared as a whole. */
#include "base/clock.h"
#include "support/proof.h"
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 10000, FAILED_PRECONDITION = 9 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "0.5s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker_threads(&rig, "w1", "act:32 undo:32", 32); /* the rig owns them */
    (void)rig_worker_threads(&rig, "p1", "probe:32", 32);       /* a probe may live elsewhere */
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

static void assert_seen(const char *saga_id, const char *call, const char *expected)
{
    char text[512];
    rig_text(&rig, RIG_BANK, text, sizeof text,
             "SELECT seen FROM calls WHERE saga_id = '%s' AND operation || try = '%s'", saga_id,
             call);
    assert_string_equal(text, expected);
}

static int64_t keys(const char *saga_id)
{
    return rig_count(&rig, RIG_BANK,
                     "SELECT count(DISTINCT key) FROM calls WHERE saga_id = '%s' AND step = 'a'",
                     saga_id);
}

/* --- probes ----------------------------------------------------------------------------------- */

static void test_p4_a_lost_reply_is_settled_by_a_probe_and_never_repeated(void **state)
{
    (void)state;
    rig_define(&rig, "lost", NULL, "a: PROBED | IDEMPOTENT | settle=30s\nb: IDEMPOTENT | none");
    rig_start(&rig, "lost", "l1", "a A 1 unknown\na P 1 done out=bill-7\nb A 1 join=a");
    rig_await_state(&rig, "lost", "l1", "SUCCEEDED", SOON); /* DONE waits for no settle time */
    rig_assert_journal(&rig, "lost", "l1", "a.1 UNKNOWN, ?a.1 DONE, RESOLVE DONE, b.1 DONE");
    rig_assert_calls(&rig, "l1", "a.1, ?a.1, b.1");
    assert_seen("l1", "P1", "PROBES:A.1");
    assert_int_equal(keys("l1"), 1); /* the probe asks by the key that was sent */
    char output[64];
    rig_text(&rig, RIG_STORE, output, sizeof output,
             "SELECT convert_from(output, 'UTF8') FROM journal JOIN saga USING (shard, saga_uid)"
             " WHERE saga_id = 'l1' AND step = 'b'");
    assert_string_equal(output, "[a=bill-7]");
}

static void test_p4_a_worker_that_dies_in_the_call_is_probed_too(void **state)
{
    (void)state;
    rig_define(&rig, "dies", NULL, "a: PROBED handler=dies | none | settle=1s");
    (void)rig_worker(&rig, "dies", "dies:1"); /* the rig owns it */
    rig_start(&rig, "dies", "d1", "a A 1 crash\na P 1 done");
    rig_await_state(&rig, "dies", "d1", "SUCCEEDED", 2L * SOON);
    rig_assert_journal(&rig, "dies", "d1", "a.1 EXPIRED, ?a.1 DONE, RESOLVE DONE");
    rig_assert_calls(&rig, "d1", "a.1, ?a.1");
}

/* The first NOT_DONE comes while the request may still be on its way: it does not count. */
static void test_p4_a_not_done_counts_after_settle_time_alone(void **state)
{
    (void)state;
    rig_define(&rig, "settle", NULL, "a: PROBED | none | settle=2s");
    rig_define(&rig, "fresh", NULL, "a: PROBED fresh_key | none | settle=1s");
    static const char lands_late[] = "a A 1 unknown\na P 1 not_done\na P 2 done";
    static const char never_lands[] = "a A 1 unknown\na P * not_done";
    rig_start(&rig, "settle", "late", lands_late);
    rig_start(&rig, "settle", "never", never_lands);
    rig_start(&rig, "fresh", "fresh", never_lands);
    rig_await_state(&rig, "settle", "late", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "settle", "late",
                       "a.1 UNKNOWN, ?a.1 NOT_DONE, ?a.2 DONE, RESOLVE DONE");
    rig_assert_calls(&rig, "late", "a.1, ?a.1, ?a.2"); /* it landed late, once */
    rig_await_state(&rig, "settle", "never", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "settle", "never",
                       "a.1 UNKNOWN, ?a.1 NOT_DONE, ?a.2 NOT_DONE, RESOLVE NOT_DONE, a.2 DONE");
    assert_int_equal(keys("never"), 1);
    rig_await_state(&rig, "fresh", "fresh", "SUCCEEDED", SOON);
    assert_int_equal(keys("fresh"), 2); /* its next generation */
    /* By the database's clock: none that counts was asked, and nothing repeated, before its time.
     */
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM saga s JOIN journal u USING (shard, saga_uid)"
                  " JOIN journal n USING (shard, saga_uid) WHERE s.definition = 'settle'"
                  " AND u.outcome = 'UNKNOWN' AND n.kind = 'LEASE' AND n.seq > u.seq + 1"
                  " AND n.leased_at < u.finished_at + interval '2 s'"),
        0);
}

static void test_p4_whatever_else_a_probe_says_is_still_unknown(void **state)
{
    (void)state;
    rig_define(&rig, "vague", NULL, "a: PROBED probe_max_attempts=6 | none | settle=0s");
    rig_start(&rig, "vague", "v1",
              "a A 1 unknown\na P 1 still_unknown\na P 2 rejected\na P 3 already\na P 4 retry\n"
              "a P 5 unknown\na P 6 foreign");
    rig_await_state(&rig, "vague", "v1", "PARKED OUTCOME_UNKNOWN", SOON);
    rig_assert_journal(&rig, "vague", "v1",
                       "a.1 UNKNOWN, ?a.1 STILL_UNKNOWN, ?a.2 REJECTED, ?a.3 ALREADY_DONE,"
                       " ?a.4 RETRY, ?a.5 UNKNOWN, ?a.6 ALREADY_DONE, PARK OUTCOME_UNKNOWN");
    rig_assert_calls(&rig, "v1", "a.1, ?a.1, ?a.2, ?a.3, ?a.4, ?a.5, ?a.6");
    /* A person may have the probe ask again; never the action. */
    char reason[RIG_REASON_SIZE];
    rig_start(&rig, "vague", "v2", "a A 1 unknown\na P 7 done\na P * still_unknown");
    rig_await_state(&rig, "vague", "v2", "PARKED OUTCOME_UNKNOWN", SOON);
    assert_int_equal(rig_retry(&rig, "vague", "v2", "a", reason), 0);
    rig_await_state(&rig, "vague", "v2", "SUCCEEDED", SOON);
    rig_assert_calls(&rig, "v2", "a.1, ?a.1, ?a.2, ?a.3, ?a.4, ?a.5, ?a.6, ?a.7");
}

static void test_p5_what_turns_back_is_probed_before_it_is_taken_back(void **state)
{
    (void)state;
    rig_define(&rig, "back", NULL,
               "a: PROBED on_unknown=COMPENSATE probe_max_attempts=2 | IDEMPOTENT | settle=1s\n");
    rig_define(&rig, "undo", NULL,
               "a: IDEMPOTENT | PROBED probe_handler=probe | settle=0s\nb: ONCE | none");
    /* The probe never finds out: on_unknown, compensated as maybe. */
    rig_start(&rig, "back", "maybe", "a A 1 unknown\na P * still_unknown");
    rig_await_state(&rig, "back", "maybe", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "back", "maybe",
                       "a.1 UNKNOWN, ?a.1 STILL_UNKNOWN, ?a.2 STILL_UNKNOWN, COMPENSATE UNKNOWN,"
                       " ~a.1 DONE");
    assert_seen("maybe", "C1", "MAYBE");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga s JOIN journal u USING (shard, saga_uid)"
                               " JOIN journal n USING (shard, saga_uid) WHERE s.saga_id = 'maybe'"
                               " AND u.outcome = 'UNKNOWN' AND n.operation = 'COMPENSATION'"
                               " AND n.leased_at < u.finished_at + interval '1 s'"),
                     0);
    /* The compensation itself gets lost, and is probed: not run twice, not forgotten. */
    rig_start(&rig, "undo", "refund", "b A 1 rejected\na C 1 unknown\na P 1 done");
    rig_await_state(&rig, "undo", "refund", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "undo", "refund",
                       "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 UNKNOWN, ?a.1 DONE,"
                       " RESOLVE DONE");
    assert_seen("refund", "P1", "PROBES:C.1");
    rig_start(&rig, "undo", "again", "b A 1 rejected\na C 1 unknown\na P 1 not_done");
    rig_await_state(&rig, "undo", "again", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "undo", "again",
                       "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 UNKNOWN, ?a.1 NOT_DONE,"
                       " RESOLVE NOT_DONE, ~a.2 DONE");
}

/* --- the idempotency window ------------------------------------------------------------------- */

static void test_u9_p4_no_attempt_could_arrive_when_the_key_is_forgotten(void **state)
{
    (void)state;
    PROVES("P4");
    rig_define(&rig, "window", NULL,
               "a: IDEMPOTENT idempotency_window=4s initial=0.3s cap=0.5s | none | settle=1s");
    rig_define(&rig, "asked", NULL, "a: IDEMPOTENT idempotency_window=3s probe | none | settle=1s");
    rig_start(&rig, "window", "w1", "a A * unknown");
    rig_start(&rig, "window", "w2", "a A 1 unknown\na A 2 done");
    rig_start(&rig, "window", "w3",
              "a A 9 done\na A * after=900 retry"); /* none of them happened */
    rig_start(&rig, "asked", "k1", "a A * unknown\na P * not_done");
    rig_await_state(&rig, "window", "w2", "SUCCEEDED", SOON);
    /* A restart does not let the other side remember for longer. */
    rig_server_kill(&rig);
    rig_server_start(&rig);
    rig_await_state(&rig, "window", "w1", "PARKED IDEMPOTENCY_WINDOW_OVER", SOON);
    char reason[RIG_REASON_SIZE];
    wait_ms(600); /* it parks when the next try would be too late: so long before that at most */
    assert_int_equal(rig_retry(&rig, "window", "w1", "a", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "OUTCOME_UNKNOWN");
    assert_true(rig_count(&rig, RIG_BANK, "SELECT count(*) FROM calls WHERE saga_id = 'w1'") > 1);
    rig_await_state(&rig, "window", "w3", "SUCCEEDED", 2L * SOON);
    /* Each attempt since the first unknown one ends settle time before the window does. */
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                  " WHERE s.definition = 'window' AND s.saga_id <> 'w3' AND j.kind = 'LEASE'"
                  " AND greatest(j.attempt_until, j.lease_until) >"
                  "  (SELECT min(f.leased_at) + interval '3 s' FROM journal f"
                  "   WHERE f.saga_uid = j.saga_uid)"),
        0);
    /* With a probe nobody needs a person: NOT_DONE starts a new window. */
    rig_await(&rig, RIG_STORE, "1", 2L * SOON,
              "SELECT least(count(*), 1) FROM journal JOIN saga USING (shard, saga_uid)"
              " WHERE saga_id = 'k1' AND kind = 'LEASE' AND operation = 'ACTION' AND seq >"
              " (SELECT min(r.seq) FROM journal r WHERE r.saga_uid = saga.saga_uid"
              "  AND r.kind = 'RESOLVE')");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
                               " WHERE saga_id = 'k1' AND kind = 'PROBE'") > 0,
                     1);
    rig_cancel(&rig, "asked", "k1", reason);
    rig_await_state(&rig, "asked", "k1", "COMPENSATED", SOON);
}

/* The other side remembers for an hour, and sagad was away for two. */
static void test_u9_p4_after_a_long_outage_nothing_is_sent_blindly(void **state)
{
    (void)state;
    enum { SAGAS = 20 };
    rig_define(&rig, "hour", NULL,
               "a: IDEMPOTENT idempotency_window=3600s initial=60s cap=60s | none | settle=1s");
    rig_define(
        &rig, "hour_asked", NULL,
        "a: IDEMPOTENT idempotency_window=3600s initial=60s cap=60s probe | none | settle=1s");
    rig_start_many(&rig, "hour", "blind", SAGAS, "a A 1 unknown");
    rig_start_many(&rig, "hour_asked", "there", SAGAS, "a A 1 unknown\na P 1 done");
    rig_start_many(&rig, "hour_asked", "gone", SAGAS, "a A 1 unknown\na P 1 not_done");
    rig_await(&rig, RIG_STORE, "60", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition LIKE 'hour%%' AND outcome = 'UNKNOWN'");
    rig_server_kill(&rig);
    rig_exec(&rig, RIG_STORE,
             "UPDATE journal j SET leased_at = leased_at - interval '2 h',"
             " attempt_until = attempt_until - interval '2 h',"
             " lease_until = lease_until - interval '2 h',"
             " finished_at = finished_at - interval '2 h', retry_at = retry_at - interval '2 h'"
             " FROM saga s WHERE s.shard = j.shard AND s.saga_uid = j.saga_uid"
             " AND s.definition LIKE 'hour%%'");
    rig_exec(&rig, RIG_STORE,
             "UPDATE saga SET started_at = started_at - interval '2 h'"
             " WHERE definition LIKE 'hour%%'");
    rig_server_start(&rig);
    rig_await_states(&rig, "hour", "blind", "PARKED IDEMPOTENCY_WINDOW_OVER", SAGAS, SOON);
    rig_await_states(&rig, "hour_asked", "there", "SUCCEEDED", SAGAS, SOON);
    rig_await_states(&rig, "hour_asked", "gone", "SUCCEEDED", SAGAS, SOON);
    rig_assert_journal(&rig, "hour", "blind7", "a.1 UNKNOWN, PARK IDEMPOTENCY_WINDOW_OVER");
    rig_assert_journal(&rig, "hour_asked", "there7", "a.1 UNKNOWN, PROBE, ?a.1 DONE, RESOLVE DONE");
    rig_assert_journal(&rig, "hour_asked", "gone7",
                       "a.1 UNKNOWN, PROBE, ?a.1 NOT_DONE, RESOLVE NOT_DONE, a.2 DONE");
    rig_assert_calls(&rig, "blind7", "a.1");
    rig_assert_calls(&rig, "there7", "a.1, ?a.1");
    rig_assert_calls(&rig, "gone7", "a.1, ?a.1, a.2");
}

/* --- going on without ------------------------------------------------------------------------- */

static void test_p5_accept_and_continue_go_on_and_say_so(void **state)
{
    (void)state;
    rig_define(&rig, "accept", NULL,
               "a: ONCE on_unknown=ACCEPT | IDEMPOTENT | settle=0s\nb: IDEMPOTENT | none");
    rig_define(&rig, "leave", NULL,
               "a: IDEMPOTENT max_attempts=2 on_exhausted=CONTINUE | none\nb: IDEMPOTENT | none");
    rig_start(&rig, "accept", "on", "a A 1 unknown\nb A 1 join=a");
    rig_start(&rig, "accept", "turned", "a A 1 unknown\nb A 1 rejected");
    rig_start(&rig, "leave", "left", "a A * retry\nb A 1 join=a");
    rig_await_state(&rig, "accept", "on", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "accept", "on", "a.1 UNKNOWN, ACCEPT, b.1 DONE");
    rig_await_state(&rig, "accept", "turned", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "accept", "turned",
                       "a.1 UNKNOWN, ACCEPT, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 DONE");
    assert_seen("turned", "C1", "MAYBE");
    rig_await_state(&rig, "leave", "left", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "leave", "left", "a.1 RETRY, a.2 RETRY, CONTINUE, b.1 DONE");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE saga_id IN ('on', 'left')"
                               " AND doubt = (saga_id = 'on')"),
                     2);
}

/* A poisonous saga parks by itself, others of its handler go on. */
static void test_p8_what_kills_its_workers_parks_as_often_as_declared(void **state)
{
    (void)state;
    rig_define(&rig, "killer", NULL, "a: IDEMPOTENT handler=dying lost_leases_max=2 | none");
    (void)rig_worker(&rig, "k1", "dying:1"); /* the rig owns them */
    rig_start(&rig, "killer", "poison", "a A * crash");
    rig_await_call(&rig, "poison", "a", "A", 1, SOON);
    (void)rig_worker(&rig, "k2", "dying:1");
    rig_await_call(&rig, "poison", "a", "A", 2, 2L * SOON);
    rig_await_state(&rig, "killer", "poison", "PARKED WORKER_KILLER", 2L * SOON);
    rig_start(&rig, "killer", "plain", "");
    (void)rig_worker(&rig, "k3", "dying:1");
    rig_await_state(&rig, "killer", "plain", "SUCCEEDED", SOON);
    rig_assert_calls(&rig, "poison", "a.1, a.2");
}

/* --- taking over ------------------------------------------------------------------------------ */

static Saga__V1__StartSagaRequest suspect_request(const char *definition, const char *saga_id,
                                                  const char *script)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow(definition);
    request.saga_id = rig_borrow(saga_id);
    request.input.data = (uint8_t *)rig_borrow(script);
    request.input.len = strlen(script);
    request.suspect = true;
    return request;
}

static void start_suspect(const Saga__V1__StartSagaRequest *request)
{
    saga__v1__start_saga_response__free_unpacked(
        (Saga__V1__StartSagaResponse *)rig_call(&rig, "SagaService/StartSaga", &request->base,
                                                &saga__v1__start_saga_response__descriptor, NULL),
        NULL);
}

static void test_p4_what_somebody_else_may_have_run_is_settled_in_its_turn(void **state)
{
    (void)state;
    rig_define(&rig, "over", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: PROBED | none | settle=1s\nc: ONCE | none");
    Saga__V1__StartSagaRequest request =
        suspect_request("over", "o1", "a A 1 foreign\nb P 1 done out=bill-7");
    Google__Protobuf__Timestamp since = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    since.seconds = clock_wall_ms(&clock_system) / 1000 - 3600;
    request.suspect_since = &since;
    request.actor = rig_borrow("ada");
    start_suspect(&request);
    rig_await_state(&rig, "over", "o1", "PARKED OUTCOME_UNKNOWN", SOON);
    rig_assert_journal(&rig, "over", "o1",
                       "SUSPECT, a.1 ALREADY_DONE, ?b.1 DONE, RESOLVE DONE, PARK OUTCOME_UNKNOWN");
    rig_assert_calls(&rig, "o1", "a.1, ?b.1"); /* c is nobody's to run before it is known */
    assert_seen("o1", "P1", "PROBES:A.0");
    rig_server_kill(&rig);
    rig_server_start(&rig);
    Saga__V1__Saga *saga = rig_get(&rig, "over", "o1");
    const Saga__V1__StepStatus *step = saga->steps[2];
    assert_int_equal(step->state, SAGA__V1__STEP_STATE__STEP_STATE_UNKNOWN);
    assert_true(step->maybe && step->suspect && !saga->steps[1]->suspect);
    assert_int_equal(step->unknown->attempts, 1);
    assert_int_equal(step->unknown->fence, 0);
    assert_int_equal(step->unknown->lease_time->seconds, since.seconds);
    assert_string_equal(saga->park->error->code, "MAY_HAVE_RUN");
    saga__v1__saga__free_unpacked(saga, NULL);
    start_suspect(&request); /* again: it is there */
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_retry(&rig, "over", "o1", "c", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "OUTCOME_UNKNOWN");
    assert_int_equal(rig_cancel(&rig, "over", "o1", reason), 0);
    rig_await_state(&rig, "over", "o1", "COMPENSATED", SOON);
    rig_assert_calls(&rig, "o1", "a.1, ?b.1, ~a.1");
}

/* The last one first, although this saga never came to it. */
static void test_p5_what_took_over_and_turned_back_takes_all_of_it_back(void **state)
{
    (void)state;
    rig_define(&rig, "overback", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT");
    Saga__V1__StartSagaRequest request = suspect_request("overback", "o2", "a A 1 rejected");
    start_suspect(&request);
    rig_await_state(&rig, "overback", "o2", "COMPENSATED", SOON);
    rig_assert_journal(&rig, "overback", "o2",
                       "SUSPECT, a.1 REJECTED, COMPENSATE REFUSED, ~b.1 DONE, ~a.1 DONE");
}

static void assert_start_refused(const Saga__V1__StartSagaRequest *request, const char *field)
{
    enum { INVALID_ARGUMENT = 3 };
    struct client_failure failure = { 0 };
    assert_null(rig_call(&rig, "SagaService/StartSaga", &request->base,
                         &saga__v1__start_saga_response__descriptor, &failure));
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_int_equal(failure.violation_count, 1);
    assert_string_equal(failure.violations[0].field, field);
    client_failure_done(&failure);
}

static void test_a_start_that_takes_over_names_what_is_wrong(void **state)
{
    (void)state;
    Saga__V1__StartSagaRequest request = suspect_request("over", "wrong", "");
    Google__Protobuf__Timestamp since = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    since.seconds = clock_wall_ms(&clock_system) / 1000 + 3600;
    request.suspect_since = &since;
    assert_start_refused(&request, "suspect_since");
    since.seconds = -1;
    assert_start_refused(&request, "suspect_since");
    request.suspect = false;
    since.seconds = 1000;
    assert_start_refused(&request, "suspect_since");
    request.suspect_since = NULL;
    request.actor = rig_borrow("ada");
    assert_start_refused(&request, "actor");
    char actor[130];
    memset(actor, 'a', sizeof actor);
    actor[sizeof actor - 1] = '\0';
    request.suspect = true;
    request.actor = actor;
    assert_start_refused(&request, "actor");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p4_a_lost_reply_is_settled_by_a_probe_and_never_repeated),
        TEST(test_p4_a_worker_that_dies_in_the_call_is_probed_too),
        TEST(test_p4_a_not_done_counts_after_settle_time_alone),
        TEST(test_p4_whatever_else_a_probe_says_is_still_unknown),
        TEST(test_p5_what_turns_back_is_probed_before_it_is_taken_back),
        TEST(test_u9_p4_no_attempt_could_arrive_when_the_key_is_forgotten),
        TEST(test_u9_p4_after_a_long_outage_nothing_is_sent_blindly),
        TEST(test_p5_accept_and_continue_go_on_and_say_so),
        TEST(test_p8_what_kills_its_workers_parks_as_often_as_declared),
        TEST(test_p4_what_somebody_else_may_have_run_is_settled_in_its_turn),
        TEST(test_p5_what_took_over_and_turned_back_takes_all_of_it_back),
        TEST(test_a_start_that_takes_over_names_what_is_wrong),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
