/* Goal: the audit of the fulfilments passes for a run that went as it should, and names each thing
 * that did not. Method: a faultless run is built from the plan, then one fact is changed at a time;
 * the input of each saga says what the plan says, and orders that no plan makes are refused. */
#include "support/check.h"

#include "fulfilment.h"
#include "message.h"
#include "order_books.h"

#include <stdio.h>

enum {
    COUNT = 500,
    NORMAL = 1,
    WINDOW = 5,
    REFUSED = 7,
    LATE = 11,
    RECALLED = 12,
    SILENT = 19,
    WITHDRAWN = 90,
    FOREIGN = 350
};

#define STATE(name) SAGA__V1__SAGA_STATE__SAGA_STATE_##name

static void set_fulfilled(struct order_record *record, const struct fulfilment_plan *plan)
{
    record->saga.state = STATE(SUCCEEDED);
    record->state = plan->express ? ORDER_CONFIRMED : ORDER_HANDED_OVER;
    record->confirmed = record->waybills_made = 1;
    record->picked = record->handed_over = plan->express ? 0 : 1;
    record->parcels = plan->express ? 0 : plan->parcels;
    record->has_waybill = !plan->express;
    record->cached = true;
}

static void set_fulfilled_number(struct order_books *books, int number)
{
    struct fulfilment_plan plan = fulfilment_plan(number, COUNT);
    books->records[number] = (struct order_record){ .saga.sagas = 1 };
    set_fulfilled(&books->records[number], &plan);
}

/* Waybills made, and goods picked, that were taken back. */
static void set_cancelled(struct order_record *record, int64_t waybills, int64_t picked)
{
    *record = (struct order_record){ .saga = { .sagas = 1, .state = STATE(COMPENSATED) } };
    record->state = ORDER_CANCELLED;
    record->confirmed = record->cancelled = 1;
    record->waybills_made = record->waybills_cancelled = waybills;
    record->picked = record->put_back = picked;
}

static void set_parked(struct order_record *record, Saga__V1__ParkReason reason, int64_t waybills)
{
    *record = (struct order_record){ .saga = { .sagas = 1, .state = STATE(PARKED) } };
    record->saga.phase = STATE(RUNNING);
    record->saga.park_reason = reason;
    (void)snprintf(record->saga.park_step, sizeof record->saga.park_step, "create_waybill");
    record->state = ORDER_CONFIRMED;
    record->confirmed = 1;
    record->waybills_made = waybills;
}

static void set_as_planned(struct order_record *record, const struct fulfilment_plan *plan)
{
    record->saga.sagas = 1;
    set_fulfilled(record, plan);
    switch ((int)plan->logistics) {
    case FULFILMENT_LOGISTICS(REFUSE):
        set_cancelled(record, 0, 1);
        break;
    case FULFILMENT_LOGISTICS(GO_SILENT):
        set_cancelled(record, 1, 1);
        break;
    case FULFILMENT_LOGISTICS(EXISTS_ELSEWHERE):
        set_parked(record, SAGA__V1__PARK_REASON__PARK_REASON_FOREIGN_EFFECT, 0);
        break;
    case FULFILMENT_LOGISTICS(TAKE_EFFECT_THEN_TIME_OUT):
        if (plan->express)
            set_parked(record, SAGA__V1__PARK_REASON__PARK_REASON_IDEMPOTENCY_WINDOW_OVER, 1);
        break;
    default:
        break;
    }
    if (plan->recalled)
        set_cancelled(record, 1, 1);
    if (plan->withdrawn)
        *record = (struct order_record){ .saga = { .sagas = 1, .state = STATE(COMPENSATED) },
                                         .state = ORDER_WITHDRAWN };
}

static struct order_books books_as_planned(void)
{
    struct err err;
    struct order_books books;
    ASSERT_OK(order_books_create(COUNT, &books, &err), &err);
    for (int i = 1; i <= COUNT; i++) {
        struct fulfilment_plan plan = fulfilment_plan(i, COUNT);
        set_as_planned(&books.records[i], &plan);
    }
    return books;
}

static void assert_fault(const struct order_books *books, int faults, const char *part)
{
    struct order_audit audit;
    order_books_audit(books, &audit);
    if (!strstr(buf_cstr(&audit.faults.text), part))
        fail_msg("\"%s\" is not in \"%s\"", part, buf_cstr(&audit.faults.text));
    assert_int_equal(audit.faults.count, faults);
    order_audit_done(&audit);
}

static void test_a_run_as_planned_agrees(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    struct order_audit audit;
    order_books_audit(&books, &audit);
    assert_string_equal(buf_cstr(&audit.faults.text), "");
    assert_int_equal(audit.faults.count, 0);
    assert_int_equal(audit.parked_window, 1);
    assert_int_equal(audit.parked_foreign, 1);
    assert_int_equal(audit.parked_late + audit.left_out + audit.doubled + audit.lost, 0);
    assert_true(audit.cancelled >= 25);
    assert_int_equal(audit.fulfilled + audit.cancelled + 2, COUNT);
}

static void test_what_a_person_settled_is_fulfilled_and_no_fault(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    set_fulfilled_number(&books, WINDOW);
    assert_fault(&books, 0, "");
}

static void test_an_express_order_whose_worker_died_may_wait_for_a_person(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    for (int64_t waybills = 0; waybills <= 1; waybills++) {
        set_parked(&books.records[15], SAGA__V1__PARK_REASON__PARK_REASON_IDEMPOTENCY_WINDOW_OVER,
                   waybills);
        assert_fault(&books, 0, "");
    }
    set_parked(&books.records[NORMAL], SAGA__V1__PARK_REASON__PARK_REASON_IDEMPOTENCY_WINDOW_OVER,
               1);
    assert_fault(&books, 1, "ord-000001 parked, but not for what the plan allows");
}

static void test_a_park_for_another_reason_is_found(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    struct saga_seen *saga = &books.records[FOREIGN].saga;
    saga->park_reason = SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN;
    assert_fault(&books, 1, "ord-000350 parked, but not for what the plan allows");
    saga->park_reason = SAGA__V1__PARK_REASON__PARK_REASON_FOREIGN_EFFECT;
    saga->phase = STATE(COMPENSATING);
    assert_fault(&books, 1, "parked, but not for");
    saga->phase = STATE(RUNNING);
    saga->park_step[0] = '\0';
    assert_fault(&books, 1, "parked, but not for");
    saga->park_reason = SAGA__V1__PARK_REASON__PARK_REASON_LATE_EFFECT;
    assert_fault(&books, 0, "");
}

static void test_every_double_is_found(void **state)
{
    (void)state;
    for (int what = 0; what < 8; what++) {
        CLEANUP(order_books_done) struct order_books books = books_as_planned();
        struct order_record *record =
            &books.records[what == 1 || what == 5 || what == 6 ? SILENT : NORMAL];
        int64_t *facts[] = { &record->confirmed, &record->cancelled, &record->waybills_made,
                             &record->picked, &record->handed_over };
        if (what == 5) /* a second waybill, and both cancelled */
            record->waybills_made = record->waybills_cancelled = 2;
        else if (what == 6) /* picked twice, and both put back */
            record->picked = record->put_back = 2;
        else if (what == 7)
            record->saga.sagas = 2;
        else
            *facts[what] = 2;
        struct order_audit audit;
        order_books_audit(&books, &audit);
        assert_int_equal(audit.doubled, 1);
        assert_true(audit.faults.count > 0);
        order_audit_done(&audit);
    }
}

static void test_every_lost_one_is_found(void **state)
{
    (void)state;
    static const Saga__V1__SagaState states[] = { STATE(RUNNING), STATE(COMPENSATING),
                                                  STATE(ABANDONED) };
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    struct saga_seen *saga = &books.records[WITHDRAWN].saga;
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        saga->state = states[i];
        assert_fault(&books, 1, "ord-000090 lost: its saga is neither at its end nor parked");
    }
    saga->sagas = 0;
    assert_fault(&books, 1, "ord-000090 lost: there is no saga for it");
}

static void test_a_waybill_that_is_missing_or_left_is_found(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    books.records[LATE].waybills_made = 0;
    assert_fault(&books, 1, "ord-000011 fulfilled: logistics has 0 waybills for it");
    books.records[LATE].waybills_made = 1;
    books.records[SILENT].waybills_cancelled = 0;
    assert_fault(&books, 1, "ord-000019 cancelled: logistics has 1 waybills for it");
    books.records[SILENT].waybills_cancelled = 1;
    books.records[FOREIGN].waybills_made = 1;
    assert_fault(&books, 1, "ord-000350 parked: logistics has 1 waybills for it");
}

static void test_an_order_row_that_is_off_is_found(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    books.records[NORMAL].state = ORDER_PENDING;
    books.records[NORMAL].confirmed = 0;
    assert_fault(&books, 1, "ord-000001 fulfilled: the order is PENDING, 0 times confirmed");
    set_fulfilled_number(&books, NORMAL);
    books.records[REFUSED].cancelled = 0;
    assert_fault(&books, 1, "ord-000007 cancelled: the order is CANCELLED");
    books.records[REFUSED].cancelled = 1;
    books.records[WITHDRAWN].state = ORDER_CANCELLED;
    assert_fault(&books, 1, "expected WITHDRAWN");
    books.records[WITHDRAWN].state = ORDER_WITHDRAWN;
    books.records[NORMAL].handed_over = 0;
    assert_fault(&books, 1, "ord-000001 fulfilled: the order is HANDED_OVER, 1 times confirmed");
    books.records[NORMAL].handed_over = 1;
    books.records[NORMAL].parcels++;
    assert_fault(&books, 1, "ord-000001 handed over: 3 parcels, 2 were ordered");
    books.records[NORMAL].parcels--;
    books.records[NORMAL].has_waybill = false;
    assert_fault(&books, 1, "ord-000001 handed over: 2 parcels without a waybill, 2 were ordered");
    books.records[NORMAL].has_waybill = true;
    books.strangers = 1;
    assert_fault(&books, 1, "that nobody started");
}

static void test_goods_that_are_off_are_found(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    struct order_record *refused = &books.records[REFUSED], *foreign = &books.records[FOREIGN];
    for (int64_t picked = 0; picked <= 1;
         picked++) { /* as far as they were when the other said no */
        refused->picked = refused->put_back = picked;
        foreign->picked = picked;
        assert_fault(&books, 0, "");
    }
    refused->put_back = 0;
    assert_fault(&books, 1, "ord-000007 cancelled: its goods were picked 1 times, put back 0");
    refused->put_back = 1;
    foreign->put_back = 1;
    foreign->picked = 0;
    assert_fault(&books, 1, "ord-000350 parked: its goods were picked 0 times, put back 1");
    foreign->put_back = 0;
    books.records[NORMAL].picked = 0;
    assert_fault(&books, 1, "ord-000001 fulfilled: its goods were picked 0 times, put back 0");
    books.records[NORMAL].picked = 1;
    books.records[15].picked = 1;
    assert_fault(&books, 1, "ord-000015 fulfilled: its goods were picked 1 times, put back 0");
    books.records[15].picked = 0;
    set_cancelled(&books.records[RECALLED], 1, 0);
    assert_fault(&books, 1, "ord-000012 recalled before there were goods and a waybill");
    set_cancelled(&books.records[RECALLED], 0, 1);
    assert_fault(&books, 1, "ord-000012 recalled before there were goods and a waybill");
}

static void test_an_end_against_the_plan_is_found(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    set_cancelled(&books.records[NORMAL], 1, 1);
    assert_fault(&books, 1, "ord-000001 cancelled, although nobody said no");
    set_fulfilled_number(&books, NORMAL);
    set_fulfilled_number(&books, SILENT);
    assert_fault(&books, 1, "ord-000019 fulfilled, although nobody said yes");
    set_cancelled(&books.records[SILENT], 1, 1);
    set_fulfilled_number(&books, RECALLED);
    assert_fault(&books, 1, "ord-000012 fulfilled, although nobody said yes");
}

static void test_a_cache_that_is_off_is_found(void **state)
{
    (void)state;
    CLEANUP(order_books_done) struct order_books books = books_as_planned();
    books.records[NORMAL].cached = false;
    assert_fault(&books, 1, "ord-000001 fulfilled, the cache was written, but it is not there");
    books.records[NORMAL].cache_left_out = true;
    assert_fault(&books, 0, "");
    struct order_audit audit;
    order_books_audit(&books, &audit);
    assert_int_equal(audit.left_out, 1);
    assert_int_equal(audit.first_left_out, NORMAL);
    order_audit_done(&audit);
    books.records[REFUSED].cached = true;
    assert_fault(&books, 1, "ord-000007 is in the cache, but not fulfilled");
}

/* Whatever the count, there is one that goes past its window, one that is somebody else's, and what
 * the demo shows. */
static void test_every_plan_has_its_special_ones(void **state)
{
    (void)state;
    for (int count = 20; count <= FULFILMENT_COUNT_MAX; count += count < 300 ? 1 : 97) {
        int foreign = 0, of_window = 0, recalled = 0;
        int probed[FULFILMENT_LOGISTICS(GO_SILENT) + 1] = { 0 };
        for (int i = 1; i <= count; i++) {
            struct fulfilment_plan plan = fulfilment_plan(i, count);
            Demo__Logistics__V1__Behaviour logistics = plan.logistics;
            bool is_foreign = logistics == FULFILMENT_LOGISTICS(EXISTS_ELSEWHERE);
            foreign += is_foreign && !plan.express && !plan.withdrawn;
            assert_false(is_foreign && (plan.express || plan.withdrawn));
            recalled += plan.recalled;
            /* it comes as far as the hand-over */
            assert_false(plan.recalled && (is_foreign || plan.express || plan.withdrawn ||
                                           logistics == FULFILMENT_LOGISTICS(REFUSE) ||
                                           logistics == FULFILMENT_LOGISTICS(GO_SILENT)));
            of_window +=
                plan.express && logistics == FULFILMENT_LOGISTICS(TAKE_EFFECT_THEN_TIME_OUT);
            probed[logistics] += !plan.express;
        }
        assert_int_equal(foreign, 1);
        assert_int_equal(of_window, 1);
        assert_true(recalled > 0);
        assert_true(probed[FULFILMENT_LOGISTICS(TAKE_EFFECT_THEN_TIME_OUT)] > 0 &&
                    probed[FULFILMENT_LOGISTICS(LAND_LATE)] > 0 &&
                    probed[FULFILMENT_LOGISTICS(GET_LOST)] > 0 &&
                    probed[FULFILMENT_LOGISTICS(GO_SILENT)] > 0 &&
                    probed[FULFILMENT_LOGISTICS(REFUSE)] > 0);
    }
}

/* What sagas are started with is what the plan says, under the key of its number. */
static void test_orders_are_as_planned(void **state)
{
    (void)state;
    for (int i = 1; i <= COUNT; i++) {
        char id[STORY_ID_SIZE];
        struct err err;
        struct fulfilment_plan plan = fulfilment_plan(i, COUNT);
        CLEANUP(buf_done) struct buf input = { 0 };
        fulfilment_story.encode(i, COUNT, &input);
        CLEANUP(message_p)
        Shop__V1__Order *order = shop__v1__order__unpack(NULL, input.size, input.data);
        assert_non_null(order);
        story_id_format(&fulfilment_story, i, id);
        assert_string_equal(order->order_id, id);
        assert_int_equal(order->parcels, plan.parcels);
        assert_int_equal(order->logistics, plan.logistics);
        ASSERT_OK(fulfilment_check(order, &err), &err);
    }
}

static void test_bad_orders_are_refused(void **state)
{
    (void)state;
    static const int32_t bad[] = { 0, -1, FULFILMENT_PARCELS_MAX + 1 };
    struct err err;
    assert_int_equal(fulfilment_check(NULL, &err), ERR_INVALID);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Shop__V1__Order order = SHOP__V1__ORDER__INIT;
        order.parcels = bad[i];
        assert_int_equal(fulfilment_check(&order, &err), ERR_INVALID);
        assert_string_equal(err.field, "parcels");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_as_planned_agrees),
        cmocka_unit_test(test_what_a_person_settled_is_fulfilled_and_no_fault),
        cmocka_unit_test(test_an_express_order_whose_worker_died_may_wait_for_a_person),
        cmocka_unit_test(test_a_park_for_another_reason_is_found),
        cmocka_unit_test(test_every_double_is_found),
        cmocka_unit_test(test_every_lost_one_is_found),
        cmocka_unit_test(test_a_waybill_that_is_missing_or_left_is_found),
        cmocka_unit_test(test_an_order_row_that_is_off_is_found),
        cmocka_unit_test(test_goods_that_are_off_are_found),
        cmocka_unit_test(test_an_end_against_the_plan_is_found),
        cmocka_unit_test(test_a_cache_that_is_off_is_found),
        cmocka_unit_test(test_every_plan_has_its_special_ones),
        cmocka_unit_test(test_orders_are_as_planned),
        cmocka_unit_test(test_bad_orders_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
