/* Goal: each word has one spelling, and text that is none of them is refused. Method: every value
 * of every table there and back; values and texts outside. */
#include "core/words.h"
#include "support/check.h"

#define ROUND_TRIP(type, count, name, parse, unnamed)                                              \
    do {                                                                                           \
        for (int value = 0; value < (int)(count); value++) {                                       \
            const char *text = name((type)value);                                                  \
            if (value == (unnamed)) {                                                              \
                assert_null(text);                                                                 \
                continue;                                                                          \
            }                                                                                      \
            assert_non_null(text);                                                                 \
            type back = (type)(count);                                                             \
            assert_true(parse(text, &back));                                                       \
            assert_int_equal(back, value);                                                         \
        }                                                                                          \
        assert_null(name((type)(count)));                                                          \
        assert_null(name((type)-1));                                                               \
        const char *wrong[] = { "", "running", "RUNNING ", "NONE", "COUNT", "DONE\n", "LEASED" };  \
        for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {                                            \
            type untouched = (type)1;                                                              \
            assert_false(parse(wrong[i], &untouched));                                             \
            assert_int_equal(untouched, 1);                                                        \
        }                                                                                          \
    } while (0)

static void test_each_word_there_and_back(void **state)
{
    (void)state;
    ROUND_TRIP(enum saga_state, SAGA_STATE_COUNT, saga_state_name, saga_state_parse, -1);
    ROUND_TRIP(enum operation, OPERATION_COUNT, operation_name, operation_parse, -1);
    ROUND_TRIP(enum outcome, OUTCOME_COUNT, outcome_name, outcome_parse, OUTCOME_NONE);
    ROUND_TRIP(enum entry_kind, ENTRY_KIND_COUNT, entry_kind_name, entry_kind_parse, -1);
    ROUND_TRIP(enum cause, CAUSE_COUNT, cause_name, cause_parse, -1);
    ROUND_TRIP(enum park_reason, PARK_REASON_COUNT, park_reason_name, park_reason_parse, PARK_NONE);
}

static void test_sorts_of_words(void **state)
{
    (void)state;
    assert_string_equal(effect_name(EFFECT_AT_MOST_ONCE), "AT_MOST_ONCE");
    assert_null(effect_name(EFFECT_COUNT));
    for (int outcome = 0; outcome < OUTCOME_COUNT; outcome++) {
        bool unknown = outcome == OUTCOME_UNKNOWN || outcome == OUTCOME_EXPIRED ||
                       outcome == OUTCOME_STREAM_LOST;
        assert_int_equal(outcome_is_unknown((enum outcome)outcome), unknown);
        bool success = outcome == OUTCOME_DONE || outcome == OUTCOME_ALREADY_DONE;
        assert_int_equal(outcome_is_success((enum outcome)outcome), success);
    }
    for (int at = 0; at < SAGA_STATE_COUNT; at++)
        assert_int_equal(saga_state_is_terminal((enum saga_state)at), at >= SAGA_SUCCEEDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_word_there_and_back),
        cmocka_unit_test(test_sorts_of_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
