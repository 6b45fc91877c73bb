/* From bytes to files and names. What stands in the types is schema_types.c's. */
#include "base/utf8.h"
#include "schema/record.h"
#include "schema/schema_internal.h"
#include "wire/validate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOLD_FILE_BYTES = 96, TOLD_NAME_BYTES = 128 }; /* of names, in the text of an error */

int load_refuse(struct load *load, const struct schema_file *file, const char *name,
                const char *fmt, ...)
{
    char text[sizeof load->err->msg];
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c; c++) /* names that are none may be anything, and are cut anywhere */
        if (*c < ' ' || *c > '~')
            *c = '?';
    int file_bytes = (int)utf8_cut(file->name, strlen(file->name), TOLD_FILE_BYTES);
    return err_set(load->err, ERR_INVALID, "%.*s: %.*s%s%s", file_bytes, file->name,
                   TOLD_NAME_BYTES, name ? name : "", name ? ": " : "", text);
}

int load_out_of_memory(struct load *load)
{
    return err_set(load->err, ERR_NOMEM, "descriptors: out of memory");
}

int load_limit(struct load *load, const struct schema_file *file, const char *name, int limit,
               const char *what)
{
    static const struct schema_file set = { .name = "descriptors" };
    (void)load_refuse(load, file ? file : &set, name, "more than %d %s", limit, what);
    load->err->code = ERR_LIMIT;
    return ERR_LIMIT;
}

/* How long the name is that stands at the beginning; 0: none does. */
static size_t identifier_size(const char *text)
{
    size_t size = 0;
    if (*text >= '0' && *text <= '9')
        return 0;
    while ((text[size] >= 'a' && text[size] <= 'z') || (text[size] >= 'A' && text[size] <= 'Z') ||
           (text[size] >= '0' && text[size] <= '9') || text[size] == '_')
        size++;
    return size;
}

bool load_is_identifier(const char *name)
{
    size_t size = name ? identifier_size(name) : 0;
    return size > 0 && !name[size];
}

/* Empty, or names with dots between them. */
static bool is_package(const char *package)
{
    if (!*package)
        return true;
    for (;;) {
        size_t size = identifier_size(package);
        if (!size)
            return false;
        package += size;
        if (!*package)
            return true;
        if (*package++ != '.')
            return false;
    }
}

/* ---- files ---- */

static int count_files(struct load *load, const uint8_t *data, size_t size)
{
    struct records records = { data, size, 0 };
    struct record record;
    while (records_left(&records)) {
        const char *problem = record_next(&records, &record);
        if (problem || (record.number == 1 && record.type != RECORD_BYTES))
            return err_set(load->err, ERR_INVALID, "no FileDescriptorSet: %s",
                           problem ? problem : "wrong wire type");
        load->schema->file_count += record.number == 1;
        if (load->schema->file_count > SCHEMA_FILES_MAX)
            return load_limit(load, NULL, NULL, SCHEMA_FILES_MAX, "files (SCHEMA_FILES_MAX)");
    }
    return 0;
}

static int take_file(struct load *load, const Google__Protobuf__FileDescriptorProto *source,
                     struct schema_file *file)
{
    const char *name = source->name ? source->name : "";
    if (!*name || !utf8_is_text(name, strlen(name)))
        return err_set(load->err, ERR_INVALID, "descriptors: a file without a proper name");
    file->name = arena_strdup(&load->schema->arena, name);
    file->package = arena_strdup(&load->schema->arena, source->package ? source->package : "");
    file->source = source;
    if (!file->name || !file->package)
        return load_out_of_memory(load);
    if (strlen(name) > SCHEMA_NAME_BYTES || strlen(file->package) > SCHEMA_NAME_BYTES)
        return load_limit(load, file, NULL, SCHEMA_NAME_BYTES,
                          "bytes in the name of a file or package (SCHEMA_NAME_BYTES)");
    if (!is_package(file->package))
        return load_refuse(load, file, NULL, "its package is not a name");
    const char *syntax = source->syntax ? source->syntax : "";
    file->proto3 = strcmp(syntax, "proto3") == 0;
    if (!file->proto3 && *syntax && strcmp(syntax, "proto2") != 0)
        return load_refuse(load, file, NULL,
                           "syntax \"%.40s\" is not supported; proto2 and proto3 are", syntax);
    return 0;
}

/* One file at a time, so that the limits of the scan count for each. */
static int read_files(struct load *load, const uint8_t *data, size_t size)
{
    struct schema *schema = load->schema;
    int rc = count_files(load, data, size);
    if (rc)
        return rc;
    schema->files = arena_array(&schema->arena, schema->file_count, sizeof(struct schema_file *));
    if (!schema->files)
        return load_out_of_memory(load);
    struct records records = { data, size, 0 };
    for (size_t i = 0; i < schema->file_count;) {
        struct record record;
        if (record_next(&records, &record) || record.number != 1)
            continue; /* no problem: count_files was here */
        ProtobufCMessage *source = NULL;
        if (wire_unpack(&google__protobuf__file_descriptor_proto__descriptor, record.data,
                        record.size, &load->unpacked, &source, load->err) != 0)
            return err_wrap(load->err, "descriptors: file %zu", i + 1);
        struct schema_file *file = arena_alloc(&schema->arena, sizeof *file);
        if (!file)
            return load_out_of_memory(load);
        rc = take_file(load, (const void *)source, file);
        if (rc)
            return rc;
        schema->files[i++] = file;
    }
    return 0;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp((*(struct schema_file *const *)a)->name, (*(struct schema_file *const *)b)->name);
}

static int sort_files(struct load *load)
{
    struct schema *schema = load->schema;
    struct schema_file **sorted =
        arena_array(&schema->arena, schema->file_count, sizeof(struct schema_file *));
    if (!sorted)
        return load_out_of_memory(load);
    memcpy(sorted, schema->files, schema->file_count * sizeof(struct schema_file *));
    qsort(sorted, schema->file_count, sizeof(struct schema_file *), compare_files);
    for (size_t i = 1; i < schema->file_count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return load_refuse(load, sorted[i], NULL, "is in the set twice");
    schema->files_by_name = sorted;
    return 0;
}

static struct schema_file *file_find(const struct schema *schema, const char *name)
{
    struct schema_file wanted = { .name = name };
    struct schema_file *key = &wanted;
    struct schema_file **found = bsearch(&key, schema->files_by_name, schema->file_count,
                                         sizeof(struct schema_file *), compare_files);
    return found ? *found : NULL;
}

/* Depth first; as deep as there are files, which are bounded. */
static int visit_imports(struct load *load, struct schema_file *file)
{
    file->visit = FILE_OPEN;
    for (size_t i = 0; i < file->source->n_dependency; i++) {
        const char *name = file->source->dependency[i];
        struct schema_file *imported = file_find(load->schema, name);
        if (!imported)
            return load_refuse(load, file, NULL, "imports %.96s, which is not in the set", name);
        if (imported->visit == FILE_OPEN)
            return load_refuse(load, file, NULL, "imports %.96s, which imports it in turn", name);
        int rc = imported->visit == FILE_NEW ? visit_imports(load, imported) : 0;
        if (rc)
            return rc;
    }
    file->visit = FILE_DONE;
    file->order = load->files_done++;
    return 0;
}

static int check_imports(struct load *load)
{
    const struct schema *schema = load->schema;
    for (size_t i = 0; i < schema->file_count; i++) {
        int rc = schema->files[i]->visit == FILE_NEW ? visit_imports(load, schema->files[i]) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- how much there is ---- */

struct counts {
    size_t types, fields, services, methods;
};

static int count_message(struct load *load, const struct schema_file *file,
                         const Google__Protobuf__DescriptorProto *message, unsigned depth,
                         struct counts *counts)
{
    if (depth > SCHEMA_NESTING_MAX)
        return load_limit(load, file, NULL, SCHEMA_NESTING_MAX,
                          "messages declared in one another (SCHEMA_NESTING_MAX)");
    counts->types += 1 + message->n_enum_type;
    counts->fields += message->n_field;
    for (size_t i = 0; i < message->n_enum_type; i++)
        counts->fields += message->enum_type[i]->n_value;
    for (size_t i = 0; i < message->n_nested_type; i++) {
        int rc = count_message(load, file, message->nested_type[i], depth + 1, counts);
        if (rc)
            return rc;
    }
    return 0;
}

static int count_file(struct load *load, const struct schema_file *schema_file,
                      struct counts *counts)
{
    const Google__Protobuf__FileDescriptorProto *file = schema_file->source;
    counts->types += file->n_enum_type;
    counts->services += file->n_service;
    for (size_t i = 0; i < file->n_enum_type; i++)
        counts->fields += file->enum_type[i]->n_value;
    for (size_t i = 0; i < file->n_service; i++)
        counts->methods += file->service[i]->n_method;
    for (size_t i = 0; i < file->n_message_type; i++) {
        int rc = count_message(load, schema_file, file->message_type[i], 1, counts);
        if (rc)
            return rc;
    }
    return 0;
}

static int count_all(struct load *load, struct counts *counts)
{
    for (size_t i = 0; i < load->schema->file_count; i++) {
        int rc = count_file(load, load->schema->files[i], counts);
        if (rc)
            return rc;
    }
    if (counts->types > SCHEMA_TYPES_MAX)
        return load_limit(load, NULL, NULL, SCHEMA_TYPES_MAX,
                          "messages and enums (SCHEMA_TYPES_MAX)");
    if (counts->fields > SCHEMA_FIELDS_MAX)
        return load_limit(load, NULL, NULL, SCHEMA_FIELDS_MAX,
                          "fields and values (SCHEMA_FIELDS_MAX)");
    if (counts->services > SCHEMA_SERVICES_MAX)
        return load_limit(load, NULL, NULL, SCHEMA_SERVICES_MAX, "services (SCHEMA_SERVICES_MAX)");
    if (counts->methods > SCHEMA_METHODS_MAX)
        return load_limit(load, NULL, NULL, SCHEMA_METHODS_MAX, "methods (SCHEMA_METHODS_MAX)");
    return 0;
}

/* ---- names ---- */

/* Adds a symbol named `name` within `scope`; there is room, count_all has counted. */
static int declare(struct load *load, struct schema_file *file, const char *scope, const char *name,
                   const void *source, struct symbol **ret)
{
    struct schema *schema = load->schema;
    if (!load_is_identifier(name))
        return load_refuse(load, file, *scope ? scope : NULL,
                           "declares \"%.64s\", which is no name", name ? name : "");
    const char *dot = *scope ? "." : "";
    size_t size = strlen(scope) + strlen(dot) + strlen(name);
    if (size > SCHEMA_NAME_BYTES)
        return load_limit(load, file, *scope ? scope : NULL, SCHEMA_NAME_BYTES,
                          "bytes in a full name (SCHEMA_NAME_BYTES)");
    char *full_name = arena_alloc(&schema->arena, size + 1);
    if (!full_name)
        return load_out_of_memory(load);
    (void)snprintf(full_name, size + 1, "%s%s%s", scope, dot, name);
    struct symbol *symbol = &schema->symbols[schema->symbol_count++];
    *symbol = (struct symbol){ .full_name = full_name, .file = file, .source = source };
    *ret = symbol;
    return 0;
}

static int declare_enum(struct load *load, struct schema_file *file, const char *scope,
                        const Google__Protobuf__EnumDescriptorProto *source)
{
    struct symbol *symbol = NULL;
    int rc = declare(load, file, scope, source->name, source, &symbol);
    if (rc)
        return rc;
    struct schema_enum *enumeration = arena_alloc(&load->schema->arena, sizeof *enumeration);
    if (!enumeration)
        return load_out_of_memory(load);
    enumeration->full_name = symbol->full_name;
    enumeration->file = file->name;
    symbol->kind = SYMBOL_ENUM;
    symbol->enumeration = enumeration;
    return 0;
}

/* As deep as SCHEMA_NESTING_MAX; count_message was here. */
static int declare_message(struct load *load, struct schema_file *file, const char *scope,
                           const Google__Protobuf__DescriptorProto *source)
{
    struct symbol *symbol = NULL;
    int rc = declare(load, file, scope, source->name, source, &symbol);
    if (rc)
        return rc;
    struct schema_message *message = arena_alloc(&load->schema->arena, sizeof *message);
    if (!message)
        return load_out_of_memory(load);
    message->full_name = symbol->full_name;
    message->file = file->name;
    symbol->kind = SYMBOL_MESSAGE;
    symbol->message = message;
    for (size_t i = 0; i < source->n_nested_type && !rc; i++)
        rc = declare_message(load, file, message->full_name, source->nested_type[i]);
    for (size_t i = 0; i < source->n_enum_type && !rc; i++)
        rc = declare_enum(load, file, message->full_name, source->enum_type[i]);
    return rc;
}

static int declare_service(struct load *load, struct schema_file *file,
                           const Google__Protobuf__ServiceDescriptorProto *source)
{
    struct symbol *symbol = NULL;
    int rc = declare(load, file, file->package, source->name, source, &symbol);
    if (rc)
        return rc;
    struct schema_service *service = &load->schema->services[load->schema->service_count++];
    service->full_name = symbol->full_name;
    service->name = symbol->full_name + strlen(symbol->full_name) - strlen(source->name);
    service->package = file->package;
    service->file = file->name;
    symbol->kind = SYMBOL_SERVICE;
    symbol->service = service;
    return 0;
}

static int declare_file(struct load *load, struct schema_file *file)
{
    const Google__Protobuf__FileDescriptorProto *source = file->source;
    int rc = 0;
    for (size_t i = 0; i < source->n_message_type && !rc; i++)
        rc = declare_message(load, file, file->package, source->message_type[i]);
    for (size_t i = 0; i < source->n_enum_type && !rc; i++)
        rc = declare_enum(load, file, file->package, source->enum_type[i]);
    for (size_t i = 0; i < source->n_service && !rc; i++)
        rc = declare_service(load, file, source->service[i]);
    return rc;
}

static int compare_symbols(const void *a, const void *b)
{
    return strcmp(((const struct symbol *)a)->full_name, ((const struct symbol *)b)->full_name);
}

static int declare_all(struct load *load)
{
    struct schema *schema = load->schema;
    struct counts counts = { 0 };
    int rc = count_all(load, &counts);
    if (rc)
        return rc;
    schema->symbols =
        arena_array(&schema->arena, counts.types + counts.services, sizeof *schema->symbols);
    schema->services = arena_array(&schema->arena, counts.services, sizeof *schema->services);
    if (!schema->symbols || !schema->services)
        return load_out_of_memory(load);
    for (size_t i = 0; i < schema->file_count; i++) {
        rc = declare_file(load, schema->files[i]);
        if (rc)
            return rc;
    }
    qsort(schema->symbols, schema->symbol_count, sizeof *schema->symbols, compare_symbols);
    for (size_t i = 1; i < schema->symbol_count; i++) {
        const struct symbol *symbol = &schema->symbols[i];
        if (strcmp(symbol[-1].full_name, symbol->full_name) == 0)
            return load_refuse(load, symbol->file, symbol->full_name, "is declared twice%s%.96s",
                               symbol[-1].file == symbol->file ? "" : ", as in ",
                               symbol[-1].file == symbol->file ? "" : symbol[-1].file->name);
    }
    return 0;
}

static int load_all(struct load *load, const uint8_t *data, size_t size)
{
    int rc = read_files(load, data, size);
    if (!rc)
        rc = sort_files(load);
    if (!rc)
        rc = check_imports(load);
    if (!rc)
        rc = declare_all(load);
    if (!rc)
        rc = load_types(load);
    if (!rc)
        rc = load_rules(load);
    return rc;
}

int schema_new(const uint8_t *data, size_t size, struct schema **ret, struct err *err)
{
    if (size > SCHEMA_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "descriptors: more than %d bytes (SCHEMA_BYTES_MAX)",
                       SCHEMA_BYTES_MAX);
    struct load load = { .schema = mem_calloc(1, sizeof *load.schema), .err = err };
    if (!load.schema)
        return load_out_of_memory(&load);
    load.schema->arena.limit = load.unpacked.limit = SCHEMA_MEMORY_MAX;
    int rc = load_all(&load, data, size);
    arena_done(&load.unpacked);
    if (rc)
        load.schema = schema_free(load.schema);
    else
        *ret = load.schema;
    return rc;
}
