/* bench: measures sagad on this machine and prints one JSON line (tests/bench/README.md says what
 * each figure is). One phase after the other, on a stage of its own (stage.h).
 *
 *   bench [--quick]
 */
#include "stage.h"

#include <stdio.h>

struct figures {
    double limit, commit_ms, commit_paced_p99_ms, commit_loaded_ms;
    double batch, unary;
    double cpu_us, cpu_us_unary, wal_bytes;
    double p50_ms, p99_ms, p99_window_ms;
};

static void measure_yardstick(struct stage *stage, struct figures *figures)
{
    const char *const commit[] = { PG_LIMIT, "--database", stage->yardstick_database, "--commit",
                                   NULL };
    const char *const paced[] = { PG_LIMIT,   "--database", stage->yardstick_database,
                                  "--commit", "--seconds",  "4",
                                  "--rate",   "500",        NULL };
    stage_say("single commits");
    json_t *object = stage_finish(stage_start(commit), "pg_limit --commit");
    figures->commit_ms = stage_number(object, "commit_ms");
    json_decref(object);
    object = stage_finish(stage_start(paced), "pg_limit --commit --rate");
    figures->commit_paced_p99_ms = stage_number(object, "commit_p99_ms");
    json_decref(object);
    figures->limit = stage_limit(stage);
}

static json_t *load_unary(struct stage *stage)
{
    const char *const argv[] = {
        LOAD,         "--target", stage->target, "--definition",
        "bench",      "--unary",  "--calls",     "256",
        "--channels", "2",        "--run-ms",    stage->quick ? "5000" : "20000",
        NULL
    };
    return stage_finish(stage_start(argv), "load");
}

/* Closed loop. Processor time and log are counted over the whole phase, the rate without its
 * beginning. */
static void measure_load(struct stage *stage, bool unary, double *ret_rate, double *ret_cpu_us,
                         double *ret_wal_bytes)
{
    static const char position[] = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";
    stage_say(unary ? "sagad, unary starts" : "sagad, batched starts");
    struct test_process *worker = stage_worker_start(stage);
    stage_checkpoint(stage);
    double cpu_us = stage_cpu_us(stage);
    int64_t wal = stage_count(stage, "postgres", position);
    json_t *object = unary ? load_unary(stage) : stage_load_batched(stage);
    double sagas = stage_number(object, "sagas");
    *ret_rate = stage_number(object, "sagas_per_s");
    *ret_cpu_us = (stage_cpu_us(stage) - cpu_us) / sagas;
    *ret_wal_bytes = (double)(stage_count(stage, "postgres", position) - wal) / sagas;
    json_decref(object);
    json_decref(stage_worker_stop(worker));
}

static void measure_time_per_step(struct stage *stage, struct figures *figures)
{
    stage_say("sagad, 500 sagas a second");
    stage_checkpoint(stage);
    const char *const commits[] = { PG_LIMIT,   "--database", stage->yardstick_database,
                                    "--commit", "--seconds",  stage->quick ? "7" : "28",
                                    NULL };
    struct test_process *bystander = stage_start(commits);
    json_t *object = stage_load_paced(stage, "500");
    figures->p50_ms = stage_number(object, "p50_ms");
    figures->p99_ms = stage_number(object, "p99_ms");
    figures->p99_window_ms = stage_number(object, "p99_window_ms");
    json_decref(object);
    object = stage_finish(bystander, "pg_limit --commit");
    figures->commit_loaded_ms = stage_number(object, "commit_ms");
    json_decref(object);
}

int main(int argc, char **argv)
{
    static const char *const plain[] = { NULL };
    struct stage stage;
    struct figures figures = { 0 };
    double unused;
    stage_open(&stage, "bench", argc, argv);
    measure_yardstick(&stage, &figures);
    stage_sagad_start(&stage, plain);
    measure_time_per_step(&stage, &figures);
    measure_load(&stage, false, &figures.batch, &figures.cpu_us, &figures.wal_bytes);
    measure_load(&stage, true, &figures.unary, &figures.cpu_us_unary, &unused);
    stage_close(&stage);
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
