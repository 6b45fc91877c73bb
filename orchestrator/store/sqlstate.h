/* What an error of PostgreSQL means to us: one table over SQLSTATE. Any thread. */
#ifndef STORE_SQLSTATE_H
#define STORE_SQLSTATE_H

#include "base/err.h"

#include <libpq-fe.h>

enum fault {
    FAULT_ROW,        /* one of the rows is at fault: find out which */
    FAULT_LOCK,       /* one of the rows is held by somebody, or lost against somebody */
    FAULT_SYSTEM,     /* would hit every row alike */
    FAULT_CONNECTION, /* this session is of no use any more */
};

/* Fills err (code, retryable, sqlstate, message with `context` before it) and says what to do. A
 * result without SQLSTATE was made by libpq itself: the connection. */
enum fault sqlstate_classify(const PGresult *result, const char *context, struct err *err);
/* The same for a SQLSTATE alone (tests sweep it). */
enum fault sqlstate_fault(const char *sqlstate, enum err_code *ret_code, bool *ret_retryable);
/* err from the connection's own message. */
int sqlstate_connection(PGconn *conn, const char *context, struct err *err);

#endif
