/* bench: measures sagad on this machine and prints one JSON line (tests/bench/README.md says what
 * each figure is). It starts a PostgreSQL of its own with fsync on, then the yardstick, then sagad,
 * workers that do nothing and a load generator, one phase after the other.
 *
 *   bench [--quick]
 */
#include "base/clock.h"
#include "base/mem.h"
#include "ctl/client.h"
#include "support/ports.h"
#include "support/postgres.h"
#include "support/process.h"
#include "support/wait.h"

#include <saga/v1/definition.pb-c.h>

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { START_LIMIT_MS = 60000, RUN_LIMIT_MS = 900000, CALL_LIMIT_MS = 5000, LINE_SIZE = 1024 };

/* The same server for the yardstick and for sagad. */
static const char *const postgres_settings[] = {
    "shared_buffers=512MB", "max_wal_size=4GB",         "min_wal_size=1GB",
    "wal_compression=off",  "checkpoint_timeout=30min", NULL,
};

struct bench {
    struct test_postgres *postgres;
    struct test_process *sagad;
    char yardstick_database[POSTGRES_CONNINFO_SIZE], sagad_database[POSTGRES_CONNINFO_SIZE];
    char target[32];
    bool quick;
};

struct figures {
    double limit, commit_ms, commit_paced_p99_ms, commit_loaded_ms;
    double batch, unary;
    double cpu_us, cpu_us_unary, wal_bytes;
    double p50_ms, p99_ms, p99_window_ms;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, why); /* best effort */
    exit(1);
}

static void require(int rc, const struct err *err, const char *what)
{
    if (rc != 0)
        give_up(what, err->msg);
}

static void say(const char *what)
{
    (void)fprintf(stderr, "bench: %s\n", what); /* progress, best effort */
}

/* The program's last line, which must be a JSON object; the caller frees it. */
static json_t *last_line(const struct test_process *process, const char *what)
{
    CLEANUP(mem_free_p) char *output = test_process_output(process);
    if (!output)
        give_up(what, "no output");
    size_t size = strlen(output);
    while (size > 0 && output[size - 1] == '\n')
        output[--size] = '\0';
    const char *newline = strrchr(output, '\n');
    json_t *object = json_loads(newline ? newline + 1 : output, 0, NULL);
    if (!json_is_object(object))
        give_up(what, output);
    return object;
}

static double number_in(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value))
        give_up(name, "is missing in the output of a program");
    return json_number_value(value);
}

static struct test_process *start(const char *const *argv)
{
    struct test_process *process;
    struct err err;
    require(test_process_run(argv, &process, &err), &err, argv[0]);
    return process;
}

/* Waits for the end; its last line. */
static json_t *finish(struct test_process *process, const char *what)
{
    int status;
    struct err err;
    require(test_process_wait(process, RUN_LIMIT_MS, &status, &err), &err, what);
    if (status != 0) {
        CLEANUP(mem_free_p) char *output = test_process_output(process);
        give_up(what, output ? output : "failed");
    }
    json_t *object = last_line(process, what);
    (void)test_process_free(process); /* always NULL */
    return object;
}

static void checkpoint(struct bench *bench)
{
    struct err err;
    require(test_postgres_exec(bench->postgres, "postgres", "CHECKPOINT", &err), &err,
            "checkpoint");
}

static void measure_yardstick(struct bench *bench, struct figures *figures)
{
    const char *const commit[] = { PG_LIMIT, "--database", bench->yardstick_database, "--commit",
                                   NULL };
    const char *const paced[] = { PG_LIMIT,   "--database", bench->yardstick_database,
                                  "--commit", "--seconds",  "4",
                                  "--rate",   "500",        NULL };
    const char *const limit[] = {
        PG_LIMIT, "--database", bench->yardstick_database, "--seconds", bench->quick ? "4" : "15",
        NULL
    };
    say("the yardstick");
    json_t *object = finish(start(commit), "pg_limit --commit");
    figures->commit_ms = number_in(object, "commit_ms");
    json_decref(object);
    object = finish(start(paced), "pg_limit --commit --rate");
    figures->commit_paced_p99_ms = number_in(object, "commit_p99_ms");
    json_decref(object);
    object = finish(start(limit), "pg_limit");
    figures->limit = number_in(object, "pg_limit_sagas_per_s");
    json_decref(object);
}

/* --- sagad ----------------------------------------------------------------------------------- */

static int register_definition(struct client *client, struct err *err)
{
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    Saga__V1__SagaDefinition definition = SAGA__V1__SAGA_DEFINITION__INIT;
    Saga__V1__Step steps[3] = { SAGA__V1__STEP__INIT, SAGA__V1__STEP__INIT, SAGA__V1__STEP__INIT };
    Saga__V1__Operation actions[3] = { SAGA__V1__OPERATION__INIT, SAGA__V1__OPERATION__INIT,
                                       SAGA__V1__OPERATION__INIT };
    Saga__V1__Step *pointers[3];
    static const char *const names[] = { "one", "two", "three" };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        actions[i].effect = SAGA__V1__EFFECT__EFFECT_IDEMPOTENT;
        steps[i].name = (char *)names[i];
        steps[i].action = &actions[i];
        steps[i].undo_case = SAGA__V1__STEP__UNDO_NO_COMPENSATION;
        steps[i].no_compensation = true;
        pointers[i] = &steps[i];
    }
    definition.name = "bench";
    definition.n_steps = ARRAY_LEN(steps);
    definition.steps = pointers;
    request.definition = &definition;
    ProtobufCMessage *reply;
    int rc = client_call(client, "/saga.v1.DefinitionService/RegisterDefinition", &request.base,
                         &saga__v1__register_definition_response__descriptor, CALL_LIMIT_MS, &reply,
                         err);
    if (rc == 0)
        protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

static void sagad_start(struct bench *bench)
{
    const char *const argv[] = { SAGAD_BINARY,          "serve",    "--database",
                                 bench->sagad_database, "--listen", bench->target,
                                 "--log-level",         "warn",     NULL };
    struct client *client;
    struct err err;
    bench->sagad = start(argv);
    require(client_new(bench->target, &client, &err), &err, "client");
    int64_t end_ms = clock_mono_ms(&clock_system) + START_LIMIT_MS;
    while (register_definition(client, &err) != 0) {
        if (err.code != ERR_UNAVAILABLE || clock_mono_ms(&clock_system) > end_ms ||
            !test_process_running(bench->sagad))
            give_up("register", err.msg);
        wait_ms(50);
    }
    (void)client_free(client); /* always NULL */
}

/* User and system time of all its threads. */
static double cpu_us(struct test_process *process)
{
    char path[64], text[1024] = "";
    unsigned long user, system;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)test_process_pid(process)); /* fits */
    FILE *file = fopen(path, "re");
    if (!file || !fgets(text, sizeof(text), file))
        give_up(path, "cannot be read");
    (void)fclose(file); /* only read */
    /* The 14th and 15th field; the 2nd may hold blanks, but no ")" follows it. */
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system) != 2)
        give_up(path, "is not as expected");
    return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static double wal_bytes(struct bench *bench)
{
    struct err err;
    int64_t bytes;
    require(test_postgres_count(bench->postgres, "postgres",
                                "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint",
                                &bytes, &err),
            &err, "position of the log");
    return (double)bytes;
}

static struct test_process *worker_start(struct bench *bench)
{
    const char *const argv[] = { NOOP_WORKER, "--target", bench->target, NULL };
    return start(argv);
}

/* Ends it in good order; what it measured. */
static json_t *worker_stop(struct test_process *worker)
{
    struct err err;
    require(test_process_signal(worker, SIGTERM, &err), &err, "noop_worker");
    return finish(worker, "noop_worker");
}

/* Closed loop. Processor time and log are counted over the whole phase, the rate without its
 * beginning. */
static void measure_load(struct bench *bench, bool unary, double *ret_rate, double *ret_cpu_us,
                         double *ret_wal_bytes)
{
    const char *const batched_argv[] = { LOAD,
                                         "--target",
                                         bench->target,
                                         "--definition",
                                         "bench",
                                         "--calls",
                                         "4",
                                         "--batch",
                                         "128",
                                         "--run-ms",
                                         bench->quick ? "5000" : "20000",
                                         NULL };
    const char *const unary_argv[] = {
        LOAD,         "--target", bench->target, "--definition",
        "bench",      "--unary",  "--calls",     "256",
        "--channels", "2",        "--run-ms",    bench->quick ? "5000" : "20000",
        NULL
    };
    say(unary ? "sagad, unary starts" : "sagad, batched starts");
    struct test_process *worker = worker_start(bench);
    checkpoint(bench);
    double cpu_before = cpu_us(bench->sagad), wal_before = wal_bytes(bench);
    json_t *object = finish(start(unary ? unary_argv : batched_argv), "load");
    double cpu_after = cpu_us(bench->sagad), wal_after = wal_bytes(bench);
    double sagas = number_in(object, "sagas");
    *ret_rate = number_in(object, "sagas_per_s");
    *ret_cpu_us = (cpu_after - cpu_before) / sagas;
    *ret_wal_bytes = (wal_after - wal_before) / sagas;
    json_decref(object);
    json_decref(worker_stop(worker));
}

static void measure_time_per_step(struct bench *bench, struct figures *figures)
{
    const char *const argv[] = { LOAD,
                                 "--target",
                                 bench->target,
                                 "--definition",
                                 "bench",
                                 "--unary",
                                 "--rate",
                                 "500",
                                 "--warm-up-ms",
                                 "0",
                                 "--calls",
                                 "256",
                                 "--run-ms",
                                 bench->quick ? "8000" : "30000",
                                 NULL };
    say("sagad, 500 sagas a second");
    checkpoint(bench);
    const char *const commits[] = { PG_LIMIT,   "--database", bench->yardstick_database,
                                    "--commit", "--seconds",  bench->quick ? "7" : "28",
                                    NULL };
    struct test_process *worker = worker_start(bench);
    struct test_process *bystander = start(commits);
    json_decref(finish(start(argv), "load"));
    json_t *object = worker_stop(worker);
    figures->p50_ms = number_in(object, "p50_ms");
    figures->p99_ms = number_in(object, "p99_ms");
    figures->p99_window_ms = number_in(object, "p99_window_ms");
    json_decref(object);
    object = finish(bystander, "pg_limit --commit");
    figures->commit_loaded_ms = number_in(object, "commit_ms");
    json_decref(object);
}

static void set_up(struct bench *bench)
{
    struct err err;
    int port;
    require(test_postgres_start(postgres_settings, &bench->postgres, &err), &err, "postgres");
    require(test_postgres_createdb(bench->postgres, "yardstick", bench->yardstick_database, &err),
            &err, "database");
    require(test_postgres_createdb(bench->postgres, "sagad", bench->sagad_database, &err), &err,
            "database");
    require(free_port(&port, &err), &err, "port");
    (void)snprintf(bench->target, sizeof(bench->target), "127.0.0.1:%d", port); /* fits */
}

int main(int argc, char **argv)
{
    struct bench bench = { .quick = argc == 2 && strcmp(argv[1], "--quick") == 0 };
    struct figures figures = { 0 };
    double unused;
    if (argc > 2 || (argc == 2 && !bench.quick))
        give_up("usage", "bench [--quick]");
    set_up(&bench);
    measure_yardstick(&bench, &figures);
    sagad_start(&bench);
    measure_time_per_step(&bench, &figures);
    measure_load(&bench, false, &figures.batch, &figures.cpu_us, &figures.wal_bytes);
    measure_load(&bench, true, &figures.unary, &figures.cpu_us_unary, &unused);
    (void)test_process_free(bench.sagad);     /* always NULL */
    (void)test_postgres_free(bench.postgres); /* always NULL */
    (void)printf("{\"sagas_per_s\": %.0f, \"sagas_per_s_unary\": %.0f, "
                 "\"pg_limit_sagas_per_s\": %.0f, \"ratio\": %.3f, \"ratio_unary\": %.3f, "
                 "\"p50_ms\": %.2f, \"p99_ms\": %.2f, \"p99_window_ms\": %.2f, "
                 "\"commit_ms\": %.3f, \"commit_paced_p99_ms\": %.2f, \"commit_loaded_ms\": %.3f, "
                 "\"cpu_us_per_saga\": %.1f, \"cpu_us_per_saga_unary\": %.1f, "
                 "\"wal_bytes_per_saga\": %.0f}\n",
                 figures.batch, figures.unary, figures.limit, figures.batch / figures.limit,
                 figures.unary / figures.limit, figures.p50_ms, figures.p99_ms,
                 figures.p99_window_ms, figures.commit_ms, figures.commit_paced_p99_ms,
                 figures.commit_loaded_ms, figures.cpu_us, figures.cpu_us_unary,
                 figures.wal_bytes); /* best effort */
    return 0;
}
