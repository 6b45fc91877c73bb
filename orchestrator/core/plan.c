#include "core/retry.h"
#include "core/saga_internal.h"

static int64_t finished_at(const struct saga *saga, int64_t seq)
{
    const struct slot *slot = saga_slot(saga, seq);
    return slot ? slot->entry.finished_at_ms : 0;
}

bool plan_is_repeatable(const struct saga *saga, size_t step, enum operation operation)
{
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    return saga_rule(saga, step, operation)->effect == EFFECT_IDEMPOTENT &&
           !attempts->probing_seq && !attempts->given_up;
}

bool plan_is_probed(const struct saga *saga, size_t step, enum operation operation)
{
    const struct operation_rule *rule = saga_rule(saga, step, operation);
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    return rule->probe && attempts->unsettled > 0 && !attempts->given_up &&
           (rule->effect == EFFECT_PROBED || attempts->probing_seq);
}

bool plan_is_suspect(const struct saga *saga, size_t step)
{
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    return action->unsettled > 0 && !action->last_seq;
}

bool plan_needs_compensation(const struct saga *saga, size_t step)
{
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    return saga->definition->steps[step].has_compensation &&
           !saga_attempts(saga, step, OPERATION_COMPENSATION)->done &&
           (action->done || action->unsettled > 0);
}

bool plan_is_all_over(const struct saga *saga)
{
    for (size_t i = 0; i < saga->definition->step_count; i++)
        if (!plan_is_over(saga, i))
            return false;
    return true;
}

bool plan_is_all_taken_back(const struct saga *saga)
{
    for (size_t i = 0; i < saga->definition->step_count; i++)
        if (plan_needs_compensation(saga, i))
            return false;
    return true;
}

static const struct attempts *pivot_of(const struct saga *saga)
{
    int pivot = saga->definition->pivot;
    return pivot >= 0 ? &saga->steps[pivot].of[OPERATION_ACTION] : NULL;
}

bool plan_pivot_is_done(const struct saga *saga)
{
    const struct attempts *pivot = pivot_of(saga);
    return pivot && pivot->done;
}

bool plan_pivot_is_under_way(const struct saga *saga)
{
    const struct attempts *pivot = pivot_of(saga);
    return pivot && !pivot->done && (pivot->open_seq || pivot->unsettled > 0);
}

bool plan_is_after_pivot(const struct saga *saga, size_t step)
{
    int pivot = saga->definition->pivot;
    return pivot >= 0 && step_set_has(&saga->definition->steps[step].after_all, (size_t)pivot);
}

bool plan_pending_is_due(const struct saga *saga)
{
    return saga->pending_seq && saga->at.phase == SAGA_RUNNING &&
           saga->at.reason != PARK_SUSPENDED && !plan_pivot_is_done(saga) &&
           !plan_pivot_is_under_way(saga);
}

struct turn plan_turns(const struct saga *saga)
{
    size_t count = saga->definition->step_count;
    struct turn turn = { .forward = saga->at.phase == SAGA_RUNNING, .left = count };
    if (saga_state_is_terminal(saga->at.state))
        turn.left = 0;
    for (size_t i = 0; turn.forward && i < count; i++)
        if (plan_is_over(saga, i))
            step_set_add(&turn.seen, i);
    return turn;
}

static bool is_turn(const struct saga *saga, struct turn *turn, size_t step)
{
    const struct step_rule *rule = &saga->definition->steps[step];
    /* All of them: what may have run before can be known to be done out of turn. */
    if (turn->forward)
        return !step_set_has(&turn->seen, step) && step_set_holds(&turn->seen, &rule->after_all);
    if (!plan_needs_compensation(saga, step))
        return false;
    bool waits = step_set_has(&turn->seen, step);
    step_set_add_all(&turn->seen, &rule->after_all);
    return !waits;
}

bool plan_next(const struct saga *saga, struct turn *turn)
{
    while (turn->left > 0) {
        size_t step = turn->forward ? saga->definition->step_count - turn->left : turn->left - 1;
        turn->left--;
        if (!is_turn(saga, turn, step))
            continue;
        turn->step = step;
        turn->operation = turn->forward ? OPERATION_ACTION : OPERATION_COMPENSATION;
        if (plan_is_probed(saga, step, saga_probed(saga, step)))
            turn->operation = OPERATION_PROBE;
        return true;
    }
    return false;
}

bool plan_is_turn_of(const struct saga *saga, size_t step, enum operation *ret_operation)
{
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);)
        if (turn.step == step) {
            *ret_operation = turn.operation;
            return true;
        }
    return false;
}

int64_t plan_lease_of(const struct saga *saga, size_t step)
{
    const struct step_summary *of = &saga->steps[step];
    int64_t open = larger(of->of[0].open_seq, of->of[1].open_seq);
    if (saga->probes)
        open = larger(open,
                      larger(saga->probes[step].of[0].open_seq, saga->probes[step].of[1].open_seq));
    return open;
}

bool plan_is_free(const struct saga *saga, const struct turn *turn)
{
    if (turn->operation == OPERATION_COMPENSATION && saga->forward_count)
        return false;
    return !saga->open_count || !plan_lease_of(saga, turn->step);
}

static bool is_active(const struct saga *saga)
{
    return saga->at.state == SAGA_RUNNING || saga->at.state == SAGA_COMPENSATING;
}

/* Something that its records lead to, and that was not decided with them. */
static bool is_undecided(const struct saga *saga, const struct turn *turn)
{
    if (turn->operation == OPERATION_PROBE || !plan_is_free(saga, turn))
        return false;
    const struct attempts *attempts = saga_attempts(saga, turn->step, turn->operation);
    if (turn->operation == OPERATION_ACTION && plan_is_suspect(saga, turn->step))
        return false; /* plan_stop says when */
    return attempts->rejected || attempts->foreign ||
           (attempts->unsettled > 0 && !plan_is_repeatable(saga, turn->step, turn->operation));
}

bool plan_undecided(const struct saga *saga, size_t *ret_step, enum operation *ret_operation)
{
    *ret_operation = OPERATION_COUNT;
    if (!is_active(saga))
        return false;
    if (plan_pending_is_due(saga))
        return true;
    bool any = false;
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) {
        any = true;
        if (!is_undecided(saga, &turn))
            continue;
        *ret_step = turn.step;
        *ret_operation = turn.operation;
        return true;
    }
    return !any && !saga->open_count; /* the end */
}

int64_t plan_open_lease(const struct saga *saga)
{
    int64_t first = 0;
    for (size_t i = 0; saga->open_count && i < saga->definition->step_count; i++) {
        int64_t seq = plan_lease_of(saga, i);
        if (seq && (!first || saga_slot(saga, seq)->entry.lease_until_ms <
                                  saga_slot(saga, first)->entry.lease_until_ms))
            first = seq;
    }
    return first;
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
    for (size_t i = 0; saga->action_lost && i < saga->definition->step_count; i++) {
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

/* When a step became over: as it was done, or as the saga went on without it. */
static int64_t over_at_ms(const struct saga *saga, size_t step)
{
    const struct attempts *action = &saga->steps[step].of[OPERATION_ACTION];
    return finished_at(saga, action->passed_seq ? action->passed_seq : action->done_seq);
}

int64_t plan_ready_at_ms(const struct saga *saga, size_t step)
{
    int64_t ready = saga->row.started_at_ms;
    const struct step_set *after = &saga->definition->steps[step].after_all;
    for (size_t i = 0; i < step; i++)
        if (step_set_has(after, i))
            ready = larger(ready, over_at_ms(saga, i));
    return ready;
}

int64_t plan_delayed_until_ms(const struct saga *saga, size_t step)
{
    int64_t delay_ms = saga->definition->steps[step].delay_ms, start_ms = saga->row.start_at_ms;
    if ((!delay_ms && !start_ms) || saga->at.phase != SAGA_RUNNING ||
        saga_attempts(saga, step, OPERATION_ACTION)->last_seq)
        return 0;
    /* A saga that has yet to be committed has not begun. */
    if (delay_ms && !saga->row.started_at_ms)
        return INT64_MAX;
    return larger(plan_ready_at_ms(saga, step), start_ms) + delay_ms;
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
    else /* nor is what may have run before it looked into any sooner */
        until = larger(until, plan_delayed_until_ms(saga, step));
    return until;
}

/* since_ms: not before, also of a suspension that had begun by then. */
static int64_t suspended_since_ms(const struct saga *saga, int64_t since_seq, int64_t since_ms)
{
    int64_t sum = 0;
    for (int64_t seq = saga->resumed_seq; seq > since_seq; seq--) {
        const struct journal_entry *entry = &saga_slot(saga, seq)->entry;
        /* Before it was to begin nothing was lost. */
        int64_t from_ms = larger(finished_at(saga, entry->about), saga->row.start_at_ms);
        from_ms = larger(from_ms, since_ms);
        if (entry->kind == ENTRY_RESUME && entry->about)
            sum += larger(entry->finished_at_ms - from_ms, 0);
    }
    return sum;
}

int64_t plan_suspended_ms(const struct saga *saga, int64_t since_seq)
{
    return suspended_since_ms(saga, since_seq, 0);
}

/* What the operation came after, that decision at the earliest. */
static int64_t turn_since_ms(const struct saga *saga, size_t step, bool forward,
                             int64_t decided_seq)
{
    int64_t since = larger(saga->row.started_at_ms, finished_at(saga, decided_seq));
    if (forward)
        return larger(since, plan_ready_at_ms(saga, step));
    for (size_t i = 0; i < saga->definition->step_count; i++) {
        const struct step_summary *other = &saga->steps[i];
        since = larger(since, finished_at(saga, other->of[OPERATION_ACTION].last_seq));
        if (step_set_has(&saga->definition->steps[i].after_all, step))
            since = larger(since, finished_at(saga, other->of[OPERATION_COMPENSATION].done_seq));
    }
    return since;
}

static int64_t operation_since_ms(const struct saga *saga, size_t step, enum operation operation,
                                  int64_t decided_seq)
{
    bool forward = saga->at.phase == SAGA_RUNNING;
    int64_t since = turn_since_ms(saga, step, forward, decided_seq);
    const struct attempts *own = saga_attempts(saga, step, operation);
    since = larger(since, finished_at(saga, larger(own->last_seq, own->not_done_seq)));
    if (operation == OPERATION_PROBE) { /* since what it asks about is not repeated any more */
        const struct attempts *about = saga_attempts(saga, step, saga_probed(saga, step));
        since = larger(since, finished_at(saga, larger(about->last_seq, about->probing_seq)));
    }
    return larger(since, plan_not_before_ms(saga, step, operation));
}

int64_t plan_since_ms(const struct saga *saga, size_t step, enum operation operation)
{
    return operation_since_ms(saga, step, operation, saga->moved_seq);
}

/* Since when it waits, however often the saga was parked meanwhile: it was held before, too. */
static int64_t wait_since_ms(const struct saga *saga, size_t step, enum operation operation)
{
    return operation_since_ms(saga, step, operation, saga->turned_back_seq);
}

/* So much since then it was both: suspended, and its handler was braked. Counted as suspended. */
static int64_t held_suspended_ms(const struct saga *saga, const struct held_times *held,
                                 int64_t from_ms)
{
    int64_t sum = 0;
    for (int64_t seq = saga->resumed_seq; seq > 0; seq--) {
        const struct journal_entry *entry = &saga_slot(saga, seq)->entry;
        if (entry->kind != ENTRY_RESUME || !entry->about)
            continue;
        if (entry->finished_at_ms <= from_ms)
            break;
        sum += held_within(held, larger(from_ms, finished_at(saga, entry->about)),
                           entry->finished_at_ms);
    }
    return sum;
}

/* So much of its wait its handler was braked. */
static int64_t held_of_wait_ms(const struct saga *saga, size_t step, enum operation operation,
                               int64_t now_ms)
{
    const struct held_times *held = saga_rule(saga, step, operation)->held;
    if (!held || !held->count)
        return 0;
    int64_t from_ms = wait_since_ms(saga, step, operation);
    return held_within(held, from_ms, now_ms) - held_suspended_ms(saga, held, from_ms);
}

int64_t plan_held_ms(const struct saga *saga, size_t step, enum operation operation,
                     int64_t since_seq)
{
    int64_t sum = 0;
    for (int64_t seq = saga->held_seq; seq > since_seq;) {
        const struct slot *slot = saga_slot(saga, seq);
        bool same = (size_t)slot->entry.step == step && slot->entry.operation == operation;
        sum += same ? slot->entry.held_ms : 0;
        seq = slot->held_before_seq;
    }
    return sum;
}

/* When the time until at_ms has passed for the operation, of which nothing counts that its handler
 * was braked in while it waited, since from_ms at the earliest. */
static int64_t wait_end_ms(const struct saga *saga, size_t step, enum operation operation,
                           int64_t from_ms, int64_t at_ms)
{
    const struct held_times *held = saga_rule(saga, step, operation)->held;
    if (!held || !held->count)
        return at_ms;
    from_ms = larger(from_ms, wait_since_ms(saga, step, operation));
    /* at_ms has the time in it for which it was suspended. */
    int64_t left_ms = at_ms - from_ms - held_suspended_ms(saga, held, from_ms);
    return left_ms > 0 ? held_until(held, from_ms, left_ms) : at_ms;
}

/* Of all its operations, after that moment, each moment once, as near as that is known: two that
 * waited side by side were granted one after the other. */
static int64_t held_of_saga_ms(const struct saga *saga, int64_t since_seq, int64_t since_ms)
{
    int64_t sum = 0;
    for (int64_t seq = saga->held_seq; seq > since_seq;) {
        const struct slot *slot = saga_slot(saga, seq);
        const struct slot *before = saga_slot(saga, slot->held_before_seq);
        int64_t from_ms = larger(before ? before->entry.leased_at_ms : 0, since_ms);
        sum += smaller(slot->entry.held_ms, larger(slot->entry.leased_at_ms - from_ms, 0));
        seq = slot->held_before_seq;
    }
    return sum;
}

/* Of several that wait the one that is braked for longest; what the last braked lease tells of is
 * over with it. */
int64_t plan_deadline_ms(const struct saga *saga)
{
    int64_t set_seq = saga->deadline_seq, set_ms = finished_at(saga, set_seq);
    if (!saga->row.deadline_at_ms)
        return 0;
    int64_t deadline = saga->row.deadline_at_ms + suspended_since_ms(saga, set_seq, set_ms) +
                       held_of_saga_ms(saga, set_seq, set_ms);
    int64_t last = deadline;
    const struct slot *told = saga_slot(saga, saga->held_seq);
    int64_t from_ms = larger(told ? told->entry.leased_at_ms : 0, set_ms);
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);)
        if (plan_is_free(saga, &turn))
            last = larger(last, wait_end_ms(saga, turn.step, turn.operation, from_ms, deadline));
    return last;
}

bool plan_deadline_is_due(const struct saga *saga, int64_t now_ms)
{
    if (saga->at.state != SAGA_RUNNING || !saga->row.deadline_at_ms ||
        now_ms < saga->row.deadline_at_ms)
        return false;
    int64_t deadline = plan_deadline_ms(saga);
    struct turn turn = plan_turns(saga);
    if (now_ms < deadline || !plan_next(saga, &turn)) /* all is done but for a lease's end */
        return false;
    if (plan_pivot_is_under_way(saga))
        return !saga->overdue_seq;
    /* A person who goes on after the deadline has seen it: it parks only once. */
    bool parks = saga->definition->on_deadline == ON_DEADLINE_PARK || plan_pivot_is_done(saga);
    return !parks || (!saga->deadline_parked && finished_at(saga, saga->retry_seq) < deadline);
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

/* It asks for no worker and no room: a full journal is no reason. */
static enum stop wait_stop(const struct saga *saga, size_t step, int64_t *ret_at_ms)
{
    int64_t timeout_ms = saga_rule(saga, step, OPERATION_ACTION)->start_timeout_ms;
    *ret_at_ms = INT64_MAX;
    if (saga_attempts(saga, step, OPERATION_ACTION)->signal_seq) {
        *ret_at_ms = plan_not_before_ms(saga, step, OPERATION_ACTION);
        return STOP_SIGNAL;
    }
    if (!timeout_ms || !saga->row.started_at_ms)
        return STOP_NONE;
    *ret_at_ms = plan_since_ms(saga, step, OPERATION_ACTION) + timeout_ms;
    return STOP_START_TIMEOUT;
}

bool plan_receives(const struct saga *saga, int64_t now_ms, size_t *ret_step)
{
    if (!saga->signals_kept || saga->at.state != SAGA_RUNNING)
        return false;
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) {
        int64_t at_ms;
        if (plan_stop(saga, turn.step, turn.operation, &at_ms) != STOP_SIGNAL || now_ms < at_ms)
            continue;
        *ret_step = turn.step;
        return true;
    }
    return false;
}

int64_t plan_retry_until_ms(const struct saga *saga, size_t step, enum operation operation)
{
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    const struct slot *first = saga_slot(saga, attempts->budget_seq);
    if (!first)
        return 0;
    return wait_end_ms(
        saga, step, operation, 0,
        retry_until_ms(&saga_rule(saga, step, operation)->retry, first->entry.leased_at_ms) +
            plan_suspended_ms(saga, attempts->budget_seq) +
            plan_held_ms(saga, step, operation, attempts->budget_seq));
}

/* The end of its budget, of the time in which it must begin, or of the window of its key: the
 * first.
 */
static enum stop time_stop(const struct saga *saga, size_t step, enum operation operation,
                           int64_t *ret_at_ms)
{
    const struct operation_rule *rule = saga_rule(saga, step, operation);
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    const struct slot *first = saga_slot(saga, attempts->budget_seq);
    enum stop why = STOP_NONE;
    *ret_at_ms = INT64_MAX;
    if (first) {
        int64_t first_ms = first->entry.leased_at_ms;
        why = STOP_SPENT;
        /* At the end of the budget, or at once if its tries are used up. */
        if (retry_is_spent(&rule->retry, attempts->budget_tries, first_ms, first_ms))
            *ret_at_ms = plan_since_ms(saga, step, operation);
        else
            *ret_at_ms = plan_retry_until_ms(saga, step, operation);
    } else if (rule->start_timeout_ms && attempts->tries == 0 && saga->row.started_at_ms) {
        why = STOP_START_TIMEOUT;
        *ret_at_ms = plan_since_ms(saga, step, operation);
        *ret_at_ms =
            wait_end_ms(saga, step, operation, *ret_at_ms, *ret_at_ms + rule->start_timeout_ms);
    }
    if (attempts->unsettled == 0 || !rule->window_ms)
        return why;
    int64_t window_at_ms = plan_send_before_ms(saga, step, operation) - ATTEMPT_LEAST_MS;
    if (operation == OPERATION_ACTION)
        window_at_ms = larger(window_at_ms, plan_delayed_until_ms(saga, step));
    if (*ret_at_ms <= window_at_ms)
        return why;
    *ret_at_ms = window_at_ms;
    return STOP_WINDOW;
}

enum stop plan_stop(const struct saga *saga, size_t step, enum operation operation,
                    int64_t *ret_at_ms)
{
    bool forward = operation == OPERATION_ACTION;
    if (forward && saga_is_wait(saga, step))
        return wait_stop(saga, step, ret_at_ms);
    if (forward && plan_is_suspect(saga, step) && !plan_is_repeatable(saga, step, operation)) {
        *ret_at_ms = plan_delayed_until_ms(saga, step);
        return STOP_SUSPECT;
    }
    bool full = plan_limit_reached(saga);
    if (full || (forward && plan_task_is_too_large(saga))) {
        *ret_at_ms = plan_since_ms(saga, step, operation);
        return full ? STOP_LIMIT : STOP_TASK_LIMIT;
    }
    return time_stop(saga, step, operation, ret_at_ms);
}

enum stop plan_stop_due(const struct saga *saga, int64_t now_ms, size_t *ret_step,
                        enum operation *ret_operation)
{
    if (!is_active(saga))
        return STOP_NONE;
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) {
        int64_t at_ms;
        enum stop why = plan_is_free(saga, &turn)
                            ? plan_stop(saga, turn.step, turn.operation, &at_ms)
                            : STOP_NONE;
        if (why == STOP_NONE || now_ms < at_ms)
            continue;
        *ret_step = turn.step;
        *ret_operation = turn.operation;
        return why;
    }
    return STOP_NONE;
}

/* To a worker, that is. */
static bool is_granted(const struct saga *saga, const struct turn *turn)
{
    return plan_is_free(saga, turn) &&
           !(turn->operation == OPERATION_ACTION && saga_is_wait(saga, turn->step));
}

size_t saga_grantable(const struct saga *saga, int64_t now_ms, struct grantable *ret, size_t max)
{
    size_t count = 0, step = 0;
    enum operation operation = OPERATION_ACTION;
    if (!is_active(saga) || plan_deadline_is_due(saga, now_ms) ||
        plan_undecided(saga, &step, &operation) ||
        plan_stop_due(saga, now_ms, &step, &operation) != STOP_NONE)
        return 0;
    for (struct turn turn = plan_turns(saga); count < max && plan_next(saga, &turn);) {
        if (!is_granted(saga, &turn) ||
            now_ms < plan_not_before_ms(saga, turn.step, turn.operation))
            continue;
        const struct operation_rule *rule = saga_rule(saga, turn.step, turn.operation);
        int64_t since_ms = plan_since_ms(saga, turn.step, turn.operation);
        ret[count++] =
            (struct grantable){ (uint16_t)turn.step, turn.operation, rule, since_ms,
                                held_of_wait_ms(saga, turn.step, turn.operation, now_ms) };
    }
    return count;
}

int64_t saga_grantable_at(const struct saga *saga, int64_t now_ms)
{
    int64_t first = INT64_MAX;
    if (!is_active(saga))
        return first;
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) {
        int64_t until = plan_not_before_ms(saga, turn.step, turn.operation);
        if (until > now_ms && is_granted(saga, &turn))
            first = smaller(first, until);
    }
    return first;
}

int64_t saga_due_at(const struct saga *saga)
{
    int64_t due = INT64_MAX;
    size_t step = 0;
    enum operation operation = OPERATION_ACTION;
    if (plan_undecided(saga, &step, &operation))
        return 0;
    int64_t open = plan_open_lease(saga);
    if (open) /* it expires when lease_until is past, not when it is reached */
        due = saga_slot(saga, open)->entry.lease_until_ms + 1;
    if (!is_active(saga))
        return due;
    if (plan_deadline_is_due(saga, INT64_MAX))
        due = smaller(due, plan_deadline_ms(saga));
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) {
        int64_t stop_at = INT64_MAX;
        if (plan_is_free(saga, &turn) &&
            plan_stop(saga, turn.step, turn.operation, &stop_at) != STOP_NONE)
            due = smaller(due, stop_at);
    }
    return due;
}
