/* Goal: a journal that the rules cannot have written is refused by name and consumes nothing;
 * running out of memory is an error at every point, and loses nothing. Method: a good journal, and
 * single faults put into it; each allocation of each call made to fail in turn. */
#include "core_world.h"

#include "core/limits.h"

#include <stdio.h>

enum { ENTRIES = 8 };

struct journal {
    struct definition *definition;
    struct saga_row row;
    struct journal_entry entries[ENTRIES];
    size_t count;
};

static char *text(const char *from)
{
    char *copy = mem_strdup(from);
    assert_non_null(copy);
    return copy;
}

static struct journal_entry lease(int64_t seq, int16_t step, enum operation operation, int32_t try_,
                                  enum outcome outcome)
{
    struct journal_entry entry = {
        .seq = seq,
        .fence = fence_make(0, seq),
        .kind = ENTRY_LEASE,
        .step = step,
        .operation = operation,
        .try_ = try_,
        .worker = text("worker/1"),
        .leased_at_ms = 1000,
        .attempt_until_ms = 301000,
        .lease_until_ms = 31000,
        .outcome = outcome,
        .finished_at_ms = outcome ? 1000 : 0,
    };
    return entry;
}

static struct journal_entry decision(int64_t seq, enum entry_kind kind, int16_t step, int reason)
{
    return (struct journal_entry){
        .seq = seq, .kind = kind, .step = step, .reason = (uint8_t)reason, .finished_at_ms = 1000
    };
}

/* Two steps; b refused, a taken back: COMPENSATED. */
static void open_journal(struct journal *journal)
{
    struct world world;
    world_open(&world, 2);
    *journal = (struct journal){ .definition = TAKE(world.definition), .count = 4 };
    world_close(&world);
    journal->row = (struct saga_row){ .saga_id = text("O-1"),
                                      .definition = text("order"),
                                      .state = SAGA_COMPENSATED,
                                      .phase = SAGA_COMPENSATED,
                                      .park_step = -1,
                                      .started_at_ms = 1000,
                                      .updated_at_ms = 1000,
                                      .ended_at_ms = 1000 };
    journal->entries[0] = lease(1, 0, OPERATION_ACTION, 1, OUTCOME_DONE);
    journal->entries[1] = lease(2, 1, OPERATION_ACTION, 1, OUTCOME_REJECTED);
    journal->entries[2] = decision(3, ENTRY_COMPENSATE, 1, CAUSE_REFUSED);
    journal->entries[3] = lease(4, 0, OPERATION_COMPENSATION, 1, OUTCOME_DONE);
}

static void close_journal(struct journal *journal)
{
    for (size_t i = 0; i < ENTRIES; i++)
        journal_entry_done(&journal->entries[i]);
    saga_row_done(&journal->row);
    journal->definition = definition_free(journal->definition);
}

enum fault {
    NONE,
    GAP,
    FENCE,
    TRY,
    STEP,
    PROBE,
    NO_WORKER,
    OUT_OF_TURN,
    SECOND_LIVE,
    FORWARD_AFTER_REFUSAL,
    REPEAT_OF_DONE,
    COMPENSATION_TWICE,
    TURNED_BACK_TWICE,
    RESUME_UNPARKED,
    PARK_REASON,
    LATE_ABOUT_LATER,
    LATE_ABOUT_REPORTED,
    ROW_RUNNING,
    ROW_PARKED,
    NO_END_TIME,
    AFTER_THE_END,
    ROW_DOUBT_LOST,
    OUTCOME_RANGE,
    KIND_RANGE,
};

static void break_entry(struct journal *journal, enum fault fault)
{
    struct journal_entry *entries = journal->entries;
    switch (fault) {
    case GAP:
        entries[3].seq = 5;
        break;
    case FENCE:
        entries[1].fence = 1;
        break;
    case TRY:
        entries[1].try_ = 2;
        break;
    case STEP:
        entries[1].step = 2;
        break;
    case PROBE:
        entries[1].operation = OPERATION_PROBE;
        break;
    case NO_WORKER:
        mem_free(TAKE(entries[1].worker));
        break;
    case OUT_OF_TURN:
        entries[0].step = 1;
        break;
    case SECOND_LIVE:
        entries[0].outcome = OUTCOME_NONE;
        entries[0].finished_at_ms = 0;
        break;
    case REPEAT_OF_DONE:
        entries[1].step = 0;
        entries[1].try_ = 2;
        break;
    case OUTCOME_RANGE:
        entries[1].outcome = OUTCOME_COUNT;
        break;
    case KIND_RANGE:
        entries[2].kind = ENTRY_KIND_COUNT;
        break;
    case PARK_REASON:
        entries[2].kind = ENTRY_PARK;
        entries[2].reason = PARK_REJECTED_AFTER_PIVOT;
        break;
    case RESUME_UNPARKED:
        entries[2].kind = ENTRY_RESUME;
        break;
    default:
        break;
    }
}

static void break_rest(struct journal *journal, enum fault fault)
{
    struct journal_entry *more = &journal->entries[journal->count];
    int64_t next = (int64_t)journal->count + 1;
    switch (fault) {
    case FORWARD_AFTER_REFUSAL:
        *more = lease(next, 1, OPERATION_ACTION, 2, OUTCOME_DONE);
        break;
    case COMPENSATION_TWICE:
        *more = lease(next, 0, OPERATION_COMPENSATION, 2, OUTCOME_DONE);
        break;
    case TURNED_BACK_TWICE:
        *more = decision(next, ENTRY_COMPENSATE, -1, CAUSE_CANCELLED);
        break;
    case LATE_ABOUT_LATER:
    case LATE_ABOUT_REPORTED:
        *more = decision(next, ENTRY_LATE_REPORT, 0, 0);
        more->outcome = OUTCOME_DONE;
        more->about = fault == LATE_ABOUT_LATER ? 9 : 1;
        break;
    case ROW_RUNNING:
        journal->row.state = journal->row.phase = SAGA_RUNNING;
        return;
    case ROW_PARKED:
        journal->row.state = SAGA_PARKED;
        journal->row.phase = SAGA_RUNNING;
        return;
    case NO_END_TIME:
        journal->row.ended_at_ms = 0;
        return;
    case AFTER_THE_END:
        journal->entries[3].leased_at_ms = 1001;
        return;
    default:
        return;
    }
    journal->count++;
}

static void test_what_the_rules_cannot_have_written(void **state)
{
    (void)state;
    for (int fault = NONE; fault <= KIND_RANGE; fault++) {
        if (fault == ROW_DOUBT_LOST) /* has a scene of its own below */
            continue;
        struct journal journal;
        open_journal(&journal);
        break_entry(&journal, (enum fault)fault);
        break_rest(&journal, (enum fault)fault);
        struct saga *saga = NULL;
        struct err err;
        const char *id = journal.row.saga_id;
        int rc = saga_replay(journal.definition, &journal.row, journal.entries, journal.count,
                             &saga, &err);
        if (fault == NONE) {
            ASSERT_OK(rc, &err);
            assert_int_equal(saga_row(saga)->state, SAGA_COMPENSATED);
        } else {
            if (rc != ERR_INTERNAL)
                fail_msg("fault %d: %d", fault, rc);
            assert_null(saga);
            assert_ptr_equal(journal.row.saga_id, id); /* nothing was consumed */
            assert_non_null(strstr(err.msg, "order/O-1"));
            assert_non_null(strstr(err.msg, "journal"));
        }
        saga = saga_free(saga);
        close_journal(&journal);
    }
}

static void test_a_repeat_of_an_unknown_outcome_is_refused(void **state)
{
    (void)state;
    for (int effect = EFFECT_IDEMPOTENT; effect < EFFECT_COUNT; effect++) {
        struct journal journal;
        open_journal(&journal);
        journal.definition->steps[0].action.effect = (enum effect)effect;
        journal.entries[0].outcome = OUTCOME_EXPIRED;
        journal_entry_done(&journal.entries[1]);
        journal.entries[1] = lease(2, 0, OPERATION_ACTION, 2, OUTCOME_NONE);
        journal.row.state = journal.row.phase = SAGA_RUNNING;
        journal.row.ended_at_ms = 0;
        struct saga *saga = NULL;
        struct err err;
        int rc = saga_replay(journal.definition, &journal.row, journal.entries, 2, &saga, &err);
        assert_int_equal(rc, effect == EFFECT_IDEMPOTENT ? 0 : ERR_INTERNAL);
        if (rc)
            assert_non_null(strstr(err.msg, "position 2"));
        saga = saga_free(saga);
        close_journal(&journal);
    }
}

/* The last of the entries is refused, by its rule. Leases get a worker. */
static void assert_refused(const struct journal_entry *entries, size_t count, const char *rule)
{
    struct journal journal;
    open_journal(&journal);
    for (size_t i = 0; i < ENTRIES; i++)
        journal_entry_done(&journal.entries[i]);
    for (size_t i = 0; i < count; i++) {
        struct journal_entry *entry = &journal.entries[i];
        *entry = entries[i];
        entry->seq = (int64_t)i + 1;
        entry->fence = entry->kind == ENTRY_LEASE ? fence_make(0, entry->seq) : 0;
        entry->try_ = entry->kind == ENTRY_LEASE;
        entry->worker = entry->kind == ENTRY_LEASE ? text("worker/1") : NULL;
    }
    struct saga *saga = NULL;
    struct err err;
    char position[32];
    (void)snprintf(position, sizeof position, "position %zu ", count);
    assert_int_equal(
        saga_replay(journal.definition, &journal.row, journal.entries, count, &saga, &err),
        ERR_INTERNAL);
    if (!strstr(err.msg, position) || !strstr(err.msg, rule))
        fail_msg("wanted %s: %s", rule, err.msg);
    close_journal(&journal);
}

static void test_each_refusal_tells_position_and_rule(void **state)
{
    (void)state;
    const struct journal_entry a_live = { .step = 0 }, b_live = { .step = 1 },
                               a_done = { .step = 0, .outcome = OUTCOME_DONE },
                               b_done = { .step = 1, .outcome = OUTCOME_DONE },
                               a_lost = { .step = 0, .outcome = OUTCOME_EXPIRED },
                               end = { .kind = ENTRY_END, .step = -1 },
                               again = { .kind = ENTRY_RETRY, .step = 0 },
                               parks = { .kind = ENTRY_PARK, .reason = PARK_RETRIES_EXHAUSTED },
                               cancel = { .kind = ENTRY_COMPENSATE, .reason = CAUSE_CANCELLED };
    const struct journal_entry accept = { .kind = ENTRY_ACCEPT, .step = 0 },
                               leaves_out = { .kind = ENTRY_CONTINUE, .step = 0 },
                               suspend = { .kind = ENTRY_PARK,
                                           .step = -1,
                                           .reason = PARK_SUSPENDED },
                               resume = { .kind = ENTRY_RESUME, .step = -1, .about = 1 },
                               asks = { .kind = ENTRY_PROBE, .step = 0 },
                               maybe = { .kind = ENTRY_MAYBE, .step = 0 },
                               found = { .kind = ENTRY_RESOLVE,
                                         .outcome = OUTCOME_DONE,
                                         .about = 1 },
                               settled = { .kind = ENTRY_RESOLVE, .outcome = OUTCOME_RETRY };
    struct journal_entry nowhere = cancel, probe = cancel, late = a_lost;
    nowhere.step = 2;
    probe.operation = OPERATION_PROBE;
    late.kind = ENTRY_LATE_REPORT;
    late.about = 1;
#define REFUSED(rule, ...)                                                                         \
    assert_refused((const struct journal_entry[]){ __VA_ARGS__ },                                  \
                   ARRAY_LEN(((const struct journal_entry[]){ __VA_ARGS__ })), rule)
    REFUSED("a lease while PARKED", parks, a_live);
    REFUSED("a lease of step 1 out of turn", a_done, cancel, b_live);
    REFUSED("no operation 0 of step 2", a_done, nowhere);
    REFUSED("no operation 2 of step 0", a_done, probe);
    REFUSED("a retry beside a live lease", a_live, again);
    REFUSED("outcome 6", a_lost, late); /* EXPIRED is no worker's to say */
    REFUSED("an end while something is left to do", a_done, end);
    REFUSED("an entry after the end", a_done, b_done, end, cancel);
    REFUSED("it went on beside a live lease", a_live, accept);
    REFUSED("it went on beside a live lease", a_live, leaves_out);
    REFUSED("a repeat of what is done or refused", leaves_out, a_live);
    REFUSED("not suspended at position 1", a_done, suspend, resume);
    REFUSED("no transition on RESUMED", suspend, resume, resume);
    REFUSED("no transition on SUSPENDED", suspend, suspend);
    REFUSED("no probe of operation 0 of step 0", a_lost, asks);
    REFUSED("no probe of operation 0 of step 0", a_lost, maybe);
    REFUSED("no probe at position 1 said so", a_lost, found);
    REFUSED("outcome 4", a_lost, settled);
#undef REFUSED
}

static void test_a_journal_beyond_every_limit_is_refused(void **state)
{
    (void)state;
    struct journal journal;
    open_journal(&journal);
    struct saga *saga = NULL;
    struct err err;
    assert_int_equal(saga_replay(journal.definition, &journal.row, journal.entries,
                                 2 * LIMIT_JOURNAL_ENTRIES + 1, &saga, &err),
                     ERR_INTERNAL); /* without a look at them */
    assert_non_null(strstr(err.msg, "a journal of 20001 entries"));
    close_journal(&journal);
}

static void test_a_live_lease_with_a_result_is_refused(void **state)
{
    (void)state;
    for (int what = 0; what < 5; what++) {
        struct journal journal;
        open_journal(&journal);
        journal_entry_done(&journal.entries[3]);
        journal.entries[3] = lease(4, 0, OPERATION_COMPENSATION, 1, OUTCOME_NONE);
        journal.row.state = journal.row.phase = SAGA_COMPENSATING;
        journal.row.ended_at_ms = 0;
        if (what == 1)
            journal.entries[3].finished_at_ms = 1000;
        else if (what == 2)
            journal.entries[3].error_code = text("CODE");
        else if (what == 3)
            journal.entries[3].error_message = text("message");
        else if (what == 4)
            assert_int_equal(mem_bytes_copy("x", 1, &journal.entries[3].output), 0);
        struct saga *saga = NULL;
        struct err err;
        int rc = saga_replay(journal.definition, &journal.row, journal.entries, journal.count,
                             &saga, &err);
        assert_int_equal(rc, what ? ERR_INTERNAL : 0);
        if (rc)
            assert_non_null(strstr(err.msg, "position 4"));
        saga = saga_free(saga);
        close_journal(&journal);
    }
}

static void test_lost_doubt_is_refused(void **state)
{
    (void)state;
    struct journal journal;
    open_journal(&journal);
    journal.count = 1;
    journal_entry_done(&journal.entries[1]);
    journal.entries[1] = decision(2, ENTRY_PARK, 0, PARK_LATE_EFFECT);
    journal.count = 2;
    journal.row.state = SAGA_PARKED;
    journal.row.phase = SAGA_RUNNING;
    journal.row.park_reason = PARK_LATE_EFFECT;
    journal.row.park_step = 0;
    journal.row.ended_at_ms = 0;
    struct saga *saga = NULL;
    struct err err;
    assert_int_equal(
        saga_replay(journal.definition, &journal.row, journal.entries, journal.count, &saga, &err),
        ERR_INTERNAL);
    journal.row.doubt = true;
    ASSERT_OK(
        saga_replay(journal.definition, &journal.row, journal.entries, journal.count, &saga, &err),
        &err);
    saga = saga_free(saga);
    close_journal(&journal);
}

static void test_replay_without_memory(void **state)
{
    (void)state;
    struct journal journal;
    open_journal(&journal);
    struct saga *saga = NULL;
    struct err err;
    int rc = ERR_NOMEM;
    uint64_t at = 0;
    while (rc) {
        assert_in_range(at, 0, 50);
        mem_fail_at(++at, false);
        rc = saga_replay(journal.definition, &journal.row, journal.entries, journal.count, &saga,
                         &err);
        mem_fail_at(0, false);
        assert_true(rc == 0 || rc == ERR_NOMEM);
        if (rc)
            assert_non_null(journal.entries[3].worker);
    }
    assert_true(at > 5);
    saga = saga_free(saga);
    close_journal(&journal);
}

/* A start, a grant, and a report that refuses, parks or turns back, each allocation failing once.
 */
static int play(const struct definition *definition, enum outcome outcome, struct err *err)
{
    struct rng rng;
    rng_seed(&rng, 1);
    CLEANUP(saga_row_done) struct saga_row row = { 0 };
    struct saga *saga = NULL;
    int rc = saga_new(definition, &row, &saga, err);
    if (rc)
        return rc;
    struct transition transition = { 0 };
    struct grantable what;
    assert_int_equal(saga_grantable(saga, 1000, &what, 1), 1);
    rc = saga_grant(saga, &what, "worker/1", 0, 1000, &transition, err);
    if (!rc) {
        saga_committed(saga, &transition, 1000);
        struct report report = { .fence = 1,
                                 .outcome = outcome,
                                 .output = { (uint8_t *)"output", 6 },
                                 .error_code = "CODE",
                                 .error_message = "message" };
        enum verdict verdict;
        rc = saga_on_report(saga, &report, 1000, &rng, &transition, &verdict, err);
        if (!rc)
            saga_committed(saga, &transition, 1000);
    }
    saga = saga_free(saga);
    return rc;
}

static void test_decisions_without_memory(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1);
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    for (int outcome = OUTCOME_DONE; outcome <= OUTCOME_UNKNOWN; outcome++) {
        int rc = ERR_NOMEM;
        uint64_t at = 0;
        while (rc) {
            assert_in_range(at, 0, 50);
            mem_fail_at(++at, false);
            rc = play(world.definition, (enum outcome)outcome, &world.err);
            mem_fail_at(0, false);
            assert_true(rc == 0 || rc == ERR_NOMEM);
        }
        assert_true(at > 5);
    }
    world_close(&world);
}

static void test_a_time_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const int64_t times[] = { -1, INT64_MIN, INT64_MAX, INT64_C(253402300800000) };
    struct world world;
    world_open(&world, 1);
    world_start(&world);
    (void)world_grant(&world);
    struct journal_entry *entry = &world.entries[0];
    int64_t *const fields[] = { &entry->leased_at_ms,     &entry->attempt_until_ms,
                                &entry->lease_until_ms,   &entry->finished_at_ms,
                                &entry->retry_at_ms,      &world.row.started_at_ms,
                                &world.row.deadline_at_ms };
    for (size_t i = 0; i < ARRAY_LEN(fields) * ARRAY_LEN(times); i++) {
        int64_t *field = fields[i / ARRAY_LEN(times)], was = *field;
        struct saga *saga = NULL;
        *field = times[i % ARRAY_LEN(times)];
        assert_int_equal(saga_replay(world.definition, &world.row, world.entries, world.count,
                                     &saga, &world.err),
                         ERR_INTERNAL);
        assert_non_null(strstr(world.err.msg, "a time that cannot be"));
        *field = was;
    }
    world_reload(&world);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_rules_cannot_have_written),
        cmocka_unit_test(test_a_repeat_of_an_unknown_outcome_is_refused),
        cmocka_unit_test(test_each_refusal_tells_position_and_rule),
        cmocka_unit_test(test_a_journal_beyond_every_limit_is_refused),
        cmocka_unit_test(test_a_live_lease_with_a_result_is_refused),
        cmocka_unit_test(test_lost_doubt_is_refused),
        cmocka_unit_test(test_replay_without_memory),
        cmocka_unit_test(test_decisions_without_memory),
        cmocka_unit_test(test_a_time_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
