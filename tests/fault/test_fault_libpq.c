/* A libpq whose n-th call fails, in the ways that its manual allows. Goal and method: each_call.h.
 */
#include "each_call.h"

#include "support/proof.h"

static void test_p2_p8_libpq_fails_at_any_one_call(void **state)
{
    (void)state;
    PROVES("P1 P2 P8");
    each_call_fail_by_name();
    if (test_is_full_size())
        each_call_fail(PAGE_LIBPQ, "a call of libpq fails");
}

static void test_p8_libpq_that_fails_at_the_start(void **state)
{
    (void)state;
    PROVES("P8");
    each_call_fail_start(PAGE_LIBPQ, "a call of libpq fails at the start");
    each_call_fail_start_by_name();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_p2_p8_libpq_fails_at_any_one_call, each_call_check),
        cmocka_unit_test_teardown(test_p8_libpq_that_fails_at_the_start, each_call_check),
    };
    int failed = cmocka_run_group_tests(tests, each_call_setup, each_call_teardown) ? 1 : 0;
    each_call_count_by_name();
    return proof_end(failed);
}
