/* Plays a story's sagas: starts them evenly over some seconds, whatever dies meanwhile, and
 * waits until each one is at its end or parked. Shows progress on stdout: one line in place on a
 * terminal, a line every few seconds otherwise. One thread. */
#ifndef DEMO_DRIVER_RUN_H
#define DEMO_DRIVER_RUN_H

#include "base/err.h"
#include "story.h"

struct run_options {
    const struct story *story;
    const char *sagad;
    int count;
    int start_seconds; /* over which they are started */
    int limit_seconds; /* from the first start to rest */
};

/* ERR_LIMIT: not at rest in time; the message names the first ones that are not. */
MUST_USE int driver_run(const struct run_options *options, struct err *err);

#endif
