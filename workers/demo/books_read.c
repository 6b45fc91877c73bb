#include "books.h"
#include "effect_log.h"

#include <errno.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

static void pg_conn_p(PGconn **conn)
{
    PQfinish(*conn);
}

static void pg_result_p(PGresult **res)
{
    PQclear(*res);
}

static int64_t number_at(const PGresult *res, int row, int column)
{
    return strtoll(PQgetvalue(res, row, column), NULL, 10); /* a bigint, or an empty NULL: 0 */
}

static int query(PGconn *conn, const char *sql, PGresult **ret, struct err *err)
{
    PGresult *res = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(res);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        int rc = err_set(err, ERR_UNAVAILABLE, "bank: %s", PQerrorMessage(conn));
        PQclear(res);
        return rc;
    }
    *ret = res;
    return 0;
}

static int read_totals(struct books *books, PGconn *conn, struct err *err)
{
    CLEANUP(pg_result_p) PGresult *res = NULL;
    int rc = query(conn,
                   "SELECT count(*), sum(opening_cents)::bigint, sum(balance_cents)::bigint,"
                   " (SELECT coalesce(sum(amount_cents), 0)::bigint FROM ledger),"
                   " count(*) FILTER (WHERE balance_cents <> opening_cents"
                   " - (SELECT coalesce(sum(amount_cents), 0) FROM debits WHERE account = a.id)"
                   " + (SELECT coalesce(sum(amount_cents), 0) FROM refunds WHERE account = a.id)),"
                   " (SELECT count(*) FROM wrong_links)"
                   " FROM accounts AS a",
                   &res, err);
    if (rc)
        return rc;
    books->accounts = number_at(res, 0, 0);
    books->opening_cents = number_at(res, 0, 1);
    books->balance_cents = number_at(res, 0, 2);
    books->ledger_cents = number_at(res, 0, 3);
    books->accounts_wrong = number_at(res, 0, 4);
    books->links_wrong = number_at(res, 0, 5);
    return 0;
}

static int read_settlements(struct books *books, PGconn *conn, struct err *err)
{
    CLEANUP(pg_result_p) PGresult *res = NULL;
    int rc = query(conn,
                   "SELECT settlement_id, debits, refunds, ledger_entries, ledger_reversals,"
                   " debited_cents::bigint, refunded_cents::bigint, ledger_cents::bigint"
                   " FROM settlement_books",
                   &res, err);
    if (rc)
        return rc;
    for (int row = 0; row < PQntuples(res); row++) {
        struct record *record = books_find(books, PQgetvalue(res, row, 0));
        if (!record) {
            books->strangers++;
            continue;
        }
        record->debits = number_at(res, row, 1);
        record->refunds = number_at(res, row, 2);
        record->entries = number_at(res, row, 3);
        record->reversals = number_at(res, row, 4);
        record->debited_cents = number_at(res, row, 5);
        record->refunded_cents = number_at(res, row, 6);
        record->ledger_cents = number_at(res, row, 7);
    }
    return 0;
}

int books_read_bank(struct books *books, const char *conninfo, struct err *err)
{
    CLEANUP(pg_conn_p) PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        return err_set(err, ERR_UNAVAILABLE, "bank: %s", PQerrorMessage(conn));
    /* One snapshot for all of it. */
    CLEANUP(pg_result_p) PGresult *begun = NULL;
    int rc = query(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", &begun, err);
    if (!rc)
        rc = read_totals(books, conn, err);
    if (!rc)
        rc = read_settlements(books, conn, err);
    return rc;
}

static bool take_effect(void *ctx, const char *what, const char *settlement_id)
{
    struct books *books = ctx;
    struct record *record = books_find(books, settlement_id);
    if (!record)
        books->strangers++;
    else if (strcmp(what, "NOTIFIED") == 0)
        record->notified++;
    else if (strcmp(what, "WITHDRAWN") == 0)
        record->withdrawn++;
    else
        return false;
    return true;
}

int books_read_confirmed(struct books *books, const char *path, struct err *err)
{
    char id[STORY_ID_SIZE + 1]; /* and its newline */
    int rc = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerror(errno));
    while (!rc && fgets(id, sizeof id, file)) {
        id[strcspn(id, "\n")] = '\0';
        struct record *record = books_find(books, id);
        if (record)
            record->confirmed = true;
        else
            rc = err_set(err, ERR_INVALID, "%s: %s is no settlement of the demo", path, id);
    }
    if (!rc && ferror(file))
        rc = err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerror(errno));
    (void)fclose(file); /* it was only read */
    return rc;
}

int books_read_risk_log(struct books *books, const char *path, struct err *err)
{
    return effect_log_read(path, take_effect, books, err);
}
