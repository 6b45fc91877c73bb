#include "retention_fixture.h"

#include "base/buf.h"
#include "support/wait.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

PGconn *retention_database(struct test_postgres *postgres, const char *name,
                           char ret_conninfo[POSTGRES_CONNINFO_SIZE])
{
    fixture_database(postgres, name, ret_conninfo);
    PGconn *conn = fixture_connect(ret_conninfo);
    fixture_exec(conn, "CREATE TABLE made (i integer PRIMARY KEY, shard smallint, uid uuid)");
    return conn;
}

void make_sagas(PGconn *conn, int first, int last, int entries, const char *age)
{
    CLEANUP(buf_done) struct buf sql = { 0 };
    buf_printf(
        &sql,
        "WITH m AS (INSERT INTO made SELECT i, (i %% 256)::smallint, (lpad(to_hex("
        "(extract(epoch FROM now() - interval '%s') * 1000)::bigint), 12, '0') || '70008000'"
        " || lpad(to_hex(i), 10, '0') || lpad(to_hex(i %% 256), 2, '0'))::uuid"
        " FROM generate_series(%d, %d) i RETURNING *),"
        " k AS (INSERT INTO saga_key (shard, namespace, definition, saga_id, saga_uid, run,"
        " input_digest, final_state) SELECT shard, 'test', 'pay', 'k' || i, uid, 1, sha256('x'),"
        " 'SUCCEEDED' FROM m),"
        " s AS (INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run,"
        " state, phase, doubt, started_at, updated_at, ended_at, input) SELECT shard, uid, 'test',"
        " 'pay', 1, 'k' || i, 1, 'SUCCEEDED', 'SUCCEEDED', false, now() - interval '%s',"
        " now() - interval '%s', now() - interval '%s' + interval '1 s', 'an input' FROM m)"
        " INSERT INTO journal (shard, saga_uid, seq, fence, kind, step, step_index, operation,"
        " try, leased_at, outcome, output) SELECT shard, uid, e, e, 'LEASE', 'debit', e - 1,"
        " 'ACTION', 1, now(), 'DONE', 'an output' FROM m, generate_series(1, %d) e",
        age, first, last, age, age, age, entries);
    fixture_exec(conn, buf_cstr(&sql));
}

void change_saga(PGconn *conn, int i, const char *set, ...)
{
    char change[256], sql[512];
    va_list args;
    va_start(args, set);
    (void)vsnprintf(change, sizeof change, set, args);
    va_end(args);
    (void)snprintf(sql, sizeof sql, "UPDATE saga SET %s WHERE saga_id = 'k%d'", change, i);
    fixture_exec(conn, sql);
}

struct retention *purger(const char *conninfo, const char *node, int64_t key_memory_ms,
                         const char *archive)
{
    const struct retention_options options = { .conninfo = conninfo,
                                               .node = node,
                                               .age_ms = HOUR_MS,
                                               .key_memory_ms = key_memory_ms,
                                               .archive = archive,
                                               .round_pause_ms = 100 };
    struct retention *retention;
    struct err err;
    ASSERT_OK(retention_start(&options, &retention, &err), &err);
    return retention;
}

struct awaited {
    PGconn *conn;
    const char *sql;
    int64_t expected, last;
};

static bool is_there(void *ctx)
{
    struct awaited *awaited = ctx;
    awaited->last = fixture_count(awaited->conn, awaited->sql);
    return awaited->last == awaited->expected;
}

void await_count(PGconn *conn, const char *sql, int64_t expected)
{
    struct awaited awaited = { .conn = conn, .sql = sql, .expected = expected };
    if (!wait_until(is_there, &awaited, 100 * 1000))
        fail_msg("%s: %lld, not %lld", sql, (long long)awaited.last, (long long)expected);
}

void await_round(PGconn *conn, const char *node)
{
    char sql[256];
    int64_t now =
        fixture_count(conn, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8");
    /* The node's clock is this machine's, too. */
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM retention WHERE node = '%s' AND round_ended_at IS NOT NULL"
                   " AND round_began_at >= timestamptz 'epoch' + %lld * interval '1 ms'",
                   node, (long long)now);
    await_count(conn, sql, 1);
}

void archive_folder(char ret[SCRATCH_PATH_SIZE])
{
    struct err err;
    ASSERT_OK(scratch_path("archive", ret, &err), &err);
    assert_int_equal(mkdir(ret, 0700), 0);
}

static void load_file(PGconn *conn, const char *folder, const char *name)
{
    char path[2 * SCRATCH_PATH_SIZE + 256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    while ((size = getline(&line, &capacity, file)) > 0) {
        assert_int_equal(line[size - 1], '\n');
        line[size - 1] = '\0';
        const char *values[] = { name, line };
        PGresult *result = PQexecParams(conn, "INSERT INTO archived VALUES ($1, $2)", 2, NULL,
                                        values, NULL, NULL, 0);
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            fail_msg("%s: %s", name, PQresultErrorMessage(result));
        PQclear(result);
    }
    free(line);
    assert_int_equal(fclose(file), 0);
}

void load_archive(PGconn *conn, const char *folder)
{
    fixture_exec(conn,
                 "DROP TABLE IF EXISTS archived; CREATE TABLE archived (file text, line jsonb)");
    fixture_exec(conn, "BEGIN");
    DIR *open = opendir(folder);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));)
        if (strstr(entry->d_name, ".jsonl"))
            load_file(conn, folder, entry->d_name);
    assert_int_equal(closedir(open), 0);
    fixture_exec(conn, "COMMIT");
}
