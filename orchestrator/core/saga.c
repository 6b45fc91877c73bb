#include "core/saga.h"

#include "core/saga_internal.h"

#include <inttypes.h>

int saga_probes_alloc(struct saga *saga)
{
    const struct definition *definition = saga->definition;
    for (size_t i = 0; i < definition->step_count; i++)
        if (definition->steps[i].action.probe || definition->steps[i].compensation.probe) {
            saga->probes = mem_calloc(definition->step_count, sizeof *saga->probes);
            return saga->probes ? 0 : -1;
        }
    return 0;
}

/* Everything but the row; NULL when memory is out. */
static struct saga *saga_alloc(const struct definition *definition)
{
    struct saga *saga = mem_calloc(1, sizeof *saga);
    if (!saga)
        return NULL;
    saga->definition = saga->base = definition;
    saga->steps = mem_calloc(definition->step_count, sizeof *saga->steps);
    if (!saga->steps || saga_probes_alloc(saga))
        return saga_free(saga);
    saga->at = (struct position){ .state = SAGA_RUNNING, .phase = SAGA_RUNNING, .park_step = -1 };
    return saga;
}

int saga_new(const struct definition *definition, struct saga_row *row, struct saga **ret_saga,
             struct err *err)
{
    if (definition->step_count == 0)
        return err_set(err, ERR_INTERNAL, "a definition without steps");
    struct saga *saga = saga_alloc(definition);
    if (!saga)
        return err_set(err, ERR_NOMEM, "saga: memory is out");
    saga->row = *row;
    *row = (struct saga_row){ 0 };
    saga->row.state = saga->row.phase = SAGA_RUNNING;
    saga->row.park_reason = PARK_NONE;
    saga->row.park_step = -1;
    saga->row.doubt = false;
    saga->row.started_at_ms = saga->row.updated_at_ms = 0;
    saga->row.deadline_at_ms = saga->row.ended_at_ms = 0;
    *ret_saga = saga;
    return 0;
}

int saga_suspect(struct saga *saga, const char *actor, int64_t since_ms, int64_t now_ms,
                 struct transition *ret, struct err *err)
{
    if (saga->count || saga->row.started_at_ms)
        return err_set(err, ERR_INTERNAL, "a saga that has begun is not SUSPECT any more");
    struct change change = change_begin(saga, now_ms, NULL, ret, err);
    struct journal_entry entry = { .kind = ENTRY_SUSPECT,
                                   .step = -1,
                                   .leased_at_ms = smaller(since_ms, now_ms),
                                   .actor = (char *)actor }; /* borrowed: change_append copies */
    return change_append(&change, &entry);
}

struct saga *saga_free(struct saga *saga)
{
    if (!saga)
        return NULL;
    for (size_t i = 0; i < saga->count; i++) {
        journal_entry_done(&saga->slots[i]->entry);
        mem_free(saga->slots[i]);
    }
    mem_free(saga->slots);
    mem_free(saga->steps);
    mem_free(saga->probes);
    mem_free(saga->options);
    saga_row_done(&saga->row);
    mem_free(saga);
    return NULL;
}

const struct saga_row *saga_row(const struct saga *saga)
{
    return &saga->row;
}

const struct definition *saga_definition(const struct saga *saga)
{
    return saga->base;
}

int64_t saga_last_seq(const struct saga *saga)
{
    return (int64_t)saga->count;
}

const struct journal_entry *saga_entry(const struct saga *saga, int64_t seq)
{
    const struct slot *slot = saga_slot(saga, seq);
    return slot ? &slot->entry : NULL;
}

/* As the store's statement sets them. */
static void lease_times(struct journal_entry *lease, const struct transition *transition,
                        int64_t now_ms)
{
    lease->leased_at_ms = now_ms;
    lease->attempt_until_ms = now_ms + transition->attempt_timeout_ms;
    if (transition->send_before_ms)
        lease->attempt_until_ms = smaller(lease->attempt_until_ms, transition->send_before_ms);
    lease->lease_until_ms = smaller(now_ms + transition->lease_ms, lease->attempt_until_ms);
}

static bool is_grantable(const struct saga *saga, const struct grantable *what, int64_t now_ms,
                         int64_t *ret_held_ms)
{
    struct grantable all[LIMIT_STEPS];
    size_t count = saga_grantable(saga, now_ms, all, LIMIT_STEPS);
    for (size_t i = 0; i < count; i++)
        if (all[i].step == what->step) {
            *ret_held_ms = all[i].held_ms;
            return all[i].operation == what->operation;
        }
    return false;
}

int saga_grant(struct saga *saga, const struct grantable *what, const char *worker, int64_t epoch,
               int64_t now_ms, struct transition *transition, struct err *err)
{
    int64_t held_ms = 0;
    if (transition->lease_ms || !is_grantable(saga, what, now_ms, &held_ms) ||
        (held_ms && !transition_is_empty(transition)))
        return err_set(err, ERR_INTERNAL, "grant: step %u is not grantable", what->step);
    const struct operation_rule *rule = saga_rule(saga, what->step, what->operation);
    int64_t last_epoch = saga->last_fence >> FENCE_EPOCH_SHIFT;
    struct journal_entry lease = {
        .kind = ENTRY_LEASE,
        .step = (int16_t)what->step,
        .operation = what->operation,
        .fence = fence_make(epoch > last_epoch ? epoch : last_epoch, (int64_t)saga->count + 1),
        .try_ = saga_attempts(saga, what->step, what->operation)->tries + 1,
        .worker = (char *)worker, /* borrowed: change_append copies */
        .held_ms = held_ms,
    };
    transition->lease_ms = rule->lease_ms;
    transition->attempt_timeout_ms = rule->attempt_timeout_ms;
    transition->send_before_ms = 0;
    if (rule->window_ms && saga_attempts(saga, what->step, what->operation)->unsettled == 0)
        transition->attempt_timeout_ms =
            smaller(rule->attempt_timeout_ms,
                    rule->window_ms - larger(saga->definition->steps[what->step].settle_ms, 0));
    else if (rule->window_ms)
        transition->send_before_ms = plan_send_before_ms(saga, what->step, what->operation);
    lease_times(&lease, transition, now_ms);
    struct change change = { .saga = saga, .transition = transition, .now_ms = now_ms, .err = err };
    return change_append(&change, &lease);
}

const struct operation_rule *saga_lease_rule(const struct saga *saga, int64_t seq)
{
    const struct slot *slot = saga_slot(saga, seq);
    const struct journal_entry *lease = &slot->entry;
    if (lease->operation != OPERATION_PROBE)
        return saga_rule(saga, (size_t)lease->step, lease->operation);
    return saga_rule(saga, (size_t)lease->step,
                     slot->of_undo ? OPERATION_COMPENSATION : OPERATION_ACTION)
        ->probe;
}

bool saga_lease_is_open(const struct saga *saga, int64_t fence)
{
    const struct slot *slot = saga_slot(saga, fence_seq(fence));
    return slot && slot->entry.kind == ENTRY_LEASE && slot->entry.fence == fence &&
           slot->entry.outcome == OUTCOME_NONE;
}

void saga_extended(struct saga *saga, int64_t seq, int64_t db_now_ms)
{
    struct slot *slot = saga_slot(saga, seq);
    if (!slot || slot->entry.kind != ENTRY_LEASE || slot->entry.outcome != OUTCOME_NONE)
        return;
    struct journal_entry *lease = &slot->entry;
    int64_t lease_ms = saga_lease_rule(saga, seq)->lease_ms;
    int64_t until = smaller(db_now_ms + lease_ms, lease->attempt_until_ms);
    lease->lease_until_ms = larger(lease->lease_until_ms, until);
}

void saga_committed(struct saga *saga, const struct transition *transition, int64_t db_now_ms)
{
    if (transition->finishes) {
        struct journal_entry *entry = &saga_slot(saga, transition->finish_seq)->entry;
        entry->finished_at_ms = db_now_ms;
        entry->retry_at_ms = transition->retry_in_ms >= 0 ? db_now_ms + transition->retry_in_ms : 0;
    }
    for (size_t i = 0; i < transition->append_count; i++) {
        struct journal_entry *entry = &saga_slot(saga, transition->append_seq + (int64_t)i)->entry;
        if (entry->kind != ENTRY_LEASE) {
            entry->finished_at_ms = db_now_ms;
            entry->leased_at_ms = smaller(entry->leased_at_ms, db_now_ms); /* SUSPECT */
            continue;
        }
        lease_times(entry, transition, db_now_ms);
    }
    struct saga_row *row = &saga->row;
    bool first = row->started_at_ms == 0;
    if (first) {
        row->started_at_ms = db_now_ms;
        int64_t deadline_ms = saga->definition->deadline_ms;
        row->deadline_at_ms = deadline_ms ? larger(db_now_ms, row->start_at_ms) + deadline_ms : 0;
    }
    if (first || transition->changes_row)
        row->updated_at_ms = db_now_ms;
    if (transition->ends)
        row->ended_at_ms = db_now_ms;
}

void saga_task_view(const struct saga *saga, int64_t seq, struct task_view *ret)
{
    const struct slot *slot = saga_slot(saga, seq);
    const struct journal_entry *lease = &slot->entry;
    size_t step = (size_t)lease->step;
    enum operation about = lease->operation;
    if (about == OPERATION_PROBE)
        about = slot->of_undo ? OPERATION_COMPENSATION : OPERATION_ACTION;
    const struct attempts *attempts = saga_attempts(saga, step, about);
    *ret = (struct task_view){
        .lease = lease,
        .step = &saga->definition->steps[step],
        .rule = saga_lease_rule(saga, seq),
        .about = about,
        .generation = slot->generation,
    };
    if (lease->operation == OPERATION_PROBE)
        ret->probed = saga_entry(saga, attempts->unknown_seq);
    else
        ret->send_before_ms = plan_send_before_ms(saga, step, about);
    if (about == OPERATION_COMPENSATION)
        ret->action_done = saga_step_output(saga, step, &ret->action_output);
}

int32_t saga_key_generation(const struct saga *saga, size_t step, enum operation operation)
{
    if (operation == OPERATION_PROBE)
        operation = saga_probed(saga, step);
    return saga_rule(saga, step, operation)->fresh_key
               ? saga_attempts(saga, step, operation)->generation
               : 0;
}

size_t saga_task_bytes(const struct saga *saga)
{
    return saga->row.input.size + (size_t)saga->output_bytes;
}

bool saga_step_output(const struct saga *saga, size_t step, struct bytes *ret)
{
    const struct attempts *action = saga_attempts(saga, step, OPERATION_ACTION);
    if (!action->done)
        return false;
    *ret = *saga_output_at(saga, action->done_seq);
    return true;
}
