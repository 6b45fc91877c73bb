/* The table of sagas in memory: their work queues, timers and readiness. */
#include "engine/engine_internal.h"

#include "base/mem.h"

#include <string.h>
#include <utlist.h>

int64_t engine_db_now(const struct engine *engine)
{
    return engine->now_mono + engine->db_offset_ms -
           engine_drift_ms(engine->now_mono - engine->db_least_at);
}

int64_t engine_db_now_at_most(const struct engine *engine)
{
    int64_t now = clock_mono_ms(engine->options.clock);
    return now + 1 + engine->db_offset_most_ms + engine_drift_ms(now - engine->db_most_at);
}

bool engine_expiry_allowed(const struct engine *engine, const struct slot *slot)
{
    return engine->now_mono >= engine->grace_until && engine->now_mono >= slot->grace_until;
}

struct slot *slot_find(struct engine *engine, const struct uuid *uid)
{
    struct slot *slot = NULL;
    HASH_FIND(hh, engine->slots, uid, sizeof *uid, slot);
    return slot;
}

struct slot *slot_get(struct engine *engine, const struct uuid *uid)
{
    struct slot *slot = slot_find(engine, uid);
    if (slot)
        return slot;
    slot = mem_calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    slot->uid = *uid;
    slot->last = &slot->first;
    HASH_ADD(hh, engine->slots, uid, sizeof slot->uid, slot);
    if (!hash_holds(&slot->hh)) {
        mem_free(slot);
        return NULL;
    }
    COUNT(engine, sagas_resident, 1);
    return slot;
}

void slot_make_runnable(struct engine *engine, struct slot *slot)
{
    if (slot->runnable || slot->state == SLOT_BUSY || slot->state == SLOT_LOADING ||
        slot->state == SLOT_BLOCKED)
        return; /* whoever ends that state looks at the work again */
    CDL_APPEND2(engine->runnable, slot, prev_runnable, next_runnable);
    slot->runnable = true;
    engine->runnable_count++;
}

void slot_not_runnable(struct engine *engine, struct slot *slot)
{
    if (!slot->runnable)
        return;
    CDL_DELETE2(engine->runnable, slot, prev_runnable, next_runnable);
    slot->runnable = false;
    engine->runnable_count--;
}

void slot_queue(struct engine *engine, struct slot *slot, struct engine_work *work)
{
    work->next = NULL;
    *slot->last = work;
    slot->last = &work->next;
    slot_make_runnable(engine, slot);
}

void slot_queue_front(struct slot *slot, struct engine_work *work)
{
    work->next = slot->first;
    if (!slot->first)
        slot->last = &work->next;
    slot->first = work;
}

struct engine_work *slot_take_work(struct slot *slot)
{
    struct engine_work *work = slot->first;
    if (!work)
        return NULL;
    slot->first = work->next;
    if (!slot->first)
        slot->last = &slot->first;
    work->next = NULL;
    return work;
}

static void leases_remove_all(struct engine *engine, struct slot *slot)
{
    while (slot->leases) {
        struct lease *lease = slot->leases;
        slot->leases = lease->next;
        dispatch_lease_remove(engine->dispatch, &lease->dispatch);
        COUNT(engine, leases_live, -1);
        mem_free(lease);
    }
}

static void wait_free(struct slot *slot, struct wait *wait)
{
    if (wait == &slot->first_wait)
        *wait = (struct wait){ 0 };
    else
        mem_free(wait);
}

void slot_take_ready(struct engine *engine, struct slot *slot)
{
    while (slot->waits) {
        struct wait *wait = slot->waits;
        slot->waits = wait->next;
        if (dispatch_ready_waits(&wait->ready)) { /* not taken by a worker's credit just now */
            dispatch_ready_remove(&wait->ready);
            COUNT(engine, sagas_ready, -1);
        }
        wait_free(slot, wait);
    }
}

void slot_drop_copy(struct engine *engine, struct slot *slot)
{
    slot_take_ready(engine, slot);
    leases_remove_all(engine, slot);
    heap_remove(&engine->timers, &slot->timer);
    slot->saga = saga_free(slot->saga);
    slot->state = SLOT_UNLOADED;
    slot->time_due = false;
}

void slot_free(struct engine *engine, struct slot *slot)
{
    slot_drop_copy(engine, slot);
    slot_not_runnable(engine, slot);
    HASH_DEL(engine->slots, slot);
    COUNT(engine, sagas_resident, -1);
    mem_free(slot);
}

void slot_block(struct engine *engine, struct slot *slot)
{
    slot_drop_copy(engine, slot);
    slot_not_runnable(engine, slot);
    slot->suspect = true;
    slot->blocked_ms = slot->blocked_ms ? slot->blocked_ms * 2 : BLOCKED_MIN_MS;
    if (slot->blocked_ms > BLOCKED_MAX_MS)
        slot->blocked_ms = BLOCKED_MAX_MS;
    if (heap_set(&engine->timers, &slot->timer, engine->now_mono + slot->blocked_ms))
        slot_make_runnable(engine, slot); /* no memory for the timer: at once, apart */
    else
        slot->state = SLOT_BLOCKED;
}

static void lease_register(struct engine *engine, struct slot *slot,
                           const struct journal_entry *entry, bool ours)
{
    const struct operation_rule *rule = saga_lease_rule(slot->saga, entry->seq);
    struct dispatch_handler *handler = dispatch_handler(engine->dispatch, rule->handler);
    struct lease *lease = mem_calloc(1, sizeof *lease);
    if (!handler || !lease ||
        dispatch_lease_add(engine->dispatch, &lease->dispatch, entry->worker, handler)) {
        mem_free(lease); /* it is still in the journal: its time ends it */
        return;
    }
    lease->slot = slot;
    lease->seq = entry->seq;
    lease->fence = entry->fence;
    lease->idempotent = rule->effect == EFFECT_IDEMPOTENT;
    lease->ours = ours;
    size_t node = strlen(engine->options.node);
    lease->may_have_ended = entry->fence < fence_make(engine->store->ops->epoch(engine->store), 0);
    lease->of_this_node = entry->actor && strncmp(entry->actor, engine->granter, node + 1) == 0;
    LL_PREPEND(slot->leases, lease);
    COUNT(engine, leases_live, 1);
    if (!ours && workers_never_started(lease))
        lease_end_queue(engine, slot, lease->seq, OUTCOME_RELEASED);
}

void slot_lease_granted(struct engine *engine, struct slot *slot, int64_t seq)
{
    lease_register(engine, slot, saga_entry(slot->saga, seq), true);
}

void slot_lease_ended(struct engine *engine, struct slot *slot, int64_t seq)
{
    for (struct lease **at = &slot->leases; *at; at = &(*at)->next) {
        struct lease *lease = *at;
        if (lease->seq != seq)
            continue;
        *at = lease->next;
        dispatch_lease_remove(engine->dispatch, &lease->dispatch);
        COUNT(engine, leases_live, -1);
        mem_free(lease);
        return;
    }
}

void slot_install(struct engine *engine, struct slot *slot, struct saga *saga, uint64_t known)
{
    slot->saga = saga;
    slot->state = SLOT_IDLE;
    slot->not_before = 0;
    slot->known = known;
    for (int64_t seq = 1; seq <= saga_last_seq(saga); seq++) {
        const struct journal_entry *entry = saga_entry(saga, seq);
        if (entry->kind == ENTRY_LEASE && entry->outcome == OUTCOME_NONE)
            lease_register(engine, slot, entry,
                           entry->actor && strcmp(entry->actor, engine->granter) == 0);
    }
}

static int wait_put(struct engine *engine, struct slot *slot, const struct grantable *what,
                    struct wait ***last)
{
    struct dispatch_handler *handler = dispatch_handler(engine->dispatch, what->rule->handler);
    struct wait *wait = slot->first_wait.slot ? mem_calloc(1, sizeof *wait) : &slot->first_wait;
    if (!handler || !wait ||
        dispatch_ready_put(handler, saga_definition(slot->saga), what->since_ms, &wait->ready)) {
        if (wait)
            wait_free(slot, wait);
        return -1;
    }
    wait->slot = slot;
    **last = wait;
    *last = &wait->next;
    COUNT(engine, sagas_ready, 1);
    return 0;
}

/* Does it wait for just that already? Then it keeps its places. */
static bool waits_for_all(const struct engine *engine, const struct slot *slot,
                          const struct grantable *what, size_t count)
{
    const struct wait *wait = slot->waits;
    for (size_t i = 0; i < count; i++, wait = wait->next)
        if (!wait || !dispatch_ready_waits(&wait->ready) ||
            dispatch_ready_handler(&wait->ready) !=
                dispatch_handler(engine->dispatch, what[i].rule->handler))
            return false;
    return !wait;
}

/* Into the queues of what may be granted, out of the others. */
static void ready_update(struct engine *engine, struct slot *slot)
{
    struct grantable what[LIMIT_STEPS];
    size_t count = saga_grantable(slot->saga, engine_db_now(engine), what, LIMIT_STEPS);
    if (waits_for_all(engine, slot, what, count))
        return;
    slot_take_ready(engine, slot);
    struct wait **last = &slot->waits;
    for (size_t i = 0; i < count; i++)
        if (wait_put(engine, slot, &what[i], &last)) {
            slot->not_before = engine->now_mono + BLOCKED_MIN_MS; /* memory: look again soon */
            break;
        }
    slot->ready_since = engine->now_mono;
}

enum {
    LEARN_AGAIN_MS = 60 * 1000,
    /* What becomes due is not known while a handler is braked: it is looked at again so often, up
     * to twice as late, so that a release need not touch each saga that waits. */
    BRAKED_LOOK_MS = 30 * 1000,
};

/* The next look at it. */
static void timer_set(struct engine *engine, struct slot *slot, int64_t at)
{
    if (heap_set(&engine->timers, &slot->timer, at)) {
        slot->time_due = true; /* no memory for the timer: look on the next turn */
        slot_make_runnable(engine, slot);
    }
}

static void timer_update(struct engine *engine, struct slot *slot)
{
    int64_t due = saga_due_at(slot->saga);
    int64_t grantable = saga_grantable_at(slot->saga, engine_db_now(engine));
    if (grantable < due)
        due = grantable;
    int64_t at = INT64_MAX;
    if (due != INT64_MAX) {
        at = due - engine->db_offset_ms + 1;
        /* engine_db_now will have fallen behind by so much; before what lies far ahead the clock is
         * learnt anew, and the timer set again */
        if (at > engine->db_least_at && at - engine->now_mono <= LEARN_AGAIN_MS)
            at += engine_drift_ms(at - engine->db_least_at) + 1;
    }
    if (at < slot->not_before || (at == INT64_MAX && slot->not_before))
        at = slot->not_before;
    int64_t let_go_at = nodes_let_go_at(engine, slot);
    if (let_go_at <= engine->now_mono)
        slot_make_runnable(engine, slot);
    else if (let_go_at < at)
        at = let_go_at;
    if (slot->look_at && slot->leases && slot->look_at < at)
        at = slot->look_at;
    if (due == INT64_MAX && handlers_waits_braked(slot)) {
        int64_t look_at =
            engine->now_mono + BRAKED_LOOK_MS + (int64_t)rng_below(&engine->rng, BRAKED_LOOK_MS);
        at = look_at < at ? look_at : at;
    }
    if (at == INT64_MAX)
        heap_remove(&engine->timers, &slot->timer);
    else
        timer_set(engine, slot, at);
}

void slot_settle(struct engine *engine, struct slot *slot)
{
    waiters_check(engine, slot);
    if (slot->first) {
        slot_make_runnable(engine, slot);
        return;
    }
    if (saga_state_is_terminal(saga_row(slot->saga)->state)) {
        if (!slot->waiters)
            slot_free(engine, slot);
        return;
    }
    if (!slot->mine) { /* its owner brings it on; it is looked at while somebody waits for it here
                        */
        if (slot->waiters)
            timer_set(engine, slot, engine->now_mono + FOREIGN_LOOK_MS);
        else
            slot_free(engine, slot);
        return;
    }
    ready_update(engine, slot);
    timer_update(engine, slot);
}
