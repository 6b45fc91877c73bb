#include "wire/arena.h"

#include "base/mem.h"

#include <string.h>

struct arena_block {
    struct arena_block *next;
    max_align_t data[];
};

enum { BLOCK_BYTES = 4096 - 64, ALIGN = _Alignof(max_align_t) };

/* Whatever does not fit into a common block gets one of its own, and the common one goes on. */
static void *block_new(struct arena *arena, size_t size)
{
    struct arena_block *block = mem_calloc(1, sizeof *block + size);
    if (!block)
        return NULL;
    block->next = arena->blocks;
    arena->blocks = block;
    return block->data;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size_t limit = arena->limit ? arena->limit : ARENA_BYTES_MAX;
    if (size > limit || limit - size < arena->used) {
        arena->oom = true;
        return NULL;
    }
    size_t rounded = size ? (size + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    if (rounded > arena->left) {
        size_t want = rounded > BLOCK_BYTES / 4 ? rounded : BLOCK_BYTES;
        uint8_t *block = block_new(arena, want);
        if (!block) {
            arena->oom = true;
            return NULL;
        }
        arena->used += rounded;
        if (want == rounded)
            return block;
        arena->next = block + rounded;
        arena->left = want - rounded;
        return block;
    }
    uint8_t *place = arena->next;
    arena->next += rounded;
    arena->left -= rounded;
    arena->used += rounded;
    return place;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        arena->oom = true;
        return NULL;
    }
    return arena_alloc(arena, total);
}

char *arena_strdup(struct arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = arena_alloc(arena, size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

static void *allocator_alloc(void *ctx, size_t size)
{
    return arena_alloc(ctx, size);
}

static void allocator_free(void *ctx, void *p)
{
    (void)ctx; /* the arena frees everything at its end */
    (void)p;
}

ProtobufCAllocator arena_allocator(struct arena *arena)
{
    return (ProtobufCAllocator){ allocator_alloc, allocator_free, arena };
}

void arena_done(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *block = arena->blocks;
        arena->blocks = block->next;
        mem_free(block);
    }
    arena->next = NULL;
    arena->left = arena->used = 0;
}
