/* StartSaga and BatchStartSagas. */
#include "rpc/request.h"

#include "base/clock.h"
#include "core/limits.h"
#include "wire/labels.h"
#include "wire/saga_codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT_AHEAD_MS = 60 * 1000 }; /* how far ahead of ours a caller's clock may be */

/* Lives in the call's arena, except for labels, and texts that were made of the input. */
struct start_call {
    struct engine_start start;
    struct call *call;
    size_t item_count;  /* of the request */
    struct err *errors; /* of each item of the request; ERR_OK: it was posted */
    bool is_batch;
};

static int read_labels(const Saga__V1__StartSagaRequest *request, char **ret, struct err *err)
{
    if (request->n_labels > LIMIT_LABELS)
        return err_field(err, "labels", "labels: has %zu, the limit is %d", request->n_labels,
                         LIMIT_LABELS);
    struct label labels[LIMIT_LABELS];
    for (size_t i = 0; i < request->n_labels; i++) {
        labels[i] = (struct label){ request->labels[i]->key, request->labels[i]->value };
        int rc = check_text("labels.key", labels[i].key, 1, LIMIT_LABEL_BYTES, err);
        if (!rc)
            rc = check_text("labels.value", labels[i].value, 1, LIMIT_LABEL_BYTES, err);
        if (rc)
            return rc;
    }
    return labels_to_json(labels, request->n_labels, ret, err);
}

/* In the past, it is at once; but it is told as it was asked for. */
static int read_start_at(const Google__Protobuf__Timestamp *message, int64_t *ret, struct err *err)
{
    if (!message)
        return 0;
    int64_t at_ms = message->seconds * 1000 + (message->nanos + 999999) / 1000000;
    int64_t ahead_ms = at_ms - clock_wall_ms(&clock_system);
    if (ahead_ms > LIMIT_START_AT_MS)
        return err_field(err, "start_at",
                         "start_at: must be at most 366 days ahead, is %" PRId64 " days",
                         ahead_ms / (24 * 3600 * INT64_C(1000)));
    *ret = at_ms > 0 ? at_ms : 0;
    return 0;
}

/* A saga that takes over. */
static int read_suspect(const Saga__V1__StartSagaRequest *request, struct start_item *item,
                        struct err *err)
{
    const Google__Protobuf__Timestamp *since = request->suspect_since;
    if (!request->suspect && (since || *request->actor))
        return err_field(err, since ? "suspect_since" : "actor", "%s: goes with suspect alone",
                         since ? "suspect_since" : "actor");
    int rc = check_text("actor", request->actor, 0, LIMIT_ACTOR_BYTES, err);
    int64_t since_ms = since ? since->seconds * 1000 + since->nanos / 1000000 : 0;
    if (!rc && since && (since_ms <= 0 || since_ms > clock_wall_ms(&clock_system) + LIMIT_AHEAD_MS))
        rc = err_field(err, "suspect_since",
                       "suspect_since: must be after 1970 and not in the future");
    item->suspect = request->suspect;
    item->suspect_since_ms = since_ms;
    item->suspect_actor = request->actor;
    return rc;
}

static int read_item(const Saga__V1__StartSagaRequest *request, size_t payload_bytes_max,
                     struct start_item *ret, struct err *err)
{
    struct start_item item = {
        .namespace_ = namespace_or_default(request->namespace_),
        .definition = request->definition,
        .saga_id = request->saga_id,
        .input = { request->input.data, request->input.len },
    };
    int rc = check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, err);
    if (!rc)
        rc = check_text("definition", item.definition, 1, LIMIT_DEFINITION_NAME_BYTES, err);
    if (!rc)
        rc = check_text("saga_id", item.saga_id, 0, LIMIT_SAGA_ID_BYTES, err);
    if (!rc && item.input.size > payload_bytes_max)
        rc = err_field(err, "input", "input: has %zu bytes, the limit is %zu", item.input.size,
                       payload_bytes_max);
    if (!rc && *request->related_saga && !uuid_parse(request->related_saga, &item.related))
        rc = err_field(err, "related_saga", "related_saga: is not a UUID");
    if (!rc)
        rc = read_start_at(request->start_at, &item.start_at_ms, err);
    if (!rc)
        rc = read_suspect(request, &item, err);
    if (rc)
        return rc;
    item.has_related = *request->related_saga != '\0';
    char *labels = NULL;
    rc = read_labels(request, &labels, err);
    if (rc)
        return rc;
    item.labels = labels;
    *ret = item;
    return 0;
}

static void free_texts(struct start_call *start_call)
{
    for (size_t i = 0; i < start_call->start.count; i++) {
        mem_free(reply_text(start_call->start.items[i].labels));
        buf_done(&start_call->start.items[i].start.made);
    }
}

static void fill_reply(const struct start_item *item, Saga__V1__StartSagaResponse *reply,
                       char uid[UUID_TEXT_SIZE])
{
    uuid_format(&item->uid, uid);
    reply->uid = uid;
    reply->existed = item->existed;
    reply->state = saga_state_to_message(item->state);
    reply->run = item->run;
    reply->revision = item->revision;
    reply->saga_id = reply_text(item->start.saga_id);
}

static void reply_one(struct start_call *start_call)
{
    const struct start_item *item = &start_call->start.items[0];
    if (item->err.code != ERR_OK) {
        call_fail(start_call->call, &item->err);
        return;
    }
    char uid[UUID_TEXT_SIZE];
    Saga__V1__StartSagaResponse reply = SAGA__V1__START_SAGA_RESPONSE__INIT;
    fill_reply(item, &reply, uid);
    call_reply(start_call->call, &reply.base);
}

typedef Saga__V1__BatchStartSagasResponse__Item reply_item;

static int fill_error(struct arena *arena, const struct err *err, reply_item *item)
{
    Saga__V1__ItemError *error = reply_new(arena, &saga__v1__item_error__descriptor);
    char *message = arena_alloc(arena, sizeof err->msg);
    if (!error || !message)
        return -1;
    status_clean_text(err->msg, message, sizeof err->msg);
    error->code = (int32_t)status_code(err->code);
    error->reason = arena_strdup(arena, status_reason(err));
    error->message = message;
    error->field = arena_strdup(arena, err->field);
    item->result_case = SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_ERROR;
    item->error = error;
    return 0;
}

static int fill_saga(struct arena *arena, const struct start_item *from, reply_item *item)
{
    Saga__V1__StartSagaResponse *saga =
        reply_new(arena, &saga__v1__start_saga_response__descriptor);
    char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    if (!saga || !uid)
        return -1;
    fill_reply(from, saga, uid);
    item->result_case = SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_SAGA;
    item->saga = saga;
    return 0;
}

static void reply_batch(struct start_call *start_call)
{
    struct call *call = start_call->call;
    struct arena *arena = &call->arena;
    size_t count = start_call->item_count, posted = 0;
    reply_item **items = arena_array(arena, count, sizeof(reply_item *));
    bool failed = !items;
    for (size_t i = 0; !failed && i < count; i++) {
        items[i] = reply_new(arena, &saga__v1__batch_start_sagas_response__item__descriptor);
        const struct err *err = &start_call->errors[i];
        const struct start_item *item = NULL;
        if (err->code == ERR_OK) {
            item = &start_call->start.items[posted++];
            err = &item->err;
        }
        failed = !items[i] || (err->code == ERR_OK ? fill_saga(arena, item, items[i])
                                                   : fill_error(arena, err, items[i]));
    }
    if (failed || arena->oom) {
        call_fail_memory(call);
        return;
    }
    Saga__V1__BatchStartSagasResponse reply = SAGA__V1__BATCH_START_SAGAS_RESPONSE__INIT;
    reply.n_items = count;
    reply.items = items;
    call_reply(call, &reply.base);
}

static void answer(struct start_call *start_call)
{
    struct call *call = start_call->call;
    call_ref(call); /* the items live in the call */
    if (start_call->is_batch)
        reply_batch(start_call);
    else
        reply_one(start_call);
    free_texts(start_call);
    call_unref(call);
}

/* On the engine's thread. */
static void on_started(struct engine_event *event)
{
    struct engine_start *start = CONTAINER(event, struct engine_start, event);
    answer(CONTAINER(start, struct start_call, start));
}

static struct start_call *start_call_new(struct call *call, size_t count, bool is_batch)
{
    struct start_call *start_call = arena_alloc(&call->arena, sizeof *start_call);
    if (!start_call)
        return NULL;
    start_call->call = call;
    start_call->is_batch = is_batch;
    start_call->item_count = count;
    start_call->start.event.kind = ENGINE_START;
    start_call->start.event.done = on_started;
    start_call->start.items = arena_array(&call->arena, count, sizeof(struct start_item));
    start_call->errors = arena_array(&call->arena, count, sizeof(struct err));
    return start_call->start.items && start_call->errors ? start_call : NULL;
}

static void post(struct start_call *start_call)
{
    struct call *call = start_call->call;
    if (!start_call->start.count) {
        answer(start_call);
        return;
    }
    if (engine_post(call->server->engine, &start_call->start.event))
        return;
    struct err err;
    if (atomic_load(&call->server->draining)) {
        (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    } else {
        (void)err_reason(&err, ERR_LIMIT, "TOO_MANY_STARTS",
                         "the engine's mailbox is full: try again later");
        err.retryable = true;
    }
    free_texts(start_call);
    call_fail(call, &err);
}

void saga_start(struct call *call)
{
    Saga__V1__StartSagaRequest *request = (void *)call->request;
    struct start_call *start_call = start_call_new(call, 1, false);
    if (!start_call) {
        call_fail_memory(call);
        return;
    }
    struct err err;
    if (read_item(request, call->server->payload_bytes_max, &start_call->start.items[0], &err)) {
        call_fail(call, &err);
        return;
    }
    start_call->start.count = 1;
    post(start_call);
}

void saga_batch_start(struct call *call)
{
    Saga__V1__BatchStartSagasRequest *request = (void *)call->request;
    size_t count = request->n_requests;
    struct err err;
    if (count < 1 || count > LIMIT_BATCH_STARTS) {
        (void)err_field(&err, "requests", "requests: must be 1 to %d: %zu", LIMIT_BATCH_STARTS,
                        count);
        call_fail(call, &err);
        return;
    }
    struct start_call *start_call = start_call_new(call, count, true);
    if (!start_call) {
        call_fail_memory(call);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct start_item *item = &start_call->start.items[start_call->start.count];
        if (!read_item(request->requests[i], call->server->payload_bytes_max, item,
                       &start_call->errors[i]))
            start_call->start.count++;
    }
    post(start_call);
}
