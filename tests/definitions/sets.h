/* FileDescriptorSets for tests, made by protoc while they run, and the bytes of messages. A failure
 * fails the test. thread: the test thread only. */
#ifndef DEFINITIONS_SETS_H
#define DEFINITIONS_SETS_H

#include "support/check.h"

#include "base/mem.h"
#include "schema/schema.h"

/* A source with a little of everything: messages, an enum, a map, oneofs, services with options. */
extern const char bank_source[];

/* Of a .proto file of this folder, with everything that it imports. The caller frees the bytes, as
 * all below. */
struct bytes set_of_file(const char *proto);
/* Of .proto text, as "test.proto"; nothing of it is looked up in this folder. */
struct bytes set_of_source(const char *source);
/* Of a FileDescriptorSet in protobuf's text format: for sets that protoc would never make. */
struct bytes set_of_text(const char *text);
/* A message of a type of kinds.proto in protobuf's text format. */
struct bytes message_of_text(const char *type, const char *text);
struct schema *schema_of(struct bytes set); /* consumes the set */

static inline void bytes_done(struct bytes *bytes)
{
    mem_free(bytes->data);
}

struct bytes file_read(const char *path); /* a NUL follows the bytes */
void file_write(const char *path, const void *data, size_t size);
/* A shell command that must succeed; it is printed when it does not. */
FMT(1, 2) void run(const char *fmt, ...);

/* The error's code, its field (NULL: whatever it is) and a part of its text. */
void assert_error(const struct err *err, int rc, enum err_code code, const char *field,
                  const char *part);

#endif
