/* sagactl retry: a step again, now. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <saga/v1/operator.pb-c.h>
#include <string.h>

static const struct ctl_option options[] = {
    { "step", "NAME", false, "which step (default: the one that the saga stands at)" },
    { "reason", "TEXT", false, "why; kept in the journal" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

/* That the budget is fresh, and how long it is where it has begun already. */
static void write_budget(const Saga__V1__Saga *saga, int64_t now_ms, struct buf *out)
{
    const char *step = saga->waiting ? saga->waiting->step : "";
    for (size_t i = 0; i < saga->n_steps; i++) {
        const Saga__V1__StepStatus *status = saga->steps[i];
        if (strcmp(status->name, step) != 0)
            continue;
        buf_text(out, "step ");
        screen_text(out, step);
        buf_text(out, " has a fresh retry budget, ");
        if (status->retry_until_time) {
            buf_text(out, "until ");
            screen_time(out, status->retry_until_time, now_ms);
            buf_text(out, "\n");
        } else {
            buf_text(out, "which begins with its next attempt\n");
        }
    }
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__RetryStepRequest request = SAGA__V1__RETRY_STEP_REQUEST__INIT;
    (void)ctl_take_text(arguments, "step", &request.step);     /* or not */
    (void)ctl_take_text(arguments, "reason", &request.reason); /* or not */
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/RetryStep", "tried again",
                                           &request.base, &request.saga, &request.actor,
                                           write_budget });
}

const struct ctl_verb verb_retry = {
    "retry",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "try a step again now, with a fresh retry budget\n"
    "\n"
    "Ends a back-off, or takes a parked saga back to its phase. While the outcome of the step is\n"
    "unknown its probe is asked again; without one it is refused: a repeat would not be provably\n"
    "safe.",
    run,
};
