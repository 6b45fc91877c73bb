/* The store as the engine sees it: what must be written together, and what became of it. Behind it
 * stands PostgreSQL (store/pg.h), or in the simulator memory that behaves like it.
 *
 * The engine submits a batch of operations; the store writes all of them in ONE transaction, each
 * operation by itself conditional (its position, its state), and reports for each what became of
 * it. At most one batch is in flight. Nothing is retried behind the engine's back except the halves
 * of a batch that failed as a whole (bisection): such operations had no effect.
 *
 * thread: the engine's. Ownership: operations belong to the engine and are lent to the store from
 * submit until they come back from completed; what loads return is owned by the operation. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "core/handler.h"
#include "core/limits.h"
#include "core/saga.h"

#include <stdint.h>

/* Shard of a saga: the low byte of FNV-1a 64 (offset basis 14695981039346656037, prime
 * 1099511628211) over namespace, 0x00, definition, 0x00, saga_id. Fixed for ever: it is part of the
 * stored keys. */
uint8_t store_shard(const char *namespace_, const char *definition, const char *saga_id);

enum store_op_kind {
    STORE_START,      /* saga_key, saga and the entries of the transition */
    STORE_TRANSITION, /* facts of one saga */
    STORE_EXTEND,     /* one lease goes on */
    STORE_LOAD_UID,   /* one saga: row and journal */
    STORE_LOAD_KEY,   /* by (namespace, definition, saga_id): key, and the saga if still there */
    STORE_LOAD_DEFINITION, /* one revision, as stored bytes */
    STORE_OWN,             /* uids of the next sagas that are not terminal and owned by this node */
    STORE_ADOPT,     /* makes sagas that nobody drives this node's, and says which (their uids) */
    STORE_LET_GO,    /* one saga has no owner any more; says when and for whom it is to be found */
    STORE_HEARTBEAT, /* this node lives, joins or leaves */
    STORE_HANDLERS,  /* says what this node has of handlers, and reads them all */
    STORE_HANDLER,   /* one handler is changed, unless somebody was first (LOST) */
};

enum store_result {
    STORE_PENDING,
    STORE_OK,        /* durable, or loaded */
    STORE_LOST,      /* somebody else decided first (or a part of it did become durable): load anew.
                      * START: nothing is durable, for its revision was deleted, or the key was known
                      * and was forgotten just then */
    STORE_EXISTS,    /* START: the key is known; `key` says of whom */
    STORE_NOT_FOUND, /* a load found nothing */
    STORE_FAILED,    /* `err`: had no effect. err.retryable: a lock, a class 40; else a bad row */
    STORE_UNKNOWN,   /* the connection died: it may be durable or not. Load, apply the event anew */
};

struct store_key { /* a row of saga_key */
    struct uuid uid;
    int32_t run;
    uint8_t input_digest[32];
    bool ended;
    enum saga_state final_state; /* if ended */
};

struct store_saga { /* a loaded saga; contents owned until consumed by saga_replay */
    struct saga_row row;
    struct journal_entry *entries;
    size_t entry_count;
    char *park_step; /* lists, which come without the definition: its name; NULL: none */
    bool mine;       /* the row's owner is this node */
};
void store_saga_done(struct store_saga *saga);

struct store_handler_count { /* borrowed */
    const char *handler;
    int64_t version; /* that the node knows; 0: none */
    bool says;       /* it is braked or limited, so the others are told the rest */
    int64_t waiting, leased, oldest_ms;
    bool served;
};
struct store_handler { /* as it is stored */
    struct handler row;
    int32_t others;          /* nodes besides this one that serve it */
    bool drained;            /* released gradually, and nothing waits for it but here */
    bool is_new;             /* its version was not known: `times` are all of its times */
    struct held_time *times; /* owned; in order */
    size_t time_count, time_capacity;
};

struct store_op {
    enum store_op_kind kind;
    struct store_op *next; /* the batch; order is kept among operations of one saga */
    enum store_result result;
    struct err err;
    int64_t now_ms; /* database time (now()) of the transaction that wrote it */
    bool suspect;   /* it failed before: run it apart, so that it holds up no other */

    /* START, TRANSITION: borrowed until completed */
    const struct saga *saga;
    const struct transition *transition;
    /* TRANSITION that ends a lease and does nothing else: looks whose the saga is, for that alone
     * does not tell whether the copy was out of date. Result: not_owner. */
    bool asks_owner;
    /* START */
    uint8_t input_digest[32]; /* SHA-256 of the input */

    /* EXTEND; LOAD_UID, LET_GO: uid alone */
    struct uuid uid;
    int64_t seq, lease_ms;
    /* LOAD_UID: a saga that is not terminal becomes this node's before it is read. Decisions are
     * taken on own sagas, so that only one node at a time keeps its timers; never for safety. */
    bool take;

    /* LOAD_KEY, LOAD_DEFINITION: borrowed */
    const char *namespace_, *definition, *saga_id;
    int32_t revision; /* 0: the current one; set to the found one */

    /* OWN: after this uid in (shard, uid) order; from_start: from the first one */
    bool from_start;
    struct uuid after;
    size_t limit; /* OWN, ADOPT: uids at most */

    /* ADOPT: sagas, not terminal, whose owner is a node without a heartbeat for dead_ms, or that
     * have no owner and whose wake_at has come or whose waiting_handler is one of these. Skips
     * rows that are locked. Clears wake_at and waiting_handler. HEARTBEAT: what this node serves,
     * for the others to tell people. Borrowed. */
    const char *const *handlers;
    size_t handler_count;
    int64_t dead_ms; /* HEARTBEAT, too */

    /* LET_GO, while the owner is this node and the saga in this state (else LOST): hints by which
     * ADOPT finds it again */
    enum saga_state state, phase;
    int64_t wake_at_ms;          /* database time; INT64_MAX: none */
    const char *waiting_handler; /* borrowed; NULL: none */

    /* HEARTBEAT. By the database's clock. LOST: another process has joined under this node's name
     * since; this one must decide nothing more and end. */
    enum store_beat { STORE_BEAT, STORE_BEAT_JOIN, STORE_BEAT_LEAVE } beat;
    struct uuid instance; /* of this process: joining ends the earlier instance of the same name */

    /* HANDLERS: borrowed */
    const struct store_handler_count *counts;
    size_t count_count;
    /* HANDLER: what it is to be; borrowed */
    const struct handler *handler;
    struct handler_effect effect;

    /* results, owned by the operation: store_op_done frees what was not taken */
    struct store_key key;
    struct store_saga *sagas; /* LOAD_UID, LOAD_KEY: one */
    size_t saga_count;        /* LOAD_KEY: 0 when only the key is left */
    bool taken;               /* LOAD_UID with `take`: it was another's, or nobody's */
    struct uuid *uids;        /* OWN, ADOPT */
    size_t uid_count;
    struct store_handler *stored; /* HANDLERS */
    size_t stored_count;
    bool not_owner;      /* TRANSITION: it is another node's; load it before anything follows */
    int32_t nodes_alive; /* HEARTBEAT: this one included */
    bool was_dead;       /* HEARTBEAT: none for dead_ms, or none at all: others may have adopted */
    /* LOAD_DEFINITION: packed saga.v1.SagaDefinition, and google.protobuf.FileDescriptorSet of the
     * types that it names (size 0: none) */
    struct bytes content, descriptors;
    bool paused;        /* LOAD_DEFINITION of the current one: it starts no new sagas */
    char *pause_reason; /* "" where none was given; NULL: not paused */
};
void store_op_done(struct store_op *op);
void store_handlers_done(struct store_op *op); /* of it the handlers alone */

enum { STORE_GRANTER_SIZE = LIMIT_WORKER_BYTES + 14 };
/* What a process writes as `actor` of the leases that it grants: "node/" and 12 hex digits of its
 * instance. So it knows its own grants again after a commit in doubt. */
void store_granter(const char *node, const struct uuid *instance, char ret[STORE_GRANTER_SIZE]);

/* A store knows the node and the instance of its process: they are written as owner of sagas and as
 * granter of leases, and must be the engine's (struct engine_options). */
struct store {
    const struct store_ops *ops;
};

struct store_ops {
    /* A new number for each connection; 0 while there is none. When it changes, every copy that was
     * loaded before is dead. */
    uint64_t (*generation)(struct store *store);
    /* Epoch of the fences of this connection. */
    int64_t (*epoch)(struct store *store);
    bool (*busy)(struct store *store); /* a batch is in flight */
    /* Takes a list of operations. Needs generation() != 0 and !busy(). */
    void (*submit)(struct store *store, struct store_op *batch);
    /* Operations that have a result, as a list in the order of the batch; NULL: none. After a lost
     * connection everything in flight comes back as UNKNOWN (writes) or FAILED retryable (loads).
     */
    struct store_op *(*completed)(struct store *store);
    /* Drives connecting, sending, receiving. Call it when fd is ready or wake_at has come. */
    void (*process)(struct store *store, int64_t mono_ms);
    /* What to poll for: -1 while there is nothing; events as in poll(2). */
    int (*poll_fd)(struct store *store, short *ret_events);
    int64_t (*wake_at)(struct store *store); /* monotonic ms; INT64_MAX: never */
};

#endif
