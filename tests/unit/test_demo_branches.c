/* Goal: what the demo says of an order's two parallel branches is what its history holds. Method:
 * histories of a few entries, each right, or wrong in one thing. */
#include "support/check.h"

#include "branches.h"

#include <stdio.h>
#include <string.h>

enum { ENTRIES_MAX = 16 };

#define ACTION       SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION
#define COMPENSATION SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION
#define DONE         SAGA__V1__OUTCOME__OUTCOME_DONE
#define REJECTED     SAGA__V1__OUTCOME__OUTCOME_REJECTED

struct lease {
    char *step;
    Saga__V1__OperationKind operation;
    int from_ms, to_ms; /* 0: has not ended */
    Saga__V1__Outcome outcome;
};

static void set_time(Google__Protobuf__Timestamp *time, int ms)
{
    google__protobuf__timestamp__init(time);
    time->seconds = 1700000000 + ms / 1000;
    time->nanos = ms % 1000 * 1000000;
}

/* A history of these leases; ends with one that has no step. */
static struct branches read(const struct lease *leases)
{
    Saga__V1__JournalEntry entries[ENTRIES_MAX], *all[ENTRIES_MAX];
    Google__Protobuf__Timestamp times[ENTRIES_MAX][2];
    size_t count = 0;
    for (; leases[count].step; count++) {
        Saga__V1__JournalEntry *entry = all[count] = &entries[count];
        assert_true(count < ENTRIES_MAX);
        saga__v1__journal_entry__init(entry);
        entry->kind = SAGA__V1__JOURNAL_ENTRY__KIND__KIND_LEASE;
        entry->step = leases[count].step;
        entry->operation = leases[count].operation;
        entry->outcome = leases[count].outcome;
        set_time(&times[count][0], leases[count].from_ms);
        set_time(&times[count][1], leases[count].to_ms);
        entry->lease_time = &times[count][0];
        entry->finish_time = leases[count].to_ms ? &times[count][1] : NULL;
    }
    struct branches branches;
    branches_read(all, count, &branches);
    return branches;
}

#define FORWARD                                                                                    \
    { "confirm_order", ACTION, 1, 9, DONE }, { "create_waybill", ACTION, 10, 1300, DONE },         \
    {                                                                                              \
        "pick_goods", ACTION, 10, 20, DONE                                                         \
    }

static void test_leases_that_overlap_are_together(void **state)
{
    (void)state;
    struct branches branches =
        read((struct lease[]){ FORWARD, { "hand_over", ACTION, 1300, 1310, DONE }, { 0 } });
    assert_true(branches.together);
    assert_false(branches.undone);
    assert_null(branches.wrong);
}

static void test_leases_one_after_the_other_are_not_together(void **state)
{
    (void)state;
    for (int second = 0; second <= 1; second++) {
        struct branches branches = read(
            (struct lease[]){ { second ? "create_waybill" : "pick_goods", ACTION, 10, 20, DONE },
                              { second ? "pick_goods" : "create_waybill", ACTION, 20, 30, DONE },
                              { "confirm_order", ACTION, 1, 30, DONE },
                              { "create_waybill", COMPENSATION, 10, 20, DONE },
                              { 0 } });
        assert_false(branches.together);
    }
    /* one that has not ended is under way */
    struct branches branches = read((struct lease[]){
        { "create_waybill", ACTION, 10, 0, 0 }, { "pick_goods", ACTION, 15, 0, 0 }, { 0 } });
    assert_true(branches.together);
}

static void test_both_taken_back_in_reverse_order(void **state)
{
    (void)state;
    struct branches branches =
        read((struct lease[]){ FORWARD,
                               { "hand_over", ACTION, 1300, 1310, REJECTED },
                               { "pick_goods", COMPENSATION, 1310, 1320, DONE },
                               { "create_waybill", COMPENSATION, 1310, 1400, DONE },
                               { "confirm_order", COMPENSATION, 1400, 1410, DONE },
                               { 0 } });
    assert_true(branches.together);
    assert_true(branches.undone);
    assert_null(branches.wrong);
}

static void test_one_that_was_not_taken_back_is_seen(void **state)
{
    (void)state;
    struct branches branches =
        read((struct lease[]){ FORWARD,
                               { "hand_over", ACTION, 1300, 1310, REJECTED },
                               { "create_waybill", COMPENSATION, 1310, 1400, DONE },
                               { "pick_goods", COMPENSATION, 1310, 1320, REJECTED },
                               { 0 } });
    assert_false(branches.undone);
    branches = read((struct lease[]){ FORWARD,
                                      { "create_waybill", COMPENSATION, 1310, 1400, DONE },
                                      { "pick_goods", COMPENSATION, 1310, 1320, DONE },
                                      { 0 } });
    assert_false(branches.undone); /* nothing shows that both had been done */
}

static void test_taken_back_too_early_is_wrong(void **state)
{
    (void)state;
    static char *const branch_names[] = { "create_waybill", "pick_goods" };
    for (size_t i = 0; i < ARRAY_LEN(branch_names); i++) {
        for (int to_ms = 0; to_ms <= 1501; to_ms += 1501) { /* never, or 1 ms too late */
            struct branches branches =
                read((struct lease[]){ FORWARD,
                                       { branch_names[i], COMPENSATION, 1310, to_ms, 0 },
                                       { "confirm_order", COMPENSATION, 1500, 1510, DONE },
                                       { 0 } });
            assert_string_equal(branches.wrong, "a step was taken back before what comes after it");
        }
    }
}

static void test_taken_back_beside_an_action_is_wrong(void **state)
{
    (void)state;
    struct branches branches =
        read((struct lease[]){ FORWARD, { "pick_goods", COMPENSATION, 1299, 1320, DONE }, { 0 } });
    assert_string_equal(branches.wrong, "something was taken back while a step was under way");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leases_that_overlap_are_together),
        cmocka_unit_test(test_leases_one_after_the_other_are_not_together),
        cmocka_unit_test(test_both_taken_back_in_reverse_order),
        cmocka_unit_test(test_one_that_was_not_taken_back_is_seen),
        cmocka_unit_test(test_taken_back_too_early_is_wrong),
        cmocka_unit_test(test_taken_back_beside_an_action_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
