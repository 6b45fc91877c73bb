/* Records become sagas: one thread, one member of the group and one connection to the database for
 * each rule. A batch of records is one transaction, cursor first; the group's offsets only follow.
 *
 * What stops one partition (GAP, BEYOND_END, GROUP_OFFSET_FOREIGN, TOPIC_RECREATED) is written to
 * its cursor and waits for a person; the others go on. What keeps a rule from running at all is in
 * its row. Everything else (no database, no broker, a paused definition, max_running) is waited
 * for, with the partitions paused.
 *
 * Decides nothing about a saga: who drives them is told by a callback. thread: the main thread,
 * except where it says so. */
#ifndef KAFKA_INGEST_H
#define KAFKA_INGEST_H

#include "base/clock.h"
#include "base/mem.h"
#include "base/uuid.h"
#include "kafka/rule.h"

struct kafka_ingest;

struct kafka_started_saga {
    const char *saga_id; /* NULL: it began SUSPECT, and is to be loaded */
    struct bytes input;
    const char *labels; /* NULL: none */
};
struct kafka_started { /* borrowed during the call */
    const struct uuid *uids;
    size_t count; /* 0: some were started, and it is not known which */
    /* NULL, or one for each, and what they have in common */
    const struct kafka_started_saga *sagas;
    const char *namespace_, *definition;
    int32_t revision;
    int64_t started_at_ms, deadline_at_ms; /* by the database's clock; 0: none */
    long long mark;
};

struct kafka_ingest_options { /* rules and texts borrowed until kafka_ingest_stop */
    const struct kafka_rule *const *rules;
    size_t rule_count;
    const char *brokers;
    const struct kafka_properties *properties; /* for all rules, whose own win; NULL: none */
    const char *conninfo;
    const char *node; /* owner of the sagas; it has joined */
    const struct clock *clock;
    uint64_t rng_seed;
    int64_t key_memory_ms;    /* how long a key is remembered after its saga; -1: for ever */
    size_t payload_bytes_max; /* of an input; 0: LIMIT_PAYLOAD_BYTES */
    /* These sagas were started, durably, and are this node's. False: not now; asked again soon, and
     * nothing more is started meanwhile. thread: a rule's. */
    bool (*started)(void *ctx, const struct kafka_started *started);
    /* What was so before a transaction begins, for kafka_started.mark. thread: a rule's. */
    long long (*mark)(void *ctx);
    void *ctx;
};

/* Starts the threads; connects to nobody itself. */
MUST_USE int kafka_ingest_start(const struct kafka_ingest_options *options,
                                struct kafka_ingest **ret, struct err *err);
/* Nothing more is started from now on; returns at once. */
void kafka_ingest_end(struct kafka_ingest *ingest);
/* The same, and waits for the threads, at most about grace_ms, wherever they stand: in a call to a
 * database that does not answer, or to a broker that is gone. True: `ingest` is freed. False: a
 * thread did not end; it may still call `started`, and nothing is freed, until the process ends. */
bool kafka_ingest_stop(struct kafka_ingest *ingest, int64_t grace_ms);
/* False while a rule that is to run cannot go on: no database, fenced, a problem of its own, no
 * broker for INGEST_BROKER_MS. thread: any. */
bool kafka_ingest_is_ready(const struct kafka_ingest *ingest);

enum { INGEST_DATABASE_MS = 5000, INGEST_BROKER_MS = 30000 };

#endif
