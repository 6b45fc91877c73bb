#include "books.h"
#include "driver_report.h"
#include "settlement.h"

#include <inttypes.h>
#include <stdio.h>

static void print_books(const struct books *books, const struct audit *audit)
{
    struct report_column debits = { 0 }, refunds = { 0 }, entries = { 0 }, reversals = { 0 },
                         notified = { 0 }, withdrawn = { 0 };
    for (int number = 1; number <= books->count; number++) {
        const struct record *record = &books->records[number];
        report_column_add(&debits, record->debits);
        report_column_add(&refunds, record->refunds);
        report_column_add(&entries, record->entries);
        report_column_add(&reversals, record->reversals);
        report_column_add(&notified, record->notified);
        report_column_add(&withdrawn, record->withdrawn);
    }
    (void)printf("  money before               %12" PRId64 " cents in %" PRId64 " accounts\n"
                 "  money after                %12" PRId64 "\n"
                 "  ledger                     %12" PRId64 "\n"
                 "  before = after + ledger    %12s\n",
                 books->opening_cents, books->accounts, books->balance_cents, books->ledger_cents,
                 audit->money_adds_up ? "yes" : "NO");
    report_column_print("debits", "settlements", &debits);
    report_column_print("refunds", "settlements", &refunds);
    report_column_print("ledger entries", "settlements", &entries);
    report_column_print("ledger reversals", "settlements", &reversals);
    report_column_print("risk's log: notified", "settlements", &notified);
    report_column_print("risk's log: withdrawn", "settlements", &withdrawn);
}

static bool print_verdict(const struct audit *audit)
{
    faults_print(&audit->faults);
    (void)printf("demo: %d parked with an unknown outcome (%d because risk's reply was lost), "
                 "%d left at the risk step on purpose\n",
                 audit->parked, audit->replies_lost, audit->waiting);
    (void)printf("demo: %d settled, %d compensated, %d doubled, %d lost, ", audit->settled,
                 audit->compensated, audit->doubled, audit->lost);
    if (audit->faults.count)
        (void)printf("books do NOT balance: %d faults\n", audit->faults.count);
    else
        (void)printf("books balance\n");
    return audit->faults.count == 0;
}

int settlement_report(const struct report_sources *sources, struct client *client,
                      const struct sagas *sagas, enum report_kind kind, bool *ret_faultless,
                      struct err *err)
{
    (void)client; /* lists tell all of it */
    struct books books;
    int rc = books_create(sagas->count, &books, err);
    if (rc)
        return rc;
    books_take_sagas(&books, sagas);
    rc = books_read_bank(&books, sources->bank, err);
    if (!rc)
        rc = books_read_risk_log(&books, sources->risk_log, err);
    if (!rc && sources->confirmed)
        rc = books_read_confirmed(&books, sources->confirmed, err);
    if (!rc) {
        struct audit audit;
        books_audit(&books, &audit);
        if (kind == REPORT_BOOKS)
            print_books(&books, &audit);
        else
            *ret_faultless = print_verdict(&audit);
        audit_done(&audit);
    }
    books_done(&books);
    return rc;
}

static const char *word_of(Demo__Risk__V1__Behaviour risk)
{
    switch ((int)risk) {
    case SETTLEMENT_RISK(REFUSE):
        return "refused";
    case SETTLEMENT_RISK(TAKE_EFFECT_THEN_TIME_OUT):
        return "lost";
    case SETTLEMENT_RISK(TRY_LATER):
        return "stuck";
    default:
        return NULL;
    }
}

void settlement_print_ids(int count)
{
    for (int number = 1; number <= count; number++) {
        char id[STORY_ID_SIZE];
        const char *word = word_of(settlement_plan(number, count).risk);
        story_id_format(&settlement_story, number, id);
        if (word)
            (void)printf("%s %s\n", word, id);
    }
}
