/* What people ask: where is this operation stuck? Derived from a copy, nothing else. Any thread
 * that owns the copy. */
#ifndef CORE_VIEW_H
#define CORE_VIEW_H

#include "core/saga.h"

/* As StepState in saga.proto, same order, from 0. */
enum step_state {
    STEP_PENDING,
    STEP_READY,
    STEP_LEASED,
    STEP_BACKOFF,
    STEP_DONE,
    STEP_REJECTED,
    STEP_UNKNOWN,
    STEP_NOT_RUN,
    STEP_COMPENSATION_WAITING,
    STEP_COMPENSATION_READY,
    STEP_COMPENSATION_LEASED,
    STEP_COMPENSATION_BACKOFF,
    STEP_COMPENSATED,
    STEP_COMPENSATION_REJECTED,
    STEP_COMPENSATION_UNKNOWN,
    STEP_EXHAUSTED,
    STEP_COMPENSATION_EXHAUSTED,
    STEP_UNCONFIRMED,
    STEP_LEFT_OUT,
    STEP_COMPENSATION_SKIPPED,
    STEP_DELAYED,
    STEP_WAITING_FOR_SIGNAL,
    STEP_STATE_COUNT
};
const char *step_state_name(enum step_state state);

struct step_view { /* strings borrowed from the saga */
    enum step_state state;
    int64_t since_ms;
    enum operation operation; /* what the rest speaks of */
    int32_t tries;
    const struct journal_entry *last; /* last lease of that operation; NULL: none */
    int64_t next_ms;                  /* next try, probe or end of settle time; 0: none */
    int64_t retry_until_ms; /* end of its retry budget; 0: none has begun, or it is over */
    bool maybe;
    bool suspect; /* maybe, by an attempt that was none of ours */
};
void saga_step_view(const struct saga *saga, size_t step, int64_t now_ms, struct step_view *ret);

/* What is known of an operation that may have taken effect. */
struct unknown_view {
    enum operation operation; /* ACTION or COMPENSATION */
    int32_t attempts;         /* unsettled ones */
    /* That ended so; SUSPECT: none of ours; NULL: a lease given back reported an effect. */
    const struct journal_entry *last;
    int64_t settled_ms;     /* no request is on its way from then on; 0: not declared */
    int64_t send_before_ms; /* 0: no idempotency_window */
    int32_t probes;         /* asked since then, or since a person asked for more */
    const struct journal_entry *last_probe; /* that ended; NULL: none */
};
/* False: nothing is unsettled that still matters. */
bool saga_unknown_view(const struct saga *saga, size_t step, struct unknown_view *ret);

/* As WaitKind in saga.proto. */
enum wait_kind {
    WAIT_NONE,
    WAIT_WORKER,
    WAIT_RETRY,
    WAIT_REPORT,
    WAIT_SETTLE,
    WAIT_OPERATOR,
    WAIT_DELAY,
    WAIT_SIGNAL
};
struct wait_view {
    enum wait_kind kind;
    int step; /* -1: none */
    enum operation operation;
    const char *handler, *worker, *signal; /* NULL where they do not apply */
    int64_t since_ms, until_ms;            /* until 0: no limit */
};
/* Of several things the one that it has waited for longest. */
void saga_wait_view(const struct saga *saga, int64_t now_ms, struct wait_view *ret);

/* The cancel that waits for what becomes of the pivot, else the deadline that does; NULL: neither.
 */
const struct journal_entry *saga_pending(const struct saga *saga);
/* What became of an operation, for whoever compares it with the other side's books. Same order as
 * in operator.proto, from 1. */
enum operation_outcome {
    OPERATION_OPEN,     /* somebody works on it */
    OPERATION_DONE,     /* took effect */
    OPERATION_NOT_DONE, /* has no effect, as far as it was tried */
    OPERATION_MAYBE,    /* may have taken effect */
    OPERATION_FOREIGN,  /* the effect is there, and not by us */
    OPERATION_SKIPPED,  /* a compensation that a person did without */
};
struct operation_view { /* borrowed from the saga */
    enum operation_outcome outcome;
    int32_t attempts; /* leases that were not given back */
    int32_t unknown;  /* of them: that ended unknown, whatever was found out later */
    const struct journal_entry *first, *last; /* of them; NULL: there was none */
    int32_t generations;                      /* of the idempotency key, that attempts were told */
    struct bytes output;                      /* of what is done */
};
/* ACTION or COMPENSATION. */
void saga_operation_view(const struct saga *saga, size_t step, enum operation operation,
                         struct operation_view *ret);
/* A step that took effect or may have, and was not taken back: the first; -1: there is none. */
int saga_effect_left(const struct saga *saga);
/* When the deadline acts: without the time in which the saga was SUSPENDED; 0: none. */
int64_t saga_deadline_ms(const struct saga *saga);
/* Is the pivot done? */
bool saga_is_past_pivot(const struct saga *saga);

/* The entry that turned the saga back, NULL while it never did; and the lease that was its cause
 * (NULL for cancel and deadline). */
const struct journal_entry *saga_first_cause(const struct saga *saga,
                                             const struct journal_entry **ret_lease);

#endif
