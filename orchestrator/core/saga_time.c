/* What time alone brings about. */
#include "core/saga_internal.h"

#include <inttypes.h>
#include <stdio.h>

static int expire(struct change *change, int64_t seq)
{
    char message[320];
    (void)snprintf(message, sizeof message, "worker %.200s did not report before its lease ended",
                   saga_slot(change->saga, seq)->entry.worker);
    struct report report = { .outcome = OUTCOME_EXPIRED,
                             .error_code = "LEASE_EXPIRED",
                             .error_message = message };
    change->transition->only_if_expired = true;
    return decide_ending(change, seq, &report);
}

static int give_up(struct change *change, int step, enum operation operation, enum cause cause,
                   const char *code, const char *message)
{
    if (operation == OPERATION_PROBE)
        return decide_given_up(change, step, code, message);
    const struct operation_rule *rule = saga_rule(change->saga, (size_t)step, operation);
    bool unsettled = saga_attempts(change->saga, (size_t)step, operation)->unsettled > 0;
    if (operation == OPERATION_COMPENSATION && !(unsettled && rule->probe))
        return change_park(change, PARK_COMPENSATION_FAILED, step, operation, code, message);
    if (unsettled)
        return decide_unknown(change, step, operation, PARK_OUTCOME_UNKNOWN, code, message);
    return decide_exhausted(change, step, cause, code, message);
}

static int window_over(struct change *change, int step, enum operation operation)
{
    char message[320];
    (void)snprintf(message, sizeof message,
                   "the other side may have forgotten the idempotency key of handler \"%s\": it "
                   "remembers it for %" PRId64 " ms",
                   saga_rule(change->saga, (size_t)step, operation)->handler,
                   saga_rule(change->saga, (size_t)step, operation)->window_ms);
    return decide_unknown(change, step, operation, PARK_IDEMPOTENCY_WINDOW_OVER, "WINDOW_OVER",
                          message);
}

static int may_have_run(struct change *change, int step)
{
    char message[160];
    (void)snprintf(message, sizeof message,
                   "step \"%s\" may have run before this saga took it over",
                   change->saga->definition->steps[step].name);
    return decide_unknown(change, step, OPERATION_ACTION, PARK_OUTCOME_UNKNOWN, "MAY_HAVE_RUN",
                          message);
}

static int stop(struct change *change, int step, enum operation operation, enum stop why)
{
    const struct saga *saga = change->saga;
    const struct operation_rule *rule = saga_rule(saga, (size_t)step, operation);
    char message[320];
    if (why == STOP_SIGNAL)
        return 0; /* change_close receives it */
    if (why == STOP_SUSPECT)
        return may_have_run(change, step);
    if (why == STOP_LIMIT) {
        (void)snprintf(message, sizeof message,
                       "the journal holds %zu entries (limit %d, %d kept free) and %" PRId64
                       " bytes (limit %d)",
                       saga->count, LIMIT_JOURNAL_ENTRIES, LIMIT_JOURNAL_RESERVE, saga->bytes,
                       LIMIT_JOURNAL_BYTES);
        return change_park(change, PARK_LIMIT_REACHED, step, operation, "JOURNAL_LIMIT", message);
    }
    if (why == STOP_TASK_LIMIT) {
        (void)snprintf(message, sizeof message,
                       "the input (%zu bytes) and the outputs so far (%" PRId64
                       " bytes) are over the limit of a task (%d)",
                       saga->row.input.size, saga->output_bytes, LIMIT_TASK_BYTES);
        return change_park(change, PARK_LIMIT_REACHED, step, operation, "TASK_LIMIT", message);
    }
    const char *signal = saga->definition->steps[step].signal;
    if (why == STOP_START_TIMEOUT && operation == OPERATION_ACTION && signal) {
        (void)snprintf(message, sizeof message, "signal \"%s\" did not come within %" PRId64 " ms",
                       signal, rule->start_timeout_ms);
        return give_up(change, step, operation, CAUSE_START_TIMEOUT, "NO_SIGNAL", message);
    }
    if (why == STOP_START_TIMEOUT) {
        (void)snprintf(message, sizeof message,
                       "no worker took handler \"%s\" within %" PRId64 " ms", rule->handler,
                       rule->start_timeout_ms);
        return give_up(change, step, operation, CAUSE_START_TIMEOUT, "NO_WORKER", message);
    }
    if (why == STOP_WINDOW)
        return window_over(change, step, operation);
    const struct slot *last =
        saga_slot(saga, saga_attempts(saga, (size_t)step, operation)->ended_seq);
    if (last && last->entry.error_code)
        return give_up(change, step, operation, CAUSE_EXHAUSTED, last->entry.error_code,
                       last->entry.error_message);
    (void)snprintf(message, sizeof message, "the retry budget of handler \"%s\" is spent",
                   rule->handler);
    return give_up(change, step, operation, CAUSE_EXHAUSTED, "BUDGET_SPENT", message);
}

/* Without an operation that is left the end follows, by change_close. */
static int decide_undecided(struct change *change, size_t step, enum operation operation)
{
    if (operation == OPERATION_COUNT)
        return 0;
    const struct saga *saga = change->saga;
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    const struct slot *last = saga_slot(saga, attempts->ended_seq);
    const char *code = last ? last->entry.error_code : NULL;
    const char *message = last ? last->entry.error_message : NULL;
    if (attempts->foreign) /* what took its place as the reason is cleared up */
        return change_park(change, PARK_FOREIGN_EFFECT, (int)step, operation,
                           code ? code : "FOREIGN_EFFECT", message);
    if (!attempts->rejected)
        return decide_unknown(change, (int)step, operation, PARK_OUTCOME_UNKNOWN, code, message);
    if (operation == OPERATION_COMPENSATION)
        return change_park(change, PARK_COMPENSATION_FAILED, (int)step, operation, code, message);
    return change_refused(change, (int)step, code, message);
}

/* False: nothing is due. */
static bool decide_due(struct change *change, bool expiry_allowed, int *ret_rc)
{
    struct saga *saga = change->saga;
    size_t step = 0;
    enum operation operation = OPERATION_ACTION;
    if (plan_undecided(saga, &step, &operation)) {
        *ret_rc = decide_undecided(change, step, operation);
        return true;
    }
    int64_t open = plan_open_lease(saga);
    if (open > 0 && expiry_allowed &&
        saga_slot(saga, open)->entry.lease_until_ms < change->now_ms) {
        *ret_rc = expire(change, open);
        return true;
    }
    if (plan_deadline_is_due(saga, change->now_ms)) {
        *ret_rc = change_deadline(change);
        return true;
    }
    enum stop why = plan_stop_due(saga, change->now_ms, &step, &operation);
    if (why == STOP_NONE)
        return false;
    *ret_rc = stop(change, (int)step, operation, why);
    return true;
}

int saga_on_time(struct saga *saga, int64_t now_ms, bool expiry_allowed, struct rng *rng,
                 struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    struct transition transition;
    struct change change = change_begin(saga, now_ms, rng, &transition, err);
    enum verdict verdict = VERDICT_NOTHING;
    int rc = 0;
    if (decide_due(&change, expiry_allowed, &rc)) {
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
