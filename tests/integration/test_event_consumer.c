/* Goal: the example consumer makes one effect of an event however often it comes, and is stopped by
 * no record. Method: the program as people run it, events of its own on the mock cluster: some
 * twice, one that is none; it is killed with -9, and a group that begins at the start reads it all
 * again. */
#include "support/check.h"
#include "support/kafka.h"
#include "support/postgres.h"
#include "support/process.h"
#include "support/wait.h"

#include <libpq-fe.h>
#include <saga/v1/event.pb-c.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TOPIC "events"
enum { LIMIT_MS = 60000 };

static struct test_postgres *postgres;
static struct test_kafka *kafka;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static PGconn *conn;

static void exec_file(const char *path)
{
    char sql[2048];
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t size = fread(sql, 1, sizeof sql - 1, file);
    assert_int_equal(fclose(file), 0);
    sql[size] = '\0';
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    PQclear(result);
}

static int setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    SETUP_OK(test_postgres_createdb(postgres, "reports", conninfo, &err), &err);
    SETUP_OK(test_kafka_mock_start(1, &kafka, &err), &err);
    SETUP_OK(test_kafka_topic_create(kafka, TOPIC, 2, NULL, &err), &err);
    conn = PQconnectdb(conninfo);
    exec_file(SOURCE_DIR "/workers/events/schema.sql");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    PQfinish(conn);
    kafka = test_kafka_free(kafka);
    postgres = test_postgres_free(postgres);
    return 0;
}

static int64_t count(const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    int64_t ret = PQntuples(result) ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    PQclear(result);
    return ret;
}

static void put(int number, Saga__V1__SagaEvent__Kind kind, Saga__V1__SagaState saga_state)
{
    struct err err;
    static char definition[] = "pay";
    char id[64];
    uint8_t value[256];
    Saga__V1__SagaEvent event = SAGA__V1__SAGA_EVENT__INIT;
    (void)snprintf(id, sizeof id, "01a22e68-0000-7000-8000-%012d/%d/%d", number, (int)kind, 2);
    event.id = id;
    event.kind = kind;
    event.definition = definition;
    event.state = saga_state;
    assert_true(saga__v1__saga_event__get_packed_size(&event) <= sizeof value);
    const struct test_kafka_record record = {
        .partition = number % 2,
        .key = id,
        .key_size = 8,
        .value = value,
        .value_size = saga__v1__saga_event__pack(&event, value),
    };
    ASSERT_OK(test_kafka_produce(kafka, TOPIC, &record, 1, &err), &err);
}

static void put_held(const char *handler, int version)
{
    struct err err;
    char id[64];
    uint8_t value[256];
    Saga__V1__SagaEvent event = SAGA__V1__SAGA_EVENT__INIT;
    Saga__V1__HandlerEvent held = SAGA__V1__HANDLER_EVENT__INIT;
    (void)snprintf(id, sizeof id, "01a22e68-0000-4000-8000-000000000000/%d/3", version);
    event.id = id;
    event.kind = SAGA__V1__SAGA_EVENT__KIND__KIND_HANDLER;
    event.handler = &held;
    held.handler = (char *)(uintptr_t)handler; /* packing only reads */
    held.version = version;
    held.change = SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_HELD;
    assert_true(saga__v1__saga_event__get_packed_size(&event) <= sizeof value);
    const struct test_kafka_record record = {
        .key = handler,
        .key_size = strlen(handler),
        .value = value,
        .value_size = saga__v1__saga_event__pack(&event, value),
    };
    ASSERT_OK(test_kafka_produce(kafka, TOPIC, &record, 1, &err), &err);
}

static struct test_process *consumer(const char *group)
{
    struct err err;
    struct test_process *process;
    const char *const argv[] = { EVENT_CONSUMER,
                                 "--brokers",
                                 test_kafka_bootstrap(kafka),
                                 "--topic",
                                 TOPIC,
                                 "--group",
                                 group,
                                 "--database",
                                 conninfo,
                                 NULL };
    ASSERT_OK(test_process_run(argv, &process, &err), &err);
    return process;
}

static bool handled(void *ctx)
{
    return count("SELECT count(*) FROM handled_event") == *(int64_t *)ctx;
}

static void await_handled(int64_t expected)
{
    if (!wait_until(handled, &expected, LIMIT_MS))
        fail_msg("%d events were handled", (int)count("SELECT count(*) FROM handled_event"));
}

static void expect_ended(int64_t succeeded, int64_t compensated)
{
    assert_int_equal(count("SELECT sagas FROM ended WHERE state = 'SAGA_STATE_SUCCEEDED'"),
                     succeeded);
    assert_int_equal(count("SELECT sagas FROM ended WHERE state = 'SAGA_STATE_COMPENSATED'"),
                     compensated);
}

static void test_an_event_has_one_effect_however_often_it_comes(void **state)
{
    (void)state;
    struct err err;
    int status;
    const Saga__V1__SagaEvent__Kind ended = SAGA__V1__SAGA_EVENT__KIND__KIND_ENDED;
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 4; i++)
            put(i, ended, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
        put(9, SAGA__V1__SAGA_EVENT__KIND__KIND_STARTED, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
        put(10, (Saga__V1__SagaEvent__Kind)99, SAGA__V1__SAGA_STATE__SAGA_STATE_UNSPECIFIED);
        put_held("risk", 1);
        put_held("risk", 3);
        ASSERT_OK(test_kafka_put(kafka, TOPIC, again, "k", "\xff no event", &err), &err);
    }
    struct test_process *first = consumer("reports");
    await_handled(8);
    expect_ended(4, 0);
    test_process_kill(first); /* perhaps with a record that was handled and not committed */
    first = test_process_free(first);
    put(20, ended, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED);
    struct test_process *second = consumer("from-the-start");
    await_handled(9);
    put(21, ended, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED);
    await_handled(10); /* behind all that is read again in its partition */
    put(22, ended, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED);
    await_handled(11);
    expect_ended(4, 3);
    assert_int_equal(count("SELECT times FROM handler_changed WHERE handler = 'risk'"
                           " AND change = 'CHANGE_HELD'"),
                     2);
    ASSERT_OK(test_process_wait_output(second, "is no event: passed over", LIMIT_MS, NULL, 0, &err),
              &err);
    ASSERT_OK(test_process_signal(second, SIGTERM, &err), &err);
    ASSERT_OK(test_process_wait(second, LIMIT_MS, &status, &err), &err);
    assert_int_equal(status, 0);
    second = test_process_free(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_event_has_one_effect_however_often_it_comes),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
