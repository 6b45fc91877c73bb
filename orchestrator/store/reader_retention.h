/* What people ask about retention, of the reader (store/reader.h). */
#ifndef STORE_READER_RETENTION_H
#define STORE_READER_RETENTION_H

#include "store/reader.h"
#include "store/retention.h"

enum {
    RETENTION_COUNT_MAX = 10000, /* sagas are counted so far, not further */
    RETENTION_ROWS_MAX = 1000,   /* nodes, rules */
};

struct store_retention_topic { /* of a rule of Kafka */
    char *rule, *topic;
    int64_t retention_ms; /* how long the broker keeps records; -1: for ever, -2: not known yet */
    bool compacted;
};

/* Counts of sagas, each up to RETENTION_COUNT_MAX. "Old" is older than the shortest retention of a
 * node that lives; nothing is where none purges. */
struct store_retention_status {
    struct store_retention_node *nodes; /* by name */
    size_t node_count;
    struct store_retention_topic *topics; /* by rule */
    size_t topic_count;
    int64_t now_ms;    /* of the database */
    int64_t finished;  /* that have ended */
    int64_t purgeable; /* old, and nothing keeps them */
    int64_t doubtful;  /* old and ended, kept because a person has yet to look */
    int64_t parked;    /* parked for so long, kept */
};
void store_retention_status_done(struct store_retention_status *status);
MUST_USE int store_reader_retention(struct store_reader *reader, struct store_retention_status *ret,
                                    struct err *err);

#endif
