/* noop_worker: runs the steps of the benchmark's definition and does nothing in them but answer ten
 * bytes. It also measures what a step costs beyond its handler: the time from a handler's return
 * (the report can leave) to the beginning of the same saga's next handler in this process, which
 * holds the way to the orchestrator, the durable commit of the report and the next grant together,
 * and the way back.
 *
 * p99_window_ms is the median, over windows of half a second, of a window's p99: when the host of a
 * virtual machine takes its processors away for a tenth of a second, that spoils the windows it
 * falls into and no other. p99_ms is over all of it.
 *
 *   noop_worker --target ADDRESS [--threads N] [--in-flight N]      ends with SIGTERM and prints
 *   {"tasks": N, "hand_offs": N, "p50_ms": N, "p99_ms": N, "p99_window_ms": N, "windows": N}
 */
#include "base/cleanup.h"
#include "base/mem.h"
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

/* Where a saga's last handler ended. */
struct place {
    uint8_t uid[16];
    int64_t end_ns; /* 0: empty */
};

struct hand_offs {
    pthread_mutex_t lock;
    struct place places[PLACES];
    uint64_t counts[BUCKETS];
    uint64_t count, tasks;
    int64_t window_end_ns;
    size_t window_count, windows;
    double window_ms[WINDOW_SAMPLES_MAX], p99_ms[WINDOWS_MAX];
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

/* The random bits of a version 7 UUID are in its second half; its last byte is the shard. */
static struct place *place_of(struct hand_offs *hand_offs, const uint8_t *uid)
{
    size_t index = (size_t)uid[12] << 8 | uid[13];
    return &hand_offs->places[index % PLACES];
}

static int double_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void window_close(struct hand_offs *hand_offs)
{
    size_t count = hand_offs->window_count;
    hand_offs->window_count = 0;
    if (count < WINDOW_SAMPLES_MIN || hand_offs->windows == WINDOWS_MAX)
        return;
    qsort(hand_offs->window_ms, count, sizeof(double), double_compare);
    hand_offs->p99_ms[hand_offs->windows++] = hand_offs->window_ms[count * 99 / 100];
}

static void sample(struct hand_offs *hand_offs, int64_t now, int64_t took_ns)
{
    int64_t bucket = took_ns / 1000 / BUCKET_US;
    hand_offs->counts[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    hand_offs->count++;
    if (now >= hand_offs->window_end_ns) {
        window_close(hand_offs);
        hand_offs->window_end_ns = now + (int64_t)WINDOW_MS * 1000000;
    }
    if (hand_offs->window_count < WINDOW_SAMPLES_MAX)
        hand_offs->window_ms[hand_offs->window_count++] = (double)took_ns / 1e6;
}

static void nothing(struct saga_task *task, void *ctx)
{
    struct hand_offs *hand_offs = ctx;
    int64_t begin_ns = now_ns();
    struct place *place = place_of(hand_offs, saga_task_uid(task));
    (void)pthread_mutex_lock(&hand_offs->lock); /* a plain mutex, never destroyed while in use */
    hand_offs->tasks++;
    if (place->end_ns != 0 && memcmp(place->uid, saga_task_uid(task), sizeof(place->uid)) == 0)
        sample(hand_offs, begin_ns, begin_ns - place->end_ns);
    memcpy(place->uid, saga_task_uid(task), sizeof(place->uid));
    (void)pthread_mutex_unlock(&hand_offs->lock); /* held above */
    if (saga_task_done(task, "0123456789", OUTPUT_BYTES) != 0)
        give_up("done", "the outcome is refused");
    (void)pthread_mutex_lock(&hand_offs->lock); /* as above */
    if (memcmp(place->uid, saga_task_uid(task), sizeof(place->uid)) == 0)
        place->end_ns = now_ns();
    (void)pthread_mutex_unlock(&hand_offs->lock); /* held above */
}

/* Upper bound of the bucket in which the share of all samples lies. */
static double percentile_ms(const struct hand_offs *hand_offs, double share)
{
    uint64_t rank = (uint64_t)((double)hand_offs->count * share), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += hand_offs->counts[i];
        if (seen > rank)
            return (double)(i + 1) * BUCKET_US / 1000.0;
    }
    return 0;
}

static double window_p99_ms(struct hand_offs *hand_offs)
{
    window_close(hand_offs);
    if (hand_offs->windows == 0)
        return 0;
    qsort(hand_offs->p99_ms, hand_offs->windows, sizeof(double), double_compare);
    return hand_offs->p99_ms[hand_offs->windows / 2];
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
    struct hand_offs *hand_offs = mem_calloc(1, sizeof(*hand_offs));
    if (!hand_offs || pthread_mutex_init(&hand_offs->lock, NULL) != 0)
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
        if (saga_worker_handle(worker, steps[i], in_flight, nothing, hand_offs, &error) != 0)
            give_up(steps[i], error.message);
    if (saga_worker_run(worker, &error) != 0)
        give_up("run", error.message);
    (void)saga_worker_free(worker); /* always NULL */
    double p99_window = window_p99_ms(hand_offs);
    (void)printf("{\"tasks\": %llu, \"hand_offs\": %llu, \"p50_ms\": %.2f, \"p99_ms\": %.2f, "
                 "\"p99_window_ms\": %.2f, \"windows\": %zu}\n",
                 (unsigned long long)hand_offs->tasks, (unsigned long long)hand_offs->count,
                 percentile_ms(hand_offs, 0.50), percentile_ms(hand_offs, 0.99), p99_window,
                 hand_offs->windows); /* best effort */
    mem_free(hand_offs);
    return 0;
}
