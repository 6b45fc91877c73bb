/* Memory of one request: a few blocks, a cap, and no free of single pieces. protobuf-c unpacks into
 * it, so that a small message which would become a large one ends in a limit, not in a full
 * machine. One owner at a time. */
#ifndef WIRE_ARENA_H
#define WIRE_ARENA_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

enum { ARENA_BYTES_MAX = 16 * 1024 * 1024 };

struct arena_block;

struct arena {
    struct arena_block *blocks;
    uint8_t *next;
    size_t left;        /* of the newest block */
    size_t used, limit; /* bytes handed out; 0 as limit: ARENA_BYTES_MAX */
    bool oom;           /* an allocation was refused: by the cap or by the machine */
};

/* An all-zero arena is ready for use. Memory is zeroed and aligned for any type; NULL when the cap
 * is reached or memory is out (`oom` then says so). */
MUST_USE void *arena_alloc(struct arena *arena, size_t size);
MUST_USE void *arena_array(struct arena *arena, size_t count, size_t size);
MUST_USE char *arena_strdup(struct arena *arena, const char *text);
/* For protobuf-c; borrowed by the caller for as long as the arena lives and stays where it is. */
ProtobufCAllocator arena_allocator(struct arena *arena);
void arena_done(struct arena *arena);

#endif
