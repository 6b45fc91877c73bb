#include "schema/derive_internal.h"

#include "schema/payload.h"

#include <stdio.h>
#include <string.h>

bool flow_is_empty(const struct schema_message *message)
{
    return strcmp(message->full_name, "google.protobuf.Empty") == 0;
}

int flow_source_find(const struct flow *flow, const char *name)
{
    if (strcmp(name, "input") == 0)
        return FLOW_INPUT;
    for (size_t i = 0; i < flow->count; i++)
        if (strcmp(flow->steps[i].name, name) == 0)
            return (int)i;
    return FLOW_NOTHING;
}

/* ---- Order ----------------------------------------------------------------------------------- */

void flow_comes_after(struct flow *flow, size_t step, size_t earlier)
{
    uint64_t *before = flow->steps[step].before;
    for (size_t i = 0; i < ARRAY_LEN(flow->steps[step].before); i++)
        before[i] |= flow->steps[earlier].before[i];
    before[earlier / 64] |= UINT64_C(1) << earlier % 64;
}

void flow_comes_after_all(struct flow *flow, size_t step)
{
    for (size_t i = 0; i < step; i++)
        flow_comes_after(flow, step, i);
}

void flow_order_check(const struct flow *flow, const struct schema_message *request,
                      const struct schema_field *field, int source, size_t step, bool undoing,
                      const char *where)
{
    if (source < 0)
        return;
    size_t from = (size_t)source;
    const char *user = flow->steps[step].name, *used = flow->steps[from].name;
    bool is_there = flow->steps[step].before[from / 64] & UINT64_C(1) << from % 64;
    if (is_there || (from == step && undoing))
        return;
    if (from < step)
        derive_fault(flow->faults, where,
                     "%s.%s is what step %s returns, which is not certain to be done when it is "
                     "asked for: let step %s come after \"%s\", or leave the field out",
                     request->full_name, field->name, used, user, used);
    else
        derive_fault(flow->faults, where,
                     "%s.%s is what step %s returns, which is never done when it is asked for: "
                     "leave the field out",
                     request->full_name, field->name, used);
}

/* ---- Types ----------------------------------------------------------------------------------- */

void flow_type_describe(const struct schema_field *field, char ret[FLOW_TYPE_BYTES])
{
    static const char *const words[] = {
        [KIND_DOUBLE] = "double",     [KIND_FLOAT] = "float",     [KIND_INT64] = "int64",
        [KIND_UINT64] = "uint64",     [KIND_INT32] = "int32",     [KIND_FIXED64] = "fixed64",
        [KIND_FIXED32] = "fixed32",   [KIND_BOOL] = "bool",       [KIND_STRING] = "string",
        [KIND_GROUP] = "group",       [KIND_MESSAGE] = "message", [KIND_BYTES] = "bytes",
        [KIND_UINT32] = "uint32",     [KIND_ENUM] = "enum",       [KIND_SFIXED32] = "sfixed32",
        [KIND_SFIXED64] = "sfixed64", [KIND_SINT32] = "sint32",   [KIND_SINT64] = "sint64",
    };
    const char *name = words[field->kind];
    if (field->kind == KIND_MESSAGE)
        name = field->message->full_name;
    else if (field->kind == KIND_ENUM)
        name = field->enumeration->full_name;
    if (field->kind == KIND_MESSAGE && field->message->map_entry)
        (void)snprintf(ret, FLOW_TYPE_BYTES, "a map");
    else
        (void)snprintf(ret, FLOW_TYPE_BYTES, "%s%s", field->repeated ? "repeated " : "", name);
}

bool flow_field_check(const struct flow *flow, const struct schema_message *request,
                      const struct schema_field *field, int source, const char *where)
{
    const struct flow_step *step = source >= 0 ? &flow->steps[source] : NULL;
    const struct flow_type *want = step ? &step->output : &flow->input;
    const char *whose = step ? step->name : "input";
    const char *message = request->full_name, *name = field->name;
    if (!want->message) {
        if (want->untyped)
            derive_fault(flow->faults, where, "%s.%s: the type of \"%s\" is not known: give its %s",
                         message, name, whose, step ? "output_type" : "input_type");
        return false;
    }
    if (field->kind != KIND_MESSAGE || field->repeated || field->message != want->message) {
        char type[FLOW_TYPE_BYTES];
        flow_type_describe(field, type);
        derive_fault(flow->faults, where, "%s.%s is %s: must be %s, the type of \"%s\"", message,
                     name, type, want->message->full_name, whose);
    } else if (field->oneof >= 0) {
        derive_fault(flow->faults, where,
                     "%s.%s is in a oneof: must not be, since each field is filled by itself",
                     message, name);
    } else if (field->required && step) {
        derive_fault(flow->faults, where,
                     "%s.%s is required: must be optional, since it stays unset where step %s has "
                     "no output",
                     message, name, whose);
    } else {
        return true;
    }
    return false;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Is any field named as something that there is? (More fields than there are names: it is another
 * message.) */
static bool is_made_of_parts(const struct flow *flow, const struct schema_message *request)
{
    if (request->field_count > flow->count + 1)
        return false;
    for (size_t i = 0; i < request->field_count; i++)
        if (flow_source_find(flow, request->fields[i].name) != FLOW_NOTHING)
            return true;
    return false;
}

static const char *hint_source(const struct flow *flow, const char *name, char text[HINT_BYTES])
{
    struct closest closest = derive_closest(flow->faults, name);
    derive_closest_offer(&closest, "input");
    for (size_t i = 0; i < flow->count; i++)
        derive_closest_offer(&closest, flow->steps[i].name);
    return derive_hint(&closest, "", text);
}

static void tell_foreign(const struct flow *flow, const struct schema_message *request,
                         const char *where)
{
    const char *name = request->full_name;
    char text[HINT_BYTES];
    if (!flow->input.message)
        return; /* it may be the input, whose fault was told */
    if (request->field_count == 0)
        derive_fault(flow->faults, where,
                     "is %s, which has no fields: must be google.protobuf.Empty", name);
    else
        derive_fault(flow->faults, where,
                     "is %s: must be the saga's input, %s, or google.protobuf.Empty, or a message "
                     "whose fields are named \"input\" and after steps; its field %s is not%s",
                     name, flow->input.message->full_name, request->fields[0].name,
                     hint_source(flow, request->fields[0].name, text));
}

static void add_field(const struct flow *flow, const struct schema_message *request,
                      const struct schema_field *field, struct arena *arena, const char *where,
                      Saga__V1__RequestShape *shape)
{
    int source = flow_source_find(flow, field->name);
    char text[HINT_BYTES];
    if (source == FLOW_NOTHING) {
        derive_fault(flow->faults, where,
                     "%s.%s is named neither \"input\" nor after a step of this saga%s",
                     request->full_name, field->name, hint_source(flow, field->name, text));
        return;
    }
    if (!flow_field_check(flow, request, field, source, where))
        return;
    Saga__V1__RequestField *filled =
        derive_message_new(arena, &saga__v1__request_field__descriptor);
    if (!filled)
        return;
    filled->number = field->number;
    filled->from = (char *)field->name;
    shape->fields[shape->n_fields++] = filled;
}

Saga__V1__RequestShape *flow_shape_new(const struct flow *flow,
                                       const struct schema_message *request, struct arena *arena,
                                       const char *where)
{
    bool is_whole = request == flow->input.message || flow_is_empty(request);
    if (!is_whole && !is_made_of_parts(flow, request)) {
        tell_foreign(flow, request, where);
        return NULL;
    }
    Saga__V1__RequestShape *shape = derive_message_new(arena, &saga__v1__request_shape__descriptor);
    if (!shape)
        return NULL;
    shape->type = (char *)request->full_name;
    if (is_whole)
        return shape;
    shape->fields = arena_array(arena, request->field_count, sizeof(Saga__V1__RequestField *));
    if (!shape->fields)
        return NULL;
    for (size_t i = 0; i < request->field_count; i++)
        add_field(flow, request, &request->fields[i], arena, where, shape);
    return shape;
}

void flow_template_check(const struct flow *flow, const char *text, const char *where)
{
    if (!derive_is_said(text))
        return;
    struct err err;
    const struct schema_message *input = flow->input.message;
    if (!input && flow->input.untyped)
        derive_fault(flow->faults, where, "needs input_type, whose fields it names");
    else if (input && payload_template_check(input, text, &err) != 0)
        derive_fault(flow->faults, where, "%s", err.msg);
}
