/* The driver's talk with sagad: starts a story's sagas in batches (of their
 * inputs: the definition makes the keys), and sees where they stand. It
 * repeats what was not answered (the business key makes that harmless), and nothing else. One
 * thread. */
#ifndef DEMO_SAGAS_H
#define DEMO_SAGAS_H

#include "ctl/client.h"
#include "story.h"

#include <saga/v1/saga.pb-c.h>

enum { SAGAS_BATCH_MAX = 50, SAGAS_STEP_SIZE = 65 };

struct saga_seen { /* of one key */
    int sagas;     /* 0: there is none */
    Saga__V1__SagaState state, phase;
    Saga__V1__ParkReason park_reason;
    char
        park_step[SAGAS_STEP_SIZE]; /* by sagas_look_at_parked; "" if no single step is the cause */
};

struct sagas {
    const struct story *story;
    int count;              /* of keys; at least 1 */
    struct saga_seen *seen; /* owned; [1] to [count] */
    int64_t strangers;      /* sagas of keys that nobody started */
};

MUST_USE int sagas_create(const struct story *story, int count, struct sagas *ret, struct err *err);
void sagas_done(struct sagas *sagas);

/* Starts the keys `numbers`; started[i] becomes true for each one that is acknowledged (or was
 * there already). Items that sagad could not take now stay false: call again. ERR_UNAVAILABLE: the
 * call was not answered; the same, call again. Any other error: the saga cannot be started. */
MUST_USE int sagas_start(struct client *client, const struct sagas *sagas, const int *numbers,
                         size_t amount, bool *started, struct err *err);
/* Fills `seen` and `strangers` anew. */
MUST_USE int sagas_look(struct client *client, struct sagas *sagas, struct err *err);
/* After sagas_look: at which step the parked ones stand, which lists do not tell. */
MUST_USE int sagas_look_at_parked(struct client *client, struct sagas *sagas, struct err *err);
/* The whole journal of one saga; the caller frees it. ERR_LIMIT: it has more than a page. */
MUST_USE int sagas_journal(struct client *client, const struct sagas *sagas, int number,
                           Saga__V1__ListJournalResponse **ret, struct err *err);
/* One step of one saga: where it stands, and its tries so far. */
struct saga_step {
    Saga__V1__StepState state;
    int tries;
};
MUST_USE int sagas_step(struct client *client, const struct sagas *sagas, int number,
                        const char *step, struct saga_step *ret, struct err *err);

#endif
