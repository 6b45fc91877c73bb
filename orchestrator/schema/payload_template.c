#include "base/utf8.h"
#include "schema/payload.h"
#include "schema/record.h"
#include "schema/template.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The fields of a path, from the message itself down to a scalar. */
struct route {
    const struct schema_message *types[PAYLOAD_DEPTH_MAX];
    const struct schema_field *fields[PAYLOAD_DEPTH_MAX];
    size_t count;
    char path[96]; /* as long as err.field; a longer one is cut */
};

static bool has_one_spelling(enum schema_kind kind)
{
    return kind != KIND_DOUBLE && kind != KIND_FLOAT && kind != KIND_BYTES &&
           kind != KIND_MESSAGE && kind != KIND_GROUP;
}

/* Adds the field of that name to the route. */
static int add_field(struct route *route, const struct schema_message *type, const char *name,
                     size_t size, struct err *err)
{
    char text[SCHEMA_FIELD_NAME_BYTES + 1] = "";
    if (size < sizeof text)
        memcpy(text, name, size);
    const struct schema_field *field = schema_field_by_name(type, text);
    if (!field)
        return err_field(err, route->path, "{%s}: %s has no field \"%.*s\"", route->path,
                         type->full_name, (int)utf8_cut(name, size, 64), name);
    if (field->repeated)
        return err_field(err, route->path, "{%s}: %s is repeated", route->path, field->name);
    if (route->count == PAYLOAD_DEPTH_MAX)
        return err_field(err, route->path, "{%s}: messages nested deeper than %d", route->path,
                         PAYLOAD_DEPTH_MAX);
    route->types[route->count] = type;
    route->fields[route->count++] = field;
    return 0;
}

static int find_route(const struct schema_message *type, const char *name, size_t size,
                      struct route *route, struct err *err)
{
    const char *end = name + size;
    route->count = 0;
    (void)snprintf(route->path, sizeof route->path, "%.*s",
                   (int)utf8_cut(name, size, sizeof route->path - 1), name);
    for (;;) {
        const char *dot = memchr(name, '.', (size_t)(end - name));
        int rc = add_field(route, type, name, (size_t)((dot ? dot : end) - name), err);
        if (rc)
            return rc;
        const struct schema_field *field = route->fields[route->count - 1];
        if (!dot && has_one_spelling(field->kind))
            return 0;
        if (!dot)
            return err_field(err, route->path,
                             "{%s}: %s is a message, bytes or floating point, which have no single "
                             "spelling",
                             route->path, field->name);
        if (field->kind != KIND_MESSAGE)
            return err_field(err, route->path, "{%s}: %s is no message", route->path, field->name);
        type = field->message;
        name = dot + 1;
    }
}

int payload_field_find(const struct schema_message *type, const char *path,
                       const struct schema_field **ret, struct err *err)
{
    struct route route;
    int rc = find_route(type, path, strlen(path), &route, err);
    if (!rc)
        *ret = route.fields[route.count - 1];
    return rc;
}

int payload_template_check(const struct schema_message *type, const char *text, struct err *err)
{
    int rc = 0;
    while (*text && !rc) {
        struct template_part part;
        struct route route;
        rc = template_next(&text, &part, err);
        if (!rc && part.is_path)
            rc = find_route(type, part.text, part.size, &route, err);
    }
    return rc;
}

/* Looks for the end of the route, from its step `at` on; pieces of a sub-message are merged, and a
 * member of a oneof ends the others. The bytes are well formed. As deep as the route. */
static void find_value(const struct route *route, size_t at, const uint8_t *data, size_t size,
                       struct record *value, bool *is_set)
{
    const struct schema_field *field = route->fields[at];
    struct records records = { data, size, 0 };
    struct record record;
    while (records_left(&records) && !record_next(&records, &record)) {
        const struct schema_field *found = schema_field_by_number(route->types[at], record.number);
        if (!found || !record_is_known(found, &record))
            continue;
        if (found != field) {
            *is_set = *is_set && (field->oneof < 0 || found->oneof != field->oneof);
        } else if (at + 1 < route->count) {
            find_value(route, at + 1, record.data, record.size, value, is_set);
        } else {
            *value = record;
            *is_set = true;
        }
    }
}

static void put_default(struct buf *out, const struct schema_field *field)
{
    if (field->default_value)
        buf_text(out, field->default_value);
    else if (field->kind == KIND_ENUM)
        buf_text(out, field->enumeration->values[0].name);
    else if (field->kind != KIND_STRING)
        buf_text(out, field->kind == KIND_BOOL ? "false" : "0");
}

static void put_value(struct buf *out, const struct schema_field *field,
                      const struct record *record)
{
    int64_t number = record_integer(field->kind, record->raw);
    const struct schema_value *value =
        field->kind == KIND_ENUM ? schema_value_by_number(field->enumeration, (int32_t)number)
                                 : NULL;
    if (field->kind == KIND_STRING)
        buf_append(out, record->data, record->size);
    else if (field->kind == KIND_BOOL)
        buf_text(out, number ? "true" : "false");
    else if (value)
        buf_text(out, value->name);
    else if (record_is_unsigned(field->kind))
        buf_printf(out, "%" PRIu64, (uint64_t)number);
    else
        buf_printf(out, "%" PRId64, number);
}

/* Appends the field's text; the bytes are well formed. */
static void put_field(struct buf *out, const struct route *route, const uint8_t *data, size_t size)
{
    const struct schema_field *field = route->fields[route->count - 1];
    struct record value = { 0 };
    bool is_set = false;
    find_value(route, 0, data, size, &value, &is_set);
    if (is_set)
        put_value(out, field, &value);
    else
        put_default(out, field);
}

int payload_field_write(const struct schema_message *type, const char *path, const uint8_t *data,
                        size_t size, struct buf *out, struct err *err)
{
    struct route route;
    int rc = find_route(type, path, strlen(path), &route, err);
    if (!rc)
        rc = payload_check(type, data, size, err);
    if (!rc)
        put_field(out, &route, data, size);
    return rc;
}

static int fill_part(const struct schema_message *type, const struct template_part *part,
                     const uint8_t *data, size_t size, struct buf *out, struct err *err)
{
    struct route route;
    size_t before = out->size;
    if (!part->is_path) {
        buf_append(out, part->text, part->size);
        return 0;
    }
    int rc = find_route(type, part->text, part->size, &route, err);
    if (rc)
        return rc;
    put_field(out, &route, data, size);
    if (out->size == before && !out->failed)
        return err_field(err, route.path, "{%s}: is empty", route.path);
    return 0;
}

static int fill_parts(const struct schema_message *type, const char *text, const uint8_t *data,
                      size_t size, size_t max, struct buf *out, struct err *err)
{
    size_t before = out->size;
    int rc = payload_check(type, data, size, err);
    while (*text && !rc) {
        struct template_part part;
        rc = template_next(&text, &part, err);
        if (!rc)
            rc = fill_part(type, &part, data, size, out, err);
        if (!rc && out->failed)
            rc = err_set(err, ERR_NOMEM, "template: out of memory");
        if (!rc && out->size - before > max)
            rc = err_set(err, ERR_INVALID, "longer than %zu bytes", max);
    }
    return rc;
}

int payload_template_fill(const struct schema_message *type, const char *text, const uint8_t *data,
                          size_t size, size_t max, struct buf *out, struct err *err)
{
    size_t before = out->size;
    int rc = fill_parts(type, text, data, size, max, out, err);
    if (rc)
        record_cut(out, before);
    return rc;
}
