#include "ctl/client_failure.h"

#include <google/rpc/error_details.pb-c.h>
#include <google/rpc/status.pb-c.h>
#include <stdio.h>
#include <string.h>

/* gRPC's numbers, their names, and what they are to us. */
static const struct {
    const char *name;
    enum err_code code;
} codes[] = {
    [0] = { "OK", ERR_INTERNAL }, /* never read as a failure */
    [1] = { "CANCELLED", ERR_UNAVAILABLE },
    [2] = { "UNKNOWN", ERR_INTERNAL },
    [3] = { "INVALID_ARGUMENT", ERR_INVALID },
    [4] = { "DEADLINE_EXCEEDED", ERR_UNAVAILABLE },
    [5] = { "NOT_FOUND", ERR_NOT_FOUND },
    [6] = { "ALREADY_EXISTS", ERR_EXISTS },
    [7] = { "PERMISSION_DENIED", ERR_PRECONDITION },
    [8] = { "RESOURCE_EXHAUSTED", ERR_LIMIT },
    [9] = { "FAILED_PRECONDITION", ERR_PRECONDITION },
    [10] = { "ABORTED", ERR_CONFLICT },
    [11] = { "OUT_OF_RANGE", ERR_INVALID },
    [12] = { "UNIMPLEMENTED", ERR_UNIMPLEMENTED },
    [13] = { "INTERNAL", ERR_INTERNAL },
    [14] = { "UNAVAILABLE", ERR_UNAVAILABLE },
    [15] = { "DATA_LOSS", ERR_INTERNAL },
    [16] = { "UNAUTHENTICATED", ERR_PRECONDITION },
};
enum { CODE_UNKNOWN = 2, CODE_DEADLINE_EXCEEDED = 4 };

const char *client_code_name(int code)
{
    return code >= 0 && (size_t)code < ARRAY_LEN(codes) ? codes[code].name
                                                        : codes[CODE_UNKNOWN].name;
}

void client_failure_done(struct client_failure *failure)
{
    mem_free(failure->message);
    for (size_t i = 0; i < failure->violation_count; i++) {
        mem_free(failure->violations[i].field);
        mem_free(failure->violations[i].description);
    }
    mem_free(failure->violations);
    *failure = (struct client_failure){ .code = -1, .retry_delay_ms = -1 };
}

static void read_error_info(const Google__Protobuf__Any *any, struct client_failure *failure)
{
    Google__Rpc__ErrorInfo *info =
        google__rpc__error_info__unpack(NULL, any->value.len, any->value.data);
    if (!info)
        return;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", info->reason);
    google__rpc__error_info__free_unpacked(info, NULL);
}

static void read_retry_info(const Google__Protobuf__Any *any, struct client_failure *failure)
{
    Google__Rpc__RetryInfo *info =
        google__rpc__retry_info__unpack(NULL, any->value.len, any->value.data);
    if (!info)
        return;
    const Google__Protobuf__Duration *delay = info->retry_delay;
    if (delay && delay->seconds >= 0 && delay->seconds < INT32_MAX)
        failure->retry_delay_ms = delay->seconds * 1000 + delay->nanos / 1000000;
    google__rpc__retry_info__free_unpacked(info, NULL);
}

static void read_bad_request(const Google__Protobuf__Any *any, struct client_failure *failure)
{
    Google__Rpc__BadRequest *bad =
        google__rpc__bad_request__unpack(NULL, any->value.len, any->value.data);
    if (!bad)
        return;
    size_t count = bad->n_field_violations;
    if (!failure->violations && count)
        failure->violations = mem_calloc(count, sizeof *failure->violations);
    for (size_t i = 0; failure->violations && i < count; i++) {
        struct client_violation *violation = &failure->violations[i];
        violation->field = mem_strdup(bad->field_violations[i]->field);
        violation->description = mem_strdup(bad->field_violations[i]->description);
        failure->violation_count = i + 1;
        if (!violation->field || !violation->description)
            break; /* out of memory: what is there is shown */
    }
    google__rpc__bad_request__free_unpacked(bad, NULL);
}

static void read_details(struct bytes details, struct client_failure *failure)
{
    Google__Rpc__Status *status = google__rpc__status__unpack(NULL, details.size, details.data);
    if (!status)
        return;
    for (size_t i = 0; i < status->n_details; i++) {
        const Google__Protobuf__Any *any = status->details[i];
        const char *slash = strrchr(any->type_url, '/');
        const char *type = slash ? slash + 1 : any->type_url;
        if (strcmp(type, "google.rpc.ErrorInfo") == 0)
            read_error_info(any, failure);
        else if (strcmp(type, "google.rpc.RetryInfo") == 0)
            read_retry_info(any, failure);
        else if (strcmp(type, "google.rpc.BadRequest") == 0 && !failure->violations)
            read_bad_request(any, failure);
    }
    google__rpc__status__free_unpacked(status, NULL);
}

int client_failure_read(int code, char *message, struct bytes details,
                        struct client_failure *ret_failure, struct err *err)
{
    struct client_failure failure = { .code = code, .message = message, .retry_delay_ms = -1 };
    if (details.size)
        read_details(details, &failure);
    if (code == CODE_DEADLINE_EXCEEDED && !failure.reason[0])
        (void)snprintf(failure.reason, sizeof failure.reason, "DEADLINE_EXCEEDED");
    bool known = code > 0 && (size_t)code < ARRAY_LEN(codes);
    enum err_code mapped = codes[known ? code : CODE_UNKNOWN].code;
    (void)err_reason(err, mapped, failure.reason, "%s", message ? message : "(out of memory)");
    if (failure.violation_count && failure.violations[0].field)
        (void)snprintf(err->field, sizeof err->field, "%s", failure.violations[0].field);
    *ret_failure = failure;
    return (int)mapped;
}
