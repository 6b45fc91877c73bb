/* The support library keeps its word. Goal: a scenario that kills PostgreSQL or a program really
 * did so, and nothing that it started is left. Method: a real cluster and small shell commands. */
#include "support/check.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/ports.h"
#include "support/postgres.h"
#include "support/process.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int setup(void **state)
{
    struct test_postgres *postgres;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    *state = postgres;
    return 0;
}

static int teardown(void **state)
{
    (void)test_postgres_free(*state); /* always NULL */
    return 0;
}

static void run_shell(const char *script, struct test_process **ret_process)
{
    const char *const argv[] = { "/bin/sh", "-c", script, NULL };
    struct err err;
    ASSERT_OK(test_process_run(argv, ret_process, &err), &err);
}

static void test_the_cluster_flushes_its_commits(void **state)
{
    char text[16];
    struct err err;
    ASSERT_OK(test_postgres_query(*state, "postgres", "SHOW fsync", text, sizeof(text), &err),
              &err);
    assert_string_equal(text, "on");
    ASSERT_OK(test_postgres_query(*state, "postgres", "SHOW synchronous_commit", text, sizeof(text),
                                  &err),
              &err);
    assert_string_equal(text, "on");
}

static void test_committed_rows_survive_kill_9_of_the_postmaster(void **state)
{
    struct test_postgres *postgres = *state;
    struct err err;
    int64_t count;
    ASSERT_OK(test_postgres_createdb(postgres, "crash", NULL, &err), &err);
    ASSERT_OK(test_postgres_exec(postgres, "crash",
                                 "CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)", &err),
              &err);
    pid_t before = test_postgres_pid(postgres);
    test_postgres_kill(postgres);
    assert_int_equal(kill(before, 0), -1);
    assert_int_not_equal(test_postgres_count(postgres, "crash", "SELECT 1", &count, &err), 0);
    ASSERT_OK(test_postgres_restart(postgres, &err), &err);
    assert_int_not_equal(test_postgres_pid(postgres), before);
    ASSERT_OK(test_postgres_count(postgres, "crash", "SELECT count(*) FROM t", &count, &err), &err);
    assert_int_equal(count, 2);
    ASSERT_OK(test_postgres_dropdb(postgres, "crash", &err), &err);
}

static void test_fast_and_immediate_stop_and_start_again(void **state)
{
    struct test_postgres *postgres = *state;
    struct err err;
    char text[8];
    ASSERT_OK(test_postgres_stop_fast(postgres, &err), &err);
    assert_int_equal(test_postgres_pid(postgres), 0);
    ASSERT_OK(test_postgres_restart(postgres, &err), &err);
    ASSERT_OK(test_postgres_stop_immediate(postgres, &err), &err);
    assert_int_equal(test_postgres_stop_immediate(postgres, &err), ERR_PRECONDITION);
    ASSERT_OK(test_postgres_restart(postgres, &err), &err);
    assert_int_equal(test_postgres_restart(postgres, &err), ERR_PRECONDITION);
    ASSERT_OK(test_postgres_query(postgres, "postgres", "SELECT 'up'", text, sizeof(text), &err),
              &err);
    assert_string_equal(text, "up");
}

static void test_sql_errors_are_told(void **state)
{
    struct err err;
    char text[8];
    assert_int_equal(test_postgres_exec(*state, "postgres", "SELEC", &err), ERR_INTERNAL);
    assert_non_null(strstr(err.msg, "syntax error"));
    assert_int_equal(
        test_postgres_query(*state, "postgres", "SELECT 1 WHERE false", text, sizeof(text), &err),
        ERR_NOT_FOUND);
    assert_int_equal(test_postgres_createdb(*state, "a\"b", NULL, &err), ERR_INVALID);
}

static void test_output_is_awaited_line_by_line(void **state)
{
    (void)state;
    struct test_process *process;
    struct err err;
    char line[32];
    int status;
    run_shell("echo ready 1; echo ready 2 >&2; exit 3", &process);
    ASSERT_OK(test_process_wait_output(process, "ready", 10000, line, sizeof(line), &err), &err);
    assert_string_equal(line, "ready 1");
    ASSERT_OK(test_process_wait_output(process, "ready", 10000, line, sizeof(line), &err), &err);
    assert_string_equal(line, "ready 2");
    assert_int_equal(test_process_wait_output(process, "ready", 10000, NULL, 0, &err),
                     ERR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "ended"));
    ASSERT_OK(test_process_wait(process, 10000, &status, &err), &err);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_int_equal(test_process_signal(process, SIGTERM, &err), ERR_NOT_FOUND);
    assert_null(test_process_free(process));
}

static void test_a_limit_ends_the_wait(void **state)
{
    (void)state;
    struct test_process *process;
    struct err err;
    int status;
    run_shell("echo up; exec sleep 600", &process);
    int64_t start_ms = clock_mono_ms(&clock_system);
    assert_int_equal(test_process_wait_output(process, "down", 50, NULL, 0, &err), ERR_UNAVAILABLE);
    assert_int_equal(test_process_wait(process, 50, &status, &err), ERR_UNAVAILABLE);
    assert_true(clock_mono_ms(&clock_system) - start_ms >= 100);
    assert_true(test_process_running(process));
    test_process_kill(process);
    ASSERT_OK(test_process_wait(process, 0, &status, &err), &err);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_null(test_process_free(process));
}

static bool is_stopped(void *ctx)
{
    char path[64], text[512] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)*(pid_t *)ctx); /* fits */
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool stopped = fgets(text, sizeof(text), file) && strstr(text, ") T ");
    (void)fclose(file); /* only read */
    return stopped;
}

static void test_a_stopped_program_goes_on_after_sigcont(void **state)
{
    (void)state;
    struct test_process *process;
    struct err err;
    run_shell("while :; do echo tick; sleep 0.01; done", &process);
    pid_t pid = test_process_pid(process);
    ASSERT_OK(test_process_wait_output(process, "tick", 10000, NULL, 0, &err), &err);
    ASSERT_OK(test_process_signal(process, SIGSTOP, &err), &err);
    assert_true(wait_until(is_stopped, &pid, 10000));
    while (test_process_wait_output(process, "tick", 0, NULL, 0, &err) == 0)
        continue;
    assert_int_equal(test_process_wait_output(process, "tick", 100, NULL, 0, &err),
                     ERR_UNAVAILABLE);
    ASSERT_OK(test_process_signal(process, SIGCONT, &err), &err);
    ASSERT_OK(test_process_wait_output(process, "tick", 10000, NULL, 0, &err), &err);
    assert_null(test_process_free(process));
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void test_variables_are_added_and_replaced(void **state)
{
    (void)state;
    const char *const argv[] = { "/bin/sh", "-c", "echo \"$SUPPORT_A-$PATH-$HOME\"", NULL };
    const char *const env[] = { "SUPPORT_A=one", "HOME=/nowhere", NULL };
    const struct test_process_options options = { .argv = argv, .env = env };
    char want[4096], line[4096];
    struct test_process *process;
    struct err err;
    ASSERT_OK(test_process_start(&options, &process, &err), &err);
    ASSERT_OK(test_process_wait_output(process, "one-", 10000, line, sizeof(line), &err), &err);
    (void)snprintf(want, sizeof(want), "one-%s-/nowhere", getenv("PATH")); /* fits */
    assert_string_equal(line, want);
    assert_null(test_process_free(process));
}

static void test_a_program_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    const char *const argv[] = { "/no/such/program", NULL };
    struct test_process *process;
    struct err err;
    assert_int_equal(test_process_run(argv, &process, &err), ERR_INTERNAL);
    assert_non_null(strstr(err.msg, "No such file"));
}

/* A child of ours starts a grandchild through the library and is then killed without a chance to
 * clean up: the grandchild must go too. */
static void test_children_die_with_the_test_program(void **state)
{
    (void)state;
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    if (child == 0) {
        const char *const argv[] = { "/bin/sleep", "600", NULL };
        struct test_process *process;
        struct err err;
        pid_t pid = test_process_run(argv, &process, &err) ? 0 : test_process_pid(process);
        ssize_t written = write(out[1], &pid, sizeof(pid));
        (void)pause(); /* until it is killed */
        _exit(written == sizeof(pid) ? 0 : 1);
    }
    pid_t grandchild = 0;
    assert_int_equal(read(out[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
    (void)close(out[0]); /* done with */
    (void)close(out[1]); /* done with */
    assert_true(grandchild > 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    int64_t end_ms = clock_mono_ms(&clock_system) + 10000;
    char path[64], text[512];
    bool gone = false;
    /* Its new parent may leave it as a zombie. */
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)grandchild); /* fits */
    while (!gone && clock_mono_ms(&clock_system) < end_ms) {
        FILE *file = fopen(path, "re");
        gone = !file || !fgets(text, sizeof(text), file) || strstr(text, ") Z ");
        if (file)
            (void)fclose(file); /* only read */
        wait_ms(5);
    }
    assert_true(gone);
}

static void test_ports_differ(void **state)
{
    (void)state;
    int ports[50];
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        ASSERT_OK(free_port(&ports[i], &err), &err);
        assert_in_range(ports[i], 1024, 32767);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(ports[i], ports[j]);
    }
}

static void test_scratch_paths_differ_and_trees_go(void **state)
{
    (void)state;
    char one[SCRATCH_PATH_SIZE], two[SCRATCH_PATH_SIZE], script[3 * SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("x", one, &err), &err);
    ASSERT_OK(scratch_path("x", two, &err), &err);
    assert_string_not_equal(one, two);
    (void)snprintf(script, sizeof(script), "mkdir -p %s/a/b && touch %s/a/f", one, one); /* fits */
    const char *const argv[] = { "/bin/sh", "-c", script, NULL };
    const struct test_process_options options = { .argv = argv };
    ASSERT_OK(test_process_must_succeed(&options, 10000, &err), &err);
    assert_int_equal(access(one, F_OK), 0);
    ASSERT_OK(scratch_remove(one, &err), &err);
    assert_int_equal(access(one, F_OK), -1);
    ASSERT_OK(scratch_remove(one, &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cluster_flushes_its_commits),
        cmocka_unit_test(test_committed_rows_survive_kill_9_of_the_postmaster),
        cmocka_unit_test(test_fast_and_immediate_stop_and_start_again),
        cmocka_unit_test(test_sql_errors_are_told),
        cmocka_unit_test(test_output_is_awaited_line_by_line),
        cmocka_unit_test(test_a_limit_ends_the_wait),
        cmocka_unit_test(test_a_stopped_program_goes_on_after_sigcont),
        cmocka_unit_test(test_variables_are_added_and_replaced),
        cmocka_unit_test(test_a_program_that_is_not_there_is_an_error),
        cmocka_unit_test(test_children_die_with_the_test_program),
        cmocka_unit_test(test_ports_differ),
        cmocka_unit_test(test_scratch_paths_differ_and_trees_go),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
