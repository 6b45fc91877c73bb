/* Goal: the demo's audit passes for a run that went as it should, and names each thing that did
 * not. Method: a faultless run is built from the plan, then one fact is changed at a time; the
 * input of each saga says what the plan says, and payments that no plan makes are refused. */
#include "support/check.h"

#include "books.h"
#include "message.h"
#include "settlement.h"

#include <stdio.h>

enum { COUNT = 500, NORMAL = 1, REFUSED = 7, REPLY_LOST = 13, OVER_BALANCE = 90, STUCK = 350 };

#define STATE(name) SAGA__V1__SAGA_STATE__SAGA_STATE_##name

static void set_forward(struct record *record, int64_t amount)
{
    record->debits = record->entries = 1;
    record->debited_cents = record->ledger_cents = amount;
}

static void set_undone(struct record *record, int64_t amount)
{
    set_forward(record, amount);
    record->refunds = record->reversals = 1;
    record->refunded_cents = amount;
    record->ledger_cents = 0;
}

static void set_parked(struct record *record, int64_t amount)
{
    set_forward(record, amount);
    record->saga.state = STATE(PARKED);
    record->saga.phase = STATE(RUNNING);
    record->saga.park_reason = SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN;
    (void)snprintf(record->saga.park_step, sizeof record->saga.park_step, "notify_risk"); /* fits */
}

static void set_as_planned(struct record *record, const struct settlement *plan)
{
    record->saga.sagas = 1;
    switch (plan->risk) {
    case SETTLEMENT_RISK(REFUSE):
        record->saga.state = STATE(COMPENSATED);
        set_undone(record, plan->amount_cents);
        return;
    case SETTLEMENT_RISK(TAKE_EFFECT_THEN_TIME_OUT):
        set_parked(record, plan->amount_cents);
        record->notified = 1;
        return;
    case SETTLEMENT_RISK(TRY_LATER):
        record->saga.state = STATE(RUNNING);
        set_forward(record, plan->amount_cents);
        return;
    default:
        break;
    }
    if (settlement_is_over_balance(plan)) {
        record->saga.state = STATE(COMPENSATED);
        return;
    }
    record->saga.state = STATE(SUCCEEDED);
    set_forward(record, plan->amount_cents);
    record->notified = 1;
}

static void add_totals(struct books *books)
{
    books->accounts = SETTLEMENT_ACCOUNTS;
    books->opening_cents = (int64_t)SETTLEMENT_ACCOUNTS * SETTLEMENT_OPENING_CENTS;
    books->balance_cents = books->opening_cents;
    for (int i = 1; i <= books->count; i++) {
        books->ledger_cents += books->records[i].ledger_cents;
        books->balance_cents -= books->records[i].debited_cents - books->records[i].refunded_cents;
    }
}

static struct books books_as_planned(void)
{
    struct err err;
    struct books books;
    ASSERT_OK(books_create(COUNT, &books, &err), &err);
    for (int i = 1; i <= COUNT; i++) {
        struct settlement plan = settlement_plan(i, COUNT);
        set_as_planned(&books.records[i], &plan);
    }
    add_totals(&books);
    return books;
}

static void assert_fault(const struct books *books, int faults, const char *part)
{
    struct audit audit;
    books_audit(books, &audit);
    assert_int_equal(audit.faults.count, faults);
    if (!strstr(buf_cstr(&audit.faults.text), part))
        fail_msg("\"%s\" is not in \"%s\"", part, buf_cstr(&audit.faults.text));
    audit_done(&audit);
}

static void test_a_run_as_planned_balances(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    struct audit audit;
    books_audit(&books, &audit);
    assert_string_equal(buf_cstr(&audit.faults.text), "");
    assert_int_equal(audit.faults.count, 0);
    assert_true(audit.money_adds_up);
    assert_int_equal(audit.waiting, 1);
    assert_int_equal(audit.doubled + audit.lost, 0);
    assert_true(audit.compensated >= 20 && audit.parked >= 8);
    assert_int_equal(audit.replies_lost, audit.parked);
    assert_int_equal(audit.settled + audit.compensated + audit.parked + audit.waiting, COUNT);
}

static void test_a_caller_killed_in_mid_call_is_parked_and_no_fault(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    int64_t amount = settlement_plan(NORMAL, COUNT).amount_cents;
    set_parked(&books.records[NORMAL], amount);
    assert_fault(&books, 0, "");
    books.records[NORMAL].notified = 0; /* it was killed before the call arrived */
    assert_fault(&books, 0, "");
}

static void test_every_double_is_found(void **state)
{
    (void)state;
    for (int what = 0; what < 6; what++) {
        CLEANUP(books_done) struct books books = books_as_planned();
        struct record *record = &books.records[what == 1 || what == 3 ? REFUSED : NORMAL];
        int64_t *rows[] = { &record->debits, &record->refunds, &record->entries, &record->reversals,
                            &record->notified };
        if (what < 5)
            *rows[what] = 2;
        else
            record->saga.sagas = 2;
        struct audit audit;
        books_audit(&books, &audit);
        assert_int_equal(audit.doubled, 1);
        assert_true(audit.faults.count > 0);
        audit_done(&audit);
    }
}

static void test_every_lost_one_is_found(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    struct record gone = { 0 };
    books.records[OVER_BALANCE] = gone; /* nothing was debited: only the saga is missing */
    assert_fault(&books, 1, "stl-000090 lost: there is no saga for it");
    books.records[OVER_BALANCE].saga.sagas = 1;
    books.records[OVER_BALANCE].saga.state = STATE(RUNNING);
    assert_fault(&books, 1, "stl-000090 lost: its saga is neither at its end nor parked");
    books.records[OVER_BALANCE].saga.state = STATE(COMPENSATING);
    assert_fault(&books, 1, "lost");
    books.records[OVER_BALANCE].saga.state = STATE(ABANDONED);
    assert_fault(&books, 1, "lost");
}

static void test_money_that_is_off_is_found(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    books.balance_cents -= 1;
    assert_fault(&books, 1, "money before is not money after + ledger (1 cents off)");
    books.balance_cents += 1;
    books.accounts_wrong = 2;
    assert_fault(&books, 1, "2 accounts are not opening - debits + refunds");
    books.accounts_wrong = 0;
    books.links_wrong = 1;
    assert_fault(&books, 1, "1 refunds or ledger entries are not about their own settlement");
    books.links_wrong = 0;
    books.accounts = 49;
    assert_fault(&books, 1, "49 accounts");
    books.accounts = 50;
    books.strangers = 1;
    assert_fault(&books, 1, "that nobody started");
    books.strangers = 0;
    books.records[NORMAL].debited_cents += 1;
    assert_fault(&books, 1, "its rows do not hold its amount");
}

static void test_a_half_undone_settlement_is_found(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    struct record *refused = &books.records[REFUSED];
    refused->refunds = 0;
    refused->refunded_cents = 0;
    assert_fault(&books, 1, "stl-000007 compensated: debits 1, refunds 0");
    refused->refunds = 1;
    refused->refunded_cents = refused->debited_cents;
    refused->notified = 1;
    assert_fault(&books, 1, "risk still has its notification");
    refused->withdrawn = 1;
    assert_fault(&books, 0, "");
    refused->saga.state = STATE(SUCCEEDED);
    assert_fault(&books, 3, "settled, although nobody said yes");
}

static void test_a_lost_reply_is_settled_by_a_person_alone(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    struct record *lost = &books.records[REPLY_LOST];
    lost->saga.state = STATE(SUCCEEDED);
    lost->notified = 1;
    assert_fault(&books, 1, "settled, although nobody said yes");
    lost->confirmed = true;
    assert_fault(&books, 0, "");
    lost->notified = 0;
    assert_fault(&books, 1, "settled, but risk's log has it 0 times");
}

static void test_a_park_for_another_reason_is_found(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    struct saga_seen *saga = &books.records[REPLY_LOST].saga;
    saga->park_reason = SAGA__V1__PARK_REASON__PARK_REASON_COMPENSATION_FAILED;
    assert_fault(&books, 1, "parked, but not for an unknown outcome");
    saga->park_reason = SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN;
    saga->phase = STATE(COMPENSATING);
    assert_fault(&books, 1, "parked, but not for an unknown outcome");
    saga->phase = STATE(RUNNING);
    books.records[STUCK].notified = 1;
    assert_fault(&books, 1, "waits for risk, but risk's log has it");
}

static void test_records_are_found_by_exact_id_only(void **state)
{
    (void)state;
    CLEANUP(books_done) struct books books = books_as_planned();
    assert_ptr_equal(books_find(&books, "stl-000001"), &books.records[1]);
    assert_ptr_equal(books_find(&books, "stl-000500"), &books.records[500]);
    static const char *const others[] = { "",           "stl-",       "stl-000000",
                                          "stl-000501", "stl-1",      "stl-000001x",
                                          "STL-000001", "stl- 00001", "stl-0000001",
                                          "stl--00001" };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_null(books_find(&books, others[i]));
}

/* What sagas are started with is what the plan says, under the key of its number. */
static void test_payments_are_as_planned(void **state)
{
    (void)state;
    for (int i = 1; i <= COUNT; i++) {
        char id[STORY_ID_SIZE];
        struct err err;
        struct settlement plan = settlement_plan(i, COUNT);
        CLEANUP(buf_done) struct buf input = { 0 };
        settlement_story.encode(i, COUNT, &input);
        CLEANUP(message_p)
        Bank__V1__Payment *payment = bank__v1__payment__unpack(NULL, input.size, input.data);
        assert_non_null(payment);
        story_id_format(&settlement_story, i, id);
        assert_string_equal(payment->payment_id, id);
        assert_int_equal(payment->account, plan.account);
        assert_int_equal(payment->amount_cents, plan.amount_cents);
        assert_int_equal(payment->risk, plan.risk);
        ASSERT_OK(settlement_check(payment, &err), &err);
    }
}

static void test_bad_payments_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        int32_t account;
        int64_t amount_cents;
    } bad[] = { { "account", 0, 5 },
                { "account", SETTLEMENT_ACCOUNTS + 1, 5 },
                { "account", -1, 5 },
                { "amount_cents", 1, 0 },
                { "amount_cents", 1, -5 } };
    struct err err;
    assert_int_equal(settlement_check(NULL, &err), ERR_INVALID);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Bank__V1__Payment payment = BANK__V1__PAYMENT__INIT;
        payment.account = bad[i].account;
        payment.amount_cents = bad[i].amount_cents;
        assert_int_equal(settlement_check(&payment, &err), ERR_INVALID);
        assert_string_equal(err.field, bad[i].field);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_as_planned_balances),
        cmocka_unit_test(test_a_caller_killed_in_mid_call_is_parked_and_no_fault),
        cmocka_unit_test(test_every_double_is_found),
        cmocka_unit_test(test_every_lost_one_is_found),
        cmocka_unit_test(test_money_that_is_off_is_found),
        cmocka_unit_test(test_a_half_undone_settlement_is_found),
        cmocka_unit_test(test_a_lost_reply_is_settled_by_a_person_alone),
        cmocka_unit_test(test_a_park_for_another_reason_is_found),
        cmocka_unit_test(test_records_are_found_by_exact_id_only),
        cmocka_unit_test(test_payments_are_as_planned),
        cmocka_unit_test(test_bad_payments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
