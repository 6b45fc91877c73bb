#include "wire/validate.h"

#include "wire/arena.h"
#include "wire/scan.h"
#include "wire/times.h"

#include <stdio.h>
#include <string.h>

/* Where we are, innermost first. */
struct place {
    const struct place *parent;
    const char *field;
    size_t index;
    bool repeated;
};

static void append_path(const struct place *place, char *path, size_t size)
{
    if (!place)
        return;
    append_path(place->parent, path, size);
    size_t used = strlen(path);
    const char *dot = used ? "." : "";
    if (place->repeated)
        (void)snprintf(path + used, size - used, "%s%s[%zu]", dot, place->field, place->index);
    else
        (void)snprintf(path + used, size - used, "%s%s", dot, place->field);
}

static int refuse(const struct place *place, struct err *err, const char *what)
{
    char path[sizeof err->field] = "";
    append_path(place, path, sizeof path);
    return err_field(err, path, "%s: %s", path, what);
}

bool wire_is_map_entry(const ProtobufCMessageDescriptor *type)
{
    size_t length = strlen(type->short_name);
    return length > 5 && strcmp(type->short_name + length - 5, "Entry") == 0 &&
           type->n_fields == 2 && type->fields[0].id == 1 && type->fields[1].id == 2 &&
           strcmp(type->fields[0].name, "key") == 0 && strcmp(type->fields[1].name, "value") == 0;
}

static const void *member(const ProtobufCMessage *message, unsigned offset)
{
    return (const char *)message + offset;
}

static bool field_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        return true;
    const uint32_t *chosen = member(message, field->quantifier_offset);
    return *chosen == field->id;
}

static int check_message(const ProtobufCMessage *message, const struct place *place,
                         struct err *err);

static int check_enum(const ProtobufCFieldDescriptor *field, int value, const struct place *place,
                      struct err *err)
{
    if (protobuf_c_enum_descriptor_get_value(field->descriptor, value))
        return 0;
    char text[64];
    (void)snprintf(text, sizeof text, "%d is not a known value", value);
    return refuse(place, err, text);
}

/* Maps are small (four labels), so every pair is compared. */
static int check_map_keys(const ProtobufCFieldDescriptor *field, ProtobufCMessage *const *entries,
                          size_t count, const struct place *place, struct err *err)
{
    const ProtobufCMessageDescriptor *type = field->descriptor;
    if (!wire_is_map_entry(type) || type->fields[0].type != PROTOBUF_C_TYPE_STRING)
        return 0;
    if (count > 256)
        return refuse(place, err, "more than 256 entries in a map");
    for (size_t i = 0; i < count; i++) {
        const char *const *key = member(entries[i], type->fields[0].offset);
        for (size_t j = 0; j < i; j++) {
            const char *const *other = member(entries[j], type->fields[0].offset);
            if (strcmp(*key, *other) == 0)
                return refuse(place, err, "the same key twice");
        }
    }
    return 0;
}

static int check_repeated(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                          struct place *place, struct err *err)
{
    size_t count = *(const size_t *)member(message, field->quantifier_offset);
    const void *array = *(const void *const *)member(message, field->offset);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        int rc = check_map_keys(field, array, count, place, err);
        if (rc)
            return rc;
    }
    place->repeated = true;
    for (size_t i = 0; i < count; i++) {
        place->index = i;
        int rc = 0;
        if (field->type == PROTOBUF_C_TYPE_ENUM)
            rc = check_enum(field, ((const int *)array)[i], place, err);
        else if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            rc = check_message(((ProtobufCMessage *const *)array)[i], place, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       const struct place *parent, struct err *err)
{
    if (field->type != PROTOBUF_C_TYPE_ENUM && field->type != PROTOBUF_C_TYPE_MESSAGE)
        return 0;
    struct place place = { .parent = parent, .field = field->name };
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return check_repeated(message, field, &place, err);
    if (!field_is_set(message, field))
        return 0;
    if (field->type == PROTOBUF_C_TYPE_ENUM)
        return check_enum(field, *(const int *)member(message, field->offset), &place, err);
    const ProtobufCMessage *child = *(ProtobufCMessage *const *)member(message, field->offset);
    return child ? check_message(child, &place, err) : 0;
}

static int check_message(const ProtobufCMessage *message, const struct place *place,
                         struct err *err)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    if (type == &google__protobuf__duration__descriptor) {
        const void *duration = message;
        return duration_is_valid(duration) ? 0 : refuse(place, err, "is not a valid duration");
    }
    if (type == &google__protobuf__timestamp__descriptor) {
        const void *timestamp = message;
        return timestamp_is_valid(timestamp) ? 0 : refuse(place, err, "is not a valid timestamp");
    }
    for (unsigned i = 0; i < type->n_fields; i++) {
        int rc = check_field(message, &type->fields[i], place, err);
        if (rc)
            return rc;
    }
    return 0;
}

int wire_validate(const ProtobufCMessage *message, struct err *err)
{
    return check_message(message, NULL, err);
}

int wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                struct arena *arena, ProtobufCMessage **ret, struct err *err)
{
    int rc = wire_scan(type, data, size, err);
    if (rc)
        return rc;
    ProtobufCAllocator allocator = arena_allocator(arena);
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, size, data);
    if (!message && arena->oom)
        return err_set(err, ERR_LIMIT, "the message needs more memory than one request may have");
    if (!message)
        return err_set(err, ERR_INVALID, "malformed message: not a %s", type->name);
    rc = wire_validate(message, err);
    if (!rc)
        *ret = message;
    return rc;
}
