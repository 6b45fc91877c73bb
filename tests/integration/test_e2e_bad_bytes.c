/* Hostile and unknown bytes (B1, B4). Goal: whatever bytes come on whatever call, the answer is a
 * clear status, nothing is stored, and the server serves on with bounded memory; payloads come out
 * as they went in, unknown fields and all. Method: every method with every kind of bytes, over raw
 * calls; the process is the same one at the end. */
#include "base/buf.h"
#include "base/rng.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"
#include "support/rig.h"

#include <stdio.h>

enum {
    SOON = 10000,
    CALL_MS = 20000,
    OK = 0,
    INVALID_ARGUMENT = 3,
    NOT_FOUND = 5,
    RESOURCE_EXHAUSTED = 8,
    NESTING = 10000,
    MIB = 1024 * 1024,
    RSS_GROWTH_KB_MAX = 64 * 1024,
};

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };

static const char *const methods[] = {
    "/saga.v1.DefinitionService/RegisterDefinition",
    "/saga.v1.DefinitionService/GetDefinition",
    "/saga.v1.DefinitionService/ListDefinitions",
    "/saga.v1.SagaService/StartSaga",
    "/saga.v1.SagaService/BatchStartSagas",
    "/saga.v1.SagaService/GetSaga",
    "/saga.v1.SagaService/ListJournal",
    "/saga.v1.SagaService/ListSagas",
    "/saga.v1.SagaService/WaitSaga",
    "/saga.v1.SagaService/CancelSaga",
    "/saga.v1.OperatorService/RetryStep",
    "/saga.v1.OperatorService/ResolveStep",
    "/saga.v1.OperatorService/GetStatus",
    "/saga.v1.KafkaService/ListRules",
    "/saga.v1.KafkaService/StopRule",
    "/saga.v1.KafkaService/StartRule",
    "/saga.v1.KafkaService/ResumePartition",
    "/saga.v1.KafkaService/CheckRule",
    "/saga.v1.KafkaService/TakeOver",
    "/saga.v1.KafkaService/GetKafkaRequest",
    "/saga.v1.KafkaService/ListKafkaRequests",
    "/saga.v1.KafkaService/ListDeadLetters",
    "/saga.v1.KafkaService/GetDeadLetter",
    "/saga.v1.KafkaService/ReplayDeadLetters",
    "/saga.v1.KafkaService/DiscardDeadLetters",
    "/saga.v1.KafkaService/PublishOutboxEvent",
    "/saga.v1.KafkaService/DiscardOutboxEvent",
    "/saga.v1.KafkaService/LookUpKey",
    "/grpc.health.v1.Health/Check",
    "/saga.v1.WorkerService/Work",
};

static int setup(void **state)
{
    (void)state;
    /* A sanitizer keeps freed memory for a while; here it is to be little, so that what the server
     * itself keeps can be seen. */
    char options[512];
    const char *given = getenv("ASAN_OPTIONS");
    (void)snprintf(options, sizeof options, "%s%squarantine_size_mb=4", given ? given : "",
                   given ? ":" : "");
    (void)setenv("ASAN_OPTIONS", options, 1); /* fails only when memory is out */
    if (rig_up(&rig) != 0)
        return -1;
    rig_define(&rig, "plain", NULL, "a: IDEMPOTENT handler=plain | none");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int64_t rss_kb(void)
{
    char path[64], line[256];
    int64_t kb = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)test_process_pid(rig.sagad));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtoll(line + 6, NULL, 10);
    (void)fclose(file); /* was only read */
    return kb;
}

/* The same process still serves, and nothing was stored. */
static int check(void **state)
{
    (void)state;
    if (!test_process_running(rig.sagad) || rig_health(rig.address, 5000) != 1) {
        print_error("the server does not serve any more\n");
        return -1;
    }
    return rig_check(&rig);
}

static void text_field(struct buf *buf, int field, const void *data, size_t size)
{
    uint8_t head[8];
    size_t used = 0;
    head[used++] = (uint8_t)(field << 3 | 2);
    size_t left = size;
    for (; left >= 0x80; left >>= 7)
        head[used++] = (uint8_t)(left | 0x80);
    head[used++] = (uint8_t)left;
    buf_append(buf, head, used);
    buf_append(buf, data, size);
}

static void expect(const char *method, const char *what, const void *data, size_t size,
                   int expected, int also)
{
    int code = raw_call(rig.address, method, data, size, CALL_MS, NULL);
    if (code != expected && code != also)
        fail_msg("%s with %s: status %d, not %d or %d", method, what, code, expected, also);
}

/* --- bytes that are no message ---------------------------------------------------------------- */

static void test_b1_bytes_that_are_no_message_are_refused_on_every_method(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        size_t size;
        uint8_t bytes[16];
    } wrong[] = {
        { "a cut tag", 1, { 0x80 } },
        { "a length beyond the end", 2, { 0x0a, 0x7f } },
        { "a huge length", 6, { 0x0a, 0xff, 0xff, 0xff, 0xff, 0x07 } },
        { "a length of 2^63",
          11,
          { 0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x01 } },
        { "an endless varint",
          12,
          { 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } },
        { "field number 0", 2, { 0x02, 0x00 } },
        { "wire type 6", 2, { 0x0e, 0x00 } },
        { "wire type 7", 2, { 0x0f, 0x00 } },
        { "a group that never ends", 1, { 0x0b } },
        { "the end of no group", 1, { 0x0c } },
        { "cut fixed64", 4, { 0x09, 1, 2, 3 } },
        { "cut fixed32", 3, { 0x0d, 1, 2 } },
    };
    for (size_t m = 0; m < ARRAY_LEN(methods); m++)
        for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
            expect(methods[m], wrong[i].what, wrong[i].bytes, wrong[i].size, INVALID_ARGUMENT,
                   INVALID_ARGUMENT);
}

static void test_b1_random_bytes_are_answered_on_every_method(void **state)
{
    (void)state;
    enum { SIZE = 600 };
    int rounds = test_is_full_size() ? 400 : 15;
    struct rng rng;
    uint64_t seed = 20240501;
    rng_seed(&rng, seed);
    uint8_t bytes[SIZE];
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < SIZE; i++)
            bytes[i] = (uint8_t)rng_next(&rng);
        size_t size = (size_t)rng_below(&rng, SIZE);
        for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
            /* Some random bytes are a message of unknown fields: that is no fault of itself. */
            int code = raw_call(rig.address, methods[m], bytes, size, CALL_MS, NULL);
            if (code != INVALID_ARGUMENT && code != OK && code != NOT_FOUND)
                fail_msg("%s, seed %llu, round %d: status %d", methods[m], (unsigned long long)seed,
                         round, code);
        }
    }
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga"), 0);
}

static void test_b1_ten_thousand_levels_of_nesting_are_refused(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf groups = { 0 };
    for (int i = 0; i < NESTING; i++)
        buf_append(&groups, "\x0b", 1);
    for (int i = 0; i < NESTING; i++)
        buf_append(&groups, "\x0c", 1);
    /* Messages in messages, of the same field: 10,000 lengths, made from the inside out. */
    CLEANUP(buf_done) struct buf nested = { 0 };
    for (int i = 0; i < NESTING; i++) {
        CLEANUP(buf_done) struct buf outer = { 0 };
        text_field(&outer, 1, nested.data, nested.size);
        assert_false(outer.failed);
        buf_clear(&nested);
        buf_append(&nested, outer.data, outer.size);
    }
    for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
        expect(methods[m], "nested groups", groups.data, groups.size, INVALID_ARGUMENT,
               INVALID_ARGUMENT);
        /* Where field 1 is text or bytes it is only text that is too long or wrong. */
        int code = raw_call(rig.address, methods[m], nested.data, nested.size, CALL_MS, NULL);
        if (code == OK && strstr(methods[m], "GetStatus") == NULL)
            fail_msg("%s: nested messages were accepted", methods[m]);
    }
}

static void test_b1_a_message_of_five_mib_is_refused_by_its_size(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf big = { 0 };
    uint8_t *room = buf_room(&big, 5 * MIB);
    assert_non_null(room);
    memset(room, 'x', 5 * MIB);
    CLEANUP(buf_done) struct buf message = { 0 };
    text_field(&message, 4, room, 5 * MIB); /* of StartSaga: the input */
    int64_t before = rss_kb();
    int rounds = test_is_full_size() ? 20 : 4;
    for (int round = 0; round < rounds; round++)
        for (size_t m = 0; m < ARRAY_LEN(methods); m++)
            expect(methods[m], "5 MiB", message.data, message.size, RESOURCE_EXHAUSTED,
                   INVALID_ARGUMENT);
    int64_t grown = rss_kb() - before;
    if (grown > RSS_GROWTH_KB_MAX)
        fail_msg("the server has grown by %lld KiB", (long long)grown);
}

static void test_b1_a_million_empty_elements_take_no_memory(void **state)
{
    (void)state;
    /* Two bytes of wire are an element of some hundred bytes in memory. */
    CLEANUP(buf_done) struct buf message = { 0 };
    for (int i = 0; i < 1000 * 1000; i++)
        buf_append(&message, "\x0a", 2); /* field 1, length 0 */
    assert_int_equal(message.size, 2000 * 1000);
    int64_t before = rss_kb();
    static const char *const repeated[] = { "/saga.v1.SagaService/BatchStartSagas",
                                            "/saga.v1.SagaService/BatchStartSagas",
                                            "/saga.v1.WorkerService/Work" };
    for (size_t i = 0; i < ARRAY_LEN(repeated); i++) {
        int code = raw_call(rig.address, repeated[i], message.data, message.size, CALL_MS, NULL);
        if (code != INVALID_ARGUMENT && code != RESOURCE_EXHAUSTED)
            fail_msg("%s: status %d", repeated[i], code);
    }
    int64_t grown = rss_kb() - before;
    if (grown > RSS_GROWTH_KB_MAX)
        fail_msg("the server has grown by %lld KiB", (long long)grown);
}

/* --- messages with wrong contents ------------------------------------------------------------- */

static void test_b1_unknown_enums_and_text_that_is_no_utf8_are_refused(void **state)
{
    (void)state;
    /* GetSaga: a known saga, view = 99; ListSagas: states = 77; WaitSaga: view = 5. */
    CLEANUP(buf_done) struct buf ref = { 0 };
    text_field(&ref, 2, "plain", 5);
    text_field(&ref, 3, "nobody", 6);
    CLEANUP(buf_done) struct buf get = { 0 };
    text_field(&get, 1, ref.data, ref.size);
    expect("/saga.v1.SagaService/GetSaga", "nothing wrong", get.data, get.size, NOT_FOUND,
           NOT_FOUND);
    buf_append(&get, "\x10\x63", 2);
    expect("/saga.v1.SagaService/GetSaga", "an unknown view", get.data, get.size, INVALID_ARGUMENT,
           INVALID_ARGUMENT);
    expect("/saga.v1.SagaService/ListSagas", "an unknown state", "\x18\x4d", 2, INVALID_ARGUMENT,
           INVALID_ARGUMENT);
    static const uint8_t negative[] = { 0x18, 0xff, 0xff, 0xff, 0xff, 0xff,
                                        0xff, 0xff, 0xff, 0xff, 0x01 };
    expect("/saga.v1.SagaService/ListSagas", "a negative state", negative, sizeof negative,
           INVALID_ARGUMENT, INVALID_ARGUMENT);
    static const struct {
        const char *what, *text;
        size_t size;
    } texts[] = {
        { "a lone byte", "\xff", 1 },
        { "an overlong slash", "\xc0\xaf", 2 },
        { "a surrogate", "\xed\xa0\x80", 3 },
        { "a cut character", "\xe2\x82", 2 },
        { "a NUL", "a\0b", 3 },
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        CLEANUP(buf_done) struct buf start = { 0 };
        text_field(&start, 2, "plain", 5);
        text_field(&start, 3, texts[i].text, texts[i].size);
        expect("/saga.v1.SagaService/StartSaga", texts[i].what, start.data, start.size,
               INVALID_ARGUMENT, INVALID_ARGUMENT);
        CLEANUP(buf_done) struct buf cancel = { 0 };
        text_field(&cancel, 1, ref.data, ref.size);
        text_field(&cancel, 2, texts[i].text, texts[i].size);
        expect("/saga.v1.SagaService/CancelSaga", texts[i].what, cancel.data, cancel.size,
               INVALID_ARGUMENT, INVALID_ARGUMENT);
        CLEANUP(buf_done) struct buf list = { 0 };
        text_field(&list, 4, texts[i].text, texts[i].size);
        expect("/saga.v1.SagaService/ListSagas", texts[i].what, list.data, list.size,
               INVALID_ARGUMENT, INVALID_ARGUMENT);
    }
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga_key"), 0);
}

/* --- the worker's stream ---------------------------------------------------------------------- */

static void expect_stream_end(struct raw_worker *worker, const char *what, const void *data,
                              size_t size)
{
    const char *message = "";
    raw_worker_send_bytes(worker, data, size);
    int code = raw_worker_status(worker, SOON, &message);
    if (code != INVALID_ARGUMENT)
        fail_msg("%s: the stream ended with %d %s", what, code, message);
    (void)raw_worker_cut(worker); /* always NULL */
}

static struct raw_worker *greeted(void)
{
    return raw_worker_hello(rig.address, "hostile", NULL, "plain", NULL, 0);
}

static void test_b1_wrong_commands_end_a_stream_as_invalid_and_hurt_no_other(void **state)
{
    (void)state;
    rig_start(&rig, "plain", "stream", "");
    struct raw_worker *good = greeted();
    raw_worker_credit(good, "plain", 1);
    const Saga__V1__Task *task = raw_worker_task(good, SOON);
    assert_non_null(task);
    struct raw_lease lease = raw_lease_of(task);
    /* Before Hello: anything else; Hello without what it needs. */
    expect_stream_end(raw_worker_open(rig.address), "no Hello", "\x12\x00", 2);
    expect_stream_end(raw_worker_open(rig.address), "an empty Hello", "\x0a\x00", 2);
    expect_stream_end(raw_worker_open(rig.address), "nothing", "", 0);
    /* After it: a command of the future, none at all, a second Hello, garbage, wrong contents. */
    expect_stream_end(greeted(), "an unknown command", "\xa2\x06\x00", 3);
    expect_stream_end(greeted(), "an empty message", "", 0);
    expect_stream_end(greeted(), "garbage", "\xff\xff\xff\xff", 4);
    expect_stream_end(greeted(), "an empty Report", "\x1a\x00", 2);
    expect_stream_end(greeted(), "a report without uid", "\x1a\x04\x0a\x02\x18\x01", 6);
    static const char short_uid[] = "\x1a\x08\x0a\x06\x0a\x02xx\x18\x01";
    expect_stream_end(greeted(), "a short uid", short_uid, 10);
    CLEANUP(buf_done) struct buf report = { 0 };
    CLEANUP(buf_done) struct buf reports = { 0 };
    CLEANUP(buf_done) struct buf message = { 0 };
    text_field(&report, 1, lease.uid, sizeof lease.uid);
    buf_append(&report, "\x10\x01\x18\x63", 4); /* fence 1, outcome 99 */
    text_field(&reports, 1, report.data, report.size);
    text_field(&message, 3, reports.data, reports.size);
    expect_stream_end(greeted(), "an unknown outcome", message.data, message.size);
    report.data[report.size - 1] = 6; /* EXPIRED is not a worker's word */
    buf_clear(&reports);
    buf_clear(&message);
    text_field(&reports, 1, report.data, report.size);
    text_field(&message, 3, reports.data, reports.size);
    expect_stream_end(greeted(), "an outcome that is ours to find", message.data, message.size);
    expect_stream_end(greeted(), "credit for what was not subscribed",
                      "\x12\x07\x0a\x05\x0a\x01x\x10\x01", 9);
    /* The good one has not noticed. */
    assert_int_equal(raw_worker_settle(good, &lease, SAGA__V1__OUTCOME__OUTCOME_DONE, "out"),
                     SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
    good = raw_worker_cut(good);
    rig_await_state(&rig, "plain", "stream", "SUCCEEDED", SOON);
}

static void test_b1_a_worker_that_does_not_read_is_bounded(void **state)
{
    (void)state;
    /* Tasks of 200 KiB each for a stream that is never read: the server holds some and no more. */
    enum { SAGAS = 150, INPUT = 200 * 1024 };
    CLEANUP(buf_done) struct buf input = { 0 };
    uint8_t *room = buf_room(&input, INPUT + 1);
    assert_non_null(room);
    memset(room, ' ', INPUT);
    room[INPUT] = '\0';
    rig_define(&rig, "unread", NULL, "a: IDEMPOTENT handler=unread | none");
    struct raw_worker *deaf = raw_worker_hello(rig.address, "deaf", NULL, "unread", NULL, 0);
    raw_worker_credit(deaf, "unread", SAGAS);
    char id[32];
    for (int i = 0; i < SAGAS; i++) {
        (void)snprintf(id, sizeof id, "unread%d", i);
        rig_start(&rig, "unread", id, (const char *)room);
    }
    int64_t leased = rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'unread' AND outcome IS NULL");
    if (leased < 1 || leased * INPUT > 16 * MIB)
        fail_msg("%lld tasks of %d bytes wait for one stream", (long long)leased, INPUT);
    assert_int_equal(rig_health(rig.address, 2000), 1);
    deaf = raw_worker_cut(deaf);
    (void)rig_worker(&rig, "reads", "unread:16"); /* the rig owns it */
    rig_await_states(&rig, "unread", "unread", "SUCCEEDED", SAGAS, 4 * SOON);
    rig_workers_kill(&rig);
}

/* --- B4: payloads ----------------------------------------------------------------------------- */

static void test_b4_payloads_are_handed_on_byte_for_byte(void **state)
{
    (void)state;
    rig_define(&rig, "b4", NULL,
               "a: IDEMPOTENT handler=b4 | IDEMPOTENT handler=b4\n"
               "b: IDEMPOTENT handler=b4 | none");
    /* Every byte there is; a message with unknown fields; nothing at all. */
    uint8_t all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    static const uint8_t unknown[] = { 0x0a, 1, 'x', 0xfa, 0x7f, 2, 0xff, 0x00, 0xf8, 0x7f, 1 };
    const struct {
        const uint8_t *data;
        size_t size;
    } payloads[] = { { all, sizeof all }, { unknown, sizeof unknown }, { NULL, 0 } };
    struct raw_worker *worker = raw_worker_hello(rig.address, "b4", NULL, "b4", NULL, 0);
    raw_worker_credit(worker, "b4", 100);
    for (size_t i = 0; i < ARRAY_LEN(payloads); i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "b4-%zu", i);
        Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
        request.definition = rig_borrow("b4");
        request.saga_id = id;
        request.input.data = (uint8_t *)(uintptr_t)payloads[i].data;
        request.input.len = payloads[i].size;
        protobuf_c_message_free_unpacked(rig_call(&rig, "SagaService/StartSaga", &request.base,
                                                  &saga__v1__start_saga_response__descriptor, NULL),
                                         NULL);
        /* a, b refused, ~a: each gets the input; b and ~a get a's output. */
        for (int call = 0; call < 3; call++) {
            const Saga__V1__Task *task = raw_worker_task(worker, SOON);
            assert_non_null(task);
            assert_int_equal(task->input.len, payloads[i].size);
            if (payloads[i].size)
                assert_memory_equal(task->input.data, payloads[i].data, payloads[i].size);
            ProtobufCBinaryData output = { 0, NULL };
            if (call == 1) {
                assert_int_equal(task->n_outputs, 1);
                output = task->outputs[0]->output;
            } else if (call == 2) {
                assert_int_equal(task->action->kind, SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE);
                output = task->action->output;
            }
            if (call > 0) {
                assert_int_equal(output.len, payloads[i].size);
                if (output.len)
                    assert_memory_equal(output.data, payloads[i].data, output.len);
            }
            struct raw_lease lease = raw_lease_of(task);
            Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT;
            report.saga_uid.data = lease.uid;
            report.saga_uid.len = sizeof lease.uid;
            report.fence = lease.fence;
            report.outcome =
                call == 1 ? SAGA__V1__OUTCOME__OUTCOME_REJECTED : SAGA__V1__OUTCOME__OUTCOME_DONE;
            if (call == 1)
                report.error_code = rig_borrow("NO");
            else
                report.output = request.input;
            raw_worker_report_task(worker, &report);
            assert_int_equal(raw_worker_ack(worker, &lease),
                             SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
        }
        rig_await_state(&rig, "b4", id, "COMPENSATED", SOON);
    }
    worker = raw_worker_cut(worker);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_b1_bytes_that_are_no_message_are_refused_on_every_method),
        TEST(test_b1_random_bytes_are_answered_on_every_method),
        TEST(test_b1_ten_thousand_levels_of_nesting_are_refused),
        TEST(test_b1_a_message_of_five_mib_is_refused_by_its_size),
        TEST(test_b1_a_million_empty_elements_take_no_memory),
        TEST(test_b1_unknown_enums_and_text_that_is_no_utf8_are_refused),
        TEST(test_b1_wrong_commands_end_a_stream_as_invalid_and_hurt_no_other),
        TEST(test_b1_a_worker_that_does_not_read_is_bounded),
        TEST(test_b4_payloads_are_handed_on_byte_for_byte),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
