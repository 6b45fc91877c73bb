/* Goal: what the engine does when a commit is in doubt, at the points that a real database cannot
 * be made to hit at will. Method: the real engine, core and dispatch turned by hand, over a store
 * whose every answer the test gives, a clock that stands still and one scripted worker. */
#include "base/mem.h"
#include "engine_world.h"
#include "support/check.h"

/* The connection is lost in the commit of "step a is done, step b is granted", and comes back. The
 * load finds what is durable: with or without that commit; or another node's grant there. */
static void lose_commit(bool was_durable, const char *b_granted_by)
{
    post_report(worker.fences[0]);
    const struct transition *transition = expect_op(STORE_TRANSITION)->transition;
    assert_true(transition->finishes);
    assert_int_equal(transition->append_seq, 2);
    fake.generation = 2;
    answer(STORE_UNKNOWN);
    assert_int_equal(worker.acks, 0);
    assert_int_equal(worker.tasks, 1);
    answer_heartbeat(STORE_BEAT); /* before that nothing else is asked */
    answer_load(was_durable, b_granted_by, true);
}

/* The report is applied anew and the same position granted again. That lease is the worker's: the
 * doubt about the first try must not take it away (the step is AT_MOST_ONCE). */
static void test_p4_a_grant_that_was_not_durable_does_not_end_the_one_that_takes_its_place(
    void **state)
{
    (void)state;
    lose_commit(false, NULL);
    const struct transition *transition = expect_op(STORE_TRANSITION)->transition;
    assert_true(transition->finishes);
    assert_int_equal(transition->finish_seq, 1);
    assert_int_equal(transition->append_seq, 2);
    answer(STORE_OK);
    assert_int_equal(worker.last_ack, ENGINE_ACK_ACCEPTED);
    assert_int_equal(worker.tasks, 2);
    assert_int_equal(worker.fences[1], 2);
    for (int i = 0; i < 3; i++)
        turn();
    assert_null(fake.batch); /* nobody ends that lease */
    post_report(worker.fences[1]);
    assert_true(expect_op(STORE_TRANSITION)->transition->ends);
    answer(STORE_OK);
    assert_int_equal(worker.last_ack, ENGINE_ACK_ACCEPTED);
}

/* The grant is there, but its task certainly never left: it is given back and granted again. */
static void test_a_grant_that_was_durable_but_never_sent_is_given_back(void **state)
{
    (void)state;
    lose_commit(true, granter);
    const struct transition *transition = expect_op(STORE_TRANSITION)->transition;
    assert_true(transition->finishes);
    assert_int_equal(transition->finish_seq, 2);
    assert_int_equal(transition->append_seq, 3);
    answer(STORE_OK);
    assert_int_equal(worker.tasks, 2);
    assert_int_equal(worker.fences[1], 3);
    assert_int_equal(worker.last_ack, ENGINE_ACK_DUPLICATE); /* it was durable before */
    post_report(worker.fences[1]);
    assert_true(expect_op(STORE_TRANSITION)->transition->ends);
    answer(STORE_OK);
    assert_int_equal(worker.last_ack, ENGINE_ACK_ACCEPTED);
}

/* Another node decided the same meanwhile, and its task was sent: that lease is not ours to end. */
static void test_p4_a_grant_of_another_node_at_our_position_is_left_alone(void **state)
{
    (void)state;
    lose_commit(true, "other/0123456789ab");
    assert_int_equal(worker.last_ack, ENGINE_ACK_DUPLICATE);
    assert_int_equal(worker.tasks, 1);
    assert_null(fake.batch);
}

/* Conflicts of transactions are tried again here; only when that never ends is the caller told. */
static void test_d3_a_start_that_meets_a_conflict_is_tried_again_inside(void **state)
{
    (void)state;
    static struct start_item conflicting;
    static struct engine_start one;
    for (int failures = 2; failures <= 8; failures += 6) {
        conflicting =
            (struct start_item){ .namespace_ = "default", .definition = "two", .saga_id = "c" };
        one = (struct engine_start){ .items = &conflicting, .count = 1 };
        one.event = (struct engine_event){ .kind = ENGINE_START, .done = event_done };
        assert_true(engine_post(engine, &one.event));
        turn();
        for (int i = 0; i < failures; i++) {
            struct store_op *op = expect_op(STORE_START);
            assert_int_equal(op->suspect, i > 0); /* apart, so that it holds up no other */
            err_set(&op->err, ERR_CONFLICT, "serialization");
            op->err.retryable = true;
            memcpy(op->err.sqlstate, "40001", 6);
            answer(STORE_FAILED);
        }
        if (failures == 2) {
            answer(STORE_OK);
            assert_int_equal(conflicting.err.code, ERR_OK);
        } else {
            assert_null(fake.batch);
            assert_int_equal(conflicting.err.code, ERR_CONFLICT);
        }
    }
}

/* --- several nodes ---------------------------------------------------------------------------- */

/* Another process has the name: this one decides nothing any more, whatever is asked. */
static void test_p3_a_process_that_lost_its_nodes_name_decides_nothing_more(void **state)
{
    (void)state;
    pass_ms(ENGINE_HEARTBEAT_MS);
    find_op(STORE_HEARTBEAT)->result = STORE_LOST;
    answer(STORE_OK);
    assert_int_equal(expelled_count, 1);
    post_report(worker.fences[0]);
    pass_ms(ENGINE_HEARTBEAT_MS);
    assert_null(fake.batch);
    assert_int_equal(worker.acks, 0);
    assert_int_equal(expelled_count, 1);
}

/* It was silent for too long: others have adopted, so every copy is loaded anew. */
static void test_a_node_that_was_taken_for_dead_loads_its_sagas_anew(void **state)
{
    (void)state;
    pass_ms(ENGINE_HEARTBEAT_MS);
    find_op(STORE_HEARTBEAT)->was_dead = true;
    answer(STORE_OK);
    assert_true(find_op(STORE_OWN)->from_start);
    answer(STORE_OK);
    assert_int_equal(atomic_load(&engine_counters(engine)->sagas_resident), 0);
    post_report(worker.fences[0]);
    assert_true(expect_op(STORE_LOAD_UID)->take);
    answer_load(false, NULL, true);
    assert_int_equal(expect_op(STORE_TRANSITION)->transition->append_seq, 2);
}

/* A database of this epoch has the lease of step b, and knows no report. The worker comes back, and
 * does not list it: is it given back? Loaded first: this process granted it; else an earlier one.
 */
static bool given_back(int64_t epoch, bool is_loaded_first)
{
    static struct engine_worker_event gone;
    bool ended = false;
    gone = (struct engine_worker_event){ 0 };
    post_worker(&gone, WORKER_GONE);
    worker.link = (struct worker_link){ .ops = worker.link.ops }; /* the next stream */
    hello_event.only_stream = true;
    fake.epoch = epoch;
    fake.generation = 2;
    pass_ms(ENGINE_HEARTBEAT_MS);
    if (!is_loaded_first)
        post_worker(&hello_event, WORKER_HELLO);
    answer_heartbeat(STORE_BEAT);
    struct store_op *own = find_op(STORE_OWN);
    own->uids = mem_calloc(1, sizeof *own->uids);
    own->uids[own->uid_count++] = worker.uid;
    answer(STORE_OK);
    answer_load(true, is_loaded_first ? granter : "test/earlier", true);
    if (is_loaded_first)
        post_worker(&hello_event, WORKER_HELLO);
    for (; fake.batch && !ended; answer(STORE_OK))
        for (const struct store_op *op = fake.batch; op; op = op->next)
            ended = ended || (op->kind == STORE_TRANSITION && op->transition->finishes);
    return ended;
}

/* It was never started; but of an earlier epoch it may have ended, with a report that is lost. */
static void test_p4_a_lease_that_its_worker_does_not_list(void **state)
{
    for (int i = 0; i < 4; i++) {
        int64_t epoch = i & 1;
        assert_int_equal(given_back(epoch, (i & 2) != 0), epoch == 0);
        (void)teardown(state); /* always 0 */
        assert_int_equal(setup(state), 0);
    }
}

static struct engine_verb verbs[2]; /* the engine's until they are done */

static void post_verb(enum engine_verb_kind kind)
{
    struct engine_verb *verb = &verbs[kind == ENGINE_VERB_WAIT];
    *verb = (struct engine_verb){ .verb = kind, .by_uid = true, .uid = worker.uid };
    verb->timeout_ms = 10000;
    verb->event = (struct engine_event){ .kind = ENGINE_VERB, .done = event_done };
    assert_true(engine_post(engine, &verb->event));
    turn();
}

/* Waiting decides nothing: the saga stays with its owner and is looked at now and then. */
static void test_waiting_for_another_nodes_saga_does_not_take_it(void **state)
{
    (void)state;
    pass_ms(ENGINE_HEARTBEAT_MS);
    find_op(STORE_HEARTBEAT)->was_dead = true;
    answer(STORE_OK);
    answer_looks();
    post_verb(ENGINE_VERB_WAIT);
    for (int i = 0; i < 2; i++) {
        assert_false(find_op(STORE_LOAD_UID)->take);
        answer_load(false, NULL, false);
        assert_null(fake.batch);
        pass_ms(500);
    }
    assert_false(find_op(STORE_LOAD_UID)->take);
    answer_load(false, NULL, false);
    post_verb(ENGINE_VERB_CANCEL); /* this one does decide: the copy does not do */
    assert_true(expect_op(STORE_LOAD_UID)->take);
    answer_load(false, NULL, true);
    assert_true(expect_op(STORE_TRANSITION)->transition->changes_row);
}

/* Another node may have extended the lease: until when its worker may work on is asked first. */
static void test_p5_after_a_lost_stream_the_saga_is_loaded_before_anything_is_granted(void **state)
{
    static struct engine_worker_event gone;
    gone = (struct engine_worker_event){ 0 };
    (void)state;
    post_worker(&gone, WORKER_GONE);
    pass_ms(ENGINE_STREAM_LOST_MS);
    assert_true(find_op(STORE_TRANSITION)->transition->finishes);
    assert_int_equal(find_op(STORE_TRANSITION)->transition->append_seq, 0);
    answer(STORE_OK);
    assert_false(expect_op(STORE_LOAD_UID)->take);
}

static struct uuid start_ungranted(void)
{
    static struct start_item second;
    static struct engine_start one;
    second = (struct start_item){ .namespace_ = "default", .definition = "two", .saga_id = "t" };
    one = (struct engine_start){ .items = &second, .count = 1 };
    one.event = (struct engine_event){ .kind = ENGINE_START, .done = event_done };
    assert_true(engine_post(engine, &one.event));
    turn();
    if (nodes_alive > 1) { /* another revision may be the current one since the last heartbeat */
        find_op(STORE_LOAD_DEFINITION)->revision = 1;
        answer(STORE_OK);
    }
    assert_int_equal(find_op(STORE_START)->transition->append_seq, 0);
    answer(STORE_OK);
    return second.uid;
}

static struct uuid start_without_worker(void)
{
    static struct engine_worker_event gone;
    gone = (struct engine_worker_event){ 0 };
    post_worker(&gone, WORKER_GONE);
    return start_ungranted();
}

/* A worker without a stream: one answer may be lost, however well its worker is. */
static void test_l3_what_may_not_have_arrived_is_lost_alone(void **state)
{
    struct worker_lease_ref ref = { .uid = worker.uid, .fence = worker.fences[0] };
    struct engine_worker_event event = { .leases = &ref, .lease_count = 1 };
    (void)state;
    post_worker(&event, WORKER_UNCONFIRMED);
    assert_true(find_op(STORE_TRANSITION)->transition->finishes);
    const struct store_op *op = find_op(STORE_TRANSITION);
    assert_int_equal(saga_entry(op->saga, 1)->outcome, OUTCOME_STREAM_LOST);
}

static bool paused;
static void pause_done(struct engine_event *event)
{
    paused = event != NULL;
}

/* What is granted when it asks for no more comes before the pause is done, and nothing after it. */
static void test_a_pause_waits_for_what_is_on_its_way(void **state)
{
    struct engine_worker_event pause = { .event = { .kind = ENGINE_WORKER, .done = pause_done },
                                         .link = &worker.link,
                                         .kind = WORKER_PAUSE };
    (void)state;
    paused = false;
    post_report(worker.fences[0]); /* done, and the next one granted: not durable yet */
    assert_true(engine_post_always(engine, &pause.event));
    turn();
    assert_false(paused);
    assert_int_equal(worker.tasks, 1);
    answer(STORE_OK);
    assert_true(paused);
    assert_int_equal(worker.tasks, 2);
    (void)start_ungranted();
}

/* Time passes, and the database answers all along. */
static void pass_answering(int64_t ms)
{
    pass_ms(ms);
    while (fake.batch)
        answer(STORE_OK);
}

/* Its timer is set when nobody knows yet how the clocks will have drifted by then. */
static void test_a_start_that_lies_days_ahead_comes_neither_early_nor_late(void **state)
{
    enum { LATE_MS = 100 };
    static struct start_item later;
    static struct engine_start one;
    (void)state;
    for (size_t step = 0; step < 2; step++) {
        post_report(worker.fences[step]);
        answer(STORE_OK);
    }
    assert_int_equal(worker.tasks, 2);
    int64_t at_ms = now_ms + INT64_C(7) * 24 * 3600 * 1000;
    later = (struct start_item){
        .namespace_ = "default", .definition = "two", .saga_id = "l", .start_at_ms = at_ms
    };
    one = (struct engine_start){ .items = &later, .count = 1 };
    one.event = (struct engine_event){ .kind = ENGINE_START, .done = event_done };
    assert_true(engine_post(engine, &one.event));
    turn();
    assert_int_equal(expect_op(STORE_START)->transition->append_seq, 0);
    assert_int_equal(saga_row(expect_op(STORE_START)->saga)->start_at_ms, at_ms);
    answer(STORE_OK);
    while (now_ms < at_ms - 1)
        pass_answering(at_ms - 1 - now_ms < 60000 ? at_ms - 1 - now_ms : 60000);
    assert_int_equal(worker.tasks, 2);
    pass_answering(LATE_MS);
    assert_int_equal(worker.tasks, 3);
}

/* Its first entry is alone in its commit; what its class says follows at once. */
static void takes_over(enum entry_kind then, int tasks)
{
    static struct start_item taken;
    static struct engine_start one;
    taken = (struct start_item){ .namespace_ = "default",
                                 .definition = "two",
                                 .saga_id = "k",
                                 .suspect = true,
                                 .suspect_since_ms = now_ms - 5000,
                                 .suspect_actor = "ada" };
    one = (struct engine_start){ .items = &taken, .count = 1 };
    one.event = (struct engine_event){ .kind = ENGINE_START, .done = event_done };
    assert_true(engine_post(engine, &one.event));
    turn();
    const struct store_op *op = expect_op(STORE_START);
    assert_int_equal(op->transition->append_seq, 1);
    assert_int_equal(op->transition->append_count, 1);
    const struct journal_entry *entry = saga_entry(op->saga, 1);
    assert_int_equal(entry->kind, ENTRY_SUSPECT);
    assert_int_equal(entry->leased_at_ms, now_ms - 5000);
    assert_string_equal(entry->actor, "ada");
    answer(STORE_OK);
    assert_int_equal(taken.err.code, ERR_OK);
    op = expect_op(STORE_TRANSITION);
    assert_int_equal(op->transition->append_seq, 2);
    assert_int_equal(saga_entry(op->saga, 2)->kind, then);
    answer(STORE_OK);
    assert_int_equal(worker.tasks, 1 + tasks);
}

static void test_a_saga_that_takes_over_runs_what_is_idempotent(void **state)
{
    (void)state;
    takes_over(ENTRY_LEASE, 1);
}

static void test_p4_a_saga_that_takes_over_parks_at_what_may_happen_once(void **state)
{
    (void)state;
    takes_over(ENTRY_PARK, 0);
}

/* Answers heartbeats and looks until a saga is let go, for at most so long. */
static const struct store_op *let_go_within(int64_t ms)
{
    for (int64_t passed = 0; passed <= ms; passed += 500) {
        for (const struct store_op *op = fake.batch; op; op = op->next)
            if (op->kind == STORE_LET_GO)
                return op;
        if (fake.batch)
            answer(STORE_OK);
        else
            pass_ms(500);
    }
    return NULL;
}

static void test_a_saga_without_a_worker_here_goes_to_another_node(void **state)
{
    (void)state;
    nodes_alive = 2;
    pass_ms(ENGINE_HEARTBEAT_MS);
    answer(STORE_OK);
    (void)start_without_worker();
    const struct store_op *op = let_go_within(4000);
    assert_non_null(op);
    assert_string_equal(op->waiting_handler, "h");
    assert_int_equal(op->wake_at_ms > now_ms, true); /* its budget, at the latest */
    answer(STORE_OK);
    assert_int_equal(atomic_load(&engine_counters(engine)->sagas_let_go), 1);
    assert_int_equal(atomic_load(&engine_counters(engine)->sagas_resident), 1); /* the leased one */
}

/* Who waits for it here goes on waiting, and keeps it from nobody. */
static void test_p8_a_wait_does_not_keep_a_saga_from_the_node_that_has_a_worker(void **state)
{
    (void)state;
    nodes_alive = 2;
    pass_ms(ENGINE_HEARTBEAT_MS);
    answer(STORE_OK);
    worker.uid = start_without_worker();
    post_verb(ENGINE_VERB_WAIT);
    assert_non_null(let_go_within(4000));
    answer(STORE_OK);
    for (int i = 0; i < 2; i++) { /* looked at, as another node's */
        assert_false(find_op(STORE_LOAD_UID)->take);
        answer_load(false, NULL, false);
        pass_ms(500);
    }
}

static void test_a_saga_without_a_worker_stays_while_there_is_no_other_node(void **state)
{
    (void)state;
    (void)start_without_worker();
    assert_null(let_go_within(10000));
    assert_int_equal(atomic_load(&engine_counters(engine)->sagas_resident), 2);
}

/* What may wait for one stream is bounded, however much credit its worker has given. */
static void test_one_batch_grants_a_stream_a_bounded_weight(void **state)
{
    (void)state;
    enum { SAGAS = 4, INPUT = 3 * 1000 * 1000 };
    static uint8_t input[INPUT];
    static struct start_item items[SAGAS]; /* the engine's until it is freed */
    static struct engine_start many;
    static const char *const ids[SAGAS] = { "w", "x", "y", "z" };
    for (int i = 0; i < SAGAS; i++)
        items[i] = (struct start_item){ .namespace_ = "default",
                                        .definition = "two",
                                        .saga_id = ids[i],
                                        .input = { input, sizeof input } };
    many = (struct engine_start){ .items = items, .count = SAGAS };
    many.event = (struct engine_event){ .kind = ENGINE_START, .done = event_done };
    assert_true(engine_post(engine, &many.event));
    turn();
    size_t granted = 0;
    for (const struct store_op *op = fake.batch; op; op = op->next) {
        assert_int_equal(op->kind, STORE_START);
        granted += op->transition->append_seq != 0;
    }
    assert_int_equal(granted, 3); /* two are under the bound of 8 MiB, three are not */
    answer(STORE_OK);
    assert_int_equal(worker.tasks, 4); /* with that of the setup */
    assert_int_equal(expect_op(STORE_TRANSITION)->transition->append_seq, 1); /* the last one */
    answer(STORE_OK);
    assert_int_equal(worker.tasks, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_l3_what_may_not_have_arrived_is_lost_alone,
                                        setup_idempotent, teardown),
        cmocka_unit_test_setup_teardown(test_a_pause_waits_for_what_is_on_its_way, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_p4_a_grant_that_was_not_durable_does_not_end_the_one_that_takes_its_place, setup,
            teardown),
        cmocka_unit_test_setup_teardown(test_a_grant_that_was_durable_but_never_sent_is_given_back,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_p4_a_grant_of_another_node_at_our_position_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_p3_a_process_that_lost_its_nodes_name_decides_nothing_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_node_that_was_taken_for_dead_loads_its_sagas_anew,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_p4_a_lease_that_its_worker_does_not_list, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_waiting_for_another_nodes_saga_does_not_take_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_p5_after_a_lost_stream_the_saga_is_loaded_before_anything_is_granted,
            setup_idempotent, teardown),
        cmocka_unit_test_setup_teardown(
            test_p8_a_wait_does_not_keep_a_saga_from_the_node_that_has_a_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_saga_without_a_worker_here_goes_to_another_node,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_saga_without_a_worker_stays_while_there_is_no_other_node, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_start_that_lies_days_ahead_comes_neither_early_nor_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_saga_that_takes_over_runs_what_is_idempotent,
                                        setup_idempotent, teardown),
        cmocka_unit_test_setup_teardown(
            test_p4_a_saga_that_takes_over_parks_at_what_may_happen_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_d3_a_start_that_meets_a_conflict_is_tried_again_inside,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_batch_grants_a_stream_a_bounded_weight, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
