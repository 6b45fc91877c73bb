/* What the files of the core share about a copy of a saga. Only core/ includes it.
 *
 * The summaries hold positions and counts, never times: a time is read from the entry at the
 * position. So a copy whose last entries still have estimated times becomes right when
 * saga_committed sets those of the database, and equals what a replay of the stored journal makes.
 *
 *   apply.c          one entry -> the summaries and the position; the only writer of both
 *   plan.c           queries: what is next, not before when, what stops it
 *   change.c         builds a transition: facts, applied as if committed
 *   saga_report.c  saga_late.c  saga_probe.c  saga_time.c  saga_operator.c  saga_signal.c
 *                    decide */
#ifndef CORE_SAGA_INTERNAL_H
#define CORE_SAGA_INTERNAL_H

#include "core/handler.h"
#include "core/limits.h"
#include "core/saga.h"

/* All attempts of one operation of one step. Positions: 0 where there is none. */
struct attempts {
    int32_t tries;        /* leases that were not RELEASED */
    int32_t budget_tries; /* those since the last RETRY entry */
    int32_t losses;       /* EXPIRED or STREAM_LOST in a row since the last RETRY entry */
    int32_t unsettled;    /* attempts that may have taken effect and were not settled since */
    int64_t open_seq;     /* the live lease */
    int64_t last_seq;     /* last lease, a RELEASED one, too */
    int64_t ended_seq;    /* last lease that ended and was not RELEASED */
    int64_t budget_seq;   /* first lease of the budget */
    int64_t backoff_seq;  /* the lease whose retry_at must pass first */
    int64_t unknown_seq;  /* last lease that ended UNKNOWN, EXPIRED or STREAM_LOST; or SUSPECT */
    int64_t lost_seq;     /* last lease that ended STREAM_LOST: its worker may still run */
    int64_t late_seq;     /* last LATE_REPORT that told of an effect which may not have arrived */
    int64_t done_seq; /* the entry that holds the output: LEASE, LATE_REPORT, RESOLVE; or RECEIVE */
    int64_t
        window_seq; /* first lease since nothing was unsettled, or SUSPECT: its window's begin */
    int64_t not_done_seq; /* last RESOLVE that said NOT_DONE */
    int64_t probing_seq;  /* PROBE: IDEMPOTENT, and not repeated any more, the probe decides */
    int64_t passed_seq;   /* ACCEPT or CONTINUE: the saga went on without it */
    int64_t signal_seq;   /* SIGNAL: what the step waits for is there */
    int32_t generation;   /* how many said so: of the idempotency key */
    bool done, rejected;
    bool foreign;  /* the effect exists, but not by us: neither done nor maybe */
    bool given_up; /* nor does the probe: what on_unknown says was done */
    bool doubt;    /* unconfirmed, skipped or contradicted: somebody has yet to look */
};

struct step_summary {
    struct attempts of[2]; /* OPERATION_ACTION, OPERATION_COMPENSATION */
};

/* Where the saga stands; the same columns as in its row. */
struct position {
    enum saga_state state, phase;
    enum park_reason reason;
    int16_t park_step;
    bool doubt;
};

struct slot {
    struct journal_entry entry;
    int64_t late_seq;        /* the LATE_REPORT about this lease; 0: none */
    bool late_settled;       /* which was accepted as its resolution */
    bool of_undo;            /* LEASE of a PROBE: it asks about the compensation */
    int32_t generation;      /* LEASE: of the idempotency key that it is told, or asks about */
    int64_t held_before_seq; /* LEASE with held_ms: the one before it that has some; 0: none */
};

struct saga {
    const struct definition *definition; /* `options` if there are any, else `base` */
    const struct definition *base;       /* as it was registered */
    struct definition *options; /* owned; with the numbers of OPTIONS entries; NULL: none */
    struct saga_row row;
    struct slot **slots; /* by seq - 1; each of its own, so that entries never move */
    size_t count, capacity;
    struct position at;
    int64_t bytes;           /* of the journal, roughly as stored */
    int64_t output_bytes;    /* of the actions that are done: later tasks carry them */
    int64_t open_count;      /* live leases */
    int64_t forward_count;   /* those of actions: no compensation is granted beside one */
    int64_t last_fence;      /* of a lease */
    int64_t turned_back_seq; /* the COMPENSATE entry */
    int64_t park_seq;        /* last PARK entry */
    int64_t retry_seq;       /* last RETRY entry */
    int64_t moved_seq;       /* last decision that let the whole saga go on */
    int64_t resumed_seq;     /* last RESUME after SUSPENDED */
    int64_t held_seq;        /* last LEASE with held_ms */
    bool deadline_parked;    /* which it does only once */
    bool action_lost;        /* an action has a lost_seq */
    int64_t pending_seq;     /* the cancel that waits for the pivot, or did */
    int64_t overdue_seq;     /* the deadline that does, or did */
    int64_t deadline_seq;    /* last OPTIONS that changed the deadline */
    int64_t signals_kept;    /* came, and were not received yet */
    struct step_summary *steps;
    /* The probes of each step's action and compensation: tries, budget and back-off alone. What a
     * probe found out is told by the RESOLVE entry that follows from its answer, never by the
     * answer: a stale copy may record that, too. NULL: the definition has no probe. */
    struct step_summary *probes;
};

/* What a probe of this step asks about now. Nothing asks about an action any more once its
 * compensation was granted: from there on it counts as maybe. */
static inline enum operation saga_probed(const struct saga *saga, size_t step)
{
    return saga->steps[step].of[OPERATION_COMPENSATION].last_seq ? OPERATION_COMPENSATION
                                                                 : OPERATION_ACTION;
}
/* PROBE: of what is probed now; there must be one. */
static inline struct attempts *saga_attempts(const struct saga *saga, size_t step,
                                             enum operation operation)
{
    if (operation == OPERATION_PROBE)
        return &saga->probes[step].of[saga_probed(saga, step) == OPERATION_COMPENSATION];
    return &saga->steps[step].of[operation == OPERATION_COMPENSATION];
}
static inline struct slot *saga_slot(const struct saga *saga, int64_t seq)
{
    return seq >= 1 && (size_t)seq <= saga->count ? saga->slots[seq - 1] : NULL;
}
/* PROBE: of what is probed now; it is there wherever a probe was or may be granted. */
static inline const struct operation_rule *saga_rule(const struct saga *saga, size_t step,
                                                     enum operation operation)
{
    if (operation == OPERATION_PROBE)
        return definition_rule(saga->definition, step, saga_probed(saga, step))->probe;
    return definition_rule(saga->definition, step, operation);
}

/* Does a signal take the place of its action? */
static inline bool saga_is_wait(const struct saga *saga, size_t step)
{
    return saga->definition->steps[step].signal != NULL;
}
/* Of an entry that done_seq names. */
static inline const struct bytes *saga_output_at(const struct saga *saga, int64_t seq)
{
    const struct journal_entry *entry = &saga_slot(saga, seq)->entry;
    return &(entry->kind == ENTRY_RECEIVE ? &saga_slot(saga, entry->about)->entry : entry)->output;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* saga.c: room for the probes' summaries, where there are probes; -1: memory. */
MUST_USE int saga_probes_alloc(struct saga *saga);

/* apply.c */

/* Folds the entry at seq into the copy: an entry that is new, or a lease that has got its outcome.
 * ERR_INTERNAL: the rules cannot have written it. */
MUST_USE int saga_apply_entry(struct saga *saga, int64_t seq, struct err *err);
/* Takes the row of the transition table; ERR_INTERNAL if there is none. */
MUST_USE int saga_move(struct saga *saga, enum saga_input input, struct err *err);
/* The input that a decision entry stands for; false: it moves nothing (LEASE, LATE_REPORT, RESOLVE,
 * PROBE, MAYBE, PENDING, SIGNAL, RECEIVE, SUSPECT, OPTIONS). */
bool entry_input(const struct journal_entry *entry, enum saga_input *ret);
/* Is everything done, or taken back? Then the input that ends it. */
bool saga_end_input(const struct saga *saga, enum saga_input *ret);
/* Is it parked for this reason because of this operation? */
bool saga_is_parked_at(const struct saga *saga, enum park_reason reason, int step,
                       enum operation operation);
/* May somebody's word still change what is recorded of it: not done, and nothing rests on "maybe"?
 */
bool saga_can_settle(const struct saga *saga, int step, enum operation operation);
/* Would a report about this ended lease be accepted as its resolution? */
bool saga_late_resolves(const struct saga *saga, const struct journal_entry *lease);

/* plan.c */

/* Is it behind the saga: done, or passed? */
static inline bool plan_is_over(const struct saga *saga, size_t step)
{
    const struct attempts *action = &saga->steps[step].of[OPERATION_ACTION];
    return action->done || action->passed_seq;
}
bool plan_needs_compensation(const struct saga *saga, size_t step);
/* Nothing is left to do in that direction. */
bool plan_is_all_over(const struct saga *saga);
bool plan_is_all_taken_back(const struct saga *saga);

/* Operations whose turn it is, leased or not and whatever else may hold them up: forward those of
 * steps that come after nothing which is not over, from the first; backward the compensations (or
 * probes) of steps after which nothing is left to take back, from the last.
 *
 *   for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) ... turn.step,
 * turn.operation */
struct turn {
    size_t step;
    enum operation operation;
    bool forward;
    size_t left; /* steps that were not looked at */
    struct step_set
        seen; /* forward: the steps that are over; backward: those that wait for others */
};
struct turn plan_turns(const struct saga *saga);
bool plan_next(const struct saga *saga, struct turn *turn);
/* Nothing is taken back any more. */
bool plan_pivot_is_done(const struct saga *saga);
/* It was sent, and what became of it is not known: cancel and deadline wait for that. */
bool plan_pivot_is_under_way(const struct saga *saga);
bool plan_is_after_pivot(const struct saga *saga, size_t step);
/* The cancel that waited for the pivot, which turned out to have had no effect. */
bool plan_pending_is_due(const struct saga *saga);
/* Is it this step's turn? */
bool plan_is_turn_of(const struct saga *saga, size_t step, enum operation *ret_operation);
/* Is nobody at work on it, and may somebody be? */
bool plan_is_free(const struct saga *saga, const struct turn *turn);
/* The live lease of the step, be it of its action, its compensation or a probe; 0: none. */
int64_t plan_lease_of(const struct saga *saga, size_t step);
/* Something follows from the records and was not written with them: the end, or what a refusal or
 * an unknown outcome leads to. With one copy that does not happen; but a plain finish looks at its
 * lease alone, and a stale copy of another node may not know that the saga was turned back, or
 * released from PARKED, meanwhile. Time decides it. OPERATION_COUNT: the end, or a cancel that
 * waited for the pivot. */
bool plan_undecided(const struct saga *saga, size_t *ret_step, enum operation *ret_operation);
/* The live lease that ends first, 0 if there is none. */
int64_t plan_open_lease(const struct saga *saga);
int64_t plan_backoff_until_ms(const struct saga *saga, size_t step, enum operation operation);
/* A compensation waits for this: requests that may still be on their way. */
int64_t plan_settle_until_ms(const struct saga *saga, size_t step);
/* From then on no request of its unsettled attempts can be on its way; 0: none was unknown. */
int64_t plan_settled_at_ms(const struct saga *saga, size_t step, enum operation operation);
/* When everything that it comes after was over; 0: a saga that has yet to be committed. */
int64_t plan_ready_at_ms(const struct saga *saga, size_t step);
/* It may have run before the saga began, which nothing has settled, and was not tried since. */
bool plan_is_suspect(const struct saga *saga, size_t step);
/* Forward: the end of the delay before its first attempt, or the start that was asked for; 0: none,
 * or there was one. */
int64_t plan_delayed_until_ms(const struct saga *saga, size_t step);
/* Nothing may be sent with the idempotency key from then on; 0: no window, or none has begun. */
int64_t plan_send_before_ms(const struct saga *saga, size_t step, enum operation operation);
/* Repeating is safe by its class, and nothing has said otherwise since. */
bool plan_is_repeatable(const struct saga *saga, size_t step, enum operation operation);
/* Does its probe have the word: unsettled, and not to be repeated? */
bool plan_is_probed(const struct saga *saga, size_t step, enum operation operation);
/* Time for which the saga was SUSPENDED since that position; counts for no budget. */
int64_t plan_suspended_ms(const struct saga *saga, int64_t since_seq);
/* Time that the operation has waited while its handler was braked, from that lease to its last one.
 */
int64_t plan_held_ms(const struct saga *saga, size_t step, enum operation operation,
                     int64_t since_seq);
/* The end of its retry budget, without all that time; 0: none has begun, INT64_MAX: not while its
 * handler is braked. */
int64_t plan_retry_until_ms(const struct saga *saga, size_t step, enum operation operation);
/* The deadline, without all that time since it was last set; 0: none, INT64_MAX: not while a
 * handler that it waits for is braked. */
int64_t plan_deadline_ms(const struct saga *saga);
/* Not grantable before; 0: no such wait. */
int64_t plan_not_before_ms(const struct saga *saga, size_t step, enum operation operation);
/* Grantable since, or from then on. */
int64_t plan_since_ms(const struct saga *saga, size_t step, enum operation operation);
bool plan_deadline_is_due(const struct saga *saga, int64_t now_ms);
bool plan_limit_reached(const struct saga *saga);
/* Would the request of a further action be over the limit of a task? */
bool plan_task_is_too_large(const struct saga *saga);
enum stop {
    STOP_NONE,
    STOP_SIGNAL,  /* what it waits for is there */
    STOP_SUSPECT, /* it may have run before, and running it now would be no safe repeat */
    STOP_LIMIT,
    STOP_TASK_LIMIT,
    STOP_SPENT,
    STOP_WINDOW,
    STOP_START_TIMEOUT,
};
/* What ends the wait of an operation that is not leased, and when; STOP_NONE: INT64_MAX. */
enum stop plan_stop(const struct saga *saga, size_t step, enum operation operation,
                    int64_t *ret_at_ms);
/* Is it some step's turn whose signal is there? */
bool plan_receives(const struct saga *saga, int64_t now_ms, size_t *ret_step);
/* The first that is due. */
enum stop plan_stop_due(const struct saga *saga, int64_t now_ms, size_t *ret_step,
                        enum operation *ret_operation);

/* change.c */

struct change {
    struct saga *saga;
    struct transition *transition;
    int64_t now_ms;
    struct rng *rng; /* NULL where nothing is drawn */
    struct err *err;
    bool row_changed;
};

/* How a lease ends. Strings and output are copied. */
struct ending {
    enum outcome outcome;
    struct bytes output;
    const char *error_code, *error_message;
    int64_t retry_in_ms; /* -1: not by itself */
};

/* Empties *ret and starts a change. */
struct change change_begin(struct saga *saga, int64_t now_ms, struct rng *rng,
                           struct transition *ret, struct err *err);
MUST_USE int change_finish(struct change *change, int64_t seq, const struct ending *ending);
/* Appends a copy of *what (its strings borrowed, its texts cut to the limits): seq and a decision's
 * time are set here. */
MUST_USE int change_append(struct change *change, const struct journal_entry *what);
MUST_USE int change_park(struct change *change, enum park_reason reason, int step,
                         enum operation operation, const char *code, const char *message);
MUST_USE int change_compensate(struct change *change, enum cause cause, int step, const char *code,
                               const char *message);
/* A business no: turns back, or after the pivot parks. A saga that is parked already records it. */
MUST_USE int change_refused(struct change *change, int step, const char *code, const char *message);
/* An operation is done: the row that records it, unless the end follows. */
MUST_USE int change_done(struct change *change, enum operation operation);
/* Leaves PARKED: what it was parked for is settled. */
MUST_USE int change_resume(struct change *change, int step, enum operation operation);
/* Turns back or parks if it is RUNNING beyond its deadline; waits for a pivot that is under way. */
MUST_USE int change_deadline(struct change *change);
/* What steps whose turn it is now have waited for, then the end if it has come; brings the row and
 * the transition in line. Always the last step. */
MUST_USE int change_close(struct change *change);

/* saga_probe.c */

/* An outcome that is unknown and not repeated: the probe, or what on_unknown says. why: as which
 * reason a saga parks for it. */
MUST_USE int decide_unknown(struct change *change, int step, enum operation operation,
                            enum park_reason why, const char *code, const char *message);
/* The probe found nothing in its time either. */
MUST_USE int decide_given_up(struct change *change, int step, const char *code,
                             const char *message);
/* Does this answer settle what it asks about? lease: the probe's. */
bool saga_probe_settles(const struct saga *saga, const struct journal_entry *lease,
                        enum operation probed, enum outcome outcome);
/* An answer that does. about: the entry that holds it. */
MUST_USE int decide_probe_answer(struct change *change, int64_t about, int step,
                                 enum operation probed, enum outcome outcome);
/* What follows from a RESOLVE: the step is done or granted again, and a saga that stands for it
 * goes on. */
MUST_USE int decide_settled(struct change *change, int step, enum operation operation, bool done);

/* saga_operator.c */

/* The verb x state table's word; non-zero where it refuses. */
MUST_USE int saga_ask_table(const struct saga *saga, enum verb verb, struct err *err);
/* -1 with ERR_NOT_FOUND when there is no such step. */
int saga_find_step(const struct saga *saga, const char *name, struct err *err);

/* saga_report.c */

/* A spent budget, and nothing can have happened. */
MUST_USE int decide_exhausted(struct change *change, int step, enum cause cause, const char *code,
                              const char *message);
/* Ends an open lease and decides what follows from it. */
MUST_USE int decide_ending(struct change *change, int64_t seq, const struct report *report);

/* saga_late.c: a report about a lease that has its outcome already. */
MUST_USE int decide_late(struct change *change, int64_t seq, const struct report *report,
                         enum verdict *ret_verdict);

#endif
