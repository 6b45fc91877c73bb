#include "fulfilment.h"

#include "message.h"

#include <inttypes.h>

/* --- the plan --------------------------------------------------------------------------------- */

static bool is_withdrawn(int number)
{
    return number % 100 == 90; /* shop.sql says the same */
}

static bool is_recalled(int number)
{
    return number % 25 == 12; /* shop.sql says the same */
}

/* The one that has a waybill already that is not ours: one that has nothing else about it. */
static int foreign_number(int count)
{
    int number = count * 7 / 100 * 10;
    return is_withdrawn(number) ? number - 10 : number;
}

static Demo__Logistics__V1__Behaviour plan_express(int number)
{
    if (number == 5)
        return FULFILMENT_LOGISTICS(TAKE_EFFECT_THEN_TIME_OUT);
    if (number % 50 == 25)
        return FULFILMENT_LOGISTICS(GET_LOST);
    if (number % 50 == 35)
        return FULFILMENT_LOGISTICS(LAND_LATE);
    if (number % 50 == 45)
        return FULFILMENT_LOGISTICS(EXISTS);
    return FULFILMENT_LOGISTICS(NORMAL);
}

static Demo__Logistics__V1__Behaviour plan_probed(int number)
{
    if (number % 25 == 7)
        return FULFILMENT_LOGISTICS(REFUSE);
    if (number % 20 == 3)
        return FULFILMENT_LOGISTICS(TAKE_EFFECT_THEN_TIME_OUT);
    if (number % 20 == 11)
        return FULFILMENT_LOGISTICS(LAND_LATE);
    if (number % 40 == 17)
        return FULFILMENT_LOGISTICS(GET_LOST);
    if (number % 50 == 14)
        return FULFILMENT_LOGISTICS(EXISTS);
    if (number % 50 == 19)
        return FULFILMENT_LOGISTICS(GO_SILENT);
    return FULFILMENT_LOGISTICS(NORMAL);
}

struct fulfilment_plan fulfilment_plan(int number, int count)
{
    struct fulfilment_plan plan = { .parcels = 1 + number % FULFILMENT_PARCELS_MAX,
                                    .express = number % 10 == 5,
                                    .withdrawn = is_withdrawn(number),
                                    .recalled = is_recalled(number) };
    if (number == foreign_number(count))
        plan.logistics = FULFILMENT_LOGISTICS(EXISTS_ELSEWHERE);
    else if (plan.express)
        plan.logistics = plan_express(number);
    else
        plan.logistics = plan_probed(number);
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
    char id[STORY_ID_SIZE];
    Shop__V1__Order order = SHOP__V1__ORDER__INIT;
    story_id_format(&fulfilment_story, number, id);
    order.order_id = id;
    order.parcels = plan.parcels;
    order.logistics = plan.logistics;
    (void)message_pack(&order.base, buf); /* buf->failed says it */
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

int fulfilment_check(const Shop__V1__Order *order, struct err *err)
{
    if (!order)
        return err_field(err, "input", "input: is missing");
    if (order->parcels < 1 || order->parcels > FULFILMENT_PARCELS_MAX)
        return err_field(err, "parcels", "parcels: is %" PRId32 ", must be 1 to %d", order->parcels,
                         FULFILMENT_PARCELS_MAX);
    return 0;
}
