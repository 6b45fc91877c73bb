#include "sim/mutation.h"

#include <string.h>

static const char *const names[MUTATION_COUNT] = {
    [MUTATION_NONE] = "none",
    [MUTATION_NO_POSITION_CHECK] = "no_position_check",
    [MUTATION_REST_WITHOUT_FIRST] = "rest_without_first",
    [MUTATION_NO_ROW_LOCK] = "no_row_lock",
    [MUTATION_OUTCOME_OVERWRITTEN] = "outcome_overwritten",
    [MUTATION_REFUSAL_ALONE] = "refusal_alone",
    [MUTATION_EXPIRY_UNCHECKED] = "expiry_unchecked",
};

const char *mutation_name(enum mutation mutation)
{
    return names[mutation];
}

enum mutation mutation_parse(const char *name)
{
    int i = 0;
    while (i < MUTATION_COUNT && strcmp(name, names[i]) != 0)
        i++;
    return (enum mutation)i;
}
