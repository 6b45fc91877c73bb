/* After each commit: what the rows say, judged without the core. */
#include "sim/invariants.h"

#include "sim/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CLOCK_SLACK_MS = 2 }; /* drift between two answers of the database */

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

/* What is being judged. */
struct look {
    struct world *world;
    struct db_saga *saga;
    struct judged *judged;
    const struct definition *definition;
    int64_t now_ms; /* of the transaction, by the database */
    bool foreign;   /* it parks the saga as FOREIGN_EFFECT */
};

static const char *id_of(const struct look *look)
{
    return look->saga->row.saga_id;
}

static int side(enum operation operation)
{
    return operation == OPERATION_COMPENSATION;
}

static const struct step_rule *step_of(const struct look *look, int step)
{
    return &look->definition->steps[step];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
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
    if (look->saga->row.state != judged->state || look->saga->count != judged->count)
        world_violate(look->world, INV_TERMINAL, "%s was %s with %zu entries, is %s with %zu",
                      id_of(look), saga_state_name(judged->state), judged->count,
                      saga_state_name(look->saga->row.state), look->saga->count);
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

/* --- grants ----------------------------------------------------------------------------------- */

static void check_lease(const struct look *look, const struct journal_entry *lease)
{
    struct judged *judged = look->judged;
    int tries = 0;
    for (size_t i = 0; i < look->saga->count; i++) {
        const struct journal_entry *other = &look->saga->entries[i];
        if (other->kind != ENTRY_LEASE || other == lease)
            continue;
        if (other->outcome == OUTCOME_NONE)
            world_violate(look->world, INV_ONE_LEASE,
                          "%s: #%" PRId64 " was granted beside #%" PRId64, id_of(look), lease->seq,
                          other->seq);
        if (other->seq < lease->seq && other->step == lease->step &&
            other->operation == lease->operation && other->outcome != OUTCOME_RELEASED)
            tries++;
    }
    if (lease->try_ != tries + 1)
        world_violate(look->world, INV_TRIES, "%s: #%" PRId64 " is try %d after %d", id_of(look),
                      lease->seq, lease->try_, tries);
    if (lease->fence <= judged->last_fence || fence_seq(lease->fence) != lease->seq)
        world_violate(look->world, INV_FENCE,
                      "%s: #%" PRId64 " has fence %" PRId64 " after %" PRId64, id_of(look),
                      lease->seq, lease->fence, judged->last_fence);
    judged->last_fence = lease->fence;
    if (definition_rule(look->definition, (size_t)lease->step, lease->operation)->effect ==
            EFFECT_AT_MOST_ONCE &&
        judged->unsettled[lease->step][side(lease->operation)] > 0)
        world_violate(look->world, INV_REPEAT,
                      "%s: #%" PRId64 " repeats what may have taken effect", id_of(look),
                      lease->seq);
}

static void check_forward(const struct look *look, const struct journal_entry *lease)
{
    const struct judged *judged = look->judged;
    bool in_turn = !judged->done[lease->step][0];
    for (int i = 0; i < lease->step; i++)
        in_turn = in_turn && judged->done[i][0];
    if (judged->turned_back || look->saga->row.state != SAGA_RUNNING || !in_turn)
        world_violate(
            look->world, INV_FORWARD, "%s: #%" PRId64 " grants step %s while %s%s%s", id_of(look),
            lease->seq, step_of(look, lease->step)->name, saga_state_name(look->saga->row.state),
            judged->turned_back ? ", after it turned back" : "", in_turn ? "" : ", out of turn");
}

static void check_backward(const struct look *look, const struct journal_entry *lease)
{
    const struct judged *judged = look->judged;
    int step = lease->step;
    bool may = judged->turned_back && look->saga->row.state == SAGA_COMPENSATING &&
               (judged->done[step][0] || judged->unsettled[step][0] > 0) && !judged->done[step][1];
    for (int i = step + 1; i < (int)look->definition->step_count; i++)
        if (step_of(look, i)->has_compensation &&
            (judged->done[i][0] || judged->unsettled[i][0] > 0) && !judged->done[i][1])
            may = false;
    if (!may || look->now_ms < judged->lost_until_ms - CLOCK_SLACK_MS)
        world_violate(look->world, INV_BACKWARD,
                      "%s: #%" PRId64 " compensates step %s while %s, %d unsettled, %s, a lost "
                      "worker may run for %" PRId64 " ms",
                      id_of(look), lease->seq, step_of(look, step)->name,
                      saga_state_name(look->saga->row.state), judged->unsettled[step][0],
                      judged->done[step][0] ? "done" : "not done",
                      judged->lost_until_ms - look->now_ms);
    const struct step_rule *rule = step_of(look, step);
    int64_t until = judged->settle_from_ms[step] + rule->settle_ms;
    if (!judged->done[step][0] && !rule->guarded && look->now_ms < until - CLOCK_SLACK_MS)
        world_violate(look->world, INV_SETTLE,
                      "%s: #%" PRId64 " compensates step %s %" PRId64
                      " ms before requests have settled",
                      id_of(look), lease->seq, rule->name, until - look->now_ms);
}

static void judge_grant(const struct look *look, const struct journal_entry *lease)
{
    check_lease(look, lease);
    if (lease->operation == OPERATION_COMPENSATION)
        check_backward(look, lease);
    else
        check_forward(look, lease);
}

/* --- ends of leases --------------------------------------------------------------------------- */

static void judge_end_of_lease(const struct look *look, const struct journal_entry *lease)
{
    struct judged *judged = look->judged;
    int step = lease->step, which = side(lease->operation);
    world_hit(look->world, (enum hit)(HIT_ENDED_DONE + (int)lease->outcome - (int)OUTCOME_DONE));
    if (lease->outcome == OUTCOME_EXPIRED && lease->lease_until_ms >= look->now_ms)
        world_violate(look->world, INV_EXPIRY, "%s: #%" PRId64 " expired %" PRId64 " ms early",
                      id_of(look), lease->seq, lease->lease_until_ms - look->now_ms);
    if (lease->outcome == OUTCOME_REJECTED && !which && look->saga->row.phase == SAGA_RUNNING)
        world_violate(look->world, INV_REFUSAL, "%s: #%" PRId64 " was refused, and it is %s",
                      id_of(look), lease->seq, saga_state_name(look->saga->row.state));
    if (outcome_is_success(lease->outcome)) {
        judged->done[step][which] = !look->foreign;
        judged->unsettled[step][which] = 0;
    }
    if (!outcome_is_unknown(lease->outcome))
        return;
    judged->unsettled[step][which]++;
    if (which)
        return;
    int64_t from = lease->finished_at_ms;
    if (lease->outcome == OUTCOME_STREAM_LOST) {
        from = larger(from, lease->lease_until_ms);
        judged->lost_until_ms = larger(judged->lost_until_ms, lease->lease_until_ms);
    }
    judged->settle_from_ms[step] = larger(judged->settle_from_ms[step], from);
}

/* Does the report settle the attempt that it is about? No newer attempt, nothing rests on it yet.
 */
static bool late_settles(const struct look *look, const struct journal_entry *late,
                         const struct journal_entry *lease)
{
    if (lease->outcome != OUTCOME_EXPIRED && lease->outcome != OUTCOME_STREAM_LOST)
        return false;
    if (look->judged->done[late->step][side(late->operation)] ||
        look->judged->unsettled[late->step][side(late->operation)] == 0)
        return false;
    for (size_t i = 0; i < look->saga->count; i++) {
        const struct journal_entry *other = &look->saga->entries[i];
        if (other->kind == ENTRY_LEASE && other->seq < late->seq && other->step == late->step &&
            ((other->operation == late->operation && other->seq > lease->seq) ||
             (late->operation == OPERATION_ACTION && other->operation == OPERATION_COMPENSATION)))
            return false;
    }
    return true;
}

static void judge_late(const struct look *look, const struct journal_entry *late)
{
    struct judged *judged = look->judged;
    int step = late->step, which = side(late->operation);
    const struct journal_entry *lease = &look->saga->entries[late->about - 1];
    bool effect = outcome_is_success(late->outcome) || late->outcome == OUTCOME_UNKNOWN;
    bool settles = late_settles(look, late, lease);
    world_hit(look->world, HIT_LATE_REPORTED);
    if (settles && late->outcome == OUTCOME_UNKNOWN) {
        if (!which)
            judged->settle_from_ms[step] =
                larger(judged->settle_from_ms[step], late->finished_at_ms);
    } else if (settles && outcome_is_success(late->outcome)) {
        judged->done[step][which] = !look->foreign;
        judged->unsettled[step][which] = 0;
    } else if (settles) {
        judged->unsettled[step][which]--;
    } else if (effect && lease->outcome == OUTCOME_RELEASED && !which && !judged->done[step][0] &&
               !judged->turned_back) {
        judged->unsettled[step][0]++;
        judged->settle_from_ms[step] = larger(judged->settle_from_ms[step], late->finished_at_ms);
    }
}

static void judge_entry(const struct look *look, const struct journal_entry *entry)
{
    switch (entry->kind) {
    case ENTRY_LEASE:
        judge_grant(look, entry);
        return;
    case ENTRY_COMPENSATE:
        world_hit(look->world, (enum hit)(HIT_BACK_REFUSED + entry->reason));
        look->judged->turned_back = true;
        return;
    case ENTRY_PARK: {
        char name[64];
        (void)snprintf(name, sizeof name, "PARKED_%s",
                       park_reason_name((enum park_reason)entry->reason));
        for (int i = 0; i < HIT_COUNT; i++)
            if (strcmp(hit_name((enum hit)i), name) == 0)
                world_hit(look->world, (enum hit)i);
        return;
    }
    case ENTRY_LATE_REPORT:
        judge_late(look, entry);
        return;
    case ENTRY_RETRY:
        world_hit(look->world, HIT_RETRIED);
        return;
    case ENTRY_RESUME:
        world_hit(look->world, HIT_LATE_RESUMED);
        return;
    case ENTRY_END:
        world_hit(look->world, HIT_END_WRITTEN);
        return;
    case ENTRY_RESOLVE: /* nobody asks for these here */
    case ENTRY_SKIP:
    case ENTRY_ABANDON:
    case ENTRY_KIND_COUNT:
        return;
    }
}

/* --- the end, and what is not the end --------------------------------------------------------- */

static void judge_end(const struct look *look)
{
    const struct judged *judged = look->judged;
    bool succeeded = look->saga->row.state == SAGA_SUCCEEDED;
    world_hit(look->world, succeeded ? HIT_SUCCEEDED : HIT_COMPENSATED);
    for (int i = 0; i < (int)look->definition->step_count; i++) {
        bool took = judged->done[i][0] || judged->unsettled[i][0] > 0;
        if (succeeded ? !judged->done[i][0]
                      : step_of(look, i)->has_compensation && took && !judged->done[i][1])
            world_violate(look->world, INV_NET, "%s is %s with step %s %s", id_of(look),
                          saga_state_name(look->saga->row.state), step_of(look, i)->name,
                          succeeded ? "not done" : "not taken back");
    }
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
    enum saga_state state = look->saga->row.state;
    bool goes_on = saga_state_is_terminal(state) || look->saga->row.park_reason ||
                   saga_due_at(copy) != INT64_MAX || saga_grantable_at(copy) != INT64_MAX ||
                   saga_grantable(copy, db_clock_ms(look->world->now_ms), &grantable, 1);
    if (!goes_on)
        world_violate(look->world, INV_GOES_ON, "%s is %s and nothing takes it on", id_of(look),
                      saga_state_name(state));
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
            judge_end_of_lease(&look, &saga->entries[i]);
    for (size_t i = look.judged->count; i < saga->count; i++)
        judge_entry(&look, &saga->entries[i]);
    if (saga_state_is_terminal(saga->row.state) && !saga_state_is_terminal(look.judged->state))
        judge_end(&look);
    if (request->transition.late_row)
        world_hit(world, HIT_LATE_AFTER_END);
    check_goes_on(&look);
    remember(&look);
}
