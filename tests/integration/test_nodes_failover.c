/* Several sagads on one database, of which one dies, stops, leaves or is replaced. Goal: the others
 * go on with its sagas, by themselves and soon, and nothing runs twice that may not. Method: sagas
 * in every kind of waiting at one node, kill -9, SIGSTOP for twice the lease, SIGTERM, a second
 * process under its name. */
#include "base/clock.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum { SOON = 10000, LEASE_MS = 5000, LATE_MS = 1500, SETTLE_MS = 60000 };

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

static void await_open_leases(const char *definition, int count)
{
    char expected[16];
    (void)snprintf(expected, sizeof expected, "%d", count);
    rig_await(one, RIG_STORE, expected, SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = '%s' AND outcome IS NULL AND kind = 'LEASE'",
              definition);
}

static void await_outcomes(const char *prefix, const char *outcome, int count)
{
    char expected[16];
    (void)snprintf(expected, sizeof expected, "%d", count);
    rig_await(one, RIG_STORE, expected, SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id LIKE '%s%%' AND outcome = '%s'",
              prefix, outcome);
}

/* Of what is open of a definition, this node owns all. */
static void await_owned_by(const struct rig *owner, const char *definition, int64_t limit_ms)
{
    rig_await(two, RIG_STORE, "0", limit_ms,
              "SELECT count(*) FROM saga WHERE definition = '%s' AND owner IS DISTINCT FROM '%s'"
              " AND state IN ('RUNNING', 'COMPENSATING', 'PARKED')",
              definition, owner->node);
}

/* --- kill -9 ---------------------------------------------------------------------------------- */

static void test_p8_a_killed_nodes_sagas_are_adopted_and_go_on_whatever_they_wait_for(void **state)
{
    (void)state;
    enum { EACH = 16 }; /* as many as threads of a worker */
    PROVES("P3 P4 P8");
    rig_define(one, "kill", NULL, "a: IDEMPOTENT handler=kill | IDEMPOTENT");
    rig_define(one, "kill_safe", NULL, "a: IDEMPOTENT handler=kill_safe lease=5s | none");
    rig_define(one, "kill_once", NULL, "a: ONCE handler=kill_once lease=5s | none");
    rig_define(one, "kill_runs", NULL, "a: ONCE handler=kill_runs lease=5s | none");
    rig_define(one, "kill_dead", "deadline=4s", "a: IDEMPOTENT handler=nobody | none");
    /* Workers that die with the node, one that lives and knows both, one at the other node. */
    struct test_process *mortal = rig_worker(one, "mortal", "kill:50 kill_safe:50 kill_once:50");
    (void)nodes_worker(&nodes, 0, 1, "both", "kill_runs:50"); /* the rigs own them */
    (void)rig_worker(two, "other", "kill:50 kill_safe:50 kill_once:50");
    rig_start_many(one, "kill", "kill-backoff", EACH, "a A 1 after=1000 retry");
    rig_start_many(one, "kill_safe", "kill-safe", EACH, "a A 1 hang");
    rig_start_many(one, "kill_once", "kill-once", EACH, "a A 1 hang");
    rig_start_many(one, "kill_runs", "kill-runs", EACH, "a A 1 sleep=5500 effect");
    rig_start_many(one, "kill_dead", "kill-dead", EACH, "");
    await_outcomes("kill-backoff", "RETRY", EACH);
    await_open_leases("kill_safe", EACH);
    await_open_leases("kill_once", EACH);
    await_open_leases("kill_runs", EACH);
    int64_t adopted = rig_counter(two, "sagas_adopted");
    rig_worker_kill(one, mortal);
    rig_server_kill(one);
    int64_t killed = clock_mono_ms(&clock_system);
    proof_fault("kill -9 of one of several nodes", 1);
    await_owned_by(two, "kill_once", NODES_TAKEN_MS);
    await_owned_by(two, "kill_safe", 500);
    rig_await_states(two, "kill", "kill-backoff", "SUCCEEDED", EACH, NODES_TAKEN_MS);
    int64_t took = clock_mono_ms(&clock_system) - killed;
    assert_true(took <= NODES_TAKEN_MS + LATE_MS);
    rig_await_states(two, "kill_dead", "kill-dead", "COMPENSATED", EACH, NODES_TAKEN_MS);
    /* Leases end when they are over, and not before their workers had time to come. */
    int64_t over = killed + LEASE_MS + NODES_DEAD_MS + NODES_GRACE_MS + 2 * LATE_MS;
    rig_await_states(two, "kill_safe", "kill-safe", "SUCCEEDED", EACH,
                     over - clock_mono_ms(&clock_system));
    rig_await_states(two, "kill_once", "kill-once", "PARKED OUTCOME_UNKNOWN", EACH, LATE_MS);
    /* Whose worker lives comes to the other node, and is the one that holds it. */
    rig_await_states(two, "kill_runs", "kill-runs", "SUCCEEDED", EACH, SOON);
    rig_assert_journal(two, "kill_runs", "kill-runs1", "a.1 DONE");
    rig_assert_journal(two, "kill_safe", "kill-safe1", "a.1 EXPIRED, a.2 DONE");
    rig_assert_journal(two, "kill_once", "kill-once1", "a.1 EXPIRED, PARK OUTCOME_UNKNOWN");
    assert_true(rig_counter(two, "sagas_adopted") >= adopted + 3 * EACH);
    print_message("taken over and gone on after %lld ms\n", (long long)took);
}

static void test_p2_p8_a_kill_under_load_loses_and_doubles_nothing(void **state)
{
    (void)state;
    PROVES("P1 P2 P8");
    enum { AT_WORK = 24 }; /* what both workers take */
    int count = test_is_full_size() ? 3000 : 150, rounds = test_is_full_size() ? 12 : 2;
    char total[16];
    rig_define(one, "load", NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: ONCE | IDEMPOTENT\n"
               "c: IDEMPOTENT | IDEMPOTENT | guarded");
    (void)nodes_worker(&nodes, 0, 1, "w1", "act:12 undo:12"); /* the rigs own them */
    (void)nodes_worker(&nodes, 1, 0, "w2", "act:12 undo:12");
    rig_start_many(one, "load", "load1-", count, "b A 1 sleep=20 effect\n* * * sleep=20 guarded");
    rig_start_many(two, "load", "load2-", count, "c A * rejected\n* * * guarded");
    for (int i = 1; i <= rounds; i++) {
        struct rig *victim = i % 2 ? one : two;
        int64_t until = clock_mono_ms(&clock_system) + SETTLE_MS;
        while (rig_count(one, RIG_BANK, "SELECT count(*) FROM effects") <
                   (int64_t)count * 3 * i / (rounds + 1) &&
               clock_mono_ms(&clock_system) < until)
            wait_ms(20);
        rig_server_kill(victim);
        proof_fault("kill -9 of one of several nodes", 1);
        wait_ms(300);
        rig_server_start(victim);
    }
    (void)snprintf(total, sizeof total, "%d", 2 * count);
    rig_await(one, RIG_STORE, total, SETTLE_MS * (test_is_full_size() ? 5 : 1),
              "SELECT count(*) FROM saga WHERE definition = 'load' AND (state ="
              " CASE WHEN saga_id LIKE 'load1-%%' THEN 'SUCCEEDED' ELSE 'COMPENSATED' END"
              " OR park_reason = 'OUTCOME_UNKNOWN')");
    /* The workers lived, and reported elsewhere. Unknown is only what was lost on its way to them:
     * b may not be repeated. */
    int64_t parked = rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE definition = 'load'"
                               " AND state = 'PARKED' AND park_step = 'b'");
    assert_int_equal(
        rig_count(one, RIG_STORE,
                  "SELECT count(*) FROM saga WHERE definition = 'load' AND state = 'PARKED'"),
        parked);
    assert_true(parked <= (int64_t)rounds * AT_WORK);
    assert_int_equal(rig_count(one, RIG_BANK,
                               "SELECT count(*) FROM (SELECT 1 FROM calls WHERE step = 'b'"
                               " AND operation = 'A' AND saga_id LIKE 'load%%' GROUP BY saga_id"
                               " HAVING count(*) > 1) x"),
                     0);
    assert_int_equal(rig_count(one, RIG_BANK,
                               "SELECT count(*) FROM (SELECT 1 FROM effects WHERE saga_id LIKE"
                               " 'load1-%%' GROUP BY saga_id HAVING count(*) = 3) x"),
                     rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE saga_id LIKE 'load1-%%'"
                               " AND state = 'SUCCEEDED'"));
    print_message("%lld parked\n", (long long)parked);
}

/* --- SIGSTOP ---------------------------------------------------------------------------------- */

/* How often a ONCE step was handed out: distinct fences that workers saw. */
static void assert_called_at_most_once(const char *prefix)
{
    assert_int_equal(rig_count(one, RIG_BANK,
                               "SELECT count(*) FROM (SELECT 1 FROM calls WHERE step = 'once'"
                               " AND operation = 'A' AND saga_id LIKE '%s%%' GROUP BY saga_id"
                               " HAVING count(*) > 1) x",
                               prefix),
                     0);
}

static void test_p3_p4_a_node_that_stood_still_for_twice_the_lease_decides_nothing_old(void **state)
{
    (void)state;
    enum { EACH = 15 };
    PROVES("P3 P4 P5 P8");
    struct err err;
    rig_define(one, "still", NULL,
               "a: IDEMPOTENT handler=still | IDEMPOTENT handler=still | guarded\n"
               "once: ONCE handler=still lease=5s | IDEMPOTENT handler=still | settle=0s\n"
               "c: IDEMPOTENT handler=still | IDEMPOTENT handler=still | guarded");
    rig_define(one, "still_safe", NULL,
               "a: IDEMPOTENT handler=still lease=5s | IDEMPOTENT handler=still | guarded\n"
               "c: IDEMPOTENT handler=still | IDEMPOTENT handler=still | guarded");
    (void)rig_worker_threads(one, "first", "still:45", 45); /* the rigs own them */
    (void)rig_worker_threads(two, "second", "still:45", 45);
    rig_start_many(one, "still", "still-once", EACH,
                   "once A 1 sleep=3000 effect\nonce * * effect\n* * * guarded");
    rig_start_many(one, "still_safe", "still-safe", EACH,
                   "a A 1 sleep=3000 guarded\n* * * guarded");
    rig_start_many(one, "still", "still-wait", EACH,
                   "a A 1 after=1500 retry\nonce * * effect\n* * * guarded");
    rig_await(one, RIG_BANK, "30", SOON,
              "SELECT count(*) FROM calls WHERE saga_id LIKE 'still-%%' AND try = 1"
              " AND (step = 'once' OR definition = 'still_safe') AND ended_at IS NULL");
    rig_worker_signal(one->sagad, SIGSTOP);
    int64_t stopped = clock_mono_ms(&clock_system);
    proof_fault("SIGSTOP of one of several nodes for twice the lease", 1);
    await_owned_by(two, "still", NODES_TAKEN_MS);
    /* What waited goes on at the other node; what was held there may have happened. */
    rig_await_states(two, "still", "still-wait", "SUCCEEDED", EACH, SOON);
    rig_await_states(two, "still_safe", "still-safe", "SUCCEEDED", EACH, SOON);
    rig_await_states(two, "still", "still-once", "PARKED OUTCOME_UNKNOWN", EACH, SOON);
    while (clock_mono_ms(&clock_system) < stopped + 2 * LEASE_MS)
        wait_ms(50);
    rig_worker_signal(one->sagad, SIGCONT);
    ASSERT_OK(test_process_wait_output(one->sagad, "taken for dead", SOON, NULL, 0, &err), &err);
    /* The reports that waited in its sockets are late, and settle what was unknown. */
    rig_await_states(one, "still", "still-once", "SUCCEEDED", EACH, 2 * SOON);
    assert_called_at_most_once("still-");
    assert_int_equal(rig_count(one, RIG_BANK,
                               "SELECT count(*) FROM (SELECT 1 FROM effects WHERE saga_id LIKE"
                               " 'still-%%' GROUP BY saga_id, step, operation"
                               " HAVING count(*) > 1) x"),
                     0);
    /* It is a full member again. */
    rig_start(one, "still", "still-after", "* * * guarded");
    rig_await_state(one, "still", "still-after", "SUCCEEDED", SOON);
}

/* --- SIGTERM ---------------------------------------------------------------------------------- */

static void test_p8_an_ordered_stop_hands_over_at_once(void **state)
{
    (void)state;
    enum { SAGAS = 50 };
    PROVES("P8");
    /* The others would take it for dead only after a minute. */
    for (size_t i = 0; two->server_args[i]; i++)
        if (strcmp(two->server_args[i], "--node-dead") == 0)
            two->server_args[i + 1] = "60s";
    rig_server_kill(two);
    rig_server_start(two);
    rig_define(one, "term", NULL, "a: IDEMPOTENT handler=term | none");
    (void)rig_worker(one, "t1", "term:60"); /* the rigs own them */
    (void)rig_worker(two, "t2", "term:60");
    rig_start_many(one, "term", "term-", SAGAS, "a A 1 after=1000 retry");
    await_outcomes("term-", "RETRY", SAGAS);
    (void)rig_server_stop(one, SOON);
    await_owned_by(two, "term", NODES_ADOPT_MS + LATE_MS);
    rig_await_states(two, "term", "term-", "SUCCEEDED", SAGAS, SOON);
    for (size_t i = 0; two->server_args[i]; i++)
        if (strcmp(two->server_args[i], "60s") == 0)
            two->server_args[i] = "2s";
    rig_server_kill(two);
}

/* --- two under one name ----------------------------------------------------------------------- */

static void test_the_process_that_joined_last_has_the_name_and_the_other_one_ends(void **state)
{
    (void)state;
    enum { SAGAS = 30 };
    PROVES("P8");
    struct err err;
    int status;
    static struct rig twin = { .node = "one" };
    memcpy(twin.server_args, one->server_args, sizeof twin.server_args);
    rig_define(one, "twin", NULL, "a: IDEMPOTENT handler=twin | none");
    (void)rig_worker(one, "w1", "twin:60"); /* the rigs own them */
    rig_start_many(one, "twin", "twin-", SAGAS, "a A 1 after=2500 retry");
    await_outcomes("twin-", "RETRY", SAGAS);
    assert_int_equal(rig_node_up(&twin, one), 0);
    ASSERT_OK(test_process_wait(one->sagad, SOON, &status, &err), &err);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    char *output = test_process_output(one->sagad);
    assert_non_null(strstr(output, "another process serves under this node's name"));
    mem_free(output);
    (void)rig_worker(&twin, "w2", "twin:60");
    rig_await_states(&twin, "twin", "twin-", "SUCCEEDED", SAGAS, SOON);
    one->sagad = test_process_free(one->sagad);
    assert_true(test_process_running(twin.sagad));
    (void)rig_server_stop(&twin, SOON);
    assert_int_equal(rig_node_down(&twin), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p8_a_killed_nodes_sagas_are_adopted_and_go_on_whatever_they_wait_for),
        TEST(test_p2_p8_a_kill_under_load_loses_and_doubles_nothing),
        TEST(test_p3_p4_a_node_that_stood_still_for_twice_the_lease_decides_nothing_old),
        TEST(test_p8_an_ordered_stop_hands_over_at_once),
        TEST(test_the_process_that_joined_last_has_the_name_and_the_other_one_ends),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
