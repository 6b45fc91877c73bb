#include "core/options.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct number {
    const char *name;
    size_t offset;
} numbers[] = {
    { "retry_for_ms", offsetof(struct saga_options, retry_for_ms) },
    { "retry_initial_ms", offsetof(struct saga_options, retry_initial_ms) },
    { "retry_cap_ms", offsetof(struct saga_options, retry_cap_ms) },
    { "max_attempts", offsetof(struct saga_options, max_attempts) },
    { "lease_ms", offsetof(struct saga_options, lease_ms) },
    { "deadline_ms", offsetof(struct saga_options, deadline_ms) },
};

static int64_t number_get(const struct saga_options *options, const struct number *number)
{
    int64_t value;
    memcpy(&value, (const char *)options + number->offset, sizeof value);
    return value;
}

static void number_set(struct saga_options *options, const struct number *number, int64_t value)
{
    memcpy((char *)options + number->offset, &value, sizeof value);
}

bool options_of_operations(const struct saga_options *options)
{
    return options->retry_for_ms != OPTIONS_SAME || options->retry_initial_ms != OPTIONS_SAME ||
           options->retry_cap_ms != OPTIONS_SAME || options->max_attempts != OPTIONS_SAME ||
           options->lease_ms != OPTIONS_SAME;
}

size_t options_write(const struct saga_options *options, char ret[OPTIONS_TEXT_MAX])
{
    size_t size = 0;
    ret[0] = '\0';
    if (options->operation != OPERATION_COUNT)
        size = (size_t)snprintf(ret, OPTIONS_TEXT_MAX, "operation=%s",
                                operation_name(options->operation));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int64_t value = number_get(options, &numbers[i]);
        if (value != OPTIONS_SAME)
            size += (size_t)snprintf(ret + size, OPTIONS_TEXT_MAX - size, "%s%s=%" PRId64,
                                     size ? "," : "", numbers[i].name, value);
    }
    return size;
}

/* Digits alone, so that each value has one text. */
static bool read_number(const char *text, int64_t *ret)
{
    int64_t value = 0;
    size_t size = strlen(text);
    if (size == 0 || size > 18 || (size > 1 && text[0] == '0'))
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (*text - '0');
    }
    *ret = value;
    return true;
}

static bool read_pair(const char *name, const char *value, struct saga_options *options)
{
    if (strcmp(name, "operation") == 0)
        return operation_parse(value, &options->operation);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int64_t read;
        if (strcmp(name, numbers[i].name) != 0)
            continue;
        if (!read_number(value, &read))
            return false;
        number_set(options, &numbers[i], read);
        return true;
    }
    return false;
}

bool options_read(const struct bytes *text, struct saga_options *ret)
{
    char copy[OPTIONS_TEXT_MAX], again[OPTIONS_TEXT_MAX];
    struct saga_options options = OPTIONS_NONE;
    if (text->size == 0 || text->size >= sizeof copy)
        return false;
    memcpy(copy, text->data, text->size);
    copy[text->size] = '\0';
    for (char *at = copy; at;) {
        char *end = strchr(at, ',');
        if (end)
            *end++ = '\0';
        char *value = strchr(at, '=');
        if (!value)
            return false;
        *value++ = '\0';
        if (!read_pair(at, value, &options))
            return false;
        at = end;
    }
    /* Each name once, and in order. */
    if (options_write(&options, again) != text->size || memcmp(again, text->data, text->size) != 0)
        return false;
    *ret = options;
    return true;
}

/* --- the definition with other numbers -------------------------------------------------------- */

static size_t probe_count(const struct definition *definition)
{
    size_t count = 0;
    for (size_t i = 0; i < definition->step_count; i++)
        count += (size_t)(definition->steps[i].action.probe != NULL) +
                 (size_t)(definition->steps[i].compensation.probe != NULL);
    return count;
}

static void copy_probe(struct operation_rule *rule, struct operation_rule **next)
{
    if (!rule->probe)
        return;
    **next = *rule->probe;
    rule->probe = (*next)++;
}

struct definition *options_copy(const struct definition *definition)
{
    /* One block: pointers to its rules stay good for as long as the copy lives. */
    struct block {
        struct definition definition;
        struct step_rule steps[];
    };
    size_t steps = definition->step_count, probes = probe_count(definition);
    size_t probes_at = sizeof(struct block) + steps * sizeof(struct step_rule);
    struct block *block = mem_calloc(1, probes_at + probes * sizeof(struct operation_rule));
    if (!block)
        return NULL;
    struct operation_rule *next = (struct operation_rule *)(void *)&block->steps[steps];
    block->definition = *definition;
    block->definition.steps = block->steps;
    memcpy(block->steps, definition->steps, steps * sizeof(struct step_rule));
    for (size_t i = 0; i < steps; i++) {
        copy_probe(&block->steps[i].action, &next);
        copy_probe(&block->steps[i].compensation, &next);
    }
    return &block->definition;
}

static size_t apply_rule(struct operation_rule *rule, const struct saga_options *options)
{
    if (options->retry_for_ms != OPTIONS_SAME)
        rule->retry.for_ms = options->retry_for_ms;
    if (options->retry_initial_ms != OPTIONS_SAME)
        rule->retry.initial_ms = options->retry_initial_ms;
    if (options->retry_cap_ms != OPTIONS_SAME)
        rule->retry.cap_ms = options->retry_cap_ms;
    if (options->max_attempts != OPTIONS_SAME)
        rule->retry.max_attempts = (uint32_t)options->max_attempts;
    if (options->lease_ms != OPTIONS_SAME)
        rule->lease_ms = options->lease_ms;
    return 1;
}

static size_t apply_step(struct step_rule *step, const struct saga_options *options)
{
    bool all = options->operation == OPERATION_COUNT;
    size_t count = 0;
    if (!step->signal && (all || options->operation == OPERATION_ACTION))
        count += apply_rule(&step->action, options);
    if (step->has_compensation && (all || options->operation == OPERATION_COMPENSATION))
        count += apply_rule(&step->compensation, options);
    if (step->action.probe && (all || options->operation == OPERATION_PROBE))
        count += apply_rule(step->action.probe, options);
    if (step->has_compensation && step->compensation.probe &&
        (all || options->operation == OPERATION_PROBE))
        count += apply_rule(step->compensation.probe, options);
    return count;
}

size_t options_apply(struct definition *copy, int step, const struct saga_options *options)
{
    size_t count = 0;
    for (size_t i = 0; i < copy->step_count; i++)
        if (step < 0 || (size_t)step == i)
            count += apply_step(&copy->steps[i], options);
    return count;
}

static bool rules_equal(const struct operation_rule *a, const struct operation_rule *b)
{
    return a->retry.for_ms == b->retry.for_ms && a->retry.initial_ms == b->retry.initial_ms &&
           a->retry.cap_ms == b->retry.cap_ms && a->retry.max_attempts == b->retry.max_attempts &&
           a->lease_ms == b->lease_ms && (!a->probe || rules_equal(a->probe, b->probe));
}

bool options_equal(const struct definition *a, const struct definition *b)
{
    for (size_t i = 0; i < a->step_count; i++)
        if (!rules_equal(&a->steps[i].action, &b->steps[i].action) ||
            !rules_equal(&a->steps[i].compensation, &b->steps[i].compensation))
            return false;
    return true;
}
