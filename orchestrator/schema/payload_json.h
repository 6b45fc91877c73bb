/* What the two ways of JSON share. Any thread. */
#ifndef SCHEMA_PAYLOAD_JSON_H
#define SCHEMA_PAYLOAD_JSON_H

#include "base/buf.h"
#include "schema/place.h"
#include "schema/schema.h"

#include <jansson.h>

/* The shortest decimal that reads back as the same number, spelled as Python spells it: 1.0, 1e+16,
 * 1e-05. Finite. */
void json_double_write(struct buf *out, double value);
/* The same for a float: at least six digits, then as many as it takes. */
void json_float_write(struct buf *out, float value);

/* Text in quotes; well-formed UTF-8. */
void json_text_write(struct buf *out, const char *text, size_t size);

/* A path of a FieldMask: a_b.c <-> aB.c. False: one that has no such form. */
MUST_USE bool json_path_write(struct buf *out, const char *path, size_t size);
MUST_USE bool json_path_read(struct buf *out, const char *text, size_t size);

/* google.protobuf.NullValue, which is null? */
bool json_is_null_value(const struct schema_field *field);
/* The type that an Any's URL names: what follows the last slash. NULL: none of the schema. */
const struct schema_message *json_any_type(const struct schema *schema, const char *url,
                                           size_t size);
/* Is the form of that type within an Any {"@type": .., "value": ..}? */
static inline bool json_any_has_value(const struct schema_message *type)
{
    return type->well_known != WELL_KNOWN_NONE;
}

/* A scalar of JSON as it goes into a record. */
struct json_scalar {
    uint64_t raw;
    const void *data; /* strings and bytes; borrowed from the JSON or from `owned` */
    size_t size;
    struct bytes owned; /* the caller's to free */
};
/* `inexact`: whole numbers were read as floating point, so large ones cannot be trusted. */
MUST_USE int json_scalar_read(const struct place *place, const struct schema_field *field,
                              const json_t *value, bool inexact, struct json_scalar *ret,
                              struct err *err);
/* The key of a map, which is a string in JSON. */
MUST_USE int json_key_read(const struct place *place, const struct schema_field *field,
                           const char *key, struct json_scalar *ret, struct err *err);
/* "must be a list, not a string" */
int json_wrong_type(const struct place *place, const json_t *value, const char *wanted,
                    struct err *err);

#endif
