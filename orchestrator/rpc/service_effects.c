/* SagaService.ListEffects. */
#include "rpc/find.h"
#include "rpc/queries.h"

#include "base/sha256.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <string.h>

struct effects_query {
    struct query query;
    struct store_list list;
    struct page_filter page;
    bool has_after;
    struct store_effect_place after;
};

struct effects_place {
    struct uuid uid;
    uint8_t started_us[8];
    uint8_t step_index[8];
    uint8_t operation;
};

static Google__Protobuf__Timestamp *reply_time(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *time =
        ms ? reply_new(arena, &google__protobuf__timestamp__descriptor) : NULL;
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

static int32_t at_most(int64_t count)
{
    return count < INT32_MAX ? (int32_t)count : INT32_MAX;
}

static Saga__V1__StepEffect *make_effect(struct arena *arena, const struct store_effect *from)
{
    Saga__V1__StepEffect *effect = reply_new(arena, &saga__v1__step_effect__descriptor);
    char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    if (!effect || !uid)
        return NULL;
    uuid_format(&from->uid, uid);
    effect->uid = uid;
    effect->namespace_ = from->namespace_;
    effect->definition = from->definition;
    effect->saga_id = from->saga_id;
    effect->run = from->run;
    effect->state = saga_state_to_message(from->state);
    effect->doubt = from->doubt;
    effect->start_time = reply_time(arena, from->started_us / 1000);
    effect->step = from->step;
    effect->operation = operation_to_message(from->operation);
    effect->dispatched = at_most(from->dispatched);
    effect->sure = at_most(from->sure);
    effect->possible = at_most(from->possible);
    effect->first_time = reply_time(arena, from->first_ms);
    effect->last_time = reply_time(arena, from->last_ms);
    return effect;
}

static char *make_token(struct effects_query *query, const struct store_effect_place *after)
{
    struct effects_place place = { .uid = after->uid, .operation = (uint8_t)after->operation };
    page_number_write(after->started_us, place.started_us);
    page_number_write(after->step_index, place.step_index);
    return page_token_make(&query->query.call->arena, PAGE_EFFECTS, &query->page, &place,
                           sizeof place);
}

/* As many as were asked for and a client can receive in one message. */
static int fill_effects(struct effects_query *query, const struct store_effect *effects,
                        size_t found, const struct store_list_end *end,
                        Saga__V1__ListEffectsResponse *reply)
{
    struct arena *arena = &query->query.call->arena;
    size_t wanted = query->list.limit - 1, bytes = 0, count = 0;
    reply->effects = arena_array(arena, found + 1, sizeof(ProtobufCMessage *));
    if (!reply->effects)
        return -1;
    for (; count < found && count < wanted; count++) {
        reply->effects[count] = make_effect(arena, &effects[count]);
        if (!reply->effects[count])
            return -1;
        bytes += saga__v1__step_effect__get_packed_size(reply->effects[count]) + 8;
        if (count && bytes > RPC_REPLY_BYTES_MAX)
            break;
    }
    reply->n_effects = count;
    struct store_effect_place after = { .started_us = end->started_us,
                                        .uid = end->uid,
                                        .step_index = INT16_MAX };
    if (count < found) {
        const struct store_effect *last = &effects[count - 1];
        after = (struct store_effect_place){ last->started_us, last->uid, last->step_index,
                                             last->operation };
    } else if (!end->is_cut) {
        return arena->oom ? -1 : 0;
    }
    reply->next_page_token = make_token(query, &after);
    return reply->next_page_token && !arena->oom ? 0 : -1;
}

static void run_effects(struct query *base, struct store_reader *reader)
{
    struct effects_query *query = CONTAINER(base, struct effects_query, query);
    CLEANUP(mem_free_p)
    struct store_effect *effects = mem_calloc(query->list.limit, sizeof *effects);
    Saga__V1__ListEffectsResponse reply = SAGA__V1__LIST_EFFECTS_RESPONSE__INIT;
    struct store_list_end end = { 0 };
    size_t found = 0;
    struct err err;
    if (!effects)
        call_fail_memory(base->call);
    else if (store_reader_effects(reader, &query->list, query->has_after ? &query->after : NULL,
                                  effects, &found, &end, &err))
        call_fail(base->call, &err);
    else if (fill_effects(query, effects, found, &end, &reply))
        call_fail_memory(base->call);
    else
        call_reply(base->call, &reply.base);
    for (size_t i = 0; i < found; i++)
        store_effect_done(&effects[i]);
}

static int read_place(const char *token, struct effects_query *query, struct err *err)
{
    uint8_t raw[PAGE_PLACE_MAX];
    struct effects_place place = { 0 };
    size_t size = 0;
    int rc = page_token_read(token, PAGE_EFFECTS, &query->page, raw, &size, err);
    if (rc || !size)
        return rc;
    if (size == sizeof place)
        memcpy(&place, raw, sizeof place);
    if (size != sizeof place || place.operation >= OPERATION_COUNT)
        return err_field(err, "page_token", "page_token: is not a token of this method");
    query->has_after = true;
    query->after = (struct store_effect_place){
        .started_us = page_number_read(place.started_us),
        .uid = place.uid,
        .step_index = (int16_t)(page_number_read(place.step_index) & INT16_MAX),
        .operation = (enum operation)place.operation,
    };
    return 0;
}

static int read_effects(const Saga__V1__ListEffectsRequest *request, struct effects_query *query,
                        struct err *err)
{
    size_t page = 0;
    int rc = find_read_filter(request->filter, request->namespace_, request->definition,
                              FILTER_EFFECTS, &query->query.call->arena, &query->list.filter, err);
    if (!rc)
        rc = read_page_size(request->page_size, &page, err);
    if (rc)
        return rc;
    query->list.limit = page + 1; /* one more tells whether there is a next page */
    struct sha256_part parts[] = {
        { request->namespace_, strlen(request->namespace_) + 1 },
        { request->definition, strlen(request->definition) + 1 },
        { request->filter, strlen(request->filter) + 1 },
    };
    rc = page_filter_make(parts, ARRAY_LEN(parts), &query->page, err);
    return rc ? rc : read_place(request->page_token, query, err);
}

void saga_list_effects(struct call *call)
{
    struct effects_query *query = query_new(call, sizeof *query, run_effects);
    struct err err;
    if (!query)
        return;
    if (read_effects((void *)call->request, query, &err))
        call_fail(call, &err);
    else
        queries_post(&query->query);
}
