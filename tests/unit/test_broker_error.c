/* Goal: each error of Kafka has one meaning, and one that is unknown is never retried for ever.
 * Method: the whole list that librdkafka itself has. */
#include "kafka/broker_error.h"
#include "support/check.h"

static void test_every_code_has_a_meaning(void **state)
{
    (void)state;
    const struct rd_kafka_err_desc *descriptions;
    size_t count, retryable_count = 0;
    rd_kafka_get_err_descs(&descriptions, &count);
    for (size_t i = 0; i < count; i++) {
        rd_kafka_resp_err_t error = descriptions[i].code;
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR || !descriptions[i].desc)
            continue;
        struct err err;
        assert_int_not_equal(broker_error_set(&err, error, "try"), 0);
        assert_int_not_equal(err.code, ERR_OK);
        assert_int_equal(strncmp(err.msg, "try: ", 5), 0);
        assert_non_null(strstr(err.msg, descriptions[i].name));
        bool retryable;
        assert_int_equal(broker_error_code(error, &retryable), err.code);
        assert_int_equal(retryable, err.retryable);
        retryable_count += retryable;
        if (err.code == ERR_INTERNAL)
            assert_false(retryable);
        if (err.code == ERR_UNAVAILABLE)
            assert_true(retryable);
    }
    assert_true(retryable_count > 20);
}

static void test_the_ones_that_are_acted_upon(void **state)
{
    (void)state;
    static const struct {
        rd_kafka_resp_err_t error;
        enum err_code code;
        bool retryable;
    } cases[] = {
        { RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, ERR_UNAVAILABLE, true },
        { RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS, ERR_CONFLICT, true },
        { RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, ERR_CONFLICT, false },
        { RD_KAFKA_RESP_ERR__QUEUE_FULL, ERR_LIMIT, true },
        { RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, ERR_LIMIT, false },
        { RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE, ERR_PRECONDITION, false },
        { RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, ERR_NOT_FOUND, true },
        { RD_KAFKA_RESP_ERR_UNKNOWN, ERR_INTERNAL, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool retryable;
        assert_int_equal(broker_error_code(cases[i].error, &retryable), cases[i].code);
        assert_int_equal(retryable, cases[i].retryable);
    }
}

static void test_the_longer_text_is_kept(void **state)
{
    (void)state;
    struct err err;
    /* A producer without transactions: an error object that librdkafka makes itself. */
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "log_level", "0", NULL, 0), RD_KAFKA_CONF_OK);
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, NULL, 0);
    assert_non_null(producer);
    rd_kafka_error_t *error = rd_kafka_begin_transaction(producer);
    assert_non_null(error);
    assert_int_not_equal(broker_error_take(&err, error, "begin"), 0);
    assert_int_equal(strncmp(err.msg, "begin: ", 7), 0);
    assert_non_null(strstr(err.msg, "transactional.id"));
    rd_kafka_destroy(producer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_has_a_meaning),
        cmocka_unit_test(test_the_ones_that_are_acted_upon),
        cmocka_unit_test(test_the_longer_text_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
