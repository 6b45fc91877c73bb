/* The brake of a handler: held by a person or by its breaker, released at once or gradually, its
 * limits; and the times in which it was braked, which count for nothing that waits for it. Plain
 * data and pure changes of it: what the row is after a change follows from what it was, and the
 * store writes it only if nobody else was first. No saga's safety depends on any of it. Any thread.
 */
#ifndef CORE_HANDLER_H
#define CORE_HANDLER_H

#include "base/err.h"
#include "core/limits.h"

#include <stddef.h>
#include <stdint.h>

/* --- times ------------------------------------------------------------------------------------ */

enum { HELD_TIMES_MAX = 1000 }; /* the newest are kept: what waits since before is counted for */

struct held_time {
    int64_t from_ms, until_ms; /* database time; until INT64_MAX: it lasts */
};
/* In order, disjoint. The engine's, changed when it hears of a change; a rule points to it. */
struct held_times {
    struct held_time *list;
    size_t count;
};
/* How much of [from, to) it was braked. times NULL: never. */
int64_t held_within(const struct held_times *times, int64_t from_ms, int64_t to_ms);
/* When so much time has passed since from_ms outside of them; INT64_MAX: not while it is braked. */
int64_t held_until(const struct held_times *times, int64_t from_ms, int64_t left_ms);

/* --- the row ---------------------------------------------------------------------------------- */

enum handler_hold { HOLD_NONE, HOLD_PERSON, HOLD_BREAKER, HOLD_COUNT };
/* "PERSON", "BREAKER"; NULL for HOLD_NONE. */
const char *handler_hold_name(enum handler_hold hold);
MUST_USE bool handler_hold_parse(const char *name, enum handler_hold *ret);

enum {
    BREAKER_FAILURES = 20, /* what a breaker takes that is switched on without saying how */
    BREAKER_TRIAL_MS = 10 * 1000,
    BREAKER_SUCCESSES = 3,
    BREAKER_DEFAULT = -1, /* failures: what the server's option says */
    LIMIT_BREAKER_FAILURES = 10000,
    LIMIT_BREAKER_SUCCESSES = 1000,
    LIMIT_HANDLER_CAP = 1000000,
    HANDLER_TRIAL_LEAST_MS = 1000,
};
#define LIMIT_HANDLER_RATE_MILLI (INT64_C(1000000) * 1000)
#define LIMIT_HANDLER_TRIAL_MS   (INT64_C(24) * 3600 * 1000)

struct handler {
    char name[LIMIT_HANDLER_BYTES + 1];
    int64_t version; /* 0: there is no row; it is not braked and has no limits */
    enum handler_hold hold;
    int64_t held_at_ms;   /* since when it is held so; 0: it is not */
    int64_t braked_at_ms; /* since when it is held or released gradually; 0: it is not */
    int64_t
        release_rate_milli;   /* released gradually: thousandths of a task a second; 0: it is not */
    int64_t rate_milli;       /* a lasting limit; 0: none */
    int32_t cap;              /* leases at a time; 0: no limit */
    int32_t breaker_failures; /* in a row that hold it; 0: it has no breaker; BREAKER_DEFAULT */
    int64_t breaker_trial_ms; /* held by its breaker: one trial every so often */
    int32_t breaker_successes; /* of trials in a row that release it */
    int64_t trial_at_ms;       /* HOLD_BREAKER: when the next trial may be */
    int32_t trial_successes;
    int64_t changed_at_ms;
    char actor[LIMIT_ACTOR_BYTES + 1];   /* of the last change that somebody asked for */
    char reason[LIMIT_REASON_BYTES + 1]; /* the breaker's: the last error */
};
/* As one is of which nothing was ever said. */
void handler_init(struct handler *handler, const char *name);
/* What waits for it, waits because of that, and the time counts for nothing. */
static inline bool handler_is_braked(const struct handler *handler)
{
    return handler->hold != HOLD_NONE || handler->release_rate_milli > 0;
}

/* --- changes ---------------------------------------------------------------------------------- */

enum handler_change_kind {
    HANDLER_HOLD,    /* a person: nothing more is granted */
    HANDLER_RELEASE, /* a person: at once, or gradually */
    HANDLER_LIMIT,   /* a person: rate, cap, breaker */
    HANDLER_TRIP,    /* its breaker holds it */
    HANDLER_TRIAL,   /* one trial: the next one is trial_ms away */
    HANDLER_TRIED,   /* what came of it */
    HANDLER_DRAINED, /* released gradually, and nothing waits any more */
    HANDLER_CHANGE_COUNT
};
struct handler_change { /* borrowed */
    enum handler_change_kind kind;
    const char *actor, *reason; /* NULL: not said */
    int64_t rate_milli;         /* RELEASE: gradually, 0: at once; LIMIT: -1: as it is */
    int32_t cap;                /* LIMIT: -1: as it is */
    bool sets_breaker;          /* LIMIT: the next three count */
    int32_t breaker_failures, breaker_successes;
    int64_t breaker_trial_ms;
    bool success;       /* TRIED */
    int64_t held_at_ms; /* TRIED: of the hold that the trial was made in */
    int64_t now_ms;     /* TRIAL: no later than it is by the database's clock */
};
/* What everybody is told of; stored by its name. */
enum handler_event {
    HANDLER_EVENT_NONE,
    HANDLER_EVENT_HELD,
    HANDLER_EVENT_RELEASED,
    HANDLER_EVENT_LIMITED,
    HANDLER_EVENT_DRAINED,
    HANDLER_EVENT_COUNT
};
/* "HELD", ...; NULL for HANDLER_EVENT_NONE. */
const char *handler_event_name(enum handler_event event);
MUST_USE bool handler_event_parse(const char *name, enum handler_event *ret);

struct handler_effect {
    enum handler_event event;
    int64_t trial_in_ms; /* trial_at is so far away; 0: there is none; TRIAL_AS_IT_IS */
};
enum { TRIAL_AS_IT_IS = -1 };
/* Makes `handler` what it is after the change, but for its times and its version, which the store
 * sets. False: there is nothing to change. */
MUST_USE bool handler_apply(struct handler *handler, const struct handler_change *change,
                            struct handler_effect *ret);

/* Failures in a row that hold it; 0: it has no breaker. */
static inline int32_t handler_breaker(const struct handler *handler, int32_t otherwise)
{
    return handler->breaker_failures == BREAKER_DEFAULT ? otherwise : handler->breaker_failures;
}

#endif
