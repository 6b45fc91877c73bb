#include "core/options.h"
#include "core/saga_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

FMT(4, 5)
static int corrupt(const struct saga *saga, const struct journal_entry *entry, struct err *err,
                   const char *fmt, ...)
{
    char text[160];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *kind = entry_kind_name(entry->kind);
    return err_set(err, ERR_INTERNAL, "saga %.64s/%.64s: journal position %" PRId64 " (%s): %s",
                   saga->row.definition ? saga->row.definition : "?",
                   saga->row.saga_id ? saga->row.saga_id : "?", entry->seq, kind ? kind : "?",
                   text);
}

int saga_move(struct saga *saga, enum saga_input input, struct err *err)
{
    struct position *at = &saga->at;
    const struct saga_transition *row = saga_transition_find(at->state, at->phase, input);
    if (!row)
        return err_set(err, ERR_INTERNAL, "no transition on %s from %s in %s",
                       saga_input_name(input), saga_state_name(at->state),
                       saga_state_name(at->phase));
    at->state = row->to;
    at->phase = row->phase_to;
    if (at->state != SAGA_PARKED) {
        at->reason = PARK_NONE;
        at->park_step = -1;
    }
    return 0;
}

static bool cause_input(uint8_t cause, enum saga_input *ret)
{
    switch ((enum cause)cause) {
    case CAUSE_REFUSED:
        *ret = IN_REFUSED;
        return true;
    case CAUSE_CANCELLED:
        *ret = IN_CANCELLED;
        return true;
    case CAUSE_DEADLINE:
        *ret = IN_DEADLINE_COMPENSATE;
        return true;
    case CAUSE_UNKNOWN:
        *ret = IN_UNKNOWN_COMPENSATE;
        return true;
    case CAUSE_EXHAUSTED:
    case CAUSE_START_TIMEOUT:
        *ret = IN_EXHAUSTED_COMPENSATE;
        return true;
    case CAUSE_COUNT:
        break;
    }
    return false;
}

static bool park_input(uint8_t reason, enum operation operation, enum saga_input *ret)
{
    switch ((enum park_reason)reason) {
    case PARK_OUTCOME_UNKNOWN:
    case PARK_IDEMPOTENCY_WINDOW_OVER:
        *ret = operation == OPERATION_COMPENSATION ? IN_COMPENSATION_UNKNOWN : IN_UNKNOWN_PARK;
        return true;
    case PARK_SUSPENDED:
        *ret = IN_SUSPENDED;
        return true;
    case PARK_RETRIES_EXHAUSTED:
        *ret = IN_EXHAUSTED_PARK;
        return true;
    case PARK_COMPENSATION_FAILED:
        *ret = IN_COMPENSATION_FAILED;
        return true;
    case PARK_DEADLINE_EXCEEDED:
        *ret = IN_DEADLINE_PARK;
        return true;
    case PARK_FOREIGN_EFFECT:
        *ret = IN_FOREIGN_EFFECT;
        return true;
    case PARK_LATE_EFFECT:
        *ret = IN_LATE_EFFECT;
        return true;
    case PARK_WORKER_KILLER:
        *ret = IN_WORKER_KILLER;
        return true;
    case PARK_LIMIT_REACHED:
        *ret = IN_LIMIT_REACHED;
        return true;
    case PARK_REJECTED_AFTER_PIVOT:
        *ret = IN_REJECTED_AFTER_PIVOT;
        return true;
    case PARK_NONE:
    case PARK_REASON_COUNT:
        break;
    }
    return false;
}

bool entry_input(const struct journal_entry *entry, enum saga_input *ret)
{
    switch (entry->kind) {
    case ENTRY_COMPENSATE:
        return cause_input(entry->reason, ret);
    case ENTRY_PARK:
        return park_input(entry->reason, entry->operation, ret);
    case ENTRY_RETRY:
        *ret = IN_RETRY;
        return true;
    case ENTRY_RESUME:
        *ret = entry->about ? IN_RESUMED : IN_SETTLED;
        return true;
    case ENTRY_ACCEPT:
        *ret = IN_ACCEPTED;
        return true;
    case ENTRY_CONTINUE:
        *ret = IN_CONTINUED;
        return true;
    case ENTRY_SKIP:
        *ret = IN_SKIPPED;
        return true;
    case ENTRY_ABANDON:
        *ret = IN_ABANDONED;
        return true;
    case ENTRY_LEASE:
    case ENTRY_LATE_REPORT:
    case ENTRY_RESOLVE:
    case ENTRY_PROBE:
    case ENTRY_MAYBE:
    case ENTRY_PENDING:
    case ENTRY_SIGNAL:
    case ENTRY_RECEIVE:
    case ENTRY_SUSPECT:
    case ENTRY_OPTIONS:
    case ENTRY_END: /* by what is left: saga_end_input */
    case ENTRY_KIND_COUNT:
        break;
    }
    return false;
}

bool saga_end_input(const struct saga *saga, enum saga_input *ret)
{
    if (saga->open_count)
        return false;
    if (saga->at.state == SAGA_RUNNING && plan_is_all_over(saga)) {
        *ret = IN_LAST_STEP_DONE;
        return true;
    }
    if (saga->at.state == SAGA_COMPENSATING && plan_is_all_taken_back(saga)) {
        *ret = IN_LAST_COMPENSATION_DONE;
        return true;
    }
    return false;
}

/* What a grant rests on; asserted again whenever the entry is loaded. */
static int check_grant(const struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    size_t step = (size_t)entry->step;
    const struct attempts *attempts = saga_attempts(saga, step, entry->operation);
    if (plan_lease_of(saga, step))
        return corrupt(saga, entry, err, "a lease beside a live one of the step");
    if (entry->operation == OPERATION_COMPENSATION && saga->forward_count)
        return corrupt(saga, entry, err, "a compensation beside a live action");
    if (entry->try_ != attempts->tries + 1)
        return corrupt(saga, entry, err, "try %" PRId32 " after %" PRId32, entry->try_,
                       attempts->tries);
    if (fence_seq(entry->fence) != entry->seq || entry->fence <= saga->last_fence)
        return corrupt(saga, entry, err, "fence %" PRId64 " after %" PRId64, entry->fence,
                       saga->last_fence);
    if (attempts->unsettled > 0 && !plan_is_repeatable(saga, step, entry->operation))
        return corrupt(saga, entry, err, "a repeat of an unknown outcome");
    if (attempts->done || attempts->rejected || attempts->foreign || attempts->passed_seq)
        return corrupt(saga, entry, err, "a repeat of what is done or refused");
    if (saga->at.state != SAGA_RUNNING && saga->at.state != SAGA_COMPENSATING)
        return corrupt(saga, entry, err, "a lease while %s", saga_state_name(saga->at.state));
    enum operation operation = OPERATION_ACTION;
    if (!plan_is_turn_of(saga, step, &operation) || operation != entry->operation)
        return corrupt(saga, entry, err, "a lease of step %zu out of turn", step);
    return 0;
}

static void fresh_budget(struct attempts *attempts)
{
    attempts->budget_seq = 0;
    attempts->budget_tries = 0;
    attempts->losses = 0;
    attempts->backoff_seq = 0;
}

static int apply_opened(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    int rc = check_grant(saga, entry, err);
    if (rc)
        return rc;
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    saga_slot(saga, entry->seq)->of_undo =
        entry->operation == OPERATION_PROBE &&
        saga_probed(saga, (size_t)entry->step) == OPERATION_COMPENSATION;
    /* Kept: a person may settle what a probe asks about while it asks. */
    saga_slot(saga, entry->seq)->generation =
        saga_key_generation(saga, (size_t)entry->step, entry->operation);
    attempts->open_seq = attempts->last_seq = entry->seq;
    if (attempts->unsettled == 0)
        attempts->window_seq = entry->seq;
    if (entry->operation != OPERATION_PROBE && saga->probes) /* what it leaves is another unknown */
        fresh_budget(&saga->probes[entry->step].of[entry->operation == OPERATION_COMPENSATION]);
    attempts->tries++;
    attempts->budget_tries++;
    if (!attempts->budget_seq)
        attempts->budget_seq = entry->seq;
    saga->open_count++;
    saga->forward_count += entry->operation == OPERATION_ACTION;
    saga->last_fence = entry->fence;
    if (entry->held_ms) {
        saga_slot(saga, entry->seq)->held_before_seq = saga->held_seq;
        saga->held_seq = entry->seq;
    }
    return 0;
}

/* Nothing is unknown any more: what was done about that is over, too. */
static void settle(struct attempts *attempts)
{
    attempts->unsettled = 0;
    attempts->probing_seq = 0;
    attempts->given_up = false;
}

/* entry: holds the output. */
static void set_done(struct saga *saga, enum operation operation, struct attempts *attempts,
                     const struct journal_entry *entry)
{
    attempts->done = true;
    attempts->done_seq = entry->seq;
    if (operation == OPERATION_ACTION)
        saga->output_bytes += (int64_t)saga_output_at(saga, entry->seq)->size;
    settle(attempts); /* one effect, known: earlier attempts were that same effect */
}

static void set_doubt(struct saga *saga, struct attempts *attempts, bool doubt)
{
    attempts->doubt = doubt;
    saga->at.doubt = doubt;
    for (size_t i = 0; i < saga->definition->step_count && !saga->at.doubt; i++)
        saga->at.doubt = saga->steps[i].of[0].doubt || saga->steps[i].of[1].doubt;
}

static void apply_ended(struct saga *saga, const struct journal_entry *entry)
{
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    attempts->open_seq = 0;
    saga->open_count--;
    saga->forward_count -= entry->operation == OPERATION_ACTION;
    if (entry->outcome == OUTCOME_RELEASED) { /* as if it had never been */
        attempts->tries--;
        attempts->budget_tries--;
        if (attempts->budget_seq == entry->seq)
            attempts->budget_seq = 0;
        if (attempts->window_seq == entry->seq)
            attempts->window_seq = 0;
        attempts->backoff_seq = 0;
        return;
    }
    attempts->ended_seq = entry->seq;
    bool lost = entry->outcome == OUTCOME_EXPIRED || entry->outcome == OUTCOME_STREAM_LOST;
    attempts->losses = lost ? attempts->losses + 1 : 0;
    attempts->backoff_seq = 0;
    if (entry->operation == OPERATION_PROBE) {
        attempts->backoff_seq = entry->seq;
        return;
    }
    if (outcome_is_success(entry->outcome)) {
        set_done(saga, entry->operation, attempts, entry);
    } else if (entry->outcome == OUTCOME_REJECTED) {
        attempts->rejected = true;
    } else {
        attempts->backoff_seq = entry->seq;
    }
    if (outcome_is_unknown(entry->outcome)) {
        attempts->unsettled++;
        attempts->unknown_seq = entry->seq;
    }
    if (entry->outcome == OUTCOME_STREAM_LOST) {
        attempts->lost_seq = entry->seq;
        saga->action_lost |= entry->operation == OPERATION_ACTION;
    }
}

static bool has_step(const struct saga *saga, const struct journal_entry *entry)
{
    return entry->step >= 0 && (size_t)entry->step < saga->definition->step_count;
}

/* That a worker runs. */
static bool has_operation(const struct saga *saga, const struct journal_entry *entry)
{
    if (!has_step(saga, entry))
        return false;
    switch (entry->operation) {
    case OPERATION_ACTION:
        return !saga_is_wait(saga, (size_t)entry->step);
    case OPERATION_COMPENSATION:
        return saga->definition->steps[entry->step].has_compensation;
    case OPERATION_PROBE:
        return saga_rule(saga, (size_t)entry->step, OPERATION_PROBE) != NULL;
    case OPERATION_COUNT:
        break;
    }
    return false;
}

static int apply_lease(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (!has_operation(saga, entry))
        return corrupt(saga, entry, err, "no operation %d of step %d", (int)entry->operation,
                       entry->step);
    if (!entry->worker || (unsigned)entry->outcome >= OUTCOME_COUNT)
        return corrupt(saga, entry, err, "no worker, or outcome %d", (int)entry->outcome);
    if (entry->outcome == OUTCOME_NONE &&
        (entry->finished_at_ms || entry->error_code || entry->error_message || entry->output.size))
        return corrupt(saga, entry, err, "a live lease with a result");
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    if (attempts->open_seq != entry->seq) {
        int rc = apply_opened(saga, entry, err);
        if (rc)
            return rc;
    }
    if (entry->outcome != OUTCOME_NONE)
        apply_ended(saga, entry);
    return 0;
}

bool saga_is_parked_at(const struct saga *saga, enum park_reason reason, int step,
                       enum operation operation)
{
    const struct slot *park = saga_slot(saga, saga->park_seq);
    return saga->at.state == SAGA_PARKED && saga->at.reason == reason &&
           saga->at.park_step == step && park && park->entry.operation == operation;
}

bool saga_can_settle(const struct saga *saga, int step, enum operation operation)
{
    if (saga_attempts(saga, (size_t)step, operation)->done)
        return false;
    return operation == OPERATION_COMPENSATION ||
           saga_attempts(saga, (size_t)step, OPERATION_COMPENSATION)->last_seq == 0;
}

/* The attempt was lost or unknown to us, no other followed, and nothing rests on "maybe" yet: its
 * own word settles it. Asks the journal alone, so that a replay answers as it was answered. */
bool saga_late_resolves(const struct saga *saga, const struct journal_entry *lease)
{
    const struct attempts *attempts = saga_attempts(saga, (size_t)lease->step, lease->operation);
    if (lease->outcome != OUTCOME_EXPIRED && lease->outcome != OUTCOME_STREAM_LOST)
        return false;
    if (attempts->last_seq != lease->seq || attempts->done || attempts->unsettled == 0)
        return false;
    return lease->operation == OPERATION_COMPENSATION ||
           saga_attempts(saga, (size_t)lease->step, OPERATION_COMPENSATION)->last_seq == 0;
}

static int apply_late(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    struct slot *about = saga_slot(saga, entry->about);
    if (!about || entry->about >= entry->seq || about->entry.kind != ENTRY_LEASE ||
        about->entry.step != entry->step || about->entry.operation != entry->operation)
        return corrupt(saga, entry, err, "a report about position %" PRId64, entry->about);
    const struct journal_entry *lease = &about->entry;
    if ((about->late_seq && about->late_seq != entry->seq) ||
        (lease->outcome != OUTCOME_EXPIRED && lease->outcome != OUTCOME_STREAM_LOST &&
         lease->outcome != OUTCOME_RELEASED))
        return corrupt(saga, entry, err, "a late report about position %" PRId64 " (%s)",
                       entry->about, lease->outcome ? outcome_name(lease->outcome) : "live");
    bool told = entry->outcome >= OUTCOME_DONE && entry->outcome <= OUTCOME_UNKNOWN;
    if (!told && !(entry->operation == OPERATION_PROBE &&
                   (entry->outcome == OUTCOME_NOT_DONE || entry->outcome == OUTCOME_STILL_UNKNOWN)))
        return corrupt(saga, entry, err, "outcome %d", (int)entry->outcome);
    about->late_seq = entry->seq;
    about->late_settled = false;
    if (entry->operation == OPERATION_PROBE)
        return 0; /* the RESOLVE that may follow says what comes of it */

    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    bool effect = outcome_is_success(entry->outcome) || entry->outcome == OUTCOME_UNKNOWN;
    if (!saga_late_resolves(saga, lease)) {
        /* It was given back unstarted, or said not to have happened, and ran after all: the step is
         * maybe, if that can still be acted on (else the saga parks as LATE_EFFECT). A newer lease
         * that is live meanwhile may end before or after: either order must come to the same. */
        bool uncounted = lease->outcome == OUTCOME_RELEASED || lease->seq < attempts->not_done_seq;
        if (uncounted && effect && saga->at.phase == SAGA_RUNNING &&
            entry->operation == OPERATION_ACTION) {
            attempts->unsettled += attempts->done ? 0 : 1;
            attempts->late_seq = entry->seq;
            if (!attempts->window_seq || attempts->window_seq > lease->seq)
                attempts->window_seq = lease->seq;
        } else if (entry->outcome == OUTCOME_UNKNOWN) { /* its request was on its way until now */
            attempts->late_seq = entry->seq;
        }
        return 0;
    }
    if (entry->outcome == OUTCOME_UNKNOWN) { /* as unknown as before, but until now */
        attempts->late_seq = entry->seq;
        return 0;
    }
    about->late_settled = true;
    if (outcome_is_success(entry->outcome))
        set_done(saga, entry->operation, attempts, entry);
    else if (--attempts->unsettled == 0)
        settle(attempts);
    attempts->rejected = entry->outcome == OUTCOME_REJECTED && !attempts->passed_seq;
    if (attempts->passed_seq && attempts->unsettled == 0)
        set_doubt(saga, attempts, false);
    return 0;
}

/* The answer of a probe that this RESOLVE follows from; NULL: the rules cannot have written it. */
static const struct journal_entry *resolving_probe(const struct saga *saga,
                                                   const struct journal_entry *entry)
{
    const struct slot *said = saga_slot(saga, entry->about);
    if (!said || entry->about >= entry->seq || said->entry.operation != OPERATION_PROBE ||
        said->entry.step != entry->step || said->entry.outcome != entry->outcome)
        return NULL;
    const struct slot *lease = said;
    if (said->entry.kind == ENTRY_LATE_REPORT)
        lease = saga_slot(saga, said->entry.about);
    if (!lease || lease->entry.kind != ENTRY_LEASE ||
        lease->of_undo != (entry->operation == OPERATION_COMPENSATION))
        return NULL;
    return &said->entry;
}

/* The end stays: nothing can be taken back any more. */
static bool would_be_taken_back(const struct saga *saga, const struct journal_entry *entry)
{
    size_t step = (size_t)entry->step;
    return entry->operation == OPERATION_ACTION && entry->outcome == OUTCOME_DONE &&
           saga->definition->steps[step].has_compensation &&
           !saga_attempts(saga, step, OPERATION_COMPENSATION)->done;
}

static int apply_resolve(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (!has_operation(saga, entry) || entry->operation == OPERATION_PROBE)
        return corrupt(saga, entry, err, "no operation %d of step %d", (int)entry->operation,
                       entry->step);
    if (entry->outcome != OUTCOME_DONE && entry->outcome != OUTCOME_NOT_DONE)
        return corrupt(saga, entry, err, "outcome %d", (int)entry->outcome);
    const struct journal_entry *said = entry->about ? resolving_probe(saga, entry) : entry;
    if (!said)
        return corrupt(saga, entry, err, "no probe at position %" PRId64 " said so", entry->about);
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    if (attempts->open_seq)
        return corrupt(saga, entry, err, "a resolution beside a live lease");
    set_doubt(saga, attempts, false);
    if (!saga_can_settle(saga, entry->step, entry->operation) ||
        (saga->at.state == SAGA_COMPENSATED && would_be_taken_back(saga, entry)))
        return 0; /* evidence: what is recorded stays */
    attempts->foreign = false;
    if (entry->outcome == OUTCOME_DONE) {
        set_done(saga, entry->operation, attempts, said);
        return 0;
    }
    settle(attempts);
    attempts->not_done_seq = entry->seq;
    attempts->generation++;
    if (!entry->about) /* what a probe finds goes on within the budget: else it could go on for ever
                        */
        fresh_budget(attempts);
    return 0;
}

/* From here the probe decides; or it found nothing in its time. */
static int apply_probing(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (!has_operation(saga, entry) || entry->operation == OPERATION_PROBE ||
        !saga_rule(saga, (size_t)entry->step, entry->operation)->probe)
        return corrupt(saga, entry, err, "no probe of operation %d of step %d",
                       (int)entry->operation, entry->step);
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    if (entry->kind == ENTRY_PROBE)
        attempts->probing_seq = entry->seq;
    else
        attempts->given_up = true;
    return 0;
}

static void apply_skip(struct saga *saga, const struct journal_entry *entry)
{
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    set_done(saga, entry->operation, attempts, entry);
    attempts->rejected = attempts->foreign = false;
    set_doubt(saga, attempts, true);
}

/* The saga goes on without it. */
static void apply_passed(struct saga *saga, const struct journal_entry *entry)
{
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, OPERATION_ACTION);
    attempts->passed_seq = entry->seq;
    if (entry->kind != ENTRY_ACCEPT)
        return;
    attempts->given_up = true;
    set_doubt(saga, attempts, true);
}

static void apply_park(struct saga *saga, const struct journal_entry *entry)
{
    saga->park_seq = entry->seq;
    saga->at.reason = (enum park_reason)entry->reason;
    saga->at.park_step = entry->step;
    if (entry->reason == PARK_DEADLINE_EXCEEDED)
        saga->deadline_parked = true;
    if (entry->step < 0)
        return;
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    if (entry->reason == PARK_OUTCOME_UNKNOWN || entry->reason == PARK_IDEMPOTENCY_WINDOW_OVER)
        attempts->given_up = true;
    if (entry->reason == PARK_LATE_EFFECT)
        set_doubt(saga, attempts, true);
    if (entry->reason == PARK_FOREIGN_EFFECT) {
        const struct slot *done = saga_slot(saga, attempts->done_seq);
        if (done && entry->operation == OPERATION_ACTION)
            saga->output_bytes -= (int64_t)done->entry.output.size;
        attempts->done = false;
        attempts->done_seq = 0;
        attempts->foreign = true;
    }
}

static void apply_retry(struct saga *saga, const struct journal_entry *entry)
{
    saga->retry_seq = entry->seq;
    if (entry->step < 0)
        return;
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    fresh_budget(attempts);
    bool probe = entry->operation == OPERATION_PROBE;
    if (probe) { /* of what is unknown, and is granted again if it did not happen */
        attempts = saga_attempts(saga, (size_t)entry->step, saga_probed(saga, (size_t)entry->step));
        fresh_budget(attempts);
    }
    attempts->probing_seq = probe ? entry->seq : 0;
    attempts->given_up = attempts->rejected = false;
}

/* Whether a decision's step and operation can be. */
static bool names_operation(const struct saga *saga, const struct journal_entry *entry)
{
    if (entry->kind == ENTRY_RETRY && entry->operation == OPERATION_PROBE)
        return has_operation(saga, entry);
    if (entry->kind == ENTRY_ACCEPT)
        return entry->operation == OPERATION_ACTION && has_operation(saga, entry);
    if (entry->kind == ENTRY_CONTINUE)
        return entry->operation == OPERATION_ACTION && has_step(saga, entry);
    return entry->step >= -1 &&
           (entry->step < 0 || (size_t)entry->step < saga->definition->step_count) &&
           (entry->operation == OPERATION_ACTION || entry->operation == OPERATION_COMPENSATION);
}

static int apply_decision(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    enum saga_input input;
    if (!entry_input(entry, &input))
        return corrupt(saga, entry, err, "reason %d", entry->reason);
    if (!names_operation(saga, entry))
        return corrupt(saga, entry, err, "no operation %d of step %d", (int)entry->operation,
                       entry->step);
    if (entry->kind == ENTRY_RESUME && entry->about && entry->about != saga->park_seq)
        return corrupt(saga, entry, err, "not suspended at position %" PRId64, entry->about);
    if ((entry->kind == ENTRY_ACCEPT || entry->kind == ENTRY_CONTINUE) &&
        saga_attempts(saga, (size_t)entry->step, entry->operation)->open_seq)
        return corrupt(saga, entry, err, "it went on beside a live lease");
    if (entry->kind == ENTRY_SKIP &&
        (entry->operation != OPERATION_COMPENSATION || !has_operation(saga, entry) ||
         saga_attempts(saga, (size_t)entry->step, entry->operation)->open_seq))
        return corrupt(saga, entry, err, "there is no such compensation to skip");
    if (entry->kind == ENTRY_ABANDON && saga->open_count)
        return corrupt(saga, entry, err, "an end beside a live lease");
    if (entry->kind == ENTRY_RETRY && entry->step >= 0 &&
        saga_attempts(saga, (size_t)entry->step, entry->operation)->open_seq)
        return corrupt(saga, entry, err, "a retry beside a live lease");
    struct err why;
    if (saga_move(saga, input, &why))
        return corrupt(saga, entry, err, "%s", why.msg);
    if (entry->kind == ENTRY_PARK)
        apply_park(saga, entry);
    else if (entry->kind != ENTRY_ACCEPT && entry->kind != ENTRY_CONTINUE)
        saga->moved_seq = entry->seq;
    if (entry->kind == ENTRY_RETRY)
        apply_retry(saga, entry);
    if (entry->kind == ENTRY_SKIP)
        apply_skip(saga, entry);
    if (entry->kind == ENTRY_ACCEPT || entry->kind == ENTRY_CONTINUE)
        apply_passed(saga, entry);
    if (entry->kind == ENTRY_RESUME && entry->about)
        saga->resumed_seq = entry->seq;
    if (entry->kind == ENTRY_COMPENSATE && plan_pivot_is_done(saga) &&
        saga_attempts(saga, (size_t)saga->definition->pivot, OPERATION_ACTION)->done_seq <
            entry->seq)
        return corrupt(saga, entry, err, "it turned back after the pivot");
    if (entry->kind == ENTRY_COMPENSATE) {
        saga->turned_back_seq = entry->seq;
        if (entry->reason == CAUSE_UNKNOWN && entry->step >= 0)
            saga_attempts(saga, (size_t)entry->step, OPERATION_ACTION)->given_up = true;
    }
    return 0;
}

/* What was asked is kept; what becomes of it the pivot's outcome says. */
static int apply_pending(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (saga->definition->pivot < 0 || entry->step != saga->definition->pivot ||
        saga->at.phase != SAGA_RUNNING ||
        (entry->reason != CAUSE_CANCELLED && entry->reason != CAUSE_DEADLINE))
        return corrupt(saga, entry, err, "nothing waits for step %d", entry->step);
    if (entry->reason == CAUSE_CANCELLED)
        saga->pending_seq = entry->seq;
    else
        saga->overdue_seq = entry->seq;
    return 0;
}

static bool is_wait(const struct saga *saga, const struct journal_entry *entry)
{
    return entry->operation == OPERATION_ACTION && has_step(saga, entry) &&
           saga_is_wait(saga, (size_t)entry->step);
}

/* Kept until its step's turn. */
static int apply_signal(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (!is_wait(saga, entry) || !entry->signal_id)
        return corrupt(saga, entry, err, "step %d does not wait for it", entry->step);
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, OPERATION_ACTION);
    if (attempts->signal_seq)
        return corrupt(saga, entry, err, "it came at position %" PRId64, attempts->signal_seq);
    if (attempts->passed_seq || saga->at.phase != SAGA_RUNNING)
        return corrupt(saga, entry, err, "nothing waits for it any more");
    attempts->signal_seq = entry->seq;
    saga->signals_kept++;
    return 0;
}

static int apply_receive(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (!is_wait(saga, entry))
        return corrupt(saga, entry, err, "step %d does not wait for a signal", entry->step);
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, OPERATION_ACTION);
    if (!attempts->signal_seq || attempts->signal_seq != entry->about)
        return corrupt(saga, entry, err, "there is no signal at position %" PRId64, entry->about);
    enum operation operation;
    if (saga->at.state != SAGA_RUNNING || !plan_is_turn_of(saga, (size_t)entry->step, &operation))
        return corrupt(saga, entry, err, "out of turn");
    saga->signals_kept--;
    set_done(saga, OPERATION_ACTION, attempts, entry);
    return 0;
}

/* Somebody else may have run any of it: an attempt of each action that nobody knows the outcome of,
 * which was none of our leases. */
static int apply_suspect(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (entry->seq != 1 || entry->step != -1)
        return corrupt(saga, entry, err, "the saga has begun, or it is about step %d", entry->step);
    if (entry->leased_at_ms <= 0 || entry->leased_at_ms > entry->finished_at_ms)
        return corrupt(saga, entry, err, "from %" PRId64 " to %" PRId64 " (Unix ms)",
                       entry->leased_at_ms, entry->finished_at_ms);
    for (size_t i = 0; i < saga->definition->step_count; i++) {
        struct attempts *action = &saga->steps[i].of[OPERATION_ACTION];
        if (saga_is_wait(saga, i))
            continue;
        action->unsettled = 1;
        action->unknown_seq = action->window_seq = entry->seq;
    }
    return 0;
}

static int apply_end(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    enum saga_input input;
    if (entry->step != -1 || !saga_end_input(saga, &input))
        return corrupt(saga, entry, err, "an end while something is left to do");
    return saga_move(saga, input, err);
}

/* Other numbers from here on. A deadline that was acted upon, or waits for the pivot, begins anew.
 */
static int apply_options(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    struct saga_options options;
    if (entry->step < -1 || (entry->step >= 0 && !has_step(saga, entry)) ||
        !options_read(&entry->output, &options))
        return corrupt(saga, entry, err, "options of step %d that cannot be read", entry->step);
    if (options.deadline_ms != OPTIONS_SAME) {
        if (saga->at.phase != SAGA_RUNNING)
            return corrupt(saga, entry, err, "a deadline after it turned back");
        saga->deadline_seq = entry->seq;
        saga->deadline_parked = false;
        saga->overdue_seq = 0;
    }
    if (!options_of_operations(&options))
        return 0;
    if (!saga->options)
        saga->options = options_copy(saga->base);
    if (!saga->options)
        return err_set(err, ERR_NOMEM, "saga: memory is out");
    saga->definition = saga->options;
    if (!options_apply(saga->options, entry->step, &options))
        return corrupt(saga, entry, err, "options of an operation that step %d has not",
                       entry->step);
    return 0;
}

static int64_t text_bytes(const char *text)
{
    return text ? (int64_t)strlen(text) : 0;
}

int saga_apply_entry(struct saga *saga, int64_t seq, struct err *err)
{
    enum { ENTRY_BYTES = 120 }; /* a row's fixed columns */
    const struct journal_entry *entry = &saga_slot(saga, seq)->entry;
    if (entry->seq != seq)
        return corrupt(saga, entry, err, "position %" PRId64 " is missing", seq);
    if (saga_state_is_terminal(saga->at.state) && entry->kind != ENTRY_RESOLVE)
        return corrupt(saga, entry, err, "an entry after the end");
    /* A lease that ends now was counted without its result when it was granted. */
    bool was_open = entry->kind == ENTRY_LEASE && has_operation(saga, entry) &&
                    saga_attempts(saga, (size_t)entry->step, entry->operation)->open_seq == seq;
    if (!was_open)
        saga->bytes += ENTRY_BYTES + text_bytes(entry->worker) + text_bytes(entry->actor) +
                       text_bytes(entry->signal_id);
    if (entry->kind != ENTRY_LEASE || entry->outcome != OUTCOME_NONE)
        saga->bytes += (int64_t)entry->output.size + text_bytes(entry->error_code) +
                       text_bytes(entry->error_message);
    switch (entry->kind) {
    case ENTRY_LEASE:
        return apply_lease(saga, entry, err);
    case ENTRY_LATE_REPORT:
        return apply_late(saga, entry, err);
    case ENTRY_RESOLVE:
        return apply_resolve(saga, entry, err);
    case ENTRY_COMPENSATE:
    case ENTRY_PARK:
    case ENTRY_RETRY:
    case ENTRY_RESUME:
    case ENTRY_SKIP:
    case ENTRY_ABANDON:
    case ENTRY_ACCEPT:
    case ENTRY_CONTINUE:
        return apply_decision(saga, entry, err);
    case ENTRY_PROBE:
    case ENTRY_MAYBE:
        return apply_probing(saga, entry, err);
    case ENTRY_PENDING:
        return apply_pending(saga, entry, err);
    case ENTRY_SIGNAL:
        return apply_signal(saga, entry, err);
    case ENTRY_RECEIVE:
        return apply_receive(saga, entry, err);
    case ENTRY_SUSPECT:
        return apply_suspect(saga, entry, err);
    case ENTRY_OPTIONS:
        return apply_options(saga, entry, err);
    case ENTRY_END:
        return apply_end(saga, entry, err);
    case ENTRY_KIND_COUNT:
        break;
    }
    return corrupt(saga, entry, err, "kind %d", (int)entry->kind);
}
