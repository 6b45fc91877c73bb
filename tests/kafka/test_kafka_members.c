/* Goal: P7 with several sagads in one group: whoever has a partition, whoever thinks so, and
 * whoever waits, one record starts one saga. Method: members that come and go under load; one that
 * stands still for longer than its session; a transaction that arrives after another member has
 * handled the same records (a gate holds it); a batch that rolls back while the next one waits; two
 * members with one name. */
#include "base/rng.h"
#include "gate.h"
#include "support/proof.h"
#include "support/wait.h"
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { PARTITIONS = 6, STOP_MS = 30000, TAKEN_MS = 60000 };

static struct world world;
static struct gate *gate; /* between the second sagad and PostgreSQL */
static char database[POSTGRES_CONNINFO_SIZE];
static struct rng rng;

static int setup(void **state)
{
    (void)state;
    struct err err;
    rng_seed(&rng, proof_seed());
    if (world_up(&world, NULL) != 0)
        return -1;
    if (!world.kafka)
        return 0;
    SETUP_OK(gate_start(test_postgres_port(world.nodes[0].postgres), &gate, &err), &err);
    (void)snprintf(database, sizeof database,
                   "host=127.0.0.1 port=%d dbname=store user=postgres sslmode=disable"
                   " gssencmode=disable",
                   gate_port(gate));
    world.nodes[1].server_database = database;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int rc = world_down(&world);
    gate = gate_free(gate);
    return rc;
}

static int check(void **state)
{
    (void)state;
    if (gate)
        gate_open(gate);
    return world_check(&world);
}

/* The rule at the first `nodes` sagads, all started, one definition. */
static void members_start(const char *name, size_t nodes, const char *more)
{
    world_topic(&world, name, PARTITIONS);
    for (size_t i = 0; i < nodes; i++) {
        world_rule(&world, i, name, more);
        world_start(&world, i);
        if (i == 0)
            world_define(&world, 0, name);
    }
}

/* So many partitions were seen by that node within the last seconds. */
static void await_partitions(const char *name, const char *node, const char *expected)
{
    rig_await(&world.nodes[0], RIG_STORE, expected, TAKEN_MS,
              "SELECT (count(*) > 0)::text FROM kafka_cursor WHERE rule = '%s' AND node = '%s'"
              " AND seen_at > now() - interval '3 s'",
              name, node);
}

/* --- who comes and goes ----------------------------------------------------------------------- */

static void test_p7_members_that_join_and_leave_under_load(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "members";
    const int rounds = test_is_full_size() ? 20 : 4, share = 300;
    int64_t left = 0, killed = 0;
    members_start(name, 2, "batch = 20\n");
    for (int round = 0; round < rounds; round++) {
        size_t node = 1 + rng_below(&rng, 2);
        struct rig *rig = &world.nodes[node];
        world_produce(&world, name, PARTITIONS, round * share, share);
        if (!rig->sagad) {
            world_rule(&world, node, name, "batch = 20\n");
            world_start(&world, node);
        } else if (rng_below(&rng, 2)) {
            (void)rig_server_stop(rig, STOP_MS); /* how long it took is another test's */
            left++;
        } else {
            rig_server_kill(rig);
            killed++;
        }
        wait_ms((int64_t)rng_below(&rng, test_is_full_size() ? 5000 : 2000));
    }
    for (size_t i = 1; i < WORLD_NODES; i++)
        if (!world.nodes[i].sagad) {
            world_rule(&world, i, name, NULL);
            world_start(&world, i);
        }
    world_workers(&world);
    world_judge(&world, name, rounds * share);
    world_assert_follows(&world, name, PARTITIONS);
    proof_fault("kafka: a member leaves or is killed under load", left + killed);
}

/* --- who stands still ------------------------------------------------------------------------- */

/* The first one's rule is only served once the second one has begun and stands still. */
static void test_p7_a_late_transaction_of_a_member_that_stood_still_changes_nothing(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P3 P7 P8");
    static const char name[] = "late";
    enum { COUNT = 60 };
    struct err err;
    world_topic(&world, name, PARTITIONS);
    world_rule(&world, 1, name, NULL);
    world_start(&world, 1);
    world_define(&world, 1, name);
    await_partitions(name, "two", "true");

    /* Its whole first batch is on its way, and it stands still. */
    gate_arm(gate, "ingest_move");
    world_produce(&world, name, PARTITIONS, 0, COUNT);
    for (int i = 0; !gate_is_shut(gate); i++) {
        assert_true(i < TAKEN_MS / 10);
        wait_ms(10);
    }
    assert_int_equal(world_handled(&world, name), 0);
    ASSERT_OK(test_process_signal(world.nodes[1].sagad, SIGSTOP, &err), &err);
    world_rule(&world, 0, name, NULL);
    world_start(&world, 0);
    world_await_handled(&world, name, COUNT, TAKEN_MS); /* its session was over */

    /* Its transaction arrives now. */
    gate_open(gate);
    ASSERT_OK(test_process_signal(world.nodes[1].sagad, SIGCONT, &err), &err);
    ASSERT_OK(test_process_wait_output(world.nodes[1].sagad, "cursor is elsewhere", TAKEN_MS, NULL,
                                       0, &err),
              &err);
    world_workers(&world);
    world_judge(&world, name, COUNT);
    /* It is a member like any other again. */
    world_produce(&world, name, PARTITIONS, COUNT, COUNT);
    world_judge(&world, name, 2 * COUNT);
    proof_fault("kafka: a late transaction of a member whose session was over", 1);
}

static void test_p7_members_that_stand_still_under_load(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P3 P7 P8");
    static const char name[] = "still";
    const int rounds = test_is_full_size() ? 10 : 1, share = 400;
    struct err err;
    members_start(name, 2, "batch = 10\n");
    await_partitions(name, "two", "true");
    for (int round = 0; round < rounds; round++) {
        int64_t before = world_handled(&world, name);
        world_produce(&world, name, PARTITIONS, round * share, share);
        while (world_handled(&world, name) < before + (int64_t)rng_below(&rng, 100))
            wait_ms(1);
        ASSERT_OK(test_process_signal(world.nodes[1].sagad, SIGSTOP, &err), &err);
        /* All of it, although the other one may have stopped within a transaction. */
        world_await_handled(&world, name, (round + 1) * share, TAKEN_MS);
        ASSERT_OK(test_process_signal(world.nodes[1].sagad, SIGCONT, &err), &err);
        await_partitions(name, "two", "true");
    }
    world_workers(&world);
    world_judge(&world, name, rounds * share);
    proof_fault("kafka: SIGSTOP of a member beyond its session", rounds);
}

/* --- who waits -------------------------------------------------------------------------------- */

static void test_p7_a_batch_that_rolls_back_while_the_next_one_waits(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P2 P7 P8");
    static const char name[] = "rollback";
    enum { COUNT = 300 };
    members_start(name, 1, "batch = 20\n");
    await_partitions(name, "one", "true");
    /* Somebody else is about to write the key of a record in the middle. */
    PGconn *other = rig_connect(&world.nodes[0], RIG_STORE);
    PQclear(PQexec(other, "BEGIN"));
    PQclear(PQexec(other, "LOCK TABLE saga_key IN EXCLUSIVE MODE"));
    world_produce(&world, name, PARTITIONS, 0, COUNT);
    /* Twice: it was rolled back, and what follows waited behind it. */
    struct err err;
    ASSERT_OK(
        test_process_wait_output(world.nodes[0].sagad, "does not get on", TAKEN_MS, NULL, 0, &err),
        &err);
    assert_int_equal(world_handled(&world, name), 0);
    assert_int_equal(rig_count(&world.nodes[0], RIG_STORE,
                               "SELECT count(*) FROM saga WHERE definition = '%s'", name),
                     0);
    PQclear(PQexec(other, "ROLLBACK"));
    PQfinish(other);
    /* And its session is ended, again and again, in the middle of its work. */
    int64_t ended = 0;
    for (int i = 0; i < 20 && world_handled(&world, name) < COUNT; i++) {
        ended += rig_count(&world.nodes[0], RIG_STORE,
                           "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                           " WHERE application_name = 'sagad ingest' AND state <> 'idle'");
        wait_ms(20);
    }
    world_workers(&world);
    world_judge(&world, name, COUNT);
    world_assert_follows(&world, name, PARTITIONS);
    proof_fault("kafka: a batch rolled back while the next one waited", 1);
    print_message("%lld sessions of the ingest were ended\n", (long long)ended);
}

/* --- one name, twice -------------------------------------------------------------------------- */

static int64_t cpu_ticks(const struct rig *rig)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)test_process_pid(rig->sagad));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file); /* only read */
    text[size] = '\0';
    const char *at = strrchr(text, ')');
    assert_non_null(at);
    for (int field = 2; field < 14; field++)
        at = strchr(at + 1, ' ');
    char *end;
    int64_t user = strtoll(at, &end, 10);
    return user + strtoll(end, NULL, 10);
}

static void test_k6_two_members_of_one_name_and_a_restart_in_time(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "twins";
    enum { COUNT = 120, LOOK_MS = 3000 };
    struct err err;
    members_start(name, 1, "instance = twin\n");
    await_partitions(name, "one", "true");
    world_rule(&world, 2, name, "instance = twin\n");
    world_start(&world, 2);

    /* The one that was there is fenced: it says why, is not ready, and is idle. */
    ASSERT_OK(test_process_wait_output(world.nodes[0].sagad, "another member has its place",
                                       TAKEN_MS, NULL, 0, &err),
              &err);
    assert_int_equal(rig_health(world.nodes[0].address, 5000), 2);
    assert_int_equal(rig_health(world.nodes[2].address, 5000), 1);
    int64_t ticks = cpu_ticks(&world.nodes[0]);
    wait_ms(LOOK_MS); /* the time over which it is looked at */
    ticks = cpu_ticks(&world.nodes[0]) - ticks;
    if (ticks > LOOK_MS * sysconf(_SC_CLK_TCK) / 1000 / 3)
        fail_msg("%lld ticks in %d ms: a busy loop", (long long)ticks, LOOK_MS);
    world_produce(&world, name, PARTITIONS, 0, COUNT);
    world_await_handled(&world, name, COUNT, WORLD_REST_MS);

    /* A restart within the session changes nothing for the group: it is its old member. */
    (void)rig_server_stop(&world.nodes[2], STOP_MS); /* in time, by the rig's limit */
    size_t members = 0;
    ASSERT_OK(test_kafka_group_members(world.kafka, "sagad-twins", &members, &err), &err);
    assert_int_equal(members, 1);
    world_start(&world, 2);
    world_produce(&world, name, PARTITIONS, COUNT, COUNT);
    world_await_handled(&world, name, 2 * COUNT, WORLD_REST_MS);
    rig_server_kill(&world.nodes[0]);
    world_rule(&world, 0, name, "instance = another\n");
    world_start(&world, 0);
    world_workers(&world);
    world_judge(&world, name, 2 * COUNT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p7_members_that_join_and_leave_under_load),
        TEST(test_p7_a_late_transaction_of_a_member_that_stood_still_changes_nothing),
        TEST(test_p7_members_that_stand_still_under_load),
        TEST(test_p7_a_batch_that_rolls_back_while_the_next_one_waits),
        TEST(test_k6_two_members_of_one_name_and_a_restart_in_time),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
