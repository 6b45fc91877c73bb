/* The reader's thread: queries wait in a bounded mailbox and run one after the other on the
 * reader's own connection, so that a slow list never delays a step. */
#ifndef RPC_QUERIES_H
#define RPC_QUERIES_H

#include "base/mailbox.h"
#include "rpc/internal.h"
#include "store/reader.h"

struct query {
    struct mailbox_node node;
    struct call *call;
    /* On the reader's thread; owes the call its answer. */
    void (*run)(struct query *query, struct store_reader *reader);
    /* Instead of run, when the server stops; frees what the query holds. NULL: nothing. */
    void (*drop)(struct query *query);
};

MUST_USE int queries_start(const char *conninfo, struct queries **ret, struct err *err);
/* Queries that did not run are dropped and answered UNAVAILABLE. */
struct queries *queries_stop(struct queries *queries);

/* Answers the call itself (RESOURCE_EXHAUSTED, UNAVAILABLE) when the query cannot be taken. */
void queries_post(struct query *query);
/* The same past the bound, for calls whose work at the engine is done. */
void queries_post_admitted(struct query *query);

/* In the call's arena; NULL: the call has been answered. `size` of a struct that begins with a
 * struct query. */
void *query_new(struct call *call, size_t size,
                void (*run)(struct query *query, struct store_reader *reader));

#endif
