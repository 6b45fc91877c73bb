/* A definition as a drawing of its steps: for a terminal, and for Graphviz. Text only, no calls.
 * Any thread. */
#ifndef CTL_DEFINITION_GRAPH_H
#define CTL_DEFINITION_GRAPH_H

#include "base/buf.h"
#include "core/step_set.h"

#include <saga/v1/definition.pb-c.h>

struct graph_view {
    bool utf8; /* lines of box-drawing characters; else ASCII */
    bool color;
};
/* As this terminal can show it: by the locale of the environment, and `color`. */
struct graph_view graph_view_of(bool color);

/* Steps in their order, one that comes after another below it, with lines between them; steps that
 * run at the same time on lines beside each other. Where these would be too many, what a step comes
 * after is told as text. The definition is canonical. */
void graph_write(const Saga__V1__SagaDefinition *definition, const struct graph_view *view,
                 struct buf *out);
/* As a digraph of Graphviz. */
void graph_write_dot(const Saga__V1__SagaDefinition *definition, struct buf *out);

/* "5s", "200ms", "1h": the largest unit in which it is a whole number. "-" for NULL. */
void graph_write_span(const Google__Protobuf__Duration *duration, struct buf *out);

/* What the two drawings share (definition_order.c): of each step, the steps that it comes after,
 * but for those that one of the others comes after anyway. */
struct graph_order {
    struct step_set after[LIMIT_STEPS];
    size_t count; /* of steps; at most LIMIT_STEPS */
};
void graph_order_read(const Saga__V1__SagaDefinition *definition, struct graph_order *ret);

#endif
