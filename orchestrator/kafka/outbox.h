/* The relay: events that were written with their transitions leave for the outbox's topic. Those of
 * each saga and of each handler in their order, one of it on its way at a time, so that what cannot
 * be published holds up its own saga or handler alone. At least once: an event is removed when the
 * topic is known to have it, and what was in between when a relay died leaves again, the same.
 *
 * Several relays, one in each process, share the shards (store/outbox.h). Without a broker, or
 * without the database, events wait in the database; here is a bounded number of them. A thread of
 * its own; nothing else waits for it. */
#ifndef KAFKA_OUTBOX_H
#define KAFKA_OUTBOX_H

#include "base/err.h"
#include "kafka/rule.h"

#include <stdint.h>

struct outbox;

struct outbox_options {          /* borrowed during outbox_start */
    const char *conninfo, *node; /* node: has joined */
    const char *brokers, *topic;
    const struct kafka_properties *properties; /* NULL: none */
};
/* Starts the thread. ERR_INVALID: a property that librdkafka refuses, a conninfo that libpq does.
 */
MUST_USE int outbox_start(const struct outbox_options *options, struct outbox **ret,
                          struct err *err);
/* Waits for what is on its way, for grace_ms at most, then ends whatever blocks; its slices are
 * free for others. NULL is fine; always returns NULL. */
struct outbox *outbox_stop(struct outbox *outbox, int64_t grace_ms);

struct outbox_counters {
    int64_t published; /* the topic has them */
    int64_t refused;   /* attempts that were answered with an error of the event's own */
    int64_t producers; /* that were made: more than one after a fatal error, or a lost slice */
};
void outbox_counters(const struct outbox *outbox, struct outbox_counters *ret); /* any thread */

#endif
