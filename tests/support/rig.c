#include "support/rig.h"

#include "base/buf.h"
#include "base/clock.h"
#include "support/ports.h"
#include "support/wait.h"

#include <grpc/grpc.h>
#include <signal.h>
#include <stdio.h>

enum {
    SERVE_MS = 60000,
    CONNECT_MS = 30000,
    SQL_MS = 30000,
    ARGS_MAX = 40,
    TEXT_MAX = 16384,
    SETTINGS_MAX = 16
};

static const char bank_schema[] =
    "CREATE TABLE effects (id bigserial PRIMARY KEY, definition text, saga_id text, run int,"
    " step text, operation text, fence bigint, worker text, guarded boolean,"
    " at timestamptz DEFAULT clock_timestamp());"
    "CREATE TABLE calls (id bigserial PRIMARY KEY, worker text, pid int, definition text,"
    " saga_id text, step text, operation text, try int, fence bigint, key text, seen text,"
    " started_at timestamptz DEFAULT clock_timestamp(), ended_at timestamptz, stop text);"
    "CREATE INDEX ON calls (saga_id)";

/* --- up and down ------------------------------------------------------------------------------ */

static int read_file(const char *path, struct buf *ret, struct err *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return err_set(err, ERR_NOT_FOUND, "%s", path);
    for (size_t got = 1; got > 0;) {
        uint8_t *room = buf_room(ret, 4096);
        got = room ? fread(room, 1, 4096, file) : 0;
        buf_added(ret, got);
    }
    (void)fclose(file); /* was only read */
    buf_text(ret, "");
    return ret->failed ? err_set(err, ERR_NOMEM, "%s", path) : 0;
}

static int databases_up(struct rig *rig, struct err *err)
{
    const char *settings[SETTINGS_MAX + 1] = { "max_connections=400", "log_lock_waits=on" };
    CLEANUP(buf_done) struct buf guard = { .limit = 1 << 20 };
    const char *const *more = rig->postgres_settings;
    for (size_t i = 0; more && more[i]; i++) {
        if (i + 2 == SETTINGS_MAX)
            return err_set(err, ERR_LIMIT, "more than %d settings", SETTINGS_MAX);
        settings[i + 2] = more[i]; /* a later one wins */
    }
    int rc = test_postgres_start(settings, &rig->postgres, err);
    if (rc == 0)
        rc = test_postgres_createdb(rig->postgres, "store", rig->store, err);
    if (rc == 0)
        rc = test_postgres_createdb(rig->postgres, "bank", rig->bank, err);
    if (rc == 0)
        rc = read_file(SOURCE_DIR "/sql/guard/postgresql.sql", &guard, err);
    if (rc == 0)
        rc = test_postgres_exec(rig->postgres, "bank", buf_cstr(&guard), err);
    if (rc == 0)
        rc = test_postgres_exec(rig->postgres, "bank", bank_schema, err);
    return rc;
}

static int server_start(struct rig *rig, struct err *err)
{
    const char *program = rig->server_program ? rig->server_program : SAGAD_BINARY;
    const char *database = rig->server_database ? rig->server_database : rig->store;
    const char *node = rig->node ? rig->node : "rig";
    const char *argv[ARGS_MAX] = { program,    "serve",      "--database", database,
                                   "--listen", rig->address, "--node",     node };
    size_t count = 8;
    for (size_t i = 0; rig->server_args[i]; i++)
        argv[count++] = rig->server_args[i];
    const struct test_process_options options = { .name = rig->node ? rig->node : "sagad",
                                                  .argv = argv,
                                                  .env = rig->server_env };
    int rc = test_process_start(&options, &rig->sagad, err);
    if (rc == 0)
        rc = test_process_wait_output(rig->sagad, "sagad: serving on", SERVE_MS, NULL, 0, err);
    return rc;
}

int rig_databases_up(struct rig *rig)
{
    struct err err;
    SETUP_OK(databases_up(rig, &err), &err);
    return 0;
}

static int take_port(struct rig *rig)
{
    struct err err;
    SETUP_OK(free_port(&rig->port, &err), &err);
    (void)snprintf(rig->address, sizeof rig->address, "127.0.0.1:%d", rig->port);
    return 0;
}

int rig_server_up(struct rig *rig)
{
    struct err err;
    if (rig->port == 0 && take_port(rig) != 0)
        return -1;
    SETUP_OK(server_start(rig, &err), &err);
    SETUP_OK(client_new(rig->address, &rig->client, &err), &err);
    return 0;
}

int rig_up(struct rig *rig)
{
    return rig_databases_up(rig) != 0 ? -1 : rig_server_up(rig);
}

int rig_node_prepare(struct rig *rig, const struct rig *first)
{
    rig->postgres = first->postgres;
    memcpy(rig->store, first->store, sizeof rig->store);
    memcpy(rig->bank, first->bank, sizeof rig->bank);
    return take_port(rig);
}

int rig_node_up(struct rig *rig, const struct rig *first)
{
    return rig_node_prepare(rig, first) != 0 ? -1 : rig_server_up(rig);
}

int rig_node_down(struct rig *rig)
{
    rig_workers_kill(rig);
    rig->client = client_free(rig->client);
    rig->sagad = test_process_free(rig->sagad);
    for (size_t i = 0; i < ARRAY_LEN(rig->conns); i++) {
        PQfinish(rig->conns[i]);
        rig->conns[i] = NULL;
    }
    return 0;
}

int rig_down(struct rig *rig)
{
    (void)rig_node_down(rig); /* always 0 */
    rig->postgres = test_postgres_free(rig->postgres);
    return 0;
}

void rig_server_start(struct rig *rig)
{
    struct err err;
    assert_null(rig->sagad);
    ASSERT_OK(server_start(rig, &err), &err);
    /* A channel that has seen the server go waits before it tries again. */
    rig->client = client_free(rig->client);
    ASSERT_OK(client_new(rig->address, &rig->client, &err), &err);
}

void rig_server_kill(struct rig *rig)
{
    assert_non_null(rig->sagad);
    test_process_kill(rig->sagad);
    rig->sagad = test_process_free(rig->sagad);
}

int64_t rig_server_stop(struct rig *rig, int64_t limit_ms)
{
    struct err err;
    int status;
    int64_t from = clock_mono_ms(&clock_system);
    assert_non_null(rig->sagad);
    ASSERT_OK(test_process_signal(rig->sagad, SIGTERM, &err), &err);
    ASSERT_OK(test_process_wait(rig->sagad, limit_ms, &status, &err), &err);
    assert_int_equal(status, 0);
    rig->sagad = test_process_free(rig->sagad);
    return clock_mono_ms(&clock_system) - from;
}

/* --- workers ---------------------------------------------------------------------------------- */

struct test_process *rig_worker_threads(struct rig *rig, const char *id, const char *handlers,
                                        int threads)
{
    char thread_text[16], list[512];
    (void)snprintf(thread_text, sizeof thread_text, "%d", threads);
    (void)snprintf(list, sizeof list, "%s", handlers);
    const char *argv[ARGS_MAX] = { SCRIPTED_WORKER, "--bank",   rig->bank, "--id", id,
                                   "--threads",     thread_text };
    size_t count = 7;
    const char *const ours[] = { rig->address, NULL };
    for (const char *const *to = *rig->worker_addresses ? rig->worker_addresses : ours; *to; to++) {
        argv[count++] = "--address";
        argv[count++] = *to;
    }
    char *rest = list;
    for (char *one; (one = strsep(&rest, " "));) {
        assert_true(count + 2 < ARGS_MAX);
        argv[count++] = "--handler";
        argv[count++] = one;
    }
    struct err err;
    const struct test_process_options options = { .name = id, .argv = argv };
    assert_true(rig->worker_count < RIG_WORKERS_MAX);
    ASSERT_OK(test_process_start(&options, &rig->workers[rig->worker_count], &err), &err);
    return rig->workers[rig->worker_count++];
}

struct test_process *rig_worker(struct rig *rig, const char *id, const char *handlers)
{
    struct err err;
    struct test_process *worker = rig_worker_threads(rig, id, handlers, 16);
    ASSERT_OK(
        test_process_wait_output(worker, "scripted_worker: connected", CONNECT_MS, NULL, 0, &err),
        &err);
    return worker;
}

void rig_worker_signal(struct test_process *worker, int signal_number)
{
    struct err err;
    ASSERT_OK(test_process_signal(worker, signal_number, &err), &err);
}

void rig_worker_kill(struct rig *rig, struct test_process *worker)
{
    for (size_t i = 0; worker && i < rig->worker_count; i++) {
        if (rig->workers[i] != worker)
            continue;
        (void)test_process_free(worker); /* always NULL */
        rig->workers[i] = rig->workers[--rig->worker_count];
        return;
    }
}

void rig_workers_kill(struct rig *rig)
{
    while (rig->worker_count)
        rig_worker_kill(rig, rig->workers[0]);
}

/* --- SQL -------------------------------------------------------------------------------------- */

PGconn *rig_connect(struct rig *rig, enum rig_database database)
{
    PGconn *conn = PQconnectdb(database == RIG_STORE ? rig->store : rig->bank);
    if (PQstatus(conn) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(conn));
    if (database == RIG_STORE)
        PQclear(PQexec(conn, "SET search_path = sagad"));
    return conn;
}

/* Runs it until it works: a killed PostgreSQL is away for a while. Read-only or repeatable SQL. */
static PGresult *run(struct rig *rig, enum rig_database database, const char *sql)
{
    int64_t until = clock_mono_ms(&clock_system) + SQL_MS;
    PGconn **conn = &rig->conns[database];
    for (;;) {
        if (!*conn || PQstatus(*conn) != CONNECTION_OK) {
            PQfinish(*conn);
            *conn = PQconnectdb(database == RIG_STORE ? rig->store : rig->bank);
            if (database == RIG_STORE)
                PQclear(PQexec(*conn, "SET search_path = sagad"));
        }
        PGresult *res = PQexec(*conn, sql);
        ExecStatusType status = PQresultStatus(res);
        if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
            return res;
        bool lost = PQstatus(*conn) != CONNECTION_OK;
        PQclear(res);
        if (!lost || clock_mono_ms(&clock_system) > until)
            fail_msg("%s: %s", sql, PQerrorMessage(*conn));
        wait_ms(50);
    }
}

static void query(struct rig *rig, enum rig_database database, char *ret, size_t size,
                  const char *sql)
{
    PGresult *res = run(rig, database, sql);
    bool found = PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) > 0;
    (void)snprintf(ret, size, "%s", found ? PQgetvalue(res, 0, 0) : "");
    PQclear(res);
}

#define FORMAT(text, fmt)                                                                          \
    do {                                                                                           \
        va_list args_;                                                                             \
        va_start(args_, fmt);                                                                      \
        int size_ = vsnprintf(text, sizeof(text), fmt, args_);                                     \
        va_end(args_);                                                                             \
        assert_true(size_ >= 0 && (size_t)size_ < sizeof(text));                                   \
    } while (0)

char *rig_text(struct rig *rig, enum rig_database database, char *ret, size_t size, const char *fmt,
               ...)
{
    char sql[TEXT_MAX];
    FORMAT(sql, fmt);
    query(rig, database, ret, size, sql);
    return ret;
}

int64_t rig_count(struct rig *rig, enum rig_database database, const char *fmt, ...)
{
    char sql[TEXT_MAX], text[32];
    FORMAT(sql, fmt);
    query(rig, database, text, sizeof text, sql);
    return strtoll(text, NULL, 10);
}

void rig_exec(struct rig *rig, enum rig_database database, const char *fmt, ...)
{
    char sql[TEXT_MAX];
    FORMAT(sql, fmt);
    PQclear(run(rig, database, sql));
}

void rig_await(struct rig *rig, enum rig_database database, const char *expected, int64_t limit_ms,
               const char *fmt, ...)
{
    char sql[TEXT_MAX], text[1024];
    FORMAT(sql, fmt);
    int64_t until = clock_mono_ms(&clock_system) + limit_ms;
    for (;;) {
        query(rig, database, text, sizeof text, sql);
        if (strcmp(text, expected) == 0)
            return;
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("after %lld ms \"%s\", not \"%s\": %s", (long long)limit_ms, text, expected,
                     sql);
        wait_ms(25);
    }
}

/* --- what came of it -------------------------------------------------------------------------- */

void rig_await_state(struct rig *rig, const char *definition, const char *saga_id,
                     const char *state, int64_t limit_ms)
{
    rig_await(rig, RIG_STORE, state, limit_ms,
              "SELECT state || coalesce(' ' || park_reason, '') FROM saga"
              " WHERE namespace = 'default' AND definition = '%s' AND saga_id = '%s'",
              definition, saga_id);
}

void rig_await_states(struct rig *rig, const char *definition, const char *prefix,
                      const char *state, int64_t count, int64_t limit_ms)
{
    char expected[32];
    (void)snprintf(expected, sizeof expected, "%lld", (long long)count);
    rig_await(rig, RIG_STORE, expected, limit_ms,
              "SELECT count(*) FROM saga WHERE namespace = 'default' AND definition = '%s'"
              " AND saga_id LIKE '%s%%' AND state || coalesce(' ' || park_reason, '') = '%s'",
              definition, prefix, state);
}

void rig_assert_journal(struct rig *rig, const char *definition, const char *saga_id,
                        const char *expected)
{
    char text[4096];
    rig_text(rig, RIG_STORE, text, sizeof text,
             "SELECT string_agg(CASE kind"
             " WHEN 'LEASE' THEN CASE operation WHEN 'COMPENSATION' THEN '~' WHEN 'PROBE' THEN '?'"
             "  ELSE '' END || step ||"
             "  '.' || try || ' ' || coalesce(outcome, 'OPEN')"
             " WHEN 'LATE_REPORT' THEN 'late ' ||"
             "  CASE operation WHEN 'COMPENSATION' THEN '~' WHEN 'PROBE' THEN '?' ELSE '' END ||"
             "  step || '.' ||"
             "  (SELECT l.try FROM journal l WHERE l.shard = journal.shard"
             "   AND l.saga_uid = journal.saga_uid AND l.seq = journal.about) || ' ' || outcome"
             " WHEN 'RESOLVE' THEN kind || ' ' || outcome"
             " ELSE kind || coalesce(' ' || reason, '') END, ', ' ORDER BY seq)"
             " FROM journal JOIN saga USING (shard, saga_uid) WHERE namespace = 'default'"
             " AND saga.definition = '%s' AND saga_id = '%s'",
             definition, saga_id);
    if (strcmp(text, expected) != 0)
        fail_msg("journal of %s/%s:\n  is       %s\n  expected %s", definition, saga_id, text,
                 expected);
}

void rig_await_call(struct rig *rig, const char *saga_id, const char *step, const char *operation,
                    int try_, int64_t limit_ms)
{
    rig_await(rig, RIG_BANK, "1", limit_ms,
              "SELECT least(count(*), 1) FROM calls WHERE saga_id = '%s' AND step = '%s'"
              " AND operation = '%s' AND try = %d",
              saga_id, step, operation, try_);
}

void rig_assert_calls(struct rig *rig, const char *saga_id, const char *expected)
{
    char text[4096];
    rig_text(rig, RIG_BANK, text, sizeof text,
             "SELECT string_agg(CASE operation WHEN 'C' THEN '~' WHEN 'P' THEN '?' ELSE '' END ||"
             " step || '.' || try,"
             " ', ' ORDER BY id) FROM calls WHERE saga_id = '%s'",
             saga_id);
    if (strcmp(text, expected) != 0)
        fail_msg("calls of %s:\n  are      %s\n  expected %s", saga_id, text, expected);
}

int64_t rig_effects(struct rig *rig, const char *saga_id, const char *step, const char *operation)
{
    return rig_count(rig, RIG_BANK,
                     "SELECT count(*) FROM effects WHERE saga_id = '%s' AND step = '%s'"
                     " AND operation = '%s'",
                     saga_id, step, operation);
}
