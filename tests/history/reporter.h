/* A worker whose every report stands in the history: a process's stream by hand that connects to
 * any of the nodes, lists what it holds, reports with an outcome by chance, sooner or later, and
 * sends again what was not acknowledged, wherever it is connected then. Now and then it cuts its
 * stream, reports again what was acknowledged, or holds a task until its lease is over.
 *
 * thread: one for each reporter (reporter_run). */
#ifndef HISTORY_REPORTER_H
#define HISTORY_REPORTER_H

#include "caller.h"

#include <pthread.h>

enum { REPORTER_SLOTS = 24 };

struct reporter {
    struct caller caller; /* reads back what was acknowledged */
    pthread_t thread;
    bool started;
    int64_t left_behind; /* what it held when it left; read after the join */
};

/* 0, or -1 when there is no thread for it. */
MUST_USE int reporter_start(struct reporter *reporter, struct world *world, int64_t id,
                            uint64_t seed);
/* After world.leave. */
void reporter_join(struct reporter *reporter);

#endif
