/* SagaService: what finds sagas. */
#include "rpc/find.h"
#include "rpc/queries.h"

#include "base/sha256.h"
#include "core/limits.h"
#include "wire/saga_codec.h"

#include <stdio.h>
#include <string.h>

/* --- filters ---------------------------------------------------------------------------------- */

static int set_once(const char *field, const char *given, size_t most, const char **ret,
                    struct err *err)
{
    int rc = check_text(field, given, 0, most, err);
    if (!rc && *given && *ret)
        rc = err_field(err, field, "%s: the filter has a value for it, too", field);
    if (!rc && *given)
        *ret = given;
    return rc;
}

int find_read_filter(const char *text, const char *namespace_, const char *definition,
                     enum filter_scope scope, struct arena *arena, struct saga_filter *ret,
                     struct err *err)
{
    struct saga_filter filter = { 0 };
    int rc = check_prose("filter", text, FILTER_BYTES_MAX, err);
    if (!rc)
        rc = filter_parse(text, scope, arena, &filter, err);
    if (!rc)
        rc = set_once("namespace", namespace_, LIMIT_NAMESPACE_BYTES, &filter.namespace_, err);
    if (!rc)
        rc = set_once("definition", definition, LIMIT_DEFINITION_NAME_BYTES, &filter.definition,
                      err);
    if (rc)
        return rc;
    if (strcmp(namespace_, "-") == 0)
        filter.namespace_ = NULL;
    else if (!filter.namespace_)
        filter.namespace_ = namespace_or_default("");
    *ret = filter;
    return 0;
}

/* --- ListSagas -------------------------------------------------------------------------------- */

struct list_query {
    struct query query;
    struct store_list list;
    struct page_filter page;
};

struct list_place {
    struct uuid uid;
    uint8_t started_us[8];
};

struct found { /* by one look; arrays with room for the list's limit */
    struct store_saga *sagas;
    int64_t *started_us;
    size_t count;
    struct store_list_end end;
};

static int make_token(struct list_query *query, int64_t started_us, const struct uuid *uid,
                      char **ret, struct err *err)
{
    struct list_place place = { .uid = *uid };
    page_number_write(started_us, place.started_us);
    *ret =
        page_token_make(&query->query.call->arena, PAGE_SAGAS, &query->page, &place, sizeof place);
    return *ret ? 0 : err_set(err, ERR_NOMEM, "list");
}

/* As many as were asked for and a client can receive in one message. */
static int fill_list(struct list_query *query, const struct found *found,
                     Saga__V1__ListSagasResponse *reply, struct err *err)
{
    struct arena *arena = &query->query.call->arena;
    size_t wanted = query->list.limit - 1, bytes = 0, count = 0;
    reply->sagas = arena_array(arena, found->count + 1, sizeof(ProtobufCMessage *));
    if (!reply->sagas)
        return err_set(err, ERR_NOMEM, "list");
    for (; count < found->count && count < wanted; count++) {
        int rc = saga_row_to_message(arena, &found->sagas[count].row, found->sagas[count].park_step,
                                     &reply->sagas[count], err);
        if (rc)
            return rc;
        bytes += saga__v1__saga__get_packed_size(reply->sagas[count]) + 8;
        if (count && bytes > RPC_REPLY_BYTES_MAX)
            break;
    }
    reply->n_sagas = count;
    if (count < found->count)
        return make_token(query, found->started_us[count - 1], &found->sagas[count - 1].row.uid,
                          &reply->next_page_token, err);
    if (!found->end.is_cut)
        return 0;
    return make_token(query, found->end.started_us, &found->end.uid, &reply->next_page_token, err);
}

static void run_list(struct query *base, struct store_reader *reader)
{
    struct list_query *query = CONTAINER(base, struct list_query, query);
    size_t room = query->list.limit;
    CLEANUP(mem_free_p) struct store_saga *sagas = mem_calloc(room, sizeof *sagas);
    CLEANUP(mem_free_p) int64_t *started_us = mem_calloc(room, sizeof *started_us);
    if (!sagas || !started_us) {
        call_fail_memory(base->call);
        return;
    }
    struct err err;
    struct found found = { .sagas = sagas, .started_us = started_us };
    Saga__V1__ListSagasResponse reply = SAGA__V1__LIST_SAGAS_RESPONSE__INIT;
    int rc =
        store_reader_list(reader, &query->list, sagas, started_us, &found.count, &found.end, &err);
    if (!rc)
        rc = fill_list(query, &found, &reply, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        call_reply(base->call, &reply.base);
    for (size_t i = 0; i < found.count; i++)
        store_saga_done(&sagas[i]);
}

static int read_states(const Saga__V1__ListSagasRequest *request, struct saga_filter *filter,
                       struct err *err)
{
    bool asked[SAGA_STATE_COUNT] = { false };
    for (size_t i = 0; i < request->n_states; i++) {
        enum saga_state state;
        if (!saga_state_from_message(request->states[i], &state)) {
            char field[32];
            (void)snprintf(field, sizeof field, "states[%zu]", i);
            return err_field(err, field, "%s: is not a state", field);
        }
        asked[state] = true;
    }
    for (int state = 0; request->n_states && state < SAGA_STATE_COUNT; state++)
        filter->not_states[state] = filter->not_states[state] || !asked[state];
    return 0;
}

static int read_ids(const Saga__V1__ListSagasRequest *request, struct saga_filter *filter,
                    struct err *err)
{
    bool has_id = filter->saga_id || filter->saga_id_prefix;
    if (has_id && (*request->saga_id || *request->saga_id_prefix))
        return err_field(err, "saga_id", "saga_id: the filter has a value for it, too");
    int rc = set_once("saga_id", request->saga_id, LIMIT_SAGA_ID_BYTES, &filter->saga_id, err);
    if (!rc)
        rc = set_once("saga_id_prefix", request->saga_id_prefix, LIMIT_SAGA_ID_BYTES,
                      &filter->saga_id_prefix, err);
    return rc;
}

static int read_doubt(const Saga__V1__ListSagasRequest *request, struct saga_filter *filter,
                      struct err *err)
{
    if (request->_doubt_case != SAGA__V1__LIST_SAGAS_REQUEST___DOUBT_DOUBT)
        return 0;
    if (filter->has_doubt)
        return err_field(err, "doubt", "doubt: the filter has a value for it, too");
    filter->has_doubt = true;
    filter->doubt = request->doubt;
    return 0;
}

static int read_list_filter(const Saga__V1__ListSagasRequest *request, struct list_query *query,
                            struct err *err)
{
    struct saga_filter *filter = &query->list.filter;
    size_t page = 0;
    int rc = find_read_filter(request->filter, request->namespace_, request->definition,
                              FILTER_SAGAS, &query->query.call->arena, filter, err);
    if (!rc)
        rc = read_ids(request, filter, err);
    if (!rc)
        rc = read_states(request, filter, err);
    if (!rc)
        rc = read_doubt(request, filter, err);
    if (!rc)
        rc = read_page_size(request->page_size, &page, err);
    if (rc)
        return rc;
    query->list.oldest_first = request->oldest_first;
    query->list.limit = page + 1; /* one more tells whether there is a next page */
    struct sha256_part parts[] = {
        { request->namespace_, strlen(request->namespace_) + 1 },
        { request->definition, strlen(request->definition) + 1 },
        { request->saga_id, strlen(request->saga_id) + 1 },
        { request->saga_id_prefix, strlen(request->saga_id_prefix) + 1 },
        { request->filter, strlen(request->filter) + 1 },
        { filter->not_states, sizeof filter->not_states },
        { &query->list.oldest_first, sizeof query->list.oldest_first },
        { &filter->has_doubt, sizeof filter->has_doubt },
        { &filter->doubt, sizeof filter->doubt },
    };
    return page_filter_make(parts, ARRAY_LEN(parts), &query->page, err);
}

static int read_list(const Saga__V1__ListSagasRequest *request, struct list_query *query,
                     struct err *err)
{
    uint8_t raw[PAGE_PLACE_MAX];
    size_t size = 0;
    int rc = read_list_filter(request, query, err);
    if (!rc)
        rc = page_token_read(request->page_token, PAGE_SAGAS, &query->page, raw, &size, err);
    if (rc || !size)
        return rc;
    struct list_place place;
    if (size != sizeof place)
        return err_field(err, "page_token", "page_token: is not a token of this method");
    memcpy(&place, raw, sizeof place);
    query->list.has_after = true;
    query->list.after_uid = place.uid;
    query->list.after_started_us = page_number_read(place.started_us);
    return 0;
}

void saga_list(struct call *call)
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
