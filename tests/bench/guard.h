/* What the two halves of the guard's benchmark share: the mean latency of a debit of one row in a
 * transaction of its own, bare and guarded, one client, every commit durable. thread: one. */
#ifndef BENCH_GUARD_H
#define BENCH_GUARD_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { GUARD_ACCOUNTS = 1000 };

struct guard_mariadb;

/* Starts a MariaDB with the guard and the accounts; the caller calls guard_mariadb_free. */
MUST_USE int guard_mariadb_start(struct guard_mariadb **ret_mariadb, struct err *err);
struct guard_mariadb *guard_mariadb_free(struct guard_mariadb *mariadb); /* NULL is fine */
/* Debits for so long. */
MUST_USE int guard_mariadb_measure(struct guard_mariadb *mariadb, bool guarded, int64_t for_ms,
                                   double *ret_mean_ms, struct err *err);

#endif
