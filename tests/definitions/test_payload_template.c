/* Goal: a template is taken exactly when it can be filled from every message of its type, and is
 * filled as it says. Method: tables of templates, one fault each; messages that protoc wrote. */
#include "definitions/sets.h"

#include "schema/payload.h"

#include <stdio.h>

#define KINDS "test.kinds.Kinds"
#define OLD   "test.kinds.Old"

static struct schema *schema;

static int setup(void **state)
{
    (void)state;
    schema = schema_of(set_of_file("kinds.proto"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    schema = schema_free(schema);
    return 0;
}

static void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

static void test_templates_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field, *part; /* part NULL: it is taken */
    } rows[] = {
        { "", "", NULL },
        { "order", "", NULL },
        { "{{a_string}}", "", NULL },
        { "{a_string}-{a_int32}", "", NULL },
        { "{again.again.a_message.text}", "", NULL },
        { "{w_time.seconds}", "", NULL },
        { "{old.closed}{c_int32}{c_null}", "", NULL },
        { "{o_bool}{a_uint64}{a_fixed32}{a_sint64}{a_enum}", "", NULL },
        { "{", "", "a { without its }" },
        { "{a_string", "", "a { without its }" },
        { "{a_{string}", "", "a { without its }" },
        { "x}", "", "a } without its {" },
        { "{{}", "", "a } without its {" },
        { "{}", "", "{}: test.kinds.Kinds has no field \"\"" },
        { "{aString}", "aString", "{aString}: test.kinds.Kinds has no field \"aString\"" },
        { "{a_message.}", "a_message.", "test.kinds.Small has no field \"\"" },
        { "{.a_string}", ".a_string", "test.kinds.Kinds has no field \"\"" },
        { "{a_message.other}", "a_message.other", "test.kinds.Small has no field \"other\"" },
        { "{a_string.text}", "a_string.text", "{a_string.text}: a_string is no message" },
        { "{a_message}", "a_message", "{a_message}: a_message is a message, bytes or floating" },
        { "{a_bytes}", "a_bytes", "a_bytes is a message, bytes or floating point" },
        { "{a_double}", "a_double", "a_double is a message, bytes or floating point" },
        { "{a_float}", "a_float", "a_float is a message, bytes or floating point" },
        { "{old.part}", "old.part", "part is a message, bytes or floating point" },
        { "{old.part.size}", "old.part.size", "part is no message" },
        { "{r_int32}", "r_int32", "{r_int32}: r_int32 is repeated" },
        { "{r_message.text}", "r_message.text", "r_message is repeated" },
        { "{m_string.key}", "m_string.key", "m_string is repeated" },
    };
    const struct schema_message *type = schema_message_find(schema, KINDS);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        int rc = payload_template_check(type, rows[i].text, &err);
        if (rows[i].part)
            assert_error(&err, rc, ERR_INVALID, rows[i].field, rows[i].part);
        else
            ASSERT_OK(rc, &err);
    }
}

static void test_a_path_is_as_deep_as_a_message(void **state)
{
    (void)state;
    const struct schema_message *type = schema_message_find(schema, KINDS);
    CLEANUP(buf_done_p) struct buf text = { 0 };
    struct err err;
    buf_text(&text, "{");
    for (size_t i = 1; i < PAYLOAD_DEPTH_MAX; i++)
        buf_text(&text, "again.");
    size_t deep = text.size;
    buf_text(&text, "a_bool}");
    ASSERT_OK(payload_template_check(type, buf_cstr(&text), &err), &err);
    text.size = deep;
    buf_text(&text, "again.a_bool}");
    assert_error(&err, payload_template_check(type, buf_cstr(&text), &err), ERR_INVALID, NULL,
                 "deeper than 100");
}

static const struct {
    const char *type, *message, *text, *filled,
        *field; /* filled NULL: refused; field "": as too long */
} fills[] = {
    { KINDS, "", "order", "order", NULL },
    { KINDS, "a_string: \"x\"", "{{{a_string}}}", "{x}", NULL },
    { KINDS, "a_string: \"x\" a_int32: -5", "a-{a_string}/{a_int32}{a_int32}", "a-x/-5-5", NULL },
    { KINDS, "", "{a_int32}{a_bool}{a_enum}{o_int64}{c_enum}", "0falseCOLOR_NONE0COLOR_NONE",
      NULL },
    { KINDS, "a_uint64: 18446744073709551615 a_fixed64: 18446744073709551615",
      "{a_uint64} {a_fixed64}", "18446744073709551615 18446744073709551615", NULL },
    { KINDS, "a_int64: -9223372036854775808 a_sint64: -9223372036854775808 a_sfixed64: -1",
      "{a_int64} {a_sint64} {a_sfixed64}", "-9223372036854775808 -9223372036854775808 -1", NULL },
    { KINDS, "a_uint32: 4294967295 a_fixed32: 4294967295 a_sint32: -2147483648 a_sfixed32: -2",
      "{a_uint32} {a_fixed32} {a_sint32} {a_sfixed32}", "4294967295 4294967295 -2147483648 -2",
      NULL },
    { KINDS, "a_bool: true a_enum: CRIMSON o_enum: BLUE", "{a_bool} {a_enum} {o_enum}",
      "true RED BLUE", NULL },
    { KINDS, "a_enum: 77", "{a_enum}", "77", NULL },
    { KINDS, "a_message { inner { text: \"\\303\\244{}\" } }", "{a_message.inner.text}",
      "\xc3\xa4{}", NULL },
    { KINDS, "a_message { number: 1 }", "{a_message.inner.number}", "0", NULL },
    { KINDS, "", "x{a_string}", NULL, "a_string" },
    { KINDS, "a_string: \"y\"", "{a_string}{a_message.text}", NULL, "a_message.text" },
    { KINDS, "a_string: \"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\"", "-{a_string}{a_string}-",
      "-yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy-", NULL },
    { KINDS, "a_string: \"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\"", "-{a_string}{a_string}--", NULL, "" },
    { OLD, "id: 1", "{text} {closed} {id} {this_one} {closed_one}", "none TWO 1 0 ONE", NULL },
    { OLD, "id: 1 text: \"t\" closed: ONE", "{text} {closed}", "t ONE", NULL },
    { OLD, "id: 1 text: \"\"", "{text}", NULL, "text" },
};
enum { FILL_MAX = 64 };

static void test_templates_are_filled(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fills); i++) {
        CLEANUP(bytes_done) struct bytes message = message_of_text(fills[i].type, fills[i].message);
        CLEANUP(buf_done_p) struct buf out = { 0 };
        struct err err;
        buf_text(&out, "before ");
        int rc = payload_template_fill(schema_message_find(schema, fills[i].type), fills[i].text,
                                       message.data, message.size, FILL_MAX, &out, &err);
        if (fills[i].field)
            assert_error(&err, rc, ERR_INVALID, fills[i].field,
                         *fills[i].field ? "is empty" : "longer than 64 bytes");
        else
            ASSERT_OK(rc, &err);
        assert_int_equal(strncmp(buf_cstr(&out), "before ", 7), 0);
        assert_string_equal(buf_cstr(&out) + 7, rc ? "" : fills[i].filled);
    }
}

/* Pieces of a message, one behind the other: the last of several wins, sub-messages merge, and a
 * member of a oneof ends the others. */
static void test_bytes_in_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *type, *first, *second, *text, *filled;
    } rows[] = {
        { KINDS, "a_int32: 1", "a_int32: 2", "{a_int32}", "2" },
        { KINDS, "a_message { number: 1 }", "a_message { text: \"t\" }",
          "{a_message.number}{a_message.text}", "1t" },
        { KINDS, "a_message { inner { number: 1 } }", "a_message { inner { number: 2 } }",
          "{a_message.inner.number}", "2" },
        { KINDS, "c_int32: 1", "c_string: \"s\"", "{c_int32}{c_string}", "0s" },
        { KINDS, "c_message { number: 1 }", "c_bool: true", "{c_message.number}", "0" },
        { KINDS, "c_message { number: 1 }", "c_message { text: \"t\" }", "{c_message.number}",
          "1" },
        { KINDS, "c_int32: 1", "d_double: 1", "{c_int32}", "1" }, /* another oneof */
        { KINDS, "c_int32: 1", "a_bool: true", "{c_int32}", "1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(bytes_done) struct bytes first = message_of_text(rows[i].type, rows[i].first);
        CLEANUP(bytes_done) struct bytes second = message_of_text(rows[i].type, rows[i].second);
        CLEANUP(buf_done_p) struct buf both = { 0 };
        CLEANUP(buf_done_p) struct buf out = { 0 };
        buf_append(&both, first.data, first.size);
        buf_append(&both, second.data, second.size);
        struct err err;
        ASSERT_OK(payload_template_fill(schema_message_find(schema, rows[i].type), rows[i].text,
                                        both.data, both.size, 100, &out, &err),
                  &err);
        assert_string_equal(buf_cstr(&out), rows[i].filled);
    }
}

static void test_a_closed_enum_does_not_know_other_numbers(void **state)
{
    (void)state;
    static const uint8_t bytes[] = { 0x08, 0x01, 0x18, 0x09 }; /* id: 1, closed: 9 */
    /* this_one: 7, closed_one: 9, which is no member and ends nothing */
    static const uint8_t either[] = { 0x08, 0x01, 0x50, 0x07, 0x60, 0x09 };
    CLEANUP(buf_done_p) struct buf out = { 0 };
    struct err err;
    const struct schema_message *old = schema_message_find(schema, OLD);
    ASSERT_OK(payload_template_fill(old, "{closed}", bytes, sizeof bytes, 100, &out, &err), &err);
    ASSERT_OK(payload_template_fill(old, "{this_one}", either, sizeof either, 100, &out, &err),
              &err);
    assert_string_equal(buf_cstr(&out), "TWO7");
}

static void test_bytes_are_checked_first(void **state)
{
    (void)state;
    static const uint8_t bytes[] = { 0x4a, 0x01, 0xff }; /* a_string */
    CLEANUP(buf_done_p) struct buf out = { 0 };
    struct err err;
    const struct schema_message *type = schema_message_find(schema, KINDS);
    int rc = payload_template_fill(type, "x", bytes, sizeof bytes, 100, &out, &err);
    assert_error(&err, rc, ERR_INVALID, "a_string", "is not valid UTF-8");
    rc = payload_template_fill(type, "{none}", NULL, 0, 100, &out, &err);
    assert_error(&err, rc, ERR_INVALID, "none", "has no field \"none\"");
    mem_fail_at(1, true);
    rc = payload_template_fill(type, "x", NULL, 0, 100, &out, &err);
    mem_fail_at(0, false);
    assert_error(&err, rc, ERR_NOMEM, "", "out of memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates_are_refused_with_the_reason),
        cmocka_unit_test(test_a_path_is_as_deep_as_a_message),
        cmocka_unit_test(test_templates_are_filled),
        cmocka_unit_test(test_bytes_in_pieces),
        cmocka_unit_test(test_a_closed_enum_does_not_know_other_numbers),
        cmocka_unit_test(test_bytes_are_checked_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
