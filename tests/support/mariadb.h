/* A throw-away MariaDB, one per test program (group setup): every commit flushed to the disk, a
 * small buffer pool, reachable through a unix socket in the scratch directory alone, user "root"
 * without a password. The server runs as ourselves, or as a user without rights when we are root.
 * It dies with the test program. SAGAD_MARIADB_BIN names the folder of mariadbd (default
 * /usr/sbin); mariadb-install-db and the client are looked for in /usr/bin. thread: the test thread
 * only; connections may be made from any, after test_mariadb_start. */
#ifndef SUPPORT_MARIADB_H
#define SUPPORT_MARIADB_H

#include "base/err.h"

#include <mysql.h>
#include <stddef.h>
#include <stdint.h>

struct test_mariadb;

/* A new server, up and answering. `settings`: "--name=value" for it, NULL at the end; NULL: none.
 * The caller owns *ret_mariadb and calls test_mariadb_free. */
MUST_USE int test_mariadb_start(const char *const *settings, struct test_mariadb **ret_mariadb,
                                struct err *err);
/* Kills it and removes its files. NULL is fine; always returns NULL. */
struct test_mariadb *test_mariadb_free(struct test_mariadb *mariadb);

/* kill -9. */
void test_mariadb_kill(struct test_mariadb *mariadb);
/* Starts it again with the same data after that; returns when it answers. */
MUST_USE int test_mariadb_restart(struct test_mariadb *mariadb, struct err *err);

const char *test_mariadb_socket(const struct test_mariadb *mariadb); /* borrowed */

/* A connection of its own, several statements in a query allowed; the caller calls mysql_close.
 * `user` NULL: root. */
MUST_USE int test_mariadb_connect(const struct test_mariadb *mariadb, const char *user,
                                  const char *database, MYSQL **ret_conn, struct err *err);
/* A new empty database. */
MUST_USE int test_mariadb_createdb(struct test_mariadb *mariadb, const char *database,
                                   struct err *err);
/* One or more statements on a connection of their own. */
MUST_USE int test_mariadb_exec(struct test_mariadb *mariadb, const char *database, const char *sql,
                               struct err *err);
/* A file of them, through the client, as a user would; *ret_output (NULL: not wanted) is what it
 * printed, and the caller frees it with mem_free. */
MUST_USE int test_mariadb_script(struct test_mariadb *mariadb, const char *database,
                                 const char *path, char **ret_output, struct err *err);
/* The first field of the first row as a whole number. */
MUST_USE int test_mariadb_count(struct test_mariadb *mariadb, const char *database, const char *sql,
                                int64_t *ret_count, struct err *err);

#endif
