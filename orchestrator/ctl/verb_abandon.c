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
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    Saga__V1__AbandonSagaRequest request = SAGA__V1__ABANDON_SAGA_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    const char *reason = ctl_option(arguments, "reason");
    struct err err;
    if (!reason) {
        (void)err_set(&err, ERR_INVALID, "abandon needs --reason: it cannot be taken back");
        return ctl_print_error(&err);
    }
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc != 0)
        return rc;
    ctl_actor(actor);
    request.saga = &named.ref;
    request.actor = actor;
    request.reason = (char *)reason;
    rc = ctl_call(ctl, "/saga.v1.OperatorService/AbandonSaga", &request.base,
                  &saga__v1__saga__descriptor, &saga);
    if (rc != 0)
        return rc;
    return ctl_print_saga(ctl, "abandoned", saga);
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
