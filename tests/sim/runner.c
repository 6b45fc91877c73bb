#include "sim/runner.h"

#include "sim/chaos.h"
#include "sim/world.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS_MAX = 16, TAIL_LINES = 120 };

/* Shared with the processes that run the seeds. */
struct board {
    atomic_ullong next; /* index of the next seed */
    atomic_bool stop;
    struct seat {
        uint64_t ran, seed; /* seed: at work */
        uint64_t hits[HIT_COUNT];
        bool failed;
        int invariant;
        char text[480];
    } seats[JOBS_MAX];
};

static bool run_seed(uint64_t seed, enum mutation mutation, struct trace *trace, uint64_t *hits,
                     struct violation *ret)
{
    static struct world world; /* large */
    struct world_options options = {
        .seed = seed, .mutation = mutation, .trace = trace, .hits = hits
    };
    world_open(&world, &options);
    chaos_open(&world);
    bool held = chaos_run(&world);
    *ret = world.violation;
    world_close(&world);
    return held;
}

static void work(struct board *board, struct seat *seat, const struct runner_options *options)
{
    for (;;) {
        uint64_t index = atomic_fetch_add(&board->next, 1);
        if (index >= options->first_count + options->count || atomic_load(&board->stop))
            return;
        seat->seed = index < options->first_count ? options->first[index]
                                                  : options->from + index - options->first_count;
        struct violation violation;
        if (run_seed(seat->seed, options->mutation, NULL, seat->hits, &violation)) {
            seat->ran++;
            continue;
        }
        seat->ran++;
        if (options->goes_on) {
            (void)printf("seed %" PRIu64 ": %s: %s\n", seat->seed,
                         invariant_name(violation.invariant), violation.text);
            continue;
        }
        seat->failed = true;
        seat->invariant = (int)violation.invariant;
        memcpy(seat->text, violation.text, sizeof seat->text);
        atomic_store(&board->stop, true);
        return;
    }
}

static void take_seat(const struct seat *seat, bool died, struct runner_result *ret)
{
    ret->ran += seat->ran;
    for (int i = 0; i < HIT_COUNT; i++)
        ret->hits[i] += seat->hits[i];
    if (!seat->failed && !died)
        return;
    if (ret->failed && ret->seed <= seat->seed)
        return;
    ret->failed = true;
    ret->crashed = !seat->failed;
    ret->seed = seat->seed;
    ret->invariant = seat->invariant;
    (void)snprintf(ret->text, sizeof ret->text, "%s",
                   seat->failed ? seat->text : "the process that ran it died");
}

void runner_run(const struct runner_options *options, struct runner_result *ret)
{
    *ret = (struct runner_result){ .hits = calloc(HIT_COUNT, sizeof(uint64_t)) };
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || !ret->hits) {
        perror("the simulator cannot share memory");
        exit(1);
    }
    unsigned jobs = options->jobs < JOBS_MAX ? options->jobs : JOBS_MAX;
    pid_t pids[JOBS_MAX];
    (void)fflush(NULL); /* or each child writes it again */
    for (unsigned i = 0; i < jobs; i++) {
        pids[i] = fork();
        if (pids[i] < 0) {
            perror("fork");
            exit(1);
        }
        if (pids[i] == 0) {
            work(board, &board->seats[i], options);
            exit(0); /* with the sanitizer's look at leaks */
        }
    }
    for (unsigned i = 0; i < jobs; i++) {
        int status = 0;
        bool died = waitpid(pids[i], &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status);
        if (died)
            atomic_store(&board->stop, true);
        take_seat(&board->seats[i], died, ret);
    }
    (void)munmap(board, sizeof *board);
}

void runner_result_done(struct runner_result *result)
{
    free(result->hits);
    result->hits = NULL;
}

bool runner_show(uint64_t seed, enum mutation mutation, bool whole)
{
    struct trace trace = { .out = whole ? stdout : NULL };
    struct violation violation;
    uint64_t *hits = calloc(HIT_COUNT, sizeof *hits);
    bool held = hits && run_seed(seed, mutation, &trace, hits, &violation);
    if (!held && !whole)
        (void)printf("%s", trace_tail(&trace, TAIL_LINES));
    if (!held)
        (void)printf("seed %" PRIu64 ", %" PRId64 " ms: %s\n  %s (%s): %s\n", seed, violation.at_ms,
                     violation.text, invariant_name(violation.invariant),
                     invariant_promise(violation.invariant), invariant_text(violation.invariant));
    trace_done(&trace);
    free(hits);
    return held;
}
