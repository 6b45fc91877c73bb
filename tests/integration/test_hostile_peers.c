/* Hostile peers. Goal: whatever a peer does with its connection, memory stays bounded, others go
 * on, and when it has gone nothing of it is left. Method: HTTP/2 by hand against a real sagad whose
 * memory is looked at from outside; an ordinary worker is connected all the time, and after each
 * test an ordinary saga must succeed at once, at the same process. What is not bounded is sent in a
 * bounded amount: the README says what only an edge proxy keeps away.
 *
 * Bytes that are no message, nested ones and large ones on every method: test_e2e_bad_bytes. */
#include "base/clock.h"
#include "base/rng.h"
#include "support/hostile.h"
#include "support/proof.h"
#include "support/raw_http2.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>

enum {
    SOON = 10000,
    MIB = 1024 * 1024,
    STREAMS_MAX = 1000, /* of workers */
    STREAMS_OF_CONNECTION = 2000,
    GROWTH_MIB_MAX = 64,   /* of what is to take no memory */
    ANSWERS_MIB_MAX = 256, /* replies that wait for their clients */
    ENHANCE_YOUR_CALM = 11,
};
#define WORK  "/saga.v1.WorkerService/Work"
#define GET   "/saga.v1.SagaService/GetSaga"
#define CHECK "/grpc.health.v1.Health/Check"

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "1s" } };
static struct hostile hostile;
static int port;

static int setup(void **state)
{
    (void)state;
    hostile_environment();
    if (rig_up(&rig) != 0 || hostile_begin(&hostile, &rig) != 0)
        return -1;
    port = rig.port;
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
    return hostile_check(&hostile);
}

static struct raw_http2 *connect_to(const struct raw_http2_options *options)
{
    struct raw_http2 *http2 = NULL;
    struct err err;
    ASSERT_OK(raw_http2_open(port, options, &http2, &err), &err);
    return http2;
}

static void assert_grown_less(int64_t before_kb, int64_t most_mib, const char *what)
{
    int64_t grown = hostile_rss_kb(&hostile) - before_kb;
    print_message("%s: sagad has grown by %lld MiB\n", what, (long long)(grown / 1024));
    if (grown > most_mib * 1024 * HOSTILE_MEMORY_FACTOR)
        fail_msg("%s: sagad has grown by %lld KiB", what, (long long)grown);
}

/* --- streams ---------------------------------------------------------------------------------- */

static bool has_ended(const struct raw_http2_seen *seen, size_t count)
{
    return seen->ended >= count || seen->closed;
}

static bool has_limited(const struct raw_http2_seen *seen, size_t count)
{
    return seen->limited >= count || seen->closed;
}

static bool a_stream_is_free(void *ctx)
{
    (void)ctx;
    struct raw_worker *worker = raw_worker_open(rig.address);
    bool is_taken = raw_worker_status(worker, 200, NULL) < 0; /* else it is refused at once */
    (void)raw_worker_cut(worker);                             /* always NULL */
    return is_taken;
}

static void test_ten_thousand_streams_are_refused_beyond_the_bound_and_hurt_nobody(void **state)
{
    (void)state;
    enum { CONNECTIONS_MAX = 5 };
    struct raw_http2 *connections[CONNECTIONS_MAX];
    int count = test_is_full_size() ? CONNECTIONS_MAX : 1;
    int64_t before = hostile_rss_kb(&hostile);
    struct err err;
    size_t refused = 0, wanted = (size_t)(count * STREAMS_OF_CONNECTION - STREAMS_MAX) + 1;
    for (int c = 0; c < count; c++) {
        connections[c] = connect_to(NULL);
        for (uint32_t i = 0; i < STREAMS_OF_CONNECTION; i++)
            ASSERT_OK(raw_http2_call(connections[c], 2 * i + 1, WORK, NULL, &err), &err);
        (void)raw_http2_read(connections[c], has_limited, c ? STREAMS_OF_CONNECTION : wanted, SOON);
        assert_false(raw_http2_seen(connections[c])->closed);
        refused += raw_http2_seen(connections[c])->limited;
    }
    /* All but the bound, of which the ordinary worker has one. */
    assert_int_equal(refused, wanted);
    hostile_ordinary_saga(&hostile);
    assert_grown_less(before, count * GROWTH_MIB_MAX, "streams");
    for (int c = 0; c < count; c++)
        connections[c] = raw_http2_free(connections[c]);
    assert_true(wait_until(a_stream_is_free, NULL, SOON));
    proof_fault("streams beyond the bound", (int64_t)refused);
}

static void test_rapid_resets_leave_nothing_behind(void **state)
{
    (void)state;
    static const char *const methods[] = { GET, WORK, CHECK, "/unknown" };
    /* Of each; gRPC bounds them neither in time nor in memory (README). */
    uint32_t resets = test_is_full_size() ? 2500 : 500;
    int64_t before = hostile_rss_kb(&hostile);
    static const uint8_t cancel[] = { 0, 0, 0, 8 };
    struct err err;
    for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
        struct raw_http2 *http2 = connect_to(NULL);
        struct buf empty = { 0 };
        for (uint32_t i = 0; i < resets; i++) {
            ASSERT_OK(raw_http2_call(http2, 2 * i + 1, methods[m], i % 2 ? &empty : NULL, &err),
                      &err);
            ASSERT_OK(
                raw_http2_send(http2, FRAME_RST_STREAM, 0, 2 * i + 1, cancel, sizeof cancel, &err),
                &err);
        }
        /* It is the same connection all the time, and still a good one. */
        ASSERT_OK(raw_http2_call(http2, 2 * resets + 1, CHECK, &empty, &err), &err);
        size_t ended = raw_http2_seen(http2)->ended;
        assert_true(raw_http2_read(http2, has_ended, ended + 1, SOON));
        assert_false(raw_http2_seen(http2)->closed);
        http2 = raw_http2_free(http2);
    }
    hostile_ordinary_saga(&hostile);
    assert_grown_less(before, GROWTH_MIB_MAX, "resets");
    proof_fault("streams reset at once", (int64_t)resets * (int64_t)ARRAY_LEN(methods));
}

static void test_bombs_on_streams_end_that_stream_alone(void **state)
{
    (void)state;
    enum { NESTING = 10000, LARGE = 5 * MIB, INVALID_ARGUMENT = 3, EXHAUSTED = 8 };
    static uint8_t nested[2 * NESTING];
    memset(nested, 0x0b, NESTING); /* groups in groups */
    memset(nested + NESTING, 0x0c, NESTING);
    CLEANUP(mem_free_p) uint8_t *large = mem_calloc(1, LARGE);
    assert_non_null(large);
    static const char watch[] = "/grpc.health.v1.Health/Watch";
    assert_int_equal(raw_call(rig.address, watch, nested, sizeof nested, SOON, NULL),
                     INVALID_ARGUMENT);
    assert_int_equal(raw_call(rig.address, watch, large, LARGE, 2L * SOON, NULL), EXHAUSTED);
    struct raw_worker *beside = raw_worker_hello(rig.address, "beside", NULL, "n", NULL, 0);
    struct raw_worker *worker = raw_worker_hello(rig.address, "nested", NULL, "n", NULL, 0);
    raw_worker_send_bytes(worker, nested, sizeof nested);
    assert_int_equal(raw_worker_status(worker, SOON, NULL), INVALID_ARGUMENT);
    worker = raw_worker_cut(worker);
    assert_int_equal(raw_worker_status(beside, 100, NULL), -1);
    beside = raw_worker_cut(beside);
    proof_fault("bombs on streams", 3);
}

/* --- headers ---------------------------------------------------------------------------------- */

/* One field of 3,900 bytes in the table, named 16,000 times in a block of as many bytes. */
static void test_headers_that_unfold_to_megabytes_take_no_memory(void **state)
{
    (void)state;
    static char value[3900];
    memset(value, 'v', sizeof value);
    int64_t before = hostile_rss_kb(&hostile);
    struct err err;
    struct raw_http2 *http2 = connect_to(NULL);
    CLEANUP(buf_done) struct buf block = { 0 };
    raw_http2_block(&block, CHECK);
    size_t at = block.size;
    raw_http2_block_add(&block, "x", value, sizeof value);
    block.data[at] = 0x40; /* into the table */
    ASSERT_OK(
        raw_http2_send(http2, FRAME_HEADERS, FLAG_END_HEADERS, 1, block.data, block.size, &err),
        &err);
    int streams = test_is_full_size() ? 500 : 50, sent = 0;
    CLEANUP(buf_done) struct buf bomb = { 0 };
    raw_http2_block(&bomb, CHECK);
    while (bomb.size < 16000)
        buf_append(&bomb, "\xbe", 1); /* the newest of the table */
    while (sent < streams &&
           raw_http2_send(http2, FRAME_HEADERS, FLAG_END_HEADERS, (uint32_t)(2 * sent + 3),
                          bomb.data, bomb.size, &err) == 0)
        sent++;
    (void)raw_http2_read(http2, has_ended, (size_t)sent, 1000);
    const struct raw_http2_seen *seen = raw_http2_seen(http2);
    assert_true(seen->closed || seen->ended > 0); /* refused, one way or the other */
    hostile_ordinary_saga(&hostile);
    assert_grown_less(before, GROWTH_MIB_MAX, "unfolding headers");
    http2 = raw_http2_free(http2);
    proof_fault("headers that unfold", sent);
}

/* What gRPC does not bound: headers that do not end. So this is about a bounded amount. */
static void endless_headers(const char *what, const struct buf *first, const struct buf *next,
                            size_t bytes)
{
    struct err err;
    struct raw_http2 *http2 = connect_to(NULL);
    size_t sent = 0;
    int64_t begun = clock_mono_ms(&clock_system);
    ASSERT_OK(raw_http2_send(http2, FRAME_HEADERS, 0, 1, first->data, first->size, &err), &err);
    while (sent < bytes &&
           raw_http2_send(http2, FRAME_CONTINUATION, 0, 1, next->data, next->size, &err) == 0)
        sent += next->size;
    print_message("%s: %zu bytes taken in %lld ms\n", what, sent,
                  (long long)(clock_mono_ms(&clock_system) - begun));
    proof_fault(what, (int64_t)(sent / next->size));
    hostile_ordinary_saga(&hostile);
    http2 = raw_http2_free(http2);
}

static void test_headers_that_do_not_end_are_survived_in_a_bounded_amount(void **state)
{
    (void)state;
    static char value[100];
    memset(value, 'v', sizeof value);
    size_t mib = test_is_full_size() ? 32 : 8;
    int64_t before = hostile_rss_kb(&hostile);
    CLEANUP(buf_done) struct buf first = { 0 };
    CLEANUP(buf_done) struct buf next = { 0 };
    raw_http2_block(&first, CHECK);
    while (next.size < 14000)
        raw_http2_block_add(&next, "x", value, sizeof value);
    endless_headers("header fields without an end", &first, &next, mib * MIB);
    /* One value of two gigabytes, by its length; the cost grows with the square of what was sent.
     */
    buf_append(&first, "\0\1x\x7f\x80\xff\xff\xff\x07", 9);
    buf_clear(&next);
    while (next.size < FRAME_BYTES_MAX)
        buf_append(&next, value,
                   sizeof value < FRAME_BYTES_MAX - next.size ? sizeof value
                                                              : FRAME_BYTES_MAX - next.size);
    endless_headers("a header value without an end", &first, &next, MIB);
    /* And a length that does not end. */
    first.size -= 5;
    memset(next.data, 0x80, next.size);
    endless_headers("a header length without an end", &first, &next, MIB);
    assert_grown_less(before, (int64_t)(GROWTH_MIB_MAX + 4 * mib), "endless headers");
}

static void test_a_flood_of_pings_ends_the_connection(void **state)
{
    (void)state;
    static const uint8_t data[8] = { 1 };
    struct err err;
    struct raw_http2 *http2 = connect_to(NULL);
    int sent = 0;
    while (sent < 20000 && raw_http2_send(http2, FRAME_PING, 0, 0, data, sizeof data, &err) == 0)
        sent++;
    (void)raw_http2_read(http2, has_ended, SIZE_MAX, SOON);
    assert_true(raw_http2_seen(http2)->closed);
    assert_int_equal(raw_http2_seen(http2)->goaway_code, ENHANCE_YOUR_CALM);
    http2 = raw_http2_free(http2);
    proof_fault("pings", sent);
}

/* --- messages that do not come to an end, replies that are not read --------------------------- */

static void test_messages_that_stay_unfinished_are_bounded(void **state)
{
    (void)state;
    enum { PART = 3900 * 1000, QUOTA_MIB = 512 };
    uint32_t streams = test_is_full_size() ? 300 : 30, sent = 0;
    int64_t before = hostile_rss_kb(&hostile);
    struct err err;
    struct raw_http2 *http2 = connect_to(NULL);
    CLEANUP(mem_free_p) uint8_t *part = mem_calloc(1, PART);
    assert_non_null(part);
    part[2] = 4000000 >> 16 & 0xff; /* of a message of four million bytes */
    part[3] = 4000000 >> 8 & 0xff;
    for (; sent < streams; sent++) {
        if (raw_http2_call(http2, 2 * sent + 1, "/saga.v1.SagaService/StartSaga", NULL, &err) ||
            raw_http2_send_data(http2, 2 * sent + 1, part, PART, 2000, &err))
            break; /* gRPC's own bound: it gives no window any more, or ends streams */
    }
    print_message("%u unfinished messages: %s\n", sent, sent < streams ? err.msg : "all taken");
    hostile_ordinary_saga(&hostile);
    /* They take their own size and a quarter at most, and together twice gRPC's quota: it is no
     * sharp bound. */
    int64_t own_mib = (int64_t)sent * PART / MIB * 5 / 4 + GROWTH_MIB_MAX;
    assert_grown_less(before, own_mib < 2 * QUOTA_MIB ? own_mib : 2 * QUOTA_MIB,
                      "unfinished messages");
    http2 = raw_http2_free(http2);
    proof_fault("unfinished messages", sent);
}

static void get_saga_request(struct buf *ret, const char *definition, const char *saga_id)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    ref.definition = rig_borrow(definition);
    ref.saga_id = rig_borrow(saga_id);
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    size_t size = saga__v1__get_saga_request__get_packed_size(&request);
    uint8_t *room = buf_room(ret, size);
    assert_non_null(room);
    (void)saga__v1__get_saga_request__pack(&request, room); /* fills it */
    buf_added(ret, size);
}

static void test_replies_that_nobody_reads_are_bounded_together(void **state)
{
    (void)state;
    enum { INPUT = 250 * 1024, CALLS = 1900, CONNECTIONS_MAX = 4 };
    static const struct raw_http2_options options = { .reads_nothing = true };
    struct raw_http2 *connections[CONNECTIONS_MAX];
    int count = test_is_full_size() ? CONNECTIONS_MAX : 1;
    struct err err;
    CLEANUP(mem_free_p) char *input = mem_calloc(1, INPUT + 1);
    assert_non_null(input);
    memset(input, 'i', INPUT);
    rig_define(&rig, "unread", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "unread", "unread", input);
    CLEANUP(buf_done) struct buf request = { 0 };
    get_saga_request(&request, "unread", "unread");
    int64_t before = hostile_rss_kb(&hostile);
    size_t limited = 0;
    for (int c = 0; c < count; c++) {
        connections[c] = connect_to(&options);
        for (uint32_t i = 0; i < CALLS; i++)
            ASSERT_OK(raw_http2_call(connections[c], 2 * i + 1, GET, &request, &err), &err);
    }
    /* Some thousand bytes of each and no more; whom the bound hits is told so. */
    size_t most = (size_t)CALLS - (size_t)ANSWERS_MIB_MAX * MIB / INPUT - 1;
    for (int c = 0; c < count; c++) {
        (void)raw_http2_read(connections[c], has_limited, c ? 1 : most, 3L * SOON);
        limited += raw_http2_seen(connections[c])->limited;
    }
    assert_true(limited >= most - 20);
    assert_grown_less(before, ANSWERS_MIB_MAX * 3 / 2, "unread replies");
    /* Small replies go out, and large ones again when those have gone. */
    hostile_ordinary_saga(&hostile);
    for (int c = 0; c < count; c++)
        connections[c] = raw_http2_free(connections[c]);
    struct client_failure failure = { 0 };
    Saga__V1__Saga *saga = NULL;
    for (int i = 0; i < 100 && !saga; i++) {
        saga = hostile_get(&hostile, "unread", "unread", &failure);
        client_failure_done(&failure);
        if (!saga)
            wait_ms(50);
    }
    assert_non_null(saga);
    assert_int_equal(saga->input.len, INPUT);
    saga__v1__saga__free_unpacked(saga, NULL);
    assert_int_equal(rig_cancel(&rig, "unread", "unread", NULL), 0);
    proof_fault("replies that nobody reads", (int64_t)limited);
}

/* --- workers ---------------------------------------------------------------------------------- */

static int64_t leases_of(const char *definition, const char *worker)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                     " WHERE s.definition = '%s' AND worker LIKE '%s/%%'",
                     definition, worker);
}

static void test_a_worker_that_takes_all_and_sleeps_delays_its_own_leases_alone(void **state)
{
    (void)state;
    enum { SAGAS = 40, LEASE_MS = 5000 };
    rig_define(&rig, "greedy", NULL, "a: IDEMPOTENT handler=greedy lease=5s | none");
    struct raw_worker *greedy = raw_worker_hello(rig.address, "greedy", NULL, "greedy", NULL, 0);
    raw_worker_credit(greedy, "greedy", UINT32_MAX);
    rig_start_many(&rig, "greedy", "alone-", SAGAS, "");
    rig_await(&rig, RIG_STORE, "40", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'greedy' AND outcome IS NULL");
    int64_t slept = clock_mono_ms(&clock_system);
    /* Others: other handlers at once, and of its own handler every second task. */
    hostile_ordinary_saga(&hostile);
    (void)rig_worker(&rig, "honest", "greedy:100"); /* the rig owns it */
    rig_start_many(&rig, "greedy", "both-", SAGAS, "");
    rig_await(&rig, RIG_STORE, "t", SOON,
              "SELECT count(*) >= %d FROM saga WHERE definition = 'greedy' AND state ="
              " 'SUCCEEDED'",
              SAGAS / 2);
    assert_true(clock_mono_ms(&clock_system) - slept < LEASE_MS);
    assert_true(leases_of("greedy", "greedy") <= SAGAS + SAGAS / 2 + 1);
    /* What it sleeps over goes to the honest one when the leases are over, and not to it again. */
    rig_await_states(&rig, "greedy", "", "SUCCEEDED", 2 * SAGAS, 2 * LEASE_MS + 3000);
    assert_true(leases_of("greedy", "greedy") <= SAGAS + SAGAS / 2 + 1);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT max(try) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'greedy'"),
                     2);
    greedy = raw_worker_cut(greedy);
    proof_fault("tasks that are slept over",
                rig_count(&rig, RIG_STORE,
                          "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                          " WHERE s.definition = 'greedy' AND outcome = 'EXPIRED'"));
}

static void extend_unknown(struct raw_worker *worker, struct rng *rng, size_t count)
{
    enum { COUNT_MAX = 2000 };
    static Saga__V1__HeldLease leases[COUNT_MAX], *list[COUNT_MAX];
    static uint8_t uids[COUNT_MAX][16];
    assert_true(count <= COUNT_MAX);
    for (size_t i = 0; i < count; i++) {
        for (size_t b = 0; b < sizeof uids[i]; b++)
            uids[i][b] = (uint8_t)rng_next(rng);
        saga__v1__held_lease__init(&leases[i]);
        leases[i].saga_uid = (ProtobufCBinaryData){ sizeof uids[i], uids[i] };
        leases[i].fence = 1;
        list[i] = &leases[i];
    }
    Saga__V1__Extend extend = SAGA__V1__EXTEND__INIT;
    extend.leases = list;
    extend.n_leases = count;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND;
    message.extend = &extend;
    raw_worker_send(worker, &message);
}

static void test_a_worker_that_asks_for_leases_that_never_were_delays_nobody_for_long(void **state)
{
    (void)state;
    enum { LEASES = 2000 };
    int messages = test_is_full_size() ? 40 : 5;
    struct rng rng;
    rng_seed(&rng, proof_seed());
    int64_t before = hostile_rss_kb(&hostile);
    struct raw_worker *worker = raw_worker_hello(rig.address, "asker", NULL, "asked", NULL, 0);
    for (int i = 0; i < messages; i++)
        extend_unknown(worker, &rng, LEASES);
    int64_t begun = clock_mono_ms(&clock_system);
    hostile_ordinary_saga(&hostile); /* in the middle of it */
    print_message("an ordinary saga beside it took %lld ms\n",
                  (long long)(clock_mono_ms(&clock_system) - begun));
    for (int i = 0; i < messages * LEASES; i++)
        assert_int_equal(raw_worker_extended(worker, SOON), 0); /* each is answered: not yours */
    worker = raw_worker_cut(worker);
    assert_grown_less(before, GROWTH_MIB_MAX, "leases that never were");
    proof_fault("leases that never were", (int64_t)messages * LEASES);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_ten_thousand_streams_are_refused_beyond_the_bound_and_hurt_nobody),
        TEST(test_rapid_resets_leave_nothing_behind),
        TEST(test_bombs_on_streams_end_that_stream_alone),
        TEST(test_headers_that_unfold_to_megabytes_take_no_memory),
        TEST(test_headers_that_do_not_end_are_survived_in_a_bounded_amount),
        TEST(test_a_flood_of_pings_ends_the_connection),
        TEST(test_replies_that_nobody_reads_are_bounded_together),
        TEST(test_messages_that_stay_unfinished_are_bounded),
        TEST(test_a_worker_that_takes_all_and_sleeps_delays_its_own_leases_alone),
        TEST(test_a_worker_that_asks_for_leases_that_never_were_delays_nobody_for_long),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
