/* Scalars of JSON, by kind, with their ranges. */
#include "schema/payload_json.h"
#include "schema/record.h"
#include "wire/json_scalars.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX 9007199254740992.0 /* 2^53: from here on a double may stand for a neighbour */

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

int json_wrong_type(const struct place *place, const json_t *value, const char *wanted,
                    struct err *err)
{
    return place_refuse(place, err, ERR_INVALID, "must be %s, not %s", wanted, type_name(value));
}

/* ---- whole numbers ---- */

struct whole {
    bool negative;
    uint64_t magnitude;
};

/* Decimal digits with or without a minus. */
static bool whole_from_text(const char *text, size_t size, struct whole *ret)
{
    size_t at = size && text[0] == '-';
    *ret = (struct whole){ .negative = at > 0 };
    if (at == size)
        return false;
    for (; at < size; at++) {
        if (text[at] < '0' || text[at] > '9' ||
            __builtin_mul_overflow(ret->magnitude, 10, &ret->magnitude) ||
            __builtin_add_overflow(ret->magnitude, (uint64_t)(text[at] - '0'), &ret->magnitude))
            return false;
    }
    return true;
}

static bool whole_from_real(double value, struct whole *ret)
{
    *ret = (struct whole){ .negative = value < 0 };
    if (fabs(value) >= 0x1p64 || trunc(value) != value)
        return false;
    ret->magnitude = (uint64_t)fabs(value);
    return true;
}

static bool whole_from_json(const json_t *value, bool inexact, struct whole *ret)
{
    if (json_is_string(value))
        return whole_from_text(json_string_value(value), json_string_length(value), ret);
    if (json_is_real(value))
        return (!inexact || fabs(json_real_value(value)) < EXACT_MAX) &&
               whole_from_real(json_real_value(value), ret);
    json_int_t number = json_integer_value(value);
    *ret = (struct whole){ number < 0, number < 0 ? -(uint64_t)number : (uint64_t)number };
    return true;
}

/* How far a kind reaches below and above zero. */
static void range_of(enum schema_kind kind, uint64_t *ret_below, uint64_t *ret_above)
{
    switch (kind) {
    case KIND_UINT32:
    case KIND_FIXED32:
        *ret_below = 0;
        *ret_above = UINT32_MAX;
        return;
    case KIND_UINT64:
    case KIND_FIXED64:
        *ret_below = 0;
        *ret_above = UINT64_MAX;
        return;
    case KIND_INT64:
    case KIND_SINT64:
    case KIND_SFIXED64:
        *ret_below = UINT64_C(1) << 63;
        *ret_above = INT64_MAX;
        return;
    default:
        *ret_below = UINT64_C(1) << 31;
        *ret_above = INT32_MAX;
    }
}

/* `ok`: there was a whole number at all. */
static int raw_from_whole(const struct place *place, enum schema_kind kind, bool ok,
                          struct whole whole, uint64_t *ret, struct err *err)
{
    uint64_t below, above;
    range_of(kind, &below, &above);
    if (!ok || whole.magnitude > (whole.negative ? below : above))
        return place_refuse(place, err, ERR_INVALID,
                            "must be a whole number from %s%" PRIu64 " to %" PRIu64,
                            below ? "-" : "", below, above);
    *ret =
        record_raw_of_integer(kind, (int64_t)(whole.negative ? -whole.magnitude : whole.magnitude));
    return 0;
}

static int read_integer(const struct place *place, enum schema_kind kind, const json_t *value,
                        bool inexact, uint64_t *ret, struct err *err)
{
    if (!json_is_number(value) && !json_is_string(value))
        return json_wrong_type(place, value, "a whole number", err);
    struct whole whole = { 0 };
    bool ok = whole_from_json(value, inexact, &whole);
    return raw_from_whole(place, kind, ok, whole, ret, err);
}

/* ---- floating point ---- */

static bool real_from_text(const char *text, size_t size, double *ret)
{
    static const struct {
        const char *name;
        double value;
    } names[] = { { "NaN", (double)NAN },
                  { "Infinity", (double)INFINITY },
                  { "-Infinity", -(double)INFINITY } };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (size == strlen(names[i].name) && memcmp(text, names[i].name, size) == 0) {
            *ret = names[i].value;
            return true;
        }
    }
    char *end = NULL;
    *ret = strtod(text, &end);
    return size > 0 && strspn(text, "0123456789+-.eE") == size && end == text + size &&
           isfinite(*ret);
}

static int read_real(const struct place *place, enum schema_kind kind, const json_t *value,
                     uint64_t *ret, struct err *err)
{
    double number = json_number_value(value);
    if (json_is_string(value)) {
        if (!real_from_text(json_string_value(value), json_string_length(value), &number))
            return place_refuse(place, err, ERR_INVALID,
                                "must be a number, \"NaN\", \"Infinity\" or \"-Infinity\", not "
                                "\"%s\"",
                                json_string_value(value));
    } else if (!json_is_number(value)) {
        return json_wrong_type(place, value, "a number", err);
    }
    if (kind == KIND_FLOAT && isfinite(number) && isinf((float)number))
        return place_refuse(place, err, ERR_INVALID, "is out of the range of a float");
    *ret = record_raw_of_real(kind, number);
    return 0;
}

/* ---- the others ---- */

static int read_enum(const struct place *place, const struct schema_field *field,
                     const json_t *value, bool inexact, uint64_t *ret, struct err *err)
{
    const struct schema_enum *enumeration = field->enumeration;
    if (json_is_string(value)) {
        const struct schema_value *known =
            schema_value_by_name(enumeration, json_string_value(value));
        if (!known)
            return place_refuse(place, err, ERR_INVALID, "\"%s\" is no value of %s",
                                json_string_value(value), enumeration->full_name);
        *ret = (uint64_t)(int64_t)known->number;
        return 0;
    }
    if (json_is_null(value) && json_is_null_value(field)) {
        *ret = 0;
        return 0;
    }
    if (!json_is_number(value))
        return json_wrong_type(place, value, "the name of a value", err);
    uint64_t raw = 0;
    if (read_integer(place, KIND_ENUM, value, inexact, &raw, err) != 0)
        return (int)err->code;
    if (enumeration->closed && !schema_value_by_number(enumeration, (int32_t)raw))
        return place_refuse(place, err, ERR_INVALID, "%" PRId32 " is no value of %s", (int32_t)raw,
                            enumeration->full_name);
    *ret = raw;
    return 0;
}

static int read_bytes(const struct place *place, const json_t *value, struct json_scalar *ret,
                      struct err *err)
{
    if (!json_is_string(value))
        return json_wrong_type(place, value, "base64 text", err);
    struct bytes bytes;
    int rc = json_base64_read(json_string_value(value), json_string_length(value), &bytes);
    if (rc == -2)
        return err_set(err, ERR_NOMEM, "JSON: out of memory");
    if (rc != 0)
        return place_refuse(place, err, ERR_INVALID, "must be base64 text");
    *ret = (struct json_scalar){ .data = bytes.data, .size = bytes.size, .owned = bytes };
    return 0;
}

int json_scalar_read(const struct place *place, const struct schema_field *field,
                     const json_t *value, bool inexact, struct json_scalar *ret, struct err *err)
{
    switch (field->kind) {
    case KIND_DOUBLE:
    case KIND_FLOAT:
        return read_real(place, field->kind, value, &ret->raw, err);
    case KIND_BOOL:
        if (!json_is_boolean(value))
            return json_wrong_type(place, value, "true or false", err);
        ret->raw = json_is_true(value);
        return 0;
    case KIND_STRING:
        if (!json_is_string(value))
            return json_wrong_type(place, value, "a string", err);
        ret->data = json_string_value(value);
        ret->size = json_string_length(value);
        return 0;
    case KIND_BYTES:
        return read_bytes(place, value, ret, err);
    case KIND_ENUM:
        return read_enum(place, field, value, inexact, &ret->raw, err);
    case KIND_GROUP:
        return place_refuse(place, err, ERR_INVALID, "groups are refused");
    default:
        return read_integer(place, field->kind, value, inexact, &ret->raw, err);
    }
}

int json_key_read(const struct place *place, const struct schema_field *field, const char *key,
                  struct json_scalar *ret, struct err *err)
{
    struct whole whole = { 0 };
    switch (field->kind) {
    case KIND_STRING:
        ret->data = key;
        ret->size = strlen(key);
        return 0;
    case KIND_BOOL:
        ret->raw = strcmp(key, "true") == 0;
        if (!ret->raw && strcmp(key, "false") != 0)
            return place_refuse(place, err, ERR_INVALID, "the key must be true or false");
        return 0;
    default: {
        bool ok = whole_from_text(key, strlen(key), &whole);
        return raw_from_whole(place, field->kind, ok, whole, &ret->raw, err);
    }
    }
}
