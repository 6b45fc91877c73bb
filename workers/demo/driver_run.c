#include "driver_run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "sagas.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    PULSE_MS = 50,
    LOOK_MS = 500,
    PRINT_MS = 5000,       /* where lines cannot be replaced */
    STUCK_TRIES_WANTED = 3 /* of the one that is left at its step on purpose */
};

struct tally {
    int started, moving, succeeded, compensated, parked;
};

struct run {
    const struct run_options *options;
    struct client *client;
    struct sagas sagas;
    bool *acknowledged; /* by number */
    int64_t begin_ms;
    int next; /* all numbers below it are acknowledged */
    struct tally tally;
    bool is_terminal, is_away;
    int64_t printed_ms;
};

static int64_t now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

static void pause_ms(int64_t ms)
{
    struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000 };
    (void)nanosleep(&time, NULL); /* a signal makes it shorter: no harm */
}

static void print_progress(struct run *run, bool last)
{
    int64_t elapsed_ms = now_ms() - run->begin_ms;
    if (!run->is_terminal && !last && elapsed_ms - run->printed_ms < PRINT_MS)
        return;
    run->printed_ms = elapsed_ms;
    const struct tally *tally = &run->tally;
    (void)printf("%s  %3d s: started %d of %d, moving %d, %s %d, %s %d, parked %d%s%s",
                 run->is_terminal ? "\r\033[K" : "", (int)(elapsed_ms / 1000), tally->started,
                 run->options->count, tally->moving, run->options->story->succeeded,
                 tally->succeeded, run->options->story->compensated, tally->compensated,
                 tally->parked, run->is_away ? " (sagad is away)" : "",
                 run->is_terminal && !last ? "" : "\n");
    (void)fflush(stdout); /* progress: nothing depends on it */
}

/* The numbers that are due and not acknowledged, at most a batch of them. */
static size_t pick_due(const struct run *run, int numbers[SAGAS_BATCH_MAX])
{
    int64_t elapsed_ms = now_ms() - run->begin_ms;
    int64_t due = 1 + elapsed_ms * run->options->count / (run->options->start_seconds * 1000);
    size_t amount = 0;
    for (int number = run->next;
         number <= run->options->count && number <= due && amount < SAGAS_BATCH_MAX; number++) {
        if (!run->acknowledged[number])
            numbers[amount++] = number;
    }
    return amount;
}

static int start_due(struct run *run, struct err *err)
{
    int numbers[SAGAS_BATCH_MAX];
    bool started[SAGAS_BATCH_MAX] = { false };
    size_t amount = pick_due(run, numbers);
    if (amount == 0)
        return 0;
    int rc = sagas_start(run->client, &run->sagas, numbers, amount, started, err);
    run->is_away = rc == ERR_UNAVAILABLE;
    if (rc && rc != ERR_UNAVAILABLE)
        return rc;
    for (size_t i = 0; i < amount; i++) {
        if (started[i]) {
            run->acknowledged[numbers[i]] = true;
            run->tally.started++;
        }
    }
    while (run->next <= run->options->count && run->acknowledged[run->next])
        run->next++;
    return 0;
}

static bool is_stuck_on_purpose(const struct run *run, int number)
{
    const struct story *story = run->options->story;
    return story->stays && story->stays(number, run->options->count);
}

static bool is_at_rest(const struct saga_seen *saga)
{
    return saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED ||
           saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED ||
           saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED;
}

static void count_states(struct run *run)
{
    struct tally tally = { .started = run->tally.started };
    for (int number = 1; number <= run->sagas.count; number++) {
        const struct saga_seen *saga = &run->sagas.seen[number];
        tally.succeeded += saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED;
        tally.compensated += saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED;
        tally.parked += saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED;
    }
    tally.moving = tally.started - tally.succeeded - tally.compensated - tally.parked;
    run->tally = tally;
}

/* True when all are acknowledged and at rest, and the one that is left at its step has been tried
 * there often enough to be worth a look. */
static int look(struct run *run, bool *ret_over, struct err *err)
{
    int rc = sagas_look(run->client, &run->sagas, err);
    run->is_away = rc == ERR_UNAVAILABLE;
    if (rc)
        return rc == ERR_UNAVAILABLE ? 0 : rc;
    count_states(run);
    bool over = run->tally.started == run->options->count;
    for (int number = 1; over && number <= run->sagas.count; number++) {
        if (is_at_rest(&run->sagas.seen[number]))
            continue;
        over = is_stuck_on_purpose(run, number);
        if (!over)
            break;
        struct saga_step step;
        rc =
            sagas_step(run->client, &run->sagas, number, run->options->story->stays_at, &step, err);
        if (rc)
            return rc == ERR_UNAVAILABLE ? 0 : rc;
        over = step.tries >= STUCK_TRIES_WANTED;
    }
    *ret_over = over;
    return 0;
}

static int too_late(const struct run *run, struct err *err)
{
    char id[STORY_ID_SIZE] = "";
    int moving = 0;
    for (int number = run->sagas.count; number >= 1; number--) {
        if (!is_at_rest(&run->sagas.seen[number]) && !is_stuck_on_purpose(run, number)) {
            story_id_format(run->options->story, number, id);
            moving++;
        }
    }
    return err_set(err, ERR_LIMIT, "not at rest after %d s: %d of %d started, %d not at rest%s%s",
                   run->options->limit_seconds, run->tally.started, run->options->count, moving,
                   moving ? ", the first is " : "", id);
}

/* A connection that failed waits longer and longer before it tries again; a new one tries now. */
static int connect_anew(struct run *run, struct err *err)
{
    run->client = client_free(run->client);
    return client_new(run->options->sagad, &run->client, err);
}

static int play(struct run *run, struct err *err)
{
    int64_t looked_ms = -LOOK_MS;
    bool over = false;
    while (!over) {
        int64_t elapsed_ms = now_ms() - run->begin_ms;
        if (elapsed_ms > (int64_t)run->options->limit_seconds * 1000)
            return too_late(run, err);
        int rc = start_due(run, err);
        if (!rc && elapsed_ms - looked_ms >= LOOK_MS) {
            looked_ms = elapsed_ms;
            rc = run->is_away ? connect_anew(run, err) : 0;
            if (!rc)
                rc = look(run, &over, err);
            print_progress(run, over);
        }
        if (rc)
            return rc;
        if (!over)
            pause_ms(PULSE_MS);
    }
    return 0;
}

int driver_run(const struct run_options *options, struct err *err)
{
    struct run run = { .options = options,
                       .next = 1,
                       .is_terminal = isatty(STDOUT_FILENO) == 1,
                       .begin_ms = now_ms() };
    int rc = sagas_create(options->story, options->count, &run.sagas, err);
    if (rc)
        return rc;
    run.acknowledged = mem_calloc((size_t)options->count + 1, sizeof *run.acknowledged);
    if (!run.acknowledged) {
        sagas_done(&run.sagas);
        return err_set(err, ERR_NOMEM, "run");
    }
    rc = client_new(options->sagad, &run.client, err);
    if (!rc)
        rc = play(&run, err);
    if (rc && run.is_terminal)
        (void)printf("\n");
    run.client = client_free(run.client);
    mem_free(run.acknowledged);
    sagas_done(&run.sagas);
    return rc;
}
