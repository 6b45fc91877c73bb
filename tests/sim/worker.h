/* A worker process on the SDK, as far as the SDK is allowed to differ: it holds tasks, extends
 * their leases, keeps reports until they are acknowledged and sends them again, gives back what it
 * did not start; with one stream to one node at a time, or one to each. It is slow, dies, is
 * stopped, drains, falls silent, or tells lies that nobody may fall for. */
#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "sim/definitions.h"
#include "sim/stream.h"
#include "sim/timer.h"

struct world;
struct job;
struct flying;

struct worker_serves {
    const char *handler;
    uint32_t slots;
    uint32_t in_use;
};

struct worker {
    struct world *world;
    const char *name;      /* worker id */
    const char *instance;  /* of this process */
    const char *full_name; /* "w1/1" */
    unsigned lives;
    bool up, paused, silent, draining, stays_down;
    bool spread; /* streams to several nodes at a time */
    bool polls;  /* this process has no streams, but asks again and again (stream.h) */
    int64_t resume_at_ms;
    struct worker_serves serves[HANDLERS_MAX];
    size_t serves_count;
    bool addresses[3];         /* of the nodes, by their place in the world */
    struct stream *streams[3]; /* by node; NULL: none */
    size_t next_address;
    struct job *jobs;
    struct timer connect, resume, restart, speak, pulse;
};

struct worker *worker_add(struct world *world, const char *name);
void worker_serve(struct worker *worker, const char *handler, uint32_t slots);
void worker_start(struct worker *worker);
/* kill -9 */
void worker_die(struct worker *worker);
void worker_pause(struct worker *worker, int64_t ms);
void worker_resume(struct worker *worker);
void worker_silence(struct worker *worker, int64_t ms);
void worker_drain(struct worker *worker);
void worker_lie(struct worker *worker);
bool worker_is_idle(const struct worker *worker);

/* What its streams tell it. */
void worker_hears(struct worker *worker, struct stream *stream, const struct word *word);
void worker_lost(struct worker *worker, struct stream *stream);
bool worker_sleeps(struct worker *worker, struct timer *timer, timer_fn *fire);

/* --- for job.c: the work on one task --- */

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED, JOB_REPORTED, JOB_RELEASED };

struct job {
    struct job *prev, *next;
    struct worker *worker; /* NULL: its process has died */
    struct worker_serves *serves;
    enum job_state state;
    struct uuid uid;
    int64_t fence;
    const char *definition, *saga_id;
    size_t step;
    enum operation operation, about; /* about: of a probe what it asks, else the same */
    const char *key;
    struct stream *stream; /* that it came on; NULL: lost */
    int64_t confirmed_at_ms, lease_ms, attempt_until_ms, extend_at_ms, extend_sent_ms;
    bool lost; /* the node said that the lease is not its any more */
    int try_;
    bool careless;
    bool elsewhere; /* reports to another node than it came from */
    bool at_deadline;
    bool cancelled; /* somebody asked for that while the pivot was at work */
    bool sent;
    struct flying *flying; /* its request; NULL: none is on its way, or was lost */
    struct timer timer;    /* the next step of the handler */
    struct timer give_up;
    enum outcome outcome;
    bool ours;
    const char *code;
};

struct job *job_new(struct worker *worker, struct stream *stream, const struct word *word);
void job_start(struct job *job);
int64_t job_lease_end_ms(const struct job *job);
/* The worker has something to say about its jobs. */
void worker_pulse(struct worker *worker);
void job_finish(struct job *job, enum outcome outcome, const char *code);
/* The node has confirmed the extension that was asked for last. */
void job_extended(struct job *job, int64_t lease_ms);
void job_forget(struct job *job);
/* The process dies; requests that are on their way stay so. */
void jobs_die(struct worker *worker);
/* Does any worker hold a task of this operation that may still send its request? */
bool jobs_may_send(const struct world *world, const struct saga_row *row, size_t step,
                   enum operation operation);

#endif
