#include "risk_client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"

#include <demo/risk.pb-c.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <string.h>

struct risk_client {
    grpc_channel *channel;
};

struct reply {
    grpc_status_code status;
    char message[256];
    struct buf data;
};

int risk_client_create(const char *address, struct risk_client **ret, struct err *err)
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
    struct risk_client *client = mem_calloc(1, sizeof *client);
    if (!client)
        return err_set(err, ERR_NOMEM, "risk client");
    grpc_init();
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    client->channel = grpc_channel_create(address, plain, &channel_args);
    grpc_channel_credentials_release(plain);
    *ret = client;
    return 0;
}

struct risk_client *risk_client_free(struct risk_client *client)
{
    if (client) {
        grpc_channel_destroy(client->channel);
        grpc_shutdown();
        mem_free(client);
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

bool risk_client_connect(struct risk_client *client, int64_t timeout_ms)
{
    int64_t until_ms = clock_mono_ms(&clock_system) + timeout_ms;
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_connectivity_state state = grpc_channel_check_connectivity_state(client->channel, 1);
    while (state != GRPC_CHANNEL_READY) {
        int64_t left_ms = until_ms - clock_mono_ms(&clock_system);
        if (left_ms <= 0)
            break;
        grpc_channel_watch_connectivity_state(client->channel, state, in_ms(left_ms), cq, client);
        (void)grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        state = grpc_channel_check_connectivity_state(client->channel, 1);
    }
    drop_queue(cq);
    return state == GRPC_CHANNEL_READY;
}

static void read_reply(grpc_byte_buffer *message, struct reply *reply)
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

static void read_status(grpc_slice details, struct reply *reply)
{
    size_t size = GRPC_SLICE_LENGTH(details);
    if (size > sizeof reply->message - 1)
        size = sizeof reply->message - 1;
    memcpy(reply->message, GRPC_SLICE_START_PTR(details), size);
    reply->message[size] = '\0';
}

/* One unary call, begun and ended here; always gives a status, at the deadline at the latest. */
static void call_once(struct risk_client *client, const char *path, const struct buf *request,
                      int64_t timeout_ms, struct reply *reply)
{
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_call *call = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
                                               grpc_slice_from_static_string(path), NULL,
                                               in_ms(timeout_ms), NULL);
    grpc_slice payload = grpc_slice_from_copied_buffer(buf_cstr(request), request->size);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&payload, 1);
    grpc_byte_buffer *answer = NULL;
    grpc_metadata_array initial, trailing;
    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    grpc_slice details = grpc_empty_slice();
    reply->status = GRPC_STATUS_UNKNOWN;
    grpc_op ops[6] = {
        { .op = GRPC_OP_SEND_INITIAL_METADATA },
        { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message },
        { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
        { .op = GRPC_OP_RECV_INITIAL_METADATA,
          .data.recv_initial_metadata.recv_initial_metadata = &initial },
        { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &answer },
        { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
          .data.recv_status_on_client = { .trailing_metadata = &trailing,
                                          .status = &reply->status,
                                          .status_details = &details } },
    };
    if (grpc_call_start_batch(call, ops, ARRAY_LEN(ops), call, NULL) == GRPC_CALL_OK)
        (void)grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    if (reply->status == GRPC_STATUS_OK)
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
}

static struct risk_outcome outcome_of(enum risk_result result, const char *code,
                                      const char *message)
{
    struct risk_outcome outcome = { .result = result };
    (void)snprintf(outcome.code, sizeof outcome.code, "%s", code); /* a cut text is fine */
    (void)snprintf(outcome.message, sizeof outcome.message, "%s", message);
    return outcome;
}

/* What a status other than OK says about the effect. The service sends INVALID_ARGUMENT and
 * UNIMPLEMENTED before it does anything; every other one may come from the road. */
static struct risk_outcome outcome_of_status(const struct reply *reply)
{
    switch ((int)reply->status) {
    case GRPC_STATUS_INVALID_ARGUMENT:
        return outcome_of(RISK_INVALID, "INVALID_ARGUMENT", reply->message);
    case GRPC_STATUS_UNIMPLEMENTED:
        return outcome_of(RISK_INVALID, "UNIMPLEMENTED", reply->message);
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        return outcome_of(RISK_UNKNOWN, "DEADLINE_EXCEEDED", "risk did not answer in time");
    case GRPC_STATUS_UNAVAILABLE:
        return outcome_of(RISK_UNKNOWN, "CONNECTION_LOST", reply->message);
    default:
        return outcome_of(RISK_UNKNOWN, "RISK_ERROR", reply->message);
    }
}

static struct risk_outcome outcome_of_verdict(const Demo__Risk__V1__NotifyReply *reply,
                                              const char *our_key)
{
    struct risk_outcome outcome;
    switch ((int)reply->verdict) {
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_ACCEPTED:
        outcome = outcome_of(RISK_ACCEPTED, "", reply->message);
        break;
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_REFUSED:
        outcome = outcome_of(RISK_REFUSED, "REFUSED", reply->message);
        break;
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_ALREADY_EXISTS:
        outcome = outcome_of(RISK_ALREADY_EXISTS, "ALREADY_EXISTS", reply->message);
        outcome.ours = strcmp(reply->idempotency_key, our_key) == 0;
        break;
    case DEMO__RISK__V1__NOTIFY_REPLY__VERDICT__VERDICT_TRY_LATER:
        outcome = outcome_of(RISK_TRY_LATER, "TRY_LATER", reply->message);
        break;
    default:
        outcome = outcome_of(RISK_UNKNOWN, "UNKNOWN_VERDICT", "risk answered what nobody knows");
        break;
    }
    (void)snprintf(outcome.reference, sizeof outcome.reference, "%s", reply->reference);
    return outcome;
}

static bool behaviour_of(const char *name, Demo__Risk__V1__Behaviour *ret)
{
    char full[64];
    (void)snprintf(full, sizeof full, "BEHAVIOUR_%s", name); /* a cut name is no known name */
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(&demo__risk__v1__behaviour__descriptor, full);
    if (!value)
        return false;
    *ret = (Demo__Risk__V1__Behaviour)value->value;
    return true;
}

static bool pack_message(const ProtobufCMessage *message, struct buf *buf)
{
    uint8_t *room = buf_room(buf, protobuf_c_message_get_packed_size(message) + 1);
    if (room)
        buf_added(buf, protobuf_c_message_pack(message, room));
    return room != NULL;
}

static char *borrow(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's fields are not const; packing only reads */
}

/* Sends and gives the reply; when it could not be sent, *ret_failed says why. */
static bool exchange(struct risk_client *client, const char *path, const ProtobufCMessage *message,
                     int64_t timeout_ms, struct reply *reply, struct risk_outcome *ret_failed)
{
    CLEANUP(buf_done) struct buf request = { 0 };
    if (!pack_message(message, &request)) {
        *ret_failed = outcome_of(RISK_NOT_SENT, "OUT_OF_MEMORY", "request not built");
        return false;
    }
    /* What makes NOT_SENT certain: without a connection no call is begun. */
    if (!risk_client_connect(client, 0)) {
        *ret_failed = outcome_of(RISK_NOT_SENT, "RISK_AWAY", "no connection to the risk service");
        return false;
    }
    call_once(client, path, &request, timeout_ms, reply);
    return true;
}

static void notify_reply_p(Demo__Risk__V1__NotifyReply **reply)
{
    demo__risk__v1__notify_reply__free_unpacked(*reply, NULL);
}

struct risk_outcome risk_client_notify(struct risk_client *client,
                                       const struct risk_notification *notification,
                                       int64_t timeout_ms)
{
    Demo__Risk__V1__NotifyRequest request = DEMO__RISK__V1__NOTIFY_REQUEST__INIT;
    if (!behaviour_of(notification->behaviour, &request.behaviour))
        return outcome_of(RISK_INVALID, "BEHAVIOUR", "the behaviour has no such name");
    request.idempotency_key = borrow(notification->idempotency_key);
    request.settlement_id = borrow(notification->settlement_id);
    request.account = notification->account;
    request.amount_cents = notification->amount_cents;
    struct reply reply = { 0 };
    struct risk_outcome outcome;
    if (!exchange(client, "/demo.risk.v1.RiskService/Notify", &request.base, timeout_ms, &reply,
                  &outcome))
        return outcome;
    CLEANUP(buf_done) struct buf data = reply.data;
    if (reply.status != GRPC_STATUS_OK)
        return outcome_of_status(&reply);
    CLEANUP(notify_reply_p) Demo__Risk__V1__NotifyReply *message = NULL;
    if (!data.failed)
        message = demo__risk__v1__notify_reply__unpack(NULL, data.size, data.data);
    if (!message)
        return outcome_of(RISK_UNKNOWN, "UNREADABLE_REPLY", "risk's reply cannot be read");
    return outcome_of_verdict(message, notification->idempotency_key);
}

struct risk_outcome risk_client_withdraw(struct risk_client *client, const char *idempotency_key,
                                         const char *settlement_id, int64_t timeout_ms)
{
    Demo__Risk__V1__WithdrawRequest request = DEMO__RISK__V1__WITHDRAW_REQUEST__INIT;
    request.idempotency_key = borrow(idempotency_key);
    request.settlement_id = borrow(settlement_id);
    struct reply reply = { 0 };
    struct risk_outcome outcome;
    if (!exchange(client, "/demo.risk.v1.RiskService/Withdraw", &request.base, timeout_ms, &reply,
                  &outcome))
        return outcome;
    buf_done(&reply.data); /* an OK is the whole answer */
    return reply.status == GRPC_STATUS_OK ? outcome_of(RISK_ACCEPTED, "", "")
                                          : outcome_of_status(&reply);
}
