/* Descriptors that run out. Goal: a server that can accept no more ends by itself with a message,
 * so that its supervisor starts it again (gRPC never accepts again on a socket whose accept failed
 * once); one that is only busy, or whose database is away, or that stood still, is left alone.
 * Method: a low limit of open files set from outside, more connections than that, real processes.
 */
#include "base/clock.h"
#include "support/hostile.h"
#include "support/proof.h"
#include "support/raw_http2.h"
#include "support/rig.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SOON = 10000,
    INTERVAL_MS = 300,
    ANSWER_MS = 500, /* how long a question may take at that interval */
    END_MS = 3 * (INTERVAL_MS + ANSWER_MS) + 5000, /* of three times in a row */
    FILES_MAX = 100,
    CONNECTIONS = 150,
    INTERVAL_ARG = 5,
    ARGS,
};

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--grace", "2s",
                                           "--probe-interval", "0.3s" } };
static char unix_listen[SCRATCH_PATH_SIZE + 64];
static struct raw_http2 *connections[CONNECTIONS];

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    rig_define(&rig, "plain", NULL, "a: IDEMPOTENT | none");
    return rig_worker(&rig, "w", "act:4") ? 0 : -1;
}

static void disconnect(void)
{
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i] = raw_http2_free(connections[i]);
}

static int teardown(void **state)
{
    (void)state;
    disconnect();
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    disconnect();
    return rig_check(&rig);
}

/* More connections than sagad has descriptors, until gRPC has failed to accept one. */
static void exhaust(void)
{
    static const struct raw_http2_options options = { .no_preface = true };
    const struct rlimit limit = { .rlim_cur = FILES_MAX, .rlim_max = FILES_MAX };
    struct err err;
    assert_int_equal(prlimit(test_process_pid(rig.sagad), RLIMIT_NOFILE, &limit, NULL), 0);
    for (int i = 0; i < CONNECTIONS; i++)
        ASSERT_OK(raw_http2_open(rig.port, &options, &connections[i], &err), &err);
    ASSERT_OK(test_process_wait_output(rig.sagad, "Failed accept4", SOON, NULL, 0, &err), &err);
    proof_fault("descriptors ran out in accept", 1);
}

/* It ends with its message and exit code 1; the next one serves, and what was there goes on. */
static void await_end_and_restart(const char *reason)
{
    char line[512];
    struct err err;
    int status = 0;
    int64_t begun = clock_mono_ms(&clock_system);
    ASSERT_OK(test_process_wait_output(rig.sagad, "sagad: nobody can connect any more", END_MS,
                                       line, sizeof line, &err),
              &err);
    assert_non_null(strstr(line, reason));
    ASSERT_OK(test_process_wait(rig.sagad, SOON, &status, &err), &err);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    print_message("%s: it ended after %lld ms\n", reason,
                  (long long)(clock_mono_ms(&clock_system) - begun));
    rig.sagad = test_process_free(rig.sagad);
    disconnect();
    rig_server_start(&rig);
}

static void saga_succeeds(const char *saga_id)
{
    rig_start(&rig, "plain", saga_id, "");
    rig_await_state(&rig, "plain", saga_id, "SUCCEEDED", SOON);
}

static void test_without_descriptors_sagad_ends_and_says_why(void **state)
{
    (void)state;
    rig_start(&rig, "plain", "held", "a A 1 sleep=1000"); /* its worker lives through all of it */
    rig_await_call(&rig, "held", "a", "A", 1, SOON);
    exhaust();
    await_end_and_restart("in a row"); /* no answer, or no socket to ask with */
    rig_await_state(&rig, "plain", "held", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "plain", "held", "a.1 DONE");
    saga_succeeds("after");
}

static void test_a_server_that_stays_deaf_is_ended_although_descriptors_are_free_again(void **state)
{
    (void)state;
    exhaust();
    disconnect();
    await_end_and_restart("no answer");
    saga_succeeds("after-deaf");
}

static void test_every_socket_is_asked(void **state)
{
    (void)state;
    struct err err;
    char path[SCRATCH_PATH_SIZE];
    (void)rig_server_stop(&rig, SOON);
    ASSERT_OK(scratch_path("listen", path, &err), &err);
    (void)snprintf(unix_listen, sizeof unix_listen, "unix:%s", path);
    rig.server_args[ARGS] = "--listen";
    rig.server_args[ARGS + 1] = unix_listen;
    rig_server_start(&rig);
    saga_succeeds("two-sockets");
    assert_int_equal(rig_health(unix_listen, SOON), 1);
    wait_ms(3 * INTERVAL_MS);
    assert_true(test_process_running(rig.sagad));
    assert_int_equal(unlink(path), 0); /* nobody can connect to that one any more */
    rig.server_args[ARGS] = NULL;
    await_end_and_restart(unix_listen);
    saga_succeeds("one-socket");
    proof_fault("a socket's file removed", 1);
}

static void test_a_server_that_is_busy_or_waits_is_not_ended(void **state)
{
    (void)state;
    enum { STREAMS = 100, PAUSE_MS = 100 };
    struct err err;
    pid_t pid = test_process_pid(rig.sagad);
    /* Stopped for longer than three answers may take. */
    ASSERT_OK(test_process_signal(rig.sagad, SIGSTOP, &err), &err);
    wait_ms(3 * (INTERVAL_MS + ANSWER_MS) + 500);
    ASSERT_OK(test_process_signal(rig.sagad, SIGCONT, &err), &err);
    saga_succeeds("after-stop");
    /* The database is away, and calls come all the time. */
    test_postgres_kill(rig.postgres);
    int64_t until = clock_mono_ms(&clock_system) + 3 * (INTERVAL_MS + ANSWER_MS) + 500;
    int64_t calls = 0;
    while (clock_mono_ms(&clock_system) < until) {
        struct raw_http2 *http2 = NULL;
        ASSERT_OK(raw_http2_open(rig.port, NULL, &http2, &err), &err);
        for (uint32_t i = 0; i < STREAMS; i++, calls++)
            ASSERT_OK(raw_http2_call(http2, 2 * i + 1, "/saga.v1.WorkerService/Work", NULL, &err),
                      &err);
        (void)raw_http2_read(http2, NULL, 0, PAUSE_MS);
        http2 = raw_http2_free(http2);
    }
    ASSERT_OK(test_postgres_restart(rig.postgres, &err), &err);
    assert_true(test_process_running(rig.sagad));
    saga_succeeds("after-outage");
    assert_int_equal(test_process_pid(rig.sagad), pid);
    proof_fault("calls while the database is away", calls);
}

static void test_a_probe_that_is_switched_off_ends_nothing(void **state)
{
    (void)state;
    (void)rig_server_stop(&rig, SOON);
    rig.server_args[INTERVAL_ARG] = "0";
    rig_server_start(&rig);
    saga_succeeds("off");
    exhaust();
    disconnect();
    wait_ms(3 * (INTERVAL_MS + ANSWER_MS));
    assert_true(test_process_running(rig.sagad));
    assert_true(rig_health(rig.address, 500) < 0); /* which is why there is a probe */
    rig_server_kill(&rig);
    rig_server_start(&rig);
    saga_succeeds("off-after");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_without_descriptors_sagad_ends_and_says_why),
        TEST(test_a_server_that_stays_deaf_is_ended_although_descriptors_are_free_again),
        TEST(test_every_socket_is_asked),
        TEST(test_a_server_that_is_busy_or_waits_is_not_ended),
        TEST(test_a_probe_that_is_switched_off_ends_nothing),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
