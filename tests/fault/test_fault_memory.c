/* Memory that is out at any one allocation of our own code. Goal: nothing crashes or leaks, no call
 * stays unanswered, no saga stays behind. Method: each_call.h. */
#include "each_call.h"

#include "support/proof.h"

static void test_p8_memory_is_out_at_any_one_allocation(void **state)
{
    (void)state;
    PROVES("P1 P2 P8");
    each_call_fail(PAGE_ALLOCATION, "an allocation fails");
}

static void test_p8_memory_that_is_out_at_the_start_is_said(void **state)
{
    (void)state;
    PROVES("P8");
    each_call_fail_start(PAGE_ALLOCATION, "an allocation fails at the start");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_p8_memory_is_out_at_any_one_allocation, each_call_check),
        cmocka_unit_test_teardown(test_p8_memory_that_is_out_at_the_start_is_said, each_call_check),
    };
    return proof_end(cmocka_run_group_tests(tests, each_call_setup, each_call_teardown) ? 1 : 0);
}
