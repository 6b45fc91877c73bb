#include "session.h"

#include "base/log.h"
#include "base/uuid.h"

#include <inttypes.h>
#include <string.h>

void session_init(struct session *session, struct pool *pool)
{
    memset(session, 0, sizeof *session);
    session->pool = pool;
    session->number = pool->session_count;
    for (int i = 0; i < TASK_STATE_COUNT; i++)
        TAILQ_INIT(&session->lists[i]);
    pool->sessions[pool->session_count++] = session;
}

void session_done(struct session *session)
{
    for (int i = 0; i < TASK_STATE_COUNT; i++) {
        struct saga_task *task;
        while ((task = TAILQ_FIRST(&session->lists[i])) != NULL)
            pool_forget(task);
    }
}

/* The life of a stream. */

/* Nobody knows what became of what was asked on another stream. */
static void extend_all(struct session *session, int64_t now_ms)
{
    struct saga_task *task;
    TAILQ_FOREACH(task, &session->lists[TASK_RUNNING], place)
    {
        task->lease.extend_at_ms = now_ms;
        task->lease.extend_sent_ms = 0;
    }
    session->extend_check_ms = now_ms;
}

static void move_all(struct session *from, enum task_state state, struct session *to,
                     enum task_state to_state)
{
    struct saga_task *task;
    while ((task = TAILQ_FIRST(&from->lists[state])) != NULL)
        pool_move(task, to, to_state);
}

/* This one has no stream; that one speaks for its tasks from now on. */
static void hand_over(struct session *from, struct session *to, int64_t now_ms)
{
    if (from->counts[TASK_RUNNING] > 0)
        to->extend_check_ms = now_ms;
    extend_all(from, now_ms);
    move_all(from, TASK_RUNNING, to, TASK_RUNNING);
    move_all(from, TASK_FINISHED, to, TASK_FINISHED);
    move_all(from, TASK_RELEASED, to, TASK_RELEASED);
    to->nudged = true;
}

void session_opened(struct session *session, int64_t now_ms)
{
    session->phase = SESSION_OPENING;
    session->hello_sent = session->drain_sent = session->server_drains = false;
    session->opened_ms = session->heard_ms = session->sent_ms = now_ms;
    session->credit_due = true;
    memset(session->credits, 0, sizeof session->credits);
    extend_all(session, now_ms);
}

static void back_off(struct session *session, bool was_steady, int64_t now_ms)
{
    if (was_steady)
        session->failures = 0;
    int64_t longest = SESSION_BACKOFF_MAX_MS;
    if (session->failures < 6 && (2 * SESSION_BACKOFF_MIN_MS) << session->failures < longest)
        longest = (2 * SESSION_BACKOFF_MIN_MS) << session->failures;
    session->failures++;
    uint64_t spread = (uint64_t)(longest - SESSION_BACKOFF_MIN_MS) + 1;
    session->reconnect_ms =
        now_ms + SESSION_BACKOFF_MIN_MS + (int64_t)rng_below(&session->pool->rng, spread);
}

void session_lost(struct session *session, int64_t now_ms)
{
    bool steady =
        session->phase == SESSION_ONLINE && now_ms - session->welcomed_ms >= SESSION_STEADY_MS;
    session->phase = SESSION_OFFLINE;
    session_release_queue(session);
    move_all(session, TASK_REPORTED, session, TASK_FINISHED);
    struct session *deputy = pool_deputy(session->pool, session);
    if (deputy)
        hand_over(session, deputy, now_ms);
    struct saga_task *task;
    while (session->pool->session_count == 1 && /* its next Hello tells */
           (task = TAILQ_FIRST(&session->lists[TASK_RELEASED])) != NULL)
        pool_forget(task);
    back_off(session, steady, now_ms);
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

bool session_is_wanted(const struct session *session)
{
    return !session->pool->draining || !pool_deputy(session->pool, session);
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

void session_release_queue(struct session *session)
{
    move_all(session, TASK_QUEUED, session, TASK_RELEASED);
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
                        int64_t now_ms, struct err *err)
{
    const Saga__V1__Task *wire = *message;
    int64_t lease_ms = duration_ms(wire->lease);
    int64_t attempt_ms = duration_ms(wire->attempt_remaining);
    struct pool *pool = session->pool;
    struct pool_handler *handler = pool_handler_find(pool, wire->handler);
    const int64_t second_max = INT64_C(253402300799); /* the end of year 9999 */
    if (wire->saga_uid.len != TASK_UID_SIZE || wire->fence <= 0 || lease_ms <= 0 ||
        attempt_ms < 0 || !is_known_operation(wire->operation) || !wire->saga_start_time ||
        wire->saga_start_time->seconds > second_max || wire->saga_start_time->seconds < -second_max)
        return err_set(err, ERR_INVALID, "the server sent a malformed task");
    if (!handler)
        return err_set(err, ERR_INVALID, "the server sent a task of a handler that is not ours");
    struct session_credit *credit = &session->credits[handler - pool->handlers];
    if (credit->received >= credit->granted)
        return err_set(err, ERR_INVALID, "the server sent more tasks of %s than credit",
                       handler->name);
    credit->received++;
    session->credit_due = true; /* what was kept back may be worth saying now */
    if (pool_find(pool, wire->saga_uid.data, wire->fence))
        return 0; /* we have it: nothing to do twice */

    struct saga_task *task;
    if (task_new(*message, &task) != 0)
        return err_set(err, ERR_NOMEM, "task");
    *message = NULL;
    task->handler = handler;
    task->clock = &pool->clock;
    task->lock = &pool->lock;
    task->draining = &pool->draining;
    task->output_bytes_max = pool->output_bytes_max;
    task->came_ms = now_ms;
    task->lease.confirmed_ms = since_ms;
    task->lease.lease_ms = lease_ms;
    task->lease.attempt_until_ms = since_ms + attempt_ms;
    task->lease.extend_at_ms = since_ms + lease_ms / 3;
    if (task->lease.extend_at_ms < session->extend_check_ms)
        session->extend_check_ms = task->lease.extend_at_ms;
    bool leaving = pool->draining || session->server_drains;
    pool_add(pool, task, session, leaving ? TASK_RELEASED : TASK_QUEUED);
    return 0;
}

static int receive_ack(struct session *session, const Saga__V1__Ack *ack, struct err *err)
{
    if (ack->saga_uid.len != TASK_UID_SIZE)
        return err_set(err, ERR_INVALID, "the server sent a malformed ack");
    struct saga_worker_stats *stats = &session->pool->stats;
    struct saga_task *task = pool_find(session->pool, ack->saga_uid.data, ack->fence);
    if (!task || (task->state != TASK_REPORTED && task->state != TASK_FINISHED))
        return 0;        /* acknowledged before */
    if (*ack->problem) { /* of the task itself no more is left than its name */
        struct uuid uid;
        char text[UUID_TEXT_SIZE];
        memcpy(uid.bytes, task->uid, sizeof uid.bytes);
        uuid_format(&uid, text);
        log_line(LOG_WARN, "the outcome counts as UNKNOWN: its output is not of the declared type",
                 "saga_uid", text, "fence", log_fmt("%" PRId64, task->fence), "handler",
                 task->handler->name, "problem", ack->problem, NULL);
    }
    switch (ack->result) {
    case SAGA__V1__ACK__RESULT__RESULT_ACCEPTED:
        stats->reports_accepted++;
        break;
    case SAGA__V1__ACK__RESULT__RESULT_DUPLICATE:
        stats->reports_duplicate++;
        break;
    case SAGA__V1__ACK__RESULT__RESULT_STALE:
        stats->reports_stale++;
        break;
    default:
        return err_set(err, ERR_INVALID, "the server sent an ack without a result");
    }
    pool_forget(task);
    return 0;
}

static int receive_extended(struct session *session, const Saga__V1__Extended__Lease *extended,
                            struct err *err)
{
    int64_t lease_ms = extended->lease ? duration_ms(extended->lease) : 0;
    if (extended->saga_uid.len != TASK_UID_SIZE || lease_ms < 0)
        return err_set(err, ERR_INVALID, "the server sent a malformed extension");
    struct saga_task *task = pool_find(session->pool, extended->saga_uid.data, extended->fence);
    if (!task || (task->state != TASK_QUEUED && task->state != TASK_RUNNING))
        return 0;
    if (lease_ms == 0) {
        session->pool->stats.leases_lost++;
        task->lease.lost = true;
        if (task->state == TASK_QUEUED)
            pool_forget(task);
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
    struct saga_task *task = pool_find(session->pool, hint->saga_uid.data, hint->fence);
    if (!task)
        return 0;
    task->lease.cancelled = true;
    if (task->state == TASK_QUEUED) {
        task->session->nudged = true;
        pool_move(task, task->session, TASK_RELEASED);
    }
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
    session_release_queue(session);
}

/* It speaks for what those without a stream left behind. */
static void receive_welcome(struct session *session, int64_t now_ms)
{
    if (session->phase != SESSION_OPENING)
        return;
    session->phase = SESSION_ONLINE;
    session->welcomed_ms = now_ms;
    session->pool->stats.connects++;
    for (unsigned i = 0; i < session->pool->session_count; i++)
        if (session->pool->sessions[i]->phase != SESSION_ONLINE)
            hand_over(session->pool->sessions[i], session, now_ms);
}

static int receive_command(struct session *session, Saga__V1__ServerMessage *message,
                           int64_t since_ms, int64_t now_ms, struct err *err)
{
    int rc = 0;
    switch (message->command_case) {
    case SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME:
        receive_welcome(session, now_ms);
        break;
    case SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS:
        for (size_t i = 0; i < message->tasks->n_tasks && rc == 0; i++)
            rc = receive_task(session, &message->tasks->tasks[i], since_ms, now_ms, err);
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
