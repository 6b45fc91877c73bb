/* What the tests of the guard's statements for MySQL and MariaDB share: the statements are taken
 * out of sql/guard/mysql.sql, so that what is tested is what people read; a business table
 * (account) that every PROCEED changes by one; two connections, one of which is held open inside
 * its transaction until the other is seen waiting for a lock. Each test runs at READ COMMITTED, at
 * REPEATABLE READ, and there with MariaDB's snapshot isolation. thread: the test's, and run, enter
 * and query on a connection of one's own. */
#ifndef TEST_GUARD_MYSQL_RIG_H
#define TEST_GUARD_MYSQL_RIG_H

#include "support/check.h"

#include "guard_statements.h"
#include "support/mariadb.h"

#include <pthread.h>

enum {
    BLOCKED_MS_MAX = 20000,
    CHECKREAD = 1020, /* snapshot isolation: the row is newer than the snapshot */
};

struct fixture {
    struct test_mariadb *mariadb;
    MYSQL *first, *second, *watcher;
    struct guard_statements *statements;
    const char *level;
    int next_saga;
    char saga[32]; /* a new one for each test */
};

struct answer {
    char word[16]; /* the answer, or the number of the error */
    char output[64];
};

unsigned query(MYSQL *conn, const char *sql); /* the number of the error; 0: none */
void must(MYSQL *conn, const char *sql);

struct answer error_answer(unsigned error);
bool is(const struct answer *answer, const char *word);

/* A guarded transaction, as README.md says, in its parts. */
struct answer enter(const struct fixture *fixture, MYSQL *conn, const struct operation *operation);
/* The effect itself: an action adds one, its compensation takes one away. */
unsigned effect(MYSQL *conn, const struct operation *operation);
/* The effect and the statement 5. */
unsigned work(const struct fixture *fixture, MYSQL *conn, const struct operation *operation);
/* The statements 1 and 7. PROCEED; "": the long way tells; or the error. */
struct answer enter_shortly(const struct fixture *fixture, MYSQL *conn,
                            const struct operation *operation);
/* A whole one, with the short way first if the operation says so; returns what enter answered, or
 * the error. */
struct answer run(const struct fixture *fixture, MYSQL *conn, const struct operation *operation);
/* After a business no, in a transaction of its own. */
void no_effect(struct fixture *fixture, const char *name, long fence);

void expect_run(struct fixture *fixture, MYSQL *conn, const char *name, long fence,
                const char *word);
void expect_enter(struct fixture *fixture, MYSQL *conn, const char *name, long fence,
                  const char *word);
void finish(struct fixture *fixture, MYSQL *conn, const char *name, const char *end);
int64_t count(struct fixture *fixture, const char *sql);
void expect_balance(struct fixture *fixture, int64_t balance);

/* A second transaction that waits for the first. */
struct entering {
    struct fixture *fixture;
    MYSQL *conn, *watcher;
    struct operation operation;
    struct answer answer;
    pthread_t thread;
};
void enter_begin(struct entering *entering); /* in the transaction that is open on its connection */
bool is_waiting(void *ctx);
/* Begins on the second connection and enters there; returns when that waits for a lock. */
void enter_and_wait(struct fixture *fixture, struct entering *entering, const char *name,
                    long fence);
void expect_entered(struct entering *entering, const char *word);

int new_saga(struct fixture *fixture);
/* By that: negative, and all sagas of these tests are above. */
void raise_floor(struct fixture *fixture, long by_us);
void reset_floor(struct fixture *fixture);
bool is_strict(const struct fixture *fixture); /* snapshot isolation */

int setup(void **state);
int teardown(void **state);
int at_read_committed(void **state);
int at_repeatable_read(void **state);
int at_snapshot_isolation(void **state);
int connections_are_idle(void **state);

/* clang-format off */
#define GUARD_TEST(test)                                                                          \
    { #test "_at_read_committed", test, at_read_committed, connections_are_idle, NULL },           \
    { #test "_at_repeatable_read", test, at_repeatable_read, connections_are_idle, NULL },         \
    { #test "_at_snapshot_isolation", test, at_snapshot_isolation, connections_are_idle, NULL }
/* clang-format on */

#endif
