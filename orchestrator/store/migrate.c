#include "store/pg.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "store/connect.h"
#include "store/migrations.h"
#include "store/sqlstate.h"

#include <stdio.h>
#include <string.h>

enum {
    MIGRATE_LOCK = 0x73616761, /* "saga": one server migrates, the others wait and find it done */
    SERVER_VERSION_MIN = 140000,
    CHECKSUM_SIZE = 65,
};

static int run(PGconn *conn, const char *sql, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        return 0;
    (void)sqlstate_classify(result, "migrate", err);
    return (int)err->code;
}

static int checksum(const struct migration *migration, char ret[CHECKSUM_SIZE], struct err *err)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t digest[32];
    struct sha256_part part = { migration->sql, migration->size };
    if (sha256(&part, 1, digest) != 0)
        return err_set(err, ERR_NOMEM, "migrate: checksum");
    for (size_t i = 0; i < sizeof digest; i++) {
        ret[2 * i] = hex[digest[i] >> 4];
        ret[2 * i + 1] = hex[digest[i] & 15];
    }
    ret[CHECKSUM_SIZE - 1] = '\0';
    return 0;
}

/* The table that remembers; made by the first server that comes. A role that may not create schemas
 * can still use one that is there. */
static int ensure_table(PGconn *conn, struct err *err)
{
    CLEANUP(connect_clear_p)
    PGresult *there = PQexec(conn, "SELECT to_regclass('" STORE_SCHEMA ".schema_migrations')");
    if (PQresultStatus(there) != PGRES_TUPLES_OK) {
        (void)sqlstate_classify(there, "migrate", err);
        return (int)err->code;
    }
    if (!PQgetisnull(there, 0, 0))
        return 0;
    return run(conn,
               "CREATE SCHEMA IF NOT EXISTS " STORE_SCHEMA ";"
               "CREATE TABLE " STORE_SCHEMA ".schema_migrations ("
               " version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,"
               " program text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
               err);
}

/* Compares what was applied with what we have; *ret_next is the first that is missing. */
static int check_applied(PGconn *conn, size_t *ret_next, struct err *err)
{
    CLEANUP(connect_clear_p)
    PGresult *applied =
        PQexec(conn, "SELECT version, name, checksum FROM " STORE_SCHEMA ".schema_migrations"
                     " ORDER BY version");
    if (PQresultStatus(applied) != PGRES_TUPLES_OK) {
        (void)sqlstate_classify(applied, "migrate", err);
        return (int)err->code;
    }
    int rows = PQntuples(applied);
    for (int row = 0; row < rows; row++) {
        const char *name = PQgetvalue(applied, row, 1);
        if ((size_t)row >= migration_count)
            return err_reason(err, ERR_PRECONDITION, "DATABASE_NEWER",
                              "migrate: the database is newer than this program: it has %s", name);
        const struct migration *ours = &migrations[row];
        char expected[CHECKSUM_SIZE];
        if (checksum(ours, expected, err) != 0)
            return (int)err->code;
        char version[16];
        (void)snprintf(version, sizeof version, "%d", ours->version);
        if (strcmp(PQgetvalue(applied, row, 0), version) != 0 || strcmp(name, ours->name) != 0 ||
            strcmp(PQgetvalue(applied, row, 2), expected) != 0)
            return err_reason(err, ERR_PRECONDITION, "MIGRATION_CHANGED",
                              "migrate: the database was migrated by another %s than ours (%s)",
                              ours->name, name);
    }
    *ret_next = (size_t)rows;
    return 0;
}

static int apply(PGconn *conn, const struct migration *migration, struct err *err)
{
    char sum[CHECKSUM_SIZE], version[16];
    if (checksum(migration, sum, err) != 0 ||
        run(conn, "SET LOCAL search_path = " STORE_SCHEMA, err) != 0)
        return (int)err->code;
    if (run(conn, migration->sql, err) != 0)
        return err_wrap(err, "%s", migration->name);
    (void)snprintf(version, sizeof version, "%d", migration->version);
    const char *values[] = { version, migration->name, sum, SAGAD_VERSION };
    CLEANUP(connect_clear_p)
    PGresult *result = PQexecParams(conn,
                                    "INSERT INTO " STORE_SCHEMA ".schema_migrations"
                                    " (version, name, checksum, program) VALUES ($1, $2, $3, $4)",
                                    4, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        (void)sqlstate_classify(result, "migrate", err);
        return (int)err->code;
    }
    return 0;
}

/* One migration in one transaction; *ret_more false when none was missing. */
static int step(PGconn *conn, bool *ret_more, struct err *err)
{
    char lock[64];
    size_t next = 0;
    (void)snprintf(lock, sizeof lock, "SELECT pg_advisory_xact_lock(%d)", MIGRATE_LOCK);
    if (run(conn, "BEGIN", err) != 0 || run(conn, lock, err) != 0 || ensure_table(conn, err) != 0 ||
        check_applied(conn, &next, err) != 0)
        return (int)err->code;
    if (next < migration_count && apply(conn, &migrations[next], err) != 0)
        return (int)err->code;
    if (next < migration_count)
        fault_point("inside_migration");
    CLEANUP(connect_clear_p) PGresult *commit = PQexec(conn, "COMMIT");
    if (PQresultStatus(commit) != PGRES_COMMAND_OK || strcmp(PQcmdStatus(commit), "COMMIT") != 0) {
        (void)sqlstate_classify(commit, "migrate", err);
        return (int)err->code;
    }
    *ret_more = next < migration_count;
    if (*ret_more)
        log_line(LOG_INFO, "migrated", "migration", migrations[next].name, NULL);
    return 0;
}

int store_migrate(const char *conninfo, struct err *err)
{
    CLEANUP(connect_finish_p) PGconn *conn = NULL;
    if (connect_blocking(conninfo, CONNECT_ADMIN, &conn, err) != 0)
        return (int)err->code;
    bool more = true;
    while (more)
        if (step(conn, &more, err) != 0)
            return (int)err->code; /* the transaction dies with the connection */
    return 0;
}

static int check_setting(PGconn *conn, const char *name, struct err *err)
{
    const char *values[] = { name };
    CLEANUP(connect_clear_p)
    PGresult *result =
        PQexecParams(conn, "SELECT current_setting($1)", 1, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        (void)sqlstate_classify(result, "check server", err);
        return (int)err->code;
    }
    if (strcmp(PQgetvalue(result, 0, 0), "off") == 0)
        return err_reason(err, ERR_PRECONDITION, "UNSAFE_SERVER",
                          "PostgreSQL runs with %s=off: it may lose what it acknowledged", name);
    return 0;
}

int store_check_server(const char *conninfo, bool unsafe, struct err *err)
{
    static const char *const settings[] = { "fsync", "synchronous_commit", "full_page_writes" };
    CLEANUP(connect_finish_p) PGconn *conn = NULL;
    if (connect_blocking(conninfo, CONNECT_ADMIN, &conn, err) != 0)
        return (int)err->code;
    int version = PQserverVersion(conn);
    if (version < SERVER_VERSION_MIN)
        return err_reason(err, ERR_PRECONDITION, "SERVER_TOO_OLD",
                          "PostgreSQL %d.%d is older than 14", version / 10000, version % 10000);
    for (size_t i = 0; i < ARRAY_LEN(settings) && !unsafe; i++)
        if (check_setting(conn, settings[i], err) != 0)
            return (int)err->code;
    return 0;
}
