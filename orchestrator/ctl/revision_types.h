/* The types of one revision's payloads: which message its input, each step's outputs and each
 * signal are, and such payloads as proto3 JSON, both ways. Knows what the server told of the
 * revision; asks nobody. Never changes once it is made. Any thread; whoever made it frees it. */
#ifndef CTL_REVISION_TYPES_H
#define CTL_REVISION_TYPES_H

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "core/limits.h"
#include "schema/schema.h"

#include <jansson.h>
#include <saga/v1/definition.pb-c.h>
#include <saga/v1/saga.pb-c.h>

struct revision_types; /* opaque; owns the definition and its schema */

/* From what GetDefinition answered, which is consumed. ERR_INVALID, ERR_LIMIT: its descriptors
 * cannot be used, as schema_new says. In all that follows NULL stands for a revision of which
 * nothing is known: every payload is bytes. */
MUST_USE int revision_types_new(Saga__V1__RegisteredDefinition *registered,
                                struct revision_types **ret, struct err *err);
struct revision_types *revision_types_free(struct revision_types *types); /* NULL is fine; NULL */
static inline void revision_types_free_p(struct revision_types **types)
{
    *types = revision_types_free(*types);
}

struct revision_type {
    const char *name;                     /* borrowed; "": bytes that nobody looks into */
    const struct schema_message *message; /* NULL: the server did not tell what it looks like */
};

struct revision_type revision_types_input(const struct revision_types *types);
/* What an ACTION or a COMPENSATION of the step answers; of a step that waits for a signal, its
 * payload. */
struct revision_type revision_types_step(const struct revision_types *types, const char *step,
                                         Saga__V1__OperationKind operation);
struct revision_type revision_types_signal(const struct revision_types *types, const char *signal);

/* The journal, entry by entry from the first one: a probe answers what the operation would that it
 * asks about, and that is the compensation once it was granted. Starts zeroed. */
struct revision_journal {
    int64_t undo_seq[LIMIT_STEPS]; /* the first lease of the step's compensation; 0: none yet */
};
struct revision_type revision_types_entry(const struct revision_types *types,
                                          struct revision_journal *journal,
                                          const Saga__V1__JournalEntry *entry);

/* For people, on one line and safe for a terminal: as JSON, with "(+2 unknown fields)" where it has
 * such. Without a type, and where the bytes are no message of it (said, with the reason): text as
 * it is, all else as base64. What is longer than `bytes_max` (0: any length) is cut, and its length
 * told: then true. */
bool revision_types_write(const struct revision_types *types, struct revision_type type,
                          const ProtobufCBinaryData *payload, size_t bytes_max, struct buf *out);

/* For scripts: adds "<field>Json" to `object`, and "<field>UnknownFields" (a number) if there are
 * some; or "<field>Problem", why there is no JSON. Nothing where there is no type or no payload.
 * Fails with ERR_NOMEM only. */
MUST_USE int revision_types_add_json(const struct revision_types *types, struct revision_type type,
                                     const ProtobufCBinaryData *payload, const char *field,
                                     json_t *object, struct err *err);

/* What a person wrote, made into bytes of that type in place: an owned block. Without a type it
 * stays as it is; with one, text that starts with '{' is JSON, and so is every text if the type is
 * one whose JSON is no object (google.protobuf.StringValue). Other bytes stay as they are, unless
 * `text_only`: they stood on the command line, where nobody writes protobuf. Errors tell what it is
 * ("the input"), the type, and what is wrong where: path of the field, or line and column. */
MUST_USE int revision_types_read(const struct revision_types *types, struct revision_type type,
                                 const char *what, bool text_only, struct bytes *payload,
                                 struct err *err);

#endif
