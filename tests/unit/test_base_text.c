/* Goal: UTF-8, UUIDs, buffers and errors do what their headers say, at every edge. Method: tables
 * of edges; every code point and every two-byte sequence against the definition of RFC 3629. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/uuid.h"
#include "support/check.h"

#include <stdio.h>

static size_t encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint32_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    out[0] = (char)(lead[size] | code >> (6 * (size - 1)));
    for (size_t i = 1; i < size; i++)
        out[i] = (char)(0x80 | ((code >> (6 * (size - 1 - i))) & 0x3f));
    return size;
}

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x110800; code++) {
        char text[4];
        size_t size = encode(code, text);
        bool valid = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
        bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        if (utf8_is_valid(text, size) != valid || utf8_is_text(text, size) != (valid && !control))
            fail_msg("U+%04X", code);
        if (valid && size > 1 && utf8_is_valid(text, size - 1))
            fail_msg("U+%04X cut short", code);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf", /* stray, overlong */
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf", /* surrogates */
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xfe",
        "a\xc3",
        "\xc3(",
        "\xe2\x82",
        "\xf0\x9f\x98",
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(utf8_is_valid(wrong[i], strlen(wrong[i])));
    for (int first = 0; first < 256; first++) {
        for (int second = 0; second < 256; second++) {
            char text[2] = { (char)first, (char)second };
            bool ascii = first < 0x80 && second < 0x80;
            bool two = first >= 0xc2 && first <= 0xdf && second >= 0x80 && second <= 0xbf;
            assert_int_equal(utf8_is_valid(text, 2), ascii || two);
        }
    }
    assert_true(utf8_is_valid("", 0) && utf8_is_text("", 0));
    assert_true(utf8_is_valid("a\0b", 3));
    assert_false(utf8_is_text("a\0b", 3));
}

static void test_cut_splits_no_character(void **state)
{
    (void)state;
    const char *text = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1 + 2 + 3 + 4 + 1 bytes */
    static const size_t expected[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11, 11 };
    for (size_t limit = 0; limit < ARRAY_LEN(expected); limit++)
        assert_int_equal(utf8_cut(text, strlen(text), limit), expected[limit]);
    assert_int_equal(utf8_cut(text, 0, 5), 0);
}

static void test_uuid_v7(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    char text[UUID_TEXT_SIZE], before[UUID_TEXT_SIZE] = "";
    for (int i = 0; i < 1000; i++) {
        int64_t wall_ms = INT64_C(0x0123456789ab) + i;
        struct uuid uuid = uuid_v7(wall_ms, &rng, (uint8_t)i);
        assert_int_equal(uuid.bytes[6] >> 4, 7);
        assert_int_equal(uuid.bytes[8] >> 6, 2);
        assert_int_equal(uuid_shard(&uuid), i & 0xff);
        uuid_format(&uuid, text);
        assert_int_equal(strlen(text), 36);
        assert_true(strcmp(text, before) > 0);             /* later ones sort after */
        (void)snprintf(before, sizeof before, "%s", text); /* it fits */
        struct uuid back;
        assert_true(uuid_parse(text, &back));
        assert_memory_equal(&back, &uuid, sizeof uuid);
    }
    struct rng same;
    rng_seed(&same, 9);
    rng_seed(&rng, 9);
    struct uuid one = uuid_v7(1, &rng, 0), other = uuid_v7(1, &same, 0);
    assert_memory_equal(&one, &other, sizeof one);
}

static void test_uuid_parse_is_strict(void **state)
{
    (void)state;
    struct uuid uuid = { { 1 } };
    assert_true(uuid_parse("01234567-89AB-cdef-0123-456789abcdef", &uuid));
    assert_int_equal(uuid.bytes[5], 0xab);
    static const char *const wrong[] = {
        "",
        "01234567-89ab-cdef-0123-456789abcde",
        "01234567-89ab-cdef-0123-456789abcdef0",
        "01234567-89ab-cdef-0123-456789abcdeg",
        "0123456-789ab-cdef-0123-456789abcdef",
        "{1234567-89ab-cdef-0123-456789abcde}",
        "0123456789abcdef0123456789abcdef----",
        "01234567-89ab-cdef-0123 456789abcdef",
    };
    struct uuid untouched = uuid;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_false(uuid_parse(wrong[i], &untouched));
        assert_memory_equal(&untouched, &uuid, sizeof uuid);
    }
}

static void test_buf(void **state)
{
    (void)state;
    struct buf buf = { 0 };
    assert_string_equal(buf_cstr(&buf), "");
    buf_text(&buf, "a");
    buf_printf(&buf, "%d-%s", 42, "x");
    buf_append(&buf, NULL, 0);
    assert_string_equal(buf_cstr(&buf), "a42-x");
    buf_clear(&buf);
    buf_be16(&buf, 0x0102);
    buf_be32(&buf, 0x03040506);
    buf_be64(&buf, UINT64_C(0x0708090a0b0c0d0e));
    assert_int_equal(buf.size, 14);
    for (size_t i = 0; i < buf.size; i++)
        assert_int_equal(buf.data[i], i + 1);
    assert_int_equal(buf.data[14], 0);
    for (int i = 0; i < 10000; i++)
        buf_text(&buf, "0123456789");
    assert_int_equal(buf.size, 100014);
    buf_done(&buf);
    assert_null(buf.data);
}

static void test_buf_bound_and_memory(void **state)
{
    (void)state;
    struct buf buf = { .limit = 10 };
    buf_text(&buf, "0123456789"); /* up to the bound is fine */
    assert_false(buf.failed);
    buf_text(&buf, "x");
    assert_true(buf.failed);
    buf_clear(&buf);
    buf_text(&buf, "again");
    assert_false(buf.failed);
    assert_string_equal(buf_cstr(&buf), "again");
    buf_done(&buf);

    struct buf other = { 0 };
    mem_fail_at(1, false);
    buf_text(&other, "lost");
    mem_fail_at(0, false);
    assert_true(other.failed);
    buf_text(&other, "and nothing after it");
    assert_int_equal(other.size, 0);
    assert_null(buf_room(&other, 1));
    buf_done(&other);
}

static void test_err(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(err_set(&err, ERR_LIMIT, "%d of %d", 3, 2), ERR_LIMIT);
    assert_string_equal(err.msg, "3 of 2");
    assert_string_equal(err.reason, "");
    assert_false(err.retryable);
    assert_int_equal(err_set(&err, ERR_UNAVAILABLE, "away"), ERR_UNAVAILABLE);
    assert_true(err.retryable);
    assert_int_equal(err_reason(&err, ERR_PRECONDITION, "LEASE_LIVE", "held"), ERR_PRECONDITION);
    assert_string_equal(err.reason, "LEASE_LIVE");
    assert_int_equal(err_wrap(&err, "retry %s", "a"), ERR_PRECONDITION);
    assert_string_equal(err.msg, "retry a: held");
    assert_string_equal(err.reason, "LEASE_LIVE"); /* kept on the way out */
    assert_int_equal(err_field(&err, "steps[1].name", "bad"), ERR_INVALID);
    assert_string_equal(err.field, "steps[1].name");
    for (int code = 0; code < ERR_CODE_COUNT; code++)
        assert_true(strlen(err_code_name((enum err_code)code)) > 1);
    assert_string_equal(err_code_name(ERR_CODE_COUNT), "?");
}

static void test_err_is_cut_at_a_character(void **state)
{
    (void)state;
    struct err err;
    char text[601] = { 0 };
    for (size_t i = 0; i + 2 < sizeof text; i += 3)
        (void)snprintf(text + i, sizeof text - i, "\xe2\x82\xac"); /* it fits */
    (void)err_set(&err, ERR_INTERNAL, "%s", text);                 /* the code is known */
    assert_true(strlen(err.msg) > sizeof err.msg - 5);
    assert_true(utf8_is_valid(err.msg, strlen(err.msg)));
    for (int i = 0; i < 400; i++) {
        (void)err_wrap(&err, "\xc3\xa4"); /* as above */
        assert_true(strlen(err.msg) < sizeof err.msg);
        assert_true(utf8_is_valid(err.msg, strlen(err.msg)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),          cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_cut_splits_no_character),   cmocka_unit_test(test_uuid_v7),
        cmocka_unit_test(test_uuid_parse_is_strict),      cmocka_unit_test(test_buf),
        cmocka_unit_test(test_buf_bound_and_memory),      cmocka_unit_test(test_err),
        cmocka_unit_test(test_err_is_cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
