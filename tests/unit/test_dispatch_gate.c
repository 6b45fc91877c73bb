/* Goal: a handler's gate lets through what it says and no more: nothing while it is held but what
 * is allowed as a trial, a rate by the clock alone, a cap by what is leased or under way; and who
 * waits longest goes first, whenever it came. Method: small scenes with the time given; a rate is
 * counted over a simulated minute. */
#include "base/mem.h"
#include "dispatch/dispatch.h"
#include "support/check.h"

struct scene {
    struct dispatch *dispatch;
    struct dispatch_handler *handler;
    struct dispatch_session *session;
};

static void open_scene(struct scene *scene, uint64_t credit)
{
    struct dispatch_subscribe wanted = { "h", 10 };
    struct dispatch_session *previous = NULL;
    struct err err;
    scene->dispatch = dispatch_new();
    scene->handler = dispatch_handler(scene->dispatch, "h");
    ASSERT_OK(dispatch_session_open(scene->dispatch, "w/1", &wanted, 1, NULL, &scene->session,
                                    &previous, &err),
              &err);
    assert_true(dispatch_credit(scene->dispatch, scene->session, "h", credit));
}

static void put(struct scene *scene, struct dispatch_ready *ready, int64_t since_ms)
{
    assert_int_equal(dispatch_ready_put(scene->handler, scene, since_ms, ready), 0);
}

static void test_the_oldest_goes_first_whenever_it_came(void **state)
{
    (void)state;
    struct scene scene;
    struct dispatch_ready ready[300] = { 0 };
    open_scene(&scene, 1000);
    for (size_t i = 0; i < ARRAY_LEN(ready); i++)
        put(&scene, &ready[i], (int64_t)(i * 7919 % 100)); /* three of each moment */
    for (size_t i = 0; i < 50; i++)                        /* some of them leave */
        dispatch_ready_remove(&ready[i * 6]);
    const struct dispatch_ready *last = NULL;
    size_t taken = 0;
    for (struct dispatch_ready *at; (at = dispatch_ready_take(scene.dispatch)); taken++) {
        if (last) {
            size_t a = (size_t)(last - ready), b = (size_t)(at - ready);
            assert_true(a * 7919 % 100 < b * 7919 % 100 ||
                        (a * 7919 % 100 == b * 7919 % 100 && a < b));
        }
        last = at;
    }
    assert_int_equal(taken, ARRAY_LEN(ready) - 50);
    (void)dispatch_free(scene.dispatch);
}

static void test_held_lets_a_trial_through_and_nothing_else(void **state)
{
    (void)state;
    struct scene scene;
    struct dispatch_ready ready[3] = { 0 };
    open_scene(&scene, 10);
    for (int i = 0; i < 3; i++)
        put(&scene, &ready[i], i);
    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ .held = true }, 0);
    assert_null(dispatch_ready_take(scene.dispatch));
    assert_null(dispatch_reserve(scene.handler));
    assert_false(dispatch_handler_has_credit(scene.handler));
    assert_true(dispatch_handler_could(scene.handler));
    struct dispatch_served served = { 0 };
    assert_int_equal(dispatch_served(scene.dispatch, 1000, &served), 0);
    assert_int_equal(served.count, 0); /* no more of what waits outside */

    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ .held = true, .on_trial = true }, 0);
    assert_null(dispatch_ready_take(scene.dispatch));
    dispatch_gate_try(scene.handler);
    assert_ptr_equal(dispatch_ready_take(scene.dispatch), &ready[0]);
    struct dispatch_subscription *trial = dispatch_reserve(scene.handler);
    assert_non_null(trial);
    assert_null(dispatch_reserve(scene.handler));
    dispatch_unreserve(trial); /* it never left: it may be tried again */
    assert_non_null(dispatch_reserve(scene.handler));
    assert_null(dispatch_reserve(scene.handler));
    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ .held = true }, 0);
    dispatch_unreserve(trial); /* a person holds it now */
    assert_null(dispatch_reserve(scene.handler));

    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ 0 }, 0);
    assert_ptr_equal(dispatch_ready_take(scene.dispatch), &ready[1]);
    assert_ptr_equal(dispatch_ready_take(scene.dispatch), &ready[2]);
    (void)dispatch_free(scene.dispatch);
}

/* One that nothing waits for here may take up what waits outside, to have something to try. */
static void test_on_trial_it_asks_for_work_once_it_has_none(void **state)
{
    (void)state;
    struct scene scene;
    struct dispatch_ready ready = { 0 };
    struct dispatch_served served = { 0 };
    open_scene(&scene, 10);
    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ .held = true, .on_trial = true }, 0);
    assert_int_equal(dispatch_served(scene.dispatch, 1000, &served), 0);
    assert_int_equal(served.count, 1);
    put(&scene, &ready, 1);
    assert_int_equal(dispatch_served(scene.dispatch, 1000, &served), 0);
    assert_int_equal(served.count, 0);
    mem_free(served.names);
    (void)dispatch_free(scene.dispatch);
}

static int64_t count_for(struct scene *scene, int64_t from_ms, int64_t to_ms, int64_t step_ms)
{
    int64_t count = 0;
    for (int64_t at = from_ms; at <= to_ms; at += step_ms) {
        dispatch_gates_turn(scene->dispatch, at);
        while (dispatch_reserve(scene->handler))
            count++;
    }
    return count;
}

static void test_a_rate_is_kept_by_the_clock(void **state)
{
    (void)state;
    static const int64_t rates[] = { 100, 1000, 2500, 60000, 600000, 12345678 };
    static const int64_t turns[] = { 1, 7, 99 };
    for (size_t i = 0; i < ARRAY_LEN(rates); i++)
        for (size_t j = 0; j < ARRAY_LEN(turns); j++) {
            struct scene scene;
            open_scene(&scene, 100000000);
            const struct dispatch_gate gate = { .rate_milli = rates[i], .in_order = true };
            dispatch_gate_set(scene.handler, &gate, 5000);
            int64_t count = count_for(&scene, 5000, 65000, turns[j]);
            int64_t exact = rates[i] * 60 / 1000;
            assert_in_range(count, exact - exact / 50 - 1, exact + 1);
            (void)dispatch_free(scene.dispatch);
        }
}

static void test_a_pause_brings_no_flood(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, 100000000);
    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ .rate_milli = 600000 }, 0);
    (void)count_for(&scene, 0, 1000, 10);
    assert_in_range(count_for(&scene, 3600 * 1000, 3600 * 1000, 1), 1, 61); /* 100 ms of it */
    (void)dispatch_free(scene.dispatch);
}

static void test_a_rate_says_when_it_lets_the_next_one_through(void **state)
{
    (void)state;
    struct scene scene;
    struct dispatch_ready ready[2] = { 0 };
    open_scene(&scene, 10);
    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ .rate_milli = 2000 }, 1000);
    assert_int_equal(dispatch_gates_due_at(scene.dispatch), INT64_MAX); /* nothing waits */
    put(&scene, &ready[0], 0);
    put(&scene, &ready[1], 0);
    assert_ptr_equal(dispatch_ready_take(scene.dispatch), &ready[0]);
    struct dispatch_subscription *reserved = dispatch_reserve(scene.handler);
    assert_non_null(reserved);
    assert_null(dispatch_ready_take(scene.dispatch));
    assert_int_equal(dispatch_gates_due_at(scene.dispatch), 1500);
    dispatch_gates_turn(scene.dispatch, 1499);
    assert_null(dispatch_ready_take(scene.dispatch));
    dispatch_gates_turn(scene.dispatch, 1500);
    assert_ptr_equal(dispatch_ready_take(scene.dispatch), &ready[1]);
    dispatch_unreserve(reserved); /* what never left has used nothing up */
    assert_non_null(dispatch_reserve(scene.handler));
    assert_non_null(dispatch_reserve(scene.handler));
    assert_null(dispatch_reserve(scene.handler));
    (void)dispatch_free(scene.dispatch);
}

static void test_a_cap_counts_leases_and_what_is_under_way(void **state)
{
    (void)state;
    struct scene scene;
    struct dispatch_lease leases[2] = { 0 };
    struct dispatch_ready ready = { 0 };
    open_scene(&scene, 10);
    dispatch_gate_set(scene.handler, &(struct dispatch_gate){ .cap = 3 }, 0);
    for (int i = 0; i < 2; i++) {
        assert_non_null(dispatch_reserve(scene.handler));
        assert_int_equal(dispatch_lease_add(scene.dispatch, &leases[i], "w/1", scene.handler), 0);
    }
    dispatch_gates_turn(scene.dispatch, 1); /* both are leases now */
    assert_non_null(dispatch_reserve(scene.handler));
    assert_null(dispatch_reserve(scene.handler));
    put(&scene, &ready, 0);
    assert_null(dispatch_ready_take(scene.dispatch));
    dispatch_lease_remove(scene.dispatch, &leases[0]);
    dispatch_gates_turn(scene.dispatch, 2);
    assert_ptr_equal(dispatch_ready_take(scene.dispatch), &ready);
    assert_non_null(dispatch_reserve(scene.handler));
    dispatch_lease_remove(scene.dispatch, &leases[1]);
    (void)dispatch_free(scene.dispatch);
}

static void test_other_handlers_are_not_held_up(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_subscribe both[] = { { "held", 10 }, { "free", 10 } };
    struct dispatch_session *session = NULL, *previous = NULL;
    struct dispatch_ready a = { 0 }, b = { 0 };
    struct err err;
    ASSERT_OK(dispatch_session_open(dispatch, "w/1", both, 2, NULL, &session, &previous, &err),
              &err);
    assert_true(dispatch_credit(dispatch, session, "held", 10));
    assert_true(dispatch_credit(dispatch, session, "free", 10));
    struct dispatch_handler *held = dispatch_handler(dispatch, "held");
    assert_int_equal(dispatch_ready_put(held, &a, 0, &a), 0);
    assert_int_equal(dispatch_ready_put(dispatch_handler(dispatch, "free"), &a, 5, &b), 0);
    dispatch_gate_set(held, &(struct dispatch_gate){ .held = true }, 0);
    for (int i = 0; i < 3; i++)
        dispatch_gates_turn(dispatch, i);
    assert_ptr_equal(dispatch_ready_take(dispatch), &b);
    assert_null(dispatch_ready_take(dispatch));
    dispatch_session_close(dispatch, session, 0);
    dispatch_ready_remove(&a);
    dispatch_forget_unused(dispatch); /* a gate that is shut is kept */
    assert_true(dispatch_gate(dispatch_handler(dispatch, "held"))->held);
    (void)dispatch_free(dispatch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_oldest_goes_first_whenever_it_came),
        cmocka_unit_test(test_held_lets_a_trial_through_and_nothing_else),
        cmocka_unit_test(test_on_trial_it_asks_for_work_once_it_has_none),
        cmocka_unit_test(test_a_rate_is_kept_by_the_clock),
        cmocka_unit_test(test_a_pause_brings_no_flood),
        cmocka_unit_test(test_a_rate_says_when_it_lets_the_next_one_through),
        cmocka_unit_test(test_a_cap_counts_leases_and_what_is_under_way),
        cmocka_unit_test(test_other_handlers_are_not_held_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
