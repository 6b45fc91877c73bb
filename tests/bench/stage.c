#include "stage.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/ports.h"
#include "support/wait.h"

#include <saga/v1/definition.pb-c.h>
#include <saga/v1/operator.pb-c.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_LIMIT_MS = 60000,
    RUN_LIMIT_MS = 900000,
    CALL_LIMIT_MS = 5000,
    /* A backend adds to the statistics once in a while, and sagad's say something every 2 s. */
    STATISTICS_MS = 3500,
};

/* The same server for the yardstick and for sagad. */
static const char *const postgres_settings[] = {
    "shared_buffers=512MB", "max_wal_size=4GB",         "min_wal_size=1GB",
    "wal_compression=off",  "checkpoint_timeout=30min", NULL,
};
static const char *program = "bench";

void stage_give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s: %s\n", program, what, why); /* best effort */
    exit(1);
}

void stage_require(int rc, const struct err *err, const char *what)
{
    if (rc != 0)
        stage_give_up(what, err->msg);
}

void stage_say(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", program, what); /* progress, best effort */
}

/* The program's last line, which must be a JSON object; the caller frees it. */
static json_t *last_line(const struct test_process *process, const char *what)
{
    CLEANUP(mem_free_p) char *output = test_process_output(process);
    if (!output)
        stage_give_up(what, "no output");
    size_t size = strlen(output);
    while (size > 0 && output[size - 1] == '\n')
        output[--size] = '\0';
    const char *newline = strrchr(output, '\n');
    json_t *object = json_loads(newline ? newline + 1 : output, 0, NULL);
    if (!json_is_object(object))
        stage_give_up(what, output);
    return object;
}

double stage_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value))
        stage_give_up(name, "is missing in the output of a program");
    return json_number_value(value);
}

struct test_process *stage_start(const char *const *argv)
{
    struct test_process *process;
    struct err err;
    stage_require(test_process_run(argv, &process, &err), &err, argv[0]);
    return process;
}

json_t *stage_finish(struct test_process *process, const char *what)
{
    int status;
    struct err err;
    stage_require(test_process_wait(process, RUN_LIMIT_MS, &status, &err), &err, what);
    if (status != 0) {
        CLEANUP(mem_free_p) char *output = test_process_output(process);
        stage_give_up(what, output ? output : "failed");
    }
    json_t *object = last_line(process, what);
    (void)test_process_free(process); /* always NULL */
    return object;
}

void stage_checkpoint(struct stage *stage)
{
    struct err err;
    stage_require(test_postgres_exec(stage->postgres, "postgres", "CHECKPOINT", &err), &err,
                  "checkpoint");
}

int64_t stage_count(struct stage *stage, const char *database, const char *sql)
{
    struct err err;
    int64_t count;
    stage_require(test_postgres_count(stage->postgres, database, sql, &count, &err), &err, sql);
    return count;
}

json_t *stage_yardstick(struct stage *stage)
{
    const char *const limit[] = {
        PG_LIMIT, "--database", stage->yardstick_database, "--seconds", stage->quick ? "4" : "15",
        NULL
    };
    stage_say("the yardstick");
    return stage_finish(stage_start(limit), "pg_limit");
}

double stage_limit(struct stage *stage)
{
    json_t *object = stage_yardstick(stage);
    double rate = stage_number(object, "pg_limit_sagas_per_s");
    json_decref(object);
    return rate;
}

struct stage_counted stage_counted(struct stage *stage)
{
    static const char wal[] = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint",
                      transactions[] = "SELECT xact_commit FROM pg_stat_database"
                                       " WHERE datname = current_database()",
                      rows[] = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint"
                               " FROM pg_stat_user_tables WHERE schemaname = 'sagad'";
    struct stage_counted counted = { .cpu_us = stage_cpu_us(stage) };
    counted.wal_bytes = (double)stage_count(stage, "sagad", wal);
    wait_ms(STATISTICS_MS);
    counted.round_trips = (double)stage_count(stage, "sagad", transactions);
    counted.rows = (double)stage_count(stage, "sagad", rows);
    return counted;
}

/* --- sagad ----------------------------------------------------------------------------------- */

static int define(struct client *client, const char *name, const char *handler, size_t step_count,
                  struct err *err)
{
    static const char *const names[STAGE_STEPS_MAX] = { "one", "two",   "three", "four", "five",
                                                        "six", "seven", "eight", "nine", "ten" };
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    Saga__V1__SagaDefinition definition = SAGA__V1__SAGA_DEFINITION__INIT;
    Saga__V1__Step steps[STAGE_STEPS_MAX];
    Saga__V1__Operation actions[STAGE_STEPS_MAX];
    Saga__V1__Step *pointers[STAGE_STEPS_MAX];
    if (step_count > STAGE_STEPS_MAX)
        stage_give_up(name, "too many steps");
    for (size_t i = 0; i < step_count; i++) {
        saga__v1__operation__init(&actions[i]);
        saga__v1__step__init(&steps[i]);
        actions[i].effect = SAGA__V1__EFFECT__EFFECT_IDEMPOTENT;
        if (handler)
            actions[i].handler = (char *)handler;
        steps[i].name = (char *)names[i];
        steps[i].action = &actions[i];
        steps[i].undo_case = SAGA__V1__STEP__UNDO_NO_COMPENSATION;
        steps[i].no_compensation = true;
        pointers[i] = &steps[i];
    }
    definition.name = (char *)name;
    definition.n_steps = step_count;
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

void stage_define(struct client *client, const char *name, const char *handler, size_t step_count)
{
    struct err err;
    stage_require(define(client, name, handler, step_count, &err), &err, name);
}

/* On a connection of its own: one that was refused is tried again later and later, by seconds. */
static int define_once(struct stage *stage, struct err *err)
{
    struct client *client;
    stage_require(client_new(stage->target, &client, err), err, "client");
    int rc = define(client, "bench", NULL, 3, err);
    (void)client_free(client); /* always NULL */
    return rc;
}

void stage_sagad_start(struct stage *stage, const char *const *arguments)
{
    const char *argv[9 + STAGE_ARGUMENTS_MAX] = { SAGAD_BINARY,          "serve",    "--database",
                                                  stage->sagad_database, "--listen", stage->target,
                                                  "--log-level",         "warn" };
    struct err err;
    for (size_t i = 8; *arguments && i < ARRAY_LEN(argv) - 1; i++)
        argv[i] = *arguments++;
    stage->sagad = stage_start(argv);
    int64_t end_ms = clock_mono_ms(&clock_system) + START_LIMIT_MS;
    while (define_once(stage, &err) != 0) {
        if (err.code != ERR_UNAVAILABLE || clock_mono_ms(&clock_system) > end_ms ||
            !test_process_running(stage->sagad))
            stage_give_up("register", err.msg);
        wait_ms(50);
    }
}

void stage_sagad_stop(struct stage *stage)
{
    struct err err;
    int status;
    stage_require(test_process_signal(stage->sagad, SIGTERM, &err), &err, "sagad");
    stage_require(test_process_wait(stage->sagad, START_LIMIT_MS, &status, &err), &err, "sagad");
    if (status != 0)
        stage_give_up("sagad", "did not end in order");
    stage->sagad = test_process_free(stage->sagad);
}

int64_t stage_counter(struct client *client, const char *name)
{
    static const Saga__V1__GetStatusRequest ask = SAGA__V1__GET_STATUS_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct err err;
    int64_t value = -1;
    stage_require(client_call(client, "/saga.v1.OperatorService/GetStatus", &ask.base,
                              &saga__v1__get_status_response__descriptor, CALL_LIMIT_MS, &reply,
                              &err),
                  &err, "GetStatus");
    const Saga__V1__GetStatusResponse *status = (const void *)reply;
    for (size_t i = 0; i < status->n_counters; i++)
        if (strcmp(status->counters[i]->name, name) == 0)
            value = status->counters[i]->value;
    protobuf_c_message_free_unpacked(reply, NULL);
    if (value < 0)
        stage_give_up("GetStatus has no counter", name);
    return value;
}

/* --- what processes use ---------------------------------------------------------------------- */

/* The first line of a file of the process. */
static void read_proc(const struct test_process *process, const char *name, char *text, int size)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)test_process_pid(process),
                   name); /* fits */
    FILE *file = fopen(path, "re");
    if (!file || !fgets(text, size, file))
        stage_give_up(path, "cannot be read");
    (void)fclose(file); /* only read */
}

double stage_process_cpu_us(const struct test_process *process)
{
    char text[1024] = "";
    unsigned long user, system;
    read_proc(process, "stat", text, sizeof(text));
    /* The 14th and 15th field; the 2nd may hold blanks, but no ")" follows it. */
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system) != 2)
        stage_give_up("/proc/PID/stat is not as expected", text);
    return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

double stage_cpu_us(const struct stage *stage)
{
    return stage_process_cpu_us(stage->sagad);
}

double stage_process_rss_mib(const struct test_process *process)
{
    char text[256] = "";
    unsigned long pages;
    read_proc(process, "statm", text, sizeof(text));
    if (sscanf(text, "%*u %lu", &pages) != 1)
        stage_give_up("/proc/PID/statm is not as expected", text);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* --- workers and load ------------------------------------------------------------------------ */

struct test_process *stage_worker_start(struct stage *stage)
{
    const char *const argv[] = { NOOP_WORKER, "--target", stage->target, NULL };
    return stage_start(argv);
}

json_t *stage_worker_stop(struct test_process *worker)
{
    struct err err;
    stage_require(test_process_signal(worker, SIGTERM, &err), &err, "noop_worker");
    return stage_finish(worker, "noop_worker");
}

json_t *stage_load(struct stage *stage, const char *const *arguments)
{
    const char *argv[5 + STAGE_ARGUMENTS_MAX] = { LOAD, "--target", stage->target, "--definition",
                                                  "bench" };
    size_t count = 5;
    while (*arguments && count < ARRAY_LEN(argv) - 1)
        argv[count++] = *arguments++;
    if (*arguments)
        stage_give_up("load", "too many arguments");
    return stage_finish(stage_start(argv), "load");
}

json_t *stage_load_batched(struct stage *stage)
{
    const char *const arguments[] = { "--calls", "4",        "--batch",
                                      "128",     "--run-ms", stage->quick ? "5000" : "20000",
                                      NULL };
    return stage_load(stage, arguments);
}

json_t *stage_load_paced_for(struct stage *stage, const char *rate, int64_t run_ms)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRId64, run_ms); /* fits */
    const char *const arguments[] = { "--unary", "--rate", rate,       "--warm-up-ms", "0",
                                      "--calls", "256",    "--run-ms", text,           NULL };
    struct test_process *worker = stage_worker_start(stage);
    json_decref(stage_load(stage, arguments));
    return stage_worker_stop(worker);
}

json_t *stage_load_paced(struct stage *stage, const char *rate)
{
    return stage_load_paced_for(stage, rate, stage->quick ? 8000 : 30000);
}

/* --- set-up ---------------------------------------------------------------------------------- */

void stage_open(struct stage *stage, const char *name, int argc, char **argv)
{
    struct err err;
    int port;
    program = name;
    *stage = (struct stage){ .name = name };
    stage->quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc > 2 || (argc == 2 && !stage->quick))
        stage_give_up("usage", "[--quick]");
    stage_require(test_postgres_start(postgres_settings, &stage->postgres, &err), &err, "postgres");
    stage_require(
        test_postgres_createdb(stage->postgres, "yardstick", stage->yardstick_database, &err), &err,
        "database");
    stage_require(test_postgres_createdb(stage->postgres, "sagad", stage->sagad_database, &err),
                  &err, "database");
    stage_require(free_port(&port, &err), &err, "port");
    (void)snprintf(stage->target, sizeof(stage->target), "127.0.0.1:%d", port); /* fits */
}

void stage_close(struct stage *stage)
{
    stage->sagad = test_process_free(stage->sagad);
    stage->postgres = test_postgres_free(stage->postgres);
}
