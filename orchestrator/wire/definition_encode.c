#include "wire/definition_codec.h"

#include "wire/arena.h"
#include "wire/times.h"

/* What every attempt has, an action's as a probe's. */
struct attempt_parts {
    Saga__V1__Retry retry;
    Google__Protobuf__Duration for_, initial, cap, lease, attempt_timeout;
};

/* A request with its fields, which are owned. */
struct request_parts {
    Saga__V1__RequestShape shape;
    Saga__V1__RequestField *fields;
    Saga__V1__RequestField **list;
};

/* One operation with the messages that it points to. */
struct operation_parts {
    Saga__V1__Operation operation;
    Saga__V1__Probe probe;
    struct attempt_parts own, probes;
    struct request_parts request, probes_request;
    Google__Protobuf__Duration start_timeout, window;
};

struct step_parts {
    Saga__V1__Step step;
    Saga__V1__SignalWait wait;
    struct operation_parts action, compensation;
    Google__Protobuf__Duration settle_time, delay, timeout;
};

/* What a definition is put together of, until it is packed. */
struct parts {
    const struct definition *definition;
    struct step_parts *steps;
    Saga__V1__Step **list;
    char **names;
    bool oom;
};

static char text_empty[] = "", text_input[] = "input";

static char *or_empty(char *text)
{
    return text ? text : text_empty;
}

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

/* NULL where the definition says nothing of it. */
static Saga__V1__RequestShape *fill_request(struct parts *parts, struct request_parts *request,
                                            const struct request_shape *shape)
{
    if (!shape->type)
        return NULL;
    size_t count = shape->field_count;
    Saga__V1__RequestShape *message = &request->shape;
    saga__v1__request_shape__init(message);
    message->type = shape->type;
    if (!count)
        return message;
    request->fields = mem_calloc(count, sizeof *request->fields);
    request->list = mem_calloc(count, sizeof(Saga__V1__RequestField *));
    if (!request->fields || !request->list) {
        parts->oom = true;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        Saga__V1__RequestField *field = request->list[i] = &request->fields[i];
        int from = shape->fields[i].from;
        saga__v1__request_field__init(field);
        field->number = shape->fields[i].number;
        field->from = from == FROM_INPUT ? text_input : parts->definition->steps[from].name;
    }
    message->fields = request->list;
    message->n_fields = count;
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

static Saga__V1__Operation *fill_operation(struct parts *all, struct operation_parts *parts,
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
    if (rule->probe) {
        message->probe = fill_probe(&parts->probe, &parts->probes, rule->probe);
        message->probe->request = fill_request(all, &parts->probes_request, &rule->probe->request);
    }
    message->request = fill_request(all, &parts->request, &rule->request);
    message->output_type = or_empty(rule->output_type);
    message->idempotency_key = or_empty(rule->key_template);
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

static Saga__V1__SignalWait *fill_wait(struct step_parts *parts, const struct step_rule *rule)
{
    Saga__V1__SignalWait *message = &parts->wait;
    saga__v1__signal_wait__init(message);
    message->signal = rule->signal;
    if (rule->action.start_timeout_ms)
        message->timeout = fill_duration(&parts->timeout, rule->action.start_timeout_ms);
    message->payload_type = or_empty(rule->action.output_type);
    message->on_exhausted = on_exhausted_to_message(rule->action.on_exhausted);
    return message;
}

static void fill_step(struct parts *all, struct step_parts *parts, const struct step_rule *rule)
{
    Saga__V1__Step *message = &parts->step;
    saga__v1__step__init(message);
    message->name = rule->name;
    if (rule->signal)
        message->wait_for_signal = fill_wait(parts, rule);
    else
        message->action = fill_operation(all, &parts->action, &rule->action);
    if (rule->has_compensation) {
        message->undo_case = SAGA__V1__STEP__UNDO_COMPENSATION;
        message->compensation = fill_operation(all, &parts->compensation, &rule->compensation);
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

static void operation_parts_done(struct operation_parts *parts)
{
    mem_free(parts->request.fields);
    mem_free(parts->request.list);
    mem_free(parts->probes_request.fields);
    mem_free(parts->probes_request.list);
}

static void parts_done(struct parts *parts)
{
    for (size_t i = 0; parts->steps && i < parts->definition->step_count; i++) {
        operation_parts_done(&parts->steps[i].action);
        operation_parts_done(&parts->steps[i].compensation);
    }
    mem_free(parts->steps);
    mem_free(parts->list);
    mem_free(parts->names);
}

static int fill_steps(struct parts *parts, struct err *err)
{
    size_t count = parts->definition->step_count;
    parts->steps = mem_calloc(count + 1, sizeof *parts->steps);
    parts->list = mem_calloc(count + 1, sizeof(Saga__V1__Step *));
    parts->names = mem_calloc(count * (count + 1) / 2 + 1, sizeof(char *));
    parts->oom = !parts->steps || !parts->list || !parts->names;
    for (size_t i = 0; i < count && !parts->oom; i++) {
        struct step_parts *step = &parts->steps[i];
        fill_step(parts, step, &parts->definition->steps[i]);
        fill_after(&step->step, parts->definition, i, parts->names + i * (i + 1) / 2);
        parts->list[i] = &step->step;
    }
    return parts->oom ? err_set(err, ERR_NOMEM, "encode definition") : 0;
}

static int pack(const Saga__V1__SagaDefinition *message, struct bytes *ret, struct err *err)
{
    size_t size = saga__v1__saga_definition__get_packed_size(message);
    uint8_t *data = mem_calloc(1, size);
    if (!data)
        return err_set(err, ERR_NOMEM, "encode definition of %zu bytes", size);
    (void)saga__v1__saga_definition__pack(message, data); /* always writes `size` bytes */
    *ret = (struct bytes){ data, size };
    return 0;
}

/* NONE is written as what is not said: what was stored before there were events keeps its bytes,
 * and so its revision when it is registered again. */
static Saga__V1__Publish publish_of(const struct definition *definition)
{
    switch (definition->publish) {
    case PUBLISH_ENDS:
        return SAGA__V1__PUBLISH__PUBLISH_ENDS;
    case PUBLISH_TRANSITIONS:
        return SAGA__V1__PUBLISH__PUBLISH_TRANSITIONS;
    default:
        return SAGA__V1__PUBLISH__PUBLISH_UNSPECIFIED;
    }
}

int definition_encode(const struct definition *definition, struct bytes *ret, struct err *err)
{
    struct parts parts = { .definition = definition };
    Saga__V1__LabelTemplate labels[LIMIT_LABELS], *label_list[LIMIT_LABELS];
    Google__Protobuf__Duration deadline;
    Saga__V1__SagaDefinition message = SAGA__V1__SAGA_DEFINITION__INIT;
    message.namespace_ = definition->namespace_;
    message.name = definition->name;
    message.description = definition->description;
    message.input_type = or_empty(definition->input_type);
    message.key = or_empty(definition->key_template);
    for (size_t i = 0; i < definition->label_count; i++) {
        saga__v1__label_template__init(&labels[i]);
        labels[i].name = definition->labels[i].name;
        labels[i].value = definition->labels[i].value;
        label_list[i] = &labels[i];
    }
    message.labels = label_list;
    message.n_labels = definition->label_count;
    if (definition->deadline_ms)
        message.deadline = fill_duration(&deadline, definition->deadline_ms);
    message.on_deadline = definition->on_deadline == ON_DEADLINE_PARK
                              ? SAGA__V1__ON_DEADLINE__ON_DEADLINE_PARK
                              : SAGA__V1__ON_DEADLINE__ON_DEADLINE_COMPENSATE;
    message.max_running = definition->max_running;
    message.publish = publish_of(definition);
    int rc = fill_steps(&parts, err);
    message.steps = parts.list;
    message.n_steps = definition->step_count;
    if (!rc)
        rc = pack(&message, ret, err);
    parts_done(&parts);
    return rc;
}
