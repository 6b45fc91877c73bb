/* Child processes of a test: start, watch, signal, end. Output (stdout and stderr) goes to a log
 * file. Every child gets a signal when the test program dies, however that happens, and is killed
 * at exit at the latest. thread: one at a time; start children from a thread that lives as long as
 * they do (the kernel signals a child when the thread that started it ends). */
#ifndef SUPPORT_PROCESS_H
#define SUPPORT_PROCESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct test_process;

struct test_process_options {
    const char *name;        /* of the log file; NULL: the program's base name */
    const char *const *argv; /* argv[0] is the path (no search in PATH), NULL at the end */
    const char *const *env;  /* "NAME=value" added to ours, NULL at the end; NULL: none */
    const char *directory;   /* working directory; NULL: ours */
    uid_t uid;               /* run as this user and group when both are not 0 and we are root */
    gid_t gid;
    int death_signal; /* what the child gets when we die; 0: SIGKILL */
};

/* The caller owns *ret_process and calls test_process_free. Fails too when the program cannot be
 * executed. */
MUST_USE int test_process_start(const struct test_process_options *options,
                                struct test_process **ret_process, struct err *err);
/* The short form: argv only, everything else by default. */
MUST_USE int test_process_run(const char *const *argv, struct test_process **ret_process,
                              struct err *err);

pid_t test_process_pid(const struct test_process *process);
/* Borrowed until test_process_free; the file stays until exit. */
const char *test_process_log(const struct test_process *process);
/* Has it not ended yet? */
bool test_process_running(struct test_process *process);

/* Waits until the output holds `text`. Each call looks from behind the last match on (or from the
 * beginning), so that the same line can be awaited twice. Fails when the program ends without it or
 * when the limit is over. `ret_line`, if not NULL, gets the line that holds the text (cut to
 * `size` - 1 bytes). */
MUST_USE int test_process_wait_output(struct test_process *process, const char *text,
                                      int64_t limit_ms, char *ret_line, size_t size,
                                      struct err *err);
/* The whole output so far, NUL-terminated; the caller frees it with mem_free. NULL: no memory or no
 * file. */
char *test_process_output(const struct test_process *process);

/* SIGTERM, SIGSTOP, SIGCONT ... to the process itself; fails when it has ended. */
MUST_USE int test_process_signal(struct test_process *process, int signal_number, struct err *err);
/* SIGKILL, and waits until it is gone. Fine if it has ended. */
void test_process_kill(struct test_process *process);
/* Waits for the end; *ret_status as of waitpid. Fails when the limit is over (it runs on). */
MUST_USE int test_process_wait(struct test_process *process, int64_t limit_ms, int *ret_status,
                               struct err *err);
/* Kills it if it runs. NULL is fine; always returns NULL. */
struct test_process *test_process_free(struct test_process *process);

/* Runs a program to its end; fails with the end of its output when that is not exit code 0. */
MUST_USE int test_process_must_succeed(const struct test_process_options *options, int64_t limit_ms,
                                       struct err *err);

#endif
