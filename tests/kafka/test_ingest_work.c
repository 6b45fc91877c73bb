/* Goal: a rule can be tried before it runs, and takes over from a consumer that is ended in
 * mid-step without asking anybody to do its half-done messages twice; members that have lost their
 * place say so and end. Method: a real broker, whose groups are as another program left them;
 * requests as the server's callers write them. */
#include "base/mem.h"
#include "support/proof.h"
#include "support/wait.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { PARTITIONS = 2, WAIT_MS = 30000, ID_SIZE = 40 };

static struct world world;

static struct rig *rig(void)
{
    return &world.nodes[0];
}

static int setup(void **state)
{
    (void)state;
    return world_up(&world, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return world_down(&world);
}

static int check(void **state)
{
    (void)state;
    return world_check(&world);
}

static void begin(const char *name, const char *more)
{
    world_topic(&world, name, PARTITIONS);
    world_rule(&world, 0, name, more);
    world_start(&world, 0);
    world_define(&world, 0, name);
    rig_await(rig(), RIG_STORE, "1", WAIT_MS, "SELECT count(*) FROM kafka_rule WHERE rule = '%s'",
              name);
}

static void want(const char *name, bool run)
{
    rig_exec(rig(), RIG_STORE,
             run ? "UPDATE kafka_rule SET wanted = 'RUN', stopped_by = NULL, stop_reason = NULL,"
                   " stopped_at = NULL WHERE rule = '%s'"
                 : "UPDATE kafka_rule SET wanted = 'STOP', stopped_by = 'ada', stop_reason ="
                   " 'first a check', stopped_at = now() WHERE rule = '%s'",
             name);
}

static void ask(const char *name, const char *kind, const char *arguments, char id[ID_SIZE])
{
    rig_text(rig(), RIG_STORE, id, ID_SIZE,
             "INSERT INTO kafka_request (request_id, rule, kind, arguments, actor, reason,"
             " requested_at, state) VALUES (gen_random_uuid(), '%s', '%s', '%s', 'ada', 'a test',"
             " now(), 'OPEN') RETURNING request_id",
             name, kind, arguments);
}

static void await_answer(const char *id, const char *state)
{
    rig_await(rig(), RIG_STORE, state, WAIT_MS,
              "SELECT state FROM kafka_request WHERE request_id = '%s'", id);
}

static void group_of_a_member(const char *group, const char *topic, rd_kafka_t **ret);

/* --- CHECK --------------------------------------------------------------------------------------
 */

static void test_a_check_tells_and_starts_nothing(void **state)
{
    (void)state;
    struct err err;
    char id[ID_SIZE], text[400];
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "checked", PARTITIONS);
    world_rule(&world, 0, "checked", "filter = header:kind!=other\n");
    world_start(&world, 0);
    rig_await(rig(), RIG_STORE, "1", WAIT_MS, "SELECT count(*) FROM kafka_rule");
    want("checked", false);
    world_define(&world, 0, "checked");
    const struct test_kafka_header other = { "kind", "other", 5 };
    const struct test_kafka_record records[] = {
        { .key = "old", .key_size = 3, .value = "", .value_size = 0 },
        { .key = "a", .key_size = 1, .value = "", .value_size = 0 },
        { .key = "b", .key_size = 1, .value = "", .value_size = 0, .partition = 1 },
        { .key = "a", .key_size = 1, .value = "", .value_size = 0, .partition = 1 },
        { .key = NULL, .value = "", .value_size = 0, .partition = 1 },
        { .key = "n", .key_size = 1, .value = NULL, .partition = 1 },
        { .key = "x",
          .key_size = 1,
          .value = "",
          .value_size = 0,
          .headers = &other,
          .header_count = 1 },
        { .key = "known", .key_size = 5, .value = "", .value_size = 0 },
    };
    ASSERT_OK(test_kafka_produce(world.kafka, "checked", records, ARRAY_LEN(records), &err), &err);
    rig_start(rig(), "checked", "known", "");
    ask("checked", "CHECK", "{\"last\": 7}", id);
    await_answer(id, "DONE");
    rig_text(rig(), RIG_STORE, text, sizeof text,
             "SELECT concat_ws(' ', r->>'records', r->>'good', r->>'filtered', r->>'duplicates',"
             " r->>'known', r->>'missingKeys', r->'bad'->0->>'count', r->'bad'->1->>'count') FROM"
             " (SELECT result::json AS r FROM kafka_request WHERE request_id = '%s') q",
             id);
    /* of each partition four: in proportion, rounded up */
    assert_string_equal(text, "8 5 1 1 1 1 1 1");
    ask("checked", "CHECK", "{\"last\": 100000}", id);
    await_answer(id, "DONE");
    assert_int_equal(
        rig_count(rig(), RIG_STORE, "SELECT count(*) FROM saga WHERE definition = 'checked'"), 1);
    assert_int_equal(rig_count(rig(), RIG_STORE,
                               "SELECT count(*) FROM kafka_cursor"
                               " WHERE rule = 'checked'"),
                     0);
    size_t members;
    ASSERT_OK(test_kafka_group_members(world.kafka, "sagad-checked", &members, &err), &err);
    assert_int_equal(members, 0);
    rig_workers_kill(rig());
    rig_exec(rig(), RIG_STORE, "DELETE FROM saga WHERE definition = 'checked'");
}

/* --- TAKEOVER -----------------------------------------------------------------------------------
 */

static void test_p7_taking_over_begins_at_the_groups_offsets(void **state)
{
    (void)state;
    enum { RECORDS = 40, DONE = 6 };
    struct err err;
    char id[ID_SIZE];
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7");
    begin("taken", NULL);
    want("taken", false);
    world_produce(&world, "taken", PARTITIONS, 0, RECORDS);
    ask("taken", "TAKEOVER", "{\"group\": \"old\"}", id);
    await_answer(id, "FAILED");
    rig_await(rig(), RIG_STORE, "t", WAIT_MS,
              "SELECT error LIKE '%%GROUP_HAS_NO_OFFSETS%%' FROM kafka_request WHERE request_id ="
              " '%s'",
              id);
    rd_kafka_t *member = NULL;
    group_of_a_member("old", "taken", &member);
    ask("taken", "TAKEOVER", "{\"group\": \"old\"}", id);
    await_answer(id, "FAILED");
    rig_await(rig(), RIG_STORE, "t", WAIT_MS,
              "SELECT error LIKE '%%GROUP_HAS_MEMBERS%%' FROM kafka_request WHERE request_id ="
              " '%s'",
              id);
    rd_kafka_consumer_close(member);
    rd_kafka_destroy(member);
    ASSERT_OK(test_kafka_group_offset_set(world.kafka, "old", "taken", 0, DONE, &err), &err);
    ask("taken", "TAKEOVER", "{\"group\": \"old\"}", id);
    await_answer(id, "DONE");
    rig_await(rig(), RIG_STORE, "20 20", WAIT_MS,
              "SELECT string_agg(suspect_until::text, ' ' ORDER BY partition) FROM kafka_cursor"
              " WHERE rule = 'taken'");
    /* It runs; what was there at that moment starts SUSPECT, what came later does not. */
    world_workers(&world);
    world_await_handled(&world, "taken", RECORDS, WAIT_MS);
    world_produce(&world, "taken", PARTITIONS, RECORDS, RECORDS);
    world_await_handled(&world, "taken", 2 * RECORDS, WAIT_MS);
    int64_t suspects =
        rig_count(rig(), RIG_STORE,
                  "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                  " WHERE s.definition = 'taken' AND j.kind = 'SUSPECT'");
    int64_t started = rig_count(rig(), RIG_STORE,
                                "SELECT count(*) FROM saga WHERE definition ="
                                " 'taken'");
    assert_int_equal(started - suspects, world_keys(RECORDS));
    assert_true(suspects > 0 && suspects <= RECORDS - DONE);
    rig_await_states(rig(), "taken", "", "SUCCEEDED", started, WAIT_MS);
}

/* A consumer as the one that sagad takes over from. */
static void group_of_a_member(const char *group, const char *topic, rd_kafka_t **ret)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    const char *const settings[][2] = { { "bootstrap.servers", test_kafka_bootstrap(world.kafka) },
                                        { "group.id", group },
                                        { "session.timeout.ms", "3000" },
                                        { "heartbeat.interval.ms", "500" },
                                        { "enable.auto.commit", "false" },
                                        { "auto.offset.reset", "earliest" } };
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        assert_int_equal(rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof text),
                         RD_KAFKA_CONF_OK);
    rd_kafka_t *member = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    assert_non_null(member);
    (void)rd_kafka_poll_set_consumer(member);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    assert_int_equal(rd_kafka_subscribe(member, topics), 0);
    rd_kafka_message_t *message = NULL;
    for (int i = 0; !message || message->err; i++) {
        assert_true(i < WAIT_MS / 100);
        if (message)
            rd_kafka_message_destroy(message);
        message = rd_kafka_consumer_poll(member, 100);
    }
    rd_kafka_message_destroy(message);
    /* It has done one record, and committed that: the group has offsets. */
    topics->elems[0].partition = 0;
    topics->elems[0].offset = 1;
    assert_int_equal(rd_kafka_commit(member, topics, 0), 0);
    rd_kafka_topic_partition_list_destroy(topics);
    *ret = member;
}

/* --- a person's word ----------------------------------------------------------------------------
 */

/* Stopped, moved and started again between two looks of the ingest, which so never sees it stopped:
 * one transaction is what no look can fall into. No record comes afterwards that would tell it. */
static void test_a_cursor_that_is_moved_between_two_looks_is_seen(void **state)
{
    (void)state;
    enum { RECORDS = 20 };
    KAFKA_OR_SKIP(world.kafka);
    begin("moved", NULL);
    world_workers(&world);
    world_produce(&world, "moved", PARTITIONS, 0, RECORDS);
    world_judge(&world, "moved", RECORDS);
    rig_exec(rig(), RIG_STORE,
             "BEGIN; UPDATE kafka_rule SET wanted = 'STOP', stopped_by = 'ada', stop_reason ="
             " 'again', stopped_at = now() WHERE rule = 'moved';"
             "UPDATE kafka_cursor SET next_offset = 0, before_offset = NULL, before_time_ms = NULL,"
             " before_crc = NULL WHERE rule = 'moved';"
             "UPDATE kafka_rule SET wanted = 'RUN', stopped_by = NULL, stop_reason = NULL,"
             " stopped_at = NULL WHERE rule = 'moved'; COMMIT");
    world_await_handled(&world, "moved", RECORDS, WAIT_MS);
    int64_t keys = world_keys(RECORDS);
    assert_int_equal(rig_count(rig(), RIG_STORE,
                               "SELECT sum(duplicates)::bigint FROM kafka_cursor WHERE rule ="
                               " 'moved'"),
                     2 * RECORDS - keys);
    assert_int_equal(
        rig_count(rig(), RIG_STORE, "SELECT count(*) FROM saga WHERE definition = 'moved'"), keys);
    CLEANUP(mem_free_p) char *log = test_process_output(rig()->sagad);
    assert_non_null(log);
    assert_null(strstr(log, "a rule is to stop"));
}

/* --- members ------------------------------------------------------------------------------------
 */

static void await_health(struct rig *of, int expected)
{
    for (int i = 0; rig_health(of->address, 2000) != expected; i++) {
        assert_true(i < WAIT_MS / 50);
        wait_ms(50);
    }
}

static void test_k6_a_member_that_lost_its_place_says_so(void **state)
{
    (void)state;
    enum { RECORDS = 40 };
    KAFKA_OR_SKIP(world.kafka);
    begin("fenced", "instance = same\n");
    world_workers(&world);
    world_produce(&world, "fenced", PARTITIONS, 0, RECORDS);
    world_judge(&world, "fenced", RECORDS);
    world_rule(&world, 1, "fenced", "instance = same\n");
    world_start(&world, 1);
    await_health(rig(), 2);
    world_produce(&world, "fenced", PARTITIONS, RECORDS, RECORDS);
    (void)rig_worker(&world.nodes[1], "two", "act:16 undo:4"); /* the rig owns it */
    world_judge(&world, "fenced", 2 * RECORDS);
    assert_int_equal(rig_health(rig()->address, 2000), 2);
    assert_int_equal(rig_health(world.nodes[1].address, 2000), 1);
}

/* The way back: the rule is stopped, its members leave at once, the group's offsets are where the
 * cursors are. */
static void test_a_rule_that_is_stopped_leaves_the_group(void **state)
{
    (void)state;
    enum { RECORDS = 40 };
    struct err err;
    size_t members = 1;
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "back", PARTITIONS);
    world_rules(&world, 0,
                "[kafka back]\ntopic = back\ndefinition = back\nstart = earliest\n"
                "key = record-key\nvalue = bytes\nlibrdkafka.session.timeout.ms = 45000\n");
    world_start(&world, 0);
    world_define(&world, 0, "back");
    world_workers(&world);
    world_produce(&world, "back", PARTITIONS, 0, RECORDS);
    world_judge(&world, "back", RECORDS);
    want("back", false);
    for (int i = 0; members; i++) {
        ASSERT_OK(test_kafka_group_members(world.kafka, "sagad-back", &members, &err), &err);
        assert_true(i < 200); /* 20 s: before the session is over */
        wait_ms(members ? 100 : 0);
    }
    for (int partition = 0; partition < PARTITIONS; partition++) {
        int64_t offset;
        ASSERT_OK(test_kafka_group_offset(world.kafka, "sagad-back", "back", partition, &offset,
                                          NULL, 0, &err),
                  &err);
        assert_int_equal(offset, RECORDS / PARTITIONS);
    }
    assert_int_equal(rig_health(rig()->address, 2000), 1); /* it is not to run */
    world_produce(&world, "back", PARTITIONS, RECORDS, RECORDS);
    want("back", true);
    world_judge(&world, "back", 2 * RECORDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_check_tells_and_starts_nothing, check),
        cmocka_unit_test_teardown(test_p7_taking_over_begins_at_the_groups_offsets, check),
        cmocka_unit_test_teardown(test_a_cursor_that_is_moved_between_two_looks_is_seen, check),
        cmocka_unit_test_teardown(test_k6_a_member_that_lost_its_place_says_so, check),
        cmocka_unit_test_teardown(test_a_rule_that_is_stopped_leaves_the_group, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
