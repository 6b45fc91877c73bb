#include "app/dev_postgres.h"

#include "app/dev_child.h"
#include "app/dev_paths.h"
#include "app/signals.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    START_LIMIT_MS = 120 * 1000, /* recovery after a crash included */
    FORMER_LIMIT_MS = 60 * 1000, /* one whose sagad was killed is shutting down */
    STOP_FAST_MS = 30 * 1000,
    STOP_IMMEDIATE_MS = 5 * 1000,
    LOOK_MS = 20,
    VERSION_SIZE = 16,
};

struct dev_postgres {
    char folder[PATH_MAX], cluster[PATH_MAX], socket[PATH_MAX], bin[PATH_MAX], log[PATH_MAX];
    char conninfo[DEV_CONNINFO_SIZE];
    struct dev_user user;
    int lock;  /* of the folder; -1: none */
    pid_t pid; /* 0: it does not run */
};

const char *dev_postgres_conninfo(const struct dev_postgres *postgres)
{
    return postgres->conninfo;
}

const char *dev_postgres_folder(const struct dev_postgres *postgres)
{
    return postgres->folder;
}

const char *dev_postgres_socket_folder(const struct dev_postgres *postgres)
{
    return postgres->socket;
}

const char *dev_postgres_bin(const struct dev_postgres *postgres)
{
    return postgres->bin;
}

/* --- the folder ----------------------------------------------------------------------------------
 */

/* First line of a small file; "" if it cannot be read. */
static void read_line(const char *path, char *ret, size_t size)
{
    *ret = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(ret, (int)size, file))
        *ret = '\0';
    (void)fclose(file); /* it was only read */
    ret[strcspn(ret, "\n")] = '\0';
}

static int lock_folder(struct dev_postgres *postgres, struct err *err)
{
    char path[PATH_MAX], holder[VERSION_SIZE];
    if (dev_path_join(postgres->folder, "lock", path, err) != 0)
        return err->code;
    postgres->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (postgres->lock < 0)
        return err_set(err, ERR_INVALID, "%s: %s", path, strerror(errno));
    if (flock(postgres->lock, LOCK_EX | LOCK_NB) != 0) {
        read_line(path, holder, sizeof holder);
        return err_set(err, ERR_PRECONDITION,
                       "another sagad dev (process %s) uses %s: end it, or say another --data",
                       holder, postgres->folder);
    }
    if (ftruncate(postgres->lock, 0) != 0 || dprintf(postgres->lock, "%d\n", (int)getpid()) < 0)
        return err_set(err, ERR_INVALID, "%s: %s", path, strerror(errno));
    return 0;
}

/* initdb into a folder beside, renamed when it is whole: half a cluster is never taken for one. */
static int create_cluster(struct dev_postgres *postgres, struct err *err)
{
    char fresh[PATH_MAX], program[PATH_MAX];
    if (dev_path_join(postgres->folder, "postgres.new", fresh, err) != 0 ||
        dev_path_join(postgres->bin, "initdb", program, err) != 0 ||
        dev_remove_folder(fresh, err) != 0 || dev_private_folder(fresh, &postgres->user, err) != 0)
        return err->code;
    const char *const argv[] = { program,
                                 "-D",
                                 fresh,
                                 "-U",
                                 "sagad",
                                 "--auth=trust",
                                 "--encoding=UTF8",
                                 "--locale=C",
                                 "--no-instructions",
                                 NULL };
    const struct dev_child child = { .argv = argv, .log = postgres->log, .user = &postgres->user };
    log_line(LOG_INFO, "making a private PostgreSQL", "data", postgres->cluster, NULL);
    if (dev_child_run(&child, err) != 0)
        return err->code;
    if (rename(fresh, postgres->cluster) != 0)
        return err_set(err, ERR_INVALID, "cannot rename %s: %s", fresh, strerror(errno));
    return 0;
}

static int prepare_folder(struct dev_postgres *postgres, const struct dev_postgres_options *options,
                          struct err *err)
{
    char path[PATH_MAX], version[VERSION_SIZE];
    if (dev_user_find(&postgres->user, err) != 0 ||
        dev_data_folder(options->data, postgres->folder, err) != 0 ||
        dev_path_join(postgres->folder, "postgres", postgres->cluster, err) != 0 ||
        dev_path_join(postgres->folder, "postgres.log", postgres->log, err) != 0 ||
        lock_folder(postgres, err) != 0 ||
        dev_path_join(postgres->cluster, "PG_VERSION", path, err) != 0)
        return err->code;
    read_line(path, version, sizeof version);
    if (dev_find_programs(options->pg_bin, version, postgres->bin, err) != 0 ||
        dev_socket_folder(postgres->folder, &postgres->user, postgres->socket, err) != 0)
        return err->code;
    (void)snprintf(postgres->conninfo, sizeof postgres->conninfo,
                   "host='%s' port=5432 user=sagad dbname=sagad", postgres->socket);
    return *version ? 0 : create_cluster(postgres, err);
}

/* --- running
 * --------------------------------------------------------------------------------------- */

/* Does the postmaster that postmaster.pid names still run? */
static bool former_runs(const struct dev_postgres *postgres)
{
    char path[PATH_MAX], text[VERSION_SIZE], name[64];
    struct err ignored;
    if (dev_path_join(postgres->cluster, "postmaster.pid", path, &ignored) != 0)
        return false; /* too long: the server itself will say so */
    read_line(path, text, sizeof text);
    long pid = strtol(text, NULL, 10);
    if (pid <= 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    read_line(path, name, sizeof name);
    return strcmp(name, "postgres") == 0;
}

static int wait_for_former(const struct dev_postgres *postgres, bool *ret_ended, struct err *err)
{
    int64_t until = clock_mono_ms(&clock_system) + FORMER_LIMIT_MS;
    bool told = false;
    while (former_runs(postgres)) {
        if (!told)
            log_line(LOG_INFO, "waiting for the former PostgreSQL to end", "data",
                     postgres->cluster, NULL);
        told = true;
        if (clock_mono_ms(&clock_system) > until)
            return err_set(err, ERR_PRECONDITION,
                           "a PostgreSQL runs on %s that does not end: stop it first",
                           postgres->cluster);
        if (signals_is_end(signals_wait(LOOK_MS))) {
            *ret_ended = true;
            return 0;
        }
    }
    return 0;
}

static int start_server(struct dev_postgres *postgres, struct err *err)
{
    char program[PATH_MAX];
    if (dev_path_join(postgres->bin, "postgres", program, err) != 0)
        return err->code;
    const char *const argv[] = {
        program, "-D", postgres->cluster,       "-k", postgres->socket, "-h", "", "-p",
        "5432",  "-c", "logging_collector=off", NULL
    };
    const struct dev_child child = { .argv = argv, .log = postgres->log, .user = &postgres->user };
    return dev_child_start(&child, &postgres->pid, err);
}

bool dev_postgres_runs(struct dev_postgres *postgres, struct err *err)
{
    int status;
    if (waitpid(postgres->pid, &status, WNOHANG) != postgres->pid)
        return true;
    postgres->pid = 0;
    (void)dev_child_failed("PostgreSQL", status, postgres->log, err); /* fills err */
    return false;
}

static int wait_until_answering(struct dev_postgres *postgres, bool *ret_ended, struct err *err)
{
    char conninfo[DEV_CONNINFO_SIZE];
    (void)snprintf(conninfo, sizeof conninfo, "host='%s' port=5432 user=sagad dbname=postgres",
                   postgres->socket);
    int64_t until = clock_mono_ms(&clock_system) + START_LIMIT_MS;
    while (PQping(conninfo) != PQPING_OK) {
        if (!dev_postgres_runs(postgres, err))
            return err->code;
        if (clock_mono_ms(&clock_system) > until)
            return err_set(err, ERR_UNAVAILABLE, "PostgreSQL does not get ready; see %s",
                           postgres->log);
        if (signals_is_end(signals_wait(LOOK_MS))) {
            *ret_ended = true;
            return 0;
        }
    }
    return 0;
}

static void finish_p(PGconn **conn)
{
    PQfinish(*conn);
}

static void clear_p(PGresult **result)
{
    PQclear(*result);
}

static int create_database(const struct dev_postgres *postgres, struct err *err)
{
    char conninfo[DEV_CONNINFO_SIZE];
    (void)snprintf(conninfo, sizeof conninfo, "host='%s' port=5432 user=sagad dbname=postgres",
                   postgres->socket);
    CLEANUP(finish_p) PGconn *conn = PQconnectdb(conninfo);
    CLEANUP(clear_p) PGresult *made = PQexec(conn, "CREATE DATABASE sagad");
    const char *sqlstate = PQresultErrorField(made, PG_DIAG_SQLSTATE);
    bool there = sqlstate && strcmp(sqlstate, "42P04") == 0; /* duplicate_database */
    if (PQresultStatus(made) != PGRES_COMMAND_OK && !there)
        return err_set(err, ERR_UNAVAILABLE, "cannot create the database sagad: %s",
                       PQerrorMessage(conn));
    return 0;
}

int dev_postgres_start(const struct dev_postgres_options *options, struct dev_postgres **ret,
                       struct err *err)
{
    struct dev_postgres *postgres = mem_calloc(1, sizeof *postgres);
    if (!postgres)
        return err_set(err, ERR_NOMEM, "sagad dev: out of memory");
    postgres->lock = -1;
    bool ended = false;
    int rc = prepare_folder(postgres, options, err);
    if (rc == 0)
        rc = wait_for_former(postgres, &ended, err);
    if (rc == 0 && !ended)
        rc = start_server(postgres, err);
    if (rc == 0 && !ended)
        rc = wait_until_answering(postgres, &ended, err);
    if (rc == 0 && !ended)
        rc = create_database(postgres, err);
    if (rc != 0 || ended)
        postgres = dev_postgres_stop(postgres);
    if (rc == 0)
        *ret = postgres;
    return rc;
}

/* --- the end
 * ----------------------------------------------------------------------------------------- */

static bool wait_for_end(struct dev_postgres *postgres, int64_t limit_ms)
{
    int64_t until = clock_mono_ms(&clock_system) + limit_ms;
    const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };
    int status;
    while (waitpid(postgres->pid, &status, WNOHANG) == 0) {
        if (clock_mono_ms(&clock_system) > until)
            return false;
        (void)nanosleep(&pause, NULL); /* a signal makes it shorter */
    }
    postgres->pid = 0;
    return true;
}

struct dev_postgres *dev_postgres_stop(struct dev_postgres *postgres)
{
    if (!postgres)
        return NULL;
    static const struct {
        int signal_number;
        int64_t limit_ms;
    } ways[] = { { SIGINT, STOP_FAST_MS }, { SIGQUIT, STOP_IMMEDIATE_MS }, { SIGKILL, INT32_MAX } };
    for (size_t i = 0; postgres->pid > 0 && i < ARRAY_LEN(ways); i++) {
        if (kill(postgres->pid, ways[i].signal_number) != 0)
            log_line(LOG_WARN, "PostgreSQL cannot be signalled", "err", strerror(errno), NULL);
        if (wait_for_end(postgres, ways[i].limit_ms))
            break;
        log_line(LOG_WARN, "PostgreSQL takes long to end", "log", postgres->log, NULL);
    }
    if (postgres->lock >= 0)
        (void)close(postgres->lock); /* lets go of the folder */
    mem_free(postgres);
    return NULL;
}
