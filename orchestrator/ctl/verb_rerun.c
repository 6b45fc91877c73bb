/* sagactl rerun: a saga that was taken back or abandoned, again. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <saga/v1/operator.pb-c.h>

static const struct ctl_option options[] = {
    { "reason", "TEXT", false, "required: why; kept in the audit" },
    { "revision", "N", false, "of the definition (default: the one that new sagas take)" },
    { "despite-effects", NULL, false,
      "although the old run may have left an effect, which the new one does again" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__RerunSagaRequest request = SAGA__V1__RERUN_SAGA_REQUEST__INIT;
    int64_t revision;
    struct err err;
    if (!ctl_take_text(arguments, "reason", &request.reason))
        return ctl_print_misuse("rerun needs --reason: it is kept in the audit");
    if (ctl_option_number(arguments, "revision", 1, INT32_MAX, 0, &revision, &err) != 0)
        return ctl_print_error(&err);
    request.revision = (int32_t)revision;
    request.despite_effects = ctl_option(arguments, "despite-effects") != NULL;
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/RerunSaga", "run again",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_rerun = {
    "rerun",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "run a saga again that is COMPENSATED or ABANDONED: a new run with the same input\n"
    "\n"
    "The old run stays as it ended, and the new one names it. Its idempotency keys and guard rows "
    "are\n"
    "others, so whatever the old run did and did not take back is done again: such a rerun is "
    "refused\n"
    "unless --despite-effects says that this is known.",
    run,
};
