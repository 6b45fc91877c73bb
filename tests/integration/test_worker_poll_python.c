/* Goal: any gRPC tool can be a worker. Method: thirty lines of Python with grpcio and the messages
 * that protoc makes, nothing of ours, at a real server that is killed meanwhile. */
#include "support/rig.h"
#include "support/scratch.h"

#include <stdio.h>
#include <sys/wait.h>

enum { SOON = 20000, SAGAS = 100 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "1s" } };
static struct test_process *worker;

static void run(const char *const *argv)
{
    struct test_process *process = NULL;
    struct err err;
    int status = 0;
    ASSERT_OK(test_process_run(argv, &process, &err), &err);
    ASSERT_OK(test_process_wait(process, SOON, &status, &err), &err);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s failed: see %s", argv[0], test_process_log(process));
    process = test_process_free(process);
}

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    worker = test_process_free(worker);
    return rig_down(&rig);
}

static void test_p2_p8_a_script_carries_sagas_over_a_kill_of_the_server(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH_SIZE], out[300], path[300];
    struct err err;
    ASSERT_OK(scratch_path("python", folder, &err), &err);
    (void)snprintf(out, sizeof out, "--python_out=%s", folder);
    (void)snprintf(path, sizeof path, "PYTHONPATH=%s", folder);
    const char *const mkdir_argv[] = { "/bin/mkdir", "-p", folder, NULL };
    run(mkdir_argv);
    const char *const protoc_argv[] = { PROTOC,
                                        "-I",
                                        SOURCE_DIR "/proto",
                                        "-I",
                                        PROTO_WELL_KNOWN,
                                        out,
                                        SOURCE_DIR "/proto/saga/v1/worker.proto",
                                        SOURCE_DIR "/proto/saga/v1/saga.proto",
                                        SOURCE_DIR "/proto/saga/v1/definition.proto",
                                        NULL };
    run(protoc_argv);
    static const char script[] = SOURCE_DIR "/tests/integration/poll_worker.py";
    const char *const argv[] = { PYTHON, script, rig.address, "act", NULL };
    const char *const env[] = { path, NULL };
    const struct test_process_options options = { .argv = argv, .env = env };
    rig_define(&rig, "python", NULL, "a: IDEMPOTENT | none\nb: IDEMPOTENT | none");
    ASSERT_OK(test_process_start(&options, &worker, &err), &err);
    rig_start_many(&rig, "python", "before-", SAGAS, "");
    rig_await_states(&rig, "python", "before-", "SUCCEEDED", SAGAS, SOON);
    rig_start_many(&rig, "python", "over-", SAGAS, "");
    rig_server_kill(&rig);
    rig_server_start(&rig);
    rig_await_states(&rig, "python", "over-", "SUCCEEDED", SAGAS, 3 * SOON);
    rig_assert_journal(&rig, "python", "before-0", "a.1 DONE, b.1 DONE");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(DISTINCT saga_uid) FROM journal WHERE output = 'b'"),
                     2 * SAGAS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p2_p8_a_script_carries_sagas_over_a_kill_of_the_server),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
