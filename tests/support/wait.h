/* Waiting for a condition instead of sleeping and hoping. Any thread. */
#ifndef SUPPORT_WAIT_H
#define SUPPORT_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* Calls `fn` until it is true (returns true) or the limit is over (a last look decides). */
bool wait_until(bool (*fn)(void *ctx), void *ctx, int64_t limit_ms);
/* For a scenario in which time itself is what is tested (a lease that runs out). */
void wait_ms(int64_t ms);

#endif
