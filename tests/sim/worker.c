#include "sim/worker.h"

#include "sim/rows.h"
#include "sim/world.h"

#include <string.h>
#include <utlist.h>

enum {
    NODE_SILENCE_MS = 45000, /* after which a node ends a worker's stream */
    EXTEND_MIN_MS = 500,
    IDLE_MS = 10000, /* Credit is repeated when nothing else was said */
    SAID_MAX = 32,   /* reports or leases in one message */
};

bool worker_sleeps(struct worker *worker, struct timer *timer, timer_fn *fire)
{
    if (!worker->paused)
        return false;
    world_at(worker->world, timer, worker->resume_at_ms + world_between(worker->world, 0, 3), fire);
    return true;
}

bool worker_is_idle(const struct worker *worker)
{
    return !worker->jobs;
}

/* --- saying ----------------------------------------------------------------------------------- */

/* The stream that a job's words go over: its own, or any other. */
static struct stream *stream_for(struct worker *worker, const struct job *job)
{
    if (job->stream && !job->elsewhere)
        return job->stream;
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++)
        if (worker->streams[i] && worker->streams[i] != job->stream)
            return worker->streams[i];
    return job->stream;
}

static void say_credit(struct worker *worker, struct stream *stream)
{
    struct worker_credit credits[HANDLERS_MAX];
    struct engine_worker_event event = { .kind = WORKER_CREDIT, .credits = credits };
    bool repeat = worker->world->now_ms - stream->said_at_ms >= IDLE_MS;
    for (size_t i = 0; i < worker->serves_count && !worker->draining; i++) {
        const struct worker_serves *serves = &worker->serves[i];
        uint32_t free = serves->in_use < serves->slots ? serves->slots - serves->in_use : 0;
        uint64_t total = stream->received[i] + free;
        if (total <= stream->granted[i] && !repeat)
            continue;
        if (total < stream->granted[i])
            total = stream->granted[i];
        stream->granted[i] = total;
        credits[event.credit_count++] = (struct worker_credit){ serves->handler, total };
    }
    if (event.credit_count)
        stream_say(stream, &event);
}

static void say_hello(struct worker *worker, struct stream *stream)
{
    struct worker_credit handlers[HANDLERS_MAX];
    const struct job *job;
    size_t jobs = 0;
    DL_COUNT(worker->jobs, job, jobs);
    /* All of them: what an only stream does not list, it says, was never started. */
    struct worker_lease_ref *held = rows_zeroed(jobs, sizeof *held);
    struct engine_worker_event event = { .kind = WORKER_HELLO,
                                         .worker_id = worker->name,
                                         .instance = worker->instance,
                                         .only_stream = !worker->spread,
                                         .credits = handlers,
                                         .credit_count = worker->serves_count,
                                         .leases = held };
    for (size_t i = 0; i < worker->serves_count; i++)
        handlers[i] = (struct worker_credit){ worker->serves[i].handler, worker->serves[i].slots };
    DL_FOREACH(worker->jobs, job)
    {
        if (job->state != JOB_RELEASED)
            held[event.lease_count++] =
                (struct worker_lease_ref){ .uid = job->uid, .fence = job->fence };
    }
    stream_say(stream, &event);
    mem_free(held);
    say_credit(worker, stream);
}

static void say_extensions(struct worker *worker, struct stream *stream)
{
    int64_t now = worker->world->now_ms;
    struct worker_lease_ref leases[SAID_MAX] = { 0 };
    struct engine_worker_event event = { .kind = WORKER_EXTEND, .leases = leases };
    struct job *job;
    DL_FOREACH(worker->jobs, job)
    {
        if ((job->state != JOB_RUNNING && job->state != JOB_QUEUED) || job->lost ||
            job->extend_at_ms > now || now >= job->attempt_until_ms ||
            stream_for(worker, job) != stream || event.lease_count == SAID_MAX)
            continue;
        leases[event.lease_count++] =
            (struct worker_lease_ref){ .uid = job->uid, .fence = job->fence };
        int64_t third = job->lease_ms / 3;
        job->extend_at_ms = now + (third < EXTEND_MIN_MS ? EXTEND_MIN_MS : third);
        if (!job->extend_sent_ms)
            job->extend_sent_ms = now;
    }
    if (event.lease_count)
        stream_say(stream, &event);
}

static void put_report(struct worker *worker, const struct job *job, enum outcome outcome,
                       struct worker_report *ret)
{
    struct world *world = worker->world;
    char *output = world_format(world, "%s#%d", job->saga_id, (int)fence_seq(job->fence));
    *ret = (struct worker_report){ .uid = job->uid };
    ret->report = (struct report){
        .fence = job->fence, .outcome = outcome, .ours = job->ours, .error_code = job->code
    };
    if (outcome_is_success(outcome))
        ret->report.output = (struct bytes){ (uint8_t *)output, strlen(output) };
    if (outcome == OUTCOME_RETRY && world_chance(world, 200))
        ret->report.retry_after_ms = world_between(world, 1, 3000);
}

/* A second word about the same lease. Of a probe one that settles nothing: its first word may not
 * have counted, and it never lies. */
static enum outcome other_outcome(struct world *world, const struct job *job)
{
    if (job->operation == OPERATION_PROBE)
        return world_chance(world, 500) ? OUTCOME_STILL_UNKNOWN : OUTCOME_RETRY;
    return (enum outcome)world_between(world, OUTCOME_DONE, OUTCOME_UNKNOWN);
}

static void say_reports(struct worker *worker, struct stream *stream)
{
    struct world *world = worker->world;
    struct worker_report reports[SAID_MAX];
    struct engine_worker_event event = { .kind = WORKER_REPORT, .reports = reports };
    struct job *job;
    DL_FOREACH(worker->jobs, job)
    {
        if (job->state != JOB_FINISHED || stream_for(worker, job) != stream ||
            event.report_count + 3 > SAID_MAX)
            continue;
        put_report(worker, job, job->outcome, &reports[event.report_count++]);
        if (world_fault(world, FAULT_REPORT_TWICE))
            put_report(worker, job, job->outcome, &reports[event.report_count++]);
        if (world_fault(world, FAULT_REPORT_OTHER))
            put_report(worker, job, other_outcome(world, job), &reports[event.report_count++]);
        job->state = JOB_REPORTED;
        job->stream = stream;
        job->elsewhere = false;
        if (world_fault(world, FAULT_REPORT_RACED))
            clients_race(world, job->definition, job->saga_id, false);
        if (job->operation == OPERATION_PROBE && world_fault(world, FAULT_PROBE_RACED))
            clients_race(world, job->definition, job->saga_id, true);
        job->serves->in_use--;
        world_trace(world, worker->full_name, "reports %s #%d %s%s%s", job->saga_id,
                    (int)fence_seq(job->fence), outcome_name(job->outcome), job->code ? " " : "",
                    job->code ? job->code : "");
    }
    if (event.report_count)
        stream_say(stream, &event);
}

static void say_releases(struct worker *worker, struct stream *stream)
{
    struct worker_lease_ref leases[SAID_MAX] = { 0 };
    struct engine_worker_event event = { .kind = WORKER_RELEASE, .leases = leases };
    struct job *job, *next;
    DL_FOREACH_SAFE(worker->jobs, job, next)
    {
        if (job->state != JOB_RELEASED || job->stream != stream || event.lease_count == SAID_MAX)
            continue;
        leases[event.lease_count++] =
            (struct worker_lease_ref){ .uid = job->uid, .fence = job->fence };
        world_trace(worker->world, worker->full_name, "gives back %s #%d", job->saga_id,
                    (int)fence_seq(job->fence));
        job_forget(job);
    }
    if (event.lease_count)
        stream_say(stream, &event);
}

static void exit_if_drained(struct worker *worker);

static int64_t next_word_ms(const struct worker *worker)
{
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++)
        if (worker->streams[i] && worker->streams[i]->said_at_ms + IDLE_MS < at)
            at = worker->streams[i]->said_at_ms + IDLE_MS;
    const struct job *job;
    DL_FOREACH(worker->jobs, job)
    {
        if ((job->state == JOB_RUNNING || job->state == JOB_QUEUED) && !job->lost &&
            job->extend_at_ms < at && job->extend_at_ms < job->attempt_until_ms)
            at = job->extend_at_ms;
    }
    return at;
}

static void on_speak(struct world *world, struct timer *timer)
{
    struct worker *worker = CONTAINER(timer, struct worker, speak);
    if (!worker->up || worker_sleeps(worker, timer, on_speak))
        return;
    for (size_t i = 0; i < ARRAY_LEN(worker->streams) && !worker->silent; i++) {
        struct stream *stream = worker->streams[i];
        if (!stream)
            continue;
        say_extensions(worker, stream);
        say_reports(worker, stream);
        say_releases(worker, stream);
        say_credit(worker, stream);
    }
    exit_if_drained(worker);
    int64_t next = next_word_ms(worker);
    if (worker->up && next != INT64_MAX && !worker->silent)
        world_at(world, timer, next > world->now_ms ? next : world->now_ms + 1, on_speak);
}

void worker_pulse(struct worker *worker)
{
    struct world *world = worker->world;
    int64_t at = world->now_ms + world_between(world, 0, 2);
    if (!timer_is_set(&worker->speak) || timer_at_ms(&worker->speak) > at)
        world_at(world, &worker->speak, at, on_speak);
}

/* --- hearing ---------------------------------------------------------------------------------- */

static struct job *find(struct worker *worker, const struct word *word)
{
    struct job *job;
    DL_FOREACH(worker->jobs, job)
    {
        if (job->fence == word->fence && memcmp(&job->uid, &word->uid, sizeof job->uid) == 0)
            return job;
    }
    return NULL;
}

static void hears_task(struct worker *worker, struct stream *stream, const struct word *word)
{
    size_t at = 0;
    while (at < worker->serves_count && strcmp(worker->serves[at].handler, word->handler) != 0)
        at++;
    if (at == worker->serves_count || stream->received[at] >= stream->granted[at]) {
        world_violate(worker->world, INV_CREDIT, "%s got a task of %s without credit",
                      worker->full_name, word->handler);
        return;
    }
    stream->received[at]++;
    if (find(worker, word))
        return;
    struct job *job = job_new(worker, stream, word);
    job->serves = &worker->serves[at];
    job->serves->in_use++;
    if (worker->draining)
        job->state = JOB_RELEASED;
    else
        job_start(job);
    worker_pulse(worker);
}

static void hears_extended(struct job *job, const struct word *word)
{
    struct world *world = job->worker->world;
    if (job->state != JOB_QUEUED && job->state != JOB_RUNNING)
        return;
    if (word->lease_ms == 0) {
        world_hit(world, HIT_EXTENSION_REFUSED);
        job->lost = true;
        if (job->state == JOB_QUEUED)
            job_forget(job);
        return;
    }
    if (!job->extend_sent_ms)
        return;
    world_hit(world, HIT_LEASE_EXTENDED);
    job_extended(job, word->lease_ms);
}

void worker_hears(struct worker *worker, struct stream *stream, const struct word *word)
{
    struct job *job = find(worker, word);
    switch (word->kind) {
    case WORD_WELCOME:
        break;
    case WORD_TASK:
        hears_task(worker, stream, word);
        return;
    case WORD_ACK:
        if (job && (job->state == JOB_REPORTED || job->state == JOB_FINISHED))
            job_forget(job);
        break;
    case WORD_EXTENDED:
        if (job)
            hears_extended(job, word);
        break;
    case WORD_HINT:
        if (job && job->state == JOB_QUEUED) {
            world_cancel(worker->world, &job->timer);
            job->state = JOB_RELEASED;
        }
        break;
    case WORD_END:
        stream->worker_open = false;
        worker_lost(worker, stream);
        return;
    }
    worker_pulse(worker);
}

/* --- streams ---------------------------------------------------------------------------------- */

static void on_connect(struct world *world, struct timer *timer);

static void connect_later(struct worker *worker, int64_t least_ms, int64_t most_ms)
{
    world_after(worker->world, &worker->connect, world_between(worker->world, least_ms, most_ms),
                on_connect);
}

/* What no handler has seen is dropped, what was reported without an ack is said again. */
void worker_lost(struct worker *worker, struct stream *stream)
{
    struct job *job, *next;
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++)
        if (worker->streams[i] == stream)
            worker->streams[i] = NULL;
    DL_FOREACH_SAFE(worker->jobs, job, next)
    {
        if (job->stream != stream)
            continue;
        job->stream = NULL;
        job->extend_sent_ms = 0;
        if (job->state == JOB_QUEUED || job->state == JOB_RELEASED) {
            job_forget(job);
        } else if (job->state == JOB_REPORTED) {
            job->state = JOB_FINISHED;
            job->serves->in_use++;
        }
    }
    worker_pulse(worker);
    connect_later(worker, 100, 400);
}

static bool try_node(struct worker *worker, size_t at)
{
    struct world *world = worker->world;
    struct node *node = &world->nodes[at];
    if (at >= world->node_count || !worker->addresses[at] || worker->streams[at] ||
        !node_is_up(node) || node->paused)
        return false;
    world_trace(world, worker->full_name, "connects to %s", node->name);
    worker->streams[at] = stream_open(worker, node);
    say_hello(worker, worker->streams[at]);
    worker_pulse(worker);
    return true;
}

static bool is_connected(const struct worker *worker)
{
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++)
        if (worker->streams[i])
            return true;
    return false;
}

static void on_connect(struct world *world, struct timer *timer)
{
    struct worker *worker = CONTAINER(timer, struct worker, connect);
    if (!worker->up || worker_sleeps(worker, timer, on_connect))
        return;
    bool missing = false;
    for (size_t i = 0; i < world->node_count; i++) {
        size_t at = (worker->next_address + i) % world->node_count;
        if (!worker->spread && is_connected(worker))
            break;
        if (!try_node(worker, at) && worker->addresses[at] && !worker->streams[at])
            missing = true;
        if (!worker->spread && is_connected(worker))
            worker->next_address = at + 1;
    }
    if (worker->spread ? missing : !is_connected(worker))
        connect_later(worker, 100, 3000);
}

/* --- life ------------------------------------------------------------------------------------- */

struct worker *worker_add(struct world *world, const char *name)
{
    struct worker *worker = &world->workers[world->worker_count++];
    worker->world = world;
    worker->name = name;
    return worker;
}

void worker_serve(struct worker *worker, const char *handler, uint32_t slots)
{
    worker->serves[worker->serves_count++] = (struct worker_serves){ handler, slots, 0 };
}

void worker_start(struct worker *worker)
{
    struct world *world = worker->world;
    if (worker->up)
        return;
    worker->instance = world_format(world, "%u", ++worker->lives);
    worker->full_name = world_format(world, "%s/%s", worker->name, worker->instance);
    worker->up = true;
    worker->paused = worker->silent = worker->draining = false;
    worker->polls = world_fault(world, FAULT_WORKER_POLLS);
    for (size_t i = 0; i < worker->serves_count; i++)
        worker->serves[i].in_use = 0;
    connect_later(worker, 1, 20);
}

static void on_restart(struct world *world, struct timer *timer)
{
    (void)world;
    worker_start(CONTAINER(timer, struct worker, restart));
}

static void go_down(struct worker *worker, bool cuts)
{
    struct world *world = worker->world;
    worker->up = worker->paused = false;
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++) {
        struct stream *stream = worker->streams[i];
        worker->streams[i] = NULL;
        if (!stream)
            continue;
        if (cuts)
            stream_cut(stream);
        stream_end(stream);
    }
    jobs_die(worker);
    world_cancel(world, &worker->speak);
    world_cancel(world, &worker->resume);
    if (!worker->stays_down)
        world_after(world, &worker->restart, world_between(world, 100, 8000), on_restart);
}

void worker_die(struct worker *worker)
{
    if (!worker->up)
        return;
    world_trace(worker->world, worker->full_name, "dies");
    go_down(worker, world_chance(worker->world, 300));
}

static void on_resume(struct world *world, struct timer *timer)
{
    (void)world;
    worker_resume(CONTAINER(timer, struct worker, resume));
}

void worker_pause(struct worker *worker, int64_t ms)
{
    struct world *world = worker->world;
    if (!worker->up || worker->paused)
        return;
    world_trace(world, worker->full_name, "is stopped for %d ms", (int)ms);
    worker->paused = true;
    worker->resume_at_ms = world->now_ms + ms;
    world_at(world, &worker->resume, worker->resume_at_ms, on_resume);
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++)
        if (worker->streams[i] && ms > NODE_SILENCE_MS)
            stream_node_ends_at(worker->streams[i], world->now_ms + NODE_SILENCE_MS);
}

void worker_resume(struct worker *worker)
{
    if (!worker->paused)
        return;
    world_trace(worker->world, worker->full_name, "goes on");
    worker->paused = false;
    world_cancel(worker->world, &worker->resume);
    worker_pulse(worker);
}

static void on_loud(struct world *world, struct timer *timer)
{
    struct worker *worker = CONTAINER(timer, struct worker, pulse);
    (void)world;
    worker->silent = false;
    worker_pulse(worker);
}

void worker_silence(struct worker *worker, int64_t ms)
{
    if (!worker->up || worker->silent)
        return;
    world_trace(worker->world, worker->full_name, "says nothing for %d ms", (int)ms);
    worker->silent = true;
    world_after(worker->world, &worker->pulse, ms, on_loud);
}

/* --- drain ------------------------------------------------------------------------------------ */

void worker_drain(struct worker *worker)
{
    struct engine_worker_event event = { .kind = WORKER_DRAIN };
    struct job *job;
    if (!worker->up || worker->paused || worker->draining)
        return;
    world_trace(worker->world, worker->full_name, "drains");
    worker->draining = true;
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++)
        if (worker->streams[i])
            stream_say(worker->streams[i], &event);
    DL_FOREACH(worker->jobs, job)
    {
        if (job->state == JOB_QUEUED) {
            world_cancel(worker->world, &job->timer);
            job->state = JOB_RELEASED;
        }
    }
    worker_pulse(worker);
}

static void exit_if_drained(struct worker *worker)
{
    if (!worker->draining || worker->jobs)
        return;
    world_trace(worker->world, worker->full_name, "has drained");
    go_down(worker, false);
}

/* --- lies ------------------------------------------------------------------------------------- */

static bool is_own_word(enum outcome outcome)
{
    return (outcome >= OUTCOME_DONE && outcome <= OUTCOME_UNKNOWN) || outcome == OUTCOME_NOT_DONE ||
           outcome == OUTCOME_STILL_UNKNOWN;
}

/* Of a lease whose own worker has said how it ended, or of no lease at all: nobody may care. */
static bool make_up_lie(struct world *world, struct worker_report *ret)
{
    struct database *database = &world->database;
    if (!database->saga_count)
        return false;
    const struct db_saga *saga = &database->sagas[world_choice(world, database->saga_count)];
    *ret = (struct worker_report){ .uid = saga->row.uid };
    ret->report.outcome = (enum outcome)world_between(world, OUTCOME_DONE, OUTCOME_UNKNOWN);
    if (world_chance(world, 250))
        ret->report.outcome = world_chance(world, 500) ? OUTCOME_NOT_DONE : OUTCOME_STILL_UNKNOWN;
    ret->report.error_code = "LIE";
    const struct journal_entry *entry =
        saga->count ? &saga->entries[world_choice(world, saga->count)] : NULL;
    int64_t epoch = node_epoch();
    switch (world_choice(world, 4)) {
    case 0: /* of another epoch */
        ret->report.fence = fence_make(epoch + 1, entry ? entry->seq : 1);
        return true;
    case 1: /* of the far future */
        ret->report.fence = fence_make(epoch, 5000);
        return true;
    case 2: /* of a decision */
        ret->report.fence = fence_make(epoch, entry ? entry->seq : 1);
        return entry && entry->kind != ENTRY_LEASE;
    default: /* of one that is settled */
        ret->report.fence = entry ? entry->fence : 0;
        return entry && entry->kind == ENTRY_LEASE && is_own_word(entry->outcome);
    }
}

void worker_lie(struct worker *worker)
{
    struct worker_report lie;
    if (!worker->up || worker->paused || !make_up_lie(worker->world, &lie))
        return;
    struct worker_lease_ref lease = { .uid = lie.uid, .fence = lie.report.fence };
    struct engine_worker_event report = { .kind = WORKER_REPORT,
                                          .reports = &lie,
                                          .report_count = 1 };
    struct engine_worker_event extend = { .kind = WORKER_EXTEND,
                                          .leases = &lease,
                                          .lease_count = 1 };
    struct engine_worker_event release = { .kind = WORKER_RELEASE,
                                           .leases = &lease,
                                           .lease_count = 1 };
    const struct engine_worker_event *lies[] = { &report, &extend, &release };
    for (size_t i = 0; i < ARRAY_LEN(worker->streams); i++) {
        if (!worker->streams[i])
            continue;
        world_trace(worker->world, worker->full_name, "lies about #%d: %s",
                    (int)fence_seq(lie.report.fence), outcome_name(lie.report.outcome));
        stream_say(worker->streams[i], lies[world_choice(worker->world, ARRAY_LEN(lies))]);
    }
}
