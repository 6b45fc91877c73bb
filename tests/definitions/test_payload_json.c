/* Goal: our proto3 JSON is that of Python's protobuf, byte for byte, both ways; what is no JSON of
 * the type is refused with its place. Method: messages with every kind of field at its extremes,
 * random ones, and ones in pieces, made and printed by Python (payload_json.py): our text must be
 * its text, and the bytes of that text its bytes. Tables of texts and bytes with one fault each;
 * texts changed byte by byte, and each allocation failed in turn, with the sanitizers as judge. */
#include "definitions/sets.h"

#include "base/buf.h"
#include "base/rng.h"
#include "schema/payload.h"
#include "support/scratch.h"

#include <stdio.h>

#define KINDS "test.kinds.Kinds"
#define SMALL "test.kinds.Small"
#define OLD   "test.kinds.Old"

static struct schema *schema;
static char python_folder[SCRATCH_PATH_SIZE]; /* what protoc made for Python */

static int setup(void **state)
{
    (void)state;
    struct err err;
    schema = schema_of(set_of_file("kinds.proto"));
    SETUP_OK(scratch_path("python", python_folder, &err), &err);
    run("mkdir %s", python_folder);
    run("%s -I %s/tests/definitions -I %s --python_out=%s kinds.proto kinds_old.proto", PROTOC,
        SOURCE_DIR, PROTO_WELL_KNOWN, python_folder);
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

static int write_json(const char *type, struct bytes message, struct buf *out, size_t *unknown,
                      struct err *err)
{
    return payload_json_write(schema, schema_message_find(schema, type), message.data, message.size,
                              out, unknown, err);
}

/* In a block of its own, so that a read beyond the end is seen. */
static int read_json(const char *type, const char *text, size_t size, struct bytes *ret,
                     struct err *err)
{
    struct bytes copy = { 0 };
    assert_int_equal(mem_bytes_copy(text, size, &copy), 0);
    int rc = payload_json_read(schema, schema_message_find(schema, type), (const char *)copy.data,
                               copy.size, ret, err);
    mem_free(copy.data);
    return rc;
}

/* ---- as Python ---- */

/* Takes hexadecimal digits. */
static struct bytes from_hex(const char *text)
{
    size_t size = strlen(text) / 2;
    struct bytes bytes = { mem_calloc(1, size + 1), size };
    assert_non_null(bytes.data);
    for (size_t i = 0; i < size; i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        bytes.data[i] = (uint8_t)byte;
    }
    return bytes;
}

static void assert_bytes(const struct bytes *got, const struct bytes *wanted, const char *text)
{
    if (got->size != wanted->size || (got->size && memcmp(got->data, wanted->data, got->size) != 0))
        fail_msg("%zu bytes instead of %zu of %s", got->size, wanted->size, text);
}

/* type, bytes, bytes anew, JSON */
static void compare_line(char *line)
{
    char *columns[4];
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        columns[i] = strsep(&line, "\t");
        assert_non_null(columns[i]);
    }
    CLEANUP(bytes_done) struct bytes message = from_hex(columns[1]);
    CLEANUP(bytes_done) struct bytes anew = from_hex(columns[2]);
    CLEANUP(bytes_done) struct bytes read = { 0 };
    CLEANUP(buf_done_p) struct buf text = { 0 };
    size_t unknown = 99;
    struct err err;
    ASSERT_OK(write_json(columns[0], message, &text, &unknown, &err), &err);
    if (strcmp(buf_cstr(&text), columns[3]) != 0) {
        print_error("ours:   %s\nPython: %s\n", buf_cstr(&text), columns[3]);
        fail();
    }
    assert_int_equal(unknown, 0);
    ASSERT_OK(read_json(columns[0], columns[3], strlen(columns[3]), &read, &err), &err);
    assert_bytes(&read, &anew, columns[3]);
}

static struct bytes python(const char *arguments)
{
    char out[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("python-said", out, &err), &err);
    run("%s -B %s/tests/definitions/payload_json.py %s %s >%s", PYTHON, SOURCE_DIR, python_folder,
        arguments, out);
    return file_read(out);
}

static void compare_with_python(size_t least, const char *fmt, unsigned long long seed, int count)
{
    char arguments[64];
    (void)snprintf(arguments, sizeof arguments, "%s %llu %d", fmt, seed, count);
    print_message("%s\n", arguments);
    CLEANUP(bytes_done) struct bytes lines = python(arguments);
    size_t compared = 0;
    char *rest = (char *)lines.data;
    for (char *line; (line = strsep(&rest, "\n")) && *line; compared++)
        compare_line(line);
    print_message("%zu messages\n", compared);
    assert_true(compared >= least);
}

static void test_each_field_is_as_python_has_it(void **state)
{
    (void)state;
    compare_with_python(700, "each", 0, 0);
}

static unsigned long long seed_of_today(void)
{
    const char *seed = getenv("SAGAD_TEST_SEED");
    return seed ? strtoull(seed, NULL, 10) : 20260302;
}

static void test_random_messages_are_as_python_has_them(void **state)
{
    (void)state;
    int count = test_is_full_size() ? 4000 : 400;
    compare_with_python((size_t)count, "random", seed_of_today(), count);
}

static void test_messages_in_pieces_are_as_python_has_them(void **state)
{
    (void)state;
    int count = test_is_full_size() ? 2000 : 200;
    compare_with_python((size_t)count / 2, "pieces", seed_of_today(), count);
}

static void test_floating_point_is_as_python_prints_it(void **state)
{
    (void)state;
    int count = test_is_full_size() ? 200 : 20;
    compare_with_python((size_t)count, "numbers", seed_of_today(), count);
}

/* ---- what else is read ---- */

/* Other spellings than those that are written. Python takes them, and makes the same of them. */
static const char *const spellings[] = {
    "{}",
    " { \"a_int32\" : 1 , \"aUint32\":2\n}",
    "{\"a_double\":1}",
    "{\"aDouble\":\"1.5\"}",
    "{\"aDouble\":\"-1e-3\"}",
    "{\"aDouble\":100000000000000000000}",
    "{\"aFloat\":\"Infinity\",\"aDouble\":\"-Infinity\",\"oDouble\":\"NaN\"}",
    "{\"aInt64\":5,\"aUint64\":9223372036854775807,\"aFixed64\":\"18446744073709551615\"}",
    "{\"aInt32\":1.0,\"aSint32\":-2e3,\"aUint32\":\"7\",\"aSfixed64\":\"-9\"}",
    "{\"aInt64\":4503599627370497.0}",
    "{\"aEnum\":\"CRIMSON\",\"oEnum\":-2}",
    "{\"aEnum\":77}",
    "{\"aBytes\":\"-_8=\",\"oBytes\":\"\"}",
    "{\"aBytes\":\"+/8=\"}",
    "{\"aString\":\"\\u0000\\ud83d\\ude00\\/\"}",
    "{\"aMessage\":{}}",
    "{\"aMessage\":null,\"rInt32\":null,\"mBool\":null,\"aInt32\":null,\"cInt32\":null}",
    "{\"cInt32\":null,\"cString\":\"x\"}",
    "{\"cNull\":null}",
    "{\"wNull\":null}",
    "{\"cValue\":null}",
    "{\"wValue\":null}",
    "{\"wValue\":[null,1,\"x\",true,{\"a\":{}},[]]}",
    "{\"rwValue\":[null]}",
    "{\"wStruct\":{}}",
    "{\"wList\":[]}",
    "{\"wMask\":\"\"}",
    "{\"wMask\":\"aB,c.dE\"}",
    "{\"wTime\":\"2026-03-02T14:05:11.25+01:00\"}",
    "{\"wDuration\":\"-0.5s\"}",
    "{\"wInt64\":1,\"wBool\":false,\"wString\":\"\",\"wDouble\":\"NaN\"}",
    "{\"wAny\":{}}",
    "{\"wAny\":{\"number\":1,\"@type\":\"x/test.kinds.Small\"}}",
    "{\"wAny\":{\"value\":\"1s\",\"@type\":\"x/google.protobuf.Duration\"}}",
    "{\"wAny\":{\"@type\":\"x/google.protobuf.Any\",\"value\":{\"@type\":\"test.kinds.Small\"}}}",
    "{\"mInt32\":{\"-5\":\"a\",\"3\":\"b\"},\"mBool\":{\"true\":\"x\",\"false\":\"y\"}}",
    "{\"@other name\":3,\"UPPERCase\":1,\"Led\":2,\"trailed\":4}",
    "{\"named\":3,\"UPPER_case\":1,\"_led\":2,\"trailed_\":4}",
    "{\"old\":{\"id\":5,\"someClosed\":[\"ONE\",2]}}",
};

static void test_other_spellings_are_read_as_python_reads_them(void **state)
{
    (void)state;
    char in[SCRATCH_PATH_SIZE], arguments[SCRATCH_PATH_SIZE + 16];
    CLEANUP(buf_done_p) struct buf lines = { 0 };
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
        for (const char *c = spellings[i]; *c; c++)
            buf_append(&lines, *c == '\n' ? " " : c, 1);
        buf_text(&lines, "\n");
    }
    ASSERT_OK(scratch_path("spellings", in, &err), &err);
    file_write(in, lines.data, lines.size);
    (void)snprintf(arguments, sizeof arguments, "read <%s", in);
    CLEANUP(bytes_done) struct bytes said = python(arguments);
    char *rest = (char *)said.data;
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
        char *line = strsep(&rest, "\n");
        assert_non_null(line);
        if (strcmp(line, "-") == 0)
            fail_msg("Python refuses %s", spellings[i]);
        CLEANUP(bytes_done) struct bytes wanted = from_hex(line);
        CLEANUP(bytes_done) struct bytes read = { 0 };
        if (read_json(KINDS, spellings[i], strlen(spellings[i]), &read, &err) != 0)
            fail_msg("%s: %s", spellings[i], err.msg);
        assert_bytes(&read, &wanted, spellings[i]);
    }
}

/* ---- what is refused ---- */

static const struct {
    const char *text, *field, *part;
} refused_texts[] = {
    { "", "", "line 1, column 0: " },
    { "{\n  \"aInt32\": }", "", "line 2, column " },
    { "{\"aInt32\":1,\"aInt32\":2}", "", "line 1, column " },
    { "{\"aString\":\"\xff\"}", "", "line 1, column " },
    { "{\"aDouble\":1e999}", "", "line 1, column " },
    { "{} {}", "", "line 1, column " },
    { "[]", "", "must be an object, not a list" },
    { "null", "", "must be an object, not null" },
    { "{\"none\":1}", "none", "none: test.kinds.Kinds has no such field" },
    { "{\"rMessage\":[{},{\"x\":1}]}", "r_message[1].x", "test.kinds.Small has no such field" },
    { "{\"aInt32\":1,\"a_int32\":1}", "a_int32", "a_int32: is given twice, as aInt32 too" },
    { "{\"cInt32\":1,\"cString\":\"\"}", "c_string", "only one of choice, and c_int32 is given" },
    { "{\"aInt32\":2147483648}", "a_int32",
      "a_int32: must be a whole number from -2147483648 to 2147483647" },
    { "{\"aInt32\":-2147483649}", "a_int32", "must be a whole number" },
    { "{\"aSint32\":\"-2147483649\"}", "a_sint32", "must be a whole number" },
    { "{\"aSfixed32\":\"\"}", "a_sfixed32", "must be a whole number" },
    { "{\"aInt32\":1.5}", "a_int32", "must be a whole number" },
    { "{\"aInt32\":\"1.0\"}", "a_int32", "must be a whole number" },
    { "{\"aInt32\":\" 1\"}", "a_int32", "must be a whole number" },
    { "{\"aInt32\":\"-\"}", "a_int32", "must be a whole number" },
    { "{\"aInt32\":\"1\\u0000\"}", "a_int32", "must be a whole number" },
    { "{\"aInt32\":true}", "a_int32", "must be a whole number, not true or false" },
    { "{\"aUint32\":-1}", "a_uint32", "must be a whole number from 0 to 4294967295" },
    { "{\"aFixed32\":4294967296}", "a_fixed32", "must be a whole number from 0 to 4294967295" },
    { "{\"aInt64\":\"9223372036854775808\"}", "a_int64",
      "must be a whole number from -9223372036854775808 to 9223372036854775807" },
    { "{\"aSint64\":\"-9223372036854775809\"}", "a_sint64", "must be a whole number" },
    { "{\"aUint64\":\"18446744073709551616\"}", "a_uint64",
      "must be a whole number from 0 to 18446744073709551615" },
    { "{\"aUint64\":1e300}", "a_uint64", "must be a whole number from 0" },
    { "{\"aUint64\":18446744073709551615}", "a_uint64", "must be a whole number from 0" },
    { "{\"aInt64\":9007199254740993,\"aDouble\":18446744073709551615}", "a_int64",
      "must be a whole number" },
    { "{\"aDouble\":\"\"}", "a_double", "must be a number, \"NaN\", \"Infinity\"" },
    { "{\"aDouble\":\"1x\"}", "a_double", "or \"-Infinity\", not \"1x\"" },
    { "{\"aDouble\":\"inf\"}", "a_double", "must be a number" },
    { "{\"aDouble\":\"0x1\"}", "a_double", "must be a number" },
    { "{\"aDouble\":\"1e999\"}", "a_double", "must be a number" },
    { "{\"aDouble\":\"NaN\\u0000\"}", "a_double", "must be a number" },
    { "{\"aDouble\":false}", "a_double", "must be a number, not true or false" },
    { "{\"aFloat\":3.5e38}", "a_float", "is out of the range of a float" },
    { "{\"aFloat\":\"-3.5e38\"}", "a_float", "is out of the range of a float" },
    { "{\"aBool\":\"true\"}", "a_bool", "must be true or false, not a string" },
    { "{\"aBool\":1}", "a_bool", "must be true or false, not a number" },
    { "{\"aString\":1}", "a_string", "must be a string, not a number" },
    { "{\"aBytes\":1}", "a_bytes", "must be base64 text, not a number" },
    { "{\"aBytes\":\"a\"}", "a_bytes", "must be base64 text" },
    { "{\"aBytes\":\"a\\u0000==\"}", "a_bytes", "must be base64 text" },
    { "{\"aEnum\":\"GREEN\"}", "a_enum", "\"GREEN\" is no value of test.kinds.Color" },
    { "{\"aEnum\":true}", "a_enum", "must be the name of a value, not true or false" },
    { "{\"aEnum\":2147483648}", "a_enum", "must be a whole number" },
    { "{\"old\":{\"id\":1,\"closed\":9}}", "old.closed", "9 is no value of test.kinds.Old.Closed" },
    { "{\"old\":{}}", "old.id", "old.id: is required" },
    { "{\"old\":{\"id\":1,\"part\":{}}}", "old.part", "groups are refused" },
    { "{\"aMessage\":1}", "a_message", "must be an object, not a number" },
    { "{\"rInt32\":1}", "r_int32", "must be a list, not a number" },
    { "{\"rInt32\":[1,null]}", "r_int32[1]", "r_int32[1]: must be a value, not null" },
    { "{\"rInt32\":[1,\"x\"]}", "r_int32[1]", "must be a whole number" },
    { "{\"uInt32\":[1,{}]}", "u_int32[1]", "must be a whole number, not an object" },
    { "{\"rMessage\":[null]}", "r_message[0]", "must be a value, not null" },
    { "{\"mInt32\":[]}", "m_int32", "must be an object, not a list" },
    { "{\"mInt32\":{\"x\":\"\"}}", "m_int32[\"x\"]", "must be a whole number from" },
    { "{\"mInt32\":{\"1\":\"\",\"01\":\"\"}}", NULL, "the same key as \"" },
    { "{\"mBool\":{\"1\":\"\"}}", "m_bool[\"1\"]", "the key must be true or false" },
    { "{\"mUint64\":{\"-1\":1}}", "m_uint64[\"-1\"]", "must be a whole number from 0" },
    { "{\"mString\":{\"a\":null}}", "m_string[\"a\"]", "must be a value, not null" },
    { "{\"mString\":{\"a\":{\"text\":1}}}", "m_string[\"a\"].text", "must be a string" },
    { "{\"wTime\":1}", "w_time", "must be a time such as \"2026-03-02T14:05:11Z\", not a number" },
    { "{\"wTime\":\"yesterday\"}", "w_time", "must be a time such as" },
    { "{\"wTime\":\"2026-03-02T14:05:11Z\\u0000\"}", "w_time", "must be a time such as" },
    { "{\"wDuration\":\"1\"}", "w_duration", "must be a duration such as \"1.5s\", not \"1\"" },
    { "{\"wMask\":1}", "w_mask", "must be paths with commas between them, not a number" },
    { "{\"wMask\":\"a_b\"}", "w_mask", "paths are lowerCamelCase here, and none is empty" },
    { "{\"wMask\":\"a,\"}", "w_mask", "none is empty" },
    { "{\"wMask\":\",a\"}", "w_mask", "none is empty" },
    { "{\"wStruct\":1}", "w_struct", "must be an object, not a number" },
    { "{\"wList\":{}}", "w_list", "must be a list, not an object" },
    { "{\"wInt32\":\"x\"}", "w_int32", "must be a whole number" },
    { "{\"wAny\":1}", "w_any", "must be an object, not a number" },
    { "{\"wAny\":{\"a\":1}}", "w_any.@type", "an Any says its type here" },
    { "{\"wAny\":{\"@type\":1}}", "w_any.@type", "an Any says its type here" },
    { "{\"wAny\":{\"@type\":\"x/y\"}}", "w_any.@type", "an Any of the unknown type \"x/y\"" },
    { "{\"wAny\":{\"@type\":\"x/test.kinds.Kinds.MInt32Entry\"}}", "w_any.@type",
      "an Any of the unknown type" },
    { "{\"wAny\":{\"@type\":\"x/google.protobuf.Duration\"}}", "w_any",
      "an Any of google.protobuf.Duration has @type and value, and nothing else" },
    { "{\"wAny\":{\"@type\":\"x/google.protobuf.Duration\",\"value\":\"1s\",\"a\":1}}", "w_any",
      "and nothing else" },
    { "{\"wAny\":{\"@type\":\"x/google.protobuf.Duration\",\"value\":1}}", "w_any.value",
      "must be a duration" },
    { "{\"wAny\":{\"@type\":\"x/test.kinds.Small\",\"value\":1}}", "w_any.value",
      "test.kinds.Small has no such field" },
};

/* Wherever it stands; within a string it is spelled \\u0000. */
static void test_a_nul_byte_is_no_json(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *part;
    } cases[] = {
        { "{\"aInt32\":1}\0", 13, "byte 13: NUL is no JSON" },
        { "{\"aInt32\":1\0}", 13, "byte 12: NUL is no JSON" },
        { "\0{}", 3, "byte 1: NUL is no JSON" },
        { "{\"aString\":\"\0\"}", 15, "byte 13: NUL is no JSON" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(bytes_done) struct bytes read = { 0 };
        struct err err;
        assert_int_equal(read_json(KINDS, cases[i].text, cases[i].size, &read, &err), ERR_INVALID);
        if (!strstr(err.msg, cases[i].part))
            fail_msg("%s, not %s", err.msg, cases[i].part);
    }
}

static void test_texts_are_refused_with_the_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused_texts); i++) {
        struct bytes read = { 0 };
        struct err err;
        int rc =
            read_json(KINDS, refused_texts[i].text, strlen(refused_texts[i].text), &read, &err);
        if (!rc)
            print_error("taken: %s\n", refused_texts[i].text);
        assert_error(&err, rc, ERR_INVALID, refused_texts[i].field, refused_texts[i].part);
        assert_null(read.data);
    }
}

static void test_bytes_that_have_no_form_in_json(void **state)
{
    (void)state;
    static const struct {
        const char *message, *field, *part;
    } rows[] = {
        { "w_time { seconds: 253402300800 }", "w_time", "w_time: is not a valid Timestamp" },
        { "m_time { key: \"a\" value { nanos: -1 } }", "m_time[\"a\"]",
          "is not a valid Timestamp" },
        { "rw_duration { } rw_duration { seconds: 1 nanos: -1 }", "rw_duration[1]",
          "is not a valid Duration" },
        { "w_mask { paths: \"aB\" }", "w_mask", "the path \"aB\" has no form in JSON" },
        { "w_mask { paths: \"a_\" }", "w_mask", "has no form in JSON" },
        { "w_mask { paths: \"a__b\" }", "w_mask", "has no form in JSON" },
        { "w_mask { paths: \"a,b\" }", "w_mask", "has no form in JSON" },
        { "w_mask { paths: \"\" }", "w_mask", "has no form in JSON" },
        { "w_value { number_value: nan }", "w_value", "no finite number has no form in JSON" },
        { "w_list { values { number_value: inf } }", "w_list[0]", "no finite number" },
        { "w_any { value: \"x\" }", "w_any", "an Any of the unknown type \"\"" },
        { "w_any { type_url: \"x/no.Such\" }", "w_any",
          "an Any of the unknown type \"x/no.Such\"" },
        { "w_any { type_url: \"x/test.kinds.Small\" value: \"\\010\" }", "w_any",
          "an Any that is no test.kinds.Small: number: malformed varint" },
        { "w_any { type_url: \"x/test.kinds.Old\" }", "w_any",
          "an Any that is no test.kinds.Old: id: is required" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(bytes_done) struct bytes message = message_of_text(KINDS, rows[i].message);
        CLEANUP(buf_done_p) struct buf out = { 0 };
        struct err err;
        buf_text(&out, "before");
        int rc = write_json(KINDS, message, &out, NULL, &err);
        if (!rc)
            print_error("written: %s\n", rows[i].message);
        assert_error(&err, rc, ERR_INVALID, rows[i].field, rows[i].part);
        assert_string_equal(buf_cstr(&out), "before");
    }
    static const uint8_t malformed[] = { 0x4a, 0x01, 0xff };
    struct bytes message = { (uint8_t *)malformed, sizeof malformed };
    CLEANUP(buf_done_p) struct buf out = { 0 };
    struct err err;
    int rc = write_json(KINDS, message, &out, NULL, &err);
    assert_error(&err, rc, ERR_INVALID, "a_string", "is not valid UTF-8");
}

/* ---- bytes that Python writes otherwise ---- */

static const struct {
    const char *type, *hex, *text;
    size_t unknown;
} odd_bytes[] = {
    { SMALL, "08011202c3a4", "{\"number\":1,\"text\":\"\xc3\xa4\"}", 0 },
    { SMALL, "0801080208030800", "{}", 0 }, /* the last wins */
    { SMALL, "b8060108010a00", NULL, 0 },   /* wrong wire type */
    { SMALL, "b80601ba0600bd0601000000b9060100000000000000", "{}", 4 },
    { SMALL, "18011a020203180422021a00", "{\"numbers\":[1,2,3,4],\"inner\":{}}", 0 },
    { SMALL, "1a00", "{}", 0 },
    { SMALL, "2204b806010801", NULL, 0 },         /* cut */
    { SMALL, "2203b80601", "{\"inner\":{}}", 1 }, /* at any depth */
    { SMALL, "220208012204120161b806", NULL, 0 },
    { SMALL,
      "2202080122031201612202220022042202"
      "0802",
      "{\"inner\":{\"number\":1,\"text\":\"a\",\"inner\":{\"number\":2}}}", 0 },
    { SMALL, "088080808010", "{}", 0 }, /* 2^32 as an int32 is 0 */
    { SMALL, "0881808080f0ffffffff01", "{\"number\":1}", 0 },
    { KINDS, "090000000000000080", "{\"aDouble\":-0.0}", 0 },
    { KINDS, "4002", "{\"aBool\":true}", 0 },
    /* a oneof: the others end */
    { KINDS,
      "b80401"
      "c2040178",
      "{\"cString\":\"x\"}", 0 },
    { KINDS,
      "ca04020801"
      "b80405"
      "ca04021201"
      "61",
      NULL, 0 },
    { KINDS,
      "ca04020801"
      "b80405"
      "ca0403120161",
      "{\"cMessage\":{\"text\":\"a\"}}", 0 },
    { KINDS,
      "ca04020801"
      "ca0403120161",
      "{\"cMessage\":{\"number\":1,\"text\":\"a\"}}", 0 },
    /* maps: an entry without key or value, twice the same key, unknown fields in it */
    { KINDS, "8a0500", "{\"mInt32\":{\"0\":\"\"}}", 0 },
    { KINDS, "e20500", "{\"mString\":{\"\":{}}}", 0 },
    { KINDS,
      "8a0505080112016"
      "18a0505080112016"
      "2",
      "{\"mInt32\":{\"1\":\"b\"}}", 0 },
    { KINDS, "8a0505b806010801", "{\"mInt32\":{\"1\":\"\"}}", 1 },
    { KINDS,
      "8a05020802"
      "8a0502"
      "0801",
      "{\"mInt32\":{\"1\":\"\",\"2\":\"\"}}", 0 },
    /* closed enums: numbers that are not declared are unknown fields */
    { OLD, "08011809", "{\"id\":1}", 1 },
    { OLD,
      "08011802"
      "1809",
      "{\"id\":1,\"closed\":\"TWO\"}", 1 },
    { OLD, "080120092001", "{\"id\":1,\"someClosed\":[\"ONE\"]}", 1 },
    { OLD, "08012009", "{\"id\":1}", 1 },
    { OLD, "08013203010902", "{\"id\":1,\"packedClosed\":[\"ONE\",\"TWO\"]}", 1 },
    { OLD, "0801320109", "{\"id\":1}", 1 },
    { OLD, "08013a050a01611009", "{\"id\":1}", 1 },
    { OLD, "08013a030a0161", "{\"id\":1,\"byName\":{\"a\":\"CALM\"}}", 0 },
    { OLD,
      "08015007"
      "6009",
      "{\"id\":1,\"thisOne\":7}", 1 },
    /* an Any with a field that its type does not know */
    { KINDS,
      "aa0619"
      "0a12782f746573742e6b696e64732e536d616c6c"
      "1203b80601",
      "{\"wAny\":{\"@type\":\"x/test.kinds.Small\"}}", 1 },
};

static void test_odd_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(odd_bytes); i++) {
        CLEANUP(bytes_done) struct bytes message = from_hex(odd_bytes[i].hex);
        CLEANUP(buf_done_p) struct buf out = { 0 };
        struct err err;
        size_t unknown = 99;
        int rc = write_json(odd_bytes[i].type, message, &out, &unknown, &err);
        if (!odd_bytes[i].text) {
            assert_int_equal(rc, ERR_INVALID);
            assert_int_equal(unknown, 99);
            continue;
        }
        if (rc)
            fail_msg("%s: %s", odd_bytes[i].hex, err.msg);
        assert_string_equal(buf_cstr(&out), odd_bytes[i].text);
        if (unknown != odd_bytes[i].unknown)
            fail_msg("%s: %zu unknown", odd_bytes[i].hex, unknown);
    }
}

/* ---- depth and size ---- */

/* {"inner":{"inner":..}}, `depth` messages. */
static void nest(struct buf *out, size_t depth, const char *open, const char *innermost,
                 const char *close)
{
    buf_clear(out);
    for (size_t i = 1; i < depth; i++)
        buf_text(out, open);
    buf_text(out, innermost);
    for (size_t i = 1; i < depth; i++)
        buf_text(out, close);
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *type, *open, *innermost, *close;
        size_t depth; /* how often `open` may stand */
    } rows[] = {
        { SMALL, "{\"inner\":", "{}", "}", PAYLOAD_DEPTH_MAX },
        /* the entry of a map is a message, too */
        { KINDS, "{\"again\":", "{\"mBool\":{\"true\":\"x\"}}", "}", PAYLOAD_DEPTH_MAX - 1 },
        /* a Value and a ListValue each */
        { "google.protobuf.ListValue", "[", "[]", "]", PAYLOAD_DEPTH_MAX / 2 },
        /* a Struct, an entry and a Value each */
        { "google.protobuf.Struct", "{\"a\":", "{}", "}", (PAYLOAD_DEPTH_MAX - 1) / 3 + 1 },
        { "google.protobuf.Any", "{\"@type\":\"x/google.protobuf.Any\",\"value\":", "{}", "}",
          PAYLOAD_DEPTH_MAX },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(buf_done_p) struct buf text = { 0 };
        CLEANUP(buf_done_p) struct buf again = { 0 };
        CLEANUP(bytes_done) struct bytes read = { 0 };
        struct err err;
        nest(&text, rows[i].depth, rows[i].open, rows[i].innermost, rows[i].close);
        ASSERT_OK(read_json(rows[i].type, buf_cstr(&text), text.size, &read, &err), &err);
        ASSERT_OK(write_json(rows[i].type, read, &again, NULL, &err), &err);
        assert_string_equal(buf_cstr(&again), buf_cstr(&text));
        struct bytes none = { 0 };
        nest(&text, rows[i].depth + 1, rows[i].open, rows[i].innermost, rows[i].close);
        int rc = read_json(rows[i].type, buf_cstr(&text), text.size, &none, &err);
        assert_error(&err, rc, ERR_LIMIT, NULL, "messages nested deeper than 100");
        nest(&text, 100000, rows[i].open, rows[i].innermost, rows[i].close);
        rc = read_json(rows[i].type, buf_cstr(&text), text.size, &none, &err);
        assert_error(&err, rc, ERR_LIMIT, NULL, "maximum parsing depth");
    }
}

/* An Any is bytes to the check, so that the depth of its content is seen only when it is written:
 * `levels` of them around the innermost bytes. */
static int write_nested_any(size_t levels, const void *innermost, size_t size, struct err *err)
{
    static const char url[] = "x/google.protobuf.Any";
    uint8_t room[8192];
    size_t at = sizeof room - size;
    memcpy(room + at, innermost, size);
    for (size_t i = 0; i < levels; i++) { /* from the innermost outwards */
        size_t length = sizeof room - at;
        room[--at] = (uint8_t)(length >> 7);
        room[--at] = (uint8_t)(length | 0x80);
        room[--at] = 0x12;
        at -= sizeof url - 1;
        memcpy(room + at, url, sizeof url - 1);
        room[--at] = sizeof url - 1;
        room[--at] = 0x0a;
    }
    CLEANUP(buf_done_p) struct buf out = { 0 };
    struct bytes message = { room + at, sizeof room - at };
    return write_json("google.protobuf.Any", message, &out, NULL, err);
}

static void test_depth_within_an_any_is_bounded(void **state)
{
    (void)state;
    static const char too_deep[] = "messages nested deeper than 100";
    static const char map[] =
        "\x0a\x12x/test.kinds.Kinds\x12\x03\xda\x05"; /* m_bool, an empty entry: the NUL is its
                                                         length */
    struct err err;
    ASSERT_OK(write_nested_any(PAYLOAD_DEPTH_MAX - 1, "", 0, &err), &err);
    assert_error(&err, write_nested_any(PAYLOAD_DEPTH_MAX, "", 0, &err), ERR_LIMIT, NULL, too_deep);
    ASSERT_OK(write_nested_any(PAYLOAD_DEPTH_MAX - 3, map, sizeof map, &err), &err);
    assert_error(&err, write_nested_any(PAYLOAD_DEPTH_MAX - 2, map, sizeof map, &err), ERR_LIMIT,
                 NULL, too_deep);
}

static void test_a_text_may_be_bounded(void **state)
{
    (void)state;
    static const uint8_t bytes[] = { 0x12, 0x03, 'a', 'b', 'c' };
    struct bytes message = { (uint8_t *)bytes, sizeof bytes };
    for (size_t limit = 1; limit <= 14; limit++) {
        CLEANUP(buf_done_p) struct buf out = { .limit = limit };
        struct err err;
        int rc = write_json(SMALL, message, &out, NULL, &err);
        if (limit == 14)
            assert_string_equal(buf_cstr(&out), "{\"text\":\"abc\"}");
        else
            assert_error(&err, rc, ERR_LIMIT, "", "longer than ");
    }
}

/* ---- whatever comes ---- */

/* A text that is read is written, and that is read as the same. */
static int try_text(const char *text, size_t size)
{
    CLEANUP(bytes_done) struct bytes read = { 0 };
    CLEANUP(bytes_done) struct bytes again = { 0 };
    CLEANUP(buf_done_p) struct buf out = { 0 };
    struct err err;
    int rc = read_json(KINDS, text, size, &read, &err);
    assert_true(!rc || ((rc == ERR_INVALID || rc == ERR_LIMIT) && *err.msg));
    if (rc)
        return rc;
    ASSERT_OK(payload_check(schema_message_find(schema, KINDS), read.data, read.size, &err), &err);
    ASSERT_OK(write_json(KINDS, read, &out, NULL, &err), &err);
    ASSERT_OK(read_json(KINDS, buf_cstr(&out), out.size, &again, &err), &err);
    assert_bytes(&again, &read, buf_cstr(&out));
    return 0;
}

static void test_texts_that_were_changed(void **state)
{
    (void)state;
    struct rng rng;
    uint64_t seed = seed_of_today();
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    size_t rounds = test_is_full_size() ? 500 : 20, taken = 0, refused = 0;
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
        char text[256];
        size_t size = strlen(spellings[i]);
        assert_true(size < sizeof text);
        assert_int_equal(try_text(spellings[i], size), 0);
        for (size_t round = 0; round < rounds; round++) {
            static const char letters[] = "{}[]\":,0123456789-.eEaAbBx_@\\ntrufls/";
            memcpy(text, spellings[i], size);
            text[rng_below(&rng, (uint32_t)size)] =
                letters[rng_below(&rng, (uint32_t)(sizeof letters - 1))];
            if (try_text(text, size) == 0)
                taken++;
            else
                refused++;
        }
        for (size_t cut = 0; cut < size; cut++)
            assert_int_not_equal(try_text(spellings[i], cut), 0);
    }
    assert_true(taken > 0 && refused > 0);
}

static void test_memory_that_is_out(void **state)
{
    (void)state;
    CLEANUP(bytes_done)
    struct bytes message = message_of_text(
        KINDS, "a_string: \"x\" r_message { number: 1 } c_message { numbers: [1, 2] } m_string { "
               "key: \"k\" value { number: 7 } } w_struct { fields { key: \"a\" } } o_bytes: \"x\" "
               "w_mask { paths: \"a_b\" } w_any { type_url: \"x/test.kinds.Small\" }");
    CLEANUP(buf_done_p) struct buf text = { 0 };
    struct err err;
    int rc = -1;
    for (uint64_t n = 1; rc != 0; n++) {
        assert_in_range(n, 1, 1000);
        buf_done(&text);
        mem_fail_at(n, false);
        rc = write_json(KINDS, message, &text, NULL, &err);
        mem_fail_at(0, false);
        assert_true(!rc || rc == ERR_NOMEM);
    }
    rc = -1;
    for (uint64_t n = 1; rc != 0; n++) {
        assert_in_range(n, 1, 1000);
        struct bytes read = { 0 };
        mem_fail_at(n, false);
        rc = payload_json_read(schema, schema_message_find(schema, KINDS), buf_cstr(&text),
                               text.size, &read, &err);
        mem_fail_at(0, false);
        assert_true(!rc || rc == ERR_NOMEM);
        assert_true(rc == 0 || !read.data);
        mem_free(read.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_field_is_as_python_has_it),
        cmocka_unit_test(test_random_messages_are_as_python_has_them),
        cmocka_unit_test(test_messages_in_pieces_are_as_python_has_them),
        cmocka_unit_test(test_floating_point_is_as_python_prints_it),
        cmocka_unit_test(test_other_spellings_are_read_as_python_reads_them),
        cmocka_unit_test(test_texts_are_refused_with_the_place),
        cmocka_unit_test(test_a_nul_byte_is_no_json),
        cmocka_unit_test(test_bytes_that_have_no_form_in_json),
        cmocka_unit_test(test_odd_bytes),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_depth_within_an_any_is_bounded),
        cmocka_unit_test(test_a_text_may_be_bounded),
        cmocka_unit_test(test_texts_that_were_changed),
        cmocka_unit_test(test_memory_that_is_out),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
