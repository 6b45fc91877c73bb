/* DefinitionService: everything on the reader's thread; the engine hears of new revisions. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "base/sha256.h"
#include "core/limits.h"
#include "wire/definition_codec.h"
#include "wire/times.h"
#include "wire/validate.h"

#include <string.h>

/* A stored revision as its message, in the arena; strings of `stored` are not borrowed. */
static int fill_registered(struct arena *arena, const struct store_definition *stored,
                           Saga__V1__RegisteredDefinition **ret, struct err *err)
{
    ProtobufCMessage *content = NULL;
    int rc = wire_unpack(&saga__v1__saga_definition__descriptor, stored->content.data,
                         stored->content.size, arena, &content, err);
    if (rc) {
        if (!arena->oom)
            err->code = ERR_INTERNAL; /* these bytes are ours */
        return err_wrap(err, "stored definition");
    }
    Saga__V1__RegisteredDefinition *message =
        reply_new(arena, &saga__v1__registered_definition__descriptor);
    Google__Protobuf__Timestamp *created =
        reply_new(arena, &google__protobuf__timestamp__descriptor);
    if (!message || !created)
        return err_set(err, ERR_NOMEM, "definition");
    message->definition = (void *)content;
    message->revision = stored->revision;
    message->current = stored->current;
    if (stored->created_at_ms) {
        timestamp_from_ms(stored->created_at_ms, created);
        message->create_time = created;
    }
    *ret = message;
    return 0;
}

/* --- RegisterDefinition ----------------------------------------------------------------------- */

struct definition_event {
    struct engine_definition_event event;
    char *namespace_, *name; /* owned */
};

static void definition_event_free(struct definition_event *event)
{
    mem_free(event->namespace_);
    mem_free(event->name);
    mem_free(event);
}

static void on_changed(struct engine_event *base)
{
    struct engine_definition_event *event = CONTAINER(base, struct engine_definition_event, event);
    definition_event_free(CONTAINER(event, struct definition_event, event));
}

/* The engine looks the current revision up again. Before the caller hears of the new one, so that
 * his next start takes it. */
static int tell_engine(struct engine *engine, const struct store_definition *stored,
                       struct err *err)
{
    struct definition_event *event = mem_calloc(1, sizeof *event);
    if (!event)
        return err_set(err, ERR_NOMEM, "definition");
    event->namespace_ = mem_strdup(stored->namespace_);
    event->name = mem_strdup(stored->name);
    if (!event->namespace_ || !event->name) {
        definition_event_free(event);
        return err_set(err, ERR_NOMEM, "definition");
    }
    event->event.event.kind = ENGINE_DEFINITION_CHANGED;
    event->event.event.done = on_changed;
    event->event.namespace_ = event->namespace_;
    event->event.name = event->name;
    if (!engine_post_always(engine, &event->event.event)) {
        definition_event_free(event);
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    }
    return 0;
}

static int register_checked(struct call *call, const struct definition *definition,
                            struct store_reader *reader, bool validate_only,
                            Saga__V1__RegisterDefinitionResponse *reply, struct err *err)
{
    struct bytes content = { 0 };
    int rc = definition_encode(definition, &content, err);
    if (rc)
        return rc;
    struct store_registered registered = { 0 };
    struct store_register what = { .namespace_ = definition->namespace_,
                                   .name = definition->name,
                                   .content = content,
                                   .validate_only = validate_only };
    rc = store_reader_register(reader, &what, &registered, err);
    mem_free(content.data);
    if (rc)
        return rc;
    if (!validate_only) /* also what was there: it may have become the current one */
        rc = tell_engine(call->server->engine, &registered.revision, err);
    if (!rc)
        rc = fill_registered(&call->arena, &registered.revision, &reply->registered, err);
    reply->created = registered.created && !validate_only;
    store_registered_done(&registered);
    return rc;
}

static void run_register(struct query *query, struct store_reader *reader)
{
    struct call *call = query->call;
    Saga__V1__RegisterDefinitionRequest *request = (void *)call->request;
    CLEANUP(definition_free_p) struct definition *definition = NULL;
    struct faults faults = { 0 };
    size_t count = 0;
    struct err err;
    int rc = definition_from_message(request->definition, faults_add, &faults, &definition, &count,
                                     &err);
    if (rc) {
        call_fail(call, &err);
        return;
    }
    if (count) {
        (void)err_reason(&err, ERR_INVALID, "INVALID_DEFINITION",
                         "the definition has %zu fault%s; the first: %s %s", count,
                         count == 1 ? "" : "s", faults.items[0].field, faults.items[0].text);
        call_fail_faults(call, &err, &faults);
        return;
    }
    Saga__V1__RegisterDefinitionResponse reply = SAGA__V1__REGISTER_DEFINITION_RESPONSE__INIT;
    if (register_checked(call, definition, reader, request->validate_only, &reply, &err))
        call_fail(call, &err);
    else
        call_reply(call, &reply.base);
}

void definition_register(struct call *call)
{
    Saga__V1__RegisterDefinitionRequest *request = (void *)call->request;
    struct err err;
    if (!request->definition) {
        (void)err_field(&err, "definition", "definition: is required");
        call_fail(call, &err);
        return;
    }
    struct query *query = query_new(call, sizeof *query, run_register);
    if (query)
        queries_post(query);
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
        rc = fill_registered(&call->arena, &stored, &reply, &err);
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
    int rc = check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, &err);
    if (!rc)
        rc = check_text("name", request->name, 1, LIMIT_DEFINITION_NAME_BYTES, &err);
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

/* --- ListDefinitions -------------------------------------------------------------------------- */

struct list_query {
    struct query query;
    const char *namespace_; /* NULL: every one */
    size_t limit;
    struct page_filter filter;
    bool has_after;
    char after[PAGE_PLACE_MAX + 1]; /* namespace, NUL, name */
};

static char *next_token(struct arena *arena, const struct list_query *query,
                        const struct store_definition *last)
{
    char place[PAGE_PLACE_MAX];
    size_t first = strlen(last->namespace_) + 1, second = strlen(last->name);
    if (first + second > sizeof place)
        return NULL;
    memcpy(place, last->namespace_, first);
    memcpy(place + first, last->name, second);
    return page_token_make(arena, PAGE_DEFINITIONS, &query->filter, place, first + second);
}

static int fill_list(struct list_query *query, const struct store_definition *stored, size_t found,
                     Saga__V1__ListDefinitionsResponse *reply, struct err *err)
{
    struct arena *arena = &query->query.call->arena;
    reply->definitions = arena_array(arena, found + 1, sizeof(ProtobufCMessage *));
    if (!reply->definitions)
        return err_set(err, ERR_NOMEM, "definitions");
    size_t bytes = 0, count = 0;
    for (; count < found && count < query->limit; count++) {
        /* Unpacked they are several times as large: the page ends while the arena has room. */
        bytes += stored[count].content.size + 64;
        if (count && bytes > RPC_REPLY_BYTES_MAX / 8)
            break;
        int rc = fill_registered(arena, &stored[count], &reply->definitions[count], err);
        if (rc)
            return rc;
    }
    reply->n_definitions = count;
    if (count == found)
        return 0;
    reply->next_page_token = next_token(arena, query, &stored[count - 1]);
    return reply->next_page_token ? 0 : err_set(err, ERR_NOMEM, "definitions");
}

static void run_list(struct query *base, struct store_reader *reader)
{
    struct list_query *query = CONTAINER(base, struct list_query, query);
    const char *after_namespace = query->has_after ? query->after : NULL;
    const char *after_name = query->has_after ? query->after + strlen(query->after) + 1 : NULL;
    size_t room = query->limit + 1, found = 0;
    CLEANUP(mem_free_p) struct store_definition *stored = mem_calloc(room, sizeof *stored);
    if (!stored) {
        call_fail_memory(base->call);
        return;
    }
    struct err err;
    Saga__V1__ListDefinitionsResponse reply = SAGA__V1__LIST_DEFINITIONS_RESPONSE__INIT;
    int rc = store_reader_definitions(reader, query->namespace_, after_namespace, after_name, room,
                                      stored, &found, &err);
    if (!rc)
        rc = fill_list(query, stored, found, &reply, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        call_reply(base->call, &reply.base);
    for (size_t i = 0; i < found; i++)
        store_definition_done(&stored[i]);
}

static int read_list(const Saga__V1__ListDefinitionsRequest *request, struct list_query *query,
                     struct err *err)
{
    int rc = check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, err);
    if (!rc)
        rc = read_page_size(request->page_size, &query->limit, err);
    struct sha256_part part = { request->namespace_, strlen(request->namespace_) };
    if (!rc)
        rc = page_filter_make(&part, 1, &query->filter, err);
    uint8_t place[PAGE_PLACE_MAX];
    size_t size = 0;
    if (!rc)
        rc = page_token_read(request->page_token, PAGE_DEFINITIONS, &query->filter, place, &size,
                             err);
    if (rc)
        return rc;
    query->namespace_ = *request->namespace_ ? request->namespace_ : NULL;
    if (!size)
        return 0;
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
