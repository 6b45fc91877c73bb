/* An ordered stop as process 1 of a container (T3; as an ordinary process: test_e2e_restart). Goal:
 * the signal arrives, the end is within the grace although streams are open, a read is pending and
 * steps are leased; what was not started is free at once; nothing leaks (the sanitizers of the
 * debug build make the exit code). Method: sagad as the first process of a PID namespace of its
 * own. */
#include "base/clock.h"
#include "support/proof.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOON = 10000, STREAMS = 50, LEASED = 10, GRACE_MS = 4000, UNAVAILABLE = 14 };

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    rig_define(&rig, "t3", NULL, "a: ONCE handler=t3 lease=60s max_attempts=1 | none");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

/* --- sagad as process 1 ----------------------------------------------------------------------- */

/* "unshare ..." in front of a program; returns the count of words. */
static size_t unshare(const char **argv)
{
    const char *words[] = { "/usr/bin/unshare", "--pid",  "--fork",
                            "--kill-child",     "--user", "--map-root-user" };
    size_t count = geteuid() == 0 ? ARRAY_LEN(words) - 2 : ARRAY_LEN(words);
    memcpy(argv, words, count * sizeof *words);
    return count;
}

/* Not everywhere: a container may not make namespaces of its own. */
static bool can_be_process_1(void)
{
    const char *argv[8] = { NULL };
    struct err err;
    argv[unshare(argv)] = "/bin/true";
    const struct test_process_options options = { .name = "unshare", .argv = argv };
    return test_process_must_succeed(&options, SOON, &err) == 0;
}

static void start(bool as_process_1)
{
    const char *argv[20] = { NULL };
    size_t count = as_process_1 ? unshare(argv) : 0;
    const char *rest[] = { SAGAD_BINARY, "serve",  "--database", rig.store, "--listen",
                           rig.address,  "--node", "rig",        "--grace", "4s" };
    memcpy(argv + count, rest, sizeof rest);
    /* A leak checker finds its threads by /proc, which is of the outer namespace: it would stand
     * still. */
    const char *given = getenv("ASAN_OPTIONS");
    char asan[512];
    (void)snprintf(asan, sizeof asan, "ASAN_OPTIONS=%s%sdetect_leaks=0", given ? given : "",
                   given ? ":" : "");
    const char *const env[] = { asan, NULL };
    const struct test_process_options options = { .name = "sagad-1",
                                                  .argv = argv,
                                                  .env = as_process_1 ? env : NULL };
    struct err err;
    ASSERT_OK(test_process_start(&options, &rig.sagad, &err), &err);
    ASSERT_OK(test_process_wait_output(rig.sagad, "sagad: serving on", 60000, NULL, 0, &err), &err);
}

/* The one child of unshare, by its number in our namespace; it is number 1 in its own. */
static pid_t process_1(void)
{
    char path[64], line[256];
    int pid = 0;
    (void)snprintf(path, sizeof path, "/proc/%1$d/task/%1$d/children",
                   (int)test_process_pid(rig.sagad));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &pid), 1);
    (void)fclose(file); /* was only read */
    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    file = fopen(path, "re");
    assert_non_null(file);
    int inner = 0, outer = 0;
    while (fgets(line, sizeof line, file))
        (void)sscanf(line, "NSpid: %d %d", &outer, &inner); /* one line of many */
    (void)fclose(file);                                     /* was only read */
    assert_int_equal(outer, pid);
    assert_int_equal(inner, 1);
    return pid;
}

static struct raw_stream *pending_read(void)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__WaitSagaRequest request = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    uint8_t packed[256];
    struct raw_stream *stream = NULL;
    struct err err;
    ref.definition = rig_borrow("t3");
    ref.saga_id = rig_borrow("t3-0");
    timeout.seconds = 120;
    request.saga = &ref;
    request.timeout = &timeout;
    size_t size = saga__v1__wait_saga_request__pack(&request, packed);
    ASSERT_OK(raw_stream_open(rig.address, "/saga.v1.SagaService/WaitSaga", 60000, &stream, &err),
              &err);
    ASSERT_OK(raw_stream_send(stream, packed, size, SOON, &err), &err);
    ASSERT_OK(raw_stream_half_close(stream, SOON, &err), &err);
    assert_int_equal(raw_stream_status(stream, 200, NULL), -1); /* it waits in the server */
    return stream;
}

static void test_t3_as_process_1_an_ordered_stop_is_short_and_frees_what_was_not_started(
    void **state)
{
    (void)state;
    static struct raw_worker *idle[STREAMS];
    struct raw_lease leases[LEASED];
    struct err err;
    int status = -1;
    (void)rig_server_stop(&rig, SOON);
    bool as_process_1 = can_be_process_1();
    start(as_process_1);
    pid_t pid = as_process_1 ? process_1() : test_process_pid(rig.sagad);
    if (!as_process_1)
        print_message("no PID namespaces here: it is an ordinary process\n");
    for (int i = 0; i < STREAMS; i++)
        idle[i] = raw_worker_hello(rig.address, "idle", NULL, "nothing", NULL, 0);
    struct raw_worker *holder = raw_worker_hello(rig.address, "holder", NULL, "t3", NULL, 0);
    raw_worker_credit(holder, "t3", LEASED);
    rig.client = client_free(rig.client); /* it has seen the other server go */
    ASSERT_OK(client_new(rig.address, &rig.client, &err), &err);
    rig_start_many(&rig, "t3", "t3-", LEASED, "");
    for (int i = 0; i < LEASED; i++) {
        const Saga__V1__Task *task = raw_worker_task(holder, SOON);
        assert_non_null(task);
        leases[i] = raw_lease_of(task);
    }
    struct raw_stream *read = pending_read();
    int64_t begun = clock_mono_ms(&clock_system);
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_true(raw_worker_was_told_to_drain(holder, SOON));
    for (int i = 0; i < LEASED; i++)
        raw_worker_release(holder, &leases[i]); /* what an SDK does with what it has not started */
    rig_await(&rig, RIG_STORE, "10", 2000,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 't3' AND outcome = 'RELEASED'");
    ASSERT_OK(test_process_wait(rig.sagad, GRACE_MS + 3000, &status, &err), &err);
    int64_t took = clock_mono_ms(&clock_system) - begun;
    print_message("the stop took %lld ms\n", (long long)took);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(took <= GRACE_MS + 1000);
    rig.sagad = test_process_free(rig.sagad);
    assert_int_equal(raw_stream_status(read, 1000, NULL), UNAVAILABLE);
    (void)raw_stream_free(read); /* always NULL */
    for (int i = 0; i < STREAMS; i++) {
        assert_true(raw_worker_was_told_to_drain(idle[i], 1000));
        idle[i] = raw_worker_cut(idle[i]);
    }
    holder = raw_worker_cut(holder);
    /* Another worker has them at once, and no try was burned. */
    rig_server_start(&rig);
    (void)rig_worker(&rig, "other", "t3:10"); /* the rig owns it */
    rig_await_states(&rig, "t3", "t3-", "SUCCEEDED", LEASED, SOON);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT max(try) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 't3'"),
                     1);
    proof_fault("SIGTERM as process 1", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(
            test_t3_as_process_1_an_ordered_stop_is_short_and_frees_what_was_not_started, check),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
