/* How large the next batch is, and how long to pause before it, from how long the last one took and
 * how many sagas end. Pure. */
#ifndef RETENTION_PACE_H
#define RETENTION_PACE_H

#include <stddef.h>
#include <stdint.h>

enum {
    PACE_TARGET_MS = 40, /* of a batch */
    PACE_LEAST = 128,    /* sagas: fewer would cost as much */
    PACE_FIRST = 256,
    PACE_PAUSE_MAX_MS = 2000,
    PACE_AHEAD = 2,       /* so many times what ends: what was there before is worked off */
    PACE_RATE_MIN = 2000, /* sagas a second, however few end */
    PACE_BATCHES = 20,    /* in a second at least: each holds up others a little, none much */
};

struct pace {
    size_t limit; /* sagas in the next batch */
};

/* took_ms: what the database took, without the archive's disk, to which the size matters little.
 * Half as many after twice the target, twice as many below half of it when the batch was full, up
 * to `most`. */
static inline void pace_batch(struct pace *pace, size_t looked_at, int64_t took_ms, size_t most)
{
    if (took_ms > 2 * PACE_TARGET_MS)
        pace->limit = pace->limit / 2 > PACE_LEAST ? pace->limit / 2 : PACE_LEAST;
    else if (took_ms < PACE_TARGET_MS / 2 && looked_at >= pace->limit)
        pace->limit = pace->limit * 2 < most ? pace->limit * 2 : most;
}

/* Sagas that may go in a second. What a purge writes is on the way to the disk before everybody
 * else's commits: as much as there is room for would double their time while little is to be done.
 * ended: in the last `ms`; negative: not known, no bound. */
static inline int64_t pace_rate(int64_t ended, int64_t ms)
{
    if (ended < 0 || ms <= 0)
        return 0;
    int64_t rate = PACE_AHEAD * ended * 1000 / ms;
    return rate > PACE_RATE_MIN ? rate : PACE_RATE_MIN;
}

/* rate: 0: no bound. */
static inline size_t pace_limit(const struct pace *pace, int64_t rate)
{
    size_t most = (size_t)rate / PACE_BATCHES;
    return rate && most < pace->limit ? most : pace->limit;
}

/* As long as the batch: others have at least half of the time. Longer where the rate wants it. */
static inline int64_t pace_pause_ms(int64_t took_ms, size_t purged, int64_t rate)
{
    int64_t pause_ms = took_ms > 1 ? took_ms : 1;
    int64_t due_ms = rate ? (int64_t)purged * 1000 / rate - took_ms : 0;
    if (pause_ms < due_ms)
        pause_ms = due_ms;
    return pause_ms < PACE_PAUSE_MAX_MS ? pause_ms : PACE_PAUSE_MAX_MS;
}

/* Between two rounds: a saga stays at most a little longer than it should. */
static inline int64_t pace_round_ms(int64_t age_ms)
{
    int64_t pause_ms = age_ms / 20;
    if (pause_ms < 200)
        return 200;
    return pause_ms < 60 * 1000 ? pause_ms : 60 * 1000;
}

#endif
