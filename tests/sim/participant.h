/* The other side of every step: takes effects, counts them for each saga, step and operation, keeps
 * the guard's rows for guarded steps (design, section 7; sql/guard) and idempotency keys for the
 * others, which it forgets after their window. An operation that is not IDEMPOTENT it does as often
 * as it is told. Tells a probe what has landed so far. Believes nobody: what it counts is what
 * happened. */
#ifndef SIM_PARTICIPANT_H
#define SIM_PARTICIPANT_H

#include "core/definition.h"
#include "sim/invariants.h"
#include "sim/timer.h"

struct world;

enum { SUBJECTS_MAX = 32 };

enum guard_state { GUARD_NONE, GUARD_SEEN, GUARD_DONE, GUARD_UNDONE, GUARD_BLOCKED, GUARD_EMPTY };

struct known_key;

struct side_effect {
    int runs[2];      /* times that the action and the compensation took effect */
    int net;          /* effects of the action that are there now */
    int in_flight[2]; /* requests on their way */
    struct known_key *keys[2];
    enum guard_state guard[2];
    int64_t fence[2];    /* the highest that was here */
    bool old_consumer_s; /* made before the saga took over */
    bool foreign;        /* it exists already, by another */
    bool misled;         /* a person said what had been so, and was no more when it was written */
};

struct subject { /* a saga as the participant knows it */
    const char *definition, *saga_id;
    struct side_effect effects[STEPS_MAX];
};

struct participant {
    struct subject subjects[SUBJECTS_MAX];
    size_t count;
    size_t in_flight; /* requests on their way */
};

struct demand { /* a request */
    const char *definition, *saga_id;
    size_t step;
    enum operation operation; /* of a question: what it is about */
    struct uuid uid;
    int64_t fence;
    const char *key;
    int64_t sent_at_ms;
    bool refuse; /* the business says no, if it gets that far */
};

enum answer {
    ANSWER_DONE,      /* it took effect */
    ANSWER_DUPLICATE, /* it had taken effect before: the same key, or the guard's DUPLICATE */
    ANSWER_NO,        /* a business no */
    ANSWER_REFUSED,   /* the guard: an action after its compensation */
    ANSWER_STALE,     /* the guard: a newer holder was here */
    ANSWER_EMPTY,     /* the guard: nothing to take back */
    ANSWER_FOREIGN,   /* it exists, and is not ours */
    ANSWER_NOT_DONE,  /* to a question: nothing of it has landed so far */
};
const char *answer_name(enum answer answer);

struct subject *participant_subject(struct world *world, const char *definition,
                                    const char *saga_id);
/* A request has arrived. */
enum answer participant_take(struct world *world, const struct demand *demand);
/* A probe's question has arrived: DONE or NOT_DONE. */
enum answer participant_tell(struct world *world, const struct demand *demand);

#endif
