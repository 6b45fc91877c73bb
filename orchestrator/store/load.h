/* Operations that load: the statements of each, and results into operations. All loads of a batch
 * read one snapshot (REPEATABLE READ), so that a row and its journal belong together. Knows nothing
 * of transactions. One owner thread. */
#ifndef STORE_LOAD_H
#define STORE_LOAD_H

#include "store/params.h"
#include "store/store.h"

enum { LOAD_STMTS_MAX = 3 };

/* A group of loads that the same statements serve: many LOAD_UID, many LOAD_KEY (or STARTs that
 * want the key which was there before them), or one OWN or LOAD_DEFINITION. */
struct load_group {
    enum store_op_kind kind;
    const char *node; /* borrowed, as are the operations */
    struct store_op **ops;
    size_t count;
};

/* Statements of the group in their order; returns how many. */
size_t load_stmts(const struct load_group *group, enum stmt_id ret[LOAD_STMTS_MAX]);
void load_fill(struct params *params, const struct load_group *group, enum stmt_id stmt);
/* Takes the result of one of them. A bad row fails its operation alone (result and err). */
void load_take(const struct load_group *group, enum stmt_id stmt, const PGresult *result);
/* After the last one: gives each operation that did not fail its result. */
void load_settle(const struct load_group *group);

#endif
