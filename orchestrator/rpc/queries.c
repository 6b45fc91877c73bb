#include "rpc/queries.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

struct queries {
    struct mailbox mailbox;
    struct store_reader *reader;
    pthread_t thread;
    struct query last; /* ends the thread */
};

static struct query *query_of(struct mailbox_node *node)
{
    return CONTAINER(node, struct query, node);
}

static void *queries_run(void *ctx)
{
    struct queries *queries = ctx;
    bool is_last = false;
    while (!is_last) {
        struct pollfd fd = { .fd = queries->mailbox.fd, .events = POLLIN };
        if (poll(&fd, 1, -1) < 0 && errno != EINTR)
            log_line(LOG_ERROR, "queries: poll failed", "err", strerror(errno), NULL);
        struct mailbox_node *node = mailbox_take_all(&queries->mailbox);
        while (node) {
            struct query *query = query_of(node);
            node = node->next; /* the query is gone once it ran */
            if (query == &queries->last)
                is_last = true;
            else
                query->run(query, queries->reader);
        }
    }
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
    int rc = store_reader_new(conninfo, &queries->reader, err);
    if (!rc && pthread_create(&queries->thread, NULL, queries_run, queries))
        rc = err_set(err, ERR_UNAVAILABLE, "queries: no thread could be started");
    if (rc) {
        queries->reader = store_reader_free(queries->reader);
        mailbox_done(&queries->mailbox);
        mem_free(queries);
        return rc;
    }
    *ret = queries;
    return 0;
}

static void refuse(struct query *query, const struct err *err)
{
    struct call *call = query->call;
    if (query->drop)
        query->drop(query);
    call_fail(call, err);
}

struct queries *queries_stop(struct queries *queries)
{
    if (!queries)
        return NULL;
    bool is_last = mailbox_put_always(&queries->mailbox, &queries->last.node);
    mailbox_close(&queries->mailbox); /* by nobody else, so the last one was taken */
    if (is_last)
        (void)pthread_join(queries->thread, NULL); /* it was started and is joined once */
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    for (struct mailbox_node *node = mailbox_take_all(&queries->mailbox); node;) {
        struct query *query = query_of(node);
        node = node->next;
        refuse(query, &err);
    }
    queries->reader = store_reader_free(queries->reader);
    mailbox_done(&queries->mailbox);
    mem_free(queries);
    return NULL;
}

static void post(struct query *query, bool admitted)
{
    struct rpc_server *server = query->call->server;
    pthread_mutex_lock(&server->lock); /* the mailbox is there as long as the lock says so */
    struct queries *queries = server->queries;
    bool taken = queries && (admitted ? mailbox_put_always(&queries->mailbox, &query->node)
                                      : mailbox_put(&queries->mailbox, &query->node));
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
    post(query, false);
}

void queries_post_admitted(struct query *query)
{
    post(query, true);
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
    query->call = call;
    query->run = run;
    return query;
}
