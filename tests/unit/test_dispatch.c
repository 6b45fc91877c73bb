/* Goal: ready queues are fair, credits are never overdrawn or leaked, leases follow their worker.
 * Method: small scripted scenes over the plain data structures. */
#include "base/mem.h"
#include "dispatch/dispatch.h"
#include "dispatch/key.h"
#include "support/check.h"

#include <stdio.h>

static struct dispatch_session *open_session(struct dispatch *dispatch, const char *worker,
                                             const char *handler)
{
    struct dispatch_subscribe wanted = { handler, 10 };
    struct dispatch_session *session = NULL, *previous = NULL;
    struct err err;
    assert_int_equal(
        dispatch_session_open(dispatch, worker, &wanted, 1, NULL, &session, &previous, &err), 0);
    return session;
}

static void test_ready_takes_definitions_in_turn(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_handler *handler = dispatch_handler(dispatch, "h");
    int first_definition, second_definition;
    struct dispatch_ready a[3] = { 0 }, b[1] = { 0 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(dispatch_ready_put(handler, &first_definition, 0, &a[i]), 0);
    assert_int_equal(dispatch_ready_put(handler, &second_definition, 0, &b[0]), 0);
    assert_null(dispatch_ready_take(dispatch)); /* nobody serves it */
    struct dispatch_session *session = open_session(dispatch, "w/1", "h");
    assert_null(dispatch_ready_take(dispatch)); /* no credit */
    assert_true(dispatch_credit(dispatch, session, "h", 4));
    assert_ptr_equal(dispatch_ready_take(dispatch), &a[0]);
    assert_ptr_equal(dispatch_ready_take(dispatch), &b[0]);
    assert_ptr_equal(dispatch_ready_take(dispatch), &a[1]);
    assert_ptr_equal(dispatch_ready_take(dispatch), &a[2]);
    assert_null(dispatch_ready_take(dispatch));
    assert_int_equal(dispatch_handler_ready(handler), 0);
    (void)dispatch_free(dispatch);
}

static void test_credit_is_absolute(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_handler *handler = dispatch_handler(dispatch, "h");
    struct dispatch_session *session = open_session(dispatch, "w/1", "h");
    assert_false(dispatch_credit(dispatch, session, "other", 1));
    assert_null(dispatch_reserve(handler));
    assert_true(dispatch_credit(dispatch, session, "h", 2));
    assert_true(dispatch_credit(dispatch, session, "h", 2)); /* doubled message: no more */
    assert_true(dispatch_credit(dispatch, session, "h", 1)); /* late message: no less */
    struct dispatch_subscription *reserved = dispatch_reserve(handler);
    assert_non_null(reserved);
    assert_non_null(dispatch_reserve(handler));
    assert_null(dispatch_reserve(handler));
    dispatch_unreserve(reserved);
    assert_non_null(dispatch_reserve(handler));
    assert_null(dispatch_reserve(handler));
    (void)dispatch_free(dispatch);
}

static void test_workers_take_turns_and_pauses_count(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_handler *handler = dispatch_handler(dispatch, "h");
    struct dispatch_session *one = open_session(dispatch, "w/1", "h");
    struct dispatch_session *two = open_session(dispatch, "w/2", "h");
    assert_true(dispatch_credit(dispatch, one, "h", 10));
    assert_true(dispatch_credit(dispatch, two, "h", 10));
    assert_ptr_equal(dispatch_reserve(handler)->session, one);
    assert_ptr_equal(dispatch_reserve(handler)->session, two);
    dispatch_session_block(one, true);
    assert_ptr_equal(dispatch_reserve(handler)->session, two);
    assert_ptr_equal(dispatch_reserve(handler)->session, two);
    dispatch_session_block(one, false);
    dispatch_session_drain(two);
    assert_ptr_equal(dispatch_reserve(handler)->session, one);
    assert_ptr_equal(dispatch_reserve(handler)->session, one);
    (void)dispatch_free(dispatch);
}

static void test_leases_survive_their_stream(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_handler *handler = dispatch_handler(dispatch, "h");
    struct dispatch_session *session = open_session(dispatch, "w/1", "h");
    struct dispatch_lease lease = { 0 };
    assert_int_equal(dispatch_lease_add(dispatch, &lease, "w/1", handler), 0);
    dispatch_session_close(dispatch, session, 5000);
    assert_int_equal(dispatch_lost_at(dispatch), 5000);
    assert_null(dispatch_lost_take(dispatch, 4999));
    session = open_session(dispatch, "w/1", "h"); /* back in time */
    assert_null(dispatch_lost_take(dispatch, 6000));
    assert_ptr_equal(lease.worker->session, session);
    dispatch_session_close(dispatch, session, 9000);
    assert_ptr_equal(dispatch_lost_take(dispatch, 9000), lease.worker);
    assert_ptr_equal(lease.worker->leases, &lease);
    dispatch_lease_remove(dispatch, &lease);
    assert_int_equal(dispatch_lost_at(dispatch), INT64_MAX);
    (void)dispatch_free(dispatch);
}

static void test_a_newer_stream_takes_over(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_handler *handler = dispatch_handler(dispatch, "h");
    struct dispatch_session *older = open_session(dispatch, "w/1", "h");
    struct dispatch_lease lease = { 0 };
    assert_int_equal(dispatch_lease_add(dispatch, &lease, "w/1", handler), 0);
    struct dispatch_subscribe wanted = { "h", 1 };
    struct dispatch_session *newer = NULL, *previous = NULL;
    struct err err;
    assert_int_equal(
        dispatch_session_open(dispatch, "w/1", &wanted, 1, NULL, &newer, &previous, &err), 0);
    assert_ptr_equal(previous, older);
    dispatch_session_close(dispatch, older, 1000);
    assert_int_equal(dispatch_lost_at(dispatch), INT64_MAX); /* its leases are the newer one's */
    assert_ptr_equal(lease.worker->session, newer);
    dispatch_lease_remove(dispatch, &lease);
    (void)dispatch_free(dispatch);
}

/* The key is documented so that anyone can compute it: the expected value comes from
 * printf 'default\0settlement\0S-1\0001\0debit\0ACTION' | sha256sum */
static void test_what_is_served_and_has_room_is_named_with_its_credit(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_handler *full = dispatch_handler(dispatch, "full");
    struct dispatch_session *a = open_session(dispatch, "w/1", "full");
    struct dispatch_session *b = open_session(dispatch, "w/2", "free");
    struct dispatch_session *leaving = open_session(dispatch, "w/3", "leaving");
    dispatch_session_drain(leaving);
    struct dispatch_handler *unserved = dispatch_handler(dispatch, "unserved");
    assert_true(dispatch_credit(dispatch, a, "full", 2));
    assert_true(dispatch_credit(dispatch, b, "free", 7));
    assert_non_null(dispatch_reserve(dispatch_handler(dispatch, "free")));
    int definition;
    struct dispatch_ready ready[2] = { 0 };
    for (int i = 0; i < 2; i++)
        assert_int_equal(dispatch_ready_put(full, &definition, 0, &ready[i]), 0);
    assert_ptr_equal(dispatch_ready_handler(&ready[0]), full);
    assert_false(dispatch_handler_is_served(unserved));
    assert_false(dispatch_handler_is_served(dispatch_handler(dispatch, "leaving")));
    assert_true(dispatch_handler_is_served(full));

    struct dispatch_served served = { 0 };
    assert_int_equal(dispatch_served(dispatch, 2, &served), 0);
    assert_int_equal(served.count, 1);
    assert_string_equal(served.names[0], "free");
    assert_int_equal(served.credit, 6);
    assert_int_equal(dispatch_served(dispatch, 3, &served), 0);
    assert_int_equal(served.count, 2);
    assert_int_equal(served.credit, 8);
    mem_free(served.names);
    (void)dispatch_free(dispatch);
}

static void count_handler(void *ctx, const struct dispatch_handler_view *view)
{
    (void)view;
    ++*(int *)ctx;
}

static int handler_count(const struct dispatch *dispatch)
{
    int count = 0;
    dispatch_view(dispatch, NULL, count_handler, &count);
    return count;
}

static void test_handlers_that_nobody_needs_are_forgotten(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    char name[32];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "made-up-%d", i);
        struct dispatch_session *session = open_session(dispatch, "w/1", name);
        dispatch_forget_unused(dispatch);
        assert_int_equal(handler_count(dispatch), 1); /* it is served */
        dispatch_session_close(dispatch, session, 0);
        dispatch_forget_unused(dispatch);
        assert_int_equal(handler_count(dispatch), 0);
    }
    /* What waits, and what is leased, keeps its handler. */
    struct dispatch_session *waited = open_session(dispatch, "w/1", "waited");
    struct dispatch_session *leased = open_session(dispatch, "w/2", "leased");
    struct dispatch_ready ready = { 0 };
    struct dispatch_lease lease = { 0 };
    assert_int_equal(dispatch_ready_put(dispatch_handler(dispatch, "waited"), &ready, 0, &ready),
                     0);
    assert_int_equal(
        dispatch_lease_add(dispatch, &lease, "w/2", dispatch_handler(dispatch, "leased")), 0);
    dispatch_session_close(dispatch, waited, 0);
    dispatch_session_close(dispatch, leased, 0);
    dispatch_forget_unused(dispatch);
    assert_int_equal(handler_count(dispatch), 2);
    dispatch_ready_remove(&ready);
    dispatch_lease_remove(dispatch, &lease);
    dispatch_session_close(dispatch, open_session(dispatch, "w/3", "other"), 0);
    dispatch_forget_unused(dispatch);
    assert_int_equal(handler_count(dispatch), 0);
    (void)dispatch_free(dispatch);
}

/* The tables themselves allocate, too. */
static void test_no_allocation_that_fails_ends_the_process(void **state)
{
    (void)state;
    bool opened = false;
    uint64_t n = 0;
    while (!opened) {
        struct dispatch *dispatch = dispatch_new();
        struct dispatch_subscribe wanted = { "h", 10 };
        struct dispatch_session *session = NULL, *previous = NULL;
        struct dispatch_handler *handler = NULL;
        struct dispatch_ready ready = { 0 };
        struct err err;
        mem_fail_at(++n, false);
        opened = dispatch_session_open(dispatch, "w/1", &wanted, 1, NULL, &session, &previous,
                                       &err) == 0 &&
                 (handler = dispatch_handler(dispatch, "other")) &&
                 dispatch_ready_put(handler, &ready, 0, &ready) == 0;
        mem_fail_at(0, false);
        assert_true(opened || !dispatch_ready_waits(&ready));
        if (!opened && session)
            dispatch_session_close(dispatch, session, 0);
        (void)dispatch_free(dispatch);
    }
    assert_true(n > 10); /* worker, session, handlers, group, and three tables of two blocks */
}

/* What one answer to a worker without a stream may bring, of all handlers together. */
static void test_a_session_may_be_bounded_beside_its_credits(void **state)
{
    (void)state;
    struct dispatch *dispatch = dispatch_new();
    struct dispatch_subscribe both[] = { { "h", 10 }, { "g", 10 } };
    struct dispatch_session *session = NULL, *previous = NULL;
    struct err err;
    assert_int_equal(
        dispatch_session_open(dispatch, "w/1", both, 2, NULL, &session, &previous, &err), 0);
    dispatch_session_bound(session, 3);
    assert_true(dispatch_credit(dispatch, session, "h", 10));
    assert_true(dispatch_credit(dispatch, session, "g", 10));
    struct dispatch_subscription *reserved = dispatch_reserve(dispatch_handler(dispatch, "h"));
    assert_non_null(reserved);
    assert_non_null(dispatch_reserve(dispatch_handler(dispatch, "g")));
    assert_non_null(dispatch_reserve(dispatch_handler(dispatch, "g")));
    assert_null(dispatch_reserve(dispatch_handler(dispatch, "g")));
    assert_false(dispatch_handler_has_credit(dispatch_handler(dispatch, "h")));
    dispatch_unreserve(reserved);
    assert_non_null(dispatch_reserve(dispatch_handler(dispatch, "g")));
    assert_null(dispatch_reserve(dispatch_handler(dispatch, "h")));
    struct dispatch_session *one = open_session(dispatch, "w/2", "h");
    assert_true(dispatch_session_covers(session, one));
    assert_false(dispatch_session_covers(one, session));
    (void)dispatch_free(dispatch);
}

static void test_idempotency_key_is_the_documented_digest(void **state)
{
    (void)state;
    char key[IDEMPOTENCY_KEY_SIZE], other[IDEMPOTENCY_KEY_SIZE];
    assert_int_equal(
        idempotency_key("default", "settlement", "S-1", 1, "debit", OPERATION_ACTION, 0, key), 0);
    assert_string_equal(key, "69d85fba6bc56e71894b449909cf6a55");
    assert_int_equal(idempotency_key("default", "settlement", "S-1", 1, "debit",
                                     OPERATION_COMPENSATION, 0, other),
                     0);
    assert_string_not_equal(key, other);
    assert_int_equal(
        idempotency_key("default", "settlement", "S-1", 2, "debit", OPERATION_ACTION, 0, other), 0);
    assert_string_not_equal(key, other);
    /* A later generation is another key. */
    assert_int_equal(
        idempotency_key("default", "settlement", "S-1", 1, "debit", OPERATION_ACTION, 2, other), 0);
    assert_string_equal(other, "38d3a8f3b30bf2fe1e0e29b34669e91f");
    assert_int_equal(
        idempotency_key("default", "settlement", "S-1", 1, "debit", OPERATION_ACTION, 1, key), 0);
    assert_string_not_equal(key, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_takes_definitions_in_turn),
        cmocka_unit_test(test_credit_is_absolute),
        cmocka_unit_test(test_workers_take_turns_and_pauses_count),
        cmocka_unit_test(test_leases_survive_their_stream),
        cmocka_unit_test(test_a_newer_stream_takes_over),
        cmocka_unit_test(test_what_is_served_and_has_room_is_named_with_its_credit),
        cmocka_unit_test(test_handlers_that_nobody_needs_are_forgotten),
        cmocka_unit_test(test_no_allocation_that_fails_ends_the_process),
        cmocka_unit_test(test_a_session_may_be_bounded_beside_its_credits),
        cmocka_unit_test(test_idempotency_key_is_the_documented_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
