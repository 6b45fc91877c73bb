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
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc != 0)
        return rc;
    const char *reason = ctl_option(arguments, "reason");
    ctl_actor(actor);
    request.saga = &named.ref;
    request.actor = actor;
    if (reason)
        request.reason = (char *)reason;
    rc = ctl_call(ctl, "/saga.v1.SagaService/CancelSaga", &request.base,
                  &saga__v1__saga__descriptor, &saga);
    if (rc != 0)
        return rc;
    return ctl_print_saga(ctl, "cancelled", saga);
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
