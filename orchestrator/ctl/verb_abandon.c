/* sagactl abandon: ends a parked saga as it stands. */
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
    Saga__V1__AbandonSagaRequest request = SAGA__V1__ABANDON_SAGA_REQUEST__INIT;
    if (!ctl_take_text(arguments, "reason", &request.reason))
        return ctl_print_misuse("abandon needs --reason: it cannot be taken back");
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/AbandonSaga", "abandoned",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_abandon = {
    "abandon",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "end a parked saga as it stands: nothing more is done or taken back\n"
    "\n"
    "For what is settled outside. It cannot be taken back.",
    run,
};
