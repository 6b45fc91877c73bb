/* What the bytes of the users' own messages must be. The core passes bytes on and looks into none;
 * whoever knows the types of a revision (orchestrator/schema) answers for them. Immutable, any
 * thread; the definition owns it. */
#ifndef CORE_PAYLOAD_TYPES_H
#define CORE_PAYLOAD_TYPES_H

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "core/words.h"

struct definition;

struct payload_types {
    const struct payload_types_ops *ops;
};

/* What a new saga gets of its input. */
struct payload_start {
    const char *saga_id; /* in: as given; "": not given. out: of the definition, if it makes one */
    const char *labels;  /* in: as given, JSON; NULL: none. out: with those of the definition */
    struct buf made;     /* what the two point to then; the caller frees it */
};

struct payload_types_ops {
    /* Of a saga that is to start: is the input of its type, and can every template be filled from
     * it? ERR_INVALID with the field ("input.items[2].price", "saga_id"). */
    int (*start)(const struct definition *definition, const struct bytes *input,
                 struct payload_start *start, struct err *err);
    /* Is that an output of the step's operation (of a probe: of what it asks about; of a wait: the
     * signal's payload)? ERR_INVALID with the path in err->field. */
    int (*output)(const struct definition *definition, size_t step, enum operation operation,
                  const struct bytes *output, struct err *err);
    /* Fills a template of the definition from the input, which was looked at when the saga started:
     * appends to `out`, at most `max` bytes. */
    int (*fill)(const struct definition *definition, const char *text, const struct bytes *input,
                size_t max, struct buf *out, struct err *err);
    void (*free)(struct payload_types *types);
};

#endif
