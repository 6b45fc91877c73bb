/* core: what a transition costs the core late in a long saga and early in it, as one JSON line
 * (tests/bench/README.md). Ends with 1 when a ratio is above its limit.
 *
 * A transition is what the engine does with a report: the report, what can be granted now, the next
 * grant, the commit, and when to look at the saga again. Counted in processor time of this thread:
 * what else the machine does counts less. */
#include "base/mem.h"
#include "core/saga.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RATIO_LIMIT 1.5

enum {
    EARLY = 10,
    LATE = 240,
    SPAN = 5,
    SAGAS = 101,
    SAGAS_QUICK = 31,
    AT_ONCE = 8,
    NOW_MS = 1000000
};

static _Noreturn void give_up(const char *what, const struct err *err)
{
    (void)fprintf(stderr, "core: %s: %s\n", what, err ? err->msg : "memory is out");
    exit(1);
}

static char *text(const char *from)
{
    char *copy = mem_strdup(from);
    if (!copy)
        give_up("text", NULL);
    return copy;
}

static struct operation_rule plain_rule(void)
{
    return (struct operation_rule){
        .handler = text("bench"),
        .effect = EFFECT_IDEMPOTENT,
        .retry = { DEFAULT_RETRY_FOR_MS, DEFAULT_RETRY_INITIAL_MS, DEFAULT_RETRY_CAP_MS, 0 },
        .lease_ms = DEFAULT_LEASE_MS,
        .attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS,
        .lost_leases_max = DEFAULT_LOST_LEASES_MAX,
    };
}

/* wide: the first step, all others at once, the last step; else one after the other. */
static struct definition *definition_make(bool wide)
{
    struct definition *definition = definition_new(LIMIT_STEPS);
    if (!definition)
        give_up("definition", NULL);
    definition->namespace_ = text("default");
    definition->name = text("bench");
    for (size_t i = 0; i < LIMIT_STEPS; i++) {
        struct step_rule *step = &definition->steps[i];
        char name[16];
        (void)snprintf(name, sizeof name, "s%zu", i);
        step->name = text(name);
        step->action = plain_rule();
        step->compensation = plain_rule();
        step->has_compensation = step->guarded = true;
        step->settle_ms = -1;
        if (!wide || i == 0)
            continue;
        step->after = (struct step_set){ 0 };
        for (size_t before = i < LIMIT_STEPS - 1 ? 0 : 1; before < i; before++) {
            step_set_add(&step->after, before);
            if (i < LIMIT_STEPS - 1)
                break;
        }
    }
    definition_order(definition);
    return definition;
}

/* A saga, and what is live of it. */
struct run {
    struct saga *saga;
    struct rng rng;
    int64_t now_ms;
    int64_t fences[LIMIT_STEPS]; /* live, the oldest first */
    size_t first, count;
};

static struct run run_start(const struct definition *definition)
{
    struct run run = { .now_ms = NOW_MS };
    struct saga_row row = {
        .namespace_ = text("default"), .definition = text("bench"), .saga_id = text("B-1"), .run = 1
    };
    struct transition transition = { 0 };
    struct err err;
    rng_seed(&run.rng, 1);
    if (saga_new(definition, &row, &run.saga, &err))
        give_up("start", &err);
    saga_committed(run.saga, &transition, run.now_ms);
    return run;
}

/* The first that can be granted, if anything can. */
static void run_grant(struct run *run, struct transition *transition)
{
    struct grantable what[LIMIT_STEPS];
    struct err err;
    if (saga_grantable(run->saga, run->now_ms, what, LIMIT_STEPS) == 0)
        return;
    if (saga_grant(run->saga, &what[0], "worker", 0, run->now_ms, transition, &err))
        give_up("grant", &err);
    const struct journal_entry *lease = saga_entry(run->saga, saga_last_seq(run->saga));
    run->fences[(run->first + run->count++) % LIMIT_STEPS] = lease->fence;
}

static void run_commit(struct run *run, const struct transition *transition)
{
    saga_committed(run->saga, transition, run->now_ms++);
    if (saga_due_at(run->saga) <= run->now_ms)
        give_up("something is due at once", &(struct err){ .msg = "which is not so here" });
}

static void run_grant_alone(struct run *run)
{
    struct transition transition = { .retry_in_ms = -1 };
    run_grant(run, &transition);
    run_commit(run, &transition);
}

/* One transition: the oldest lease is reported, and what comes next is granted. */
static void run_report(struct run *run, enum outcome outcome)
{
    struct transition transition;
    struct err err;
    enum verdict verdict;
    struct report report = { .fence = run->fences[run->first % LIMIT_STEPS], .outcome = outcome };
    run->first++;
    run->count--;
    if (saga_on_report(run->saga, &report, run->now_ms, &run->rng, &transition, &verdict, &err))
        give_up("report", &err);
    if (verdict != VERDICT_ACCEPTED)
        give_up("report", &(struct err){ .msg = "not accepted" });
    run_grant(run, &transition);
    run_commit(run, &transition);
}

static int64_t cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* cannot fail on Linux */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Reports until `at` steps have been; the time of the SPAN transitions around that. */
static int64_t time_around(struct run *run, size_t *done, size_t at)
{
    for (; *done < at - SPAN / 2; (*done)++)
        run_report(run, OUTCOME_DONE);
    int64_t started = cpu_ns();
    for (size_t i = 0; i < SPAN; i++)
        run_report(run, OUTCOME_DONE);
    *done += SPAN;
    return cpu_ns() - started;
}

struct shape {
    const char *name;
    bool wide, back;
};

/* Brings it to where the counting begins. */
static size_t run_begin(struct run *run, const struct shape *shape)
{
    run_grant_alone(run);
    size_t done = 0;
    if (shape->back) { /* all but the last step, which is refused */
        for (; done < LIMIT_STEPS - 1; done++)
            run_report(run, OUTCOME_DONE);
        run_report(run, OUTCOME_REJECTED);
        return 0;
    }
    if (shape->wide) {
        run_report(run, OUTCOME_DONE);
        while (run->count < AT_ONCE)
            run_grant_alone(run);
        done = 1;
    }
    return done;
}

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static double median_us(int64_t *times, size_t count)
{
    qsort(times, count, sizeof *times, compare);
    size_t middle = count / 2;
    return (double)times[middle] / SPAN / 1000.0;
}

/* Prints the shape's figures; the ratio. */
static double measure(const struct shape *shape, size_t sagas)
{
    struct definition *definition = definition_make(shape->wide);
    int64_t early[SAGAS], late[SAGAS];
    for (size_t i = 0; i < sagas; i++) {
        struct run run = run_start(definition);
        size_t done = run_begin(&run, shape);
        early[i] = time_around(&run, &done, EARLY);
        late[i] = time_around(&run, &done, LATE);
        (void)saga_free(run.saga); /* always NULL */
    }
    (void)definition_free(definition); /* always NULL */
    double early_us = median_us(early, sagas), late_us = median_us(late, sagas);
    (void)printf("\"%s_ratio\":%.3f,\"%s_early_us\":%.2f,\"%s_late_us\":%.2f", shape->name,
                 late_us / early_us, shape->name, early_us, shape->name, late_us);
    return late_us / early_us;
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        { "sequence", false, false },
        { "wide", true, false },
        { "back", false, true },
        { "wide_back", true, true },
    };
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    bool within = true;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        (void)fputs(i ? "," : "{", stdout);
        within &= measure(&shapes[i], quick ? SAGAS_QUICK : SAGAS) <= RATIO_LIMIT;
    }
    (void)puts("}");
    if (!within)
        (void)fprintf(stderr, "core: a ratio is above %.1f\n", RATIO_LIMIT);
    return within ? 0 : 1;
}
