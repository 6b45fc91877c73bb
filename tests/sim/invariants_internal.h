/* Shared by the files of the invariants. */
#ifndef SIM_INVARIANTS_INTERNAL_H
#define SIM_INVARIANTS_INTERNAL_H

#include "sim/world.h"

enum { CLOCK_SLACK_MS = 2 }; /* drift between two answers of the database */

/* What is being judged. */
struct look {
    struct world *world;
    struct db_saga *saga;
    struct judged *judged;
    const struct definition *definition;
    int64_t now_ms; /* of the transaction, by the database */
    bool foreign;   /* it parks the saga as FOREIGN_EFFECT */
};

/* 0: of the action, 1: of the compensation; a probe's: of what it asks about. */
int invariants_side(const struct db_saga *saga, const struct journal_entry *entry);
/* How many NOT_DONEs had been settled before that position. */
int invariants_generation(const struct db_saga *saga, int step, int side, int64_t before_seq);

/* invariants_judge.c: an outcome, or an entry, that is new. */
void invariants_end_of_lease(const struct look *look, const struct journal_entry *lease);
void invariants_entry(const struct look *look, const struct journal_entry *entry);

#endif
