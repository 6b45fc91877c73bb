/* Goal: times, names and near misses are read as their authors meant them. Method: by table, each
 * form that is allowed and each that is close to one. */
#include "support/check.h"

#include "schema/derive_internal.h"

#include <stdio.h>

static void arena_done_p(struct arena *arena)
{
    arena_done(arena);
}

static const struct {
    const char *text;
    int64_t ms; /* -1: is none */
} times[] = {
    { "200ms", 200 },
    { "5s", 5000 },
    { "1.5s", 1500 },
    { "10m", 600000 },
    { "24h", 86400000 },
    { "3d", 259200000 },
    { "0s", 0 },
    { "0.001s", 1 },
    { "0.500000000s", 500 },
    { "1.25d", 108000000 },
    { "000000001ms", 1 },
    { "36500d", INT64_C(3153600000000) },
    { "999999999ms", 999999999 },
    { "36500.000000001d", -1 },
    { "36501d", -1 },
    { "999999999.999999999d", -1 },
    { "0.0005s", -1 },
    { "1.5ms", -1 },
    { "", -1 },
    { "s", -1 },
    { "5", -1 },
    { "5 s", -1 },
    { " 5s", -1 },
    { "5s ", -1 },
    { "5S", -1 },
    { "5sec", -1 },
    { "5us", -1 },
    { "1w", -1 },
    { "-5s", -1 },
    { "+5s", -1 },
    { ".5s", -1 },
    { "5.s", -1 },
    { "1,5s", -1 },
    { "1e3s", -1 },
    { "1.2.3s", -1 },
    { "1h30m", -1 },
    { "1000000000ms", -1 },
    { "0.0000000001d", -1 },
};

static void test_times(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        int64_t ms = -1;
        const char *wrong = derive_time_read(times[i].text, &ms);
        if (ms != times[i].ms || !wrong != (ms >= 0))
            fail_msg("\"%s\" is %lld ms (%s), not %lld", times[i].text, (long long)ms,
                     wrong ? wrong : "good", (long long)times[i].ms);
    }
}

static void test_snake_case(void **state)
{
    (void)state;
    static const struct {
        const char *name, *snake;
    } names[] = {
        { "DebitAccount", "debit_account" },
        { "HTTPPing", "http_ping" },
        { "V2Do", "v2_do" },
        { "GetURL2Foo", "get_url2_foo" },
        { "already_snake", "already_snake" },
        { "Mixed_Case", "mixed_case" },
        { "camelCase", "camel_case" },
        { "ABC", "abc" },
        { "A", "a" },
        { "a", "a" },
        { "", "" },
        { "_Private", "_private" },
        { "X1Y2Z3", "x1_y2_z3" },
    };
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_string_equal(derive_snake(&arena, names[i].name), names[i].snake);
}

static void test_near_misses(void **state)
{
    (void)state;
    static const char *const names[] = { "RefundAccount", "ReverseLedger", "pay", "input" };
    static const struct {
        const char *wanted, *best;
    } cases[] = {
        { "RefundAcount", "RefundAccount" },
        { "refundaccount", "RefundAccount" },
        { "refund_account", "RefundAccount" },
        { "ReversLedgr", "ReverseLedger" },
        { "pai", "pay" },
        { "p", NULL },
        { "imput", "input" },
        { "output", NULL },
        { "Whatever", NULL },
        { "", NULL },
        { "RefundAccountRefundAccountRefundAccountRefundAccountRefundAccount", NULL },
    };
    struct faults faults = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct closest closest = derive_closest(&faults, cases[i].wanted);
        for (size_t j = 0; j < ARRAY_LEN(names); j++)
            derive_closest_offer(&closest, names[j]);
        char text[HINT_BYTES], expected[HINT_BYTES];
        (void)snprintf(expected, sizeof expected, ", did you mean \"%s\"?",
                       cases[i].best ? cases[i].best : "");
        assert_string_equal(derive_hint(&closest, ".", text), cases[i].best ? expected : ".");
    }
    faults.count = HINTS_MAX; /* nobody looks so far */
    struct closest closest = derive_closest(&faults, "RefundAcount");
    derive_closest_offer(&closest, "RefundAccount");
    assert_null(closest.best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_snake_case),
        cmocka_unit_test(test_near_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
