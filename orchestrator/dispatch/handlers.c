/* Handlers, their ready queues and the credits of those who serve them. */
#include "base/mem.h"
#include "dispatch/dispatch_internal.h"

#include <string.h>
#include <utlist.h>

struct dispatch_handler *dispatch_handler(struct dispatch *dispatch, const char *name)
{
    struct dispatch_handler *handler = NULL;
    HASH_FIND_STR(dispatch->handlers, name, handler);
    if (handler)
        return handler;
    handler = mem_calloc(1, sizeof *handler);
    char *copy = mem_strdup(name);
    if (handler && copy)
        HASH_ADD_KEYPTR(hh, dispatch->handlers, copy, strlen(copy), handler);
    if (!handler || !hash_holds(&handler->hh)) {
        mem_free(handler);
        mem_free(copy);
        return NULL;
    }
    handler->name = copy;
    handler->dispatch = dispatch;
    return handler;
}

void handler_free(struct dispatch_handler *handler)
{
    struct dispatch_group *group, *next_group;
    HASH_ITER(hh, handler->groups, group, next_group)
    {
        HASH_DEL(handler->groups, group);
        heap_done(&group->waiting);
        mem_free(group);
    }
    gate_forget(handler);
    HASH_DEL(handler->dispatch->handlers, handler);
    mem_free(handler->name);
    mem_free(handler);
}

void dispatch_forget_unused(struct dispatch *dispatch)
{
    if (!dispatch->unserved)
        return;
    dispatch->unserved = false;
    struct dispatch_handler *handler, *next;
    HASH_ITER(hh, dispatch->handlers, handler, next)
    {
        if (!handler->subscriptions && !handler->ready && !handler->leased && !handler->gated)
            handler_free(handler);
    }
}

void handler_activate(struct dispatch_handler *handler)
{
    if (handler->active || !handler->turn || !handler->subscriptions)
        return;
    struct dispatch *dispatch = handler->dispatch;
    CDL_APPEND2(dispatch->active, handler, prev_active, next_active);
    handler->active = true;
}

void handler_deactivate(struct dispatch_handler *handler)
{
    if (!handler->active)
        return;
    CDL_DELETE2(handler->dispatch->active, handler, prev_active, next_active);
    handler->active = false;
}

/* One that is empty is in no ring. NULL: memory. */
static struct dispatch_group *group_get(struct dispatch_handler *handler, const void *fair)
{
    struct dispatch_group *group = NULL;
    HASH_FIND_PTR(handler->groups, &fair, group);
    if (group)
        return group;
    group = mem_calloc(1, sizeof *group);
    if (!group)
        return NULL;
    group->fair = fair;
    group->handler = handler;
    HASH_ADD_PTR(handler->groups, fair, group);
    if (!hash_holds(&group->hh)) {
        mem_free(group);
        return NULL;
    }
    return group;
}

enum { TIE_BITS = 20 }; /* so many may come in one millisecond and keep their order */

int dispatch_ready_put(struct dispatch_handler *handler, const void *fair, int64_t since_ms,
                       struct dispatch_ready *ready)
{
    struct dispatch_group *group = group_get(handler, fair);
    int64_t tie = handler->dispatch->puts++ & ((INT64_C(1) << TIE_BITS) - 1);
    if (!group ||
        heap_set(&group->waiting, &ready->node, since_ms * (INT64_C(1) << TIE_BITS) + tie))
        return -1;
    if (group->waiting.count == 1)
        CDL_APPEND(handler->turn, group);
    ready->group = group;
    handler->ready++;
    handler_activate(handler);
    return 0;
}

int64_t dispatch_handler_ready(const struct dispatch_handler *handler)
{
    return handler->ready;
}

void dispatch_ready_each(struct dispatch_handler *handler,
                         void (*fn)(void *ctx, struct dispatch_ready *ready), void *ctx)
{
    struct dispatch_group *group, *next_group;
    HASH_ITER(hh, handler->groups, group, next_group)
    {
        for (size_t i = 0; i < group->waiting.count; i++)
            fn(ctx, CONTAINER(group->waiting.nodes[i], struct dispatch_ready, node));
    }
}

void dispatch_ready_remove(struct dispatch_ready *ready)
{
    struct dispatch_group *group = ready->group;
    if (!group)
        return;
    struct dispatch_handler *handler = group->handler;
    heap_remove(&group->waiting, &ready->node);
    ready->group = NULL;
    handler->ready--;
    if (!group->waiting.count) {
        CDL_DELETE(handler->turn, group);
        if (!handler->turn)
            handler_deactivate(handler);
    }
}

struct dispatch_subscription *dispatch_reserve(struct dispatch_handler *handler)
{
    struct dispatch_subscription *first = handler->subscriptions;
    struct dispatch_subscription *at = first;
    if (!at || !gate_is_open(handler))
        return NULL;
    do {
        if (at->sent < at->total && session_takes_tasks(at->session)) {
            gate_take(handler);
            at->sent++;
            at->session->left--;
            handler->subscriptions = at->next; /* the next one's turn */
            return at;
        }
        at = at->next;
    } while (at != first);
    return NULL;
}

void dispatch_unreserve(struct dispatch_subscription *subscription)
{
    subscription->sent--;
    subscription->session->left++;
    gate_give_back(subscription->handler);
    handler_activate(subscription->handler);
}

struct dispatch_handler *dispatch_ready_handler(const struct dispatch_ready *ready)
{
    return ready->group->handler;
}

const char *dispatch_handler_name(const struct dispatch_handler *handler)
{
    return handler->name;
}

bool dispatch_handler_is_served(const struct dispatch_handler *handler)
{
    const struct dispatch_subscription *at = handler->subscriptions;
    if (!at)
        return false;
    do {
        if (!at->session->draining)
            return true;
        at = at->next;
    } while (at != handler->subscriptions);
    return false;
}

static int64_t handler_credit(const struct dispatch_handler *handler)
{
    const struct dispatch_subscription *at = handler->subscriptions;
    int64_t credit = 0;
    if (at)
        do {
            credit += at->total > at->sent ? (int64_t)(at->total - at->sent) : 0;
            at = at->next;
        } while (at != handler->subscriptions);
    return credit;
}

int dispatch_served(const struct dispatch *dispatch, int64_t ready_max,
                    struct dispatch_served *served)
{
    served->count = 0;
    served->credit = 0;
    for (const struct dispatch_handler *handler = dispatch->handlers; handler;
         handler = handler->hh.next) {
        if (handler->ready >= (handler->gate.held ? handler->gate.on_trial : ready_max) ||
            !dispatch_handler_is_served(handler))
            continue;
        if (mem_grow((void **)&served->names, &served->capacity, served->count,
                     sizeof *served->names))
            return -1;
        served->names[served->count++] = handler->name;
        served->credit += handler_credit(handler);
    }
    return 0;
}

bool dispatch_handler_could(const struct dispatch_handler *handler)
{
    const struct dispatch_subscription *at = handler->subscriptions;
    if (!at)
        return false;
    do {
        if (at->sent < at->total && session_takes_tasks(at->session))
            return true;
        at = at->next;
    } while (at != handler->subscriptions);
    return false;
}

bool dispatch_handler_has_credit(const struct dispatch_handler *handler)
{
    return gate_is_open(handler) && dispatch_handler_could(handler);
}

struct dispatch_ready *dispatch_ready_take(struct dispatch *dispatch)
{
    while (dispatch->active) {
        struct dispatch_handler *handler = dispatch->active;
        if (!handler->turn || !dispatch_handler_has_credit(handler)) {
            handler_deactivate(handler);
            continue;
        }
        dispatch->active = handler->next_active; /* handlers in turn */
        struct dispatch_group *group = handler->turn;
        handler->turn = group->next; /* definitions in turn */
        struct dispatch_ready *ready =
            CONTAINER(heap_top(&group->waiting), struct dispatch_ready, node);
        dispatch_ready_remove(ready);
        return ready;
    }
    return NULL;
}

bool dispatch_credit(struct dispatch *dispatch, struct dispatch_session *session,
                     const char *handler_name, uint64_t total)
{
    (void)dispatch;
    for (struct dispatch_subscription *at = session->subscriptions; at; at = at->next_of_session) {
        if (strcmp(at->handler->name, handler_name) != 0)
            continue;
        if (total > at->total) {
            at->total = total;
            handler_activate(at->handler);
        }
        return true;
    }
    return false;
}

void dispatch_handler_view(const struct dispatch_handler *handler,
                           struct dispatch_handler_view *ret)
{
    *ret = (struct dispatch_handler_view){ .name = handler->name,
                                           .ready = handler->ready,
                                           .leased = handler->leased,
                                           .credit = handler_credit(handler),
                                           .served = dispatch_handler_is_served(handler) };
    const struct dispatch_subscription *at = handler->subscriptions;
    if (at)
        do {
            ret->workers++;
            at = at->next;
        } while (at != handler->subscriptions);
    for (const struct dispatch_group *group = handler->groups; group; group = group->hh.next) {
        const struct heap_node *first = heap_top(&group->waiting);
        int64_t since_ms = first ? first->key >> TIE_BITS : 0;
        if (first && (!ret->oldest_ms || since_ms < ret->oldest_ms))
            ret->oldest_ms = since_ms;
    }
}

void dispatch_view(const struct dispatch *dispatch, const char *only,
                   void (*fn)(void *ctx, const struct dispatch_handler_view *view), void *ctx)
{
    for (const struct dispatch_handler *handler = dispatch->handlers; handler;
         handler = handler->hh.next) {
        if (only && strcmp(only, handler->name) != 0)
            continue;
        struct dispatch_handler_view view;
        dispatch_handler_view(handler, &view);
        fn(ctx, &view);
    }
}
