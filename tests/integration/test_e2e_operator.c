/* What people ask and tell beside the verbs that settle a step. Goal: a suspended saga grants
 * nothing while what is live may end and is recorded; what is parked is counted in groups; the
 * floor of the guards is below every saga that may still run an operation; what is in doubt is
 * listed until somebody has looked. Method: workers by hand, the calls themselves, right and wrong.
 */
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 10000, INVALID_ARGUMENT = 3, CODE_NOT_FOUND = 5, FAILED_PRECONDITION = 9 };
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE
#define REJECTED SAGA__V1__OUTCOME__OUTCOME_REJECTED

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };

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

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static void free_message_p(void *message)
{
    ProtobufCMessage *it = *(ProtobufCMessage **)message;
    if (it)
        protobuf_c_message_free_unpacked(it, NULL);
}
#define MESSAGE(type) CLEANUP(free_message_p) Saga__V1__##type *

static Saga__V1__SagaRef ref_of(const char *definition, const char *saga_id)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.definition = rig_borrow(definition);
    ref.saga_id = rig_borrow(saga_id);
    return ref;
}

/* The status code; `ret_reason` gets the stable reason, or "field NAME". */
static int tell(const char *method, const ProtobufCMessage *request,
                char ret_reason[RIG_REASON_SIZE])
{
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply =
        rig_call(&rig, method, request, &saga__v1__saga__descriptor, &failure);
    ret_reason[0] = '\0';
    if (reply) {
        protobuf_c_message_free_unpacked(reply, NULL);
        return 0;
    }
    int code = failure.code;
    (void)snprintf(ret_reason, RIG_REASON_SIZE, "%s", failure.reason);
    if (failure.violation_count)
        (void)snprintf(ret_reason, RIG_REASON_SIZE, "field %s", failure.violations[0].field);
    client_failure_done(&failure);
    return code;
}

static int suspend(const char *definition, const char *saga_id, const char *reason,
                   char ret_reason[RIG_REASON_SIZE])
{
    Saga__V1__SagaRef ref = ref_of(definition, saga_id);
    Saga__V1__SuspendSagaRequest request = SAGA__V1__SUSPEND_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.reason = rig_borrow(reason);
    request.actor = rig_borrow("ada");
    return tell("OperatorService/SuspendSaga", &request.base, ret_reason);
}

static int resume(const char *definition, const char *saga_id, char ret_reason[RIG_REASON_SIZE])
{
    Saga__V1__SagaRef ref = ref_of(definition, saga_id);
    Saga__V1__ResumeSagaRequest request = SAGA__V1__RESUME_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.actor = rig_borrow("bob");
    return tell("OperatorService/ResumeSaga", &request.base, ret_reason);
}

static struct raw_lease must_get(struct raw_worker *worker, const char *step)
{
    const Saga__V1__Task *task = raw_worker_task(worker, SOON);
    assert_non_null(task);
    assert_string_equal(task->step, step);
    return raw_lease_of(task);
}

/* --- suspend, resume -------------------------------------------------------------------------- */

static void test_a_suspended_saga_records_what_ends_and_grants_nothing_until_resumed(void **state)
{
    (void)state;
    PROVES("P3 P6");
    char reason[RIG_REASON_SIZE];
    rig_define(&rig, "halt", NULL,
               "a: IDEMPOTENT handler=halt lease=60s | IDEMPOTENT handler=halt\n"
               "b: IDEMPOTENT handler=halt | IDEMPOTENT handler=halt");
    struct raw_worker *worker = raw_worker_hello(rig.address, "halt", NULL, "halt", NULL, 0);
    raw_worker_credit(worker, "halt", 20);
    rig_start(&rig, "halt", "h1", "");
    struct raw_lease lease = must_get(worker, "a");
    assert_int_equal(suspend("halt", "h1", "the bank asked", reason), 0);
    rig_await_state(&rig, "halt", "h1", "PARKED SUSPENDED", 100);
    assert_int_equal(suspend("halt", "h1", "again", reason), 0); /* nothing */
    raw_worker_extend(worker, &lease);
    assert_true(raw_worker_extended(worker, SOON) > 0);
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, "x"), ACCEPTED);
    assert_null(raw_worker_task(worker, 400));
    rig_assert_journal(&rig, "halt", "h1", "a.1 DONE, PARK SUSPENDED");
    /* It outlives the server. */
    rig_server_kill(&rig);
    worker = raw_worker_cut(worker);
    rig_server_start(&rig);
    worker = raw_worker_hello(rig.address, "halt2", NULL, "halt", NULL, 0);
    raw_worker_credit(worker, "halt", 20);
    assert_null(raw_worker_task(worker, 400));
    assert_int_equal(resume("halt", "h1", reason), 0);
    lease = must_get(worker, "b");
    assert_int_equal(resume("halt", "h1", reason), 0); /* nothing */
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, "y"), ACCEPTED);
    rig_await_state(&rig, "halt", "h1", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "halt", "h1", "a.1 DONE, PARK SUSPENDED, RESUME, b.1 DONE");
    rig_await(&rig, RIG_STORE, "ada:the bank asked bob:", 100,
              "SELECT string_agg(actor || ':' || coalesce(error_message, ''), ' ' ORDER BY seq)"
              " FROM journal JOIN saga USING (shard, saga_uid) WHERE saga_id = 'h1'"
              " AND kind IN ('PARK', 'RESUME')");
    worker = raw_worker_cut(worker);
}

static void test_a_refusal_while_suspended_turns_it_back_once_it_is_resumed(void **state)
{
    (void)state;
    PROVES("P5");
    char reason[RIG_REASON_SIZE];
    rig_define(&rig, "haltback", NULL,
               "a: IDEMPOTENT handler=hb | IDEMPOTENT handler=hb\n"
               "b: IDEMPOTENT handler=hb lease=60s | IDEMPOTENT handler=hb");
    struct raw_worker *worker = raw_worker_hello(rig.address, "hb", NULL, "hb", NULL, 0);
    raw_worker_credit(worker, "hb", 20);
    rig_start(&rig, "haltback", "h2", "");
    struct raw_lease lease = must_get(worker, "a");
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, ""), ACCEPTED);
    lease = must_get(worker, "b");
    assert_int_equal(suspend("haltback", "h2", "wait", reason), 0);
    assert_int_equal(raw_worker_settle(worker, &lease, REJECTED, ""), ACCEPTED);
    assert_null(raw_worker_task(worker, 400));
    rig_await_state(&rig, "haltback", "h2", "PARKED SUSPENDED", 100);
    assert_int_equal(resume("haltback", "h2", reason), 0);
    lease = must_get(worker, "a");
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, ""), ACCEPTED);
    rig_await_state(&rig, "haltback", "h2", "COMPENSATED", SOON);
    assert_int_equal(suspend("haltback", "h2", "too late", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "SUSPEND_NOT_ALLOWED");
    assert_int_equal(resume("haltback", "h2", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "RESUME_NOT_ALLOWED");
    worker = raw_worker_cut(worker);
}

static void test_wrong_requests_to_suspend_and_resume_change_nothing(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE], long_text[1100];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    rig_define(&rig, "haltwrong", NULL, "a: ONCE | none\nb: IDEMPOTENT handler=nobody | none");
    (void)rig_worker(&rig, "hw", "act:2"); /* the rig owns it */
    rig_start(&rig, "haltwrong", "h3", "a A 1 unknown");
    rig_await_state(&rig, "haltwrong", "h3", "PARKED OUTCOME_UNKNOWN", SOON);
    assert_int_equal(suspend("haltwrong", "h3", "x", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "SUSPEND_NOT_ALLOWED");
    assert_int_equal(resume("haltwrong", "h3", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "RESUME_NOT_ALLOWED");
    rig_start(&rig, "haltwrong", "h4", "");
    assert_int_equal(suspend("haltwrong", "h4", "", reason), INVALID_ARGUMENT);
    assert_string_equal(reason, "field reason");
    assert_int_equal(suspend("haltwrong", "h4", long_text, reason), INVALID_ARGUMENT);
    assert_string_equal(reason, "field reason");
    assert_int_equal(suspend("haltwrong", "h4", "bell\a", reason), INVALID_ARGUMENT);
    assert_int_equal(suspend("haltwrong", "nobody", "x", reason), CODE_NOT_FOUND);
    assert_int_equal(resume("haltwrong", "nobody", reason), CODE_NOT_FOUND);
    assert_int_equal(resume("haltwrong", "", reason), INVALID_ARGUMENT);
    rig_assert_journal(&rig, "haltwrong", "h3", "a.1 UNKNOWN, PARK OUTCOME_UNKNOWN");
}

/* --- parked, in groups ------------------------------------------------------------------------ */

static Saga__V1__ListParkedResponse *list_parked(const char *namespace_, const char *definition)
{
    Saga__V1__ListParkedRequest request = SAGA__V1__LIST_PARKED_REQUEST__INIT;
    request.namespace_ = rig_borrow(namespace_);
    request.definition = rig_borrow(definition);
    return (Saga__V1__ListParkedResponse *)rig_call(
        &rig, "OperatorService/ListParked", &request.base,
        &saga__v1__list_parked_response__descriptor, NULL);
}

static void test_what_is_parked_is_counted_in_groups(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE];
    rig_define(&rig, "desk", NULL, "a: ONCE | IDEMPOTENT\nb: IDEMPOTENT | none");
    (void)rig_worker(&rig, "dw", "act:2 undo:2"); /* the rig owns it */
    rig_start(&rig, "desk", "d1", "a A 1 unknown code=TIMEOUT");
    rig_await_state(&rig, "desk", "d1", "PARKED OUTCOME_UNKNOWN", SOON);
    rig_start(&rig, "desk", "d2", "a A 1 unknown code=TIMEOUT");
    rig_start(&rig, "desk", "d3", "a A 1 unknown code=RESET");
    rig_start(&rig, "desk", "d4", "b A 1 rejected\na C * rejected code=CLOSED");
    rig_await_state(&rig, "desk", "d2", "PARKED OUTCOME_UNKNOWN", SOON);
    rig_await_state(&rig, "desk", "d3", "PARKED OUTCOME_UNKNOWN", SOON);
    rig_await_state(&rig, "desk", "d4", "PARKED COMPENSATION_FAILED", SOON);
    {
        MESSAGE(ListParkedResponse) parked = list_parked("", "desk");
        assert_int_equal(parked->n_groups, 3);
        assert_int_equal(parked->parked, 4);
        assert_false(parked->more);
        const Saga__V1__ListParkedResponse__Group *group = parked->groups[0];
        assert_string_equal(group->namespace_, "default");
        assert_string_equal(group->definition, "desk");
        assert_string_equal(group->step, "a");
        assert_int_equal(group->reason, SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN);
        assert_string_equal(group->error_code, "TIMEOUT");
        assert_int_equal(group->count, 2);
        assert_string_equal(group->oldest_saga_id, "d1");
        assert_non_null(group->oldest_time);
        assert_int_equal(group->phase, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
        for (size_t i = 1; i < 3; i++) {
            group = parked->groups[i];
            bool undo = group->phase == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING;
            assert_int_equal(group->count, 1);
            assert_string_equal(group->error_code, undo ? "CLOSED" : "RESET");
            assert_string_equal(group->oldest_saga_id, undo ? "d4" : "d3");
        }
    }
    MESSAGE(ListParkedResponse) every = list_parked("-", "");
    assert_int_equal(every->parked, rig_count(&rig, RIG_STORE,
                                              "SELECT count(*) FROM saga WHERE state = 'PARKED'"));
    assert_int_equal(rig_cancel(&rig, "desk", "d1", reason), 0);
    assert_int_equal(rig_cancel(&rig, "desk", "d2", reason), 0);
    assert_int_equal(rig_cancel(&rig, "desk", "d3", reason), 0);
    rig_await_states(&rig, "desk", "d", "COMPENSATED", 3, SOON);
    MESSAGE(ListParkedResponse) left = list_parked("default", "desk");
    assert_int_equal(left->n_groups, 1);
    MESSAGE(ListParkedResponse) none = list_parked("default", "nothing");
    assert_int_equal(none->n_groups, 0);
    assert_int_equal(none->parked, 0);
    /* A name that cannot be one. */
    struct client_failure failure = { .code = 0 };
    Saga__V1__ListParkedRequest request = SAGA__V1__LIST_PARKED_REQUEST__INIT;
    request.definition = rig_borrow("a\nb");
    assert_null(rig_call(&rig, "OperatorService/ListParked", &request.base,
                         &saga__v1__list_parked_response__descriptor, &failure));
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    client_failure_done(&failure);
}

/* --- the floor of the guards ------------------------------------------------------------------ */

static int64_t ms_of(const Google__Protobuf__Timestamp *time)
{
    assert_non_null(time);
    return time->seconds * 1000 + time->nanos / 1000000;
}

static Saga__V1__GetGuardFloorResponse *floor_with(const Google__Protobuf__Duration *margin)
{
    Saga__V1__GetGuardFloorRequest request = SAGA__V1__GET_GUARD_FLOOR_REQUEST__INIT;
    request.margin = (Google__Protobuf__Duration *)(uintptr_t)margin; /* only read */
    return (Saga__V1__GetGuardFloorResponse *)rig_call(
        &rig, "OperatorService/GetGuardFloor", &request.base,
        &saga__v1__get_guard_floor_response__descriptor, NULL);
}

static void test_the_guard_floor_follows_the_oldest_saga_that_has_not_ended(void **state)
{
    (void)state;
    rig_define(&rig, "floor", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "floor", "f1", "");
    char oldest[300];
    rig_text(&rig, RIG_STORE, oldest, sizeof oldest,
             "SELECT definition || ' ' || saga_id || ' ' ||"
             " floor(1000 * extract(epoch FROM started_at)) FROM saga WHERE ended_at IS NULL"
             " ORDER BY started_at, saga_uid LIMIT 1");
    {
        MESSAGE(GetGuardFloorResponse) usual = floor_with(NULL);
        char text[300];
        assert_non_null(usual->oldest);
        (void)snprintf(text, sizeof text, "%s %s %lld", usual->oldest->definition,
                       usual->oldest->saga_id, (long long)ms_of(usual->oldest_start_time));
        assert_string_equal(text, oldest);
        assert_int_equal(ms_of(usual->floor), ms_of(usual->oldest_start_time) - 3600 * 1000);
        Google__Protobuf__Duration margin = GOOGLE__PROTOBUF__DURATION__INIT;
        MESSAGE(GetGuardFloorResponse) none = floor_with(&margin);
        assert_int_equal(ms_of(none->floor), ms_of(none->oldest_start_time));
        margin.nanos = 250000000;
        MESSAGE(GetGuardFloorResponse) little = floor_with(&margin);
        assert_int_equal(ms_of(little->floor), ms_of(little->oldest_start_time) - 250);
    }
    static const Google__Protobuf__Duration wrong[] = {
        { PROTOBUF_C_MESSAGE_INIT(&google__protobuf__duration__descriptor), -1, 0 },
        { PROTOBUF_C_MESSAGE_INIT(&google__protobuf__duration__descriptor), 367 * 24 * 3600, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct client_failure failure = { .code = 0 };
        Saga__V1__GetGuardFloorRequest request = SAGA__V1__GET_GUARD_FLOOR_REQUEST__INIT;
        request.margin = (Google__Protobuf__Duration *)(uintptr_t)&wrong[i]; /* only read */
        assert_null(rig_call(&rig, "OperatorService/GetGuardFloor", &request.base,
                             &saga__v1__get_guard_floor_response__descriptor, &failure));
        assert_int_equal(failure.code, INVALID_ARGUMENT);
        assert_int_equal(failure.violation_count, 1);
        assert_string_equal(failure.violations[0].field, "margin");
        client_failure_done(&failure);
    }
}

/* --- doubt ------------------------------------------------------------------------------------ */

/* Keys of the listed sagas, newest first: "u2 u1". */
static void assert_in_doubt(const char *definition, bool doubt, const char *expected)
{
    Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    request.definition = rig_borrow(definition);
    request._doubt_case = SAGA__V1__LIST_SAGAS_REQUEST___DOUBT_DOUBT;
    request.doubt = doubt;
    MESSAGE(ListSagasResponse)
    page =
        (Saga__V1__ListSagasResponse *)rig_call(&rig, "SagaService/ListSagas", &request.base,
                                                &saga__v1__list_sagas_response__descriptor, NULL);
    char text[256] = "";
    for (size_t i = 0; i < page->n_sagas; i++) {
        assert_int_equal(page->sagas[i]->doubt, doubt);
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                       page->sagas[i]->saga_id);
    }
    assert_string_equal(text, expected);
}

static void resolve(const char *definition, const char *saga_id, bool happened)
{
    char reason[RIG_REASON_SIZE];
    Saga__V1__SagaRef ref = ref_of(definition, saga_id);
    Saga__V1__ResolveStepRequest request = SAGA__V1__RESOLVE_STEP_REQUEST__INIT;
    request.saga = &ref;
    request.step = rig_borrow("a");
    request.evidence = rig_borrow("seen on the statement");
    request.result = happened ? SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN
                              : SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_NOT_HAPPEN;
    assert_int_equal(tell("OperatorService/ResolveStep", &request.base, reason), 0);
}

static void test_what_went_on_unconfirmed_is_listed_until_somebody_has_looked(void **state)
{
    (void)state;
    PROVES("P4 P6");
    rig_define(&rig, "doubtful", NULL,
               "a: ONCE on_unknown=ACCEPT | none\nb: IDEMPOTENT | IDEMPOTENT");
    (void)rig_worker(&rig, "uw", "act:2 undo:2"); /* the rig owns it */
    rig_start(&rig, "doubtful", "u1", "a A 1 unknown code=TIMEOUT");
    rig_await_state(&rig, "doubtful", "u1", "SUCCEEDED", SOON);
    rig_start(&rig, "doubtful", "u2", "a A 1 unknown");
    rig_await_state(&rig, "doubtful", "u2", "SUCCEEDED", SOON);
    rig_start(&rig, "doubtful", "u3", "");
    rig_await_state(&rig, "doubtful", "u3", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "doubtful", "u1", "a.1 UNKNOWN, ACCEPT, b.1 DONE");
    assert_in_doubt("doubtful", true, "u2 u1");
    assert_in_doubt("doubtful", false, "u3");
    resolve("doubtful", "u1", true);
    assert_in_doubt("doubtful", true, "u2");
    rig_await_state(&rig, "doubtful", "u1", "SUCCEEDED", 100);
    resolve("doubtful", "u2", false);
    assert_in_doubt("doubtful", true, "");
    rig_await_state(&rig, "doubtful", "u2", "SUCCEEDED", 100);
    assert_in_doubt("doubtful", false, "u3 u2 u1");
    rig_assert_calls(&rig, "u2", "a.1, b.1"); /* nothing was repeated */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(
            test_a_suspended_saga_records_what_ends_and_grants_nothing_until_resumed, check),
        cmocka_unit_test_teardown(test_a_refusal_while_suspended_turns_it_back_once_it_is_resumed,
                                  check),
        cmocka_unit_test_teardown(test_wrong_requests_to_suspend_and_resume_change_nothing, check),
        cmocka_unit_test_teardown(test_what_is_parked_is_counted_in_groups, check),
        cmocka_unit_test_teardown(test_the_guard_floor_follows_the_oldest_saga_that_has_not_ended,
                                  check),
        cmocka_unit_test_teardown(test_what_went_on_unconfirmed_is_listed_until_somebody_has_looked,
                                  check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
