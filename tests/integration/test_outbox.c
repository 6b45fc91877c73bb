/* Goal: what was committed is published, all of it, in each saga's order, whatever happens to
 * brokers, to the database, to a relay; and what cannot be published holds up its own saga alone.
 * Method: the relay in this process, sagas written by the store on PostgreSQL, librdkafka's mock
 * cluster; then the topic, read from its start, beside the journal. Commits come late at random by
 * a trigger that sleeps when they are carried out. */
#include "store_fixture.h"

#include "support/outbox_check.h"
#include "support/proof.h"
#include "support/wait.h"

#include "base/rng.h"
#include "kafka/outbox.h"

#include <saga/v1/event.pb-c.h>
#include <stdio.h>

#define TOPIC "events"
enum { LIMIT_MS = 60000, PRODUCE_KEY = 0 };

static struct test_postgres *postgres;
static struct test_kafka *kafka;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store *store;
static PGconn *watch;
static struct rng rng;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "relay", conninfo);
    store = fixture_store(conninfo);
    watch = fixture_connect(conninfo);
    fixture_publish(PUBLISH_TRANSITIONS);
    rng_seed(&rng, proof_seed());
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    PQfinish(watch);
    store = store_pg_free(store);
    postgres = test_postgres_free(postgres);
    return 0;
}

/* A cluster and a database without anything. */
static int each_setup(void **state)
{
    (void)state;
    struct err err;
    fixture_exec(watch, "TRUNCATE outbox, journal, saga, saga_key, outbox_relay, handler,"
                        " handler_event, handler_hold;"
                        "UPDATE outbox_slice SET instance = NULL, until = '-infinity'");
    SETUP_OK(test_kafka_mock_start(1, &kafka, &err), &err);
    SETUP_OK(test_kafka_topic_create(kafka, TOPIC, 4, NULL, &err), &err);
    return 0;
}

enum { RELAYS_MAX = 4 };
static struct outbox *relays[RELAYS_MAX]; /* those that run: also a failed test's end */

static struct outbox *relay_with(const struct kafka_properties *properties)
{
    struct err err;
    size_t i = 0;
    char node[16];
    while (relays[i])
        i++;
    assert_true(i < RELAYS_MAX);
    (void)snprintf(node, sizeof node, "node-%zu", i);
    const struct outbox_options options = { .conninfo = conninfo,
                                            .node = node,
                                            .brokers = test_kafka_bootstrap(kafka),
                                            .topic = TOPIC,
                                            .properties = properties };
    ASSERT_OK(outbox_start(&options, &relays[i], &err), &err);
    return relays[i];
}

/* With one batch of a partition on its way at a time. librdkafka counts on brokers that refuse a
 * batch when the one before it has failed, and takes that as stored if they do not: the mock does
 * not, so where it answers with errors there must be none behind. */
static struct outbox *relay_one_batch(void)
{
    struct err err;
    struct kafka_properties properties = { 0 };
    ASSERT_OK(kafka_properties_add(&properties, "linger.ms", "150", 0, &err), &err);
    struct outbox *outbox = relay_with(&properties);
    kafka_properties_done(&properties);
    return outbox;
}

static void relay_stop(struct outbox *outbox, int64_t grace_ms)
{
    for (size_t i = 0; i < RELAYS_MAX; i++)
        if (relays[i] == outbox)
            relays[i] = outbox_stop(outbox, grace_ms);
}

static int each_teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < RELAYS_MAX; i++)
        relays[i] = outbox_stop(relays[i], 0);
    kafka = test_kafka_free(kafka);
    return 0;
}

static struct outbox *relay(void)
{
    return relay_with(NULL);
}

static struct outbox_counters counters(const struct outbox *outbox)
{
    struct outbox_counters ret;
    outbox_counters(outbox, &ret);
    return ret;
}

static bool outbox_is_empty(void *ctx)
{
    (void)ctx;
    return fixture_count(watch, "SELECT count(*) FROM outbox") == 0;
}

static void await_empty(void)
{
    if (!wait_until(outbox_is_empty, NULL, LIMIT_MS))
        fail_msg("%d events wait", (int)fixture_count(watch, "SELECT count(*) FROM outbox"));
}

/* --- sagas ------------------------------------------------------------------------------------ */

/* The next transition of a saga that ends after three steps; false: it has ended. */
static bool next_transition(struct copy *copy)
{
    if (saga_row(copy->saga)->ended_at_ms)
        return false;
    bool leased = saga_last_seq(copy->saga) > 0 &&
                  saga_entry(copy->saga, saga_last_seq(copy->saga))->outcome == OUTCOME_NONE;
    if (!leased) {
        copy_grant(copy, "w/1");
        return true;
    }
    bool retry = rng_below(&rng, 8) == 0;
    copy_report(copy, retry ? OUTCOME_RETRY : OUTCOME_DONE, retry ? NULL : "out");
    struct grantable what;
    if (!retry && saga_grantable(copy->saga, clock_wall_ms(&clock_system), &what, 1))
        copy_grant(copy, "w/1");
    return true;
}

/* `count` sagas "<prefix>N" to their end, in batches of all of them. */
static void run_sagas(const char *prefix, int count)
{
    enum { MANY = 200 };
    static struct copy copies[MANY];
    assert_true(count <= MANY);
    for (int i = 0; i < count; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "%s%d", prefix, i);
        copy_new(&copies[i], id, "w/1");
    }
    for (bool goes_on = true; goes_on;) {
        struct store_op *batch = NULL, **last = &batch;
        for (int i = 0; i < count; i++) {
            if (copies[i].op.kind == STORE_START && !copies[i].op.now_ms) {
                *last = &copies[i].op;
                last = &copies[i].op.next;
            } else if (next_transition(&copies[i])) {
                *last = &copies[i].op;
                last = &copies[i].op.next;
            }
        }
        goes_on = batch != NULL;
        if (batch)
            fixture_run(store, batch);
        for (struct store_op *op = batch; op; op = op->next)
            copy_expect(CONTAINER(op, struct copy, op), STORE_OK);
    }
    for (int i = 0; i < count; i++)
        copy_done(&copies[i]);
}

static void expect_published(void)
{
    (void)outbox_check_read(kafka, TOPIC, watch);
    outbox_check_all(watch);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void on_parked(void *ctx, const struct test_kafka_record *record)
{
    int *seen = ctx;
    Saga__V1__SagaEvent *event =
        saga__v1__saga_event__unpack(NULL, record->value_size, record->value);
    assert_non_null(event);
    assert_string_equal(outbox_check_header(record, "ce_specversion"), "1.0");
    assert_string_equal(outbox_check_header(record, "ce_source"), "/sagad/test/pay");
    assert_string_equal(outbox_check_header(record, "ce_subject"), "parked");
    assert_string_equal(outbox_check_header(record, "content-type"), "application/protobuf");
    static const char *const types[] = {
        "saga.v1.started", "saga.v1.attempt_ended", "saga.v1.attempt_ended",
        "saga.v1.decided", "saga.v1.attempt_ended", "saga.v1.parked",
    };
    assert_true(*seen < (int)ARRAY_LEN(types));
    assert_string_equal(outbox_check_header(record, "ce_type"), types[*seen]);
    assert_string_equal(event->namespace_, "test");
    assert_int_equal(event->revision, 1);
    assert_int_equal(event->n_labels, 1);
    assert_string_equal(event->labels[0]->value, "blue");
    assert_int_equal(record->timestamp_ms,
                     event->time->seconds * 1000 + event->time->nanos / 1000000);
    switch ((*seen)++) {
    case 0:
        assert_int_equal(event->state, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
        assert_null(event->entry);
        break;
    case 1:
        assert_string_equal(event->entry->step, "debit");
        assert_int_equal(event->entry->outcome, SAGA__V1__OUTCOME__OUTCOME_DONE);
        assert_int_equal(event->entry->output.len, 0); /* payloads stay */
        assert_null(event->entry->lease_until_time);
        break;
    case 2:
        assert_int_equal(event->entry->outcome, SAGA__V1__OUTCOME__OUTCOME_REJECTED);
        assert_string_equal(event->entry->error->code, "CODE");
        break;
    case 3:
        assert_string_equal(event->entry->reason, "REFUSED");
        assert_int_equal(event->state, SAGA__V1__SAGA_STATE__SAGA_STATE_UNSPECIFIED);
        break;
    case 5:
        assert_string_equal(event->entry->reason, "COMPENSATION_FAILED");
        assert_int_equal(event->state, SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED);
        break;
    default:
        break;
    }
    saga__v1__saga_event__free_unpacked(event, NULL);
}

static void test_an_event_says_who_and_what(void **state)
{
    (void)state;
    struct err err;
    struct copy copy;
    struct outbox *outbox = relay();
    copy_new(&copy, "parked", "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_grant(&copy, "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_REJECTED, NULL);
    copy_grant(&copy, "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_REJECTED, NULL);
    copy_write(&copy, store, STORE_OK);
    copy_done(&copy);
    await_empty();
    int seen = 0;
    ASSERT_OK(test_kafka_read(kafka, TOPIC, on_parked, &seen, &err), &err);
    assert_int_equal(seen, 6);
    assert_int_equal(counters(outbox).published, 6);
    relay_stop(outbox, 5000);
    expect_published();
}

static void on_handler(void *ctx, const struct test_kafka_record *record)
{
    static const Saga__V1__HandlerEvent__Change changes[] = {
        SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_HELD,
        SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_RELEASED,
        SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_DRAINED,
    };
    int *seen = ctx;
    Saga__V1__SagaEvent *event =
        saga__v1__saga_event__unpack(NULL, record->value_size, record->value);
    assert_non_null(event);
    assert_non_null(event->handler);
    assert_string_equal(outbox_check_header(record, "ce_subject"), event->handler->handler);
    assert_string_equal(outbox_check_header(record, "ce_source"), "/sagad");
    if (strcmp(event->handler->handler, "bank") == 0) {
        assert_true(*seen < (int)ARRAY_LEN(changes));
        assert_int_equal(event->handler->change, changes[*seen]);
        assert_int_equal(event->handler->version, ++*seen);
        assert_string_equal(event->handler->actor, "anna");
    }
    saga__v1__saga_event__free_unpacked(event, NULL);
}

static bool there_was_a_relay(void *ctx)
{
    (void)ctx;
    return fixture_count(watch, "SELECT count(*) FROM outbox_slice WHERE until > '-infinity'") > 0;
}

static void test_what_becomes_of_handlers_is_published_in_its_order(void **state)
{
    (void)state;
    enum { OTHERS = 40 };
    static const enum handler_change_kind kinds[] = { HANDLER_HOLD, HANDLER_RELEASE,
                                                      HANDLER_DRAINED };
    struct err err;
    struct outbox *outbox = relay();
    struct handler handler;
    int seen = 0;
    assert_true(wait_until(there_was_a_relay, NULL, LIMIT_MS));
    for (int i = 0; i <= OTHERS; i++) {
        char name[16] = "bank";
        if (i)
            (void)snprintf(name, sizeof name, "h%d", i);
        handler_init(&handler, name);
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            const struct handler_change change = {
                .kind = kinds[k], .actor = "anna", .reason = "why", .rate_milli = 10000
            };
            fixture_handler(store, &handler, &change);
        }
    }
    await_empty();
    assert_int_equal(counters(outbox).published, (OTHERS + 1) * ARRAY_LEN(kinds));
    relay_stop(outbox, 5000);
    ASSERT_OK(test_kafka_read(kafka, TOPIC, on_handler, &seen, &err), &err);
    assert_int_equal(seen, ARRAY_LEN(kinds));
    expect_published();
    assert_int_equal(outbox_check_repeated(watch), 0);
}

static void test_what_is_committed_is_published_once(void **state)
{
    (void)state;
    struct outbox *outbox = relay();
    run_sagas("many", 200);
    await_empty();
    relay_stop(outbox, 5000);
    expect_published();
    assert_int_equal(outbox_check_repeated(watch), 0);
}

/* O1: what is written first may be committed last. Many writers, each commit late at random. */
static void test_o1_commits_that_come_late_are_not_passed_over(void **state)
{
    (void)state;
    enum { WRITERS = 16, OF_EACH = 6, DELAYS_MS = 60 };
    static struct store *stores[WRITERS];
    static struct copy copies[WRITERS][OF_EACH];
    char sql[400];
    (void)snprintf(sql, sizeof sql,
                   "CREATE OR REPLACE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                   " PERFORM pg_sleep(random() * random() * %d / 1000.0); RETURN NULL; END $$;"
                   "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON outbox DEFERRABLE INITIALLY"
                   " DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
                   DELAYS_MS);
    fixture_exec(watch, sql);
    struct outbox *outbox = relay();
    for (int w = 0; w < WRITERS; w++) {
        char node[16];
        const struct uuid instance = { { (uint8_t)w, 1 } };
        (void)snprintf(node, sizeof node, "writer-%d", w);
        stores[w] = fixture_store_of(conninfo, node, &instance);
        for (int i = 0; i < OF_EACH; i++) {
            char id[32];
            (void)snprintf(id, sizeof id, "late-%d-%d", w, i);
            copy_new(&copies[w][i], id, "w/1");
        }
    }
    /* one transaction of each writer is under way at the same time as all others */
    int rounds = test_is_full_size() ? 60 : 12;
    for (int round = 0; round < rounds; round++) {
        struct copy *written[WRITERS] = { NULL };
        for (int w = 0; w < WRITERS; w++) {
            struct copy *copy = &copies[w][rng_below(&rng, OF_EACH)];
            bool starts = copy->op.kind == STORE_START && !copy->op.now_ms;
            if (!starts && !next_transition(copy))
                continue;
            copy->op.next = NULL;
            written[w] = copy;
            stores[w]->ops->submit(stores[w], &copy->op);
        }
        for (int w = 0; w < WRITERS; w++) {
            if (!written[w])
                continue;
            fixture_pump(stores[w]);
            copy_expect(written[w], STORE_OK);
        }
    }
    await_empty();
    fixture_exec(watch, "DROP TRIGGER late ON outbox");
    relay_stop(outbox, 5000);
    expect_published();
    assert_int_equal(outbox_check_repeated(watch), 0);
    assert_true(fixture_count(watch, "SELECT count(*) FROM t") > WRITERS);
    proof_fault("outbox: commits that come late", rounds * WRITERS);
    for (int w = 0; w < WRITERS; w++) {
        for (int i = 0; i < OF_EACH; i++)
            copy_done(&copies[w][i]);
        stores[w] = store_pg_free(stores[w]);
    }
}

static bool says_why(void *ctx)
{
    (void)ctx;
    return fixture_count(watch, "SELECT count(*) FROM outbox_relay WHERE problem IS NOT NULL") == 1;
}

static void test_a_broker_that_is_away_delays_and_loses_nothing(void **state)
{
    (void)state;
    struct outbox *outbox = relay();
    run_sagas("before", 20);
    await_empty();
    assert_int_equal(rd_kafka_mock_broker_set_down(test_kafka_mock(kafka), 1), 0);
    run_sagas("meanwhile", 100);
    assert_true(wait_until(says_why, NULL, LIMIT_MS));
    assert_int_equal(counters(outbox).published,
                     fixture_count(watch, "SELECT (SELECT count(*) FROM saga) * 2 +"
                                          " (SELECT count(*) FROM journal) -"
                                          " (SELECT count(*) FROM outbox)"));
    assert_int_equal(rd_kafka_mock_broker_set_up(test_kafka_mock(kafka), 1), 0);
    await_empty();
    relay_stop(outbox, 5000);
    expect_published();
    assert_int_equal(outbox_check_repeated(watch), 0);
    proof_fault("outbox: no broker", 1);
}

static void test_a_stop_without_a_broker_is_quick_and_loses_nothing(void **state)
{
    (void)state;
    struct outbox *outbox = relay();
    assert_int_equal(rd_kafka_mock_broker_set_down(test_kafka_mock(kafka), 1), 0);
    run_sagas("stuck", 20);
    assert_true(wait_until(says_why, NULL, LIMIT_MS));
    int64_t before_ms = clock_mono_ms(&clock_system);
    relay_stop(outbox, 2000);
    assert_in_range(clock_mono_ms(&clock_system) - before_ms, 0, 4000);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox_slice"
                                          " WHERE instance IS NOT NULL"),
                     0);
    assert_int_equal(rd_kafka_mock_broker_set_up(test_kafka_mock(kafka), 1), 0);
    outbox = relay();
    await_empty();
    relay_stop(outbox, 5000);
    expect_published();
}

/* O3: two at a time, one of which ends in between. */
static void test_o3_two_relays_publish_each_event_once(void **state)
{
    (void)state;
    struct outbox *one = relay(), *two = relay();
    run_sagas("a", 100);
    await_empty();
    run_sagas("b", 100);
    relay_stop(one, 5000);
    run_sagas("c", 100);
    one = relay();
    run_sagas("d", 100);
    await_empty();
    assert_true(counters(one).published + counters(two).published > 0);
    relay_stop(one, 5000);
    relay_stop(two, 5000);
    expect_published();
    assert_int_equal(outbox_check_repeated(watch), 0);
}

static bool both_have_slices(void *ctx)
{
    (void)ctx;
    return fixture_count(watch,
                         "SELECT count(*) FROM (SELECT instance FROM outbox_slice"
                         " WHERE until > now() GROUP BY instance HAVING count(*) = 8) n") == 2;
}

static void test_a_relay_that_comes_later_gets_its_share(void **state)
{
    (void)state;
    struct outbox *one = relay();
    run_sagas("a", 50);
    struct outbox *two = relay();
    assert_true(wait_until(both_have_slices, NULL, LIMIT_MS));
    run_sagas("b", 100);
    await_empty();
    assert_true(counters(one).published > 0);
    assert_true(counters(two).published > 0);
    relay_stop(one, 5000);
    relay_stop(two, 5000);
    expect_published();
    assert_int_equal(outbox_check_repeated(watch), 0);
}

static bool one_waits_alone(void *ctx)
{
    (void)ctx;
    return fixture_count(watch, "SELECT count(*) FROM outbox WHERE failures > 0") == 1 &&
           fixture_count(watch, "SELECT count(DISTINCT saga_uid) FROM outbox") == 1;
}

/* A report with so long a text that its event is larger than what may be sent. */
static void test_an_event_that_cannot_be_published_holds_up_its_saga_alone(void **state)
{
    (void)state;
    struct err err;
    struct kafka_properties small = { 0 };
    struct copy copy;
    char text[1001], sql[1200];
    ASSERT_OK(kafka_properties_add(&small, "message.max.bytes", "1000", 0, &err), &err);
    copy_new(&copy, "large", "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_RETRY, NULL);
    copy_write(&copy, store, STORE_OK);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)snprintf(sql, sizeof sql, "UPDATE journal SET error_message = '%s'", text);
    fixture_exec(watch, sql);
    struct outbox *outbox = relay_with(&small);
    copy_grant(&copy, "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_write(&copy, store, STORE_OK);
    run_sagas("small", 50);
    assert_true(wait_until(one_waits_alone, NULL, LIMIT_MS));
    assert_true(counters(outbox).refused >= 1);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox WHERE error LIKE"
                                          " '%MSG_SIZE_TOO_LARGE%'"),
                     1);
    relay_stop(outbox, 5000);
    /* it can: the rest follows, in order */
    fixture_exec(watch, "UPDATE outbox SET failed_at = now() - interval '1 h' WHERE failures > 0");
    outbox = relay();
    await_empty();
    relay_stop(outbox, 5000);
    expect_published();
    kafka_properties_done(&small);
    copy_done(&copy);
}

/* The broker refuses a batch, and it is not known for whose sake: each is sent again alone. */
static void test_a_batch_that_is_refused_is_sent_one_by_one(void **state)
{
    (void)state;
    run_sagas("batch", 60);
    rd_kafka_mock_push_request_errors(test_kafka_mock(kafka), PRODUCE_KEY, 2,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    struct outbox *outbox = relay_one_batch();
    await_empty();
    assert_int_equal(counters(outbox).refused, 0);
    relay_stop(outbox, 5000);
    expect_published();
    proof_fault("outbox: a batch is refused", 1);
}

/* Another producer takes the place of one that does nothing any more. */
static void test_a_fatal_error_makes_a_new_producer(void **state)
{
    (void)state;
    rd_kafka_mock_push_request_errors(test_kafka_mock(kafka), PRODUCE_KEY, 1,
                                      RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    struct outbox *outbox = relay_one_batch();
    run_sagas("fatal", 30);
    await_empty();
    assert_true(counters(outbox).producers > 1);
    relay_stop(outbox, 5000);
    expect_published();
    proof_fault("outbox: fatal error of the producer", 1);
}

static void test_errors_of_brokers_delay_and_lose_nothing(void **state)
{
    (void)state;
    struct outbox *outbox = relay_one_batch();
    for (int i = 0; i < 4; i++) {
        char prefix[16];
        (void)snprintf(prefix, sizeof prefix, "err%d-", i);
        rd_kafka_mock_push_request_errors(
            test_kafka_mock(kafka), PRODUCE_KEY, 5, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR__TRANSPORT,
            RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE);
        run_sagas(prefix, 20);
        await_empty();
    }
    relay_stop(outbox, 5000);
    expect_published();
    proof_fault("outbox: errors of brokers", 20);
}

static void test_sessions_that_are_ended_lose_nothing(void **state)
{
    (void)state;
    struct outbox *outbox = relay();
    for (int i = 0; i < 6; i++) {
        char prefix[16];
        (void)snprintf(prefix, sizeof prefix, "cut%d-", i);
        run_sagas(prefix, 20);
        fixture_exec(watch, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                            " WHERE application_name = 'sagad outbox'");
    }
    await_empty();
    relay_stop(outbox, 5000);
    expect_published();
    proof_fault("outbox: session of the relay ended", 6);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, each_setup, each_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_an_event_says_who_and_what),
        TEST(test_what_becomes_of_handlers_is_published_in_its_order),
        TEST(test_what_is_committed_is_published_once),
        TEST(test_o1_commits_that_come_late_are_not_passed_over),
        TEST(test_a_broker_that_is_away_delays_and_loses_nothing),
        TEST(test_a_stop_without_a_broker_is_quick_and_loses_nothing),
        TEST(test_o3_two_relays_publish_each_event_once),
        TEST(test_a_relay_that_comes_later_gets_its_share),
        TEST(test_an_event_that_cannot_be_published_holds_up_its_saga_alone),
        TEST(test_a_batch_that_is_refused_is_sent_one_by_one),
        TEST(test_a_fatal_error_makes_a_new_producer),
        TEST(test_errors_of_brokers_delay_and_lose_nothing),
        TEST(test_sessions_that_are_ended_lose_nothing),
    };
    return proof_end(cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0);
}
