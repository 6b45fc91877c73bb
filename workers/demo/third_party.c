#include "third_party.h"

#include "base/clock.h"
#include "base/heap.h"
#include "base/mem.h"
#include "base/rng.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    PULSE_MS = 200, /* the longest sleep: a signal is noticed within it */
    STOP_MS = 2000, /* calls that are still open then are cancelled */
    CALLS_MAX = 10000,
};

struct op { /* a completion-queue tag */
    enum op_kind { OP_ACCEPT, OP_RECEIVE, OP_CLOSE, OP_SEND, OP_SHUTDOWN } kind;
    struct call *call;
};

struct call {
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request; /* owned */
    struct buf reply;
    bool fails;           /* the reply is the message of an error */
    struct heap_node due; /* in service->due while an answer waits for its time */
    int cancelled;
    unsigned pending; /* batches under way; freed at 0 */
    struct op accept, receive, close, send;
};

struct service {
    grpc_server *server;
    grpc_completion_queue *cq;
    struct heap due;
    const struct third_party *party;
    struct op shutdown;
    size_t calls; /* beside the one that waits to be accepted */
    bool stopping, failed;
};

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

static void call_free(struct service *service, struct call *call)
{
    heap_remove(&service->due, &call->due);
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    if (call->request)
        grpc_byte_buffer_destroy(call->request);
    if (call->call)
        grpc_call_unref(call->call);
    buf_done(&call->reply);
    mem_free(call);
}

/* False when no further call can be taken: the service then ends instead of going deaf. */
static bool accept_next(struct service *service)
{
    struct call *call = mem_calloc(1, sizeof *call);
    if (!call)
        return false;
    call->accept = (struct op){ OP_ACCEPT, call };
    call->receive = (struct op){ OP_RECEIVE, call };
    call->close = (struct op){ OP_CLOSE, call };
    call->send = (struct op){ OP_SEND, call };
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    call->pending = 1;
    if (grpc_server_request_call(service->server, &call->call, &call->details, &call->metadata,
                                 service->cq, service->cq, &call->accept) == GRPC_CALL_OK)
        return true;
    call_free(service, call);
    return false;
}

static void start(struct call *call, const grpc_op *ops, size_t count, struct op *tag)
{
    if (grpc_call_start_batch(call->call, ops, count, tag, NULL) == GRPC_CALL_OK)
        call->pending++;
    else
        (void)grpc_call_cancel(call->call, NULL); /* the close batch reports it */
}

static void answer(struct call *call, grpc_status_code status, const char *message)
{
    grpc_slice text = grpc_slice_from_copied_string(message);
    grpc_slice payload = grpc_slice_from_copied_buffer(buf_cstr(&call->reply), call->reply.size);
    grpc_byte_buffer *reply = grpc_raw_byte_buffer_create(&payload, 1);
    grpc_op ops[3] = { { .op = GRPC_OP_SEND_INITIAL_METADATA } };
    size_t count = 1;
    if (status == GRPC_STATUS_OK) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = reply;
    }
    ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[count].data.send_status_from_server.status = status;
    ops[count++].data.send_status_from_server.status_details = &text;
    start(call, ops, count, &call->send);
    grpc_byte_buffer_destroy(reply);
    grpc_slice_unref(payload);
    grpc_slice_unref(text);
}

static bool method_of(const struct service *service, const struct call *call, size_t *ret)
{
    for (size_t i = 0; i < service->party->method_count; i++) {
        if (grpc_slice_str_cmp(call->details.method, service->party->methods[i]) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

static void on_accept(struct service *service, struct call *call, bool ok)
{
    call->pending--;
    if (!ok) { /* the server shuts down */
        call_free(service, call);
        return;
    }
    service->calls++;
    if (!accept_next(service))
        stop_asked = 1;
    grpc_op close = { .op = GRPC_OP_RECV_CLOSE_ON_SERVER };
    close.data.recv_close_on_server.cancelled = &call->cancelled;
    start(call, &close, 1, &call->close);
    size_t method;
    if (!method_of(service, call, &method)) {
        answer(call, GRPC_STATUS_UNIMPLEMENTED, "unknown method");
    } else if (service->calls > CALLS_MAX) {
        answer(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "too many calls");
    } else {
        grpc_op receive = { .op = GRPC_OP_RECV_MESSAGE };
        receive.data.recv_message.recv_message = &call->request;
        start(call, &receive, 1, &call->receive);
    }
}

static void on_receive(struct service *service, struct call *call, bool ok)
{
    if (!ok || !call->request) {
        if (!call->cancelled)
            answer(call, GRPC_STATUS_INVALID_ARGUMENT, "no message");
        return;
    }
    size_t method;
    grpc_byte_buffer_reader reader;
    if (!method_of(service, call, &method) ||
        !grpc_byte_buffer_reader_init(&reader, call->request)) {
        answer(call, GRPC_STATUS_INTERNAL, "unreadable message");
        return;
    }
    grpc_slice data = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    const struct third_party *party = service->party;
    struct third_party_answer said = { 0 };
    struct err err;
    int64_t now_ms = clock_mono_ms(&clock_system);
    int rc = party->decide(party->ctx, method, GRPC_SLICE_START_PTR(data), GRPC_SLICE_LENGTH(data),
                           now_ms, &said, &call->reply, &err);
    grpc_slice_unref(data);
    call->fails = said.fails;
    if (rc) {
        answer(call, rc == ERR_INVALID ? GRPC_STATUS_INVALID_ARGUMENT : GRPC_STATUS_INTERNAL,
               err.msg);
    } else if (said.delay_ms != THIRD_PARTY_NEVER &&
               heap_set(&service->due, &call->due, now_ms + said.delay_ms)) {
        answer(call, GRPC_STATUS_INTERNAL, "out of memory"); /* the effect stays: UNKNOWN there */
    }
}

static void on_event(struct service *service, struct op *op, bool ok)
{
    struct call *call = op->call;
    switch (op->kind) {
    case OP_ACCEPT:
        on_accept(service, call, ok);
        return;
    case OP_SHUTDOWN:
        service->stopping = true;
        return;
    case OP_RECEIVE:
        on_receive(service, call, ok);
        break;
    case OP_CLOSE:
        if (call->cancelled) /* nobody waits any more; what took effect stays */
            heap_remove(&service->due, &call->due);
        break;
    case OP_SEND:
        break; /* gone, or the caller has: either way the call is over */
    }
    if (--call->pending == 0) {
        service->calls--;
        call_free(service, call);
    }
}

static void send_due(struct service *service)
{
    int64_t now_ms = clock_mono_ms(&clock_system);
    for (;;) {
        struct heap_node *top = heap_top(&service->due);
        if (!top || top->key > now_ms)
            return;
        struct call *call = CONTAINER(top, struct call, due);
        heap_remove(&service->due, top);
        answer(call, call->fails ? GRPC_STATUS_INTERNAL : GRPC_STATUS_OK,
               call->fails ? buf_cstr(&call->reply) : "");
    }
}

static void tick(struct service *service)
{
    const struct third_party *party = service->party;
    struct err err;
    if (service->failed || !party->tick ||
        party->tick(party->ctx, clock_mono_ms(&clock_system), &err) == 0)
        return;
    (void)fprintf(stderr, "%s: %s\n", party->program, err.msg);
    service->failed = true;
    stop_asked = 1;
}

static gpr_timespec next_wake(const struct service *service)
{
    int64_t wait_ms = PULSE_MS;
    const struct heap_node *top = heap_top(&service->due);
    if (top) {
        int64_t due_in_ms = top->key - clock_mono_ms(&clock_system);
        wait_ms = due_in_ms < 0 ? 0 : due_in_ms < wait_ms ? due_in_ms : wait_ms;
    }
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(wait_ms, GPR_TIMESPAN));
}

static void serve(struct service *service)
{
    int64_t cancel_at_ms = 0;
    while (!service->stopping) {
        grpc_event event = grpc_completion_queue_next(service->cq, next_wake(service), NULL);
        tick(service); /* before anybody can ask about what it does */
        if (event.type == GRPC_OP_COMPLETE)
            on_event(service, event.tag, event.success);
        send_due(service);
        if (!stop_asked)
            continue;
        int64_t now_ms = clock_mono_ms(&clock_system);
        if (!cancel_at_ms) {
            cancel_at_ms = now_ms + STOP_MS;
            grpc_server_shutdown_and_notify(service->server, service->cq, &service->shutdown);
        } else if (now_ms >= cancel_at_ms) {
            grpc_server_cancel_all_calls(service->server);
        }
    }
}

static int listen_on(struct service *service, const char *address)
{
    grpc_arg args[] = {
        { .type = GRPC_ARG_INTEGER, .key = "grpc.so_reuseport", .value.integer = 0 },
        { .type = GRPC_ARG_INTEGER,
          .key = "grpc.max_receive_message_length",
          .value.integer = 64 * 1024 },
        { .type = GRPC_ARG_INTEGER,
          .key = "grpc.compression_enabled_algorithms_bitset",
          .value.integer = 1 },
    };
    grpc_channel_args channel_args = { ARRAY_LEN(args), args };
    service->cq = grpc_completion_queue_create_for_next(NULL);
    service->server = grpc_server_create(&channel_args, NULL);
    grpc_server_register_completion_queue(service->server, service->cq, NULL);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(service->server, address, plain);
    grpc_server_credentials_release(plain);
    return port;
}

static void tear_down(struct service *service)
{
    grpc_server_destroy(service->server);
    grpc_completion_queue_shutdown(service->cq);
    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(service->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            break;
        if (event.type == GRPC_OP_COMPLETE)
            on_event(service, event.tag, event.success);
    }
    grpc_completion_queue_destroy(service->cq);
    heap_done(&service->due);
}

static int run(struct service *service, const char *address)
{
    const char *program = service->party->program;
    int result = 1;
    int port = listen_on(service, address);
    if (port == 0) {
        (void)fprintf(stderr, "%s: cannot listen on %s\n", program, address);
        tear_down(service);
        return 1;
    }
    grpc_server_start(service->server);
    if (accept_next(service)) {
        (void)printf("%s: serving on %.*s:%d\n", program, (int)(strrchr(address, ':') - address),
                     address, port);
        (void)fflush(stdout); /* whoever reads it waits for the line */
        result = 0;
    } else {
        stop_asked = 1; /* out of memory: the loop goes straight to the orderly end */
    }
    serve(service);
    tear_down(service);
    return service->failed ? 1 : result;
}

int third_party_serve(const struct third_party *party, const char *address)
{
    if (!strrchr(address, ':')) {
        (void)fprintf(stderr, "%s: %s is no HOST:PORT\n", party->program, address);
        return 2;
    }
    struct service service = { .party = party, .shutdown = { OP_SHUTDOWN, NULL } };
    struct sigaction action = { .sa_handler = on_signal };
    (void)sigaction(SIGTERM, &action, NULL); /* valid signal numbers: cannot fail */
    (void)sigaction(SIGINT, &action, NULL);
    grpc_init();
    int result = run(&service, address);
    grpc_shutdown_blocking();
    return result;
}

int64_t third_party_normal_delay_ms(struct rng *rng)
{
    if (rng_below(rng, 100) == 0)
        return 250 + (int64_t)rng_below(rng, 551);
    return 20 + (int64_t)rng_below(rng, 231);
}
