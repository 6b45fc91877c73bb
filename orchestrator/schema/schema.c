#include "schema/schema_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct schema *schema_free(struct schema *schema)
{
    if (schema)
        arena_done(&schema->arena);
    mem_free(schema);
    return NULL;
}

size_t schema_service_count(const struct schema *schema)
{
    return schema->service_count;
}

const struct schema_service *schema_service_at(const struct schema *schema, size_t index)
{
    return index < schema->service_count ? &schema->services[index] : NULL;
}

static int compare_name_with_symbol(const void *name, const void *symbol)
{
    return strcmp(name, ((const struct symbol *)symbol)->full_name);
}

struct symbol *symbol_find(const struct schema *schema, const char *full_name)
{
    return bsearch(full_name, schema->symbols, schema->symbol_count, sizeof *schema->symbols,
                   compare_name_with_symbol);
}

struct symbol *symbol_resolve(const struct schema *schema, const char *scope, const char *name)
{
    if (*name == '.')
        return symbol_find(schema, name + 1);
    char full[SCHEMA_NAME_BYTES + 1];
    for (size_t length = strlen(scope);; length--) { /* "a.b.c", "a.b", "a", "" */
        while (length > 0 && scope[length] != '.' && scope[length] != '\0')
            length--;
        int size =
            snprintf(full, sizeof full, "%.*s%s%s", (int)length, scope, length ? "." : "", name);
        struct symbol *symbol =
            size > 0 && (size_t)size < sizeof full ? symbol_find(schema, full) : NULL;
        if (symbol || length == 0)
            return symbol;
    }
}

static const struct schema_message *message_of(const struct symbol *symbol)
{
    return symbol && symbol->kind == SYMBOL_MESSAGE ? symbol->message : NULL;
}

const struct schema_message *schema_message_find(const struct schema *schema, const char *full_name)
{
    return message_of(symbol_find(schema, full_name));
}

const struct schema_message *schema_message_resolve(const struct schema *schema, const char *scope,
                                                    const char *name)
{
    return message_of(symbol_resolve(schema, scope, name));
}

const struct schema_field *schema_field_by_number(const struct schema_message *message,
                                                  uint32_t number)
{
    size_t low = 0, high = message->field_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (message->fields[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < message->field_count && message->fields[low].number == number
               ? &message->fields[low]
               : NULL;
}

static int compare_name_with_field(const void *name, const void *field)
{
    return strcmp(name, (*(const struct schema_field *const *)field)->name);
}

static int compare_name_with_json_name(const void *name, const void *field)
{
    return strcmp(name, (*(const struct schema_field *const *)field)->json_name);
}

static int compare_name_with_value(const void *name, const void *value)
{
    return strcmp(name, (*(const struct schema_value *const *)value)->name);
}

const struct schema_field *schema_field_by_name(const struct schema_message *message,
                                                const char *name)
{
    const struct schema_field *const *found =
        bsearch(name, message->by_name, message->field_count, sizeof(struct schema_field *),
                compare_name_with_field);
    return found ? *found : NULL;
}

const struct schema_field *schema_field_by_json_name(const struct schema_message *message,
                                                     const char *json_name)
{
    const struct schema_field *const *found =
        bsearch(json_name, message->by_json_name, message->field_count,
                sizeof(struct schema_field *), compare_name_with_json_name);
    return found ? *found : NULL;
}

const struct schema_value *schema_value_by_number(const struct schema_enum *enumeration,
                                                  int32_t number)
{
    size_t low = 0, high = enumeration->value_count; /* the first of several */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (enumeration->by_number[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < enumeration->value_count && enumeration->by_number[low]->number == number
               ? enumeration->by_number[low]
               : NULL;
}

const struct schema_value *schema_value_by_name(const struct schema_enum *enumeration,
                                                const char *name)
{
    const struct schema_value *const *found =
        bsearch(name, enumeration->by_name, enumeration->value_count, sizeof(struct schema_value *),
                compare_name_with_value);
    return found ? *found : NULL;
}
