/* OperatorService.ListWorkers: the engine says who is connected, then the reader which handlers
 * sagas were let go for, and which other nodes there are. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "core/limits.h"
#include "wire/times.h"

#include <saga/v1/operator.pb-c.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MAX = 1000, UNSERVED_MAX = 1000, NODES_MAX = 1000, SERVING_MAX = 1000 };

typedef Saga__V1__ListWorkersResponse response_message;
typedef Saga__V1__ListWorkersResponse__Worker worker_message;
typedef Saga__V1__ListWorkersResponse__Unserved unserved_message;

struct workers_query {
    struct query query;
    struct engine_status status;
    struct store_let_go let_go[UNSERVED_MAX];
    size_t let_go_count;
    char *nodes[NODES_MAX];
    size_t node_count;
    struct store_serving serving[SERVING_MAX];
    size_t serving_count;
};

static Google__Protobuf__Timestamp *reply_time(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *time = reply_new(arena, &google__protobuf__timestamp__descriptor);
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

/* --- workers ---------------------------------------------------------------------------------- */

static int fill_served(struct arena *arena, const struct engine_worker_status *from,
                       worker_message *worker)
{
    worker->handlers = arena_array(arena, from->served_count + 1, sizeof(ProtobufCMessage *));
    if (!worker->handlers)
        return -1;
    for (size_t i = 0; i < from->served_count; i++) {
        Saga__V1__ListWorkersResponse__Handler *handler =
            reply_new(arena, &saga__v1__list_workers_response__handler__descriptor);
        if (!handler)
            return -1;
        handler->handler = from->served[i].handler;
        handler->max_in_flight = (int32_t)from->served[i].max_in_flight;
        handler->credit = from->served[i].credit;
        handler->in_flight = from->served[i].in_flight;
        worker->handlers[worker->n_handlers++] = handler;
    }
    return 0;
}

static worker_message *make_worker(struct arena *arena, const struct engine_worker_status *from)
{
    worker_message *worker = reply_new(arena, &saga__v1__list_workers_response__worker__descriptor);
    char *name = arena_strdup(arena, from->name);
    if (!worker || !name || fill_served(arena, from, worker))
        return NULL;
    char *slash = strrchr(name, '/'); /* an instance has none */
    *slash = '\0';
    worker->worker_id = name;
    worker->instance = slash + 1;
    worker->sdk = from->sdk;
    worker->connect_time = reply_time(arena, from->since_ms);
    worker->unresponsive = from->unresponsive;
    worker->draining = from->draining;
    worker->congested = from->congested;
    return worker->connect_time ? worker : NULL;
}

static int compare_workers(const void *left, const void *right)
{
    return strcmp(((const struct engine_worker_status *)left)->name,
                  ((const struct engine_worker_status *)right)->name);
}

static int fill_workers(struct arena *arena, struct engine_status *status, response_message *reply)
{
    size_t count = status->worker_count < WORKERS_MAX ? status->worker_count : WORKERS_MAX;
    reply->workers = arena_array(arena, count + 1, sizeof(ProtobufCMessage *));
    if (!reply->workers)
        return -1;
    if (status->worker_count)
        qsort(status->workers, status->worker_count, sizeof *status->workers, compare_workers);
    for (; reply->n_workers < count; reply->n_workers++) {
        worker_message *worker = make_worker(arena, &status->workers[reply->n_workers]);
        if (!worker)
            return -1;
        reply->workers[reply->n_workers] = worker;
    }
    return 0;
}

/* --- handlers that nobody serves here --------------------------------------------------------- */

static const struct engine_handler_status *find_handler(const struct engine_status *status,
                                                        const char *name)
{
    for (size_t i = 0; i < status->handler_count; i++)
        if (strcmp(status->handlers[i].handler, name) == 0)
            return &status->handlers[i];
    return NULL;
}

static unserved_message *add_unserved(struct arena *arena, response_message *reply, char *handler)
{
    if (reply->n_unserved == UNSERVED_MAX)
        return NULL;
    unserved_message *unserved =
        reply_new(arena, &saga__v1__list_workers_response__unserved__descriptor);
    if (unserved) {
        unserved->handler = handler;
        reply->unserved[reply->n_unserved++] = unserved;
    }
    return unserved;
}

static int compare_unserved(const void *left, const void *right)
{
    const unserved_message *const *a = left, *const *b = right;
    return strcmp((*a)->handler, (*b)->handler);
}

static int fill_unserved(struct arena *arena, const struct workers_query *query,
                         response_message *reply)
{
    const struct engine_status *status = &query->status;
    const char *only = status->only_handler;
    reply->unserved = arena_array(arena, UNSERVED_MAX, sizeof(ProtobufCMessage *));
    if (!reply->unserved)
        return -1;
    for (size_t i = 0; i < query->let_go_count; i++) {
        const struct store_let_go *from = &query->let_go[i];
        const struct engine_handler_status *here = find_handler(status, from->handler);
        if ((here && here->served) || (only && strcmp(only, from->handler) != 0))
            continue;
        unserved_message *unserved = add_unserved(arena, reply, from->handler);
        if (!unserved)
            return -1;
        unserved->waiting = here ? here->ready : 0;
        unserved->let_go = from->sagas;
        unserved->oldest_start_time = reply_time(arena, from->oldest_ms);
    }
    size_t let_go = reply->n_unserved;
    for (size_t i = 0; i < status->handler_count; i++) {
        const struct engine_handler_status *here = &status->handlers[i];
        bool is_there = false;
        for (size_t j = 0; j < let_go && !is_there; j++)
            is_there = strcmp(reply->unserved[j]->handler, here->handler) == 0;
        if (here->served || !here->ready || is_there || reply->n_unserved == UNSERVED_MAX)
            continue;
        unserved_message *unserved = add_unserved(arena, reply, here->handler);
        if (!unserved)
            return -1;
        unserved->waiting = here->ready;
    }
    qsort(reply->unserved, reply->n_unserved, sizeof(ProtobufCMessage *), compare_unserved);
    return 0;
}

/* Both are by handler. */
static int fill_served_by(struct arena *arena, const struct workers_query *query,
                          response_message *reply)
{
    size_t next = 0;
    for (size_t i = 0; i < reply->n_unserved; i++) {
        unserved_message *unserved = reply->unserved[i];
        size_t first = next;
        while (next < query->serving_count &&
               strcmp(query->serving[next].handler, unserved->handler) == 0)
            next++;
        unserved->served_by = arena_array(arena, next - first + 1, sizeof(char *));
        if (!unserved->served_by)
            return -1;
        for (; first < next; first++)
            unserved->served_by[unserved->n_served_by++] = query->serving[first].node;
    }
    return 0;
}

static int read_served_by(struct arena *arena, struct store_reader *reader, const char *node,
                          struct workers_query *query, response_message *reply, struct err *err)
{
    const char **handlers = arena_array(arena, reply->n_unserved + 1, sizeof *handlers);
    if (!handlers)
        return err_set(err, ERR_NOMEM, "workers");
    for (size_t i = 0; i < reply->n_unserved; i++)
        handlers[i] = reply->unserved[i]->handler;
    int rc = store_reader_serving(reader, node, handlers, reply->n_unserved, SERVING_MAX,
                                  query->serving, &query->serving_count, err);
    if (!rc && fill_served_by(arena, query, reply))
        rc = err_set(err, ERR_NOMEM, "workers");
    return rc;
}

/* --- the call --------------------------------------------------------------------------------- */

static void drop(struct workers_query *query)
{
    engine_status_done(&query->status);
    while (query->let_go_count > 0)
        mem_free(query->let_go[--query->let_go_count].handler);
    while (query->node_count > 0)
        mem_free(query->nodes[--query->node_count]);
    store_serving_done(query->serving, query->serving_count);
    query->serving_count = 0;
}

static void refuse(struct query *base, const struct err *err)
{
    drop(CONTAINER(base, struct workers_query, query));
    call_fail(base->call, err);
}

/* On the reader's thread. */
static void run_workers(struct query *base, struct store_reader *reader)
{
    struct workers_query *query = CONTAINER(base, struct workers_query, query);
    struct call *call = base->call;
    struct arena *arena = &call->arena;
    response_message reply = SAGA__V1__LIST_WORKERS_RESPONSE__INIT;
    struct err err;
    int rc = store_reader_let_go(reader, UNSERVED_MAX, query->let_go, &query->let_go_count, &err);
    if (!rc)
        rc = store_reader_nodes(reader, call->server->node, NODES_MAX, query->nodes,
                                &query->node_count, &err);
    if (!rc && (fill_workers(arena, &query->status, &reply) || fill_unserved(arena, query, &reply)))
        rc = err_set(&err, ERR_NOMEM, "workers");
    if (!rc)
        rc = read_served_by(arena, reader, call->server->node, query, &reply, &err);
    reply.node = call->server->node;
    reply.other_nodes = query->nodes;
    reply.n_other_nodes = query->node_count;
    call_ref(call); /* the query lives in the call */
    if (rc)
        call_fail(call, &err);
    else
        call_reply(call, &reply.base);
    drop(query);
    call_unref(call);
}

/* On the engine's thread. */
static void on_status(struct engine_event *event)
{
    struct engine_status *status = CONTAINER(event, struct engine_status, event);
    queries_post_admitted(&CONTAINER(status, struct workers_query, status)->query);
}

void operator_list_workers(struct call *call)
{
    const Saga__V1__ListWorkersRequest *request = (void *)call->request;
    struct err err;
    if (check_text("handler", request->handler, 0, LIMIT_HANDLER_BYTES, &err)) {
        call_fail(call, &err);
        return;
    }
    struct workers_query *query = query_new(call, sizeof *query, run_workers);
    if (!query)
        return;
    query->query.refuse = refuse;
    query->status.event.kind = ENGINE_STATUS;
    query->status.event.done = on_status;
    query->status.only_handler = or_null(request->handler);
    query->status.with_workers = true;
    if (engine_post_always(call->server->engine, &query->status.event))
        return;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    call_fail(call, &err);
}
