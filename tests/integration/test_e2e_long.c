/* Long sagas and many of them. Goal (F6): what a transition reads from PostgreSQL does not grow
 * with the steps that are done, nor with the sagas that wait; a backlog falls when its input stops.
 * Method: PostgreSQL's own counts of rows, in the first half of a saga of 256 steps and in the
 * second, and over a backlog. What a transition costs sagad itself: tests/bench/core.sh. */
#include "base/buf.h"
#include "support/rig.h"

#include <stdio.h>

enum {
    SOON = 10000,
    STEPS = 256,
    GATE = 128, /* the step at which the long saga waits: half is done */
    BACKLOG_STEPS = 5,
    BACKLOG = 400,
    BACKLOG_FULL = 10000,
    BACKLOG_LIMIT_MS = 300000,
    ROWS_MAX =
        8 /* a transition: the entry it ends, the saga it belongs to, and what goes with it */
};

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static int64_t leases_ended(void)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'journal'");
}

/* Rows of journals that were read so far, once so many leases have ended: PostgreSQL counts a while
 * later what others did, and at once what we did ourselves. */
static int64_t rows_read_after(int64_t ended)
{
    rig_exec(&rig, RIG_STORE, "SELECT pg_stat_force_next_flush()");
    rig_await(&rig, RIG_STORE, "t", 3 * SOON,
              "SELECT n_tup_upd >= %lld FROM pg_stat_user_tables WHERE relname = 'journal'",
              (long long)ended);
    return rig_count(&rig, RIG_STORE,
                     "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables"
                     " WHERE relname = 'journal'");
}

static void test_f6_what_a_transition_reads_does_not_grow_with_the_steps_done(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf steps = { 0 };
    for (int i = 0; i < STEPS; i++)
        buf_printf(&steps, "s%d: IDEMPOTENT lease=60s%s | none\n", i,
                   i == GATE ? " handler=gate" : "");
    rig_define(&rig, "long", NULL, buf_cstr(&steps));
    int64_t ended = leases_ended(), start = rows_read_after(ended);
    (void)rig_worker(&rig, "w1", "act:8"); /* the rig owns it */
    rig_start(&rig, "long", "l", "");
    int64_t half = rows_read_after(ended + GATE);
    (void)rig_worker(&rig, "w2", "gate:8"); /* the rig owns it */
    rig_await_state(&rig, "long", "l", "SUCCEEDED", 3 * SOON);
    int64_t whole = rows_read_after(ended + STEPS);
    print_message("rows read: %lld in the first half, %lld in the second\n",
                  (long long)(half - start), (long long)(whole - half));
    assert_true(half - start >= GATE);
    assert_in_range(whole - half, 0, (half - start) * 3 / 2);
}

static void test_f6_a_backlog_falls_when_its_input_stops(void **state)
{
    (void)state;
    int count = test_is_full_size() ? BACKLOG_FULL : BACKLOG;
    rig_define(&rig, "many", NULL,
               "a: IDEMPOTENT | none\nb: IDEMPOTENT | none\nc: IDEMPOTENT | none\n"
               "d: IDEMPOTENT | none\ne: IDEMPOTENT | none");
    int64_t ended = leases_ended(), start = rows_read_after(ended);
    rig_start_many(&rig, "many", "m", count, "");
    (void)rig_worker(&rig, "w1", "act:64"); /* the rig owns it */
    rig_await_states(&rig, "many", "m", "SUCCEEDED", count, BACKLOG_LIMIT_MS);
    int64_t transitions = (int64_t)count * BACKLOG_STEPS;
    int64_t rows = rows_read_after(ended + transitions) - start;
    print_message("rows read: %lld for %lld transitions\n", (long long)rows,
                  (long long)transitions);
    assert_in_range(rows, transitions, transitions * ROWS_MAX);
    assert_int_equal(rig_counter(&rig, "sagas_resident"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_f6_what_a_transition_reads_does_not_grow_with_the_steps_done,
                                  check),
        cmocka_unit_test_teardown(test_f6_a_backlog_falls_when_its_input_stops, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
