/* The books of a run of settlements: what sagad says about each settlement, what the bank's tables
 * hold and what the risk service's own log says, side by side; and the audit that compares them
 * with what was meant to happen. The audit is pure: it counts what is there and forgives nothing.
 * One thread.
 */
#ifndef DEMO_BOOKS_H
#define DEMO_BOOKS_H

#include "faults.h"
#include "sagas.h"

struct record { /* of one settlement */
    struct saga_seen saga;
    int64_t debits, refunds, entries, reversals; /* rows in the bank */
    int64_t debited_cents, refunded_cents, ledger_cents;
    int64_t notified, withdrawn; /* lines in the risk service's log */
    bool confirmed; /* nobody answered, and a person found out that risk was notified */
};

struct books {
    int count;              /* of settlements; at least 1 */
    struct record *records; /* owned; [1] to [count] */
    int64_t accounts, opening_cents, balance_cents, ledger_cents;
    int64_t accounts_wrong; /* balance is not opening - debits + refunds */
    int64_t links_wrong;    /* rows that are about a row of another settlement, or of none */
    int64_t strangers;      /* sagas, rows and lines of settlements that nobody started */
};

struct audit {
    int settled, compensated, parked,
        waiting;      /* waiting: the one that is left at risk on purpose */
    int replies_lost; /* parked, because the plan says so */
    int doubled, lost;
    struct faults
        faults; /* everything that is not as it should be, the doubled and lost included */
    bool money_adds_up;
};

/* Zeroed records for `count` settlements. */
MUST_USE int books_create(int count, struct books *ret, struct err *err);
void books_done(struct books *books);
/* The record of "stl-000042"; NULL for ids that are none of ours. */
struct record *books_find(struct books *books, const char *settlement_id);

/* What sagad says; `sagas` are of the same count. */
void books_take_sagas(struct books *books, const struct sagas *sagas);
MUST_USE int books_read_bank(struct books *books, const char *conninfo, struct err *err);
MUST_USE int books_read_risk_log(struct books *books, const char *path, struct err *err);

/* A line for each settlement that a person confirmed: its id. */
MUST_USE int books_read_confirmed(struct books *books, const char *path, struct err *err);

void books_audit(const struct books *books, struct audit *ret);
static inline void audit_done(struct audit *audit)
{
    faults_done(&audit->faults);
}

#endif
