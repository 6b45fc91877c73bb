/* Looks at bytes before protobuf-c unpacks them: protobuf-c recurses without a bound, expands small
 * messages a hundredfold, and lets wrong UTF-8 and NUL bytes in strings pass (a NUL makes text look
 * shorter than it is). Never allocates, never changes anything. Any thread. */
#ifndef WIRE_SCAN_H
#define WIRE_SCAN_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

enum {
    SCAN_DEPTH_MAX = 100,       /* messages in messages */
    SCAN_ELEMENTS_MAX = 200000, /* fields, and elements of packed ones, of one message in all */
};

/* ERR_INVALID: not a message of that type: cut or over-long varints and lengths, field number 0,
 * groups, the wrong wire type for a known field, one sub-message given twice, text that is not
 * UTF-8 or holds a NUL. ERR_LIMIT: a limit above. err->field is the path of the field where it
 * is known. */
MUST_USE int wire_scan(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                       struct err *err);

/* The field with that number; NULL when the type has none. */
const ProtobufCFieldDescriptor *wire_field_find(const ProtobufCMessageDescriptor *type,
                                                uint32_t number);

#endif
