/* Goal: partitions are given back and read from elsewhere as fast as anybody may ask for it, and
 * the process lives. Method: librdkafka's mock; a member that reads all partitions and is told at
 * once, again and again, where to read next, or to read nothing. */
#include "kafka/consumer.h"
#include "support/kafka.h"
#include "support/proof.h"
#include "support/wait.h"

enum { PARTITIONS = 6, RECORDS = 30, ROUNDS = 300, WAIT_MS = 30000 };

static struct test_kafka *mock;

static int setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_kafka_mock_start(1, &mock, &err), &err);
    SETUP_OK(test_kafka_topic_create(mock, "moved", PARTITIONS, NULL, &err), &err);
    for (int i = 0; i < RECORDS; i++) {
        const struct test_kafka_record record = {
            .partition = i % PARTITIONS, .key = "k", .key_size = 1, .value = "v", .value_size = 1
        };
        SETUP_OK(test_kafka_produce(mock, "moved", &record, 1, &err), &err);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mock = test_kafka_free(mock);
    return 0;
}

static void await_event(struct consumer *consumer, enum consumer_event_kind kind)
{
    struct consumer_event event = { .kind = CONSUMER_NOTHING };
    for (int i = 0; event.kind != kind; i++) {
        assert_true(i < WAIT_MS / 10);
        consumer_poll(consumer, 10, &event);
        if (event.kind == CONSUMER_RECORD)
            rd_kafka_message_destroy(event.message);
    }
}

static void test_p8_positions_that_change_faster_than_reading_stops(void **state)
{
    (void)state;
    PROVES("P8");
    const struct consumer_options options = { .brokers = test_kafka_bootstrap(mock),
                                              .topic = "moved",
                                              .group = "movers",
                                              .instance = "one",
                                              .mark = "sagad/moved" };
    struct consumer_position all[PARTITIONS] = { 0 };
    struct consumer *consumer = NULL;
    struct err err;
    for (int i = 0; i < PARTITIONS; i++)
        all[i].partition = i;
    ASSERT_OK(consumer_new(&options, &consumer, &err), &err);
    ASSERT_OK(consumer_subscribe(consumer, &err), &err);
    await_event(consumer, CONSUMER_ASSIGNED);
    for (int round = 0; round < ROUNDS; round++) {
        ASSERT_OK(consumer_assign(consumer, all, PARTITIONS, &err), &err);
        if (round % 3 == 0) /* it does read */
            await_event(consumer, CONSUMER_RECORD);
        ASSERT_OK(consumer_assign(consumer, all, PARTITIONS - 1, &err), &err);
        ASSERT_OK(consumer_assign(consumer, NULL, 0, &err), &err);
    }
    ASSERT_OK(consumer_assign(consumer, all, PARTITIONS, &err), &err);
    await_event(consumer, CONSUMER_RECORD);
    proof_fault("kafka: a position changes before reading has stopped", 3 * ROUNDS);
    consumer = consumer_close(consumer, WAIT_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p8_positions_that_change_faster_than_reading_stops),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
