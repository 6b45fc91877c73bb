/* Several sagads on one database. Goal: whichever of them dies or stands still, also in the middle
 * of an adoption, nothing acknowledged is lost, nothing is done twice, the others go on. Method:
 * load at all of them; one dies inside an adoption (verified), one is stopped for twice the lease;
 * then a seeded storm of kills, stops and ended sessions. Outside books judge. */
#include "base/clock.h"
#include "base/rng.h"
#include "load.h"
#include "page.h"
#include "proxy.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum { LEASE_MS = 5000, SLOTS = 6, DIE_MS = 30000, REST_MS = 90000 };

static const char *const names[NODES_MAX] = { "one", "two", "three" };
static const char *const times[] = { "--heartbeat",    "0.2s", "--node-dead",   "2s",
                                     "--resend-grace", "1s",   "--stream-lost", "1s" };
static struct nodes nodes;
static struct proxy *proxy; /* between all of them and PostgreSQL */
static char database[POSTGRES_CONNINFO_SIZE];
static struct rig *const store = &nodes.at[0]; /* for SQL */
static char variables[NODES_MAX][SCRATCH_PATH_SIZE + 32];
static const char *environments[NODES_MAX][2];
static struct page *pages[NODES_MAX];
static const char *addresses[NODES_MAX + 1];
static struct rng rng;

static int node_prepare(int i)
{
    struct err err;
    struct rig *rig = &nodes.at[i];
    char path[SCRATCH_PATH_SIZE];
    SETUP_OK(scratch_path("faults", path, &err), &err);
    (void)snprintf(variables[i], sizeof variables[i], FAULT_PAGE_ENV "=%s", path);
    environments[i][0] = variables[i];
    for (size_t n = 0; n < ARRAY_LEN(times); n++)
        rig->server_args[n] = times[n];
    rig->node = names[i];
    rig->server_program = SAGAD_FAULT_BINARY;
    rig->server_env = environments[i];
    rig->server_database = database;
    pages[i] = page_map(path, true);
    return pages[i] ? 0 : -1;
}

static int setup(void **state)
{
    (void)state;
    struct err err;
    rng_seed(&rng, proof_seed());
    for (int i = 0; i < NODES_MAX; i++)
        if (node_prepare(i) != 0)
            return -1;
    if (rig_databases_up(store) != 0)
        return -1;
    SETUP_OK(proxy_start(test_postgres_port(store->postgres), rng_next(&rng), &proxy, &err), &err);
    (void)snprintf(database, sizeof database,
                   "host=127.0.0.1 port=%d dbname=store user=postgres sslmode=disable"
                   " gssencmode=disable",
                   proxy_port(proxy));
    for (int i = 0; i < NODES_MAX; i++) {
        if ((i == 0 ? rig_server_up(store) : rig_node_up(&nodes.at[i], store)) != 0)
            return -1;
        nodes.count = (size_t)i + 1;
        addresses[i] = nodes.at[i].address;
    }
    load_define(store);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int rc = nodes_down(&nodes);
    proxy = proxy_free(proxy);
    return rc;
}

static int check(void **state)
{
    (void)state;
    if (proxy_stray_commits(proxy) != 0) {
        print_error("a COMMIT was sent in a session that had not begun its transaction\n");
        return -1;
    }
    return nodes_check(&nodes);
}

/* One at each pair of nodes; each handler at all nodes. */
static void workers(void)
{
    (void)nodes_worker(&nodes, 0, 1, "one", "act:6 undo:4"); /* the rigs own them */
    (void)nodes_worker(&nodes, 1, 2, "two", "act:6 undo:4");
    (void)nodes_worker(&nodes, 2, 0, "three", "act:6 undo:4");
}

/* Tasks that had not begun when their node died or stood still: nobody knows that, so what may not
 * be repeated is parked. */
static void judge(struct load *load, int parked_max)
{
    (void)load_judge(load, parked_max, REST_MS);
    assert_int_equal(rig_count(store, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE state = 'PARKED'"
                               " AND (park_reason <> 'OUTCOME_UNKNOWN' OR park_step <> 'b')"),
                     0);
}

static void await_acked(const struct load *load, int count)
{
    int64_t until = clock_mono_ms(&clock_system) + REST_MS;
    while (load_acked(load) < count) {
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("%d starts acknowledged, not %d", load_acked(load), count);
        wait_ms(1);
    }
}

/* --- inside an adoption ----------------------------------------------------------------------- */

static void test_p2_p8_a_crash_inside_an_adoption(void **state)
{
    (void)state;
    PROVES("P1 P2 P3 P8");
    const char *const first_then_third[] = { addresses[0], addresses[2], NULL };
    for (int round = 0; round < (test_is_full_size() ? 15 : 1); round++) {
        struct err err;
        int status;
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "adoption%d-", round);
        workers();
        rig_server_kill(&nodes.at[2]); /* so that it is the second node that adopts */
        struct load *load = load_start_at(store, first_then_third, LOAD_BANK_LIVES, prefix, 120);
        await_acked(load, 40 + (int)rng_below(&rng, 40));
        rig_server_kill(&nodes.at[0]);
        rig_await(&nodes.at[1], RIG_STORE, "t", DIE_MS,
                  "SELECT clock_timestamp() - heartbeat_at > interval '%d ms' FROM node"
                  " WHERE name = 'one'",
                  NODES_DEAD_MS);
        int64_t open = rig_count(&nodes.at[1], RIG_STORE,
                                 "SELECT count(*) FROM saga WHERE owner = 'one' AND state IN"
                                 " ('RUNNING', 'COMPENSATING')");
        page_arm(pages[1], PAGE_INSIDE_ADOPTION, 1);
        ASSERT_OK(test_process_wait(nodes.at[1].sagad, DIE_MS, &status, &err), &err);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
        assert_int_equal(page_hits(pages[1], PAGE_INSIDE_ADOPTION), round + 1);
        nodes.at[1].sagad = test_process_free(nodes.at[1].sagad);
        /* What was not committed did not happen. */
        assert_true(open > 0);
        assert_int_equal(rig_count(&nodes.at[1], RIG_STORE,
                                   "SELECT count(*) FROM saga WHERE owner = 'one' AND state IN"
                                   " ('RUNNING', 'COMPENSATING')"),
                         open);
        rig_server_start(&nodes.at[2]); /* the only one now: it adopts from both */
        judge(load, 3 * SLOTS);
        proof_fault("kill -9 inside_adoption", 1);
        assert_int_equal(nodes_check(&nodes), 0);
    }
}

/* --- standing still --------------------------------------------------------------------------- */

static void test_p3_p4_p8_a_sagad_stands_still_for_twice_the_lease_beside_others(void **state)
{
    (void)state;
    PROVES("P1 P3 P4 P5 P8");
    for (int round = 0; round < (test_is_full_size() ? 8 : 1); round++) {
        struct err err;
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "still%d-", round);
        workers();
        struct load *load = load_start_at(store, addresses, LOAD_BANK_LIVES, prefix, 250);
        await_acked(load, 40 + (int)rng_below(&rng, 40));
        ASSERT_OK(test_process_signal(nodes.at[0].sagad, SIGSTOP, &err), &err);
        wait_ms(2 * LEASE_MS + 500);
        int64_t adopted = rig_count(&nodes.at[1], RIG_STORE,
                                    "SELECT count(*) FROM saga WHERE starts_with(saga_id, '%s')"
                                    " AND owner IS DISTINCT FROM 'one'",
                                    prefix);
        assert_true(adopted > 0);
        ASSERT_OK(test_process_signal(nodes.at[0].sagad, SIGCONT, &err), &err);
        judge(load, 3 * SLOTS);
        proof_fault("SIGSTOP of a sagad beside others", 1);
        assert_int_equal(nodes_check(&nodes), 0);
    }
}

/* --- storm ------------------------------------------------------------------------------------ */

enum strike { STRIKE_KILL, STRIKE_STILL, STRIKE_SESSIONS, STRIKE_STOP, STRIKE_COUNT };
static const char *const strike_names[STRIKE_COUNT] = {
    [STRIKE_KILL] = "storm: kill -9 of a sagad",
    [STRIKE_STILL] = "storm: SIGSTOP of a sagad",
    [STRIKE_SESSIONS] = "storm: a session of sagad ended",
    [STRIKE_STOP] = "storm: stop of a sagad",
};

static void strike(enum strike kind)
{
    struct err err;
    struct rig *rig = &nodes.at[rng_below(&rng, NODES_MAX)];
    int64_t count = 1, pause = (int64_t)rng_below(&rng, 3000); /* the others adopt, or not yet */
    switch (kind) {
    case STRIKE_KILL:
        rig_server_kill(rig);
        wait_ms(pause);
        rig_server_start(rig);
        break;
    case STRIKE_STILL:
        ASSERT_OK(test_process_signal(rig->sagad, SIGSTOP, &err), &err);
        wait_ms(pause);
        ASSERT_OK(test_process_signal(rig->sagad, SIGCONT, &err), &err);
        break;
    case STRIKE_SESSIONS:
        count = rig_count(store, RIG_STORE,
                          "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                          " WHERE application_name = 'sagad engine'");
        break;
    default:
        (void)rig_server_stop(rig, DIE_MS); /* how long that took is no matter here */
        rig_server_start(rig);
        break;
    }
    proof_fault(strike_names[kind], count);
    wait_ms((int64_t)rng_below(&rng, 500));
}

/* Each kind once, in a random order. */
static void strike_all(void)
{
    enum strike kinds[STRIKE_COUNT] = { STRIKE_KILL, STRIKE_STILL, STRIKE_SESSIONS, STRIKE_STOP };
    for (size_t left = STRIKE_COUNT; left > 0; left--) {
        size_t i = rng_below(&rng, left);
        strike(kinds[i]);
        kinds[i] = kinds[left - 1];
    }
}

static const struct {
    enum proxy_fault fault;
    const char *name;
} cuts[] = {
    { PROXY_CUT_BEFORE_COMMIT, "storm: connection cut before COMMIT arrived" },
    { PROXY_CUT_AFTER_COMMIT, "storm: connection cut after COMMIT" },
};

/* Of a thousand COMMITs. */
static void cut_connections(int per_mille)
{
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++)
        proxy_chance(proxy, cuts[i].fault, per_mille);
}

static void test_p1_p2_p3_p4_p5_p8_a_storm_over_three_sagads(void **state)
{
    (void)state;
    PROVES("P1 P2 P3 P4 P5 P8");
    int64_t until = clock_mono_ms(&clock_system) + (test_is_full_size() ? 180000 : 8000);
    int count = test_is_full_size() ? 4000 : 400;
    workers();
    struct load *load = load_start_at(store, addresses, LOAD_BANK_LIVES, "storm-", count);
    cut_connections(8);
    do
        strike_all();
    while (clock_mono_ms(&clock_system) < until);
    cut_connections(0);
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++)
        proof_fault(cuts[i].name, proxy_hits(proxy, cuts[i].fault));
    judge(load, count / 10);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p2_p8_a_crash_inside_an_adoption),
        TEST(test_p3_p4_p8_a_sagad_stands_still_for_twice_the_lease_beside_others),
        TEST(test_p1_p2_p3_p4_p5_p8_a_storm_over_three_sagads),
    };
    for (int i = 0; i < STRIKE_COUNT; i++)
        proof_fault(strike_names[i], 0);
    proof_fault("kill -9 inside_adoption", 0);
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
