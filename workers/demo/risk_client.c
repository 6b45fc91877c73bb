#include "risk_client.h"

#include "message.h"

#include <stdio.h>
#include <string.h>

static struct risk_outcome outcome_of(enum risk_result result, const char *code,
                                      const char *message)
{
    struct risk_outcome outcome = { .result = result };
    (void)snprintf(outcome.code, sizeof outcome.code, "%s", code); /* a cut text is fine */
    (void)snprintf(outcome.message, sizeof outcome.message, "%s", message);
    return outcome;
}

static struct risk_outcome outcome_of_failure(const struct caller_reply *reply)
{
    enum risk_result result = reply->result == CALLER_INVALID    ? RISK_INVALID
                              : reply->result == CALLER_NOT_SENT ? RISK_NOT_SENT
                                                                 : RISK_UNKNOWN;
    return outcome_of(result, reply->code, reply->message);
}

static struct risk_outcome outcome_of_verdict(const Demo__Risk__V1__NotifyReply *reply,
                                              const char *our_key)
{
    struct risk_outcome outcome;
    switch ((int)reply->verdict) {
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_ACCEPTED:
        outcome = outcome_of(RISK_ACCEPTED, "", reply->message);
        break;
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_REFUSED:
        outcome = outcome_of(RISK_REFUSED, "REFUSED", reply->message);
        break;
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_ALREADY_EXISTS:
        outcome = outcome_of(RISK_ALREADY_EXISTS, "ALREADY_EXISTS", reply->message);
        outcome.ours = strcmp(reply->idempotency_key, our_key) == 0;
        break;
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_TRY_LATER:
        outcome = outcome_of(RISK_TRY_LATER, "TRY_LATER", reply->message);
        break;
    default:
        outcome = outcome_of(RISK_UNKNOWN, "UNKNOWN_VERDICT", "risk answered what nobody knows");
        break;
    }
    (void)snprintf(outcome.reference, sizeof outcome.reference, "%s", reply->reference);
    return outcome;
}

struct risk_outcome risk_client_notify(struct caller *risk,
                                       const struct risk_notification *notification,
                                       int64_t until_ms)
{
    Demo__Risk__V1__NotifyRequest request = DEMO__RISK__V1__NOTIFY_REQUEST__INIT;
    request.idempotency_key = message_borrow(notification->idempotency_key);
    request.settlement_id = message_borrow(notification->settlement_id);
    request.account = notification->account;
    request.amount_cents = notification->amount_cents;
    request.behaviour = notification->behaviour;
    CLEANUP(caller_reply_done) struct caller_reply reply;
    caller_call(risk, "/demo.risk.v1.RiskService/Notify", &request.base, until_ms, &reply);
    if (reply.result != CALLER_ANSWERED)
        return outcome_of_failure(&reply);
    CLEANUP(message_p)
    Demo__Risk__V1__NotifyReply *message =
        demo__risk__v1__notify_reply__unpack(NULL, reply.data.size, reply.data.data);
    if (!message)
        return outcome_of(RISK_UNKNOWN, "UNREADABLE_REPLY", "risk's reply cannot be read");
    return outcome_of_verdict(message, notification->idempotency_key);
}

struct risk_outcome risk_client_withdraw(struct caller *risk, const char *idempotency_key,
                                         const char *settlement_id, int64_t until_ms)
{
    Demo__Risk__V1__WithdrawRequest request = DEMO__RISK__V1__WITHDRAW_REQUEST__INIT;
    request.idempotency_key = message_borrow(idempotency_key);
    request.settlement_id = message_borrow(settlement_id);
    CLEANUP(caller_reply_done) struct caller_reply reply;
    caller_call(risk, "/demo.risk.v1.RiskService/Withdraw", &request.base, until_ms, &reply);
    if (reply.result != CALLER_ANSWERED) /* an OK is the whole answer */
        return outcome_of_failure(&reply);
    return outcome_of(RISK_ACCEPTED, "", "");
}
