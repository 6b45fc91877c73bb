/* A binary min-heap over nodes that live in the caller's own structs. One owner thread. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include "base/cleanup.h"

#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t key;  /* smallest first; change it only with heap_set */
    size_t place; /* 1-based position; 0: not in a heap */
};

struct heap {
    struct heap_node **nodes;
    size_t count, capacity;
};

/* Inserts, or moves the node to its new key. 0, or -1 when memory is out (the heap is as it was).
 */
MUST_USE int heap_set(struct heap *heap, struct heap_node *node, int64_t key);
/* Takes the node out; fine if it is not in. */
void heap_remove(struct heap *heap, struct heap_node *node);
static inline struct heap_node *heap_top(const struct heap *heap)
{
    return heap->count ? heap->nodes[0] : NULL;
}
void heap_done(struct heap *heap); /* frees the array, not the nodes */

#endif
