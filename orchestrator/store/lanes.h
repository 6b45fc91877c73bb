/* Two connections as one store: a transaction is gathered and written while another one commits.
 *
 * A generation is that of both. When one of them is lost there is none, the other one ends when its
 * batch has, and both are made anew: a copy is never decided on by one server and written to another.
 * Until both are there, on one timeline, nothing is taken.
 *
 * thread: the engine's. */
#ifndef STORE_LANES_H
#define STORE_LANES_H

#include "store/store.h"

enum { STORE_LANES = 2 };

struct store_lanes {
    struct store store;
    struct store *lanes[STORE_LANES];
    uint64_t seen[STORE_LANES]; /* generations of the connections in use */
    uint64_t generation;        /* times that all were there */
    bool usable;
};

/* Borrows the stores, which outlive it. */
void store_lanes_open(struct store_lanes *lanes, struct store *const stores[STORE_LANES]);

#endif
