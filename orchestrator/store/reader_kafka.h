/* Kafka for people: rules and how far they are, dead letters, requests, and the decisions about
 * them, each with its line in kafka_request. On the reader's connection (store/reader.h): blocking,
 * one thread at a time. What is asked for is found by the ingest within half a second, whichever
 * node has it. Results are owned by the caller; times are Unix milliseconds, 0 for none.
 *
 * Every decision needs an actor and a reason. Done twice (an answer that got lost) it is refused as
 * what it is by then, or changes nothing. */
#ifndef STORE_READER_KAFKA_H
#define STORE_READER_KAFKA_H

#include "store/reader.h"

/* --- rules and cursors ---------------------------------------------------------------------- */

struct store_kafka_rule {
    char *rule, *topic, *group_id, *namespace_, *definition;
    bool wanted;                    /* false: stopped by a person */
    char *stopped_by, *stop_reason; /* NULL: wanted */
    int64_t stopped_at_ms;
    int64_t topic_retention_ms; /* -1: for ever, -2: not known */
    bool topic_compacted;
    int64_t key_memory_ms; /* -1: for ever */
    char *problem;         /* why it cannot run at all; NULL: it can */
    char *node;            /* that wrote this last */
    int64_t seen_at_ms;
};
struct store_kafka_cursor {
    char *rule, *topic;
    int32_t partition;
    int64_t next_offset, suspect_until;
    bool stopped;
    char *stop_reason, *stop_message; /* NULL: not stopped */
    int64_t stop_from, stop_to, stopped_at_ms;
    int64_t records, started, duplicates, mismatches, dead_letters, filtered, tombstones;
    int64_t low_offset, end_offset; /* -1: not seen yet */
    char *node, *paused_why;        /* NULL: none */
    double rate_per_s;
    int64_t seen_at_ms;
};
struct store_kafka_rules {
    struct store_kafka_rule *rules; /* by name */
    size_t rule_count;
    struct store_kafka_cursor *cursors; /* by rule, topic, partition */
    size_t cursor_count;
    int64_t now_ms; /* by the database's clock: how old seen_at is */
};
void store_kafka_rules_done(struct store_kafka_rules *rules);
/* rule NULL: all of them. ERR_NOT_FOUND with reason RULE_NOT_FOUND: no node has ever had it. */
MUST_USE int store_reader_kafka_rules(struct store_reader *reader, const char *rule,
                                      struct store_kafka_rules *ret, struct err *err);

enum store_kafka_from { KAFKA_FROM_OFFSET, KAFKA_FROM_LOW, KAFKA_FROM_END, KAFKA_FROM_CURSOR };
struct store_kafka_resume {
    const char *rule, *topic;
    int32_t partition;
    enum store_kafka_from from;
    int64_t offset; /* KAFKA_FROM_OFFSET */
    const char *actor, *reason;
};
/* A partition that is stopped, or any one of a rule that is stopped, goes on there. ERR_NOT_FOUND
 * RULE_NOT_FOUND, PARTITION_NOT_FOUND; ERR_PRECONDITION PARTITION_NOT_STOPPED, or NOT_SEEN: no node
 * has seen the log's ends yet. */
MUST_USE int store_reader_kafka_resume(struct store_reader *reader,
                                       const struct store_kafka_resume *what, int64_t *ret_offset,
                                       struct err *err);
/* The rule is wanted, or not; *ret_changed false: it was so already (nothing is written).
 * ERR_NOT_FOUND RULE_NOT_FOUND. */
MUST_USE int store_reader_kafka_want(struct store_reader *reader, const char *rule, bool run,
                                     const char *actor, const char *reason, bool *ret_changed,
                                     struct err *err);

/* --- requests ------------------------------------------------------------------------------- */

enum store_kafka_kind {
    KAFKA_KIND_CHECK,
    KAFKA_KIND_TAKEOVER,
    KAFKA_KIND_RESUME,
    KAFKA_KIND_STOP,
    KAFKA_KIND_START,
    KAFKA_KIND_DISCARD,
    KAFKA_KIND_REPLAY,
    KAFKA_KIND_COUNT
};
const char *store_kafka_kind_name(enum store_kafka_kind kind);
enum store_kafka_request_state {
    KAFKA_REQUEST_OPEN,
    KAFKA_REQUEST_TAKEN,
    KAFKA_REQUEST_DONE,
    KAFKA_REQUEST_FAILED,
    KAFKA_REQUEST_STATE_COUNT
};
const char *store_kafka_request_state_name(enum store_kafka_request_state state);

/* Results, as JSON (integers as numbers):
 *   CHECK     {"records", "good", "filtered", "not_canary", "tombstones", "duplicates": within
 * them, "known": keys that have a saga already, "missing_keys", "bad": [{"reason", "count",
 *              "partition", "offset", "message": of the first one}]}
 *   TAKEOVER  {"partitions": [{"partition", "next_offset", "suspect_until"}]}
 *   RESUME    {"next_offset"}    DISCARD, REPLAY  {"letters"}    STOP, START  {} */
struct store_kafka_request {
    struct uuid id;
    char *rule;
    enum store_kafka_kind kind;
    char *arguments; /* JSON */
    char *actor, *reason;
    int64_t requested_at_ms;
    enum store_kafka_request_state state;
    char *node; /* that does or did it; NULL: none */
    int64_t finished_at_ms;
    int64_t progress, total;
    char *result, *error; /* NULL: none (yet) */
};
void store_kafka_request_done(struct store_kafka_request *request);

/* Posts a request; `id` is the caller's (UUID v7), so that it can be asked about, and posting it
 * twice is once. ERR_NOT_FOUND RULE_NOT_FOUND; ERR_PRECONDITION RULE_RUNS: a takeover of a rule
 * that is not stopped. */
MUST_USE int store_reader_kafka_check(struct store_reader *reader, const struct uuid *id,
                                      const char *rule, int64_t last, const char *actor,
                                      const char *reason, struct err *err);
MUST_USE int store_reader_kafka_takeover(struct store_reader *reader, const struct uuid *id,
                                         const char *rule, const char *group, const char *actor,
                                         const char *reason, struct err *err);
/* ERR_NOT_FOUND REQUEST_NOT_FOUND. */
MUST_USE int store_reader_kafka_request(struct store_reader *reader, const struct uuid *id,
                                        struct store_kafka_request *ret, struct err *err);
/* Newest first, before this id (NULL: from the newest); ret has room for `limit`. rule NULL: of
 * all. */
MUST_USE int store_reader_kafka_requests(struct store_reader *reader, const char *rule,
                                         const struct uuid *before, size_t limit,
                                         struct store_kafka_request *ret, size_t *ret_count,
                                         struct err *err);

/* --- dead letters --------------------------------------------------------------------------- */

enum store_letter_state {
    LETTER_OPEN,
    LETTER_REPLAY, /* asked for */
    LETTER_REPLAYED,
    LETTER_DISCARDED,
    LETTER_STATE_COUNT
};
const char *store_letter_state_name(enum store_letter_state state);

struct store_letter {
    struct uuid id;
    char *rule, *topic;
    int32_t partition;
    int64_t offset, time_ms; /* time_ms of the record; -1: none */
    bool has_key, has_value; /* false: null */
    int64_t key_size, value_size;
    struct bytes key, value, headers; /* of store_reader_letter alone; headers: KafkaHeaders */
    char *saga_id;                    /* NULL: not known */
    char *reason, *message;
    int64_t received_at_ms;
    enum store_letter_state state;
    char *decided_by, *decision_reason; /* NULL: OPEN */
    int64_t decided_at_ms;
    bool has_saga;
    struct uuid saga_uid; /* REPLAYED */
    char *replay_error;   /* NULL: none */
};
void store_letter_done(struct store_letter *letter);

struct store_letter_filter { /* NULL, false: any */
    const char *rule, *topic;
    bool has_partition;
    int32_t partition;
    const char *reason;
    bool states[LETTER_STATE_COUNT]; /* all false: OPEN */
};
/* Newest first, before this id (NULL: from the newest), without bytes; ret has room for `limit`. */
MUST_USE int store_reader_letters(struct store_reader *reader,
                                  const struct store_letter_filter *filter,
                                  const struct uuid *before, size_t limit, struct store_letter *ret,
                                  size_t *ret_count, struct err *err);
/* With its bytes. ERR_NOT_FOUND LETTER_NOT_FOUND. */
MUST_USE int store_reader_letter(struct store_reader *reader, const struct uuid *id,
                                 struct store_letter *ret, struct err *err);

enum { LETTERS_PER_DECISION = 1000 };
struct store_letter_decision {
    bool replay; /* false: discard */
    /* These (at most LETTERS_PER_DECISION), or, without any, the oldest that the filter takes. Only
     * what is OPEN is decided on, whatever the filter's states say. */
    const struct uuid *ids;
    size_t id_count;
    struct store_letter_filter filter;
    size_t limit; /* of the filter; at most LETTERS_PER_DECISION */
    bool dry_run; /* counts, and changes nothing */
    const char *actor, *reason;
};
/* *ret_count letters; dry_run counts at most `limit` + 1. One line in kafka_request for each rule
 * that they are of. By ids: ERR_NOT_FOUND LETTER_NOT_FOUND if one is not there, ERR_PRECONDITION
 * LETTER_NOT_OPEN if one is decided: then nothing is changed. */
MUST_USE int store_reader_letters_decide(struct store_reader *reader,
                                         const struct store_letter_decision *what,
                                         size_t *ret_count, struct err *err);

/* --- one business key ----------------------------------------------------------------------- */

struct store_kafka_key { /* a row of saga_key */
    char *namespace_, *definition;
    struct uuid uid;
    int32_t run;
    bool ended;
    enum saga_state final_state;
    bool has_row;                /* false: the saga was purged */
    int64_t remembered_until_ms; /* 0: for ever, or not purged yet */
    char *archive;               /* the file that it was purged into; NULL: none */
};
enum { KAFKA_KEY_LETTERS_MAX = 20 };
struct store_kafka_where {
    struct store_kafka_key *keys;
    size_t key_count;
    struct store_letter *letters; /* newest first, without bytes, KAFKA_KEY_LETTERS_MAX at most */
    size_t letter_count;
    struct store_kafka_rules rules; /* of those definitions that were asked about */
};
void store_kafka_where_done(struct store_kafka_where *where);
/* All that is known about a key: of this definition, or (NULL) of any. Dead letters are those whose
 * record's key is these bytes or whose business key it is. Nothing known is no error. */
MUST_USE int store_reader_kafka_where(struct store_reader *reader, const char *namespace_,
                                      const char *definition, const char *saga_id,
                                      struct store_kafka_where *ret, struct err *err);

#endif
