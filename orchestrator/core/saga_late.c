/* A report about a lease that has its outcome already: it settles, or it is evidence. */
#include "core/saga_internal.h"

#include <stdio.h>

static bool reports_effect(enum outcome outcome)
{
    return outcome_is_success(outcome) || outcome == OUTCOME_UNKNOWN;
}

/* Is it parked because the outcome of this operation is unknown? */
static bool is_parked_for(const struct saga *saga, int step, enum operation operation)
{
    enum saga_state phase = operation == OPERATION_ACTION ? SAGA_RUNNING : SAGA_COMPENSATING;
    return saga->at.state == SAGA_PARKED &&
           (saga->at.reason == PARK_OUTCOME_UNKNOWN ||
            saga->at.reason == PARK_IDEMPOTENCY_WINDOW_OVER) &&
           saga->at.park_step == step && saga->at.phase == phase;
}

/* The attempt that a person or a probe said had happened. */
static bool is_resolved_as_done(const struct saga *saga, const struct journal_entry *lease)
{
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, lease->operation);
    const struct slot *done = saga_slot(saga, attempts->done_seq);
    return attempts->done && attempts->last_seq == lease->seq &&
           (done->entry.kind == ENTRY_RESOLVE || done->entry.operation == OPERATION_PROBE);
}

/* Evidence of an effect that the record does not reckon with, and that nothing will take back or
 * make harmless by itself. settles: the report was or confirms the unknown that is reckoned with.
 */
static bool speaks_against(const struct saga *saga, const struct journal_entry *lease,
                           enum outcome outcome, bool settles)
{
    if (!reports_effect(outcome) || settles)
        return false;
    size_t step = (size_t)lease->step;
    if (is_resolved_as_done(saga, lease))
        return false; /* it is known already */
    const struct step_rule *rule = &saga->definition->steps[step];
    const struct operation_rule *operation = saga_rule(saga, step, lease->operation);
    bool idempotent = operation->effect == EFFECT_IDEMPOTENT;
    if (operation->fresh_key && /* the next attempt had another key */
        lease->seq < saga_attempts(saga, step, lease->operation)->not_done_seq)
        idempotent = false;
    if (lease->operation == OPERATION_COMPENSATION)
        return !idempotent;
    if (saga_attempts(saga, step, OPERATION_COMPENSATION)->last_seq)
        return !rule->guarded; /* the guard refuses an action after its compensation */
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    if (saga->at.phase == SAGA_COMPENSATING && rule->has_compensation && !action->done &&
        action->unsettled == 0)
        return true; /* recorded as without effect: no compensation is planned */
    if (action->passed_seq && !action->done && action->unsettled == 0)
        return true; /* it went on as without it */
    return !idempotent;
}

static int late_settled(struct change *change, const struct journal_entry *lease,
                        const struct report *report, bool foreign)
{
    const struct saga *saga = change->saga;
    int step = lease->step;
    enum operation operation = lease->operation;
    bool parked_for = is_parked_for(saga, step, operation);
    const struct attempts *attempts = saga_attempts(saga, (size_t)step, operation);
    if (foreign)
        return change_park(change, PARK_FOREIGN_EFFECT, step, operation,
                           report->error_code ? report->error_code : "FOREIGN_EFFECT",
                           report->error_message);
    if (outcome_is_success(report->outcome)) {
        int rc = change_done(change, operation);
        if (rc)
            return rc;
    }
    if (attempts->passed_seq)
        return 0; /* the saga went on without it: what it says is recorded */
    if (report->outcome == OUTCOME_REJECTED && operation == OPERATION_COMPENSATION) {
        if (saga->at.state == SAGA_COMPENSATING || parked_for)
            return change_park(change, PARK_COMPENSATION_FAILED, step, operation,
                               report->error_code, report->error_message);
        return 0;
    }
    /* A refusal turns back whatever else is unsettled: that is compensated as maybe. */
    if (parked_for && (attempts->unsettled == 0 || report->outcome == OUTCOME_REJECTED)) {
        int rc = change_resume(change, step, operation);
        if (rc)
            return rc;
    }
    if (report->outcome == OUTCOME_REJECTED && saga->at.phase == SAGA_RUNNING)
        return change_refused(change, step, report->error_code, report->error_message);
    return parked_for ? change_deadline(change) : 0;
}

static int park_late_effect(struct change *change, const struct journal_entry *lease,
                            const struct report *report)
{
    char message[320];
    (void)snprintf(message, sizeof message,
                   "worker %.200s reported %s on a lease that had ended as %s", lease->worker,
                   outcome_name(report->outcome), outcome_name(lease->outcome));
    return change_park(change, PARK_LATE_EFFECT, lease->step, lease->operation, "LATE_EFFECT",
                       message);
}

/* A probe: what it found out counts as if it had come in time, while nobody asks anew. */
static int late_probe(struct change *change, int64_t seq, const struct report *report,
                      enum verdict *ret_verdict)
{
    const struct saga *saga = change->saga;
    const struct slot *slot = saga_slot(saga, seq);
    const struct journal_entry *lease = &slot->entry;
    enum operation probed = slot->of_undo ? OPERATION_COMPENSATION : OPERATION_ACTION;
    *ret_verdict = VERDICT_STALE;
    if (plan_lease_of(saga, (size_t)lease->step) ||
        !saga_probe_settles(saga, lease, probed, report->outcome))
        return 0;
    struct journal_entry late = {
        .kind = ENTRY_LATE_REPORT,
        .step = lease->step,
        .operation = OPERATION_PROBE,
        .outcome = report->outcome,
        .about = seq,
    };
    if (report->outcome == OUTCOME_DONE)
        late.output = report->output;
    int rc = change_append(change, &late);
    if (rc)
        return rc;
    *ret_verdict = VERDICT_ACCEPTED;
    return decide_probe_answer(change, (int64_t)saga->count, lease->step, probed, report->outcome);
}

/* The lease had been ended by us: EXPIRED, STREAM_LOST or RELEASED. */
static int late_first(struct change *change, int64_t seq, const struct report *report,
                      enum verdict *ret_verdict)
{
    const struct saga *saga = change->saga;
    const struct journal_entry *lease = &saga_slot(saga, seq)->entry;
    if (lease->operation == OPERATION_PROBE)
        return late_probe(change, seq, report, ret_verdict);
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, lease->operation);
    bool resolves = saga_late_resolves(saga, lease);
    bool settles = resolves && report->outcome != OUTCOME_UNKNOWN;
    /* Ours if it says so, or if an attempt before this one may have run. */
    bool foreign =
        report->outcome == OUTCOME_ALREADY_DONE && !report->ours && attempts->unsettled == 1;
    bool against = speaks_against(saga, lease, report->outcome, resolves);
    bool parks =
        against && !saga_is_parked_at(saga, PARK_LATE_EFFECT, lease->step, lease->operation);
    *ret_verdict = settles ? VERDICT_ACCEPTED : VERDICT_STALE;
    /* Evidence must not eat up what the journal keeps for decisions. */
    if (!resolves && !parks && saga->count >= LIMIT_JOURNAL_ENTRIES - LIMIT_JOURNAL_RESERVE / 2)
        return 0;
    struct journal_entry late = {
        .kind = ENTRY_LATE_REPORT,
        .step = lease->step,
        .operation = lease->operation,
        .outcome = report->outcome,
        .about = seq,
        .error_code = (char *)report->error_code, /* borrowed: change_append copies */
        .error_message = (char *)report->error_message,
    };
    if (outcome_is_success(report->outcome))
        late.output = report->output;
    int rc = change_append(change, &late);
    if (rc)
        return rc;
    if (settles)
        return late_settled(change, lease, report, foreign);
    return parks ? park_late_effect(change, lease, report) : 0;
}

/* The end is final: the report is kept beside it. */
static int late_after_end(struct change *change, const struct report *report, bool effect)
{
    struct saga *saga = change->saga;
    struct transition *transition = change->transition;
    transition->late_row = true;
    transition->late = (struct late_report){
        .fence = report->fence,
        .outcome = report->outcome,
        .output = report->output,
        .error_code = report->error_code,
        .error_message = report->error_message,
        .effect = effect,
    };
    if (transition->late.effect && !saga->at.doubt) {
        saga->at.doubt = saga->row.doubt = true;
        transition->changes_row = true;
    }
    return 0;
}

int decide_late(struct change *change, int64_t seq, const struct report *report,
                enum verdict *ret_verdict)
{
    const struct slot *slot = saga_slot(change->saga, seq);
    const struct slot *late = saga_slot(change->saga, slot->late_seq);
    *ret_verdict = VERDICT_STALE;
    if (slot->entry.outcome == report->outcome) {
        *ret_verdict = VERDICT_DUPLICATE;
        return 0;
    }
    if (late && late->entry.outcome == report->outcome) { /* as it was answered the first time */
        if (slot->late_settled || slot->entry.operation == OPERATION_PROBE)
            *ret_verdict = VERDICT_DUPLICATE;
        return 0;
    }
    if (saga_state_is_terminal(change->saga->at.state))
        return late_after_end(change, report,
                              slot->entry.operation != OPERATION_PROBE &&
                                  reports_effect(report->outcome));
    /* The worker's own word stands; a lease has one late report at most. */
    bool ended_by_us = slot->entry.outcome == OUTCOME_EXPIRED ||
                       slot->entry.outcome == OUTCOME_STREAM_LOST ||
                       slot->entry.outcome == OUTCOME_RELEASED;
    return ended_by_us && !late ? late_first(change, seq, report, ret_verdict) : 0;
}

bool saga_report_answers(const struct saga *saga, const struct report *report)
{
    const struct slot *slot = saga_slot(saga, fence_seq(report->fence));
    if (!slot || slot->entry.kind != ENTRY_LEASE || slot->entry.fence != report->fence ||
        !outcome_is_success(report->outcome))
        return false;
    const struct journal_entry *lease = &slot->entry;
    bool is_open = lease->outcome == OUTCOME_NONE;
    if (lease->operation == OPERATION_PROBE)
        return true;
    if (!is_open && !saga_late_resolves(saga, lease))
        return false;
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, lease->operation);
    bool is_ours = report->outcome != OUTCOME_ALREADY_DONE || report->ours;
    return is_ours || attempts->unsettled > (is_open ? 0 : 1); /* as where it is decided */
}
