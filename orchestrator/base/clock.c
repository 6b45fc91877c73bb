#include "base/clock.h"

#include <time.h>

static int64_t read_ms(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now); /* cannot fail for these ids */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t system_wall_ms(void *ctx)
{
    (void)ctx;
    return read_ms(CLOCK_REALTIME);
}

static int64_t system_mono_ms(void *ctx)
{
    (void)ctx;
    return read_ms(CLOCK_MONOTONIC);
}

const struct clock clock_system = { system_wall_ms, system_mono_ms, 0 };
