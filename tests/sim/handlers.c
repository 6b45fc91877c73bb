#include "sim/handlers.h"

#include "sim/rows.h"
#include "sim/world.h"

#include <string.h>

static struct db_handler *find(struct database *database, const char *name)
{
    for (size_t i = 0; i < HANDLERS_MAX; i++)
        if (strcmp(database->handlers[i].row.name, name) == 0)
            return &database->handlers[i];
    return NULL;
}

void handlers_open(struct world *world)
{
    for (size_t i = 0; i < HANDLERS_MAX; i++)
        handler_init(&world->database.handlers[i].row, handler_names[i]);
}

/* As HANDLER_SET does it. */
static bool set(struct world *world, struct db_handler *handler, const struct handler *to,
                const struct handler_effect *effect, int64_t now_ms)
{
    struct handler *row = &handler->row, before = *row;
    if (to->version != row->version)
        return false;
    *row = *to;
    row->version++;
    bool braked = handler_is_braked(row);
    row->held_at_ms = !row->hold ? 0 : row->hold == before.hold ? before.held_at_ms : now_ms;
    row->braked_at_ms = !braked ? 0 : before.braked_at_ms ? before.braked_at_ms : now_ms;
    row->trial_at_ms = effect->trial_in_ms < 0    ? before.trial_at_ms
                       : effect->trial_in_ms == 0 ? 0
                                                  : now_ms + effect->trial_in_ms;
    if (braked && !before.braked_at_ms && handler->time_count < DB_TIMES_MAX)
        handler->times[handler->time_count++] = (struct held_time){ now_ms, INT64_MAX };
    if (!braked && before.braked_at_ms)
        handler->times[handler->time_count - 1].until_ms = now_ms;
    if (effect->event)
        world_trace(world, "database", "handler %s: %s %s", row->name,
                    handler_event_name(effect->event),
                    row->hold ? handler_hold_name(row->hold) : "");
    return true;
}

/* --- what nodes ask ----------------------------------------------------------------------------
 */

static size_t index_of(const struct world *world, const struct node *node)
{
    return (size_t)(node - world->nodes);
}

static void note_counts(struct world *world, const struct request *request, int64_t now_ms)
{
    for (size_t i = 0; i < request->asked.count_count; i++) {
        const struct store_handler_count *count = &request->asked.counts[i];
        struct db_handler *handler = find(&world->database, count->handler);
        if (!handler || !count->says)
            continue;
        size_t node = index_of(world, request->node);
        handler->of[node].waiting = count->waiting;
        handler->of[node].served = count->served;
        handler->of[node].seen_at_ms = now_ms;
    }
}

static bool is_known(const struct request *request, const struct handler *row)
{
    for (size_t i = 0; i < request->asked.count_count; i++)
        if (strcmp(request->asked.counts[i].handler, row->name) == 0)
            return request->asked.counts[i].version == row->version;
    return false;
}

static bool nobody_waits(struct world *world, const struct db_handler *handler)
{
    for (size_t i = 0; i < world->database.saga_count; i++) {
        const struct db_saga *saga = &world->database.sagas[i];
        if (!saga->owner && saga->waiting_handler &&
            strcmp(saga->waiting_handler, handler->row.name) == 0)
            return false;
    }
    return true;
}

static void put_handler(struct world *world, struct request *request,
                        const struct db_handler *handler, int64_t now_ms)
{
    struct store_handler *to = &request->answer.stored[request->answer.stored_count++];
    to->row = handler->row;
    to->is_new = !is_known(request, &handler->row);
    to->drained = handler->row.release_rate_milli && nobody_waits(world, handler);
    for (size_t i = 0; i < world->node_count; i++) {
        bool lives = now_ms - handler->of[i].seen_at_ms < 5000 && &world->nodes[i] != request->node;
        to->others += lives && handler->of[i].served;
        to->drained = to->drained && !(lives && handler->of[i].waiting);
    }
    if (!to->is_new || !handler->time_count)
        return;
    to->times = rows_zeroed(handler->time_count, sizeof *to->times);
    to->time_count = handler->time_count;
    memcpy(to->times, handler->times, handler->time_count * sizeof *to->times);
}

static void note_change(struct world *world, const struct handler *before,
                        const struct handler *after, const struct handler_effect *effect)
{
    if (after->hold == HOLD_BREAKER && before->hold == HOLD_NONE)
        world_hit(world, HIT_BREAKER_TRIPPED);
    if (after->hold == HOLD_BREAKER && before->hold == HOLD_BREAKER && effect->trial_in_ms > 0)
        world_hit(world, HIT_BREAKER_TRIAL);
    if (after->hold == HOLD_NONE && before->hold == HOLD_BREAKER)
        world_hit(world, HIT_BREAKER_CLOSED);
    if (before->release_rate_milli && !after->release_rate_milli && !after->hold)
        world_hit(world, HIT_HANDLER_DRAINED);
}

void database_handlers(struct world *world, struct request *request, int64_t now_ms)
{
    struct store_op *answer = &request->answer;
    if (request->kind == STORE_HANDLERS) {
        note_counts(world, request, now_ms);
        answer->stored = rows_zeroed(HANDLERS_MAX, sizeof *answer->stored);
        for (size_t i = 0; i < HANDLERS_MAX; i++)
            if (world->database.handlers[i].row.version)
                put_handler(world, request, &world->database.handlers[i], now_ms);
        answer->result = STORE_OK;
        return;
    }
    const struct handler *to = request->asked.handler;
    struct db_handler *handler = find(&world->database, to->name);
    struct handler before = handler->row;
    bool first = set(world, handler, to, &request->asked.effect, now_ms);
    if (first)
        note_change(world, &before, &handler->row, &request->asked.effect);
    answer->result = first ? STORE_OK : STORE_LOST;
}

/* --- what a node knows -------------------------------------------------------------------------
 */

static struct known_handler *known_of(struct node *node, const char *name)
{
    for (size_t i = 0; i < HANDLERS_MAX; i++)
        if (strcmp(handler_names[i], name) == 0)
            return &node->knows[i];
    return NULL;
}

void handlers_told(struct node *node, const struct request *request)
{
    const struct store_op *answer = &request->answer;
    for (size_t i = 0; i < answer->stored_count; i++) {
        const struct handler *row = &answer->stored[i].row;
        struct known_handler *known = known_of(node, row->name);
        if (row->hold != known->hold)
            known->trials = 0;
        known->hold = row->hold;
        known->version = row->version;
    }
    if (request->kind == STORE_HANDLER && request->asked.handler->hold == HOLD_BREAKER &&
        !request->asked.effect.event && request->asked.effect.trial_in_ms > 0)
        known_of(node, request->asked.handler->name)->trials++;
}

/* NULL: of a probe it depends on what it asks about. */
static const struct operation_rule *rule_of(struct world *world, const struct request *request,
                                            const struct journal_entry *lease)
{
    const struct definition *definition =
        definitions_find(&world->definitions, request->row.definition);
    return lease->operation == OPERATION_PROBE
               ? NULL
               : definition_rule(definition, (size_t)lease->step, lease->operation);
}

void handlers_submit(struct world *world, struct node *node, const struct request *request)
{
    for (size_t i = 0; request->transition.append_seq && i < request->transition.append_count;
         i++) {
        const struct journal_entry *entry = &request->entries[i];
        const struct operation_rule *rule =
            entry->kind == ENTRY_LEASE ? rule_of(world, request, entry) : NULL;
        if (!rule)
            continue;
        const struct known_handler *known = known_of(node, rule->handler);
        if (known->hold == HOLD_PERSON || (known->hold == HOLD_BREAKER && !known->trials))
            world_violate(world, INV_HELD, "%s grants %s of %s, which it knows to be held",
                          node->name, rule->handler, request->row.saga_id);
        if (entry->held_ms)
            world_hit(world, HIT_WAITED_WHILE_HELD);
    }
}

/* --- people ------------------------------------------------------------------------------------
 */

static void change(struct world *world, struct db_handler *handler,
                   const struct handler_change *what)
{
    struct handler next = handler->row;
    struct handler_effect effect;
    if (handler_apply(&next, what, &effect))
        (void)set(world, handler, &next, &effect, db_clock_ms(world->now_ms)); /* no one between */
}

void handlers_befall(struct world *world)
{
    struct db_handler *handler = &world->database.handlers[world_choice(world, HANDLERS_MAX)];
    if (world_fault(world, FAULT_HANDLER_HELD))
        change(world, handler, &(struct handler_change){ .kind = HANDLER_HOLD });
    if (world_fault(world, FAULT_HANDLER_RELEASED))
        change(world, handler, &(struct handler_change){ .kind = HANDLER_RELEASE });
    if (world_fault(world, FAULT_HANDLER_GRADUAL))
        change(world, handler,
               &(struct handler_change){ .kind = HANDLER_RELEASE,
                                         .rate_milli = world_between(world, 50, 5000) });
    if (world_fault(world, FAULT_HANDLER_LIMITED))
        change(world, handler,
               &(struct handler_change){ .kind = HANDLER_LIMIT,
                                         .rate_milli = world_between(world, 0, 5000),
                                         .cap = (int32_t)world_between(world, 0, 2) });
}

void handlers_calm(struct world *world)
{
    for (size_t i = 0; i < HANDLERS_MAX; i++) {
        struct db_handler *handler = &world->database.handlers[i];
        change(world, handler, &(struct handler_change){ .kind = HANDLER_RELEASE });
        if (handler->row.version)
            change(world, handler, &(struct handler_change){ .kind = HANDLER_LIMIT });
    }
}
