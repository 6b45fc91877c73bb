/* A scenario: a text file that says what there is, what happens when, and, below a line of dashes,
 * the trace that must come of it, to the letter. README.md has the words. */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include "base/buf.h"
#include "core/words.h"

#include <stdbool.h>
#include <stdint.h>

struct world;

/* What a handler does at one try; without a plan it thinks for 10 ms and all goes well. */
struct plan {
    struct plan *next;
    const char *saga_id, *step;
    enum operation operation;
    int try_;
    int64_t think_ms, arrive_ms; /* before the request; on its way */
    bool careless;               /* does not ask whether the task is still its own */
    enum plan_answer {
        PLAN_DONE,
        PLAN_NO,       /* the business says no */
        PLAN_NOT_SENT, /* certainly no effect */
        PLAN_LOST,     /* the request is lost */
        PLAN_UNHEARD,  /* it takes effect, the answer is lost */
        PLAN_UNSURE,   /* a probe: STILL_UNKNOWN */
        PLAN_EXISTS,   /* it exists already, by another */
    } answer;
};

enum commit_fate { COMMIT_AS_USUAL, COMMIT_CUT_BEFORE, COMMIT_CUT_AFTER, COMMIT_CUT_THEN };

/* Runs the file. *ret_trace: what came of it (owned); *ret_expected: what should have (owned).
 * False: it cannot be read, or a promise was broken; *ret_trace then ends with why. */
bool scenario_run(const char *path, struct buf *ret_trace, struct buf *ret_expected);

/* A script without a trace, into a world that was opened as `scripted`. False: a line means
 * nothing, as world->violation tells. */
bool scenario_read(struct world *world, const char *script);

/* NULL: no scenario, or no plan. */
const struct plan *scenario_plan(const struct world *world, const char *saga_id, const char *step,
                                 enum operation operation, int try_);

#endif
