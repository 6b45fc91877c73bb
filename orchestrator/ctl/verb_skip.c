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
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    Saga__V1__SkipCompensationRequest request = SAGA__V1__SKIP_COMPENSATION_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    const char *step = ctl_option(arguments, "step"), *evidence = ctl_option(arguments, "evidence");
    struct err err;
    if (!evidence) {
        (void)err_set(&err, ERR_INVALID, "skip needs --evidence: why it is not needed");
        return ctl_print_error(&err);
    }
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc != 0)
        return rc;
    ctl_actor(actor);
    request.saga = &named.ref;
    request.actor = actor;
    request.evidence = (char *)evidence;
    if (step)
        request.step = (char *)step;
    rc = ctl_call(ctl, "/saga.v1.OperatorService/SkipCompensation", &request.base,
                  &saga__v1__saga__descriptor, &saga);
    if (rc != 0)
        return rc;
    return ctl_print_saga(ctl, "skipped", saga);
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
    "next.",
    run,
};
