/* Goal: back-off is exponential with full jitter and a cap, never overflows, and a budget ends by
 * time or count. Method: exact bounds, swept tries, extremes, and the spread of seeded draws. */
#include "core/retry.h"
#include "support/check.h"

static void test_bounds_double_up_to_the_cap(void **state)
{
    (void)state;
    struct retry retry = { .for_ms = 1, .initial_ms = 1000, .cap_ms = 60000 };
    static const int64_t expected[] = { 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000 };
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        assert_int_equal(retry_delay_max_ms(&retry, (int32_t)i + 1), expected[i]);
    assert_int_equal(retry_delay_max_ms(&retry, INT32_MAX), 60000);
    retry.initial_ms = 60000;
    assert_int_equal(retry_delay_max_ms(&retry, 1), 60000);
    retry = (struct retry){ .initial_ms = 1, .cap_ms = INT64_MAX - 1 };
    int64_t before = 0;
    for (int32_t try_ = 1; try_ < 200; try_++) { /* the sanitizer would see an overflow */
        int64_t bound = retry_delay_max_ms(&retry, try_);
        assert_true(bound > before || bound == INT64_MAX - 1);
        before = bound;
    }
    assert_int_equal(before, INT64_MAX - 1);
}

static void test_jitter_is_full(void **state)
{
    (void)state;
    enum { DRAWS = 20000, BUCKETS = 10 };
    struct retry retry = { .initial_ms = 1000, .cap_ms = 60000 };
    struct rng rng;
    rng_seed(&rng, 42);
    int buckets[BUCKETS] = { 0 };
    for (int i = 0; i < DRAWS; i++) {
        int64_t delay = retry_delay_ms(&retry, 3, &rng);
        assert_true(delay >= 0 && delay <= 4000);
        buckets[delay * BUCKETS / 4001]++;
    }
    for (int i = 0; i < BUCKETS; i++) /* each a tenth, within five standard deviations */
        assert_in_range(buckets[i], DRAWS / BUCKETS - 212, DRAWS / BUCKETS + 212);
    retry = (struct retry){ .initial_ms = 1, .cap_ms = 1 };
    bool seen[2] = { false };
    for (int i = 0; i < 100; i++)
        seen[retry_delay_ms(&retry, 9, &rng)] = true;
    assert_true(seen[0] && seen[1]); /* both ends are drawn */
}

static void test_budget(void **state)
{
    (void)state;
    struct retry retry = { .for_ms = 1000, .initial_ms = 1, .cap_ms = 1 };
    assert_int_equal(retry_until_ms(&retry, 500), 1500);
    static const struct {
        uint32_t max_attempts;
        int32_t tries;
        int64_t next_ms;
        bool spent;
    } cases[] = {
        { 0, 0, 99999, false }, /* nothing ran: no budget has begun */
        { 0, 1, 1499, false },  { 0, 1, 1500, true },   { 0, 1000000, 1499, false },
        { 1, 1, 500, true },    { 3, 2, 1499, false },  { 3, 3, 500, true },
        { 3, 2, 1500, true },   { 3, 0, 99999, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        retry.max_attempts = cases[i].max_attempts;
        assert_int_equal(retry_is_spent(&retry, cases[i].tries, 500, cases[i].next_ms),
                         cases[i].spent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_double_up_to_the_cap),
        cmocka_unit_test(test_jitter_is_full),
        cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
