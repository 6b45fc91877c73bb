/* Programs of PostgreSQL as children of ours. thread: the main thread, before others exist. */
#ifndef APP_DEV_CHILD_H
#define APP_DEV_CHILD_H

#include "app/dev_paths.h"

struct dev_child {
    const char *const *argv; /* argv[0]: path; ends with NULL */
    const char *log;         /* stdout and stderr are appended to it */
    const struct dev_user *user;
};

/* In a session of its own (Ctrl-C of the terminal is for us alone), as the user; it gets SIGINT
 * when we die, however that happens. */
MUST_USE int dev_child_start(const struct dev_child *child, pid_t *ret_pid, struct err *err);
/* Starts it and waits; ERR_PRECONDITION with the end of its log when it does not exit with 0. */
MUST_USE int dev_child_run(const struct dev_child *child, struct err *err);
/* "<what> ended with exit code 1; the end of <log>: ..." as ERR_PRECONDITION; returns the code. */
int dev_child_failed(const char *what, int status, const char *log, struct err *err);

#endif
