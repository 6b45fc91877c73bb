/* What may be claimed about a call to the risk service: the words of caller.h, and the verdicts of
 * the service itself. It never repeats a call. Any thread. */
#ifndef DEMO_RISK_CLIENT_H
#define DEMO_RISK_CLIENT_H

#include "caller.h"

#include <demo/risk.pb-c.h>

enum risk_result {
    RISK_ACCEPTED,       /* it took effect */
    RISK_REFUSED,        /* a business no: no effect */
    RISK_ALREADY_EXISTS, /* it is there already; `ours` says whether under our key */
    RISK_TRY_LATER,      /* the service says: no effect now, ask again */
    RISK_INVALID,  /* the service could not read the request: no effect, no use in repeating */
    RISK_NOT_SENT, /* no connection: nothing left this process */
    RISK_UNKNOWN,  /* it may have taken effect */
};

struct risk_notification {
    const char *idempotency_key, *settlement_id;
    int account;
    int64_t amount_cents;
    Demo__Risk__V1__Behaviour behaviour;
};

struct risk_outcome {
    enum risk_result result;
    bool ours;
    char reference[64]; /* the service's number of the notification; "" if none */
    char code[32];      /* "DEADLINE_EXCEEDED", "REFUSED", ... */
    char message[256];
};

/* RISK_NOT_SENT at once when there is no connection. */
struct risk_outcome risk_client_notify(struct caller *risk,
                                       const struct risk_notification *notification,
                                       int64_t until_ms);
/* RISK_ACCEPTED: nothing of this settlement is notified any more. */
struct risk_outcome risk_client_withdraw(struct caller *risk, const char *idempotency_key,
                                         const char *settlement_id, int64_t until_ms);

#endif
