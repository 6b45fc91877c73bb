/* The types of a revision's payloads, for whoever runs it (core/payload_types.h). Any thread. */
#ifndef SCHEMA_DEFINITION_TYPES_H
#define SCHEMA_DEFINITION_TYPES_H

#include "base/mem.h"
#include "core/definition.h"
#include "schema/schema.h"

/* Gives the definition its `types`, from the descriptors that are stored with its revision (packed,
 * not kept). size 0: the definition names no type, and stays as it is. ERR_INTERNAL: they are not
 * what was registered; ERR_NOMEM. */
MUST_USE int definition_types_add(struct definition *definition, const struct bytes *descriptors,
                                  struct err *err);
/* A stored revision (definition_decode) with its types. */
MUST_USE int definition_decode_typed(const struct bytes *content, const struct bytes *descriptors,
                                     struct definition **ret, struct err *err);

/* The input's type, and the schema that it is of; NULL: bytes that nobody looks into. Borrowed from
 * the definition. */
const struct schema_message *definition_input_type(const struct definition *definition,
                                                   const struct schema **ret_schema);

#endif
