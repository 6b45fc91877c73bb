/* An attempt ends: by a worker's report, by its stream, by time. */
#include "core/retry.h"
#include "core/saga_internal.h"

#include <inttypes.h>
#include <stdio.h>

enum { RETRY_AFTER_MAX_MS = 24 * 3600 * 1000 };

int decide_exhausted(struct change *change, int step, enum cause cause, const char *code,
                     const char *message)
{
    const struct operation_rule *rule = saga_rule(change->saga, (size_t)step, OPERATION_ACTION);
    if (rule->on_exhausted == ON_EXHAUSTED_COMPENSATE)
        return change_compensate(change, cause, step, code, message);
    if (rule->on_exhausted == ON_EXHAUSTED_CONTINUE) {
        struct journal_entry entry = { .kind = ENTRY_CONTINUE,
                                       .step = (int16_t)step,
                                       .operation = OPERATION_ACTION,
                                       .error_code = (char *)code, /* borrowed */
                                       .error_message = (char *)message };
        return change_append(change, &entry);
    }
    return change_park(change, PARK_RETRIES_EXHAUSTED, step, OPERATION_ACTION, code, message);
}

/* What an outcome means for the next try, judged before it is recorded. */
struct again {
    bool repeatable; /* RETRY, or unknown and IDEMPOTENT; a probe always */
    bool killed;     /* one worker too many was lost with it */
    bool spent;      /* the next try would be beyond the budget */
    bool too_late;   /* or beyond the time for which its key is remembered */
    int64_t in_ms;   /* -1: not by itself */
};

static bool is_repeatable(const struct saga *saga, const struct journal_entry *lease,
                          enum outcome outcome)
{
    if (lease->operation == OPERATION_PROBE)
        return true;
    return outcome == OUTCOME_RETRY ||
           (outcome_is_unknown(outcome) &&
            plan_is_repeatable(saga, (size_t)lease->step, lease->operation));
}

/* What the next try waits for besides the back-off. */
static int64_t wait_at_least_ms(const struct change *change, const struct journal_entry *lease,
                                const struct report *report)
{
    const struct saga *saga = change->saga;
    if (report->outcome == OUTCOME_RETRY)
        return smaller(report->retry_after_ms, RETRY_AFTER_MAX_MS);
    if (report->outcome != OUTCOME_NOT_DONE)
        return 0;
    size_t step = (size_t)lease->step; /* asked too early: again when it counts */
    return plan_settled_at_ms(saga, step, saga_probed(saga, step)) - change->now_ms;
}

/* Is there no time for a next try within the idempotency window? */
static bool window_is_over(const struct saga *saga, const struct journal_entry *lease,
                           enum outcome outcome, int64_t next_ms)
{
    size_t step = (size_t)lease->step;
    bool unsettled =
        outcome_is_unknown(outcome) || saga_attempts(saga, step, lease->operation)->unsettled > 0;
    return saga_rule(saga, step, lease->operation)->window_ms && unsettled &&
           next_ms + ATTEMPT_LEAST_MS >= plan_send_before_ms(saga, step, lease->operation);
}

static struct again judge_again(const struct change *change, const struct journal_entry *lease,
                                const struct report *report)
{
    const struct saga *saga = change->saga;
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, lease->operation);
    const struct operation_rule *rule = saga_rule(saga, (size_t)lease->step, lease->operation);
    struct again again = { .in_ms = -1 };
    again.repeatable = is_repeatable(saga, lease, report->outcome);
    bool turned_back = lease->operation == OPERATION_ACTION && saga->at.phase != SAGA_RUNNING;
    if (turned_back)
        return again;
    bool lost = report->outcome == OUTCOME_EXPIRED || report->outcome == OUTCOME_STREAM_LOST;
    again.killed =
        lost && (again.repeatable || rule->probe) && attempts->losses + 1 >= rule->lost_leases_max;
    if (!again.repeatable)
        return again;
    int64_t wait_ms = retry_delay_ms(&rule->retry, attempts->budget_tries, change->rng);
    wait_ms = larger(wait_ms, wait_at_least_ms(change, lease, report));
    int64_t next_ms = change->now_ms + wait_ms;
    int64_t first_ms =
        saga_slot(saga, attempts->budget_seq)->entry.leased_at_ms +
        plan_suspended_ms(saga, attempts->budget_seq) +
        plan_held_ms(saga, (size_t)lease->step, lease->operation, attempts->budget_seq);
    again.spent = retry_is_spent(&rule->retry, attempts->budget_tries, first_ms, next_ms);
    again.too_late = window_is_over(saga, lease, report->outcome, next_ms);
    if (!again.spent && !again.too_late && !again.killed)
        again.in_ms = wait_ms;
    return again;
}

static int park_killer(struct change *change, const struct journal_entry *lease)
{
    const struct operation_rule *rule =
        saga_rule(change->saga, (size_t)lease->step, lease->operation);
    char message[256];
    (void)snprintf(message, sizeof message,
                   "%" PRId32 " leases of handler \"%s\" in a row were lost", rule->lost_leases_max,
                   rule->handler);
    return change_park(change, PARK_WORKER_KILLER, lease->step, lease->operation, "WORKER_KILLER",
                       message);
}

/* As which reason it parks. */
static enum park_reason unknown_as(const struct again *again)
{
    return again->too_late ? PARK_IDEMPOTENCY_WINDOW_OVER : PARK_OUTCOME_UNKNOWN;
}

/* A failed action. A parked saga records it and stays, but for a refusal, which turns its phase;
 * one that turned back needs no more than the record. */
static int after_action(struct change *change, const struct journal_entry *lease,
                        const struct again *again)
{
    const struct saga *saga = change->saga;
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, OPERATION_ACTION);
    if (lease->outcome == OUTCOME_REJECTED && saga->at.phase == SAGA_RUNNING)
        return change_refused(change, lease->step, lease->error_code, lease->error_message);
    if (saga->at.state != SAGA_RUNNING || plan_pending_is_due(saga))
        return 0;
    if (saga->overdue_seq && plan_deadline_is_due(saga, change->now_ms))
        return change_deadline(change); /* which waited for the pivot: it had no effect */
    if (again->killed)
        return park_killer(change, lease);
    if (again->repeatable && !again->spent && !again->too_late)
        return 0;
    if (attempts->unsettled > 0)
        return decide_unknown(change, lease->step, OPERATION_ACTION, unknown_as(again),
                              lease->error_code, lease->error_message);
    return decide_exhausted(change, lease->step, CAUSE_EXHAUSTED, lease->error_code,
                            lease->error_message);
}

/* A failed compensation: nothing but a person can help where it may not be repeated. */
static int after_compensation(struct change *change, const struct journal_entry *lease,
                              const struct again *again)
{
    const struct saga *saga = change->saga;
    if (saga->at.state != SAGA_COMPENSATING)
        return 0;
    if (lease->outcome != OUTCOME_REJECTED) {
        if (again->killed)
            return park_killer(change, lease);
        if (again->repeatable && !again->spent && !again->too_late)
            return 0;
        const struct attempts *undo =
            saga_attempts(saga, (size_t)lease->step, OPERATION_COMPENSATION);
        bool probed = saga_rule(saga, (size_t)lease->step, OPERATION_COMPENSATION)->probe;
        if (!again->repeatable || again->too_late || (probed && undo->unsettled > 0))
            return decide_unknown(change, lease->step, OPERATION_COMPENSATION, unknown_as(again),
                                  lease->error_code, lease->error_message);
    }
    return change_park(change, PARK_COMPENSATION_FAILED, lease->step, OPERATION_COMPENSATION,
                       lease->error_code, lease->error_message);
}

/* What a probe said is in its entry; what follows from it, if it settles anything, in the next. */
static int after_probe(struct change *change, int64_t seq, const struct again *again)
{
    const struct saga *saga = change->saga;
    const struct slot *slot = saga_slot(saga, seq);
    const struct journal_entry *lease = &slot->entry;
    enum operation probed = slot->of_undo ? OPERATION_COMPENSATION : OPERATION_ACTION;
    if (saga_probe_settles(saga, lease, probed, lease->outcome))
        return decide_probe_answer(change, seq, lease->step, probed, lease->outcome);
    bool active = saga->at.state == SAGA_RUNNING || saga->at.state == SAGA_COMPENSATING;
    if (!active || !plan_is_probed(saga, (size_t)lease->step, probed))
        return 0;
    if (again->killed)
        return park_killer(change, lease);
    if (!again->spent)
        return 0;
    const char *code = lease->error_code;
    return decide_given_up(change, lease->step, code ? code : "STILL_UNKNOWN",
                           lease->error_message ? lease->error_message
                                                : "the probe did not find out what became of it");
}

int decide_ending(struct change *change, int64_t seq, const struct report *report)
{
    const struct journal_entry *lease = &saga_slot(change->saga, seq)->entry;
    enum operation operation = lease->operation;
    const struct attempts *attempts = saga_attempts(change->saga, (size_t)lease->step, operation);
    struct again again = judge_again(change, lease, report);
    /* "It exists already" is our own effect if an earlier attempt may have run. */
    bool foreign =
        report->outcome == OUTCOME_ALREADY_DONE && !report->ours && attempts->unsettled == 0;
    struct ending ending = { .outcome = report->outcome,
                             .error_code = report->error_code,
                             .error_message = report->error_message,
                             .retry_in_ms = again.in_ms };
    if (outcome_is_success(report->outcome))
        ending.output = report->output;
    if (operation == OPERATION_PROBE) {
        foreign = false;
        if (saga_probe_settles(change->saga, lease, saga_probed(change->saga, (size_t)lease->step),
                               report->outcome))
            ending.retry_in_ms = -1;
    }
    int rc = change_finish(change, seq, &ending);
    if (rc || report->outcome == OUTCOME_RELEASED)
        return rc;
    if (operation == OPERATION_PROBE)
        return after_probe(change, seq, &again);
    if (foreign)
        return change_park(change, PARK_FOREIGN_EFFECT, lease->step, operation,
                           lease->error_code ? lease->error_code : "FOREIGN_EFFECT",
                           lease->error_message ? lease->error_message
                                                : "it exists already, and no attempt of this saga "
                                                  "can have made it");
    if (outcome_is_success(report->outcome))
        return change_done(change, operation);
    return operation == OPERATION_ACTION ? after_action(change, lease, &again)
                                         : after_compensation(change, lease, &again);
}

int saga_on_report(struct saga *saga, const struct report *reported, int64_t now_ms,
                   struct rng *rng, struct transition *ret, enum verdict *ret_verdict,
                   struct err *err)
{
    bool probe_s =
        reported->outcome == OUTCOME_NOT_DONE || reported->outcome == OUTCOME_STILL_UNKNOWN;
    if (!probe_s && (reported->outcome < OUTCOME_DONE || reported->outcome > OUTCOME_UNKNOWN))
        return err_field(
            err, "outcome",
            "a worker reports DONE, ALREADY_DONE, REJECTED, RETRY or UNKNOWN, and of a "
            "probe NOT_DONE or STILL_UNKNOWN, not %d",
            (int)reported->outcome);
    struct transition transition;
    struct change change = change_begin(saga, now_ms, rng, &transition, err);
    enum verdict verdict = VERDICT_STALE;
    int64_t seq = fence_seq(reported->fence);
    const struct slot *slot = saga_slot(saga, seq);
    if (slot && slot->entry.kind == ENTRY_LEASE && slot->entry.fence == reported->fence) {
        struct report report = *reported;
        if (probe_s && slot->entry.operation != OPERATION_PROBE) {
            /* Only a probe can know that; what the attempt itself did is then unknown. */
            report.outcome = OUTCOME_UNKNOWN;
            report.error_code = "NOT_A_PROBE";
            report.error_message = "only a probe may answer NOT_DONE or STILL_UNKNOWN";
        }
        bool live = slot->entry.outcome == OUTCOME_NONE;
        int rc = live ? decide_ending(&change, seq, &report)
                      : decide_late(&change, seq, &report, &verdict);
        if (!rc && !saga_state_is_terminal(saga->at.state))
            rc = change_close(&change);
        if (rc)
            return rc;
        if (live)
            verdict = VERDICT_ACCEPTED;
    }
    *ret = transition;
    *ret_verdict = verdict;
    return 0;
}

int saga_on_lease_end(struct saga *saga, int64_t seq, enum outcome outcome, int64_t now_ms,
                      struct rng *rng, struct transition *ret, enum verdict *ret_verdict,
                      struct err *err)
{
    if (outcome != OUTCOME_STREAM_LOST && outcome != OUTCOME_RELEASED)
        return err_set(err, ERR_INTERNAL, "a lease does not end as %s here", outcome_name(outcome));
    struct transition transition;
    struct change change = change_begin(saga, now_ms, rng, &transition, err);
    enum verdict verdict = VERDICT_NOTHING;
    const struct slot *slot = saga_slot(saga, seq);
    bool open = slot && slot->entry.kind == ENTRY_LEASE && slot->entry.outcome == OUTCOME_NONE;
    /* Only a repeat makes it worth while to give up on a worker that may still report. */
    if (open && outcome == OUTCOME_STREAM_LOST)
        open = saga_lease_rule(saga, seq)->effect == EFFECT_IDEMPOTENT;
    if (open) {
        struct report report = { .outcome = outcome };
        char message[320];
        (void)snprintf(message, sizeof message, "the stream of worker %.200s died",
                       slot->entry.worker);
        if (outcome == OUTCOME_STREAM_LOST) {
            report.error_code = "STREAM_LOST";
            report.error_message = message;
        }
        int rc = decide_ending(&change, seq, &report);
        if (!rc)
            rc = change_close(&change);
        if (rc)
            return rc;
        verdict = VERDICT_ACCEPTED;
    }
    *ret = transition;
    *ret_verdict = verdict;
    return 0;
}
