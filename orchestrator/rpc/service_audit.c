/* OperatorService: ListAudit. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "base/sha256.h"
#include "core/limits.h"
#include "store/reader_audit.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <saga/v1/operator.pb-c.h>
#include <stdio.h>
#include <string.h>

enum { VERBS_MAX = 32, VERB_BYTES_MAX = 64 };

struct audit_query {
    struct query query;
    struct store_audit_filter filter;
    struct store_ref saga;
    struct page_filter page;
};

/* The place as it stands in a token. */
struct audit_place {
    uint8_t at_us[8], id[sizeof(struct uuid)], seq[8];
};

static void int_write(int64_t value, uint8_t ret[8])
{
    for (size_t i = 0; i < 8; i++)
        ret[i] = (uint8_t)((uint64_t)value >> (56 - 8 * i));
}

static int64_t int_read(const uint8_t from[8])
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++)
        value = value << 8 | from[i];
    return (int64_t)value;
}

static void add_saga(struct arena *arena, const struct store_audit_line *line,
                     Saga__V1__AuditEntry *entry)
{
    char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    entry->saga = reply_new(arena, &saga__v1__saga_ref__descriptor);
    if (!uid || !entry->saga)
        return;
    uuid_format(&line->saga_uid, uid);
    entry->saga->namespace_ = line->namespace_;
    entry->saga->definition = line->definition;
    entry->saga->saga_id = line->saga_id;
    entry->saga->run = line->run;
    entry->saga->uid = uid;
}

/* Strings borrow from the line; NULL when the arena is full. */
static Saga__V1__AuditEntry *make_entry(struct arena *arena, const struct store_audit_line *line)
{
    Saga__V1__AuditEntry *entry = reply_new(arena, &saga__v1__audit_entry__descriptor);
    enum operation operation;
    if (!entry)
        return NULL;
    entry->time = reply_new(arena, &google__protobuf__timestamp__descriptor);
    if (entry->time)
        timestamp_from_ms(line->place.at_us / 1000, entry->time);
    entry->verb = line->verb;
    entry->actor = line->actor;
    entry->reason = line->reason;
    entry->step = line->step;
    if (line->operation && operation_parse(line->operation, &operation))
        entry->operation = operation_to_message(operation);
    entry->seq = line->place.seq;
    entry->namespace_ = line->namespace_;
    entry->definition = line->definition;
    entry->subject = line->subject;
    entry->detail = line->detail;
    if (line->has_saga)
        add_saga(arena, line, entry);
    return arena->oom ? NULL : entry;
}

static char *make_token(struct audit_query *query, const struct store_audit_place *next)
{
    struct audit_place place;
    int_write(next->at_us, place.at_us);
    memcpy(place.id, next->id.bytes, sizeof place.id);
    int_write(next->seq, place.seq);
    return page_token_make(&query->query.call->arena, PAGE_AUDIT, &query->page, &place,
                           sizeof place);
}

/* As many as a client can receive in one message. */
static int fill(struct audit_query *query, const struct store_audit_line *lines, size_t found,
                bool more, const struct store_audit_place *next, Saga__V1__ListAuditResponse *reply)
{
    struct arena *arena = &query->query.call->arena;
    size_t bytes = 0, count = 0;
    reply->entries = arena_array(arena, found + 1, sizeof(ProtobufCMessage *));
    if (!reply->entries)
        return -1;
    for (; count < found; count++) {
        reply->entries[count] = make_entry(arena, &lines[count]);
        if (!reply->entries[count])
            return -1;
        bytes += saga__v1__audit_entry__get_packed_size(reply->entries[count]) + 8;
        if (count && bytes > RPC_REPLY_BYTES_MAX)
            break;
    }
    reply->n_entries = count;
    if (count == found && !more)
        return 0;
    reply->next_page_token = make_token(query, count == found ? next : &lines[count - 1].place);
    return reply->next_page_token ? 0 : -1;
}

static void run_audit(struct query *base, struct store_reader *reader)
{
    struct audit_query *query = CONTAINER(base, struct audit_query, query);
    struct store_audit_place next;
    size_t found = 0;
    bool more = false;
    struct err err;
    CLEANUP(mem_free_p)
    struct store_audit_line *lines = mem_calloc(query->filter.limit, sizeof *lines);
    Saga__V1__ListAuditResponse reply = SAGA__V1__LIST_AUDIT_RESPONSE__INIT;
    if (!lines)
        call_fail_memory(base->call);
    else if (store_reader_audit(reader, &query->filter, lines, &found, &more, &next, &err))
        call_fail(base->call, &err);
    else if (fill(query, lines, found, more, &next, &reply))
        call_fail_memory(base->call);
    else
        call_reply(base->call, &reply.base);
    for (size_t i = 0; i < found; i++)
        store_audit_line_done(&lines[i]);
}

static int read_time(const char *field, const Google__Protobuf__Timestamp *message, int64_t *ret,
                     struct err *err)
{
    if (!message)
        return 0;
    if (!timestamp_is_valid(message) || message->seconds < 0)
        return err_field(err, field, "%s: is no time after 1970", field);
    *ret = message->seconds * 1000 + message->nanos / 1000000;
    return 0;
}

static int read_verbs(const Saga__V1__ListAuditRequest *request, struct err *err)
{
    int rc = 0;
    if (request->n_verbs > VERBS_MAX)
        rc =
            err_field(err, "verbs", "verbs: has %zu, the limit is %d", request->n_verbs, VERBS_MAX);
    for (size_t i = 0; !rc && i < request->n_verbs; i++)
        rc = check_text("verbs", request->verbs[i], 1, VERB_BYTES_MAX, err);
    return rc;
}

static int read_filter(const Saga__V1__ListAuditRequest *request, struct audit_query *query,
                       struct err *err)
{
    struct store_audit_filter *filter = &query->filter;
    int rc = check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, err);
    if (!rc)
        rc = check_text("definition", request->definition, 0, LIMIT_DEFINITION_NAME_BYTES, err);
    if (!rc)
        rc = check_text("actor", request->actor, 0, LIMIT_ACTOR_BYTES, err);
    if (!rc)
        rc = read_verbs(request, err);
    if (!rc && request->saga)
        rc = read_ref(request->saga, &query->saga, err);
    if (!rc)
        rc = read_time("since", request->since, &filter->since_ms, err);
    if (!rc)
        rc = read_time("until", request->until, &filter->until_ms, err);
    if (!rc)
        rc = read_page_size(request->page_size, &filter->limit, err);
    filter->actor = or_null(request->actor);
    filter->namespace_ =
        strcmp(request->namespace_, "-") == 0 ? NULL : or_null(request->namespace_);
    filter->definition = or_null(request->definition);
    filter->verbs = (const char *const *)request->verbs;
    filter->verb_count = request->n_verbs;
    filter->saga = request->saga ? &query->saga : NULL;
    return rc;
}

/* What is asked for but page_size and page_token. */
static int read_page(const Saga__V1__ListAuditRequest *request, struct audit_query *query,
                     struct err *err)
{
    Saga__V1__ListAuditRequest asked = *request;
    uint8_t raw[PAGE_PLACE_MAX];
    size_t size = 0;
    asked.page_size = 0;
    asked.page_token = reply_text("");
    size_t packed_size = saga__v1__list_audit_request__get_packed_size(&asked);
    CLEANUP(mem_free_p) uint8_t *bytes = mem_calloc(1, packed_size + 1);
    if (!bytes)
        return err_set(err, ERR_NOMEM, "page token");
    (void)saga__v1__list_audit_request__pack(&asked, bytes);
    struct sha256_part part = { bytes, packed_size };
    int rc = page_filter_make(&part, 1, &query->page, err);
    if (!rc)
        rc = page_token_read(request->page_token, PAGE_AUDIT, &query->page, raw, &size, err);
    struct audit_place place;
    if (!rc && size && size != sizeof place)
        rc = err_field(err, "page_token", "page_token: is not a token of this method");
    if (rc || !size)
        return rc;
    memcpy(&place, raw, sizeof place);
    struct store_audit_place *before = &query->filter.before;
    before->at_us = int_read(place.at_us);
    memcpy(before->id.bytes, place.id, sizeof place.id);
    before->seq = int_read(place.seq);
    query->filter.has_before = true;
    return 0;
}

void operator_list_audit(struct call *call)
{
    const Saga__V1__ListAuditRequest *request = (void *)call->request;
    struct audit_query *query = query_new(call, sizeof *query, run_audit);
    struct err err;
    if (!query)
        return;
    if (read_filter(request, query, &err) || read_page(request, query, &err)) {
        call_fail(call, &err);
        return;
    }
    queries_post(&query->query);
}
