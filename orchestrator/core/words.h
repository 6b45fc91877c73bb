/* The words of the design and their spelling in SQL, JSON and on screens. One table for each enum;
 * unknown text is refused, never guessed. Any thread. */
#ifndef CORE_WORDS_H
#define CORE_WORDS_H

#include "base/cleanup.h"

#include <stdbool.h>

enum saga_state {
    SAGA_RUNNING,
    SAGA_COMPENSATING,
    SAGA_PARKED,
    SAGA_SUCCEEDED,
    SAGA_COMPENSATED,
    SAGA_ABANDONED,
    SAGA_STATE_COUNT
};

enum operation { OPERATION_ACTION, OPERATION_COMPENSATION, OPERATION_PROBE, OPERATION_COUNT };

enum outcome {
    OUTCOME_NONE, /* the lease is open; SQL NULL */
    OUTCOME_DONE,
    OUTCOME_ALREADY_DONE,
    OUTCOME_REJECTED,
    OUTCOME_RETRY,
    OUTCOME_UNKNOWN,
    OUTCOME_EXPIRED,
    OUTCOME_STREAM_LOST,
    OUTCOME_RELEASED,
    OUTCOME_NOT_DONE,      /* PROBE, RESOLVE: certainly without effect */
    OUTCOME_STILL_UNKNOWN, /* PROBE */
    OUTCOME_COUNT
};

enum entry_kind {
    ENTRY_LEASE,       /* an attempt: granted, then once given an outcome */
    ENTRY_COMPENSATE,  /* the saga turned back; reason: a cause */
    ENTRY_PARK,        /* reason: a park_reason */
    ENTRY_RETRY,       /* an operator: again now, with a fresh budget */
    ENTRY_LATE_REPORT, /* the report of an attempt that had been ended; about: its seq */
    ENTRY_RESUME,      /* left PARKED: the unknown was settled, or (about: its PARK) a person */
    ENTRY_END,         /* nothing was left, and the record that left it so did not say the end */
    ENTRY_RESOLVE,     /* found out, by a person or (about: its seq) a probe: DONE or NOT_DONE */
    ENTRY_SKIP,        /* a person: this compensation is not needed any more */
    ENTRY_ABANDON,     /* a person: nothing more is done; the end */
    ENTRY_PROBE,       /* may not be repeated any more: from here the probe decides */
    ENTRY_MAYBE,       /* the probe found nothing in its time: compensated as maybe */
    ENTRY_ACCEPT,      /* on_unknown ACCEPT: goes on, the step unconfirmed */
    ENTRY_CONTINUE,    /* on_exhausted CONTINUE: goes on without the step */
    ENTRY_PENDING,     /* cancel or deadline, while the pivot is under way; reason: a cause */
    ENTRY_SIGNAL,      /* what step waits for came: its payload is kept until the step's turn */
    ENTRY_RECEIVE,     /* step waited for the signal at `about`, and is done */
    ENTRY_SUSPECT, /* the first entry of a saga that took over: each action may have run before */
    ENTRY_OPTIONS, /* a person: other numbers from here on; output: which (options.h) */
    ENTRY_KIND_COUNT
};

enum cause { /* why a saga turned back: the reason of ENTRY_COMPENSATE */
             CAUSE_REFUSED,
             CAUSE_CANCELLED,
             CAUSE_DEADLINE,
             CAUSE_UNKNOWN,
             CAUSE_EXHAUSTED,
             CAUSE_START_TIMEOUT,
             CAUSE_COUNT
};

enum park_reason {
    PARK_NONE, /* SQL NULL */
    PARK_OUTCOME_UNKNOWN,
    PARK_IDEMPOTENCY_WINDOW_OVER,
    PARK_RETRIES_EXHAUSTED,
    PARK_COMPENSATION_FAILED,
    PARK_REJECTED_AFTER_PIVOT,
    PARK_DEADLINE_EXCEEDED,
    PARK_FOREIGN_EFFECT,
    PARK_LATE_EFFECT,
    PARK_WORKER_KILLER,
    PARK_LIMIT_REACHED,
    PARK_SUSPENDED,
    PARK_REASON_COUNT
};

enum effect { EFFECT_IDEMPOTENT, EFFECT_PROBED, EFFECT_AT_MOST_ONCE, EFFECT_COUNT };
enum on_unknown { ON_UNKNOWN_PARK, ON_UNKNOWN_COMPENSATE, ON_UNKNOWN_ACCEPT, ON_UNKNOWN_COUNT };
enum on_exhausted {
    ON_EXHAUSTED_PARK,
    ON_EXHAUSTED_COMPENSATE,
    ON_EXHAUSTED_CONTINUE,
    ON_EXHAUSTED_COUNT
};
enum on_deadline { ON_DEADLINE_COMPENSATE, ON_DEADLINE_PARK, ON_DEADLINE_COUNT };
/* Which events of a saga leave: none; its end and each parking; its start, ends of leases,
 * decisions. */
enum publish { PUBLISH_NONE, PUBLISH_ENDS, PUBLISH_TRANSITIONS, PUBLISH_COUNT };

/* "RUNNING", "LATE_REPORT", ...; NULL for OUTCOME_NONE, PARK_NONE and values out of range. */
const char *saga_state_name(enum saga_state state);
const char *operation_name(enum operation operation);
const char *outcome_name(enum outcome outcome);
const char *entry_kind_name(enum entry_kind kind);
const char *cause_name(enum cause cause);
const char *park_reason_name(enum park_reason reason);
const char *effect_name(enum effect effect);

/* False for text that is none of the names; *ret is then untouched. */
MUST_USE bool saga_state_parse(const char *name, enum saga_state *ret);
MUST_USE bool operation_parse(const char *name, enum operation *ret);
MUST_USE bool outcome_parse(const char *name, enum outcome *ret);
MUST_USE bool entry_kind_parse(const char *name, enum entry_kind *ret);
MUST_USE bool cause_parse(const char *name, enum cause *ret);
MUST_USE bool park_reason_parse(const char *name, enum park_reason *ret);

static inline bool saga_state_is_terminal(enum saga_state state)
{
    return state == SAGA_SUCCEEDED || state == SAGA_COMPENSATED || state == SAGA_ABANDONED;
}
/* EXPIRED, STREAM_LOST and UNKNOWN: the attempt may have taken effect. */
static inline bool outcome_is_unknown(enum outcome outcome)
{
    return outcome == OUTCOME_UNKNOWN || outcome == OUTCOME_EXPIRED ||
           outcome == OUTCOME_STREAM_LOST;
}
static inline bool outcome_is_success(enum outcome outcome)
{
    return outcome == OUTCOME_DONE || outcome == OUTCOME_ALREADY_DONE;
}

#endif
