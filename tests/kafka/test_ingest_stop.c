/* Goal: SIGTERM ends a sagad that ingests within its grace, wherever its threads stand, and what
 * was on its way is neither lost nor doubled. Method: stopped under load with the broker killed, or
 * standing still; in the middle of a rebalance; with an insert that is held up; before it ever
 * reached a broker. The rig's stop fails when the exit code is not 0 or the time is over. */
#include "store/store.h"
#include "support/proof.h"
#include "support/wait.h"
#include "world.h"

#include <signal.h>
#include <stdio.h>

enum { PARTITIONS = 4, RECORDS = 2000, GRACE_MS = 10000, WAIT_MS = 30000 };

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

/* So many records are handled, and more are there. */
static void under_load(const char *name)
{
    world_topic(&world, name, PARTITIONS);
    world_rule(&world, 0, name, "batch = 10\n");
    world_start(&world, 0);
    world_define(&world, 0, name);
    world_workers(&world);
    world_produce(&world, name, PARTITIONS, 0, RECORDS);
    rig_await(rig(), RIG_STORE, "t", WAIT_MS,
              "SELECT sum(next_offset) > 50 FROM kafka_cursor WHERE rule = '%s'", name);
}

static void stop_in_time(void)
{
    print_message("stopped after %lld ms\n", (long long)rig_server_stop(rig(), GRACE_MS));
    rig_workers_kill(rig());
}

static void goes_on(const char *name)
{
    world_start(&world, 0);
    world_workers(&world);
    world_judge(&world, name, RECORDS);
}

static void test_stop_under_load(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    under_load("load");
    stop_in_time();
    world_assert_follows(&world, "load", PARTITIONS);
    goes_on("load");
}

static void test_stop_with_the_broker_gone(void **state)
{
    (void)state;
    struct err err;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    under_load("gone");
    test_kafka_kill(world.kafka);
    stop_in_time();
    /* Nor does it ever reach one. */
    world_start(&world, 0);
    wait_ms(500); /* in the midst of its attempts */
    stop_in_time();
    ASSERT_OK(test_kafka_restart(world.kafka, &err), &err);
    goes_on("gone");
}

static void test_stop_with_a_broker_that_stands_still(void **state)
{
    (void)state;
    struct err err;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    under_load("still");
    ASSERT_OK(test_kafka_signal(world.kafka, SIGSTOP, &err), &err);
    stop_in_time();
    ASSERT_OK(test_kafka_signal(world.kafka, SIGCONT, &err), &err);
    goes_on("still");
}

/* Another member joins: all partitions are taken back and given anew while the signal comes. */
static void test_stop_in_mid_rebalance(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    under_load("rebalance");
    world_rule(&world, 1, "rebalance", "batch = 10\n");
    world_start(&world, 1);
    stop_in_time();
    (void)rig_server_stop(&world.nodes[1], GRACE_MS);
    goes_on("rebalance");
}

static void test_stop_with_an_insert_that_is_held_up(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    under_load("held");
    /* Somebody else is about to commit the key of a record that is still to come. */
    char text[400];
    (void)snprintf(text, sizeof text,
                   "BEGIN; INSERT INTO saga_key (shard, namespace, definition, saga_id, saga_uid,"
                   " run, input_digest) VALUES (%d, 'default', 'held', 'k-%d',"
                   " gen_random_uuid(), 1, '')",
                   store_shard("default", "held", "k-1998"), RECORDS - 2);
    PGconn *conn = rig_connect(rig(), RIG_STORE);
    PGresult *result = PQexec(conn, text);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    rig_await(rig(), RIG_STORE, "t", WAIT_MS,
              "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND"
              " application_name LIKE '%%ingest%%')");
    stop_in_time();
    PQclear(PQexec(conn, "ROLLBACK"));
    PQfinish(conn);
    goes_on("held");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_stop_under_load, check),
        cmocka_unit_test_teardown(test_stop_with_the_broker_gone, check),
        cmocka_unit_test_teardown(test_stop_with_a_broker_that_stands_still, check),
        cmocka_unit_test_teardown(test_stop_in_mid_rebalance, check),
        cmocka_unit_test_teardown(test_stop_with_an_insert_that_is_held_up, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
