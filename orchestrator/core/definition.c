#include "core/definition.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "core/limits.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MS_OF_S   INT64_C(1000)
#define MS_OF_DAY (INT64_C(24) * 3600 * 1000)

/* Where the check stands: faults are reported under the path of what is looked at. */
struct check {
    definition_fault_fn *on_fault;
    void *ctx;
    size_t faults;
    char path[48]; /* "steps[255].compensation.probe", or "" */
};

FMT(3, 4) static void fault(struct check *check, const char *field, const char *fmt, ...)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s%s%s", check->path, check->path[0] ? "." : "", field);
    char description[320];
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(description, sizeof description, fmt, args);
    va_end(args);
    /* A value of the input may have been cut in the middle of a character. */
    description[utf8_cut(description, strlen(description), sizeof description - 1)] = '\0';
    check->faults++;
    check->on_fault(check->ctx, path, description);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct name_rule {
    size_t limit;
    const char *others;  /* allowed beside lower-case letters and digits */
    const char *letters; /* how the rule is told */
    bool upper, letter_first;
};

static bool name_is_allowed(const struct name_rule *rule, const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || size > rule->limit || (rule->letter_first && !is_letter(name[0])))
        return false;
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        bool is_upper = c >= 'A' && c <= 'Z';
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!is_plain && !(is_upper && rule->upper) && !strchr(rule->others, c))
            return false;
    }
    return true;
}

static void check_name(struct check *check, const char *field, const char *name,
                       const struct name_rule *rule)
{
    if (!name || !name[0]) {
        fault(check, field, "is required: 1-%zu of %s", rule->limit, rule->letters);
        return;
    }
    if (!name_is_allowed(rule, name)) {
        size_t size = strlen(name);
        fault(check, field, "must be 1-%zu of %s%s, is \"%.*s\" (%zu bytes)", rule->limit,
              rule->letters, rule->letter_first ? ", a letter first" : "",
              (int)utf8_cut(name, size, 100), name, size);
    }
}

static void check_range(struct check *check, const char *field, int64_t value_ms, int64_t least_ms,
                        int64_t most_ms)
{
    if (value_ms < least_ms || value_ms > most_ms)
        fault(check, field, "must be %" PRId64 " ms to %" PRId64 " ms, is %" PRId64 " ms", least_ms,
              most_ms, value_ms);
}

static void check_policies(struct check *check, const struct operation_rule *rule,
                           bool is_compensation)
{
    if ((unsigned)rule->on_unknown >= ON_UNKNOWN_COUNT)
        fault(check, "on_unknown", "unknown value %d", (int)rule->on_unknown);
    else if (is_compensation && rule->on_unknown != ON_UNKNOWN_PARK)
        fault(check, "on_unknown", "a compensation may only say PARK, is %s",
              rule->on_unknown == ON_UNKNOWN_ACCEPT ? "ACCEPT" : "COMPENSATE");
    if ((unsigned)rule->on_exhausted >= ON_EXHAUSTED_COUNT)
        fault(check, "on_exhausted", "unknown value %d", (int)rule->on_exhausted);
    else if (is_compensation && rule->on_exhausted != ON_EXHAUSTED_PARK)
        fault(check, "on_exhausted", "a compensation may only say PARK, is %s",
              rule->on_exhausted == ON_EXHAUSTED_CONTINUE ? "CONTINUE" : "COMPENSATE");
}

static void check_retry(struct check *check, const struct retry *retry)
{
    check_range(check, "retry.for", retry->for_ms, 1, 366 * MS_OF_DAY);
    check_range(check, "retry.initial", retry->initial_ms, 1, 366 * MS_OF_DAY);
    check_range(check, "retry.cap", retry->cap_ms, 1, 366 * MS_OF_DAY);
    if (retry->cap_ms < retry->initial_ms)
        fault(check, "retry.cap",
              "must not be below retry.initial (%" PRId64 " ms), is %" PRId64 " ms",
              retry->initial_ms, retry->cap_ms);
    if (retry->max_attempts > INT32_MAX)
        fault(check, "retry.max_attempts", "must be 1 to %d, is %" PRIu32, INT32_MAX,
              retry->max_attempts);
}

/* What an attempt is, be it of an action, a compensation or a probe. */
static void check_attempts(struct check *check, const struct operation_rule *rule)
{
    static const struct name_rule handler = { LIMIT_HANDLER_BYTES, "._/-", "[A-Za-z0-9._/-]", true,
                                              false };
    check_name(check, "handler", rule->handler, &handler);
    check_retry(check, &rule->retry);
    check_range(check, "lease", rule->lease_ms, 5 * MS_OF_S, 3600 * MS_OF_S);
    check_range(check, "attempt_timeout", rule->attempt_timeout_ms, ATTEMPT_LEAST_MS, MS_OF_DAY);
}

static void check_type(struct check *check, const char *field, const char *type)
{
    size_t size = type ? strlen(type) : 0;
    if (size > LIMIT_TYPE_BYTES)
        fault(check, field, "must be the full name of a message, at most %d bytes, is %zu",
              LIMIT_TYPE_BYTES, size);
}

/* What it refers to in the input is the business of whoever knows the input's type. */
static void check_template(struct check *check, const struct definition *definition,
                           const char *field, const char *text)
{
    if (!text)
        return;
    if (!definition->input_type)
        fault(check, field, "needs input_type: it is made of the saga's input");
    if (strlen(text) > LIMIT_TEMPLATE_BYTES)
        fault(check, field, "must be at most %d bytes, is %zu", LIMIT_TEMPLATE_BYTES, strlen(text));
}

/* `own`: the request may have the step's own output, too. */
static void check_request(struct check *check, const struct definition *definition,
                          const struct request_shape *shape, size_t step, bool own)
{
    if (!shape->type || !*shape->type)
        return;
    check_type(check, "request.type", shape->type);
    if (!shape->field_count && !shape->is_empty && !definition->input_type)
        fault(check, "request", "without fields is the saga's input: needs input_type");
    for (size_t i = 0; i < shape->field_count; i++) {
        int from = shape->fields[i].from;
        char field[40];
        (void)snprintf(field, sizeof field, "request.fields[%zu]", i);
        if (shape->fields[i].number == 0 ||
            (i > 0 && shape->fields[i].number <= shape->fields[i - 1].number))
            fault(check, field, "must have a number, and a larger one than the field before it");
        if (from == FROM_INPUT && !definition->input_type)
            fault(check, field, "is filled with the saga's input: needs input_type");
        if (from != FROM_INPUT && !(own && (size_t)from == step) &&
            !step_set_has(&definition->steps[step].after_all, (size_t)from))
            fault(check, field, "must be filled by a step that comes before, \"%.64s\" does not",
                  definition->steps[from].name ? definition->steps[from].name : "");
    }
}

static void check_data_flow(struct check *check, const struct definition *definition, size_t step,
                            bool is_compensation)
{
    const struct operation_rule *rule =
        is_compensation ? &definition->steps[step].compensation : &definition->steps[step].action;
    check_request(check, definition, &rule->request, step, is_compensation);
    check_type(check, "output_type", rule->output_type);
    check_template(check, definition, "idempotency_key", rule->key_template);
    if (!rule->probe)
        return;
    char path[sizeof check->path];
    memcpy(path, check->path, sizeof path);
    (void)snprintf(check->path, sizeof check->path, "steps[%zu].%s.probe", step,
                   is_compensation ? "compensation" : "action");
    check_request(check, definition, &rule->probe->request, step, is_compensation);
    memcpy(check->path, path, sizeof path);
}

static void check_probe(struct check *check, const struct operation_rule *rule, int64_t settle_ms,
                        const char *path)
{
    const struct operation_rule *probe = rule->probe;
    if (!probe) {
        if (rule->effect == EFFECT_PROBED)
            fault(check, "probe", "is required: the effect is PROBED");
        if (rule->fresh_key)
            fault(check, "fresh_key_after_not_done",
                  "needs a probe: only a probe's NOT_DONE settles by itself");
        return;
    }
    if (rule->effect == EFFECT_AT_MOST_ONCE)
        fault(check, "probe", "must be absent: the effect is AT_MOST_ONCE; say PROBED to use it");
    (void)snprintf(check->path, sizeof check->path, "%s.probe", path);
    check_attempts(check, probe);
    if (settle_ms >= 0 && probe->retry.for_ms <= settle_ms)
        fault(check, "retry.for",
              "must be longer than settle_time (%" PRId64
              " ms), before which no NOT_DONE counts; is "
              "%" PRId64 " ms",
              settle_ms, probe->retry.for_ms);
    if (settle_ms > 0 && probe->retry.max_attempts == 1)
        fault(check, "retry.max_attempts",
              "must be at least 2: the first probe comes before settle_time is over");
}

static void check_window(struct check *check, const struct operation_rule *rule, int64_t settle_ms)
{
    if (rule->window_ms == 0)
        return;
    check_range(check, "idempotency_window", rule->window_ms, MS_OF_S, 366 * MS_OF_DAY);
    if (rule->effect != EFFECT_IDEMPOTENT)
        fault(check, "idempotency_window",
              "must be absent: only an IDEMPOTENT operation is repeated with its key");
    if (settle_ms >= 0 && rule->window_ms >= MS_OF_S && rule->window_ms < settle_ms + MS_OF_S)
        fault(check, "idempotency_window",
              "must be at least 1 s longer than settle_time (%" PRId64 " ms): an attempt ends so "
              "long before the window does; is %" PRId64 " ms",
              settle_ms, rule->window_ms);
}

static void check_operation(struct check *check, const struct operation_rule *rule,
                            int64_t settle_ms, bool is_compensation)
{
    char path[sizeof check->path];
    memcpy(path, check->path, sizeof path);
    check_attempts(check, rule);
    if ((unsigned)rule->effect >= EFFECT_COUNT)
        fault(check, "effect", "is required: IDEMPOTENT, PROBED or AT_MOST_ONCE");
    if (rule->start_timeout_ms != 0)
        check_range(check, "start_timeout", rule->start_timeout_ms, MS_OF_S, 366 * MS_OF_DAY);
    if (rule->lost_leases_max < 1 || rule->lost_leases_max > LIMIT_LOST_LEASES)
        fault(check, "lost_leases_max", "must be 1 to %d, is %" PRId32, LIMIT_LOST_LEASES,
              rule->lost_leases_max);
    check_policies(check, rule, is_compensation);
    check_window(check, rule, settle_ms);
    check_probe(check, rule, settle_ms, path);
    memcpy(check->path, path, sizeof path);
}

/* Why this step must say how long a request may be on its way; NULL: it need not. */
static const char *settle_is_asked_by(const struct step_rule *rule)
{
    const struct operation_rule *undo = rule->has_compensation ? &rule->compensation : NULL;
    if (rule->action.probe || (undo && undo->probe))
        return "a step with a probe";
    if (rule->action.window_ms || (undo && undo->window_ms))
        return "a step with an idempotency_window";
    return undo && !rule->guarded ? "an unguarded step with a compensation" : NULL;
}

/* The pivot itself, and a step that comes after it: nothing of them is taken back. */
static void check_from_pivot(struct check *check, const struct step_rule *rule)
{
    const char *where = rule->pivot ? "the pivot" : "a step after the pivot";
    if (rule->has_compensation)
        fault(check, "compensation", "must be absent: %s is not taken back", where);
    if (rule->action.on_unknown == ON_UNKNOWN_COMPENSATE)
        fault(check, "action.on_unknown", "must not be COMPENSATE: %s is not taken back", where);
    if (rule->pivot && rule->action.on_unknown == ON_UNKNOWN_ACCEPT)
        fault(check, "action.on_unknown",
              "must be PARK: what the pivot did decides whether the saga may turn back");
    if (rule->pivot && rule->action.on_exhausted == ON_EXHAUSTED_CONTINUE)
        fault(check, "action.on_exhausted",
              "must be PARK or COMPENSATE: the pivot is not optional");
    if (!rule->pivot && rule->action.on_exhausted == ON_EXHAUSTED_COMPENSATE)
        fault(check, "action.on_exhausted",
              "must be PARK or CONTINUE: nothing before %s is taken back", where);
}

static void check_pivot(struct check *check, const struct definition *definition, size_t step)
{
    const struct step_rule *rule = &definition->steps[step];
    size_t pivot = (size_t)definition->pivot;
    if (step == pivot) {
        check_from_pivot(check, rule);
        return;
    }
    if (rule->pivot)
        fault(check, "pivot", "only one step may be it, steps[%zu] is", pivot);
    bool after = step_set_has(&rule->after_all, pivot);
    if (!after && !step_set_has(&definition->steps[pivot].after_all, step))
        fault(
            check, "after",
            "must put it before or after the pivot \"%.64s\": whether it is taken back may not be "
            "a matter of time",
            definition->steps[pivot].name ? definition->steps[pivot].name : "");
    if (after)
        check_from_pivot(check, rule);
}

static const struct name_rule step_name = { LIMIT_STEP_NAME_BYTES, "_", "[a-z0-9_]", false, true };

/* A step that waits for a signal has no work, so nothing of what is said about work. */
static void check_wait(struct check *check, const struct definition *definition, size_t step)
{
    const struct step_rule *rule = &definition->steps[step];
    check_name(check, "wait_for_signal.signal", rule->signal, &step_name);
    for (size_t i = 0; i < step; i++)
        if (definition->steps[i].signal && strcmp(definition->steps[i].signal, rule->signal) == 0)
            fault(check, "wait_for_signal.signal",
                  "must be waited for by one step alone, steps[%zu] does, too: \"%.64s\"", i,
                  rule->signal);
    if (rule->action.start_timeout_ms != 0)
        check_range(check, "wait_for_signal.timeout", rule->action.start_timeout_ms, MS_OF_S,
                    366 * MS_OF_DAY);
    check_type(check, "wait_for_signal.payload_type", rule->action.output_type);
    if (rule->has_compensation)
        fault(check, "compensation", "must be absent: it waits, and there is nothing to take back");
    if (rule->pivot)
        fault(check, "pivot", "must not be a step that waits for a signal");
    if (rule->guarded)
        fault(check, "guarded", "must be absent: it waits, and has no effect");
    if (rule->settle_ms >= 0)
        fault(check, "settle_time", "must be absent: it waits, and sends nothing");
    if (rule->delay_ms != 0)
        fault(check, "delay", "must be absent: it waits for its signal, with a timeout");
}

static void check_step_name(struct check *check, const struct definition *definition, size_t step)
{
    const struct step_rule *rule = &definition->steps[step];
    check_name(check, "name", rule->name, &step_name);
    if (rule->name && strcmp(rule->name, "input") == 0)
        fault(check, "name", "must not be \"input\": that is what requests call the saga's input");
    for (size_t i = 0; rule->name && i < step; i++)
        if (definition->steps[i].name && strcmp(definition->steps[i].name, rule->name) == 0) {
            fault(check, "name", "must be unique, steps[%zu] is \"%.64s\", too", i, rule->name);
            break;
        }
}

static void check_step(struct check *check, const struct definition *definition, size_t step)
{
    const struct step_rule *rule = &definition->steps[step];
    (void)snprintf(check->path, sizeof check->path, "steps[%zu]", step);
    check_step_name(check, definition, step);
    if (definition->pivot >= 0)
        check_pivot(check, definition, step);
    if (rule->signal) {
        check_wait(check, definition, step);
        check->path[0] = '\0';
        return;
    }
    const char *asks = settle_is_asked_by(rule);
    if (asks && rule->settle_ms < 0)
        fault(check, "settle_time",
              "is required for %s: how long a request may still be on its way after its lease "
              "ended",
              asks);
    if (rule->settle_ms >= 0)
        check_range(check, "settle_time", rule->settle_ms, 0, MS_OF_DAY);

    if (rule->delay_ms != 0)
        check_range(check, "delay", rule->delay_ms, 1, 366 * MS_OF_DAY);

    (void)snprintf(check->path, sizeof check->path, "steps[%zu].action", step);
    check_operation(check, &rule->action, rule->settle_ms, false);
    check_data_flow(check, definition, step, false);
    if (rule->has_compensation) {
        (void)snprintf(check->path, sizeof check->path, "steps[%zu].compensation", step);
        check_operation(check, &rule->compensation, rule->settle_ms, true);
        check_data_flow(check, definition, step, true);
    }
    check->path[0] = '\0';
}

static void check_labels(struct check *check, const struct definition *definition)
{
    static const struct name_rule name = { LIMIT_LABEL_BYTES, "_", "[a-z0-9_]", false, true };
    for (size_t i = 0; i < definition->label_count; i++) {
        const struct label_template *label = &definition->labels[i];
        (void)snprintf(check->path, sizeof check->path, "labels[%zu]", i);
        check_name(check, "name", label->name, &name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(definition->labels[j].name, label->name) == 0)
                fault(check, "name", "must be unique, labels[%zu] is \"%.64s\", too", j,
                      label->name);
        if (!label->value[0])
            fault(check, "value", "is required: text with fields of the input, as \"{order_id}\"");
        check_template(check, definition, "value", label->value);
    }
    check->path[0] = '\0';
}

size_t definition_check(const struct definition *definition, definition_fault_fn *on_fault,
                        void *ctx)
{
    static const struct name_rule namespace_ = { LIMIT_NAMESPACE_BYTES, "-", "[a-z0-9-]", false,
                                                 true };
    static const struct name_rule name = { LIMIT_DEFINITION_NAME_BYTES, "._-", "[A-Za-z0-9._-]",
                                           true, true };
    struct check check = { .on_fault = on_fault, .ctx = ctx };
    check_name(&check, "namespace", definition->namespace_, &namespace_);
    check_name(&check, "name", definition->name, &name);
    size_t described = definition->description ? strlen(definition->description) : 0;
    if (described > LIMIT_DESCRIPTION_BYTES)
        fault(&check, "description", "must be at most %d bytes, is %zu", LIMIT_DESCRIPTION_BYTES,
              described);
    else if (described && !utf8_is_valid(definition->description, described))
        fault(&check, "description", "must be valid UTF-8");
    if (definition->deadline_ms != 0)
        check_range(&check, "deadline", definition->deadline_ms, MS_OF_S, 366 * MS_OF_DAY);
    if ((unsigned)definition->on_deadline >= ON_DEADLINE_COUNT)
        fault(&check, "on_deadline", "unknown value %d", (int)definition->on_deadline);

    if (definition->max_running < 0)
        fault(&check, "max_running", "must be 0 (no limit) or more, is %" PRId64,
              definition->max_running);
    if ((unsigned)definition->publish >= PUBLISH_COUNT)
        fault(&check, "publish", "unknown value %d", (int)definition->publish);
    check_type(&check, "input_type", definition->input_type);
    check_template(&check, definition, "key", definition->key_template);
    check_labels(&check, definition);
    if (definition->step_count == 0)
        fault(&check, "steps", "is required: 1-%d steps", LIMIT_STEPS);
    else if (definition->step_count > LIMIT_STEPS)
        /* Each step of such a list is not looked at: the answer stays small. */
        fault(&check, "steps", "must be 1-%d steps, is %zu", LIMIT_STEPS, definition->step_count);
    for (size_t i = 0; definition->step_count <= LIMIT_STEPS && i < definition->step_count; i++)
        check_step(&check, definition, i);
    return check.faults;
}

int definition_step_find(const struct definition *definition, const char *name)
{
    for (size_t i = 0; i < definition->step_count; i++)
        if (strcmp(definition->steps[i].name, name) == 0)
            return (int)i;
    return -1;
}

int definition_wait_find(const struct definition *definition, const char *signal)
{
    for (size_t i = 0; i < definition->step_count; i++)
        if (definition->steps[i].signal && strcmp(definition->steps[i].signal, signal) == 0)
            return (int)i;
    return -1;
}

struct definition *definition_new(size_t steps)
{
    struct definition *definition = mem_calloc(1, sizeof *definition);
    if (!definition)
        return NULL;
    definition->steps = mem_calloc(steps ? steps : 1, sizeof *definition->steps);
    if (!definition->steps)
        return definition_free(definition);
    definition->step_count = steps;
    for (size_t i = 1; i < steps && i < LIMIT_STEPS; i++)
        step_set_add(&definition->steps[i].after, i - 1);
    definition_order(definition);
    return definition;
}

void definition_order(struct definition *definition)
{
    struct step_rule *steps = definition->steps;
    definition->pivot = -1;
    for (size_t i = 0; i < definition->step_count && i < LIMIT_STEPS; i++) {
        steps[i].after_all = steps[i].after;
        for (size_t before = 0; before < i; before++)
            if (step_set_has(&steps[i].after, before))
                step_set_add_all(&steps[i].after_all, &steps[before].after_all);
        if (steps[i].pivot && definition->pivot < 0)
            definition->pivot = (int)i;
    }
}

struct operation_rule *definition_probe_new(void)
{
    struct operation_rule *probe = mem_calloc(1, sizeof *probe);
    if (!probe)
        return NULL;
    *probe = (struct operation_rule){ .effect = EFFECT_IDEMPOTENT,
                                      .lost_leases_max = DEFAULT_LOST_LEASES_MAX };
    return probe;
}

static void texts_done(struct operation_rule *rule)
{
    mem_free(rule->handler);
    mem_free(rule->request.type);
    mem_free(rule->request.fields);
    mem_free(rule->output_type);
    mem_free(rule->key_template);
}

static void rule_done(struct operation_rule *rule)
{
    if (rule->probe)
        texts_done(rule->probe);
    mem_free(rule->probe);
    texts_done(rule);
}

struct definition *definition_free(struct definition *definition)
{
    if (!definition)
        return NULL;
    for (size_t i = 0; definition->steps && i < definition->step_count; i++) {
        mem_free(definition->steps[i].name);
        mem_free(definition->steps[i].signal);
        rule_done(&definition->steps[i].action);
        rule_done(&definition->steps[i].compensation);
    }
    mem_free(definition->steps);
    mem_free(definition->namespace_);
    mem_free(definition->name);
    mem_free(definition->description);
    mem_free(definition->input_type);
    mem_free(definition->key_template);
    for (size_t i = 0; i < definition->label_count; i++) {
        mem_free(definition->labels[i].name);
        mem_free(definition->labels[i].value);
    }
    if (definition->types)
        definition->types->ops->free(definition->types);
    mem_free(definition);
    return NULL;
}
