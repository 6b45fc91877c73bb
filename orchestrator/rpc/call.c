#include "rpc/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "core/limits.h"
#include "wire/validate.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>

static void on_new(struct rpc_tag *tag, bool ok);
static void on_close(struct rpc_tag *tag, bool ok);
static void on_request(struct rpc_tag *tag, bool ok);
static void on_answered(struct rpc_tag *tag, bool ok);
static void side_put(struct call *call);

static const struct err no_memory = { .code = ERR_NOMEM, .msg = "out of memory" };

bool call_arm(struct pump *pump)
{
    struct call *call = mem_calloc(1, sizeof *call);
    if (!call)
        return false;
    rpc_server_ref(pump->server);
    call->server = pump->server;
    call->pump = pump;
    call->new_tag.fn = on_new;
    call->close_tag.fn = on_close;
    call->read_tag.fn = on_request;
    call->answer_tag.fn = on_answered;
    atomic_init(&call->sides, 1);
    atomic_init(&call->peer_awaited_ms, INT64_MAX);
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    grpc_call_error rc =
        grpc_server_request_call(pump->server->grpc, &call->grpc, &call->details, &call->metadata,
                                 pump->queue, pump->queue, &call->new_tag);
    if (rc == GRPC_CALL_OK)
        return true;
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    side_put(call);
    return false;
}

static void side_put(struct call *call)
{
    if (atomic_fetch_sub(&call->sides, 1) != 1)
        return;
    struct rpc_server *server = call->server;
    if (call->counted)
        atomic_fetch_sub(&server->unfinished, 1);
    if (call->stream)
        worker_stream_free(call->stream);
    if (call->watcher)
        watcher_free(call->watcher);
    if (call->watch)
        saga_watch_free(call->watch);
    if (call->reflector)
        reflector_free(call->reflector);
    if (call->batch)
        run_batch_free(call->batch);
    mem_free(call);
    rpc_server_unref(server);
}

void call_ref(struct call *call)
{
    atomic_fetch_add(&call->work_refs, 1);
}

bool call_ref_if_open(struct call *call)
{
    int refs = atomic_load(&call->work_refs);
    while (refs && atomic_load(&call->stage) == CALL_OPEN) {
        if (atomic_compare_exchange_weak(&call->work_refs, &refs, refs + 1))
            return true;
    }
    return false;
}

void call_unref(struct call *call)
{
    if (atomic_fetch_sub(&call->work_refs, 1) != 1)
        return;
    if (call->received_bytes)
        atomic_fetch_sub(&call->server->request_bytes, (long long)call->received_bytes);
    arena_done(&call->arena);
    side_put(call);
}

/* --- the gRPC side ---------------------------------------------------------------------------- */

static void unlist(struct call *call)
{
    struct pump *pump = call->pump;
    pthread_mutex_lock(&pump->lock);
    if (call->listed) {
        *(call->prev ? &call->prev->next : &pump->first) = call->next;
        *(call->next ? &call->next->prev : &pump->last) = call->prev;
        call->listed = false;
        atomic_fetch_sub(&call->server->calls, 1);
    }
    pthread_mutex_unlock(&pump->lock);
}

static void list(struct call *call)
{
    struct pump *pump = call->pump;
    call->since_ms = rpc_now_ms();
    atomic_store(&call->peer_awaited_ms, call->since_ms); /* for the request */
    pthread_mutex_lock(&pump->lock);
    call->prev = pump->last;
    *(pump->last ? &pump->last->next : &pump->first) = call;
    pump->last = call;
    call->listed = true;
    pthread_mutex_unlock(&pump->lock);
    atomic_fetch_add(&call->server->calls, 1);
    atomic_fetch_add(&call->server->unfinished, 1);
    call->counted = true;
}

static void grpc_put(struct call *call)
{
    if (atomic_fetch_sub(&call->grpc_refs, 1) != 1)
        return;
    unlist(call);
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    call->received = NULL;
    answer_done(&call->answer);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    grpc_call_unref(call->grpc);
    call->grpc = NULL;
    if (call->answer_bytes)
        atomic_fetch_sub(&call->server->answer_bytes, (long long)call->answer_bytes);
    side_put(call);
}

bool call_start(struct call *call, const grpc_op *ops, size_t count, struct rpc_tag *tag)
{
    atomic_fetch_add(&call->grpc_refs, 1);
    grpc_call_error rc = grpc_call_start_batch(call->grpc, ops, count, tag, NULL);
    if (rc == GRPC_CALL_OK)
        return true;
    log_line(LOG_ERROR, "gRPC refused a batch", "error", grpc_call_error_to_string(rc), NULL);
    (void)grpc_call_cancel(call->grpc, NULL); /* only fails when the call is over already */
    atomic_fetch_sub(&call->grpc_refs, 1);    /* never the last: the caller has one */
    return false;
}

void call_batch_done(struct call *call)
{
    grpc_put(call);
}

void call_release_grpc(struct call *call)
{
    grpc_put(call);
}

bool call_read(struct call *call)
{
    grpc_op op = { 0 };
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &call->received;
    return call_start(call, &op, 1, &call->read_tag);
}

void call_cancel(struct call *call, grpc_status_code code, const char *why)
{
    /* only fails when the call is over already */
    (void)grpc_call_cancel_with_status(call->grpc, code, why, NULL);
}

enum call_read call_read_result(struct call *call, bool ok)
{
    if (ok && call->received)
        return CALL_READ_MESSAGE;
    /* No message means "the client is done" only when nothing went wrong before. */
    return ok && !grpc_call_failed_before_recv_message(call->grpc) ? CALL_READ_END
                                                                   : CALL_READ_BROKEN;
}

int call_unpack(struct call *call, const ProtobufCMessageDescriptor *type, struct arena *arena,
                ProtobufCMessage **ret, struct err *err)
{
    grpc_byte_buffer *buffer = TAKE(call->received);
    size_t size = grpc_byte_buffer_length(buffer), most = method_message_bytes_max(call->method);
    int rc;
    if (size > most) {
        rc = err_reason(err, ERR_LIMIT, "MESSAGE_TOO_LARGE",
                        "the message has %zu bytes, the limit is %zu", size, most);
    } else if (buffer->type == GRPC_BB_RAW && buffer->data.raw.compression != GRPC_COMPRESS_NONE) {
        rc = err_set(err, ERR_UNIMPLEMENTED, "compressed messages are refused");
    } else if (buffer->type == GRPC_BB_RAW && buffer->data.raw.slice_buffer.count == 1) {
        const grpc_slice *slice = &buffer->data.raw.slice_buffer.slices[0];
        rc = wire_unpack(type, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice), arena, ret,
                         err);
    } else {
        grpc_byte_buffer_reader reader;
        if (!grpc_byte_buffer_reader_init(&reader, buffer)) {
            rc = err_set(err, ERR_INVALID, "malformed message");
        } else {
            grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
            rc = wire_unpack(type, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all), arena, ret,
                             err);
            grpc_slice_unref(all);
            grpc_byte_buffer_reader_destroy(&reader);
        }
    }
    grpc_byte_buffer_destroy(buffer);
    return rc;
}

/* --- a new call ------------------------------------------------------------------------------- */

static int admit(struct call *call, struct err *err)
{
    struct rpc_server *server = call->server;
    if (!call->method)
        return err_set(err, ERR_UNIMPLEMENTED, "this server has no such method");
    if (atomic_load(&server->draining) && !call->method->while_draining)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping: connect elsewhere");
    if (atomic_load(&server->unfinished) > RPC_CALLS_MAX) {
        (void)err_reason(err, ERR_LIMIT, "TOO_MANY_CALLS", "more than %d calls in work",
                         RPC_CALLS_MAX);
        err->retryable = true;
        return (int)err->code;
    }
    return 0;
}

static void on_new(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, new_tag);
    if (!ok) { /* the server shuts down: this request was never used */
        grpc_metadata_array_destroy(&call->metadata);
        grpc_call_details_destroy(&call->details);
        side_put(call);
        return;
    }
    if (!call_arm(call->pump) && !atomic_load(&call->server->stopping))
        log_line(LOG_ERROR, "a request could not be armed again", NULL);
    atomic_store(&call->sides, 2);
    atomic_store(&call->work_refs, 1); /* of whoever answers */
    atomic_store(&call->grpc_refs, 1); /* until answered */
    call->method = method_find(call->details.method);
    if (!call->method || call->method->kind == METHOD_UNARY)
        list(call);
    grpc_op op = { 0 };
    op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op.data.recv_close_on_server.cancelled = &call->cancelled_by_peer;
    bool is_started = call_start(call, &op, 1, &call->close_tag);
    struct err err;
    if (!is_started || admit(call, &err)) {
        call_fail(call, is_started ? &err : &no_memory);
    } else if (call->method->kind == METHOD_STREAM) {
        call->method->handle(call);
    } else if (!call_read(call)) {
        call_fail(call, &no_memory);
    }
}

/* The client has gone, or the call is complete. */
static void on_close(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, close_tag);
    (void)ok; /* always true */
    if (call->cancelled_by_peer) {
        atomic_store(&call->cancelled, true);
        int open = CALL_OPEN;
        if (atomic_compare_exchange_strong(&call->stage, &open, CALL_GIVEN_UP))
            grpc_put(call);
    }
    call_batch_done(call);
}

static int take_bytes(struct call *call, struct err *err)
{
    struct rpc_server *server = call->server;
    size_t size = grpc_byte_buffer_length(call->received);
    call->received_bytes = size;
    long long before = atomic_fetch_add(&server->request_bytes, (long long)size);
    if (before + (long long)size <= RPC_REQUEST_BYTES_MAX)
        return 0;
    (void)err_reason(err, ERR_LIMIT, "TOO_MANY_BYTES", "more than %d bytes of requests in work",
                     RPC_REQUEST_BYTES_MAX);
    err->retryable = true;
    return (int)err->code;
}

/* The request of a unary call. */
static void on_request(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, read_tag);
    struct err err;
    enum call_read result = call_read_result(call, ok);
    atomic_store(&call->peer_awaited_ms, INT64_MAX);
    if (result == CALL_READ_MESSAGE) {
        if (take_bytes(call, &err) ||
            call_unpack(call, call->method->request, &call->arena, &call->request, &err))
            call_fail(call, &err);
        else
            call->method->handle(call);
    } else {
        (void)err_set(&err, ERR_INVALID, "the request message is missing");
        call_fail(call, &err); /* dropped if the call is broken */
    }
    call_batch_done(call);
}

/* --- answers ---------------------------------------------------------------------------------- */

grpc_slice message_to_slice(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    (void)protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice)); /* fills it */
    return slice;
}

static void on_answered(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, answer_tag);
    (void)ok; /* false: the client has gone */
    call_batch_done(call);
}

/* Only who moved the stage to ANSWERED comes here. Its hold on gRPC ends when the batch is
 * started: that one has its own. */
static void send_answer(struct call *call)
{
    grpc_op ops[3];
    size_t count = 0;
    ops[count++] = (grpc_op){ .op = GRPC_OP_SEND_INITIAL_METADATA };
    if (call->answer.payload) {
        ops[count] = (grpc_op){ .op = GRPC_OP_SEND_MESSAGE };
        ops[count++].data.send_message.send_message = call->answer.payload;
    }
    ops[count++] = answer_op(&call->answer);
    atomic_store(&call->peer_awaited_ms, rpc_now_ms()); /* to take it */
    if (!call_start(call, ops, count, &call->answer_tag))
        log_line(LOG_WARN, "an answer could not be sent", NULL);
    grpc_put(call);
}

static bool claim(struct call *call)
{
    int open = CALL_OPEN;
    return atomic_compare_exchange_strong(&call->stage, &open, CALL_ANSWERED);
}

/* What clients have not taken yet is held in memory, and clients decide how long. Small answers are
 * bounded by the number of calls. */
static int check_answer(struct call *call, size_t size, struct err *err)
{
    struct rpc_server *server = call->server;
    size_t most = method_reply_bytes_max(call->method);
    if (size > most)
        return err_reason(err, ERR_LIMIT, "REPLY_TOO_LARGE",
                          "the reply has %zu bytes, the limit is %zu", size, most);
    if (size <= RPC_SMALL_ANSWER_BYTES ||
        atomic_load(&server->answer_bytes) + (long long)size <= RPC_ANSWER_BYTES_MAX)
        return 0;
    (void)err_reason(err, ERR_LIMIT, "TOO_MANY_BYTES",
                     "more than %d bytes of replies wait for their clients", RPC_ANSWER_BYTES_MAX);
    err->retryable = true;
    return (int)err->code;
}

bool call_reply_slices(struct call *call, grpc_slice *slices, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += GRPC_SLICE_LENGTH(slices[i]);
    struct err err;
    if (check_answer(call, size, &err)) {
        call_fail(call, &err);
        return false;
    }
    bool is_ours = claim(call);
    if (is_ours) {
        call->answer_bytes = size;
        atomic_fetch_add(&call->server->answer_bytes, (long long)size);
        call->answer.payload = grpc_raw_byte_buffer_create(slices, count);
        send_answer(call);
    }
    call_unref(call);
    return is_ours;
}

void call_reply(struct call *call, const ProtobufCMessage *reply)
{
    size_t size = protobuf_c_message_get_packed_size(reply);
    struct err err;
    if (check_answer(call, size, &err)) { /* before it is packed */
        call_fail(call, &err);
        return;
    }
    grpc_slice slice = message_to_slice(reply);
    (void)call_reply_slices(call, &slice, 1); /* whoever gave up is not told */
    grpc_slice_unref(slice);
}

void call_fail_faults(struct call *call, const struct err *err, const struct faults *faults)
{
    if (err->code == ERR_INTERNAL)
        log_line(LOG_ERROR, "call failed", "method", call->method ? call->method->path : "?", "err",
                 err->msg, "sqlstate", err->sqlstate, NULL);
    if (claim(call)) {
        answer_set(&call->answer, err, faults);
        send_answer(call);
    }
    call_unref(call);
}

void call_fail(struct call *call, const struct err *err)
{
    call_fail_faults(call, err, NULL);
}

void call_preempt(struct call *call, const struct err *err)
{
    call_ref(call);
    call_fail(call, err);
}
