/* Connections on which nothing happens (T1, L3). Goal: good peers that only ping are never cut,
 * dead ones are noticed and what they held is dealt with, silent ones end. Method: all scenes begin
 * at once against a sagad with its default times and are looked at while time passes: 37 s, at full
 * size 10 minutes. */
#include "base/clock.h"
#include "support/black_hole.h"
#include "support/hostile.h"
#include "support/proof.h"
#include "support/raw_http2.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <grpc/health/v1/health.pb-c.h>
#include <stdio.h>

enum {
    SOON = 10000,
    LOOK_MS = 50,
    PING_MS = 5100, /* a little more than the shortest that is allowed */
    CREDIT_MS = 12000,
    EVERYDAY_MS = 37000, /* seven pings, one more than the strikes that end a connection */
    FULL_MS = 600000,
    NOTICE_MS = 30000, /* a dead peer */
    STREAM_LOST_MS = 5000,
    BIG = 200 * 1024,
};
#define DONE SAGA__V1__OUTCOME__OUTCOME_DONE

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };
static struct hostile hostile;
static int64_t begun_ms, noticed_ms; /* noticed: that the swallowed worker has gone */

/* --- the scenes ------------------------------------------------------------------------------- */

/* What the connection or its one call is to come to. */
enum expected { STAYS, CLOSES, ENDS };

static struct scene {
    const char *name;
    const char *method; /* of a call without a message; NULL: none */
    struct raw_http2_options options;
    bool pings;
    enum expected expected;
    int64_t least_ms, most_ms; /* when it closes or ends */
    struct raw_http2 *http2;
    int64_t over_ms; /* since the beginning; -1: not yet */
} scenes[] = {
    { "pings without a call", NULL, { 0 }, true, STAYS, 0, 0, NULL, -1 },
    { "pings beside a call", NULL, { 0 }, true, STAYS, 0, 0, NULL, -1 }, /* a watcher */
    { "no pings of its own", NULL, { 0 }, false, STAYS, 0, 0, NULL, -1 },
    { "nothing but TCP", NULL, { .no_preface = true }, false, CLOSES, 9000, 13000, NULL, -1 },
    { "answers no pings",
      NULL,
      { .answers_no_pings = true },
      false,
      CLOSES,
      9000,
      24000,
      NULL,
      -1 },
    { "a worker without a Hello",
      "/saga.v1.WorkerService/Work",
      { 0 },
      false,
      ENDS,
      14000,
      18000,
      NULL,
      -1 },
    { "a call without its request",
      "/saga.v1.SagaService/GetSaga",
      { 0 },
      false,
      ENDS,
      29000,
      33000,
      NULL,
      -1 },
    { "a watcher without its request",
      "/grpc.health.v1.Health/Watch",
      { 0 },
      false,
      ENDS,
      29000,
      33000,
      NULL,
      -1 },
    { "a large reply that is not read",
      NULL,
      { .reads_nothing = true },
      false,
      ENDS,
      29000,
      35000,
      NULL,
      -1 },
};
enum { WATCHER = 1, UNREAD = ARRAY_LEN(scenes) - 1 };

static struct raw_worker *idle[2]; /* with keepalive of 10 s and 30 s */
static struct black_hole *hole;
static struct raw_worker *swallowed;
static const char swallowed_instance[] = "swallowed-instance";

static int64_t since_begun(void)
{
    return clock_mono_ms(&clock_system) - begun_ms;
}

static void call_with(struct raw_http2 *http2, const char *method, const ProtobufCMessage *request)
{
    struct err err;
    CLEANUP(buf_done) struct buf message = { 0 };
    size_t size = protobuf_c_message_get_packed_size(request);
    uint8_t *room = buf_room(&message, size + 1);
    assert_non_null(room);
    (void)protobuf_c_message_pack(request, room); /* fills it */
    buf_added(&message, size);
    ASSERT_OK(raw_http2_call(http2, 1, method, &message, &err), &err);
}

static void begin_scenes(void)
{
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct scene *scene = &scenes[i];
        ASSERT_OK(raw_http2_open(rig.port, &scene->options, &scene->http2, &err), &err);
        if (scene->method)
            ASSERT_OK(raw_http2_call(scene->http2, 1, scene->method, NULL, &err), &err);
    }
    Grpc__Health__V1__HealthCheckRequest watch = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    call_with(scenes[WATCHER].http2, "/grpc.health.v1.Health/Watch", &watch.base);
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__GetSagaRequest get = SAGA__V1__GET_SAGA_REQUEST__INIT;
    ref.definition = rig_borrow("big");
    ref.saga_id = rig_borrow("big");
    get.saga = &ref;
    get.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    call_with(scenes[UNREAD].http2, "/saga.v1.SagaService/GetSaga", &get.base);
}

/* A worker whose bytes vanish just before the server writes it two tasks. */
static void begin_swallowing(void)
{
    struct err err;
    rig_define(&rig, "hole", NULL,
               "a: IDEMPOTENT handler=hole lease=3600s attempt_timeout=3600s | none");
    rig_define(&rig, "hole_once", NULL,
               "a: ONCE handler=hole lease=3600s attempt_timeout=3600s | none");
    ASSERT_OK(black_hole_start(rig.port, &hole, &err), &err);
    swallowed =
        raw_worker_hello(black_hole_address(hole), "gone", swallowed_instance, "hole", NULL, 0);
    raw_worker_credit(swallowed, "hole", 3);
    /* The credit has arrived when the first task comes. */
    rig_start(&rig, "hole", "first", "");
    const Saga__V1__Task *task = raw_worker_task(swallowed, SOON);
    assert_non_null(task);
    struct raw_lease lease = raw_lease_of(task);
    assert_int_equal(raw_worker_settle(swallowed, &lease, DONE, ""),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    black_hole_freeze(hole);
    rig_start(&rig, "hole", "hole", "");
    rig_start(&rig, "hole_once", "hole-once", "");
    rig_await(&rig, RIG_STORE, "2", SOON,
              "SELECT count(*) FROM journal WHERE worker = 'gone/%s' AND outcome IS NULL",
              swallowed_instance);
    (void)rig_worker(&rig, "other", "hole:4"); /* the rig owns it */
}

static int setup(void **state)
{
    (void)state;
    hostile_environment();
    if (rig_up(&rig) != 0 || hostile_begin(&hostile, &rig) != 0)
        return -1;
    char *big = mem_calloc(1, BIG + 1);
    assert_non_null(big);
    memset(big, 'b', BIG);
    rig_define(&rig, "big", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "big", "big", big);
    mem_free(big);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++)
        scenes[i].http2 = raw_http2_free(scenes[i].http2);
    for (size_t i = 0; i < ARRAY_LEN(idle); i++)
        idle[i] = raw_worker_cut(idle[i]);
    swallowed = raw_worker_cut(swallowed);
    hole = black_hole_free(hole);
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return hostile_check(&hostile);
}

/* --- time passes ------------------------------------------------------------------------------ */

static void look_at(struct scene *scene)
{
    (void)raw_http2_read(scene->http2, NULL, 0, 0);
    const struct raw_http2_seen *seen = raw_http2_seen(scene->http2);
    bool is_over = seen->closed || seen->ended || seen->frames[FRAME_GOAWAY];
    if (is_over && scene->over_ms < 0)
        scene->over_ms = since_begun();
}

static void ping(struct scene *scene)
{
    static const uint8_t data[8] = { 'p' };
    struct err err;
    if (scene->over_ms < 0 &&
        raw_http2_send(scene->http2, FRAME_PING, 0, 0, data, sizeof data, &err) != 0)
        look_at(scene); /* it was closed */
}

static void test_t1_good_peers_that_only_ping_are_never_cut(void **state)
{
    (void)state;
    int64_t until_ms = test_is_full_size() ? FULL_MS : EVERYDAY_MS;
    static const int keepalive_ms[] = { 10000, 30000 };
    for (size_t i = 0; i < ARRAY_LEN(idle); i++) {
        raw_stream_keepalive(keepalive_ms[i]);
        idle[i] = raw_worker_hello(rig.address, "idle", NULL, "idle", NULL, 0);
    }
    raw_stream_keepalive(0);
    begun_ms = clock_mono_ms(&clock_system);
    begin_scenes();
    begin_swallowing();
    int64_t frozen_ms = since_begun(), next_ping = PING_MS, next_credit = CREDIT_MS;
    while (since_begun() < until_ms) {
        bool pings = since_begun() > next_ping, credits = since_begun() > next_credit;
        for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
            look_at(&scenes[i]);
            if (scenes[i].pings && pings)
                ping(&scenes[i]);
        }
        next_ping += pings ? PING_MS : 0;
        for (size_t i = 0; i < ARRAY_LEN(idle); i++) {
            if (credits)
                raw_worker_credit(idle[i], "idle", 1);
            const char *message = "";
            int code = raw_worker_status(idle[i], LOOK_MS / 2, &message);
            if (code != -1)
                fail_msg("keepalive of %d ms: the stream ended after %lld ms: %d %s",
                         keepalive_ms[i], (long long)since_begun(), code, message);
        }
        next_credit += credits ? CREDIT_MS : 0;
        /* The ordinary worker, the other one, the idle ones: all but the swallowed one. */
        if (!noticed_ms && rig_counter(&rig, "workers_connected") == 2 + (int)ARRAY_LEN(idle))
            noticed_ms = since_begun() - frozen_ms;
    }
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        const struct raw_http2_seen *seen = raw_http2_seen(scenes[i].http2);
        if (scenes[i].expected != STAYS)
            continue;
        if (scenes[i].over_ms >= 0)
            fail_msg("%s: it was ended after %lld ms, GOAWAY %u", scenes[i].name,
                     (long long)scenes[i].over_ms, seen->goaway_code);
        if (scenes[i].pings)
            assert_true(seen->pongs >= (size_t)(until_ms / PING_MS) - 1);
        proof_fault("pings on idle connections", (int64_t)seen->pongs);
    }
}

static void test_t1_peers_that_are_silent_or_dead_end_in_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        const struct scene *scene = &scenes[i];
        if (scene->expected == STAYS)
            continue;
        print_message("%s: over after %lld ms\n", scene->name, (long long)scene->over_ms);
        if (scene->over_ms < scene->least_ms || scene->over_ms > scene->most_ms)
            fail_msg("%s: over after %lld ms, not %lld to %lld", scene->name,
                     (long long)scene->over_ms, (long long)scene->least_ms,
                     (long long)scene->most_ms);
        bool is_closed = raw_http2_seen(scene->http2)->closed;
        if (is_closed != (scene->expected == CLOSES))
            fail_msg("%s: the connection is %s", scene->name, is_closed ? "closed" : "open");
        proof_fault("silent peers", 1);
    }
}

static void test_t1_l3_a_swallowed_stream_is_noticed_and_its_leases_are_dealt_with(void **state)
{
    (void)state;
    print_message("noticed after %lld ms\n", (long long)noticed_ms);
    assert_true(noticed_ms > 0 && noticed_ms <= NOTICE_MS);
    /* IDEMPOTENT: offered elsewhere within 5 s of that, counted as a try. */
    rig_await_state(&rig, "hole", "hole", "SUCCEEDED", 100);
    rig_assert_journal(&rig, "hole", "hole", "a.1 STREAM_LOST, a.2 DONE");
    int64_t lost_ms = rig_count(&rig, RIG_STORE,
                                "SELECT extract(epoch FROM finished_at - leased_at) * 1000"
                                " FROM journal WHERE outcome = 'STREAM_LOST'");
    assert_true(lost_ms <= noticed_ms + STREAM_LOST_MS + 1000);
    /* The other class waits for its lease, or for the Hello of the same instance, which does not
     * list what it never got: it has burned no try. */
    rig_assert_journal(&rig, "hole_once", "hole-once", "a.1 OPEN");
    struct raw_worker *back =
        raw_worker_hello(rig.address, "gone", swallowed_instance, "hole", NULL, 0);
    rig_await_state(&rig, "hole_once", "hole-once", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "hole_once", "hole-once", "a.1 RELEASED, a.1 DONE");
    back = raw_worker_cut(back);
    assert_int_equal(rig_cancel(&rig, "big", "big", NULL), 0);
    proof_fault("a stream swallowed as the server wrote", 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_t1_good_peers_that_only_ping_are_never_cut),
        TEST(test_t1_peers_that_are_silent_or_dead_end_in_time),
        TEST(test_t1_l3_a_swallowed_stream_is_noticed_and_its_leases_are_dealt_with),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
