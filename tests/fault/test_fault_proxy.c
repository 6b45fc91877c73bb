/* A connection to PostgreSQL that breaks at the worst moment. Goal: what was committed is found,
 * what was not is done again, nothing twice, whatever the answer to COMMIT was; a COMMIT is never
 * sent again elsewhere (D1). Method: a proxy that reads the protocol, and strikes by table or by
 * seed. */
#include "base/clock.h"
#include "load.h"
#include "proxy.h"
#include "support/proof.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 20000, REST_MS = 60000 };

static char database[POSTGRES_CONNINFO_SIZE];
static struct rig rig = { .server_args = { "--resend-grace", "500ms", "--stream-lost", "500ms" },
                          .server_database = database };
static struct proxy *proxy;

static int setup(void **state)
{
    (void)state;
    struct err err;
    if (rig_databases_up(&rig) != 0)
        return -1;
    SETUP_OK(proxy_start(test_postgres_port(rig.postgres), proof_seed(), &proxy, &err), &err);
    (void)snprintf(database, sizeof database,
                   "host=127.0.0.1 port=%d dbname=store user=postgres sslmode=disable"
                   " gssencmode=disable",
                   proxy_port(proxy));
    if (rig_server_up(&rig) != 0)
        return -1;
    load_define(&rig);
    rig_define(&rig, "plain", NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: IDEMPOTENT | IDEMPOTENT | guarded");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int rc = rig_down(&rig);
    proxy = proxy_free(proxy);
    return rc;
}

static const char *const fault_names[PROXY_FAULT_COUNT] = {
    /* NULL: not of this program */
    [PROXY_CUT_BEFORE_COMMIT] = "connection cut before COMMIT arrived",
    [PROXY_CUT_AFTER_COMMIT] = "connection cut after COMMIT, before its answer",
    [PROXY_ROLLBACK_FOR_COMMIT] = "COMMIT answered ROLLBACK",
    [PROXY_CUT_IN_RESULT] = "connection cut in the middle of a result",
};

static int64_t counted[PROXY_FAULT_COUNT];

static int check(void **state)
{
    (void)state;
    for (int i = 0; i < PROXY_FAULT_COUNT; i++) {
        int64_t now = proxy_hits(proxy, (enum proxy_fault)i);
        if (fault_names[i])
            proof_fault(fault_names[i], now - counted[i]);
        counted[i] = now;
        proxy_arm(proxy, (enum proxy_fault)i, NULL, 0);
        proxy_chance(proxy, (enum proxy_fault)i, 0);
    }
    proxy_delay(proxy, 0);
    proxy_bytes(proxy, false);
    rig_workers_kill(&rig);
    if (proxy_stray_commits(proxy) != 0) {
        print_error("a COMMIT was sent in a session that had not begun its transaction\n");
        return -1;
    }
    return rig_check(&rig);
}

static void workers(void)
{
    (void)rig_worker_threads(&rig, "one", "act:6 undo:4", 6); /* the rig owns them */
    (void)rig_worker_threads(&rig, "two", "act:6 undo:4", 6);
}

/* --- D1 --------------------------------------------------------------------------------------- */

/* The gRPC status code of a start. */
static int start_code(const char *definition, const char *id, const char *script)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow(definition);
    request.saga_id = rig_borrow(id);
    request.input.data = (uint8_t *)rig_borrow(script);
    request.input.len = strlen(script);
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply = rig_call(&rig, "SagaService/StartSaga", &request.base,
                                       &saga__v1__start_saga_response__descriptor, &failure);
    if (reply) {
        protobuf_c_message_free_unpacked(reply, NULL);
        return 0;
    }
    int code = failure.code;
    client_failure_done(&failure);
    return code;
}

struct commit_row {
    const char *what, *statement;
    bool refused; /* at b: the saga turns back */
    bool worker_later;
    int64_t n; /* which of the transactions with that statement */
};

static const struct commit_row commit_rows[] = {
    { "start", "start", false, false, 1 },      { "start-alone", "start", false, true, 1 },
    { "grant", "grant", false, true, 1 },       { "completion", "finish_grant", false, false, 1 },
    { "end", "finish_end", false, false, 1 },   { "refusal", "phase", true, false, 1 },
    { "undone", "finish_end", true, false, 1 },
};

static void assert_effects(const struct commit_row *row, const char *id)
{
    assert_int_equal(rig_effects(&rig, id, "a", "A"), 1);
    assert_int_equal(rig_effects(&rig, id, "b", "A"), row->refused ? 0 : 1);
    assert_int_equal(rig_effects(&rig, id, "a", "C"), row->refused ? 1 : 0);
    assert_int_equal(rig_effects(&rig, id, "b", "C"), 0);
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga WHERE saga_id = '%s'", id), 1);
}

static void strike(const struct commit_row *row, enum proxy_fault fault)
{
    char id[64];
    const char *script = row->refused ? "b A 1 rejected\n* * * guarded" : "* * * guarded";
    int64_t before = proxy_hits(proxy, fault);
    (void)snprintf(id, sizeof id, "d1-%s-%d", row->what, fault);
    if (!row->worker_later)
        (void)rig_worker(&rig, "d1", "act:2 undo:2"); /* the rig owns it */
    proxy_arm(proxy, fault, row->statement, row->n);
    int code = start_code("plain", id, script);
    /* It was committed: then the answer is yes. It was not: done again, or UNAVAILABLE. */
    if (code != 0 && (fault == PROXY_CUT_AFTER_COMMIT || strcmp(row->statement, "start") != 0))
        fail_msg("%s: the start was answered %s", id, client_code_name(code));
    if (code != 0)
        assert_string_equal(client_code_name(code),
                            fault == PROXY_ROLLBACK_FOR_COMMIT ? "ABORTED" : "UNAVAILABLE");
    if (code != 0)
        assert_int_equal(start_code("plain", id, script), 0);
    if (row->worker_later)
        (void)rig_worker(&rig, "d1", "act:2 undo:2"); /* the rig owns it */
    rig_await_state(&rig, "plain", id, row->refused ? "COMPENSATED" : "SUCCEEDED", SOON);
    if (proxy_hits(proxy, fault) != before + 1)
        fail_msg("%s: hit %lld times", id, (long long)(proxy_hits(proxy, fault) - before));
    assert_effects(row, id);
    rig_workers_kill(&rig);
}

static void test_d1_p2_no_commit_is_lost_or_repeated_whatever_its_answer(void **state)
{
    (void)state;
    PROVES("P1 P2 P3 P5");
    static const enum proxy_fault faults[] = { PROXY_CUT_BEFORE_COMMIT, PROXY_CUT_AFTER_COMMIT,
                                               PROXY_ROLLBACK_FOR_COMMIT };
    for (size_t i = 0; i < ARRAY_LEN(commit_rows); i++)
        for (size_t j = 0; j < ARRAY_LEN(faults); j++)
            strike(&commit_rows[i], faults[j]);
}

/* --- under load ------------------------------------------------------------------------------- */

static void test_p1_p2_p8_connections_that_break_at_random_under_load(void **state)
{
    (void)state;
    PROVES("P1 P2 P3 P5 P8");
    workers();
    for (int round = 0; round < (test_is_full_size() ? 20 : 2); round++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "random%d-", round);
        proxy_chance(proxy, PROXY_CUT_BEFORE_COMMIT, 12);
        proxy_chance(proxy, PROXY_CUT_AFTER_COMMIT, 12);
        proxy_chance(proxy, PROXY_ROLLBACK_FOR_COMMIT, 10);
        proxy_chance(proxy, PROXY_CUT_IN_RESULT, 3);
        struct load *load = load_start(&rig, LOAD_BANK_LIVES, prefix, 120);
        load_await(load, REST_MS);
        for (int i = 0; i < PROXY_FAULT_COUNT; i++)
            proxy_chance(proxy, (enum proxy_fault)i, 0);
        (void)load_judge(load, 0, REST_MS);
    }
}

static void test_p2_answers_that_are_late_or_come_byte_by_byte(void **state)
{
    (void)state;
    PROVES("P2 P8");
    workers();
    int64_t reconnects = rig_counter(&rig, "reconnects");
    proxy_delay(proxy, 20);
    struct load *late = load_start(&rig, LOAD_BANK_LIVES, "late-", 60);
    (void)load_judge(late, 0, REST_MS);
    proxy_delay(proxy, 0);
    proxy_bytes(proxy, true);
    struct load *bytes = load_start(&rig, LOAD_BANK_LIVES, "bytes-", 100);
    (void)load_judge(bytes, 0, REST_MS);
    assert_int_equal(rig_counter(&rig, "reconnects"), reconnects); /* slow is not broken */
    proof_fault("messages of PostgreSQL held up", proxy_delays(proxy));
    proof_fault("messages of PostgreSQL sent byte by byte", proxy_byte_chunks(proxy));
}

/* --- D7 on the whole program -------------------------------------------------------------------
 */

static void assert_answered(int code)
{
    if (code != 0)
        assert_string_equal(client_code_name(code), "UNAVAILABLE");
}

/* Sagas with large inputs wait; whenever they are loaded again the connection is cut in the middle
 * of what comes. */
static void test_d7_p8_many_large_sagas_are_loaded_over_a_connection_that_breaks(void **state)
{
    (void)state;
    PROVES("P1 P8");
    enum { GROUP = 100, INPUT = 20 * 1024, CUTS = 6, ANSWER_MS = 12000 };
    int groups = test_is_full_size() ? 10 : 2;
    static char input[INPUT];
    size_t used = (size_t)snprintf(input, sizeof input, "* * * guarded\n");
    memset(input + used, '#', sizeof input - 1 - used);
    for (int i = 0; i < groups; i++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "large%d-", i);
        rig_start_many(&rig, "plain", prefix, GROUP, input);
    }
    int64_t from = clock_mono_ms(&clock_system), before = proxy_hits(proxy, PROXY_CUT_IN_RESULT);
    for (int i = 0; i < CUTS; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "large-more%d", i);
        proxy_arm(proxy, PROXY_CUT_IN_RESULT, NULL, 1 + i * GROUP / 4);
        rig_exec(&rig, RIG_STORE,
                 "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                 " WHERE application_name = 'sagad engine'");
        int64_t asked = clock_mono_ms(&clock_system);
        assert_answered(start_code("plain", id, "* * * guarded"));
        assert_true(clock_mono_ms(&clock_system) - asked < ANSWER_MS);
        while (proxy_hits(proxy, PROXY_CUT_IN_RESULT) == before + i) {
            assert_true(clock_mono_ms(&clock_system) - from < REST_MS);
            wait_ms(2);
        }
        assert_int_equal(start_code("plain", id, "* * * guarded"), 0);
    }
    workers();
    rig_await_states(&rig, "plain", "large", "SUCCEEDED", groups * GROUP + CUTS, REST_MS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_d1_p2_no_commit_is_lost_or_repeated_whatever_its_answer),
        TEST(test_p1_p2_p8_connections_that_break_at_random_under_load),
        TEST(test_d7_p8_many_large_sagas_are_loaded_over_a_connection_that_breaks),
        TEST(test_p2_answers_that_are_late_or_come_byte_by_byte),
    };
    for (int i = 0; i < PROXY_FAULT_COUNT; i++)
        if (fault_names[i])
            proof_fault(fault_names[i], 0);
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
