#include "sim/old_consumer.h"

#include "dispatch/key.h"
#include "sim/rows.h"
#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>

enum { GUARDED_FLIGHT_MS = 40000, UNGUARDED_FLIGHT_MS = 800 };

struct old_request {
    struct timer timer;
    struct demand demand;
};

/* That of the saga, which is made of its identity. */
static const char *key_of(struct world *world, const struct definition *definition,
                          const struct business_key *key, size_t step)
{
    struct saga_row row = { .namespace_ = rows_text(NULL, definition->namespace_),
                            .definition = rows_text(NULL, definition->name),
                            .revision = definition->revision,
                            .saga_id = rows_text(NULL, key->saga_id),
                            .run = 1 };
    struct saga *saga;
    struct err err;
    char text[OPERATION_KEY_SIZE];
    if (saga_new(definition, &row, &saga, &err) ||
        operation_key(saga, step, OPERATION_ACTION, 0, text)) {
        (void)fprintf(stderr, "the simulator has no key of %s\n", key->saga_id);
        abort();
    }
    (void)saga_free(saga); /* always NULL */
    return world_text(world, text);
}

static void on_lands(struct world *world, struct timer *timer)
{
    struct old_request *request = CONTAINER(timer, struct old_request, timer);
    const struct demand *demand = &request->demand;
    bool started =
        database_key(&world->database, "default", demand->definition, demand->saga_id) != NULL;
    enum answer answer = participant_take(world, demand);
    world->participant.in_flight--;
    if (started && answer == ANSWER_DONE)
        world_hit(world, HIT_OLD_REQUEST_LANDED);
}

void old_consumer_ran(struct world *world, const struct business_key *key, int steps,
                      int64_t lands_ms)
{
    const struct definition *definition = definitions_find(&world->definitions, key->definition);
    struct subject *subject = participant_subject(world, key->definition, key->saga_id);
    int64_t ago_ms = db_clock_ms(world->now_ms) - key->suspect_since_ms;
    for (int i = 0; i < steps; i++) {
        struct old_request *request = world_alloc(world, sizeof *request);
        request->demand =
            (struct demand){ .definition = key->definition,
                             .saga_id = key->saga_id,
                             .step = (size_t)i,
                             .operation = OPERATION_ACTION,
                             .key = key_of(world, definition, key, (size_t)i),
                             .sent_at_ms = world->now_ms - world_between(world, 0, ago_ms) };
        subject->effects[i].in_flight[0]++;
        world->participant.in_flight++;
        if (i + 1 == steps && lands_ms)
            world_after(world, &request->timer, lands_ms, on_lands);
        else
            on_lands(world, &request->timer);
    }
}

void old_consumer_made_up(struct world *world, const struct business_key *key)
{
    const struct definition *definition = definitions_find(&world->definitions, key->definition);
    int steps = (int)world_choice(world, definition->step_count + 1);
    const struct step_rule *last = steps ? &definition->steps[steps - 1] : NULL;
    int64_t most_ms = 0;
    if (last && world_chance(world, 500))
        most_ms = last->settle_ms >= 0 ? last->settle_ms
                  : last->guarded      ? GUARDED_FLIGHT_MS
                                       : UNGUARDED_FLIGHT_MS;
    bool at_the_last_moment = world_chance(world, 300);
    old_consumer_ran(world, key, steps,
                     world_between(world, at_the_last_moment ? most_ms : 0, most_ms));
}
