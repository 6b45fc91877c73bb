/* sagactl retry: a step again, now. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <saga/v1/operator.pb-c.h>

static const struct ctl_option options[] = {
    { "step", "NAME", false, "which step (default: the one that the saga stands at)" },
    { "reason", "TEXT", false, "why; kept in the journal" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__RetryStepRequest request = SAGA__V1__RETRY_STEP_REQUEST__INIT;
    (void)ctl_take_text(arguments, "step", &request.step);     /* or not */
    (void)ctl_take_text(arguments, "reason", &request.reason); /* or not */
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/RetryStep", "tried again",
                                           &request.base, &request.saga, &request.actor });
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
