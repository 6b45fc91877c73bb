#include "rpc/worker_encode.h"

#include "base/log.h"
#include "rpc/request.h"
#include "schema/record.h"
#include "wire/labels.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <saga/v1/worker.pb-c.h>
#include <string.h>

enum { TASK_FRAME_BYTES = 8 }; /* tag and length around it */

static ProtobufCBinaryData uid_bytes(const struct uuid *uid)
{
    union {
        const uint8_t *in;
        uint8_t *out;
    } cast = { .in = uid->bytes }; /* packing never writes to it */
    return (ProtobufCBinaryData){ sizeof uid->bytes, cast.out };
}

static Google__Protobuf__Duration *make_duration(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Duration *duration =
        reply_new(arena, &google__protobuf__duration__descriptor);
    if (duration)
        duration_from_ms(ms, duration);
    return duration;
}

/* NULL for a time that is not set, or when memory is out. */
static Google__Protobuf__Timestamp *make_time(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *time =
        ms ? reply_new(arena, &google__protobuf__timestamp__descriptor) : NULL;
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

/* --- tasks ------------------------------------------------------------------------------------ */

static int add_labels(struct arena *arena, const struct saga_row *row, Saga__V1__Task *task)
{
    struct label *labels = NULL;
    size_t count = 0;
    struct err err;
    if (labels_from_json(arena, row->labels, &labels, &count, &err)) {
        log_line(LOG_ERROR, "labels left out of a task", "saga", row->saga_id, "err", err.msg,
                 NULL);
        return 0; /* decoration: the task goes out without */
    }
    if (!count)
        return 0;
    task->labels = arena_array(arena, count, sizeof(ProtobufCMessage *));
    if (!task->labels)
        return -1;
    for (size_t i = 0; i < count; i++) {
        Saga__V1__Task__LabelsEntry *entry =
            reply_new(arena, &saga__v1__task__labels_entry__descriptor);
        if (!entry)
            return -1;
        entry->key = reply_text(labels[i].key);
        entry->value = reply_text(labels[i].value);
        task->labels[i] = entry;
    }
    task->n_labels = count;
    return 0;
}

/* What the steps that it comes after answered, in their order: not those beside it, so that each
 * try is told the same. The core grants no task over its limit. */
static int add_outputs(struct arena *arena, const struct engine_task *from, Saga__V1__Task *task)
{
    size_t step = (size_t)from->view.lease->step, count = 0;
    task->outputs = arena_array(arena, step + 1, sizeof(ProtobufCMessage *));
    if (!task->outputs)
        return -1;
    for (size_t i = 0; i < step; i++) {
        struct bytes output;
        if (!step_set_has(&from->view.step->after_all, i) ||
            !saga_step_output(from->saga, i, &output))
            continue;
        Saga__V1__StepOutput *message = reply_new(arena, &saga__v1__step_output__descriptor);
        if (!message)
            return -1;
        message->step = saga_definition(from->saga)->steps[i].name;
        message->output = (ProtobufCBinaryData){ output.size, output.data };
        task->outputs[count++] = message;
    }
    task->n_outputs = count;
    return 0;
}

/* What fills that field: the saga's input, or what a step answered. False: it stays unset. */
static bool request_source(const struct engine_task *from, int source, struct bytes *ret)
{
    if (source != FROM_INPUT)
        return saga_step_output(from->saga, (size_t)source, ret);
    *ret = saga_row(from->saga)->input;
    return true;
}

/* Each field is a tag, a length and the stored bytes: nothing is parsed. */
static int put_together(struct arena *arena, const struct engine_task *from, Saga__V1__Task *task)
{
    const struct request_shape *shape = &from->view.rule->request;
    struct buf request = { 0 };
    for (size_t i = 0; i < shape->field_count; i++) {
        struct bytes value;
        if (request_source(from, shape->fields[i].from, &value))
            record_put_bytes(&request, shape->fields[i].number, value.data, value.size);
    }
    uint8_t *data = request.size ? arena_alloc(arena, request.size) : NULL;
    if (data)
        memcpy(data, request.data, request.size);
    bool failed = request.failed || (request.size && !data);
    task->request = (ProtobufCBinaryData){ request.size, data };
    buf_done(&request);
    return failed ? -1 : 0;
}

/* The request as the definition shapes it; where it does not, the parts. */
static int add_request(struct arena *arena, const struct engine_task *from, Saga__V1__Task *task)
{
    const struct bytes *input = &saga_row(from->saga)->input;
    const struct request_shape *shape = &from->view.rule->request;
    size_t step = (size_t)from->view.lease->step;
    const char *output_type =
        definition_rule(saga_definition(from->saga), step, from->view.about)->output_type;
    if (output_type)
        task->output_type = reply_text(output_type);
    if (!shape->type) {
        task->input = (ProtobufCBinaryData){ input->size, input->data };
        return add_outputs(arena, from, task);
    }
    task->request_type = shape->type;
    if (shape->field_count)
        return put_together(arena, from, task);
    if (!shape->is_empty)
        task->request = (ProtobufCBinaryData){ input->size, input->data };
    return 0;
}

static int add_action(struct arena *arena, const struct engine_task *from, Saga__V1__Task *task)
{
    if (from->view.about != OPERATION_COMPENSATION)
        return 0;
    Saga__V1__ActionOutcome *action = reply_new(arena, &saga__v1__action_outcome__descriptor);
    if (!action)
        return -1;
    action->kind = from->view.action_done ? SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE
                                          : SAGA__V1__ACTION_OUTCOME__KIND__KIND_MAYBE;
    if (from->view.action_done)
        action->output =
            (ProtobufCBinaryData){ from->view.action_output.size, from->view.action_output.data };
    task->action = action;
    return 0;
}

/* What a probe is to look for. */
static int add_probed(struct arena *arena, const struct engine_task *from, Saga__V1__Task *task)
{
    if (from->view.lease->operation != OPERATION_PROBE)
        return 0;
    task->probed = operation_to_message(from->view.about);
    const struct journal_entry *probed = from->view.probed;
    if (!probed)
        return 0;
    Saga__V1__ProbedAttempt *attempt = reply_new(arena, &saga__v1__probed_attempt__descriptor);
    if (!attempt)
        return -1;
    attempt->try_ = probed->try_;
    attempt->fence = probed->fence;
    attempt->lease_time = make_time(arena, probed->leased_at_ms);
    attempt->end_time = make_time(arena, probed->finished_at_ms);
    task->probed_attempt = attempt;
    return 0;
}

static Saga__V1__Task *make_task(struct arena *arena, const struct engine_task *from)
{
    const struct saga_row *row = saga_row(from->saga);
    const struct journal_entry *lease = from->view.lease;
    Saga__V1__Task *task = reply_new(arena, &saga__v1__task__descriptor);
    if (!task)
        return NULL;
    task->saga_uid = uid_bytes(&row->uid);
    task->namespace_ = row->namespace_;
    task->definition = row->definition;
    task->revision = row->revision;
    task->saga_id = row->saga_id;
    task->run = row->run;
    task->saga_start_time = make_time(arena, row->started_at_ms);
    task->step = from->view.step->name;
    task->operation = operation_to_message(lease->operation);
    task->handler = from->view.rule->handler;
    task->try_ = lease->try_;
    task->fence = lease->fence;
    task->idempotency_key = reply_text(from->idempotency_key);
    task->lease = make_duration(arena, from->lease_ms);
    task->attempt_remaining = make_duration(arena, from->attempt_ms);
    task->guarded = from->view.step->guarded;
    task->send_before = make_time(arena, from->view.send_before_ms);
    if (add_request(arena, from, task) || add_action(arena, from, task) ||
        add_probed(arena, from, task) || add_labels(arena, row, task) || arena->oom)
        return NULL;
    return task;
}

static void write_tasks(struct send_list *list, Saga__V1__Task **tasks, size_t count)
{
    Saga__V1__Tasks batch = SAGA__V1__TASKS__INIT;
    batch.n_tasks = count;
    batch.tasks = tasks;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_TASKS;
    message.tasks = &batch;
    send_list_add(list, &message.base);
}

void worker_tasks_write(struct send_list *list, const struct engine_task *tasks, size_t count)
{
    struct arena arena = { 0 };
    Saga__V1__Task **messages = arena_array(&arena, count, sizeof(Saga__V1__Task *));
    size_t first = 0, bytes = 0;
    for (size_t i = 0; messages && i < count; i++) {
        messages[i] = make_task(&arena, &tasks[i]);
        if (!messages[i]) {
            messages = NULL;
            break;
        }
        size_t size = saga__v1__task__get_packed_size(messages[i]) + TASK_FRAME_BYTES;
        if (i > first && bytes + size > RPC_REPLY_BYTES_MAX) {
            write_tasks(list, messages + first, i - first);
            first = i;
            bytes = 0;
        }
        bytes += size;
    }
    if (!messages)
        list->failed = true;
    else if (count > first)
        write_tasks(list, messages + first, count - first);
    arena_done(&arena);
}

size_t worker_tasks_part(struct send_list *list, const struct engine_task *tasks, size_t count,
                         size_t bytes_max, size_t *ret_bytes)
{
    struct arena arena = { 0 };
    Saga__V1__Tasks part = SAGA__V1__TASKS__INIT;
    part.tasks = arena_array(&arena, count, sizeof(Saga__V1__Task *));
    while (part.tasks && part.n_tasks < count) {
        Saga__V1__Task *task = make_task(&arena, &tasks[part.n_tasks]);
        size_t size = task ? saga__v1__task__get_packed_size(task) + TASK_FRAME_BYTES : 0;
        if (!task || (*ret_bytes && *ret_bytes + size > bytes_max))
            break; /* memory, or room: another time; by itself a task may be larger */
        *ret_bytes += size;
        part.tasks[part.n_tasks++] = task;
    }
    if (part.n_tasks)
        send_list_add(list, &part.base);
    arena_done(&arena);
    return list->failed ? 0 : part.n_tasks;
}

/* --- the rest --------------------------------------------------------------------------------- */

static Saga__V1__Ack__Result ack_result(enum engine_ack ack)
{
    switch (ack) {
    case ENGINE_ACK_ACCEPTED:
        return SAGA__V1__ACK__RESULT__RESULT_ACCEPTED;
    case ENGINE_ACK_DUPLICATE:
        return SAGA__V1__ACK__RESULT__RESULT_DUPLICATE;
    default:
        return SAGA__V1__ACK__RESULT__RESULT_STALE;
    }
}

static int make_acks(struct arena *arena, const struct engine_lease_ack *acks, size_t count,
                     Saga__V1__Acks *ret)
{
    ret->acks = arena_array(arena, count, sizeof(ProtobufCMessage *));
    for (size_t i = 0; ret->acks && i < count; i++) {
        Saga__V1__Ack *ack = reply_new(arena, &saga__v1__ack__descriptor);
        if (!ack)
            break;
        ack->saga_uid = uid_bytes(&acks[i].uid);
        ack->fence = acks[i].fence;
        ack->result = ack_result(acks[i].ack);
        if (acks[i].problem)
            ack->problem = acks[i].problem;
        ret->acks[ret->n_acks++] = ack;
    }
    return arena->oom ? -1 : 0;
}

void worker_acks_write(struct send_list *list, const struct engine_lease_ack *acks, size_t count)
{
    struct arena arena = { 0 };
    Saga__V1__Acks batch = SAGA__V1__ACKS__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_ACKS;
    message.acks = &batch;
    if (make_acks(&arena, acks, count, &batch))
        list->failed = true;
    else
        send_list_add(list, &message.base);
    arena_done(&arena);
}

void worker_acks_part(struct send_list *list, const struct engine_lease_ack *acks, size_t count)
{
    struct arena arena = { 0 };
    Saga__V1__Acks part = SAGA__V1__ACKS__INIT;
    if (make_acks(&arena, acks, count, &part))
        list->failed = true;
    else
        send_list_add(list, &part.base);
    arena_done(&arena);
}

static int make_extended(struct arena *arena, const struct engine_lease_extended *leases,
                         size_t count, Saga__V1__Extended *ret)
{
    ret->leases = arena_array(arena, count, sizeof(ProtobufCMessage *));
    for (size_t i = 0; ret->leases && i < count; i++) {
        Saga__V1__Extended__Lease *lease = reply_new(arena, &saga__v1__extended__lease__descriptor);
        if (!lease)
            break;
        lease->saga_uid = uid_bytes(&leases[i].uid);
        lease->fence = leases[i].fence;
        lease->lease = make_duration(arena, leases[i].lease_ms);
        ret->leases[ret->n_leases++] = lease;
    }
    return arena->oom ? -1 : 0;
}

void worker_extended_write(struct send_list *list, const struct engine_lease_extended *leases,
                           size_t count)
{
    struct arena arena = { 0 };
    Saga__V1__Extended batch = SAGA__V1__EXTENDED__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_EXTENDED;
    message.extended = &batch;
    if (make_extended(&arena, leases, count, &batch))
        list->failed = true;
    else
        send_list_add(list, &message.base);
    arena_done(&arena);
}

void worker_extended_part(struct send_list *list, const struct engine_lease_extended *leases,
                          size_t count)
{
    struct arena arena = { 0 };
    Saga__V1__Extended part = SAGA__V1__EXTENDED__INIT;
    if (make_extended(&arena, leases, count, &part))
        list->failed = true;
    else
        send_list_add(list, &part.base);
    arena_done(&arena);
}

void worker_cancel_hint_write(struct send_list *list, const struct uuid *uid, int64_t fence)
{
    Saga__V1__CancelHint hint = SAGA__V1__CANCEL_HINT__INIT;
    hint.saga_uid = uid_bytes(uid);
    hint.fence = fence;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_CANCEL_HINT;
    message.cancel_hint = &hint;
    send_list_add(list, &message.base);
}

void worker_welcome_write(struct send_list *list, char *node, uint64_t session, int64_t tick_ms)
{
    Google__Protobuf__Duration interval = GOOGLE__PROTOBUF__DURATION__INIT;
    duration_from_ms(tick_ms, &interval);
    Saga__V1__Welcome welcome = SAGA__V1__WELCOME__INIT;
    welcome.node = node;
    welcome.session = session;
    welcome.tick_interval = &interval;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_WELCOME;
    message.welcome = &welcome;
    send_list_add(list, &message.base);
}

void worker_drain_write(struct send_list *list, int64_t grace_ms)
{
    Google__Protobuf__Duration grace = GOOGLE__PROTOBUF__DURATION__INIT;
    duration_from_ms(grace_ms, &grace);
    Saga__V1__DrainRequested drain = SAGA__V1__DRAIN_REQUESTED__INIT;
    drain.grace = &grace;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_DRAIN_REQUESTED;
    message.drain_requested = &drain;
    send_list_add(list, &message.base);
}

void worker_tick_write(struct send_list *list)
{
    Saga__V1__Tick tick = SAGA__V1__TICK__INIT;
    Saga__V1__ServerMessage message = SAGA__V1__SERVER_MESSAGE__INIT;
    message.command_case = SAGA__V1__SERVER_MESSAGE__COMMAND_TICK;
    message.tick = &tick;
    send_list_add(list, &message.base);
}
