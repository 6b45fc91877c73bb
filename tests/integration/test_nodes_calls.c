/* Calls and reports at several sagads on one database. Goal: any node answers any of them, as if it
 * were the only one; a saga gets to the node that has a worker for it. Method: sagas that are at
 * work at one node, everything that can be said about them said at the other; races of both. */
#include "support/nodes.h"
#include "support/proof.h"
#include "support/raw_worker.h"

#include <pthread.h>
#include <stdio.h>

enum {
    SOON = 10000,
    LET_GO_MS = 2000,
    LATE_MS = 1500,
    ALREADY_EXISTS = 6,
    FAILED_PRECONDITION = 9
};
#define ACCEPTED  SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DUPLICATE SAGA__V1__ACK__RESULT__RESULT_DUPLICATE
#define STALE     SAGA__V1__ACK__RESULT__RESULT_STALE
#define DONE      SAGA__V1__OUTCOME__OUTCOME_DONE
#define REJECTED  SAGA__V1__OUTCOME__OUTCOME_REJECTED
#define RETRY     SAGA__V1__OUTCOME__OUTCOME_RETRY

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

static int check(void **state)
{
    (void)state;
    return nodes_check(&nodes);
}

/* --- where the workers are -------------------------------------------------------------------- */

static void test_p8_a_saga_goes_to_the_node_that_has_a_worker_for_it(void **state)
{
    (void)state;
    PROVES("P8");
    rig_define(one, "away", NULL,
               "a: IDEMPOTENT handler=there | none\nb: ONCE handler=here | none");
    rig_define(one, "nowhere", NULL, "a: IDEMPOTENT handler=nowhere | none");
    (void)rig_worker(one, "here", "here:4"); /* the rigs own them */
    (void)rig_worker(two, "there", "there:4");
    int64_t let_go = rig_counter(one, "sagas_let_go"), adopted = rig_counter(two, "sagas_adopted");
    rig_start(one, "nowhere", "nowhere", "");
    rig_start(one, "away", "away", "");
    /* There, and back again. */
    rig_await_state(one, "away", "away", "SUCCEEDED", 2 * (LET_GO_MS + NODES_ADOPT_MS + LATE_MS));
    rig_await(one, RIG_STORE, "a at two/, b at one/", 100,
              "SELECT string_agg(step || ' at ' || substr(actor, 1, 4), ', ' ORDER BY seq)"
              " FROM journal JOIN saga s USING (shard, saga_uid) WHERE s.saga_id = 'away'");
    assert_true(rig_counter(one, "sagas_let_go") >= let_go + 2);
    assert_true(rig_counter(two, "sagas_adopted") >= adopted + 1);
    /* One that nobody serves is nobody's, and says for whom it waits ... */
    rig_await(one, RIG_STORE, "nowhere", SOON,
              "SELECT waiting_handler FROM saga WHERE saga_id = 'nowhere' AND owner IS NULL");
    Saga__V1__Saga *saga = rig_get(two, "nowhere", "nowhere");
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER);
    assert_string_equal(saga->waiting->handler, "nowhere");
    saga__v1__saga__free_unpacked(saga, NULL);
    /* ... until somebody comes, whom it does not keep waiting. */
    (void)rig_worker(two, "came", "nowhere:1");
    rig_await_state(one, "nowhere", "nowhere", "SUCCEEDED", LATE_MS);
    rig_assert_journal(one, "nowhere", "nowhere", "a.1 DONE");
}

static void test_p2_p8_a_worker_of_both_nodes_serves_both_within_its_slots(void **state)
{
    (void)state;
    enum { EACH = 30, SLOTS = 3 };
    PROVES("P2 P8");
    rig_define(one, "both", NULL, "a: ONCE handler=both | none");
    (void)nodes_worker(&nodes, 0, 1, "both", "both:3"); /* the rig owns it */
    int64_t let_go = rig_counter(one, "sagas_let_go") + rig_counter(two, "sagas_let_go");
    rig_start_many(one, "both", "both-one", EACH, "a A 1 sleep=20");
    rig_start_many(two, "both", "both-two", EACH, "a A 1 sleep=20");
    rig_await_states(one, "both", "both-", "SUCCEEDED", 2 * EACH, SOON);
    assert_int_equal(rig_counter(one, "sagas_let_go") + rig_counter(two, "sagas_let_go"), let_go);
    rig_await(one, RIG_STORE, "one 30, two 30", 100,
              "SELECT string_agg(node || ' ' || n, ', ' ORDER BY node) FROM"
              " (SELECT split_part(actor, '/', 1) AS node, count(*) AS n FROM journal"
              " JOIN saga s USING (shard, saga_uid) WHERE s.definition = 'both' GROUP BY 1) x");
    assert_true(rig_count(one, RIG_BANK,
                          "SELECT max(n) FROM (SELECT (SELECT count(*) FROM calls o WHERE"
                          " o.definition = 'both' AND o.started_at <= c.started_at"
                          " AND o.ended_at > c.started_at) AS n FROM calls c"
                          " WHERE c.definition = 'both') x") <= SLOTS);
    /* What it got from a node that dies it reports to the other; a node that is back has it back.
     */
    rig_start_many(one, "both", "both-kept", SLOTS, "a A 1 sleep=1500");
    rig_await(one, RIG_BANK, "3", SOON,
              "SELECT count(*) FROM calls WHERE saga_id LIKE 'both-kept%%'");
    rig_server_kill(one);
    rig_await_states(two, "both", "both-kept", "SUCCEEDED", SLOTS, SOON);
    rig_assert_journal(two, "both", "both-kept0", "a.1 DONE");
    rig_server_start(one);
    rig_start(one, "both", "both-back", "");
    rig_await_state(one, "both", "both-back", "SUCCEEDED", SOON);
}

/* --- calls ------------------------------------------------------------------------------------ */

static Saga__V1__Saga *wait_at(struct rig *rig, const char *definition, const char *saga_id)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__WaitSagaRequest request = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    ref.definition = rig_borrow(definition);
    ref.saga_id = rig_borrow(saga_id);
    timeout.seconds = SOON / 1000;
    request.saga = &ref;
    request.timeout = &timeout;
    request.or_parked = true;
    return (Saga__V1__Saga *)rig_call(rig, "SagaService/WaitSaga", &request.base,
                                      &saga__v1__saga__descriptor, NULL);
}

/* The gRPC status; the answer is the caller's if it is 0. */
static int start_at(struct rig *rig, const char *definition, const char *saga_id, const char *input,
                    Saga__V1__StartSagaResponse **ret)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    struct client_failure failure = { .code = 0 };
    request.definition = rig_borrow(definition);
    request.saga_id = rig_borrow(saga_id);
    request.input.data = (uint8_t *)rig_borrow(input);
    request.input.len = strlen(input);
    *ret = (Saga__V1__StartSagaResponse *)rig_call(rig, "SagaService/StartSaga", &request.base,
                                                   &saga__v1__start_saga_response__descriptor,
                                                   &failure);
    int code = *ret ? 0 : failure.code;
    client_failure_done(&failure);
    return code;
}

static void test_calls_about_a_saga_are_answered_at_any_node(void **state)
{
    (void)state;
    PROVES("P1 P2 P6");
    static const char slow[] = "b A 1 sleep=1200", backoff[] = "b A 1 after=600000 retry";
    char reason[RIG_REASON_SIZE];
    rig_define(one, "calls", NULL,
               "a: IDEMPOTENT handler=calls | IDEMPOTENT handler=calls\n"
               "b: ONCE handler=calls | IDEMPOTENT handler=calls | settle=0s");
    (void)rig_worker(one, "w1", "calls:16"); /* the rigs own them */
    (void)rig_worker(two, "w2", "calls:16");
    rig_start(one, "calls", "waited", slow);
    rig_start(one, "calls", "cancelled", slow);
    rig_start(one, "calls", "turned", backoff);
    rig_start(one, "calls", "retried", backoff);
    rig_start(one, "calls", "unknown", "b A 1 unknown");
    /* The same key at the other node is the same saga, running or ended. */
    Saga__V1__StartSagaResponse *started, *again;
    assert_int_equal(start_at(one, "calls", "waited", slow, &started), 0);
    assert_true(started->existed);
    assert_int_equal(start_at(two, "calls", "waited", backoff, &again), ALREADY_EXISTS);
    rig_await_call(two, "cancelled", "b", "A", 1, SOON);
    assert_int_equal(rig_cancel(two, "calls", "cancelled", NULL), 0);
    assert_int_equal(rig_cancel(one, "calls", "cancelled", NULL), 0); /* it is so already */
    rig_await(one, RIG_STORE, "2", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id IN ('turned', 'retried') AND outcome = 'RETRY'");
    assert_int_equal(rig_cancel(two, "calls", "turned", NULL), 0);
    assert_int_equal(rig_retry(two, "calls", "retried", "b", NULL), 0);
    Saga__V1__Saga *saga = wait_at(two, "calls", "waited");
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
    assert_string_equal(saga->uid, started->uid);
    saga__v1__saga__free_unpacked(saga, NULL);
    assert_int_equal(start_at(two, "calls", "waited", slow, &again), 0);
    assert_true(again->existed);
    assert_string_equal(again->uid, started->uid);
    assert_int_equal(again->state, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
    saga__v1__start_saga_response__free_unpacked(started, NULL);
    saga__v1__start_saga_response__free_unpacked(again, NULL);
    rig_await_state(one, "calls", "cancelled", "COMPENSATED", SOON);
    rig_assert_journal(one, "calls", "cancelled",
                       "a.1 DONE, b.1 DONE, COMPENSATE CANCELLED, ~b.1 DONE, ~a.1 DONE");
    rig_await_state(one, "calls", "turned", "COMPENSATED", LATE_MS);
    rig_await_state(one, "calls", "retried", "SUCCEEDED", LATE_MS);
    rig_await_state(one, "calls", "unknown", "PARKED OUTCOME_UNKNOWN", SOON);
    assert_int_equal(rig_retry(two, "calls", "unknown", "b", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "OUTCOME_UNKNOWN");
    saga = wait_at(two, "calls", "unknown");
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED);
    saga__v1__saga__free_unpacked(saga, NULL);
    assert_int_equal(rig_cancel(two, "calls", "unknown", NULL), 0);
    rig_await_state(one, "calls", "unknown", "COMPENSATED", SOON);
    assert_int_equal(rig_cancel(one, "calls", "retried", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "CANCEL_NOT_ALLOWED");
}

struct starter {
    pthread_t thread;
    struct client *client;
    const char *saga_id, *input;
    bool existed, mismatch;
    char uid[48];
    struct err err;
};

static void *start_once(void *ctx)
{
    struct starter *starter = ctx;
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.definition = rig_borrow("u7");
    request.saga_id = rig_borrow(starter->saga_id);
    request.input.data = (uint8_t *)rig_borrow(starter->input);
    request.input.len = strlen(starter->input);
    starter->err.code = ERR_OK;
    if (client_call(starter->client, "/saga.v1.SagaService/StartSaga", &request.base,
                    &saga__v1__start_saga_response__descriptor, RIG_CALL_MS, &reply,
                    &starter->err) != 0) {
        starter->mismatch = strcmp(starter->err.reason, "INPUT_MISMATCH") == 0;
        return NULL;
    }
    const Saga__V1__StartSagaResponse *response = (const Saga__V1__StartSagaResponse *)reply;
    (void)snprintf(starter->uid, sizeof starter->uid, "%s", response->uid);
    starter->existed = response->existed;
    protobuf_c_message_free_unpacked(reply, NULL);
    return NULL;
}

static void test_p1_u7_one_key_at_several_nodes_at_once_is_one_saga(void **state)
{
    (void)state;
    enum { STARTERS = 50 };
    static struct starter starters[STARTERS];
    PROVES("P1");
    int rounds = test_is_full_size() ? 40 : 4;
    rig_define(one, "u7", NULL, "a: IDEMPOTENT handler=u7 | none");
    for (int round = 0; round < rounds; round++) {
        char id[16];
        (void)snprintf(id, sizeof id, "u7-%d", round);
        for (int i = 0; i < STARTERS; i++) {
            /* Every fifth one brings other bytes. */
            starters[i] = (struct starter){ .client = nodes.at[i % 2].client,
                                            .saga_id = id,
                                            .input = i % 5 == 4 ? "other" : "same" };
            assert_int_equal(pthread_create(&starters[i].thread, NULL, start_once, &starters[i]),
                             0);
        }
        int created = 0, mismatches = 0;
        const char *uid = NULL;
        for (int i = 0; i < STARTERS; i++) {
            assert_int_equal(pthread_join(starters[i].thread, NULL), 0);
            if (starters[i].err.code != ERR_OK && !starters[i].mismatch)
                fail_msg("%s: %s", starters[i].err.reason, starters[i].err.msg);
            mismatches += starters[i].mismatch;
            created += !starters[i].mismatch && !starters[i].existed;
            if (starters[i].mismatch)
                continue;
            uid = uid ? uid : starters[i].uid;
            assert_string_equal(starters[i].uid, uid);
        }
        assert_int_equal(created, 1);
        assert_true(mismatches == STARTERS / 5 || mismatches == STARTERS * 4 / 5);
        rig_await(one, RIG_STORE, "1", 100, "SELECT count(*) FROM saga WHERE saga_id = '%s'", id);
    }
    (void)rig_worker(two, "u7", "u7:8"); /* the rig owns it */
    rig_await_states(one, "u7", "u7-", "SUCCEEDED", rounds, SOON);
}

/* --- reports ---------------------------------------------------------------------------------- */

static const Saga__V1__Task *must_get_task(struct raw_worker *worker)
{
    const Saga__V1__Task *task = raw_worker_task(worker, SOON);
    assert_non_null(task);
    return task;
}

static void test_p2_p3_what_workers_say_counts_at_any_node(void **state)
{
    (void)state;
    static const char instance[] = "instance-of-both";
    PROVES("P2 P3");
    rig_define(one, "said", NULL,
               "a: ONCE handler=said lease=60s | IDEMPOTENT handler=said | settle=0s\n"
               "b: ONCE handler=said lease=60s | IDEMPOTENT handler=said | settle=0s");
    rig_start_many(one, "said", "said", 4, "");
    struct raw_worker *here = raw_worker_hello(one->address, "w", instance, "said", NULL, 0);
    raw_worker_credit(here, "said", 4);
    struct raw_lease leases[4];
    char ids[4][16];
    for (int i = 0; i < 4; i++) {
        const Saga__V1__Task *task = must_get_task(here);
        leases[i] = raw_lease_of(task);
        (void)snprintf(ids[i], sizeof ids[i], "%s", task->saga_id);
    }
    struct raw_worker *there = raw_worker_hello(two->address, "w", instance, "said", leases, 4);
    /* An extension, a result, a refusal, a task given back, all at the node that granted nothing.
     */
    raw_worker_extend(there, &leases[0]);
    assert_true(raw_worker_extended(there, SOON) > 50000);
    assert_int_equal(raw_worker_settle(there, &leases[0], DONE, "x"), ACCEPTED);
    assert_int_equal(raw_worker_settle(there, &leases[1], REJECTED, "NO"), ACCEPTED);
    raw_worker_release(there, &leases[2]);
    rig_await(one, RIG_STORE, "RELEASED", SOON,
              "SELECT outcome FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = '%s' AND seq = 1",
              ids[2]);
    rig_await_state(one, "said", ids[1], "COMPENSATED", 100); /* with its ack */
    /* The node that granted them has old copies, and is not misled by them. */
    assert_int_equal(raw_worker_settle(here, &leases[0], DONE, "x"), DUPLICATE);
    assert_int_equal(raw_worker_settle(here, &leases[1], DONE, "x"), STALE);
    raw_worker_extend(here, &leases[0]);
    assert_int_equal(raw_worker_extended(here, SOON), 0);
    assert_int_equal(raw_worker_settle(here, &leases[3], DONE, "x"), ACCEPTED);
    /* Everything goes on: the next step of two, the same of one, whoever has it. */
    raw_worker_credit(there, "said", 10);
    raw_worker_credit(here, "said", 20);
    int done = 0;
    for (int quiet = 0; done < 4 && quiet < 100; quiet++) {
        struct raw_worker *const both[] = { here, there };
        for (int i = 0; i < 2; i++) {
            const Saga__V1__Task *task = raw_worker_task(both[i], 50);
            if (!task)
                continue;
            struct raw_lease lease = raw_lease_of(task);
            assert_int_equal(task->try_, 1);
            assert_int_equal(raw_worker_settle(both[i], &lease, DONE, ""), ACCEPTED);
            done++;
        }
    }
    assert_int_equal(done, 4); /* b, b, a and b */
    here = raw_worker_cut(here);
    there = raw_worker_cut(there);
    rig_await_states(one, "said", "said", "SUCCEEDED", 3, SOON);
}

/* A node keeps its copy of a saga that another one has taken over meanwhile. What it does not know
 * of is no reason to refuse. */
static void test_p2_p3_a_lease_that_another_node_granted_meanwhile_counts_here(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE];
    PROVES("P2 P3");
    rig_define(one, "taken", NULL,
               "a: ONCE handler=taken lease=60s | none\nb: ONCE handler=taken lease=60s | none\n"
               "c: ONCE handler=taken lease=60s | none");
    rig_start_many(one, "taken", "taken", 3, "");
    struct raw_worker *here = raw_worker_hello(one->address, "here", NULL, "taken", NULL, 0);
    struct raw_worker *there = raw_worker_hello(two->address, "there", NULL, "taken", NULL, 0);
    raw_worker_credit(here, "taken", 3);
    raw_worker_credit(there, "taken", 3);
    struct raw_lease leases[3];
    char ids[3][16];
    for (int i = 0; i < 3; i++) {
        struct raw_lease first = raw_lease_of(must_get_task(here));
        assert_int_equal(raw_worker_settle(there, &first, DONE, "a"), ACCEPTED);
        const Saga__V1__Task *task = must_get_task(there); /* b, granted by the other node */
        leases[i] = raw_lease_of(task);
        (void)snprintf(ids[i], sizeof ids[i], "%s", task->saga_id);
    }
    raw_worker_extend(here, &leases[0]);
    assert_true(raw_worker_extended(here, SOON) > 50000);
    assert_int_equal(raw_worker_settle(here, &leases[1], DONE, "b"), ACCEPTED);
    raw_worker_release(here, &leases[2]);
    rig_await(one, RIG_STORE, "RELEASED", SOON,
              "SELECT outcome FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = '%s' AND seq = 2",
              ids[2]);
    /* Nor is an old copy one for a refusal: here it has a live lease, in truth it is parked. */
    rig_define(one, "parks", NULL, "a: ONCE handler=parks lease=60s max_attempts=1 | none");
    rig_start(one, "parks", "parks", "");
    struct raw_worker *parks = raw_worker_hello(one->address, "here", NULL, "parks", NULL, 0);
    raw_worker_credit(parks, "parks", 1);
    struct raw_lease lease = raw_lease_of(must_get_task(parks));
    assert_int_equal(raw_worker_settle(there, &lease, RETRY, "BUSY"), ACCEPTED);
    rig_await_state(one, "parks", "parks", "PARKED RETRIES_EXHAUSTED", 100);
    assert_int_equal(rig_retry(one, "parks", "parks", "a", reason), 0);
    parks = raw_worker_cut(parks);
    here = raw_worker_cut(here);
    there = raw_worker_cut(there);
}

static void test_p2_p3_two_nodes_that_are_told_at_once_believe_one(void **state)
{
    (void)state;
    enum { ROUNDS_MAX = 300 };
    static const char instance[] = "instance-of-race";
    PROVES("P2 P3 P5");
    int rounds = test_is_full_size() ? ROUNDS_MAX : 30;
    rig_define(one, "told", NULL, "a: ONCE handler=told lease=60s | IDEMPOTENT handler=told_undo");
    rig_start_many(one, "told", "told", rounds, "");
    struct raw_worker *here = raw_worker_hello(one->address, "w", instance, "told", NULL, 0);
    struct raw_worker *there = raw_worker_hello(two->address, "w", instance, "told", NULL, 0);
    int same = 0, first = 0;
    raw_worker_credit(here, "told", (uint64_t)rounds);
    for (int i = 0; i < rounds; i++) {
        struct raw_lease lease = raw_lease_of(must_get_task(here));
        /* The same twice, then a result against a refusal, whoever is first. */
        Saga__V1__Outcome other = i % 3 == 0 ? DONE : REJECTED;
        raw_worker_report(i % 2 ? here : there, &lease, other, "word");
        raw_worker_report(i % 2 ? there : here, &lease, DONE, "word");
        Saga__V1__Ack__Result a = raw_worker_ack(here, &lease), b = raw_worker_ack(there, &lease);
        Saga__V1__Ack__Result loses = i % 3 == 0 ? DUPLICATE : STALE;
        if (!(a == ACCEPTED && b == loses) && !(b == ACCEPTED && a == loses))
            fail_msg("round %d: %d at one, %d at two", i, (int)a, (int)b);
        same += i % 3 == 0;
        first += i % 3 != 0 && (i % 2 ? a : b) == ACCEPTED;
    }
    here = raw_worker_cut(here);
    there = raw_worker_cut(there);
    (void)rig_worker(two, "undo", "told_undo:8"); /* the rig owns it */
    rig_await(one, RIG_STORE, "0", SOON,
              "SELECT count(*) FROM saga WHERE definition = 'told' AND state NOT IN ('SUCCEEDED',"
              " 'COMPENSATED')");
    print_message("%d rounds, %d told the same, %d refusals came first\n", rounds, same, first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p8_a_saga_goes_to_the_node_that_has_a_worker_for_it),
        TEST(test_p2_p8_a_worker_of_both_nodes_serves_both_within_its_slots),
        TEST(test_calls_about_a_saga_are_answered_at_any_node),
        TEST(test_p1_u7_one_key_at_several_nodes_at_once_is_one_saga),
        TEST(test_p2_p3_what_workers_say_counts_at_any_node),
        TEST(test_p2_p3_a_lease_that_another_node_granted_meanwhile_counts_here),
        TEST(test_p2_p3_two_nodes_that_are_told_at_once_believe_one),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
