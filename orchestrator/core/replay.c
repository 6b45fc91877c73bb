#include "core/options.h"
#include "core/saga_internal.h"

#include <inttypes.h>
#include <string.h>

static bool attempts_equal(const struct attempts *a, const struct attempts *b)
{
    return a->tries == b->tries && a->budget_tries == b->budget_tries && a->losses == b->losses &&
           a->unsettled == b->unsettled && a->open_seq == b->open_seq &&
           a->last_seq == b->last_seq && a->ended_seq == b->ended_seq &&
           a->budget_seq == b->budget_seq && a->backoff_seq == b->backoff_seq &&
           a->unknown_seq == b->unknown_seq && a->lost_seq == b->lost_seq &&
           a->late_seq == b->late_seq && a->done_seq == b->done_seq && a->done == b->done &&
           a->rejected == b->rejected && a->foreign == b->foreign &&
           a->window_seq == b->window_seq && a->not_done_seq == b->not_done_seq &&
           a->generation == b->generation && a->probing_seq == b->probing_seq &&
           a->given_up == b->given_up && a->passed_seq == b->passed_seq &&
           a->signal_seq == b->signal_seq && a->doubt == b->doubt;
}

static bool steps_equal(const struct step_summary *a, const struct step_summary *b)
{
    return attempts_equal(&a->of[0], &b->of[0]) && attempts_equal(&a->of[1], &b->of[1]);
}

static bool summaries_equal(const struct saga *a, const struct saga *b)
{
    for (size_t i = 0; i < a->definition->step_count; i++)
        if (!steps_equal(&a->steps[i], &b->steps[i]) ||
            (a->probes && !steps_equal(&a->probes[i], &b->probes[i])))
            return false;
    return a->bytes == b->bytes && a->output_bytes == b->output_bytes &&
           a->open_count == b->open_count && a->forward_count == b->forward_count &&
           a->last_fence == b->last_fence && a->turned_back_seq == b->turned_back_seq &&
           a->park_seq == b->park_seq && a->retry_seq == b->retry_seq &&
           a->moved_seq == b->moved_seq && a->resumed_seq == b->resumed_seq &&
           a->pending_seq == b->pending_seq && a->deadline_parked == b->deadline_parked &&
           a->action_lost == b->action_lost && a->overdue_seq == b->overdue_seq &&
           a->signals_kept == b->signals_kept && a->deadline_seq == b->deadline_seq &&
           options_equal(a->definition, b->definition);
}

/* The end is the row's to say: what ended the last lease may not have known that it was. */
static int fold_end(struct saga *saga, struct err *err)
{
    enum saga_input end;
    bool ended = saga_state_is_terminal(saga->row.state) && !saga_state_is_terminal(saga->at.state);
    return ended && saga_end_input(saga, &end) ? saga_move(saga, end, err) : 0;
}

/* Folds all entries, and the end that follows from them: only what a person says may come after it.
 */
static int fold(struct saga *saga, struct err *err)
{
    size_t tail = saga->count;
    while (tail > 0 && saga->slots[tail - 1]->entry.kind == ENTRY_RESOLVE)
        tail--;
    for (size_t i = 0; i < saga->count; i++) {
        int rc = i >= tail ? fold_end(saga, err) : 0;
        if (!rc)
            rc = saga_apply_entry(saga, (int64_t)i + 1, err);
        if (rc)
            return rc;
    }
    return fold_end(saga, err);
}

static int wrong(const struct saga *saga, struct err *err, const char *what)
{
    return err_set(err, ERR_INTERNAL, "saga %.64s/%.64s after journal position %zu: %s",
                   saga->row.definition ? saga->row.definition : "?",
                   saga->row.saga_id ? saga->row.saga_id : "?", saga->count, what);
}

static int check_row(const struct saga *saga, struct err *err)
{
    const struct saga_row *row = &saga->row;
    const struct position *at = &saga->at;
    if (row->state != at->state || row->phase != at->phase || row->park_reason != at->reason ||
        row->park_step != at->park_step)
        return err_set(
            err, ERR_INTERNAL,
            "saga %.64s/%.64s: its row says %s in %s (%s), its journal of %zu entries %s "
            "in %s (%s)",
            row->definition ? row->definition : "?", row->saga_id ? row->saga_id : "?",
            saga_state_name(row->state), saga_state_name(row->phase),
            row->park_reason ? park_reason_name(row->park_reason) : "not parked", saga->count,
            saga_state_name(at->state), saga_state_name(at->phase),
            at->reason ? park_reason_name(at->reason) : "not parked");
    struct saga_options options;
    if (saga->deadline_seq &&
        (!options_read(&saga_slot(saga, saga->deadline_seq)->entry.output, &options) ||
         options.deadline_ms != row->deadline_at_ms))
        return wrong(saga, err, "its row has another deadline than its journal");
    if (at->doubt && !row->doubt)
        return wrong(saga, err, "its journal doubts, its row does not");
    bool terminal = saga_state_is_terminal(row->state);
    if (terminal != (row->ended_at_ms != 0))
        return wrong(saga, err, "an end without its time, or a time without an end");
    for (size_t i = 0; terminal && i < saga->count; i++) {
        /* Of leases alone: a time is that of the transaction's beginning, and evidence that began
         * after the transaction of the end may have been written before it. */
        const struct journal_entry *entry = &saga->slots[i]->entry;
        if (entry->leased_at_ms > row->ended_at_ms)
            return err_set(err, ERR_INTERNAL,
                           "saga %.64s/%.64s: position %" PRId64
                           " of its journal was written after the end",
                           row->definition ? row->definition : "?",
                           row->saga_id ? row->saga_id : "?", entry->seq);
    }
    return 0;
}

/* Every saga that has not ended has something that takes it on, by itself or by a person. */
static int check_goes_on(const struct saga *saga, struct err *err)
{
    if (saga_state_is_terminal(saga->at.state)) {
        if (saga->open_count)
            return wrong(saga, err, "a live lease after the end");
        if (saga->at.state == SAGA_SUCCEEDED && !plan_is_all_over(saga))
            return wrong(saga, err, "SUCCEEDED with a step that is not done");
        if (saga->at.state == SAGA_COMPENSATED && !plan_is_all_taken_back(saga))
            return wrong(saga, err, "COMPENSATED with a step that is not taken back");
        return 0;
    }
    if (saga->at.state == SAGA_PARKED)
        return saga->at.reason ? 0 : wrong(saga, err, "parked without a reason");
    return 0; /* the next grant does, or time: what is due, or was left undecided */
}

int saga_check(const struct saga *saga, struct err *err)
{
    int rc = check_row(saga, err);
    if (!rc)
        rc = check_goes_on(saga, err);
    if (rc)
        return rc;
    /* The fold over the same entries, from nothing, must come to the same. */
    struct saga again = { .definition = saga->base,
                          .base = saga->base,
                          .row = saga->row,
                          .slots = saga->slots,
                          .count = saga->count,
                          .at = { SAGA_RUNNING, SAGA_RUNNING, PARK_NONE, -1, false } };
    again.steps = mem_calloc(saga->definition->step_count, sizeof *again.steps);
    if (!again.steps || saga_probes_alloc(&again)) {
        mem_free(again.steps);
        return err_set(err, ERR_NOMEM, "saga: memory is out");
    }
    rc = fold(&again, err);
    if (!rc && (!summaries_equal(saga, &again) || again.at.state != saga->at.state ||
                again.at.phase != saga->at.phase || again.at.reason != saga->at.reason ||
                again.at.park_step != saga->at.park_step))
        rc = wrong(saga, err, "the copy differs from its journal");
    mem_free(again.steps);
    mem_free(again.probes);
    mem_free(again.options);
    return rc;
}

static void entries_give_back(struct saga *saga, struct journal_entry *entries)
{
    for (size_t i = 0; i < saga->count; i++) {
        entries[i] = saga->slots[i]->entry;
        mem_free(saga->slots[i]);
    }
    saga->count = 0;
}

/* Between 1970 and the year 10000: so that no sum of times and spans is out of range. */
static bool is_time(int64_t ms)
{
    return ms >= 0 && ms < INT64_C(253402300800000);
}

static int check_times(const struct saga *saga, struct err *err)
{
    const struct saga_row *row = &saga->row;
    if (!is_time(row->started_at_ms) || !is_time(row->updated_at_ms) ||
        !is_time(row->deadline_at_ms) || !is_time(row->ended_at_ms) || !is_time(row->start_at_ms))
        return wrong(saga, err, "its row has a time that cannot be");
    for (size_t i = 0; i < saga->count; i++) {
        const struct journal_entry *entry = &saga->slots[i]->entry;
        if (!is_time(entry->leased_at_ms) || !is_time(entry->attempt_until_ms) ||
            !is_time(entry->lease_until_ms) || !is_time(entry->finished_at_ms) ||
            !is_time(entry->retry_at_ms))
            return err_set(
                err, ERR_INTERNAL,
                "saga %.64s/%.64s: position %zu of its journal has a time that cannot be",
                row->definition ? row->definition : "?", row->saga_id ? row->saga_id : "?", i + 1);
    }
    return 0;
}

static int replay_into(struct saga *saga, struct journal_entry *entries, size_t count,
                       struct err *err)
{
    saga->slots = mem_calloc(count ? count : 1, sizeof(struct slot *));
    if (!saga->slots)
        return err_set(err, ERR_NOMEM, "saga: memory is out");
    saga->capacity = count ? count : 1;
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = mem_calloc(1, sizeof *slot);
        if (!slot)
            return err_set(err, ERR_NOMEM, "saga: memory is out");
        slot->entry = entries[i];
        saga->slots[saga->count++] = slot;
    }
    int rc = check_times(saga, err);
    if (!rc)
        rc = fold(saga, err);
    if (rc)
        return rc;
    saga->at.doubt =
        saga->at.doubt || saga->row.doubt; /* a late report after the end sets it, too */
    return saga_check(saga, err);
}

int saga_replay(const struct definition *definition, struct saga_row *row,
                struct journal_entry *entries, size_t count, struct saga **ret_saga,
                struct err *err)
{
    if (count > 2 * LIMIT_JOURNAL_ENTRIES || definition->step_count == 0)
        return err_set(err, ERR_INTERNAL, "saga: a journal of %zu entries for %zu steps", count,
                       definition->step_count);
    struct saga_row empty = { 0 };
    struct saga *saga = NULL;
    int rc = saga_new(definition, &empty, &saga, err);
    if (rc)
        return rc;
    saga->row = *row;
    rc = replay_into(saga, entries, count, err);
    if (rc) { /* nothing was consumed */
        entries_give_back(saga, entries);
        saga->row = (struct saga_row){ 0 };
        (void)saga_free(saga); /* always NULL */
        return rc;
    }
    *row = (struct saga_row){ 0 };
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct journal_entry){ 0 };
    *ret_saga = saga;
    return 0;
}
