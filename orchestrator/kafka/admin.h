/* Questions to a Kafka cluster that are not about reading: partitions, settings and log ends of a
 * topic; members and offsets of groups. Each call waits for its answer, at most timeout_ms.
 * Decides nothing. Any thread, on a handle of whichever kind. */
#ifndef KAFKA_ADMIN_H
#define KAFKA_ADMIN_H

#include "kafka/consumer.h"

#include <stdatomic.h>

enum { ADMIN_PARTITIONS_MAX = 100000 };

/* ERR_NOT_FOUND, retryable: there is no such topic. */
MUST_USE int admin_partition_count(rd_kafka_t *handle, const char *topic, int timeout_ms,
                                   int32_t *ret, struct err *err);

struct admin_topic {
    int64_t retention_ms;    /* -1: for ever */
    int64_t segment_ms;      /* a record goes with the last one that came so long after it */
    bool is_compacted;       /* the last record of a key stays for ever */
    bool is_bounded_by_size; /* records may go before their time */
};
MUST_USE int admin_topic_settings(rd_kafka_t *handle, const char *topic, int timeout_ms,
                                  struct admin_topic *ret, struct err *err);

enum { ADMIN_LOW = -2, ADMIN_END = -1 };
/* Fills the offset of each position: the first record at `time_ms` (Unix epoch) or later (the end
 * where there is none), or ADMIN_LOW: the first there is, ADMIN_END: behind the last. */
MUST_USE int admin_offsets(rd_kafka_t *handle, const char *topic, int64_t time_ms, int timeout_ms,
                           struct consumer_position *positions, size_t count, struct err *err);

/* How many are in the group now; "" in ret_member, or who one of them is ("client@host"). */
MUST_USE int admin_group_members(rd_kafka_t *handle, const char *group, int timeout_ms,
                                 size_t *ret_count, char *ret_member, size_t size, struct err *err);
/* Offset -1 where the group has none. */
MUST_USE int admin_group_offsets(rd_kafka_t *handle, const char *group, const char *topic,
                                 int timeout_ms, struct consumer_position *positions, size_t count,
                                 struct err *err);
struct admin_limits {
    int call_ms;             /* of the first group's offsets, and of the list of all groups */
    int total_ms;            /* of all */
    const atomic_bool *ends; /* borrowed; once it is true nothing is waited for; NULL: never */
};
/* A group that has offsets on the topic, `first` before any other; "" in ret: none has. All groups
 * of the cluster are asked, many at a time. ERR_UNAVAILABLE, reason GROUPS_UNKNOWN: not all have
 * told before total_ms was over; how many, and of how many, is said. */
MUST_USE int admin_group_of_topic(rd_kafka_t *handle, const char *topic, const char *first,
                                  int32_t partition_count, const struct admin_limits *limits,
                                  char *ret, size_t size, struct err *err);

#endif
