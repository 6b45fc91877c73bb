#include "risk_verdict.h"

#include "effect_log.h"

#include <demo/risk.pb-c.h>
#include <inttypes.h>
#include <stdio.h>

typedef Demo__Risk__V1__NotifyRequest notify_request;
typedef Demo__Risk__V1__NotifyReply notify_reply;

static void notify_request_p(notify_request **request)
{
    demo__risk__v1__notify_request__free_unpacked(*request, NULL);
}

static void withdraw_request_p(Demo__Risk__V1__WithdrawRequest **request)
{
    demo__risk__v1__withdraw_request__free_unpacked(*request, NULL);
}

static int pack_reply(const notify_reply *reply, struct buf *buf, struct err *err)
{
    size_t size = demo__risk__v1__notify_reply__get_packed_size(reply);
    uint8_t *room = buf_room(buf, size + 1); /* an empty message packs to nothing */
    if (!room)
        return err_set(err, ERR_NOMEM, "risk reply");
    buf_added(buf, demo__risk__v1__notify_reply__pack(reply, room));
    return 0;
}

struct treatment {
    bool effect;
    Demo__Risk__V1__NotifyReply__Verdict verdict;
    const char *message;
};

static bool treatment_of(Demo__Risk__V1__Behaviour behaviour, struct treatment *ret)
{
    switch ((int)behaviour) { /* from the wire: any number */
    case DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_NORMAL:
    case DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_SLOW:
    case DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_TAKE_EFFECT_THEN_TIME_OUT:
        *ret = (struct treatment){ true, DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_ACCEPTED,
                                   "accepted" };
        return true;
    case DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_ALREADY_EXISTS:
        *ret =
            (struct treatment){ true, DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_ALREADY_EXISTS,
                                "it is there" };
        return true;
    case DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_REFUSE:
        *ret = (struct treatment){ false, DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_REFUSED,
                                   "the account is on the watch list" };
        return true;
    case DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_TRY_LATER:
        *ret = (struct treatment){ false, DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_TRY_LATER,
                                   "the account is under manual review, ask again later" };
        return true;
    default:
        return false;
    }
}

static int64_t delay_of(Demo__Risk__V1__Behaviour behaviour, struct rng *rng)
{
    if (behaviour == DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_TAKE_EFFECT_THEN_TIME_OUT)
        return THIRD_PARTY_NEVER;
    if (behaviour == DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_SLOW)
        return 1500 + (int64_t)rng_below(rng, 1001);
    return third_party_normal_delay_ms(rng);
}

static int decide_notify(struct risk_desk *desk, const uint8_t *data, size_t size,
                         struct third_party_answer *ret_answer, struct buf *buf, struct err *err)
{
    CLEANUP(notify_request_p)
    notify_request *request = demo__risk__v1__notify_request__unpack(NULL, size, data);
    if (!request)
        return err_set(err, ERR_INVALID, "not a NotifyRequest");
    if (effect_log_check_word("idempotency_key", request->idempotency_key, err) ||
        effect_log_check_word("settlement_id", request->settlement_id, err))
        return (int)err->code;
    struct treatment treatment;
    if (!treatment_of(request->behaviour, &treatment))
        return err_field(err, "behaviour", "behaviour %d is unknown", (int)request->behaviour);
    if (treatment.effect) {
        int rc = effect_log_write(desk->log_fd, "NOTIFIED", request->idempotency_key,
                                  request->settlement_id, err);
        if (rc)
            return rc;
        desk->references++;
    }
    char reference[32] = "";
    if (treatment.effect)
        (void)snprintf(reference, sizeof reference, "risk-%" PRIu64, desk->references); /* fits */
    notify_reply reply = DEMO__RISK__V1__NOTIFY_REPLY__INIT;
    reply.verdict = treatment.verdict;
    reply.idempotency_key = request->idempotency_key;
    reply.reference = reference;
    reply.message = (char *)(uintptr_t)treatment.message; /* only packed, never written to */
    int rc = pack_reply(&reply, buf, err);
    if (rc)
        return rc;
    ret_answer->delay_ms = delay_of(request->behaviour, &desk->rng);
    return 0;
}

static int decide_withdraw(struct risk_desk *desk, const uint8_t *data, size_t size,
                           struct third_party_answer *ret_answer, struct err *err)
{
    CLEANUP(withdraw_request_p)
    Demo__Risk__V1__WithdrawRequest *request =
        demo__risk__v1__withdraw_request__unpack(NULL, size, data);
    if (!request)
        return err_set(err, ERR_INVALID, "not a WithdrawRequest");
    if (effect_log_check_word("idempotency_key", request->idempotency_key, err) ||
        effect_log_check_word("settlement_id", request->settlement_id, err))
        return (int)err->code;
    int rc = effect_log_write(desk->log_fd, "WITHDRAWN", request->idempotency_key,
                              request->settlement_id, err);
    if (rc)
        return rc;
    ret_answer->delay_ms =
        third_party_normal_delay_ms(&desk->rng); /* WithdrawReply is empty: packs to nothing */
    return 0;
}

int risk_decide(struct risk_desk *desk, enum risk_method method, const uint8_t *request,
                size_t size, struct third_party_answer *ret_answer, struct buf *reply,
                struct err *err)
{
    if (method == RISK_NOTIFY)
        return decide_notify(desk, request, size, ret_answer, reply, err);
    return decide_withdraw(desk, request, size, ret_answer, err);
}
