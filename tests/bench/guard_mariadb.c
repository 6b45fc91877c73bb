/* The MariaDB half. Bare: START TRANSACTION, the update as a prepared statement, COMMIT. Guarded:
 * the same update inside saga_guard_mysql_run, each time for another saga. */
#include "guard.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/mariadb.h"
#include "task.h"

#include <stdio.h>
#include <string.h>

struct guard_mariadb {
    struct test_mariadb *server;
    MYSQL *conn;
    struct saga_guard_mysql *guard;
    MYSQL_STMT *debit;
    int32_t account; /* the debit's parameter */
    int64_t next_saga;
};

static char text_default[] = "default", text_settle[] = "settle", text_debit[] = "debit";

struct guard_mariadb *guard_mariadb_free(struct guard_mariadb *mariadb)
{
    if (!mariadb)
        return NULL;
    (void)saga_guard_mysql_free(mariadb->guard); /* always NULL */
    if (mariadb->debit)
        (void)mysql_stmt_close(mariadb->debit);
    if (mariadb->conn)
        mysql_close(mariadb->conn);
    (void)test_mariadb_free(mariadb->server); /* always NULL */
    mem_free(mariadb);
    return NULL;
}

static int prepare(struct guard_mariadb *mariadb, struct err *err)
{
    static const char sql[] = "UPDATE account SET balance = balance - 100 WHERE id = ?";
    MYSQL_BIND id = { .buffer_type = MYSQL_TYPE_LONG, .buffer = &mariadb->account };
    mariadb->debit = mysql_stmt_init(mariadb->conn);
    if (!mariadb->debit || mysql_stmt_prepare(mariadb->debit, sql, sizeof sql - 1) ||
        mysql_stmt_bind_param(mariadb->debit, &id) ||
        saga_guard_mysql_new(mariadb->conn, &mariadb->guard))
        return err_set(err, ERR_INTERNAL, "prepare: %s", mysql_error(mariadb->conn));
    return 0;
}

int guard_mariadb_start(struct guard_mariadb **ret_mariadb, struct err *err)
{
    struct guard_mariadb *mariadb = mem_calloc(1, sizeof *mariadb);
    char accounts[256];
    if (!mariadb)
        return err_set(err, ERR_NOMEM, "no memory");
    (void)snprintf(accounts, sizeof accounts,
                   "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);"
                   "INSERT INTO account SELECT seq, 0 FROM seq_1_to_%d",
                   GUARD_ACCOUNTS);
    if (test_mariadb_start(NULL, &mariadb->server, err) ||
        test_mariadb_createdb(mariadb->server, "shop", err) ||
        test_mariadb_script(mariadb->server, "shop", SOURCE_DIR "/sql/guard/mysql.sql", NULL,
                            err) ||
        test_mariadb_exec(mariadb->server, "shop", accounts, err) ||
        test_mariadb_connect(mariadb->server, NULL, "shop", &mariadb->conn, err) ||
        prepare(mariadb, err)) {
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

static bool debit_guarded(struct guard_mariadb *mariadb)
{
    char saga[32];
    Saga__V1__Task wire = SAGA__V1__TASK__INIT;
    Google__Protobuf__Timestamp start = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    struct saga_task task = { .message = &wire, .fence = 1 };
    (void)snprintf(saga, sizeof saga, "order-%lld", (long long)++mariadb->next_saga);
    start.seconds = clock_wall_ms(&clock_system) / 1000;
    wire.namespace_ = text_default;
    wire.definition = text_settle;
    wire.saga_id = saga;
    wire.step = text_debit;
    wire.run = 1;
    wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    wire.saga_start_time = &start;
    saga_guard_mysql_run(&task, mariadb->guard, NULL, debit, mariadb);
    bool done = task.outcome.kind == SAGA__V1__OUTCOME__OUTCOME_DONE;
    task_outcome_clear(&task.outcome);
    return done;
}

int guard_mariadb_measure(struct guard_mariadb *mariadb, bool guarded, int64_t for_ms,
                          double *ret_mean_ms, struct err *err)
{
    int64_t begin_ms = clock_mono_ms(&clock_system), now_ms = begin_ms;
    int64_t count = 0;
    for (; now_ms - begin_ms < for_ms; count++) {
        if (!(guarded ? debit_guarded(mariadb) : debit_bare(mariadb)))
            return err_set(err, ERR_INTERNAL, "debit: %s", mysql_error(mariadb->conn));
        now_ms = clock_mono_ms(&clock_system);
    }
    *ret_mean_ms = (double)(now_ms - begin_ms) / (double)count;
    return 0;
}
