/* DefinitionService: what is read, everything on the reader's thread. */
#include "rpc/service_definition.h"

#include "base/sha256.h"
#include "core/limits.h"
#include "wire/times.h"
#include "wire/validate.h"

#include <limits.h>
#include <string.h>

int definition_fill_content(struct arena *arena, const struct store_definition *stored,
                            Saga__V1__SagaDefinition **ret, struct err *err)
{
    ProtobufCMessage *content = NULL;
    int rc = wire_unpack(&saga__v1__saga_definition__descriptor, stored->content.data,
                         stored->content.size, arena, &content, err);
    if (rc) {
        if (!arena->oom)
            err->code = ERR_INTERNAL; /* these bytes are ours */
        return err_wrap(err, "stored definition");
    }
    *ret = (void *)content;
    return 0;
}

static int fill_pause(struct arena *arena, const struct store_definition *stored,
                      Saga__V1__RegisteredDefinition *message, struct err *err)
{
    if (!stored->paused_at_ms)
        return 0;
    Saga__V1__DefinitionPause *pause = reply_new(arena, &saga__v1__definition_pause__descriptor);
    Google__Protobuf__Timestamp *time = reply_new(arena, &google__protobuf__timestamp__descriptor);
    char *actor = arena_strdup(arena, stored->paused_by ? stored->paused_by : "");
    char *reason = arena_strdup(arena, stored->pause_reason ? stored->pause_reason : "");
    if (!pause || !time || !actor || !reason)
        return err_set(err, ERR_NOMEM, "definition");
    timestamp_from_ms(stored->paused_at_ms, time);
    pause->time = time;
    pause->actor = actor;
    pause->reason = reason;
    message->pause = pause;
    return 0;
}

static int fill_descriptors(struct arena *arena, const struct store_definition *stored,
                            Saga__V1__RegisteredDefinition *message, struct err *err)
{
    size_t size = stored->descriptors.size;
    if (!size)
        return 0;
    message->descriptors.data = arena_alloc(arena, size);
    if (!message->descriptors.data)
        return err_set(err, ERR_NOMEM, "definition");
    memcpy(message->descriptors.data, stored->descriptors.data, size);
    message->descriptors.len = size;
    return 0;
}

int definition_fill(struct arena *arena, const struct store_definition *stored,
                    Saga__V1__RegisteredDefinition **ret, struct err *err)
{
    Saga__V1__RegisteredDefinition *message =
        reply_new(arena, &saga__v1__registered_definition__descriptor);
    Google__Protobuf__Timestamp *created =
        reply_new(arena, &google__protobuf__timestamp__descriptor);
    if (!message || !created)
        return err_set(err, ERR_NOMEM, "definition");
    int rc = definition_fill_content(arena, stored, &message->definition, err);
    if (!rc)
        rc = fill_pause(arena, stored, message, err);
    if (!rc)
        rc = fill_descriptors(arena, stored, message, err);
    if (rc)
        return rc;
    message->revision = stored->revision;
    message->current = stored->current;
    message->open_sagas = stored->open_sagas;
    if (stored->created_at_ms) {
        timestamp_from_ms(stored->created_at_ms, created);
        message->create_time = created;
    }
    *ret = message;
    return 0;
}

int definition_check_name(const char *namespace_, const char *name, struct err *err)
{
    int rc = check_text("namespace", namespace_, 0, LIMIT_NAMESPACE_BYTES, err);
    return rc ? rc : check_text("name", name, 1, LIMIT_DEFINITION_NAME_BYTES, err);
}

/* --- GetDefinition ---------------------------------------------------------------------------- */

static void run_get(struct query *query, struct store_reader *reader)
{
    struct call *call = query->call;
    Saga__V1__GetDefinitionRequest *request = (void *)call->request;
    Saga__V1__RegisteredDefinition *reply = NULL;
    struct store_definition stored = { 0 };
    struct err err;
    int rc =
        store_reader_definition(reader, namespace_or_default(request->namespace_), request->name,
                                request->revision, request->with_descriptors, &stored, &err);
    if (!rc)
        rc = definition_fill(&call->arena, &stored, &reply, &err);
    store_definition_done(&stored);
    if (rc)
        call_fail(call, &err);
    else
        call_reply(call, &reply->base);
}

void definition_get(struct call *call)
{
    Saga__V1__GetDefinitionRequest *request = (void *)call->request;
    struct err err;
    int rc = definition_check_name(request->namespace_, request->name, &err);
    if (!rc && request->revision < 0)
        rc = err_field(&err, "revision", "revision: must not be negative: %d", request->revision);
    if (rc) {
        call_fail(call, &err);
        return;
    }
    struct query *query = query_new(call, sizeof *query, run_get);
    if (query)
        queries_post(query);
}

/* --- ListDefinitions, ListRevisions ----------------------------------------------------------- */

struct list_query {
    struct query query;
    enum page_kind kind;
    const char *namespace_; /* NULL: every one */
    const char *name;       /* of revisions */
    size_t limit;
    struct page_filter filter;
    bool has_after;
    char after[PAGE_PLACE_MAX + 1]; /* namespace, NUL, name */
    int32_t before;                 /* of revisions */
};

/* A page of either; both messages have the same fields. */
struct page {
    Saga__V1__RegisteredDefinition **items;
    size_t count;
    char *next_token; /* NULL: it is the last one */
};

static char *next_token(struct arena *arena, const struct list_query *query,
                        const struct store_definition *last)
{
    char place[PAGE_PLACE_MAX];
    if (query->kind == PAGE_REVISIONS) {
        memcpy(place, &last->revision, sizeof last->revision);
        return page_token_make(arena, query->kind, &query->filter, place, sizeof last->revision);
    }
    size_t first = strlen(last->namespace_) + 1, second = strlen(last->name);
    if (first + second > sizeof place)
        return NULL;
    memcpy(place, last->namespace_, first);
    memcpy(place + first, last->name, second);
    return page_token_make(arena, query->kind, &query->filter, place, first + second);
}

static int fill_page(struct list_query *query, const struct store_definition *stored, size_t found,
                     struct page *ret, struct err *err)
{
    struct arena *arena = &query->query.call->arena;
    ret->items = arena_array(arena, found + 1, sizeof(ProtobufCMessage *));
    if (!ret->items)
        return err_set(err, ERR_NOMEM, "definitions");
    size_t bytes = 0, count = 0;
    for (; count < found && count < query->limit; count++) {
        /* Unpacked they are several times as large: the page ends while the arena has room. */
        bytes += stored[count].content.size + 64;
        if (count && bytes > RPC_REPLY_BYTES_MAX / 8)
            break;
        int rc = definition_fill(arena, &stored[count], &ret->items[count], err);
        if (rc)
            return rc;
    }
    ret->count = count;
    if (count == found)
        return 0;
    ret->next_token = next_token(arena, query, &stored[count - 1]);
    return ret->next_token ? 0 : err_set(err, ERR_NOMEM, "definitions");
}

static void reply_page(struct list_query *query, const struct page *page)
{
    if (query->kind == PAGE_REVISIONS) {
        Saga__V1__ListRevisionsResponse reply = SAGA__V1__LIST_REVISIONS_RESPONSE__INIT;
        reply.revisions = page->items;
        reply.n_revisions = page->count;
        if (page->next_token)
            reply.next_page_token = page->next_token;
        call_reply(query->query.call, &reply.base);
        return;
    }
    Saga__V1__ListDefinitionsResponse reply = SAGA__V1__LIST_DEFINITIONS_RESPONSE__INIT;
    reply.definitions = page->items;
    reply.n_definitions = page->count;
    if (page->next_token)
        reply.next_page_token = page->next_token;
    call_reply(query->query.call, &reply.base);
}

static int read_page(const struct list_query *query, struct store_reader *reader, size_t room,
                     struct store_definition *stored, size_t *ret_found, struct err *err)
{
    if (query->kind == PAGE_DEFINITIONS)
        return store_reader_definitions(
            reader, query->namespace_, query->has_after ? query->after : NULL,
            query->has_after ? query->after + strlen(query->after) + 1 : NULL, room, stored,
            ret_found, err);
    int rc = store_reader_revisions(reader, query->namespace_, query->name, query->before, room,
                                    stored, ret_found, err);
    if (!rc && !*ret_found && query->before == INT32_MAX)
        rc = err_set(err, ERR_NOT_FOUND, "no definition %s/%s", query->namespace_, query->name);
    return rc;
}

static void run_list(struct query *base, struct store_reader *reader)
{
    struct list_query *query = CONTAINER(base, struct list_query, query);
    size_t room = query->limit + 1, found = 0;
    CLEANUP(mem_free_p) struct store_definition *stored = mem_calloc(room, sizeof *stored);
    if (!stored) {
        call_fail_memory(base->call);
        return;
    }
    struct err err;
    struct page page = { 0 };
    int rc = read_page(query, reader, room, stored, &found, &err);
    if (!rc)
        rc = fill_page(query, stored, found, &page, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        reply_page(query, &page);
    for (size_t i = 0; i < found; i++)
        store_definition_done(&stored[i]);
}

/* Where the page begins; *ret_size 0: at the beginning. */
static int read_place(struct list_query *query, const char *token,
                      uint8_t place[PAGE_PLACE_MAX + 1], size_t *ret_size, struct err *err)
{
    const char *namespace_ = query->namespace_ ? query->namespace_ : "";
    const char *name = query->name ? query->name : "";
    struct sha256_part parts[] = { { namespace_, strlen(namespace_) + (query->name ? 1 : 0) },
                                   { name, strlen(name) } };
    int rc = page_filter_make(parts, ARRAY_LEN(parts), &query->filter, err);
    return rc ? rc : page_token_read(token, query->kind, &query->filter, place, ret_size, err);
}

static int read_list(const Saga__V1__ListDefinitionsRequest *request, struct list_query *query,
                     struct err *err)
{
    int rc = check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, err);
    if (!rc)
        rc = read_page_size(request->page_size, &query->limit, err);
    query->kind = PAGE_DEFINITIONS;
    query->namespace_ = or_null(request->namespace_);
    uint8_t place[PAGE_PLACE_MAX + 1];
    size_t size = 0;
    if (!rc)
        rc = read_place(query, request->page_token, place, &size, err);
    if (rc || !size)
        return rc;
    if (!memchr(place, '\0', size))
        return err_field(err, "page_token", "page_token: is not a token of this method");
    memcpy(query->after, place, size); /* one byte longer and all zero: the name ends */
    query->has_after = true;
    return 0;
}

void definition_list(struct call *call)
{
    struct list_query *query = query_new(call, sizeof *query, run_list);
    struct err err;
    if (!query)
        return;
    if (read_list((void *)call->request, query, &err))
        call_fail(call, &err);
    else
        queries_post(&query->query);
}

static int read_revisions(const Saga__V1__ListRevisionsRequest *request, struct list_query *query,
                          struct err *err)
{
    int rc = definition_check_name(request->namespace_, request->name, err);
    if (!rc)
        rc = read_page_size(request->page_size, &query->limit, err);
    query->kind = PAGE_REVISIONS;
    query->namespace_ = namespace_or_default(request->namespace_);
    query->name = request->name;
    query->before = INT32_MAX;
    uint8_t place[PAGE_PLACE_MAX + 1];
    size_t size = 0;
    if (!rc)
        rc = read_place(query, request->page_token, place, &size, err);
    if (rc || !size)
        return rc;
    if (size != sizeof query->before)
        return err_field(err, "page_token", "page_token: is not a token of this method");
    memcpy(&query->before, place, sizeof query->before);
    return 0;
}

void definition_list_revisions(struct call *call)
{
    struct list_query *query = query_new(call, sizeof *query, run_list);
    struct err err;
    if (!query)
        return;
    if (read_revisions((void *)call->request, query, &err))
        call_fail(call, &err);
    else
        queries_post(&query->query);
}
