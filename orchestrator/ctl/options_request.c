#include "ctl/options_request.h"

#include "ctl/names.h"
#include "ctl/zone.h"
#include "wire/times.h"

#include <string.h>

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

static int read_deadline(const struct ctl_arguments *arguments, struct options_spans *spans,
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

int options_request_read(const struct ctl_arguments *arguments, struct options_spans *spans,
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
