/* Goal: P7 and K1: one record starts one saga, whatever dies at whatever moment. Method: records
 * that come in while sagad is killed with -9: at random moments, exactly between what it read and
 * its commit, and exactly behind the commit; while the broker is killed; while PostgreSQL is. After
 * each kill the group's offset is compared with what is durable; at the end the books are. */
#include "base/rng.h"
#include "page.h"
#include "support/proof.h"
#include "support/wait.h"
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum { PARTITIONS = 8, DIE_MS = 60000 };

static struct world world;
static struct rng rng;
static struct page *page; /* of the first sagad */
static char variable[SCRATCH_PATH_SIZE + 32];
static const char *environment[2];

static int setup(void **state)
{
    (void)state;
    struct err err;
    char path[SCRATCH_PATH_SIZE];
    rng_seed(&rng, proof_seed());
    SETUP_OK(scratch_path("faults", path, &err), &err);
    (void)snprintf(variable, sizeof variable, FAULT_PAGE_ENV "=%s", path);
    environment[0] = variable;
    page = page_map(path, true);
    world.nodes[0].server_program = SAGAD_FAULT_BINARY;
    world.nodes[0].server_env = environment;
    return page ? world_up(&world, NULL) : -1;
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

/* --- sagad ------------------------------------------------------------------------------------ */

static void await_death(enum page_place place, uint64_t hits)
{
    struct err err;
    int status;
    ASSERT_OK(test_process_wait(world.nodes[0].sagad, DIE_MS, &status, &err), &err);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* not by itself */
    assert_int_equal(page_hits(page, place), hits + 1);
    rig_server_kill(&world.nodes[0]); /* reaped */
}

static void test_k1_p7_kill_9_of_sagad_loses_and_doubles_no_record(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P1 P2 P7 P8");
    static const char name[] = "crash";
    const int rounds = test_is_full_size() ? 50 : 10, share = 400;
    enum { KINDS = 5 }; /* the last one: at random */
    static const enum page_place places[KINDS - 1] = {
        PAGE_BEFORE_INGEST, PAGE_INGEST_BEFORE_COMMIT, PAGE_INGEST_AFTER_COMMIT, PAGE_AFTER_INGEST
    };
    int64_t random_kills = 0;
    world_topic(&world, name, PARTITIONS);
    world_rule(&world, 0, name, "batch = 50\n");
    world_start(&world, 0);
    world_define(&world, 0, name);
    for (int round = 0; round < rounds; round++) {
        int kind = round % KINDS;
        uint64_t hits = kind < KINDS - 1 ? page_hits(page, places[kind]) : 0;
        if (kind < KINDS - 1)
            page_arm(page, places[kind], 1 + rng_below(&rng, 3));
        world_produce(&world, name, PARTITIONS, round * share, share);
        if (kind < KINDS - 1) {
            await_death(places[kind], hits);
        } else {
            wait_ms((int64_t)rng_below(&rng, 1500)); /* the moment is what is random */
            assert_true(test_process_running(world.nodes[0].sagad));
            rig_server_kill(&world.nodes[0]);
            random_kills++;
        }
        world_assert_follows(&world, name, PARTITIONS);
        world_start(&world, 0);
    }
    world_workers(&world);
    world_judge(&world, name, rounds * share);
    for (int i = 0; i < KINDS - 1; i++) {
        char fault[PROOF_NAME_SIZE];
        (void)snprintf(fault, sizeof fault, "kill -9 %s", page_place_names[places[i]]); /* fits */
        proof_fault(fault, (int64_t)page_hits(page, places[i]));
    }
    proof_fault("kafka: kill -9 of sagad at random", random_kills);
}

/* --- the broker ------------------------------------------------------------------------------- */

static void test_p7_p8_kill_9_of_the_broker_under_load_delays_and_loses_nothing(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "broker";
    const int rounds = test_is_full_size() ? 5 : 1, share = 600;
    struct err err;
    world_topic(&world, name, PARTITIONS);
    world_rule(&world, 0, name, "batch = 50\n");
    world_start(&world, 0);
    world_define(&world, 0, name);
    world_workers(&world);
    for (int round = 0; round < rounds; round++) {
        int64_t before = world_handled(&world, name);
        world_produce(&world, name, PARTITIONS, 2 * round * share, share);
        while (world_handled(&world, name) == before) /* in the middle of them */
            wait_ms(5);
        test_kafka_kill(world.kafka);
        wait_ms((int64_t)rng_below(&rng, 2000)); /* an outage */
        ASSERT_OK(test_kafka_restart(world.kafka, &err), &err);
        world_produce(&world, name, PARTITIONS, (2 * round + 1) * share, share);
        world_await_handled(&world, name, 2 * (round + 1) * share, WORLD_REST_MS);
    }
    world_judge(&world, name, 2 * rounds * share);
    world_assert_follows(&world, name, PARTITIONS);
    proof_fault("kafka: kill -9 of the broker", rounds);
}

/* --- the database ----------------------------------------------------------------------------- */

static void test_p7_p8_kill_9_of_postgresql_under_load_loses_and_doubles_no_record(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P2 P7 P8");
    static const char name[] = "database";
    const int rounds = test_is_full_size() ? 10 : 2, share = 600;
    struct err err;
    world_topic(&world, name, PARTITIONS);
    world_rule(&world, 0, name, "batch = 50\n");
    world_start(&world, 0);
    world_define(&world, 0, name);
    for (int round = 0; round < rounds; round++) {
        int64_t before = world_handled(&world, name);
        world_produce(&world, name, PARTITIONS, round * share, share);
        while (world_handled(&world, name) == before)
            wait_ms(5);
        test_postgres_kill(world.nodes[0].postgres);
        ASSERT_OK(test_postgres_restart(world.nodes[0].postgres, &err), &err);
        world_assert_follows(&world, name, PARTITIONS);
    }
    world_workers(&world);
    world_judge(&world, name, rounds * share);
    proof_fault("kafka: kill -9 of PostgreSQL", rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_k1_p7_kill_9_of_sagad_loses_and_doubles_no_record, check),
        cmocka_unit_test_teardown(
            test_p7_p8_kill_9_of_the_broker_under_load_delays_and_loses_nothing, check),
        cmocka_unit_test_teardown(
            test_p7_p8_kill_9_of_postgresql_under_load_loses_and_doubles_no_record, check),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
