#include "transport.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static const char method[] = "/saga.v1.WorkerService/Work";

/* Tags are addresses of these: what completed. */
enum tag { TAG_HEADERS, TAG_STATUS, TAG_RECEIVE, TAG_SEND, TAG_HALF_CLOSE, TAG_WAKE, TAG_COUNT };
static char tags[TAG_COUNT];

struct transport {
    grpc_completion_queue *queue;
    pthread_mutex_t lock; /* around `call`, `wake_pending` and each start of a batch */
    bool wake_pending;
    grpc_channel *channel;
    grpc_call *call;
    int outstanding; /* batches; the call goes when it is 0. Wake-ups are counted too */
    bool ended;
    grpc_byte_buffer *received, *sending;
    grpc_metadata_array headers, trailers;
    grpc_status_code status;
    grpc_slice details;
};

int transport_new(struct transport **ret_transport, struct err *err)
{
    struct transport *transport = mem_calloc(1, sizeof *transport);
    if (!transport)
        return err_set(err, ERR_NOMEM, "transport");
    grpc_init();
    transport->queue = grpc_completion_queue_create_for_next(NULL);
    pthread_mutex_init(&transport->lock, NULL);
    *ret_transport = transport;
    return 0;
}

struct transport *transport_free(struct transport *transport)
{
    if (!transport)
        return NULL;
    transport_close(transport, 0);
    grpc_completion_queue_shutdown(transport->queue);
    while (grpc_completion_queue_next(transport->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL)
               .type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(transport->queue);
    pthread_mutex_destroy(&transport->lock);
    mem_free(transport);
    grpc_shutdown_blocking();
    return NULL;
}

static grpc_arg int_arg(const char *key, int value)
{
    grpc_arg arg = { .type = GRPC_ARG_INTEGER };
    arg.key = (char *)(uintptr_t)key; /* gRPC only reads it */
    arg.value.integer = value;
    return arg;
}

static grpc_channel *channel_create(const char *address, int message_bytes_max)
{
    grpc_arg items[] = {
        int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        int_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        int_arg(GRPC_ARG_ENABLE_RETRIES, 0),
        int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 10000),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000),
        int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0), /* no limit: the stream may be idle */
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, message_bytes_max),
    };
    grpc_channel_args channel_args = { .num_args = ARRAY_LEN(items), .args = items };
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(address, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

static bool start(struct transport *transport, grpc_op *op, size_t count, enum tag tag)
{
    pthread_mutex_lock(&transport->lock);
    grpc_call_error rc = grpc_call_start_batch(transport->call, op, count, &tags[tag], NULL);
    if (rc == GRPC_CALL_OK)
        transport->outstanding++;
    pthread_mutex_unlock(&transport->lock);
    return rc == GRPC_CALL_OK;
}

static bool start_receive(struct transport *transport)
{
    grpc_op batch = { .op = GRPC_OP_RECV_MESSAGE };
    batch.data.recv_message.recv_message = &transport->received;
    return start(transport, &batch, 1, TAG_RECEIVE);
}

static bool start_call(struct transport *transport)
{
    grpc_op headers[2] = { { .op = GRPC_OP_SEND_INITIAL_METADATA },
                           { .op = GRPC_OP_RECV_INITIAL_METADATA } };
    headers[1].data.recv_initial_metadata.recv_initial_metadata = &transport->headers;
    grpc_op status = { .op = GRPC_OP_RECV_STATUS_ON_CLIENT };
    status.data.recv_status_on_client.trailing_metadata = &transport->trailers;
    status.data.recv_status_on_client.status = &transport->status;
    status.data.recv_status_on_client.status_details = &transport->details;
    return start(transport, &status, 1, TAG_STATUS) && start(transport, headers, 2, TAG_HEADERS) &&
           start_receive(transport);
}

int transport_open(struct transport *transport, const char *address, int message_bytes_max,
                   struct err *err)
{
    transport->channel = channel_create(address, message_bytes_max);
    transport->ended = false;
    transport->status = GRPC_STATUS_UNKNOWN;
    transport->details = grpc_empty_slice();
    transport->received = transport->sending = NULL;
    grpc_metadata_array_init(&transport->headers);
    grpc_metadata_array_init(&transport->trailers);
    grpc_call *call = grpc_channel_create_call(
        transport->channel, NULL, GRPC_PROPAGATE_DEFAULTS, transport->queue,
        grpc_slice_from_static_string(method), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    pthread_mutex_lock(&transport->lock);
    transport->call = call;
    pthread_mutex_unlock(&transport->lock);
    if (!call || !start_call(transport)) {
        transport_close(transport, 0);
        return err_set(err, ERR_UNAVAILABLE, "%s: the stream cannot be opened", address);
    }
    return 0;
}

int transport_send(struct transport *transport, const struct bytes *message, struct err *err)
{
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)message->data, message->size);
    transport->sending = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op batch = { .op = GRPC_OP_SEND_MESSAGE };
    batch.data.send_message.send_message = transport->sending;
    if (start(transport, &batch, 1, TAG_SEND))
        return 0;
    grpc_byte_buffer_destroy(transport->sending);
    transport->sending = NULL;
    return err_set(err, ERR_UNAVAILABLE, "the stream takes no message");
}

static int read_message(struct transport *transport, struct bytes *ret_message)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, transport->received))
        return -1;
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    int rc = mem_bytes_copy(GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all), ret_message);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return rc;
}

static void set_status(struct transport *transport, struct err *err)
{
    char *details = grpc_slice_to_c_string(transport->details);
    (void)err_set(err, ERR_UNAVAILABLE, "status %d: %s", (int)transport->status, details);
    gpr_free(details);
}

static enum transport_event on_receive(struct transport *transport, struct bytes *ret_message)
{
    if (!transport->received)
        return TRANSPORT_NOTHING; /* the end: the status follows */
    int rc = read_message(transport, ret_message);
    grpc_byte_buffer_destroy(transport->received);
    transport->received = NULL;
    if (rc == 0 && start_receive(transport))
        return TRANSPORT_MESSAGE;
    /* Out of memory, or the call is over: its status says so. */
    if (rc == 0) {
        mem_free(ret_message->data);
        *ret_message = (struct bytes){ .data = NULL, .size = 0 };
    }
    (void)grpc_call_cancel(transport->call, NULL); /* thread-safe, cannot fail usefully */
    return TRANSPORT_NOTHING;
}

enum transport_event transport_wait(struct transport *transport, int64_t wait_ms,
                                    struct bytes *ret_message, struct err *err)
{
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(wait_ms, GPR_TIMESPAN));
    if (!transport->ended) {
        grpc_event event = grpc_completion_queue_next(transport->queue, deadline, NULL);
        if (event.type != GRPC_OP_COMPLETE)
            return TRANSPORT_NOTHING;
        pthread_mutex_lock(&transport->lock);
        transport->outstanding--;
        if (event.tag == &tags[TAG_WAKE])
            transport->wake_pending = false;
        pthread_mutex_unlock(&transport->lock);
        switch ((enum tag)((char *)event.tag - tags)) {
        case TAG_RECEIVE:
            return on_receive(transport, ret_message);
        case TAG_SEND:
            grpc_byte_buffer_destroy(transport->sending);
            transport->sending = NULL;
            return TRANSPORT_SENT; /* if it failed, the status follows */
        case TAG_STATUS:
            transport->ended = true;
            break;
        default:
            return TRANSPORT_NOTHING;
        }
    }
    set_status(transport, err);
    return TRANSPORT_ENDED;
}

static bool drain_queue(struct transport *transport, int64_t wait_ms)
{
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(wait_ms, GPR_TIMESPAN));
    for (;;) {
        pthread_mutex_lock(&transport->lock);
        bool empty = transport->outstanding == 0;
        pthread_mutex_unlock(&transport->lock);
        if (empty)
            return true;
        grpc_event event = grpc_completion_queue_next(transport->queue, deadline, NULL);
        if (event.type != GRPC_OP_COMPLETE)
            return false;
        pthread_mutex_lock(&transport->lock);
        transport->outstanding--;
        pthread_mutex_unlock(&transport->lock);
        if (event.tag == &tags[TAG_STATUS])
            transport->ended = true;
        if (event.tag == &tags[TAG_RECEIVE] && transport->received) {
            grpc_byte_buffer_destroy(transport->received);
            transport->received = NULL;
            if (!start_receive(transport))
                (void)grpc_call_cancel(transport->call, NULL); /* it is over already */
        }
    }
}

void transport_close(struct transport *transport, int64_t linger_ms)
{
    pthread_mutex_lock(&transport->lock);
    grpc_call *call = transport->call;
    pthread_mutex_unlock(&transport->lock);
    if (call) {
        grpc_op batch = { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT };
        bool clean = linger_ms > 0 && !transport->ended &&
                     start(transport, &batch, 1, TAG_HALF_CLOSE) &&
                     drain_queue(transport, linger_ms);
        if (!clean) {
            (void)grpc_call_cancel(call, NULL); /* thread-safe, cannot fail usefully */
            /* A cancelled call completes all its batches. */
            while (!drain_queue(transport, 1000)) {
            }
        }
        pthread_mutex_lock(&transport->lock);
        transport->call = NULL;
        transport->wake_pending = false;
        pthread_mutex_unlock(&transport->lock);
        /* Only a wake-up can have been started since the queue was empty. */
        while (!drain_queue(transport, 1000)) {
        }
        grpc_call_unref(call);
    }
    if (transport->sending)
        grpc_byte_buffer_destroy(transport->sending);
    transport->sending = NULL;
    grpc_metadata_array_destroy(&transport->headers);
    grpc_metadata_array_destroy(&transport->trailers);
    grpc_slice_unref(transport->details);
    transport->details = grpc_empty_slice();
    memset(&transport->headers, 0, sizeof transport->headers);
    memset(&transport->trailers, 0, sizeof transport->trailers);
    if (transport->channel)
        grpc_channel_destroy(transport->channel);
    transport->channel = NULL;
}

void transport_wake(struct transport *transport)
{
    pthread_mutex_lock(&transport->lock);
    if (transport->call && !transport->wake_pending &&
        grpc_call_start_batch(transport->call, NULL, 0, &tags[TAG_WAKE], NULL) == GRPC_CALL_OK) {
        transport->wake_pending = true;
        transport->outstanding++;
    }
    pthread_mutex_unlock(&transport->lock);
}
