#include "core/retry.h"
#include "core/saga_internal.h"

static int64_t finished_at(const struct saga *saga, int64_t seq)
{
    const struct slot *slot = saga_slot(saga, seq);
    return slot ? slot->entry.finished_at_ms : 0;
}

int plan_forward(const struct saga *saga)
{
    for (size_t i = 0; i < saga->definition->step_count; i++) {
        const struct attempts *action = &saga->steps[i].of[OPERATION_ACTION];
        if (!action->done && !action->passed)
            return (int)i;
    }
    return -1;
}

bool plan_is_repeatable(const struct saga *saga, size_t step, enum operation operation)
{
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    return saga_rule(saga, step, operation)->effect == EFFECT_IDEMPOTENT && !attempts->probing &&
           !attempts->given_up;
}

bool plan_is_probed(const struct saga *saga, size_t step, enum operation operation)
{
    const struct operation_rule *rule = saga_rule(saga, step, operation);
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    return rule->probe && attempts->unsettled > 0 && !attempts->given_up &&
           (rule->effect == EFFECT_PROBED || attempts->probing);
}

bool plan_needs_compensation(const struct saga *saga, size_t step)
{
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    return saga->definition->steps[step].has_compensation &&
           !saga_attempts(saga, step, OPERATION_COMPENSATION)->done &&
           (action->done || action->unsettled > 0);
}

int plan_backward(const struct saga *saga)
{
    for (size_t i = saga->definition->step_count; i-- > 0;)
        if (plan_needs_compensation(saga, i))
            return (int)i;
    return -1;
}

bool plan_current(const struct saga *saga, size_t *ret_step, enum operation *ret_operation)
{
    bool forward = saga->at.phase == SAGA_RUNNING;
    int step = forward ? plan_forward(saga) : plan_backward(saga);
    if (step < 0 || saga_state_is_terminal(saga->at.state))
        return false;
    *ret_step = (size_t)step;
    *ret_operation = forward ? OPERATION_ACTION : OPERATION_COMPENSATION;
    if (plan_is_probed(saga, (size_t)step, saga_probed(saga, (size_t)step)))
        *ret_operation = OPERATION_PROBE;
    return true;
}

bool plan_undecided(const struct saga *saga)
{
    bool active = saga->at.state == SAGA_RUNNING || saga->at.state == SAGA_COMPENSATING;
    if (!active || saga->open_count)
        return false;
    size_t step = 0;
    enum operation operation = OPERATION_ACTION;
    if (!plan_current(saga, &step, &operation))
        return true; /* the end */
    if (operation == OPERATION_PROBE)
        return false;
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    return attempts->rejected || attempts->foreign ||
           (attempts->unsettled > 0 && !plan_is_repeatable(saga, step, operation));
}

int64_t plan_open_lease(const struct saga *saga)
{
    return saga->open_count ? saga->last_lease_seq : -1;
}

int64_t plan_backoff_until_ms(const struct saga *saga, size_t step, enum operation operation)
{
    const struct slot *slot = saga_slot(saga, saga_attempts(saga, step, operation)->backoff_seq);
    return slot ? slot->entry.retry_at_ms : 0;
}

/* Two things may still happen to a saga that turned back: the worker of a lost stream works on
 * until its lease ends (any step's, since no compensation may run beside it), and a request of the
 * step's own unsettled attempts may still be on its way. Kept for the last such attempt; earlier
 * ones began and ended earlier. */
int64_t plan_settle_until_ms(const struct saga *saga, size_t step)
{
    int64_t until = 0;
    for (size_t i = 0; i < saga->definition->step_count; i++) {
        const struct slot *lost = saga_slot(saga, saga->steps[i].of[OPERATION_ACTION].lost_seq);
        if (lost)
            until = larger(until, lost->entry.lease_until_ms);
    }
    const struct step_rule *rule = &saga->definition->steps[step];
    if (rule->guarded || saga_attempts(saga, step, OPERATION_ACTION)->unsettled == 0)
        return until;
    return larger(until, plan_settled_at_ms(saga, step, OPERATION_ACTION));
}

int64_t plan_settled_at_ms(const struct saga *saga, size_t step, enum operation operation)
{
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    /* A lease that expired was over when it was ended; one whose stream was lost was not. */
    int64_t from =
        larger(finished_at(saga, attempts->unknown_seq), finished_at(saga, attempts->late_seq));
    const struct slot *lost = saga_slot(saga, attempts->lost_seq);
    if (lost)
        from = larger(from, lost->entry.lease_until_ms);
    return from ? from + larger(saga->definition->steps[step].settle_ms, 0) : 0;
}

int64_t plan_send_before_ms(const struct saga *saga, size_t step, enum operation operation)
{
    const struct operation_rule *rule = saga_rule(saga, step, operation);
    const struct slot *first = saga_slot(saga, saga_attempts(saga, step, operation)->window_seq);
    if (!rule->window_ms || !first)
        return 0;
    /* So long before the end of the window that what is sent last has arrived by then. */
    return first->entry.leased_at_ms + rule->window_ms -
           larger(saga->definition->steps[step].settle_ms, 0);
}

int64_t plan_not_before_ms(const struct saga *saga, size_t step, enum operation operation)
{
    int64_t until = plan_backoff_until_ms(saga, step, operation);
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    /* "It did not happen" said nothing of a request that is still on its way. */
    if (attempts->not_done_seq > attempts->unknown_seq)
        until = larger(until, plan_settled_at_ms(saga, step, operation));
    if (operation == OPERATION_COMPENSATION)
        until = larger(until, plan_settle_until_ms(saga, step));
    return until;
}

int64_t plan_suspended_ms(const struct saga *saga, int64_t since_seq)
{
    int64_t sum = 0;
    for (int64_t seq = saga->resumed_seq; seq > since_seq; seq--) {
        const struct journal_entry *entry = &saga_slot(saga, seq)->entry;
        if (entry->kind == ENTRY_RESUME && entry->about)
            sum += larger(entry->finished_at_ms - finished_at(saga, entry->about), 0);
    }
    return sum;
}

int64_t plan_deadline_ms(const struct saga *saga)
{
    int64_t deadline = saga->row.deadline_at_ms;
    return deadline ? deadline + plan_suspended_ms(saga, 0) : 0;
}

int64_t plan_since_ms(const struct saga *saga, size_t step, enum operation operation)
{
    /* While steps are a sequence, the operation before it is the last lease that ended. */
    int64_t since = larger(saga->row.started_at_ms, finished_at(saga, saga->moved_seq));
    since = larger(since, finished_at(saga, saga->last_lease_seq));
    return larger(since, plan_not_before_ms(saga, step, operation));
}

bool plan_deadline_is_due(const struct saga *saga, int64_t now_ms)
{
    if (saga->at.state != SAGA_RUNNING || !saga->row.deadline_at_ms)
        return false;
    int64_t deadline = plan_deadline_ms(saga);
    if (now_ms < deadline)
        return false;
    /* A person who goes on after the deadline has seen it: it parks only once. */
    return saga->definition->on_deadline != ON_DEADLINE_PARK ||
           (!saga->deadline_parked && finished_at(saga, saga->retry_seq) < deadline);
}

bool plan_limit_reached(const struct saga *saga)
{
    return saga->count >= LIMIT_JOURNAL_ENTRIES - LIMIT_JOURNAL_RESERVE ||
           saga->bytes > LIMIT_JOURNAL_BYTES;
}

bool plan_task_is_too_large(const struct saga *saga)
{
    return saga_task_bytes(saga) > LIMIT_TASK_BYTES;
}

enum stop plan_stop(const struct saga *saga, size_t step, enum operation operation,
                    int64_t *ret_at_ms)
{
    const struct operation_rule *rule = saga_rule(saga, step, operation);
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    int64_t since = plan_since_ms(saga, step, operation);
    *ret_at_ms = since;
    if (plan_limit_reached(saga))
        return STOP_LIMIT;
    if (operation == OPERATION_ACTION && plan_task_is_too_large(saga))
        return STOP_TASK_LIMIT;
    const struct slot *first = saga_slot(saga, attempts->budget_seq);
    int64_t window_at_ms = INT64_MAX;
    if (attempts->unsettled > 0 && rule->window_ms)
        window_at_ms = plan_send_before_ms(saga, step, operation) - ATTEMPT_LEAST_MS;
    if (first) {
        int64_t first_ms = first->entry.leased_at_ms;
        /* At the end of the budget, or at once if its tries are used up. */
        if (!retry_is_spent(&rule->retry, attempts->budget_tries, first_ms, first_ms))
            *ret_at_ms = retry_until_ms(&rule->retry, first_ms) +
                         plan_suspended_ms(saga, attempts->budget_seq);
        if (*ret_at_ms <= window_at_ms)
            return STOP_SPENT;
    }
    if (window_at_ms != INT64_MAX) {
        *ret_at_ms = window_at_ms;
        return STOP_WINDOW;
    }
    if (rule->start_timeout_ms && attempts->tries == 0 && saga->row.started_at_ms) {
        *ret_at_ms = since + rule->start_timeout_ms;
        return STOP_START_TIMEOUT;
    }
    *ret_at_ms = INT64_MAX;
    return STOP_NONE;
}

size_t saga_grantable(const struct saga *saga, int64_t now_ms, struct grantable *ret, size_t max)
{
    size_t step = 0;
    enum operation operation = OPERATION_ACTION;
    bool active = saga->at.state == SAGA_RUNNING || saga->at.state == SAGA_COMPENSATING;
    if (!max || !active || saga->open_count || !plan_current(saga, &step, &operation))
        return 0;
    if (plan_undecided(saga))
        return 0;
    int64_t stop_at;
    if (plan_stop(saga, step, operation, &stop_at) != STOP_NONE && now_ms >= stop_at)
        return 0;
    int64_t since = plan_since_ms(saga, step, operation);
    if (plan_deadline_is_due(saga, now_ms) || now_ms < plan_not_before_ms(saga, step, operation))
        return 0;
    ret[0] = (struct grantable){ (uint16_t)step, operation, since ? since : now_ms,
                                 saga_rule(saga, step, operation) };
    return 1;
}

int64_t saga_grantable_at(const struct saga *saga)
{
    size_t step = 0;
    enum operation operation = OPERATION_ACTION;
    bool active = saga->at.state == SAGA_RUNNING || saga->at.state == SAGA_COMPENSATING;
    if (!active || saga->open_count || !plan_current(saga, &step, &operation))
        return INT64_MAX;
    int64_t until = plan_not_before_ms(saga, step, operation);
    return until ? until : INT64_MAX;
}

int64_t saga_due_at(const struct saga *saga)
{
    int64_t due = INT64_MAX;
    if (plan_undecided(saga))
        return 0;
    if (saga->open_count) /* it expires when lease_until is past, not when it is reached */
        due = saga_slot(saga, plan_open_lease(saga))->entry.lease_until_ms + 1;
    if (saga->at.state != SAGA_RUNNING && saga->at.state != SAGA_COMPENSATING)
        return due;
    if (plan_deadline_is_due(saga, INT64_MAX))
        due = smaller(due, plan_deadline_ms(saga));
    size_t step = 0;
    enum operation operation = OPERATION_ACTION;
    int64_t stop_at = INT64_MAX;
    if (!saga->open_count && plan_current(saga, &step, &operation))
        (void)plan_stop(saga, step, operation, &stop_at); /* the time is all that is asked */
    return smaller(due, stop_at);
}
