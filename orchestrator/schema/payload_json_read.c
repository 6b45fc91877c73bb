/* Text to bytes: fields in the order of their numbers, entries of maps in that of their keys, so
 * that equal messages give equal bytes. */
#include "schema/payload.h"
#include "schema/payload_json.h"
#include "schema/place.h"
#include "schema/record.h"
#include "wire/json_scalars.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const struct schema *schema;
    struct buf out;
    bool inexact; /* whole numbers were read as floating point */
    struct err *err;
};

struct member {
    const struct schema_field *field;
    json_t *value;
};

static int read_message(struct reader *reader, const struct place *place,
                        const struct schema_message *type, json_t *value, unsigned depth);

static void json_decref_p(json_t **value)
{
    json_decref(*value);
}

static int out_of_memory(const struct reader *reader)
{
    return err_set(reader->err, ERR_NOMEM, "JSON: out of memory");
}

static int too_deep(const struct reader *reader, const struct place *place)
{
    return place_refuse(place, reader->err, ERR_LIMIT, "messages nested deeper than %d",
                        PAYLOAD_DEPTH_MAX);
}

/* ---- one value ---- */

static void put_varint(struct reader *reader, uint32_t number, uint64_t value)
{
    record_put_tag(&reader->out, number, RECORD_VARINT);
    record_put_varint(&reader->out, value);
}

static void put_scalar(struct reader *reader, const struct schema_field *field,
                       const struct json_scalar *scalar)
{
    enum record_type type = record_type_of(field->kind);
    if (type == RECORD_BYTES) {
        record_put_bytes(&reader->out, field->number, scalar->data, scalar->size);
        return;
    }
    record_put_tag(&reader->out, field->number, type);
    record_put_raw(&reader->out, type, scalar->raw);
}

/* With its tag. `zero_too`: a scalar that holds its default is written as well. */
static int read_value(struct reader *reader, const struct place *place,
                      const struct schema_field *field, json_t *value, bool zero_too,
                      unsigned depth)
{
    if (field->kind == KIND_MESSAGE) {
        size_t begin = record_begin(&reader->out, field->number);
        int rc = read_message(reader, place, field->message, value, depth + 1);
        record_end(&reader->out, begin);
        return rc;
    }
    struct json_scalar scalar = { 0 };
    int rc = json_scalar_read(place, field, value, reader->inexact, &scalar, reader->err);
    if (!rc && (zero_too || scalar.raw || scalar.size))
        put_scalar(reader, field, &scalar);
    mem_free(scalar.owned.data);
    return rc;
}

/* null is a value of its own for these two; for all others it says that there is none. */
static bool takes_null(const struct schema_field *field)
{
    return json_is_null_value(field) ||
           (field->message && field->message->well_known == WELL_KNOWN_VALUE);
}

/* ---- lists and maps ---- */

static int read_packed(struct reader *reader, const struct place *place,
                       const struct schema_field *field, const json_t *value, size_t index)
{
    struct json_scalar scalar = { 0 };
    struct place element = place_index(place, index);
    int rc = json_scalar_read(&element, field, value, reader->inexact, &scalar, reader->err);
    if (!rc)
        record_put_raw(&reader->out, record_type_of(field->kind), scalar.raw);
    return rc;
}

static int read_list(struct reader *reader, const struct place *place,
                     const struct schema_field *field, json_t *value, unsigned depth)
{
    if (!json_is_array(value))
        return json_wrong_type(place, value, "a list", reader->err);
    size_t count = json_array_size(value);
    if (!count)
        return 0;
    size_t begin = field->packed ? record_begin(&reader->out, field->number) : 0;
    for (size_t i = 0; i < count; i++) {
        json_t *element = json_array_get(value, i);
        struct place at = place_index(place, i);
        if (json_is_null(element) && !takes_null(field))
            return json_wrong_type(&at, element, "a value", reader->err);
        int rc = field->packed ? read_packed(reader, place, field, element, i)
                               : read_value(reader, &at, field, element, true, depth);
        if (rc)
            return rc;
    }
    if (field->packed)
        record_end(&reader->out, begin);
    return 0;
}

struct entry {
    const char *name;
    struct json_scalar key;
    uint64_t rank; /* numbers in their order, as unsigned */
    json_t *value;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->key.data && y->key.data ? strcmp(x->name, y->name) : 0;
}

static int read_keys(struct reader *reader, const struct place *place,
                     const struct schema_field *field, json_t *object, struct entry *entries)
{
    size_t count = 0;
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        struct entry *entry = &entries[count++];
        struct place at = place_key(place, name);
        int rc = json_key_read(&at, field, name, &entry->key, reader->err);
        if (rc)
            return rc;
        entry->name = name;
        entry->value = value;
        entry->rank =
            field->kind == KIND_STRING ? 0 : (uint64_t)record_integer(field->kind, entry->key.raw);
        if (field->kind != KIND_STRING && !record_is_unsigned(field->kind))
            entry->rank ^= UINT64_C(1) << 63;
    }
    qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 1; i < count; i++) {
        struct place at = place_key(place, entries[i].name);
        if (compare_entries(&entries[i - 1], &entries[i]) == 0)
            return place_refuse(&at, reader->err, ERR_INVALID, "the same key as \"%s\"",
                                entries[i - 1].name);
    }
    return 0;
}

/* Entries say key and value even where they are zero. */
static int read_map(struct reader *reader, const struct place *place,
                    const struct schema_field *field, json_t *value, unsigned depth)
{
    if (!json_is_object(value))
        return json_wrong_type(place, value, "an object", reader->err);
    size_t count = json_object_size(value);
    if (count && depth + 1 > PAYLOAD_DEPTH_MAX)
        return too_deep(reader, place);
    CLEANUP(mem_free_p) struct entry *entries = mem_calloc(count + 1, sizeof *entries);
    if (!entries)
        return out_of_memory(reader);
    const struct schema_field *fields = field->message->fields;
    int rc = read_keys(reader, place, &fields[0], value, entries);
    for (size_t i = 0; i < count && !rc; i++) {
        struct place at = place_key(place, entries[i].name);
        if (json_is_null(entries[i].value) && !takes_null(&fields[1]))
            return json_wrong_type(&at, entries[i].value, "a value", reader->err);
        size_t begin = record_begin(&reader->out, field->number);
        put_scalar(reader, &fields[0], &entries[i].key);
        rc = read_value(reader, &at, &fields[1], entries[i].value, true, depth + 1);
        record_end(&reader->out, begin);
    }
    return rc;
}

/* ---- the fields of a message ---- */

static int read_field(struct reader *reader, const struct place *parent,
                      const struct member *member, unsigned depth)
{
    const struct schema_field *field = member->field;
    struct place place = place_field(parent, field->name);
    if (field->repeated && field->message && field->message->map_entry)
        return read_map(reader, &place, field, member->value, depth);
    if (field->repeated)
        return read_list(reader, &place, field, member->value, depth);
    return read_value(reader, &place, field, member->value, field->presence, depth);
}

static int compare_members(const void *a, const void *b)
{
    uint32_t x = ((const struct member *)a)->field->number;
    uint32_t y = ((const struct member *)b)->field->number;
    return (x > y) - (x < y);
}

/* Each field once, and one of each oneof. */
static int check_members(const struct reader *reader, const struct place *parent,
                         const struct schema_message *type, const struct member *members,
                         size_t count)
{
    CLEANUP(mem_free_p)
    const struct schema_field **chosen =
        mem_calloc(type->oneof_count + 1, sizeof(struct schema_field *));
    if (!chosen)
        return out_of_memory(reader);
    for (size_t i = 0; i < count; i++) {
        const struct schema_field *field = members[i].field;
        struct place place = place_field(parent, field->name);
        if (i && members[i - 1].field == field)
            return place_refuse(&place, reader->err, ERR_INVALID, "is given twice, as %s too",
                                field->json_name);
        if (field->oneof < 0)
            continue;
        if (chosen[field->oneof])
            return place_refuse(&place, reader->err, ERR_INVALID, "only one of %s, and %s is given",
                                type->oneof_names[field->oneof], chosen[field->oneof]->name);
        chosen[field->oneof] = field;
    }
    return 0;
}

static int check_required(const struct reader *reader, const struct place *parent,
                          const struct schema_message *type, const struct member *members,
                          size_t count)
{
    size_t given = 0;
    for (size_t i = 0; i < count; i++)
        given += members[i].field->required;
    for (size_t i = 0, at = 0; given < type->required_count && i < type->field_count; i++) {
        const struct schema_field *field = &type->fields[i];
        while (at < count && members[at].field->number < field->number)
            at++;
        struct place place = place_field(parent, field->name);
        if (field->required && (at == count || members[at].field != field))
            return place_refuse(&place, reader->err, ERR_INVALID, "is required");
    }
    return 0;
}

/* Members that are null are none. *ret_count: of the others, in the order of their numbers. */
static int find_members(const struct reader *reader, const struct place *parent,
                        const struct schema_message *type, json_t *object, bool in_any,
                        struct member *members, size_t *ret_count)
{
    size_t count = 0;
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if (in_any && strcmp(name, "@type") == 0)
            continue;
        const struct schema_field *field = schema_field_by_json_name(type, name);
        if (!field)
            field = schema_field_by_name(type, name);
        struct place place = place_field(parent, name);
        if (!field)
            return place_refuse(&place, reader->err, ERR_INVALID, "%s has no such field",
                                type->full_name);
        if (!json_is_null(value) || (takes_null(field) && !field->repeated))
            members[count++] = (struct member){ field, value };
    }
    qsort(members, count, sizeof *members, compare_members);
    *ret_count = count;
    return 0;
}

/* An object with the names of the fields; `in_any`: and with @type, which is none. */
static int read_fields(struct reader *reader, const struct place *place,
                       const struct schema_message *type, json_t *object, bool in_any,
                       unsigned depth)
{
    if (!json_is_object(object))
        return json_wrong_type(place, object, "an object", reader->err);
    size_t count = json_object_size(object);
    CLEANUP(mem_free_p) struct member *members = mem_calloc(count + 1, sizeof *members);
    if (!members)
        return out_of_memory(reader);
    int rc = find_members(reader, place, type, object, in_any, members, &count);
    if (!rc)
        rc = check_members(reader, place, type, members, count);
    if (!rc)
        rc = check_required(reader, place, type, members, count);
    for (size_t i = 0; i < count && !rc; i++)
        rc = read_field(reader, place, &members[i], depth);
    return rc;
}

/* ---- google.protobuf's own ---- */

static int read_any(struct reader *reader, const struct place *place, json_t *value, unsigned depth)
{
    if (!json_is_object(value))
        return json_wrong_type(place, value, "an object", reader->err);
    if (!json_object_size(value))
        return 0;
    const json_t *url = json_object_get(value, "@type");
    struct place at = place_field(place, "@type");
    if (!json_is_string(url))
        return place_refuse(&at, reader->err, ERR_INVALID, "an Any says its type here");
    const struct schema_message *type =
        json_any_type(reader->schema, json_string_value(url), json_string_length(url));
    if (!type)
        return place_refuse(&at, reader->err, ERR_INVALID, "an Any of the unknown type \"%s\"",
                            json_string_value(url));
    json_t *content = json_object_get(value, "value");
    bool has_value = json_any_has_value(type);
    if (has_value && (!content || json_object_size(value) != 2))
        return place_refuse(place, reader->err, ERR_INVALID,
                            "an Any of %s has @type and value, and nothing else", type->full_name);
    record_put_bytes(&reader->out, 1, json_string_value(url), json_string_length(url));
    size_t before = reader->out.size, begin = record_begin(&reader->out, 2);
    at = place_field(place, "value");
    int rc = has_value ? read_message(reader, &at, type, content, depth + 1)
                       : read_fields(reader, place, type, value, true, depth + 1);
    if (reader->out.size == begin)
        record_cut(&reader->out, before);
    else
        record_end(&reader->out, begin);
    return rc;
}

static int read_time(struct reader *reader, const struct place *place,
                     const struct schema_message *type, const json_t *value)
{
    bool is_timestamp = type->well_known == WELL_KNOWN_TIMESTAMP;
    const char *wanted =
        is_timestamp ? "a time such as \"2026-03-02T14:05:11Z\"" : "a duration such as \"1.5s\"";
    if (!json_is_string(value))
        return json_wrong_type(place, value, wanted, reader->err);
    const char *text = json_string_value(value);
    int64_t seconds = 0;
    int32_t nanos = 0;
    if (strlen(text) != json_string_length(value) ||
        !(is_timestamp ? json_timestamp_read(text, &seconds, &nanos)
                       : json_duration_read(text, &seconds, &nanos)))
        return place_refuse(place, reader->err, ERR_INVALID, "must be %s, not \"%s\"", wanted,
                            text);
    if (seconds)
        put_varint(reader, 1, (uint64_t)seconds);
    if (nanos)
        put_varint(reader, 2, (uint64_t)(int64_t)nanos);
    return 0;
}

static int read_field_mask(struct reader *reader, const struct place *place, const json_t *value)
{
    if (!json_is_string(value))
        return json_wrong_type(place, value, "paths with commas between them", reader->err);
    const char *text = json_string_value(value);
    size_t size = json_string_length(value);
    for (size_t at = 0, length; size; at += length + 1) {
        const char *comma = memchr(text + at, ',', size - at);
        length = comma ? (size_t)(comma - text) - at : size - at;
        size_t begin = record_begin(&reader->out, 1);
        if (!json_path_read(&reader->out, text + at, length))
            return place_refuse(place, reader->err, ERR_INVALID,
                                "paths are lowerCamelCase here, and none is empty");
        record_end(&reader->out, begin);
        if (!comma)
            break;
    }
    return 0;
}

/* google.protobuf.Value: whatever JSON it is. Its fields by number are null_value, number_value,
 * string_value, bool_value, struct_value, list_value. */
static int read_any_value(struct reader *reader, const struct place *place,
                          const struct schema_message *type, json_t *value, unsigned depth)
{
    const struct schema_field *field = &type->fields[0];
    switch (json_typeof(value)) {
    case JSON_NULL:
        put_varint(reader, field->number, 0);
        return 0;
    case JSON_INTEGER:
    case JSON_REAL:
        field += 1;
        break;
    case JSON_STRING:
        field += 2;
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        field += 3;
        break;
    case JSON_OBJECT:
        field += 4;
        break;
    case JSON_ARRAY:
        field += 5;
        break;
    }
    return read_value(reader, place, field, value, true, depth);
}

static int read_message(struct reader *reader, const struct place *place,
                        const struct schema_message *type, json_t *value, unsigned depth)
{
    if (depth > PAYLOAD_DEPTH_MAX)
        return too_deep(reader, place);
    switch (type->well_known) {
    case WELL_KNOWN_ANY:
        return read_any(reader, place, value, depth);
    case WELL_KNOWN_DURATION:
    case WELL_KNOWN_TIMESTAMP:
        return read_time(reader, place, type, value);
    case WELL_KNOWN_FIELD_MASK:
        return read_field_mask(reader, place, value);
    case WELL_KNOWN_LIST_VALUE:
        return read_list(reader, place, &type->fields[0], value, depth);
    case WELL_KNOWN_STRUCT:
        return read_map(reader, place, &type->fields[0], value, depth);
    case WELL_KNOWN_VALUE:
        return read_any_value(reader, place, type, value, depth);
    case WELL_KNOWN_WRAPPER:
        return read_value(reader, place, &type->fields[0], value, false, depth);
    default:
        return read_fields(reader, place, type, value, false, depth);
    }
}

/* Whole numbers beyond 64 bits are no fault of a floating point field: the text is read once more,
 * with all numbers as floating point. */
static int parse(const char *text, size_t size, json_t **ret, bool *ret_inexact, struct err *err)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t where;
    const char *nul = memchr(text, '\0', size);
    if (nul) /* jansson reads on behind it, as if it were a blank */
        return err_set(err, ERR_INVALID, "byte %zu: NUL is no JSON", (size_t)(nul - text) + 1);
    *ret_inexact = false;
    *ret = json_loadb(text, size, flags, &where);
    if (!*ret && json_error_code(&where) == json_error_numeric_overflow) {
        *ret_inexact = true;
        *ret = json_loadb(text, size, flags | JSON_DECODE_INT_AS_REAL, &where);
    }
    if (*ret)
        return 0;
    enum json_error_code code = json_error_code(&where);
    return err_set(err,
                   code == json_error_stack_overflow  ? ERR_LIMIT
                   : code == json_error_out_of_memory ? ERR_NOMEM
                                                      : ERR_INVALID,
                   "line %d, column %d: %s", where.line, where.column, where.text);
}

int payload_json_read(const struct schema *schema, const struct schema_message *type,
                      const char *text, size_t text_size, struct bytes *ret, struct err *err)
{
    CLEANUP(json_decref_p) json_t *value = NULL;
    struct reader reader = { .schema = schema, .err = err };
    int rc = parse(text_size ? text : "", text_size, &value, &reader.inexact, err);
    if (rc)
        return rc;
    rc = read_message(&reader, NULL, type, value, 1);
    if (!rc && reader.out.failed)
        rc = out_of_memory(&reader);
    if (rc) {
        buf_done(&reader.out);
        return rc;
    }
    *ret = (struct bytes){ reader.out.data, reader.out.size };
    return 0;
}
