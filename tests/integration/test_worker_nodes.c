/* A worker with real streams to two nodes. Goal: both are served, what a dead node leaves is spoken
 * for at the other one, and a handler never runs more often than it may. Method: two servers that
 * say only what the test tells them to. */
#include "support/check.h"

#include "base/clock.h"
#include "fake_server.h"
#include "sagaworker.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define COMMAND(name) SAGA__V1__WORKER_MESSAGE__COMMAND_##name

enum { NODES = 2, LEASE_MS = 3000 };

static struct fixture {
    struct fake_server *servers[NODES];
    char addresses[NODES][SCRATCH_PATH_SIZE + 8];
    struct saga_worker *worker;
    pthread_t thread;
    bool runs;
    int run_rc;
    atomic_int started, at_once, at_once_most;
    atomic_bool hold; /* handlers of "held" wait while it is set */
} fixture;

static void *run_worker(void *ctx)
{
    struct saga_error error;
    (void)ctx;
    fixture.run_rc = saga_worker_run(fixture.worker, &error);
    return NULL;
}

static void work(struct saga_task *task, void *ctx)
{
    (void)ctx;
    fixture.started++;
    int now = ++fixture.at_once;
    if (now > fixture.at_once_most)
        fixture.at_once_most = now;
    while (strcmp(saga_task_handler(task), "held") == 0 && fixture.hold)
        wait_ms(5);
    wait_ms(2);
    fixture.at_once--;
    (void)saga_task_done(task, NULL, 0);
}

static int setup(void **state)
{
    struct err err;
    (void)state;
    memset(&fixture, 0, sizeof fixture);
    for (int i = 0; i < NODES; i++) {
        char path[SCRATCH_PATH_SIZE];
        SETUP_OK(scratch_path("node", path, &err), &err);
        (void)snprintf(fixture.addresses[i], sizeof fixture.addresses[i], "unix:%s", path);
        SETUP_OK(fake_server_start(fixture.addresses[i], &fixture.servers[i], &err), &err);
    }
    return 0;
}

static const Saga__V1__WorkerMessage *wait_for(int node,
                                               Saga__V1__WorkerMessage__CommandCase command,
                                               size_t nth)
{
    const Saga__V1__WorkerMessage *message = fake_server_wait(fixture.servers[node], command, nth);
    if (!message)
        fail_msg("node %d: message %zu of kind %d did not come", node, nth, (int)command);
    return message;
}

static void start_worker(int threads, int held_max)
{
    struct saga_error error;
    const char *addresses[] = { fixture.addresses[0], fixture.addresses[1], NULL };
    struct saga_worker_options options = {
        .addresses = addresses, .worker_id = "worker-1", .threads = threads, .drain_ms = 2000
    };
    assert_int_equal(saga_worker_new(&options, &fixture.worker, &error), 0);
    assert_int_equal(saga_worker_handle(fixture.worker, "quick", 4, work, NULL, &error), 0);
    assert_int_equal(saga_worker_handle(fixture.worker, "held", held_max, work, NULL, &error), 0);
    assert_int_equal(pthread_create(&fixture.thread, NULL, run_worker, NULL), 0);
    fixture.runs = true;
    for (int i = 0; i < NODES; i++) {
        const Saga__V1__Hello *hello = wait_for(i, COMMAND(HELLO), 0)->hello;
        assert_int_equal(hello->n_held, 0);
        assert_false(hello->only_stream);
        (void)wait_for(i, COMMAND(CREDIT), 0);
    }
    assert_string_equal(wait_for(0, COMMAND(HELLO), 0)->hello->instance,
                        wait_for(1, COMMAND(HELLO), 0)->hello->instance);
}

static void join_worker(void)
{
    if (fixture.runs)
        pthread_join(fixture.thread, NULL);
    fixture.runs = false;
}

static int teardown(void **state)
{
    (void)state;
    fixture.hold = false;
    if (fixture.worker)
        saga_worker_drain(fixture.worker);
    join_worker();
    fixture.worker = saga_worker_free(fixture.worker);
    for (int i = 0; i < NODES; i++)
        fixture.servers[i] = fake_server_stop(fixture.servers[i]);
    return 0;
}

static bool has_started(void *ctx)
{
    return fixture.started >= *(int *)ctx;
}

static void wait_started(int count)
{
    assert_true(wait_until(has_started, &count, 10000));
}

static void test_each_node_gets_its_own_reports(void **state)
{
    (void)state;
    start_worker(4, 1);
    for (int i = 0; i < NODES; i++)
        fake_server_task(fixture.servers[i], "quick", 1 + i, LEASE_MS);
    for (int i = 0; i < NODES; i++) {
        const Saga__V1__Report *report = wait_for(i, COMMAND(REPORT), 0)->report;
        assert_int_equal(report->n_reports, 1);
        assert_int_equal(report->reports[0]->fence, 1 + i);
        fake_server_ack(fixture.servers[i], 1 + i);
    }
    saga_worker_drain(fixture.worker);
    for (int i = 0; i < NODES; i++)
        (void)wait_for(i, COMMAND(DRAIN), 0);
    join_worker();
    assert_int_equal(fixture.run_rc, 0);
    struct saga_worker_stats stats;
    saga_worker_stats(fixture.worker, &stats);
    assert_int_equal(stats.connects, 2);
    assert_int_equal(stats.reports_accepted, 2);
}

static bool has_acks(void *ctx)
{
    struct saga_worker_stats stats;
    saga_worker_stats(fixture.worker, &stats);
    return stats.reports_accepted >= *(uint64_t *)ctx;
}

static void wait_acks(uint64_t count)
{
    assert_true(wait_until(has_acks, &count, 10000));
}

/* The node dies: one task of it runs, one has a report without an ack, one waits for a thread. */
static void test_the_other_node_hears_of_what_a_dead_one_left(void **state)
{
    struct err err;
    (void)state;
    fixture.hold = true;
    start_worker(1, 1);
    struct fake_server *other = fixture.servers[1];
    for (int64_t fence = 1; fence <= 2; fence++) {
        fake_server_task(fixture.servers[0], "quick", fence, LEASE_MS);
        (void)wait_for(0, COMMAND(REPORT), (size_t)fence - 1);
    }
    fake_server_task(fixture.servers[0], "held", 3, LEASE_MS);
    wait_started(3);
    fake_server_task(fixture.servers[0], "quick", 4, LEASE_MS);
    fake_server_ack(fixture.servers[0], 1);
    wait_acks(1); /* so the task before it has arrived, too */
    fixture.servers[0] = fake_server_stop(fixture.servers[0]);
    assert_int_equal(wait_for(1, COMMAND(EXTEND), 0)->extend->leases[0]->fence, 3);
    fake_server_extended(other, 3, LEASE_MS);
    const Saga__V1__Report *report = wait_for(1, COMMAND(REPORT), 0)->report;
    assert_int_equal(report->n_reports, 1);
    assert_int_equal(report->reports[0]->fence, 2);
    assert_int_equal(wait_for(1, COMMAND(RELEASE), 0)->release->leases[0]->fence, 4);
    /* It goes on there, also when the first one is back. */
    ASSERT_OK(fake_server_start(fixture.addresses[0], &fixture.servers[0], &err), &err);
    assert_int_equal(wait_for(0, COMMAND(HELLO), 0)->hello->n_held, 2);
    fake_server_ack(other, 2);
    wait_acks(2);
    assert_int_equal(wait_for(1, COMMAND(EXTEND), 1)->extend->leases[0]->fence, 3);
    fixture.hold = false;
    assert_int_equal(wait_for(1, COMMAND(REPORT), 1)->report->reports[0]->fence, 3);
    fake_server_ack(other, 3);
    wait_acks(3);
    assert_int_equal(fixture.started, 3);
}

/* Both have more than enough to do for a handler that may run twice at a time. */
static void test_busy_nodes_share_the_slots(void **state)
{
    enum { EACH = 60 };
    (void)state;
    start_worker(4, 2);
    uint64_t sent[NODES] = { 0, 0 };
    size_t credits[NODES] = { 0, 0 };
    uint64_t total[NODES] = { 0, 0 };
    int64_t fence = 0, until_ms = clock_mono_ms(&clock_system) + 20000;
    while (sent[0] < EACH || sent[1] < EACH) {
        assert_true(clock_mono_ms(&clock_system) < until_ms);
        for (int i = 0; i < NODES; i++) {
            struct fake_server *server = fixture.servers[i];
            for (; credits[i] < fake_server_count(server, COMMAND(CREDIT)); credits[i]++) {
                const Saga__V1__Credit *credit = wait_for(i, COMMAND(CREDIT), credits[i])->credit;
                for (size_t n = 0; n < credit->n_handlers; n++)
                    if (strcmp(credit->handlers[n]->handler, "held") == 0)
                        total[i] = credit->handlers[n]->total;
            }
            while (sent[i] < total[i] && sent[i] < EACH) {
                fake_server_task(server, "held", ++fence, 30000);
                sent[i]++;
            }
        }
        wait_ms(1);
        /* Neither is far behind: each had its turns. */
        if (sent[0] < EACH && sent[1] < EACH)
            assert_in_range(sent[0] + 20 - sent[1], 0, 40);
    }
    assert_in_range(fixture.at_once_most, 1, 2);
}

#define NODES_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODES_TEST(test_each_node_gets_its_own_reports),
        NODES_TEST(test_the_other_node_hears_of_what_a_dead_one_left),
        NODES_TEST(test_busy_nodes_share_the_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
