/* The worker on a real gRPC stream. Goal: what was received once is reported until it is
 * acknowledged, whatever happens to the stream, and a drain ends in order. Method: a server that
 * says only what the test tells it to, and drops the stream when told. */
#include "support/check.h"

#include "base/clock.h"
#include "fake_server.h"
#include "sagaworker.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define COMMAND(name) SAGA__V1__WORKER_MESSAGE__COMMAND_##name

struct fixture {
    struct fake_server *server;
    char address[SCRATCH_PATH_SIZE + 8], other[SCRATCH_PATH_SIZE + 8];
    struct saga_worker *worker;
    pthread_t thread;
    bool runs;
    int run_rc;
    atomic_int started, lost_seen;
    atomic_bool hold; /* handlers of "slow" wait while it is set */
};

static struct fixture fixture;

static void *run_worker(void *ctx)
{
    struct saga_error error;
    (void)ctx;
    fixture.run_rc = saga_worker_run(fixture.worker, &error);
    return NULL;
}

static void quick(struct saga_task *task, void *ctx)
{
    (void)ctx;
    fixture.started++;
    (void)saga_task_done(task, saga_task_saga_id(task), strlen(saga_task_saga_id(task)));
}

static void slow(struct saga_task *task, void *ctx)
{
    (void)ctx;
    fixture.started++;
    while (fixture.hold) {
        if (!saga_task_still_mine(task))
            fixture.lost_seen = 1;
        wait_ms(5);
    }
    (void)saga_task_unknown(task, "TIMEOUT", "the other side did not answer");
}

static void silent(struct saga_task *task, void *ctx)
{
    (void)task;
    (void)ctx;
}

static int setup(void **state)
{
    struct err err;
    char path[SCRATCH_PATH_SIZE];
    memset(&fixture, 0, sizeof fixture);
    SETUP_OK(scratch_path("server", path, &err), &err);
    (void)snprintf(fixture.address, sizeof fixture.address, "unix:%s", path);
    SETUP_OK(scratch_path("nobody", path, &err), &err);
    (void)snprintf(fixture.other, sizeof fixture.other, "unix:%s", path);
    SETUP_OK(fake_server_start(fixture.address, &fixture.server, &err), &err);
    *state = &fixture;
    return 0;
}

static void start_worker(int threads, bool handle_signals)
{
    struct saga_error error;
    /* Nobody listens on the first one. */
    const char *addresses[] = { fixture.other, fixture.address, NULL };
    struct saga_worker_options options = { .addresses = addresses,
                                           .worker_id = "worker-1",
                                           .threads = threads,
                                           .drain_ms = 2000,
                                           .handle_signals = handle_signals };
    assert_int_equal(saga_worker_new(&options, &fixture.worker, &error), 0);
    assert_int_equal(saga_worker_handle(fixture.worker, "quick", 4, quick, NULL, &error), 0);
    assert_int_equal(saga_worker_handle(fixture.worker, "slow", 4, slow, NULL, &error), 0);
    assert_int_equal(saga_worker_handle(fixture.worker, "silent", 4, silent, NULL, &error), 0);
    assert_int_equal(pthread_create(&fixture.thread, NULL, run_worker, NULL), 0);
    fixture.runs = true;
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
    fixture.server = fake_server_stop(fixture.server);
    return 0;
}

static void send_task(const char *handler, int64_t fence, int64_t lease_ms)
{
    fake_server_task(fixture.server, handler, fence, lease_ms);
}

static void send_ack(int64_t fence)
{
    fake_server_ack(fixture.server, fence);
}

static void send_extended(int64_t fence, int64_t lease_ms)
{
    fake_server_extended(fixture.server, fence, lease_ms);
}

static const Saga__V1__WorkerMessage *wait_for(Saga__V1__WorkerMessage__CommandCase command,
                                               size_t nth)
{
    const Saga__V1__WorkerMessage *message = fake_server_wait(fixture.server, command, nth);
    if (!message)
        fail_msg("message %zu of kind %d did not come", nth, (int)command);
    return message;
}

static bool has_started(void *ctx)
{
    return fixture.started >= *(int *)ctx;
}

static void wait_started(int count)
{
    assert_true(wait_until(has_started, &count, 10000));
}

static void assert_held(const Saga__V1__WorkerMessage *hello, size_t count, int64_t fence)
{
    assert_int_equal(hello->hello->n_held, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(hello->hello->held[i]->fence, fence);
}

static void test_a_task_is_run_reported_and_the_worker_drains(void **state)
{
    (void)state;
    start_worker(2, false);
    const Saga__V1__Hello *hello = wait_for(COMMAND(HELLO), 0)->hello;
    assert_string_equal(hello->worker_id, "worker-1");
    assert_int_equal(hello->n_handlers, 3);
    assert_int_equal(hello->n_held, 0);
    const Saga__V1__Credit *credit = wait_for(COMMAND(CREDIT), 0)->credit;
    assert_int_equal(credit->n_handlers, 3);
    assert_int_equal(credit->handlers[0]->total, 4);
    send_task("quick", 1, 30000);
    const Saga__V1__TaskReport *report = wait_for(COMMAND(REPORT), 0)->report->reports[0];
    assert_int_equal(report->fence, 1);
    assert_int_equal(report->outcome, SAGA__V1__OUTCOME__OUTCOME_DONE);
    assert_memory_equal(report->output.data, "order-17", 8);
    /* The slot is free again as soon as the report is out. */
    assert_int_equal(wait_for(COMMAND(CREDIT), 1)->credit->handlers[0]->total, 5);
    send_ack(1);
    send_task("silent", 2, 30000);
    report = wait_for(COMMAND(REPORT), 1)->report->reports[0];
    assert_int_equal(report->outcome, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
    send_ack(2);
    saga_worker_drain(fixture.worker);
    (void)wait_for(COMMAND(DRAIN), 0);
    join_worker();
    assert_int_equal(fixture.run_rc, 0);
    struct saga_worker_stats stats;
    saga_worker_stats(fixture.worker, &stats);
    assert_int_equal(stats.tasks_started, 2);
    assert_int_equal(stats.reports_accepted, 2);
    assert_int_equal(stats.connects, 1);
}

static void test_a_report_without_ack_is_sent_again_after_a_reconnect(void **state)
{
    (void)state;
    start_worker(2, false);
    (void)wait_for(COMMAND(CREDIT), 0);
    send_task("quick", 1, 30000);
    (void)wait_for(COMMAND(REPORT), 0);
    fake_server_drop(fixture.server);
    assert_held(wait_for(COMMAND(HELLO), 1), 1, 1);
    assert_int_equal(wait_for(COMMAND(REPORT), 1)->report->reports[0]->fence, 1);
    fake_server_send_garbage(fixture.server); /* ends the stream as well */
    assert_held(wait_for(COMMAND(HELLO), 2), 1, 1);
    assert_int_equal(wait_for(COMMAND(REPORT), 2)->report->reports[0]->fence, 1);
    send_ack(1);
    send_task("quick", 2, 30000);
    assert_int_equal(wait_for(COMMAND(REPORT), 3)->report->reports[0]->fence, 2);
    fake_server_drop(fixture.server);
    assert_held(wait_for(COMMAND(HELLO), 3), 1, 2); /* 1 is done with */
    assert_int_equal(fixture.started, 2);
}

static void test_a_server_that_comes_back_gets_what_it_missed(void **state)
{
    struct err err;
    (void)state;
    fixture.hold = true;
    start_worker(1, false);
    (void)wait_for(COMMAND(CREDIT), 0);
    send_task("slow", 1, 30000);
    send_task("slow", 2, 30000); /* one thread: this one waits */
    wait_started(1);
    fixture.server = fake_server_stop(fixture.server);
    wait_ms(300);
    ASSERT_OK(fake_server_start(fixture.address, &fixture.server, &err), &err);
    assert_held(wait_for(COMMAND(HELLO), 0), 1, 1); /* 2 never started, and never will */
    assert_int_equal(wait_for(COMMAND(EXTEND), 0)->extend->leases[0]->fence, 1);
    fixture.hold = false;
    const Saga__V1__TaskReport *report = wait_for(COMMAND(REPORT), 0)->report->reports[0];
    assert_int_equal(report->fence, 1);
    assert_string_equal(report->error_code, "TIMEOUT");
    assert_int_equal(fixture.started, 1);
}

static void test_leases_are_extended_while_every_thread_is_busy(void **state)
{
    (void)state;
    fixture.hold = true;
    start_worker(1, false);
    (void)wait_for(COMMAND(CREDIT), 0);
    send_task("slow", 1, 3000);
    wait_started(1);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(wait_for(COMMAND(EXTEND), i)->extend->leases[0]->fence, 1);
        send_extended(1, 3000);
    }
    assert_int_equal(fixture.lost_seen, 0);
    send_extended(1, 0);
    int64_t until_ms = clock_mono_ms(&clock_system) + 5000;
    while (!fixture.lost_seen && clock_mono_ms(&clock_system) < until_ms)
        wait_ms(5);
    assert_int_equal(fixture.lost_seen, 1);
}

static void test_a_lease_without_an_answer_is_over_at_80_percent(void **state)
{
    (void)state;
    fixture.hold = true;
    start_worker(1, false);
    (void)wait_for(COMMAND(CREDIT), 0);
    int64_t start_ms = clock_mono_ms(&clock_system);
    send_task("slow", 1, 2000);
    while (!fixture.lost_seen && clock_mono_ms(&clock_system) < start_ms + 5000)
        wait_ms(5);
    assert_in_range(clock_mono_ms(&clock_system) - start_ms, 1600 - 300, 2000);
}

static void test_sigterm_drains_and_gives_back_what_was_not_started(void **state)
{
    (void)state;
    fixture.hold = true;
    start_worker(1, true);
    (void)wait_for(COMMAND(CREDIT), 0);
    send_task("slow", 1, 30000);
    wait_started(1);
    send_task("slow", 2, 30000);
    wait_ms(200); /* it has arrived and waits for the thread */
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    (void)wait_for(COMMAND(DRAIN), 0);
    assert_int_equal(wait_for(COMMAND(RELEASE), 0)->release->leases[0]->fence, 2);
    fixture.hold = false;
    assert_int_equal(wait_for(COMMAND(REPORT), 0)->report->reports[0]->fence, 1);
    send_ack(1);
    join_worker();
    assert_int_equal(fixture.run_rc, 0);
    assert_int_equal(fixture.started, 1);
}

static void test_a_drain_without_a_server_ends_within_its_limit(void **state)
{
    (void)state;
    start_worker(1, false);
    (void)wait_for(COMMAND(CREDIT), 0);
    send_task("quick", 1, 30000);
    (void)wait_for(COMMAND(REPORT), 0);
    fixture.server = fake_server_stop(fixture.server);
    int64_t start_ms = clock_mono_ms(&clock_system);
    saga_worker_drain(fixture.worker); /* one report has no ack, and never will */
    join_worker();
    assert_in_range(clock_mono_ms(&clock_system) - start_ms, 1500, 5000);
    assert_int_equal(fixture.run_rc, 0);
}

static void test_many_tasks_are_all_reported_once(void **state)
{
    (void)state;
    enum { TASKS = 200 };
    start_worker(4, false);
    (void)wait_for(COMMAND(CREDIT), 0);
    size_t reports = 0, messages = 0;
    for (int64_t fence = 1; fence <= TASKS; fence++) {
        send_task("quick", fence, 30000);
        if (fence % 4 != 0)
            continue;
        while (reports < (size_t)fence)
            reports += wait_for(COMMAND(REPORT), messages++)->report->n_reports;
        for (int64_t one = fence - 3; one <= fence; one++)
            send_ack(one);
        /* No further than the credit goes. */
        size_t credits = fake_server_count(fixture.server, COMMAND(CREDIT));
        while (wait_for(COMMAND(CREDIT), credits - 1)->credit->handlers[0]->total <
               (uint64_t)fence + 4) {
            wait_ms(1);
            credits = fake_server_count(fixture.server, COMMAND(CREDIT));
        }
    }
    assert_int_equal(reports, TASKS);
    assert_int_equal(fixture.started, TASKS);
}

static void test_wrong_options_are_named(void **state)
{
    (void)state;
    struct saga_worker *worker;
    struct saga_error error;
    const char *none[] = { NULL }, *one[] = { "127.0.0.1:1", NULL }, *empty[] = { "", NULL };
    struct saga_worker_options wrong[] = {
        { .addresses = NULL, .worker_id = "w" },
        { .addresses = none, .worker_id = "w" },
        { .addresses = empty, .worker_id = "w" },
        { .addresses = one, .worker_id = NULL },
        { .addresses = one, .worker_id = "" },
        { .addresses = one, .worker_id = "a\nb" },
        { .addresses = one, .worker_id = "w", .threads = -1 },
        { .addresses = one, .worker_id = "w", .threads = SAGA_THREADS_MAX + 1 },
        { .addresses = one, .worker_id = "w", .drain_ms = -1 },
        { .addresses = one, .worker_id = "w", .output_bytes_max = -1 },
        { .addresses = one, .worker_id = "w", .output_bytes_max = SAGA_OUTPUT_HARD_MAX + 1 },
        { .addresses = one, .worker_id = "w", .message_bytes_max = -1 },
        { .addresses = one, .worker_id = "w", .message_bytes_max = SAGA_MESSAGE_HARD_MAX + 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_not_equal(saga_worker_new(&wrong[i], &worker, &error), 0);
    struct saga_worker_options right = { .addresses = one, .worker_id = "w" };
    assert_int_equal(saga_worker_new(&right, &worker, &error), 0);
    assert_int_not_equal(saga_worker_run(worker, &error), 0); /* no handler */
    assert_non_null(strstr(error.message, "handler"));
    (void)saga_worker_free(worker); /* always NULL */
}

#define SDK_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SDK_TEST(test_a_task_is_run_reported_and_the_worker_drains),
        SDK_TEST(test_a_report_without_ack_is_sent_again_after_a_reconnect),
        SDK_TEST(test_a_server_that_comes_back_gets_what_it_missed),
        SDK_TEST(test_leases_are_extended_while_every_thread_is_busy),
        SDK_TEST(test_a_lease_without_an_answer_is_over_at_80_percent),
        SDK_TEST(test_sigterm_drains_and_gives_back_what_was_not_started),
        SDK_TEST(test_a_drain_without_a_server_ends_within_its_limit),
        SDK_TEST(test_many_tasks_are_all_reported_once),
        SDK_TEST(test_wrong_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
