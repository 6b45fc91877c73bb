/* A throw-away PostgreSQL cluster, one per test program (group setup): fsync and synchronous_commit
 * on, reachable through a unix socket in the scratch directory and on a free port of 127.0.0.1,
 * trust authentication, superuser "postgres". The server runs as ourselves, or as the system user
 * `postgres` when we are root. It dies with the test program.
 * SAGAD_PG_BIN names the folder of initdb and postgres (default /usr/lib/postgresql/15/bin).
 * thread: the test thread only. */
#ifndef SUPPORT_POSTGRES_H
#define SUPPORT_POSTGRES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { POSTGRES_CONNINFO_SIZE = 384 };

struct test_postgres;

/* A new cluster, up and answering. `settings`: "name=value" lines for the server, NULL at the end;
 * NULL: none. The caller owns *ret_postgres and calls test_postgres_free. */
MUST_USE int test_postgres_start(const char *const *settings, struct test_postgres **ret_postgres,
                                 struct err *err);
/* Stops it at once and removes its files. NULL is fine; always returns NULL. */
struct test_postgres *test_postgres_free(struct test_postgres *postgres);

/* The ways to end it; each waits until the server is gone. */
MUST_USE int test_postgres_stop_fast(struct test_postgres *postgres, struct err *err);
MUST_USE int test_postgres_stop_immediate(struct test_postgres *postgres, struct err *err);
/* kill -9 of the postmaster; its backends notice and end by themselves. */
void test_postgres_kill(struct test_postgres *postgres);
/* Starts it again on the same port with the same data after one of those; returns when it
 * answers. */
MUST_USE int test_postgres_restart(struct test_postgres *postgres, struct err *err);

/* Back to an earlier point, as an operator does it: a base backup (pg_basebackup; an earlier one is
 * replaced), later, with the server stopped, the backup in the place of the data, which is set
 * aside, and its WAL up to a point that pg_create_restore_point has named. The server is up then,
 * and stands at that point: it can be read, not written to. */
MUST_USE int test_postgres_backup(struct test_postgres *postgres, struct err *err);
MUST_USE int test_postgres_recover(struct test_postgres *postgres, const char *point,
                                   struct err *err);
/* From there on, on a new timeline; returns when it can be written to. The server must have run
 * with wal_keep_size large enough for all since the backup. */
MUST_USE int test_postgres_promote(struct test_postgres *postgres, struct err *err);

pid_t test_postgres_pid(const struct test_postgres *postgres);
int test_postgres_port(const struct test_postgres *postgres);
const char *test_postgres_log(const struct test_postgres *postgres);        /* borrowed */
const char *test_postgres_socket_dir(const struct test_postgres *postgres); /* borrowed */

/* "host=... port=... dbname=... user=postgres", through the unix socket or through TCP. */
void test_postgres_conninfo(const struct test_postgres *postgres, const char *database,
                            char ret_conninfo[POSTGRES_CONNINFO_SIZE]);
void test_postgres_conninfo_tcp(const struct test_postgres *postgres, const char *database,
                                char ret_conninfo[POSTGRES_CONNINFO_SIZE]);

/* A new empty database (lower-case letters, digits and _ in its name). `ret_conninfo`, if not NULL,
 * is filled as by test_postgres_conninfo. */
MUST_USE int test_postgres_createdb(struct test_postgres *postgres, const char *database,
                                    char *ret_conninfo, struct err *err);
MUST_USE int test_postgres_dropdb(struct test_postgres *postgres, const char *database,
                                  struct err *err);
/* One or more statements on a connection of their own. */
MUST_USE int test_postgres_exec(struct test_postgres *postgres, const char *database,
                                const char *sql, struct err *err);
/* The first field of the first row as text, cut to `size` - 1 bytes; "" for NULL. Fails when there
 * is no row. */
MUST_USE int test_postgres_query(struct test_postgres *postgres, const char *database,
                                 const char *sql, char *ret_text, size_t size, struct err *err);
/* The same for a whole number. */
MUST_USE int test_postgres_count(struct test_postgres *postgres, const char *database,
                                 const char *sql, int64_t *ret_count, struct err *err);

#endif
