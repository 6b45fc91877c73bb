/* After each commit: what the rows say, judged without the core. */
#include "sim/invariants_internal.h"

#include <inttypes.h>

struct invariant_row {
    const char *name, *promise, *text;
};
#define INVARIANT_ROW(name, promise, text) { #name, promise, text },
static const struct invariant_row rows[INVARIANT_COUNT] = { INVARIANTS(INVARIANT_ROW) };

const char *invariant_name(enum invariant invariant)
{
    return rows[invariant].name;
}

const char *invariant_promise(enum invariant invariant)
{
    return rows[invariant].promise;
}

const char *invariant_text(enum invariant invariant)
{
    return rows[invariant].text;
}

static const char *id_of(const struct look *look)
{
    return look->saga->row.saga_id;
}

static const struct step_rule *step_of(const struct look *look, int step)
{
    return &look->definition->steps[step];
}

int invariants_side(const struct db_saga *saga, const struct journal_entry *entry)
{
    if (entry->operation != OPERATION_PROBE)
        return entry->operation == OPERATION_COMPENSATION;
    for (size_t i = 0; i < saga->count; i++) {
        const struct journal_entry *other = &saga->entries[i];
        if (other->kind == ENTRY_LEASE && other->seq < entry->seq && other->step == entry->step &&
            other->operation == OPERATION_COMPENSATION)
            return 1;
    }
    return 0;
}

/* Once a compensation was granted, the action counts as maybe whatever is found out. */
int invariants_generation(const struct db_saga *saga, int step, int side, int64_t before_seq)
{
    int count = 0;
    for (size_t i = 0; i < saga->count; i++) {
        const struct journal_entry *entry = &saga->entries[i];
        if (entry->seq >= before_seq || entry->step != step)
            continue;
        if (!side && entry->kind == ENTRY_LEASE && entry->operation == OPERATION_COMPENSATION)
            return count;
        count += entry->kind == ENTRY_RESOLVE && entry->outcome == OUTCOME_NOT_DONE &&
                 (entry->operation == OPERATION_COMPENSATION) == side;
    }
    return count;
}

/* --- rows ------------------------------------------------------------------------------------- */

static bool check_positions(const struct look *look)
{
    for (size_t i = 0; i < look->saga->count; i++) {
        int64_t seq = look->saga->entries[i].seq;
        if (seq == (int64_t)i + 1)
            continue;
        world_violate(look->world, INV_JOURNAL, "%s: position %" PRId64 " where %zu should be",
                      id_of(look), seq, i + 1);
        return false;
    }
    for (size_t i = 0; i < look->judged->count; i++) {
        enum outcome before = look->judged->outcomes[i], now = look->saga->entries[i].outcome;
        if (before == OUTCOME_NONE || before == now)
            continue;
        world_violate(look->world, INV_JOURNAL, "%s: #%zu ended %s, and now %s", id_of(look), i + 1,
                      outcome_name(before), now ? outcome_name(now) : "is open");
        return false;
    }
    return true;
}

static void check_terminal(const struct look *look)
{
    const struct judged *judged = look->judged;
    if (!judged->seen || !saga_state_is_terminal(judged->state))
        return;
    bool more = false;
    for (size_t i = judged->count; i < look->saga->count; i++)
        more = more || look->saga->entries[i].kind != ENTRY_RESOLVE;
    if (look->saga->row.state != judged->state || more || !look->saga->row.ended_at_ms)
        world_violate(look->world, INV_TERMINAL, "%s was %s with %zu entries, is %s with %zu%s",
                      id_of(look), saga_state_name(judged->state), judged->count,
                      saga_state_name(look->saga->row.state), look->saga->count,
                      look->saga->row.ended_at_ms ? "" : ", and its end has no time");
}

/* In one commit a few rows of the table may be taken, one after the other. */
static bool reaches(enum saga_state state, enum saga_state phase, const struct saga_row *to,
                    int steps)
{
    if (state == to->state && phase == to->phase)
        return true;
    if (steps == 0)
        return false;
    size_t count;
    const struct saga_transition *table = saga_transitions(&count);
    for (size_t i = 0; i < count; i++)
        if (table[i].from == state && table[i].phase_from == phase &&
            (table[i].to != state || table[i].phase_to != phase) &&
            reaches(table[i].to, table[i].phase_to, to, steps - 1))
            return true;
    return false;
}

static void check_graph(const struct look *look)
{
    const struct judged *judged = look->judged;
    enum saga_state state = judged->seen ? judged->state : SAGA_RUNNING;
    enum saga_state phase = judged->seen ? judged->phase : SAGA_RUNNING;
    if (!reaches(state, phase, &look->saga->row, 3))
        world_violate(look->world, INV_GRAPH, "%s went from %s in %s to %s in %s", id_of(look),
                      saga_state_name(state), saga_state_name(phase),
                      saga_state_name(look->saga->row.state),
                      saga_state_name(look->saga->row.phase));
}

/* --- the end, and what is not the end --------------------------------------------------------- */

static void judge_end(const struct look *look)
{
    const struct judged *judged = look->judged;
    enum saga_state state = look->saga->row.state;
    world_hit(look->world, state == SAGA_SUCCEEDED     ? HIT_SUCCEEDED
                           : state == SAGA_COMPENSATED ? HIT_COMPENSATED
                                                       : HIT_ABANDONED);
    if (look->saga->row.doubt)
        world_hit(look->world, HIT_ENDED_IN_DOUBT);
    if (judged->suspect && state == SAGA_SUCCEEDED)
        world_hit(look->world, HIT_SUSPECT_SUCCEEDED);
    if (judged->suspect && state == SAGA_COMPENSATED)
        world_hit(look->world, HIT_SUSPECT_COMPENSATED);
    graph_hit_end(look);
    for (int i = 0; i < (int)look->definition->step_count; i++) {
        const struct judged_operation *action = &judged->of[i][0];
        bool took = action->done || action->unsettled > 0;
        bool not_taken = state == SAGA_SUCCEEDED && !action->done && !judged->passed[i];
        bool left = state == SAGA_COMPENSATED && step_of(look, i)->has_compensation && took &&
                    !judged->of[i][1].done;
        if (not_taken || left)
            world_violate(look->world, INV_NET, "%s is %s with step %s %s", id_of(look),
                          saga_state_name(state), step_of(look, i)->name,
                          left ? "not taken back" : "not done");
    }
}

/* Each doubt can be told from the journal, and is told by the row. */
static void check_doubt(const struct look *look)
{
    const struct judged *judged = look->judged;
    bool doubt = judged->late_doubt;
    for (int i = 0; i < (int)look->definition->step_count; i++)
        doubt = doubt || judged->of[i][0].doubt || judged->of[i][1].doubt;
    if (doubt != look->saga->row.doubt)
        world_violate(look->world, INV_DOUBT, "%s is %s, and %s", id_of(look),
                      look->saga->row.doubt ? "in doubt" : "not in doubt",
                      doubt ? "something is left to find out" : "nothing is left to find out");
}

void invariants_found(struct world *world, const struct db_saga *saga)
{
    if (saga->owner || saga->wake_at_ms || saga->waiting_handler ||
        saga_state_is_terminal(saga->row.state) || saga->row.state == SAGA_PARKED)
        return;
    world_violate(world, INV_GOES_ON, "%s is %s, nobody drives it and nobody will find it",
                  saga->row.saga_id, saga_state_name(saga->row.state));
}

static void check_goes_on(const struct look *look)
{
    struct err err;
    struct saga *copy = database_replay(look->world, look->saga, &err);
    if (!copy) {
        world_violate(look->world, INV_REPLAY, "%s", err.msg);
        return;
    }
    struct grantable grantable;
    int64_t now_ms = db_clock_ms(look->world->now_ms);
    enum saga_state state = look->saga->row.state;
    bool goes_on = saga_state_is_terminal(state) || look->saga->row.park_reason ||
                   saga_due_at(copy) != INT64_MAX || saga_grantable_at(copy, now_ms) != INT64_MAX ||
                   saga_grantable(copy, now_ms, &grantable, 1);
    if (!goes_on)
        world_violate(look->world, INV_GOES_ON, "%s is %s and nothing takes it on", id_of(look),
                      saga_state_name(state));
    graph_check_turns(look, copy, now_ms);
    (void)saga_free(copy); /* always NULL */
    invariants_found(look->world, look->saga);
}

static void remember(const struct look *look)
{
    struct judged *judged = look->judged;
    if (judged->capacity < look->saga->count) {
        judged->capacity = look->saga->count * 2;
        judged->outcomes = world_alloc(look->world, judged->capacity * sizeof *judged->outcomes);
    }
    for (size_t i = 0; i < look->saga->count; i++)
        judged->outcomes[i] = look->saga->entries[i].outcome;
    judged->count = look->saga->count;
    judged->state = look->saga->row.state;
    judged->phase = look->saga->row.phase;
    judged->seen = true;
}

void invariants_commit(struct world *world, struct db_saga *saga, const struct request *request,
                       int64_t now_ms)
{
    struct look look = { .world = world,
                         .saga = saga,
                         .judged = &saga->judged,
                         .definition = definitions_find(&world->definitions, saga->row.definition),
                         .now_ms = now_ms };
    if (world->violation.invariant != INVARIANT_COUNT || !check_positions(&look))
        return;
    check_terminal(&look);
    check_graph(&look);
    for (size_t i = look.judged->count; i < saga->count; i++)
        if (saga->entries[i].kind == ENTRY_PARK && saga->entries[i].reason == PARK_FOREIGN_EFFECT)
            look.foreign = true;
    for (size_t i = 0; i < look.judged->count; i++)
        if (look.judged->outcomes[i] == OUTCOME_NONE && saga->entries[i].outcome != OUTCOME_NONE &&
            saga->entries[i].kind == ENTRY_LEASE)
            invariants_end_of_lease(&look, &saga->entries[i]);
    for (size_t i = look.judged->count; i < saga->count; i++)
        invariants_entry(&look, &saga->entries[i]);
    if (saga_state_is_terminal(saga->row.state) && !saga_state_is_terminal(look.judged->state))
        judge_end(&look);
    if (request->transition.late_row) {
        world_hit(world, HIT_LATE_AFTER_END);
        look.judged->late_doubt = look.judged->late_doubt || request->transition.late.effect;
    }
    check_doubt(&look);
    check_goes_on(&look);
    remember(&look);
}
