/* What the old consumer of settlements does in the bank, each effect in one transaction with its
 * guard: under the names that the saga's steps have, so that whoever comes second, this program
 * again or the saga that took over, finds what is there. One thread. */
#ifndef DEMO_KAFKA_BANK_H
#define DEMO_KAFKA_BANK_H

#include "base/err.h"

#include <demo/settlement.pb-c.h>
#include <libpq-fe.h>

enum kafka_bank_effect {
    KAFKA_BANK_DEBIT,
    KAFKA_BANK_LEDGER,   /* about: the debit */
    KAFKA_BANK_REVERSAL, /* about: the ledger entry */
    KAFKA_BANK_REFUND,   /* about: the debit */
};

/* 0: it is there, now or since before, and *ret_id is its row. ERR_PRECONDITION: it is not, and
 * will not be: the account does not hold that much, or it was taken back. Anything else: nobody
 * knows yet, and doing it again is safe. */
MUST_USE int kafka_bank_do(PGconn *conn, enum kafka_bank_effect effect,
                           const Bank__V1__Payment *payment, int64_t about, int64_t *ret_id,
                           struct err *err);

#endif
