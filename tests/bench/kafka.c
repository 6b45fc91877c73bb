/* kafka: what Kafka's way in costs, beside batched starts over gRPC, and what the purge costs;
 * prints one JSON line (tests/bench/README.md says what each figure is).
 *
 *   SAGAD_BENCH_BROKER=HOST:PORT kafka [--quick]
 *
 * Exit code 1 when a figure is over its limit.
 */
#include "stage.h"
#include "table.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARTITIONS = 32,
    RECORDS = 200000,
    RECORDS_QUICK = 50000,
    WARM_UP_MS = 2000,
    LOOK_MS = 20,
    END_LIMIT_MS = 300000,
};
struct kafka_bench {
    struct stage stage;
    const char *broker, *scratch;
    char config[256]; /* the file's path */
    int64_t records;
};

enum figure_id {
    SAGAS_PER_S,
    LIMIT_SAGAS_PER_S,
    RATIO,
    GRPC_SAGAS_PER_S,
    GRPC_RATIO,
    OF_GRPC,
    CPU_US,
    PURGED_SAGAS_PER_S,
    FINISHED_BEFORE,
    PURGED,
    LEFT,
    PURGE_KEEP_UP,
    P99_MS, /* medians of windows, as the next one */
    PURGED_P99_MS,
    PURGE_P99_RATIO,
    FIGURE_COUNT
};

static const struct table_figure figures[FIGURE_COUNT] = {
    [SAGAS_PER_S] = { "sagas_per_s", "sagas/s from Kafka", 0, TABLE_TELLS, 0 },
    [LIMIT_SAGAS_PER_S] = { "pg_limit_sagas_per_s", NULL, 0, TABLE_TELLS, 0 },
    [RATIO] = { "ratio", "from Kafka, of the yardstick", 3, TABLE_AT_LEAST, 0.50 },
    [GRPC_SAGAS_PER_S] = { "grpc_sagas_per_s", NULL, 0, TABLE_TELLS, 0 },
    [GRPC_RATIO] = { "grpc_ratio", NULL, 3, TABLE_TELLS, 0 },
    [OF_GRPC] = { "of_grpc", "from Kafka, of batched starts", 3, TABLE_AT_LEAST, 0.9 },
    [CPU_US] = { "cpu_us_per_saga", NULL, 1, TABLE_TELLS, 0 },
    [PURGED_SAGAS_PER_S] = { "purged_sagas_per_s", NULL, 0, TABLE_TELLS, 0 },
    [FINISHED_BEFORE] = { "finished_before", NULL, 0, TABLE_TELLS, 0 },
    [PURGED] = { "purged", NULL, 0, TABLE_TELLS, 0 },
    [LEFT] = { "left", NULL, 0, TABLE_TELLS, 0 },
    [PURGE_KEEP_UP] = { "purge_keep_up", "purged, of what ended meanwhile", 2, TABLE_AT_LEAST, 1 },
    [P99_MS] = { "p99_window_ms", NULL, 2, TABLE_TELLS, 0 },
    [PURGED_P99_MS] = { "purged_p99_window_ms", NULL, 2, TABLE_TELLS, 0 },
    [PURGE_P99_RATIO] = { "purge_p99_ratio", "a step's p99 while it purges, of without", 2,
                          TABLE_AT_MOST, 2 },
};
/* Over these it is an error. */
static const enum figure_id limits[] = { OF_GRPC, PURGE_KEEP_UP, PURGE_P99_RATIO };

/* --- the topic ------------------------------------------------------------------------------- */

static void fill(const struct kafka_bench *bench, const char *topic)
{
    char partitions[16], count[32];
    char value[101];
    (void)snprintf(partitions, sizeof partitions, "%d", PARTITIONS);
    (void)snprintf(count, sizeof count, "%" PRId64, bench->records);
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    const char *const argv[] = { FEED,           "--bootstrap", bench->broker, "--topic", topic,
                                 "--partitions", partitions,    "--count",     count,     "--key",
                                 topic,          "--value",     value,         NULL };
    char key[64];
    (void)snprintf(key, sizeof key, "%s-{}", topic);
    const char *with_key[ARRAY_LEN(argv)];
    memcpy(with_key, argv, sizeof argv);
    with_key[10] = key;
    struct test_process *feed = stage_start(with_key);
    struct err err;
    int status;
    stage_require(test_process_wait(feed, END_LIMIT_MS, &status, &err), &err, "feed");
    if (status != 0)
        stage_give_up("feed", "failed");
    (void)test_process_free(feed); /* always NULL */
}

static void configure(struct kafka_bench *bench, const char *topic, const char *settings)
{
    (void)snprintf(bench->config, sizeof bench->config, "%s/%s.conf", bench->scratch, topic);
    FILE *file = fopen(bench->config, "we");
    if (!file) {
        stage_give_up(bench->config, "cannot be written");
        return; /* never: for cppcheck, which does not look at _Noreturn */
    }
    (void)fprintf(file,
                  "kafka-brokers = %s\n%s[kafka %s]\ntopic = %s\ndefinition = bench\n"
                  "start = earliest\nkey = record-key\nvalue = bytes\n",
                  bench->broker, settings, topic, topic);
    if (fclose(file) != 0)
        stage_give_up(bench->config, "cannot be written");
}

/* --- sagas that end --------------------------------------------------------------------------- */

/* Sagas a second from 2 s after the first one ended until 19 of 20 have. */
static double measure_rate(struct kafka_bench *bench)
{
    struct client *client;
    struct err err;
    stage_require(client_new(bench->stage.target, &client, &err), &err, "client");
    int64_t first_ms = 0, begin_ms = 0, begin = 0, end_ms = 0, end = 0;
    int64_t limit_ms = clock_mono_ms(&clock_system) + END_LIMIT_MS, done = 0;
    while ((done = stage_counter(client, "sagas_succeeded")) < bench->records) {
        int64_t now = clock_mono_ms(&clock_system);
        if (now > limit_ms)
            stage_give_up("kafka", "not all sagas ended in time");
        first_ms = first_ms || !done ? first_ms : now;
        if (!begin_ms && first_ms && now - first_ms >= WARM_UP_MS) {
            begin_ms = now;
            begin = done;
        }
        if (begin_ms && done <= bench->records * 19 / 20) {
            end_ms = now;
            end = done;
        }
        wait_ms(LOOK_MS);
    }
    (void)client_free(client); /* always NULL */
    if (end <= begin)
        stage_give_up("kafka", "too few records: all was over before it could be measured");
    return (double)(end - begin) * 1000 / (double)(end_ms - begin_ms);
}

/* A topic that is full already, from the start of sagad to the end of its last saga. */
static double measure_topic(struct kafka_bench *bench, const char *topic, const char *settings,
                            double *ret_cpu_us)
{
    fill(bench, topic);
    configure(bench, topic, settings);
    const char *const arguments[] = { "--config", bench->config, NULL };
    stage_checkpoint(&bench->stage);
    stage_sagad_start(&bench->stage, arguments);
    struct test_process *worker = stage_worker_start(&bench->stage);
    double rate = measure_rate(bench);
    *ret_cpu_us = stage_cpu_us(&bench->stage) / (double)bench->records;
    json_decref(stage_worker_stop(worker));
    return rate;
}

/* --- the phases ------------------------------------------------------------------------------- */

static void measure_grpc(struct kafka_bench *bench, double *values)
{
    static const char *const plain[] = { NULL };
    stage_say("batched starts");
    stage_sagad_start(&bench->stage, plain);
    struct test_process *worker = stage_worker_start(&bench->stage);
    stage_checkpoint(&bench->stage);
    json_t *object = stage_load_batched(&bench->stage);
    values[GRPC_SAGAS_PER_S] = stage_number(object, "sagas_per_s");
    json_decref(object);
    json_decref(stage_worker_stop(worker));
    stage_say("500 sagas a second");
    object = stage_load_paced(&bench->stage, "500");
    values[P99_MS] = stage_number(object, "p99_window_ms");
    json_decref(object);
    stage_sagad_stop(&bench->stage);
}

static int64_t finished_sagas(struct kafka_bench *bench)
{
    return stage_count(&bench->stage, "sagad",
                       "SELECT count(*) FROM sagad.saga WHERE state = 'SUCCEEDED'");
}

/* All that ended before is old, and more ends meanwhile. */
static void measure_purged(struct kafka_bench *bench, double *values)
{
    double unused;
    int64_t finished = finished_sagas(bench);
    stage_say("a topic, while finished sagas are purged");
    values[PURGED_SAGAS_PER_S] =
        measure_topic(bench, "purged", "retention = 1s\nkey-memory = forever\n", &unused);
    int64_t left = finished_sagas(bench);
    values[FINISHED_BEFORE] = (double)finished;
    values[LEFT] = (double)left;
    values[PURGED] = (double)(finished + bench->records - left);
    stage_say("500 sagas a second, while finished sagas are purged");
    json_t *object = stage_load_paced(&bench->stage, "500");
    values[PURGED_P99_MS] = stage_number(object, "p99_window_ms");
    json_decref(object);
    stage_sagad_stop(&bench->stage);
}

int main(int argc, char **argv)
{
    struct kafka_bench bench = { .broker = getenv("SAGAD_BENCH_BROKER"),
                                 .scratch = getenv("TMPDIR") };
    struct table_samples samples[FIGURE_COUNT] = { 0 };
    double values[FIGURE_COUNT] = { 0 };
    if (!bench.broker || !bench.scratch)
        stage_give_up("usage", "SAGAD_BENCH_BROKER=HOST:PORT TMPDIR=FOLDER kafka [--quick]");
    stage_open(&bench.stage, "kafka", argc, argv);
    bench.records = bench.stage.quick ? RECORDS_QUICK : RECORDS;
    values[LIMIT_SAGAS_PER_S] = stage_limit(&bench.stage);
    measure_grpc(&bench, values);
    stage_say("a topic");
    values[SAGAS_PER_S] = measure_topic(&bench, "plain", "key-memory = forever\n", &values[CPU_US]);
    stage_sagad_stop(&bench.stage);
    measure_purged(&bench, values);
    stage_close(&bench.stage);
    values[RATIO] = values[SAGAS_PER_S] / values[LIMIT_SAGAS_PER_S];
    values[GRPC_RATIO] = values[GRPC_SAGAS_PER_S] / values[LIMIT_SAGAS_PER_S];
    values[OF_GRPC] = values[SAGAS_PER_S] / values[GRPC_SAGAS_PER_S];
    values[PURGE_P99_RATIO] = values[PURGED_P99_MS] / values[P99_MS];
    values[PURGE_KEEP_UP] = values[PURGED] / (double)bench.records;
    for (int id = 0; id < FIGURE_COUNT; id++)
        table_add(&samples[id], values[id]);
    table_print(figures, samples, FIGURE_COUNT);
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        if (table_is_short(&figures[limits[i]], &samples[limits[i]]))
            stage_give_up("over a limit", figures[limits[i]].what);
    return 0;
}
