/* When a saga was asked for, at the beginning of its input: from the load generator to the worker
 * that runs its first step. Processes of one machine share the monotonic clock. */
#ifndef BENCH_BEGUN_H
#define BENCH_BEGUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BEGUN_PREFIX "begun "
enum { BEGUN_DIGITS = 19, BEGUN_BYTES = sizeof(BEGUN_PREFIX) - 1 + BEGUN_DIGITS };

/* `input` has room for BEGUN_BYTES; what is behind them stays. */
static inline void begun_write(uint8_t *input, int64_t ns)
{
    char text[BEGUN_BYTES + 1];
    (void)snprintf(text, sizeof(text), BEGUN_PREFIX "%0*lld", BEGUN_DIGITS,
                   (long long)ns); /* fits */
    memcpy(input, text, BEGUN_BYTES);
}

/* False: there is none. */
static inline bool begun_read(const void *input, size_t size, int64_t *ret_ns)
{
    static const char prefix[] = BEGUN_PREFIX;
    const char *text = input;
    if (size < BEGUN_BYTES || memcmp(text, prefix, sizeof(prefix) - 1) != 0)
        return false;
    int64_t ns = 0;
    for (const char *at = text + sizeof(prefix) - 1; at < text + BEGUN_BYTES; at++) {
        if (*at < '0' || *at > '9')
            return false;
        ns = ns * 10 + (*at - '0');
    }
    *ret_ns = ns;
    return true;
}

#endif
