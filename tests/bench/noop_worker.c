/* noop_worker: runs the steps of the benchmark's definition and does nothing in them but answer ten
 * bytes. It also measures what a step costs beyond its handler: the time from when a handler says
 * that it is done to the beginning of the same saga's next handler in this process, which
 * holds the way to the orchestrator, the durable commit of the report and the next grant together,
 * and the way back. And, where the load generator has written the time of its call into the saga's
 * input ("begun" and nanoseconds of the monotonic clock, which the processes of a machine share),
 * what it takes from there to the beginning of the first handler.
 *
 * p99_window_ms is the median, over windows of half a second, of a window's p99: when the host of a
 * virtual machine takes its processors away for a tenth of a second, that spoils the windows it
 * falls into and no other. p99_ms is over all of it.
 *
 *   noop_worker --target ADDRESS [--threads N] [--in-flight N]      ends with SIGTERM and prints
 *   {"tasks": N, "hand_offs": N, "p50_ms": N, "p99_ms": N, "p99_window_ms": N, "windows": N,
 *    "starts": N, "start_p50_ms": N, "start_p99_ms": N, "start_p99_window_ms": N}
 */
#include "base/cleanup.h"
#include "base/mem.h"
#include "begun.h"
#include "sagaworker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    OUTPUT_BYTES = 10,
    PLACES = 1 << 16,              /* sagas between two of their steps; a clash loses one sample */
    BUCKET_US = 10,                /* resolution of the histogram */
    BUCKETS = 1000000 / BUCKET_US, /* up to one second; the last one holds all above */
    WINDOW_MS = 500,
    WINDOWS_MAX = 4096,        /* later ones are not kept */
    WINDOW_SAMPLES_MIN = 100,  /* fewer say nothing about a hundredth */
    WINDOW_SAMPLES_MAX = 8192, /* of a window; more are not kept */
};

/* When a saga's last handler was done. */
struct place {
    uint8_t uid[16];
    int64_t done_ns; /* 0: empty */
};

/* Samples of one kind of time. */
struct times {
    uint64_t counts[BUCKETS];
    uint64_t count;
    int64_t window_end_ns;
    size_t window_count, windows;
    double window_ms[WINDOW_SAMPLES_MAX], p99_ms[WINDOWS_MAX];
};

struct bench_worker {
    pthread_mutex_t lock;
    struct place places[PLACES];
    uint64_t tasks;
    struct times hand_offs, starts;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "noop_worker: %s: %s\n", what, why); /* best effort */
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* sagad counts the sagas of a moment up in a uid's last bytes before the shard, so those that are
 * under way together have places of their own. */
static struct place *place_of(struct bench_worker *bench, const uint8_t *uid)
{
    size_t index = (size_t)uid[13] << 8 | uid[14];
    return &bench->places[index % PLACES];
}

static int double_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void window_close(struct times *times)
{
    size_t count = times->window_count;
    times->window_count = 0;
    if (count < WINDOW_SAMPLES_MIN || times->windows == WINDOWS_MAX)
        return;
    qsort(times->window_ms, count, sizeof(double), double_compare);
    times->p99_ms[times->windows++] = times->window_ms[count * 99 / 100];
}

static void sample(struct times *times, int64_t now, int64_t took_ns)
{
    int64_t bucket = took_ns / 1000 / BUCKET_US;
    times->counts[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    times->count++;
    if (now >= times->window_end_ns) {
        window_close(times);
        times->window_end_ns = now + (int64_t)WINDOW_MS * 1000000;
    }
    if (times->window_count < WINDOW_SAMPLES_MAX)
        times->window_ms[times->window_count++] = (double)took_ns / 1e6;
}

static void nothing(struct saga_task *task, void *ctx)
{
    struct bench_worker *bench = ctx;
    const uint8_t *uid = saga_task_uid(task);
    struct place *place = place_of(bench, uid);
    int64_t now = now_ns();
    (void)pthread_mutex_lock(&bench->lock); /* a plain mutex, never destroyed while in use */
    bench->tasks++;
    if (place->done_ns != 0 && memcmp(place->uid, uid, sizeof(place->uid)) == 0)
        sample(&bench->hand_offs, now, now - place->done_ns);
    memcpy(place->uid, uid, sizeof(place->uid));
    /* Before the report can leave: the saga's next handler may begin before saga_task_done is back.
     */
    place->done_ns = now_ns();
    (void)pthread_mutex_unlock(&bench->lock); /* held above */
    if (saga_task_done(task, "0123456789", OUTPUT_BYTES) != 0)
        give_up("done", "the outcome is refused");
}

static void first(struct saga_task *task, void *ctx)
{
    struct bench_worker *bench = ctx;
    struct saga_bytes input = saga_task_input(task);
    int64_t now = now_ns(), begun;
    if (begun_read(input.data, input.size, &begun)) {
        (void)pthread_mutex_lock(&bench->lock); /* as above */
        sample(&bench->starts, now, now - begun);
        (void)pthread_mutex_unlock(&bench->lock); /* held above */
    }
    nothing(task, ctx);
}

/* Upper bound of the bucket in which the share of all samples lies. */
static double percentile_ms(const struct times *times, double share)
{
    uint64_t rank = (uint64_t)((double)times->count * share), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += times->counts[i];
        if (seen > rank)
            return (double)(i + 1) * BUCKET_US / 1000.0;
    }
    return 0;
}

static double window_p99_ms(struct times *times)
{
    window_close(times);
    if (times->windows == 0)
        return 0;
    qsort(times->p99_ms, times->windows, sizeof(double), double_compare);
    return times->p99_ms[times->windows / 2];
}

static void print(struct bench_worker *bench)
{
    struct times *steps = &bench->hand_offs, *starts = &bench->starts;
    double steps_window = window_p99_ms(steps), starts_window = window_p99_ms(starts);
    (void)printf("{\"tasks\": %llu, \"hand_offs\": %llu, \"p50_ms\": %.2f, \"p99_ms\": %.2f, "
                 "\"p99_window_ms\": %.2f, \"windows\": %zu, \"starts\": %llu, "
                 "\"start_p50_ms\": %.2f, \"start_p99_ms\": %.2f, \"start_p99_window_ms\": %.2f}\n",
                 (unsigned long long)bench->tasks, (unsigned long long)steps->count,
                 percentile_ms(steps, 0.50), percentile_ms(steps, 0.99), steps_window,
                 steps->windows, (unsigned long long)starts->count, percentile_ms(starts, 0.50),
                 percentile_ms(starts, 0.99), starts_window); /* best effort */
}

static int number(const char *name, const char *text, int max)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < 1 || value > max)
        give_up("not a number in its range", name);
    return (int)value;
}

int main(int argc, char **argv)
{
    static const char *const steps[] = { "bench.one", "bench.two", "bench.three" };
    const char *addresses[] = { NULL, NULL };
    int threads = 2, in_flight = 512;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            give_up("needs a value, or is unknown", argv[i]);
        if (strcmp(argv[i], "--target") == 0)
            addresses[0] = argv[i + 1];
        else if (strcmp(argv[i], "--threads") == 0)
            threads = number(argv[i], argv[i + 1], SAGA_THREADS_MAX);
        else if (strcmp(argv[i], "--in-flight") == 0)
            in_flight = number(argv[i], argv[i + 1], SAGA_IN_FLIGHT_MAX);
        else
            give_up("unknown argument", argv[i]);
    }
    if (!addresses[0])
        give_up("usage", "noop_worker --target ADDRESS [--threads N] [--in-flight N]");
    struct bench_worker *bench = mem_calloc(1, sizeof(*bench));
    if (!bench || pthread_mutex_init(&bench->lock, NULL) != 0)
        give_up("start", "out of memory");
    struct saga_worker_options options = {
        .addresses = addresses,
        .worker_id = "noop",
        .threads = threads,
        .handle_signals = true,
    };
    struct saga_worker *worker;
    struct saga_error error;
    if (saga_worker_new(&options, &worker, &error) != 0)
        give_up("start", error.message);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        if (saga_worker_handle(worker, steps[i], in_flight, i == 0 ? first : nothing, bench,
                               &error) != 0)
            give_up(steps[i], error.message);
    if (saga_worker_run(worker, &error) != 0)
        give_up("run", error.message);
    (void)saga_worker_free(worker); /* always NULL */
    print(bench);
    mem_free(bench);
    return 0;
}
