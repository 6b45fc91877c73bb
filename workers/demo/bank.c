#include "bank.h"

#include "base/mem.h"
#include "settlement.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

struct bank {
    char *conninfo;
    int threads;
    PGconn *conns[]; /* by saga_task_thread: each thread touches its own alone */
};

static void pg_result_p(PGresult **res)
{
    PQclear(*res);
}

int bank_create(const char *conninfo, int threads, struct bank **ret, struct err *err)
{
    struct bank *bank = mem_calloc(1, sizeof *bank + (size_t)threads * sizeof(PGconn *));
    if (!bank)
        return err_set(err, ERR_NOMEM, "bank");
    bank->threads = threads;
    bank->conninfo = mem_strdup(conninfo);
    if (!bank->conninfo) {
        mem_free(bank);
        return err_set(err, ERR_NOMEM, "bank");
    }
    *ret = bank;
    return 0;
}

struct bank *bank_free(struct bank *bank)
{
    if (bank) {
        for (int i = 0; i < bank->threads; i++)
            PQfinish(bank->conns[i]);
        mem_free(bank->conninfo);
        mem_free(bank);
    }
    return NULL;
}

/* The setters below fail only when memory is out; the task is then reported as UNKNOWN, and asking
 * the guard again is safe. */

static int no_effect_retry(struct saga_task *task, const char *why)
{
    (void)saga_task_retry(task, "BANK_SQL", why, 0);
    return -1;
}

/* Runs one statement about (settlement, account, amount). Gives the number of rows that it touched,
 * or -1 with the outcome set: the transaction is lost and nothing took effect. */
static int64_t execute(struct saga_task *task, PGconn *conn, const char *sql,
                       const struct settlement *settlement)
{
    char account[16], amount[32];
    (void)snprintf(account, sizeof account, "%d", settlement->account); /* both always fit */
    (void)snprintf(amount, sizeof amount, "%" PRId64, settlement->amount_cents);
    const char *values[] = { saga_task_saga_id(task), account, amount };
    CLEANUP(pg_result_p)
    PGresult *res = PQexecParams(conn, sql, ARRAY_LEN(values), NULL, values, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        return no_effect_retry(task, PQerrorMessage(conn));
    return strtoll(PQcmdTuples(res), NULL, 10);
}

static bool read_settlement(struct saga_task *task, struct settlement *ret)
{
    struct saga_bytes input = saga_task_input(task);
    struct err err;
    if (settlement_decode(input.data, input.size, ret, &err) == 0)
        return true;
    (void)saga_task_rejected(task, "BAD_INPUT", err.msg);
    return false;
}

/* --- effects: run by the guard in the open transaction, only after PROCEED -------------------- */

static int debit(struct saga_task *task, PGconn *conn, void *ctx)
{
    int64_t rows = execute(task, conn,
                           "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents - $3"
                           " WHERE id = $2::integer AND balance_cents >= $3 RETURNING id)"
                           " INSERT INTO debits (settlement_id, account, amount_cents)"
                           " SELECT $1, id, $3::bigint FROM moved",
                           ctx);
    if (rows == 0)
        (void)saga_task_rejected(task, "INSUFFICIENT_FUNDS", "the account does not hold that much");
    return rows == 1 ? 0 : -1;
}

static int refund(struct saga_task *task, PGconn *conn, void *ctx)
{
    int64_t rows = execute(task, conn,
                           "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents + $3"
                           " WHERE id = $2::integer RETURNING id)"
                           " INSERT INTO refunds (settlement_id, account, amount_cents)"
                           " SELECT $1, id, $3::bigint FROM moved",
                           ctx);
    if (rows == 0)
        return no_effect_retry(task, "the account is gone");
    return rows == 1 ? 0 : -1;
}

static int ledger(struct saga_task *task, PGconn *conn, void *ctx)
{
    return execute(task, conn,
                   "INSERT INTO ledger (settlement_id, kind, account, amount_cents)"
                   " VALUES ($1, 'SETTLEMENT', $2::integer, $3::bigint)",
                   ctx) == 1
               ? 0
               : -1;
}

static int reversal(struct saga_task *task, PGconn *conn, void *ctx)
{
    return execute(task, conn,
                   "INSERT INTO ledger (settlement_id, kind, account, amount_cents)"
                   " VALUES ($1, 'REVERSAL', $2::integer, - $3::bigint)",
                   ctx) == 1
               ? 0
               : -1;
}

/* --- handlers --------------------------------------------------------------------------------- */

static void run_guarded(struct saga_task *task, struct bank *bank, saga_guard_body *body)
{
    struct settlement settlement;
    if (!read_settlement(task, &settlement))
        return;
    PGconn **conn = &bank->conns[saga_task_thread(task)];
    if (!*conn)
        *conn = PQconnectdb(bank->conninfo); /* may have failed: the guard's run resets it */
    if (!*conn) {
        (void)no_effect_retry(task, "no memory for a connection");
        return;
    }
    saga_guard_run(task, *conn, body, &settlement);
}

void bank_debit_account(struct saga_task *task, void *ctx)
{
    run_guarded(task, ctx, debit);
}

void bank_refund_account(struct saga_task *task, void *ctx)
{
    run_guarded(task, ctx, refund);
}

void bank_write_ledger(struct saga_task *task, void *ctx)
{
    run_guarded(task, ctx, ledger);
}

void bank_reverse_ledger(struct saga_task *task, void *ctx)
{
    run_guarded(task, ctx, reversal);
}
