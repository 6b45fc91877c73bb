/* Workers, their sessions and their leases. */
#include "base/mem.h"
#include "dispatch/dispatch_internal.h"

#include <string.h>
#include <utlist.h>

struct dispatch *dispatch_new(void)
{
    return mem_calloc(1, sizeof(struct dispatch));
}

static struct worker_entry *entry_of(struct dispatch_worker *worker)
{
    return CONTAINER(worker, struct worker_entry, worker);
}

static struct dispatch_worker *worker_get(struct dispatch *dispatch, const char *name)
{
    struct worker_entry *entry = NULL;
    HASH_FIND_STR(dispatch->workers, name, entry);
    if (entry)
        return &entry->worker;
    entry = mem_calloc(1, sizeof *entry);
    char *copy = mem_strdup(name);
    if (entry && copy)
        HASH_ADD_KEYPTR(hh, dispatch->workers, copy, strlen(copy), entry);
    if (!entry || !hash_holds(&entry->hh)) {
        mem_free(entry);
        mem_free(copy);
        return NULL;
    }
    entry->worker.name = copy;
    return &entry->worker;
}

/* A worker without a stream and without leases is forgotten. */
static void worker_forget_if_idle(struct dispatch *dispatch, struct dispatch_worker *worker)
{
    if (worker->session || worker->leases)
        return;
    struct worker_entry *entry = entry_of(worker);
    heap_remove(&dispatch->lost, &worker->lost);
    HASH_DEL(dispatch->workers, entry);
    mem_free(worker->name);
    mem_free(entry);
}

static void session_free(struct dispatch_session *session)
{
    struct dispatch_subscription *at = session->subscriptions;
    while (at) {
        struct dispatch_subscription *next = at->next_of_session;
        CDL_DELETE(at->handler->subscriptions, at);
        if (!at->handler->subscriptions) {
            handler_deactivate(at->handler);
            at->handler->dispatch->unserved = true;
        }
        mem_free(at);
        at = next;
    }
    mem_free(session);
}

static int session_subscribe(struct dispatch *dispatch, struct dispatch_session *session,
                             const struct dispatch_subscribe *wanted)
{
    struct dispatch_handler *handler = dispatch_handler(dispatch, wanted->handler);
    struct dispatch_subscription *subscription = mem_calloc(1, sizeof *subscription);
    if (!handler || !subscription) {
        mem_free(subscription);
        return -1;
    }
    subscription->session = session;
    subscription->handler = handler;
    subscription->max_in_flight = wanted->max_in_flight;
    LL_PREPEND2(session->subscriptions, subscription, next_of_session);
    CDL_APPEND(handler->subscriptions, subscription);
    return 0;
}

int dispatch_session_open(struct dispatch *dispatch, const char *worker_name,
                          const struct dispatch_subscribe *handlers, size_t count, void *owner,
                          struct dispatch_session **ret, struct dispatch_session **ret_previous,
                          struct err *err)
{
    struct dispatch_worker *worker = worker_get(dispatch, worker_name);
    struct dispatch_session *session = mem_calloc(1, sizeof *session);
    if (!worker || !session) {
        mem_free(session);
        if (worker)
            worker_forget_if_idle(dispatch, worker);
        return err_set(err, ERR_NOMEM, "worker session");
    }
    for (size_t i = 0; i < count; i++)
        if (session_subscribe(dispatch, session, &handlers[i])) {
            session_free(session);
            worker_forget_if_idle(dispatch, worker);
            return err_set(err, ERR_NOMEM, "worker session");
        }
    struct dispatch_session *previous = worker->session;
    if (previous)
        previous->worker = NULL;
    session->worker = worker;
    session->owner = owner;
    session->left = UINT64_MAX;
    worker->session = session;
    heap_remove(&dispatch->lost, &worker->lost);
    *ret_previous = previous;
    *ret = session;
    return 0;
}

void dispatch_session_close(struct dispatch *dispatch, struct dispatch_session *session,
                            int64_t lost_at)
{
    struct dispatch_worker *worker = session->worker;
    session_free(session);
    if (!worker)
        return; /* a newer session of the same worker took over */
    worker->session = NULL;
    /* Without memory for the timer the leases end by expiry instead. */
    if (worker->leases && heap_set(&dispatch->lost, &worker->lost, lost_at))
        return;
    worker_forget_if_idle(dispatch, worker);
}

void dispatch_session_bound(struct dispatch_session *session, uint64_t tasks_max)
{
    session->left = tasks_max;
}

bool dispatch_session_covers(const struct dispatch_session *session,
                             const struct dispatch_session *other)
{
    for (const struct dispatch_subscription *wanted = other->subscriptions; wanted;
         wanted = wanted->next_of_session) {
        const struct dispatch_subscription *at = session->subscriptions;
        while (at && at->handler != wanted->handler)
            at = at->next_of_session;
        if (!at)
            return false;
    }
    return true;
}

static void session_activate(struct dispatch_session *session)
{
    for (struct dispatch_subscription *at = session->subscriptions; at; at = at->next_of_session)
        handler_activate(at->handler);
}

void dispatch_session_block(struct dispatch_session *session, bool blocked)
{
    session->blocked = blocked;
    if (!blocked)
        session_activate(session);
}

void dispatch_session_silent(struct dispatch_session *session, bool silent)
{
    bool speaks_again = session->silent && !silent;
    session->silent = silent;
    if (speaks_again)
        session_activate(session);
}

void dispatch_session_drain(struct dispatch_session *session)
{
    session->draining = true;
}

int dispatch_lease_add(struct dispatch *dispatch, struct dispatch_lease *lease,
                       const char *worker_name, struct dispatch_handler *handler)
{
    struct dispatch_worker *worker = worker_get(dispatch, worker_name);
    if (!worker)
        return -1;
    lease->worker = worker;
    lease->handler = handler;
    lease->listed = false;
    DL_APPEND(worker->leases, lease);
    worker->lease_count++;
    handler->leased++;
    return 0;
}

void dispatch_lease_remove(struct dispatch *dispatch, struct dispatch_lease *lease)
{
    struct dispatch_worker *worker = lease->worker;
    if (!worker)
        return;
    DL_DELETE(worker->leases, lease);
    worker->lease_count--;
    lease->handler->leased--;
    lease->worker = NULL;
    worker_forget_if_idle(dispatch, worker);
}

struct dispatch_worker *dispatch_lost_take(struct dispatch *dispatch, int64_t mono_ms)
{
    struct heap_node *top = heap_top(&dispatch->lost);
    if (!top || top->key > mono_ms)
        return NULL;
    heap_remove(&dispatch->lost, top);
    return CONTAINER(top, struct dispatch_worker, lost);
}

int64_t dispatch_lost_at(const struct dispatch *dispatch)
{
    const struct heap_node *top = heap_top(&dispatch->lost);
    return top ? top->key : INT64_MAX;
}

struct dispatch *dispatch_free(struct dispatch *dispatch)
{
    if (!dispatch)
        return NULL;
    struct worker_entry *entry, *next_entry;
    HASH_ITER(hh, dispatch->workers, entry, next_entry)
    {
        HASH_DEL(dispatch->workers, entry);
        if (entry->worker.session)
            session_free(entry->worker.session);
        mem_free(entry->worker.name);
        mem_free(entry);
    }
    struct dispatch_handler *handler, *next_handler;
    HASH_ITER(hh, dispatch->handlers, handler, next_handler)
    {
        handler_free(handler);
    }
    heap_done(&dispatch->lost);
    mem_free(dispatch);
    return NULL;
}
