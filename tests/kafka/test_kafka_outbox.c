/* Goal: over a real broker, what sagas did is on the topic, in each saga's order, whatever dies.
 * Method: two sagads with workers under load, events to a topic of eight partitions; the broker is
 * killed with -9 and started again, a sagad is killed, the topic takes small batches alone; each
 * time the topic beside the journal. */
#include "support/nodes.h"
#include "support/outbox_check.h"
#include "support/proof.h"

#include <signal.h>
#include <stdio.h>

#define TOPIC "saga-events"
enum { REST_MS = 90000, STOP_MS = 15000 };

static struct test_kafka *kafka;
static struct nodes nodes;

static int setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_kafka_start(NULL, &kafka, &err), &err);
    if (!kafka)
        return 0;
    SETUP_OK(test_kafka_topic_create(kafka, TOPIC, 8, NULL, &err), &err);
    const char *const args[] = { "--kafka-brokers", test_kafka_bootstrap(kafka), "--outbox-topic",
                                 TOPIC, NULL };
    if (nodes_up(&nodes, 2, args) != 0)
        return -1;
    struct rig *rig = &nodes.at[0];
    rig_define(rig, "told", "publish=TRANSITIONS",
               "one: IDEMPOTENT | IDEMPOTENT | guarded\n"
               "two: IDEMPOTENT | IDEMPOTENT | guarded\n"
               "three: IDEMPOTENT max_attempts=1 on_exhausted=PARK | none | guarded\n");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int rc = kafka ? nodes_down(&nodes) : 0;
    kafka = test_kafka_free(kafka);
    return rc;
}

static void workers(void)
{
    (void)nodes_worker(&nodes, 0, 1, "one", "act:8 undo:4"); /* the rigs own them */
    (void)nodes_worker(&nodes, 1, 0, "two", "act:8 undo:4");
}

static void start_some(const char *prefix, int count)
{
    char half[32];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(half, sizeof half, "%s%d-", prefix, i);
        rig_start_many(&nodes.at[i], "told", half, count / 2, "");
    }
}

static void expect_published(void)
{
    rig_await(&nodes.at[0], RIG_STORE, "0", REST_MS,
              "SELECT count(*) FROM saga WHERE state NOT IN ('SUCCEEDED', 'COMPENSATED')");
    rig_await(&nodes.at[0], RIG_STORE, "0", REST_MS, "SELECT count(*) FROM outbox");
    PGconn *conn = rig_connect(&nodes.at[0], RIG_STORE);
    (void)outbox_check_read(kafka, TOPIC, conn);
    outbox_check_all(conn);
    PQfinish(conn);
}

static void test_a_broker_that_dies_under_load_delays_and_loses_nothing(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    struct err err;
    int rounds = test_is_full_size() ? 4 : 1, sagas = test_is_full_size() ? 400 : 100;
    workers();
    for (int i = 0; i < rounds; i++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "before%d-", i);
        start_some(prefix, sagas);
        test_kafka_kill(kafka);
        proof_fault("outbox: kill -9 of the broker", 1);
        (void)snprintf(prefix, sizeof prefix, "without%d-", i);
        start_some(prefix, sagas);
        ASSERT_OK(test_kafka_restart(kafka, &err), &err);
        (void)snprintf(prefix, sizeof prefix, "after%d-", i);
        start_some(prefix, sagas);
        expect_published();
    }
}

static void test_o3_a_sagad_that_is_killed_leaves_its_events_to_the_other(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    start_some("shared-", 100);
    rig_server_kill(&nodes.at[1]);
    proof_fault("outbox: kill -9 of one of two sagads", 1);
    rig_start_many(&nodes.at[0], "told", "alone-", 50, "");
    expect_published();
    rig_server_start(&nodes.at[1]);
    start_some("again-", 100);
    expect_published();
}

/* Nobody tells which record of a batch was too much: they are sent one by one then. */
static void test_a_topic_that_takes_small_batches_alone_gets_all(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    struct err err;
    ASSERT_OK(test_kafka_topic_configure(kafka, TOPIC, "max.message.bytes", "1500", &err), &err);
    start_some("small-", 60);
    expect_published();
    assert_int_equal(rig_count(&nodes.at[0], RIG_STORE, "SELECT sum(refused) FROM outbox_relay"),
                     0);
    ASSERT_OK(test_kafka_topic_configure(kafka, TOPIC, "max.message.bytes", "1048588", &err), &err);
}

/* Neither a broker that stands still nor events that wait for it hold up the end. */
static void test_a_sagad_ends_in_time_beside_a_broker_that_stands_still(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    struct err err;
    ASSERT_OK(test_kafka_signal(kafka, SIGSTOP, &err), &err);
    start_some("still-", 40);
    rig_await_states(&nodes.at[0], "told", "still-", "SUCCEEDED", 40, REST_MS);
    (void)rig_server_stop(&nodes.at[1], STOP_MS); /* fails the test when it takes longer */
    proof_fault("outbox: SIGSTOP of the broker", 1);
    ASSERT_OK(test_kafka_signal(kafka, SIGCONT, &err), &err);
    rig_server_start(&nodes.at[1]);
    expect_published();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_broker_that_dies_under_load_delays_and_loses_nothing),
        cmocka_unit_test(test_o3_a_sagad_that_is_killed_leaves_its_events_to_the_other),
        cmocka_unit_test(test_a_topic_that_takes_small_batches_alone_gets_all),
        cmocka_unit_test(test_a_sagad_ends_in_time_beside_a_broker_that_stands_still),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
