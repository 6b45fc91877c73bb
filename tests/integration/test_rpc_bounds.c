/* Goal: a bound on streams is a bound, also when many ask in the same moment. Method: the server in
 * this very process with a bound of a few; connections of their own ask for more than that at once,
 * many times over. */
#include "base/clock.h"
#include "rpc_fixture.h"
#include "support/proof.h"
#include "support/raw_http2.h"
#include "support/wait.h"

#include <pthread.h>

enum { STREAMS_MAX = 3, PEERS = 2, OVER = 2, SOON = 10000, ROUNDS = 150, ROUNDS_FULL = 2000 };

static struct rpc_fixture it;
static int port;

static int setup(void **state)
{
    (void)state;
    if (rpc_fixture_up(&it, &(struct rpc_options){ .streams_max = STREAMS_MAX,
                                                   .saga_watchers_max = STREAMS_MAX }) != 0)
        return -1;
    port = rpc_server_port(it.server, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rpc_fixture_down(&it);
}

static bool all_answered(const struct raw_http2_seen *seen, size_t count)
{
    return seen->limited >= count || seen->closed;
}

struct peer {
    struct raw_http2 *http2;
    const char *method;
    uint32_t streams;
    pthread_barrier_t *together;
    int rc;
};

static void *ask(void *ctx)
{
    struct peer *peer = ctx;
    struct err err;
    (void)pthread_barrier_wait(peer->together); /* nothing to do for who is told to go first */
    for (uint32_t i = 0; i < peer->streams && peer->rc == 0; i++)
        peer->rc = raw_http2_call(peer->http2, 2 * i + 1, peer->method, NULL, &err);
    return NULL;
}

/* OVER streams more than the bound are asked for; returns how many were refused. */
static size_t ask_at_once(const char *method, uint32_t bound)
{
    struct peer peers[PEERS];
    pthread_t threads[PEERS];
    pthread_barrier_t together;
    struct err err;
    size_t refused = 0;
    uint32_t first = (bound + OVER) / PEERS, streams[PEERS] = { first, bound + OVER - first };
    assert_int_equal(pthread_barrier_init(&together, NULL, PEERS), 0);
    for (size_t p = 0; p < PEERS; p++) {
        peers[p] = (struct peer){ .method = method, .streams = streams[p], .together = &together };
        ASSERT_OK(raw_http2_open(port, NULL, &peers[p].http2, &err), &err);
        assert_int_equal(pthread_create(&threads[p], NULL, ask, &peers[p]), 0);
    }
    for (size_t p = 0; p < PEERS; p++)
        assert_int_equal(pthread_join(threads[p], NULL), 0);
    int64_t until = clock_mono_ms(&clock_system) + SOON;
    while (refused < OVER && clock_mono_ms(&clock_system) < until) {
        refused = 0;
        for (size_t p = 0; p < PEERS; p++) {
            assert_int_equal(peers[p].rc, 0);
            (void)raw_http2_read(peers[p].http2, all_answered, OVER, 5);
            assert_false(raw_http2_seen(peers[p].http2)->closed);
            refused += raw_http2_seen(peers[p].http2)->limited;
        }
    }
    for (size_t p = 0; p < PEERS; p++)
        peers[p].http2 = raw_http2_free(peers[p].http2);
    assert_int_equal(pthread_barrier_destroy(&together), 0);
    return refused;
}

static bool has_no_streams(void *ctx)
{
    (void)ctx;
    const struct rpc_server *server = it.server;
    return !atomic_load(&server->streams) && !atomic_load(&server->saga_watchers) &&
           !atomic_load(&server->reflector_count) && !atomic_load(&server->batch_streams) &&
           !atomic_load(&server->watchers);
}

static void test_a_bound_holds_when_many_ask_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        uint32_t bound;
    } rows[] = {
        { "/saga.v1.WorkerService/Work", STREAMS_MAX },
        { "/saga.v1.SagaService/WatchSaga", STREAMS_MAX },
        { "/saga.v1.OperatorService/RunBatch", RPC_BATCH_STREAMS_MAX },
        { "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", RPC_REFLECTORS_MAX },
        { "/grpc.health.v1.Health/Watch", RPC_WATCHERS_MAX },
    };
    int rounds = test_is_full_size() ? ROUNDS_FULL : ROUNDS, asked = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        /* Where the bound is high a round is long. */
        int rounds_here = rows[i].bound > STREAMS_MAX ? rounds / (int)rows[i].bound + 1 : rounds;
        for (int n = 0; n < rounds_here; n++) {
            assert_true(wait_until(has_no_streams, NULL, SOON));
            size_t refused = ask_at_once(rows[i].method, rows[i].bound);
            if (refused != OVER)
                fail_msg("%s, round %d: %zu of %u are refused, not %d", rows[i].method, n, refused,
                         rows[i].bound + OVER, OVER);
            asked++;
        }
    }
    proof_fault("streams asked for at once", asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bound_holds_when_many_ask_at_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
