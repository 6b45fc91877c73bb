/* The order of the steps of a large definition: well-known graphs, and any. */
#ifndef SIM_SHAPES_H
#define SIM_SHAPES_H

#include "core/definition.h"

struct world;

enum shape {
    SHAPE_SMALL,    /* up to six steps, in any order */
    SHAPE_CHAIN,    /* twelve steps, one after the other */
    SHAPE_WIDE,     /* the first step, eight to ten beside each other, the last */
    SHAPE_DIAMONDS, /* twelve: two diamonds and a short chain beside each other, within a diamond */
    SHAPE_ANY,      /* seven to twelve, each after some of those before it */
    SHAPE_COUNT
};

/* One of the large ones. */
enum shape shapes_draw(struct world *world);
size_t shapes_step_count(struct world *world, enum shape shape);
/* Sets what the steps come after; not of a SHAPE_SMALL or SHAPE_ANY. */
void shapes_order(struct definition *definition, enum shape shape);

#endif
