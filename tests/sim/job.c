/* A handler at work on one task: it thinks, asks whether the task is still its own, sends a request
 * to the participant (a probe: a question), and makes an outcome of the answer. Requests travel by
 * themselves. */
#include "sim/world.h"

#include <string.h>
#include <utlist.h>

enum {
    MARGIN_PERCENT = 80,
    GUARDED_FLIGHT_MS = 40000,
    UNGUARDED_FLIGHT_MS = 800, /* where nobody said how long it may be */
    QUESTION_FLIGHT_MS = 20000,
    PATIENCE_MS = 50,
};

/* A request on its way, whatever became of its sender. */
struct flying {
    struct timer timer;
    struct demand demand;
    struct job *job;
    enum answer answer;
    int64_t back_ms; /* -1: the answer is lost */
    bool is_question;
    bool arrived;
    bool settles;  /* it arrives no later than settle time after its lease */
    bool by_lease; /* and so long before or after that ends, whenever it does */
};

static void on_arrival(struct world *world, struct timer *timer);

static const struct step_rule *step_of(const struct job *job, const struct world *world)
{
    return &definitions_find(&world->definitions, job->definition)->steps[job->step];
}

int64_t job_lease_end_ms(const struct job *job)
{
    int64_t end = job->confirmed_at_ms + job->lease_ms * MARGIN_PERCENT / 100;
    return end < job->attempt_until_ms ? end : job->attempt_until_ms;
}

/* Its requests arrive within settle time after the lease, if there is one. */
static bool settles(const struct step_rule *step)
{
    return step->settle_ms >= 0;
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

/* Who does not wait any longer has ended its lease: from then on settle time counts. */
static void hurry(struct job *job)
{
    struct world *world = job->worker->world;
    struct flying *flying = job->flying;
    if (!flying || flying->arrived || !flying->settles)
        return;
    int64_t latest = world->now_ms + step_of(job, world)->settle_ms;
    if (timer_at_ms(&flying->timer) > latest)
        world_at(world, &flying->timer, world_between(world, world->now_ms, latest), on_arrival);
}

void job_finish(struct job *job, enum outcome outcome, const char *code)
{
    struct world *world = job->worker->world;
    world_cancel(world, &job->timer);
    world_cancel(world, &job->give_up);
    hurry(job);
    job->state = JOB_FINISHED;
    job->outcome = outcome;
    job->code = code;
    worker_pulse(job->worker);
}

void job_extended(struct job *job, int64_t lease_ms)
{
    struct world *world = job->worker->world;
    struct flying *flying = job->flying;
    int64_t end = job_lease_end_ms(job);
    job->confirmed_at_ms = job->extend_sent_ms;
    job->lease_ms = lease_ms;
    job->extend_sent_ms = 0;
    int64_t more_ms = job_lease_end_ms(job) - end;
    if (flying && !flying->arrived && flying->by_lease && more_ms > 0)
        world_at(world, &flying->timer, timer_at_ms(&flying->timer) + more_ms, on_arrival);
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
    if (job->operation != OPERATION_PROBE && world_fault(world, FAULT_WORD_OF_PROBE)) {
        job_finish(job, world_chance(world, 500) ? OUTCOME_NOT_DONE : OUTCOME_STILL_UNKNOWN, NULL);
        return;
    }
    switch (answer) {
    case ANSWER_DONE:
    case ANSWER_EMPTY:
        job_finish(job, OUTCOME_DONE, NULL);
        return;
    case ANSWER_NOT_DONE:
        job_finish(job, OUTCOME_NOT_DONE, NULL);
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
    flying->arrived = true;
    flying->answer = flying->is_question ? participant_tell(world, &flying->demand)
                                         : participant_take(world, &flying->demand);
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

/* When it arrives: a question and a guarded request whenever they like, another request, or one
 * whose step has a settle time, no later than that after its lease. */
static int64_t arrives_in_ms(struct world *world, const struct job *job, struct flying *flying)
{
    const struct plan *plan = plan_of(job, world);
    const struct step_rule *step = step_of(job, world);
    if (plan)
        return plan->arrive_ms;
    if (flying->is_question)
        return world_fault(world, FAULT_QUESTION_LATE)
                   ? world_between(world, 100, QUESTION_FLIGHT_MS)
                   : world_between(world, 1, 20);
    bool late = world_fault(world, FAULT_REQUEST_LATE);
    int64_t in_ms = world_between(world, 1, world_chance(world, 200) ? 500 : 20);
    if (!settles(step))
        return !late ? in_ms
                     : world_between(world, 0,
                                     step->guarded ? GUARDED_FLIGHT_MS : UNGUARDED_FLIGHT_MS);
    flying->settles = true;
    flying->by_lease = late;
    int64_t left_ms = job_lease_end_ms(job) - world->now_ms;
    if (left_ms < 0)
        left_ms = 0;
    int64_t most_ms = left_ms + step->settle_ms;
    if (late)
        return world_between(world, world_chance(world, 600) ? left_ms : 0, most_ms);
    return in_ms < most_ms ? in_ms : most_ms;
}

static enum plan_answer answer_of(struct world *world, const struct job *job)
{
    const struct plan *plan = plan_of(job, world);
    if (plan)
        return plan->answer;
    if (job->operation == OPERATION_PROBE)
        return !world_fault(world, FAULT_QUESTION_LOST) ? PLAN_DONE
               : world_chance(world, 500)               ? PLAN_LOST
                                                        : PLAN_UNHEARD;
    if (world_fault(world, FAULT_REQUEST_LOST))
        return PLAN_LOST;
    if (world_fault(world, FAULT_BUSINESS_NO) || (job->at_deadline && world_chance(world, 500)))
        return PLAN_NO;
    return world_fault(world, FAULT_ANSWER_LOST) ? PLAN_UNHEARD : PLAN_DONE;
}

static void send(struct job *job)
{
    struct world *world = job->worker->world;
    enum plan_answer answer = answer_of(world, job);
    int64_t patience = world->now_ms + PATIENCE_MS, end = job_lease_end_ms(job);
    world_at(world, &job->give_up, end > patience ? end : patience, on_give_up);
    job->sent = true;
    if (answer == PLAN_LOST)
        return;
    struct flying *flying = world_alloc(world, sizeof *flying);
    flying->job = job;
    flying->is_question = job->operation == OPERATION_PROBE;
    flying->demand = (struct demand){ .definition = job->definition,
                                      .saga_id = job->saga_id,
                                      .step = job->step,
                                      .operation = job->about,
                                      .uid = job->uid,
                                      .fence = job->fence,
                                      .key = job->key,
                                      .sent_at_ms = world->now_ms,
                                      .refuse = answer == PLAN_NO };
    flying->back_ms = answer == PLAN_UNHEARD ? -1 : world_between(world, 1, 20);
    job->flying = flying;
    world->participant.in_flight++;
    struct side_effect *effect =
        &participant_subject(world, job->definition, job->saga_id)->effects[job->step];
    if (!flying->is_question)
        effect->in_flight[job->about == OPERATION_COMPENSATION]++;
    if (answer == PLAN_EXISTS)
        effect->foreign = true;
    world_after(world, &flying->timer, arrives_in_ms(world, job, flying), on_arrival);
    if (flying->is_question && world_fault(world, FAULT_PROBE_SLEEPS))
        worker_pause(job->worker, world_between(world, job->lease_ms, 3 * job->lease_ms));
}

/* It knows without asking, or says what no probe may. */
static bool answers_at_once(struct world *world, struct job *job)
{
    static const enum outcome odd[] = { OUTCOME_REJECTED, OUTCOME_RETRY, OUTCOME_UNKNOWN,
                                        OUTCOME_ALREADY_DONE };
    const struct plan *plan = plan_of(job, world);
    if (job->operation != OPERATION_PROBE)
        return false;
    if (plan ? plan->answer == PLAN_UNSURE : world_fault(world, FAULT_PROBE_UNSURE))
        job_finish(job, OUTCOME_STILL_UNKNOWN, "IN_PROGRESS");
    else if (world_fault(world, FAULT_PROBE_ODD))
        job_finish(job, odd[world_choice(world, ARRAY_LEN(odd))], "ODD");
    return job->state == JOB_FINISHED;
}

/* A careless handler of a guarded step does not ask before; where settle time is declared, each
 * does. */
static bool asks_before(const struct job *job, const struct world *world)
{
    const struct step_rule *step = step_of(job, world);
    const struct plan *plan = plan_of(job, world);
    bool careless = plan ? plan->careless : job->careless;
    return !(step->guarded && !settles(step) && careless);
}

bool jobs_may_send(const struct world *world, const struct saga_row *row, size_t step,
                   enum operation operation)
{
    for (size_t i = 0; i < world->worker_count; i++) {
        const struct job *job;
        DL_FOREACH(world->workers[i].jobs, job)
        {
            bool waits = (job->state == JOB_QUEUED || job->state == JOB_RUNNING) && !job->sent;
            if (waits && job->step == step && job->operation == operation &&
                memcmp(&job->uid, &row->uid, sizeof row->uid) == 0 &&
                (still_mine(job) || !asks_before(job, world)))
                return true;
        }
    }
    return false;
}

/* Somebody cancels while the pivot is at work; which it then is a little longer. */
static bool cancel_beside(struct world *world, struct job *job)
{
    if (job->cancelled || plan_of(job, world) || job->operation != OPERATION_ACTION ||
        !step_of(job, world)->pivot || !world_fault(world, FAULT_CANCEL_AT_PIVOT))
        return false;
    job->cancelled = true;
    clients_cancel(world, job->definition, job->saga_id);
    return true;
}

static void on_send(struct world *world, struct timer *timer)
{
    struct job *job = CONTAINER(timer, struct job, timer);
    if (worker_sleeps(job->worker, timer, on_send))
        return;
    if (cancel_beside(world, job)) {
        world_after(world, timer, world_between(world, 5, 60), on_send);
        return;
    }
    const struct plan *plan = plan_of(job, world);
    bool is_probe = job->operation == OPERATION_PROBE;
    if (asks_before(job, world) && !still_mine(job)) { /* nothing was sent */
        job_finish(job, is_probe ? OUTCOME_STILL_UNKNOWN : OUTCOME_RETRY, "TOO_LATE");
        return;
    }
    if (answers_at_once(world, job))
        return;
    bool not_sent = !is_probe && (world_fault(world, FAULT_NOT_SENT) ||
                                  (job->cancelled && world_chance(world, 500)));
    if (plan ? plan->answer == PLAN_NOT_SENT : not_sent) {
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
    job->about = word->about;
    job->key = word->key;
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
