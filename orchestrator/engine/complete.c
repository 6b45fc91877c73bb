/* What became of an operation. Here, after the commit, its effects are let out: acks, replies,
 * tasks. */
#include "engine/engine_internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>
#include <utlist.h>

void work_answer(struct engine *engine, struct slot *slot, struct engine_work *work,
                 enum verdict verdict, int64_t lease_ms)
{
    switch ((enum work_kind)work->kind) {
    case WORK_START:
    case WORK_START_CHECK:
    case WORK_START_EXISTED: {
        struct start_item *item = CONTAINER(work, struct start_item, work);
        const struct saga_row *row = saga_row(slot->saga);
        item->uid = row->uid;
        item->state = row->state;
        item->run = row->run;
        item->revision = row->revision;
        start_item_answered(engine, work);
        return;
    }
    case WORK_REPORT:
        worker_work_answered(engine, work,
                             verdict == VERDICT_ACCEPTED    ? ENGINE_ACK_ACCEPTED
                             : verdict == VERDICT_DUPLICATE ? ENGINE_ACK_DUPLICATE
                                                            : ENGINE_ACK_STALE,
                             0);
        return;
    case WORK_EXTEND:
    case WORK_RELEASE:
        worker_work_answered(engine, work, ENGINE_ACK_ACCEPTED, lease_ms);
        return;
    case WORK_VERB: {
        struct engine_verb *verb = CONTAINER(work, struct engine_verb, work);
        verb->duplicate = verdict == VERDICT_DUPLICATE;
        verb_finish(engine, verb);
        return;
    }
    case WORK_LEASE_END:
        lease_end_free(CONTAINER(work, struct lease_end, work));
        return;
    }
}

void work_fail(struct engine *engine, struct engine_work *work, const struct err *err)
{
    switch ((enum work_kind)work->kind) {
    case WORK_START:
    case WORK_START_CHECK:
    case WORK_START_EXISTED: {
        struct start_item *item = CONTAINER(work, struct start_item, work);
        item->err = *err;
        start_item_answered(engine, work);
        return;
    }
    case WORK_REPORT: /* no such saga, or nothing that could hold it: nothing follows from it */
    case WORK_EXTEND:
    case WORK_RELEASE:
        worker_work_answered(engine, work, ENGINE_ACK_STALE, 0);
        return;
    case WORK_VERB: {
        struct engine_verb *verb = CONTAINER(work, struct engine_verb, work);
        verb->err = *err;
        verb_finish(engine, verb);
        return;
    }
    case WORK_LEASE_END:
        lease_end_free(CONTAINER(work, struct lease_end, work));
        return;
    }
}

/* --- effects of a durable transition ------------------------------------------------------------
 */

static void count_finish(struct engine *engine, const struct journal_entry *entry)
{
    switch (entry->outcome) {
    case OUTCOME_EXPIRED:
        COUNT(engine, leases_expired, 1);
        break;
    case OUTCOME_STREAM_LOST:
        COUNT(engine, streams_lost, 1);
        break;
    case OUTCOME_RELEASED:
        COUNT(engine, leases_released, 1);
        break;
    default:
        break;
    }
}

static void count_state(struct engine *engine, enum saga_state state)
{
    if (state == SAGA_SUCCEEDED)
        COUNT(engine, sagas_succeeded, 1);
    else if (state == SAGA_COMPENSATED)
        COUNT(engine, sagas_compensated, 1);
    else if (state == SAGA_PARKED)
        COUNT(engine, sagas_parked, 1);
}

static void let_effects_out(struct engine *engine, struct slot *slot, struct flight *flight)
{
    const struct transition *t = &flight->transition;
    if (t->finishes) {
        slot_lease_ended(engine, slot, t->finish_seq);
        count_finish(engine, saga_entry(slot->saga, t->finish_seq));
        handlers_outcome(engine, slot->saga, saga_entry(slot->saga, t->finish_seq));
    }
    for (size_t i = 0; t->append_seq && i < t->append_count; i++) {
        int64_t seq = t->append_seq + (int64_t)i;
        const struct journal_entry *entry = saga_entry(slot->saga, seq);
        if (entry->kind == ENTRY_LEASE) {
            slot_lease_granted(engine, slot, seq);
            workers_grant(engine, slot, seq, flight);
        } else if (entry->kind == ENTRY_COMPENSATE) {
            workers_cancel_hints(engine, slot);
        } else if (entry->kind == ENTRY_LATE_REPORT) {
            COUNT(engine, late_reports, 1);
        }
    }
    bool ended_before = saga_state_is_terminal(t->state_from);
    if (t->changes_row && !ended_before) /* else its doubt changed alone */
        count_state(engine, saga_row(slot->saga)->state);
    if (t->late_row)
        COUNT(engine, late_reports, 1);
}

static void transition_ok(struct engine *engine, struct flight *flight)
{
    struct slot *slot = flight->slot;
    saga_committed(slot->saga, &flight->transition, flight->op.now_ms);
    slot->state = SLOT_IDLE;
    if (flight->op.kind == STORE_START || flight->transition.append_seq)
        slot->known = engine->batch_number; /* the position told that nothing came before it */
    slot->suspect = false;
    slot->blocked_ms = 0;
    slot->not_before = 0;
    if (flight->op.kind == STORE_START)
        COUNT(engine, sagas_started, 1);
    let_effects_out(engine, slot, flight);
    if (flight->work)
        work_answer(engine, slot, flight->work, flight->verdict, 0);
    if (transition_loses_stream(slot->saga, &flight->transition)) {
        slot_drop_copy(engine, slot);
        slot_make_runnable(engine, slot);
        return;
    }
    slot_settle(engine, slot);
}

static void extend_ok(struct engine *engine, struct flight *flight)
{
    struct slot *slot = flight->slot;
    saga_extended(slot->saga, flight->op.seq, flight->op.now_ms);
    slot->state = SLOT_IDLE;
    const struct journal_entry *entry = saga_entry(slot->saga, flight->op.seq);
    int64_t left = entry->lease_until_ms - engine_db_now_at_most(engine);
    COUNT(engine, leases_extended, 1);
    work_answer(engine, slot, flight->work, VERDICT_ACCEPTED, left > 0 ? left : 0);
    slot_settle(engine, slot);
}

/* --- what did not become durable, or perhaps
 * ------------------------------------------------------ */

static void credit_back(struct flight *flight)
{
    if (flight->session && flight->reserved)
        dispatch_unreserve(flight->reserved);
    flight->reserved = NULL;
}

/* The grant may be durable, but its task never left: once the saga is loaded again, that lease is
 * given back if it is there and this process granted it. Before anything else is asked of the fresh
 * copy: if it is not there, a later grant may take the same position, and that one is sent. */
static struct engine_work *unsent_release(struct flight *flight)
{
    const struct transition *t = &flight->transition;
    for (size_t i = 0; t->append_seq && i < t->append_count; i++) {
        const struct journal_entry *entry =
            saga_entry(flight->slot->saga, t->append_seq + (int64_t)i);
        if (entry->kind != ENTRY_LEASE)
            continue;
        struct engine_work *work =
            lease_end_new(entry->seq, entry->fence, entry->worker, OUTCOME_RELEASED);
        if (work)
            CONTAINER(work, struct lease_end, work)->if_ours = true;
        return work; /* a transition grants one at most */
    }
    return NULL;
}

/* The copy is worthless, what it says of the owner too; whatever it was asked is asked again of a
 * fresh one. */
static void decide_anew(struct engine *engine, struct flight *flight)
{
    struct slot *slot = flight->slot;
    slot->mine = false;
    struct engine_work *unsent = flight->op.result == STORE_UNKNOWN ? unsent_release(flight) : NULL;
    credit_back(flight);
    slot_drop_copy(engine, slot);
    if (flight->op.kind == STORE_START)
        flight->work->kind = WORK_START_CHECK;
    if (flight->work)
        slot_queue_front(slot, flight->work);
    if (unsent)
        slot_queue_front(slot, unsent);
    slot_make_runnable(engine, slot);
}

/* A lock or a conflict of transactions is nobody's fault and soon over: the caller is not told of
 * it before the tries are spent. */
static bool try_again(const struct err *err, int *tries)
{
    bool passing = strncmp(err->sqlstate, "40", 2) == 0 || strcmp(err->sqlstate, "55P03") == 0;
    return err->retryable && passing && ++*tries < CALL_TRIES_MAX;
}

static void operation_failed(struct engine *engine, struct flight *flight)
{
    struct slot *slot = flight->slot;
    struct engine_work *work = flight->work;
    COUNT(engine, operations_failed, 1);
    credit_back(flight);
    if (!flight->op.err.retryable)
        log_line(LOG_ERROR, "the database refused a decision", "saga",
                 slot->saga ? saga_row(slot->saga)->saga_id : NULL, "sqlstate",
                 flight->op.err.sqlstate, "err", flight->op.err.msg, NULL);
    if (flight->op.kind == STORE_START) {
        struct start_item *item = CONTAINER(work, struct start_item, work);
        slot_free(engine, slot);
        if (try_again(&flight->op.err, &item->tries))
            start_requeue(engine, item);
        else
            work_fail(engine, work, &flight->op.err);
        return;
    }
    if (work && work->kind == WORK_VERB &&
        !try_again(&flight->op.err, &CONTAINER(work, struct engine_verb, work)->tries))
        work_fail(engine, work, &flight->op.err);
    else if (work) /* not acknowledged; tried again when the saga comes back */
        slot_queue_front(slot, work);
    slot_block(engine, slot);
}

/* --- a key that is known
 * ---------------------------------------------------------------------------- */

static void start_exists(struct engine *engine, struct flight *flight)
{
    struct start_item *item = CONTAINER(flight->work, struct start_item, work);
    const struct store_key *key = &flight->op.key;
    bool same = memcmp(key->input_digest, item->digest, sizeof item->digest) == 0;
    credit_back(flight);
    if (flight->slot) /* it was to be started; else its key alone was looked up */
        slot_free(engine, flight->slot);
    if (!same) {
        char text[UUID_TEXT_SIZE];
        uuid_format(&key->uid, text);
        err_reason(&item->err, ERR_EXISTS, "INPUT_MISMATCH",
                   "this key belongs to saga %s, which was started with other input bytes", text);
        start_item_answered(engine, &item->work);
        return;
    }
    item->existed = true;
    item->run = key->run;
    item->uid = key->uid;
    item->state = key->ended ? key->final_state : SAGA_RUNNING;
    COUNT(engine, starts_existed, 1);
    struct slot *slot = slot_get(engine, &key->uid);
    if (!slot) { /* the saga is there; only its state could not be looked up */
        start_item_answered(engine, &item->work);
        return;
    }
    item->work.kind = WORK_START_EXISTED;
    slot_queue(engine, slot, &item->work);
}

/* Its revision is not stored any more: another node deleted it, and the copy of what is current was
 * out of date. Nothing is durable, so it begins anew with what is current now. */
static void start_lost(struct engine *engine, struct flight *flight)
{
    struct start_item *item = CONTAINER(flight->work, struct start_item, work);
    definitions_forget_current(engine, item->namespace_, item->definition);
    credit_back(flight);
    slot_free(engine, flight->slot);
    start_requeue(engine, item);
}

/* --- loads
 * ------------------------------------------------------------------------------------------ */

/* There was no such saga when it was looked for. What was asked after that is left: it may have
 * been started since. */
static void works_fail(struct engine *engine, struct slot *slot, const struct err *err)
{
    while (slot->first) {
        bool later = slot->first->kind == WORK_VERB || slot->first->kind == WORK_REPORT ||
                     slot->first->kind == WORK_EXTEND;
        if (later && slot->first->asked >= engine->batch_number)
            return;
        struct engine_work *work = slot_take_work(slot);
        if (work->kind == WORK_START_EXISTED)
            start_item_answered(engine, work); /* its rows were purged: the key says enough */
        else if (work->kind == WORK_START_CHECK)
            start_requeue(engine, CONTAINER(work, struct start_item, work));
        else
            work_fail(engine, work, err);
    }
    while (slot->waiters) {
        struct engine_verb *verb = slot->waiters;
        verb->err = *err;
        verb_finish(engine, verb);
    }
}

static void load_uid_done(struct engine *engine, struct flight *flight)
{
    struct slot *slot = flight->slot;
    assert(slot);
    if (flight->op.result == STORE_OK) {
        struct store_saga saga = flight->op.sagas[0];
        flight->op.saga_count = 0;
        if (flight->op.taken) {
            slot->mine = false; /* until now */
            slot->look_at = engine->now_mono + TAKEN_LOOK_MS;
        }
        saga.mine = saga.mine || flight->op.take;
        loaded_install(engine, &saga, engine->batch_number);
        return;
    }
    if (flight->op.result == STORE_NOT_FOUND) {
        struct err err;
        err_set(&err, ERR_NOT_FOUND, "no such saga");
        slot->state = SLOT_UNLOADED;
        works_fail(engine, slot, &err);
        if (slot->first)
            slot_make_runnable(engine, slot);
        else
            slot_free(engine, slot);
        return;
    }
    slot->mine = slot->mine && !flight->op.take; /* it may have been taken, and from another node */
    slot_block(engine, slot);
}

/* A start that was refused, unless its key is known. */
static void start_looked_up(struct engine *engine, struct flight *flight)
{
    struct start_item *item = CONTAINER(flight->work, struct start_item, work);
    if (flight->op.result == STORE_OK) {
        item->err.code = ERR_OK;
        start_exists(engine, flight);
        return;
    }
    if (flight->op.result != STORE_NOT_FOUND)
        item->err = flight->op.err;
    start_item_answered(engine, &item->work);
}

static void load_key_done(struct engine *engine, struct flight *flight)
{
    if (flight->work->kind == WORK_START) {
        start_looked_up(engine, flight);
        return;
    }
    struct engine_verb *verb = CONTAINER(flight->work, struct engine_verb, work);
    const struct store_key *key = &flight->op.key;
    if (flight->op.result == STORE_FAILED || flight->op.result == STORE_UNKNOWN) {
        work_fail(engine, flight->work, &flight->op.err);
        return;
    }
    if (flight->op.result == STORE_NOT_FOUND || (verb->run && verb->run != key->run) ||
        flight->op.saga_count == 0) {
        err_set(&verb->err, ERR_NOT_FOUND,
                flight->op.result == STORE_OK && flight->op.saga_count == 0
                    ? "the saga ended and its rows were purged"
                    : "no such saga");
        verb_finish(engine, verb);
        return;
    }
    struct slot *slot = slot_get(engine, &key->uid);
    if (!slot) {
        err_set(&verb->err, ERR_NOMEM, "out of memory");
        verb_finish(engine, verb);
        return;
    }
    verb->uid = key->uid;
    slot_queue(engine, slot, &verb->work);
    struct store_saga saga = flight->op.sagas[0];
    flight->op.saga_count = 0;
    loaded_install(engine, &saga, engine->batch_number);
}

/* Whatever became of it: if it is still this node's, the next listing of its own finds it. */
static void let_go_done(struct engine *engine, struct flight *flight)
{
    struct slot *slot = flight->slot;
    assert(slot);
    if (flight->op.result == STORE_FAILED) {
        slot_block(engine, slot);
        return;
    }
    slot_drop_copy(engine, slot);
    slot->mine = false;
    if (slot->first || slot->waiters) /* loaded, as another node's */
        slot_make_runnable(engine, slot);
    else
        slot_free(engine, slot);
}

/* --- */

static void complete_write(struct engine *engine, struct flight *flight)
{
    assert(flight->slot);
    switch (flight->op.result) {
    case STORE_OK:
        if (flight->op.kind == STORE_EXTEND) {
            extend_ok(engine, flight);
        } else if (flight->op.not_owner) { /* a copy from before somebody took it: what follows? */
            COUNT(engine, decisions_lost, 1);
            decide_anew(engine, flight);
        } else {
            transition_ok(engine, flight);
        }
        return;
    case STORE_EXISTS:
        start_exists(engine, flight);
        return;
    case STORE_FAILED:
        operation_failed(engine, flight);
        return;
    case STORE_LOST:
    case STORE_NOT_FOUND:
        COUNT(engine, decisions_lost, 1);
        if (flight->op.kind == STORE_START)
            start_lost(engine, flight);
        else
            decide_anew(engine, flight);
        return;
    case STORE_UNKNOWN:
    case STORE_PENDING:
        decide_anew(engine, flight);
        return;
    }
}

/* The transaction that said `now_ms` began after it was submitted and before this moment, however
 * long it had to wait in between: that bounds the difference of the clocks from both sides. Bounds
 * learned before stay while they are the closer ones and contradict nothing. (2 and 1: clocks, and
 * the journal's times that they are compared with, are cut to milliseconds.) */
static void learn_db_clock(struct engine *engine, int64_t now_ms)
{
    int64_t least = now_ms - clock_mono_ms(engine->options.clock) - 2;
    int64_t most = now_ms - engine->submitted_at + 1;
    bool known = engine->db_offset_known;
    int64_t now = engine->now_mono;
    /* What it was then: this process may have stood still since, and the clocks drifted. */
    int64_t most_by_now = most + engine_drift_ms(now - engine->submitted_at);
    int64_t old_least = engine->db_offset_ms - engine_drift_ms(now - engine->db_least_at);
    int64_t old_most = engine->db_offset_most_ms + engine_drift_ms(now - engine->db_most_at);
    if (!known || old_least < least || old_least > most_by_now) {
        engine->db_offset_ms = least;
        engine->db_least_at = now;
    }
    if (!known || old_most > most_by_now || old_most < least) {
        engine->db_offset_most_ms = most;
        engine->db_most_at = engine->submitted_at;
    }
    engine->db_offset_known = true;
}

void complete_op(struct engine *engine, struct store_op *op)
{
    if (op->now_ms)
        learn_db_clock(engine, op->now_ms);
    if (op->kind == STORE_LOAD_DEFINITION) {
        definitions_loaded(engine, op);
        return;
    }
    struct flight *flight = CONTAINER(op, struct flight, op);
    DL_DELETE(engine->flights, flight);
    if (flight->slot)
        flight->slot->flight = NULL;
    if (op->kind == STORE_LOAD_UID)
        load_uid_done(engine, flight);
    else if (op->kind == STORE_LOAD_KEY)
        load_key_done(engine, flight);
    else if (op->kind == STORE_OWN)
        nodes_own_done(engine, op);
    else if (op->kind == STORE_ADOPT)
        nodes_adopt_done(engine, op);
    else if (op->kind == STORE_HEARTBEAT)
        nodes_beat_done(engine, op);
    else if (op->kind == STORE_HANDLERS)
        handlers_read_done(engine, op);
    else if (op->kind == STORE_HANDLER)
        handlers_change_done(engine, flight);
    else if (op->kind == STORE_LET_GO)
        let_go_done(engine, flight);
    else
        complete_write(engine, flight);
    flight_free(engine, flight);
}
