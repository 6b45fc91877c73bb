#include "session.h"

#include <stdio.h>
#include <string.h>

int64_t task_lease_end_ms(const struct task_lease *lease)
{
    int64_t end = lease->confirmed_ms + lease->lease_ms * SESSION_LEASE_MARGIN / 100;
    return end < lease->attempt_until_ms ? end : lease->attempt_until_ms;
}

/* The table of tasks and the lists by state. */

static size_t bucket_of(const uint8_t *uid, int64_t fence)
{
    uint64_t hash = (uint64_t)fence * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < TASK_UID_SIZE; i++)
        hash = (hash ^ uid[i]) * UINT64_C(0x100000001b3);
    return (size_t)(hash >> 32) % SESSION_BUCKETS;
}

static struct saga_task *find(struct session *session, const uint8_t *uid, int64_t fence)
{
    struct saga_task *task = session->buckets[bucket_of(uid, fence)];
    while (task && (task->fence != fence || memcmp(task->uid, uid, TASK_UID_SIZE) != 0))
        task = task->bucket_next;
    return task;
}

/* A slot is free again once the report was sent: the next task is then already on its way while
 * the server makes this one durable. */
static bool takes_slot(enum task_state state)
{
    return state != TASK_REPORTED;
}

static void list_remove(struct session *session, struct saga_task *task)
{
    TAILQ_REMOVE(&session->lists[task->state], task, place);
    session->counts[task->state]--;
    if (takes_slot(task->state)) {
        task->handler->in_use--;
        session->credit_due = true;
    }
}

static void list_add(struct session *session, struct saga_task *task, enum task_state state)
{
    task->state = state;
    TAILQ_INSERT_TAIL(&session->lists[state], task, place);
    session->counts[state]++;
    if (takes_slot(state))
        task->handler->in_use++;
}

void session_move(struct session *session, struct saga_task *task, enum task_state state)
{
    list_remove(session, task);
    list_add(session, task, state);
}

void session_forget(struct session *session, struct saga_task *task)
{
    struct saga_task **link = &session->buckets[bucket_of(task->uid, task->fence)];
    while (*link != task)
        link = &(*link)->bucket_next;
    *link = task->bucket_next;
    list_remove(session, task);
    (void)task_free(task); /* always NULL */
}

int session_init(struct session *session, const char *worker_id, int64_t drain_ms,
                 const struct clock *clock, uint64_t seed, struct err *err)
{
    memset(session, 0, sizeof *session);
    session->clock = *clock;
    session->drain_ms = drain_ms;
    session->address_count = 1;
    rng_seed(&session->rng, seed);
    (void)snprintf(session->instance, sizeof session->instance, "%016llx%016llx",
                   (unsigned long long)rng_next(&session->rng),
                   (unsigned long long)rng_next(&session->rng));
    for (int i = 0; i < TASK_STATE_COUNT; i++)
        TAILQ_INIT(&session->lists[i]);
    pthread_mutex_init(&session->lock, NULL);
    session->worker_id = mem_strdup(worker_id);
    session->handlers = mem_calloc(SAGA_HANDLERS_MAX, sizeof *session->handlers);
    if (!session->worker_id || !session->handlers) {
        session_done(session);
        return err_set(err, ERR_NOMEM, "worker session");
    }
    return 0;
}

void session_done(struct session *session)
{
    for (int i = 0; i < TASK_STATE_COUNT; i++) {
        struct saga_task *task;
        while ((task = TAILQ_FIRST(&session->lists[i])) != NULL)
            session_forget(session, task);
    }
    for (size_t i = 0; i < session->handler_count; i++)
        mem_free(session->handlers[i].name);
    mem_free(session->handlers);
    mem_free(session->worker_id);
    pthread_mutex_destroy(&session->lock);
}

static struct session_handler *handler_find(struct session *session, const char *name)
{
    for (size_t i = 0; i < session->handler_count; i++)
        if (strcmp(session->handlers[i].name, name) == 0)
            return &session->handlers[i];
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

int session_handle(struct session *session, const char *name, int max_in_flight, saga_handler *run,
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
    if (handler_find(session, name))
        return err_set(err, ERR_EXISTS, "handler %s is there already", name);
    if (session->handler_count == SAGA_HANDLERS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d handlers", SAGA_HANDLERS_MAX);
    char *copy = mem_strdup(name);
    if (!copy)
        return err_set(err, ERR_NOMEM, "handler %s", name);
    session->handlers[session->handler_count++] = (struct session_handler){
        .name = copy, .max_in_flight = max_in_flight, .run = run, .ctx = ctx
    };
    return 0;
}

/* The life of a stream. */

void session_opened(struct session *session, int64_t now_ms)
{
    session->phase = SESSION_OPENING;
    session->hello_sent = session->drain_sent = session->server_drains = false;
    session->opened_ms = session->heard_ms = session->sent_ms = now_ms;
    session->credit_due = true;
    for (size_t i = 0; i < session->handler_count; i++)
        session->handlers[i].received = session->handlers[i].granted = 0;
    for (struct saga_task *task = TAILQ_FIRST(&session->lists[TASK_RUNNING]); task;
         task = TAILQ_NEXT(task, place)) {
        task->lease.extend_at_ms = now_ms;
        task->lease.extend_sent_ms = 0;
    }
    session->extend_check_ms = now_ms;
}

void session_lost(struct session *session, int64_t now_ms)
{
    struct saga_task *task;
    while ((task = TAILQ_FIRST(&session->lists[TASK_QUEUED])) != NULL)
        session_forget(session, task);
    while ((task = TAILQ_FIRST(&session->lists[TASK_RELEASED])) != NULL)
        session_forget(session, task);
    while ((task = TAILQ_FIRST(&session->lists[TASK_REPORTED])) != NULL)
        session_move(session, task, TASK_FINISHED);

    if (session->phase == SESSION_ONLINE && now_ms - session->welcomed_ms >= SESSION_STEADY_MS)
        session->failures = 0;
    /* Every address is tried once before the pause grows. */
    unsigned round = session->failures / session->address_count;
    int64_t longest = SESSION_BACKOFF_MAX_MS;
    if (round < 6 && (2 * SESSION_BACKOFF_MIN_MS) << round < longest)
        longest = (2 * SESSION_BACKOFF_MIN_MS) << round;
    session->failures++;
    uint64_t spread = (uint64_t)(longest - SESSION_BACKOFF_MIN_MS) + 1;
    session->reconnect_ms =
        now_ms + SESSION_BACKOFF_MIN_MS + (int64_t)rng_below(&session->rng, spread);
    session->phase = SESSION_OFFLINE;
}

bool session_is_over(const struct session *session, int64_t now_ms)
{
    if (session->phase == SESSION_OFFLINE)
        return false;
    if (session->phase == SESSION_OPENING && now_ms - session->opened_ms >= SESSION_WELCOME_MS)
        return true;
    if (now_ms - session->heard_ms >= SESSION_SILENCE_MS)
        return true;
    /* The server goes away. What still runs is reported to another one, or to the next one here. */
    bool settled = session->counts[TASK_FINISHED] + session->counts[TASK_REPORTED] +
                       session->counts[TASK_RELEASED] ==
                   0;
    return session->server_drains && settled &&
           (session->counts[TASK_RUNNING] == 0 || now_ms >= session->server_drain_until_ms);
}

int64_t session_wake_ms(const struct session *session)
{
    if (session->phase == SESSION_OFFLINE)
        return session->reconnect_ms;
    int64_t wake = session->sent_ms + SESSION_IDLE_MS;
    int64_t silence = session->phase == SESSION_OPENING ? session->opened_ms + SESSION_WELCOME_MS
                                                        : session->heard_ms + SESSION_SILENCE_MS;
    if (silence < wake)
        wake = silence;
    if (session->extend_check_ms < wake)
        wake = session->extend_check_ms;
    return wake;
}

/* Handlers' side. */

struct saga_task *session_take(struct session *session, int64_t now_ms)
{
    struct saga_task *task;
    while ((task = TAILQ_FIRST(&session->lists[TASK_QUEUED])) != NULL) {
        if (now_ms >= task_lease_end_ms(&task->lease)) {
            session_move(session, task,
                         TASK_RELEASED); /* it waited for too long: certainly not started */
            continue;
        }
        session_move(session, task, TASK_RUNNING);
        session->stats.tasks_started++;
        return task;
    }
    return NULL;
}

void session_finish(struct session *session, struct saga_task *task, int64_t now_ms)
{
    if (task->outcome.kind == SAGA__V1__OUTCOME__OUTCOME_UNSPECIFIED)
        task->outcome.kind = SAGA__V1__OUTCOME__OUTCOME_UNKNOWN;
    saga__v1__task__free_unpacked(task->message, NULL);
    task->message = NULL;
    if (session->draining)
        session->drain_until_ms = now_ms + session->drain_ms;
    session_move(session, task, TASK_FINISHED);
}

static void release_queue(struct session *session)
{
    struct saga_task *task;
    while ((task = TAILQ_FIRST(&session->lists[TASK_QUEUED])) != NULL)
        session_move(session, task, TASK_RELEASED);
}

void session_drain(struct session *session, int64_t now_ms)
{
    if (session->draining)
        return;
    session->draining = true;
    session->drain_until_ms = now_ms + session->drain_ms;
    release_queue(session);
}

bool session_is_drained(const struct session *session, int64_t now_ms)
{
    const size_t *counts = session->counts;
    if (!session->draining || counts[TASK_QUEUED] + counts[TASK_RUNNING] > 0)
        return false;
    if (now_ms >= session->drain_until_ms)
        return true;
    if (counts[TASK_FINISHED] + counts[TASK_REPORTED] + counts[TASK_RELEASED] > 0)
        return false;
    return session->phase == SESSION_OFFLINE ||
           (session->drain_sent && now_ms - session->drain_sent_ms >= SESSION_LINGER_MS);
}

/* What the server says. */

/* -1: absent, negative or out of range. Longer than a year counts as a year. */
static int64_t duration_ms(const Google__Protobuf__Duration *duration)
{
    const int64_t year_s = INT64_C(366) * 24 * 3600;
    if (!duration || duration->seconds < 0 || duration->nanos < 0 || duration->nanos > 999999999)
        return -1;
    int64_t seconds = duration->seconds < year_s ? duration->seconds : year_s;
    return seconds * 1000 + duration->nanos / 1000000;
}

static bool is_known_operation(Saga__V1__OperationKind kind)
{
    return kind == SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION ||
           kind == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION ||
           kind == SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE;
}

static int receive_task(struct session *session, Saga__V1__Task **message, int64_t since_ms,
                        struct err *err)
{
    const Saga__V1__Task *wire = *message;
    int64_t lease_ms = duration_ms(wire->lease);
    int64_t attempt_ms = duration_ms(wire->attempt_remaining);
    struct session_handler *handler = handler_find(session, wire->handler);
    const int64_t second_max = INT64_C(253402300799); /* the end of year 9999 */
    if (wire->saga_uid.len != TASK_UID_SIZE || wire->fence <= 0 || lease_ms <= 0 ||
        attempt_ms < 0 || !is_known_operation(wire->operation) || !wire->saga_start_time ||
        wire->saga_start_time->seconds > second_max || wire->saga_start_time->seconds < -second_max)
        return err_set(err, ERR_INVALID, "the server sent a malformed task");
    if (!handler)
        return err_set(err, ERR_INVALID, "the server sent a task of a handler that is not ours");
    if (handler->received >= handler->granted)
        return err_set(err, ERR_INVALID, "the server sent more tasks of %s than credit",
                       handler->name);
    handler->received++;
    session->credit_due = true; /* what was kept back may be worth saying now */
    if (find(session, wire->saga_uid.data, wire->fence))
        return 0; /* we have it: nothing to do twice */

    struct saga_task *task;
    if (task_new(*message, &task) != 0)
        return err_set(err, ERR_NOMEM, "task");
    *message = NULL;
    task->handler = handler;
    task->clock = &session->clock;
    task->lock = &session->lock;
    task->draining = &session->draining;
    task->lease.confirmed_ms = since_ms;
    task->lease.lease_ms = lease_ms;
    task->lease.attempt_until_ms = since_ms + attempt_ms;
    task->lease.extend_at_ms = since_ms + lease_ms / 3;
    if (task->lease.extend_at_ms < session->extend_check_ms)
        session->extend_check_ms = task->lease.extend_at_ms;
    struct saga_task **bucket = &session->buckets[bucket_of(task->uid, task->fence)];
    task->bucket_next = *bucket;
    *bucket = task;
    bool leaving = session->draining || session->server_drains;
    list_add(session, task, leaving ? TASK_RELEASED : TASK_QUEUED);
    return 0;
}

static int receive_ack(struct session *session, const Saga__V1__Ack *ack, struct err *err)
{
    if (ack->saga_uid.len != TASK_UID_SIZE)
        return err_set(err, ERR_INVALID, "the server sent a malformed ack");
    struct saga_task *task = find(session, ack->saga_uid.data, ack->fence);
    if (!task || (task->state != TASK_REPORTED && task->state != TASK_FINISHED))
        return 0; /* acknowledged before */
    switch (ack->result) {
    case SAGA__V1__ACK__RESULT__RESULT_ACCEPTED:
        session->stats.reports_accepted++;
        break;
    case SAGA__V1__ACK__RESULT__RESULT_DUPLICATE:
        session->stats.reports_duplicate++;
        break;
    case SAGA__V1__ACK__RESULT__RESULT_STALE:
        session->stats.reports_stale++;
        break;
    default:
        return err_set(err, ERR_INVALID, "the server sent an ack without a result");
    }
    session_forget(session, task);
    return 0;
}

static int receive_extended(struct session *session, const Saga__V1__Extended__Lease *extended,
                            struct err *err)
{
    int64_t lease_ms = extended->lease ? duration_ms(extended->lease) : 0;
    if (extended->saga_uid.len != TASK_UID_SIZE || lease_ms < 0)
        return err_set(err, ERR_INVALID, "the server sent a malformed extension");
    struct saga_task *task = find(session, extended->saga_uid.data, extended->fence);
    if (!task || (task->state != TASK_QUEUED && task->state != TASK_RUNNING))
        return 0;
    if (lease_ms == 0) {
        session->stats.leases_lost++;
        task->lease.lost = true;
        if (task->state == TASK_QUEUED)
            session_forget(session, task);
    } else if (task->lease.extend_sent_ms != 0) {
        /* Counted from when we asked: the server cannot have read it before. */
        task->lease.confirmed_ms = task->lease.extend_sent_ms;
        task->lease.lease_ms = lease_ms;
        task->lease.extend_sent_ms = 0;
    }
    return 0;
}

static int receive_cancel(struct session *session, const Saga__V1__CancelHint *hint,
                          struct err *err)
{
    if (hint->saga_uid.len != TASK_UID_SIZE)
        return err_set(err, ERR_INVALID, "the server sent a malformed cancel hint");
    struct saga_task *task = find(session, hint->saga_uid.data, hint->fence);
    if (!task)
        return 0;
    task->lease.cancelled = true;
    if (task->state == TASK_QUEUED)
        session_move(session, task, TASK_RELEASED);
    return 0;
}

static void receive_drain(struct session *session, const Saga__V1__DrainRequested *drain,
                          int64_t now_ms)
{
    if (session->server_drains)
        return;
    int64_t grace_ms = duration_ms(drain->grace);
    session->server_drains = true;
    session->server_drain_until_ms = now_ms + (grace_ms > 0 ? grace_ms / 2 : 0);
    release_queue(session);
}

static int receive_command(struct session *session, Saga__V1__ServerMessage *message,
                           int64_t since_ms, int64_t now_ms, struct err *err)
{
    int rc = 0;
    switch (message->command_case) {
    case SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME:
        if (session->phase == SESSION_OPENING) {
            session->phase = SESSION_ONLINE;
            session->welcomed_ms = now_ms;
            session->stats.connects++;
        }
        break;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS:
        for (size_t i = 0; i < message->tasks->n_tasks && rc == 0; i++)
            rc = receive_task(session, &message->tasks->tasks[i], since_ms, err);
        break;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS:
        for (size_t i = 0; i < message->acks->n_acks && rc == 0; i++)
            rc = receive_ack(session, message->acks->acks[i], err);
        break;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_EXTENDED:
        for (size_t i = 0; i < message->extended->n_leases && rc == 0; i++)
            rc = receive_extended(session, message->extended->leases[i], err);
        break;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_CANCEL_HINT:
        rc = receive_cancel(session, message->cancel_hint, err);
        break;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_DRAIN_REQUESTED:
        receive_drain(session, message->drain_requested, now_ms);
        break;
    default:
        break; /* Tick, or a word of a newer server: that it speaks is what counts */
    }
    return rc;
}

int session_receive(struct session *session, const void *data, size_t size, int64_t since_ms,
                    int64_t now_ms, struct err *err)
{
    Saga__V1__ServerMessage *message = saga__v1__server_message__unpack(NULL, size, data);
    if (!message)
        return err_set(err, ERR_INVALID, "the server sent something that is no message");
    session->heard_ms = now_ms;
    int rc = receive_command(session, message, since_ms, now_ms, err);
    saga__v1__server_message__free_unpacked(message, NULL);
    return rc;
}
