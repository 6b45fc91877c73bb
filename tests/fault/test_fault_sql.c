/* A database that refuses now and then. Goal: whatever SQLSTATE a statement or COMMIT is answered
 * with, the decision is taken again inside; no step fails or is repeated for it, no client is told
 * nonsense. Method: triggers that raise a chosen error for a seeded share of the rows, in the
 * statement or at COMMIT; the database's default isolation is serializable (D3). */
#include "base/clock.h"
#include "base/rng.h"
#include "load.h"
#include "support/proof.h"
#include "support/wait.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { REST_MS = 60000 };

static struct rig rig = { .server_args = { "--resend-grace", "500ms", "--stream-lost", "500ms" } };

static int setup(void **state)
{
    (void)state;
    struct err err;
    if (rig_databases_up(&rig) != 0)
        return -1;
    SETUP_OK(test_postgres_exec(rig.postgres, "store",
                                "ALTER DATABASE store SET default_transaction_isolation ="
                                " 'serializable'",
                                &err),
             &err);
    if (rig_server_up(&rig) != 0)
        return -1;
    load_define(&rig);
    rig_define(&rig, "race", "deadline=1s",
               "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: IDEMPOTENT | IDEMPOTENT | guarded");
    rig_exec(&rig, RIG_STORE, "CREATE SEQUENCE fault_seen");
    rig_exec(&rig, RIG_STORE, "CREATE SEQUENCE fault_hit MINVALUE 0 START 0");
    /* Arguments: SQLSTATE, seed, share in thousandths. Sequences count also what is rolled back. */
    rig_exec(&rig, RIG_STORE,
             "CREATE FUNCTION fault_raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
             " IF ('x' || substr(md5(TG_ARGV[1] || nextval('fault_seen')), 1, 6))::bit(24)::int"
             "    %% 1000 < TG_ARGV[2]::int THEN"
             "  PERFORM nextval('fault_hit');"
             "  RAISE EXCEPTION 'forced by a test' USING ERRCODE = TG_ARGV[0];"
             " END IF; RETURN NULL; END $$");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static void workers(void)
{
    (void)rig_worker_threads(&rig, "one", "act:8 undo:4", 8); /* the rig owns them */
    (void)rig_worker_threads(&rig, "two", "act:8 undo:4", 8);
}

/* --- forced errors ---------------------------------------------------------------------------- */

static void force(const char *sqlstate, const char *events, int per_mille, bool at_commit)
{
    static const char *const tables[] = { "journal", "saga" };
    rig_exec(&rig, RIG_STORE, "SELECT setval('fault_hit', 0, false)");
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        rig_exec(&rig, RIG_STORE,
                 "CREATE %s TRIGGER fault AFTER %s ON %s %s FOR EACH ROW"
                 " EXECUTE FUNCTION fault_raise('%s', '%" PRIu64 "', '%d')",
                 at_commit ? "CONSTRAINT" : "", events, tables[i],
                 at_commit ? "DEFERRABLE INITIALLY DEFERRED" : "", sqlstate, proof_seed(),
                 per_mille);
}

/* How often it was raised. */
static int64_t force_end(void)
{
    rig_exec(&rig, RIG_STORE, "DROP TRIGGER fault ON journal");
    rig_exec(&rig, RIG_STORE, "DROP TRIGGER fault ON saga");
    return rig_count(&rig, RIG_STORE, "SELECT last_value + is_called::int FROM fault_hit");
}

static const struct forced {
    const char *sqlstate, *what, *events;
    int per_mille;
    bool at_commit;
} forced[] = {
    { "40001", "serialization failure", "INSERT OR UPDATE", 25, false },
    { "40P01", "deadlock", "INSERT OR UPDATE", 25, false },
    { "40001", "serialization failure at COMMIT", "INSERT OR UPDATE", 25, true },
    /* A bad row: to refuse a start for ever is right, to leave a saga alone is not. */
    { "23514", "a constraint at COMMIT", "UPDATE", 25, true },
    { "25006", "read-only transaction", "INSERT OR UPDATE", 25, false },
    { "53100", "disk full", "INSERT OR UPDATE", 25, false },
    { "53200", "out of memory", "INSERT OR UPDATE", 25, true },
    { "55P03", "lock not available", "INSERT OR UPDATE", 25, false },
    { "57014", "query cancelled", "INSERT OR UPDATE", 25, false },
    { "57P01", "the server shuts down", "INSERT OR UPDATE", 25, false },
};

static const char *forced_name(const struct forced *row)
{
    static char name[PROOF_NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s: %s", row->sqlstate, row->what);
    return name;
}

/* None ended otherwise than its script says, none was done again: an error of the database is no
 * outcome. */
static void assert_no_step_repeated(const char *prefix)
{
    char text[512];
    rig_text(&rig, RIG_STORE, text, sizeof text,
             "SELECT string_agg(saga_id || ' ' || step || '.' || try || ' ' || outcome, ', ')"
             " FROM journal JOIN saga USING (shard, saga_uid) WHERE starts_with(saga_id, '%s')"
             " AND kind = 'LEASE' AND outcome NOT IN ('DONE', 'ALREADY_DONE', 'REJECTED',"
             " 'RELEASED') AND NOT (outcome = 'RETRY' AND error_code = 'SCRIPT')",
             prefix);
    assert_string_equal(text, "");
}

static void test_d3_p2_p8_errors_of_the_database_are_no_outcomes(void **state)
{
    (void)state;
    PROVES("P1 P2 P5 P8");
    workers();
    for (int round = 0; round < (test_is_full_size() ? 10 : 1); round++) {
        for (size_t i = 0; i < ARRAY_LEN(forced); i++) {
            char prefix[32];
            (void)snprintf(prefix, sizeof prefix, "sql%d-%zu-", round, i);
            force(forced[i].sqlstate, forced[i].events, forced[i].per_mille, forced[i].at_commit);
            struct load *load = load_start(&rig, LOAD_BANK_LIVES, prefix, 48);
            load_await(load, REST_MS);
            proof_fault(forced_name(&forced[i]), force_end());
            (void)load_judge(load, 0, REST_MS);
            assert_no_step_repeated(prefix);
        }
    }
}

/* --- D3: report, deadline and cancel at once -------------------------------------------------- */

enum { RACES = 40, CANCELLERS = 8, DEADLINE_MS = 1000 };

struct race { /* one group of sagas that start one after the other */
    int64_t started_ms[RACES];
    int codes[RACES]; /* of their cancels */
    int round;
    atomic_int next;
};
static atomic_int told; /* calls that were answered with an error of the database */

static void race_id(char ret[32], int round, int i)
{
    (void)snprintf(ret, 32, "race%d-%d", round, i);
}

/* The code of a call, which is repeated while the answer is an error of the database. */
static int call(const char *method, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *reply_type)
{
    for (;;) {
        struct client_failure failure = { .code = 0 };
        ProtobufCMessage *reply = NULL;
        struct err err;
        if (client_call_explained(rig.client, method, request, reply_type, RIG_CALL_MS, &reply,
                                  &failure, &err) == 0) {
            protobuf_c_message_free_unpacked(reply, NULL);
            return 0;
        }
        int code = failure.code;
        client_failure_done(&failure);
        if (strcmp(client_code_name(code), "ABORTED") != 0 &&
            strcmp(client_code_name(code), "UNAVAILABLE") != 0)
            return code;
        atomic_fetch_add(&told, 1);
    }
}

static int start(const char *id, const char *script)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow("race");
    request.saga_id = rig_borrow(id);
    request.input.data = (uint8_t *)rig_borrow(script);
    request.input.len = strlen(script);
    return call("/saga.v1.SagaService/StartSaga", &request.base,
                &saga__v1__start_saga_response__descriptor);
}

static int cancel(const char *id)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    ref.definition = rig_borrow("race");
    ref.saga_id = rig_borrow(id);
    request.saga = &ref;
    request.actor = rig_borrow("tester");
    request.reason = rig_borrow("a race");
    return call("/saga.v1.SagaService/CancelSaga", &request.base, &saga__v1__saga__descriptor);
}

/* Cancels each saga at the moment of its deadline. */
static void *cancel_some(void *ctx)
{
    struct race *race = ctx;
    for (int i; (i = atomic_fetch_add(&race->next, 1)) < RACES;) {
        char id[32];
        race_id(id, race->round, i);
        int64_t wait = race->started_ms[i] + DEADLINE_MS - clock_mono_ms(&clock_system);
        if (wait > 0)
            wait_ms(wait);
        race->codes[i] = cancel(id);
    }
    return NULL;
}

static void judge_race(const struct race *race, int i)
{
    char id[32], state[64];
    race_id(id, race->round, i);
    rig_text(&rig, RIG_STORE, state, sizeof state,
             "SELECT state || ' ' || (SELECT count(*) FROM journal j WHERE kind = 'COMPENSATE'"
             " AND j.shard = saga.shard AND j.saga_uid = saga.saga_uid)"
             " FROM saga WHERE saga_id = '%s'",
             id);
    bool succeeded = strcmp(state, "SUCCEEDED 0") == 0;
    if (!succeeded && strcmp(state, "COMPENSATED 1") != 0)
        fail_msg("%s: %s", id, state);
    const char *code = client_code_name(race->codes[i]);
    /* Yes: it was turned back. Too late: it ended one way or the other. */
    if (race->codes[i] == 0 ? succeeded : strcmp(code, "FAILED_PRECONDITION") != 0)
        fail_msg("%s: %s, but its cancel was answered %s", id, state, code);
    for (const char *step = "a\0b\0"; *step; step += 2)
        assert_int_equal(rig_effects(&rig, id, step, "A") - rig_effects(&rig, id, step, "C"),
                         succeeded ? 1 : 0);
}

static void run_race(int round)
{
    static struct race race;
    pthread_t threads[CANCELLERS];
    race = (struct race){ .round = round };
    for (int i = 0; i < RACES; i++) {
        char id[32], script[64];
        /* The report comes a little before, at, or after the deadline. */
        (void)snprintf(script, sizeof script, "b A 1 sleep=%d guarded\n* * * guarded",
                       DEADLINE_MS - 24 + i % 8 * 4);
        race_id(id, round, i);
        assert_int_equal(start(id, script), 0);
        race.started_ms[i] = clock_mono_ms(&clock_system);
    }
    for (int i = 0; i < CANCELLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, cancel_some, &race), 0);
    for (int i = 0; i < CANCELLERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    rig_await(&rig, RIG_STORE, "0", REST_MS,
              "SELECT count(*) FROM saga WHERE saga_id LIKE 'race%d-%%'"
              " AND state NOT IN ('SUCCEEDED', 'COMPENSATED')",
              round);
    for (int i = 0; i < RACES; i++)
        judge_race(&race, i);
}

static void test_d3_report_deadline_and_cancel_end_together(void **state)
{
    (void)state;
    PROVES("P2 P5 P6");
    int rounds = test_is_full_size() ? 25 : 2;
    (void)rig_worker_threads(&rig, "one", "act:32 undo:8", 32); /* the rig owns them */
    (void)rig_worker_threads(&rig, "two", "act:32 undo:8", 32);
    for (int round = 0; round < rounds; round++) {
        force("40001", "INSERT OR UPDATE", round % 2 == 0 ? 0 : 20, false);
        run_race(round);
        proof_fault("40001 while a report, the deadline and a cancel end together", force_end());
    }
    assert_no_step_repeated("race");
    /* Retried inside: no client hears of it. */
    assert_int_equal(atomic_load(&told), 0);
    print_message("%d races: %d succeeded\n", rounds * RACES,
                  (int)rig_count(&rig, RIG_STORE,
                                 "SELECT count(*) FROM saga WHERE definition = 'race'"
                                 " AND state = 'SUCCEEDED'"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_d3_p2_p8_errors_of_the_database_are_no_outcomes),
        TEST(test_d3_report_deadline_and_cancel_end_together),
    };
    for (size_t i = 0; i < ARRAY_LEN(forced); i++)
        proof_fault(forced_name(&forced[i]), 0);
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
