/* One situation of the decision table: what it is, what the design says follows, and what does
 * follow when it is played through the core. */
#ifndef UNIT_CORE_SITUATION_H
#define UNIT_CORE_SITUATION_H

#include "core_world.h"

enum ended { ACTION, COMPENSATION, PROBE_OF_ACTION, PROBE_OF_COMPENSATION, ENDED_COUNT };
enum class { IDEMPOTENT, WINDOW, WITH_PROBE, WINDOW_WITH_PROBE, PROBED, AT_MOST_ONCE, CLASS_COUNT };
enum told {
    DONE,
    ALREADY_DONE, /* ours */
    FOREIGN,      /* ALREADY_DONE, not ours */
    REJECTED,
    RETRY,
    UNKNOWN,
    EXPIRED,
    STREAM_LOST,
    RELEASED,
    NOT_DONE,
    STILL_UNKNOWN,
    TOLD_COUNT
};
/* Step b of a, b, c: one of its leases is live, and ends. */
struct situation {
    enum ended ended;
    enum class class; /* of the action or compensation, also where its probe ended */
    enum told told;
    bool back;    /* turned back, before or beside that lease */
    bool parked;  /* SUSPENDED beside it, and resumed at once afterwards */
    bool earlier; /* an attempt before it is unsettled */
    bool over;    /* no time is left within the window */
    bool spent;   /* the budget of what ended */
    bool counts;  /* a probe: granted after settle time */
    bool killed;  /* one lease too many was lost in a row */
    enum on_unknown on_unknown;
    enum on_exhausted on_exhausted;
};

enum what {
    NEXT,
    AGAIN,
    ASK,
    UNDO_DONE,
    UNDO_MAYBE,
    UNDO_NONE,
    UNDONE,
    ACCEPT,
    CONTINUE,
    PARK,
    STAYS,
};
enum not_before { AT_ONCE, BACKOFF, SETTLED };
struct follows {
    enum what what;
    enum park_reason reason; /* PARK */
    enum not_before not_before;
};

static inline bool is_probe(const struct situation *s)
{
    return s->ended >= PROBE_OF_ACTION;
}

static inline bool of_undo(const struct situation *s)
{
    return s->ended == COMPENSATION || s->ended == PROBE_OF_COMPENSATION;
}

static inline bool is_idempotent(enum class class)
{
    return class <= WINDOW_WITH_PROBE;
}

static inline bool has_window(enum class class)
{
    return class == WINDOW || class == WINDOW_WITH_PROBE;
}

static inline bool has_probe(enum class class)
{
    return class == WITH_PROBE || class == WINDOW_WITH_PROBE || class == PROBED;
}

static inline bool is_unknown(enum told told)
{
    return told == UNKNOWN || told == EXPIRED || told == STREAM_LOST;
}

/* What the design says. */
struct follows situation_expected(const struct situation *s);
/* What the core does; fails unless it may go on at not_before, and no sooner. */
struct follows situation_play(const struct situation *s, enum not_before not_before);

#endif
