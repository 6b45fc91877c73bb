/* A settlement as the demo plays it: what it moves, how risk will treat it, and its JSON form,
 * which is the input of its saga. The plan is a pure function of (number, count), so whoever audits
 * knows what was meant to happen. Any thread. */
#ifndef DEMO_SETTLEMENT_H
#define DEMO_SETTLEMENT_H

#include "base/buf.h"
#include "base/err.h"
#include "story.h"

#include <stdint.h>

enum {
    SETTLEMENT_ACCOUNTS = 50,
    SETTLEMENT_OPENING_CENTS = 1000000, /* what each account starts with */
    SETTLEMENT_COUNT_MAX = 5000,        /* more, and honest accounts would run dry */
};

enum settlement_risk {
    SETTLEMENT_RISK_NORMAL,
    SETTLEMENT_RISK_REFUSE,
    SETTLEMENT_RISK_SLOW,
    SETTLEMENT_RISK_TAKE_EFFECT_THEN_TIME_OUT,
    SETTLEMENT_RISK_ALREADY_EXISTS,
    SETTLEMENT_RISK_TRY_LATER,
    SETTLEMENT_RISK_COUNT
};

struct settlement {
    int account; /* 1 to SETTLEMENT_ACCOUNTS */
    int64_t amount_cents;
    enum settlement_risk risk;
};

const char *settlement_risk_name(enum settlement_risk risk);

extern const struct story settlement_story;

/* The number-th (from 1) of `count` settlements, "stl-000042". Exactly one is
 * TRY_LATER: late enough that the demo's kill of a worker does not find it in mid-call. */
struct settlement settlement_plan(int number, int count);
/* More money than any account holds: the bank says no before anything happened. */
bool settlement_is_over_balance(const struct settlement *settlement);

/* {"account":17,"amount_cents":1250,"risk":"NORMAL"}: the same settlement gives the same bytes. */
void settlement_encode(const struct settlement *settlement, struct buf *buf);
/* ERR_INVALID names the field that is missing, unknown or wrong. */
MUST_USE int settlement_decode(const void *data, size_t size, struct settlement *ret,
                               struct err *err);

#endif
