/* Other numbers for a saga that runs: how long and how often it is tried, how long a lease is. What
 * a person asked for, its text in the journal, and the definition with those numbers in the place
 * of its own. Never its structure: steps, effects and what compensates what stay as they were
 * registered. Any thread. */
#ifndef CORE_OPTIONS_H
#define CORE_OPTIONS_H

#include "base/mem.h"
#include "core/definition.h"

enum { OPTIONS_TEXT_MAX = 256, OPTIONS_SAME = -1 };

/* OPTIONS_SAME: as it is. */
struct saga_options {
    enum operation operation; /* OPERATION_COUNT: all that the step has */
    int64_t retry_for_ms, retry_initial_ms, retry_cap_ms;
    int64_t max_attempts; /* 0: the time budget alone decides */
    int64_t lease_ms;
    int64_t deadline_ms; /* of the saga, Unix epoch; 0: none any more */
};
#define OPTIONS_NONE                                                                               \
    {                                                                                              \
        .operation = OPERATION_COUNT, .retry_for_ms = OPTIONS_SAME,                                \
        .retry_initial_ms = OPTIONS_SAME, .retry_cap_ms = OPTIONS_SAME,                            \
        .max_attempts = OPTIONS_SAME, .lease_ms = OPTIONS_SAME, .deadline_ms = OPTIONS_SAME        \
    }

/* Is there anything that is said of operations, not of the saga? */
bool options_of_operations(const struct saga_options *options);
/* "operation=ACTION,retry_for_ms=3600000": what an entry keeps. Returns its length. */
size_t options_write(const struct saga_options *options, char ret[OPTIONS_TEXT_MAX]);
/* The same back; false for anything that options_write cannot have written. */
MUST_USE bool options_read(const struct bytes *text, struct saga_options *ret);

/* A copy whose numbers can be changed; texts, types and request shapes are borrowed from the
 * original, which must outlive it. Freed with mem_free; NULL when memory is out. */
MUST_USE struct definition *options_copy(const struct definition *definition);
/* Changes the numbers of a copy, in place: of one step, or of all (-1). Returns how many operations
 * there are that this is about. */
size_t options_apply(struct definition *copy, int step, const struct saga_options *options);
/* Have both the same numbers? Of one structure. */
bool options_equal(const struct definition *a, const struct definition *b);

#endif
