/* Goal: who watches a saga hears of every state that it comes to rest in, whatever happens to the
 * stream, the database or the reader, and what is kept for him stays bounded. Method: the server in
 * this very process; workers by hand, so that each step is taken when the test says so. */
#include "base/clock.h"
#include "rpc_fixture.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 10000, SILENCE_MS = 1500, WATCHERS_MAX = 5, QUIET_MS = 1000 };
enum { INVALID_ARGUMENT = 3, NOT_FOUND = 5, EXHAUSTED = 8, UNAVAILABLE = 14 };
#define READY  SAGA__V1__STEP_STATE__STEP_STATE_READY
#define LEASED SAGA__V1__STEP_STATE__STEP_STATE_LEASED
#define DONE   SAGA__V1__OUTCOME__OUTCOME_DONE

static struct rpc_fixture it;

static int setup(void **state)
{
    (void)state;
    return rpc_fixture_up(&it, &(struct rpc_options){ .saga_watchers_max = WATCHERS_MAX,
                                                      .watch_silence_ms = SILENCE_MS });
}

static int teardown(void **state)
{
    (void)state;
    return rpc_fixture_down(&it);
}

/* --- watching --------------------------------------------------------------------------------- */

struct asked {
    const char *definition, *saga_id, *uid, *token;
    int run;
    bool basic;
};

static struct raw_stream *watch(const struct asked *asked)
{
    struct raw_stream *stream = NULL;
    struct err err;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__WatchSagaRequest request = SAGA__V1__WATCH_SAGA_REQUEST__INIT;
    uint8_t packed[1024];
    ref.definition = rig_borrow(asked->definition ? asked->definition : "");
    ref.saga_id = rig_borrow(asked->saga_id ? asked->saga_id : "");
    ref.uid = rig_borrow(asked->uid ? asked->uid : "");
    ref.run = asked->run;
    request.saga = &ref;
    request.resume_token = rig_borrow(asked->token ? asked->token : "");
    if (!asked->basic)
        request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    size_t size = saga__v1__watch_saga_request__pack(&request, packed);
    ASSERT_OK(raw_stream_open(it.address, "/saga.v1.SagaService/WatchSaga", 60000, &stream, &err),
              &err);
    /* One that is refused may have ended already. */
    if (raw_stream_send(stream, packed, size, SOON, &err) ||
        raw_stream_half_close(stream, SOON, &err))
        assert_int_not_equal(raw_stream_status(stream, SOON, NULL), -1);
    return stream;
}

/* NULL: none came. Owned by the caller. */
static Saga__V1__WatchSagaResponse *next_message(struct raw_stream *stream, int64_t limit_ms)
{
    struct bytes bytes = { 0 };
    if (raw_stream_receive(stream, limit_ms, &bytes) != 1)
        return NULL;
    Saga__V1__WatchSagaResponse *response =
        saga__v1__watch_saga_response__unpack(NULL, bytes.size, bytes.data);
    mem_free(bytes.data);
    assert_non_null(response);
    assert_non_null(response->saga);
    assert_true(*response->resume_token && strlen(response->resume_token) <= 256);
    return response;
}

static void forget(Saga__V1__WatchSagaResponse *response)
{
    saga__v1__watch_saga_response__free_unpacked(response, NULL);
}

/* The next change (not what is only told again), which must show the first step in this state. */
static void assert_step(struct raw_stream *stream, Saga__V1__StepState state, char *ret_token)
{
    Saga__V1__WatchSagaResponse *response = next_message(stream, SOON);
    while (response && response->unchanged) {
        forget(response);
        response = next_message(stream, SOON);
    }
    assert_non_null(response);
    assert_int_equal(response->saga->steps[0]->state, state);
    if (ret_token)
        (void)snprintf(ret_token, 257, "%s", response->resume_token);
    forget(response);
}

/* Nothing but what is told again. */
static void assert_quiet(struct raw_stream *stream)
{
    Saga__V1__WatchSagaResponse *response = next_message(stream, QUIET_MS);
    if (response)
        assert_true(response->unchanged);
    forget(response);
}

static void assert_ended(struct raw_stream *stream, int code)
{
    const char *message = NULL;
    int status = raw_stream_status(stream, SOON, &message);
    if (status != code)
        fail_msg("ended with %d, expected %d: %s", status, code, message ? message : "");
    (void)raw_stream_free(stream); /* always NULL */
}

static bool nothing_is_left(void *ctx)
{
    (void)ctx;
    return atomic_load(&it.server->saga_watchers) == 0 &&
           atomic_load(&it.server->watch_bytes) == 0 && !it.server->saga_watches;
}

/* --- the states ------------------------------------------------------------------------------- */

static void test_each_state_is_told_and_the_end_ends_the_stream(void **state)
{
    (void)state;
    rig_define(&it.rig, "seen", NULL, "a: IDEMPOTENT handler=seen.a | none");
    rig_start(&it.rig, "seen", "s1", "the input");
    struct raw_stream *full = watch(&(struct asked){ .definition = "seen", .saga_id = "s1" });
    struct raw_stream *basic =
        watch(&(struct asked){ .definition = "seen", .saga_id = "s1", .basic = true });
    Saga__V1__WatchSagaResponse *response = next_message(full, SOON);
    assert_non_null(response);
    assert_int_equal(response->saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER);
    assert_int_equal(response->saga->input.len, strlen("the input"));
    forget(response);
    response = next_message(basic, SOON);
    assert_non_null(response);
    assert_int_equal(response->saga->n_steps, 0);
    forget(response);
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "seen.a", NULL, 0);
    raw_worker_credit(worker, "seen.a", 1);
    assert_step(full, LEASED, NULL);
    struct raw_lease lease = raw_lease_of(raw_worker_task(worker, SOON));
    raw_worker_extend(worker, &lease); /* no change: neither to the one ... */
    assert_true(raw_worker_extended(worker, SOON) > 0);
    assert_quiet(full);
    assert_quiet(basic); /* ... nor is a lease to the other, who does not see steps */
    assert_int_equal(raw_worker_settle(worker, &lease, DONE, "out"),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    struct raw_stream *both[] = { full, basic };
    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        while ((response = next_message(both[i], SOON)) && response->unchanged)
            forget(response);
        assert_non_null(response);
        assert_int_equal(response->saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
        forget(response);
        assert_ended(both[i], 0);
    }
    (void)raw_worker_cut(worker); /* always NULL */
    /* One that has ended is told, and that is all. */
    basic = watch(&(struct asked){ .definition = "seen", .saga_id = "s1", .basic = true });
    forget(next_message(basic, SOON));
    assert_ended(basic, 0);
    assert_true(wait_until(nothing_is_left, NULL, SOON));
}

static void test_a_broken_watch_goes_on_where_it_was(void **state)
{
    (void)state;
    char token[257], known[257];
    rig_define(&it.rig, "again", NULL, "a: IDEMPOTENT handler=again.a | none");
    rig_start(&it.rig, "again", "s1", "");
    rig_start(&it.rig, "again", "s2", "");
    struct asked asked = { .definition = "again", .saga_id = "s1", .token = token };
    token[0] = '\0';
    struct raw_stream *stream = watch(&asked);
    assert_step(stream, READY, token);
    (void)raw_stream_free(stream); /* always NULL: the connection is cut */
    stream = watch(&asked);        /* what is known is not told again */
    assert_quiet(stream);
    (void)raw_stream_free(stream); /* always NULL */
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "again.a", NULL, 0);
    raw_worker_credit(worker, "again.a", 2);
    struct raw_lease lease = raw_lease_of(raw_worker_task(worker, SOON));
    struct raw_lease other = raw_lease_of(raw_worker_task(worker, SOON));
    stream = watch(&asked); /* what happened meanwhile is, by the uid as well */
    assert_step(stream, LEASED, known);
    (void)raw_stream_free(stream); /* always NULL */
    (void)raw_worker_settle(worker, &lease, DONE, "");
    (void)raw_worker_settle(worker, &other, DONE, "");
    rig_await_state(&it.rig, "again", "s1", "SUCCEEDED", SOON);
    Saga__V1__Saga *saga = rig_get(&it.rig, "again", "s1");
    stream = watch(&(struct asked){ .uid = saga->uid, .token = known });
    Saga__V1__WatchSagaResponse *response = next_message(stream, SOON);
    assert_non_null(response);
    (void)snprintf(token, sizeof token, "%s", response->resume_token);
    forget(response);
    assert_ended(stream, 0);
    stream = watch(&asked); /* its end is known, too */
    assert_null(next_message(stream, SOON));
    assert_ended(stream, 0);
    /* Tokens of something else. */
    asked.saga_id = "s2";
    assert_ended(watch(&asked), INVALID_ARGUMENT);
    asked = (struct asked){ .definition = "again", .saga_id = "s1", .run = 2, .token = token };
    assert_ended(watch(&asked), INVALID_ARGUMENT);
    asked = (struct asked){ .definition = "again", .saga_id = "s1", .token = "AQEB" };
    assert_ended(watch(&asked), INVALID_ARGUMENT);
    saga__v1__saga__free_unpacked(saga, NULL);
    (void)raw_worker_cut(worker); /* always NULL */
}

static void test_what_time_alone_changes_is_told(void **state)
{
    (void)state;
    rig_define(&it.rig, "late", NULL, "a: IDEMPOTENT handler=late.a | none | delay=1s");
    rig_start(&it.rig, "late", "s1", "");
    struct raw_stream *stream = watch(&(struct asked){ .definition = "late", .saga_id = "s1" });
    assert_step(stream, SAGA__V1__STEP_STATE__STEP_STATE_DELAYED, NULL);
    assert_step(stream, READY, NULL);
    /* Then nothing happens, which is said from time to time. */
    int64_t begun = clock_mono_ms(&clock_system);
    Saga__V1__WatchSagaResponse *response = next_message(stream, SOON);
    assert_non_null(response);
    assert_true(response->unchanged);
    assert_true(clock_mono_ms(&clock_system) - begun >= SILENCE_MS - 500);
    forget(response);
    (void)raw_stream_free(stream); /* always NULL */
}

/* --- what goes wrong -------------------------------------------------------------------------- */

static void test_what_cannot_be_watched_is_refused(void **state)
{
    (void)state;
    assert_ended(watch(&(struct asked){ .definition = "seen", .saga_id = "nobody" }), NOT_FOUND);
    assert_ended(watch(&(struct asked){ .uid = "01890000-0000-7000-8000-000000000000" }),
                 NOT_FOUND);
    assert_ended(watch(&(struct asked){ .uid = "no uuid" }), INVALID_ARGUMENT);
    assert_ended(watch(&(struct asked){ .definition = "seen" }), INVALID_ARGUMENT);
    struct raw_stream *stream = NULL;
    struct err err;
    ASSERT_OK(raw_stream_open(it.address, "/saga.v1.SagaService/WatchSaga", 60000, &stream, &err),
              &err);
    ASSERT_OK(raw_stream_half_close(stream, SOON, &err), &err);
    assert_ended(stream, INVALID_ARGUMENT);
    ASSERT_OK(raw_stream_open(it.address, "/saga.v1.SagaService/WatchSaga", 60000, &stream, &err),
              &err);
    ASSERT_OK(raw_stream_send(stream, "\377\377\377\377", 4, SOON, &err), &err);
    assert_ended(stream, INVALID_ARGUMENT);
    assert_true(wait_until(nothing_is_left, NULL, SOON));
}

static void test_watchers_are_bounded_in_number(void **state)
{
    (void)state;
    rig_define(&it.rig, "many", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&it.rig, "many", "s1", "");
    const struct asked asked = { .definition = "many", .saga_id = "s1" };
    struct raw_stream *streams[WATCHERS_MAX];
    for (int i = 0; i < WATCHERS_MAX; i++) {
        streams[i] = watch(&asked);
        assert_step(streams[i], READY, NULL);
    }
    assert_ended(watch(&asked), EXHAUSTED);
    for (int i = 0; i < WATCHERS_MAX; i++)
        (void)raw_stream_free(streams[i]); /* always NULL */
    assert_true(wait_until(nothing_is_left, NULL, SOON));
    struct raw_stream *stream = watch(&asked);
    assert_step(stream, READY, NULL);
    (void)raw_stream_free(stream); /* always NULL */
}

static void test_a_slow_reader_misses_steps_on_the_way_and_never_the_newest_state(void **state)
{
    (void)state;
    enum { STEPS = 40, INPUT = 200 * 1024 };
    char steps[STEPS * 48] = "";
    for (int i = 0; i < STEPS; i++)
        (void)snprintf(steps + strlen(steps), sizeof steps - strlen(steps),
                       "s%d: IDEMPOTENT handler=slow.a | none\n", i);
    CLEANUP(mem_free_p) char *input = mem_calloc(1, INPUT + 1);
    assert_non_null(input);
    memset(input, 'x', INPUT);
    rig_define(&it.rig, "slow", NULL, steps);
    rig_start(&it.rig, "slow", "s1", input);
    struct raw_stream *stream = watch(&(struct asked){ .definition = "slow", .saga_id = "s1" });
    assert_step(stream, READY, NULL); /* and from now on nothing is read */
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "slow.a", NULL, 0);
    long long most = 0;
    for (int i = 0; i < STEPS; i++) { /* each step takes longer than a look */
        raw_worker_credit(worker, "slow.a", (uint64_t)i + 1);
        const Saga__V1__Task *task = raw_worker_task(worker, SOON);
        assert_non_null(task);
        struct raw_lease lease = raw_lease_of(task);
        wait_ms(100);
        (void)raw_worker_settle(worker, &lease, DONE, "");
        long long bytes = atomic_load(&it.server->watch_bytes);
        most = bytes > most ? bytes : most;
    }
    rig_await_state(&it.rig, "slow", "s1", "SUCCEEDED", SOON);
    (void)raw_worker_cut(worker); /* always NULL */
    print_message("at most %lld bytes waited\n", most);
    /* One message waits, whatever happens; how much before it is in gRPC's windows is gRPC's. */
    assert_true(most < 2 * INPUT);
    int messages = 0;
    Saga__V1__SagaState last = SAGA__V1__SAGA_STATE__SAGA_STATE_UNSPECIFIED;
    for (Saga__V1__WatchSagaResponse *response; (response = next_message(stream, SOON));) {
        last = response->saga->state;
        messages++;
        forget(response);
    }
    print_message("%d messages of %d states\n", messages, 2 * STEPS);
    assert_int_equal(last, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
    assert_true(messages > 0 && messages <= 2 * STEPS);
    assert_ended(stream, 0);
}

static void test_a_watch_outlives_an_outage_of_the_database(void **state)
{
    (void)state;
    struct err err;
    rig_define(&it.rig, "outage", NULL, "a: IDEMPOTENT handler=outage.a | none");
    rig_start(&it.rig, "outage", "s1", "");
    struct raw_stream *stream = watch(&(struct asked){ .definition = "outage", .saga_id = "s1" });
    assert_step(stream, READY, NULL);
    test_postgres_kill(it.postgres);
    assert_int_equal(raw_stream_status(stream, SILENCE_MS + 500, NULL), -1); /* it tried to look */
    ASSERT_OK(test_postgres_restart(it.postgres, &err), &err);
    struct raw_worker *worker = raw_worker_hello(it.address, "w", NULL, "outage.a", NULL, 0);
    raw_worker_credit(worker, "outage.a", 1);
    const Saga__V1__Task *task = raw_worker_task(worker, 2 * SOON);
    assert_non_null(task);
    assert_step(stream, LEASED, NULL);
    struct raw_lease lease = raw_lease_of(task);
    (void)raw_worker_settle(worker, &lease, DONE, "");
    Saga__V1__WatchSagaResponse *response = NULL;
    while ((response = next_message(stream, SOON)) && response->unchanged)
        forget(response);
    assert_non_null(response);
    assert_int_equal(response->saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
    forget(response);
    assert_ended(stream, 0);
    (void)raw_worker_cut(worker); /* always NULL */
}

static void test_a_stop_ends_watches_at_once(void **state)
{
    (void)state;
    struct raw_stream *stream = watch(&(struct asked){ .definition = "many", .saga_id = "s1" });
    assert_step(stream, READY, NULL);
    int64_t begun = clock_mono_ms(&clock_system);
    rpc_fixture_stop(&it, 5000);
    assert_true(clock_mono_ms(&clock_system) - begun < 4000);
    assert_ended(stream, UNAVAILABLE);
    assert_int_equal(rpc_fixture_start(&it), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_state_is_told_and_the_end_ends_the_stream),
        cmocka_unit_test(test_a_broken_watch_goes_on_where_it_was),
        cmocka_unit_test(test_what_time_alone_changes_is_told),
        cmocka_unit_test(test_what_cannot_be_watched_is_refused),
        cmocka_unit_test(test_watchers_are_bounded_in_number),
        cmocka_unit_test(test_a_slow_reader_misses_steps_on_the_way_and_never_the_newest_state),
        cmocka_unit_test(test_a_watch_outlives_an_outage_of_the_database),
        cmocka_unit_test(test_a_stop_ends_watches_at_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
