/* What may be claimed about a call to the logistics service: the words of caller.h, the verdicts of
 * the service itself, and what its failure "duplicate" means. It never repeats a call. Any thread.
 */
#ifndef DEMO_LOGISTICS_CLIENT_H
#define DEMO_LOGISTICS_CLIENT_H

#include "caller.h"

#include <demo/logistics.pb-c.h>

enum logistics_result {
    LOGISTICS_DONE,      /* it took effect; of a search: it is there */
    LOGISTICS_NOT_FOUND, /* of a search: the books have nothing under this key, now */
    LOGISTICS_REFUSED,   /* a business no: no effect */
    LOGISTICS_EXISTS,    /* it is there already; `ours` says whether under our key */
    LOGISTICS_INVALID,  /* the service could not read the request: no effect, no use in repeating */
    LOGISTICS_NOT_SENT, /* no connection: nothing left this process */
    LOGISTICS_UNKNOWN,  /* it may have taken effect */
};

struct logistics_order {
    const char *idempotency_key, *order_id;
    int parcels;
    Demo__Logistics__V1__Behaviour behaviour;
};

struct logistics_outcome {
    enum logistics_result result;
    bool ours;
    char waybill[64]; /* its number; "" if none */
    char code[32];    /* "DEADLINE_EXCEEDED", "REFUSED", ... */
    char message[256];
};

/* LOGISTICS_NOT_SENT at once when there is no connection. */
struct logistics_outcome logistics_create(struct caller *logistics,
                                          const struct logistics_order *order, int64_t until_ms);
struct logistics_outcome logistics_find(struct caller *logistics, const char *idempotency_key,
                                        int64_t until_ms);
/* LOGISTICS_DONE: what was in the books for this order is cancelled. */
struct logistics_outcome logistics_cancel(struct caller *logistics, const char *idempotency_key,
                                          const char *order_id, int64_t until_ms);

#endif
