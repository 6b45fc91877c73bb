/* A small set out of a large one, written from what a load has understood, so that two sets that
 * say the same give the same bytes. The numbers are those of descriptor.proto. */
#include "schema/record.h"
#include "schema/schema_internal.h"

#include <stdio.h>
#include <string.h>

enum { LABEL_OPTIONAL = 1, LABEL_REQUIRED, LABEL_REPEATED };

static void put_text(struct buf *out, uint32_t number, const char *text)
{
    record_put_bytes(out, number, text, strlen(text));
}

static void put_number(struct buf *out, uint32_t number, uint64_t value)
{
    record_put_tag(out, number, RECORD_VARINT);
    record_put_varint(out, value);
}

static const char *symbol_name(const struct symbol *symbol)
{
    const char *dot = strrchr(symbol->full_name, '.');
    return dot ? dot + 1 : symbol->full_name;
}

/* An options message with one boolean. */
static void put_option(struct buf *out, uint32_t options, uint32_t number, bool value)
{
    size_t begin = record_begin(out, options);
    put_number(out, number, value);
    record_end(out, begin);
}

/* ---- what is needed ---- */

struct prune {
    struct schema *schema;
    struct symbol **open; /* defined, but not yet looked into */
    size_t open_count;
    struct buf out;
};

static void define(struct prune *prune, struct symbol *symbol)
{
    if (symbol->defined)
        return;
    symbol->defined = true;
    if (symbol->kind == SYMBOL_MESSAGE)
        prune->open[prune->open_count++] = symbol;
}

/* A nested type stands in a message that may be empty, unless protobuf says what is in it. */
static void need(struct prune *prune, const char *full_name)
{
    static const char whole[] = "google.protobuf.";
    char around[SCHEMA_NAME_BYTES + 1];
    struct symbol *symbol = symbol_find(prune->schema, full_name);
    define(prune, symbol);
    (void)snprintf(around, sizeof around, "%s", full_name);
    while (symbol && !symbol->declared) {
        symbol->declared = true;
        if (strncmp(around, whole, sizeof whole - 1) == 0)
            define(prune, symbol);
        char *dot = strrchr(around, '.');
        if (!dot)
            return;
        *dot = '\0';
        symbol = symbol_find(prune->schema, around);
    }
}

static void need_all_of_open(struct prune *prune)
{
    while (prune->open_count) {
        const struct schema_message *message = prune->open[--prune->open_count]->message;
        for (size_t i = 0; i < message->field_count; i++) {
            if (message->fields[i].message)
                need(prune, message->fields[i].message->full_name);
            if (message->fields[i].enumeration)
                need(prune, message->fields[i].enumeration->full_name);
        }
    }
}

/* ---- types ---- */

/* `optional` of proto3 has a oneof of its own in a descriptor. */
static bool is_proto3_optional(const struct symbol *symbol, const struct schema_field *field)
{
    return symbol->file->proto3 && field->presence && field->oneof < 0 && !field->message;
}

static void put_field(struct buf *out, const struct symbol *symbol,
                      const struct schema_field *field, int oneof)
{
    size_t begin = record_begin(out, 2);
    put_text(out, 1, field->name);
    put_number(out, 3, field->number);
    put_number(out, 4,
               field->repeated   ? LABEL_REPEATED
               : field->required ? LABEL_REQUIRED
                                 : LABEL_OPTIONAL);
    put_number(out, 5, field->kind);
    if (field->message || field->enumeration) {
        size_t name = record_begin(out, 6);
        buf_text(out, ".");
        buf_text(out, field->message ? field->message->full_name : field->enumeration->full_name);
        record_end(out, name);
    }
    if (field->default_value)
        put_text(out, 7, field->default_value);
    if (field->repeated && record_is_packable(field->kind) && field->packed != symbol->file->proto3)
        put_option(out, 8, 2, field->packed);
    if (oneof >= 0)
        put_number(out, 9, (uint64_t)oneof);
    put_text(out, 10, field->json_name);
    if (is_proto3_optional(symbol, field))
        put_number(out, 17, 1);
    record_end(out, begin);
}

static void put_oneof(struct buf *out, const char *before, const char *name)
{
    size_t begin = record_begin(out, 8), text = record_begin(out, 1);
    buf_text(out, before);
    buf_text(out, name);
    record_end(out, text);
    record_end(out, begin);
}

/* Oneofs stand in the order of their lowest numbers, those of `optional` behind them, as protoc has
 * it. */
static int put_fields(struct prune *prune, const struct symbol *symbol, struct err *err)
{
    const struct schema_message *message = symbol->message;
    CLEANUP(mem_free_p) int *order = mem_calloc(message->oneof_count + 1, sizeof *order);
    if (!order)
        return err_set(err, ERR_NOMEM, "descriptors: out of memory");
    int real = 0, optional = (int)message->oneof_count;
    for (size_t i = 0; i < message->field_count; i++) {
        const struct schema_field *field = &message->fields[i];
        int oneof = is_proto3_optional(symbol, field) ? optional++ : -1;
        if (field->oneof >= 0) {
            if (!order[field->oneof]) {
                order[field->oneof] = ++real;
                put_oneof(&prune->out, "", message->oneof_names[field->oneof]);
            }
            oneof = order[field->oneof] - 1;
        }
        put_field(&prune->out, symbol, field, oneof);
    }
    for (size_t i = 0; i < message->field_count; i++)
        if (is_proto3_optional(symbol, &message->fields[i]))
            put_oneof(&prune->out, "_", message->fields[i].name);
    return 0;
}

static void put_enum(struct buf *out, uint32_t number, const struct symbol *symbol)
{
    const struct schema_enum *enumeration = symbol->enumeration;
    bool alias = false;
    size_t begin = record_begin(out, number);
    put_text(out, 1, symbol_name(symbol));
    for (size_t i = 0; i < enumeration->value_count; i++) {
        const struct schema_value *value = &enumeration->values[i];
        size_t at = record_begin(out, 2);
        put_text(out, 1, value->name);
        put_number(out, 2, (uint64_t)(int64_t)value->number);
        record_end(out, at);
        alias = alias || schema_value_by_number(enumeration, value->number) != value;
    }
    if (alias)
        put_option(out, 3, 2, true);
    record_end(out, begin);
}

static bool is_within(const struct symbol *symbol, const struct symbol *parent)
{
    size_t size = strlen(parent->full_name);
    return strncmp(symbol->full_name, parent->full_name, size) == 0 &&
           symbol->full_name[size] == '.';
}

/* The type at `at` and those declared in it, which come behind it ('.' sorts before what names are
 * made of). *ret: what comes next. As deep as types are nested. */
static int put_type(struct prune *prune, size_t at, bool nested, size_t *ret, struct err *err)
{
    const struct schema *schema = prune->schema;
    const struct symbol *symbol = &schema->symbols[at++];
    int rc = 0;
    if (symbol->declared && symbol->kind == SYMBOL_ENUM) {
        put_enum(&prune->out, nested ? 4 : 5, symbol);
    } else if (symbol->declared && symbol->kind == SYMBOL_MESSAGE) {
        size_t begin = record_begin(&prune->out, nested ? 3 : 4);
        put_text(&prune->out, 1, symbol_name(symbol));
        if (symbol->defined)
            rc = put_fields(prune, symbol, err);
        while (!rc && at < schema->symbol_count && is_within(&schema->symbols[at], symbol))
            rc = put_type(prune, at, true, &at, err);
        if (symbol->defined && symbol->message->map_entry)
            put_option(&prune->out, 7, 7, true);
        record_end(&prune->out, begin);
    }
    *ret = at;
    return rc;
}

/* ---- files ---- */

/* A file is called as the first type that is left of it: how somebody names his files, and from
 * which folder he compiles them, says nothing of a payload. */
static void name_files(const struct prune *prune)
{
    for (size_t i = prune->schema->symbol_count; i-- > 0;)
        if (prune->schema->symbols[i].declared)
            prune->schema->symbols[i].file->first_type = prune->schema->symbols[i].full_name;
}

/* Marks the files that `file` needs: those of the types of its fields. */
static void mark_imports(const struct prune *prune, const struct schema_file *file)
{
    const struct schema *schema = prune->schema;
    for (size_t i = 0; i < schema->file_count; i++)
        schema->files[i]->used = false;
    for (size_t i = 0; i < schema->symbol_count; i++) {
        const struct symbol *symbol = &schema->symbols[i];
        if (symbol->file != file || !symbol->defined || symbol->kind != SYMBOL_MESSAGE)
            continue;
        for (size_t j = 0; j < symbol->message->field_count; j++) {
            const struct schema_field *field = &symbol->message->fields[j];
            if (field->message || field->enumeration)
                symbol_find(schema, field->message ? field->message->full_name
                                                   : field->enumeration->full_name)
                    ->file->used = true;
        }
    }
}

static bool is_first_of_file(const struct symbol *symbol)
{
    return symbol->declared && symbol->file->first_type == symbol->full_name;
}

static int put_file(struct prune *prune, const struct schema_file *file, struct err *err)
{
    const struct schema *schema = prune->schema;
    mark_imports(prune, file);
    size_t begin = record_begin(&prune->out, 1);
    put_text(&prune->out, 1, file->first_type);
    if (*file->package)
        put_text(&prune->out, 2, file->package);
    for (size_t i = 0; i < schema->symbol_count; i++)
        if (is_first_of_file(&schema->symbols[i]) && schema->symbols[i].file->used &&
            schema->symbols[i].file != file)
            put_text(&prune->out, 3, schema->symbols[i].full_name);
    int rc = 0;
    for (size_t i = 0; i < schema->symbol_count && !rc;) {
        if (schema->symbols[i].file == file)
            rc = put_type(prune, i, false, &i, err);
        else
            i++;
    }
    if (file->proto3)
        put_text(&prune->out, 12, "proto3");
    record_end(&prune->out, begin);
    return rc;
}

static int prune_all(struct prune *prune, const char *const *full_names, size_t count,
                     struct err *err)
{
    const struct schema *schema = prune->schema;
    for (size_t i = 0; i < count; i++) {
        if (!schema_message_find(schema, full_names[i]))
            return err_set(err, ERR_NOT_FOUND, "descriptors: no message %s in the set",
                           full_names[i]);
        need(prune, full_names[i]);
    }
    need_all_of_open(prune);
    name_files(prune);
    int rc = 0;
    for (size_t i = 0; i < schema->symbol_count && !rc; i++)
        if (is_first_of_file(&schema->symbols[i]))
            rc = put_file(prune, schema->symbols[i].file, err);
    if (!rc && prune->out.failed)
        rc = err_set(err, ERR_NOMEM, "descriptors: out of memory");
    if (!rc && prune->out.size > SCHEMA_BYTES_MAX) /* it must load again */
        rc = err_set(err, ERR_LIMIT, "descriptors: more than %d bytes (SCHEMA_BYTES_MAX)",
                     SCHEMA_BYTES_MAX);
    return rc;
}

int schema_prune(const uint8_t *data, size_t size, const char *const *full_names, size_t count,
                 struct bytes *ret, struct err *err)
{
    CLEANUP(schema_free_p) struct schema *schema = NULL;
    int rc = schema_new(data, size, &schema, err);
    if (rc)
        return rc;
    struct prune prune = { .schema = schema };
    prune.open = arena_array(&schema->arena, schema->symbol_count, sizeof(struct symbol *));
    if (!prune.open)
        return err_set(err, ERR_NOMEM, "descriptors: out of memory");
    rc = prune_all(&prune, full_names, count, err);
    if (!rc)
        *ret = (struct bytes){ TAKE(prune.out.data), prune.out.size };
    buf_done(&prune.out);
    return rc;
}
