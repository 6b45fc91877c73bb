/* A fulfilment as the demo plays it: what is sent, how the carrier will treat it, and its JSON
 * form, which is the input of its saga. The plan is a pure function of (number, count), so whoever
 * audits knows what was meant to happen. Any thread. */
#ifndef DEMO_FULFILMENT_H
#define DEMO_FULFILMENT_H

#include "base/buf.h"
#include "base/err.h"
#include "story.h"

#include <stdint.h>

enum { FULFILMENT_PARCELS_MAX = 9, FULFILMENT_COUNT_MAX = 5000 };

/* How logistics treats it: the names are those of logistics.proto. */
enum fulfilment_logistics {
    FULFILMENT_NORMAL,
    FULFILMENT_REFUSE,
    FULFILMENT_TAKE_EFFECT_THEN_TIME_OUT,
    FULFILMENT_LAND_LATE,
    FULFILMENT_GET_LOST,
    FULFILMENT_EXISTS,
    FULFILMENT_EXISTS_ELSEWHERE,
    FULFILMENT_GO_SILENT,
    FULFILMENT_LOGISTICS_COUNT
};

struct fulfilment {
    int parcels; /* 1 to FULFILMENT_PARCELS_MAX */
    enum fulfilment_logistics logistics;
};

struct fulfilment_plan {
    struct fulfilment fulfilment;
    bool express;   /* of the definition fulfilment_express, which cannot ask logistics */
    bool withdrawn; /* the customer was faster: the shop says no before anything happened */
};

extern const struct story fulfilment_story;

const char *fulfilment_logistics_name(enum fulfilment_logistics logistics);

/* The number-th (from 1) of `count` orders. Exactly one is EXISTS_ELSEWHERE, and exactly one of the
 * express ones is TAKE_EFFECT_THEN_TIME_OUT: number 5, which goes past its window. */
struct fulfilment_plan fulfilment_plan(int number, int count);

/* {"parcels":2,"logistics":"NORMAL"}: the same fulfilment gives the same bytes. */
void fulfilment_encode(const struct fulfilment *fulfilment, struct buf *buf);
/* ERR_INVALID names the field that is missing, unknown or wrong. */
MUST_USE int fulfilment_decode(const void *data, size_t size, struct fulfilment *ret,
                               struct err *err);

#endif
