/* One piece of work on one saga: ask the core, put its transition into the batch. Nothing is told
 * to anyone here, unless the facts were durable before. */
#include "engine/engine_internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>
#include <utlist.h>

/* --- flights -------------------------------------------------------------------------------- */

struct flight *flight_new(struct engine *engine)
{
    if (engine->batch_count >= engine->options.batch_limit)
        return NULL;
    struct flight *flight = engine->free_flights;
    if (flight)
        engine->free_flights = flight->next;
    else
        flight = mem_calloc(1, sizeof *flight);
    if (flight)
        flight->next = NULL;
    return flight;
}

void flight_free(struct engine *engine, struct flight *flight)
{
    store_op_done(&flight->op);
    memset(flight, 0, sizeof *flight);
    flight->next = engine->free_flights;
    engine->free_flights = flight;
}

void flight_add(struct engine *engine, struct flight *flight)
{
    flight->op.next = NULL;
    *engine->batch_last = &flight->op;
    engine->batch_last = &flight->op.next;
    engine->batch_count++;
    DL_PREPEND(engine->flights, flight);
}

static void slot_fly(struct engine *engine, struct slot *slot, struct flight *flight,
                     enum store_op_kind kind)
{
    flight->slot = slot;
    flight->op.kind = kind;
    flight->op.uid = slot->uid;
    flight->op.suspect = slot->suspect;
    if (kind == STORE_START || kind == STORE_TRANSITION) {
        flight->op.saga = slot->saga;
        flight->op.transition = &flight->transition;
        flight->op.asks_owner = engine->nodes_alive > 1;
    }
    slot->flight = flight;
    slot->state = kind == STORE_LOAD_UID ? SLOT_LOADING : SLOT_BUSY;
    slot_not_runnable(engine, slot);
    slot_take_ready(engine, slot);
    flight_add(engine, flight);
}

/* May this operation be granted before those who wait for its handler? Where that is braked or
 * limited nobody passes them: there it is long until their turn. */
enum passing { PASSES_NOBODY, PASSES_UNLIMITED, PASSES_ALL };

static bool may_pass(const struct dispatch_handler *handler, enum passing passing)
{
    return passing == PASSES_ALL || dispatch_handler_ready(handler) == 0 ||
           (passing == PASSES_UNLIMITED && !dispatch_gate(handler)->in_order);
}

/* Adds the grant of what comes next to the transition, if a worker has room for it: a finish and
 * the next lease are one commit. */
static void grant_try(struct engine *engine, struct slot *slot, struct flight *flight,
                      enum passing passing)
{
    struct grantable what[LIMIT_STEPS];
    size_t count = saga_grantable(slot->saga, engine_db_now(engine), what, LIMIT_STEPS), i = 0;
    bool by_itself = transition_is_empty(&flight->transition);
    struct dispatch_subscription *subscription = NULL;
    for (; i < count && !subscription; i++) {
        struct dispatch_handler *handler =
            dispatch_handler(engine->dispatch, what[i].rule->handler);
        if (handler && may_pass(handler, passing) && (by_itself || !what[i].held_ms))
            subscription = dispatch_reserve(handler);
    }
    if (!subscription)
        return;
    struct err err;
    if (saga_grant(slot->saga, &what[i - 1], subscription->session->worker->name,
                   engine->store->ops->epoch(engine->store), engine_db_now(engine),
                   &flight->transition, &err)) {
        dispatch_unreserve(subscription);
        log_line(LOG_WARN, "lease not granted", "saga", saga_row(slot->saga)->saga_id, "err",
                 err.msg, NULL);
        return;
    }
    flight->reserved = subscription;
    flight->session = subscription->session;
    workers_granting(engine, subscription->session, saga_task_bytes(slot->saga));
}

/* --- starts ----------------------------------------------------------------------------------- */

struct start_waiter {
    struct definition_waiter waiter;
    struct start_item *item;
};

static void start_resume(struct engine *engine, struct definition_waiter *waiter,
                         const struct definition *definition, const struct err *err)
{
    struct start_waiter *self = CONTAINER(waiter, struct start_waiter, waiter);
    struct start_item *item = self->item;
    mem_free(self);
    if (!definition) {
        item->err = *err;
        start_item_answered(engine, &item->work);
        return;
    }
    start_requeue(engine, item);
}

static int start_row(const struct start_item *item, const struct definition *definition,
                     struct saga_row *ret)
{
    struct saga_row row = { .uid = item->uid,
                            .revision = definition->revision,
                            .run = 1,
                            .park_step = -1,
                            .related = item->related,
                            .has_related = item->has_related,
                            .start_at_ms = item->start_at_ms };
    row.namespace_ = mem_strdup(item->namespace_);
    row.definition = mem_strdup(item->definition);
    row.saga_id = mem_strdup(item->start.saga_id);
    row.labels = item->start.labels ? mem_strdup(item->start.labels) : NULL;
    if (!row.namespace_ || !row.definition || !row.saga_id || (item->start.labels && !row.labels) ||
        mem_bytes_copy(item->input.data, item->input.size, &row.input)) {
        saga_row_done(&row);
        return -1;
    }
    *ret = row;
    return 0;
}

/* Ever larger, whatever the clock says: the store writes the starts of a batch in the order of
 * their uids, and of two starts of one key the first must win. */
static struct uuid next_uid(struct engine *engine, uint8_t shard)
{
    enum { COUNTER_FIRST = 9, COUNTER_LAST = 14 }; /* of the random bytes; the shard follows */
    struct uuid *last = &engine->last_uid;
    struct uuid uid = uuid_v7(engine_db_now(engine), &engine->rng, shard);
    if (memcmp(uid.bytes, last->bytes, COUNTER_LAST + 1) <= 0) {
        uid = *last;
        uid.bytes[COUNTER_LAST + 1] = shard;
        for (int i = COUNTER_LAST; i >= COUNTER_FIRST && ++uid.bytes[i] == 0; i--)
            continue; /* carry */
    }
    *last = uid;
    return uid;
}

/* It is not to be started; but who asks again for what was started before is answered as ever. */
static void start_refused(struct engine *engine, struct start_item *item, const struct err *err)
{
    item->err = *err;
    if (*item->start.saga_id)
        key_load_queue(engine, &item->work);
    else
        start_item_answered(engine, &item->work);
}

static int start_suspect(struct engine *engine, struct start_item *item, struct saga *saga,
                         struct transition *transition)
{
    int64_t now_ms = engine_db_now(engine);
    int64_t since_ms = item->suspect_since_ms ? item->suspect_since_ms : now_ms;
    return saga_suspect(saga, item->suspect_actor, since_ms, now_ms, transition, &item->err);
}

/* False: the batch is full. */
static bool start_step(struct engine *engine, struct start_item *item)
{
    const char *pause = NULL;
    const struct definition *definition =
        definitions_current(engine, item->namespace_, item->definition, &pause);
    struct err refusal;
    if (!definition) {
        struct start_waiter *waiter = mem_calloc(1, sizeof *waiter);
        if (!waiter) {
            err_set(&item->err, ERR_NOMEM, "start: out of memory");
            start_item_answered(engine, &item->work);
            return true;
        }
        waiter->waiter.resume = start_resume;
        waiter->item = item;
        definitions_with(engine, item->namespace_, item->definition, 0, &waiter->waiter);
        return true;
    }
    if (payload_check_start(item, definition, pause, &refusal)) {
        start_refused(engine, item, &refusal);
        return true;
    }
    struct flight *flight = flight_new(engine);
    if (!flight) {
        LL_PREPEND(engine->starts, &item->work);
        if (!item->work.next)
            engine->starts_last = &item->work.next;
        return false;
    }
    item->uid =
        next_uid(engine, store_shard(item->namespace_, item->definition, item->start.saga_id));
    struct saga_row row = { 0 };
    struct saga *saga = NULL;
    struct slot *slot = NULL;
    if (start_row(item, definition, &row) || !(slot = slot_get(engine, &item->uid)) ||
        saga_new(definition, &row, &saga, &item->err) ||
        (item->suspect && start_suspect(engine, item, saga, &flight->transition))) {
        (void)saga_free(saga); /* always NULL */
        saga_row_done(&row);
        if (slot)
            slot_free(engine, slot);
        flight_free(engine, flight);
        err_set(&item->err, ERR_NOMEM, "start: out of memory");
        start_item_answered(engine, &item->work);
        return true;
    }
    slot->saga = saga;
    slot->mine = true;
    flight->work = &item->work;
    memcpy(flight->op.input_digest, item->digest, sizeof item->digest);
    if (!item->suspect)
        grant_try(engine, slot, flight, PASSES_NOBODY);
    slot->suspect = item->tries > 0;
    slot_fly(engine, slot, flight, STORE_START);
    return true;
}

/* --- work on a saga that is in memory ------------------------------------------------------------
 */

/* What a step came to. */
enum stepped {
    STEPPED_ON,     /* answered, to be loaded first, or nothing to do */
    STEPPED_FLIGHT, /* its facts are in the batch */
};

/* An answer without a commit rests on the copy alone, and another node may have decided since: so
 * only a copy that was right after the question came may give it. False: it is loaded and asked
 * again. */
static bool copy_may_answer(struct engine *engine, struct slot *slot, struct flight *flight,
                            struct engine_work *work)
{
    if (!work || work->kind == WORK_LEASE_END || slot->known > work->asked)
        return true;
    flight_free(engine, flight);
    slot_queue_front(slot, work);
    workers_flush(engine); /* its tasks need the copy */
    slot_drop_copy(engine, slot);
    return false;
}

static enum stepped fly_or_answer(struct engine *engine, struct slot *slot, struct flight *flight,
                                  struct engine_work *work, enum verdict verdict)
{
    flight->work = work;
    flight->verdict = verdict;
    if (transition_is_empty(&flight->transition)) {
        flight->work = NULL;
        if (!copy_may_answer(engine, slot, flight, work))
            return STEPPED_ON;
        if (work)
            work_answer(engine, slot, work, verdict, 0);
        flight_free(engine, flight);
        return STEPPED_ON;
    }
    if (!transition_loses_stream(slot->saga, &flight->transition))
        grant_try(engine, slot, flight, PASSES_UNLIMITED);
    slot_fly(engine, slot, flight, STORE_TRANSITION);
    return STEPPED_FLIGHT;
}

/* The core refused. A refusal has changed nothing; anything else may have: the copy dies. */
static enum stepped refused(struct engine *engine, struct slot *slot, struct flight *flight,
                            struct engine_work *work, const struct err *err)
{
    bool refusal =
        err->code == ERR_PRECONDITION || err->code == ERR_INVALID || err->code == ERR_NOT_FOUND;
    if (refusal && !copy_may_answer(engine, slot, flight, work))
        return STEPPED_ON;
    flight_free(engine, flight);
    if (refusal) {
        if (work)
            work_fail(engine, work, err);
        return STEPPED_ON;
    }
    log_line(LOG_ERROR, "saga set aside", "saga", saga_row(slot->saga)->saga_id, "err", err->msg,
             NULL);
    COUNT(engine, operations_failed, 1);
    if (work && work->kind == WORK_VERB)
        work_fail(engine, work, err);
    else if (work)
        slot_queue_front(slot, work);
    slot_block(engine, slot);
    return STEPPED_FLIGHT;
}

static enum stepped step_extend(struct engine *engine, struct slot *slot, struct flight *flight,
                                struct engine_work *work)
{
    const struct worker_lease_ref *ref = CONTAINER(work, struct worker_lease_ref, work);
    if (!saga_lease_is_open(slot->saga, ref->fence)) {
        if (!copy_may_answer(engine, slot, flight, work))
            return STEPPED_ON;
        flight_free(engine, flight);
        work_answer(engine, slot, work, VERDICT_STALE, 0);
        return STEPPED_ON;
    }
    int64_t seq = fence_seq(ref->fence);
    flight->op.seq = seq;
    flight->op.lease_ms = saga_lease_rule(slot->saga, seq)->lease_ms;
    flight->work = work;
    slot_fly(engine, slot, flight, STORE_EXTEND);
    return STEPPED_FLIGHT;
}

/* Is that lease not there, or does the reason for its end no longer hold? */
static bool lease_end_is_void(const struct slot *slot, const struct lease_end *end)
{
    const struct journal_entry *entry = saga_entry(slot->saga, end->seq);
    if (!entry || entry->kind != ENTRY_LEASE || entry->fence != end->fence ||
        strcmp(entry->worker, end->worker) != 0)
        return true; /* another's, decided while our commit was in doubt */
    const struct lease *lease = slot->leases;
    while (lease && lease->seq != end->seq)
        lease = lease->next;
    if (end->if_ours && (!lease || !lease->ours))
        return true; /* another node's, for the same worker at the same position */
    if (end->outcome != OUTCOME_STREAM_LOST)
        return false;
    return !lease ||
           (!end->unconfirmed && lease->dispatch.worker->session); /* it came back in time */
}

static int core_apply_verb(struct saga *saga, const struct engine_verb *verb, int64_t now,
                           struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    switch (verb->verb) {
    case ENGINE_VERB_CANCEL:
        return saga_on_cancel(saga, verb->actor, verb->reason, now, ret, ret_verdict, err);
    case ENGINE_VERB_RETRY:
        return saga_on_retry(saga, verb->step, verb->actor, verb->reason, now, ret, ret_verdict,
                             err);
    case ENGINE_VERB_RESOLVE: {
        int rc = verb->happened ? payload_check_resolve(saga, verb, err) : 0;
        if (rc)
            return rc;
        struct resolution resolution = { .step = verb->step,
                                         .operation = verb->operation,
                                         .fence = verb->fence,
                                         .happened = verb->happened,
                                         .output = verb->output,
                                         .actor = verb->actor,
                                         .evidence = verb->reason };
        return saga_on_resolve(saga, &resolution, now, ret, ret_verdict, err);
    }
    case ENGINE_VERB_SKIP:
        return saga_on_skip(saga, verb->step, verb->actor, verb->reason, now, ret, ret_verdict,
                            err);
    case ENGINE_VERB_ABANDON:
        return saga_on_abandon(saga, verb->actor, verb->reason, now, ret, ret_verdict, err);
    case ENGINE_VERB_SUSPEND:
        return saga_on_suspend(saga, verb->actor, verb->reason, now, ret, ret_verdict, err);
    case ENGINE_VERB_RESUME:
        return saga_on_resume(saga, verb->actor, verb->reason, now, ret, ret_verdict, err);
    case ENGINE_VERB_SIGNAL: {
        int rc = payload_check_signal(saga, verb, err);
        if (rc)
            return rc;
        struct signal signal = { .name = verb->signal,
                                 .id = verb->signal_id,
                                 .payload = verb->output,
                                 .actor = verb->actor };
        return saga_on_signal(saga, &signal, now, ret, ret_verdict, err);
    }
    case ENGINE_VERB_OPTIONS:
        return saga_on_options(saga, verb->step, &verb->options, verb->actor, verb->reason, now,
                               ret, ret_verdict, err);
    case ENGINE_VERB_WAIT:
        break;
    }
    return err_set(err, ERR_INTERNAL, "verb %d on a saga", (int)verb->verb);
}

static int core_apply(struct engine *engine, struct slot *slot, struct engine_work *work,
                      struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int64_t now = engine_db_now(engine);
    switch ((enum work_kind)work->kind) {
    case WORK_REPORT: {
        struct worker_report *report = CONTAINER(work, struct worker_report, work);
        payload_check_report(slot->saga, report);
        return saga_on_report(slot->saga, &report->report, now, &engine->rng, ret, ret_verdict,
                              err);
    }
    case WORK_RELEASE: {
        const struct worker_lease_ref *ref = CONTAINER(work, struct worker_lease_ref, work);
        *ret_verdict = VERDICT_NOTHING;
        if (!saga_lease_is_open(slot->saga, ref->fence))
            return 0;
        return saga_on_lease_end(slot->saga, fence_seq(ref->fence), OUTCOME_RELEASED, now,
                                 &engine->rng, ret, ret_verdict, err);
    }
    case WORK_LEASE_END: {
        const struct lease_end *end = CONTAINER(work, struct lease_end, work);
        *ret_verdict = VERDICT_NOTHING;
        if (lease_end_is_void(slot, end))
            return 0;
        return saga_on_lease_end(slot->saga, end->seq, end->outcome, now, &engine->rng, ret,
                                 ret_verdict, err);
    }
    case WORK_VERB:
        return core_apply_verb(slot->saga, CONTAINER(work, struct engine_verb, work), now, ret,
                               ret_verdict, err);
    case WORK_START:
    case WORK_START_CHECK:
    case WORK_START_EXISTED:
    case WORK_EXTEND:
        break;
    }
    return err_set(err, ERR_INTERNAL, "work of kind %d on a saga", work->kind);
}

static enum stepped step_work(struct engine *engine, struct slot *slot, struct flight *flight,
                              struct engine_work *work)
{
    if (work->kind == WORK_START_EXISTED || work->kind == WORK_START_CHECK) {
        if (!copy_may_answer(engine, slot, flight, work))
            return STEPPED_ON;
        flight_free(engine, flight);
        work_answer(engine, slot, work, VERDICT_ACCEPTED, 0);
        return STEPPED_ON;
    }
    if (work->kind == WORK_EXTEND)
        return step_extend(engine, slot, flight, work);
    if (work->kind == WORK_VERB) {
        struct engine_verb *verb = CONTAINER(work, struct engine_verb, work);
        verb->uid = slot->uid;
        if (verb->verb == ENGINE_VERB_WAIT) {
            if (wait_is_over(slot, verb) && !copy_may_answer(engine, slot, flight, work))
                return STEPPED_ON;
            flight_free(engine, flight);
            verb_wait(engine, slot, verb);
            return STEPPED_ON;
        }
    }
    struct err err;
    enum verdict verdict = VERDICT_NOTHING;
    if (core_apply(engine, slot, work, &flight->transition, &verdict, &err))
        return refused(engine, slot, flight, work, &err);
    return fly_or_answer(engine, slot, flight, work, verdict);
}

static enum stepped step_time(struct engine *engine, struct slot *slot, struct flight *flight)
{
    struct err err;
    enum verdict verdict = VERDICT_NOTHING;
    slot->time_due = false;
    slot->not_before = 0;
    if (saga_on_time(slot->saga, engine_db_now(engine), engine_expiry_allowed(engine, slot),
                     &engine->rng, &flight->transition, &verdict, &err))
        return refused(engine, slot, flight, NULL, &err);
    if (flight->transition.finishes)
        workers_expired(slot, flight->transition.finish_seq);
    if (transition_is_empty(&flight->transition) &&
        saga_due_at(slot->saga) <= engine_db_now(engine))
        /* Due, but not yet allowed: the grace, or a clock that is a little ahead. */
        slot->not_before = engine_expiry_allowed(engine, slot)       ? engine->now_mono + 5
                           : engine->grace_until > slot->grace_until ? engine->grace_until
                                                                     : slot->grace_until;
    return fly_or_answer(engine, slot, flight, NULL, verdict);
}

/* Is something asked that only the owner of a saga decides? */
static bool work_decides(const struct engine_work *work)
{
    switch ((enum work_kind)work->kind) {
    case WORK_REPORT:
    case WORK_RELEASE:
    case WORK_LEASE_END:
        return true;
    case WORK_VERB:
        return CONTAINER(work, struct engine_verb, work)->verb != ENGINE_VERB_WAIT;
    case WORK_START:
    case WORK_START_CHECK:
    case WORK_START_EXISTED:
    case WORK_EXTEND:
        break;
    }
    return false;
}

static bool slot_load(struct engine *engine, struct slot *slot)
{
    struct flight *load = flight_new(engine);
    if (!load)
        return false;
    for (const struct engine_work *work = slot->first; work && !load->op.take; work = work->next)
        load->op.take = work_decides(work);
    slot_fly(engine, slot, load, STORE_LOAD_UID);
    return true;
}

/* The copy of another node's saga does not do for what is to come: it is loaded again, and taken
 * over if there is something to decide. */
static bool copy_is_unfit(const struct slot *slot)
{
    return !slot->mine && !saga_state_is_terminal(saga_row(slot->saga)->state) &&
           (slot->time_due || (slot->first && work_decides(slot->first)));
}

/* False: the batch is full and the slot waits for the next one. */
static bool slot_step(struct engine *engine, struct slot *slot)
{
    while (slot->state == SLOT_IDLE && (slot->first || slot->time_due)) {
        bool look = slot->look_at && slot->look_at <= engine->now_mono;
        if (look)
            slot->look_at = 0;
        if (copy_is_unfit(slot) || (look && slot->leases)) {
            workers_flush(engine);
            slot_drop_copy(engine, slot);
            break;
        }
        struct flight *flight = flight_new(engine);
        if (!flight)
            return false;
        struct engine_work *work = slot_take_work(slot);
        enum stepped stepped =
            work ? step_work(engine, slot, flight, work) : step_time(engine, slot, flight);
        if (stepped == STEPPED_FLIGHT)
            return true;
    }
    if (slot->state == SLOT_UNLOADED)
        return slot_load(engine, slot);
    if (nodes_let_go_at(engine, slot) <= engine->now_mono) {
        struct flight *flight = flight_new(engine);
        if (!flight)
            return false;
        nodes_let_go(engine, slot, flight);
        slot_fly(engine, slot, flight, STORE_LET_GO);
        return true;
    }
    slot_not_runnable(engine, slot);
    slot_settle(engine, slot);
    return true;
}

/* Grants what has waited for a worker. */
static void step_ready(struct engine *engine, size_t limit)
{
    while (engine->batch_count < limit) {
        struct dispatch_ready *ready = dispatch_ready_take(engine->dispatch);
        if (!ready)
            return;
        COUNT(engine, sagas_ready, -1);
        struct slot *slot = CONTAINER(ready, struct wait, ready)->slot;
        struct flight *flight = flight_new(engine);
        if (!flight || slot->state != SLOT_IDLE) {
            if (flight)
                flight_free(engine, flight);
            slot_make_runnable(engine, slot);
            return;
        }
        grant_try(engine, slot, flight, PASSES_ALL);
        if (transition_is_empty(&flight->transition)) {
            flight_free(engine, flight);
            slot_settle(engine, slot);
            return; /* no credit after all, or memory: wait for the next event */
        }
        slot_fly(engine, slot, flight, STORE_TRANSITION);
    }
}

static void step_runnable(struct engine *engine, size_t limit)
{
    while (engine->runnable && engine->batch_count < limit)
        if (!slot_step(engine, engine->runnable))
            return;
}

static void step_starts(struct engine *engine)
{
    while (engine->starts && engine->batch_count < engine->options.batch_limit) {
        struct engine_work *work = engine->starts;
        engine->starts = work->next;
        if (!engine->starts)
            engine->starts_last = &engine->starts;
        work->next = NULL;
        if (!start_step(engine, CONTAINER(work, struct start_item, work)))
            return;
    }
}

static void step_key_loads(struct engine *engine)
{
    while (engine->key_loads) {
        struct flight *flight = flight_new(engine);
        if (!flight)
            return;
        struct engine_work *work = engine->key_loads;
        engine->key_loads = work->next;
        if (!engine->key_loads)
            engine->key_loads_last = &engine->key_loads;
        work->next = NULL;
        flight->work = work;
        flight->op.kind = STORE_LOAD_KEY;
        if (work->kind == WORK_START) {
            const struct start_item *item = CONTAINER(work, struct start_item, work);
            flight->op.namespace_ = item->namespace_;
            flight->op.definition = item->definition;
            flight->op.saga_id = item->start.saga_id;
        } else {
            const struct engine_verb *verb = CONTAINER(work, struct engine_verb, work);
            flight->op.namespace_ = verb->namespace_;
            flight->op.definition = verb->definition;
            flight->op.saga_id = verb->saga_id;
        }
        flight_add(engine, flight);
    }
}

void step_fill_batch(struct engine *engine)
{
    size_t limit = engine->options.batch_limit;
    dispatch_gates_turn(engine->dispatch, engine->now_mono); /* nothing is in flight */
    nodes_fill_batch(engine);
    if (!engine->member || !engine->handlers_known)
        return;
    definitions_fill_batch(engine);
    step_key_loads(engine);
    /* What is under way goes first, but never takes the whole batch from new sagas. */
    size_t share = engine->starts ? limit - limit / 4 : limit;
    step_runnable(engine, share);
    step_ready(engine, share);
    step_starts(engine);
    step_runnable(engine, limit);
    step_ready(engine, limit);
}
