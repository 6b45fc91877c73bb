/* A saga as the API shows it: loaded by the reader's thread, replayed, and made into a message. How
 * many workers serve the handler that it waits for is the engine's to say, so such a look makes one
 * more round: reader, engine, reader. */
#ifndef RPC_SAGA_LOOK_H
#define RPC_SAGA_LOOK_H

#include "rpc/queries.h"
#include "store/reader_mend.h"

#include <saga/v1/saga.pb-c.h>

struct saga_look { /* zeroed, but for what is asked; lives until it is done */
    struct query query;
    struct arena *arena; /* of the message; the caller's */
    struct store_ref ref;
    bool full;
    /* Once. The message, and the saga that it was made of, are there until it returns; message
     * NULL: err says why. Any thread; the reader's if there is a message. */
    void (*done)(struct saga_look *look, Saga__V1__Saga *message, const struct saga *saga,
                 const struct err *err);
    /* its own: */
    struct definition *definition; /* the message borrows from both */
    struct saga *saga;
    Saga__V1__Saga *message;
    struct store_related *related; /* the message borrows from them, too */
    size_t related_count;
    struct engine_status status;
    struct held_times held; /* of the handler that it waits for */
};

/* A settled saga (ended, or parked) that is at hand, without what only FULL tells: the message as a
 * look would make it, with nobody asked. It borrows from the saga. Any thread. */
MUST_USE int saga_look_settled(struct arena *arena, const struct saga *saga, Saga__V1__Saga **ret,
                               struct err *err);
/* `call` is whose query it is: a call that is not open any more is not looked for. `admitted`: past
 * the bound of waiting queries. */
void saga_look_post(struct saga_look *look, struct call *call, bool admitted);

#endif
