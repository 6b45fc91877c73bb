/* The driver's talk with sagad: starts settlements in batches, and sees where they stand. It
 * repeats what was not answered (the business key makes that harmless), and nothing else. One
 * thread. */
#ifndef DEMO_SAGAS_H
#define DEMO_SAGAS_H

#include "books.h"
#include "ctl/client.h"

enum { SAGAS_BATCH_MAX = 50 };

/* Starts the settlements `numbers` of a run of `count`; started[i] becomes true for each one that
 * is acknowledged (or was there already). Items that sagad could not take now stay false: call
 * again. ERR_UNAVAILABLE: the call was not answered; the same, call again. Any other error: the
 * settlement cannot be started. */
MUST_USE int sagas_start(struct client *client, int count, const int *numbers, size_t amount,
                         bool *started, struct err *err);
/* Fills records[].saga of the books anew; counts sagas of nobody as strangers. */
MUST_USE int sagas_look(struct client *client, struct books *books, struct err *err);
/* After sagas_look: at which step the parked ones stand, which lists do not tell. */
MUST_USE int sagas_look_at_parked(struct client *client, struct books *books, struct err *err);
/* Tries of the step notify_risk so far. */
MUST_USE int sagas_risk_tries(struct client *client, int number, int *ret_tries, struct err *err);

#endif
