#include "pool.h"

#include "session.h"

#include <stdio.h>
#include <string.h>

int64_t task_lease_end_ms(const struct task_lease *lease)
{
    int64_t end = lease->confirmed_ms + lease->lease_ms * POOL_LEASE_MARGIN / 100;
    return end < lease->attempt_until_ms ? end : lease->attempt_until_ms;
}

int pool_init(struct pool *pool, const char *worker_id, int64_t drain_ms, const struct clock *clock,
              uint64_t seed, struct err *err)
{
    memset(pool, 0, sizeof *pool);
    pool->clock = *clock;
    pool->drain_ms = drain_ms;
    pool->output_bytes_max = SAGA_OUTPUT_MAX;
    rng_seed(&pool->rng, seed);
    (void)snprintf(pool->instance, sizeof pool->instance, "%016llx%016llx",
                   (unsigned long long)rng_next(&pool->rng),
                   (unsigned long long)rng_next(&pool->rng));
    pthread_mutex_init(&pool->lock, NULL);
    pool->worker_id = mem_strdup(worker_id);
    pool->handlers = mem_calloc(SAGA_HANDLERS_MAX, sizeof *pool->handlers);
    if (!pool->worker_id || !pool->handlers) {
        pool_done(pool);
        return err_set(err, ERR_NOMEM, "worker");
    }
    return 0;
}

void pool_done(struct pool *pool)
{
    for (size_t i = 0; pool->handlers && i < pool->handler_count; i++)
        mem_free(pool->handlers[i].name);
    mem_free(pool->handlers);
    mem_free(pool->worker_id);
    pthread_mutex_destroy(&pool->lock);
}

struct pool_handler *pool_handler_find(struct pool *pool, const char *name)
{
    for (size_t i = 0; i < pool->handler_count; i++)
        if (strcmp(pool->handlers[i].name, name) == 0)
            return &pool->handlers[i];
    return NULL;
}

/* What the server takes: else it would end each stream at its Hello. */
static bool is_handler_name(const char *name)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-";
    size_t size = name ? strlen(name) : 0;
    return size >= 1 && size <= SAGA_HANDLER_NAME_MAX && strspn(name, plain) == size;
}

int pool_handle(struct pool *pool, const char *name, int max_in_flight, saga_handler *run,
                void *ctx, struct err *err)
{
    if (!is_handler_name(name))
        return err_set(err, ERR_INVALID, "a handler's name is 1 to %d of [A-Za-z0-9._/-]",
                       SAGA_HANDLER_NAME_MAX);
    if (!run)
        return err_set(err, ERR_INVALID, "handler %s: no function", name);
    if (max_in_flight < 1 || max_in_flight > SAGA_IN_FLIGHT_MAX)
        return err_set(err, ERR_INVALID, "handler %s: max_in_flight is 1 to %d, not %d", name,
                       SAGA_IN_FLIGHT_MAX, max_in_flight);
    if (pool_handler_find(pool, name))
        return err_set(err, ERR_EXISTS, "handler %s is there already", name);
    if (pool->handler_count == SAGA_HANDLERS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d handlers", SAGA_HANDLERS_MAX);
    char *copy = mem_strdup(name);
    if (!copy)
        return err_set(err, ERR_NOMEM, "handler %s", name);
    pool->handlers[pool->handler_count++] = (struct pool_handler){
        .name = copy, .max_in_flight = max_in_flight, .run = run, .ctx = ctx
    };
    return 0;
}

/* Slots. */

static uint64_t slots_free(const struct pool_handler *handler)
{
    uint64_t slots = (uint64_t)handler->max_in_flight;
    return handler->in_use < slots ? slots - handler->in_use : 0;
}

static bool takes_work(const struct session *session)
{
    return session->phase == SESSION_ONLINE && !session->server_drains;
}

/* A slot was given free: the next in turn of those with the fewest unused offers may have it. */
static void slot_freed(struct pool *pool, struct pool_handler *handler)
{
    if (slots_free(handler) == 0)
        return; /* of what came beyond the slots */
    size_t index = (size_t)(handler - pool->handlers);
    struct session *best = NULL;
    uint64_t least = UINT64_MAX;
    for (unsigned i = 1; i <= pool->session_count; i++) {
        struct session *session = pool->sessions[(handler->turn + i) % pool->session_count];
        const struct session_credit *credit = &session->credits[index];
        uint64_t unused = credit->offered - credit->received;
        if (!takes_work(session) || unused >= least)
            continue;
        best = session;
        least = unused;
    }
    if (!best)
        return;
    best->credits[index].offered++;
    handler->turn = best->number;
    best->credit_due = best->nudged = true;
}

static bool is_alone(const struct pool *pool, const struct session *session)
{
    for (unsigned i = 0; i < pool->session_count; i++)
        if (pool->sessions[i] != session && takes_work(pool->sessions[i]))
            return false;
    return true;
}

uint64_t pool_offer(struct pool *pool, struct session *session, struct pool_handler *handler,
                    int64_t now_ms)
{
    const struct session_credit *credit = &session->credits[handler - pool->handlers];
    uint64_t unused = credit->offered - credit->received, more = slots_free(handler);
    if (more > 0 && handler->spare_since_ms == INT64_MAX)
        handler->spare_since_ms = now_ms;
    bool spare = more > 0 && now_ms - handler->spare_since_ms >= POOL_SPARE_MS;
    return more > unused && (spare || is_alone(pool, session)) ? more - unused : 0;
}

/* The table of tasks and the lists by state. */

static size_t bucket_of(const uint8_t *uid, int64_t fence)
{
    uint64_t hash = (uint64_t)fence * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < TASK_UID_SIZE; i++)
        hash = (hash ^ uid[i]) * UINT64_C(0x100000001b3);
    return (size_t)(hash >> 32) % POOL_BUCKETS;
}

struct saga_task *pool_find(struct pool *pool, const uint8_t *uid, int64_t fence)
{
    struct saga_task *task = pool->buckets[bucket_of(uid, fence)];
    while (task && (task->fence != fence || memcmp(task->uid, uid, TASK_UID_SIZE) != 0))
        task = task->bucket_next;
    return task;
}

/* A slot is free again once the report was sent: the next task is then already on its way while
 * the server makes this one durable. */
static bool takes_slot(enum task_state state)
{
    return state != TASK_REPORTED && state != TASK_RELEASED;
}

static bool was_started(enum task_state state)
{
    return state == TASK_RUNNING || state == TASK_FINISHED || state == TASK_REPORTED;
}

static void list_remove(struct saga_task *task)
{
    TAILQ_REMOVE(&task->session->lists[task->state], task, place);
    task->session->counts[task->state]--;
    task->session->pool->started -= was_started(task->state);
    task->handler->running -= task->state == TASK_RUNNING;
    task->handler->in_use -= takes_slot(task->state);
}

static void list_add(struct saga_task *task, struct session *session, enum task_state state)
{
    task->session = session;
    task->state = state;
    TAILQ_INSERT_TAIL(&session->lists[state], task, place);
    session->counts[state]++;
    session->pool->started += was_started(state);
    task->handler->running += state == TASK_RUNNING;
    task->handler->in_use += takes_slot(state);
    if (slots_free(task->handler) == 0)
        task->handler->spare_since_ms = INT64_MAX;
}

void pool_add(struct pool *pool, struct saga_task *task, struct session *session,
              enum task_state state)
{
    struct saga_task **bucket = &pool->buckets[bucket_of(task->uid, task->fence)];
    task->bucket_next = *bucket;
    *bucket = task;
    list_add(task, session, state);
}

void pool_move(struct saga_task *task, struct session *session, enum task_state state)
{
    bool freed = takes_slot(task->state) && !takes_slot(state);
    list_remove(task);
    list_add(task, session, state);
    if (freed) {
        session->credit_due = true;
        slot_freed(session->pool, task->handler);
    }
}

void pool_forget(struct saga_task *task)
{
    struct session *session = task->session;
    struct pool_handler *handler = task->handler;
    struct saga_task **link = &session->pool->buckets[bucket_of(task->uid, task->fence)];
    while (*link != task)
        link = &(*link)->bucket_next;
    *link = task->bucket_next;
    bool freed = takes_slot(task->state);
    list_remove(task);
    if (freed) {
        session->credit_due = true;
        slot_freed(session->pool, handler);
    }
    (void)task_free(task); /* always NULL */
}

struct session *pool_deputy(struct pool *pool, const struct session *session)
{
    for (unsigned i = 1; i < pool->session_count; i++) {
        struct session *other = pool->sessions[(session->number + i) % pool->session_count];
        if (takes_work(other))
            return other;
    }
    return NULL;
}

/* Handlers' side. */

/* The first task of the session that may run now. */
static struct saga_task *take_from(struct session *session, int64_t now_ms)
{
    struct saga_task *next;
    for (struct saga_task *task = TAILQ_FIRST(&session->lists[TASK_QUEUED]); task; task = next) {
        next = TAILQ_NEXT(task, place);
        if (now_ms >= task_lease_end_ms(&task->lease)) {
            pool_move(task, session,
                      TASK_RELEASED); /* waited for too long: certainly not started */
            session->nudged = true;
        } else if (task->handler->running < (uint64_t)task->handler->max_in_flight) {
            return task;
        }
    }
    return NULL;
}

struct saga_task *pool_take(struct pool *pool, int64_t now_ms)
{
    for (unsigned i = 0; i < pool->session_count && pool->started < POOL_STARTED_MAX; i++) {
        struct session *session = pool->sessions[(pool->take_next + i) % pool->session_count];
        struct saga_task *task = take_from(session, now_ms);
        if (!task)
            continue;
        pool->take_next = session->number + 1;
        pool_move(task, session, TASK_RUNNING);
        pool->stats.tasks_started++;
        return task;
    }
    return NULL;
}

void pool_finish(struct pool *pool, struct saga_task *task, int64_t now_ms)
{
    if (task->outcome.kind == SAGA__V1__OUTCOME__OUTCOME_UNSPECIFIED)
        task->outcome.kind = SAGA__V1__OUTCOME__OUTCOME_UNKNOWN;
    saga__v1__task__free_unpacked(task->message, NULL);
    task->message = NULL;
    if (pool->draining)
        pool->drain_until_ms = now_ms + pool->drain_ms;
    pool_move(task, task->session, TASK_FINISHED);
    task->session->nudged = true;
}

void pool_drain(struct pool *pool, int64_t now_ms)
{
    if (pool->draining)
        return;
    pool->draining = true;
    pool->drain_until_ms = now_ms + pool->drain_ms;
    for (unsigned i = 0; i < pool->session_count; i++) {
        session_release_queue(pool->sessions[i]);
        pool->sessions[i]->nudged = true;
    }
}

bool pool_is_drained(const struct pool *pool, int64_t now_ms)
{
    bool settled = true, said = true;
    for (unsigned i = 0; i < pool->session_count; i++) {
        const struct session *session = pool->sessions[i];
        const size_t *counts = session->counts;
        if (!pool->draining || counts[TASK_QUEUED] + counts[TASK_RUNNING] > 0)
            return false;
        if (counts[TASK_FINISHED] + counts[TASK_REPORTED] + counts[TASK_RELEASED] > 0)
            settled = false;
        if (session->phase != SESSION_OFFLINE &&
            (!session->drain_sent || now_ms - session->drain_sent_ms < SESSION_LINGER_MS))
            said = false;
    }
    return pool->draining && ((settled && said) || now_ms >= pool->drain_until_ms);
}
