/* What a relay of the outbox does in the database: it has slices of the shards, reads the events in
 * them, and removes what the topic has. On a connection of its own (store/session.h says what a
 * call may answer). Never: Kafka, or what an event says to others.
 *
 * An event is read together with what it tells of, which does not change any more: read again it is
 * the same. thread: one at a time. */
#ifndef STORE_OUTBOX_H
#define STORE_OUTBOX_H

#include "core/handler.h"
#include "core/journal.h"
#include "store/store.h"

enum { OUTBOX_SLICES = 16 }; /* of 16 shards each */

struct store_outbox;

struct store_outbox_options {    /* borrowed until store_outbox_new has returned */
    const char *conninfo, *node; /* node: has joined under this name, the only one that has it */
    struct uuid instance;        /* of this relay */
    int wake_fd;                 /* readable: end what blocks; -1: none */
};
/* Does not connect yet. ERR_INVALID: a conninfo that libpq cannot read. */
MUST_USE int store_outbox_new(const struct store_outbox_options *options, struct store_outbox **ret,
                              struct err *err);
struct store_outbox *store_outbox_free(struct store_outbox *outbox);

/* --- slices ----------------------------------------------------------------------------------- */

struct store_outbox_claim {
    int64_t ttl_ms; /* the slices are this relay's for so long, by the database's clock */
    uint16_t give;  /* bit n for slice n: nothing of it is on its way, others may have it */
    int64_t published, refused; /* for people: since this process began */
    const char *problem;        /* why nothing is published; NULL: it is */
};
/* Says that this relay lives, keeps its slices, takes free ones up to its share of all.
 * *ret_slices: what it has now; what another relay took meanwhile is not among it. *ret_share: how
 * many it should have; it gives away what is more. */
MUST_USE int store_outbox_claim(struct store_outbox *outbox, const struct store_outbox_claim *claim,
                                uint16_t *ret_slices, int *ret_share, struct err *err);
/* At the end: its slices are free at once. */
MUST_USE int store_outbox_leave(struct store_outbox *outbox, struct err *err);

/* --- events ----------------------------------------------------------------------------------- */

enum store_event_part {
    STORE_EVENT_START,
    STORE_EVENT_ENTRY,
    STORE_EVENT_END,
    STORE_EVENT_HANDLER,
    STORE_EVENT_PART_COUNT
};

struct store_event_id {
    struct uuid uid; /* of the saga; of a HANDLER made of its name */
    int64_t seq;     /* of the entry; of a HANDLER its version */
    enum store_event_part part;
    int32_t epoch; /* of the database when it was written, as of fences (core/journal.h) */
};
struct store_handler_event { /* texts owned; what was done, by whom, and how it left the handler */
    char *handler, *actor, *reason;
    enum handler_event kind;
    enum handler_hold hold;
    int64_t release_rate_milli, rate_milli; /* 0: none */
    int32_t cap;                            /* 0: none */
    bool has_waiting;
    int64_t waiting;
};
struct store_event { /* texts owned */
    struct store_event_id id;
    int64_t time_ms; /* when it happened */
    bool due;        /* false: it was refused, and its back-off is not over */
    char *fault;     /* why nothing can be said of it (a corrupt row, no saga); NULL: what is of its
                      * part below */
    struct saga_row saga;       /* who it is: namespace, definition, revision, saga_id, run, labels,
                                 * related, start and, of an END, state */
    struct journal_entry entry; /* of an ENTRY: without its output */
    char *step;                 /* the name of the entry's; NULL: none */
    struct store_handler_event handler; /* of a HANDLER: all that it has */
};
void store_event_done(struct store_event *event);

struct store_outbox_cursor { /* of one slice: how far it was read; zero: from its start */
    bool begun;
    bool passed; /* its end was seen since the last round began */
    struct uuid after;
};
/* The first event of each saga and each handler in these slices, behind their cursors, at most
 * limit together (at least OUTBOX_SLICES). The cursors go on; that of a slice that is at its end
 * starts again at once, so that a long one holds up no other. *ret_more: the round is not over, for
 * the end of some slice was not seen in it yet. ret has room for limit. */
MUST_USE int store_outbox_page(struct store_outbox *outbox, uint16_t slices, size_t limit,
                               struct store_outbox_cursor cursors[OUTBOX_SLICES],
                               struct store_event *ret, size_t *ret_count, bool *ret_more,
                               struct err *err);
/* The topic has them: the next events of their sagas and handlers may go. */
MUST_USE int store_outbox_published(struct store_outbox *outbox, const struct store_event_id *ids,
                                    size_t count, struct err *err);
/* It cannot be published as it is. It waits (1 s, doubled up to 5 min), and the later
 * events of its saga or handler with it. */
MUST_USE int store_outbox_refused(struct store_outbox *outbox, const struct store_event_id *id,
                                  const char *why, struct err *err);

#endif
