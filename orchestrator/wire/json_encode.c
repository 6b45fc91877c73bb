#include "wire/json.h"

#include "wire/json_scalars.h"

#include <google/protobuf/duration.pb-c.h>
#include <google/protobuf/timestamp.pb-c.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void json_decref_p(json_t **value)
{
    json_decref(*value);
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "JSON: out of memory");
}

static int time_from_message(const ProtobufCMessage *message, json_t **ret, struct err *err)
{
    char text[JSON_TIME_SIZE];
    bool ok;
    if (json_is_well_known(message->descriptor, "Timestamp")) {
        const Google__Protobuf__Timestamp *time = (const void *)message;
        ok = json_timestamp_write(time->seconds, time->nanos, text);
    } else {
        const Google__Protobuf__Duration *duration = (const void *)message;
        ok = json_duration_write(duration->seconds, duration->nanos, text);
    }
    if (!ok)
        return err_set(err, ERR_INVALID, "%s out of range", message->descriptor->name);
    json_t *value = json_string(text);
    if (!value)
        return out_of_memory(err);
    *ret = value;
    return 0;
}

static json_t *decimal(const char *text)
{
    return json_string(text);
}

static int number_from_field(const ProtobufCFieldDescriptor *field, const void *member,
                             json_t **ret, struct err *err)
{
    char text[32];
    json_t *value;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        value = json_integer(*(const int32_t *)member);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        value = json_integer(*(const uint32_t *)member);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        (void)snprintf(text, sizeof text, "%" PRId64, *(const int64_t *)member);
        value = decimal(text);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        (void)snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)member);
        value = decimal(text);
        break;
    default:
        return err_set(err, ERR_UNIMPLEMENTED, "JSON of %s: floating point is not mapped",
                       field->name);
    }
    if (!value)
        return out_of_memory(err);
    *ret = value;
    return 0;
}

static int bytes_from_field(const ProtobufCBinaryData *data, json_t **ret, struct err *err)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    json_base64_write(&text, data->data, data->len);
    json_t *value = text.failed ? NULL : json_stringn(buf_cstr(&text), text.size);
    if (!value)
        return out_of_memory(err);
    *ret = value;
    return 0;
}

static int enum_from_field(const ProtobufCFieldDescriptor *field, int number, json_t **ret,
                           struct err *err)
{
    const ProtobufCEnumValue *known =
        protobuf_c_enum_descriptor_get_value(field->descriptor, number);
    json_t *value = known ? json_string(known->name) : json_integer(number);
    if (!value)
        return out_of_memory(err);
    *ret = value;
    return 0;
}

/* One value, wherever it stands: a field, an element, a map's value. */
static int value_from_member(const ProtobufCFieldDescriptor *field, const void *member,
                             json_t **ret, struct err *err)
{
    json_t *value;
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *message = *(ProtobufCMessage *const *)member;
        if (message)
            return wire_json_from_message(message, ret, err);
        *ret = json_object(); /* a map's value that is not there */
        return *ret ? 0 : out_of_memory(err);
    }
    case PROTOBUF_C_TYPE_ENUM:
        return enum_from_field(field, *(const int *)member, ret, err);
    case PROTOBUF_C_TYPE_BYTES:
        return bytes_from_field(member, ret, err);
    case PROTOBUF_C_TYPE_BOOL:
        *ret = json_boolean(*(const protobuf_c_boolean *)member);
        return 0;
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(char *const *)member;
        value = json_string(text ? text : "");
        if (!value) /* jansson does not tell the two apart */
            return err_set(err, ERR_INVALID, "JSON of %s: not UTF-8, or out of memory",
                           field->name);
        *ret = value;
        return 0;
    }
    default:
        return number_from_field(field, member, ret, err);
    }
}

static size_t member_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return sizeof(int64_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return sizeof(int32_t);
    }
}

static const void *member_of(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return (const char *)message + field->offset;
}

static int array_from_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                            json_t **ret, struct err *err)
{
    size_t count =
        *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
    const char *elements = *(char *const *)member_of(message, field);
    CLEANUP(json_decref_p) json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        json_t *element = NULL;
        if (value_from_member(field, elements + i * member_size(field), &element, err) != 0)
            return err->code;
        if (json_array_append_new(array, element) != 0)
            return out_of_memory(err);
    }
    if (!array)
        return out_of_memory(err);
    *ret = TAKE(array);
    return 0;
}

static int map_key(const ProtobufCMessage *entry, char text[32], const char **ret, struct err *err)
{
    const ProtobufCFieldDescriptor *field = &entry->descriptor->fields[0];
    const void *member = member_of(entry, field);
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        const char *key = *(char *const *)member;
        *ret = key ? key : "";
        return 0;
    }
    if (field->type == PROTOBUF_C_TYPE_BOOL) {
        *ret = *(const protobuf_c_boolean *)member ? "true" : "false";
        return 0;
    }
    CLEANUP(json_decref_p) json_t *number = NULL;
    if (number_from_field(field, member, &number, err) != 0)
        return err->code;
    if (json_is_string(number))
        (void)snprintf(text, 32, "%s", json_string_value(number));
    else
        (void)snprintf(text, 32, "%lld", (long long)json_integer_value(number));
    *ret = text;
    return 0;
}

static int object_from_map(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                           json_t **ret, struct err *err)
{
    size_t count =
        *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
    ProtobufCMessage *const *entries = *(ProtobufCMessage *const *const *)member_of(message, field);
    CLEANUP(json_decref_p) json_t *object = json_object();
    if (!object)
        return out_of_memory(err);
    for (size_t i = 0; i < count; i++) {
        const ProtobufCFieldDescriptor *value_field = &entries[i]->descriptor->fields[1];
        char text[32];
        const char *key = NULL;
        json_t *value = NULL;
        if (map_key(entries[i], text, &key, err) != 0 ||
            value_from_member(value_field, member_of(entries[i], value_field), &value, err) != 0)
            return err->code;
        if (json_object_set_new(object, key, value) != 0)
            return out_of_memory(err);
    }
    *ret = TAKE(object);
    return 0;
}

/* Has the field a value to print? */
static bool field_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        const char *quantifier = (const char *)message + field->quantifier_offset;
        return *(const uint32_t *)(const void *)quantifier == field->id;
    }
    if (field->label != PROTOBUF_C_LABEL_REPEATED && field->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(ProtobufCMessage *const *)member_of(message, field) != NULL;
    return true;
}

int wire_json_from_message(const ProtobufCMessage *message, json_t **ret, struct err *err)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    if (json_is_well_known(type, "Timestamp") || json_is_well_known(type, "Duration"))
        return time_from_message(message, ret, err);
    if (json_is_well_known(type, "Any"))
        return err_set(err, ERR_UNIMPLEMENTED, "JSON of google.protobuf.Any is not mapped");
    CLEANUP(json_decref_p) json_t *object = json_object();
    if (!object)
        return out_of_memory(err);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (!field_is_set(message, field))
            continue;
        char name[JSON_NAME_SIZE];
        json_t *value = NULL;
        if (!json_field_name(field->name, name))
            return err_set(err, ERR_INTERNAL, "JSON: the field name %s is too long", field->name);
        int rc = json_field_is_map(type, field) ? object_from_map(message, field, &value, err)
                 : field->label == PROTOBUF_C_LABEL_REPEATED
                     ? array_from_field(message, field, &value, err)
                     : value_from_member(field, member_of(message, field), &value, err);
        if (rc != 0)
            return rc;
        if (json_object_set_new(object, name, value) != 0)
            return out_of_memory(err);
    }
    *ret = TAKE(object);
    return 0;
}

int wire_json_encode(const ProtobufCMessage *message, char **ret, struct err *err)
{
    CLEANUP(json_decref_p) json_t *value = NULL;
    if (wire_json_from_message(message, &value, err) != 0)
        return err->code;
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY);
    if (!text)
        return out_of_memory(err);
    *ret = text;
    return 0;
}
