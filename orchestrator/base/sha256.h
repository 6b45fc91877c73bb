/* SHA-256 (FIPS 180-4, by libcrypto) over several parts. Any thread. */
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

#endif
