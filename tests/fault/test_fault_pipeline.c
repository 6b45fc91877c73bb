/* D7: 1000 statements with more than 16 KiB of results each in one pipeline. Goal: it never blocks,
 * and when the backend dies in the middle every operation ends, at once, with what is certain: what
 * was committed is OK, what was read is to be read again. Method: the store by hand, through the
 * proxy; the backend is ended at random moments, the connection cut in random rows. */
#include "base/clock.h"
#include "base/rng.h"
#include "proxy.h"
#include "support/check.h"
#include "support/proof.h"
#include "support/wait.h"

#include "../integration/store_fixture.h"

#include <stdio.h>

enum { LOADS = 1000, CONTENT = 20 * 1024, STATEMENT_TIMEOUT_MS = 10000 };

static struct test_postgres *postgres;
static struct proxy *proxy;
static struct store *store;
static PGconn *other;
static char direct[POSTGRES_CONNINFO_SIZE];
static struct rng rng;
static struct store_op loads[LOADS];

static void register_large(void)
{
    static uint8_t data[CONTENT];
    struct store_reader *reader;
    struct store_registered registered;
    struct store_register what = { .namespace_ = "test",
                                   .name = "large",
                                   .content = { data, sizeof data } };
    struct err err;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rng_next(&rng);
    ASSERT_OK(store_reader_new(direct, &reader, &err), &err);
    ASSERT_OK(store_reader_register(reader, &what, &registered, &err), &err);
    store_registered_done(&registered);
    (void)store_reader_free(reader); /* always NULL */
}

static int setup(void **state)
{
    (void)state;
    struct err err;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    rng_seed(&rng, proof_seed());
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "pipeline", direct);
    SETUP_OK(proxy_start(test_postgres_port(postgres), rng_next(&rng), &proxy, &err), &err);
    (void)snprintf(conninfo, sizeof conninfo,
                   "host=127.0.0.1 port=%d dbname=pipeline user=postgres sslmode=disable"
                   " gssencmode=disable",
                   proxy_port(proxy));
    store = fixture_store(conninfo);
    other = fixture_connect(direct);
    register_large();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    PQfinish(other);
    store = store_pg_free(store);
    proxy = proxy_free(proxy);
    postgres = test_postgres_free(postgres);
    return 0;
}

/* A start, and LOADS loads behind it. */
static void fill(struct copy *first, const char *id)
{
    copy_new(first, id, "w/1");
    first->op.next = &loads[0];
    for (int i = 0; i < LOADS; i++)
        loads[i] = (struct store_op){ .kind = STORE_LOAD_DEFINITION,
                                      .next = i + 1 < LOADS ? &loads[i + 1] : NULL,
                                      .namespace_ = "test",
                                      .definition = "large" };
}

static void done(struct copy *first)
{
    for (int i = 0; i < LOADS; i++)
        store_op_done(&loads[i]);
    copy_done(first);
}

static void assert_all_loaded(const struct copy *first)
{
    assert_int_equal(first->op.result, STORE_OK);
    for (int i = 0; i < LOADS; i++) {
        assert_int_equal(loads[i].result, STORE_OK);
        assert_int_equal(loads[i].content.size, CONTENT);
    }
}

/* All loads are to be done again; the start, which had its own transaction, is durable. */
static void assert_all_failed(const struct copy *first)
{
    assert_int_equal(first->op.result, STORE_OK);
    for (int i = 0; i < LOADS; i++) {
        assert_int_equal(loads[i].result, STORE_FAILED);
        assert_true(loads[i].err.retryable);
        assert_int_equal(loads[i].err.code, ERR_UNAVAILABLE);
    }
}

/* Drives it to its end, within the time of one statement. */
static void pump_in_time(void)
{
    int64_t from = clock_mono_ms(&clock_system);
    fixture_pump(store);
    assert_true(clock_mono_ms(&clock_system) - from < STATEMENT_TIMEOUT_MS);
}

static void test_d7_results_larger_than_any_buffer_do_not_block(void **state)
{
    (void)state;
    PROVES("P8");
    struct copy first;
    fill(&first, "d7-plain");
    store->ops->submit(store, &first.op);
    wait_ms(300); /* nobody reads: the server has filled every buffer on the way */
    pump_in_time();
    assert_all_loaded(&first);
    done(&first);
}

static void again(struct copy *first, uint64_t before, const char *id)
{
    char load_id[64];
    done(first);
    fixture_wait_ready(store, before);
    (void)snprintf(load_id, sizeof load_id, "%s-again", id);
    fill(first, load_id);
    store->ops->submit(store, &first->op);
    pump_in_time();
    assert_all_loaded(first);
    done(first);
    assert_int_equal(fixture_count(other, "SELECT count(*) FROM pg_stat_activity"
                                          " WHERE state LIKE 'idle in transaction%'"),
                     0);
}

static void test_d7_a_backend_that_ends_in_mid_pipeline(void **state)
{
    (void)state;
    PROVES("P2 P8");
    int rounds = test_is_full_size() ? 30 : 3;
    for (int i = 0; i < rounds; i++) {
        struct copy first;
        char id[64];
        uint64_t before = store->ops->generation(store);
        (void)snprintf(id, sizeof id, "d7-ended-%d", i);
        fill(&first, id);
        store->ops->submit(store, &first.op);
        /* The start has committed, and loads are on their way: 20 MB do not fit into sockets. */
        while (fixture_count(other, "SELECT count(*) FROM saga WHERE saga_id LIKE 'd7-ended-%'"
                                    " AND saga_id NOT LIKE '%-again'") <= i)
            store->ops->process(store, clock_mono_ms(&clock_system));
        for (uint64_t turns = rng_below(&rng, 20); turns > 0; turns--)
            store->ops->process(store, clock_mono_ms(&clock_system));
        assert_true(store->ops->busy(store));
        fixture_exec(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                            " WHERE application_name = 'sagad engine'");
        pump_in_time();
        assert_all_failed(&first);
        proof_fault("backend ended in mid-pipeline", 1);
        again(&first, before, id);
    }
}

/* What COMMIT was answered stays true, whatever becomes of the session then. */
static void test_d1_a_backend_that_ends_behind_its_commit(void **state)
{
    (void)state;
    PROVES("P2 P8");
    struct copy first;
    uint64_t before = store->ops->generation(store);
    fill(&first, "d1-behind");
    proxy_arm(proxy, PROXY_KEEP_SYNC, NULL, 1);
    store->ops->submit(store, &first.op);
    while (fixture_count(other, "SELECT count(*) FROM saga WHERE saga_id = 'd1-behind'") == 0)
        store->ops->process(store, clock_mono_ms(&clock_system));
    fixture_exec(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'sagad engine'");
    pump_in_time();
    assert_all_failed(&first);
    assert_int_equal(proxy_hits(proxy, PROXY_KEEP_SYNC), 1);
    proof_fault("backend ended behind its COMMIT", 1);
    again(&first, before, "d1-behind");
}

static void test_d7_a_connection_cut_in_a_row(void **state)
{
    (void)state;
    PROVES("P2 P8");
    int rounds = test_is_full_size() ? 30 : 3;
    for (int i = 0; i < rounds; i++) {
        struct copy first;
        char id[64];
        uint64_t before = store->ops->generation(store);
        (void)snprintf(id, sizeof id, "d7-cut-%d", i);
        fill(&first, id);
        /* Row 1 is the start's. */
        proxy_arm(proxy, PROXY_CUT_IN_RESULT, NULL, 2 + (int64_t)rng_below(&rng, LOADS));
        store->ops->submit(store, &first.op);
        pump_in_time();
        assert_all_failed(&first);
        again(&first, before, id);
    }
    assert_int_equal(proxy_hits(proxy, PROXY_CUT_IN_RESULT), rounds);
    assert_int_equal(proxy_stray_commits(proxy), 0);
    proof_fault("connection cut in a row of a long pipeline", rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_d7_results_larger_than_any_buffer_do_not_block),
        cmocka_unit_test(test_d7_a_backend_that_ends_in_mid_pipeline),
        cmocka_unit_test(test_d1_a_backend_that_ends_behind_its_commit),
        cmocka_unit_test(test_d7_a_connection_cut_in_a_row),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
