#include "support/raw_stream.h"

#include "base/clock.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <string.h>

enum { MESSAGE_BYTES_MAX = 64 * 1024 * 1024, UNSTARTED = -1 };

enum tag { TAG_SEND, TAG_RECEIVE, TAG_STATUS, TAG_COUNT };

struct raw_stream {
    grpc_channel *channel;
    grpc_completion_queue *queue;
    grpc_call *call;
    bool pending[TAG_COUNT], ok[TAG_COUNT];
    bool opened; /* the initial metadata was sent */
    grpc_byte_buffer *received;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    char *message;
};

static gpr_timespec in_ms(int64_t ms)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

static int keepalive_ms; /* of the thread that opens streams */

void raw_stream_keepalive(int ms)
{
    keepalive_ms = ms;
}

static grpc_channel *channel_open(const char *address)
{
    const struct {
        const char *key;
        int value;
    } wanted[] = {
        { "grpc.enable_http_proxy", 0 },
        { "grpc.service_config_disable_resolution", 1 },
        { "grpc.use_local_subchannel_pool", 1 },
        { "grpc.max_send_message_length", -1 },
        { "grpc.max_receive_message_length", MESSAGE_BYTES_MAX },
        { "grpc.keepalive_time_ms", keepalive_ms ? keepalive_ms : INT_MAX },
        { "grpc.keepalive_permit_without_calls", keepalive_ms ? 1 : 0 },
        { "grpc.http2.max_pings_without_data", keepalive_ms ? 0 : 2 },
    };
    grpc_arg args[ARRAY_LEN(wanted)];
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        args[i] = (grpc_arg){ .type = GRPC_ARG_INTEGER,
                              .key = (char *)(uintptr_t)wanted[i].key, /* only read */
                              .value = { .integer = wanted[i].value } };
    const grpc_channel_args all = { .num_args = ARRAY_LEN(args), .args = args };
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(address, credentials, &all);
    grpc_channel_credentials_release(credentials);
    return channel;
}

static void *tag_of(struct raw_stream *stream, enum tag tag)
{
    return &stream->pending[tag];
}

static bool batch_start(struct raw_stream *stream, enum tag tag, const grpc_op *ops, size_t count)
{
    stream->pending[tag] = true;
    if (grpc_call_start_batch(stream->call, ops, count, tag_of(stream, tag), NULL) == GRPC_CALL_OK)
        return true;
    stream->pending[tag] = false;
    stream->ok[tag] = false;
    return false;
}

/* Handles events until this tag is no longer pending or the time is over. */
static bool pump(struct raw_stream *stream, enum tag tag, int64_t limit_ms)
{
    gpr_timespec until = in_ms(limit_ms);
    while (stream->pending[tag]) {
        grpc_event event = grpc_completion_queue_next(stream->queue, until, NULL);
        if (event.type != GRPC_OP_COMPLETE)
            return false;
        size_t which = (size_t)((bool *)event.tag - stream->pending);
        stream->pending[which] = false;
        stream->ok[which] = event.success != 0;
    }
    return true;
}

static bool receive_start(struct raw_stream *stream)
{
    const grpc_op op = { .op = GRPC_OP_RECV_MESSAGE,
                         .data.recv_message.recv_message = &stream->received };
    return batch_start(stream, TAG_RECEIVE, &op, 1);
}

int raw_stream_open(const char *address, const char *method, int64_t timeout_ms,
                    struct raw_stream **ret, struct err *err)
{
    struct raw_stream *stream = mem_calloc(1, sizeof *stream);
    if (!stream)
        return err_set(err, ERR_NOMEM, "raw stream");
    grpc_init();
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    stream->details = grpc_empty_slice();
    stream->channel = channel_open(address);
    stream->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_slice path = grpc_slice_from_copied_string(method);
    stream->call = grpc_channel_create_call(stream->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                            stream->queue, path, NULL, in_ms(timeout_ms), NULL);
    grpc_slice_unref(path);
    const grpc_op open[] = {
        { .op = GRPC_OP_SEND_INITIAL_METADATA },
    };
    const grpc_op status[] = {
        { .op = GRPC_OP_RECV_INITIAL_METADATA,
          .data.recv_initial_metadata.recv_initial_metadata = &stream->initial },
        { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
          .data.recv_status_on_client = { .trailing_metadata = &stream->trailing,
                                          .status = &stream->status,
                                          .status_details = &stream->details } },
    };
    bool started = batch_start(stream, TAG_STATUS, status, ARRAY_LEN(status)) &&
                   batch_start(stream, TAG_SEND, open, ARRAY_LEN(open)) && receive_start(stream);
    if (!started) {
        (void)raw_stream_free(stream); /* always NULL */
        return err_set(err, ERR_INTERNAL, "gRPC refuses the call %s", method);
    }
    *ret = stream;
    return 0;
}

struct raw_stream *raw_stream_free(struct raw_stream *stream)
{
    if (!stream)
        return NULL;
    if (stream->pending[TAG_STATUS])
        (void)grpc_call_cancel(stream->call, NULL); /* it may have ended meanwhile */
    for (int tag = 0; tag < TAG_COUNT; tag++)
        while (stream->pending[tag])
            (void)pump(stream, (enum tag)tag, 1000); /* a cancelled call ends its batches */
    grpc_call_unref(stream->call);
    grpc_completion_queue_shutdown(stream->queue);
    while (grpc_completion_queue_next(stream->queue, in_ms(1000), NULL).type != GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(stream->queue);
    grpc_channel_destroy(stream->channel);
    if (stream->received)
        grpc_byte_buffer_destroy(stream->received);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    grpc_slice_unref(stream->details);
    mem_free(stream->message);
    mem_free(stream);
    grpc_shutdown_blocking();
    return NULL;
}

static int send_batch(struct raw_stream *stream, const grpc_op *op, int64_t limit_ms,
                      struct err *err)
{
    if (!pump(stream, TAG_SEND, limit_ms))
        return err_set(err, ERR_UNAVAILABLE, "an earlier message is not sent yet");
    if (!stream->ok[TAG_SEND] || !batch_start(stream, TAG_SEND, op, 1))
        return err_set(err, ERR_UNAVAILABLE, "the stream takes no more messages");
    if (!pump(stream, TAG_SEND, limit_ms))
        return err_set(err, ERR_UNAVAILABLE, "the message was not sent in time");
    return stream->ok[TAG_SEND] ? 0 : err_set(err, ERR_UNAVAILABLE, "the stream has ended");
}

int raw_stream_send(struct raw_stream *stream, const void *data, size_t size, int64_t limit_ms,
                    struct err *err)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(size ? data : "", size);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    const grpc_op op = { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer };
    int rc = send_batch(stream, &op, limit_ms, err);
    grpc_byte_buffer_destroy(buffer);
    return rc;
}

int raw_stream_half_close(struct raw_stream *stream, int64_t limit_ms, struct err *err)
{
    const grpc_op op = { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT };
    return send_batch(stream, &op, limit_ms, err);
}

int raw_stream_receive(struct raw_stream *stream, int64_t limit_ms, struct bytes *ret)
{
    if (!pump(stream, TAG_RECEIVE, limit_ms))
        return 0;
    if (!stream->ok[TAG_RECEIVE] || !stream->received)
        return -1;
    grpc_byte_buffer_reader reader;
    struct bytes message = { NULL, 0 };
    if (!grpc_byte_buffer_reader_init(&reader, stream->received))
        return -1;
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    int rc =
        mem_bytes_copy(GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice), &message) ? -1 : 1;
    grpc_slice_unref(slice);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(stream->received);
    stream->received = NULL;
    if (rc == 1)
        *ret = message;
    (void)receive_start(stream); /* refused: the next receive says that the stream has ended */
    return rc;
}

int raw_stream_status(struct raw_stream *stream, int64_t limit_ms, const char **ret_message)
{
    int64_t until = clock_mono_ms(&clock_system) + limit_ms;
    while (!pump(stream, TAG_STATUS, 10)) {
        struct bytes message = { NULL, 0 };
        if (clock_mono_ms(&clock_system) >= until)
            return -1;
        /* Messages that nobody took hold the status back. */
        if (raw_stream_receive(stream, 0, &message) == 1)
            mem_free(message.data);
    }
    if (!stream->message)
        stream->message = mem_strndup((const char *)GRPC_SLICE_START_PTR(stream->details),
                                      GRPC_SLICE_LENGTH(stream->details));
    if (ret_message)
        *ret_message = stream->message ? stream->message : "";
    return (int)stream->status;
}

int raw_call(const char *address, const char *method, const void *data, size_t size,
             int64_t timeout_ms, struct bytes *ret_reply)
{
    struct raw_stream *stream = NULL;
    struct err err;
    struct bytes reply = { NULL, 0 };
    if (raw_stream_open(address, method, timeout_ms, &stream, &err) != 0)
        return UNSTARTED;
    /* A server that refuses early ends the call while we still send: the status says it. */
    bool sent = raw_stream_send(stream, data, size, timeout_ms, &err) == 0 &&
                raw_stream_half_close(stream, timeout_ms, &err) == 0;
    int got = raw_stream_receive(stream, sent ? timeout_ms : 0, &reply);
    int status = raw_stream_status(stream, timeout_ms, NULL);
    if (got == 1 && status == 0 && ret_reply)
        *ret_reply = reply;
    else if (got == 1)
        mem_free(reply.data);
    (void)raw_stream_free(stream); /* always NULL */
    return status;
}
