/* What the tests of the guard's functions for PostgreSQL share: a business table (account) that
 * every PROCEED changes by one; two connections of a role with a worker's rights, one of which is
 * held open inside its transaction until the other is seen waiting for a lock. thread: the test's,
 * and what takes a connection on one's own. */
#ifndef TEST_GUARD_POSTGRESQL_RIG_H
#define TEST_GUARD_POSTGRESQL_RIG_H

#include "support/check.h"

#include "support/postgres.h"

#include <libpq-fe.h>

struct fixture {
    struct test_postgres *postgres;
    PGconn *first, *second, *watcher;
    int next_saga;
    char saga[32]; /* a new one for each test */
};

struct answer {
    char word[32]; /* the answer, or the SQLSTATE of the error */
    char output[64];
};

extern const char guard_started[]; /* when all sagas started */

void must(PGconn *conn, const char *sql);
struct answer answer_of(PGresult *res); /* which is consumed */

/* enter or no_effect of the step "debit". */
void send_call(PGconn *conn, const char *function, const char *saga, const char *operation,
               long fence);
struct answer receive_answer(PGconn *conn);
struct answer enter(PGconn *conn, const char *saga, const char *operation, long fence);
/* The effect itself and done: an action adds one, its compensation takes one away. */
void work(PGconn *conn, const char *saga, const char *operation, const char *output);
/* A whole guarded transaction; returns what enter answered. */
struct answer run(PGconn *conn, const char *saga, const char *operation, long fence,
                  const char *output);
int balance(struct fixture *fixture, const char *saga);
void assert_waits(struct fixture *fixture, PGconn *conn);

int setup(void **state);
int teardown(void **state);
int new_saga(void **state);
int connections_are_idle(void **state);

#define GUARD_TEST(test) cmocka_unit_test_setup_teardown(test, new_saga, connections_are_idle)

#endif
