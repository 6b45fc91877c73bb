/* Points in time as people give them on the command line. thread: the main thread (the C library's
 * time zone is the process's). */
#ifndef CTL_ZONE_H
#define CTL_ZONE_H

#include "base/err.h"

#include <stdint.h>

/* The zone of local times from here on, as in the tz database: "Europe/Berlin", "UTC". ERR_INVALID
 * for one that this machine does not know. */
MUST_USE int ctl_zone_set(const char *zone, struct err *err);
/* "2026-03-02T14:05:00Z", with an offset instead of Z, or "+2h", "-30m" from now; local times:
 * "2026-03-02 14:05[:00]", "2026-03-02" (its first minute), "14:05" (the last time that it was so).
 * ERR_INVALID names --option: also for a local time that the clocks skipped, or showed twice. */
MUST_USE int ctl_zone_time(const char *option, const char *text, int64_t now_ms, int64_t *ret_ms,
                           struct err *err);

#endif
