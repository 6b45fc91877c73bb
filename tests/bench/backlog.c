/* backlog: what an operator's questions cost while sagas pile up, how much memory they take, and
 * how soon sagad serves again after a kill; prints a table on stderr and one JSON line on stdout
 * (tests/bench/README.md says what each figure is).
 *
 *   backlog [--quick]
 *
 * Exit code 1 when a figure is out of its bound.
 */
#include "stage.h"
#include "table.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/wait.h"

#include <saga/v1/kafka.pb-c.h>
#include <saga/v1/operator.pb-c.h>
#include <saga/v1/saga.pb-c.h>
#include <saga/v1/worker.pb-c.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SAGAS = 1000000,
    SAGAS_QUICK = 20000,
    START_BATCH = 1000,
    LEASE_BATCH = 512, /* as many as one report may hold */
    ACCOUNTS = 1000,
    INPUT_BYTES = 100,
    CALLS = 20, /* of each question: the p99 of so few is their slowest */
    CLI_CALLS = 5,
    SETTLE_MS = 3000,
    PROGRESS_MS = 5000,
    CALL_LIMIT_MS = 60000,
    LEASE_WAIT_S = 20,
    RETRY_AFTER_S = 3600,
    IDLE_ROUNDS_MAX = 3,
};
#define HELD_HANDLER  "backlog.held"
#define LATER_HANDLER "backlog.later"

/* Why sagas wait, and how many of ten do. */
static const struct kind {
    const char *definition, *handler; /* NULL: the definition of the stage, without a worker */
    int64_t tenths;
} kinds[] = {
    { "backlog-held", HELD_HANDLER, 5 },
    { "bench", NULL, 4 },
    { "backlog-later", LATER_HANDLER, 1 },
};

struct backlog {
    struct stage stage;
    struct client *client;
    int64_t sagas, started;
    int64_t said_ms;  /* when progress was told last */
    char saga_id[48]; /* of a saga whose handler is held */
};

enum figure_id {
    WAITING,
    STARTED_PER_S,
    HOLD_MS,
    RELEASE_MS,
    LIST_MS,
    LIST_OLDEST_MS,
    LIST_LABEL_MS,
    LIST_FILTER_MS,
    WHERE_MS,
    STATUS_MS,
    HANDLERS_MS,
    TOLD_RATIO,
    CLI_MS,
    RSS_MIB,
    READY_S,
    FIRST_TASK_S,
    RESTARTED_RSS_MIB,
    FIGURE_COUNT
};

static const struct table_figure figures[FIGURE_COUNT] = {
    [WAITING] = { "waiting", "sagas that wait", 0, TABLE_TELLS, 0 },
    [STARTED_PER_S] = { "started_per_s", "starts/s of one client, batched", 0, TABLE_TELLS, 0 },
    [HOLD_MS] = { "hold_ms", "hold a handler, slowest call, ms", 1, TABLE_AT_MOST, 200 },
    [RELEASE_MS] = { "release_ms", "release it, slowest call, ms", 1, TABLE_TELLS, 0 },
    [LIST_MS] = { "list_ms", "list, slowest call, ms", 1, TABLE_AT_MOST, 200 },
    [LIST_OLDEST_MS] = { "list_oldest_ms", "list by state, the oldest first, ms", 1, TABLE_AT_MOST,
                         200 },
    [LIST_LABEL_MS] = { "list_label_ms", "list by label, ms", 1, TABLE_AT_MOST, 200 },
    [LIST_FILTER_MS] = { "list_filter_ms", "list by definition and time, ms", 1, TABLE_AT_MOST,
                         200 },
    [WHERE_MS] = { "where_ms", "where, its three calls, ms", 1, TABLE_AT_MOST, 200 },
    [STATUS_MS] = { "status_ms", "status, slowest call, ms", 1, TABLE_AT_MOST, 200 },
    [HANDLERS_MS] = { "handlers_ms", "handler list, slowest call, ms", 1, TABLE_AT_MOST, 200 },
    [TOLD_RATIO] = { "told_ratio", "told to wait for the held one, of those that do", 2,
                     TABLE_TELLS, 0 },
    [CLI_MS] = { "cli_ms", "sagactl, slowest verb with its own start, ms", 1, TABLE_TELLS, 0 },
    [RSS_MIB] = { "rss_mib", "sagad's memory, MiB", 0, TABLE_AT_MOST, 512 },
    [READY_S] = { "ready_s", "ready after kill -9, s", 2, TABLE_AT_MOST, 15 },
    [FIRST_TASK_S] = { "first_task_s", "from ready to the first task, s", 2, TABLE_AT_MOST, 1 },
    [RESTARTED_RSS_MIB] = { "restarted_rss_mib", "memory after the restart, MiB", 0, TABLE_AT_MOST,
                            512 },
};

static int64_t now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

static double seconds_since(const struct timespec *begin)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (double)(now.tv_sec - begin->tv_sec) + (double)(now.tv_nsec - begin->tv_nsec) / 1e9;
}

static struct timespec begin_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return now;
}

/* The answer; the caller frees it. */
static ProtobufCMessage *call(struct backlog *backlog, const char *method,
                              const ProtobufCMessage *request,
                              const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *reply = NULL;
    struct err err;
    stage_require(client_call(backlog->client, method, request, type, CALL_LIMIT_MS, &reply, &err),
                  &err, method);
    return reply;
}

static void call_only(struct backlog *backlog, const char *method, const ProtobufCMessage *request,
                      const ProtobufCMessageDescriptor *type)
{
    protobuf_c_message_free_unpacked(call(backlog, method, request, type), NULL);
}

static void progress(struct backlog *backlog, const char *what, int64_t done, int64_t all)
{
    char text[96];
    if (now_ms() - backlog->said_ms < PROGRESS_MS && done < all)
        return;
    backlog->said_ms = now_ms();
    (void)snprintf(text, sizeof text, "%s: %" PRId64 " of %" PRId64, what, done, all); /* fits */
    stage_say(text);
}

/* --- how they come to wait -------------------------------------------------------------------- */

static void start_batch(struct backlog *backlog, const struct kind *kind, size_t count)
{
    static Saga__V1__StartSagaRequest requests[START_BATCH], *pointers[START_BATCH];
    static Saga__V1__StartSagaRequest__LabelsEntry labels[START_BATCH],
        *label_pointers[START_BATCH];
    static char saga_ids[START_BATCH][sizeof backlog->saga_id], accounts[START_BATCH][24];
    static uint8_t input[INPUT_BYTES];
    Saga__V1__BatchStartSagasRequest batch = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    for (size_t i = 0; i < count; i++) {
        int64_t number = backlog->started + (int64_t)i;
        (void)snprintf(saga_ids[i], sizeof saga_ids[i], "S-%" PRId64, number); /* both fit */
        (void)snprintf(accounts[i], sizeof accounts[i], "A-%" PRId64, number % ACCOUNTS);
        saga__v1__start_saga_request__labels_entry__init(&labels[i]);
        labels[i].key = (char *)"account";
        labels[i].value = accounts[i];
        label_pointers[i] = &labels[i];
        saga__v1__start_saga_request__init(&requests[i]);
        requests[i].definition = (char *)kind->definition;
        requests[i].saga_id = saga_ids[i];
        requests[i].input = (ProtobufCBinaryData){ .data = input, .len = sizeof input };
        requests[i].n_labels = 1;
        requests[i].labels = &label_pointers[i];
        pointers[i] = &requests[i];
    }
    if (kind->handler && strcmp(kind->handler, HELD_HANDLER) == 0)
        memcpy(backlog->saga_id, saga_ids[count / 2], sizeof backlog->saga_id);
    batch.n_requests = count;
    batch.requests = pointers;
    Saga__V1__BatchStartSagasResponse *reply =
        (void *)call(backlog, "/saga.v1.SagaService/BatchStartSagas", &batch.base,
                     &saga__v1__batch_start_sagas_response__descriptor);
    if (reply->n_items != count)
        stage_give_up("BatchStartSagas", "not one answer for each item");
    for (size_t i = 0; i < count; i++)
        if (reply->items[i]->result_case != SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_SAGA)
            stage_give_up("BatchStartSagas", reply->items[i]->error
                                                 ? reply->items[i]->error->message
                                                 : "an item without an answer");
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    backlog->started += (int64_t)count;
}

static double start_all(struct backlog *backlog)
{
    struct timespec begin = begin_now();
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (kinds[i].handler)
            stage_define(backlog->client, kinds[i].definition, kinds[i].handler, 3);
        int64_t end = backlog->started + backlog->sagas * kinds[i].tenths / 10;
        while (backlog->started < end) {
            int64_t left = end - backlog->started;
            start_batch(backlog, &kinds[i], (size_t)(left < START_BATCH ? left : START_BATCH));
            progress(backlog, "started", backlog->started, backlog->sagas);
        }
    }
    return (double)backlog->started / seconds_since(&begin);
}

/* The caller frees it. It asks as one process does that holds nothing. */
static Saga__V1__LeaseTasksResponse *lease(struct backlog *backlog, const char *instance,
                                           const char *handler, uint32_t count)
{
    Saga__V1__LeaseTasksRequest request = SAGA__V1__LEASE_TASKS_REQUEST__INIT;
    Saga__V1__Hello hello = SAGA__V1__HELLO__INIT;
    Saga__V1__Subscription subscription = SAGA__V1__SUBSCRIPTION__INIT, *one = &subscription;
    Google__Protobuf__Duration wait = GOOGLE__PROTOBUF__DURATION__INIT;
    subscription.handler = (char *)handler;
    subscription.max_in_flight = count;
    hello.worker_id = (char *)"backlog";
    hello.instance = (char *)instance;
    hello.n_handlers = 1;
    hello.handlers = &one;
    wait.seconds = LEASE_WAIT_S;
    request.hello = &hello;
    request.max_tasks = count;
    request.wait = &wait;
    return (void *)call(backlog, "/saga.v1.WorkerService/LeaseTasks", &request.base,
                        &saga__v1__lease_tasks_response__descriptor);
}

/* Each of them is to be tried again in an hour. */
static void report_retry(struct backlog *backlog, const char *instance,
                         const Saga__V1__LeaseTasksResponse *leased)
{
    static Saga__V1__TaskReport reports[LEASE_BATCH], *pointers[LEASE_BATCH];
    Google__Protobuf__Duration later = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__ReportOutcomesRequest request = SAGA__V1__REPORT_OUTCOMES_REQUEST__INIT;
    later.seconds = RETRY_AFTER_S;
    for (size_t i = 0; i < leased->n_tasks; i++) {
        saga__v1__task_report__init(&reports[i]);
        reports[i].saga_uid = leased->tasks[i]->saga_uid;
        reports[i].fence = leased->tasks[i]->fence;
        reports[i].outcome = SAGA__V1__OUTCOME__OUTCOME_RETRY;
        reports[i].retry_after = &later;
        pointers[i] = &reports[i];
    }
    request.worker_id = (char *)"backlog";
    request.instance = (char *)instance;
    request.n_reports = leased->n_tasks;
    request.reports = pointers;
    Saga__V1__ReportOutcomesResponse *reply =
        (void *)call(backlog, "/saga.v1.WorkerService/ReportOutcomes", &request.base,
                     &saga__v1__report_outcomes_response__descriptor);
    for (size_t i = 0; i < reply->n_acks; i++)
        if (reply->acks[i]->result != SAGA__V1__ACK__RESULT__RESULT_ACCEPTED)
            stage_give_up("ReportOutcomes", "a report was not accepted");
    protobuf_c_message_free_unpacked(&reply->base, NULL);
}

static void retry_later(struct backlog *backlog)
{
    static const char instance[] = "backlog-later-1";
    int64_t all = backlog->sagas * kinds[2].tenths / 10, done = 0;
    for (int idle = 0; done < all;) {
        Saga__V1__LeaseTasksResponse *leased = lease(backlog, instance, LATER_HANDLER, LEASE_BATCH);
        size_t count = leased->n_tasks;
        if (count > 0)
            report_retry(backlog, instance, leased);
        protobuf_c_message_free_unpacked(&leased->base, NULL);
        idle = count > 0 ? 0 : idle + 1;
        if (idle == IDLE_ROUNDS_MAX)
            stage_give_up(LATER_HANDLER, "no more tasks come, and not all have been seen");
        done += (int64_t)count;
        progress(backlog, "to be tried again in an hour", done, all);
    }
    Saga__V1__ReleaseTasksRequest last = SAGA__V1__RELEASE_TASKS_REQUEST__INIT;
    last.worker_id = (char *)"backlog";
    last.instance = (char *)instance;
    last.drain = true;
    call_only(backlog, "/saga.v1.WorkerService/ReleaseTasks", &last.base,
              &saga__v1__release_tasks_response__descriptor);
}

/* --- what an operator asks ---------------------------------------------------------------------
 */

static void hold(struct backlog *backlog)
{
    Saga__V1__HoldHandlerRequest request = SAGA__V1__HOLD_HANDLER_REQUEST__INIT;
    request.handler = (char *)HELD_HANDLER;
    request.reason = (char *)"the benchmark";
    call_only(backlog, "/saga.v1.OperatorService/HoldHandler", &request.base,
              &saga__v1__handler__descriptor);
}

static void release(struct backlog *backlog)
{
    Saga__V1__ReleaseHandlerRequest request = SAGA__V1__RELEASE_HANDLER_REQUEST__INIT;
    request.handler = (char *)HELD_HANDLER;
    call_only(backlog, "/saga.v1.OperatorService/ReleaseHandler", &request.base,
              &saga__v1__handler__descriptor);
}

/* Sagas must be found. The caller frees them. */
static Saga__V1__ListSagasResponse *found(struct backlog *backlog,
                                          const Saga__V1__ListSagasRequest *request)
{
    Saga__V1__ListSagasResponse *reply =
        (void *)call(backlog, "/saga.v1.SagaService/ListSagas", &request->base,
                     &saga__v1__list_sagas_response__descriptor);
    if (reply->n_sagas == 0)
        stage_give_up("ListSagas", "finds nothing");
    return reply;
}

static void list_filtered(struct backlog *backlog, const char *filter, bool oldest_first)
{
    Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    request.filter = (char *)filter;
    request.oldest_first = oldest_first;
    protobuf_c_message_free_unpacked(&found(backlog, &request)->base, NULL);
}

static void list(struct backlog *backlog)
{
    list_filtered(backlog, "", false);
}

static void list_oldest(struct backlog *backlog)
{
    list_filtered(backlog, "state = RUNNING", true);
}

static void list_label(struct backlog *backlog)
{
    list_filtered(backlog, "labels.account = \"A-77\"", false);
}

static void list_filter(struct backlog *backlog)
{
    list_filtered(backlog, "definition = backlog-held AND start_time >= \"2020-01-01T00:00:00Z\"",
                  false);
}

/* As `sagactl where` asks: the sagas of the key, all of one, and what else is known of the key. */
static void where(struct backlog *backlog)
{
    Saga__V1__ListSagasRequest of_key = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    Saga__V1__GetSagaRequest get = SAGA__V1__GET_SAGA_REQUEST__INIT;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__LookUpKeyRequest known = SAGA__V1__LOOK_UP_KEY_REQUEST__INIT;
    of_key.namespace_ = (char *)"-";
    of_key.saga_id = backlog->saga_id;
    known.namespace_ = (char *)"-";
    known.key = backlog->saga_id;
    Saga__V1__ListSagasResponse *sagas = found(backlog, &of_key);
    ref.uid = sagas->sagas[0]->uid;
    get.saga = &ref;
    get.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    call_only(backlog, "/saga.v1.SagaService/GetSaga", &get.base, &saga__v1__saga__descriptor);
    protobuf_c_message_free_unpacked(&sagas->base, NULL);
    call_only(backlog, "/saga.v1.KafkaService/LookUpKey", &known.base,
              &saga__v1__look_up_key_response__descriptor);
}

static void status(struct backlog *backlog)
{
    Saga__V1__GetStatusRequest request = SAGA__V1__GET_STATUS_REQUEST__INIT;
    request.with_database = true;
    Saga__V1__GetStatusResponse *reply =
        (void *)call(backlog, "/saga.v1.OperatorService/GetStatus", &request.base,
                     &saga__v1__get_status_response__descriptor);
    if (reply->database_problem[0])
        stage_give_up("GetStatus", reply->database_problem);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
}

static void handlers(struct backlog *backlog)
{
    static const Saga__V1__ListHandlersRequest request = SAGA__V1__LIST_HANDLERS_REQUEST__INIT;
    call_only(backlog, "/saga.v1.OperatorService/ListHandlers", &request.base,
              &saga__v1__list_handlers_response__descriptor);
}

/* What ListHandlers says of how many wait for the held one (where there are many that no server has
 * in memory, an estimate), over how many do. */
static double told_ratio(struct backlog *backlog)
{
    Saga__V1__ListHandlersRequest request = SAGA__V1__LIST_HANDLERS_REQUEST__INIT;
    request.handler = (char *)HELD_HANDLER;
    Saga__V1__ListHandlersResponse *reply =
        (void *)call(backlog, "/saga.v1.OperatorService/ListHandlers", &request.base,
                     &saga__v1__list_handlers_response__descriptor);
    if (reply->n_handlers != 1)
        stage_give_up("ListHandlers", "does not know the held one");
    int64_t told = reply->handlers[0]->waiting + reply->handlers[0]->let_go;
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return (double)told * 10 / (double)(backlog->sagas * kinds[0].tenths);
}

static double slowest_ms(struct backlog *backlog, void (*ask)(struct backlog *backlog),
                         void (*undo)(struct backlog *backlog), double *ret_undo_ms)
{
    double slowest = 0;
    for (int i = 0; i < CALLS; i++) {
        struct timespec begin = begin_now();
        if (i > 0 && undo) {
            undo(backlog);
            double took_ms = seconds_since(&begin) * 1000;
            *ret_undo_ms = took_ms > *ret_undo_ms ? took_ms : *ret_undo_ms;
            begin = begin_now();
        }
        ask(backlog);
        double took_ms = seconds_since(&begin) * 1000;
        slowest = took_ms > slowest ? took_ms : slowest;
    }
    return slowest;
}

/* The verbs as people run them; the slowest. */
static double slowest_cli_ms(struct backlog *backlog)
{
    const char *const verbs[][6] = {
        { SAGACTL_BINARY, "--address", backlog->stage.target, "list", NULL },
        { SAGACTL_BINARY, "--address", backlog->stage.target, "where", backlog->saga_id, NULL },
        { SAGACTL_BINARY, "--address", backlog->stage.target, "status", NULL },
        { SAGACTL_BINARY, "--address", backlog->stage.target, "handler", "list", NULL },
    };
    double slowest = 0;
    for (size_t i = 0; i < CLI_CALLS * ARRAY_LEN(verbs); i++) {
        struct test_process_options options = { .argv = verbs[i % ARRAY_LEN(verbs)] };
        struct err err;
        struct timespec begin = begin_now();
        stage_require(test_process_must_succeed(&options, CALL_LIMIT_MS, &err), &err, "sagactl");
        double took_ms = seconds_since(&begin) * 1000;
        slowest = took_ms > slowest ? took_ms : slowest;
    }
    return slowest;
}

static void ask_all(struct backlog *backlog, double *values)
{
    static const struct {
        enum figure_id id;
        void (*ask)(struct backlog *backlog);
    } questions[] = {
        { LIST_MS, list },
        { LIST_OLDEST_MS, list_oldest },
        { LIST_LABEL_MS, list_label },
        { LIST_FILTER_MS, list_filter },
        { WHERE_MS, where },
        { STATUS_MS, status },
        { HANDLERS_MS, handlers },
    };
    values[HOLD_MS] = slowest_ms(backlog, hold, release, &values[RELEASE_MS]);
    for (size_t i = 0; i < ARRAY_LEN(questions); i++)
        values[questions[i].id] = slowest_ms(backlog, questions[i].ask, NULL, NULL);
    values[TOLD_RATIO] = told_ratio(backlog);
    values[CLI_MS] = slowest_cli_ms(backlog);
}

/* --- the kill -----------------------------------------------------------------------------------
 */

/* Ready: it answers a write. Then a worker comes for those that had none. */
static void restart(struct backlog *backlog, double *values)
{
    static const char *const plain[] = { NULL };
    struct err err;
    test_process_kill(backlog->stage.sagad);
    backlog->stage.sagad = test_process_free(backlog->stage.sagad);
    backlog->client = client_free(backlog->client);
    struct timespec begin = begin_now();
    stage_sagad_start(&backlog->stage, plain);
    values[READY_S] = seconds_since(&begin);
    stage_require(client_new(backlog->stage.target, &backlog->client, &err), &err, "client");
    begin = begin_now();
    Saga__V1__LeaseTasksResponse *leased = lease(backlog, "backlog-first-1", "bench.one", 1);
    values[FIRST_TASK_S] = seconds_since(&begin);
    if (leased->n_tasks == 0)
        stage_give_up("after the restart", "no task comes");
    protobuf_c_message_free_unpacked(&leased->base, NULL);
    wait_ms(SETTLE_MS);
    values[RESTARTED_RSS_MIB] = stage_process_rss_mib(backlog->stage.sagad);
}

int main(int argc, char **argv)
{
    static const char *const plain[] = { NULL };
    static struct backlog backlog;
    struct table_samples samples[FIGURE_COUNT] = { 0 };
    double values[FIGURE_COUNT] = { 0 };
    struct err err;
    stage_open(&backlog.stage, "backlog", argc, argv);
    backlog.sagas = backlog.stage.quick ? SAGAS_QUICK : SAGAS;
    stage_sagad_start(&backlog.stage, plain);
    stage_require(client_new(backlog.stage.target, &backlog.client, &err), &err, "client");
    hold(&backlog);
    values[STARTED_PER_S] = start_all(&backlog);
    retry_later(&backlog);
    wait_ms(SETTLE_MS);
    values[WAITING] = (double)stage_count(&backlog.stage, "sagad",
                                          "SELECT count(*) FROM sagad.saga"
                                          " WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED')");
    stage_say("the questions");
    ask_all(&backlog, values);
    values[RSS_MIB] = stage_process_rss_mib(backlog.stage.sagad);
    stage_say("the kill");
    restart(&backlog, values);
    backlog.client = client_free(backlog.client);
    stage_close(&backlog.stage);

    bool is_short = values[WAITING] < (double)backlog.sagas;
    if (is_short)
        stage_say("not all sagas wait");
    for (int id = 0; id < FIGURE_COUNT; id++) {
        table_add(&samples[id], values[id]);
        is_short = is_short || table_is_short(&figures[id], &samples[id]);
    }
    table_print(figures, samples, FIGURE_COUNT);
    return is_short;
}
