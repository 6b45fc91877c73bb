/* kafka: what Kafka's way in costs, beside batched starts over gRPC, and what the purge costs;
 * prints one JSON line (tests/bench/README.md says what each figure is).
 *
 *   SAGAD_BENCH_BROKER=HOST:PORT kafka [--quick]
 *
 * Exit code 1 when a figure is over its limit.
 */
#include "stage.h"

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
/* Of the rate of batched starts; of what had ended before the purge began; of a step's p99. */
static const double of_grpc_least = 0.9, keep_up_least = 1, purge_p99_most = 2;

struct kafka_bench {
    struct stage stage;
    const char *broker, *scratch;
    char config[256]; /* the file's path */
    int64_t records;
};

struct figures {
    double limit, grpc, kafka, kafka_purged;
    double cpu_us;
    double p99_ms, p99_purged_ms; /* medians of windows */
    int64_t finished, left, purged;
};

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

static void measure_grpc(struct kafka_bench *bench, struct figures *figures)
{
    static const char *const plain[] = { NULL };
    stage_say("batched starts");
    stage_sagad_start(&bench->stage, plain);
    struct test_process *worker = stage_worker_start(&bench->stage);
    stage_checkpoint(&bench->stage);
    json_t *object = stage_load_batched(&bench->stage);
    figures->grpc = stage_number(object, "sagas_per_s");
    json_decref(object);
    json_decref(stage_worker_stop(worker));
    stage_say("500 sagas a second");
    object = stage_load_paced(&bench->stage, "500");
    figures->p99_ms = stage_number(object, "p99_window_ms");
    json_decref(object);
    stage_sagad_stop(&bench->stage);
}

static int64_t finished_sagas(struct kafka_bench *bench)
{
    return stage_count(&bench->stage, "sagad",
                       "SELECT count(*) FROM sagad.saga WHERE state = 'SUCCEEDED'");
}

/* All that ended before is old, and more ends meanwhile. */
static void measure_purged(struct kafka_bench *bench, struct figures *figures)
{
    double unused;
    figures->finished = finished_sagas(bench);
    stage_say("a topic, while finished sagas are purged");
    figures->kafka_purged =
        measure_topic(bench, "purged", "retention = 1s\nkey-memory = forever\n", &unused);
    figures->left = finished_sagas(bench);
    figures->purged = figures->finished + bench->records - figures->left;
    stage_say("500 sagas a second, while finished sagas are purged");
    json_t *object = stage_load_paced(&bench->stage, "500");
    figures->p99_purged_ms = stage_number(object, "p99_window_ms");
    json_decref(object);
    stage_sagad_stop(&bench->stage);
}

int main(int argc, char **argv)
{
    struct kafka_bench bench = { .broker = getenv("SAGAD_BENCH_BROKER"),
                                 .scratch = getenv("TMPDIR") };
    struct figures figures = { 0 };
    if (!bench.broker || !bench.scratch)
        stage_give_up("usage", "SAGAD_BENCH_BROKER=HOST:PORT TMPDIR=FOLDER kafka [--quick]");
    stage_open(&bench.stage, "kafka", argc, argv);
    bench.records = bench.stage.quick ? RECORDS_QUICK : RECORDS;
    figures.limit = stage_limit(&bench.stage);
    measure_grpc(&bench, &figures);
    stage_say("a topic");
    figures.kafka = measure_topic(&bench, "plain", "key-memory = forever\n", &figures.cpu_us);
    stage_sagad_stop(&bench.stage);
    measure_purged(&bench, &figures);
    stage_close(&bench.stage);
    double of_grpc = figures.kafka / figures.grpc;
    double p99_ratio = figures.p99_purged_ms / figures.p99_ms;
    double keep_up = (double)figures.purged / (double)bench.records;
    (void)printf("{\"sagas_per_s\": %.0f, \"pg_limit_sagas_per_s\": %.0f, \"ratio\": %.3f, "
                 "\"grpc_sagas_per_s\": %.0f, \"grpc_ratio\": %.3f, \"of_grpc\": %.3f, "
                 "\"cpu_us_per_saga\": %.1f, \"purged_sagas_per_s\": %.0f, "
                 "\"finished_before\": %" PRId64 ", \"purged\": %" PRId64 ", \"left\": %" PRId64
                 ", \"purge_keep_up\": %.2f, \"p99_window_ms\": %.2f, "
                 "\"purged_p99_window_ms\": %.2f, \"purge_p99_ratio\": %.2f}\n",
                 figures.kafka, figures.limit, figures.kafka / figures.limit, figures.grpc,
                 figures.grpc / figures.limit, of_grpc, figures.cpu_us, figures.kafka_purged,
                 figures.finished, figures.purged, figures.left, keep_up, figures.p99_ms,
                 figures.p99_purged_ms, p99_ratio); /* best effort */
    if (of_grpc < of_grpc_least || p99_ratio > purge_p99_most || keep_up < keep_up_least)
        stage_give_up("over a limit", "of_grpc at least 0.9, purge_keep_up at least 1,"
                                      " purge_p99_ratio at most 2");
    return 0;
}
