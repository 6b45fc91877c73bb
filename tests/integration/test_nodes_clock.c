/* L5: servers whose clocks are wrong, one by two minutes ahead, one by two minutes behind. Goal: a
 * lease, a deadline and a back-off end by the database's clock, whoever judges. Method: another
 * wall clock for both sagads; leases that nobody reports at each of them; the journal's times. */
#include "base/clock.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/wait.h"

#include <stdio.h>
#include <time.h>

enum { SOON = 10000, EACH = 8, LEASE_MS = 10000, SCAN_MS = 1000, BUSY_MS = 1500, OFF_S = 120 };
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE

static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1];

static void use_clock(struct rig *rig, int off_s, const char *envs[4], char texts[2][512])
{
    const char *options = getenv("ASAN_OPTIONS");
    (void)snprintf(texts[0], sizeof texts[0], "WRONG_CLOCK_S=%d", off_s);
    /* What is preloaded stands before the sanitizer's library, which it minds unless told. */
    (void)snprintf(texts[1], sizeof texts[1], "ASAN_OPTIONS=%s%sverify_asan_link_order=0",
                   options ? options : "", options ? ":" : "");
    envs[0] = texts[0];
    envs[1] = texts[1];
    envs[2] = "LD_PRELOAD=" WRONG_CLOCK;
    rig->server_env = envs;
}

static int setup(void **state)
{
    (void)state;
    static const char *envs[2][4];
    static char texts[2][2][512];
    use_clock(one, OFF_S, envs[0], texts[0]);
    use_clock(two, -OFF_S, envs[1], texts[1]);
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

/* How much its clock is ahead, by the first line of its log. */
static double ahead_s(struct rig *rig)
{
    CLEANUP(mem_free_p) char *log = test_process_output(rig->sagad);
    struct tm tm = { 0 };
    assert_non_null(log);
    assert_non_null(strptime(log, "%Y-%m-%dT%H:%M:%S", &tm));
    return difftime(timegm(&tm), time(NULL));
}

/* Every lease has run out and was granted again; `extended` of them lived longer. */
static void assert_ends(const char *prefix, int64_t count, int64_t extended)
{
    static const char leases[] =
        "FROM journal j JOIN saga s USING (shard, saga_uid) WHERE s.definition = 'l5'"
        " AND s.saga_id LIKE '%s%%' AND kind = 'LEASE' AND try = 1 AND";
    char text[512];
    (void)snprintf(text, sizeof text, leases, prefix);
    assert_int_equal(rig_count(one, RIG_STORE, "SELECT count(*) %s outcome = 'EXPIRED'", text),
                     count);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) %s lease_until = leased_at + interval '10 s'",
                               text),
                     count - extended);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) %s (finished_at < lease_until OR"
                               " lease_until < leased_at + interval '10 s')",
                               text),
                     0);
    int64_t late_ms = rig_count(one, RIG_STORE,
                                "SELECT extract(epoch FROM max(finished_at - lease_until)) * 1000"
                                " %s true",
                                text);
    if (late_ms > SCAN_MS + BUSY_MS)
        fail_msg("a lease ended %lld ms late", (long long)late_ms);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal n JOIN journal j"
                               " USING (shard, saga_uid) JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.saga_id LIKE '%s%%' AND n.try = 2 AND j.try = 1"
                               " AND n.leased_at < j.lease_until",
                               prefix),
                     0);
    print_message("%s: leases ended at most %lld ms late\n", prefix, (long long)late_ms);
}

static void hold(struct raw_worker *worker, struct raw_lease ret_leases[EACH])
{
    raw_worker_credit(worker, "l5", EACH);
    for (int i = 0; i < EACH; i++) {
        const Saga__V1__Task *task = raw_worker_task(worker, LEASE_MS + SOON);
        assert_non_null(task);
        ret_leases[i] = raw_lease_of(task);
    }
}

/* Leases at each node that run out, half of them later, and are granted again there: to another
 * worker, since one that let a lease run out is passed over until it speaks. */
static void cycle(int number)
{
    static struct raw_lease leases[2][EACH];
    struct raw_worker *silent[2], *next[2];
    char prefixes[2][24];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(prefixes[i], sizeof prefixes[i], "%s%d-", i ? "behind" : "ahead", number);
        silent[i] = raw_worker_hello(nodes.at[i].address, "silent", NULL, "l5", NULL, 0);
        next[i] = raw_worker_hello(nodes.at[i].address, "next", NULL, "l5", NULL, 0);
        rig_start_many(&nodes.at[i], "l5", prefixes[i], EACH, "");
        hold(silent[i], leases[i]);
    }
    wait_ms(LEASE_MS / 4);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < EACH / 2; j++) {
            raw_worker_extend(silent[i], &leases[i][j]);
            assert_true(raw_worker_extended(silent[i], SOON) > 0);
        }
    for (int i = 0; i < 2; i++) {
        hold(next[i], leases[i]);
        for (int j = 0; j < EACH; j++)
            assert_int_equal(raw_worker_settle(next[i], &leases[i][j], DONE, ""), ACCEPTED);
        silent[i] = raw_worker_cut(silent[i]);
        next[i] = raw_worker_cut(next[i]);
    }
    for (int i = 0; i < 2; i++)
        assert_ends(prefixes[i], EACH, EACH / 2);
}

static void test_l5_p3_leases_end_by_the_databases_clock_whatever_the_servers_say(void **state)
{
    (void)state;
    PROVES("P3 P8");
    int64_t until = clock_mono_ms(&clock_system) + (test_is_full_size() ? 600000 : 0);
    assert_true(ahead_s(one) > OFF_S - 30 && ahead_s(two) < 30 - OFF_S);
    rig_define(one, "l5", NULL, "a: IDEMPOTENT handler=l5 lease=10s | none");
    rig_define(one, "l5_dead", "deadline=3s", "a: IDEMPOTENT handler=nobody | none");
    rig_define(one, "l5_back", NULL, "a: IDEMPOTENT | none");
    (void)rig_worker(one, "w1", "act:4"); /* the rigs own them */
    (void)rig_worker(two, "w2", "act:4");
    rig_start(one, "l5_dead", "dead-ahead", "");
    rig_start(two, "l5_dead", "dead-behind", "");
    rig_start(one, "l5_back", "back-ahead", "a A 1 after=2000 retry");
    rig_start(two, "l5_back", "back-behind", "a A 1 after=2000 retry");
    int number = 0;
    do
        cycle(number++);
    while (clock_mono_ms(&clock_system) < until);
    for (int i = 0; i < 2; i++) {
        CLEANUP(mem_free_p) char *log = test_process_output(nodes.at[i].sagad);
        assert_int_equal(rig_counter(&nodes.at[i], "nodes_alive"), 2);
        assert_non_null(log);
        assert_null(strstr(log, "taken for dead"));
    }
    rig_await_states(one, "l5_back", "back-", "SUCCEEDED", 2, 100);
    rig_await_states(one, "l5_dead", "dead-", "COMPENSATED", 2, 100);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'l5_dead' AND kind = 'COMPENSATE' AND"
                               " finished_at BETWEEN deadline_at AND deadline_at"
                               " + interval '2.5 s'"),
                     2);
    proof_fault("servers' clocks two minutes ahead and behind", number);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_l5_p3_leases_end_by_the_databases_clock_whatever_the_servers_say),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
