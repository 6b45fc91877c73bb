/* The journal: the one truth about a saga. An entry is appended at a position, and a lease entry is
 * given an outcome once; nothing else ever changes (a live lease may be extended). Plain data. */
#ifndef CORE_JOURNAL_H
#define CORE_JOURNAL_H

#include "base/mem.h"
#include "base/uuid.h"
#include "core/words.h"

#include <stdint.h>

/* fence = (epoch << 40) + seq; epoch = the database's timeline - 1 when the session connected. */
enum { FENCE_EPOCH_SHIFT = 40 };
static inline int64_t fence_make(int64_t epoch, int64_t seq)
{
    return (epoch << FENCE_EPOCH_SHIFT) + seq;
}
static inline int64_t fence_seq(int64_t fence)
{
    return fence & ((INT64_C(1) << FENCE_EPOCH_SHIFT) - 1);
}

/* Times are Unix epoch milliseconds of the database's clock; 0: not set. Strings are owned, NULL
 * where they do not apply. A decision (any kind but ENTRY_LEASE) is finished when it is made:
 * finished_at_ms is its time. */
struct journal_entry {
    int64_t seq;   /* 1, 2, 3, ... without a gap */
    int64_t fence; /* LEASE; 0 for a decision */
    enum entry_kind kind;
    int16_t step; /* index in the definition; -1: the saga as a whole */
    enum operation operation;
    int32_t try_;         /* counts the leases of this operation that were not RELEASED, from 1 */
    char *worker;         /* "worker_id/instance" */
    int64_t leased_at_ms; /* LEASE; SUSPECT: since when somebody else may have worked on it */
    int64_t attempt_until_ms, lease_until_ms;
    enum outcome outcome; /* LEASE: how it ended; LATE_REPORT: what was reported */
    int64_t finished_at_ms;
    int64_t retry_at_ms;              /* not tried again before; 0: at once */
    struct bytes output;              /* owned; SIGNAL: its payload; OPTIONS: its text */
    char *error_code, *error_message; /* what a person asked for: message is the reason given */
    uint8_t reason;                   /* COMPENSATE, PENDING: enum cause; PARK: enum park_reason */
    int64_t about;                    /* LATE_REPORT: seq of the lease; RECEIVE: of the SIGNAL */
    char *actor;                      /* who asked for it; LEASE: the node that granted it */
    char *signal_id; /* SIGNAL: the sender's; its name is that of the step's wait */
    int64_t held_ms; /* LEASE: so much of the wait for it its handler was braked */
};

/* Is its reason a cause? */
static inline bool entry_has_cause(enum entry_kind kind)
{
    return kind == ENTRY_COMPENSATE || kind == ENTRY_PENDING;
}

/* Did a person ask for it? Then it is a line of the audit. */
bool entry_is_asked(const struct journal_entry *entry);

/* The saga row beside its journal. Strings owned. */
struct saga_row {
    struct uuid uid;
    char *namespace_, *definition;
    int32_t revision;
    char *saga_id;
    int32_t run;
    enum saga_state state, phase; /* phase: RUNNING or COMPENSATING while PARKED, else as state */
    bool doubt;
    enum park_reason park_reason;
    int16_t park_step; /* -1: none */
    char *park_code, *park_message;
    struct bytes input;
    char *labels; /* JSON object text; NULL: none */
    struct uuid related;
    bool has_related;
    int64_t started_at_ms, updated_at_ms, deadline_at_ms, ended_at_ms;
    int64_t start_at_ms; /* no step begins before, as it was asked for; 0: at once */
};

void journal_entry_done(struct journal_entry *entry);
void saga_row_done(struct saga_row *row);

#endif
