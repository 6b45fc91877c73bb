/* What a person asks for: cancel, retry, resolve, skip, abandon. */
#include "core/saga_internal.h"

#include <inttypes.h>
#include <string.h>

/* The verb x state table's word; non-zero where it refuses. */
static int ask_table(const struct saga *saga, enum verb verb, struct err *err)
{
    const struct verb_rule *rule = verb_rule_find(verb, saga->at.state, saga->at.phase);
    if (!rule)
        return err_set(err, ERR_INTERNAL, "no rule for a call while %s in %s",
                       saga_state_name(saga->at.state), saga_state_name(saga->at.phase));
    if (rule->reason)
        return err_reason(err, ERR_PRECONDITION, rule->reason, "the saga is %s: %s",
                          saga_state_name(saga->at.state), rule->does);
    return 0;
}

int saga_on_cancel(struct saga *saga, const char *actor, const char *reason, int64_t now_ms,
                   struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int rc = ask_table(saga, VERB_CANCEL, err);
    if (rc)
        return rc;
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    enum verdict verdict = VERDICT_NOTHING;
    if (saga->at.phase == SAGA_RUNNING) {
        struct journal_entry entry = {
            .kind = ENTRY_COMPENSATE,
            .step = -1,
            .reason = CAUSE_CANCELLED,
            .actor = (char *)actor, /* borrowed: change_append copies */
            .error_message = (char *)reason,
        };
        rc = change_append(&change, &entry);
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

static int refuse(struct err *err, const char *why)
{
    return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED", "%s", why);
}

static int check_live(const struct saga *saga, struct err *err)
{
    if (!saga->open_count)
        return 0;
    const struct journal_entry *lease = &saga_slot(saga, plan_open_lease(saga))->entry;
    return err_reason(err, ERR_PRECONDITION, "LEASE_LIVE",
                      "worker %.160s holds a lease of step \"%s\" until %" PRId64
                      " (Unix ms): wait for its report or the end of the lease",
                      lease->worker, saga->definition->steps[lease->step].name,
                      lease->lease_until_ms);
}

static int check_parked(const struct saga *saga, struct err *err)
{
    switch (saga->at.reason) {
    case PARK_OUTCOME_UNKNOWN: /* whether the operation may be repeated is asked next */
    case PARK_RETRIES_EXHAUSTED:
    case PARK_COMPENSATION_FAILED:
    case PARK_DEADLINE_EXCEEDED:
    case PARK_WORKER_KILLER:
        return 0;
    case PARK_LIMIT_REACHED:
        return refuse(
            err,
            "a limit of the saga is reached: cancel it if it is RUNNING in its phase, and start "
            "another saga");
    case PARK_FOREIGN_EFFECT:
        return refuse(err, "the effect exists already and is not this saga's: a repeat would find "
                           "the same");
    case PARK_LATE_EFFECT:
        return refuse(err,
                      "a late report speaks against what is recorded: a repeat would not clear "
                      "that up");
    case PARK_NONE:
    case PARK_IDEMPOTENCY_WINDOW_OVER:
    case PARK_REJECTED_AFTER_PIVOT:
    case PARK_SUSPENDED:
    case PARK_REASON_COUNT:
        break;
    }
    return refuse(err, "a retry does not clear what it is parked for");
}

static int check_waiting(const struct saga *saga, size_t step, enum operation operation,
                         int64_t now_ms, struct err *err)
{
    const char *name = saga->definition->steps[step].name;
    if (operation == OPERATION_COMPENSATION && plan_settle_until_ms(saga, step) > now_ms)
        return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED",
                          "the compensation of step \"%s\" waits until %" PRId64 " (Unix ms) for "
                          "requests that may still be on their way",
                          name, plan_settle_until_ms(saga, step));
    if (plan_backoff_until_ms(saga, step, operation) > now_ms)
        return 0;
    return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED",
                      "step \"%s\" is not in a back-off: it waits for a worker of handler \"%s\"",
                      name, saga_rule(saga, step, operation)->handler);
}

/* step: -1 if the phase has nothing left to do. */
static int check_retry(const struct saga *saga, int step, enum operation operation, int64_t now_ms,
                       struct err *err)
{
    bool parked = saga->at.state == SAGA_PARKED;
    int rc = parked ? check_parked(saga, err) : 0;
    if (!rc)
        rc = check_live(saga, err);
    if (rc)
        return rc;
    if (step < 0)
        return parked ? 0 : refuse(err, "there is no step to try again");
    if (saga_attempts(saga, (size_t)step, operation)->unsettled > 0 &&
        saga_rule(saga, (size_t)step, operation)->effect != EFFECT_IDEMPOTENT)
        return err_reason(err, ERR_PRECONDITION, "OUTCOME_UNKNOWN",
                          "the %s of step \"%s\" may have taken effect, and it is not IDEMPOTENT: "
                          "find out first",
                          operation == OPERATION_ACTION ? "action" : "compensation",
                          saga->definition->steps[step].name);
    if (plan_limit_reached(saga))
        return refuse(err, "its journal is full");
    if (operation == OPERATION_ACTION && plan_task_is_too_large(saga))
        return refuse(err, "its outputs are over the limit of a task");
    return parked ? 0 : check_waiting(saga, (size_t)step, operation, now_ms, err);
}

int saga_on_retry(struct saga *saga, const char *step, const char *actor, const char *reason,
                  int64_t now_ms, struct transition *ret, enum verdict *ret_verdict,
                  struct err *err)
{
    if (step && definition_step_find(saga->definition, step) < 0)
        return err_set(err, ERR_NOT_FOUND, "definition \"%s\" has no step \"%.64s\"",
                       saga->definition->name, step);
    int rc = ask_table(saga, VERB_RETRY, err);
    if (rc)
        return rc;
    size_t current = 0;
    enum operation operation = OPERATION_ACTION;
    bool any = plan_current(saga, &current, &operation);
    if (step && (!any || definition_step_find(saga->definition, step) != (int)current))
        return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED",
                          "the saga does not stand at step \"%.64s\" but at \"%s\"", step,
                          any ? saga->definition->steps[current].name : "its end");
    rc = check_retry(saga, any ? (int)current : -1, operation, now_ms, err);
    if (rc)
        return rc;
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    struct journal_entry entry = {
        .kind = ENTRY_RETRY,
        .step = any ? (int16_t)current : -1,
        .operation = operation,
        .actor = (char *)actor, /* borrowed: change_append copies */
        .error_message = (char *)reason,
    };
    rc = change_append(&change, &entry);
    if (!rc)
        rc = change_deadline(&change);
    if (!rc)
        rc = change_close(&change);
    if (rc)
        return rc;
    *ret = transition;
    *ret_verdict = VERDICT_ACCEPTED;
    return 0;
}

/* -1 with ERR_NOT_FOUND when there is no such step. */
static int find_step(const struct saga *saga, const char *name, struct err *err)
{
    int step = definition_step_find(saga->definition, name);
    if (step < 0)
        (void)err_set(err, ERR_NOT_FOUND, "definition \"%s\" has no step \"%.64s\"",
                      saga->definition->name, name);
    return step;
}

static int check_resolution(const struct saga *saga, const struct resolution *resolution, int step,
                            enum operation operation, struct err *err)
{
    const struct attempts *attempts = saga_attempts(saga, (size_t)step, operation);
    const char *what = operation == OPERATION_ACTION ? "action" : "compensation";
    if (attempts->open_seq)
        return check_live(saga, err);
    bool late = saga_is_parked_at(saga, PARK_LATE_EFFECT, step, operation);
    bool open = attempts->unsettled > 0 || attempts->foreign;
    if (!late && !open)
        return err_reason(err, ERR_PRECONDITION, "NOTHING_TO_RESOLVE",
                          "what became of the %s of step \"%s\" is known", what, resolution->step);
    bool settles = saga_can_settle(saga, step, operation);
    if (!late && !settles)
        return err_reason(err, ERR_PRECONDITION, "RESOLVE_NOT_ALLOWED",
                          "the compensation of step \"%s\" was granted already, as for an action "
                          "that may have happened",
                          resolution->step);
    if (resolution->output.size &&
        (!resolution->happened || !settles || operation == OPERATION_COMPENSATION))
        return err_field(err, "output",
                         "only an action that did happen, and that has no output "
                         "yet, is given one");
    return 0;
}

/* What the entry leads to: the step is done or granted again, and a saga that stands for it goes
 * on. */
static int follow_resolution(struct change *change, int step, enum operation operation, bool done)
{
    const struct saga *saga = change->saga;
    enum park_reason reason = saga->at.reason;
    bool settled = done || reason == PARK_OUTCOME_UNKNOWN || reason == PARK_FOREIGN_EFFECT ||
                   reason == PARK_LATE_EFFECT;
    bool stands = reason && settled && saga_is_parked_at(saga, reason, step, operation);
    int rc = done ? change_done(change, operation) : 0;
    if (!rc && stands)
        rc = change_resume(change, step, operation);
    if (!rc)
        rc = change_deadline(change);
    return rc ? rc : change_close(change);
}

int saga_on_resolve(struct saga *saga, const struct resolution *resolution, int64_t now_ms,
                    struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int step = find_step(saga, resolution->step, err);
    int rc = step < 0 ? (int)err->code : ask_table(saga, VERB_RESOLVE, err);
    if (rc)
        return rc;
    enum operation operation = resolution->operation;
    if (operation == OPERATION_COUNT)
        operation = saga_attempts(saga, (size_t)step, OPERATION_COMPENSATION)->last_seq
                        ? OPERATION_COMPENSATION
                        : OPERATION_ACTION;
    rc = check_resolution(saga, resolution, step, operation, err);
    if (rc)
        return rc;
    bool settles = saga_can_settle(saga, step, operation);
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    struct journal_entry entry = {
        .kind = ENTRY_RESOLVE,
        .step = (int16_t)step,
        .operation = operation,
        .outcome = resolution->happened ? OUTCOME_DONE : OUTCOME_NOT_DONE,
        .output = resolution->output, /* borrowed, as the texts: change_append copies */
        .actor = (char *)resolution->actor,
        .error_message = (char *)resolution->evidence,
    };
    rc = change_append(&change, &entry);
    if (!rc)
        rc = follow_resolution(&change, step, operation, resolution->happened && settles);
    if (rc)
        return rc;
    *ret = transition;
    *ret_verdict = VERDICT_ACCEPTED;
    return 0;
}

int saga_on_skip(struct saga *saga, const char *step, const char *actor, const char *evidence,
                 int64_t now_ms, struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int asked = step ? find_step(saga, step, err) : -1;
    if (step && asked < 0)
        return (int)err->code;
    int rc = ask_table(saga, VERB_SKIP, err);
    if (!rc)
        rc = check_live(saga, err);
    if (rc)
        return rc;
    size_t current = 0;
    enum operation operation = OPERATION_ACTION;
    bool any = plan_current(saga, &current, &operation);
    if (!any || saga->at.park_step != (int)current || (step && asked != (int)current))
        return err_reason(err, ERR_PRECONDITION, "SKIP_NOT_ALLOWED",
                          "the saga is not parked at the compensation of step \"%.64s\": it stands "
                          "at \"%s\"",
                          step  ? step
                          : any ? saga->definition->steps[current].name
                                : "?",
                          saga->at.park_step >= 0 ? saga->definition->steps[saga->at.park_step].name
                                                  : "no step");
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    struct journal_entry entry = {
        .kind = ENTRY_SKIP,
        .step = (int16_t)current,
        .operation = OPERATION_COMPENSATION,
        .actor = (char *)actor, /* borrowed: change_append copies */
        .error_message = (char *)evidence,
    };
    rc = change_append(&change, &entry);
    if (!rc)
        rc = change_close(&change);
    if (rc)
        return rc;
    *ret = transition;
    *ret_verdict = VERDICT_ACCEPTED;
    return 0;
}

int saga_on_abandon(struct saga *saga, const char *actor, const char *reason, int64_t now_ms,
                    struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int rc = ask_table(saga, VERB_ABANDON, err);
    if (!rc)
        rc = check_live(saga, err);
    if (rc)
        return rc;
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    enum verdict verdict = VERDICT_NOTHING;
    if (saga->at.state != SAGA_ABANDONED) {
        struct journal_entry entry = {
            .kind = ENTRY_ABANDON,
            .step = -1,
            .actor = (char *)actor, /* borrowed: change_append copies */
            .error_message = (char *)reason,
        };
        transition.ends = true;
        rc = change_append(&change, &entry);
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
