/* pg_limit: the fixed yardstick of the benchmark. What PostgreSQL alone can do for three-step sagas
 * on this machine: key, saga and 3 entries inserted, entries finished, saga ended, as 4 durable
 * commits (start and first grant; finish and grant, twice; finish and end), on bare tables without
 * secondary indexes (pg_limit.sql), 100-byte inputs, 10-byte outputs, sorted set-based statements
 * over binary arrays, prepared, pipelined. The best of one and two connections counts. It knows
 * nothing of the product and must not change with it.
 *
 *   pg_limit --database CONNINFO [--seconds N]    {"pg_limit_sagas_per_s": N, ...}; counted over
 *            both: log, row operations (a row inserted, updated or deleted) and round trips (from
 *            a batch of statements to its commit's answer) for each saga
 *   pg_limit --database CONNINFO --commit         {"commit_ms": N, "commit_p99_ms": N}: p50 and p99
 *            of one-row commits; with --seconds N [--rate R]: of R (100) a second, for N seconds,
 *            beside whatever else runs
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/uuid.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH = 128,
    STEPS = 3,
    CONNECTIONS_MAX = 2,
    WARM_UP_MS = 1000,
    COMMITS = 1000,
    COMMITS_PER_S = 100,
    BACKENDS_END_MS = 10000,
    INPUT_BYTES = 100,
    OUTPUT_BYTES = 10,
    DIGEST_BYTES = 32,
};
/* Element and array types, as pg_type has them. */
enum { OID_BYTEA = 17, OID_INT8 = 20, OID_INT2 = 21, OID_TEXT = 25, OID_UUID = 2950 };
enum {
    OID_BYTEA_ARRAY = 1001,
    OID_INT2_ARRAY = 1005,
    OID_TEXT_ARRAY = 1009,
    OID_INT8_ARRAY = 1016,
    OID_UUID_ARRAY = 2951
};

/* Parameters, the same for every statement that takes them: $1 shard, $2 uid, then its own. */
static const struct statement {
    const char *name, *sql;
    int param_count;
    Oid params[5];
} statements[] = {
    { "begin", "BEGIN", 0, { 0 } },
    { "commit", "COMMIT", 0, { 0 } },
    { "start_key",
      "INSERT INTO saga_key (shard, namespace, definition, saga_id, saga_uid, run, input_digest)"
      " SELECT shard, 'default', 'settlement', saga_id, uid, 1, digest"
      " FROM unnest($1, $2, $3, $4) AS u (shard, uid, saga_id, digest) ON CONFLICT DO NOTHING",
      4,
      { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_TEXT_ARRAY, OID_BYTEA_ARRAY } },
    { "start_saga",
      "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, state,"
      " phase, owner, input, doubt, started_at, updated_at)"
      " SELECT shard, uid, 'default', 'settlement', 1, saga_id, 1, 'RUNNING', 'RUNNING', 'node-1',"
      " input, false, now(), now()"
      " FROM unnest($1, $2, $3, $4) AS u (shard, uid, saga_id, input) ON CONFLICT DO NOTHING",
      4,
      { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_TEXT_ARRAY, OID_BYTEA_ARRAY } },
    { "start_entry",
      "INSERT INTO journal (shard, saga_uid, seq, fence, kind, step, operation, try, worker,"
      " leased_at, attempt_until, lease_until)"
      " SELECT shard, uid, 1, 1, 'LEASE', 'step_1', 'ACTION', 1, 'worker-1', now(),"
      " now() + interval '5 min', now() + interval '30 s'"
      " FROM unnest($1, $2) AS u (shard, uid) ON CONFLICT DO NOTHING",
      2,
      { OID_INT2_ARRAY, OID_UUID_ARRAY } },
    { "finish_grant",
      "WITH f AS (UPDATE journal AS j SET outcome = 'DONE', finished_at = now(), output = u.output"
      " FROM unnest($1, $2, $3, $4) AS u (shard, uid, seq, output)"
      " WHERE j.shard = u.shard AND j.saga_uid = u.uid AND j.seq = u.seq AND j.outcome IS NULL"
      " RETURNING j.shard, j.saga_uid, j.seq)"
      " INSERT INTO journal (shard, saga_uid, seq, fence, kind, step, operation, try, worker,"
      " leased_at, attempt_until, lease_until)"
      " SELECT shard, saga_uid, seq + 1, seq + 1, 'LEASE', 'step_2', 'ACTION', 1, 'worker-1',"
      " now(), now() + interval '5 min', now() + interval '30 s' FROM f ON CONFLICT DO NOTHING",
      4,
      { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_BYTEA_ARRAY } },
    { "finish_end",
      "WITH f AS (UPDATE journal AS j SET outcome = 'DONE', finished_at = now(), output = u.output"
      " FROM unnest($1, $2, $3, $4) AS u (shard, uid, seq, output)"
      " WHERE j.shard = u.shard AND j.saga_uid = u.uid AND j.seq = u.seq AND j.outcome IS NULL"
      " RETURNING j.shard, j.saga_uid)"
      " UPDATE saga AS s SET state = 'SUCCEEDED', phase = 'SUCCEEDED', updated_at = now(),"
      " ended_at = now() FROM f"
      " WHERE s.shard = f.shard AND s.saga_uid = f.saga_uid AND s.state = 'RUNNING'",
      4,
      { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_BYTEA_ARRAY } },
};

struct saga_row {
    struct uuid uid;
    char saga_id[32];
};

/* One connection, its thread, and the batch that it carries through its four commits. */
struct driver {
    const char *conninfo;
    PGconn *conn;
    pthread_t thread;
    atomic_bool *stop;
    atomic_ullong *sagas;
    struct rng rng;
    uint64_t number;
    struct saga_row rows[BATCH];
    struct buf shards, uids, ids, digests, inputs, seqs, outputs;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "pg_limit: %s: %s\n", what, why); /* best effort */
    exit(1);
}

static void require(const PGresult *result, ExecStatusType status, const char *what)
{
    if (PQresultStatus(result) != status)
        give_up(what, PQresultErrorMessage(result));
}

static void exec_ok(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        give_up(sql, PQerrorMessage(conn));
    PQclear(result);
}

static PGconn *connect_or_exit(const char *conninfo)
{
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        give_up("connect", PQerrorMessage(conn));
    exec_ok(conn, "SET synchronous_commit = on");
    exec_ok(conn, "SET client_min_messages = warning");
    return conn;
}

static void prepare_all(PGconn *conn)
{
    exec_ok(conn, "SET search_path = yardstick");
    exec_ok(conn, "SET plan_cache_mode = force_generic_plan");
    exec_ok(conn, "SET enable_seqscan = off");
    exec_ok(conn, "SET enable_hashjoin = off");
    exec_ok(conn, "SET enable_mergejoin = off");
    exec_ok(conn, "SET jit = off");
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        PGresult *result = PQprepare(conn, statements[i].name, statements[i].sql,
                                     statements[i].param_count, statements[i].params);
        require(result, PGRES_COMMAND_OK, statements[i].name);
        PQclear(result);
    }
}

/* The header of a one-dimensional binary array of BATCH elements. */
static void array_begin(struct buf *buf, Oid element)
{
    buf_clear(buf);
    buf_be32(buf, 1);
    buf_be32(buf, 0);
    buf_be32(buf, element);
    buf_be32(buf, BATCH);
    buf_be32(buf, 1);
}

static void array_add(struct buf *buf, const void *data, size_t size)
{
    buf_be32(buf, (uint32_t)size);
    buf_append(buf, data, size);
}

static int row_compare(const void *left, const void *right)
{
    const struct saga_row *a = left, *b = right;
    int shards = (int)uuid_shard(&a->uid) - (int)uuid_shard(&b->uid);
    return shards ? shards : memcmp(&a->uid, &b->uid, sizeof(a->uid));
}

/* New sagas: everything that their four commits need, except the position. */
static void batch_make(struct driver *driver)
{
    uint8_t filler[INPUT_BYTES];
    int64_t wall_ms = clock_wall_ms(&clock_system);
    for (size_t i = 0; i < BATCH; i++) {
        struct saga_row *row = &driver->rows[i];
        row->uid = uuid_v7(wall_ms, &driver->rng, (uint8_t)rng_next(&driver->rng));
        (void)snprintf(row->saga_id, sizeof(row->saga_id), "order-%016llx",
                       (unsigned long long)driver->number++); /* fits */
    }
    qsort(driver->rows, BATCH, sizeof(driver->rows[0]), row_compare);
    array_begin(&driver->shards, OID_INT2);
    array_begin(&driver->uids, OID_UUID);
    array_begin(&driver->ids, OID_TEXT);
    array_begin(&driver->digests, OID_BYTEA);
    array_begin(&driver->inputs, OID_BYTEA);
    array_begin(&driver->outputs, OID_BYTEA);
    for (size_t i = 0; i < BATCH; i++) {
        const struct saga_row *row = &driver->rows[i];
        for (size_t at = 0; at < sizeof(filler); at++)
            filler[at] = (uint8_t)rng_next(&driver->rng);
        buf_be32(&driver->shards, 2);
        buf_be16(&driver->shards, uuid_shard(&row->uid));
        array_add(&driver->uids, row->uid.bytes, sizeof(row->uid.bytes));
        array_add(&driver->ids, row->saga_id, strlen(row->saga_id));
        array_add(&driver->digests, filler, DIGEST_BYTES);
        array_add(&driver->inputs, filler, INPUT_BYTES);
        array_add(&driver->outputs, filler, OUTPUT_BYTES);
    }
}

static void seqs_make(struct driver *driver, uint64_t seq)
{
    array_begin(&driver->seqs, OID_INT8);
    for (size_t i = 0; i < BATCH; i++) {
        buf_be32(&driver->seqs, 8);
        buf_be64(&driver->seqs, seq);
    }
}

static void statement_send(struct driver *driver, const char *name, const struct buf *third,
                           const struct buf *fourth)
{
    const struct buf *bufs[] = { &driver->shards, &driver->uids, third, fourth };
    const char *values[4];
    int lengths[4], formats[4];
    int count = 0;
    while (count < 4 && bufs[count]) {
        if (bufs[count]->failed)
            give_up(name, "out of memory");
        values[count] = buf_cstr(bufs[count]);
        lengths[count] = (int)bufs[count]->size;
        formats[count++] = 1;
    }
    if (!PQsendQueryPrepared(driver->conn, name, count, values, lengths, formats, 1))
        give_up(name, PQerrorMessage(driver->conn));
}

static void statement_send_bare(struct driver *driver, const char *name)
{
    if (!PQsendQueryPrepared(driver->conn, name, 0, NULL, NULL, NULL, 1))
        give_up(name, PQerrorMessage(driver->conn));
}

/* One result and the NULL behind it; `tag` is the command tag that it must have. */
static void receive(struct driver *driver, const char *tag)
{
    PGresult *result = PQgetResult(driver->conn);
    require(result, PGRES_COMMAND_OK, tag);
    if (strcmp(PQcmdStatus(result), tag) != 0)
        give_up(tag, PQcmdStatus(result));
    PQclear(result);
    if (PQgetResult(driver->conn))
        give_up(tag, "more results than statements");
}

static void commit(struct driver *driver, const char *const *tags)
{
    statement_send_bare(driver, "commit");
    if (!PQpipelineSync(driver->conn))
        give_up("sync", PQerrorMessage(driver->conn));
    receive(driver, "BEGIN");
    for (; *tags; tags++)
        receive(driver, *tags);
    receive(driver, "COMMIT");
    PGresult *result = PQgetResult(driver->conn);
    require(result, PGRES_PIPELINE_SYNC, "sync");
    PQclear(result);
}

/* BATCH sagas from start to end: four durable commits. */
static void batch_run(struct driver *driver)
{
    char inserted[32], updated[32];
    (void)snprintf(inserted, sizeof(inserted), "INSERT 0 %d", BATCH); /* fits */
    (void)snprintf(updated, sizeof(updated), "UPDATE %d", BATCH);     /* fits */
    batch_make(driver);
    statement_send_bare(driver, "begin");
    statement_send(driver, "start_key", &driver->ids, &driver->digests);
    statement_send(driver, "start_saga", &driver->ids, &driver->inputs);
    statement_send(driver, "start_entry", NULL, NULL);
    commit(driver, (const char *const[]){ inserted, inserted, inserted, NULL });
    for (uint64_t seq = 1; seq < STEPS; seq++) {
        seqs_make(driver, seq);
        statement_send_bare(driver, "begin");
        statement_send(driver, "finish_grant", &driver->seqs, &driver->outputs);
        commit(driver, (const char *const[]){ inserted, NULL });
    }
    seqs_make(driver, STEPS);
    statement_send_bare(driver, "begin");
    statement_send(driver, "finish_end", &driver->seqs, &driver->outputs);
    commit(driver, (const char *const[]){ updated, NULL });
}

static void *driver_main(void *arg)
{
    struct driver *driver = arg;
    while (!atomic_load(driver->stop)) {
        batch_run(driver);
        (void)atomic_fetch_add(driver->sagas, BATCH); /* the sum is read elsewhere */
    }
    return NULL;
}

static void sleep_ms(int64_t ms)
{
    struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    while (nanosleep(&left, &left) != 0)
        continue;
}

static void driver_begin(struct driver *driver, const char *conninfo, uint64_t index)
{
    rng_seed_os(&driver->rng);
    driver->number = index << 48;
    driver->conn = connect_or_exit(conninfo);
    prepare_all(driver->conn);
    if (!PQenterPipelineMode(driver->conn))
        give_up("pipeline mode", PQerrorMessage(driver->conn));
    if (pthread_create(&driver->thread, NULL, driver_main, driver) != 0)
        give_up("thread", "cannot be started");
}

static void driver_end(struct driver *driver)
{
    struct buf *bufs[] = { &driver->shards, &driver->uids, &driver->ids,    &driver->digests,
                           &driver->inputs, &driver->seqs, &driver->outputs };
    if (pthread_join(driver->thread, NULL) != 0)
        give_up("thread", "cannot be joined");
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        buf_done(bufs[i]);
    PQfinish(driver->conn);
}

/* What PostgreSQL counted. */
struct counted {
    double sagas, wal_bytes, rows, round_trips;
};

static double query(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    require(result, PGRES_TUPLES_OK, sql);
    double value = strtod(PQgetvalue(result, 0, 0), NULL);
    PQclear(result);
    return value;
}

/* A backend adds to the statistics at its end, which the client does not wait for. */
static void await_backends(PGconn *conn)
{
    static const char others[] = "SELECT count(*) FROM pg_stat_activity WHERE datname ="
                                 " current_database() AND backend_type = 'client backend'"
                                 " AND pid <> pg_backend_pid()";
    int64_t end_ms = clock_mono_ms(&clock_system) + BACKENDS_END_MS;
    while (query(conn, others) > 0) {
        if (clock_mono_ms(&clock_system) > end_ms)
            give_up("the end", "another session of the database does not end");
        sleep_ms(20);
    }
}

static const char wal_position[] = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')",
                  transactions[] = "SELECT xact_commit FROM pg_stat_database"
                                   " WHERE datname = current_database()",
                  row_operations[] = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)"
                                     " FROM pg_stat_user_tables WHERE schemaname = 'yardstick'";

/* Sagas a second that `connections` of them carry together, after a warm-up, on empty tables; adds
 * to *counted what all of them cost, the warm-up's, too. */
static double measure(const char *conninfo, const char *schema, size_t connections, int64_t run_ms,
                      struct counted *counted)
{
    atomic_bool stop = false;
    atomic_ullong sagas = 0;
    struct driver *drivers = mem_calloc(CONNECTIONS_MAX, sizeof(*drivers));
    if (!drivers)
        give_up("drivers", "out of memory");
    PGconn *conn = connect_or_exit(conninfo);
    exec_ok(conn, schema);
    exec_ok(conn, "CHECKPOINT");
    double wal_bytes = query(conn, wal_position), round_trips = query(conn, transactions);
    for (size_t i = 0; i < connections; i++) {
        drivers[i].stop = &stop;
        drivers[i].sagas = &sagas;
        driver_begin(&drivers[i], conninfo, i);
    }
    sleep_ms(WARM_UP_MS);
    int64_t start_ms = clock_mono_ms(&clock_system);
    unsigned long long before = atomic_load(&sagas);
    sleep_ms(run_ms);
    unsigned long long after = atomic_load(&sagas);
    int64_t end_ms = clock_mono_ms(&clock_system);
    atomic_store(&stop, true);
    for (size_t i = 0; i < connections; i++)
        driver_end(&drivers[i]);
    mem_free(drivers);
    await_backends(conn);
    counted->sagas += (double)atomic_load(&sagas);
    counted->wal_bytes += query(conn, wal_position) - wal_bytes;
    counted->round_trips += query(conn, transactions) - round_trips;
    counted->rows += query(conn, row_operations);
    PQfinish(conn);
    return (double)(after - before) * 1000.0 / (double)(end_ms - start_ms);
}

static int double_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* 1,000 commits one after the other, or `rate` a second for some seconds: prints p50 and p99. */
static void print_commit(const char *conninfo, long seconds, long rate)
{
    int commits = seconds > 0 ? (int)(seconds * rate) : COMMITS;
    static const Oid types[] = { OID_INT8 };
    double *times_ms = mem_calloc((size_t)commits, sizeof(*times_ms));
    if (!times_ms)
        give_up("commit", "out of memory");
    PGconn *conn = connect_or_exit(conninfo);
    exec_ok(conn, "DROP SCHEMA IF EXISTS yardstick CASCADE; CREATE SCHEMA yardstick;"
                  "CREATE TABLE yardstick.one_row (number bigint PRIMARY KEY)");
    PGresult *prepared =
        PQprepare(conn, "one", "INSERT INTO yardstick.one_row VALUES ($1)", 1, types);
    require(prepared, PGRES_COMMAND_OK, "prepare");
    PQclear(prepared);
    for (int i = 0; i < commits; i++) {
        struct timespec from, to, pause = { .tv_nsec = 999999999 / rate };
        if (seconds > 0)
            (void)nanosleep(&pause, NULL); /* a signal ends the program */
        char number[16];
        const char *values[] = { number };
        (void)snprintf(number, sizeof(number), "%d", i); /* fits */
        (void)clock_gettime(CLOCK_MONOTONIC, &from);     /* cannot fail for this clock */
        PGresult *result = PQexecPrepared(conn, "one", 1, values, NULL, NULL, 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &to); /* cannot fail for this clock */
        require(result, PGRES_COMMAND_OK, "insert");
        PQclear(result);
        times_ms[i] =
            (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
    }
    exec_ok(conn, "DROP SCHEMA yardstick CASCADE");
    PQfinish(conn);
    qsort(times_ms, (size_t)commits, sizeof(*times_ms), double_compare);
    (void)printf("{\"commit_ms\": %.3f, \"commit_p99_ms\": %.3f}\n", times_ms[commits / 2],
                 times_ms[commits / 100 * 99]); /* best effort */
    mem_free(times_ms);
}

static char *schema_read(void)
{
    static const char path[] = SOURCE_DIR "/tests/bench/pg_limit.sql";
    struct buf text = { 0 };
    FILE *file = fopen(path, "re");
    if (!file)
        give_up(path, "cannot be read");
    for (size_t got = 1; got > 0;) {
        uint8_t *room = buf_room(&text, 4096);
        if (!room)
            give_up(path, "out of memory");
        got = fread(room, 1, 4096, file);
        buf_added(&text, got);
    }
    if (ferror(file) || fclose(file) != 0)
        give_up(path, "cannot be read");
    char *schema = mem_strndup(buf_cstr(&text), text.size);
    buf_done(&text);
    if (!schema)
        give_up(path, "out of memory");
    return schema;
}

static void print_limit(const char *conninfo, int64_t seconds)
{
    CLEANUP(mem_free_p) char *schema = schema_read();
    struct counted counted = { 0 };
    double one = measure(conninfo, schema, 1, seconds * 1000, &counted);
    double two = measure(conninfo, schema, 2, seconds * 1000, &counted);
    PGconn *conn = connect_or_exit(conninfo);
    exec_ok(conn, "DROP SCHEMA yardstick CASCADE");
    PQfinish(conn);
    (void)printf("{\"pg_limit_sagas_per_s\": %.0f, \"one_connection\": %.0f, "
                 "\"two_connections\": %.0f, \"batch\": %d, \"wal_bytes_per_saga\": %.0f, "
                 "\"rows_per_saga\": %.3f, \"round_trips_per_saga\": %.4f}\n",
                 one > two ? one : two, one, two, BATCH, counted.wal_bytes / counted.sagas,
                 counted.rows / counted.sagas,
                 counted.round_trips / counted.sagas); /* best effort */
}

int main(int argc, char **argv)
{
    const char *conninfo = NULL;
    long seconds = 0, rate = COMMITS_PER_S;
    bool commits_only = false;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--commit") == 0)
            commits_only = true;
        else if (strcmp(argv[i], "--database") == 0 && i + 1 < argc)
            conninfo = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = strtol(argv[++i], &end, 10);
        else if (strcmp(argv[i], "--rate") == 0 && i + 1 < argc)
            rate = strtol(argv[++i], &end, 10);
        else
            give_up("unknown argument", argv[i]);
        if (end && (rate < 1 || rate > 10000 || *end))
            give_up("--rate", "a whole number from 1 to 10000 is needed");
        if (end && (seconds < 0 || seconds > 3600 || *end))
            give_up("--seconds", "a whole number from 1 to 3600 is needed");
    }
    if (!conninfo)
        give_up("usage", "pg_limit --database CONNINFO [--commit] [--seconds N] [--rate R]");
    if (commits_only)
        print_commit(conninfo, seconds, rate);
    else
        print_limit(conninfo, seconds > 0 ? seconds : 5);
    return 0;
}
