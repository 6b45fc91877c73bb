/* OperatorService.GetRetention: what is purged, and whether what is remembered is remembered for
 * long enough. Asked of the reader. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "store/reader_retention.h"
#include "wire/definition_codec.h"
#include "wire/times.h"

#include <saga/v1/operator.pb-c.h>
#include <stdio.h>
#include <string.h>

#define ALIVE_MS INT64_C(60000) /* a node says what it does every few seconds */
enum {
    LINKS_MAX = 1000,
    DEFINITIONS_AT_ONCE = 50,
    SUBJECT_SIZE = 512,
};

typedef Saga__V1__GetRetentionResponse__Link retention_link;
typedef Saga__V1__GetRetentionResponse__Link__Kind link_kind;
#define KIND(name) SAGA__V1__GET_RETENTION_RESPONSE__LINK__KIND__KIND_##name

struct retention_query {
    struct query query;
    bool has_floor;
    int64_t floor_ms; /* that is said to be in force */
    struct arena *arena;
    Saga__V1__GetRetentionResponse reply;
};

static Google__Protobuf__Timestamp *make_time(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *time =
        ms ? reply_new(arena, &google__protobuf__timestamp__descriptor) : NULL;
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

/* NULL for a negative one: it is absent. */
static Google__Protobuf__Duration *make_span(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Duration *span =
        ms >= 0 ? reply_new(arena, &google__protobuf__duration__descriptor) : NULL;
    if (span)
        duration_from_ms(ms, span);
    return span;
}

static char *make_text(struct arena *arena, const char *text)
{
    return arena_strdup(arena, text ? text : "");
}

/* --- links -------------------------------------------------------------------------------------
 */

/* NULL: there are too many, or memory is out (the arena says it). need_ms, have_ms -1: absent. */
static retention_link *add_link(struct retention_query *query, link_kind kind, const char *subject,
                                bool ok, int64_t need_ms, int64_t have_ms, const char *remedy)
{
    Saga__V1__GetRetentionResponse *reply = &query->reply;
    if (reply->n_links >= LINKS_MAX) {
        reply->more_links = true;
        return NULL;
    }
    retention_link *link =
        reply_new(query->arena, &saga__v1__get_retention_response__link__descriptor);
    if (!link)
        return NULL;
    link->kind = kind;
    link->subject = make_text(query->arena, subject);
    link->ok = ok;
    link->need = make_span(query->arena, need_ms);
    link->have = make_span(query->arena, have_ms);
    link->remedy = make_text(query->arena, ok ? "" : remedy);
    reply->links[reply->n_links++] = link;
    return link;
}

/* Any node may purge any saga: the one that forgets first counts. -1: for ever. */
static int64_t least_memory(const struct store_retention_status *status)
{
    int64_t least = -1;
    for (size_t i = 0; i < status->node_count; i++) {
        const struct store_retention_node *node = &status->nodes[i];
        bool purges = node->retention_ms >= 0 && status->now_ms - node->seen_ms < ALIVE_MS;
        if (purges && node->key_memory_ms >= 0 && (least < 0 || node->key_memory_ms < least))
            least = node->key_memory_ms;
    }
    return least;
}

static void add_topics(struct retention_query *query, const struct store_retention_status *status)
{
    int64_t memory_ms = least_memory(status);
    for (size_t i = 0; i < status->topic_count; i++) {
        const struct store_retention_topic *topic = &status->topics[i];
        char subject[SUBJECT_SIZE];
        if (topic->retention_ms < -1)
            continue; /* no broker has been asked yet */
        int64_t keeps_ms = topic->compacted ? -1 : topic->retention_ms;
        bool ok = memory_ms < 0 || (keeps_ms >= 0 && keeps_ms <= memory_ms);
        (void)snprintf(subject, sizeof subject, "topic %s (rule %s)%s", topic->topic, topic->rule,
                       topic->compacted ? ", compacted" : "");
        (void)add_link(query, KIND(KEY_MEMORY), subject, ok, keeps_ms, memory_ms,
                       keeps_ms < 0 ? "set key-memory = forever on every sagad"
                                    : "raise key-memory on every sagad to at least what the topic"
                                      " keeps"); /* what fails is told with the arena */
    }
}

static void add_nodes(struct retention_query *query, const struct store_retention_status *status)
{
    for (size_t i = 0; i < status->node_count; i++) {
        const struct store_retention_node *node = &status->nodes[i];
        bool alive = status->now_ms - node->seen_ms < ALIVE_MS;
        if (node->retention_ms < 0 || !alive)
            continue;
        (void)add_link(query, KIND(PURGE), node->node, !node->problem, -1, -1,
                       node->problem ? node->problem : "");
    }
}

static void add_floor(struct retention_query *query, const struct store_guard_floor *safe)
{
    if (!query->has_floor)
        return;
    char subject[SUBJECT_SIZE] = "the floor that is in force";
    if (safe->has_oldest)
        (void)snprintf(subject, sizeof subject, "%s %s (run %d)", safe->definition, safe->saga_id,
                       safe->run);
    (void)add_link(query, KIND(GUARD_FLOOR), subject, query->floor_ms <= safe->floor_ms, -1, -1,
                   "writes of this saga and of all that started before the floor are answered"
                   " STALE: settle them by hand, and raise the floor no higher than sagactl guard"
                   " floor says");
}

/* What is repeated with one key for longer than the other side knows it, and nobody finds out. */
static void add_window(struct retention_query *query, const struct definition *definition,
                       const char *step, const char *what, const struct operation_rule *rule)
{
    char subject[SUBJECT_SIZE];
    if (!rule->window_ms)
        return;
    bool ok = rule->probe || rule->window_ms >= rule->retry.for_ms;
    (void)snprintf(subject, sizeof subject, "%s/%s %s%s", definition->namespace_, definition->name,
                   what, step);
    (void)add_link(
        query, KIND(IDEMPOTENCY_WINDOW), subject, ok, rule->retry.for_ms, rule->window_ms,
        "lower retry.for to the window, or give the operation a probe: past the window an"
        " unknown outcome parks");
}

static int add_windows(struct retention_query *query, const struct bytes *content, struct err *err)
{
    CLEANUP(definition_free_p) struct definition *definition = NULL;
    if (definition_decode(content, &definition, err) != 0)
        return (int)err->code;
    for (size_t i = 0; i < definition->step_count; i++) {
        const struct step_rule *step = &definition->steps[i];
        add_window(query, definition, step->name, "", &step->action);
        if (step->has_compensation)
            add_window(query, definition, step->name, "compensation of ", &step->compensation);
    }
    return 0;
}

static int add_definitions(struct retention_query *query, struct store_reader *reader,
                           struct err *err)
{
    struct store_definition page[DEFINITIONS_AT_ONCE];
    CLEANUP(mem_free_p) char *namespace_ = mem_strdup("");
    CLEANUP(mem_free_p) char *name = mem_strdup("");
    size_t count = DEFINITIONS_AT_ONCE;
    int rc = 0;
    while (!rc && count == DEFINITIONS_AT_ONCE && !query->reply.more_links) {
        if (!namespace_ || !name)
            return err_set(err, ERR_NOMEM, "retention: out of memory");
        rc = store_reader_definitions(reader, NULL, namespace_, name, DEFINITIONS_AT_ONCE, page,
                                      &count, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < count; i++) {
            if (!rc)
                rc = add_windows(query, &page[i].content, err);
            if (i + 1 == count) {
                mem_free(namespace_);
                mem_free(name);
                namespace_ = TAKE(page[i].namespace_);
                name = TAKE(page[i].name);
            }
            store_definition_done(&page[i]);
        }
    }
    return rc;
}

static int compare_links(const void *a, const void *b)
{
    const retention_link *const *left = a, *const *right = b;
    if ((*left)->ok != (*right)->ok)
        return (*left)->ok ? 1 : -1;
    return (int)(*left)->kind - (int)(*right)->kind;
}

/* --- the answer --------------------------------------------------------------------------------
 */

static void fill_nodes(struct retention_query *query, const struct store_retention_status *status)
{
    Saga__V1__GetRetentionResponse *reply = &query->reply;
    struct arena *arena = query->arena;
    reply->nodes = arena_array(arena, status->node_count + 1, sizeof(ProtobufCMessage *));
    for (size_t i = 0; reply->nodes && i < status->node_count; i++) {
        const struct store_retention_node *from = &status->nodes[i];
        Saga__V1__GetRetentionResponse__Node *node =
            reply_new(arena, &saga__v1__get_retention_response__node__descriptor);
        if (!node)
            return;
        node->node = make_text(arena, from->node);
        node->retention = make_span(arena, from->retention_ms);
        node->key_memory = make_span(arena, from->key_memory_ms);
        node->archive = make_text(arena, from->archive);
        node->problem = make_text(arena, from->problem);
        node->seen_time = make_time(arena, from->seen_ms);
        node->alive = status->now_ms - from->seen_ms < ALIVE_MS;
        node->round_begin_time = make_time(arena, from->round_began_ms);
        node->round_end_time = make_time(arena, from->round_ended_ms);
        node->round_purged = from->round_purged;
        node->purged = from->purged;
        node->forgotten = from->forgotten;
        reply->nodes[reply->n_nodes++] = node;
    }
}

static void fill_floor(struct retention_query *query, const struct store_guard_floor *floor)
{
    struct arena *arena = query->arena;
    query->reply.guard_floor = make_time(arena, floor->floor_ms);
    if (!floor->has_oldest)
        return;
    Saga__V1__SagaRef *oldest = reply_new(arena, &saga__v1__saga_ref__descriptor);
    char uid[UUID_TEXT_SIZE];
    if (!oldest)
        return;
    uuid_format(&floor->uid, uid);
    oldest->namespace_ = make_text(arena, floor->namespace_);
    oldest->definition = make_text(arena, floor->definition);
    oldest->saga_id = make_text(arena, floor->saga_id);
    oldest->run = floor->run;
    oldest->uid = make_text(arena, uid);
    query->reply.oldest = oldest;
}

static int fill(struct retention_query *query, struct store_reader *reader,
                const struct store_retention_status *status, const struct store_guard_floor *floor,
                struct err *err)
{
    Saga__V1__GetRetentionResponse *reply = &query->reply;
    reply->links = arena_array(query->arena, LINKS_MAX, sizeof(ProtobufCMessage *));
    if (!reply->links)
        return err_set(err, ERR_NOMEM, "retention: out of memory");
    fill_nodes(query, status);
    fill_floor(query, floor);
    add_nodes(query, status);
    add_topics(query, status);
    add_floor(query, floor);
    if (add_definitions(query, reader, err) != 0)
        return (int)err->code;
    if (query->arena->oom)
        return err_set(err, ERR_NOMEM, "retention: out of memory");
    qsort(reply->links, reply->n_links, sizeof(ProtobufCMessage *), compare_links);
    reply->finished = status->finished;
    reply->purgeable = status->purgeable;
    reply->kept_in_doubt = status->doubtful;
    reply->kept_parked = status->parked;
    reply->counted_up_to = RETENTION_COUNT_MAX;
    return 0;
}

static void run_retention(struct query *base, struct store_reader *reader)
{
    struct retention_query *query = CONTAINER(base, struct retention_query, query);
    struct store_retention_status status = { 0 };
    struct store_guard_floor floor = { 0 };
    struct err err;
    saga__v1__get_retention_response__init(&query->reply);
    query->arena = &base->call->arena;
    if (store_reader_retention(reader, &status, &err) != 0 ||
        store_reader_guard_floor(reader, 0, &floor, &err) != 0 ||
        fill(query, reader, &status, &floor, &err) != 0)
        call_fail(base->call, &err);
    else
        call_reply(base->call, &query->reply.base);
    store_retention_status_done(&status);
    store_guard_floor_done(&floor);
}

void operator_get_retention(struct call *call)
{
    const Saga__V1__GetRetentionRequest *request = (void *)call->request;
    struct retention_query *query = query_new(call, sizeof *query, run_retention);
    struct err err;
    if (!query)
        return;
    query->has_floor = request->guard_floor != NULL;
    if (!query->has_floor || timestamp_is_valid(request->guard_floor)) {
        if (query->has_floor)
            query->floor_ms =
                request->guard_floor->seconds * 1000 + request->guard_floor->nanos / 1000000;
        queries_post(&query->query);
        return;
    }
    (void)err_field(&err, "guard_floor", "guard_floor: is no time");
    call_fail(call, &err);
}
