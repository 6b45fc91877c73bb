/* Rules of Kafka, their partitions, and what a request answered, as text. Ages go by view->now_ms,
 * which is the database's clock. Prints nothing. Any thread. */
#ifndef CTL_KAFKA_TEXT_H
#define CTL_KAFKA_TEXT_H

#include "ctl/where_text.h"

#include <saga/v1/kafka.pb-c.h>

/* One rule, its partitions in a table, and what to do about those that are stopped. */
void kafka_write_rule(const Saga__V1__KafkaRule *rule, const struct where_view *view,
                      struct buf *out);
/* One line a rule. */
void kafka_write_rules(Saga__V1__KafkaRule *const *rules, size_t count,
                       const struct where_view *view, struct buf *out);
/* The way out: what its relays say, the events that are refused and what to do about them. "" when
 * there is nothing to tell. outbox_text.c */
void kafka_write_outbox(const Saga__V1__Outbox *outbox, const struct where_view *view,
                        struct buf *out);
/* What holds up records that are there already: the rule, or each partition that is stopped or
 * behind. "" when nothing does. */
void kafka_write_behind(const Saga__V1__KafkaRule *rule, const struct where_view *view,
                        struct buf *out);
/* "GAP 100..219: text" */
void kafka_write_stop(const Saga__V1__KafkaPartition *partition, struct buf *out);
void kafka_write_check(const Saga__V1__KafkaRequest *request, const struct where_view *view,
                       struct buf *out);
void kafka_write_take_over(const Saga__V1__KafkaRequest *request, const struct where_view *view,
                           struct buf *out);
/* What a request is about and what has come of it, in one line. */
void kafka_write_request(const Saga__V1__KafkaRequest *request, struct buf *out);

#endif
