/* sim                              seeds that ever failed, then the everyday number of new ones
 * sim --seeds FROM COUNT           these
 * sim --seed N [--trace]           one, with its trace
 * ... [--go-on]                    does not stop at the first that fails
 * ... [--mutation NAME]            with a fault of ours in the store
 * sim --catch ...                  succeeds when something is violated, and says after how long
 * sim --tables                     invariants and faults, as Markdown
 * sim --mutations                  the names
 * sim --scenario FILE              its trace */
#include "base/log.h"
#include "sim/hits.h"
#include "sim/invariants.h"
#include "sim/runner.h"
#include "sim/scenario.h"
#include "sim/tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVERYDAY = 5000, FULL = 40000, FAILED_MAX = 256, EACH_HITS_FROM = 2000 };

/* There if the patch of this mutant no longer applies (mutate.sh). */
extern const char *const sim_mutation_stale __attribute__((weak));

struct arguments {
    bool one, trace, goes_on, catches, lists, tables;
    uint64_t seed, from, count;
    enum mutation mutation;
    const char *scenario;
};

static uint64_t number(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

static bool read_arguments(char **argv, struct arguments *ret)
{
    const char *size = getenv("SAGAD_TEST_SIZE");
    *ret = (struct arguments){ .from = 1 };
    ret->count = size && strcmp(size, "full") == 0 ? FULL : EVERYDAY;
    for (char **at = argv + 1; *at; at++) {
        if (strcmp(*at, "--trace") == 0) {
            ret->trace = true;
        } else if (strcmp(*at, "--seed") == 0 && at[1]) {
            ret->one = true;
            ret->seed = number(*++at);
        } else if (strcmp(*at, "--seeds") == 0 && at[1] && at[2]) {
            ret->from = number(*++at);
            ret->count = number(*++at);
        } else if (strcmp(*at, "--go-on") == 0) {
            ret->goes_on = true;
        } else if (strcmp(*at, "--catch") == 0) {
            ret->catches = true;
        } else if (strcmp(*at, "--tables") == 0) {
            ret->tables = true;
        } else if (strcmp(*at, "--mutations") == 0) {
            ret->lists = true;
        } else if (strcmp(*at, "--scenario") == 0 && at[1]) {
            ret->scenario = *++at;
        } else if (strcmp(*at, "--mutation") == 0 && at[1]) {
            ret->mutation = mutation_parse(*++at);
        } else {
            return false;
        }
    }
    return ret->mutation != MUTATION_COUNT;
}

/* One number a line; what follows a # is for people. */
static size_t read_failed(uint64_t *ret)
{
    size_t count = 0;
    char line[256];
    FILE *file = fopen(SEEDS_FILE, "r");
    if (!file)
        return 0;
    while (count < FAILED_MAX && fgets(line, sizeof line, file))
        if (line[0] >= '0' && line[0] <= '9')
            ret[count++] = number(line);
    (void)fclose(file);
    return count;
}

static int catch_one(const char *program, const struct arguments *arguments)
{
    if (&sim_mutation_stale) {
        (void)printf("%s: %s\n", program, sim_mutation_stale);
        return 1;
    }
    struct runner_options options = { .from = arguments->from,
                                      .count = arguments->count,
                                      .jobs = 2,
                                      .mutation = arguments->mutation };
    struct runner_result result;
    runner_run(&options, &result);
    const char *name = strrchr(program, '/');
    name = name ? name + 1 : program;
    if (arguments->mutation)
        name = mutation_name(arguments->mutation);
    else if (strncmp(name, "sim_", 4) == 0)
        name += 4;
    if (result.failed)
        (void)printf("%s | %s | %" PRIu64 "\n", name,
                     result.crashed ? "a crash" : invariant_name((enum invariant)result.invariant),
                     result.seed - arguments->from + 1);
    else
        (void)printf("%s | NOTHING | %" PRIu64 "\n", name, result.ran);
    runner_result_done(&result);
    return result.failed ? 0 : 1;
}

static int run_all(const struct arguments *arguments)
{
    uint64_t failed[FAILED_MAX];
    struct runner_options options = { .first = failed,
                                      .first_count = read_failed(failed),
                                      .from = arguments->from,
                                      .count = arguments->count,
                                      .jobs = 2,
                                      .mutation = arguments->mutation,
                                      .goes_on = arguments->goes_on };
    struct runner_result result;
    time_t started = time(NULL);
    (void)printf("proves: P1 P2 P3 P4 P5 P6 P8 | sim_seeds\n"); /* support/proof.h */
    runner_run(&options, &result);
    bool hit = tables_print_hits(&result) || result.ran < EACH_HITS_FROM;
    (void)printf("%" PRIu64 " seeds in %lld s\n", result.ran, (long long)(time(NULL) - started));
    if (result.failed && !result.crashed)
        (void)runner_show(result.seed, arguments->mutation, false);
    if (result.failed)
        (void)printf("FAILED: seed %" PRIu64 ": %s\n  again: tests/sim/run --seed %" PRIu64
                     " --trace\n",
                     result.seed, result.text, result.seed);
    else if (!hit)
        (void)printf("FAILED: something never hit, see the table\n");
    runner_result_done(&result);
    return result.failed || !hit;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    (void)argc;
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* several processes write */
    log_set_level(LOG_LEVEL_COUNT);         /* the trace tells it */
    if (!read_arguments(argv, &arguments)) {
        (void)fprintf(stderr, "usage: sim [--seed N [--trace] | --seeds FROM COUNT]"
                              " [--go-on | --catch] [--mutation NAME]\n");
        return 2;
    }
    if (arguments.tables) {
        tables_print();
        return 0;
    }
    for (int i = MUTATION_NONE + 1; arguments.lists && i < MUTATION_COUNT; i++)
        (void)printf("%s\n", mutation_name((enum mutation)i));
    if (arguments.lists)
        return 0;
    if (arguments.scenario) {
        CLEANUP(buf_done) struct buf trace = { .limit = 0 };
        CLEANUP(buf_done) struct buf expected = { .limit = 0 };
        bool held = scenario_run(arguments.scenario, &trace, &expected);
        (void)printf("%s", buf_cstr(&trace));
        return held ? 0 : 1;
    }
    if (arguments.one)
        return runner_show(arguments.seed, arguments.mutation, arguments.trace) ? 0 : 1;
    return arguments.catches ? catch_one(argv[0], &arguments) : run_all(&arguments);
}
