/* A set of steps of one definition, by their index. Plain data. */
#ifndef CORE_STEP_SET_H
#define CORE_STEP_SET_H

#include "core/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STEP_SET_WORDS = LIMIT_STEPS / 64 };

struct step_set {
    uint64_t words[STEP_SET_WORDS];
};

static inline void step_set_add(struct step_set *set, size_t step)
{
    set->words[step / 64] |= UINT64_C(1) << (step % 64);
}
static inline bool step_set_has(const struct step_set *set, size_t step)
{
    return set->words[step / 64] >> (step % 64) & 1;
}
static inline void step_set_add_all(struct step_set *set, const struct step_set *others)
{
    for (size_t i = 0; i < STEP_SET_WORDS; i++)
        set->words[i] |= others->words[i];
}
/* Is every step of `some` in `set`? */
static inline bool step_set_holds(const struct step_set *set, const struct step_set *some)
{
    for (size_t i = 0; i < STEP_SET_WORDS; i++)
        if (some->words[i] & ~set->words[i])
            return false;
    return true;
}

#endif
