#include "core/words.h"

#include <stddef.h>
#include <string.h>

static const char *const saga_states[] = {
    [SAGA_RUNNING] = "RUNNING",         [SAGA_COMPENSATING] = "COMPENSATING",
    [SAGA_PARKED] = "PARKED",           [SAGA_SUCCEEDED] = "SUCCEEDED",
    [SAGA_COMPENSATED] = "COMPENSATED", [SAGA_ABANDONED] = "ABANDONED",
};
_Static_assert(ARRAY_LEN(saga_states) == SAGA_STATE_COUNT, "a name for each state");

static const char *const operations[] = {
    [OPERATION_ACTION] = "ACTION",
    [OPERATION_COMPENSATION] = "COMPENSATION",
    [OPERATION_PROBE] = "PROBE",
};
_Static_assert(ARRAY_LEN(operations) == OPERATION_COUNT, "a name for each operation");

static const char *const outcomes[] = {
    [OUTCOME_NONE] = NULL,
    [OUTCOME_DONE] = "DONE",
    [OUTCOME_ALREADY_DONE] = "ALREADY_DONE",
    [OUTCOME_REJECTED] = "REJECTED",
    [OUTCOME_RETRY] = "RETRY",
    [OUTCOME_UNKNOWN] = "UNKNOWN",
    [OUTCOME_EXPIRED] = "EXPIRED",
    [OUTCOME_STREAM_LOST] = "STREAM_LOST",
    [OUTCOME_RELEASED] = "RELEASED",
    [OUTCOME_NOT_DONE] = "NOT_DONE",
    [OUTCOME_STILL_UNKNOWN] = "STILL_UNKNOWN",
};
_Static_assert(ARRAY_LEN(outcomes) == OUTCOME_COUNT, "a name for each outcome");

static const char *const entry_kinds[] = {
    [ENTRY_LEASE] = "LEASE",
    [ENTRY_COMPENSATE] = "COMPENSATE",
    [ENTRY_PARK] = "PARK",
    [ENTRY_RETRY] = "RETRY",
    [ENTRY_LATE_REPORT] = "LATE_REPORT",
    [ENTRY_RESUME] = "RESUME",
    [ENTRY_END] = "END",
    [ENTRY_RESOLVE] = "RESOLVE",
    [ENTRY_SKIP] = "SKIP",
    [ENTRY_ABANDON] = "ABANDON",
    [ENTRY_PROBE] = "PROBE",
    [ENTRY_MAYBE] = "MAYBE",
    [ENTRY_ACCEPT] = "ACCEPT",
    [ENTRY_CONTINUE] = "CONTINUE",
    [ENTRY_PENDING] = "PENDING",
    [ENTRY_SIGNAL] = "SIGNAL",
    [ENTRY_RECEIVE] = "RECEIVE",
    [ENTRY_SUSPECT] = "SUSPECT",
    [ENTRY_OPTIONS] = "OPTIONS",
};
_Static_assert(ARRAY_LEN(entry_kinds) == ENTRY_KIND_COUNT, "a name for each kind");

static const char *const causes[] = {
    [CAUSE_REFUSED] = "REFUSED",     [CAUSE_CANCELLED] = "CANCELLED",
    [CAUSE_DEADLINE] = "DEADLINE",   [CAUSE_UNKNOWN] = "UNKNOWN",
    [CAUSE_EXHAUSTED] = "EXHAUSTED", [CAUSE_START_TIMEOUT] = "START_TIMEOUT",
};
_Static_assert(ARRAY_LEN(causes) == CAUSE_COUNT, "a name for each cause");

static const char *const park_reasons[] = {
    [PARK_NONE] = NULL,
    [PARK_OUTCOME_UNKNOWN] = "OUTCOME_UNKNOWN",
    [PARK_IDEMPOTENCY_WINDOW_OVER] = "IDEMPOTENCY_WINDOW_OVER",
    [PARK_RETRIES_EXHAUSTED] = "RETRIES_EXHAUSTED",
    [PARK_COMPENSATION_FAILED] = "COMPENSATION_FAILED",
    [PARK_REJECTED_AFTER_PIVOT] = "REJECTED_AFTER_PIVOT",
    [PARK_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [PARK_FOREIGN_EFFECT] = "FOREIGN_EFFECT",
    [PARK_LATE_EFFECT] = "LATE_EFFECT",
    [PARK_WORKER_KILLER] = "WORKER_KILLER",
    [PARK_LIMIT_REACHED] = "LIMIT_REACHED",
    [PARK_SUSPENDED] = "SUSPENDED",
};
_Static_assert(ARRAY_LEN(park_reasons) == PARK_REASON_COUNT, "a name for each park reason");

static const char *const effects[] = {
    [EFFECT_IDEMPOTENT] = "IDEMPOTENT",
    [EFFECT_PROBED] = "PROBED",
    [EFFECT_AT_MOST_ONCE] = "AT_MOST_ONCE",
};
_Static_assert(ARRAY_LEN(effects) == EFFECT_COUNT, "a name for each effect class");

static const char *name_of(const char *const *names, size_t count, unsigned value)
{
    return value < count ? names[value] : NULL;
}

/* -1: none of the names. */
static int value_of(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

const char *saga_state_name(enum saga_state state)
{
    return name_of(saga_states, ARRAY_LEN(saga_states), (unsigned)state);
}

const char *operation_name(enum operation operation)
{
    return name_of(operations, ARRAY_LEN(operations), (unsigned)operation);
}

const char *outcome_name(enum outcome outcome)
{
    return name_of(outcomes, ARRAY_LEN(outcomes), (unsigned)outcome);
}

const char *entry_kind_name(enum entry_kind kind)
{
    return name_of(entry_kinds, ARRAY_LEN(entry_kinds), (unsigned)kind);
}

const char *cause_name(enum cause cause)
{
    return name_of(causes, ARRAY_LEN(causes), (unsigned)cause);
}

const char *park_reason_name(enum park_reason reason)
{
    return name_of(park_reasons, ARRAY_LEN(park_reasons), (unsigned)reason);
}

const char *effect_name(enum effect effect)
{
    return name_of(effects, ARRAY_LEN(effects), (unsigned)effect);
}

bool saga_state_parse(const char *name, enum saga_state *ret)
{
    int value = value_of(saga_states, ARRAY_LEN(saga_states), name);
    if (value < 0)
        return false;
    *ret = (enum saga_state)value;
    return true;
}

bool operation_parse(const char *name, enum operation *ret)
{
    int value = value_of(operations, ARRAY_LEN(operations), name);
    if (value < 0)
        return false;
    *ret = (enum operation)value;
    return true;
}

bool outcome_parse(const char *name, enum outcome *ret)
{
    int value = value_of(outcomes, ARRAY_LEN(outcomes), name);
    if (value < 0)
        return false;
    *ret = (enum outcome)value;
    return true;
}

bool entry_kind_parse(const char *name, enum entry_kind *ret)
{
    int value = value_of(entry_kinds, ARRAY_LEN(entry_kinds), name);
    if (value < 0)
        return false;
    *ret = (enum entry_kind)value;
    return true;
}

bool cause_parse(const char *name, enum cause *ret)
{
    int value = value_of(causes, ARRAY_LEN(causes), name);
    if (value < 0)
        return false;
    *ret = (enum cause)value;
    return true;
}

bool park_reason_parse(const char *name, enum park_reason *ret)
{
    int value = value_of(park_reasons, ARRAY_LEN(park_reasons), name);
    if (value < 0)
        return false;
    *ret = (enum park_reason)value;
    return true;
}
