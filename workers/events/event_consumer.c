/* An example: reads saga.v1.SagaEvent from the outbox's topic, and handles each event once however
 * often it comes. Its effects are a count for each (definition, state) in which sagas ended, and
 * one for each (handler, change) of what was done to handlers. One thread; ends with 0 on SIGTERM,
 * with 1 when database or Kafka fail for good. */
#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>
#include <saga/v1/event.pb-c.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POLL_MS = 200, TRIES = 60, TRY_AGAIN_S = 1 };

static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
    (void)number;
    stopping = 1;
}

/* The id first; the effect comes FROM the row that was inserted, in the same transaction. */
#define HANDLED                                                                                    \
    "WITH h AS (INSERT INTO handled_event (event_id) VALUES ($1) ON CONFLICT DO NOTHING"           \
    " RETURNING 1)"
static const char ended_sql[] =
    HANDLED " INSERT INTO ended (definition, state, sagas) SELECT $2, $3, 1 FROM h"
            " ON CONFLICT (definition, state) DO UPDATE SET sagas = ended.sagas + 1";
static const char handler_sql[] =
    HANDLED " INSERT INTO handler_changed (handler, change, times) SELECT $2, $3, 1 FROM h"
            " ON CONFLICT (handler, change) DO UPDATE SET times = handler_changed.times + 1";
/* Of no interest, as is each kind that a newer sagad may tell of. */
static const char other_sql[] = HANDLED " SELECT 1 FROM h";

static const char *word(const ProtobufCEnumDescriptor *words, int number)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(words, number);
    return value ? value->name : "";
}

/* False: it is not in the database, and not known to be wrong. */
static bool handle_once(PGconn *conn, const Saga__V1__SagaEvent *event)
{
    const Saga__V1__HandlerEvent *handler = event->handler;
    const char *sql = other_sql, *values[3] = { event->id };
    if (event->kind == SAGA__V1__SAGA_EVENT__KIND__KIND_ENDED) {
        sql = ended_sql;
        values[1] = event->definition;
        values[2] = word(&saga__v1__saga_state__descriptor, (int)event->state);
    } else if (handler) {
        sql = handler_sql;
        values[1] = handler->handler;
        values[2] = word(&saga__v1__handler_event__change__descriptor, (int)handler->change);
    }
    PGresult *result =
        PQexecParams(conn, sql, sql == other_sql ? 1 : 3, NULL, values, NULL, NULL, 0);
    bool done =
        PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
    if (!done)
        (void)fprintf(stderr, "event %s: %s", event->id, PQresultErrorMessage(result));
    PQclear(result);
    return done;
}

/* A statement whose answer was lost may have been carried out: it is run again, and the id tells.
 */
static bool handle(PGconn *conn, const Saga__V1__SagaEvent *event)
{
    for (int i = 0; i < TRIES && !stopping; i++) {
        if (handle_once(conn, event))
            return true;
        (void)sleep(TRY_AGAIN_S); /* a signal ends it */
        if (PQstatus(conn) != CONNECTION_OK)
            PQreset(conn);
    }
    return false;
}

/* False: it has to come again. */
static bool on_record(PGconn *conn, const rd_kafka_message_t *message)
{
    Saga__V1__SagaEvent *event = saga__v1__saga_event__unpack(NULL, message->len, message->payload);
    if (!event || !*event->id) {
        (void)fprintf(stderr, "%s/%d at %lld is no event: passed over\n",
                      rd_kafka_topic_name(message->rkt), (int)message->partition,
                      (long long)message->offset);
        if (event)
            saga__v1__saga_event__free_unpacked(event, NULL);
        return true;
    }
    bool done = handle(conn, event);
    saga__v1__saga_event__free_unpacked(event, NULL);
    return done;
}

static int read_events(rd_kafka_t *consumer, PGconn *conn)
{
    while (!stopping) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, POLL_MS);
        if (!message)
            continue;
        bool done = true;
        if (message->err)
            (void)fprintf(stderr, "kafka: %s\n", rd_kafka_message_errstr(message));
        else
            done = on_record(conn, message);
        if (done && !message->err) {
            rd_kafka_resp_err_t failed = rd_kafka_commit_message(consumer, message, 1);
            if (failed) /* it comes again, and is known then */
                (void)fprintf(stderr, "kafka: commit: %s\n", rd_kafka_err2str(failed));
        }
        rd_kafka_message_destroy(message);
        if (!done)
            return stopping ? 0 : 1;
    }
    return 0;
}

static rd_kafka_t *consumer_new(const char *brokers, const char *group)
{
    char text[256];
    const char *const settings[][2] = { { "bootstrap.servers", brokers },
                                        { "group.id", group },
                                        { "enable.auto.commit", "false" },
                                        { "auto.offset.reset", "earliest" } };
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof text) !=
            RD_KAFKA_CONF_OK) {
            (void)fprintf(stderr, "kafka: %s\n", text);
            rd_kafka_conf_destroy(conf);
            return NULL;
        }
    }
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!consumer) {
        (void)fprintf(stderr, "kafka: %s\n", text);
        rd_kafka_conf_destroy(conf);
    }
    return consumer;
}

static bool subscribe(rd_kafka_t *consumer, const char *topic)
{
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    (void)rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t failed = rd_kafka_subscribe(consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (failed)
        (void)fprintf(stderr, "kafka: subscribe: %s\n", rd_kafka_err2str(failed));
    return !failed;
}

static const char *argument(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    (void)fprintf(stderr,
                  "usage: event_consumer --brokers HOST:PORT --topic TOPIC --group GROUP"
                  " --database CONNINFO\n%s is missing\n",
                  name);
    exit(2);
}

int main(int argc, char **argv)
{
    const char *topic = argument(argc, argv, "--topic");
    const char *database = argument(argc, argv, "--database");
    const char *brokers = argument(argc, argv, "--brokers");
    const char *group = argument(argc, argv, "--group");
    const struct sigaction action = { .sa_handler = on_signal };
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0)
        return 1;
    PGconn *conn = PQconnectdb(database);
    if (PQstatus(conn) != CONNECTION_OK)
        (void)fprintf(stderr, "database: %s", PQerrorMessage(conn)); /* tried again below */
    rd_kafka_t *consumer = consumer_new(brokers, group);
    int rc = 1;
    if (consumer) {
        (void)rd_kafka_poll_set_consumer(consumer); /* fails for producers alone */
        if (subscribe(consumer, topic)) {
            (void)puts("reading");
            (void)fflush(stdout);
            rc = read_events(consumer, conn);
        }
        (void)rd_kafka_consumer_close(consumer); /* whatever it says, it is destroyed now */
        rd_kafka_destroy(consumer);
    }
    PQfinish(conn);
    return rc;
}
