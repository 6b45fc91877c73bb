#include "support/postgres.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/ports.h"
#include "support/process.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <errno.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SETTINGS_MAX = 32, SETTING_SIZE = 320, START_LIMIT_MS = 60000, STOP_LIMIT_MS = 60000 };

struct test_postgres {
    struct test_process *server; /* NULL while it is down */
    uid_t uid;
    gid_t gid;
    int port;
    char directory[SCRATCH_PATH_SIZE]; /* sockets, and the data in "data" below it */
    char data[SCRATCH_PATH_SIZE + 8];
    char log[SCRATCH_PATH_SIZE];
    size_t setting_count;
    char settings[SETTINGS_MAX][SETTING_SIZE];
};

static void result_clear_p(PGresult **result)
{
    PQclear(*result);
}

static void conn_finish_p(PGconn **conn)
{
    PQfinish(*conn);
}

static void program_path(const char *program, char ret_path[SCRATCH_PATH_SIZE])
{
    const char *folder = getenv("SAGAD_PG_BIN");
    (void)snprintf(ret_path, SCRATCH_PATH_SIZE, "%s/%s",
                   folder && *folder ? folder : "/usr/lib/postgresql/15/bin",
                   program); /* a path that is cut does not start, which says so */
}

static int directory_make(struct test_postgres *postgres, struct err *err)
{
    if (geteuid() == 0) {
        const struct passwd *user = getpwnam("postgres");
        if (!user || user->pw_uid == 0 || user->pw_gid == 0)
            return err_set(err, ERR_PRECONDITION, "no system user \"postgres\" to run it as");
        postgres->uid = user->pw_uid;
        postgres->gid = user->pw_gid;
    }
    if (scratch_path("pg", postgres->directory, err))
        return (int)err->code;
    if (mkdir(postgres->directory, 0700) != 0 ||
        (postgres->uid != 0 && chown(postgres->directory, postgres->uid, postgres->gid) != 0))
        return err_set(err, ERR_INTERNAL, "make %s: %s", postgres->directory, strerror(errno));
    (void)snprintf(postgres->data, sizeof(postgres->data), "%s/data",
                   postgres->directory); /* fits */
    return 0;
}

static int initdb(struct test_postgres *postgres, struct err *err)
{
    char program[SCRATCH_PATH_SIZE];
    program_path("initdb", program);
    /* --no-sync: the files of an empty cluster need not survive a power cut; its commits do. */
    const char *const argv[] = { program, "-D",   postgres->data,     "-U",           "postgres",
                                 "-E",    "UTF8", "--locale=C.UTF-8", "--auth=trust", "--no-sync",
                                 NULL };
    const struct test_process_options options = {
        .argv = argv, .directory = postgres->directory, .uid = postgres->uid, .gid = postgres->gid
    };
    return test_process_must_succeed(&options, START_LIMIT_MS, err);
}

static int setting_add(struct test_postgres *postgres, const char *setting, struct err *err)
{
    if (postgres->setting_count == SETTINGS_MAX || strlen(setting) >= SETTING_SIZE)
        return err_set(err, ERR_LIMIT, "too many settings, or too long: %s", setting);
    memcpy(postgres->settings[postgres->setting_count++], setting, strlen(setting) + 1);
    return 0;
}

static int settings_set(struct test_postgres *postgres, const char *const *more, struct err *err)
{
    char port[32], sockets[SETTING_SIZE];
    (void)snprintf(port, sizeof(port), "port=%d", postgres->port); /* fits */
    (void)snprintf(sockets, sizeof(sockets), "unix_socket_directories=%s",
                   postgres->directory); /* fits */
    const char *const fixed[] = { port,
                                  sockets,
                                  "listen_addresses=127.0.0.1",
                                  "fsync=on",
                                  "synchronous_commit=on",
                                  "shared_buffers=64MB",
                                  "log_line_prefix=%m [%p] %a ",
                                  NULL };
    int rc = 0;
    for (size_t i = 0; rc == 0 && fixed[i]; i++)
        rc = setting_add(postgres, fixed[i], err);
    for (size_t i = 0; rc == 0 && more && more[i]; i++)
        rc = setting_add(postgres, more[i], err);
    return rc;
}

/* One attempt: 0 when it answers; ERR_UNAVAILABLE when it ended (the port was taken, or backends of
 * a killed postmaster are still there). */
static int server_try(struct test_postgres *postgres, struct err *err)
{
    char program[SCRATCH_PATH_SIZE], conninfo[POSTGRES_CONNINFO_SIZE];
    const char *argv[3 + 2 * SETTINGS_MAX + 1] = { program, "-D", postgres->data };
    program_path("postgres", program);
    for (size_t i = 0; i < postgres->setting_count; i++) {
        argv[3 + 2 * i] = "-c";
        argv[4 + 2 * i] = postgres->settings[i];
    }
    /* SIGQUIT: an immediate shutdown, which also frees its shared memory. */
    const struct test_process_options options = { .name = "postgres",
                                                  .argv = argv,
                                                  .directory = postgres->directory,
                                                  .uid = postgres->uid,
                                                  .gid = postgres->gid,
                                                  .death_signal = SIGQUIT };
    if (test_process_start(&options, &postgres->server, err))
        return (int)err->code;
    memcpy(postgres->log, test_process_log(postgres->server), sizeof(postgres->log));
    test_postgres_conninfo(postgres, "postgres", conninfo);
    int64_t end_ms = clock_mono_ms(&clock_system) + START_LIMIT_MS;
    while (PQping(conninfo) != PQPING_OK) {
        bool running = test_process_running(postgres->server);
        if (running && clock_mono_ms(&clock_system) < end_ms) {
            wait_ms(5);
            continue;
        }
        CLEANUP(mem_free_p) char *output = test_process_output(postgres->server);
        postgres->server = test_process_free(postgres->server);
        return err_set(err, running ? ERR_INTERNAL : ERR_UNAVAILABLE, "postgres %s: %s",
                       running ? "does not answer" : "ended", output ? output : "");
    }
    return 0;
}

int test_postgres_restart(struct test_postgres *postgres, struct err *err)
{
    if (postgres->server)
        return err_set(err, ERR_PRECONDITION, "postgres is running");
    int64_t end_ms = clock_mono_ms(&clock_system) + START_LIMIT_MS;
    int rc = server_try(postgres, err);
    while (rc == ERR_UNAVAILABLE && clock_mono_ms(&clock_system) < end_ms) {
        wait_ms(50);
        rc = server_try(postgres, err);
    }
    return rc;
}

int test_postgres_start(const char *const *settings, struct test_postgres **ret_postgres,
                        struct err *err)
{
    struct test_postgres *postgres = mem_calloc(1, sizeof(*postgres));
    if (!postgres)
        return err_set(err, ERR_NOMEM, "no memory for postgres");
    if (directory_make(postgres, err) || free_port(&postgres->port, err) || initdb(postgres, err) ||
        settings_set(postgres, settings, err) || test_postgres_restart(postgres, err)) {
        (void)test_postgres_free(postgres); /* always NULL */
        return err_wrap(err, "throw-away postgres: ");
    }
    *ret_postgres = postgres;
    return 0;
}

static int stop(struct test_postgres *postgres, int signal_number, struct err *err)
{
    int status;
    if (!postgres->server)
        return err_set(err, ERR_PRECONDITION, "postgres is not running");
    if (test_process_signal(postgres->server, signal_number, err) ||
        test_process_wait(postgres->server, STOP_LIMIT_MS, &status, err))
        return (int)err->code;
    postgres->server = test_process_free(postgres->server);
    return 0;
}

int test_postgres_stop_fast(struct test_postgres *postgres, struct err *err)
{
    return stop(postgres, SIGINT, err);
}

int test_postgres_stop_immediate(struct test_postgres *postgres, struct err *err)
{
    return stop(postgres, SIGQUIT, err);
}

void test_postgres_kill(struct test_postgres *postgres)
{
    postgres->server = test_process_free(postgres->server);
}

struct test_postgres *test_postgres_free(struct test_postgres *postgres)
{
    struct err err;
    if (!postgres)
        return NULL;
    if (postgres->server && stop(postgres, SIGQUIT, &err)) {
        (void)fprintf(stderr, "%s\n", err.msg); /* best effort */
        test_postgres_kill(postgres);
    }
    if (postgres->directory[0] && !getenv("SAGAD_TEST_KEEP") &&
        scratch_remove(postgres->directory, &err))
        (void)fprintf(stderr, "%s\n", err.msg); /* best effort; removed at exit */
    mem_free(postgres);
    return NULL;
}

pid_t test_postgres_pid(const struct test_postgres *postgres)
{
    return postgres->server ? test_process_pid(postgres->server) : 0;
}

int test_postgres_port(const struct test_postgres *postgres)
{
    return postgres->port;
}

const char *test_postgres_log(const struct test_postgres *postgres)
{
    return postgres->log;
}

const char *test_postgres_socket_dir(const struct test_postgres *postgres)
{
    return postgres->directory;
}

static void conninfo_set(const struct test_postgres *postgres, const char *host,
                         const char *database, char ret_conninfo[POSTGRES_CONNINFO_SIZE])
{
    (void)snprintf(ret_conninfo, POSTGRES_CONNINFO_SIZE,
                   "host=%s port=%d dbname=%s user=postgres sslmode=disable gssencmode=disable",
                   host, postgres->port, database); /* names in tests are short */
}

void test_postgres_conninfo(const struct test_postgres *postgres, const char *database,
                            char ret_conninfo[POSTGRES_CONNINFO_SIZE])
{
    conninfo_set(postgres, postgres->directory, database, ret_conninfo);
}

void test_postgres_conninfo_tcp(const struct test_postgres *postgres, const char *database,
                                char ret_conninfo[POSTGRES_CONNINFO_SIZE])
{
    conninfo_set(postgres, "127.0.0.1", database, ret_conninfo);
}

/* Runs the statements; the caller clears *ret_result (of the last one) on success. */
static int run(struct test_postgres *postgres, const char *database, const char *sql,
               PGresult **ret_result, struct err *err)
{
    char conninfo[POSTGRES_CONNINFO_SIZE];
    test_postgres_conninfo(postgres, database, conninfo);
    CLEANUP(conn_finish_p) PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        return err_set(err, ERR_UNAVAILABLE, "%s", PQerrorMessage(conn));
    CLEANUP(result_clear_p) PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        return err_set(err, ERR_INTERNAL, "%s: %s", sql, PQerrorMessage(conn));
    *ret_result = TAKE(result);
    return 0;
}

int test_postgres_exec(struct test_postgres *postgres, const char *database, const char *sql,
                       struct err *err)
{
    PGresult *result;
    if (run(postgres, database, sql, &result, err))
        return (int)err->code;
    PQclear(result);
    return 0;
}

int test_postgres_query(struct test_postgres *postgres, const char *database, const char *sql,
                        char *ret_text, size_t size, struct err *err)
{
    CLEANUP(result_clear_p) PGresult *result = NULL;
    if (run(postgres, database, sql, &result, err))
        return (int)err->code;
    if (PQntuples(result) == 0 || PQnfields(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "no row: %s", sql);
    (void)snprintf(ret_text, size, "%s", PQgetvalue(result, 0, 0)); /* cut on purpose */
    return 0;
}

int test_postgres_count(struct test_postgres *postgres, const char *database, const char *sql,
                        int64_t *ret_count, struct err *err)
{
    char text[32], *end;
    if (test_postgres_query(postgres, database, sql, text, sizeof(text), err))
        return (int)err->code;
    errno = 0;
    int64_t count = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return err_set(err, ERR_INTERNAL, "not a whole number: \"%s\" from %s", text, sql);
    *ret_count = count;
    return 0;
}

static int database_statement(struct test_postgres *postgres, const char *what,
                              const char *database, struct err *err)
{
    char sql[160];
    if (strspn(database, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(database) ||
        strlen(database) > 63)
        return err_set(err, ERR_INVALID, "not a plain name: %s", database);
    (void)snprintf(sql, sizeof(sql), "%s \"%s\"", what, database); /* fits */
    return test_postgres_exec(postgres, "postgres", sql, err);
}

int test_postgres_createdb(struct test_postgres *postgres, const char *database, char *ret_conninfo,
                           struct err *err)
{
    if (database_statement(postgres, "CREATE DATABASE", database, err))
        return (int)err->code;
    if (ret_conninfo)
        test_postgres_conninfo(postgres, database, ret_conninfo);
    return 0;
}

int test_postgres_dropdb(struct test_postgres *postgres, const char *database, struct err *err)
{
    return database_statement(postgres, "DROP DATABASE IF EXISTS", database, err);
}

/* --- back to an earlier point ----------------------------------------------------------------- */

static void beside_data(const struct test_postgres *postgres, const char *name,
                        char ret_path[SCRATCH_PATH_SIZE + 16])
{
    (void)snprintf(ret_path, SCRATCH_PATH_SIZE + 16, "%s/%s", postgres->directory, name); /* fits */
}

int test_postgres_backup(struct test_postgres *postgres, struct err *err)
{
    char program[SCRATCH_PATH_SIZE], backup[SCRATCH_PATH_SIZE + 16], port[16];
    program_path("pg_basebackup", program);
    beside_data(postgres, "backup", backup);
    (void)snprintf(port, sizeof port, "%d", postgres->port);
    const char *const argv[] = {
        program, "-h",   postgres->directory, "-p",        port, "-U", "postgres",
        "-D",    backup, "--checkpoint=fast", "--no-sync", NULL
    };
    const struct test_process_options options = {
        .argv = argv, .directory = postgres->directory, .uid = postgres->uid, .gid = postgres->gid
    };
    if (scratch_remove(backup, err))
        return (int)err->code;
    return test_process_must_succeed(&options, START_LIMIT_MS, err);
}

/* Adds `text` to a file of the server's, which is made if need be. */
static int file_add(const struct test_postgres *postgres, const char *name, const char *text,
                    struct err *err)
{
    char path[SCRATCH_PATH_SIZE + 48];
    (void)snprintf(path, sizeof path, "%s/%s", postgres->data, name); /* fits */
    FILE *file = fopen(path, "ae");
    if (!file)
        return err_set(err, ERR_INTERNAL, "%s: %s", path, strerror(errno));
    bool written = fputs(text, file) >= 0;
    written = fclose(file) == 0 && written;
    if (!written || (postgres->uid != 0 && chown(path, postgres->uid, postgres->gid) != 0))
        return err_set(err, ERR_INTERNAL, "%s: %s", path, strerror(errno));
    return 0;
}

/* Until the answer to a yes-or-no question is yes. */
static int await_yes(struct test_postgres *postgres, const char *question, struct err *err)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + START_LIMIT_MS;
    char answer[8];
    for (;;) {
        if (test_postgres_query(postgres, "postgres", question, answer, sizeof answer, err))
            return (int)err->code;
        if (strcmp(answer, "t") == 0)
            return 0;
        if (clock_mono_ms(&clock_system) > end_ms)
            return err_set(err, ERR_UNAVAILABLE, "it stays no: %s", question);
        wait_ms(10);
    }
}

int test_postgres_recover(struct test_postgres *postgres, const char *point, struct err *err)
{
    char backup[SCRATCH_PATH_SIZE + 16], aside[SCRATCH_PATH_SIZE + 16];
    char settings[2 * SCRATCH_PATH_SIZE];
    if (postgres->server)
        return err_set(err, ERR_PRECONDITION, "postgres is running");
    beside_data(postgres, "backup", backup);
    beside_data(postgres, "aside", aside);
    (void)snprintf(settings, sizeof settings, /* a path that is cut is not found */
                   "restore_command = 'cp \"%s/pg_wal/%%f\" \"%%p\"'\n"
                   "recovery_target_name = '%s'\n",
                   aside, point);
    if (scratch_remove(aside, err))
        return (int)err->code;
    if (rename(postgres->data, aside) != 0 || rename(backup, postgres->data) != 0)
        return err_set(err, ERR_INTERNAL, "rename %s: %s", postgres->data, strerror(errno));
    if (file_add(postgres, "postgresql.auto.conf", settings, err) ||
        file_add(postgres, "recovery.signal", "", err) || test_postgres_restart(postgres, err))
        return (int)err->code;
    return await_yes(postgres, "SELECT pg_get_wal_replay_pause_state() = 'paused'", err);
}

int test_postgres_promote(struct test_postgres *postgres, struct err *err)
{
    if (test_postgres_exec(postgres, "postgres", "SELECT pg_wal_replay_resume()", err))
        return (int)err->code;
    return await_yes(postgres, "SELECT NOT pg_is_in_recovery()", err);
}
