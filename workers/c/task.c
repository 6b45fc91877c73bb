#include "task.h"

#include "base/utf8.h"

#include <string.h>

int task_new(Saga__V1__Task *message, struct saga_task **ret_task)
{
    struct saga_task *task = mem_calloc(1, sizeof *task);
    if (!task)
        return -1;
    task->message = message;
    task->fence = message->fence;
    task->output_bytes_max = SAGA_OUTPUT_MAX;
    memcpy(task->uid, message->saga_uid.data, TASK_UID_SIZE);
    *ret_task = task;
    return 0;
}

void task_outcome_clear(struct task_outcome *outcome)
{
    mem_free(outcome->output.data);
    mem_free(outcome->code);
    mem_free(outcome->message);
    memset(outcome, 0, sizeof *outcome);
}

struct saga_task *task_free(struct saga_task *task)
{
    if (!task)
        return NULL;
    task_outcome_clear(&task->outcome);
    saga__v1__task__free_unpacked(task->message, NULL);
    mem_free(task);
    return NULL;
}

/* Identity. */

const char *saga_task_namespace(const struct saga_task *task)
{
    return task->message->namespace_;
}

const char *saga_task_definition(const struct saga_task *task)
{
    return task->message->definition;
}

const char *saga_task_saga_id(const struct saga_task *task)
{
    return task->message->saga_id;
}

int32_t saga_task_run(const struct saga_task *task)
{
    return task->message->run;
}

const uint8_t *saga_task_uid(const struct saga_task *task)
{
    return task->uid;
}

int32_t saga_task_revision(const struct saga_task *task)
{
    return task->message->revision;
}

static int64_t timestamp_us(const Google__Protobuf__Timestamp *time)
{
    return time ? time->seconds * 1000000 + time->nanos / 1000 : 0;
}

int64_t saga_task_started_at_us(const struct saga_task *task)
{
    return timestamp_us(task->message->saga_start_time);
}

const char *saga_task_step(const struct saga_task *task)
{
    return task->message->step;
}

enum saga_operation saga_task_operation(const struct saga_task *task)
{
    switch (task->message->operation) {
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION:
        return SAGA_COMPENSATION;
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE:
        return SAGA_PROBE;
    default:
        return SAGA_ACTION; /* the session lets no other value in */
    }
}

const char *saga_task_handler(const struct saga_task *task)
{
    return task->message->handler;
}

int32_t saga_task_try(const struct saga_task *task)
{
    return task->message->try_;
}

bool saga_task_guarded(const struct saga_task *task)
{
    return task->message->guarded != 0;
}

int64_t saga_task_fence(const struct saga_task *task)
{
    return task->fence;
}

const char *saga_task_idempotency_key(const struct saga_task *task)
{
    return task->message->idempotency_key;
}

/* Payload. */

static struct saga_bytes borrow(const ProtobufCBinaryData *data)
{
    return (struct saga_bytes){ .data = data->data, .size = data->len };
}

struct saga_bytes saga_task_request(const struct saga_task *task)
{
    return *task->message->request_type ? borrow(&task->message->request) : saga_task_input(task);
}

const char *saga_task_request_type(const struct saga_task *task)
{
    return task->message->request_type;
}

const char *saga_task_output_type(const struct saga_task *task)
{
    return task->message->output_type;
}

struct saga_bytes saga_task_input(const struct saga_task *task)
{
    return borrow(&task->message->input);
}

bool saga_task_output_of(const struct saga_task *task, const char *step, struct saga_bytes *ret)
{
    for (size_t i = 0; i < task->message->n_outputs; i++) {
        const Saga__V1__StepOutput *output = task->message->outputs[i];
        if (strcmp(output->step, step) == 0) {
            *ret = borrow(&output->output);
            return true;
        }
    }
    return false;
}

enum saga_action_outcome saga_task_action_outcome(const struct saga_task *task)
{
    const Saga__V1__ActionOutcome *action = task->message->action;
    enum saga_operation operation = saga_task_operation(task);
    if (operation != SAGA_COMPENSATION && !(operation == SAGA_PROBE && action))
        return SAGA_ACTION_NONE;
    bool done = action && action->kind == SAGA__V1__ACTION_OUTCOME__KIND__KIND_DONE;
    return done ? SAGA_ACTION_DONE : SAGA_ACTION_MAYBE;
}

struct saga_bytes saga_task_action_output(const struct saga_task *task)
{
    if (saga_task_action_outcome(task) != SAGA_ACTION_DONE)
        return (struct saga_bytes){ .data = NULL, .size = 0 };
    return borrow(&task->message->action->output);
}

bool saga_task_probed(const struct saga_task *task, struct saga_probed *ret)
{
    if (saga_task_operation(task) != SAGA_PROBE)
        return false;
    const Saga__V1__ProbedAttempt *attempt = task->message->probed_attempt;
    *ret = (struct saga_probed){ .operation = (enum saga_operation)task->message->probed };
    if (attempt) {
        ret->try_ = attempt->try_;
        ret->fence = attempt->fence;
        ret->leased_at_us = timestamp_us(attempt->lease_time);
        ret->ended_at_us = timestamp_us(attempt->end_time);
    }
    return true;
}

const char *saga_task_label(const struct saga_task *task, const char *key)
{
    for (size_t i = 0; i < task->message->n_labels; i++)
        if (strcmp(task->message->labels[i]->key, key) == 0)
            return task->message->labels[i]->value;
    return NULL;
}

const char *saga_task_traceparent(const struct saga_task *task)
{
    return task->message->traceparent;
}

int saga_task_thread(const struct saga_task *task)
{
    return task->thread;
}

void saga_task_keep(struct saga_task *task)
{
    task->kept = true;
}

/* Time. */

static struct task_lease lease_now(const struct saga_task *task, bool *ret_draining)
{
    pthread_mutex_lock(task->lock);
    struct task_lease lease = task->lease;
    *ret_draining = *task->draining;
    pthread_mutex_unlock(task->lock);
    return lease;
}

int64_t saga_task_lease_left_ms(const struct saga_task *task)
{
    bool draining;
    struct task_lease lease = lease_now(task, &draining);
    int64_t left = task_lease_end_ms(&lease) - clock_mono_ms(task->clock);
    return lease.lost || left < 0 ? 0 : left;
}

int64_t saga_task_time_left_ms(const struct saga_task *task)
{
    bool draining;
    struct task_lease lease = lease_now(task, &draining);
    int64_t left = lease.attempt_until_ms - clock_mono_ms(task->clock);
    return left < 0 ? 0 : left;
}

int64_t saga_task_send_before_us(const struct saga_task *task)
{
    return timestamp_us(task->message->send_before);
}

bool saga_task_still_mine(const struct saga_task *task)
{
    return saga_task_lease_left_ms(task) > 0;
}

enum saga_stop saga_task_stop_requested(const struct saga_task *task)
{
    bool draining;
    struct task_lease lease = lease_now(task, &draining);
    if (lease.lost || clock_mono_ms(task->clock) >= task_lease_end_ms(&lease))
        return SAGA_STOP_LOST;
    if (lease.cancelled)
        return SAGA_STOP_CANCELLED;
    return draining ? SAGA_STOP_DRAINING : SAGA_STOP_NONE;
}

/* Outcome. */

/* What needs no code. */
static int set_success(struct saga_task *task, Saga__V1__Outcome kind, const void *output,
                       size_t size, bool ours)
{
    struct bytes copy;
    if (size > task->output_bytes_max || mem_bytes_copy(output, size, &copy) != 0)
        return -1;
    task_outcome_clear(&task->outcome);
    task->outcome.kind = kind;
    task->outcome.output = copy;
    task->outcome.ours = ours;
    return 0;
}

int saga_task_done(struct saga_task *task, const void *output, size_t size)
{
    return set_success(task, SAGA__V1__OUTCOME__OUTCOME_DONE, output, size, false);
}

int saga_task_already_done(struct saga_task *task, const void *output, size_t size, bool ours)
{
    return set_success(task, SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE, output, size, ours);
}

/* A copy that the server will take: at most the limit, UTF-8 without control characters. */
static char *message_copy(const char *message)
{
    size_t size = strlen(message);
    char *copy = mem_strdup(message);
    if (!copy)
        return NULL;
    if (!utf8_is_valid(copy, size)) {
        for (size_t i = 0; i < size; i++)
            if ((unsigned char)copy[i] >= 0x80)
                copy[i] = '?';
    }
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)copy[i] < 0x20 || copy[i] == 0x7f)
            copy[i] = ' ';
    for (size_t i = 0; i + 1 < size; i++) /* U+0080 to U+009F are control characters too */
        if ((unsigned char)copy[i] == 0xc2 && (unsigned char)copy[i + 1] < 0xa0)
            copy[i] = copy[i + 1] = ' ';
    copy[utf8_cut(copy, size, SAGA_ERROR_MESSAGE_MAX)] = '\0';
    return copy;
}

static int set_failure(struct saga_task *task, Saga__V1__Outcome kind, const char *code,
                       const char *message, int64_t after_ms)
{
    size_t size = code ? strlen(code) : 0;
    if (size == 0 || size > SAGA_HANDLER_NAME_MAX || !utf8_is_text(code, size))
        return -1;
    CLEANUP(mem_free_p) char *code_copy = mem_strdup(code);
    CLEANUP(mem_free_p) char *text = message_copy(message ? message : "");
    if (!code_copy || !text)
        return -1;
    task_outcome_clear(&task->outcome);
    task->outcome.kind = kind;
    task->outcome.code = TAKE(code_copy);
    task->outcome.message = TAKE(text);
    task->outcome.retry_after_ms = after_ms;
    return 0;
}

int saga_task_rejected(struct saga_task *task, const char *code, const char *message)
{
    return set_failure(task, SAGA__V1__OUTCOME__OUTCOME_REJECTED, code, message, 0);
}

int saga_task_retry(struct saga_task *task, const char *code, const char *message, int64_t after_ms)
{
    if (after_ms < 0 || after_ms > SAGA_RETRY_AFTER_MS_MAX)
        return -1;
    return set_failure(task, SAGA__V1__OUTCOME__OUTCOME_RETRY, code, message, after_ms);
}

int saga_task_not_done(struct saga_task *task)
{
    return set_success(task, SAGA__V1__OUTCOME__OUTCOME_NOT_DONE, NULL, 0, false);
}

int saga_task_still_unknown(struct saga_task *task, const char *code, const char *message)
{
    return set_failure(task, SAGA__V1__OUTCOME__OUTCOME_STILL_UNKNOWN, code, message, 0);
}

int saga_task_unknown(struct saga_task *task, const char *code, const char *message)
{
    return set_failure(task, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN, code, message, 0);
}
