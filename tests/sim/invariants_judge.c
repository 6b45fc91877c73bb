/* What each new outcome and each new entry of a journal may be, after those before it. */
#include "sim/invariants_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *id_of(const struct look *look)
{
    return look->saga->row.saga_id;
}

static const struct step_rule *step_of(const struct look *look, int step)
{
    return &look->definition->steps[step];
}

/* Of the action or the compensation, not of its probe. */
static const struct operation_rule *rule_of(const struct look *look, int step, int side)
{
    return definition_rule(look->definition, (size_t)step,
                           side ? OPERATION_COMPENSATION : OPERATION_ACTION);
}

static struct judged_operation *operation_of(const struct look *look,
                                             const struct journal_entry *entry)
{
    return &look->judged->of[entry->step][invariants_side(look->saga, entry)];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t settle_ms(const struct look *look, int step)
{
    return larger(step_of(look, step)->settle_ms, 0);
}

/* May it have run before the saga began, and has nobody tried it since? */
static bool is_suspect(const struct look *look, int step)
{
    const struct judged_operation *action = &look->judged->of[step][0];
    return look->judged->suspect && !action->tried && action->unsettled > 0;
}

static const struct judged_operation *pivot_of(const struct look *look)
{
    int pivot = look->definition->pivot;
    return pivot >= 0 ? &look->judged->of[pivot][0] : NULL;
}

/* Must what stands before the pivot stay, since that is done, or may be by somebody else? */
static bool is_held_by_pivot(const struct look *look, int step)
{
    const struct judged_operation *pivot = pivot_of(look);
    return pivot && step != look->definition->pivot && (pivot->done || pivot->unsettled > 0);
}

/* --- grants ----------------------------------------------------------------------------------- */

/* live: granted before and not ended. */
static void check_beside(const struct look *look, const struct journal_entry *lease,
                         const struct journal_entry *live)
{
    bool forward = live->operation == OPERATION_ACTION;
    if (live->step == lease->step || (forward && lease->operation == OPERATION_COMPENSATION))
        world_violate(look->world, INV_ONE_LEASE, "%s: #%" PRId64 " was granted beside #%" PRId64,
                      id_of(look), lease->seq, live->seq);
    if (forward && lease->operation == OPERATION_ACTION)
        world_hit(look->world, HIT_PARALLEL_ACTIONS);
    if (live->operation == OPERATION_COMPENSATION && lease->operation == OPERATION_COMPENSATION)
        world_hit(look->world, HIT_PARALLEL_COMPENSATIONS);
}

static void check_lease(const struct look *look, const struct journal_entry *lease)
{
    struct judged *judged = look->judged;
    int tries = 0, side = invariants_side(look->saga, lease);
    for (size_t i = 0; i < look->saga->count; i++) {
        const struct journal_entry *other = &look->saga->entries[i];
        if (other->kind != ENTRY_LEASE || other == lease)
            continue;
        if (other->outcome == OUTCOME_NONE)
            check_beside(look, lease, other);
        if (other->seq < lease->seq && other->step == lease->step &&
            other->operation == lease->operation && other->outcome != OUTCOME_RELEASED &&
            invariants_side(look->saga, other) == side)
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
    if (look->saga->row.state == SAGA_PARKED)
        world_violate(look->world, INV_PARKED,
                      "%s: #%" PRId64 " was granted while it is parked: %s", id_of(look),
                      lease->seq, park_reason_name(look->saga->row.park_reason));
}

/* The first attempt of a delayed step comes no earlier after the last success before it, or the
 * start. */
static void check_delay(const struct look *look, const struct journal_entry *lease)
{
    int64_t from_ms = look->saga->row.started_at_ms;
    for (size_t i = 0; i + 1 < (size_t)lease->seq; i++) {
        const struct journal_entry *entry = &look->saga->entries[i];
        if (entry->step == lease->step && entry->kind == ENTRY_LEASE)
            return; /* it was tried before */
        if (entry->step >= 0 &&
            step_set_has(&step_of(look, lease->step)->after, (size_t)entry->step) &&
            entry->kind == ENTRY_LEASE && outcome_is_success(entry->outcome) &&
            entry->operation == OPERATION_ACTION && !look->judged->passed[entry->step])
            from_ms = larger(from_ms, entry->finished_at_ms);
    }
    int64_t until = from_ms + step_of(look, lease->step)->delay_ms;
    if (look->now_ms < until - CLOCK_SLACK_MS)
        world_violate(look->world, INV_FORWARD, "%s: #%" PRId64 " comes %" PRId64 " ms too early",
                      id_of(look), lease->seq, until - look->now_ms);
    if (step_of(look, lease->step)->delay_ms)
        world_hit(look->world, HIT_DELAYED);
}

/* With a cancel that waits nothing is granted but what finds out about the pivot. */
static void check_pending(const struct look *look, const struct journal_entry *lease)
{
    if (!look->judged->cancel_pending)
        return;
    const struct judged_operation *pivot = &look->judged->of[look->definition->pivot][0];
    if (pivot->done)
        world_hit(look->world, HIT_PENDING_TOO_LATE);
    else if ((lease->step != look->definition->pivot && !look->judged->suspect) ||
             pivot->unsettled == 0)
        world_violate(look->world, INV_PIVOT, "%s: #%" PRId64 " goes forward, and a cancel waits",
                      id_of(look), lease->seq);
}

static void check_forward(const struct look *look, const struct journal_entry *lease)
{
    bool turned_back = look->judged->turned_back;
    bool in_turn = graph_is_next(look, lease->step);
    if (turned_back || look->saga->row.state != SAGA_RUNNING || !in_turn)
        world_violate(look->world, INV_FORWARD, "%s: #%" PRId64 " grants step %s while %s%s%s",
                      id_of(look), lease->seq, step_of(look, lease->step)->name,
                      saga_state_name(look->saga->row.state),
                      turned_back ? ", after it turned back" : "", in_turn ? "" : ", out of turn");
    check_pending(look, lease);
    check_delay(look, lease);
    if (lease->try_ == 1 && graph_joins(look, lease->step))
        world_hit(look->world, HIT_JOINED);
}

static void check_backward(const struct look *look, const struct journal_entry *lease)
{
    const struct judged *judged = look->judged;
    const struct judged_operation *action = &judged->of[lease->step][0];
    const struct step_rule *rule = step_of(look, lease->step);
    bool may = judged->turned_back && look->saga->row.state == SAGA_COMPENSATING &&
               graph_is_next_back(look, lease->step);
    if (!may || look->now_ms < judged->lost_until_ms - CLOCK_SLACK_MS)
        world_violate(look->world, INV_BACKWARD,
                      "%s: #%" PRId64 " compensates step %s while %s, %d unsettled, %s, a lost "
                      "worker may run for %" PRId64 " ms",
                      id_of(look), lease->seq, rule->name, saga_state_name(look->saga->row.state),
                      action->unsettled, action->done ? "done" : "not done",
                      judged->lost_until_ms - look->now_ms);
    int64_t until = action->settle_from_ms + settle_ms(look, lease->step);
    if (!action->done && !rule->guarded && look->now_ms < until - CLOCK_SLACK_MS)
        world_violate(look->world, INV_SETTLE,
                      "%s: #%" PRId64 " compensates step %s %" PRId64
                      " ms before requests have settled",
                      id_of(look), lease->seq, rule->name, until - look->now_ms);
}

/* May it be sent at all, and until when: not what may have happened, unless its class, its key and
 * its window say so. */
static void check_repeat(const struct look *look, const struct journal_entry *lease)
{
    int side = invariants_side(look->saga, lease);
    const struct operation_rule *rule = rule_of(look, lease->step, side);
    struct judged_operation *of = operation_of(look, lease);
    if (of->unsettled > 0 && (rule->effect != EFFECT_IDEMPOTENT || of->probing))
        world_violate(look->world, INV_REPEAT,
                      "%s: #%" PRId64 " repeats what may have taken effect", id_of(look),
                      lease->seq);
    if (of->unsettled == 0)
        of->window_from_ms = lease->leased_at_ms;
    int64_t end = of->window_from_ms + rule->window_ms - settle_ms(look, lease->step);
    if (rule->window_ms && lease->attempt_until_ms > end)
        world_violate(look->world, INV_WINDOW,
                      "%s: #%" PRId64 " may run %" PRId64 " ms too long for its key", id_of(look),
                      lease->seq, lease->attempt_until_ms - end);
    if (rule->window_ms && lease->attempt_until_ms == end)
        world_hit(look->world, HIT_WINDOW_CUT);
    if (!of->not_done)
        return;
    int64_t until = of->settle_from_ms + settle_ms(look, lease->step);
    if (look->now_ms < until - CLOCK_SLACK_MS)
        world_violate(look->world, INV_SETTLE,
                      "%s: #%" PRId64 " repeats %" PRId64 " ms before requests have settled",
                      id_of(look), lease->seq, until - look->now_ms);
    world_hit(look->world, HIT_REPEATED_AFTER_NOT_DONE);
    if (rule->fresh_key)
        world_hit(look->world, HIT_FRESH_KEY);
}

static void check_probe(const struct look *look, const struct journal_entry *lease)
{
    const struct judged *judged = look->judged;
    int side = invariants_side(look->saga, lease);
    const struct operation_rule *rule = rule_of(look, lease->step, side);
    const struct judged_operation *of = &judged->of[lease->step][side];
    bool asks =
        rule->probe && of->unsettled > 0 &&
        (rule->effect == EFFECT_PROBED || (rule->effect == EFFECT_IDEMPOTENT && of->probing));
    bool in_turn =
        judged->turned_back
            ? look->saga->row.state == SAGA_COMPENSATING && graph_is_next_back(look, lease->step)
            : look->saga->row.state == SAGA_RUNNING && !side && graph_is_next(look, lease->step);
    if (!asks || !in_turn)
        world_violate(
            look->world, INV_PROBE, "%s: #%" PRId64 " probes the %s of step %s, %d unsettled%s",
            id_of(look), lease->seq, side ? "compensation" : "action",
            step_of(look, lease->step)->name, of->unsettled, in_turn ? "" : ", out of turn");
}

static void judge_grant(const struct look *look, const struct journal_entry *lease)
{
    check_lease(look, lease);
    graph_hit_lease(look, lease);
    if (lease->operation == OPERATION_PROBE) {
        check_probe(look, lease);
        return;
    }
    if (is_suspect(look, lease->step) && lease->operation == OPERATION_COMPENSATION)
        world_hit(look->world, HIT_SUSPECT_TAKEN_BACK);
    operation_of(look, lease)->tried = true;
    if (lease->operation == OPERATION_COMPENSATION)
        check_backward(look, lease);
    else
        check_forward(look, lease);
    check_repeat(look, lease);
}

/* --- ends of leases --------------------------------------------------------------------------- */

static void settle(struct judged_operation *of)
{
    of->unsettled = 0;
    of->probing = of->asked = of->too_early = false;
}

/* Until then a request of such an attempt may have been sent. */
static void may_have_been_sent(struct judged_operation *of, int64_t until_ms)
{
    of->settle_from_ms = larger(of->settle_from_ms, until_ms);
}

static void end_of_probe(const struct look *look, const struct journal_entry *lease)
{
    struct judged_operation *of = operation_of(look, lease);
    if (lease->outcome == OUTCOME_RELEASED)
        return;
    of->asked = true;
    if (lease->outcome != OUTCOME_NOT_DONE || of->unsettled == 0 ||
        lease->leased_at_ms >= of->settle_from_ms + settle_ms(look, lease->step))
        return;
    of->too_early = true;
    world_hit(look->world, HIT_PROBE_TOO_EARLY);
}

void invariants_end_of_lease(const struct look *look, const struct journal_entry *lease)
{
    struct judged *judged = look->judged;
    struct judged_operation *of = operation_of(look, lease);
    world_hit(look->world, (enum hit)(HIT_ENDED_DONE + (int)lease->outcome - (int)OUTCOME_DONE));
    if (lease->outcome == OUTCOME_EXPIRED && lease->lease_until_ms >= look->now_ms)
        world_violate(look->world, INV_EXPIRY, "%s: #%" PRId64 " expired %" PRId64 " ms early",
                      id_of(look), lease->seq, lease->lease_until_ms - look->now_ms);
    if (lease->operation == OPERATION_PROBE) {
        end_of_probe(look, lease);
        return;
    }
    if (lease->outcome == OUTCOME_NOT_DONE || lease->outcome == OUTCOME_STILL_UNKNOWN)
        world_violate(look->world, INV_PROBE, "%s: #%" PRId64 " is no probe and ended %s",
                      id_of(look), lease->seq, outcome_name(lease->outcome));
    bool is_action = lease->operation == OPERATION_ACTION;
    bool turns_back = look->definition->pivot < 0 ||
                      !(graph_comes_after(look, lease->step, look->definition->pivot) ||
                        is_held_by_pivot(look, lease->step));
    if (!turns_back && is_action && lease->outcome == OUTCOME_REJECTED && judged->suspect)
        world_hit(look->world, HIT_SUSPECT_AT_PIVOT);
    if (!turns_back && is_action && lease->outcome == OUTCOME_REJECTED &&
        look->saga->row.state != SAGA_PARKED)
        world_violate(look->world, INV_PIVOT, "%s: #%" PRId64 " was refused, and it is %s",
                      id_of(look), lease->seq, saga_state_name(look->saga->row.state));
    if (turns_back && lease->outcome == OUTCOME_REJECTED && is_action &&
        look->saga->row.phase == SAGA_RUNNING)
        world_violate(look->world, INV_REFUSAL, "%s: #%" PRId64 " was refused, and it is %s",
                      id_of(look), lease->seq, saga_state_name(look->saga->row.state));
    if (outcome_is_success(lease->outcome)) {
        of->done = !look->foreign;
        settle(of);
    }
    if (!outcome_is_unknown(lease->outcome))
        return;
    of->unsettled++;
    of->not_done = false;
    may_have_been_sent(of, lease->finished_at_ms);
    if (lease->outcome != OUTCOME_STREAM_LOST)
        return;
    if (definition_rule(look->definition, (size_t)lease->step, lease->operation)->effect !=
        EFFECT_IDEMPOTENT)
        world_violate(look->world, INV_EXPIRY, "%s: #%" PRId64 " is not idempotent and ended %s",
                      id_of(look), lease->seq, outcome_name(lease->outcome));
    may_have_been_sent(of, lease->lease_until_ms);
    if (is_action)
        judged->lost_until_ms = larger(judged->lost_until_ms, lease->lease_until_ms);
}

/* --- late reports ----------------------------------------------------------------------------- */

/* Does the report settle the attempt that it is about? No newer attempt, nothing rests on it yet.
 */
static bool late_settles(const struct look *look, const struct journal_entry *late,
                         const struct journal_entry *lease)
{
    const struct judged_operation *of = operation_of(look, late);
    if (lease->outcome != OUTCOME_EXPIRED && lease->outcome != OUTCOME_STREAM_LOST)
        return false;
    if (of->done || of->unsettled == 0)
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
    const struct journal_entry *lease = &look->saga->entries[late->about - 1];
    world_hit(look->world, HIT_LATE_REPORTED);
    if (late->operation == OPERATION_PROBE)
        return; /* what it settles is an entry of its own */
    struct judged_operation *of = operation_of(look, late);
    bool effect = outcome_is_success(late->outcome) || late->outcome == OUTCOME_UNKNOWN;
    bool settles = late_settles(look, late, lease);
    /* It was given back, or said not to have happened, and may have run after all. */
    bool revives = !settles && effect && late->operation == OPERATION_ACTION && !of->done &&
                   !judged->turned_back &&
                   (lease->outcome == OUTCOME_RELEASED || lease->seq < of->not_done_seq);
    if (revives) {
        of->unsettled++;
        if (lease->leased_at_ms < of->window_from_ms)
            of->window_from_ms = lease->leased_at_ms;
    }
    if (revives || late->outcome == OUTCOME_UNKNOWN)
        may_have_been_sent(of, late->finished_at_ms);
    if (!settles || late->outcome == OUTCOME_UNKNOWN)
        return;
    if (outcome_is_success(late->outcome))
        of->done = !look->foreign;
    if (outcome_is_success(late->outcome) || of->unsettled == 1)
        settle(of);
    else
        of->unsettled--;
    bool passed = late->operation == OPERATION_ACTION && judged->passed[late->step];
    if (!passed || of->unsettled > 0)
        return;
    if (of->doubt)
        world_hit(look->world, HIT_ACCEPTED_REPORTED);
    of->doubt = false;
}

/* --- what was found out ----------------------------------------------------------------------- */

/* The lease of the probe that said so; NULL: none did. */
static const struct journal_entry *asked_by(const struct look *look,
                                            const struct journal_entry *entry)
{
    const struct journal_entry *said = &look->saga->entries[entry->about - 1];
    if (said->operation != OPERATION_PROBE || said->outcome != entry->outcome)
        return NULL;
    bool late = said->kind == ENTRY_LATE_REPORT;
    if (late)
        world_hit(look->world, HIT_PROBE_LATE);
    return late ? &look->saga->entries[said->about - 1] : said;
}

static void check_answer(const struct look *look, const struct journal_entry *entry)
{
    const struct judged_operation *of = operation_of(look, entry);
    const struct journal_entry *probe = asked_by(look, entry);
    int64_t until = of->settle_from_ms + settle_ms(look, entry->step);
    /* What is there is there, also if a person said meanwhile that it is not. */
    bool against = probe && entry->outcome == OUTCOME_DONE && of->not_done_seq > probe->seq;
    if (!probe || (of->unsettled == 0 && !against))
        world_violate(look->world, INV_PROBE, "%s: #%" PRId64 " settles what no probe has said",
                      id_of(look), entry->seq);
    else if (entry->outcome == OUTCOME_NOT_DONE && probe->leased_at_ms < until)
        world_violate(look->world, INV_SETTLE,
                      "%s: #%" PRId64 " was asked %" PRId64 " ms before requests have settled",
                      id_of(look), probe->seq, until - probe->leased_at_ms);
    world_hit(look->world, entry->outcome == OUTCOME_DONE ? HIT_PROBE_DONE : HIT_PROBE_NOT_DONE);
    if (is_suspect(look, entry->step) && entry->outcome == OUTCOME_DONE)
        world_hit(look->world, HIT_OLD_EFFECT_PROBED);
    if (entry->operation == OPERATION_COMPENSATION)
        world_hit(look->world, HIT_PROBE_OF_COMPENSATION);
}

/* Against the participant's own books. What a person looked at may be outdated when it is written:
 * then it was no fault of ours, and the books prove nothing from there on. */
static void check_truth(const struct look *look, const struct journal_entry *entry)
{
    const struct saga_row *row = &look->saga->row;
    struct side_effect *effect =
        &participant_subject(look->world, row->definition, row->saga_id)->effects[entry->step];
    int side = entry->operation == OPERATION_COMPENSATION;
    bool happened = entry->outcome == OUTCOME_DONE;
    bool may_come =
        effect->in_flight[side] > 0 ||
        (!entry->about && jobs_may_send(look->world, row, (size_t)entry->step, entry->operation));
    if ((effect->foreign && !side) || effect->misled ||
        (happened ? effect->runs[side] > 0 : effect->runs[side] == 0 && !may_come))
        return;
    if (!entry->about && clients_looked_before(look->world, look->saga, entry)) {
        effect->misled = true;
        return;
    }
    world_violate(look->world, INV_TRUTH,
                  "%s: #%" PRId64 " says that the %s of step %s %s; it took effect %d times, %d "
                  "requests are on their way",
                  id_of(look), entry->seq, side ? "compensation" : "action",
                  step_of(look, entry->step)->name, happened ? "happened" : "did not happen",
                  effect->runs[side], effect->in_flight[side]);
}

static bool compensation_was_granted(const struct look *look, const struct journal_entry *entry)
{
    struct journal_entry probe = { .operation = OPERATION_PROBE,
                                   .seq = entry->seq,
                                   .step = entry->step };
    return invariants_side(look->saga, &probe) == 1;
}

static void judge_resolve(const struct look *look, const struct journal_entry *entry)
{
    struct judged *judged = look->judged;
    struct judged_operation *of = operation_of(look, entry);
    bool settles = !of->done && (entry->operation == OPERATION_COMPENSATION ||
                                 !compensation_was_granted(look, entry));
    check_truth(look, entry);
    if (saga_state_is_terminal(judged->state)) {
        world_hit(look->world, HIT_RESOLVED_AFTER_END);
        judged->late_doubt = false;
    }
    if (!entry->about && settles && is_suspect(look, entry->step))
        world_hit(look->world, HIT_OLD_EFFECT_RESOLVED);
    if (entry->about)
        check_answer(look, entry);
    else if (!settles)
        world_hit(look->world, HIT_RESOLVED_EVIDENCE);
    else
        world_hit(look->world,
                  entry->outcome == OUTCOME_DONE ? HIT_RESOLVED_DONE : HIT_RESOLVED_NOT_DONE);
    if (of->doubt && entry->operation == OPERATION_ACTION && judged->passed[entry->step])
        world_hit(look->world, HIT_ACCEPTED_RESOLVED);
    of->doubt = false;
    if (!settles)
        return;
    settle(of);
    of->done = entry->outcome == OUTCOME_DONE;
    of->not_done = !of->done;
    if (of->not_done)
        of->not_done_seq = entry->seq;
}

/* --- decisions -------------------------------------------------------------------------------- */

static bool has_open_lease(const struct look *look)
{
    for (size_t i = 0; i < look->saga->count; i++)
        if (look->saga->entries[i].kind == ENTRY_LEASE &&
            look->saga->entries[i].outcome == OUTCOME_NONE)
            return true;
    return false;
}

/* Leases of an operation (of its probe) that were lost one after the other, up to now. */
static int lost_in_a_row(const struct look *look, const struct journal_entry *park, bool of_probe)
{
    int lost = 0, side = invariants_side(look->saga, park);
    for (size_t i = (size_t)park->seq - 1; i-- > 0;) {
        const struct journal_entry *entry = &look->saga->entries[i];
        if (entry->kind != ENTRY_LEASE || entry->step != park->step ||
            (entry->operation == OPERATION_PROBE) != of_probe ||
            invariants_side(look->saga, entry) != side || entry->outcome == OUTCOME_RELEASED)
            continue;
        if (entry->outcome != OUTCOME_EXPIRED && entry->outcome != OUTCOME_STREAM_LOST)
            break;
        lost++;
    }
    return lost;
}

static void check_killer(const struct look *look, const struct journal_entry *park)
{
    const struct operation_rule *rule =
        rule_of(look, park->step, invariants_side(look->saga, park));
    bool probe_kills =
        rule->probe && lost_in_a_row(look, park, true) >= rule->probe->lost_leases_max;
    if (!probe_kills && lost_in_a_row(look, park, false) < rule->lost_leases_max)
        world_violate(look->world, INV_POLICY, "%s: #%" PRId64 " parks after %d lost leases",
                      id_of(look), park->seq, lost_in_a_row(look, park, false));
}

static bool sets_deadline(const struct journal_entry *entry, int64_t *ret_ms)
{
    struct saga_options options;
    if (entry->kind != ENTRY_OPTIONS || !options_read(&entry->output, &options) ||
        options.deadline_ms == OPTIONS_SAME)
        return false;
    *ret_ms = options.deadline_ms;
    return true;
}

/* Time in which a person had stopped the saga does not count, from when the deadline was set. */
static void check_deadline(const struct look *look, const struct journal_entry *entry)
{
    int64_t at_ms = look->saga->row.deadline_at_ms, set_ms = at_ms, since_ms = 0;
    for (int64_t i = 0; i + 1 < entry->seq; i++) {
        const struct journal_entry *before = &look->saga->entries[i];
        if (sets_deadline(before, &set_ms)) {
            at_ms = set_ms;
            since_ms = before->finished_at_ms;
        }
        if (before->kind != ENTRY_RESUME || !before->about)
            continue;
        int64_t stopped_ms = look->saga->entries[before->about - 1].finished_at_ms;
        at_ms += before->finished_at_ms - (stopped_ms > since_ms ? stopped_ms : since_ms);
    }
    if (set_ms != look->saga->row.deadline_at_ms || set_ms == 0)
        world_violate(look->world, INV_DEADLINE, "%s: #%" PRId64 " acts on a deadline that is none",
                      id_of(look), entry->seq);
    if (look->now_ms < at_ms - CLOCK_SLACK_MS)
        world_violate(look->world, INV_DEADLINE,
                      "%s: #%" PRId64 " comes %" PRId64 " ms before the deadline", id_of(look),
                      entry->seq, at_ms - look->now_ms);
}

static void judge_park(const struct look *look, const struct journal_entry *park)
{
    char name[64];
    (void)snprintf(name, sizeof name, "PARKED_%s",
                   park_reason_name((enum park_reason)park->reason));
    for (int i = 0; i < HIT_COUNT; i++)
        if (strcmp(hit_name((enum hit)i), name) == 0)
            world_hit(look->world, (enum hit)i);
    if (park->reason == PARK_SUSPENDED && has_open_lease(look))
        world_hit(look->world, HIT_SUSPENDED_BESIDE_LEASE);
    if (park->reason == PARK_DEADLINE_EXCEEDED)
        check_deadline(look, park);
    if (park->step < 0)
        return;
    struct judged_operation *of = operation_of(look, park);
    if (park->reason == PARK_OUTCOME_UNKNOWN && is_suspect(look, park->step))
        world_hit(look->world, HIT_SUSPECT_PARKED);
    if (park->reason == PARK_OUTCOME_UNKNOWN && of->asked)
        world_hit(look->world, HIT_PROBE_GIVEN_UP);
    if (park->reason == PARK_WORKER_KILLER)
        check_killer(look, park);
    if (park->reason == PARK_LATE_EFFECT)
        of->doubt = true;
    if (park->reason == PARK_FOREIGN_EFFECT)
        of->done = false;
}

/* It went on without an action: as its definition says, and only forward. */
static void judge_passed(const struct look *look, const struct journal_entry *entry)
{
    struct judged *judged = look->judged;
    struct judged_operation *of = &judged->of[entry->step][0];
    const struct operation_rule *rule = rule_of(look, entry->step, 0);
    bool accepts = entry->kind == ENTRY_ACCEPT;
    bool may = accepts ? rule->on_unknown == ON_UNKNOWN_ACCEPT && of->unsettled > 0 &&
                             !(rule->effect == EFFECT_PROBED && !of->asked)
                       : rule->on_exhausted == ON_EXHAUSTED_CONTINUE && of->unsettled == 0;
    if (!may || judged->turned_back || !graph_is_next(look, entry->step))
        world_violate(look->world, INV_POLICY,
                      "%s: #%" PRId64 " goes on without step %s, %d unsettled%s", id_of(look),
                      entry->seq, step_of(look, entry->step)->name, of->unsettled,
                      judged->turned_back ? ", after it turned back" : "");
    world_hit(look->world, accepts ? HIT_ACCEPTED : HIT_CONTINUED);
    if (accepts && of->asked)
        world_hit(look->world, HIT_PROBE_GIVEN_UP);
    judged->passed[entry->step] = true;
    of->doubt = of->doubt || accepts;
}

static void judge_probing(const struct look *look, const struct journal_entry *entry)
{
    struct judged_operation *of = operation_of(look, entry);
    const struct operation_rule *rule =
        rule_of(look, entry->step, invariants_side(look->saga, entry));
    if (!rule->probe || of->unsettled == 0)
        world_violate(look->world, INV_PROBE,
                      "%s: #%" PRId64 " is about a probe of step %s, %d unsettled%s", id_of(look),
                      entry->seq, step_of(look, entry->step)->name, of->unsettled,
                      rule->probe ? "" : ", which has none");
    if (entry->kind == ENTRY_MAYBE) {
        world_hit(look->world, HIT_PROBE_GIVEN_UP_BACK);
        return;
    }
    int64_t end = of->window_from_ms + rule->window_ms - settle_ms(look, entry->step);
    bool too_late = rule->window_ms && look->now_ms + rule->retry.cap_ms >= end;
    world_hit(look->world, too_late ? HIT_PROBE_AFTER_WINDOW : HIT_PROBE_AFTER_BUDGET);
    of->probing = true;
}

static void judge_retry(const struct look *look, const struct journal_entry *entry)
{
    world_hit(look->world, HIT_RETRIED);
    if (entry->step < 0)
        return;
    operation_of(look, entry)->probing = entry->operation == OPERATION_PROBE;
}

static void judge_skip(const struct look *look, const struct journal_entry *entry)
{
    struct judged_operation *of = operation_of(look, entry);
    if (entry->operation != OPERATION_COMPENSATION || of->done ||
        !graph_is_next_back(look, entry->step))
        world_violate(look->world, INV_POLICY, "%s: #%" PRId64 " skips step %s, which is not next",
                      id_of(look), entry->seq, step_of(look, entry->step)->name);
    world_hit(look->world, HIT_SKIPPED);
    settle(of);
    of->done = of->doubt = true;
    look->judged->skipped[entry->step] = true;
}

/* Granted and not ended, or unknown. */
static bool pivot_is_under_way(const struct look *look)
{
    const struct judged_operation *pivot = pivot_of(look);
    if (!pivot || pivot->done)
        return false;
    for (size_t i = 0; i < look->saga->count; i++) {
        const struct journal_entry *entry = &look->saga->entries[i];
        if (entry->kind == ENTRY_LEASE && entry->operation == OPERATION_ACTION &&
            entry->step == look->definition->pivot && entry->outcome == OUTCOME_NONE)
            return true;
    }
    return pivot->unsettled > 0;
}

static bool pivot_was_granted(const struct look *look)
{
    for (size_t i = 0; i < look->saga->count; i++)
        if (look->saga->entries[i].kind == ENTRY_LEASE &&
            look->saga->entries[i].step == look->definition->pivot)
            return true;
    return false;
}

static void judge_pending(const struct look *look, const struct journal_entry *entry)
{
    /* It may have ended meanwhile, by a node that knows of no cancel: then this is due at once. */
    if (!pivot_was_granted(look) && !look->judged->suspect)
        world_violate(look->world, INV_PIVOT, "%s: #%" PRId64 " waits for nothing", id_of(look),
                      entry->seq);
    if (entry->reason == CAUSE_DEADLINE) {
        check_deadline(look, entry);
        world_hit(look->world, HIT_PENDING_DEADLINE);
        return;
    }
    world_hit(look->world, HIT_PENDING_CANCEL);
    look->judged->cancel_pending = true;
}

static void judge_turn_back(const struct look *look, const struct journal_entry *entry)
{
    world_hit(look->world, (enum hit)(HIT_BACK_REFUSED + entry->reason));
    const struct judged_operation *pivot = pivot_of(look);
    bool of_pivot = entry->reason == CAUSE_REFUSED && entry->step == look->definition->pivot;
    if (pivot && (pivot->done || (!of_pivot && pivot_is_under_way(look))))
        world_violate(look->world, INV_PIVOT, "%s: #%" PRId64 " turns back %s the pivot",
                      id_of(look), entry->seq, pivot->done ? "after" : "beside");
    if (entry->about)
        world_hit(look->world, HIT_PENDING_TURNED_BACK);
    if (entry->reason == CAUSE_REFUSED && has_open_lease(look))
        world_hit(look->world, HIT_REFUSED_BESIDE_LEASE);
    if (entry->reason == CAUSE_CANCELLED && has_open_lease(look) &&
        definitions_shape(&look->world->definitions, look->definition) != SHAPE_SMALL)
        world_hit(look->world, HIT_LARGE_CANCELLED);
    look->judged->turned_back = true;
    if (entry->reason == CAUSE_DEADLINE)
        check_deadline(look, entry);
    if (entry->reason == CAUSE_UNKNOWN && look->judged->of[entry->step][0].asked)
        world_hit(look->world, HIT_PROBE_GIVEN_UP);
}

/* Each action may have run before; what was sent then may land until settle time is over. */
static void judge_suspect(const struct look *look, const struct journal_entry *entry)
{
    if (entry->seq != 1 || entry->leased_at_ms <= 0 || entry->leased_at_ms > entry->finished_at_ms)
        world_violate(look->world, INV_SUSPECT, "%s: #%" PRId64 " from %" PRId64 " to %" PRId64,
                      id_of(look), entry->seq, entry->leased_at_ms, entry->finished_at_ms);
    look->judged->suspect = true;
    for (size_t i = 0; i < look->definition->step_count; i++)
        look->judged->of[i][0] = (struct judged_operation){ .unsettled = 1,
                                                            .settle_from_ms = entry->finished_at_ms,
                                                            .window_from_ms = entry->leased_at_ms };
}

/* That leases and budgets follow it is for whoever decides by them; here the deadline alone. */
static void judge_options(const struct look *look, const struct journal_entry *entry)
{
    int64_t deadline_ms;
    world_hit(look->world, HIT_OPTIONS_SET);
    if (!sets_deadline(entry, &deadline_ms))
        return;
    world_hit(look->world, HIT_DEADLINE_SET);
    if (look->judged->turned_back || look->saga->row.deadline_at_ms != deadline_ms)
        world_violate(look->world, INV_DEADLINE,
                      "%s: #%" PRId64 " sets a deadline of %" PRId64 ", the row says %" PRId64,
                      id_of(look), entry->seq, deadline_ms, look->saga->row.deadline_at_ms);
}

void invariants_entry(const struct look *look, const struct journal_entry *entry)
{
    switch (entry->kind) {
    case ENTRY_LEASE:
        judge_grant(look, entry);
        return;
    case ENTRY_COMPENSATE:
        judge_turn_back(look, entry);
        return;
    case ENTRY_PARK:
        judge_park(look, entry);
        return;
    case ENTRY_LATE_REPORT:
        judge_late(look, entry);
        return;
    case ENTRY_RETRY:
        judge_retry(look, entry);
        return;
    case ENTRY_RESUME:
        world_hit(look->world, entry->about ? HIT_RESUMED : HIT_SETTLED_RESUMED);
        return;
    case ENTRY_END:
        world_hit(look->world, HIT_END_WRITTEN);
        return;
    case ENTRY_RESOLVE:
        judge_resolve(look, entry);
        return;
    case ENTRY_SKIP:
        judge_skip(look, entry);
        return;
    case ENTRY_PROBE:
    case ENTRY_MAYBE:
        judge_probing(look, entry);
        return;
    case ENTRY_ACCEPT:
    case ENTRY_CONTINUE:
        judge_passed(look, entry);
        return;
    case ENTRY_PENDING:
        judge_pending(look, entry);
        return;
    case ENTRY_SUSPECT:
        judge_suspect(look, entry);
        return;
    case ENTRY_OPTIONS:
        judge_options(look, entry);
        return;
    case ENTRY_SIGNAL:
    case ENTRY_RECEIVE:
    case ENTRY_ABANDON: /* an end: judged as one */
    case ENTRY_KIND_COUNT:
        return;
    }
}
