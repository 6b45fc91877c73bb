/* The transition table and the verb x state table: the whole of what moves a saga, as data. A pair
 * that is absent is refused, never guessed. `sagactl fsm --dot` draws it; core/README.md holds both
 * tables, generated, and a test compares them. Any thread. */
#ifndef CORE_FSM_H
#define CORE_FSM_H

#include "base/buf.h"
#include "core/words.h"

enum saga_input {
    IN_STEP_DONE,           /* an action is done, others remain */
    IN_LAST_STEP_DONE,      /* the last action is done */
    IN_REFUSED,             /* an action was REJECTED */
    IN_CANCELLED,           /* a person took it back */
    IN_DEADLINE_COMPENSATE, /* the deadline passed */
    IN_DEADLINE_PARK,
    IN_UNKNOWN_COMPENSATE, /* an unknown outcome that may not be repeated: on_unknown */
    IN_UNKNOWN_PARK,
    IN_EXHAUSTED_COMPENSATE, /* a spent budget, or a time-out before it: on_exhausted */
    IN_EXHAUSTED_PARK,
    IN_COMPENSATION_DONE,      /* a compensation is done, others remain */
    IN_LAST_COMPENSATION_DONE, /* nothing is left to take back */
    IN_COMPENSATION_FAILED,    /* REJECTED, or its budget is spent */
    IN_COMPENSATION_UNKNOWN,   /* unknown and not repeatable */
    IN_FOREIGN_EFFECT,         /* ALREADY_DONE, but not by us */
    IN_LATE_EFFECT,            /* a late report speaks against what was recorded */
    IN_WORKER_KILLER,          /* its workers keep dying */
    IN_LIMIT_REACHED,          /* the journal is full */
    IN_REJECTED_AFTER_PIVOT,   /* a business no where nothing is taken back any more */
    IN_RETRY,                  /* an operator: again */
    IN_SETTLED,   /* a late report, a person or a signal settled what it was parked for */
    IN_SKIPPED,   /* a person: without this compensation */
    IN_ABANDONED, /* a person: nothing more */
    IN_ACCEPTED,  /* unknown and not repeatable: goes on, the step unconfirmed */
    IN_CONTINUED, /* a spent budget: goes on without the step */
    IN_SUSPENDED, /* a person: nothing more for now */
    IN_RESUMED,   /* a person: go on */
    IN_COUNT
};

struct saga_transition {
    enum saga_state from;       /* while PARKED: see phase */
    enum saga_state phase_from; /* RUNNING or COMPENSATING */
    enum saga_input on;
    enum saga_state to, phase_to;
    const char *why;
};

const char *saga_input_name(enum saga_input input);
/* NULL: this input cannot move a saga in that state. */
const struct saga_transition *saga_transition_find(enum saga_state from, enum saga_state phase,
                                                   enum saga_input on);
/* The rows, for drawing and for tests. */
const struct saga_transition *saga_transitions(size_t *ret_count);

enum verb {
    VERB_CANCEL,
    VERB_RETRY,
    VERB_RESOLVE,
    VERB_SKIP,
    VERB_ABANDON,
    VERB_SUSPEND,
    VERB_RESUME,
    VERB_SIGNAL,
    VERB_OPTIONS,
    VERB_REPORT,
    VERB_COUNT
};
/* What a call does in a state (phase matters while PARKED): one line for people, NULL reason when
 * it is allowed, else the stable reason of FAILED_PRECONDITION. */
struct verb_rule {
    enum verb verb;
    enum saga_state state, phase;
    const char *does;   /* what happens */
    const char *reason; /* NULL: allowed */
};
const struct verb_rule *verb_rules(size_t *ret_count);
const struct verb_rule *verb_rule_find(enum verb verb, enum saga_state state,
                                       enum saga_state phase);

/* Graphviz text of the transition table; Markdown of both tables as in core/README.md. */
void fsm_write_dot(struct buf *out);
void fsm_write_markdown(struct buf *out);

#endif
