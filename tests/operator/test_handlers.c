/* Goal: a handler that is held, limited or braked by itself does as it says, and costs those who
 * wait nothing: no try, no deadline, no start time-out, over a restart and on another node, too.
 * Method: sagad and sagactl as people run them, one node and two; what workers began is counted in
 * the participant's books, what was granted in the journal. */
#include "base/clock.h"
#include "support/command.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 15000, INVALID_ARGUMENT = 3 };

static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1];

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

/* --- calls ------------------------------------------------------------------------------------ */

static Saga__V1__Handler *told(struct rig *rig, const char *method, const ProtobufCMessage *request)
{
    return (Saga__V1__Handler *)rig_call(rig, method, request, &saga__v1__handler__descriptor,
                                         NULL);
}

static void hold(struct rig *rig, const char *handler)
{
    Saga__V1__HoldHandlerRequest request = SAGA__V1__HOLD_HANDLER_REQUEST__INIT;
    request.handler = rig_borrow(handler);
    request.reason = rig_borrow("the bank asked");
    request.actor = rig_borrow("anna");
    Saga__V1__Handler *handler_now = told(rig, "OperatorService/HoldHandler", &request.base);
    assert_int_equal(handler_now->hold, SAGA__V1__HANDLER__HOLD__HOLD_PERSON);
    assert_string_equal(handler_now->reason, "the bank asked");
    assert_string_equal(handler_now->actor, "anna");
    assert_non_null(handler_now->hold_time);
    saga__v1__handler__free_unpacked(handler_now, NULL);
}

static void release(struct rig *rig, const char *handler, int64_t per_second)
{
    Saga__V1__Rate rate = SAGA__V1__RATE__INIT;
    Saga__V1__ReleaseHandlerRequest request = SAGA__V1__RELEASE_HANDLER_REQUEST__INIT;
    request.handler = rig_borrow(handler);
    rate.tasks = per_second;
    request.rate = per_second ? &rate : NULL;
    Saga__V1__Handler *handler_now = told(rig, "OperatorService/ReleaseHandler", &request.base);
    assert_int_equal(handler_now->hold, SAGA__V1__HANDLER__HOLD__HOLD_UNSPECIFIED);
    saga__v1__handler__free_unpacked(handler_now, NULL);
}

static void limit(struct rig *rig, const char *handler, const int *per_second, const int *cap,
                  Saga__V1__Breaker *breaker)
{
    Saga__V1__SetHandlerLimitsRequest request = SAGA__V1__SET_HANDLER_LIMITS_REQUEST__INIT;
    request.handler = rig_borrow(handler);
    Saga__V1__Rate rate = SAGA__V1__RATE__INIT;
    if (per_second) {
        rate.tasks = *per_second;
        request.rate = &rate;
    }
    if (cap) {
        request._cap_case = SAGA__V1__SET_HANDLER_LIMITS_REQUEST___CAP_CAP;
        request.cap = *cap;
    }
    request.breaker = breaker;
    saga__v1__handler__free_unpacked(told(rig, "OperatorService/SetHandlerLimits", &request.base),
                                     NULL);
}

static int64_t calls(const char *prefix)
{
    return rig_count(one, RIG_BANK, "SELECT count(*) FROM calls WHERE saga_id LIKE '%s%%'", prefix);
}

static int64_t events(const char *handler, const char *kind)
{
    return rig_count(one, RIG_STORE,
                     "SELECT count(*) FROM handler_event WHERE handler = '%s' AND kind = '%s'",
                     handler, kind);
}

/* sagactl says so. */
static void expect(const char *part, const char *const *words)
{
    const char *argv[16] = { SAGACTL_BINARY, "--address", one->address };
    for (size_t i = 0; words[i]; i++)
        argv[3 + i] = words[i];
    command_expect(argv, NULL, 0, part);
}
#define SAGACTL(part, ...) expect(part, (const char *const[]){ __VA_ARGS__, NULL })

/* --- tests ------------------------------------------------------------------------------------ */

static void test_held_waits_and_released_goes_on(void **state)
{
    (void)state;
    rig_define(one, "hold", NULL,
               "a: IDEMPOTENT handler=h1 | none\nb: IDEMPOTENT handler=h1b | none");
    (void)rig_worker(one, "w1", "h1:8 h1b:8"); /* the rig owns it */
    hold(one, "h1");
    rig_start_many(one, "hold", "held-", 5, "");
    rig_await(one, RIG_STORE, "5", SOON,
              "SELECT waiting FROM handler_node WHERE handler = 'h1' AND node = 'one'");
    assert_int_equal(calls("held-"), 0);
    SAGACTL("handler h1 held since", "where", "held-1");
    SAGACTL("by anna (the bank asked), 5 waiting", "where", "held-1");
    SAGACTL("sagactl handler release h1", "where", "held-1");
    SAGACTL("handler h1 held since", "status");
    SAGACTL("\"heldHandlers\"", "-o", "json", "status");
    SAGACTL("anna: the bank asked", "handler", "list", "--held");
    hold(one, "h1"); /* as good as once */
    assert_int_equal(rig_count(one, RIG_STORE, "SELECT count(*) FROM handler_hold"), 1);
    release(one, "h1", 0);
    rig_await_states(one, "hold", "held-", "SUCCEEDED", 5, SOON);
    rig_assert_journal(one, "hold", "held-3", "a.1 DONE, b.1 DONE");
    assert_int_equal(
        rig_count(one, RIG_STORE, "SELECT count(*) FROM journal WHERE held_ms > 0 AND step = 'a'"),
        5);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal WHERE held_ms IS NOT NULL"
                               " AND step = 'b'"),
                     0);
    release(one, "h1", 0); /* nothing happens */
    assert_int_equal(events("h1", "RELEASED"), 1);
}

static void test_a_hold_is_in_force_at_the_other_node(void **state)
{
    (void)state;
    rig_define(one, "other", NULL, "a: IDEMPOTENT handler=h2 | none");
    (void)rig_worker(two, "w2", "h2:8");
    hold(one, "h2");
    rig_await(one, RIG_STORE, "two", SOON,
              "SELECT node FROM handler_node WHERE handler = 'h2' AND served");
    rig_start_many(two, "other", "other-", 3, "");
    rig_await(one, RIG_STORE, "3", SOON,
              "SELECT waiting FROM handler_node WHERE handler = 'h2' AND node = 'two'");
    assert_int_equal(calls("other-"), 0);
    release(one, "h2", 0);
    rig_await_states(one, "other", "other-", "SUCCEEDED", 3, SOON);
}

static void test_held_time_burns_nothing_over_restart_and_adoption(void **state)
{
    (void)state;
    PROVES("P8");
    rig_define(one, "patient", "deadline=4s", "a: IDEMPOTENT handler=h3 start_timeout=2s | none");
    hold(one, "h3");
    rig_start_many(one, "patient", "patient-", 4, "");
    rig_await(one, RIG_STORE, "4", SOON,
              "SELECT count(*) FROM saga WHERE definition = 'patient' AND state = 'RUNNING'");
    wait_ms(2500);
    rig_server_kill(one); /* its sagas are adopted by the other one */
    wait_ms(4000);
    rig_server_start(one);
    wait_ms(500);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE definition = 'patient'"
                               " AND state = 'RUNNING'"),
                     4);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'patient'"),
                     0);
    (void)rig_worker(two, "w3", "h3:8");
    release(one, "h3", 0);
    rig_await_states(one, "patient", "patient-", "SUCCEEDED", 4, SOON);
    rig_assert_journal(one, "patient", "patient-2", "a.1 DONE");
}

static void test_released_gradually_the_oldest_first(void **state)
{
    (void)state;
    enum { COUNT = 40, RATE = 20 };
    rig_define(one, "gradual", NULL, "a: IDEMPOTENT handler=h4 | none");
    (void)rig_worker(one, "w4", "h4:32");
    hold(one, "h4");
    for (int i = 0; i < COUNT; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "gradual-%02d", i);
        rig_start(one, "gradual", key, "");
    }
    rig_await(one, RIG_STORE, "40", SOON,
              "SELECT sum(waiting) FROM handler_node WHERE handler = 'h4'");
    int64_t began_ms = clock_mono_ms(&clock_system);
    release(one, "h4", RATE);
    SAGACTL("20/s", "handler", "list", "h4");
    rig_await_states(one, "gradual", "gradual-", "SUCCEEDED", COUNT, SOON);
    int64_t took_ms = clock_mono_ms(&clock_system) - began_ms;
    if (took_ms < (COUNT - 3) * 1000 / RATE)
        fail_msg("%d tasks at %d/s took %lld ms", COUNT, RATE, (long long)took_ms);
    /* In the order in which they had waited; two of one moment may be begun the other way round. */
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM (SELECT s.saga_id, row_number() OVER (ORDER BY"
                               " j.leased_at, s.saga_id) AS n FROM journal j JOIN saga s"
                               " USING (shard, saga_uid) WHERE s.definition = 'gradual') o"
                               " WHERE abs(right(saga_id, 2)::int + 1 - n) > 3"),
                     0);
    rig_await(one, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM handler WHERE name = 'h4' AND release_rate IS NULL");
    assert_int_equal(events("h4", "DRAINED"), 1);
}

static void test_a_cap_and_a_rate_last(void **state)
{
    (void)state;
    const int cap = 2, none = 0;
    const int rate = 10, unlimited = 0;
    rig_define(one, "limits", NULL, "a: IDEMPOTENT handler=h5 | none");
    (void)rig_worker(one, "w5", "h5:16");
    limit(one, "h5", NULL, &cap, NULL);
    wait_ms(4000); /* until it is known which nodes serve it */
    rig_start_many(one, "limits", "cap-", 12, "a A * sleep=100");
    rig_await_states(one, "limits", "cap-", "SUCCEEDED", 12, SOON);
    assert_in_range(rig_count(one, RIG_STORE,
                              "SELECT max((SELECT count(*) FROM journal o JOIN saga t USING"
                              " (shard, saga_uid) WHERE t.definition = 'limits'"
                              " AND o.leased_at <= j.leased_at AND o.finished_at > j.leased_at))"
                              " FROM journal j JOIN saga s USING (shard, saga_uid)"
                              " WHERE s.definition = 'limits'"),
                    1, cap);
    limit(one, "h5", &rate, &none, NULL);
    int64_t began_ms = clock_mono_ms(&clock_system);
    rig_start_many(one, "limits", "rate-", 20, "");
    rig_await_states(one, "limits", "rate-", "SUCCEEDED", 20, SOON);
    assert_true(clock_mono_ms(&clock_system) - began_ms > 1500);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'limits' AND j.held_ms IS NOT NULL"),
                     0); /* a lasting limit is no hold */
    limit(one, "h5", &unlimited, NULL, NULL);
    rig_start_many(one, "limits", "free-", 20, "");
    rig_await_states(one, "limits", "free-", "SUCCEEDED", 20, SOON);
}

static void test_a_breaker_holds_tries_and_closes(void **state)
{
    (void)state;
    enum { FAILURES = 5, SLOTS = 4, BAD = 30 };
    Google__Protobuf__Duration second = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__Breaker breaker = SAGA__V1__BREAKER__INIT;
    second.seconds = 1;
    breaker.failures = FAILURES;
    breaker.successes = 2;
    breaker.trial_interval = &second;
    rig_define(one, "broken", NULL, "a: IDEMPOTENT handler=h6 initial=0.05s cap=0.1s | none");
    limit(one, "h6", NULL, NULL, &breaker);
    wait_ms(1500); /* the other node knows it, too */
    (void)rig_worker(one, "w6", "h6:4");
    rig_start_many(one, "broken", "bad-", BAD, "a A * retry code=DOWN");
    rig_await(one, RIG_STORE, "BREAKER", SOON, "SELECT hold FROM handler WHERE name = 'h6'");
    /* What was at work when it tripped may still have been granted. */
    int64_t tried = rig_count(one, RIG_STORE,
                              "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                              " JOIN handler h ON h.name = 'h6' WHERE s.definition = 'broken'"
                              " AND j.leased_at <= h.held_at");
    assert_in_range(tried, FAILURES, FAILURES + 2 * SLOTS);
    SAGACTL("by its breaker (5 failures in a row; the last: RETRY DOWN", "where", "bad-29");
    int64_t before = calls("bad-");
    wait_ms(3500); /* one trial a second, of both nodes together */
    assert_in_range(calls("bad-") - before, 2, 5);
    for (int i = 0; i < BAD; i++) {
        char key[32], reason[RIG_REASON_SIZE];
        (void)snprintf(key, sizeof key, "bad-%d", i);
        (void)rig_cancel(one, "broken", key, reason);
    }
    rig_start_many(one, "broken", "good-", 20, "");
    rig_await_states(one, "broken", "good-", "SUCCEEDED", 20, SOON);
    rig_await(one, RIG_STORE, "", SOON, "SELECT hold FROM handler WHERE name = 'h6'");
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM handler_event WHERE handler = 'h6'"
                               " AND kind = 'RELEASED' AND reason LIKE '2 trials%%'"),
                     1);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.saga_id LIKE 'good-%%' AND j.try > 1"),
                     0);
}

static void test_what_is_wrong_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *handler, *reason;
    } holds[] = { { "", "why" }, { "h", "" } };
    for (size_t i = 0; i < ARRAY_LEN(holds); i++) {
        struct client_failure failure = { 0 };
        Saga__V1__HoldHandlerRequest request = SAGA__V1__HOLD_HANDLER_REQUEST__INIT;
        request.handler = rig_borrow(holds[i].handler);
        request.reason = rig_borrow(holds[i].reason);
        assert_null(rig_call(one, "OperatorService/HoldHandler", &request.base,
                             &saga__v1__handler__descriptor, &failure));
        assert_int_equal(failure.code, INVALID_ARGUMENT);
        client_failure_done(&failure);
    }
    struct client_failure failure = { 0 };
    Saga__V1__SetHandlerLimitsRequest request = SAGA__V1__SET_HANDLER_LIMITS_REQUEST__INIT;
    request.handler = rig_borrow("h");
    assert_null(rig_call(one, "OperatorService/SetHandlerLimits", &request.base,
                         &saga__v1__handler__descriptor, &failure));
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    client_failure_done(&failure);
    const char *argv[] = { SAGACTL_BINARY, "--address", one->address, "handler", "release", "h",
                           "--rate",       "fast",      NULL };
    command_expect(argv, NULL, 2, "600/s");
    const char *no_reason[] = { SAGACTL_BINARY, "--address", one->address, "handler",
                                "hold",         "h",         NULL };
    command_expect(no_reason, NULL, 2, "--reason");
}

/* --- what waits in the database alone -----------------------------------------------------------
 */

static int64_t told_let_go(const char *handler)
{
    Saga__V1__ListHandlersRequest request = SAGA__V1__LIST_HANDLERS_REQUEST__INIT;
    request.handler = rig_borrow(handler);
    Saga__V1__ListHandlersResponse *reply = (Saga__V1__ListHandlersResponse *)rig_call(
        one, "OperatorService/ListHandlers", &request.base,
        &saga__v1__list_handlers_response__descriptor, NULL);
    assert_int_equal(reply->n_handlers, 1);
    assert_true(reply->handlers[0]->let_go_is_estimate);
    int64_t let_go = reply->handlers[0]->let_go;
    saga__v1__list_handlers_response__free_unpacked(reply, NULL);
    return let_go;
}

/* More than are counted, of two handlers, and not alike many: each is told by its share. */
static void test_what_is_let_go_is_told_of_each_handler_about(void **state)
{
    (void)state;
    const int64_t few = 15000, many = 45000, all = few + many;
    rig_exec(
        one, RIG_STORE,
        "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, state,"
        " phase, doubt, started_at, updated_at, waiting_handler) SELECT 0, gen_random_uuid(),"
        " 'default', 'filled', 1, 'f-' || i, 1, 'RUNNING', 'RUNNING', false, now(), now(),"
        " CASE WHEN i <= %lld THEN 'few' ELSE 'many' END FROM generate_series(1, %lld) AS i",
        (long long)few, (long long)all);
    rig_exec(one, RIG_STORE, "ANALYZE saga");
    int64_t told_few = told_let_go("few"), told_many = told_let_go("many");
    print_message("few: %lld told %lld, many: %lld told %lld\n", (long long)few,
                  (long long)told_few, (long long)many, (long long)told_many);
    assert_in_range(told_few, few * 9 / 10, few * 11 / 10);
    assert_in_range(told_many, many * 9 / 10, many * 11 / 10);
    rig_exec(one, RIG_STORE, "DELETE FROM saga WHERE definition = 'filled'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_held_waits_and_released_goes_on, check),
        cmocka_unit_test_teardown(test_a_hold_is_in_force_at_the_other_node, check),
        cmocka_unit_test_teardown(test_held_time_burns_nothing_over_restart_and_adoption, check),
        cmocka_unit_test_teardown(test_released_gradually_the_oldest_first, check),
        cmocka_unit_test_teardown(test_a_cap_and_a_rate_last, check),
        cmocka_unit_test_teardown(test_a_breaker_holds_tries_and_closes, check),
        cmocka_unit_test_teardown(test_what_is_wrong_is_refused, check),
        cmocka_unit_test_teardown(test_what_is_let_go_is_told_of_each_handler_about, check),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
