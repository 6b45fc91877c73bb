/* Goal: each rule of definition.proto and of the design is checked, and its fault names field, rule
 * and value. Method: a table of single changes to an allowed definition, each with the field that
 * must be named; every fault of a bad one is told, not the first alone. */
#include "core/definition.h"
#include "core/limits.h"

#include "base/mem.h"
#include "support/check.h"

#include <stdio.h>

#define DAY_MS (INT64_C(24) * 3600 * 1000)

struct faults {
    size_t count;
    char field[8][96];
    char description[8][320];
};

static void note(void *ctx, const char *field, const char *description)
{
    struct faults *faults = ctx;
    if (faults->count < ARRAY_LEN(faults->field)) {
        (void)snprintf(faults->field[faults->count], 96, "%s", field);
        (void)snprintf(faults->description[faults->count], 320, "%s", description);
    }
    faults->count++;
}

static char *text(const char *from)
{
    char *copy = mem_strdup(from);
    assert_non_null(copy);
    return copy;
}

static void set_text(char **field, const char *to)
{
    mem_free(*field);
    *field = to ? text(to) : NULL;
}

static struct operation_rule allowed_rule(const char *handler)
{
    return (struct operation_rule){
        .handler = text(handler),
        .effect = EFFECT_AT_MOST_ONCE,
        .retry = { DEFAULT_RETRY_FOR_MS, DEFAULT_RETRY_INITIAL_MS, DEFAULT_RETRY_CAP_MS, 0 },
        .lease_ms = DEFAULT_LEASE_MS,
        .attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS,
        .lost_leases_max = DEFAULT_LOST_LEASES_MAX,
    };
}

static struct operation_rule *add_probe(struct operation_rule *rule)
{
    rule->probe = definition_probe_new();
    assert_non_null(rule->probe);
    *rule->probe = allowed_rule("settlement.ask");
    rule->probe->effect = EFFECT_IDEMPOTENT;
    return rule->probe;
}

/* Two steps: "debit", guarded; "risk", unguarded with a settle time. */
static struct definition *allowed(void)
{
    struct definition *definition = definition_new(2);
    assert_non_null(definition);
    definition->namespace_ = text("default");
    definition->name = text("Settlement-1.x_y");
    definition->description = text("two steps");
    for (size_t i = 0; i < 2; i++) {
        struct step_rule *step = &definition->steps[i];
        step->name = text(i ? "risk" : "debit");
        step->action = allowed_rule("team/settlement.step_1-x");
        step->compensation = allowed_rule("settlement.undo");
        step->has_compensation = true;
        step->guarded = i == 0;
        step->settle_ms = i ? 0 : -1;
    }
    return definition;
}

static const char *long_text(size_t size)
{
    static char longest[2048];
    memset(longest, 'a', size);
    longest[size] = '\0';
    return longest;
}

enum change {
    NO_NAMESPACE,
    NAMESPACE_UPPER,
    NAMESPACE_DIGIT_FIRST,
    NAMESPACE_LONG,
    NO_NAME,
    NAME_SPACE,
    NAME_DASH_FIRST,
    NAME_LONG,
    NAME_NOT_ASCII,
    DESCRIPTION_LONG,
    DESCRIPTION_NOT_UTF8,
    DEADLINE_SHORT,
    DEADLINE_LONG,
    DEADLINE_NEGATIVE,
    ON_DEADLINE_UNKNOWN,
    MAX_RUNNING_NEGATIVE,
    PUBLISH_UNKNOWN,
    NO_STEP_NAME,
    STEP_NAME_UPPER,
    STEP_NAME_LONG,
    STEP_NAME_TWICE,
    NO_SETTLE_TIME,
    SETTLE_TIME_LONG,
    NO_HANDLER,
    HANDLER_SPACE,
    HANDLER_LONG,
    NO_EFFECT,
    EFFECT_UNKNOWN,
    RETRY_FOR_ZERO,
    RETRY_FOR_LONG,
    RETRY_INITIAL_ZERO,
    RETRY_CAP_BELOW,
    MAX_ATTEMPTS_HUGE,
    LEASE_SHORT,
    LEASE_LONG,
    TIMEOUT_SHORT,
    TIMEOUT_LONG,
    START_TIMEOUT_SHORT,
    START_TIMEOUT_LONG,
    ON_UNKNOWN_UNKNOWN,
    ON_EXHAUSTED_UNKNOWN,
    COMPENSATION_EFFECT,
    COMPENSATION_ON_UNKNOWN,
    COMPENSATION_ON_EXHAUSTED,
    COMPENSATION_ACCEPT,
    COMPENSATION_CONTINUE,
    COMPENSATION_LEASE,
    NO_PROBE,
    COMPENSATION_NO_PROBE,
    PROBE_OF_AT_MOST_ONCE,
    FRESH_KEY_WITHOUT_PROBE,
    PROBE_NO_SETTLE_TIME,
    PROBE_HANDLER,
    PROBE_LEASE,
    PROBE_TIMEOUT,
    PROBE_RETRY_CAP,
    PROBE_RETRY_SHORT,
    PROBE_ONCE,
    COMPENSATION_PROBE_RETRY_SHORT,
    COMPENSATION_PROBE_ONCE,
    WINDOW_SHORT,
    WINDOW_LONG,
    WINDOW_NEGATIVE,
    WINDOW_OF_AT_MOST_ONCE,
    WINDOW_OF_PROBED,
    WINDOW_WITHIN_SETTLE_TIME,
    WINDOW_NO_SETTLE_TIME,
    COMPENSATION_WINDOW_NO_SETTLE_TIME,
    LOST_LEASES_ZERO,
    LOST_LEASES_HUGE,
    COMPENSATION_LOST_LEASES,
};

static void change_texts(struct definition *definition, enum change change)
{
    struct step_rule *step = &definition->steps[1];
    switch (change) {
    case NO_NAMESPACE:
        set_text(&definition->namespace_, NULL);
        break;
    case NAMESPACE_UPPER:
        set_text(&definition->namespace_, "Default");
        break;
    case NAMESPACE_DIGIT_FIRST:
        set_text(&definition->namespace_, "1a");
        break;
    case NAMESPACE_LONG:
        set_text(&definition->namespace_, long_text(65));
        break;
    case NO_NAME:
        set_text(&definition->name, "");
        break;
    case NAME_SPACE:
        set_text(&definition->name, "a b");
        break;
    case NAME_DASH_FIRST:
        set_text(&definition->name, "-a");
        break;
    case NAME_LONG:
        set_text(&definition->name, long_text(129));
        break;
    case NAME_NOT_ASCII:
        set_text(&definition->name, "\xc3\xa4pfel");
        break;
    case DESCRIPTION_LONG:
        set_text(&definition->description, long_text(1025));
        break;
    case DESCRIPTION_NOT_UTF8:
        set_text(&definition->description, "\xff");
        break;
    case NO_STEP_NAME:
        set_text(&step->name, NULL);
        break;
    case STEP_NAME_UPPER:
        set_text(&step->name, "Risk");
        break;
    case STEP_NAME_LONG:
        set_text(&step->name, long_text(65));
        break;
    case STEP_NAME_TWICE:
        set_text(&step->name, "debit");
        break;
    case NO_HANDLER:
        set_text(&step->action.handler, NULL);
        break;
    case HANDLER_SPACE:
        set_text(&step->action.handler, "a b");
        break;
    case HANDLER_LONG:
        set_text(&step->action.handler, long_text(129));
        break;
    default:
        break;
    }
}

static void change_rules(struct definition *definition, enum change change)
{
    struct step_rule *step = &definition->steps[1];
    struct operation_rule *action = &step->action, *undo = &step->compensation;
    switch (change) {
    case DEADLINE_SHORT:
        definition->deadline_ms = 999;
        break;
    case DEADLINE_LONG:
        definition->deadline_ms = 366 * DAY_MS + 1;
        break;
    case DEADLINE_NEGATIVE:
        definition->deadline_ms = -1;
        break;
    case ON_DEADLINE_UNKNOWN:
        definition->on_deadline = ON_DEADLINE_COUNT;
        break;
    case MAX_RUNNING_NEGATIVE:
        definition->max_running = -1;
        break;
    case PUBLISH_UNKNOWN:
        definition->publish = PUBLISH_COUNT;
        break;
    case NO_SETTLE_TIME:
        step->settle_ms = -1;
        break;
    case SETTLE_TIME_LONG:
        step->settle_ms = DAY_MS + 1;
        break;
    case NO_EFFECT:
        action->effect = EFFECT_COUNT;
        break;
    case EFFECT_UNKNOWN:
        action->effect = (enum effect)77;
        break;
    case ON_UNKNOWN_UNKNOWN:
        action->on_unknown = ON_UNKNOWN_COUNT;
        break;
    case ON_EXHAUSTED_UNKNOWN:
        action->on_exhausted = ON_EXHAUSTED_COUNT;
        break;
    case COMPENSATION_EFFECT:
        undo->effect = EFFECT_COUNT;
        break;
    case COMPENSATION_ON_UNKNOWN:
        undo->on_unknown = ON_UNKNOWN_COMPENSATE;
        break;
    case COMPENSATION_ON_EXHAUSTED:
        undo->on_exhausted = ON_EXHAUSTED_COMPENSATE;
        break;
    case COMPENSATION_ACCEPT:
        undo->on_unknown = ON_UNKNOWN_ACCEPT;
        break;
    case COMPENSATION_CONTINUE:
        undo->on_exhausted = ON_EXHAUSTED_CONTINUE;
        break;
    case LOST_LEASES_ZERO:
        action->lost_leases_max = 0;
        break;
    case LOST_LEASES_HUGE:
        action->lost_leases_max = LIMIT_LOST_LEASES + 1;
        break;
    case COMPENSATION_LOST_LEASES:
        undo->lost_leases_max = -1;
        break;
    case COMPENSATION_LEASE:
        undo->lease_ms = 0;
        break;
    default:
        break;
    }
}

static void change_times(struct definition *definition, enum change change)
{
    struct operation_rule *action = &definition->steps[1].action;
    switch (change) {
    case RETRY_FOR_ZERO:
        action->retry.for_ms = 0;
        break;
    case RETRY_FOR_LONG:
        action->retry.for_ms = 366 * DAY_MS + 1;
        break;
    case RETRY_INITIAL_ZERO:
        action->retry.initial_ms = 0;
        break;
    case RETRY_CAP_BELOW:
        action->retry.cap_ms = 999;
        break;
    case MAX_ATTEMPTS_HUGE:
        action->retry.max_attempts = UINT32_MAX;
        break;
    case LEASE_SHORT:
        action->lease_ms = 4999;
        break;
    case LEASE_LONG:
        action->lease_ms = 3600 * 1000 + 1;
        break;
    case TIMEOUT_SHORT:
        action->attempt_timeout_ms = 99;
        break;
    case TIMEOUT_LONG:
        action->attempt_timeout_ms = DAY_MS + 1;
        break;
    case START_TIMEOUT_SHORT:
        action->start_timeout_ms = 999;
        break;
    case START_TIMEOUT_LONG:
        action->start_timeout_ms = 366 * DAY_MS + 1;
        break;
    default:
        break;
    }
}

/* "risk": PROBED with a probe, settle time 5 s. */
static void change_probes(struct definition *definition, enum change change)
{
    struct step_rule *step = &definition->steps[1];
    bool undo = change >= COMPENSATION_PROBE_RETRY_SHORT;
    struct operation_rule *rule = undo ? &step->compensation : &step->action;
    rule->effect = change == PROBE_OF_AT_MOST_ONCE ? EFFECT_AT_MOST_ONCE : EFFECT_PROBED;
    struct operation_rule *probe = add_probe(rule);
    step->settle_ms = change == PROBE_NO_SETTLE_TIME ? -1 : 5000;
    step->has_compensation = undo; /* so that it alone asks for a settle time */
    switch (change) {
    case PROBE_HANDLER:
        set_text(&probe->handler, "a b");
        break;
    case PROBE_LEASE:
        probe->lease_ms = 1;
        break;
    case PROBE_TIMEOUT:
        probe->attempt_timeout_ms = 0;
        break;
    case PROBE_RETRY_CAP:
        probe->retry.cap_ms = 1;
        break;
    case PROBE_RETRY_SHORT:
    case COMPENSATION_PROBE_RETRY_SHORT:
        probe->retry.for_ms = 5000;
        break;
    case PROBE_ONCE:
    case COMPENSATION_PROBE_ONCE:
        probe->retry.max_attempts = 1;
        break;
    default:
        break;
    }
}

static void change_windows(struct definition *definition, enum change change)
{
    struct step_rule *step = &definition->steps[1];
    struct operation_rule *action = &step->action;
    step->has_compensation = false;
    step->settle_ms = 5000;
    action->effect = EFFECT_IDEMPOTENT;
    action->window_ms = 60000;
    switch (change) {
    case WINDOW_SHORT:
        action->window_ms = 999;
        break;
    case WINDOW_LONG:
        action->window_ms = 366 * DAY_MS + 1;
        break;
    case WINDOW_NEGATIVE:
        action->window_ms = -1;
        break;
    case WINDOW_OF_AT_MOST_ONCE:
        action->effect = EFFECT_AT_MOST_ONCE;
        break;
    case WINDOW_OF_PROBED:
        action->effect = EFFECT_PROBED;
        (void)add_probe(action);
        break;
    case WINDOW_WITHIN_SETTLE_TIME:
        action->window_ms = 5999;
        break;
    case WINDOW_NO_SETTLE_TIME:
        step->settle_ms = -1;
        break;
    case COMPENSATION_WINDOW_NO_SETTLE_TIME:
        action->window_ms = 0;
        step->guarded = step->has_compensation = true;
        step->compensation.effect = EFFECT_IDEMPOTENT;
        step->compensation.window_ms = 60000;
        step->settle_ms = -1;
        break;
    default:
        break;
    }
}

/* What a probe is missed by. */
static void change_no_probe(struct definition *definition, enum change change)
{
    struct step_rule *step = &definition->steps[1];
    if (change == NO_PROBE)
        step->action.effect = EFFECT_PROBED;
    else if (change == COMPENSATION_NO_PROBE)
        step->compensation.effect = EFFECT_PROBED;
    else
        step->action.fresh_key = true;
}

static void apply_change(struct definition *definition, enum change change)
{
    if (change >= WINDOW_SHORT && change <= COMPENSATION_WINDOW_NO_SETTLE_TIME)
        change_windows(definition, change);
    else if (change == PROBE_OF_AT_MOST_ONCE ||
             (change >= PROBE_NO_SETTLE_TIME && change <= COMPENSATION_PROBE_ONCE))
        change_probes(definition, change);
    else if (change >= NO_PROBE && change <= FRESH_KEY_WITHOUT_PROBE)
        change_no_probe(definition, change);
    change_texts(definition, change);
    change_rules(definition, change);
    change_times(definition, change);
}

static const struct {
    enum change change;
    const char *field, *says;
} faulty[] = {
    { NO_NAMESPACE, "namespace", "required" },
    { NAMESPACE_UPPER, "namespace", "\"Default\"" },
    { NAMESPACE_DIGIT_FIRST, "namespace", "a letter first" },
    { NAMESPACE_LONG, "namespace", "65 bytes" },
    { NO_NAME, "name", "required" },
    { NAME_SPACE, "name", "\"a b\"" },
    { NAME_DASH_FIRST, "name", "a letter first" },
    { NAME_LONG, "name", "1-128" },
    { NAME_NOT_ASCII, "name", "A-Za-z" },
    { DESCRIPTION_LONG, "description", "at most 1024 bytes, is 1025" },
    { DESCRIPTION_NOT_UTF8, "description", "UTF-8" },
    { DEADLINE_SHORT, "deadline", "is 999 ms" },
    { DEADLINE_LONG, "deadline", "31622400000 ms" },
    { DEADLINE_NEGATIVE, "deadline", "is -1 ms" },
    { ON_DEADLINE_UNKNOWN, "on_deadline", "unknown value" },
    { MAX_RUNNING_NEGATIVE, "max_running", "must be 0 (no limit) or more, is -1" },
    { PUBLISH_UNKNOWN, "publish", "unknown value 3" },
    { NO_STEP_NAME, "steps[1].name", "required" },
    { STEP_NAME_UPPER, "steps[1].name", "\"Risk\"" },
    { STEP_NAME_LONG, "steps[1].name", "1-64" },
    { STEP_NAME_TWICE, "steps[1].name", "unique, steps[0] is \"debit\"" },
    { NO_SETTLE_TIME, "steps[1].settle_time", "required for an unguarded step" },
    { SETTLE_TIME_LONG, "steps[1].settle_time", "86400001 ms" },
    { NO_HANDLER, "steps[1].action.handler", "required" },
    { HANDLER_SPACE, "steps[1].action.handler", "\"a b\"" },
    { HANDLER_LONG, "steps[1].action.handler", "1-128" },
    { NO_EFFECT, "steps[1].action.effect", "required" },
    { EFFECT_UNKNOWN, "steps[1].action.effect", "required" },
    { RETRY_FOR_ZERO, "steps[1].action.retry.for", "is 0 ms" },
    { RETRY_FOR_LONG, "steps[1].action.retry.for", "31622400000 ms" },
    { RETRY_INITIAL_ZERO, "steps[1].action.retry.initial", "is 0 ms" },
    { RETRY_CAP_BELOW, "steps[1].action.retry.cap", "not be below retry.initial (1000 ms)" },
    { MAX_ATTEMPTS_HUGE, "steps[1].action.retry.max_attempts", "4294967295" },
    { LEASE_SHORT, "steps[1].action.lease", "5000 ms to 3600000 ms, is 4999 ms" },
    { LEASE_LONG, "steps[1].action.lease", "3600001 ms" },
    { TIMEOUT_SHORT, "steps[1].action.attempt_timeout", "is 99 ms" },
    { TIMEOUT_LONG, "steps[1].action.attempt_timeout", "86400001 ms" },
    { START_TIMEOUT_SHORT, "steps[1].action.start_timeout", "is 999 ms" },
    { START_TIMEOUT_LONG, "steps[1].action.start_timeout", "31622400001 ms" },
    { ON_UNKNOWN_UNKNOWN, "steps[1].action.on_unknown", "unknown value" },
    { ON_EXHAUSTED_UNKNOWN, "steps[1].action.on_exhausted", "unknown value" },
    { COMPENSATION_EFFECT, "steps[1].compensation.effect", "required" },
    { COMPENSATION_ON_UNKNOWN, "steps[1].compensation.on_unknown", "only say PARK" },
    { COMPENSATION_ON_EXHAUSTED, "steps[1].compensation.on_exhausted", "only say PARK" },
    { COMPENSATION_ACCEPT, "steps[1].compensation.on_unknown", "only say PARK, is ACCEPT" },
    { COMPENSATION_CONTINUE, "steps[1].compensation.on_exhausted", "only say PARK, is CONTINUE" },
    { COMPENSATION_LEASE, "steps[1].compensation.lease", "is 0 ms" },
    { NO_PROBE, "steps[1].action.probe", "required: the effect is PROBED" },
    { COMPENSATION_NO_PROBE, "steps[1].compensation.probe", "required: the effect is PROBED" },
    { PROBE_OF_AT_MOST_ONCE, "steps[1].action.probe", "must be absent" },
    { FRESH_KEY_WITHOUT_PROBE, "steps[1].action.fresh_key_after_not_done", "needs a probe" },
    { PROBE_NO_SETTLE_TIME, "steps[1].settle_time", "required for a step with a probe" },
    { PROBE_HANDLER, "steps[1].action.probe.handler", "\"a b\"" },
    { PROBE_LEASE, "steps[1].action.probe.lease", "is 1 ms" },
    { PROBE_TIMEOUT, "steps[1].action.probe.attempt_timeout", "is 0 ms" },
    { PROBE_RETRY_CAP, "steps[1].action.probe.retry.cap", "not be below retry.initial" },
    { PROBE_RETRY_SHORT, "steps[1].action.probe.retry.for", "longer than settle_time (5000 ms)" },
    { PROBE_ONCE, "steps[1].action.probe.retry.max_attempts", "must be at least 2" },
    { COMPENSATION_PROBE_RETRY_SHORT, "steps[1].compensation.probe.retry.for", "is 5000 ms" },
    { COMPENSATION_PROBE_ONCE, "steps[1].compensation.probe.retry.max_attempts", "at least 2" },
    { WINDOW_SHORT, "steps[1].action.idempotency_window", "is 999 ms" },
    { WINDOW_LONG, "steps[1].action.idempotency_window", "is 31622400001 ms" },
    { WINDOW_NEGATIVE, "steps[1].action.idempotency_window", "is -1 ms" },
    { WINDOW_OF_AT_MOST_ONCE, "steps[1].action.idempotency_window", "only an IDEMPOTENT" },
    { WINDOW_OF_PROBED, "steps[1].action.idempotency_window", "only an IDEMPOTENT" },
    { WINDOW_WITHIN_SETTLE_TIME, "steps[1].action.idempotency_window", "1 s longer than" },
    { WINDOW_NO_SETTLE_TIME, "steps[1].settle_time", "a step with an idempotency_window" },
    { COMPENSATION_WINDOW_NO_SETTLE_TIME, "steps[1].settle_time", "an idempotency_window" },
    { LOST_LEASES_ZERO, "steps[1].action.lost_leases_max", "must be 1 to 1000, is 0" },
    { LOST_LEASES_HUGE, "steps[1].action.lost_leases_max", "is 1001" },
    { COMPENSATION_LOST_LEASES, "steps[1].compensation.lost_leases_max", "is -1" },
};

static void test_each_fault_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(faulty); i++) {
        struct definition *definition = allowed();
        apply_change(definition, faulty[i].change);
        struct faults faults = { 0 };
        size_t count = definition_check(definition, note, &faults);
        if (count != 1 || strcmp(faults.field[0], faulty[i].field) != 0 ||
            !strstr(faults.description[0], faulty[i].says))
            fail_msg("expected %s: %s; got %zu: %s: %s; %s: %s", faulty[i].field, faulty[i].says,
                     count, faults.field[0], faults.description[0], faults.field[1],
                     faults.description[1]);
        (void)definition_free(definition); /* always NULL */
    }
}

static void test_allowed_definitions(void **state)
{
    (void)state;
    struct faults faults = { 0 };
    struct definition *definition = allowed();
    assert_int_equal(definition_check(definition, note, &faults), 0);
    struct step_rule *step = &definition->steps[1];
    step->action.effect = EFFECT_IDEMPOTENT;
    step->action.on_unknown = ON_UNKNOWN_COMPENSATE;
    step->action.on_exhausted = ON_EXHAUSTED_COMPENSATE;
    step->action.start_timeout_ms = 1000;
    step->action.lease_ms = 5000;
    step->action.attempt_timeout_ms = 100; /* shorter than the lease: the lease ends with it */
    step->action.retry = (struct retry){ 1, 1, 1, 1 };
    step->settle_ms = DAY_MS;
    definition->deadline_ms = 366 * DAY_MS;
    definition->on_deadline = ON_DEADLINE_PARK;
    definition->max_running = INT64_MAX;
    definition->publish = PUBLISH_TRANSITIONS;
    set_text(&definition->description, NULL);
    assert_int_equal(definition_check(definition, note, &faults), 0);
    step->has_compensation = false; /* then its rule is not looked at, and no settle time is due */
    step->compensation.effect = EFFECT_COUNT;
    step->settle_ms = -1;
    assert_int_equal(definition_check(definition, note, &faults), 0);
    (void)definition_free(definition); /* always NULL */
}

/* As short and as rare as each rule allows. */
static void test_allowed_probes_and_windows(void **state)
{
    (void)state;
    struct faults faults = { 0 };
    struct definition *definition = allowed();
    struct step_rule *step = &definition->steps[1];
    step->settle_ms = 5000;
    step->action.effect = EFFECT_PROBED;
    step->action.fresh_key = true;
    step->action.on_unknown = ON_UNKNOWN_ACCEPT;
    step->action.on_exhausted = ON_EXHAUSTED_CONTINUE;
    step->action.lost_leases_max = 1;
    struct operation_rule *probe = add_probe(&step->action);
    probe->retry = (struct retry){ 5001, 1, 1, 2 };
    step->compensation.effect = EFFECT_IDEMPOTENT;
    step->compensation.window_ms = 6000;
    step->compensation.lost_leases_max = LIMIT_LOST_LEASES;
    (void)add_probe(&step->compensation); /* for the end of its window */
    assert_int_equal(definition_check(definition, note, &faults), 0);
    step->settle_ms = 0; /* then one probe may do, and the window may be a second */
    probe->retry = (struct retry){ 1, 1, 1, 1 };
    step->compensation.window_ms = 1000;
    assert_int_equal(definition_check(definition, note, &faults), 0);
    (void)definition_free(definition); /* always NULL */
}

/* Three steps, the second is the pivot. */
static struct definition *with_pivot(void)
{
    static const char *const names[] = { "reserve", "pay", "tell" };
    struct definition *definition = definition_new(3);
    assert_non_null(definition);
    definition->namespace_ = text("default");
    definition->name = text("order");
    for (size_t i = 0; i < 3; i++) {
        struct step_rule *step = &definition->steps[i];
        step->name = text(names[i]);
        step->action = allowed_rule("order.do");
        step->compensation = allowed_rule("order.undo");
        step->has_compensation = i == 0;
        step->guarded = true;
        step->settle_ms = -1;
    }
    definition->steps[1].pivot = true;
    definition_order(definition);
    return definition;
}

enum pivot_change {
    PIVOT_COMPENSATED,
    PIVOT_ON_UNKNOWN,
    PIVOT_ACCEPTED,
    PIVOT_OPTIONAL,
    AFTER_COMPENSATED,
    AFTER_ON_UNKNOWN,
    AFTER_ON_EXHAUSTED,
    TWO_PIVOTS,
    BESIDE_PIVOT,
};

static void change_pivot(struct definition *definition, enum pivot_change change)
{
    struct step_rule *pay = &definition->steps[1], *tell = &definition->steps[2];
    pay->has_compensation = change == PIVOT_COMPENSATED;
    tell->has_compensation = change == AFTER_COMPENSATED;
    if (change == PIVOT_ON_UNKNOWN)
        pay->action.on_unknown = ON_UNKNOWN_COMPENSATE;
    if (change == PIVOT_ACCEPTED)
        pay->action.on_unknown = ON_UNKNOWN_ACCEPT;
    if (change == PIVOT_OPTIONAL)
        pay->action.on_exhausted = ON_EXHAUSTED_CONTINUE;
    if (change == AFTER_ON_UNKNOWN)
        tell->action.on_unknown = ON_UNKNOWN_COMPENSATE;
    if (change == AFTER_ON_EXHAUSTED)
        tell->action.on_exhausted = ON_EXHAUSTED_COMPENSATE;
    tell->pivot = change == TWO_PIVOTS;
    if (change == BESIDE_PIVOT)
        tell->after = definition->steps[1].after;
    definition_order(definition);
}

static void test_the_pivot_and_what_stands_around_it(void **state)
{
    (void)state;
    static const struct {
        enum pivot_change change;
        const char *field, *says;
    } cases[] = {
        { PIVOT_COMPENSATED, "steps[1].compensation", "the pivot is not taken back" },
        { PIVOT_ON_UNKNOWN, "steps[1].action.on_unknown", "must not be COMPENSATE" },
        { PIVOT_ACCEPTED, "steps[1].action.on_unknown", "must be PARK" },
        { PIVOT_OPTIONAL, "steps[1].action.on_exhausted", "not optional" },
        { AFTER_COMPENSATED, "steps[2].compensation", "a step after the pivot" },
        { AFTER_ON_UNKNOWN, "steps[2].action.on_unknown", "must not be COMPENSATE" },
        { AFTER_ON_EXHAUSTED, "steps[2].action.on_exhausted", "PARK or CONTINUE" },
        { TWO_PIVOTS, "steps[2].pivot", "steps[1] is" },
        { BESIDE_PIVOT, "steps[2].after", "before or after the pivot \"pay\"" },
    };
    struct faults faults = { 0 };
    struct definition *definition = with_pivot();
    assert_int_equal(definition_check(definition, note, &faults), 0);
    definition->steps[1].action.on_exhausted = ON_EXHAUSTED_COMPENSATE;
    definition->steps[2].action.on_unknown = ON_UNKNOWN_ACCEPT;
    definition->steps[2].action.on_exhausted = ON_EXHAUSTED_CONTINUE;
    assert_int_equal(definition_check(definition, note, &faults), 0);
    (void)definition_free(definition); /* always NULL */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        faults = (struct faults){ 0 };
        definition = with_pivot();
        change_pivot(definition, cases[i].change);
        size_t count = definition_check(definition, note, &faults);
        if (count != 1 || strcmp(faults.field[0], cases[i].field) != 0 ||
            !strstr(faults.description[0], cases[i].says))
            fail_msg("expected %s: %s; got %zu: %s: %s", cases[i].field, cases[i].says, count,
                     faults.field[0], faults.description[0]);
        (void)definition_free(definition); /* always NULL */
    }
}

static void test_number_of_steps(void **state)
{
    (void)state;
    static const struct {
        size_t steps, faults;
        const char *says;
    } cases[] = { { 0, 1, "required" },
                  { LIMIT_STEPS, 0, NULL },
                  { 257, 1, "1-256 steps, is 257" } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct definition *definition = definition_new(cases[i].steps);
        assert_non_null(definition);
        definition->namespace_ = text("default");
        definition->name = text("long");
        for (size_t step = 0; step < cases[i].steps; step++) {
            char name[16];
            (void)snprintf(name, sizeof name, "s%zu", step);
            definition->steps[step].name = text(name);
            definition->steps[step].action = allowed_rule("h");
            definition->steps[step].settle_ms = -1;
        }
        struct faults faults = { 0 };
        assert_int_equal(definition_check(definition, note, &faults), cases[i].faults);
        if (cases[i].faults) {
            assert_string_equal(faults.field[0], "steps");
            assert_non_null(strstr(faults.description[0], cases[i].says));
        }
        (void)definition_free(definition); /* always NULL */
    }
}

static void test_every_fault_is_told(void **state)
{
    (void)state;
    struct definition *definition = allowed();
    change_texts(definition, NO_NAME);
    change_rules(definition, NO_EFFECT);
    change_times(definition, LEASE_SHORT);
    change_rules(definition, COMPENSATION_EFFECT);
    struct faults faults = { 0 };
    assert_int_equal(definition_check(definition, note, &faults), 4);
    assert_int_equal(faults.count, 4);
    (void)definition_free(definition); /* always NULL */
}

static void test_step_find(void **state)
{
    (void)state;
    struct definition *definition = allowed();
    assert_int_equal(definition_step_find(definition, "debit"), 0);
    assert_int_equal(definition_step_find(definition, "risk"), 1);
    assert_int_equal(definition_step_find(definition, "ris"), -1);
    assert_ptr_equal(definition_rule(definition, 1, OPERATION_COMPENSATION),
                     &definition->steps[1].compensation);
    assert_ptr_equal(definition_rule(definition, 1, OPERATION_ACTION),
                     &definition->steps[1].action);
    (void)definition_free(definition); /* always NULL */
    assert_null(definition_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_fault_is_named),
        cmocka_unit_test(test_allowed_definitions),
        cmocka_unit_test(test_allowed_probes_and_windows),
        cmocka_unit_test(test_the_pivot_and_what_stands_around_it),
        cmocka_unit_test(test_number_of_steps),
        cmocka_unit_test(test_every_fault_is_told),
        cmocka_unit_test(test_step_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
