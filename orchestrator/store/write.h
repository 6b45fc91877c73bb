/* Operations that write: which statement carries each, its parameters, and which of them took
 * effect. Knows nothing of connections. One owner thread. */
#ifndef STORE_WRITE_H
#define STORE_WRITE_H

#include "store/params.h"
#include "store/store.h"

enum { WRITE_ROWS_MAX = 128 }; /* of one statement; more are sent as several */

struct write { /* one operation of a batch */
    struct store_op *op;
    enum stmt_id stmt;
    struct uuid uid;
    int64_t seq;  /* what the statement returns for it, together with uid */
    bool applied; /* the statement returned it; durable once the transaction is */
    int64_t now_ms;
};

struct write_self { /* what is written of the process itself; borrowed */
    const char *node, *granter;
};

/* Fails with ERR_INTERNAL for a transition that no statement carries. */
MUST_USE int write_route(struct store_op *op, struct write *ret, struct err *err);
/* Order of execution: suspects last, then by statement, then by (shard, uid, seq), so that two
 * stores lock rows in the same order. For qsort. */
int write_compare(const void *a, const void *b);
/* Parameters of writes[0..count), which all have the same statement. */
void write_fill(struct params *params, const struct write *writes, size_t count,
                const struct write_self *self);
/* Parameters of STMT_EVENTS for what writes[0..count) may do, as far as their definitions publish
 * it; false: nothing of it. */
MUST_USE bool write_fill_events(struct params *params, const struct write *writes, size_t count);
/* How many operations at most one statement carries. */
size_t write_rows_max(enum stmt_id stmt);
/* Marks what the result names, and takes what ADOPT and HEARTBEAT answer. Fails when it names a row
 * that was not asked for. */
MUST_USE int write_mark(const PGresult *result, struct write *writes, size_t count,
                        struct err *err);

#endif
