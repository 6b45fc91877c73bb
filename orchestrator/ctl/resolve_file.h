/* sagactl resolve --file: settles what a file of verdicts says, row by row. thread: the main
 * thread. */
#ifndef CTL_RESOLVE_FILE_H
#define CTL_RESOLVE_FILE_H

#include "ctl/ctl.h"

struct resolve_file_options {
    const char *path, *definition, *step; /* the last two NULL: the file says */
    bool dry_run, skip_bad;
};
/* Prints what becomes of it; the exit code. */
MUST_USE int resolve_file_run(struct ctl *ctl, const struct resolve_file_options *options);

#endif
