/* Payloads: bytes of a user's own message, looked at by its type in a schema. Any thread; nothing
 * is kept.
 *
 * Errors are ERR_INVALID with the path of the field in err->field ("items[2].price.units") and what
 * is wrong in the text; ERR_LIMIT for depth and size. */
#ifndef SCHEMA_PAYLOAD_H
#define SCHEMA_PAYLOAD_H

#include "base/buf.h"
#include "schema/schema.h"

enum { PAYLOAD_DEPTH_MAX = 100 };

/* Are these bytes a message of that type: whole varints and lengths, the wire type of each known
 * field (packed and not), text that is UTF-8 (a NUL is a character), sub-messages within
 * PAYLOAD_DEPTH_MAX, required fields of proto2 there (in each piece of a sub-message that comes in
 * several). Unknown fields are well-formed and otherwise passed over. Groups are refused, known or
 * not. What an Any holds is bytes. Makes no copy, allocates nothing, does not recurse without a
 * bound. */
MUST_USE int payload_check(const struct schema_message *type, const uint8_t *data, size_t size,
                           struct err *err);

/* proto3 JSON (protobuf.dev/programming-guides/json), compact, as the reference implementations
 * write it: lowerCamelCase or json_name, 64-bit numbers as strings, enums by name (by number if not
 * declared), bytes as base64, maps as objects, NaN and Infinity as strings, the well-known types in
 * their forms (Timestamp, Duration, FieldMask, wrappers, Struct, Value, ListValue, Empty; Any by
 * the schema). Fields in the order of their numbers, entries of maps in that of their keys. Fields
 * without presence that hold their default are left out. The last of several wins and sub-messages
 * merge, as protobuf says. ERR_LIMIT where `out` has a limit and the text is longer. On an error
 * `out` is as it was.
 *
 * `unknown`, unless NULL: receives how many fields there were that the type does not know, at any
 * depth; JSON has no place for them. */
MUST_USE int payload_json_write(const struct schema *schema, const struct schema_message *type,
                                const uint8_t *data, size_t size, struct buf *out, size_t *unknown,
                                struct err *err);

/* The other way: JSON text to bytes, fields in the order of their numbers and entries of maps in
 * that of their keys, so that equal messages are equal bytes. Names as in the .proto or as in JSON;
 * null leaves a field out (but for Value and NullValue, which it is a value of); an unknown or
 * doubled name, a wrong type, a number out of range, two fields of a oneof are errors, for text
 * that is no JSON with line and column. Stricter than the reference implementations where those
 * differ: enums by name or as a number, whole numbers as digits alone, and beyond 2^63 (where JSON
 * readers lose digits) as a string. Owned by the caller. */
MUST_USE int payload_json_read(const struct schema *schema, const struct schema_message *type,
                               const char *text, size_t text_size, struct bytes *ret,
                               struct err *err);

/* A field that has one spelling as text, by its path ("customer.id"): a singular scalar (through
 * singular sub-messages) of a kind that templates may use. */
MUST_USE int payload_field_find(const struct schema_message *type, const char *path,
                                const struct schema_field **ret, struct err *err);
/* Appends its text, as a template has it; "" where that is its value. */
MUST_USE int payload_field_write(const struct schema_message *type, const char *path,
                                 const uint8_t *data, size_t size, struct buf *out,
                                 struct err *err);

/* Text with fields of a message in braces, as "order-{order_id}" ({{ and }}: the braces). */
/* Can it be filled from every message of the type: the names are there, of singular scalar fields
 * (through singular sub-messages), of kinds that have one spelling (no floating point, no bytes)?
 */
MUST_USE int payload_template_check(const struct schema_message *type, const char *text,
                                    struct err *err);
/* Fills it: numbers in decimal, booleans as true and false, enums by name (by number if not
 * declared), text as it is; bytes that are no message of the type are refused. A field
 * that is not set gives its default; one that gives "" is ERR_INVALID, since keys would fall
 * together, and so is a result longer than `max`. */
MUST_USE int payload_template_fill(const struct schema_message *type, const char *text,
                                   const uint8_t *data, size_t size, size_t max, struct buf *out,
                                   struct err *err);

#endif
