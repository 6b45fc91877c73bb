#include "engine_world.h"

#include "base/mem.h"
#include "support/check.h"

/* --- a store that answers what it is told ----------------------------------------------------- */

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

/* --- time, definition, worker ----------------------------------------------------------------- */

int64_t now_ms;

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

/* --- the world -------------------------------------------------------------------------------- */

struct fake_store fake;
struct engine *engine;
struct fake_link worker;
static const struct clock stopped = { fixed_ms, fixed_ms, NULL };

void event_done(struct engine_event *event)
{
    (void)event; /* on the test's stack */
}

/* As engine_run does: until there is nothing more to do by itself. */
void turn(void)
{
    for (int i = 0; engine_turn(engine) <= now_ms; i++)
        assert_true(i < 100);
}

/* The one operation of the batch in flight, which must be of this kind; beside it handlers may be
 * read, of which nobody has said anything. */
struct store_op *expect_op(enum store_op_kind kind)
{
    struct store_op *only = NULL;
    for (struct store_op *op = fake.batch; op; op = op->next) {
        if (op->kind == STORE_HANDLERS && kind != STORE_HANDLERS)
            continue;
        assert_null(only);
        only = op;
    }
    assert_non_null(only);
    assert_int_equal(only->kind, kind);
    return only;
}

struct store_op *find_op(enum store_op_kind kind)
{
    for (struct store_op *op = fake.batch; op; op = op->next)
        if (op->kind == kind)
            return op;
    fail_msg("no operation of kind %d is in flight", (int)kind);
    return NULL;
}

void pass_ms(int64_t ms)
{
    now_ms += ms;
    turn();
}

int nodes_alive;

/* Gives the batch back; every operation without a result of its own gets this one. */
void answer(enum store_result result)
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
void answer_heartbeat(enum store_beat beat)
{
    assert_int_equal(expect_op(STORE_HEARTBEAT)->beat, beat);
    answer(STORE_OK);
}

/* The engine lists its own sagas, or looks for what nobody drives: there is nothing. */
void answer_looks(void)
{
    for (const struct store_op *op = fake.batch; op; op = op->next)
        assert_true(op->kind == STORE_OWN || op->kind == STORE_ADOPT || op->kind == STORE_HANDLERS);
    assert_non_null(fake.batch);
    answer(STORE_OK);
}

void post_worker(struct engine_worker_event *event, enum worker_event_kind kind)
{
    event->event = (struct engine_event){ .kind = ENGINE_WORKER, .done = event_done };
    event->link = &worker.link;
    event->kind = kind;
    assert_true(engine_post_always(engine, &event->event));
    turn();
}

static struct worker_report report;
static struct engine_worker_event report_event;

void post_report(int64_t fence)
{
    report = (struct worker_report){ .uid = worker.uid };
    report.report = (struct report){ .fence = fence, .outcome = OUTCOME_DONE };
    report_event = (struct engine_worker_event){ .reports = &report, .report_count = 1 };
    post_worker(&report_event, WORKER_REPORT);
}

/* A saga of two steps whose first task is at the worker. */
static struct start_item item;
static struct engine_start start;
struct engine_worker_event hello_event;
static struct engine_worker_event credit_event;
static struct worker_credit credit;

char granter[STORE_GRANTER_SIZE]; /* of this process */
int expelled_count;
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

int setup(void **state)
{
    (void)state;
    return setup_with(EFFECT_AT_MOST_ONCE);
}

int setup_idempotent(void **state)
{
    (void)state;
    return setup_with(EFFECT_IDEMPOTENT);
}

int teardown(void **state)
{
    (void)state;
    fake.batch = NULL;
    engine = engine_free(engine);
    return 0;
}

/* --- loaded rows ------------------------------------------------------------------------------ */

void put_row(struct store_saga *saga)
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
void answer_load(bool a_done, const char *b_granted_by, bool mine)
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
