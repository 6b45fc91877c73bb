/* A connection whose calls block, but not for ever: each has a time limit, and a wake-up fd ends it
 * at once. For a thread that has a connection of its own beside the engine's. It connects when it
 * is first used, and anew after a loss. What any call may answer:
 *   ERR_UNAVAILABLE   no database, no answer in time; reason STOPPED: the wake-up fd
 *   what sqlstate.h says of the statement's error
 * A call that ends without its answer closes the connection: a COMMIT that was sent may have been
 * carried out. Not repeated here. thread: one at a time. */
#ifndef STORE_SESSION_H
#define STORE_SESSION_H

#include "store/connect.h"
#include "store/params.h"

struct store_session;

struct store_session_options {
    const char *conninfo; /* borrowed until store_session_new has returned */
    enum connect_role role;
    const struct stmt *stmts; /* prepared when it connects; borrowed for its life */
    size_t stmt_count;
    int wake_fd;     /* readable: end what blocks; -1: none. Never read from */
    int64_t call_ms; /* for the answer to one statement, and longer than it may run */
};
/* Does not connect yet. ERR_INVALID: a conninfo that libpq cannot read. */
MUST_USE int store_session_new(const struct store_session_options *options,
                               struct store_session **ret, struct err *err);
struct store_session *store_session_free(struct store_session *session);

/* The statement's parameters, to be filled. */
struct params *store_session_start(struct store_session *session, size_t stmt);
/* Runs what was filled; the caller clears *ret_result. */
MUST_USE int store_session_run(struct store_session *session, PGresult **ret_result,
                               struct err *err);
/* The same where no rows are looked at. */
MUST_USE int store_session_do(struct store_session *session, struct err *err);
/* BEGIN, COMMIT (answered ROLLBACK: ERR_CONFLICT) or ROLLBACK. After BEGIN nothing connects anew
 * until the transaction is over: what a lost connection has begun is lost. */
MUST_USE int store_session_command(struct store_session *session, const char *sql, struct err *err);
/* Ends a transaction that may be open, if need be with its connection: after any error in one. */
void store_session_rollback(struct store_session *session);

#endif
