#include "support/mariadb.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/process.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGS_MAX = 32, ARG_SIZE = SCRATCH_PATH_SIZE + 32, START_LIMIT_MS = 60000 };

struct test_mariadb {
    struct test_process *server; /* NULL while it is down */
    uid_t uid;
    gid_t gid;
    char directory[SCRATCH_PATH_SIZE];
    char socket[SCRATCH_PATH_SIZE + 8], data[ARG_SIZE], socket_arg[ARG_SIZE];
    char program[SCRATCH_PATH_SIZE], tmpdir[ARG_SIZE];
    const char *argv[ARGS_MAX + 1];
};

/* Of both the server and the making of its files. */
static const char log_size[] = "--innodb-log-file-size=16M", no_aio[] = "--innodb-use-native-aio=0";

static void conn_close_p(MYSQL **conn)
{
    if (*conn)
        mysql_close(*conn);
}

static void process_free_p(struct test_process **process)
{
    *process = test_process_free(*process);
}

/* mariadbd refuses to run as root; any user will do that owns nothing. */
static int directory_make(struct test_mariadb *mariadb, struct err *err)
{
    if (geteuid() == 0) {
        const struct passwd *user = getpwnam("mysql");
        if (!user)
            user = getpwnam("nobody");
        if (!user || user->pw_uid == 0 || user->pw_gid == 0)
            return err_set(err, ERR_PRECONDITION, "no system user \"mysql\" or \"nobody\"");
        mariadb->uid = user->pw_uid;
        mariadb->gid = user->pw_gid;
    }
    if (scratch_path("mariadb", mariadb->directory, err))
        return (int)err->code;
    if (mkdir(mariadb->directory, 0700) != 0 ||
        (mariadb->uid != 0 && chown(mariadb->directory, mariadb->uid, mariadb->gid) != 0))
        return err_set(err, ERR_INTERNAL, "make %s: %s", mariadb->directory, strerror(errno));
    (void)snprintf(mariadb->socket, sizeof mariadb->socket, "%s/sock", mariadb->directory);
    (void)snprintf(mariadb->socket_arg, sizeof mariadb->socket_arg, "--socket=%s", mariadb->socket);
    /* Ours may be closed to the user that it runs as. */
    (void)snprintf(mariadb->tmpdir, sizeof mariadb->tmpdir, "TMPDIR=%s", mariadb->directory);
    (void)snprintf(mariadb->data, sizeof mariadb->data, "--datadir=%s/data",
                   mariadb->directory); /* all of them fit */
    return 0;
}

static int install_db(struct test_mariadb *mariadb, struct err *err)
{
    const char *const argv[] = { "/usr/bin/mariadb-install-db",
                                 "--no-defaults",
                                 mariadb->data,
                                 "--auth-root-authentication-method=normal",
                                 "--skip-test-db",
                                 "--skip-name-resolve",
                                 log_size,
                                 no_aio,
                                 NULL };
    const char *const env[] = { mariadb->tmpdir, NULL };
    const struct test_process_options options = { .argv = argv,
                                                  .env = env,
                                                  .directory = mariadb->directory,
                                                  .uid = mariadb->uid,
                                                  .gid = mariadb->gid };
    return test_process_must_succeed(&options, START_LIMIT_MS, err);
}

static int arguments_set(struct test_mariadb *mariadb, const char *const *settings, struct err *err)
{
    const char *folder = getenv("SAGAD_MARIADB_BIN");
    (void)snprintf(mariadb->program, sizeof mariadb->program, "%s/mariadbd",
                   folder && *folder ? folder : "/usr/sbin"); /* one that is cut does not start */
    const char *const fixed[] = { mariadb->program,
                                  "--no-defaults",
                                  mariadb->data,
                                  mariadb->socket_arg,
                                  "--skip-networking",
                                  "--skip-name-resolve",
                                  "--innodb-flush-log-at-trx-commit=1",
                                  "--innodb-buffer-pool-size=64M",
                                  log_size,
                                  no_aio,
                                  "--innodb-fast-shutdown=2",
                                  "--character-set-server=utf8mb4",
                                  NULL };
    size_t count = 0;
    for (size_t i = 0; fixed[i]; i++)
        mariadb->argv[count++] = fixed[i];
    for (size_t i = 0; settings && settings[i]; i++) {
        if (count == ARGS_MAX)
            return err_set(err, ERR_LIMIT, "too many settings");
        mariadb->argv[count++] = settings[i];
    }
    return 0;
}

int test_mariadb_restart(struct test_mariadb *mariadb, struct err *err)
{
    if (mariadb->server)
        return err_set(err, ERR_PRECONDITION, "mariadb is running");
    const char *const env[] = { mariadb->tmpdir, NULL };
    const struct test_process_options options = { .name = "mariadb",
                                                  .argv = mariadb->argv,
                                                  .env = env,
                                                  .directory = mariadb->directory,
                                                  .uid = mariadb->uid,
                                                  .gid = mariadb->gid };
    if (test_process_start(&options, &mariadb->server, err))
        return (int)err->code;
    int64_t end_ms = clock_mono_ms(&clock_system) + START_LIMIT_MS;
    MYSQL *conn;
    while (test_mariadb_connect(mariadb, NULL, NULL, &conn, err)) {
        bool running = test_process_running(mariadb->server);
        if (running && clock_mono_ms(&clock_system) < end_ms) {
            wait_ms(10);
            continue;
        }
        CLEANUP(mem_free_p) char *output = test_process_output(mariadb->server);
        mariadb->server = test_process_free(mariadb->server);
        return err_set(err, ERR_INTERNAL, "mariadb %s: %s", running ? "does not answer" : "ended",
                       output ? output : "");
    }
    mysql_close(conn);
    return 0;
}

int test_mariadb_start(const char *const *settings, struct test_mariadb **ret_mariadb,
                       struct err *err)
{
    struct test_mariadb *mariadb = mem_calloc(1, sizeof(*mariadb));
    if (!mariadb || mysql_library_init(0, NULL, NULL) != 0) { /* before there are threads */
        mem_free(mariadb);
        return err_set(err, ERR_NOMEM, "no memory for mariadb");
    }
    if (directory_make(mariadb, err) || arguments_set(mariadb, settings, err) ||
        install_db(mariadb, err) || test_mariadb_restart(mariadb, err)) {
        (void)test_mariadb_free(mariadb); /* always NULL */
        return err_wrap(err, "throw-away mariadb: ");
    }
    *ret_mariadb = mariadb;
    return 0;
}

void test_mariadb_kill(struct test_mariadb *mariadb)
{
    mariadb->server = test_process_free(mariadb->server);
}

struct test_mariadb *test_mariadb_free(struct test_mariadb *mariadb)
{
    struct err err;
    if (!mariadb)
        return NULL;
    test_mariadb_kill(mariadb);
    if (mariadb->directory[0] && !getenv("SAGAD_TEST_KEEP") &&
        scratch_remove(mariadb->directory, &err))
        (void)fprintf(stderr, "%s\n", err.msg); /* best effort; removed at exit */
    mem_free(mariadb);
    mysql_library_end();
    return NULL;
}

const char *test_mariadb_socket(const struct test_mariadb *mariadb)
{
    return mariadb->socket;
}

int test_mariadb_connect(const struct test_mariadb *mariadb, const char *user, const char *database,
                         MYSQL **ret_conn, struct err *err)
{
    CLEANUP(conn_close_p) MYSQL *conn = mysql_init(NULL);
    if (!conn)
        return err_set(err, ERR_NOMEM, "no memory for a connection");
    if (!mysql_real_connect(conn, NULL, user ? user : "root", "", database, 0, mariadb->socket,
                            CLIENT_MULTI_STATEMENTS))
        return err_set(err, ERR_UNAVAILABLE, "%s", mysql_error(conn));
    *ret_conn = TAKE(conn);
    return 0;
}

/* All statements of it; the first result set is the caller's (NULL: there was none). */
static int run(MYSQL *conn, const char *sql, MYSQL_RES **ret_result, struct err *err)
{
    MYSQL_RES *first = NULL;
    int more = mysql_query(conn, sql);
    while (more == 0) {
        MYSQL_RES *result = mysql_store_result(conn);
        if (first)
            mysql_free_result(result);
        else
            first = result;
        more = mysql_next_result(conn); /* -1: that was all */
    }
    if (more > 0) {
        mysql_free_result(first);
        return err_set(err, ERR_INTERNAL, "%s: %s", sql, mysql_error(conn));
    }
    *ret_result = first;
    return 0;
}

int test_mariadb_exec(struct test_mariadb *mariadb, const char *database, const char *sql,
                      struct err *err)
{
    CLEANUP(conn_close_p) MYSQL *conn = NULL;
    MYSQL_RES *result;
    if (test_mariadb_connect(mariadb, NULL, database, &conn, err) || run(conn, sql, &result, err))
        return (int)err->code;
    mysql_free_result(result);
    return 0;
}

int test_mariadb_createdb(struct test_mariadb *mariadb, const char *database, struct err *err)
{
    char sql[160];
    if (strspn(database, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(database) ||
        strlen(database) > 63)
        return err_set(err, ERR_INVALID, "not a plain name: %s", database);
    (void)snprintf(sql, sizeof sql, "CREATE DATABASE %s", database); /* fits */
    return test_mariadb_exec(mariadb, NULL, sql, err);
}

int test_mariadb_script(struct test_mariadb *mariadb, const char *database, const char *path,
                        char **ret_output, struct err *err)
{
    char source[SCRATCH_PATH_SIZE + 16];
    (void)snprintf(source, sizeof source, "source %s", path); /* one that is cut is not found */
    const char *const argv[] = { "/usr/bin/mariadb",
                                 "--no-defaults",
                                 mariadb->socket_arg,
                                 "--user=root",
                                 "--batch",
                                 "--skip-column-names",
                                 "--abort-source-on-error",
                                 "-e",
                                 source,
                                 database,
                                 NULL };
    CLEANUP(process_free_p) struct test_process *client = NULL;
    int status;
    if (test_process_run(argv, &client, err) ||
        test_process_wait(client, START_LIMIT_MS, &status, err))
        return (int)err->code;
    CLEANUP(mem_free_p) char *output = test_process_output(client);
    if (status != 0 || !output)
        return err_set(err, ERR_INTERNAL, "%s: %s", path, output ? output : "no output");
    if (ret_output)
        *ret_output = TAKE(output);
    return 0;
}

int test_mariadb_count(struct test_mariadb *mariadb, const char *database, const char *sql,
                       int64_t *ret_count, struct err *err)
{
    CLEANUP(conn_close_p) MYSQL *conn = NULL;
    MYSQL_RES *result = NULL;
    if (test_mariadb_connect(mariadb, NULL, database, &conn, err) || run(conn, sql, &result, err))
        return (int)err->code;
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    int rc = 0;
    if (row && row[0])
        *ret_count = strtoll(row[0], NULL, 10);
    else
        rc = err_set(err, ERR_NOT_FOUND, "no row: %s", sql);
    mysql_free_result(result);
    return rc;
}
