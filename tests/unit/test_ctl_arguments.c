/* Goal: a command line is read as it was meant or refused with the reason; every verb has its help.
 * Method: lines as people type them, good and bad; a sweep over the verbs. */
#include "support/check.h"

#include "ctl/arguments.h"
#include "ctl/verbs.h"

#include <string.h>

enum { WORDS_MAX = 24 };

static int read_line(struct ctl_arguments *ret, struct err *err, char **words)
{
    int count = 0;
    while (words[count])
        count++;
    return ctl_arguments_read(ctl_verbs, count, words, ret, err);
}
#define READ(ret, err, ...)                                                                        \
    read_line(ret, err, (char *[WORDS_MAX]){ (char *)"sagactl", __VA_ARGS__, NULL })

static void test_options_stand_anywhere(void **state)
{
    (void)state;
    struct ctl_arguments arguments;
    struct err err;
    ASSERT_OK(READ(&arguments, &err, "--address", "definition", "-o", "json", "start",
                   "--label=a=1", "settlement", "--label", "b=2", "order-1", "--input", "--x"),
              &err);
    assert_ptr_equal(arguments.verb, &verb_start);
    assert_string_equal(arguments.address, "definition");
    assert_string_equal(arguments.output, "json");
    assert_int_equal(arguments.count, 2);
    assert_string_equal(arguments.positional[0], "settlement");
    assert_string_equal(arguments.positional[1], "order-1");
    assert_string_equal(ctl_option(&arguments, "input"), "--x");
    assert_null(ctl_option(&arguments, "file"));
    const char *const *labels;
    assert_int_equal(ctl_option_all(&arguments, "label", &labels), 2);
    assert_string_equal(labels[0], "a=1");
    assert_string_equal(labels[1], "b=2");
}

static void test_verbs_of_two_words_and_arguments_that_look_like_options(void **state)
{
    (void)state;
    struct ctl_arguments arguments;
    struct err err;
    ASSERT_OK(READ(&arguments, &err, "definition", "apply", "-", "--validate-only"), &err);
    assert_ptr_equal(arguments.verb, &verb_definition_apply);
    assert_string_equal(arguments.positional[0], "-");
    assert_non_null(ctl_option(&arguments, "validate-only"));
    ASSERT_OK(READ(&arguments, &err, "where", "--", "-17"), &err);
    assert_string_equal(arguments.positional[0], "-17");
    ASSERT_OK(READ(&arguments, &err, "guard", "floor", "--margin", "2h"), &err);
    assert_ptr_equal(arguments.verb, &verb_guard_floor);
    assert_string_equal(ctl_option(&arguments, "margin"), "2h");
    ASSERT_OK(READ(&arguments, &err, "get", "where"), &err);
    assert_ptr_equal(arguments.verb, &verb_get);
    assert_string_equal(arguments.positional[0], "where");
}

static void test_mistakes_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        char *words[6];
        const char *part;
    } rows[] = {
        { { "sagactl", "wher", "x" }, "unknown command \"wher x\"" },
        { { "sagactl", "definition" }, "unknown command \"definition\"" },
        { { "sagactl", "guard" }, "unknown command \"guard\"" },
        { { "sagactl", "resume" }, "an argument is missing: sagactl resume [DEFINITION] KEY" },
        { { "sagactl", "parked", "x" }, "unexpected argument \"x\"" },
        { { "sagactl", "where" }, "an argument is missing: sagactl where KEY" },
        { { "sagactl", "where", "a", "b" }, "unexpected argument \"b\"" },
        { { "sagactl", "where", "a", "--colour" }, "unknown option --colour" },
        { { "sagactl", "where", "a", "-x" }, "unknown option -x" },
        { { "sagactl", "where", "a", "--address" }, "--address needs a value" },
        { { "sagactl", "--", "-x" }, "unknown command \"-x\"" },
        { { "sagactl", "list", "--all=1" }, "--all takes no value" },
        { { "sagactl", "list", "--limit=1", "--limit=2" }, "--limit is given twice" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ctl_arguments arguments;
        struct err err;
        assert_int_equal(read_line(&arguments, &err, (char **)rows[i].words), ERR_INVALID);
        if (!strstr(err.msg, rows[i].part))
            fail_msg("row %zu: %s", i, err.msg);
    }
}

static void test_numbers_within_their_bounds(void **state)
{
    (void)state;
    struct ctl_arguments arguments;
    struct err err;
    int64_t number = 0;
    ASSERT_OK(READ(&arguments, &err, "list", "--limit", "12"), &err);
    ASSERT_OK(ctl_option_number(&arguments, "limit", 1, 100, 50, &number, &err), &err);
    assert_int_equal(number, 12);
    assert_int_equal(ctl_option_number(&arguments, "limit", 1, 11, 50, &number, &err), ERR_INVALID);
    ASSERT_OK(READ(&arguments, &err, "list"), &err);
    ASSERT_OK(ctl_option_number(&arguments, "limit", 1, 11, 50, &number, &err), &err);
    assert_int_equal(number, 50);
    int64_t ms = 0;
    assert_true(ctl_duration("1.5", &ms) && ms == 1500);
    assert_true(ctl_duration("250ms", &ms) && ms == 250);
    assert_true(ctl_duration("2m", &ms) && ms == 120000);
    static const char *const bad[] = { "", "x", "-1", "1 s", "1..2", "1w", "1e9", "99999999999" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(ctl_duration(bad[i], &ms));
}

static void test_every_verb_has_its_help_and_stands_in_the_overview(void **state)
{
    (void)state;
    struct buf usage = { 0 };
    ctl_write_usage(ctl_verbs, &usage);
    for (size_t i = 0; ctl_verbs[i]; i++) {
        struct buf help = { 0 };
        ctl_write_help(ctl_verbs[i], &help);
        assert_non_null(strstr(buf_cstr(&usage), ctl_verbs[i]->name));
        assert_non_null(strstr(buf_cstr(&help), ctl_verbs[i]->arguments));
        assert_true(ctl_verbs[i]->max <= CTL_POSITIONAL_MAX &&
                    ctl_verbs[i]->min <= ctl_verbs[i]->max);
        for (size_t o = 0; ctl_verbs[i]->options && ctl_verbs[i]->options[o].name; o++) {
            assert_true(o < CTL_OPTIONS_MAX);
            assert_non_null(strstr(buf_cstr(&help), ctl_verbs[i]->options[o].name));
        }
        buf_done(&help);
    }
    buf_done(&usage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_stand_anywhere),
        cmocka_unit_test(test_verbs_of_two_words_and_arguments_that_look_like_options),
        cmocka_unit_test(test_mistakes_are_refused_with_the_reason),
        cmocka_unit_test(test_numbers_within_their_bounds),
        cmocka_unit_test(test_every_verb_has_its_help_and_stands_in_the_overview),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
