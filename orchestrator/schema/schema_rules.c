/* What a type must be because of what it is for: map entries, and google.protobuf's own. */
#include "schema/schema_internal.h"

#include <stdio.h>
#include <string.h>

enum { SHAPE_SIZE = 256 };

/* "number=kind", "*" for a repeated one, ":type" for a message. */
static const struct {
    const char *name, *shape;
    enum schema_well_known well_known;
} well_known[] = {
    { "Any", "1=9 2=12 ", WELL_KNOWN_ANY },
    { "BoolValue", "1=8 ", WELL_KNOWN_WRAPPER },
    { "BytesValue", "1=12 ", WELL_KNOWN_WRAPPER },
    { "DoubleValue", "1=1 ", WELL_KNOWN_WRAPPER },
    { "Duration", "1=3 2=5 ", WELL_KNOWN_DURATION },
    { "FieldMask", "1=9* ", WELL_KNOWN_FIELD_MASK },
    { "FloatValue", "1=2 ", WELL_KNOWN_WRAPPER },
    { "Int32Value", "1=5 ", WELL_KNOWN_WRAPPER },
    { "Int64Value", "1=3 ", WELL_KNOWN_WRAPPER },
    { "ListValue", "1=11*:google.protobuf.Value ", WELL_KNOWN_LIST_VALUE },
    { "StringValue", "1=9 ", WELL_KNOWN_WRAPPER },
    { "Struct", "1=11*:google.protobuf.Struct.FieldsEntry ", WELL_KNOWN_STRUCT },
    { "Struct.FieldsEntry", "1=9 2=11:google.protobuf.Value ", WELL_KNOWN_NONE },
    { "Timestamp", "1=3 2=5 ", WELL_KNOWN_TIMESTAMP },
    { "UInt32Value", "1=13 ", WELL_KNOWN_WRAPPER },
    { "UInt64Value", "1=4 ", WELL_KNOWN_WRAPPER },
    { "Value", "1=14 2=1 3=9 4=8 5=11:google.protobuf.Struct 6=11:google.protobuf.ListValue ",
      WELL_KNOWN_VALUE },
};

static int check_well_known(struct load *load, const struct symbol *symbol)
{
    static const char package[] = "google.protobuf.";
    struct schema_message *message = symbol->message;
    if (strncmp(symbol->full_name, package, sizeof package - 1) != 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(well_known); i++) {
        if (strcmp(symbol->full_name + sizeof package - 1, well_known[i].name) != 0)
            continue;
        char shape[SHAPE_SIZE] = ""; /* one that is cut is none of ours */
        for (size_t j = 0, used = 0; j < message->field_count; j++, used = strlen(shape)) {
            const struct schema_field *field = &message->fields[j];
            (void)snprintf(shape + used, sizeof shape - used, "%u=%d%s%s%s ", field->number,
                           (int)field->kind, field->repeated ? "*" : "", field->message ? ":" : "",
                           field->message ? field->message->full_name : "");
        }
        if (strcmp(shape, well_known[i].shape) != 0)
            return load_refuse(load, symbol->file, symbol->full_name,
                               "has other fields than it has in protobuf");
        message->well_known = well_known[i].well_known;
    }
    return 0;
}

static bool is_key_kind(enum schema_kind kind)
{
    return kind != KIND_DOUBLE && kind != KIND_FLOAT && kind != KIND_BYTES && kind != KIND_ENUM &&
           kind != KIND_MESSAGE && kind != KIND_GROUP;
}

static bool is_entry_field(const struct schema_field *field, uint32_t number, const char *name)
{
    return field->number == number && strcmp(field->name, name) == 0 && !field->repeated &&
           !field->required && field->oneof < 0;
}

static int check_map_entry(struct load *load, const struct symbol *symbol)
{
    const struct schema_message *entry = symbol->message;
    if (entry->field_count != 2 || !is_entry_field(&entry->fields[0], 1, "key") ||
        !is_entry_field(&entry->fields[1], 2, "value") || !is_key_kind(entry->fields[0].kind) ||
        entry->fields[1].kind == KIND_GROUP)
        return load_refuse(load, symbol->file, symbol->full_name,
                           "a map's entry has a key 1 (a whole number, bool or string) and a "
                           "value 2, and nothing else");
    return 0;
}

/* Entries are declared within the message that has the map, and are for that alone. */
static int check_map_use(struct load *load, const struct symbol *symbol,
                         const struct schema_field *field)
{
    size_t size = strlen(symbol->full_name);
    const char *entry = field->message->full_name;
    if (field->repeated && field->kind == KIND_MESSAGE &&
        strncmp(entry, symbol->full_name, size) == 0 && entry[size] == '.' &&
        !strchr(entry + size + 1, '.'))
        return 0;
    return load_refuse(load, symbol->file, symbol->full_name,
                       "%s is made of the entries of a map, but is none", field->name);
}

static int check_message(struct load *load, const struct symbol *symbol)
{
    const struct schema_message *message = symbol->message;
    int rc = message->map_entry ? check_map_entry(load, symbol) : 0;
    for (size_t i = 0; i < message->field_count && !rc; i++)
        if (message->fields[i].message && message->fields[i].message->map_entry)
            rc = check_map_use(load, symbol, &message->fields[i]);
    return rc ? rc : check_well_known(load, symbol);
}

static int check_service(struct load *load, const struct symbol *symbol)
{
    const struct schema_service *service = symbol->service;
    for (size_t i = 0; i < service->method_count; i++)
        if (service->methods[i].input->map_entry || service->methods[i].output->map_entry)
            return load_refuse(load, symbol->file, symbol->full_name,
                               "%s takes or returns the entry of a map", service->methods[i].name);
    return 0;
}

/* Else a type of the package would seem to be declared in the other one. */
static int check_package(struct load *load, const struct schema_file *file)
{
    char package[SCHEMA_NAME_BYTES + 1];
    (void)snprintf(package, sizeof package, "%s", file->package);
    for (char *end = package + strlen(package); end; end = strrchr(package, '.')) {
        *end = '\0';
        if (symbol_find(load->schema, package))
            return load_refuse(load, file, package, "is the name of a package and of a type");
    }
    return 0;
}

int load_rules(struct load *load)
{
    for (size_t i = 0; i < load->schema->file_count; i++) {
        int rc = check_package(load, load->schema->files[i]);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < load->schema->symbol_count; i++) {
        const struct symbol *symbol = &load->schema->symbols[i];
        int rc = symbol->kind == SYMBOL_MESSAGE   ? check_message(load, symbol)
                 : symbol->kind == SYMBOL_SERVICE ? check_service(load, symbol)
                                                  : 0;
        if (rc)
            return rc;
    }
    return 0;
}
