#include "world.h"

#include "base/mem.h"
#include "support/wait.h"

#include <stdarg.h>
#include <stdio.h>

enum { RULES_BYTES = 8192, KEY_BYTES = 24 };

static const char *const names[WORLD_NODES] = { "one", "two", "three" };
static const char *const times[] = { "--heartbeat",    "0.2s", "--node-dead",   "2s",
                                     "--resend-grace", "1s",   "--stream-lost", "1s" };
static const char script[] = "* A * guarded";

/* --- up and down ------------------------------------------------------------------------------ */

int world_up(struct world *world, const char *const *broker_settings)
{
    struct err err;
    SETUP_OK(test_kafka_start(broker_settings, &world->kafka, &err), &err);
    if (!world->kafka)
        return 0;
    if (rig_databases_up(&world->nodes[0]) != 0)
        return -1;
    for (size_t i = 0; i < WORLD_NODES; i++) {
        struct rig *rig = &world->nodes[i];
        size_t count = 0;
        SETUP_OK(scratch_path("sagad.conf", world->files[i], &err), &err);
        world_rules(world, i, "%s", "");
        rig->node = names[i];
        while (count < ARRAY_LEN(times)) {
            rig->server_args[count] = times[count];
            count++;
        }
        rig->server_args[count++] = "--config";
        rig->server_args[count] = world->files[i];
        if (i > 0 && rig_node_prepare(rig, &world->nodes[0]) != 0)
            return -1;
    }
    return 0;
}

int world_down(struct world *world)
{
    for (size_t i = WORLD_NODES; i-- > 1;)
        (void)rig_node_down(&world->nodes[i]); /* always 0 */
    int rc = rig_down(&world->nodes[0]);
    world->kafka = test_kafka_free(world->kafka);
    return rc;
}

int world_check(struct world *world)
{
    if (!world->kafka)
        return 0;
    for (size_t i = 1; i < WORLD_NODES; i++)
        (void)rig_node_down(&world->nodes[i]); /* always 0 */
    struct rig *rig = &world->nodes[0];
    rig_workers_kill(rig);
    if (!rig->sagad)
        world_start(world, 0);
    int rc = rig_check(rig);
    (void)rig_node_down(rig); /* always 0 */
    return rc;
}

/* --- rules ------------------------------------------------------------------------------------ */

void world_rules(struct world *world, size_t node, const char *fmt, ...)
{
    char text[RULES_BYTES];
    va_list args;
    va_start(args, fmt);
    int size = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_true(size >= 0 && (size_t)size < sizeof text);
    FILE *file = fopen(world->files[node], "we");
    assert_non_null(file);
    assert_true(fprintf(file, "kafka-brokers = %s\nkey-memory = forever\n%s",
                        test_kafka_bootstrap(world->kafka), text) > 0);
    assert_int_equal(fclose(file), 0);
}

void world_rule(struct world *world, size_t node, const char *name, const char *more)
{
    world_rules(world, node,
                "[kafka %s]\ntopic = %s\ndefinition = %s\nstart = earliest\n"
                "key = record-key\nvalue = bytes\n"
                "librdkafka.session.timeout.ms = %d\nlibrdkafka.heartbeat.interval.ms = %d\n%s",
                name, name, name, WORLD_SESSION_MS, WORLD_SESSION_MS / 6, more ? more : "");
}

void world_start(struct world *world, size_t node)
{
    struct rig *rig = &world->nodes[node];
    if (rig->client) /* it has run before, at the same address */
        rig_server_start(rig);
    else
        assert_int_equal(rig_server_up(rig), 0);
}

void world_define(struct world *world, size_t node, const char *definition)
{
    rig_define(&world->nodes[node], definition, NULL, "pay: IDEMPOTENT | IDEMPOTENT | guarded");
}

void world_workers(struct world *world)
{
    static const char *const ids[WORLD_NODES] = { "worker-one", "worker-two", "worker-three" };
    for (size_t i = 0; i < WORLD_NODES; i++)
        if (world->nodes[i].sagad)
            (void)rig_worker(&world->nodes[i], ids[i], "act:16 undo:4"); /* the rig owns it */
}

/* --- records ---------------------------------------------------------------------------------- */

void world_topic(struct world *world, const char *topic, int partitions)
{
    struct err err;
    ASSERT_OK(test_kafka_topic_create(world->kafka, topic, partitions, NULL, &err), &err);
}

void world_produce(struct world *world, const char *topic, int partitions, int first, int count)
{
    struct err err;
    struct test_kafka_record *records = mem_calloc((size_t)count, sizeof *records);
    char(*keys)[KEY_BYTES] = mem_calloc((size_t)count, sizeof *keys);
    assert_non_null(records);
    assert_non_null(keys);
    for (int n = 0; n < count; n++) {
        int i = first + n;
        int size = snprintf(keys[n], KEY_BYTES, "k-%d", i % 5 == 4 ? i - 1 : i);
        records[n] = (struct test_kafka_record){ .partition = i % partitions,
                                                 .key = keys[n],
                                                 .key_size = (size_t)size,
                                                 .value = script,
                                                 .value_size = sizeof script - 1 };
    }
    ASSERT_OK(test_kafka_produce(world->kafka, topic, records, (size_t)count, &err), &err);
    mem_free(records);
    mem_free(keys);
}

/* --- what came of it -------------------------------------------------------------------------- */

int64_t world_handled(struct world *world, const char *rule)
{
    return rig_count(&world->nodes[0], RIG_STORE,
                     "SELECT coalesce(sum(next_offset), 0) FROM kafka_cursor WHERE rule = '%s'",
                     rule);
}

void world_await_handled(struct world *world, const char *rule, int64_t count, int64_t limit_ms)
{
    char expected[24];
    (void)snprintf(expected, sizeof expected, "%lld", (long long)count);
    rig_await(&world->nodes[0], RIG_STORE, expected, limit_ms,
              "SELECT coalesce(sum(next_offset), 0) FROM kafka_cursor WHERE rule = '%s'", rule);
}

void world_judge(struct world *world, const char *rule, int count)
{
    struct rig *rig = &world->nodes[0];
    char text[160], expected[160];
    int keys = world_keys(count);
    world_await_handled(world, rule, count, WORLD_REST_MS);
    rig_await_states(rig, rule, "", "SUCCEEDED", keys, WORLD_REST_MS);
    (void)snprintf(expected, sizeof expected,
                   "records %d started %d duplicates %d mismatches 0 letters 0 filtered 0", count,
                   keys, count - keys);
    rig_text(rig, RIG_STORE, text, sizeof text,
             "SELECT format('records %%s started %%s duplicates %%s mismatches %%s letters %%s"
             " filtered %%s', sum(records), sum(started), sum(duplicates), sum(mismatches),"
             " sum(dead_letters), sum(filtered + tombstones)) FROM kafka_cursor WHERE rule = '%s'",
             rule);
    assert_string_equal(text, expected);
    assert_int_equal(
        rig_count(rig, RIG_STORE, "SELECT count(*) FROM saga WHERE definition = '%s'", rule), keys);
    assert_int_equal(
        rig_count(rig, RIG_STORE, "SELECT count(*) FROM saga_key WHERE definition = '%s'", rule),
        keys);
    assert_int_equal(
        rig_count(rig, RIG_BANK, "SELECT count(*) FROM effects WHERE definition = '%s'", rule),
        keys);
    assert_int_equal(rig_count(rig, RIG_BANK,
                               "SELECT count(DISTINCT saga_id) FROM effects WHERE definition ="
                               " '%s'",
                               rule),
                     keys);
}

void world_assert_follows(struct world *world, const char *rule, int partitions)
{
    char group[80];
    (void)snprintf(group, sizeof group, "sagad-%s", rule);
    for (int i = 0; i < partitions; i++) {
        struct err err;
        int64_t offset;
        ASSERT_OK(test_kafka_group_offset(world->kafka, group, rule, i, &offset, NULL, 0, &err),
                  &err);
        /* In this order: the cursor only grows. */
        int64_t next = rig_count(&world->nodes[0], RIG_STORE,
                                 "SELECT coalesce(max(next_offset), 0) FROM kafka_cursor"
                                 " WHERE rule = '%s' AND partition = %d",
                                 rule, i);
        if (offset > next)
            fail_msg("partition %d: the group is at %lld, the cursor at %lld", i, (long long)offset,
                     (long long)next);
    }
}
