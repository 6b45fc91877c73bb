#include "core/view.h"

#include "core/saga_internal.h"

static const char *const step_states[] = {
    [STEP_PENDING] = "PENDING",
    [STEP_READY] = "READY",
    [STEP_LEASED] = "LEASED",
    [STEP_BACKOFF] = "BACKOFF",
    [STEP_DONE] = "DONE",
    [STEP_REJECTED] = "REJECTED",
    [STEP_UNKNOWN] = "UNKNOWN",
    [STEP_NOT_RUN] = "NOT_RUN",
    [STEP_COMPENSATION_WAITING] = "COMPENSATION_WAITING",
    [STEP_COMPENSATION_READY] = "COMPENSATION_READY",
    [STEP_COMPENSATION_LEASED] = "COMPENSATION_LEASED",
    [STEP_COMPENSATION_BACKOFF] = "COMPENSATION_BACKOFF",
    [STEP_COMPENSATED] = "COMPENSATED",
    [STEP_COMPENSATION_REJECTED] = "COMPENSATION_REJECTED",
    [STEP_COMPENSATION_UNKNOWN] = "COMPENSATION_UNKNOWN",
    [STEP_EXHAUSTED] = "EXHAUSTED",
    [STEP_COMPENSATION_EXHAUSTED] = "COMPENSATION_EXHAUSTED",
    [STEP_UNCONFIRMED] = "UNCONFIRMED",
    [STEP_LEFT_OUT] = "LEFT_OUT",
    [STEP_COMPENSATION_SKIPPED] = "COMPENSATION_SKIPPED",
    [STEP_DELAYED] = "DELAYED",
    [STEP_WAITING_FOR_SIGNAL] = "WAITING_FOR_SIGNAL",
};
_Static_assert(ARRAY_LEN(step_states) == STEP_STATE_COUNT, "a name for each step state");

const char *step_state_name(enum step_state state)
{
    return (unsigned)state < STEP_STATE_COUNT ? step_states[state] : NULL;
}

static int64_t finished_at(const struct saga *saga, int64_t seq)
{
    const struct slot *slot = saga_slot(saga, seq);
    return slot ? slot->entry.finished_at_ms : 0;
}

static void set(struct step_view *view, enum step_state state, int64_t since_ms)
{
    view->state = state;
    view->since_ms = since_ms;
}

/* The step's end, as its last attempt or a late report about it left it. */
static int64_t ended_at(const struct saga *saga, const struct attempts *attempts)
{
    return larger(finished_at(saga, attempts->ended_seq), finished_at(saga, attempts->done_seq));
}

/* Since when it is not known what became of it. */
static int64_t unknown_since(const struct saga *saga, const struct attempts *attempts)
{
    return finished_at(saga, attempts->ended_seq ? attempts->ended_seq : attempts->unknown_seq);
}

static bool is_parked_at(const struct saga *saga, size_t step, enum park_reason reason)
{
    return saga->at.state == SAGA_PARKED && saga->at.reason == reason &&
           saga->at.park_step == (int)step;
}

/* An action that is neither live nor over, in a saga that goes forward. */
static void view_waiting_action(const struct saga *saga, size_t step, int64_t now_ms,
                                struct step_view *ret)
{
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    enum operation operation;
    if (!plan_is_turn_of(saga, step, &operation)) {
        set(ret, STEP_PENDING, saga->row.started_at_ms);
        return;
    }
    bool parked = saga->at.state == SAGA_PARKED;
    bool probed = plan_is_probed(saga, step, OPERATION_ACTION);
    if (is_parked_at(saga, step, PARK_RETRIES_EXHAUSTED)) {
        set(ret, STEP_EXHAUSTED, finished_at(saga, saga->park_seq));
    } else if (probed || (parked && action->unsettled > 0)) {
        set(ret, STEP_UNKNOWN, unknown_since(saga, action));
        ret->next_ms = parked ? 0 : plan_backoff_until_ms(saga, step, OPERATION_PROBE);
    } else if (plan_delayed_until_ms(saga, step) > now_ms) {
        ret->next_ms = plan_delayed_until_ms(saga, step);
        set(ret, STEP_DELAYED, plan_ready_at_ms(saga, step));
    } else if (plan_not_before_ms(saga, step, OPERATION_ACTION) > now_ms) {
        set(ret, STEP_BACKOFF,
            larger(finished_at(saga, action->backoff_seq),
                   finished_at(saga, action->not_done_seq)));
        ret->next_ms = plan_not_before_ms(saga, step, OPERATION_ACTION);
    } else if (parked) {
        set(ret, STEP_PENDING, finished_at(saga, saga->park_seq));
    } else if (saga_is_wait(saga, step)) {
        set(ret, STEP_WAITING_FOR_SIGNAL, plan_since_ms(saga, step, OPERATION_ACTION));
    } else {
        set(ret, STEP_READY, plan_since_ms(saga, step, OPERATION_ACTION));
    }
}

static void view_action(const struct saga *saga, size_t step, int64_t now_ms, struct step_view *ret)
{
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    if (action->open_seq)
        set(ret, STEP_LEASED, saga_slot(saga, action->open_seq)->entry.leased_at_ms);
    else if (action->done)
        set(ret, STEP_DONE, ended_at(saga, action));
    else if (action->foreign)
        set(ret, STEP_UNKNOWN, finished_at(saga, saga->park_seq));
    else if (action->passed_seq)
        set(ret, action->unsettled > 0 ? STEP_UNCONFIRMED : STEP_LEFT_OUT,
            action->ended_seq ? ended_at(saga, action) : finished_at(saga, action->passed_seq));
    else if (saga->at.phase == SAGA_RUNNING)
        view_waiting_action(saga, step, now_ms, ret);
    else if (action->unsettled > 0)
        set(ret, STEP_UNKNOWN, unknown_since(saga, action));
    else if (action->rejected)
        set(ret, STEP_REJECTED, ended_at(saga, action));
    else if (saga->at.state == SAGA_ABANDONED)
        set(ret, STEP_NOT_RUN, saga->row.ended_at_ms);
    else
        set(ret, STEP_NOT_RUN, finished_at(saga, saga->turned_back_seq));
}

/* The compensation that is next in turn, and not live. */
static void view_next_compensation(const struct saga *saga, size_t step, int64_t now_ms,
                                   struct step_view *ret)
{
    const struct attempts *undo = saga_attempts(saga, step, OPERATION_COMPENSATION);
    int64_t turned_back = finished_at(saga, saga->turned_back_seq);
    bool parked = saga->at.state == SAGA_PARKED;
    if (is_parked_at(saga, step, PARK_COMPENSATION_FAILED)) {
        set(ret, STEP_COMPENSATION_EXHAUSTED, finished_at(saga, saga->park_seq));
    } else if (undo->unsettled > 0 &&
               (parked || plan_is_probed(saga, step, OPERATION_COMPENSATION))) {
        set(ret, STEP_COMPENSATION_UNKNOWN, finished_at(saga, undo->ended_seq));
        ret->next_ms = parked ? 0 : plan_backoff_until_ms(saga, step, OPERATION_PROBE);
    } else if (saga->forward_count || plan_settle_until_ms(saga, step) > now_ms) {
        set(ret, STEP_COMPENSATION_WAITING, turned_back);
        ret->next_ms = saga->forward_count ? 0 : plan_settle_until_ms(saga, step);
    } else if (plan_not_before_ms(saga, step, OPERATION_COMPENSATION) > now_ms) {
        set(ret, STEP_COMPENSATION_BACKOFF,
            larger(finished_at(saga, undo->backoff_seq), finished_at(saga, undo->not_done_seq)));
        ret->next_ms = plan_not_before_ms(saga, step, OPERATION_COMPENSATION);
    } else if (parked) {
        set(ret, STEP_COMPENSATION_WAITING, turned_back);
    } else {
        set(ret, STEP_COMPENSATION_READY, plan_since_ms(saga, step, OPERATION_COMPENSATION));
    }
}

static void view_compensation(const struct saga *saga, size_t step, int64_t now_ms,
                              struct step_view *ret)
{
    const struct attempts *undo = saga_attempts(saga, step, OPERATION_COMPENSATION);
    enum operation operation;
    if (undo->open_seq)
        set(ret, STEP_COMPENSATION_LEASED, saga_slot(saga, undo->open_seq)->entry.leased_at_ms);
    else if (undo->done && saga_slot(saga, undo->done_seq)->entry.kind == ENTRY_SKIP)
        set(ret, STEP_COMPENSATION_SKIPPED, ended_at(saga, undo));
    else if (undo->done)
        set(ret, STEP_COMPENSATED, ended_at(saga, undo));
    else if (undo->foreign)
        set(ret, STEP_COMPENSATION_UNKNOWN, finished_at(saga, saga->park_seq));
    else if (undo->rejected)
        set(ret, STEP_COMPENSATION_REJECTED, ended_at(saga, undo));
    else if (plan_is_turn_of(saga, step, &operation))
        view_next_compensation(saga, step, now_ms, ret);
    else
        set(ret, STEP_COMPENSATION_WAITING, finished_at(saga, saga->turned_back_seq));
}

void saga_step_view(const struct saga *saga, size_t step, int64_t now_ms, struct step_view *ret)
{
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    const struct attempts *undo = saga_attempts(saga, step, OPERATION_COMPENSATION);
    bool back = undo->last_seq || (saga->at.phase == SAGA_COMPENSATING && !action->open_seq &&
                                   plan_needs_compensation(saga, step));
    const struct attempts *shown = back ? undo : action;
    *ret = (struct step_view){
        .operation = back ? OPERATION_COMPENSATION : OPERATION_ACTION,
        .tries = shown->tries,
        .last = saga_entry(saga, shown->last_seq),
        .maybe = action->unsettled > 0,
    };
    const struct slot *unknown = saga_slot(saga, action->unknown_seq);
    ret->suspect = ret->maybe && unknown && unknown->entry.kind == ENTRY_SUSPECT;
    if (!saga_state_is_terminal(saga->at.state) && !shown->done && !shown->passed_seq)
        ret->retry_until_ms = plan_retry_until_ms(saga, step, ret->operation);
    if (back)
        view_compensation(saga, step, now_ms, ret);
    else
        view_action(saga, step, now_ms, ret);
}

bool saga_unknown_view(const struct saga *saga, size_t step, struct unknown_view *ret)
{
    enum operation operation = saga_probed(saga, step);
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    if (attempts->unsettled == 0)
        return false;
    *ret = (struct unknown_view){
        .operation = operation,
        .attempts = attempts->unsettled,
        .last = saga_entry(saga, attempts->unknown_seq),
        .settled_ms = saga->definition->steps[step].settle_ms >= 0
                          ? plan_settled_at_ms(saga, step, operation)
                          : 0,
        .send_before_ms = plan_send_before_ms(saga, step, operation),
    };
    if (!saga_rule(saga, step, operation)->probe)
        return true;
    const struct attempts *probes = saga_attempts(saga, step, OPERATION_PROBE);
    ret->probes = probes->budget_tries;
    ret->last_probe = probes->budget_seq ? saga_entry(saga, probes->ended_seq) : NULL;
    return true;
}

static void view_wait_report(const struct saga *saga, int64_t seq, struct wait_view *ret)
{
    const struct journal_entry *lease = &saga_slot(saga, seq)->entry;
    *ret = (struct wait_view){ .kind = WAIT_REPORT,
                               .step = lease->step,
                               .operation = lease->operation,
                               .handler = saga_lease_rule(saga, lease->seq)->handler,
                               .worker = lease->worker,
                               .since_ms = lease->leased_at_ms,
                               .until_ms = lease->lease_until_ms };
}

/* Nobody holds it. */
static void view_wait_turn(const struct saga *saga, const struct turn *turn, int64_t now_ms,
                           struct wait_view *ret)
{
    size_t step = turn->step;
    enum operation operation = turn->operation;
    *ret = (struct wait_view){ .step = (int)step,
                               .operation = operation,
                               .handler = saga_rule(saga, step, operation)->handler };
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    int64_t settle = plan_not_before_ms(saga, step, operation);
    int64_t backoff = plan_backoff_until_ms(saga, step, operation);
    int64_t delayed = plan_delayed_until_ms(saga, step);
    if (delayed > now_ms) {
        ret->kind = WAIT_DELAY;
        ret->since_ms = plan_ready_at_ms(saga, step);
        ret->until_ms = delayed;
    } else if (settle > now_ms && settle > backoff) {
        ret->kind = WAIT_SETTLE;
        ret->since_ms = larger(finished_at(saga, saga->turned_back_seq),
                               finished_at(saga, attempts->not_done_seq));
        ret->until_ms = settle;
    } else if (backoff > now_ms) {
        ret->kind = WAIT_RETRY;
        ret->since_ms = finished_at(saga, attempts->backoff_seq);
        ret->until_ms = backoff;
    } else {
        int64_t stop_at = 0;
        const char *signal = saga->definition->steps[step].signal;
        ret->kind = WAIT_WORKER;
        if (signal && operation == OPERATION_ACTION) {
            ret->kind = WAIT_SIGNAL;
            ret->handler = NULL;
            ret->signal = signal;
        }
        ret->since_ms = plan_since_ms(saga, step, operation);
        if (plan_stop(saga, step, operation, &stop_at) != STOP_NONE)
            ret->until_ms = stop_at;
    }
}

static void keep_longest(struct wait_view *longest, const struct wait_view *wait)
{
    if (longest->kind == WAIT_NONE || wait->since_ms < longest->since_ms)
        *longest = *wait;
}

void saga_wait_view(const struct saga *saga, int64_t now_ms, struct wait_view *ret)
{
    *ret = (struct wait_view){ .kind = WAIT_NONE, .step = -1 };
    if (saga_state_is_terminal(saga->at.state))
        return;
    if (saga->at.state == SAGA_PARKED) {
        const struct slot *park = saga_slot(saga, saga->park_seq);
        ret->kind = WAIT_OPERATOR;
        ret->step = saga->at.park_step;
        ret->operation = park->entry.operation;
        ret->since_ms = park->entry.finished_at_ms;
        return;
    }
    struct wait_view wait;
    for (size_t i = 0; saga->open_count && i < saga->definition->step_count; i++) {
        int64_t seq = plan_lease_of(saga, i);
        if (!seq)
            continue;
        view_wait_report(saga, seq, &wait);
        keep_longest(ret, &wait);
    }
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) {
        if (!plan_is_free(saga, &turn))
            continue;
        view_wait_turn(saga, &turn, now_ms, &wait);
        keep_longest(ret, &wait);
    }
}

static enum operation_outcome operation_outcome(const struct saga *saga,
                                                const struct attempts *attempts)
{
    if (attempts->open_seq)
        return OPERATION_OPEN;
    if (attempts->done)
        return saga_slot(saga, attempts->done_seq)->entry.kind == ENTRY_SKIP ? OPERATION_SKIPPED
                                                                             : OPERATION_DONE;
    if (attempts->foreign)
        return OPERATION_FOREIGN;
    return attempts->unsettled > 0 ? OPERATION_MAYBE : OPERATION_NOT_DONE;
}

void saga_operation_view(const struct saga *saga, size_t step, enum operation operation,
                         struct operation_view *ret)
{
    const struct attempts *attempts = saga_attempts(saga, step, operation);
    struct operation_view view = { .outcome = operation_outcome(saga, attempts) };
    for (size_t i = 0; i < saga->count; i++) {
        const struct slot *slot = saga->slots[i];
        const struct journal_entry *entry = &slot->entry;
        if (entry->kind != ENTRY_LEASE || entry->step != (int)step ||
            entry->operation != operation || entry->outcome == OUTCOME_RELEASED)
            continue;
        view.attempts++;
        view.unknown += outcome_is_unknown(entry->outcome);
        view.first = view.first ? view.first : entry;
        view.last = entry;
        if (slot->generation >= view.generations)
            view.generations = slot->generation + 1;
    }
    if (attempts->done)
        view.output = *saga_output_at(saga, attempts->done_seq);
    *ret = view;
}

int saga_effect_left(const struct saga *saga)
{
    for (size_t i = 0; i < saga->definition->step_count; i++)
        if (plan_needs_compensation(saga, i))
            return (int)i;
    return -1;
}

int64_t saga_deadline_ms(const struct saga *saga)
{
    return plan_deadline_ms(saga);
}

bool saga_is_past_pivot(const struct saga *saga)
{
    return plan_pivot_is_done(saga);
}

const struct journal_entry *saga_pending(const struct saga *saga)
{
    bool waits = saga->at.phase == SAGA_RUNNING && !plan_pivot_is_done(saga) &&
                 !saga_state_is_terminal(saga->at.state);
    return waits ? saga_entry(saga, saga->pending_seq ? saga->pending_seq : saga->overdue_seq)
                 : NULL;
}

const struct journal_entry *saga_first_cause(const struct saga *saga,
                                             const struct journal_entry **ret_lease)
{
    const struct journal_entry *turned_back = saga_entry(saga, saga->turned_back_seq);
    *ret_lease = NULL;
    if (turned_back && turned_back->step >= 0 &&
        (turned_back->reason == CAUSE_REFUSED || turned_back->reason == CAUSE_UNKNOWN ||
         turned_back->reason == CAUSE_EXHAUSTED)) {
        const struct attempts *action =
            saga_attempts(saga, (size_t)turned_back->step, OPERATION_ACTION);
        *ret_lease = saga_entry(saga, action->ended_seq);
    }
    return turned_back;
}
