/* What the outbox's relays say of themselves, the events that the topic refuses, and what people
 * decide about these. thread: the reader's. */
#ifndef STORE_READER_OUTBOX_H
#define STORE_READER_OUTBOX_H

#include "store/outbox.h"
#include "store/reader.h"

enum { OUTBOX_RELAYS_MAX = 100, OUTBOX_REFUSED_MAX = 100 };

struct store_outbox_relay { /* one that lives */
    char *node;
    int64_t published, refused; /* since its process began */
    char *problem;              /* why it publishes nothing; NULL: it does */
};
struct store_outbox_refused {
    struct store_event_id id;
    char *namespace_, *definition, *saga_id; /* NULL: its saga is gone, or it is of a handler */
    char *handler;                           /* NULL: it is of a saga */
    int64_t waits_since_ms;                  /* it happened then */
    int64_t refused_at_ms;                   /* the last time */
    int32_t refusals;
    char *error;
};
struct store_outbox_status {
    struct store_outbox_relay *relays;
    size_t relay_count;                   /* OUTBOX_RELAYS_MAX at most */
    struct store_outbox_refused *refused; /* the oldest first */
    size_t refused_count;                 /* OUTBOX_REFUSED_MAX at most */
    bool more_refused;
    bool waits; /* there are events, refused or not */
};
void store_outbox_status_done(struct store_outbox_status *status);
/* Everything in *ret is owned by the caller (store_outbox_status_done). */
MUST_USE int store_reader_outbox(struct store_reader *reader, struct store_outbox_status *ret,
                                 struct err *err);

struct store_outbox_decision {
    struct store_event_id id;
    bool discard; /* false: it is sent again at once */
    const char *actor, *reason;
};
/* Kept in kafka_request, rule "(outbox)". What is discarded is gone, and the later events
 * of its saga or handler follow. ERR_NOT_FOUND EVENT_NOT_FOUND; ERR_PRECONDITION EVENT_NOT_REFUSED:
 * it waits for its turn.
 */
MUST_USE int store_reader_outbox_decide(struct store_reader *reader,
                                        const struct store_outbox_decision *what, struct err *err);

#endif
