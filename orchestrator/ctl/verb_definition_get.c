/* sagactl definition get: one revision. */
#include "ctl/ctl.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <saga/v1/definition.pb-c.h>

static const struct ctl_option options[] = {
    { "revision", "N", false, "which revision (default: the one that new sagas take)" },
    { NULL, NULL, false, NULL },
};

static void write_duration(const Google__Protobuf__Duration *duration, struct buf *out)
{
    if (duration)
        buf_printf(out, "%" PRId64 ".%03d s", duration->seconds, duration->nanos / 1000000);
    else
        buf_text(out, "-");
}

/* "IDEMPOTENT via bank.debit, remembered 86400.000 s, probe bank.debit.probe" */
static void write_operation(const Saga__V1__Operation *operation, struct buf *out)
{
    buf_printf(out, "%s via %s", name_effect(operation->effect), operation->handler);
    if (operation->idempotency_window) {
        buf_text(out, ", remembered ");
        write_duration(operation->idempotency_window, out);
    }
    if (operation->probe)
        buf_printf(out, ", probe %s", operation->probe->handler);
}

static void add_row(struct table *table, const Saga__V1__Step *step)
{
    CLEANUP(buf_done) struct buf action = { 0 };
    CLEANUP(buf_done) struct buf undo = { 0 };
    CLEANUP(buf_done) struct buf lease = { 0 };
    CLEANUP(buf_done) struct buf attempt = { 0 };
    if (step->action) {
        write_operation(step->action, &action);
        write_duration(step->action->lease, &lease);
        write_duration(step->action->attempt_timeout, &attempt);
    }
    if (step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION)
        write_operation(step->compensation, &undo);
    else
        buf_text(&undo, "none needed");
    table_cell(table, step->name, STYLE_BOLD);
    table_cell(table, buf_cstr(&action), STYLE_PLAIN);
    table_cell(table, buf_cstr(&lease), STYLE_PLAIN);
    table_cell(table, buf_cstr(&attempt), STYLE_PLAIN);
    table_cell(table, buf_cstr(&undo), STYLE_PLAIN);
    table_cell(table, step->guarded ? "guarded" : "", STYLE_PLAIN);
}

static void write_definition(const Saga__V1__RegisteredDefinition *registered, bool color,
                             struct buf *out)
{
    static const char *const headers[] = { "STEP",       "ACTION",       "LEASE",
                                           "TIME A TRY", "COMPENSATION", "" };
    const Saga__V1__SagaDefinition *definition = registered->definition;
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
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
    for (size_t i = 0; i < definition->n_steps; i++)
        add_row(&table, definition->steps[i]);
    table_write(&table, "  ", color, out);
    table_done(&table);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct err err;
    int64_t revision;
    Saga__V1__GetDefinitionRequest request = SAGA__V1__GET_DEFINITION_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__RegisteredDefinition *registered = NULL;
    if (ctl_option_number(arguments, "revision", 1, INT32_MAX, 0, &revision, &err) != 0)
        return ctl_print_error(&err);
    if (ctl->namespace_)
        request.namespace_ = (char *)ctl->namespace_;
    request.name = (char *)arguments->positional[0];
    request.revision = (int32_t)revision;
    int rc = ctl_call(ctl, "/saga.v1.DefinitionService/GetDefinition", &request.base,
                      &saga__v1__registered_definition__descriptor, &registered);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&registered->base);
    if (!registered->definition) {
        (void)err_set(&err, ERR_INTERNAL, "the server's answer says nothing");
        return ctl_print_error(&err);
    }
    CLEANUP(buf_done) struct buf text = { 0 };
    write_definition(registered, ctl->color, &text);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_definition_get = {
    "definition get",
    "NAME",
    1,
    1,
    options,
    "one revision of a definition; -o json tells all of it, every default filled in",
    run,
};
