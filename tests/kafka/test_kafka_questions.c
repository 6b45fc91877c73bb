/* Goal: a cluster that does not answer in time costs an error and nothing else, whatever it says
 * later. Method: questions to the mock while its only broker is away, and then it is back. */
#include "base/mem.h"
#include "kafka/admin.h"
#include "support/kafka.h"
#include "support/proof.h"
#include "support/wait.h"

enum { SHORT_MS = 300, LONG_MS = 30000, BROKER = 1 };

static struct test_kafka *mock;
static rd_kafka_t *handle;

static int setup(void **state)
{
    (void)state;
    struct err err;
    char message[200];
    SETUP_OK(test_kafka_mock_start(1, &mock, &err), &err);
    SETUP_OK(test_kafka_topic_create(mock, "asked", 1, NULL, &err), &err);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    static const char *const settings[][2] = { { "group.id", "asks" },
                                               { "log_level", "0" },
                                               { "reconnect.backoff.max.ms", "200" } };
    (void)rd_kafka_conf_set(conf, "bootstrap.servers", test_kafka_bootstrap(mock), message,
                            sizeof message); /* a wrong one shows in the first question */
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], message, sizeof message))
            return -1;
    handle = rd_kafka_new(RD_KAFKA_CONSUMER, conf, message, sizeof message);
    return handle ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    rd_kafka_destroy(handle);
    mock = test_kafka_free(mock);
    return 0;
}

static int ask(int timeout_ms, struct err *err)
{
    struct consumer_position position = { .partition = 0 };
    return admin_group_offsets(handle, "other", "asked", timeout_ms, &position, 1, err);
}

static void test_p8_a_group_asked_about_while_the_broker_is_away(void **state)
{
    (void)state;
    PROVES("P8");
    struct err err;
    ASSERT_OK(ask(LONG_MS, &err), &err);
    assert_int_equal(rd_kafka_mock_broker_set_down(test_kafka_mock(mock), BROKER), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(ask(SHORT_MS, &err), 0);
        assert_true(err.retryable);
    }
    assert_int_equal(rd_kafka_mock_broker_set_up(test_kafka_mock(mock), BROKER), 0);
    /* What was given up may be answered now. */
    int rc = -1;
    for (int i = 0; rc != 0; i++) {
        assert_true(i < LONG_MS / SHORT_MS);
        rc = ask(SHORT_MS, &err);
    }
    wait_ms(2000); /* over this time it would have hurt */
    ASSERT_OK(ask(LONG_MS, &err), &err);
    proof_fault("kafka: a question is answered after it was given up", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p8_a_group_asked_about_while_the_broker_is_away),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
