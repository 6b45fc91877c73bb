/* What becomes of an unknown outcome that is not repeated: the probe asks, then on_unknown decides.
 */
#include "core/saga_internal.h"

static int append_about(struct change *change, enum entry_kind kind, int step,
                        enum operation operation, const char *code, const char *message)
{
    struct journal_entry entry = {
        .kind = kind,
        .step = (int16_t)step,
        .operation = operation,
        .error_code = (char *)code, /* borrowed: change_append copies */
        .error_message = (char *)message,
    };
    return change_append(change, &entry);
}

/* Neither a repeat nor a probe settles it. */
static int follow_policy(struct change *change, int step, enum operation operation,
                         enum park_reason why, const char *code, const char *message)
{
    if (operation == OPERATION_COMPENSATION)
        return change_park(change, why, step, operation, code, message);
    if (change->saga->at.phase != SAGA_RUNNING)
        return append_about(change, ENTRY_MAYBE, step, operation, code, message);
    switch (saga_rule(change->saga, (size_t)step, operation)->on_unknown) {
    case ON_UNKNOWN_COMPENSATE:
        return change_compensate(change, CAUSE_UNKNOWN, step, code, message);
    case ON_UNKNOWN_ACCEPT:
        return append_about(change, ENTRY_ACCEPT, step, operation, code, message);
    case ON_UNKNOWN_PARK:
    case ON_UNKNOWN_COUNT:
        break;
    }
    return change_park(change, why, step, operation, code, message);
}

int decide_unknown(struct change *change, int step, enum operation operation, enum park_reason why,
                   const char *code, const char *message)
{
    const struct saga *saga = change->saga;
    if (plan_is_probed(saga, (size_t)step, operation))
        return 0;
    if (saga_rule(saga, (size_t)step, operation)->probe &&
        !saga_attempts(saga, (size_t)step, operation)->given_up)
        return append_about(change, ENTRY_PROBE, step, operation, code, message);
    return follow_policy(change, step, operation, why, code, message);
}

int decide_given_up(struct change *change, int step, const char *code, const char *message)
{
    return follow_policy(change, step, saga_probed(change->saga, (size_t)step),
                         PARK_OUTCOME_UNKNOWN, code, message);
}

bool saga_probe_settles(const struct saga *saga, const struct journal_entry *lease,
                        enum operation probed, enum outcome outcome)
{
    size_t step = (size_t)lease->step;
    const struct attempts *attempts = saga_attempts(saga, step, probed);
    if (attempts->open_seq || !saga_can_settle(saga, lease->step, probed))
        return false; /* settled otherwise meanwhile, or nothing asks any more */
    /* It is there, also if a person said meanwhile that it did not happen. */
    if (outcome == OUTCOME_DONE)
        return attempts->unsettled > 0 || attempts->not_done_seq > lease->seq;
    /* It looked after it was granted: then no request was on its way any more. */
    return outcome == OUTCOME_NOT_DONE && attempts->unsettled > 0 &&
           lease->leased_at_ms >= plan_settled_at_ms(saga, step, probed);
}

int decide_probe_answer(struct change *change, int64_t about, int step, enum operation probed,
                        enum outcome outcome)
{
    struct journal_entry entry = { .kind = ENTRY_RESOLVE,
                                   .step = (int16_t)step,
                                   .operation = probed,
                                   .outcome = outcome,
                                   .about = about };
    int rc = change_append(change, &entry);
    return rc ? rc : decide_settled(change, step, probed, outcome == OUTCOME_DONE);
}

int decide_settled(struct change *change, int step, enum operation operation, bool done)
{
    const struct saga *saga = change->saga;
    enum park_reason reason = saga->at.reason;
    bool settled = reason == PARK_OUTCOME_UNKNOWN || reason == PARK_IDEMPOTENCY_WINDOW_OVER ||
                   reason == PARK_FOREIGN_EFFECT || reason == PARK_LATE_EFFECT ||
                   (done && reason != PARK_SUSPENDED);
    bool stands = reason && settled && saga_is_parked_at(saga, reason, step, operation);
    int rc = done ? change_done(change, operation) : 0;
    if (!rc && stands)
        rc = change_resume(change, step, operation);
    return rc ? rc : change_deadline(change);
}
