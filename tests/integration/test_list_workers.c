/* Goal: who serves what, and what nobody serves, is told as it is. Method: two nodes, workers by
 * hand at the one; sagas for handlers that somebody, somebody else, and nobody serves; a worker
 * that is stopped, one that does not read. */
#include "core/limits.h"
#include "support/command.h"
#include "support/nodes.h"
#include "support/raw_worker.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SOON = 10000, FLOOD = 100 };

typedef Saga__V1__ListWorkersResponse response_message;

static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1];

static int setup(void **state)
{
    (void)state;
    return nodes_up(&nodes, 2, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return nodes_down(&nodes);
}

static response_message *list(struct rig *rig, const char *handler)
{
    Saga__V1__ListWorkersRequest request = SAGA__V1__LIST_WORKERS_REQUEST__INIT;
    request.handler = rig_borrow(handler);
    return (response_message *)rig_call(rig, "OperatorService/ListWorkers", &request.base,
                                        &saga__v1__list_workers_response__descriptor, NULL);
}

static void done(response_message *response)
{
    saga__v1__list_workers_response__free_unpacked(response, NULL);
}

/* Has the saga for nobody been let go? */
static bool is_let_go(void *ctx)
{
    response_message *response = list(ctx, "nobody");
    bool is = response->n_unserved == 1 && response->unserved[0]->let_go == 1 &&
              strcmp(response->unserved[0]->handler, "nobody") == 0 &&
              response->unserved[0]->oldest_start_time;
    done(response);
    return is;
}

static bool is_draining(void *ctx)
{
    response_message *response = list(ctx, "here");
    bool is = response->n_workers == 1 && response->workers[0]->draining;
    done(response);
    return is;
}

static void test_workers_and_what_nobody_serves_are_told(void **state)
{
    (void)state;
    rig_define(one, "list", NULL, "a: IDEMPOTENT handler=here | none");
    rig_define(one, "none", NULL, "a: IDEMPOTENT handler=nobody | none");
    struct raw_worker *worker = raw_worker_hello(one->address, "w1", "instance-1", "here", NULL, 0);
    raw_worker_credit(worker, "here", 3);
    rig_start(one, "list", "s1", "");
    rig_start(one, "none", "s2", "");
    assert_non_null(raw_worker_task(worker, SOON));
    response_message *response = list(one, "");
    assert_string_equal(response->node, "one");
    assert_int_equal(response->n_other_nodes, 1);
    assert_string_equal(response->other_nodes[0], "two");
    assert_int_equal(response->n_workers, 1);
    const Saga__V1__ListWorkersResponse__Worker *shown = response->workers[0];
    assert_string_equal(shown->worker_id, "w1");
    assert_string_equal(shown->instance, "instance-1");
    assert_true(shown->connect_time && shown->connect_time->seconds > 1700000000);
    assert_false(shown->draining || shown->unresponsive || shown->congested);
    assert_int_equal(shown->n_handlers, 1);
    assert_string_equal(shown->handlers[0]->handler, "here");
    assert_int_equal(shown->handlers[0]->in_flight, 1);
    assert_int_equal(shown->handlers[0]->credit, 2);
    done(response);
    /* The other node knows nothing of it, and both of what nobody serves. */
    response = list(two, "");
    assert_int_equal(response->n_workers, 0);
    done(response);
    assert_true(wait_until(is_let_go, one, SOON));
    assert_true(wait_until(is_let_go, two, SOON));
    response = list(one, "nothing like that");
    assert_int_equal(response->n_workers + response->n_unserved, 0);
    done(response);
    /* As people see it. */
    const char *argv[] = { SAGACTL_BINARY, "--address", one->address, "workers", NULL };
    command_expect(argv, NULL, 0, "w1");
    command_expect(argv, NULL, 0, "nobody");
    const char *json[] = {
        SAGACTL_BINARY, "--address", one->address, "-o", "json", "workers", NULL
    };
    command_expect(json, NULL, 0, "\"letGo\"");
    raw_worker_drain(worker);
    assert_true(wait_until(is_draining, one, SOON));
    (void)raw_worker_cut(worker); /* always NULL */
    /* Somebody comes: it is not unserved any more. */
    (void)rig_worker(two, "w2", "nobody:1"); /* the rig owns it */
    rig_await_state(one, "none", "s2", "SUCCEEDED", SOON);
    response = list(two, "nobody");
    assert_int_equal(response->n_unserved, 0);
    assert_int_equal(response->n_workers, 1);
    assert_true(*response->workers[0]->sdk);
    done(response);
}

/* A saga waits here for a while only: the other one takes it. So it starts one more. */
static bool is_known_elsewhere(void *ctx)
{
    static int sagas;
    char saga_id[16];
    (void)snprintf(saga_id, sizeof saga_id, "more%d", sagas++);
    rig_start(ctx, "there", saga_id, "");
    response_message *response = list(ctx, "there");
    bool is = response->n_unserved == 1 && response->unserved[0]->n_served_by == 1 &&
              strcmp(response->unserved[0]->served_by[0], "two") == 0;
    done(response);
    return is;
}

/* Sagas wait at the one for what workers of the other serve, who are busy, and for what nobody
 * serves. */
static void test_nobody_is_said_only_where_nobody_serves_it_anywhere(void **state)
{
    (void)state;
    rig_define(one, "there", NULL, "a: IDEMPOTENT handler=there | none");
    rig_define(one, "gone", NULL, "a: IDEMPOTENT handler=gone | none");
    struct raw_worker *worker = raw_worker_hello(two->address, "w3", NULL, "there", NULL, 0);
    rig_start(one, "there", "t1", ""); /* its worker has no credit */
    rig_start(one, "gone", "g1", "");
    assert_true(wait_until(is_known_elsewhere, one, SOON));
    const char *where[] = { SAGACTL_BINARY, "--address", one->address, "where", "t1", NULL };
    command_expect(where, NULL, 0,
                   "a worker that serves there for a: nobody serves it here, workers of two do");
    command_expect(where, NULL, 0, "takes it by itself)");
    where[4] = "g1";
    command_expect(where, NULL, 0, "a worker that serves gone for a: nobody serves it, since");
    command_expect(where, NULL, 0, "next     start a worker that serves gone");
    where[2] = two->address;
    command_expect(where, NULL, 0, "a worker that serves gone for a: nobody serves it, since");
    const char *workers[] = { SAGACTL_BINARY, "--address", one->address, "workers", NULL };
    command_expect(workers, NULL, 0, "NOBODY HERE SERVES  BUT WORKERS OF");
    /* It comes to the other node, whose workers then serve it there. */
    raw_worker_credit(worker, "there", 1);
    const Saga__V1__Task *task = raw_worker_task(worker, SOON);
    assert_non_null(task);
    struct raw_lease lease = raw_lease_of(task);
    assert_int_equal(raw_worker_settle(worker, &lease, SAGA__V1__OUTCOME__OUTCOME_DONE, ""),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    rig_await_state(one, "there", task->saga_id, "SUCCEEDED", SOON);
    (void)raw_worker_cut(worker); /* always NULL */
}

/* --- workers that are not well -----------------------------------------------------------------
 */

struct look {
    const char *handler;
    bool unresponsive, congested;
};

/* The handler's one worker is so. */
static bool is_so(void *ctx)
{
    const struct look *look = ctx;
    response_message *response = list(one, look->handler);
    bool is = response->n_workers == 1 &&
              response->workers[0]->unresponsive == look->unresponsive &&
              response->workers[0]->congested == look->congested;
    done(response);
    return is;
}

static void await_look(const char *handler, bool unresponsive, bool congested)
{
    struct look look = { handler, unresponsive, congested };
    assert_true(wait_until(is_so, &look, 2 * SOON));
}

/* It stands still, its connection with it: it let its lease run out, and gets nothing until it
 * speaks again. */
static void test_a_worker_that_stands_still_is_unresponsive(void **state)
{
    (void)state;
    rig_define(one, "still", NULL, "a: IDEMPOTENT handler=still lease=5s | none");
    struct test_process *worker = rig_worker(one, "w4", "still:2");
    await_look("still", false, false);
    rig_start(one, "still", "f1", "a A 1 sleep=60000");
    rig_await_call(one, "f1", "a", "A", 1, SOON);
    rig_worker_signal(worker, SIGSTOP);
    await_look("still", true, false);
    const char *workers[] = { SAGACTL_BINARY, "--address", one->address, "workers", NULL };
    command_expect(workers, NULL, 0, "unresponsive");
    rig_start(one, "still", "f2", "");
    wait_ms(300);
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.saga_id = 'f2'"),
                     0);
    rig_worker_signal(worker, SIGCONT);
    await_look("still", false, false);
    rig_await_state(one, "still", "f2", "SUCCEEDED", SOON);
    rig_worker_kill(one, worker);
}

/* It takes more tasks than it reads. */
static void test_a_worker_that_does_not_read_is_congested(void **state)
{
    (void)state;
    static char input[LIMIT_PAYLOAD_BYTES];
    memset(input, 'i', sizeof input - 1);
    rig_define(one, "flood", NULL, "a: IDEMPOTENT handler=flood lease=60s | none");
    struct raw_worker *worker = raw_worker_hello(one->address, "w5", NULL, "flood", NULL, 0);
    await_look("flood", false, false);
    raw_worker_credit(worker, "flood", FLOOD);
    for (int i = 0; i < FLOOD; i++) {
        char saga_id[16];
        (void)snprintf(saga_id, sizeof saga_id, "c%d", i);
        rig_start(one, "flood", saga_id, input);
    }
    await_look("flood", false, true);
    const char *workers[] = { SAGACTL_BINARY, "--address", one->address, "workers", NULL };
    command_expect(workers, NULL, 0, "congested");
    for (int i = 0; i < FLOOD; i++)
        assert_non_null(raw_worker_task(worker, SOON));
    await_look("flood", false, false);
    (void)raw_worker_cut(worker); /* always NULL */
}

static void test_a_wrong_handler_is_refused(void **state)
{
    (void)state;
    Saga__V1__ListWorkersRequest request = SAGA__V1__LIST_WORKERS_REQUEST__INIT;
    struct client_failure failure = { 0 };
    request.handler = rig_borrow("a\nb");
    assert_null(rig_call(one, "OperatorService/ListWorkers", &request.base,
                         &saga__v1__list_workers_response__descriptor, &failure));
    assert_int_equal(failure.code, 3);
    client_failure_done(&failure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_and_what_nobody_serves_are_told),
        cmocka_unit_test(test_nobody_is_said_only_where_nobody_serves_it_anywhere),
        cmocka_unit_test(test_a_worker_that_stands_still_is_unresponsive),
        cmocka_unit_test(test_a_worker_that_does_not_read_is_congested),
        cmocka_unit_test(test_a_wrong_handler_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
