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
        *ret = operation == OPERATION_COMPENSATION ? IN_COMPENSATION_UNKNOWN : IN_UNKNOWN_PARK;
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
    case PARK_NONE:
    case PARK_IDEMPOTENCY_WINDOW_OVER: /* these have no way to come about yet */
    case PARK_REJECTED_AFTER_PIVOT:
    case PARK_SUSPENDED:
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
        *ret = IN_SETTLED;
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
    if (saga->at.state == SAGA_RUNNING && plan_forward(saga) < 0) {
        *ret = IN_LAST_STEP_DONE;
        return true;
    }
    if (saga->at.state == SAGA_COMPENSATING && plan_backward(saga) < 0) {
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
    if (saga->open_count)
        return corrupt(saga, entry, err, "a lease beside a live one");
    if (entry->try_ != attempts->tries + 1)
        return corrupt(saga, entry, err, "try %" PRId32 " after %" PRId32, entry->try_,
                       attempts->tries);
    if (fence_seq(entry->fence) != entry->seq || entry->fence <= saga->last_fence)
        return corrupt(saga, entry, err, "fence %" PRId64 " after %" PRId64, entry->fence,
                       saga->last_fence);
    if (attempts->unsettled > 0 &&
        saga_rule(saga, step, entry->operation)->effect != EFFECT_IDEMPOTENT)
        return corrupt(saga, entry, err, "a repeat of an unknown outcome");
    if (attempts->done || attempts->rejected || attempts->foreign)
        return corrupt(saga, entry, err, "a repeat of what is done or refused");
    bool forward = entry->operation == OPERATION_ACTION;
    if (saga->at.state != (forward ? SAGA_RUNNING : SAGA_COMPENSATING))
        return corrupt(saga, entry, err, "a lease while %s", saga_state_name(saga->at.state));
    if ((forward ? plan_forward(saga) : plan_backward(saga)) != (int)step)
        return corrupt(saga, entry, err, "a lease of step %zu out of turn", step);
    return 0;
}

static int apply_opened(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    int rc = check_grant(saga, entry, err);
    if (rc)
        return rc;
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    attempts->open_seq = attempts->last_seq = entry->seq;
    attempts->tries++;
    attempts->budget_tries++;
    if (!attempts->budget_seq)
        attempts->budget_seq = entry->seq;
    saga->open_count++;
    saga->last_lease_seq = entry->seq;
    saga->last_fence = entry->fence;
    return 0;
}

static void set_done(struct saga *saga, struct attempts *attempts,
                     const struct journal_entry *entry)
{
    attempts->done = true;
    attempts->done_seq = entry->seq;
    if (entry->operation == OPERATION_ACTION)
        saga->output_bytes += (int64_t)entry->output.size;
    attempts->unsettled = 0; /* one effect, known: earlier attempts were that same effect */
}

static void apply_ended(struct saga *saga, const struct journal_entry *entry)
{
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    attempts->open_seq = 0;
    saga->open_count--;
    if (entry->outcome == OUTCOME_RELEASED) { /* as if it had never been */
        attempts->tries--;
        attempts->budget_tries--;
        if (attempts->budget_seq == entry->seq)
            attempts->budget_seq = 0;
        attempts->backoff_seq = 0;
        return;
    }
    attempts->ended_seq = entry->seq;
    bool lost = entry->outcome == OUTCOME_EXPIRED || entry->outcome == OUTCOME_STREAM_LOST;
    attempts->losses = lost ? attempts->losses + 1 : 0;
    attempts->backoff_seq = 0;
    if (outcome_is_success(entry->outcome)) {
        set_done(saga, attempts, entry);
    } else if (entry->outcome == OUTCOME_REJECTED) {
        attempts->rejected = true;
    } else {
        attempts->backoff_seq = entry->seq;
    }
    if (outcome_is_unknown(entry->outcome)) {
        attempts->unsettled++;
        attempts->unknown_seq = entry->seq;
    }
    if (entry->outcome == OUTCOME_STREAM_LOST)
        attempts->lost_seq = entry->seq;
}

static bool has_operation(const struct saga *saga, const struct journal_entry *entry)
{
    if (entry->step < 0 || (size_t)entry->step >= saga->definition->step_count)
        return false;
    return entry->operation == OPERATION_COMPENSATION
               ? saga->definition->steps[entry->step].has_compensation
               : entry->operation == OPERATION_ACTION;
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
    if (entry->outcome < OUTCOME_DONE || entry->outcome > OUTCOME_UNKNOWN)
        return corrupt(saga, entry, err, "outcome %d", (int)entry->outcome);
    about->late_seq = entry->seq;
    about->late_settled = false;

    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    bool effect = outcome_is_success(entry->outcome) || entry->outcome == OUTCOME_UNKNOWN;
    if (!saga_late_resolves(saga, lease)) {
        /* It was given back unstarted, and ran after all: the step is maybe, if that can still be
         * acted on (else the saga parks as LATE_EFFECT). A newer lease that is live meanwhile may
         * end before or after: either order must come to the same. */
        if (lease->outcome == OUTCOME_RELEASED && effect && saga->at.phase == SAGA_RUNNING &&
            entry->operation == OPERATION_ACTION) {
            attempts->unsettled += attempts->done ? 0 : 1;
            attempts->late_seq = entry->seq;
        }
        return 0;
    }
    if (entry->outcome == OUTCOME_UNKNOWN) { /* as unknown as before, but until now */
        attempts->late_seq = entry->seq;
        return 0;
    }
    about->late_settled = true;
    saga->moved_seq = entry->seq;
    if (outcome_is_success(entry->outcome))
        set_done(saga, attempts, entry);
    else
        attempts->unsettled--;
    attempts->rejected = entry->outcome == OUTCOME_REJECTED;
    return 0;
}

static void fresh_budget(struct attempts *attempts)
{
    attempts->budget_seq = 0;
    attempts->budget_tries = 0;
    attempts->losses = 0;
    attempts->backoff_seq = 0;
}

static int apply_resolve(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    if (!has_operation(saga, entry))
        return corrupt(saga, entry, err, "no operation %d of step %d", (int)entry->operation,
                       entry->step);
    if (entry->outcome != OUTCOME_DONE && entry->outcome != OUTCOME_NOT_DONE)
        return corrupt(saga, entry, err, "outcome %d", (int)entry->outcome);
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    if (attempts->open_seq)
        return corrupt(saga, entry, err, "a resolution beside a live lease");
    saga->moved_seq = entry->seq;
    if (saga_is_parked_at(saga, PARK_LATE_EFFECT, entry->step, entry->operation))
        saga->at.doubt = false;
    if (!saga_can_settle(saga, entry->step, entry->operation))
        return 0; /* evidence: what is recorded stays */
    attempts->foreign = false;
    if (entry->outcome == OUTCOME_DONE) {
        set_done(saga, attempts, entry);
    } else {
        attempts->unsettled = 0;
        fresh_budget(attempts);
    }
    return 0;
}

static void apply_skip(struct saga *saga, const struct journal_entry *entry)
{
    struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
    set_done(saga, attempts, entry);
    attempts->rejected = attempts->foreign = false;
}

static void apply_park(struct saga *saga, const struct journal_entry *entry)
{
    saga->park_seq = entry->seq;
    saga->at.reason = (enum park_reason)entry->reason;
    saga->at.park_step = entry->step;
    if (entry->reason == PARK_DEADLINE_EXCEEDED)
        saga->deadline_parked = true;
    if (entry->reason == PARK_LATE_EFFECT)
        saga->at.doubt = true;
    if (entry->reason == PARK_FOREIGN_EFFECT && entry->step >= 0) {
        struct attempts *attempts = saga_attempts(saga, (size_t)entry->step, entry->operation);
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
    attempts->rejected = false;
}

static int apply_decision(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    enum saga_input input;
    if (!entry_input(entry, &input))
        return corrupt(saga, entry, err, "reason %d", entry->reason);
    if (entry->step < -1 ||
        (entry->step >= 0 && (size_t)entry->step >= saga->definition->step_count) ||
        (entry->operation != OPERATION_ACTION && entry->operation != OPERATION_COMPENSATION))
        return corrupt(saga, entry, err, "no operation %d of step %d", (int)entry->operation,
                       entry->step);
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
    else
        saga->moved_seq = entry->seq;
    if (entry->kind == ENTRY_RETRY)
        apply_retry(saga, entry);
    if (entry->kind == ENTRY_SKIP)
        apply_skip(saga, entry);
    if (entry->kind == ENTRY_COMPENSATE)
        saga->turned_back_seq = entry->seq;
    return 0;
}

static int apply_end(struct saga *saga, const struct journal_entry *entry, struct err *err)
{
    enum saga_input input;
    if (entry->step != -1 || !saga_end_input(saga, &input))
        return corrupt(saga, entry, err, "an end while something is left to do");
    return saga_move(saga, input, err);
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
    if (saga_state_is_terminal(saga->at.state))
        return corrupt(saga, entry, err, "an entry after the end");
    /* A lease that ends now was counted without its result when it was granted. */
    bool was_open = entry->kind == ENTRY_LEASE && entry->step >= 0 &&
                    (size_t)entry->step < saga->definition->step_count &&
                    saga_attempts(saga, (size_t)entry->step, entry->operation)->open_seq == seq;
    if (!was_open)
        saga->bytes += ENTRY_BYTES + text_bytes(entry->worker) + text_bytes(entry->actor);
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
        return apply_decision(saga, entry, err);
    case ENTRY_END:
        return apply_end(saga, entry, err);
    case ENTRY_KIND_COUNT:
        break;
    }
    return corrupt(saga, entry, err, "kind %d", (int)entry->kind);
}
