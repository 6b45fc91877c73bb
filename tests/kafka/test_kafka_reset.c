/* Goal: K5, P7: whatever becomes of the topic and of the group's offsets behind our back, no record
 * is passed over in silence and none starts a second saga. Method: offsets deleted, and the topic
 * read again from 0 with half of the sagas purged; records deleted before they were read; a topic
 * made anew; offsets that somebody else has written. Each stops the partition with the range, the
 * others go on, and a person decides. */
#include "support/proof.h"
#include "support/sagactl.h"
#include "support/wait.h"
#include "world.h"

#include <stdio.h>

enum { PARTITIONS = 4, STOP_MS = 30000, WAIT_MS = 60000 };

static struct world world;

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

static struct rig *first(void)
{
    return &world.nodes[0];
}

/* `count` records, all handled and ended; the sagad runs. */
static void handled(const char *name, int count)
{
    world_topic(&world, name, PARTITIONS);
    world_rule(&world, 0, name, NULL);
    world_start(&world, 0);
    world_define(&world, 0, name);
    world_workers(&world);
    world_produce(&world, name, PARTITIONS, 0, count);
    world_judge(&world, name, count);
}

static void sagad_stop(void)
{
    rig_workers_kill(first());
    (void)rig_server_stop(first(), STOP_MS); /* in time, by the rig's limit */
}

static void resume(const char *name, int partition, const char *from)
{
    char place[80];
    (void)snprintf(place, sizeof place, "%s/%d", name, partition);
    sagactl_expect(first(), 0, WORDS(place),
                   WORDS("kafka", "resume", place, "--rule", name, "--from", from, "--reason",
                         "looked into it"));
}

/* "STOPPED GAP 25..39". */
static void await_stop(const char *name, int partition, const char *expected)
{
    rig_await(first(), RIG_STORE, expected, WAIT_MS,
              "SELECT state || coalesce(' ' || stop_reason || ' ' || stop_from || '..' || stop_to,"
              " '') FROM kafka_cursor WHERE rule = '%s' AND partition = %d",
              name, partition);
}

/* A person sees why, and the range. */
static void assert_shown(const char *name, const char *reason, const char *from, const char *to)
{
    sagactl_expect(first(), 0, WORDS(reason, from, to), WORDS("kafka", "status", name));
}

static int64_t counted(const char *name, const char *counter)
{
    return rig_count(first(), RIG_STORE, "SELECT sum(%s) FROM kafka_cursor WHERE rule = '%s'",
                     counter, name);
}

static void offsets_await(const char *name, int partition, int64_t expected)
{
    struct err err;
    char group[80];
    int64_t offset = -2;
    (void)snprintf(group, sizeof group, "sagad-%s", name);
    for (int i = 0; offset != expected; i++) {
        if (i == WAIT_MS / 50)
            fail_msg("partition %d: the group is at %lld, not at %lld", partition,
                     (long long)offset, (long long)expected);
        wait_ms(i ? 50 : 0);
        ASSERT_OK(
            test_kafka_group_offset(world.kafka, group, name, partition, &offset, NULL, 0, &err),
            &err);
    }
}

/* --- read again ------------------------------------------------------------------------------- */

static void test_k5_p7_offsets_deleted_and_all_read_again_starts_nothing(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P1 P7");
    static const char name[] = "again";
    const int count = test_is_full_size() ? 10000 : 2000;
    const int keys = world_keys(count);
    struct err err;
    handled(name, count);
    sagad_stop();
    /* Half of them are purged: their keys stay. */
    rig_exec(first(), RIG_STORE,
             "WITH gone AS (DELETE FROM saga WHERE definition = '%s'"
             " AND get_byte(uuid_send(saga_uid), 10) %% 2 = 0 RETURNING shard, saga_uid)"
             " DELETE FROM journal j USING gone g WHERE j.shard = g.shard"
             " AND j.saga_uid = g.saga_uid",
             name);
    int64_t left =
        rig_count(first(), RIG_STORE, "SELECT count(*) FROM saga WHERE definition = '%s'", name);
    assert_in_range(left, keys / 4, keys * 3 / 4);
    /* The member that stopped keeps its place until its session is over. */
    size_t members = 1;
    for (int i = 0; members; i++) {
        assert_true(i < WAIT_MS / 100);
        wait_ms(100);
        ASSERT_OK(test_kafka_group_members(world.kafka, "sagad-again", &members, &err), &err);
    }
    ASSERT_OK(test_kafka_group_offsets_delete(world.kafka, "sagad-again", name, &err), &err);

    /* It goes on where it was, and writes the offsets again. */
    world_start(&world, 0);
    for (int i = 0; i < PARTITIONS; i++)
        offsets_await(name, i, count / PARTITIONS);
    assert_int_equal(counted(name, "records"), count);
    /* Somebody decides to read all of it again. */
    sagactl_expect(first(), 0, WORDS(name),
                   WORDS("kafka", "stop", name, "--reason", "reading again"));
    for (int i = 0; i < PARTITIONS; i++)
        resume(name, i, "0");
    assert_int_equal(world_handled(&world, name), 0);
    sagactl_expect(first(), 0, WORDS(name),
                   WORDS("kafka", "start", name, "--reason", "reading again"));
    world_await_handled(&world, name, count, WORLD_REST_MS);
    assert_int_equal(counted(name, "records"), 2 * count);
    assert_int_equal(counted(name, "started"), keys);
    assert_int_equal(counted(name, "duplicates"), 2 * count - keys);
    assert_int_equal(
        rig_count(first(), RIG_STORE, "SELECT count(*) FROM saga WHERE definition = '%s'", name),
        left);
    assert_int_equal(
        rig_count(first(), RIG_BANK, "SELECT count(*) FROM effects WHERE definition = '%s'", name),
        keys);
}

/* --- records that are gone -------------------------------------------------------------------- */

static void test_k5_p7_records_deleted_unread_stop_their_partition_with_the_range(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "trimmed";
    enum { COUNT = 100 };
    struct err err;
    handled(name, COUNT);
    sagad_stop();
    world_produce(&world, name, PARTITIONS, COUNT, COUNT);
    ASSERT_OK(test_kafka_records_delete(world.kafka, name, 1, 40, &err), &err);
    world_start(&world, 0);
    await_stop(name, 1, "STOPPED GAP 25..39");
    assert_shown(name, "GAP", "25", "39");
    /* The others do not wait for it. */
    world_await_handled(&world, name, 2 * COUNT - 25, WORLD_REST_MS);
    rig_await(first(), RIG_STORE, "40", WAIT_MS,
              "SELECT low_offset FROM kafka_cursor WHERE rule = '%s' AND partition = 1", name);
    resume(name, 1, "low");
    world_await_handled(&world, name, 2 * COUNT, WORLD_REST_MS);
    assert_int_equal(counted(name, "records"), 2 * COUNT - 15);
    world_workers(&world);
    rig_await_states(first(), name, "", "SUCCEEDED", counted(name, "started"), WORLD_REST_MS);
    proof_fault("kafka: records deleted before they were read", 1);
}

/* --- another topic of the same name ----------------------------------------------------------- */

static void topic_anew(const char *name, int first_record, int count)
{
    struct err err;
    sagad_stop();
    ASSERT_OK(test_kafka_topic_delete(world.kafka, name, &err), &err);
    world_topic(&world, name, PARTITIONS);
    world_produce(&world, name, PARTITIONS, first_record, count);
    /* A topic that has just been made may show its end late. */
    int64_t there = 0;
    for (int i = 0; there != count; i++) {
        assert_true(i < WAIT_MS / 50);
        wait_ms(i ? 50 : 0);
        ASSERT_OK(test_kafka_count(world.kafka, name, &there, &err), &err);
    }
    world_start(&world, 0);
}

static void test_p7_a_topic_made_anew_is_noticed_and_read_when_a_person_says_so(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "anew";
    enum { COUNT = 100 };
    handled(name, COUNT);
    /* As long as the old one, and longer: what stood before the cursor is another record. */
    topic_anew(name, 1000, COUNT + PARTITIONS);
    for (int i = 0; i < PARTITIONS; i++)
        await_stop(name, i, "STOPPED TOPIC_RECREATED 24..24");
    assert_shown(name, "TOPIC_RECREATED", "24", "24");
    assert_int_equal(counted(name, "records"), COUNT);
    for (int i = 0; i < PARTITIONS; i++)
        resume(name, i, "0");
    world_await_handled(&world, name, COUNT + PARTITIONS, WORLD_REST_MS);
    assert_int_equal(counted(name, "started"), world_keys(COUNT) + world_keys(COUNT + PARTITIONS));

    /* Shorter: the cursor lies beyond its end. */
    topic_anew(name, 2000, 2 * PARTITIONS);
    for (int i = 0; i < PARTITIONS; i++)
        await_stop(name, i, "STOPPED BEYOND_END 2..26");
    assert_shown(name, "BEYOND_END", "2", "26");
    for (int i = 0; i < PARTITIONS; i++)
        resume(name, i, "0");
    world_await_handled(&world, name, 2 * PARTITIONS, WORLD_REST_MS);
    world_workers(&world);
    rig_await_states(first(), name, "", "SUCCEEDED", counted(name, "started"), WORLD_REST_MS);
    proof_fault("kafka: a topic deleted and made anew", 2);
}

/* --- offsets of somebody else ----------------------------------------------------------------- */

static void test_p7_an_offset_of_somebody_else_stops_the_partition(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "foreign";
    enum { COUNT = 100 };
    struct err err;
    size_t members = 1;
    handled(name, COUNT);
    sagad_stop();
    for (int i = 0; members; i++) {
        assert_true(i < WAIT_MS / 100);
        wait_ms(100);
        ASSERT_OK(test_kafka_group_members(world.kafka, "sagad-foreign", &members, &err), &err);
    }
    ASSERT_OK(test_kafka_group_offset_set(world.kafka, "sagad-foreign", name, 2, 7, &err), &err);
    world_produce(&world, name, PARTITIONS, COUNT, COUNT);
    world_start(&world, 0);
    await_stop(name, 2, "STOPPED GROUP_OFFSET_FOREIGN 25..7");
    assert_shown(name, "GROUP_OFFSET_FOREIGN", "25", "7");
    world_await_handled(&world, name, 2 * COUNT - 25, WORLD_REST_MS);
    resume(name, 2, "cursor");
    world_workers(&world);
    world_judge(&world, name, 2 * COUNT);
    offsets_await(name, 2, 50);
    proof_fault("kafka: an offset that another program committed", 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_k5_p7_offsets_deleted_and_all_read_again_starts_nothing),
        TEST(test_k5_p7_records_deleted_unread_stop_their_partition_with_the_range),
        TEST(test_p7_a_topic_made_anew_is_noticed_and_read_when_a_person_says_so),
        TEST(test_p7_an_offset_of_somebody_else_stops_the_partition),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
