/* sagactl kafka and dead-letter against a real server. Goal: a person sees why a partition stands
 * still and gets it on; what is asked of a node is waited for, and its no is told; dead letters are
 * looked through, counted and decided on; where KEY never says "not found" alone when something is
 * known; each refusal says what to do. Method: the program as people run it, on rows as nodes write
 * them. */
#include "kafka_rows.h"
#include "support/sagactl.h"

#include <stdio.h>
#include <string.h>

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

/* SAGACTL(exit code, WORDS("what it says", ...), "kafka", "status"); JSON("kafka", "status") */
#define SAGACTL(exit_code, parts, ...) sagactl_expect(&rig, exit_code, parts, WORDS(__VA_ARGS__))
#define JSON(...)                      sagactl_json(&rig, WORDS("-o", "json", __VA_ARGS__))

static void test_status_tells_what_holds_up_a_partition(void **state)
{
    (void)state;
    SAGACTL(0, WORDS("no sagad has served a rule yet"), "kafka", "status");
    kafka_rows_rule(&rig, "settlements", "RUN");
    kafka_rows_partition(&rig, "settlements", 0);
    kafka_rows_partition(&rig, "settlements", 3);
    kafka_rows_gap(&rig, "settlements", 3);
    SAGACTL(0,
            WORDS("settlements: IN PART at n1", "running", "GAP 100..219: trimmed",
                  "sagactl --address ",
                  "kafka resume payments/3 --rule settlements --from low --reason ..."),
            "kafka", "status");
    SAGACTL(0, WORDS("KAFKA RULE", "settlements", "IN PART"), "status");
    SAGACTL(1, WORDS("NOT_FOUND", "[RULE_NOT_FOUND]", "sagactl kafka status lists the rules"),
            "kafka", "status", "other");
    json_t *status = JSON("kafka", "status", "settlements");
    json_t *rule = json_array_get(json_object_get(status, "rules"), 0);
    assert_string_equal(json_string_value(json_object_get(rule, "lag")), "400");
    assert_int_equal(json_array_size(json_object_get(rule, "partitions")), 2);
    json_decref(status);
    status = JSON("status");
    assert_int_equal(json_array_size(json_object_get(status, "kafkaRules")), 1);
    assert_non_null(json_object_get(status, "counters"));
    json_decref(status);
}

static void test_a_partition_goes_on_where_a_person_says(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "settlements", "RUN");
    kafka_rows_partition(&rig, "settlements", 3);
    SAGACTL(1,
            WORDS("[PARTITION_NOT_STOPPED]", "sagactl kafka stop settlements --reason ..., then"),
            "kafka", "resume", "payments/3", "--from", "low", "--reason", "x");
    kafka_rows_gap(&rig, "settlements", 3);
    SAGACTL(2, WORDS("kafka resume needs --reason"), "kafka", "resume", "payments/3", "--from",
            "low");
    SAGACTL(2, WORDS("needs --from"), "kafka", "resume", "payments/3", "--reason", "x");
    SAGACTL(2, WORDS("needs --from"), "kafka", "resume", "payments/3", "--from", "-5", "--reason",
            "x");
    SAGACTL(2, WORDS("takes TOPIC/PARTITION"), "kafka", "resume", "payments", "--from", "low",
            "--reason", "x");
    SAGACTL(2, WORDS("takes TOPIC/PARTITION"), "kafka", "resume", "payments/x", "--from", "low",
            "--reason", "x");
    SAGACTL(1, WORDS("no rule has that topic"), "kafka", "resume", "other/3", "--from", "low",
            "--reason", "x");
    kafka_rows_rule(&rig, "another", "RUN");
    SAGACTL(2, WORDS("--rule says which"), "kafka", "resume", "payments/3", "--from", "low",
            "--reason", "x");
    SAGACTL(1, WORDS("[PARTITION_NOT_FOUND]", "sagactl kafka status settlements"), "kafka",
            "resume", "payments/7", "--from", "5", "--rule", "settlements", "--reason", "x");
    SAGACTL(0, WORDS("payments/3 of rule settlements goes on at 220"), "kafka", "resume",
            "payments/3", "--from", "low", "--rule", "settlements", "--reason",
            "they were exports of a test");
    SAGACTL(0, WORDS("RESUME", "DONE", "ada", "they were exports of a test", "from 220"), "kafka",
            "requests", "--rule", "settlements");
}

static void test_a_rule_is_stopped_and_started_with_a_reason(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "settlements", "RUN");
    kafka_rows_partition(&rig, "settlements", 3);
    kafka_rows_gap(&rig, "settlements", 3);
    SAGACTL(2, WORDS("kafka stop needs --reason"), "kafka", "stop", "settlements");
    SAGACTL(0, WORDS("settlements: stopped; sagas that it started go on"), "kafka", "stop",
            "settlements", "--reason", "the old one takes over");
    SAGACTL(0, WORDS("stopped by ada", "the old one takes over", "kafka start settlements"),
            "kafka", "status");
    SAGACTL(0, WORDS("settlements: runs", "1 of its partitions are stopped"), "kafka", "start",
            "settlements", "--reason", "back");
    SAGACTL(1, WORDS("[RULE_NOT_FOUND]"), "kafka", "start", "other", "--reason", "x");
    SAGACTL(0, WORDS("there are more", "START"), "kafka", "requests", "--limit", "1");
    json_t *trail = JSON("kafka", "requests");
    assert_int_equal(json_array_size(json_object_get(trail, "requests")), 2);
    assert_true(json_is_false(json_object_get(trail, "more")));
    json_decref(trail);
}

static void test_a_check_tells_what_is_bad_and_fails_for_it(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "settlements", "RUN");
    SAGACTL(1, WORDS("is not done yet and goes on: sagactl kafka requests"), "kafka", "check",
            "settlements", "--last", "500", "--timeout", "1");
    SAGACTL(0, WORDS("CHECK", "OPEN", "500"), "kafka", "requests");
    SAGACTL(2, WORDS("--last"), "kafka", "check", "settlements", "--last", "0");
    kafka_rows_answer(&rig, "CHECK", "DONE", "{\"records\":500,\"good\":500}", "");
    SAGACTL(0, WORDS("settlements: 500 records: 500 good, 0 bad"), "kafka", "check", "settlements");
    kafka_rows_answer(&rig, "CHECK", "DONE",
                      "{\"records\":500,\"good\":498,\"missing_keys\":2,\"bad\":[{\"reason\":"
                      "\"KEY_MISSING\",\"count\":2,\"partition\":3,\"offset\":17,"
                      "\"message\":\"no key\"}]}",
                      "");
    SAGACTL(1, WORDS("498 good, 2 bad", "KEY_MISSING  partition 3, offset 17  no key"), "kafka",
            "check", "settlements");
    kafka_rows_answer(&rig, "CHECK", "FAILED", "", "TOPIC_NOT_FOUND: payments");
    SAGACTL(1, WORDS("sagactl: TOPIC_NOT_FOUND: payments"), "kafka", "check", "settlements");
}

static void test_a_takeover_waits_for_the_node_and_tells_its_no(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "settlements", "RUN");
    SAGACTL(2, WORDS("needs --from-group"), "kafka", "takeover", "settlements", "--reason", "x");
    SAGACTL(2, WORDS("kafka takeover needs --reason"), "kafka", "takeover", "settlements",
            "--from-group", "old");
    SAGACTL(1, WORDS("[RULE_RUNS]", "First sagactl kafka stop settlements --reason ..."), "kafka",
            "takeover", "settlements", "--from-group", "old", "--reason", "x");
    SAGACTL(0, WORDS("stopped"), "kafka", "stop", "settlements", "--reason", "x");
    kafka_rows_answer(&rig, "TAKEOVER", "FAILED", "", "GROUP_HAS_MEMBERS: old has 2 members");
    SAGACTL(1, WORDS("GROUP_HAS_MEMBERS: old has 2 members", "Stop its consumers"), "kafka",
            "takeover", "settlements", "--from-group", "old", "--reason", "x");
    kafka_rows_answer(&rig, "TAKEOVER", "DONE",
                      "{\"partitions\":[{\"partition\":0,\"next_offset\":40,\"suspect_until\":100}"
                      "]}",
                      "");
    SAGACTL(0, WORDS("settlements has taken over and runs", "0          40         100", "60"),
            "kafka", "takeover", "settlements", "--from-group", "old", "--reason", "x");
    SAGACTL(0, WORDS("FAILED", "GROUP_HAS_MEMBERS", "old", "1 partitions"), "kafka", "requests");
}

static void test_progress_is_waited_for(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "settlements", "RUN");
    kafka_rows_answer(&rig, "CHECK", "TAKEN", "", "");
    SAGACTL(1, WORDS("goes on"), "kafka", "check", "settlements", "--timeout", "1");
    SAGACTL(0, WORDS("TAKEN", "7 of 9 at n1"), "kafka", "requests");
}

/* --- dead letters ----------------------------------------------------------------------------- */

static void test_letters_are_listed_shown_and_decided_on(void **state)
{
    (void)state;
    char id[LETTER_ID_SIZE];
    kafka_rows_rule(&rig, "settlements", "RUN");
    SAGACTL(0, WORDS("no dead letter matches"), "dead-letter", "list");
    for (int i = 1; i <= 3; i++)
        kafka_rows_letter(&rig, "settlements", i, i == 3 ? "TEMPLATE" : "KEY_MISSING",
                          i == 1 ? "'{\"order\": 7}'" : "'\\x00ff1b'");
    SAGACTL(0, WORDS("payments/3 at 1001", "KEY_MISSING", "TEMPLATE", "OPEN", "what is wrong"),
            "dead-letter", "list");
    SAGACTL(0, WORDS("there are more"), "dead-letter", "list", "--limit", "2");
    SAGACTL(0, WORDS("no dead letter matches"), "dead-letter", "list", "--partition", "0");
    SAGACTL(2, WORDS("--state must be"), "dead-letter", "list", "--state", "none");
    SAGACTL(0,
            WORDS("from payments/3, offset 1001", "header type: x", "header type: null",
                  "value, 12 bytes:\n  {\"order\": 7}"),
            "dead-letter", "show", kafka_rows_letter_id(1, id));
    SAGACTL(0, WORDS("value, 3 bytes (no text)", "00 ff 1b"), "dead-letter", "show",
            kafka_rows_letter_id(2, id));
    SAGACTL(0, WORDS("{\"order\": 7}"), "dead-letter", "show", kafka_rows_letter_id(1, id), "--raw",
            "value");
    SAGACTL(1, WORDS("[LETTER_NOT_FOUND]", "sagactl dead-letter list"), "dead-letter", "show",
            kafka_rows_letter_id(9, id));
    SAGACTL(1, WORDS("INVALID_ARGUMENT"), "dead-letter", "show", "x");
    json_t *letter = JSON("dead-letter", "show", kafka_rows_letter_id(1, id));
    assert_string_equal(json_string_value(json_object_get(letter, "valueText")), "{\"order\": 7}");
    json_decref(letter);

    SAGACTL(2, WORDS("say which letters"), "dead-letter", "discard", "--reason", "x");
    SAGACTL(2, WORDS("say which letters"), "dead-letter", "discard", kafka_rows_letter_id(1, id),
            "--all", "--reason", "x");
    SAGACTL(2, WORDS("dead-letter discard needs --reason"), "dead-letter", "discard", "--all");
    SAGACTL(0, WORDS("2 dead letters would be discarded"), "dead-letter", "discard", "--why",
            "KEY_MISSING", "--dry-run");
    SAGACTL(0, WORDS("1 dead letter discarded", "more beyond --limit"), "dead-letter", "discard",
            "--why", "KEY_MISSING", "--limit", "1", "--reason", "exports");
    SAGACTL(1, WORDS("[LETTER_NOT_OPEN]", "tells who decided"), "dead-letter", "replay",
            kafka_rows_letter_id(2, id), "--reason", "x");
    SAGACTL(0, WORDS("DISCARDED", "decided by ada (unproven)", "exports"), "dead-letter", "show",
            kafka_rows_letter_id(2, id));
    SAGACTL(0, WORDS("2 dead letters will be replayed"), "dead-letter", "replay", "--all",
            "--reason", "the rule is right now");
    SAGACTL(0, WORDS("0 dead letters would be replayed"), "dead-letter", "replay", "--all",
            "--dry-run");
    json_t *all = JSON("dead-letter", "list", "--state", "all");
    assert_int_equal(json_array_size(json_object_get(all, "deadLetters")), 3);
    json_decref(all);
    SAGACTL(0, WORDS("REPLAY", "the rule is right now", "2 letters"), "kafka", "requests");
}

static void test_many_letters_are_decided_on_each_once(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "settlements", "RUN");
    rig_exec(&rig, RIG_STORE,
             "INSERT INTO dead_letter (dead_letter_id, rule, topic, partition, record_offset,"
             " record_time_ms, record_crc, key, value, headers, reason, message, received_at)"
             " SELECT ('01900000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 'settlements',"
             " 'payments', 0, i, 0, 0, NULL, NULL, '', 'VALUE_NULL', 'null', now()"
             " FROM generate_series(1, 1203) AS i");
    SAGACTL(0, WORDS("1203 dead letters would be replayed"), "dead-letter", "replay", "--all",
            "--dry-run");
    SAGACTL(0, WORDS("1203 dead letters will be replayed"), "dead-letter", "replay", "--all",
            "--reason", "x");
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM dead_letter WHERE state = 'REPLAY'"),
        1203);
}

/* --- where ------------------------------------------------------------------------------------ */

static void test_r1_where_tells_what_is_known_of_a_key_that_no_saga_has(void **state)
{
    (void)state;
    kafka_rows_rule(&rig, "settlements", "RUN");
    rig_define(&rig, "settlement", NULL, "a: IDEMPOTENT handler=act | none");
    rig_worker(&rig, "w", "act:4");
    rig_start(&rig, "settlement", "S-1", "");
    rig_await_state(&rig, "settlement", "S-1", "SUCCEEDED", 20000);
    rig_workers_kill(&rig);
    kafka_rows_letter(&rig, "settlements", 1, "KEY_MISMATCH", "'x'");
    rig_exec(&rig, RIG_STORE, "UPDATE dead_letter SET saga_id = 'S-1'");
    SAGACTL(0, WORDS("SUCCEEDED", "dead letter, OPEN: payments/3 at 1001", "KEY_MISMATCH"), "where",
            "S-1");
    rig_exec(&rig, RIG_STORE,
             "DELETE FROM journal j USING saga s WHERE s.saga_uid = j.saga_uid AND s.saga_id ="
             " 'S-1'; DELETE FROM saga WHERE saga_id = 'S-1'");
    SAGACTL(0,
            WORDS("no saga has the key S-1 now", "settlement, run 1: SUCCEEDED",
                  "its rows were purged; the same key starts nothing again",
                  "dead letter, OPEN: payments/3 at 1001"),
            "where", "S-1");
    json_t *where = JSON("where", "S-1");
    assert_int_equal(json_array_size(json_object_get(where, "sagas")), 0);
    assert_int_equal(json_array_size(json_object_get(json_object_get(where, "known"), "known")), 1);
    json_decref(where);
    SAGACTL(1, WORDS("no saga has the key S-2\n", "sagactl list --prefix S-2"), "where", "S-2");
    kafka_rows_partition(&rig, "settlements", 3);
    kafka_rows_gap(&rig, "settlements", 3);
    SAGACTL(1,
            WORDS("no saga has the key S-2\n", "rule settlements may yet bring it",
                  "200 records behind on payments/3, STOPPED: GAP 100..219: trimmed"),
            "where", "S-2");
}

/* What the topic refuses is seen, with its saga, why and since when, and decided on. */
static void test_an_event_that_is_refused_is_published_again_or_discarded(void **state)
{
    (void)state;
    char id[64];
    rig_define(&rig, "told", NULL, "pay: IDEMPOTENT | IDEMPOTENT");
    rig_start(&rig, "told", "order-7", "");
    kafka_rows_event(&rig, 0, "");
    SAGACTL(0, WORDS("outbox: EVENTS WAIT: no sagad with an outbox-topic runs"), "kafka", "status");
    kafka_rows_relay(&rig, "1 of 1 brokers are down");
    rig_text(&rig, RIG_STORE, id, sizeof id, "SELECT saga_uid || '/0/0' FROM outbox");
    SAGACTL(0,
            WORDS("outbox at n1: EVENTS WAIT: 1 of 1 brokers are down; 12 published, 3 refusals"),
            "kafka", "status");
    SAGACTL(1, WORDS("[EVENT_NOT_REFUSED]", id), "outbox", "discard", id, "--reason", "x");
    rig_exec(&rig, RIG_STORE, "DELETE FROM outbox");
    kafka_rows_event(&rig, 4, "Broker: Message size too large");
    SAGACTL(0,
            WORDS("REFUSED EVENT", id, "told order-7", "1 h", "4", "1 min",
                  "Broker: Message size too large", "sagactl outbox publish | discard EVENT"),
            "kafka", "status");
    json_t *status = JSON("kafka", "status");
    json_t *refused = json_object_get(json_object_get(status, "outbox"), "refused");
    assert_int_equal(json_array_size(refused), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(refused, 0), "eventId")),
                        id);
    json_decref(status);
    rig_exec(&rig, RIG_STORE,
             "INSERT INTO outbox (shard, saga_uid, seq, part, created_at, failed_at, failures,"
             " error, handler) VALUES (0, '01890000-0000-7000-8000-000000000000', 7, 3, now(),"
             " now(), 1, 'no', 'risk')");
    SAGACTL(0, WORDS("01890000-0000-7000-8000-000000000000/7/3", "handler risk"), "kafka",
            "status");
    SAGACTL(0, WORDS("discarded"), "outbox", "discard", "01890000-0000-7000-8000-000000000000/7/3",
            "--reason", "nobody wants it");

    SAGACTL(2, WORDS("outbox publish needs --reason"), "outbox", "publish", id);
    SAGACTL(1, WORDS("event_id: is required"), "outbox", "publish", "x/0/0", "--reason", "x");
    SAGACTL(1, WORDS("[EVENT_NOT_FOUND]", "sagactl kafka status lists"), "outbox", "publish",
            "01890000-0000-7000-8000-000000000001/0/0", "--reason", "x");
    SAGACTL(0, WORDS(id, "is sent again"), "outbox", "publish", id, "--reason", "takes 4 MB now");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM outbox WHERE failed_at IS NULL AND failures ="
                               " 0"),
                     1);
    rig_exec(&rig, RIG_STORE, "DELETE FROM outbox");
    kafka_rows_event(&rig, 1, "no");
    char logged[64]; /* with the epoch 1, as after a failover */
    rig_text(&rig, RIG_STORE, logged, sizeof logged,
             "SELECT concat_ws('/', saga_uid, (1::bigint << 40) + seq, part) FROM outbox");
    SAGACTL(0, WORDS(logged, "discarded"), "outbox", "discard", logged, "--reason",
            "nobody wants it");
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM outbox"), 0);
    SAGACTL(0,
            WORDS("(outbox)", "REPLAY", "takes 4 MB now", "DISCARD", "nobody wants it", "ada", id,
                  "Message size too large"),
            "kafka", "requests");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, clear, check)
    const struct CMUnitTest tests[] = {
        TEST(test_status_tells_what_holds_up_a_partition),
        TEST(test_a_partition_goes_on_where_a_person_says),
        TEST(test_a_rule_is_stopped_and_started_with_a_reason),
        TEST(test_an_event_that_is_refused_is_published_again_or_discarded),
        TEST(test_a_check_tells_what_is_bad_and_fails_for_it),
        TEST(test_a_takeover_waits_for_the_node_and_tells_its_no),
        TEST(test_progress_is_waited_for),
        TEST(test_letters_are_listed_shown_and_decided_on),
        TEST(test_many_letters_are_decided_on_each_once),
        TEST(test_r1_where_tells_what_is_known_of_a_key_that_no_saga_has),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
