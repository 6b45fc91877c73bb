/* Both stories of the demo while everything dies: N settlements over a bank in PostgreSQL and N
 * fulfilments over a shop in MariaDB. Goal: no effect is there twice and none is lost, whatever is
 * killed or stands still, and although requests land late, replies get lost and keys are forgotten.
 * Method: the demo's own programs; kill -9 and SIGSTOP of sagad and of workers, kill -9 of MariaDB;
 * the judge is the demo's audit of what the third parties' own logs, the bank and the shop hold
 * (demo_driver verdict). */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/command.h"
#include "support/mariadb.h"
#include "support/proof.h"
#include "support/rig.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>

enum {
    WORKERS = 2, /* of each story */
    START_MS = 30000,
    AUDIT_MS = 30000,
    AGAIN_MS = 2000,
    STILL_MS = 7000,  /* longer than a lease */
    KEY_SECONDS = 15, /* the window of FulfilmentExpress */
};

enum story_id { SETTLEMENT, FULFILMENT, STORIES };

static struct stage {
    struct test_mariadb *mariadb;
    struct test_process *risk, *logistics, *redis;
    struct test_process *workers[STORIES][WORKERS];
    char bank[POSTGRES_CONNINFO_SIZE], risk_log[SCRATCH_PATH_SIZE];
    char logistics_log[SCRATCH_PATH_SIZE], redis_socket[SCRATCH_PATH_SIZE];
    char risk_address[64], logistics_address[64];
    int workers_started;
} stage;

static const char bank_sql[] = SOURCE_DIR "/workers/demo/bank.sql";
static struct rig rig = { .server_args = { "--resend-grace", "500ms", "--stream-lost", "500ms" } };
static struct rng rng;

/* --- the stage -------------------------------------------------------------------------------- */

/* A program that says where it serves. */
static int service_start(const char *const *argv, struct test_process **ret, char *ret_address,
                         size_t size, struct err *err)
{
    static const char serving[] = "serving on ";
    char line[256];
    if (test_process_run(argv, ret, err) ||
        test_process_wait_output(*ret, serving, START_MS, line, sizeof line, err))
        return (int)err->code;
    (void)snprintf(ret_address, size, "%s", strstr(line, serving) + sizeof serving - 1); /* fits */
    return 0;
}

static int services_start(struct err *err)
{
    if (scratch_path("risk.effects", stage.risk_log, err) ||
        scratch_path("logistics.effects", stage.logistics_log, err))
        return (int)err->code;
    char seconds[16];
    (void)snprintf(seconds, sizeof seconds, "%d", KEY_SECONDS);
    const char *const risk[] = { RISK_SERVICE, "--listen",     "127.0.0.1:0",
                                 "--log",      stage.risk_log, NULL };
    const char *const logistics[] = {
        LOGISTICS_SERVICE,   "--listen",           "127.0.0.1:0", "--log",
        stage.logistics_log, "--remember-seconds", seconds,       NULL
    };
    if (service_start(risk, &stage.risk, stage.risk_address, sizeof stage.risk_address, err))
        return (int)err->code;
    return service_start(logistics, &stage.logistics, stage.logistics_address,
                         sizeof stage.logistics_address, err);
}

static int bank_create(struct err *err)
{
    const char *folder = getenv("SAGAD_PG_BIN");
    char psql[SCRATCH_PATH_SIZE], port[16];
    (void)snprintf(psql, sizeof psql, "%s/psql", /* one that is cut does not start */
                   folder && *folder ? folder : "/usr/lib/postgresql/15/bin");
    (void)snprintf(port, sizeof port, "%d", test_postgres_port(rig.postgres));
    const char *const argv[] = { psql,
                                 "-X",
                                 "-q",
                                 "-h",
                                 test_postgres_socket_dir(rig.postgres),
                                 "-p",
                                 port,
                                 "-U",
                                 "postgres",
                                 "-d",
                                 "demo",
                                 "-v",
                                 "ON_ERROR_STOP=1",
                                 "-f",
                                 bank_sql,
                                 NULL };
    const struct test_process_options options = { .argv = argv };
    int rc = test_postgres_createdb(rig.postgres, "demo", stage.bank, err);
    return rc ? rc : test_process_must_succeed(&options, START_MS, err);
}

static int shop_create(struct err *err)
{
    static const struct {
        const char *name, *script;
    } databases[] = { { "shop", SOURCE_DIR "/workers/demo/shop.sql" },
                      { "warehouse", SOURCE_DIR "/workers/demo/warehouse.sql" } };
    int rc = test_mariadb_start(NULL, &stage.mariadb, err);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(databases); i++) {
        const char *name = databases[i].name;
        rc = test_mariadb_createdb(stage.mariadb, name, err);
        if (rc == 0)
            rc = test_mariadb_script(stage.mariadb, name, SOURCE_DIR "/sql/guard/mysql.sql", NULL,
                                     err);
        if (rc == 0)
            rc = test_mariadb_script(stage.mariadb, name, databases[i].script, NULL, err);
    }
    return rc;
}

static int cache_start(struct err *err)
{
    if (scratch_path("redis", stage.redis_socket, err))
        return (int)err->code;
    const char *const argv[] = { "/usr/bin/redis-server", "--port", "0", "--unixsocket",
                                 stage.redis_socket,      "--save", "",  NULL };
    int rc = test_process_run(argv, &stage.redis, err);
    return rc ? rc
              : test_process_wait_output(stage.redis, "eady to accept connections", START_MS, NULL,
                                         0, err);
}

static int setup(void **state)
{
    (void)state;
    struct err err;
    rng_seed(&rng, proof_seed());
    if (rig_up(&rig) != 0)
        return -1;
    SETUP_OK(bank_create(&err), &err);
    SETUP_OK(shop_create(&err), &err);
    SETUP_OK(cache_start(&err), &err);
    SETUP_OK(services_start(&err), &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < WORKERS; i++) {
        for (int story = 0; story < STORIES; story++)
            stage.workers[story][i] = test_process_free(stage.workers[story][i]);
    }
    stage.logistics = test_process_free(stage.logistics);
    stage.risk = test_process_free(stage.risk);
    stage.redis = test_process_free(stage.redis);
    stage.mariadb = test_mariadb_free(stage.mariadb);
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

static void define(const char *file)
{
    char path[512];
    (void)snprintf(path, sizeof path, SOURCE_DIR "/workers/demo/%s", file); /* fits */
    const char *const argv[] = { SAGACTL_BINARY, "--address", rig.address, "definition",
                                 "apply",        path,        NULL };
    command_expect(argv, NULL, 0, NULL);
}

/* --- workers ---------------------------------------------------------------------------------- */

static void worker_start(enum story_id story, int i)
{
    char id[32];
    (void)snprintf(id, sizeof id, "%s-%d", story == SETTLEMENT ? "settler" : "shipper",
                   ++stage.workers_started); /* fits */
    const char *const settler[] = { SETTLEMENT_WORKER,  "--id",   id,         "--sagad",
                                    rig.address,        "--bank", stage.bank, "--risk",
                                    stage.risk_address, NULL };
    const char *const shipper[] = { FULFILMENT_WORKER,
                                    "--id",
                                    id,
                                    "--sagad",
                                    rig.address,
                                    "--shop",
                                    test_mariadb_socket(stage.mariadb),
                                    "--logistics",
                                    stage.logistics_address,
                                    "--cache",
                                    stage.redis_socket,
                                    NULL };
    struct err err;
    struct test_process **worker = &stage.workers[story][i];
    const struct test_process_options options = { .name = id,
                                                  .argv = story == SETTLEMENT ? settler : shipper };
    ASSERT_OK(test_process_start(&options, worker, &err), &err);
    ASSERT_OK(test_process_wait_output(*worker, "serving as", START_MS, NULL, 0, &err), &err);
}

/* --- drivers ---------------------------------------------------------------------------------- */

enum { NUMBER_SIZE = 16 };

struct driver {
    struct test_process *process;
    char count[NUMBER_SIZE];
};

static const char *const stories[STORIES] = { "settlement", "fulfilment" };

static void driver_start(struct driver *driver, enum story_id story, int count, int seconds,
                         int limit_seconds)
{
    char start[NUMBER_SIZE], limit[NUMBER_SIZE];
    (void)snprintf(driver->count, sizeof driver->count, "%d", count);
    (void)snprintf(start, sizeof start, "%d", seconds);
    (void)snprintf(limit, sizeof limit, "%d", limit_seconds);
    const char *const argv[] = { DEMO_DRIVER, stories[story],    "run",         "--sagad",
                                 rig.address, "--count",         driver->count, "--start-seconds",
                                 start,       "--limit-seconds", limit,         NULL };
    struct err err;
    const struct test_process_options options = { .name = stories[story], .argv = argv };
    ASSERT_OK(test_process_start(&options, &driver->process, &err), &err);
}

static struct command driver_verdict(const struct driver *driver, enum story_id story)
{
    const char *const settlement[] = { DEMO_DRIVER, "settlement", "verdict",      "--sagad",
                                       rig.address, "--count",    driver->count,  "--bank",
                                       stage.bank,  "--risk-log", stage.risk_log, NULL };
    const char *const fulfilment[] = { DEMO_DRIVER,
                                       "fulfilment",
                                       "verdict",
                                       "--sagad",
                                       rig.address,
                                       "--count",
                                       driver->count,
                                       "--shop",
                                       test_mariadb_socket(stage.mariadb),
                                       "--logistics-log",
                                       stage.logistics_log,
                                       "--cache",
                                       stage.redis_socket,
                                       NULL };
    return command_run(story == SETTLEMENT ? settlement : fulfilment, NULL);
}

/* What is known of the first key that a verdict complains of. */
static void explain(enum story_id story, const char *verdict)
{
    const char *key = strstr(verdict, story == SETTLEMENT ? "stl-" : "ord-");
    char id[16] = "", text[8192], line[512];
    if (key)
        (void)snprintf(id, sizeof id, "%.10s", key); /* "ord-000001" */
    print_error("%s\n",
                rig_text(&rig, RIG_STORE, text, sizeof text,
                         "SELECT string_agg(concat_ws(' ', seq, kind, operation, step, try, worker,"
                         " leased_at, outcome, finished_at, error_code), E'\n' ORDER BY seq)"
                         " FROM journal JOIN saga USING (shard, saga_uid) WHERE saga_id = '%s'",
                         id));
    FILE *log = fopen(story == SETTLEMENT ? stage.risk_log : stage.logistics_log, "re");
    while (*id && log && fgets(line, sizeof line, log)) {
        if (strstr(line, id))
            print_error("%s", line);
    }
    if (log)
        (void)fclose(log); /* only read */
}

/* Whatever died: what was taken back was in the right order, and beside no action (P5). */
static void judge_branches(const struct driver *driver)
{
    const char *const argv[] = { DEMO_DRIVER, "fulfilment", "branches",    "--sagad",
                                 rig.address, "--count",    driver->count, NULL };
    command_expect(argv, NULL, 0, "cancelled ones were taken back in reverse order");
}

/* A worker that stood still may have something to say when the drivers have ended. */
static void judge(const struct driver *driver, enum story_id story)
{
    int64_t until = clock_mono_ms(&clock_system) + AUDIT_MS;
    for (;;) {
        struct command verdict = driver_verdict(driver, story);
        bool right = verdict.exit_code == 0, late = clock_mono_ms(&clock_system) > until;
        if (right)
            print_message("%s", verdict.output);
        if (!right && late) {
            explain(story, verdict.output);
            fail_msg("%s: exit code %d\n%s", stories[story], verdict.exit_code, verdict.output);
        }
        command_done(&verdict);
        if (right)
            return;
        wait_ms(AGAIN_MS);
    }
}

static void driver_end(struct driver *driver, int64_t limit_ms)
{
    struct err err;
    int status;
    ASSERT_OK(test_process_wait(driver->process, limit_ms, &status, &err), &err);
    CLEANUP(mem_free_p) char *output = test_process_output(driver->process);
    if (status != 0)
        fail_msg("%s", output ? output : "no output");
    driver->process = test_process_free(driver->process);
}

/* --- strikes ---------------------------------------------------------------------------------- */

enum strike {
    STRIKE_SAGAD_KILL,
    STRIKE_SAGAD_STILL,
    STRIKE_SETTLER_KILL,
    STRIKE_SHIPPER_KILL,
    STRIKE_WORKERS_STILL,
    STRIKE_MARIADB_KILL,
    STRIKE_COUNT
};
static const char *const strike_names[STRIKE_COUNT] = {
    [STRIKE_SAGAD_KILL] = "stories: kill -9 of sagad",
    [STRIKE_SAGAD_STILL] = "stories: SIGSTOP of sagad",
    [STRIKE_SETTLER_KILL] = "stories: kill -9 of a settlement worker",
    [STRIKE_SHIPPER_KILL] = "stories: kill -9 of a fulfilment worker",
    [STRIKE_WORKERS_STILL] = "stories: SIGSTOP of a worker of each story",
    [STRIKE_MARIADB_KILL] = "stories: kill -9 of MariaDB",
};
static const char late_landing[] = "stories: a request landed after a probe had not found it";
static const char lost_request[] = "stories: a request that never arrived was sent again";
static const char window_over[] = "stories: an unknown outcome past its idempotency window";

static void signal_workers(int i, int signal_number)
{
    for (int story = 0; story < STORIES; story++)
        rig_worker_signal(stage.workers[story][i], signal_number);
}

static void worker_kill(enum story_id story)
{
    int i = (int)rng_below(&rng, WORKERS);
    stage.workers[story][i] = test_process_free(stage.workers[story][i]);
    wait_ms((int64_t)rng_below(&rng, 1000));
    worker_start(story, i);
}

static void strike(enum strike kind)
{
    struct err err;
    int i = (int)rng_below(&rng, WORKERS);
    switch (kind) {
    case STRIKE_SAGAD_KILL:
        rig_server_kill(&rig);
        wait_ms((int64_t)rng_below(&rng, 1000));
        rig_server_start(&rig);
        break;
    case STRIKE_SAGAD_STILL:
        ASSERT_OK(test_process_signal(rig.sagad, SIGSTOP, &err), &err);
        wait_ms(STILL_MS);
        ASSERT_OK(test_process_signal(rig.sagad, SIGCONT, &err), &err);
        break;
    case STRIKE_WORKERS_STILL:
        signal_workers(i, SIGSTOP);
        wait_ms(STILL_MS);
        signal_workers(i, SIGCONT);
        break;
    case STRIKE_MARIADB_KILL:
        test_mariadb_kill(stage.mariadb);
        ASSERT_OK(test_mariadb_restart(stage.mariadb, &err), &err);
        break;
    default:
        worker_kill(kind == STRIKE_SETTLER_KILL ? SETTLEMENT : FULFILMENT);
        break;
    }
    proof_fault(strike_names[kind], 1);
    wait_ms(1000 + (int64_t)rng_below(&rng, 2000));
}

/* Each kind once, in a random order. */
static void strike_all(void)
{
    enum strike kinds[STRIKE_COUNT];
    for (int i = 0; i < STRIKE_COUNT; i++)
        kinds[i] = (enum strike)i;
    for (size_t left = STRIKE_COUNT; left > 0; left--) {
        size_t i = rng_below(&rng, left);
        strike(kinds[i]);
        kinds[i] = kinds[left - 1];
    }
}

/* What the awkward third party did, by the journal. */
static void count_awkward(void)
{
    static const char probed[] =
        "SELECT count(*) FROM (SELECT bool_or(operation = 'PROBE' AND outcome = 'NOT_DONE') AS no,"
        " bool_or(operation = 'PROBE' AND outcome = 'DONE') AS yes,"
        " count(*) FILTER (WHERE step = 'create_waybill' AND operation = 'ACTION') AS calls"
        " FROM journal JOIN saga USING (shard, saga_uid) WHERE definition = 'fulfilment'"
        " AND kind = 'LEASE' GROUP BY saga_uid) each WHERE no AND ";
    proof_fault(late_landing, rig_count(&rig, RIG_STORE, "%s yes AND calls = 1", probed));
    proof_fault(lost_request, rig_count(&rig, RIG_STORE, "%s calls > 1", probed));
    proof_fault(window_over, rig_count(&rig, RIG_STORE,
                                       "SELECT count(*) FROM saga WHERE park_reason ="
                                       " 'IDEMPOTENCY_WINDOW_OVER'"));
}

static void test_p1_p2_p3_p4_p5_p8_nothing_doubled_and_nothing_lost(void **state)
{
    (void)state;
    bool full = test_is_full_size();
    int count = full ? 2000 : 100, seconds = full ? 240 : 30, limit_s = full ? 600 : 150;
    struct driver drivers[STORIES];
    PROVES("P1 P2 P3 P4 P5 P8");
    define("settlement.proto");
    define("fulfilment.proto");
    for (int story = 0; story < STORIES; story++) {
        for (int i = 0; i < WORKERS; i++)
            worker_start((enum story_id)story, i);
        driver_start(&drivers[story], (enum story_id)story, count, seconds, limit_s);
    }
    int64_t until = clock_mono_ms(&clock_system) + (int64_t)seconds * 1000;
    wait_ms(2000);
    do
        strike_all();
    while (clock_mono_ms(&clock_system) < until);
    for (int story = 0; story < STORIES; story++)
        driver_end(&drivers[story], (int64_t)limit_s * 1000);
    for (int story = 0; story < STORIES; story++)
        judge(&drivers[story], (enum story_id)story);
    judge_branches(&drivers[FULFILMENT]);
    count_awkward();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_p1_p2_p3_p4_p5_p8_nothing_doubled_and_nothing_lost, check),
    };
    for (int i = 0; i < STRIKE_COUNT; i++)
        proof_fault(strike_names[i], 0);
    proof_fault(late_landing, 0);
    proof_fault(lost_request, 0);
    proof_fault(window_over, 0);
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
