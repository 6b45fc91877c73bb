/* Goal: the tables are the whole of what moves a saga: nothing moves a finished one, each row comes
 * about through real events, each call does in each state what its row says, and core/README.md
 * shows them. Method: sweep every state x input and verb x state; one scene for each row.
 * `test_core_fsm --markdown` prints the tables for the README. */
#include "core_world.h"

#include "core/fsm.h"
#include "core/limits.h"

#include <stdio.h>

static void test_terminal_states_refuse_every_input(void **state)
{
    (void)state;
    for (int from = 0; from < SAGA_STATE_COUNT; from++)
        for (int phase = 0; phase < SAGA_STATE_COUNT; phase++)
            for (int input = 0; input < IN_COUNT; input++)
                if (saga_state_is_terminal((enum saga_state)from))
                    assert_null(saga_transition_find((enum saga_state)from, (enum saga_state)phase,
                                                     (enum saga_input)input));
}

static bool is_place(enum saga_state state, enum saga_state phase)
{
    if (state == SAGA_PARKED)
        return phase == SAGA_RUNNING || phase == SAGA_COMPENSATING;
    return phase == state;
}

static void test_rows_are_well_formed(void **state)
{
    (void)state;
    size_t count;
    const struct saga_transition *rows = saga_transitions(&count);
    for (size_t i = 0; i < count; i++) {
        assert_true(is_place(rows[i].from, rows[i].phase_from));
        assert_true(is_place(rows[i].to, rows[i].phase_to));
        assert_true(strlen(rows[i].why) > 0);
        assert_non_null(saga_input_name(rows[i].on));
        /* Found by its key, so no second row has the same. */
        assert_ptr_equal(saga_transition_find(rows[i].from, rows[i].phase_from, rows[i].on),
                         &rows[i]);
        /* Turning back is for good. */
        if (rows[i].phase_from == SAGA_COMPENSATING)
            assert_true(rows[i].phase_to == SAGA_COMPENSATING || rows[i].to == SAGA_COMPENSATED ||
                        rows[i].on == IN_ABANDONED);
        if (rows[i].to == SAGA_COMPENSATED)
            assert_int_equal(rows[i].from, SAGA_COMPENSATING);
        if (rows[i].to == SAGA_SUCCEEDED)
            assert_int_equal(rows[i].from, SAGA_RUNNING);
    }
    assert_null(saga_input_name(IN_COUNT));
}

/* Scenes: each leaves the saga where the next event takes the row that it is named after. */

static void open_steps(struct world *world, size_t steps, enum effect effect)
{
    world_open(world, steps);
    for (size_t i = 0; i < steps; i++) {
        world->definition->steps[i].action.effect = effect;
        world->definition->steps[i].guarded = false;
        world->definition->steps[i].settle_ms = 0;
    }
}

static void scene_forward(void)
{
    struct world world;
    open_steps(&world, 2, EFFECT_IDEMPOTENT);
    world_start(&world);
    (void)world_run(&world, OUTCOME_RETRY);
    assert_int_equal(world_retry(&world, NULL), 0); /* RUNNING, RETRY */
    (void)world_run(&world, OUTCOME_DONE);          /* STEP_DONE */
    (void)world_run(&world, OUTCOME_DONE);          /* LAST_STEP_DONE */
    world_close(&world);
}

static void scene_back(void)
{
    struct world world;
    open_steps(&world, 3, EFFECT_IDEMPOTENT);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_REJECTED); /* REFUSED */
    (void)world_run(&world, OUTCOME_RETRY);
    assert_int_equal(world_retry(&world, "b"), 0);  /* COMPENSATING, RETRY */
    (void)world_run(&world, OUTCOME_DONE);          /* COMPENSATION_DONE */
    (void)world_run(&world, OUTCOME_REJECTED);      /* COMPENSATION_FAILED */
    assert_int_equal(world_retry(&world, NULL), 0); /* PARKED in COMPENSATING, RETRY */
    (void)world_run(&world, OUTCOME_DONE);          /* LAST_COMPENSATION_DONE */
    world_close(&world);
    /* CANCELLED, and STEP_DONE of what was in flight. */
    open_steps(&world, 1, EFFECT_IDEMPOTENT);
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    for (int i = 0; i < DEFAULT_LOST_LEASES_MAX; i++) { /* COMPENSATING, WORKER_KILLER */
        world_pass(&world, 60000);
        world_expire(&world, world_grant(&world));
    }
    world_close(&world);
}

static void scene_deadline(void)
{
    for (int policy = ON_DEADLINE_COMPENSATE; policy < ON_DEADLINE_COUNT; policy++) {
        for (int outcome = OUTCOME_DONE; outcome <= OUTCOME_REJECTED; outcome++) {
            struct world world;
            open_steps(&world, 1, EFFECT_IDEMPOTENT);
            world.definition->deadline_ms = 1000;
            world.definition->on_deadline = (enum on_deadline)policy;
            world_start(&world);
            int64_t seq = world_grant(&world);
            world_pass(&world, 1000);
            assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
            /* Parked: STEP_DONE, FOREIGN_EFFECT, REFUSED; COMPENSATING: FOREIGN_EFFECT. */
            assert_int_equal(world_report(&world, seq, (enum outcome)outcome), VERDICT_ACCEPTED);
            if (policy == ON_DEADLINE_PARK && outcome == OUTCOME_DONE)
                assert_int_equal(world_retry(&world, NULL), 0);
            world_close(&world);
        }
    }
}

static void scene_unknown_and_exhausted(void)
{
    for (int policy = ON_UNKNOWN_PARK; policy <= ON_UNKNOWN_COMPENSATE; policy++) {
        for (int outcome = OUTCOME_RETRY; outcome <= OUTCOME_UNKNOWN; outcome++) {
            struct world world;
            open_steps(&world, 1, EFFECT_AT_MOST_ONCE);
            struct operation_rule *rule = &world.definition->steps[0].action;
            rule->on_unknown = (enum on_unknown)policy;
            rule->on_exhausted =
                policy == ON_UNKNOWN_PARK ? ON_EXHAUSTED_PARK : ON_EXHAUSTED_COMPENSATE;
            rule->retry.max_attempts = 1;
            world_start(&world);
            (void)world_run(&world, (enum outcome)outcome);
            if (policy == ON_UNKNOWN_PARK)
                assert_int_equal(world_cancel(&world), 0); /* PARKED in RUNNING, CANCELLED */
            world_close(&world);
        }
    }
}

static void scene_park_forward(void)
{
    struct world world;
    open_steps(&world, 1, EFFECT_IDEMPOTENT);
    world_start(&world);
    (void)world_run(&world, OUTCOME_ALREADY_DONE); /* FOREIGN_EFFECT */
    world_assert_state(&world, "PARKED in RUNNING: FOREIGN_EFFECT");
    world_close(&world);

    open_steps(&world, 1, EFFECT_IDEMPOTENT);
    world_start(&world);
    for (int i = 0; i < DEFAULT_LOST_LEASES_MAX; i++) { /* WORKER_KILLER */
        world_expire(&world, world_grant(&world));
        world_pass(&world, 60000);
    }
    world_assert_state(&world, "PARKED in RUNNING: WORKER_KILLER");
    world_close(&world);

    open_steps(&world, 1, EFFECT_AT_MOST_ONCE);
    world_start(&world);
    world_expire(&world, world_grant(&world));
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_ACCEPTED); /* SETTLED */
    world_assert_state(&world, "SUCCEEDED");
    world_close(&world);

    for (int attempts = 0; attempts <= 1; attempts++) { /* LATE_EFFECT: RUNNING, then PARKED */
        open_steps(&world, 1, EFFECT_AT_MOST_ONCE);
        world.definition->steps[0].action.retry.max_attempts = 1;
        world_start(&world);
        assert_int_equal(world_lease_end(&world, world_grant(&world), OUTCOME_RELEASED),
                         VERDICT_ACCEPTED);
        if (attempts)
            (void)world_run(&world, OUTCOME_RETRY);
        assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE);
        world_assert_state(&world, "PARKED in RUNNING: LATE_EFFECT, doubt");
        world_close(&world);
    }
}

/* COMPENSATING with a live compensation of "a", whose action had expired and is maybe. */
static int64_t open_live_compensation(struct world *world)
{
    open_steps(world, 1, EFFECT_IDEMPOTENT);
    world_start(world);
    world_expire(world, world_grant(world));
    assert_int_equal(world_cancel(world), 0);
    return world_grant(world);
}

static void scene_park_back(void)
{
    struct world world;
    int64_t undo = open_live_compensation(&world);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE); /* LATE_EFFECT */
    assert_int_equal(world_report(&world, undo, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world,
                       "PARKED in COMPENSATING: LATE_EFFECT, doubt"); /* COMPENSATION_DONE */
    world_close(&world);

    undo = open_live_compensation(&world);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE);
    assert_int_equal(world_report(&world, undo, OUTCOME_ALREADY_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: FOREIGN_EFFECT, doubt");
    world_close(&world);

    undo = open_live_compensation(&world);
    assert_int_equal(world_report(&world, undo, OUTCOME_REJECTED), VERDICT_ACCEPTED);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE),
                     VERDICT_STALE); /* parked, LATE_EFFECT */
    world_assert_state(&world, "PARKED in COMPENSATING: LATE_EFFECT, doubt");
    world_close(&world);

    /* STEP_DONE while PARKED in COMPENSATING: two leases of one action, the first given back. */
    open_steps(&world, 1, EFFECT_IDEMPOTENT);
    world_start(&world);
    assert_int_equal(world_lease_end(&world, world_grant(&world), OUTCOME_RELEASED),
                     VERDICT_ACCEPTED);
    int64_t second = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, 1, OUTCOME_DONE), VERDICT_STALE);
    assert_int_equal(world_report(&world, second, OUTCOME_DONE), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: LATE_EFFECT, doubt");
    world_close(&world);

    for (int outcome = OUTCOME_DONE; outcome <= OUTCOME_REJECTED; outcome += 2) {
        open_steps(&world, 1, EFFECT_IDEMPOTENT);
        world.definition->steps[0].compensation.effect = EFFECT_AT_MOST_ONCE;
        world_start(&world);
        int64_t seq = world_grant(&world);
        assert_int_equal(world_cancel(&world), 0);
        assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
        undo = world_grant(&world);
        world_expire(&world, undo); /* COMPENSATION_UNKNOWN */
        /* SETTLED, or COMPENSATION_FAILED while parked. */
        assert_int_equal(world_report(&world, undo, (enum outcome)outcome), VERDICT_ACCEPTED);
        world_close(&world);
    }
}

/* Forward: the outputs no longer fit a task. Back: the journal is full of tries. */
static void scene_limit(void)
{
    uint8_t *large = mem_calloc(1, LIMIT_PAYLOAD_BYTES);
    assert_non_null(large);
    struct world world;
    open_steps(&world, 42, EFFECT_IDEMPOTENT);
    world_start(&world);
    while (world_is_grantable(&world)) {
        struct report report = { .fence = saga_entry(world.saga, world_grant(&world))->fence,
                                 .outcome = OUTCOME_DONE,
                                 .output = { large, LIMIT_PAYLOAD_BYTES } };
        assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    }
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in RUNNING: LIMIT_REACHED");
    world_close(&world);
    mem_free(large);

    open_steps(&world, 1, EFFECT_IDEMPOTENT);
    world.definition->steps[0].compensation.retry.for_ms = INT64_C(366) * 24 * 3600 * 1000;
    world_start(&world);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    world.compare = false; /* a replay for each of so many would take minutes */
    while (world_is_grantable(&world)) {
        (void)world_run(&world, OUTCOME_RETRY);
        world_pass(&world, 60000);
    }
    world.compare = true;
    assert_int_equal(world_time(&world), VERDICT_ACCEPTED);
    world_assert_state(&world, "PARKED in COMPENSATING: LIMIT_REACHED");
    world_close(&world);
}

static void scene_operator(void)
{
    struct world world;
    open_steps(&world, 1, EFFECT_AT_MOST_ONCE);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    assert_int_equal(world_abandon(&world), 0);
    world_assert_state(&world, "ABANDONED");
    world_close(&world);
    open_steps(&world, 2, EFFECT_IDEMPOTENT);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    int64_t seq = world_grant(&world);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_report(&world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
    (void)world_run(&world, OUTCOME_REJECTED);
    world_assert_state(&world, "PARKED in COMPENSATING: COMPENSATION_FAILED");
    assert_int_equal(world_skip(&world, "b"), 0);
    world_assert_state(&world, "COMPENSATING, doubt");
    (void)world_run(&world, OUTCOME_REJECTED);
    assert_int_equal(world_abandon(&world), 0);
    world_assert_state(&world, "ABANDONED, doubt");
    world_close(&world);
}

/* The ways on without a step, and a saga that a person stops. */
static void scene_passed_and_suspended(void)
{
    struct world world;
    open_steps(&world, 2, EFFECT_AT_MOST_ONCE);
    world.definition->steps[0].action.on_unknown = ON_UNKNOWN_ACCEPT;
    world.definition->steps[1].action.on_exhausted = ON_EXHAUSTED_CONTINUE;
    world.definition->steps[1].action.retry.max_attempts = 1;
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);   /* ACCEPTED */
    assert_int_equal(world_suspend(&world), 0); /* SUSPENDED */
    assert_int_equal(world_resume(&world), 0);  /* RESUMED */
    (void)world_run(&world, OUTCOME_RETRY);     /* CONTINUED */
    world_assert_state(&world, "SUCCEEDED, doubt");
    world_close(&world);
    open_steps(&world, 1, EFFECT_IDEMPOTENT);
    world_start(&world);
    (void)world_run(&world, OUTCOME_UNKNOWN);
    assert_int_equal(world_cancel(&world), 0);
    assert_int_equal(world_suspend(&world), 0); /* COMPENSATING, SUSPENDED */
    assert_int_equal(world_resume(&world), 0);
    (void)world_run(&world, OUTCOME_DONE);
    world_assert_state(&world, "COMPENSATED");
    world_close(&world);
}

static void scene_after_the_pivot(void)
{
    struct world world;
    open_steps(&world, 2, EFFECT_IDEMPOTENT);
    world.definition->steps[0].pivot = true;
    world.definition->steps[0].has_compensation = world.definition->steps[1].has_compensation =
        false;
    definition_order(world.definition);
    world_start(&world);
    (void)world_run(&world, OUTCOME_DONE);
    (void)world_run(&world, OUTCOME_REJECTED); /* REJECTED_AFTER_PIVOT */
    world_assert_state(&world, "PARKED in RUNNING: REJECTED_AFTER_PIVOT");
    world_close(&world);
}

static void test_each_row_is_reached_by_real_events(void **state)
{
    (void)state;
    scene_forward();
    scene_back();
    scene_deadline();
    scene_unknown_and_exhausted();
    scene_park_forward();
    scene_park_back();
    scene_limit();
    scene_operator();
    scene_passed_and_suspended();
    scene_after_the_pivot();
    size_t count, missed = 0;
    const struct saga_transition *rows = saga_transitions(&count);
    for (size_t i = 0; i < count; i++) {
        if (!world_took_row(i)) {
            missed++;
            print_error("not reached: %s in %s on %s\n", saga_state_name(rows[i].from),
                        saga_state_name(rows[i].phase_from), saga_input_name(rows[i].on));
        }
    }
    assert_int_equal(missed, 0);
}

/* A saga in that place; false: none can be. */
static void open_place(struct world *world, enum saga_state state, enum saga_state phase,
                       bool with_wait)
{
    open_steps(world, with_wait ? 2 : 1, EFFECT_IDEMPOTENT);
    if (with_wait)
        world_make_wait(world, 1, 1, ON_EXHAUSTED_CONTINUE);
    world_start(world);
    if (state == SAGA_RUNNING) {
        (void)world_run(world, OUTCOME_RETRY);
    } else if (state == SAGA_SUCCEEDED) {
        (void)world_run(world, OUTCOME_DONE);
    } else if (state == SAGA_COMPENSATED) {
        (void)world_run(world, OUTCOME_REJECTED);
    } else if (phase == SAGA_RUNNING || state == SAGA_ABANDONED) {
        world->definition->steps[0].action.retry.max_attempts = 1;
        (void)world_run(world, OUTCOME_RETRY);
        if (state == SAGA_ABANDONED)
            assert_int_equal(world_abandon(world), 0);
    } else {
        int64_t seq = world_grant(world);
        assert_int_equal(world_cancel(world), 0);
        assert_int_equal(world_report(world, seq, OUTCOME_DONE), VERDICT_ACCEPTED);
        (void)world_run(world, state == SAGA_PARKED ? OUTCOME_REJECTED : OUTCOME_RETRY);
    }
    if (with_wait && state == SAGA_SUCCEEDED) {
        world_pass(world, 1);
        assert_int_equal(world_time(world), VERDICT_ACCEPTED);
    }
    assert_int_equal(saga_row(world->saga)->state, state);
    assert_int_equal(saga_row(world->saga)->phase, phase);
}

static int call(struct world *world, enum verb verb)
{
    switch (verb) {
    case VERB_CANCEL:
        return world_cancel(world);
    case VERB_RETRY:
        return world_retry(world, NULL);
    case VERB_RESOLVE:
        return world_resolve(world, "a", OPERATION_COUNT, true, NULL);
    case VERB_SKIP:
        return world_skip(world, NULL);
    case VERB_ABANDON:
        return world_abandon(world);
    case VERB_SUSPEND:
        return world_suspend(world);
    case VERB_RESUME:
        return world_resume(world);
    case VERB_SIGNAL:
        return world_signal(world, "s_b", "1", "");
    case VERB_OPTIONS: {
        struct saga_options options = OPTIONS_NONE;
        options.lease_ms = 45000;
        return world_options(world, "a", &options);
    }
    case VERB_REPORT:
    case VERB_COUNT:
        break;
    }
    assert_int_equal(world_report(world, 1, OUTCOME_UNKNOWN), VERDICT_STALE);
    return 0;
}

static void test_verb_x_state(void **state)
{
    (void)state;
    size_t count;
    const struct verb_rule *rules = verb_rules(&count);
    assert_int_equal(count, VERB_COUNT * 7); /* six states, PARKED in two phases */
    for (size_t i = 0; i < count; i++) {
        const struct verb_rule *rule = &rules[i];
        assert_true(is_place(rule->state, rule->phase));
        assert_ptr_equal(verb_rule_find(rule->verb, rule->state, rule->phase), rule);
        struct world world;
        open_place(&world, rule->state, rule->phase, rule->verb == VERB_SIGNAL);
        int rc = call(&world, rule->verb);
        bool parked = rule->state == SAGA_PARKED; /* for another reason than SUSPENDED */
        if (rule->verb == VERB_RESOLVE && !rule->reason) {
            world_assert_refused(&world, rc, "NOTHING_TO_RESOLVE"); /* test_core_resolve.c */
        } else if (rule->verb == VERB_SUSPEND && parked) {
            world_assert_refused(&world, rc, "SUSPEND_NOT_ALLOWED"); /* test_core_suspend.c */
        } else if (rule->verb == VERB_RESUME && parked) {
            world_assert_refused(&world, rc, "RESUME_NOT_ALLOWED");
        } else if (rule->reason) {
            world_assert_refused(&world, rc, rule->reason);
            assert_non_null(strstr(world.err.msg, rule->does));
        } else {
            assert_int_equal(rc, 0);
        }
        if (saga_state_is_terminal(rule->state)) {
            assert_int_equal(saga_row(world.saga)->state, rule->state);
            assert_int_equal(world.late_rows, rule->verb == VERB_REPORT);
        }
        world_close(&world);
    }
    for (int verb = 0; verb < VERB_COUNT; verb++)
        for (int at = 0; at < SAGA_STATE_COUNT; at++)
            for (int phase = 0; phase < SAGA_STATE_COUNT; phase++)
                assert_int_equal(is_place((enum saga_state)at, (enum saga_state)phase),
                                 verb_rule_find((enum verb)verb, (enum saga_state)at,
                                                (enum saga_state)phase) != NULL);
}

static void read_file(const char *path, struct buf *out)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot open %s", path);
    char chunk[4096];
    size_t size;
    while ((size = fread(chunk, 1, sizeof chunk, file)) > 0)
        buf_append(out, chunk, size);
    assert_false(ferror(file));
    (void)fclose(file); /* it was only read */
    assert_false(out->failed);
}

static void test_readme_shows_the_tables(void **state)
{
    (void)state;
    static const char begin[] = "<!-- tables: begin -->\n", end[] = "<!-- tables: end -->";
    CLEANUP(buf_done) struct buf readme = { 0 };
    CLEANUP(buf_done) struct buf tables = { 0 };
    read_file(SOURCE_DIR "/orchestrator/core/README.md", &readme);
    fsm_write_markdown(&tables);
    assert_false(tables.failed);
    const char *from = strstr(buf_cstr(&readme), begin);
    assert_non_null(from);
    from += strlen(begin);
    const char *to = strstr(from, end);
    assert_non_null(to);
    assert_int_equal(to - from, tables.size);
    assert_memory_equal(from, buf_cstr(&tables), tables.size);
}

static void test_drawing_has_an_edge_for_each_row(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf dot = { 0 };
    fsm_write_dot(&dot);
    size_t count, edges = 0;
    (void)saga_transitions(&count);
    for (const char *at = buf_cstr(&dot); (at = strstr(at, " -> ")); at++)
        edges++;
    assert_int_equal(edges, count);
    assert_non_null(strstr(buf_cstr(&dot), "\"RUNNING\" -> \"COMPENSATING\" [label=\"REFUSED\""));
    assert_memory_equal(buf_cstr(&dot), "digraph saga {\n", 15);
    assert_string_equal(buf_cstr(&dot) + dot.size - 3, "\n}\n");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--markdown") == 0) {
        CLEANUP(buf_done) struct buf tables = { 0 };
        fsm_write_markdown(&tables);
        return fputs(buf_cstr(&tables), stdout) < 0 || tables.failed;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal_states_refuse_every_input),
        cmocka_unit_test(test_rows_are_well_formed),
        cmocka_unit_test(test_each_row_is_reached_by_real_events),
        cmocka_unit_test(test_verb_x_state),
        cmocka_unit_test(test_readme_shows_the_tables),
        cmocka_unit_test(test_drawing_has_an_edge_for_each_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
