/* Which sagas tried an operation in a span of time, page by page, and those sagas as a whole. As
 * reader.h. */
#ifndef STORE_READER_EXPORT_H
#define STORE_READER_EXPORT_H

#include "store/reader.h"

struct store_attempts_filter { /* borrowed */
    const char *namespace_, *definition, *step;
    enum operation operation;
    bool by_end;            /* an attempt ended then, not began */
    int64_t from_ms, to_ms; /* [from, to), Unix epoch */
    bool has_after;
    int64_t after_us; /* start, Unix epoch */
    struct uuid after;
    size_t limit;
};
struct store_attempts_place {
    int64_t started_us;
    struct uuid uid;
};
/* Called for each saga in the order of their starts: what is loaded is the callee's to take
 * (saga_replay consumes it). *ret_more false: the page is full, and ends before this one. Non-zero
 * ends it all. */
typedef int store_attempts_fn(void *ctx, struct store_saga *saga, bool *ret_more, struct err *err);
/* All of one snapshot. *ret_more: there may be others, behind *ret_next; a page looks at a bounded
 * number of sagas, so it may be short, or empty, and go on. fn may be called anew from the first
 * saga, after a connection that broke: `begin` is called before each beginning. */
MUST_USE int store_reader_attempts(struct store_reader *reader,
                                   const struct store_attempts_filter *filter,
                                   store_attempts_fn *fn, void (*begin)(void *ctx), void *ctx,
                                   bool *ret_more, struct store_attempts_place *ret_next,
                                   struct err *err);

/* A revision with its descriptors, from within fn alone: of the same snapshot. */
MUST_USE int store_attempts_definition(struct store_reader *reader, const char *namespace_,
                                       const char *name, int32_t revision,
                                       struct store_definition *ret, struct err *err);

#endif
