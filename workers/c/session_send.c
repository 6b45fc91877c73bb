/* What the session says: one message at a time, the most urgent first. */
#include "session.h"

#include <string.h>

static int pack(Saga__V1__WorkerMessage__CommandCase command, Saga__V1__WorkerMessage *message,
                struct bytes *ret_message, struct err *err)
{
    message->command_case = command;
    size_t size = saga__v1__worker_message__get_packed_size(message);
    uint8_t *data = mem_calloc(1, size ? size : 1);
    if (!data)
        return err_set(err, ERR_NOMEM, "message to the server");
    (void)saga__v1__worker_message__pack(message, data); /* its size is known */
    *ret_message = (struct bytes){ .data = data, .size = size };
    return 0;
}

/* A growing list of messages, as protobuf-c wants it: an array of pointers into an array. */
struct leases {
    Saga__V1__HeldLease *items, **pointers;
    size_t count;
};

static void leases_done(struct leases *leases)
{
    mem_free(leases->items);
    mem_free(leases->pointers);
}

static int leases_init(struct leases *leases, size_t count_max, struct err *err)
{
    memset(leases, 0, sizeof *leases);
    leases->items = mem_calloc(count_max + 1, sizeof *leases->items);
    leases->pointers = mem_calloc(count_max + 1, sizeof(void *));
    if (!leases->items || !leases->pointers)
        return err_set(err, ERR_NOMEM, "leases");
    return 0;
}

static void leases_add(struct leases *leases, struct saga_task *task)
{
    Saga__V1__HeldLease *item = &leases->items[leases->count];
    saga__v1__held_lease__init(item);
    item->saga_uid = (ProtobufCBinaryData){ .len = TASK_UID_SIZE, .data = task->uid };
    item->fence = task->fence;
    leases->pointers[leases->count++] = item;
}

/* Every task of this state, over all streams. */
static void leases_add_all(struct leases *leases, const struct pool *pool, enum task_state state)
{
    struct saga_task *task;
    for (unsigned i = 0; i < pool->session_count; i++)
        TAILQ_FOREACH(task, &pool->sessions[i]->lists[state], place)
        {
            leases_add(leases, task);
        }
}

/* What waits on other streams is held, too; what is too much for one Hello is given back there. */
static void leases_add_queued(struct leases *leases, const struct pool *pool)
{
    for (unsigned i = 0; i < pool->session_count; i++) {
        struct session *session = pool->sessions[i];
        struct saga_task *next = TAILQ_FIRST(&session->lists[TASK_QUEUED]), *task;
        while ((task = next) != NULL) {
            next = TAILQ_NEXT(task, place);
            if (leases->count < SESSION_LEASES) {
                leases_add(leases, task);
                continue;
            }
            session->nudged = true;
            pool_move(task, session, TASK_RELEASED);
        }
    }
}

static char sdk_name[] = "libsagaworker/" SAGAD_VERSION;

static int next_hello(struct session *session, struct bytes *ret_message, struct err *err)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    struct pool *pool = session->pool;
    size_t handler_count = pool->handler_count;
    CLEANUP(leases_done) struct leases held;
    int rc = leases_init(&held, SESSION_LEASES, err);
    CLEANUP(mem_free_p)
    Saga__V1__Subscription *items = mem_calloc(handler_count + 1, sizeof *items);
    CLEANUP(mem_free_p)
    Saga__V1__Subscription **pointers = mem_calloc(handler_count + 1, sizeof(void *));
    if (rc != 0 || !items || !pointers)
        return err_set(err, ERR_NOMEM, "hello");
    for (size_t i = 0; i < handler_count; i++) {
        saga__v1__subscription__init(&items[i]);
        items[i].handler = pool->handlers[i].name;
        items[i].max_in_flight = (uint32_t)pool->handlers[i].max_in_flight;
        pointers[i] = &items[i];
    }
    leases_add_all(&held, pool, TASK_RUNNING); /* never more than fit: pool_take */
    leases_add_all(&held, pool, TASK_FINISHED);
    leases_add_all(&held, pool, TASK_REPORTED);
    leases_add_queued(&held, pool);
    hello.worker_id = pool->worker_id;
    hello.instance = pool->instance;
    hello.only_stream = pool->session_count == 1;
    hello.sdk = sdk_name;
    hello.n_handlers = handler_count;
    hello.handlers = pointers;
    hello.n_held = held.count;
    hello.held = held.pointers;
    message.hello = &hello;
    return pack(SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO, &message, ret_message, err);
}

struct report_item {
    Saga__V1__TaskReport report;
    Google__Protobuf__Duration retry_after;
    struct saga_task *task;
};

static char no_code[] = "UNSPECIFIED", no_outcome[] = "NO_OUTCOME", empty[] = "";

static void report_fill(struct report_item *item, struct saga_task *task)
{
    const struct task_outcome *outcome = &task->outcome;
    bool success = outcome->kind == SAGA__V1__OUTCOME__OUTCOME_DONE ||
                   outcome->kind == SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE ||
                   outcome->kind == SAGA__V1__OUTCOME__OUTCOME_NOT_DONE;
    saga__v1__task_report__init(&item->report);
    item->task = task;
    item->report.saga_uid = (ProtobufCBinaryData){ .len = TASK_UID_SIZE, .data = task->uid };
    item->report.fence = task->fence;
    item->report.outcome = outcome->kind;
    item->report.output =
        (ProtobufCBinaryData){ .len = outcome->output.size, .data = outcome->output.data };
    item->report.ours = outcome->ours;
    if (!success) {
        char *unset = outcome->kind == SAGA__V1__OUTCOME__OUTCOME_UNKNOWN ? no_outcome : no_code;
        item->report.error_code = outcome->code ? outcome->code : unset;
        item->report.error_message = outcome->message ? outcome->message : empty;
    }
    if (outcome->kind == SAGA__V1__OUTCOME__OUTCOME_RETRY && outcome->retry_after_ms > 0) {
        google__protobuf__duration__init(&item->retry_after);
        item->retry_after.seconds = outcome->retry_after_ms / 1000;
        item->retry_after.nanos = (int32_t)(outcome->retry_after_ms % 1000 * 1000000);
        item->report.retry_after = &item->retry_after;
    }
}

static int next_reports(struct session *session, struct bytes *ret_message, struct err *err)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Report report = SAGA__V1__REPORT__INIT;
    size_t count_max = session->counts[TASK_FINISHED];
    if (count_max > SESSION_REPORTS)
        count_max = SESSION_REPORTS;
    CLEANUP(mem_free_p) struct report_item *items = mem_calloc(count_max, sizeof *items);
    CLEANUP(mem_free_p)
    Saga__V1__TaskReport **pointers = mem_calloc(count_max, sizeof(void *));
    if (!items || !pointers)
        return err_set(err, ERR_NOMEM, "reports");
    size_t count = 0, bytes = 0;
    for (struct saga_task *task = TAILQ_FIRST(&session->lists[TASK_FINISHED]); task;
         task = TAILQ_NEXT(task, place)) {
        bytes += task->outcome.output.size;
        if (count == count_max || (count > 0 && bytes > SESSION_REPORT_BYTES))
            break;
        report_fill(&items[count], task);
        pointers[count] = &items[count].report;
        count++;
    }
    report.n_reports = count;
    report.reports = pointers;
    message.report = &report;
    if (pack(SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT, &message, ret_message, err) != 0)
        return err->code;
    for (size_t i = 0; i < count; i++)
        pool_move(items[i].task, session, TASK_REPORTED);
    return 0;
}

static int next_release(struct session *session, struct bytes *ret_message, struct err *err)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Release release = SAGA__V1__RELEASE__INIT;
    size_t count_max = session->counts[TASK_RELEASED];
    if (count_max > SESSION_LEASES)
        count_max = SESSION_LEASES;
    CLEANUP(leases_done) struct leases leases;
    if (leases_init(&leases, count_max, err) != 0)
        return err->code;
    for (struct saga_task *task = TAILQ_FIRST(&session->lists[TASK_RELEASED]); task;
         task = TAILQ_NEXT(task, place)) {
        if (leases.count == count_max)
            break;
        leases_add(&leases, task);
    }
    release.n_leases = leases.count;
    release.leases = leases.pointers;
    message.release = &release;
    if (pack(SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE, &message, ret_message, err) != 0)
        return err->code;
    for (size_t i = 0; i < leases.count; i++)
        pool_forget(TAILQ_FIRST(&session->lists[TASK_RELEASED]));
    return 0;
}

/* Asks for the leases whose third is over; notes when the next one is. */
static void collect_due(struct session *session, enum task_state state, int64_t now_ms,
                        struct leases *due)
{
    for (struct saga_task *task = TAILQ_FIRST(&session->lists[state]); task;
         task = TAILQ_NEXT(task, place)) {
        struct task_lease *lease = &task->lease;
        if (lease->lost || now_ms >= lease->attempt_until_ms)
            continue;
        if (lease->extend_at_ms <= now_ms && due->count < SESSION_LEASES) {
            leases_add(due, task);
            int64_t third = lease->lease_ms / 3;
            lease->extend_at_ms =
                now_ms + (third < SESSION_EXTEND_MIN_MS ? SESSION_EXTEND_MIN_MS : third);
            if (lease->extend_sent_ms == 0)
                lease->extend_sent_ms = now_ms;
        }
        if (lease->extend_at_ms < session->extend_check_ms)
            session->extend_check_ms = lease->extend_at_ms;
    }
}

static int next_extend(struct session *session, int64_t now_ms, struct bytes *ret_message,
                       struct err *err)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Extend extend = SAGA__V1__EXTEND__INIT;
    size_t count_max = session->counts[TASK_QUEUED] + session->counts[TASK_RUNNING];
    CLEANUP(leases_done) struct leases due;
    if (leases_init(&due, count_max, err) != 0)
        return err->code;
    session->extend_check_ms = INT64_MAX;
    collect_due(session, TASK_RUNNING, now_ms, &due);
    collect_due(session, TASK_QUEUED, now_ms, &due);
    if (due.count == 0)
        return 0;
    extend.n_leases = due.count;
    extend.leases = due.pointers;
    message.extend = &extend;
    return pack(SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND, &message, ret_message, err);
}

/* A quarter of the slots is said at once, and so is anything while the server has less than that
 * left: each task of a busy worker would otherwise cost a message of its own. */
static bool credit_is_worth_a_message(const struct session_credit *credit, int max_in_flight)
{
    uint64_t quarter = (uint64_t)max_in_flight / 4, more = credit->offered - credit->granted;
    uint64_t left = credit->granted - credit->received;
    return more > 0 && (more >= quarter || left < quarter);
}

static int next_credit(struct session *session, int64_t now_ms, bool repeat,
                       struct bytes *ret_message, struct err *err)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Credit credit = SAGA__V1__CREDIT__INIT;
    struct pool *pool = session->pool;
    size_t count = pool->handler_count;
    bool paused = pool->draining || session->server_drains ||
                  session->counts[TASK_REPORTED] >= SESSION_UNACKED_MAX;
    CLEANUP(mem_free_p) Saga__V1__Credit__PerHandler *items = mem_calloc(count, sizeof *items);
    CLEANUP(mem_free_p)
    Saga__V1__Credit__PerHandler **pointers = mem_calloc(count, sizeof(void *));
    if (!items || !pointers)
        return err_set(err, ERR_NOMEM, "credit");
    for (size_t i = 0; i < count; i++) {
        struct pool_handler *handler = &pool->handlers[i];
        struct session_credit *said = &session->credits[i];
        if (!paused)
            said->offered += pool_offer(pool, session, handler, now_ms);
        bool worth = !paused && credit_is_worth_a_message(said, handler->max_in_flight);
        if (!repeat && !worth)
            continue;
        if (!paused)
            said->granted = said->offered;
        Saga__V1__Credit__PerHandler *item = &items[credit.n_handlers];
        saga__v1__credit__per_handler__init(item);
        item->handler = handler->name;
        item->total = said->granted;
        pointers[credit.n_handlers++] = item;
    }
    session->credit_due = session->counts[TASK_REPORTED] >= SESSION_UNACKED_MAX;
    if (credit.n_handlers == 0)
        return 0;
    credit.handlers = pointers;
    message.credit = &credit;
    return pack(SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT, &message, ret_message, err);
}

static int next_drain(struct session *session, int64_t now_ms, struct bytes *ret_message,
                      struct err *err)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Drain drain = SAGA__V1__DRAIN__INIT;
    message.drain = &drain;
    session->drain_sent = true;
    session->drain_sent_ms = now_ms;
    return pack(SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN, &message, ret_message, err);
}

/* What came beyond the slots and has waited for long enough is given back; offers are looked at. */
static void share(struct session *session, int64_t now_ms)
{
    struct saga_task *next = TAILQ_FIRST(&session->lists[TASK_QUEUED]), *task;
    while ((task = next) != NULL && now_ms - task->came_ms >= POOL_SURPLUS_MS) {
        next = TAILQ_NEXT(task, place);
        if (task->handler->in_use > (uint64_t)task->handler->max_in_flight)
            pool_move(task, session, TASK_RELEASED);
    }
    session->credit_due = true;
    session->share_check_ms = now_ms + POOL_SPARE_MS;
}

static int next(struct session *session, int64_t now_ms, struct bytes *ret_message, struct err *err)
{
    if (now_ms >= session->share_check_ms && session->pool->session_count > 1)
        share(session, now_ms);
    if (!session->hello_sent) {
        session->hello_sent = true;
        return next_hello(session, ret_message, err);
    }
    if (session->pool->draining && !session->drain_sent)
        return next_drain(session, now_ms, ret_message, err);
    if (now_ms >= session->extend_check_ms) {
        int rc = next_extend(session, now_ms, ret_message, err);
        if (rc != 0 || ret_message->size > 0)
            return rc;
    }
    if (session->counts[TASK_FINISHED] > 0)
        return next_reports(session, ret_message, err);
    if (session->counts[TASK_RELEASED] > 0)
        return next_release(session, ret_message, err);
    bool repeat = now_ms - session->sent_ms >= SESSION_IDLE_MS;
    if (session->credit_due || repeat)
        return next_credit(session, now_ms, repeat, ret_message, err);
    return 0;
}

int session_next(struct session *session, int64_t now_ms, struct bytes *ret_message,
                 struct err *err)
{
    struct bytes message = { .data = NULL, .size = 0 };
    if (session->phase != SESSION_OFFLINE && next(session, now_ms, &message, err) != 0)
        return err->code;
    if (message.size > 0)
        session->sent_ms = now_ms;
    *ret_message = message;
    return 0;
}
