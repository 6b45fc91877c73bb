/* SHA-256 (FIPS 180-4, by libcrypto). Any thread. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base/cleanup.h"

#include <stddef.h>
#include <stdint.h>

struct sha256_part {
    const void *data;
    size_t size;
};

/* 0, or -1 when libcrypto fails (memory). */
MUST_USE int sha256(const struct sha256_part *parts, size_t count, uint8_t ret_digest[32]);

/* The same over what comes bit by bit. One owner thread. */
struct sha256_sum;
MUST_USE struct sha256_sum *sha256_sum_new(void); /* NULL: libcrypto failed */
struct sha256_sum *sha256_sum_free(struct sha256_sum *sum);
MUST_USE int sha256_sum_add(struct sha256_sum *sum, const void *data, size_t size);
/* Once, at the end. */
MUST_USE int sha256_sum_end(struct sha256_sum *sum, uint8_t ret_digest[32]);

#endif
