/* The users' own types: what a FileDescriptorSet says of messages, enums and services, indexed and
 * checked. Made once, immutable then, any thread. Never: I/O; the payloads themselves (payload.h).
 *
 * The set comes from outside (protoc or buf made it, or somebody who wishes us ill): it is scanned
 * and bounded before it is unpacked, every name in it is resolved here, and nothing later has to
 * be. */
#ifndef SCHEMA_SCHEMA_H
#define SCHEMA_SCHEMA_H

#include "base/cleanup.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCHEMA_BYTES_MAX = 4 * 1024 * 1024,   /* the set */
    SCHEMA_MEMORY_MAX = 64 * 1024 * 1024, /* what it unpacks to, and what is kept of it */
    SCHEMA_FILES_MAX = 1000,
    SCHEMA_TYPES_MAX = 20000,   /* messages and enums */
    SCHEMA_FIELDS_MAX = 100000, /* fields and enum values, in all */
    SCHEMA_SERVICES_MAX = 1000,
    SCHEMA_METHODS_MAX = 10000,    /* in all */
    SCHEMA_NAME_BYTES = 512,       /* a full name, a file's name */
    SCHEMA_FIELD_NAME_BYTES = 127, /* a field's name, and its name in JSON */
    SCHEMA_NESTING_MAX = 32,       /* messages declared in messages */
    SCHEMA_REQUIRED_MAX = 64,      /* required fields of one message */
};

/* The numbers of google.protobuf.FieldDescriptorProto.Type. */
enum schema_kind {
    KIND_DOUBLE = 1,
    KIND_FLOAT,
    KIND_INT64,
    KIND_UINT64,
    KIND_INT32,
    KIND_FIXED64,
    KIND_FIXED32,
    KIND_BOOL,
    KIND_STRING,
    KIND_GROUP, /* proto2; refused where a payload's type is looked at */
    KIND_MESSAGE,
    KIND_BYTES,
    KIND_UINT32,
    KIND_ENUM,
    KIND_SFIXED32,
    KIND_SFIXED64,
    KIND_SINT32,
    KIND_SINT64,
};

/* Messages of google.protobuf that have a JSON form of their own. A set in which one of them does
 * not have the fields that it has in protobuf is refused. */
enum schema_well_known {
    WELL_KNOWN_NONE,
    WELL_KNOWN_ANY,
    WELL_KNOWN_DURATION,
    WELL_KNOWN_FIELD_MASK,
    WELL_KNOWN_LIST_VALUE,
    WELL_KNOWN_STRUCT,
    WELL_KNOWN_TIMESTAMP,
    WELL_KNOWN_VALUE,
    WELL_KNOWN_WRAPPER, /* DoubleValue to BytesValue */
};

struct schema_field {
    const char *name, *json_name;
    uint32_t number;
    enum schema_kind kind;
    bool repeated;
    bool packed;   /* as it is written; both forms are read */
    bool presence; /* absent and zero are two things: messages, oneofs, `optional`, proto2 */
    bool required; /* proto2 */
    unsigned required_index;   /* among the required ones of its message */
    const char *default_value; /* proto2, as it stands in the .proto; NULL: that of the kind */
    int oneof; /* index of a real oneof in its message; -1: none (`optional` has none) */
    const struct schema_message *message;  /* KIND_MESSAGE, KIND_GROUP */
    const struct schema_enum *enumeration; /* KIND_ENUM */
};

struct schema_message {
    const char *full_name; /* "bank.v1.Payment", without a leading dot */
    const char *file;
    const struct schema_field *fields; /* by number */
    size_t field_count;
    const struct schema_field *const *by_name;      /* the same by name */
    const struct schema_field *const *by_json_name; /* the same by json_name */
    unsigned required_count;
    size_t oneof_count; /* real ones */
    const char *const *oneof_names;
    bool map_entry; /* key is fields[0], value fields[1] */
    enum schema_well_known well_known;
};

struct schema_value {
    const char *name;
    int32_t number;
};

struct schema_enum {
    const char *full_name, *file;
    const struct schema_value *values; /* in the order of the file, at least one */
    size_t value_count;
    const struct schema_value *const *by_name;
    const struct schema_value *const *by_number; /* of aliases the first comes first */
    bool closed; /* proto2: a number that is not declared is an unknown field */
};

struct schema_method {
    const char *name;
    const struct schema_message *input, *output;
    bool client_streaming, server_streaming;
    struct bytes options; /* google.protobuf.MethodOptions as it came, packed; size 0: none */
};

struct schema_service {
    const char *name, *full_name, *package, *file;
    const struct schema_method *methods; /* in the order of the file */
    size_t method_count;
    struct bytes options; /* google.protobuf.ServiceOptions as it came, packed; size 0: none */
};

struct schema; /* opaque; owns all of the above */

/* From a packed google.protobuf.FileDescriptorSet, which is not kept. ERR_INVALID with a text that
 * names the file and the name in it: bytes that are no such message, an import that is not in the
 * set or is there twice, imports in a circle, a name that is declared twice or nowhere, a field
 * number twice, out of range or reserved by protobuf, a map entry that is none, another syntax than
 * proto2 and proto3. Extensions and the options of messages and fields are passed over. ERR_LIMIT:
 * a limit above, named, or one of wire/scan.h for a single file. Files may stand in any order. */
MUST_USE int schema_new(const uint8_t *data, size_t size, struct schema **ret, struct err *err);
struct schema *schema_free(struct schema *schema); /* NULL is fine; always returns NULL */
static inline void schema_free_p(struct schema **schema)
{
    *schema = schema_free(*schema);
}

size_t schema_service_count(const struct schema *schema);
/* In the order of the set and of each file. */
const struct schema_service *schema_service_at(const struct schema *schema, size_t index);

/* By full name, without a leading dot; NULL if there is none. */
const struct schema_message *schema_message_find(const struct schema *schema,
                                                 const char *full_name);
/* A name as somebody would write it within `scope` ("bank.v1"): relative to it, then to what is
 * around it, then full; a leading dot says full. NULL if there is none. */
const struct schema_message *schema_message_resolve(const struct schema *schema, const char *scope,
                                                    const char *name);
/* NULL if there is none. */
const struct schema_field *schema_field_by_number(const struct schema_message *message,
                                                  uint32_t number);
/* By the name of the .proto file alone, or by that in JSON alone. NULL if there is none. */
const struct schema_field *schema_field_by_name(const struct schema_message *message,
                                                const char *name);
const struct schema_field *schema_field_by_json_name(const struct schema_message *message,
                                                     const char *json_name);
/* Of aliases the first. NULL if there is none. */
const struct schema_value *schema_value_by_number(const struct schema_enum *enumeration,
                                                  int32_t number);
const struct schema_value *schema_value_by_name(const struct schema_enum *enumeration,
                                                const char *name);

/* The part of the set that the messages of these full names need, as a packed FileDescriptorSet:
 * their types and what those are made of, without services, comments and options that do not change
 * a payload; files are called as their first type, and sorted, as types are. So two sets that say
 * the same of those messages give the same bytes. Owned by the caller. ERR_NOT_FOUND: a name that
 * is not there. */
MUST_USE int schema_prune(const uint8_t *data, size_t size, const char *const *full_names,
                          size_t count, struct bytes *ret, struct err *err);

#endif
