/* The helper of the C SDK on PostgreSQL. Bare: BEGIN, the update as a prepared statement, COMMIT.
 * Guarded: the same update inside saga_guard_run, each time for another saga. */
#include "guard.h"

#include "base/clock.h"

#include <libpq-fe.h>
#include <stdio.h>

static bool is_ok(PGresult *res)
{
    bool ok = PQresultStatus(res) == PGRES_COMMAND_OK;
    PQclear(res);
    return ok;
}

static int debit(struct saga_task *task, PGconn *conn, void *ctx)
{
    int *account = ctx;
    char id[16];
    const char *values[] = { id };
    (void)task;
    *account = *account % GUARD_ACCOUNTS + 1;
    (void)snprintf(id, sizeof id, "%d", *account); /* fits */
    return is_ok(PQexecPrepared(conn, "debit", 1, values, NULL, NULL, 0)) ? 0 : -1;
}

static bool debit_bare(PGconn *conn, int *account)
{
    return is_ok(PQexec(conn, "BEGIN")) && debit(NULL, conn, account) == 0 &&
           is_ok(PQexec(conn, "COMMIT"));
}

static bool debit_guarded(PGconn *conn, int *account, int64_t number)
{
    struct guard_task task;
    guard_task_init(&task, number);
    saga_guard_run(&task.task, conn, debit, account);
    bool done = task.task.outcome.kind == SAGA__V1__OUTCOME__OUTCOME_DONE;
    task_outcome_clear(&task.task.outcome);
    return done;
}

static int measure(PGconn *conn, enum guard_way way, int64_t for_ms, double *ret_mean_ms,
                   struct err *err)
{
    static int64_t next_saga;
    int account = 0;
    if (!is_ok(PQprepare(conn, "debit",
                         "UPDATE account SET balance = balance - 100 WHERE id = $1::int", 1, NULL)))
        return err_set(err, ERR_INTERNAL, "prepare: %s", PQerrorMessage(conn));
    int64_t begin_ms = clock_mono_ms(&clock_system), now_ms = begin_ms;
    int64_t count = 0;
    for (; now_ms - begin_ms < for_ms; count++) {
        if (!(way == WAY_HELPER ? debit_guarded(conn, &account, ++next_saga)
                                : debit_bare(conn, &account)))
            return err_set(err, ERR_INTERNAL, "debit: %s", PQerrorMessage(conn));
        now_ms = clock_mono_ms(&clock_system);
    }
    *ret_mean_ms = (double)(now_ms - begin_ms) / (double)count;
    return 0;
}

int guard_postgres_measure(const char *conninfo, enum guard_way way, int64_t for_ms,
                           double *ret_mean_ms, struct err *err)
{
    PGconn *conn = PQconnectdb(conninfo);
    int rc = measure(conn, way, for_ms, ret_mean_ms, err);
    PQfinish(conn);
    return rc;
}
