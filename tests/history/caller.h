/* A client whose every call stands in the history, of a program that is made to fail: an answer
 * that leaves it open is logged as unknown, and the next call takes a new connection.
 *
 * thread: one for each caller. */
#ifndef HISTORY_CALLER_H
#define HISTORY_CALLER_H

#include "history.h"

#include "base/rng.h"
#include "ctl/client.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { WORLD_NODES_MAX = 3, WORLD_DEFINITION_STEPS = 3, WORLD_INPUTS = 2 };
#define WORLD_DEFINITION "history"

/* What all threads of a run share. */
struct world {
    struct history_log *log;
    const char *addresses[WORLD_NODES_MAX];
    size_t nodes;
    atomic_bool stop;         /* callers start nothing new */
    atomic_bool leave;        /* reporters go away */
    _Atomic int64_t next_key; /* keys are "h<number>" */
    atomic_llong acks, cuts;  /* reports that were acknowledged; streams that reporters cut */
};

struct caller {
    struct world *world;
    struct client *clients[WORLD_NODES_MAX]; /* NULL: to be made */
    int64_t id;
    struct rng rng;
};

void caller_init(struct caller *caller, struct world *world, int64_t id, uint64_t seed);
void caller_done(struct caller *caller);
size_t caller_some_node(struct caller *caller);

void caller_start(struct caller *caller, size_t node, const char *key, int input);
/* Keys "h<first>" to "h<first + count - 1>" in one request. */
void caller_start_batch(struct caller *caller, size_t node, int64_t first, int count);
void caller_cancel(struct caller *caller, size_t node, const char *key);
void caller_get(struct caller *caller, size_t node, const char *key);
/* The same by WaitSaga: what it answers is a read, too. */
void caller_wait(struct caller *caller, size_t node, const char *key, int64_t timeout_ms);
void caller_journal(struct caller *caller, size_t node, const char *key);

#endif
