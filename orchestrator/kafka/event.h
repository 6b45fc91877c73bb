/* An event as others see it: a record of the outbox's topic (proto/saga/v1/event.proto). The same
 * event is the same record, whenever it is made. Any thread. */
#ifndef KAFKA_EVENT_H
#define KAFKA_EVENT_H

#include "kafka/producer.h"
#include "store/outbox.h"
#include "wire/arena.h"

/* Made in the arena, as long as that lives, and as the event, whose texts it borrows. event->fault
 * is NULL. ERR_INTERNAL: labels that are not what we store. */
MUST_USE int event_record(struct arena *arena, const struct store_event *event,
                          struct producer_record *ret, struct err *err);

enum { EVENT_ID_SIZE = UUID_TEXT_SIZE + 32 };
/* "UID/POSITION/PART"; the position is made of epoch and seq as a fence is. */
void event_id(const struct store_event_id *id, char ret[EVENT_ID_SIZE]);

#endif
