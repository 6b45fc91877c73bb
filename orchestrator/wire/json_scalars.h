/* The scalars of proto3 JSON that are more than a number or a string: base64, Timestamp, Duration,
 * and the names of fields. Any thread. */
#ifndef WIRE_JSON_SCALARS_H
#define WIRE_JSON_SCALARS_H

#include "base/buf.h"
#include "base/mem.h"

#include <protobuf-c/protobuf-c.h>

/* Standard alphabet with padding. */
void json_base64_write(struct buf *out, const void *data, size_t size);
/* Standard or URL-safe alphabet, padding optional. *ret is owned. 0; -1: no base64; -2: no memory.
 */
MUST_USE int json_base64_read(const char *text, size_t size, struct bytes *ret);

enum { JSON_TIME_SIZE = 48 };
/* "2026-03-02T14:05:11.250Z": 0, 3, 6 or 9 digits of a second. False outside the years 1 to 9999.
 */
MUST_USE bool json_timestamp_write(int64_t seconds, int32_t nanos, char ret[JSON_TIME_SIZE]);
/* RFC 3339 with any offset. False for anything else. */
MUST_USE bool json_timestamp_read(const char *text, int64_t *ret_seconds, int32_t *ret_nanos);
/* "1.500s". False when the signs differ or it is out of range (10,000 years). */
MUST_USE bool json_duration_write(int64_t seconds, int32_t nanos, char ret[JSON_TIME_SIZE]);
MUST_USE bool json_duration_read(const char *text, int64_t *ret_seconds, int32_t *ret_nanos);

enum { JSON_NAME_SIZE = 128 };
/* "saga_id_prefix" -> "sagaIdPrefix"; false when it does not fit. */
MUST_USE bool json_field_name(const char *name, char ret[JSON_NAME_SIZE]);
/* Is this repeated field of `parent` a map (its type is <parent>.<FieldName>Entry)? */
bool json_field_is_map(const ProtobufCMessageDescriptor *parent,
                       const ProtobufCFieldDescriptor *field);
/* google.protobuf.<name>? */
bool json_is_well_known(const ProtobufCMessageDescriptor *type, const char *name);

#endif
