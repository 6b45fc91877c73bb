/* A program of the build, reflection_index SET OUT: reads a FileDescriptorSet and writes the tables
 * of reflection.h as C, so that sagad looks things up and parses nothing. */
#include <google/protobuf/descriptor.pb-c.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Google__Protobuf__FileDescriptorProto file_proto;
typedef Google__Protobuf__DescriptorProto message_proto;
typedef Google__Protobuf__EnumDescriptorProto enum_proto;
typedef Google__Protobuf__FieldDescriptorProto field_proto;

enum { SET_BYTES_MAX = 16 * 1024 * 1024, FILES_MAX = 1000, NAMES_MAX = 50000, NAME_SIZE = 512 };

struct symbol {
    char *name;
    size_t file;
    bool is_message;
};

struct extension {
    const char *type;
    int32_t number;
    size_t file;
};

static Google__Protobuf__FileDescriptorSet *set;
static struct symbol symbols[NAMES_MAX];
static struct extension extensions[NAMES_MAX];
static size_t symbol_count, extension_count;

static void die(const char *why)
{
    (void)fprintf(stderr, "reflection_index: %s\n", why); /* nothing else could be done */
    exit(1);
}

/* --- what is in the files --- */

static void add_symbol(size_t file, bool is_message, const char *scope, const char *name,
                       char ret[NAME_SIZE])
{
    int size = snprintf(ret, NAME_SIZE, "%s%s%s", scope, *scope ? "." : "", name);
    char *copy = size < NAME_SIZE ? strdup(ret) : NULL;
    if (!copy || symbol_count == NAMES_MAX)
        die("too many names, or one that is too long");
    symbols[symbol_count++] = (struct symbol){ copy, file, is_message };
}

static void add_name(size_t file, const char *scope, const char *name)
{
    char ignored[NAME_SIZE];
    add_symbol(file, false, scope, name, ignored);
}

static void add_extensions(size_t file, const char *scope, field_proto *const *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *type = fields[i]->extendee + (*fields[i]->extendee == '.');
        add_name(file, scope, fields[i]->name);
        if (extension_count == NAMES_MAX)
            die("too many extensions");
        extensions[extension_count++] = (struct extension){ type, fields[i]->number, file };
    }
}

static void add_enum(size_t file, const char *scope, const enum_proto *type)
{
    add_name(file, scope, type->name);
    for (size_t i = 0; i < type->n_value; i++) /* they stand beside their type */
        add_name(file, scope, type->value[i]->name);
}

static void add_message(size_t file, const char *scope, const message_proto *type)
{
    char name[NAME_SIZE];
    add_symbol(file, true, scope, type->name, name);
    for (size_t i = 0; i < type->n_field; i++)
        add_name(file, name, type->field[i]->name);
    for (size_t i = 0; i < type->n_oneof_decl; i++)
        add_name(file, name, type->oneof_decl[i]->name);
    for (size_t i = 0; i < type->n_enum_type; i++)
        add_enum(file, name, type->enum_type[i]);
    add_extensions(file, name, type->extension, type->n_extension);
    for (size_t i = 0; i < type->n_nested_type; i++)
        add_message(file, name, type->nested_type[i]);
}

static void add_file(size_t index)
{
    const file_proto *file = set->file[index];
    const char *package = file->package ? file->package : "";
    for (size_t i = 0; i < file->n_message_type; i++)
        add_message(index, package, file->message_type[i]);
    for (size_t i = 0; i < file->n_enum_type; i++)
        add_enum(index, package, file->enum_type[i]);
    add_extensions(index, package, file->extension, file->n_extension);
    for (size_t i = 0; i < file->n_service; i++) {
        char name[NAME_SIZE];
        add_symbol(index, false, package, file->service[i]->name, name);
        for (size_t j = 0; j < file->service[i]->n_method; j++)
            add_name(index, name, file->service[i]->method[j]->name);
    }
}

/* --- what is written --- */

static void out(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (vprintf(fmt, args) < 0)
        die("the tables could not be written");
    va_end(args);
}

static size_t find_file(const char *name)
{
    for (size_t i = 0; i < set->n_file; i++)
        if (strcmp(set->file[i]->name, name) == 0)
            return i;
    die("a file is imported, and not in the set (--include_imports)");
    return 0;
}

/* Itself first; each once. */
static void out_needed(size_t index, bool seen[FILES_MAX], size_t *count)
{
    if (seen[index])
        return;
    seen[index] = true;
    ++*count;
    out("%zu, ", index);
    for (size_t i = 0; i < set->file[index]->n_dependency; i++)
        out_needed(find_file(set->file[index]->dependency[i]), seen, count);
}

/* Returns how many files it needs. */
static size_t out_file(size_t index)
{
    const file_proto *file = set->file[index];
    size_t size = google__protobuf__file_descriptor_proto__get_packed_size(file), needed = 0;
    uint8_t *packed = malloc(size + 1);
    if (!packed)
        die("out of memory");
    (void)google__protobuf__file_descriptor_proto__pack(file, packed); /* fills it */
    out("static const uint8_t bytes_%zu[] = {", index);
    for (size_t i = 0; i < size; i++)
        out("%s%u,", i % 24 ? "" : "\n    ", packed[i]);
    bool seen[FILES_MAX] = { false };
    out("\n};\nstatic const uint16_t needed_%zu[] = { ", index);
    out_needed(index, seen, &needed);
    out("};\n");
    free(packed);
    return needed;
}

static void out_files(void)
{
    size_t needed[FILES_MAX] = { 0 };
    for (size_t i = 0; i < set->n_file; i++)
        needed[i] = out_file(i);
    out("const struct reflection_file reflection_files[] = {\n");
    for (size_t i = 0; i < set->n_file; i++)
        out("    { \"%s\", bytes_%zu, sizeof bytes_%zu, needed_%zu, %zu },\n", set->file[i]->name,
            i, i, i, needed[i]);
    out("};\nconst size_t reflection_file_count = %zu;\n", set->n_file);
}

static int compare_symbols(const void *left, const void *right)
{
    return strcmp(((const struct symbol *)left)->name, ((const struct symbol *)right)->name);
}

static int compare_extensions(const void *left, const void *right)
{
    const struct extension *a = left, *b = right;
    int order = strcmp(a->type, b->type);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

static void out_names(void)
{
    qsort(symbols, symbol_count, sizeof *symbols, compare_symbols);
    qsort(extensions, extension_count, sizeof *extensions, compare_extensions);
    out("const struct reflection_symbol reflection_symbols[] = {\n");
    for (size_t i = 0; i < symbol_count; i++)
        out("    { \"%s\", %zu, %d },\n", symbols[i].name, symbols[i].file, symbols[i].is_message);
    out("};\nconst size_t reflection_symbol_count = %zu;\n", symbol_count);
    out("const struct reflection_extension reflection_extensions[] = {\n");
    for (size_t i = 0; i < extension_count; i++)
        out("    { \"%s\", %" PRId32 ", %zu },\n", extensions[i].type, extensions[i].number,
            extensions[i].file);
    out("};\nconst size_t reflection_extension_count = %zu;\n", extension_count);
    size_t services = 0;
    out("const char *const reflection_services[] = {\n");
    for (size_t i = 0; i < set->n_file; i++)
        for (size_t j = 0; j < set->file[i]->n_service; j++, services++)
            out("    \"%s.%s\",\n", set->file[i]->package, set->file[i]->service[j]->name);
    out("};\nconst size_t reflection_service_count = %zu;\n", services);
}

int main(int argc, char **argv)
{
    FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!in || !freopen(argv[2], "w", stdout))
        die("usage: reflection_index SET OUT");
    uint8_t *data = malloc(SET_BYTES_MAX);
    size_t size = data ? fread(data, 1, SET_BYTES_MAX, in) : 0;
    set = size && size < SET_BYTES_MAX
              ? google__protobuf__file_descriptor_set__unpack(NULL, size, data)
              : NULL;
    if (!set || set->n_file > FILES_MAX)
        die("that is no FileDescriptorSet, or too large a one");
    for (size_t i = 0; i < set->n_file; i++)
        add_file(i);
    out("#include \"rpc/reflection.h\"\n\n");
    out_files();
    out_names();
    if (fflush(stdout))
        die("the tables could not be written");
    google__protobuf__file_descriptor_set__free_unpacked(set, NULL);
    for (size_t i = 0; i < symbol_count; i++)
        free(symbols[i].name);
    free(data);
    (void)fclose(in); /* it was only read */
    return 0;
}
