/* The reader's thread: queries wait in a bounded mailbox and run one after the other on the
 * reader's own connection, so that a slow list never delays a step. What nobody waits for any more
 * is not run. */
#ifndef RPC_QUERIES_H
#define RPC_QUERIES_H

#include "base/mailbox.h"
#include "rpc/internal.h"
#include "store/reader.h"

struct query {
    struct mailbox_node node;
    struct queries *queries; /* since it was posted */
    struct rpc_server *server;
    struct call *call; /* whose client waits for it; NULL: nobody's */
    /* On the reader's thread; owes the call its answer. */
    void (*run)(struct query *query, struct store_reader *reader);
    /* Instead of run, when it cannot be taken or the server stops: frees what the query holds, and
     * answers. NULL: the call fails, and there is nothing to free. Any thread. */
    void (*refuse)(struct query *query, const struct err *err);
};

MUST_USE int queries_start(const char *conninfo, struct queries **ret, struct err *err);
/* Queries that did not run are dropped and answered UNAVAILABLE. */
struct queries *queries_stop(struct queries *queries);

/* Refuses it (RESOURCE_EXHAUSTED, UNAVAILABLE) when it cannot be taken. */
void queries_post(struct query *query);
/* The same past the bound, for calls whose work at the engine is done. */
void queries_post_admitted(struct query *query);
/* In its run a query may post an event to the engine (false: the engine has stopped); when that is
 * done it comes back with the other one. Few are away at a time, since what they have loaded stays
 * in memory meanwhile. */
MUST_USE bool query_asks_engine(struct query *query, struct engine_event *event);
void query_post_back(struct query *query);

/* In the call's arena; NULL: the call has been answered. `size` of a struct that begins with a
 * struct query. */
void *query_new(struct call *call, size_t size,
                void (*run)(struct query *query, struct store_reader *reader));

#endif
