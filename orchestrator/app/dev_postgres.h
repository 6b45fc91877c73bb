/* A private PostgreSQL for `sagad dev`: made on first use in a data folder, run as a child of ours,
 * reachable through a unix socket alone, in a folder that nobody else can enter. As root the child
 * runs as the system user `postgres`. fsync stays on: it is a database like any other.
 * thread: the main thread; before gRPC starts (it forks). */
#ifndef APP_DEV_POSTGRES_H
#define APP_DEV_POSTGRES_H

#include "base/err.h"

enum { DEV_CONNINFO_SIZE = 512 };

struct dev_postgres;

struct dev_postgres_options { /* borrowed */
    const char *data;         /* "": the default place */
    const char *pg_bin;       /* "": searched */
};

/* Ready for connections, with a database "sagad". *ret NULL and 0: a signal asked us to end first.
 * A folder that another `sagad dev` uses is ERR_PRECONDITION. */
MUST_USE int dev_postgres_start(const struct dev_postgres_options *options,
                                struct dev_postgres **ret, struct err *err);
/* Fast shutdown, waited for; NULL is fine; always returns NULL. */
struct dev_postgres *dev_postgres_stop(struct dev_postgres *postgres);
/* False: it ended by itself; *err says how. Call it after SIGCHLD. */
bool dev_postgres_runs(struct dev_postgres *postgres, struct err *err);

/* Borrowed. */
const char *dev_postgres_conninfo(const struct dev_postgres *postgres);
const char *dev_postgres_folder(const struct dev_postgres *postgres);
const char *dev_postgres_socket_folder(const struct dev_postgres *postgres);
const char *dev_postgres_bin(const struct dev_postgres *postgres);

#endif
