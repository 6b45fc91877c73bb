/* The proto3 JSON mapping over protobuf-c descriptors: messages of saga.v1 to JSON text and back.
 * Field names are lowerCamelCase on output; input takes the name of the .proto file as well. 64-bit
 * numbers are strings, bytes are base64, enums are names, Timestamp and Duration are text.
 *
 * Never: floating point and google.protobuf.Any (no message of saga.v1 has them;
 * ERR_UNIMPLEMENTED). Descriptors do not say which field is a map: a repeated message is one when
 * its type is named as protoc names the entries of a map (<parent>.<FieldName>Entry with key and
 * value). Any thread. */
#ifndef WIRE_JSON_H
#define WIRE_JSON_H

#include "base/err.h"
#include "base/mem.h"

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Every field that has a value, zero values too (so that scripts find them); absent messages and
 * alternatives that are not set are left out. The caller owns *ret (json_decref). */
MUST_USE int wire_json_from_message(const ProtobufCMessage *message, json_t **ret, struct err *err);
/* The same as indented text, NUL-terminated, without a line end. The caller frees it (mem_free). */
MUST_USE int wire_json_encode(const ProtobufCMessage *message, char **ret, struct err *err);

/* Unknown fields, double fields, wrong types and values out of range are ERR_INVALID with the path
 * of the field ("steps[2].action.effect") or, for text that is no JSON, line and column. null
 * leaves a field as it is by default. The caller owns *ret: protobuf_c_message_free_unpacked(..,
 * NULL). */
MUST_USE int wire_json_decode(const char *text, size_t size, const ProtobufCMessageDescriptor *type,
                              ProtobufCMessage **ret, struct err *err);

#endif
