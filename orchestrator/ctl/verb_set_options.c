/* sagactl set-options: other numbers for a saga that runs. */
#include "ctl/options_request.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    OPTIONS_REQUEST_OPTIONS CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct options_spans spans;
    Saga__V1__SetOptionsRequest request = SAGA__V1__SET_OPTIONS_REQUEST__INIT;
    struct err err;
    if (options_request_read(arguments, &spans, &request, &err) != 0)
        return ctl_print_error(&err);
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/SetOptions", "options set",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_set_options = {
    "set-options",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "give a saga that runs another deadline, retry budget, back-off or lease\n"
    "\n"
    "From now on, and for this saga alone; kept in its journal. Its steps stay as they are. A "
    "parked\n"
    "saga stays parked until sagactl retry.",
    run,
};
