/* Stop and start of the only server, with the times of its leases as they are by default. Goal:
 * nothing needs a new event to go on (S6), and an ordered stop is short and loses nothing (T3).
 * Method: hundreds of leases held by hand, kill -9 or SIGTERM, a new server on the same port. */
#include "base/clock.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

enum {
    SOON = 10000,
    GRACE_MS = 15000, /* before anything expires after a start */
    STOP_MS = 4000,   /* the grace of a stop; the default is longer */
    HELD = 100,       /* of each class */
    STREAMS = 50,
    FAILED_PRECONDITION = 9,
    UNAVAILABLE = 14,
};
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE

static struct rig rig = { .server_args = { "--grace", "4s" } };

static int setup(void **state)
{
    (void)state;
    /* ThreadSanitizer sleeps a second at exit; here the time of an exit is what is measured. */
    char options[512];
    const char *given = getenv("TSAN_OPTIONS");
    (void)snprintf(options, sizeof options, "%s%satexit_sleep_ms=0", given ? given : "",
                   given ? ":" : "");
    (void)setenv("TSAN_OPTIONS", options, 1); /* fails only when memory is out */
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

/* --- S6 --------------------------------------------------------------------------------------- */

static struct raw_worker *hold_all(const char *handler, struct raw_lease *ret_leases)
{
    struct raw_worker *worker = raw_worker_hello(rig.address, "holder", NULL, handler, NULL, 0);
    raw_worker_credit(worker, handler, HELD);
    for (int i = 0; i < HELD; i++) {
        const Saga__V1__Task *task = raw_worker_task(worker, SOON);
        assert_non_null(task);
        ret_leases[i] = raw_lease_of(task);
    }
    return worker;
}

static void test_s6_after_a_kill_of_the_only_server_every_saga_goes_on_or_is_parked(void **state)
{
    (void)state;
    static struct raw_lease safe[HELD], once[HELD];
    char reason[RIG_REASON_SIZE];
    rig_define(&rig, "s6_safe", NULL, "a: IDEMPOTENT handler=safe lease=5s | none");
    rig_define(&rig, "s6_once", NULL, "a: ONCE handler=once lease=5s | IDEMPOTENT");
    rig_define(&rig, "s6_backoff", NULL, "a: IDEMPOTENT | none");
    rig_start_many(&rig, "s6_safe", "safe", HELD, "");
    rig_start_many(&rig, "s6_once", "once", HELD, "");
    (void)rig_worker(&rig, "w", "act:4"); /* the rig owns it */
    rig_start(&rig, "s6_backoff", "backoff", "a A 1 after=600000 retry");
    struct raw_worker *safe_holder = hold_all("safe", safe), *once_holder = hold_all("once", once);
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id ="
              " 'backoff' AND outcome = 'RETRY'");
    rig_server_kill(&rig);
    safe_holder = raw_worker_cut(safe_holder);
    once_holder = raw_worker_cut(once_holder);
    rig_server_start(&rig);
    int64_t started = clock_mono_ms(&clock_system);
    /* Nothing new is started. A worker is there. */
    (void)rig_worker(&rig, "next", "safe:50 once:50"); /* the rig owns it */
    /* What is in back-off can be taken on by a person at once. */
    assert_int_equal(rig_retry(&rig, "s6_backoff", "backoff", "a", reason), 0);
    rig_await_state(&rig, "s6_backoff", "backoff", "SUCCEEDED", SOON);
    /* While a lease may still be reported, nobody may; and nothing expires within the grace. */
    assert_int_equal(rig_retry(&rig, "s6_once", "once0", "a", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "LEASE_LIVE");
    rig_await_states(&rig, "s6_safe", "safe", "SUCCEEDED", HELD, GRACE_MS + 3000);
    int64_t took = clock_mono_ms(&clock_system) - started;
    assert_true(took >= GRACE_MS - 1000 && took <= GRACE_MS + 3000);
    rig_await_states(&rig, "s6_once", "once", "PARKED OUTCOME_UNKNOWN", HELD, 3000);
    rig_assert_journal(&rig, "s6_safe", "safe1", "a.1 EXPIRED, a.2 DONE");
    rig_assert_journal(&rig, "s6_once", "once1", "a.1 EXPIRED, PARK OUTCOME_UNKNOWN");
    assert_int_equal(rig_retry(&rig, "s6_once", "once0", "a", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "OUTCOME_UNKNOWN");
    /* Its holder reports after all: that settles it, for as long as nobody decided otherwise. */
    once_holder = raw_worker_hello(rig.address, "holder", NULL, "once", NULL, 0);
    assert_int_equal(raw_worker_settle(once_holder, &once[0], DONE, "late"), ACCEPTED);
    once_holder = raw_worker_cut(once_holder);
    rig_await_states(&rig, "s6_once", "once", "SUCCEEDED", 1, SOON);
    assert_int_equal(rig_count(&rig, RIG_BANK,
                               "SELECT count(*) FROM calls WHERE definition ="
                               " 's6_once'"),
                     0);
}

static void test_s6_a_worker_that_comes_back_within_the_grace_goes_on(void **state)
{
    (void)state;
    rig_define(&rig, "resend", NULL, "a: ONCE handler=resend lease=5s | none");
    (void)rig_worker(&rig, "resend", "resend:16"); /* the rig owns it */
    /* Some end while the server is down, some much later. */
    rig_start_many(&rig, "resend", "soon", 8, "a A 1 sleep=600");
    rig_start_many(&rig, "resend", "late", 8, "a A 1 sleep=9000");
    rig_await(&rig, RIG_BANK, "16", SOON, "SELECT count(*) FROM calls WHERE definition = 'resend'");
    rig_server_kill(&rig);
    wait_ms(1000); /* the outage */
    rig_server_start(&rig);
    rig_await_states(&rig, "resend", "soon", "SUCCEEDED", 8, SOON);
    rig_await_states(&rig, "resend", "late", "SUCCEEDED", 8, 2 * SOON);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'resend' AND outcome <> 'DONE'"),
                     0);
}

/* --- T3 --------------------------------------------------------------------------------------- */

struct reader {
    pthread_t thread;
    int code;
};

static void *wait_long(void *ctx)
{
    struct reader *reader = ctx;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__WaitSagaRequest request = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    ref.definition = rig_borrow("t3");
    ref.saga_id = rig_borrow("t3-0");
    timeout.seconds = 120;
    request.saga = &ref;
    request.timeout = &timeout;
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply = NULL;
    struct err err;
    reader->code =
        client_call_explained(rig.client, "/saga.v1.SagaService/WaitSaga", &request.base,
                              &saga__v1__saga__descriptor, 130000, &reply, &failure, &err);
    if (reader->code == 0)
        protobuf_c_message_free_unpacked(reply, NULL);
    else
        reader->code = failure.code;
    client_failure_done(&failure);
    return NULL;
}

static void test_t3_an_ordered_stop_is_short_and_frees_what_was_not_started(void **state)
{
    (void)state;
    enum { LEASED = 10, RUNS_MS = 1500 };
    static struct raw_worker *idle[STREAMS];
    static struct reader reader;
    rig_define(&rig, "t3", NULL, "a: ONCE handler=t3 lease=60s max_attempts=1 | none");
    for (int i = 0; i < STREAMS; i++)
        idle[i] = raw_worker_hello(rig.address, "idle", NULL, "nothing", NULL, 0);
    /* Ten leases, of which one runs: the worker has one thread. */
    (void)rig_worker_threads(&rig, "t3", "t3:10", 1); /* the rig owns it */
    rig_start_many(&rig, "t3", "t3-", LEASED, "a A 1 sleep=1500");
    rig_await(&rig, RIG_STORE, "10", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 't3' AND outcome IS NULL");
    rig_await(&rig, RIG_BANK, "1", SOON, "SELECT count(*) FROM calls WHERE definition = 't3'");
    assert_int_equal(pthread_create(&reader.thread, NULL, wait_long, &reader), 0);
    wait_ms(200); /* it waits in the server */
    /* Sanitizers and all: exit code 0, within the grace. */
    int64_t took = rig_server_stop(&rig, STOP_MS + 3000);
    assert_true(took <= STOP_MS + 1000);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    assert_int_equal(reader.code, UNAVAILABLE);
    for (int i = 0; i < STREAMS; i++) {
        assert_true(raw_worker_was_told_to_drain(idle[i], 1000));
        assert_int_equal(raw_worker_status(idle[i], 1000, NULL), UNAVAILABLE);
        idle[i] = raw_worker_cut(idle[i]);
    }
    /* Free at once: given back in the database already, or when the same instance says Hello. */
    rig_server_start(&rig);
    (void)rig_worker_threads(&rig, "t3-other", "t3:10", 10); /* the rig owns it */
    /* The first worker may be back first, and runs what it takes one after the other. */
    rig_await_states(&rig, "t3", "t3-", "SUCCEEDED", LEASED, SOON + LEASED * RUNS_MS);
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                  " WHERE s.definition = 't3' AND outcome NOT IN ('DONE', 'RELEASED')"),
        0);
    /* No try was burned, nothing ran twice. */
    assert_int_equal(
        rig_count(&rig, RIG_BANK, "SELECT count(*) FROM calls WHERE definition = 't3'"), LEASED);
    print_message("the stop took %lld ms\n", (long long)took);
}

static void test_t3_a_stop_waits_for_a_handler_that_ends_within_the_grace(void **state)
{
    (void)state;
    rig_define(&rig, "t3_runs", NULL, "a: ONCE handler=runs lease=30s | none");
    (void)rig_worker(&rig, "runs", "runs:2"); /* the rig owns it */
    rig_start(&rig, "t3_runs", "runs", "a A 1 sleep=1500");
    rig_await_call(&rig, "runs", "a", "A", 1, SOON);
    /* Not the whole of it: when the report is there the worker leaves, and nothing is left. */
    int64_t took = rig_server_stop(&rig, STOP_MS + 3000);
    assert_true(took >= 500 && took < STOP_MS - 500);
    rig_await_state(&rig, "t3_runs", "runs", "SUCCEEDED", 100);
    rig_server_start(&rig);
    rig_assert_journal(&rig, "t3_runs", "runs", "a.1 DONE");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_s6_after_a_kill_of_the_only_server_every_saga_goes_on_or_is_parked),
        TEST(test_s6_a_worker_that_comes_back_within_the_grace_goes_on),
        TEST(test_t3_an_ordered_stop_is_short_and_frees_what_was_not_started),
        TEST(test_t3_a_stop_waits_for_a_handler_that_ends_within_the_grace),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
