/* What somebody outside tells a saga, and one of its steps waits for. */
#include "core/saga_internal.h"

#include <string.h>

/* Of a signal that was not taken yet. */
static int check_state(const struct saga *saga, size_t step, struct err *err)
{
    int rc = saga_ask_table(saga, VERB_SIGNAL, err);
    if (rc)
        return rc;
    if (saga_attempts(saga, step, OPERATION_ACTION)->passed_seq)
        return err_reason(err, ERR_PRECONDITION, "SIGNAL_NOT_ALLOWED",
                          "the saga went on without step \"%s\" when its time was over",
                          saga->definition->steps[step].name);
    return 0;
}

static int keep(struct change *change, int step, const struct signal *signal)
{
    struct journal_entry entry = {
        .kind = ENTRY_SIGNAL,
        .step = (int16_t)step,
        .operation = OPERATION_ACTION,
        .output = signal->payload, /* borrowed, as the texts: change_append copies */
        .signal_id = (char *)signal->id,
        .actor = (char *)signal->actor,
    };
    int rc = change_append(change, &entry);
    if (rc || !saga_is_parked_at(change->saga, PARK_RETRIES_EXHAUSTED, step, OPERATION_ACTION))
        return rc;
    rc = change_resume(change, step, OPERATION_ACTION);
    return rc ? rc : change_deadline(change);
}

int saga_on_signal(struct saga *saga, const struct signal *signal, int64_t now_ms,
                   struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int step = definition_wait_find(saga->definition, signal->name);
    if (step < 0)
        return err_field(err, "signal", "no step of definition \"%s\" waits for signal \"%.64s\"",
                         saga->definition->name, signal->name);
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    enum verdict verdict = VERDICT_DUPLICATE;
    const struct slot *taken =
        saga_slot(saga, saga_attempts(saga, (size_t)step, OPERATION_ACTION)->signal_seq);
    if (taken && strcmp(taken->entry.signal_id, signal->id) != 0)
        return err_reason(err, ERR_PRECONDITION, "SIGNAL_TAKEN",
                          "signal \"%s\" has come already, with the id \"%s\"", signal->name,
                          taken->entry.signal_id);
    if (!taken) {
        int rc = check_state(saga, (size_t)step, err);
        if (!rc)
            rc = keep(&change, step, signal);
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
