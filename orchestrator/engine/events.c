/* Events in: starts, verbs, changed definitions, status. Each comes back through its `done` once.
 */
#include "engine/engine_internal.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"

#include <string.h>
#include <utlist.h>

/* --- starts --- */

void start_item_answered(struct engine *engine, struct engine_work *work)
{
    (void)engine;
    struct engine_start *start = CONTAINER(work->event, struct engine_start, event);
    if (--start->open)
        return;
    start->event.done(&start->event);
    fault_point("after_reply");
}

void start_requeue(struct engine *engine, struct start_item *item)
{
    item->work.kind = WORK_START;
    item->work.next = NULL;
    *engine->starts_last = &item->work;
    engine->starts_last = &item->work.next;
}

static void start_event(struct engine *engine, struct engine_start *start)
{
    start->open = start->count + 1; /* ours, until all are queued */
    for (size_t i = 0; i < start->count; i++) {
        struct start_item *item = &start->items[i];
        struct sha256_part part = { item->input.data, item->input.size };
        item->work.event = &start->event;
        item->err.code = ERR_OK;
        item->tries = 0;
        item->work.asked = engine->batch_number;
        if (sha256(&part, 1, item->digest)) {
            err_set(&item->err, ERR_NOMEM, "start: out of memory");
            start_item_answered(engine, &item->work);
            continue;
        }
        start_requeue(engine, item);
    }
    if (--start->open == 0)
        start->event.done(&start->event);
}

/* --- verbs --- */

void verb_finish(struct engine *engine, struct engine_verb *verb)
{
    struct slot *slot = verb->slot;
    if (slot) {
        DL_DELETE(slot->waiters, verb);
        verb->slot = NULL;
    }
    heap_remove(&engine->wait_timers, &verb->timer);
    verb->event.done(&verb->event);
    fault_point("after_reply");
}

bool wait_is_over(const struct slot *slot, const struct engine_verb *verb)
{
    enum saga_state state = saga_row(slot->saga)->state;
    return saga_state_is_terminal(state) || (verb->or_parked && state == SAGA_PARKED);
}

static void verb_settled(struct engine *engine, const struct slot *slot, struct engine_verb *verb)
{
    verb->settled = slot->saga;
    verb_finish(engine, verb);
}

void verb_wait(struct engine *engine, struct slot *slot, struct engine_verb *verb)
{
    if (wait_is_over(slot, verb)) {
        verb_settled(engine, slot, verb);
        return;
    }
    if (verb->until_mono <= engine->now_mono ||
        heap_set(&engine->wait_timers, &verb->timer, verb->until_mono)) {
        verb_finish(engine, verb);
        return;
    }
    verb->slot = slot;
    DL_APPEND(slot->waiters, verb);
}

void waiters_check(struct engine *engine, struct slot *slot)
{
    struct engine_verb *verb, *next;
    DL_FOREACH_SAFE(slot->waiters, verb, next)
    {
        if (wait_is_over(slot, verb))
            verb_settled(engine, slot, verb);
    }
}

void waiters_time(struct engine *engine)
{
    for (struct heap_node *top;
         (top = heap_top(&engine->wait_timers)) && top->key <= engine->now_mono;) {
        struct engine_verb *verb = CONTAINER(top, struct engine_verb, timer);
        struct slot *slot = verb->slot;
        verb_finish(engine, verb);
        if (slot && slot->state == SLOT_IDLE && !slot->waiters)
            slot_settle(engine, slot); /* nobody holds it here any more */
    }
}

int64_t waiters_due_at(const struct engine *engine)
{
    const struct heap_node *top = heap_top(&engine->wait_timers);
    return top ? top->key : INT64_MAX;
}

void key_load_queue(struct engine *engine, struct engine_work *work)
{
    work->next = NULL;
    *engine->key_loads_last = work;
    engine->key_loads_last = &work->next;
}

static void verb_event(struct engine *engine, struct engine_verb *verb)
{
    verb->work.event = &verb->event;
    verb->work.kind = WORK_VERB;
    verb->err.code = ERR_OK;
    verb->duplicate = false;
    verb->settled = NULL;
    verb->slot = NULL;
    verb->tries = 0;
    verb->work.asked = engine->batch_number;
    verb->timer.place = 0;
    verb->until_mono = engine->now_mono + verb->timeout_ms;
    if (!verb->by_uid) {
        key_load_queue(engine, &verb->work);
        return;
    }
    struct slot *slot = slot_get(engine, &verb->uid);
    if (!slot) {
        err_set(&verb->err, ERR_NOMEM, "out of memory");
        verb_finish(engine, verb);
        return;
    }
    slot_queue(engine, slot, &verb->work);
}

/* --- loaded sagas, whose definition may have to be loaded first --- */

static void loaded_resume(struct engine *engine, struct definition_waiter *waiter,
                          const struct definition *definition, const struct err *err)
{
    struct loaded_saga *loaded = CONTAINER(waiter, struct loaded_saga, waiter);
    struct slot *slot = slot_find(engine, &loaded->saga.row.uid);
    uint64_t known = loaded->batch_number;
    bool outdated = loaded->generation != engine->generation; /* read on a lost connection */
    if (!slot || slot->saga || slot->state == SLOT_BUSY || outdated) {
        store_saga_done(&loaded->saga);
        mem_free(loaded);
        if (slot && outdated && slot->state == SLOT_UNLOADED)
            slot_make_runnable(engine, slot);
        return;
    }
    struct err replay_err;
    struct saga *saga = NULL;
    if (definition && saga_replay(definition, &loaded->saga.row, loaded->saga.entries,
                                  loaded->saga.entry_count, &saga, &replay_err) == 0) {
        slot->mine = loaded->saga.mine;
        mem_free(loaded->saga.entries); /* the array; its contents moved */
        mem_free(loaded);
        slot_install(engine, slot, saga, known);
        slot_settle(engine, slot);
        return;
    }
    if (!engine->stopping) {
        COUNT(engine, operations_failed, 1);
        log_line(LOG_ERROR, "a saga cannot be loaded and is set aside", "saga",
                 loaded->saga.row.saga_id, "err", definition ? replay_err.msg : err->msg, NULL);
    }
    store_saga_done(&loaded->saga);
    mem_free(loaded);
    slot_block(engine, slot);
}

void loaded_install(struct engine *engine, struct store_saga *saga, uint64_t known)
{
    struct slot *slot = slot_find(engine, &saga->row.uid);
    struct loaded_saga *loaded = NULL;
    if (!slot || slot->saga || slot->state == SLOT_BUSY ||
        !(loaded = mem_calloc(1, sizeof *loaded))) {
        store_saga_done(saga);
        if (slot && slot->state == SLOT_LOADING)
            slot_block(engine, slot);
        return;
    }
    /* It was another node's, for all that is known here: its workers may be on their way. Taken
     * just now, or before by a commit whose answer was lost. */
    if (saga->mine && !slot->mine)
        slot->grace_until = engine->now_mono + engine->options.grace_ms;
    slot->state = SLOT_LOADING;
    slot_not_runnable(engine, slot);
    loaded->saga = *saga;
    loaded->generation = engine->generation;
    loaded->batch_number = known;
    loaded->waiter.resume = loaded_resume;
    definitions_with(engine, loaded->saga.row.namespace_, loaded->saga.row.definition,
                     loaded->saga.row.revision, &loaded->waiter);
}

/* --- status --- */

static void status_row(void *ctx, const struct dispatch_handler_view *view)
{
    struct engine_status *status = ctx;
    struct engine_handler_status *rows =
        mem_realloc(status->handlers, (status->handler_count + 1) * sizeof *rows);
    if (!rows)
        return; /* a shorter answer */
    status->handlers = rows;
    struct engine_handler_status *row = &rows[status->handler_count];
    *row = (struct engine_handler_status){
        mem_strdup(view->name), view->workers,   view->credit, view->ready,
        view->leased,           view->oldest_ms, view->served
    };
    if (row->handler)
        status->handler_count++;
}

void engine_status_done(struct engine_status *status)
{
    for (size_t i = 0; i < status->handler_count; i++)
        mem_free(status->handlers[i].handler);
    mem_free(status->handlers);
    status->handlers = NULL;
    status->handler_count = 0;
    for (size_t i = 0; i < status->worker_count; i++) {
        struct engine_worker_status *worker = &status->workers[i];
        for (size_t j = 0; j < worker->served_count; j++)
            mem_free(worker->served[j].handler);
        mem_free(worker->served);
        mem_free(worker->name);
        mem_free(worker->sdk);
    }
    mem_free(status->workers);
    status->workers = NULL;
    status->worker_count = 0;
}

/* --- */

void events_take(struct engine *engine)
{
    struct mailbox_node *node = mailbox_take_all(&engine->mailbox);
    while (node) {
        struct engine_event *event = CONTAINER(node, struct engine_event, node);
        node = node->next;
        switch (event->kind) {
        case ENGINE_START:
            start_event(engine, CONTAINER(event, struct engine_start, event));
            break;
        case ENGINE_VERB:
            verb_event(engine, CONTAINER(event, struct engine_verb, event));
            break;
        case ENGINE_WORKER:
            workers_event(engine, CONTAINER(event, struct engine_worker_event, event));
            break;
        case ENGINE_DEFINITION_CHANGED: {
            const struct engine_definition_event *changed =
                CONTAINER(event, struct engine_definition_event, event);
            definitions_forget_current(engine, changed->namespace_, changed->name);
            event->done(event);
            break;
        }
        case ENGINE_STATUS: {
            struct engine_status *status = CONTAINER(event, struct engine_status, event);
            dispatch_view(engine->dispatch, status->only_handler, status_row, status);
            if (status->with_workers)
                workers_view(engine, status);
            status->batches = engine_batch_times(engine);
            event->done(event);
            break;
        }
        case ENGINE_STARTED:
            nodes_started(engine, CONTAINER(event, struct engine_started, event));
            break;
        case ENGINE_HANDLERS_CHANGED:
            handlers_changed(engine, event);
            break;
        case ENGINE_STOP:
            engine->stopping = true;
            engine->stop_event = event;
            mailbox_close(&engine->mailbox);
            break;
        }
    }
}
