#include "driver_report.h"
#include "fulfilment.h"
#include "order_books.h"

#include <inttypes.h>
#include <stdio.h>

static void print_books(const struct order_books *books, const struct order_audit *audit)
{
    struct report_column confirmed = { 0 }, cancelled = { 0 }, handed_over = { 0 }, made = { 0 },
                         undone = { 0 }, picked = { 0 }, put_back = { 0 };
    int64_t live = 0;
    for (int number = 1; number <= books->count; number++) {
        const struct order_record *record = &books->records[number];
        report_column_add(&confirmed, record->confirmed);
        report_column_add(&cancelled, record->cancelled);
        report_column_add(&handed_over, record->handed_over);
        report_column_add(&picked, record->picked);
        report_column_add(&put_back, record->put_back);
        report_column_add(&made, record->waybills_made);
        report_column_add(&undone, record->waybills_cancelled);
        live += record->waybills_made - record->waybills_cancelled;
    }
    report_column_print("orders confirmed", "orders", &confirmed);
    report_column_print("orders cancelled", "orders", &cancelled);
    report_column_print("goods picked", "orders", &picked);
    report_column_print("goods put back", "orders", &put_back);
    report_column_print("orders handed over", "orders", &handed_over);
    report_column_print("logistics' log: created", "orders", &made);
    report_column_print("logistics' log: cancelled", "orders", &undone);
    (void)printf("  waybills now               %6" PRId64 "\n", live);
    (void)printf("  without a warm cache       %6d", audit->left_out);
    if (audit->first_left_out) {
        char id[STORY_ID_SIZE];
        story_id_format(&fulfilment_story, audit->first_left_out, id);
        (void)printf(", the first is %s", id);
    }
    (void)printf("\n");
}

static bool print_verdict(const struct order_audit *audit)
{
    faults_print(&audit->faults);
    (void)printf("demo: %d parked because their window was over, %d because the waybill is "
                 "somebody else's, %d because a late word speaks against the record\n",
                 audit->parked_window, audit->parked_foreign, audit->parked_late);
    (void)printf("demo: %d fulfilled, %d cancelled, %d doubled, %d lost, ", audit->fulfilled,
                 audit->cancelled, audit->doubled, audit->lost);
    if (audit->faults.count)
        (void)printf("shop and logistics do NOT agree: %d faults\n", audit->faults.count);
    else
        (void)printf("shop and logistics agree\n");
    return audit->faults.count == 0;
}

int fulfilment_report(const struct report_sources *sources, struct client *client,
                      const struct sagas *sagas, enum report_kind kind, bool *ret_faultless,
                      struct err *err)
{
    struct order_books books;
    int rc = order_books_create(sagas->count, &books, err);
    if (rc)
        return rc;
    order_books_take_sagas(&books, sagas);
    rc = order_books_read_shop(&books, sources->shop, err);
    if (!rc)
        rc = order_books_read_log(&books, sources->logistics_log, err);
    if (!rc)
        rc = order_books_read_cache(&books, sources->cache, client, sagas, err);
    if (!rc) {
        struct order_audit audit;
        order_books_audit(&books, &audit);
        if (kind == REPORT_BOOKS)
            print_books(&books, &audit);
        else
            *ret_faultless = print_verdict(&audit);
        order_audit_done(&audit);
    }
    order_books_done(&books);
    return rc;
}

static const char *word_of(const struct fulfilment_plan *plan)
{
    switch ((int)plan->logistics) {
    case FULFILMENT_LOGISTICS(TAKE_EFFECT_THEN_TIME_OUT):
        return plan->express ? "window" : "reply-lost";
    case FULFILMENT_LOGISTICS(LAND_LATE):
        return plan->express ? NULL : "late";
    case FULFILMENT_LOGISTICS(GET_LOST):
        return plan->express ? NULL : "request-lost";
    case FULFILMENT_LOGISTICS(GO_SILENT):
        return "silent";
    case FULFILMENT_LOGISTICS(EXISTS_ELSEWHERE):
        return "foreign";
    default:
        return NULL;
    }
}

void fulfilment_print_ids(int count)
{
    for (int number = 1; number <= count; number++) {
        char id[STORY_ID_SIZE];
        struct fulfilment_plan plan = fulfilment_plan(number, count);
        const char *word = word_of(&plan);
        story_id_format(&fulfilment_story, number, id);
        if (word)
            (void)printf("%s %s\n", word, id);
    }
}
