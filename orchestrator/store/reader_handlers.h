/* Handlers for people: what is stored of them, and changes, on the reader's connection. As in
 * reader.h; the engines are told by whoever calls, or read it within a second. */
#ifndef STORE_READER_HANDLERS_H
#define STORE_READER_HANDLERS_H

#include "store/reader.h"

struct store_handler_view {
    struct handler row;
    int64_t waiting, leased; /* in the memory of the nodes that live; of a handler that is braked or
                                limited */
    int64_t oldest_ms;       /* since when the first of those waits; 0: none does */
    int32_t nodes;           /* that serve it */
};
/* By name, those behind `after`, at most `limit`. only: that one alone; NULL: every one of which
 * something was said. */
MUST_USE int store_reader_handlers(struct store_reader *reader, const char *only, const char *after,
                                   size_t limit, struct store_handler_view *ret, size_t *ret_count,
                                   struct err *err);

/* About how many sagas there are that wait for a handler and that no node has. */
MUST_USE int store_reader_let_go_about(struct store_reader *reader, int64_t *ret, struct err *err);

/* What becomes of the handler by this change. *ret_changed: false where there was nothing to
 * change; then *ret is as it was. ERR_CONFLICT: others change it all the time. */
MUST_USE int store_reader_handler_change(struct store_reader *reader, const char *name,
                                         const struct handler_change *change, struct handler *ret,
                                         bool *ret_changed, struct err *err);

/* When it was braked; owned array. */
MUST_USE int store_reader_held_times(struct store_reader *reader, const char *name,
                                     struct held_times *ret, struct err *err);

#endif
