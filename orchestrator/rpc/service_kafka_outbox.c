/* KafkaService: the way out, and the events that the topic refuses. */
#include "rpc/service_kafka.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_ID_SIZE = UUID_TEXT_SIZE + 24 }; /* "UID/SEQ/PART": the row in the outbox */

static Saga__V1__Outbox__Refused *make_refused(struct arena *arena,
                                               const struct store_outbox_refused *from)
{
    Saga__V1__Outbox__Refused *to = reply_new(arena, &saga__v1__outbox__refused__descriptor);
    char *id = arena_alloc(arena, EVENT_ID_SIZE), *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    if (!to || !id || !uid)
        return NULL;
    uuid_format(&from->id.uid, uid);
    (void)snprintf(id, EVENT_ID_SIZE, "%s/%" PRId64 "/%d", uid, from->id.seq, (int)from->id.part);
    to->event_id = id;
    if (!from->handler)
        to->saga_uid = uid;
    to->namespace_ = kafka_text(from->namespace_);
    to->definition = kafka_text(from->definition);
    to->saga_id = kafka_text(from->saga_id);
    to->handler = kafka_text(from->handler);
    to->event_time = kafka_time(arena, from->waits_since_ms);
    to->refuse_time = kafka_time(arena, from->refused_at_ms);
    to->refusals = from->refusals;
    to->error = kafka_text(from->error);
    return to;
}

int kafka_fill_outbox(struct arena *arena, const struct store_outbox_status *stored,
                      Saga__V1__Outbox **ret)
{
    Saga__V1__Outbox *outbox = reply_new(arena, &saga__v1__outbox__descriptor);
    if (!outbox)
        return -1;
    outbox->relays = arena_array(arena, stored->relay_count + 1, sizeof(ProtobufCMessage *));
    outbox->refused = arena_array(arena, stored->refused_count + 1, sizeof(ProtobufCMessage *));
    if (!outbox->relays || !outbox->refused)
        return -1;
    for (size_t i = 0; i < stored->relay_count; i++) {
        const struct store_outbox_relay *from = &stored->relays[i];
        Saga__V1__Outbox__Relay *to = reply_new(arena, &saga__v1__outbox__relay__descriptor);
        if (!to)
            return -1;
        to->node = from->node;
        to->published = from->published;
        to->refused = from->refused;
        to->problem = kafka_text(from->problem);
        outbox->relays[outbox->n_relays++] = to;
    }
    for (size_t i = 0; i < stored->refused_count; i++) {
        Saga__V1__Outbox__Refused *to = make_refused(arena, &stored->refused[i]);
        if (!to)
            return -1;
        outbox->refused[outbox->n_refused++] = to;
    }
    outbox->waiting = stored->waits;
    outbox->more_refused = stored->more_refused;
    *ret = outbox;
    return arena->oom ? -1 : 0;
}

/* --- PublishOutboxEvent, DiscardOutboxEvent --------------------------------------------------- */

struct event_query {
    struct query query;
    struct store_outbox_decision what;
};

static void run_decide(struct query *base, struct store_reader *reader)
{
    const struct store_outbox_decision *what = &CONTAINER(base, struct event_query, query)->what;
    Saga__V1__PublishOutboxEventResponse published = SAGA__V1__PUBLISH_OUTBOX_EVENT_RESPONSE__INIT;
    Saga__V1__DiscardOutboxEventResponse discarded = SAGA__V1__DISCARD_OUTBOX_EVENT_RESPONSE__INIT;
    struct err err;
    if (store_reader_outbox_decide(reader, what, &err))
        call_fail(base->call, &err);
    else
        call_reply(base->call, what->discard ? &discarded.base : &published.base);
}

static bool read_number(const char **at, int64_t most, int64_t *ret)
{
    char *end;
    size_t digits = **at == '/' ? strspn(*at + 1, "0123456789") : 0;
    if (!digits || digits > 18)
        return false;
    *ret = strtoll(*at + 1, &end, 10);
    *at = end;
    return *ret <= most;
}

/* As make_refused writes it, or the event's id as it is in the log and would be on the topic, which
 * has the epoch in its number. */
static bool read_event_id(const char *text, struct store_event_id *ret)
{
    char uid[UUID_TEXT_SIZE];
    int64_t part;
    if (strlen(text) < UUID_TEXT_SIZE)
        return false;
    memcpy(uid, text, UUID_TEXT_SIZE - 1);
    uid[UUID_TEXT_SIZE - 1] = '\0';
    const char *at = text + UUID_TEXT_SIZE - 1;
    if (!uuid_parse(uid, &ret->uid) || !read_number(&at, INT64_MAX, &ret->seq) ||
        !read_number(&at, STORE_EVENT_PART_COUNT - 1, &part) || *at)
        return false;
    ret->seq = fence_seq(ret->seq);
    ret->part = (enum store_event_part)part;
    return true;
}

static void decide(struct call *call, bool discard, const char *event_id, const char *actor,
                   const char *reason)
{
    struct event_query *query = query_new(call, sizeof *query, run_decide);
    struct err err;
    if (!query)
        return;
    int rc = read_event_id(event_id, &query->what.id)
                 ? kafka_check_words(actor, reason, &err)
                 : err_field(&err, "event_id",
                             "event_id: is required, as Outbox.Refused has it: UID/ENTRY/PART");
    if (rc) {
        call_fail(call, &err);
        return;
    }
    query->what.discard = discard;
    query->what.actor = actor;
    query->what.reason = reason;
    queries_post(&query->query);
}

void kafka_publish_event(struct call *call)
{
    const Saga__V1__PublishOutboxEventRequest *request = (void *)call->request;
    decide(call, false, request->event_id, request->actor, request->reason);
}

void kafka_discard_event(struct call *call)
{
    const Saga__V1__DiscardOutboxEventRequest *request = (void *)call->request;
    decide(call, true, request->event_id, request->actor, request->reason);
}
