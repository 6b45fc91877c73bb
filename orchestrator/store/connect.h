/* How every connection of this folder is set up: the user's conninfo plus what our statements need.
 * Any thread. */
#ifndef STORE_CONNECT_H
#define STORE_CONNECT_H

#include "base/err.h"
#include "store/statements.h"

enum { CONNECT_KEYS_MAX = 64, CONNECT_TIMEOUT_MS = 5000 };
#define STORE_SCHEMA "sagad"

enum connect_role {
    CONNECT_ENGINE,
    CONNECT_READER,
    CONNECT_OUTBOX,
    CONNECT_INGEST,
    CONNECT_RETENTION,
    CONNECT_ADMIN
};

struct connect { /* what PQconnectStartParams wants; strings owned */
    const char *keys[CONNECT_KEYS_MAX];
    const char *values[CONNECT_KEYS_MAX];
    char *options;
    PQconninfoOption *parsed;
};

/* Fails with ERR_INVALID on a conninfo that libpq cannot read. */
MUST_USE int connect_prepare(const char *conninfo, enum connect_role role, struct connect *ret,
                             struct err *err);
void connect_done(struct connect *connect);
/* Connects and waits, at most about CONNECT_TIMEOUT_MS. The caller owns *ret_conn. */
MUST_USE int connect_blocking(const char *conninfo, enum connect_role role, PGconn **ret_conn,
                              struct err *err);

static inline void connect_finish_p(PGconn **conn)
{
    PQfinish(*conn);
}
static inline void connect_clear_p(PGresult **result)
{
    PQclear(*result);
}

#endif
