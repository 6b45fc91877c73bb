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

/* invariants_graph.c: by what the definition's steps name, and what was judged of each. */

/* Must `step` wait until `other` is over? */
bool graph_comes_after(const struct look *look, int step, int other);
/* Does it come after two steps of which neither comes after the other? */
bool graph_joins(const struct look *look, int step);
/* Every step before it is done, or left out; it is not. */
bool graph_is_next(const struct look *look, int step);
/* It is to be taken back, and every step after it is. */
bool graph_is_next_back(const struct look *look, int step);
/* What is so can be granted, also beside others; copy: of what is stored. */
void graph_check_turns(const struct look *look, const struct saga *copy, int64_t now_ms);
/* Counts what ran beside this new lease, and how a large graph ended. */
void graph_hit_lease(const struct look *look, const struct journal_entry *lease);
void graph_hit_end(const struct look *look);

/* invariants_judge.c: an outcome, or an entry, that is new. */
void invariants_end_of_lease(const struct look *look, const struct journal_entry *lease);
void invariants_entry(const struct look *look, const struct journal_entry *entry);

#endif
