#include "settlement.h"

#include "message.h"

#include <inttypes.h>

static Demo__Risk__V1__Behaviour plan_risk(int number, int count)
{
    if (number == count * 7 / 10)
        return SETTLEMENT_RISK(TRY_LATER);
    if (number % 25 == 7)
        return SETTLEMENT_RISK(REFUSE);
    if (number % 50 == 13)
        return SETTLEMENT_RISK(TAKE_EFFECT_THEN_TIME_OUT);
    if (number % 40 == 21)
        return SETTLEMENT_RISK(SLOW);
    if (number % 50 == 31)
        return SETTLEMENT_RISK(ALREADY_EXISTS);
    return SETTLEMENT_RISK(NORMAL);
}

struct settlement settlement_plan(int number, int count)
{
    /* A multiplicative hash (Knuth): spread over accounts and amounts, the same in every run. */
    uint32_t spread = (uint32_t)number * UINT32_C(2654435761);
    struct settlement settlement = {
        .account = 1 + (int)((spread >> 8) % SETTLEMENT_ACCOUNTS),
        .amount_cents = 100 + (int64_t)(spread % 4900),
        .risk = plan_risk(number, count),
    };
    if (settlement.risk == SETTLEMENT_RISK(NORMAL) && number % 100 == 90)
        settlement.amount_cents += (int64_t)SETTLEMENT_OPENING_CENTS;
    return settlement;
}

bool settlement_is_over_balance(const struct settlement *settlement)
{
    return settlement->amount_cents > SETTLEMENT_OPENING_CENTS;
}

static const char *definition_of(int number, int count)
{
    (void)number;
    (void)count;
    return "settlement";
}

static void encode(int number, int count, struct buf *buf)
{
    struct settlement settlement = settlement_plan(number, count);
    char id[STORY_ID_SIZE];
    Bank__V1__Payment payment = BANK__V1__PAYMENT__INIT;
    story_id_format(&settlement_story, number, id);
    payment.payment_id = id;
    payment.account = settlement.account;
    payment.amount_cents = settlement.amount_cents;
    payment.risk = settlement.risk;
    (void)message_pack(&payment.base, buf); /* buf->failed says it */
}

static bool stays(int number, int count)
{
    return settlement_plan(number, count).risk == SETTLEMENT_RISK(TRY_LATER);
}

static const char *const definitions[] = { "settlement", NULL };

const struct story settlement_story = {
    .name = "settlement",
    .id_prefix = "stl-",
    .count_max = SETTLEMENT_COUNT_MAX,
    .definitions = definitions,
    .succeeded = "settled",
    .compensated = "compensated",
    .definition_of = definition_of,
    .encode = encode,
    .stays = stays,
    .stays_at = "notify_risk",
};

int settlement_check(const Bank__V1__Payment *payment, struct err *err)
{
    if (!payment)
        return err_field(err, "input", "input: is missing");
    if (payment->account < 1 || payment->account > SETTLEMENT_ACCOUNTS)
        return err_field(err, "account", "account: is %" PRId32 ", must be 1 to %d",
                         payment->account, SETTLEMENT_ACCOUNTS);
    if (payment->amount_cents < 1)
        return err_field(err, "amount_cents", "amount_cents: is %" PRId64 ", must be positive",
                         payment->amount_cents);
    return 0;
}
