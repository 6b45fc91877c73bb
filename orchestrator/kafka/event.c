#include "kafka/event.h"

#include "wire/json_scalars.h"
#include "wire/labels.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <inttypes.h>
#include <saga/v1/event.pb-c.h>
#include <stdio.h>
#include <string.h>

static const struct kind {
    Saga__V1__SagaEvent__Kind kind;
    const char *type; /* ce_type */
} kinds[] = {
    { SAGA__V1__SAGA_EVENT__KIND__KIND_STARTED, "saga.v1.started" },
    { SAGA__V1__SAGA_EVENT__KIND__KIND_ATTEMPT_ENDED, "saga.v1.attempt_ended" },
    { SAGA__V1__SAGA_EVENT__KIND__KIND_DECIDED, "saga.v1.decided" },
    { SAGA__V1__SAGA_EVENT__KIND__KIND_PARKED, "saga.v1.parked" },
    { SAGA__V1__SAGA_EVENT__KIND__KIND_ENDED, "saga.v1.ended" },
};

static const struct change {
    Saga__V1__HandlerEvent__Change change;
    const char *type; /* ce_type */
} changes[HANDLER_EVENT_COUNT] = {
    [HANDLER_EVENT_HELD] = { SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_HELD, "saga.v1.handler_held" },
    [HANDLER_EVENT_RELEASED] = { SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_RELEASED,
                                 "saga.v1.handler_released" },
    [HANDLER_EVENT_LIMITED] = { SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_LIMITED,
                                "saga.v1.handler_limited" },
    [HANDLER_EVENT_DRAINED] = { SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_DRAINED,
                                "saga.v1.handler_drained" },
};

static const struct kind *kind_of(const struct store_event *event)
{
    enum { STARTED, ATTEMPT_ENDED, DECIDED, PARKED, ENDED };
    if (event->id.part != STORE_EVENT_ENTRY)
        return &kinds[event->id.part == STORE_EVENT_START ? STARTED : ENDED];
    if (event->entry.kind == ENTRY_LEASE)
        return &kinds[ATTEMPT_ENDED];
    return &kinds[event->entry.kind == ENTRY_PARK ? PARKED : DECIDED];
}

static Saga__V1__SagaState state_of(const struct store_event *event)
{
    if (event->id.part == STORE_EVENT_START)
        return saga_state_to_message(SAGA_RUNNING);
    if (event->id.part == STORE_EVENT_END)
        return saga_state_to_message(event->saga.state);
    return event->entry.kind == ENTRY_PARK ? saga_state_to_message(SAGA_PARKED)
                                           : SAGA__V1__SAGA_STATE__SAGA_STATE_UNSPECIFIED;
}

void event_id(const struct store_event_id *id, char ret[EVENT_ID_SIZE])
{
    char uid[UUID_TEXT_SIZE];
    uuid_format(&id->uid, uid);
    (void)snprintf(ret, EVENT_ID_SIZE, "%s/%" PRId64 "/%d", uid, fence_make(id->epoch, id->seq),
                   (int)id->part);
}

static char *uid_text(struct arena *arena, const struct uuid *uid)
{
    char *text = arena_alloc(arena, UUID_TEXT_SIZE);
    if (text)
        uuid_format(uid, text);
    return text;
}

static Google__Protobuf__Timestamp *time_message(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *message = arena_alloc(arena, sizeof *message);
    if (message) {
        google__protobuf__timestamp__init(message);
        timestamp_from_ms(ms, message);
    }
    return message;
}

/* Messages never write to their text, but protobuf-c has it without const. */
static char *text(const char *value)
{
    union {
        const char *in;
        char *out;
    } cast = { .in = value };
    return cast.out;
}

static int fill_labels(struct arena *arena, const char *json, Saga__V1__SagaEvent *message,
                       struct err *err)
{
    struct label *labels = NULL;
    size_t count = 0;
    if (labels_from_json(arena, json, &labels, &count, err) != 0)
        return (int)err->code;
    message->labels = arena_array(arena, count, sizeof(ProtobufCMessage *));
    for (size_t i = 0; i < count && message->labels; i++) {
        Saga__V1__SagaEvent__LabelsEntry *entry = arena_alloc(arena, sizeof *entry);
        if (!entry)
            return 0; /* the arena knows */
        saga__v1__saga_event__labels_entry__init(entry);
        entry->key = text(labels[i].key);
        entry->value = text(labels[i].value);
        message->labels[message->n_labels++] = entry;
    }
    return 0;
}

/* Without what is not the same at every time: a lease may go on while it runs. */
static int fill_entry(struct arena *arena, const struct store_event *event,
                      Saga__V1__SagaEvent *message, struct err *err)
{
    if (journal_entry_to_message(arena, NULL, &event->entry, &message->entry, err) != 0)
        return (int)err->code;
    message->entry->step = event->step;
    message->entry->attempt_until_time = NULL;
    message->entry->lease_until_time = NULL;
    return 0;
}

static int fill_saga(struct arena *arena, const struct store_event *event,
                     Saga__V1__SagaEvent *message, struct err *err)
{
    const struct saga_row *saga = &event->saga;
    message->kind = kind_of(event)->kind;
    message->uid = uid_text(arena, &saga->uid);
    message->namespace_ = saga->namespace_;
    message->definition = saga->definition;
    message->revision = saga->revision;
    message->saga_id = saga->saga_id;
    message->run = saga->run;
    message->start_time = time_message(arena, saga->started_at_ms);
    message->state = state_of(event);
    if (saga->has_related)
        message->related_saga = uid_text(arena, &saga->related);
    if (fill_labels(arena, saga->labels, message, err) != 0)
        return (int)err->code;
    bool has_entry = event->id.part == STORE_EVENT_ENTRY;
    return has_entry ? fill_entry(arena, event, message, err) : 0;
}

static Saga__V1__Rate *rate_message(struct arena *arena, int64_t milli)
{
    Saga__V1__Rate *message = milli ? arena_alloc(arena, sizeof *message) : NULL;
    if (message) {
        saga__v1__rate__init(message);
        rate_from_milli(milli, message);
    }
    return message;
}

static void fill_handler(struct arena *arena, const struct store_event *event,
                         Saga__V1__SagaEvent *message)
{
    const struct store_handler_event *from = &event->handler;
    Saga__V1__HandlerEvent *to = arena_alloc(arena, sizeof *to);
    message->kind = SAGA__V1__SAGA_EVENT__KIND__KIND_HANDLER;
    message->handler = to;
    if (!to)
        return; /* the arena knows */
    saga__v1__handler_event__init(to);
    to->handler = from->handler;
    to->version = event->id.seq;
    to->change = changes[from->kind].change;
    to->hold = (Saga__V1__Handler__Hold)(int)from->hold;
    to->release_rate = rate_message(arena, from->release_rate_milli);
    to->rate = rate_message(arena, from->rate_milli);
    to->cap = from->cap;
    to->actor = from->actor;
    to->reason = from->reason;
    if (from->has_waiting) {
        to->_waiting_case = SAGA__V1__HANDLER_EVENT___WAITING_WAITING;
        to->waiting = from->waiting;
    }
}

static int fill(struct arena *arena, const struct store_event *event, Saga__V1__SagaEvent *message,
                struct err *err)
{
    saga__v1__saga_event__init(message);
    message->id = arena_alloc(arena, EVENT_ID_SIZE);
    if (message->id)
        event_id(&event->id, message->id);
    message->time = time_message(arena, event->time_ms);
    message->epoch = event->id.epoch;
    if (event->id.part != STORE_EVENT_HANDLER)
        return fill_saga(arena, event, message, err);
    fill_handler(arena, event, message);
    return 0;
}

static char *source(struct arena *arena, const struct store_event *event)
{
    const struct saga_row *saga = &event->saga;
    if (event->id.part == STORE_EVENT_HANDLER)
        return text("/sagad"); /* a handler is in no namespace */
    size_t size = strlen(saga->namespace_) + strlen(saga->definition) + sizeof "/sagad//";
    char *out = arena_alloc(arena, size);
    if (out)
        (void)snprintf(out, size, "/sagad/%s/%s", saga->namespace_, saga->definition);
    return out;
}

static char *time_text(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    char *out = arena_alloc(arena, JSON_TIME_SIZE);
    timestamp_from_ms(ms, &time);
    /* a time of the database's clock has a year of four digits */
    return out && json_timestamp_write(time.seconds, time.nanos, out) ? out : NULL;
}

int event_record(struct arena *arena, const struct store_event *event, struct producer_record *ret,
                 struct err *err)
{
    Saga__V1__SagaEvent message;
    if (fill(arena, event, &message, err) != 0)
        return (int)err->code;
    bool of_handler = event->id.part == STORE_EVENT_HANDLER;
    char *subject = of_handler ? event->handler.handler : event->saga.saga_id;
    const struct producer_record record = {
        .key = { (uint8_t *)subject, strlen(subject) },
        .timestamp_ms = event->time_ms,
        .headers = { { "ce_specversion", "1.0" },
                     { "ce_id", message.id },
                     { "ce_source", source(arena, event) },
                     { "ce_type",
                       of_handler ? changes[event->handler.kind].type : kind_of(event)->type },
                     { "ce_subject", subject },
                     { "ce_time", time_text(arena, event->time_ms) },
                     { "content-type", "application/protobuf" } },
    };
    size_t size = arena->oom ? 0 : saga__v1__saga_event__get_packed_size(&message);
    uint8_t *data = arena->oom ? NULL : arena_alloc(arena, size);
    if (!data)
        return err_set(err, ERR_NOMEM, "event: out of memory");
    (void)saga__v1__saga_event__pack(&message, data); /* always writes `size` bytes */
    *ret = record;
    ret->value = (struct bytes){ data, size };
    return 0;
}
