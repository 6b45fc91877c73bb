/* One guarded transaction, and what its end means for the task. BEGIN goes with enter, and done
 * with COMMIT, in one round trip each. */
#include "guard.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { ENTER_PARAMS = 9, DONE_PARAMS = 7, NUMBER_SIZE = 24 };

static const char enter_sql[] =
    "SELECT answer, output FROM saga_guard.enter($1::text, $2::text, $3::text, $4::integer, "
    "$5::text, $6::text, $7::bigint, timestamptz 'epoch' + $8::bigint * interval '1 microsecond', "
    "$9::boolean)";
static const char no_effect_sql[] =
    "SELECT answer, output FROM saga_guard.no_effect($1::text, $2::text, $3::text, $4::integer, "
    "$5::text, $6::text, $7::bigint, timestamptz 'epoch' + $8::bigint * interval '1 microsecond', "
    "$9::boolean)";
static const char done_sql[] = "SELECT saga_guard.done($1::text, $2::text, $3::text, $4::integer, "
                               "$5::text, $6::text, $7::bytea)";

static void result_p(PGresult **res)
{
    PQclear(*res);
}

/* The statement failed before COMMIT: whatever the reason, nothing took effect. */
static void set_retry_of(struct saga_task *task, PGconn *conn, const PGresult *res)
{
    const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    char code[32] = "GUARD_CONNECTION";
    if (PQstatus(conn) == CONNECTION_OK && sqlstate)
        (void)snprintf(code, sizeof code, "GUARD_SQLSTATE_%s", sqlstate);
    const char *message = PQresultErrorMessage(res);
    guard_set_retry(task, code, *message ? message : PQerrorMessage(conn));
}

struct identity {
    const char *values[ENTER_PARAMS];
    char run[NUMBER_SIZE], fence[NUMBER_SIZE], started[NUMBER_SIZE];
};

static void identity_fill(const struct saga_task *task, const struct saga_guard_options *options,
                          struct identity *identity)
{
    memset(identity, 0, sizeof *identity);
    (void)snprintf(identity->run, NUMBER_SIZE, "%d", saga_task_run(task));
    (void)snprintf(identity->fence, NUMBER_SIZE, "%lld", (long long)saga_task_fence(task));
    (void)snprintf(identity->started, NUMBER_SIZE, "%lld",
                   (long long)saga_task_started_at_us(task));
    identity->values[0] = saga_task_namespace(task);
    identity->values[1] = saga_task_definition(task);
    identity->values[2] = saga_task_saga_id(task);
    identity->values[3] = identity->run;
    identity->values[4] = saga_task_step(task);
    identity->values[5] =
        saga_task_operation(task) == SAGA_COMPENSATION ? "COMPENSATION" : "ACTION";
    identity->values[6] = identity->fence;
    identity->values[7] = identity->started;
    identity->values[8] = options && options->even_without_action ? "true" : "false";
}

/* Of enter and no_effect. ANSWER_NONE: it failed, and the outcome says RETRY. */
static enum guard_answer answer_of(struct saga_task *task, PGconn *conn, const PGresult *res)
{
    if (PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) == 1 && PQnfields(res) == 2)
        return guard_answer_of(task, PQgetvalue(res, 0, 0));
    set_retry_of(task, conn, res);
    return ANSWER_NONE;
}

/* The end of a pipeline's statements. What could not be sent has no good result; if it is this, no
 * result would ever come. */
static void pipeline_sync(PGconn *conn)
{
    if (PQpipelineSync(conn) != 1)
        (void)shutdown(PQsocket(conn), SHUT_RDWR); /* fails only where it is gone already */
}

/* What the next statement of a pipeline ended with. */
static PGresult *pipeline_result(PGconn *conn)
{
    PGresult *res = PQgetResult(conn);
    if (res)
        PQclear(PQgetResult(conn)); /* NULL: there is no more of it */
    return res;
}

/* After the results of all statements. If the connection is lost it stays as it is until it is
 * reset. */
static void pipeline_end(PGconn *conn)
{
    PQclear(PQgetResult(conn));     /* of the synchronization */
    (void)PQexitPipelineMode(conn); /* fails only on a connection that is lost */
}

static bool simple(PGconn *conn, const char *sql)
{
    CLEANUP(result_p) PGresult *res = PQexec(conn, sql);
    return PQresultStatus(res) == PGRES_COMMAND_OK;
}

/* Leaves no transaction open: what cannot be rolled back is cut off. */
static void roll_back(PGconn *conn)
{
    if (PQtransactionStatus(conn) != PQTRANS_IDLE && !simple(conn, "ROLLBACK"))
        PQreset(conn); /* the server rolls back what was open on it; no success is fine: it is not
                          used before the next run looks at it */
}

/* "committed locally" when a synchronous standby did not answer is a WARNING, and not a yes. */
static void see_warning(void *ctx, const PGresult *res)
{
    bool *warned = ctx;
    const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity && strcmp(severity, "WARNING") == 0)
        *warned = true;
}

/* False: it is not certain that it stands, and the outcome says so. `res` is what COMMIT ended
 * with. */
static bool is_committed(struct saga_task *task, PGconn *conn, PGresult *res, bool warned)
{
    const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    bool ended = PQresultStatus(res) == PGRES_COMMAND_OK;
    if (ended && strcmp(PQcmdStatus(res), "COMMIT") == 0) {
        if (warned)
            guard_set_unknown(task, "GUARD_COMMIT_LOCAL",
                              "the commit was confirmed with a warning");
        return !warned;
    }
    if (ended)
        guard_set_retry(task, "GUARD_ROLLED_BACK", "the transaction had failed before its commit");
    else if (PQstatus(conn) == CONNECTION_OK && sqlstate && strcmp(sqlstate, "40003") != 0)
        set_retry_of(task, conn, res);
    else
        guard_set_unknown(task, "GUARD_COMMIT_UNKNOWN", PQerrorMessage(conn));
    return false;
}

static bool commit(struct saga_task *task, PGconn *conn)
{
    bool warned = false;
    PQnoticeReceiver before = PQsetNoticeReceiver(conn, see_warning, &warned);
    CLEANUP(result_p) PGresult *res = PQexec(conn, "COMMIT");
    (void)PQsetNoticeReceiver(conn, before, NULL); /* gives back ours */
    return is_committed(task, conn, res, warned);
}

static bool is_set(const struct saga_task *task, Saga__V1__Outcome kind)
{
    return task->outcome.kind == kind;
}

static bool send_done(const struct saga_task *task, PGconn *conn, const struct identity *identity)
{
    const char *values[DONE_PARAMS];
    int lengths[DONE_PARAMS] = { 0 }, formats[DONE_PARAMS] = { 0 };
    memcpy(values, identity->values, 6 * sizeof values[0]);
    const struct bytes *output = &task->outcome.output;
    values[6] = output->size > 0 ? (const char *)output->data : "";
    lengths[6] = (int)output->size;
    formats[6] = 1;
    return PQsendQueryParams(conn, done_sql, DONE_PARAMS, NULL, values, lengths, formats, 1) == 1;
}

/* done, with the output that the body gave, and COMMIT, which the server skips if done fails. */
static bool finish(struct saga_task *task, PGconn *conn, const struct identity *identity)
{
    bool warned = false;
    if (!PQenterPipelineMode(conn) || !send_done(task, conn, identity)) {
        set_retry_of(task, conn, NULL); /* COMMIT was not sent */
        return false;
    }
    PQnoticeReceiver before = PQsetNoticeReceiver(conn, see_warning, &warned);
    (void)PQsendQueryParams(conn, "COMMIT", 0, NULL, NULL, NULL, NULL, 0);
    pipeline_sync(conn);
    CLEANUP(result_p) PGresult *done = pipeline_result(conn);
    CLEANUP(result_p) PGresult *committed = pipeline_result(conn);
    pipeline_end(conn);
    (void)PQsetNoticeReceiver(conn, before, NULL); /* gives back ours */
    /* Without a word about done it is not known how far the server came. */
    if (PQresultStatus(done) == PGRES_TUPLES_OK || PQstatus(conn) != CONNECTION_OK)
        return is_committed(task, conn, committed, warned);
    set_retry_of(task, conn, done);
    return false;
}

/* The body said no. The fence is remembered before REJECTED is reported, so that an older holder
 * that wakes up later is stale; if that fails the whole is a RETRY, which is as true. */
static void record_no_effect(struct saga_task *task, PGconn *conn, const struct identity *identity)
{
    struct task_outcome rejected = task->outcome;
    memset(&task->outcome, 0, sizeof task->outcome);
    CLEANUP(result_p)
    PGresult *res =
        PQexecParams(conn, no_effect_sql, ENTER_PARAMS, NULL, identity->values, NULL, NULL, 1);
    enum guard_answer answer = answer_of(task, conn, res);
    if (answer == RECORDED) {
        task_outcome_clear(&task->outcome);
        task->outcome = rejected;
        return;
    }
    task_outcome_clear(&rejected);
    if (answer == DUPLICATE)
        guard_set_stored(task, PQgetvalue(res, 0, 1), (size_t)PQgetlength(res, 0, 1));
    else if (answer == REFUSED || answer == STALE)
        guard_set_refusal(task, answer);
    else if (answer == EMPTY)
        guard_set_done(task);
}

static void proceed(struct saga_task *task, PGconn *conn, saga_guard_body *body, void *ctx,
                    const struct identity *identity)
{
    int rc = body(task, conn, ctx);
    bool unset = is_set(task, SAGA__V1__OUTCOME__OUTCOME_UNSPECIFIED);
    bool done = is_set(task, SAGA__V1__OUTCOME__OUTCOME_DONE);
    PGTransactionStatusType status = PQtransactionStatus(conn);
    if (status == PQTRANS_IDLE) {
        guard_set_unknown(task, "GUARD_BODY_COMMITTED", "the body ended the guard's transaction");
        return;
    }
    if (rc == 0 && (unset || done) && status == PQTRANS_INTRANS) {
        if (unset && saga_task_done(task, NULL, 0) != 0) {
            roll_back(conn);
            return;
        }
        if (!finish(task, conn, identity))
            roll_back(conn);
        return;
    }
    if (unset || done || is_set(task, SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE))
        guard_set_retry(task, "GUARD_BODY_FAILED", PQerrorMessage(conn));
    roll_back(conn);
    if (is_set(task, SAGA__V1__OUTCOME__OUTCOME_REJECTED))
        record_no_effect(task, conn, identity);
}

static bool is_usable(struct saga_task *task, PGconn *conn)
{
    if (saga_task_operation(task) == SAGA_PROBE) {
        guard_set_unknown(task, "GUARD_PROBE", "the guard is for actions and compensations");
        return false;
    }
    if (PQstatus(conn) != CONNECTION_OK)
        PQreset(conn);
    if (PQstatus(conn) == CONNECTION_OK && PQtransactionStatus(conn) != PQTRANS_IDLE) {
        guard_set_retry(task, "GUARD_CONNECTION_IN_USE", "the connection is inside a transaction");
        return false;
    }
    if (PQstatus(conn) == CONNECTION_OK && PQenterPipelineMode(conn) == 1)
        return true;
    guard_set_retry(task, "GUARD_CONNECTION", PQerrorMessage(conn));
    return false;
}

/* BEGIN and enter, on a connection in pipeline mode. */
static enum guard_answer enter(struct saga_task *task, PGconn *conn,
                               const struct identity *identity, PGresult **ret_res)
{
    (void)PQsendQueryParams(conn, "BEGIN", 0, NULL, NULL, NULL, NULL, 0);
    (void)PQsendQueryParams(conn, enter_sql, ENTER_PARAMS, NULL, identity->values, NULL, NULL, 1);
    pipeline_sync(conn);
    PQclear(pipeline_result(conn)); /* of BEGIN: where that fails, so does enter */
    *ret_res = pipeline_result(conn);
    pipeline_end(conn);
    return answer_of(task, conn, *ret_res);
}

void saga_guard_run(struct saga_task *task, PGconn *conn, saga_guard_body *body, void *ctx)
{
    saga_guard_run_with(task, conn, NULL, body, ctx);
}

void saga_guard_run_with(struct saga_task *task, PGconn *conn,
                         const struct saga_guard_options *options, saga_guard_body *body, void *ctx)
{
    task_outcome_clear(&task->outcome);
    if (!is_usable(task, conn))
        return;
    struct identity identity;
    identity_fill(task, options, &identity);
    CLEANUP(result_p) PGresult *res = NULL;
    enum guard_answer answer = enter(task, conn, &identity, &res);
    switch (answer) {
    case PROCEED:
        proceed(task, conn, body, ctx, &identity);
        break;
    case DUPLICATE:
        if (commit(task, conn))
            guard_set_stored(task, PQgetvalue(res, 0, 1), (size_t)PQgetlength(res, 0, 1));
        break;
    case EMPTY:
        if (commit(task, conn))
            guard_set_done(task);
        break;
    case REFUSED:
    case STALE:
        guard_set_refusal(task, answer);
        break;
    default:
        break; /* enter has set the outcome */
    }
    roll_back(conn); /* nothing to do where it was committed */
}
