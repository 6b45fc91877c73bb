/* A definition for Graphviz. */
#include "ctl/definition_graph.h"

#include "ctl/names.h"
#include "ctl/screen.h"

#include <string.h>

/* In quotes; what follows a backslash would mean something there. */
static void write_quoted(const char *text, struct buf *out)
{
    for (const char *at = text; *at; at++) {
        if (*at == '"' || *at == '\\')
            buf_text(out, "\\");
        buf_append(out, at, 1);
    }
}

static void write_name(const char *text, struct buf *out)
{
    CLEANUP(buf_done) struct buf safe = { 0 };
    screen_text(&safe, text);
    buf_text(out, "\"");
    write_quoted(buf_cstr(&safe), out);
    buf_text(out, "\"");
}

/* What is said of a step in its box. */
static void write_second_line(const Saga__V1__Step *step, struct buf *out)
{
    if (step->wait_for_signal) {
        buf_text(out, "waits for signal ");
        screen_text(out, step->wait_for_signal->signal);
    } else if (step->action) {
        buf_text(out, name_effect(step->action->effect));
        buf_text(out, step->guarded ? ", guarded" : "");
    }
    if (step->delay && (step->delay->seconds || step->delay->nanos)) {
        buf_text(out, ", delayed by ");
        graph_write_span(step->delay, out);
    }
}

static void write_label(const Saga__V1__Step *step, struct buf *out)
{
    CLEANUP(buf_done) struct buf name = { 0 };
    CLEANUP(buf_done) struct buf second = { 0 };
    screen_text(&name, step->name);
    write_second_line(step, &second);
    buf_text(out, "\"");
    write_quoted(buf_cstr(&name), out);
    buf_text(out, "\\n");
    write_quoted(buf_cstr(&second), out);
    if (step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION && step->compensation)
        buf_printf(out, "\\ntaken back: %s", name_effect(step->compensation->effect));
    buf_text(out, "\"");
}

static void write_node(const Saga__V1__Step *step, struct buf *out)
{
    buf_text(out, "  ");
    write_name(step->name, out);
    buf_text(out, " [label=");
    write_label(step, out);
    if (step->pivot)
        buf_text(out, ", peripheries=2");
    if (step->wait_for_signal)
        buf_text(out, ", style=dashed");
    buf_text(out, "];\n");
}

void graph_write_dot(const Saga__V1__SagaDefinition *definition, struct buf *out)
{
    struct graph_order order;
    graph_order_read(definition, &order);
    buf_text(out, "digraph ");
    write_name(definition->name, out);
    buf_text(out, " {\n  node [shape=box, style=rounded];\n");
    for (size_t i = 0; i < order.count; i++)
        write_node(definition->steps[i], out);
    for (size_t i = 0; i < order.count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (!step_set_has(&order.after[i], j))
                continue;
            buf_text(out, "  ");
            write_name(definition->steps[j]->name, out);
            buf_text(out, " -> ");
            write_name(definition->steps[i]->name, out);
            buf_text(out, ";\n");
        }
    }
    buf_text(out, "}\n");
}
