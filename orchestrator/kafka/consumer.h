/* One member of a consumer group that reads one topic: librdkafka's consumer, with its callbacks
 * turned into events, its offsets left alone (the caller says where each partition begins), its
 * commits marked as ours. Decides nothing about records or cursors.
 *
 * thread: its owner's, all calls. librdkafka's own threads keep the membership alive meanwhile, as
 * long as consumer_poll is called within max.poll.interval.ms. */
#ifndef KAFKA_CONSUMER_H
#define KAFKA_CONSUMER_H

#include "base/err.h"
#include "kafka/rule.h"

#include <librdkafka/rdkafka.h>

struct consumer;

struct consumer_options { /* borrowed during consumer_new */
    const char *brokers, *topic, *group;
    const char *instance; /* of the static membership; NULL: no member of a group ever */
    const char *mark;     /* written beside our offsets at the group: "sagad/RULE" */
    const struct kafka_properties *common; /* NULL: none */
    const struct kafka_properties *own;    /* NULL: none; they win */
};

/* Memory for records that were fetched and not yet asked for, in one consumer, however many
 * partitions it has: what waits, and one answer of each broker. */
enum { CONSUMER_QUEUED_KIB = 16 * 1024, CONSUMER_FETCH_BYTES = 8 * 1024 * 1024 };

/* ERR_INVALID: a property that librdkafka refuses, with what it says. Connects to nobody yet. */
MUST_USE int consumer_new(const struct consumer_options *options, struct consumer **ret,
                          struct err *err);
/* Ends it without waiting for anybody: a static member does not leave its group. Returns after at
 * most timeout_ms; librdkafka may then still be at it in a thread of its own. Returns NULL. */
struct consumer *consumer_close(struct consumer *consumer, int64_t timeout_ms);
/* The same, but the group is told: others get the partitions at once. */
struct consumer *consumer_leave(struct consumer *consumer, int64_t timeout_ms);
/* For calls about the cluster (kafka/admin.h). Borrowed. */
rd_kafka_t *consumer_handle(struct consumer *consumer);

/* Joins the group. */
MUST_USE int consumer_subscribe(struct consumer *consumer, struct err *err);

enum consumer_event_kind {
    CONSUMER_NOTHING,
    CONSUMER_RECORD,
    CONSUMER_ASSIGNED, /* consumer_partitions says which: read by nobody until consumer_assign */
    CONSUMER_REVOKED,  /* all of them; what was read of them and not handled is others' now */
    CONSUMER_OUT_OF_RANGE, /* `partition` has nothing where it is to be read */
    CONSUMER_END,          /* `partition` has nothing from `offset` on, for now */
    CONSUMER_ERROR,        /* `err`; librdkafka goes on by itself */
    CONSUMER_FATAL,        /* `err`: it does nothing any more. Fenced: reason FENCED */
};
struct consumer_event {
    enum consumer_event_kind kind;
    rd_kafka_message_t *message; /* RECORD; owned: rd_kafka_message_destroy */
    int32_t partition;
    int64_t offset;
    struct err err;
};
/* The next event, waited for at most timeout_ms. */
void consumer_poll(struct consumer *consumer, int timeout_ms, struct consumer_event *ret);

/* Sorted; borrowed until the next poll. */
const int32_t *consumer_partitions(const struct consumer *consumer, size_t *ret_count);

struct consumer_position {
    int32_t partition;
    int64_t offset;
    bool is_ours; /* consumer_committed: it carries our mark */
    bool failed;  /* it could not be learnt */
};
/* Reads these partitions from there, and no others: an assigned one that is left out is not read.
 * Whatever was read before and not asked for is dropped. */
MUST_USE int consumer_assign(struct consumer *consumer, const struct consumer_position *positions,
                             size_t count, struct err *err);
/* No records come from now on, resp. come again; both may be said twice. */
void consumer_pause(struct consumer *consumer);
void consumer_resume(struct consumer *consumer);

/* What the group has committed: offset -1 where there is none. Waits at most timeout_ms. */
MUST_USE int consumer_committed(struct consumer *consumer, struct consumer_position *positions,
                                size_t count, int timeout_ms, struct err *err);
/* Commits with our mark. timeout_ms 0: in the background, best effort. */
MUST_USE int consumer_follow(struct consumer *consumer, const struct consumer_position *positions,
                             size_t count, int timeout_ms, struct err *err);
/* The end of a partition's log as the last fetch told it; -1: not known. Never waits. */
int64_t consumer_end_offset(struct consumer *consumer, int32_t partition);

#endif
