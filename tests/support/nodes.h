/* Several sagads on one database, each a rig of its own (support/rig.h): "one", "two", "three". The
 * first one has the databases; `at[i]` is where to call, start workers, kill. Times are short: a
 * node counts as dead after NODES_DEAD_MS, leases that it granted may end NODES_GRACE_MS after
 * another one took them over.
 *
 * Like the rig: what fails, fails the running test, except up, down and check. thread: the test
 * thread only. */
#ifndef SUPPORT_NODES_H
#define SUPPORT_NODES_H

#include "support/rig.h"

enum { NODES_MAX = 3, NODES_DEAD_MS = 2000, NODES_GRACE_MS = 1000, NODES_ADOPT_MS = 1000 };
/* A node has died: so long until each of its sagas has another owner, at most. Beats are a fifth of
 * a second apart; the rest is for a busy machine. */
enum { NODES_TAKEN_MS = NODES_DEAD_MS + NODES_ADOPT_MS + 1500 };

struct nodes {
    struct rig at[NODES_MAX];
    size_t count;
};

/* `args`: flags for each, NULL at the end; NULL: none. */
MUST_USE int nodes_up(struct nodes *nodes, size_t count, const char *const *args);
int nodes_down(struct nodes *nodes);
/* Ends all workers, starts again what was killed, and asks for the invariants. */
MUST_USE int nodes_check(struct nodes *nodes);

/* A worker process with a stream to each of two nodes. */
struct test_process *nodes_worker(struct nodes *nodes, size_t first, size_t second, const char *id,
                                  const char *handlers);

#endif
