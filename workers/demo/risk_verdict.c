#include "risk_verdict.h"

#include "base/utf8.h"

#include <demo/risk.pb-c.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* The log is a list of words: what is written there must be one. */
static bool is_word(const char *text)
{
    size_t size = strlen(text);
    return size > 0 && size <= 256 && utf8_is_text(text, size) && !strchr(text, ' ');
}

static int log_effect(const struct risk_desk *desk, const char *what, const char *key,
                      const char *settlement_id, struct err *err)
{
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    if (!gmtime_r(&now.tv_sec, &utc))
        return err_set(err, ERR_INTERNAL, "risk log: no calendar time");
    char line[640];
    int size = snprintf(line, sizeof line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s %s\n",
                        utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                        utc.tm_sec, now.tv_nsec / 1000000, what, key, settlement_id);
    if (size < 0 || (size_t)size >= sizeof line)
        return err_set(err, ERR_INTERNAL, "risk log: line too long");
    ssize_t written = write(desk->log_fd, line, (size_t)size);
    if (written != size)
        return err_set(err, ERR_INTERNAL, "risk log: %s", written < 0 ? strerror(errno) : "cut");
    return 0;
}

/* Most answers come soon, one in a hundred takes up to 800 ms. */
static int64_t normal_delay_ms(struct rng *rng)
{
    if (rng_below(rng, 100) == 0)
        return 250 + (int64_t)rng_below(rng, 551);
    return 20 + (int64_t)rng_below(rng, 231);
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
        return RISK_NEVER;
    if (behaviour == DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_SLOW)
        return 1500 + (int64_t)rng_below(rng, 1001);
    return normal_delay_ms(rng);
}

static int decide_notify(struct risk_desk *desk, const uint8_t *data, size_t size,
                         struct risk_answer *ret_answer, struct buf *buf, struct err *err)
{
    CLEANUP(notify_request_p)
    notify_request *request = demo__risk__v1__notify_request__unpack(NULL, size, data);
    if (!request)
        return err_set(err, ERR_INVALID, "not a NotifyRequest");
    if (!is_word(request->idempotency_key))
        return err_field(err, "idempotency_key", "idempotency_key must be one word");
    if (!is_word(request->settlement_id))
        return err_field(err, "settlement_id", "settlement_id must be one word");
    struct treatment treatment;
    if (!treatment_of(request->behaviour, &treatment))
        return err_field(err, "behaviour", "behaviour %d is unknown", (int)request->behaviour);
    if (treatment.effect) {
        int rc =
            log_effect(desk, "NOTIFIED", request->idempotency_key, request->settlement_id, err);
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
                           struct risk_answer *ret_answer, struct err *err)
{
    CLEANUP(withdraw_request_p)
    Demo__Risk__V1__WithdrawRequest *request =
        demo__risk__v1__withdraw_request__unpack(NULL, size, data);
    if (!request)
        return err_set(err, ERR_INVALID, "not a WithdrawRequest");
    if (!is_word(request->idempotency_key))
        return err_field(err, "idempotency_key", "idempotency_key must be one word");
    if (!is_word(request->settlement_id))
        return err_field(err, "settlement_id", "settlement_id must be one word");
    int rc = log_effect(desk, "WITHDRAWN", request->idempotency_key, request->settlement_id, err);
    if (rc)
        return rc;
    ret_answer->delay_ms =
        normal_delay_ms(&desk->rng); /* WithdrawReply is empty: packs to nothing */
    return 0;
}

int risk_decide(struct risk_desk *desk, enum risk_method method, const uint8_t *request,
                size_t size, struct risk_answer *ret_answer, struct buf *reply, struct err *err)
{
    if (method == RISK_NOTIFY)
        return decide_notify(desk, request, size, ret_answer, reply, err);
    return decide_withdraw(desk, request, size, ret_answer, err);
}
