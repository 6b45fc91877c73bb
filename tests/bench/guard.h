/* What the parts of the guard's benchmark share: the mean latency of a debit of one row in a
 * transaction of its own, one client, every commit durable. thread: one. */
#ifndef BENCH_GUARD_H
#define BENCH_GUARD_H

#include "base/err.h"
#include "task.h"

#include <stdbool.h>
#include <stdint.h>

enum { GUARD_ACCOUNTS = 1000 };

enum guard_way {
    WAY_BARE,   /* BEGIN, the update, COMMIT */
    WAY_SHORT,  /* the short way of sql/guard/README.md */
    WAY_LONG,   /* enter, the update, done */
    WAY_HELPER, /* saga_guard_run or saga_guard_mysql_run */
    WAY_COUNT
};

/* The task of the step "debit" of the saga "order-<number>", which starts now. */
struct guard_task {
    struct saga_task task;
    Saga__V1__Task wire;
    Google__Protobuf__Timestamp start;
    char saga[32];
};
void guard_task_init(struct guard_task *task, int64_t number);

struct guard_mariadb;

/* Starts a MariaDB with the guard and the accounts; the caller calls guard_mariadb_free. */
MUST_USE int guard_mariadb_start(struct guard_mariadb **ret_mariadb, struct err *err);
struct guard_mariadb *guard_mariadb_free(struct guard_mariadb *mariadb); /* NULL is fine */
/* Debits for so long. Bare, short, helper. */
MUST_USE int guard_mariadb_measure(struct guard_mariadb *mariadb, enum guard_way way,
                                   int64_t for_ms, double *ret_mean_ms, struct err *err);

/* A client of a PostgreSQL that has the guard and the accounts, debits for so long. Bare, helper.
 */
MUST_USE int guard_postgres_measure(const char *conninfo, enum guard_way way, int64_t for_ms,
                                    double *ret_mean_ms, struct err *err);

#endif
