/* OperatorService: what people look at, asked of the reader. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "core/limits.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>
#include <string.h>

#define MARGIN_MS_DEFAULT INT64_C(3600000)
#define MARGIN_MS_MAX     (INT64_C(366) * 24 * 3600 * 1000)
enum { GROUPS_MAX = 1000 };

static Google__Protobuf__Timestamp *reply_time(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *time = reply_new(arena, &google__protobuf__timestamp__descriptor);
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

/* --- ListParked ------------------------------------------------------------------------------- */

struct parked_query {
    struct query query;
    const char *namespace_, *definition; /* NULL: every one */
};

static Saga__V1__ListParkedResponse__Group *make_group(struct arena *arena,
                                                       const struct store_parked *from)
{
    Saga__V1__ListParkedResponse__Group *group =
        reply_new(arena, &saga__v1__list_parked_response__group__descriptor);
    if (!group)
        return NULL;
    group->namespace_ = from->namespace_;
    group->definition = from->definition;
    group->step = from->step;
    group->reason = (Saga__V1__ParkReason)(int)from->reason;
    group->error_code = from->code;
    group->count = from->count;
    group->oldest_saga_id = from->oldest_saga_id;
    group->oldest_time = reply_time(arena, from->oldest_ms);
    group->phase = saga_state_to_message(from->phase);
    return group;
}

static int fill_parked(struct arena *arena, const struct store_parked *groups, size_t found,
                       Saga__V1__ListParkedResponse *reply)
{
    size_t count = found < GROUPS_MAX ? found : GROUPS_MAX;
    reply->groups = arena_array(arena, count + 1, sizeof(ProtobufCMessage *));
    if (!reply->groups)
        return -1;
    for (size_t i = 0; i < count; i++) {
        reply->groups[i] = make_group(arena, &groups[i]);
        if (!reply->groups[i])
            return -1;
    }
    reply->n_groups = count;
    reply->more = found > count;
    return arena->oom ? -1 : 0;
}

static void run_parked(struct query *base, struct store_reader *reader)
{
    struct parked_query *query = CONTAINER(base, struct parked_query, query);
    size_t found = 0;
    struct err err;
    /* one more tells whether there are further groups */
    CLEANUP(mem_free_p)
    struct store_parked *groups = mem_calloc(GROUPS_MAX + 1, sizeof *groups);
    Saga__V1__ListParkedResponse reply = SAGA__V1__LIST_PARKED_RESPONSE__INIT;
    if (!groups)
        call_fail_memory(base->call);
    else if (store_reader_parked(reader, query->namespace_, query->definition, GROUPS_MAX + 1,
                                 groups, &found, &reply.parked, &err))
        call_fail(base->call, &err);
    else if (fill_parked(&base->call->arena, groups, found, &reply))
        call_fail_memory(base->call);
    else
        call_reply(base->call, &reply.base);
    for (size_t i = 0; i < found; i++)
        store_parked_done(&groups[i]);
}

void operator_list_parked(struct call *call)
{
    const Saga__V1__ListParkedRequest *request = (void *)call->request;
    struct parked_query *query = query_new(call, sizeof *query, run_parked);
    struct err err;
    if (!query)
        return;
    if (check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, &err) ||
        check_text("definition", request->definition, 0, LIMIT_DEFINITION_NAME_BYTES, &err)) {
        call_fail(call, &err);
        return;
    }
    const char *namespace_ = namespace_or_default(request->namespace_);
    query->namespace_ = strcmp(namespace_, "-") == 0 ? NULL : namespace_;
    query->definition = or_null(request->definition);
    queries_post(&query->query);
}

/* --- GetGuardFloor ---------------------------------------------------------------------------- */

struct floor_query {
    struct query query;
    int64_t margin_ms;
};

static int fill_floor(struct arena *arena, const struct store_guard_floor *floor,
                      Saga__V1__GetGuardFloorResponse *reply)
{
    reply->floor = reply_time(arena, floor->floor_ms);
    if (floor->has_oldest) {
        char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
        reply->oldest = reply_new(arena, &saga__v1__saga_ref__descriptor);
        reply->oldest_start_time = reply_time(arena, floor->started_at_ms);
        if (!uid || !reply->oldest)
            return -1;
        uuid_format(&floor->uid, uid);
        reply->oldest->namespace_ = floor->namespace_;
        reply->oldest->definition = floor->definition;
        reply->oldest->saga_id = floor->saga_id;
        reply->oldest->run = floor->run;
        reply->oldest->uid = uid;
    }
    return arena->oom ? -1 : 0;
}

static void run_floor(struct query *base, struct store_reader *reader)
{
    struct floor_query *query = CONTAINER(base, struct floor_query, query);
    struct store_guard_floor floor = { 0 };
    struct err err;
    Saga__V1__GetGuardFloorResponse reply = SAGA__V1__GET_GUARD_FLOOR_RESPONSE__INIT;
    if (store_reader_guard_floor(reader, query->margin_ms, &floor, &err))
        call_fail(base->call, &err);
    else if (fill_floor(&base->call->arena, &floor, &reply))
        call_fail_memory(base->call);
    else
        call_reply(base->call, &reply.base);
    store_guard_floor_done(&floor);
}

void operator_get_guard_floor(struct call *call)
{
    const Saga__V1__GetGuardFloorRequest *request = (void *)call->request;
    struct floor_query *query = query_new(call, sizeof *query, run_floor);
    struct err err;
    if (!query)
        return;
    query->margin_ms = request->margin ? duration_to_ms(request->margin) : MARGIN_MS_DEFAULT;
    if (query->margin_ms >= 0 && query->margin_ms <= MARGIN_MS_MAX) {
        queries_post(&query->query);
        return;
    }
    (void)err_field(&err, "margin", "margin: must be 0 s to 366 days: %" PRId64 " ms",
                    query->margin_ms);
    call_fail(call, &err);
}
