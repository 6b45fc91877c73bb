#include "wire/definition_codec.h"

#include "core/limits.h"
#include "wire/arena.h"
#include "wire/scan.h"
#include "wire/times.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 96, TEXT_SIZE = 192 };

/* What is carried along while a message is read: where faults go, and whether memory ran out. */
struct reading {
    definition_fault_fn *on_fault;
    void *ctx;
    size_t faults;
    bool oom;
};

FMT(4, 5)
static void fault(struct reading *reading, const char *path, const char *field, const char *fmt,
                  ...)
{
    char where[PATH_SIZE], text[TEXT_SIZE];
    (void)snprintf(where, sizeof where, "%s%s%s", path, *path ? "." : "", field);
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    reading->faults++;
    reading->on_fault(reading->ctx, where, text);
}

static char *keep(struct reading *reading, const char *text)
{
    char *copy = mem_strdup(text);
    reading->oom |= !copy;
    return copy;
}

/* A duration that is not there gives `absent`; a wrong one, or one below `least_ms`, is a fault and
 * gives `absent`, too, so that it is reported once. The other bounds are definition_check's. */
static int64_t read_ms(struct reading *reading, const char *path, const char *field,
                       const Google__Protobuf__Duration *duration, int64_t absent, int64_t least_ms)
{
    if (!duration)
        return absent;
    if (!duration_is_valid(duration)) {
        fault(reading, path, field, "is not a duration: %" PRId64 " s and %" PRId32 " ns",
              duration->seconds, duration->nanos);
        return absent;
    }
    if (duration->nanos % 1000000) {
        fault(reading, path, field, "must be whole milliseconds: %" PRId64 " s and %" PRId32 " ns",
              duration->seconds, duration->nanos);
        return absent;
    }
    int64_t ms = duration_to_ms(duration);
    if (ms < least_ms) {
        fault(reading, path, field, "must be at least %" PRId64 " ms: %" PRId64 " ms", least_ms,
              ms);
        return absent;
    }
    return ms;
}

/* NULL for what is not said. */
static char *keep_if_said(struct reading *reading, const char *text)
{
    return *text ? keep(reading, text) : NULL;
}

static void read_retry(struct reading *reading, const char *path, const Saga__V1__Retry *message,
                       struct retry *ret)
{
    *ret = (struct retry){
        .for_ms = DEFAULT_RETRY_FOR_MS,
        .initial_ms = DEFAULT_RETRY_INITIAL_MS,
        .cap_ms = DEFAULT_RETRY_CAP_MS,
    };
    if (!message)
        return;
    ret->for_ms = read_ms(reading, path, "retry.for", message->for_, ret->for_ms, 1);
    ret->initial_ms = read_ms(reading, path, "retry.initial", message->initial, ret->initial_ms, 1);
    ret->cap_ms = read_ms(reading, path, "retry.cap", message->cap, ret->cap_ms, 1);
    if (message->_max_attempts_case == SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS) {
        if (!message->max_attempts)
            fault(reading, path, "retry.max_attempts", "must be at least 1: 0");
        ret->max_attempts = message->max_attempts;
    }
}

static void read_on_exhausted(struct reading *reading, const char *path,
                              Saga__V1__OnExhausted value, struct operation_rule *ret)
{
    if (value == SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_COMPENSATE)
        ret->on_exhausted = ON_EXHAUSTED_COMPENSATE;
    else if (value == SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_CONTINUE)
        ret->on_exhausted = ON_EXHAUSTED_CONTINUE;
    else if (value != SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_UNSPECIFIED &&
             value != SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_PARK)
        fault(reading, path, "on_exhausted", "is not known: %d", (int)value);
}

static void read_policies(struct reading *reading, const char *path,
                          const Saga__V1__Operation *message, struct operation_rule *ret)
{
    switch (message->effect) {
    case SAGA__V1__EFFECT__EFFECT_IDEMPOTENT:
        ret->effect = EFFECT_IDEMPOTENT;
        break;
    case SAGA__V1__EFFECT__EFFECT_PROBED:
        ret->effect = EFFECT_PROBED;
        break;
    case SAGA__V1__EFFECT__EFFECT_AT_MOST_ONCE:
        ret->effect = EFFECT_AT_MOST_ONCE;
        break;
    case SAGA__V1__EFFECT__EFFECT_UNSPECIFIED:
        fault(reading, path, "effect", "is required: IDEMPOTENT, PROBED or AT_MOST_ONCE");
        break;
    default:
        fault(reading, path, "effect", "is not known: %d", (int)message->effect);
    }
    if (message->on_unknown == SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_COMPENSATE)
        ret->on_unknown = ON_UNKNOWN_COMPENSATE;
    else if (message->on_unknown == SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_ACCEPT)
        ret->on_unknown = ON_UNKNOWN_ACCEPT;
    else if (message->on_unknown != SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_UNSPECIFIED &&
             message->on_unknown != SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_PARK)
        fault(reading, path, "on_unknown", "is not known: %d", (int)message->on_unknown);
    read_on_exhausted(reading, path, message->on_exhausted, ret);
}

/* `head` "." `tail`, without the dot where there is no tail. */
static char *join(struct reading *reading, const char *head, const char *tail)
{
    size_t size = strlen(head) + strlen(tail) + 2;
    char *text = mem_calloc(1, size);
    if (!text)
        reading->oom = true;
    else
        (void)snprintf(text, size, "%s.%s", head, tail);
    return text;
}

static char *default_handler(struct reading *reading, const char *definition, const char *step,
                             bool compensation)
{
    char *action = join(reading, definition, step);
    if (!compensation || !action)
        return action;
    char *handler = join(reading, action, "compensate");
    mem_free(action);
    return handler;
}

/* What every attempt has, an action's as a probe's. */
static void read_attempts(struct reading *reading, const char *path, const Saga__V1__Retry *retry,
                          const Google__Protobuf__Duration *lease,
                          const Google__Protobuf__Duration *attempt_timeout,
                          struct operation_rule *ret)
{
    read_retry(reading, path, retry, &ret->retry);
    ret->lease_ms = read_ms(reading, path, "lease", lease, DEFAULT_LEASE_MS, 1);
    ret->attempt_timeout_ms =
        read_ms(reading, path, "attempt_timeout", attempt_timeout, DEFAULT_ATTEMPT_TIMEOUT_MS, 1);
}

/* Index of the step with that name; the count if there is none. */
static size_t step_find(const Saga__V1__SagaDefinition *definition, const char *name)
{
    size_t i = 0;
    while (i < definition->n_steps && strcmp(definition->steps[i]->name, name) != 0)
        i++;
    return i;
}

/* False: it is told already. */
static bool read_source(struct reading *reading, const char *path, const char *from,
                        const Saga__V1__SagaDefinition *definition, int *ret)
{
    size_t step = step_find(definition, from);
    bool is_input = strcmp(from, "input") == 0;
    *ret = is_input ? FROM_INPUT : (int)step;
    if (is_input || step < definition->n_steps)
        return true;
    fault(reading, path, "from", "names no step: \"%.64s\"; name one, or \"input\"", from);
    return false;
}

static void read_request(struct reading *reading, const char *operation,
                         const Saga__V1__RequestShape *message,
                         const Saga__V1__SagaDefinition *definition, struct request_shape *ret)
{
    if (!message)
        return;
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s.request", operation);
    if (!*message->type)
        fault(reading, path, "type", "is required: the full name of the request's message");
    if (message->n_fields > LIMIT_REQUEST_FIELDS) {
        fault(reading, path, "fields", "must be at most %d, is %zu", LIMIT_REQUEST_FIELDS,
              message->n_fields);
        return;
    }
    ret->type = keep(reading, message->type);
    ret->is_empty = !message->n_fields && strcmp(message->type, "google.protobuf.Empty") == 0;
    ret->fields = mem_calloc(message->n_fields + 1, sizeof *ret->fields);
    if (!ret->fields) {
        reading->oom = true;
        return;
    }
    for (size_t i = 0; i < message->n_fields; i++) {
        struct request_field field = { .number = message->fields[i]->number };
        (void)snprintf(path, sizeof path, "%s.request.fields[%zu]", operation, i);
        if (read_source(reading, path, message->fields[i]->from, definition, &field.from))
            ret->fields[ret->field_count++] = field;
        else
            ret->is_empty = true; /* so that nothing more is told about it */
    }
}

static void read_probe(struct reading *reading, const char *operation,
                       const Saga__V1__Probe *message, const Saga__V1__SagaDefinition *definition,
                       struct operation_rule *ret)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s.probe", operation);
    struct operation_rule *probe = ret->probe = definition_probe_new();
    if (!probe || !ret->handler) {
        reading->oom = true;
        return;
    }
    probe->handler =
        *message->handler ? keep(reading, message->handler) : join(reading, ret->handler, "probe");
    read_attempts(reading, path, message->retry, message->lease, message->attempt_timeout, probe);
    read_request(reading, path, message->request, definition, &probe->request);
}

/* Its bounds are definition_check's, which refuses 0. */
static int32_t read_lost_leases(const Saga__V1__Operation *message)
{
    if (message->_lost_leases_max_case != SAGA__V1__OPERATION___LOST_LEASES_MAX_LOST_LEASES_MAX)
        return DEFAULT_LOST_LEASES_MAX;
    return message->lost_leases_max > INT32_MAX ? INT32_MAX : (int32_t)message->lost_leases_max;
}

static void read_operation(struct reading *reading, const char *path,
                           const Saga__V1__SagaDefinition *definition, const Saga__V1__Step *step,
                           bool compensation, struct operation_rule *ret)
{
    static const Saga__V1__Operation nothing = SAGA__V1__OPERATION__INIT;
    const Saga__V1__Operation *message = compensation ? step->compensation : step->action;
    if (!message) /* an action that is not there is told as an empty one: it lacks its effect */
        message = &nothing;
    read_policies(reading, path, message, ret);
    ret->handler = *message->handler
                       ? keep(reading, message->handler)
                       : default_handler(reading, definition->name, step->name, compensation);
    read_attempts(reading, path, message->retry, message->lease, message->attempt_timeout, ret);
    ret->start_timeout_ms = read_ms(reading, path, "start_timeout", message->start_timeout, 0, 1);
    ret->window_ms =
        read_ms(reading, path, "idempotency_window", message->idempotency_window, 0, 1);
    ret->fresh_key = message->fresh_key_after_not_done;
    ret->lost_leases_max = read_lost_leases(message);
    read_request(reading, path, message->request, definition, &ret->request);
    ret->output_type = keep_if_said(reading, message->output_type);
    ret->key_template = keep_if_said(reading, message->idempotency_key);
    if (message->probe)
        read_probe(reading, path, message->probe, definition, ret);
}

static void read_after(struct reading *reading, const char *path, size_t index,
                       const Saga__V1__SagaDefinition *definition, struct step_set *ret)
{
    const Saga__V1__Step *message = definition->steps[index];
    if (message->n_after == 0 && !message->at_start)
        return; /* the step before it, as definition_new has it */
    *ret = (struct step_set){ 0 };
    if (message->at_start && message->n_after)
        fault(reading, path, "at_start", "says that it comes after nothing: leave out `after`");
    if (message->n_after > LIMIT_STEPS) { /* one fault, and none of them is looked at */
        fault(reading, path, "after", "must be at most %d names, is %zu", LIMIT_STEPS,
              message->n_after);
        return;
    }
    for (size_t i = 0; i < message->n_after; i++) {
        const char *name = message->after[i];
        size_t before = step_find(definition, name);
        char field[32];
        (void)snprintf(field, sizeof field, "after[%zu]", i);
        if (before == definition->n_steps)
            fault(reading, path, field, "names no step: \"%.64s\"", name);
        else if (before >= index)
            fault(reading, path, field, "must name a step that stands before it, \"%.64s\" %s",
                  name, before == index ? "is itself" : "stands after it");
        else if (step_set_has(ret, before))
            fault(reading, path, field, "names \"%.64s\" twice", name);
        else
            step_set_add(ret, before);
    }
}

/* In place of an action: what is not said about it is as if it were. */
static void read_wait(struct reading *reading, const char *path, const Saga__V1__Step *step,
                      struct step_rule *ret)
{
    const Saga__V1__SignalWait *message = step->wait_for_signal;
    char wait[PATH_SIZE];
    (void)snprintf(wait, sizeof wait, "%s.wait_for_signal", path);
    if (step->action)
        fault(reading, path, "action", "must be absent: the step waits for a signal");
    ret->signal = keep(reading, message->signal);
    ret->action = (struct operation_rule){
        .handler = keep(reading, ""),
        .effect = EFFECT_IDEMPOTENT,
        .retry = { DEFAULT_RETRY_FOR_MS, DEFAULT_RETRY_INITIAL_MS, DEFAULT_RETRY_CAP_MS, 0 },
        .lease_ms = DEFAULT_LEASE_MS,
        .attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS,
        .start_timeout_ms = read_ms(reading, wait, "timeout", message->timeout, 0, 1),
        .lost_leases_max = DEFAULT_LOST_LEASES_MAX,
        .output_type = keep_if_said(reading, message->payload_type),
    };
    read_on_exhausted(reading, wait, message->on_exhausted, &ret->action);
}

static void read_step(struct reading *reading, size_t index,
                      const Saga__V1__SagaDefinition *definition, struct step_rule *ret)
{
    const Saga__V1__Step *message = definition->steps[index];
    char path[PATH_SIZE / 2], operation[PATH_SIZE];
    (void)snprintf(path, sizeof path, "steps[%zu]", index);
    ret->name = keep(reading, message->name);
    read_after(reading, path, index, definition, &ret->after);
    (void)snprintf(operation, sizeof operation, "%s.action", path);
    if (message->wait_for_signal)
        read_wait(reading, path, message, ret);
    else
        read_operation(reading, operation, definition, message, false, &ret->action);
    switch (message->undo_case) {
    case SAGA__V1__STEP__UNDO_COMPENSATION:
        ret->has_compensation = true;
        (void)snprintf(operation, sizeof operation, "%s.compensation", path);
        read_operation(reading, operation, definition, message, true, &ret->compensation);
        break;
    case SAGA__V1__STEP__UNDO_NO_COMPENSATION:
        if (!message->no_compensation)
            fault(reading, path, "no_compensation", "only true is accepted: false");
        break;
    default:
        if (!message->wait_for_signal) /* that needs not say so */
            fault(reading, path, "undo", "say `compensation`, or `no_compensation: true`");
    }
    ret->guarded = message->guarded;
    ret->pivot = message->pivot;
    ret->delay_ms = read_ms(reading, path, "delay", message->delay, 0, 0);
    ret->settle_ms = read_ms(reading, path, "settle_time", message->settle_time, -1, 0);
}

static void read_labels(struct reading *reading, const Saga__V1__SagaDefinition *message,
                        struct definition *ret)
{
    if (message->n_labels > LIMIT_LABELS) {
        fault(reading, "", "labels", "must be at most %d, is %zu", LIMIT_LABELS, message->n_labels);
        return;
    }
    ret->label_count = message->n_labels;
    for (size_t i = 0; i < message->n_labels; i++)
        ret->labels[i] = (struct label_template){ keep(reading, message->labels[i]->name),
                                                  keep(reading, message->labels[i]->value) };
}

static void read_publish(struct reading *reading, Saga__V1__Publish value, struct definition *ret)
{
    switch (value) {
    case SAGA__V1__PUBLISH__PUBLISH_UNSPECIFIED:
    case SAGA__V1__PUBLISH__PUBLISH_NONE:
        ret->publish = PUBLISH_NONE;
        break;
    case SAGA__V1__PUBLISH__PUBLISH_ENDS:
        ret->publish = PUBLISH_ENDS;
        break;
    case SAGA__V1__PUBLISH__PUBLISH_TRANSITIONS:
        ret->publish = PUBLISH_TRANSITIONS;
        break;
    default:
        fault(reading, "", "publish", "is not known: %d", (int)value);
    }
}

static void read_definition(struct reading *reading, const Saga__V1__SagaDefinition *message,
                            struct definition *ret)
{
    ret->namespace_ = keep(reading, *message->namespace_ ? message->namespace_ : "default");
    ret->name = keep(reading, message->name);
    ret->description = keep(reading, message->description);
    ret->input_type = keep_if_said(reading, message->input_type);
    ret->key_template = keep_if_said(reading, message->key);
    read_labels(reading, message, ret);
    /* too many are one fault of definition_check, which then looks at none of them */
    size_t count = message->n_steps <= LIMIT_STEPS ? message->n_steps : 0;
    for (size_t i = 0; i < count && !reading->oom; i++)
        read_step(reading, i, message, &ret->steps[i]);
    definition_order(ret);
    ret->deadline_ms = read_ms(reading, "", "deadline", message->deadline, 0, 1);
    if (message->on_deadline == SAGA__V1__ON_DEADLINE__ON_DEADLINE_PARK)
        ret->on_deadline = ON_DEADLINE_PARK;
    else if (message->on_deadline != SAGA__V1__ON_DEADLINE__ON_DEADLINE_UNSPECIFIED &&
             message->on_deadline != SAGA__V1__ON_DEADLINE__ON_DEADLINE_COMPENSATE)
        fault(reading, "", "on_deadline", "is not known: %d", (int)message->on_deadline);
    ret->max_running = message->max_running;
    read_publish(reading, message->publish, ret);
}

int definition_from_message(const Saga__V1__SagaDefinition *message, definition_fault_fn *on_fault,
                            void *ctx, struct definition **ret, size_t *ret_faults, struct err *err)
{
    CLEANUP(definition_free_p) struct definition *definition = definition_new(message->n_steps);
    if (!definition)
        return err_set(err, ERR_NOMEM, "definition");
    struct reading reading = { .on_fault = on_fault, .ctx = ctx };
    read_definition(&reading, message, definition);
    if (reading.oom)
        return err_set(err, ERR_NOMEM, "definition");
    size_t faults = reading.faults + definition_check(definition, on_fault, ctx);
    if (!faults)
        *ret = TAKE(definition);
    *ret_faults = faults;
    return 0;
}

struct first_fault {
    bool seen;
    char field[PATH_SIZE], text[TEXT_SIZE];
};

static void keep_first_fault(void *ctx, const char *field, const char *description)
{
    struct first_fault *first = ctx;
    if (first->seen)
        return;
    first->seen = true;
    (void)snprintf(first->field, sizeof first->field, "%s", field);
    (void)snprintf(first->text, sizeof first->text, "%s", description);
}

static void arena_done_p(struct arena *arena)
{
    arena_done(arena);
}

int definition_decode(const struct bytes *content, struct definition **ret, struct err *err)
{
    const ProtobufCMessageDescriptor *type = &saga__v1__saga_definition__descriptor;
    if (wire_scan(type, content->data, content->size, err)) {
        err->code = ERR_INTERNAL; /* these bytes are ours, not a caller's */
        return err_wrap(err, "stored definition");
    }
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    ProtobufCAllocator allocator = arena_allocator(&arena);
    Saga__V1__SagaDefinition *message =
        saga__v1__saga_definition__unpack(&allocator, content->size, content->data);
    if (!message)
        return err_set(err, arena.oom ? ERR_NOMEM : ERR_INTERNAL,
                       "stored definition of %zu bytes does not unpack", content->size);
    struct first_fault first = { 0 };
    size_t faults = 0;
    int rc = definition_from_message(message, keep_first_fault, &first, ret, &faults, err);
    if (rc)
        return rc;
    if (faults)
        return err_set(err, ERR_INTERNAL, "stored definition '%s': %s %s", message->name,
                       first.field, first.text);
    return 0;
}
