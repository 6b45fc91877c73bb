/* More sagas than memory. Goal: a backlog costs disk and no memory, what left memory acts when its
 * time has come, and a start finds a server that serves while it loads. Method: thousands of sagas
 * that nobody serves, sagad with room for a hundred, kill and start. */
#include "base/clock.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/wait.h"

#include <stdio.h>

enum {
    SOON = 10000,
    ROOM = 100,        /* resident-sagas-max */
    AT_ONCE = 512 + 64 /* beside them: what one batch brings, and what it loads */
};

static const char *const little[] = { "--resident-sagas-max", "100", NULL };
static struct nodes nodes;
static struct rig *const one = &nodes.at[0];

static int setup(void **state)
{
    (void)state;
    return nodes_up(&nodes, 1, little);
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

/* Most that were in memory while `count` sagas with this prefix came to this state. */
static int64_t most_resident_until(const char *prefix, const char *state, int64_t count,
                                   int64_t limit_ms)
{
    int64_t until = clock_mono_ms(&clock_system) + limit_ms, most = 0, done = 0;
    while (done < count) {
        int64_t resident = rig_counter(one, "sagas_resident");
        most = resident > most ? resident : most;
        done = rig_count(one, RIG_STORE,
                         "SELECT count(*) FROM saga WHERE saga_id LIKE '%s%%' AND state = '%s'",
                         prefix, state);
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("%lld of %lld %s* are %s", (long long)done, (long long)count, prefix, state);
        wait_ms(20);
    }
    return most;
}

static int64_t resident_now(void)
{
    return rig_counter(one, "sagas_resident");
}

static bool is_within_room(void *ctx)
{
    (void)ctx;
    return resident_now() <= ROOM;
}

static void test_p8_a_backlog_costs_disk_and_no_memory(void **state)
{
    (void)state;
    PROVES("P1 P8");
    int count = test_is_full_size() ? 10000 : 2000;
    char waiting[16];
    rig_define(one, "backlog", NULL, "a: IDEMPOTENT handler=later | none\nb: ONCE | none");
    rig_start_many(one, "backlog", "backlog", count, "");
    assert_true(wait_until(is_within_room, NULL, SOON));
    /* What is in memory has no hint: it is somebody's. */
    (void)snprintf(waiting, sizeof waiting, "%d", count);
    rig_await(one, RIG_STORE, waiting, SOON,
              "SELECT count(*) FROM saga WHERE definition = 'backlog' AND"
              " (owner IS NOT NULL OR waiting_handler = 'later')");
    assert_true(rig_count(one, RIG_STORE,
                          "SELECT count(*) FROM saga WHERE definition = 'backlog'"
                          " AND owner IS NULL") >= count - ROOM);
    (void)rig_worker_threads(one, "w", "later:20 act:20", 16); /* the rig owns it */
    int64_t most = most_resident_until("backlog", "SUCCEEDED", count, count * 10 + SOON);
    assert_true(most <= ROOM + AT_ONCE);
    assert_int_equal(
        rig_count(one, RIG_BANK, "SELECT count(*) FROM calls WHERE definition = 'backlog'"),
        2 * count);
    /* Nothing else is kept out by a backlog that nobody serves. */
    rig_define(one, "idle", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start_many(one, "idle", "idle", count, "");
    rig_start(one, "backlog", "after", "");
    rig_await_state(one, "backlog", "after", "SUCCEEDED", SOON);
    print_message("%d sagas, at most %lld in memory\n", count, (long long)most);
}

static void test_p8_what_left_memory_acts_when_its_time_has_come(void **state)
{
    (void)state;
    enum { FAR_MS = 7000, LATE_MS = 4000 };
    PROVES("P8");
    int count = test_is_full_size() ? 3000 : 600;
    rig_define(one, "deadline", "deadline=7s",
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT handler=nobody | none");
    rig_define(one, "back", NULL, "a: IDEMPOTENT initial=7s | none");
    rig_define(one, "unstarted", NULL,
               "a: IDEMPOTENT handler=nobody start_timeout=7s on_exhausted=COMPENSATE | none");
    (void)rig_worker_threads(one, "w", "act:40 undo:40", 40); /* the rig owns it */
    rig_start_many(one, "deadline", "deadline", count, "");
    rig_start_many(one, "back", "back", count, "a A 1 after=7000 retry");
    rig_start_many(one, "unstarted", "unstarted", count, "");
    assert_true(wait_until(is_within_room, NULL, SOON));
    int64_t away = rig_count(one, RIG_STORE,
                             "SELECT count(*) FROM saga WHERE owner IS NULL AND definition IN"
                             " ('deadline', 'back', 'unstarted') AND wake_at > started_at");
    assert_true(away > 0);
    int64_t most = most_resident_until("deadline", "COMPENSATED", count, FAR_MS + 3 * SOON);
    rig_await_states(one, "back", "back", "SUCCEEDED", count, 2 * SOON);
    rig_await_states(one, "unstarted", "unstarted", "COMPENSATED", count, SOON);
    assert_true(most <= ROOM + AT_ONCE);
    /* None acted before its time, and none long after it. */
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition IN ('deadline', 'unstarted') AND kind ="
                               " 'COMPENSATE' AND finished_at < started_at + interval '7 s'"),
                     0);
    int64_t late = rig_count(one, RIG_STORE,
                             "SELECT extract(epoch FROM max(finished_at - deadline_at)) * 1000"
                             " FROM journal JOIN saga s USING (shard, saga_uid)"
                             " WHERE s.definition = 'deadline' AND kind = 'COMPENSATE'");
    assert_true(late <= LATE_MS + count);
    print_message("%lld of %d were away; the deadline acted at most %lld ms late\n",
                  (long long)away, 3 * count, (long long)late);
}

static void test_p8_a_start_finds_a_server_that_serves_while_it_loads(void **state)
{
    (void)state;
    PROVES("P1 P8");
    int count = test_is_full_size() ? 30000 : 6000;
    rig_define(one, "many", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_define(one, "quick", NULL, "a: IDEMPOTENT | none");
    /* Room for all, so that all stay this node's. */
    for (size_t i = 0; one->server_args[i]; i++)
        if (strcmp(one->server_args[i], little[1]) == 0)
            one->server_args[i] = "200000";
    rig_server_kill(one);
    rig_server_start(one);
    rig_start_many(one, "many", "many", count, "");
    rig_await_states(one, "many", "many", "RUNNING", count, SOON);
    int64_t all = rig_count(one, RIG_STORE,
                            "SELECT count(*) FROM saga WHERE owner = 'one'"
                            " AND state IN ('RUNNING', 'PARKED')");
    assert_true(all >= count);
    rig_server_kill(one);
    rig_server_start(one);
    int64_t from = clock_mono_ms(&clock_system);
    rig_start(one, "quick", "quick", "");
    int64_t took = clock_mono_ms(&clock_system) - from;
    int64_t loaded = resident_now();
    (void)rig_worker(one, "w", "act:4"); /* the rig owns it */
    rig_await_state(one, "quick", "quick", "SUCCEEDED", SOON);
    if (loaded >= all)
        fail_msg("all %lld were loaded before the start was answered", (long long)all);
    assert_true(took <= 1000);
    /* A call about one that is not loaded yet finds it, too. */
    char id[32];
    (void)snprintf(id, sizeof id, "many%d", count - 1);
    assert_int_equal(rig_cancel(one, "many", id, NULL), 0);
    rig_await_state(one, "many", id, "COMPENSATED", 1000);
    print_message("answered after %lld ms with %lld of %lld sagas loaded\n", (long long)took,
                  (long long)loaded, (long long)all);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p8_a_backlog_costs_disk_and_no_memory),
        TEST(test_p8_what_left_memory_acts_when_its_time_has_come),
        TEST(test_p8_a_start_finds_a_server_that_serves_while_it_loads),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
