#include "ctl/names.h"

#include <string.h>
#include <strings.h>

static const char *name_of(const ProtobufCEnumDescriptor *type, int value, const char *prefix)
{
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(type, value);
    size_t size = strlen(prefix);
    if (!known)
        return "?";
    return strncmp(known->name, prefix, size) == 0 ? known->name + size : known->name;
}

const char *name_saga_state(Saga__V1__SagaState state)
{
    return name_of(&saga__v1__saga_state__descriptor, (int)state, "SAGA_STATE_");
}

const char *name_step_state(Saga__V1__StepState state)
{
    return name_of(&saga__v1__step_state__descriptor, (int)state, "STEP_STATE_");
}

const char *name_outcome(Saga__V1__Outcome outcome)
{
    return outcome == SAGA__V1__OUTCOME__OUTCOME_UNSPECIFIED
               ? ""
               : name_of(&saga__v1__outcome__descriptor, (int)outcome, "OUTCOME_");
}

const char *name_operation(Saga__V1__OperationKind operation)
{
    return operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED
               ? ""
               : name_of(&saga__v1__operation_kind__descriptor, (int)operation, "OPERATION_KIND_");
}

const char *name_park_reason(Saga__V1__ParkReason reason)
{
    return name_of(&saga__v1__park_reason__descriptor, (int)reason, "PARK_REASON_");
}

const char *name_effect(Saga__V1__Effect effect)
{
    return name_of(&saga__v1__effect__descriptor, (int)effect, "EFFECT_");
}

const char *name_entry_kind(Saga__V1__JournalEntry__Kind kind)
{
    return name_of(&saga__v1__journal_entry__kind__descriptor, (int)kind, "KIND_");
}

const char *name_kafka_kind(Saga__V1__KafkaRequest__Kind kind)
{
    return name_of(&saga__v1__kafka_request__kind__descriptor, (int)kind, "KIND_");
}

const char *name_kafka_request_state(Saga__V1__KafkaRequest__State state)
{
    return name_of(&saga__v1__kafka_request__state__descriptor, (int)state, "STATE_");
}

const char *name_letter_state(Saga__V1__DeadLetter__State state)
{
    return name_of(&saga__v1__dead_letter__state__descriptor, (int)state, "STATE_");
}

/* -1: no value but 0 has that name, with the prefix or without. */
static int value_of(const ProtobufCEnumDescriptor *type, const char *text, const char *prefix)
{
    if (strncasecmp(text, prefix, strlen(prefix)) == 0)
        text += strlen(prefix);
    for (unsigned i = 0; i < type->n_values; i++) {
        int value = type->values[i].value;
        if (value != 0 && strcasecmp(text, name_of(type, value, prefix)) == 0)
            return value;
    }
    return -1;
}

bool name_saga_state_read(const char *text, Saga__V1__SagaState *ret)
{
    int value = value_of(&saga__v1__saga_state__descriptor, text, "SAGA_STATE_");
    if (value >= 0)
        *ret = (Saga__V1__SagaState)value;
    return value >= 0;
}

bool name_operation_read(const char *text, Saga__V1__OperationKind *ret)
{
    int value = value_of(&saga__v1__operation_kind__descriptor, text, "OPERATION_KIND_");
    if (value >= 0)
        *ret = (Saga__V1__OperationKind)value;
    return value >= 0;
}

bool name_letter_state_read(const char *text, Saga__V1__DeadLetter__State *ret)
{
    int value = value_of(&saga__v1__dead_letter__state__descriptor, text, "STATE_");
    if (value >= 0)
        *ret = (Saga__V1__DeadLetter__State)value;
    return value >= 0;
}

bool saga_state_is_end(Saga__V1__SagaState state)
{
    return state == SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED ||
           state == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED ||
           state == SAGA__V1__SAGA_STATE__SAGA_STATE_ABANDONED;
}

enum screen_style style_saga_state(Saga__V1__SagaState state)
{
    switch (state) {
    case SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED:
        return STYLE_GOOD;
    case SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED:
    case SAGA__V1__SAGA_STATE__SAGA_STATE_ABANDONED:
        return STYLE_BAD;
    default:
        return STYLE_BUSY;
    }
}

enum screen_style style_step_state(Saga__V1__StepState state)
{
    switch (state) {
    case SAGA__V1__STEP_STATE__STEP_STATE_DONE:
    case SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATED:
        return STYLE_GOOD;
    case SAGA__V1__STEP_STATE__STEP_STATE_PENDING:
    case SAGA__V1__STEP_STATE__STEP_STATE_NOT_RUN:
    case SAGA__V1__STEP_STATE__STEP_STATE_LEFT_OUT:
        return STYLE_FAINT;
    case SAGA__V1__STEP_STATE__STEP_STATE_REJECTED:
    case SAGA__V1__STEP_STATE__STEP_STATE_UNKNOWN:
    case SAGA__V1__STEP_STATE__STEP_STATE_EXHAUSTED:
    case SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_REJECTED:
    case SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_UNKNOWN:
    case SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_EXHAUSTED:
    case SAGA__V1__STEP_STATE__STEP_STATE_UNCONFIRMED:
    case SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_SKIPPED:
        return STYLE_BAD;
    default:
        return STYLE_BUSY;
    }
}
