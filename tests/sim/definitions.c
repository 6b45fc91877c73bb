#include "sim/definitions.h"

#include "sim/rows.h"
#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Few steps are quicker: of a thousand definitions so many are large, and so many more have up to
 * STEPS_SOMETIMES steps. */
enum { STEPS_OFTEN = 4, STEPS_SOMETIMES = 6, LARGE = 60, MEDIUM = 90 };

const char *const handler_names[HANDLERS_MAX] = { "h0", "h1", "h2", "h3", "h4" };

/* The engine's decoder comes without a context; there is one world at a time. */
static const struct definitions *current;

static struct operation_rule plain_rule(const char *handler)
{
    return (struct operation_rule){
        .handler = rows_text(NULL, handler),
        .effect = EFFECT_IDEMPOTENT,
        .retry = { DEFAULT_RETRY_FOR_MS, DEFAULT_RETRY_INITIAL_MS, DEFAULT_RETRY_CAP_MS, 0 },
        .lease_ms = DEFAULT_LEASE_MS,
        .attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS,
        .lost_leases_max = DEFAULT_LOST_LEASES_MAX,
    };
}

void definitions_probe(struct operation_rule *rule, const char *handler)
{
    struct operation_rule *probe = definition_probe_new();
    if (!probe)
        abort(); /* out of memory */
    struct operation_rule plain = plain_rule(handler);
    probe->handler = plain.handler;
    probe->retry = plain.retry;
    probe->lease_ms = plain.lease_ms;
    probe->attempt_timeout_ms = plain.attempt_timeout_ms;
    rule->probe = probe;
}

struct definition *definitions_plain(const char *name, const char *const *steps, size_t count)
{
    struct definition *definition = definition_new(count);
    if (!definition)
        abort(); /* out of memory */
    definition->namespace_ = rows_text(NULL, "default");
    definition->name = rows_text(NULL, name);
    definition->description = rows_text(NULL, "");
    definition->revision = 1;
    for (size_t i = 0; i < count; i++) {
        struct step_rule *step = &definition->steps[i];
        step->name = rows_text(NULL, steps[i]);
        step->action = plain_rule(handler_names[i % HANDLERS_MAX]);
        step->compensation = plain_rule(handler_names[i % HANDLERS_MAX]);
        step->has_compensation = step->guarded = true;
        step->settle_ms = -1;
    }
    return definition;
}

static void on_fault(void *ctx, const char *field, const char *description)
{
    world_violate(ctx, INV_ENGINE, "a definition that may not be registered: %s %s", field,
                  description);
}

void definitions_add(struct world *world, struct definition *definition, enum shape shape)
{
    struct definitions *definitions = &world->definitions;
    definitions->shapes[definitions->count] = shape;
    definitions->items[definitions->count++] = definition;
    current = definitions;
    (void)definition_check(definition, on_fault, world);
}

const struct definition *definitions_find(const struct definitions *definitions, const char *name)
{
    for (size_t i = 0; i < definitions->count; i++)
        if (strcmp(definitions->items[i]->name, name) == 0)
            return definitions->items[i];
    return NULL;
}

enum shape definitions_shape(const struct definitions *definitions,
                             const struct definition *definition)
{
    for (size_t i = 0; i < definitions->count; i++)
        if (definitions->items[i] == definition)
            return definitions->shapes[i];
    return SHAPE_COUNT;
}

void definitions_done(struct definitions *definitions)
{
    for (size_t i = 0; i < definitions->count; i++)
        (void)definition_free(definitions->items[i]);
    definitions->count = 0;
}

/* --- a copy for each engine ------------------------------------------------------------------- */

static void copy_rule(struct operation_rule *to, const struct operation_rule *from)
{
    mem_free(to->handler);
    *to = *from;
    to->handler = rows_text(NULL, from->handler);
    if (!from->probe)
        return;
    definitions_probe(to, handler_names[0]);
    mem_free(to->probe->handler);
    *to->probe = *from->probe;
    to->probe->handler = rows_text(NULL, from->probe->handler);
}

int definitions_decode(const struct bytes *content, const struct bytes *descriptors,
                       struct definition **ret, struct err *err)
{
    (void)descriptors; /* payloads have no types here */
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)content->size, (const char *)content->data);
    const struct definition *from = definitions_find(current, name);
    const char *steps[STEPS_MAX];
    if (!from)
        return err_set(err, ERR_INTERNAL, "no definition %s", name);
    for (size_t i = 0; i < from->step_count; i++)
        steps[i] = from->steps[i].name;
    struct definition *copy = definitions_plain(name, steps, from->step_count);
    copy->deadline_ms = from->deadline_ms;
    copy->on_deadline = from->on_deadline;
    for (size_t i = 0; i < from->step_count; i++) {
        struct step_rule *step = &copy->steps[i];
        const struct step_rule *source = &from->steps[i];
        copy_rule(&step->action, &source->action);
        copy_rule(&step->compensation, &source->compensation);
        step->has_compensation = source->has_compensation;
        step->guarded = source->guarded;
        step->settle_ms = source->settle_ms;
        step->after = source->after;
        step->pivot = source->pivot;
        step->delay_ms = source->delay_ms;
    }
    definition_order(copy);
    *ret = copy;
    return 0;
}

/* --- made up ---------------------------------------------------------------------------------- */

static const char *some_handler(struct world *world)
{
    return handler_names[world_choice(world, HANDLERS_MAX)];
}

static void make_up_times(struct world *world, struct operation_rule *rule)
{
    rule->lease_ms = world_between(world, 5000, 9000);
    rule->attempt_timeout_ms = world_between(world, 1500, 25000);
    rule->retry.initial_ms = world_between(world, 20, 800);
    rule->retry.cap_ms = rule->retry.initial_ms * world_between(world, 1, 8);
    rule->retry.for_ms = world_between(world, 500, 60000);
    rule->lost_leases_max = (int32_t)world_between(world, 1, 5);
}

/* What may be done about an unknown outcome; `plain`: by its class alone. Times that depend on
 * settle time come later. */
static void make_up_effect(struct world *world, struct operation_rule *rule, bool is_compensation,
                           bool plain)
{
    if (plain) {
        rule->effect = world_chance(world, is_compensation ? 250 : 400) ? EFFECT_AT_MOST_ONCE
                                                                        : EFFECT_IDEMPOTENT;
        return;
    }
    int64_t drawn = world_between(world, 1, 1000);
    rule->effect = drawn <= (is_compensation ? 200 : 300)   ? EFFECT_AT_MOST_ONCE
                   : drawn <= (is_compensation ? 450 : 600) ? EFFECT_PROBED
                                                            : EFFECT_IDEMPOTENT;
    bool idempotent = rule->effect == EFFECT_IDEMPOTENT;
    rule->window_ms = idempotent && world_chance(world, 500);
    if (rule->effect != EFFECT_PROBED && !(idempotent && world_chance(world, 400)))
        return;
    definitions_probe(rule, some_handler(world));
    make_up_times(world, rule->probe);
    if (world_chance(world, 200))
        rule->probe->retry.max_attempts = (uint32_t)world_between(world, 2, 5);
    if (world_chance(world, 300))
        rule->probe->retry.initial_ms = rule->probe->retry.cap_ms =
            world_between(world, 2000, 9000);
    if (world_chance(world, 300))
        rule->probe->lost_leases_max = 1;
    rule->fresh_key = world_chance(world, 600);
}

static void make_up_policies(struct world *world, struct operation_rule *rule)
{
    static const enum on_unknown unknown[] = { ON_UNKNOWN_PARK, ON_UNKNOWN_COMPENSATE,
                                               ON_UNKNOWN_ACCEPT };
    static const enum on_exhausted exhausted[] = { ON_EXHAUSTED_PARK, ON_EXHAUSTED_COMPENSATE,
                                                   ON_EXHAUSTED_CONTINUE };
    rule->on_unknown = unknown[world_choice(world, ARRAY_LEN(unknown))];
    rule->on_exhausted = exhausted[world_choice(world, ARRAY_LEN(exhausted))];
}

static void make_up_rule(struct world *world, struct operation_rule *rule, bool is_compensation,
                         bool plain)
{
    mem_free(rule->handler);
    rule->handler = rows_text(NULL, some_handler(world));
    make_up_times(world, rule);
    if (world_chance(world, 250))
        rule->retry.max_attempts = (uint32_t)world_between(world, 1, 4);
    if (world_chance(world, 200))
        rule->start_timeout_ms = world_between(world, 1000, 8000);
    make_up_effect(world, rule, is_compensation, plain);
    if (!is_compensation)
        make_up_policies(world, rule);
}

static bool needs_settle_time(const struct operation_rule *rule)
{
    return rule->probe || rule->window_ms;
}

/* A window and a probe's budget are longer than settle time. */
static void make_up_after_settle(struct world *world, struct operation_rule *rule,
                                 int64_t settle_ms)
{
    if (rule->window_ms)
        rule->window_ms = settle_ms + 1000 + world_between(world, 0, 20000);
    if (rule->probe)
        rule->probe->retry.for_ms = settle_ms + world_between(world, 500, 30000);
}

static void make_up_step(struct world *world, struct step_rule *step)
{
    bool plain = world_chance(world, 350);
    make_up_rule(world, &step->action, false, plain);
    make_up_rule(world, &step->compensation, true, plain);
    step->has_compensation = world_chance(world, 750);
    step->guarded = world_chance(world, plain ? 700 : 350);
    step->delay_ms = world_chance(world, 100) ? world_between(world, 1, 6000) : 0;
    bool settles =
        needs_settle_time(&step->action) ||
        (step->has_compensation && (needs_settle_time(&step->compensation) || !step->guarded));
    step->settle_ms = settles ? world_between(world, 0, 5000) : -1;
    make_up_after_settle(world, &step->action, step->settle_ms);
    make_up_after_settle(world, &step->compensation, step->settle_ms);
}

/* Each step after some of those before it: any graph without a circle. */
static void make_up_order(struct world *world, struct definition *definition)
{
    unsigned odds = (unsigned)world_between(world, 100, 700);
    for (size_t i = 1; i < definition->step_count; i++) {
        definition->steps[i].after = (struct step_set){ 0 };
        for (size_t before = 0; before < i; before++)
            if (world_chance(world, odds))
                step_set_add(&definition->steps[i].after, before);
    }
    definition_order(definition);
}

static bool is_after(const struct definition *definition, size_t step, size_t other)
{
    return step_set_has(&definition->steps[step].after_all, other);
}

/* Some step that every other comes before or after, if there is one; nothing from it on is taken
 * back. */
static void make_up_pivot(struct world *world, struct definition *definition)
{
    size_t pivot = world_choice(world, definition->step_count);
    for (size_t i = 0; i < definition->step_count; i++)
        if (i != pivot && !is_after(definition, i, pivot) && !is_after(definition, pivot, i))
            return;
    for (size_t i = pivot; i < definition->step_count; i++) {
        struct step_rule *step = &definition->steps[i];
        if (i != pivot && !is_after(definition, i, pivot))
            continue;
        step->has_compensation = false;
        if (step->action.on_unknown == ON_UNKNOWN_COMPENSATE || i == pivot)
            step->action.on_unknown = ON_UNKNOWN_PARK;
        if (step->action.on_exhausted ==
            (i == pivot ? ON_EXHAUSTED_CONTINUE : ON_EXHAUSTED_COMPENSATE))
            step->action.on_exhausted = ON_EXHAUSTED_PARK;
    }
    definition->steps[pivot].pivot = true;
    definition_order(definition);
}

/* Every second large one can be taken back wherever it stands: there is a long way back then. */
static void make_up_way_back(struct world *world, struct definition *definition)
{
    bool all = world_chance(world, 500);
    for (size_t i = 0; all && i < definition->step_count; i++) {
        struct step_rule *step = &definition->steps[i];
        step->has_compensation = true;
        if (step->settle_ms >= 0)
            continue;
        step->settle_ms = world_between(world, 0, 5000);
        make_up_after_settle(world, &step->action, step->settle_ms);
        make_up_after_settle(world, &step->compensation, step->settle_ms);
    }
}

static struct definition *make_up_steps(struct world *world, const char *name,
                                        enum shape *ret_shape)
{
    static const char *const steps[STEPS_MAX] = { "a", "b", "c", "d", "e", "f",
                                                  "g", "h", "i", "j", "k", "l" };
    int64_t drawn = world_between(world, 0, 999);
    *ret_shape = drawn < LARGE ? shapes_draw(world) : SHAPE_SMALL;
    size_t most = drawn < LARGE + MEDIUM ? STEPS_SOMETIMES : STEPS_OFTEN;
    size_t count =
        *ret_shape ? shapes_step_count(world, *ret_shape) : 1 + world_choice(world, most);
    return definitions_plain(name, steps, count);
}

void definitions_make_up(struct world *world)
{
    static const char *const names[DEFINITIONS_MAX] = { "pay", "ship", "book" };
    size_t count = 1 + world_choice(world, DEFINITIONS_MAX);
    for (size_t i = 0; i < count; i++) {
        enum shape shape;
        struct definition *definition = make_up_steps(world, names[i], &shape);
        for (size_t step = 0; step < definition->step_count; step++)
            make_up_step(world, &definition->steps[step]);
        if (shape != SHAPE_SMALL)
            make_up_way_back(world, definition);
        if (shape == SHAPE_ANY || (shape == SHAPE_SMALL && world_chance(world, 500)))
            make_up_order(world, definition);
        else if (shape != SHAPE_SMALL)
            shapes_order(definition, shape);
        if (world_chance(world, 350))
            make_up_pivot(world, definition);
        if (world_chance(world, 300))
            definition->deadline_ms = world_between(world, 1000, 40000);
        definition->on_deadline =
            world_chance(world, 500) ? ON_DEADLINE_PARK : ON_DEADLINE_COMPENSATE;
        definitions_add(world, definition, shape);
    }
}
