#include "kafka_bank.h"

#include "base/mem.h"
#include "message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_OID = 25, INTEGER_OID = 23, BIGINT_OID = 20, BYTEA_OID = 17 };

static void pg_result_p(PGresult **res)
{
    PQclear(*res);
}

/* The names are those of the definition: service Settlement, rpc DebitAccount and so on. What is
 * taken back is the COMPENSATION of the step that did it. */
static const struct effect {
    const char *step, *operation, *sql;
} effects[] = {
    [KAFKA_BANK_DEBIT] = { "debit_account", "ACTION",
                           "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents - $3"
                           " WHERE id = $2 AND balance_cents >= $3 RETURNING id, balance_cents),"
                           " made AS (INSERT INTO debits (settlement_id, account, amount_cents)"
                           " SELECT $1, id, $3 FROM moved RETURNING debit_id)"
                           " SELECT debit_id, balance_cents FROM made, moved" },
    [KAFKA_BANK_LEDGER] = { "write_ledger", "ACTION",
                            "INSERT INTO ledger"
                            " (settlement_id, kind, account, amount_cents, about_id)"
                            " VALUES ($1, 'SETTLEMENT', $2, $3, $4) RETURNING entry_id, 0" },
    [KAFKA_BANK_REVERSAL] = { "write_ledger", "COMPENSATION",
                              "INSERT INTO ledger"
                              " (settlement_id, kind, account, amount_cents, about_id)"
                              " VALUES ($1, 'REVERSAL', $2, - $3, $4) RETURNING entry_id, 0" },
    [KAFKA_BANK_REFUND] = { "debit_account", "COMPENSATION",
                            "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents + $3"
                            " WHERE id = $2 RETURNING id, balance_cents),"
                            " made AS (INSERT INTO refunds"
                            " (settlement_id, debit_id, account, amount_cents)"
                            " SELECT $1, $4, id, $3 FROM moved RETURNING refund_id)"
                            " SELECT refund_id, balance_cents FROM made, moved" },
};

static int failed(PGconn *conn, const char *what, struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "bank: %s: %s", what, PQerrorMessage(conn));
}

static int command(PGconn *conn, const char *sql, struct err *err)
{
    CLEANUP(pg_result_p) PGresult *res = PQexec(conn, sql);
    return PQresultStatus(res) == PGRES_COMMAND_OK ? 0 : failed(conn, sql, err);
}

/* The guard's first word about the effect: *ret_proceed, or *ret_id of what is there already. */
static int enter(PGconn *conn, const struct effect *effect, const Bank__V1__Payment *payment,
                 bool *ret_proceed, int64_t *ret_id, struct err *err)
{
    /* Run 1 is that of a saga which is started once. Fence 0: any lease of it is a newer holder. */
    const char *values[] = { payment->payment_id, effect->step, effect->operation };
    CLEANUP(pg_result_p)
    PGresult *res = PQexecParams(conn,
                                 "SELECT answer, output FROM saga_guard.enter('default',"
                                 " 'settlement', $1, 1, $2, $3, 0, now())",
                                 ARRAY_LEN(values), NULL, values, NULL, NULL, 1);
    if (PQresultStatus(res) != PGRES_TUPLES_OK)
        return failed(conn, "the guard", err);
    const char *answer = PQgetvalue(res, 0, 0); /* binary, and libpq ends it with a NUL */
    *ret_proceed = strcmp(answer, "PROCEED") == 0;
    if (*ret_proceed)
        return 0;
    if (strcmp(answer, "DUPLICATE") != 0)
        return err_set(err, ERR_PRECONDITION, "the guard says %s", answer);
    /* Receipt and LedgerEntry have their row's number in the same field. */
    CLEANUP(message_p)
    Bank__V1__Receipt *receipt = bank__v1__receipt__unpack(NULL, (size_t)PQgetlength(res, 0, 1),
                                                           (const uint8_t *)PQgetvalue(res, 0, 1));
    if (!receipt)
        return err_set(err, ERR_INVALID, "the guard's output is no Receipt");
    *ret_id = receipt->debit_id;
    return 0;
}

static int apply(PGconn *conn, const struct effect *effect, const Bank__V1__Payment *payment,
                 int64_t about, Bank__V1__Receipt *ret, struct err *err)
{
    char account[16], amount[32], row[32];
    (void)snprintf(account, sizeof account, "%" PRId32, payment->account); /* all always fit */
    (void)snprintf(amount, sizeof amount, "%" PRId64, payment->amount_cents);
    (void)snprintf(row, sizeof row, "%" PRId64, about);
    static const Oid types[] = { TEXT_OID, INTEGER_OID, BIGINT_OID, BIGINT_OID };
    const char *values[] = { payment->payment_id, account, amount, about ? row : NULL };
    CLEANUP(pg_result_p)
    PGresult *res =
        PQexecParams(conn, effect->sql, ARRAY_LEN(values), types, values, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_TUPLES_OK)
        return failed(conn, effect->step, err);
    if (PQntuples(res) != 1)
        return err_set(err, ERR_PRECONDITION, "the account does not hold that much");
    ret->debit_id = strtoll(PQgetvalue(res, 0, 0), NULL, 10);
    ret->balance_cents = strtoll(PQgetvalue(res, 0, 1), NULL, 10);
    return 0;
}

/* The output is what the saga's step would have answered: a saga that finds it goes on with it. */
static int done(PGconn *conn, const struct effect *effect, const Bank__V1__Payment *payment,
                const Bank__V1__Receipt *receipt, struct err *err)
{
    CLEANUP(buf_done) struct buf output = { 0 };
    if (strcmp(effect->operation, "ACTION") == 0 && !message_pack(&receipt->base, &output))
        return err_set(err, ERR_NOMEM, "out of memory");
    static const Oid types[] = { TEXT_OID, TEXT_OID, TEXT_OID, BYTEA_OID };
    const char *values[] = { payment->payment_id, effect->step, effect->operation,
                             output.size ? (const char *)output.data : "" };
    const int sizes[] = { 0, 0, 0, (int)output.size };
    const int formats[] = { 0, 0, 0, 1 };
    CLEANUP(pg_result_p)
    PGresult *res =
        PQexecParams(conn, "SELECT saga_guard.done('default', 'settlement', $1, 1, $2, $3, $4)",
                     ARRAY_LEN(values), types, values, sizes, formats, 0);
    return PQresultStatus(res) == PGRES_TUPLES_OK ? 0 : failed(conn, "the guard", err);
}

static int transaction(PGconn *conn, const struct effect *effect, const Bank__V1__Payment *payment,
                       int64_t about, int64_t *ret_id, struct err *err)
{
    Bank__V1__Receipt receipt = BANK__V1__RECEIPT__INIT;
    bool proceed = false;
    int rc = enter(conn, effect, payment, &proceed, ret_id, err);
    if (rc || !proceed)
        return rc;
    rc = apply(conn, effect, payment, about, &receipt, err);
    if (!rc && effect == &effects[KAFKA_BANK_LEDGER])
        receipt.balance_cents = 0; /* a LedgerEntry has no such field */
    *ret_id = receipt.debit_id;
    return rc ? rc : done(conn, effect, payment, &receipt, err);
}

int kafka_bank_do(PGconn *conn, enum kafka_bank_effect effect, const Bank__V1__Payment *payment,
                  int64_t about, int64_t *ret_id, struct err *err)
{
    int rc = command(conn, "BEGIN", err);
    if (rc)
        return rc;
    rc = transaction(conn, &effects[effect], payment, about, ret_id, err);
    struct err ignored;
    if (rc) {
        (void)command(conn, "ROLLBACK", &ignored); /* the first error counts */
        return rc;
    }
    return command(conn, "COMMIT", err);
}
