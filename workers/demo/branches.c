#include "branches.h"

#include "base/mem.h"

#include <string.h>

#define OPERATION(name) SAGA__V1__OPERATION_KIND__OPERATION_KIND_##name
#define OUTCOME(name)   SAGA__V1__OUTCOME__OUTCOME_##name

/* Of what is taken back: the later one, and what it depends on. Written down here, and not read
 * from the definition, so that the check does not rest on what it checks. */
static const struct {
    const char *later, *earlier;
} orders[] = { { "create_waybill", "confirm_order" }, { "pick_goods", "confirm_order" } };

static int64_t time_us(const Google__Protobuf__Timestamp *time)
{
    return time ? time->seconds * 1000000 + time->nanos / 1000 : INT64_MAX; /* not yet */
}

/* NULL: any step. */
static bool is_lease(const Saga__V1__JournalEntry *entry, const char *step,
                     Saga__V1__OperationKind operation)
{
    return entry->kind == SAGA__V1__JOURNAL_ENTRY__KIND__KIND_LEASE &&
           entry->operation == operation && (!step || strcmp(entry->step, step) == 0);
}

static bool is_over_before(const Saga__V1__JournalEntry *lease, const Saga__V1__JournalEntry *next)
{
    return lease->finish_time && time_us(lease->finish_time) <= time_us(next->lease_time);
}

static const char *wrong_of(const Saga__V1__JournalEntry *one, const Saga__V1__JournalEntry *undo)
{
    if (is_lease(one, NULL, OPERATION(ACTION)) && !is_over_before(one, undo))
        return "something was taken back while a step was under way";
    for (size_t i = 0; i < ARRAY_LEN(orders); i++)
        if (is_lease(one, orders[i].later, OPERATION(COMPENSATION)) &&
            strcmp(undo->step, orders[i].earlier) == 0 && !is_over_before(one, undo))
            return "a step was taken back before what comes after it";
    return NULL;
}

static bool overlap(const Saga__V1__JournalEntry *one, const Saga__V1__JournalEntry *other)
{
    return time_us(one->lease_time) < time_us(other->finish_time) &&
           time_us(other->lease_time) < time_us(one->finish_time);
}

static bool has(Saga__V1__JournalEntry *const *entries, size_t count, const char *step,
                Saga__V1__OperationKind operation, bool done)
{
    for (size_t i = 0; i < count; i++)
        if (is_lease(entries[i], step, operation) &&
            (!done || entries[i]->outcome == OUTCOME(DONE) ||
             entries[i]->outcome == OUTCOME(ALREADY_DONE)))
            return true;
    return false;
}

void branches_read(Saga__V1__JournalEntry *const *entries, size_t count, struct branches *ret)
{
    struct branches branches = {
        .undone = has(entries, count, "hand_over", OPERATION(ACTION), false) &&
                  has(entries, count, "create_waybill", OPERATION(COMPENSATION), true) &&
                  has(entries, count, "pick_goods", OPERATION(COMPENSATION), true)
    };
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            const Saga__V1__JournalEntry *one = entries[i], *other = entries[j];
            if (is_lease(one, "create_waybill", OPERATION(ACTION)) &&
                is_lease(other, "pick_goods", OPERATION(ACTION)) && overlap(one, other))
                branches.together = true;
            if (!branches.wrong && is_lease(other, NULL, OPERATION(COMPENSATION)))
                branches.wrong = wrong_of(one, other);
        }
    }
    *ret = branches;
}
