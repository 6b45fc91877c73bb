#include "logistics_client.h"

#include "message.h"

#include <stdio.h>
#include <string.h>

typedef Demo__Logistics__V1__CreateWaybillReply create_reply;
typedef Demo__Logistics__V1__FindWaybillReply find_reply;

#define VERDICT(name) DEMO__LOGISTICS__V1__CREATE_WAYBILL_REPLY__VERDICT__VERDICT_##name
#define METHOD(name)  "/demo.logistics.v1.LogisticsService/" name

static struct logistics_outcome outcome_of(enum logistics_result result, const char *code,
                                           const char *message, const char *waybill)
{
    struct logistics_outcome outcome = { .result = result };
    (void)snprintf(outcome.code, sizeof outcome.code, "%s", code); /* cut texts are fine */
    (void)snprintf(outcome.message, sizeof outcome.message, "%s", message);
    (void)snprintf(outcome.waybill, sizeof outcome.waybill, "%s", waybill);
    return outcome;
}

static struct logistics_outcome unreadable(void)
{
    return outcome_of(LOGISTICS_UNKNOWN, "UNREADABLE_REPLY", "the reply cannot be read", "");
}

static struct logistics_outcome outcome_of_failure(const struct caller_reply *reply)
{
    enum logistics_result result = reply->result == CALLER_INVALID    ? LOGISTICS_INVALID
                                   : reply->result == CALLER_NOT_SENT ? LOGISTICS_NOT_SENT
                                                                      : LOGISTICS_UNKNOWN;
    return outcome_of(result, reply->code, reply->message, "");
}

/* "duplicate: reference KEY waybill NUMBER": this failure, and no other one, says that the waybill
 * is there, and whose it is. */
static bool read_duplicate(const struct caller_reply *reply, const char *our_key,
                           struct logistics_outcome *ret)
{
    char reference[129], number[33];
    int end = 0;
    if (reply->result != CALLER_UNKNOWN || strcmp(reply->code, "INTERNAL") != 0 ||
        sscanf(reply->message, "duplicate: reference %128s waybill %32s%n", reference, number,
               &end) != 2 ||
        reply->message[end] != '\0')
        return false;
    *ret = outcome_of(LOGISTICS_EXISTS, "DUPLICATE", reply->message, number);
    ret->ours = strcmp(reference, our_key) == 0;
    return true;
}

struct logistics_outcome logistics_create(struct caller *logistics,
                                          const struct logistics_order *order, int64_t until_ms)
{
    Demo__Logistics__V1__CreateWaybillRequest request =
        DEMO__LOGISTICS__V1__CREATE_WAYBILL_REQUEST__INIT;
    request.idempotency_key = message_borrow(order->idempotency_key);
    request.order_id = message_borrow(order->order_id);
    request.parcels = order->parcels;
    request.behaviour = order->behaviour;
    CLEANUP(caller_reply_done) struct caller_reply reply;
    caller_call(logistics, METHOD("CreateWaybill"), &request.base, until_ms, &reply);
    struct logistics_outcome outcome;
    if (read_duplicate(&reply, order->idempotency_key, &outcome))
        return outcome;
    if (reply.result != CALLER_ANSWERED)
        return outcome_of_failure(&reply);
    CLEANUP(message_p)
    create_reply *said =
        demo__logistics__v1__create_waybill_reply__unpack(NULL, reply.data.size, reply.data.data);
    if (!said)
        return unreadable();
    if (said->verdict == VERDICT(ACCEPTED))
        return outcome_of(LOGISTICS_DONE, "", said->message, said->waybill);
    if (said->verdict == VERDICT(REFUSED))
        return outcome_of(LOGISTICS_REFUSED, "REFUSED", said->message, "");
    return outcome_of(LOGISTICS_UNKNOWN, "UNKNOWN_VERDICT", "it answered what nobody knows", "");
}

struct logistics_outcome logistics_find(struct caller *logistics, const char *idempotency_key,
                                        int64_t until_ms)
{
    Demo__Logistics__V1__FindWaybillRequest request =
        DEMO__LOGISTICS__V1__FIND_WAYBILL_REQUEST__INIT;
    request.idempotency_key = message_borrow(idempotency_key);
    CLEANUP(caller_reply_done) struct caller_reply reply;
    caller_call(logistics, METHOD("FindWaybill"), &request.base, until_ms, &reply);
    if (reply.result != CALLER_ANSWERED)
        return outcome_of_failure(&reply);
    CLEANUP(message_p)
    find_reply *said =
        demo__logistics__v1__find_waybill_reply__unpack(NULL, reply.data.size, reply.data.data);
    if (!said)
        return unreadable();
    return said->found ? outcome_of(LOGISTICS_DONE, "", "", said->waybill)
                       : outcome_of(LOGISTICS_NOT_FOUND, "NOT_FOUND", "", "");
}

struct logistics_outcome logistics_cancel(struct caller *logistics, const char *idempotency_key,
                                          const char *order_id, int64_t until_ms)
{
    Demo__Logistics__V1__CancelWaybillRequest request =
        DEMO__LOGISTICS__V1__CANCEL_WAYBILL_REQUEST__INIT;
    request.idempotency_key = message_borrow(idempotency_key);
    request.order_id = message_borrow(order_id);
    CLEANUP(caller_reply_done) struct caller_reply reply;
    caller_call(logistics, METHOD("CancelWaybill"), &request.base, until_ms, &reply);
    if (reply.result != CALLER_ANSWERED) /* an OK is the whole answer */
        return outcome_of_failure(&reply);
    return outcome_of(LOGISTICS_DONE, "", "", "");
}
