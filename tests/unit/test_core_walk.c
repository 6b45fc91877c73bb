/* Goal: whatever happens in whatever order, the promises hold and a replay equals the copy. Method:
 * seeded random walks over random definitions; after each commit the tables are replayed and
 * compared (core_world.c), and the journal is judged by an oracle that knows nothing of the core.
 */
#include "core_world.h"

#include <inttypes.h>
#include <stdio.h>

enum { STEPS_MAX = 5, EVENTS = 60, WALKS = 8000, WALKS_FULL = 300000 };

/* What an observer of the tables knows, in the order of events. */
struct oracle {
    int maybe[STEPS_MAX][2]; /* unsettled attempts */
    bool done[STEPS_MAX][2];
    int tries[STEPS_MAX][2];
    int64_t settle_from_ms[STEPS_MAX];
    int64_t lost_until_ms;
    bool turned_back;
    size_t seen; /* entries */
    bool foreign;
};

static const struct step_rule *rule_of(const struct world *world, int step)
{
    return &world->definition->steps[step];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void judge_grant(struct oracle *oracle, const struct world *world,
                        const struct journal_entry *lease)
{
    int step = lease->step;
    int op = lease->operation == OPERATION_COMPENSATION;
    const struct operation_rule *rule =
        definition_rule(world->definition, (size_t)step, lease->operation);
    assert_false(oracle->done[step][op]);
    if (rule->effect == EFFECT_AT_MOST_ONCE)
        assert_int_equal(oracle->maybe[step][op], 0); /* never repeated once unknown */
    assert_int_equal(lease->try_, ++oracle->tries[step][op]);
    for (size_t i = 0; i + 1 < world->count; i++) /* no lease beside a live one */
        if (world->entries[i].kind == ENTRY_LEASE && &world->entries[i] != lease)
            assert_int_not_equal(world->entries[i].outcome, OUTCOME_NONE);
    if (!op) {
        assert_false(oracle->turned_back);
        for (int i = 0; i < step; i++)
            assert_true(oracle->done[i][0]);
        return;
    }
    assert_true(oracle->turned_back);
    assert_true(oracle->done[step][0] || oracle->maybe[step][0] > 0);
    int64_t estimate = world->now_ms + world->skew_ms;
    assert_true(estimate >= oracle->lost_until_ms);
    if (!oracle->done[step][0] && !rule_of(world, step)->guarded)
        assert_true(estimate >= oracle->settle_from_ms[step] + rule_of(world, step)->settle_ms);
    for (int i = step + 1; i < (int)world->definition->step_count; i++)
        if (rule_of(world, i)->has_compensation && (oracle->done[i][0] || oracle->maybe[i][0] > 0))
            assert_true(oracle->done[i][1]); /* strict reverse order */
}

static void judge_finish(struct oracle *oracle, const struct journal_entry *lease, bool foreign)
{
    int step = lease->step;
    int op = lease->operation == OPERATION_COMPENSATION;
    if (lease->outcome == OUTCOME_RELEASED)
        oracle->tries[step][op]--;
    if (outcome_is_success(lease->outcome)) {
        oracle->done[step][op] = !foreign;
        oracle->maybe[step][op] = 0;
    }
    if (!outcome_is_unknown(lease->outcome))
        return;
    oracle->maybe[step][op]++;
    if (op)
        return;
    int64_t from = lease->finished_at_ms;
    if (lease->outcome != OUTCOME_UNKNOWN)
        from = larger(from, lease->lease_until_ms);
    oracle->settle_from_ms[step] = larger(oracle->settle_from_ms[step], from);
    if (lease->outcome == OUTCOME_STREAM_LOST)
        oracle->lost_until_ms = larger(oracle->lost_until_ms, lease->lease_until_ms);
}

static void judge_late(struct oracle *oracle, const struct world *world,
                       const struct journal_entry *late, bool foreign)
{
    const struct journal_entry *lease = &world->entries[late->about - 1];
    int step = late->step;
    int op = late->operation == OPERATION_COMPENSATION;
    if (world->verdict == VERDICT_ACCEPTED) {
        if (outcome_is_success(late->outcome)) {
            oracle->done[step][op] = !foreign;
            oracle->maybe[step][op] = 0;
        } else {
            oracle->maybe[step][op]--;
        }
        return;
    }
    bool effect = outcome_is_success(late->outcome) || late->outcome == OUTCOME_UNKNOWN;
    if (effect && lease->outcome == OUTCOME_RELEASED && !op && !oracle->done[step][0] &&
        !oracle->turned_back)
        oracle->maybe[step][0]++;
}

/* A person's word changes what nothing rests on yet. */
static void judge_resolve(struct oracle *oracle, const struct world *world,
                          const struct journal_entry *resolved)
{
    int step = resolved->step;
    int op = resolved->operation == OPERATION_COMPENSATION;
    for (size_t i = 0; !op && i < world->count; i++)
        if (world->entries[i].kind == ENTRY_LEASE && world->entries[i].step == step &&
            world->entries[i].operation == OPERATION_COMPENSATION &&
            world->entries[i].seq < resolved->seq)
            return;
    if (oracle->done[step][op])
        return;
    oracle->maybe[step][op] = 0;
    oracle->done[step][op] = resolved->outcome == OUTCOME_DONE;
}

static void judge_end(const struct oracle *oracle, const struct world *world)
{
    if (saga_row(world->saga)->state == SAGA_ABANDONED)
        return; /* as it stood */
    bool succeeded = saga_row(world->saga)->state == SAGA_SUCCEEDED;
    for (int i = 0; i < (int)world->definition->step_count; i++) {
        if (succeeded)
            assert_true(oracle->done[i][0]);
        else if (rule_of(world, i)->has_compensation &&
                 (oracle->done[i][0] || oracle->maybe[i][0] > 0))
            assert_true(oracle->done[i][1]);
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
        if (entry->kind == ENTRY_LATE_REPORT)
            judge_late(oracle, world, entry, foreign);
        if (entry->kind == ENTRY_RESOLVE)
            judge_resolve(oracle, world, entry);
        if (entry->kind == ENTRY_SKIP) {
            oracle->done[entry->step][1] = true;
            oracle->maybe[entry->step][1] = 0;
        }
        if (entry->kind == ENTRY_COMPENSATE) {
            assert_false(oracle->turned_back);
            oracle->turned_back = true;
        }
    }
    if (transition->ends)
        judge_end(oracle, world);
}

static bool chance(struct rng *rng, uint64_t percent)
{
    return rng_below(rng, 100) < percent;
}

static void random_rule(struct rng *rng, struct operation_rule *rule, bool forward)
{
    rule->effect = chance(rng, 50) ? EFFECT_AT_MOST_ONCE : EFFECT_IDEMPOTENT;
    if (chance(rng, 30))
        rule->retry.max_attempts = 1 + (uint32_t)rng_below(rng, 4);
    if (chance(rng, 30))
        rule->retry.for_ms = 1000 + (int64_t)rng_below(rng, 200000);
    if (chance(rng, 30))
        rule->start_timeout_ms = 1000 + (int64_t)rng_below(rng, 60000);
    if (chance(rng, 30))
        rule->attempt_timeout_ms = 100 + (int64_t)rng_below(rng, 60000);
    if (forward && chance(rng, 40))
        rule->on_unknown = ON_UNKNOWN_COMPENSATE;
    if (forward && chance(rng, 40))
        rule->on_exhausted = ON_EXHAUSTED_COMPENSATE;
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
        step->settle_ms = step->guarded ? -1 : (int64_t)rng_below(rng, 20000);
        random_rule(rng, &step->action, true);
        random_rule(rng, &step->compensation, false);
    }
}

/* Adds a grant to the transition of the event just applied, as the engine does. */
static void grant_on_top(struct world *world)
{
    struct grantable next;
    int64_t now_ms = world->now_ms + world->skew_ms;
    if (saga_grantable(world->saga, now_ms, &next, 1))
        ASSERT_OK(saga_grant(world->saga, &next, "worker/2", world->epoch, now_ms,
                             &world->transition, &world->err),
                  &world->err);
}

static void commit(struct world *world, struct rng *rng)
{
    if (transition_is_empty(&world->transition))
        return;
    if (!world->transition.late_row && chance(rng, 40))
        grant_on_top(world);
    world_commit(world);
}

static void event_report(struct world *world, struct rng *rng)
{
    int64_t last = saga_last_seq(world->saga);
    int64_t seq = chance(rng, 75) ? last : 1 + (int64_t)rng_below(rng, (uint64_t)last + 1);
    for (; chance(rng, 90) && seq > 1 && saga_entry(world->saga, seq) &&
           saga_entry(world->saga, seq)->kind != ENTRY_LEASE;)
        seq--;
    const struct journal_entry *entry = saga_entry(world->saga, seq);
    static const enum outcome outcomes[] = { OUTCOME_DONE,    OUTCOME_DONE,    OUTCOME_DONE,
                                             OUTCOME_DONE,    OUTCOME_DONE,    OUTCOME_ALREADY_DONE,
                                             OUTCOME_RETRY,   OUTCOME_RETRY,   OUTCOME_RETRY,
                                             OUTCOME_UNKNOWN, OUTCOME_UNKNOWN, OUTCOME_REJECTED };
    struct report report = {
        .fence = entry && chance(rng, 97) ? entry->fence : (int64_t)rng_next(rng),
        .outcome = outcomes[rng_below(rng, ARRAY_LEN(outcomes))],
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
    ASSERT_OK(saga_on_lease_end(world->saga, saga_last_seq(world->saga),
                                chance(rng, 50) ? OUTCOME_RELEASED : OUTCOME_STREAM_LOST,
                                world->now_ms + world->skew_ms, rng, &world->transition,
                                &world->verdict, &world->err),
              &world->err);
    commit(world, rng);
}

static void event_time(struct world *world, struct rng *rng)
{
    int64_t due = saga_due_at(world->saga);
    int64_t grantable = saga_grantable_at(world->saga);
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

static void event_operator(struct world *world, struct rng *rng)
{
    int64_t now_ms = world->now_ms + world->skew_ms;
    uint64_t which = rng_below(rng, 100);
    int rc;
    if (which < 20) {
        rc = saga_on_cancel(world->saga, "anna", "why", now_ms, &world->transition, &world->verdict,
                            &world->err);
    } else if (which < 55) {
        rc = saga_on_retry(world->saga, NULL, "anna", "why", now_ms, &world->transition,
                           &world->verdict, &world->err);
    } else if (which < 90) {
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
        rc = saga_on_resolve(world->saga, &resolution, now_ms, &world->transition, &world->verdict,
                             &world->err);
    } else if (which < 97) {
        rc = saga_on_skip(world->saga, NULL, "anna", "why", now_ms, &world->transition,
                          &world->verdict, &world->err);
    } else {
        rc = saga_on_abandon(world->saga, "anna", "why", now_ms, &world->transition,
                             &world->verdict, &world->err);
    }
    if (rc)
        assert_int_equal(rc, ERR_PRECONDITION);
    else
        commit(world, rng);
}

static void event_extend(struct world *world)
{
    struct journal_entry *lease = world->count ? &world->entries[world->count - 1] : NULL;
    if (!lease || !saga_lease_is_open(world->saga, lease->fence) || lease->kind != ENTRY_LEASE)
        return;
    saga_extended(world->saga, lease->seq, world->now_ms);
    lease->lease_until_ms = saga_entry(world->saga, lease->seq)->lease_until_ms;
}

static void event(struct world *world, struct rng *rng)
{
    world->transition = (struct transition){ 0 };
    uint64_t which = rng_below(rng, 100);
    if (which < 25) {
        grant_on_top(world);
        if (!transition_is_empty(&world->transition))
            world_commit(world);
    } else if (which < 60) {
        event_report(world, rng);
    } else if (which < 82) {
        event_time(world, rng);
    } else if (which < 89) {
        event_lease_end(world, rng);
    } else if (which < 94) {
        event_operator(world, rng);
    } else if (which < 97) {
        event_extend(world);
    } else {
        world_reload(world);
    }
}

static void walk(uint64_t seed, int *ends)
{
    struct rng rng;
    rng_seed(&rng, seed);
    struct world world;
    world_open(&world, 1 + rng_below(&rng, STEPS_MAX));
    random_definition(&world, &rng);
    world.skew_ms = chance(&rng, 30) ? (int64_t)rng_below(&rng, 2000) - 1000 : 0;
    world_start(&world);
    struct oracle oracle = { 0 };
    for (int i = 0; i < EVENTS; i++) {
        enum saga_state before = saga_row(world.saga)->state;
        size_t entries = world.count;
        event(&world, &rng);
        if (saga_state_is_terminal(before)) {
            assert_int_equal(saga_row(world.saga)->state, before);
            assert_int_equal(world.count, entries);
            assert_false(world_is_grantable(&world));
        }
        judge(&oracle, &world);
        if (chance(&rng, 20))
            world.epoch++;
    }
    ends[saga_row(world.saga)->state]++;
    world_close(&world);
}

static void test_random_walks(void **state)
{
    (void)state;
    const char *given = getenv("SAGAD_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    int walks = given ? 1 : test_is_full_size() ? WALKS_FULL : WALKS;
    int ends[SAGA_STATE_COUNT] = { 0 };
    for (int i = 0; i < walks; i++) {
        /* Named before it runs: a failed assertion leaves the function. */
        if (i % 100 == 0)
            print_message("seeds from %" PRIu64 "\n", first + (uint64_t)i);
        char seed[24];
        (void)snprintf(seed, sizeof seed, "%" PRIu64, first + (uint64_t)i);
        (void)setenv("SAGAD_WALK", seed, 1); /* shown by the tear-down */
        walk(first + (uint64_t)i, ends);
    }
    print_message("%d walks: %d succeeded, %d compensated, %d parked, %d on their way\n", walks,
                  ends[SAGA_SUCCEEDED], ends[SAGA_COMPENSATED], ends[SAGA_PARKED],
                  ends[SAGA_RUNNING] + ends[SAGA_COMPENSATING]);
    if (given)
        return;
    /* A walk that never gets anywhere proves nothing. */
    assert_true(ends[SAGA_SUCCEEDED] > walks / 100);
    assert_true(ends[SAGA_COMPENSATED] > walks / 20);
    assert_true(ends[SAGA_PARKED] > walks / 20);
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
