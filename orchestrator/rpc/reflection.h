/* What gRPC reflection answers: files, symbols and extensions of the protos that this server
 * serves, out of tables that the build makes of protoc's descriptors (reflection_index.c). v1 and
 * v1alpha are the same on the wire. Any thread. */
#ifndef RPC_REFLECTION_H
#define RPC_REFLECTION_H

#include "wire/arena.h"

#include <grpc/reflection/v1/reflection.pb-c.h>
#include <stddef.h>
#include <stdint.h>

struct reflection_file {
    const char *name;
    const uint8_t *bytes; /* a packed FileDescriptorProto */
    size_t size;
    const uint16_t *needed; /* itself, then all that it imports, by their places in the table */
    size_t needed_count;
};
struct reflection_symbol { /* in order of their names */
    const char *name;
    uint16_t file;
    bool is_message;
};
struct reflection_extension { /* in order of types and numbers */
    const char *type;
    int32_t number;
    uint16_t file;
};
/* reflection_tables.c, made by the build */
extern const struct reflection_file reflection_files[];
extern const size_t reflection_file_count;
extern const struct reflection_symbol reflection_symbols[];
extern const size_t reflection_symbol_count;
extern const struct reflection_extension reflection_extensions[];
extern const size_t reflection_extension_count;
extern const char *const reflection_services[];
extern const size_t reflection_service_count;

/* In the arena; it borrows from the request. NULL: memory. */
MUST_USE Grpc__Reflection__V1__ServerReflectionResponse *reflection_answer(
    struct arena *arena, Grpc__Reflection__V1__ServerReflectionRequest *request);

#endif
