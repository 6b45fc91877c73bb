/* Goal: what a rule must wait for is waited for, with the partitions paused and polling going on:
 * max_running, a definition that is paused or not there, a database that is away; readiness says
 * so where it lasts. Method: a real broker, sessions of three seconds, so that a member that does
 * not poll or beat is out of its group. */
#include "support/proof.h"
#include "support/wait.h"
#include "world.h"

#include <signal.h>
#include <stdio.h>

enum { PARTITIONS = 3, WAIT_MS = 30000 };

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

static int64_t sagas(const char *name)
{
    return rig_count(rig(), RIG_STORE, "SELECT count(*) FROM saga WHERE definition = '%s'", name);
}

static void await_paused(const char *name, const char *why)
{
    rig_await(rig(), RIG_STORE, "3", WAIT_MS,
              "SELECT count(*) FROM kafka_cursor WHERE rule = '%s' AND paused_why LIKE '%%%s%%'",
              name, why);
}

static void await_health(int expected)
{
    for (int i = 0; rig_health(rig()->address, 2000) != expected; i++) {
        assert_true(i < WAIT_MS / 50);
        wait_ms(50);
    }
}

static void begin(const char *name, int count)
{
    world_topic(&world, name, PARTITIONS);
    world_produce(&world, name, PARTITIONS, 0, count);
    world_rule(&world, 0, name, NULL);
    world_start(&world, 0);
}

/* --- max_running --------------------------------------------------------------------------------
 */

static void test_no_more_sagas_run_than_the_definition_allows(void **state)
{
    (void)state;
    enum { RECORDS = 200, MOST = 7 };
    KAFKA_OR_SKIP(world.kafka);
    begin("most", RECORDS);
    rig_define(rig(), "most", "max_running=7", "pay: IDEMPOTENT | IDEMPOTENT | guarded");
    await_paused("most", "max_running");
    assert_int_equal(sagas("most"), MOST);
    wait_ms(4000); /* longer than a session: it is still a member, and starts no more */
    assert_int_equal(sagas("most"), MOST);
    await_paused("most", "max_running");
    world_workers(&world);
    world_judge(&world, "most", RECORDS);
}

/* --- handlers ---- */

static void test_a_held_handler_pauses_a_rule_that_wants_it(void **state)
{
    (void)state;
    enum { RECORDS = 60 };
    KAFKA_OR_SKIP(world.kafka);
    world_topic(&world, "held", PARTITIONS);
    world_produce(&world, "held", PARTITIONS, 0, RECORDS);
    rig_exec(rig(), RIG_STORE,
             "INSERT INTO handler (name, version, hold, held_at, braked_at, breaker_trial_ms,"
             " breaker_successes, trial_successes, actor, reason, changed_at) VALUES ('act', 1,"
             " 'PERSON', now(), now(), 10000, 3, 0, 'ada', 'looking', now())");
    world_rule(&world, 0, "held", "while-held = pause\n");
    world_start(&world, 0);
    world_define(&world, 0, "held");
    await_paused("held", "handler act is held");
    assert_int_equal(sagas("held"), 0);
    rig_exec(rig(), RIG_STORE,
             "UPDATE handler SET hold = NULL, held_at = NULL, braked_at = NULL,"
             " version = version + 1");
    world_workers(&world);
    world_judge(&world, "held", RECORDS);
}

/* --- definitions --------------------------------------------------------------------------------
 */

static void pause_definition(const char *name, bool paused)
{
    rig_exec(rig(), RIG_STORE,
             paused ? "UPDATE definition SET paused_at = now(), paused_by = 'ada', pause_reason ="
                      " 'looking' WHERE name = '%s'"
                    : "UPDATE definition SET paused_at = NULL, paused_by = NULL, pause_reason ="
                      " NULL WHERE name = '%s'",
             name);
}

static void test_a_paused_definition_starts_nothing(void **state)
{
    (void)state;
    enum { RECORDS = 60 };
    KAFKA_OR_SKIP(world.kafka);
    begin("paused", RECORDS);
    await_paused("paused", "not registered");
    assert_int_equal(rig_health(rig()->address, 2000), 1); /* it can be registered here */
    world_define(&world, 0, "paused");
    world_workers(&world);
    world_judge(&world, "paused", RECORDS);
    pause_definition("paused", true);
    world_produce(&world, "paused", PARTITIONS, RECORDS, RECORDS);
    await_paused("paused", "paused");
    assert_int_equal(sagas("paused"), world_keys(RECORDS));
    pause_definition("paused", false);
    world_judge(&world, "paused", 2 * RECORDS);
    assert_int_equal(rig_health(rig()->address, 2000), 1);
}

/* --- the database -------------------------------------------------------------------------------
 */

static void test_p8_a_database_that_is_away_is_waited_for(void **state)
{
    (void)state;
    enum { RECORDS = 60 };
    struct err err;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    begin("away", RECORDS);
    world_define(&world, 0, "away");
    world_workers(&world);
    world_judge(&world, "away", RECORDS);
    ASSERT_OK(test_postgres_stop_fast(rig()->postgres, &err), &err);
    world_produce(&world, "away", PARTITIONS, RECORDS, RECORDS);
    await_health(2);
    ASSERT_OK(test_postgres_restart(rig()->postgres, &err), &err);
    await_health(1);
    world_judge(&world, "away", 2 * RECORDS);
}

/* Partitions that were paused begin elsewhere when it comes back: it was restored to an earlier
 * point, or a person has moved a cursor. */
static void test_p8_a_database_that_comes_back_with_other_cursors(void **state)
{
    (void)state;
    enum { RECORDS = 60 };
    struct err err;
    char expected[24];
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    begin("moved", RECORDS);
    world_define(&world, 0, "moved");
    world_workers(&world);
    world_judge(&world, "moved", RECORDS);
    ASSERT_OK(test_postgres_stop_fast(rig()->postgres, &err), &err);
    ASSERT_OK(test_process_wait_output(rig()->sagad, "why=\"the database is away\"", WAIT_MS, NULL,
                                       0, &err),
              &err);
    ASSERT_OK(test_process_signal(rig()->sagad, SIGSTOP, &err), &err);
    ASSERT_OK(test_postgres_restart(rig()->postgres, &err), &err);
    rig_exec(rig(), RIG_STORE,
             "UPDATE kafka_cursor SET next_offset = 0, before_offset = NULL, before_time_ms = NULL,"
             " before_crc = NULL WHERE rule = 'moved'");
    ASSERT_OK(test_process_signal(rig()->sagad, SIGCONT, &err), &err);
    (void)snprintf(expected, sizeof expected, "%d", 2 * RECORDS - world_keys(RECORDS));
    rig_await(rig(), RIG_STORE, expected, WAIT_MS,
              "SELECT sum(duplicates) FROM kafka_cursor WHERE rule = 'moved'");
    assert_int_equal(sagas("moved"), world_keys(RECORDS));
}

/* Whoever holds a row of the cursors holds up its batch, and not the member. */
static void test_p8_a_lock_that_is_held_is_waited_for(void **state)
{
    (void)state;
    enum { RECORDS = 60 };
    KAFKA_OR_SKIP(world.kafka);
    begin("locked", RECORDS);
    world_define(&world, 0, "locked");
    world_workers(&world);
    world_judge(&world, "locked", RECORDS);
    PGconn *conn = rig_connect(rig(), RIG_STORE);
    PQclear(PQexec(conn, "BEGIN; UPDATE kafka_cursor SET records = records WHERE rule = 'locked'"));
    world_produce(&world, "locked", PARTITIONS, RECORDS, RECORDS);
    wait_ms(5000); /* longer than a session and than lock_timeout */
    assert_int_equal(sagas("locked"), world_keys(RECORDS));
    PQclear(PQexec(conn, "ROLLBACK"));
    PQfinish(conn);
    world_judge(&world, "locked", 2 * RECORDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_no_more_sagas_run_than_the_definition_allows, check),
        cmocka_unit_test_teardown(test_a_held_handler_pauses_a_rule_that_wants_it, check),
        cmocka_unit_test_teardown(test_a_paused_definition_starts_nothing, check),
        cmocka_unit_test_teardown(test_p8_a_database_that_is_away_is_waited_for, check),
        cmocka_unit_test_teardown(test_p8_a_database_that_comes_back_with_other_cursors, check),
        cmocka_unit_test_teardown(test_p8_a_lock_that_is_held_is_waited_for, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
