#include "base/err.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const code_names[] = {
    [ERR_OK] = "OK",
    [ERR_INVALID] = "INVALID",
    [ERR_NOT_FOUND] = "NOT_FOUND",
    [ERR_EXISTS] = "EXISTS",
    [ERR_PRECONDITION] = "PRECONDITION",
    [ERR_CONFLICT] = "CONFLICT",
    [ERR_LIMIT] = "LIMIT",
    [ERR_UNAVAILABLE] = "UNAVAILABLE",
    [ERR_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [ERR_NOMEM] = "NOMEM",
    [ERR_INTERNAL] = "INTERNAL",
};
_Static_assert(ARRAY_LEN(code_names) == ERR_CODE_COUNT, "a name for each code");

const char *err_code_name(enum err_code code)
{
    return code < ERR_CODE_COUNT ? code_names[code] : "?";
}

static int err_fill(struct err *err, enum err_code code, const char *fmt, va_list args)
{
    memset(err, 0, sizeof *err);
    err->code = code;
    err->retryable = code == ERR_UNAVAILABLE || code == ERR_CONFLICT;
    (void)vsnprintf(err->msg, sizeof err->msg, fmt, args); /* cut is fine */
    err->msg[utf8_cut(err->msg, strlen(err->msg), sizeof err->msg - 1)] = '\0';
    return (int)code;
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int rc = err_fill(err, code, fmt, args);
    va_end(args);
    return rc;
}

int err_reason(struct err *err, enum err_code code, const char *reason, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int rc = err_fill(err, code, fmt, args);
    va_end(args);
    (void)snprintf(err->reason, sizeof err->reason, "%s", reason);
    return rc;
}

int err_field(struct err *err, const char *field, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int rc = err_fill(err, ERR_INVALID, fmt, args);
    va_end(args);
    (void)snprintf(err->field, sizeof err->field, "%s", field);
    return rc;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    char context[sizeof err->msg];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(context, sizeof context, fmt, args);
    va_end(args);
    char msg[sizeof err->msg];
    memcpy(msg, err->msg, sizeof msg);
    size_t used = strlen(context);
    if (used + 3 < sizeof err->msg) {
        (void)snprintf(err->msg, sizeof err->msg, "%s: %s", context, msg);
        err->msg[utf8_cut(err->msg, strlen(err->msg), sizeof err->msg - 1)] = '\0';
    }
    return (int)err->code;
}
