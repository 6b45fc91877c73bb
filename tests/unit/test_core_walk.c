/* Goal: whatever happens in whatever order, the promises hold and a replay equals the copy. Method:
 * seeded random walks over random definitions; after each commit the tables are replayed and
 * compared (core_world.c), and the journal is judged by an oracle that knows nothing of the core.
 */
#include "core/limits.h"
#include "core_world.h"

#include <inttypes.h>
#include <stdio.h>

enum { STEPS_MAX = 6, EVENTS = 60, GO_HOME = 200, WALKS = 8000, WALKS_FULL = 200000 };

/* What an observer of the tables knows of an action or a compensation, in the order of events. */
struct known {
    int maybe; /* unsettled attempts */
    bool done, doubt;
    int tries, probes;      /* that were not given back */
    int64_t settle_from_ms; /* a request may be on its way: settle time runs from here */
    int64_t window_from_ms; /* the first attempt since nothing was unsettled */
    int64_t not_done_seq;   /* the last time that it was said not to have happened */
    bool waits;             /* and nothing was tried since */
    int not_done;           /* how often */
};

struct oracle {
    struct known of[STEPS_MAX][2];
    bool passed[STEPS_MAX], undone[STEPS_MAX]; /* gone on without; compensation was granted */
    int64_t over_ms[STEPS_MAX];                /* since when the step is done, or was passed */
    int64_t signal_seq[STEPS_MAX];             /* what a wait is for has come */
    int64_t lost_until_ms;
    bool suspect, turned_back, end_doubt;
    size_t seen; /* entries */
    /* What happened at least once. */
    bool parallel, undone_in_parallel, refused_beside;
    bool cancel_pending, deadline_pending, cancelled_by_pivot, pivot_won;
    bool received_at_once, received_later, waited_in_vain;
};

/* Over all walks. */
struct tally {
    int ends[SAGA_STATE_COUNT], suspect[SAGA_STATE_COUNT];
    int parallel, undone_in_parallel, refused_beside;
    int cancel_pending, deadline_pending, cancelled_by_pivot, pivot_won;
    int received_at_once, received_later, waited_in_vain;
};

static const struct step_rule *rule_of(const struct world *world, int step)
{
    return &world->definition->steps[step];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t settle_ms(const struct world *world, int step)
{
    return larger(rule_of(world, step)->settle_ms, 0);
}

static bool may_have_happened(const struct known *known)
{
    return known->done || known->maybe > 0;
}

/* Must `step` wait until `other` is over? By what the definition names alone. */
static bool comes_after(const struct world *world, int step, int other)
{
    for (int i = 0; i < step; i++)
        if (step_set_has(&rule_of(world, step)->after, (size_t)i) &&
            (i == other || comes_after(world, i, other)))
            return true;
    return false;
}

static const struct operation_rule *operation_of(const struct world *world, int step, int op)
{
    return op ? &rule_of(world, step)->compensation : &rule_of(world, step)->action;
}

/* A repeat of what may have happened: the class allows it, and its key is remembered when it
 * arrives. */
static void judge_repeat(struct known *known, const struct world *world,
                         const struct journal_entry *lease, const struct operation_rule *rule)
{
    if (known->maybe > 0)
        assert_int_equal(rule->effect, EFFECT_IDEMPOTENT);
    else
        known->window_from_ms = lease->leased_at_ms;
    if (rule->window_ms)
        assert_true(lease->attempt_until_ms + settle_ms(world, lease->step) <=
                    known->window_from_ms + rule->window_ms);
    if (world->skew_ms == 0)
        assert_true(lease->attempt_until_ms >= lease->leased_at_ms + ATTEMPT_LEAST_MS);
    int64_t estimate = larger(world->now_ms, world->now_ms + world->skew_ms);
    if (known->waits) /* what did not happen may be on its way still */
        assert_true(estimate >= known->settle_from_ms + settle_ms(world, lease->step));
    known->waits = false;
}

static void judge_compensation(const struct oracle *oracle, const struct world *world, int step)
{
    const struct known *action = &oracle->of[step][0];
    assert_true(oracle->turned_back);
    assert_true(may_have_happened(action));
    int64_t estimate = larger(world->now_ms, world->now_ms + world->skew_ms);
    assert_true(estimate >= oracle->lost_until_ms);
    if (!action->done && !rule_of(world, step)->guarded)
        assert_true(estimate >= action->settle_from_ms + settle_ms(world, step));
    for (int i = step + 1; i < (int)world->definition->step_count; i++)
        if (comes_after(world, i, step) && rule_of(world, i)->has_compensation &&
            may_have_happened(&oracle->of[i][0]))
            assert_true(oracle->of[i][1].done); /* strict reverse order */
}

/* Not before the delay is over: from the end of what the step comes after, or from the start. */
static void judge_delay(const struct oracle *oracle, const struct world *world, int step)
{
    const struct step_rule *rule = rule_of(world, step);
    int64_t from = larger(world->row.started_at_ms, world->start_at_ms),
            estimate = larger(world->now_ms, world->now_ms + world->skew_ms);
    for (int i = 0; i < step; i++)
        if (step_set_has(&rule->after, (size_t)i))
            from = larger(from, oracle->over_ms[i]);
    assert_true(estimate >= from + rule->delay_ms);
}

static void judge_first(const struct oracle *oracle, const struct world *world,
                        const struct journal_entry *lease)
{
    bool again = false; /* given back: it was delayed before */
    for (size_t i = 0; i < world->count; i++)
        again |= world->entries[i].kind == ENTRY_LEASE && world->entries[i].seq < lease->seq &&
                 world->entries[i].step == lease->step &&
                 world->entries[i].operation == OPERATION_ACTION;
    if (!again)
        judge_delay(oracle, world, lease->step);
}

static void judge_grant(struct oracle *oracle, const struct world *world,
                        const struct journal_entry *lease)
{
    int step = lease->step;
    for (size_t i = 0; i + 1 < world->count; i++) {
        const struct journal_entry *live = &world->entries[i];
        if (live->kind != ENTRY_LEASE || live->outcome != OUTCOME_NONE || live == lease)
            continue;
        oracle->parallel |= live->operation == OPERATION_ACTION;
        oracle->undone_in_parallel |= live->operation == OPERATION_COMPENSATION;
        assert_int_not_equal(live->step, step);
        assert_false(live->operation == OPERATION_ACTION &&
                     lease->operation == OPERATION_COMPENSATION);
    }
    enum saga_state at = saga_row(world->saga)->state;
    assert_true(at == SAGA_RUNNING || at == SAGA_COMPENSATING);
    if (lease->operation == OPERATION_PROBE) {
        int about = oracle->undone[step];
        assert_true(oracle->of[step][about].maybe > 0);
        assert_non_null(operation_of(world, step, about)->probe);
        assert_int_equal(lease->try_, ++oracle->of[step][about].probes);
        if (!about && !oracle->turned_back)
            judge_first(oracle, world, lease); /* what may have run before is delayed, too */
        return;
    }
    int op = lease->operation == OPERATION_COMPENSATION;
    struct known *known = &oracle->of[step][op];
    assert_false(known->done);
    assert_int_equal(lease->try_, ++known->tries);
    judge_repeat(known, world, lease, operation_of(world, step, op));
    struct task_view task;
    saga_task_view(world->saga, lease->seq, &task);
    assert_int_equal(task.generation, task.rule->fresh_key ? known->not_done : 0);
    if (op) {
        judge_compensation(oracle, world, step);
        oracle->undone[step] = true;
        assert_int_equal(task.action_done, oracle->of[step][0].done);
        return;
    }
    assert_false(oracle->turned_back);
    assert_false(oracle->passed[step]);
    if (oracle->cancel_pending) { /* only to find out what became of the pivot, or after it */
        const struct known *pivot = &oracle->of[world->definition->pivot][0];
        bool at_it = step == world->definition->pivot || oracle->suspect;
        assert_true(pivot->done || (at_it && pivot->maybe > 0));
        oracle->pivot_won |= pivot->done;
    }
    for (int i = 0; i < step; i++)
        if (comes_after(world, step, i))
            assert_true(oracle->of[i][0].done || oracle->passed[i]);
    if (lease->try_ == 1)
        judge_first(oracle, world, lease);
}

/* As it was said, if the action is done now and the saga did not go on before. */
static void note_over(struct oracle *oracle, int step, int op, int64_t at_ms)
{
    if (!op && oracle->of[step][0].done && !oracle->passed[step])
        oracle->over_ms[step] = at_ms;
}

static void judge_finish(struct oracle *oracle, const struct journal_entry *lease, bool foreign)
{
    int step = lease->step;
    if (lease->operation == OPERATION_PROBE) { /* evidence: a RESOLVE says what follows */
        oracle->of[step][oracle->undone[step]].probes -= lease->outcome == OUTCOME_RELEASED;
        return;
    }
    int op = lease->operation == OPERATION_COMPENSATION;
    struct known *known = &oracle->of[step][op];
    if (lease->outcome == OUTCOME_RELEASED)
        known->tries--;
    if (outcome_is_success(lease->outcome)) {
        known->done = !foreign;
        known->maybe = 0;
        note_over(oracle, step, op, lease->finished_at_ms);
    }
    if (!outcome_is_unknown(lease->outcome))
        return;
    known->maybe++;
    int64_t from = lease->finished_at_ms;
    if (lease->outcome != OUTCOME_UNKNOWN)
        from = larger(from, lease->lease_until_ms);
    known->settle_from_ms = larger(known->settle_from_ms, from);
    if (!op && lease->outcome == OUTCOME_STREAM_LOST)
        oracle->lost_until_ms = larger(oracle->lost_until_ms, lease->lease_until_ms);
}

static void judge_late(struct oracle *oracle, const struct world *world,
                       const struct journal_entry *late, bool foreign)
{
    const struct journal_entry *lease = &world->entries[late->about - 1];
    if (late->operation == OPERATION_PROBE)
        return;
    int step = late->step;
    int op = late->operation == OPERATION_COMPENSATION;
    struct known *known = &oracle->of[step][op];
    if (late->outcome == OUTCOME_UNKNOWN)
        known->settle_from_ms = larger(known->settle_from_ms, late->finished_at_ms);
    if (world->verdict == VERDICT_ACCEPTED) {
        known->maybe = outcome_is_success(late->outcome) ? 0 : known->maybe - 1;
        known->done = outcome_is_success(late->outcome) && !foreign;
        note_over(oracle, step, op, late->finished_at_ms);
        if (oracle->passed[step] && known->maybe == 0)
            known->doubt = false;
        return;
    }
    /* Nothing reckoned with it: from here on it may have happened, if that can be acted on. */
    bool effect = outcome_is_success(late->outcome) || late->outcome == OUTCOME_UNKNOWN;
    bool uncounted = lease->outcome == OUTCOME_RELEASED || lease->seq < known->not_done_seq;
    if (!effect || !uncounted || op || oracle->turned_back)
        return;
    known->maybe += !known->done;
    known->settle_from_ms = larger(known->settle_from_ms, late->finished_at_ms);
    if (lease->leased_at_ms < known->window_from_ms)
        known->window_from_ms = lease->leased_at_ms;
}

/* A person's or a probe's word changes what nothing rests on yet. */
static void judge_resolve(struct oracle *oracle, const struct world *world,
                          const struct journal_entry *resolved)
{
    int step = resolved->step;
    int op = resolved->operation == OPERATION_COMPENSATION;
    struct known *known = &oracle->of[step][op];
    known->doubt = false;
    oracle->end_doubt = false;
    if (resolved->about) {
        const struct journal_entry *said = &world->entries[resolved->about - 1];
        assert_int_equal(said->outcome, resolved->outcome);
        if (said->kind == ENTRY_LATE_REPORT)
            said = &world->entries[said->about - 1];
        assert_int_equal(said->operation, OPERATION_PROBE);
        if (resolved->outcome == OUTCOME_NOT_DONE) /* it looked when nothing was on its way */
            assert_true(said->leased_at_ms >= known->settle_from_ms + settle_ms(world, step));
        /* Asked about something, and nobody but a person has said anything since. */
        assert_true(known->maybe > 0 || known->not_done_seq > said->seq);
    }
    if ((!op && oracle->undone[step]) || known->done)
        return;
    bool done = resolved->outcome == OUTCOME_DONE;
    if (done && !op && saga_row(world->saga)->state == SAGA_COMPENSATED &&
        world->transition.state_from == SAGA_COMPENSATED && rule_of(world, step)->has_compensation)
        return; /* nothing can be taken back any more */
    known->maybe = 0;
    known->done = done;
    note_over(
        oracle, step, op,
        world->entries[(resolved->about ? resolved->about : resolved->seq) - 1].finished_at_ms);
    if (done)
        return;
    known->not_done++;
    known->not_done_seq = resolved->seq;
    known->waits = !resolved->about;
}

/* The saga goes on without it, or without what takes it back. */
static void judge_passed(struct oracle *oracle, const struct world *world,
                         const struct journal_entry *entry)
{
    struct known *action = &oracle->of[entry->step][0];
    const struct operation_rule *rule = operation_of(world, entry->step, 0);
    assert_false(oracle->turned_back);
    assert_false(action->done);
    if (entry->kind == ENTRY_ACCEPT) {
        assert_true(action->maybe > 0);
        assert_int_equal(rule->on_unknown, ON_UNKNOWN_ACCEPT);
        action->doubt = true;
    } else {
        assert_int_equal(action->maybe, 0);
        assert_int_equal(rule->on_exhausted, ON_EXHAUSTED_CONTINUE);
    }
    oracle->passed[entry->step] = true;
    oracle->over_ms[entry->step] = entry->finished_at_ms;
}

static void judge_signal(struct oracle *oracle, const struct world *world,
                         const struct journal_entry *entry)
{
    assert_non_null(rule_of(world, entry->step)->signal);
    assert_false(oracle->turned_back || oracle->passed[entry->step]);
    assert_int_equal(oracle->signal_seq[entry->step], 0);
    oracle->signal_seq[entry->step] = entry->seq;
}

static void judge_receive(struct oracle *oracle, const struct world *world,
                          const struct journal_entry *entry)
{
    int step = entry->step;
    assert_int_not_equal(entry->about, 0);
    assert_int_equal(entry->about, oracle->signal_seq[step]);
    assert_false(oracle->turned_back || oracle->passed[step] || oracle->of[step][0].done);
    for (int i = 0; i < step; i++)
        if (comes_after(world, step, i))
            assert_true(oracle->of[i][0].done || oracle->passed[i]);
    judge_delay(oracle, world, step);
    oracle->of[step][0].done = true;
    oracle->over_ms[step] = entry->finished_at_ms;
    oracle->received_at_once |= entry->about + 1 == entry->seq;
    oracle->received_later |= entry->about + 1 < entry->seq;
}

/* Granted and not ended, or unknown. */
static bool pivot_is_under_way(const struct oracle *oracle, const struct world *world)
{
    int pivot = world->definition->pivot;
    if (pivot < 0 || oracle->of[pivot][0].done)
        return false;
    for (size_t i = 0; i < world->count; i++)
        if (world->entries[i].kind == ENTRY_LEASE && world->entries[i].step == pivot &&
            world->entries[i].operation == OPERATION_ACTION &&
            world->entries[i].outcome == OUTCOME_NONE)
            return true;
    return oracle->of[pivot][0].maybe > 0;
}

/* Each action may have run before, and what was sent then may be on its way still. */
static void judge_suspect(struct oracle *oracle, const struct world *world,
                          const struct journal_entry *entry)
{
    assert_int_equal(entry->seq, 1);
    assert_true(entry->leased_at_ms > 0 && entry->leased_at_ms <= entry->finished_at_ms);
    oracle->suspect = true;
    for (int i = 0; i < (int)world->definition->step_count; i++)
        if (!rule_of(world, i)->signal)
            oracle->of[i][0] = (struct known){ .maybe = 1,
                                               .settle_from_ms = entry->finished_at_ms,
                                               .window_from_ms = entry->leased_at_ms };
}

static void judge_decision(struct oracle *oracle, const struct world *world,
                           const struct journal_entry *entry)
{
    int op = entry->operation == OPERATION_COMPENSATION;
    if (entry->kind == ENTRY_ACCEPT || entry->kind == ENTRY_CONTINUE)
        judge_passed(oracle, world, entry);
    if (entry->kind == ENTRY_SKIP) {
        oracle->of[entry->step][1].done = oracle->of[entry->step][1].doubt = true;
        oracle->of[entry->step][1].maybe = 0;
    }
    if (entry->kind == ENTRY_PARK && entry->reason == PARK_LATE_EFFECT)
        oracle->of[entry->step][op].doubt = true;
    if (entry->kind == ENTRY_PARK &&
        (entry->reason == PARK_OUTCOME_UNKNOWN || entry->reason == PARK_IDEMPOTENCY_WINDOW_OVER))
        assert_true(oracle->of[entry->step][op].maybe > 0);
    if (entry->kind == ENTRY_PARK && entry->reason == PARK_RETRIES_EXHAUSTED)
        assert_int_equal(oracle->of[entry->step][0].maybe, 0);
    if (entry->step >= 0 && entry->error_code && strcmp(entry->error_code, "NO_SIGNAL") == 0) {
        assert_int_equal(oracle->signal_seq[entry->step], 0);
        oracle->waited_in_vain = true;
    }
    if (entry->kind == ENTRY_MAYBE)
        assert_true(oracle->turned_back && oracle->of[entry->step][0].maybe > 0);
    if (entry->kind == ENTRY_PENDING) {
        assert_true(pivot_is_under_way(oracle, world));
        oracle->cancel_pending |= entry->reason == CAUSE_CANCELLED;
        oracle->deadline_pending |= entry->reason == CAUSE_DEADLINE;
    }
    if (entry->kind == ENTRY_COMPENSATE) {
        int pivot = world->definition->pivot;
        assert_false(oracle->turned_back);
        assert_false(pivot >= 0 && oracle->of[pivot][0].done);
        assert_false(pivot_is_under_way(oracle, world) &&
                     !(entry->reason == CAUSE_REFUSED && entry->step == pivot));
        oracle->cancelled_by_pivot |= entry->about != 0;
        oracle->turned_back = true;
        for (size_t i = 0; i < world->count; i++)
            oracle->refused_beside |= entry->reason == CAUSE_REFUSED &&
                                      world->entries[i].kind == ENTRY_LEASE &&
                                      world->entries[i].outcome == OUTCOME_NONE;
    }
}

static void judge_end(const struct oracle *oracle, const struct world *world)
{
    if (saga_row(world->saga)->state == SAGA_ABANDONED)
        return; /* as it stood */
    bool succeeded = saga_row(world->saga)->state == SAGA_SUCCEEDED;
    for (int i = 0; i < (int)world->definition->step_count; i++) {
        if (succeeded)
            assert_true(oracle->of[i][0].done || oracle->passed[i]);
        else if (rule_of(world, i)->has_compensation && may_have_happened(&oracle->of[i][0]))
            assert_true(oracle->of[i][1].done);
    }
}

/* After each commit: the finish first, then the entries, as they were decided. */
static void judge(struct oracle *oracle, const struct world *world)
{
    const struct transition *transition = &world->transition;
    bool foreign = false;
    for (size_t i = oracle->seen; i < world->count; i++)
        if (world->entries[i].kind == ENTRY_PARK && world->entries[i].reason == PARK_FOREIGN_EFFECT)
            foreign = true;
    if (transition->finishes)
        judge_finish(oracle, &world->entries[transition->finish_seq - 1], foreign);
    for (; oracle->seen < world->count; oracle->seen++) {
        const struct journal_entry *entry = &world->entries[oracle->seen];
        if (entry->kind == ENTRY_LEASE)
            judge_grant(oracle, world, entry);
        else if (entry->kind == ENTRY_LATE_REPORT)
            judge_late(oracle, world, entry, foreign);
        else if (entry->kind == ENTRY_RESOLVE)
            judge_resolve(oracle, world, entry);
        else if (entry->kind == ENTRY_SIGNAL)
            judge_signal(oracle, world, entry);
        else if (entry->kind == ENTRY_RECEIVE)
            judge_receive(oracle, world, entry);
        else if (entry->kind == ENTRY_SUSPECT)
            judge_suspect(oracle, world, entry);
        else
            judge_decision(oracle, world, entry);
    }
    if (transition->ends)
        judge_end(oracle, world);
    bool doubt = oracle->end_doubt =
        oracle->end_doubt || (transition->late_row && transition->late.effect);
    for (int i = 0; i < STEPS_MAX; i++)
        doubt = doubt || oracle->of[i][0].doubt || oracle->of[i][1].doubt;
    assert_int_equal(world->row.doubt, doubt);
}

static bool chance(struct rng *rng, uint64_t percent)
{
    return rng_below(rng, 100) < percent;
}

static void random_retry(struct rng *rng, struct operation_rule *rule)
{
    if (chance(rng, 30))
        rule->retry.max_attempts = 1 + (uint32_t)rng_below(rng, 4);
    if (chance(rng, 30))
        rule->retry.for_ms = 1000 + (int64_t)rng_below(rng, 200000);
    if (chance(rng, 30))
        rule->attempt_timeout_ms = 100 + (int64_t)rng_below(rng, 60000);
    rule->lost_leases_max = 1 + (int32_t)rng_below(rng, 4);
}

static void random_probe(struct world *world, struct rng *rng, size_t step, bool forward)
{
    struct operation_rule *probe =
        world_add_probe(world, step, forward ? OPERATION_ACTION : OPERATION_COMPENSATION);
    int64_t settle = settle_ms(world, (int)step);
    random_retry(rng, probe);
    probe->retry.for_ms = larger(probe->retry.for_ms, settle + 1);
    if (probe->retry.max_attempts == 1 && settle > 0)
        probe->retry.max_attempts = 2;
}

static void random_rule(struct world *world, struct rng *rng, size_t step, bool forward)
{
    struct step_rule *of = &world->definition->steps[step];
    struct operation_rule *rule = forward ? &of->action : &of->compensation;
    rule->effect = (enum effect)rng_below(rng, EFFECT_COUNT);
    random_retry(rng, rule);
    if (chance(rng, 30))
        rule->start_timeout_ms = 1000 + (int64_t)rng_below(rng, 60000);
    if (rule->effect == EFFECT_PROBED || (rule->effect == EFFECT_IDEMPOTENT && chance(rng, 40)))
        random_probe(world, rng, step, forward);
    rule->fresh_key = rule->probe && chance(rng, 40);
    if (rule->effect == EFFECT_IDEMPOTENT && chance(rng, 50))
        rule->window_ms = of->settle_ms + 1000 + (int64_t)rng_below(rng, 100000);
    if (forward && chance(rng, 60))
        rule->on_unknown = chance(rng, 50) ? ON_UNKNOWN_COMPENSATE : ON_UNKNOWN_ACCEPT;
    if (forward && chance(rng, 60))
        rule->on_exhausted = chance(rng, 50) ? ON_EXHAUSTED_COMPENSATE : ON_EXHAUSTED_CONTINUE;
}

static void tell_fault(void *ctx, const char *field, const char *description)
{
    (void)ctx;
    print_error("%s: %s\n", field, description);
}

/* Each step after some of those before it: any graph without a circle. */
static void random_order(struct definition *definition, struct rng *rng)
{
    for (size_t i = 1; i < definition->step_count; i++) {
        definition->steps[i].after = (struct step_set){ 0 };
        for (size_t before = 0; before < i; before++)
            if (chance(rng, 40))
                step_set_add(&definition->steps[i].after, before);
    }
    definition_order(definition);
}

/* Some step that every other comes before or after, if there is one; nothing from it on is taken
 * back. */
static void random_pivot(struct world *world, struct rng *rng)
{
    struct definition *definition = world->definition;
    int pivot = (int)rng_below(rng, definition->step_count);
    if (definition->steps[pivot].signal)
        return;
    for (int i = 0; i < (int)definition->step_count; i++)
        if (i != pivot && !comes_after(world, i, pivot) && !comes_after(world, pivot, i))
            return;
    for (int i = 0; i < (int)definition->step_count; i++) {
        struct step_rule *step = &definition->steps[i];
        if (i != pivot && !comes_after(world, i, pivot))
            continue;
        step->has_compensation = false;
        step->action.on_unknown =
            i != pivot && chance(rng, 40) ? ON_UNKNOWN_ACCEPT : ON_UNKNOWN_PARK;
        step->action.on_exhausted = chance(rng, 50) ? ON_EXHAUSTED_PARK
                                    : i == pivot    ? ON_EXHAUSTED_COMPENSATE
                                                    : ON_EXHAUSTED_CONTINUE;
    }
    definition->steps[pivot].pivot = true;
    definition_order(definition);
}

static void random_wait(struct world *world, struct rng *rng, size_t step)
{
    world_make_wait(world, step, chance(rng, 60) ? 1000 + (int64_t)rng_below(rng, 60000) : 0,
                    (enum on_exhausted)rng_below(rng, ON_EXHAUSTED_COUNT));
}

static void random_definition(struct world *world, struct rng *rng)
{
    struct definition *definition = world->definition;
    if (chance(rng, 30))
        definition->deadline_ms = 1000 + (int64_t)rng_below(rng, 300000);
    definition->on_deadline = chance(rng, 50) ? ON_DEADLINE_PARK : ON_DEADLINE_COMPENSATE;
    for (size_t i = 0; i < definition->step_count; i++) {
        struct step_rule *step = &definition->steps[i];
        step->has_compensation = chance(rng, 80);
        step->guarded = chance(rng, 50);
        step->settle_ms = chance(rng, 20) ? 0 : (int64_t)rng_below(rng, 20000);
        step->delay_ms = chance(rng, 20) ? 1 + (int64_t)rng_below(rng, 20000) : 0;
        random_rule(world, rng, i, true);
        if (step->has_compensation)
            random_rule(world, rng, i, false);
        if (chance(rng, 12))
            random_wait(world, rng, i);
    }
    if (chance(rng, 60))
        random_order(definition, rng);
    if (chance(rng, 40))
        random_pivot(world, rng);
    assert_int_equal(definition_check(definition, tell_fault, NULL), 0);
}

/* Adds a grant to the transition of the event just applied, as the engine does. */
static void grant_on_top(struct world *world, struct rng *rng)
{
    struct grantable all[STEPS_MAX];
    int64_t now_ms = world->now_ms + world->skew_ms;
    size_t count = saga_grantable(world->saga, now_ms, all, STEPS_MAX);
    if (count)
        ASSERT_OK(saga_grant(world->saga, &all[rng_below(rng, count)], "worker/2", world->epoch,
                             now_ms, &world->transition, &world->err),
                  &world->err);
}

/* A live lease, any of them; else the last entry; 0: there is none. */
static int64_t random_lease(const struct world *world, struct rng *rng)
{
    int64_t last = saga_last_seq(world->saga), live = 0;
    uint64_t seen = 0;
    for (int64_t seq = 1; seq <= last; seq++)
        if (saga_entry(world->saga, seq)->kind == ENTRY_LEASE &&
            saga_entry(world->saga, seq)->outcome == OUTCOME_NONE && rng_below(rng, ++seen) == 0)
            live = seq;
    return live ? live : last;
}

static void commit(struct world *world, struct rng *rng)
{
    if (transition_is_empty(&world->transition))
        return;
    if (!world->transition.late_row && chance(rng, 40))
        grant_on_top(world, rng);
    world_commit(world);
}

static void event_report(struct world *world, struct rng *rng)
{
    int64_t last = saga_last_seq(world->saga);
    int64_t seq = chance(rng, 75) ? random_lease(world, rng)
                                  : 1 + (int64_t)rng_below(rng, (uint64_t)last + 1);
    for (; chance(rng, 90) && seq > 1 && saga_entry(world->saga, seq) &&
           saga_entry(world->saga, seq)->kind != ENTRY_LEASE;)
        seq--;
    const struct journal_entry *entry = saga_entry(world->saga, seq);
    static const enum outcome outcomes[] = { OUTCOME_DONE,    OUTCOME_DONE,    OUTCOME_DONE,
                                             OUTCOME_DONE,    OUTCOME_DONE,    OUTCOME_ALREADY_DONE,
                                             OUTCOME_RETRY,   OUTCOME_RETRY,   OUTCOME_UNKNOWN,
                                             OUTCOME_UNKNOWN, OUTCOME_UNKNOWN, OUTCOME_REJECTED,
                                             OUTCOME_NOT_DONE };
    static const enum outcome answers[] = {
        OUTCOME_DONE,          OUTCOME_DONE,         OUTCOME_NOT_DONE,      OUTCOME_NOT_DONE,
        OUTCOME_NOT_DONE,      OUTCOME_NOT_DONE,     OUTCOME_STILL_UNKNOWN, OUTCOME_STILL_UNKNOWN,
        OUTCOME_STILL_UNKNOWN, OUTCOME_ALREADY_DONE, OUTCOME_REJECTED,      OUTCOME_RETRY,
        OUTCOME_UNKNOWN,
    };
    bool probe = entry && entry->operation == OPERATION_PROBE;
    size_t which = rng_below(rng, ARRAY_LEN(outcomes));
    struct report report = {
        .fence = entry && chance(rng, 97) ? entry->fence : (int64_t)rng_next(rng),
        .outcome = probe ? answers[which] : outcomes[which],
        .output = { (uint8_t *)"output", rng_below(rng, 7) },
        .ours = chance(rng, 50),
        .error_code = chance(rng, 50) ? "CODE" : NULL,
        .error_message = chance(rng, 50) ? "message" : NULL,
        .retry_after_ms = chance(rng, 20) ? (int64_t)rng_below(rng, 100000) : 0,
    };
    ASSERT_OK(saga_on_report(world->saga, &report, world->now_ms + world->skew_ms, rng,
                             &world->transition, &world->verdict, &world->err),
              &world->err);
    commit(world, rng);
}

static void event_lease_end(struct world *world, struct rng *rng)
{
    ASSERT_OK(saga_on_lease_end(world->saga, random_lease(world, rng),
                                chance(rng, 50) ? OUTCOME_RELEASED : OUTCOME_STREAM_LOST,
                                world->now_ms + world->skew_ms, rng, &world->transition,
                                &world->verdict, &world->err),
              &world->err);
    commit(world, rng);
}

static void event_time(struct world *world, struct rng *rng)
{
    int64_t due = saga_due_at(world->saga);
    int64_t grantable = saga_grantable_at(world->saga, world->now_ms);
    int64_t to = world->now_ms;
    if (chance(rng, 50) && grantable != INT64_MAX)
        to = grantable;
    else if (chance(rng, 40) && due != INT64_MAX)
        to = due;
    else if (chance(rng, 50))
        to = world->now_ms + (int64_t)rng_below(rng, 40000);
    world->now_ms = larger(world->now_ms, to);
    /* An expiry that is judged too early by the estimate is refused by the database. */
    int64_t now_ms = world->skew_ms > 0 ? world->now_ms : world->now_ms + world->skew_ms;
    ASSERT_OK(saga_on_time(world->saga, now_ms, chance(rng, 80), rng, &world->transition,
                           &world->verdict, &world->err),
              &world->err);
    commit(world, rng);
}

static int resolve(struct world *world, struct rng *rng, int64_t now_ms)
{
    char name[] = { (char)('a' + rng_below(rng, world->definition->step_count)), '\0' };
    struct resolution resolution = {
        .step = name,
        .operation = (enum operation)rng_below(rng, 2),
        .happened = chance(rng, 50),
        .actor = "anna",
        .evidence = "why",
    };
    if (chance(rng, 50))
        resolution.operation = OPERATION_COUNT;
    return saga_on_resolve(world->saga, &resolution, now_ms, &world->transition, &world->verdict,
                           &world->err);
}

/* What the definition would allow; some of it is refused all the same, as is a deadline on the way
 * back. */
static int set_options(struct world *world, struct rng *rng, int64_t now_ms)
{
    char name[] = { (char)('a' + rng_below(rng, world->definition->step_count)), '\0' };
    struct saga_options options = OPTIONS_NONE;
    if (chance(rng, 40))
        options.operation = (enum operation)rng_below(rng, OPERATION_COUNT);
    if (chance(rng, 50))
        options.retry_for_ms = 1000 + (int64_t)rng_below(rng, 200000);
    if (chance(rng, 30))
        options.retry_cap_ms = 1000 + (int64_t)rng_below(rng, 60000);
    if (chance(rng, 30))
        options.max_attempts = (int64_t)rng_below(rng, 5);
    if (chance(rng, 30))
        options.lease_ms = 5000 + (int64_t)rng_below(rng, 60000);
    if (chance(rng, 30))
        options.deadline_ms = chance(rng, 20) ? 0 : now_ms + (int64_t)rng_below(rng, 200000);
    int rc = saga_on_options(world->saga, chance(rng, 50) ? name : NULL, &options, "anna", "why",
                             now_ms, &world->transition, &world->verdict, &world->err);
    return rc == ERR_INVALID ? ERR_PRECONDITION : rc;
}

static void event_operator(struct world *world, struct rng *rng)
{
    struct transition *transition = &world->transition;
    enum verdict *verdict = &world->verdict;
    struct err *err = &world->err;
    int64_t now_ms = world->now_ms + world->skew_ms;
    uint64_t which = rng_below(rng, 100);
    bool suspended = saga_row(world->saga)->park_reason == PARK_SUSPENDED;
    int rc;
    if (suspended && chance(rng, 60))
        rc = saga_on_resume(world->saga, "anna", "why", now_ms, transition, verdict, err);
    else if (which < 15)
        rc = saga_on_cancel(world->saga, "anna", "why", now_ms, transition, verdict, err);
    else if (which < 45)
        rc = saga_on_retry(world->saga, NULL, "anna", "why", now_ms, transition, verdict, err);
    else if (which < 75)
        rc = resolve(world, rng, now_ms);
    else if (which < 82)
        rc = saga_on_skip(world->saga, NULL, "anna", "why", now_ms, transition, verdict, err);
    else if (which < 88)
        rc = set_options(world, rng, now_ms);
    else if (which < 90)
        rc = saga_on_abandon(world->saga, "anna", "why", now_ms, transition, verdict, err);
    else if (which < 96)
        rc = saga_on_suspend(world->saga, "anna", "why", now_ms, transition, verdict, err);
    else
        rc = saga_on_resume(world->saga, "anna", "why", now_ms, transition, verdict, err);
    if (rc)
        assert_int_equal(rc, ERR_PRECONDITION);
    else
        commit(world, rng);
}

static void event_extend(struct world *world, struct rng *rng)
{
    struct journal_entry *lease =
        world->count ? &world->entries[random_lease(world, rng) - 1] : NULL;
    if (!lease || !saga_lease_is_open(world->saga, lease->fence) || lease->kind != ENTRY_LEASE)
        return;
    saga_extended(world->saga, lease->seq, world->now_ms);
    lease->lease_until_ms = saga_entry(world->saga, lease->seq)->lease_until_ms;
}

/* Another node records how the lease ended with an outdated copy: nothing that follows from it. */
static void event_elsewhere(struct world *world, struct rng *rng)
{
    struct journal_entry *lease =
        world->count ? &world->entries[random_lease(world, rng) - 1] : NULL;
    if (!lease || lease->kind != ENTRY_LEASE || lease->outcome != OUTCOME_NONE)
        return;
    static const enum outcome outcomes[] = { OUTCOME_DONE,    OUTCOME_DONE,     OUTCOME_RETRY,
                                             OUTCOME_UNKNOWN, OUTCOME_REJECTED, OUTCOME_RELEASED };
    lease->outcome = outcomes[rng_below(rng, ARRAY_LEN(outcomes))];
    if (lease->operation == OPERATION_PROBE && chance(rng, 50))
        lease->outcome = chance(rng, 50) ? OUTCOME_NOT_DONE : OUTCOME_STILL_UNKNOWN;
    lease->finished_at_ms = world->now_ms;
    if (lease->outcome == OUTCOME_RETRY && chance(rng, 50))
        lease->retry_at_ms = world->now_ms + (int64_t)rng_below(rng, 5000);
    world->transition = (struct transition){ .finishes = true, .finish_seq = lease->seq };
    world_reload(world);
}

/* Of any step, of a wait mostly; the first id, mostly. */
static void event_signal(struct world *world, struct rng *rng)
{
    size_t step = rng_below(rng, world->definition->step_count);
    for (size_t i = 0; i < world->definition->step_count && !rule_of(world, (int)step)->signal; i++)
        step = (step + 1) % world->definition->step_count;
    const char name[] = { 's', '_', (char)('a' + step), '\0' };
    struct signal signal = { .name = name,
                             .id = chance(rng, 80) ? "1" : "2",
                             .payload = { (uint8_t *)"payload", rng_below(rng, 8) },
                             .actor = chance(rng, 50) ? "bank" : NULL };
    int rc = saga_on_signal(world->saga, &signal, world->now_ms + world->skew_ms,
                            &world->transition, &world->verdict, &world->err);
    if (rc)
        assert_int_equal(rc, rule_of(world, (int)step)->signal ? ERR_PRECONDITION : ERR_INVALID);
    else if (world->verdict == VERDICT_DUPLICATE)
        assert_true(transition_is_empty(&world->transition));
    else
        commit(world, rng);
}

static void event(struct world *world, struct rng *rng)
{
    world->transition = (struct transition){ 0 };
    uint64_t which = rng_below(rng, 100);
    if (which < 2) {
        event_signal(world, rng);
    } else if (which < 25) {
        grant_on_top(world, rng);
        if (!transition_is_empty(&world->transition))
            world_commit(world);
    } else if (which < 60) {
        event_report(world, rng);
    } else if (which < 82) {
        event_time(world, rng);
    } else if (which < 88) {
        event_lease_end(world, rng);
    } else if (which < 94) {
        event_operator(world, rng);
    } else if (which < 97) {
        event_extend(world, rng);
    } else if (which < 98) {
        event_elsewhere(world, rng);
    } else {
        world_reload(world);
    }
}

/* Sends what some step waits for, once it is its turn; false: none does. */
static bool send_signal(struct world *world)
{
    struct wait_view wait;
    saga_wait_view(world->saga, world->now_ms, &wait);
    if (wait.kind == WAIT_DELAY) { /* its turn comes without anything being due then */
        world->now_ms = larger(world->now_ms + 1, wait.until_ms);
        return true;
    }
    if (wait.kind != WAIT_SIGNAL)
        return false;
    assert_int_equal(world_signal(world, wait.signal, "1", "payload"), 0);
    return true;
}

/* Workers come back, and everything is done from now on: then it ends, or a person must help. */
static void go_home(struct world *world, struct oracle *oracle)
{
    world->skew_ms = 0;
    for (int i = 0; i < GO_HOME; i++) {
        enum saga_state at = saga_row(world->saga)->state;
        int64_t seq = saga_last_seq(world->saga);
        if (saga_state_is_terminal(at) || at == SAGA_PARKED)
            return;
        world->transition = (struct transition){ 0 };
        while (seq > 0 && !saga_lease_is_open(world->saga, world->entries[seq - 1].fence))
            seq--;
        if (seq > 0) {
            assert_int_equal(world_report(world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
        } else if (world_time(world) == VERDICT_NOTHING) {
            int64_t due = saga_due_at(world->saga);
            int64_t grantable = saga_grantable_at(world->saga, world->now_ms);
            if (world_is_grantable(world))
                (void)world_grant(world);
            else if (due != INT64_MAX || grantable != INT64_MAX)
                world->now_ms = larger(world->now_ms + 1, due < grantable ? due : grantable);
            else if (!send_signal(world))
                fail_msg("nothing takes it on");
        }
        judge(oracle, world);
    }
    fail_msg("it does not come to an end");
}

static void walk(uint64_t seed, struct tally *tally)
{
    struct rng rng;
    rng_seed(&rng, seed);
    struct world world;
    world_open(&world, 1 + rng_below(&rng, STEPS_MAX));
    random_definition(&world, &rng);
    world.skew_ms = chance(&rng, 30) ? (int64_t)rng_below(&rng, 2000) - 1000 : 0;
    if (chance(&rng, 20))
        world.start_at_ms = world.now_ms - 10000 + (int64_t)rng_below(&rng, 40000);
    if (chance(&rng, 20))
        world.suspect_since_ms = world.now_ms + 500 - (int64_t)rng_below(&rng, 100000);
    world_start(&world);
    struct oracle oracle = { 0 };
    judge(&oracle, &world);
    for (int i = 0; i < EVENTS; i++) {
        enum saga_state before = saga_row(world.saga)->state;
        size_t entries = world.count;
        event(&world, &rng);
        if (saga_state_is_terminal(before)) {
            assert_int_equal(saga_row(world.saga)->state, before);
            for (size_t at = entries; at < world.count; at++)
                assert_int_equal(world.entries[at].kind, ENTRY_RESOLVE);
            assert_false(world_is_grantable(&world));
        }
        judge(&oracle, &world);
        if (chance(&rng, 20))
            world.epoch++;
    }
    tally->ends[saga_row(world.saga)->state]++;
    go_home(&world, &oracle);
    tally->parallel += oracle.parallel;
    tally->suspect[saga_row(world.saga)->state] += oracle.suspect;
    tally->undone_in_parallel += oracle.undone_in_parallel;
    tally->refused_beside += oracle.refused_beside;
    tally->cancel_pending += oracle.cancel_pending;
    tally->deadline_pending += oracle.deadline_pending;
    tally->cancelled_by_pivot += oracle.cancelled_by_pivot;
    tally->pivot_won += oracle.pivot_won;
    tally->received_at_once += oracle.received_at_once;
    tally->received_later += oracle.received_later;
    tally->waited_in_vain += oracle.waited_in_vain;
    world_close(&world);
}

static void test_random_walks(void **state)
{
    (void)state;
    const char *given = getenv("SAGAD_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    int walks = given ? 1 : test_is_full_size() ? WALKS_FULL : WALKS;
    struct tally tally = { 0 };
    const int *ends = tally.ends;
    for (int i = 0; i < walks; i++) {
        /* Named before it runs: a failed assertion leaves the function. */
        if (i % 100 == 0)
            print_message("seeds from %" PRIu64 "\n", first + (uint64_t)i);
        char seed[24];
        (void)snprintf(seed, sizeof seed, "%" PRIu64, first + (uint64_t)i);
        (void)setenv("SAGAD_WALK", seed, 1); /* shown by the tear-down */
        walk(first + (uint64_t)i, &tally);
    }
    print_message("%d walks: %d succeeded, %d compensated, %d parked, %d on their way\n", walks,
                  ends[SAGA_SUCCEEDED], ends[SAGA_COMPENSATED], ends[SAGA_PARKED],
                  ends[SAGA_RUNNING] + ends[SAGA_COMPENSATING]);
    print_message(
        "%d with parallel actions, %d with parallel compensations, %d refused beside a live "
        "lease\n",
        tally.parallel, tally.undone_in_parallel, tally.refused_beside);
    const int *suspect = tally.suspect;
    print_message("of those that may have run before %d succeeded, %d compensated, %d parked\n",
                  suspect[SAGA_SUCCEEDED], suspect[SAGA_COMPENSATED], suspect[SAGA_PARKED]);
    if (given)
        return;
    assert_true(suspect[SAGA_SUCCEEDED] > walks / 400);
    assert_true(suspect[SAGA_COMPENSATED] > walks / 200);
    assert_true(suspect[SAGA_PARKED] > walks / 200);
    /* A walk that never gets anywhere proves nothing. */
    assert_true(ends[SAGA_SUCCEEDED] > walks / 100);
    assert_true(ends[SAGA_COMPENSATED] > walks / 20);
    assert_true(ends[SAGA_PARKED] > walks / 20);
    assert_true(tally.parallel > walks / 20);
    assert_true(tally.undone_in_parallel > walks / 200);
    assert_true(tally.refused_beside > walks / 200);
    print_message(
        "%d cancels and %d deadlines waited for a pivot, which let %d turn back and %d not\n",
        tally.cancel_pending, tally.deadline_pending, tally.cancelled_by_pivot, tally.pivot_won);
    assert_true(tally.cancel_pending > walks / 400);
    assert_true(tally.deadline_pending > walks / 800);
    assert_true(tally.cancelled_by_pivot > walks / 1600);
    assert_true(tally.pivot_won > walks / 1600);
    print_message("%d received a signal at once, %d later, %d waited for one in vain\n",
                  tally.received_at_once, tally.received_later, tally.waited_in_vain);
    assert_true(tally.received_at_once > walks / 400);
    assert_true(tally.received_later > walks / 400);
    assert_true(tally.waited_in_vain > walks / 400);
    size_t rows, taken = 0;
    (void)saga_transitions(&rows);
    for (size_t i = 0; i < rows; i++)
        taken += world_took_row(i);
    print_message("%zu of %zu rows of the transition table taken\n", taken, rows);
    assert_true(taken > rows * 3 / 4);
}

static int tell_seed(void **state)
{
    (void)state;
    const char *seed = getenv("SAGAD_WALK");
    print_message("last seed: %s (run it alone: SAGAD_TEST_SEED=%s)\n", seed ? seed : "?",
                  seed ? seed : "?");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_walks, tell_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
