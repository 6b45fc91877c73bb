/* Goal: records become sagas that run, each once; where a rule begins is what it says, and what
 * keeps it from running is told. Method: a real broker, a real PostgreSQL, one sagad with a rule, a
 * worker that writes what it does. */
#include "support/proof.h"
#include "support/wait.h"
#include "world.h"

#include <stdio.h>

enum { WAIT_MS = 30000 };

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

/* Records "<first>".. of partition 0, each with a key and no script. */
static void put(const char *topic, int partition, int first, int count)
{
    struct err err;
    for (int i = first; i < first + count; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "p%d-%d", partition, i);
        ASSERT_OK(test_kafka_put(world.kafka, topic, partition, key, "", &err), &err);
    }
}

static void rule_with(const char *name, const char *start, const char *more)
{
    world_rules(&world, 0,
                "[kafka %s]\ntopic = %s\ndefinition = %s\nstart = %s\nkey = record-key\n"
                "value = bytes\nlibrdkafka.session.timeout.ms = 3000\n"
                "librdkafka.heartbeat.interval.ms = 500\n%s",
                name, name, name, start, more);
}

static void run(const char *name)
{
    world_start(&world, 0);
    world_define(&world, 0, name);
    world_workers(&world);
}

static void await_sagas(const char *name, int64_t count)
{
    rig_await_states(rig(), name, "", "SUCCEEDED", count, WAIT_MS);
    assert_int_equal(
        rig_count(rig(), RIG_STORE, "SELECT count(*) FROM saga WHERE definition = '%s'", name),
        count);
}

static void await_problem(const char *name, const char *part)
{
    rig_await(rig(), RIG_STORE, "t", WAIT_MS,
              "SELECT coalesce(problem LIKE '%%%s%%', false) FROM kafka_rule WHERE rule = '%s'",
              part, name);
}

static void await_health(int expected)
{
    for (int i = 0; rig_health(rig()->address, 2000) != expected; i++) {
        assert_true(i < WAIT_MS / 50);
        wait_ms(50);
    }
}

/* --- the path --------------------------------------------------------------------------------- */

static void test_p7_a_topic_becomes_sagas_that_run(void **state)
{
    (void)state;
    enum { PARTITIONS = 4, RECORDS = 1000 };
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P1 P7");
    world_topic(&world, "path", PARTITIONS);
    world_produce(&world, "path", PARTITIONS, 0, RECORDS);
    world_rule(&world, 0, "path", NULL);
    run("path");
    world_judge(&world, "path", RECORDS);
    /* While it runs, too; and after a restart it goes on where it was. */
    world_produce(&world, "path", PARTITIONS, RECORDS, RECORDS);
    world_judge(&world, "path", 2 * RECORDS);
    assert_true(rig_counter(rig(), "sagas_started") >= 2 * world_keys(RECORDS));
    assert_int_equal(rig_health(rig()->address, 2000), 1);
    (void)rig_server_stop(rig(), WAIT_MS);
    world_assert_follows(&world, "path", PARTITIONS);
    rig_workers_kill(rig());
    world_start(&world, 0);
    world_workers(&world);
    world_produce(&world, "path", PARTITIONS, 2 * RECORDS, RECORDS);
    world_judge(&world, "path", 3 * RECORDS);
    /* What is told about the partitions is true. */
    rig_await(rig(), RIG_STORE, "4 3000 0", WAIT_MS,
              "SELECT count(*) || ' ' || sum(end_offset) || ' ' || sum(low_offset)"
              " FROM kafka_cursor WHERE rule = 'path' AND node = 'one' AND paused_why IS NULL");
}

/* --- where it begins -------------------------------------------------------------------------- */

static void test_latest_begins_behind_what_is_there(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "latest", 2);
    put("latest", 0, 0, 5);
    rule_with("latest", "latest", "");
    run("latest");
    rig_await(rig(), RIG_STORE, "5 0", WAIT_MS,
              "SELECT string_agg(next_offset::text, ' ' ORDER BY partition) FROM kafka_cursor"
              " WHERE rule = 'latest'");
    put("latest", 0, 5, 2);
    put("latest", 1, 0, 1);
    await_sagas("latest", 3);
}

static void test_a_time_begins_at_its_first_record(void **state)
{
    (void)state;
    struct err err;
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "time", 2);
    static const int64_t day = 86400000, first = 1767225600000; /* 2026-01-01T00:00:00Z */
    struct test_kafka_record records[6];
    char keys[6][8];
    for (int i = 0; i < 6; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "t%d", i);
        records[i] = (struct test_kafka_record){ .timestamp_ms = first + i * day,
                                                 .key = keys[i],
                                                 .key_size = strlen(keys[i]),
                                                 .value = "",
                                                 .value_size = 0 };
    }
    ASSERT_OK(test_kafka_produce(world.kafka, "time", records, 6, &err), &err);
    rule_with("time", "2026-01-04T00:00:00Z", "");
    run("time");
    await_sagas("time", 3);
    rig_await(rig(), RIG_STORE, "t3 t4 t5", WAIT_MS,
              "SELECT string_agg(saga_id, ' ' ORDER BY saga_id) FROM saga WHERE definition ="
              " 'time'");
    put("time", 1, 0, 1); /* nothing was there: it began at the end */
    await_sagas("time", 4);
}

static void test_a_group_begins_where_it_ended(void **state)
{
    (void)state;
    struct err err;
    char mark[64];
    int64_t offset;
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "grouped", 2);
    put("grouped", 0, 0, 5);
    put("grouped", 1, 0, 2);
    rule_with("grouped", "group", "");
    run("grouped");
    await_problem("grouped", "no offsets");
    await_health(2);
    (void)rig_server_stop(rig(), WAIT_MS);
    rig_workers_kill(rig());
    /* Sessions of a static member go on: the group is empty when it is over. */
    size_t members = 1;
    for (int i = 0; members; i++) {
        ASSERT_OK(test_kafka_group_members(world.kafka, "sagad-grouped", &members, &err), &err);
        assert_true(i < 100);
        wait_ms(members ? 100 : 0);
    }
    ASSERT_OK(test_kafka_group_offset_set(world.kafka, "sagad-grouped", "grouped", 0, 3, &err),
              &err);
    world_start(&world, 0);
    world_workers(&world);
    await_sagas("grouped", 4); /* two of the first, and all of the one the group never got to */
    await_health(1);
    /* From now on it is ours. */
    for (int i = 0;; i++) {
        ASSERT_OK(test_kafka_group_offset(world.kafka, "sagad-grouped", "grouped", 0, &offset, mark,
                                          sizeof mark, &err),
                  &err);
        if (offset == 5)
            break;
        assert_true(i < 100);
        wait_ms(100);
    }
    assert_string_equal(mark, "sagad/grouped");
}

static void test_earliest_is_asked_for_twice_where_a_group_was(void **state)
{
    (void)state;
    struct err err;
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "early", 1);
    put("early", 0, 0, 3);
    ASSERT_OK(test_kafka_group_offset_set(world.kafka, "settlement-app", "early", 0, 2, &err),
              &err);
    rule_with("early", "earliest", "");
    run("early");
    await_problem("early", "settlement-app");
    await_health(2);
    assert_int_equal(rig_count(rig(), RIG_STORE,
                               "SELECT count(*) FROM kafka_cursor"
                               " WHERE rule = 'early'"),
                     0);
    (void)rig_server_stop(rig(), WAIT_MS);
    rig_workers_kill(rig());
    rule_with("early", "earliest", "confirm-earliest = yes\n");
    world_start(&world, 0);
    world_workers(&world);
    await_sagas("early", 3);
    rig_await(rig(), RIG_STORE, "t", WAIT_MS,
              "SELECT problem IS NULL FROM kafka_rule WHERE rule = 'early'");
    await_health(1);
}

static void test_a_new_partition_begins_at_its_first_record(void **state)
{
    (void)state;
    struct err err;
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "grows", 1);
    put("grows", 0, 0, 2);
    rule_with("grows", "latest", "librdkafka.topic.metadata.refresh.interval.ms = 500\n");
    run("grows");
    rig_await(rig(), RIG_STORE, "2", WAIT_MS,
              "SELECT sum(next_offset) FROM kafka_cursor WHERE rule = 'grows'");
    ASSERT_OK(test_kafka_topic_grow(world.kafka, "grows", 3, &err), &err);
    put("grows", 2, 0, 4);
    await_sagas("grows", 4);
}

/* --- how long keys are remembered ---------------------------------------------------------------
 */

static void test_keys_are_remembered_for_as_long_as_the_topic_keeps_records(void **state)
{
    (void)state;
    struct err err;
    KAFKA_OR_SKIP(world.kafka);
    static const char *const kept[] = { "retention.ms=864000000", NULL }; /* 10 days */
    ASSERT_OK(test_kafka_topic_create(world.kafka, "keeps", 1, kept, &err), &err);
    put("keeps", 0, 0, 2);
    rule_with("keeps", "earliest", "");
    FILE *file = fopen(world.files[0], "re");
    assert_non_null(file);
    char text[4096];
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    assert_int_equal(fclose(file), 0);
    char *memory = strstr(text, "key-memory = forever");
    assert_non_null(memory);
    memcpy(memory, "key-memory = 8d     ", 20);
    assert_non_null(file = fopen(world.files[0], "we"));
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    run("keeps");
    await_problem("keeps", "retention.ms = 10d and segment.ms = 7d, and key-memory is 8d");
    await_problem("keeps", "key-memory = 17d");
    await_health(2);
    assert_int_equal(rig_count(rig(), RIG_STORE,
                               "SELECT count(*) FROM saga WHERE definition ="
                               " 'keeps'"),
                     0);
    ASSERT_OK(test_kafka_topic_configure(world.kafka, "keeps", "cleanup.policy", "compact", &err),
              &err);
    await_problem("keeps", "compacted");
    ASSERT_OK(test_kafka_topic_configure(world.kafka, "keeps", "retention.ms", "172800000", &err),
              &err); /* 2 days alone would do */
    await_problem("keeps", "retention.ms = 2d and segment.ms = 7d");
    ASSERT_OK(test_kafka_topic_configure(world.kafka, "keeps", "retention.ms", "3600000", &err),
              &err); /* the other setting is gone with it */
    await_sagas("keeps", 2);
    await_health(1);
}

/* --- what does not become a saga ----------------------------------------------------------------
 */

static void test_k4_what_cannot_start_a_saga_holds_up_nothing(void **state)
{
    (void)state;
    struct err err;
    char text[200];
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7");
    world_topic(&world, "poison", 1);
    rule_with("poison", "earliest", "on-mismatch = dead-letter\nfilter = header:kind!=other\n");
    run("poison");
    const struct test_kafka_header other = { "kind", "other", 5 };
    const struct test_kafka_record records[] = {
        { .key = "good-1", .key_size = 6, .value = "", .value_size = 0 },
        { .key = NULL, .value = "x", .value_size = 1 },
        { .key = "a\0b", .key_size = 3, .value = "x", .value_size = 1 },
        { .key = "null", .key_size = 4, .value = NULL },
        { .key = "good-1", .key_size = 6, .value = "", .value_size = 0 },  /* again */
        { .key = "good-1", .key_size = 6, .value = "z", .value_size = 1 }, /* with other bytes */
        { .key = "x",
          .key_size = 1,
          .value = "",
          .value_size = 0,
          .headers = &other,
          .header_count = 1 },
        { .key = "good-2", .key_size = 6, .value = "", .value_size = 0 },
    };
    ASSERT_OK(test_kafka_produce(world.kafka, "poison", records, ARRAY_LEN(records), &err), &err);
    await_sagas("poison", 2);
    rig_await(rig(), RIG_STORE, "8 2 1 1 4 1", WAIT_MS,
              "SELECT concat_ws(' ', records, started, duplicates, mismatches, dead_letters,"
              " filtered) FROM kafka_cursor WHERE rule = 'poison'");
    rig_text(rig(), RIG_STORE, text, sizeof text,
             "SELECT string_agg(record_offset || ' ' || reason, ', ' ORDER BY record_offset) FROM"
             " dead_letter WHERE rule = 'poison'");
    assert_string_equal(text, "1 KEY_MISSING, 2 KEY_INVALID, 3 VALUE_NULL, 5 MISMATCH");
    assert_int_equal(rig_health(rig()->address, 2000), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_p7_a_topic_becomes_sagas_that_run, check),
        cmocka_unit_test_teardown(test_latest_begins_behind_what_is_there, check),
        cmocka_unit_test_teardown(test_a_time_begins_at_its_first_record, check),
        cmocka_unit_test_teardown(test_a_group_begins_where_it_ended, check),
        cmocka_unit_test_teardown(test_earliest_is_asked_for_twice_where_a_group_was, check),
        cmocka_unit_test_teardown(test_a_new_partition_begins_at_its_first_record, check),
        cmocka_unit_test_teardown(test_keys_are_remembered_for_as_long_as_the_topic_keeps_records,
                                  check),
        cmocka_unit_test_teardown(test_k4_what_cannot_start_a_saga_holds_up_nothing, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
