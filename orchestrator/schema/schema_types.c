/* What stands in messages, enums and services. */
#include "base/utf8.h"
#include "schema/record.h"
#include "schema/schema_internal.h"
#include "wire/json_scalars.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 536870911, RESERVED_FIRST = 19000, RESERVED_LAST = 19999 };

typedef Google__Protobuf__FieldDescriptorProto field_source;

FMT(4, 5)
static int refuse_field(struct load *load, const struct symbol *symbol, const char *field,
                        const char *fmt, ...)
{
    char name[SCHEMA_NAME_BYTES + SCHEMA_FIELD_NAME_BYTES + 2], text[sizeof load->err->msg];
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)snprintf(name, sizeof name, "%s.%s", symbol->full_name, field);
    return load_refuse(load, symbol->file, name, "%s", text);
}

/* ---- one field ---- */

static int take_names(struct load *load, const struct symbol *symbol, const field_source *source,
                      struct schema_field *field)
{
    char computed[JSON_NAME_SIZE];
    if (!load_is_identifier(source->name))
        return load_refuse(load, symbol->file, symbol->full_name,
                           "has a field \"%.64s\", which is no name",
                           source->name ? source->name : "");
    if (strlen(source->name) > SCHEMA_FIELD_NAME_BYTES ||
        (source->json_name && strlen(source->json_name) > SCHEMA_FIELD_NAME_BYTES) ||
        !json_field_name(source->name, computed))
        return load_limit(load, symbol->file, symbol->full_name, SCHEMA_FIELD_NAME_BYTES,
                          "bytes in the name of a field (SCHEMA_FIELD_NAME_BYTES)");
    const char *json_name = source->json_name ? source->json_name : computed;
    if (!utf8_is_text(json_name, strlen(json_name)))
        return refuse_field(load, symbol, source->name, "its JSON name is no text");
    field->name = arena_strdup(&load->schema->arena, source->name);
    field->json_name = arena_strdup(&load->schema->arena, json_name);
    return field->name && field->json_name ? 0 : load_out_of_memory(load);
}

static int take_number(struct load *load, const struct symbol *symbol, const field_source *source,
                       struct schema_field *field)
{
    int32_t number = source->number;
    if (number < 1 || number > NUMBER_MAX)
        return refuse_field(load, symbol, field->name, "its number is not 1 to 536870911");
    if (number >= RESERVED_FIRST && number <= RESERVED_LAST)
        return refuse_field(load, symbol, field->name,
                            "its number is one of 19000 to 19999, which protobuf reserves");
    field->number = (uint32_t)number;
    return 0;
}

static int take_type(struct load *load, const struct symbol *symbol, const field_source *source,
                     struct schema_field *field)
{
    const char *name = source->type_name;
    const struct symbol *type = name ? symbol_resolve(load->schema, symbol->full_name, name) : NULL;
    if (name && !type)
        return refuse_field(load, symbol, field->name, "its type %.128s is nowhere in the set",
                            name);
    if (source->has_type)
        field->kind = (enum schema_kind)source->type;
    else if (type)
        field->kind = type->kind == SYMBOL_ENUM ? KIND_ENUM : KIND_MESSAGE;
    else
        return refuse_field(load, symbol, field->name, "it has no type");
    bool is_message = field->kind == KIND_MESSAGE || field->kind == KIND_GROUP;
    if (!is_message && field->kind != KIND_ENUM)
        return type ? refuse_field(load, symbol, field->name, "a scalar with the name of a type")
                    : 0;
    if (!type || type->kind != (is_message ? SYMBOL_MESSAGE : SYMBOL_ENUM))
        return refuse_field(load, symbol, field->name, "its type \"%.128s\" is no %s",
                            type ? type->full_name : "", is_message ? "message" : "enum");
    if (type->file->order > symbol->file->order) /* else what is pruned could go in circles */
        return refuse_field(load, symbol, field->name,
                            "its type %.96s is in %.48s, which is not imported", type->full_name,
                            type->file->name);
    if (is_message)
        field->message = type->message;
    else
        field->enumeration = type->enumeration;
    return 0;
}

/* How often it is there, and what its absence means. field->oneof is still the one of the source.
 */
static int take_label(struct load *load, const struct symbol *symbol, const field_source *source,
                      size_t oneof_count, struct schema_field *field)
{
    bool proto3 = symbol->file->proto3;
    field->repeated =
        source->label == GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__LABEL__LABEL_REPEATED;
    field->required =
        source->label == GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__LABEL__LABEL_REQUIRED;
    field->oneof = -1;
    if (field->required && proto3)
        return refuse_field(load, symbol, field->name, "required is of proto2");
    if (source->has_oneof_index) {
        if (source->oneof_index < 0 || (size_t)source->oneof_index >= oneof_count)
            return refuse_field(load, symbol, field->name, "its oneof does not exist");
        if (field->repeated || field->required)
            return refuse_field(load, symbol, field->name, "in a oneof, but not optional");
        if (!source->proto3_optional)
            field->oneof = source->oneof_index;
    }
    bool is_message = field->kind == KIND_MESSAGE || field->kind == KIND_GROUP;
    field->presence = !field->repeated &&
                      (is_message || !proto3 || source->has_oneof_index || source->proto3_optional);
    bool packed = source->options && source->options->has_packed ? source->options->packed : proto3;
    field->packed = packed && field->repeated && record_is_packable(field->kind);
    if (source->default_value && !field->repeated && !is_message) {
        field->default_value = arena_strdup(&load->schema->arena, source->default_value);
        if (!field->default_value)
            return load_out_of_memory(load);
    }
    return 0;
}

static int take_field(struct load *load, const struct symbol *symbol, const field_source *source,
                      size_t oneof_count, struct schema_field *field)
{
    int rc = take_names(load, symbol, source, field);
    if (!rc)
        rc = take_number(load, symbol, source, field);
    if (!rc)
        rc = take_type(load, symbol, source, field);
    if (!rc)
        rc = take_label(load, symbol, source, oneof_count, field);
    return rc;
}

/* ---- a message ---- */

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = ((const struct schema_field *)a)->number;
    uint32_t y = ((const struct schema_field *)b)->number;
    return (x > y) - (x < y);
}

static int compare_field_names(const void *a, const void *b)
{
    return strcmp((*(const struct schema_field *const *)a)->name,
                  (*(const struct schema_field *const *)b)->name);
}

static int compare_json_names(const void *a, const void *b)
{
    return strcmp((*(const struct schema_field *const *)a)->json_name,
                  (*(const struct schema_field *const *)b)->json_name);
}

/* `optional` of proto3 is written as a oneof of its own, which is none for anybody else: the real
 * ones are counted anew, in the order of the source. */
static int take_oneofs(struct load *load, const struct symbol *symbol,
                       const Google__Protobuf__DescriptorProto *source, struct schema_field *fields)
{
    struct schema_message *message = symbol->message;
    size_t count = source->n_oneof_decl;
    int *index = arena_array(&load->unpacked, count, sizeof *index); /* 0: not real; else 1 more */
    const char **names = arena_array(&load->schema->arena, count, sizeof *names);
    if (!index || !names)
        return load_out_of_memory(load);
    for (size_t i = 0; i < message->field_count; i++)
        if (fields[i].oneof >= 0)
            index[fields[i].oneof] = 1;
    for (size_t i = 0; i < count; i++) {
        if (!index[i])
            continue;
        const char *name = source->oneof_decl[i]->name;
        if (!load_is_identifier(name))
            return load_refuse(load, symbol->file, symbol->full_name,
                               "has a oneof \"%.64s\", which is no name", name ? name : "");
        names[message->oneof_count++] = arena_strdup(&load->schema->arena, name);
        if (!names[message->oneof_count - 1])
            return load_out_of_memory(load);
        index[i] = (int)message->oneof_count;
    }
    for (size_t i = 0; i < message->field_count; i++)
        if (fields[i].oneof >= 0)
            fields[i].oneof = index[fields[i].oneof] - 1;
    message->oneof_names = names;
    return 0;
}

static int number_required(struct load *load, const struct symbol *symbol,
                           struct schema_field *fields)
{
    struct schema_message *message = symbol->message;
    for (size_t i = 0; i < message->field_count; i++)
        if (fields[i].required)
            fields[i].required_index = message->required_count++;
    if (message->required_count > SCHEMA_REQUIRED_MAX)
        return load_limit(load, symbol->file, symbol->full_name, SCHEMA_REQUIRED_MAX,
                          "required fields in one message (SCHEMA_REQUIRED_MAX)");
    return 0;
}

/* The indexes, and that nothing is in them twice. */
static int index_fields(struct load *load, const struct symbol *symbol)
{
    struct schema_message *message = symbol->message;
    size_t count = message->field_count;
    const struct schema_field **by_name =
        arena_array(&load->schema->arena, count, sizeof(struct schema_field *));
    const struct schema_field **by_json_name =
        arena_array(&load->schema->arena, count, sizeof(struct schema_field *));
    if (!by_name || !by_json_name)
        return load_out_of_memory(load);
    for (size_t i = 0; i < count; i++)
        by_name[i] = by_json_name[i] = &message->fields[i];
    qsort(by_name, count, sizeof(struct schema_field *), compare_field_names);
    qsort(by_json_name, count, sizeof(struct schema_field *), compare_json_names);
    for (size_t i = 1; i < count; i++) {
        if (message->fields[i - 1].number == message->fields[i].number)
            return refuse_field(load, symbol, message->fields[i].name,
                                "its number is that of another field");
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            return refuse_field(load, symbol, by_name[i]->name, "is declared twice");
        if (strcmp(by_json_name[i - 1]->json_name, by_json_name[i]->json_name) == 0)
            return refuse_field(load, symbol, by_json_name[i]->name,
                                "its JSON name is that of another field");
    }
    message->by_name = by_name;
    message->by_json_name = by_json_name;
    return 0;
}

static int take_message(struct load *load, const struct symbol *symbol)
{
    const Google__Protobuf__DescriptorProto *source = symbol->source;
    struct schema_message *message = symbol->message;
    struct schema_field *fields =
        arena_array(&load->schema->arena, source->n_field, sizeof *fields);
    if (!fields)
        return load_out_of_memory(load);
    for (size_t i = 0; i < source->n_field; i++) {
        int rc = take_field(load, symbol, source->field[i], source->n_oneof_decl, &fields[i]);
        if (rc)
            return rc;
    }
    qsort(fields, source->n_field, sizeof *fields, compare_numbers);
    message->fields = fields;
    message->field_count = source->n_field;
    message->map_entry = source->options && source->options->map_entry;
    int rc = index_fields(load, symbol);
    if (!rc)
        rc = take_oneofs(load, symbol, source, fields);
    if (!rc)
        rc = number_required(load, symbol, fields);
    return rc;
}

/* ---- an enum ---- */

static int compare_value_names(const void *a, const void *b)
{
    return strcmp((*(const struct schema_value *const *)a)->name,
                  (*(const struct schema_value *const *)b)->name);
}

/* Aliases in the order of the file. */
static int compare_value_numbers(const void *a, const void *b)
{
    const struct schema_value *x = *(const struct schema_value *const *)a;
    const struct schema_value *y = *(const struct schema_value *const *)b;
    return x->number != y->number ? (x->number > y->number) - (x->number < y->number)
                                  : (x > y) - (x < y);
}

static int index_values(struct load *load, const struct symbol *symbol)
{
    struct schema_enum *enumeration = symbol->enumeration;
    size_t count = enumeration->value_count;
    const struct schema_value **by_name =
        arena_array(&load->schema->arena, count, sizeof(struct schema_value *));
    const struct schema_value **by_number =
        arena_array(&load->schema->arena, count, sizeof(struct schema_value *));
    if (!by_name || !by_number)
        return load_out_of_memory(load);
    for (size_t i = 0; i < count; i++)
        by_name[i] = by_number[i] = &enumeration->values[i];
    qsort(by_name, count, sizeof(struct schema_value *), compare_value_names);
    qsort(by_number, count, sizeof(struct schema_value *), compare_value_numbers);
    for (size_t i = 1; i < count; i++)
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            return refuse_field(load, symbol, by_name[i]->name, "is declared twice");
    enumeration->by_name = by_name;
    enumeration->by_number = by_number;
    return 0;
}

static int take_enum(struct load *load, const struct symbol *symbol)
{
    const Google__Protobuf__EnumDescriptorProto *source = symbol->source;
    struct schema_enum *enumeration = symbol->enumeration;
    struct schema_value *values =
        arena_array(&load->schema->arena, source->n_value, sizeof *values);
    if (!values)
        return load_out_of_memory(load);
    if (source->n_value == 0)
        return load_refuse(load, symbol->file, symbol->full_name, "an enum without values");
    for (size_t i = 0; i < source->n_value; i++) {
        const char *name = source->value[i]->name;
        if (!load_is_identifier(name))
            return load_refuse(load, symbol->file, symbol->full_name,
                               "has a value \"%.64s\", which is no name", name ? name : "");
        values[i].number = source->value[i]->number;
        values[i].name = arena_strdup(&load->schema->arena, name);
        if (!values[i].name)
            return load_out_of_memory(load);
    }
    enumeration->values = values;
    enumeration->value_count = source->n_value;
    enumeration->closed = !symbol->file->proto3;
    if (!enumeration->closed && values[0].number != 0)
        return load_refuse(load, symbol->file, symbol->full_name,
                           "the first value of an enum of proto3 is 0");
    return index_values(load, symbol);
}

/* ---- a service ---- */

/* Packed anew, with the fields that protobuf-c does not know: custom options. */
static int take_options(struct load *load, const ProtobufCMessage *options, struct bytes *ret)
{
    size_t size = options ? protobuf_c_message_get_packed_size(options) : 0;
    if (!size)
        return 0;
    ret->data = arena_alloc(&load->schema->arena, size);
    if (!ret->data)
        return load_out_of_memory(load);
    ret->size = protobuf_c_message_pack(options, ret->data);
    return 0;
}

static int take_method_type(struct load *load, const struct symbol *symbol, const char *method,
                            const char *name, const struct schema_message **ret)
{
    const struct schema_message *message =
        name ? schema_message_resolve(load->schema, symbol->full_name, name) : NULL;
    if (!message)
        return refuse_field(load, symbol, method, "its type \"%.128s\" is no message of the set",
                            name ? name : "");
    *ret = message;
    return 0;
}

static int take_method(struct load *load, const struct symbol *symbol,
                       const Google__Protobuf__MethodDescriptorProto *source,
                       struct schema_method *method)
{
    if (!load_is_identifier(source->name))
        return load_refuse(load, symbol->file, symbol->full_name,
                           "has a method \"%.64s\", which is no name",
                           source->name ? source->name : "");
    method->name = arena_strdup(&load->schema->arena, source->name);
    if (!method->name)
        return load_out_of_memory(load);
    method->client_streaming = source->client_streaming;
    method->server_streaming = source->server_streaming;
    int rc = take_method_type(load, symbol, method->name, source->input_type, &method->input);
    if (!rc)
        rc = take_method_type(load, symbol, method->name, source->output_type, &method->output);
    if (!rc)
        rc = take_options(load, (const void *)source->options, &method->options);
    return rc;
}

static int compare_method_names(const void *a, const void *b)
{
    return strcmp((*(const struct schema_method *const *)a)->name,
                  (*(const struct schema_method *const *)b)->name);
}

static int check_methods_once(struct load *load, const struct symbol *symbol)
{
    const struct schema_service *service = symbol->service;
    const struct schema_method **sorted =
        arena_array(&load->unpacked, service->method_count, sizeof(struct schema_method *));
    if (!sorted)
        return load_out_of_memory(load);
    for (size_t i = 0; i < service->method_count; i++)
        sorted[i] = &service->methods[i];
    qsort(sorted, service->method_count, sizeof(struct schema_method *), compare_method_names);
    for (size_t i = 1; i < service->method_count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return refuse_field(load, symbol, sorted[i]->name, "is declared twice");
    return 0;
}

static int take_service(struct load *load, const struct symbol *symbol)
{
    const Google__Protobuf__ServiceDescriptorProto *source = symbol->source;
    struct schema_service *service = symbol->service;
    struct schema_method *methods =
        arena_array(&load->schema->arena, source->n_method, sizeof *methods);
    if (!methods)
        return load_out_of_memory(load);
    for (size_t i = 0; i < source->n_method; i++) {
        int rc = take_method(load, symbol, source->method[i], &methods[i]);
        if (rc)
            return rc;
    }
    service->methods = methods;
    service->method_count = source->n_method;
    int rc = take_options(load, (const void *)source->options, &service->options);
    return rc ? rc : check_methods_once(load, symbol);
}

int load_types(struct load *load)
{
    for (size_t i = 0; i < load->schema->symbol_count; i++) {
        const struct symbol *symbol = &load->schema->symbols[i];
        int rc = symbol->kind == SYMBOL_MESSAGE ? take_message(load, symbol)
                 : symbol->kind == SYMBOL_ENUM  ? take_enum(load, symbol)
                                                : take_service(load, symbol);
        if (rc)
            return rc;
    }
    return 0;
}
