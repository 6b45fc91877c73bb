#include "app/dev_child.h"

#include "app/signals.h"

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

enum { EXIT_NO_START = 126, LOG_END_BYTES = 160, LOG_MODE = 0644 };

/* Between fork and exec: no allocation, no return. */
static _Noreturn void become(const struct dev_child *child, int log, pid_t parent)
{
    signals_restore();
    (void)setsid(); /* a fresh child leads no group: it works */
    if (child->user->other && (setgroups(1, &child->user->gid) != 0 ||
                               setgid(child->user->gid) != 0 || setuid(child->user->uid) != 0))
        _exit(EXIT_NO_START);
    /* After setuid, which takes it away. */
    if (prctl(PR_SET_PDEATHSIG, SIGINT) != 0 || getppid() != parent)
        _exit(EXIT_NO_START);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0 || chdir("/") != 0)
        _exit(EXIT_NO_START);
    (void)execv(child->argv[0], (char *const *)child->argv);
    _exit(EXIT_NO_START);
}

int dev_child_start(const struct dev_child *child, pid_t *ret_pid, struct err *err)
{
    int log = open(child->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, LOG_MODE);
    if (log < 0)
        return err_set(err, ERR_INVALID, "%s: %s", child->log, strerror(errno));
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become(child, log, parent);
    int failed = errno;
    (void)close(log); /* the child has it */
    if (pid < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", child->argv[0], strerror(failed));
    *ret_pid = pid;
    return 0;
}

/* The last bytes of a file as one line. */
static void log_end(const char *path, char *ret, size_t size)
{
    *ret = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fseek(file, -(long)(size - 1), SEEK_END) != 0)
        rewind(file); /* it is shorter */
    size_t count = fread(ret, 1, size - 1, file);
    (void)fclose(file); /* it was only read */
    while (count && ret[count - 1] == '\n')
        count--;
    ret[count] = '\0';
    for (char *p = ret; *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
}

int dev_child_failed(const char *what, int status, const char *log, struct err *err)
{
    char end[LOG_END_BYTES];
    log_end(log, end, sizeof end);
    if (WIFSIGNALED(status))
        return err_set(err, ERR_PRECONDITION, "%s was ended by signal %d; the end of %s: %s", what,
                       WTERMSIG(status), log, end);
    if (WEXITSTATUS(status) == EXIT_NO_START)
        return err_set(err, ERR_PRECONDITION, "%s cannot be started as the user it needs", what);
    return err_set(err, ERR_PRECONDITION, "%s ended with exit code %d; the end of %s: %s", what,
                   WEXITSTATUS(status), log, end);
}

int dev_child_run(const struct dev_child *child, struct err *err)
{
    pid_t pid = 0;
    int status;
    if (dev_child_start(child, &pid, err) != 0)
        return err->code;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set(err, ERR_INTERNAL, "%s: %s", child->argv[0], strerror(errno));
    return status == 0 ? 0 : dev_child_failed(child->argv[0], status, child->log, err);
}
