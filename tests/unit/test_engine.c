/* Goal: what the engine does when a commit is in doubt, at the points that a real database cannot
 * be made to hit at will. Method: the real engine, core and dispatch turned by hand, over a store
 * whose every answer the test gives, a clock that stands still and one scripted worker. */
#include "base/mem.h"
#include "engine/engine.h"
#include "support/check.h"

enum { NOW_MS = 1000000, TASKS_MAX = 8 };

/* --- a store that answers what it is told ----------------------------------------------------- */

struct fake_store {
    struct store store;
    uint64_t generation;
    int64_t epoch;
    struct store_op *batch, *completed;
};

static struct fake_store *fake_of(struct store *store)
{
    return CONTAINER(store, struct fake_store, store);
}

static uint64_t fake_generation(struct store *store)
{
    return fake_of(store)->generation;
}

static int64_t fake_epoch(struct store *store)
{
    return fake_of(store)->epoch;
}

static bool fake_busy(struct store *store)
{
    return fake_of(store)->batch != NULL;
}

static void fake_submit(struct store *store, struct store_op *batch)
{
    assert_null(fake_of(store)->batch);
    fake_of(store)->batch = batch;
}

static struct store_op *fake_completed(struct store *store)
{
    struct store_op *completed = fake_of(store)->completed;
    fake_of(store)->completed = NULL;
    return completed;
}

static void fake_process(struct store *store, int64_t mono_ms)
{
    (void)store;
    (void)mono_ms;
}

static int fake_poll_fd(struct store *store, short *ret_events)
{
    (void)store;
    *ret_events = 0;
    return -1;
}

static int64_t fake_wake_at(struct store *store)
{
    (void)store;
    return INT64_MAX;
}

static const struct store_ops fake_ops = {
    .generation = fake_generation,
    .epoch = fake_epoch,
    .busy = fake_busy,
    .submit = fake_submit,
    .completed = fake_completed,
    .process = fake_process,
    .poll_fd = fake_poll_fd,
    .wake_at = fake_wake_at,
};

/* --- time, definition, worker -------------------------------------------------------------------
 */

static int64_t now_ms;

static int64_t fixed_ms(void *ctx)
{
    (void)ctx;
    return now_ms;
}

static enum effect effect;

static int decode(const struct bytes *content, const struct bytes *descriptors,
                  struct definition **ret, struct err *err)
{
    (void)content;
    (void)descriptors;
    static const char *const names[] = { "a", "b" };
    struct definition *definition = definition_new(ARRAY_LEN(names));
    if (!definition)
        return err_set(err, ERR_NOMEM, "definition");
    definition->namespace_ = mem_strdup("default");
    definition->name = mem_strdup("two");
    definition->description = mem_strdup("");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct step_rule *step = &definition->steps[i];
        step->name = mem_strdup(names[i]);
        step->settle_ms = -1;
        step->action.handler = mem_strdup("h");
        step->action.effect = effect;
        step->action.retry = (struct retry){ DEFAULT_RETRY_FOR_MS, 1000, 60000, 0 };
        step->action.lease_ms = DEFAULT_LEASE_MS;
        step->action.attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS;
        step->action.lost_leases_max = DEFAULT_LOST_LEASES_MAX;
    }
    *ret = definition;
    return 0;
}

struct fake_link {
    struct worker_link link;
    struct uuid uid;
    int64_t fences[TASKS_MAX]; /* of the tasks that were sent */
    size_t tasks, acks;
    enum engine_ack last_ack;
};

static bool link_has_room(struct worker_link *link)
{
    (void)link;
    return true;
}

static bool link_tasks(struct worker_link *link, const struct engine_task *tasks, size_t count)
{
    struct fake_link *self = CONTAINER(link, struct fake_link, link);
    for (size_t i = 0; i < count; i++) {
        assert_true(self->tasks < TASKS_MAX);
        self->uid = saga_row(tasks[i].saga)->uid;
        self->fences[self->tasks++] = tasks[i].view.lease->fence;
    }
    return true;
}

static void link_acks(struct worker_link *link, const struct engine_lease_ack *acks, size_t count)
{
    struct fake_link *self = CONTAINER(link, struct fake_link, link);
    self->acks += count;
    self->last_ack = acks[count - 1].ack;
}

static void link_extended(struct worker_link *link, const struct engine_lease_extended *leases,
                          size_t count)
{
    (void)link;
    (void)leases;
    (void)count;
}

static void link_cancel_hint(struct worker_link *link, const struct uuid *uid, int64_t fence)
{
    (void)link;
    (void)uid;
    (void)fence;
}

static void link_welcome(struct worker_link *link, uint64_t session)
{
    (void)link;
    assert_true(session > 0);
}

static void link_close(struct worker_link *link, const struct err *why)
{
    (void)link;
    fail_msg("the engine ended the stream: %s", why->msg);
}

static const struct worker_link_ops link_ops = {
    link_has_room, link_tasks, link_acks, link_extended, link_cancel_hint, link_welcome, link_close,
};

/* --- the world
 * ------------------------------------------------------------------------------------ */

static struct fake_store fake;
static struct engine *engine;
static struct fake_link worker;
static const struct clock stopped = { fixed_ms, fixed_ms, NULL };

static void event_done(struct engine_event *event)
{
    (void)event; /* on the test's stack */
}

/* As engine_run does: until there is nothing more to do by itself. */
static void turn(void)
{
    for (int i = 0; engine_turn(engine) <= now_ms; i++)
        assert_true(i < 100);
}

/* The one operation of the batch in flight, which must be of this kind. */
static struct store_op *expect_op(enum store_op_kind kind)
{
    assert_non_null(fake.batch);
    assert_null(fake.batch->next);
    assert_int_equal(fake.batch->kind, kind);
    return fake.batch;
}

static int nodes_alive;

/* Gives the batch back; every operation without a result of its own gets this one. */
static void answer(enum store_result result)
{
    for (struct store_op *op = fake.batch; op; op = op->next) {
        if (op->result == STORE_PENDING)
            op->result = result;
        if (op->result == STORE_OK)
            op->now_ms = now_ms;
        if (op->kind == STORE_HEARTBEAT)
            op->nodes_alive = nodes_alive;
    }
    fake.completed = fake.batch;
    fake.batch = NULL;
    turn();
}

/* This node has joined, or is known to belong still: its own sagas are listed (none, unless the
 * test put them there) and what nobody drives is looked for. */
static void answer_heartbeat(enum store_beat beat)
{
    assert_int_equal(expect_op(STORE_HEARTBEAT)->beat, beat);
    answer(STORE_OK);
}

/* The engine lists its own sagas, or looks for what nobody drives: there is nothing. */
static void answer_looks(void)
{
    for (const struct store_op *op = fake.batch; op; op = op->next)
        assert_true(op->kind == STORE_OWN || op->kind == STORE_ADOPT);
    assert_non_null(fake.batch);
    answer(STORE_OK);
}

static void post_worker(struct engine_worker_event *event, enum worker_event_kind kind)
{
    event->event = (struct engine_event){ .kind = ENGINE_WORKER, .done = event_done };
    event->link = &worker.link;
    event->kind = kind;
    assert_true(engine_post_always(engine, &event->event));
    turn();
}

static struct worker_report report;
static struct engine_worker_event report_event;

static void post_report(int64_t fence)
{
    report = (struct worker_report){ .uid = worker.uid };
    report.report = (struct report){ .fence = fence, .outcome = OUTCOME_DONE };
    report_event = (struct engine_worker_event){ .reports = &report, .report_count = 1 };
    post_worker(&report_event, WORKER_REPORT);
}

/* A saga of two steps whose first task is at the worker. */
static struct start_item item;
static struct engine_start start;
static struct engine_worker_event hello_event, credit_event;
static struct worker_credit credit;

static char granter[STORE_GRANTER_SIZE]; /* of this process */
static int expelled_count;
static void expelled(void *ctx)
{
    (void)ctx;
    expelled_count++;
}

static int setup_with(enum effect of_actions)
{
    struct err err;
    struct engine_options options = { .store = &fake.store,
                                      .clock = &stopped,
                                      .rng_seed = 1,
                                      .node = "test",
                                      .instance = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 } },
                                      .expelled = expelled,
                                      .grace_ms = ENGINE_GRACE_MS,
                                      .stream_lost_ms = ENGINE_STREAM_LOST_MS,
                                      .definition_decode = decode };
    now_ms = NOW_MS;
    nodes_alive = 1;
    effect = of_actions;
    expelled_count = 0;
    fake = (struct fake_store){ .store = { &fake_ops }, .generation = 1 };
    worker = (struct fake_link){ .link = { .ops = &link_ops } };
    store_granter(options.node, &options.instance, granter);
    SETUP_OK(engine_new(&options, &engine, &err), &err);
    turn();
    assert_false(engine_is_ready(engine));
    answer_heartbeat(STORE_BEAT_JOIN);
    assert_true(engine_is_ready(engine));
    answer_looks();

    credit = (struct worker_credit){ "h", 8 };
    hello_event = (struct engine_worker_event){
        .worker_id = "w", .instance = "instance", .credits = &credit, .credit_count = 1
    };
    post_worker(&hello_event, WORKER_HELLO);
    answer_looks(); /* for sagas that wait for this handler */
    credit_event = (struct engine_worker_event){ .credits = &credit, .credit_count = 1 };
    post_worker(&credit_event, WORKER_CREDIT);

    item = (struct start_item){ .namespace_ = "default", .definition = "two", .saga_id = "s" };
    start = (struct engine_start){ .items = &item, .count = 1 };
    start.event = (struct engine_event){ .kind = ENGINE_START, .done = event_done };
    assert_true(engine_post(engine, &start.event));
    turn();
    expect_op(STORE_LOAD_DEFINITION)->revision = 1;
    answer(STORE_OK);
    assert_int_equal(expect_op(STORE_START)->transition->append_seq, 1);
    assert_int_equal(worker.tasks, 0); /* nothing leaves before its commit */
    answer(STORE_OK);
    assert_int_equal(item.err.code, ERR_OK);
    assert_int_equal(worker.tasks, 1);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_with(EFFECT_AT_MOST_ONCE);
}

static int setup_idempotent(void **state)
{
    (void)state;
    return setup_with(EFFECT_IDEMPOTENT);
}

static int teardown(void **state)
{
    (void)state;
    fake.batch = NULL;
    engine = engine_free(engine);
    return 0;
}

/* --- loaded rows
 * ---------------------------------------------------------------------------------- */

static void put_row(struct store_saga *saga)
{
    saga->row = (struct saga_row){ .uid = worker.uid,
                                   .namespace_ = mem_strdup("default"),
                                   .definition = mem_strdup("two"),
                                   .revision = 1,
                                   .saga_id = mem_strdup("s"),
                                   .run = 1,
                                   .park_step = -1,
                                   .started_at_ms = NOW_MS,
                                   .updated_at_ms = NOW_MS };
}

static void put_lease(struct store_saga *saga, int16_t step, enum outcome outcome,
                      const char *granted_by)
{
    struct journal_entry *entry = &saga->entries[saga->entry_count++];
    *entry = (struct journal_entry){ .seq = (int64_t)saga->entry_count,
                                     .fence = (int64_t)saga->entry_count,
                                     .step = step,
                                     .try_ = 1,
                                     .worker = mem_strdup("w/instance"),
                                     .actor = mem_strdup(granted_by),
                                     .leased_at_ms = NOW_MS,
                                     .attempt_until_ms = NOW_MS + DEFAULT_ATTEMPT_TIMEOUT_MS,
                                     .lease_until_ms = NOW_MS + DEFAULT_LEASE_MS,
                                     .outcome = outcome,
                                     .finished_at_ms = outcome ? NOW_MS : 0 };
}

/* Gives a load of the saga what the database holds: step a's lease, perhaps done, and perhaps step
 * b's. The other operations of the batch find nothing. */
static void answer_load(bool a_done, const char *b_granted_by, bool mine)
{
    bool loaded = false;
    for (struct store_op *op = fake.batch; op; op = op->next) {
        op->result = STORE_OK;
        if (op->kind != STORE_LOAD_UID)
            continue;
        loaded = true;
        op->sagas = mem_calloc(1, sizeof *op->sagas);
        op->sagas[0].entries = mem_calloc(2, sizeof *op->sagas[0].entries);
        op->sagas[0].mine = mine;
        op->saga_count = 1;
        put_row(&op->sagas[0]);
        put_lease(&op->sagas[0], 0, a_done ? OUTCOME_DONE : OUTCOME_NONE, granter);
        if (b_granted_by)
            put_lease(&op->sagas[0], 1, OUTCOME_NONE, b_granted_by);
    }
    assert_true(loaded);
    answer(STORE_OK);
}

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

/* --- several nodes
 * ------------------------------------------------------------------------------- */

static void pass_ms(int64_t ms)
{
    now_ms += ms;
    turn();
}

static struct store_op *find_op(enum store_op_kind kind)
{
    for (struct store_op *op = fake.batch; op; op = op->next)
        if (op->kind == kind)
            return op;
    fail_msg("no operation of kind %d is in flight", (int)kind);
    return NULL;
}

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
    worker.link = (struct worker_link){ .ops = &link_ops }; /* the next stream */
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
        cmocka_unit_test_setup_teardown(test_l3_what_may_not_have_arrived_is_lost_alone,
                                        setup_idempotent, teardown),
        cmocka_unit_test_setup_teardown(test_a_pause_waits_for_what_is_on_its_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sagas_that_may_have_been_started_are_looked_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_more_started_sagas_than_are_taken_up_at_once, setup,
                                        teardown),
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
