/* Goal: JSON that has no type is read as RFC 8259 has it and no digit of it is lost; what is no
 * JSON is refused with its place. Method: tables; each text that is refused is also looked for a
 * field in; every prefix of a good one; each allocation failed in turn. */
#include "support/check.h"

#include "base/mem.h"
#include "kafka/json_field.h"

#include <string.h>

static int check_text(const char *text, struct err *err)
{
    return json_field_check(text, strlen(text), err);
}

static void test_what_is_json_and_what_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fault; /* NULL: it is JSON */
    } rows[] = {
        { "null", NULL },
        { " \t\r\n{ } ", NULL },
        { "[]", NULL },
        { "[1, -2, 0, -0, 0.5, 1e9, 1E+9, 1.25e-3, true, false, null, \"\"]", NULL },
        { "{\"a\": {\"b\": [{\"c\": 1}]}, \"a\": 2}", NULL },
        { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\u0000\"", NULL },
        { "\"\u00e9\U0001f600\"", NULL },
        { "", "line 1, column 1: a value is missing" },
        { "  \n ", "line 2, column 2: a value is missing" },
        { "nul", "column 1: a value is missing" },
        { "nulls", "column 5: something follows" },
        { "True", "a value is missing" },
        { "+1", "a value is missing" },
        { "-", "column 2: a value is missing" },
        { "01", "column 2: something follows" },
        { "1.", "column 3: a digit is missing" },
        { ".5", "a value is missing" },
        { "1e", "column 3: a digit is missing" },
        { "1e+", "column 4: a digit is missing" },
        { "0x10", "something follows" },
        { "NaN", "a value is missing" },
        { "'a'", "a value is missing" },
        { "\"a", "a string without its end" },
        { "\"a\nb\"", "line 1, column 3: a control character in a string" },
        { "\"\\x\"", "column 3: no such escape" },
        { "\"\\", "no such escape" },
        { "\"\\u12g4\"", "no character in \\u" },
        { "\"\\u12", "no character in \\u" },
        { "\"\\ud800\"", "no character in \\u" },
        { "\"\\ud800\\u0041\"", "no character in \\u" },
        { "\"\\ud800\\n\"", "no character in \\u" },
        { "\"\\udc00\"", "no character in \\u" },
        { "\"\xff\"", "is not valid UTF-8" },
        { "[1,]", "a value is missing" },
        { "[1 2]", "a , or ] is missing" },
        { "[", "a value is missing" },
        { "{\"a\"}", "a : is missing" },
        { "{\"a\":}", "a value is missing" },
        { "{\"a\":1,}", "the name of a member is missing" },
        { "{a:1}", "the name of a member is missing" },
        { "{\"a\":1 \"b\":2}", "a , or } is missing" },
        { "{", "the name of a member is missing" },
        { "{}{}", "column 3: something follows" },
        { "// a\n1", "a value is missing" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        struct buf out = { 0 };
        bool is_there;
        int rc = check_text(rows[i].text, &err);
        if ((rc == 0) != (rows[i].fault == NULL) || (rc && !strstr(err.msg, rows[i].fault)))
            fail_msg("%s: %s", rows[i].text, rc ? err.msg : "is taken");
        if (rc)
            assert_int_equal(rc, ERR_INVALID);
        if (rc && json_field_write(rows[i].text, strlen(rows[i].text), "z", 1, &out, &is_there,
                                   &err) == 0)
            fail_msg("%s: a field of it", rows[i].text);
        buf_done(&out);
    }
}

static void test_how_deep_it_may_be(void **state)
{
    (void)state;
    struct err err;
    for (size_t depth = 100; depth <= 101; depth++) {
        struct buf text = { 0 };
        for (size_t i = 0; i < depth; i++)
            buf_text(&text, i % 2 ? "[" : "{\"a\":");
        buf_text(&text, "1");
        for (size_t i = depth; i-- > 0;)
            buf_text(&text, i % 2 ? "]" : "}");
        assert_int_equal(check_text(buf_cstr(&text), &err), depth > 100 ? ERR_LIMIT : 0);
        buf_done(&text);
    }
}

static const char order[] =
    "{\"id\": \"A\\u00e9\\ud83d\\ude00\\u0041\", \"n\": 12345678901234567890123,"
    " \"neg\": -7, \"zero\": 0, \"minus_zero\": -0, \"f\": 1.50, \"e\": 1e2,"
    " \"yes\": true, \"no\": false, \"none\": null, \"empty\": \"\","
    " \"list\": [{\"id\": 1}], \"in\": {\"a\\u0062\": {\"\": 5, \"c\": 6}},"
    " \"twice\": 1, \"twice\": 2, \"a.b\": 3, \"nul\": \"\\u0000\"}";

static void test_fields_as_text(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text, *fault; /* both NULL: it is not there */
    } rows[] = {
        { "id", "A\u00e9\U0001f600A", NULL },
        { "n", "12345678901234567890123", NULL },
        { "neg", "-7", NULL },
        { "zero", "0", NULL },
        { "yes", "true", NULL },
        { "no", "false", NULL },
        { "none", NULL, NULL },
        { "none.of", NULL, NULL },
        { "missing", NULL, NULL },
        { "in.missing", NULL, NULL },
        { "empty", "", NULL },
        { "in.ab.c", "6", NULL },
        { "a.b", NULL, NULL }, /* there is no a */
        { "minus_zero", NULL, "{minus_zero}: is a number that has no single spelling" },
        { "f", NULL, "{f}: is a number that has no single spelling" },
        { "e", NULL, "{e}: is a number that has no single spelling" },
        { "list", NULL, "{list}: meets a list" },
        { "list.id", NULL, "{list.id}: meets a list" },
        { "in", NULL, "{in}: meets an object" },
        { "id.x", NULL, "{id.x}: leads through what is no object" },
        { "yes.x", NULL, "{yes.x}: leads through what is no object" },
        { "neg.x", NULL, "{neg.x}: leads through what is no object" },
        { "twice", NULL, "{twice}: a member of that name is there twice" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        struct buf out = { 0 };
        bool is_there = false;
        buf_text(&out, "x");
        int rc = json_field_write(order, sizeof order - 1, rows[i].path, strlen(rows[i].path), &out,
                                  &is_there, &err);
        if (rc && (!rows[i].fault || !strstr(err.msg, rows[i].fault)))
            fail_msg("%s: %s", rows[i].path, err.msg);
        if (rc) {
            assert_int_equal(rc, ERR_INVALID);
            assert_string_equal(err.field, rows[i].path);
        } else if (rows[i].fault || is_there != (rows[i].text != NULL)) {
            fail_msg("%s: %s", rows[i].path, is_there ? buf_cstr(&out) : "is not there");
        }
        assert_int_equal(buf_cstr(&out)[0], 'x'); /* as it was, or appended to */
        assert_string_equal(buf_cstr(&out) + 1, rows[i].text ? rows[i].text : "");
        buf_done(&out);
    }
}

/* What a NUL in a string is: a character. */
static void test_a_nul_is_a_character(void **state)
{
    (void)state;
    struct err err;
    CLEANUP(buf_done) struct buf out = { 0 };
    bool is_there;
    ASSERT_OK(json_field_write(order, sizeof order - 1, "nul", 3, &out, &is_there, &err), &err);
    assert_true(is_there && out.size == 1 && out.data[0] == 0);
}

static void test_templates(void **state)
{
    (void)state;
    static const struct {
        const char *text, *made, *fault;
    } rows[] = {
        { "order-{id}-{in.ab.c}", "order-A\u00e9\U0001f600A-6", NULL },
        { "{{{n}}}", "{12345678901234567890123}", NULL },
        { "{missing}", NULL, "{missing}: is not there" },
        { "{none}", NULL, "{none}: is not there" },
        { "{empty}", NULL, "{empty}: is empty" },
        { "{f}", NULL, "no single spelling" },
        { "{id", NULL, "a { without its }" },
        { "{n}-{n}-{n}", NULL, "longer than 64 bytes" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        struct buf out = { 0 };
        int rc = json_template_fill(order, sizeof order - 1, rows[i].text, 64, &out, &err);
        if ((rc == 0) != (rows[i].fault == NULL) || (rc && !strstr(err.msg, rows[i].fault)))
            fail_msg("%s: %s", rows[i].text, rc ? err.msg : buf_cstr(&out));
        assert_string_equal(buf_cstr(&out), rc ? "" : rows[i].made);
        buf_done(&out);
    }
}

/* Read as long as it is, not as far as its first NUL, and never behind its end. */
static void test_no_part_of_it_is_json(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(json_field_check("1\0", 2, &err), ERR_INVALID);
    for (size_t size = 0; size < sizeof order - 1; size++) {
        char *part = mem_strndup(order, size);
        char *exact = mem_realloc(part, size ? size : 1); /* without its NUL: the sanitizer looks */
        assert_non_null(exact);
        assert_int_equal(json_field_check(exact, size, &err), ERR_INVALID);
        mem_free(exact);
    }
    ASSERT_OK(check_text(order, &err), &err);
}

static void test_memory_that_is_out_is_no_fault_of_the_text(void **state)
{
    (void)state;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct err err;
        struct buf out = { 0 };
        mem_fail_at(n, false);
        int rc = json_template_fill(order, sizeof order - 1, "{id}-{in.ab.c}", 64, &out, &err);
        mem_fail_at(0, false);
        done = rc == 0;
        if (rc)
            assert_int_equal(rc, ERR_NOMEM);
        buf_done(&out);
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_json_and_what_is_not),
        cmocka_unit_test(test_how_deep_it_may_be),
        cmocka_unit_test(test_fields_as_text),
        cmocka_unit_test(test_a_nul_is_a_character),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_no_part_of_it_is_json),
        cmocka_unit_test(test_memory_that_is_out_is_no_fault_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
