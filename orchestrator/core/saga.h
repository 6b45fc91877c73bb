/* Decides what a saga does next. Never: I/O, clock, random, threads, logging.
 *
 * A struct saga is a copy of one saga: its row, its journal, and what follows from them. It is made
 * by replaying the journal (saga_replay), or new (saga_new). An event is applied with one of the
 * saga_on_* functions; each says in a struct transition which facts must be committed, in ONE
 * transaction, before anything that follows from them may leave the process. The copy already holds
 * those facts when the function returns ("as if committed"), without their times:
 *
 *   commit succeeded: saga_committed(saga, transition, database time of the transaction)
 *   anything else:    saga_free(saga), load it, apply the event anew
 *
 * Until one of the two, no further event may be applied to that copy: one transition in flight a
 * saga. A function that returns ERR_PRECONDITION, ERR_NOT_FOUND or ERR_INVALID, or a VERDICT_*
 * other than ACCEPTED, has changed nothing unless its transition says otherwise. After ERR_NOMEM or
 * ERR_INTERNAL the copy may be half changed: saga_free it and load. now_ms is always the caller's
 * estimate of the database's clock; what must not happen too early is checked by the database
 * again.
 *
 * thread: a saga belongs to one thread at a time. */
#ifndef CORE_SAGA_H
#define CORE_SAGA_H

#include "base/err.h"
#include "base/rng.h"
#include "core/definition.h"
#include "core/fsm.h"
#include "core/journal.h"
#include "core/options.h"

enum { TRANSITION_APPENDS_MAX = 6, TRANSITION_INPUTS_MAX = 6 };

/* What the commit must write. Entries and strings are borrowed from the saga and stay valid until
 * saga_committed or saga_free. */
struct transition {
    /* 1. Ends the open lease at finish_seq: outcome, finished_at = now(), output, error and, with
     * retry_in_ms >= 0, retry_at = now() + retry_in_ms. Refused (lost) if it has an outcome.
     * only_if_expired: refused, too, unless lease_until < now(). */
    bool finishes;
    bool only_if_expired;
    int64_t finish_seq; /* the facts are in saga_entry(saga, finish_seq) */
    int64_t retry_in_ms;
    /* 2. Appends these entries, contiguous, the first at append_seq; refused (lost) as a whole if
     * that position is taken. The first grant of a lease gets leased_at = now(), attempt_until =
     * least(now() + attempt_timeout_ms, send_before_ms), lease_until = least(now() + lease_ms,
     * attempt_until). */
    int64_t append_seq; /* 0: none */
    size_t append_count;
    int64_t lease_ms, attempt_timeout_ms; /* of the lease that this transition grants, if any */
    int64_t send_before_ms; /* of that lease: attempt_until is no later; 0: no such time */
    /* 3. Changes the saga row (state, phase, park columns, doubt): from what it was to what
     * saga_row(saga) now says. Refused (lost) if the row is no longer in state_from/phase_from.
     * `phase_change`: it comes with an entry (form 2 of the design: lock the saga row, insert the
     * entry, only then set outcome and state). Otherwise it is the end (the finishing statement
     * sets saga.state where state = state_from), or, beside `late_row`, a finished saga whose doubt
     * is set: state and phase stay. A parked saga may be parked anew for a graver reason: then the
     * park columns change, and state and phase stay, too. */
    bool changes_row;
    bool phase_change;
    enum saga_state state_from, phase_from;
    bool sets_deadline; /* and deadline_at, to that of saga_row(saga); 0: none any more */
    bool ends;          /* the new state is terminal: ended_at, and saga_key.final_state */
    /* 4. A report that came after the end: one late_report row, and saga.doubt. */
    bool late_row;
    struct late_report {
        int64_t fence;
        enum outcome outcome;
        struct bytes output; /* borrowed from the event */
        const char *error_code, *error_message;
        bool effect; /* it reports an effect: sets doubt */
    } late;
    /* For logs and counters: the rows of the transition table that this took, in order. */
    size_t input_count;
    enum saga_input inputs[TRANSITION_INPUTS_MAX];
};

enum verdict {
    VERDICT_ACCEPTED,  /* commit the transition, then acknowledge */
    VERDICT_DUPLICATE, /* the same was accepted before: acknowledge as duplicate */
    VERDICT_STALE,     /* acknowledge as stale; the transition may hold evidence to commit first */
    VERDICT_NOTHING,   /* nothing is due, or it is so already: no transition */
};

/* True when a transition has anything to commit. */
static inline bool transition_is_empty(const struct transition *t)
{
    return !t->finishes && !t->append_seq && !t->changes_row && !t->late_row;
}

struct saga; /* opaque */

/* A saga that starts now: RUNNING, no entries. Consumes row on success (its strings move in;
 * state, phase and times but start_at are set here). definition must outlive the saga. */
MUST_USE int saga_new(const struct definition *definition, struct saga_row *row,
                      struct saga **ret_saga, struct err *err);
/* A new saga that takes over what somebody else may have begun: makes its first transition, the
 * entry SUSPECT. Each action counts as having had one attempt, of unknown outcome, that began at
 * since_ms (not after now_ms) and ended when the entry was made. actor: who says so; copied.
 * Nothing is granted in that transition. */
MUST_USE int saga_suspect(struct saga *saga, const char *actor, int64_t since_ms, int64_t now_ms,
                          struct transition *ret, struct err *err);
/* Replays a journal in seq order: load = replay = recovery. Row and entries must come from one
 * snapshot. Consumes row and entries (the array's contents, not the array) on success. Fails with
 * ERR_INTERNAL on a journal that the rules cannot have written (a gap, an entry after the end, a
 * lease beside another decision's state), naming the position. */
MUST_USE int saga_replay(const struct definition *definition, struct saga_row *row,
                         struct journal_entry *entries, size_t count, struct saga **ret_saga,
                         struct err *err);
struct saga *saga_free(struct saga *saga); /* NULL is fine; always returns NULL */

const struct saga_row *saga_row(const struct saga *saga);
const struct definition *saga_definition(const struct saga *saga);
int64_t saga_last_seq(const struct saga *saga);
/* NULL if there is no such position. */
const struct journal_entry *saga_entry(const struct saga *saga, int64_t seq);

struct report {
    int64_t fence;
    enum outcome outcome; /* DONE .. UNKNOWN; of a probe NOT_DONE and STILL_UNKNOWN, too */
    struct bytes output;  /* borrowed */
    bool ours;
    const char *error_code, *error_message; /* borrowed; may be NULL */
    int64_t retry_after_ms;                 /* RETRY: not before; 0: the back-off alone */
};

/* A worker's report. ACCEPTED, DUPLICATE or STALE; ERR_INVALID for an outcome that is not a
 * worker's to say. rng: jitter. */
MUST_USE int saga_on_report(struct saga *saga, const struct report *report, int64_t now_ms,
                            struct rng *rng, struct transition *ret, enum verdict *ret_verdict,
                            struct err *err);
/* Would its output become the answer of its operation? Not that of an effect that is somebody
 * else's, nor of a late report that settles nothing: those are evidence, whatever they carry. */
bool saga_report_answers(const struct saga *saga, const struct report *report);
/* A lease was lost or given back: outcome EXPIRED is not for here (time says it), STREAM_LOST (only
 * the node whose stream it was; ignored unless the class is IDEMPOTENT) or RELEASED (certain that
 * the handler never started). ACCEPTED, or NOTHING if the lease is not open. */
MUST_USE int saga_on_lease_end(struct saga *saga, int64_t seq, enum outcome outcome, int64_t now_ms,
                               struct rng *rng, struct transition *ret, enum verdict *ret_verdict,
                               struct err *err);
/* Time has passed: does the most urgent thing that is due (an expired lease, the deadline, a start
 * time-out, a spent budget). One transition a call; call again after its commit. NOTHING when
 * nothing is due. expiry_allowed: false within the grace after start or reconnect. */
MUST_USE int saga_on_time(struct saga *saga, int64_t now_ms, bool expiry_allowed, struct rng *rng,
                          struct transition *ret, enum verdict *ret_verdict, struct err *err);
/* ACCEPTED, also where it only waits from now on for what becomes of the pivot; NOTHING if it is
 * compensating or compensated, or waits, already; else ERR_PRECONDITION with reason
 * CANCEL_NOT_ALLOWED. */
MUST_USE int saga_on_cancel(struct saga *saga, const char *actor, const char *reason,
                            int64_t now_ms, struct transition *ret, enum verdict *ret_verdict,
                            struct err *err);
/* step: NULL for the one that the saga is parked at, or that comes first of those whose turn it is.
 * ACCEPTED; ERR_NOT_FOUND: the definition has no such step; ERR_PRECONDITION with reason
 * OUTCOME_UNKNOWN, LEASE_LIVE or RETRY_NOT_ALLOWED. */
MUST_USE int saga_on_retry(struct saga *saga, const char *step, const char *actor,
                           const char *reason, int64_t now_ms, struct transition *ret,
                           enum verdict *ret_verdict, struct err *err);

/* What a person found out about an operation whose outcome is unknown, foreign or contradicted. */
struct resolution {
    const char *step;
    enum operation
        operation; /* OPERATION_COUNT: the compensation if it was granted, else the action */
    int64_t fence; /* of the last attempt that was looked into; 0: not said */
    bool happened;
    struct bytes output;          /* happened: what the step would have reported; borrowed */
    const char *actor, *evidence; /* borrowed; actor may be NULL */
};
/* ACCEPTED; ERR_NOT_FOUND: no such step; ERR_INVALID: an output that cannot be; ERR_PRECONDITION
 * with reason LEASE_LIVE, NOTHING_TO_RESOLVE, NEWER_ATTEMPT or RESOLVE_NOT_ALLOWED. Did not happen:
 * it is granted again with a fresh budget; while compensating such an action needs no compensation.
 */
MUST_USE int saga_on_resolve(struct saga *saga, const struct resolution *resolution, int64_t now_ms,
                             struct transition *ret, enum verdict *ret_verdict, struct err *err);
/* Without the compensation that the saga is parked at. step: NULL for that one. ACCEPTED;
 * ERR_NOT_FOUND; ERR_PRECONDITION with reason LEASE_LIVE or SKIP_NOT_ALLOWED. */
MUST_USE int saga_on_skip(struct saga *saga, const char *step, const char *actor,
                          const char *evidence, int64_t now_ms, struct transition *ret,
                          enum verdict *ret_verdict, struct err *err);
/* The end, as it stands. ACCEPTED; NOTHING if it was abandoned; ERR_PRECONDITION with reason
 * LEASE_LIVE or ABANDON_NOT_ALLOWED. */
MUST_USE int saga_on_abandon(struct saga *saga, const char *actor, const char *reason,
                             int64_t now_ms, struct transition *ret, enum verdict *ret_verdict,
                             struct err *err);

/* Nothing is granted until saga_on_resume; ACCEPTED; NOTHING if it is suspended; ERR_PRECONDITION
 * with reason SUSPEND_NOT_ALLOWED. */
MUST_USE int saga_on_suspend(struct saga *saga, const char *actor, const char *reason,
                             int64_t now_ms, struct transition *ret, enum verdict *ret_verdict,
                             struct err *err);
/* Goes on as its journal then says. ACCEPTED; NOTHING if it is not parked; ERR_PRECONDITION with
 * reason RESUME_NOT_ALLOWED. */
MUST_USE int saga_on_resume(struct saga *saga, const char *actor, const char *reason,
                            int64_t now_ms, struct transition *ret, enum verdict *ret_verdict,
                            struct err *err);

/* Other numbers from here on (core/options.h), of one step or (NULL) of all. ACCEPTED; NOTHING if
 * it has them already; ERR_NOT_FOUND: no such step; ERR_INVALID names the field, as registration
 * would have; ERR_PRECONDITION with reason OPTIONS_NOT_ALLOWED. */
MUST_USE int saga_on_options(struct saga *saga, const char *step,
                             const struct saga_options *options, const char *actor,
                             const char *reason, int64_t now_ms, struct transition *ret,
                             enum verdict *ret_verdict, struct err *err);

/* What somebody outside tells a saga. Borrowed. */
struct signal {
    const char *name, *id; /* id: the sender's */
    struct bytes payload;
    const char *actor; /* may be NULL */
};
/* Kept until its step's turn, and received at once if it is that. ACCEPTED, DUPLICATE for an id
 * that was taken before, also after the end; ERR_INVALID: no step waits for it; ERR_PRECONDITION
 * with reason SIGNAL_TAKEN or SIGNAL_NOT_ALLOWED. */
MUST_USE int saga_on_signal(struct saga *saga, const struct signal *signal, int64_t now_ms,
                            struct transition *ret, enum verdict *ret_verdict, struct err *err);

/* What could be granted now, in the order of urgency. Nothing is granted to a saga whose deadline,
 * start time-out, budget or journal limit is over: saga_on_time then says what follows. */
struct grantable {
    uint16_t step;
    enum operation operation;
    const struct operation_rule *rule; /* PROBE: the probe's */
    int64_t since_ms;                  /* it has waited since then */
    int64_t held_ms;                   /* so much of that its handler was braked */
};
/* Fills ret and returns how many, at most max. Also right between an event and its commit: so a
 * finish and the next grant travel in one transaction. */
size_t saga_grantable(const struct saga *saga, int64_t now_ms, struct grantable *ret, size_t max);
/* Appends a lease to the transition of the event just applied (or to an empty one, all zero); one
 * lease a transition; one whose wait was braked (held_ms), which the entry keeps, only in a
 * transition of its own. worker is copied. The caller has credit for the handler and keeps it
 * reserved until the commit is known. The fence's epoch never falls within a saga: an older `epoch`
 * than that of its last lease is raised to it. */
MUST_USE int saga_grant(struct saga *saga, const struct grantable *what, const char *worker,
                        int64_t epoch, int64_t now_ms, struct transition *transition,
                        struct err *err);
/* May this lease be extended: open, not past attempt_until? Then the store sets lease_until =
 * least(now() + lease_ms, attempt_until) where the outcome is still NULL, and saga_extended tells
 * the copy. */
bool saga_lease_is_open(const struct saga *saga, int64_t fence);
void saga_extended(struct saga *saga, int64_t seq, int64_t db_now_ms);

/* The transition is durable; db_now_ms is now() of its transaction: the entries' times, and
 * updated_at and ended_at where the row changed. The first commit of a new saga (its transition may
 * be empty) also sets started_at and deadline_at. */
void saga_committed(struct saga *saga, const struct transition *transition, int64_t db_now_ms);

/* When saga_on_time may next have something to do (in the past: now); INT64_MAX: never. */
int64_t saga_due_at(const struct saga *saga);
/* When something that is not grantable yet becomes so by time alone (end of a back-off or of settle
 * time); INT64_MAX: nothing does. */
int64_t saga_grantable_at(const struct saga *saga, int64_t now_ms);

/* Invariants of a copy that has no transition in flight; used after each step in debug builds and
 * after each load always. */
MUST_USE int saga_check(const struct saga *saga, struct err *err);

/* What a task for this lease carries. All borrowed from the saga. */
struct task_view {
    const struct journal_entry *lease;
    const struct step_rule *step;
    const struct operation_rule *rule;
    enum operation about;               /* PROBE: what it asks about; else the lease's own */
    int32_t generation;                 /* of the idempotency key of `about`; 0: the first */
    int64_t send_before_ms;             /* 0: no such time, or a probe */
    const struct journal_entry *probed; /* PROBE: the last attempt that ended unknown; else NULL */
    bool action_done;                   /* about a compensation: DONE with output, else maybe */
    struct bytes action_output;
};
void saga_task_view(const struct saga *saga, int64_t seq, struct task_view *ret);
/* Payload bytes of a task of this saga: its input and the outputs so far. */
size_t saga_task_bytes(const struct saga *saga);
/* The rule that a lease was granted by. seq is that of a lease. */
const struct operation_rule *saga_lease_rule(const struct saga *saga, int64_t seq);
/* Generation of the idempotency key that the operation's next attempt, or the probe of its last
 * one, is told. */
int32_t saga_key_generation(const struct saga *saga, size_t step, enum operation operation);
/* Output of a step whose action is done; false otherwise. */
bool saga_step_output(const struct saga *saga, size_t step, struct bytes *ret);

#endif
