/* Labels of a saga: pairs of text, kept as one JSON object (keys sorted, so that the same labels
 * always are the same text). Any thread. */
#ifndef WIRE_LABELS_H
#define WIRE_LABELS_H

#include "base/err.h"
#include "wire/arena.h"

struct label {
    const char *key, *value;
};

/* NULL in *ret when there are none; else owned (mem_free). */
MUST_USE int labels_to_json(const struct label *labels, size_t count, char **ret, struct err *err);
/* The other way: copied into the arena. json NULL: none. ERR_INTERNAL if the text is not what
 * labels_to_json writes. */
MUST_USE int labels_from_json(struct arena *arena, const char *json, struct label **ret,
                              size_t *ret_count, struct err *err);

#endif
