/* Goal: what sagactl tells of Kafka: how far each partition is and why it does not go on, what a
 * check found, what a dead letter holds (whatever its bytes are), and what is known of a key that
 * no saga has. Method: messages written as JSON, rendered at a fixed time in UTC, compared as text.
 */
#include "support/check.h"

#include "base/mem.h"
#include "ctl/kafka_text.h"
#include "ctl/letter_text.h"
#include "ctl/where_known.h"
#include "wire/json.h"

#include <string.h>
#include <time.h>

/* 2026-03-02T14:08:11Z, three minutes after things happened. */
#define NOW_MS INT64_C(1772460491000)
static const struct where_view view = { .now_ms = NOW_MS };

static void *message_from(const char *json, const ProtobufCMessageDescriptor *type)
{
    struct err err;
    ProtobufCMessage *message;
    ASSERT_OK(wire_json_decode(json, strlen(json), type, &message, &err), &err);
    return message;
}

static void free_message(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

static void assert_text(struct buf *text, const char *expected)
{
    assert_false(text->failed);
    assert_string_equal(buf_cstr(text), expected);
    buf_done(text);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* Fields of a rule that is seen now; `more` begins with a comma or is "". */
static Saga__V1__KafkaRule *rule_from(const char *more)
{
    struct buf json = { 0 };
    buf_printf(&json,
               "{\"name\":\"settlements\",\"topic\":\"payments\",\"group\":\"g1\","
               "\"namespace\":\"default\",\"definition\":\"settlement\",\"node\":\"n1\","
               "\"seenTime\":\"2026-03-02T14:08:10Z\",\"counters\":{\"records\":\"9\"}%s}",
               more);
    Saga__V1__KafkaRule *rule = message_from(buf_cstr(&json), &saga__v1__kafka_rule__descriptor);
    buf_done(&json);
    return rule;
}

static void assert_rule(const char *more, const char *expected)
{
    struct buf text = { 0 };
    Saga__V1__KafkaRule *rule = rule_from(more);
    kafka_write_rule(rule, &view, &text);
    free_message(rule);
    assert_text(&text, expected);
}

static void assert_behind(const char *more, const char *expected)
{
    struct buf text = { 0 };
    Saga__V1__KafkaRule *rule = rule_from(more);
    kafka_write_behind(rule, &view, &text);
    free_message(rule);
    assert_text(&text, expected);
}

#define SEEN "\"seenTime\":\"2026-03-02T14:08:10Z\",\"node\":\"n1\""
#define PARTITION(n, more)                                                                         \
    "{\"rule\":\"settlements\",\"topic\":\"payments\",\"partition\":" n                            \
    ",\"nextOffset\":\"100\",\"lowOffset\":\"0\"," more "}"
#define GAP                                                                                        \
    "\"state\":\"STATE_STOPPED\",\"stopReason\":\"GAP\",\"stopFromOffset\":\"100\","               \
    "\"stopToOffset\":\"219\",\"stopMessage\":\"the broker has trimmed them\","                    \
    "\"stopTime\":\"2026-03-02T14:05:11Z\",\"endOffset\":\"300\",\"lag\":\"200\"," SEEN

static void test_status_tells_each_partition_and_what_to_do(void **state)
{
    (void)state;
    assert_rule(
        ",\"lag\":\"212\",\"ratePerS\":\"7\",\"stoppedPartitions\":1,"
        "\"topicRetention\":\"604800s\",\"partitions\":[" PARTITION(
            "0",
            "\"state\":\"STATE_RUNNING\",\"endOffset\":\"110\",\"lag\":\"10\","
            "\"ratePerS\":\"7\",\"suspectUntil\":\"105\"," SEEN) "," PARTITION("1",
                                                                               "\"state\":"
                                                                               "\"STATE_"
                                                                               "RUNNING\","
                                                                               "\"endOffset\":"
                                                                               "\"102\","
                                                                               "\"lag\":\"2\","
                                                                               "\"pausedWhy\":"
                                                                               "\"max_running "
                                                                               "is "
                                                                               "reached\""
                                                                               "," SEEN) "," PARTITION("2",
                                                                                                       GAP) "," PARTITION("3",
                                                                                                                          "\"state\":\"STATE_RUNNING\",\"endOffset\":\"-1\"") "," PARTITION("4",
                                                                                                                                                                                            "\"state\":\"STATE_RUNNING\",\"endOffset\":\"100\",\"ratePerS\":\"9\","
                                                                                                                                                                                            "\"seenTime\":\"2026-03-02T14:05:11Z\",\"node\":\"n2\"") "]",
        "settlements: IN PART at n1, but for 1 partition\n"
        "  topic payments starts settlement, group g1\n"
        "  the broker keeps records 7 days, keys are remembered for ever\n"
        "  212 records behind, 7 a second\n"
        "  9 records: 0 started, 0 duplicates, 0 mismatches, 0 dead letters, 0 filtered, 0 "
        "tombstones\n"
        "  PARTITION  STATE    CURSOR  END  LAG  RATE/S  NODE  WHY\n"
        "  0          running  100     110  10   7       n1    suspect until 105\n"
        "  1          paused   100     102  2    0       n1    max_running is reached\n"
        "  2          STOPPED  100     300  200  0       n1    GAP 100..219: the broker has "
        "trimmed "
        "them (3 min ago)\n"
        "  3          UNSEEN   100     -    -    0             no node has looked at it yet\n"
        "  4          UNSEEN   100     100  0    0       n2    seen 3 min ago\n"
        "  sagactl kafka resume payments/2 --rule settlements --from low --reason ...\n");
}

static void test_status_tells_why_a_rule_does_not_run(void **state)
{
    (void)state;
    assert_rule(
        ",\"stop\":{\"time\":\"2026-03-02T14:05:11Z\",\"actor\":\"ada\",\"reason\":\"hand "
        "back\"},\"topicRetention\":\"0s\",\"topicCompacted\":true,\"keyMemory\":\"86400s\"",
        "settlements: stopped by ada, 3 min ago: hand back\n"
        "  topic payments starts settlement, group g1\n"
        "  the broker keeps records for an unknown time (compacted), keys are remembered 1 "
        "day\n"
        "  0 records behind, 0 a second\n"
        "  9 records: 0 started, 0 duplicates, 0 mismatches, 0 dead letters, 0 filtered, 0 "
        "tombstones\n"
        "  sagactl kafka start settlements --reason ...\n");
    static const struct {
        const char *more;
        int64_t seen_s_ago;
        const char *head;
    } rows[] = {
        { ",\"problem\":\"topic keeps 30 days, keys 7 days\"", 1,
          "settlements: CANNOT RUN topic keeps 30 days, keys 7 days\n" },
        { "", 9, "settlements: running at n1\n" },
        { "", 180, "settlements: UNSEEN no node serves it now; n1 did 3 min ago\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf text = { 0 };
        Saga__V1__KafkaRule *rule = rule_from(rows[i].more);
        rule->seen_time->seconds = NOW_MS / 1000 - rows[i].seen_s_ago;
        kafka_write_rule(rule, &view, &text);
        assert_memory_equal(buf_cstr(&text), rows[i].head, strlen(rows[i].head));
        free_message(rule);
        buf_done(&text);
    }
}

static void test_each_reason_to_stop_has_a_likely_way_on(void **state)
{
    (void)state;
    static const struct {
        const char *reason, *from;
    } rows[] = {
        { "GAP", "--from low " },
        { "BEYOND_END", "--from end " },
        { "TOPIC_RECREATED", "--from low " },
        { "GROUP_OFFSET_FOREIGN", "--from cursor " },
        { "SOMETHING_NEW", "--from OFFSET|low|end|cursor " },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf text = { 0 }, more = { 0 };
        buf_printf(&more,
                   ",\"partitions\":[{\"topic\":\"it's\",\"rule\":\"settlements\","
                   "\"state\":\"STATE_STOPPED\",\"stopReason\":\"%s\"}]",
                   rows[i].reason);
        Saga__V1__KafkaRule *rule = rule_from(buf_cstr(&more));
        kafka_write_rule(rule, &view, &text);
        assert_non_null(strstr(buf_cstr(&text), rows[i].from));
        assert_non_null(strstr(buf_cstr(&text), "kafka resume 'it'\\''s/0' --rule settlements"));
        assert_non_null(strstr(buf_cstr(&text), "it's/0 ")); /* not the rule's topic: named */
        free_message(rule);
        buf_done(&text);
        buf_done(&more);
    }
}

static void test_rules_in_short(void **state)
{
    (void)state;
    struct buf text = { 0 };
    Saga__V1__KafkaRule *rules[] = {
        rule_from(",\"lag\":\"3\",\"ratePerS\":\"2\""),
        rule_from(",\"problem\":\"fenced\",\"lag\":\"4\""),
    };
    kafka_write_rules(rules, 2, &view, &text);
    free_message(rules[0]);
    free_message(rules[1]);
    assert_text(&text, "KAFKA RULE   TOPIC     STATE       BEHIND  RATE/S  DEAD  WHY\n"
                       "settlements  payments  running     3       2       0     at n1\n"
                       "settlements  payments  CANNOT RUN  4       0       0     fenced\n");
}

static void test_what_is_behind_is_told_and_nothing_else(void **state)
{
    (void)state;
    assert_behind("", "");
    assert_behind(",\"partitions\":[" PARTITION(
                      "0", "\"state\":\"STATE_RUNNING\",\"endOffset\":\"100\"," SEEN) "]",
                  "");
    assert_behind(
        ",\"lag\":\"12400\",\"stoppedPartitions\":1,\"partitions\":[" PARTITION(
            "0", "\"state\":\"STATE_RUNNING\",\"endOffset\":\"100\"," SEEN) "," PARTITION("2",
                                                                                          GAP) "]",
        "rule settlements may yet bring it: IN PART at n1, but for 1 partition\n"
        "  200 records behind on payments/2, STOPPED: GAP 100..219: the broker has "
        "trimmed them (3 min ago)\n");
    assert_behind(",\"problem\":\"fenced\"",
                  "rule settlements may yet bring it: CANNOT RUN fenced\n");
    assert_behind(
        ",\"partitions\":[" PARTITION("0", "\"state\":\"STATE_RUNNING\",\"endOffset\":\"-1\"") "]",
        "rule settlements may yet bring it: running at n1\n"
        "  payments/0, UNSEEN: no node has looked at it yet\n");
}

/* --- requests --------------------------------------------------------------------------------- */

static void test_a_check_is_told_with_the_first_of_each_fault(void **state)
{
    (void)state;
    struct buf text = { 0 };
    Saga__V1__KafkaRequest *request = message_from(
        "{\"rule\":\"settlements\",\"check\":{\"records\":\"100\",\"good\":\"90\","
        "\"filtered\":\"4\",\"notCanary\":\"2\",\"tombstones\":\"1\",\"duplicates\":\"5\","
        "\"known\":\"6\",\"missingKeys\":\"2\",\"bad\":[{\"reason\":\"KEY_MISSING\","
        "\"count\":\"2\",\"partition\":3,\"offset\":\"17\",\"message\":\"no key\"},"
        "{\"reason\":\"TEMPLATE\",\"count\":\"1\",\"message\":\"bad\\u001b[2J\"}]}}",
        &saga__v1__kafka_request__descriptor);
    kafka_write_check(request, &view, &text);
    assert_string_equal(
        buf_cstr(&text),
        "settlements: 100 records: 90 good, 3 bad, 4 filtered, 2 not of the canary, 1 tombstones\n"
        "  of the good ones 5 have a key that came before among them, and 6 one that has a saga: "
        "these start nothing\n"
        "  2 have no business key\n"
        "BAD  REASON       THE FIRST ONE           WHAT IS WRONG\n"
        "2    KEY_MISSING  partition 3, offset 17  no key\n"
        "1    TEMPLATE     partition 0, offset 0   bad?[2J\n");
    free_message(request);
    buf_done(&text);
}

static void test_a_takeover_tells_where_it_begins_and_what_is_suspect(void **state)
{
    (void)state;
    struct buf text = { 0 };
    Saga__V1__KafkaRequest *request = message_from(
        "{\"rule\":\"settlements\",\"takeOver\":{\"partitions\":[{\"partition\":0,"
        "\"nextOffset\":\"40\",\"suspectUntil\":\"100\"},{\"partition\":1,\"nextOffset\":\"7\"}]}}",
        &saga__v1__kafka_request__descriptor);
    kafka_write_take_over(request, &view, &text);
    free_message(request);
    assert_text(&text,
                "settlements has taken over and runs. Records before SUSPECT BEFORE may be half "
                "done by the group: they start SUSPECT\n"
                "PARTITION  BEGINS AT  SUSPECT BEFORE  RECORDS\n"
                "0          40         100             60\n"
                "1          7          0               0\n");
}

static void test_a_request_in_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
    } rows[] = {
        { "{\"state\":\"STATE_OPEN\"}", "{}" },
        { "{\"state\":\"STATE_FAILED\",\"error\":\"GROUP_HAS_MEMBERS: 2\"}",
          "{} GROUP_HAS_MEMBERS: 2" },
        { "{\"state\":\"STATE_TAKEN\",\"node\":\"n1\",\"progress\":\"3\",\"total\":\"9\"}",
          "{} 3 of 9 at n1" },
        { "{\"state\":\"STATE_DONE\",\"check\":{\"good\":\"3\",\"records\":\"4\"}}",
          "{} 3 of 4 records are good" },
        { "{\"state\":\"STATE_DONE\",\"takeOver\":{\"partitions\":[{}]}}", "{} 1 partitions" },
        { "{\"state\":\"STATE_DONE\",\"resume\":{\"nextOffset\":\"7\"}}", "{} from 7" },
        { "{\"state\":\"STATE_DONE\",\"letters\":{\"letters\":\"8\"}}", "{} 8 letters" },
        { "{\"state\":\"STATE_DONE\"}", "{}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf text = { 0 };
        Saga__V1__KafkaRequest *request =
            message_from(rows[i].json, &saga__v1__kafka_request__descriptor);
        char arguments[] = "{}", *unset = request->arguments;
        request->arguments = arguments;
        kafka_write_request(request, &text);
        request->arguments = unset;
        free_message(request);
        assert_text(&text, rows[i].text);
    }
}

/* --- dead letters ----------------------------------------------------------------------------- */

#define LETTER                                                                                     \
    "\"deadLetterId\":\"01900000-0000-7000-8000-0000000000aa\",\"rule\":\"settlements\","          \
    "\"topic\":\"payments\",\"partition\":3,\"offset\":\"1234\","                                  \
    "\"receiveTime\":\"2026-03-02T14:05:11Z\",\"reason\":\"KEY_MISSING\",\"message\":\"no key\""

static void test_a_letter_is_shown_whatever_its_bytes_are(void **state)
{
    (void)state;
    struct buf text = { 0 };
    /* value: {"a":<LF>1}; headers: text and null; binary */
    Saga__V1__DeadLetter *letter = message_from(
        "{" LETTER ",\"state\":\"STATE_REPLAYED\",\"actor\":\"ada\",\"decisionReason\":\"fixed\","
        "\"decideTime\":\"2026-03-02T14:06:11Z\",\"sagaUid\":\"u1\",\"sagaId\":\"S-1\","
        "\"replayError\":\"no table\",\"recordTime\":\"2026-03-02T14:05:10Z\","
        "\"keySize\":\"4\",\"key\":\"AAECGw==\",\"valueSize\":\"8\",\"value\":\"eyJhIjoKMX0=\","
        "\"headers\":{\"headers\":[{\"name\":\"dHlwZQ==\",\"value\":\"eA==\"},"
        "{\"name\":\"dHlwZQ==\"},{\"name\":\"/w==\",\"value\":\"AP8=\"}]}}",
        &saga__v1__dead_letter__descriptor);
    assert_false(letter_write(letter, 0, &view, &text));
    assert_string_equal(
        buf_cstr(&text),
        "dead letter 01900000-0000-7000-8000-0000000000aa: REPLAYED\n"
        "  KEY_MISSING: no key\n"
        "  from payments/3, offset 1234, by rule settlements\n"
        "  written 2026-03-02 14:05:10 (3 min ago), received 2026-03-02 14:05:11 (3 min ago)\n"
        "  business key S-1\n"
        "  decided by ada (unproven), 2026-03-02 14:06:11 (2 min ago): fixed\n"
        "  its saga: sagactl where u1\n"
        "  the last replay started nothing: no table\n"
        "key, 4 bytes (no text):\n"
        "  00000000  00 01 02 1b                                       |....|\n"
        "header type: x\n"
        "header type: null\n"
        "header 0xff: 0x00ff\n"
        "value, 8 bytes:\n"
        "  {\"a\":\n"
        "  1}\n");
    buf_clear(&text);
    assert_true(letter_write(letter, 3, &view, &text));
    assert_non_null(strstr(buf_cstr(&text), "00 01 02  "));
    assert_non_null(strstr(buf_cstr(&text), "value, 8 bytes:\n  {\"a\n"));
    free_message(letter);
    buf_done(&text);
}

static void test_null_and_empty_are_told_apart_and_a_cut_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
        bool cut;
    } rows[] = {
        { "{" LETTER ",\"keySize\":\"-1\",\"valueSize\":\"0\"}",
          "key: null\nvalue, 0 bytes: empty\n", false },
        { "{" LETTER ",\"keySize\":\"0\",\"valueSize\":\"9\",\"value\":\"eA==\"}",
          "key, 0 bytes: empty\nvalue, 9 bytes:\n  x\n", true },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf text = { 0 };
        Saga__V1__DeadLetter *letter =
            message_from(rows[i].json, &saga__v1__dead_letter__descriptor);
        assert_int_equal(letter_write(letter, 0, &view, &text), rows[i].cut);
        assert_non_null(strstr(buf_cstr(&text), rows[i].text));
        free_message(letter);
        buf_done(&text);
    }
}

static void test_json_of_a_letter_has_text_beside_base64_where_it_is_text(void **state)
{
    (void)state;
    struct err err;
    json_t *json;
    Saga__V1__DeadLetter *letter = message_from(
        "{" LETTER ",\"keySize\":\"2\",\"key\":\"/wA=\",\"valueSize\":\"1\",\"value\":\"eA==\","
        "\"headers\":{\"headers\":[{\"name\":\"dHlwZQ==\"},{\"name\":\"/w==\","
        "\"value\":\"eA==\"}]}}",
        &saga__v1__dead_letter__descriptor);
    ASSERT_OK(letter_json(letter, &json, &err), &err);
    assert_null(json_object_get(json, "keyText"));
    assert_string_equal(json_string_value(json_object_get(json, "key")), "/wA=");
    assert_string_equal(json_string_value(json_object_get(json, "valueText")), "x");
    json_t *headers = json_object_get(json_object_get(json, "headers"), "headers");
    json_t *first = json_array_get(headers, 0), *second = json_array_get(headers, 1);
    assert_string_equal(json_string_value(json_object_get(first, "nameText")), "type");
    assert_null(json_object_get(first, "valueText"));
    assert_null(json_object_get(second, "nameText"));
    assert_string_equal(json_string_value(json_object_get(second, "valueText")), "x");
    json_decref(json);
    free_message(letter);
}

/* --- what is known of a key ------------------------------------------------------------------- */

static void test_what_is_known_of_a_key_that_no_saga_has(void **state)
{
    (void)state;
    struct buf text = { 0 };
    Saga__V1__LookUpKeyResponse *known = message_from(
        "{\"known\":[{\"namespace\":\"pay\",\"definition\":\"settlement\",\"sagaUid\":\"u1\","
        "\"run\":1,\"state\":\"SAGA_STATE_SUCCEEDED\",\"purged\":true,"
        "\"startTime\":\"2026-03-02T14:05:11Z\",\"forgetTime\":\"2026-03-02T14:18:11Z\","
        "\"archive\":\"n1-20260302.jsonl\"},"
        "{\"namespace\":\"default\",\"definition\":\"other\",\"sagaUid\":\"u2\",\"run\":2,"
        "\"purged\":true}],\"deadLetters\":[{" LETTER ",\"state\":\"STATE_OPEN\"}]}",
        &saga__v1__look_up_key_response__descriptor);
    assert_true(where_has_known(known));
    where_write_known(known, &view, &text);
    assert_string_equal(
        buf_cstr(&text),
        "pay/settlement, run 1: SUCCEEDED, started 2026-03-02 14:05:11 (3 min ago), uid u1\n"
        "  its rows were purged; the same key starts nothing until 2026-03-02 14:18:11 (in 10 min)"
        "; archived in n1-20260302.jsonl\n"
        "other, run 2: has not ended, uid u2\n"
        "  its rows were purged; the same key starts nothing again\n"
        "dead letter, OPEN: payments/3 at 1234, 2026-03-02 14:05:11 (3 min ago): KEY_MISSING: no "
        "key\n"
        "  sagactl dead-letter show 01900000-0000-7000-8000-0000000000aa\n");
    free_message(known);
    buf_done(&text);
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_tells_each_partition_and_what_to_do),
        cmocka_unit_test(test_status_tells_why_a_rule_does_not_run),
        cmocka_unit_test(test_each_reason_to_stop_has_a_likely_way_on),
        cmocka_unit_test(test_rules_in_short),
        cmocka_unit_test(test_what_is_behind_is_told_and_nothing_else),
        cmocka_unit_test(test_a_check_is_told_with_the_first_of_each_fault),
        cmocka_unit_test(test_a_takeover_tells_where_it_begins_and_what_is_suspect),
        cmocka_unit_test(test_a_request_in_one_line),
        cmocka_unit_test(test_a_letter_is_shown_whatever_its_bytes_are),
        cmocka_unit_test(test_null_and_empty_are_told_apart_and_a_cut_is_said),
        cmocka_unit_test(test_json_of_a_letter_has_text_beside_base64_where_it_is_text),
        cmocka_unit_test(test_what_is_known_of_a_key_that_no_saga_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
