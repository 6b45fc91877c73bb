#include "fulfilment.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

static const char *const logistics_names[] = {
    [FULFILMENT_NORMAL] = "NORMAL",
    [FULFILMENT_REFUSE] = "REFUSE",
    [FULFILMENT_TAKE_EFFECT_THEN_TIME_OUT] = "TAKE_EFFECT_THEN_TIME_OUT",
    [FULFILMENT_LAND_LATE] = "LAND_LATE",
    [FULFILMENT_GET_LOST] = "GET_LOST",
    [FULFILMENT_EXISTS] = "EXISTS",
    [FULFILMENT_EXISTS_ELSEWHERE] = "EXISTS_ELSEWHERE",
    [FULFILMENT_GO_SILENT] = "GO_SILENT",
};
static_assert(ARRAY_LEN(logistics_names) == FULFILMENT_LOGISTICS_COUNT,
              "one name for each behaviour");

const char *fulfilment_logistics_name(enum fulfilment_logistics logistics)
{
    return logistics_names[logistics];
}

/* --- the plan --------------------------------------------------------------------------------- */

static bool is_withdrawn(int number)
{
    return number % 100 == 90; /* shop.sql says the same */
}

/* The one that has a waybill already that is not ours: one that has nothing else about it. */
static int foreign_number(int count)
{
    int number = count * 7 / 100 * 10;
    return is_withdrawn(number) ? number - 10 : number;
}

static enum fulfilment_logistics plan_express(int number)
{
    if (number == 5)
        return FULFILMENT_TAKE_EFFECT_THEN_TIME_OUT;
    if (number % 50 == 25)
        return FULFILMENT_GET_LOST;
    if (number % 50 == 35)
        return FULFILMENT_LAND_LATE;
    if (number % 50 == 45)
        return FULFILMENT_EXISTS;
    return FULFILMENT_NORMAL;
}

static enum fulfilment_logistics plan_probed(int number)
{
    if (number % 25 == 7)
        return FULFILMENT_REFUSE;
    if (number % 20 == 3)
        return FULFILMENT_TAKE_EFFECT_THEN_TIME_OUT;
    if (number % 20 == 11)
        return FULFILMENT_LAND_LATE;
    if (number % 40 == 17)
        return FULFILMENT_GET_LOST;
    if (number % 50 == 14)
        return FULFILMENT_EXISTS;
    if (number % 50 == 19)
        return FULFILMENT_GO_SILENT;
    return FULFILMENT_NORMAL;
}

struct fulfilment_plan fulfilment_plan(int number, int count)
{
    struct fulfilment_plan plan = { .fulfilment.parcels = 1 + number % FULFILMENT_PARCELS_MAX,
                                    .express = number % 10 == 5,
                                    .withdrawn = is_withdrawn(number) };
    if (number == foreign_number(count))
        plan.fulfilment.logistics = FULFILMENT_EXISTS_ELSEWHERE;
    else if (plan.express)
        plan.fulfilment.logistics = plan_express(number);
    else
        plan.fulfilment.logistics = plan_probed(number);
    return plan;
}

/* --- the story -------------------------------------------------------------------------------- */

static const char *const definitions[] = { "fulfilment", "fulfilment_express", NULL };

static const char *definition_of(int number, int count)
{
    return definitions[fulfilment_plan(number, count).express];
}

static void encode(int number, int count, struct buf *buf)
{
    struct fulfilment_plan plan = fulfilment_plan(number, count);
    fulfilment_encode(&plan.fulfilment, buf);
}

const struct story fulfilment_story = {
    .name = "fulfilment",
    .id_prefix = "ord-",
    .count_max = FULFILMENT_COUNT_MAX,
    .definitions = definitions,
    .succeeded = "fulfilled",
    .compensated = "cancelled",
    .definition_of = definition_of,
    .encode = encode,
};

/* --- JSON ------------------------------------------------------------------------------------- */

void fulfilment_encode(const struct fulfilment *fulfilment, struct buf *buf)
{
    buf_printf(buf, "{\"parcels\":%d,\"logistics\":\"%s\"}", fulfilment->parcels,
               logistics_names[fulfilment->logistics]);
}

static void json_decref_p(json_t **json)
{
    json_decref(*json);
}

int fulfilment_decode(const void *data, size_t size, struct fulfilment *ret, struct err *err)
{
    json_error_t why;
    CLEANUP(json_decref_p)
    json_t *json = json_loadb(data ? data : "", size, JSON_REJECT_DUPLICATES, &why);
    if (!json)
        return err_set(err, ERR_INVALID, "fulfilment: not JSON: %s", why.text);
    json_int_t parcels;
    const char *name;
    if (json_unpack_ex(json, &why, JSON_STRICT, "{s:I, s:s}", "parcels", &parcels, "logistics",
                       &name))
        return err_set(err, ERR_INVALID, "fulfilment: %s", why.text);
    if (parcels < 1 || parcels > FULFILMENT_PARCELS_MAX)
        return err_field(err, "parcels", "fulfilment: parcels %lld is not 1 to %d",
                         (long long)parcels, FULFILMENT_PARCELS_MAX);
    for (size_t i = 0; i < ARRAY_LEN(logistics_names); i++) {
        if (strcmp(name, logistics_names[i]) == 0) {
            *ret = (struct fulfilment){ (int)parcels, (enum fulfilment_logistics)i };
            return 0;
        }
    }
    return err_field(err, "logistics",
                     "fulfilment: logistics is none of NORMAL, REFUSE, TAKE_EFFECT_THEN_TIME_OUT, "
                     "LAND_LATE, GET_LOST, EXISTS, EXISTS_ELSEWHERE, GO_SILENT");
}
