/* One scratch directory per test program, and what must not outlive the program. The directory is
 * made at the first use under $TMPDIR (or /tmp) and removed at exit together with every child that
 * test_process started; SAGAD_TEST_KEEP=1 keeps the directory and prints its name. When the program
 * exits with a failure the ends of the children's logs go to stderr first.
 * thread: the test thread only. */
#ifndef SUPPORT_SCRATCH_H
#define SUPPORT_SCRATCH_H

#include "base/err.h"

#include <stddef.h>

enum { SCRATCH_PATH_SIZE = 256 };

/* The directory (mode 0711: a server that runs as another user can reach its own part of it).
 * Borrowed until exit; NULL with err set when it cannot be made. */
const char *scratch_dir(struct err *err);
/* "<directory>/<counter>-<name>", a path that nobody else in this program gets. */
MUST_USE int scratch_path(const char *name, char ret_path[SCRATCH_PATH_SIZE], struct err *err);
/* Removes a file or a whole tree; fine if it is not there. */
MUST_USE int scratch_remove(const char *path, struct err *err);
/* The log's last lines are printed if the program exits with a failure. At most SCRATCH_LOGS_MAX
 * are remembered, the newest ones. */
enum { SCRATCH_LOGS_MAX = 32 };
void scratch_remember_log(const char *path);

#endif
