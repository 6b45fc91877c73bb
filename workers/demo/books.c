#include "books.h"

#include "base/mem.h"
#include "settlement.h"

#include <inttypes.h>
#include <string.h>

typedef Saga__V1__SagaState saga_state;
#define STATE(name) SAGA__V1__SAGA_STATE__SAGA_STATE_##name

int books_create(int count, struct books *ret, struct err *err)
{
    struct record *records = mem_calloc((size_t)count + 1, sizeof *records);
    if (!records)
        return err_set(err, ERR_NOMEM, "books");
    *ret = (struct books){ .count = count, .records = records };
    return 0;
}

void books_done(struct books *books)
{
    mem_free(books->records);
    books->records = NULL;
}

struct record *books_find(struct books *books, const char *settlement_id)
{
    int number = story_number_of(&settlement_story, books->count, settlement_id);
    return number ? &books->records[number] : NULL;
}

void books_take_sagas(struct books *books, const struct sagas *sagas)
{
    for (int number = 1; number <= books->count; number++)
        books->records[number].saga = sagas->seen[number];
    books->strangers += sagas->strangers;
}

/* --- audit ------------------------------------------------------------------------------------ */

#define fault(audit, number, ...)                                                                  \
    faults_add(&(audit)->faults, &settlement_story, number, __VA_ARGS__)

struct expected {
    int64_t debits, refunds, entries, reversals;
};

static void expect_rows(struct audit *audit, int number, const struct record *record,
                        const char *when, struct expected expected)
{
    if (record->debits != expected.debits || record->refunds != expected.refunds ||
        record->entries != expected.entries || record->reversals != expected.reversals)
        fault(audit, number,
              "%s: debits %" PRId64 ", refunds %" PRId64 ", ledger entries %" PRId64
              ", reversals %" PRId64 "; expected %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64,
              when, record->debits, record->refunds, record->entries, record->reversals,
              expected.debits, expected.refunds, expected.entries, expected.reversals);
}

static void audit_settled(struct audit *audit, int number, const struct record *record,
                          const struct settlement *plan)
{
    audit->settled++;
    expect_rows(audit, number, record, "settled", (struct expected){ 1, 0, 1, 0 });
    if (record->notified != 1)
        fault(audit, number, "settled, but risk's log has it %" PRId64 " times", record->notified);
    if (record->withdrawn != 0)
        fault(audit, number, "settled, but its notification was withdrawn");
    bool unanswered = plan->risk == SETTLEMENT_RISK(TAKE_EFFECT_THEN_TIME_OUT);
    if (settlement_is_over_balance(plan) || plan->risk == SETTLEMENT_RISK(REFUSE) ||
        (unanswered && !record->confirmed) || plan->risk == SETTLEMENT_RISK(TRY_LATER))
        fault(audit, number, "settled, although nobody said yes");
}

static void audit_compensated(struct audit *audit, int number, const struct record *record,
                              const struct settlement *plan)
{
    audit->compensated++;
    int64_t ran = settlement_is_over_balance(plan) ? 0 : 1;
    expect_rows(audit, number, record, "compensated", (struct expected){ ran, ran, ran, ran });
    if (record->notified > 0 && record->withdrawn == 0)
        fault(audit, number, "compensated, but risk still has its notification");
}

/* Debited and in the ledger, nothing taken back: where a settlement stands at the risk step. */
static void audit_at_risk(struct audit *audit, int number, const struct record *record)
{
    expect_rows(audit, number, record, "at the risk step", (struct expected){ 1, 0, 1, 0 });
}

static void audit_parked(struct audit *audit, int number, const struct record *record,
                         const struct settlement *plan)
{
    audit->parked++;
    if (plan->risk == SETTLEMENT_RISK(TAKE_EFFECT_THEN_TIME_OUT))
        audit->replies_lost++;
    const struct saga_seen *saga = &record->saga;
    if (saga->park_reason != SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN ||
        saga->phase != STATE(RUNNING) || strcmp(saga->park_step, "notify_risk") != 0)
        fault(audit, number, "parked, but not for an unknown outcome of the risk call (reason %d)",
              (int)saga->park_reason);
    audit_at_risk(audit, number, record);
}

static void audit_state(struct audit *audit, int number, const struct record *record,
                        const struct settlement *plan)
{
    switch ((int)record->saga.state) {
    case STATE(SUCCEEDED):
        audit_settled(audit, number, record, plan);
        return;
    case STATE(COMPENSATED):
        audit_compensated(audit, number, record, plan);
        return;
    case STATE(PARKED):
        audit_parked(audit, number, record, plan);
        return;
    case STATE(RUNNING):
        if (plan->risk == SETTLEMENT_RISK(TRY_LATER)) {
            audit->waiting++;
            audit_at_risk(audit, number, record);
            if (record->notified != 0)
                fault(audit, number, "waits for risk, but risk's log has it");
            return;
        }
        break;
    default:
        break;
    }
    audit->lost++;
    fault(audit, number, "lost: its saga is neither at its end nor parked (state %d)",
          (int)record->saga.state);
}

static void audit_one(struct audit *audit, int number, int count, const struct record *record)
{
    struct settlement plan = settlement_plan(number, count);
    if (record->debits > 1 || record->refunds > 1 || record->entries > 1 || record->reversals > 1 ||
        record->notified > 1 || record->saga.sagas > 1) {
        audit->doubled++;
        fault(audit, number,
              "doubled: debits %" PRId64 ", refunds %" PRId64 ", ledger entries %" PRId64
              ", reversals %" PRId64 ", notifications %" PRId64 ", sagas %d",
              record->debits, record->refunds, record->entries, record->reversals, record->notified,
              record->saga.sagas);
    }
    int64_t amount = plan.amount_cents;
    if (record->debited_cents != record->debits * amount ||
        record->refunded_cents != record->refunds * amount ||
        record->ledger_cents != (record->entries - record->reversals) * amount)
        fault(audit, number, "its rows do not hold its amount of %" PRId64 " cents", amount);
    if (record->saga.sagas == 0) {
        audit->lost++;
        fault(audit, number, "lost: there is no saga for it");
        return;
    }
    audit_state(audit, number, record, &plan);
}

void books_audit(const struct books *books, struct audit *ret)
{
    struct audit audit = { 0 };
    for (int number = 1; number <= books->count; number++)
        audit_one(&audit, number, books->count, &books->records[number]);
    audit.money_adds_up = books->opening_cents == books->balance_cents + books->ledger_cents;
    if (books->accounts != SETTLEMENT_ACCOUNTS ||
        books->opening_cents != (int64_t)SETTLEMENT_ACCOUNTS * SETTLEMENT_OPENING_CENTS)
        fault(&audit, 0, "%" PRId64 " accounts with %" PRId64 " cents: not the ones of the demo",
              books->accounts, books->opening_cents);
    if (!audit.money_adds_up)
        fault(&audit, 0, "money before is not money after + ledger (%" PRId64 " cents off)",
              books->opening_cents - books->balance_cents - books->ledger_cents);
    if (books->accounts_wrong)
        fault(&audit, 0, "%" PRId64 " accounts are not opening - debits + refunds",
              books->accounts_wrong);
    if (books->links_wrong)
        fault(&audit, 0, "%" PRId64 " refunds or ledger entries are not about their own settlement",
              books->links_wrong);
    if (books->strangers)
        fault(&audit, 0, "%" PRId64 " rows, lines or sagas of settlements that nobody started",
              books->strangers);
    *ret = audit;
}
