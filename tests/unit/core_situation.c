#include "core_situation.h"

#include "core/limits.h"

enum { SETTLE_MS = 5000, WINDOW_MS = 60000, STEP = 1 };

static const enum outcome outcomes[] = {
    [DONE] = OUTCOME_DONE,
    [ALREADY_DONE] = OUTCOME_ALREADY_DONE,
    [FOREIGN] = OUTCOME_ALREADY_DONE,
    [REJECTED] = OUTCOME_REJECTED,
    [RETRY] = OUTCOME_RETRY,
    [UNKNOWN] = OUTCOME_UNKNOWN,
    [EXPIRED] = OUTCOME_EXPIRED,
    [STREAM_LOST] = OUTCOME_STREAM_LOST,
    [RELEASED] = OUTCOME_RELEASED,
    [NOT_DONE] = OUTCOME_NOT_DONE,
    [STILL_UNKNOWN] = OUTCOME_STILL_UNKNOWN,
};

static int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The oracle. */

static struct follows park(enum park_reason reason)
{
    return (struct follows){ PARK, reason, AT_ONCE };
}

static struct follows then(enum what what, enum not_before not_before)
{
    return (struct follows){ what, PARK_NONE, not_before };
}

/* Neither a repeat nor a probe settles it. */
static struct follows unknown_policy(const struct situation *s, enum park_reason reason)
{
    if (of_undo(s))
        return park(reason);
    if (s->back || s->on_unknown == ON_UNKNOWN_COMPENSATE)
        return then(UNDO_MAYBE, SETTLED);
    return s->on_unknown == ON_UNKNOWN_ACCEPT ? then(ACCEPT, AT_ONCE) : park(reason);
}

/* The budget is spent, and nothing can have happened. */
static struct follows exhausted_policy(const struct situation *s)
{
    if (of_undo(s))
        return park(PARK_COMPENSATION_FAILED);
    if (s->on_exhausted == ON_EXHAUSTED_COMPENSATE)
        return then(UNDO_NONE, AT_ONCE);
    return s->on_exhausted == ON_EXHAUSTED_CONTINUE ? then(CONTINUE, AT_ONCE)
                                                    : park(PARK_RETRIES_EXHAUSTED);
}

static struct follows done(const struct situation *s)
{
    if (of_undo(s))
        return then(UNDONE, AT_ONCE);
    return then(s->back ? UNDO_DONE : NEXT, AT_ONCE);
}

static struct follows expect_probe(const struct situation *s)
{
    if (s->told == DONE)
        return done(s);
    if (s->told == NOT_DONE && s->counts) {
        if (s->back && !of_undo(s))
            return then(UNDO_NONE, AT_ONCE);
        return s->class == WITH_PROBE ? exhausted_policy(s) : then(AGAIN, AT_ONCE);
    }
    if (s->told == RELEASED)
        return then(ASK, AT_ONCE);
    if (s->killed)
        return park(PARK_WORKER_KILLER);
    if (s->spent)
        return unknown_policy(s, PARK_OUTCOME_UNKNOWN);
    return then(ASK, s->told == NOT_DONE ? SETTLED : BACKOFF);
}

/* Something is unsettled, and the saga has not turned back from it. */
static struct follows expect_unsettled(const struct situation *s)
{
    bool over = s->over && has_window(s->class);
    bool spent = s->spent && s->told != RELEASED;
    if (s->killed && (is_idempotent(s->class) || has_probe(s->class)))
        return park(PARK_WORKER_KILLER);
    if (is_idempotent(s->class) && !spent && !over)
        return then(AGAIN, s->told == RELEASED ? AT_ONCE : BACKOFF);
    if (has_probe(s->class))
        return then(ASK, AT_ONCE);
    if (is_idempotent(s->class) && of_undo(s) && !over)
        return park(PARK_COMPENSATION_FAILED);
    return unknown_policy(s, over ? PARK_IDEMPOTENCY_WINDOW_OVER : PARK_OUTCOME_UNKNOWN);
}

struct follows situation_expected(const struct situation *s)
{
    bool unsettled = s->earlier || is_unknown(s->told);
    if (is_probe(s))
        return expect_probe(s);
    if (s->told == STREAM_LOST && !is_idempotent(s->class))
        return then(STAYS, AT_ONCE);
    if (s->told == DONE || s->told == ALREADY_DONE || (s->told == FOREIGN && s->earlier))
        return done(s);
    if (s->told == FOREIGN)
        return park(PARK_FOREIGN_EFFECT);
    if (s->told == REJECTED && of_undo(s))
        return park(PARK_COMPENSATION_FAILED);
    if ((s->back || s->told == REJECTED) && !of_undo(s)) {
        if (!unsettled)
            return then(UNDO_NONE, AT_ONCE);
        return s->class == PROBED ? then(ASK, AT_ONCE) : then(UNDO_MAYBE, SETTLED);
    }
    if (unsettled)
        return expect_unsettled(s);
    if (s->told == RELEASED)
        return then(AGAIN, AT_ONCE);
    return s->spent ? exhausted_policy(s) : then(AGAIN, BACKOFF);
}

/* Playing it. */

static void set_rules(struct world *world, const struct situation *s)
{
    struct step_rule *b = &world->definition->steps[STEP];
    struct operation_rule *rule = of_undo(s) ? &b->compensation : &b->action;
    b->guarded = false;
    b->settle_ms = SETTLE_MS;
    rule->effect = is_idempotent(s->class) ? EFFECT_IDEMPOTENT
                   : s->class == PROBED    ? EFFECT_PROBED
                                           : EFFECT_AT_MOST_ONCE;
    rule->window_ms = has_window(s->class) ? WINDOW_MS : 0;
    rule->retry.initial_ms = rule->retry.cap_ms = 1; /* as good as at once */
    rule->lost_leases_max = !is_probe(s) && s->killed ? 1 : LIMIT_LOST_LEASES;
    if (!is_probe(s) && s->spent)
        rule->retry.max_attempts = s->earlier ? 2 : 1;
    if (is_probe(s) && s->class == WITH_PROBE)
        rule->retry.max_attempts = 1; /* so that the probe is asked */
    if (!of_undo(s)) {
        rule->on_unknown = s->on_unknown;
        rule->on_exhausted = s->on_exhausted;
    }
    if (!has_probe(s->class))
        return;
    struct operation_rule *probe =
        world_add_probe(world, STEP, of_undo(s) ? OPERATION_COMPENSATION : OPERATION_ACTION);
    probe->retry.initial_ms = probe->retry.cap_ms = 1;
    probe->lost_leases_max = is_probe(s) && s->killed ? 1 : LIMIT_LOST_LEASES;
    if (is_probe(s) && s->spent)
        probe->retry.max_attempts = 1;
}

/* Lets the live lease run to the end of the window. */
static void run_out(struct world *world, int64_t seq)
{
    struct journal_entry *stored = &world->entries[seq - 1];
    while (world->now_ms < stored->attempt_until_ms - ATTEMPT_LEAST_MS / 2) {
        int64_t next_ms = world->now_ms + 9000;
        world->now_ms = stored->attempt_until_ms - ATTEMPT_LEAST_MS / 2;
        world->now_ms = next_ms < world->now_ms ? next_ms : world->now_ms;
        saga_extended(world->saga, seq, world->now_ms);
        stored->lease_until_ms = saga_entry(world->saga, seq)->lease_until_ms;
    }
}

/* The live lease; *ret_settled_ms: when the requests of the attempts before it have arrived. */
static int64_t open_situation(struct world *world, const struct situation *s,
                              int64_t *ret_settled_ms)
{
    world_open(world, 3);
    set_rules(world, s);
    world_start(world);
    (void)world_run(world, OUTCOME_DONE);
    if (of_undo(s)) {
        (void)world_run(world, OUTCOME_DONE);
        (void)world_run(world, OUTCOME_REJECTED);
    }
    int64_t seq = world_grant(world);
    if (s->earlier || is_probe(s)) {
        if (is_probe(s) && has_window(s->class))
            run_out(world, seq);
        assert_int_equal(world_report(world, seq, OUTCOME_UNKNOWN), VERDICT_ACCEPTED);
        *ret_settled_ms = world->now_ms + SETTLE_MS;
        world_pass(world, is_probe(s) && s->counts ? SETTLE_MS : is_probe(s) ? 0 : 1);
        seq = world_grant(world);
    }
    if (s->over)
        run_out(world, seq);
    if (s->back && !of_undo(s))
        assert_int_equal(world_cancel(world), 0);
    if (s->parked)
        assert_int_equal(world_suspend(world), 0);
    return seq;
}

static void end_lease(struct world *world, const struct situation *s, int64_t seq)
{
    struct report report = { .fence = saga_entry(world->saga, seq)->fence,
                             .outcome = outcomes[s->told],
                             .ours = s->told == ALREADY_DONE };
    if (s->told == EXPIRED)
        world_expire(world, seq);
    else if (s->told == STREAM_LOST || s->told == RELEASED)
        (void)world_lease_end(world, seq, outcomes[s->told]);
    else
        assert_int_equal(world_report_full(world, &report), VERDICT_ACCEPTED);
}

static bool is_passed(const struct world *world, enum entry_kind kind)
{
    for (size_t i = 0; i < world->count; i++)
        if (world->entries[i].kind == kind)
            return true;
    return false;
}

/* From what is granted next. */
static enum what what_is_next(struct world *world, const struct situation *s)
{
    const struct journal_entry *lease = saga_entry(world->saga, world_grant(world));
    if (lease->step == STEP && lease->operation == OPERATION_PROBE)
        return ASK;
    if (lease->step == STEP + 1)
        return is_passed(world, ENTRY_ACCEPT)     ? ACCEPT
               : is_passed(world, ENTRY_CONTINUE) ? CONTINUE
                                                  : NEXT;
    if (lease->step < STEP)
        return of_undo(s) ? UNDONE : UNDO_NONE;
    if (lease->operation == (of_undo(s) ? OPERATION_COMPENSATION : OPERATION_ACTION))
        return AGAIN;
    struct task_view task;
    saga_task_view(world->saga, lease->seq, &task);
    return task.action_done ? UNDO_DONE : UNDO_MAYBE;
}

struct follows situation_play(const struct situation *s, enum not_before not_before)
{
    struct world world;
    int64_t settled_ms = 0;
    int64_t seq = open_situation(&world, s, &settled_ms);
    end_lease(&world, s, seq);
    struct follows follows = { .what = STAYS, .not_before = not_before };
    if (saga_entry(world.saga, seq)->outcome == OUTCOME_NONE) {
        world_close(&world);
        return follows;
    }
    if (!is_probe(s) && is_unknown(s->told))
        settled_ms =
            larger_of(world.now_ms,
                      s->told == STREAM_LOST ? saga_entry(world.saga, seq)->lease_until_ms : 0) +
            SETTLE_MS;
    if (s->parked) {
        assert_int_equal(saga_row(world.saga)->state, SAGA_PARKED);
        assert_false(world_is_grantable(&world));
        if (saga_row(world.saga)->park_reason == PARK_SUSPENDED)
            assert_int_equal(world_resume(&world), 0);
    }
    for (int i = 0; world_time(&world) == VERDICT_ACCEPTED; i++)
        assert_in_range(i, 0, 5);
    if (saga_row(world.saga)->state == SAGA_PARKED) {
        follows = park(saga_row(world.saga)->park_reason);
    } else {
        int64_t at = larger_of(saga_grantable_at(world.saga, world.now_ms), world.now_ms);
        if (saga_grantable_at(world.saga, world.now_ms) == INT64_MAX)
            at = world.now_ms; /* nothing to wait for */
        if (not_before == SETTLED)
            assert_int_equal(at, larger_of(settled_ms, world.now_ms));
        else
            assert_in_range(at, world.now_ms, world.now_ms + (not_before == BACKOFF));
        world.now_ms = at;
        follows.what = what_is_next(&world, s);
    }
    world_close(&world);
    return follows;
}
