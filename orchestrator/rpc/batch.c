#include "rpc/batch.h"

#include "base/mem.h"
#include "store/reader_audit.h"

#include <saga/v1/operator.pb-c.h>
#include <stdio.h>
#include <string.h>

enum {
    COUNT_PAGE = LIMIT_PAGE_ITEMS,
    FLIGHT_MAX = 32, /* verbs with the engine at a time */
    RECENT_MIN = 20, /* before so many it is not said that it goes wrong */
    WAKE_MS = 250,
    TELL_MS = 1000,
    LAST_MS = 2000, /* at the end: for what is with the engine */
    SEND_BYTES_MAX = 1024 * 1024,
};

/* --- what is with the engine ------------------------------------------------------------------ */

/* On the engine's thread. */
static void on_verb(struct engine_event *event)
{
    struct engine_verb *verb = CONTAINER(event, struct engine_verb, event);
    struct batch_item *item = CONTAINER(verb, struct batch_item, verb);
    struct batch_run *run = item->run;
    struct call *call = run->call;
    pthread_mutex_lock(&run->lock);
    item->done = true;
    run->in_flight--;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->lock);
    call_unref(call);
}

/* False: the engine has stopped. */
static bool post_item(struct batch_run *run, struct batch_item *item)
{
    const struct verb_request *from = &run->verb;
    item->run = run;
    item->done = false;
    item->verb = (struct engine_verb){
        .event = { .kind = ENGINE_VERB, .done = on_verb },
        .verb = from->kind,
        .by_uid = true,
        .uid = item->saga.row.uid,
        .step = from->step,
        .actor = from->actor,
        .reason = run->reason,
        .operation = from->operation,
        .happened = from->happened,
        .output = from->output,
        .options = from->options,
    };
    call_ref(run->call);
    pthread_mutex_lock(&run->lock);
    run->in_flight++;
    pthread_mutex_unlock(&run->lock);
    if (engine_post_always(run->call->server->engine, &item->verb.event))
        return true;
    (void)err_set(&item->verb.err, ERR_UNAVAILABLE, "the server is stopping");
    on_verb(&item->verb.event);
    return false;
}

/* --- what is told ----------------------------------------------------------------------------- */

static Saga__V1__RunBatchResponse__Result *make_result(struct arena *arena,
                                                       const struct batch_item *item)
{
    Saga__V1__RunBatchResponse__Result *result =
        reply_new(arena, &saga__v1__run_batch_response__result__descriptor);
    char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    const struct saga_row *row = &item->saga.row;
    if (!result || !uid)
        return NULL;
    uuid_format(&row->uid, uid);
    result->uid = uid;
    result->namespace_ = row->namespace_;
    result->definition = row->definition;
    result->saga_id = row->saga_id;
    result->run = row->run;
    if (item->verb.err.code == ERR_OK)
        return result;
    result->code = (int32_t)status_code(item->verb.err.code);
    result->reason = reply_text(item->verb.err.reason);
    result->message = reply_text(item->verb.err.msg);
    return result;
}

static void note_result(struct batch_run *run, const struct batch_item *item)
{
    bool refused = item->verb.err.code != ERR_OK;
    size_t at = run->recent_count++ % BATCH_RECENT_MAX;
    run->recent[at].uid = item->saga.row.uid;
    run->recent[at].refused = refused;
    run->refused += refused;
    run->accepted += !refused;
}

/* How many of those that were posted are done, from the first that was not told. */
static size_t count_done(struct batch_run *run)
{
    size_t end = run->told;
    pthread_mutex_lock(&run->lock);
    while (end < run->posted && run->items[end].done)
        end++;
    pthread_mutex_unlock(&run->lock);
    return end;
}

static int tell(struct batch_run *run, const char *stopped, bool finished, struct err *err)
{
    struct arena arena = { 0 };
    Saga__V1__RunBatchResponse reply = SAGA__V1__RUN_BATCH_RESPONSE__INIT;
    size_t end = count_done(run);
    reply.results = arena_array(&arena, BATCH_PAGE, sizeof(ProtobufCMessage *));
    for (; reply.results && run->told < end && !arena.oom; run->told++) {
        const struct batch_item *item = &run->items[run->told];
        note_result(run, item);
        reply.results[reply.n_results++] = make_result(&arena, item);
    }
    reply.batch_id = run->id;
    reply.matched = run->matched;
    reply.done = run->accepted;
    reply.refused = run->refused;
    reply.stopped = reply_text(stopped);
    reply.finished = finished;
    int rc = arena.oom || !reply.results ? err_set(err, ERR_NOMEM, "batch") : 0;
    struct send_list list;
    send_list_init(&list);
    if (!rc)
        send_list_add(&list, &reply.base);
    if (!rc && list.failed)
        rc = err_set(err, ERR_NOMEM, "batch");
    (void)sender_put(&run->sender, &list); /* false, too, if the client has gone */
    arena_done(&arena);
    run->told_ms = rpc_now_ms();
    return rc;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Until something changes, `until_ms`, or a while. False: the batch is over. */
static bool wait_a_while(struct batch_run *run, int64_t until_ms)
{
    int64_t now_ms = rpc_now_ms();
    if (until_ms > now_ms + WAKE_MS)
        until_ms = now_ms + WAKE_MS;
    struct timespec until = { .tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000 };
    pthread_mutex_lock(&run->lock);
    if (!run->is_over && until_ms > now_ms)
        (void)pthread_cond_timedwait(&run->changed, &run->lock, &until); /* its caller looks */
    bool is_over = run->is_over;
    pthread_mutex_unlock(&run->lock);
    return !is_over;
}

static size_t in_flight(struct batch_run *run)
{
    pthread_mutex_lock(&run->lock);
    size_t count = run->in_flight;
    pthread_mutex_unlock(&run->lock);
    return count;
}

enum turn { TURN_GO, TURN_OVER, TURN_FAILED };

/* Until the time, and until no more than so many are with the engine, and the client has read.
 * Tells what is done meanwhile. */
static enum turn wait_for(struct batch_run *run, int64_t until_ms, size_t most, struct err *err)
{
    for (;;) {
        int64_t now_ms = rpc_now_ms();
        if (now_ms - run->told_ms >= TELL_MS && sender_bytes(&run->sender) < SEND_BYTES_MAX &&
            tell(run, "", false, err))
            return TURN_FAILED;
        bool has_room = in_flight(run) <= most && sender_bytes(&run->sender) < SEND_BYTES_MAX;
        if (now_ms >= until_ms && has_room)
            return TURN_GO;
        if (!wait_a_while(run, has_room ? until_ms : INT64_MAX / 2))
            return TURN_OVER;
    }
}

/* --- pages ------------------------------------------------------------------------------------ */

void batch_items_drop(struct batch_run *run)
{
    for (size_t i = 0; i < run->item_count; i++)
        store_saga_done(&run->items[i].saga);
    run->item_count = run->posted = run->told = 0;
}

/* The next sagas; none, and *ret_more false: there are none left. */
static int read_page(struct batch_run *run, size_t limit, struct store_saga *sagas,
                     size_t *ret_count, bool *ret_more, struct err *err)
{
    CLEANUP(mem_free_p) int64_t *started_us = mem_calloc(limit, sizeof *started_us);
    struct store_list_end end;
    size_t count = 0;
    if (!started_us)
        return err_set(err, ERR_NOMEM, "batch");
    run->list.limit = limit;
    int rc = store_reader_list(run->reader, &run->list, sagas, started_us, &count, &end, err);
    if (rc)
        return rc;
    *ret_count = count;
    *ret_more = count == limit || end.is_cut;
    run->list.has_after = true;
    if (count == limit) {
        run->list.after_started_us = started_us[count - 1];
        run->list.after_uid = sagas[count - 1].row.uid;
    } else if (end.is_cut) {
        run->list.after_started_us = end.started_us;
        run->list.after_uid = end.uid;
    }
    return 0;
}

static int read_items(struct batch_run *run, bool *ret_more, struct err *err)
{
    struct store_saga sagas[BATCH_PAGE];
    batch_items_drop(run);
    int rc = read_page(run, BATCH_PAGE, sagas, &run->item_count, ret_more, err);
    for (size_t i = 0; !rc && i < run->item_count; i++)
        run->items[i].saga = sagas[i];
    return rc;
}

/* After these a saga should not be parked. */
static bool should_go_on(enum engine_verb_kind kind)
{
    return kind == ENGINE_VERB_RETRY || kind == ENGINE_VERB_RESUME || kind == ENGINE_VERB_RESOLVE ||
           kind == ENGINE_VERB_SKIP;
}

/* *ret_percent of the latest sagas refused the verb or are parked again; -1: too few to say. */
static int look_back(struct batch_run *run, int *ret_percent, struct err *err)
{
    size_t count =
        run->recent_count < BATCH_RECENT_MAX ? run->recent_count : (size_t)BATCH_RECENT_MAX;
    struct uuid uids[BATCH_RECENT_MAX];
    struct store_version versions[BATCH_RECENT_MAX];
    size_t failing = 0, accepted = 0;
    *ret_percent = -1;
    if (count < RECENT_MIN)
        return 0;
    for (size_t i = 0; i < count; i++) {
        failing += run->recent[i].refused;
        if (!run->recent[i].refused)
            uids[accepted++] = run->recent[i].uid;
    }
    if (should_go_on(run->verb.kind) && accepted) {
        int rc = store_reader_versions(run->reader, uids, accepted, versions, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < accepted; i++)
            failing += versions[i].present && versions[i].state == SAGA_PARKED;
    }
    *ret_percent = (int)(failing * 100 / count);
    return 0;
}

static enum turn run_items(struct batch_run *run, struct err *err)
{
    for (size_t i = 0; i < run->item_count; i++) {
        enum turn turn = wait_for(run, run->next_ms, FLIGHT_MAX - 1, err);
        if (turn != TURN_GO)
            return turn;
        if (run->rate > 0) { /* the pace is kept over a wait of the engine's, but not caught up */
            int64_t now_ms = rpc_now_ms();
            double step_ms = 1000.0 / run->rate;
            if (run->next_ms < now_ms - WAKE_MS)
                run->next_ms = now_ms;
            run->next_ms += (int64_t)step_ms;
            /* less than a millisecond: several in one */
            run->pace_rest += step_ms - (double)(int64_t)step_ms;
            if (run->pace_rest >= 1) {
                run->next_ms++;
                run->pace_rest -= 1;
            }
        }
        run->posted = i + 1;
        run->matched++;
        if (!post_item(run, &run->items[i]))
            return TURN_OVER;
    }
    return wait_for(run, 0, 0, err);
}

/* --- the thread ------------------------------------------------------------------------------- */

static enum turn count_all(struct batch_run *run, struct err *err)
{
    CLEANUP(mem_free_p) struct store_saga *sagas = mem_calloc(COUNT_PAGE, sizeof *sagas);
    bool more = true;
    if (!sagas) {
        (void)err_set(err, ERR_NOMEM, "batch");
        return TURN_FAILED;
    }
    while (more) {
        size_t count = 0;
        if (read_page(run, COUNT_PAGE, sagas, &count, &more, err))
            return TURN_FAILED;
        for (size_t i = 0; i < count; i++)
            store_saga_done(&sagas[i]);
        run->matched += (int64_t)count;
        enum turn turn = wait_for(run, 0, 0, err);
        if (turn != TURN_GO)
            return turn;
    }
    return TURN_GO;
}

static enum turn run_all(struct batch_run *run, char stopped[128], struct err *err)
{
    bool more = true;
    while (more) {
        int percent = -1;
        if (run->stop_percent && look_back(run, &percent, err))
            return TURN_FAILED;
        if (percent > run->stop_percent) {
            (void)snprintf(stopped, 128, "%d %% of the latest sagas failed, the limit is %d %%",
                           percent, run->stop_percent);
            return TURN_GO;
        }
        if (read_items(run, &more, err))
            return TURN_FAILED;
        enum turn turn = run_items(run, err);
        if (turn != TURN_GO)
            return turn;
        if (tell(run, "", false, err))
            return TURN_FAILED;
    }
    return TURN_GO;
}

/* The batch's own line of the audit; what it comes to for each saga is in that one's journal. */
static int note_batch(struct batch_run *run, struct err *err)
{
    static const char *const verbs[] = {
        [ENGINE_VERB_CANCEL] = "batch-cancel",   [ENGINE_VERB_RETRY] = "batch-retry",
        [ENGINE_VERB_RESOLVE] = "batch-resolve", [ENGINE_VERB_SKIP] = "batch-skip",
        [ENGINE_VERB_ABANDON] = "batch-abandon", [ENGINE_VERB_SUSPEND] = "batch-suspend",
        [ENGINE_VERB_RESUME] = "batch-resume",   [ENGINE_VERB_OPTIONS] = "batch-set-options",
    };
    const Saga__V1__RunBatchRequest *request = (void *)run->call->request;
    const struct store_audit_note note = {
        .verb = verbs[run->verb.kind],
        .namespace_ = *request->namespace_ ? request->namespace_ : NULL,
        .definition = *request->definition ? request->definition : NULL,
        .subject = run->id,
        .actor = run->verb.actor,
        .reason = run->verb.reason,
        .detail = *request->filter ? request->filter : NULL,
    };
    return store_reader_audit_add(run->reader, &note, err);
}

void *batch_thread(void *ctx)
{
    struct batch_run *run = ctx;
    struct call *call = run->call;
    struct rpc_server *server = call->server;
    char stopped[128] = "";
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    enum turn turn = TURN_FAILED;
    if (!store_reader_new(server->conninfo, &run->reader, &err)) {
        if (run->validate_only)
            turn = count_all(run, &err);
        else if (!note_batch(run, &err))
            turn = run_all(run, stopped, &err);
    }
    if (turn == TURN_OVER) { /* what is with the engine is told if it comes soon */
        int64_t until_ms = rpc_now_ms() + LAST_MS;
        while (in_flight(run) && sender_is_open(&run->sender) && rpc_now_ms() < until_ms)
            (void)wait_a_while(run, rpc_now_ms() + WAKE_MS); /* over it is */
        (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    }
    struct err last;
    if (tell(run, turn == TURN_GO ? stopped : err.msg, true, &last) && turn == TURN_GO) {
        err = last;
        turn = TURN_FAILED;
    }
    sender_end(&run->sender, turn == TURN_GO ? NULL : &err);
    run->reader = store_reader_free(run->reader);
    atomic_fetch_sub(&server->batches, 1);
    rpc_server_ref(server); /* beyond the call */
    call_unref(call);
    atomic_fetch_sub(&server->batch_threads, 1);
    rpc_server_unref(server);
    return NULL;
}
