/* Goal: what becomes of a handler's row follows from what it was, and the time in which it was
 * braked is measured to the millisecond.
 * Method: tables: times against intervals; each change of each kind of row. */
#include "core/handler.h"
#include "support/check.h"

#include <stdio.h>

static void test_time_within_and_outside(void **state)
{
    (void)state;
    struct held_time list[] = { { 100, 200 }, { 200, 210 }, { 500, 900 }, { 2000, INT64_MAX } };
    const struct held_times times = { list, ARRAY_LEN(list) }, over = { list, 3 };
    static const struct {
        int64_t from, to, within;
    } spans[] = {
        { 0, 50, 0 },     { 0, 150, 50 },    { 150, 150, 0 },   { 150, 205, 55 },
        { 200, 500, 10 }, { 0, 1000, 510 },  { 600, 700, 100 }, { 1000, 1999, 0 },
        { 0, 2100, 610 }, { 2050, 2051, 1 }, { 700, 100, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(spans); i++)
        assert_int_equal(held_within(&times, spans[i].from, spans[i].to), spans[i].within);
    assert_int_equal(held_within(NULL, 0, 1000), 0);
    static const struct {
        int64_t from, left, at;
    } ends[] = {
        { 0, 100, 100 },   { 0, 101, 211 },   { 150, 0, 150 },     { 150, 1, 211 },
        { 210, 290, 500 }, { 210, 291, 901 }, { 1000, 999, 1999 }, { 1000, 1000, 2000 },
        { 0, 1490, 2000 }, { 950, 10, 960 },
    };
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        assert_int_equal(held_until(&times, ends[i].from, ends[i].left), ends[i].at);
    assert_int_equal(held_until(&times, 1000, 1001), INT64_MAX);
    assert_int_equal(held_until(&times, 3000, 1), INT64_MAX);
    assert_int_equal(held_until(&over, 1000, 1001), 2001);
    assert_int_equal(held_until(NULL, 5, 6), 11);
    /* The two agree wherever time passes. */
    for (int64_t from = 0; from < 1200; from += 7)
        for (int64_t left = 0; left < 600; left += 13) {
            int64_t at = held_until(&over, from, left);
            assert_int_equal(at - from - held_within(&over, from, at), left);
        }
}

static struct handler_effect effect;

static bool change(struct handler *handler, enum handler_change_kind kind, int64_t rate_milli)
{
    const struct handler_change what = {
        .kind = kind, .actor = "anna", .reason = "why", .rate_milli = rate_milli, .cap = -1
    };
    return handler_apply(handler, &what, &effect);
}

static bool tried(struct handler *handler, bool success)
{
    const struct handler_change what = { .kind = HANDLER_TRIED,
                                         .success = success,
                                         .held_at_ms = handler->held_at_ms };
    return handler_apply(handler, &what, &effect);
}

static void test_a_person_holds_and_releases(void **state)
{
    (void)state;
    struct handler handler;
    handler_init(&handler, "h");
    assert_false(change(&handler, HANDLER_RELEASE, 0));
    assert_true(change(&handler, HANDLER_HOLD, 0));
    assert_int_equal(effect.event, HANDLER_EVENT_HELD);
    assert_int_equal(handler.hold, HOLD_PERSON);
    assert_string_equal(handler.actor, "anna");
    assert_true(handler_is_braked(&handler));
    assert_true(change(&handler, HANDLER_RELEASE, 600000));
    assert_int_equal(effect.event, HANDLER_EVENT_RELEASED);
    assert_int_equal(handler.hold, HOLD_NONE);
    assert_true(handler_is_braked(&handler));               /* until what waited is through */
    assert_true(change(&handler, HANDLER_RELEASE, 900000)); /* faster */
    assert_true(change(&handler, HANDLER_DRAINED, 0));
    assert_int_equal(effect.event, HANDLER_EVENT_DRAINED);
    assert_false(handler_is_braked(&handler));
    assert_false(change(&handler, HANDLER_DRAINED, 0));
    assert_false(change(&handler, HANDLER_RELEASE, 0));
}

static void test_limits_leave_each_other_alone(void **state)
{
    (void)state;
    struct handler handler;
    handler_init(&handler, "h");
    struct handler_change what = { .kind = HANDLER_LIMIT, .rate_milli = 5000, .cap = -1 };
    assert_true(handler_apply(&handler, &what, &effect));
    what = (struct handler_change){ .kind = HANDLER_LIMIT, .rate_milli = -1, .cap = 7 };
    assert_true(handler_apply(&handler, &what, &effect));
    assert_int_equal(handler.rate_milli, 5000);
    assert_int_equal(handler.cap, 7);
    assert_int_equal(handler_breaker(&handler, 20), 20);
    what = (struct handler_change){ .kind = HANDLER_LIMIT,
                                    .rate_milli = 0,
                                    .cap = -1,
                                    .sets_breaker = true,
                                    .breaker_failures = 5,
                                    .breaker_successes = 2,
                                    .breaker_trial_ms = 3000 };
    assert_true(handler_apply(&handler, &what, &effect));
    assert_int_equal(handler.rate_milli, 0);
    assert_int_equal(handler_breaker(&handler, 20), 5);
    what = (struct handler_change){ .kind = HANDLER_LIMIT, .rate_milli = -1, .cap = -1 };
    assert_false(handler_apply(&handler, &what, &effect));
}

static void test_a_breaker_trips_tries_and_closes(void **state)
{
    (void)state;
    struct handler handler;
    handler_init(&handler, "h");
    assert_true(change(&handler, HANDLER_TRIP, 0));
    assert_int_equal(handler.hold, HOLD_BREAKER);
    assert_int_equal(effect.trial_in_ms, BREAKER_TRIAL_MS);
    assert_false(change(&handler, HANDLER_TRIP, 0)); /* another node was first */
    handler.held_at_ms = 1000;
    handler.trial_at_ms = 1000 + BREAKER_TRIAL_MS; /* as the store sets it */
    struct handler_change trial = { .kind = HANDLER_TRIAL, .now_ms = handler.trial_at_ms - 1 };
    assert_false(handler_apply(&handler, &trial, &effect));
    trial.now_ms++;
    assert_true(handler_apply(&handler, &trial, &effect));
    assert_int_equal(effect.trial_in_ms, BREAKER_TRIAL_MS);
    assert_int_equal(effect.event, HANDLER_EVENT_NONE);
    assert_false(tried(&handler, false)); /* as before */
    assert_true(tried(&handler, true));
    assert_true(tried(&handler, true));
    assert_true(tried(&handler, false)); /* from the beginning */
    for (int i = 0; i < BREAKER_SUCCESSES; i++) {
        assert_int_equal(handler.hold, HOLD_BREAKER);
        assert_true(tried(&handler, true));
    }
    assert_int_equal(handler.hold, HOLD_NONE);
    assert_int_equal(effect.event, HANDLER_EVENT_RELEASED);
    assert_string_equal(handler.reason, "3 trials in a row succeeded");
    assert_false(tried(&handler, true));
}

static void test_a_trial_of_an_earlier_hold_says_nothing(void **state)
{
    (void)state;
    struct handler handler;
    handler_init(&handler, "h");
    assert_true(change(&handler, HANDLER_TRIP, 0));
    handler.held_at_ms = 5000;
    const struct handler_change late = { .kind = HANDLER_TRIED,
                                         .success = true,
                                         .held_at_ms = 1000 };
    assert_false(handler_apply(&handler, &late, &effect));
    assert_true(change(&handler, HANDLER_HOLD, 0)); /* a person's hold has no trials */
    const struct handler_change trial = { .kind = HANDLER_TRIAL, .now_ms = INT64_MAX };
    assert_false(handler_apply(&handler, &trial, &effect));
    assert_false(tried(&handler, true));
}

static void test_words(void **state)
{
    (void)state;
    enum handler_hold hold = HOLD_NONE;
    for (int i = HOLD_PERSON; i < HOLD_COUNT; i++) {
        assert_true(handler_hold_parse(handler_hold_name((enum handler_hold)i), &hold));
        assert_int_equal(hold, i);
    }
    assert_null(handler_hold_name(HOLD_NONE));
    assert_false(handler_hold_parse("person", &hold));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_within_and_outside),
        cmocka_unit_test(test_a_person_holds_and_releases),
        cmocka_unit_test(test_limits_leave_each_other_alone),
        cmocka_unit_test(test_a_breaker_trips_tries_and_closes),
        cmocka_unit_test(test_a_trial_of_an_earlier_hold_says_nothing),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
