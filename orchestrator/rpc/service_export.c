/* OperatorService: ExportAttempts. A page is made on the reader's thread, saga by saga: each is
 * loaded, replayed by its own revision, told, and gone before the next one. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "base/sha256.h"
#include "core/limits.h"
#include "core/view.h"
#include "dispatch/key.h"
#include "schema/definition_types.h"
#include "store/reader_export.h"
#include "wire/definition_codec.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <saga/v1/operator.pb-c.h>
#include <string.h>

enum { FENCES_MAX = 1000, KEYS_MAX = 100, REVISIONS_MAX = 100 };

struct export_query {
    struct query query;
    struct store_attempts_filter filter;
    struct page_filter page;
    bool with_payloads;
    struct store_reader *reader; /* while it runs */
    bool in_page;                /* within the page's snapshot */
    /* Of the revisions that were met; all of the page, and then gone. */
    struct definition *definitions[REVISIONS_MAX];
    size_t definition_count;
    Saga__V1__ExportAttemptsResponse reply;
    size_t bytes;
};

/* The place as it stands in a token. */
struct export_place {
    uint8_t started_us[8];
    struct uuid uid;
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

/* --- revisions -------------------------------------------------------------------------------- */

static int decode(const struct store_definition *stored, struct definition **ret, struct err *err)
{
    struct definition *definition = NULL;
    int rc = definition_decode(&stored->content, &definition, err);
    if (!rc && stored->descriptors.size)
        rc = definition_types_add(definition, &stored->descriptors, err);
    if (rc)
        definition = definition_free(definition);
    else
        definition->revision = stored->revision;
    *ret = definition;
    return rc;
}

static int fetch(struct store_reader *reader, const char *namespace_, const char *name,
                 int32_t revision, struct store_definition *ret, struct err *err)
{
    return store_reader_definition(reader, namespace_, name, revision, true, ret, err);
}

static int definition_of(struct export_query *query, int32_t revision, struct definition **ret,
                         struct err *err)
{
    for (size_t i = 0; i < query->definition_count; i++)
        if (query->definitions[i]->revision == revision) {
            *ret = query->definitions[i];
            return 0;
        }
    if (query->definition_count ==
        REVISIONS_MAX) /* the page goes on with those that are met next */
        (void)definition_free(query->definitions[--query->definition_count]);
    struct store_definition stored = { 0 };
    int rc = (query->in_page ? store_attempts_definition : fetch)(
        query->reader, query->filter.namespace_, query->filter.definition, revision, &stored, err);
    if (!rc)
        rc = decode(&stored, ret, err);
    store_definition_done(&stored);
    if (!rc)
        query->definitions[query->definition_count++] = *ret;
    return rc;
}

/* --- one saga --------------------------------------------------------------------------------- */

static Google__Protobuf__Timestamp *time_of(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *time =
        ms ? reply_new(arena, &google__protobuf__timestamp__descriptor) : NULL;
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

static ProtobufCBinaryData bytes_copy(struct arena *arena, const struct bytes *bytes)
{
    ProtobufCBinaryData copy = { 0, NULL };
    if (bytes->size && (copy.data = arena_alloc(arena, bytes->size))) {
        memcpy(copy.data, bytes->data, bytes->size);
        copy.len = bytes->size;
    }
    return copy;
}

/* The first and the last of very many. */
static int add_fences(struct arena *arena, const struct saga *saga, size_t step,
                      const struct operation_view *view, enum operation operation,
                      Saga__V1__ExportedOperation *item)
{
    size_t attempts = (size_t)view->attempts, at = 0;
    size_t left_out = attempts > FENCES_MAX ? attempts - FENCES_MAX : 0;
    item->fences = arena_array(arena, attempts + 1, sizeof *item->fences);
    if (!item->fences)
        return -1;
    for (int64_t seq = 1; seq <= saga_last_seq(saga); seq++) {
        const struct journal_entry *entry = saga_entry(saga, seq);
        if (entry->kind != ENTRY_LEASE || entry->step != (int)step ||
            entry->operation != operation || entry->outcome == OUTCOME_RELEASED)
            continue;
        if (at < FENCES_MAX / 2 || at >= FENCES_MAX / 2 + left_out)
            item->fences[item->n_fences++] = entry->fence;
        at++;
    }
    return 0;
}

static int add_keys(struct arena *arena, const struct saga *saga, size_t step,
                    const struct operation_view *view, enum operation operation,
                    Saga__V1__ExportedOperation *item)
{
    int32_t first = view->generations > KEYS_MAX ? view->generations - KEYS_MAX : 0;
    item->idempotency_keys = arena_array(arena, KEYS_MAX + 1, sizeof(char *));
    if (!item->idempotency_keys)
        return -1;
    for (int32_t generation = first; generation < view->generations; generation++) {
        char key[OPERATION_KEY_SIZE];
        if (operation_key(saga, step, operation, generation, key))
            return -1;
        char *copy = arena_strdup(arena, key);
        if (!copy)
            return -1;
        item->idempotency_keys[item->n_idempotency_keys++] = copy;
    }
    return 0;
}

static Saga__V1__ErrorInfo *error_of(struct arena *arena, const struct journal_entry *entry)
{
    if (!entry->error_code && !entry->error_message)
        return NULL;
    Saga__V1__ErrorInfo *error = reply_new(arena, &saga__v1__error_info__descriptor);
    if (!error)
        return NULL;
    error->code = entry->error_code ? arena_strdup(arena, entry->error_code) : NULL;
    error->message = entry->error_message ? arena_strdup(arena, entry->error_message) : NULL;
    return error;
}

/* NULL: memory. */
static Saga__V1__ExportedOperation *make_item(const struct export_query *query,
                                              const struct saga *saga, size_t step)
{
    struct arena *arena = &query->query.call->arena;
    enum operation operation = query->filter.operation;
    const struct saga_row *row = saga_row(saga);
    Saga__V1__ExportedOperation *item = reply_new(arena, &saga__v1__exported_operation__descriptor);
    char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    if (!item || !uid)
        return NULL;
    struct operation_view view;
    saga_operation_view(saga, step, operation, &view);
    uuid_format(&row->uid, uid);
    item->uid = uid;
    item->saga_id = arena_strdup(arena, row->saga_id);
    item->run = row->run;
    item->revision = row->revision;
    item->saga_state = saga_state_to_message(row->state);
    item->outcome = (Saga__V1__ExportedOperation__Outcome)((int)view.outcome + 1);
    item->attempts = view.attempts;
    item->unknown_attempts = view.unknown;
    if (view.first) {
        item->first_dispatch_time = time_of(arena, view.first->leased_at_ms);
        item->last_dispatch_time = time_of(arena, view.last->leased_at_ms);
        item->last_end_time = time_of(arena, view.last->finished_at_ms);
        item->last_error = error_of(arena, view.last);
    }
    if (query->with_payloads) {
        item->input = bytes_copy(arena, &row->input);
        item->output = bytes_copy(arena, &view.output);
    }
    if (add_fences(arena, saga, step, &view, operation, item) ||
        add_keys(arena, saga, step, &view, operation, item))
        return NULL;
    return arena->oom ? NULL : item;
}

static void begin(void *ctx)
{
    struct export_query *query = ctx;
    query->in_page = true;
    query->reply.n_operations = 0;
    query->bytes = 0;
}

static int add_saga(void *ctx, struct store_saga *stored, bool *ret_more, struct err *err)
{
    struct export_query *query = ctx;
    struct definition *definition = NULL;
    struct saga *saga = NULL;
    *ret_more = true;
    int rc = definition_of(query, stored->row.revision, &definition, err);
    if (!rc)
        rc =
            saga_replay(definition, &stored->row, stored->entries, stored->entry_count, &saga, err);
    if (rc)
        return rc;
    int step = definition_step_find(definition, query->filter.step);
    Saga__V1__ExportedOperation *item = step < 0 ? NULL : make_item(query, saga, (size_t)step);
    (void)saga_free(saga); /* always NULL */
    if (!item)
        return err_set(err, ERR_NOMEM, "export");
    query->bytes += saga__v1__exported_operation__get_packed_size(item) + 8;
    if (query->reply.n_operations && query->bytes > RPC_REPLY_BYTES_MAX)
        *ret_more = false; /* the next page begins with it */
    else
        query->reply.operations[query->reply.n_operations++] = item;
    return 0;
}

/* --- the page --------------------------------------------------------------------------------- */

/* A step that no revision has would make an empty export of a wrong question. */
static int check_step(struct export_query *query, struct err *err)
{
    const struct store_attempts_filter *filter = &query->filter;
    struct definition *definition = NULL;
    int rc = definition_of(query, 0, &definition, err);
    if (rc || definition_step_find(definition, filter->step) >= 0)
        return rc;
    for (int32_t revision = definition->revision - 1; revision >= 1; revision--) {
        rc = definition_of(query, revision, &definition, err);
        if (rc && err->code != ERR_NOT_FOUND)
            return rc;
        if (!rc && definition_step_find(definition, filter->step) >= 0)
            return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "no revision of %s has a step \"%s\"", filter->definition,
                   filter->step);
}

static int make_page(struct export_query *query, struct err *err)
{
    struct arena *arena = &query->query.call->arena;
    struct store_attempts_place next;
    bool more = false;
    int rc = query->filter.has_after ? 0 : check_step(query, err);
    if (!rc)
        rc = store_reader_attempts(query->reader, &query->filter, add_saga, begin, query, &more,
                                   &next, err);
    if (rc || !more)
        return rc;
    struct export_place place = { .uid = next.uid };
    int_write(next.started_us, place.started_us);
    query->reply.next_page_token =
        page_token_make(arena, PAGE_ATTEMPTS, &query->page, &place, sizeof place);
    return query->reply.next_page_token ? 0 : err_set(err, ERR_NOMEM, "export");
}

static void run_export(struct query *base, struct store_reader *reader)
{
    struct export_query *query = CONTAINER(base, struct export_query, query);
    struct err err;
    query->reader = reader;
    saga__v1__export_attempts_response__init(&query->reply);
    query->reply.operations =
        arena_array(&base->call->arena, query->filter.limit + 1, sizeof(ProtobufCMessage *));
    bool no_memory = !query->reply.operations;
    int rc = no_memory ? 0 : make_page(query, &err);
    while (query->definition_count > 0)
        (void)definition_free(query->definitions[--query->definition_count]);
    if (no_memory)
        call_fail_memory(base->call);
    else if (rc)
        call_fail(base->call, &err);
    else
        call_reply(base->call, &query->reply.base);
}

/* --- the request ------------------------------------------------------------------------------ */

static int read_time(const char *field, const Google__Protobuf__Timestamp *message, int64_t *ret,
                     struct err *err)
{
    if (!message)
        return err_field(err, field, "%s: is required", field);
    if (!timestamp_is_valid(message) || message->seconds < 0)
        return err_field(err, field, "%s: is no time after 1970", field);
    *ret = message->seconds * 1000 + message->nanos / 1000000;
    return 0;
}

static int read_filter(const Saga__V1__ExportAttemptsRequest *request, struct export_query *query,
                       struct err *err)
{
    struct store_attempts_filter *filter = &query->filter;
    int rc = check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, err);
    if (!rc)
        rc = check_text("definition", request->definition, 1, LIMIT_DEFINITION_NAME_BYTES, err);
    if (!rc)
        rc = check_text("step", request->step, 1, LIMIT_STEP_NAME_BYTES, err);
    if (!rc && request->operation > SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION)
        rc = err_field(err, "operation", "operation: ACTION or COMPENSATION, not %d",
                       (int)request->operation);
    if (!rc && request->by > SAGA__V1__EXPORT_ATTEMPTS_REQUEST__BY__BY_ENDED)
        rc = err_field(err, "by", "by: DISPATCHED or ENDED, not %d", (int)request->by);
    if (!rc)
        rc = read_time("from", request->from, &filter->from_ms, err);
    if (!rc)
        rc = read_time("to", request->to, &filter->to_ms, err);
    if (!rc && filter->from_ms >= filter->to_ms)
        rc = err_field(err, "to", "to: must be later than from");
    if (!rc)
        rc = read_page_size(request->page_size, &filter->limit, err);
    filter->namespace_ = namespace_or_default(request->namespace_);
    filter->definition = request->definition;
    filter->step = request->step;
    filter->operation = request->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION
                            ? OPERATION_COMPENSATION
                            : OPERATION_ACTION;
    filter->by_end = request->by == SAGA__V1__EXPORT_ATTEMPTS_REQUEST__BY__BY_ENDED;
    query->with_payloads = request->with_payloads;
    return rc;
}

static int read_page(const Saga__V1__ExportAttemptsRequest *request, struct export_query *query,
                     struct err *err)
{
    struct store_attempts_filter *filter = &query->filter;
    const int64_t numbers[] = { filter->from_ms, filter->to_ms, filter->by_end, filter->operation };
    const struct sha256_part parts[] = {
        { filter->namespace_, strlen(filter->namespace_) + 1 },
        { filter->definition, strlen(filter->definition) + 1 },
        { filter->step, strlen(filter->step) + 1 },
        { numbers, sizeof numbers },
    };
    uint8_t raw[PAGE_PLACE_MAX];
    size_t size = 0;
    struct export_place place;
    int rc = page_filter_make(parts, ARRAY_LEN(parts), &query->page, err);
    if (!rc)
        rc = page_token_read(request->page_token, PAGE_ATTEMPTS, &query->page, raw, &size, err);
    if (!rc && size && size != sizeof place)
        rc = err_field(err, "page_token", "page_token: is not a token of this method");
    if (rc || !size)
        return rc;
    memcpy(&place, raw, sizeof place);
    filter->has_after = true;
    filter->after_us = int_read(place.started_us);
    filter->after = place.uid;
    return 0;
}

void operator_export_attempts(struct call *call)
{
    const Saga__V1__ExportAttemptsRequest *request = (void *)call->request;
    struct export_query *query = query_new(call, sizeof *query, run_export);
    struct err err;
    if (!query)
        return;
    if (read_filter(request, query, &err) || read_page(request, query, &err)) {
        call_fail(call, &err);
        return;
    }
    queries_post(&query->query);
}
