/* Handlers as this node knows them: held, limited, on trial. Read once a second and before anything
 * is decided on a new connection; the gate in front of each queue follows, and so do the times that
 * count for nothing. The breaker counts here, and asks the database; whoever is first decides. */
#include "engine/engine_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum {
    READ_EVERY_MS = 1200, /* at the latest */
    /* A gate that is new: until the other nodes had time to say that they serve it, all of them are
     * taken to. */
    SHARE_KNOWN_MS = 3000,
    DRAINED_READS = 3, /* in a row that found nothing waiting: sagas may be on their way */
};

static struct engine_handler *find(const struct engine *engine, const char *name)
{
    struct engine_handler *handler = NULL;
    HASH_FIND_STR(engine->handlers, name, handler);
    return handler;
}

static struct engine_handler *get(struct engine *engine, const char *name)
{
    struct engine_handler *handler = find(engine, name);
    if (handler)
        return handler;
    handler = mem_calloc(1, sizeof *handler);
    if (!handler)
        return NULL;
    handler_init(&handler->row, name);
    handler->wanted = HANDLER_CHANGE_COUNT;
    HASH_ADD_STR(engine->handlers, row.name, handler);
    if (!hash_holds(&handler->hh)) {
        mem_free(handler);
        return NULL;
    }
    engine->handler_count++;
    return handler;
}

static int attach(struct engine *engine, struct operation_rule *rule)
{
    for (; rule && rule->handler && *rule->handler; rule = rule->probe) {
        struct engine_handler *handler = get(engine, rule->handler);
        if (!handler)
            return -1;
        rule->held = &handler->times;
    }
    return 0;
}

int handlers_attach(struct engine *engine, struct definition *definition)
{
    for (size_t i = 0; i < definition->step_count; i++)
        if (attach(engine, &definition->steps[i].action) ||
            attach(engine, &definition->steps[i].compensation))
            return -1;
    return 0;
}

void handlers_free(struct engine *engine)
{
    struct engine_handler *handler, *next;
    HASH_ITER(hh, engine->handlers, handler, next)
    {
        HASH_DEL(engine->handlers, handler);
        mem_free(handler->times.list);
        mem_free(handler);
    }
    mem_free(engine->handler_counts);
}

/* --- the gate --------------------------------------------------------------------------------- */

static int64_t share(int64_t all, int64_t nodes)
{
    int64_t part = all / nodes;
    return all && part < 1 ? 1 : part;
}

static int64_t slower(int64_t rate, int64_t other)
{
    return !rate || (other && other < rate) ? other : rate;
}

/* With nodes that serve it each takes its share, at least one of a cap. */
static void gate_update(struct engine *engine, struct engine_handler *handler)
{
    const struct handler *row = &handler->row;
    bool known = handler->gated_since + SHARE_KNOWN_MS <= engine->now_mono;
    int64_t nodes = known ? handler->others + 1 : engine->nodes_alive;
    if (nodes < 1)
        nodes = 1;
    struct dispatch_gate gate = {
        .held = row->hold != HOLD_NONE,
        .on_trial = row->hold == HOLD_BREAKER,
        .rate_milli = share(slower(row->rate_milli, row->release_rate_milli), nodes),
        .cap = share(row->cap, nodes),
    };
    gate.in_order = gate.held || gate.rate_milli || gate.cap;
    if (!gate.in_order && !handler->gated)
        return;
    struct dispatch_handler *target = dispatch_handler(engine->dispatch, row->name);
    if (!target) {
        engine->handlers_at = engine->now_mono + BLOCKED_MIN_MS; /* memory: soon again */
        handler->row.version = 0;
        return;
    }
    if (gate.in_order && !handler->gated)
        handler->gated_since = engine->now_mono;
    handler->gated = gate.in_order;
    dispatch_gate_set(target, &gate, engine->now_mono);
}

bool handlers_waits_held(const struct slot *slot)
{
    for (const struct wait *wait = slot->waits; wait; wait = wait->next)
        if (!dispatch_ready_waits(&wait->ready) ||
            !dispatch_gate(dispatch_ready_handler(&wait->ready))->held)
            return false;
    return slot->waits != NULL;
}

bool handlers_waits_braked(const struct slot *slot)
{
    for (const struct wait *wait = slot->waits; wait; wait = wait->next)
        if (dispatch_ready_waits(&wait->ready) &&
            dispatch_gate(dispatch_ready_handler(&wait->ready))->in_order)
            return true;
    return false;
}

/* --- reading ---------------------------------------------------------------------------------- */

void handlers_connection_is_new(struct engine *engine)
{
    engine->handlers_known = engine->handlers_in_flight = false;
    engine->handlers_at = engine->now_mono;
    for (struct engine_handler *at = engine->handlers; at; at = at->hh.next)
        at->in_flight = false;
}

/* What this node says and knows; false: memory. */
static bool counts_fill(struct engine *engine)
{
    size_t count = 0;
    if (mem_grow((void **)&engine->handler_counts, &engine->handler_counts_capacity,
                 engine->handler_count, sizeof *engine->handler_counts))
        return false;
    for (struct engine_handler *at = engine->handlers; at; at = at->hh.next) {
        struct store_handler_count *to = &engine->handler_counts[count];
        *to = (struct store_handler_count){ .handler = at->row.name,
                                            .version = at->row.version,
                                            .says = at->gated };
        if (at->gated) {
            struct dispatch_handler_view view;
            dispatch_handler_view(dispatch_handler(engine->dispatch, at->row.name), &view);
            to->waiting = view.ready;
            to->leased = view.leased;
            to->oldest_ms = view.oldest_ms;
            to->served = view.served;
        }
        count += at->row.version > 0;
    }
    engine->handler_counts_used = count;
    return true;
}

static void times_take(struct engine_handler *handler, struct store_handler *from)
{
    mem_free(handler->times.list);
    handler->times = (struct held_times){ TAKE(from->times), from->time_count };
}

static void log_change(const struct handler *row)
{
    log_line(LOG_INFO, "a handler's brake changed", "handler", row->name, "hold",
             handler_hold_name(row->hold), "actor", *row->actor ? row->actor : NULL, "reason",
             *row->reason ? row->reason : NULL, NULL);
}

static void take_row(struct engine *engine, struct store_handler *from)
{
    struct engine_handler *handler = get(engine, from->row.name);
    if (!handler)
        return; /* memory: the next read */
    handler->others = from->others;
    int64_t waiting =
        handler->gated
            ? dispatch_handler_ready(dispatch_handler(engine->dispatch, handler->row.name))
            : 0;
    handler->drained = from->drained && !waiting ? handler->drained + 1 : 0;
    if (from->is_new && from->row.version != handler->row.version) {
        if (from->row.hold != handler->row.hold) {
            handler->failures = 0;
            log_change(&from->row);
        }
        handler->row = from->row;
        times_take(handler, from);
    }
    gate_update(engine, handler);
}

/* Something may have to be asked for it before the next read. */
static void watch(struct engine *engine)
{
    engine->handlers_watched = false;
    for (const struct engine_handler *at = engine->handlers; at; at = at->hh.next)
        engine->handlers_watched |= at->row.hold == HOLD_BREAKER ||
                                    at->wanted != HANDLER_CHANGE_COUNT ||
                                    at->drained >= DRAINED_READS;
}

void handlers_read_done(struct engine *engine, struct store_op *op)
{
    engine->handlers_in_flight = false;
    engine->handlers_at = engine->now_mono + READ_EVERY_MS;
    if (op->result != STORE_OK) {
        engine->handlers_at = engine->now_mono + BLOCKED_MIN_MS;
        return;
    }
    for (size_t i = 0; i < op->stored_count; i++)
        take_row(engine, &op->stored[i]);
    engine->handlers_known = true;
    watch(engine);
    /* Whoever said that something changed: it is known here now, if it said so before the question.
     */
    while (engine->handlers_told && engine->handlers_told_before > 0) {
        struct mailbox_node *node = engine->handlers_told;
        engine->handlers_told = node->next;
        engine->handlers_told_before--;
        struct engine_event *event = CONTAINER(node, struct engine_event, node);
        event->done(event);
    }
    if (engine->handlers_told)
        engine->handlers_at = engine->now_mono;
}

void handlers_changed(struct engine *engine, struct engine_event *event)
{
    struct mailbox_node **last = &engine->handlers_told;
    while (*last)
        last = &(*last)->next;
    event->node.next = NULL;
    *last = &event->node;
    engine->handlers_at = engine->now_mono;
}

void handlers_changed_end(struct engine *engine)
{
    while (engine->handlers_told) {
        struct mailbox_node *node = engine->handlers_told;
        engine->handlers_told = node->next;
        struct engine_event *event = CONTAINER(node, struct engine_event, node);
        event->done(event);
    }
}

/* --- the breaker ------------------------------------------------------------------------------ */

enum said { SAID_NOTHING, SAID_WELL, SAID_ILL };

/* What an outcome tells of the handler. A worker that was lost says nothing of it; one that lived
 * and was not done in its time does. */
static enum said said_of(const struct journal_entry *entry)
{
    switch (entry->outcome) {
    case OUTCOME_DONE:
    case OUTCOME_ALREADY_DONE:
    case OUTCOME_REJECTED:
    case OUTCOME_NOT_DONE:
        return SAID_WELL;
    case OUTCOME_RETRY:
    case OUTCOME_UNKNOWN:
    case OUTCOME_STILL_UNKNOWN:
        return SAID_ILL;
    case OUTCOME_EXPIRED:
        return entry->lease_until_ms >= entry->attempt_until_ms ? SAID_ILL : SAID_NOTHING;
    case OUTCOME_NONE:
    case OUTCOME_STREAM_LOST:
    case OUTCOME_RELEASED:
    case OUTCOME_COUNT:
        break;
    }
    return SAID_NOTHING;
}

static void want(struct engine *engine, struct engine_handler *handler,
                 enum handler_change_kind kind)
{
    handler->wanted = kind;
    engine->handlers_watched = true;
}

static void trip(struct engine *engine, struct engine_handler *handler,
                 const struct journal_entry *entry)
{
    const char *code = entry->error_code, *message = entry->error_message;
    char why[LIMIT_ERROR_CODE_BYTES + LIMIT_ERROR_MESSAGE_BYTES + 64];
    (void)snprintf(why, sizeof why, "%d failures in a row; the last: %s%s%s%s%s", handler->failures,
                   outcome_name(entry->outcome), code ? " " : "", code ? code : "",
                   message ? ": " : "", message ? message : "");
    size_t fits = utf8_cut(why, strlen(why), LIMIT_REASON_BYTES);
    memcpy(handler->why, why, fits);
    handler->why[fits] = '\0';
    want(engine, handler, HANDLER_TRIP);
}

void handlers_outcome(struct engine *engine, const struct saga *saga,
                      const struct journal_entry *entry)
{
    const struct operation_rule *rule = saga_lease_rule(saga, entry->seq);
    struct engine_handler *handler = rule->held ? find(engine, rule->handler) : NULL;
    enum said said = handler ? said_of(entry) : SAID_NOTHING;
    if (said == SAID_NOTHING)
        return;
    int32_t most = handler_breaker(&handler->row, engine->options.breaker_failures);
    if (handler->row.hold == HOLD_BREAKER && entry->leased_at_ms > handler->row.held_at_ms) {
        handler->tried_well = said == SAID_WELL;
        handler->tried_of_ms = handler->row.held_at_ms;
        want(engine, handler, HANDLER_TRIED);
        return;
    }
    if (said == SAID_WELL || handler->row.hold != HOLD_NONE) {
        handler->failures = 0;
        return;
    }
    handler->failures++;
    if (most && handler->failures >= most && handler->wanted != HANDLER_TRIP)
        trip(engine, handler, entry);
}

/* --- changes ---------------------------------------------------------------------------------- */

/* What this node would change of it now; HANDLER_CHANGE_COUNT: nothing. */
static enum handler_change_kind wanted(struct engine *engine, const struct engine_handler *handler)
{
    if (handler->wanted != HANDLER_CHANGE_COUNT)
        return handler->wanted;
    if (handler->drained >= DRAINED_READS)
        return HANDLER_DRAINED;
    if (handler->row.hold != HOLD_BREAKER)
        return HANDLER_CHANGE_COUNT;
    struct dispatch_handler *target = dispatch_handler(engine->dispatch, handler->row.name);
    bool tries = target && dispatch_handler_ready(target) > 0 && dispatch_handler_could(target) &&
                 engine_db_now(engine) >= handler->row.trial_at_ms;
    return tries ? HANDLER_TRIAL : HANDLER_CHANGE_COUNT;
}

static void change_submit(struct engine *engine, struct engine_handler *handler,
                          enum handler_change_kind kind)
{
    const struct handler_change change = { .kind = kind,
                                           .reason = handler->why,
                                           .success = handler->tried_well,
                                           .held_at_ms = handler->tried_of_ms,
                                           .now_ms = engine_db_now(engine) };
    struct handler_effect effect;
    handler->next = handler->row;
    if (!handler_apply(&handler->next, &change, &effect)) {
        handler->wanted = HANDLER_CHANGE_COUNT;
        handler->drained = 0;
        return;
    }
    struct flight *flight = flight_new(engine);
    if (!flight)
        return; /* the next batch */
    flight->op.kind = STORE_HANDLER;
    flight->op.handler = &handler->next;
    flight->op.effect = effect;
    flight->handler = handler;
    handler->changes = kind;
    handler->in_flight = true;
    flight_add(engine, flight);
}

void handlers_change_done(struct engine *engine, struct flight *flight)
{
    struct engine_handler *handler = flight->handler;
    handler->in_flight = false;
    engine->handlers_at = engine->now_mono; /* with the times that the database gave it */
    if (flight->op.result != STORE_OK)
        return; /* somebody was first, or it is not known: read, and decided anew */
    if (handler->wanted == handler->changes)
        handler->wanted = HANDLER_CHANGE_COUNT;
    handler->drained = 0;
    /* A read of the same batch may know of it already; then no later one has anything new. */
    bool is_read = handler->row.version != handler->next.version;
    if (handler->changes == HANDLER_TRIAL) {
        struct dispatch_handler *target = dispatch_handler(engine->dispatch, handler->row.name);
        if (!is_read)
            handler->row.trial_at_ms = INT64_MAX; /* until it is read */
        if (target)
            dispatch_gate_try(target);
    } else if (handler->changes == HANDLER_TRIP) { /* at once: every grant more is one too many */
        log_line(LOG_WARN, "a breaker holds its handler", "handler", handler->row.name, "reason",
                 handler->why, NULL);
        handler->failures = 0;
        if (is_read)
            return;
        handler->row.hold = HOLD_BREAKER;
        handler->row.held_at_ms = flight->op.now_ms;
        handler->row.trial_at_ms = INT64_MAX;
        gate_update(engine, handler);
    }
}

void handlers_fill_batch(struct engine *engine)
{
    /* It rides on the batch that looks for what nobody drives, where it can. */
    bool rides = engine->member && !engine->adopt_in_flight && engine->adopt_at <= engine->now_mono;
    if (!engine->handlers_in_flight && (rides || engine->handlers_at <= engine->now_mono) &&
        counts_fill(engine)) {
        struct flight *flight = flight_new(engine);
        if (flight) {
            flight->op.kind = STORE_HANDLERS;
            flight->op.counts = engine->handler_counts;
            flight->op.count_count = engine->handler_counts_used;
            engine->handlers_in_flight = true;
            engine->handlers_told_before = 0;
            for (const struct mailbox_node *at = engine->handlers_told; at; at = at->next)
                engine->handlers_told_before++;
            flight_add(engine, flight);
        }
    }
    if (!engine->handlers_watched || !engine->member)
        return;
    for (struct engine_handler *at = engine->handlers; at; at = at->hh.next) {
        enum handler_change_kind kind = at->in_flight ? HANDLER_CHANGE_COUNT : wanted(engine, at);
        if (kind != HANDLER_CHANGE_COUNT)
            change_submit(engine, at, kind);
    }
}

int64_t handlers_due_at(const struct engine *engine)
{
    int64_t at = dispatch_gates_due_at(engine->dispatch);
    if (!engine->handlers_in_flight && engine->handlers_at < at)
        at = engine->handlers_at; /* trials are no more urgent than a read */
    return at;
}
