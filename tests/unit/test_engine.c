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
    (void)store;
    return 0;
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
    fake_generation, fake_epoch,   fake_busy,    fake_submit,
    fake_completed,  fake_process, fake_poll_fd, fake_wake_at,
};

/* --- time, definition, worker -------------------------------------------------------------------
 */

static int64_t fixed_ms(void *ctx)
{
    (void)ctx;
    return NOW_MS;
}

static int decode(const struct bytes *content, struct definition **ret, struct err *err)
{
    (void)content;
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
        step->action.effect = EFFECT_AT_MOST_ONCE;
        step->action.retry = (struct retry){ DEFAULT_RETRY_FOR_MS, 1000, 60000, 0 };
        step->action.lease_ms = DEFAULT_LEASE_MS;
        step->action.attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS;
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
    for (int i = 0; engine_turn(engine) <= NOW_MS; i++)
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

/* Gives the batch back; every operation without a result of its own gets this one. */
static void answer(enum store_result result)
{
    for (struct store_op *op = fake.batch; op; op = op->next) {
        if (op->result == STORE_PENDING)
            op->result = result;
        if (op->result == STORE_OK)
            op->now_ms = NOW_MS;
    }
    fake.completed = fake.batch;
    fake.batch = NULL;
    turn();
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

static int setup(void **state)
{
    (void)state;
    struct err err;
    struct engine_options options = { .store = &fake.store,
                                      .clock = &stopped,
                                      .rng_seed = 1,
                                      .node = "test",
                                      .grace_ms = ENGINE_GRACE_MS,
                                      .stream_lost_ms = ENGINE_STREAM_LOST_MS,
                                      .definition_decode = decode };
    fake = (struct fake_store){ .store = { &fake_ops }, .generation = 1 };
    worker = (struct fake_link){ .link = { .ops = &link_ops } };
    SETUP_OK(engine_new(&options, &engine, &err), &err);
    turn();
    (void)expect_op(STORE_LOAD_OPEN);
    answer(STORE_OK);
    assert_true(engine_is_ready(engine));

    credit = (struct worker_credit){ "h", 8 };
    hello_event = (struct engine_worker_event){
        .worker_id = "w", .instance = "instance", .credits = &credit, .credit_count = 1
    };
    post_worker(&hello_event, WORKER_HELLO);
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

static void put_lease(struct store_saga *saga, int16_t step, enum outcome outcome)
{
    struct journal_entry *entry = &saga->entries[saga->entry_count++];
    *entry = (struct journal_entry){ .seq = (int64_t)saga->entry_count,
                                     .fence = (int64_t)saga->entry_count,
                                     .step = step,
                                     .try_ = 1,
                                     .worker = mem_strdup("w/instance"),
                                     .leased_at_ms = NOW_MS,
                                     .attempt_until_ms = NOW_MS + DEFAULT_ATTEMPT_TIMEOUT_MS,
                                     .lease_until_ms = NOW_MS + DEFAULT_LEASE_MS,
                                     .outcome = outcome,
                                     .finished_at_ms = outcome ? NOW_MS : 0 };
}

/* The connection is lost in the commit of "step a is done, step b is granted", and comes back. All
 * loads find what is durable: with or without that commit. */
static void lose_commit(bool was_durable)
{
    post_report(worker.fences[0]);
    const struct transition *transition = expect_op(STORE_TRANSITION)->transition;
    assert_true(transition->finishes);
    assert_int_equal(transition->append_seq, 2);
    fake.generation = 2;
    answer(STORE_UNKNOWN);
    assert_int_equal(worker.acks, 0);
    assert_int_equal(worker.tasks, 1);
    bool loaded = false;
    for (struct store_op *op = fake.batch; op; op = op->next) {
        op->result = STORE_OK;
        if (op->kind != STORE_LOAD_UID)
            continue; /* the open sagas: none, as far as this load is quicker */
        loaded = true;
        op->sagas = mem_calloc(1, sizeof *op->sagas);
        op->sagas[0].entries = mem_calloc(2, sizeof *op->sagas[0].entries);
        op->saga_count = 1;
        put_row(&op->sagas[0]);
        put_lease(&op->sagas[0], 0, was_durable ? OUTCOME_DONE : OUTCOME_NONE);
        if (was_durable)
            put_lease(&op->sagas[0], 1, OUTCOME_NONE);
    }
    assert_true(loaded);
    answer(STORE_OK);
}

/* The report is applied anew and the same position granted again. That lease is the worker's: the
 * doubt about the first try must not take it away (the step is AT_MOST_ONCE). */
static void test_p4_a_grant_that_was_not_durable_does_not_end_the_one_that_takes_its_place(
    void **state)
{
    (void)state;
    lose_commit(false);
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
    lose_commit(true);
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
        cmocka_unit_test_setup_teardown(
            test_p4_a_grant_that_was_not_durable_does_not_end_the_one_that_takes_its_place, setup,
            teardown),
        cmocka_unit_test_setup_teardown(test_a_grant_that_was_durable_but_never_sent_is_given_back,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_batch_grants_a_stream_a_bounded_weight, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
