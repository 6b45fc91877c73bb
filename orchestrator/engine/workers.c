/* Worker streams: Hello, credits, reports, extensions, releases; tasks and acks out. */
#include "engine/engine_internal.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/limits.h"
#include "dispatch/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* --- what goes out, gathered per stream during a turn ------------------------------------------
 */

static void flush_later(struct engine *engine, struct link_session *session)
{
    if (session->to_flush)
        return;
    session->to_flush = true;
    LL_PREPEND2(engine->to_flush, session, next_flush);
}

static void ack_add(struct engine *engine, struct link_session *session, const struct uuid *uid,
                    int64_t fence, enum engine_ack ack, const char *problem)
{
    if (session->gone || mem_grow((void **)&session->acks, &session->ack_capacity,
                                  session->ack_count, sizeof *session->acks))
        return; /* the worker sends its report again and is answered then */
    session->acks[session->ack_count++] = (struct engine_lease_ack){
        *uid, fence, ack, problem ? mem_strdup(problem) : NULL /* a help, no more */
    };
    flush_later(engine, session);
}

static void extended_add(struct engine *engine, struct link_session *session,
                         const struct uuid *uid, int64_t fence, int64_t lease_ms)
{
    if (session->gone || mem_grow((void **)&session->extended, &session->extended_capacity,
                                  session->extended_count, sizeof *session->extended))
        return; /* unconfirmed: the worker stops its handler in time */
    session->extended[session->extended_count++] =
        (struct engine_lease_extended){ *uid, fence, lease_ms };
    flush_later(engine, session);
}

void workers_granting(struct engine *engine, struct dispatch_session *dispatch_session,
                      size_t bytes)
{
    struct link_session *session = dispatch_session->owner;
    session->granted_bytes += bytes;
    if (session->granted_bytes < GRANT_BYTES_MAX)
        return;
    dispatch_session_block(dispatch_session, true);
    flush_later(engine, session);
}

void workers_grant(struct engine *engine, struct slot *slot, int64_t seq,
                   const struct flight *flight)
{
    struct link_session *session = flight->session ? flight->session->owner : NULL;
    if (!session || session->gone ||
        mem_grow((void **)&session->tasks, &session->task_capacity, session->task_count,
                 sizeof *session->tasks)) {
        lease_end_queue(engine, slot, seq, OUTCOME_RELEASED);
        return;
    }
    session->tasks[session->task_count++] =
        (struct lease_task){ slot->uid, seq, saga_entry(slot->saga, seq)->fence, flight->reserved };
    flush_later(engine, session);
}

struct engine_work *lease_end_new(int64_t seq, int64_t fence, const char *worker,
                                  enum outcome outcome)
{
    struct lease_end *end = mem_calloc(1, sizeof *end);
    if (!end || !(end->worker = mem_strdup(worker))) {
        mem_free(end);
        return NULL;
    }
    end->seq = seq;
    end->fence = fence;
    end->outcome = outcome;
    end->work.kind = WORK_LEASE_END;
    return &end->work;
}

void lease_end_queue(struct engine *engine, struct slot *slot, int64_t seq, enum outcome outcome)
{
    const struct journal_entry *entry = slot->saga ? saga_entry(slot->saga, seq) : NULL;
    struct engine_work *work =
        entry ? lease_end_new(seq, entry->fence, entry->worker, outcome) : NULL;
    if (work)
        slot_queue(engine, slot, work);
}

void lease_end_free(struct lease_end *end)
{
    mem_free(end->worker);
    mem_free(end);
}

enum { TASKS_PER_MESSAGE = 64 };

/* The task never left: its lease is given back, if it is still there and ours, whatever became of
 * the copy; and so is the credit. */
static void task_unsent(struct engine *engine, const struct link_session *session,
                        const struct lease_task *lease)
{
    if (lease->reserved)
        dispatch_unreserve(lease->reserved);
    struct slot *slot = slot_get(engine, &lease->uid);
    struct engine_work *work =
        lease_end_new(lease->seq, lease->fence, session->worker_name, OUTCOME_RELEASED);
    if (!slot || !work) {
        if (work) /* memory: the lease's time ends it */
            lease_end_free(CONTAINER(work, struct lease_end, work));
        return;
    }
    CONTAINER(work, struct lease_end, work)->if_ours = true;
    slot_queue(engine, slot, work);
}

/* False: there is nothing to send for it. */
static bool task_fill(struct engine *engine, const struct lease_task *lease,
                      struct engine_task *task, char key[OPERATION_KEY_SIZE])
{
    const struct slot *slot = slot_find(engine, &lease->uid);
    const struct journal_entry *entry =
        slot && slot->saga ? saga_entry(slot->saga, lease->seq) : NULL;
    if (!entry || entry->kind != ENTRY_LEASE || entry->outcome != OUTCOME_NONE)
        return false;
    int64_t now = engine_db_now_at_most(engine);
    task->saga = slot->saga;
    saga_task_view(slot->saga, lease->seq, &task->view);
    task->lease_ms = entry->lease_until_ms - now;
    task->attempt_ms = entry->attempt_until_ms - now; /* send_before has cut it */
    task->idempotency_key = key;
    if (task->lease_ms <= 0)
        return false; /* this process stood still: nobody may start it any more */
    return operation_key(slot->saga, (size_t)entry->step, task->view.about, task->view.generation,
                         key) == 0;
}

static void tasks_send(struct engine *engine, struct link_session *session,
                       const struct lease_task *leases, size_t count)
{
    struct engine_task tasks[TASKS_PER_MESSAGE];
    char keys[TASKS_PER_MESSAGE][OPERATION_KEY_SIZE];
    size_t usable = 0;
    for (size_t i = 0; i < count; i++) {
        if (task_fill(engine, &leases[i], &tasks[usable], keys[usable]))
            usable++;
        else
            task_unsent(engine, session, &leases[i]);
    }
    if (!usable)
        return;
    if (session->link->ops->tasks(session->link, tasks, usable)) {
        COUNT(engine, tasks_sent, (long long)usable);
        fault_point("after_task_sent");
        return;
    }
    for (size_t i = 0; i < count; i++)
        task_unsent(engine, session, &leases[i]);
}

static void acks_drop(struct link_session *session)
{
    while (session->ack_count > 0)
        mem_free(session->acks[--session->ack_count].problem);
}

/* Tasks first: somebody waits for them. */
static void session_flush(struct engine *engine, struct link_session *session)
{
    struct worker_link *link = session->link;
    for (size_t at = 0; at < session->task_count; at += TASKS_PER_MESSAGE) {
        size_t left = session->task_count - at;
        tasks_send(engine, session, session->tasks + at,
                   left < TASKS_PER_MESSAGE ? left : TASKS_PER_MESSAGE);
    }
    if (session->extended_count)
        link->ops->extended(link, session->extended, session->extended_count);
    for (size_t at = 0; at < session->ack_count; at += ACKS_PER_MESSAGE) {
        size_t left = session->ack_count - at;
        link->ops->acks(link, session->acks + at,
                        left < ACKS_PER_MESSAGE ? left : ACKS_PER_MESSAGE);
    }
    if (session->ack_count)
        fault_point("after_reply");
    acks_drop(session);
    session->extended_count = session->task_count = 0;
    bool was_full = session->granted_bytes >= GRANT_BYTES_MAX;
    session->granted_bytes = 0;
    if (!session->session || (session->session->blocked && !was_full))
        return;
    bool has_room = link->ops->has_room(link); /* if not, it posts WORKER_ROOM */
    if (session->session->blocked == has_room)
        dispatch_session_block(session->session, !has_room);
}

void workers_flush(struct engine *engine)
{
    while (engine->to_flush) {
        struct link_session *session = engine->to_flush;
        engine->to_flush = session->next_flush;
        session->to_flush = false;
        session_flush(engine, session);
    }
}

void workers_cancel_hints(struct engine *engine, struct slot *slot)
{
    (void)engine;
    for (const struct lease *lease = slot->leases; lease; lease = lease->next) {
        const struct dispatch_session *dispatch_session = lease->dispatch.worker->session;
        const struct link_session *session = dispatch_session ? dispatch_session->owner : NULL;
        if (session && !session->gone)
            session->link->ops->cancel_hint(session->link, &slot->uid, lease->fence);
    }
}

void workers_expired(struct slot *slot, int64_t seq)
{
    const struct journal_entry *entry = saga_entry(slot->saga, seq);
    if (entry->lease_until_ms >= entry->attempt_until_ms)
        return; /* its time was over, however well the worker is */
    for (const struct lease *lease = slot->leases; lease; lease = lease->next)
        if (lease->seq == seq && lease->ours && lease->dispatch.worker->session)
            dispatch_session_silent(lease->dispatch.worker->session, true);
}

/* --- streams
 * --------------------------------------------------------------------------------------- */

static void drain(struct engine *engine, struct dispatch_session *session)
{
    dispatch_session_drain(session);
    nodes_session_ends(engine, session);
}

/* The stream has ended for dispatch: what was reserved of it is void, tasks not sent are given
 * back. */
static void session_end(struct engine *engine, struct link_session *session)
{
    struct dispatch_session *ended = session->session;
    if (!ended)
        return;
    struct flight *flight;
    DL_FOREACH(engine->flights, flight)
    {
        if (flight->session == ended) {
            flight->session = NULL;
            flight->reserved = NULL;
        }
    }
    for (size_t i = 0; i < session->task_count; i++)
        task_unsent(engine, session, &session->tasks[i]);
    session->task_count = 0;
    session->session = NULL; /* and a pause has nothing to wait for */
    COUNT(engine, workers_connected, -1);
    drain(engine, ended);
    dispatch_session_close(engine->dispatch, ended,
                           engine->now_mono + engine->options.stream_lost_ms);
}

static void session_free(struct engine *engine, struct link_session *session)
{
    if (session->to_flush)
        LL_DELETE2(engine->to_flush, session, next_flush);
    DL_DELETE(engine->links, session);
    acks_drop(session);
    mem_free(session->acks);
    mem_free(session->extended);
    mem_free(session->tasks);
    mem_free(session->held);
    mem_free(session->worker_name);
    mem_free(session->sdk);
    mem_free(session);
}

static void session_refuse(struct engine *engine, struct link_session *session,
                           const struct err *why)
{
    session_end(engine, session);
    session->link->ops->close(session->link, why);
}

static int held_compare(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(struct held_lease));
}

bool workers_never_started(const struct lease *lease)
{
    const struct dispatch_session *dispatch_session = lease->dispatch.worker->session;
    const struct link_session *session = dispatch_session ? dispatch_session->owner : NULL;
    if (!session || !session->only_stream || !lease->of_this_node || lease->may_have_ended)
        return false;
    struct held_lease key;
    memset(&key, 0, sizeof key);
    key.uid = lease->slot->uid;
    key.fence = lease->fence;
    return !session->held_count ||
           !bsearch(&key, session->held, session->held_count, sizeof key, held_compare);
}

/* What an only stream lists is kept: leases that another process granted may be loaded later. */
static bool held_keep(struct link_session *session, const struct engine_worker_event *event)
{
    if (!event->only_stream)
        return true;
    session->held = mem_calloc(event->lease_count, sizeof *session->held);
    if (event->lease_count && !session->held)
        return false;
    for (size_t i = 0; i < event->lease_count; i++) {
        session->held[i].uid = event->leases[i].uid;
        session->held[i].fence = event->leases[i].fence;
    }
    session->held_count = event->lease_count;
    if (session->held_count)
        qsort(session->held, session->held_count, sizeof *session->held, held_compare);
    session->only_stream = true;
    return true;
}

/* Of the leases that this worker holds by our books, those that its Hello does not list were
 * certainly never started: an SDK drops what came on an old stream and was not begun. What another
 * node granted may be running: the worker may have gone there since, and this stream only seems
 * alive. An earlier process of this node had its streams from the same address: they are gone. */
static void hello_compare(struct engine *engine, struct dispatch_worker *worker,
                          const struct engine_worker_event *event)
{
    for (size_t i = 0; i < event->lease_count; i++) {
        const struct slot *slot = slot_find(engine, &event->leases[i].uid);
        for (struct lease *lease = slot ? slot->leases : NULL; lease; lease = lease->next)
            if (lease->fence == event->leases[i].fence && lease->dispatch.worker == worker)
                lease->dispatch.listed = true;
    }
    for (struct dispatch_lease *at = worker->leases; at; at = at->next) {
        const struct lease *lease = CONTAINER(at, struct lease, dispatch);
        if (!at->listed && !lease->may_have_ended &&
            (lease->ours || (event->only_stream && lease->of_this_node)))
            lease_end_queue(engine, lease->slot, lease->seq, OUTCOME_RELEASED);
        at->listed = false;
    }
}

static void hello(struct engine *engine, struct link_session *session,
                  const struct engine_worker_event *event)
{
    char name[LIMIT_WORKER_BYTES + LIMIT_INSTANCE_BYTES + 2];
    struct err err;
    if (session->session) {
        err_set(&err, ERR_INVALID, "a second Hello on one stream");
        session_refuse(engine, session, &err);
        return;
    }
    (void)snprintf(name, sizeof name, "%s/%s", event->worker_id, event->instance);
    struct dispatch_subscribe *wanted = mem_calloc(event->credit_count, sizeof *wanted);
    struct dispatch_session *previous = NULL;
    if (!wanted) {
        err_set(&err, ERR_NOMEM, "out of memory");
        session->link->ops->close(session->link, &err);
        return;
    }
    for (size_t i = 0; i < event->credit_count; i++)
        wanted[i] = (struct dispatch_subscribe){ event->credits[i].handler,
                                                 (uint32_t)event->credits[i].total };
    session->worker_name = mem_strdup(name);
    session->sdk = mem_strdup(event->sdk ? event->sdk : ""); /* NULL: a shorter answer */
    session->since_ms = clock_wall_ms(engine->options.clock);
    bool kept = held_keep(session, event) && session->worker_name;
    int rc = kept ? 0 : err_set(&err, ERR_NOMEM, "out of memory");
    if (!rc)
        rc = dispatch_session_open(engine->dispatch, name, wanted, event->credit_count, session,
                                   &session->session, &previous, &err);
    mem_free(wanted);
    if (rc) {
        session->link->ops->close(session->link, &err);
        return;
    }
    COUNT(engine, workers_connected, 1);
    bool brings =
        !previous || previous->draining || !dispatch_session_covers(previous, session->session);
    if (previous) {
        err_set(&err, ERR_UNAVAILABLE, "this worker instance has opened a newer stream");
        session_refuse(engine, previous->owner, &err);
    }
    if (event->tasks_max)
        dispatch_session_bound(session->session, event->tasks_max);
    session->number = ++engine->next_session;
    session->link->ops->welcome(session->link, session->number);
    hello_compare(engine, session->session->worker, event);
    if (brings)
        nodes_handlers_changed(engine);
}

static void credit(struct engine *engine, struct link_session *session,
                   const struct engine_worker_event *event)
{
    for (size_t i = 0; i < event->credit_count; i++) {
        if (dispatch_credit(engine->dispatch, session->session, event->credits[i].handler,
                            event->credits[i].total))
            continue;
        struct err err;
        err_reason(&err, ERR_INVALID, "NOT_SUBSCRIBED",
                   "credit for a handler that the Hello did not name");
        session_refuse(engine, session, &err);
        return;
    }
}

/* --- looking --- */

static bool serves(const struct dispatch_session *session, const char *only)
{
    const struct dispatch_subscription *at = session->subscriptions;
    while (only && at && strcmp(dispatch_handler_name(at->handler), only) != 0)
        at = at->next_of_session;
    return at != NULL;
}

/* False: memory. */
static bool view_served(const struct dispatch_session *session, struct engine_worker_status *ret)
{
    size_t count = 0;
    for (const struct dispatch_subscription *at = session->subscriptions; at;
         at = at->next_of_session)
        count++;
    ret->served = mem_calloc(count, sizeof *ret->served);
    for (const struct dispatch_subscription *at = session->subscriptions; at && ret->served;
         at = at->next_of_session) {
        struct engine_served *served = &ret->served[ret->served_count];
        served->handler = mem_strdup(dispatch_handler_name(at->handler));
        if (!served->handler)
            return false;
        ret->served_count++;
        served->max_in_flight = at->max_in_flight;
        served->credit = (int64_t)(at->total - at->sent);
        for (const struct dispatch_lease *lease = session->worker->leases; lease;
             lease = lease->next)
            served->in_flight += lease->handler == at->handler;
    }
    return ret->served != NULL;
}

void workers_view(struct engine *engine, struct engine_status *status)
{
    size_t room = 0;
    const struct link_session *session;
    DL_FOREACH(engine->links, session)
    {
        room++;
    }
    status->workers = mem_calloc(room, sizeof *status->workers);
    if (!status->workers)
        return; /* a shorter answer, as below */
    DL_FOREACH(engine->links, session)
    {
        const struct dispatch_session *dispatch_session = session->session;
        if (!dispatch_session || !dispatch_session->worker || !session->sdk ||
            !serves(dispatch_session, status->only_handler))
            continue;
        struct engine_worker_status *worker = &status->workers[status->worker_count++];
        worker->since_ms = session->since_ms;
        worker->draining = dispatch_session->draining;
        worker->unresponsive = dispatch_session->silent;
        worker->congested = dispatch_session->blocked;
        worker->name = mem_strdup(session->worker_name);
        worker->sdk = mem_strdup(session->sdk);
        if (!worker->name || !worker->sdk || !view_served(dispatch_session, worker))
            return;
    }
}

static void gone(struct engine *engine, struct link_session *session,
                 struct engine_worker_event *event)
{
    session_end(engine, session);
    session->gone = event;
}

/* --- work on sagas
 * ------------------------------------------------------------------------------------ */

static void work_queue(struct engine *engine, struct engine_worker_event *event,
                       struct engine_work *work, enum work_kind kind, const struct uuid *uid)
{
    work->kind = (int)kind;
    work->event = &event->event;
    work->asked = engine->batch_number;
    event->open++;
    struct slot *slot = slot_get(engine, uid);
    if (slot) {
        slot_queue(engine, slot, work);
        return;
    }
    /* Out of memory: a report is not acknowledged and comes again. */
    event->open--;
}

void worker_event_release(struct engine *engine, struct engine_worker_event *event)
{
    struct link_session *session = event->link->session;
    if (--event->open)
        return;
    session->open_events--;
    event->event.done(&event->event);
    if (session->gone && session->open_events == 0) {
        struct engine_worker_event *end = session->gone;
        session_free(engine, session);
        end->event.done(&end->event);
    }
}

void worker_work_answered(struct engine *engine, struct engine_work *work, enum engine_ack ack,
                          int64_t lease_ms)
{
    struct engine_worker_event *event = CONTAINER(work->event, struct engine_worker_event, event);
    struct link_session *session = event->link->session;
    if (work->kind == WORK_REPORT) {
        const struct worker_report *report = CONTAINER(work, struct worker_report, work);
        if (ack == ENGINE_ACK_ACCEPTED)
            COUNT(engine, reports_accepted, 1);
        else if (ack == ENGINE_ACK_DUPLICATE)
            COUNT(engine, reports_duplicate, 1);
        else
            COUNT(engine, reports_stale, 1);
        ack_add(engine, session, &report->uid, report->report.fence, ack,
                *report->problem ? report->problem : NULL);
    } else if (work->kind == WORK_EXTEND) {
        const struct worker_lease_ref *ref = CONTAINER(work, struct worker_lease_ref, work);
        extended_add(engine, session, &ref->uid, ref->fence, lease_ms);
    }
    worker_event_release(engine, event);
}

static void queue_all(struct engine *engine, struct engine_worker_event *event)
{
    if (event->kind == WORKER_REPORT)
        for (size_t i = 0; i < event->report_count; i++)
            work_queue(engine, event, &event->reports[i].work, WORK_REPORT, &event->reports[i].uid);
    else
        for (size_t i = 0; i < event->lease_count; i++)
            work_queue(engine, event, &event->leases[i].work,
                       event->kind == WORKER_EXTEND ? WORK_EXTEND : WORK_RELEASE,
                       &event->leases[i].uid);
}

/* The stream's record, made on its first event; NULL: memory. */
static struct link_session *session_of(struct engine *engine, struct worker_link *link)
{
    if (link->session)
        return link->session;
    struct link_session *session = mem_calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->link = link;
    link->session = session;
    DL_APPEND(engine->links, session);
    return session;
}

void workers_event(struct engine *engine, struct engine_worker_event *event)
{
    struct link_session *session = session_of(engine, event->link);
    struct err err;
    if (!session) {
        err_set(&err, ERR_NOMEM, "out of memory");
        event->link->ops->close(event->link, &err);
        event->event.done(&event->event);
        return;
    }
    event->open = 1;
    session->open_events++;
    if (event->kind == WORKER_GONE) {
        session->open_events--;
        gone(engine, session, event);
        if (session->open_events == 0) {
            session_free(engine, session);
            event->event.done(&event->event);
        }
        return;
    }
    if (event->kind == WORKER_HELLO)
        hello(engine, session, event);
    else if (session->session) { /* else the engine closed it; its end is on the way */
        if (event->kind != WORKER_ROOM && event->kind != WORKER_PAUSE &&
            event->kind != WORKER_UNCONFIRMED) /* which are not the worker's own words */
            dispatch_session_silent(session->session, false);
        if (event->kind == WORKER_CREDIT)
            credit(engine, session, event);
        else if (event->kind == WORKER_DRAIN)
            drain(engine, session->session);
        else if (event->kind == WORKER_ROOM)
            dispatch_session_block(session->session, false);
    }
    if (event->kind ==
        WORKER_ROOM) /* when it is done, all that was gathered before has been said */
        session_flush(engine, session);
    if (event->kind == WORKER_PAUSE)
        workers_pause(engine, session, event);
    if (event->kind == WORKER_UNCONFIRMED)
        workers_unconfirmed(engine, event);
    if (event->kind == WORKER_REPORT || event->kind == WORKER_EXTEND ||
        event->kind == WORKER_RELEASE)
        queue_all(engine, event); /* a report counts, whatever became of its stream */
    worker_event_release(engine, event);
}

void workers_lost(struct engine *engine)
{
    for (struct dispatch_worker *worker;
         (worker = dispatch_lost_take(engine->dispatch, engine->now_mono));)
        for (struct dispatch_lease *at = worker->leases; at; at = at->next) {
            const struct lease *lease = CONTAINER(at, struct lease, dispatch);
            if (lease->idempotent && lease->ours) /* only who sent it knows its stream */
                lease_end_queue(engine, lease->slot, lease->seq, OUTCOME_STREAM_LOST);
        }
}

void workers_links_free(struct engine *engine)
{
    struct link_session *session, *next;
    DL_FOREACH_SAFE(engine->links, session, next)
    {
        struct engine_worker_event *end = session->gone, *pause = session->pause;
        session_end(engine, session);
        session_free(engine, session);
        if (pause)
            pause->event.done(&pause->event);
        if (end)
            end->event.done(&end->event);
    }
}
