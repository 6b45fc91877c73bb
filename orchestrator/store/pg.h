/* The store on PostgreSQL: one libpq connection in pipeline mode, one transaction a batch. */
#ifndef STORE_PG_H
#define STORE_PG_H

#include "base/clock.h"
#include "store/store.h"

/* Creates or upgrades the schema (sql/migrations, embedded): safe when two servers start at once;
 * refuses a database that is newer than the program. Blocking. */
MUST_USE int store_migrate(const char *conninfo, struct err *err);
/* Refuses fsync=off, synchronous_commit=off and full_page_writes=off, naming the setting, and a
 * server older than 14. `unsafe` skips the durability part. Blocking. */
MUST_USE int store_check_server(const char *conninfo, bool unsafe, struct err *err);

struct store_pg_options {
    const char *conninfo;
    const struct clock *clock;
    const char *node;     /* written as owner */
    struct uuid instance; /* of this process; with the node the granter of its leases */
    bool unsafe;          /* accept settings that lose commits */
    uint64_t rng_seed;    /* jitter of the reconnect back-off (50 ms to 5 s) */
};
/* Connects in the background (process). Never blocks afterwards. */
MUST_USE int store_pg_new(const struct store_pg_options *options, struct store **ret,
                          struct err *err);
struct store *store_pg_free(struct store *store);

#endif
