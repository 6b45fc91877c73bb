/* A record's headers as dead letters keep them: a packed saga.v1.KafkaHeaders. Any thread. */
#ifndef KAFKA_HEADERS_H
#define KAFKA_HEADERS_H

#include "kafka/record.h"

/* Owned; size 0: the record has none. */
MUST_USE int headers_pack(const struct kafka_record *record, struct bytes *ret, struct err *err);

struct headers { /* unpacked: one block, owned */
    struct kafka_header *items;
    size_t count;
    void *message; /* what they are borrowed from */
};
/* ERR_INTERNAL: they are none of ours. */
MUST_USE int headers_unpack(const struct bytes *packed, struct headers *ret, struct err *err);
void headers_done(struct headers *headers);

#endif
