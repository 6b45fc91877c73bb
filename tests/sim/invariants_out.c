/* What leaves an engine, judged against the rows of that moment; and the end of a world. */
#include "base/sha256.h"
#include "sim/invariants_internal.h"

#include <inttypes.h>
#include <string.h>

enum {
    DRIFT_SLACK_MS = 50,     /* a drifting clock, over a minute */
    LEASE_SLACK_MS = 3,      /* times are cut to milliseconds, three of them */
    IN_DOUBT_MS = 10 * 1000, /* how far a node's idea of the database's clock may be off */
};

static struct journal_entry *lease_of(struct world *world, const struct uuid *uid, int64_t fence,
                                      struct db_saga **ret_saga)
{
    struct db_saga *saga = database_saga(&world->database, uid);
    struct journal_entry *entry = saga ? database_entry(saga, fence_seq(fence)) : NULL;
    *ret_saga = saga;
    return entry && entry->kind == ENTRY_LEASE && entry->fence == fence ? entry : NULL;
}

static void check_copy(struct world *world, const struct node *node, const struct db_saga *saga)
{
    uint64_t loaded_on = saga->loaded_on[node - world->nodes];
    if (loaded_on != node->store.generation)
        world_violate(world, INV_COPY,
                      "%s decides about %s on connection %" PRIu64
                      " from a copy of connection %" PRIu64,
                      node->name, saga->row.saga_id, node->store.generation, loaded_on);
}

void invariants_submit(struct world *world, struct node *node, const struct request *request)
{
    const struct db_saga *saga = database_saga(&world->database, &request->uid);
    handlers_submit(world, node, request);
    if (saga && (request->kind == STORE_TRANSITION || request->kind == STORE_EXTEND))
        check_copy(world, node, saga);
    if (request->kind != STORE_TRANSITION || !request->transition.only_if_expired)
        return;
    int64_t since = node->store.connected_at_ms;
    if (saga && saga->taken_at_ms[node - world->nodes] > since)
        since = saga->taken_at_ms[node - world->nodes];
    if (world->now_ms - since < ENGINE_GRACE_MS - DRIFT_SLACK_MS)
        world_violate(world, INV_EXPIRY,
                      "%s ends a lease of %s as expired %" PRId64
                      " ms after it came, within the grace",
                      node->name, request->row.saga_id, world->now_ms - since);
}

/* --- workers ---------------------------------------------------------------------------------- */

static void check_time(struct world *world, const struct node *node, const struct db_saga *saga,
                       const struct journal_entry *lease, int64_t lease_ms)
{
    int64_t left = lease->lease_until_ms - db_clock_ms(world->now_ms);
    if (lease->outcome == OUTCOME_NONE && lease_ms > left + LEASE_SLACK_MS)
        world_violate(world, INV_LEASE_TIME,
                      "%s says %" PRId64 " ms of %s #%" PRId64 ", %" PRId64 " are left", node->name,
                      lease_ms, saga->row.saga_id, lease->seq, left);
}

/* The key that the third party knows an attempt by. */
static void check_key(struct world *world, struct db_saga *saga, const struct journal_entry *lease,
                      const char *key)
{
    int side = invariants_side(saga, lease);
    const struct definition *definition =
        definitions_find(&world->definitions, saga->row.definition);
    const struct operation_rule *rule = definition_rule(
        definition, (size_t)lease->step, side ? OPERATION_COMPENSATION : OPERATION_ACTION);
    int generation =
        rule->fresh_key ? invariants_generation(saga, lease->step, side, lease->seq) : 0;
    const char **keys = saga->judged.of[lease->step][side].keys;
    if (generation >= KEYS_SEEN_MAX)
        return;
    if (!keys[generation])
        keys[generation] = world_text(world, key);
    for (int i = 0; i < KEYS_SEEN_MAX; i++)
        if (keys[i] && (strcmp(keys[i], key) == 0) != (i == generation))
            world_violate(world, INV_KEY, "%s #%" PRId64 " of generation %d has the key %s, %s",
                          saga->row.saga_id, lease->seq, generation, key,
                          i == generation ? "not that of the others" : "as an earlier one had");
}

void invariants_task(struct world *world, struct node *node, const char *worker,
                     const struct engine_task *task)
{
    struct db_saga *saga;
    const struct saga_row *row = saga_row(task->saga);
    const struct journal_entry *sent = task->view.lease;
    const struct journal_entry *lease = lease_of(world, &row->uid, sent->fence, &saga);
    if (!lease || strcmp(lease->worker, worker) != 0 || lease->step != sent->step ||
        lease->operation != sent->operation) {
        world_violate(world, INV_TASK, "%s sends %s #%" PRId64 " to %s, and the database holds %s",
                      node->name, row->saga_id, sent->seq, worker,
                      lease ? lease->worker : "no such lease");
        return;
    }
    check_time(world, node, saga, lease, task->lease_ms);
    int64_t left = lease->attempt_until_ms - db_clock_ms(world->now_ms);
    if (task->attempt_ms > left + LEASE_SLACK_MS)
        world_violate(world, INV_LEASE_TIME,
                      "%s gives %s #%" PRId64 " %" PRId64 " ms for its attempt, %" PRId64
                      " are left",
                      node->name, saga->row.saga_id, lease->seq, task->attempt_ms, left);
    check_key(world, saga, lease, task->idempotency_key);
}

static bool is_recorded(const struct db_saga *saga, const struct journal_entry *lease,
                        enum outcome outcome)
{
    if (lease->outcome == outcome)
        return true;
    for (size_t i = 0; i < saga->count; i++)
        if (saga->entries[i].kind == ENTRY_LATE_REPORT && saga->entries[i].about == lease->seq &&
            saga->entries[i].outcome == outcome)
            return true;
    return false;
}

static bool pivot_is_done(const struct world *world, const struct db_saga *saga)
{
    const struct definition *definition =
        definitions_find(&world->definitions, saga->row.definition);
    return definition->pivot >= 0 && saga->judged.of[definition->pivot][0].done;
}

/* Before the saga began: then nothing turns back until it is known. */
static bool pivot_may_have_run(const struct world *world, const struct db_saga *saga)
{
    const struct definition *definition =
        definitions_find(&world->definitions, saga->row.definition);
    return definition->pivot >= 0 && saga->judged.suspect &&
           saga->judged.of[definition->pivot][0].unsettled > 0;
}

static bool has_turned_back(const struct db_saga *saga)
{
    for (size_t i = 0; i < saga->count; i++)
        if (saga->entries[i].kind == ENTRY_COMPENSATE)
            return true;
    return false;
}

void invariants_ack(struct world *world, struct node *node, const struct engine_lease_ack *ack,
                    enum outcome outcome)
{
    struct db_saga *saga;
    const struct journal_entry *lease = lease_of(world, &ack->uid, ack->fence, &saga);
    const char *id = saga ? saga->row.saga_id : "an unknown saga";
    int64_t seq = fence_seq(ack->fence);
    if (outcome == OUTCOME_NONE) {
        world_violate(world, INV_ACK, "%s acknowledges a report of %s #%" PRId64 " that never came",
                      node->name, id, seq);
        return;
    }
    if (ack->ack == ENGINE_ACK_STALE) {
        world_hit(world, HIT_ACK_STALE);
        if (lease && lease->outcome == OUTCOME_NONE)
            world_violate(world, INV_STALE, "%s calls the holder of %s #%" PRId64 " stale",
                          node->name, id, seq);
        return;
    }
    world_hit(world, ack->ack == ENGINE_ACK_ACCEPTED ? HIT_ACK_ACCEPTED : HIT_ACK_DUPLICATE);
    bool word_of_probe = outcome == OUTCOME_NOT_DONE || outcome == OUTCOME_STILL_UNKNOWN;
    if (lease && lease->operation != OPERATION_PROBE && word_of_probe)
        outcome = OUTCOME_UNKNOWN;
    if (!lease || !is_recorded(saga, lease, outcome))
        world_violate(world, INV_ACK, "%s acknowledges %s of %s #%" PRId64 ", the database has %s",
                      node->name, outcome_name(outcome), id, seq,
                      !lease           ? "no such lease"
                      : lease->outcome ? outcome_name(lease->outcome)
                                       : "no outcome");
    else if (outcome == OUTCOME_REJECTED && lease->operation == OPERATION_ACTION &&
             lease->outcome == outcome && !has_turned_back(saga) && !pivot_is_done(world, saga) &&
             !pivot_may_have_run(world, saga))
        world_violate(world, INV_ACK,
                      "%s acknowledges the refusal of %s #%" PRId64 ", and it has not turned back",
                      node->name, id, seq);
}

void invariants_extended(struct world *world, struct node *node,
                         const struct engine_lease_extended *extended)
{
    struct db_saga *saga;
    const struct journal_entry *lease = lease_of(world, &extended->uid, extended->fence, &saga);
    if (extended->lease_ms > 0 && lease)
        check_time(world, node, saga, lease, extended->lease_ms);
    else if (extended->lease_ms == 0 && lease && lease->outcome == OUTCOME_NONE &&
             lease->lease_until_ms > db_clock_ms(world->now_ms) &&
             world->now_ms - saga->extended_at_ms > IN_DOUBT_MS)
        world_violate(world, INV_STALE, "%s says that %s #%" PRId64 " is lost, and it is live",
                      node->name, saga->row.saga_id, lease->seq);
}

/* --- clients ---------------------------------------------------------------------------------- */

void invariants_start(struct world *world, const struct start_item *item)
{
    const struct db_key *key =
        database_key(&world->database, item->namespace_, item->definition, item->saga_id);
    struct sha256_part part = { item->input.data, item->input.size };
    uint8_t digest[32];
    if (sha256(&part, 1, digest)) {
        world_violate(world, INV_ENGINE, "sha256: out of memory");
        return;
    }
    bool same = key && memcmp(key->key.input_digest, digest, sizeof digest) == 0;
    if (item->err.code == ERR_OK &&
        (!same || memcmp(&key->key.uid, &item->uid, sizeof item->uid) != 0 ||
         !database_saga(&world->database, &item->uid)))
        world_violate(world, INV_START, "the start of %s is acknowledged, and the key has %s",
                      item->saga_id,
                      !key   ? "no row"
                      : same ? "another saga"
                             : "another input");
    const struct db_saga *saga = same ? database_saga(&world->database, &item->uid) : NULL;
    if (item->err.code == ERR_OK && saga && saga->judged.suspect != item->suspect)
        world_violate(world, INV_SUSPECT, "the start of %s says that it %s", item->saga_id,
                      item->suspect ? "takes over, and it did not" : "is new, and it took over");
    if (item->err.code == ERR_EXISTS && (!key || same))
        world_violate(world, INV_START, "%s is refused as taken by other input, and it is %s",
                      item->saga_id, key ? "the same" : "free");
}

/* Was it so at any time since then? */
static bool was(const struct db_saga *saga, int64_t since_ms, enum saga_state state,
                enum saga_state phase)
{
    for (const struct db_state *at = saga->states; at; at = at->before) {
        if (at->state == state && at->phase == phase)
            return true;
        if (at->since_ms < since_ms)
            break;
    }
    return false;
}

static void check_refusal(struct world *world, const struct engine_verb *verb,
                          const struct db_saga *saga, int64_t invoked_ms)
{
    if (verb->err.code == ERR_NOT_FOUND) {
        const struct db_state *first = saga->states;
        while (first && first->before)
            first = first->before;
        if (first && first->since_ms < invoked_ms)
            world_violate(world, INV_CALL, "%s is not found, and is there", saga->row.saga_id);
    } else if (verb->err.code == ERR_PRECONDITION && verb->verb == ENGINE_VERB_CANCEL) {
        if (!was(saga, invoked_ms, SAGA_SUCCEEDED, SAGA_SUCCEEDED) &&
            !was(saga, invoked_ms, SAGA_ABANDONED, SAGA_ABANDONED) &&
            !was(saga, invoked_ms, SAGA_PARKED, SAGA_COMPENSATING) && !pivot_is_done(world, saga))
            world_violate(world, INV_CALL, "a cancel of %s is refused: %s", saga->row.saga_id,
                          verb->err.msg);
    }
}

/* reason NULL: any. */
static bool has_entry(const struct db_saga *saga, enum entry_kind kind, const char *reason)
{
    for (size_t i = 0; i < saga->count; i++)
        if (saga->entries[i].kind == kind &&
            (!reason || (saga->entries[i].error_message &&
                         strcmp(saga->entries[i].error_message, reason) == 0)))
            return true;
    return false;
}

/* For what becomes of the pivot, or did. */
static bool cancel_waits(const struct db_saga *saga)
{
    for (size_t i = 0; i < saga->count; i++)
        if (saga->entries[i].kind == ENTRY_PENDING && saga->entries[i].reason == CAUSE_CANCELLED)
            return true;
    return false;
}

static bool was_parked(const struct db_saga *saga, int64_t since_ms)
{
    return was(saga, since_ms, SAGA_PARKED, SAGA_RUNNING) ||
           was(saga, since_ms, SAGA_PARKED, SAGA_COMPENSATING);
}

/* Is what the call was answered so? */
static bool is_so(const struct world *world, const struct engine_verb *verb,
                  const struct db_saga *saga, const char *reason, int64_t invoked_ms)
{
    switch (verb->verb) {
    case ENGINE_VERB_CANCEL:
        return has_turned_back(saga) || cancel_waits(saga);
    case ENGINE_VERB_RETRY:
        return has_entry(saga, ENTRY_RETRY, reason);
    case ENGINE_VERB_RESOLVE:
        return has_entry(saga, ENTRY_RESOLVE, reason);
    case ENGINE_VERB_SKIP:
        return has_entry(saga, ENTRY_SKIP, reason);
    case ENGINE_VERB_ABANDON:
        return saga->row.state == SAGA_ABANDONED;
    case ENGINE_VERB_SUSPEND: /* or it was so already */
        return has_entry(saga, ENTRY_PARK, reason) || was_parked(saga, invoked_ms);
    case ENGINE_VERB_RESUME:
        return has_entry(saga, ENTRY_RESUME, reason) ||
               was(saga, invoked_ms, SAGA_RUNNING, SAGA_RUNNING) ||
               was(saga, invoked_ms, SAGA_COMPENSATING, SAGA_COMPENSATING);
    case ENGINE_VERB_SIGNAL:
        return has_entry(saga, ENTRY_SIGNAL, reason);
    case ENGINE_VERB_OPTIONS: /* or it had them already, by another call: its definition never does
                               */
        return has_entry(saga, ENTRY_OPTIONS, reason) || has_entry(saga, ENTRY_OPTIONS, NULL);
    case ENGINE_VERB_WAIT:
        break;
    }
    return world->now_ms - invoked_ms >= verb->timeout_ms - DRIFT_SLACK_MS ||
           saga_state_is_terminal(saga->row.state) ||
           (verb->or_parked && was_parked(saga, invoked_ms));
}

void invariants_verb(struct world *world, const struct engine_verb *verb, const char *reason,
                     int64_t invoked_ms)
{
    const struct db_key *key =
        database_key(&world->database, verb->namespace_, verb->definition, verb->saga_id);
    const struct db_saga *saga = key ? database_saga(&world->database, &key->key.uid) : NULL;
    if (!saga) {
        if (verb->err.code == ERR_OK)
            world_violate(world, INV_CALL, "a call for %s is answered, and it is not there",
                          verb->saga_id);
        return;
    }
    if (verb->err.code != ERR_OK) {
        check_refusal(world, verb, saga, invoked_ms);
        return;
    }
    if (!is_so(world, verb, saga, reason, invoked_ms))
        world_violate(world, INV_CALL, "%s (verb %d) of %s is answered OK, and it is %s", reason,
                      (int)verb->verb, saga->row.saga_id, saga_state_name(saga->row.state));
}

/* --- engines ---------------------------------------------------------------------------------- */

void invariants_turn(struct world *world, struct node *node)
{
    const struct engine_counters *counters = engine_counters(node->engine);
    long long failed = atomic_load(&counters->operations_failed);
    if (failed > (long long)node->store.failed_writes)
        world_violate(world, INV_ENGINE, "%s counts %lld failed operations, the database %" PRIu64,
                      node->name, failed, node->store.failed_writes);
}

/* --- the end ---------------------------------------------------------------------------------- */

/* May the participant's books hold so many effects of a step, when the saga has ended so? */
static bool is_right(const struct db_saga *saga, const struct step_rule *rule, int step, int net)
{
    const struct judged *judged = &saga->judged;
    const struct judged_operation *action = &judged->of[step][0], *undo = &judged->of[step][1];
    if (saga->row.state == SAGA_SUCCEEDED) {
        if (judged->passed[step] && action->unsettled > 0) /* unconfirmed, and nobody looked */
            return net <= 1 && saga->row.doubt;
        return net == (judged->passed[step] && !action->done ? 0 : 1);
    }
    if (saga->row.state == SAGA_ABANDONED || !rule->has_compensation)
        return true;
    if (judged->skipped[step])
        return net <= 1 && (saga->row.doubt || !undo->doubt);
    return net == 0;
}

static void check_net(struct world *world, const struct db_saga *saga)
{
    const struct definition *definition =
        definitions_find(&world->definitions, saga->row.definition);
    struct subject *subject = participant_subject(world, saga->row.definition, saga->row.saga_id);
    for (size_t i = 0; i < definition->step_count; i++) {
        const struct side_effect *effect = &subject->effects[i];
        if (!effect->foreign && !effect->misled &&
            !is_right(saga, &definition->steps[i], (int)i, effect->net))
            world_violate(world, INV_NET, "%s is %s%s, and %d effects of step %s are there",
                          saga->row.saga_id, saga_state_name(saga->row.state),
                          saga->row.doubt ? " in doubt" : "", effect->net,
                          definition->steps[i].name);
    }
}

static void check_memory(struct world *world, const struct node *node, long long open)
{
    const struct engine_counters *counters = engine_counters(node->engine);
    long long resident = atomic_load(&counters->sagas_resident);
    if (resident > open)
        world_violate(world, INV_ENGINE, "%s keeps %lld sagas, and %lld have not ended", node->name,
                      resident, open);
}

void invariants_end(struct world *world)
{
    long long open = 0;
    for (size_t i = 0; i < world->database.saga_count; i++) {
        const struct db_saga *saga = &world->database.sagas[i];
        if (saga_state_is_terminal(saga->row.state))
            check_net(world, saga);
        else
            open++;
    }
    for (size_t i = 0; i < world->node_count; i++)
        if (world->nodes[i].engine)
            check_memory(world, &world->nodes[i], open);
}
