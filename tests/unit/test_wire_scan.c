/* Goal: whatever bytes come, they are refused or unpacked within bounds, and a fault is told with
 * the path of its field. Method: messages written byte by byte, one fault each; good messages cut
 * and changed at every place, with the sanitizers as judge; floods against the limits. */
#include "support/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "wire/arena.h"
#include "wire/scan.h"
#include "wire/validate.h"

#include <saga/v1/saga.pb-c.h>
#include <saga/v1/worker.pb-c.h>

#define BYTES(...) ((const uint8_t[]){ __VA_ARGS__ }), sizeof((const uint8_t[]){ __VA_ARGS__ })

static int scan(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                struct err *err)
{
    /* its own block, so that a read beyond the end is seen */
    struct bytes copy = { 0 };
    assert_int_equal(mem_bytes_copy(data, size, &copy), 0);
    int rc = wire_scan(type, copy.data, copy.size, err);
    mem_free(copy.data);
    return rc;
}

static void assert_refused(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                           const char *field, const char *part)
{
    struct err err;
    assert_int_equal(scan(type, data, size, &err), ERR_INVALID);
    assert_string_equal(err.field, field);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" is not in \"%s\"", part, err.msg);
}

static void assert_taken(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
    struct err err;
    ASSERT_OK(scan(type, data, size, &err), &err);
}

#define START    (&saga__v1__start_saga_request__descriptor)
#define BATCH    (&saga__v1__batch_start_sagas_request__descriptor)
#define LIST     (&saga__v1__list_sagas_request__descriptor)
#define WORKER   (&saga__v1__worker_message__descriptor)
#define REPORTED (&saga__v1__task_report__descriptor)

static void test_malformed_bytes_are_refused(void **state)
{
    (void)state;
    assert_taken(START, NULL, 0);
    assert_refused(START, BYTES(0x0a), "namespace", "malformed length");
    assert_refused(START, BYTES(0x0a, 0x05, 'a'), "namespace", "beyond the end");
    assert_refused(START, BYTES(0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
                   "namespace", "beyond the end");
    assert_refused(START,
                   BYTES(0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
                   "namespace", "malformed length");
    assert_refused(START, BYTES(0x80), "", "field number");
    assert_refused(START, BYTES(0x00, 0x00), "", "field number");
    assert_refused(START, BYTES(0x80, 0x80, 0x80, 0x80, 0x80, 0x01), "", "field number");
    assert_refused(START, BYTES(0x0b), "namespace", "wrong wire type"); /* a group */
    assert_refused(START, BYTES(0x83, 0x06, 0x84, 0x06), "", "groups");
    assert_refused(START, BYTES(0x86, 0x06), "", "groups"); /* wire type 6 */
    assert_refused(START, BYTES(0x08, 0x01), "namespace", "wrong wire type");
    assert_refused(START, BYTES(0x0d, 1, 2, 3, 4), "namespace", "wrong wire type");
    assert_refused(REPORTED, BYTES(0x12, 0x01, 0x01), "fence", "wrong wire type");
    assert_refused(REPORTED, BYTES(0x10, 0x80), "fence", "malformed varint");
    assert_refused(REPORTED,
                   BYTES(0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
                   "fence", "malformed varint");
}

static void test_unknown_fields_are_skipped_but_must_be_whole(void **state)
{
    (void)state;
    assert_taken(START, BYTES(0xb8, 0x06, 0x05));                   /* varint */
    assert_taken(START, BYTES(0xb9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8)); /* 64 bit */
    assert_taken(START, BYTES(0xbd, 0x06, 1, 2, 3, 4));             /* 32 bit */
    assert_taken(START, BYTES(0xba, 0x06, 0x02, 0xff, 0xff));       /* bytes, whatever */
    assert_refused(START, BYTES(0xb9, 0x06, 1, 2, 3, 4, 5, 6, 7), "", "cut short");
    assert_refused(START, BYTES(0xbd, 0x06, 1, 2, 3), "", "cut short");
    assert_refused(START, BYTES(0xba, 0x06, 0x02, 0xff), "", "beyond the end");
    assert_refused(START, BYTES(0xb8, 0x06, 0xff), "", "malformed varint");
}

static void test_text_must_be_text(void **state)
{
    (void)state;
    assert_taken(START, BYTES(0x1a, 0x02, 0xc3, 0xa4));
    assert_refused(START, BYTES(0x1a, 0x02, 'a', 0xff), "saga_id", "UTF-8");
    assert_refused(START, BYTES(0x1a, 0x03, 'a', 0x00, 'b'), "saga_id", "NUL");
    assert_taken(START, BYTES(0x22, 0x03, 'a', 0x00, 0xff)); /* input is bytes */
}

static void test_a_fault_is_told_with_its_path(void **state)
{
    (void)state;
    /* the third request's saga_id; unknown fields and others do not count */
    assert_refused(BATCH,
                   BYTES(0x0a, 0x00, 0xb8, 0x06, 0x01, 0x0a, 0x00, 0x0a, 0x03, 0x1a, 0x01, 0xff),
                   "requests[2].saga_id", "UTF-8");
    /* a label's key */
    assert_refused(BATCH, BYTES(0x0a, 0x05, 0x2a, 0x03, 0x0a, 0x01, 0x00),
                   "requests[0].labels[0].key", "NUL");
    /* a report's uid as a number */
    assert_refused(WORKER, BYTES(0x1a, 0x04, 0x0a, 0x02, 0x08, 0x01), "report.reports[0].saga_uid",
                   "wrong wire type");
}

static void test_a_submessage_comes_once(void **state)
{
    (void)state;
    static const uint8_t twice[] = { 0x0a, 0x00, 0x0a, 0x00 };
    assert_refused(&saga__v1__get_saga_request__descriptor, twice, sizeof twice, "saga", "twice");
    assert_taken(BATCH, twice, sizeof twice); /* repeated */
}

static void test_packed_numbers_are_looked_at(void **state)
{
    (void)state;
    assert_taken(LIST, BYTES(0x1a, 0x02, 0x01, 0x02));
    assert_taken(LIST, BYTES(0x18, 0x01, 0x18, 0x02)); /* not packed is fine, too */
    assert_refused(LIST, BYTES(0x1a, 0x02, 0x01, 0x80), "states[0]", "malformed varint");
    assert_refused(LIST, BYTES(0x28 + 2, 0x01, 0x01), "oldest_first", "wrong wire type");
}

/* A type that holds itself; the API has none, but a stored or later one may. */
static const ProtobufCMessageDescriptor nested;
static const ProtobufCFieldDescriptor nested_fields[] = {
    { .name = "inner",
      .id = 1,
      .label = PROTOBUF_C_LABEL_NONE,
      .type = PROTOBUF_C_TYPE_MESSAGE,
      .descriptor = &nested },
};
static const ProtobufCMessageDescriptor nested = {
    .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
    .name = "Nested",
    .short_name = "Nested",
    .n_fields = 1,
    .fields = nested_fields,
};

/* `depth` messages in one another, written from the innermost outwards. */
static size_t write_nested(uint8_t *room, size_t size, size_t depth, const uint8_t **ret_start)
{
    size_t at = size;
    for (size_t i = 1; i < depth; i++) {
        size_t length = size - at;
        uint8_t varint[5];
        size_t used = 0;
        for (size_t rest = length; used == 0 || rest; rest >>= 7)
            varint[used++] = (uint8_t)((rest & 0x7f) | (rest >> 7 ? 0x80 : 0));
        at -= used;
        memcpy(room + at, varint, used);
        room[--at] = 0x0a;
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
    size_t size = write_nested(room, sizeof room, SCAN_DEPTH_MAX, &start);
    assert_taken(&nested, start, size);
    size = write_nested(room, sizeof room, SCAN_DEPTH_MAX + 1, &start);
    assert_int_equal(scan(&nested, start, size, &err), ERR_LIMIT);
    size = write_nested(room, sizeof room, 10000, &start);
    assert_int_equal(scan(&nested, start, size, &err), ERR_LIMIT);
    assert_non_null(strstr(err.msg, "100"));
}

static void test_floods_end_in_a_limit(void **state)
{
    (void)state;
    size_t size = 1024 * 1024;
    uint8_t *flood = mem_calloc(1, size);
    assert_non_null(flood);
    struct err err;
    for (size_t i = 0; i < size; i += 2)
        flood[i] = 0x0a; /* empty requests of two bytes each */
    assert_int_equal(wire_scan(BATCH, flood, size, &err), ERR_LIMIT);
    for (size_t i = 0; i + 3 <= size; i += 3) { /* unknown numbers */
        flood[i] = 0xb8;
        flood[i + 1] = 0x06;
        flood[i + 2] = 0x00;
    }
    assert_int_equal(wire_scan(BATCH, flood, size - size % 3, &err), ERR_LIMIT);
    mem_free(flood);
    /* within the scan's bound but beyond the arena's */
    size = 180000 * 2;
    flood = mem_calloc(1, size);
    assert_non_null(flood);
    for (size_t i = 0; i < size; i += 2)
        flood[i] = 0x0a;
    struct arena arena = { 0 };
    ProtobufCMessage *message = NULL;
    assert_int_equal(wire_unpack(BATCH, flood, size, &arena, &message, &err), ERR_LIMIT);
    assert_true(arena.oom);
    assert_null(message);
    arena_done(&arena);
    mem_free(flood);
}

static void unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                   struct err *err, int *ret)
{
    struct arena arena = { .limit = 1024 * 1024 };
    struct bytes copy = { 0 };
    ProtobufCMessage *message = NULL;
    assert_int_equal(mem_bytes_copy(data, size, &copy), 0);
    *ret = wire_unpack(type, copy.data, copy.size, &arena, &message, err);
    assert_true((*ret == 0) == (message != NULL));
    mem_free(copy.data);
    arena_done(&arena);
}

static void assert_invalid(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                           const char *field, const char *part)
{
    struct err err = { 0 };
    int rc = 0;
    unpack(type, data, size, &err, &rc);
    assert_int_equal(rc, ERR_INVALID);
    assert_string_equal(err.field, field);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" is not in \"%s\"", part, err.msg);
}

static void test_validation_finds_what_unpacking_lets_pass(void **state)
{
    (void)state;
    /* enum numbers: alone, in a list, in a message in a list */
    assert_invalid(REPORTED, BYTES(0x18, 0x63), "outcome", "99 is not a known value");
    assert_invalid(REPORTED,
                   BYTES(0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
                   "outcome", "-1 is not a known value");
    assert_invalid(LIST, BYTES(0x1a, 0x02, 0x01, 0x63), "states[1]", "99");
    assert_invalid(WORKER, BYTES(0x1a, 0x04, 0x0a, 0x02, 0x18, 0x63), "report.reports[0].outcome",
                   "99");
    /* the same label twice */
    assert_invalid(START, BYTES(0x2a, 0x03, 0x0a, 0x01, 'k', 0x2a, 0x03, 0x0a, 0x01, 'k'), "labels",
                   "twice");
    /* retry_after: 1 s and -1 ns */
    assert_invalid(REPORTED,
                   BYTES(0x42, 0x0d, 0x08, 0x01, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                         0xff, 0xff, 0x01),
                   "retry_after", "duration");
    struct err err;
    int rc;
    unpack(REPORTED, BYTES(0x42, 0x02, 0x08, 0x01), &err, &rc);
    assert_int_equal(rc, 0);
}

/* A message with something in most fields. */
static struct bytes good_message(void)
{
    Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT, *reports[] = { &report, &report };
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__Report batch = SAGA__V1__REPORT__INIT;
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    static uint8_t uid[16] = { 1, 2, 3 };
    static char text[] = "caf\xc3\xa9";
    delay.seconds = 3;
    delay.nanos = 5;
    report.saga_uid = (ProtobufCBinaryData){ sizeof uid, uid };
    report.fence = INT64_C(1) << 41;
    report.outcome = SAGA__V1__OUTCOME__OUTCOME_RETRY;
    report.error_message = text;
    report.retry_after = &delay;
    batch.n_reports = ARRAY_LEN(reports);
    batch.reports = reports;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT;
    message.report = &batch;
    struct bytes bytes = { mem_calloc(1, 256), 0 };
    assert_non_null(bytes.data);
    bytes.size = saga__v1__worker_message__pack(&message, bytes.data);
    return bytes;
}

static void test_changed_bytes_never_do_harm(void **state)
{
    (void)state;
    struct bytes good = good_message();
    struct err err;
    int rc;
    unpack(WORKER, good.data, good.size, &err, &rc);
    assert_int_equal(rc, 0);
    for (size_t cut = 0; cut < good.size; cut++)
        unpack(WORKER, good.data, cut, &err, &rc);
    for (size_t at = 0; at < good.size; at++) {
        uint8_t before = good.data[at];
        for (int value = 0; value < 256; value++) {
            good.data[at] = (uint8_t)value;
            unpack(WORKER, good.data, good.size, &err, &rc);
        }
        good.data[at] = before;
    }
    struct rng rng;
    rng_seed(&rng, 7);
    int rounds = test_is_full_size() ? 1000000 : 20000;
    for (int i = 0; i < rounds; i++) {
        uint8_t noise[64];
        size_t size = rng_below(&rng, sizeof noise);
        for (size_t j = 0; j < size; j++)
            noise[j] = (uint8_t)rng_next(&rng);
        unpack(WORKER, noise, size, &err, &rc);
        unpack(BATCH, noise, size, &err, &rc);
    }
    mem_free(good.data);
}

static void test_the_arena_keeps_its_cap(void **state)
{
    (void)state;
    struct arena arena = { .limit = 10000 };
    size_t total = 0;
    for (size_t size = 1; !arena.oom; size = size * 3 % 997 + 1) {
        uint8_t *block = arena_alloc(&arena, size);
        if (!block)
            break;
        assert_int_equal((uintptr_t)block % _Alignof(max_align_t), 0);
        memset(block, 0xee, size); /* the sanitizer looks */
        total += size;
    }
    assert_true(arena.oom);
    assert_true(total > 5000 && total <= 10000 + 997);
    assert_null(arena_array(&arena, SIZE_MAX / 2, 4));
    arena_done(&arena);
    arena = (struct arena){ 0 };
    mem_fail_at(1, true);
    assert_null(arena_alloc(&arena, 8));
    mem_fail_at(0, false);
    assert_true(arena.oom);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_bytes_are_refused),
        cmocka_unit_test(test_unknown_fields_are_skipped_but_must_be_whole),
        cmocka_unit_test(test_text_must_be_text),
        cmocka_unit_test(test_a_fault_is_told_with_its_path),
        cmocka_unit_test(test_a_submessage_comes_once),
        cmocka_unit_test(test_packed_numbers_are_looked_at),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_floods_end_in_a_limit),
        cmocka_unit_test(test_validation_finds_what_unpacking_lets_pass),
        cmocka_unit_test(test_changed_bytes_never_do_harm),
        cmocka_unit_test(test_the_arena_keeps_its_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
