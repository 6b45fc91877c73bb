#include "schema/derive_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 128 };

struct check {
    const struct schema *schema;
    struct faults faults;
    struct flow flow;
};

/* A message by its full name; told if it is not there. */
static struct flow_type find_type(struct check *check, const char *name, const char *path,
                                  const char *field)
{
    struct flow_type type = { .untyped = !*name };
    if (type.untyped)
        return type;
    type.message = schema_message_find(check->schema, name);
    if (!type.message) {
        char where[PATH_BYTES];
        (void)snprintf(where, sizeof where, "%s%s%s", path, *path ? "." : "", field);
        derive_fault(&check->faults, where,
                     "there is no message \"%s\" in the descriptors: give its full name, and the "
                     "file that declares it",
                     name);
    }
    return type;
}

static void check_fields(struct check *check, const Saga__V1__RequestShape *shape,
                         const struct schema_message *request, size_t step, bool undoing,
                         const char *path)
{
    uint32_t last = 0;
    for (size_t i = 0; i < shape->n_fields; i++) {
        const Saga__V1__RequestField *filled = shape->fields[i];
        char where[PATH_BYTES];
        (void)snprintf(where, sizeof where, "%s.fields[%zu]", path, i);
        const struct schema_field *field = schema_field_by_number(request, filled->number);
        int source = flow_source_find(&check->flow, filled->from);
        bool is_in_order = filled->number > last;
        last = filled->number;
        if (!is_in_order)
            derive_fault(&check->faults, where,
                         "%" PRIu32 " does not come after the number before it: list fields in "
                         "ascending order, each once",
                         filled->number);
        else if (!field)
            derive_fault(&check->faults, where, "%s has no field %" PRIu32 ": give one of its own",
                         request->full_name, filled->number);
        else if (source == FLOW_NOTHING)
            derive_fault(&check->faults, where,
                         "%s.%s: there is no step \"%s\" to fill it: name a step, or \"input\"",
                         request->full_name, field->name, filled->from);
        else if (flow_field_check(&check->flow, request, field, source, where))
            flow_order_check(&check->flow, request, field, source, step, undoing, where);
    }
}

static void check_shape(struct check *check, const Saga__V1__RequestShape *shape, size_t step,
                        bool undoing, const char *operation)
{
    if (!shape)
        return;
    char path[PATH_BYTES], where[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s.request", operation);
    (void)snprintf(where, sizeof where, "%s.type", path);
    const struct flow_type *input = &check->flow.input;
    struct flow_type type = find_type(check, shape->type, path, "type");
    if (type.untyped)
        derive_fault(&check->faults, where, "is required: the full name of the request's message");
    if (!type.message)
        return;
    if (shape->n_fields)
        check_fields(check, shape, type.message, step, undoing, path);
    else if (flow_is_empty(type.message) || type.message == input->message)
        return;
    else if (input->message)
        derive_fault(&check->faults, where,
                     "is %s: without fields the request is the saga's input, %s, or "
                     "google.protobuf.Empty",
                     type.message->full_name, input->message->full_name);
    else if (input->untyped)
        derive_fault(&check->faults, where,
                     "is %s: without fields the request is the saga's input, whose input_type is "
                     "not given",
                     type.message->full_name);
}

/* `operation` NULL: there is none. */
static void check_operation(struct check *check, const Saga__V1__Operation *operation, size_t step,
                            bool undoing)
{
    if (!operation)
        return;
    char path[PATH_BYTES], where[PATH_BYTES];
    (void)snprintf(path, sizeof path, "steps[%zu].%s", step, undoing ? "compensation" : "action");
    if (undoing) /* an action's was looked at first: others are made of it */
        (void)find_type(check, operation->output_type, path, "output_type");
    check_shape(check, operation->request, step, undoing, path);
    (void)snprintf(where, sizeof where, "%s.idempotency_key", path);
    flow_template_check(&check->flow, operation->idempotency_key, where);
    (void)snprintf(where, sizeof where, "%s.probe", path);
    if (operation->probe)
        check_shape(check, operation->probe->request, step, undoing, where);
}

/* Names that are not known, and steps that stand below, are definition_check's faults. */
static void read_order(struct check *check, const Saga__V1__Step *step, size_t index)
{
    if (step->n_after == 0 && !step->at_start && index > 0)
        flow_comes_after(&check->flow, index, index - 1);
    for (size_t i = 0; i < step->n_after; i++) {
        int earlier = flow_source_find(&check->flow, step->after[i]);
        if (earlier < 0 || (size_t)earlier >= index)
            flow_comes_after_all(&check->flow, index);
        else
            flow_comes_after(&check->flow, index, (size_t)earlier);
    }
}

static struct flow_type read_output(struct check *check, const Saga__V1__Step *step, size_t index)
{
    char path[PATH_BYTES];
    if (step->wait_for_signal) {
        (void)snprintf(path, sizeof path, "steps[%zu].wait_for_signal", index);
        return find_type(check, step->wait_for_signal->payload_type, path, "payload_type");
    }
    (void)snprintf(path, sizeof path, "steps[%zu].action", index);
    return find_type(check, step->action ? step->action->output_type : "", path, "output_type");
}

static void check_steps(struct check *check, const Saga__V1__SagaDefinition *definition)
{
    for (size_t i = 0; i < definition->n_steps; i++)
        check->flow.steps[i].name = definition->steps[i]->name;
    for (size_t i = 0; i < definition->n_steps; i++) {
        check->flow.steps[i].output = read_output(check, definition->steps[i], i);
        read_order(check, definition->steps[i], i);
    }
    for (size_t i = 0; i < definition->n_steps; i++) {
        const Saga__V1__Step *step = definition->steps[i];
        check_operation(check, step->action, i, false);
        if (step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION)
            check_operation(check, step->compensation, i, true);
    }
}

int schema_check_definition(const struct schema *schema, const Saga__V1__SagaDefinition *definition,
                            schema_fault_fn *on_fault, void *ctx, size_t *ret_faults,
                            struct err *err)
{
    /* more steps than that are definition_check's one fault */
    size_t count = definition->n_steps <= LIMIT_STEPS ? definition->n_steps : 0;
    CLEANUP(mem_free_p) struct flow_step *steps = mem_calloc(count ? count : 1, sizeof *steps);
    if (!steps)
        return err_set(err, ERR_NOMEM, "check of a definition");
    struct check check = {
        .schema = schema,
        .faults = { .on_fault = on_fault, .ctx = ctx },
        .flow = { .steps = steps, .count = count },
    };
    check.flow.faults = &check.faults;
    check.flow.input = find_type(&check, definition->input_type, "", "input_type");
    flow_template_check(&check.flow, definition->key, "key");
    for (size_t i = 0; i < definition->n_labels; i++) {
        char where[PATH_BYTES];
        (void)snprintf(where, sizeof where, "labels[%zu].value", i);
        flow_template_check(&check.flow, definition->labels[i]->value, where);
    }
    if (count)
        check_steps(&check, definition);
    *ret_faults = check.faults.count;
    return 0;
}

/* ---- Names of types -------------------------------------------------------------------------- */

struct names {
    const char **items;
    size_t count;
};

static void add_name(struct names *names, const char *name)
{
    if (derive_is_said(name))
        names->items[names->count++] = name;
}

static void add_operation(struct names *names, const Saga__V1__Operation *operation)
{
    if (!operation)
        return;
    if (operation->request)
        add_name(names, operation->request->type);
    if (operation->probe && operation->probe->request)
        add_name(names, operation->probe->request->type);
    add_name(names, operation->output_type);
}

int schema_definition_types(const Saga__V1__SagaDefinition *definition, struct arena *arena,
                            const char *const **ret, size_t *ret_count, struct err *err)
{
    enum { NAMES_OF_STEP = 7 }; /* three for each operation, and a payload */
    struct names names = {
        .items = arena_array(arena, 1 + NAMES_OF_STEP * definition->n_steps, sizeof *names.items),
    };
    if (!names.items)
        return err_set(err, ERR_LIMIT, "the names of a definition's types");
    add_name(&names, definition->input_type);
    for (size_t i = 0; i < definition->n_steps; i++) {
        const Saga__V1__Step *step = definition->steps[i];
        add_operation(&names, step->action);
        if (step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION)
            add_operation(&names, step->compensation);
        if (step->wait_for_signal)
            add_name(&names, step->wait_for_signal->payload_type);
    }
    *ret = names.items;
    *ret_count = names.count;
    return 0;
}
