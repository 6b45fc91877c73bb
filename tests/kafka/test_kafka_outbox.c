/* Goal: over a real broker, what sagas did, and what was done to handlers, is on the topic, in the
 * order of each, whatever dies.
 * Method: two sagads with workers under load, events to a topic of eight partitions; the broker is
 * killed with -9 and started again, a sagad is killed, the topic takes small batches alone; each
 * time the topic beside the journal. Then records that are too large, and a person's word. */
#include "page.h"
#include "support/nodes.h"
#include "support/outbox_check.h"
#include "support/proof.h"
#include "support/scratch.h"

#include <saga/v1/kafka.pb-c.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define TOPIC "saga-events"
enum { REST_MS = 90000, STOP_MS = 15000 };

static struct test_kafka *kafka;
static struct nodes nodes;
static char page_variable[SCRATCH_PATH_SIZE + 32];
static const char *const server_env[] = { page_variable, NULL };
static struct page *page; /* where the second sagad kills itself */

static int setup(void **state)
{
    (void)state;
    struct err err;
    char path[SCRATCH_PATH_SIZE];
    SETUP_OK(scratch_path("faults", path, &err), &err);
    (void)snprintf(page_variable, sizeof page_variable, FAULT_PAGE_ENV "=%s", path);
    if (!(page = page_map(path, true)))
        return -1;
    nodes.at[1].server_program = SAGAD_FAULT_BINARY;
    nodes.at[1].server_env = server_env;
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

/* --- handlers --------------------------------------------------------------------------------- */

static int64_t told_of_handlers(const char *kind)
{
    return rig_count(&nodes.at[0], RIG_STORE,
                     "SELECT count(*) FROM handler_event WHERE kind = '%s'", kind);
}

/* By people at either node, over a kill -9 of one of them and of the broker. */
static void test_what_becomes_of_handlers_is_told(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    enum { ROUNDS = 10 };
    struct err err;
    for (int i = 0; i < ROUNDS; i++) {
        rig_hold(&nodes.at[i % 2], "act");
        rig_hold(&nodes.at[0], "undo");
        if (i == 3) {
            rig_server_kill(&nodes.at[1]);
            proof_fault("outbox: kill -9 of one of two sagads", 1);
        } else if (i == 6) {
            test_kafka_kill(kafka);
            proof_fault("outbox: kill -9 of the broker", 1);
        }
        rig_release(&nodes.at[0], "act");
        rig_release(&nodes.at[0], "undo");
        if (i == 3)
            rig_server_start(&nodes.at[1]);
        else if (i == 6)
            ASSERT_OK(test_kafka_restart(kafka, &err), &err);
    }
    assert_int_equal(told_of_handlers("HELD"), 2 * ROUNDS);
    assert_int_equal(told_of_handlers("RELEASED"), 2 * ROUNDS);
    expect_published();
}

/* Alone, so that the event is its own, and between the topic's word and the removal. */
static void test_a_handlers_event_that_was_not_removed_leaves_again(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    struct err err;
    int status;
    struct rig *rig = &nodes.at[1];
    (void)rig_server_stop(&nodes.at[0], STOP_MS);
    rig_await(rig, RIG_STORE, "16", REST_MS,
              "SELECT count(*) FROM outbox_slice WHERE until > now()");
    page_arm(page, PAGE_BEFORE_OUTBOX_DELETE, 1);
    rig_hold(rig, "act");
    ASSERT_OK(test_process_wait(rig->sagad, REST_MS, &status, &err), &err);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    rig->sagad = test_process_free(rig->sagad);
    proof_fault("outbox: kill -9 before a handler's event is removed", 1);
    rig_server_start(rig);
    rig_release(rig, "act");
    rig_server_start(&nodes.at[0]);
    expect_published();
    PGconn *conn = rig_connect(rig, RIG_STORE);
    (void)outbox_check_read(kafka, TOPIC, conn);
    assert_int_equal(outbox_check_count(conn, "SELECT count(*) FROM t WHERE part = 3 AND seq ="
                                              " (SELECT max(version) FROM handler_event"
                                              " WHERE handler = 'act' AND kind = 'HELD')"),
                     2);
    PQfinish(conn);
}

static void test_a_breaker_that_holds_by_itself_is_told(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    struct rig *rig = &nodes.at[0];
    char reason[RIG_REASON_SIZE];
    Google__Protobuf__Duration second = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__Breaker breaker = SAGA__V1__BREAKER__INIT;
    Saga__V1__SetHandlerLimitsRequest request = SAGA__V1__SET_HANDLER_LIMITS_REQUEST__INIT;
    int64_t held = told_of_handlers("HELD"), released = told_of_handlers("RELEASED");
    second.seconds = 1;
    breaker.failures = 3;
    breaker.successes = 1;
    breaker.trial_interval = &second;
    request.handler = rig_borrow("frail");
    request.breaker = &breaker;
    protobuf_c_message_free_unpacked(rig_call(rig, "OperatorService/SetHandlerLimits",
                                              &request.base, &saga__v1__handler__descriptor, NULL),
                                     NULL);
    rig_define(rig, "frail", "publish=TRANSITIONS",
               "a: IDEMPOTENT handler=frail initial=0.05s cap=0.1s | none");
    (void)rig_worker(rig, "frail", "frail:4"); /* the rig owns it */
    rig_start(rig, "frail", "bad", "a A * retry code=DOWN");
    rig_await(rig, RIG_STORE, "BREAKER", REST_MS, "SELECT hold FROM handler WHERE name = 'frail'");
    (void)rig_cancel(rig, "frail", "bad", reason);
    rig_start(rig, "frail", "good", "");
    rig_await_state(rig, "frail", "good", "SUCCEEDED", REST_MS);
    rig_await(rig, RIG_STORE, "", REST_MS, "SELECT hold FROM handler WHERE name = 'frail'");
    assert_int_equal(told_of_handlers("HELD"), held + 1);
    assert_int_equal(told_of_handlers("RELEASED"), released + 1);
    expect_published();
}

/* --- what the topic refuses ---------------------------------------------------------------------
 */

static void await_refused(const char *part)
{
    rig_await(&nodes.at[0], RIG_STORE, part, REST_MS,
              "SELECT string_agg(part::text, ' ') FROM outbox WHERE failed_at IS NOT NULL");
}

/* A person's word about the one event that is refused. */
static void decide(bool discard)
{
    char id[64];
    Saga__V1__PublishOutboxEventRequest publish = SAGA__V1__PUBLISH_OUTBOX_EVENT_REQUEST__INIT;
    Saga__V1__DiscardOutboxEventRequest drop = SAGA__V1__DISCARD_OUTBOX_EVENT_REQUEST__INIT;
    rig_text(&nodes.at[0], RIG_STORE, id, sizeof id,
             "SELECT concat_ws('/', saga_uid, seq, part) FROM outbox WHERE failed_at IS NOT NULL");
    publish.event_id = drop.event_id = id;
    publish.actor = drop.actor = rig_borrow("ada");
    publish.reason = drop.reason = rig_borrow("a test");
    ProtobufCMessage *reply =
        discard ? rig_call(&nodes.at[0], "KafkaService/DiscardOutboxEvent", &drop.base,
                           &saga__v1__discard_outbox_event_response__descriptor, NULL)
                : rig_call(&nodes.at[0], "KafkaService/PublishOutboxEvent", &publish.base,
                           &saga__v1__publish_outbox_event_response__descriptor, NULL);
    protobuf_c_message_free_unpacked(reply, NULL);
}

/* The later events follow one that is discarded; one that is published again does not wait for its
 * back-off. The last test: what is discarded is not on the topic. */
static void test_what_is_refused_is_discarded_or_published_again(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(kafka);
    struct err err;
    int64_t before, after;
    struct rig *rig = &nodes.at[0];
    ASSERT_OK(test_kafka_count(kafka, TOPIC, &before, &err), &err);
    ASSERT_OK(test_kafka_topic_configure(kafka, TOPIC, "max.message.bytes", "100", &err), &err);
    rig_start(rig, "told", "large", "");
    rig_await_state(rig, "told", "large", "SUCCEEDED", REST_MS);
    await_refused("0"); /* its start */
    int64_t events = rig_count(rig, RIG_STORE, "SELECT count(*) FROM outbox");
    decide(true);
    await_refused("1");
    ASSERT_OK(test_kafka_topic_configure(kafka, TOPIC, "max.message.bytes", "1048588", &err), &err);
    rig_exec(rig, RIG_STORE,
             "UPDATE outbox SET failures = 20, failed_at = now() + interval '1 hour'"
             " WHERE failed_at IS NOT NULL");
    decide(false);
    rig_await(rig, RIG_STORE, "0", REST_MS, "SELECT count(*) FROM outbox");
    ASSERT_OK(test_kafka_count(kafka, TOPIC, &after, &err), &err);
    assert_int_equal(after - before, events - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_broker_that_dies_under_load_delays_and_loses_nothing),
        cmocka_unit_test(test_o3_a_sagad_that_is_killed_leaves_its_events_to_the_other),
        cmocka_unit_test(test_a_topic_that_takes_small_batches_alone_gets_all),
        cmocka_unit_test(test_a_sagad_ends_in_time_beside_a_broker_that_stands_still),
        cmocka_unit_test(test_what_becomes_of_handlers_is_told),
        cmocka_unit_test(test_a_handlers_event_that_was_not_removed_leaves_again),
        cmocka_unit_test(test_a_breaker_that_holds_by_itself_is_told),
        cmocka_unit_test(test_what_is_refused_is_discarded_or_published_again),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
