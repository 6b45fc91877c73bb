#include "rpc/queries.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { AWAY_MAX = 16 };

struct queries {
    struct mailbox mailbox, back; /* new ones; those that come back */
    struct store_reader *reader;
    pthread_t thread;
    struct mailbox_node *fresh; /* taken out, not run; as the next one the reader's thread's */
    size_t away;
    struct query last; /* ends the thread */
};

static struct query *query_of(struct mailbox_node *node)
{
    return CONTAINER(node, struct query, node);
}

static void refuse(struct query *query, const struct err *err)
{
    if (query->refuse)
        query->refuse(query, err);
    else
        call_fail(query->call, err);
}

static void run_one(struct queries *queries, struct query *query)
{
    static const struct err gone = { .code = ERR_UNAVAILABLE, .msg = "the client has gone" };
    if (!query->call || atomic_load(&query->call->stage) == CALL_OPEN)
        query->run(query, queries->reader);
    else
        refuse(query, &gone);
}

static void *queries_run(void *ctx)
{
    struct queries *queries = ctx;
    for (;;) {
        bool may_run = queries->away < AWAY_MAX;
        struct pollfd fds[] = { { .fd = queries->back.fd, .events = POLLIN },
                                { .fd = queries->mailbox.fd, .events = may_run ? POLLIN : 0 } };
        if (poll(fds, ARRAY_LEN(fds), queries->fresh && may_run ? 0 : -1) < 0 && errno != EINTR)
            log_line(LOG_ERROR, "queries: poll failed", "err", strerror(errno), NULL);
        struct mailbox_node *back = mailbox_take_all(&queries->back);
        while (back) {
            struct query *query = query_of(back);
            back = back->next; /* the query is gone once it ran */
            if (query == &queries->last)
                return NULL; /* nothing was put behind it */
            queries->away--;
            run_one(queries, query);
        }
        if (!queries->fresh)
            queries->fresh = mailbox_take_all(&queries->mailbox);
        if (!queries->fresh || !may_run)
            continue;
        struct query *query = query_of(queries->fresh);
        queries->fresh = queries->fresh->next;
        run_one(queries, query);
    }
}

static struct queries *queries_free(struct queries *queries)
{
    queries->reader = store_reader_free(queries->reader);
    mailbox_done(&queries->mailbox);
    mailbox_done(&queries->back);
    mem_free(queries);
    return NULL;
}

int queries_start(const char *conninfo, struct queries **ret, struct err *err)
{
    struct queries *queries = mem_calloc(1, sizeof *queries);
    if (!queries)
        return err_set(err, ERR_NOMEM, "queries");
    if (mailbox_init(&queries->mailbox, RPC_QUERIES_MAX, err)) {
        mem_free(queries);
        return (int)err->code;
    }
    if (mailbox_init(&queries->back, 0, err)) {
        mailbox_done(&queries->mailbox);
        mem_free(queries);
        return (int)err->code;
    }
    int rc = store_reader_new(conninfo, &queries->reader, err);
    if (!rc && pthread_create(&queries->thread, NULL, queries_run, queries))
        rc = err_set(err, ERR_UNAVAILABLE, "queries: no thread could be started");
    if (rc) {
        (void)queries_free(queries); /* always NULL */
        return rc;
    }
    *ret = queries;
    return 0;
}

static void refuse_all(struct mailbox_node *node)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    while (node) {
        struct query *query = query_of(node);
        node = node->next;
        refuse(query, &err);
    }
}

struct queries *queries_stop(struct queries *queries)
{
    if (!queries)
        return NULL;
    bool is_last = mailbox_put_always(&queries->back, &queries->last.node);
    mailbox_close(&queries->back); /* by nobody else, so the last one was taken */
    mailbox_close(&queries->mailbox);
    if (is_last)
        (void)pthread_join(queries->thread, NULL); /* it was started and is joined once */
    refuse_all(queries->fresh);
    refuse_all(mailbox_take_all(&queries->mailbox));
    refuse_all(mailbox_take_all(&queries->back));
    return queries_free(queries);
}

enum way { WAY_NEW, WAY_ADMITTED, WAY_BACK };

static void post(struct query *query, enum way way)
{
    struct rpc_server *server = query->server;
    pthread_mutex_lock(&server->lock); /* the mailbox is there as long as the lock says so */
    struct queries *queries = query->queries = server->queries;
    bool taken =
        queries && (way == WAY_NEW        ? mailbox_put(&queries->mailbox, &query->node)
                    : way == WAY_ADMITTED ? mailbox_put_always(&queries->mailbox, &query->node)
                                          : mailbox_put_always(&queries->back, &query->node));
    pthread_mutex_unlock(&server->lock);
    if (taken)
        return;
    struct err err;
    if (atomic_load(&server->stopping))
        (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    else
        (void)err_reason(&err, ERR_LIMIT, "TOO_MANY_QUERIES", "more than %d queries wait",
                         RPC_QUERIES_MAX);
    err.retryable = true;
    refuse(query, &err);
}

void queries_post(struct query *query)
{
    post(query, WAY_NEW);
}

void queries_post_admitted(struct query *query)
{
    post(query, WAY_ADMITTED);
}

bool query_asks_engine(struct query *query, struct engine_event *event)
{
    struct queries *queries = query->queries;
    queries->away++; /* before it can come back */
    bool asks = engine_post_always(query->server->engine, event);
    if (!asks)
        queries->away--;
    return asks;
}

void query_post_back(struct query *query)
{
    post(query, WAY_BACK);
}

void *query_new(struct call *call, size_t size, void (*run)(struct query *, struct store_reader *))
{
    struct query *query = arena_alloc(&call->arena, size);
    if (!query) {
        struct err err;
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        call_fail(call, &err);
        return NULL;
    }
    query->server = call->server;
    query->call = call;
    query->run = run;
    return query;
}
