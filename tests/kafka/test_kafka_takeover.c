/* Goal: orchestrator/kafka/TAKEOVER.md holds as it is written: a topic goes from a consumer to
 * sagad, a part of its keys first, then all of it from a consumer that dies in mid-step, and back,
 * and forward again, and each settlement is done once. Method: the page is played step by step with
 * sagactl, the demo's old consumer, worker, bank and risk service. Nothing there hides a second
 * call: risk keeps no keys, and its own log is the judge beside the bank's tables. */
#include "definitions/sets.h"
#include "kafka/record.h"
#include "support/proof.h"
#include "support/sagactl.h"
#include "support/scratch.h"
#include "support/wait.h"
#include "world.h"

#include <demo/settlement.pb-c.h>
#include <stdio.h>
#include <string.h>

enum {
    PARTITIONS = 3,
    CANARY = 5,
    BATCH = 12, /* of the old consumer, which commits when it is full, or 3 s after the last record
                 */
    RECORDS_MAX = 200,
    ACCOUNTS = 50,
    START_MS = 30000,
    WAIT_MS = 60000,
    KEY_SIZE = 16,
};
#define TOPIC      "payments.settlements"
#define OLD_GROUP  "settlers"
#define RULE_GROUP "sagad-settlements"
#define TAKEOVER(group)                                                                            \
    WORDS("kafka", "takeover", "settlements", "--from-group", group, "--reason", "the page")
#define DECIDE(verb) WORDS("kafka", verb, "settlements", "--reason", "the page")

static struct world world;
static struct stage {
    char bank[POSTGRES_CONNINFO_SIZE], risk_log[SCRATCH_PATH_SIZE], risk[64];
    struct test_process *risk_service, *worker, *consumer;
    char key[RECORDS_MAX][KEY_SIZE];
    int fed; /* records in the topic, each with a key of its own */
} stage;

static struct rig *rig(void)
{
    return &world.nodes[0];
}

/* --- the stage -------------------------------------------------------------------------------- */

static int bank_create(void)
{
    struct err err;
    const char *folder = getenv("SAGAD_PG_BIN");
    char psql[SCRATCH_PATH_SIZE];
    SETUP_OK(test_postgres_createdb(rig()->postgres, "demo", stage.bank, &err), &err);
    (void)snprintf(psql, sizeof psql, "%s/psql", /* one that is cut does not start */
                   folder && *folder ? folder : "/usr/lib/postgresql/15/bin");
    static const char bank_sql[] = SOURCE_DIR "/workers/demo/bank.sql";
    const char *const argv[] = { psql, "-X",       "-q", "-v",     "ON_ERROR_STOP=1",
                                 "-d", stage.bank, "-f", bank_sql, NULL };
    const struct test_process_options options = { .argv = argv };
    SETUP_OK(test_process_must_succeed(&options, START_MS, &err), &err);
    return 0;
}

static int risk_start(void)
{
    static const char serving[] = "serving on ";
    struct err err;
    char line[256];
    SETUP_OK(scratch_path("risk.effects", stage.risk_log, &err), &err);
    const char *const argv[] = { RISK_SERVICE, "--listen",     "127.0.0.1:0",
                                 "--log",      stage.risk_log, NULL };
    SETUP_OK(test_process_run(argv, &stage.risk_service, &err), &err);
    SETUP_OK(
        test_process_wait_output(stage.risk_service, serving, START_MS, line, sizeof line, &err),
        &err);
    (void)snprintf(stage.risk, sizeof stage.risk, "%s", /* fits */
                   strstr(line, serving) + sizeof serving - 1);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    if (world_up(&world, NULL) != 0)
        return -1;
    return !world.kafka ? 0 : bank_create() != 0 ? -1 : risk_start();
}

static int teardown(void **state)
{
    (void)state;
    stage.consumer = test_process_free(stage.consumer);
    stage.worker = test_process_free(stage.worker);
    stage.risk_service = test_process_free(stage.risk_service);
    return world_down(&world);
}

static int check(void **state)
{
    (void)state;
    return world_check(&world);
}

static void rule(const char *more)
{
    world_rules(&world, 0,
                "[kafka settlements]\ntopic = " TOPIC "\ndefinition = settlement\n"
                "start = group\nvalue = protobuf\n%s",
                more);
}

static void worker_start(void)
{
    struct err err;
    const char *const argv[] = { SETTLEMENT_WORKER, "--id",   "settler-1", "--sagad",
                                 rig()->address,    "--bank", stage.bank,  "--risk",
                                 stage.risk,        NULL };
    ASSERT_OK(test_process_run(argv, &stage.worker, &err), &err);
    ASSERT_OK(test_process_wait_output(stage.worker, "serving as", START_MS, NULL, 0, &err), &err);
}

/* --- records ---------------------------------------------------------------------------------- */

static void feed(int count)
{
    struct err err;
    for (int i = 0; i < count; i++) {
        uint8_t bytes[64];
        assert_true(stage.fed < RECORDS_MAX);
        char *key = stage.key[stage.fed];
        Bank__V1__Payment payment = BANK__V1__PAYMENT__INIT;
        (void)snprintf(key, KEY_SIZE, "pay-%03d", stage.fed);
        payment.payment_id = key;
        payment.account = 1 + stage.fed % ACCOUNTS;
        payment.amount_cents = 100 + stage.fed;
        payment.risk = DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_NORMAL;
        assert_true(bank__v1__payment__get_packed_size(&payment) <= sizeof bytes);
        const struct test_kafka_record record = { .partition = stage.fed % PARTITIONS,
                                                  .value = bytes,
                                                  .value_size =
                                                      bank__v1__payment__pack(&payment, bytes) };
        ASSERT_OK(test_kafka_produce(world.kafka, TOPIC, &record, 1, &err), &err);
        stage.fed++;
    }
}

static bool is_canary(int record)
{
    return kafka_canary_takes(CANARY, stage.key[record], strlen(stage.key[record]));
}

static int canaries(int first, int end)
{
    int count = 0;
    for (int i = first; i < end; i++)
        count += is_canary(i);
    return count;
}

/* --- the old consumer ------------------------------------------------------------------------- */

static void consumer_start(const char *group, const char *canary)
{
    struct err err;
    const char *const argv[] = { KAFKA_CONSUMER,
                                 "--brokers",
                                 test_kafka_bootstrap(world.kafka),
                                 "--topic",
                                 TOPIC,
                                 "--group",
                                 group,
                                 "--batch",
                                 "12",
                                 "--bank",
                                 stage.bank,
                                 "--risk",
                                 stage.risk,
                                 "--canary",
                                 canary,
                                 NULL };
    ASSERT_OK(test_process_run(argv, &stage.consumer, &err), &err);
    ASSERT_OK(test_process_wait_output(stage.consumer, "has 3 partitions", START_MS, NULL, 0, &err),
              &err);
}

/* It leaves by silence. */
static void await_empty(const char *group)
{
    size_t members = 1;
    for (int i = 0; members; i++) {
        struct err err;
        assert_true(i < WAIT_MS / 100);
        ASSERT_OK(test_kafka_group_members(world.kafka, group, &members, &err), &err);
        wait_ms(members ? 100 : 0);
    }
}

static void consumer_stop(void)
{
    stage.consumer = test_process_free(stage.consumer);
}

static int64_t committed(const char *group)
{
    int64_t sum = 0;
    for (int i = 0; i < PARTITIONS; i++) {
        struct err err;
        int64_t offset;
        ASSERT_OK(test_kafka_group_offset(world.kafka, group, TOPIC, i, &offset, NULL, 0, &err),
                  &err);
        sum += offset < 0 ? 0 : offset;
    }
    return sum;
}

static void await_committed(const char *group)
{
    for (int i = 0; committed(group) != stage.fed; i++) {
        if (i >= WAIT_MS / 100)
            fail_msg("the group %s is at %lld of %d", group, (long long)committed(group),
                     stage.fed);
        wait_ms(100);
    }
}

/* Of the running consumer: it said this of the records from `first` on that `takes` names (NULL:
 * all), and of no other record. */
static void assert_told(int first, const char *what, bool (*takes)(int record))
{
    CLEANUP(mem_free_p) char *output = test_process_output(stage.consumer);
    assert_non_null(output);
    for (int i = 0; i < stage.fed; i++) {
        char line[80];
        bool expected = i >= first && (!takes || takes(i));
        (void)snprintf(line, sizeof line, "%s %s\n", stage.key[i], what);
        if ((strstr(output, line) != NULL) != expected)
            fail_msg("the old consumer %s of %s: \"%s\"", expected ? "did not say" : "says",
                     stage.key[i], what);
    }
}

/* How often the running consumer was about to call risk. */
static int calls(void)
{
    static const char line[] = " calls risk\n";
    int count = 0;
    CLEANUP(mem_free_p) char *output = test_process_output(stage.consumer);
    assert_non_null(output);
    for (const char *at = output; (at = strstr(at, line)) != NULL; at++)
        count++;
    return count;
}

static bool is_old(int record)
{
    return !is_canary(record);
}

/* --- sagad ------------------------------------------------------------------------------------ */

static int64_t sagas(const char *where)
{
    return rig_count(rig(), RIG_STORE, "SELECT count(*) FROM saga WHERE %s", where);
}

static int64_t suspects(void)
{
    return rig_count(rig(), RIG_STORE, "SELECT count(*) FROM journal WHERE kind = 'SUSPECT'");
}

/* The rule has no more to read, and its sagas have come to their end or wait for a person. */
static void await_rest(void)
{
    world_await_handled(&world, "settlements", stage.fed, WAIT_MS);
    rig_await(rig(), RIG_STORE, "0", WAIT_MS,
              "SELECT count(*) FROM saga WHERE state IN ('RUNNING', 'COMPENSATING')");
}

static void assert_started(int first, int end, bool (*takes)(int record))
{
    for (int i = first; i < end; i++) {
        char where[64];
        (void)snprintf(where, sizeof where, "saga_id = '%s'", stage.key[i]);
        if (sagas(where) != (!takes || takes(i)))
            fail_msg("%s has %lld sagas", stage.key[i], (long long)sagas(where));
    }
}

static void take_over(const char *group)
{
    await_empty(group);
    sagactl_expect(rig(), 0, WORDS("settlements has taken over"), TAKEOVER(group));
}

/* --- the judge -------------------------------------------------------------------------------- */

static int notified(const char *key)
{
    char word[KEY_SIZE + 2];
    int count = 0;
    CLEANUP(bytes_done) struct bytes log = file_read(stage.risk_log);
    (void)snprintf(word, sizeof word, " %s\n", key);
    for (const char *at = (const char *)log.data; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

/* Every settlement that was ever fed is done, once, whoever did it. */
static void judge(void)
{
    char text[80], expected[80];
    (void)snprintf(expected, sizeof expected, "%d %d %d %d 0", stage.fed, stage.fed, stage.fed,
                   stage.fed);
    (void)snprintf(text, sizeof text, "%s", ""); /* the bank has a database of its own */
    PGconn *bank = PQconnectdb(stage.bank);
    PGresult *res = PQexec(
        bank, "SELECT concat_ws(' ', (SELECT count(*) FROM debits),"
              " (SELECT count(DISTINCT settlement_id) FROM debits), (SELECT count(*) FROM ledger),"
              " (SELECT count(DISTINCT settlement_id) FROM ledger), (SELECT count(*) FROM"
              " refunds))");
    if (PQresultStatus(res) == PGRES_TUPLES_OK)
        (void)snprintf(text, sizeof text, "%s", PQgetvalue(res, 0, 0)); /* fits */
    PQclear(res);
    PQfinish(bank);
    assert_string_equal(text, expected);
    for (int i = 0; i < stage.fed; i++)
        if (notified(stage.key[i]) != 1)
            fail_msg("risk was told %d times of %s", notified(stage.key[i]), stage.key[i]);
}

/* --- the page --------------------------------------------------------------------------------- */

/* 2 and 3: definition and rule are there, the rule is stopped; a check starts nothing. */
static void prepare(void)
{
    world_topic(&world, TOPIC, PARTITIONS);
    rule("");
    world_start(&world, 0);
    sagactl_expect(rig(), 0, WORDS("revision 1"),
                   WORDS("definition", "apply", SOURCE_DIR "/workers/demo/settlement.proto"));
    rig_await(rig(), RIG_STORE, "1", WAIT_MS, "SELECT count(*) FROM kafka_rule");
    sagactl_expect(rig(), 0, WORDS("settlements"), DECIDE("stop"));
    worker_start();
    feed(BATCH);
    consumer_start(OLD_GROUP, "0");
    await_committed(OLD_GROUP);
    assert_told(0, "settled", NULL);
    sagactl_expect(rig(), 0, WORDS("12 good, 0 bad"),
                   WORDS("kafka", "check", "settlements", "--last", "100000"));
    assert_int_equal(sagas("true"), 0);
    judge();
}

/* sagad ends and begins anew with another line in its file; the rule stays as it is. */
static void restart_with(const char *more)
{
    (void)rig_server_stop(rig(), WAIT_MS); /* how long it took */
    rule(more);
    world_start(&world, 0);
}

/* 4: it begins where the old consumer was, which comes back without these keys. */
static void canary_in(void)
{
    enum { RECORDS = 5 * BATCH };
    int first = stage.fed;
    restart_with("canary = 5\n");
    sagactl_expect(rig(), 1, WORDS("GROUP_HAS_MEMBERS"), TAKEOVER(OLD_GROUP));
    consumer_stop();
    take_over(OLD_GROUP);
    consumer_start(OLD_GROUP, "5");
    feed(RECORDS);
    await_committed(OLD_GROUP);
    await_rest();
    int taken = canaries(first, stage.fed);
    assert_true(taken > 0);
    assert_int_equal(sagas("state = 'SUCCEEDED'"), taken);
    assert_started(first, stage.fed, is_canary);
    assert_told(first, "is left to sagad", is_canary);
    assert_told(first, "settled", is_old);
    assert_int_equal(rig_count(rig(), RIG_STORE, "SELECT sum(filtered)::bigint FROM kafka_cursor"),
                     RECORDS - taken);
    assert_int_equal(suspects(), 0); /* the consumer had nothing in its hands */
    judge();
}

/* 5 begins: the consumer dies in the middle of a batch, the canary's rule comes to the end. */
static void consumer_dies(void)
{
    int before = calls();
    feed(BATCH);
    for (int i = 0; calls() < before + BATCH / 3; i++) {
        assert_true(i < WAIT_MS / 10);
        wait_ms(10);
    }
    consumer_stop();
    await_rest();
    sagactl_expect(rig(), 0, WORDS("settlements"), DECIDE("stop"));
    restart_with("");
}

/* What may be half done waits for a person, who looks into risk's own books. */
static void ask_risk(int *ret_happened, int *ret_missing)
{
    char key[KEY_SIZE];
    *ret_happened = *ret_missing = 0;
    while (*rig_text(rig(), RIG_STORE, key, sizeof key,
                     "SELECT saga_id FROM saga WHERE state = 'PARKED' AND park_step ="
                     " 'notify_risk' LIMIT 1")) {
        bool is_there = notified(key) > 0;
        *(is_there ? ret_happened : ret_missing) += 1;
        sagactl_expect(rig(), 0, WORDS(key),
                       WORDS("resolve", key, "--step", "notify_risk",
                             is_there ? "--happened" : "--did-not-happen", "--evidence",
                             "risk's own books"));
    }
    await_rest();
}

static void all_of_it(void)
{
    int first = stage.fed - BATCH, happened, missing;
    take_over(OLD_GROUP);
    await_rest();
    assert_started(first, stage.fed, NULL);
    assert_int_equal(suspects(), BATCH - canaries(first, stage.fed));
    ask_risk(&happened, &missing);
    assert_true(happened > 0 && missing > 0);
    judge();
    feed(BATCH);
    await_rest();
    assert_int_equal(suspects(), BATCH - canaries(first, first + BATCH));
    judge();
}

/* 6: the rule is stopped, nothing runs, the consumer goes on in `group`; and forward again. */
static void there_and_back(const char *group)
{
    int first = stage.fed, happened, missing;
    int64_t before = sagas("true");
    sagactl_expect(rig(), 0, WORDS("settlements"), DECIDE("stop"));
    rig_await(rig(), RIG_STORE, "0", WAIT_MS,
              "SELECT count(*) FROM saga WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED')");
    await_empty(RULE_GROUP);
    assert_int_equal(committed(RULE_GROUP), stage.fed);
    for (int i = 0; strcmp(group, RULE_GROUP) != 0 && i < PARTITIONS; i++) { /* copied */
        struct err err;
        int64_t offset;
        ASSERT_OK(
            test_kafka_group_offset(world.kafka, RULE_GROUP, TOPIC, i, &offset, NULL, 0, &err),
            &err);
        ASSERT_OK(test_kafka_group_offset_set(world.kafka, group, TOPIC, i, offset, &err), &err);
    }
    feed(BATCH / 2); /* nobody has them in that moment */
    consumer_start(group, "0");
    feed(BATCH / 2);
    await_committed(group);
    assert_told(first, "settled", NULL);
    assert_int_equal(sagas("true"), before);
    judge();
    consumer_stop();
    feed(BATCH / 2);
    take_over(group);
    feed(BATCH / 2);
    await_rest();
    ask_risk(&happened, &missing);
    assert_int_equal(happened, 0);
    assert_int_equal(missing, BATCH / 2); /* those that were there at the takeover */
    judge();
}

static void test_p7_the_page_is_played(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7");
    prepare();
    canary_in();
    consumer_dies();
    all_of_it();
    there_and_back(RULE_GROUP);
    there_and_back(OLD_GROUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_p7_the_page_is_played, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
