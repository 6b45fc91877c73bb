/* KafkaService: what the node that serves a rule is asked to do, and the audit trail. */
#include "rpc/service_kafka.h"

#include "base/clock.h"
#include "base/sha256.h"
#include "core/limits.h"
#include "wire/json.h"

#include <assert.h>
#include <string.h>

#define CHECK_RECORDS_MAX INT64_C(10000000)

/* --- requests as messages --------------------------------------------------------------------- */

static Saga__V1__KafkaRequest__Kind kind_to_message(enum store_kafka_kind kind)
{
    static const Saga__V1__KafkaRequest__Kind kinds[] = {
        [KAFKA_KIND_CHECK] = SAGA__V1__KAFKA_REQUEST__KIND__KIND_CHECK,
        [KAFKA_KIND_TAKEOVER] = SAGA__V1__KAFKA_REQUEST__KIND__KIND_TAKEOVER,
        [KAFKA_KIND_RESUME] = SAGA__V1__KAFKA_REQUEST__KIND__KIND_RESUME,
        [KAFKA_KIND_STOP] = SAGA__V1__KAFKA_REQUEST__KIND__KIND_STOP,
        [KAFKA_KIND_START] = SAGA__V1__KAFKA_REQUEST__KIND__KIND_START,
        [KAFKA_KIND_DISCARD] = SAGA__V1__KAFKA_REQUEST__KIND__KIND_DISCARD,
        [KAFKA_KIND_REPLAY] = SAGA__V1__KAFKA_REQUEST__KIND__KIND_REPLAY,
    };
    static_assert(ARRAY_LEN(kinds) == KAFKA_KIND_COUNT, "one for each kind");
    assert(kind < KAFKA_KIND_COUNT);
    return kinds[kind];
}

static Saga__V1__KafkaRequest__State state_to_message(enum store_kafka_request_state state)
{
    static const Saga__V1__KafkaRequest__State states[] = {
        [KAFKA_REQUEST_OPEN] = SAGA__V1__KAFKA_REQUEST__STATE__STATE_OPEN,
        [KAFKA_REQUEST_TAKEN] = SAGA__V1__KAFKA_REQUEST__STATE__STATE_TAKEN,
        [KAFKA_REQUEST_DONE] = SAGA__V1__KAFKA_REQUEST__STATE__STATE_DONE,
        [KAFKA_REQUEST_FAILED] = SAGA__V1__KAFKA_REQUEST__STATE__STATE_FAILED,
    };
    static_assert(ARRAY_LEN(states) == KAFKA_REQUEST_STATE_COUNT, "one for each state");
    assert(state < KAFKA_REQUEST_STATE_COUNT);
    return states[state];
}

/* The result of that kind: its type; NULL: it has none. */
static const ProtobufCMessageDescriptor *result_type(enum store_kafka_kind kind)
{
    switch (kind) {
    case KAFKA_KIND_CHECK:
        return &saga__v1__kafka_check_result__descriptor;
    case KAFKA_KIND_TAKEOVER:
        return &saga__v1__kafka_take_over_result__descriptor;
    case KAFKA_KIND_RESUME:
        return &saga__v1__kafka_resume_result__descriptor;
    case KAFKA_KIND_DISCARD:
    case KAFKA_KIND_REPLAY:
        return &saga__v1__kafka_letters_result__descriptor;
    case KAFKA_KIND_STOP:
    case KAFKA_KIND_START:
    case KAFKA_KIND_COUNT:
        break;
    }
    return NULL;
}

static void set_result(enum store_kafka_kind kind, ProtobufCMessage *result,
                       Saga__V1__KafkaRequest *to)
{
    if (kind == KAFKA_KIND_CHECK) {
        to->result_case = SAGA__V1__KAFKA_REQUEST__RESULT_CHECK;
        to->check = (void *)result;
    } else if (kind == KAFKA_KIND_TAKEOVER) {
        to->result_case = SAGA__V1__KAFKA_REQUEST__RESULT_TAKE_OVER;
        to->take_over = (void *)result;
    } else if (kind == KAFKA_KIND_RESUME) {
        to->result_case = SAGA__V1__KAFKA_REQUEST__RESULT_RESUME;
        to->resume = (void *)result;
    } else {
        to->result_case = SAGA__V1__KAFKA_REQUEST__RESULT_LETTERS;
        to->letters = (void *)result;
    }
}

/* *ret_result: what `to` borrows, owned by the caller; NULL: nothing. */
static int make_request(struct arena *arena, const struct store_kafka_request *from,
                        Saga__V1__KafkaRequest **ret, ProtobufCMessage **ret_result,
                        struct err *err)
{
    Saga__V1__KafkaRequest *to = reply_new(arena, &saga__v1__kafka_request__descriptor);
    char *id = arena_alloc(arena, UUID_TEXT_SIZE);
    const ProtobufCMessageDescriptor *type = result_type(from->kind);
    if (!to || !id)
        return err_set(err, ERR_NOMEM, "request");
    uuid_format(&from->id, id);
    to->request_id = id;
    to->rule = from->rule;
    to->kind = kind_to_message(from->kind);
    to->state = state_to_message(from->state);
    to->arguments = kafka_text(from->arguments);
    to->actor = kafka_text(from->actor);
    to->reason = kafka_text(from->reason);
    to->request_time = kafka_time(arena, from->requested_at_ms);
    to->finish_time = kafka_time(arena, from->finished_at_ms);
    to->node = kafka_text(from->node);
    to->progress = from->progress;
    to->total = from->total;
    to->error = kafka_text(from->error);
    if (arena->oom)
        return err_set(err, ERR_NOMEM, "request");
    *ret = to;
    if (!from->result || !type || from->state != KAFKA_REQUEST_DONE)
        return 0;
    if (wire_json_decode(from->result, strlen(from->result), type, ret_result, err)) {
        err->code = err->code == ERR_NOMEM ? ERR_NOMEM : ERR_INTERNAL;
        err->field[0] = '\0'; /* of our own text, not of the request */
        return err_wrap(err, "result of request %s", id);
    }
    set_result(from->kind, *ret_result, to);
    return 0;
}

static void free_result(ProtobufCMessage *result)
{
    if (result)
        protobuf_c_message_free_unpacked(result, NULL);
}

/* The one with that id, as the answer; rc and err of what came before. */
static void reply_request(struct call *call, struct store_reader *reader, const struct uuid *id,
                          int rc, struct err *err)
{
    struct store_kafka_request stored = { 0 };
    Saga__V1__KafkaRequest *reply = NULL;
    ProtobufCMessage *result = NULL;
    if (!rc)
        rc = store_reader_kafka_request(reader, id, &stored, err);
    if (!rc)
        rc = make_request(&call->arena, &stored, &reply, &result, err);
    if (rc)
        call_fail(call, err);
    else
        call_reply(call, &reply->base);
    free_result(result);
    store_kafka_request_done(&stored);
}

/* --- CheckRule, TakeOver ---------------------------------------------------------------------- */

struct post_query {
    struct query query;
    const char *rule, *actor, *reason; /* of the request */
    const char *group;                 /* NULL: a check */
    int64_t last;
};

static void run_post(struct query *base, struct store_reader *reader)
{
    struct post_query *query = CONTAINER(base, struct post_query, query);
    struct err err;
    struct rng rng;
    rng_seed_os(&rng);
    struct uuid id = uuid_v7(clock_wall_ms(&clock_system), &rng, (uint8_t)rng_next(&rng));
    int rc = query->group ? store_reader_kafka_takeover(reader, &id, query->rule, query->group,
                                                        query->actor, query->reason, &err)
                          : store_reader_kafka_check(reader, &id, query->rule, query->last,
                                                     query->actor, query->reason, &err);
    reply_request(base->call, reader, &id, rc, &err);
}

/* `rc` and `err`: what was wrong with what only one of the two has. */
static void post(struct call *call, int rc, struct err *err, const struct post_query *what)
{
    if (!rc)
        rc = kafka_check_rule(what->rule, err);
    if (!rc)
        rc = kafka_check_words(what->actor, what->reason, err);
    if (rc) {
        call_fail(call, err);
        return;
    }
    struct post_query *query = query_new(call, sizeof *query, run_post);
    if (!query)
        return;
    struct query base = query->query;
    *query = *what;
    query->query = base;
    queries_post(&query->query);
}

void kafka_check(struct call *call)
{
    const Saga__V1__CheckRuleRequest *request = (void *)call->request;
    struct err err;
    int rc = 0;
    if (request->last < 1 || request->last > CHECK_RECORDS_MAX)
        rc = err_field(&err, "last", "last: must be 1 to %lld: %lld", (long long)CHECK_RECORDS_MAX,
                       (long long)request->last);
    post(call, rc, &err,
         &(struct post_query){ .rule = request->rule,
                               .actor = request->actor,
                               .reason = request->reason,
                               .last = request->last });
}

void kafka_take_over(struct call *call)
{
    const Saga__V1__TakeOverRequest *request = (void *)call->request;
    struct err err;
    int rc = check_text("from_group", request->from_group, 1, KAFKA_NAME_BYTES_MAX, &err);
    post(call, rc, &err,
         &(struct post_query){ .rule = request->rule,
                               .actor = request->actor,
                               .reason = request->reason,
                               .group = request->from_group });
}

/* --- GetKafkaRequest -------------------------------------------------------------------------- */

struct get_query {
    struct query query;
    struct uuid id;
};

static void run_get(struct query *base, struct store_reader *reader)
{
    struct get_query *query = CONTAINER(base, struct get_query, query);
    struct err err;
    reply_request(base->call, reader, &query->id, 0, &err);
}

void kafka_get_request(struct call *call)
{
    const Saga__V1__GetKafkaRequestRequest *request = (void *)call->request;
    struct get_query *query = query_new(call, sizeof *query, run_get);
    struct err err;
    if (!query)
        return;
    if (uuid_parse(request->request_id, &query->id)) {
        queries_post(&query->query);
        return;
    }
    (void)err_field(&err, "request_id", "request_id: is required, and a UUID");
    call_fail(call, &err);
}

/* --- ListKafkaRequests ------------------------------------------------------------------------ */

struct list_query {
    struct query query;
    const char *rule; /* NULL: every one */
    size_t limit;
    struct page_filter filter;
    bool has_before;
    struct uuid before;
};

struct page {
    struct store_kafka_request *stored;
    ProtobufCMessage **results; /* what the messages borrow */
    size_t found;
};

static void page_done(struct page *page)
{
    for (size_t i = 0; i < page->found; i++) {
        store_kafka_request_done(&page->stored[i]);
        free_result(page->results[i]);
    }
    mem_free(page->stored);
    mem_free(page->results);
}

/* As many as a client can receive in one message. */
static int fill_page(struct list_query *query, const struct page *page,
                     Saga__V1__ListKafkaRequestsResponse *reply, struct err *err)
{
    struct arena *arena = &query->query.call->arena;
    size_t bytes = 0, count = 0;
    reply->requests = arena_array(arena, page->found + 1, sizeof(ProtobufCMessage *));
    if (!reply->requests)
        return err_set(err, ERR_NOMEM, "requests");
    for (; count < page->found && count < query->limit; count++) {
        Saga__V1__KafkaRequest **request = &reply->requests[count];
        int rc = make_request(arena, &page->stored[count], request, &page->results[count], err);
        if (rc)
            return rc;
        bytes += saga__v1__kafka_request__get_packed_size(*request) + 8;
        if (count && bytes > RPC_REPLY_BYTES_MAX)
            break;
    }
    reply->n_requests = count;
    if (count == page->found)
        return 0;
    const struct uuid *last = &page->stored[count - 1].id;
    reply->next_page_token =
        page_token_make(arena, PAGE_KAFKA_REQUESTS, &query->filter, last, sizeof *last);
    return reply->next_page_token ? 0 : err_set(err, ERR_NOMEM, "requests");
}

static void run_list(struct query *base, struct store_reader *reader)
{
    struct list_query *query = CONTAINER(base, struct list_query, query);
    size_t room = query->limit + 1;
    CLEANUP(page_done)
    struct page page = { .stored = mem_calloc(room, sizeof *page.stored),
                         .results = mem_calloc(room, sizeof(ProtobufCMessage *)) };
    Saga__V1__ListKafkaRequestsResponse reply = SAGA__V1__LIST_KAFKA_REQUESTS_RESPONSE__INIT;
    struct err err;
    if (!page.stored || !page.results) {
        call_fail_memory(base->call);
        return;
    }
    int rc =
        store_reader_kafka_requests(reader, query->rule, query->has_before ? &query->before : NULL,
                                    room, page.stored, &page.found, &err);
    if (!rc)
        rc = fill_page(query, &page, &reply, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        call_reply(base->call, &reply.base);
}

static int read_list(const Saga__V1__ListKafkaRequestsRequest *request, struct list_query *query,
                     struct err *err)
{
    int rc = check_text("rule", request->rule, 0, KAFKA_NAME_BYTES_MAX, err);
    if (!rc)
        rc = read_page_size(request->page_size, &query->limit, err);
    struct sha256_part part = { request->rule, strlen(request->rule) };
    if (!rc)
        rc = page_filter_make(&part, 1, &query->filter, err);
    query->rule = or_null(request->rule);
    return rc ? rc
              : kafka_page_read(request->page_token, PAGE_KAFKA_REQUESTS, &query->filter,
                                &query->has_before, &query->before, err);
}

void kafka_list_requests(struct call *call)
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
