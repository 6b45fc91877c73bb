/* Waiting for something outside, over the whole stack. Goal: a signal that was answered is never
 * lost and counts once, whenever it comes and whatever dies; a wait ends by it, by its time-out, or
 * with the saga; a saga begins when it was asked to. Method: real workers, kill -9 of sagad, the
 * journal and what the participant was called for. */
#include "base/clock.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/wait.h"

#include <stdio.h>

enum {
    SOON = 10000,
    INVALID_ARGUMENT = 3,
    NOT_FOUND = 5,
    FAILED_PRECONDITION = 9,
    SAGAS = 20,
    AHEAD_MS = 2500,
};

static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1];

static const char order[] = "pay: IDEMPOTENT | IDEMPOTENT | guarded\n"
                            "callback: WAIT | none\n"
                            "ship: IDEMPOTENT | IDEMPOTENT | guarded";

static int setup(void **state)
{
    (void)state;
    return nodes_up(&nodes, 2, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return nodes_down(&nodes);
}

static int check(void **state)
{
    (void)state;
    return nodes_check(&nodes);
}

/* "": accepted; "duplicate"; or the reason of the refusal, after its code. */
static void assert_signal(struct rig *rig, const char *definition, const char *saga_id,
                          const char *signal_id, int code, const char *answer)
{
    char reason[RIG_REASON_SIZE];
    assert_int_equal(rig_signal(rig, definition, saga_id, "callback", signal_id, "paid", reason),
                     code);
    assert_string_equal(reason, answer);
}

static void assert_step(struct rig *rig, const char *definition, const char *saga_id, size_t step,
                        Saga__V1__StepState expected)
{
    Saga__V1__Saga *saga = rig_get(rig, definition, saga_id);
    assert_in_range(step, 0, saga->n_steps - 1);
    assert_int_equal(saga->steps[step]->state, expected);
    saga__v1__saga__free_unpacked(saga, NULL);
}

/* Committed, and so shown. */
static void await_done(struct rig *rig, const char *definition, const char *saga_id,
                       const char *step)
{
    rig_await(rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = '%s' AND s.saga_id = '%s' AND step = '%s'"
              " AND outcome = 'DONE'",
              definition, saga_id, step);
}

static void test_a_signal_wakes_a_saga_that_waits(void **state)
{
    (void)state;
    rig_define(one, "wakes", NULL, order);
    (void)rig_worker(one, "w", "act:8 undo:8"); /* the rig owns it */
    rig_start(one, "wakes", "o", "ship A 1 out=S join=callback");
    await_done(one, "wakes", "o", "pay");
    Saga__V1__Saga *saga = rig_get(one, "wakes", "o");
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_SIGNAL);
    assert_string_equal(saga->waiting->signal, "callback");
    assert_string_equal(saga->waiting->step, "callback");
    assert_string_equal(saga->waiting->handler, "");
    assert_int_equal(saga->steps[1]->state, SAGA__V1__STEP_STATE__STEP_STATE_WAITING_FOR_SIGNAL);
    saga__v1__saga__free_unpacked(saga, NULL);
    assert_signal(two, "wakes", "o", "m-1", 0, ""); /* at any node */
    rig_await_state(one, "wakes", "o", "SUCCEEDED", SOON);
    char output[64];
    rig_text(one, RIG_STORE, output, sizeof output,
             "SELECT convert_from(output, 'UTF8') FROM journal JOIN saga s USING (shard, saga_uid)"
             " WHERE s.definition = 'wakes' AND step = 'ship'");
    assert_string_equal(output, "S[callback=paid]"); /* the next task carried the payload */
    assert_signal(one, "wakes", "o", "m-1", 0, "duplicate");
    assert_signal(two, "wakes", "o", "m-1", 0, "duplicate");
    assert_signal(two, "wakes", "o", "m-2", FAILED_PRECONDITION, "SIGNAL_TAKEN");
    rig_assert_calls(one, "o", "pay.1, ship.1");
}

static void test_before_its_wait_it_is_kept(void **state)
{
    (void)state;
    rig_define(one, "kept", NULL, order);
    rig_start(one, "kept", "k", "");
    assert_signal(one, "kept", "k", "m-1", 0, "");
    assert_signal(two, "kept", "k", "m-1", 0, "duplicate");
    assert_step(one, "kept", "k", 1, SAGA__V1__STEP_STATE__STEP_STATE_PENDING);
    (void)rig_worker(one, "w", "act:8 undo:8"); /* the rig owns it */
    rig_await_state(one, "kept", "k", "SUCCEEDED", SOON);
    rig_assert_calls(one, "k", "pay.1, ship.1");
    /* One commit ended the step before and received it. */
    assert_int_equal(
        rig_count(one, RIG_STORE,
                  "SELECT count(*) FROM journal r JOIN journal p USING (shard, saga_uid)"
                  " JOIN saga s USING (shard, saga_uid) WHERE s.definition = 'kept'"
                  " AND r.kind = 'RECEIVE' AND p.step = 'pay' AND p.kind = 'LEASE'"
                  " AND r.finished_at = p.finished_at AND r.about = (SELECT seq FROM journal m"
                  "  WHERE m.shard = r.shard AND m.saga_uid = r.saga_uid AND m.kind = 'SIGNAL'"
                  "  AND m.signal_id = 'm-1' AND m.step = 'callback' AND m.actor = 'bank')"),
        1);
}

static void test_what_is_refused_names_why(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE], long_id[200];
    rig_define(one, "refused", NULL, order);
    rig_start(one, "refused", "r", "");
    assert_int_equal(rig_signal(one, "refused", "r", "other", "1", "", reason), INVALID_ARGUMENT);
    assert_int_equal(rig_signal(one, "refused", "r", "", "1", "", reason), INVALID_ARGUMENT);
    assert_int_equal(rig_signal(one, "refused", "r", "callback", "", "", reason), INVALID_ARGUMENT);
    memset(long_id, 'x', sizeof long_id);
    long_id[129] = '\0';
    assert_int_equal(rig_signal(one, "refused", "r", "callback", long_id, "", reason),
                     INVALID_ARGUMENT);
    assert_int_equal(rig_signal(one, "refused", "nobody", "callback", "1", "", reason), NOT_FOUND);
    long_id[128] = '\0';
    assert_int_equal(rig_signal(one, "refused", "r", "callback", long_id, "", reason), 0);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal WHERE kind = 'SIGNAL'"
                               " AND length(signal_id) = 128"),
                     1);
    (void)rig_worker(one, "w", "act:8 undo:8"); /* the rig owns it */
    rig_await_state(one, "refused", "r", "SUCCEEDED", SOON);
}

/* What was answered is durable: sagad is killed right after, and the callers ask again. */
static void test_p2_p8_an_answered_signal_outlives_sagad(void **state)
{
    (void)state;
    PROVES("P2 P8");
    char id[24], reason[RIG_REASON_SIZE];
    rig_define(one, "killed", NULL, order);
    struct test_process *worker = rig_worker(one, "w", "act:64 undo:64");
    rig_start_many(one, "killed", "k", SAGAS, "");
    rig_await(one, RIG_STORE, "20", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'killed' AND step = 'pay' AND outcome = 'DONE'");
    rig_worker_kill(one, worker); /* so that nothing comes after the signal yet */
    for (int i = 0; i < SAGAS; i++) {
        (void)snprintf(id, sizeof id, "k%d", i);
        assert_int_equal(rig_signal(one, "killed", id, "callback", id, "paid", reason), 0);
    }
    rig_server_kill(one);
    proof_fault("kill -9 of sagad between a signal and the next step", SAGAS);
    rig_server_start(one);
    for (int i = 0; i < SAGAS; i += 2) {
        (void)snprintf(id, sizeof id, "k%d", i);
        assert_int_equal(rig_signal(one, "killed", id, "callback", id, "paid", reason), 0);
        assert_string_equal(reason, "duplicate");
    }
    (void)rig_worker(one, "w2", "act:64 undo:64"); /* the rig owns it */
    rig_await_states(one, "killed", "k", "SUCCEEDED", SAGAS, 6 * SOON);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'killed' AND kind IN ('SIGNAL', 'RECEIVE')"),
                     2 * SAGAS);
    assert_int_equal(rig_count(one, RIG_BANK,
                               "SELECT count(*) FROM calls WHERE step = 'ship'"
                               " AND saga_id LIKE 'k_%%' AND saga_id <> 'k'"),
                     SAGAS);
}

static void test_the_time_out_counts_as_declared(void **state)
{
    (void)state;
    char code[64];
    rig_define(one, "parks", NULL,
               "callback: WAIT timeout=1s | none\n"
               "ship: IDEMPOTENT | IDEMPOTENT | guarded");
    rig_define(one, "goes", NULL,
               "callback: WAIT timeout=1s on_exhausted=CONTINUE | none\n"
               "ship: IDEMPOTENT | IDEMPOTENT | guarded");
    rig_define(one, "turns", NULL,
               "pay: IDEMPOTENT | IDEMPOTENT | guarded\n"
               "callback: WAIT timeout=1s on_exhausted=COMPENSATE | none");
    (void)rig_worker(one, "w", "act:8 undo:8"); /* the rig owns it */
    rig_start(one, "parks", "parks", "");
    rig_start(one, "goes", "goes", "");
    rig_start(one, "turns", "turns", "");
    rig_await_state(one, "goes", "goes", "SUCCEEDED", SOON);
    rig_await_state(one, "turns", "turns", "COMPENSATED", SOON);
    rig_await_state(one, "parks", "parks", "PARKED RETRIES_EXHAUSTED", SOON);
    rig_text(one, RIG_STORE, code, sizeof code,
             "SELECT park_code FROM saga WHERE definition = 'parks'");
    assert_string_equal(code, "NO_SIGNAL");
    rig_assert_calls(one, "turns", "pay.1, ~pay.1");
    assert_signal(one, "goes", "goes", "m", FAILED_PRECONDITION, "SIGNAL_NOT_ALLOWED");
    assert_signal(one, "turns", "turns", "m", FAILED_PRECONDITION, "SIGNAL_NOT_ALLOWED");
    assert_signal(one, "parks", "parks", "m", 0, ""); /* and it goes on */
    rig_await_state(one, "parks", "parks", "SUCCEEDED", SOON);
}

static void test_a_cancel_closes_the_wait(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE];
    rig_define(one, "closed", NULL, order);
    (void)rig_worker(one, "w", "act:8 undo:8"); /* the rig owns it */
    rig_start(one, "closed", "c", "");
    await_done(one, "closed", "c", "pay");
    assert_int_equal(rig_cancel(two, "closed", "c", reason), 0);
    assert_signal(one, "closed", "c", "m", FAILED_PRECONDITION, "SIGNAL_NOT_ALLOWED");
    rig_await_state(one, "closed", "c", "COMPENSATED", SOON);
    assert_signal(two, "closed", "c", "m", FAILED_PRECONDITION, "SIGNAL_NOT_ALLOWED");
    rig_assert_calls(one, "c", "pay.1, ~pay.1");
}

/* --- start_at --- */

static void test_a_start_that_lies_ahead_survives_a_restart(void **state)
{
    (void)state;
    rig_define(one, "later", "deadline=60s", "a: IDEMPOTENT | none\nb: IDEMPOTENT | none");
    (void)rig_worker(one, "w", "act:8"); /* the rig owns it */
    int64_t at_ms = clock_wall_ms(&clock_system) + AHEAD_MS;
    rig_start_at(one, "later", "l", at_ms);
    Saga__V1__Saga *saga = rig_get(two, "later", "l");
    assert_int_equal(saga->start_at_time->seconds, at_ms / 1000);
    assert_int_equal(saga->start_at_time->nanos, at_ms % 1000 * 1000000);
    assert_int_equal(saga->deadline_time->seconds, at_ms / 1000 + 60);
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_DELAY);
    assert_int_equal(saga->waiting->until_time->seconds, at_ms / 1000);
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_DELAYED);
    saga__v1__saga__free_unpacked(saga, NULL);
    rig_server_kill(one);
    rig_server_start(one);
    rig_await_state(one, "later", "l", "SUCCEEDED", AHEAD_MS + 3 * SOON);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'later' AND leased_at >= s.start_at"
                               " AND s.start_at > s.started_at"),
                     2);
}

static void test_a_start_too_far_ahead_is_refused(void **state)
{
    (void)state;
    rig_define(one, "far", NULL, "a: IDEMPOTENT | none");
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    request.definition = rig_borrow("far");
    request.saga_id = rig_borrow("f");
    request.start_at = &at;
    at.seconds = clock_wall_ms(&clock_system) / 1000 + 367 * 24 * 3600;
    struct client_failure failure = { 0 };
    assert_null(rig_call(one, "SagaService/StartSaga", &request.base,
                         &saga__v1__start_saga_response__descriptor, &failure));
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    assert_int_equal(failure.violation_count, 1);
    assert_string_equal(failure.violations[0].field, "start_at");
    assert_non_null(strstr(failure.message, "366 days"));
    client_failure_done(&failure);
    rig_start_at(one, "far", "past", 1000); /* is at once */
    (void)rig_worker(one, "w", "act:8");    /* the rig owns it */
    rig_await_state(one, "far", "past", "SUCCEEDED", SOON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_signal_wakes_a_saga_that_waits, check),
        cmocka_unit_test_teardown(test_before_its_wait_it_is_kept, check),
        cmocka_unit_test_teardown(test_what_is_refused_names_why, check),
        cmocka_unit_test_teardown(test_p2_p8_an_answered_signal_outlives_sagad, check),
        cmocka_unit_test_teardown(test_the_time_out_counts_as_declared, check),
        cmocka_unit_test_teardown(test_a_cancel_closes_the_wait, check),
        cmocka_unit_test_teardown(test_a_start_that_lies_ahead_survives_a_restart, check),
        cmocka_unit_test_teardown(test_a_start_too_far_ahead_is_refused, check),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
