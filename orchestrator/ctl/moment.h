/* Points in time as people say them on a command line, in local time. Any thread, but for the time
 * zone of the process. */
#ifndef CTL_MOMENT_H
#define CTL_MOMENT_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

#define CTL_MOMENT_HELP "22:00 (the last time it was), 2h (ago), \"2026-11-30 22:00\" or RFC 3339"

/* See CTL_MOMENT_HELP; Unix milliseconds. False for anything else. */
MUST_USE bool ctl_moment(const char *text, int64_t now_ms, int64_t *ret_ms);

#endif
