#include "bank.h"

#include "base/mem.h"
#include "message.h"
#include "settlement.h"
#include "worker_program.h"

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

struct row { /* what a statement gives back: of its first row */
    int64_t id, more;
};

/* Runs one statement about a payment, and about the row `about` (0: is not known, or there is
 * none). Gives the number of rows that it made, or -1 with the outcome set: the transaction is lost
 * and nothing took effect. */
static int execute(struct saga_task *task, PGconn *conn, const char *sql,
                   const Bank__V1__Payment *payment, int64_t about, struct row *ret)
{
    char account[16], amount[32], row[32];
    (void)snprintf(account, sizeof account, "%" PRId32, payment->account); /* all always fit */
    (void)snprintf(amount, sizeof amount, "%" PRId64, payment->amount_cents);
    (void)snprintf(row, sizeof row, "%" PRId64, about);
    static const Oid types[] = { 25, 23, 20, 20 }; /* text, integer, bigint, bigint */
    const char *values[] = { payment->payment_id, account, amount, about ? row : NULL };
    CLEANUP(pg_result_p)
    PGresult *res = PQexecParams(conn, sql, ARRAY_LEN(values), types, values, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_TUPLES_OK)
        return no_effect_retry(task, PQerrorMessage(conn));
    int rows = PQntuples(res);
    if (rows > 0)
        *ret = (struct row){ strtoll(PQgetvalue(res, 0, 0), NULL, 10),
                             strtoll(PQgetvalue(res, 0, 1), NULL, 10) };
    return rows;
}

/* --- effects: run by the guard in the open transaction, only after PROCEED -------------------- */

static int debit(struct saga_task *task, PGconn *conn, void *ctx)
{
    struct row row;
    int rows = execute(task, conn,
                       "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents - $3"
                       " WHERE id = $2 AND balance_cents >= $3"
                       " RETURNING id, balance_cents),"
                       " made AS (INSERT INTO debits (settlement_id, account, amount_cents)"
                       " SELECT $1, id, $3 FROM moved"
                       " RETURNING debit_id)"
                       " SELECT debit_id, balance_cents FROM made, moved",
                       ctx, 0, &row);
    if (rows == 0)
        (void)saga_task_rejected(task, "INSUFFICIENT_FUNDS", "the account does not hold that much");
    if (rows != 1)
        return -1;
    Bank__V1__Receipt receipt = BANK__V1__RECEIPT__INIT;
    receipt.debit_id = row.id;
    receipt.balance_cents = row.more;
    return worker_done(task, &receipt.base);
}

static int refund(struct saga_task *task, PGconn *conn, void *ctx)
{
    const Bank__V1__RefundRequest *request = ctx;
    struct row row;
    int rows = execute(task, conn,
                       "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents + $3"
                       " WHERE id = $2 RETURNING id, balance_cents),"
                       " made AS (INSERT INTO refunds"
                       " (settlement_id, debit_id, account, amount_cents)"
                       " SELECT $1, $4, id, $3 FROM moved RETURNING refund_id)"
                       " SELECT refund_id, balance_cents FROM made, moved",
                       request->input,
                       request->debit_account ? request->debit_account->debit_id : 0, &row);
    if (rows == 0)
        return no_effect_retry(task, "the account is gone");
    return rows == 1 ? 0 : -1;
}

static int ledger(struct saga_task *task, PGconn *conn, void *ctx)
{
    const Bank__V1__LedgerRequest *request = ctx;
    struct row row;
    if (execute(task, conn,
                "INSERT INTO ledger (settlement_id, kind, account, amount_cents, about_id)"
                " VALUES ($1, 'SETTLEMENT', $2, $3, $4)"
                " RETURNING entry_id, 0",
                request->input, request->debit_account ? request->debit_account->debit_id : 0,
                &row) != 1)
        return -1;
    Bank__V1__LedgerEntry entry = BANK__V1__LEDGER_ENTRY__INIT;
    entry.entry_id = row.id;
    return worker_done(task, &entry.base);
}

static int reversal(struct saga_task *task, PGconn *conn, void *ctx)
{
    const Bank__V1__ReverseRequest *request = ctx;
    struct row row;
    return execute(task, conn,
                   "INSERT INTO ledger (settlement_id, kind, account, amount_cents, about_id)"
                   " VALUES ($1, 'REVERSAL', $2, - $3, $4)"
                   " RETURNING entry_id, 0",
                   request->input, request->write_ledger ? request->write_ledger->entry_id : 0,
                   &row) == 1
               ? 0
               : -1;
}

/* --- handlers --------------------------------------------------------------------------------- */

/* `request` is what the body gets; it is about `payment`. */
static void run_guarded(struct saga_task *task, struct bank *bank, const Bank__V1__Payment *payment,
                        saga_guard_body *body, void *request)
{
    struct err err;
    if (settlement_check(payment, &err)) {
        (void)saga_task_rejected(task, "BAD_REQUEST", err.msg);
        return;
    }
    PGconn **conn = &bank->conns[saga_task_thread(task)];
    if (!*conn)
        *conn = PQconnectdb(bank->conninfo); /* may have failed: the guard's run resets it */
    if (!*conn) {
        (void)no_effect_retry(task, "no memory for a connection");
        return;
    }
    saga_guard_run(task, *conn, body, request);
}

void bank_debit_account(struct saga_task *task, void *ctx)
{
    CLEANUP(message_p)
    Bank__V1__Payment *payment = worker_request(task, &bank__v1__payment__descriptor);
    if (payment)
        run_guarded(task, ctx, payment, debit, payment);
}

void bank_refund_account(struct saga_task *task, void *ctx)
{
    CLEANUP(message_p)
    Bank__V1__RefundRequest *request = worker_request(task, &bank__v1__refund_request__descriptor);
    if (request)
        run_guarded(task, ctx, request->input, refund, request);
}

void bank_write_ledger(struct saga_task *task, void *ctx)
{
    CLEANUP(message_p)
    Bank__V1__LedgerRequest *request = worker_request(task, &bank__v1__ledger_request__descriptor);
    if (request)
        run_guarded(task, ctx, request->input, ledger, request);
}

void bank_reverse_ledger(struct saga_task *task, void *ctx)
{
    CLEANUP(message_p)
    Bank__V1__ReverseRequest *request =
        worker_request(task, &bank__v1__reverse_request__descriptor);
    if (request)
        run_guarded(task, ctx, request->input, reversal, request);
}
