/* Which step comes after which, as it is drawn. */
#include "ctl/definition_graph.h"

#include <string.h>

static void add_named(const Saga__V1__SagaDefinition *definition, size_t step, const char *name,
                      struct step_set *after)
{
    for (size_t i = 0; i < step; i++) /* only those before it: the order has no circles */
        if (strcmp(definition->steps[i]->name, name) == 0)
            step_set_add(after, i);
}

static void read_after(const Saga__V1__SagaDefinition *definition, size_t step,
                       struct step_set *after)
{
    const Saga__V1__Step *message = definition->steps[step];
    for (size_t i = 0; i < message->n_after; i++)
        add_named(definition, step, message->after[i], after);
    if (!message->n_after && !message->at_start && step > 0)
        step_set_add(after, step - 1);
}

void graph_order_read(const Saga__V1__SagaDefinition *definition, struct graph_order *ret)
{
    struct step_set all[LIMIT_STEPS] = { { { 0 } } };
    *ret = (struct graph_order){ .count = definition->n_steps };
    if (ret->count > LIMIT_STEPS)
        ret->count = LIMIT_STEPS;
    for (size_t i = 0; i < ret->count; i++) {
        struct step_set after = { { 0 } }, implied = { { 0 } };
        read_after(definition, i, &after);
        for (size_t j = 0; j < i; j++)
            if (step_set_has(&after, j))
                step_set_add_all(&implied, &all[j]);
        all[i] = after;
        step_set_add_all(&all[i], &implied);
        for (size_t j = 0; j < i; j++)
            if (step_set_has(&after, j) && !step_set_has(&implied, j))
                step_set_add(&ret->after[i], j);
    }
}
