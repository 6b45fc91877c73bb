/* A definition from a file: JSON, or text format (.textproto, .txtpb) through protoc.
 * thread: the main thread. */
#ifndef CTL_DEFINITION_FILE_H
#define CTL_DEFINITION_FILE_H

#include "ctl/protoc.h"

#include <saga/v1/definition.pb-c.h>

/* "-" reads JSON from stdin. *ret is owned. */
MUST_USE int definition_file_read(const char *path, const struct protoc_includes *includes,
                                  Saga__V1__SagaDefinition **ret, struct err *err);

enum definition_file_kind {
    DEFINITION_JSON,
    DEFINITION_TEXT,  /* text format: .textproto, .txtpb, .pbtxt, .textpb */
    DEFINITION_PROTO, /* .proto */
    DEFINITION_SET,   /* a FileDescriptorSet: .binpb, .pb, .desc, .bin, .fds, .protoset */
};
/* By its name; *ret_known (NULL: not wanted) is false where that says nothing, which is JSON. */
enum definition_file_kind definition_file_kind(const char *path, bool *ret_known);

#endif
