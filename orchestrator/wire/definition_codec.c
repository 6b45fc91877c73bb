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
    if (message->on_exhausted == SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_COMPENSATE)
        ret->on_exhausted = ON_EXHAUSTED_COMPENSATE;
    else if (message->on_exhausted == SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_CONTINUE)
        ret->on_exhausted = ON_EXHAUSTED_CONTINUE;
    else if (message->on_exhausted != SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_UNSPECIFIED &&
             message->on_exhausted != SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_PARK)
        fault(reading, path, "on_exhausted", "is not known: %d", (int)message->on_exhausted);
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

static void read_probe(struct reading *reading, const char *operation,
                       const Saga__V1__Probe *message, struct operation_rule *ret)
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
}

/* Its bounds are definition_check's, which refuses 0. */
static int32_t read_lost_leases(const Saga__V1__Operation *message)
{
    if (message->_lost_leases_max_case != SAGA__V1__OPERATION___LOST_LEASES_MAX_LOST_LEASES_MAX)
        return DEFAULT_LOST_LEASES_MAX;
    return message->lost_leases_max > INT32_MAX ? INT32_MAX : (int32_t)message->lost_leases_max;
}

/* Fields that the API names and the core does not run yet: refused, never passed over. */
static void refuse_unserved(struct reading *reading, const char *path, const char *field,
                            bool given)
{
    if (given)
        fault(reading, path, field, "is not served yet: leave it out");
}

static void refuse_of_operation(struct reading *reading, const char *path,
                                const Saga__V1__Operation *message)
{
    refuse_unserved(reading, path, "request", message->request);
    refuse_unserved(reading, path, "output_type", *message->output_type);
    refuse_unserved(reading, path, "idempotency_key", *message->idempotency_key);
    refuse_unserved(reading, path, "probe.request", message->probe && message->probe->request);
}

static void refuse_of_step(struct reading *reading, const char *path, const Saga__V1__Step *message)
{
    refuse_unserved(reading, path, "wait_for_signal", message->wait_for_signal);
}

static void refuse_of_definition(struct reading *reading, const Saga__V1__SagaDefinition *message)
{
    refuse_unserved(reading, "", "input_type", *message->input_type);
    refuse_unserved(reading, "", "key", *message->key);
    refuse_unserved(reading, "", "labels", message->n_labels);
}

static void read_operation(struct reading *reading, const char *path,
                           const Saga__V1__SagaDefinition *definition, const Saga__V1__Step *step,
                           bool compensation, struct operation_rule *ret)
{
    static const Saga__V1__Operation nothing = SAGA__V1__OPERATION__INIT;
    const Saga__V1__Operation *message = compensation ? step->compensation : step->action;
    if (!message) /* an action that is not there is told as an empty one: it lacks its effect */
        message = &nothing;
    refuse_of_operation(reading, path, message);
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
    if (message->probe)
        read_probe(reading, path, message->probe, ret);
}

/* Index of the step with that name; the count if there is none. */
static size_t step_find(const Saga__V1__SagaDefinition *definition, const char *name)
{
    size_t i = 0;
    while (i < definition->n_steps && strcmp(definition->steps[i]->name, name) != 0)
        i++;
    return i;
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

static void read_step(struct reading *reading, size_t index,
                      const Saga__V1__SagaDefinition *definition, struct step_rule *ret)
{
    const Saga__V1__Step *message = definition->steps[index];
    char path[PATH_SIZE / 2], operation[PATH_SIZE];
    (void)snprintf(path, sizeof path, "steps[%zu]", index);
    ret->name = keep(reading, message->name);
    refuse_of_step(reading, path, message);
    read_after(reading, path, index, definition, &ret->after);
    (void)snprintf(operation, sizeof operation, "%s.action", path);
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
        fault(reading, path, "undo", "say `compensation`, or `no_compensation: true`");
    }
    ret->guarded = message->guarded;
    ret->pivot = message->pivot;
    ret->delay_ms = read_ms(reading, path, "delay", message->delay, 0, 0);
    ret->settle_ms = read_ms(reading, path, "settle_time", message->settle_time, -1, 0);
}

static void read_definition(struct reading *reading, const Saga__V1__SagaDefinition *message,
                            struct definition *ret)
{
    ret->namespace_ = keep(reading, *message->namespace_ ? message->namespace_ : "default");
    ret->name = keep(reading, message->name);
    ret->description = keep(reading, message->description);
    refuse_of_definition(reading, message);
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
