/* One record of a topic, seen by its rule: the start of a saga, or why it is none. Bytes of others
 * become data of ours here. Decides nothing about what was started before (store/ingest.h).
 * Pure: no I/O, no clock, nothing of librdkafka. Any thread. */
#ifndef KAFKA_RECORD_H
#define KAFKA_RECORD_H

#include "base/mem.h"
#include "core/definition.h"
#include "kafka/rule.h"

/* Null and empty are two things, for keys, values and headers alike. */
struct kafka_bytes {
    const uint8_t *data; /* borrowed */
    size_t size;
    bool is_there; /* false: null */
};

struct kafka_header {
    const char *name; /* borrowed; any bytes but NUL */
    struct kafka_bytes value;
};

struct kafka_record {
    const char *topic;
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms; /* -1: none */
    struct kafka_bytes key, value;
    const struct kafka_header *headers; /* in their order; of those with one name the last counts */
    size_t header_count;
};

enum kafka_outcome {
    KAFKA_RECORD_START,
    KAFKA_RECORD_FILTERED,          /* a filter does not hold */
    KAFKA_RECORD_NOT_CANARY,        /* its key is not among those that the canary takes */
    KAFKA_RECORD_TOMBSTONE_IGNORED, /* a null value, where the rule says so */
    KAFKA_RECORD_DEAD,              /* for dead_letter, with reason and message */
    KAFKA_OUTCOME_COUNT
};

/* Why a record is dead. The words are stable: they stand in dead_letter and on screens. MISMATCH is
 * said by whoever finds it: the key started a saga with another input. */
enum kafka_reason {
    KAFKA_REASON_NONE,
    KAFKA_REASON_KEY_MISSING,    /* null */
    KAFKA_REASON_KEY_INVALID,    /* empty, too long, not UTF-8, control characters */
    KAFKA_REASON_KEY_MISMATCH,   /* the definition makes another key of the input */
    KAFKA_REASON_HEADER_MISSING, /* the one that holds the key */
    KAFKA_REASON_VALUE_NULL,     /* a tombstone */
    KAFKA_REASON_VALUE_EMPTY,    /* where the type or the key needs more */
    KAFKA_REASON_VALUE_TOO_LARGE,
    KAFKA_REASON_VALUE_UNDECODABLE, /* no JSON, no protobuf */
    KAFKA_REASON_TYPE_MISMATCH,     /* a field is not what the definition or a filter needs */
    KAFKA_REASON_TEMPLATE,          /* key or label cannot be made of the value */
    KAFKA_REASON_MISMATCH,
    KAFKA_REASON_COUNT
};
const char *kafka_reason_name(enum kafka_reason reason); /* "KEY_MISSING"; NONE: "" */

struct kafka_verdict {
    enum kafka_outcome outcome;
    char *saga_id; /* owned; START, and DEAD where the key could be read; else NULL */
    /* START */
    struct bytes input; /* owned */
    char *labels;       /* owned; JSON, keys sorted; NULL: none */
    /* DEAD */
    enum kafka_reason reason;
    char message[320]; /* UTF-8 without control characters; with the path of the field */
};
void kafka_verdict_done(struct kafka_verdict *verdict);

/* The definition is the revision for new sagas, with its types. 0 whatever the record is; an error
 * is none of the record's: ERR_NOMEM, ERR_INTERNAL, or what kafka_rule_check says of the two. The
 * caller frees what 0 gave (kafka_verdict_done). An input has payload_bytes_max bytes at most. */
MUST_USE int kafka_record_read(const struct kafka_rule *rule, const struct definition *definition,
                               size_t payload_bytes_max, const struct kafka_record *record,
                               struct kafka_verdict *ret, struct err *err);

/* CRC-32 as zlib, gzip and Python's zlib.crc32 have it. Start with 0; go on with what it returned.
 */
uint32_t kafka_crc32(uint32_t crc, const void *data, size_t size);
/* Is the key among those that a canary of so many percent takes: crc32(key) % 100 < canary. */
bool kafka_canary_takes(unsigned canary, const char *key, size_t size);
/* The record's fingerprint, by which a topic that was made anew is noticed: CRC-32 of one byte that
 * says which of the two are there, the key's size (8 bytes, big-endian), the key and the value. */
uint32_t kafka_record_crc(const struct kafka_bytes *key, const struct kafka_bytes *value);

#endif
