/* A saga as the API shows it: from the core's copy, or from its row alone. Messages are made in the
 * arena and borrow text and payloads from what they were made of. Any thread that owns the copy. */
#ifndef WIRE_SAGA_CODEC_H
#define WIRE_SAGA_CODEC_H

#include "core/view.h"
#include "wire/arena.h"

#include <saga/v1/saga.pb-c.h>

/* BASIC or FULL view. `waiting.workers_connected` stays 0: only the engine knows it. */
MUST_USE int saga_to_message(struct arena *arena, const struct saga *saga, bool full,
                             int64_t now_ms, Saga__V1__Saga **ret, struct err *err);
/* BASIC view without `cause`, which is in the journal. park_step: its name, borrowed; NULL: none.
 */
MUST_USE int saga_row_to_message(struct arena *arena, const struct saga_row *row, char *park_step,
                                 Saga__V1__Saga **ret, struct err *err);
/* The definition gives the step's name and the signal's; NULL: neither is filled in. */
MUST_USE int journal_entry_to_message(struct arena *arena, const struct definition *definition,
                                      const struct journal_entry *entry,
                                      Saga__V1__JournalEntry **ret, struct err *err);

/* Thousandths of a task a second, as people would say it. Fills an initialised message. */
void rate_from_milli(int64_t milli, Saga__V1__Rate *ret);

Saga__V1__SagaState saga_state_to_message(enum saga_state state);
Saga__V1__OperationKind operation_to_message(enum operation operation);
/* False for UNSPECIFIED and unknown numbers. */
MUST_USE bool saga_state_from_message(Saga__V1__SagaState message, enum saga_state *ret);
/* False for what a worker may not report. */
MUST_USE bool reported_outcome_from_message(Saga__V1__Outcome message, enum outcome *ret);

#endif
