/* guard: what the participant's guard costs, on PostgreSQL by pgbench and on MariaDB by a client of
 * its own; the helper of the C SDK on both by such a client. Bare and guarded debits take turns in
 * short rounds, so that whatever else the machine does falls on all; prints one JSON line
 * (tests/bench/README.md).
 *
 *   guard [--quick]
 */
#include "guard.h"

#include "base/clock.h"
#include "support/postgres.h"
#include "support/process.h"
#include "support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PGBENCH_ROUNDS = 15, /* of a second: it takes no less */
    CLIENT_ROUNDS = 75,  /* of a client of ours: shorter than what the machine does meanwhile */
    CLIENT_ROUND_MS = 200,
    QUICK = 5, /* times fewer */
    LIMIT_MS = 60000
};

/* The means of the rounds, in which the ways take turns. */
struct figures {
    int rounds;
    double ms[WAY_COUNT][CLIENT_ROUNDS];
};

void guard_task_init(struct guard_task *task, int64_t number)
{
    static char text_default[] = "default", text_settle[] = "settle", text_debit[] = "debit";
    memset(task, 0, sizeof *task);
    saga__v1__task__init(&task->wire);
    google__protobuf__timestamp__init(&task->start);
    (void)snprintf(task->saga, sizeof task->saga, "order-%lld", (long long)number); /* fits */
    task->start.seconds = clock_wall_ms(&clock_system) / 1000;
    task->wire.namespace_ = text_default;
    task->wire.definition = text_settle;
    task->wire.saga_id = task->saga;
    task->wire.step = text_debit;
    task->wire.run = 1;
    task->wire.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    task->wire.saga_start_time = &task->start;
    task->task.message = &task->wire;
    task->task.output_bytes_max = SAGA_OUTPUT_MAX;
    task->task.fence = 1;
}

static void require(int rc, const struct err *err, const char *what)
{
    if (rc == 0)
        return;
    (void)fprintf(stderr, "guard: %s: %s\n", what, err->msg); /* best effort */
    exit(1);
}

static void pg_program(const char *program, char ret_path[SCRATCH_PATH_SIZE])
{
    const char *folder = getenv("SAGAD_PG_BIN");
    (void)snprintf(ret_path, SCRATCH_PATH_SIZE, "%s/%s",
                   folder && *folder ? folder : "/usr/lib/postgresql/15/bin", program);
}

static int run_script(const char *conninfo, const char *path, struct err *err)
{
    char psql[SCRATCH_PATH_SIZE];
    pg_program("psql", psql);
    const char *const argv[] = { psql, "-q", "-v", "ON_ERROR_STOP=1", "-d", conninfo,
                                 "-f", path, NULL };
    const struct test_process_options options = { .argv = argv };
    return test_process_must_succeed(&options, LIMIT_MS, err);
}

/* The mean of one round as pgbench tells it: "latency average = 1.234 ms". */
static double pgbench(const char *conninfo, const char *script)
{
    static const char mark[] = "latency average = ";
    char program[SCRATCH_PATH_SIZE], line[256];
    struct test_process *process;
    struct err err;
    int status;
    pg_program("pgbench", program);
    const char *const argv[] = { program,    "-n", "-r", "-c", "1",    "-j",     "1", "-M",
                                 "prepared", "-T", "1",  "-f", script, conninfo, NULL };
    require(test_process_run(argv, &process, &err), &err, "pgbench");
    require(test_process_wait_output(process, mark, LIMIT_MS, line, sizeof line, &err), &err,
            "pgbench");
    require(test_process_wait(process, LIMIT_MS, &status, &err), &err, "pgbench");
    (void)test_process_free(process); /* always NULL */
    return strtod(strstr(line, mark) + sizeof mark - 1, NULL);
}

/* By pgbench into `figures`, the client of the C SDK's helper into `of_helper`. */
static void measure_postgres(struct figures *figures, struct figures *of_helper)
{
    static const char *const scripts[] = {
        [WAY_BARE] = SOURCE_DIR "/tests/bench/guard_bare.sql",
        [WAY_SHORT] = SOURCE_DIR "/tests/bench/guard_short.sql",
        [WAY_LONG] = SOURCE_DIR "/tests/bench/guard_long.sql",
    };
    static const enum guard_way of_client[] = { WAY_BARE, WAY_HELPER };
    char conninfo[POSTGRES_CONNINFO_SIZE], accounts[256];
    struct test_postgres *postgres;
    struct err err;
    require(test_postgres_start(NULL, &postgres, &err), &err, "postgres");
    require(test_postgres_createdb(postgres, "shop", conninfo, &err), &err, "postgres");
    require(run_script(conninfo, SOURCE_DIR "/sql/guard/postgresql.sql", &err), &err, "the guard");
    (void)snprintf(accounts, sizeof accounts,
                   "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);"
                   "INSERT INTO account SELECT i, 0 FROM generate_series(1, %d) i",
                   GUARD_ACCOUNTS);
    require(test_postgres_exec(postgres, "shop", accounts, &err), &err, "the accounts");
    for (int i = 0; i < figures->rounds; i++)
        for (int way = 0; way < (int)ARRAY_LEN(scripts); way++)
            figures->ms[way][i] = pgbench(conninfo, scripts[way]);
    for (int i = 0; i < of_helper->rounds; i++)
        for (size_t k = 0; k < ARRAY_LEN(of_client); k++)
            require(guard_postgres_measure(conninfo, of_client[k], CLIENT_ROUND_MS,
                                           &of_helper->ms[of_client[k]][i], &err),
                    &err, "the client");
    (void)test_postgres_free(postgres); /* always NULL */
}

static void measure_mariadb(struct figures *figures)
{
    static const enum guard_way ways[] = { WAY_BARE, WAY_SHORT, WAY_HELPER };
    struct guard_mariadb *mariadb;
    struct err err;
    require(guard_mariadb_start(&mariadb, &err), &err, "mariadb");
    for (int i = 0; i < figures->rounds; i++)
        for (size_t k = 0; k < ARRAY_LEN(ways); k++)
            require(guard_mariadb_measure(mariadb, ways[k], CLIENT_ROUND_MS,
                                          &figures->ms[ways[k]][i], &err),
                    &err, "the client");
    (void)guard_mariadb_free(mariadb); /* always NULL */
}

static int compare(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static double median(const double *values, int count)
{
    double sorted[CLIENT_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return sorted[count / 2];
}

static double ratio(const struct figures *figures, enum guard_way way)
{
    double ratios[CLIENT_ROUNDS];
    for (int i = 0; i < figures->rounds; i++)
        ratios[i] = figures->ms[way][i] / figures->ms[WAY_BARE][i];
    return median(ratios, figures->rounds);
}

static void print(const char *name, const struct figures *figures, enum guard_way way)
{
    printf("\"%s_ratio\": %.3f, \"%s_ms\": %.3f, \"%s_bare_ms\": %.3f, ", name, ratio(figures, way),
           name, median(figures->ms[way], figures->rounds), name,
           median(figures->ms[WAY_BARE], figures->rounds));
}

int main(int argc, char **argv)
{
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc > 1 && !quick) {
        (void)fprintf(stderr, "usage: %s [--quick]\n", argv[0]); /* best effort */
        return 2;
    }
    int fewer = quick ? QUICK : 1;
    struct figures postgres = { .rounds = PGBENCH_ROUNDS / fewer };
    struct figures of_helper = { .rounds = CLIENT_ROUNDS / fewer }, mariadb = of_helper;
    measure_postgres(&postgres, &of_helper);
    measure_mariadb(&mariadb);
    printf("{");
    print("postgresql", &postgres, WAY_SHORT);
    print("postgresql_long", &postgres, WAY_LONG);
    print("postgresql_helper", &of_helper, WAY_HELPER);
    print("mariadb", &mariadb, WAY_SHORT);
    print("mariadb_helper", &mariadb, WAY_HELPER);
    printf("\"rounds\": %d}\n", postgres.rounds);
    return 0;
}
