#include "logistics_desk.h"

#include "base/mem.h"
#include "effect_log.h"
#include "message.h"

#include <demo/logistics.pb-c.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef Demo__Logistics__V1__CreateWaybillRequest create_request;
typedef Demo__Logistics__V1__FindWaybillRequest find_request;
typedef Demo__Logistics__V1__CancelWaybillRequest cancel_request;

#define BEHAVIOUR(name) DEMO__LOGISTICS__V1__BEHAVIOUR__BEHAVIOUR_##name
#define VERDICT(name)   DEMO__LOGISTICS__V1__CREATE_WAYBILL_REPLY__VERDICT__VERDICT_##name

enum {
    DOSSIERS_MAX = 100000,
    NUMBER_SIZE = 32,
    LATE_LEAST_MS = 2600, /* after the caller gave up, before its settle time is over */
    LATE_SPREAD_MS = 1000,
};

struct dossier {
    char *key, *order_id; /* owned */
    int requests;         /* to make a waybill */
    uint64_t waybill;     /* the last one that was made with this key; 0: none */
    bool cancelled;
    bool silent;        /* cannot be asked about */
    int64_t made_ms;    /* `waybill` */
    int64_t late_at_ms; /* a request of it takes effect then; 0: none does */
};

static void create_request_p(create_request **request)
{
    demo__logistics__v1__create_waybill_request__free_unpacked(*request, NULL);
}

static void find_request_p(find_request **request)
{
    demo__logistics__v1__find_waybill_request__free_unpacked(*request, NULL);
}

static void cancel_request_p(cancel_request **request)
{
    demo__logistics__v1__cancel_waybill_request__free_unpacked(*request, NULL);
}

void logistics_desk_done(struct logistics_desk *desk)
{
    for (size_t i = 0; i < desk->count; i++) {
        mem_free(desk->dossiers[i].key);
        mem_free(desk->dossiers[i].order_id);
    }
    mem_free(desk->dossiers);
    desk->dossiers = NULL;
    desk->count = desk->capacity = 0;
}

/* --- the books -------------------------------------------------------------------------------- */

/* The newest first: that is what is asked about mostly. */
static struct dossier *dossier_find(struct logistics_desk *desk, const char *key)
{
    for (size_t i = desk->count; i-- > 0;)
        if (strcmp(desk->dossiers[i].key, key) == 0)
            return &desk->dossiers[i];
    return NULL;
}

static int dossier_open(struct logistics_desk *desk, const char *key, const char *order_id,
                        struct dossier **ret, struct err *err)
{
    struct dossier *found = dossier_find(desk, key);
    if (found && strcmp(found->order_id, order_id) != 0)
        return err_field(err, "idempotency_key", "idempotency_key is of another order");
    if (found) {
        *ret = found;
        return 0;
    }
    if (desk->count == DOSSIERS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d keys", DOSSIERS_MAX);
    if (mem_grow((void **)&desk->dossiers, &desk->capacity, desk->count, sizeof *desk->dossiers))
        return err_set(err, ERR_NOMEM, "dossier");
    struct dossier opened = { .key = mem_strdup(key), .order_id = mem_strdup(order_id) };
    if (!opened.key || !opened.order_id) {
        mem_free(opened.key);
        mem_free(opened.order_id);
        return err_set(err, ERR_NOMEM, "dossier");
    }
    desk->dossiers[desk->count] = opened;
    *ret = &desk->dossiers[desk->count++];
    return 0;
}

static bool is_remembered(const struct logistics_desk *desk, const struct dossier *dossier,
                          int64_t now_ms)
{
    return dossier->waybill && now_ms - dossier->made_ms < desk->remember_ms;
}

static int make_waybill(struct logistics_desk *desk, struct dossier *dossier, int64_t now_ms,
                        struct err *err)
{
    int rc = effect_log_write(desk->log_fd, "CREATED", dossier->key, dossier->order_id, err);
    if (rc)
        return rc;
    dossier->waybill = ++desk->waybills;
    dossier->made_ms = now_ms;
    dossier->cancelled = false;
    return 0;
}

static void number_of(uint64_t waybill, char ret_number[NUMBER_SIZE])
{
    (void)snprintf(ret_number, NUMBER_SIZE, "WB-%06" PRIu64, waybill); /* fits */
}

int logistics_tick(struct logistics_desk *desk, int64_t mono_ms, struct err *err)
{
    for (size_t i = 0; i < desk->count; i++) {
        struct dossier *dossier = &desk->dossiers[i];
        if (!dossier->late_at_ms || dossier->late_at_ms > mono_ms)
            continue;
        dossier->late_at_ms = 0;
        if (is_remembered(desk, dossier, mono_ms))
            continue; /* a repeat was faster */
        int rc = make_waybill(desk, dossier, mono_ms, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

static int pack(const ProtobufCMessage *message, struct buf *reply, struct err *err)
{
    return message_pack(message, reply) ? 0 : err_set(err, ERR_NOMEM, "logistics reply");
}

static int say(struct buf *reply, Demo__Logistics__V1__CreateWaybillReply__Verdict verdict,
               const char *message, uint64_t waybill, struct err *err)
{
    Demo__Logistics__V1__CreateWaybillReply said = DEMO__LOGISTICS__V1__CREATE_WAYBILL_REPLY__INIT;
    char number[NUMBER_SIZE] = "";
    if (waybill)
        number_of(waybill, number);
    said.verdict = verdict;
    said.waybill = number;
    said.message = message_borrow(message);
    return pack(&said.base, reply, err);
}

static int say_duplicate(struct third_party_answer *answer, struct buf *reply,
                         const char *reference, uint64_t waybill, struct err *err)
{
    char number[NUMBER_SIZE];
    number_of(waybill, number);
    answer->fails = true;
    buf_printf(reply, "duplicate: reference %s waybill %s", reference, number);
    return reply->failed ? err_set(err, ERR_NOMEM, "logistics reply") : 0;
}

/* --- requests --------------------------------------------------------------------------------- */

/* A repeat may come with another key. */
static bool is_first_request(const struct logistics_desk *desk, const char *order_id)
{
    int requests = 0;
    for (size_t i = 0; i < desk->count; i++)
        if (strcmp(desk->dossiers[i].order_id, order_id) == 0)
            requests += desk->dossiers[i].requests;
    return requests == 1;
}

/* It is to take effect now. */
static int create_now(struct logistics_desk *desk, struct dossier *dossier,
                      Demo__Logistics__V1__Behaviour behaviour, int64_t now_ms,
                      struct third_party_answer *answer, struct buf *reply, struct err *err)
{
    bool repeated = is_remembered(desk, dossier, now_ms);
    int rc = repeated ? 0 : make_waybill(desk, dossier, now_ms, err);
    if (rc)
        return rc;
    dossier->silent = behaviour == BEHAVIOUR(GO_SILENT);
    if (dossier->silent || behaviour == BEHAVIOUR(TAKE_EFFECT_THEN_TIME_OUT)) {
        answer->delay_ms = THIRD_PARTY_NEVER;
        return 0;
    }
    if (repeated || behaviour == BEHAVIOUR(EXISTS))
        return say_duplicate(answer, reply, dossier->key, dossier->waybill, err);
    return say(reply, VERDICT(ACCEPTED), "accepted", dossier->waybill, err);
}

static int create(struct logistics_desk *desk, const create_request *request, int64_t now_ms,
                  struct third_party_answer *answer, struct buf *reply, struct err *err)
{
    Demo__Logistics__V1__Behaviour behaviour = request->behaviour;
    struct dossier *dossier = NULL;
    int rc = dossier_open(desk, request->idempotency_key, request->order_id, &dossier, err);
    if (rc)
        return rc;
    dossier->requests++;
    if (behaviour == BEHAVIOUR(REFUSE))
        return say(reply, VERDICT(REFUSED), "nobody delivers to this address", 0, err);
    if (behaviour == BEHAVIOUR(EXISTS_ELSEWHERE))
        return say_duplicate(answer, reply, "made-by-hand", 0, err);
    bool first = is_first_request(desk, request->order_id);
    bool late = first && behaviour == BEHAVIOUR(LAND_LATE);
    if (late)
        dossier->late_at_ms =
            now_ms + LATE_LEAST_MS + (int64_t)rng_below(&desk->rng, LATE_SPREAD_MS);
    if (late || (first && behaviour == BEHAVIOUR(GET_LOST))) {
        answer->delay_ms = THIRD_PARTY_NEVER;
        return 0;
    }
    return create_now(desk, dossier, behaviour, now_ms, answer, reply, err);
}

static int decide_create(struct logistics_desk *desk, const uint8_t *data, size_t size,
                         int64_t now_ms, struct third_party_answer *answer, struct buf *reply,
                         struct err *err)
{
    CLEANUP(create_request_p)
    create_request *request = demo__logistics__v1__create_waybill_request__unpack(NULL, size, data);
    if (!request)
        return err_set(err, ERR_INVALID, "not a CreateWaybillRequest");
    if (effect_log_check_word("idempotency_key", request->idempotency_key, err) ||
        effect_log_check_word("order_id", request->order_id, err))
        return (int)err->code;
    if (request->behaviour < BEHAVIOUR(NORMAL) || request->behaviour > BEHAVIOUR(GO_SILENT))
        return err_field(err, "behaviour", "behaviour %d is unknown", (int)request->behaviour);
    return create(desk, request, now_ms, answer, reply, err);
}

static int decide_find(struct logistics_desk *desk, const uint8_t *data, size_t size,
                       struct third_party_answer *answer, struct buf *reply, struct err *err)
{
    CLEANUP(find_request_p)
    find_request *request = demo__logistics__v1__find_waybill_request__unpack(NULL, size, data);
    if (!request)
        return err_set(err, ERR_INVALID, "not a FindWaybillRequest");
    if (effect_log_check_word("idempotency_key", request->idempotency_key, err))
        return (int)err->code;
    const struct dossier *dossier = dossier_find(desk, request->idempotency_key);
    if (dossier && dossier->silent)
        answer->delay_ms = THIRD_PARTY_NEVER;
    Demo__Logistics__V1__FindWaybillReply found = DEMO__LOGISTICS__V1__FIND_WAYBILL_REPLY__INIT;
    char number[NUMBER_SIZE] = "";
    found.found = dossier && dossier->waybill && !dossier->cancelled;
    if (found.found)
        number_of(dossier->waybill, number);
    found.waybill = number;
    return pack(&found.base, reply, err);
}

static int decide_cancel(struct logistics_desk *desk, const uint8_t *data, size_t size,
                         struct err *err)
{
    CLEANUP(cancel_request_p)
    cancel_request *request = demo__logistics__v1__cancel_waybill_request__unpack(NULL, size, data);
    if (!request)
        return err_set(err, ERR_INVALID, "not a CancelWaybillRequest");
    if (effect_log_check_word("idempotency_key", request->idempotency_key, err) ||
        effect_log_check_word("order_id", request->order_id, err))
        return (int)err->code;
    for (size_t i = 0; i < desk->count; i++) {
        struct dossier *dossier = &desk->dossiers[i];
        if (!dossier->waybill || dossier->cancelled ||
            strcmp(dossier->order_id, request->order_id) != 0)
            continue;
        int rc = effect_log_write(desk->log_fd, "CANCELLED", dossier->key, dossier->order_id, err);
        if (rc)
            return rc;
        dossier->cancelled = true;
    }
    return 0; /* CancelWaybillReply is empty: packs to nothing */
}

int logistics_decide(struct logistics_desk *desk, enum logistics_method method,
                     const uint8_t *request, size_t size, int64_t mono_ms,
                     struct third_party_answer *ret_answer, struct buf *reply, struct err *err)
{
    struct third_party_answer answer = { .delay_ms = third_party_normal_delay_ms(&desk->rng) };
    int rc;
    if (method == LOGISTICS_CREATE)
        rc = decide_create(desk, request, size, mono_ms, &answer, reply, err);
    else if (method == LOGISTICS_FIND)
        rc = decide_find(desk, request, size, &answer, reply, err);
    else
        rc = decide_cancel(desk, request, size, err);
    if (rc == 0)
        *ret_answer = answer;
    return rc;
}
