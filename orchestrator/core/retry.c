#include "core/retry.h"

int64_t retry_delay_max_ms(const struct retry *retry, int32_t try_)
{
    int64_t delay = retry->initial_ms;
    /* Halving the cap instead of doubling past it: no overflow, whatever the numbers are. */
    for (int32_t i = 1; i < try_ && delay < retry->cap_ms; i++)
        delay = delay > retry->cap_ms / 2 ? retry->cap_ms : delay * 2;
    return delay < retry->cap_ms ? delay : retry->cap_ms;
}

int64_t retry_delay_ms(const struct retry *retry, int32_t try_, struct rng *rng)
{
    return (int64_t)rng_below(rng, (uint64_t)retry_delay_max_ms(retry, try_) + 1);
}

int64_t retry_until_ms(const struct retry *retry, int64_t first_ms)
{
    return first_ms + retry->for_ms;
}

bool retry_is_spent(const struct retry *retry, int32_t tries, int64_t first_ms, int64_t next_ms)
{
    if (tries <= 0)
        return false;
    if (retry->max_attempts != 0 && (uint32_t)tries >= retry->max_attempts)
        return true;
    return next_ms >= retry_until_ms(retry, first_ms);
}
