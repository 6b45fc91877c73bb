/* Handlers as the API shows them. thread: the reader's. */
#ifndef RPC_HANDLER_REPLY_H
#define RPC_HANDLER_REPLY_H

#include "engine/engine.h"
#include "rpc/internal.h"
#include "store/reader_handlers.h"

#include <saga/v1/saga.pb-c.h>

enum { HANDLERS_MAX = 1000 };

/* What is known of handlers, from everywhere; all of them, or one. */
struct handlers_look {
    struct store_handler_view *views;
    size_t view_count;
    struct store_let_go *let_go;
    size_t let_go_count;
    int64_t let_go_about;               /* of all that are counted no further; 0: none is */
    const struct engine_status *status; /* borrowed; NULL: not asked */
    int32_t breaker_failures;           /* the server's option */
};
/* only: NULL, or one handler. Free with handlers_look_done, also after an error. */
MUST_USE int handlers_look_read(struct handlers_look *look, struct store_reader *reader,
                                const char *only, struct err *err);
void handlers_look_done(struct handlers_look *look);
/* All names, sorted, each once; borrowed from the look. -1: memory. */
MUST_USE int handlers_look_names(const struct handlers_look *look, struct arena *arena,
                                 const char ***ret, size_t *ret_count);
/* NULL: of that handler nobody said anything. */
const struct store_handler_view *handlers_look_find(const struct handlers_look *look,
                                                    const char *name);
/* In the arena; NULL: memory. */
Saga__V1__Handler *handlers_look_message(const struct handlers_look *look, struct arena *arena,
                                         const char *name);

#endif
