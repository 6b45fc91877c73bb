#include "sim/participant.h"

#include "sim/world.h"

#include <string.h>

const char *answer_name(enum answer answer)
{
    static const char *const names[] = { "DONE",  "DUPLICATE", "NO",      "REFUSED",
                                         "STALE", "EMPTY",     "FOREIGN", "NOT_DONE" };
    return names[answer];
}

struct subject *participant_subject(struct world *world, const char *definition,
                                    const char *saga_id)
{
    struct participant *participant = &world->participant;
    for (size_t i = 0; i < participant->count; i++)
        if (strcmp(participant->subjects[i].saga_id, saga_id) == 0 &&
            strcmp(participant->subjects[i].definition, definition) == 0)
            return &participant->subjects[i];
    if (participant->count == SUBJECTS_MAX) {
        world_violate(world, INV_ENGINE, "more sagas than the participant has room for");
        return &participant->subjects[0];
    }
    struct subject *subject = &participant->subjects[participant->count++];
    subject->definition = definition;
    subject->saga_id = saga_id;
    for (size_t i = 0; i < STEPS_MAX; i++)
        if (world_fault(world, FAULT_FOREIGN_EFFECT))
            subject->effects[i].foreign = true;
    return subject;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void take_effect(struct side_effect *effect, enum operation operation)
{
    bool undo = operation == OPERATION_COMPENSATION;
    effect->runs[undo]++;
    if (!undo)
        effect->net++;
    else if (effect->net > 0)
        effect->net--;
}

/* saga_guard.enter, the effect, saga_guard.done; or saga_guard.no_effect. */
static enum answer guarded_action(struct side_effect *effect, const struct demand *demand)
{
    enum guard_state *state = &effect->guard[0];
    if (*state == GUARD_UNDONE || *state == GUARD_BLOCKED)
        return ANSWER_REFUSED;
    if (*state == GUARD_DONE) {
        effect->fence[0] = larger(effect->fence[0], demand->fence);
        return ANSWER_DUPLICATE;
    }
    if (effect->fence[0] > demand->fence)
        return ANSWER_STALE;
    effect->fence[0] = demand->fence;
    *state = demand->refuse ? GUARD_SEEN : GUARD_DONE;
    if (demand->refuse)
        return ANSWER_NO;
    take_effect(effect, OPERATION_ACTION);
    return ANSWER_DONE;
}

static enum answer guarded_compensation(struct side_effect *effect, const struct demand *demand)
{
    enum guard_state *action = &effect->guard[0], *own = &effect->guard[1];
    if (*own == GUARD_DONE || *own == GUARD_EMPTY) {
        effect->fence[1] = larger(effect->fence[1], demand->fence);
        return ANSWER_DUPLICATE;
    }
    if (larger(effect->fence[0], effect->fence[1]) > demand->fence) {
        effect->fence[1] = larger(effect->fence[1], demand->fence);
        return ANSWER_STALE;
    }
    effect->fence[1] = demand->fence;
    if (*action == GUARD_NONE)
        effect->fence[0] = demand->fence;
    if (*action != GUARD_DONE) {
        *action = GUARD_BLOCKED;
        *own = GUARD_EMPTY;
        return ANSWER_EMPTY;
    }
    if (demand->refuse) {
        *own = GUARD_SEEN;
        return ANSWER_NO;
    }
    *action = GUARD_UNDONE;
    *own = GUARD_DONE;
    take_effect(effect, OPERATION_COMPENSATION);
    return ANSWER_DONE;
}

/* What it keeps of a request that took effect, counted from when that was sent: no promise of
 * remembering is kept for less. */
struct known_key {
    struct known_key *next;
    const char *key;
    int64_t forgotten_at_ms;
};

static void remember(struct world *world, struct side_effect *effect, const struct demand *demand,
                     int64_t window_ms)
{
    struct known_key **list = &effect->keys[demand->operation == OPERATION_COMPENSATION];
    struct known_key *key = world_alloc(world, sizeof *key);
    *key = (struct known_key){ *list, demand->key,
                               window_ms ? demand->sent_at_ms + window_ms : INT64_MAX };
    *list = key;
}

/* An idempotent side knows its keys, for a while; another one does what it is told, as often as it
 * is told. */
static enum answer unguarded(struct world *world, struct side_effect *effect,
                             const struct demand *demand, const struct operation_rule *rule)
{
    const struct known_key *known = effect->keys[demand->operation == OPERATION_COMPENSATION];
    while (known && strcmp(known->key, demand->key) != 0)
        known = known->next;
    if (known && rule->effect == EFFECT_IDEMPOTENT) {
        if (world->now_ms < known->forgotten_at_ms || effect->misled)
            return ANSWER_DUPLICATE;
        world_violate(world, INV_WINDOW,
                      "%s: a %s arrives %d ms after its key was forgotten, sent %d ms before that",
                      demand->saga_id, operation_name(demand->operation),
                      (int)(world->now_ms - known->forgotten_at_ms),
                      (int)(known->forgotten_at_ms - demand->sent_at_ms));
    }
    if (demand->refuse)
        return ANSWER_NO;
    remember(world, effect, demand, rule->window_ms);
    take_effect(effect, demand->operation);
    return ANSWER_DONE;
}

static void hit_answer(struct world *world, enum answer answer, bool guarded)
{
    if (answer == ANSWER_DUPLICATE)
        world_hit(world, guarded ? HIT_GUARD_DUPLICATE : HIT_KEY_KNOWN);
    else if (answer == ANSWER_REFUSED)
        world_hit(world, HIT_GUARD_REFUSED);
    else if (answer == ANSWER_STALE)
        world_hit(world, HIT_GUARD_STALE);
    else if (answer == ANSWER_EMPTY)
        world_hit(world, HIT_GUARD_EMPTY);
}

/* What settle time is for. */
static void hit_landing(struct world *world, const struct demand *demand)
{
    struct db_saga *saga = database_saga(&world->database, &demand->uid);
    const struct journal_entry *lease =
        saga ? database_entry(saga, fence_seq(demand->fence)) : NULL;
    if (!lease || lease->outcome == OUTCOME_NONE)
        return;
    world_hit(world, HIT_LANDED_AFTER_LEASE);
    if (saga->judged.of[demand->step][demand->operation == OPERATION_COMPENSATION].too_early)
        world_hit(world, HIT_SETTLE_TIME_CAUGHT);
}

enum answer participant_take(struct world *world, const struct demand *demand)
{
    const struct definition *definition = definitions_find(&world->definitions, demand->definition);
    const struct step_rule *step = &definition->steps[demand->step];
    const struct operation_rule *rule =
        definition_rule(definition, demand->step, demand->operation);
    struct subject *subject = participant_subject(world, demand->definition, demand->saga_id);
    struct side_effect *effect = &subject->effects[demand->step];
    bool undo = demand->operation == OPERATION_COMPENSATION;
    enum answer answer;
    effect->in_flight[undo]--;
    if (effect->foreign && !undo)
        answer = ANSWER_FOREIGN;
    else if (step->guarded)
        answer = undo ? guarded_compensation(effect, demand) : guarded_action(effect, demand);
    else
        answer = unguarded(world, effect, demand, rule);
    hit_answer(world, answer, step->guarded);
    if (answer == ANSWER_DONE && demand->fence)
        hit_landing(world, demand);
    if (answer == ANSWER_DUPLICATE && effect->old_consumer_s && !undo)
        world_hit(world, HIT_OLD_EFFECT_KNOWN);
    effect->old_consumer_s |= answer == ANSWER_DONE && !demand->fence;
    world_trace(world, "participant", "%s %s %s #%d: %s", demand->saga_id, step->name,
                operation_name(demand->operation), (int)fence_seq(demand->fence),
                answer_name(answer));
    if (effect->runs[undo] > 1 && !effect->misled)
        world_violate(world, INV_ONCE, "%s: %s of step %s took effect %d times", demand->saga_id,
                      operation_name(demand->operation), step->name, effect->runs[undo]);
    return answer;
}

enum answer participant_tell(struct world *world, const struct demand *demand)
{
    const struct definition *definition = definitions_find(&world->definitions, demand->definition);
    struct subject *subject = participant_subject(world, demand->definition, demand->saga_id);
    bool undo = demand->operation == OPERATION_COMPENSATION;
    bool landed = subject->effects[demand->step].runs[undo] > 0;
    world_trace(world, "participant", "%s %s PROBE #%d of the %s: %s", demand->saga_id,
                definition->steps[demand->step].name, (int)fence_seq(demand->fence),
                undo ? "compensation" : "action", landed ? "DONE" : "NOT_DONE");
    return landed ? ANSWER_DONE : ANSWER_NOT_DONE;
}
