/* A fulfilment as the demo plays it: what is sent, and how the carrier and the customer will treat
 * it; and the order that is the input of its saga (fulfilment.proto). The plan is a pure function
 * of (number, count), so whoever audits knows what was meant to happen. Any thread. */
#ifndef DEMO_FULFILMENT_H
#define DEMO_FULFILMENT_H

#include "base/buf.h"
#include "base/err.h"
#include "story.h"

#include <demo/fulfilment.pb-c.h>

enum { FULFILMENT_PARCELS_MAX = 9, FULFILMENT_COUNT_MAX = 5000 };

#define FULFILMENT_LOGISTICS(name) DEMO__LOGISTICS__V1__BEHAVIOUR__BEHAVIOUR_##name

struct fulfilment_plan {
    int parcels; /* 1 to FULFILMENT_PARCELS_MAX */
    Demo__Logistics__V1__Behaviour logistics;
    bool express;   /* of the definition fulfilment_express, which cannot ask logistics */
    bool withdrawn; /* the customer was faster: the shop says no before anything happened */
    bool recalled;  /* the customer was fast enough: the shop says no to the hand-over */
};

extern const struct story fulfilment_story;

/* The number-th (from 1) of `count` orders. Exactly one is EXISTS_ELSEWHERE, and exactly one of the
 * express ones is TAKE_EFFECT_THEN_TIME_OUT: number 5, which goes past its window. */
struct fulfilment_plan fulfilment_plan(int number, int count);

/* What no plan makes, but a person may: ERR_INVALID names the field that is wrong. */
MUST_USE int fulfilment_check(const Shop__V1__Order *order, struct err *err);

#endif
