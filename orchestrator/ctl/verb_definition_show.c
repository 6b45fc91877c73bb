/* sagactl definition show: one revision, as a graph and what it says. `get` is the same. */
#include "ctl/definition_graph.h"
#include "ctl/definition_server.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdio.h>

static const struct ctl_option options[] = {
    { "revision", "N", false, "which revision, as NAME@N says it" },
    { "dot", NULL, false, "print the graph for Graphviz, and nothing else" },
    { NULL, NULL, false, NULL },
};

static void write_head(const Saga__V1__RegisteredDefinition *registered, struct buf *out)
{
    const Saga__V1__SagaDefinition *definition = registered->definition;
    screen_text(out, definition->namespace_);
    buf_text(out, "/");
    screen_text(out, definition->name);
    buf_printf(out, ", revision %d%s, registered ", registered->revision,
               registered->current ? " (new sagas take it)" : "");
    screen_time(out, registered->create_time, ctl_now_ms());
    buf_text(out, "\n");
    if (*definition->description) {
        screen_text(out, definition->description);
        buf_text(out, "\n");
    }
}

static void write_pause(const Saga__V1__DefinitionPause *pause, bool color, struct buf *out)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_text(&text, "PAUSED: no new sagas since ");
    screen_time(&text, pause->time, ctl_now_ms());
    if (*pause->actor)
        buf_printf(&text, ", by %s%s", pause->actor, ACTOR_UNPROVEN);
    if (*pause->reason)
        buf_printf(&text, ": %s", pause->reason);
    screen_styled(out, buf_cstr(&text), STYLE_BUSY, color);
    buf_text(out, "\n");
}

static void write_property(const char *name, const char *value, struct buf *out)
{
    buf_printf(out, "  %-9s", name);
    screen_text(out, value);
    buf_text(out, "\n");
}

static void write_kafka_properties(const Saga__V1__SagaDefinition *definition, struct buf *out)
{
    if (definition->max_running) {
        CLEANUP(buf_done) struct buf limit = { 0 };
        buf_printf(&limit, "at most %" PRId64 " at a time, then ingest waits",
                   definition->max_running);
        write_property("running", buf_cstr(&limit), out);
    }
    if (definition->publish == SAGA__V1__PUBLISH__PUBLISH_ENDS)
        write_property("events", "its end, and each time it parks", out);
    else if (definition->publish == SAGA__V1__PUBLISH__PUBLISH_TRANSITIONS)
        write_property("events", "its start, each end of a lease, each decision", out);
}

static void write_properties(const Saga__V1__SagaDefinition *definition, struct buf *out)
{
    if (*definition->input_type)
        write_property("input", definition->input_type, out);
    if (*definition->key)
        write_property("key", definition->key, out);
    for (size_t i = 0; i < definition->n_labels; i++) {
        CLEANUP(buf_done) struct buf label = { 0 };
        buf_printf(&label, "%s=%s", definition->labels[i]->name, definition->labels[i]->value);
        write_property("label", buf_cstr(&label), out);
    }
    if (definition->deadline) {
        CLEANUP(buf_done) struct buf deadline = { 0 };
        graph_write_span(definition->deadline, &deadline);
        buf_text(&deadline, definition->on_deadline == SAGA__V1__ON_DEADLINE__ON_DEADLINE_PARK
                                ? ", then parked"
                                : ", then turned back");
        write_property("deadline", buf_cstr(&deadline), out);
    }
    write_kafka_properties(definition, out);
}

/* --- times ------------------------------------------------------------------------------------ */

static void add_span(struct table *table, const Google__Protobuf__Duration *duration)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    graph_write_span(duration, &text);
    table_cell(table, buf_cstr(&text), STYLE_PLAIN);
}

static void add_retry(struct table *table, const Saga__V1__Retry *retry)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (retry) {
        graph_write_span(retry->initial, &text);
        buf_text(&text, " to ");
        graph_write_span(retry->cap, &text);
        buf_text(&text, " for ");
        graph_write_span(retry->for_, &text);
        if (retry->_max_attempts_case == SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS)
            buf_printf(&text, ", %u tries", retry->max_attempts);
    }
    table_cell(table, buf_cstr(&text), STYLE_PLAIN);
}

static void add_row(struct table *table, const char *handler,
                    const Google__Protobuf__Duration *const spans[3], const Saga__V1__Retry *retry,
                    const char *types)
{
    table_cell(table, handler, STYLE_PLAIN);
    for (size_t i = 0; i < 3; i++)
        add_span(table, spans[i]);
    add_retry(table, retry);
    table_cell(table, types, STYLE_PLAIN);
}

static void add_operation(struct table *table, const Saga__V1__Operation *operation)
{
    CLEANUP(buf_done) struct buf types = { 0 };
    if (operation->request || *operation->output_type)
        buf_printf(&types, "%s -> %s", operation->request ? operation->request->type : "input",
                   *operation->output_type ? operation->output_type : "bytes");
    add_row(table, operation->handler,
            (const Google__Protobuf__Duration *[]){ operation->lease, operation->attempt_timeout,
                                                    operation->start_timeout },
            operation->retry, buf_cstr(&types));
    const Saga__V1__Probe *probe = operation->probe;
    if (probe)
        add_row(
            table, probe->handler,
            (const Google__Protobuf__Duration *[]){ probe->lease, probe->attempt_timeout, NULL },
            probe->retry, probe->request ? probe->request->type : "");
}

/* What workers must serve, and within which times. */
static void write_handlers(const Saga__V1__SagaDefinition *definition, bool color, struct buf *out)
{
    static const char *const headers[] = { "HANDLER",       "LEASE", "TIME A TRY",
                                           "STARTS WITHIN", "RETRY", "TYPES" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < definition->n_steps; i++) {
        const Saga__V1__Step *step = definition->steps[i];
        if (step->action)
            add_operation(&table, step->action);
        if (step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION && step->compensation)
            add_operation(&table, step->compensation);
    }
    if (table.count)
        table_write(&table, "  ", color, out);
    table_done(&table);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    char name[DEFINITION_NAME_SIZE];
    int32_t named = 0;
    int64_t revision;
    struct err err;
    CLEANUP(ctl_message_free_p) Saga__V1__RegisteredDefinition *registered = NULL;
    CLEANUP(buf_done) struct buf text = { 0 };
    int rc = definition_name_read(arguments->positional[0], name, &named);
    if (rc != 0)
        return rc;
    if (ctl_option_number(arguments, "revision", 1, INT32_MAX, named, &revision, &err) != 0)
        return ctl_print_error(&err);
    if (named && revision != named)
        return ctl_print_misuse("NAME@N and --revision say two different revisions");
    rc = definition_fetch(ctl, ctl->namespace_, name, (int32_t)revision, false, NULL, &registered);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&registered->base);
    if (ctl_option(arguments, "dot")) {
        graph_write_dot(registered->definition, &text);
        return ctl_print_text(&text);
    }
    const struct graph_view view = graph_view_of(ctl->color);
    write_head(registered, &text);
    if (registered->pause)
        write_pause(registered->pause, ctl->color, &text);
    write_properties(registered->definition, &text);
    buf_text(&text, "\n");
    graph_write(registered->definition, &view, &text);
    buf_text(&text, "\n");
    write_handlers(registered->definition, ctl->color, &text);
    return ctl_print_text(&text);
}

#define HELP                                                                                       \
    "one revision of a definition: its steps as a graph, and what it says\n"                       \
    "\n"                                                                                           \
    "NAME is the revision that new sagas take, NAME@N any other. -o json tells all of it, every\n" \
    "default filled in."

const struct ctl_verb verb_definition_show = { "definition show", "NAME[@N]", 1,  1,
                                               options,           HELP,       run };
/* As it was called before. */
const struct ctl_verb verb_definition_get = {
    "definition get", "NAME[@N]", 1, 1, options, "the same as definition show", run
};
