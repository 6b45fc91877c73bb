/* Goal: a cluster that does not answer in time costs an error and nothing else, whatever it says
 * later; all groups of a cluster are asked, and what was not asked is told. Method: questions to
 * the mock while its only broker is away, and then it is back; a real broker with many groups. */
#include "base/mem.h"
#include "kafka/admin.h"
#include "support/kafka.h"
#include "support/proof.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

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

/* --- many groups --------------------------------------------------------------------------------
 */

enum { GROUPS = 300, TURNS_MAX = 20, CALL_MS = 10000, TOTAL_MS = 60000 };

static struct test_kafka *real;

static rd_kafka_t *client_new(void)
{
    char message[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "bootstrap.servers", test_kafka_bootstrap(real),
                                       message, sizeof message),
                     RD_KAFKA_CONF_OK);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, message, sizeof message);
    assert_non_null(client);
    return client;
}

/* What became of the offset of the one group that was asked for. */
static rd_kafka_resp_err_t group_code(const rd_kafka_event_t *event)
{
    size_t count;
    rd_kafka_resp_err_t code = rd_kafka_event_error((rd_kafka_event_t *)event);
    if (code)
        return code;
    const rd_kafka_group_result_t **groups = rd_kafka_AlterConsumerGroupOffsets_result_groups(
        rd_kafka_event_AlterConsumerGroupOffsets_result((rd_kafka_event_t *)event), &count);
    assert_int_equal(count, 1);
    const rd_kafka_error_t *failed = rd_kafka_group_result_error(groups[0]);
    const rd_kafka_topic_partition_list_t *list = rd_kafka_group_result_partitions(groups[0]);
    return failed ? rd_kafka_error_code(failed) : list->elems[0].err;
}

/* Groups that have an offset on "elsewhere", all in one go. A coordinator that is new to its
 * partition refuses for a moment: then all once more. */
static void groups_make(rd_kafka_t *client)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, "elsewhere", 0)->offset = 0;
    rd_kafka_resp_err_t refused = RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int turn = 0; turn == 0 || refused; turn++) {
        if (turn == TURNS_MAX)
            fail_msg("a group gets no offset: %s", rd_kafka_err2str(refused));
        refused = RD_KAFKA_RESP_ERR_NO_ERROR;
        for (int i = 0; i < GROUPS; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "g-%d", i);
            rd_kafka_AlterConsumerGroupOffsets_t *change =
                rd_kafka_AlterConsumerGroupOffsets_new(name, list);
            rd_kafka_AlterConsumerGroupOffsets(client, &change, 1, NULL, queue);
            rd_kafka_AlterConsumerGroupOffsets_destroy(change);
        }
        for (int i = 0; i < GROUPS; i++) {
            rd_kafka_event_t *event = rd_kafka_queue_poll(queue, TEST_KAFKA_LIMIT_MS);
            assert_non_null(event);
            rd_kafka_resp_err_t code = group_code(event);
            refused = code ? code : refused;
            rd_kafka_event_destroy(event);
        }
        if (refused)
            print_message("a group was refused: %s\n", rd_kafka_err2name(refused));
    }
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_queue_destroy(queue);
}

static int find(rd_kafka_t *client, int total_ms, const atomic_bool *ends, char ret[64],
                struct err *err)
{
    const struct admin_limits limits = { .call_ms = CALL_MS, .total_ms = total_ms, .ends = ends };
    return admin_group_of_topic(client, "wanted", "sagad-wanted", 2, &limits, ret, 64, err);
}

static void test_one_of_many_groups_is_found_and_a_limit_is_told(void **state)
{
    (void)state;
    struct err err;
    char group[64], expected[80];
    const atomic_bool ends = true;
    ASSERT_OK(test_kafka_start(NULL, &real, &err), &err);
    KAFKA_OR_SKIP(real);
    ASSERT_OK(test_kafka_topic_create(real, "elsewhere", 1, NULL, &err), &err);
    ASSERT_OK(test_kafka_topic_create(real, "wanted", 2, NULL, &err), &err);
    rd_kafka_t *client = client_new();
    groups_make(client);
    ASSERT_OK(find(client, TOTAL_MS, NULL, group, &err), &err);
    assert_string_equal(group, "");
    (void)snprintf(expected, sizeof expected, "only 0 of %d groups have told", GROUPS);
    for (int i = 0; i < 2; i++) { /* no time is left; nobody waits any more */
        assert_int_equal(find(client, i ? TOTAL_MS : 0, i ? &ends : NULL, group, &err),
                         ERR_UNAVAILABLE);
        assert_string_equal(err.reason, "GROUPS_UNKNOWN");
        if (!strstr(err.msg, expected))
            fail_msg("\"%s\" without \"%s\"", err.msg, expected);
        assert_true(err.retryable);
    }
    ASSERT_OK(test_kafka_group_offset_set(real, "g-250", "wanted", 1, 0, &err), &err);
    ASSERT_OK(find(client, TOTAL_MS, NULL, group, &err), &err);
    assert_string_equal(group, "g-250");
    ASSERT_OK(test_kafka_group_offset_set(real, "sagad-wanted", "wanted", 0, 0, &err), &err);
    ASSERT_OK(find(client, TOTAL_MS, NULL, group, &err), &err);
    assert_string_equal(group, "sagad-wanted"); /* the rule's own, before any other */
    rd_kafka_destroy(client);
    real = test_kafka_free(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p8_a_group_asked_about_while_the_broker_is_away),
        cmocka_unit_test(test_one_of_many_groups_is_found_and_a_limit_is_told),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
