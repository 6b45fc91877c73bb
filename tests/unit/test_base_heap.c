/* Goal: the smallest key is always on top, nodes know their place. Method: seeded random inserts,
 * moves and removals against a plain search. */
#include "base/heap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"

enum { NODES = 200, EVENTS = 20000 };

static void test_top_is_the_smallest(void **state)
{
    (void)state;
    struct heap_node nodes[NODES] = { 0 };
    struct heap heap = { 0 };
    struct rng rng;
    rng_seed(&rng, 7);
    assert_null(heap_top(&heap));
    for (int i = 0; i < EVENTS; i++) {
        struct heap_node *node = &nodes[rng_below(&rng, NODES)];
        if (rng_below(&rng, 3))
            assert_int_equal(heap_set(&heap, node, (int64_t)rng_below(&rng, 1000) - 500), 0);
        else
            heap_remove(&heap, node); /* in or not */
        size_t in = 0;
        int64_t smallest = INT64_MAX;
        for (size_t at = 0; at < NODES; at++) {
            if (!nodes[at].place)
                continue;
            in++;
            assert_ptr_equal(heap.nodes[nodes[at].place - 1], &nodes[at]);
            if (nodes[at].key < smallest)
                smallest = nodes[at].key;
        }
        assert_int_equal(heap.count, in);
        if (in)
            assert_int_equal(heap_top(&heap)->key, smallest);
        else
            assert_null(heap_top(&heap));
    }
    heap_done(&heap);
}

static void test_comes_out_sorted(void **state)
{
    (void)state;
    struct heap_node nodes[NODES] = { 0 };
    struct heap heap = { 0 };
    struct rng rng;
    rng_seed(&rng, 8);
    for (size_t i = 0; i < NODES; i++)
        assert_int_equal(heap_set(&heap, &nodes[i], (int64_t)rng_next(&rng)), 0);
    int64_t before = INT64_MIN;
    for (size_t i = 0; i < NODES; i++) {
        struct heap_node *top = heap_top(&heap);
        assert_true(top->key >= before);
        before = top->key;
        heap_remove(&heap, top);
    }
    assert_null(heap_top(&heap));
    heap_done(&heap);
}

static void test_without_memory_it_stays_as_it_was(void **state)
{
    (void)state;
    struct heap_node nodes[5] = { 0 };
    struct heap heap = { 0 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(heap_set(&heap, &nodes[i], 10 - i), 0);
    mem_fail_at(1, false);
    assert_int_equal(heap_set(&heap, &nodes[4], 0), -1);
    mem_fail_at(0, false);
    assert_int_equal(heap.count, 4);
    assert_int_equal(nodes[4].place, 0);
    assert_int_equal(heap_top(&heap)->key, 7);
    heap_done(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_is_the_smallest),
        cmocka_unit_test(test_comes_out_sorted),
        cmocka_unit_test(test_without_memory_it_stays_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
