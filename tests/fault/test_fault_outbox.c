/* A sagad that dies between the topic's word that it has events and their removal. Goal: nothing is
 * lost, and what leaves twice is the same event under the same id. Method: sagad kills itself with
 * -9 exactly there, under load; it is started again; all that the topic has, beside the journal. */
#include "page.h"
#include "support/outbox_check.h"
#include "support/proof.h"
#include "support/rig.h"
#include "support/scratch.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define TOPIC "events"
enum { DIE_MS = 30000, REST_MS = 60000, SAGAS = 40 };

static char page_variable[SCRATCH_PATH_SIZE + 32];
static const char *const server_env[] = { page_variable, NULL };
static struct rig rig = { .server_program = SAGAD_FAULT_BINARY, .server_env = server_env };
static struct page *page;
static struct test_kafka *kafka;

static int setup(void **state)
{
    (void)state;
    struct err err;
    char path[SCRATCH_PATH_SIZE];
    SETUP_OK(scratch_path("faults", path, &err), &err);
    (void)snprintf(page_variable, sizeof page_variable, FAULT_PAGE_ENV "=%s", path);
    if (!(page = page_map(path, true)))
        return -1;
    SETUP_OK(test_kafka_mock_start(1, &kafka, &err), &err);
    SETUP_OK(test_kafka_topic_create(kafka, TOPIC, 4, NULL, &err), &err);
    rig.server_args[0] = "--kafka-brokers";
    rig.server_args[1] = test_kafka_bootstrap(kafka);
    rig.server_args[2] = "--outbox-topic";
    rig.server_args[3] = TOPIC;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    int rc = rig_down(&rig);
    kafka = test_kafka_free(kafka);
    return rc;
}

static void die(const char *prefix, uint64_t n)
{
    struct err err;
    int status;
    page_arm(page, PAGE_BEFORE_OUTBOX_DELETE, n);
    rig_start_many(&rig, "told", prefix, SAGAS, "");
    ASSERT_OK(test_process_wait(rig.sagad, DIE_MS, &status, &err), &err);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    rig.sagad = test_process_free(rig.sagad);
    proof_fault("outbox: kill -9 before events are removed", 1);
    rig_server_start(&rig);
    rig_await_states(&rig, "told", prefix, "SUCCEEDED", SAGAS, REST_MS);
    rig_await(&rig, RIG_STORE, "0", REST_MS, "SELECT count(*) FROM outbox");
}

static void test_o3_a_relay_that_dies_repeats_the_same_events(void **state)
{
    (void)state;
    rig_define(&rig, "told", "publish=TRANSITIONS",
               "one: IDEMPOTENT | none | guarded\n"
               "two: IDEMPOTENT | none | guarded\n");
    (void)rig_worker(&rig, "w", "act:8");
    for (unsigned i = 0; i < (test_is_full_size() ? 10U : 2U); i++) {
        char prefix[16];
        (void)snprintf(prefix, sizeof prefix, "die%u-", i);
        die(prefix, 1 + i % 5); /* a relay that is quick has more to tell at a time, so not more */
    }
    PGconn *conn = rig_connect(&rig, RIG_STORE);
    (void)outbox_check_read(kafka, TOPIC, conn);
    outbox_check_all(conn);
    assert_true(outbox_check_repeated(conn) > 0); /* else it did not die where it should */
    PQfinish(conn);
    assert_int_equal(rig_check(&rig), 0);
}

/* Between the topic's word that it has the HELD and its removal: whoever holds the handler has
 * their answer, and nothing else is on its way. */
static void test_a_handlers_event_is_repeated_too_and_never_lost(void **state)
{
    (void)state;
    struct err err;
    int status;
    page_arm(page, PAGE_BEFORE_OUTBOX_DELETE, 1);
    rig_hold(&rig, "act");
    ASSERT_OK(test_process_wait(rig.sagad, DIE_MS, &status, &err), &err);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    rig.sagad = test_process_free(rig.sagad);
    proof_fault("outbox: kill -9 before a handler's event is removed", 1);
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM outbox WHERE handler = 'act'"), 1);
    rig_server_start(&rig);
    rig_release(&rig, "act");
    rig_await(&rig, RIG_STORE, "0", REST_MS, "SELECT count(*) FROM outbox");
    PGconn *conn = rig_connect(&rig, RIG_STORE);
    (void)outbox_check_read(kafka, TOPIC, conn);
    outbox_check_all(conn);
    assert_int_equal(outbox_check_count(conn, "SELECT count(*) FROM t WHERE part = 3 AND seq = 1"),
                     2);
    assert_int_equal(outbox_check_count(conn, "SELECT count(*) FROM t WHERE part = 3 AND seq = 2"),
                     1);
    PQfinish(conn);
    assert_int_equal(rig_check(&rig), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_o3_a_relay_that_dies_repeats_the_same_events),
        cmocka_unit_test(test_a_handlers_event_is_repeated_too_and_never_lost),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
