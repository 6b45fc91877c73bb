/* Goal: sagas that somebody else commits as this node's are driven like its own. Method: the engine
 * over a store that the test answers for (engine_world.h) is told of them, with and without what
 * was committed. */
#include "base/mem.h"
#include "engine_world.h"
#include "support/check.h"

static int started_done_count;
static void started_done(struct engine_event *event)
{
    (void)event; /* on the test's stack */
    started_done_count++;
}

static struct engine_started started;
static void post_started(const struct uuid *uids, size_t count)
{
    started_done_count = 0;
    started = (struct engine_started){ .uids = uids, .count = count };
    started.event = (struct engine_event){ .kind = ENGINE_STARTED, .done = started_done };
    assert_true(engine_post(engine, &started.event));
    turn();
}

/* Somebody else has committed sagas as this node's: they are loaded and granted like its own, and
 * one that is not there is nothing. */
static void test_sagas_that_were_started_beside_the_engine(void **state)
{
    (void)state;
    static const struct uuid uids[] = { { { 1, 1 } }, { { 1, 2 } } };
    const struct engine_counters *counters = engine_counters(engine);
    long long before = atomic_load(&counters->sagas_started);
    post_started(uids, ARRAY_LEN(uids));
    assert_int_equal(started_done_count, 1);
    assert_int_equal(atomic_load(&counters->sagas_started), before + 2);
    size_t loads = 0;
    for (struct store_op *op = fake.batch; op; op = op->next) {
        assert_int_equal(op->kind, STORE_LOAD_UID);
        assert_false(op->take);
        if (loads++) {
            op->result = STORE_NOT_FOUND;
            continue;
        }
        op->sagas = mem_calloc(1, sizeof *op->sagas);
        op->sagas[0].mine = true;
        op->saga_count = 1;
        put_row(&op->sagas[0]);
        op->sagas[0].row.uid = op->uid;
    }
    assert_int_equal(loads, 2);
    answer(STORE_OK);
    assert_int_equal(expect_op(STORE_TRANSITION)->transition->append_seq, 1);
    answer(STORE_OK);
    assert_int_equal(worker.tasks, 2); /* with that of the setup */
    assert_memory_equal(&worker.uid, &uids[0], sizeof uids[0]);
}

/* What was committed of them is at hand: no load, unless the engine has connected anew since the
 * transaction began, or there is more to a saga than its row. */
static void test_sagas_that_come_whole_are_not_loaded(void **state)
{
    (void)state;
    static const struct uuid uids[] = { { { 3, 1 } }, { { 3, 2 } } };
    static const struct engine_started_saga sagas[] = { { .saga_id = "x" }, { .saga_id = NULL } };
    const struct engine_counters *counters = engine_counters(engine);
    for (int outdated = 0; outdated < 2; outdated++) {
        started =
            (struct engine_started){ .uids = uids,
                                     .count = 2,
                                     .sagas = sagas,
                                     .namespace_ = "default",
                                     .definition = "two",
                                     .revision = 1,
                                     .started_at_ms = NOW_MS,
                                     .reconnects = atomic_load(&counters->reconnects) - outdated };
        started.event = (struct engine_event){ .kind = ENGINE_STARTED, .done = started_done };
        assert_true(engine_post(engine, &started.event));
        turn();
        size_t loads = 0, grants = 0;
        for (struct store_op *op = fake.batch; op; op = op->next) {
            loads += op->kind == STORE_LOAD_UID;
            grants += op->kind == STORE_TRANSITION;
            if (op->kind == STORE_TRANSITION) {
                assert_int_equal(op->transition->append_seq, 1);
                assert_memory_equal(&saga_row(op->saga)->uid, &uids[0], sizeof uids[0]);
                assert_int_equal(saga_row(op->saga)->started_at_ms, NOW_MS);
            } else {
                op->result = STORE_NOT_FOUND;
            }
        }
        assert_int_equal(loads, outdated ? 2 : 1);
        assert_int_equal(grants, outdated ? 0 : 1);
        /* It was not there after all: the journal's key says so, and it is looked up. */
        answer(STORE_LOST);
        if (fake.batch) {
            for (struct store_op *op = fake.batch; op; op = op->next)
                op->result = STORE_NOT_FOUND;
            answer(STORE_NOT_FOUND);
        }
        assert_int_equal(worker.tasks, 1);
    }
}

/* It is not known which: all of this node's own are listed again. */
static void test_sagas_that_may_have_been_started_are_looked_for(void **state)
{
    (void)state;
    post_started(NULL, 0);
    assert_int_equal(started_done_count, 1);
    const struct store_op *own = fake.batch;
    while (own && own->kind != STORE_OWN)
        own = own->next;
    assert_non_null(own);
    assert_true(own->from_start);
    answer_looks();
}

/* Their number is bounded: more are taken up when the first ones are loaded; and what is still
 * there at the stop is given back. */
static void test_more_started_sagas_than_are_taken_up_at_once(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    static struct uuid uids[MANY];
    for (int i = 0; i < MANY; i++)
        uids[i] = (struct uuid){ { 2, (uint8_t)(i >> 8), (uint8_t)i } };
    post_started(uids, MANY);
    assert_int_equal(started_done_count, 0);
    assert_true(atomic_load(&engine_counters(engine)->sagas_resident) < MANY / 2);
    for (int i = 0; fake.batch && i < MANY; i++) {
        for (struct store_op *op = fake.batch; op; op = op->next)
            op->result = STORE_NOT_FOUND;
        answer(STORE_NOT_FOUND);
    }
    assert_int_equal(started_done_count, 1);
    post_started(uids, MANY);
    assert_int_equal(started_done_count, 0);
    fake.batch = NULL;
    engine = engine_free(engine);
    assert_int_equal(started_done_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sagas_that_were_started_beside_the_engine, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_sagas_that_come_whole_are_not_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sagas_that_may_have_been_started_are_looked_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_more_started_sagas_than_are_taken_up_at_once, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
