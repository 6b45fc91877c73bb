#include "sim/shapes.h"

#include "sim/world.h"

#include <assert.h>

enum { BESIDE_LEAST = 8, BESIDE_MOST = 10, ANY_LEAST = 7 };

enum shape shapes_draw(struct world *world)
{
    return (enum shape)world_between(world, SHAPE_CHAIN, SHAPE_ANY);
}

size_t shapes_step_count(struct world *world, enum shape shape)
{
    switch (shape) {
    case SHAPE_WIDE:
        return 2 + (size_t)world_between(world, BESIDE_LEAST, BESIDE_MOST);
    case SHAPE_ANY:
        return (size_t)world_between(world, ANY_LEAST, STEPS_MAX);
    case SHAPE_CHAIN:
    case SHAPE_DIAMONDS:
    case SHAPE_SMALL:
    case SHAPE_COUNT:
        break;
    }
    return STEPS_MAX;
}

/* before: a bit for each step. */
static void comes_after(struct definition *definition, size_t step, unsigned before)
{
    struct step_set *after = &definition->steps[step].after;
    *after = (struct step_set){ 0 };
    for (size_t i = 0; i < step; i++)
        if (before >> i & 1)
            step_set_add(after, i);
}

static void order_wide(struct definition *definition)
{
    size_t last = definition->step_count - 1;
    for (size_t i = 1; i < last; i++)
        comes_after(definition, i, 1);
    comes_after(definition, last, ((1U << last) - 1) & ~1U);
}

/*     b -< c d >- e
 *  a -< f -< g h >- i >- l
 *     j -- k                 */
static void order_diamonds(struct definition *definition)
{
    enum { A, B, C, D, E, F, G, H, I, J, K, L };
    static const unsigned before[STEPS_MAX] = {
        [B] = 1U << A,
        [C] = 1U << B,
        [D] = 1U << B,
        [E] = 1U << C | 1U << D,
        [F] = 1U << A,
        [G] = 1U << F,
        [H] = 1U << F,
        [I] = 1U << G | 1U << H,
        [J] = 1U << A,
        [K] = 1U << J,
        [L] = 1U << E | 1U << I | 1U << K,
    };
    for (size_t i = 1; i < definition->step_count; i++)
        comes_after(definition, i, before[i]);
}

void shapes_order(struct definition *definition, enum shape shape)
{
    assert(shape != SHAPE_SMALL && shape != SHAPE_ANY);
    if (shape == SHAPE_WIDE)
        order_wide(definition);
    if (shape == SHAPE_DIAMONDS)
        order_diamonds(definition);
    definition_order(definition);
}
