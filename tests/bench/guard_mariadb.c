/* The MariaDB half. Bare: START TRANSACTION, the update as a prepared statement, COMMIT. Short:
 * with the statement 7 of sql/guard/mysql.sql, prepared, before the update. Helper: the same update
 * inside saga_guard_mysql_run. Guarded ones each time for another saga. */
#include "guard.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/mariadb.h"

#include <stdio.h>
#include <string.h>

struct guard_mariadb {
    struct test_mariadb *server;
    MYSQL *conn;
    struct saga_guard_mysql *guard;
    MYSQL_STMT *debit, *once;
    int32_t account; /* the debit's parameter */
    char saga[32];   /* this and the next two: of the short way */
    unsigned long saga_size;
    int64_t started_us;
    int64_t next_saga;
};

struct guard_mariadb *guard_mariadb_free(struct guard_mariadb *mariadb)
{
    if (!mariadb)
        return NULL;
    (void)saga_guard_mysql_free(mariadb->guard); /* always NULL */
    if (mariadb->debit)
        (void)mysql_stmt_close(mariadb->debit);
    if (mariadb->once)
        (void)mysql_stmt_close(mariadb->once);
    if (mariadb->conn)
        mysql_close(mariadb->conn);
    (void)test_mariadb_free(mariadb->server); /* always NULL */
    mem_free(mariadb);
    return NULL;
}

static bool prepare(MYSQL *conn, const char *sql, MYSQL_BIND *params, MYSQL_STMT **ret_stmt)
{
    *ret_stmt = mysql_stmt_init(conn);
    return *ret_stmt && !mysql_stmt_prepare(*ret_stmt, sql, strlen(sql)) &&
           !mysql_stmt_bind_param(*ret_stmt, params);
}

static int prepare_all(struct guard_mariadb *mariadb, struct err *err)
{
    static const char debit[] = "UPDATE account SET balance = balance - 100 WHERE id = ?";
    static const char once[] =
        "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, "
        "state,"
        " output, saga_started_us)"
        " VALUES ('default', 'settle', ?, 1, 'debit', 'ACTION', 1, 'DONE', 'receipt', ?)";
    MYSQL_BIND id = { .buffer_type = MYSQL_TYPE_LONG, .buffer = &mariadb->account };
    MYSQL_BIND started = { .buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &mariadb->started_us };
    MYSQL_BIND of_once[] = {
        { .buffer_type = MYSQL_TYPE_BLOB, .buffer = mariadb->saga, .length = &mariadb->saga_size },
        started,
        started
    };
    if (!prepare(mariadb->conn, debit, &id, &mariadb->debit) ||
        !prepare(mariadb->conn, once, of_once, &mariadb->once) ||
        saga_guard_mysql_new(mariadb->conn, &mariadb->guard))
        return err_set(err, ERR_INTERNAL, "prepare: %s", mysql_error(mariadb->conn));
    return 0;
}

int guard_mariadb_start(struct guard_mariadb **ret_mariadb, struct err *err)
{
    struct guard_mariadb *mariadb = mem_calloc(1, sizeof *mariadb);
    char accounts[256];
    /* As the server comes: those of the tests are small, and the log then writes pages all the
     * time, for whichever way has its turn. */
    static const char *const settings[] = { "--innodb-buffer-pool-size=128M",
                                            "--innodb-log-file-size=96M",
                                            "--innodb-use-native-aio=1", NULL };
    if (!mariadb)
        return err_set(err, ERR_NOMEM, "no memory");
    (void)snprintf(accounts, sizeof accounts,
                   "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);"
                   "INSERT INTO account SELECT seq, 0 FROM seq_1_to_%d",
                   GUARD_ACCOUNTS);
    if (test_mariadb_start(settings, &mariadb->server, err) ||
        test_mariadb_createdb(mariadb->server, "shop", err) ||
        test_mariadb_script(mariadb->server, "shop", SOURCE_DIR "/sql/guard/mysql.sql", NULL,
                            err) ||
        test_mariadb_exec(mariadb->server, "shop", accounts, err) ||
        test_mariadb_connect(mariadb->server, NULL, "shop", &mariadb->conn, err) ||
        prepare_all(mariadb, err)) {
        (void)guard_mariadb_free(mariadb); /* always NULL */
        return (int)err->code;
    }
    *ret_mariadb = mariadb;
    return 0;
}

static int debit(struct saga_task *task, struct st_mysql *conn, void *ctx)
{
    struct guard_mariadb *mariadb = ctx;
    (void)task;
    (void)conn;
    mariadb->account = mariadb->account % GUARD_ACCOUNTS + 1;
    return mysql_stmt_execute(mariadb->debit);
}

static bool debit_bare(struct guard_mariadb *mariadb)
{
    return mysql_query(mariadb->conn, "START TRANSACTION") == 0 &&
           debit(NULL, mariadb->conn, mariadb) == 0 && mysql_query(mariadb->conn, "COMMIT") == 0;
}

static bool debit_short(struct guard_mariadb *mariadb)
{
    mariadb->saga_size = (unsigned long)snprintf(mariadb->saga, sizeof mariadb->saga, "order-%lld",
                                                 (long long)++mariadb->next_saga); /* fits */
    mariadb->started_us = clock_wall_ms(&clock_system) * 1000;
    return mysql_query(mariadb->conn, "START TRANSACTION") == 0 &&
           mysql_stmt_execute(mariadb->once) == 0 && debit(NULL, mariadb->conn, mariadb) == 0 &&
           mysql_query(mariadb->conn, "COMMIT") == 0;
}

static bool debit_helper(struct guard_mariadb *mariadb)
{
    struct guard_task task;
    guard_task_init(&task, ++mariadb->next_saga);
    saga_guard_mysql_run(&task.task, mariadb->guard, NULL, debit, mariadb);
    bool done = task.task.outcome.kind == SAGA__V1__OUTCOME__OUTCOME_DONE;
    task_outcome_clear(&task.task.outcome);
    return done;
}

int guard_mariadb_measure(struct guard_mariadb *mariadb, enum guard_way way, int64_t for_ms,
                          double *ret_mean_ms, struct err *err)
{
    bool (*run)(struct guard_mariadb *) = way == WAY_BARE    ? debit_bare
                                          : way == WAY_SHORT ? debit_short
                                                             : debit_helper;
    int64_t begin_ms = clock_mono_ms(&clock_system), now_ms = begin_ms;
    int64_t count = 0;
    for (; now_ms - begin_ms < for_ms; count++) {
        if (!run(mariadb))
            return err_set(err, ERR_INTERNAL, "debit: %s", mysql_error(mariadb->conn));
        now_ms = clock_mono_ms(&clock_system);
    }
    *ret_mean_ms = (double)(now_ms - begin_ms) / (double)count;
    return 0;
}
