/* KafkaService over a whole server. Goal: what nodes wrote is told as it is; a decision is taken
 * once, with who took it and why, and what does not fit is refused with its field or its reason; a
 * request is answered with what the node made of it. Method: rows as nodes write them, calls as
 * JSON, the rows that come of them. */
#include "kafka_rows.h"
#include "support/wait.h"

#include "wire/json.h"

#include <saga/v1/kafka.pb-c.h>
#include <stdio.h>
#include <string.h>

enum { INVALID_ARGUMENT = 3, NOT_FOUND = 5, FAILED_PRECONDITION = 9, INTERNAL = 13 };

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int clear(void **state)
{
    (void)state;
    kafka_rows_clear(&rig);
    return 0;
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void free_message_p(void *message)
{
    ProtobufCMessage *owned = *(ProtobufCMessage **)message;
    if (owned)
        protobuf_c_message_free_unpacked(owned, NULL);
}

/* "ListRules" and the names that go with it. */
#define METHOD(name, request, reply)                                                               \
    {                                                                                              \
        "KafkaService/" name, &saga__v1__##request##_request__descriptor,                          \
            &saga__v1__##reply##__descriptor                                                       \
    }
static const struct method {
    const char *path;
    const ProtobufCMessageDescriptor *request, *reply;
} list_rules = METHOD("ListRules", list_rules, list_rules_response),
  stop_rule = METHOD("StopRule", stop_rule, kafka_rule),
  start_rule = METHOD("StartRule", start_rule, kafka_rule),
  resume = METHOD("ResumePartition", resume_partition, kafka_partition),
  check_rule = METHOD("CheckRule", check_rule, kafka_request),
  take_over = METHOD("TakeOver", take_over, kafka_request),
  get_request = METHOD("GetKafkaRequest", get_kafka_request, kafka_request),
  list_requests = METHOD("ListKafkaRequests", list_kafka_requests, list_kafka_requests_response),
  list_letters = METHOD("ListDeadLetters", list_dead_letters, list_dead_letters_response),
  get_letter = METHOD("GetDeadLetter", get_dead_letter, dead_letter),
  replay = METHOD("ReplayDeadLetters", replay_dead_letters, replay_dead_letters_response),
  discard = METHOD("DiscardDeadLetters", discard_dead_letters, discard_dead_letters_response),
  look_up = METHOD("LookUpKey", look_up_key, look_up_key_response);

static ProtobufCMessage *call(const struct method *method, const char *json,
                              struct client_failure *failure)
{
    struct err err;
    CLEANUP(free_message_p) ProtobufCMessage *request = NULL;
    ASSERT_OK(wire_json_decode(json, strlen(json), method->request, &request, &err), &err);
    return rig_call(&rig, method->path, request, method->reply, failure);
}

static void *ask(const struct method *method, const char *json)
{
    return call(method, json, NULL);
}

static void tell(const struct method *method, const char *json)
{
    protobuf_c_message_free_unpacked(ask(method, json), NULL);
}

/* `what`: the stable reason, or the field that is wrong. */
static void refuse(const struct method *method, const char *json, int code, const char *what)
{
    struct client_failure failure = { .code = 0 };
    CLEANUP(free_message_p) ProtobufCMessage *reply = call(method, json, &failure);
    if (reply)
        fail_msg("%s %s: was not refused", method->path, json);
    const char *told = failure.violation_count ? failure.violations[0].field : failure.reason;
    if (failure.code != code || strcmp(told, what) != 0)
        fail_msg("%s %s: %d %s, not %d %s: %s", method->path, json, failure.code, told, code, what,
                 failure.message);
    client_failure_done(&failure);
}

/* --- rules ------------------------------------------------------------------------------------ */

static void test_rules_are_told_as_nodes_wrote_them(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "r1", "RUN");
    kafka_rows_rule(&rig, "r2", "STOP");
    kafka_rows_partition(&rig, "r1", 0);
    kafka_rows_partition(&rig, "r1", 1);
    kafka_rows_gap(&rig, "r1", 1);
    CLEANUP(free_message_p) Saga__V1__ListRulesResponse *all = ask(&list_rules, "{}");
    assert_int_equal(all->n_rules, 2);
    assert_non_null(all->now);
    const Saga__V1__KafkaRule *rule = all->rules[0];
    assert_string_equal(rule->name, "r1");
    assert_null(rule->stop);
    assert_int_equal(rule->lag, 400);
    assert_int_equal(rule->rate_per_s, 25);
    assert_int_equal(rule->stopped_partitions, 1);
    assert_int_equal(rule->counters->started, 100);
    assert_int_equal(rule->topic_retention->seconds, 604800);
    assert_null(rule->key_memory);
    assert_int_equal(rule->n_partitions, 2);
    const Saga__V1__KafkaPartition *gap = rule->partitions[1];
    assert_int_equal(gap->state, SAGA__V1__KAFKA_PARTITION__STATE__STATE_STOPPED);
    assert_string_equal(gap->stop_reason, "GAP");
    assert_int_equal(gap->stop_from_offset, 100);
    assert_int_equal(gap->stop_to_offset, 219);
    assert_non_null(gap->stop_time);
    assert_string_equal(all->rules[1]->stop->actor, "bob");
    assert_int_equal(all->rules[1]->n_partitions, 0);
    CLEANUP(free_message_p)
    Saga__V1__ListRulesResponse *sums = ask(&list_rules, "{\"omitPartitions\":true}");
    assert_int_equal(sums->rules[0]->n_partitions, 0);
    assert_int_equal(sums->rules[0]->lag, 400);
    CLEANUP(free_message_p)
    Saga__V1__ListRulesResponse *one = ask(&list_rules, "{\"rule\":\"r2\"}");
    assert_int_equal(one->n_rules, 1);
    refuse(&list_rules, "{\"rule\":\"r3\"}", NOT_FOUND, "RULE_NOT_FOUND");
}

#define WORDS ",\"actor\":\"ada\",\"reason\":\"because\"}"

static void test_a_rule_is_stopped_and_started_once_and_by_somebody(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "r1", "RUN");
    for (int i = 0; i < 2; i++) { /* the second time it is so already */
        CLEANUP(free_message_p)
        Saga__V1__KafkaRule *rule = ask(&stop_rule, "{\"rule\":\"r1\"" WORDS);
        assert_string_equal(rule->stop->actor, "ada");
        assert_string_equal(rule->stop->reason, "because");
    }
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM kafka_request WHERE kind = 'STOP' AND rule ="
                               " 'r1' AND actor = 'ada' AND state = 'DONE'"),
                     1);
    CLEANUP(free_message_p) Saga__V1__KafkaRule *rule = ask(&start_rule, "{\"rule\":\"r1\"" WORDS);
    assert_null(rule->stop);
    refuse(&stop_rule, "{\"rule\":\"r9\"" WORDS, NOT_FOUND, "RULE_NOT_FOUND");
}

static void test_a_stopped_partition_goes_on_where_it_is_told_to(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        int64_t offset;
    } rows[] = {
        { "\"position\":\"POSITION_CURSOR\"", 100 },
        { "\"position\":\"POSITION_LOW\"", 220 },
        { "\"position\":\"POSITION_END\"", 300 },
        { "\"offset\":\"250\"", 250 },
        { "\"offset\":\"0\"", 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char json[256];
        kafka_rows_clear(&rig);
        kafka_rows_rule(&rig, "r1", "RUN");
        kafka_rows_partition(&rig, "r1", 3);
        kafka_rows_gap(&rig, "r1", 3);
        (void)snprintf(json, sizeof json,
                       "{\"rule\":\"r1\",\"topic\":\"payments\",\"partition\":3,%s" WORDS,
                       rows[i].from);
        CLEANUP(free_message_p) Saga__V1__KafkaPartition *partition = ask(&resume, json);
        assert_int_equal(partition->next_offset, rows[i].offset);
        assert_int_equal(partition->state, SAGA__V1__KAFKA_PARTITION__STATE__STATE_RUNNING);
        assert_string_equal(partition->stop_reason, "");
        CLEANUP(free_message_p)
        Saga__V1__ListKafkaRequestsResponse *trail = ask(&list_requests, "{}");
        assert_int_equal(trail->n_requests, 1);
        assert_int_equal(trail->requests[0]->kind, SAGA__V1__KAFKA_REQUEST__KIND__KIND_RESUME);
        assert_int_equal(trail->requests[0]->result_case, SAGA__V1__KAFKA_REQUEST__RESULT_RESUME);
        assert_int_equal(trail->requests[0]->resume->next_offset, rows[i].offset);
        refuse(&resume, json, FAILED_PRECONDITION, "PARTITION_NOT_STOPPED");
    }
}

static void test_what_does_not_fit_is_refused_by_field_or_reason(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "r1", "RUN");
    kafka_rows_partition(&rig, "r1", 3);
#define AT "{\"rule\":\"r1\",\"topic\":\"payments\""
    static const struct {
        const struct method *method;
        const char *json;
        int code;
        const char *what;
    } rows[] = {
        { &stop_rule, "{\"rule\":\"r1\",\"actor\":\"ada\"}", INVALID_ARGUMENT, "reason" },
        { &stop_rule, "{\"rule\":\"r1\",\"reason\":\"x\"}", INVALID_ARGUMENT, "actor" },
        { &stop_rule, "{\"rule\":\"\"" WORDS, INVALID_ARGUMENT, "rule" },
        { &start_rule, "{\"rule\":\"r1\",\"reason\":\"\\u0007\",\"actor\":\"a\"}", INVALID_ARGUMENT,
          "reason" },
        { &list_rules, "{\"rule\":\"a\\u0001\"}", INVALID_ARGUMENT, "rule" },
        { &resume, AT ",\"partition\":3" WORDS, INVALID_ARGUMENT, "from" },
        { &resume, AT ",\"partition\":3,\"position\":\"POSITION_UNSPECIFIED\"" WORDS,
          INVALID_ARGUMENT, "from" },
        { &resume, AT ",\"partition\":3,\"offset\":\"-1\"" WORDS, INVALID_ARGUMENT, "offset" },
        { &resume, AT ",\"partition\":-1,\"offset\":\"1\"" WORDS, INVALID_ARGUMENT, "partition" },
        { &resume, "{\"rule\":\"r1\",\"offset\":\"1\"" WORDS, INVALID_ARGUMENT, "topic" },
        { &resume, AT ",\"partition\":3,\"offset\":\"1\",\"actor\":\"a\"}", INVALID_ARGUMENT,
          "reason" },
        { &resume, AT ",\"partition\":4,\"offset\":\"1\"" WORDS, NOT_FOUND, "PARTITION_NOT_FOUND" },
        { &check_rule, "{\"rule\":\"r1\",\"last\":\"0\"" WORDS, INVALID_ARGUMENT, "last" },
        { &check_rule, "{\"rule\":\"r1\",\"last\":\"10000001\"" WORDS, INVALID_ARGUMENT, "last" },
        { &check_rule, "{\"rule\":\"r9\",\"last\":\"1\"" WORDS, NOT_FOUND, "RULE_NOT_FOUND" },
        { &take_over, "{\"rule\":\"r1\"" WORDS, INVALID_ARGUMENT, "from_group" },
        { &take_over, "{\"rule\":\"r1\",\"fromGroup\":\"old\",\"actor\":\"a\"}", INVALID_ARGUMENT,
          "reason" },
        { &take_over, "{\"rule\":\"r1\",\"fromGroup\":\"old\"" WORDS, FAILED_PRECONDITION,
          "RULE_RUNS" },
        { &get_request, "{\"requestId\":\"x\"}", INVALID_ARGUMENT, "request_id" },
        { &get_request, "{\"requestId\":\"01900000-0000-7000-8000-0000000000aa\"}", NOT_FOUND,
          "REQUEST_NOT_FOUND" },
        { &list_requests, "{\"pageToken\":\"AAAA\"}", INVALID_ARGUMENT, "page_token" },
        { &list_requests, "{\"pageSize\":1001}", INVALID_ARGUMENT, "page_size" },
        { &list_letters, "{\"pageSize\":-1}", INVALID_ARGUMENT, "page_size" },
        { &list_letters, "{\"filter\":{\"partition\":-1}}", INVALID_ARGUMENT, "filter.partition" },
        { &list_letters, "{\"filter\":{\"states\":[\"STATE_UNSPECIFIED\"]}}", INVALID_ARGUMENT,
          "filter.states" },
        { &get_letter, "{}", INVALID_ARGUMENT, "dead_letter_id" },
        { &get_letter, "{\"deadLetterId\":\"01900000-0000-7000-8000-0000000000aa\"}", NOT_FOUND,
          "LETTER_NOT_FOUND" },
        { &replay, "{\"actor\":\"a\",\"reason\":\"b\"}", INVALID_ARGUMENT, "filter" },
        { &replay, "{\"filter\":{},\"actor\":\"a\"}", INVALID_ARGUMENT, "reason" },
        { &discard, "{\"filter\":{},\"reason\":\"a\"}", INVALID_ARGUMENT, "actor" },
        { &discard, "{\"filter\":{},\"limit\":1001" WORDS, INVALID_ARGUMENT, "limit" },
        { &discard, "{\"filter\":{\"states\":[\"STATE_OPEN\"]}" WORDS, INVALID_ARGUMENT,
          "filter.states" },
        { &discard, "{\"deadLetterIds\":[\"x\"]" WORDS, INVALID_ARGUMENT, "dead_letter_ids[0]" },
        { &discard,
          "{\"deadLetterIds\":[\"01900000-0000-7000-8000-0000000000aa\"],\"limit\":1" WORDS,
          INVALID_ARGUMENT, "limit" },
        { &discard,
          "{\"deadLetterIds\":[\"01900000-0000-7000-8000-0000000000aa\"],\"filter\":{}" WORDS,
          INVALID_ARGUMENT, "filter" },
        { &discard, "{\"deadLetterIds\":[\"01900000-0000-7000-8000-0000000000aa\"]" WORDS,
          NOT_FOUND, "LETTER_NOT_FOUND" },
        { &look_up, "{}", INVALID_ARGUMENT, "key" },
        { &look_up, "{\"key\":\"a\\u0001\"}", INVALID_ARGUMENT, "key" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        refuse(rows[i].method, rows[i].json, rows[i].code, rows[i].what);
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM kafka_request"), 0);
}

/* --- requests --------------------------------------------------------------------------------- */

static void test_a_request_is_answered_with_what_the_node_made_of_it(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "r1", "STOP");
    CLEANUP(free_message_p)
    Saga__V1__KafkaRequest *open = ask(&check_rule, "{\"rule\":\"r1\",\"last\":\"500\"" WORDS);
    assert_int_equal(open->state, SAGA__V1__KAFKA_REQUEST__STATE__STATE_OPEN);
    assert_non_null(strstr(open->arguments, "500"));
    assert_int_equal(open->result_case, SAGA__V1__KAFKA_REQUEST__RESULT__NOT_SET);
    kafka_rows_answer(&rig, "CHECK", "DONE",
                      "{\"records\":9,\"good\":7,\"bad\":[{\"reason\":\"KEY_MISSING\",\"count\":2,"
                      "\"partition\":1,\"offset\":5,\"message\":\"none\"}]}",
                      "");
    CLEANUP(free_message_p)
    Saga__V1__KafkaRequest *done = ask(&check_rule, "{\"rule\":\"r1\",\"last\":\"500\"" WORDS);
    assert_int_equal(done->state, SAGA__V1__KAFKA_REQUEST__STATE__STATE_DONE);
    assert_int_equal(done->check->records, 9);
    assert_string_equal(done->check->bad[0]->reason, "KEY_MISSING");
    assert_int_equal(done->check->bad[0]->offset, 5);
    kafka_rows_answer(&rig, "TAKEOVER", "DONE",
                      "{\"partitions\":[{\"partition\":1,\"next_offset\":5,\"suspect_until\":8}]}",
                      "");
    CLEANUP(free_message_p)
    Saga__V1__KafkaRequest *taken = ask(&take_over, "{\"rule\":\"r1\",\"fromGroup\":\"old\"" WORDS);
    assert_int_equal(taken->take_over->partitions[0]->suspect_until, 8);
    kafka_rows_answer(&rig, "TAKEOVER", "FAILED", "", "GROUP_HAS_MEMBERS: 2");
    CLEANUP(free_message_p)
    Saga__V1__KafkaRequest *failed =
        ask(&take_over, "{\"rule\":\"r1\",\"fromGroup\":\"old\"" WORDS);
    assert_int_equal(failed->state, SAGA__V1__KAFKA_REQUEST__STATE__STATE_FAILED);
    assert_string_equal(failed->error, "GROUP_HAS_MEMBERS: 2");
    char json[128];
    (void)snprintf(json, sizeof json, "{\"requestId\":\"%s\"}", failed->request_id);
    CLEANUP(free_message_p) Saga__V1__KafkaRequest *again = ask(&get_request, json);
    assert_string_equal(again->error, failed->error);
    /* A result that is none is said, and does not pass for an empty one. */
    kafka_rows_answer(&rig, "CHECK", "DONE", "{\"records\":\"many\"}", "");
    refuse(&check_rule, "{\"rule\":\"r1\",\"last\":\"500\"" WORDS, INTERNAL, "INTERNAL");
}

static void test_the_audit_trail_comes_in_pages_newest_first(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "r1", "RUN");
    kafka_rows_rule(&rig, "r2", "RUN");
    for (int i = 0; i < 6; i++) { /* of one millisecond they would be in any order */
        tell(i % 2 ? &start_rule : &stop_rule, "{\"rule\":\"r1\"" WORDS);
        wait_ms(2);
    }
    tell(&stop_rule, "{\"rule\":\"r2\"" WORDS);
    char token[256] = "", json[512];
    int64_t last_ms = INT64_MAX;
    size_t seen = 0, pages = 0;
    do {
        (void)snprintf(json, sizeof json, "{\"rule\":\"r1\",\"pageSize\":4,\"pageToken\":\"%s\"}",
                       token);
        CLEANUP(free_message_p)
        Saga__V1__ListKafkaRequestsResponse *page = ask(&list_requests, json);
        for (size_t i = 0; i < page->n_requests; i++, seen++) {
            const Google__Protobuf__Timestamp *time = page->requests[i]->request_time;
            int64_t ms = time->seconds * 1000 + time->nanos / 1000000;
            assert_true(ms <= last_ms);
            last_ms = ms;
            assert_int_equal(page->requests[i]->kind,
                             seen % 2 ? SAGA__V1__KAFKA_REQUEST__KIND__KIND_STOP
                                      : SAGA__V1__KAFKA_REQUEST__KIND__KIND_START);
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        pages++;
    } while (*token && pages < 9);
    assert_int_equal(seen, 6);
    assert_int_equal(pages, 2);
    CLEANUP(free_message_p) Saga__V1__ListKafkaRequestsResponse *all = ask(&list_requests, "{}");
    assert_int_equal(all->n_requests, 7);
    (void)snprintf(json, sizeof json, "{\"rule\":\"r1\",\"pageSize\":1}");
    CLEANUP(free_message_p) Saga__V1__ListKafkaRequestsResponse *first = ask(&list_requests, json);
    (void)snprintf(json, sizeof json, "{\"rule\":\"r2\",\"pageToken\":\"%s\"}",
                   first->next_page_token);
    refuse(&list_requests, json, INVALID_ARGUMENT, "page_token"); /* of another filter */
}

/* --- dead letters ----------------------------------------------------------------------------- */

static void test_letters_are_listed_by_filter_in_pages_and_shown_with_their_bytes(void **state)
{
    (void)state;
    char id[LETTER_ID_SIZE], json[512];
    kafka_rows_rule(&rig, "r1", "RUN");
    kafka_rows_rule(&rig, "r2", "RUN");
    for (int i = 1; i <= 5; i++)
        kafka_rows_letter(&rig, i <= 3 ? "r1" : "r2", i, i == 2 ? "TEMPLATE" : "KEY_MISSING",
                          "'\\x00ff'");
    kafka_rows_letter(&rig, "r1", 6, "VALUE_NULL", "NULL");
    CLEANUP(free_message_p)
    Saga__V1__ListDeadLettersResponse *two =
        ask(&list_letters, "{\"filter\":{\"rule\":\"r1\",\"reason\":\"KEY_MISSING\","
                           "\"topic\":\"payments\",\"partition\":3}}");
    assert_int_equal(two->n_dead_letters, 2);
    assert_string_equal(two->dead_letters[0]->dead_letter_id, kafka_rows_letter_id(3, id));
    assert_int_equal(two->dead_letters[0]->value_size, 2);
    assert_int_equal(two->dead_letters[0]->value.len, 0);
    CLEANUP(free_message_p)
    Saga__V1__ListDeadLettersResponse *none = ask(&list_letters, "{\"filter\":{\"partition\":0}}");
    assert_int_equal(none->n_dead_letters, 0);
    CLEANUP(free_message_p)
    Saga__V1__ListDeadLettersResponse *page = ask(&list_letters, "{\"pageSize\":4}");
    assert_int_equal(page->n_dead_letters, 4);
    (void)snprintf(json, sizeof json, "{\"pageToken\":\"%s\"}", page->next_page_token);
    CLEANUP(free_message_p) Saga__V1__ListDeadLettersResponse *rest = ask(&list_letters, json);
    assert_int_equal(rest->n_dead_letters, 2);
    assert_string_equal(rest->next_page_token, "");
    (void)snprintf(json, sizeof json, "{\"deadLetterId\":\"%s\"}", kafka_rows_letter_id(2, id));
    CLEANUP(free_message_p) Saga__V1__DeadLetter *letter = ask(&get_letter, json);
    assert_int_equal(letter->value.len, 2);
    assert_memory_equal(letter->value.data, "\x00\xff", 2);
    assert_int_equal(letter->key.len, 3);
    assert_int_equal(letter->headers->n_headers, 2);
    assert_int_equal(letter->headers->headers[0]->value.len, 1);
    assert_int_equal(letter->headers->headers[1]->_value_case,
                     SAGA__V1__KAFKA_HEADERS__HEADER___VALUE__NOT_SET);
    (void)snprintf(json, sizeof json, "{\"deadLetterId\":\"%s\"}", kafka_rows_letter_id(6, id));
    CLEANUP(free_message_p) Saga__V1__DeadLetter *null = ask(&get_letter, json);
    assert_int_equal(null->value_size, -1);
}

static void test_a_letter_that_is_larger_than_a_message_is_cut_and_says_so(void **state)
{
    (void)state;
    char id[LETTER_ID_SIZE], json[128];
    kafka_rows_letter(&rig, "r1", 1, "VALUE_TOO_LARGE",
                      "decode(repeat('00', 6 * 1024 * 1024), 'hex')");
    (void)snprintf(json, sizeof json, "{\"deadLetterId\":\"%s\"}", kafka_rows_letter_id(1, id));
    CLEANUP(free_message_p) Saga__V1__DeadLetter *letter = ask(&get_letter, json);
    assert_int_equal(letter->value_size, 6 * 1024 * 1024);
    assert_true(letter->value.len > 2 * 1024 * 1024);
    assert_true(letter->value.len < 4 * 1024 * 1024);
}

static void test_headers_that_are_no_headers_are_an_error(void **state)
{
    (void)state;
    char id[LETTER_ID_SIZE], json[128];
    kafka_rows_letter(&rig, "r1", 1, "TEMPLATE", "NULL");
    rig_exec(&rig, RIG_STORE, "UPDATE dead_letter SET headers = '\\x0aff'");
    (void)snprintf(json, sizeof json, "{\"deadLetterId\":\"%s\"}", kafka_rows_letter_id(1, id));
    refuse(&get_letter, json, INTERNAL, "INTERNAL");
}

static int64_t letters_in(const char *state)
{
    return rig_count(&rig, RIG_STORE, "SELECT count(*) FROM dead_letter WHERE state = '%s'", state);
}

static void test_letters_are_decided_on_once_by_filter_or_by_id(void **state)
{
    (void)state;
    char id[LETTER_ID_SIZE], other[LETTER_ID_SIZE], json[512];
    kafka_rows_rule(&rig, "r1", "RUN");
    kafka_rows_rule(&rig, "r2", "RUN");
    for (int i = 1; i <= 6; i++)
        kafka_rows_letter(&rig, i <= 4 ? "r1" : "r2", i, "KEY_MISSING", "'x'");
    CLEANUP(free_message_p)
    Saga__V1__DiscardDeadLettersResponse *dry =
        ask(&discard, "{\"filter\":{\"rule\":\"r1\"},\"limit\":3,\"dryRun\":true}");
    assert_int_equal(dry->count, 3);
    assert_true(dry->more);
    assert_int_equal(letters_in("OPEN"), 6);
    CLEANUP(free_message_p)
    Saga__V1__DiscardDeadLettersResponse *discarded =
        ask(&discard, "{\"filter\":{\"rule\":\"r1\"},\"limit\":3" WORDS);
    assert_int_equal(discarded->count, 3);
    assert_int_equal(letters_in("DISCARDED"), 3);
    (void)snprintf(json, sizeof json, "{\"deadLetterIds\":[\"%s\",\"%s\"]" WORDS,
                   kafka_rows_letter_id(4, id), kafka_rows_letter_id(5, other));
    CLEANUP(free_message_p) Saga__V1__ReplayDeadLettersResponse *replayed = ask(&replay, json);
    assert_int_equal(replayed->count, 2);
    assert_int_equal(letters_in("REPLAY"), 2);
    /* Of several ids one is decided already: none is. */
    (void)snprintf(json, sizeof json, "{\"deadLetterIds\":[\"%s\",\"%s\"]" WORDS,
                   kafka_rows_letter_id(6, id), kafka_rows_letter_id(5, other));
    refuse(&replay, json, FAILED_PRECONDITION, "LETTER_NOT_OPEN");
    assert_int_equal(letters_in("OPEN"), 1);
    CLEANUP(free_message_p)
    Saga__V1__ListDeadLettersResponse *gone =
        ask(&list_letters, "{\"filter\":{\"states\":[\"STATE_DISCARDED\"]}}");
    assert_int_equal(gone->n_dead_letters, 3);
    assert_string_equal(gone->dead_letters[0]->actor, "ada");
    assert_string_equal(gone->dead_letters[0]->decision_reason, "because");
    assert_non_null(gone->dead_letters[0]->decide_time);
    CLEANUP(free_message_p) Saga__V1__ListKafkaRequestsResponse *trail = ask(&list_requests, "{}");
    assert_int_equal(trail->n_requests, 3); /* discard of r1; replay of r1 and of r2 */
    int64_t letters = 0;
    for (size_t i = 0; i < trail->n_requests; i++)
        letters += trail->requests[i]->letters->letters;
    assert_int_equal(letters, 5);
}

/* --- one key ---------------------------------------------------------------------------------- */

static void test_r1_what_is_known_of_a_key_that_no_saga_has(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "r1", "RUN");
    kafka_rows_partition(&rig, "r1", 0);
    kafka_rows_letter(&rig, "r1", 1, "KEY_MISMATCH", "'x'");
    rig_define(&rig, "settlement", NULL, "a: IDEMPOTENT handler=act | none");
    rig_worker(&rig, "w", "act:4");
    rig_start(&rig, "settlement", "S-1", "");
    rig_await_state(&rig, "settlement", "S-1", "SUCCEEDED", 20000);
    rig_exec(
        &rig, RIG_STORE,
        "DELETE FROM journal j USING saga s WHERE s.saga_uid = j.saga_uid AND s.saga_id ="
        " 'S-1'; DELETE FROM saga WHERE saga_id = 'S-1'; UPDATE saga_key SET"
        " remembered_until = now() + interval '1 day', archive = 'f.jsonl' WHERE saga_id = 'S-1'");
    CLEANUP(free_message_p)
    Saga__V1__LookUpKeyResponse *purged = ask(&look_up, "{\"namespace\":\"-\",\"key\":\"S-1\"}");
    assert_int_equal(purged->n_known, 1);
    assert_true(purged->known[0]->purged);
    assert_int_equal(purged->known[0]->state, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
    assert_non_null(purged->known[0]->forget_time);
    assert_string_equal(purged->known[0]->archive, "f.jsonl");
    int64_t age_s = purged->now->seconds - purged->known[0]->start_time->seconds;
    assert_in_range(age_s + 5, 0, 120); /* the uid is made by the server's clock */
    assert_int_equal(purged->n_dead_letters, 0);
    assert_int_equal(purged->n_rules, 1);
    assert_int_equal(purged->rules[0]->lag, 200);
    CLEANUP(free_message_p)
    Saga__V1__LookUpKeyResponse *dead =
        ask(&look_up, "{\"definition\":\"settlement\",\"key\":\"K-1\"}");
    assert_int_equal(dead->n_known, 0);
    assert_int_equal(dead->n_dead_letters, 1);
    CLEANUP(free_message_p)
    Saga__V1__LookUpKeyResponse *other =
        ask(&look_up, "{\"definition\":\"other\",\"key\":\"S-1\"}");
    assert_int_equal(other->n_known, 0);
    assert_int_equal(other->n_rules, 0);
    rig_workers_kill(&rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, clear, check)
    const struct CMUnitTest tests[] = {
        TEST(test_rules_are_told_as_nodes_wrote_them),
        TEST(test_a_rule_is_stopped_and_started_once_and_by_somebody),
        TEST(test_a_stopped_partition_goes_on_where_it_is_told_to),
        TEST(test_what_does_not_fit_is_refused_by_field_or_reason),
        TEST(test_a_request_is_answered_with_what_the_node_made_of_it),
        TEST(test_the_audit_trail_comes_in_pages_newest_first),
        TEST(test_letters_are_listed_by_filter_in_pages_and_shown_with_their_bytes),
        TEST(test_a_letter_that_is_larger_than_a_message_is_cut_and_says_so),
        TEST(test_headers_that_are_no_headers_are_an_error),
        TEST(test_letters_are_decided_on_once_by_filter_or_by_id),
        TEST(test_r1_what_is_known_of_a_key_that_no_saga_has),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
