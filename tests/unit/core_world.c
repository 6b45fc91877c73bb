#include "core_world.h"

#include "core/limits.h"

#include <inttypes.h>
#include <stdio.h>

static bool rows_taken[IN_COUNT * SAGA_STATE_COUNT];

static char *copy_text(const char *text)
{
    if (!text)
        return NULL;
    char *copy = mem_strdup(text);
    assert_non_null(copy);
    return copy;
}

static struct bytes copy_bytes(struct bytes bytes)
{
    struct bytes copy = { 0 };
    assert_int_equal(mem_bytes_copy(bytes.data, bytes.size, &copy), 0);
    return copy;
}

static struct journal_entry copy_entry(const struct journal_entry *entry)
{
    struct journal_entry copy = *entry;
    copy.worker = copy_text(entry->worker);
    copy.error_code = copy_text(entry->error_code);
    copy.error_message = copy_text(entry->error_message);
    copy.actor = copy_text(entry->actor);
    copy.signal_id = copy_text(entry->signal_id);
    copy.output = copy_bytes(entry->output);
    return copy;
}

static struct saga_row copy_row(const struct saga_row *row)
{
    struct saga_row copy = *row;
    copy.namespace_ = copy_text(row->namespace_);
    copy.definition = copy_text(row->definition);
    copy.saga_id = copy_text(row->saga_id);
    copy.park_code = copy_text(row->park_code);
    copy.park_message = copy_text(row->park_message);
    copy.labels = copy_text(row->labels);
    copy.input = copy_bytes(row->input);
    return copy;
}

static struct operation_rule default_rule(const char *handler)
{
    return (struct operation_rule){
        .handler = copy_text(handler),
        .effect = EFFECT_IDEMPOTENT,
        .retry = { DEFAULT_RETRY_FOR_MS, DEFAULT_RETRY_INITIAL_MS, DEFAULT_RETRY_CAP_MS, 0 },
        .lease_ms = DEFAULT_LEASE_MS,
        .attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS,
        .lost_leases_max = DEFAULT_LOST_LEASES_MAX,
    };
}

void world_open(struct world *world, size_t steps)
{
    *world = (struct world){ .now_ms = WORLD_START_MS, .compare = true };
    rng_seed(&world->rng, 1);
    world->definition = definition_new(steps);
    assert_non_null(world->definition);
    world->definition->namespace_ = copy_text("default");
    world->definition->name = copy_text("order");
    world->definition->revision = 1;
    for (size_t i = 0; i < steps; i++) {
        struct step_rule *step = &world->definition->steps[i];
        char name[32];
        (void)snprintf(name, sizeof name, "%c", (int)('a' + i % 26));
        if (steps > 26)
            (void)snprintf(name, sizeof name, "s%zu", i);
        step->name = copy_text(name);
        (void)snprintf(name, sizeof name, "order.%s", step->name);
        step->action = default_rule(name);
        (void)snprintf(name, sizeof name, "order.%s.compensate", step->name);
        step->compensation = default_rule(name);
        step->has_compensation = true;
        step->guarded = true;
        step->settle_ms = -1;
    }
}

struct operation_rule *world_add_probe(struct world *world, size_t step, enum operation operation)
{
    struct step_rule *rule = &world->definition->steps[step];
    bool undo = operation == OPERATION_COMPENSATION;
    struct operation_rule *probe = definition_probe_new();
    assert_non_null(probe);
    char name[64];
    (void)snprintf(name, sizeof name, "order.%s.%sprobe", rule->name, undo ? "compensate." : "");
    *probe = default_rule(name);
    (undo ? &rule->compensation : &rule->action)->probe = probe;
    return probe;
}

static void drop_rule(struct operation_rule *rule)
{
    if (rule->probe)
        mem_free(rule->probe->handler);
    mem_free(rule->probe);
    mem_free(rule->handler);
    *rule = (struct operation_rule){ 0 };
}

void world_make_wait(struct world *world, size_t step, int64_t timeout_ms,
                     enum on_exhausted on_exhausted)
{
    struct step_rule *rule = &world->definition->steps[step];
    char name[64];
    (void)snprintf(name, sizeof name, "s_%s", rule->name);
    rule->signal = copy_text(name);
    drop_rule(&rule->action);
    drop_rule(&rule->compensation);
    rule->action = (struct operation_rule){ .handler = copy_text(""),
                                            .effect = EFFECT_IDEMPOTENT,
                                            .start_timeout_ms = timeout_ms,
                                            .on_exhausted = on_exhausted };
    rule->has_compensation = rule->guarded = false;
    rule->settle_ms = -1;
    rule->delay_ms = 0;
}

static int64_t estimate(const struct world *world)
{
    return world->now_ms + world->skew_ms;
}

void world_start(struct world *world)
{
    struct saga_row row = { .namespace_ = copy_text("default"),
                            .definition = copy_text("order"),
                            .revision = 1,
                            .saga_id = copy_text("O-1"),
                            .run = 1,
                            .start_at_ms = world->start_at_ms };
    ASSERT_OK(saga_new(world->definition, &row, &world->saga, &world->err), &world->err);
    assert_null(row.saga_id); /* consumed */
    world->row = copy_row(saga_row(world->saga));
    world->row.started_at_ms = world->row.updated_at_ms = world->now_ms;
    if (world->definition->deadline_ms)
        world->row.deadline_at_ms =
            world->definition->deadline_ms +
            (world->start_at_ms > world->now_ms ? world->start_at_ms : world->now_ms);
    world->transition = (struct transition){ 0 };
    if (world->suspect_since_ms)
        ASSERT_OK(saga_suspect(world->saga, "kafka/orders", world->suspect_since_ms,
                               estimate(world), &world->transition, &world->err),
                  &world->err);
    world_commit(world);
}

void world_close(struct world *world)
{
    world->saga = saga_free(world->saga);
    world->definition = definition_free(world->definition);
    saga_row_done(&world->row);
    for (size_t i = 0; i < world->count; i++)
        journal_entry_done(&world->entries[i]);
    mem_free(world->entries);
    *world = (struct world){ 0 };
}

/* UPDATE journal ... WHERE outcome IS NULL [AND lease_until < now()]. */
static void store_finish(struct world *world, const struct transition *transition)
{
    struct journal_entry *stored = &world->entries[transition->finish_seq - 1];
    const struct journal_entry *fact = saga_entry(world->saga, transition->finish_seq);
    assert_int_equal(stored->outcome, OUTCOME_NONE);
    if (transition->only_if_expired)
        assert_true(stored->lease_until_ms < world->now_ms);
    stored->outcome = fact->outcome;
    stored->finished_at_ms = world->now_ms;
    stored->retry_at_ms =
        transition->retry_in_ms >= 0 ? world->now_ms + transition->retry_in_ms : 0;
    stored->output = copy_bytes(fact->output);
    stored->error_code = copy_text(fact->error_code);
    stored->error_message = copy_text(fact->error_message);
}

/* INSERT INTO journal ..., contiguous, at the next position. */
static void store_append(struct world *world, const struct transition *transition)
{
    assert_int_equal(transition->append_seq, (int64_t)world->count + 1);
    for (size_t i = 0; i < transition->append_count; i++) {
        assert_int_equal(mem_grow((void **)&world->entries, &world->capacity, world->count,
                                  sizeof(struct journal_entry)),
                         0);
        struct journal_entry entry =
            copy_entry(saga_entry(world->saga, transition->append_seq + (int64_t)i));
        if (entry.kind == ENTRY_LEASE) {
            entry.leased_at_ms = world->now_ms;
            entry.attempt_until_ms = world->now_ms + transition->attempt_timeout_ms;
            if (transition->send_before_ms && entry.attempt_until_ms > transition->send_before_ms)
                entry.attempt_until_ms = transition->send_before_ms;
            entry.lease_until_ms = world->now_ms + transition->lease_ms;
            if (entry.lease_until_ms > entry.attempt_until_ms)
                entry.lease_until_ms = entry.attempt_until_ms;
        } else {
            entry.finished_at_ms = world->now_ms;
            if (entry.leased_at_ms > world->now_ms) /* SUSPECT */
                entry.leased_at_ms = world->now_ms;
        }
        world->entries[world->count++] = entry;
    }
}

/* UPDATE saga ... WHERE state = ... */
static void store_row(struct world *world, const struct transition *transition)
{
    assert_int_equal(world->row.state, transition->state_from);
    assert_int_equal(world->row.phase, transition->phase_from);
    assert_int_equal(transition->phase_change, transition->append_seq != 0);
    if (!transition->phase_change) /* the end by a plain finish, or doubt after the end */
        assert_true((transition->finishes && transition->ends) || transition->late_row);
    int64_t started = world->row.started_at_ms, deadline = world->row.deadline_at_ms;
    int64_t ended = world->row.ended_at_ms;
    saga_row_done(&world->row);
    world->row = copy_row(saga_row(world->saga));
    world->row.started_at_ms = started;
    if (!transition->sets_deadline)
        world->row.deadline_at_ms = deadline;
    world->row.updated_at_ms = world->now_ms;
    world->row.ended_at_ms = transition->ends ? world->now_ms : ended;
}

static void note_rows(const struct transition *transition, const struct saga *saga)
{
    enum saga_state state = transition->state_from, phase = transition->phase_from;
    for (size_t i = 0; i < transition->input_count; i++) {
        size_t count;
        const struct saga_transition *first = saga_transitions(&count);
        const struct saga_transition *row =
            saga_transition_find(state, phase, transition->inputs[i]);
        assert_non_null(row);
        rows_taken[row - first] = true;
        state = row->to;
        phase = row->phase_to;
    }
    if (transition->input_count) {
        assert_int_equal(saga_row(saga)->state, state);
        assert_int_equal(saga_row(saga)->phase, phase);
    }
}

bool world_took_row(size_t row)
{
    return rows_taken[row];
}

static void assert_text_equal(const char *a, const char *b)
{
    assert_string_equal(a ? a : "(null)", b ? b : "(null)");
}

static void assert_entry_equal(const struct journal_entry *a, const struct journal_entry *b)
{
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->fence, b->fence);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->operation, b->operation);
    assert_int_equal(a->try_, b->try_);
    assert_text_equal(a->worker, b->worker);
    assert_int_equal(a->leased_at_ms, b->leased_at_ms);
    assert_int_equal(a->attempt_until_ms, b->attempt_until_ms);
    assert_int_equal(a->lease_until_ms, b->lease_until_ms);
    assert_int_equal(a->outcome, b->outcome);
    assert_int_equal(a->finished_at_ms, b->finished_at_ms);
    assert_int_equal(a->retry_at_ms, b->retry_at_ms);
    assert_int_equal(a->output.size, b->output.size);
    if (a->output.size)
        assert_memory_equal(a->output.data, b->output.data, a->output.size);
    assert_text_equal(a->error_code, b->error_code);
    assert_text_equal(a->error_message, b->error_message);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->about, b->about);
    assert_text_equal(a->actor, b->actor);
    assert_text_equal(a->signal_id, b->signal_id);
    assert_int_equal(a->held_ms, b->held_ms);
}

static void assert_row_equal(const struct saga_row *a, const struct saga_row *b)
{
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->phase, b->phase);
    assert_int_equal(a->doubt, b->doubt);
    assert_int_equal(a->park_reason, b->park_reason);
    assert_int_equal(a->park_step, b->park_step);
    assert_text_equal(a->park_code, b->park_code);
    assert_text_equal(a->park_message, b->park_message);
    assert_int_equal(a->started_at_ms, b->started_at_ms);
    assert_int_equal(a->updated_at_ms, b->updated_at_ms);
    assert_int_equal(a->deadline_at_ms, b->deadline_at_ms);
    assert_int_equal(a->ended_at_ms, b->ended_at_ms);
    assert_int_equal(a->start_at_ms, b->start_at_ms);
}

static int64_t seq_of(const struct journal_entry *entry)
{
    return entry ? entry->seq : 0;
}

/* What is known of an unknown: no matter when it is asked. */
static void assert_unknown_equal(const struct saga *a, const struct saga *b, size_t step)
{
    struct unknown_view one = { 0 }, other = { 0 };
    assert_int_equal(saga_unknown_view(a, step, &one), saga_unknown_view(b, step, &other));
    assert_int_equal(one.operation, other.operation);
    assert_int_equal(one.attempts, other.attempts);
    assert_int_equal(seq_of(one.last), seq_of(other.last));
    assert_int_equal(one.settled_ms, other.settled_ms);
    assert_int_equal(one.send_before_ms, other.send_before_ms);
    assert_int_equal(one.probes, other.probes);
    assert_int_equal(seq_of(one.last_probe), seq_of(other.last_probe));
    for (int operation = 0; operation <= OPERATION_COMPENSATION; operation++)
        assert_int_equal(saga_key_generation(a, step, (enum operation)operation),
                         saga_key_generation(b, step, (enum operation)operation));
}

/* What follows from the copy, asked at some time. */
static void assert_answers_equal(const struct saga *a, const struct saga *b, int64_t now_ms)
{
    struct grantable one[LIMIT_STEPS], other[LIMIT_STEPS];
    size_t count = saga_grantable(a, now_ms, one, LIMIT_STEPS);
    assert_int_equal(saga_grantable(b, now_ms, other, LIMIT_STEPS), count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(one[i].step, other[i].step);
        assert_int_equal(one[i].operation, other[i].operation);
        /* Each copy has its own where it has options. */
        assert_ptr_equal(one[i].rule->handler, other[i].rule->handler);
        assert_int_equal(one[i].rule->lease_ms, other[i].rule->lease_ms);
        assert_int_equal(one[i].rule->retry.for_ms, other[i].rule->retry.for_ms);
    }
    struct wait_view waits, also;
    saga_wait_view(a, now_ms, &waits);
    saga_wait_view(b, now_ms, &also);
    assert_int_equal(waits.kind, also.kind);
    assert_int_equal(waits.step, also.step);
    assert_int_equal(waits.operation, also.operation);
    assert_int_equal(waits.since_ms, also.since_ms);
    assert_int_equal(waits.until_ms, also.until_ms);
    assert_text_equal(waits.handler, also.handler);
    assert_text_equal(waits.worker, also.worker);
    for (size_t i = 0; i < saga_definition(a)->step_count; i++) {
        struct step_view view, same;
        saga_step_view(a, i, now_ms, &view);
        saga_step_view(b, i, now_ms, &same);
        assert_int_equal(view.state, same.state);
        assert_int_equal(view.since_ms, same.since_ms);
        assert_int_equal(view.operation, same.operation);
        assert_int_equal(view.tries, same.tries);
        assert_int_equal(view.next_ms, same.next_ms);
        assert_int_equal(view.maybe, same.maybe);
        assert_int_equal(view.suspect, same.suspect);
        assert_int_equal(seq_of(view.last), seq_of(same.last));
    }
}

static struct saga *replayed(struct world *world)
{
    struct saga_row row = copy_row(&world->row);
    struct journal_entry *entries = mem_calloc(world->count ? world->count : 1, sizeof *entries);
    assert_non_null(entries);
    for (size_t i = 0; i < world->count; i++)
        entries[i] = copy_entry(&world->entries[i]);
    struct saga *saga = NULL;
    ASSERT_OK(saga_replay(world->definition, &row, entries, world->count, &saga, &world->err),
              &world->err);
    assert_null(row.saga_id); /* consumed */
    mem_free(entries);
    return saga;
}

static void compare(struct world *world)
{
    struct saga *again = replayed(world);
    assert_row_equal(saga_row(world->saga), saga_row(again));
    assert_int_equal(saga_last_seq(world->saga), saga_last_seq(again));
    for (int64_t seq = 1; seq <= saga_last_seq(again); seq++)
        assert_entry_equal(saga_entry(world->saga, seq), saga_entry(again, seq));
    assert_int_equal(saga_due_at(world->saga), saga_due_at(again));
    for (size_t i = 0; i < world->definition->step_count; i++)
        assert_unknown_equal(world->saga, again, i);
    int64_t at = saga_grantable_at(world->saga, world->now_ms);
    assert_int_equal(at, saga_grantable_at(again, world->now_ms));
    assert_answers_equal(world->saga, again, world->now_ms);
    assert_answers_equal(world->saga, again, world->now_ms + 100 * 1000);
    if (at != INT64_MAX)
        assert_answers_equal(world->saga, again, at);
    (void)saga_free(again); /* always NULL */
}

static void print_state(const struct world *world, struct buf *out)
{
    const struct saga_row *row = saga_row(world->saga);
    buf_text(out, saga_state_name(row->state));
    if (row->state == SAGA_PARKED)
        buf_printf(out, " in %s: %s", saga_state_name(row->phase),
                   park_reason_name(row->park_reason));
    if (row->doubt)
        buf_text(out, ", doubt");
}

static void print_entry(const struct world *world, const struct journal_entry *entry,
                        struct buf *out)
{
    const char *step = entry->step < 0 ? "-" : world->definition->steps[entry->step].name;
    int64_t start = saga_row(world->saga)->started_at_ms;
    if (entry->kind == ENTRY_LEASE) {
        buf_printf(out, "%" PRId64 " +%" PRId64 " %s %s %d -> ", entry->seq,
                   entry->leased_at_ms - start, step, operation_name(entry->operation),
                   (int)entry->try_);
        if (entry->held_ms)
            buf_printf(out, "(held %" PRId64 ") ", entry->held_ms);
        if (entry->outcome)
            buf_printf(out, "+%" PRId64 " %s\n", entry->finished_at_ms - start,
                       outcome_name(entry->outcome));
        else
            buf_text(out, "live\n");
        return;
    }
    buf_printf(out, "%" PRId64 " +%" PRId64 " %s %s", entry->seq, entry->finished_at_ms - start,
               entry_kind_name(entry->kind), step);
    if (entry->kind == ENTRY_COMPENSATE)
        buf_printf(out, " %s", cause_name((enum cause)entry->reason));
    if (entry->kind == ENTRY_PARK)
        buf_printf(out, " %s", park_reason_name((enum park_reason)entry->reason));
    if (entry->kind == ENTRY_RETRY && entry->operation == OPERATION_PROBE)
        buf_text(out, " PROBE");
    if (entry->kind == ENTRY_LATE_REPORT || entry->kind == ENTRY_RESOLVE)
        buf_printf(out, " %s", outcome_name(entry->outcome));
    if (entry->signal_id)
        buf_printf(out, " %s", entry->signal_id);
    if (entry->about)
        buf_printf(out, " about %" PRId64, entry->about);
    buf_text(out, "\n");
}

static void print_trace(const struct world *world, struct buf *out)
{
    for (int64_t seq = 1; seq <= saga_last_seq(world->saga); seq++)
        print_entry(world, saga_entry(world->saga, seq), out);
    print_state(world, out);
    buf_text(out, "\n");
}

void world_commit(struct world *world)
{
    const struct transition *transition = &world->transition;
    note_rows(transition, world->saga);
    if (transition->finishes)
        store_finish(world, transition);
    if (transition->append_seq)
        store_append(world, transition);
    if (transition->changes_row)
        store_row(world, transition);
    if (transition->late_row)
        world->late_rows++;
    saga_committed(world->saga, transition, world->now_ms);
    if (!world->compare)
        return;
    if (saga_check(world->saga, &world->err)) {
        CLEANUP(buf_done) struct buf trace = { 0 };
        print_trace(world, &trace);
        fail_msg("%s\n%s", world->err.msg, buf_cstr(&trace));
    }
    compare(world);
}

void world_reload(struct world *world)
{
    world->saga = saga_free(world->saga);
    world->saga = replayed(world);
}

bool world_is_grantable(const struct world *world)
{
    struct grantable what;
    return saga_grantable(world->saga, estimate(world), &what, 1) == 1;
}

int64_t world_grant(struct world *world)
{
    struct grantable what;
    assert_int_equal(saga_grantable(world->saga, estimate(world), &what, 1), 1);
    world->transition = (struct transition){ 0 };
    ASSERT_OK(saga_grant(world->saga, &what, "worker/1", world->epoch, estimate(world),
                         &world->transition, &world->err),
              &world->err);
    int64_t seq = world->transition.append_seq;
    world_commit(world);
    return seq;
}

int64_t world_grant_of(struct world *world, size_t step, enum operation operation)
{
    int64_t seq = world_grant(world);
    const struct journal_entry *lease = saga_entry(world->saga, seq);
    assert_int_equal(lease->step, step);
    assert_string_equal(operation_name(lease->operation), operation_name(operation));
    return seq;
}

enum verdict world_report_full(struct world *world, const struct report *report)
{
    ASSERT_OK(saga_on_report(world->saga, report, estimate(world), &world->rng, &world->transition,
                             &world->verdict, &world->err),
              &world->err);
    if (world->verdict == VERDICT_DUPLICATE || world->verdict == VERDICT_NOTHING)
        assert_true(transition_is_empty(&world->transition) ||
                    world->transition.ends); /* left unsaid by another node: test_core_undecided */
    if (!transition_is_empty(&world->transition))
        world_commit(world);
    return world->verdict;
}

enum verdict world_report(struct world *world, int64_t seq, enum outcome outcome)
{
    struct report report = { .fence = saga_entry(world->saga, seq)->fence, .outcome = outcome };
    if (outcome == OUTCOME_REJECTED || outcome == OUTCOME_RETRY || outcome == OUTCOME_UNKNOWN) {
        report.error_code = "CODE";
        report.error_message = "message";
    }
    return world_report_full(world, &report);
}

int64_t world_run(struct world *world, enum outcome outcome)
{
    int64_t seq = world_grant(world);
    assert_int_equal(world_report(world, seq, outcome), VERDICT_ACCEPTED);
    return seq;
}

enum verdict world_lease_end(struct world *world, int64_t seq, enum outcome outcome)
{
    ASSERT_OK(saga_on_lease_end(world->saga, seq, outcome, estimate(world), &world->rng,
                                &world->transition, &world->verdict, &world->err),
              &world->err);
    assert_int_equal(transition_is_empty(&world->transition), world->verdict == VERDICT_NOTHING);
    if (world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return world->verdict;
}

void world_pass(struct world *world, int64_t ms)
{
    world->now_ms += ms;
}

enum verdict world_time(struct world *world)
{
    ASSERT_OK(saga_on_time(world->saga, estimate(world), true, &world->rng, &world->transition,
                           &world->verdict, &world->err),
              &world->err);
    assert_int_equal(transition_is_empty(&world->transition), world->verdict == VERDICT_NOTHING);
    if (world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return world->verdict;
}

void world_expire(struct world *world, int64_t seq)
{
    int64_t until = saga_entry(world->saga, seq)->lease_until_ms;
    world->now_ms = until;
    assert_int_equal(world_time(world), VERDICT_NOTHING); /* reached, not past */
    world->now_ms = until + 1;
    assert_int_equal(saga_due_at(world->saga), until + 1);
    assert_int_equal(world_time(world), VERDICT_ACCEPTED);
    assert_int_equal(saga_entry(world->saga, seq)->outcome, OUTCOME_EXPIRED);
}

int world_cancel(struct world *world)
{
    int rc = saga_on_cancel(world->saga, "anna", "customer called", estimate(world),
                            &world->transition, &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_retry(struct world *world, const char *step)
{
    int rc = saga_on_retry(world->saga, step, "anna", "bank is back", estimate(world),
                           &world->transition, &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_resolve(struct world *world, const char *step, enum operation operation, bool happened,
                  const char *output)
{
    struct resolution resolution = {
        .step = step,
        .operation = operation,
        .happened = happened,
        .output = { (uint8_t *)output, output ? strlen(output) : 0 },
        .actor = "anna",
        .evidence = "statement of the bank",
    };
    int rc = saga_on_resolve(world->saga, &resolution, estimate(world), &world->transition,
                             &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_skip(struct world *world, const char *step)
{
    int rc = saga_on_skip(world->saga, step, "anna", "paid back by hand", estimate(world),
                          &world->transition, &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_abandon(struct world *world)
{
    int rc = saga_on_abandon(world->saga, "anna", "settled elsewhere", estimate(world),
                             &world->transition, &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_suspend(struct world *world)
{
    int rc = saga_on_suspend(world->saga, "anna", "the bank asked", estimate(world),
                             &world->transition, &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_resume(struct world *world)
{
    int rc = saga_on_resume(world->saga, "anna", "the bank is back", estimate(world),
                            &world->transition, &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_options(struct world *world, const char *step, const struct saga_options *options)
{
    int rc = saga_on_options(world->saga, step, options, "anna", "the bank is slow",
                             estimate(world), &world->transition, &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

int world_signal(struct world *world, const char *name, const char *id, const char *payload)
{
    struct signal signal = {
        .name = name, .id = id, .payload = { (uint8_t *)payload, strlen(payload) }, .actor = "bank"
    };
    int rc = saga_on_signal(world->saga, &signal, estimate(world), &world->transition,
                            &world->verdict, &world->err);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
    return rc;
}

void world_assert_output(const struct world *world, size_t step, const char *expected)
{
    struct bytes output;
    assert_true(saga_step_output(world->saga, step, &output));
    assert_int_equal(output.size, strlen(expected));
    assert_memory_equal(output.data, expected, output.size);
}

void world_assert_trace(const struct world *world, const char *expected)
{
    CLEANUP(buf_done) struct buf out = { 0 };
    print_trace(world, &out);
    assert_string_equal(buf_cstr(&out), expected);
}

void world_assert_state(const struct world *world, const char *expected)
{
    CLEANUP(buf_done) struct buf out = { 0 };
    print_state(world, &out);
    assert_string_equal(buf_cstr(&out), expected);
}

void world_assert_step(const struct world *world, size_t step, const char *expected)
{
    struct step_view view;
    saga_step_view(world->saga, step, world->now_ms, &view);
    assert_string_equal(step_state_name(view.state), expected);
}

void world_assert_waits(const struct world *world, enum wait_kind kind, int64_t until_ms)
{
    struct wait_view view;
    saga_wait_view(world->saga, world->now_ms, &view);
    assert_int_equal(view.kind, kind);
    assert_int_equal(view.until_ms, until_ms);
}

void world_assert_refused(const struct world *world, int rc, const char *reason)
{
    assert_int_equal(rc, ERR_PRECONDITION);
    assert_string_equal(world->err.reason, reason);
    assert_true(strlen(world->err.msg) > 0);
}
