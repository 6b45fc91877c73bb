/* Steps that do not come after each other, over the whole stack. Goal: they run at the same time,
 * also at two sagads of which one is killed; what is refused takes back all of it, in the reverse
 * of the order, and never beside a live action; the pivot keeps a cancel waiting. Method: real
 * workers, two nodes, kill -9; the journal's times. */
#include "base/clock.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 10000, FAILED_PRECONDITION = 9, SAGAS = 60, ROUNDS = 3, ROUNDS_FULL = 20 };

static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1];

static const char diamond[] = "reserve: IDEMPOTENT | IDEMPOTENT | guarded\n"
                              "pick: IDEMPOTENT | IDEMPOTENT | guarded\n"
                              "label: IDEMPOTENT | IDEMPOTENT | guarded after=reserve\n"
                              "ship: IDEMPOTENT | IDEMPOTENT | guarded after=pick,label";

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

/* Pairs of leases of two steps of one saga that were live at the same time. */
static int64_t overlaps(const char *definition, const char *operation)
{
    return rig_count(one, RIG_STORE,
                     "SELECT count(*) FROM journal a JOIN journal b USING (shard, saga_uid)"
                     " JOIN saga s USING (shard, saga_uid) WHERE s.definition = '%s'"
                     " AND a.kind = 'LEASE' AND b.kind = 'LEASE' AND a.step_index < b.step_index"
                     " AND a.operation = '%s' AND b.operation = '%s'"
                     " AND a.leased_at < b.finished_at AND b.leased_at < a.finished_at",
                     definition, operation, operation);
}

/* Compensations that began before one of a step that comes after theirs was done. */
static int64_t out_of_order(const char *definition)
{
    return rig_count(
        one, RIG_STORE,
        "WITH later (step, other) AS (VALUES ('reserve', 'pick'), ('reserve', 'label'),"
        " ('reserve', 'ship'), ('pick', 'ship'), ('label', 'ship'))"
        " SELECT count(*) FROM later JOIN journal c ON c.step = later.step"
        " JOIN journal o USING (shard, saga_uid) JOIN saga s USING (shard, saga_uid)"
        " WHERE s.definition = '%s' AND c.kind = 'LEASE' AND o.kind = 'LEASE'"
        " AND o.step = later.other AND c.operation = 'COMPENSATION'"
        " AND o.operation = 'COMPENSATION' AND c.leased_at < o.finished_at",
        definition);
}

static void test_parallel_steps_overlap_and_join(void **state)
{
    (void)state;
    rig_define(one, "both", NULL, diamond);
    (void)rig_worker(one, "w1", "act:16 undo:16"); /* the rig owns it */
    rig_start(one, "both", "o", "pick A 1 sleep=400\nlabel A 1 sleep=400");
    rig_await_state(one, "both", "o", "SUCCEEDED", SOON);
    rig_assert_journal(one, "both", "o", "reserve.1 DONE, pick.1 DONE, label.1 DONE, ship.1 DONE");
    assert_int_equal(overlaps("both", "ACTION"), 1);
    /* The join began when the second was done, and then at once. */
    assert_int_equal(rig_count(one, RIG_STORE,
                               "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'both' AND step = 'ship' AND leased_at >="
                               " (SELECT max(finished_at) FROM journal b WHERE b.shard = j.shard"
                               "  AND b.saga_uid = j.saga_uid AND b.step IN ('pick', 'label'))"),
                     1);
}

/* The request of a second try is that of the first, whatever has happened beside it. */
static void test_a_step_is_told_what_it_comes_after_alone(void **state)
{
    (void)state;
    rig_define(one, "told", NULL, diamond);
    (void)rig_worker(one, "w1", "act:8 undo:8"); /* the rig owns it */
    rig_start(one, "told", "o",
              "pick A 1 out=P\nlabel A 1 after=400 retry\n"
              "label A 2 out=L join=reserve join=pick\nship A 1 out=S join=pick join=label");
    rig_await_state(one, "told", "o", "SUCCEEDED", SOON);
    char label[64], ship[64];
    rig_text(one, RIG_STORE, label, sizeof label,
             "SELECT convert_from(output, 'UTF8') FROM journal JOIN saga s USING (shard, saga_uid)"
             " WHERE s.definition = 'told' AND step = 'label' AND try = 2");
    rig_text(one, RIG_STORE, ship, sizeof ship,
             "SELECT convert_from(output, 'UTF8') FROM journal JOIN saga s USING (shard, saga_uid)"
             " WHERE s.definition = 'told' AND step = 'ship'");
    assert_string_equal(label, "L[reserve=reserve][pick=none]");
    assert_string_equal(ship, "S[pick=P][label=L[reserve=reserve][pick=none]]");
}

static void test_c6_p5_a_refused_branch_takes_back_its_sibling(void **state)
{
    (void)state;
    PROVES("P5");
    rig_define(one, "back", NULL, diamond);
    (void)rig_worker(one, "w1", "act:64 undo:64"); /* the rig owns it */
    rig_start_many(one, "back", "ship", SAGAS, "ship A 1 rejected\n* C * sleep=50");
    rig_start_many(one, "back", "label", SAGAS, "label A 1 rejected\npick A 1 sleep=300");
    rig_await_states(one, "back", "", "COMPENSATED", 2 * SAGAS, 3 * SOON);
    assert_int_equal(out_of_order("back"), 0);
    assert_true(overlaps("back", "COMPENSATION") > SAGAS / 2);
    proof_fault("a step is refused beside another's live lease",
                rig_count(one, RIG_STORE,
                          "SELECT count(*) FROM journal a JOIN journal b USING (shard, saga_uid)"
                          " JOIN saga s USING (shard, saga_uid) WHERE s.definition = 'back'"
                          " AND a.step = 'label' AND a.outcome = 'REJECTED' AND b.step = 'pick'"
                          " AND b.operation = 'ACTION' AND b.finished_at > a.finished_at"));
}

/* The branches' workers are at two nodes, and one of those dies in between: the join is granted all
 * the same, once. */
static void test_p8_a_join_whose_branches_are_at_two_nodes_outlives_one(void **state)
{
    (void)state;
    PROVES("P3 P8");
    rig_define(one, "join", NULL,
               "a: IDEMPOTENT handler=at_one | none | guarded\n"
               "b: IDEMPOTENT handler=at_two | none | guarded after=-\n"
               "c: IDEMPOTENT | none | guarded after=a,b");
    int rounds = test_is_full_size() ? ROUNDS_FULL : ROUNDS;
    for (int i = 0; i < rounds; i++) {
        char prefix[24];
        (void)snprintf(prefix, sizeof prefix, "j%d-", i);
        struct rig *lives = i % 2 ? one : two, *dies = i % 2 ? two : one;
        struct test_process *w1 = rig_worker(one, "w1", "at_one:32");
        struct test_process *w2 = rig_worker(two, "w2", "at_two:32");
        struct test_process *w3 = nodes_worker(&nodes, 0, 1, "w3", "act:32");
        rig_start_many(one, "join", prefix, SAGAS, "* A * sleep=20 guarded");
        wait_ms(20 + 40 * i % 200);
        rig_server_kill(dies);
        wait_ms(200);
        rig_server_start(dies);
        rig_await_states(lives, "join", prefix, "SUCCEEDED", SAGAS, 6 * SOON);
        rig_worker_kill(one, w1);
        rig_worker_kill(two, w2);
        rig_worker_kill(one, w3);
    }
    assert_int_equal(
        rig_count(one, RIG_BANK,
                  "SELECT count(*) FROM (SELECT 1 FROM effects WHERE definition = 'join'"
                  " AND guarded GROUP BY saga_id, step HAVING count(*) <> 1) wrong"),
        0);
    assert_int_equal(
        rig_count(one, RIG_STORE,
                  "SELECT count(*) FROM journal c JOIN journal o USING (shard, saga_uid)"
                  " JOIN saga s USING (shard, saga_uid) WHERE s.definition = 'join'"
                  " AND c.step = 'c' AND o.step <> 'c' AND o.outcome = 'DONE'"
                  " AND c.leased_at < o.finished_at"),
        0);
    proof_fault("a node dies between two branches and their join", rounds);
}

/* No worker sleeps for it, and sagad may die meanwhile. */
static void test_a_delayed_step_waits_in_the_database(void **state)
{
    (void)state;
    rig_define(one, "later", NULL, "a: IDEMPOTENT | none |\nb: IDEMPOTENT | none | delay=2s");
    (void)rig_worker(one, "w1", "act:8"); /* the rig owns it */
    rig_start(one, "later", "o", "");
    rig_await(one, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'later' AND outcome = 'DONE'");
    Saga__V1__Saga *saga = rig_get(one, "later", "o");
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_DELAY);
    assert_int_equal(saga->steps[1]->state, SAGA__V1__STEP_STATE__STEP_STATE_DELAYED);
    saga__v1__saga__free_unpacked(saga, NULL);
    rig_server_kill(one);
    rig_server_start(one);
    rig_await_state(one, "later", "o", "SUCCEEDED", SOON);
    assert_int_equal(
        rig_count(one, RIG_STORE,
                  "SELECT count(*) FROM journal b JOIN journal a USING (shard, saga_uid)"
                  " JOIN saga s USING (shard, saga_uid) WHERE s.definition = 'later'"
                  " AND a.step = 'a' AND b.step = 'b'"
                  " AND b.leased_at >= a.finished_at + interval '2 s'"),
        1);
}

static void test_cancel_waits_for_the_pivot(void **state)
{
    (void)state;
    rig_define(one, "pay", NULL,
               "reserve: IDEMPOTENT | IDEMPOTENT | guarded\n"
               "pay: ONCE | none | pivot\n"
               "tell: IDEMPOTENT | none |");
    (void)rig_worker(one, "w1", "act:8 undo:8"); /* the rig owns it */
    char reason[RIG_REASON_SIZE];
    rig_start(one, "pay", "no_effect", "pay A 1 sleep=600 retry");
    rig_start(one, "pay", "done", "pay A 1 sleep=600\ntell A 1 sleep=800");
    rig_await_call(one, "no_effect", "pay", "A", 1, SOON);
    rig_await_call(one, "done", "pay", "A", 1, SOON);
    assert_int_equal(rig_cancel(one, "pay", "no_effect", reason), 0);
    assert_int_equal(rig_cancel(two, "pay", "done", reason), 0);
    Saga__V1__Saga *saga = rig_get(one, "pay", "done");
    assert_non_null(saga->pending);
    assert_string_equal(saga->pending->reason, "CANCELLED");
    assert_string_equal(saga->pending->step, "pay");
    assert_false(saga->past_pivot);
    saga__v1__saga__free_unpacked(saga, NULL);
    rig_await_state(one, "pay", "no_effect", "COMPENSATED", SOON);
    rig_assert_journal(one, "pay", "no_effect",
                       "reserve.1 DONE, pay.1 RETRY, PENDING CANCELLED, COMPENSATE CANCELLED,"
                       " ~reserve.1 DONE");
    rig_await_call(one, "done", "tell", "A", 1, SOON);
    assert_int_equal(rig_cancel(one, "pay", "done", reason), FAILED_PRECONDITION);
    assert_string_equal(reason, "CANCEL_NOT_ALLOWED");
    rig_await_state(one, "pay", "done", "SUCCEEDED", SOON);
    saga = rig_get(one, "pay", "done");
    assert_true(!saga->pending && saga->past_pivot);
    saga__v1__saga__free_unpacked(saga, NULL);

    rig_start(one, "pay", "refused", "tell A 1 rejected\ntell A 2 done");
    rig_await_state(one, "pay", "refused", "PARKED REJECTED_AFTER_PIVOT", SOON);
    assert_int_equal(rig_retry(one, "pay", "refused", "tell", reason), 0);
    rig_await_state(one, "pay", "refused", "SUCCEEDED", SOON);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_parallel_steps_overlap_and_join),
        TEST(test_a_step_is_told_what_it_comes_after_alone),
        TEST(test_c6_p5_a_refused_branch_takes_back_its_sibling),
        TEST(test_p8_a_join_whose_branches_are_at_two_nodes_outlives_one),
        TEST(test_a_delayed_step_waits_in_the_database),
        TEST(test_cancel_waits_for_the_pivot),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
