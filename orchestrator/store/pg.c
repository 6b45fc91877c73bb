#include "store/pg.h"

#include "base/log.h"
#include "store/batch.h"
#include "store/connect.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    BACKOFF_MIN_MS = 50,
    BACKOFF_MAX_MS = 5000,
    BATCH_TIMEOUT_MS = 15000, /* a batch with all its rounds */
};

enum pg_state {
    PG_OFF,        /* waits for retry_at_ms */
    PG_CONNECTING, /* PQconnectPoll */
    PG_SETUP,      /* reads the epoch, prepares the statements */
    PG_READY,
    PG_BUSY, /* a batch is in flight */
};

struct pg {
    struct store store;
    char *conninfo, *node;
    char granter[STORE_GRANTER_SIZE];
    const struct clock *clock;
    bool unsafe;
    struct rng rng;

    enum pg_state state;
    PGconn *conn;
    PostgresPollingStatusType polling;
    int64_t retry_at_ms, deadline_ms; /* monotonic */
    int64_t backoff_ms;
    size_t setup_left; /* answers of the set-up still to come */
    bool setup_failed;
    struct err setup_err;
    uint64_t connections; /* that became usable */
    int64_t epoch;

    struct batch batch;
    struct store_op *finished;
};

static const char setup_sql[] =
    "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE"
    " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8 - 1 END,"
    " current_setting('synchronous_commit'), current_setting('transaction_read_only')";

static void disconnect(struct pg *pg, const struct err *why)
{
    /* Not only half jitter: many servers lose their database at the same moment. */
    int64_t wait_ms = BACKOFF_MIN_MS / 2 + (int64_t)rng_below(&pg->rng, (uint64_t)pg->backoff_ms);
    log_line(LOG_WARN, "database connection lost", "err", why->msg, "sqlstate",
             why->sqlstate[0] ? why->sqlstate : NULL, "retry_ms",
             log_fmt("%lld", (long long)wait_ms), NULL);
    PQfinish(pg->conn);
    pg->conn = NULL;
    if (pg->state == PG_BUSY) {
        batch_lost(&pg->batch, why);
        pg->finished = batch_end(&pg->batch);
    }
    pg->state = PG_OFF;
    pg->retry_at_ms = clock_mono_ms(pg->clock) + wait_ms;
    pg->backoff_ms = pg->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : pg->backoff_ms * 2;
}

static void on_notice(void *ctx, const PGresult *notice)
{
    struct pg *pg = ctx;
    batch_notice(&pg->batch, notice);
    const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
    const char *sqlstate = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    log_line(LOG_WARN, "database notice", "message", message, "sqlstate", sqlstate, NULL);
}

static void connect_start(struct pg *pg)
{
    struct err err;
    struct connect connect;
    pg->deadline_ms = clock_mono_ms(pg->clock) + CONNECT_TIMEOUT_MS;
    pg->state = PG_CONNECTING;
    pg->polling = PGRES_POLLING_WRITING;
    if (connect_prepare(pg->conninfo, CONNECT_ENGINE, &connect, &err) != 0) {
        disconnect(pg, &err);
        return;
    }
    pg->conn = PQconnectStartParams(connect.keys, connect.values, 0);
    connect_done(&connect);
    if (PQstatus(pg->conn) == CONNECTION_BAD) {
        (void)sqlstate_connection(pg->conn, "connect", &err);
        disconnect(pg, &err);
        return;
    }
    (void)PQsetNoticeReceiver(pg->conn, on_notice, pg);
}

static bool send_prepare(PGconn *conn, const struct stmt *stmt)
{
    return PQsendPrepare(conn, stmt->name, stmt->sql, stmt->nparams, stmt->types) == 1;
}

/* In one pipeline: the epoch and settings, every statement, a sync. */
static bool setup_send(struct pg *pg)
{
    PGconn *conn = pg->conn;
    if (PQsetnonblocking(conn, 1) != 0 || !PQenterPipelineMode(conn) ||
        !PQsendQueryParams(conn, setup_sql, 0, NULL, NULL, NULL, NULL, 0))
        return false;
    for (size_t i = 0; i < CONTROL_COUNT; i++)
        if (!send_prepare(conn, &control_stmts[i]))
            return false;
    for (size_t i = 0; i < STMT_COUNT; i++)
        if (!send_prepare(conn, &stmts[i]))
            return false;
    pg->setup_left = 1 + CONTROL_COUNT + STMT_COUNT;
    pg->setup_failed = false;
    return PQpipelineSync(conn) == 1 && PQflush(conn) >= 0;
}

static void setup_fail(struct pg *pg, const struct err *err)
{
    if (!pg->setup_failed)
        pg->setup_err = *err;
    pg->setup_failed = true;
}

/* The answer to setup_sql: may this server be used, and with which epoch? */
static void setup_take(struct pg *pg, const PGresult *result)
{
    struct err err;
    if (PQntuples(result) != 1 || PQnfields(result) != 3) {
        (void)err_set(&err, ERR_INTERNAL, "connect: unexpected answer about the server");
        setup_fail(pg, &err);
        return;
    }
    if (PQgetisnull(result, 0, 0) || strcmp(PQgetvalue(result, 0, 2), "off") != 0) {
        (void)err_set(&err, ERR_UNAVAILABLE, "connect: the server is read-only or a standby");
        setup_fail(pg, &err);
        return;
    }
    if (!pg->unsafe && strcmp(PQgetvalue(result, 0, 1), "off") == 0) {
        (void)err_set(&err, ERR_PRECONDITION,
                      "connect: synchronous_commit is off: an acknowledged start could be lost");
        setup_fail(pg, &err);
        return;
    }
    pg->epoch = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
}

static void setup_result(struct pg *pg, const PGresult *result)
{
    struct err err;
    switch (PQresultStatus(result)) {
    case PGRES_TUPLES_OK:
        setup_take(pg, result);
        break;
    case PGRES_COMMAND_OK:
    case PGRES_PIPELINE_ABORTED:
        break;
    default:
        (void)sqlstate_classify(result, "set-up of the connection", &err);
        setup_fail(pg, &err);
        break;
    }
}

static void setup_ready(struct pg *pg)
{
    pg->state = PG_READY;
    pg->backoff_ms = BACKOFF_MIN_MS;
    pg->connections++;
    log_line(LOG_INFO, "database connection ready", "host", PQhost(pg->conn), "port",
             PQport(pg->conn), "db", PQdb(pg->conn), "epoch", log_fmt("%lld", (long long)pg->epoch),
             NULL);
}

static void setup_read(struct pg *pg)
{
    struct err err;
    while (!PQisBusy(pg->conn)) {
        PGresult *result = PQgetResult(pg->conn);
        if (!result) {
            if (PQstatus(pg->conn) == CONNECTION_BAD || pg->setup_left == 0) {
                (void)sqlstate_connection(pg->conn, "set-up of the connection", &err);
                disconnect(pg, pg->setup_failed ? &pg->setup_err : &err);
                return;
            }
            pg->setup_left--;
            continue;
        }
        bool sync = PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        if (!sync)
            setup_result(pg, result);
        PQclear(result);
        if (sync && pg->setup_failed)
            disconnect(pg, &pg->setup_err);
        else if (sync)
            setup_ready(pg);
        if (sync)
            return;
    }
}

static void connect_poll(struct pg *pg)
{
    struct err err;
    struct pollfd ready = { .fd = PQsocket(pg->conn),
                            .events = pg->polling == PGRES_POLLING_READING ? POLLIN : POLLOUT };
    if (poll(&ready, 1, 0) <= 0)
        return; /* PQconnectPoll must not be called before the socket is ready */
    pg->polling = PQconnectPoll(pg->conn);
    if (pg->polling == PGRES_POLLING_FAILED) {
        (void)sqlstate_connection(pg->conn, "connect", &err);
        disconnect(pg, &err);
    } else if (pg->polling == PGRES_POLLING_OK) {
        pg->state = PG_SETUP;
        if (!setup_send(pg)) {
            (void)sqlstate_connection(pg->conn, "set-up of the connection", &err);
            disconnect(pg, &err);
        }
    }
}

static void batch_step(struct pg *pg, enum batch_state state, const struct err *err)
{
    if (state == BATCH_BROKEN) {
        disconnect(pg, err);
    } else if (state == BATCH_FINISHED) {
        pg->finished = batch_end(&pg->batch);
        pg->state = PG_READY;
    }
}

/* Sends what is left and takes in what has come; true while the connection lives. */
static bool exchange(struct pg *pg)
{
    struct err err, said;
    if (PQconsumeInput(pg->conn) && PQflush(pg->conn) >= 0)
        return true;
    (void)sqlstate_connection(pg->conn, "connection", &err);
    if (pg->state == PG_BUSY) {
        /* What the server said last may be unread: the answer to COMMIT, or why it ends this. */
        enum batch_state state = batch_read(&pg->batch, pg->conn, &said);
        if (state == BATCH_FINISHED) {
            pg->finished = batch_end(&pg->batch);
            pg->state = PG_READY;
        } else if (state == BATCH_BROKEN) {
            err = said;
        }
    }
    disconnect(pg, &err);
    return false;
}

static void check_deadline(struct pg *pg, int64_t mono_ms)
{
    static const char *const what[] = {
        [PG_CONNECTING] = "connecting", [PG_SETUP] = "set-up", [PG_BUSY] = "a batch"
    };
    struct err err;
    if (pg->state == PG_OFF || pg->state == PG_READY || mono_ms < pg->deadline_ms)
        return;
    (void)err_set(&err, ERR_UNAVAILABLE, "%s took too long", what[pg->state]);
    disconnect(pg, &err);
}

static void pg_process(struct store *store, int64_t mono_ms)
{
    struct pg *pg = CONTAINER(store, struct pg, store);
    struct err err;
    if (pg->state == PG_OFF && mono_ms >= pg->retry_at_ms)
        connect_start(pg);
    if (pg->state == PG_CONNECTING)
        connect_poll(pg);
    if (pg->state == PG_SETUP || pg->state == PG_READY || pg->state == PG_BUSY) {
        if (!exchange(pg))
            return;
        if (pg->state == PG_SETUP) {
            setup_read(pg);
        } else if (pg->state == PG_BUSY) {
            enum batch_state state = batch_read(&pg->batch, pg->conn, &err);
            batch_step(pg, state, &err);
        }
    }
    check_deadline(pg, mono_ms);
}

static uint64_t pg_generation(struct store *store)
{
    struct pg *pg = CONTAINER(store, struct pg, store);
    return pg->state >= PG_READY ? pg->connections : 0;
}

static int64_t pg_epoch(struct store *store)
{
    return CONTAINER(store, struct pg, store)->epoch;
}

static bool pg_busy(struct store *store)
{
    struct pg *pg = CONTAINER(store, struct pg, store);
    return pg->state == PG_BUSY || pg->finished;
}

static void pg_submit(struct store *store, struct store_op *ops)
{
    struct pg *pg = CONTAINER(store, struct pg, store);
    struct err err;
    assert(pg->state == PG_READY && !pg->finished && ops);
    pg->state = PG_BUSY;
    pg->deadline_ms = clock_mono_ms(pg->clock) + BATCH_TIMEOUT_MS;
    batch_begin(&pg->batch, ops);
    enum batch_state state = batch_send(&pg->batch, pg->conn, &err);
    batch_step(pg, state, &err);
}

static struct store_op *pg_completed(struct store *store)
{
    struct pg *pg = CONTAINER(store, struct pg, store);
    return TAKE(pg->finished);
}

static int pg_poll_fd(struct store *store, short *ret_events)
{
    struct pg *pg = CONTAINER(store, struct pg, store);
    *ret_events = POLLIN;
    if (!pg->conn)
        return -1;
    if (pg->state == PG_CONNECTING) {
        *ret_events = pg->polling == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        return PQsocket(pg->conn);
    }
    if (PQflush(pg->conn) == 1)
        *ret_events = POLLIN | POLLOUT;
    return PQsocket(pg->conn);
}

static int64_t pg_wake_at(struct store *store)
{
    struct pg *pg = CONTAINER(store, struct pg, store);
    switch (pg->state) {
    case PG_OFF:
        return pg->retry_at_ms;
    case PG_READY:
        return INT64_MAX;
    default:
        return pg->deadline_ms;
    }
}

static const struct store_ops pg_ops = {
    .generation = pg_generation,
    .epoch = pg_epoch,
    .busy = pg_busy,
    .submit = pg_submit,
    .completed = pg_completed,
    .process = pg_process,
    .poll_fd = pg_poll_fd,
    .wake_at = pg_wake_at,
};

int store_pg_new(const struct store_pg_options *options, struct store **ret, struct err *err)
{
    struct connect connect;
    if (connect_prepare(options->conninfo, CONNECT_ENGINE, &connect, err) != 0)
        return (int)err->code;
    connect_done(&connect);
    struct pg *pg = mem_calloc(1, sizeof *pg);
    if (!pg)
        return err_set(err, ERR_NOMEM, "store");
    pg->store.ops = &pg_ops;
    pg->conninfo = mem_strdup(options->conninfo);
    pg->node = mem_strdup(options->node);
    pg->clock = options->clock;
    pg->unsafe = options->unsafe;
    pg->backoff_ms = BACKOFF_MIN_MS;
    rng_seed(&pg->rng, options->rng_seed);
    if (!pg->conninfo || !pg->node) {
        (void)store_pg_free(&pg->store);
        return err_set(err, ERR_NOMEM, "store");
    }
    store_granter(pg->node, &options->instance, pg->granter);
    pg->batch.self = (struct write_self){ pg->node, pg->granter };
    pg->retry_at_ms = clock_mono_ms(pg->clock);
    *ret = &pg->store;
    return 0;
}

struct store *store_pg_free(struct store *store)
{
    if (!store)
        return NULL;
    struct pg *pg = CONTAINER(store, struct pg, store);
    PQfinish(pg->conn);
    batch_done(&pg->batch);
    mem_free(pg->conninfo);
    mem_free(pg->node);
    mem_free(pg);
    return NULL;
}
