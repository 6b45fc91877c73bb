/* UUID version 7 (RFC 9562): 48 bits of milliseconds, then random; the last byte is the shard,
 * which the caller sets. Any thread. */
#ifndef BASE_UUID_H
#define BASE_UUID_H

#include "base/cleanup.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

enum { UUID_TEXT_SIZE = 37 }; /* with the NUL */

struct uuid {
    uint8_t bytes[16];
};

struct uuid uuid_v7(int64_t wall_ms, struct rng *rng, uint8_t last_byte);
void uuid_format(const struct uuid *uuid, char text[UUID_TEXT_SIZE]);
/* Canonical form only (lower or upper case hex, dashes). */
MUST_USE bool uuid_parse(const char *text, struct uuid *ret);
static inline uint8_t uuid_shard(const struct uuid *uuid)
{
    return uuid->bytes[15];
}

#endif
