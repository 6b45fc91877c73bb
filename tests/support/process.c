#include "support/process.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/scratch.h"
#include "support/scratch_exit.h"
#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MAX = 64 * 1024 * 1024, ENV_MAX = 512, POLL_MS = 5, TAIL_SHOWN = 200 };

struct test_process {
    struct test_process *next; /* every process that is not freed yet */
    pid_t pid;
    bool ended;
    int status;       /* of waitpid, once it has ended */
    size_t looked_at; /* output before it was matched already */
    char name[64];
    char log[SCRATCH_PATH_SIZE];
};

static struct test_process *all; /* of the test thread, as the header says */

static void end_all(void)
{
    for (struct test_process *process = all; process; process = process->next)
        test_process_kill(process);
}

/* In the child between fork and exec: system calls only. The errno of what failed goes to the
 * parent through `report_fd`, which an exec that works closes. */
static void child_exec(const struct test_process_options *options, const char *const *env,
                       int log_fd, int report_fd, pid_t parent)
{
    int death_signal = options->death_signal ? options->death_signal : SIGKILL;
    sigset_t none;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool ready = null_fd >= 0 && dup2(null_fd, 0) == 0 && dup2(log_fd, 1) == 1 &&
                 dup2(log_fd, 2) == 2 && sigemptyset(&none) == 0 &&
                 sigprocmask(SIG_SETMASK, &none, NULL) == 0;
    if (ready && options->directory)
        ready = chdir(options->directory) == 0;
    if (ready && options->uid != 0 && options->gid != 0 && geteuid() == 0)
        ready = setgroups(1, &options->gid) == 0 && setgid(options->gid) == 0 &&
                setuid(options->uid) == 0;
    /* After setuid, which clears it. */
    ready = ready && prctl(PR_SET_PDEATHSIG, death_signal) == 0 && getppid() == parent;
    if (ready)
        (void)execve(options->argv[0], (char *const *)options->argv,
                     (char *const *)env); /* returns only with an errno, reported below */
    int code = errno;
    ssize_t written = write(report_fd, &code, sizeof(code));
    _exit(written == sizeof(code) ? 127 : 126);
}

/* Ours, with the added ones in place of those of the same name. */
static int env_merge(const char *const *added, const char *ret_env[ENV_MAX], struct err *err)
{
    size_t count = 0, added_count = 0;
    for (; added && added[added_count]; added_count++) {
        if (count == ENV_MAX - 1)
            return err_set(err, ERR_LIMIT, "more than %d variables", ENV_MAX);
        ret_env[count++] = added[added_count];
    }
    for (char **ours = environ; *ours; ours++) {
        bool replaced = false;
        size_t name = strcspn(*ours, "=") + 1;
        for (size_t i = 0; i < added_count && !replaced; i++)
            replaced = strncmp(added[i], *ours, name) == 0;
        if (replaced)
            continue;
        if (count == ENV_MAX - 1)
            return err_set(err, ERR_LIMIT, "more than %d variables", ENV_MAX);
        ret_env[count++] = *ours;
    }
    ret_env[count] = NULL;
    return 0;
}

static int spawn(const struct test_process_options *options, struct test_process *process,
                 struct err *err)
{
    const char *env[ENV_MAX];
    if (env_merge(options->env, env, err))
        return (int)err->code;
    int log_fd = open(process->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int report[2] = { -1, -1 };
    if (log_fd < 0 || pipe2(report, O_CLOEXEC) != 0) {
        int code = errno;
        if (log_fd >= 0)
            (void)close(log_fd); /* nothing was written */
        return err_set(err, ERR_INTERNAL, "%s: %s", process->log, strerror(code));
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    int code = errno;
    if (pid == 0)
        child_exec(options, env, log_fd, report[1], parent);
    (void)close(log_fd);    /* the child's now */
    (void)close(report[1]); /* the child's now */
    ssize_t got = pid < 0 ? (ssize_t)sizeof(code) : read(report[0], &code, sizeof(code));
    (void)close(report[0]); /* only read */
    if (got == 0) {
        process->pid = pid;
        return 0;
    }
    if (pid > 0)
        (void)waitpid(pid, NULL, 0); /* it has nothing more to say */
    return err_set(err, ERR_INTERNAL, "start %s: %s", options->argv[0], strerror(code));
}

int test_process_start(const struct test_process_options *options,
                       struct test_process **ret_process, struct err *err)
{
    const char *slash = strrchr(options->argv[0], '/');
    const char *base = slash ? slash + 1 : options->argv[0];
    struct test_process *process = mem_calloc(1, sizeof(*process));
    if (!process)
        return err_set(err, ERR_NOMEM, "no memory for a process");
    char name[80];
    (void)snprintf(process->name, sizeof(process->name), "%s",
                   options->name ? options->name : base);        /* a longer name is cut */
    (void)snprintf(name, sizeof(name), "%s.log", process->name); /* fits */
    int rc = scratch_path(name, process->log, err);
    if (rc == 0)
        rc = spawn(options, process, err);
    if (rc) {
        mem_free(process);
        return rc;
    }
    scratch_remember_log(process->log);
    scratch_on_exit_end_children(end_all);
    process->next = all;
    all = process;
    *ret_process = process;
    return 0;
}

int test_process_run(const char *const *argv, struct test_process **ret_process, struct err *err)
{
    const struct test_process_options options = { .argv = argv };
    return test_process_start(&options, ret_process, err);
}

pid_t test_process_pid(const struct test_process *process)
{
    return process->pid;
}

const char *test_process_log(const struct test_process *process)
{
    return process->log;
}

bool test_process_running(struct test_process *process)
{
    if (!process->ended && waitpid(process->pid, &process->status, WNOHANG) == process->pid)
        process->ended = true;
    return !process->ended;
}

char *test_process_output(const struct test_process *process)
{
    int fd = open(process->log, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    off_t size = lseek(fd, 0, SEEK_END);
    if (size > OUTPUT_MAX)
        size = OUTPUT_MAX;
    char *text = size < 0 ? NULL : mem_calloc(1, (size_t)size + 1);
    if (text && pread(fd, text, (size_t)size, 0) != (ssize_t)size) {
        mem_free(text);
        text = NULL;
    }
    (void)close(fd); /* only read */
    return text;
}

/* Looks behind the last match; true when the text is there. */
static bool output_find(struct test_process *process, const char *text, char *ret_line, size_t size)
{
    CLEANUP(mem_free_p) char *output = test_process_output(process);
    if (!output || strlen(output) < process->looked_at)
        return false;
    const char *found = strstr(output + process->looked_at, text);
    if (!found)
        return false;
    process->looked_at = (size_t)(found - output) + strlen(text);
    while (found > output && found[-1] != '\n')
        found--;
    if (ret_line && size > 0)
        (void)snprintf(ret_line, size, "%.*s", (int)strcspn(found, "\n"),
                       found); /* cut on purpose */
    return true;
}

static void output_tail(const struct test_process *process, char *ret_tail, size_t size)
{
    CLEANUP(mem_free_p) char *output = test_process_output(process);
    size_t length = output ? strlen(output) : 0;
    const char *from = length > TAIL_SHOWN ? output + length - TAIL_SHOWN : output;
    (void)snprintf(ret_tail, size, "%s", from ? from : ""); /* cut on purpose */
}

int test_process_wait_output(struct test_process *process, const char *text, int64_t limit_ms,
                             char *ret_line, size_t size, struct err *err)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + limit_ms;
    char tail[TAIL_SHOWN + 1];
    for (;;) {
        /* In this order, so that the last words of a program that has ended are seen. */
        bool running = test_process_running(process);
        if (output_find(process, text, ret_line, size))
            return 0;
        bool late = clock_mono_ms(&clock_system) >= end_ms;
        if (!running || late) {
            output_tail(process, tail, sizeof(tail));
            return err_set(err, ERR_UNAVAILABLE, "%s %s without \"%s\": ...%s", process->name,
                           running ? "went on" : "ended", text, tail);
        }
        wait_ms(POLL_MS);
    }
}

int test_process_signal(struct test_process *process, int signal_number, struct err *err)
{
    if (!test_process_running(process) || kill(process->pid, signal_number) != 0)
        return err_set(err, ERR_NOT_FOUND, "%s (pid %d) has ended", process->name,
                       (int)process->pid);
    return 0;
}

void test_process_kill(struct test_process *process)
{
    if (process->ended)
        return;
    (void)kill(process->pid, SIGKILL); /* a zombie of ours at worst */
    while (waitpid(process->pid, &process->status, 0) < 0 && errno == EINTR)
        continue;
    process->ended = true;
}

int test_process_wait(struct test_process *process, int64_t limit_ms, int *ret_status,
                      struct err *err)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + limit_ms;
    while (test_process_running(process)) {
        if (clock_mono_ms(&clock_system) >= end_ms)
            return err_set(err, ERR_UNAVAILABLE, "%s (pid %d) has not ended after %lld ms",
                           process->name, (int)process->pid, (long long)limit_ms);
        wait_ms(POLL_MS);
    }
    *ret_status = process->status;
    return 0;
}

struct test_process *test_process_free(struct test_process *process)
{
    if (!process)
        return NULL;
    test_process_kill(process);
    struct test_process **place = &all;
    while (*place != process)
        place = &(*place)->next;
    *place = process->next;
    mem_free(process);
    return NULL;
}

int test_process_must_succeed(const struct test_process_options *options, int64_t limit_ms,
                              struct err *err)
{
    struct test_process *process;
    int status;
    if (test_process_start(options, &process, err))
        return (int)err->code;
    int rc = test_process_wait(process, limit_ms, &status, err);
    if (rc == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        char tail[TAIL_SHOWN + 1];
        output_tail(process, tail, sizeof(tail));
        rc = err_set(err, ERR_INTERNAL, "%s failed (status 0x%x): ...%s", process->name,
                     (unsigned)status, tail);
    }
    (void)test_process_free(process); /* always NULL */
    return rc;
}
