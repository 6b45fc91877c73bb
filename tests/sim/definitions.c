#include "sim/definitions.h"

#include "sim/rows.h"
#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    };
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

void definitions_add(struct world *world, struct definition *definition)
{
    struct definitions *definitions = &world->definitions;
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
}

int definitions_decode(const struct bytes *content, struct definition **ret, struct err *err)
{
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
    }
    *ret = copy;
    return 0;
}

/* --- made up ---------------------------------------------------------------------------------- */

static void make_up_rule(struct world *world, struct operation_rule *rule, bool is_compensation)
{
    mem_free(rule->handler);
    rule->handler = rows_text(NULL, handler_names[world_choice(world, HANDLERS_MAX)]);
    rule->effect =
        world_chance(world, is_compensation ? 250 : 400) ? EFFECT_AT_MOST_ONCE : EFFECT_IDEMPOTENT;
    rule->lease_ms = world_between(world, 5000, 9000);
    rule->attempt_timeout_ms = world_between(world, 1500, 25000);
    rule->retry.initial_ms = world_between(world, 20, 800);
    rule->retry.cap_ms = rule->retry.initial_ms * world_between(world, 1, 8);
    rule->retry.for_ms = world_between(world, 500, 60000);
    if (world_chance(world, 250))
        rule->retry.max_attempts = (uint32_t)world_between(world, 1, 4);
    if (world_chance(world, 200))
        rule->start_timeout_ms = world_between(world, 1000, 8000);
    if (is_compensation)
        return;
    rule->on_unknown = world_chance(world, 400) ? ON_UNKNOWN_COMPENSATE : ON_UNKNOWN_PARK;
    rule->on_exhausted = world_chance(world, 500) ? ON_EXHAUSTED_COMPENSATE : ON_EXHAUSTED_PARK;
}

static void make_up_step(struct world *world, struct step_rule *step)
{
    make_up_rule(world, &step->action, false);
    make_up_rule(world, &step->compensation, true);
    step->has_compensation = world_chance(world, 750);
    step->guarded = world_chance(world, 450);
    step->settle_ms = step->has_compensation && !step->guarded ? world_between(world, 0, 5000) : -1;
}

void definitions_make_up(struct world *world)
{
    static const char *const names[DEFINITIONS_MAX] = { "pay", "ship", "book" };
    static const char *const steps[STEPS_MAX] = { "a", "b", "c", "d" };
    size_t count = 1 + world_choice(world, DEFINITIONS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct definition *definition =
            definitions_plain(names[i], steps, 1 + world_choice(world, STEPS_MAX));
        for (size_t step = 0; step < definition->step_count; step++)
            make_up_step(world, &definition->steps[step]);
        if (world_chance(world, 300))
            definition->deadline_ms = world_between(world, 1000, 40000);
        definition->on_deadline =
            world_chance(world, 500) ? ON_DEADLINE_PARK : ON_DEADLINE_COMPENSATE;
        definitions_add(world, definition);
    }
}
