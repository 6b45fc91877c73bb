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
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    Saga__V1__RetryStepRequest request = SAGA__V1__RETRY_STEP_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc != 0)
        return rc;
    const char *step = ctl_option(arguments, "step");
    const char *reason = ctl_option(arguments, "reason");
    ctl_actor(actor);
    request.saga = &named.ref;
    request.actor = actor;
    if (step)
        request.step = (char *)step;
    if (reason)
        request.reason = (char *)reason;
    rc = ctl_call(ctl, "/saga.v1.OperatorService/RetryStep", &request.base,
                  &saga__v1__saga__descriptor, &saga);
    if (rc != 0)
        return rc;
    return ctl_print_saga(ctl, "tried again", saga);
}

const struct ctl_verb verb_retry = {
    "retry",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "try a step again now, with a fresh retry budget\n"
    "\n"
    "Ends a back-off, or takes a parked saga back to its phase. Refused while the outcome of the "
    "step\n"
    "is unknown: a repeat would not be provably safe.",
    run,
};
