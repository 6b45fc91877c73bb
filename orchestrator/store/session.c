#include "store/session.h"

#include "base/clock.h"
#include "store/sqlstate.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

struct store_session {
    struct store_session_options options;
    char *conninfo;
    PGconn *conn; /* NULL: not connected */
    bool begun;   /* a transaction, which a new connection would know nothing of */
    struct params params;
};

int store_session_new(const struct store_session_options *options, struct store_session **ret,
                      struct err *err)
{
    struct connect connect;
    if (connect_prepare(options->conninfo, options->role, &connect, err) != 0)
        return (int)err->code;
    connect_done(&connect);
    struct store_session *session = mem_calloc(1, sizeof *session);
    char *conninfo = mem_strdup(options->conninfo);
    if (!session || !conninfo) {
        mem_free(session);
        mem_free(conninfo);
        return err_set(err, ERR_NOMEM, "database session");
    }
    session->options = *options;
    session->options.conninfo = session->conninfo = conninfo;
    *ret = session;
    return 0;
}

struct store_session *store_session_free(struct store_session *session)
{
    if (!session)
        return NULL;
    PQfinish(session->conn);
    params_done(&session->params);
    mem_free(session->conninfo);
    mem_free(session);
    return NULL;
}

/* --- waiting ---------------------------------------------------------------------------------- */

static int wait_socket(const struct store_session *session, short events, int64_t until_ms,
                       struct err *err)
{
    for (;;) {
        int64_t left = until_ms - clock_mono_ms(&clock_system);
        struct pollfd fds[] = { { .fd = PQsocket(session->conn), .events = events },
                                { .fd = session->options.wake_fd, .events = POLLIN } };
        int ready = left > 0 ? poll(fds, ARRAY_LEN(fds), (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return err_set(err, ERR_UNAVAILABLE, "wait for PostgreSQL: %s", strerror(errno));
        if (ready == 0)
            return err_set(err, ERR_UNAVAILABLE, "PostgreSQL does not answer");
        if (fds[1].revents)
            return err_reason(err, ERR_UNAVAILABLE, "STOPPED",
                              "stopped while waiting for "
                              "PostgreSQL");
        return 0;
    }
}

/* Closes the connection if the error says that it is of no use any more. */
static int failed(struct store_session *session, const PGresult *result, const char *what,
                  struct err *err)
{
    enum fault fault = FAULT_CONNECTION;
    if (result)
        fault = sqlstate_classify(result, what, err);
    else
        (void)sqlstate_connection(session->conn, what, err);
    if (fault == FAULT_CONNECTION || PQstatus(session->conn) != CONNECTION_OK)
        PQfinish(TAKE(session->conn));
    return (int)err->code;
}

/* In the middle of an exchange: nobody could tell what the next answer belongs to. */
static int given_up(struct store_session *session, const char *what, struct err *err)
{
    PQfinish(TAKE(session->conn));
    return err_wrap(err, "%s", what);
}

/* Sends what libpq has taken, and waits for the one result that it leads to. */
static int exchange(struct store_session *session, const char *what, PGresult **ret,
                    struct err *err)
{
    PGconn *conn = session->conn;
    int64_t until_ms = clock_mono_ms(&clock_system) + session->options.call_ms;
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    for (bool over = false; !over;) {
        int unsent = PQflush(conn);
        if (unsent < 0)
            return failed(session, NULL, what, err);
        if (unsent || PQisBusy(conn)) {
            short events = unsent ? POLLIN | POLLOUT : POLLIN;
            if (wait_socket(session, events, until_ms, err) != 0)
                return given_up(session, what, err);
            if (!PQconsumeInput(conn))
                return failed(session, NULL, what, err);
            continue;
        }
        PGresult *next = PQgetResult(conn);
        over = !next;
        if (next) {
            PQclear(result);
            result = next;
        }
    }
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        return failed(session, result, what, err);
    *ret = TAKE(result);
    return 0;
}

/* --- connecting ------------------------------------------------------------------------------- */

static int await_connection(struct store_session *session, struct err *err)
{
    PGconn *conn = session->conn;
    int64_t until_ms = clock_mono_ms(&clock_system) + CONNECT_TIMEOUT_MS;
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next != PGRES_POLLING_OK) {
        if (next == PGRES_POLLING_FAILED || PQstatus(conn) == CONNECTION_BAD)
            return failed(session, NULL, "connect", err);
        if (wait_socket(session, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, until_ms, err) !=
            0)
            return given_up(session, "connect", err);
        next = PQconnectPoll(conn);
    }
    return PQsetnonblocking(conn, 1) == 0 ? 0 : failed(session, NULL, "connect", err);
}

static int prepare_all(struct store_session *session, struct err *err)
{
    for (size_t i = 0; i < session->options.stmt_count; i++) {
        const struct stmt *stmt = &session->options.stmts[i];
        CLEANUP(connect_clear_p) PGresult *result = NULL;
        if (!PQsendPrepare(session->conn, stmt->name, stmt->sql, stmt->nparams, stmt->types))
            return failed(session, NULL, stmt->name, err);
        if (exchange(session, stmt->name, &result, err) != 0)
            return (int)err->code;
    }
    return 0;
}

static int ensure_connected(struct store_session *session, struct err *err)
{
    struct connect connect;
    if (session->conn)
        return 0;
    if (session->begun)
        return err_set(err, ERR_UNAVAILABLE, "the connection was lost in a transaction");
    if (connect_prepare(session->conninfo, session->options.role, &connect, err) != 0)
        return (int)err->code;
    session->conn = PQconnectStartParams(connect.keys, connect.values, 0);
    connect_done(&connect);
    if (!session->conn)
        return err_set(err, ERR_NOMEM, "connect");
    if (await_connection(session, err) == 0 && prepare_all(session, err) == 0)
        return 0;
    PQfinish(TAKE(session->conn));
    return (int)err->code;
}

/* --- calls ------------------------------------------------------------------------------------ */

struct params *store_session_start(struct store_session *session, size_t stmt)
{
    params_start(&session->params, &session->options.stmts[stmt]);
    return &session->params;
}

int store_session_run(struct store_session *session, PGresult **ret_result, struct err *err)
{
    if (ensure_connected(session, err) != 0)
        return (int)err->code;
    if (params_send(&session->params, session->conn, err) != 0) {
        if (PQstatus(session->conn) != CONNECTION_OK)
            PQfinish(TAKE(session->conn));
        return (int)err->code;
    }
    return exchange(session, session->params.stmt->name, ret_result, err);
}

int store_session_do(struct store_session *session, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    return store_session_run(session, &result, err);
}

int store_session_command(struct store_session *session, const char *sql, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    bool begins = strcmp(sql, "BEGIN") == 0;
    if (begins && ensure_connected(session, err) != 0)
        return (int)err->code;
    session->begun = begins;
    if (!session->conn)
        return err_set(err, ERR_UNAVAILABLE, "%s: the connection was lost", sql);
    if (!PQsendQuery(session->conn, sql))
        return failed(session, NULL, sql, err);
    if (exchange(session, sql, &result, err) != 0)
        return (int)err->code;
    if (strcmp(sql, "COMMIT") == 0 && strcmp(PQcmdStatus(result), "COMMIT") != 0)
        return err_set(err, ERR_CONFLICT, "COMMIT was answered %s", PQcmdStatus(result));
    return 0;
}

void store_session_rollback(struct store_session *session)
{
    struct err ignored; /* without a connection there is no transaction either */
    session->begun = false;
    if (!session->conn || PQtransactionStatus(session->conn) == PQTRANS_IDLE)
        return;
    if (store_session_command(session, "ROLLBACK", &ignored) != 0)
        PQfinish(TAKE(session->conn));
}
