#include "fake_server.h"

#include "base/clock.h"
#include "base/mem.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 10000, POLL_MS = 5, OUTGOING_MAX = 256 };
enum tag { TAG_CALL, TAG_HEADERS, TAG_CLOSED, TAG_RECEIVE, TAG_SEND, TAG_STATUS, TAG_SHUTDOWN };

struct stream {
    struct stream *next; /* of all that there were */
    grpc_call *call;
    grpc_byte_buffer *received, *sending;
    int cancelled;
    bool open;
};

struct tag_of {
    enum tag tag;
    struct stream *stream;
};

struct fake_server {
    grpc_completion_queue *queue;
    grpc_server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    bool stopping, drop, shut;
    struct stream *streams, *current;
    grpc_call *next_call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *outgoing[OUTGOING_MAX];
    size_t out_count;
    Saga__V1__WorkerMessage *messages[FAKE_MESSAGES_MAX];
    size_t count;
};

static struct tag_of *tag_new(enum tag tag, struct stream *stream)
{
    struct tag_of *one = mem_calloc(1, sizeof *one);
    if (!one)
        abort();
    one->tag = tag;
    one->stream = stream;
    return one;
}

static bool start(struct stream *stream, grpc_op *op, size_t count, enum tag tag)
{
    struct tag_of *one = tag_new(tag, stream);
    if (grpc_call_start_batch(stream->call, op, count, one, NULL) == GRPC_CALL_OK)
        return true;
    mem_free(one);
    return false;
}

static void request_call(struct fake_server *server)
{
    grpc_call_details_init(&server->details);
    grpc_metadata_array_init(&server->metadata);
    struct tag_of *one = tag_new(TAG_CALL, NULL);
    if (grpc_server_request_call(server->server, &server->next_call, &server->details,
                                 &server->metadata, server->queue, server->queue,
                                 one) != GRPC_CALL_OK)
        mem_free(one);
}

static void receive(struct stream *stream)
{
    grpc_op batch = { .op = GRPC_OP_RECV_MESSAGE };
    batch.data.recv_message.recv_message = &stream->received;
    (void)start(stream, &batch, 1, TAG_RECEIVE); /* refused only when the call is over */
}

static void finish(struct stream *stream)
{
    grpc_op batch = { .op = GRPC_OP_SEND_STATUS_FROM_SERVER };
    batch.data.send_status_from_server.status = GRPC_STATUS_OK;
    stream->open = false;
    (void)start(stream, &batch, 1, TAG_STATUS); /* refused only when the call is over */
}

static void queue_bytes(struct fake_server *server, const void *data, size_t size)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(data, size);
    pthread_mutex_lock(&server->lock);
    if (server->out_count < OUTGOING_MAX)
        server->outgoing[server->out_count++] = grpc_raw_byte_buffer_create(&slice, 1);
    pthread_mutex_unlock(&server->lock);
    grpc_slice_unref(slice);
}

static void on_call(struct fake_server *server, bool ok)
{
    grpc_call_details_destroy(&server->details);
    grpc_metadata_array_destroy(&server->metadata);
    if (!ok)
        return;
    struct stream *stream = mem_calloc(1, sizeof *stream);
    if (!stream)
        abort();
    stream->call = server->next_call;
    stream->open = true;
    stream->next = server->streams;
    server->streams = server->current = stream;
    request_call(server);
    grpc_op closed = { .op = GRPC_OP_RECV_CLOSE_ON_SERVER };
    closed.data.recv_close_on_server.cancelled = &stream->cancelled;
    (void)start(stream, &closed, 1, TAG_CLOSED); /* a fresh call takes all of these */
    grpc_op headers = { .op = GRPC_OP_SEND_INITIAL_METADATA };
    (void)start(stream, &headers, 1, TAG_HEADERS);
    receive(stream);
}

static void on_message(struct fake_server *server, struct stream *stream)
{
    if (!stream->received) {
        if (stream->open && !grpc_call_failed_before_recv_message(stream->call))
            finish(stream); /* the worker is done */
        return;
    }
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, stream->received))
        abort();
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    Saga__V1__WorkerMessage *message =
        saga__v1__worker_message__unpack(NULL, GRPC_SLICE_LENGTH(all), GRPC_SLICE_START_PTR(all));
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(stream->received);
    stream->received = NULL;
    if (message && message->command_case == SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO) {
        Saga__V1__Welcome welcome = SAGA__V1__WELCOME__INIT;
        Saga__V1__ServerMessage answer = SAGA__V1__SERVER_MESSAGE__INIT;
        answer.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME;
        answer.welcome = &welcome;
        fake_server_send(server, &answer);
    }
    pthread_mutex_lock(&server->lock);
    bool kept = message && server->count < FAKE_MESSAGES_MAX;
    if (kept)
        server->messages[server->count++] = message;
    pthread_mutex_unlock(&server->lock);
    if (!kept)
        saga__v1__worker_message__free_unpacked(message, NULL);
    receive(stream);
}

static void on_event(struct fake_server *server, grpc_event event)
{
    struct tag_of *one = event.tag;
    struct stream *stream = one->stream;
    switch (one->tag) {
    case TAG_CALL:
        on_call(server, event.success);
        break;
    case TAG_RECEIVE:
        on_message(server, stream);
        break;
    case TAG_SEND:
        grpc_byte_buffer_destroy(stream->sending);
        stream->sending = NULL;
        break;
    case TAG_CLOSED:
        stream->open = false;
        break;
    case TAG_SHUTDOWN:
        server->shut = true;
        break;
    default:
        break;
    }
    mem_free(one);
}

/* Carries out what the test asked for meanwhile. */
static void do_wishes(struct fake_server *server)
{
    struct stream *stream = server->current;
    pthread_mutex_lock(&server->lock);
    if (server->drop && stream) {
        (void)grpc_call_cancel(stream->call, NULL); /* thread-safe, cannot fail usefully */
        stream->open = false;
        server->drop = false;
    }
    if (stream && stream->open && !stream->sending && server->out_count > 0) {
        stream->sending = server->outgoing[0];
        server->out_count--;
        memmove(server->outgoing, server->outgoing + 1, server->out_count * sizeof(void *));
        grpc_op batch = { .op = GRPC_OP_SEND_MESSAGE };
        batch.data.send_message.send_message = stream->sending;
        if (!start(stream, &batch, 1, TAG_SEND)) {
            grpc_byte_buffer_destroy(stream->sending);
            stream->sending = NULL;
        }
    }
    pthread_mutex_unlock(&server->lock);
}

static void *pump(void *ctx)
{
    struct fake_server *server = ctx;
    bool shutting = false;
    while (!server->shut) {
        pthread_mutex_lock(&server->lock);
        bool stopping = server->stopping;
        pthread_mutex_unlock(&server->lock);
        if (stopping && !shutting) {
            grpc_server_shutdown_and_notify(server->server, server->queue,
                                            tag_new(TAG_SHUTDOWN, NULL));
            grpc_server_cancel_all_calls(server->server);
            shutting = true;
        }
        do_wishes(server);
        gpr_timespec deadline =
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(POLL_MS, GPR_TIMESPAN));
        grpc_event event = grpc_completion_queue_next(server->queue, deadline, NULL);
        if (event.type == GRPC_OP_COMPLETE)
            on_event(server, event);
    }
    grpc_completion_queue_shutdown(server->queue);
    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(server->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            break;
        if (event.type == GRPC_OP_COMPLETE)
            on_event(server, event);
    }
    return NULL;
}

int fake_server_start(const char *address, struct fake_server **ret_server, struct err *err)
{
    struct fake_server *server = mem_calloc(1, sizeof *server);
    if (!server)
        return err_set(err, ERR_NOMEM, "server");
    grpc_init();
    pthread_mutex_init(&server->lock, NULL);
    grpc_arg reuse = { .type = GRPC_ARG_INTEGER,
                       .key = (char *)(uintptr_t)GRPC_ARG_ALLOW_REUSEPORT };
    grpc_channel_args channel_args = { .num_args = 1, .args = &reuse };
    server->queue = grpc_completion_queue_create_for_next(NULL);
    server->server = grpc_server_create(&channel_args, NULL);
    grpc_server_register_completion_queue(server->server, server->queue, NULL);
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(server->server, address, credentials);
    grpc_server_credentials_release(credentials);
    grpc_server_start(server->server);
    request_call(server);
    if (port == 0 || pthread_create(&server->thread, NULL, pump, server) != 0)
        return err_set(err, ERR_UNAVAILABLE, "cannot listen on %s", address);
    *ret_server = server;
    return 0;
}

struct fake_server *fake_server_stop(struct fake_server *server)
{
    if (!server)
        return NULL;
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    pthread_mutex_unlock(&server->lock);
    pthread_join(server->thread, NULL);
    while (server->streams) {
        struct stream *stream = server->streams;
        server->streams = stream->next;
        grpc_call_unref(stream->call);
        mem_free(stream);
    }
    for (size_t i = 0; i < server->out_count; i++)
        grpc_byte_buffer_destroy(server->outgoing[i]);
    for (size_t i = 0; i < server->count; i++)
        saga__v1__worker_message__free_unpacked(server->messages[i], NULL);
    grpc_server_destroy(server->server);
    grpc_completion_queue_destroy(server->queue);
    pthread_mutex_destroy(&server->lock);
    mem_free(server);
    grpc_shutdown_blocking();
    return NULL;
}

void fake_server_send(struct fake_server *server, const Saga__V1__ServerMessage *message)
{
    uint8_t data[4096];
    if (saga__v1__server_message__get_packed_size(message) > sizeof data)
        abort();
    queue_bytes(server, data, saga__v1__server_message__pack(message, data));
}

static uint8_t uid[16] = { 9, 8, 7 };

void fake_server_task(struct fake_server *server, const char *handler, int64_t fence,
                      int64_t lease_ms)
{
    Google__Protobuf__Duration lease = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Duration attempt = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Timestamp start = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Saga__V1__Task task = SAGA__V1__TASK__INIT, *pointer = &task;
    Saga__V1__Tasks tasks = SAGA__V1__TASKS__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    char name[32], saga[] = "order-17";
    (void)snprintf(name, sizeof name, "%s", handler);
    lease.seconds = lease_ms / 1000;
    lease.nanos = (int32_t)(lease_ms % 1000 * 1000000);
    attempt.seconds = 300;
    task.saga_uid = (ProtobufCBinaryData){ .len = sizeof uid, .data = uid };
    task.saga_id = saga;
    task.handler = name;
    task.fence = fence;
    task.operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    task.lease = &lease;
    task.attempt_remaining = &attempt;
    task.saga_start_time = &start;
    tasks.n_tasks = 1;
    tasks.tasks = &pointer;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS;
    message.tasks = &tasks;
    fake_server_send(server, &message);
}

void fake_server_ack(struct fake_server *server, int64_t fence)
{
    Saga__V1__Ack ack = SAGA__V1__ACK__INIT, *pointer = &ack;
    Saga__V1__Acks acks = SAGA__V1__ACKS__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    ack.saga_uid = (ProtobufCBinaryData){ .len = sizeof uid, .data = uid };
    ack.fence = fence;
    ack.result = SAGA__V1__ACK__RESULT__RESULT_ACCEPTED;
    acks.n_acks = 1;
    acks.acks = &pointer;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS;
    message.acks = &acks;
    fake_server_send(server, &message);
}

void fake_server_extended(struct fake_server *server, int64_t fence, int64_t lease_ms)
{
    Saga__V1__Extended__Lease one = SAGA__V1__EXTENDED__LEASE__INIT, *pointer = &one;
    Google__Protobuf__Duration lease = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__Extended extended = SAGA__V1__EXTENDED__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    lease.seconds = lease_ms / 1000;
    lease.nanos = (int32_t)(lease_ms % 1000 * 1000000);
    one.saga_uid = (ProtobufCBinaryData){ .len = sizeof uid, .data = uid };
    one.fence = fence;
    one.lease = &lease;
    extended.n_leases = 1;
    extended.leases = &pointer;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_EXTENDED;
    message.extended = &extended;
    fake_server_send(server, &message);
}

void fake_server_send_garbage(struct fake_server *server)
{
    queue_bytes(server, "\xff\xff\xff\xff", 4);
}

void fake_server_drop(struct fake_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->drop = true;
    pthread_mutex_unlock(&server->lock);
}

static const Saga__V1__WorkerMessage *find(struct fake_server *server,
                                           Saga__V1__WorkerMessage__CommandCase command, size_t nth,
                                           size_t *ret_count)
{
    const Saga__V1__WorkerMessage *found = NULL;
    size_t count = 0;
    pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < server->count; i++) {
        if (server->messages[i]->command_case != command)
            continue;
        if (count++ == nth)
            found = server->messages[i];
    }
    pthread_mutex_unlock(&server->lock);
    if (ret_count)
        *ret_count = count;
    return found;
}

const Saga__V1__WorkerMessage *fake_server_wait(struct fake_server *server,
                                                Saga__V1__WorkerMessage__CommandCase command,
                                                size_t nth)
{
    int64_t until_ms = clock_mono_ms(&clock_system) + WAIT_MS;
    for (;;) {
        const Saga__V1__WorkerMessage *message = find(server, command, nth, NULL);
        if (message || clock_mono_ms(&clock_system) > until_ms)
            return message;
        struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };
        (void)nanosleep(&pause, NULL); /* a shorter sleep does no harm */
    }
}

size_t fake_server_count(struct fake_server *server, Saga__V1__WorkerMessage__CommandCase command)
{
    size_t count;
    (void)find(server, command, SIZE_MAX, &count); /* only the count is wanted */
    return count;
}
