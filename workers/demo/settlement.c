#include "settlement.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const char *const risk_names[] = {
    [SETTLEMENT_RISK_NORMAL] = "NORMAL",
    [SETTLEMENT_RISK_REFUSE] = "REFUSE",
    [SETTLEMENT_RISK_SLOW] = "SLOW",
    [SETTLEMENT_RISK_TAKE_EFFECT_THEN_TIME_OUT] = "TAKE_EFFECT_THEN_TIME_OUT",
    [SETTLEMENT_RISK_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [SETTLEMENT_RISK_TRY_LATER] = "TRY_LATER",
};
static_assert(ARRAY_LEN(risk_names) == SETTLEMENT_RISK_COUNT, "one name for each behaviour");

const char *settlement_risk_name(enum settlement_risk risk)
{
    return risk_names[risk];
}

static enum settlement_risk plan_risk(int number, int count)
{
    if (number == count * 7 / 10)
        return SETTLEMENT_RISK_TRY_LATER;
    if (number % 25 == 7)
        return SETTLEMENT_RISK_REFUSE;
    if (number % 50 == 13)
        return SETTLEMENT_RISK_TAKE_EFFECT_THEN_TIME_OUT;
    if (number % 40 == 21)
        return SETTLEMENT_RISK_SLOW;
    if (number % 50 == 31)
        return SETTLEMENT_RISK_ALREADY_EXISTS;
    return SETTLEMENT_RISK_NORMAL;
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
    if (settlement.risk == SETTLEMENT_RISK_NORMAL && number % 100 == 90)
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
    settlement_encode(&settlement, buf);
}

static bool stays(int number, int count)
{
    return settlement_plan(number, count).risk == SETTLEMENT_RISK_TRY_LATER;
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

void settlement_encode(const struct settlement *settlement, struct buf *buf)
{
    buf_printf(buf, "{\"account\":%d,\"amount_cents\":%" PRId64 ",\"risk\":\"%s\"}",
               settlement->account, settlement->amount_cents, risk_names[settlement->risk]);
}

static void json_decref_p(json_t **json)
{
    json_decref(*json);
}

static int decode_risk(const char *name, enum settlement_risk *ret, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(risk_names); i++) {
        if (strcmp(name, risk_names[i]) == 0) {
            *ret = (enum settlement_risk)i;
            return 0;
        }
    }
    return err_field(err, "risk",
                     "settlement: risk is none of NORMAL, REFUSE, SLOW, "
                     "TAKE_EFFECT_THEN_TIME_OUT, ALREADY_EXISTS, TRY_LATER");
}

int settlement_decode(const void *data, size_t size, struct settlement *ret, struct err *err)
{
    json_error_t why;
    CLEANUP(json_decref_p)
    json_t *json = json_loadb(data ? data : "", size, JSON_REJECT_DUPLICATES, &why);
    if (!json)
        return err_set(err, ERR_INVALID, "settlement: not JSON: %s", why.text);
    json_int_t account, amount_cents;
    const char *risk_name;
    if (json_unpack_ex(json, &why, JSON_STRICT, "{s:I, s:I, s:s}", "account", &account,
                       "amount_cents", &amount_cents, "risk", &risk_name))
        return err_set(err, ERR_INVALID, "settlement: %s", why.text);
    if (account < 1 || account > SETTLEMENT_ACCOUNTS)
        return err_field(err, "account", "settlement: account %lld is not 1 to %d",
                         (long long)account, SETTLEMENT_ACCOUNTS);
    if (amount_cents < 1)
        return err_field(err, "amount_cents", "settlement: amount_cents %lld is not positive",
                         (long long)amount_cents);
    enum settlement_risk risk;
    int rc = decode_risk(risk_name, &risk, err);
    if (rc)
        return rc;
    *ret = (struct settlement){ (int)account, amount_cents, risk };
    return 0;
}
