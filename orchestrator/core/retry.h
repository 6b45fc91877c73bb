/* Back-off: when is an operation tried again, and is its budget spent? Pure arithmetic: the random
 * number and the times are the caller's. Any thread. */
#ifndef CORE_RETRY_H
#define CORE_RETRY_H

#include "base/rng.h"
#include "core/definition.h"

#include <stdbool.h>
#include <stdint.h>

/* Upper bound of the delay after the try-th try of a budget (from 1):
 * min(cap, initial * 2^(try - 1)). */
int64_t retry_delay_max_ms(const struct retry *retry, int32_t try_);
/* Full jitter: uniform in [0, retry_delay_max_ms]. */
int64_t retry_delay_ms(const struct retry *retry, int32_t try_, struct rng *rng);
/* End of a budget whose first lease began at first_ms. */
int64_t retry_until_ms(const struct retry *retry, int64_t first_ms);
/* May no further try begin at next_ms? tries: how many the budget has had; 0: none, never spent. */
bool retry_is_spent(const struct retry *retry, int32_t tries, int64_t first_ms, int64_t next_ms);

#endif
