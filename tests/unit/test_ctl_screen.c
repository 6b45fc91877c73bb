/* Goal: what sagactl prints is aligned, safe on a terminal and tells times as people do.
 * Method: text compared with what is expected; hostile bytes; a table of spans. */
#include "support/check.h"

#include "ctl/screen.h"

#include <string.h>
#include <time.h>

static void test_control_characters_never_reach_the_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } rows[] = {
        { "plain", "plain" },
        { "M\xc3\xbcnchen", "M\xc3\xbcnchen" },
        { "a\nb\tc\rd", "a b c d" },
        { "\033[2J", "?[2J" },
        { "x\xc2\x9b"
          "31m",
          "x?31m" },
        { "\x7f", "?" },
        { "\xff\xfe", "??" },
        { "\xc3", "?" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf out = { 0 };
        screen_text(&out, rows[i].text);
        assert_string_equal(buf_cstr(&out), rows[i].shown);
        buf_done(&out);
    }
}

static void test_columns_are_as_wide_as_their_widest_cell(void **state)
{
    (void)state;
    static const char *const headers[] = { "A", "LONG", "C" };
    struct table table = { .headers = headers, .columns = 3 };
    struct buf out = { 0 };
    table_cell(&table, "\xc3\xbc\xc3\xbc", STYLE_PLAIN);
    table_cellf(&table, "%d", 5);
    table_cell(&table, "x", STYLE_GOOD);
    table_cell(&table, "b", STYLE_PLAIN);
    table_cell(&table, "much longer", STYLE_PLAIN);
    table_cell(&table, NULL, STYLE_PLAIN);
    table_write(&table, "> ", false, &out);
    assert_string_equal(buf_cstr(&out), "> A   LONG         C\n"
                                        "> \xc3\xbc\xc3\xbc  5            x\n"
                                        "> b   much longer\n");
    buf_clear(&out);
    table_write(&table, "", true, &out);
    assert_non_null(strstr(buf_cstr(&out), "\033[32mx\033[0m\n"));
    buf_done(&out);
    table_done(&table);
}

static void test_spans_of_time(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        { -5, "0 s" },
        { 999, "0 s" },
        { 59999, "59 s" },
        { 60000, "1 min" },
        { 3599999, "59 min" },
        { 3600000, "1 h" },
        { 3660000, "1 h 1 min" },
        { 86399999, "23 h 59 min" },
        { 86400000, "1 day" },
        { 172800000, "2 days" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf out = { 0 };
        screen_span(&out, rows[i].ms);
        assert_string_equal(buf_cstr(&out), rows[i].text);
        buf_done(&out);
    }
}

static void test_times_are_local_with_their_age(void **state)
{
    (void)state;
    struct buf out = { 0 };
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    time.seconds = 1772460311;
    (void)setenv("TZ", "CET-1", 1);
    tzset();
    screen_time(&out, &time, INT64_C(1772460491000));
    assert_string_equal(buf_cstr(&out), "2026-03-02 15:05:11 (3 min ago)");
    buf_clear(&out);
    screen_time(&out, &time, INT64_C(1772460309000));
    assert_string_equal(buf_cstr(&out), "2026-03-02 15:05:11 (in 2 s)");
    buf_clear(&out);
    screen_time(&out, NULL, 0);
    assert_string_equal(buf_cstr(&out), "-");
    buf_done(&out);
}

static void test_words_for_a_shell(void **state)
{
    (void)state;
    static const struct {
        const char *word, *quoted;
    } rows[] = { { "order-1", "order-1" },
                 { "a b", "'a b'" },
                 { "", "''" },
                 { "it's", "'it'\\''s'" },
                 { "$(rm x)", "'$(rm x)'" } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf out = { 0 };
        screen_shell_word(&out, rows[i].word);
        assert_string_equal(buf_cstr(&out), rows[i].quoted);
        buf_done(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_characters_never_reach_the_terminal),
        cmocka_unit_test(test_columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(test_spans_of_time),
        cmocka_unit_test(test_times_are_local_with_their_age),
        cmocka_unit_test(test_words_for_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
