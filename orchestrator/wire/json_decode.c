#include "wire/json.h"

#include "wire/json_scalars.h"

#include <errno.h>
#include <google/protobuf/duration.pb-c.h>
#include <google/protobuf/timestamp.pb-c.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Where we are, for messages: "steps[2].action". */
struct path {
    char text[96]; /* as long as err.field; a longer path is cut */
    size_t size;
};

static int decode_message(struct path *path, json_t *value, const ProtobufCMessageDescriptor *type,
                          ProtobufCMessage **ret, struct err *err);

static void json_decref_p(json_t **value)
{
    json_decref(*value);
}

static void message_free_p(ProtobufCMessage **message)
{
    if (*message)
        protobuf_c_message_free_unpacked(*message, NULL);
}

/* Appends to the path; returns its former size, to go back to. */
FMT(2, 3) static size_t path_push(struct path *path, const char *fmt, ...)
{
    size_t before = path->size;
    va_list args;
    va_start(args, fmt);
    int added = vsnprintf(path->text + before, sizeof path->text - before, fmt, args);
    va_end(args);
    if (added > 0)
        path->size = strnlen(path->text, sizeof path->text - 1);
    return before;
}

static void path_pop(struct path *path, size_t size)
{
    path->size = size;
    path->text[size] = '\0';
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = { "an object", "a list", "a string", "a number",
                                         "a number",  "true",   "false",    "null" };
    unsigned type = (unsigned)json_typeof(value);
    return type < ARRAY_LEN(names) ? names[type] : "something else";
}

static int wrong_type(const struct path *path, const json_t *value, const char *wanted,
                      struct err *err)
{
    return err_field(err, path->text, "must be %s, not %s", wanted, type_name(value));
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "JSON: out of memory");
}

static int decode_time(struct path *path, json_t *value, const ProtobufCMessageDescriptor *type,
                       ProtobufCMessage **ret, struct err *err)
{
    bool is_timestamp = json_is_well_known(type, "Timestamp");
    const char *wanted =
        is_timestamp ? "a time such as \"2026-03-02T14:05:11Z\"" : "a duration such as \"1.5s\"";
    int64_t seconds = 0;
    int32_t nanos = 0;
    if (!json_is_string(value))
        return wrong_type(path, value, wanted, err);
    const char *text = json_string_value(value);
    if (is_timestamp ? !json_timestamp_read(text, &seconds, &nanos)
                     : !json_duration_read(text, &seconds, &nanos))
        return err_field(err, path->text, "must be %s, not \"%s\"", wanted, text);
    ProtobufCMessage *message = mem_calloc(1, type->sizeof_message);
    if (!message)
        return out_of_memory(err);
    type->message_init(message);
    if (is_timestamp) {
        Google__Protobuf__Timestamp *time = (void *)message;
        time->seconds = seconds;
        time->nanos = nanos;
    } else {
        Google__Protobuf__Duration *duration = (void *)message;
        duration->seconds = seconds;
        duration->nanos = nanos;
    }
    *ret = message;
    return 0;
}

/* A whole number within [min, max], as a JSON number or as decimal text. */
static int decode_signed(const struct path *path, const json_t *value, int64_t min, int64_t max,
                         int64_t *ret, struct err *err)
{
    int64_t number;
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (json_is_string(value)) {
        const char *text = json_string_value(value);
        char *end;
        errno = 0;
        number = strtoll(text, &end, 10);
        if (errno || end == text || *end || text[0] == '+' || text[0] == ' ')
            return err_field(err, path->text, "must be a whole number, not \"%s\"", text);
    } else {
        return wrong_type(path, value, "a whole number", err);
    }
    if (number < min || number > max)
        return err_field(err, path->text, "must be %" PRId64 " to %" PRId64 ", not %" PRId64, min,
                         max, number);
    *ret = number;
    return 0;
}

static int decode_uint64(const struct path *path, const json_t *value, uint64_t *ret,
                         struct err *err)
{
    if (!json_is_string(value)) {
        int64_t number = 0;
        if (decode_signed(path, value, 0, INT64_MAX, &number, err) != 0)
            return err->code;
        *ret = (uint64_t)number;
        return 0;
    }
    const char *text = json_string_value(value);
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] < '0' || text[0] > '9')
        return err_field(err, path->text, "must be a whole number, not \"%s\"", text);
    *ret = number;
    return 0;
}

static int decode_number(const struct path *path, const json_t *value,
                         const ProtobufCFieldDescriptor *field, void *member, struct err *err)
{
    int64_t number = 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        if (decode_signed(path, value, INT32_MIN, INT32_MAX, &number, err) != 0)
            return err->code;
        *(int32_t *)member = (int32_t)number;
        return 0;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        if (decode_signed(path, value, 0, UINT32_MAX, &number, err) != 0)
            return err->code;
        *(uint32_t *)member = (uint32_t)number;
        return 0;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return decode_signed(path, value, INT64_MIN, INT64_MAX, member, err);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return decode_uint64(path, value, member, err);
    default:
        return err_set(err, ERR_UNIMPLEMENTED, "JSON of %s: floating point is not mapped",
                       path->text);
    }
}

/* "A, B or C": what an enum may say. */
static void enum_names(const ProtobufCEnumDescriptor *type, struct buf *out)
{
    for (unsigned i = 0; i < type->n_values; i++)
        buf_printf(out, "%s%s", i == 0 ? "" : ", ", type->values[i].name);
}

static int decode_enum(const struct path *path, const json_t *value,
                       const ProtobufCEnumDescriptor *type, int *ret, struct err *err)
{
    const ProtobufCEnumValue *known = NULL;
    if (json_is_string(value))
        known = protobuf_c_enum_descriptor_get_value_by_name(type, json_string_value(value));
    else if (json_is_integer(value) && json_integer_value(value) >= INT32_MIN &&
             json_integer_value(value) <= INT32_MAX)
        known = protobuf_c_enum_descriptor_get_value(type, (int)json_integer_value(value));
    else if (!json_is_integer(value))
        return wrong_type(path, value, "the name of a value", err);
    if (known) {
        *ret = known->value;
        return 0;
    }
    CLEANUP(buf_done) struct buf names = { .limit = 256 };
    enum_names(type, &names);
    if (json_is_string(value))
        return err_field(err, path->text, "\"%s\" is none of %s", json_string_value(value),
                         buf_cstr(&names));
    return err_field(err, path->text, "%lld is none of %s", (long long)json_integer_value(value),
                     buf_cstr(&names));
}

static int decode_string(const struct path *path, const json_t *value, char **ret, struct err *err)
{
    if (!json_is_string(value))
        return wrong_type(path, value, "a string", err);
    char *text = mem_strdup(json_string_value(value));
    if (!text)
        return out_of_memory(err);
    *ret = text;
    return 0;
}

static int decode_bytes(const struct path *path, const json_t *value, ProtobufCBinaryData *ret,
                        struct err *err)
{
    if (!json_is_string(value))
        return wrong_type(path, value, "base64 text", err);
    struct bytes bytes;
    int rc = json_base64_read(json_string_value(value), json_string_length(value), &bytes);
    if (rc == -2)
        return out_of_memory(err);
    if (rc != 0)
        return err_field(err, path->text, "must be base64 text");
    *ret = (ProtobufCBinaryData){ .len = bytes.size, .data = bytes.data };
    return 0;
}

static int decode_value(struct path *path, json_t *value, const ProtobufCFieldDescriptor *field,
                        void *member, struct err *err)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return decode_message(path, value, field->descriptor, member, err);
    case PROTOBUF_C_TYPE_ENUM:
        return decode_enum(path, value, field->descriptor, member, err);
    case PROTOBUF_C_TYPE_STRING:
        return decode_string(path, value, member, err);
    case PROTOBUF_C_TYPE_BYTES:
        return decode_bytes(path, value, member, err);
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(value))
            return wrong_type(path, value, "true or false", err);
        *(protobuf_c_boolean *)member = json_is_true(value);
        return 0;
    default:
        return decode_number(path, value, field, member, err);
    }
}

static size_t member_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_FLOAT:
        return sizeof(int32_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return sizeof(int64_t);
    }
}

/* Room for `count` elements of a repeated field; none is counted yet. NULL: out of memory. */
static char *repeated_begin(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                            size_t count)
{
    char *elements = mem_calloc(count, member_size(field));
    *(char **)(void *)((char *)message + field->offset) = elements;
    return elements;
}

static size_t *repeated_count(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return (size_t *)(void *)((char *)message + field->quantifier_offset);
}

static int decode_array(struct path *path, json_t *value, const ProtobufCFieldDescriptor *field,
                        ProtobufCMessage *message, struct err *err)
{
    if (!json_is_array(value))
        return wrong_type(path, value, "a list", err);
    size_t size = json_array_size(value);
    if (!size)
        return 0;
    char *elements = repeated_begin(message, field, size);
    size_t *count = repeated_count(message, field);
    if (!elements)
        return out_of_memory(err);
    for (size_t i = 0; i < size; i++) {
        size_t before = path_push(path, "[%zu]", i);
        json_t *element = json_array_get(value, i);
        if (json_is_null(element))
            return wrong_type(path, element, "a value", err);
        if (decode_value(path, element, field, elements + i * member_size(field), err) != 0)
            return err->code;
        ++*count;
        path_pop(path, before);
    }
    return 0;
}

/* An entry {key, value} of a map with text keys. */
static int decode_map_entry(struct path *path, const char *key, json_t *value,
                            const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret,
                            struct err *err)
{
    if (type->fields[0].type != PROTOBUF_C_TYPE_STRING)
        return err_set(err, ERR_UNIMPLEMENTED, "JSON of %s: only text keys are mapped", path->text);
    CLEANUP(message_free_p) ProtobufCMessage *entry = mem_calloc(1, type->sizeof_message);
    if (!entry)
        return out_of_memory(err);
    type->message_init(entry);
    char *copy = mem_strdup(key);
    if (!copy)
        return out_of_memory(err);
    *(char **)(void *)((char *)entry + type->fields[0].offset) = copy;
    void *member = (char *)entry + type->fields[1].offset;
    if (decode_value(path, value, &type->fields[1], member, err) != 0)
        return err->code;
    *ret = TAKE(entry);
    return 0;
}

static int decode_map(struct path *path, json_t *value, const ProtobufCFieldDescriptor *field,
                      ProtobufCMessage *message, struct err *err)
{
    if (!json_is_object(value))
        return wrong_type(path, value, "an object", err);
    if (!json_object_size(value))
        return 0;
    char *elements = repeated_begin(message, field, json_object_size(value));
    size_t *count = repeated_count(message, field);
    if (!elements)
        return out_of_memory(err);
    const char *key;
    json_t *element;
    json_object_foreach(value, key, element)
    {
        size_t before = path_push(path, "[\"%s\"]", key);
        ProtobufCMessage *entry = NULL;
        if (decode_map_entry(path, key, element, field->descriptor, &entry, err) != 0)
            return err->code;
        ((ProtobufCMessage **)(void *)elements)[(*count)++] = entry;
        path_pop(path, before);
    }
    return 0;
}

static const ProtobufCFieldDescriptor *field_find(const ProtobufCMessageDescriptor *type,
                                                  const char *key)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        char name[JSON_NAME_SIZE];
        if (strcmp(type->fields[i].name, key) == 0 ||
            (json_field_name(type->fields[i].name, name) && strcmp(name, key) == 0))
            return &type->fields[i];
    }
    return NULL;
}

static int decode_alternative(struct path *path, json_t *value,
                              const ProtobufCFieldDescriptor *field, ProtobufCMessage *message,
                              struct err *err)
{
    uint32_t *which = (uint32_t *)(void *)((char *)message + field->quantifier_offset);
    if (*which != 0 && *which != field->id)
        return err_field(err, path->text, "only one of its alternatives may be set");
    /* The alternatives share their place: it holds nothing yet, and the case is set only once it
     * holds something that can be freed. */
    if (decode_value(path, value, field, (char *)message + field->offset, err) != 0)
        return err->code;
    *which = field->id;
    return 0;
}

static int decode_field(struct path *path, json_t *value, const ProtobufCMessageDescriptor *type,
                        const ProtobufCFieldDescriptor *field, ProtobufCMessage *message,
                        struct err *err)
{
    if (json_is_null(value))
        return 0;
    if (json_field_is_map(type, field))
        return decode_map(path, value, field, message, err);
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return decode_array(path, value, field, message, err);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return decode_alternative(path, value, field, message, err);
    return decode_value(path, value, field, (char *)message + field->offset, err);
}

/* The two spellings of one name are one field: the second is a double. */
static int check_spelled_once(const struct path *path, json_t *object, const char *key,
                              const ProtobufCFieldDescriptor *field, struct err *err)
{
    if (strcmp(key, field->name) != 0 && json_object_get(object, field->name))
        return err_field(err, path->text, "is there twice, as %s too", field->name);
    return 0;
}

static int decode_message(struct path *path, json_t *value, const ProtobufCMessageDescriptor *type,
                          ProtobufCMessage **ret, struct err *err)
{
    if (json_is_well_known(type, "Timestamp") || json_is_well_known(type, "Duration"))
        return decode_time(path, value, type, ret, err);
    if (json_is_well_known(type, "Any"))
        return err_set(err, ERR_UNIMPLEMENTED, "JSON of google.protobuf.Any is not mapped");
    if (!json_is_object(value))
        return wrong_type(path, value, "an object", err);
    CLEANUP(message_free_p) ProtobufCMessage *message = mem_calloc(1, type->sizeof_message);
    if (!message)
        return out_of_memory(err);
    type->message_init(message);
    const char *key;
    json_t *member;
    json_object_foreach(value, key, member)
    {
        size_t before = path_push(path, "%s%s", path->size ? "." : "", key);
        const ProtobufCFieldDescriptor *field = field_find(type, key);
        if (!field)
            return err_field(err, path->text, "%s has no field of this name", type->name);
        if (check_spelled_once(path, value, key, field, err) != 0 ||
            decode_field(path, member, type, field, message, err) != 0)
            return err->code;
        path_pop(path, before);
    }
    *ret = TAKE(message);
    return 0;
}

int wire_json_decode(const char *text, size_t size, const ProtobufCMessageDescriptor *type,
                     ProtobufCMessage **ret, struct err *err)
{
    json_error_t where;
    CLEANUP(json_decref_p)
    json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!value)
        return err_set(err, ERR_INVALID, "line %d, column %d: %s", where.line, where.column,
                       where.text);
    struct path path = { .size = 0 };
    if (decode_message(&path, value, type, ret, err) != 0) {
        if (err->field[0])
            err_wrap(err, "%s", err->field);
        return err->code;
    }
    return 0;
}
