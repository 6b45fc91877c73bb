/* What the benchmarks stand on: a PostgreSQL of their own with fsync on, sagad, workers that do
 * nothing, the yardstick, a load generator. Whatever fails ends the program: a figure with errors
 * in it means nothing. One thread. */
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include "base/err.h"
#include "ctl/client.h"
#include "support/postgres.h"
#include "support/process.h"

#include <jansson.h>
#include <stdbool.h>

enum { STAGE_ARGUMENTS_MAX = 12, STAGE_STEPS_MAX = 10 };

struct stage {
    const char *name; /* of the benchmark, before its messages */
    struct test_postgres *postgres;
    struct test_process *sagad; /* NULL: it does not run */
    char yardstick_database[POSTGRES_CONNINFO_SIZE], sagad_database[POSTGRES_CONNINFO_SIZE];
    char target[32]; /* sagad's address */
    bool quick;
};

/* Reads the command line (--quick or nothing), starts PostgreSQL, makes the two databases. */
void stage_open(struct stage *stage, const char *name, int argc, char **argv);
void stage_close(struct stage *stage);

_Noreturn void stage_give_up(const char *what, const char *why);
void stage_require(int rc, const struct err *err, const char *what);
void stage_say(const char *what); /* progress, on stderr */
void stage_checkpoint(struct stage *stage);
int64_t stage_count(struct stage *stage, const char *database, const char *sql);

/* A program's start; its end (exit code 0) and its last line, a JSON object that the caller frees.
 */
struct test_process *stage_start(const char *const *argv);
json_t *stage_finish(struct test_process *process, const char *what);
double stage_number(const json_t *object, const char *name);

/* Starts sagad with further arguments (NULL at their end), and waits until the definition "bench"
 * of three steps is registered. */
void stage_sagad_start(struct stage *stage, const char *const *arguments);
void stage_sagad_stop(struct stage *stage);
/* Another definition, of steps in a sequence. `handler` serves all of them; NULL: each has its own,
 * "<name>.<step>". */
void stage_define(struct client *client, const char *name, const char *handler, size_t step_count);
int64_t stage_counter(struct client *client, const char *name); /* one of GetStatus */

/* User and system time of all threads, and memory that is resident. */
double stage_process_cpu_us(const struct test_process *process);
double stage_process_rss_mib(const struct test_process *process);
double stage_cpu_us(const struct stage *stage); /* sagad's */

struct test_process *stage_worker_start(struct stage *stage);
json_t *stage_worker_stop(struct test_process *worker); /* in good order; what it measured */

json_t *stage_yardstick(struct stage *stage); /* what pg_limit prints */
double stage_limit(struct stage *stage);      /* of that, its sagas a second */
/* `load` for the definition "bench" with further arguments (NULL at their end); its last line. */
json_t *stage_load(struct stage *stage, const char *const *arguments);
/* `load` with batched starts in a closed loop; its last line. */
json_t *stage_load_batched(struct stage *stage);
/* `load` with so many unary starts a second, workers beside it: what the worker measured (p50_ms,
 * p99_ms, p99_window_ms, and those of starts). */
json_t *stage_load_paced(struct stage *stage, const char *rate);
json_t *stage_load_paced_for(struct stage *stage, const char *rate, int64_t run_ms);

/* What sagad and its database have used since they began. Takes some seconds. */
struct stage_counted {
    double cpu_us;      /* of sagad */
    double wal_bytes;   /* of the whole server */
    double round_trips; /* transactions: sagad sends each as one pipeline */
    double rows;        /* inserted, updated, deleted */
};
struct stage_counted stage_counted(struct stage *stage);

#endif
