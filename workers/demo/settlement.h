/* A settlement as the demo plays it: what it moves, and how risk will treat it; and the payment
 * that is the input of its saga (settlement.proto). The plan is a pure function of (number, count),
 * so whoever audits knows what was meant to happen. Any thread. */
#ifndef DEMO_SETTLEMENT_H
#define DEMO_SETTLEMENT_H

#include "base/buf.h"
#include "base/err.h"
#include "story.h"

#include <demo/settlement.pb-c.h>
#include <stdint.h>

enum {
    SETTLEMENT_ACCOUNTS = 50,
    SETTLEMENT_OPENING_CENTS = 1000000, /* what each account starts with */
    SETTLEMENT_COUNT_MAX = 5000,        /* more, and honest accounts would run dry */
};

#define SETTLEMENT_RISK(name) DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_##name

struct settlement {
    int account; /* 1 to SETTLEMENT_ACCOUNTS */
    int64_t amount_cents;
    Demo__Risk__V1__Behaviour risk;
};

extern const struct story settlement_story;

/* The number-th (from 1) of `count` settlements, "stl-000042". Exactly one is
 * TRY_LATER: late enough that the demo's kill of a worker does not find it in mid-call. */
struct settlement settlement_plan(int number, int count);
/* More money than any account holds: the bank says no before anything happened. */
bool settlement_is_over_balance(const struct settlement *settlement);

/* What no plan makes, but a person may: ERR_INVALID names the field that is wrong. */
MUST_USE int settlement_check(const Bank__V1__Payment *payment, struct err *err);

#endif
