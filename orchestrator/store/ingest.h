/* What the ingest of one Kafka rule does in the database: batches of records become sagas, cursors
 * move, and what people asked for is found. On a connection of its own, which it opens when it is
 * needed and opens anew after a loss.
 *
 * Calls block, each for CALL_MS at most (store/ingest.c), and end at once when the wake-up fd is
 * readable. Every call is one transaction or one statement: it took effect as a whole or not at
 * all. What can fail:
 *   ERR_UNAVAILABLE, retryable    no database, a lock, a time-out: nothing happened. Again later.
 *     reason STOPPED              the wake-up fd; the connection is closed
 *     reason COMMIT_IN_DOUBT      the answer to COMMIT did not come: load the cursors (or the
 *                                 letters) again, they tell. Also with STOPPED in the middle of it
 *   ERR_PRECONDITION, retryable   reason DEFINITION_PAUSED, REVISION_GONE (load it anew),
 *                                 RULE_STOPPED: nothing happened
 *   ERR_CONFLICT, retryable       a deadlock, or what it was about is another's by now
 *   ERR_INTERNAL, ERR_NOMEM       as everywhere
 * Never: a decision about a record's content (kafka/record.h), anything of librdkafka.
 *
 * thread: one at a time. Texts and bytes that go in are borrowed for the call. */
#ifndef STORE_INGEST_H
#define STORE_INGEST_H

#include "base/clock.h"
#include "store/store.h"

struct store_ingest;

struct store_ingest_options { /* borrowed until store_ingest_new has returned; clock for longer */
    const char *conninfo;
    const struct clock *clock;
    const char *node; /* owner of the sagas; must be the engine's, and have joined */
    const char *rule, *topic;
    int wake_fd;       /* readable: end what blocks; -1: none. Never read from */
    uint64_t rng_seed; /* ids of sagas and dead letters */
};
/* Does not connect yet. ERR_INVALID: a conninfo that libpq cannot read. */
MUST_USE int store_ingest_new(const struct store_ingest_options *options, struct store_ingest **ret,
                              struct err *err);
struct store_ingest *store_ingest_free(struct store_ingest *ingest);

/* --- the rule ------------------------------------------------------------------------------- */

struct store_ingest_rule { /* how this node has it */
    const char *group_id, *namespace_, *definition;
    int64_t topic_retention_ms; /* at most, as the broker says; -1: for ever, -2: not known */
    bool topic_compacted;
    int64_t key_memory_ms; /* -1: for ever */
    const char *problem;   /* why it cannot run at all; NULL: it can */
};
struct store_ingest_wanted {
    bool run;         /* false: a person has stopped the rule */
    bool has_request; /* a CHECK or TAKEOVER is there to be taken */
    bool has_replay;  /* dead letters are to be replayed */
};
/* Writes the rule's row, at the start and every few seconds, and says what is wanted. The row's
 * first writer decides: a new rule runs. */
MUST_USE int store_ingest_rule(struct store_ingest *ingest, const struct store_ingest_rule *rule,
                               struct store_ingest_wanted *ret, struct err *err);
/* The same without writing: cheap, for every 500 ms. ERR_NOT_FOUND: the rule has no row. */
MUST_USE int store_ingest_wanted(struct store_ingest *ingest, struct store_ingest_wanted *ret,
                                 struct err *err);

struct store_ingest_definition { /* the revision for new sagas */
    int32_t revision;
    struct bytes content, descriptors; /* owned; as of STORE_LOAD_DEFINITION */
    bool paused;
    char *pause_reason; /* owned; NULL: not paused */
};
void store_ingest_definition_done(struct store_ingest_definition *definition);
/* ERR_NOT_FOUND: no such definition, or all of it was deleted. */
MUST_USE int store_ingest_definition(struct store_ingest *ingest, const char *namespace_,
                                     const char *name, struct store_ingest_definition *ret,
                                     struct err *err);
/* Sagas of it in RUNNING and COMPENSATING, counted up to `bound` (for max_running). */
MUST_USE int store_ingest_running(struct store_ingest *ingest, const char *namespace_,
                                  const char *name, int64_t bound, int64_t *ret, struct err *err);

/* The first of these handlers that is held; owned, NULL: none is. */
MUST_USE int store_ingest_held(struct store_ingest *ingest, const char *const *handlers,
                               size_t count, char **ret, struct err *err);

/* --- cursors -------------------------------------------------------------------------------- */

struct store_ingest_before { /* the last record that was handled; offset -1: there is none */
    int64_t offset;
    int64_t time_ms;
    uint32_t crc;
};
struct store_ingest_cursor {
    int32_t partition;
    int64_t next_offset;
    bool has_before;
    struct store_ingest_before before;
    int64_t suspect_until; /* records before it start SUSPECT; 0: none */
    bool stopped;
    char *stop_reason, *stop_message; /* owned; NULL: it is not stopped */
    int64_t stop_from, stop_to;
};
void store_ingest_cursors_done(struct store_ingest_cursor *cursors, size_t count); /* and frees */
/* All of the rule's topic, by partition; the array is owned. */
MUST_USE int store_ingest_cursors(struct store_ingest *ingest, struct store_ingest_cursor **ret,
                                  size_t *ret_count, struct err *err);

struct store_ingest_begin {
    int32_t partition;
    int64_t next_offset;
};
/* A partition that has a cursor keeps it: load them afterwards. */
MUST_USE int store_ingest_create(struct store_ingest *ingest,
                                 const struct store_ingest_begin *begins, size_t count,
                                 struct err *err);

struct store_ingest_stop {
    int32_t partition;
    int64_t next_offset; /* as this node knows it */
    const char *reason;  /* a stable word: GAP, BEYOND_END, TOPIC_RECREATED, ... */
    const char *message;
    int64_t from, to; /* the range that it is about: offsets, both included */
};
/* *ret_stopped false: the cursor is elsewhere by now, or stopped already. */
MUST_USE int store_ingest_stop(struct store_ingest *ingest, const struct store_ingest_stop *stop,
                               bool *ret_stopped, struct err *err);

struct store_ingest_seen {
    int32_t partition;
    int64_t low_offset, end_offset; /* of the log; -1: not known */
    const char *paused_why;         /* NULL: it is not paused */
    double rate_per_s;
};
/* For people; every second. Not durable at once, and costs no flush. */
MUST_USE int store_ingest_seen(struct store_ingest *ingest, const struct store_ingest_seen *seen,
                               size_t count, struct err *err);

/* --- the batch ------------------------------------------------------------------------------ */

struct store_ingest_bytes { /* null and empty are two things */
    const uint8_t *data;
    size_t size;
    bool is_there;
};

enum store_ingest_action { INGEST_START, INGEST_DEAD_LETTER };
enum store_ingest_result {
    INGEST_NOTHING,   /* its partition did not move (its letter is another's by now) */
    INGEST_STARTED,   /* a new saga: uid. The engine is to be told */
    INGEST_DUPLICATE, /* the key had started one with this input: uid, ended, final_state. Or the
                       * record was a dead letter before (uid is zero) */
    INGEST_MISMATCH,  /* the key had started one with another input: the same */
    INGEST_DEAD,      /* a dead letter now: as it was asked for, or (START) since the database
                       * refused its row: reason REFUSED_BY_DATABASE */
};
struct store_ingest_record {
    enum store_ingest_action action;
    int32_t partition;
    int64_t offset;
    int64_t time_ms; /* -1: none */
    uint32_t crc;    /* kafka_record_crc */
    /* the record as it came: for a dead letter, which a START may become */
    struct store_ingest_bytes key, value;
    struct bytes headers; /* packed saga.v1.KafkaHeaders */
    const char *saga_id;  /* DEAD_LETTER: NULL where it is not known */
    /* START */
    struct bytes input;
    const char *labels; /* JSON; NULL: none */
    /* DEAD_LETTER */
    const char *reason, *message;

    /* results */
    enum store_ingest_result result;
    struct uuid uid; /* after COMMIT_IN_DOUBT: of a START, what may have been started (or zero) */
    bool ended;
    enum saga_state final_state; /* if ended; also of a saga whose rows were purged */
};
struct store_ingest_part { /* one partition's share; those of a batch differ */
    int32_t partition;
    int64_t expected;                  /* the cursor's next_offset, as this node knows it */
    int64_t next_offset;               /* where it is to be */
    struct store_ingest_before before; /* the last record of this share */
    int64_t filtered, tombstones;      /* records that were passed over */
    bool moved; /* result; false: somebody else moved or stopped it. Load the cursors */
};
struct store_ingest_batch {
    const char *namespace_, *definition;
    int32_t revision;
    int64_t deadline_ms;             /* of the definition; 0: none */
    bool publish_start;              /* the definition wants an event for each start (outbox) */
    bool mismatch_is_dead_letter;    /* false: the first one wins, and it is counted */
    struct store_ingest_part *parts; /* may hold no records at all */
    size_t part_count;
    /* Of one partition in the order of their offsets; of two with the same key the first one in
     * this order wins. */
    struct store_ingest_record *records;
    size_t record_count;
    int64_t now_ms; /* result: when the sagas were started, if a part moved */
};
/* Cursors by equality, then keys and sagas (owner: this node, no lease yet), dead letters,
 * counters: one transaction. A partition that is not where it was expected does not move and starts
 * nothing; the others do. Sagas of records before suspect_until begin with the entry SUSPECT, with
 * the record's time as `since` and "kafka/RULE" as actor. */
MUST_USE int store_ingest_batch(struct store_ingest *ingest, struct store_ingest_batch *batch,
                                struct err *err);

/* Which of these keys are known? ret: `count` flags. For CHECK. */
MUST_USE int store_ingest_known(struct store_ingest *ingest, const char *namespace_,
                                const char *definition, const char *const *saga_ids, size_t count,
                                bool *ret, struct err *err);

/* --- dead letters again --------------------------------------------------------------------- */

struct store_ingest_letter { /* contents owned */
    struct uuid id;
    int32_t partition;
    int64_t offset, time_ms;
    uint32_t crc;
    bool has_key, has_value;
    struct bytes key, value, headers;
};
void store_ingest_letters_done(struct store_ingest_letter *letters, size_t count); /* and frees */
/* Those of this rule that are to be replayed (also of a topic that it had before), oldest first, at
 * most `limit`. The array is owned. Another node may have them, too: only one replays them. */
MUST_USE int store_ingest_letters(struct store_ingest *ingest, size_t limit,
                                  struct store_ingest_letter **ret, size_t *ret_count,
                                  struct err *err);
/* batch->records[i] is what became of letters[i]; parts are none. DEAD_LETTER: the letter is OPEN
 * again, with "REASON: message" as replay_error, as is one that is passed over: give it an action
 * DEAD_LETTER with reason and message that say so. STARTED and DUPLICATE: REPLAYED; MISMATCH:
 * REPLAYED or (mismatch_is_dead_letter) OPEN. No counter of a cursor changes. */
MUST_USE int store_ingest_replay(struct store_ingest *ingest,
                                 const struct store_ingest_letter *letters,
                                 struct store_ingest_batch *batch, struct err *err);

/* --- requests ------------------------------------------------------------------------------- */

enum store_ingest_request_kind { INGEST_CHECK, INGEST_TAKEOVER };
struct store_ingest_request { /* texts owned */
    struct uuid id;
    enum store_ingest_request_kind kind;
    int64_t last; /* CHECK: so many records of the topic */
    char *group;  /* TAKEOVER */
    char *actor, *reason;
};
void store_ingest_request_done(struct store_ingest_request *request);
/* The oldest CHECK or TAKEOVER of the rule that nobody has, or whose node has been silent; it is
 * this node's for lease_ms, then for as long as it says progress. ERR_NOT_FOUND: there is none. */
MUST_USE int store_ingest_take(struct store_ingest *ingest, int64_t lease_ms,
                               struct store_ingest_request *ret, struct err *err);
/* ERR_CONFLICT: it is another's by now; give it up. */
MUST_USE int store_ingest_progress(struct store_ingest *ingest, const struct uuid *id,
                                   int64_t progress, int64_t total, int64_t lease_ms,
                                   struct err *err);
/* `result` is JSON (store/reader_kafka.h says what is in it). failure: NULL, or why it failed
 * ("GROUP_HAS_MEMBERS: ..."). ERR_CONFLICT: it is another's by now. */
MUST_USE int store_ingest_finish(struct store_ingest *ingest, const struct uuid *id,
                                 const char *result, const struct err *failure, struct err *err);

struct store_ingest_takeover {
    int32_t partition;
    int64_t next_offset;   /* as the group committed it, or where the rule's start puts it */
    int64_t suspect_until; /* the end of its log; 0: nobody has worked on it */
};
/* All of a TAKEOVER in one transaction: cursors are made or moved (what was stopped runs), the rule
 * is wanted, the request is done. ERR_PRECONDITION RULE_RUNS: the rule was not stopped.
 * ERR_CONFLICT: the request is another's by now. */
MUST_USE int store_ingest_takeover(struct store_ingest *ingest, const struct uuid *id,
                                   const struct store_ingest_takeover *parts, size_t count,
                                   const char *result, struct err *err);

#endif
