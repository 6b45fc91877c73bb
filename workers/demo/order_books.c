#include "order_books.h"

#include "base/mem.h"
#include "fulfilment.h"

#include <inttypes.h>
#include <string.h>

#define STATE(name)  SAGA__V1__SAGA_STATE__SAGA_STATE_##name
#define REASON(name) SAGA__V1__PARK_REASON__PARK_REASON_##name
#define fault(audit, number, ...)                                                                  \
    faults_add(&(audit)->faults, &fulfilment_story, number, __VA_ARGS__)

int order_books_create(int count, struct order_books *ret, struct err *err)
{
    struct order_record *records = mem_calloc((size_t)count + 1, sizeof *records);
    if (!records)
        return err_set(err, ERR_NOMEM, "order books");
    *ret = (struct order_books){ .count = count, .records = records };
    return 0;
}

void order_books_done(struct order_books *books)
{
    mem_free(books->records);
    books->records = NULL;
}

void order_books_take_sagas(struct order_books *books, const struct sagas *sagas)
{
    for (int number = 1; number <= books->count; number++)
        books->records[number].saga = sagas->seen[number];
    books->strangers += sagas->strangers;
}

/* --- audit ------------------------------------------------------------------------------------ */

struct expected {
    enum order_state state;
    int64_t confirmed, cancelled, handed_over;
    int64_t live; /* waybills that are made and not cancelled; -1: no more than one */
    int64_t out;  /* picked, and not put back; -1: no more than once */
};

static const char *state_name(enum order_state state)
{
    static const char *const names[] = {
        [ORDER_MISSING] = "MISSING",     [ORDER_PENDING] = "PENDING",
        [ORDER_CONFIRMED] = "CONFIRMED", [ORDER_HANDED_OVER] = "HANDED_OVER",
        [ORDER_CANCELLED] = "CANCELLED", [ORDER_WITHDRAWN] = "WITHDRAWN",
    };
    return names[state];
}

/* -1: at most one. */
static bool is_as_expected(int64_t count, int64_t expected)
{
    return expected < 0 ? count == 0 || count == 1 : count == expected;
}

static void expect(struct order_audit *audit, int number, const struct order_record *record,
                   const char *when, struct expected expected)
{
    if (record->state != expected.state || record->confirmed != expected.confirmed ||
        record->cancelled != expected.cancelled || record->handed_over != expected.handed_over)
        fault(audit, number,
              "%s: the order is %s, %" PRId64 " times confirmed, %" PRId64
              " times cancelled, %" PRId64 " times handed over; expected %s, %" PRId64 ", %" PRId64
              ", %" PRId64,
              when, state_name(record->state), record->confirmed, record->cancelled,
              record->handed_over, state_name(expected.state), expected.confirmed,
              expected.cancelled, expected.handed_over);
    int64_t live = record->waybills_made - record->waybills_cancelled;
    if (!is_as_expected(live, expected.live))
        fault(audit, number, "%s: logistics has %" PRId64 " waybills for it", when, live);
    if (!is_as_expected(record->picked - record->put_back, expected.out))
        fault(audit, number, "%s: its goods were picked %" PRId64 " times, put back %" PRId64, when,
              record->picked, record->put_back);
}

static void audit_fulfilled(struct order_audit *audit, int number,
                            const struct order_record *record, const struct fulfilment_plan *plan)
{
    Demo__Logistics__V1__Behaviour logistics = plan->logistics;
    audit->fulfilled++;
    expect(audit, number, record, "fulfilled",
           plan->express ? (struct expected){ ORDER_CONFIRMED, 1, 0, 0, 1, 0 }
                         : (struct expected){ ORDER_HANDED_OVER, 1, 0, 1, 1, 1 });
    if (!plan->express && (record->parcels != plan->parcels || !record->has_waybill))
        fault(audit, number, "handed over: %" PRId64 " parcels%s, %d were ordered", record->parcels,
              record->has_waybill ? "" : " without a waybill", plan->parcels);
    if (plan->withdrawn || plan->recalled || logistics == FULFILMENT_LOGISTICS(REFUSE) ||
        logistics == FULFILMENT_LOGISTICS(EXISTS_ELSEWHERE) ||
        logistics == FULFILMENT_LOGISTICS(GO_SILENT))
        fault(audit, number, "fulfilled, although nobody said yes");
    if (record->cached)
        return;
    audit->left_out++;
    if (!audit->first_left_out)
        audit->first_left_out = number;
    if (!record->cache_left_out)
        fault(audit, number, "fulfilled, the cache was written, but it is not there");
}

static void audit_cancelled(struct order_audit *audit, int number,
                            const struct order_record *record, const struct fulfilment_plan *plan)
{
    Demo__Logistics__V1__Behaviour logistics = plan->logistics;
    audit->cancelled++;
    expect(audit, number, record, "cancelled",
           plan->withdrawn ? (struct expected){ .state = ORDER_WITHDRAWN }
                           : (struct expected){ ORDER_CANCELLED, 1, 1, 0, 0, 0 });
    if (plan->recalled && (record->picked == 0 || record->waybills_made == 0))
        fault(audit, number, "recalled before there were goods and a waybill to hand over");
    if (!plan->withdrawn && !plan->recalled && logistics != FULFILMENT_LOGISTICS(REFUSE) &&
        logistics != FULFILMENT_LOGISTICS(GO_SILENT))
        fault(audit, number, "cancelled, although nobody said no");
}

/* The one whose waybill is somebody else's; express ones whose window ended before anybody knew;
 * and those of which a worker that had stood still said something that nobody can believe now. */
static void audit_parked(struct order_audit *audit, int number, const struct order_record *record,
                         const struct fulfilment_plan *plan)
{
    const struct saga_seen *saga = &record->saga;
    bool is_foreign = plan->logistics == FULFILMENT_LOGISTICS(EXISTS_ELSEWHERE) &&
                      saga->park_reason == REASON(FOREIGN_EFFECT);
    bool is_window = plan->express && saga->park_reason == REASON(IDEMPOTENCY_WINDOW_OVER);
    bool is_late = saga->park_reason == REASON(LATE_EFFECT);
    audit->parked_foreign += is_foreign;
    audit->parked_window += is_window;
    audit->parked_late += is_late;
    if (is_late)
        return; /* it may be anywhere; that nothing is doubled is looked at for all */
    if ((!is_foreign && !is_window) || saga->phase != STATE(RUNNING) ||
        strcmp(saga->park_step, "create_waybill") != 0)
        fault(audit, number, "parked, but not for what the plan allows (reason %d, step %s)",
              (int)saga->park_reason, saga->park_step);
    expect(audit, number, record, "parked",
           (struct expected){ ORDER_CONFIRMED, 1, 0, 0, is_foreign ? 0 : -1, is_foreign ? -1 : 0 });
}

static void audit_state(struct order_audit *audit, int number, const struct order_record *record,
                        const struct fulfilment_plan *plan)
{
    if (record->cached && record->saga.state != STATE(SUCCEEDED))
        fault(audit, number, "is in the cache, but not fulfilled");
    switch ((int)record->saga.state) {
    case STATE(SUCCEEDED):
        audit_fulfilled(audit, number, record, plan);
        return;
    case STATE(COMPENSATED):
        audit_cancelled(audit, number, record, plan);
        return;
    case STATE(PARKED):
        audit_parked(audit, number, record, plan);
        return;
    default:
        audit->lost++;
        fault(audit, number, "lost: its saga is neither at its end nor parked (state %d)",
              (int)record->saga.state);
        return;
    }
}

static void audit_one(struct order_audit *audit, int number, int count,
                      const struct order_record *record)
{
    struct fulfilment_plan plan = fulfilment_plan(number, count);
    if (record->confirmed > 1 || record->cancelled > 1 || record->handed_over > 1 ||
        record->picked > 1 || record->put_back > 1 || record->waybills_made > 1 ||
        record->saga.sagas > 1) {
        audit->doubled++;
        fault(audit, number,
              "doubled: confirmed %" PRId64 ", cancelled %" PRId64 ", handed over %" PRId64
              ", picked %" PRId64 ", put back %" PRId64 ", waybills %" PRId64 ", sagas %d",
              record->confirmed, record->cancelled, record->handed_over, record->picked,
              record->put_back, record->waybills_made, record->saga.sagas);
    }
    if (record->saga.sagas == 0) {
        audit->lost++;
        fault(audit, number, "lost: there is no saga for it");
        return;
    }
    audit_state(audit, number, record, &plan);
}

void order_books_audit(const struct order_books *books, struct order_audit *ret)
{
    struct order_audit audit = { 0 };
    for (int number = 1; number <= books->count; number++)
        audit_one(&audit, number, books->count, &books->records[number]);
    if (books->strangers)
        fault(&audit, 0, "%" PRId64 " rows, lines or sagas of orders that nobody started",
              books->strangers);
    *ret = audit;
}
