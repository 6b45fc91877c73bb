#include "worker.h"

#include "base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ADDRESSES = 16, STEP_MS = 5, LOOP_THREADS = 4, LOOP_JOBS = 4096, LINE_SIZE = 256 };

static struct saga_worker *worker;
static _Atomic int64_t clock_offset_ms;

static int64_t mono_ms(void *ctx)
{
    (void)ctx;
    return clock_mono_ms(&clock_system) + clock_offset_ms;
}

static void wait_step(void)
{
    struct timespec time = { .tv_nsec = STEP_MS * 1000000L };
    (void)nanosleep(&time, NULL); /* an early end does no harm */
}

/* Handlers of kind blocking and typed. */
static void run_to_the_end(struct saga_task *task, void *ctx)
{
    struct job *job = job_new(task, ctx != NULL);
    while (job && !job_step(job))
        wait_step();
}

/* Kind async: one thread plays them all. */
static struct {
    pthread_mutex_t lock;
    struct {
        struct saga_task *task;
        struct job *job;
    } items[LOOP_JOBS];
    size_t count;
} loop = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void hand_to_loop(struct saga_task *task, void *ctx)
{
    (void)ctx;
    struct job *job = job_new(task, false);
    if (!job)
        return;
    saga_task_keep(task);
    pthread_mutex_lock(&loop.lock);
    if (loop.count == LOOP_JOBS)
        abort(); /* more than any behaviour asks for */
    loop.items[loop.count].task = task;
    loop.items[loop.count++].job = job;
    pthread_mutex_unlock(&loop.lock);
}

static void *play_loop(void *ctx)
{
    (void)ctx;
    for (;;) {
        pthread_mutex_lock(&loop.lock);
        for (size_t i = 0; i < loop.count;) {
            if (!job_step(loop.items[i].job)) {
                i++;
                continue;
            }
            saga_task_end(loop.items[i].task);
            loop.items[i] = loop.items[--loop.count];
        }
        pthread_mutex_unlock(&loop.lock);
        wait_step();
    }
    return NULL;
}

/* Commands. */

static void obey(char *line)
{
    char *rest = line;
    const char *word = strsep(&rest, " \n"), *value = rest ? strsep(&rest, " \n") : "";
    struct saga_worker_stats stats;
    if (strcmp(word, "go") == 0) {
        job_let_go(value);
    } else if (strcmp(word, "still_mine") == 0) {
        job_tell_still_mine(value);
    } else if (strcmp(word, "clock") == 0) {
        clock_offset_ms += strtoll(value, NULL, 10);
    } else if (strcmp(word, "drain") == 0) {
        saga_worker_drain(worker);
    } else if (strcmp(word, "stats") == 0) {
        saga_worker_stats(worker, &stats);
        event_write(
            "stats", "{s:I,s:I,s:I,s:I,s:I,s:I}", "tasks_started", (json_int_t)stats.tasks_started,
            "reports_accepted", (json_int_t)stats.reports_accepted, "reports_duplicate",
            (json_int_t)stats.reports_duplicate, "reports_stale", (json_int_t)stats.reports_stale,
            "leases_lost", (json_int_t)stats.leases_lost, "connects", (json_int_t)stats.connects);
    } else {
        (void)fprintf(stderr, "no such command: %s\n", word);
    }
}

static void *read_commands(void *ctx)
{
    char line[LINE_SIZE];
    (void)ctx;
    while (fgets(line, sizeof line, stdin))
        obey(line);
    _exit(0); /* the suite is gone */
}

/* Options. */

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static char *text_of(const char *name)
{
    const char *text = getenv(name);
    char *copy = strdup(text ? text : "");
    if (!copy)
        abort();
    return copy; /* for as long as the program runs */
}

static int add_handlers(char *text, bool *ret_all_async, struct saga_error *error)
{
    static char typed[] = "typed";
    int rc = 0;
    *ret_all_async = true;
    for (char *item; rc == 0 && (item = strsep(&text, ","));) {
        const char *name = strsep(&item, ":"), *most = item ? strsep(&item, ":") : "1";
        bool async = item && strcmp(item, "async") == 0;
        *ret_all_async = *ret_all_async && async;
        if (worker)
            rc = saga_worker_handle(worker, name, (int)strtol(most, NULL, 10),
                                    async ? hand_to_loop : run_to_the_end,
                                    item && strcmp(item, typed) == 0 ? typed : NULL, error);
    }
    return rc;
}

static int start(struct saga_error *error)
{
    const char *addresses[ADDRESSES + 1] = { NULL };
    char *list = text_of("SAGA_ADDRESSES");
    bool all_async;
    (void)add_handlers(text_of("SAGA_HANDLERS"), &all_async, error); /* only looks */
    for (int i = 0; i < ADDRESSES && list; i++)
        addresses[i] = strsep(&list, ",");
    struct saga_worker_options options = {
        .addresses = addresses,
        .worker_id = text_of("SAGA_WORKER_ID"),
        .threads = all_async ? LOOP_THREADS : (int)number_of("SAGA_CONCURRENCY", 0),
        .drain_ms = number_of("SAGA_DRAIN_MS", 0),
        .handle_signals = number_of("SAGA_SIGNALS", 0) == 1,
        .output_bytes_max = (int)number_of("SAGA_OUTPUT_MAX", 0),
        .message_bytes_max = (int)number_of("SAGA_MAX_MESSAGE", 0),
        .mono_ms = mono_ms,
    };
    if (saga_worker_new(&options, &worker, error) != 0)
        return -1;
    return add_handlers(text_of("SAGA_HANDLERS"), &all_async, error);
}

int main(void)
{
    struct saga_error error = { "" };
    pthread_t thread;
    int rc = start(&error);
    if (rc == 0 && (pthread_create(&thread, NULL, read_commands, NULL) != 0 ||
                    pthread_create(&thread, NULL, play_loop, NULL) != 0))
        rc = -1;
    if (rc == 0) {
        event_write("ready", "{s:[s,s,s,s,s]}", "clients", "http", "grpc", "postgresql", "mysql",
                    "dns");
        rc = saga_worker_run(worker, &error);
    }
    if (rc != 0)
        (void)fprintf(stderr, "worker: %s\n", error.message);
    event_write("ended", "{s:i}", "code", rc == 0 ? 0 : 1);
    _exit(rc == 0 ? 0 : 1); /* the other threads still look at the worker */
}
