/* One batch of operations on its way through a connection: rounds of one transaction each, every
 * round one sync group of the pipeline.
 *
 * First all writes together; if that transaction fails because of one of them, its parts, each by
 * itself and with little patience for locks, until the culprit is alone; then the suspects, each
 * alone; then the loads. A transaction is sent once. One owner thread; never blocks. */
#ifndef STORE_BATCH_H
#define STORE_BATCH_H

#include "store/load.h"
#include "store/sqlstate.h"
#include "store/write.h"

enum {
    BATCH_SPLIT = 4, /* parts of a transaction that failed */
};

enum batch_round { ROUND_NONE, ROUND_WRITE, ROUND_ROLLBACK, ROUND_LOAD };

struct batch_unit { /* writes of one transaction */
    size_t first, count;
    bool hurry; /* little patience for locks */
};

struct batch_slot; /* one expected answer */

struct batch {
    struct write_self self;
    struct store_op *list;
    struct write *writes;
    size_t write_count, write_capacity;
    struct batch_unit *units; /* a stack: what is still to be sent */
    size_t unit_count, unit_capacity;
    struct store_op *
        *loads; /* loads (taken, if need be), and STARTs that want their key, grouped */
    size_t load_count, load_capacity;
    struct load_group *groups;
    size_t group_count, group_capacity;
    struct params params;

    /* the round in flight */
    enum batch_round round;
    struct batch_unit unit;
    struct batch_slot *slots;
    size_t slot_count, slot_capacity, slot_at;
    bool need_rollback, loads_done;
    bool commit_sent, commit_failed, committed, failed;
    bool unread;   /* what a write came to could not be read from its answer */
    bool doubtful; /* a warning at COMMIT: durable here, perhaps not elsewhere */
    struct err err;
    enum fault fault;
};

enum batch_state {
    BATCH_WAITING, /* for answers */
    BATCH_FINISHED,
    BATCH_BROKEN, /* the connection is of no use any more: close it and call batch_lost */
};

/* Takes the list. Operations that cannot even be sent fail at once. */
void batch_begin(struct batch *batch, struct store_op *list);
/* Sends the next round, or finds that there is none. */
enum batch_state batch_send(struct batch *batch, PGconn *conn, struct err *err);
/* Takes the answers that have arrived, and sends on when a round is over. */
enum batch_state batch_read(struct batch *batch, PGconn *conn, struct err *err);
/* A warning of the server. */
void batch_notice(struct batch *batch, const PGresult *notice);
/* Gives every operation without result the one that a lost connection leaves it with. */
void batch_lost(struct batch *batch, const struct err *why);
/* The list, every operation with its result. */
struct store_op *batch_end(struct batch *batch);
void batch_done(struct batch *batch);

#endif
