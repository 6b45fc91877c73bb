/* One orchestrator in this process: database, engine thread, gRPC server; started in order, ended
 * in order. Decides nothing about sagas. thread: the main thread. */
#ifndef APP_SERVE_H
#define APP_SERVE_H

#include "app/config.h"

struct serve;

struct serve_options { /* borrowed during serve_start */
    const struct config *config;
    const char *conninfo;
};

/* Checks the server, migrates, starts the engine and serves; prints "sagad: serving on ADDRESS" for
 * each address once the engine is ready. While PostgreSQL cannot be reached it keeps trying, for
 * start-timeout at most.
 * *ret NULL and 0: a signal asked us to end before it was ready, and everything is down again. */
MUST_USE int serve_start(const struct serve_options *options, struct serve **ret, struct err *err);
/* Address i with its real port; NULL behind the last. Borrowed. */
const char *serve_address(const struct serve *serve, size_t i);
/* Asks the program to end because of a fault of which only a restart can free it; the first reason
 * counts. The main thread is woken by SIGTERM. thread: any. `why` is copied. */
void serve_end(struct serve *serve, const char *why);
/* After a signal that asks us to end: 0, or the error when serve_end asked for it. */
MUST_USE int serve_fault(const struct serve *serve, struct err *err);
/* Ordered end: no new calls, workers told to drain, calls waited for within the grace, then the
 * engine, then the database. A second signal meanwhile exits at once. Always returns NULL. */
struct serve *serve_stop(struct serve *serve);

/* A name for this orchestrator: as configured, or the host's and the port of the first address, so
 * that two on one host have two names. `size` > 0. */
void serve_node_name(const struct config *config, char *ret, size_t size);

#endif
