/* workers: what a task costs a worker of each SDK, side by side; prints a table on stderr and one
 * JSON line on stdout (tests/bench/README.md says what each figure is).
 *
 *   workers [--quick] [--skipped NAME]... c [NAME]...
 *
 * A NAME is a folder of tests/bench/workers, whose program `run` it starts, or such a folder and
 * "-async": the same program with handlers that answer without a thread of their own. All take
 * turns, there and back, so that whatever else the machine does falls on all.
 *
 * sagas of ten steps, so that starting them costs next to nothing, and always more of them under
 * way than a worker may have tasks: it never waits for anything but sagad. */
#include "stage.h"

#include "base/clock.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    SDKS_MAX = 16,
    ROUNDS = 2,
    STEPS = 10,
    LOOK_MS = 20,
    LIMIT_MS = 60000,
    AFTER_MS = 1500, /* that the load goes on, for what the window's last look may be late */
};
#define CONCURRENCY "64"
static const char *const definition = "workers", *const handler = "bench.noop";

struct round {
    double tasks_per_s, cpu_us, sagad_cpu_us, rss_mib;
};
struct sdk {
    const char *name;
    struct round rounds[ROUNDS];
    struct round mean;
};
struct workers_bench {
    struct stage stage;
    struct client *client;
    struct sdk sdks[SDKS_MAX];
    const char *skipped[SDKS_MAX];
    size_t sdk_count, skipped_count;
    int warm_up_ms, window_ms;
};

/* --- one worker ------------------------------------------------------------------------------ */

static struct test_process *worker_start(const struct workers_bench *bench, const char *name)
{
    static const char suffix[] = "-async";
    char path[512];
    size_t size = strlen(name), end = sizeof(suffix) - 1;
    bool async = size > end && strcmp(name + size - end, suffix) == 0;
    int length = snprintf(path, sizeof(path), "%s/%.*s/run", WORKERS_DIR,
                          (int)(async ? size - end : size), name);
    if (length < 0 || (size_t)length >= sizeof(path))
        stage_give_up(name, "the path is too long");
    const char *const argv[] = {
        path,    "--target",      bench->stage.target, "--handler",
        handler, "--concurrency", CONCURRENCY,         async ? "--async" : NULL,
        NULL
    };
    return stage_start(argv);
}

static void worker_stop(struct test_process *worker, const char *name)
{
    struct err err;
    int status;
    stage_require(test_process_signal(worker, SIGTERM, &err), &err, name);
    stage_require(test_process_wait(worker, LIMIT_MS, &status, &err), &err, name);
    if (status != 0)
        stage_give_up(name, "did not end in good order");
    (void)test_process_free(worker); /* always NULL */
}

/* Until the counter is that, or more if it may be. */
static void await_counter(struct workers_bench *bench, struct test_process *worker,
                          const char *counter, int64_t least, int64_t most)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + LIMIT_MS;
    for (;;) {
        int64_t value = stage_counter(bench->client, counter);
        if (value >= least && value <= most)
            return;
        if (worker && !test_process_running(worker))
            stage_give_up(counter, "the worker ended");
        if (clock_mono_ms(&clock_system) > end_ms)
            stage_give_up(counter, "is not what it should become");
        wait_ms(LOOK_MS);
    }
}

static struct test_process *load_start(const struct workers_bench *bench)
{
    char run_ms[16];
    (void)snprintf(run_ms, sizeof(run_ms), "%d",
                   bench->warm_up_ms + bench->window_ms + AFTER_MS); /* fits */
    const char *const argv[] = { LOAD,
                                 "--target",
                                 bench->stage.target,
                                 "--definition",
                                 definition,
                                 "--batch",
                                 "64",
                                 "--outstanding",
                                 "512",
                                 "--warm-up-ms",
                                 "0",
                                 "--run-ms",
                                 run_ms,
                                 NULL };
    return stage_start(argv);
}

struct look {
    int64_t at_ms, tasks;
    double cpu_us, sagad_cpu_us;
};

static struct look look(struct workers_bench *bench, const struct test_process *worker)
{
    struct look look = { .tasks = stage_counter(bench->client, "reports_accepted") };
    look.at_ms = clock_mono_ms(&clock_system);
    look.cpu_us = stage_process_cpu_us(worker);
    look.sagad_cpu_us = stage_cpu_us(&bench->stage);
    return look;
}

static struct round measure(struct workers_bench *bench, const char *name)
{
    await_counter(bench, NULL, "workers_connected", 0, 0);
    struct test_process *worker = worker_start(bench, name);
    await_counter(bench, worker, "workers_connected", 1, 1);
    stage_checkpoint(&bench->stage);
    int64_t before = stage_counter(bench->client, "reports_accepted");
    struct test_process *load = load_start(bench);
    await_counter(bench, worker, "reports_accepted", before + 1, INT64_MAX);
    wait_ms(bench->warm_up_ms);
    struct look first = look(bench, worker);
    wait_ms(bench->window_ms);
    struct look last = look(bench, worker);
    double rss_mib = stage_process_rss_mib(worker);
    if (!test_process_running(load))
        stage_give_up(name, "the load ended within the window");
    json_decref(stage_finish(load, "load"));
    worker_stop(worker, name);
    double tasks = (double)(last.tasks - first.tasks);
    if (tasks <= 0)
        stage_give_up(name, "no task in the window");
    return (struct round){
        .tasks_per_s = tasks * 1000 / (double)(last.at_ms - first.at_ms),
        .cpu_us = (last.cpu_us - first.cpu_us) / tasks,
        .sagad_cpu_us = (last.sagad_cpu_us - first.sagad_cpu_us) / tasks,
        .rss_mib = rss_mib,
    };
}

/* --- all of them ----------------------------------------------------------------------------- */

static void measure_all(struct workers_bench *bench)
{
    for (size_t turn = 0; turn < ROUNDS * bench->sdk_count; turn++) {
        size_t round = turn / bench->sdk_count, i = turn % bench->sdk_count;
        if (round % 2 == 1)
            i = bench->sdk_count - 1 - i; /* back */
        struct sdk *sdk = &bench->sdks[i];
        stage_say(sdk->name);
        sdk->rounds[round] = measure(bench, sdk->name);
    }
    for (size_t i = 0; i < bench->sdk_count; i++) {
        struct sdk *sdk = &bench->sdks[i];
        for (size_t round = 0; round < ROUNDS; round++) {
            sdk->mean.tasks_per_s += sdk->rounds[round].tasks_per_s / ROUNDS;
            sdk->mean.cpu_us += sdk->rounds[round].cpu_us / ROUNDS;
            sdk->mean.sagad_cpu_us += sdk->rounds[round].sagad_cpu_us / ROUNDS;
            sdk->mean.rss_mib += sdk->rounds[round].rss_mib / ROUNDS;
        }
    }
}

static void print_table(const struct workers_bench *bench)
{
    const struct round *c = &bench->sdks[0].mean;
    (void)fprintf(stderr, "\n%-14s %9s %21s %6s %8s %17s %6s %8s %9s %6s\n", "SDK", "tasks/s",
                  "(of each round)", "of C", "us/task", "(of each)", "x C", "cores", "sagad us",
                  "MiB"); /* best effort, as all here */
    for (size_t i = 0; i < bench->sdk_count; i++) {
        const struct sdk *sdk = &bench->sdks[i];
        const struct round *mean = &sdk->mean;
        char rates[64] = "", costs[64] = "";
        for (size_t round = 0; round < ROUNDS; round++) {
            size_t rate = strlen(rates), cost = strlen(costs);
            (void)snprintf(rates + rate, sizeof(rates) - rate, " %.0f",
                           sdk->rounds[round].tasks_per_s); /* fits */
            (void)snprintf(costs + cost, sizeof(costs) - cost, " %.1f",
                           sdk->rounds[round].cpu_us); /* fits */
        }
        (void)fprintf(stderr, "%-14s %9.0f %21s %6.2f %8.1f %17s %6.2f %8.2f %9.1f %6.0f\n",
                      sdk->name, mean->tasks_per_s, rates, mean->tasks_per_s / c->tasks_per_s,
                      mean->cpu_us, costs, mean->cpu_us / c->cpu_us,
                      mean->tasks_per_s * mean->cpu_us / 1e6, mean->sagad_cpu_us, mean->rss_mib);
    }
    for (size_t i = 0; i < bench->skipped_count; i++)
        (void)fprintf(stderr, "%-14s SKIPPED\n", bench->skipped[i]);
}

static void print_json(const struct workers_bench *bench)
{
    const struct round *c = &bench->sdks[0].mean;
    (void)printf("{"); /* best effort, as all here */
    for (size_t i = 0; i < bench->sdk_count; i++) {
        const struct round *mean = &bench->sdks[i].mean;
        (void)printf("\"%s\": {\"tasks_per_s\": %.0f, \"tasks_ratio\": %.3f, "
                     "\"cpu_us_per_task\": %.1f, \"cpu_ratio\": %.2f, "
                     "\"sagad_cpu_us_per_task\": %.1f, \"rss_mib\": %.1f}, ",
                     bench->sdks[i].name, mean->tasks_per_s, mean->tasks_per_s / c->tasks_per_s,
                     mean->cpu_us, mean->cpu_us / c->cpu_us, mean->sagad_cpu_us, mean->rss_mib);
    }
    (void)printf("\"skipped\": [");
    for (size_t i = 0; i < bench->skipped_count; i++)
        (void)printf("%s\"%s\"", i > 0 ? ", " : "", bench->skipped[i]);
    (void)printf("]}\n");
}

static void parse(struct workers_bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0 && i == 1)
            continue; /* the stage's */
        if (bench->sdk_count == SDKS_MAX || bench->skipped_count == SDKS_MAX)
            stage_give_up("usage", "too many names");
        if (strcmp(argv[i], "--skipped") == 0 && i + 1 < argc)
            bench->skipped[bench->skipped_count++] = argv[++i];
        else
            bench->sdks[bench->sdk_count++].name = argv[i];
    }
    if (bench->sdk_count == 0 || strcmp(bench->sdks[0].name, "c") != 0)
        stage_give_up("usage", "workers [--quick] [--skipped NAME]... c [NAME]...");
}

int main(int argc, char **argv)
{
    static const char *const plain[] = { NULL };
    struct workers_bench bench = { 0 };
    struct err err;
    parse(&bench, argc, argv);
    stage_open(&bench.stage, "workers", argc > 1 && strcmp(argv[1], "--quick") == 0 ? 2 : 1, argv);
    bench.warm_up_ms = bench.stage.quick ? 4000 : 8000;
    bench.window_ms = bench.stage.quick ? 4000 : 15000;
    stage_sagad_start(&bench.stage, plain);
    stage_require(client_new(bench.stage.target, &bench.client, &err), &err, "client");
    stage_define(bench.client, definition, handler, STEPS);
    measure_all(&bench);
    bench.client = client_free(bench.client);
    stage_close(&bench.stage);
    print_table(&bench);
    print_json(&bench);
    return 0;
}
