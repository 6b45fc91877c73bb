#include "support/kafka.h"

#include "base/mem.h"
#include "support/kafka_client.h"
#include "support/ports.h"
#include "support/process.h"
#include "support/scratch.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { SETTINGS_MAX = 24, CANNOT = 77, START_MS = 180000 };

struct test_kafka {
    char bootstrap[64];
    rd_kafka_t *client; /* NULL: not made yet */

    struct test_process *broker; /* of a real one; NULL while it is down */
    char directory[SCRATCH_PATH_SIZE], port[8], controller_port[8];
    const char *argv[SETTINGS_MAX + 8];

    rd_kafka_t *mock_handle; /* of the mock, which lives in it */
    rd_kafka_mock_cluster_t *mock;
};

static const char broker_sh[] = SOURCE_DIR "/tests/kafka/broker.sh";

/* --- the broker --- */

static int arguments_set(struct test_kafka *kafka, const char *const *settings, struct err *err)
{
    int port, controller_port;
    if (scratch_path("kafka", kafka->directory, err) || free_port(&port, err) ||
        free_port(&controller_port, err))
        return (int)err->code;
    (void)snprintf(kafka->port, sizeof kafka->port, "%d", port); /* all of them fit */
    (void)snprintf(kafka->controller_port, sizeof kafka->controller_port, "%d", controller_port);
    (void)snprintf(kafka->bootstrap, sizeof kafka->bootstrap, "127.0.0.1:%d", port);
    const char *const fixed[] = { "/bin/bash",      broker_sh,   "run",
                                  kafka->directory, kafka->port, kafka->controller_port };
    size_t count = 0;
    for (; count < ARRAY_LEN(fixed); count++)
        kafka->argv[count] = fixed[count];
    for (size_t i = 0; settings && settings[i]; i++) {
        if (count == ARRAY_LEN(kafka->argv) - 1)
            return err_set(err, ERR_LIMIT, "more than %d settings", SETTINGS_MAX);
        kafka->argv[count++] = settings[i];
    }
    return 0;
}

/* It said that none can be had, with the reason in its output. */
static bool cannot_be_had(struct test_kafka *kafka)
{
    int status;
    struct err err;
    if (test_process_running(kafka->broker) || test_process_wait(kafka->broker, 0, &status, &err) ||
        !WIFEXITED(status) || WEXITSTATUS(status) != CANNOT)
        return false;
    CLEANUP(mem_free_p) char *output = test_process_output(kafka->broker);
    print_message("%s", output ? output : "SKIPPED: no Kafka broker here\n");
    return true;
}

int test_kafka_restart(struct test_kafka *kafka, struct err *err)
{
    if (kafka->broker)
        return err_set(err, ERR_PRECONDITION, "the broker is running");
    const struct test_process_options options = { .name = "kafka", .argv = kafka->argv };
    if (test_process_start(&options, &kafka->broker, err))
        return (int)err->code;
    return test_process_wait_output(kafka->broker, "Kafka Server started", START_MS, NULL, 0, err);
}

int test_kafka_start(const char *const *settings, struct test_kafka **ret_kafka, struct err *err)
{
    struct test_kafka *kafka = mem_calloc(1, sizeof *kafka);
    if (!kafka)
        return err_set(err, ERR_NOMEM, "no memory for a broker");
    int rc = arguments_set(kafka, settings, err);
    if (rc == 0)
        rc = test_kafka_restart(kafka, err);
    if (rc == 0) {
        *ret_kafka = kafka;
        return 0;
    }
    if (kafka->broker && cannot_be_had(kafka)) {
        *ret_kafka = NULL;
        rc = 0;
    }
    (void)test_kafka_free(kafka); /* always NULL */
    return rc ? err_wrap(err, "throw-away kafka: ") : 0;
}

int test_kafka_mock_start(int brokers, struct test_kafka **ret_kafka, struct err *err)
{
    struct test_kafka *kafka = mem_calloc(1, sizeof *kafka);
    if (!kafka)
        return err_set(err, ERR_NOMEM, "no memory for a mock of Kafka");
    char message[200] = "";
    static const char *const none[] = { NULL };
    rd_kafka_conf_t *conf;
    if (kafka_client_conf(kafka, none, &conf, err)) {
        (void)test_kafka_free(kafka); /* always NULL */
        return (int)err->code;
    }
    kafka->mock_handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, message, sizeof message);
    if (!kafka->mock_handle)
        rd_kafka_conf_destroy(conf);
    else
        kafka->mock = rd_kafka_mock_cluster_new(kafka->mock_handle, brokers);
    if (!kafka->mock) {
        (void)test_kafka_free(kafka); /* always NULL */
        return err_set(err, ERR_INTERNAL, "mock of Kafka: %s", message);
    }
    (void)snprintf(kafka->bootstrap, sizeof kafka->bootstrap, "%s",
                   rd_kafka_mock_cluster_bootstraps(kafka->mock)); /* the first one is enough */
    kafka->bootstrap[strcspn(kafka->bootstrap, ",")] = '\0';
    *ret_kafka = kafka;
    return 0;
}

void test_kafka_kill(struct test_kafka *kafka)
{
    kafka->broker = test_process_free(kafka->broker);
    kafka_client_drop(kafka);
}

int test_kafka_stop(struct test_kafka *kafka, struct err *err)
{
    int status;
    if (test_kafka_signal(kafka, SIGTERM, err) ||
        test_process_wait(kafka->broker, TEST_KAFKA_LIMIT_MS, &status, err))
        return err_wrap(err, "stop the broker: ");
    test_kafka_kill(kafka);
    return 0;
}

int test_kafka_signal(struct test_kafka *kafka, int signal_number, struct err *err)
{
    if (!kafka->broker)
        return err_set(err, ERR_PRECONDITION, "the broker is down");
    return test_process_signal(kafka->broker, signal_number, err);
}

struct test_kafka *test_kafka_free(struct test_kafka *kafka)
{
    struct err err;
    if (!kafka)
        return NULL;
    test_kafka_kill(kafka);
    if (kafka->mock)
        rd_kafka_mock_cluster_destroy(kafka->mock);
    if (kafka->mock_handle)
        rd_kafka_destroy(kafka->mock_handle);
    if (kafka->directory[0] && !getenv("SAGAD_TEST_KEEP") && scratch_remove(kafka->directory, &err))
        (void)fprintf(stderr, "%s\n", err.msg); /* best effort; removed at exit */
    mem_free(kafka);
    return NULL;
}

const char *test_kafka_bootstrap(const struct test_kafka *kafka)
{
    return kafka->bootstrap;
}

rd_kafka_mock_cluster_t *test_kafka_mock(struct test_kafka *kafka)
{
    return kafka->mock;
}

/* --- the client --- */

int kafka_client_conf(const struct test_kafka *kafka, const char *const *settings,
                      rd_kafka_conf_t **ret_conf, struct err *err)
{
    /* A broker that goes away is what tests do: not a word of it. */
    static const char *const always[] = { "log_level=0", "reconnect.backoff.ms=50",
                                          "reconnect.backoff.max.ms=500",
                                          "message.max.bytes=16777216", NULL };
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char message[200] = "", name[64];
    rd_kafka_conf_res_t result =
        rd_kafka_conf_set(conf, "bootstrap.servers", kafka->bootstrap, message, sizeof message);
    const char *const *const lists[] = { always, settings };
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        for (size_t k = 0; lists[i][k] && result == RD_KAFKA_CONF_OK; k++) {
            const char *equals = strchr(lists[i][k], '=');
            (void)snprintf(name, sizeof name, "%.*s", (int)(equals - lists[i][k]),
                           lists[i][k]); /* one that is cut is refused */
            result = rd_kafka_conf_set(conf, name, equals + 1, message, sizeof message);
        }
    if (result != RD_KAFKA_CONF_OK) {
        rd_kafka_conf_destroy(conf);
        return err_set(err, ERR_INVALID, "%s", message);
    }
    *ret_conf = conf;
    return 0;
}

/* A record's own opaque is where to say that the broker did not take it (kafka_records.c). */
static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    (void)client, (void)opaque; /* librdkafka's signature */
    rd_kafka_resp_err_t *error = message->_private;
    if (message->err && error)
        *error = message->err;
}

int kafka_client(struct test_kafka *kafka, rd_kafka_t **ret_client, struct err *err)
{
    static const char *const settings[] = { "enable.idempotence=true", "linger.ms=2",
                                            "message.timeout.ms=120000", NULL };
    if (!kafka->client) {
        rd_kafka_conf_t *conf;
        char message[200];
        if (kafka_client_conf(kafka, settings, &conf, err))
            return (int)err->code;
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
        kafka->client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, message, sizeof message);
        if (!kafka->client) {
            rd_kafka_conf_destroy(conf);
            return err_set(err, ERR_INTERNAL, "%s", message);
        }
    }
    *ret_client = kafka->client;
    return 0;
}

void kafka_client_drop(struct test_kafka *kafka)
{
    if (kafka->client)
        rd_kafka_destroy(kafka->client);
    kafka->client = NULL;
}
