#include "support/wait.h"

#include "base/clock.h"

#include <errno.h>
#include <time.h>

void wait_ms(int64_t ms)
{
    struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

bool wait_until(bool (*fn)(void *ctx), void *ctx, int64_t limit_ms)
{
    int64_t end_ms = clock_mono_ms(&clock_system) + limit_ms;
    int64_t pause_ms = 1;
    while (!fn(ctx)) {
        if (clock_mono_ms(&clock_system) >= end_ms)
            return fn(ctx);
        wait_ms(pause_ms);
        if (pause_ms < 16)
            pause_ms *= 2;
    }
    return true;
}
