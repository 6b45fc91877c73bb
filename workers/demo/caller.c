#include "caller.h"

#include "base/clock.h"
#include "base/mem.h"
#include "message.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <string.h>

struct caller {
    grpc_channel *channel;
};

int caller_create(const char *address, struct caller **ret, struct err *err)
{
    /* No retries of any kind, no proxy: one call is one request on one connection. */
    grpc_arg args[] = {
        { .type = GRPC_ARG_INTEGER, .key = "grpc.enable_retries", .value.integer = 0 },
        { .type = GRPC_ARG_INTEGER,
          .key = "grpc.service_config_disable_resolution",
          .value.integer = 1 },
        { .type = GRPC_ARG_INTEGER, .key = "grpc.enable_http_proxy", .value.integer = 0 },
        { .type = GRPC_ARG_INTEGER,
          .key = "grpc.initial_reconnect_backoff_ms",
          .value.integer = 100 },
        { .type = GRPC_ARG_INTEGER, .key = "grpc.max_reconnect_backoff_ms", .value.integer = 1000 },
    };
    grpc_channel_args channel_args = { ARRAY_LEN(args), args };
    struct caller *caller = mem_calloc(1, sizeof *caller);
    if (!caller)
        return err_set(err, ERR_NOMEM, "caller");
    grpc_init();
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    caller->channel = grpc_channel_create(address, plain, &channel_args);
    grpc_channel_credentials_release(plain);
    *ret = caller;
    return 0;
}

struct caller *caller_free(struct caller *caller)
{
    if (caller) {
        grpc_channel_destroy(caller->channel);
        grpc_shutdown();
        mem_free(caller);
    }
    return NULL;
}

static gpr_timespec in_ms(int64_t ms)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

static void drop_queue(grpc_completion_queue *cq)
{
    grpc_completion_queue_shutdown(cq);
    while (grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(cq);
}

bool caller_connect(struct caller *caller, int64_t timeout_ms)
{
    int64_t until_ms = clock_mono_ms(&clock_system) + timeout_ms;
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_connectivity_state state = grpc_channel_check_connectivity_state(caller->channel, 1);
    while (state != GRPC_CHANNEL_READY) {
        int64_t left_ms = until_ms - clock_mono_ms(&clock_system);
        if (left_ms <= 0)
            break;
        grpc_channel_watch_connectivity_state(caller->channel, state, in_ms(left_ms), cq, caller);
        (void)grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        state = grpc_channel_check_connectivity_state(caller->channel, 1);
    }
    drop_queue(cq);
    return state == GRPC_CHANNEL_READY;
}

static void read_reply(grpc_byte_buffer *message, struct caller_reply *reply)
{
    grpc_byte_buffer_reader reader;
    if (!message || !grpc_byte_buffer_reader_init(&reader, message)) {
        reply->data.failed = true;
        return;
    }
    grpc_slice data = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    buf_append(&reply->data, GRPC_SLICE_START_PTR(data), GRPC_SLICE_LENGTH(data));
    grpc_slice_unref(data);
}

static void read_status(grpc_slice details, struct caller_reply *reply)
{
    size_t size = GRPC_SLICE_LENGTH(details);
    if (size > sizeof reply->message - 1)
        size = sizeof reply->message - 1;
    memcpy(reply->message, GRPC_SLICE_START_PTR(details), size);
    reply->message[size] = '\0';
}

/* One unary call, begun and ended here; always gives a status, at the deadline at the latest. */
static grpc_status_code call_once(struct caller *caller, const char *path,
                                  const struct buf *request, int64_t until_ms,
                                  struct caller_reply *reply)
{
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_call *call = grpc_channel_create_call(
        caller->channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, grpc_slice_from_static_string(path),
        NULL, in_ms(until_ms - clock_mono_ms(&clock_system)), NULL);
    grpc_slice payload = grpc_slice_from_copied_buffer(buf_cstr(request), request->size);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&payload, 1);
    grpc_byte_buffer *answer = NULL;
    grpc_metadata_array initial, trailing;
    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    grpc_slice details = grpc_empty_slice();
    grpc_status_code status = GRPC_STATUS_UNKNOWN;
    grpc_op ops[6] = {
        { .op = GRPC_OP_SEND_INITIAL_METADATA },
        { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message },
        { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
        { .op = GRPC_OP_RECV_INITIAL_METADATA,
          .data.recv_initial_metadata.recv_initial_metadata = &initial },
        { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &answer },
        { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
          .data.recv_status_on_client = { .trailing_metadata = &trailing,
                                          .status = &status,
                                          .status_details = &details } },
    };
    if (grpc_call_start_batch(call, ops, ARRAY_LEN(ops), call, NULL) == GRPC_CALL_OK)
        (void)grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    if (status == GRPC_STATUS_OK)
        read_reply(answer, reply);
    read_status(details, reply);
    grpc_slice_unref(details);
    grpc_metadata_array_destroy(&initial);
    grpc_metadata_array_destroy(&trailing);
    if (answer)
        grpc_byte_buffer_destroy(answer);
    grpc_byte_buffer_destroy(message);
    grpc_slice_unref(payload);
    grpc_call_unref(call);
    drop_queue(cq);
    return status;
}

static void set_result(struct caller_reply *reply, enum caller_result result, const char *code)
{
    reply->result = result;
    (void)snprintf(reply->code, sizeof reply->code, "%s", code); /* they fit */
}

/* What a status says about the effect. A service sends INVALID_ARGUMENT and UNIMPLEMENTED before it
 * does anything; every other one may come from the road. */
static void set_result_of(struct caller_reply *reply, grpc_status_code status)
{
    switch ((int)status) {
    case GRPC_STATUS_OK:
        if (reply->data.failed)
            set_result(reply, CALLER_UNKNOWN, "UNREADABLE_REPLY");
        else
            set_result(reply, CALLER_ANSWERED, "");
        return;
    case GRPC_STATUS_INVALID_ARGUMENT:
        set_result(reply, CALLER_INVALID, "INVALID_ARGUMENT");
        return;
    case GRPC_STATUS_UNIMPLEMENTED:
        set_result(reply, CALLER_INVALID, "UNIMPLEMENTED");
        return;
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        set_result(reply, CALLER_UNKNOWN, "DEADLINE_EXCEEDED");
        (void)snprintf(reply->message, sizeof reply->message, "no answer in time"); /* fits */
        return;
    case GRPC_STATUS_UNAVAILABLE:
        set_result(reply, CALLER_UNKNOWN, "CONNECTION_LOST");
        return;
    case GRPC_STATUS_INTERNAL:
        set_result(reply, CALLER_UNKNOWN, "INTERNAL");
        return;
    default:
        set_result(reply, CALLER_UNKNOWN, "SERVICE_ERROR");
        return;
    }
}

int64_t caller_until_ms(int64_t timeout_ms)
{
    return clock_mono_ms(&clock_system) + timeout_ms;
}

void caller_call(struct caller *caller, const char *path, const ProtobufCMessage *request,
                 int64_t until_ms, struct caller_reply *ret)
{
    CLEANUP(buf_done) struct buf packed = { 0 };
    *ret = (struct caller_reply){ 0 };
    if (!message_pack(request, &packed)) {
        set_result(ret, CALLER_NOT_SENT, "OUT_OF_MEMORY");
        return;
    }
    /* What makes NOT_SENT certain: without a connection no call is begun. */
    if (!caller_connect(caller, 0)) {
        set_result(ret, CALLER_NOT_SENT, "AWAY");
        (void)snprintf(ret->message, sizeof ret->message, "no connection"); /* fits */
        return;
    }
    set_result_of(ret, call_once(caller, path, &packed, until_ms, ret));
}
