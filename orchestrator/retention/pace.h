/* How large the next batch is, and how long to pause before it, from how long the last one took.
 * Pure. */
#ifndef RETENTION_PACE_H
#define RETENTION_PACE_H

#include <stddef.h>
#include <stdint.h>

enum {
    PACE_TARGET_MS = 40, /* of a batch */
    PACE_LEAST = 128,    /* sagas: fewer would cost as much */
    PACE_FIRST = 256,
    PACE_PAUSE_MAX_MS = 2000,
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

/* As long as the batch: others have at least half of the time. */
static inline int64_t pace_pause_ms(int64_t took_ms)
{
    if (took_ms < 1)
        return 1;
    return took_ms < PACE_PAUSE_MAX_MS ? took_ms : PACE_PAUSE_MAX_MS;
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
