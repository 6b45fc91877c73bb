/* What a person asks for: cancel, retry, resolve, skip, abandon, suspend, resume. */
#include "core/saga_internal.h"

#include <inttypes.h>
#include <string.h>

int saga_ask_table(const struct saga *saga, enum verb verb, struct err *err)
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
    int rc = saga_ask_table(saga, VERB_CANCEL, err);
    if (rc)
        return rc;
    if (saga->at.phase == SAGA_RUNNING && plan_pivot_is_done(saga))
        return err_reason(err, ERR_PRECONDITION, "CANCEL_NOT_ALLOWED",
                          "step \"%s\", the point of no return, is done: nothing is taken back any "
                          "more",
                          saga->definition->steps[saga->definition->pivot].name);
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    enum verdict verdict = VERDICT_NOTHING;
    bool pending = plan_pivot_is_under_way(saga);
    if (saga->at.phase == SAGA_RUNNING && !(pending && saga->pending_seq)) {
        struct journal_entry entry = {
            .kind = pending ? ENTRY_PENDING : ENTRY_COMPENSATE,
            .step = pending ? (int16_t)saga->definition->pivot : -1,
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

int saga_find_step(const struct saga *saga, const char *name, struct err *err)
{
    int step = definition_step_find(saga->definition, name);
    if (step < 0)
        (void)err_set(err, ERR_NOT_FOUND, "definition \"%s\" has no step \"%.64s\"",
                      saga->definition->name, name);
    return step;
}

static int refuse(struct err *err, const char *why)
{
    return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED", "%s", why);
}

/* step: -1 for any. */
static int check_live(const struct saga *saga, int step, struct err *err)
{
    int64_t seq = step < 0 ? plan_open_lease(saga) : plan_lease_of(saga, (size_t)step);
    if (!seq)
        return 0;
    const struct journal_entry *lease = &saga_slot(saga, seq)->entry;
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
    case PARK_IDEMPOTENCY_WINDOW_OVER:
    case PARK_RETRIES_EXHAUSTED:
    case PARK_COMPENSATION_FAILED:
    case PARK_DEADLINE_EXCEEDED:
    case PARK_REJECTED_AFTER_PIVOT:
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
    case PARK_SUSPENDED:
        return refuse(err, "a person stopped it: resume it");
    case PARK_NONE:
    case PARK_REASON_COUNT:
        break;
    }
    return refuse(err, "a retry does not clear what it is parked for");
}

static int check_waiting(const struct saga *saga, size_t step, enum operation operation,
                         int64_t now_ms, struct err *err)
{
    const char *name = saga->definition->steps[step].name;
    bool backs_off = plan_backoff_until_ms(saga, step, operation) > now_ms;
    int64_t settled_ms = operation == OPERATION_COMPENSATION ? plan_settle_until_ms(saga, step) : 0;
    if (!backs_off)
        settled_ms = larger(settled_ms, plan_not_before_ms(saga, step, operation));
    if (plan_delayed_until_ms(saga, step) > now_ms)
        return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED",
                          "step \"%s\" has not been tried yet: it is delayed until %" PRId64
                          " (Unix ms)",
                          name, plan_delayed_until_ms(saga, step));
    if (settled_ms > now_ms)
        return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED",
                          "the %s of step \"%s\" waits until %" PRId64 " (Unix ms) for requests "
                          "that may still be on their way",
                          operation == OPERATION_COMPENSATION ? "compensation" : "action", name,
                          settled_ms);
    if (backs_off)
        return 0;
    if (operation == OPERATION_ACTION && saga_is_wait(saga, step))
        return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED",
                          "step \"%s\" waits for signal \"%s\": send it, or wait for its time-out",
                          name, saga->definition->steps[step].signal);
    return err_reason(err, ERR_PRECONDITION, "RETRY_NOT_ALLOWED",
                      "step \"%s\" is not in a back-off: it waits for a worker of handler \"%s\"",
                      name, saga_rule(saga, step, operation)->handler);
}

/* May an operation whose outcome is unknown be run again? Its window is over whatever was decided.
 */
static bool is_safe_to_repeat(const struct saga *saga, size_t step, enum operation operation,
                              int64_t now_ms)
{
    if (saga_attempts(saga, step, operation)->unsettled == 0)
        return true;
    const struct operation_rule *rule = saga_rule(saga, step, operation);
    return rule->effect == EFFECT_IDEMPOTENT &&
           (!rule->window_ms ||
            now_ms + ATTEMPT_LEAST_MS < plan_send_before_ms(saga, step, operation));
}

/* Of those whose turn it is the one that was asked for (-1: none was), that it is parked at, that
 * backs off, or the first. */
static bool retried_turn(const struct saga *saga, int asked, int64_t now_ms, struct turn *ret)
{
    bool any = false;
    int parked_at = saga->at.state == SAGA_PARKED ? saga->at.park_step : -1;
    for (struct turn turn = plan_turns(saga); plan_next(saga, &turn);) {
        bool backs_off = plan_backoff_until_ms(saga, turn.step, turn.operation) > now_ms;
        bool named = (int)turn.step == (asked >= 0 ? asked : parked_at);
        if (!any || named || (asked < 0 && backs_off))
            *ret = turn;
        any = true;
        if (named || (asked < 0 && parked_at < 0 && backs_off))
            break;
    }
    return any;
}

/* What a retry runs again: the probe where the operation itself may not be. */
static bool retried(const struct saga *saga, int asked, int64_t now_ms, size_t *ret_step,
                    enum operation *ret_operation)
{
    struct turn turn;
    if (!retried_turn(saga, asked, now_ms, &turn))
        return false;
    *ret_step = turn.step;
    *ret_operation = turn.operation;
    if (*ret_operation != OPERATION_PROBE &&
        !is_safe_to_repeat(saga, *ret_step, *ret_operation, now_ms) &&
        saga_rule(saga, *ret_step, *ret_operation)->probe)
        *ret_operation = OPERATION_PROBE;
    return true;
}

/* step: -1 if the phase has nothing left to do. */
static int check_retry(const struct saga *saga, int step, enum operation operation, int64_t now_ms,
                       struct err *err)
{
    bool parked = saga->at.state == SAGA_PARKED;
    int rc = parked ? check_parked(saga, err) : 0;
    if (!rc && step >= 0) /* no compensation begins beside any action */
        rc = check_live(
            saga, operation == OPERATION_COMPENSATION && saga->forward_count ? -1 : step, err);
    if (rc)
        return rc;
    if (step < 0)
        return parked ? 0 : refuse(err, "there is no step to try again");
    if (!is_safe_to_repeat(saga, (size_t)step, operation, now_ms))
        return err_reason(err, ERR_PRECONDITION, "OUTCOME_UNKNOWN",
                          "the %s of step \"%s\" may have taken effect, and %s: find out first",
                          operation == OPERATION_ACTION ? "action" : "compensation",
                          saga->definition->steps[step].name,
                          saga_rule(saga, (size_t)step, operation)->effect == EFFECT_IDEMPOTENT
                              ? "its idempotency key may be forgotten"
                              : "it is not IDEMPOTENT");
    if (plan_limit_reached(saga))
        return refuse(err, "its journal is full");
    if (operation == OPERATION_ACTION && !saga_is_wait(saga, (size_t)step) &&
        plan_task_is_too_large(saga))
        return refuse(err, "its outputs are over the limit of a task");
    return parked ? 0 : check_waiting(saga, (size_t)step, operation, now_ms, err);
}

int saga_on_retry(struct saga *saga, const char *step, const char *actor, const char *reason,
                  int64_t now_ms, struct transition *ret, enum verdict *ret_verdict,
                  struct err *err)
{
    int asked = step ? saga_find_step(saga, step, err) : -1;
    int rc = step && asked < 0 ? (int)err->code : saga_ask_table(saga, VERB_RETRY, err);
    if (rc)
        return rc;
    size_t current = 0;
    enum operation operation = OPERATION_ACTION;
    bool any = retried(saga, asked, now_ms, &current, &operation);
    if (step && (!any || asked != (int)current))
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

/* The lease that was looked into; NULL: not said, or there is no such one. */
static const struct journal_entry *looked_into(const struct saga *saga,
                                               const struct resolution *resolution)
{
    const struct slot *slot = saga_slot(saga, fence_seq(resolution->fence));
    return slot && slot->entry.kind == ENTRY_LEASE && slot->entry.fence == resolution->fence
               ? &slot->entry
               : NULL;
}

/* What was found out says nothing of an attempt that came after it. */
static int check_looked_into(const struct saga *saga, const struct resolution *resolution, int step,
                             enum operation operation, struct err *err)
{
    const struct attempts *attempts = saga_attempts(saga, (size_t)step, operation);
    const struct journal_entry *lease = looked_into(saga, resolution);
    if (!resolution->fence)
        return 0;
    if (!lease || lease->step != step || lease->operation != operation)
        return err_field(err, "fence",
                         "no attempt of that operation of step \"%.64s\" has fence %" PRId64,
                         resolution->step, resolution->fence);
    const struct slot *late = saga_slot(saga, attempts->late_seq);
    int64_t last = larger(attempts->unknown_seq, late ? late->entry.about : 0);
    if (last <= lease->seq)
        return 0;
    return err_reason(err, ERR_PRECONDITION, "NEWER_ATTEMPT",
                      "an attempt after the one with fence %" PRId64 " may have taken effect, too: "
                      "the last such one has fence %" PRId64,
                      resolution->fence, saga_slot(saga, last)->entry.fence);
}

static int check_resolution(const struct saga *saga, const struct resolution *resolution, int step,
                            enum operation operation, struct err *err)
{
    const struct attempts *attempts = saga_attempts(saga, (size_t)step, operation);
    const char *what = operation == OPERATION_ACTION ? "action" : "compensation";
    if (attempts->open_seq)
        return check_live(saga, step, err);
    bool ended = saga_state_is_terminal(saga->at.state);
    /* A doubt needs a word, whatever it changes: after the end none of it is anybody's but this. */
    bool late = attempts->doubt || (ended && saga->at.doubt && attempts->last_seq);
    bool open = !ended && (attempts->unsettled > 0 || attempts->foreign);
    bool is_there = operation == OPERATION_ACTION || saga->definition->steps[step].has_compensation;
    if (!is_there || (!late && !open))
        return err_reason(err, ERR_PRECONDITION, "NOTHING_TO_RESOLVE",
                          "what became of the %s of step \"%s\" is known", what, resolution->step);
    bool settles = saga_can_settle(saga, step, operation);
    if (!late && !settles)
        return err_reason(err, ERR_PRECONDITION, "RESOLVE_NOT_ALLOWED",
                          "the compensation of step \"%s\" was granted already, as for an action "
                          "that may have happened",
                          resolution->step);
    /* It would have to be taken back, and whoever ends a live lease may take that for the end. */
    bool adds = resolution->happened && settles && operation == OPERATION_ACTION &&
                attempts->unsettled == 0 && saga->at.phase == SAGA_COMPENSATING && !ended &&
                saga->definition->steps[step].has_compensation;
    if (adds && saga->open_count)
        return check_live(saga, -1, err);
    if (resolution->output.size &&
        (!resolution->happened || !settles || operation == OPERATION_COMPENSATION))
        return err_field(err, "output",
                         "only an action that did happen, and that has no output "
                         "yet, is given one");
    return 0;
}

int saga_on_resolve(struct saga *saga, const struct resolution *resolution, int64_t now_ms,
                    struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int step = saga_find_step(saga, resolution->step, err);
    int rc = step < 0 ? (int)err->code : saga_ask_table(saga, VERB_RESOLVE, err);
    if (rc)
        return rc;
    enum operation operation = resolution->operation;
    const struct journal_entry *lease = looked_into(saga, resolution);
    if (operation == OPERATION_COUNT && lease && lease->operation != OPERATION_PROBE)
        operation = lease->operation;
    if (operation == OPERATION_COUNT)
        operation = saga_probed(saga, (size_t)step);
    rc = check_resolution(saga, resolution, step, operation, err);
    if (!rc)
        rc = check_looked_into(saga, resolution, step, operation, err);
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
    bool ended = saga_state_is_terminal(saga->at.state);
    rc = change_append(&change, &entry);
    if (!rc && !ended)
        rc = decide_settled(&change, step, operation, resolution->happened && settles);
    if (!rc)
        rc = change_close(&change);
    if (rc)
        return rc;
    *ret = transition;
    *ret_verdict = VERDICT_ACCEPTED;
    return 0;
}

int saga_on_skip(struct saga *saga, const char *step, const char *actor, const char *evidence,
                 int64_t now_ms, struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    int asked = step ? saga_find_step(saga, step, err) : -1;
    if (step && asked < 0)
        return (int)err->code;
    int rc = saga_ask_table(saga, VERB_SKIP, err);
    int current = saga->at.park_step;
    if (!rc)
        rc = check_live(saga, saga->forward_count ? -1 : current, err);
    if (rc)
        return rc;
    enum operation operation = OPERATION_ACTION;
    bool stands = current >= 0 && plan_is_turn_of(saga, (size_t)current, &operation);
    if (!stands || (step && asked != current))
        return err_reason(err, ERR_PRECONDITION, "SKIP_NOT_ALLOWED",
                          "the saga is not parked at %s%.64s: it stands at \"%s\"",
                          step ? "the compensation of step " : "a compensation", step ? step : "",
                          current >= 0 ? saga->definition->steps[current].name : "no step");
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
    int rc = saga_ask_table(saga, VERB_ABANDON, err);
    if (!rc)
        rc = check_live(saga, -1, err);
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

/* The same for both: what is there already needs nothing; parked for another reason it is refused.
 */
static int check_suspended(const struct saga *saga, enum verb verb, const char *reason,
                           bool *ret_nothing, struct err *err)
{
    int rc = saga_ask_table(saga, verb, err);
    if (rc)
        return rc;
    bool parked = saga->at.state == SAGA_PARKED;
    bool suspended = parked && saga->at.reason == PARK_SUSPENDED;
    if (parked && !suspended)
        return err_reason(err, ERR_PRECONDITION, reason, "the saga is parked for %s, not SUSPENDED",
                          park_reason_name(saga->at.reason));
    *ret_nothing = verb == VERB_SUSPEND ? suspended : !parked;
    return 0;
}

int saga_on_suspend(struct saga *saga, const char *actor, const char *reason, int64_t now_ms,
                    struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    bool nothing = false;
    int rc = check_suspended(saga, VERB_SUSPEND, "SUSPEND_NOT_ALLOWED", &nothing, err);
    if (rc)
        return rc;
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    if (!nothing) {
        struct journal_entry entry = {
            .kind = ENTRY_PARK,
            .step = -1,
            .reason = PARK_SUSPENDED,
            .actor = (char *)actor, /* borrowed: change_append copies */
            .error_code = "SUSPENDED",
            .error_message = (char *)reason,
        };
        change.row_changed = true;
        rc = change_append(&change, &entry);
        if (!rc)
            rc = change_close(&change);
        if (rc)
            return rc;
    }
    *ret = transition;
    *ret_verdict = nothing ? VERDICT_NOTHING : VERDICT_ACCEPTED;
    return 0;
}

int saga_on_resume(struct saga *saga, const char *actor, const char *reason, int64_t now_ms,
                   struct transition *ret, enum verdict *ret_verdict, struct err *err)
{
    bool nothing = false;
    int rc = check_suspended(saga, VERB_RESUME, "RESUME_NOT_ALLOWED", &nothing, err);
    if (rc)
        return rc;
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    if (!nothing) {
        struct journal_entry entry = {
            .kind = ENTRY_RESUME,
            .step = -1,
            .about = saga->park_seq,
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
    }
    *ret = transition;
    *ret_verdict = nothing ? VERDICT_NOTHING : VERDICT_ACCEPTED;
    return 0;
}
