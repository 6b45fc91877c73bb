/* sagactl set-options: other numbers for a saga that runs. */
#include "ctl/ctl.h"
#include "ctl/names.h"
#include "ctl/verbs.h"
#include "ctl/zone.h"
#include "wire/times.h"

#include <saga/v1/operator.pb-c.h>
#include <string.h>

static const struct ctl_option options[] = {
    { "deadline", "TIME", false, "of the saga: +2h, 2026-03-02T06:00:00Z, or none" },
    { "retry-for", "SPAN", false, "retry budget, from the first attempt on: 30m, 12h, 3d" },
    { "retry-initial", "SPAN", false, "the first back-off" },
    { "retry-cap", "SPAN", false, "the longest back-off" },
    { "max-attempts", "N", false, "tries of a budget; 0: its time alone decides" },
    { "lease", "SPAN", false, "length of a lease, 5s to 1h" },
    { "step", "NAME", false, "of this step (default: of every step)" },
    { "operation", "WHAT", false, "action, compensation or probe (default: all)" },
    { "reason", "TEXT", false, "required: why; kept in the journal" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

/* The spans of a request, which it borrows. */
struct spans {
    Google__Protobuf__Duration retry_for, retry_initial, retry_cap, lease;
    Google__Protobuf__Timestamp deadline;
};

static int read_span(const struct ctl_arguments *arguments, const char *option,
                     Google__Protobuf__Duration *span, Google__Protobuf__Duration **ret,
                     struct err *err)
{
    const char *value = ctl_option(arguments, option);
    int64_t ms;
    if (!value)
        return 0;
    if (!ctl_duration(value, &ms) || ms <= 0)
        return err_set(err, ERR_INVALID, "--%s must be a time like 30s, 5m, 12h or 3d, not \"%s\"",
                       option, value);
    google__protobuf__duration__init(span);
    duration_from_ms(ms, span);
    *ret = span;
    return 0;
}

static int read_deadline(const struct ctl_arguments *arguments, struct spans *spans,
                         Saga__V1__SetOptionsRequest *request, struct err *err)
{
    const char *value = ctl_option(arguments, "deadline");
    int64_t ms;
    if (!value)
        return 0;
    if (strcmp(value, "none") == 0) {
        request->deadline_case = SAGA__V1__SET_OPTIONS_REQUEST__DEADLINE_NO_DEADLINE;
        request->no_deadline = 1;
        return 0;
    }
    if (ctl_zone_time("deadline", value, ctl_now_ms(), &ms, err) != 0)
        return (int)err->code;
    google__protobuf__timestamp__init(&spans->deadline);
    timestamp_from_ms(ms, &spans->deadline);
    request->deadline_case = SAGA__V1__SET_OPTIONS_REQUEST__DEADLINE_DEADLINE_TIME;
    request->deadline_time = &spans->deadline;
    return 0;
}

static int read_request(const struct ctl_arguments *arguments, struct spans *spans,
                        Saga__V1__SetOptionsRequest *request, struct err *err)
{
    const char *operation = ctl_option(arguments, "operation");
    int64_t attempts = -1;
    int rc = read_span(arguments, "retry-for", &spans->retry_for, &request->retry_for, err);
    if (!rc)
        rc = read_span(arguments, "retry-initial", &spans->retry_initial, &request->retry_initial,
                       err);
    if (!rc)
        rc = read_span(arguments, "retry-cap", &spans->retry_cap, &request->retry_cap, err);
    if (!rc)
        rc = read_span(arguments, "lease", &spans->lease, &request->lease, err);
    if (!rc)
        rc = read_deadline(arguments, spans, request, err);
    if (!rc)
        rc = ctl_option_number(arguments, "max-attempts", 0, INT32_MAX, -1, &attempts, err);
    if (!rc && attempts >= 0) {
        request->_max_attempts_case = SAGA__V1__SET_OPTIONS_REQUEST___MAX_ATTEMPTS_MAX_ATTEMPTS;
        request->max_attempts = (int32_t)attempts;
    }
    if (!rc && operation && !name_operation_read(operation, &request->operation))
        rc = err_set(err, ERR_INVALID,
                     "--operation must be action, compensation or probe, not \"%s\"", operation);
    if (!rc && !ctl_take_text(arguments, "reason", &request->reason))
        rc = err_set(err, ERR_INVALID, "--reason is required: it is kept in the journal");
    (void)ctl_take_text(arguments, "step", &request->step); /* or every one */
    return rc;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct spans spans;
    Saga__V1__SetOptionsRequest request = SAGA__V1__SET_OPTIONS_REQUEST__INIT;
    struct err err;
    if (read_request(arguments, &spans, &request, &err) != 0)
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
