/* The definitions of a world: made up by the seed (every effect class, policy, budget and time-out,
 * within what registration allows), or written by a scenario. */
#ifndef SIM_DEFINITIONS_H
#define SIM_DEFINITIONS_H

#include "base/mem.h"
#include "core/definition.h"
#include "sim/shapes.h"

struct world;

enum { DEFINITIONS_MAX = 3, HANDLERS_MAX = 5 };

struct definitions {
    struct definition *items[DEFINITIONS_MAX];
    enum shape shapes[DEFINITIONS_MAX];
    size_t count;
};

/* "h0" to "h4": who serves what is a matter of these names. */
extern const char *const handler_names[HANDLERS_MAX];

void definitions_make_up(struct world *world);
/* Takes it over and checks it. */
void definitions_add(struct world *world, struct definition *definition, enum shape shape);
enum shape definitions_shape(const struct definitions *definitions,
                             const struct definition *definition);
/* All steps: IDEMPOTENT, guarded, with a compensation; handlers h0, h1, ... */
struct definition *definitions_plain(const char *name, const char *const *steps, size_t count);
/* Gives it a probe with the times of a plain rule. */
void definitions_probe(struct operation_rule *rule, const char *handler);
const struct definition *definitions_find(const struct definitions *definitions, const char *name);
void definitions_done(struct definitions *definitions);
/* For the engine: the stored bytes are a name. Of the world that runs. */
int definitions_decode(const struct bytes *content, const struct bytes *descriptors,
                       struct definition **ret, struct err *err);

#endif
