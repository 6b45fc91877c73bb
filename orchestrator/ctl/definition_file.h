/* A definition from a file: JSON, or text format (.textproto, .txtpb) through protoc.
 * thread: the main thread. */
#ifndef CTL_DEFINITION_FILE_H
#define CTL_DEFINITION_FILE_H

#include "base/err.h"

#include <saga/v1/definition.pb-c.h>

/* proto_path: where saga/v1/definition.proto is; NULL: $SAGACTL_PROTO_PATH, then beside this
 * program. "-" reads JSON from stdin. *ret is owned. */
MUST_USE int definition_file_read(const char *path, const char *proto_path,
                                  Saga__V1__SagaDefinition **ret, struct err *err);
/* Is it text format, by its name? */
bool definition_file_is_text_format(const char *path);

#endif
