#include "base/heap.h"

#include "base/mem.h"

static void put(struct heap *heap, size_t index, struct heap_node *node)
{
    heap->nodes[index] = node;
    node->place = index + 1;
}

static void sift_up(struct heap *heap, size_t index)
{
    struct heap_node *node = heap->nodes[index];
    while (index > 0 && heap->nodes[(index - 1) / 2]->key > node->key) {
        put(heap, index, heap->nodes[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put(heap, index, node);
}

static void sift_down(struct heap *heap, size_t index)
{
    struct heap_node *node = heap->nodes[index];
    for (;;) {
        size_t child = index * 2 + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->nodes[child + 1]->key < heap->nodes[child]->key)
            child++;
        if (heap->nodes[child]->key >= node->key)
            break;
        put(heap, index, heap->nodes[child]);
        index = child;
    }
    put(heap, index, node);
}

int heap_set(struct heap *heap, struct heap_node *node, int64_t key)
{
    if (!node->place) {
        if (mem_grow((void **)&heap->nodes, &heap->capacity, heap->count, sizeof(void *)))
            return -1;
        node->key = key;
        put(heap, heap->count++, node);
        sift_up(heap, node->place - 1);
        return 0;
    }
    int64_t before = node->key;
    node->key = key;
    if (key < before)
        sift_up(heap, node->place - 1);
    else
        sift_down(heap, node->place - 1);
    return 0;
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    if (!node->place)
        return;
    size_t index = node->place - 1;
    struct heap_node *last = heap->nodes[--heap->count];
    node->place = 0;
    if (last == node)
        return;
    put(heap, index, last);
    sift_up(heap, index);
    sift_down(heap, last->place - 1);
}

void heap_done(struct heap *heap)
{
    mem_free(heap->nodes);
    *heap = (struct heap){ 0 };
}
