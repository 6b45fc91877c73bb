/* `sagad dev` and the start and end of `sagad serve`. Goal: one command makes a database, serves
 * and ends cleanly; whatever is killed, the next start carries on with the same data; a start that
 * cannot work says why. Method: the programs as people run them, their output and exit codes. */
#include "support/command.h"
#include "support/ports.h"
#include "support/scratch.h"
#include "support/wait.h"

#include "base/clock.h"
#include "base/mem.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_MS = 90000, END_MS = 40000, PATH_SIZE = 512 };

static struct {
    char data[SCRATCH_PATH_SIZE];
    char address[32];
    struct test_process *dev; /* NULL: it does not run */
} fixture;

static void dev_start(const char *data)
{
    const char *const argv[] = { SAGAD_BINARY,    "dev",     "--data", data, "--listen",
                                 fixture.address, "--grace", "2s",     NULL };
    struct err err;
    char line[PATH_SIZE];
    /* SIGTERM, not SIGKILL, if the test dies: it then ends its PostgreSQL in order. */
    const struct test_process_options options = { .argv = argv, .death_signal = SIGTERM };
    ASSERT_OK(test_process_start(&options, &fixture.dev, &err), &err);
    ASSERT_OK(
        test_process_wait_output(fixture.dev, "serving on", START_MS, line, sizeof line, &err),
        &err);
    assert_non_null(strstr(line, fixture.address));
    ASSERT_OK(test_process_wait_output(fixture.dev, "Ctrl-C ends both", START_MS, NULL, 0, &err),
              &err);
}

static int dev_wait(void)
{
    struct err err;
    int status;
    ASSERT_OK(test_process_wait(fixture.dev, END_MS, &status, &err), &err);
    fixture.dev = test_process_free(fixture.dev);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void dev_end(int signal_number)
{
    struct err err;
    ASSERT_OK(test_process_signal(fixture.dev, signal_number, &err), &err);
    assert_int_equal(dev_wait(), 0);
}

/* Process id of the PostgreSQL of this data folder; 0: none runs. */
static pid_t postgres_pid(const char *data)
{
    char path[PATH_SIZE], name[64] = "";
    int pid = 0;
    (void)snprintf(path, sizeof path, "%s/postgres/postmaster.pid", data);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &pid) != 1)
        pid = 0;
    assert_int_equal(fclose(file), 0);
    (void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (!fgets(name, sizeof name, file))
        name[0] = '\0';
    assert_int_equal(fclose(file), 0);
    return strcmp(name, "postgres\n") == 0 ? pid : 0;
}

static bool no_postgres(void *ctx)
{
    return postgres_pid(ctx) == 0;
}

static void sagactl(int exit_code, const char *part, const char *const *words)
{
    const char *argv[COMMAND_ARGS_MAX] = { SAGACTL_BINARY, "--address", fixture.address };
    for (size_t i = 0; words[i]; i++) {
        assert_true(i + 4 < COMMAND_ARGS_MAX);
        argv[i + 3] = words[i];
    }
    command_expect(argv, NULL, exit_code, part);
}
#define SAGACTL(exit_code, part, ...)                                                              \
    sagactl(exit_code, part, (const char *const[]){ __VA_ARGS__, NULL })

static int setup(void **state)
{
    (void)state;
    struct err err;
    int port;
    SETUP_OK(scratch_path("dev", fixture.data, &err), &err);
    SETUP_OK(free_port(&port, &err), &err);
    (void)snprintf(fixture.address, sizeof fixture.address, "127.0.0.1:%d", port);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err err;
    if (fixture.dev && test_process_signal(fixture.dev, SIGTERM, &err) == 0) {
        int status;
        if (test_process_wait(fixture.dev, END_MS, &status, &err) != 0)
            print_error("sagad dev does not end: %s\n", err.msg);
    }
    fixture.dev = test_process_free(fixture.dev);
    return wait_until(no_postgres, fixture.data, END_MS) ? 0 : -1;
}

#define PAYMENT(id) "{\"payment_id\":\"" id "\",\"account\":1,\"amount_cents\":\"5\"}"

static void test_first_start_makes_a_database_and_ctrl_c_ends_both(void **state)
{
    (void)state;
    dev_start(fixture.data);
    pid_t postgres = postgres_pid(fixture.data);
    assert_true(postgres > 0);
    SAGACTL(0, "revision 1", "definition", "apply", SOURCE_DIR "/workers/demo/settlement.proto");
    SAGACTL(0, "started: settlement order-1", "start", "settlement", PAYMENT("order-1"));
    dev_end(SIGINT);
    assert_int_equal(kill(postgres, 0), -1);
    assert_int_equal(postgres_pid(fixture.data), 0);
}

static void test_second_start_carries_on_with_the_same_data(void **state)
{
    (void)state;
    dev_start(fixture.data);
    SAGACTL(0, "a worker that serves bank.v1.Settlement.DebitAccount", "where", "order-1");
    SAGACTL(0, "is there already", "start", "settlement", PAYMENT("order-1"));
    dev_end(SIGTERM);
}

static void test_folder_in_use_is_refused_naming_the_process(void **state)
{
    (void)state;
    char part[64];
    dev_start(fixture.data);
    (void)snprintf(part, sizeof part, "another sagad dev (process %d)",
                   (int)test_process_pid(fixture.dev));
    const char *const argv[] = { SAGAD_BINARY, "dev",         "--data", fixture.data,
                                 "--listen",   "127.0.0.1:0", NULL };
    command_expect(argv, NULL, 1, part);
    SAGACTL(0, "RUNNING", "where", "order-1"); /* the first one is none the worse */
}

static void test_kill_9_takes_postgresql_along_and_loses_nothing(void **state)
{
    (void)state;
    if (!fixture.dev)
        dev_start(fixture.data);
    SAGACTL(0, "started", "start", "settlement", PAYMENT("order-2"));
    test_process_kill(fixture.dev);
    fixture.dev = test_process_free(fixture.dev);
    dev_start(fixture.data); /* waits until the former PostgreSQL has ended */
    SAGACTL(0, "RUNNING", "where", "order-2");
}

static void test_postgresql_that_dies_ends_the_program_with_an_error(void **state)
{
    (void)state;
    if (!fixture.dev)
        dev_start(fixture.data);
    struct err err;
    assert_int_equal(kill(postgres_pid(fixture.data), SIGKILL), 0);
    ASSERT_OK(test_process_wait_output(fixture.dev, "PostgreSQL was ended by signal 9", END_MS,
                                       NULL, 0, &err),
              &err);
    assert_int_equal(dev_wait(), 1);
    dev_start(fixture.data);
    SAGACTL(0, "RUNNING", "where", "order-2");
    dev_end(SIGTERM);
}

static void test_a_path_too_long_for_a_socket_gets_one_elsewhere(void **state)
{
    (void)state;
    struct err err;
    char data[SCRATCH_PATH_SIZE], line[PATH_SIZE], deep[PATH_SIZE];
    ASSERT_OK(scratch_path("deep", data, &err), &err);
    (void)snprintf(deep, sizeof deep, "%s/%0*d", data, 90, 7);
    dev_start(deep);
    char *output = test_process_output(fixture.dev);
    const char *socket_folder = output ? strstr(output, "/tmp/sagad-dev-") : NULL;
    assert_non_null(socket_folder);
    (void)snprintf(line, sizeof line, "%.*s", socket_folder ? (int)strcspn(socket_folder, " ") : 0,
                   socket_folder ? socket_folder : "");
    mem_free(output);
    struct stat info;
    assert_int_equal(stat(line, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    dev_end(SIGTERM);
    assert_int_equal(rmdir(line), 0);
}

/* --- serve -------------------------------------------------------------------------------------
 */

static void test_serve_without_a_database_waits_then_gives_up_with_the_reason(void **state)
{
    (void)state;
    const char *const argv[] = { SAGAD_BINARY,        "serve",    "--database",
                                 "host=/nonexistent", "--listen", "127.0.0.1:0",
                                 "--start-timeout",   "1s",       NULL };
    int64_t before = clock_mono_ms(&clock_system);
    CLEANUP(command_done) struct command command = command_run(argv, NULL);
    assert_true(clock_mono_ms(&clock_system) - before >= 1000);
    assert_int_equal(command.exit_code, 1);
    assert_non_null(strstr(command.output, "waiting for PostgreSQL"));
    assert_non_null(strstr(command.output, "sagad: gave up after --start-timeout"));
    assert_non_null(strstr(command.output, "/nonexistent"));
}

static void test_a_signal_while_it_waits_for_a_database_ends_it(void **state)
{
    (void)state;
    const char *const argv[] = { SAGAD_BINARY, "serve",       "--database", "host=/nonexistent",
                                 "--listen",   "127.0.0.1:0", NULL };
    struct test_process *serve;
    struct err err;
    int status;
    ASSERT_OK(test_process_run(argv, &serve, &err), &err);
    ASSERT_OK(test_process_wait_output(serve, "waiting for PostgreSQL", START_MS, NULL, 0, &err),
              &err);
    ASSERT_OK(test_process_signal(serve, SIGTERM, &err), &err);
    ASSERT_OK(test_process_wait(serve, 10000, &status, &err), &err);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    serve = test_process_free(serve);
}

static void test_an_address_for_others_needs_a_word_of_consent(void **state)
{
    (void)state;
    const char *const refused[] = { SAGAD_BINARY, "serve", "--listen", "0.0.0.0:0", NULL };
    command_expect(refused, NULL, 1, "--insecure-listen");
    const char *const allowed[] = { SAGAD_BINARY,
                                    "serve",
                                    "--listen",
                                    "0.0.0.0:0",
                                    "--insecure-listen",
                                    "--database",
                                    "host=/nonexistent",
                                    "--start-timeout",
                                    "0",
                                    NULL };
    command_expect(allowed, NULL, 1, "neither encrypted nor authenticated");
}

/* A caller that waits keeps the drain busy for its grace: a second signal does not wait for that.
 */
static void test_a_second_signal_ends_at_once(void **state)
{
    (void)state;
    const char *const argv[] = { SAGAD_BINARY,    "dev",     "--data", fixture.data, "--listen",
                                 fixture.address, "--grace", "60s",    NULL };
    const struct test_process_options options = { .argv = argv, .death_signal = SIGTERM };
    const char *const wait_argv[] = { SAGACTL_BINARY, "--address", fixture.address,
                                      "wait",         "order-1",   "--timeout",
                                      "30",           NULL };
    struct test_process *wait;
    struct err err;
    int status = 0;
    ASSERT_OK(test_process_start(&options, &fixture.dev, &err), &err);
    ASSERT_OK(test_process_wait_output(fixture.dev, "serving on", START_MS, NULL, 0, &err), &err);
    ASSERT_OK(test_process_run(wait_argv, &wait, &err), &err);
    wait_ms(500); /* its call is open now */
    ASSERT_OK(test_process_signal(fixture.dev, SIGTERM, &err), &err);
    if (test_process_wait_output(fixture.dev, "stopping", END_MS, NULL, 0, &err) == 0 &&
        test_process_signal(fixture.dev, SIGINT, &err) == 0) {
        ASSERT_OK(test_process_wait(fixture.dev, 5000, &status, &err), &err);
        assert_true(WIFEXITED(status));
        /* 0: the drain was quicker than the second signal. */
        assert_true(WEXITSTATUS(status) == 130 || WEXITSTATUS(status) == 0);
    }
    fixture.dev = test_process_free(fixture.dev);
    wait = test_process_free(wait);
    assert_true(wait_until(no_postgres, fixture.data, END_MS));
}

static void test_wrong_usage_is_told_apart_from_failure(void **state)
{
    (void)state;
    const char *const rows[][6] = {
        { SAGAD_BINARY, "serve", "--graze", "1", NULL },
        { SAGAD_BINARY, "serve", "--grace", "long", NULL },
        { SAGAD_BINARY, "sing", NULL },
        { SAGAD_BINARY, NULL },
        { SAGAD_BINARY, "dev", "--database", "x", NULL },
        { SAGAD_BINARY, "serve", "--config", "/nonexistent.ini", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        command_expect(rows[i], NULL, 2, "sagad: ");
    const char *const version[] = { SAGAD_BINARY, "--version", NULL };
    command_expect(version, NULL, 0, "sagad ");
    const char *const help[] = { SAGAD_BINARY, "--help", NULL };
    command_expect(help, NULL, 0, "--insecure-listen");
    const char *const env[] = { "SAGAD_GRACE=3s", NULL };
    const char *const print[] = { SAGAD_BINARY, "serve", "--print-config", NULL };
    command_expect(print, env, 0, "grace = 3s ; environment");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_start_makes_a_database_and_ctrl_c_ends_both),
        cmocka_unit_test(test_second_start_carries_on_with_the_same_data),
        cmocka_unit_test(test_folder_in_use_is_refused_naming_the_process),
        cmocka_unit_test(test_kill_9_takes_postgresql_along_and_loses_nothing),
        cmocka_unit_test(test_postgresql_that_dies_ends_the_program_with_an_error),
        cmocka_unit_test(test_a_path_too_long_for_a_socket_gets_one_elsewhere),
        cmocka_unit_test(test_serve_without_a_database_waits_then_gives_up_with_the_reason),
        cmocka_unit_test(test_a_signal_while_it_waits_for_a_database_ends_it),
        cmocka_unit_test(test_an_address_for_others_needs_a_word_of_consent),
        cmocka_unit_test(test_a_second_signal_ends_at_once),
        cmocka_unit_test(test_wrong_usage_is_told_apart_from_failure),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
