/* Runs many seeds, on several processes, and tells what came of it. */
#ifndef SIM_RUNNER_H
#define SIM_RUNNER_H

#include "sim/mutation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct runner_options {
    const uint64_t *first; /* run before all others; borrowed */
    size_t first_count;
    uint64_t from;
    uint64_t count;
    unsigned jobs;
    enum mutation mutation;
    bool goes_on; /* after a failure, which is printed */
};

struct runner_result {
    uint64_t ran;
    uint64_t *hits; /* HIT_COUNT; owned */
    bool failed;
    bool crashed;  /* the process that ran it died */
    uint64_t seed; /* the first that failed */
    int invariant; /* enum invariant */
    char text[480];
};

void runner_run(const struct runner_options *options, struct runner_result *ret);
void runner_result_done(struct runner_result *result);
/* One seed; prints the trace (at once, or its end if something is violated). False: violated. */
bool runner_show(uint64_t seed, enum mutation mutation, bool whole);

#endif
