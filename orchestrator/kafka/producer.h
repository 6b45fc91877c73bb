/* Records to one topic, each told of when it is known to be there: librdkafka's idempotent
 * producer, which waits for brokers for as long as it takes and keeps the order within a partition.
 * Decides what an error means for a record: that it can never be taken, or that it is to be sent
 * again.
 *
 * thread: its owner's, all calls and the callback. */
#ifndef KAFKA_PRODUCER_H
#define KAFKA_PRODUCER_H

#include "base/err.h"
#include "base/mem.h"
#include "kafka/rule.h"

struct producer;

enum producer_fate {
    PRODUCER_STORED,
    PRODUCER_REFUSED, /* the topic does not take such a record */
    PRODUCER_AGAIN,   /* not stored, or nobody knows; not the record's fault */
};
/* What became of a record; err: why it was not stored. From producer_poll and producer_free. */
typedef void producer_told_fn(void *ctx, void *item, enum producer_fate fate,
                              const struct err *err);

struct producer_options { /* borrowed during producer_new, but for ctx */
    const char *brokers, *topic;
    const struct kafka_properties *properties; /* NULL: none */
    producer_told_fn *told;
    void *ctx;
};
/* ERR_INVALID: a property that librdkafka refuses, with what it says. Connects to nobody yet. */
MUST_USE int producer_new(const struct producer_options *options, struct producer **ret,
                          struct err *err);
/* At once, or within seconds where librdkafka hangs on a broker: what is on its way is told as
 * AGAIN, and what could not be told is as good as that. NULL is fine; always returns NULL. */
struct producer *producer_free(struct producer *producer);

enum { PRODUCER_HEADERS = 7 };
struct producer_header {
    const char *name, *value;
};
struct producer_record { /* copied */
    struct bytes key, value;
    int64_t timestamp_ms;
    struct producer_header headers[PRODUCER_HEADERS];
};
/* 0: `item` will be told of. ERR_LIMIT, retryable: its queue is full, later. Not retryable: this
 * record never. */
MUST_USE int producer_send(struct producer *producer, const struct producer_record *record,
                           void *item, struct err *err);
/* Tells what has become of records, waiting for it at most timeout_ms. */
void producer_poll(struct producer *producer, int timeout_ms);
/* It does nothing any more: make another one. */
bool producer_is_broken(const struct producer *producer, struct err *err);
/* What librdkafka complained of last, and nothing was stored since; NULL: nothing. */
const char *producer_problem(const struct producer *producer);

#endif
