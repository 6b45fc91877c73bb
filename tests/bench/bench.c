/* bench: measures sagad on this machine, several times, and prints a table on stderr and one JSON
 * line on stdout (tests/bench/README.md says what each figure is). Each run has a stage of its own
 * (stage.h): an empty PostgreSQL, and one phase after the other.
 *
 *   bench [--quick]
 */
#include "stage.h"
#include "table.h"

#include <stdio.h>

enum { RUNS = 5, RUNS_QUICK = 1 };

enum figure_id {
    SAGAS_PER_S,
    SAGAS_PER_S_UNARY,
    LIMIT_SAGAS_PER_S,
    RATIO,
    RATIO_UNARY,
    COMMIT_MS,
    COMMIT_PACED_P99_MS,
    COMMIT_LOADED_MS,
    P50_MS,
    P99_MS,
    P99_WINDOW_MS,
    P50_COMMITS,
    P99_COMMITS,
    START_P50_MS,
    START_P99_MS,
    START_P99_WINDOW_MS,
    START_P50_COMMITS,
    START_P99_COMMITS,
    CPU_US,
    CPU_US_UNARY,
    WAL_BYTES,
    LIMIT_WAL_BYTES,
    WAL_RATIO,
    ROWS,
    LIMIT_ROWS,
    ROWS_RATIO,
    ROUND_TRIPS,
    LIMIT_ROUND_TRIPS,
    ROUND_TRIPS_RATIO,
    FIGURE_COUNT
};

static const struct table_figure figures[FIGURE_COUNT] = {
    [SAGAS_PER_S] = { "sagas_per_s", "sagas/s, batched starts", 0, TABLE_TELLS, 0 },
    [SAGAS_PER_S_UNARY] = { "sagas_per_s_unary", "sagas/s, unary starts", 0, TABLE_TELLS, 0 },
    [LIMIT_SAGAS_PER_S] = { "pg_limit_sagas_per_s", "the yardstick's sagas/s", 0, TABLE_TELLS, 0 },
    [RATIO] = { "ratio", "batched, of the yardstick", 3, TABLE_AT_LEAST, 0.50 },
    [RATIO_UNARY] = { "ratio_unary", "unary, of the yardstick", 3, TABLE_AT_LEAST, 0.35 },
    [COMMIT_MS] = { "commit_ms", "a commit of one row, p50, ms", 3, TABLE_TELLS, 0 },
    [COMMIT_PACED_P99_MS] = { "commit_paced_p99_ms", "500 of them a second, p99, ms", 2,
                              TABLE_TELLS, 0 },
    [COMMIT_LOADED_MS] = { "commit_loaded_ms", NULL, 3, TABLE_TELLS, 0 },
    [P50_MS] = { "p50_ms", NULL, 2, TABLE_TELLS, 0 },
    [P99_MS] = { "p99_ms", NULL, 2, TABLE_TELLS, 0 },
    [P99_WINDOW_MS] = { "p99_window_ms", NULL, 2, TABLE_TELLS, 0 },
    [P50_COMMITS] = { "p50_commits", "added to a step at 500 sagas/s, p50, commits", 2,
                      TABLE_AT_MOST, 2.5 },
    [P99_COMMITS] = { "p99_commits", "the same, p99", 2, TABLE_AT_MOST, 6 },
    [START_P50_MS] = { "start_p50_ms", NULL, 2, TABLE_TELLS, 0 },
    [START_P99_MS] = { "start_p99_ms", NULL, 2, TABLE_TELLS, 0 },
    [START_P99_WINDOW_MS] = { "start_p99_window_ms", NULL, 2, TABLE_TELLS, 0 },
    [START_P50_COMMITS] = { "start_p50_commits", "start to first task at the worker, p50, commits",
                            2, TABLE_AT_MOST, 2.5 },
    [START_P99_COMMITS] = { "start_p99_commits", "the same, p99", 2, TABLE_AT_MOST, 8 },
    [CPU_US] = { "cpu_us_per_saga", "sagad's CPU a saga, batched, us", 1, TABLE_AT_MOST, 25 },
    [CPU_US_UNARY] = { "cpu_us_per_saga_unary", "sagad's CPU a saga, unary, us", 1, TABLE_AT_MOST,
                       80 },
    [WAL_BYTES] = { "wal_bytes_per_saga", "bytes of log a saga", 0, TABLE_TELLS, 0 },
    [LIMIT_WAL_BYTES] = { "pg_limit_wal_bytes_per_saga", NULL, 0, TABLE_TELLS, 0 },
    [WAL_RATIO] = { "wal_ratio", "log, of the yardstick's", 2, TABLE_AT_MOST, 1.4 },
    [ROWS] = { "rows_per_saga", "row operations a saga", 2, TABLE_TELLS, 0 },
    [LIMIT_ROWS] = { "pg_limit_rows_per_saga", NULL, 2, TABLE_TELLS, 0 },
    [ROWS_RATIO] = { "rows_ratio", "row operations, of the yardstick's", 2, TABLE_AT_MOST, 1.005 },
    [ROUND_TRIPS] = { "round_trips_per_saga", "round trips a saga", 4, TABLE_TELLS, 0 },
    [LIMIT_ROUND_TRIPS] = { "pg_limit_round_trips_per_saga", NULL, 4, TABLE_TELLS, 0 },
    [ROUND_TRIPS_RATIO] = { "round_trips_ratio", "round trips, of the yardstick's", 2,
                            TABLE_AT_MOST, 1.005 },
};

struct bench {
    struct stage stage;
    struct table_samples samples[FIGURE_COUNT];
    double values[FIGURE_COUNT]; /* of the run */
};

static void measure_yardstick(struct bench *bench)
{
    const char *const commit[] = { PG_LIMIT, "--database", bench->stage.yardstick_database,
                                   "--commit", NULL };
    const char *const paced[] = { PG_LIMIT,   "--database", bench->stage.yardstick_database,
                                  "--commit", "--seconds",  "4",
                                  "--rate",   "500",        NULL };
    double *values = bench->values;
    stage_say("single commits");
    json_t *object = stage_finish(stage_start(commit), "pg_limit --commit");
    values[COMMIT_MS] = stage_number(object, "commit_ms");
    json_decref(object);
    object = stage_finish(stage_start(paced), "pg_limit --commit --rate");
    values[COMMIT_PACED_P99_MS] = stage_number(object, "commit_p99_ms");
    json_decref(object);
    object = stage_yardstick(&bench->stage);
    values[LIMIT_SAGAS_PER_S] = stage_number(object, "pg_limit_sagas_per_s");
    values[LIMIT_WAL_BYTES] = stage_number(object, "wal_bytes_per_saga");
    values[LIMIT_ROWS] = stage_number(object, "rows_per_saga");
    values[LIMIT_ROUND_TRIPS] = stage_number(object, "round_trips_per_saga");
    json_decref(object);
}

static json_t *load_unary(struct stage *stage)
{
    const char *const arguments[] = {
        "--unary", "--calls", "256", "--channels", "2", "--run-ms", stage->quick ? "5000" : "20000",
        NULL
    };
    return stage_load(stage, arguments);
}

/* Closed loop. What it used is counted over the whole phase, the rate without its beginning. */
static void measure_load(struct stage *stage, bool unary, double *ret_rate,
                         struct stage_counted *ret_used)
{
    stage_say(unary ? "sagad, unary starts" : "sagad, batched starts");
    struct test_process *worker = stage_worker_start(stage);
    stage_checkpoint(stage);
    struct stage_counted before = stage_counted(stage);
    json_t *object = unary ? load_unary(stage) : stage_load_batched(stage);
    struct stage_counted after = stage_counted(stage);
    double sagas = stage_number(object, "sagas");
    *ret_rate = stage_number(object, "sagas_per_s");
    json_decref(object);
    json_decref(stage_worker_stop(worker));
    *ret_used = (struct stage_counted){
        .cpu_us = (after.cpu_us - before.cpu_us) / sagas,
        .wal_bytes = (after.wal_bytes - before.wal_bytes) / sagas,
        .round_trips = (after.round_trips - before.round_trips) / sagas,
        .rows = (after.rows - before.rows) / sagas,
    };
}

static void measure_loads(struct bench *bench)
{
    double *values = bench->values;
    struct stage_counted used;
    measure_load(&bench->stage, false, &values[SAGAS_PER_S], &used);
    values[CPU_US] = used.cpu_us;
    values[WAL_BYTES] = used.wal_bytes;
    values[ROWS] = used.rows;
    values[ROUND_TRIPS] = used.round_trips;
    measure_load(&bench->stage, true, &values[SAGAS_PER_S_UNARY], &used);
    values[CPU_US_UNARY] = used.cpu_us;
}

static void measure_times(struct bench *bench)
{
    struct stage *stage = &bench->stage;
    double *values = bench->values;
    stage_say("sagad, 500 sagas a second");
    stage_checkpoint(stage);
    const char *const commits[] = { PG_LIMIT,   "--database", stage->yardstick_database,
                                    "--commit", "--seconds",  stage->quick ? "7" : "28",
                                    NULL };
    struct test_process *bystander = stage_start(commits);
    json_t *object = stage_load_paced(stage, "500");
    values[P50_MS] = stage_number(object, "p50_ms");
    values[P99_MS] = stage_number(object, "p99_ms");
    values[P99_WINDOW_MS] = stage_number(object, "p99_window_ms");
    values[START_P50_MS] = stage_number(object, "start_p50_ms");
    values[START_P99_MS] = stage_number(object, "start_p99_ms");
    values[START_P99_WINDOW_MS] = stage_number(object, "start_p99_window_ms");
    json_decref(object);
    object = stage_finish(bystander, "pg_limit --commit");
    values[COMMIT_LOADED_MS] = stage_number(object, "commit_ms");
    json_decref(object);
}

static void measure_ratios(double *values)
{
    static const enum figure_id ratios[][3] = {
        { RATIO, SAGAS_PER_S, LIMIT_SAGAS_PER_S },
        { RATIO_UNARY, SAGAS_PER_S_UNARY, LIMIT_SAGAS_PER_S },
        { P50_COMMITS, P50_MS, COMMIT_MS },
        { P99_COMMITS, P99_MS, COMMIT_MS },
        { START_P50_COMMITS, START_P50_MS, COMMIT_MS },
        { START_P99_COMMITS, START_P99_MS, COMMIT_MS },
        { WAL_RATIO, WAL_BYTES, LIMIT_WAL_BYTES },
        { ROWS_RATIO, ROWS, LIMIT_ROWS },
        { ROUND_TRIPS_RATIO, ROUND_TRIPS, LIMIT_ROUND_TRIPS },
    };
    for (size_t i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++)
        values[ratios[i][0]] = values[ratios[i][1]] / values[ratios[i][2]];
}

static void run(struct bench *bench, int argc, char **argv)
{
    static const char *const plain[] = { NULL };
    stage_open(&bench->stage, "bench", argc, argv);
    measure_yardstick(bench);
    stage_sagad_start(&bench->stage, plain);
    measure_times(bench);
    measure_loads(bench);
    stage_close(&bench->stage);
    measure_ratios(bench->values);
    for (int id = 0; id < FIGURE_COUNT; id++)
        table_add(&bench->samples[id], bench->values[id]);
}

int main(int argc, char **argv)
{
    struct bench bench = { 0 };
    int run_count = 1;
    for (int i = 0; i < run_count; i++) {
        run(&bench, argc, argv);
        run_count = bench.stage.quick ? RUNS_QUICK : RUNS;
    }
    table_print(figures, bench.samples, FIGURE_COUNT);
    return 0;
}
