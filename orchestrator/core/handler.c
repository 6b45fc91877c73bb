#include "core/handler.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

int64_t held_within(const struct held_times *times, int64_t from_ms, int64_t to_ms)
{
    int64_t sum = 0;
    for (size_t i = times ? times->count : 0; i-- > 0;) {
        const struct held_time *time = &times->list[i];
        if (time->until_ms <= from_ms)
            break; /* nor does any before it reach so far */
        int64_t begin = time->from_ms > from_ms ? time->from_ms : from_ms;
        int64_t end = time->until_ms < to_ms ? time->until_ms : to_ms;
        sum += end > begin ? end - begin : 0;
    }
    return sum;
}

int64_t held_until(const struct held_times *times, int64_t from_ms, int64_t left_ms)
{
    int64_t at_ms = from_ms + left_ms;
    for (size_t i = 0; times && i < times->count; i++) {
        const struct held_time *time = &times->list[i];
        if (time->until_ms <= from_ms)
            continue;
        int64_t begin = time->from_ms > from_ms ? time->from_ms : from_ms;
        if (begin >= at_ms)
            break;
        if (time->until_ms == INT64_MAX)
            return INT64_MAX;
        at_ms += time->until_ms - begin;
    }
    return at_ms;
}

static const char *const hold_names[HOLD_COUNT] = {
    [HOLD_PERSON] = "PERSON", [HOLD_BREAKER] = "BREAKER"
};

const char *handler_hold_name(enum handler_hold hold)
{
    return hold < HOLD_COUNT ? hold_names[hold] : NULL;
}

bool handler_hold_parse(const char *name, enum handler_hold *ret)
{
    for (int i = HOLD_PERSON; i < HOLD_COUNT; i++)
        if (strcmp(name, hold_names[i]) == 0) {
            *ret = (enum handler_hold)i;
            return true;
        }
    return false;
}

static const char *const event_names[HANDLER_EVENT_COUNT] = {
    [HANDLER_EVENT_HELD] = "HELD",
    [HANDLER_EVENT_RELEASED] = "RELEASED",
    [HANDLER_EVENT_LIMITED] = "LIMITED",
    [HANDLER_EVENT_DRAINED] = "DRAINED",
};

const char *handler_event_name(enum handler_event event)
{
    return event < HANDLER_EVENT_COUNT ? event_names[event] : NULL;
}

bool handler_event_parse(const char *name, enum handler_event *ret)
{
    for (int i = HANDLER_EVENT_HELD; i < HANDLER_EVENT_COUNT; i++)
        if (strcmp(name, event_names[i]) == 0) {
            *ret = (enum handler_event)i;
            return true;
        }
    return false;
}

void handler_init(struct handler *handler, const char *name)
{
    *handler = (struct handler){ .breaker_failures = BREAKER_DEFAULT,
                                 .breaker_trial_ms = BREAKER_TRIAL_MS,
                                 .breaker_successes = BREAKER_SUCCESSES };
    (void)snprintf(handler->name, sizeof handler->name, "%s", name); /* checked by who asks */
}

static void say(struct handler *handler, const struct handler_change *change)
{
    (void)snprintf(handler->actor, sizeof handler->actor, "%s", change->actor ? change->actor : "");
    (void)snprintf(handler->reason, sizeof handler->reason, "%s",
                   change->reason ? change->reason : "");
}

static void hold(struct handler *handler, enum handler_hold by, int64_t trial_in_ms,
                 struct handler_effect *ret)
{
    handler->hold = by;
    handler->release_rate_milli = 0;
    handler->trial_successes = 0;
    *ret = (struct handler_effect){ by == HOLD_NONE ? HANDLER_EVENT_RELEASED : HANDLER_EVENT_HELD,
                                    trial_in_ms };
}

static bool limit(struct handler *handler, const struct handler_change *change,
                  struct handler_effect *ret)
{
    ret->event = HANDLER_EVENT_LIMITED;
    if (change->rate_milli >= 0)
        handler->rate_milli = change->rate_milli;
    if (change->cap >= 0)
        handler->cap = change->cap;
    if (!change->sets_breaker)
        return change->rate_milli >= 0 || change->cap >= 0;
    handler->breaker_failures = change->breaker_failures;
    handler->breaker_successes = change->breaker_successes;
    handler->breaker_trial_ms = change->breaker_trial_ms;
    return true;
}

static bool tried(struct handler *handler, const struct handler_change *change,
                  struct handler_effect *ret)
{
    if (handler->hold != HOLD_BREAKER || handler->held_at_ms != change->held_at_ms)
        return false; /* it has been released since, and perhaps held anew */
    bool anew = change->success || handler->trial_successes > 0;
    handler->trial_successes = change->success ? handler->trial_successes + 1 : 0;
    if (handler->trial_successes < handler->breaker_successes)
        return anew;
    hold(handler, HOLD_NONE, 0, ret);
    (void)snprintf(handler->reason, sizeof handler->reason, "%d trials in a row succeeded",
                   handler->breaker_successes);
    *handler->actor = '\0';
    return true;
}

bool handler_apply(struct handler *handler, const struct handler_change *change,
                   struct handler_effect *ret)
{
    *ret = (struct handler_effect){ .trial_in_ms = TRIAL_AS_IT_IS };
    switch (change->kind) {
    case HANDLER_HOLD:
        say(handler, change);
        hold(handler, HOLD_PERSON, 0, ret);
        return true;
    case HANDLER_RELEASE:
        if (!handler_is_braked(handler))
            return false;
        say(handler, change);
        hold(handler, HOLD_NONE, 0, ret);
        handler->release_rate_milli = change->rate_milli;
        return true;
    case HANDLER_LIMIT:
        if (!limit(handler, change, ret))
            return false;
        say(handler, change);
        return true;
    case HANDLER_TRIP:
        if (handler->hold != HOLD_NONE)
            return false;
        say(handler, change);
        hold(handler, HOLD_BREAKER, handler->breaker_trial_ms, ret);
        return true;
    case HANDLER_TRIAL:
        ret->trial_in_ms = handler->breaker_trial_ms;
        return handler->hold == HOLD_BREAKER && change->now_ms >= handler->trial_at_ms;
    case HANDLER_TRIED:
        return tried(handler, change, ret);
    case HANDLER_DRAINED:
        if (handler->hold != HOLD_NONE || !handler->release_rate_milli)
            return false;
        handler->release_rate_milli = 0;
        ret->event = HANDLER_EVENT_DRAINED;
        return true;
    case HANDLER_CHANGE_COUNT:
        break;
    }
    return false;
}
