/* Calls to the risk service, one blocking call at a time for each thread. What it must get right is
 * the answer to "did anything leave?": only a failure from before the request was sent is NOT_SENT;
 * after that, silence and broken connections are UNKNOWN. It never repeats a call. Any thread; one
 * client serves many. */
#ifndef DEMO_RISK_CLIENT_H
#define DEMO_RISK_CLIENT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct risk_client;

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
    const char *behaviour; /* "NORMAL", ...: an unknown name is RISK_INVALID */
};

struct risk_outcome {
    enum risk_result result;
    bool ours;
    char reference[64]; /* the service's number of the notification; "" if none */
    char code[32];      /* "DEADLINE_EXCEEDED", "REFUSED", ... */
    char message[256];
};

/* Does not connect yet. */
MUST_USE int risk_client_create(const char *address, struct risk_client **ret, struct err *err);
/* Waits until there is a connection. A caller does this before its last look at whether the call is
 * still its to make, so that nothing slow stands between the look and the call. */
MUST_USE bool risk_client_connect(struct risk_client *client, int64_t timeout_ms);
/* RISK_NOT_SENT at once when there is no connection. */
struct risk_outcome risk_client_notify(struct risk_client *client,
                                       const struct risk_notification *notification,
                                       int64_t timeout_ms);
/* RISK_ACCEPTED: nothing of this settlement is notified any more. */
struct risk_outcome risk_client_withdraw(struct risk_client *client, const char *idempotency_key,
                                         const char *settlement_id, int64_t timeout_ms);
struct risk_client *risk_client_free(struct risk_client *client); /* NULL is fine */

#endif
