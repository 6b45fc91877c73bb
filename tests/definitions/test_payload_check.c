/* Goal: bytes are taken exactly when they are a message of the type, nothing is allocated, and a
 * fault is told with the path of its field. Method: messages written byte by byte, one fault each,
 * for every kind of field; messages that protoc wrote, cut and changed at every place, with the
 * sanitizers as judge. */
#include "definitions/sets.h"

#include "base/rng.h"
#include "schema/payload.h"

#include <stdio.h>

#define BYTES(...) ((const uint8_t[]){ __VA_ARGS__ }), sizeof((const uint8_t[]){ __VA_ARGS__ })

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

/* In a block of its own, so that a read beyond the end is seen; without any memory. */
static int check(const char *type, const uint8_t *data, size_t size, struct err *err)
{
    const struct schema_message *message = schema_message_find(schema, type);
    assert_non_null(message);
    struct bytes copy = { 0 };
    assert_int_equal(mem_bytes_copy(data, size, &copy), 0);
    mem_fail_at(1, true);
    int rc = payload_check(message, copy.data, copy.size, err);
    mem_fail_at(0, false);
    mem_free(copy.data);
    return rc;
}

#define KINDS  "test.kinds.Kinds"
#define SMALL  "test.kinds.Small"
#define OLD    "test.kinds.Old"
#define STRICT "test.kinds.Strict"

static void assert_taken(const char *type, const uint8_t *data, size_t size)
{
    struct err err;
    ASSERT_OK(check(type, data, size, &err), &err);
}

static void assert_refused(const char *type, const uint8_t *data, size_t size, const char *field,
                           const char *part)
{
    struct err err;
    assert_error(&err, check(type, data, size, &err), ERR_INVALID, field, part);
}

static void test_malformed_bytes_are_refused(void **state)
{
    (void)state;
    assert_taken(SMALL, NULL, 0);
    assert_taken(SMALL, BYTES(0x08, 0x05, 0x12, 0x01, 'a'));
    assert_refused(SMALL, BYTES(0x12), "text", "text: malformed length");
    assert_refused(SMALL, BYTES(0x12, 0x05, 'a'), "text", "text: length beyond the end");
    assert_refused(SMALL, BYTES(0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
                   "text", "length beyond the end");
    assert_refused(SMALL,
                   BYTES(0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
                   "text", "malformed length");
    assert_refused(SMALL, BYTES(0x80), "", "malformed field number");
    assert_refused(SMALL, BYTES(0x00, 0x00), "", "malformed field number");
    assert_refused(SMALL, BYTES(0x80, 0x80, 0x80, 0x80, 0x10, 0x00), "", "malformed field number");
    assert_refused(SMALL, BYTES(0x08, 0x80), "number", "number: malformed varint");
    assert_refused(SMALL,
                   BYTES(0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
                   "number", "malformed varint");
    assert_taken(SMALL, BYTES(0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01));
}

static void test_unknown_fields_are_passed_over_but_must_be_whole(void **state)
{
    (void)state;
    assert_taken(SMALL, BYTES(0xb8, 0x06, 0x05));                   /* varint */
    assert_taken(SMALL, BYTES(0xb9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8)); /* 64 bit */
    assert_taken(SMALL, BYTES(0xbd, 0x06, 1, 2, 3, 4));             /* 32 bit */
    assert_taken(SMALL, BYTES(0xba, 0x06, 0x02, 0xff, 0xff));       /* bytes, whatever */
    assert_refused(SMALL, BYTES(0xb9, 0x06, 1, 2, 3, 4, 5, 6, 7), "", "cut short");
    assert_refused(SMALL, BYTES(0xbd, 0x06, 1, 2, 3), "", "cut short");
    assert_refused(SMALL, BYTES(0xba, 0x06, 0x02, 0xff), "", "length beyond the end");
    assert_refused(SMALL, BYTES(0xb8, 0x06, 0xff), "", "malformed varint");
    assert_refused(SMALL, BYTES(0xbb, 0x06, 0xbc, 0x06), "", "groups and unknown wire types");
    assert_refused(SMALL, BYTES(0xbe, 0x06), "", "groups and unknown wire types"); /* type 6 */
}

/* Every field of every kind, by every wire type. */
static void test_each_kind_has_its_wire_type(void **state)
{
    (void)state;
    static const size_t sizes[] = { [0] = 1, [1] = 8, [2] = 1, [5] = 4 }; /* of zeros */
    static const unsigned wire_of[] = {
        [KIND_DOUBLE] = 1,   [KIND_FLOAT] = 5,   [KIND_FIXED64] = 1, [KIND_FIXED32] = 5,
        [KIND_STRING] = 2,   [KIND_MESSAGE] = 2, [KIND_BYTES] = 2,   [KIND_SFIXED32] = 5,
        [KIND_SFIXED64] = 1, [KIND_SINT64] = 0
    };
    const struct schema_message *type = schema_message_find(schema, KINDS);
    size_t refused = 0;
    for (size_t i = 0; i < type->field_count; i++) {
        const struct schema_field *field = &type->fields[i];
        unsigned wanted = wire_of[field->kind];
        for (unsigned wire = 0; wire < ARRAY_LEN(sizes); wire++) {
            uint8_t message[16] = { 0 };
            size_t size = 0;
            if (!sizes[wire])
                continue;
            for (uint64_t tag = (uint64_t)field->number << 3 | wire;; tag >>= 7) {
                message[size++] = (uint8_t)((tag & 0x7f) | (tag > 0x7f ? 0x80 : 0));
                if (tag <= 0x7f)
                    break;
            }
            size += sizes[wire];
            struct err err;
            int rc = check(KINDS, message, size, &err);
            bool may = wire == wanted || (wire == 2 && field->repeated);
            if (may != (rc == 0) && field->message && field->message->required_count)
                continue; /* an empty Old */
            if (may != (rc == 0))
                fail_msg("%s by wire type %u: %s", field->name, wire, rc ? err.msg : "taken");
            if (!rc)
                continue;
            assert_non_null(strstr(err.msg, "wrong wire type"));
            refused++;
        }
    }
    assert_in_range(refused, 250, 350);
}

static void test_packed_numbers_are_looked_at(void **state)
{
    (void)state;
    assert_taken(SMALL, BYTES(0x1a, 0x02, 0x01, 0x02));
    assert_taken(SMALL, BYTES(0x18, 0x01, 0x18, 0x02)); /* not packed is fine, too */
    assert_taken(SMALL, BYTES(0x1a, 0x00));
    assert_refused(SMALL, BYTES(0x1a, 0x02, 0x01, 0x80), "numbers[0]", "malformed packed numbers");
    /* r_double = 41, r_float = 42 */
    assert_taken(KINDS, BYTES(0xca, 0x02, 0x08, 1, 2, 3, 4, 5, 6, 7, 8));
    assert_refused(KINDS, BYTES(0xca, 0x02, 0x07, 1, 2, 3, 4, 5, 6, 7), "r_double[0]",
                   "malformed packed numbers");
    assert_refused(KINDS, BYTES(0xd2, 0x02, 0x05, 1, 2, 3, 4, 5), "r_float[0]",
                   "malformed packed numbers");
    assert_taken(KINDS, BYTES(0xd2, 0x03, 0x02, 0x01, 0x02)); /* u_int32 = 58 is packed here */
}

static void test_text_is_utf8(void **state)
{
    (void)state;
    assert_taken(SMALL, BYTES(0x12, 0x02, 0xc3, 0xa4));
    assert_taken(SMALL, BYTES(0x12, 0x01, 0x00)); /* NUL is a character */
    assert_taken(SMALL, BYTES(0x12, 0x00));
    assert_refused(SMALL, BYTES(0x12, 0x01, 0xff), "text", "text: is not valid UTF-8");
    assert_refused(SMALL, BYTES(0x12, 0x03, 0xed, 0xa0, 0x80), "text", "UTF-8"); /* a surrogate */
    assert_taken(KINDS, BYTES(0x52, 0x01, 0xff));                                /* bytes */
}

static void test_a_fault_is_told_with_its_path(void **state)
{
    (void)state;
    /* r_message = 57: the third; others between do not count */
    assert_refused(KINDS,
                   BYTES(0xca, 0x03, 0x00, 0x28, 0x01, 0xca, 0x03, 0x00, 0xca, 0x03, 0x05, 0x22,
                         0x03, 0x12, 0x01, 0xff),
                   "r_message[2].inner.text", "r_message[2].inner.text: is not valid UTF-8");
    /* m_string = 92: the second entry's value */
    assert_refused(KINDS, BYTES(0xe2, 0x05, 0x00, 0xe2, 0x05, 0x04, 0x12, 0x02, 0x08, 0x80),
                   "m_string[1].value.number", "malformed varint");
    assert_refused(KINDS, BYTES(0xe2, 0x05, 0x03, 0x0a, 0x01, 0xff), "m_string[0].key", "UTF-8");
    /* within a message, but at no field of it */
    assert_refused(SMALL, BYTES(0x22, 0x01, 0x00), "inner", "inner: malformed field number");
}

/* `depth` messages in one another, from the innermost outwards. */
static size_t nest(uint8_t *room, size_t size, size_t depth, const uint8_t **ret_start)
{
    size_t at = size;
    for (size_t i = 1; i < depth; i++) {
        size_t length = size - at, used = 0;
        uint8_t varint[5];
        for (size_t rest = length; used == 0 || rest; rest >>= 7)
            varint[used++] = (uint8_t)((rest & 0x7f) | (rest >> 7 ? 0x80 : 0));
        at -= used;
        memcpy(room + at, varint, used);
        room[--at] = 0x22; /* inner */
    }
    *ret_start = room + at;
    return size - at;
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    static uint8_t room[64 * 1024];
    const uint8_t *start;
    struct err err;
    size_t size = nest(room, sizeof room, PAYLOAD_DEPTH_MAX, &start);
    assert_taken(SMALL, start, size);
    size = nest(room, sizeof room, PAYLOAD_DEPTH_MAX + 1, &start);
    assert_error(&err, check(SMALL, start, size, &err), ERR_LIMIT, NULL,
                 "messages nested deeper than 100");
    size = nest(room, sizeof room, 10000, &start);
    assert_error(&err, check(SMALL, start, size, &err), ERR_LIMIT, NULL, "deeper than 100");
}

static void test_required_fields_are_there(void **state)
{
    (void)state;
    assert_refused(OLD, NULL, 0, "id", "id: is required");
    assert_taken(OLD, BYTES(0x08, 0x00));
    assert_refused(STRICT, NULL, 0, "first", "first: is required");
    assert_refused(STRICT, BYTES(0x0a, 0x00), "first.id", "first.id: is required");
    assert_refused(STRICT, BYTES(0x0a, 0x02, 0x08, 0x00), "second", "second: is required");
    assert_taken(STRICT, BYTES(0x0a, 0x02, 0x08, 0x00, 0x10, 0x00));
    assert_taken(STRICT, BYTES(0x10, 0x00, 0x0a, 0x02, 0x08, 0x00));
    /* olds = 143: the second one */
    assert_refused(KINDS, BYTES(0xfa, 0x08, 0x02, 0x08, 0x01, 0xfa, 0x08, 0x00), "olds[1].id",
                   "olds[1].id: is required");
}

static void test_groups_are_refused(void **state)
{
    (void)state;
    assert_refused(OLD, BYTES(0x08, 0x00, 0x6b, 0x08, 0x01, 0x6c), "part", "groups");
    assert_refused(OLD, BYTES(0x08, 0x00, 0x6a, 0x00), "part", "part: groups are refused");
}

static void test_messages_that_were_changed(void **state)
{
    (void)state;
    CLEANUP(bytes_done)
    struct bytes message = message_of_text(
        KINDS, "a_double: 1.5 a_int64: -1 a_string: \"\\303\\244\" r_message { number: 1 inner { "
               "text: \"x\" } } r_sint32: [-1, 2] c_message { numbers: [1, 2] } m_string { key: "
               "\"k\" value { number: 7 } } w_time { seconds: 5 } old { id: 1 closed: TWO } "
               "w_struct { fields { key: \"a\" value { list_value { values { bool_value: true } } "
               "} } } u_double: 2 o_bytes: \"\\377\" again { a_bool: true }");
    struct err err;
    ASSERT_OK(check(KINDS, message.data, message.size, &err), &err);
    for (size_t size = 0; size < message.size; size++)
        (void)check(KINDS, message.data, size, &err); /* some are messages, too */
    struct rng rng;
    uint64_t seed = 20260303;
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    size_t rounds = test_is_full_size() ? 256 : 16, refused = 0;
    for (size_t i = 0; i < message.size * rounds; i++) {
        uint8_t before = message.data[i / rounds];
        message.data[i / rounds] = (uint8_t)rng_next(&rng);
        int rc = check(KINDS, message.data, message.size, &err);
        assert_true(!rc || ((rc == ERR_INVALID || rc == ERR_LIMIT) && *err.msg));
        refused += rc != 0;
        message.data[i / rounds] = before;
    }
    assert_in_range(refused, rounds, message.size * rounds - rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_bytes_are_refused),
        cmocka_unit_test(test_unknown_fields_are_passed_over_but_must_be_whole),
        cmocka_unit_test(test_each_kind_has_its_wire_type),
        cmocka_unit_test(test_packed_numbers_are_looked_at),
        cmocka_unit_test(test_text_is_utf8),
        cmocka_unit_test(test_a_fault_is_told_with_its_path),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_required_fields_are_there),
        cmocka_unit_test(test_groups_are_refused),
        cmocka_unit_test(test_messages_that_were_changed),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
