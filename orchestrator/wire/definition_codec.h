/* Definitions between their three forms: the saga.v1 message, the core's plain data, and the packed
 * canonical bytes that the database keeps (every default filled in, so that the same content always
 * has the same bytes). Any thread. */
#ifndef WIRE_DEFINITION_CODEC_H
#define WIRE_DEFINITION_CODEC_H

#include "base/mem.h"
#include "core/definition.h"

#include <saga/v1/definition.pb-c.h>

/* Faults of the message itself (a wrong duration, `oneof undo` not set, a value that is not known)
 * and those of definition_check go to on_fault. *ret_faults 0: *ret is owned by the caller. */
MUST_USE int definition_from_message(const Saga__V1__SagaDefinition *message,
                                     definition_fault_fn *on_fault, void *ctx,
                                     struct definition **ret, size_t *ret_faults, struct err *err);
/* Packed canonical message; owned. */
MUST_USE int definition_encode(const struct definition *definition, struct bytes *ret,
                               struct err *err);
/* From stored bytes; ERR_INTERNAL if they are not what definition_encode wrote. */
MUST_USE int definition_decode(const struct bytes *content, struct definition **ret,
                               struct err *err);

#endif
