/* Handlers in the database: their rows, who changes them, and what a node that knows may not do. */
#ifndef SIM_HANDLERS_H
#define SIM_HANDLERS_H

#include "core/handler.h"
#include "sim/definitions.h"
#include "store/store.h"

struct world;
struct node;
struct request;

enum { DB_TIMES_MAX = 256 };
struct db_handler {
    struct handler row;
    struct held_time times[DB_TIMES_MAX];
    size_t time_count;
    struct { /* by node, as it said last */
        int64_t waiting, seen_at_ms;
        bool served;
    } of[3];
};
/* What a node was told last. */
struct known_handler {
    enum handler_hold hold;
    int64_t version;
    int trials; /* claimed in this hold */
};

void handlers_open(struct world *world);
/* STORE_HANDLERS, STORE_HANDLER */
void database_handlers(struct world *world, struct request *request, int64_t now_ms);
/* The node has heard the answer. */
void handlers_told(struct node *node, const struct request *request);
/* A node that knows that a handler is held grants nothing of it. */
void handlers_submit(struct world *world, struct node *node, const struct request *request);
/* A person holds, releases, limits. */
void handlers_befall(struct world *world);
/* Everything is released, and no limit is left. */
void handlers_calm(struct world *world);

#endif
