/* What the logistics service does with one request: checks it, decides effect, answer and delay,
 * and writes the effect to the service's own log before any answer leaves. It knows nothing of
 * gRPC, and time is told to it. One thread. */
#ifndef DEMO_LOGISTICS_DESK_H
#define DEMO_LOGISTICS_DESK_H

#include "base/rng.h"
#include "third_party.h"

enum logistics_method {
    LOGISTICS_CREATE,
    LOGISTICS_FIND,
    LOGISTICS_CANCEL,
    LOGISTICS_METHOD_COUNT
};

struct dossier; /* what is known of one idempotency key */

struct logistics_desk {
    int log_fd;          /* opened for appending; owned by the caller */
    int64_t remember_ms; /* how long a key that made a waybill is remembered */
    struct rng rng;
    uint64_t waybills;        /* made so far */
    struct dossier *dossiers; /* owned */
    size_t count, capacity;
};

/* Effects in the log: CREATED and CANCELLED, each with the waybill's key and its order.
 * On success *reply holds the packed answer, or the message of a failure. ERR_INVALID: the request
 * is wrong and nothing took effect; anything else: no memory, or the log could not be written. */
MUST_USE int logistics_decide(struct logistics_desk *desk, enum logistics_method method,
                              const uint8_t *request, size_t size, int64_t mono_ms,
                              struct third_party_answer *ret_answer, struct buf *reply,
                              struct err *err);
/* Late requests whose time has come take effect. */
MUST_USE int logistics_tick(struct logistics_desk *desk, int64_t mono_ms, struct err *err);
void logistics_desk_done(struct logistics_desk *desk);

#endif
