/* What the statements of store/statements.c do, each by its name there. */
#include "sim/database_internal.h"
#include "sim/rows.h"
#include "sim/world.h"

#include <string.h>

/* --- parts of statements ---------------------------------------------------------------------- */

/* INSERT INTO journal ... ON CONFLICT DO NOTHING; false: the position is taken. */
static bool insert(struct world *world, struct db_saga *saga, const struct request *request,
                   size_t index, int64_t now_ms)
{
    const struct transition *t = &request->transition;
    struct journal_entry entry = rows_entry(world, &request->entries[index]);
    if (database_entry(saga, entry.seq) && !world_mutated(world, MUTATION_NO_POSITION_CHECK))
        return false;
    if (entry.kind == ENTRY_LEASE) {
        entry.leased_at_ms = now_ms;
        entry.attempt_until_ms = now_ms + t->attempt_timeout_ms;
        if (t->send_before_ms && t->send_before_ms < entry.attempt_until_ms)
            entry.attempt_until_ms = t->send_before_ms;
        entry.lease_until_ms = now_ms + t->lease_ms;
        if (entry.lease_until_ms > entry.attempt_until_ms)
            entry.lease_until_ms = entry.attempt_until_ms;
        entry.outcome = OUTCOME_NONE;
        entry.actor = rows_text(world, request->granter);
    } else {
        entry.finished_at_ms = now_ms;
        if (entry.leased_at_ms > now_ms) /* SUSPECT */
            entry.leased_at_ms = now_ms;
    }
    if (saga->count == saga->capacity) {
        size_t capacity = saga->capacity ? saga->capacity * 2 : 16;
        struct journal_entry *entries = world_alloc(world, capacity * sizeof *entries);
        if (saga->count)
            memcpy(entries, saga->entries, saga->count * sizeof *entries);
        saga->entries = entries;
        saga->capacity = capacity;
    }
    size_t at = saga->count++;
    for (; at > 0 && saga->entries[at - 1].seq > entry.seq; at--)
        saga->entries[at] = saga->entries[at - 1];
    saga->entries[at] = entry;
    return true;
}

/* ... WHERE outcome IS NULL AND (NOT only_if_expired OR lease_until < now()) */
static struct journal_entry *finishable(struct world *world, struct db_saga *saga,
                                        const struct request *request, int64_t now_ms)
{
    const struct transition *t = &request->transition;
    struct journal_entry *entry = database_entry(saga, t->finish_seq);
    if (!entry)
        return NULL;
    if (entry->outcome != OUTCOME_NONE && !world_mutated(world, MUTATION_OUTCOME_OVERWRITTEN))
        return NULL;
    if (t->only_if_expired && entry->lease_until_ms >= now_ms &&
        !world_mutated(world, MUTATION_EXPIRY_UNCHECKED))
        return NULL;
    return entry;
}

static void finish(struct world *world, struct journal_entry *entry, const struct request *request,
                   int64_t now_ms)
{
    const struct journal_entry *fact = &request->finish;
    int64_t retry_in_ms = request->transition.retry_in_ms;
    entry->outcome = fact->outcome;
    entry->finished_at_ms = now_ms;
    entry->retry_at_ms = retry_in_ms >= 0 ? now_ms + retry_in_ms : 0;
    entry->output = rows_bytes(world, &fact->output);
    entry->error_code = rows_text(world, fact->error_code);
    entry->error_message = rows_text(world, fact->error_message);
}

static void key_end(struct world *world, const struct db_saga *saga)
{
    struct database *database = &world->database;
    for (size_t i = 0; i < database->key_count; i++) {
        struct store_key *key = &database->keys[i].key;
        if (memcmp(&key->uid, &saga->row.uid, sizeof key->uid) == 0) {
            key->ended = true;
            key->final_state = saga->row.state;
        }
    }
}

static void note_state(struct world *world, struct db_saga *saga)
{
    struct db_state *last = saga->states;
    if (last && last->state == saga->row.state && last->phase == saga->row.phase)
        return;
    struct db_state *state = world_alloc(world, sizeof *state);
    *state = (struct db_state){ last, world->now_ms, saga->row.state, saga->row.phase };
    saga->states = state;
}

/* UPDATE saga ... */
static void set_row(struct world *world, struct db_saga *saga, const struct request *request,
                    int64_t now_ms)
{
    const struct saga_row *row = &request->row;
    saga->row.state = row->state;
    saga->row.phase = row->phase;
    saga->row.doubt = row->doubt;
    saga->row.park_reason = row->park_reason;
    saga->row.park_step = row->park_step;
    saga->row.park_code = rows_text(world, row->park_code);
    saga->row.park_message = rows_text(world, row->park_message);
    saga->row.updated_at_ms = now_ms;
    if (request->transition.sets_deadline)
        saga->row.deadline_at_ms = row->deadline_at_ms;
    if (!request->transition.ends)
        return;
    saga->row.ended_at_ms = now_ms;
    key_end(world, saga);
}

/* --- the statements --------------------------------------------------------------------------- */

static bool stmt_grant(struct world *world, struct db_saga *saga, struct request *request,
                       int64_t now_ms)
{
    return insert(world, saga, request, 0, now_ms);
}

static bool stmt_finish(struct world *world, struct db_saga *saga, struct request *request,
                        int64_t now_ms)
{
    struct journal_entry *entry = finishable(world, saga, request, now_ms);
    if (entry)
        finish(world, entry, request, now_ms);
    return entry != NULL;
}

static bool stmt_finish_grant(struct world *world, struct db_saga *saga, struct request *request,
                              int64_t now_ms)
{
    if (!stmt_finish(world, saga, request, now_ms))
        return false;
    request->half = !insert(world, saga, request, 0, now_ms);
    return !request->half;
}

static bool stmt_finish_end(struct world *world, struct db_saga *saga, struct request *request,
                            int64_t now_ms)
{
    const struct transition *t = &request->transition;
    if (!stmt_finish(world, saga, request, now_ms))
        return false;
    request->half = saga->row.state != t->state_from || saga->row.phase != t->state_from;
    if (request->half)
        return false;
    saga->row.state = saga->row.phase = request->row.state;
    saga->row.updated_at_ms = saga->row.ended_at_ms = now_ms;
    key_end(world, saga);
    return true;
}

static bool stmt_phase(struct world *world, struct db_saga *saga, struct request *request,
                       int64_t now_ms)
{
    const struct transition *t = &request->transition;
    enum saga_state state = t->changes_row ? t->state_from : request->row.state;
    enum saga_state phase = t->changes_row ? t->phase_from : request->row.phase;
    struct journal_entry *entry = NULL;
    if (t->finishes && !(entry = finishable(world, saga, request, now_ms)))
        return false;
    if (t->finishes && world_mutated(world, MUTATION_REFUSAL_ALONE)) { /* a commit of its own */
        finish(world, entry, request, now_ms);
        invariants_commit(world, saga, request, now_ms);
    }
    if ((saga->row.state != state || saga->row.phase != phase) &&
        !world_mutated(world, MUTATION_NO_ROW_LOCK))
        return false;
    bool first = insert(world, saga, request, 0, now_ms);
    if (!first && !world_mutated(world, MUTATION_REST_WITHOUT_FIRST))
        return false;
    for (size_t i = 1; i < t->append_count; i++)
        (void)insert(world, saga, request, i, now_ms); /* behind the first: its place is free */
    if (!first)
        return false;
    if (t->finishes)
        finish(world, database_entry(saga, t->finish_seq), request, now_ms);
    if (t->changes_row) { /* who changes the state owns the saga */
        set_row(world, saga, request, now_ms);
        saga->owner = request->node_name;
        saga->wake_at_ms = 0;
        saga->waiting_handler = NULL;
    }
    return true;
}

static bool stmt_late(struct db_saga *saga, const struct request *request, int64_t now_ms)
{
    saga->late_rows++;
    if (request->transition.late.effect && !saga->row.doubt) {
        saga->row.doubt = true;
        saga->row.updated_at_ms = now_ms;
    }
    return true;
}

static bool stmt_extend(const struct world *world, struct db_saga *saga,
                        const struct request *request, int64_t now_ms)
{
    struct journal_entry *entry = database_entry(saga, request->seq);
    if (!entry || entry->kind != ENTRY_LEASE || entry->outcome != OUTCOME_NONE)
        return false;
    int64_t until = now_ms + request->lease_ms;
    if (until > entry->attempt_until_ms)
        until = entry->attempt_until_ms;
    if (until > entry->lease_until_ms)
        entry->lease_until_ms = until;
    saga->extended_at_ms = world->now_ms;
    return true;
}

/* As store/write.c chooses it. */
static bool transition(struct world *world, struct db_saga *saga, struct request *request,
                       int64_t now_ms)
{
    const struct transition *t = &request->transition;
    bool appends = t->append_seq != 0 && t->append_count > 0;
    bool grants_only = t->append_count == 1 && request->entries[0].kind == ENTRY_LEASE;
    if (t->late_row)
        return stmt_late(saga, request, now_ms);
    if (appends && !t->changes_row && grants_only)
        return t->finishes ? stmt_finish_grant(world, saga, request, now_ms)
                           : stmt_grant(world, saga, request, now_ms);
    if (appends)
        return stmt_phase(world, saga, request, now_ms);
    if (t->changes_row)
        return stmt_finish_end(world, saga, request, now_ms);
    request->answer.not_owner = request->asked.asks_owner && !request_is_owner(saga, request);
    return stmt_finish(world, saga, request, now_ms);
}

static void stmt_start(struct world *world, struct request *request, int64_t now_ms,
                       struct db_saga **ret_saga)
{
    struct database *database = &world->database;
    const struct saga_row *row = &request->row;
    const struct db_key *known =
        database_key(database, row->namespace_, row->definition, row->saga_id);
    if (known) {
        world_trace(world, "database", "%s: a start by %s finds it there", row->saga_id,
                    request->node_name);
        request->answer.result = STORE_EXISTS;
        request->answer.key = known->key;
        return;
    }
    if (database->saga_count == DB_SAGAS_MAX) {
        world_violate(world, INV_ENGINE, "more sagas than the simulator has room for");
        return;
    }
    struct db_key *key = &database->keys[database->key_count++];
    key->namespace_ = row->namespace_;
    key->definition = row->definition;
    key->saga_id = row->saga_id;
    key->key.uid = row->uid;
    key->key.run = row->run;
    memcpy(key->key.input_digest, request->input_digest, sizeof request->input_digest);
    struct db_saga *saga = &database->sagas[database->saga_count++];
    saga->row = rows_row(world, row);
    saga->row.started_at_ms = saga->row.updated_at_ms = now_ms;
    int64_t start_at_ms = row->start_at_ms > now_ms ? row->start_at_ms : now_ms;
    saga->row.deadline_at_ms = request->deadline_ms > 0 ? start_at_ms + request->deadline_ms : 0;
    saga->owner = request->node_name;
    if (request->transition.append_seq)
        (void)insert(world, saga, request, 0, now_ms); /* the first of its journal */
    request->answer.result = STORE_OK;
    *ret_saga = saga;
}

static const char *reason_of(const struct journal_entry *entry)
{
    if (entry->kind == ENTRY_COMPENSATE)
        return cause_name((enum cause)entry->reason);
    if (entry->kind == ENTRY_PARK)
        return park_reason_name((enum park_reason)entry->reason);
    return entry->kind == ENTRY_LATE_REPORT ? outcome_name(entry->outcome) : "";
}

static void trace_entry(struct world *world, const struct db_saga *saga,
                        const struct journal_entry *entry, bool finished)
{
    const struct definition *definition =
        definitions_find(&world->definitions, saga->row.definition);
    const char *step = entry->step >= 0 ? definition->steps[entry->step].name : "";
    if (entry->kind == ENTRY_LEASE && !finished)
        world_trace(world, "database", "%s #%d %s %s try %d leased to %s for %d ms",
                    saga->row.saga_id, (int)entry->seq, step, operation_name(entry->operation),
                    entry->try_, entry->worker, (int)(entry->lease_until_ms - entry->leased_at_ms));
    else if (entry->kind == ENTRY_LEASE)
        world_trace(world, "database", "%s #%d %s %s ended %s%s%s", saga->row.saga_id,
                    (int)entry->seq, step, operation_name(entry->operation),
                    outcome_name(entry->outcome), entry->error_code ? " " : "",
                    entry->error_code ? entry->error_code : "");
    else if (entry->kind == ENTRY_RESOLVE)
        world_trace(world, "database", "%s #%d RESOLVE %s %s %s", saga->row.saga_id,
                    (int)entry->seq, step, operation_name(entry->operation),
                    outcome_name(entry->outcome));
    else
        world_trace(world, "database", "%s #%d %s%s%s%s%s", saga->row.saga_id, (int)entry->seq,
                    entry_kind_name(entry->kind), step[0] ? " " : "", step,
                    reason_of(entry)[0] ? " " : "", reason_of(entry));
}

static void trace_write(struct world *world, const struct db_saga *saga,
                        const struct request *request)
{
    const struct transition *t = &request->transition;
    if (request->kind == STORE_START)
        world_trace(world, "database", "%s started, owned by %s", saga->row.saga_id, saga->owner);
    if (request->kind == STORE_EXTEND)
        world_trace(world, "database", "%s #%d extended", saga->row.saga_id, (int)request->seq);
    if (t->finishes)
        trace_entry(world, saga, &request->finish, true);
    for (size_t i = 0; t->append_seq && !request->half && i < t->append_count; i++) {
        const struct journal_entry *entry =
            database_entry((struct db_saga *)saga, request->entries[i].seq);
        trace_entry(world, saga, entry, false);
    }
    if (t->changes_row && !request->half)
        world_trace(world, "database", "%s is %s%s%s", saga->row.saga_id,
                    saga_state_name(saga->row.state), saga->row.doubt ? ", doubt" : "",
                    saga->row.state == SAGA_PARKED && saga->row.phase == SAGA_COMPENSATING
                        ? " in COMPENSATING"
                        : "");
    if (t->late_row)
        world_trace(world, "database", "%s late report of #%d: %s", saga->row.saga_id,
                    (int)fence_seq(t->late.fence), outcome_name(t->late.outcome));
}

void database_write(struct world *world, struct request *request, int64_t now_ms,
                    struct db_saga **ret_saga)
{
    struct db_saga *saga = NULL;
    if (request->kind == STORE_START) {
        stmt_start(world, request, now_ms, &saga);
    } else {
        saga = database_saga(&world->database, &request->uid);
        bool applied =
            saga && (request->kind == STORE_EXTEND ? stmt_extend(world, saga, request, now_ms)
                                                   : transition(world, saga, request, now_ms));
        request->answer.result = applied ? STORE_OK : STORE_LOST;
        if (!applied) {
            world_trace(world, "database", "%s: a decision of %s lost%s",
                        saga ? saga->row.saga_id : "?", request->node_name,
                        request->half ? " its second half" : "");
            world_hit(world, request->half ? HIT_RESULT_HALF : HIT_RESULT_LOST);
        }
        if (applied || request->half)
            trace_write(world, saga, request);
    }
    if (request->kind == STORE_START && saga)
        trace_write(world, saga, request);
    if (saga)
        note_state(world, saga);
    *ret_saga = saga;
}
