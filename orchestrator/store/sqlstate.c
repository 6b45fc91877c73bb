#include "store/sqlstate.h"

#include <stdio.h>
#include <string.h>

/* The first row whose prefix fits is taken. */
static const struct sqlstate_rule {
    const char *prefix;
    enum fault fault;
    enum err_code code;
    bool retryable;
    const char *why;
} rules[] = {
    /* clang-format off */
    { "08",    FAULT_CONNECTION, ERR_UNAVAILABLE, true,  "connection exception" },
    { "0A000", FAULT_CONNECTION, ERR_UNAVAILABLE, true,  "a cached plan that the schema outgrew: a new session prepares anew" },
    { "22",    FAULT_ROW,        ERR_INTERNAL,    false, "a value that the database refuses" },
    { "23",    FAULT_ROW,        ERR_INTERNAL,    false, "a constraint" },
    { "25006", FAULT_CONNECTION, ERR_UNAVAILABLE, true,  "read-only: this server is no primary any more" },
    { "25",    FAULT_CONNECTION, ERR_UNAVAILABLE, true,  "a transaction state that we did not expect" },
    { "26",    FAULT_CONNECTION, ERR_UNAVAILABLE, true,  "our prepared statements are gone" },
    { "40",    FAULT_LOCK,       ERR_CONFLICT,    true,  "deadlock, serialization" },
    { "42501", FAULT_SYSTEM,     ERR_INTERNAL,    false, "a privilege is missing" },
    { "42",    FAULT_SYSTEM,     ERR_INTERNAL,    false, "the schema is not ours" },
    { "53",    FAULT_SYSTEM,     ERR_UNAVAILABLE, true,  "out of resources (disk, memory, connections)" },
    { "54",    FAULT_ROW,        ERR_LIMIT,       false, "a limit of the database" },
    { "55P03", FAULT_LOCK,       ERR_UNAVAILABLE, true,  "lock_timeout" },
    { "55",    FAULT_LOCK,       ERR_UNAVAILABLE, true,  "object in use" },
    { "57014", FAULT_SYSTEM,     ERR_UNAVAILABLE, true,  "statement_timeout, or cancelled by hand" },
    { "57",    FAULT_CONNECTION, ERR_UNAVAILABLE, true,  "the server shuts down or starts up" },
    { "58",    FAULT_SYSTEM,     ERR_UNAVAILABLE, true,  "an error of the system below the database" },
    { "XX",    FAULT_ROW,        ERR_INTERNAL,    false, "internal error, corrupt data" },
    { "",      FAULT_ROW,        ERR_INTERNAL,    false, "anything else, such as what a trigger raises" },
    /* clang-format on */
};

enum fault sqlstate_fault(const char *sqlstate, enum err_code *ret_code, bool *ret_retryable)
{
    const struct sqlstate_rule *rule = rules;
    while (strncmp(sqlstate, rule->prefix, strlen(rule->prefix)) != 0)
        rule++; /* the last prefix is empty */
    *ret_code = rule->code;
    *ret_retryable = rule->retryable;
    return rule->fault;
}

/* libpq ends its messages with a newline, and sometimes has several lines. */
static void one_line(const char *text, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", text && *text ? text : "no message");
    size_t used = strlen(ret);
    while (used > 0 && ret[used - 1] == '\n')
        ret[--used] = '\0';
    for (char *at = ret; *at; at++)
        if (*at == '\n')
            *at = ' ';
}

int sqlstate_connection(PGconn *conn, const char *context, struct err *err)
{
    char message[256];
    one_line(PQerrorMessage(conn), message, sizeof message);
    return err_set(err, ERR_UNAVAILABLE, "%s: %s", context, message);
}

enum fault sqlstate_classify(const PGresult *result, const char *context, struct err *err)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char message[256];
    one_line(primary ? primary : PQresultErrorMessage(result), message, sizeof message);
    if (!sqlstate) {
        (void)err_set(err, ERR_UNAVAILABLE, "%s: %s", context, message);
        return FAULT_CONNECTION;
    }
    enum err_code code;
    bool retryable;
    enum fault fault = sqlstate_fault(sqlstate, &code, &retryable);
    (void)err_set(err, code, "%s: %s", context, message);
    err->retryable = retryable;
    (void)snprintf(err->sqlstate, sizeof err->sqlstate, "%s", sqlstate);
    return fault;
}
