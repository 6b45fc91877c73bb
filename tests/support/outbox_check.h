/* What is on the outbox's topic beside what is in the journal, and what became of handlers. Fails
 * the running test with what is wrong. For definitions that publish TRANSITIONS, and handlers that
 * are changed while there is a relay. thread: the test thread only. */
#ifndef SUPPORT_OUTBOX_CHECK_H
#define SUPPORT_OUTBOX_CHECK_H

#include "support/kafka.h"

#include <libpq-fe.h>

/* conn: sagad's database; its temporary table `t` (uid, seq, part, at, partition, kind, value) is
 * then all that the topic has, and is what the others look at. Each record is looked at on the way:
 * key, id, value belong together. Returns how many there are. */
int64_t outbox_check_read(struct test_kafka *kafka, const char *topic, PGconn *conn);
/* Published is what was committed, no more and no less; in each saga the start comes first, the end
 * last, the rest in the order in which it happened, all in one partition, as are a handler's; what
 * comes again is the same. */
void outbox_check_all(PGconn *conn);
/* Records that came before already. */
int64_t outbox_check_repeated(PGconn *conn);
/* Of any query: its one number. */
int64_t outbox_check_count(PGconn *conn, const char *sql);
/* The value of a header; fails the test if there is none. Borrowed until the eighth next call. */
const char *outbox_check_header(const struct test_kafka_record *record, const char *name);

#endif
