/* Goal: a cancel is right wherever it comes. Method: a saga is run in the simulator without chance
 * once to its end, and then once for each thing that happens in it, with a cancel just before that;
 * the invariants judge each run, and the participant's books what is left of it. Each position of
 * the journal must have been one at which a cancel was recorded. */
#include "sim/world.h"
#include "support/check.h"

#include "base/log.h"

enum { POSITIONS_MAX = 64, END_LIMIT_MS = 600000, REST_MS = 2000 };

/* The world of one run; large. */
static struct world world;
static uint64_t hits[HIT_COUNT];

/*     b -< c d >- e
 *  a -< f -< g h >- i >- l
 *     j -- k                 */
#define DIAMONDS                                                                                   \
    "node n1\n"                                                                                    \
    "definition order a b c d e f g h i j k l\n"                                                   \
    "step d of order after=b\n"                                                                    \
    "step e of order after=c,d\n"                                                                  \
    "step f of order after=a\n"                                                                    \
    "step h of order after=f\n"                                                                    \
    "step i of order after=g,h\n"                                                                  \
    "step j of order after=a\n"                                                                    \
    "step l of order after=e,i,k\n"                                                                \
    "worker w1 n1 h0 h1 h2 h3 h4\n"                                                                \
    "plan O-1 c action think=31\n"                                                                 \
    "plan O-1 f action think=17\n"                                                                 \
    "plan O-1 j action think=45\n"                                                                 \
    "plan O-1 h compensation think=23\n"

#define START "0 start O-1 n1 definition=order\n"

/* Everything between the first and the last at the same time. */
#define WIDE                                                                                       \
    "node n1\n"                                                                                    \
    "definition order a b c d e f g h i j k l\n"                                                   \
    "step b of order after=a\n"                                                                    \
    "step c of order after=a\n"                                                                    \
    "step d of order after=a\n"                                                                    \
    "step e of order after=a\n"                                                                    \
    "step f of order after=a\n"                                                                    \
    "step g of order after=a\n"                                                                    \
    "step h of order after=a\n"                                                                    \
    "step i of order after=a\n"                                                                    \
    "step j of order after=a\n"                                                                    \
    "step k of order after=a\n"                                                                    \
    "step l of order after=b,c,d,e,f,g,h,i,j,k\n"                                                  \
    "worker w1 n1 h0 h1 h2 h3 h4\n"                                                                \
    "plan O-1 b action think=80\n"                                                                 \
    "plan O-1 c action think=83\n"                                                                 \
    "plan O-1 d action think=86\n"                                                                 \
    "plan O-1 e action think=89\n"                                                                 \
    "plan O-1 f action think=92\n"                                                                 \
    "plan O-1 g action think=95\n"                                                                 \
    "plan O-1 h action think=98\n"                                                                 \
    "plan O-1 i action think=101\n"                                                                \
    "plan O-1 j action think=104\n"                                                                \
    "plan O-1 k action think=107\n"                                                                \
    "plan O-1 g compensation think=40\n"

/*  a -< b c >- d -< e f g >- h: d is the pivot. */
#define PIVOT                                                                                      \
    "node n1\n"                                                                                    \
    "definition order a b c d e f g h\n"                                                           \
    "step c of order after=a\n"                                                                    \
    "step d of order after=b,c pivot=yes undo=none\n"                                              \
    "step e of order undo=none\n"                                                                  \
    "step f of order after=d undo=none\n"                                                          \
    "step g of order after=d undo=none\n"                                                          \
    "step h of order after=e,f,g undo=none\n"                                                      \
    "worker w1 n1 h0 h1 h2 h3 h4\n"                                                                \
    "plan O-1 c action think=31\n"                                                                 \
    "plan O-1 d action think=31\n"

static const struct db_saga *the_saga(void)
{
    return world.database.saga_count ? &world.database.sagas[0] : NULL;
}

static void open_world(const char *script)
{
    struct world_options options = { .seed = 1, .scripted = true, .hits = hits };
    world_open(&world, &options);
    assert_true(scenario_read(&world, script));
    while (world.clients.key_count == 0)
        assert_true(world_step(&world));
}

static bool has_ended(void)
{
    return the_saga() && saga_state_is_terminal(the_saga()->row.state) && world.clients.open == 0;
}

static void step_on(void)
{
    if (!world_step(&world))
        fail_msg("%s: %s", invariant_name(world.violation.invariant), world.violation.text);
    if (world.now_ms > END_LIMIT_MS)
        fail_msg("it comes to no end");
}

/* Until it has ended, and for a while after that. */
static void run_to_the_end(void)
{
    while (!has_ended())
        step_on();
    for (int64_t until = world.now_ms + REST_MS; world.now_ms < until;)
        step_on();
    invariants_end(&world);
    if (world.violation.invariant != INVARIANT_COUNT)
        fail_msg("%s: %s", invariant_name(world.violation.invariant), world.violation.text);
}

/* The entry in which the cancel is recorded; NULL: it was refused. */
static const struct journal_entry *cancelled_at(const struct db_saga *saga)
{
    for (size_t i = 0; i < saga->count; i++) {
        const struct journal_entry *entry = &saga->entries[i];
        if ((entry->kind == ENTRY_COMPENSATE || entry->kind == ENTRY_PENDING) &&
            entry->reason == CAUSE_CANCELLED)
            return entry;
    }
    return NULL;
}

/* All is there, or nothing of what can be taken back. Before the pivot that is all, and after it
 * nothing turns back. */
static void assert_net(const struct db_saga *saga)
{
    bool succeeded = saga->row.state == SAGA_SUCCEEDED;
    assert_true(succeeded || saga->row.state == SAGA_COMPENSATED);
    const struct subject *subject = participant_subject(&world, "order", "O-1");
    for (size_t i = 0; i < world.definitions.items[0]->step_count; i++) {
        assert_int_equal(subject->effects[i].net, succeeded);
        assert_in_range(subject->effects[i].runs[0], 0, 1);
        assert_in_range(subject->effects[i].runs[1], 0, 1);
    }
}

struct seen {
    bool at[POSITIONS_MAX]; /* a cancel was recorded at that position */
    size_t compensated, succeeded, runs;
};

/* A cancel just before the n-th thing that happens; false: it had ended by then. */
static bool cancel_before(const char *script, size_t n, struct seen *seen)
{
    open_world(script);
    for (size_t i = 0; i < n && !has_ended(); i++)
        step_on();
    bool ended = has_ended();
    clients_verb(&world, &world.nodes[0], &world.clients.keys[0], ENGINE_VERB_CANCEL, 0);
    run_to_the_end();
    const struct db_saga *saga = the_saga();
    const struct journal_entry *cancel = cancelled_at(saga);
    if (cancel) {
        assert_true((size_t)cancel->seq < POSITIONS_MAX);
        seen->at[cancel->seq] = true;
    }
    if (cancel && cancel->kind == ENTRY_COMPENSATE)
        assert_int_equal(saga->row.state, SAGA_COMPENSATED);
    assert_net(saga);
    seen->compensated += saga->row.state == SAGA_COMPENSATED;
    seen->succeeded += saga->row.state == SAGA_SUCCEEDED;
    seen->runs++;
    world_close(&world);
    return !ended;
}

/* last: the last position before which a cancel still counts; 0: the end of the journal. */
static struct seen cancel_everywhere(const char *script, size_t last)
{
    struct seen seen = { 0 };
    open_world(script);
    run_to_the_end();
    size_t count = the_saga()->count;
    assert_net(the_saga());
    world_close(&world);
    for (size_t n = 0; cancel_before(script, n, &seen);)
        n++;
    /* The first lease and the start are one commit. */
    for (size_t seq = 2; seq <= (last ? last : count + 1); seq++)
        if (!seen.at[seq])
            fail_msg("no cancel was recorded at position %zu", seq);
    print_message("%zu runs, %zu of them compensated\n", seen.runs, seen.compensated);
    return seen;
}

static void test_p5_p6_a_cancel_at_every_point_of_diamonds_within_a_diamond(void **state)
{
    (void)state;
    struct seen seen = cancel_everywhere(DIAMONDS START, 0);
    assert_true(seen.compensated > 0 && seen.succeeded > 0);
}

static void test_p5_p6_a_cancel_at_every_point_of_a_wide_graph(void **state)
{
    (void)state;
    struct seen seen = cancel_everywhere(WIDE START, 0);
    assert_true(seen.compensated > 0 && seen.succeeded > 0);
}

/* Until the pivot is done: three steps before it, and its own lease. */
static void test_p5_p6_a_cancel_at_every_point_around_the_pivot(void **state)
{
    (void)state;
    struct seen seen = cancel_everywhere(PIVOT START, 5);
    assert_true(seen.compensated > 0 && seen.succeeded > 0);
}

/* Another is tried twice, and the last step is refused: from there on it goes back,
 * with the cancel or without it. */
static void test_p5_p6_a_cancel_at_every_point_of_one_that_is_refused(void **state)
{
    (void)state;
    struct seen seen = cancel_everywhere(DIAMONDS "step g of order retry_initial=60\n"
                                                  "plan O-1 g action answer=not_sent\n"
                                                  "plan O-1 l action answer=no\n" START,
                                         14);
    assert_int_equal(seen.succeeded, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p5_p6_a_cancel_at_every_point_of_diamonds_within_a_diamond),
        cmocka_unit_test(test_p5_p6_a_cancel_at_every_point_of_a_wide_graph),
        cmocka_unit_test(test_p5_p6_a_cancel_at_every_point_around_the_pivot),
        cmocka_unit_test(test_p5_p6_a_cancel_at_every_point_of_one_that_is_refused),
    };
    log_set_level(LOG_LEVEL_COUNT);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
