/* sagactl skip: goes on without a compensation. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <saga/v1/operator.pb-c.h>

static const struct ctl_option options[] = {
    { "step", "NAME", false, "which step (default: the one that the saga is parked at)" },
    { "evidence", "TEXT", false, "why it is not needed; kept in the journal (required)" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__SkipCompensationRequest request = SAGA__V1__SKIP_COMPENSATION_REQUEST__INIT;
    (void)ctl_take_text(arguments, "step", &request.step); /* or not */
    if (!ctl_take_text(arguments, "evidence", &request.evidence))
        return ctl_print_misuse("skip needs --evidence: why it is not needed");
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/SkipCompensation", "skipped",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_skip = {
    "skip",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "go on without the compensation that a saga is parked at\n"
    "\n"
    "It counts as done: taken back by hand, or accepted as it is. The step before is compensated\n"
    "next. The saga is in doubt until sagactl resolve says what became of it.",
    run,
};
