/* A node's connection to the database: what store/pg.c is to the real one. A batch travels as
 * units, each one transaction; loads come last, from one snapshot. Units fail, connections break,
 * answers get lost, as the seed says; every way that store/store.h allows and no other. */
#ifndef SIM_MEM_STORE_H
#define SIM_MEM_STORE_H

#include "sim/scenario.h"
#include "sim/timer.h"
#include "store/store.h"

struct world;
struct node;
struct request;
struct unit;

struct mem_store {
    struct store store;
    struct world *world;
    struct node *node;
    uint64_t generation;    /* 0: no connection */
    struct store_op *batch; /* in flight */
    struct unit *unit;      /* at work; what follows it is not sent yet */
    struct store_op *completed;
    struct timer connecting;
    enum commit_fate fate;   /* of the next transaction, in a scenario */
    int64_t late_ms;         /* so late the next answer comes, in a scenario */
    uint64_t failed_writes;  /* operations handed back as FAILED */
    int64_t connected_at_ms; /* true time of this generation */
};

void mem_store_open(struct mem_store *store, struct world *world, struct node *node);
/* The connection is lost; what is in flight may yet be committed. */
void mem_store_break(struct mem_store *store, bool may_commit);
/* The process is dead. */
void mem_store_drop(struct mem_store *store);

#endif
