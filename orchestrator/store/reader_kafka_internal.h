/* What the reader's files about Kafka share. Not for others. */
#ifndef STORE_READER_KAFKA_INTERNAL_H
#define STORE_READER_KAFKA_INTERNAL_H

#include "store/connect.h"
#include "store/reader_internal.h"
#include "store/reader_kafka.h"

#include <string.h>

/* A keyset begins behind the last id that there can be. */
static inline void kafka_before(const struct uuid *before, struct uuid *ret)
{
    memset(ret->bytes, 0xff, sizeof ret->bytes);
    if (before)
        *ret = *before;
}

/* The index of a word; a fault of the columns if it is none of these. */
size_t kafka_word(struct columns *columns, const char *const *names, size_t count);
/* Runs what was filled. */
MUST_USE int kafka_run(struct store_reader *reader, struct err *err);
/* Rules with their cursors, of this rule, namespace and definition (NULL: any), in the caller's
 * transaction; *rules (empty before) is to be freed also after a failure. */
MUST_USE int kafka_rules_read(struct store_reader *reader, const char *rule, const char *namespace_,
                              const char *definition, struct store_kafka_rules *rules,
                              struct err *err);

struct kafka_audit { /* a line of a decision that is done */
    enum store_kafka_kind kind;
    const char *rule, *actor, *reason;
    const char *topic; /* NULL: none */
    int32_t partition; /* RESUME, and so the next two */
    int64_t cursor, next_offset;
    const char *letters_reason; /* NULL: none */
    int64_t letters;            /* 0: none */
};
MUST_USE int kafka_audit(struct store_reader *reader, const struct kafka_audit *audit,
                         struct err *err);

#endif
