/* guard: what the participant's guard costs, on PostgreSQL by pgbench and on MariaDB by a client of
 * its own. Bare and guarded debits take turns in short rounds, so that whatever else the machine
 * does falls on both; prints one JSON line (tests/bench/README.md).
 *
 *   guard [--quick]
 */
#include "guard.h"

#include "base/mem.h"
#include "support/postgres.h"
#include "support/process.h"
#include "support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 15, ROUND_S = 2, LIMIT_MS = 60000 };

struct figures {
    double bare_ms[ROUNDS_MAX], guarded_ms[ROUNDS_MAX];
};

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
    char program[SCRATCH_PATH_SIZE], seconds[16], line[256];
    struct test_process *process;
    struct err err;
    int status;
    pg_program("pgbench", program);
    (void)snprintf(seconds, sizeof seconds, "%d", ROUND_S); /* fits */
    const char *const argv[] = { program,    "-n", "-r",    "-c", "1",    "-j",     "1", "-M",
                                 "prepared", "-T", seconds, "-f", script, conninfo, NULL };
    require(test_process_run(argv, &process, &err), &err, "pgbench");
    require(test_process_wait_output(process, mark, LIMIT_MS, line, sizeof line, &err), &err,
            "pgbench");
    require(test_process_wait(process, LIMIT_MS, &status, &err), &err, "pgbench");
    (void)test_process_free(process); /* always NULL */
    return strtod(strstr(line, mark) + sizeof mark - 1, NULL);
}

static void measure_postgres(int rounds, struct figures *figures)
{
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
    for (int i = 0; i < rounds; i++) {
        figures->bare_ms[i] = pgbench(conninfo, SOURCE_DIR "/tests/bench/guard_bare.sql");
        figures->guarded_ms[i] = pgbench(conninfo, SOURCE_DIR "/tests/bench/guard_guarded.sql");
    }
    (void)test_postgres_free(postgres); /* always NULL */
}

static void measure_mariadb(int rounds, struct figures *figures)
{
    struct guard_mariadb *mariadb;
    struct err err;
    require(guard_mariadb_start(&mariadb, &err), &err, "mariadb");
    for (int i = 0; i < rounds; i++) {
        require(guard_mariadb_measure(mariadb, false, ROUND_S * 1000, &figures->bare_ms[i], &err),
                &err, "bare");
        require(guard_mariadb_measure(mariadb, true, ROUND_S * 1000, &figures->guarded_ms[i], &err),
                &err, "guarded");
    }
    (void)guard_mariadb_free(mariadb); /* always NULL */
}

static int compare(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static double median(const double *values, int count)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return sorted[count / 2];
}

static void print(const char *name, const struct figures *figures, int rounds)
{
    double ratios[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++)
        ratios[i] = figures->guarded_ms[i] / figures->bare_ms[i];
    printf("\"%s_ratio\": %.3f, \"%s_bare_ms\": %.3f, \"%s_guarded_ms\": %.3f", name,
           median(ratios, rounds), name, median(figures->bare_ms, rounds), name,
           median(figures->guarded_ms, rounds));
}

int main(int argc, char **argv)
{
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc > 1 && !quick) {
        (void)fprintf(stderr, "usage: %s [--quick]\n", argv[0]); /* best effort */
        return 2;
    }
    int rounds = quick ? 3 : ROUNDS_MAX;
    struct figures postgres, mariadb;
    measure_postgres(rounds, &postgres);
    measure_mariadb(rounds, &mariadb);
    printf("{");
    print("postgresql", &postgres, rounds);
    printf(", ");
    print("mariadb", &mariadb, rounds);
    printf(", \"rounds\": %d}\n", rounds);
    return 0;
}
