/* What the files of KafkaService share. Everything is answered from the database, on the reader's
 * thread; strings of messages borrow from what the store gave. */
#ifndef RPC_SERVICE_KAFKA_H
#define RPC_SERVICE_KAFKA_H

#include "rpc/queries.h"
#include "rpc/request.h"
#include "store/reader_kafka.h"
#include "store/reader_outbox.h"

#include <saga/v1/kafka.pb-c.h>

enum { KAFKA_NAME_BYTES_MAX = 255 }; /* of a rule, a topic, a group */

/* "" for what the store does not have. */
static inline char *kafka_text(const char *text)
{
    return reply_text(text ? text : "");
}

/* NULL for 0, and when the arena is full (its `oom` tells). */
Google__Protobuf__Timestamp *kafka_time(struct arena *arena, int64_t ms);

/* Who decides and why; both are required. */
MUST_USE int kafka_check_words(const char *actor, const char *reason, struct err *err);
MUST_USE int kafka_check_rule(const char *rule, struct err *err);
/* The id that a page goes on before; *ret_has false for an absent token. */
MUST_USE int kafka_page_read(const char *token, enum page_kind kind,
                             const struct page_filter *filter, bool *ret_has, struct uuid *ret_id,
                             struct err *err);

/* -1 when the arena is full. */
MUST_USE int kafka_fill_rules(struct arena *arena, const struct store_kafka_rules *stored,
                              bool with_partitions, Saga__V1__KafkaRule ***ret, size_t *ret_count);
MUST_USE int kafka_fill_outbox(struct arena *arena, const struct store_outbox_status *stored,
                               Saga__V1__Outbox **ret);
MUST_USE int kafka_fill_letters(struct arena *arena, const struct store_letter *letters,
                                size_t count, Saga__V1__DeadLetter ***ret);

#endif
