#include "schema/derive_internal.h"

#include <stdio.h>
#include <string.h>

/* Whatever is NULL here since the arena is full is not looked at: schema_derive asks the arena. */

/* protobuf-c has no const strings; nobody writes into a definition. */
static char *text(const char *borrowed)
{
    return borrowed ? (char *)borrowed : (char *)protobuf_c_empty_string;
}

static Saga__V1__Retry *build_retry(const struct derive *derive, const struct rpc *rpc)
{
    const struct says *says = rpc->says.has_max_attempts ? &rpc->says : &derive->defaults;
    if (!rpc->times[TIME_RETRY_FOR] && !rpc->times[TIME_RETRY_INITIAL] &&
        !rpc->times[TIME_RETRY_CAP] && !says->has_max_attempts)
        return NULL;
    Saga__V1__Retry *retry = derive_message_new(derive->arena, &saga__v1__retry__descriptor);
    if (!retry)
        return NULL;
    retry->for_ = rpc->times[TIME_RETRY_FOR];
    retry->initial = rpc->times[TIME_RETRY_INITIAL];
    retry->cap = rpc->times[TIME_RETRY_CAP];
    if (says->has_max_attempts) {
        retry->_max_attempts_case = SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS;
        retry->max_attempts = says->max_attempts;
    }
    return retry;
}

static char *build_handler(const struct derive *derive, const struct rpc *rpc)
{
    if (derive_is_said(rpc->says.handler))
        return text(rpc->says.handler);
    const char *service = derive->service->full_name, *method = rpc->method->name;
    size_t size = strlen(service) + strlen(method) + 2;
    char *handler = arena_alloc(derive->arena, size);
    if (handler)
        (void)snprintf(handler, size, "%s.%s", service, method);
    return handler;
}

static Saga__V1__Probe *build_probe(const struct derive *derive, const struct rpc *rpc)
{
    Saga__V1__Probe *probe = derive_message_new(derive->arena, &saga__v1__probe__descriptor);
    if (!probe)
        return NULL;
    probe->handler = build_handler(derive, rpc);
    probe->retry = build_retry(derive, rpc);
    probe->lease = rpc->times[TIME_LEASE];
    probe->attempt_timeout = rpc->times[TIME_ATTEMPT_TIMEOUT];
    probe->request = rpc->shape;
    return probe;
}

static Saga__V1__Operation *build_operation(const struct derive *derive, const struct rpc *rpc)
{
    Saga__V1__Operation *operation =
        derive_message_new(derive->arena, &saga__v1__operation__descriptor);
    if (!operation)
        return NULL;
    const struct says *says = &rpc->says;
    operation->handler = build_handler(derive, rpc);
    operation->effect = says->effect;
    operation->retry = build_retry(derive, rpc);
    operation->lease = rpc->times[TIME_LEASE];
    operation->attempt_timeout = rpc->times[TIME_ATTEMPT_TIMEOUT];
    operation->idempotency_window = rpc->times[TIME_IDEMPOTENCY_WINDOW];
    operation->on_unknown = says->on_unknown;
    operation->on_exhausted = says->on_exhausted;
    operation->start_timeout = rpc->times[TIME_START_TIMEOUT];
    if (rpc->probe)
        operation->probe = build_probe(derive, rpc->probe);
    operation->fresh_key_after_not_done = says->fresh_key_after_not_done;
    if (!says->has_lost_leases_max)
        says = &derive->defaults;
    if (says->has_lost_leases_max) {
        operation->_lost_leases_max_case = SAGA__V1__OPERATION___LOST_LEASES_MAX_LOST_LEASES_MAX;
        operation->lost_leases_max = says->lost_leases_max;
    }
    operation->request = rpc->shape;
    operation->output_type = text(rpc->method->output->full_name);
    operation->idempotency_key = text(rpc->says.idempotency_key);
    return operation;
}

static Saga__V1__SignalWait *build_wait(const struct derive *derive, const struct rpc *rpc)
{
    Saga__V1__SignalWait *wait =
        derive_message_new(derive->arena, &saga__v1__signal_wait__descriptor);
    if (!wait)
        return NULL;
    const char *signal = rpc->step->wait_for_signal->signal;
    wait->signal = text(*signal ? signal : rpc->name);
    wait->timeout = rpc->times[TIME_SIGNAL_TIMEOUT];
    wait->payload_type = text(rpc->method->output->full_name);
    wait->on_exhausted = rpc->says.on_exhausted;
    return wait;
}

static Saga__V1__Step *build_step(const struct derive *derive, const struct rpc *rpc)
{
    Saga__V1__Step *step = derive_message_new(derive->arena, &saga__v1__step__descriptor);
    if (!step)
        return NULL;
    step->name = text(rpc->name);
    if (rpc->step->wait_for_signal)
        step->wait_for_signal = build_wait(derive, rpc);
    else
        step->action = build_operation(derive, rpc);
    if (rpc->undo) {
        step->undo_case = SAGA__V1__STEP__UNDO_COMPENSATION;
        step->compensation = build_operation(derive, rpc->undo);
    } else {
        step->undo_case = SAGA__V1__STEP__UNDO_NO_COMPENSATION;
        step->no_compensation = true;
    }
    step->guarded = rpc->step->guarded;
    step->settle_time = rpc->times[TIME_SETTLE];
    step->after = (char **)rpc->after;
    step->n_after = rpc->after_count;
    step->at_start = rpc->after_count == 0;
    step->pivot = rpc->step->pivot;
    step->delay = rpc->times[TIME_DELAY];
    return step;
}

static void build_labels(const struct derive *derive, Saga__V1__SagaDefinition *definition)
{
    size_t count = derive->saga->n_labels;
    definition->labels = arena_array(derive->arena, count, sizeof(Saga__V1__LabelTemplate *));
    for (size_t i = 0; i < count && definition->labels; i++) {
        Saga__V1__LabelTemplate *label =
            derive_message_new(derive->arena, &saga__v1__label_template__descriptor);
        if (!label)
            return;
        label->name = derive->saga->labels[i]->name;
        label->value = derive->saga->labels[i]->value;
        definition->labels[definition->n_labels++] = label;
    }
}

Saga__V1__SagaDefinition *derive_build(const struct derive *derive)
{
    Saga__V1__SagaDefinition *definition =
        derive_message_new(derive->arena, &saga__v1__saga_definition__descriptor);
    if (!definition)
        return NULL;
    const Saga__V1__SagaOptions *saga = derive->saga;
    definition->namespace_ = saga->namespace_;
    definition->name =
        *saga->name ? saga->name : derive_snake(derive->arena, derive->service->name);
    definition->description = saga->description;
    definition->deadline = derive->deadline;
    definition->on_deadline = saga->on_deadline;
    definition->max_running = saga->max_running;
    definition->publish = saga->publish;
    definition->input_type = text(derive->flow.input.message->full_name);
    definition->key = saga->key;
    build_labels(derive, definition);
    definition->steps = arena_array(derive->arena, derive->step_count, sizeof(Saga__V1__Step *));
    for (size_t i = 0; i < derive->step_count && definition->steps; i++)
        definition->steps[definition->n_steps++] = build_step(derive, derive->steps[i]);
    return definition;
}
