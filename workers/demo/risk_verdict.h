/* What the risk service does with one request: checks it, decides effect, answer and delay, and
 * writes the effect to the service's own log before any answer leaves. It knows nothing of gRPC.
 * One thread. */
#ifndef DEMO_RISK_VERDICT_H
#define DEMO_RISK_VERDICT_H

#include "base/rng.h"
#include "third_party.h"

enum risk_method { RISK_NOTIFY, RISK_WITHDRAW, RISK_METHOD_COUNT };

struct risk_desk {
    int log_fd; /* opened for appending; owned by the caller */
    struct rng rng;
    uint64_t references; /* given out so far */
};

/* Effects in the log: NOTIFIED and WITHDRAWN, each with its key and settlement id.
 * On success *reply holds the packed answer. ERR_INVALID: the request is wrong and nothing took
 * effect; anything else: the log could not be written. */
MUST_USE int risk_decide(struct risk_desk *desk, enum risk_method method, const uint8_t *request,
                         size_t size, struct third_party_answer *ret_answer, struct buf *reply,
                         struct err *err);

#endif
