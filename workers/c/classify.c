/* Which error codes of a participant's client prove that nothing was sent. Codes of libraries that
 * this one does not link stand here as the numbers that those have promised to keep. */
#include "sagaworker.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    CURL_COULDNT_RESOLVE_PROXY = 5,
    CURL_COULDNT_RESOLVE_HOST = 6,
    CURL_COULDNT_CONNECT = 7,
    PG_CONNECTION_BAD = 1,
    MYSQL_CONNECTION_ERROR = 2002, /* CR_CONNECTION_ERROR: no server at this socket or port */
    MYSQL_CONN_HOST_ERROR = 2003,
    MYSQL_UNKNOWN_HOST = 2005,
};

/* connect(2) that failed sent no data, whatever the reason; a connection that broke later has other
 * codes (EPIPE, ECONNRESET), which are not taken for one. */
static bool connect_failed(int code)
{
    switch (code) {
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
    case ENOENT: /* a Unix socket that is not there */
        return true;
    default:
        return false;
    }
}

static bool nothing_was_sent(enum saga_client client, int code)
{
    switch (client) {
    case SAGA_CLIENT_CONNECT:
        return connect_failed(code);
    case SAGA_CLIENT_RESOLVE:
        return code != 0; /* no address, so no connection */
    case SAGA_CLIENT_CURL:
        return code == CURL_COULDNT_RESOLVE_PROXY || code == CURL_COULDNT_RESOLVE_HOST ||
               code == CURL_COULDNT_CONNECT;
    case SAGA_CLIENT_POSTGRESQL:
        return code == PG_CONNECTION_BAD; /* never was ready: no statement can have been sent */
    case SAGA_CLIENT_MYSQL:
        return code == MYSQL_CONNECTION_ERROR || code == MYSQL_CONN_HOST_ERROR ||
               code == MYSQL_UNKNOWN_HOST;
    }
    return false;
}

int saga_task_failed(struct saga_task *task, enum saga_client client, int code, const char *message)
{
    static const char *const names[] = { "CLIENT", "CONNECT",    "RESOLVE",
                                         "CURL",   "POSTGRESQL", "MYSQL" };
    size_t index = (size_t)client < sizeof names / sizeof *names ? (size_t)client : 0;
    char text[32];
    (void)snprintf(text, sizeof text, "%s_%d", names[index], code);
    return nothing_was_sent(client, code) ? saga_task_retry(task, text, message, 0)
                                          : saga_task_unknown(task, text, message);
}
