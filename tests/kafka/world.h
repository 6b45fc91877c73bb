/* A broker, PostgreSQL, and up to three sagads that are started when a test says so, each with
 * rules of its own. Records are numbered; every fifth has the key of the one before it, in another
 * partition. Their value makes the scripted worker enter one guarded effect in the bank's books, so
 * that a saga that came to be twice, or ran twice, shows there.
 *
 * What fails, fails the running test, except up, down and check (0 or -1). thread: the test
 * thread only. */
#ifndef KAFKA_WORLD_H
#define KAFKA_WORLD_H

#include "support/kafka.h"
#include "support/rig.h"
#include "support/scratch.h"

enum { WORLD_NODES = 3, WORLD_SESSION_MS = 3000, WORLD_REST_MS = 240000 };

struct world {
    struct test_kafka *kafka;      /* NULL: none can be had, and nothing else is there */
    struct rig nodes[WORLD_NODES]; /* "one", "two", "three"; the first has the databases */
    char files[WORLD_NODES][SCRATCH_PATH_SIZE];
};

/* The broker and the databases; no sagad yet. Before it a test may set what a rig lets it set. */
MUST_USE int world_up(struct world *world, const char *const *broker_settings);
int world_down(struct world *world);
/* After a test: the invariants hold (a sagad is started for that where none runs), and everything
 * but broker and databases ends. */
MUST_USE int world_check(struct world *world);

/* What the sagad knows of Kafka when it starts next: sections as in its configuration file. */
FMT(3, 4) void world_rules(struct world *world, size_t node, const char *fmt, ...);
/* The usual one: rule, topic and definition of one name; keys of records, values as they are, short
 * sessions, from the first record on; `more`: further lines. */
void world_rule(struct world *world, size_t node, const char *name, const char *more);
/* Starts the sagad and waits until it serves. */
void world_start(struct world *world, size_t node);
/* A definition with one guarded step, and a worker for it at each node that runs. */
void world_define(struct world *world, size_t node, const char *definition);
void world_workers(struct world *world);

void world_topic(struct world *world, const char *topic, int partitions);
/* Records `first` to `first` + `count` - 1, record i into partition i % partitions. */
void world_produce(struct world *world, const char *topic, int partitions, int first, int count);
/* So many keys do the first `count` records have. */
static inline int world_keys(int count)
{
    return count - count / 5;
}

/* Offsets of a rule, all partitions: handled, by the cursors. */
int64_t world_handled(struct world *world, const char *rule);
void world_await_handled(struct world *world, const char *rule, int64_t count, int64_t limit_ms);
/* Waits until `count` records of a rule of world_rule are handled and all sagas of it have ended,
 * and judges: as many sagas as keys, each with its one effect, every record counted once. */
void world_judge(struct world *world, const char *rule, int count);
/* What the group was told never lies before what is durable. */
void world_assert_follows(struct world *world, const char *rule, int partitions);

#endif
