/* A handler at work on one task: it thinks, asks whether the task is still its own, sends a request
 * to the participant, and makes an outcome of the answer. Requests travel by themselves. */
#include "sim/world.h"

#include <utlist.h>

enum { MARGIN_PERCENT = 80, UNGUARDED_FLIGHT_MS = 800, PATIENCE_MS = 50 };

/* A request on its way, whatever became of its sender. */
struct flying {
    struct timer timer;
    struct demand demand;
    struct job *job; /* NULL: nobody waits for the answer */
    struct world *world;
    enum answer answer;
    bool lost;
    int64_t back_ms; /* -1: the answer is lost */
};

static const struct step_rule *step_of(const struct job *job, const struct world *world)
{
    return &definitions_find(&world->definitions, job->definition)->steps[job->step];
}

int64_t job_lease_end_ms(const struct job *job)
{
    int64_t end = job->confirmed_at_ms + job->lease_ms * MARGIN_PERCENT / 100;
    return end < job->attempt_until_ms ? end : job->attempt_until_ms;
}

static bool still_mine(const struct job *job)
{
    return !job->lost && job->worker->world->now_ms < job_lease_end_ms(job);
}

void job_forget(struct job *job)
{
    struct world *world = job->worker->world;
    DL_DELETE(job->worker->jobs, job);
    if (job->state != JOB_REPORTED)
        job->serves->in_use--;
    world_cancel(world, &job->timer);
    world_cancel(world, &job->give_up);
    job->worker = NULL;
}

void jobs_die(struct worker *worker)
{
    while (worker->jobs)
        job_forget(worker->jobs);
}

void job_finish(struct job *job, enum outcome outcome, const char *code)
{
    struct world *world = job->worker->world;
    world_cancel(world, &job->timer);
    world_cancel(world, &job->give_up);
    job->state = JOB_FINISHED;
    job->outcome = outcome;
    job->code = code;
    worker_pulse(job->worker);
}

static const struct plan *plan_of(const struct job *job, const struct world *world)
{
    return scenario_plan(world, job->saga_id, step_of(job, world)->name, job->operation, job->try_);
}

/* --- answers ---------------------------------------------------------------------------------- */

static void conclude(struct job *job, enum answer answer)
{
    struct world *world = job->worker->world;
    bool guarded = step_of(job, world)->guarded;
    switch (answer) {
    case ANSWER_DONE:
    case ANSWER_EMPTY:
        job_finish(job, OUTCOME_DONE, NULL);
        return;
    case ANSWER_DUPLICATE:
        job->ours = true;
        job_finish(job, guarded || world_chance(world, 500) ? OUTCOME_ALREADY_DONE : OUTCOME_DONE,
                   NULL);
        return;
    case ANSWER_FOREIGN:
        job_finish(job, OUTCOME_ALREADY_DONE, "EXISTS");
        return;
    case ANSWER_NO:
        job_finish(job, OUTCOME_REJECTED, "NO");
        return;
    case ANSWER_REFUSED:
        job_finish(job, OUTCOME_REJECTED, "GUARD_REFUSED");
        return;
    case ANSWER_STALE:
        job_finish(job, OUTCOME_RETRY, "GUARD_STALE");
        return;
    }
}

static void on_answer(struct world *world, struct timer *timer)
{
    struct flying *flying = CONTAINER(timer, struct flying, timer);
    struct job *job = flying->job;
    if (job->worker && worker_sleeps(job->worker, timer, on_answer))
        return;
    world->participant.in_flight--;
    if (job->worker && job->state == JOB_RUNNING)
        conclude(job, flying->answer);
}

static void on_arrival(struct world *world, struct timer *timer)
{
    struct flying *flying = CONTAINER(timer, struct flying, timer);
    flying->answer = participant_take(world, &flying->demand);
    if (flying->back_ms >= 0)
        world_after(world, timer, flying->back_ms, on_answer);
    else
        world->participant.in_flight--;
}

/* --- requests --------------------------------------------------------------------------------- */

/* The handler stops to wait when the task is no longer its own. */
static void on_give_up(struct world *world, struct timer *timer)
{
    struct job *job = CONTAINER(timer, struct job, give_up);
    if (worker_sleeps(job->worker, timer, on_give_up))
        return;
    if (still_mine(job)) {
        world_at(world, timer, job_lease_end_ms(job), on_give_up);
        return;
    }
    job_finish(job, OUTCOME_UNKNOWN, "NO_ANSWER");
}

/* How long a request may be on its way: a guarded one for ever, another one within settle time. */
static int64_t flight_ms(struct world *world, const struct job *job)
{
    const struct plan *plan = plan_of(job, world);
    if (plan)
        return plan->arrive_ms;
    if (!world_fault(world, FAULT_REQUEST_LATE))
        return world_between(world, 1, world_chance(world, 200) ? 500 : 20);
    const struct step_rule *step = step_of(job, world);
    if (step->guarded)
        return world_between(world, 100, 40000);
    int64_t most = step->settle_ms >= 0 ? step->settle_ms : UNGUARDED_FLIGHT_MS;
    return world_between(world, 0, most);
}

static enum plan_answer answer_of(struct world *world, const struct job *job)
{
    const struct plan *plan = plan_of(job, world);
    if (plan)
        return plan->answer;
    if (world_fault(world, FAULT_REQUEST_LOST))
        return PLAN_LOST;
    if (world_fault(world, FAULT_BUSINESS_NO) || (job->at_deadline && world_chance(world, 500)))
        return PLAN_NO;
    return world_fault(world, FAULT_ANSWER_LOST) ? PLAN_UNHEARD : PLAN_DONE;
}

static void send(struct job *job)
{
    struct world *world = job->worker->world;
    int64_t there_ms = flight_ms(world, job);
    enum plan_answer answer = answer_of(world, job);
    int64_t patience = world->now_ms + PATIENCE_MS, end = job_lease_end_ms(job);
    world_at(world, &job->give_up, end > patience ? end : patience, on_give_up);
    if (answer == PLAN_LOST)
        return;
    struct flying *flying = world_alloc(world, sizeof *flying);
    flying->job = job;
    flying->demand = (struct demand){ .definition = job->definition,
                                      .saga_id = job->saga_id,
                                      .step = job->step,
                                      .operation = job->operation,
                                      .fence = job->fence,
                                      .refuse = answer == PLAN_NO };
    flying->back_ms = answer == PLAN_UNHEARD ? -1 : world_between(world, 1, 20);
    world->participant.in_flight++;
    world_after(world, &flying->timer, there_ms, on_arrival);
}

static void on_send(struct world *world, struct timer *timer)
{
    struct job *job = CONTAINER(timer, struct job, timer);
    if (worker_sleeps(job->worker, timer, on_send))
        return;
    const struct plan *plan = plan_of(job, world);
    bool careless = plan ? plan->careless : job->careless;
    bool asks = !(step_of(job, world)->guarded && careless);
    if (asks && !still_mine(job)) {
        job_finish(job, OUTCOME_RETRY, "TOO_LATE"); /* nothing was sent */
        return;
    }
    if (plan ? plan->answer == PLAN_NOT_SENT : world_fault(world, FAULT_NOT_SENT)) {
        job_finish(job, OUTCOME_RETRY, "NOT_SENT");
        return;
    }
    send(job);
}

static int64_t deadline_of(struct world *world, const struct job *job)
{
    const struct db_saga *saga = database_saga(&world->database, &job->uid);
    return saga ? saga->row.deadline_at_ms : 0;
}

static int64_t think_ms(struct world *world, struct job *job)
{
    const struct plan *plan = plan_of(job, world);
    if (world->options.scripted)
        return plan ? plan->think_ms : 10;
    int64_t left_ms = deadline_of(world, job) - db_clock_ms(world->now_ms);
    if (left_ms > 60 && left_ms < 20000 && world_fault(world, FAULT_REPORT_AT_DEADLINE))
        job->at_deadline = job->elsewhere = true;
    if (job->at_deadline)
        return left_ms - world_between(world, 0, world_chance(world, 500) ? 60 : 20);
    if (world_fault(world, FAULT_HANDLER_SLOW))
        return world_between(world, job->lease_ms / 2, job->lease_ms * 2);
    return world_between(world, 1, world_chance(world, 400) ? 2000 : 30);
}

static void on_start(struct world *world, struct timer *timer)
{
    struct job *job = CONTAINER(timer, struct job, timer);
    if (worker_sleeps(job->worker, timer, on_start))
        return;
    if (!still_mine(job) || job->worker->draining) { /* it waited for too long: never started */
        job->state = JOB_RELEASED;
        worker_pulse(job->worker);
        return;
    }
    job->state = JOB_RUNNING;
    world_trace(world, job->worker->full_name, "works on %s #%d", job->saga_id,
                (int)fence_seq(job->fence));
    world_after(world, timer, think_ms(world, job), on_send);
}

struct job *job_new(struct worker *worker, struct stream *stream, const struct word *word)
{
    struct world *world = worker->world;
    struct job *job = world_alloc(world, sizeof *job);
    job->worker = worker;
    job->stream = stream;
    job->uid = word->uid;
    job->fence = word->fence;
    job->definition = word->definition;
    job->saga_id = word->saga_id;
    job->step = word->step;
    job->operation = word->operation;
    job->try_ = word->try_;
    job->lease_ms = word->lease_ms;
    /* Counted from before it was sent: how long it was on its way nobody can know. */
    job->confirmed_at_ms = word->sent_at_ms;
    job->attempt_until_ms = word->sent_at_ms + word->attempt_ms;
    job->extend_at_ms = world->now_ms + job->lease_ms / 3;
    job->careless = world_fault(world, FAULT_HANDLER_CARELESS);
    job->elsewhere = world_fault(world, FAULT_REPORT_ELSEWHERE);
    DL_APPEND(worker->jobs, job);
    return job;
}

void job_start(struct job *job)
{
    struct world *world = job->worker->world;
    world_after(world, &job->timer, world_between(world, 0, 5), on_start);
}
