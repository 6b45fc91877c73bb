/* F1: somebody else's long transaction, which keeps dead rows from going away. Goal: steps are
 * handed on as before, what is adopted is found by its index, and all of it recovers. Method: 1,000
 * steps a second (the benchmark's load and its worker, who measures), sagas that go from one node
 * to the other meanwhile, before, beside and after a REPEATABLE READ transaction that is held open.
 * At everyday size only the scans are looked at: a few seconds say nothing about times. */
#include "base/mem.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>

enum {
    SOON = 30000,
    SAGAS_PER_S = 334, /* of three steps */
    WARM_UP_MS = 2000,
    AWAY = 10, /* sagas a second that another node must adopt */
    AWAY_MAX_MS = 8000,
};

static const char *const settings[] = { "autovacuum_naptime=5s", NULL };
static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1];

static int setup(void **state)
{
    (void)state;
    one->postgres_settings = settings;
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

static double number_in(struct test_process *process, const char *name)
{
    CLEANUP(mem_free_p) char *output = test_process_output(process);
    char key[64];
    (void)snprintf(key, sizeof key, "\"%s\": ", name);
    char *found = output ? strstr(output, key) : NULL;
    if (found)
        return strtod(found + strlen(key), NULL);
    fail_msg("no %s in: %s", name, output ? output : "");
    return 0;
}

static struct test_process *start(const char *const *argv)
{
    struct test_process *process;
    struct err err;
    ASSERT_OK(test_process_run(argv, &process, &err), &err);
    return process;
}

static void end(struct test_process *process, int64_t limit_ms)
{
    struct err err;
    int status;
    ASSERT_OK(test_process_wait(process, limit_ms, &status, &err), &err);
    assert_int_equal(status, 0);
}

/* What a step cost beside its handler, in ms: the median of the p99 of half seconds. */
static double run_load(int number, int64_t run_ms)
{
    char rate[16], run[16], prefix[16];
    struct err err;
    (void)snprintf(rate, sizeof rate, "%d", SAGAS_PER_S);
    (void)snprintf(run, sizeof run, "%lld", (long long)run_ms);
    const char *const worker_argv[] = { NOOP_WORKER, "--target", one->address, NULL };
    const char *const load_argv[] = { LOAD,           "--target", one->address, "--definition",
                                      "bench",        "--unary",  "--calls",    "256",
                                      "--rate",       rate,       "--run-ms",   run,
                                      "--warm-up-ms", "2000",     NULL };
    struct test_process *worker = start(worker_argv), *load = start(load_argv);
    int away = 0;
    for (int64_t ms = 0; test_process_running(load) && ms < run_ms + WARM_UP_MS; ms += 1000) {
        (void)snprintf(prefix, sizeof prefix, "away%d-%d-", number, away++);
        rig_start_many(one, "away", prefix, AWAY, "");
        wait_ms(1000); /* it is the load's time that passes */
    }
    end(load, SOON);
    ASSERT_OK(test_process_signal(worker, SIGTERM, &err), &err);
    end(worker, SOON);
    double p99_ms = number_in(worker, "p99_window_ms");
    print_message("%d: %.0f sagas/s, p50 %.2f ms, p99 %.2f ms, p99 of windows %.2f ms\n", number,
                  number_in(load, "sagas_per_s"), number_in(worker, "p50_ms"),
                  number_in(worker, "p99_ms"), p99_ms);
    (void)test_process_free(load); /* always NULL */
    (void)test_process_free(worker);
    return p99_ms;
}

static int64_t table_scans(void)
{
    return rig_count(one, RIG_STORE,
                     "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN"
                     " ('saga', 'saga_key', 'journal')");
}

static int64_t index_scans(const char *index)
{
    return rig_count(one, RIG_STORE,
                     "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '%s'", index);
}

static void test_f1_p8_a_long_transaction_elsewhere_slows_nothing_down(void **state)
{
    (void)state;
    static const char *const indexes[] = { "saga_owner", "saga_wake", "saga_waiting" };
    PROVES("P8");
    bool full = test_is_full_size();
    int64_t scans[ARRAY_LEN(indexes)], run_ms = full ? 20000 : 1500;
    rig_define(one, "bench", NULL,
               "one: IDEMPOTENT handler=bench.one lease=30s | none\n"
               "two: IDEMPOTENT handler=bench.two lease=30s | none\n"
               "three: IDEMPOTENT handler=bench.three lease=30s | none");
    rig_define(one, "away", NULL, "a: IDEMPOTENT handler=away | none");
    (void)rig_worker(two, "away", "away:20"); /* the rig owns it */
    for (size_t i = 0; i < ARRAY_LEN(indexes); i++)
        scans[i] = index_scans(indexes[i]);
    int64_t tables = table_scans();
    double base_ms = run_load(0, run_ms);
    PGconn *holder = rig_connect(one, RIG_STORE);
    PQclear(PQexec(holder, "BEGIN ISOLATION LEVEL REPEATABLE READ"));
    PGresult *held = PQexec(holder, "SELECT count(*) FROM saga"); /* its snapshot, and a scan */
    assert_int_equal(PQresultStatus(held), PGRES_TUPLES_OK);
    PQclear(held);
    double held_ms = run_load(1, full ? 70000 : run_ms);
    assert_true(rig_count(one, RIG_STORE,
                          "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL"
                          " AND state = 'idle in transaction'") == 1);
    PQclear(PQexec(holder, "COMMIT"));
    PQfinish(holder);
    proof_fault("a snapshot held open under load", 1);
    double after_ms = run_load(2, run_ms);
    /* The only ones that looked at whole tables: the holder, once. */
    if (table_scans() > tables + 1)
        fail_msg("%lld scans of whole tables", (long long)(table_scans() - tables));
    for (size_t i = 0; i < ARRAY_LEN(indexes); i++)
        assert_true(index_scans(indexes[i]) > scans[i]);
    rig_await(one, RIG_STORE, "0", SOON, "SELECT count(*) FROM saga WHERE state <> 'SUCCEEDED'");
    int64_t away_ms = rig_count(one, RIG_STORE,
                                "SELECT extract(epoch FROM max(ended_at - started_at)) * 1000"
                                " FROM saga WHERE definition = 'away'");
    assert_true(away_ms <= AWAY_MAX_MS);
    print_message("let go and adopted within %lld ms\n", (long long)away_ms);
    if (!full)
        return;
    assert_true(held_ms <= 3 * base_ms);
    assert_true(after_ms <= 3 * base_ms);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_f1_p8_a_long_transaction_elsewhere_slows_nothing_down),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
