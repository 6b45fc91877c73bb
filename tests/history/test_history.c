/* Goal: what clients and workers were told stays true: no acknowledged start is lost, one saga for
 * each key to everybody, an acknowledged report or cancel and what follows is seen by whoever asks
 * later, at any node (P1, P2). Method: callers and reporters at two sagads, each behind a proxy
 * to PostgreSQL; sagads and the postmaster are killed, connections cut around COMMIT and in
 * results; every call is logged with its times, and the log is judged together with the final
 * database. */
#include "reporter.h"

#include "base/clock.h"
#include "base/mem.h"
#include "judge.h"
#include "support/proof.h"
#include "support/rig.h"
#include "support/scratch.h"
#include "support/wait.h"

#include "../fault/proxy.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    NODES = 2,
    CALLERS = 6,
    REPORTERS = 4,
    OKS_MIN = 1000,
    AHEAD = 500, /* sagas that callers start before reporters got on */
    REST_MS = 90000,
    DATABASE_SIZE = 128,
};

struct calling {
    struct caller caller;
    pthread_t thread;
    bool started;
};

static char databases[NODES][DATABASE_SIZE];
static struct rig rigs[NODES] = {
    { .node = "one",
      .server_args = { "--heartbeat", "0.2s", "--node-dead", "2s", "--resend-grace", "1s",
                       "--stream-lost", "1s" } },
    { .node = "two",
      .server_args = { "--heartbeat", "0.2s", "--node-dead", "2s", "--resend-grace", "1s",
                       "--stream-lost", "1s" } },
};
static struct proxy *proxies[NODES];
static struct world world;
static struct calling callings[CALLERS];
static struct reporter reporters[REPORTERS];
static struct rng rng;
static char log_path[SCRATCH_PATH_SIZE];

/* --- up and down ------------------------------------------------------------------------------ */

static int setup(void **state)
{
    (void)state;
    struct err err;
    rng_seed(&rng, proof_seed());
    if (rig_databases_up(&rigs[0]) != 0)
        return -1;
    for (size_t i = 0; i < NODES; i++) {
        if (i > 0 && rig_node_prepare(&rigs[i], &rigs[0]) != 0)
            return -1;
        SETUP_OK(
            proxy_start(test_postgres_port(rigs[0].postgres), rng_next(&rng), &proxies[i], &err),
            &err);
        (void)snprintf(databases[i], sizeof databases[i],
                       "host=127.0.0.1 port=%d dbname=store user=postgres sslmode=disable",
                       proxy_port(proxies[i]));
        rigs[i].server_database = databases[i];
        if (rig_server_up(&rigs[i]) != 0)
            return -1;
        world.addresses[world.nodes++] = rigs[i].address;
    }
    rig_define(&rigs[0], WORLD_DEFINITION, NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: ONCE | IDEMPOTENT | guarded\n"
               "c: IDEMPOTENT | IDEMPOTENT | guarded");
    SETUP_OK(scratch_path("history.log", log_path, &err), &err);
    SETUP_OK(history_log_open(log_path, &world.log, &err), &err);
    return 0;
}

static void callers_join(void)
{
    atomic_store(&world.stop, true);
    for (size_t i = 0; i < CALLERS; i++) {
        if (callings[i].started)
            (void)pthread_join(callings[i].thread, NULL); /* started once, joined once */
        callings[i].started = false;
        caller_done(&callings[i].caller);
    }
}

static void reporters_join(void)
{
    atomic_store(&world.leave, true);
    for (size_t i = 0; i < REPORTERS; i++)
        reporter_join(&reporters[i]);
}

static int teardown(void **state)
{
    (void)state;
    callers_join();
    reporters_join();
    world.log = history_log_close(world.log);
    (void)rig_node_down(&rigs[1]); /* always 0 */
    int rc = rig_down(&rigs[0]);
    for (size_t i = 0; i < NODES; i++)
        proxies[i] = proxy_free(proxies[i]);
    return rc;
}

/* --- callers ---------------------------------------------------------------------------------- */

/* One of the last keys that somebody began to start. */
static void some_key(struct caller *caller, char key[HISTORY_TEXT_SIZE])
{
    enum { RECENT = 30 };
    int64_t next = atomic_load(&world.next_key);
    int64_t back = (int64_t)rng_below(&caller->rng, RECENT) + 1;
    (void)snprintf(key, HISTORY_TEXT_SIZE, "h%" PRId64, back > next ? 0 : next - back);
}

static void start_something(struct caller *caller, size_t node)
{
    enum { MANY = 6 };
    char key[HISTORY_TEXT_SIZE];
    bool ahead = atomic_load(&world.next_key) > AHEAD + atomic_load(&world.acks) / 3;
    if (ahead || rng_below(&caller->rng, 4) == 0) { /* one that is there, or is just coming */
        some_key(caller, key);
        caller_start(caller, node, key, rng_below(&caller->rng, 8) == 0);
    } else if (rng_below(&caller->rng, 4) == 0) {
        int64_t first = atomic_fetch_add(&world.next_key, MANY);
        caller_start_batch(caller, node, first, MANY);
    } else {
        int64_t number = atomic_fetch_add(&world.next_key, 1);
        (void)snprintf(key, sizeof key, "h%" PRId64, number);
        caller_start(caller, node, key, (int)rng_below(&caller->rng, WORLD_INPUTS));
        if (rng_below(&caller->rng, 3) == 0)
            caller_get(caller, caller_some_node(caller), key);
    }
}

static void call_something(struct caller *caller)
{
    char key[HISTORY_TEXT_SIZE];
    size_t node = caller_some_node(caller);
    some_key(caller, key);
    switch (rng_below(&caller->rng, 8)) {
    case 0:
        caller_cancel(caller, node, key);
        if (rng_below(&caller->rng, 2) == 0)
            caller_get(caller, caller_some_node(caller), key);
        break;
    case 1:
        caller_get(caller, node, key);
        break;
    case 2:
        caller_journal(caller, node, key);
        break;
    case 3:
        caller_wait(caller, node, key, (int64_t)rng_below(&caller->rng, 300) + 1);
        break;
    default:
        start_something(caller, node);
    }
}

static void *calling_run(void *ctx)
{
    struct calling *calling = ctx;
    while (!atomic_load(&world.stop))
        call_something(&calling->caller);
    return NULL;
}

/* --- faults ----------------------------------------------------------------------------------- */

static void kill_a_node(void)
{
    struct rig *rig = &rigs[rng_below(&rng, NODES)];
    rig_server_kill(rig);
    proof_fault("history: kill -9 of a node", 1);
    wait_ms((int64_t)rng_below(&rng, 1500));
    rig_server_start(rig);
}

static void kill_the_database(void)
{
    struct err err;
    test_postgres_kill(rigs[0].postgres);
    proof_fault("history: postmaster killed", 1);
    ASSERT_OK(test_postgres_restart(rigs[0].postgres, &err), &err);
}

/* Until it hit, or nothing is committed any more. */
static void cut_at(enum proxy_fault fault)
{
    enum { HIT_MS = 2000 };
    struct proxy *proxy = proxies[rng_below(&rng, NODES)];
    int64_t hits = proxy_hits(proxy, fault), until = clock_mono_ms(&clock_system) + HIT_MS;
    proxy_arm(proxy, fault, NULL, 1 + (int64_t)rng_below(&rng, 10));
    while (proxy_hits(proxy, fault) == hits && clock_mono_ms(&clock_system) < until)
        wait_ms(2);
}

static void faults_for(int64_t ms)
{
    static const struct {
        enum proxy_fault fault;
        const char *name;
    } cuts[] = {
        { PROXY_CUT_BEFORE_COMMIT, "history: cut before COMMIT arrives" },
        { PROXY_CUT_AFTER_COMMIT, "history: cut after COMMIT ran" },
        { PROXY_ROLLBACK_FOR_COMMIT, "history: COMMIT answered ROLLBACK" },
        { PROXY_CUT_IN_RESULT, "history: cut in a result" },
    };
    int64_t until = clock_mono_ms(&clock_system) + ms;
    for (int round = 0; clock_mono_ms(&clock_system) < until; round++) {
        wait_ms(100 + (int64_t)rng_below(&rng, 300));
        size_t turn = (size_t)round % (ARRAY_LEN(cuts) + 1);
        if (turn < ARRAY_LEN(cuts))
            cut_at(cuts[turn].fault);
        else if ((size_t)round / (ARRAY_LEN(cuts) + 1) % 2)
            kill_the_database();
        else
            kill_a_node();
    }
    for (size_t cut = 0; cut < ARRAY_LEN(cuts); cut++)
        for (size_t i = 0; i < NODES; i++)
            proof_fault(cuts[cut].name, proxy_hits(proxies[i], cuts[cut].fault));
}

/* --- the end ---------------------------------------------------------------------------------- */

static void set_column(char field[HISTORY_TEXT_SIZE], const PGresult *rows, int row, int column)
{
    (void)snprintf(field, HISTORY_TEXT_SIZE, "%s", PQgetvalue(rows, row, column));
}

static PGresult *select_all(PGconn *conn, const char *sql)
{
    PGresult *rows = PQexec(conn, sql);
    if (PQresultStatus(rows) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    return rows;
}

static void note_final(void)
{
    struct history_call call;
    PGconn *conn = rig_connect(&rigs[0], RIG_STORE);
    PGresult *rows = select_all(conn, "SELECT saga_id, saga_uid, run, state, phase,"
                                      " convert_from(input, 'UTF8') FROM saga WHERE definition ="
                                      " '" WORLD_DEFINITION "'");
    for (int i = 0; i < PQntuples(rows); i++) {
        history_call_init(&call, HISTORY_SAGA);
        set_column(call.key, rows, i, 0);
        set_column(call.uid, rows, i, 1);
        call.run = strtoll(PQgetvalue(rows, i, 2), NULL, 10);
        set_column(call.state, rows, i, 3);
        set_column(call.phase, rows, i, 4);
        set_column(call.input, rows, i, 5);
        history_note(world.log, &call);
    }
    PQclear(rows);
    rows = select_all(conn, "SELECT saga_id, saga_uid, seq, kind, j.step, outcome, about"
                            " FROM journal j JOIN saga s USING (shard, saga_uid)"
                            " WHERE s.definition = '" WORLD_DEFINITION "' ORDER BY saga_id, seq");
    for (int i = 0; i < PQntuples(rows); i++) {
        history_call_init(&call, HISTORY_ENTRY);
        set_column(call.key, rows, i, 0);
        set_column(call.uid, rows, i, 1);
        call.seq = strtoll(PQgetvalue(rows, i, 2), NULL, 10);
        set_column(call.kind, rows, i, 3);
        set_column(call.step, rows, i, 4);
        set_column(call.outcome, rows, i, 5);
        if (!PQgetisnull(rows, i, 6))
            call.about = strtoll(PQgetvalue(rows, i, 6), NULL, 10);
        history_note(world.log, &call);
    }
    PQclear(rows);
    PQfinish(conn);
}

/* The log outlives the run that it condemns. */
static void keep_log(void)
{
    char path[SCRATCH_PATH_SIZE], command[3 * SCRATCH_PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/history-%" PRIu64 ".log", BUILD_DIR, proof_seed());
    (void)snprintf(command, sizeof command, "cp '%s' '%s'", log_path, path);
    print_error("the history is %s\n", system(command) == 0 ? path : log_path);
}

static void judge_all(void)
{
    struct history history;
    struct judge_verdict verdict;
    struct err err;
    ASSERT_OK(history_read(log_path, &history, &err), &err);
    ASSERT_OK(judge(&history, &verdict, &err), &err);
    judge_print(&verdict, stderr);
    int64_t ends[HISTORY_WHAT_COUNT][HISTORY_END_COUNT] = { { 0 } };
    for (size_t i = 0; i < history.count; i++)
        ends[history.calls[i].what][history.calls[i].end]++;
    for (int i = 0; i < HISTORY_TASK + 2; i++)
        print_message("%-8s %6" PRId64 " ok %6" PRId64 " fail %6" PRId64 " unknown %4" PRId64
                      " never answered\n",
                      history_what_names[i], ends[i][HISTORY_OK], ends[i][HISTORY_FAIL],
                      ends[i][HISTORY_UNKNOWN], ends[i][HISTORY_OPEN]);
    print_message("%zu keys, %" PRId64 " ok, %zu violations\n", verdict.keys, verdict.oks,
                  verdict.total);
    bool enough = verdict.oks >= OKS_MIN;
    for (int i = 0; i <= HISTORY_REPORT; i++)
        enough = enough && ends[i][HISTORY_OK] > 20;
    if (verdict.total != 0)
        keep_log();
    history_done(&history);
    assert_int_equal(verdict.total, 0);
    if (!enough)
        fail_msg("too few calls were answered for a verdict");
}

static void test_p1_p2_what_clients_were_told_stays_true_whatever_dies(void **state)
{
    (void)state;
    PROVES("P1 P2 P6 P8");
    for (size_t i = 0; i < REPORTERS; i++)
        assert_int_equal(reporter_start(&reporters[i], &world, 100 + (int64_t)i, rng_next(&rng)),
                         0);
    for (size_t i = 0; i < CALLERS; i++) {
        caller_init(&callings[i].caller, &world, (int64_t)i, rng_next(&rng));
        callings[i].started =
            pthread_create(&callings[i].thread, NULL, calling_run, &callings[i]) == 0;
        assert_true(callings[i].started);
    }
    faults_for(test_is_full_size() ? 150000 : 12000);
    callers_join();
    rig_await(&rigs[0], RIG_STORE, "0", REST_MS,
              "SELECT count(*) FROM saga WHERE state IN ('RUNNING', 'COMPENSATING')");
    reporters_join();
    proof_fault("history: a worker's stream is cut", atomic_load(&world.cuts));
    assert_int_equal(rig_count(&rigs[0], RIG_STORE,
                               "SELECT count(*) FROM saga WHERE state = 'PARKED'"
                               " AND (park_reason <> 'OUTCOME_UNKNOWN' OR park_step <> 'b')"),
                     0);
    note_final();
    world.log = history_log_close(world.log);
    judge_all();
    assert_int_equal(rig_check(&rigs[0]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p1_p2_what_clients_were_told_stays_true_whatever_dies),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
