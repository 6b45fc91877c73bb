/* load: starts sagas of one definition and tells how many end in a second. Closed loop: at most
 * --outstanding sagas are started and not ended, so that no backlog hides behind the figure; with
 * --rate N it starts N a second instead. One thread, one completion queue. How many have ended is
 * asked from the server's own counter every 20 ms. Any error ends it: a figure with errors in it
 * means nothing.
 *
 *   load --target ADDRESS --definition NAME [--unary] [--calls N] [--batch N] [--channels N]
 *        [--outstanding N] [--rate N] [--warm-up-ms N] [--run-ms N]
 *   {"sagas_per_s": N, "sagas": N, "seconds": N}
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "begun.h"

#include <saga/v1/operator.pb-c.h>
#include <saga/v1/saga.pb-c.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    INPUT_BYTES = 100,
    BATCH_MAX = 1000,
    CALLS_MAX = 1024,
    CHANNELS_MAX = 16,
    STATUS_EVERY_MS = 20,
    CALL_LIMIT_MS = 30000,
    END_LIMIT_MS = 60000,
};

enum option_id {
    OPTION_CALLS,
    OPTION_BATCH,
    OPTION_CHANNELS,
    OPTION_OUTSTANDING,
    OPTION_RATE,
    OPTION_WARM_UP_MS,
    OPTION_RUN_MS,
    OPTION_COUNT
};
static const struct {
    const char *name;
    int64_t initial, min, max;
} option_table[OPTION_COUNT] = {
    [OPTION_CALLS] = { "--calls", 4, 1, CALLS_MAX },
    [OPTION_BATCH] = { "--batch", 128, 1, BATCH_MAX },
    [OPTION_CHANNELS] = { "--channels", 1, 1, CHANNELS_MAX },
    [OPTION_OUTSTANDING] = { "--outstanding", 2048, 1, 1000000 },
    [OPTION_RATE] = { "--rate", 0, 0, 1000000 },
    [OPTION_WARM_UP_MS] = { "--warm-up-ms", 2000, 0, 600000 },
    [OPTION_RUN_MS] = { "--run-ms", 5000, 100, 600000 },
};

struct call_slot {
    struct call_slot *next; /* among the free ones */
    grpc_call *call;        /* NULL while free */
    bool is_status;
    int64_t items;
    grpc_byte_buffer *request, *reply;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
};

struct load {
    const char *target, *definition;
    bool unary;
    int64_t options[OPTION_COUNT];
    grpc_completion_queue *queue;
    grpc_channel *channels[CHANNELS_MAX];
    size_t next_channel;
    struct call_slot slots[CALLS_MAX], status, *free;
    uint64_t run_id; /* keys of two runs never meet */
    int64_t requested, accepted;
    int64_t base, ended; /* the server's counter, at the beginning and since then */
    bool has_base;
    int64_t begin_ms, status_due_ms;
    /* The window that counts: between two answers of the server's counter. */
    bool in_window;
    int64_t window_ms, window_ended, last_ms, last_ended;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "load: %s: %s\n", what, why); /* best effort */
    exit(1);
}

static int64_t now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

static void call_begin(struct load *load, struct call_slot *slot, const char *method,
                       const ProtobufCMessage *request)
{
    size_t size = protobuf_c_message_get_packed_size(request);
    grpc_slice slice = grpc_slice_malloc(size);
    (void)protobuf_c_message_pack(request, GRPC_SLICE_START_PTR(slice)); /* the size from above */
    slot->request = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    slot->reply = NULL;
    slot->details = grpc_empty_slice();
    grpc_metadata_array_init(&slot->initial);
    grpc_metadata_array_init(&slot->trailing);
    grpc_channel *channel = load->channels[load->next_channel];
    load->next_channel = (load->next_channel + 1) % (size_t)load->options[OPTION_CHANNELS];
    grpc_slice path = grpc_slice_from_static_string(method);
    slot->call =
        grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, load->queue, path, NULL,
                                 gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                              gpr_time_from_millis(CALL_LIMIT_MS, GPR_TIMESPAN)),
                                 NULL);
    grpc_op ops[] = {
        { .op = GRPC_OP_SEND_INITIAL_METADATA },
        { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = slot->request },
        { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
        { .op = GRPC_OP_RECV_INITIAL_METADATA,
          .data.recv_initial_metadata.recv_initial_metadata = &slot->initial },
        { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &slot->reply },
        { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
          .data.recv_status_on_client = { .trailing_metadata = &slot->trailing,
                                          .status = &slot->status,
                                          .status_details = &slot->details } },
    };
    if (grpc_call_start_batch(slot->call, ops, ARRAY_LEN(ops), slot, NULL) != GRPC_CALL_OK)
        give_up(method, "gRPC refuses the call");
}

/* The answer of a call that went well; the caller frees it. */
static ProtobufCMessage *call_reply(struct call_slot *slot, const ProtobufCMessageDescriptor *type)
{
    grpc_byte_buffer_reader reader;
    if (slot->status != GRPC_STATUS_OK) {
        char text[256];
        (void)snprintf(text, sizeof(text), "status %d: %.*s", (int)slot->status,
                       (int)GRPC_SLICE_LENGTH(slot->details),
                       (const char *)GRPC_SLICE_START_PTR(slot->details)); /* cut on purpose */
        give_up(type->name, text);
    }
    if (!slot->reply || !grpc_byte_buffer_reader_init(&reader, slot->reply))
        give_up(type->name, "no message");
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    ProtobufCMessage *message = protobuf_c_message_unpack(type, NULL, GRPC_SLICE_LENGTH(slice),
                                                          GRPC_SLICE_START_PTR(slice));
    grpc_slice_unref(slice);
    grpc_byte_buffer_reader_destroy(&reader);
    if (!message)
        give_up(type->name, "cannot be unpacked");
    return message;
}

static void call_end(struct call_slot *slot)
{
    grpc_metadata_array_destroy(&slot->initial);
    grpc_metadata_array_destroy(&slot->trailing);
    grpc_slice_unref(slot->details);
    grpc_byte_buffer_destroy(slot->request);
    if (slot->reply)
        grpc_byte_buffer_destroy(slot->reply);
    grpc_call_unref(slot->call);
    slot->call = NULL;
}

/* --- starting ------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void start_fill(struct load *load, Saga__V1__StartSagaRequest *request, uint8_t *input,
                       char saga_id[48])
{
    (void)snprintf(saga_id, 48, "%016llx-%lld", (unsigned long long)load->run_id,
                   (long long)load->requested++); /* fits */
    saga__v1__start_saga_request__init(request);
    request->definition = (char *)load->definition;
    request->saga_id = saga_id;
    request->input.data = input;
    request->input.len = INPUT_BYTES;
}

static void start_send(struct load *load)
{
    static Saga__V1__StartSagaRequest requests[BATCH_MAX];
    static Saga__V1__StartSagaRequest *pointers[BATCH_MAX];
    static char saga_ids[BATCH_MAX][48];
    static uint8_t input[INPUT_BYTES]; /* of all that are asked for together */
    struct call_slot *slot = load->free;
    load->free = slot->next;
    slot->items = load->unary ? 1 : load->options[OPTION_BATCH];
    begun_write(input, now_ns());
    for (int64_t i = 0; i < slot->items; i++) {
        start_fill(load, &requests[i], input, saga_ids[i]);
        pointers[i] = &requests[i];
    }
    if (load->unary) {
        call_begin(load, slot, "/saga.v1.SagaService/StartSaga", &requests[0].base);
        return;
    }
    Saga__V1__BatchStartSagasRequest batch = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    batch.n_requests = (size_t)slot->items;
    batch.requests = pointers;
    call_begin(load, slot, "/saga.v1.SagaService/BatchStartSagas", &batch.base);
}

static bool may_start(const struct load *load, int64_t at_ms)
{
    int64_t items = load->unary ? 1 : load->options[OPTION_BATCH];
    int64_t rate = load->options[OPTION_RATE];
    if (!load->free || !load->has_base)
        return false;
    if (rate > 0 && (load->requested + items) * 1000 > (at_ms - load->begin_ms) * rate)
        return false;
    return load->requested - load->ended + items <= load->options[OPTION_OUTSTANDING];
}

static void start_done(struct load *load, struct call_slot *slot)
{
    if (load->unary) {
        ProtobufCMessage *reply = call_reply(slot, &saga__v1__start_saga_response__descriptor);
        if (((Saga__V1__StartSagaResponse *)reply)->existed)
            give_up("StartSaga", "a new key was known already");
        protobuf_c_message_free_unpacked(reply, NULL);
    } else {
        ProtobufCMessage *reply =
            call_reply(slot, &saga__v1__batch_start_sagas_response__descriptor);
        const Saga__V1__BatchStartSagasResponse *batch = (const void *)reply;
        if ((int64_t)batch->n_items != slot->items)
            give_up("BatchStartSagas", "not one answer for each item");
        for (size_t i = 0; i < batch->n_items; i++)
            if (batch->items[i]->result_case !=
                SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_SAGA)
                give_up("BatchStartSagas", batch->items[i]->error ? batch->items[i]->error->message
                                                                  : "an item without an answer");
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    load->accepted += slot->items;
    call_end(slot);
    slot->next = load->free;
    load->free = slot;
}

/* --- counting ------------------------------------------------------------------------------- */

static void status_done(struct load *load, struct call_slot *slot)
{
    ProtobufCMessage *reply = call_reply(slot, &saga__v1__get_status_response__descriptor);
    const Saga__V1__GetStatusResponse *status = (const void *)reply;
    int64_t succeeded = -1, at_ms = now_ms();
    for (size_t i = 0; i < status->n_counters; i++)
        if (strcmp(status->counters[i]->name, "sagas_succeeded") == 0)
            succeeded = status->counters[i]->value;
    if (succeeded < 0)
        give_up("GetStatus", "no counter sagas_succeeded");
    protobuf_c_message_free_unpacked(reply, NULL);
    call_end(slot);
    if (!load->has_base) {
        load->has_base = true;
        load->base = succeeded;
        load->begin_ms = at_ms;
    }
    load->ended = succeeded - load->base;
    int64_t run_from_ms = load->begin_ms + load->options[OPTION_WARM_UP_MS];
    if (at_ms >= run_from_ms && !load->in_window) {
        load->in_window = true;
        load->window_ms = at_ms;
        load->window_ended = load->ended;
    }
    if (at_ms <= run_from_ms + load->options[OPTION_RUN_MS]) {
        load->last_ms = at_ms;
        load->last_ended = load->ended;
    }
    load->status_due_ms = at_ms + STATUS_EVERY_MS;
}

static void turn(struct load *load, bool starting)
{
    static const Saga__V1__GetStatusRequest ask = SAGA__V1__GET_STATUS_REQUEST__INIT;
    int64_t at_ms = now_ms();
    while (starting && may_start(load, at_ms))
        start_send(load);
    if (!load->status.call && at_ms >= load->status_due_ms)
        call_begin(load, &load->status, "/saga.v1.OperatorService/GetStatus", &ask.base);
    gpr_timespec until =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_millis(load->options[OPTION_RATE] ? 1 : 5, GPR_TIMESPAN));
    grpc_event event = grpc_completion_queue_next(load->queue, until, NULL);
    if (event.type != GRPC_OP_COMPLETE)
        return; /* time to look again */
    struct call_slot *slot = event.tag;
    if (slot == &load->status)
        status_done(load, slot);
    else
        start_done(load, slot);
}

static void run(struct load *load)
{
    int64_t start_ms = now_ms();
    int64_t run_ms = load->options[OPTION_WARM_UP_MS] + load->options[OPTION_RUN_MS];
    while (!load->has_base || now_ms() - load->begin_ms < run_ms) {
        if (!load->has_base && now_ms() - start_ms > CALL_LIMIT_MS)
            give_up(load->target, "does not answer");
        turn(load, true);
    }
    int64_t stop_ms = now_ms();
    while (load->accepted < load->requested || load->ended < load->accepted) {
        if (now_ms() - stop_ms > END_LIMIT_MS)
            give_up("the end", "some sagas were started and did not succeed");
        turn(load, false);
    }
    if (load->last_ms <= load->window_ms)
        give_up("the window", "the server's counter was not read twice");
}

static void open_channels(struct load *load)
{
    grpc_arg args[] = {
        { .type = GRPC_ARG_INTEGER, .key = "grpc.enable_http_proxy", .value.integer = 0 },
        { .type = GRPC_ARG_INTEGER, .key = "grpc.use_local_subchannel_pool", .value.integer = 1 },
    };
    const grpc_channel_args all = { .num_args = ARRAY_LEN(args), .args = args };
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    for (int64_t i = 0; i < load->options[OPTION_CHANNELS]; i++)
        load->channels[i] = grpc_channel_create(load->target, credentials, &all);
    grpc_channel_credentials_release(credentials);
}

static void parse(struct load *load, int argc, char **argv)
{
    for (int id = 0; id < OPTION_COUNT; id++)
        load->options[id] = option_table[id].initial;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--unary") == 0) {
            load->unary = true;
            continue;
        }
        if (i + 1 == argc)
            give_up("needs a value, or is unknown", argv[i]);
        const char *name = argv[i++], *value = argv[i];
        int id = 0;
        while (id < OPTION_COUNT && strcmp(option_table[id].name, name) != 0)
            id++;
        char *end = NULL;
        if (strcmp(name, "--target") == 0)
            load->target = value;
        else if (strcmp(name, "--definition") == 0)
            load->definition = value;
        else if (id == OPTION_COUNT)
            give_up("unknown argument", name);
        else
            load->options[id] = strtoll(value, &end, 10);
        if (end && (*end || load->options[id] < option_table[id].min ||
                    load->options[id] > option_table[id].max))
            give_up("not a number in its range", name);
    }
    if (!load->target || !load->definition)
        give_up("usage", "load --target ADDRESS --definition NAME [...]");
}

int main(int argc, char **argv)
{
    static struct load load;
    struct rng rng;
    parse(&load, argc, argv);
    rng_seed_os(&rng);
    load.run_id = rng_next(&rng);
    for (int64_t i = 0; i < load.options[OPTION_CALLS]; i++) {
        load.slots[i].next = load.free;
        load.free = &load.slots[i];
    }
    grpc_init();
    load.queue = grpc_completion_queue_create_for_next(NULL);
    open_channels(&load);
    run(&load);
    while (load.status.call)
        turn(&load, false);
    for (int64_t i = 0; i < load.options[OPTION_CHANNELS]; i++)
        grpc_channel_destroy(load.channels[i]);
    grpc_completion_queue_shutdown(load.queue);
    while (grpc_completion_queue_next(load.queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(load.queue);
    grpc_shutdown_blocking();
    double seconds = (double)(load.last_ms - load.window_ms) / 1000.0;
    (void)printf("{\"sagas_per_s\": %.0f, \"sagas\": %lld, \"seconds\": %.3f}\n",
                 (double)(load.last_ended - load.window_ended) / seconds, (long long)load.ended,
                 seconds); /* best effort */
    return 0;
}
