/* Time, injected: whoever needs it is given a struct clock, so that tests can own it. Wall time is
 * Unix epoch milliseconds, monotonic time is milliseconds since an arbitrary start; they never
 * mix. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*wall_ms)(void *ctx);
    int64_t (*mono_ms)(void *ctx);
    void *ctx;
};

extern const struct clock clock_system;

static inline int64_t clock_wall_ms(const struct clock *clock)
{
    return clock->wall_ms(clock->ctx);
}
static inline int64_t clock_mono_ms(const struct clock *clock)
{
    return clock->mono_ms(clock->ctx);
}

#endif
