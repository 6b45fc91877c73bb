#include "ctl/client.h"

#include "base/mem.h"
#include "core/limits.h"
#include "ctl/client_failure.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <string.h>

enum { METADATA_BYTES_MAX = 64 * 1024 }; /* what a server may say about an error */

struct client {
    grpc_channel *channel;
};

static grpc_arg arg_integer(const char *key, int value)
{
    return (
        grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)key, .value = { .integer = value } };
}

int client_new(const char *address, struct client **ret, struct err *err)
{
    if (!*address)
        return err_set(err, ERR_INVALID, "the server's address is empty");
    struct client *client = mem_calloc(1, sizeof *client);
    if (!client)
        return err_set(err, ERR_NOMEM, "client: out of memory");
    grpc_init();
    grpc_arg args[] = {
        arg_integer("grpc.enable_http_proxy", 0), /* a proxy of the environment is not for us */
        arg_integer("grpc.service_config_disable_resolution", 1),
        arg_integer("grpc.use_local_subchannel_pool", 1), /* a connection of its own */
        arg_integer("grpc.max_receive_message_length", LIMIT_TASK_MESSAGE_BYTES),
        arg_integer("grpc.max_metadata_size", METADATA_BYTES_MAX),
    };
    const grpc_channel_args all = { .num_args = ARRAY_LEN(args), .args = args };
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    client->channel = grpc_channel_create(address, credentials, &all);
    grpc_channel_credentials_release(credentials);
    *ret = client;
    return 0;
}

struct client *client_free(struct client *client)
{
    if (!client)
        return NULL;
    grpc_channel_destroy(client->channel);
    grpc_shutdown_blocking();
    mem_free(client);
    return NULL;
}

/* --- one call -------------------------------------------------------------------------------- */

struct call {
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_byte_buffer *request, *reply;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
};

static int request_pack(const ProtobufCMessage *request, grpc_byte_buffer **ret, struct err *err)
{
    size_t size = protobuf_c_message_get_packed_size(request);
    if (size > LIMIT_REGISTER_BYTES) /* of most methods less: the server knows */
        return err_reason(err, ERR_LIMIT, "MESSAGE_TOO_LARGE",
                          "the request has %zu bytes, at most %d", size, LIMIT_REGISTER_BYTES);
    grpc_slice slice = grpc_slice_malloc(size);
    (void)protobuf_c_message_pack(request, GRPC_SLICE_START_PTR(slice)); /* the size from above */
    *ret = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return 0;
}

static void call_open(struct call *call, struct client *client, const char *method,
                      int64_t timeout_ms)
{
    call->queue = grpc_completion_queue_create_for_pluck(NULL);
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->details = grpc_empty_slice();
    call->status = GRPC_STATUS_UNKNOWN;
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
    grpc_slice path = grpc_slice_from_copied_string(method);
    call->call = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                          call->queue, path, NULL, deadline, NULL);
    grpc_slice_unref(path);
}

static void call_close(struct call *call)
{
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_slice_unref(call->details);
    if (call->reply)
        grpc_byte_buffer_destroy(call->reply);
    if (call->request)
        grpc_byte_buffer_destroy(call->request);
    if (call->call)
        grpc_call_unref(call->call);
    grpc_completion_queue_shutdown(call->queue);
    grpc_event event;
    do { /* nothing is pending: the queue answers at once */
        event = grpc_completion_queue_pluck(call->queue, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                            NULL);
    } while (event.type != GRPC_QUEUE_SHUTDOWN);
    grpc_completion_queue_destroy(call->queue);
}

/* All in one batch: it ends when the status is there, at the deadline at the latest. */
static int call_run(struct call *call, struct err *err)
{
    grpc_op ops[6] = {
        { .op = GRPC_OP_SEND_INITIAL_METADATA },
        { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->request },
        { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
        { .op = GRPC_OP_RECV_INITIAL_METADATA,
          .data.recv_initial_metadata.recv_initial_metadata = &call->initial },
        { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->reply },
        { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
          .data.recv_status_on_client = { .trailing_metadata = &call->trailing,
                                          .status = &call->status,
                                          .status_details = &call->details } },
    };
    grpc_call_error failed = grpc_call_start_batch(call->call, ops, ARRAY_LEN(ops), call, NULL);
    if (failed != GRPC_CALL_OK)
        return err_set(err, ERR_INTERNAL, "gRPC refuses the call: %s",
                       grpc_call_error_to_string(failed));
    (void)grpc_completion_queue_pluck(call->queue, call, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                      NULL); /* the status says it all */
    return 0;
}

static int reply_unpack(grpc_byte_buffer *reply, const ProtobufCMessageDescriptor *type,
                        ProtobufCMessage **ret, struct err *err)
{
    if (!reply)
        return err_set(err, ERR_INTERNAL, "the server answered OK without a message");
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, reply))
        return err_set(err, ERR_INTERNAL, "the server's answer cannot be read");
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    ProtobufCMessage *message = protobuf_c_message_unpack(type, NULL, GRPC_SLICE_LENGTH(slice),
                                                          GRPC_SLICE_START_PTR(slice));
    grpc_slice_unref(slice);
    grpc_byte_buffer_reader_destroy(&reader);
    if (!message)
        return err_set(err, ERR_INTERNAL, "the server's answer is no %s", type->name);
    *ret = message;
    return 0;
}

/* The trailing `grpc-status-details-bin`; empty if there is none. Borrowed from the call. */
static struct bytes status_details(const struct call *call)
{
    for (size_t i = 0; i < call->trailing.count; i++) {
        const grpc_metadata *item = &call->trailing.metadata[i];
        if (grpc_slice_str_cmp(item->key, "grpc-status-details-bin") == 0)
            return (struct bytes){ (uint8_t *)GRPC_SLICE_START_PTR(item->value),
                                   GRPC_SLICE_LENGTH(item->value) };
    }
    return (struct bytes){ NULL, 0 };
}

/* Its status is there, and is not OK. */
static int status_read(const struct call *call, struct client_failure *ret_failure, struct err *err)
{
    char *text = mem_strndup((const char *)GRPC_SLICE_START_PTR(call->details),
                             GRPC_SLICE_LENGTH(call->details));
    return client_failure_read((int)call->status, text, status_details(call), ret_failure, err);
}

/* What went wrong on this side. */
static struct client_failure failure_of(const struct err *err)
{
    return (struct client_failure){
        .code = -1,
        .retry_delay_ms = -1,
        .message = mem_strdup(err->msg), /* NULL: out of memory, as the header says */
    };
}

int client_call_explained(struct client *client, const char *method,
                          const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms,
                          ProtobufCMessage **ret, struct client_failure *ret_failure,
                          struct err *err)
{
    struct call call = { 0 };
    struct client_failure failure = { .code = -1, .retry_delay_ms = -1 };
    call_open(&call, client, method, timeout_ms);
    int rc = request_pack(request, &call.request, err);
    if (rc == 0)
        rc = call_run(&call, err);
    if (rc == 0 && call.status == GRPC_STATUS_OK) {
        rc = reply_unpack(call.reply, reply_type, ret, err);
    } else if (rc == 0) {
        rc = status_read(&call, &failure, err);
    }
    if (rc != 0 && failure.code == -1)
        failure = failure_of(err);
    call_close(&call);
    if (rc != 0 && ret_failure)
        *ret_failure = failure;
    else
        client_failure_done(&failure);
    return rc;
}

int client_call(struct client *client, const char *method, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms,
                ProtobufCMessage **ret, struct err *err)
{
    return client_call_explained(client, method, request, reply_type, timeout_ms, ret, NULL, err);
}

/* --- a call with many answers ------------------------------------------------------------------
 */

struct client_stream {
    struct call call;
    const ProtobufCMessageDescriptor *reply_type;
    bool is_opening; /* the request is on its way */
    bool is_open;    /* the status is to come */
    bool receiving;  /* a message, or the end, is to come */
};

/* The tags of its batches. */
static void *opened_tag(struct client_stream *stream)
{
    return &stream->call.initial;
}

static void *received_tag(struct client_stream *stream)
{
    return &stream->call.reply;
}

static void *ended_tag(struct client_stream *stream)
{
    return &stream->call.status;
}

static int start_batch(struct client_stream *stream, const grpc_op *ops, size_t count, void *tag,
                       struct err *err)
{
    grpc_call_error failed = grpc_call_start_batch(stream->call.call, ops, count, tag, NULL);
    return failed == GRPC_CALL_OK ? 0
                                  : err_set(err, ERR_INTERNAL, "gRPC refuses the call: %s",
                                            grpc_call_error_to_string(failed));
}

static bool pluck(struct client_stream *stream, void *tag, gpr_timespec until)
{
    return grpc_completion_queue_pluck(stream->call.queue, tag, until, NULL).type ==
           GRPC_OP_COMPLETE;
}

static int stream_start(struct client_stream *stream, const ProtobufCMessage *request,
                        struct err *err)
{
    struct call *call = &stream->call;
    if (request_pack(request, &call->request, err) != 0)
        return (int)err->code;
    const grpc_op ended = { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                            .data.recv_status_on_client = { .trailing_metadata = &call->trailing,
                                                            .status = &call->status,
                                                            .status_details = &call->details } };
    if (start_batch(stream, &ended, 1, ended_tag(stream), err) != 0)
        return (int)err->code;
    stream->is_open = true;
    const grpc_op opened[] = {
        { .op = GRPC_OP_SEND_INITIAL_METADATA },
        { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->request },
        { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
        { .op = GRPC_OP_RECV_INITIAL_METADATA,
          .data.recv_initial_metadata.recv_initial_metadata = &call->initial },
    };
    if (start_batch(stream, opened, ARRAY_LEN(opened), opened_tag(stream), err) != 0)
        return (int)err->code;
    stream->is_opening = true; /* what becomes of it, the status tells */
    return 0;
}

int client_stream_open(struct client *client, const char *method, const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms,
                       struct client_stream **ret, struct err *err)
{
    struct client_stream *stream = mem_calloc(1, sizeof *stream);
    if (!stream)
        return err_set(err, ERR_NOMEM, "stream: out of memory");
    stream->reply_type = reply_type;
    call_open(&stream->call, client, method, timeout_ms);
    if (stream_start(stream, request, err) != 0) {
        (void)client_stream_free(stream); /* always NULL */
        return (int)err->code;
    }
    *ret = stream;
    return 0;
}

/* All messages are read. */
static int stream_ended(struct client_stream *stream, bool *ret_ended,
                        struct client_failure *ret_failure, struct err *err)
{
    if (stream->is_open)
        (void)pluck(stream, ended_tag(stream), gpr_inf_future(GPR_CLOCK_MONOTONIC));
    stream->is_open = false;
    *ret_ended = stream->call.status == GRPC_STATUS_OK;
    return *ret_ended ? 0 : status_read(&stream->call, ret_failure, err);
}

int client_stream_next(struct client_stream *stream, int64_t limit_ms, ProtobufCMessage **ret,
                       bool *ret_ended, struct client_failure *ret_failure, struct err *err)
{
    struct call *call = &stream->call;
    *ret = NULL;
    *ret_ended = false;
    const grpc_op receive = { .op = GRPC_OP_RECV_MESSAGE,
                              .data.recv_message.recv_message = &call->reply };
    if (!stream->receiving && start_batch(stream, &receive, 1, received_tag(stream), err) != 0) {
        *ret_failure = failure_of(err);
        return (int)err->code;
    }
    stream->receiving = true;
    gpr_timespec until =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(limit_ms, GPR_TIMESPAN));
    if (!pluck(stream, received_tag(stream), until))
        return 0;
    stream->receiving = false;
    if (!call->reply)
        return stream_ended(stream, ret_ended, ret_failure, err);
    int rc = reply_unpack(call->reply, stream->reply_type, ret, err);
    grpc_byte_buffer_destroy(TAKE(call->reply));
    if (rc != 0)
        *ret_failure = failure_of(err);
    return rc;
}

struct client_stream *client_stream_free(struct client_stream *stream)
{
    if (!stream)
        return NULL;
    (void)grpc_call_cancel(stream->call.call, NULL); /* refused only where it has ended */
    if (stream->is_opening)
        (void)pluck(stream, opened_tag(stream), gpr_inf_future(GPR_CLOCK_MONOTONIC));
    if (stream->receiving)
        (void)pluck(stream, received_tag(stream), gpr_inf_future(GPR_CLOCK_MONOTONIC));
    if (stream->is_open)
        (void)pluck(stream, ended_tag(stream), gpr_inf_future(GPR_CLOCK_MONOTONIC));
    call_close(&stream->call);
    mem_free(stream);
    return NULL;
}
