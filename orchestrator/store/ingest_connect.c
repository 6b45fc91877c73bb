/* The ingest's connection: blocking calls over a non-blocking pipeline, so that each can end at its
 * deadline or when it is woken. */
#include "store/ingest_internal.h"

#include "base/log.h"
#include "store/connect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { CALL_MS = 15000 }; /* a call, connecting included */

/* --- waiting -------------------------------------------------------------------------------- */

/* For the socket; ends at the deadline, and when it is woken. */
static int wait_for(struct store_ingest *ingest, short events, struct err *err)
{
    for (;;) {
        int64_t left = ingest->deadline_ms - clock_mono_ms(ingest->clock);
        struct pollfd fds[] = { { .fd = PQsocket(ingest->conn), .events = events },
                                { .fd = ingest->wake_fd, .events = POLLIN } };
        if (left <= 0)
            return err_set(err, ERR_UNAVAILABLE, "the database took too long");
        int ready = poll(fds, ARRAY_LEN(fds), (int)left);
        if (ready < 0 && errno != EINTR)
            return err_set(err, ERR_INTERNAL, "poll: %s", strerror(errno));
        if (ready > 0 && fds[0].revents)
            return 0; /* what has arrived is taken first: less is left in doubt */
        if (ready > 0 && fds[1].revents)
            return err_reason(err, ERR_UNAVAILABLE, "STOPPED", "the ingest stops");
    }
}

/* NULL in *ret: as PQgetResult has it. */
static int next_result(struct store_ingest *ingest, PGresult **ret, struct err *err)
{
    for (;;) {
        /* After a failed write the server's last words may still be unread. */
        int flush = PQflush(ingest->conn);
        if (!PQisBusy(ingest->conn)) {
            *ret = PQgetResult(ingest->conn);
            return 0;
        }
        short events = flush == 1 ? POLLIN | POLLOUT : POLLIN;
        if (wait_for(ingest, events, err) != 0)
            return (int)err->code;
        if (!PQconsumeInput(ingest->conn) && PQisBusy(ingest->conn))
            return sqlstate_connection(ingest->conn, "ingest", err);
    }
}

/* --- the connection ------------------------------------------------------------------------- */

static void disconnect(struct store_ingest *ingest)
{
    PQfinish(TAKE(ingest->conn));
}

/* "committed locally": the wait for a standby was cancelled (01000) or cut by a shutdown. */
static void on_notice(void *ctx, const PGresult *notice)
{
    struct store_ingest *ingest = ctx;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *sqlstate = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    if (ingest->commit_sent && severity && strcmp(severity, "WARNING") == 0 && sqlstate &&
        (strcmp(sqlstate, "01000") == 0 || strcmp(sqlstate, "57P01") == 0))
        ingest->doubtful = true;
    log_line(LOG_WARN, "database notice", "rule", ingest->rule, "message",
             PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY), "sqlstate", sqlstate, NULL);
}

static int connect_wait(struct store_ingest *ingest, struct err *err)
{
    PostgresPollingStatusType polling = PGRES_POLLING_WRITING;
    while (polling != PGRES_POLLING_OK) {
        if (wait_for(ingest, polling == PGRES_POLLING_READING ? POLLIN : POLLOUT, err) != 0)
            return (int)err->code;
        polling = PQconnectPoll(ingest->conn);
        if (polling == PGRES_POLLING_FAILED)
            return sqlstate_connection(ingest->conn, "connect", err);
    }
    return 0;
}

static int prepare(struct store_ingest *ingest, const struct stmt *table, size_t count,
                   struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct stmt *stmt = &table[i];
        if (!PQsendPrepare(ingest->conn, stmt->name, stmt->sql, stmt->nparams, stmt->types))
            return sqlstate_connection(ingest->conn, stmt->name, err);
        ingest->names[ingest->sent++] = stmt->name;
        if (ingest->sent == INGEST_FLIGHT_MAX && ingest_exchange(ingest, err) != 0)
            return (int)err->code;
    }
    return ingest->sent > 0 ? ingest_exchange(ingest, err) : 0;
}

static int connect_now(struct store_ingest *ingest, struct err *err)
{
    struct connect connect;
    if (connect_prepare(ingest->conninfo, CONNECT_INGEST, &connect, err) != 0)
        return (int)err->code;
    ingest->conn = PQconnectStartParams(connect.keys, connect.values, 0);
    connect_done(&connect);
    if (!ingest->conn)
        return err_set(err, ERR_NOMEM, "connect");
    if (PQstatus(ingest->conn) == CONNECTION_BAD)
        return sqlstate_connection(ingest->conn, "connect", err);
    (void)PQsetNoticeReceiver(ingest->conn, on_notice, ingest);
    if (connect_wait(ingest, err) != 0)
        return (int)err->code;
    if (PQsetnonblocking(ingest->conn, 1) != 0 || !PQenterPipelineMode(ingest->conn))
        return sqlstate_connection(ingest->conn, "connect", err);
    if (prepare(ingest, control_stmts, CONTROL_COUNT, err) != 0 ||
        prepare(ingest, &stmts[STMT_LOAD_KEYS], 1, err) != 0 ||
        prepare(ingest, &stmts[STMT_LOAD_DEFINITION], 1, err) != 0)
        return (int)err->code;
    return prepare(ingest, ingest_stmts, INGEST_STMT_COUNT, err);
}

int ingest_open(struct store_ingest *ingest, struct err *err)
{
    ingest->deadline_ms = clock_mono_ms(ingest->clock) + CALL_MS;
    ingest->sent = 0;
    ingest->commit_sent = ingest->doubtful = false;
    if (ingest->conn)
        return 0;
    if (connect_now(ingest, err) != 0) {
        disconnect(ingest);
        err->retryable = err->code == ERR_UNAVAILABLE;
        return (int)err->code;
    }
    return 0;
}

/* --- statements ----------------------------------------------------------------------------- */

struct params *ingest_start(struct store_ingest *ingest, const struct stmt *stmt)
{
    params_start(&ingest->params, stmt);
    return &ingest->params;
}

struct params *ingest_start_rule(struct store_ingest *ingest, enum ingest_stmt_id id)
{
    struct params *params = ingest_start(ingest, &ingest_stmts[id]);
    params_text(params, ingest->rule);
    params_text(params, ingest->topic);
    return params;
}

int ingest_send(struct store_ingest *ingest, struct err *err)
{
    if (params_send(&ingest->params, ingest->conn, err) != 0)
        return (int)err->code;
    ingest->names[ingest->sent++] = ingest->params.stmt->name;
    return 0;
}

int ingest_control(struct store_ingest *ingest, const struct stmt *stmt, struct err *err)
{
    (void)ingest_start(ingest, stmt);
    return ingest_send(ingest, err);
}

static void clear_results(struct store_ingest *ingest)
{
    for (size_t i = 0; i < INGEST_FLIGHT_MAX; i++)
        PQclear(TAKE(ingest->results[i]));
}

/* One answer; the first error is the one to tell. */
static int take_result(struct store_ingest *ingest, PGresult *result, bool *failed, struct err *err)
{
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_PIPELINE_ABORTED: /* an earlier one failed */
        return 0;
    default:
        if (!*failed)
            ingest->fault = sqlstate_classify(result, ingest->names[ingest->answered], err);
        *failed = true;
        return PQstatus(ingest->conn) == CONNECTION_BAD ? (int)err->code : 0;
    }
}

/* All answers up to the one to the sync. A failure that leaves answers unread has closed the
 * connection. */
static int read_answers(struct store_ingest *ingest, bool *failed, struct err *err)
{
    struct err lost = { 0 };
    bool ended = false; /* the NULL behind a result is still to come */
    for (;;) {
        PGresult *result = NULL;
        if (next_result(ingest, &result, &lost) != 0)
            break;
        if (!result && !ended) {
            (void)sqlstate_connection(ingest->conn, "ingest", &lost);
            break;
        }
        if (!result) {
            ended = false;
            ingest->answered++;
            continue;
        }
        if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
            PQclear(result);
            return *failed ? (int)err->code : 0;
        }
        if (ingest->answered >= ingest->sent || ended) { /* an error behind all: the session ends */
            (void)sqlstate_classify(result, "ingest", &lost);
            PQclear(result);
            break;
        }
        ended = true;
        PQclear(ingest->results[ingest->answered]);
        ingest->results[ingest->answered] = result;
        if (take_result(ingest, result, failed, err) != 0)
            break;
    }
    if (!*failed)
        *err = lost;
    *failed = true;
    disconnect(ingest);
    return (int)err->code;
}

int ingest_exchange(struct store_ingest *ingest, struct err *err)
{
    bool failed = false;
    clear_results(ingest);
    ingest->answered = 0;
    ingest->fault = FAULT_CONNECTION;
    if (!PQpipelineSync(ingest->conn)) {
        (void)sqlstate_connection(ingest->conn, "sync", err);
        disconnect(ingest);
        return (int)err->code;
    }
    int rc = read_answers(ingest, &failed, err);
    ingest->sent = 0;
    return rc;
}

const PGresult *ingest_result(const struct store_ingest *ingest, size_t index)
{
    return ingest->results[index];
}

int ingest_run(struct store_ingest *ingest, struct err *err)
{
    return ingest_send(ingest, err) != 0 ? (int)err->code : ingest_exchange(ingest, err);
}

/* Is it sure that nothing was committed? An error before COMMIT was reached, or COMMIT's own,
 * unless the session ended with it. */
static bool sure_of_nothing(const struct store_ingest *ingest, size_t commit)
{
    for (size_t i = 0; i <= commit; i++) {
        const PGresult *result = ingest->results[i];
        if (!result)
            return false;
        if (PQresultStatus(result) == PGRES_FATAL_ERROR)
            return i < commit || ingest->fault != FAULT_CONNECTION;
    }
    return false;
}

static int in_doubt(struct err *err)
{
    struct err cause = *err;
    return err_reason(err, ERR_UNAVAILABLE, "COMMIT_IN_DOUBT", "the answer to COMMIT: %.240s",
                      cause.msg);
}

int ingest_commit(struct store_ingest *ingest, struct err *err)
{
    size_t commit = ingest->sent;
    ingest->commit_sent = true; /* from here on nobody knows until the answer is there */
    if (ingest_control(ingest, &control_stmts[CONTROL_COMMIT], err) != 0)
        return in_doubt(err);
    int rc = ingest_exchange(ingest, err);
    ingest->commit_sent = false;
    if (rc != 0)
        return sure_of_nothing(ingest, commit) ? rc : in_doubt(err);
    if (strcmp(PQcmdStatus(ingest->results[commit]), "COMMIT") != 0)
        return err_set(err, ERR_CONFLICT, "COMMIT was answered %s",
                       PQcmdStatus(ingest->results[commit]));
    if (ingest->doubtful) {
        (void)err_set(err, ERR_UNAVAILABLE, "durable here, perhaps not on a standby");
        disconnect(ingest);
        return in_doubt(err);
    }
    return 0;
}

int ingest_close(struct store_ingest *ingest, int rc, struct err *err)
{
    struct err ignored; /* the first error is the one to tell */
    if (rc != 0 && ingest->conn &&
        (ingest->sent > 0 || PQtransactionStatus(ingest->conn) != PQTRANS_IDLE)) {
        /* What was sent and never synced would be part of the next call. */
        if (ingest->sent > 0 ||
            ingest_control(ingest, &control_stmts[CONTROL_ROLLBACK], &ignored) != 0 ||
            ingest_exchange(ingest, &ignored) != 0)
            disconnect(ingest);
    }
    if (rc != 0 && ingest->conn && PQstatus(ingest->conn) != CONNECTION_OK)
        disconnect(ingest);
    if (rc != 0) {
        bool sql = err->sqlstate[0] != '\0'; /* then the table of sqlstate.c has said it */
        err->retryable = sql ? err->retryable
                             : err->code == ERR_UNAVAILABLE || err->code == ERR_CONFLICT ||
                                   err->code == ERR_PRECONDITION;
    }
    clear_results(ingest);
    return rc;
}

/* --- its life ------------------------------------------------------------------------------- */

int store_ingest_new(const struct store_ingest_options *options, struct store_ingest **ret,
                     struct err *err)
{
    struct connect connect;
    if (connect_prepare(options->conninfo, CONNECT_INGEST, &connect, err) != 0)
        return (int)err->code;
    connect_done(&connect);
    struct store_ingest *ingest = mem_calloc(1, sizeof *ingest);
    if (!ingest)
        return err_set(err, ERR_NOMEM, "ingest");
    size_t actor_size = sizeof "kafka/" + strlen(options->rule);
    ingest->conninfo = mem_strdup(options->conninfo);
    ingest->node = mem_strdup(options->node);
    ingest->rule = mem_strdup(options->rule);
    ingest->topic = mem_strdup(options->topic);
    ingest->actor = mem_calloc(1, actor_size);
    ingest->clock = options->clock;
    ingest->wake_fd = options->wake_fd;
    rng_seed(&ingest->rng, options->rng_seed);
    if (!ingest->conninfo || !ingest->node || !ingest->rule || !ingest->topic || !ingest->actor) {
        (void)store_ingest_free(ingest);
        return err_set(err, ERR_NOMEM, "ingest");
    }
    (void)snprintf(ingest->actor, actor_size, "kafka/%s", options->rule);
    *ret = ingest;
    return 0;
}

struct store_ingest *store_ingest_free(struct store_ingest *ingest)
{
    if (!ingest)
        return NULL;
    clear_results(ingest);
    PQfinish(ingest->conn);
    params_done(&ingest->params);
    mem_free(ingest->conninfo);
    mem_free(ingest->node);
    mem_free(ingest->rule);
    mem_free(ingest->topic);
    mem_free(ingest->actor);
    mem_free(ingest);
    return NULL;
}
