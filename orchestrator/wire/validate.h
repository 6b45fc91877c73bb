/* One pass over an unpacked message, for what neither the scan nor protobuf-c looks at: enum
 * numbers that are known, map keys that are unique, Duration and Timestamp within their ranges.
 * (UTF-8 and NUL are the scan's: only there the length is still known.) Any thread. */
#ifndef WIRE_VALIDATE_H
#define WIRE_VALIDATE_H

#include "base/err.h"

#include <protobuf-c/protobuf-c.h>

/* ERR_INVALID with the path of the field. The message was scanned, so its depth is bounded. */
MUST_USE int wire_validate(const ProtobufCMessage *message, struct err *err);

/* Is this repeated message what protoc makes of a map? Descriptors have no flag for it. */
bool wire_is_map_entry(const ProtobufCMessageDescriptor *type);

/* Scan, unpack into the arena, validate. ERR_LIMIT when the arena's cap is what stopped it. The
 * message is borrowed from the arena. */
struct arena;
MUST_USE int wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                         struct arena *arena, ProtobufCMessage **ret, struct err *err);

#endif
