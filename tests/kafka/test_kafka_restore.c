/* Goal: sagad's PostgreSQL is restored to an earlier point while the bank, its guard and a third
 * party keep what they have: no debit and no ledger row is there twice, and the calls of the third
 * party that were made twice are those that README.md allows ("PostgreSQL restored to an earlier
 * point"), each of them and no other. Method: the settlements of the demo out of a topic; the bank
 * has a PostgreSQL of its own; point-in-time recovery to a point in mid-flow, when much more has
 * been settled; sagad lives on or is killed, the workers live on, with leases that the restored
 * database does not know. What was so at that point, and at the end of the part that is lost, is
 * kept beside the bank's books, and these and the third party's log are the judge. */
#include "effect_log.h"
#include "message.h"
#include "settlement.h"
#include "support/proof.h"
#include "support/sagactl.h"
#include "world.h"

#include <stdio.h>

enum {
    PARTITIONS = 4,
    WORKERS = 2,
    START_MS = 30000,
    FLOW_MS = 120000,
    REST_MS = 120000,
    FACTS_BYTES = 4 << 20,
};

static struct stage {
    struct world world;
    struct test_postgres *bank; /* of its own: nobody restores it */
    struct test_process *risk, *workers[WORKERS];
    char conninfo[POSTGRES_CONNINFO_SIZE]; /* of the bank's database of this test */
    char risk_address[64], risk_log[SCRATCH_PATH_SIZE];
    PGconn *books;    /* to it; the facts about sagas stand beside the bank's own tables */
    const char *name; /* of topic and rule; settlements are "NAME-000001" to ... */
    int count;
} stage;

static char facts[FACTS_BYTES];

static struct rig *first(void)
{
    return &stage.world.nodes[0];
}

/* --- the books -------------------------------------------------------------------------------- */

static PGresult *books_run(const char *sql, const char *parameter)
{
    PGresult *res =
        PQexecParams(stage.books, sql, parameter != NULL, NULL, &parameter, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(res);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        fail_msg("%s: %s", sql, PQresultErrorMessage(res));
    return res;
}

static void books_exec(const char *sql, const char *parameter)
{
    PQclear(books_run(sql, parameter));
}

static int64_t books_count(const char *sql)
{
    PGresult *res = books_run(sql, NULL);
    int64_t count = strtoll(PQgetvalue(res, 0, 0), NULL, 10);
    PQclear(res);
    return count;
}

/* What sagad's database says now. */
static void take_facts(const char *life)
{
    char sql[256];
    static const struct {
        const char *table, *columns, *from;
    } tables[] = {
        { "lease",
          "saga_id, saga_uid, seq, fence, step, operation, coalesce(outcome, 'OPEN') AS outcome,"
          " error_code",
          "journal JOIN saga USING (shard, saga_uid) WHERE kind = 'LEASE' AND" },
        { "saga", "saga_id, saga_uid, state", "saga WHERE" },
    };
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        rig_text(first(), RIG_STORE, facts, sizeof facts,
                 "SELECT coalesce(json_agg(f), '[]') FROM (SELECT '%s' AS life, %s FROM %s saga_id"
                 " LIKE '%s-%%') f",
                 life, tables[i].columns, tables[i].from, stage.name);
        (void)snprintf(sql, sizeof sql,
                       "INSERT INTO %s SELECT * FROM json_populate_recordset(NULL::%s, $1)",
                       tables[i].table, tables[i].table);
        books_exec(sql, facts);
    }
}

static bool take_effect(void *ctx, const char *what, const char *settlement)
{
    (void)ctx;
    if (strcmp(what, "NOTIFIED") == 0 && strncmp(settlement, stage.name, strlen(stage.name)) == 0)
        books_exec("INSERT INTO risk_call VALUES ($1)", settlement);
    return strcmp(what, "NOTIFIED") == 0 || strcmp(what, "WITHDRAWN") == 0;
}

static void take_risk_log(void)
{
    struct err err;
    books_exec("TRUNCATE risk_call", NULL);
    ASSERT_OK(effect_log_read(stage.risk_log, take_effect, NULL, &err), &err);
}

/* lost: what was granted, and is not known any more; again: what was granted since. */
static const char books_schema[] =
    "CREATE TABLE plan (saga_id text PRIMARY KEY, turns_back boolean, reply_is_lost boolean,"
    " is_refused boolean);"
    "CREATE TABLE risk_call (saga_id text);"
    "CREATE TABLE lease (life text, saga_id text, saga_uid uuid, seq bigint, fence bigint,"
    " step text, operation text, outcome text, error_code text);"
    "CREATE TABLE saga (life text, saga_id text, saga_uid uuid, state text);"
    "CREATE VIEW lost AS SELECT * FROM lease l WHERE life = 'lost' AND NOT EXISTS (SELECT FROM "
    "lease"
    " p WHERE p.life = 'point' AND (p.saga_uid, p.seq, p.fence) = (l.saga_uid, l.seq, l.fence));"
    "CREATE VIEW again AS SELECT * FROM lease l WHERE life = 'end' AND NOT EXISTS (SELECT FROM "
    "lease"
    " p WHERE p.life = 'point' AND (p.saga_uid, p.seq, p.fence) = (l.saga_uid, l.seq, l.fence));"
    /* Called, as far as anybody knows: a lease that was open when the part ended may have been
     * used, or not. */
    "CREATE VIEW risk AS SELECT saga_id, is_refused,"
    " (SELECT count(*) FROM risk_call c WHERE c.saga_id = p.saga_id) AS calls,"
    " EXISTS (SELECT FROM lost l WHERE l.saga_id = p.saga_id AND step = 'notify_risk'"
    "  AND operation = 'ACTION' AND outcome IN ('DONE', 'ALREADY_DONE', 'UNKNOWN')) AS ran,"
    " EXISTS (SELECT FROM lost l WHERE l.saga_id = p.saga_id AND step = 'notify_risk'"
    "  AND operation = 'ACTION' AND outcome = 'OPEN') AS may_have_run FROM plan p;";

static const char bank_sql[] = SOURCE_DIR "/workers/demo/bank.sql";

static int bank_create(struct err *err)
{
    const char *folder = getenv("SAGAD_PG_BIN");
    char psql[SCRATCH_PATH_SIZE], port[16];
    (void)snprintf(psql, sizeof psql, "%s/psql", /* one that is cut does not start */
                   folder && *folder ? folder : "/usr/lib/postgresql/15/bin");
    (void)snprintf(port, sizeof port, "%d", test_postgres_port(stage.bank));
    const char *const argv[] = { psql,
                                 "-X",
                                 "-q",
                                 "-h",
                                 test_postgres_socket_dir(stage.bank),
                                 "-p",
                                 port,
                                 "-U",
                                 "postgres",
                                 "-d",
                                 stage.name,
                                 "-v",
                                 "ON_ERROR_STOP=1",
                                 "-f",
                                 bank_sql,
                                 NULL };
    const struct test_process_options options = { .argv = argv };
    if (test_postgres_createdb(stage.bank, stage.name, stage.conninfo, err) ||
        test_process_must_succeed(&options, START_MS, err))
        return (int)err->code;
    return test_postgres_exec(stage.bank, stage.name, books_schema, err);
}

/* --- the stage -------------------------------------------------------------------------------- */

static int risk_start(struct err *err)
{
    static const char serving[] = "serving on ";
    char line[256];
    if (scratch_path("risk.effects", stage.risk_log, err))
        return (int)err->code;
    const char *const argv[] = { RISK_SERVICE, "--listen",     "127.0.0.1:0",
                                 "--log",      stage.risk_log, NULL };
    if (test_process_run(argv, &stage.risk, err) ||
        test_process_wait_output(stage.risk, serving, START_MS, line, sizeof line, err))
        return (int)err->code;
    (void)snprintf(stage.risk_address, sizeof stage.risk_address, "%s", /* fits */
                   strstr(line, serving) + sizeof serving - 1);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    static const char *const settings[] = { "wal_keep_size=1GB", NULL };
    static const char *const bank_settings[] = { "max_connections=200", NULL };
    struct err err;
    stage.world.nodes[0].postgres_settings = settings;
    if (world_up(&stage.world, NULL) != 0)
        return -1;
    if (!stage.world.kafka)
        return 0;
    SETUP_OK(test_postgres_start(bank_settings, &stage.bank, &err), &err);
    SETUP_OK(risk_start(&err), &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stage.risk = test_process_free(stage.risk);
    stage.bank = test_postgres_free(stage.bank);
    return world_down(&stage.world);
}

static int check(void **state)
{
    (void)state;
    for (int i = 0; i < WORKERS; i++)
        stage.workers[i] = test_process_free(stage.workers[i]);
    PQfinish(stage.books);
    stage.books = NULL;
    return world_check(&stage.world);
}

static void worker_start(int i)
{
    char id[32];
    struct err err;
    (void)snprintf(id, sizeof id, "%s-settler-%d", stage.name, i + 1); /* fits */
    const char *const argv[] = {
        SETTLEMENT_WORKER, "--id",         id,       "--sagad",          first()->address,
        "--bank",          stage.conninfo, "--risk", stage.risk_address, NULL
    };
    const struct test_process_options options = { .name = id, .argv = argv };
    ASSERT_OK(test_process_start(&options, &stage.workers[i], &err), &err);
    ASSERT_OK(test_process_wait_output(stage.workers[i], "serving as", START_MS, NULL, 0, &err),
              &err);
}

static void begin(const char *name, int count)
{
    struct err err;
    stage.name = name;
    stage.count = count;
    ASSERT_OK(bank_create(&err), &err);
    stage.books = PQconnectdb(stage.conninfo);
    assert_int_equal(PQstatus(stage.books), CONNECTION_OK);
    world_topic(&stage.world, name, PARTITIONS);
    world_rules(&stage.world, 0,
                "[kafka %s]\ntopic = %s\ndefinition = settlement\nstart = earliest\n"
                "value = protobuf\nbatch = 20\nlibrdkafka.session.timeout.ms = %d\n"
                "librdkafka.heartbeat.interval.ms = %d\n",
                name, name, WORLD_SESSION_MS, WORLD_SESSION_MS / 6);
    world_start(&stage.world, 0);
    sagactl_expect(first(), 0, WORDS("settlement"),
                   WORDS("definition", "apply", SOURCE_DIR "/workers/demo/settlement.proto"));
    for (int i = 0; i < WORKERS; i++)
        worker_start(i);
}

/* --- settlements ------------------------------------------------------------------------------ */

/* As the demo plans them, but none waits for ever. */
static struct settlement planned(int number)
{
    struct settlement settlement = settlement_plan(number, stage.count);
    if (settlement.risk == SETTLEMENT_RISK(TRY_LATER))
        settlement.risk = SETTLEMENT_RISK(NORMAL);
    return settlement;
}

static void plan_note(const char *id, const struct settlement *settlement)
{
    char values[160];
    bool refused = settlement->risk == SETTLEMENT_RISK(REFUSE);
    (void)snprintf(values, sizeof values, "{%s,%d,%d,%d}", id,
                   refused || settlement_is_over_balance(settlement),
                   settlement->risk == SETTLEMENT_RISK(TAKE_EFFECT_THEN_TIME_OUT), refused);
    books_exec("INSERT INTO plan SELECT v[1], v[2]::boolean, v[3]::boolean, v[4]::boolean"
               " FROM (SELECT $1::text[]) AS p (v)",
               values);
}

/* Numbers `from` to `to`. */
static void produce(int from, int to)
{
    for (int number = from; number <= to; number++) {
        struct err err;
        char id[32];
        CLEANUP(buf_done) struct buf input = { 0 };
        struct settlement settlement = planned(number);
        Bank__V1__Payment payment = BANK__V1__PAYMENT__INIT;
        (void)snprintf(id, sizeof id, "%s-%06d", stage.name, number); /* fits */
        payment.payment_id = id;
        payment.account = settlement.account;
        payment.amount_cents = settlement.amount_cents;
        payment.risk = settlement.risk;
        assert_true(message_pack(&payment.base, &input));
        const struct test_kafka_record record = { .partition = number % PARTITIONS,
                                                  .key = id,
                                                  .key_size = strlen(id),
                                                  .value = input.data,
                                                  .value_size = input.size };
        plan_note(id, &settlement);
        ASSERT_OK(test_kafka_produce(stage.world.kafka, stage.name, &record, 1, &err), &err);
    }
}

static void await_settled(int above, int count)
{
    rig_await(first(), RIG_STORE, "t", FLOW_MS,
              "SELECT count(*) >= %d FROM saga WHERE state = 'SUCCEEDED'"
              " AND saga_id LIKE '%s-%%' AND saga_id > '%s-%06d'",
              count, stage.name, stage.name, above);
}

/* All were handled, and nothing moves. */
static void await_rest(void)
{
    world_await_handled(&stage.world, stage.name, stage.count, REST_MS);
    rig_await(first(), RIG_STORE, "t", REST_MS,
              "SELECT count(*) = %d AND count(*) FILTER (WHERE state IN ('RUNNING',"
              " 'COMPENSATING')) = 0 FROM saga WHERE saga_id LIKE '%s-%%'",
              stage.count, stage.name);
}

/* --- back to an earlier point ----------------------------------------------------------------- */

/* Nothing is committed from now on; the rig's own connection stays. */
static void freeze(void)
{
    struct err err;
    ASSERT_OK(test_postgres_exec(first()->postgres, "postgres",
                                 "ALTER DATABASE store ALLOW_CONNECTIONS false", &err),
              &err);
    rig_await(first(), RIG_STORE, "0", START_MS,
              "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
              " WHERE datname = 'store' AND pid <> pg_backend_pid()");
}

static void go_back(bool sagad_dies)
{
    struct err err;
    if (sagad_dies)
        rig_server_kill(first());
    freeze();
    take_facts("lost");
    ASSERT_OK(test_postgres_stop_fast(first()->postgres, &err), &err);
    ASSERT_OK(test_postgres_recover(first()->postgres, stage.name, &err), &err);
    take_facts("point");
    ASSERT_OK(test_postgres_promote(first()->postgres, &err), &err);
    if (sagad_dies)
        world_start(&stage.world, 0);
}

/* Those whose risk call has an outcome that only risk knows. */
static void ask_risk(void)
{
    PGresult *parked =
        books_run("SELECT saga_id, EXISTS (SELECT FROM risk_call c WHERE c.saga_id = s.saga_id)"
                  " FROM saga s WHERE life = 'rest' AND state = 'PARKED'",
                  NULL);
    for (int i = 0; i < PQntuples(parked); i++) {
        Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
        Saga__V1__ResolveStepRequest request = SAGA__V1__RESOLVE_STEP_REQUEST__INIT;
        ref.definition = rig_borrow("settlement");
        ref.saga_id = PQgetvalue(parked, i, 0);
        request.saga = &ref;
        request.step = rig_borrow("notify_risk");
        request.evidence = rig_borrow("risk's own log was asked");
        request.result = *PQgetvalue(parked, i, 1) == 't'
                             ? SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN
                             : SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_NOT_HAPPEN;
        ProtobufCMessage *reply = rig_call(first(), "OperatorService/ResolveStep", &request.base,
                                           &saga__v1__saga__descriptor, NULL);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    PQclear(parked);
}

/* --- the judge -------------------------------------------------------------------------------- */

struct rule {
    const char *name, *sql; /* the settlements for which it is not so */
};

/* What is known of the first of them. */
static void explain(const char *ids)
{
    char id[32];
    (void)snprintf(id, sizeof id, "%.*s", (int)strcspn(ids, " "), ids); /* "alive-000001" */
    PGresult *res = books_run("SELECT string_agg(concat_ws(' ', life, seq, fence, operation, step,"
                              " outcome, error_code), E'\n' ORDER BY life DESC, seq) FROM lease"
                              " WHERE saga_id = $1",
                              id);
    print_error("%s\n", PQgetvalue(res, 0, 0));
    PQclear(res);
}

static void judge(const struct rule *rules, size_t count)
{
    int broken = 0;
    for (size_t i = 0; i < count; i++) {
        char sql[2048];
        (void)snprintf(sql, sizeof sql, "SELECT string_agg(DISTINCT o.saga_id, ' ') FROM (%s) o",
                       rules[i].sql);
        PGresult *res = books_run(sql, NULL);
        if (!PQgetisnull(res, 0, 0)) {
            print_error("NOT SO: %s: %s\n", rules[i].name, PQgetvalue(res, 0, 0));
            explain(PQgetvalue(res, 0, 0));
            broken++;
        }
        PQclear(res);
    }
    assert_int_equal(broken, 0);
}

/* Before anybody was asked. */
static const struct rule at_rest[] = {
    { "parked is what was on its way to risk at that point, and what risk never answers",
      "SELECT saga_id FROM saga s JOIN plan USING (saga_id) WHERE life = 'rest'"
      " AND state = 'PARKED' AND NOT reply_is_lost AND NOT EXISTS (SELECT FROM lease l WHERE"
      " life = 'point' AND l.saga_id = s.saga_id AND step = 'notify_risk' AND outcome = 'OPEN')" },
    { "what was on its way to risk at that point, and has ended since, waits for a person",
      "SELECT p.saga_id FROM lease p JOIN lease l USING (saga_uid, seq, fence) JOIN saga s"
      " ON s.life = 'rest' AND s.saga_id = p.saga_id WHERE p.life = 'point' AND p.outcome = 'OPEN'"
      " AND p.step = 'notify_risk' AND p.operation = 'ACTION' AND l.life = 'lost'"
      " AND l.outcome <> 'OPEN' AND s.state <> 'PARKED'" },
};

static const struct rule at_the_end[] = {
    { "a settlement is one saga, and has come to the end that was meant",
      "SELECT p.saga_id FROM plan p LEFT JOIN saga s ON s.life = 'end' AND s.saga_id = p.saga_id"
      " GROUP BY p.saga_id HAVING count(s.state) <> 1 OR max(s.state) <>"
      " CASE WHEN turns_back THEN 'COMPENSATED' ELSE 'SUCCEEDED' END" },
    { "one debit and one ledger row, or as many as were taken back",
      "SELECT saga_id FROM plan LEFT JOIN settlement_books ON settlement_id = saga_id"
      " WHERE CASE WHEN turns_back THEN debits > 1 OR ledger_entries > 1 OR debits <> refunds"
      "  OR ledger_entries <> ledger_reversals OR debited_cents <> refunded_cents"
      " ELSE (debits, refunds, ledger_entries, ledger_reversals) IS DISTINCT FROM"
      "  (1::bigint, 0::bigint, 1::bigint, 0::bigint) END" },
    { "every row of the bank is of a settlement, and about the right one",
      "SELECT settlement_id AS saga_id FROM settlement_books WHERE settlement_id NOT IN"
      " (SELECT saga_id FROM plan) UNION ALL SELECT settlement_id FROM wrong_links" },
    { "each account holds what it held, less its ledger",
      "SELECT id::text AS saga_id FROM accounts a WHERE balance_cents <> opening_cents"
      " - (SELECT coalesce(sum(amount_cents), 0) FROM ledger WHERE account = a.id)" },
    /* README.md: "may run once more for each saga that had run it after the restored point". */
    { "risk was told twice where it had been told after that point, and nowhere else",
      "SELECT saga_id FROM risk WHERE NOT is_refused AND NOT may_have_run"
      " AND calls <> CASE WHEN ran THEN 2 ELSE 1 END AND saga_id IN (SELECT saga_id FROM again"
      "  WHERE step = 'notify_risk' UNION SELECT saga_id FROM lease WHERE step = 'notify_risk')" },
    { "where risk may have been told after that point it was told once or twice",
      "SELECT saga_id FROM risk WHERE may_have_run AND NOT is_refused AND calls NOT IN (1, 2)" },
    { "risk knows nothing of what it has refused", "SELECT saga_id FROM risk WHERE is_refused"
                                                   " AND calls > 0" },
    { "a fence is greater than those that are lost",
      "SELECT a.saga_id FROM again a JOIN lost l USING (saga_id, step, operation)"
      " WHERE a.fence <= l.fence" },
    { "nor has a guard found it too small",
      "SELECT saga_id FROM again WHERE error_code = 'GUARD_STALE'" },
    { "a guard's fence is the greatest that was there",
      "SELECT saga_id FROM again a JOIN saga_guard.guard g USING (saga_id, step, operation)"
      " WHERE outcome IN ('DONE', 'ALREADY_DONE') AND g.fence < a.fence" },
};

/* The test has seen what it is about. */
static void assert_met(const char *what, const char *sql)
{
    int64_t count = books_count(sql);
    print_message("%s: %lld %s\n", stage.name, (long long)count, what);
    if (count == 0)
        fail_msg("no %s", what);
}

static void assert_all_met(void)
{
    assert_met("settlements that had ended at that point",
               "SELECT count(*) FROM saga WHERE life = 'point' AND state = 'SUCCEEDED'");
    assert_met("on their way to risk at that point",
               "SELECT count(*) FROM lease WHERE life = 'point' AND step = 'notify_risk'"
               " AND outcome = 'OPEN'");
    assert_met("sagas that were lost, and started again under the same identity",
               "SELECT count(*) FROM saga l JOIN saga e USING (saga_id) WHERE l.life = 'lost'"
               " AND e.life = 'end' AND l.saga_uid <> e.saga_uid");
    assert_met("effects that the guard found there",
               "SELECT count(*) FROM again WHERE outcome = 'ALREADY_DONE'"
               " AND step IN ('debit_account', 'write_ledger')");
    assert_met("leases whose end only workers knew, or nobody",
               "SELECT count(*) FROM lease WHERE life = 'lost' AND outcome = 'OPEN'");
    assert_met("risk calls made twice", "SELECT count(*) FROM risk WHERE calls > 1");
}

static void run(const char *name, int count, bool sagad_dies)
{
    struct err err;
    int half = count / 2;
    begin(name, count);
    ASSERT_OK(test_postgres_backup(first()->postgres, &err), &err);
    produce(1, half);
    await_settled(0, half / 2);
    rig_exec(first(), RIG_STORE, "SELECT pg_create_restore_point('%s')", name);
    produce(half + 1, count * 8 / 10);
    await_settled(half, count / 10);
    go_back(sagad_dies);
    produce(count * 8 / 10 + 1, count);
    await_rest();
    take_facts("rest");
    take_risk_log();
    judge(at_rest, ARRAY_LEN(at_rest));
    ask_risk();
    await_rest();
    take_facts("end");
    take_risk_log();
    judge(at_the_end, ARRAY_LEN(at_the_end));
    assert_all_met();
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_p3_p7_restored_to_an_earlier_point_nothing_guarded_is_doubled(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(stage.world.kafka);
    PROVES("P3 P7");
    run("alive", test_is_full_size() ? 1000 : 200, false);
}

static void test_p3_p7_p8_restored_while_sagad_is_down(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(stage.world.kafka);
    PROVES("P3 P7 P8");
    run("killed", 200, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(
            test_p3_p7_restored_to_an_earlier_point_nothing_guarded_is_doubled, check),
        cmocka_unit_test_teardown(test_p3_p7_p8_restored_while_sagad_is_down, check),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
