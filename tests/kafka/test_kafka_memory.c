/* Goal: F5: a backlog on many partitions costs no memory, however slow the database is, and nothing
 * of it is lost. Method: far more bytes than sagad may take, on 100 partitions; the database is
 * held up by a lock; its memory is what the kernel says. */
#include "base/mem.h"
#include "support/proof.h"
#include "support/wait.h"
#include "world.h"

#include <stdio.h>

enum {
    PARTITIONS = 100,
    VALUE_BYTES = 200 * 1024,
    WAIT_MS = 60000,
    HELD_MS = 5000,
    /* 16 MiB of records that wait, 8 of an answer, 8 of a batch; twice that in copies; the heap's
     * and the sanitizer's share. */
    GROWTH_KIB = 128 * 1024,
};

static struct world world;
static const char *const environment[] = { "ASAN_OPTIONS=quarantine_size_mb=8:detect_leaks=1"
                                           ":halt_on_error=1:abort_on_error=1",
                                           NULL };

static int setup(void **state)
{
    (void)state;
    world.nodes[0].server_env = environment;
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

/* "VmRSS" or "VmHWM" of the sagad, in KiB. */
static int64_t memory_kib(const char *what)
{
    char path[64], line[256];
    int64_t found = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status",
                   (int)test_process_pid(world.nodes[0].sagad));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (found < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, what, strlen(what)) == 0)
            found = strtoll(line + strlen(what) + 1, NULL, 10);
    (void)fclose(file); /* only read */
    assert_true(found > 0);
    return found;
}

/* One of them in 50 is the rule's; the others are passed over once they are read. */
static void backlog_produce(const char *topic, int each)
{
    struct err err;
    char *value = mem_calloc(1, VALUE_BYTES);
    assert_non_null(value);
    memset(value, 'x', VALUE_BYTES);
    static const struct test_kafka_header ours = { "ours", "yes", 3 }, other = { "ours", "no", 2 };
    int number = 0;
    for (int i = 0; i < each; i++) {
        struct test_kafka_record records[PARTITIONS];
        char keys[PARTITIONS][16];
        for (int k = 0; k < PARTITIONS; k++, number++) {
            int size = snprintf(keys[k], sizeof keys[k], "k-%d", number);
            records[k] = (struct test_kafka_record){ .partition = k,
                                                     .key = keys[k],
                                                     .key_size = (size_t)size,
                                                     .value = value,
                                                     .value_size = VALUE_BYTES,
                                                     .headers = number % 50 ? &other : &ours,
                                                     .header_count = 1 };
        }
        ASSERT_OK(test_kafka_produce(world.kafka, topic, records, PARTITIONS, &err), &err);
    }
    mem_free(value);
}

static void test_f5_p8_a_backlog_and_a_slow_database_cost_no_memory(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "backlog";
    const int each = test_is_full_size() ? 50 : 15;
    struct err err;
    struct rig *rig = &world.nodes[0];
    world_topic(&world, name, PARTITIONS);
    backlog_produce(name, each);
    world_rule(&world, 0, name, "filter = header:ours=yes\n");
    world_start(&world, 0);
    /* Its session with the database is there; it waits for the definition. */
    ASSERT_OK(test_process_wait_output(rig->sagad, "partitions are paused", WAIT_MS, NULL, 0, &err),
              &err);
    int64_t before = memory_kib("VmRSS");
    /* From its first batch on the database is held up. */
    PGconn *other = rig_connect(rig, RIG_STORE);
    PQclear(PQexec(other, "BEGIN"));
    PQclear(PQexec(other, "LOCK TABLE saga_key IN EXCLUSIVE MODE"));
    world_define(&world, 0, name);
    ASSERT_OK(test_process_wait_output(rig->sagad, "partitions are paused", WAIT_MS, NULL, 0, &err),
              &err);
    wait_ms(HELD_MS); /* so long it goes on fetching, if it does */
    rig_await(rig, RIG_STORE, "t", WAIT_MS,
              "SELECT (count(*) > 0)::text::char(1) FROM kafka_cursor WHERE rule = '%s'"
              " AND paused_why IS NOT NULL",
              name);
    int64_t held = memory_kib("VmHWM") - before;
    PQclear(PQexec(other, "ROLLBACK"));
    PQfinish(other);
    world_await_handled(&world, name, (int64_t)each * PARTITIONS, 2 * WORLD_REST_MS);
    ASSERT_OK(
        test_process_wait_output(rig->sagad, "partitions are read again", WAIT_MS, NULL, 0, &err),
        &err);
    int64_t after = memory_kib("VmHWM") - before;
    print_message("backlog %d MiB: %lld MiB more while held up, %lld MiB more at most\n",
                  each * PARTITIONS / 5, (long long)held / 1024, (long long)after / 1024);
    assert_true(held <= GROWTH_KIB);
    assert_true(after <= GROWTH_KIB);
    assert_int_equal(
        rig_count(rig, RIG_STORE, "SELECT sum(started) FROM kafka_cursor WHERE rule = '%s'", name),
        each * PARTITIONS / 50);
    assert_int_equal(
        rig_count(rig, RIG_STORE, "SELECT sum(filtered) FROM kafka_cursor WHERE rule = '%s'", name),
        each * PARTITIONS - each * PARTITIONS / 50);
    proof_fault("kafka: the database is held up before a backlog", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_f5_p8_a_backlog_and_a_slow_database_cost_no_memory, check),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
