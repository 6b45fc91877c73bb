#include "base/utf8.h"
#include "core/saga_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct change change_begin(struct saga *saga, int64_t now_ms, struct rng *rng,
                           struct transition *ret, struct err *err)
{
    *ret = (struct transition){ .retry_in_ms = -1,
                                .state_from = saga->at.state,
                                .phase_from = saga->at.phase };
    return (
        struct change){ .saga = saga, .transition = ret, .now_ms = now_ms, .rng = rng, .err = err };
}

/* A copy of text, cut to the limit; NULL stays NULL, "" becomes NULL. */
static int text_copy(const char *text, size_t limit, char **ret)
{
    *ret = NULL;
    if (!text || !text[0])
        return 0;
    *ret = mem_strndup(text, utf8_cut(text, strlen(text), limit));
    return *ret ? 0 : -1;
}

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "journal entry: memory is out");
}

int change_finish(struct change *change, int64_t seq, const struct ending *ending)
{
    struct journal_entry *entry = &saga_slot(change->saga, seq)->entry;
    entry->outcome = ending->outcome;
    entry->finished_at_ms = change->now_ms;
    entry->retry_at_ms = ending->retry_in_ms >= 0 ? change->now_ms + ending->retry_in_ms : 0;
    if (mem_bytes_copy(ending->output.data, ending->output.size, &entry->output) ||
        text_copy(ending->error_code, LIMIT_ERROR_CODE_BYTES, &entry->error_code) ||
        text_copy(ending->error_message, LIMIT_ERROR_MESSAGE_BYTES, &entry->error_message))
        return no_memory(change->err);
    change->transition->finishes = true;
    change->transition->finish_seq = seq;
    change->transition->retry_in_ms = ending->retry_in_ms;
    return saga_apply_entry(change->saga, seq, change->err);
}

static void slot_free(struct slot *slot)
{
    journal_entry_done(&slot->entry);
    mem_free(slot);
}

/* A slot with copies of what; NULL when memory is out. */
static struct slot *slot_new(const struct journal_entry *what)
{
    struct slot *slot = mem_calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    struct journal_entry *entry = &slot->entry;
    *entry = *what;
    entry->worker = entry->error_code = entry->error_message = entry->actor = NULL;
    entry->signal_id = NULL;
    entry->output = (struct bytes){ 0 };
    size_t worker = LIMIT_WORKER_BYTES + 1 + LIMIT_INSTANCE_BYTES;
    if (text_copy(what->worker, worker, &entry->worker) ||
        text_copy(what->error_code, LIMIT_ERROR_CODE_BYTES, &entry->error_code) ||
        text_copy(what->error_message, LIMIT_ERROR_MESSAGE_BYTES, &entry->error_message) ||
        text_copy(what->actor, LIMIT_ACTOR_BYTES, &entry->actor) ||
        text_copy(what->signal_id, LIMIT_SIGNAL_ID_BYTES, &entry->signal_id) ||
        mem_bytes_copy(what->output.data, what->output.size, &entry->output)) {
        slot_free(slot);
        return NULL;
    }
    return slot;
}

int change_append(struct change *change, const struct journal_entry *what)
{
    struct saga *saga = change->saga;
    struct transition *transition = change->transition;
    if (transition->append_count >= TRANSITION_APPENDS_MAX)
        return err_set(change->err, ERR_INTERNAL, "a decision of more than %d entries",
                       TRANSITION_APPENDS_MAX);
    if (mem_grow((void **)&saga->slots, &saga->capacity, saga->count, sizeof(struct slot *)))
        return no_memory(change->err);
    struct slot *slot = slot_new(what);
    if (!slot)
        return no_memory(change->err);
    int64_t seq = (int64_t)saga->count + 1;
    slot->entry.seq = seq;
    if (slot->entry.kind != ENTRY_LEASE)
        slot->entry.finished_at_ms = change->now_ms;
    saga->slots[saga->count++] = slot;
    if (!transition->append_seq)
        transition->append_seq = seq;
    transition->append_count++;
    enum saga_input input;
    if (entry_input(&slot->entry, &input) && transition->input_count < TRANSITION_INPUTS_MAX)
        transition->inputs[transition->input_count++] = input;
    return saga_apply_entry(saga, seq, change->err);
}

/* A row of the table without an entry of its own. */
static int take_input(struct change *change, enum saga_input input)
{
    struct transition *transition = change->transition;
    if (transition->input_count < TRANSITION_INPUTS_MAX)
        transition->inputs[transition->input_count++] = input;
    return saga_move(change->saga, input, change->err);
}

int change_park(struct change *change, enum park_reason reason, int step, enum operation operation,
                const char *code, const char *message)
{
    if (operation == OPERATION_PROBE) /* it stands for what it asks about */
        operation = saga_probed(change->saga, (size_t)step);
    struct journal_entry entry = {
        .kind = ENTRY_PARK,
        .step = (int16_t)step,
        .operation = operation,
        .reason = (uint8_t)reason,
        .error_code = (char *)code, /* borrowed: change_append copies */
        .error_message = (char *)message,
    };
    change->row_changed = true;
    return change_append(change, &entry);
}

/* Parked for another step's action, beside which this one went on? */
static bool is_cleared_by_turning_back(const struct saga *saga)
{
    const struct slot *park = saga_slot(saga, saga->park_seq);
    if (saga->at.state != SAGA_PARKED || park->entry.operation != OPERATION_ACTION)
        return false;
    return saga->at.reason == PARK_OUTCOME_UNKNOWN ||
           saga->at.reason == PARK_IDEMPOTENCY_WINDOW_OVER ||
           saga->at.reason == PARK_RETRIES_EXHAUSTED || saga->at.reason == PARK_WORKER_KILLER;
}

/* What stands before the pivot is not taken back while that may have taken effect. */
static bool is_held_by_pivot(const struct saga *saga, int step)
{
    return step != saga->definition->pivot &&
           (plan_pivot_is_done(saga) || plan_pivot_is_under_way(saga));
}

static int park_at_pivot(struct change *change, enum cause cause, int step, const char *code,
                         const char *message)
{
    enum park_reason reason = PARK_RETRIES_EXHAUSTED;
    if (cause == CAUSE_REFUSED)
        reason = PARK_REJECTED_AFTER_PIVOT;
    else if (cause == CAUSE_UNKNOWN)
        reason = PARK_OUTCOME_UNKNOWN;
    if (change->saga->at.state != SAGA_RUNNING)
        return 0; /* it is recorded */
    return change_park(change, reason, step, OPERATION_ACTION, code, message);
}

int change_compensate(struct change *change, enum cause cause, int step, const char *code,
                      const char *message)
{
    if (step >= 0 && is_held_by_pivot(change->saga, step))
        return park_at_pivot(change, cause, step, code, message);
    struct journal_entry entry = {
        .kind = ENTRY_COMPENSATE,
        .step = (int16_t)step,
        .reason = (uint8_t)cause,
        .error_code = (char *)code, /* borrowed, as above */
        .error_message = (char *)message,
    };
    int rc = change_append(change, &entry);
    /* What it was parked for is compensated, too, as it stands. */
    if (!rc && is_cleared_by_turning_back(change->saga))
        rc = change_resume(change, change->saga->at.park_step, OPERATION_ACTION);
    return rc;
}

int change_refused(struct change *change, int step, const char *code, const char *message)
{
    const struct saga *saga = change->saga;
    if (!plan_is_after_pivot(saga, (size_t)step))
        return change_compensate(change, CAUSE_REFUSED, step, code, message);
    return park_at_pivot(change, CAUSE_REFUSED, step, code, message);
}

int change_done(struct change *change, enum operation operation)
{
    enum saga_input end;
    if (saga_end_input(change->saga, &end) &&
        end == (operation == OPERATION_ACTION ? IN_LAST_STEP_DONE : IN_LAST_COMPENSATION_DONE))
        return 0;
    return take_input(change, operation == OPERATION_ACTION ? IN_STEP_DONE : IN_COMPENSATION_DONE);
}

int change_resume(struct change *change, int step, enum operation operation)
{
    struct journal_entry entry = { .kind = ENTRY_RESUME,
                                   .step = (int16_t)step,
                                   .operation = operation };
    return change_append(change, &entry);
}

int change_deadline(struct change *change)
{
    struct saga *saga = change->saga;
    struct turn turn = plan_turns(saga);
    if (!plan_deadline_is_due(saga, change->now_ms) || !plan_next(saga, &turn))
        return 0;
    int step = (int)turn.step; /* the first of those whose turn it is */
    char message[160];
    (void)snprintf(message, sizeof message, "the deadline passed before step \"%s\" was done",
                   saga->definition->steps[step].name);
    if (plan_pivot_is_under_way(saga)) {
        struct journal_entry entry = { .kind = ENTRY_PENDING,
                                       .step = (int16_t)saga->definition->pivot,
                                       .reason = CAUSE_DEADLINE };
        return change_append(change, &entry);
    }
    if (saga->definition->on_deadline == ON_DEADLINE_PARK || plan_pivot_is_done(saga))
        return change_park(change, PARK_DEADLINE_EXCEEDED, step, OPERATION_ACTION,
                           "DEADLINE_EXCEEDED", message);
    return change_compensate(change, CAUSE_DEADLINE, step, "DEADLINE_EXCEEDED", message);
}

static int row_follow(struct change *change)
{
    struct saga_row *row = &change->saga->row;
    const struct position *at = &change->saga->at;
    bool moved = row->state != at->state || row->phase != at->phase ||
                 row->park_reason != at->reason || row->doubt != at->doubt;
    if (!moved && !change->row_changed)
        return 0;
    row->state = at->state;
    row->phase = at->phase;
    row->park_reason = at->reason;
    row->park_step = at->park_step;
    row->doubt = at->doubt;
    mem_free(TAKE(row->park_code));
    mem_free(TAKE(row->park_message));
    const struct slot *park = at->reason ? saga_slot(change->saga, change->saga->park_seq) : NULL;
    if (park && (text_copy(park->entry.error_code, SIZE_MAX, &row->park_code) ||
                 text_copy(park->entry.error_message, SIZE_MAX, &row->park_message)))
        return no_memory(change->err);
    change->row_changed = true;
    return 0;
}

/* Mostly the end is said by what ends the last lease, and needs no entry. Where nothing else is
 * written it gets one: the position is what tells that nobody decided otherwise. */
static int end(struct change *change, enum saga_input input)
{
    struct transition *transition = change->transition;
    transition->ends = true;
    if (transition->finishes || transition->append_seq)
        return take_input(change, input);
    struct journal_entry entry = { .kind = ENTRY_END, .step = -1 };
    transition->inputs[transition->input_count++] = input;
    return change_append(change, &entry);
}

/* Turns back as the person asked who had to wait for the pivot. */
static int cancel_pending(struct change *change)
{
    const struct journal_entry *pending =
        &saga_slot(change->saga, change->saga->pending_seq)->entry;
    struct journal_entry entry = { .kind = ENTRY_COMPENSATE,
                                   .step = -1,
                                   .reason = CAUSE_CANCELLED,
                                   .about = pending->seq,
                                   .actor = pending->actor, /* borrowed: change_append copies */
                                   .error_message = pending->error_message };
    return change_append(change, &entry);
}

/* One receive makes it the next wait's turn. Room is left for a grant; time takes up the rest. */
static int receive(struct change *change)
{
    enum { UNTIL = TRANSITION_APPENDS_MAX - 2 };
    const struct saga *saga = change->saga;
    size_t step;
    int rc = 0;
    while (!rc && change->transition->append_count < UNTIL &&
           plan_receives(saga, change->now_ms, &step)) {
        const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
        struct journal_entry entry = { .kind = ENTRY_RECEIVE,
                                       .step = (int16_t)step,
                                       .operation = OPERATION_ACTION,
                                       .about = action->signal_seq };
        rc = change_append(change, &entry);
        if (!rc)
            rc = change_done(change, OPERATION_ACTION);
    }
    return rc;
}

int change_close(struct change *change)
{
    struct transition *transition = change->transition;
    enum saga_input input;
    int rc = plan_pending_is_due(change->saga) ? cancel_pending(change) : 0;
    if (!rc)
        rc = receive(change);
    if (!rc && saga_end_input(change->saga, &input))
        rc = end(change, input);
    if (!rc)
        rc = row_follow(change);
    if (rc)
        return rc;
    transition->changes_row = change->row_changed;
    transition->phase_change = change->row_changed && transition->append_seq != 0;
    return 0;
}
