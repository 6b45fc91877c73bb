/* The one database: rows and journal in memory, changed by the same conditional writes as the
 * statements of store/statements.c, one transaction at a time. Its copies are its own. */
#ifndef SIM_DATABASE_H
#define SIM_DATABASE_H

#include "sim/handlers.h"
#include "sim/invariants.h"
#include "store/store.h"

struct world;

struct db_key {
    const char *namespace_, *definition, *saga_id;
    struct store_key key;
};

struct db_state { /* where a saga was, and since when */
    struct db_state *before;
    int64_t since_ms; /* true time */
    enum saga_state state, phase;
};

struct db_saga {
    struct saga_row row;
    struct journal_entry *entries; /* as inserted; in order of seq */
    size_t count, capacity;
    const char *owner;      /* a node's name; NULL: nobody drives it */
    int64_t extended_at_ms; /* true time of the last extension */
    int64_t wake_at_ms;     /* 0: NULL */
    const char *waiting_handler;
    size_t late_rows;
    struct db_state *states; /* the newest first */
    struct judged judged;
    /* By node: the connection on which its copy was loaded last, and the true time at which it
     * heard that it had taken or adopted the saga. */
    uint64_t loaded_on[3];
    int64_t taken_at_ms[3];
};

struct db_node {
    const char *name;
    struct uuid instance;
    int64_t beat_at_ms; /* 0: it left */
};

enum { DB_SAGAS_MAX = 32, DB_NODES_MAX = 8, DB_CLOCK_MS = 1800000000 };

struct database {
    struct db_key keys[DB_SAGAS_MAX];
    size_t key_count;
    struct db_saga sagas[DB_SAGAS_MAX];
    size_t saga_count;
    struct db_node nodes[DB_NODES_MAX];
    size_t node_count;
    struct db_handler handlers[HANDLERS_MAX];
    uint64_t connections;     /* so far */
    int64_t refuses_until_ms; /* true time */
};

/* An operation as it travels: a copy of all that the store would send. */
struct request {
    struct request *next;
    struct store_op *op; /* whose it is; the engine's */
    struct node *node;
    const char *node_name;
    enum store_op_kind kind;
    bool suspect;
    struct uuid uid;
    struct saga_row row; /* as the transition leaves it */
    struct transition transition;
    struct journal_entry finish, *entries;
    uint8_t input_digest[32];
    int64_t deadline_ms;
    int64_t seq, lease_ms;
    struct store_op asked; /* the other fields of the operation, strings copied */
    struct store_op answer;
    bool half; /* a part of it became durable, and it lost */
    char granter[STORE_GRANTER_SIZE];
    /* A load that takes the saga over is two requests: this one takes it, `load` reads it after. */
    struct request *load;
    bool failed; /* answered without being asked */
};

static inline int64_t db_clock_ms(int64_t true_ms)
{
    return true_ms + DB_CLOCK_MS;
}

struct request *request_new(struct world *world, struct node *node, struct store_op *op);
/* Runs one operation inside a transaction that began at now_ms; fills its answer. Adds the saga
 * that it wrote, if any, to *ret_saga. */
void database_execute(struct world *world, struct request *request, int64_t now_ms,
                      struct db_saga **ret_saga);
/* Hands the answer to the operation. */
void request_deliver(struct request *request);
/* The answer is not wanted. */
void request_drop(struct request *request);

struct db_saga *database_saga(struct database *database, const struct uuid *uid);
const struct db_key *database_key(const struct database *database, const char *namespace_,
                                  const char *definition, const char *saga_id);
/* NULL: nothing is at that position. */
struct journal_entry *database_entry(struct db_saga *saga, int64_t seq);
/* A replayed copy; NULL: it cannot be loaded, err says why. */
struct saga *database_replay(struct world *world, const struct db_saga *saga, struct err *err);
void database_done(struct database *database);

#endif
