/* sagactl cancel: turns a saga back. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    { "reason", "TEXT", false, "why; kept in the journal" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    (void)ctl_take_text(arguments, "reason", &request.reason); /* or not */
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.SagaService/CancelSaga", "cancelled",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_cancel = {
    "cancel",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "turn a saga back: whatever took effect or may have is compensated\n"
    "\n"
    "Returns once the decision is durable; compensations follow. Who asks is $SAGACTL_ACTOR or "
    "the\n"
    "user of this machine. Works while a saga is RUNNING, and on one that is PARKED before it "
    "turned\n"
    "back.",
    run,
};
