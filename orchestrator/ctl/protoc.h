/* protoc as a child process: what it makes of a file. What it has to say about the file goes to our
 * stderr as it is. thread: the main thread. */
#ifndef CTL_PROTOC_H
#define CTL_PROTOC_H

#include "base/buf.h"
#include "base/err.h"

/* Folders where imports are looked for, before any other: each as protoc's -I. */
struct protoc_includes {
    const char *const *folders; /* borrowed */
    size_t count;
};

/* A .proto file and all that it imports, as a packed FileDescriptorSet, the file last. Imports are
 * looked for beside the file, too, and those of sagad where they are installed
 * ($SAGACTL_PROTO_PATH, beside this program, in its source tree). protoc finds google/protobuf by
 * itself. ERR_NOT_FOUND: no file, no protoc, no protos of sagad. ERR_UNAVAILABLE: protoc refuses
 * it. */
MUST_USE int protoc_compile(const char *path, const struct protoc_includes *includes,
                            struct buf *ret, struct err *err);
/* A SagaDefinition in text format, packed. Here folders that are given must hold
 * saga/v1/definition.proto. */
MUST_USE int protoc_encode(const char *path, const struct protoc_includes *includes,
                           struct buf *ret, struct err *err);

#endif
