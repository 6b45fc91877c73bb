/* OperatorService.RunBatch: its request, its stream. */
#include "rpc/batch.h"
#include "rpc/find.h"
#include "rpc/verbs.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { RATE_MAX = 10000 };

/* --- the request ------------------------------------------------------------------------------ */

static int read_verb(const Saga__V1__RunBatchRequest *request, size_t payload_bytes_max,
                     struct verb_request *ret, struct err *err)
{
    switch (request->verb_case) {
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_RETRY:
        return verb_read_retry(request->retry, ret, err);
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_CANCEL:
        return verb_read_cancel(request->cancel, ret, err);
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_SUSPEND:
        return verb_read_suspend(request->suspend, ret, err);
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_RESUME:
        return verb_read_resume(request->resume, ret, err);
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_RESOLVE:
        return verb_read_resolve(request->resolve, payload_bytes_max, ret, err);
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_SKIP:
        return verb_read_skip(request->skip, ret, err);
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_ABANDON:
        return verb_read_abandon(request->abandon, ret, err);
    case SAGA__V1__RUN_BATCH_REQUEST__VERB_SET_OPTIONS:
        return verb_read_options(request->set_options, ret, err);
    default:
        return err_field(err, "verb", "verb: is required");
    }
}

static bool names_a_saga(const Saga__V1__RunBatchRequest *request)
{
    const Saga__V1__SagaRef *const refs[] = {
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_RETRY ? request->retry->saga : NULL,
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_CANCEL ? request->cancel->saga
                                                                       : NULL,
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_SUSPEND ? request->suspend->saga
                                                                        : NULL,
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_RESUME ? request->resume->saga
                                                                       : NULL,
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_RESOLVE ? request->resolve->saga
                                                                        : NULL,
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_SKIP ? request->skip->saga : NULL,
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_ABANDON ? request->abandon->saga
                                                                        : NULL,
        request->verb_case == SAGA__V1__RUN_BATCH_REQUEST__VERB_SET_OPTIONS
            ? request->set_options->saga
            : NULL,
    };
    for (size_t i = 0; i < ARRAY_LEN(refs); i++)
        if (refs[i])
            return true;
    return false;
}

/* The words, and behind them which batch it was. */
static int make_reason(struct batch_run *run, struct err *err)
{
    struct rng rng;
    rng_seed_os(&rng);
    struct uuid id = uuid_v7(clock_wall_ms(&clock_system), &rng, (uint8_t)rng_next(&rng));
    uuid_format(&id, run->id);
    const char *words = run->verb.reason ? run->verb.reason : "";
    int size = snprintf(run->reason, sizeof run->reason, "%s%s(batch %s)", words, *words ? " " : "",
                        run->id);
    if (size < 0 || (size_t)size >= sizeof run->reason)
        return err_field(err, "verb",
                         "verb: what is said about it has %zu bytes, in a batch the"
                         " limit is %d",
                         strlen(words), LIMIT_REASON_BYTES - UUID_TEXT_SIZE - 8);
    return 0;
}

static int read_request(struct batch_run *run, struct err *err)
{
    const Saga__V1__RunBatchRequest *request = (void *)run->call->request;
    struct saga_filter *filter = &run->list.filter;
    int rc = read_verb(request, run->call->server->payload_bytes_max, &run->verb, err);
    if (!rc && names_a_saga(request))
        rc = err_field(err, "verb", "verb: must not name a saga: the filter says which");
    if (!rc && run->verb.fence)
        rc = err_field(err, "verb", "verb: a fence is one saga's");
    if (!rc && !*request->filter && !*request->definition)
        rc = err_field(err, "filter", "filter: this or `definition` is required");
    if (!rc)
        rc = find_read_filter(request->filter, request->namespace_, request->definition,
                              FILTER_SAGAS, &run->call->arena, filter, err);
    if (!rc && !(request->rate >= 0 && request->rate <= RATE_MAX))
        rc = err_field(err, "rate", "rate: must be 0 to %d a second", RATE_MAX);
    if (!rc && (request->stop_if_failing_percent < 0 || request->stop_if_failing_percent > 100))
        rc = err_field(err, "stop_if_failing_percent", "stop_if_failing_percent: must be 0 to 100");
    if (!rc)
        rc = make_reason(run, err);
    if (rc)
        return rc;
    run->validate_only = request->validate_only;
    run->rate = request->rate;
    run->stop_percent = request->stop_if_failing_percent;
    run->list.oldest_first = true;
    int64_t now_us = clock_wall_ms(&clock_system) * 1000; /* what starts later is not in it */
    if (!filter->started_us.has_to || filter->started_us.to > now_us)
        filter->started_us.to = now_us;
    filter->started_us.has_to = true;
    return 0;
}

static int too_many(struct err *err)
{
    (void)err_reason(err, ERR_LIMIT, "TOO_MANY_BATCHES", "more than %d batches run here",
                     RPC_BATCHES_MAX);
    err->retryable = true;
    return (int)err->code;
}

/* The thread has the call from here on. */
static int start_thread(struct batch_run *run, struct err *err)
{
    struct rpc_server *server = run->call->server;
    pthread_attr_t detached;
    pthread_t thread;
    if (!rpc_server_admit(&server->batches, NULL, RPC_BATCHES_MAX))
        return too_many(err);
    call_ref(run->call);
    atomic_fetch_add(&server->batch_threads, 1);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &detached, batch_thread, run);
    pthread_attr_destroy(&detached);
    if (!failed)
        return 0;
    atomic_fetch_sub(&server->batches, 1);
    atomic_fetch_sub(&server->batch_threads, 1);
    call_unref(run->call); /* the pump has it, too */
    return err_set(err, ERR_UNAVAILABLE, "batch: no thread could be started");
}

static void on_request(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, read_tag);
    struct batch_run *run = call->batch;
    struct err err;
    if (!run->is_listed) { /* closed before: nobody works on this call any more */
        call_batch_done(call);
        return;
    }
    int rc = err_set(&err, ERR_INVALID, "the request message is missing");
    if (call_read_result(call, ok) == CALL_READ_MESSAGE)
        rc = call_unpack(call, &saga__v1__run_batch_request__descriptor, &call->arena,
                         &call->request, &err);
    if (!rc)
        rc = read_request(run, &err);
    if (!rc) {
        pthread_mutex_lock(&call->server->lock);
        run->has_asked = true;
        pthread_mutex_unlock(&call->server->lock);
        run->next_ms = run->told_ms = rpc_now_ms();
        rc = start_thread(run, &err);
    }
    if (rc)
        sender_end(&run->sender, &err);
    call_batch_done(call);
}

/* --- the stream ------------------------------------------------------------------------------- */

static void make_over(struct batch_run *run)
{
    pthread_mutex_lock(&run->lock);
    run->is_over = true;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void on_close(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, close_tag);
    struct batch_run *run = call->batch;
    struct rpc_server *server = call->server;
    (void)ok; /* always true */
    sender_close(&run->sender);
    pthread_mutex_lock(&server->lock);
    DL_DELETE(server->batch_runs, run);
    run->is_listed = false;
    pthread_mutex_unlock(&server->lock);
    make_over(run);
    atomic_fetch_sub(&server->batch_streams, 1);
    call_release_grpc(call);
    call_batch_done(call);
    call_unref(call);
}

static void nothing_to_do(struct sender *sender)
{
    (void)sender; /* there is room again: the thread looks by itself */
}

void run_batch_free(struct batch_run *run)
{
    sender_done(&run->sender);
    batch_items_drop(run);
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->changed);
    mem_free(run);
}

void run_batch_begin(struct call *call)
{
    struct rpc_server *server = call->server;
    pthread_condattr_t monotonic;
    struct err err;
    if (!rpc_server_admit(&server->batch_streams, NULL, RPC_BATCH_STREAMS_MAX)) {
        (void)too_many(&err);
        call_fail(call, &err);
        return;
    }
    struct batch_run *run = mem_calloc(1, sizeof *run);
    if (!run) {
        atomic_fetch_sub(&server->batch_streams, 1);
        call_fail_memory(call);
        return;
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&run->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&run->lock, NULL);
    run->call = call;
    run->begun_ms = rpc_now_ms();
    sender_init(&run->sender, call, nothing_to_do);
    call->batch = run;
    call->close_tag.fn = on_close;
    call->read_tag.fn = on_request;
    pthread_mutex_lock(&server->lock);
    DL_APPEND(server->batch_runs, run);
    run->is_listed = true;
    pthread_mutex_unlock(&server->lock);
    if (!call_read(call)) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        sender_end(&run->sender, &err);
    }
}

void run_batch_tick(struct rpc_server *server, int64_t now_ms)
{
    struct batch_run *run;
    pthread_mutex_lock(&server->lock);
    DL_FOREACH(server->batch_runs, run)
    {
        int64_t idle_ms, busy_ms;
        sender_times(&run->sender, now_ms, &idle_ms, &busy_ms);
        if (busy_ms > RPC_PEER_MS_MAX ||
            (!run->has_asked && now_ms - run->begun_ms > RPC_PEER_MS_MAX))
            call_cancel(run->call, GRPC_STATUS_DEADLINE_EXCEEDED,
                        "the client did not say which batch, or does not read");
    }
    pthread_mutex_unlock(&server->lock);
}

void run_batch_end(struct rpc_server *server)
{
    struct batch_run *run;
    pthread_mutex_lock(&server->lock);
    DL_FOREACH(server->batch_runs, run)
    {
        make_over(run);
        if (!run->has_asked) {
            struct err err;
            (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
            sender_end(&run->sender, &err);
        }
    }
    pthread_mutex_unlock(&server->lock);
}
