/* What the tests of the C SDK's guarded transaction on MariaDB share: tasks made here, a real
 * database, the plain body. thread: the test's, and an attempt on a connection of one's own. */
#ifndef TEST_WORKER_GUARD_MYSQL_RIG_H
#define TEST_WORKER_GUARD_MYSQL_RIG_H

#include "support/check.h"

#include "support/mariadb.h"
#include "task.h"

#define DONE         SAGA__V1__OUTCOME__OUTCOME_DONE
#define ALREADY_DONE SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE
#define REJECTED     SAGA__V1__OUTCOME__OUTCOME_REJECTED
#define RETRY        SAGA__V1__OUTCOME__OUTCOME_RETRY
#define UNKNOWN      SAGA__V1__OUTCOME__OUTCOME_UNKNOWN
#define ACTION       SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION
#define COMPENSATION SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION
#define PROBE        SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE

/* A task of the step "debit", and the connection that it runs on. */
struct attempt {
    struct saga_task task;
    Saga__V1__Task wire;
    Google__Protobuf__Timestamp start;
    char saga[32];
    MYSQL *conn;
    struct saga_guard_mysql *guard; /* on it */
    int bodies;                     /* how often a body ran */
};

struct fixture {
    struct test_mariadb *mariadb;
    struct attempt attempt; /* a new saga for each test, its action with fence 5 */
    int next_saga;
};

/* Its connection and guard stay. */
void attempt_init(struct attempt *attempt, const char *saga, Saga__V1__OperationKind operation,
                  int64_t fence);
void attempt_turn(struct attempt *attempt, Saga__V1__OperationKind operation, int64_t fence);
/* The effect of an attempt: one row of +1, or of -1 if it is a compensation. */
int effect(struct attempt *attempt);
int body_plain(struct saga_task *task, struct st_mysql *conn, void *ctx); /* ctx: the attempt */

void run(struct fixture *fixture, saga_guard_mysql_body *body);
void expect(const struct attempt *attempt, Saga__V1__Outcome kind, const char *code);
/* The sum of the saga's effects. */
void expect_effects(struct fixture *fixture, const char *saga, int64_t effects);
bool in_transaction(MYSQL *conn);

int setup(void **state);
int teardown(void **state);
int new_saga(void **state);
int end_saga(void **state); /* and no transaction is open */

#define GUARD_TEST(test) cmocka_unit_test_setup_teardown(test, new_saga, end_saga)

#endif
