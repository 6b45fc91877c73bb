#include "sim/world.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024, ORDER_BITS = 20 };

struct world_block {
    struct world_block *next;
    size_t used, size;
    max_align_t data[];
};

static void out_of_memory(void)
{
    fputs("the simulator is out of memory\n", stderr);
    abort();
}

void *world_alloc(struct world *world, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    struct world_block *block = world->blocks;
    if (!block || block->size - block->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        block = calloc(1, sizeof *block + room);
        if (!block)
            out_of_memory();
        block->size = room;
        block->next = world->blocks;
        world->blocks = block;
    }
    void *at = (char *)block->data + block->used;
    block->used += size;
    return at;
}

char *world_text(struct world *world, const char *text)
{
    if (!text)
        return NULL;
    size_t size = strlen(text) + 1;
    return memcpy(world_alloc(world, size), text, size);
}

char *world_format(struct world *world, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return world_text(world, text);
}

/* Which of the timers of one millisecond comes first is the seed's to say. */
static int64_t key_of(struct world *world, int64_t at_ms)
{
    uint64_t order = world->options.scripted ? world->order++ : rng_next(&world->rng);
    return (at_ms << ORDER_BITS) | (int64_t)(order & ((UINT64_C(1) << ORDER_BITS) - 1));
}

void world_at(struct world *world, struct timer *timer, int64_t at_ms, timer_fn *fire)
{
    timer->fire = fire;
    if (heap_set(&world->timers, &timer->place,
                 key_of(world, at_ms < world->now_ms ? world->now_ms : at_ms)))
        out_of_memory();
}

void world_after(struct world *world, struct timer *timer, int64_t delay_ms, timer_fn *fire)
{
    world_at(world, timer, world->now_ms + delay_ms, fire);
}

void world_cancel(struct world *world, struct timer *timer)
{
    heap_remove(&world->timers, &timer->place);
}

bool timer_is_set(const struct timer *timer)
{
    return timer->place.place != 0;
}

int64_t timer_at_ms(const struct timer *timer)
{
    return timer->place.key >> ORDER_BITS;
}

bool world_step(struct world *world)
{
    struct heap_node *top = heap_top(&world->timers);
    if (!top || world->violation.invariant != INVARIANT_COUNT)
        return false;
    world->now_ms = top->key >> ORDER_BITS;
    struct timer *timer = CONTAINER(top, struct timer, place);
    heap_remove(&world->timers, top);
    timer->fire(world, timer);
    return true;
}

int64_t world_between(struct world *world, int64_t least, int64_t most)
{
    if (world->options.scripted || most <= least)
        return least;
    return least + (int64_t)rng_below(&world->rng, (uint64_t)(most - least) + 1);
}

size_t world_choice(struct world *world, size_t count)
{
    return world->options.scripted ? 0 : (size_t)rng_below(&world->rng, count);
}

bool world_chance(struct world *world, unsigned per_mille)
{
    return !world->options.scripted && rng_below(&world->rng, 1000) < per_mille;
}

bool world_fault(struct world *world, enum hit fault)
{
    assert(fault < FAULT_COUNT);
    if (world->calm || !world->odds[fault] || !world_chance(world, world->odds[fault]))
        return false;
    world_hit(world, fault);
    return true;
}

void world_hit(struct world *world, enum hit hit)
{
    world->options.hits[hit]++;
}

bool world_mutated(const struct world *world, enum mutation mutation)
{
    return world->options.mutation == mutation;
}

void world_violate(struct world *world, enum invariant invariant, const char *fmt, ...)
{
    if (world->violation.invariant != INVARIANT_COUNT)
        return;
    world->violation.invariant = invariant;
    world->violation.at_ms = world->now_ms;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(world->violation.text, sizeof world->violation.text, fmt, args);
    va_end(args);
    world_trace(world, "VIOLATED", "%s: %s", invariant_name(invariant), world->violation.text);
}

void world_trace(struct world *world, const char *who, const char *fmt, ...)
{
    if (!world->options.trace)
        return;
    va_list args;
    va_start(args, fmt);
    trace_line(world->options.trace, world->now_ms, who, fmt, args);
    va_end(args);
}

void world_open(struct world *world, const struct world_options *options)
{
    *world = (struct world){ .options = *options };
    world->violation.invariant = INVARIANT_COUNT;
    rng_seed(&world->rng, options->seed);
    handlers_open(world);
    rng_seed(&world->options_rng, ~options->seed);
}

void world_close(struct world *world)
{
    for (size_t i = 0; i < world->node_count; i++)
        node_drop(&world->nodes[i]);
    clients_close(world);
    definitions_done(&world->definitions);
    database_done(&world->database);
    heap_done(&world->timers);
    while (world->blocks) {
        struct world_block *block = world->blocks;
        world->blocks = block->next;
        free(block);
    }
}
