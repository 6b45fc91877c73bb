/* sagactl resume: takes a suspended saga on. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <saga/v1/operator.pb-c.h>

static const struct ctl_option options[] = {
    { "reason", "TEXT", false, "why; kept in the journal" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__ResumeSagaRequest request = SAGA__V1__RESUME_SAGA_REQUEST__INIT;
    (void)ctl_take_text(arguments, "reason", &request.reason); /* or not */
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/ResumeSaga", "resumed",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_resume = {
    "resume",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "take a suspended saga on, as its journal then says\n"
    "\n"
    "A saga that is parked for another reason is not suspended: sagactl where tells what settles\n"
    "that.",
    run,
};
