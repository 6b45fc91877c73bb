/* sagactl suspend: stops a saga for now. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <saga/v1/operator.pb-c.h>

static const struct ctl_option options[] = {
    { "reason", "TEXT", false, "why; kept in the journal (required)" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__SuspendSagaRequest request = SAGA__V1__SUSPEND_SAGA_REQUEST__INIT;
    if (!ctl_take_text(arguments, "reason", &request.reason))
        return ctl_print_misuse(
            "suspend needs --reason: whoever finds it parked wants to know why");
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/SuspendSaga", "suspended",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_suspend = {
    "suspend",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "stop a saga for now: nothing more is granted until sagactl resume\n"
    "\n"
    "A worker that holds a step may end it, and its report is recorded. The time until then "
    "counts\n"
    "for no retry budget and no deadline; it does count for an idempotency window, since the "
    "other\n"
    "side forgets its keys all the same.",
    run,
};
