/* Goal: what the other tests of Kafka stand on does what it says. Method: the fixture's own calls
 * against each other, on a real broker and where possible on the mock. */
#include "base/mem.h"
#include "support/command.h"
#include "support/kafka.h"
#include "support/scratch.h"

#include <stdio.h>

static struct test_kafka *real, *mock;

static int setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_kafka_start(NULL, &real, &err), &err);
    SETUP_OK(test_kafka_mock_start(1, &mock, &err), &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    real = test_kafka_free(real);
    mock = test_kafka_free(mock);
    return 0;
}

/* --- records --- */

/* What was read, as one line: "0:0 k=v(h=x) 1:0 null=null". */
struct told {
    char text[4096];
    size_t used;
};

static void part_tell(struct told *told, const void *bytes, size_t size)
{
    told->used += (size_t)snprintf(told->text + told->used, sizeof told->text - told->used, "%.*s",
                                   bytes ? (int)size : 4,
                                   bytes ? (const char *)bytes : "null"); /* short texts */
}

static void record_tell(void *ctx, const struct test_kafka_record *record)
{
    struct told *told = ctx;
    told->used +=
        (size_t)snprintf(told->text + told->used, sizeof told->text - told->used, "%s%d:%d ",
                         told->used ? " " : "", record->partition, (int)record->offset);
    part_tell(told, record->key, record->key_size);
    part_tell(told, "=", 1);
    part_tell(told, record->value, record->value_size);
    for (size_t i = 0; i < record->header_count; i++) {
        part_tell(told, i ? "," : "(", 1);
        part_tell(told, record->headers[i].name, strlen(record->headers[i].name));
        part_tell(told, "=", 1);
        part_tell(told, record->headers[i].value, record->headers[i].size);
    }
    if (record->header_count)
        part_tell(told, ")", 1);
}

static void assert_topic(struct test_kafka *kafka, const char *topic, const char *expected)
{
    struct err err;
    struct told told = { .used = 0 };
    ASSERT_OK(test_kafka_read(kafka, topic, record_tell, &told, &err), &err);
    assert_string_equal(told.text, expected);
}

static void records_round(struct test_kafka *kafka)
{
    struct err err;
    const struct test_kafka_header headers[] = { { "h", "x", 1 },
                                                 { "h", NULL, 0 },
                                                 { "e", "", 0 } };
    const struct test_kafka_record records[] = {
        { .partition = 1,
          .key = "k",
          .key_size = 1,
          .value = "v",
          .value_size = 1,
          .headers = headers,
          .header_count = 3 },
        { .partition = 1 },
        { .partition = 1, .key = "", .value = "" },
    };
    ASSERT_OK(test_kafka_topic_create(kafka, "records", 2, NULL, &err), &err);
    assert_topic(kafka, "records", "");
    ASSERT_OK(test_kafka_produce(kafka, "records", records, ARRAY_LEN(records), &err), &err);
    assert_topic(kafka, "records", "1:0 k=v(h=x,h=null,e=) 1:1 null=null 1:2 =");
    ASSERT_OK(test_kafka_put(kafka, "records", 0, "a", NULL, &err), &err);
    int64_t count;
    ASSERT_OK(test_kafka_count(kafka, "records", &count, &err), &err);
    assert_int_equal(count, 4);
}

static void test_records_come_back_as_they_were_with_null_and_empty_apart(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(real);
    struct err err;
    records_round(real);
    assert_int_not_equal(test_kafka_put(real, "records", 7, "a", "b", &err), 0);
    assert_int_not_equal(test_kafka_read(real, "nowhere", record_tell, NULL, &err), 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void test_the_mock_keeps_records_too(void **state)
{
    (void)state;
    records_round(mock);
}

static void time_look(void *ctx, const struct test_kafka_record *record)
{
    *(int64_t *)ctx = record->timestamp_ms;
}

static void test_a_record_has_the_time_that_it_was_given(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(real);
    struct err err;
    int64_t seen = 0;
    const struct test_kafka_record record = { .timestamp_ms = 1700000000123 };
    ASSERT_OK(test_kafka_topic_create(real, "time", 1, NULL, &err), &err);
    ASSERT_OK(test_kafka_produce(real, "time", &record, 1, &err), &err);
    ASSERT_OK(test_kafka_read(real, "time", time_look, &seen, &err), &err);
    assert_int_equal(seen, 1700000000123);
}

/* --- topics --- */

static void test_a_topic_is_trimmed_grown_deleted_and_made_anew(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(real);
    struct err err;
    int64_t low, end;
    const char *const settings[] = { "retention.ms=3600000", NULL };
    ASSERT_OK(test_kafka_topic_create(real, "trim", 1, settings, &err), &err);
    for (int i = 0; i < 5; i++)
        ASSERT_OK(test_kafka_put(real, "trim", 0, "k", "v", &err), &err);
    ASSERT_OK(test_kafka_records_delete(real, "trim", 0, 3, &err), &err);
    ASSERT_OK(test_kafka_watermarks(real, "trim", 0, &low, &end, &err), &err);
    assert_int_equal(low, 3);
    assert_int_equal(end, 5);
    assert_topic(real, "trim", "0:3 k=v 0:4 k=v");
    ASSERT_OK(test_kafka_records_delete(real, "trim", 0, -1, &err), &err);
    assert_topic(real, "trim", "");
    ASSERT_OK(test_kafka_topic_configure(real, "trim", "retention.ms", "-1", &err), &err);
    assert_int_not_equal(test_kafka_topic_configure(real, "trim", "no.such", "1", &err), 0);
    ASSERT_OK(test_kafka_topic_grow(real, "trim", 3, &err), &err);
    ASSERT_OK(test_kafka_put(real, "trim", 2, "k", "v", &err), &err);

    ASSERT_OK(test_kafka_topic_delete(real, "trim", &err), &err);
    assert_int_not_equal(test_kafka_count(real, "trim", &low, &err), 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    ASSERT_OK(test_kafka_topic_create(real, "trim", 1, settings, &err), &err);
    ASSERT_OK(test_kafka_put(real, "trim", 0, "new", "v", &err), &err);
    assert_topic(real, "trim", "0:0 new=v");
    assert_int_not_equal(test_kafka_topic_create(real, "trim", 1, NULL, &err), 0);
    assert_int_equal(err.code, ERR_EXISTS);
}

/* --- groups --- */

static rd_kafka_t *member_join(const char *group, const char *topic)
{
    char message[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    const char *const settings[][2] = { { "bootstrap.servers", test_kafka_bootstrap(real) },
                                        { "group.id", group },
                                        { "auto.offset.reset", "earliest" } };
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        assert_int_equal(
            rd_kafka_conf_set(conf, settings[i][0], settings[i][1], message, sizeof message),
            RD_KAFKA_CONF_OK);
    rd_kafka_t *member = rd_kafka_new(RD_KAFKA_CONSUMER, conf, message, sizeof message);
    assert_non_null(member);
    (void)rd_kafka_poll_set_consumer(member); /* cannot fail for a consumer */
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    assert_int_equal(rd_kafka_subscribe(member, topics), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_topic_partition_list_destroy(topics);
    return member;
}

static void test_a_groups_offsets_are_read_written_and_deleted(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(real);
    struct err err;
    int64_t offset = 0;
    char metadata[64];
    size_t members = 7;
    ASSERT_OK(test_kafka_topic_create(real, "grouped", 2, NULL, &err), &err);
    for (int i = 0; i < 3; i++)
        ASSERT_OK(test_kafka_put(real, "grouped", 1, "k", "v", &err), &err);
    ASSERT_OK(test_kafka_group_members(real, "g", &members, &err), &err);
    assert_int_equal(members, 0);
    ASSERT_OK(test_kafka_group_offset(real, "g", "grouped", 1, &offset, NULL, 0, &err), &err);
    assert_int_equal(offset, -1);

    rd_kafka_t *member = member_join("g", "grouped");
    rd_kafka_message_t *message = NULL;
    for (int i = 0; !message && i < 600; i++)
        message = rd_kafka_consumer_poll(member, 100);
    assert_non_null(message);
    assert_int_equal(message->err, RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_int_equal(rd_kafka_commit_message(member, message, 0), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_message_destroy(message);
    ASSERT_OK(test_kafka_group_members(real, "g", &members, &err), &err);
    assert_int_equal(members, 1);
    ASSERT_OK(test_kafka_group_offset(real, "g", "grouped", 1, &offset, metadata, 64, &err), &err);
    assert_int_equal(offset, 1);
    assert_string_equal(metadata, "");
    assert_int_not_equal(test_kafka_group_offset_set(real, "g", "grouped", 1, 0, &err), 0);
    assert_int_not_equal(test_kafka_group_offsets_delete(real, "g", "grouped", &err), 0);
    assert_int_equal(rd_kafka_consumer_close(member), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_destroy(member);

    ASSERT_OK(test_kafka_group_members(real, "g", &members, &err), &err);
    assert_int_equal(members, 0);
    ASSERT_OK(test_kafka_group_offset_set(real, "g", "grouped", -1, 2, &err), &err);
    ASSERT_OK(test_kafka_group_offset(real, "g", "grouped", 0, &offset, NULL, 0, &err), &err);
    assert_int_equal(offset, 2);
    ASSERT_OK(test_kafka_group_offsets_delete(real, "g", "grouped", &err), &err);
    ASSERT_OK(test_kafka_group_offset(real, "g", "grouped", 1, &offset, NULL, 0, &err), &err);
    assert_int_equal(offset, -1);
}

/* --- the process --- */

static void test_what_was_taken_outlives_kill_9_and_stop(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(real);
    struct err err;
    ASSERT_OK(test_kafka_topic_create(real, "kept", 1, NULL, &err), &err);
    ASSERT_OK(test_kafka_put(real, "kept", 0, "before", "1", &err), &err);
    test_kafka_kill(real);
    ASSERT_OK(test_kafka_restart(real, &err), &err);
    ASSERT_OK(test_kafka_put(real, "kept", 0, "after", "2", &err), &err);
    ASSERT_OK(test_kafka_stop(real, &err), &err);
    assert_int_not_equal(test_kafka_signal(real, 0, &err), 0);
    ASSERT_OK(test_kafka_restart(real, &err), &err);
    assert_topic(real, "kept", "0:0 before=1 0:1 after=2");
}

static void test_the_mock_takes_errors_that_are_pushed(void **state)
{
    (void)state;
    struct err err;
    ASSERT_OK(test_kafka_topic_create(mock, "pushed", 1, NULL, &err), &err);
    rd_kafka_mock_push_request_errors(test_kafka_mock(mock), 0 /* Produce */, 1,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    assert_int_not_equal(test_kafka_put(mock, "pushed", 0, "k", "v", &err), 0);
    assert_int_equal(err.code, ERR_PRECONDITION);
}

/* --- feed --- */

static void test_feed_fills_a_topic(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(real);
    struct err err;
    const char *const counted[] = { FEED,
                                    "--bootstrap",
                                    test_kafka_bootstrap(real),
                                    "--topic",
                                    "fed",
                                    "--partitions",
                                    "1",
                                    "--set",
                                    "retention.ms=-1",
                                    "--count",
                                    "2",
                                    "--first",
                                    "7",
                                    "--key",
                                    "k{}",
                                    "--value",
                                    "{\"n\": {}, \"m\": \"{}\"}",
                                    "--header",
                                    "a=b",
                                    NULL };
    command_expect(counted, NULL, 0, "fed 2 records to fed in ");
    assert_topic(real, "fed",
                 "0:0 k7={\"n\": 7, \"m\": \"7\"}(a=b) 0:1 k8={\"n\": 8, \"m\": \"8\"}(a=b)");
    static const char piped[] = "printf 'k\\t4a4B\\ngone\\n' | \"$0\" --bootstrap \"$1\""
                                " --topic lines --partitions 1 --lines - --hex";
    const char *const lines[] = { "/bin/sh", "-c", piped, FEED, test_kafka_bootstrap(real), NULL };
    command_expect(lines, NULL, 0, "fed 2 records");
    assert_topic(real, "lines", "0:0 k=JK 0:1 gone=null");
    const char *const wrong[] = { FEED,      "--bootstrap", test_kafka_bootstrap(real),
                                  "--topic", "fed",         "--count",
                                  "x",       "--value",     "v",
                                  NULL };
    command_expect(wrong, NULL, 1, "x: is not a number");
    ASSERT_OK(test_kafka_topic_delete(real, "lines", &err), &err);
}

/* --- broker.sh by hand ------------------------------------------------------------------------ */

static const char broker_sh[] = SOURCE_DIR "/tests/kafka/broker.sh";

static void test_broker_sh_says_why_there_is_none(void **state)
{
    (void)state;
    struct err err;
    char folder[SCRATCH_PATH_SIZE];
    ASSERT_OK(scratch_path("none", folder, &err), &err);
    const char *const no_java[] = { "JAVA_HOME=/nowhere", NULL };
    const char *const no_kafka[] = { "SAGAD_KAFKA_HOME=/nowhere/kafka", NULL };
    const char *const fetch[] = { "/bin/bash", broker_sh, "fetch", NULL };
    const char *const run[] = { "/bin/bash", broker_sh, "run", folder, "1", "2", NULL };
    const char *const wrong[] = { "/bin/bash", broker_sh, "begin", NULL };
    command_expect(fetch, no_java, 77, "no Java (/nowhere/bin/java)");
    command_expect(wrong, NULL, 2, "broker.sh start DIR PORT");
    KAFKA_OR_SKIP(real);
    command_expect(run, no_kafka, 77, "/nowhere/kafka is not there");
}

static void test_broker_sh_starts_kills_and_stops(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(real);
    struct err err;
    char folder[SCRATCH_PATH_SIZE];
    ASSERT_OK(scratch_path("by-hand", folder, &err), &err);
    /* What it started ends with this shell, also when one of the lines fails. */
    static const char lines[] = "set -eux\n"
                                "trap '\"$0\" kill \"$1\" || true' EXIT\n"
                                "\"$0\" start \"$1\" 0 | grep '^bootstrap=127.0.0.1:[0-9]* pid='\n"
                                "if \"$0\" start \"$1\" 0; then exit 3; fi\n"
                                "if \"$0\" restart \"$1\"; then exit 3; fi\n"
                                "\"$0\" kill \"$1\"\n"
                                "if \"$0\" stop \"$1\"; then exit 3; fi\n"
                                "\"$0\" restart \"$1\" | grep '^bootstrap='\n"
                                "\"$0\" stop \"$1\"\n";
    const char *const argv[] = { "/bin/bash", "-c", lines, broker_sh, folder, NULL };
    const struct test_process_options options = { .name = "by-hand", .argv = argv };
    ASSERT_OK(test_process_must_succeed(&options, 4 * TEST_KAFKA_LIMIT_MS, &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_come_back_as_they_were_with_null_and_empty_apart),
        cmocka_unit_test(test_the_mock_keeps_records_too),
        cmocka_unit_test(test_a_record_has_the_time_that_it_was_given),
        cmocka_unit_test(test_a_topic_is_trimmed_grown_deleted_and_made_anew),
        cmocka_unit_test(test_a_groups_offsets_are_read_written_and_deleted),
        cmocka_unit_test(test_what_was_taken_outlives_kill_9_and_stop),
        cmocka_unit_test(test_the_mock_takes_errors_that_are_pushed),
        cmocka_unit_test(test_feed_fills_a_topic),
        cmocka_unit_test(test_broker_sh_says_why_there_is_none),
        cmocka_unit_test(test_broker_sh_starts_kills_and_stops),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
