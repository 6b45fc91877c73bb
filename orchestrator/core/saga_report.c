/* An attempt ends: by a worker's report, by its stream, by time. */
#include "core/retry.h"
#include "core/saga_internal.h"

#include <stdio.h>

enum { RETRY_AFTER_MAX_MS = 24 * 3600 * 1000 };

int decide_unknown(struct change *change, int step, const char *code, const char *message)
{
    const struct operation_rule *rule = saga_rule(change->saga, (size_t)step, OPERATION_ACTION);
    if (rule->on_unknown == ON_UNKNOWN_COMPENSATE)
        return change_compensate(change, CAUSE_UNKNOWN, step, code, message);
    return change_park(change, PARK_OUTCOME_UNKNOWN, step, OPERATION_ACTION, code, message);
}

int decide_exhausted(struct change *change, int step, enum cause cause, const char *code,
                     const char *message)
{
    const struct operation_rule *rule = saga_rule(change->saga, (size_t)step, OPERATION_ACTION);
    if (rule->on_exhausted == ON_EXHAUSTED_COMPENSATE)
        return change_compensate(change, cause, step, code, message);
    return change_park(change, PARK_RETRIES_EXHAUSTED, step, OPERATION_ACTION, code, message);
}

/* What an outcome means for the next try, judged before it is recorded. */
struct again {
    bool repeatable; /* RETRY, or unknown and IDEMPOTENT */
    bool killed;     /* one worker too many was lost with it */
    bool spent;      /* the next try would be beyond the budget */
    int64_t in_ms;   /* -1: not by itself */
};

static struct again judge_again(const struct change *change, const struct journal_entry *lease,
                                const struct report *report)
{
    const struct saga *saga = change->saga;
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, lease->operation);
    const struct operation_rule *rule = saga_rule(saga, (size_t)lease->step, lease->operation);
    struct again again = { .in_ms = -1 };
    again.repeatable = report->outcome == OUTCOME_RETRY ||
                       (outcome_is_unknown(report->outcome) && rule->effect == EFFECT_IDEMPOTENT);
    bool turned_back = lease->operation == OPERATION_ACTION && saga->at.phase != SAGA_RUNNING;
    if (!again.repeatable || turned_back)
        return again;
    bool lost = report->outcome == OUTCOME_EXPIRED || report->outcome == OUTCOME_STREAM_LOST;
    again.killed = lost && attempts->losses + 1 >= WORKER_KILLER_LOSSES;
    int64_t wait_ms = retry_delay_ms(&rule->retry, attempts->budget_tries, change->rng);
    int64_t after_ms = report->outcome == OUTCOME_RETRY ? report->retry_after_ms : 0;
    if (after_ms > RETRY_AFTER_MAX_MS)
        after_ms = RETRY_AFTER_MAX_MS;
    if (wait_ms < after_ms)
        wait_ms = after_ms;
    int64_t first_ms = saga_slot(saga, attempts->budget_seq)->entry.leased_at_ms;
    again.spent =
        retry_is_spent(&rule->retry, attempts->budget_tries, first_ms, change->now_ms + wait_ms);
    if (!again.spent && !again.killed)
        again.in_ms = wait_ms;
    return again;
}

static int park_killer(struct change *change, const struct journal_entry *lease)
{
    const struct operation_rule *rule =
        saga_rule(change->saga, (size_t)lease->step, lease->operation);
    char message[256];
    (void)snprintf(message, sizeof message, "%d leases of handler \"%s\" in a row were lost",
                   WORKER_KILLER_LOSSES, rule->handler);
    return change_park(change, PARK_WORKER_KILLER, lease->step, lease->operation, "WORKER_KILLER",
                       message);
}

/* A failed action. A parked saga records it and stays, but for a refusal, which turns its phase;
 * one that turned back needs no more than the record. */
static int after_action(struct change *change, const struct journal_entry *lease,
                        const struct again *again)
{
    const struct saga *saga = change->saga;
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, OPERATION_ACTION);
    if (lease->outcome == OUTCOME_REJECTED && saga->at.phase == SAGA_RUNNING)
        return change_compensate(change, CAUSE_REFUSED, lease->step, lease->error_code,
                                 lease->error_message);
    if (saga->at.state != SAGA_RUNNING)
        return 0;
    if (!again->repeatable)
        return decide_unknown(change, lease->step, lease->error_code, lease->error_message);
    if (again->killed)
        return park_killer(change, lease);
    if (!again->spent)
        return 0;
    if (attempts->unsettled > 0)
        return decide_unknown(change, lease->step, lease->error_code, lease->error_message);
    return decide_exhausted(change, lease->step, CAUSE_EXHAUSTED, lease->error_code,
                            lease->error_message);
}

/* A failed compensation: nothing but a person can help where it may not be repeated. */
static int after_compensation(struct change *change, const struct journal_entry *lease,
                              const struct again *again)
{
    if (change->saga->at.state != SAGA_COMPENSATING)
        return 0;
    enum park_reason reason = PARK_COMPENSATION_FAILED;
    if (lease->outcome != OUTCOME_REJECTED) {
        if (again->killed)
            return park_killer(change, lease);
        if (again->repeatable && !again->spent)
            return 0;
        if (!again->repeatable)
            reason = PARK_OUTCOME_UNKNOWN;
    }
    return change_park(change, reason, lease->step, OPERATION_COMPENSATION, lease->error_code,
                       lease->error_message);
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
    int rc = change_finish(change, seq, &ending);
    if (rc || report->outcome == OUTCOME_RELEASED)
        return rc;
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

int saga_on_report(struct saga *saga, const struct report *report, int64_t now_ms, struct rng *rng,
                   struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    if (report->outcome < OUTCOME_DONE || report->outcome > OUTCOME_UNKNOWN)
        return err_field(err, "outcome",
                         "a worker reports DONE, ALREADY_DONE, REJECTED, RETRY or "
                         "UNKNOWN, not %d",
                         (int)report->outcome);
    struct transition transition;
    struct change change = change_begin(saga, now_ms, rng, &transition, err);
    enum verdict verdict = VERDICT_STALE;
    int64_t seq = fence_seq(report->fence);
    const struct slot *slot = saga_slot(saga, seq);
    if (slot && slot->entry.kind == ENTRY_LEASE && slot->entry.fence == report->fence) {
        bool live = slot->entry.outcome == OUTCOME_NONE;
        int rc = live ? decide_ending(&change, seq, report)
                      : decide_late(&change, seq, report, &verdict);
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
        open = saga_rule(saga, (size_t)slot->entry.step, slot->entry.operation)->effect ==
               EFFECT_IDEMPOTENT;
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
