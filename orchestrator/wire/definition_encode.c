#include "wire/definition_codec.h"

#include "wire/arena.h"
#include "wire/times.h"

/* What every attempt has, an action's as a probe's. */
struct attempt_parts {
    Saga__V1__Retry retry;
    Google__Protobuf__Duration for_, initial, cap, lease, attempt_timeout;
};

/* One operation with the messages that it points to. */
struct operation_parts {
    Saga__V1__Operation operation;
    Saga__V1__Probe probe;
    struct attempt_parts own, probes;
    Google__Protobuf__Duration start_timeout, window;
};

struct step_parts {
    Saga__V1__Step step;
    struct operation_parts action, compensation;
    Google__Protobuf__Duration settle_time, delay;
};

static Google__Protobuf__Duration *fill_duration(Google__Protobuf__Duration *message, int64_t ms)
{
    google__protobuf__duration__init(message);
    duration_from_ms(ms, message);
    return message;
}

static Saga__V1__Effect effect_to_message(enum effect effect)
{
    switch (effect) {
    case EFFECT_PROBED:
        return SAGA__V1__EFFECT__EFFECT_PROBED;
    case EFFECT_AT_MOST_ONCE:
        return SAGA__V1__EFFECT__EFFECT_AT_MOST_ONCE;
    default:
        return SAGA__V1__EFFECT__EFFECT_IDEMPOTENT;
    }
}

static Saga__V1__OnUnknown on_unknown_to_message(enum on_unknown on_unknown)
{
    switch (on_unknown) {
    case ON_UNKNOWN_COMPENSATE:
        return SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_COMPENSATE;
    case ON_UNKNOWN_ACCEPT:
        return SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_ACCEPT;
    default:
        return SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_PARK;
    }
}

static Saga__V1__OnExhausted on_exhausted_to_message(enum on_exhausted on_exhausted)
{
    switch (on_exhausted) {
    case ON_EXHAUSTED_COMPENSATE:
        return SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_COMPENSATE;
    case ON_EXHAUSTED_CONTINUE:
        return SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_CONTINUE;
    default:
        return SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_PARK;
    }
}

static Saga__V1__Retry *fill_retry(struct attempt_parts *parts, const struct retry *retry)
{
    Saga__V1__Retry *message = &parts->retry;
    saga__v1__retry__init(message);
    message->for_ = fill_duration(&parts->for_, retry->for_ms);
    message->initial = fill_duration(&parts->initial, retry->initial_ms);
    message->cap = fill_duration(&parts->cap, retry->cap_ms);
    if (retry->max_attempts) {
        message->_max_attempts_case = SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS;
        message->max_attempts = retry->max_attempts;
    }
    return message;
}

static Saga__V1__Probe *fill_probe(Saga__V1__Probe *message, struct attempt_parts *parts,
                                   const struct operation_rule *rule)
{
    saga__v1__probe__init(message);
    message->handler = rule->handler;
    message->retry = fill_retry(parts, &rule->retry);
    message->lease = fill_duration(&parts->lease, rule->lease_ms);
    message->attempt_timeout = fill_duration(&parts->attempt_timeout, rule->attempt_timeout_ms);
    return message;
}

static Saga__V1__Operation *fill_operation(struct operation_parts *parts,
                                           const struct operation_rule *rule)
{
    Saga__V1__Operation *message = &parts->operation;
    struct attempt_parts *own = &parts->own;
    saga__v1__operation__init(message);
    message->handler = rule->handler;
    message->effect = effect_to_message(rule->effect);
    message->retry = fill_retry(own, &rule->retry);
    message->lease = fill_duration(&own->lease, rule->lease_ms);
    message->attempt_timeout = fill_duration(&own->attempt_timeout, rule->attempt_timeout_ms);
    message->on_unknown = on_unknown_to_message(rule->on_unknown);
    message->on_exhausted = on_exhausted_to_message(rule->on_exhausted);
    if (rule->start_timeout_ms)
        message->start_timeout = fill_duration(&parts->start_timeout, rule->start_timeout_ms);
    if (rule->window_ms)
        message->idempotency_window = fill_duration(&parts->window, rule->window_ms);
    if (rule->probe)
        message->probe = fill_probe(&parts->probe, &parts->probes, rule->probe);
    message->fresh_key_after_not_done = rule->fresh_key;
    message->_lost_leases_max_case = SAGA__V1__OPERATION___LOST_LEASES_MAX_LOST_LEASES_MAX;
    message->lost_leases_max = (uint32_t)rule->lost_leases_max;
    return message;
}

/* Nothing where it is the step before alone, which is what nothing means. names: room for `index`.
 */
static void fill_after(Saga__V1__Step *message, const struct definition *definition, size_t index,
                       char **names)
{
    const struct step_set *after = &definition->steps[index].after;
    size_t count = 0;
    for (size_t i = 0; i < index; i++)
        if (step_set_has(after, i))
            names[count++] = definition->steps[i].name;
    message->at_start = index > 0 && count == 0;
    if (count == 0 || (count == 1 && step_set_has(after, index - 1)))
        return;
    message->after = names;
    message->n_after = count;
}

static void fill_step(struct step_parts *parts, const struct step_rule *rule)
{
    Saga__V1__Step *message = &parts->step;
    saga__v1__step__init(message);
    message->name = rule->name;
    message->action = fill_operation(&parts->action, &rule->action);
    if (rule->has_compensation) {
        message->undo_case = SAGA__V1__STEP__UNDO_COMPENSATION;
        message->compensation = fill_operation(&parts->compensation, &rule->compensation);
    } else {
        message->undo_case = SAGA__V1__STEP__UNDO_NO_COMPENSATION;
        message->no_compensation = 1;
    }
    message->guarded = rule->guarded;
    message->pivot = rule->pivot;
    if (rule->delay_ms)
        message->delay = fill_duration(&parts->delay, rule->delay_ms);
    if (rule->settle_ms >= 0)
        message->settle_time = fill_duration(&parts->settle_time, rule->settle_ms);
}

int definition_encode(const struct definition *definition, struct bytes *ret, struct err *err)
{
    size_t count = definition->step_count;
    CLEANUP(mem_free_p) struct step_parts *parts = mem_calloc(count + 1, sizeof *parts);
    CLEANUP(mem_free_p) Saga__V1__Step **steps = mem_calloc(count + 1, sizeof(Saga__V1__Step *));
    CLEANUP(mem_free_p) char **names = mem_calloc(count * (count + 1) / 2 + 1, sizeof(char *));
    if (!parts || !steps || !names)
        return err_set(err, ERR_NOMEM, "encode definition");
    Saga__V1__SagaDefinition message = SAGA__V1__SAGA_DEFINITION__INIT;
    message.namespace_ = definition->namespace_;
    message.name = definition->name;
    message.description = definition->description;
    for (size_t i = 0; i < count; i++) {
        fill_step(&parts[i], &definition->steps[i]);
        fill_after(&parts[i].step, definition, i, names + i * (i + 1) / 2);
        steps[i] = &parts[i].step;
    }
    message.n_steps = count;
    message.steps = steps;
    Google__Protobuf__Duration deadline;
    if (definition->deadline_ms)
        message.deadline = fill_duration(&deadline, definition->deadline_ms);
    message.on_deadline = definition->on_deadline == ON_DEADLINE_PARK
                              ? SAGA__V1__ON_DEADLINE__ON_DEADLINE_PARK
                              : SAGA__V1__ON_DEADLINE__ON_DEADLINE_COMPENSATE;
    size_t size = saga__v1__saga_definition__get_packed_size(&message);
    uint8_t *data = mem_calloc(1, size);
    if (!data)
        return err_set(err, ERR_NOMEM, "encode definition of %zu bytes", size);
    (void)saga__v1__saga_definition__pack(&message, data); /* always writes `size` bytes */
    *ret = (struct bytes){ data, size };
    return 0;
}
